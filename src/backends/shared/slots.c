/* slots.c - requests in flight: the slots of each key. */
#include "backends/shared/slots.h"

#include "core/ground/arith.h"
#include "core/ground/hash.h"

#include <stdlib.h>
#include <string.h>

#define SWEEP_KEYS 2        /* looked at by each request, */
#define SWEEP_KEYS_FULL 512 /* and by one that finds no room */
#define WALK_MOST 64        /* slots that a denial looks at to say when enough of them end */

/* What a request asks. */
struct slots_ask {
    const struct weir_backend_request *request;
    int64_t size, hold_us, now_us;
    bool is_shared; /* of the key that all keys of the limit share when they find no room */
};

enum slots_answer { SLOTS_DECIDED, SLOTS_NO_ROOM };

/* ---- The area ---- */

/* Return how many heads of chains there are for so many: a power of two. */
static uint32_t slots_heads(uint32_t room)
{
    uint32_t heads = 16;
    while (heads < room && heads < UINT32_C(1) << 31)
        heads *= 2;
    return heads;
}

static size_t slots_rounded(size_t bytes)
{
    return (bytes + 63) & ~(size_t)63;
}

static size_t slots_tables_at(void)
{
    return slots_rounded(sizeof(struct slots_head));
}

static size_t slots_keys_at(uint32_t keys, uint32_t slots)
{
    return slots_tables_at() + slots_rounded(((size_t)slots_heads(keys) + slots_heads(slots)) * sizeof(uint32_t));
}

static size_t slots_slots_at(uint32_t keys, uint32_t slots)
{
    return slots_keys_at(keys, slots) + slots_rounded(((size_t)keys + 1) * sizeof(struct slots_key));
}

size_t slots_bytes(uint32_t keys, uint32_t slots)
{
    return slots_slots_at(keys, slots) + slots_rounded(((size_t)slots + 1) * sizeof(struct slots_slot));
}

void slots_view(struct slots *slots, void *area, uint32_t keys, uint32_t slot_room, bool keeps_keys)
{
    unsigned char *at = area;
    slots->head = (struct slots_head *)area;
    slots->key_mask = slots_heads(keys) - 1;
    slots->slot_mask = slots_heads(slot_room) - 1;
    slots->keys_by_hash = (uint32_t *)(void *)(at + slots_tables_at());
    slots->slots_by_id = slots->keys_by_hash + slots->key_mask + 1;
    slots->keys = (struct slots_key *)(void *)(at + slots_keys_at(keys, slot_room));
    slots->slots = (struct slots_slot *)(void *)(at + slots_slots_at(keys, slot_room));
    slots->keeps_keys = keeps_keys;
    slots->is_broken = false;
    slots->keys_most = slots->bytes_most = INT64_MAX;
    slots->key_room = slots->head->key_room = keys;
    slots->slot_room = slots->head->slot_room = slot_room;
}

/* ---- Finding ---- */

/* Return an element. The area may be damaged: element 0 takes the place of one that is not there. */
static struct slots_slot *slot_at(const struct slots *slots, uint32_t at)
{
    return &slots->slots[at <= slots->slot_room ? at : 0];
}

static struct slots_key *key_at(const struct slots *slots, uint32_t at)
{
    return &slots->keys[at <= slots->key_room ? at : 0];
}

static uint64_t slot_id(const struct slots_slot *slot)
{
    return atomic_load_explicit(&slot->id, memory_order_relaxed);
}

static int64_t slot_end_us(const struct slots_slot *slot)
{
    return atomic_load_explicit(&slot->end_us, memory_order_relaxed);
}

static int64_t slot_cost(const struct slots_slot *slot)
{
    return atomic_load_explicit(&slot->cost, memory_order_relaxed);
}

/* Ids of a limiter are consecutive, so the lower bits spread them best. The lowest says who gave it. */
static uint32_t *slots_id_head(const struct slots *slots, uint64_t id)
{
    return &slots->slots_by_id[(uint32_t)(id >> 1 ^ id >> 33) & slots->slot_mask];
}

static uint32_t *slots_key_head(const struct slots *slots, const uint64_t hash[2])
{
    return &slots->keys_by_hash[(uint32_t)hash[1] & slots->key_mask];
}

