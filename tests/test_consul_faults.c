/* test_consul_faults.c - what follows Consul, against an agent that answers as badly as it can: each is survived. */
#include "consul_stage.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define PEERS WEIR_FOLLOW_PEERS
#define GET_HEALTH "GET " HEALTH
#define HELD_HEALTH "GET " HEALTH "?passing&index="

/* ---- Bad answers ---- */

/* One bad answer: it is told of, named, and waited a second after; then all is well. */
static void assert_survives(enum fake_way way, const char *body, size_t len, const char *sentence)
{
    struct consul_stage stage;
    stage_set(&stage, FAKE_ON_TCP);
    if (way == FAKE_HANGS || way == FAKE_STALLS || way == FAKE_DRIPS)
        stage.consul.timeout_us = WEIR_SECOND / 2;
    stage.consul.token = stage.secret = "s3cret-marker";
    fake_consul_page_of(stage.fake, HEALTH, 200, 10, body, len);
    fake_consul_way(stage.fake, HEALTH, way, 1);
    stage_start(&stage);
    struct told told = told_await(PEERS, "failed", 1);
    ck_assert_msg(strstr(told.text, sentence) != NULL, "expected \"%s\": %s", sentence, told.text);
    fake_consul_page(stage.fake, HEALTH, 200, 11, A_AND_B);
    told_await(PEERS, "peers self=a: b=1", 1);
    stage_assert_gap(&stage, GET_HEALTH, 1, WEIR_SECOND);
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
    { FAKE_TRUNCATED, "with 2" /* ... bytes remaining to read */ },
    { FAKE_SHUTS, "remaining to read" },
    { FAKE_STALLS, "the answer was not whole in time" },
    { FAKE_DRIPS, "the answer was not whole in time" },
    { FAKE_ENDLESS, "the answer has more than 1048576 bytes" },
    { FAKE_HEADERS, "the answer has more than 65536 bytes of headers" },
    { FAKE_NOISE, "HTTP/0.9" },
};

START_TEST(bad_connection_is_a_failure_and_survived)
{
    assert_survives(bad_ways[_i].way, ONLY_A, strlen(ONLY_A), _i == 3 ? "remaining to read" : bad_ways[_i].sentence);
}
END_TEST

START_TEST(huge_answer_is_cut_off_while_it_comes)
{
    size_t len = 64 << 20;
    char *huge = malloc(len);
    ck_assert_ptr_nonnull(huge);
    memset(huge, ' ', len);
    assert_survives(FAKE_PLAIN, huge, len, "the answer has more than 1048576 bytes");
    free(huge);
}
END_TEST

START_TEST(answer_of_a_megabyte_is_read)
{
    struct consul_stage stage;
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
END_TEST

START_TEST(answer_that_is_not_understood_is_a_failure_and_survived)
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
END_TEST

START_TEST(status_other_than_200_is_a_failure_and_survived)
{
    static const int statuses[] = { 204, 301, 400, 403, 404, 429, 500, 503 };
    struct consul_stage stage;
    char sentence[64];
    stage_set(&stage, FAKE_ON_TCP);
    fake_consul_page(stage.fake, HEALTH, statuses[_i], 10, ONLY_A);
    stage_start(&stage);
    snprintf(sentence, sizeof sentence, "instances of api: it answers with status %d", statuses[_i]);
    ck_assert_ptr_nonnull(strstr(told_await(PEERS, "failed", 1).text, sentence));
    fake_consul_page(stage.fake, HEALTH, 200, 11, A_AND_B);
    told_await(PEERS, "peers self=a: b=1", 1);
    stage_assert_gap(&stage, GET_HEALTH, 1, WEIR_SECOND);
    ck_assert_int_eq(told_count(PEERS, "peers self=a: a"), 0);
    stage_end(&stage);
}
END_TEST

START_TEST(pauses_after_failures_grow_and_differ)
{
    struct consul_stage stage;
    struct fake_asked asked[4];
    stage_set(&stage, FAKE_ON_TCP);
    fake_consul_page(stage.fake, HEALTH, 500, 10, "No cluster leader");
    stage_start(&stage);
    ck_assert(fake_consul_await(stage.fake, GET_HEALTH, 4));
    for (int i = 0; i < 4; i++)
        ck_assert(fake_consul_asked(stage.fake, GET_HEALTH, i, &asked[i]));
    ck_assert_int_ge(asked[1].at_us - asked[0].at_us, WEIR_SECOND);
    ck_assert_int_ge(asked[2].at_us - asked[1].at_us, 2 * WEIR_SECOND);
    ck_assert_int_ge(asked[3].at_us - asked[2].at_us, 4 * WEIR_SECOND);
    stage_end(&stage);
}
END_TEST

START_TEST(query_that_is_held_too_long_is_given_up_after_its_wait)
{
    struct consul_stage stage;
    struct fake_asked asked;
    stage_set(&stage, FAKE_ON_TCP);
    stage.consul.wait_us = WEIR_SECOND;
    stage.consul.timeout_us = WEIR_SECOND / 5;
    stage_start(&stage);
    struct told told = told_await(PEERS, "failed", 1);
    ck_assert_ptr_nonnull(strstr(told.text, "no answer in time"));
    ck_assert(fake_consul_asked(stage.fake, HELD_HEALTH, 0, &asked));
    ck_assert_int_ge(told.at_us - asked.at_us, WEIR_SECOND); /* with 1/16 and the timeout, less what the asking took */
    fake_consul_page(stage.fake, HEALTH, 200, 3, A_AND_B);
    told_await(PEERS, "peers self=a: b=1", 1);
    stage_end(&stage);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("consul faults");
    suite_test_each(suite, bad_connection_is_a_failure_and_survived, (int)(sizeof bad_ways / sizeof bad_ways[0]), 60);
    suite_test(suite, huge_answer_is_cut_off_while_it_comes, 60);
    suite_test(suite, answer_of_a_megabyte_is_read, 60);
    suite_test_each(suite, answer_that_is_not_understood_is_a_failure_and_survived, 6, 60);
    suite_test_each(suite, status_other_than_200_is_a_failure_and_survived, 8, 60);
    suite_test(suite, pauses_after_failures_grow_and_differ, 60);
    suite_test(suite, query_that_is_held_too_long_is_given_up_after_its_wait, 60);
    return suite_run(suite);
}
