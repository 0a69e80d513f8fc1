/* all.c - decides for a group in one step: all or nothing.
 *
 * It locks the shards of all keys, in the order of their index. Nothing is charged before every request is known
 * to be admitted: first each request peeks; then all missing keys get entries, or none does; then each request
 * takes, which cannot fail.
 *
 * The stack must stay small, so the requests and the plans of missing keys are not copied: each step makes and reads
 * them again. The steps must agree on the plans. Versions only grow, so the sum of the versions tells whether any plan
 * has changed in between; the group then peeks again. */
#include "backends/memory/parts.h"

#include <stdlib.h>

enum all_room { ALL_HAS_ROOM, ALL_FULL, ALL_DENIED };

struct all {
    const struct weir_backend_request *requests;
    size_t n;
    struct entry *entries[WEIR_MAX_ALL];
    uint8_t full[WEIR_MAX_ALL]; /* enum all_room: on_full decides for this request, or denies it */
    int64_t soonest_us;         /* when the last look for room expected some */
    size_t stale;               /* the first request whose state must grow and found no room; n: none */
    bool added[WEIR_MAX_ALL];
    uint64_t versions; /* the sum over the missing keys when they peeked */
    int64_t *large;    /* room for a state of more than ENTRY_COPIED_WORDS, if any request needed it */
};

/* Return the caller's request, or overflow_request() of one that found no room. */
static struct weir_backend_request all_request(const struct all *all, size_t i)
{
    return all->full[i] ? overflow_request(&all->requests[i]) : all->requests[i];
}

static struct shard *all_shard(struct memory *memory, const struct all *all, size_t i)
{
    return all->full[i] ? table_overflow_shard(&memory->table) : table_shard(&memory->table, all->requests[i].hash);
}

/* Lock, or unlock, each shard once, in the order of their index. Clang's analysis cannot follow locks chosen at
 * run time. */
static void all_lock(struct memory *memory, const struct all *all, void (*turn)(struct lock *lock)) UNCHECKED
{
    struct shard *last = NULL;
    for (;;) {
        struct shard *next = NULL;
        for (size_t i = 0; i < all->n; i++) {
            struct shard *shard = all_shard(memory, all, i);
            if ((!last || shard > last) && (!next || shard < next))
                next = shard;
        }
        if (!next)
            return;
        turn(&next->mutex);
        last = next;
    }
}

static bool all_is_claimed_before(const struct all *all, size_t i)
{
    for (size_t j = 0; j < i; j++)
        if (all->entries[j] && all->entries[j] == all->entries[i])
            return true;
    return false;
}

/* Find and claim a request's entry. Requests that found no room may share one, which an earlier request of the
 * group has claimed then. (A look never finds that entry, so the claim matters only to those who claim it a
 * second time.) */
static struct entry *all_find_one(struct memory *memory, const struct all *all, size_t i) UNCHECKED
{
    for (size_t j = 0; all->full[i] && j < i; j++)
        if (all->full[j] && all->entries[j] && all->requests[j].limit == all->requests[i].limit &&
            all->requests[j].limit_id == all->requests[i].limit_id)
            return all->entries[j];
    const struct weir_backend_request request = all_request(all, i);
    return shard_find(&memory->table, all_shard(memory, all, i), &request);
}

/* Replace a moved entry in all requests that share it. */
static void all_moved(struct all *all, size_t i, struct entry *old)
{
    for (size_t j = 0; j < i; j++)
        if (old && all->entries[j] == old)
            all->entries[j] = all->entries[i];
}

static void all_let_go(struct memory *memory, struct all *all) UNCHECKED
{
    for (size_t i = all->n; i-- > 0;) {
        struct entry *entry = all->entries[i];
        if (!entry || all_is_claimed_before(all, i))
            continue;
        if (!due_has(entry))
            shard_note(&memory->table, all_shard(memory, all, i), entry, entry_fresh_at_us(&memory->table, entry));
        entry_let_go(&memory->table, entry);
    }
}

static enum table_error all_find(struct memory *memory, struct all *all) UNCHECKED
{
    memset(all->entries, 0, sizeof all->entries);
    all->stale = all->n;
    for (size_t i = 0; i < all->n; i++) {
        const struct weir_backend_request request = all_request(all, i);
        struct entry *found = all->entries[i] = all_find_one(memory, all, i);
        if (!found || rule_is_current(entry_rule(&memory->table, found), &request))
            continue;
        enum table_error error = carry_entry(memory, all_shard(memory, all, i), &request, &all->entries[i]);
        if (error == TABLE_NO_ROOM)
            all->stale = all->stale < i ? all->stale : i;
        else if (error)
            return error;
        all_moved(all, i, found);
    }
    return TABLE_OK;
}

/* Return the permits that earlier requests of the group take from the same shared state. */
static int64_t all_shared_before(const struct all *all, size_t i)
{
    int64_t cost = 0;
    for (size_t j = 0; all->full[i] && j < i; j++)
        if (all->full[j] && all->requests[j].limit == all->requests[i].limit)
            cost += all->requests[j].cost;
    return cost;
}