/* Write the two hashes that identify the key of a request. The first one is of the limit and the key by a secret. */
static void slots_hashes(const struct slots_ask *ask, uint64_t hash[2])
{
    const struct weir_backend_request *request = ask->request;
    const struct hash_secret secret = { request->hash, ~request->hash };
    static const struct hash_secret of_shared = { 1, 2 };
    if (ask->is_shared) {
        const char *name = weir_limit_name(request->limit);
        hash[0] = siphash13(&of_shared, name, strlen(name)) ^ request->limit_id;
        hash[1] = ~hash[0];
        return;
    }
    hash[0] = request->hash;
    hash[1] = siphash13(&secret, request->key.data, request->key.len) | 1;
}

static uint32_t slots_find_key(const struct slots *slots, const uint64_t hash[2])
{
    uint32_t at = *slots_key_head(slots, hash);
    for (uint32_t i = 0; at && i <= slots->key_room; i++, at = key_at(slots, at)->next)
        if (key_at(slots, at)->hash[0] == hash[0] && key_at(slots, at)->hash[1] == hash[1])
            return at <= slots->key_room ? at : 0;
    return 0;
}

static uint32_t slots_find(const struct slots *slots, uint64_t id)
{
    uint32_t at = *slots_id_head(slots, id);
    for (uint32_t i = 0; at && i <= slots->slot_room; i++, at = slot_at(slots, at)->same)
        if (slot_id(slot_at(slots, at)) == id)
            return at <= slots->slot_room ? at : 0;
    return 0;
}

/* ---- Lists ---- */

/* Put a slot into its key's list. Most end last. */
static void slots_link(struct slots *slots, uint32_t at)
{
    struct slots_slot *slot = slot_at(slots, at);
    struct slots_key *key = key_at(slots, slot->key);
    uint32_t before = key->last;
    for (uint32_t i = 0; before && slot_end_us(slot_at(slots, before)) > slot_end_us(slot); i++) {
        slots->is_broken = slots->is_broken || i > slots->slot_room;
        before = slots->is_broken ? 0 : slot_at(slots, before)->before;
    }
    slot->before = before;
    slot->next = before ? slot_at(slots, before)->next : key->first;
    *(before ? &slot_at(slots, before)->next : &key->first) = at;
    *(slot->next ? &slot_at(slots, slot->next)->before : &key->last) = at;
}

static void slots_unlink(struct slots *slots, uint32_t at)
{
    const struct slots_slot *slot = slot_at(slots, at);
    struct slots_key *key = key_at(slots, slot->key);
    *(slot->before ? &slot_at(slots, slot->before)->next : &key->first) = slot->next;
    *(slot->next ? &slot_at(slots, slot->next)->before : &key->last) = slot->before;
}

static void slots_free_key(struct slots *slots, uint32_t at)
{
    struct slots_key *key = key_at(slots, at);
    uint32_t *link = slots_key_head(slots, key->hash);
    for (uint32_t i = 0; *link != at && *link && i <= slots->key_room; i++)
        link = &key_at(slots, *link)->next;
    slots->is_broken = slots->is_broken || *link != at;
    *link = *link == at ? key->next : 0;
    if (slots->keeps_keys && key->far) {
        free((void *)(uintptr_t)key->far);
        slots->head->far_bytes -= key->len;
    }
    key->far = 0;
    key->hash[0] = key->hash[1] = 0;
    key->next = slots->head->keys_free;
    slots->head->keys_free = at;
    slots->head->keys--;
}

static void slots_remove(struct slots *slots, uint32_t at)
{
    struct slots_slot *slot = slot_at(slots, at);
    struct slots_key *key = key_at(slots, slot->key);
    uint32_t *link = slots_id_head(slots, slot_id(slot));
    for (uint32_t i = 0; *link != at && *link && i <= slots->slot_room; i++)
        link = &slot_at(slots, *link)->same;
    slots->is_broken = slots->is_broken || *link != at;
    *link = *link == at ? slot->same : 0;
    slots_unlink(slots, at);
    atomic_store_explicit(&slot->id, 0, memory_order_release);
    key->sum -= slot_cost(slot);
    key->count--;
    slot->next = slots->head->slots_free;
    slots->head->slots_free = at;
    slots->head->slots--;
}

/* Drop the slots of a key that are over, and the key if it has none left. False: it is gone. */
static bool slots_drop_ended(struct slots *slots, uint32_t at, int64_t now_us)
{
    struct slots_key *key = key_at(slots, at);
    while (key->first && !slots->is_broken && slot_end_us(slot_at(slots, key->first)) <= now_us)
        slots_remove(slots, key->first);
    if (key->count > 0)
        return true;
    slots_free_key(slots, at);
    return false;
}

