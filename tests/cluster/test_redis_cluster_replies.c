/* test_redis_cluster_replies.c - cluster redirects that lead nowhere, in circles, or to ever new nodes: fault D6. */
#include "cluster_speaker.h"

#include <inttypes.h>
#include <stdio.h>

enum { HOPS_MOST = 3 };

/* ---- Redirections ---- */

enum way { BY_CALLER, BY_BATCH, BY_GROUP, BY_SUBMIT, WAYS };
static const char *const ways[WAYS] = { "by caller", "in a batch", "in a group", "submitted" };

static void tell_status(struct weir_op *op, int status)
{
    atomic_store((atomic_int *)op->user, status);
}

static int tried(enum way way, weir *limiter, weir_limit *limit)
{
    struct weir_decision decisions[2];
    const struct weir_request requests[2] = { { .limit = limit, .key = weir_key_text("foo"), .cost = 1 },
                                              { .limit = limit, .key = weir_key_text("bar"), .cost = 1 } };
    atomic_int status = 2;
    struct weir_op op = { .request = requests[0], .done = tell_status, .user = &status };
    switch (way) {
    case BY_CALLER: return weir_try(limit, requests[0].key, 1, &decisions[0]);
    case BY_BATCH: return weir_try_batch(limiter, requests, 2, decisions);
    case BY_GROUP: return weir_try_all(limiter, requests, 2, &decisions[0]);
    default: break;
    }
    int error = weir_submit(limiter, &op);
    if (error != 1)
        return error;
    while (atomic_load(&status) == 2)
        sleep_us(100);
    return atomic_load(&status);
}

