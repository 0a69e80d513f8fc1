/* plain_store.c - what the scripts do in a Redis server, written in C: see plain_store.h. */
#include "plain_store.h"

#include "fuzz.h"

#include "core/ground/arith.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- States ---- */

int64_t plain_number(const unsigned char *bytes, int width)
{
    int64_t number = 0;
    while (width-- > 0)
        number = number << 8 | bytes[width];
    return number;
}

int64_t plain_double(const unsigned char *bytes)
{
    const uint64_t bits = (uint64_t)plain_number(bytes, 7) | (uint64_t)bytes[7] << 56;
    double number;
    memcpy(&number, &bits, sizeof number);
    fuzz_must(number >= 0 && number <= (double)EXACT_MAX && number == (double)(int64_t)number, "a number is whole");
    return (int64_t)number;
}

/* True if `a / b * c` does not exceed the longest time that a limit may take to fill. */
static bool is_short(double a, double b, double c)
{
    return a / b * c <= (double)WEIR_MAX_FILL_US;
}

bool plain_stamp_read(const unsigned char *bytes, size_t size, struct weir_plan *plan, size_t *len)
{
    static const char tags[] = "TLIFS";
    static const size_t lens[] = { 26, 26, 21, 15, 16 };
    const char *tag = size > 0 && bytes[0] ? strchr(tags, bytes[0]) : NULL;
    if (!tag || size < lens[tag - tags])
        return false;
    *plan = (struct weir_plan){ .algorithm = WEIR_TOKEN_BUCKET };
    *len = lens[tag - tags];
    plan->size = plain_number(bytes + *len - 6, 6);
    if (plan->size == 0)
        return false;
    switch (*tag) {
    case 'I':
        plan->refill = WEIR_INTERVAL;
        plan->align = bytes[1];
        plan->limit = plain_number(bytes + 2, 6);
        plan->period_us = plain_number(bytes + 8, 7);
        return plan->align <= 1 && plan->limit > 0 && plan->period_us > 0 &&
               is_short((double)((plan->size - 1) / plan->limit + 1), 1, (double)plan->period_us);
    case 'F':
        plan->algorithm = WEIR_FIXED_WINDOW;
        plan->align = bytes[1];
        plan->limit = plan->size;
        plan->period_us = plain_number(bytes + 2, 7);
        return plan->align <= 1 && plan->period_us > 0 && plan->period_us <= WEIR_MAX_FILL_US;
    case 'S':
        plan->algorithm = WEIR_SLIDING_WINDOW;
        plan->blocks = (int32_t)plain_number(bytes + 1, 2);
        plan->limit = plan->size;
        plan->period_us = plain_number(bytes + 3, 7);
        return plan->blocks > 0 && plan->blocks <= (plan->size > UINT32_MAX ? 512 : 1024) && plan->period_us > 0 &&
               (double)(plan->blocks + 1) * (double)plan->period_us <= (double)WEIR_MAX_FILL_US;
    default:
        plan->algorithm = *tag == 'L' ? WEIR_LEAKY_BUCKET : WEIR_TOKEN_BUCKET;
        plan->p = plain_number(bytes + 1, 7);
        plan->q = plain_number(bytes + 8, 7);
        plan->tick_us = plain_number(bytes + 15, 5);
        return plan->p > 0 && plan->p <= EXACT_MAX && plan->tick_us > 0 && plan->q > 0 &&
               plan->size <= EXACT_MAX / plan->q &&
               is_short((double)(plan->size * plan->q), (double)plan->p, (double)plan->tick_us);
    }
}

/* Read a state without trailing bytes or, if `may_be_empty`, a fingerprint alone. */
static bool under_plan_read(const unsigned char *bytes, size_t size, bool may_be_empty, struct under_plan *out)
{
    size_t stamp_len;
    enum redis_found found;
    unsigned char without_room[40];
    const size_t before = redis_origin_read(bytes, size, &out->origin);
    out->has_origin = before > 0;
    bytes += before;
    size -= before;
    if (size <= sizeof without_room) {
        memcpy(without_room, bytes, size);
        mirror_leave_room(without_room, size);
        bytes = without_room;
    }
    if (!plain_stamp_read(bytes, size, &out->plan, &stamp_len))
        return false;
    if (size == stamp_len) {
        state_charge(&out->plan, out->state, 0, 0);
        out->has_origin = false;
        return may_be_empty;
    }
    return redis_state_read(&out->plan, bytes, size, out->state, &found) == (int)size && found == REDIS_STATE;
}

