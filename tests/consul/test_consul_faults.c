/* test_consul_faults.c - following a Consul agent that answers as badly as it can: weir survives each way. */
#include "backends/consul/pace.h"
#include "consul_stage.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define PEERS WEIR_FOLLOW_PEERS
#define GET_HEALTH "GET " HEALTH
#define HELD_HEALTH "GET " HEALTH "?passing&index="

static struct consul_stage stage; /* the current test's */

/* ---- Bad answers ---- */

/* Give one bad answer: it must be reported with its reason and followed by a one-second pause; the next good answer
 * is accepted. */
static void assert_survives(enum fake_way way, const char *body, size_t len, const char *sentence)
{
    stage_set(&stage, FAKE_ON_TCP);
    if (way == FAKE_HANGS)
        stage.consul.timeout_us = WEIR_SECOND / 2;
    else if (way == FAKE_STALLS || way == FAKE_DRIPS)
        stage.consul.timeout_us = 3 * WEIR_SECOND; /* by then a line of the head has arrived, but not the whole body */
    stage.consul.token = stage.secret = "s3cret-marker";
    fake_consul_page_of(stage.fake, HEALTH, 200, 10, body, len);
    fake_consul_way(stage.fake, HEALTH, way, 1);
    stage_start(&stage);
    struct told told = told_await(PEERS, "failed", 1);
    ck_assert_msg(strstr(told.text, sentence) != NULL, "expected \"%s\": %s", sentence, told.text);
    fake_consul_page(stage.fake, HEALTH, 200, 11, A_AND_B);
    told_await(PEERS, "peers self=a: b=1", 1);
    stage_assert_gap(&stage, GET_HEALTH, 0, 1, WEIR_SECOND);
    ck_assert(!told_anywhere("s3cret-marker"));
    ck_assert_int_eq(fake_consul_count(stage.fake, "GET /v1/health/service/api?passing&index=10"), 0);
    stage_end(&stage);
}

static const struct {
    enum fake_way way;
    const char *sentence;
} bad_ways[] = {
    { FAKE_HANGS, "no answer in time" },
    { FAKE_CLOSES, "Empty reply from server" },
    { FAKE_RESETS, "reset" },
    { FAKE_TRUNCATED, "with 204 bytes " /* "remaining to read", or "missing" from curl 8.14 */ },
    { FAKE_SHUTS, "with 204 bytes " },
    { FAKE_STALLS, "the answer was incomplete in time" },
    { FAKE_DRIPS, "the answer was incomplete in time" },
    { FAKE_ENDLESS, "the answer has more than 1048576 bytes" },
    { FAKE_HEADERS, "the answer has more than 65536 bytes of headers" },
    { FAKE_NOISE, "HTTP/0.9" },
};

TEST_EACH(a_bad_connection_is_a_failure_that_weir_recovers_from, sizeof bad_ways / sizeof bad_ways[0], 60)
{
    assert_survives(bad_ways[_i].way, ONLY_A, strlen(ONLY_A), bad_ways[_i].sentence);
}

TEST(a_huge_answer_is_cut_off_while_it_arrives, 60)
{
    size_t len = 64 << 20;
    char *huge = malloc(len);
    ck_assert_ptr_nonnull(huge);
    memset(huge, ' ', len);
    assert_survives(FAKE_PLAIN, huge, len, "the answer has more than 1048576 bytes");
    free(huge);
}

TEST(answer_of_a_megabyte_is_read, 60)
{
    size_t len = 1 << 20;
    char *large = malloc(len);
    ck_assert_ptr_nonnull(large);
    memset(large, ' ', len);
    memcpy(large, ONLY_A, strlen(ONLY_A));
    stage_set(&stage, FAKE_ON_TCP);
    fake_consul_page_of(stage.fake, HEALTH, 200, 10, large, len);
    stage_start(&stage);
    told_await(PEERS, "peers self=a: a=3", 1);
    stage_end(&stage);
    free(large);
}

TEST_EACH(a_malformed_answer_is_a_failure_that_weir_recovers_from, 6, 60)
{
    static const char *const bad[][2] = {
        { "", "ends before its JSON does" },
        { "[{\"Service\":", "ends before its JSON does" },
        { "<html>busy</html>", "is not JSON" },
        { "{}", "is not an array" },
        { "[[[[[[[[[[[[[[[[[1]]]]]]]]]]]]]]]]]", "nests deeper than 16" },
        { "[{\"Service\":{\"ID\":7}}]", "entry 1 of the answer has no text Service.ID" },
    };
    assert_survives(FAKE_CHUNKED, bad[_i][0], strlen(bad[_i][0]), bad[_i][1]);
}

