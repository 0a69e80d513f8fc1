/* test_redis_cluster_replies.c - what broken and hostile nodes of a Redis Cluster may say: maps that are none, and
 * redirections that lead nowhere, round and round, or to ever other nodes; fault D6.
 */
#include "redis_place.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

enum { TIMEOUT_US = 200000, PATIENCE_US = 20 * 1000 * 1000, HOPS_MOST = 3 };

#define HOST "$9\r\n127.0.0.1\r\n"
#define ID "$4\r\nnode\r\n"
#define ALL ":0\r\n:16383\r\n"

/* ---- A node that says what it is told to ---- */

/* Set before anybody asks it, but for what is atomic. */
struct speaker {
    struct fake_redis *fake;
    int port;
    char map[512];                      /* to CLUSTER */
    const char *decides;                /* to EVALSHA; NULL: as a server would. PORT: see `to` */
    const char *asking;                 /* to ASKING */
    int to;                             /* the port that is said for PORT; 0: another each time */
    _Atomic int64_t truths;             /* how many EVALSHA are answered as a server would before `decides` is said */
    _Atomic int64_t maps, asked, calls; /* CLUSTER, ASKING and EVALSHA that came */
};

static void say_decision(struct speaker *speaker, const struct fake_request *request, struct fake_reply *reply)
{
    unsigned char answer[TRUTH_LEN];
    int64_t calls = atomic_fetch_add(&speaker->calls, 1);
    if (speaker->decides == NULL || calls < atomic_load(&speaker->truths)) {
        fake_say_bulk(reply, answer, truth_about(request, answer));
        return;
    }
    const char *port = strstr(speaker->decides, "PORT");
    char says[256];
    if (port == NULL)
        snprintf(says, sizeof says, "%s\r\n", speaker->decides);
    else
        snprintf(says, sizeof says, "%.*s%d%s\r\n", (int)(port - speaker->decides), speaker->decides,
                 speaker->to != 0 ? speaker->to : (int)(1 + calls % 65535), port + 4);
    fake_say_text(reply, says);
}

static bool speak(void *user, const struct fake_request *request, struct fake_reply *reply)
{
    struct speaker *speaker = user;
    if (fake_request_is(request, "CLUSTER")) {
        atomic_fetch_add(&speaker->maps, 1);
        if (speaker->map[0] != '\0')
            fake_say_text(reply, speaker->map);
    } else if (fake_request_is(request, "ASKING")) {
        atomic_fetch_add(&speaker->asked, 1);
        fake_say_text(reply, speaker->asking != NULL ? speaker->asking : "+OK\r\n");
    } else if (fake_request_is(request, "EVALSHA")) {
        say_decision(speaker, request, reply);
    } else {
        return false;
    }
    return true;
}

static void speaker_start(struct speaker *speaker)
{
    speaker->fake = fake_redis_start_port(speak, speaker);
    must(speaker->fake != NULL, "a fake starts");
    speaker->port = fake_redis_port(speaker->fake);
}

/* All slots are the node's on that port. */
static void map_to(struct speaker *speaker, int port)
{
    snprintf(speaker->map, sizeof speaker->map, "*1\r\n*3\r\n" ALL "*3\r\n" HOST ":%d\r\n" ID, port);
}

static struct weir_options options_for(struct place *place, int64_t timeout_us, const struct speaker *first,
                                       const struct speaker *second)
{
    static char url[128];
    int len = snprintf(url, sizeof url, "redis-cluster://127.0.0.1:%d", first->port);
    if (second != NULL)
        snprintf(url + len, sizeof url - (size_t)len, ",127.0.0.1:%d", second->port);
    place_open_bare(place);
    struct weir_options options = place_options(place, timeout_us);
    options.redis_url = url;
    return options;
}

/* ---- Maps ---- */

#define NO_RANGE "what should be a range of slots is not [first, last, [host, port, ...], ...]"
#define TEN "1234567890"
#define FIFTY TEN TEN TEN TEN TEN

