/* test_redis_map.c - parsing which node serves which slots, from real, generated and bad answers to CLUSTER SLOTS;
 * redirects. */
#include "support.h"

#include "backends/redis/cluster/map.h"
#include "backends/redis/flight/redirect.h"

#include <stdio.h>
#include <stdlib.h>

/* Node ids, which have 40 bytes. */
#define ID_A "$40\r\nc5f303e6d06aac65df1e6ce2b772b62ad92545bd\r\n"
#define ID_B "$40\r\nb4fefd2625c3b0fb7539f358dd32033d27324bdd\r\n"
#define ID_C "$40\r\n46485340f89495628d826c3bdf593deb97d07ec2\r\n"
#define LOCALHOST "$9\r\n127.0.0.1\r\n"
#define HOST_B "$13\r\nb.example.org\r\n"
#define IP "$2\r\nip\r\n" LOCALHOST
#define HOSTNAME_B "$8\r\nhostname\r\n" HOST_B

static struct redis_map map;

/* Feed the answer through the reader in pieces of `piece` bytes. */
static bool read_map(const char *bytes, size_t len, size_t piece, const char **why)
{
    struct redis_wire wire;
    struct redis_reply reply;
    int result = 0;
    ck_assert_int_eq(redis_wire_init(&wire), 0);
    redis_wire_show_lists(&wire, redis_map_visit, &map);
    redis_map_begin(&map);
    for (size_t at = 0; at < len; at += piece) {
        ck_assert_int_eq(result, 0);
        ck_assert_int_eq(redis_wire_feed(&wire, bytes + at, len - at < piece ? len - at : piece), 0);
        result = redis_wire_next(&wire, &reply);
    }
    ck_assert_int_eq(result, 1);
    ck_assert_int_eq(reply.kind, REDIS_REPLY_IS_LIST);
    redis_wire_free(&wire);
    return redis_map_end(&map, why);
}

/* "0-8191 host:port; ...", without the slots that no node serves. */
static const char *described(void)
{
    static char text[4096];
    size_t len = 0;
    text[0] = '\0';
    for (size_t slot = 0, first; slot < REDIS_CLUSTER_SLOTS; slot++) {
        const uint16_t owner = map.owner[first = slot];
        while (slot + 1 < REDIS_CLUSTER_SLOTS && map.owner[slot + 1] == owner)
            slot++;
        if (owner == REDIS_NOBODY)
            continue;
        ck_assert_uint_lt(owner, map.node_count);
        len += (size_t)snprintf(text + len, sizeof text - len, "%zu-%zu %s:%d; ", first, slot, map.nodes[owner].host,
                                map.nodes[owner].port);
        ck_assert_uint_lt(len, sizeof text);
    }
    return text;
}

static void assert_map_is(const char *bytes, const char *expected)
{
    const size_t len = strlen(bytes);
    for (size_t piece = len; piece > 0; piece = piece > 2 ? 2 : piece - 1) {
        const char *why = "";
        ck_assert_msg(read_map(bytes, len, piece, &why), "%s: %s", bytes, why);
        ck_assert_ptr_null(why);
        ck_assert_msg(strcmp(described(), expected) == 0, "%s: \"%s\" is not \"%s\"", bytes, described(), expected);
    }
}