/* Return room for a state: `small`, which has ENTRY_COPIED_WORDS, or memory that lasts as long as the locks. NULL: out
 * of memory. */
static int64_t *all_room(struct all *all, const struct weir_plan *plan, int64_t *small)
{
    if (state_words(plan) <= ENTRY_COPIED_WORDS)
        return small;
    if (!all->large)
        all->large = malloc(STATE_MAX_WORDS * sizeof *all->large);
    return all->large;
}

/* Decide for a missing key, without an entry. */
static enum table_error all_decide_absent(struct all *all, const struct weir_backend_request *request,
                                          const struct weir_plan *plan, struct weir_decision *out)
{
    int64_t small[ENTRY_COPIED_WORDS], *state = all_room(all, plan, small);
    if (!state)
        return TABLE_NO_MEMORY;
    decide_absent(request, plan, state, out);
    return TABLE_OK;
}

/* Peek at an entry that may be stale. */
static enum table_error all_peek_entry(struct memory *memory, struct all *all, size_t i,
                                       const struct weir_backend_request *request, struct weir_decision *out) UNCHECKED
{
    struct entry *entry = all->entries[i];
    if (rule_is_current(entry_rule(&memory->table, entry), request)) {
        peek_entry(memory, request, entry, out);
        return TABLE_OK;
    }
    struct weir_plan plan;
    const uint64_t version = weir_request_plan(request, &plan);
    int64_t small[ENTRY_COPIED_WORDS], *state = all_room(all, &plan, small);
    if (!state)
        return TABLE_NO_MEMORY;
    peek_carried(memory, all_shard(memory, all, i), request, &plan, version, entry, state, out);
    return TABLE_OK;
}

/* Peek for each request. *allowed: all admit. */
static enum table_error all_peek(struct memory *memory, struct all *all, struct weir_decision *out, bool *allowed)
{
    enum table_error error = TABLE_OK;
    *allowed = true;
    all->versions = 0;
    for (size_t i = 0; i < all->n && !error; i++) {
        struct weir_backend_request request = all_request(all, i);
        request.verb = WEIR_PEEK;
        if (memory->on_full == WEIR_FULL_SHARE)
            request.cost += all_shared_before(all, i);
        if (all->entries[i]) {
            error = all_peek_entry(memory, all, i, &request, &out[i]);
        } else {
            struct weir_plan plan;
            all->versions += weir_request_plan(&request, &plan);
            error = all_decide_absent(all, &request, &plan, &out[i]);
        }
        if (all->full[i] == ALL_DENIED && !error)
            deny_full(&request, all->soonest_us, &out[i]);
        else if (all->full[i])
            out[i].source = WEIR_BY_FULL;
        *allowed = *allowed && !error && out[i].allowed; /* out[i] is not written on an error */
    }
    return error;
}

/* Add and fill the entry of a missing key. */
static enum table_error all_add_one(struct memory *memory, struct all *all, size_t i,
                                    const struct weir_backend_request *request, const struct weir_plan *plan,
                                    uint64_t version) UNCHECKED
{
    int64_t copy[ENTRY_COPIED_WORDS];
    const size_t words = state_words(plan);
    struct entry *entry;
    enum table_error error = shard_add(&memory->table, all_shard(memory, all, i), request, plan, version, &entry);
    if (error)
        return error;
    int64_t *state = entry_room(entry, 0, copy, words);
    missing_state(request, plan, state);
    entry_put(entry, 0, state, words);
    all->entries[i] = entry;
    all->added[i] = true;
    return TABLE_OK;
}

/* Remove the entries that the first `n` requests have added. */
static void all_unadd(struct memory *memory, struct all *all, size_t n) UNCHECKED
{
    for (size_t i = 0; i < n; i++) {
        if (!all->added[i])
            continue;
        struct entry *added = all->entries[i];
        shard_remove(&memory->table, all_shard(memory, all, i), added);
        for (size_t k = i; k < n; k++)
            all->entries[k] = all->entries[k] == added ? NULL : all->entries[k];
    }
}

/* Add entries for all missing keys, or for none. What on_full admits without an entry is decided here. On
 * TABLE_NO_ROOM, *short_of is the request that found no room. *changed: a plan has changed since the peek. */
static enum table_error all_add(struct memory *memory, struct all *all, struct weir_decision *out, size_t *short_of,
                                bool *changed) UNCHECKED
{
    uint64_t versions = 0;
    for (size_t i = 0; i < all->n; i++) {
        all->added[i] = false;
        if (all->entries[i])
            continue;
        enum table_error error = TABLE_OK;
        const struct weir_backend_request request = all_request(all, i);
        struct weir_plan plan;
        const uint64_t version = weir_request_plan(&request, &plan);
        versions += version;
        if (all->full[i] && memory->on_full == WEIR_FULL_ALLOW) {
            error = all_decide_absent(all, &request, &plan, &out[i]);
            out[i].source = WEIR_BY_FULL;
            if (request.reservation)
                request.reservation->at_us = 0;
        } else {
            if (all->full[i]) /* an earlier request may have made the shared entry */
                all->entries[i] = all_find_one(memory, all, i);
            if (!all->entries[i])
                error = all_add_one(memory, all, i, &request, &plan, version);
        }
        if (error) {
            all_unadd(memory, all, i);
            *short_of = i;
            return error;
        }
    }
    *changed = versions != all->versions;
    if (*changed)
        all_unadd(memory, all, all->n);
    return TABLE_OK;
}