START_TEST(a_wrong_map_is_refused_and_the_log_says_why)
{
    static const struct {
        const char *map, *says;
    } rows[] = {
        { "*0\r\n", "no slot has a node" },
        { "*-1\r\n", "the server does not speak Redis' protocol" },
        { "+OK\r\n", "the server does not speak Redis' protocol" },
        { "$2\r\nhi\r\n", "the server does not speak Redis' protocol" },
        { "HTTP/1.1 400 Bad Request\r\n\r\n", "the server does not speak Redis' protocol" },
        { "*2000000000\r\n", "the server does not speak Redis' protocol" },
        { "*1\r\n:1\r\n", NO_RANGE },
        { "*1\r\n*2\r\n" ALL, NO_RANGE },
        { "*1\r\n*3\r\n" ALL "*1\r\n" HOST, NO_RANGE },
        { "*1\r\n*3\r\n:5\r\n:4\r\n*3\r\n" HOST ":1\r\n" ID, "a slot is none, or a range ends before it begins" },
        { "*1\r\n*3\r\n:0\r\n:16384\r\n*3\r\n" HOST ":1\r\n" ID, "a slot is none, or a range ends before it begins" },
        { "*1\r\n*3\r\n:-1\r\n:5\r\n*3\r\n" HOST ":1\r\n" ID, "a slot is none, or a range ends before it begins" },
        { "*1\r\n*3\r\n" ALL "*3\r\n" HOST ":0\r\n" ID, "a node's host or port is none" },
        { "*1\r\n*3\r\n" ALL "*3\r\n" HOST ":65536\r\n" ID, "a node's host or port is none" },
        { "*1\r\n*3\r\n" ALL "*3\r\n$3\r\na b\r\n:1\r\n" ID, "a node's host" },
        { "*1\r\n*3\r\n" ALL "*3\r\n$4\r\n/run\r\n:1\r\n" ID, "a node's host" },
        { "*2\r\n*3\r\n" ALL "*3\r\n" HOST ":1\r\n" ID "*3\r\n:7\r\n:7\r\n*3\r\n" HOST ":2\r\n" ID,
          "two ranges overlap" },
        { "-ERR unknown command 'CLUSTER'\r\n", "the server answers ERR to CLUSTER SLOTS" },
        { "-NOPERM s3cret\r\n", "the server answers NOPERM to CLUSTER SLOTS" },
        { "-ERR This instance has cluster support disabled\r\n", "the server is not part of a cluster" },
        { "*1\r\n*3\r\n" ALL, "no answer in time" },
        { "", "no answer in time" },
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct place place;
        static struct speaker bad, good;
        char says[192];
        bad = (struct speaker){ .decides = "-ERR nobody asked you" };
        good = (struct speaker){ .decides = NULL };
        snprintf(bad.map, sizeof bad.map, "%s", rows[i].map);
        speaker_start(&bad);
        speaker_start(&good);
        map_to(&good, good.port);
        struct weir_options options = options_for(&place, TIMEOUT_US, &bad, NULL);
        weir *limiter = limiter_of(&options);
        weir_limit *limit = limit_of(limiter, "limit", UNREFILLED);
        snprintf(says, sizeof says, "no node of the redis cluster says who has which slots: %s", rows[i].says);
        for (int64_t until_us = wire_now_us() + PATIENCE_US; !place_logged(&place, says); sleep_us(200)) {
            struct timed timed = timed_try(limit, "key", 1);
            ck_assert(timed.status == WEIR_EIO || timed.status == WEIR_ETIME);
            ck_assert_int_le(timed.took_us, (int64_t)SLACK * TIMEOUT_US);
            if (wire_now_us() > until_us)
                ck_abort_msg("row %zu: no \"%s\" in: %s", i, says, place.log);
        }
        ck_assert(!place_logged(&place, "s3cret"));
        weir_close(limiter);
        place_close(&place);
        options = options_for(&place, PATIENCE_US, &bad, &good); /* and it keeps nobody from asking another */
        limiter = limiter_of(&options);
        ck_assert_int_eq(taken(limit_of(limiter, "limit", UNREFILLED), "key", 1).source, WEIR_BY_REDIS);
        weir_close(limiter);
        ck_assert_int_eq(atomic_load(&bad.calls), 0);
        fake_redis_stop(bad.fake);
        fake_redis_stop(good.fake);
        place_close(&place);
    }
}
END_TEST

START_TEST(a_map_without_an_address_means_the_node_that_was_asked)
{
    static const char *const hosts[] = { "$0\r\n\r\n", "$-1\r\n" };
    for (size_t i = 0; i < sizeof hosts / sizeof hosts[0]; i++) {
        struct place place;
        static struct speaker node;
        node = (struct speaker){ .decides = NULL };
        speaker_start(&node);
        snprintf(node.map, sizeof node.map, "*1\r\n*3\r\n" ALL "*4\r\n%s:%d\r\n" ID "*0\r\n", hosts[i], node.port);
        struct weir_options options = options_for(&place, PATIENCE_US, &node, NULL);
        weir *limiter = limiter_of(&options);
        ck_assert_int_eq(taken(limit_of(limiter, "limit", UNREFILLED), "key", 1).source, WEIR_BY_REDIS);
        weir_close(limiter);
        fake_redis_stop(node.fake);
        place_close(&place);
    }
}
END_TEST

