/* test_lab_cluster.c - the lab's Redis Cluster behaves as the other tests assume. */
#include "support.h"

#include "cluster.h"
#include "wire.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static char reply[65536];

/* Shared by all tests that leave it unchanged. */
static struct cluster common;

static int start(struct cluster *cluster, const struct cluster_wish *wish)
{
    int64_t began_us = wire_now_us();
    int error = cluster_start(cluster, wish);
    printf("%d nodes were ready after %" PRId64 " ms\n", cluster->n, (wire_now_us() - began_us) / 1000);
    return error;
}

static void good(struct cluster *cluster, int error)
{
    if (error != 0)
        ck_abort_msg("%s", cluster->error);
}

static const char *asked(struct cluster *cluster, int node, const char *command, const char *key, const char *value)
{
    ssize_t len = value == NULL ? cluster_ask(cluster, node, reply, sizeof reply, command, key)
                                : cluster_ask(cluster, node, reply, sizeof reply, command, key, value);
    if (len < 0)
        ck_abort_msg("%s: %s", command, cluster_asker(cluster, node)->error);
    return reply;
}

TEST(a_new_cluster_serves_every_slot_from_the_start, 60)
{
    char url[128], expected[128];
    ck_assert_int_eq(common.n, 6);
    for (int i = 0; i < 3; i++) {
        ck_assert_int_eq(cluster_owner(&common, (unsigned)(CLUSTER_SLOTS * i / 3)), i);
        ck_assert_int_eq(cluster_owner(&common, (unsigned)(CLUSTER_SLOTS * (i + 1) / 3 - 1)), i);
        ck_assert_int_eq(cluster_replica(&common, i), i + 3);
        ck_assert(cluster_is_primary(&common, i) && !cluster_is_primary(&common, i + 3));
    }
    cluster_url(&common, 5, 2, "u:p@", url, sizeof url);
    snprintf(expected, sizeof expected, "redis-cluster://u:p@127.0.0.1:%d,127.0.0.1:%d", common.nodes[5].port,
             common.nodes[0].port);
    ck_assert_str_eq(url, expected);
    CLOSED_BY(asker_close) struct asker by_port;
    must(asker_open_port(&by_port, common.nodes[4].port) == 0, by_port.error);
    ck_assert_int_eq(asker_ask(&by_port, NULL, 0, "PING", NULL), 4);
}

TEST(computed_slots_equal_those_of_the_nodes, 60)
{
    static const char *const keys[] = { "",           "123456789", "weir:limit:{user}", "{}x",   "a{b}c{d}", "{{a}}",
                                        "foo{}{bar}", "foo{",      "\xff\x80\n\r",      "{user}" };
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++)
        ck_assert_int_eq(cluster_key_slot(keys[i]), cluster_count(&common, 0, "CLUSTER", "KEYSLOT", keys[i]));
}

TEST(a_slot_migrates_with_its_keys_and_is_on_both_nodes_in_between, 60)
{
    unsigned slot = cluster_key_slot("{tag}"), other = (slot + 1) % CLUSTER_SLOTS;
    int from = cluster_owner(&common, slot), to = (from + 1) % 3;
    ck_assert_str_eq(asked(&common, from, "SET", "{tag}\n1", "one"), "OK");
    ck_assert_str_eq(asked(&common, from, "SET", "{tag}\n2", "two"), "OK");
    ck_assert_int_eq(strncmp(asked(&common, to, "GET", "{tag}\n1", NULL), "-MOVED", 6), 0);
    good(&common, cluster_slot_begin(&common, slot, from, to));
    ck_assert_int_eq(cluster_slot_carry(&common, slot, from, to, 1), 1);
    ck_assert_int_eq(strncmp(asked(&common, from, "GET", "{tag}\n3", NULL), "-ASK", 4), 0);
    const char *both = asked(&common, from, "MGET", "{tag}\n1", "{tag}\n2"); /* Redis 6 redirects to the other node */
    ck_assert_msg(strncmp(both, "-TRYAGAIN", 9) == 0 || strncmp(both, "-ASK", 4) == 0, "%s", both);
    ck_assert_str_eq(asked(&common, to, "ASKING", NULL, NULL), "OK");
    ck_assert_int_eq(strncmp(asked(&common, to, "MGET", "{tag}\n1", "{tag}\n2"), "-TRYAGAIN", 9), 0);
    ck_assert_int_eq(cluster_slot_carry(&common, slot, from, to, 9), 1);
    ck_assert_int_eq(cluster_slot_carry(&common, slot, from, to, 9), 0);
    good(&common, cluster_slot_end(&common, slot, from, to));
    good(&common, cluster_settle(&common));
    ck_assert_int_eq(cluster_owner(&common, slot), to);
    ck_assert_str_eq(asked(&common, to, "GET", "{tag}\n2", NULL), "two");
    ck_assert_int_eq(strncmp(asked(&common, from, "GET", "{tag}\n1", NULL), "-MOVED", 6), 0);
    ck_assert_int_eq(cluster_owner(&common, other), from);
    good(&common, cluster_slot_move(&common, slot, from));
    ck_assert_str_eq(asked(&common, from, "GET", "{tag}\n1", NULL), "one");
    good(&common, cluster_settle(&common));
}