bool plain_read(const unsigned char *bytes, size_t size, struct mirror *out)
{
    out->stored = true;
    out->has_former = size > 0 && bytes[0] == '+';
    if (!out->has_former)
        return under_plan_read(bytes, size, false, &out->own);
    if (size < 10)
        return false;
    out->until_us = plain_number(bytes + 1, 7);
    const size_t own_len = (size_t)min_of(plain_number(bytes + 8, 2), (int64_t)size - 10);
    return out->until_us <= EXACT_MAX && under_plan_read(bytes + 10, own_len, true, &out->own) &&
           under_plan_read(bytes + 10 + own_len, size - 10 - own_len, true, &out->former);
}

/* ---- Keys ---- */

void plain_store_clear(struct plain_store *store, int64_t now_us)
{
    store->now_us = now_us;
    store->n = 0;
}

struct plain_key *plain_store_key(struct plain_store *store, const char *name, size_t len)
{
    for (int i = 0; i < store->n; i++)
        if (store->keys[i].name_len == len && memcmp(store->keys[i].name, name, len) == 0)
            return &store->keys[i];
    fuzz_must(store->n < STORE_KEYS && len <= STORE_NAME_MAX, "the store has room");
    struct plain_key *key = &store->keys[store->n++];
    key->name_len = len;
    memcpy(key->name, name, len);
    key->foreign = key->mirror.stored = key->mirror.has_former = false;
    key->charged = 0;
    return key;
}

/* ---- Calls ---- */

/* A call, parsed from its words. */
struct call {
    struct plain_store *store;
    bool all;
    int n;
    struct plain_key *keys[STORE_KEYS];
    struct weir_plan plans[STORE_KEYS];
    const unsigned char *items, *echo;
    int64_t charged;
    unsigned char *out;
    size_t len;
};

/* The items of the call as if it had not been packed; the fuzzer has one thread. */
static unsigned char unpacked[STORE_ITEMS_MAX * REDIS_ITEM_SIZE + REDIS_ECHO_SIZE];

static void items_set(struct call *call, size_t len, const unsigned char *echo)
{
    memcpy(unpacked + len, echo, REDIS_ECHO_SIZE);
    call->items = unpacked;
    call->echo = unpacked + len;
}

/* Read a call of bucket_single, whose argument must be what follows from its stamp and its request. */
static void single_read(struct call *call, const char *const *words, const size_t *lens)
{
    unsigned char stamp[REDIS_STAMP_MAX], expected[REDIS_SETTLE_SIZE];
    const unsigned char *argument = (const unsigned char *)words[4],
                        *echo = argument + REDIS_TAKE_SIZE - REDIS_ECHO_SIZE;
    const bool takes = lens[4] == REDIS_TAKE_SIZE;
    size_t stamp_len, len;
    const bool returns = lens[4] == REDIS_SETTLE_SIZE;
    fuzz_must(takes || returns || lens[4] == REDIS_CHARGE_SIZE, "the argument is whole");
    call->keys[0] = plain_store_key(call->store, words[3], lens[3]);
    memcpy(stamp, argument, sizeof stamp);
    fuzz_must(mirror_leave_room(stamp, sizeof stamp) &&
                  plain_stamp_read(stamp, sizeof stamp, &call->plans[0], &stamp_len) && stamp_len == sizeof stamp,
              "the stamp is one with room");
    const struct weir_plan *plan = &call->plans[0];
    const int64_t halves = plain_double(echo - 8);
    const int64_t cost = halves <= 2 * plan->q * plan->size ? halves / (2 * plan->q) : plan->size + 1;
    if (takes) {
        redis_item_write(unpacked, WEIR_TAKE, false, cost, 1);
        len = redis_take_write(plan, cost, echo, expected);
    } else {
        const int64_t since_us = returns ? plain_double(echo + REDIS_ECHO_SIZE + 8) : 0;
        redis_item_write(unpacked, since_us > 0 ? REDIS_RETURN : WEIR_CHARGE, false, cost, since_us > 0 ? since_us : 1);
        len = redis_settle_write(plan, cost, since_us, echo, expected);
    }
    items_set(call, REDIS_ITEM_SIZE, echo);
    fuzz_must(len == lens[4] && memcmp(argument, expected, len) == 0,
              "the argument agrees with its stamp and its request");
}

