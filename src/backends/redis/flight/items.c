/* items.c - the keys and the items of a call: its requests as the script reads them. */
#include "backends/redis/flight/call.h"
#include "backends/redis/flight/key.h"

#include <string.h>

void redis_call_write_key(const char *prefix, const struct weir_backend_request *request, const char *suffix,
                          struct redis_bytes *out)
{
    const char *limit_name = weir_limit_name(request->limit);
    const size_t len = redis_key_len(prefix, limit_name, request->key), suffix_len = strlen(suffix);
    redis_bytes_string_head(out, len + suffix_len);
    char *room = redis_bytes_room(out, len);
    if (room)
        out->len += redis_key_write(prefix, limit_name, request->key, room);
    redis_bytes_add(out, suffix, suffix_len);
    redis_bytes_add(out, "\r\n", 2);
}

void redis_call_write_head(const struct redis_flight_call *call, size_t keys, size_t arguments, struct redis_bytes *out)
{
    redis_bytes_command(out, 3 + keys + arguments);
    redis_bytes_text(out, "EVALSHA");
    redis_bytes_string(out, redis_scripts[call->script].sha1, 40);
    redis_bytes_number(out, (int64_t)keys);
}

/* True if no later request joins this one's item. Equal consecutive requests are one item, except those with `ahead`:
 * a return or renewal is one item, and each other one is one for its cost, if it has one, and one for the rest. */
static bool ends_item(const struct redis_flight_request *aboard)
{
    const struct redis_flight_request *next = aboard->next;
    return !next || next->request.verb != aboard->request.verb || next->request.cost != aboard->request.cost ||
           aboard->request.ahead > 0 || next->request.ahead > 0;
}

static size_t count_items(const struct redis_flight_key *key)
{
    size_t items = 0;
    for (const struct redis_flight_request *aboard = key->first; aboard; aboard = aboard->next)
        if (ends_item(aboard))
            items += aboard->request.ahead > 0 && aboard->request.cost > 0 && aboard->request.verb == WEIR_TAKE ? 2 : 1;
    return items;
}

/* Each returns the place behind what it has written. */
static unsigned char *put_item(unsigned char *at, int verb, bool more, int64_t cost, int64_t times)
{
    redis_item_write(at, verb, more, cost, times);
    return at + REDIS_ITEM_SIZE;
}

static unsigned char *put_ahead(unsigned char *at, const struct weir_backend_request *request, bool more)
{
    if (request->verb != WEIR_TAKE)
        return put_item(at, request->verb == WEIR_REFUND ? REDIS_RETURN : (int)request->verb, more, request->cost,
                        request->ahead);
    if (request->cost > 0)
        at = put_item(at, WEIR_TAKE, true, request->cost, 1);
    return put_item(at, request->cost > 0 ? REDIS_LEASE_IF_TAKEN : REDIS_LEASE, more, request->ahead, request->spread);
}

static unsigned char *put_items(unsigned char *at, const struct redis_flight_key *key)
{
    unsigned times = 0;
    for (const struct redis_flight_request *aboard = key->first; aboard; aboard = aboard->next) {
        times++;
        if (!ends_item(aboard))
            continue;
        at = aboard->request.ahead > 0 || aboard->request.cost == 0
                 ? put_ahead(at, &aboard->request, aboard->next != NULL)
                 : put_item(at, (int)aboard->request.verb, aboard->next != NULL, aboard->request.cost, times);
        times = 0;
    }
    return at;
}

/* The items are made further back, where the head of their string cannot reach, because it tells their length. */
void redis_call_write_items(const struct redis_flight *flight, const struct redis_flight_call *call,
                            struct redis_bytes *out)
{
    size_t item_count = 0;
    for (uint32_t i = 0; i < call->key_count; i++)
        item_count += count_items(&flight->keys[call->keys[i]]);
    const size_t head_room = 24, size = REDIS_COUNTS_SIZE + item_count * REDIS_ITEM_SIZE;
    const size_t packed_most = REDIS_COUNTS_SIZE + item_count * REDIS_RETURN_SIZE;
    const uint32_t echo = redis_call_echo(flight, call);
    unsigned char *bytes = (unsigned char *)redis_bytes_room(out, head_room + packed_most + REDIS_ECHO_SIZE);
    if (!bytes)
        return;
    bytes += head_room;
    unsigned char *at = bytes + REDIS_COUNTS_SIZE;
    for (uint32_t i = 0; i < call->key_count; i++)
        at = put_items(at, &flight->keys[call->keys[i]]);
    assert(at == bytes + size);
    size_t len = size - REDIS_COUNTS_SIZE;
    if (call->limit)
        len = redis_items_pack(bytes, item_count);
    else
        bytes += REDIS_COUNTS_SIZE;
    redis_bytes_string_head(out, len + REDIS_ECHO_SIZE);
    memmove(out->data + out->len, bytes, len);
    out->len += len;
    redis_bytes_add(out, &echo, REDIS_ECHO_SIZE);
    redis_bytes_add(out, "\r\n", 2);
}

/* ---- The order of keys ---- */

bool redis_key_takes(const struct redis_flight_key *key)
{
    return !key->first->next && key->first->request.verb == WEIR_TAKE && key->first->request.ahead == 0;
}

void redis_call_order(const struct redis_flight *flight, struct redis_flight_call *call)
{
    uint32_t ordered[REDIS_CALL_KEYS], n = 0;
    uint8_t ranks[REDIS_CALL_KEYS];
    int64_t cost = 0; /* of the first take */
    for (uint32_t i = 0; i < call->key_count; i++) {
        const struct redis_flight_key *key = &flight->keys[call->keys[i]];
        const struct weir_backend_request *request = &key->first->request;
        const bool takes = redis_key_takes(key), returns = request->verb == WEIR_REFUND && request->ahead > 0;
        if (takes && cost == 0)
            cost = request->cost;
        ranks[i] = takes && request->cost == cost ? 0 : returns && !key->first->next ? 1 : 2;
    }
    for (uint8_t rank = 0; rank <= 2; rank++)
        for (uint32_t i = 0; i < call->key_count; i++)
            if (ranks[i] == rank)
                ordered[n++] = call->keys[i];
    memcpy(call->keys, ordered, n * sizeof *ordered);
}