/* Return the index of a new element; 0: there is no room. */
static uint32_t slots_take_key(struct slots *slots)
{
    struct slots_head *head = slots->head;
    uint32_t at = head->keys_free;
    if (at)
        head->keys_free = key_at(slots, at)->next;
    else if (head->keys_made < slots->key_room)
        at = ++head->keys_made;
    return at;
}

static uint32_t slots_take_slot(struct slots *slots)
{
    struct slots_head *head = slots->head;
    uint32_t at = head->slots_free;
    if (at)
        head->slots_free = slot_at(slots, at)->next;
    else if (head->slots_made < slots->slot_room)
        at = ++head->slots_made;
    return at;
}

int64_t slots_used_bytes(const struct slots *slots)
{
    const struct slots_head *head = slots->head;
    return head->keys * (int64_t)sizeof(struct slots_key) + head->slots * (int64_t)sizeof(struct slots_slot) +
           head->far_bytes;
}

static bool slots_has_slot(const struct slots *slots)
{
    return slots_used_bytes(slots) + (int64_t)sizeof(struct slots_slot) <= slots->bytes_most &&
           (slots->head->slots_free || slots->head->slots_made < slots->slot_room);
}

/* True if another key may be added. The one that keys share has room if there is any at all. */
static bool slots_has_key(const struct slots *slots, const struct slots_ask *ask)
{
    const int64_t bytes = (int64_t)(sizeof(struct slots_key) + sizeof(struct slots_slot) + ask->request->key.len);
    return slots->head->keys < (ask->is_shared ? INT64_MAX : slots->keys_most) &&
           slots_used_bytes(slots) + bytes <= slots->bytes_most;
}

static uint32_t slots_add_key(struct slots *slots, const struct slots_ask *ask, const uint64_t hash[2])
{
    const struct weir_backend_request *request = ask->request;
    const size_t len = ask->is_shared ? 0 : request->key.len, shown = len < SLOTS_KEY_SIZE ? len : SLOTS_KEY_SIZE;
    void *far = slots->keeps_keys && len > SLOTS_KEY_SIZE ? malloc(len) : NULL;
    if (slots->keeps_keys && len > SLOTS_KEY_SIZE && !far)
        return 0;
    const uint32_t at = slots_has_key(slots, ask) ? slots_take_key(slots) : 0;
    if (!at) {
        free(far);
        return 0;
    }
    struct slots_key *key = key_at(slots, at);
    if (far) {
        memcpy(far, request->key.data, len);
        slots->head->far_bytes += (int64_t)len;
    }
    key->far = (uint64_t)(uintptr_t)far;
    key->owner = slots->keeps_keys ? (uint64_t)(uintptr_t)request->limit : 0;
    key->sum = 0;
    key->count = key->first = key->last = 0;
    key->len = (uint32_t)len;
    key->is_shared = ask->is_shared;
    const char *name = weir_limit_name(request->limit);
    const size_t name_len = strnlen(name, SLOTS_NAME_SIZE - 1);
    memcpy(key->name, name, name_len);
    key->name[name_len] = '\0';
    memcpy(key->bytes, request->key.data, shown);
    uint32_t *link = slots_key_head(slots, hash);
    key->next = *link;
    key->hash[0] = hash[0];
    atomic_signal_fence(memory_order_release); /* a process that dies leaves its stores in this order */
    key->hash[1] = hash[1];
    *link = at;
    slots->head->keys++;
    return at;
}

static void slots_add(struct slots *slots, uint32_t owner, const struct slots_ask *ask, int64_t end_us)
{
    const uint32_t at = slots_take_slot(slots);
    struct slots_slot *slot = slot_at(slots, at);
    struct slots_key *key = key_at(slots, owner);
    slot->key = owner;
    atomic_store_explicit(&slot->end_us, end_us, memory_order_relaxed);
    atomic_store_explicit(&slot->cost, ask->request->cost, memory_order_relaxed);
    uint32_t *link = slots_id_head(slots, ask->request->slot);
    slot->same = *link;
    slots_link(slots, at);
    key->sum += ask->request->cost;
    key->count++;
    atomic_store_explicit(&slot->id, ask->request->slot, memory_order_release);
    *link = at;
    slots->head->slots++;
}