TEST(a_call_fails_after_a_few_redirects_that_lead_nowhere, 120)
{
    static const struct {
        const char *decides, *asking;
        bool to_itself; /* PORT is the node's own port; otherwise a port where nothing listens */
    } rows[] = {
        { "-MOVED 12182 127.0.0.1:PORT", NULL, true },
        { "-ASK 12182 127.0.0.1:PORT", NULL, true },
        { "-ASK 12182 127.0.0.1:PORT", "-ERR unknown command 'ASKING'\r\n", true },
        { "-ASK 12182 127.0.0.1:PORT", ":1\r\n", true },
        { "-MOVED 12182 :PORT", NULL, true },
        { "-MOVED 12182 127.0.0.1:PORT", NULL, false },
        { "-ASK 12182 127.0.0.1:PORT", NULL, false },
        { "-MOVED 12182 ::1:PORT", NULL, false },
        { "-MOVED 1 127.0.0.1:PORT", NULL, true },
        { "-MOVED 16384 127.0.0.1:PORT", NULL, true },
        { "-MOVED -1 127.0.0.1:PORT", NULL, true },
        { "-MOVED 12182 ?:PORT", NULL, true },
        { "-MOVED 12182 127.0.0.1:0", NULL, true },
        { "-MOVED 12182 127.0.0.1:99999", NULL, true },
        { "-MOVED 12182 a b:PORT", NULL, true },
        { "-MOVED 12182", NULL, true },
        { "-MOVED", NULL, true },
        { "-ASK", NULL, true },
        { "-MOVED 12182 nowhere.invalid:PORT", NULL, true },
        { "-TRYAGAIN Multiple keys request during rehashing of slot", NULL, true },
        { "-CLUSTERDOWN The cluster is down", NULL, true },
        { "-CLUSTERDOWN Hash slot not served", NULL, true },
        { "-CROSSSLOT Keys in request don't hash to the same slot", NULL, true },
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        for (enum way way = 0; way < WAYS; way++) {
            CLOSED_BY(place_close) struct place place;
            static struct speaker node;
            node = (struct speaker){ .decides = rows[i].decides, .asking = rows[i].asking, .truths = INT64_MAX };
            speaker_start(&node);
            map_to(&node, node.port);
            node.to = rows[i].to_itself ? node.port : daemon_port_closed();
            struct weir_options options = speaker_options(&place, SPEAKER_TIMEOUT_US, &node, NULL);
            weir *limiter = limiter_of(&options);
            weir_limit *limit = limit_of(limiter, "limit", UNREFILLED);
            recover(limit, "foo");
            atomic_store(&node.truths, 0);
            int64_t calls = atomic_load(&node.calls), began_us = wire_now_us();
            int status = tried(way, limiter, limit);
            int64_t took_us = wire_now_us() - began_us;
            ck_assert_msg(status == WEIR_EIO || status == WEIR_ETIME, "row %zu %s: %d", i, ways[way], status);
            ck_assert_int_le(took_us, call_most_us(SPEAKER_TIMEOUT_US));
            calls = atomic_load(&node.calls) - calls;
            ck_assert_msg(calls <= 2 * (1 + HOPS_MOST + 1), "row %zu %s: %" PRId64 " calls", i, ways[way], calls);
            weir_close(limiter);
            fake_redis_stop(node.fake);
        }
}

/* "bar" (slot 5061) is served by the redirecting node or by the other one; in the latter case "foo" is the only key. */
TEST(no_caller_notices_one_redirect_to_a_deciding_node, 60)
{
    static const char *const rows[] = { "-MOVED 12182 127.0.0.1:PORT", "-ASK 12182 127.0.0.1:PORT",
                                        "-MOVED 12182 :PORT", "-ASK 12182 :PORT", "-MOVED 12182 localhost:PORT" };
    for (size_t i = 0; i < 2 * sizeof rows / sizeof rows[0]; i++)
        for (enum way way = 0; way < WAYS; way++) {
            CLOSED_BY(place_close) struct place place;
            static struct speaker from, to;
            from = (struct speaker){ .decides = rows[i / 2] };
            to = (struct speaker){ .decides = NULL };
            speaker_start(&from);
            speaker_start(&to);
            from.to = to.port;
            snprintf(from.map, sizeof from.map, /* until the map is known, requests go to the map's first node */
                     "*2\r\n*3\r\n:10000\r\n:16383\r\n*3\r\n" HOST ":%d\r\n" ID "*3\r\n:0\r\n:9999\r\n*3\r\n" HOST
                     ":%d\r\n" ID,
                     from.port, i % 2 == 0 ? from.port : to.port);
            struct weir_options options = speaker_options(&place, SPEAKER_PATIENCE_US, &from, NULL);
            weir *limiter = limiter_of(&options);
            weir_limit *limit = limit_of(limiter, "limit", UNREFILLED);
            int status = tried(way, limiter, limit);
            ck_assert_msg(status == WEIR_OK, "%s %s: %s", rows[i / 2], ways[way], weir_strerror(status));
            ck_assert_int_gt(atomic_load(&to.calls), 0);
            ck_assert_msg((atomic_load(&to.asked) > 0) == (rows[i / 2][1] == 'A'), "%zu %s %s", i, rows[i / 2],
                          ways[way]);
            weir_close(limiter);
            ck_assert_msg(place_log_lines(&place) == 0, "%s", place.log);
            fake_redis_stop(from.fake);
            fake_redis_stop(to.fake);
        }
}

static int threads_of_this_process(void)
{
    int threads = 0;
    char line[128];
    FILE *file = fopen("/proc/self/status", "re");
    while (file != NULL && fgets(line, sizeof line, file) != NULL)
        if (sscanf(line, "Threads: %d", &threads) == 1)
            break;
    if (file != NULL)
        fclose(file);
    return threads;
}

#define NODES_FULL "cannot be followed: there are 128 nodes already"

TEST_EACH(redirects_to_ever_new_nodes_cause_no_storm_of_threads_or_requests, 2, 120)
{
    enum { MOST = 128 + 16 };
    CLOSED_BY(place_close) struct place place;
    static struct speaker node;
    node = (struct speaker){ .decides = _i == 0 ? "-MOVED 12182 127.0.0.1:PORT" : "-ASK 12182 127.0.0.1:PORT",
                             .truths = INT64_MAX };
    speaker_start(&node);
    map_to(&node, node.port);
    struct weir_options options = speaker_options(&place, SPEAKER_TIMEOUT_US, &node, NULL);
    weir *limiter = limiter_of(&options);
    weir_limit *limit = limit_of(limiter, "limit", UNREFILLED);
    recover(limit, "foo");
    atomic_store(&node.truths, 0);
    int64_t maps = atomic_load(&node.maps), began_us = wire_now_us();
    int calls = 0;
    /* With MOVED, the slot's node is gone until a new map arrives. With ASK there are more nodes all the time, on a
     * busy machine slowly. */
    for (; calls < 500 || (_i == 1 && !place_logged(&place, NODES_FULL)); calls++) {
        struct timed timed = timed_try(limit, "foo", 1);
        ck_assert(timed.status == WEIR_EIO || timed.status == WEIR_ETIME);
        ck_assert_int_le(timed.took_us, call_most_us(SPEAKER_TIMEOUT_US));
    }
    int64_t took_us = wire_now_us() - began_us;
    maps = atomic_load(&node.maps) - maps;
    printf("%d calls redirected to ever other nodes: %" PRId64 " ms, %d threads, the map was asked for %" PRId64
           " times\n",
           calls, took_us / 1000, threads_of_this_process(), maps);
    ck_assert_int_le(threads_of_this_process(), MOST);
    ck_assert_int_le(maps, 30 + 10 * took_us / WEIR_SECOND);
    weir_close(limiter);
    fake_redis_stop(node.fake);
}

/* Each node claims that the other one serves all slots. */
TEST(two_nodes_that_redirect_to_each_other_fail_the_call_without_a_request_storm, 60)
{
    CLOSED_BY(place_close) struct place place;
    static struct speaker nodes[2];
    for (int i = 0; i < 2; i++) {
        nodes[i] = (struct speaker){ .decides = "-MOVED 12182 127.0.0.1:PORT" };
        speaker_start(&nodes[i]);
    }
    for (int i = 0; i < 2; i++) {
        nodes[i].to = nodes[1 - i].port;
        map_to(&nodes[i], nodes[1 - i].port);
    }
    struct weir_options options = speaker_options(&place, SPEAKER_PATIENCE_US, &nodes[0], &nodes[1]);
    weir *limiter = limiter_of(&options);
    weir_limit *limit = limit_of(limiter, "limit", UNREFILLED);
    int64_t began_us = wire_now_us();
    for (int i = 0; i < 1000; i++)
        ck_assert_int_eq(timed_try(limit, "foo", 1).status, WEIR_EIO);
    int64_t took_us = wire_now_us() - began_us;
    int64_t maps = atomic_load(&nodes[0].maps) + atomic_load(&nodes[1].maps);
    int64_t calls = atomic_load(&nodes[0].calls) + atomic_load(&nodes[1].calls);
    printf("1000 calls sent back and forth: %" PRId64 " ms, %" PRId64 " calls, %" PRId64 " maps\n", took_us / 1000,
           calls, maps);
    ck_assert_int_le(calls, 1000 * (1 + HOPS_MOST));
    ck_assert_int_le(maps, 30 + 10 * took_us / WEIR_SECOND);
    weir_close(limiter);
    fake_redis_stop(nodes[0].fake);
    fake_redis_stop(nodes[1].fake);
}

/* ---- Its end ---- */

struct told {
    struct weir_op op;
    atomic_int times;
};

static void tell_once(struct weir_op *op, int status)
{
    struct told *told = op->user;
    must(status == WEIR_EIO || status == WEIR_ECLOSED, "nobody decides");
    atomic_fetch_add(&told->times, 1);
}

TEST(closing_during_redirect_loops_completes_each_request_once, 60)
{
    enum { OPS = 64, TIMES = 100 };
    static struct told told[OPS];
    static struct speaker nodes[2];
    for (int i = 0; i < 2; i++) {
        nodes[i] = (struct speaker){ .decides = i == 0 ? "-MOVED 12182 127.0.0.1:PORT" : "-ASK 12182 127.0.0.1:PORT" };
        speaker_start(&nodes[i]);
    }
    for (int i = 0; i < 2; i++) {
        nodes[i].to = nodes[1 - i].port;
        map_to(&nodes[i], nodes[i].port);
    }
    for (int times = 0; times < TIMES; times++) {
        CLOSED_BY(place_close) struct place place;
        struct weir_options options = speaker_options(&place, SPEAKER_PATIENCE_US, &nodes[0], &nodes[1]);
        weir *limiter = limiter_of(&options);
        weir_limit *limit = limit_of(limiter, "limit", UNREFILLED);
        if (times % 2 != 0)
            ck_assert_int_eq(timed_try(limit, "foo", 1).status, WEIR_EIO); /* make all connections first */
        int submitted = 0;
        for (int i = 0; i < OPS; i++) {
            told[i].op = (struct weir_op){ .request = { .limit = limit, .key = weir_key_text("foo"), .cost = 1 },
                                           .done = tell_once,
                                           .user = &told[i] };
            atomic_store(&told[i].times, 0);
            int result = weir_submit(limiter, &told[i].op);
            must(result == 1 || result == WEIR_EIO, "it waits, or nobody decides");
            submitted += result == 1;
        }
        sleep_us(times * 20);
        weir_close(limiter);
        int answers = 0;
        for (int i = 0; i < OPS; i++) {
            must(atomic_load(&told[i].times) <= 1, "once");
            answers += atomic_load(&told[i].times);
        }
        ck_assert_int_eq(answers, submitted);
    }
    fake_redis_stop(nodes[0].fake);
    fake_redis_stop(nodes[1].fake);
}
