/* test_redis_cluster_nodes.c - cluster nodes that are silent, slow, gone, without slots or unreachable: which charges
 * are refunded, how often weir requests the map from the other nodes, and the log. */
#include "cluster_speaker.h"

#include <inttypes.h>
#include <stdio.h>
#include <sys/eventfd.h>

/* ---- Descriptors run out ---- */

static atomic_bool no_descriptors;

int __real_eventfd(unsigned count, int flags);
int __wrap_eventfd(unsigned count, int flags);

int __wrap_eventfd(unsigned count, int flags)
{
    return atomic_load(&no_descriptors) ? -1 : __real_eventfd(count, flags);
}

/* ---- Two nodes ---- */

/* The first node serves "bar", the second "foo". */
struct pair {
    struct place place;
    struct speaker nodes[2];
    weir *limiter;
    weir_limit *limit;
};

static void start_nodes(struct pair *pair, const char *first_decides, const char *second_decides)
{
    const char *const decides[2] = { first_decides, second_decides };
    for (int i = 0; i < 2; i++) {
        memset(&pair->nodes[i], 0, sizeof pair->nodes[i]);
        pair->nodes[i].decides = decides[i];
        pair->nodes[i].truths = INT64_MAX;
        speaker_start(&pair->nodes[i]);
    }
    for (int i = 0; i < 2; i++) {
        pair->nodes[i].to = pair->nodes[1].port;
        map_halves(pair->nodes[i].map, pair->nodes[0].port, pair->nodes[1].port);
    }
}

static void open_pair(struct pair *pair, int64_t timeout_us, const struct speaker *seed)
{
    struct weir_options options = speaker_options(&pair->place, timeout_us, seed, NULL);
    pair->limiter = limiter_of(&options);
    pair->limit = limit_of(pair->limiter, "limit", UNREFILLED);
    recover(pair->limit, "bar");
    recover(pair->limit, "foo");
}

/* Wait until each node gets its keys. Until the map is read, the seed gets all keys, and unlike a real node it decides
 * other nodes' keys, too. */
static void await_map(struct pair *pair)
{
    const int64_t until_us = wire_now_us() + RECOVERY_MOST_US;
    while (atomic_load(&pair->nodes[1].calls) == 0 && wire_now_us() < until_us)
        recover(pair->limit, "foo");
    ck_assert_int_gt(atomic_load(&pair->nodes[1].calls), 0);
}

static void close_pair(struct pair *pair)
{
    weir_close(pair->limiter);
    for (int i = 0; i < 2; i++)
        if (pair->nodes[i].fake != NULL)
            fake_redis_stop(pair->nodes[i].fake);
    place_close(&pair->place);
}

static void lose(struct speaker *node)
{
    fake_redis_stop(node->fake);
    node->fake = NULL;
}

/* Wait until a count reaches `least`, at most as long as a recovery may take. */
static bool comes_to(const _Atomic int64_t *count, int64_t least)
{
    const int64_t until_us = wire_now_us() + RECOVERY_MOST_US;
    while (atomic_load(count) < least && wire_now_us() < until_us)
        sleep_us(1000);
    return atomic_load(count) >= least;
}

static bool comes_to_say(struct place *place, const char *text)
{
    const int64_t until_us = wire_now_us() + RECOVERY_MOST_US;
    while (!place_logged(place, text) && wire_now_us() < until_us)
        sleep_us(1000);
    return place_logged(place, text);
}

static int64_t refunds(const struct speaker *node, int64_t peeks)
{
    return atomic_load(&node->calls) - atomic_load(&node->takes) - peeks;
}

/* ---- Charges of groups ---- */

TEST(a_group_with_a_silent_node_is_refunded_at_the_other_nodes, 30)
{
    static struct pair pair;
    start_nodes(&pair, NULL, "");
    open_pair(&pair, 4 * WEIR_SECOND, &pair.nodes[0]); /* the last quarter of the timeout is reserved for refunds */
    await_map(&pair);
    const struct weir_request requests[] = { { .limit = pair.limit, .key = weir_key_text("bar"), .cost = 1 },
                                             { .limit = pair.limit, .key = weir_key_text("foo"), .cost = 1 } };
    struct weir_decision decision;
    struct speaker *node = &pair.nodes[0];
    const int64_t calls = atomic_load(&node->calls), takes = atomic_load(&node->takes);
    atomic_store(&pair.nodes[1].truths, 0);
    ck_assert_int_eq(weir_try_all(pair.limiter, requests, 2, &decision), WEIR_ETIME);
    ck_assert_int_eq(atomic_load(&node->takes), takes + 1);
    ck_assert_int_eq(atomic_load(&node->calls), calls + 2);
    close_pair(&pair);
}