/* ---- Deciding ---- */

static struct slots_ask slots_ask(const struct weir_backend_request *request)
{
    struct weir_plan plan;
    weir_request_plan(request, &plan);
    return (struct slots_ask){
        .request = request,
        .size = plan.size,
        .hold_us = max_of(1, plan.period_us), /* another plan: the policy has just changed */
        .now_us = request->now_us,
    };
}

/* Fill *out from what a key has in use; `at` may be 0. */
static void slots_tell(const struct slots *slots, uint32_t at, const struct slots_ask *ask, bool allowed,
                       struct weir_decision *out)
{
    const struct slots_key *key = at ? key_at(slots, at) : NULL;
    const int64_t sum = key ? key->sum : 0, count = key ? key->count : 0;
    *out = (struct weir_decision){
        .allowed = allowed,
        .limit = ask->size,
        .remaining = count < WEIR_MAX_SLOTS ? max_of(0, ask->size - sum) : 0,
        .reset_after_us = key ? slot_end_us(slot_at(slots, key->last)) - ask->now_us : 0,
    };
    if (allowed)
        return;
    if (ask->request->cost > ask->size || !key) {
        out->retry_after_us = WEIR_NEVER;
        return;
    }
    const int64_t lacks = sum + ask->request->cost - ask->size;
    uint32_t slot = key->first;
    int64_t freed = slot_cost(slot_at(slots, slot));
    for (int i = 1; freed < lacks && i < WALK_MOST; i++) {
        slot = slot_at(slots, slot)->next;
        freed += slot_cost(slot_at(slots, slot));
    }
    out->retry_after_us = slot_end_us(slot_at(slots, freed < lacks ? key->last : slot)) - ask->now_us;
}

static bool slots_fits(const struct slots *slots, uint32_t at, const struct slots_ask *ask)
{
    const int64_t sum = at ? key_at(slots, at)->sum : 0;
    return ask->request->cost <= ask->size && sum <= ask->size - ask->request->cost &&
           (!at || key_at(slots, at)->count < WEIR_MAX_SLOTS);
}

static int64_t slots_end_us(const struct slots_ask *ask)
{
    const bool brings = ask->request->verb == WEIR_CHARGE && ask->request->ahead > 0;
    return min_of(WEIR_MAX_TIME_US, ask->now_us + (brings ? ask->request->ahead : ask->hold_us));
}

/* Let a slot that is there have another end and cost. */
static void slots_move(struct slots *slots, uint32_t at, int64_t end_us, int64_t cost)
{
    struct slots_slot *slot = slot_at(slots, at);
    slots_unlink(slots, at);
    atomic_store_explicit(&slot->end_us, end_us, memory_order_relaxed);
    key_at(slots, slot->key)->sum += cost - slot_cost(slot);
    atomic_store_explicit(&slot->cost, cost, memory_order_relaxed);
    slots_link(slots, at);
}

static void slots_noted(const struct weir_backend_request *request)
{
    if ((request->verb == WEIR_TAKE || request->verb == WEIR_RENEW) && request->reservation)
        request->reservation->id = request->slot;
}

/* Decide what adds a slot: a take, a charge, or a renewal of a slot that is not there. */
static enum slots_answer slots_try(struct slots *slots, uint32_t at, const uint64_t hash[2],
                                   const struct slots_ask *ask, struct weir_decision *out)
{
    const bool charges = ask->request->verb == WEIR_CHARGE;
    if (!charges && !slots_fits(slots, at, ask)) {
        slots_tell(slots, at, ask, false, out);
        return SLOTS_DECIDED;
    }
    if (charges && at &&
        (key_at(slots, at)->count >= WEIR_MAX_SLOTS || key_at(slots, at)->sum > EXACT_MAX - ask->request->cost)) {
        slots_tell(slots, at, ask, true, out);
        out->ahead = ask->request->cost;
        return SLOTS_DECIDED;
    }
    if (!slots_has_slot(slots))
        return SLOTS_NO_ROOM;
    if (!at)
        at = slots_add_key(slots, ask, hash);
    if (!at)
        return SLOTS_NO_ROOM;
    slots_add(slots, at, ask, slots_end_us(ask));
    slots_tell(slots, at, ask, true, out);
    slots_noted(ask->request);
    return SLOTS_DECIDED;
}