TEST(a_replica_replaces_its_primary_on_request, 60)
{
    static const char *const names[] = { "plain", "FORCE", "TAKEOVER" };
    for (int how = 0; how < 3; how++) {
        unsigned slot = (unsigned)(CLUSTER_SLOTS * how / 3);
        int64_t began_us = wire_now_us();
        good(&common, cluster_fail_over(&common, how + 3, (enum cluster_failover)how));
        ck_assert_int_eq(cluster_await_owner(&common, slot, how), how + 3);
        printf("%s failover: %" PRId64 " ms\n", names[how], (wire_now_us() - began_us) / 1000);
        good(&common, cluster_settle(&common));
        ck_assert_int_eq(cluster_replica(&common, how + 3), how);
    }
    ck_assert_int_eq(cluster_fail_over(&common, 3, CLUSTER_FAILOVER), -1);
    ck_assert_msg(strstr(common.error, "node 3: -ERR"), "%s", common.error);
}

TEST(a_killed_or_stopped_primary_is_replaced_and_returns_as_a_replica, 120)
{
    CLOSED_BY(cluster_stop) struct cluster cluster;
    const struct cluster_wish wish = { .partial = true };
    good(&cluster, start(&cluster, &wish));
    int64_t began_us = wire_now_us();
    cluster_kill(&cluster, 0);
    ck_assert_int_eq(cluster_count(&cluster, 0, "PING"), -1);
    ck_assert_int_eq(cluster_owner(&cluster, 0), -1);
    ck_assert_int_eq(cluster_await_owner(&cluster, 0, 0), 3);
    printf("killed, and replaced after %" PRId64 " ms\n", (wire_now_us() - began_us) / 1000);
    good(&cluster, cluster_restart(&cluster, 0));
    good(&cluster, cluster_settle(&cluster));
    ck_assert_int_eq(cluster_replica(&cluster, 3), 0);
    began_us = wire_now_us();
    cluster_pause(&cluster, 1);
    ck_assert_int_eq(cluster_await_owner(&cluster, CLUSTER_SLOTS / 3, 1), 4);
    printf("paused, and replaced after %" PRId64 " ms\n", (wire_now_us() - began_us) / 1000);
    cluster_resume(&cluster, 1);
    good(&cluster, cluster_settle(&cluster));
    ck_assert_int_eq(cluster_replica(&cluster, 4), 1);
}

TEST(a_cluster_can_have_a_password_and_leaves_nothing_behind, 60)
{
    const struct cluster_wish locked = { .primaries = 2, .without_replica = true, .password = "s3cret" };
    struct cluster cluster;
    struct asker stranger;
    good(&cluster, start(&cluster, &locked));
    must(asker_open_port(&stranger, cluster.nodes[0].port) == 0, stranger.error);
    ck_assert_int_gt(asker_ask(&stranger, reply, sizeof reply, "GET", "x", NULL), 0);
    ck_assert_int_eq(strncmp(reply, "-NOAUTH", 7), 0);
    asker_close(&stranger);
    unsigned slot = cluster_key_slot("x");
    int from = cluster_owner(&cluster, slot);
    ck_assert_str_eq(asked(&cluster, from, "SET", "x", "1"), "OK");
    good(&cluster, cluster_slot_move(&cluster, slot, 1 - from));
    ck_assert_str_eq(asked(&cluster, 1 - from, "GET", "x", NULL), "1");
    char dir[sizeof cluster.nodes[1].server.daemon.dir];
    memcpy(dir, cluster.nodes[1].server.daemon.dir, sizeof dir);
    cluster_stop(&cluster);
    ck_assert_int_eq(access(dir, F_OK), -1);
    ck_assert_int_eq(cluster_owner(&cluster, 0), -1);
}

TEST(a_cluster_that_cannot_start_says_why, 60)
{
    static const char *const nonsense[] = { "--no-such-option", "1", NULL };
    const struct cluster_wish odd = { .server_words = nonsense }, many = { .primaries = 7 };
    struct cluster cluster;
    ck_assert_int_eq(cluster_start(&cluster, &odd), -1);
    ck_assert_msg(strstr(cluster.error, "ended at once"), "%s", cluster.error);
    ck_assert_int_eq(cluster_start(&cluster, &many), -1);
    ck_assert_str_eq(cluster.error, "more than 12 nodes");
}

int main(void)
{
    if (redis_server_missing())
        return 77;
    if (access("/dev/shm", W_OK) == 0) /* avoids disk waits, during which nodes stand still */
        setenv("TMPDIR", "/dev/shm", 0);
    const struct cluster_wish patient = { .patient = true };
    if (start(&common, &patient) != 0) {
        puts(common.error);
        return 1;
    }
    int status = suite_run(tests());
    cluster_stop(&common);
    return status;
}