/* Read the word of items, which are packed unless the call is all or nothing. */
static void items_read(struct call *call, const unsigned char *word, size_t len)
{
    size_t settled = 0;
    const unsigned char *at = word, *end = word + len - REDIS_ECHO_SIZE;
    fuzz_must(len >= REDIS_ITEM_SIZE + REDIS_ECHO_SIZE, "there is an item");
    if (!call->all) {
        const size_t same = (size_t)plain_number(word, 2), returns = (size_t)plain_number(word + 2, 2);
        at += REDIS_COUNTS_SIZE;
        const size_t first = (same > 0) * REDIS_ITEM_SIZE;
        settled = same + returns;
        fuzz_must(settled <= (size_t)call->n && (size_t)(end - at) >= first + returns * REDIS_RETURN_SIZE &&
                      (same == 0 || (at[0] < REDIS_RETURN && at[0] != WEIR_RENEW)),
                  "the counts are those of keys");
        for (size_t i = 0; i < same; i++)
            memcpy(unpacked + i * REDIS_ITEM_SIZE, at, REDIS_ITEM_SIZE);
        at += first;
        for (size_t i = same; i < settled; i++, at += REDIS_RETURN_SIZE)
            redis_item_write(unpacked + i * REDIS_ITEM_SIZE, REDIS_RETURN, false, plain_double(at),
                             plain_double(at + 8));
    }
    const size_t rest = (size_t)(end - at);
    fuzz_must(rest % REDIS_ITEM_SIZE == 0 && settled + rest / REDIS_ITEM_SIZE <= STORE_ITEMS_MAX, "items are whole");
    memcpy(unpacked + settled * REDIS_ITEM_SIZE, at, rest);
    items_set(call, settled * REDIS_ITEM_SIZE + rest, end);
}

static void call_read(struct call *call, const char *const *words, const size_t *lens, size_t n)
{
    char number[8] = "";
    fuzz_must(n >= 5 && lens[1] == 40 && lens[2] < sizeof number, "it is a call of a script");
    memcpy(number, words[2], lens[2]);
    call->n = atoi(number);
    call->all = memcmp(words[1], redis_scripts[REDIS_TRY_ALL].sha1, 40) == 0;
    if (memcmp(words[1], redis_scripts[REDIS_BUCKET_SINGLE].sha1, 40) == 0) {
        fuzz_must(call->n == 1 && n == 5, "a take or settlement has one key and one argument");
        single_read(call, words, lens);
        return;
    }
    const size_t stamps = call->all ? (size_t)call->n : 1, at = 3 + (size_t)call->n;
    fuzz_must(call->n >= 1 && call->n <= STORE_KEYS && n == at + stamps + 1, "it has its keys, stamps and items");
    for (int i = 0; i < call->n; i++) {
        const size_t stamp = at + (call->all ? (size_t)i : 0);
        size_t stamp_len;
        call->keys[i] = plain_store_key(call->store, words[3 + i], lens[3 + i]);
        fuzz_must(plain_stamp_read((const unsigned char *)words[stamp], lens[stamp], &call->plans[i], &stamp_len) &&
                      stamp_len == lens[stamp],
                  "a stamp is one");
        fuzz_must(call->all || memcmp(words[1], redis_scripts[redis_script_of(&call->plans[i])].sha1, 40) == 0,
                  "the script is the stamp's");
    }
    items_read(call, (const unsigned char *)words[n - 1], lens[n - 1]);
}