/* Give a slot back, wholly or in part. */
static void slots_release(struct slots *slots, uint32_t found, int64_t left)
{
    const uint32_t key = slot_at(slots, found)->key;
    if (left > 0) {
        slots_move(slots, found, slot_end_us(slot_at(slots, found)), min_of(slot_cost(slot_at(slots, found)), left));
        return;
    }
    slots_remove(slots, found);
    if (key_at(slots, key)->count == 0)
        slots_free_key(slots, key);
}

static void slots_reset(struct slots *slots, uint32_t at)
{
    while (key_at(slots, at)->first && !slots->is_broken)
        slots_remove(slots, key_at(slots, at)->first);
    slots_free_key(slots, at);
}

static enum slots_answer slots_decide(struct slots *slots, const struct slots_ask *ask, struct weir_decision *out)
{
    const struct weir_backend_request *request = ask->request;
    enum slots_answer answer = SLOTS_DECIDED;
    uint64_t hash[2];
    slots->head->is_dirty = 1;
    atomic_signal_fence(memory_order_seq_cst);
    slots_hashes(ask, hash);
    uint32_t at = slots_find_key(slots, hash);
    if (at && !slots_drop_ended(slots, at, ask->now_us))
        at = 0;
    /* A slot is found by its id alone. It may lie under the key that those without room share. */
    uint32_t found = request->verb == WEIR_PEEK || request->verb == WEIR_RESET ? 0 : slots_find(slots, request->slot);
    if (found && slot_at(slots, found)->key != at && !key_at(slots, slot_at(slots, found)->key)->is_shared)
        found = 0;
    if (found && slot_end_us(slot_at(slots, found)) <= ask->now_us) { /* only a shared key's: the own one's are gone */
        slots_drop_ended(slots, slot_at(slots, found)->key, ask->now_us);
        found = 0;
    }
    if (request->verb == WEIR_PEEK) {
        slots_tell(slots, at, ask, slots_fits(slots, at, ask), out);
    } else if (request->verb == WEIR_RESET) {
        if (at)
            slots_reset(slots, at);
        slots_tell(slots, 0, ask, true, out);
    } else if (request->verb == WEIR_REFUND) {
        if (found && request->cold_left > 0 && slot_end_us(slot_at(slots, found)) > request->cold_left)
            found = 0; /* own_ops.slots_list() */
        const bool is_last = found && key_at(slots, slot_at(slots, found)->key)->count == 1 && request->ahead == 0;
        if (found)
            slots_release(slots, found, request->ahead);
        slots_tell(slots, found && is_last ? 0 : at, ask, true, out);
        out->ahead = found && request->cold_since_us >= 0; /* a fallback says that the slot was here */
    } else if (found) {
        at = slot_at(slots, found)->key;
        const int64_t end_us = slots_end_us(ask);
        slots_move(slots, found,
                   request->verb == WEIR_CHARGE ? max_of(end_us, slot_end_us(slot_at(slots, found))) : end_us,
                   request->verb == WEIR_RENEW ? slot_cost(slot_at(slots, found)) : request->cost);
        slots_tell(slots, at, ask, true, out);
        slots_noted(request);
    } else {
        answer = slots_try(slots, at, hash, ask, out);
    }
    atomic_signal_fence(memory_order_seq_cst);
    slots->head->is_dirty = 0;
    return answer;
}

static bool slots_has(struct slots *slots, const struct slots_ask *ask)
{
    uint64_t hash[2];
    slots_hashes(ask, hash);
    const uint32_t at = slots_find_key(slots, hash);
    return at && slot_end_us(slot_at(slots, key_at(slots, at)->last)) > ask->now_us;
}

static void slots_tell_full(const struct slots_ask *ask, bool allowed, struct weir_decision *out)
{
    *out = (struct weir_decision){
        .allowed = allowed && ask->request->cost <= ask->size,
        .source = WEIR_BY_FULL,
        .limit = ask->size,
        .remaining = allowed ? ask->size : 0,
        .retry_after_us = ask->request->cost > ask->size ? WEIR_NEVER
                          : allowed                      ? 0
                                                         : ask->hold_us,
        .reset_after_us = allowed ? 0 : ask->hold_us,
    };
}

/* ---- Room ---- */