TEST(a_group_that_times_out_is_refunded_as_a_whole, 30)
{
    enum { KEYS = 64, DELAY_US = 40000 };
    static struct pair pair;
    static char names[KEYS][8];
    struct weir_request requests[KEYS];
    struct weir_decision decision;
    start_nodes(&pair, NULL, NULL);
    open_pair(&pair, 2 * WEIR_SECOND, &pair.nodes[0]);
    await_map(&pair);
    for (int i = 0; i < KEYS; i++) {
        snprintf(names[i], sizeof names[i], "%d", i);
        requests[i] = (struct weir_request){ .limit = pair.limit, .key = weir_key_text(names[i]), .cost = 1 };
    }
    int64_t peeks = 0, before = 0, takes = 0;
    for (int i = 0; i < 2; i++) {
        before += atomic_load(&pair.nodes[i].takes);
        peeks += refunds(&pair.nodes[i], 0);
        atomic_store(&pair.nodes[i].delay_us, DELAY_US);
    }
    ck_assert_int_eq(weir_try_all(pair.limiter, requests, KEYS, &decision), WEIR_ETIME);
    const int64_t until_us = wire_now_us() + RECOVERY_MOST_US;
    do { /* a request that was sent may arrive after its caller gave up */
        takes = atomic_load(&pair.nodes[0].takes) + atomic_load(&pair.nodes[1].takes) - before;
        sleep_us(1000);
    } while (refunds(&pair.nodes[0], 0) + refunds(&pair.nodes[1], peeks) < takes - 1 && wire_now_us() < until_us);
    ck_assert_int_ge(refunds(&pair.nodes[0], 0) + refunds(&pair.nodes[1], peeks), takes - 1);
    ck_assert_int_le(refunds(&pair.nodes[0], 0) + refunds(&pair.nodes[1], peeks), takes);
    ck_assert_int_gt(takes, 1);
    close_pair(&pair);
}

/* ---- How often the map is requested ---- */

TEST(a_dead_node_without_requests_causes_fewer_and_fewer_map_requests, 60)
{
    static struct pair pair;
    start_nodes(&pair, NULL, NULL);
    struct speaker *gone = &pair.nodes[0], *here = &pair.nodes[1];
    map_halves(here->later, here->port, here->port);
    open_pair(&pair, SPEAKER_PATIENCE_US, here);
    lose(gone);
    sleep_us(3 * WEIR_SECOND);
    const int64_t maps = atomic_load(&here->maps);
    sleep_us(7 * WEIR_SECOND);
    const int64_t idle_maps = atomic_load(&here->maps) - maps;
    const int64_t connections = fake_redis_counts(here->fake).connections;

    const int64_t began_us = wire_now_us(), until_us = began_us + RECOVERY_MOST_US;
    int64_t needed_maps, needed_us;
    do {
        ck_assert_int_eq(timed_try(pair.limit, "bar", 1).status, WEIR_EIO);
        sleep_us(5000);
        needed_maps = atomic_load(&here->maps) - maps - idle_maps;
        needed_us = wire_now_us() - began_us;
    } while (needed_us < 3 * WEIR_SECOND || (needed_maps < 2 && wire_now_us() < until_us));
    ck_assert_int_le(fake_redis_counts(here->fake).connections - connections, 1 + needed_maps / 4 + 1);

    atomic_store(&here->is_later, true);
    const int64_t took_us = recover(pair.limit, "bar");
    printf("a node gone: %" PRId64 " maps in 7 s, %" PRId64 " in %" PRId64
           " ms of calls, another has its slots: %" PRId64 " ms\n",
           idle_maps, needed_maps, needed_us / 1000, took_us / 1000);
    ck_assert_int_le(idle_maps, 6);
    ck_assert_int_ge(needed_maps, 2);
    ck_assert_int_le(needed_maps, 1 + 5 * (1 + needed_us / WEIR_SECOND));
    close_pair(&pair);
}