static void put_found(struct call *call, int i)
{
    struct mirror found = { .stored = true, .has_former = false, .own = { .plan = call->plans[i] } };
    if (call->keys[i]->foreign)
        call->out[call->len++] = 1;
    else if (mirror_found(&call->keys[i]->mirror, &call->plans[i], call->store->now_us, found.own.state,
                          &found.own.origin)) {
        found.own.has_origin = !call->all && found.own.origin.until_us > 0;
        call->len += mirror_bytes(&found, call->out + call->len);
    } else {
        call->out[call->len++] = 0;
    }
}

static void charge(struct call *call, int i, int64_t permits)
{
    call->keys[i]->charged += permits;
    call->charged += permits;
}

/* Execute one item; true if another item of its key follows. */
static bool item_run(struct call *call, int i, bool *admitted)
{
    const unsigned char *item = call->items;
    const int verb = item[0] % REDIS_MORE;
    const bool more = item[0] >= REDIS_MORE;
    const int64_t cost = plain_number(item + 1, 7), times = plain_number(item + 8, 7);
    struct mirror *mirror = &call->keys[i]->mirror;
    struct weir_decision decision;
    fuzz_must(verb <= REDIS_RETURN && times >= 1, "an item is one");
    fuzz_must(call->items + REDIS_ITEM_SIZE <= call->echo, "and is there");
    call->items += REDIS_ITEM_SIZE;
    if (call->keys[i]->foreign)
        return more;
    if (verb == WEIR_RENEW) {
        mirror_renew(mirror, &call->plans[i], cost, times, call->store->now_us, &decision);
        charge(call, i, decision.allowed ? cost : 0);
        return more;
    }
    if (verb == REDIS_RETURN) {
        mirror_return(mirror, &call->plans[i], cost, times, call->store->now_us, &decision);
        return more;
    }
    if (verb == REDIS_LEASE || (verb == REDIS_LEASE_IF_TAKEN && *admitted)) {
        mirror_take_ahead(mirror, &call->plans[i], 0, cost, (uint32_t)times, call->store->now_us, &decision);
        charge(call, i, decision.ahead);
    }
    for (int64_t k = 0; verb < REDIS_LEASE && k < times; k++) {
        mirror_decide(mirror, &call->plans[i], (enum weir_verb)verb, cost, call->store->now_us, &decision);
        *admitted = verb == WEIR_TAKE && decision.allowed;
        charge(call, i, *admitted ? cost : verb == WEIR_CHARGE ? cost - decision.ahead : 0);
    }
    return more;
}

static void run_all(struct call *call)
{
    struct mirror *mirrors[STORE_KEYS];
    int64_t costs[STORE_KEYS];
    bool written[STORE_KEYS], ours = true;
    for (int i = 0; i < call->n; i++) {
        const unsigned char *item = call->items + i * REDIS_ITEM_SIZE;
        mirrors[i] = &call->keys[i]->mirror;
        costs[i] = plain_number(item + 1, 7);
        ours = ours && !call->keys[i]->foreign;
        fuzz_must(item[0] == WEIR_TAKE && plain_number(item + 8, 7) == 1, "an item is a take");
        put_found(call, i);
    }
    call->items += call->n * REDIS_ITEM_SIZE;
    if (ours && mirror_try_all(mirrors, call->plans, costs, (size_t)call->n, call->store->now_us, written))
        for (int i = 0; i < call->n; i++)
            charge(call, i, costs[i]);
}

static void put_number(unsigned char *out, int64_t number)
{
    for (int i = 0; i < 7; i++)
        out[i] = (unsigned char)(number >> 8 * i);
}

size_t plain_store_call(struct plain_store *store, const char *const *words, const size_t *lens, size_t n,
                        unsigned char answer[STORE_ANSWER_MAX])
{
    static struct call call;
    call = (struct call){ .store = store, .out = answer, .len = REDIS_HEAD_SIZE };
    call_read(&call, words, lens, n);
    if (call.all)
        run_all(&call);
    for (int i = 0; !call.all && i < call.n; i++) {
        bool admitted = false;
        put_found(&call, i);
        while (item_run(&call, i, &admitted))
            ;
    }
    fuzz_must(call.items == call.echo, "all items are those of the keys");
    put_number(answer, store->now_us);
    put_number(answer + 7, call.charged);
    memcpy(answer + call.len, call.echo, REDIS_ECHO_SIZE);
    return call.len + REDIS_ECHO_SIZE;
}