START_TEST(slots_that_nobody_has_are_an_outage_of_theirs_alone_and_asked_for_at_a_pace)
{
    struct place place;
    static struct speaker node;
    node = (struct speaker){ .decides = NULL };
    speaker_start(&node);
    /* "foo" is in slot 12182, "bar" in 5061 */
    snprintf(node.map, sizeof node.map, "*1\r\n*3\r\n:0\r\n:9999\r\n*3\r\n" HOST ":%d\r\n" ID, node.port);
    struct weir_options options = options_for(&place, PATIENCE_US, &node, NULL);
    weir *limiter = limiter_of(&options);
    weir_limit *limit = limit_of(limiter, "limit", UNREFILLED);
    recover(limit, "bar");
    for (int64_t until_us = wire_now_us() + PATIENCE_US; timed_try(limit, "foo", 1).status == WEIR_OK;)
        must(wire_now_us() < until_us, "the map is known"); /* until then all are asked of the first node */
    int64_t maps = atomic_load(&node.maps), began_us = wire_now_us();
    for (int i = 0; i < 5000; i++) {
        must(timed_try(limit, "foo", 1).status == WEIR_EIO, "nobody decides");
        must(taken(limit, "bar", 1).source == WEIR_BY_REDIS, "the other is decided");
    }
    int64_t took_us = wire_now_us() - began_us;
    ck_assert_int_le(atomic_load(&node.maps) - maps, 30 + 10 * took_us / WEIR_SECOND);
    weir_close(limiter);
    fake_redis_stop(node.fake);
    place_close(&place);
}
END_TEST

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

START_TEST(redirections_that_lead_nowhere_end_the_call_with_an_error_after_a_few)
{
    static const struct {
        const char *decides, *asking;
        bool to_itself; /* PORT is its own; else one on which nobody listens */
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
            struct place place;
            static struct speaker node;
            node = (struct speaker){ .decides = rows[i].decides, .asking = rows[i].asking, .truths = 1 };
            speaker_start(&node);
            map_to(&node, node.port);
            node.to = rows[i].to_itself ? node.port : daemon_port_free();
            struct weir_options options = options_for(&place, TIMEOUT_US, &node, NULL);
            weir *limiter = limiter_of(&options);
            weir_limit *limit = limit_of(limiter, "limit", UNREFILLED);
            recover(limit, "foo"); /* the one that it decides */
            int64_t calls = atomic_load(&node.calls), began_us = wire_now_us();
            int status = tried(way, limiter, limit);
            int64_t took_us = wire_now_us() - began_us;
            ck_assert_msg(status == WEIR_EIO || status == WEIR_ETIME, "row %zu %s: %d", i, ways[way], status);
            ck_assert_int_le(took_us, (int64_t)SLACK * TIMEOUT_US);
            calls = atomic_load(&node.calls) - calls;
            ck_assert_msg(calls <= 2 * (1 + HOPS_MOST + 1), "row %zu %s: %" PRId64 " calls", i, ways[way], calls);
            weir_close(limiter);
            fake_redis_stop(node.fake);
            place_close(&place);
        }
}
END_TEST

/* "bar", in slot 5061, is with the one that sends on as well, or with the other one: "foo" is then alone. */
START_TEST(one_redirection_to_a_node_that_decides_is_seen_by_nobody)
{
    static const char *const rows[] = { "-MOVED 12182 127.0.0.1:PORT", "-ASK 12182 127.0.0.1:PORT",
                                        "-MOVED 12182 :PORT", "-ASK 12182 :PORT", "-MOVED 12182 localhost:PORT" };
    for (size_t i = 0; i < 2 * sizeof rows / sizeof rows[0]; i++)
        for (enum way way = 0; way < WAYS; way++) {
            struct place place;
            static struct speaker from, to;
            from = (struct speaker){ .decides = rows[i / 2] };
            to = (struct speaker){ .decides = NULL };
            speaker_start(&from);
            speaker_start(&to);
            from.to = to.port;
            snprintf(from.map, sizeof from.map, /* what is asked for before the map is known goes to its first node */
                     "*2\r\n*3\r\n:10000\r\n:16383\r\n*3\r\n" HOST ":%d\r\n" ID "*3\r\n:0\r\n:9999\r\n*3\r\n" HOST
                     ":%d\r\n" ID,
                     from.port, i % 2 == 0 ? from.port : to.port);
            struct weir_options options = options_for(&place, PATIENCE_US, &from, NULL);
            weir *limiter = limiter_of(&options);
            weir_limit *limit = limit_of(limiter, "limit", UNREFILLED);
            int status = tried(way, limiter, limit);
            ck_assert_msg(status == WEIR_OK, "%s %s: %s", rows[i / 2], ways[way], weir_strerror(status));
            ck_assert_int_gt(atomic_load(&to.calls), 0);
            ck_assert_msg((atomic_load(&to.asked) > 0) == (rows[i / 2][1] == 'A'), "%zu %s %s", i, rows[i / 2],
                          ways[way]);
            weir_close(limiter);
            ck_assert_msg(atomic_load(&place.log_lines) == 0, "%s", place.log);
            fake_redis_stop(from.fake);
            fake_redis_stop(to.fake);
            place_close(&place);
        }
}
END_TEST

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