static void all_decide(struct memory *memory, struct all *all, size_t i, const struct weir_backend_request *request,
                       struct weir_decision *out) UNCHECKED
{
    struct entry *entry = all->entries[i];
    if (decide_entry(memory, all_shard(memory, all, i), request, entry, out))
        return;
    for (size_t j = 0; j < all->n; j++)
        all->entries[j] = all->entries[j] == entry ? NULL : all->entries[j];
}

static void all_take(struct memory *memory, struct all *all, struct weir_decision *out) UNCHECKED
{
    for (size_t i = 0; i < all->n; i++) {
        const struct weir_backend_request request = all_request(all, i);
        const uint8_t source = out[i].source;
        if (all->entries[i]) /* otherwise all_add() has decided it */
            all_decide(memory, all, i, &request, &out[i]);
        out[i].source = source;
    }
}

/* Write the rebase of each state, if one is due: the only change that a denied request makes. Each request asks
 * for more than its limit can ever admit, so that it is written also where the limit alone would have admitted. */
static void all_rebase(struct memory *memory, struct all *all) UNCHECKED
{
    for (size_t i = 0; i < all->n; i++) {
        struct weir_backend_request request = all_request(all, i);
        struct weir_decision never;
        if (!all->entries[i])
            continue;
        request.cost = entry_rule(&memory->table, all->entries[i])->plan.size + 1;
        all_decide(memory, all, i, &request, &never);
    }
}

/* Sweep last: entries may be gone afterwards. */
static void all_sweep(struct memory *memory, const struct all *all) UNCHECKED
{
    for (size_t i = 0; i < all->n; i++)
        memory_sweep(memory, all_shard(memory, all, i), all->requests[i].now_us, SWEEP_STEPS);
}

static enum table_error all_claimed(struct memory *memory, struct all *all, struct weir_decision *out, size_t *short_of)
{
    for (;;) {
        bool allowed, changed;
        enum table_error error = all_peek(memory, all, out, &allowed);
        if (!error && !allowed)
            all_rebase(memory, all);
        if (error || !allowed)
            return error;
        *short_of = all->stale;
        if (all->stale < all->n)
            return TABLE_NO_ROOM;
        error = all_add(memory, all, out, short_of, &changed);
        if (!error && !changed)
            all_take(memory, all, out);
        if (error || !changed)
            return error;
    }
}

static enum table_error all_locked(struct memory *memory, struct all *all, struct weir_decision *out, size_t *short_of)
{
    enum table_error error = all_find(memory, all);
    if (!error)
        error = all_claimed(memory, all, out, short_of);
    all_let_go(memory, all);
    if (!error)
        all_sweep(memory, all);
    return error;
}

/* Count the decisions by on_full that mattered: all of them in an admission, the denying ones in a denial. */
static void all_count_full(struct memory *memory, const struct all *all, const struct weir_decision *out)
{
    uint64_t full = 0, denied = 0, full_denied = 0;
    for (size_t i = 0; i < all->n; i++) {
        full += all->full[i] != ALL_HAS_ROOM;
        denied += !out[i].allowed;
        full_denied += all->full[i] && !out[i].allowed;
    }
    atomic_fetch_add_explicit(&memory->full, denied > 0 ? full_denied : full, memory_order_relaxed);
}

/* Make room for the request at `short_of`, and for all keys without an entry: one at a time would need a try for each.
 * False: there is no more room. */
static bool all_make_room(struct memory *memory, struct all *all, size_t short_of)
{
    int64_t keys = 0;
    for (size_t i = 0; i < all->n; i++)
        keys += !all->full[i] && !all->entries[i];
    return table_make_room(&memory->table, all->requests[short_of].now_us, keys, true, &all->soonest_us);
}

int memory_decide_all(struct memory *memory, const struct weir_backend_request *requests, size_t n,
                      struct weir_decision *out)
{
    struct all all = { .requests = requests, .n = n, .soonest_us = INT64_MAX };
    int tries = ROOM_TRIES * (int)n;
    for (;;) {
        size_t short_of = 0;
        all_lock(memory, &all, lock_take);
        enum table_error error = all_locked(memory, &all, out, &short_of);
        all_lock(memory, &all, lock_give);
        free(all.large);
        all.large = NULL;
        if (error != TABLE_NO_ROOM) {
            if (!error)
                all_count_full(memory, &all, out);
            return weir_error_of(error);
        }
        if (all.full[short_of] == ALL_HAS_ROOM && --tries > 0 && all_make_room(memory, &all, short_of))
            continue;
        const bool is_denied = memory->on_full == WEIR_FULL_DENY || all.full[short_of] != ALL_HAS_ROOM;
        all.full[short_of] = is_denied ? ALL_DENIED : ALL_FULL;
    }
}
