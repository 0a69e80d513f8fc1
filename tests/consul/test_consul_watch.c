/* test_consul_watch.c - watching instances and policies in Consul, by blocking queries or by polling. */
#include "consul_stage.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define PEERS WEIR_FOLLOW_PEERS
#define POLICIES WEIR_FOLLOW_CONSUL_POLICIES
#define GET_HEALTH "GET " HEALTH
#define HELD_HEALTH "GET " HEALTH "?passing&index="

static struct consul_stage stage; /* the current test's */

/* ---- What a good agent says ---- */

TEST(instances_are_reported_with_their_weights, 60)
{
    stage_set(&stage, FAKE_ON_TCP);
    fake_consul_page(stage.fake, HEALTH, 200, 10, A_AND_B);
    stage_start(&stage);
    ck_assert_str_eq(told_await(PEERS, "peers", 1).text, "peers self=a: b=1 a=3");
    stage_end(&stage);
    ck_assert_int_eq(told_count(PEERS, "failed"), 0);
    ck_assert_int_eq(stage.log_lines, 0);
}

TEST(a_query_with_an_index_waits_for_a_change, 60)
{
    struct fake_asked asked;
    stage_set(&stage, FAKE_ON_TCP);
    stage_start(&stage);
    ck_assert(fake_consul_await(stage.fake, HELD_HEALTH, 1));
    ck_assert(fake_consul_asked(stage.fake, GET_HEALTH, 0, &asked));
    ck_assert_str_eq(asked.target, GET_HEALTH "?passing");
    ck_assert(fake_consul_asked(stage.fake, GET_HEALTH, 1, &asked));
    ck_assert_str_eq(asked.target, GET_HEALTH "?passing&index=10&wait=600000ms");
    for (int i = 0; i < 50; i++) {
        fake_consul_page(stage.fake, HEALTH, 200, 11 + (uint64_t)i, i % 2 ? ONLY_A : A_AND_B);
        told_await(PEERS, "peers", i + 2);
    }
    ck_assert_str_eq(told_at(PEERS, "peers", 49).text, "peers self=a: b=1 a=3");
    ck_assert_str_eq(told_at(PEERS, "peers", 50).text, "peers self=a: a=3");
    ck_assert_int_eq(fake_consul_connections(stage.fake), 1);
    ck_assert_int_le(fake_consul_count(stage.fake, GET_HEALTH), 52);
    stage_end(&stage);
    ck_assert_int_eq(told_count(PEERS, "failed"), 0);
}

TEST(a_change_is_reported_as_soon_as_the_agent_answers, 60)
{
    stage_set(&stage, FAKE_ON_TCP);
    stage_start(&stage);
    ck_assert(fake_consul_await(stage.fake, HELD_HEALTH, 1));
    fake_consul_page(stage.fake, HEALTH, 200, 11, A_AND_B);
    struct told told = told_await(PEERS, "peers self=a: b=1", 1);
    int64_t delay_us = told.at_us - fake_consul_told_us(stage.fake, HEALTH);
    ck_assert_int_ge(delay_us, 0);
    printf("reported %lld us after the agent's answer\n", (long long)delay_us);
    stage_end(&stage);
}

TEST(empty_lists_and_lists_without_this_instance_are_reported_unchanged, 60)
{
    stage_set(&stage, FAKE_ON_TCP);
    stage_start(&stage);
    ck_assert(fake_consul_await(stage.fake, HELD_HEALTH, 1));
    fake_consul_page(stage.fake, HEALTH, 200, 11, "[]");
    ck_assert_str_eq(told_await(PEERS, "peers", 2).text, "peers self=a:");
    fake_consul_page(stage.fake, HEALTH, 200, 12, "[" INSTANCE("c", "") "]");
    ck_assert_str_eq(told_await(PEERS, "peers", 3).text, "peers self=a: c=1");
    stage_end(&stage);
}

/* An unchanged index must not make a list without this instance pass for a good one. */
TEST(unchanged_list_without_this_instance_is_reported_again, 60)
{
    stage_set(&stage, FAKE_ON_TCP);
    fake_consul_page(stage.fake, HEALTH, 200, 10, "[]");
    fake_consul_way(stage.fake, HEALTH, FAKE_AT_ONCE, 3);
    stage_start(&stage);
    told_await(PEERS, "peers self=a:", 3);
    ck_assert_int_eq(told_count(PEERS, "confirmed"), 0);
    stage_end(&stage);
}