TEST_EACH(a_status_other_than_200_is_a_failure_that_weir_recovers_from, 8, 60)
{
    static const int statuses[] = { 204, 301, 400, 403, 404, 429, 500, 503 };
    char sentence[64];
    stage_set(&stage, FAKE_ON_TCP);
    fake_consul_page(stage.fake, HEALTH, statuses[_i], 10, ONLY_A);
    stage_start(&stage);
    snprintf(sentence, sizeof sentence, "instances of api: it answered with status %d", statuses[_i]);
    ck_assert_ptr_nonnull(strstr(told_await(PEERS, "failed", 1).text, sentence));
    fake_consul_page(stage.fake, HEALTH, 200, 11, A_AND_B);
    told_await(PEERS, "peers self=a: b=1", 1);
    stage_assert_gap(&stage, GET_HEALTH, 0, 1, WEIR_SECOND);
    ck_assert_int_eq(told_count(PEERS, "peers self=a: a"), 0);
    stage_end(&stage);
}

TEST(pauses_between_policy_queries_grow_after_failures, 60)
{
    struct fake_asked asked[4];
    stage_set(&stage, FAKE_ON_TCP);
    stage.options.peers = NULL;
    stage.options.consul_policies = "weir";
    fake_consul_page(stage.fake, KV, 500, 10, "No cluster leader");
    stage_start(&stage);
    ck_assert(fake_consul_await(stage.fake, "GET " KV, 4));
    for (int i = 0; i < 4; i++)
        ck_assert(fake_consul_asked(stage.fake, "GET " KV, i, &asked[i]));
    ck_assert_int_ge(asked[1].at_us - asked[0].at_us, WEIR_SECOND);
    ck_assert_int_ge(asked[2].at_us - asked[1].at_us, 2 * WEIR_SECOND);
    ck_assert_int_ge(asked[3].at_us - asked[2].at_us, 4 * WEIR_SECOND);
    stage_end(&stage);
}

/* Other instances drop a member after their hold-down, so a joined instance must not stop looking for longer than
 * that. */
TEST(pauses_between_instance_queries_stay_at_1_to_1_5_s_after_failures, 60)
{
    struct consul_pace pace;
    int64_t now_us = 0;
    consul_pace_init(&pace, true);
    for (int i = 0; i < 1000; i++) {
        int64_t due_us = consul_pace_failed(&pace, now_us);
        ck_assert_int_ge(due_us - now_us, WEIR_SECOND);
        ck_assert_int_lt(due_us - now_us, 3 * WEIR_SECOND / 2);
        now_us = due_us;
    }
    for (int i = 0; i < 1000; i++) { /* also when an immediate answer has no news */
        int64_t due_us = consul_pace_answered(&pace, now_us, now_us, false);
        ck_assert_int_lt(due_us - now_us, 3 * WEIR_SECOND / 2);
        ck_assert(i < 20 || due_us - now_us >= WEIR_SECOND);
        now_us = due_us;
    }
}

TEST(the_instance_list_is_retried_without_growing_pauses, 60)
{
    enum { FAILURES = 8 }; /* growing pauses would make the last one 20 s and more */
    struct fake_asked first, last;
    stage_set(&stage, FAKE_ON_TCP);
    fake_consul_page(stage.fake, HEALTH, 500, 10, "No cluster leader");
    stage_start(&stage);
    ck_assert(fake_consul_await(stage.fake, GET_HEALTH, FAILURES));
    ck_assert(fake_consul_asked(stage.fake, GET_HEALTH, 0, &first));
    ck_assert(fake_consul_asked(stage.fake, GET_HEALTH, FAILURES - 1, &last));
    ck_assert_int_ge(last.at_us - first.at_us, (FAILURES - 1) * WEIR_SECOND);
    stage_end(&stage);
}

TEST(a_silently_dead_connection_is_noticed_while_a_query_waits, 60)
{
    stage_set(&stage, FAKE_ON_TCP);
    stage_start(&stage);
    ck_assert(fake_consul_await(stage.fake, HELD_HEALTH, 1)); /* the agent holds it for 10 minutes */
    fake_consul_cut_cable(stage.fake);
    fake_consul_page(stage.fake, HEALTH, 200, 3, A_AND_B);
    told_await(PEERS, "peers self=a: b=1", 1);
    stage_end(&stage);
}

TEST(a_query_held_longer_than_its_wait_is_abandoned, 60)
{
    struct fake_asked asked;
    stage_set(&stage, FAKE_ON_TCP);
    stage.consul.wait_us = WEIR_SECOND;
    stage.consul.timeout_us = 2 * WEIR_SECOND;
    stage_start(&stage);
    struct told told = told_await(PEERS, "failed", 1);
    ck_assert_ptr_nonnull(strstr(told.text, "no answer in time"));
    ck_assert(fake_consul_asked(stage.fake, HELD_HEALTH, 0, &asked));
    /* plus 1/16 and the timeout, minus the time that the request took */
    ck_assert_int_ge(told.at_us - asked.at_us, WEIR_SECOND);
    fake_consul_page(stage.fake, HEALTH, 200, 3, A_AND_B);
    told_await(PEERS, "peers self=a: b=1", 1);
    stage_end(&stage);
}