TEST(a_redirect_to_an_unknown_host_requests_the_map, 120)
{
    static const char *const rows[] = { "-MOVED 12182 ?:PORT", "-ASK 12182 ?:PORT", "-MOVED", "-ASK 12182",
                                        "-CLUSTERDOWN The cluster is down" };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        static struct pair pair;
        start_nodes(&pair, rows[i], NULL);
        struct speaker *from = &pair.nodes[0], *to = &pair.nodes[1];
        map_to(from, from->port);
        map_halves(from->later, from->port, to->port);
        map_halves(to->map, from->port, to->port);
        open_pair(&pair, SPEAKER_TIMEOUT_US, from);
        atomic_store(&from->is_later, true);
        atomic_store(&from->truths, 0);
        recover(pair.limit, "foo");
        ck_assert_int_gt(atomic_load(&to->calls), 0);
        close_pair(&pair);
    }
}

/* ---- Nodes without slots ---- */

TEST(a_node_without_slots_is_kept_while_redirects_lead_to_it, 60)
{
    static struct pair pair;
    start_nodes(&pair, "-ASK 12182 127.0.0.1:PORT", NULL);
    struct speaker *from = &pair.nodes[0], *to = &pair.nodes[1];
    /* some nodes are away, so the map is requested all the time */
    map_halves(from->map, daemon_port_closed(), from->port);
    struct weir_options options = speaker_options(&pair.place, SPEAKER_PATIENCE_US, from, NULL);
    pair.limiter = limiter_of(&options);
    pair.limit = limit_of(pair.limiter, "limit", UNREFILLED);
    recover(pair.limit, "foo");
    atomic_store(&from->truths, 0);
    const int64_t began_us = wire_now_us(), maps = atomic_load(&from->maps);
    int64_t connections = 0; /* how many connections existed before any could be closed */
    while (wire_now_us() - began_us < 8 * WEIR_SECOND) {
        if (wire_now_us() - began_us < 3 * WEIR_SECOND)
            connections = fake_redis_counts(to->fake).connections;
        ck_assert_int_eq(timed_try(pair.limit, "foo", 1).status, WEIR_OK);
        timed_try(pair.limit, "bar", 1);
    }
    ck_assert_int_gt(atomic_load(&from->maps), maps + 3);
    ck_assert_int_gt(atomic_load(&to->asked), 0);
    ck_assert_int_eq(fake_redis_counts(to->fake).connections, connections);
    const int64_t until_us = wire_now_us() + 2 * RECOVERY_MOST_US;
    while (fake_redis_counts(to->fake).open > 0 && wire_now_us() < until_us)
        sleep_us(10000);
    ck_assert_int_eq(fake_redis_counts(to->fake).open, 0);
    close_pair(&pair);
}

/* The node is cut off from the others and still has the old map. */
TEST(a_node_that_lost_its_slots_is_closed_and_not_asked_for_the_map, 90)
{
    static struct pair pair;
    /* the second answer is a redirect to the node itself */
    start_nodes(&pair, "-MOVED 12182 127.0.0.1:PORT", "-MOVED 12182 127.0.0.1:PORT");
    struct speaker *former = &pair.nodes[0], *now = &pair.nodes[1];
    map_to(former, former->port);
    map_to(now, now->port);
    open_pair(&pair, SPEAKER_PATIENCE_US, former);
    atomic_store(&former->truths, 0);
    ck_assert_int_eq(timed_try(pair.limit, "foo", 1).status, WEIR_OK);
    atomic_store(&former->decides, "-CLUSTERDOWN The cluster is down");
    recover(pair.limit, "foo");
    recover(pair.limit, "bar");
    for (int64_t i = 0, maps = 0; i < 9; i++) {
        /* the second answer makes the limiter use the first node */
        const int64_t more = i == 0 ? 2 : atomic_load(&now->maps) + 1;
        const int64_t until_us = wire_now_us() + RECOVERY_MOST_US;
        while (atomic_load(&now->maps) < more && wire_now_us() < until_us) {
            atomic_store(&now->truths, 0);
            timed_try(pair.limit, "foo", 1);
            atomic_store(&now->truths, INT64_MAX);
            sleep_us(1000);
        }
        ck_assert_int_ge(atomic_load(&now->maps), more);
        if (i == 0)
            maps = atomic_load(&former->maps);
        ck_assert_int_eq(atomic_load(&former->maps), maps);
    }
    recover(pair.limit, "foo");
    const int64_t until_us = wire_now_us() + 2 * RECOVERY_MOST_US; /* the log no longer complains about the map */
    while (fake_redis_counts(former->fake).open > 0 && wire_now_us() < until_us)
        sleep_us(10000);
    ck_assert_int_eq(fake_redis_counts(former->fake).open, 0);
    close_pair(&pair);
}