START_TEST(redirections_to_ever_other_nodes_are_no_storm_of_threads_or_questions)
{
    enum { MOST = 128 + 16 };
    struct place place;
    static struct speaker node;
    node = (struct speaker){ .decides = _i == 0 ? "-MOVED 12182 127.0.0.1:PORT" : "-ASK 12182 127.0.0.1:PORT",
                             .truths = 1 };
    speaker_start(&node);
    map_to(&node, node.port);
    struct weir_options options = options_for(&place, TIMEOUT_US, &node, NULL);
    weir *limiter = limiter_of(&options);
    weir_limit *limit = limit_of(limiter, "limit", UNREFILLED);
    recover(limit, "foo");
    int64_t maps = atomic_load(&node.maps), began_us = wire_now_us();
    for (int i = 0; i < 500; i++) {
        struct timed timed = timed_try(limit, "foo", 1);
        ck_assert(timed.status == WEIR_EIO || timed.status == WEIR_ETIME);
        ck_assert_int_le(timed.took_us, (int64_t)SLACK * TIMEOUT_US);
    }
    int64_t took_us = wire_now_us() - began_us;
    maps = atomic_load(&node.maps) - maps;
    printf("500 calls redirected to ever other nodes: %" PRId64 " ms, %d threads, the map was asked for %" PRId64
           " times\n",
           took_us / 1000, threads_of_this_process(), maps);
    ck_assert_int_le(threads_of_this_process(), MOST);
    ck_assert_int_le(maps, 30 + 10 * took_us / WEIR_SECOND);
    weir_close(limiter);
    fake_redis_stop(node.fake);
    place_close(&place);
}
END_TEST

/* Each says that the other has all slots. */
START_TEST(two_nodes_that_send_to_each_other_end_a_call_with_an_error_and_are_no_storm)
{
    struct place place;
    static struct speaker nodes[2];
    for (int i = 0; i < 2; i++) {
        nodes[i] = (struct speaker){ .decides = "-MOVED 12182 127.0.0.1:PORT" };
        speaker_start(&nodes[i]);
    }
    for (int i = 0; i < 2; i++) {
        nodes[i].to = nodes[1 - i].port;
        map_to(&nodes[i], nodes[1 - i].port);
    }
    struct weir_options options = options_for(&place, PATIENCE_US, &nodes[0], &nodes[1]);
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
    place_close(&place);
}
END_TEST

/* ---- Its end ---- */

START_TEST(a_limiter_can_be_closed_at_any_moment_of_its_search)
{
    static const char *const maps[] = { "", "*0\r\n", "*1\r\n*3\r\n" ALL };
    for (size_t i = 0; i < sizeof maps / sizeof maps[0]; i++)
        for (int wait_us = 0; wait_us < 20000; wait_us = 2 * wait_us + 50) {
            struct place place;
            static struct speaker node;
            node = (struct speaker){ .decides = NULL };
            snprintf(node.map, sizeof node.map, "%s", maps[i]);
            speaker_start(&node);
            struct weir_options options = options_for(&place, PATIENCE_US, &node, NULL);
            weir *limiter = limiter_of(&options);
            sleep_us(wait_us);
            int64_t began_us = wire_now_us();
            weir_close(limiter);
            ck_assert_int_le(wire_now_us() - began_us, PATIENCE_US / 4);
            fake_redis_stop(node.fake);
            place_close(&place);
        }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("redis_cluster_replies");
    suite_test(suite, a_wrong_map_is_refused_and_the_log_says_why, 120);
    suite_test(suite, a_map_without_an_address_means_the_node_that_was_asked, 30);
    suite_test(suite, slots_that_nobody_has_are_an_outage_of_theirs_alone_and_asked_for_at_a_pace, 30);
    suite_test(suite, redirections_that_lead_nowhere_end_the_call_with_an_error_after_a_few, 120);
    suite_test(suite, one_redirection_to_a_node_that_decides_is_seen_by_nobody, 60);
    TCase *each_kind = tcase_create("each kind");
    tcase_set_timeout(each_kind, 120);
    tcase_add_loop_test(each_kind, redirections_to_ever_other_nodes_are_no_storm_of_threads_or_questions, 0, 2);
    suite_add_tcase(suite, each_kind);
    suite_test(suite, two_nodes_that_send_to_each_other_end_a_call_with_an_error_and_are_no_storm, 60);
    suite_test(suite, a_limiter_can_be_closed_at_any_moment_of_its_search, 60);
    return suite_run(suite);
}