/* Answers of Redis 6.0.16, 7.0.15 and 8.0.2 and Valkey 8.1.1, except for the ids. The last three were identical. */
TEST(maps_of_real_clusters_are_read, 30)
{
    static const struct {
        const char *bytes, *expected;
    } rows[] = {
        /* 6.0: a single node that does not know its own address; two primaries and a replica */
        { "*1\r\n*3\r\n:0\r\n:8191\r\n*3\r\n$0\r\n\r\n:39215\r\n" ID_A, "0-8191 :39215; " },
        { "*2\r\n*3\r\n:8192\r\n:16383\r\n*3\r\n" LOCALHOST ":32291\r\n" ID_B "*4\r\n:0\r\n:8191\r\n*3\r\n" LOCALHOST
          ":39215\r\n" ID_A "*3\r\n" LOCALHOST ":38163\r\n" ID_C,
          "0-8191 127.0.0.1:39215; 8192-16383 127.0.0.1:32291; " },
        /* 7.0: a single node; without host names, with one, with names preferred, and told to hide its address */
        { "*1\r\n*3\r\n:0\r\n:8191\r\n*4\r\n$0\r\n\r\n:34421\r\n" ID_A "*0\r\n", "0-8191 :34421; " },
        { "*2\r\n*3\r\n:0\r\n:8191\r\n*4\r\n" LOCALHOST ":34421\r\n" ID_A
          "*0\r\n*3\r\n:8192\r\n:16383\r\n*4\r\n" LOCALHOST ":33371\r\n" ID_B "*0\r\n",
          "0-8191 127.0.0.1:34421; 8192-16383 127.0.0.1:33371; " },
        { "*2\r\n*4\r\n:0\r\n:8191\r\n*4\r\n" LOCALHOST ":34421\r\n" ID_A "*0\r\n*4\r\n" LOCALHOST ":31931\r\n" ID_C
          "*0\r\n*3\r\n:8192\r\n:16383\r\n*4\r\n" LOCALHOST ":33371\r\n" ID_B "*2\r\n" HOSTNAME_B,
          "0-8191 127.0.0.1:34421; 8192-16383 127.0.0.1:33371; " },
        { "*2\r\n*4\r\n:0\r\n:8191\r\n*4\r\n$1\r\n?\r\n:34421\r\n" ID_A "*2\r\n" IP "*4\r\n$1\r\n?\r\n:31931\r\n" ID_C
          "*2\r\n" IP "*3\r\n:8192\r\n:16383\r\n*4\r\n" HOST_B ":33371\r\n" ID_B "*2\r\n" IP,
          "8192-16383 b.example.org:33371; " },
        { "*2\r\n*4\r\n:0\r\n:8191\r\n*4\r\n$-1\r\n:34421\r\n" ID_A "*2\r\n" IP "*4\r\n$-1\r\n:31931\r\n" ID_C
          "*2\r\n" IP "*3\r\n:8192\r\n:16383\r\n*4\r\n$-1\r\n:33371\r\n" ID_B "*4\r\n" IP HOSTNAME_B,
          "0-8191 :34421; 8192-16383 :33371; " },
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        assert_map_is(rows[i].bytes, rows[i].expected);
}

#define RANGE(first, last, host, port) "*3\r\n:" first "\r\n:" last "\r\n*2\r\n" host ":" port "\r\n"
#define H "$1\r\nh\r\n"

TEST(maps_with_gaps_and_ranges_of_one_slot_are_read, 30)
{
    static const struct {
        const char *bytes, *expected;
    } rows[] = {
        { "*1\r\n" RANGE("0", "16383", H, "1"), "0-16383 h:1; " },
        { "*1\r\n" RANGE("16383", "16383", H, "65535"), "16383-16383 h:65535; " },
        { "*3\r\n" RANGE("7", "7", H, "1") RANGE("0", "0", H, "2") RANGE("5", "6", H, "1"), "0-0 h:2; 5-7 h:1; " },
        { "*2\r\n" RANGE("0", "1", "$-1\r\n", "1") RANGE("3", "4", "$0\r\n\r\n", "1"), "0-1 :1; 3-4 :1; " },
        { "*1\r\n" RANGE("0", "1", "$11\r\n2001:db8::7\r\n", "1"), "0-1 2001:db8::7:1; " },
        { "*2\r\n" RANGE("0", "9", "$1\r\n?\r\n", "1") RANGE("10", "10", H, "1"), "10-10 h:1; " },
        { "*1\r\n*4\r\n:0\r\n:1\r\n*2\r\n" H ":1\r\n*0\r\n", "0-1 h:1; " },
        { "*1\r\n*4\r\n:0\r\n:1\r\n*2\r\n" H ":1\r\n*1\r\n*1\r\n:7\r\n", "0-1 h:1; " },
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        assert_map_is(rows[i].bytes, rows[i].expected);
    assert_map_is("*2\r\n" RANGE("0", "1", H, "1") RANGE("3", "4", "$1\r\nH\r\n", "1"), "0-1 h:1; 3-4 h:1; ");
    ck_assert_uint_eq(map.node_count, 1);
}

#define NO_RANGE "a range of slots is not [first, last, [host, port, ...], ...]"
#define NO_SLOT "a slot is not a number of 0 to 16383, or a range ends before it begins"
#define NO_HOST "a node's host is not a string of at most 253 bytes"
#define NO_NODE "a node's host or port is invalid"
#define GOOD RANGE("0", "9", H, "1")

TEST(a_malformed_map_is_refused, 30)
{
    static const struct {
        const char *bytes, *why;
    } rows[] = {
        { "*0\r\n", "no slot has a node" },
        { "*1\r\n*0\r\n", "no slot has a node" },
        { "*1\r\n" RANGE("0", "9", "$1\r\n?\r\n", "1"), "no slot has a node" },
        { "*1\r\n:0\r\n", NO_RANGE },
        { "*1\r\n*1\r\n:0\r\n", NO_RANGE },
        { "*1\r\n*2\r\n:0\r\n:9\r\n", NO_RANGE },
        { "*1\r\n*3\r\n:0\r\n:9\r\n*0\r\n", NO_RANGE },
        { "*1\r\n*3\r\n:0\r\n:9\r\n*1\r\n" H, NO_RANGE },
        { "*1\r\n*3\r\n:0\r\n:9\r\n" H, NO_RANGE },
        { "*1\r\n*3\r\n:0\r\n:9\r\n$-1\r\n", NO_RANGE },
        { "*1\r\n*3\r\n:0\r\n:9\r\n*2\r\n*1\r\n" H ":1\r\n", NO_RANGE },
        { "*1\r\n*3\r\n*1\r\n:0\r\n:9\r\n*2\r\n" H ":1\r\n", NO_RANGE },
        { "*1\r\n*3\r\n:0\r\n*1\r\n:9\r\n*2\r\n" H ":1\r\n", NO_RANGE },
        { "*1\r\n*3\r\n*0\r\n:9\r\n*2\r\n" H ":1\r\n", NO_RANGE },
        { "*2\r\n" GOOD "*2\r\n:10\r\n:11\r\n", NO_RANGE },
        { "*2\r\n*2\r\n:10\r\n:11\r\n" GOOD, NO_RANGE },
        { "*2\r\n*0\r\n" GOOD, NO_RANGE },
        { "*2\r\n" GOOD "+more\r\n", NO_RANGE },
        { "*1\r\n*4\r\n:0\r\n:9\r\n*2\r\n" H ":1\r\n+more\r\n", NO_RANGE },
        { "*1\r\n" RANGE("-1", "9", H, "1"), NO_SLOT },
        { "*1\r\n" RANGE("0", "16384", H, "1"), NO_SLOT },
        { "*1\r\n" RANGE("16384", "16384", H, "1"), NO_SLOT },
        { "*1\r\n" RANGE("9", "8", H, "1"), NO_SLOT },
        { "*1\r\n" RANGE("0", "9223372036854775807", H, "1"), NO_SLOT },
        { "*1\r\n*3\r\n$1\r\n0\r\n:9\r\n*2\r\n" H ":1\r\n", NO_SLOT },
        { "*1\r\n*3\r\n:0\r\n$-1\r\n*2\r\n" H ":1\r\n", NO_SLOT },
        { "*2\r\n" GOOD RANGE("9", "10", H, "1"), "two ranges overlap" },
        { "*2\r\n" GOOD GOOD, "two ranges overlap" },
        { "*2\r\n" GOOD RANGE("5", "5", "$1\r\n?\r\n", "1"), "two ranges overlap" },
        { "*2\r\n" RANGE("5", "5", "$1\r\n?\r\n", "1") GOOD, "two ranges overlap" },
        { "*1\r\n" RANGE("0", "9", H, "0"), NO_NODE },
        { "*1\r\n" RANGE("0", "9", H, "-1"), NO_NODE },
        { "*1\r\n" RANGE("0", "9", H, "65536"), NO_NODE },
        { "*1\r\n" RANGE("0", "9", H, "4294967297"), NO_NODE },
        { "*1\r\n" RANGE("0", "9", "$1\r\n?\r\n", "0"), NO_NODE },
        { "*1\r\n*3\r\n:0\r\n:9\r\n*2\r\n" H "$1\r\n1\r\n", NO_NODE },
        { "*1\r\n" RANGE("0", "9", "$3\r\na b\r\n", "1"), NO_NODE },
        { "*1\r\n" RANGE("0", "9", "$3\r\na/b\r\n", "1"), NO_NODE },
        { "*1\r\n" RANGE("0", "9", "$2\r\n??\r\n", "1"), NO_NODE },
        { "*1\r\n" RANGE("0", "9", "$4\r\na\r\nb\r\n", "1"), NO_NODE },
        { "*1\r\n" RANGE("0", "9", "$5\r\n[::1]\r\n", "1"), NO_NODE },
        { "*1\r\n" RANGE("0", "9", "-ERR\r\n", "1"), NO_HOST },
        { "*1\r\n" RANGE("0", "9", ":7\r\n", "1"), NO_HOST },
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const size_t len = strlen(rows[i].bytes);
        for (size_t piece = len; piece > 0; piece = piece > 1 ? 1 : 0) {
            const char *why = "";
            ck_assert_msg(!read_map(rows[i].bytes, len, piece, &why), "%s", rows[i].bytes);
            ck_assert_msg(strcmp(why, rows[i].why) == 0, "%s: %s", rows[i].bytes, why);
        }
    }
}

TEST(a_host_that_has_a_nul_or_is_too_long_is_refused, 30)
{
    static const char with_nul[] = "*1\r\n*3\r\n:0\r\n:9\r\n*2\r\n$3\r\nh\0x\r\n:1\r\n";
    const char *why;
    ck_assert(!read_map(with_nul, sizeof with_nul - 1, 1, &why));
    ck_assert_str_eq(why, NO_NODE);
    for (int len = REDIS_HOST_MAX - 1; len <= REDIS_HOST_MAX + 2; len++) {
        char bytes[512], host[512];
        memset(host, 'h', sizeof host);
        const int bytes_len = snprintf(bytes, sizeof bytes, "*1\r\n*3\r\n:0\r\n:9\r\n*2\r\n$%d\r\n%.*s\r\n:1\r\n", len,
                                       len, host);
        ck_assert(read_map(bytes, (size_t)bytes_len, 7, &why) == (len <= REDIS_HOST_MAX));
        if (len <= REDIS_HOST_MAX)
            ck_assert_uint_eq(strlen(map.nodes[0].host), (size_t)len);
        else
            ck_assert_str_eq(why, NO_HOST);
    }
}

/* ---- Generated answers ---- */

static char made[4 << 20];

static size_t put_node(size_t at, const char *host, int port, bool has_metadata)
{
    at += (size_t)snprintf(made + at, sizeof made - at, "*%d\r\n", has_metadata ? 4 : 3);
    if (host)
        at += (size_t)snprintf(made + at, sizeof made - at, "$%zu\r\n%s\r\n", strlen(host), host);
    else
        at += (size_t)snprintf(made + at, sizeof made - at, "$-1\r\n");
    at += (size_t)snprintf(made + at, sizeof made - at, ":%d\r\n%s%s", port, ID_A, has_metadata ? "*2\r\n" IP : "");
    ck_assert_uint_lt(at, sizeof made - 1024);
    return at;
}

/* Describe `count` ranges, each from its slot in `firsts` up to the next one's. Its node is nodes[i], 0 to
 * REDIS_NODES_MAX - 1; one more means unknown, two more means that the range is left out. Replicas follow. */
struct ranges {
    size_t count;
    int firsts[REDIS_CLUSTER_SLOTS + 1], nodes[REDIS_CLUSTER_SLOTS];
};

static void name_of(int node, char out[32])
{
    snprintf(out, 32, node % 3 == 0 ? "10.0.0.%d" : node % 3 == 1 ? "fd00::%d" : "node-%d.example", node);
}

static size_t put_ranges(struct chance *chance, const struct ranges *ranges)
{
    size_t count = 0;
    for (size_t i = 0; i < ranges->count; i++)
        count += ranges->nodes[i] <= REDIS_NODES_MAX;
    size_t at = (size_t)snprintf(made, sizeof made, "*%zu\r\n", count);
    const size_t shift = (size_t)chance_between(chance, 0, (int64_t)ranges->count - 1);
    for (size_t j = 0; j < ranges->count; j++) {
        /* 7919 is a prime, so each index occurs once unless it divides the count */
        const size_t i = (j * 7919 + shift) % ranges->count;
        const int node = ranges->nodes[i];
        const int replicas = (int)chance_between(chance, 0, 1);
        char host[32];
        if (node > REDIS_NODES_MAX)
            continue;
        at += (size_t)snprintf(made + at, sizeof made - at, "*%d\r\n:%d\r\n:%d\r\n", 3 + replicas, ranges->firsts[i],
                               ranges->firsts[i + 1] - 1);
        name_of(node, host);
        const bool has_metadata = chance_one_in(chance, 2);
        at = put_node(at, node == REDIS_NODES_MAX ? "?" : host, 7000 + node, has_metadata);
        if (replicas > 0)
            at = put_node(at, chance_one_in(chance, 2) ? "any thing" : NULL, 0, has_metadata);
    }
    return at;
}

static void assert_owners(const struct ranges *ranges)
{
    for (size_t i = 0; i < ranges->count; i++) {
        const int node = ranges->nodes[i];
        char host[32];
        name_of(node, host);
        for (int slot = ranges->firsts[i]; slot < ranges->firsts[i + 1]; slot++) {
            const uint16_t owner = map.owner[slot];
            if (node >= REDIS_NODES_MAX)
                must(owner == REDIS_NOBODY, "a slot without a node has nobody");
            else
                must(owner < map.node_count && strcmp(map.nodes[owner].host, host) == 0 &&
                         map.nodes[owner].port == 7000 + node,
                     "a slot has the node of its range");
        }
    }
}

TEST(any_ranges_in_any_order_are_read, 120)
{
    static struct ranges ranges;
    struct chance chance = chance_make(3);
    for (int64_t round = 0, rounds = steps_or(1000000) / 5000; round < rounds; round++) {
        const int64_t width = chance_one_in(&chance, 20) ? 1 : chance_magnitude(&chance, 4096);
        const int most = (int)chance_between(&chance, 0, REDIS_NODES_MAX + 1);
        ranges.count = 0;
        for (int slot = 0; slot < REDIS_CLUSTER_SLOTS; ranges.count++) {
            ranges.firsts[ranges.count] = slot;
            ranges.nodes[ranges.count] = (int)chance_between(&chance, 0, most);
            slot += (int)chance_between(&chance, 1, width);
        }
        ranges.firsts[ranges.count] = REDIS_CLUSTER_SLOTS;
        ranges.nodes[0] = 0; /* at least one slot has a node */
        if (ranges.count % 7919 == 0)
            continue;
        const char *why = "";
        const size_t len = put_ranges(&chance, &ranges);
        const size_t piece = chance_one_in(&chance, 2) ? 65536 : (size_t)chance_between(&chance, 10, 5000);
        ck_assert_msg(read_map(made, len, piece, &why), "%s", why);
        assert_owners(&ranges);
    }
}

TEST(the_largest_number_of_nodes_is_read_and_one_more_is_refused, 30)
{
    static struct ranges ranges;
    struct chance chance = chance_make(4);
    ranges.count = REDIS_NODES_MAX;
    for (int i = 0; i <= REDIS_NODES_MAX; i++)
        ranges.firsts[i] = i * (REDIS_CLUSTER_SLOTS / REDIS_NODES_MAX);
    for (int i = 0; i < REDIS_NODES_MAX; i++)
        ranges.nodes[i] = i;
    const char *why = "";
    size_t len = put_ranges(&chance, &ranges);
    ck_assert_msg(read_map(made, len, len, &why), "%s", why);
    ck_assert_uint_eq(map.node_count, REDIS_NODES_MAX);
    assert_owners(&ranges);

    len = (size_t)snprintf(made, sizeof made, "*%d\r\n", REDIS_NODES_MAX + 1);
    for (int i = 0; i <= REDIS_NODES_MAX; i++)
        len += (size_t)snprintf(made + len, sizeof made - len, RANGE("%d", "%d", H, "%d"), i, i, 7000 + i);
    ck_assert(!read_map(made, len, len, &why));
    ck_assert_str_eq(why, "there are too many nodes");
}

TEST(a_refused_map_leaves_nothing_in_the_next, 30)
{
    const char *why;
    const char bad[] = "*2\r\n" GOOD "*3\r\n:20\r\n:30\r\n*2\r\n$3\r\nbad\r\n";
    struct redis_wire wire;
    struct redis_reply reply;
    ck_assert_int_eq(redis_wire_init(&wire), 0);
    redis_wire_show_lists(&wire, redis_map_visit, &map);
    redis_map_begin(&map);
    ck_assert_int_eq(redis_wire_feed(&wire, bad, sizeof bad - 1), 0); /* then the connection is lost */
    ck_assert_int_eq(redis_wire_next(&wire, &reply), 0);
    redis_wire_free(&wire);
    ck_assert(!redis_map_end(&map, &why));
    ck_assert_str_eq(why, NO_RANGE);
    assert_map_is("*1\r\n" RANGE("5", "6", "$1\r\ni\r\n", "2"), "5-6 i:2; ");
    ck_assert_uint_eq(map.node_count, 1);
}

/* ---- Redirections ---- */

TEST(a_redirect_gives_kind_slot_and_node, 30)
{
    static const struct {
        const char *text;
        struct redis_redirect expected;
    } rows[] = {
        { "MOVED 3999 127.0.0.1:6381", { REDIS_REDIRECT_MOVED, 3999, { "127.0.0.1", 6381 } } },
        { "ASK 3999 127.0.0.1:6381", { REDIS_REDIRECT_ASK, 3999, { "127.0.0.1", 6381 } } },
        { "MOVED 0 b.example.org:1", { REDIS_REDIRECT_MOVED, 0, { "b.example.org", 1 } } },
        { "MOVED 16383 :65535", { REDIS_REDIRECT_MOVED, 16383, { "", 65535 } } },
        { "ASK 7 2001:db8::7:6379", { REDIS_REDIRECT_ASK, 7, { "2001:db8::7", 6379 } } },
        { "ASK 7 ::1:6379", { REDIS_REDIRECT_ASK, 7, { "::1", 6379 } } },
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const struct redis_redirect *expected = &rows[i].expected;
        struct redis_redirect redirect;
        const struct redis_reply reply = { .kind = REDIS_REPLY_IS_ERROR,
                                           .text = rows[i].text,
                                           .len = strlen(rows[i].text) };
        memset(&redirect, 0xa5, sizeof redirect);
        ck_assert_msg(redis_redirect_read(&reply, &redirect), "%s", rows[i].text);
        ck_assert_int_eq(redirect.kind, expected->kind);
        ck_assert_uint_eq(redirect.slot, expected->slot);
        ck_assert_str_eq(redirect.to.host, expected->to.host);
        ck_assert_int_eq(redirect.to.port, expected->to.port);
    }
}

TEST(an_error_without_a_target_is_no_redirect, 30)
{
    static const char *const texts[] = {
        "MOVED",
        "MOVED ",
        "MOVED 1",
        "MOVED 1 ",
        "MOVED 1 h",
        "MOVED 1 h:",
        "MOVED 1 h:0",
        "MOVED 1 h:65536",
        "MOVED 1 h:123456",
        "MOVED 1 h:1x",
        "MOVED 1 h:-1",
        "MOVED 1 h: 1",
        "MOVED 1 h:1 ",
        "MOVED 1 h:1 more",
        "MOVED 16384 h:1",
        "MOVED -1 h:1",
        "MOVED x h:1",
        "MOVED 4294967297 h:1",
        "MOVED  1 h:1",
        "MOVED 1  h:1",
        "MOVED 1 ?:1",
        "MOVED 1 a/b:1",
        "MOVED 1 [::1]:1",
        "MOVED 1 h\r:1",
        "MOVEDD 1 h:1",
        "moved 1 h:1",
        "ASKING 1 h:1",
        "ASK h:1 1",
        "ERR MOVED 1 h:1",
        "TRYAGAIN Multiple keys request",
        "CLUSTERDOWN Hash slot",
        "",
    };
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        struct redis_redirect redirect = { .kind = REDIS_REDIRECT_ASK };
        const struct redis_reply reply = { .kind = REDIS_REPLY_IS_ERROR, .text = texts[i], .len = strlen(texts[i]) };
        ck_assert_msg(!redis_redirect_read(&reply, &redirect), "%s", texts[i]);
        ck_assert_int_eq(redirect.kind, REDIS_NO_REDIRECT);
    }

    /* Other texts are no redirects, nor are replies that are not errors, nor hosts that are too long. */
    struct redis_redirect redirect;
    static const char moved[] = "MOVED 1 h:1";
    for (int kind = REDIS_REPLY_IS_STRING; kind <= REDIS_REPLY_IS_OTHER; kind++) {
        const struct redis_reply reply = { .kind = (enum redis_reply_kind)kind,
                                           .text = moved,
                                           .len = sizeof moved - 1 };
        ck_assert(redis_redirect_read(&reply, &redirect) == (kind == REDIS_REPLY_IS_ERROR));
    }
    for (int len = REDIS_HOST_MAX; len <= REDIS_HOST_MAX + 1; len++) {
        char text[512], host[512];
        memset(host, 'h', sizeof host);
        const int text_len = snprintf(text, sizeof text, "ASK 1 %.*s:1", len, host);
        const struct redis_reply reply = { .kind = REDIS_REPLY_IS_ERROR, .text = text, .len = (size_t)text_len };
        ck_assert(redis_redirect_read(&reply, &redirect) == (len == REDIS_HOST_MAX));
    }
}
