/* test_redis_cluster_maps.c - broken and hostile slot maps from cluster nodes, how weir treats them, and weir_close()
 * at any moment of the search. */
#include "cluster_speaker.h"

#include <inttypes.h>
#include <stdio.h>

/* ---- Maps ---- */

#define NO_RANGE "a range of slots is not [first, last, [host, port, ...], ...]"
#define TEN "1234567890"
#define FIFTY TEN TEN TEN TEN TEN

TEST(a_wrong_map_is_refused_and_the_reason_logged, 120)
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
        { "*1\r\n*3\r\n:5\r\n:4\r\n*3\r\n" HOST ":1\r\n" ID,
          "a slot is not a number of 0 to 16383, or a range ends before it begins" },
        { "*1\r\n*3\r\n:0\r\n:16384\r\n*3\r\n" HOST ":1\r\n" ID,
          "a slot is not a number of 0 to 16383, or a range ends before it begins" },
        { "*1\r\n*3\r\n:-1\r\n:5\r\n*3\r\n" HOST ":1\r\n" ID,
          "a slot is not a number of 0 to 16383, or a range ends before it begins" },
        { "*1\r\n*3\r\n" ALL "*3\r\n" HOST ":0\r\n" ID, "a node's host or port is invalid" },
        { "*1\r\n*3\r\n" ALL "*3\r\n" HOST ":65536\r\n" ID, "a node's host or port is invalid" },
        { "*1\r\n*3\r\n" ALL "*3\r\n$3\r\na b\r\n:1\r\n" ID, "a node's host" },
        { "*1\r\n*3\r\n" ALL "*3\r\n$4\r\n/run\r\n:1\r\n" ID, "a node's host" },
        { "*2\r\n*3\r\n" ALL "*3\r\n" HOST ":1\r\n" ID "*3\r\n:7\r\n:7\r\n*3\r\n" HOST ":2\r\n" ID,
          "two ranges overlap" },
        { "-ERR unknown command 'CLUSTER'\r\n", "the server answers ERR to CLUSTER SLOTS" },
        { "-NOPERM it may not read 's3cret'\r\n", "the server answers NOPERM to CLUSTER SLOTS" },
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
        struct weir_options options = speaker_options(&place, SPEAKER_TIMEOUT_US, &bad, NULL);
        weir *limiter = limiter_of(&options);
        weir_limit *limit = limit_of(limiter, "limit", UNREFILLED);
        snprintf(says, sizeof says, "no node of the redis cluster gives a map of the slots: %s", rows[i].says);
        for (int64_t until_us = wire_now_us() + SPEAKER_PATIENCE_US; !place_logged(&place, says); sleep_us(200)) {
            struct timed timed = timed_try(limit, "key", 1);
            ck_assert(timed.status == WEIR_EIO || timed.status == WEIR_ETIME);
            ck_assert_int_le(timed.took_us, call_most_us(SPEAKER_TIMEOUT_US));
            if (wire_now_us() > until_us)
                ck_abort_msg("row %zu: no \"%s\" in: %s", i, says, place.log);
        }
        ck_assert(!place_logged(&place, "s3cret"));
        weir_close(limiter);
        place_close(&place);
        options = speaker_options(&place, SPEAKER_PATIENCE_US, &bad,
                                  &good); /* the bad map does not prevent asking another node */
        limiter = limiter_of(&options);
        ck_assert_int_eq(taken(limit_of(limiter, "limit", UNREFILLED), "key", 1).source, WEIR_BY_REDIS);
        weir_close(limiter);
        ck_assert_int_eq(atomic_load(&bad.calls), 0);
        fake_redis_stop(bad.fake);
        fake_redis_stop(good.fake);
        place_close(&place);
    }
}

TEST(a_map_entry_without_an_address_means_the_answering_node, 30)
{
    static const char *const hosts[] = { "$0\r\n\r\n", "$-1\r\n" };
    for (size_t i = 0; i < sizeof hosts / sizeof hosts[0]; i++) {
        CLOSED_BY(place_close) struct place place;
        static struct speaker node;
        node = (struct speaker){ .decides = NULL };
        speaker_start(&node);
        snprintf(node.map, sizeof node.map, "*1\r\n*3\r\n" ALL "*4\r\n%s:%d\r\n" ID "*0\r\n", hosts[i], node.port);
        struct weir_options options = speaker_options(&place, SPEAKER_PATIENCE_US, &node, NULL);
        weir *limiter = limiter_of(&options);
        ck_assert_int_eq(taken(limit_of(limiter, "limit", UNREFILLED), "key", 1).source, WEIR_BY_REDIS);
        weir_close(limiter);
        fake_redis_stop(node.fake);
    }
}

TEST(unserved_slots_are_a_separate_outage_and_the_map_is_requested_at_a_limited_rate, 30)
{
    CLOSED_BY(place_close) struct place place;
    static struct speaker node;
    node = (struct speaker){ .decides = NULL };
    speaker_start(&node);
    /* "foo" is in slot 12182, "bar" in slot 5061 */
    snprintf(node.map, sizeof node.map, "*1\r\n*3\r\n:0\r\n:9999\r\n*3\r\n" HOST ":%d\r\n" ID, node.port);
    struct weir_options options = speaker_options(&place, SPEAKER_PATIENCE_US, &node, NULL);
    weir *limiter = limiter_of(&options);
    weir_limit *limit = limit_of(limiter, "limit", UNREFILLED);
    recover(limit, "bar");
    for (int64_t until_us = wire_now_us() + SPEAKER_PATIENCE_US; timed_try(limit, "foo", 1).status == WEIR_OK;)
        must(wire_now_us() < until_us, "the map is known"); /* until then all requests use the first node */
    int64_t maps = atomic_load(&node.maps), began_us = wire_now_us();
    for (int i = 0; i < 5000; i++) {
        must(timed_try(limit, "foo", 1).status == WEIR_EIO, "nobody decides");
        must(taken(limit, "bar", 1).source == WEIR_BY_REDIS, "the other is decided");
    }
    int64_t took_us = wire_now_us() - began_us;
    ck_assert_int_le(atomic_load(&node.maps) - maps, 30 + 10 * took_us / WEIR_SECOND);
    weir_close(limiter);
    fake_redis_stop(node.fake);
}

/* ---- Its end ---- */

TEST(a_limiter_can_be_closed_at_any_moment_while_it_looks_for_the_map, 60)
{
    static const char *const maps[] = { "", "*0\r\n", ("*1\r\n*3\r\n" ALL) };
    for (size_t i = 0; i < sizeof maps / sizeof maps[0]; i++)
        for (int wait_us = 0; wait_us < 20000; wait_us = 2 * wait_us + 50) {
            CLOSED_BY(place_close) struct place place;
            static struct speaker node;
            node = (struct speaker){ .decides = NULL };
            snprintf(node.map, sizeof node.map, "%s", maps[i]);
            speaker_start(&node);
            struct weir_options options = speaker_options(&place, SPEAKER_PATIENCE_US, &node, NULL);
            weir *limiter = limiter_of(&options);
            sleep_us(wait_us);
            int64_t began_us = wire_now_us();
            weir_close(limiter);
            ck_assert_int_lt(wire_now_us() - began_us, SPEAKER_PATIENCE_US);
            fake_redis_stop(node.fake);
        }
}