/* Decide as on_full says. */
static void slots_full(struct slots *slots, struct slots_ask ask, enum weir_on_full on_full, struct weir_decision *out)
{
    if (on_full == WEIR_FULL_SHARE) {
        ask.is_shared = true;
        if (slots_decide(slots, &ask, out) != SLOTS_DECIDED)
            slots_tell_full(&ask, false, out);
    } else {
        slots_tell_full(&ask, on_full == WEIR_FULL_ALLOW, out);
    }
    if (ask.request->verb == WEIR_CHARGE && !out->allowed) {
        out->allowed = true;
        out->retry_after_us = 0;
        out->ahead = ask.request->cost;
    }
    out->source = WEIR_BY_FULL;
}

/* True if a key without slots of its own goes on with those under its limit's shared key: until these are gone, the
 * key may have some there. */
static bool slots_shares(struct slots *slots, const struct slots_ask *ask)
{
    struct slots_ask shared = *ask;
    shared.is_shared = true;
    return ask->request->verb != WEIR_REFUND && ask->request->verb != WEIR_RESET && slots_has(slots, &shared) &&
           !slots_has(slots, ask);
}

/* A peek tells what a take would find. */
static bool slots_peek_finds_room(struct slots *slots, const struct slots_ask *ask)
{
    return ask->request->verb != WEIR_PEEK || slots_has(slots, ask) || slots_has_key(slots, ask);
}

void slots_serve(struct slots *slots, const struct weir_backend_request *request, enum weir_on_full on_full,
                 struct weir_decision *out)
{
    const struct slots_ask ask = slots_ask(request);
    const bool shares = on_full == WEIR_FULL_SHARE && slots_shares(slots, &ask);
    slots_sweep(slots, ask.now_us, SWEEP_KEYS);
    for (int tries = 0; tries < 2 && !shares; tries++) {
        if (slots_peek_finds_room(slots, &ask) && slots_decide(slots, &ask, out) == SLOTS_DECIDED)
            return;
        slots_sweep(slots, ask.now_us, SWEEP_KEYS_FULL);
    }
    slots_full(slots, ask, on_full, out);
}

int64_t slots_look(struct slots *slots, const struct weir_backend_request *request, int64_t now_us, int64_t *used,
                   int64_t *first_us, int64_t *last_us)
{
    const struct slots_ask ask = { .request = request, .now_us = now_us };
    uint64_t hash[2];
    slots_hashes(&ask, hash);
    const uint32_t at = slots_find_key(slots, hash);
    if (!at || !slots_drop_ended(slots, at, now_us))
        return 0;
    slots_tell_ends(slots, key_at(slots, at), now_us, used, first_us, last_us);
    return key_at(slots, at)->count;
}

void slots_tell_ends(const struct slots *slots, const struct slots_key *key, int64_t now_us, int64_t *used,
                     int64_t *first_us, int64_t *last_us)
{
    *used = key->sum;
    *first_us = slot_end_us(slot_at(slots, key->first)) - now_us;
    *last_us = slot_end_us(slot_at(slots, key->last)) - now_us;
}

void slots_forget(struct slots *slots, const struct weir_backend_request *request)
{
    const struct slots_ask ask = { .request = request };
    uint64_t hash[2];
    slots_hashes(&ask, hash);
    const uint32_t at = slots_find_key(slots, hash);
    if (at)
        slots_reset(slots, at);
}

/* ---- All of them ---- */

void slots_sweep(struct slots *slots, int64_t now_us, uint32_t most)
{
    struct slots_head *head = slots->head;
    head->is_dirty = 1;
    atomic_signal_fence(memory_order_seq_cst);
    for (uint32_t i = 0; i < most && i < head->keys_made; i++) {
        head->hand = head->hand % head->keys_made + 1;
        if (head->hand <= slots->key_room && key_at(slots, head->hand)->hash[1] != 0)
            slots_drop_ended(slots, head->hand, now_us);
    }
    atomic_signal_fence(memory_order_seq_cst);
    head->is_dirty = 0;
}

void slots_each(struct slots *slots, uint32_t *place, slots_visit *visit, void *user)
{
    for (uint32_t at = *place + 1; at <= slots->head->slots_made && at <= slots->slot_room; at++) {
        const struct slots_slot *slot = slot_at(slots, at);
        if (slot_id(slot) != 0 && !visit(user, key_at(slots, slot->key), slot))
            return;
        *place = at;
    }
}

void slots_each_key(const struct slots *slots, uint32_t *place, slots_key_visit *visit, void *user)
{
    for (uint32_t at = *place + 1; at <= slots->head->keys_made && at <= slots->key_room; at++) {
        if (key_at(slots, at)->hash[1] != 0 && !visit(user, slots, key_at(slots, at)))
            return;
        *place = at;
    }
}