TEST(weights_come_from_the_meta_field_named_by_weight_meta, 60)
{
    stage_set(&stage, FAKE_ON_TCP);
    stage.peers.weight_meta = "w";
    fake_consul_page(stage.fake, HEALTH, 200, 10,
                     "[{\"Service\":{\"ID\":\"a\",\"Meta\":{\"w\":\"65535\"}}},{\"Service\":{\"ID\":\"b\"}}]");
    stage_start(&stage);
    ck_assert_str_eq(told_await(PEERS, "peers", 1).text, "peers self=a: a=65535 b=1");
    fake_consul_page(stage.fake, HEALTH, 200, 11, "[{\"Service\":{\"ID\":\"a\",\"Meta\":{\"w\":\"many\"}}}]");
    ck_assert_ptr_nonnull(strstr(told_await(PEERS, "failed", 1).text,
                                 "instances of api: instance \"a\": Service.Meta \"w\" is not a whole number"));
    stage_end(&stage);
}

TEST(polling_queries_at_the_poll_interval_and_never_with_an_index, 60)
{
    stage_set(&stage, FAKE_ON_TCP);
    stage.peers.poll_us = WEIR_SECOND / 10;
    stage_start(&stage);
    told_await(PEERS, "peers", 3);
    fake_consul_page(stage.fake, HEALTH, 200, 11, A_AND_B);
    told_await(PEERS, "peers self=a: b=1", 3);
    ck_assert_int_eq(fake_consul_count(stage.fake, HELD_HEALTH), 0);
    stage_end(&stage);
}

/* ---- Indexes ---- */

TEST(an_index_that_decreases_is_dropped, 60)
{
    struct fake_asked asked;
    stage_set(&stage, FAKE_ON_TCP);
    stage_start(&stage);
    ck_assert(fake_consul_await(stage.fake, HELD_HEALTH, 1));
    fake_consul_page(stage.fake, HEALTH, 200, 4, A_AND_B);
    fake_consul_way(stage.fake, HEALTH, FAKE_AT_ONCE, 1);
    told_await(PEERS, "peers self=a: b=1", 1);
    ck_assert(fake_consul_await(stage.fake, GET_HEALTH, 4));
    ck_assert(fake_consul_asked(stage.fake, GET_HEALTH, 2, &asked));
    ck_assert_str_eq(asked.target, GET_HEALTH "?passing");
    ck_assert(fake_consul_asked(stage.fake, GET_HEALTH, 3, &asked));
    ck_assert_ptr_nonnull(strstr(asked.target, "&index=4&"));
    stage_end(&stage);
    ck_assert_int_eq(told_count(PEERS, "failed"), 0);
}

/* Immediate answers without news: ten of them, then pauses. */
static void assert_does_not_spin(enum fake_way way, uint64_t index, const char *with)
{
    struct fake_asked asked;
    stage_set(&stage, FAKE_ON_TCP);
    fake_consul_page(stage.fake, HEALTH, 200, index, ONLY_A);
    fake_consul_way(stage.fake, HEALTH, way, -1);
    stage_start(&stage);
    ck_assert(fake_consul_await(stage.fake, GET_HEALTH, 13));
    stage_assert_gap(&stage, GET_HEALTH, 0, 12, WEIR_SECOND); /* an answer that took a second begins another ten */
    for (int i = 1; i < 13; i++) {
        ck_assert(fake_consul_asked(stage.fake, GET_HEALTH, i, &asked));
        ck_assert_msg((strstr(asked.target, "index=") != NULL) == (with != NULL), "%s", asked.target);
    }
    ck_assert_int_eq(told_count(PEERS, "failed"), 0);
    fake_consul_page(stage.fake, HEALTH, 200, 11, A_AND_B);
    told_await(PEERS, "peers self=a: b=1", 1);
    stage_end(&stage);
}

TEST(an_agent_that_never_waits_is_queried_at_a_limited_rate, 60)
{
    assert_does_not_spin(FAKE_AT_ONCE, 10, "10");
}

TEST(index_of_0_is_not_used_to_wait, 60)
{
    assert_does_not_spin(FAKE_CHUNKED, 0, NULL);
}

TEST(answers_without_an_index_are_accepted, 60)
{
    assert_does_not_spin(FAKE_NO_INDEX, 10, NULL);
}