/* ---- What the log says ---- */

static int times_logged(struct place *place, const char *text)
{
    int times = 0;
    pthread_mutex_lock(&place->log_lock);
    for (const char *at = place->log; (at = strstr(at, text)) != NULL; at++)
        times++;
    pthread_mutex_unlock(&place->log_lock);
    return times;
}

TEST(slots_without_a_node_are_logged_and_so_is_their_return, 60)
{
    static const char *const maps[] = {
        "*2\r\n*3\r\n:0\r\n:9999\r\n*3\r\n" HOST ":%d\r\n" ID "*3\r\n:10000\r\n:16383\r\n*3\r\n$1\r\n?\r\n:7000\r\n" ID,
        "*1\r\n*3\r\n:0\r\n:9999\r\n*3\r\n" HOST ":%d\r\n" ID,
    };
    for (size_t i = 0; i < sizeof maps / sizeof maps[0]; i++) {
        static struct pair pair;
        start_nodes(&pair, NULL, NULL);
        struct speaker *node = &pair.nodes[0];
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
        snprintf(node->map, sizeof node->map, maps[i], node->port);
#pragma GCC diagnostic pop
        map_halves(node->later, node->port, node->port);
        struct weir_options options = speaker_options(&pair.place, SPEAKER_PATIENCE_US, node, NULL);
        pair.limiter = limiter_of(&options);
        pair.limit = limit_of(pair.limiter, "limit", UNREFILLED);
        ck_assert(comes_to_say(&pair.place, "6384 slots of the redis cluster have no node that can be asked: the map "
                                            "names none"));
        ck_assert_int_eq(timed_try(pair.limit, "foo", 1).status, WEIR_EIO);
        ck_assert(comes_to(&node->maps, atomic_load(&node->maps) + 3));
        ck_assert_int_eq(times_logged(&pair.place, "slots of the redis cluster"), 1);
        atomic_store(&node->is_later, true);
        recover(pair.limit, "foo");
        ck_assert(comes_to_say(&pair.place, "all slots of the redis cluster have a node again"));
        close_pair(&pair);
    }
}

TEST(a_node_without_a_free_descriptor_is_logged_and_used_once_there_is_one, 60)
{
    static struct pair pair;
    start_nodes(&pair, "-MOVED 12182 127.0.0.1:PORT", NULL);
    struct speaker *from = &pair.nodes[0];
    map_halves(from->later, from->port, pair.nodes[1].port);
    map_to(from, from->port);
    open_pair(&pair, SPEAKER_PATIENCE_US, from);
    atomic_store(&no_descriptors, true);
    atomic_store(&from->is_later, true);
    atomic_store(&from->truths, 0);
    ck_assert_int_eq(timed_try(pair.limit, "foo", 1).status, WEIR_EIO);
    ck_assert(place_logged(&pair.place, "of the redis cluster cannot be followed: the system has no thread or "
                                        "descriptor left"));
    ck_assert(comes_to_say(&pair.place, "6384 slots of the redis cluster have no node that can be asked: the system "
                                        "has no thread or descriptor left"));
    for (int i = 0; i < 100; i++)
        ck_assert_int_eq(timed_try(pair.limit, "foo", 1).status, WEIR_EIO);
    ck_assert(comes_to(&from->maps, atomic_load(&from->maps) + 2));
    ck_assert_int_eq(place_log_lines(&pair.place), 2);
    atomic_store(&no_descriptors, false);
    recover(pair.limit, "foo");
    ck_assert(comes_to_say(&pair.place, "all slots of the redis cluster have a node again"));
    close_pair(&pair);
}