struct weir_key slots_key_text(const struct slots_key *key)
{
    if (key->far)
        return weir_key((const void *)(uintptr_t)key->far, key->len);
    return weir_key(key->bytes, key->len < SLOTS_KEY_SIZE ? key->len : SLOTS_KEY_SIZE);
}

void slots_drop(struct slots *slots)
{
    for (uint32_t at = 1; at <= slots->head->keys_made && at <= slots->key_room; at++)
        if (key_at(slots, at)->hash[1] != 0)
            slots_reset(slots, at);
}

/* Merge two lists by end. Return the first of both. */
static uint32_t slots_merge(struct slots *slots, uint32_t a, uint32_t b)
{
    uint32_t first = 0, *link = &first;
    while (a && b) {
        uint32_t *least = slot_end_us(slot_at(slots, a)) <= slot_end_us(slot_at(slots, b)) ? &a : &b;
        *link = *least;
        link = &slot_at(slots, *link)->next;
        *least = *link;
    }
    *link = a ? a : b;
    return first;
}

/* Order the list of a key by end, and write the links back. */
static void slots_sort(struct slots *slots, struct slots_key *key)
{
    uint32_t lists[33] = { 0 }, at = key->first, sorted = 0; /* lists[i] has 2^i slots, or none */
    while (at) {
        uint32_t list = at, i = 0;
        at = slot_at(slots, at)->next;
        slot_at(slots, list)->next = 0;
        for (; lists[i]; i++) {
            list = slots_merge(slots, lists[i], list);
            lists[i] = 0;
        }
        lists[i] = list;
    }
    for (uint32_t i = 0; i < 33; i++)
        sorted = slots_merge(slots, lists[i], sorted);
    key->first = sorted;
    key->last = 0;
    for (at = sorted; at; at = slot_at(slots, at)->next) {
        slot_at(slots, at)->before = key->last;
        key->last = at;
    }
}

void slots_repair(struct slots *slots)
{
    struct slots_head *head = slots->head;
    memset(slots->keys_by_hash, 0, (slots->key_mask + (size_t)1) * sizeof(uint32_t));
    memset(slots->slots_by_id, 0, (slots->slot_mask + (size_t)1) * sizeof(uint32_t));
    head->keys_free = head->slots_free = head->hand = 0;
    head->keys = head->slots = 0;
    head->keys_made = (uint32_t)min_of(head->keys_made, slots->key_room);
    head->slots_made = (uint32_t)min_of(head->slots_made, slots->slot_room);
    for (uint32_t at = 1; at <= head->keys_made; at++) {
        struct slots_key *key = key_at(slots, at);
        key->sum = 0;
        key->count = key->first = key->last = 0;
    }
    for (uint32_t at = 1; at <= head->slots_made; at++) {
        struct slots_slot *slot = slot_at(slots, at);
        const bool counts = slot_id(slot) != 0 && slot->key >= 1 && slot->key <= head->keys_made &&
                            key_at(slots, slot->key)->hash[1] != 0 && slot_cost(slot) > 0 &&
                            key_at(slots, slot->key)->sum <= EXACT_MAX - min_of(EXACT_MAX, slot_cost(slot));
        if (!counts) {
            atomic_store_explicit(&slot->id, 0, memory_order_relaxed);
            slot->next = head->slots_free;
            head->slots_free = at;
            continue;
        }
        uint32_t *link = slots_id_head(slots, slot_id(slot));
        slot->same = *link;
        *link = at;
        slot->before = 0;
        slot->next = key_at(slots, slot->key)->first;
        key_at(slots, slot->key)->first = at;
        key_at(slots, slot->key)->sum += slot_cost(slot);
        key_at(slots, slot->key)->count++;
        head->slots++;
    }
    for (uint32_t at = 1; at <= head->keys_made; at++) {
        struct slots_key *key = key_at(slots, at);
        if (key->count == 0) {
            key->hash[0] = key->hash[1] = 0;
            key->next = head->keys_free;
            head->keys_free = at;
            continue;
        }
        uint32_t *link = slots_key_head(slots, key->hash);
        key->next = *link;
        *link = at;
        head->keys++;
        slots_sort(slots, key);
    }
    slots->is_broken = false;
    head->is_dirty = 0;
}