TEST(answers_with_a_malformed_index_are_accepted, 60)
{
    assert_does_not_spin(FAKE_BAD_INDEX, 10, NULL);
}

TEST(an_agent_that_closes_every_connection_is_queried_without_an_index, 60)
{
    assert_does_not_spin(FAKE_AND_CLOSE, 10, NULL);
}

TEST(an_ever_growing_index_causes_at_most_ten_queries_a_second, 60)
{
    stage_set(&stage, FAKE_ON_TCP);
    stage_start(&stage);
    for (int i = 0; i < 25; i++) {
        ck_assert(fake_consul_await(stage.fake, HELD_HEALTH, i + 1));
        fake_consul_page(stage.fake, HEALTH, 200, 11 + (uint64_t)i, ONLY_A);
    }
    struct fake_asked first, last;
    ck_assert(fake_consul_asked(stage.fake, HELD_HEALTH, 0, &first));
    ck_assert(fake_consul_asked(stage.fake, HELD_HEALTH, 24, &last));
    ck_assert_int_ge(last.at_us - first.at_us, 13 * WEIR_SECOND / 10);
    stage_end(&stage);
}

/* libcurl reconnects by itself and repeats the query when a connection is gone. A restarted agent counts from a lower
 * index, so with the old index it would not report any change. */
TEST(an_agent_that_restarts_is_queried_without_the_old_index, 60)
{
    struct fake_asked asked;
    stage_set(&stage, FAKE_ON_TCP);
    stage_start(&stage);
    ck_assert(fake_consul_await(stage.fake, HELD_HEALTH, 1));
    fake_consul_page(stage.fake, HEALTH, 200, 3, A_AND_B);
    fake_consul_listen(stage.fake, true); /* cuts all connections; they may return immediately */
    told_await(PEERS, "peers self=a: b=1", 1);
    ck_assert(fake_consul_asked(stage.fake, GET_HEALTH, 2, &asked));
    ck_assert_str_eq(asked.target, GET_HEALTH "?passing");
    ck_assert_int_eq(asked.connection, 2);
    stage_end(&stage);
}

TEST(an_unreachable_agent_is_queried_again_until_it_returns, 60)
{
    stage_set(&stage, FAKE_ON_TCP);
    stage_start(&stage);
    ck_assert(fake_consul_await(stage.fake, HELD_HEALTH, 1));
    fake_consul_listen(stage.fake, false);
    fake_consul_page(stage.fake, HEALTH, 200, 3, A_AND_B);
    told_await(PEERS, "failed", 2);
    ck_assert_int_ge(told_at(PEERS, "failed", 1).at_us - told_at(PEERS, "failed", 0).at_us, WEIR_SECOND / 2);
    fake_consul_listen(stage.fake, true);
    told_await(PEERS, "peers self=a: b=1", 1);
    stage_end(&stage);
}

/* Return the number after `name` in the system's description of a descriptor, or -1 if it is missing. */
static long long fd_says(int fd, const char *name)
{
    char path[64], line[128];
    long long number = -1;
    snprintf(path, sizeof path, "/proc/self/fdinfo/%d", fd);
    FILE *file = fopen(path, "r");
    while (file != NULL && number < 0 && fgets(line, sizeof line, file) != NULL)
        if (strncmp(line, name, strlen(name)) == 0)
            number = strtoll(line + strlen(name), NULL, 10);
    if (file != NULL)
        fclose(file);
    return number;
}

/* Return the seconds that are left of the only CLOCK_BOOTTIME timer, or 0 if it is not set. */
static long long timer_s(void)
{
    long long left_s = -1;
    for (int fd = 0; fd < 256; fd++) {
        if (fd_says(fd, "clockid:") != CLOCK_BOOTTIME)
            continue;
        ck_assert_int_eq(left_s, -1);
        left_s = fd_says(fd, "it_value: (");
    }
    ck_assert_int_ge(left_s, 0);
    return left_s;
}

/* poll()'s timeout stops while the system sleeps; a CLOCK_BOOTTIME timer wakes the thread. */
TEST(the_timeout_of_a_held_query_includes_system_sleep, 60)
{
    stage_set(&stage, FAKE_ON_TCP);
    stage_start(&stage);
    ck_assert(fake_consul_await(stage.fake, HELD_HEALTH, 1));
    while (timer_s() < 9 * 60) /* 10 minutes and a bit; it is set after the query was sent */
        sched_yield();
    stage_end(&stage);
}

