/* redis_map.c - what the nodes of a Redis Cluster say about its slots.
 *
 * The input is an answer to CLUSTER SLOTS, as bytes or made of choices, or a redirect. Properties:
 *
 *     - an answer is accepted or refused the same however it is cut, and the map equals that of a plain reading of
 *       hiredis's tree of the same bytes; an answer that the plain reading refuses is refused
 *     - an accepted redirect is in range, and survives being written and parsed
 */
#include "fuzz.h"

#include "backends/redis/cluster/map.h"
#include "backends/redis/flight/redirect.h"

#include <hiredis/hiredis.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* ---- A plain reading ---- */

static struct redis_map taken, plain;

static bool is_plain_host(const redisReply *host)
{
    static const char bytes[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-_:%";
    if (host->type == REDIS_REPLY_NIL)
        return true;
    if (host->type != REDIS_REPLY_STRING && host->type != REDIS_REPLY_STATUS)
        return false;
    const size_t len = (size_t)host->len;
    return (len == 1 && host->str[0] == '?') ||
           (len <= REDIS_HOST_MAX && strlen(host->str) == len && strspn(host->str, bytes) == len);
}

static bool is_plain_range(const redisReply *range)
{
    if (range->type != REDIS_REPLY_ARRAY || range->elements < 3)
        return false;
    const redisReply *first = range->element[0], *last = range->element[1], *primary = range->element[2];
    for (size_t i = 2; i < range->elements; i++)
        if (range->element[i]->type != REDIS_REPLY_ARRAY)
            return false;
    return first->type == REDIS_REPLY_INTEGER && last->type == REDIS_REPLY_INTEGER && first->integer >= 0 &&
           first->integer <= last->integer && last->integer < 16384 && primary->elements >= 2 &&
           is_plain_host(primary->element[0]) && primary->element[1]->type == REDIS_REPLY_INTEGER &&
           primary->element[1]->integer >= 1 && primary->element[1]->integer <= 65535;
}

static uint16_t plain_node(const redisReply *primary)
{
    const char *host = primary->element[0]->type == REDIS_REPLY_NIL ? "" : primary->element[0]->str;
    size_t i = 0;
    if (strcmp(host, "?") == 0)
        return REDIS_NOBODY;
    while (i < plain.node_count &&
           (strcasecmp(plain.nodes[i].host, host) != 0 || plain.nodes[i].port != primary->element[1]->integer))
        i++;
    if (i == REDIS_NODES_MAX)
        return REDIS_NODES_MAX;
    if (i == plain.node_count) {
        snprintf(plain.nodes[i].host, sizeof plain.nodes[i].host, "%s", host);
        plain.nodes[i].port = (int)primary->element[1]->integer;
        plain.node_count++;
    }
    return (uint16_t)i;
}

static bool is_plain_map(const redisReply *answer)
{
    static bool owned[REDIS_CLUSTER_SLOTS];
    size_t count = answer->elements;
    memset(owned, 0, sizeof owned);
    redis_map_begin(&plain);
    while (count > 0 && answer->element[count - 1]->type == REDIS_REPLY_ARRAY &&
           answer->element[count - 1]->elements == 0)
        count--; /* an empty list at the end is not visible */
    for (size_t i = 0; i < count; i++) {
        const redisReply *range = answer->element[i];
        if (!is_plain_range(range))
            return false;
        const uint16_t node = plain_node(range->element[2]);
        if (node == REDIS_NODES_MAX)
            return false;
        for (long long slot = range->element[0]->integer; slot <= range->element[1]->integer; slot++) {
            if (owned[slot])
                return false;
            owned[slot] = true;
            plain.owner[slot] = node;
        }
    }
    return plain.node_count > 0;
}

/* ---- Answers ---- */

enum result { TAKEN, REFUSED, NO_LIST };

/* Read in pieces of `piece` bytes, or of random sizes if that is 0. */
static enum result read_answer(const char *bytes, size_t len, size_t piece)
{
    uint64_t chance = len;
    struct redis_wire wire;
    struct redis_reply reply;
    const char *why;
    int result = 0;
    fuzz_must(redis_wire_init(&wire) == 0, "there is memory");
    redis_wire_show_lists(&wire, redis_map_visit, &taken);
    redis_map_begin(&taken);
    for (size_t at = 0, part; at < len && result == 0; at += part) {
        part = piece > 0 ? piece : fuzz_piece(&chance);
        part = len - at < part ? len - at : part;
        result = redis_wire_feed(&wire, bytes + at, part);
        if (result == 0)
            result = redis_wire_next(&wire, &reply);
    }
    redis_wire_free(&wire);
    if (result != 1 || reply.kind != REDIS_REPLY_IS_LIST)
        return NO_LIST;
    const bool is_taken = redis_map_end(&taken, &why);
    fuzz_must(is_taken == !why && (is_taken || *why), "what is refused has a reason");
    return is_taken ? TAKEN : REFUSED;
}

static void check_answer(const char *bytes, size_t len)
{
    const enum result result = read_answer(bytes, len, 1);
    fuzz_must(read_answer(bytes, len, 0) == result, "it is read however it is cut");
    fuzz_must(read_answer(bytes, len, len + 1) == result, "it is read however it is cut");
    if (result == NO_LIST)
        return;
    redisReader *reader = redisReaderCreate();
    void *answer = NULL;
    fuzz_must(reader && redisReaderFeed(reader, bytes, len) == REDIS_OK &&
                  redisReaderGetReply(reader, &answer) == REDIS_OK && answer,
              "hiredis reads what we read");
    fuzz_must(is_plain_map(answer) == (result == TAKEN), "it is well-formed, or refused");
    if (result == TAKEN) {
        fuzz_must(taken.node_count == plain.node_count, "as many nodes");
        for (size_t i = 0; i < plain.node_count; i++)
            fuzz_must(redis_node_name_is(&taken.nodes[i], &plain.nodes[i]), "the same nodes");
        fuzz_must(memcmp(taken.owner, plain.owner, sizeof plain.owner) == 0, "each slot has the same");
    }
    freeReplyObject(answer);
    redisReaderFree(reader);
}

static size_t put_number(struct feed *feed, char *out, int64_t usual)
{
    const uint8_t choice = feed_byte(feed);
    const int64_t number = choice < 240 ? usual : choice < 248 ? feed_between(feed, 0, 70000) - 100 : INT64_MAX;
    return (size_t)sprintf(out, choice == 247 ? "$%lld\r\n" : ":%lld\r\n", (long long)number);
}

static size_t put_node(struct feed *feed, char *out)
{
    static const char *const hosts[] = { "$-1\r\n",       "$0\r\n\r\n", "$1\r\n?\r\n",  "$1\r\nh\r\n",
                                         "$1\r\nH\r\n",   "+a.b\r\n",   "$2\r\n::\r\n", "$9\r\n127.0.0.1\r\n",
                                         "$3\r\na b\r\n", "-h\r\n",     ":1\r\n" };
    static const char *const rest[] = { "", "$1\r\ni\r\n", "*0\r\n", "*2\r\n$2\r\nip\r\n$1\r\n?\r\n" };
    const uint8_t choice = feed_byte(feed);
    size_t len = (size_t)sprintf(out, "*%d\r\n%s", choice % 4 > 0 ? 3 : 2, hosts[choice / 4 % 11]);
    len += put_number(feed, out + len, 7000 + choice % 2);
    return len + (size_t)sprintf(out + len, "%s", rest[choice % 4]);
}

/* Make adjacent ranges, most of them valid. */
static void check_made(struct feed *feed)
{
    static char bytes[1 << 16];
    const int64_t count = feed_between(feed, 0, 64);
    size_t len = (size_t)sprintf(bytes, "*%d\r\n", (int)count);
    int64_t slot = 0;
    for (int64_t i = 0; i < count; i++) {
        const int64_t first = slot + feed_byte(feed) % 3;
        const int replicas = feed_byte(feed) % 4;
        slot = first + feed_byte(feed);
        len += (size_t)sprintf(bytes + len, "*%d\r\n", 3 + replicas);
        len += put_number(feed, bytes + len, first);
        len += put_number(feed, bytes + len, slot);
        for (int j = 0; j <= replicas; j++)
            len += put_node(feed, bytes + len);
        slot++;
    }
    check_answer(bytes, len);
}

/* ---- Redirections ---- */

static void check_redirect(const char *text, size_t len)
{
    const struct redis_reply error = { .kind = REDIS_REPLY_IS_ERROR, .text = text, .len = len };
    struct redis_redirect redirect, again;
    if (!redis_redirect_read(&error, &redirect)) {
        fuzz_must(redirect.kind == REDIS_NO_REDIRECT, "it is none");
        return;
    }
    fuzz_must(redirect.kind != REDIS_NO_REDIRECT && redirect.slot < REDIS_CLUSTER_SLOTS && redirect.to.port >= 1 &&
                  redirect.to.port <= 65535 && strlen(redirect.to.host) <= REDIS_HOST_MAX,
              "it is in its ranges");
    char written[512];
    const int written_len = snprintf(written, sizeof written, "%s %u %s:%d",
                                     redirect.kind == REDIS_REDIRECT_ASK ? "ASK" : "MOVED", redirect.slot,
                                     redirect.to.host, redirect.to.port);
    const struct redis_reply rewritten = { .kind = REDIS_REPLY_IS_ERROR, .text = written, .len = (size_t)written_len };
    fuzz_must(redis_redirect_read(&rewritten, &again) && again.kind == redirect.kind && again.slot == redirect.slot &&
                  again.to.port == redirect.to.port && strcmp(again.to.host, redirect.to.host) == 0,
              "it is read again");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0)
        return 0;
    if (data[0] == 'm') {
        struct feed feed = feed_of(data + 1, size - 1);
        check_made(&feed);
    } else {
        check_answer((const char *)data, size);
        check_redirect((const char *)data, size);
    }
    return 0;
}