/* ---- Policies ---- */

static void stage_set_policies(void)
{
    stage_set(&stage, FAKE_ON_TCP);
    stage.options.peers = NULL;
    stage.options.consul_policies = "weir";
}

TEST(policies_are_reported_when_they_change, 60)
{
    struct fake_asked asked;
    stage_set_policies();
    fake_consul_page(stage.fake, KV, 404, 5, "");
    stage_start(&stage);
    ck_assert_str_eq(told_await(POLICIES, "policies", 1).text, "policies:");
    fake_consul_page(stage.fake, KV, 200, 6,
                     "[" KEY("weir/", "null") "," KEY("weir/api", BUCKET) "," KEY("weir/api/", "null") "," KEY(
                         "weir/api/10.0/8*", BUCKET) "," KEY("weir/web", NONSENSE) "]");
    ck_assert_str_eq(told_await(POLICIES, "policies", 2).text,
                     "policies: api=token_bucket limit=100 period=1s (Consul's weir/api);"
                     " api/10.0/8*=token_bucket limit=100 period=1s (Consul's weir/api/10.0/8*);"
                     " web !column 1: \"nonsense\" is not an algorithm: token_bucket, fixed_window, sliding_window,"
                     " leaky_bucket, concurrency, unlimited or deny is expected (Consul's weir/web)");
    fake_consul_page(stage.fake, KV, 404, 7, "");
    ck_assert_str_eq(told_await(POLICIES, "policies", 3).text, "policies:");
    ck_assert(fake_consul_asked(stage.fake, "GET ", 0, &asked));
    ck_assert_str_eq(asked.target, "GET " KV "?recurse");
    ck_assert(fake_consul_asked(stage.fake, "GET ", 1, &asked));
    ck_assert_str_eq(asked.target, "GET " KV "?recurse&index=5&wait=600000ms");
    stage_end(&stage);
    ck_assert_int_eq(told_count(POLICIES, "failed"), 0);
}

TEST(policies_with_the_same_index_are_confirmed, 60)
{
    stage_set_policies();
    fake_consul_page(stage.fake, KV, 200, 5, "[" KEY("weir/api", BUCKET) "]");
    fake_consul_way(stage.fake, KV, FAKE_AT_ONCE, 2);
    stage_start(&stage);
    told_await(POLICIES, "confirmed", 1);
    ck_assert_int_eq(told_count(POLICIES, "policies"), 1);
    stage_end(&stage);
}

/* Consul reports policies only when they change, so it would never send these again. */
TEST(policies_lost_for_lack_of_memory_are_requested_again, 60)
{
    stage_set_policies();
    fake_consul_page(stage.fake, KV, 200, 5, "[" KEY("weir/api", BUCKET) "]");
    told_lack_memory(2);
    stage_start(&stage);
    told_await(POLICIES, "policies: api=", 1);
    ck_assert_int_eq(told_count(POLICIES, "failed"), 2); /* each failure is reported once */
    for (int i = 1; i < 3; i++)
        stage_assert_gap(&stage, "GET " KV "?recurse", i - 1, i, WEIR_SECOND);
    ck_assert(fake_consul_await(stage.fake, "GET " KV "?recurse&index=5", 1));
    ck_assert_int_eq(fake_consul_count(stage.fake, "GET " KV), 4);
    stage_end(&stage);
}

TEST(policies_without_permission_to_read_them_are_a_failure, 60)
{
    stage_set_policies();
    fake_consul_page(stage.fake, KV, 403, 5, "Permission denied");
    stage_start(&stage);
    ck_assert_ptr_nonnull(strstr(told_await(POLICIES, "failed", 1).text,
                                 "policies under weir: it answered with status 403: the token lacks the permission"));
    stage_end(&stage);
}

TEST(policies_and_peers_do_not_wait_for_each_other, 60)
{
    stage_set(&stage, FAKE_ON_TCP);
    stage.options.consul_policies = "weir/";
    fake_consul_page(stage.fake, KV, 200, 5, "[]");
    fake_consul_way(stage.fake, KV, FAKE_HANGS, 1);
    stage_start(&stage);
    told_await(PEERS, "peers", 1);
    fake_consul_page(stage.fake, HEALTH, 200, 11, A_AND_B);
    told_await(PEERS, "peers self=a: b=1", 1);
    ck_assert_int_eq(told_count(POLICIES, ""), 0);
    stage_end(&stage);
}
