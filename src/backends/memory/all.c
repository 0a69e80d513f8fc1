/* all.c - decides for a group in one step: all or nothing.
 *
 * It locks the shards of all keys, in the order of their index. Nothing is charged before every request is known
 * to be admitted: first each request peeks; then all missing keys get entries, or none does; then each request
 * takes, which cannot fail. */
#include "backends/memory/decide.h"

struct all {
    size_t n;
    struct weir_backend_request
        requests[WEIR_MAX_ALL];           /* the caller's, or overflow_request() of one that found no room */
    struct weir_plan plans[WEIR_MAX_ALL]; /* for missing keys; entries have their own */
    uint64_t versions[WEIR_MAX_ALL];
    bool full[WEIR_MAX_ALL];            /* this request found no room */
    struct shard *shards[WEIR_MAX_ALL]; /* of each request */
    struct entry *entries[WEIR_MAX_ALL];
    bool added[WEIR_MAX_ALL];
};

/* Lock, or unlock, each shard once, in the order of their index. Clang's analysis cannot follow locks chosen at
 * run time. */
static void all_lock(struct all *all, void (*turn)(struct lock *lock)) UNCHECKED
{
    struct shard *last = NULL;
    for (;;) {
        struct shard *next = NULL;
        for (size_t i = 0; i < all->n; i++)
            if ((!last || all->shards[i] > last) && (!next || all->shards[i] < next))
                next = all->shards[i];
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
    return shard_find(&memory->table, all->shards[i], &all->requests[i]);
}

/* Replace a moved entry in all requests that share it. */
static void all_moved(struct all *all, size_t i, struct entry *old)
{
    for (size_t j = 0; j < i; j++)
        if (old && all->entries[j] == old)
            all->entries[j] = all->entries[i];
}

static void all_let_go(struct all *all)
{
    for (size_t i = all->n; i-- > 0;)
        if (all->entries[i] && !all_is_claimed_before(all, i))
            entry_let_go(all->entries[i]);
}

static enum table_error all_find(struct memory *memory, struct all *all) UNCHECKED
{
    memset(all->entries, 0, sizeof all->entries);
    for (size_t i = 0; i < all->n; i++) {
        const struct weir_backend_request *request = &all->requests[i];
        struct entry *found = all->entries[i] = all_find_one(memory, all, i);
        if (!found || rule_is_current(entry_rule(&memory->table, found), request))
            continue;
        enum table_error error = carry_entry(memory, all->shards[i], request, &all->entries[i]);
        if (error)
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

/* Peek for each request; true if all admit. */
static bool all_peek(struct memory *memory, const struct all *all, struct weir_decision *out)
{
    bool allowed = true;
    for (size_t i = 0; i < all->n; i++) {
        struct weir_backend_request request = all->requests[i];
        int64_t state[STATE_MAX_WORDS];
        request.verb = WEIR_PEEK;
        if (memory->on_full == WEIR_FULL_SHARE)
            request.cost += all_shared_before(all, i);
        if (all->entries[i])
            peek_entry(memory, &request, all->entries[i], &out[i]);
        else
            decide_absent(&request, &all->plans[i], state, &out[i]);
        if (all->full[i])
            out[i].source = WEIR_BY_FULL;
        allowed = allowed && out[i].allowed;
    }
    return allowed;
}

/* Add entries for all missing keys, or for none. On TABLE_NO_ROOM, *short_of is the request that found no room. */
static enum table_error all_add(struct memory *memory, struct all *all, size_t *short_of) UNCHECKED
{
    int64_t state[STATE_MAX_WORDS];
    for (size_t i = 0; i < all->n; i++) {
        const struct weir_backend_request *request = &all->requests[i];
        all->added[i] = false;
        if (all->full[i] && memory->on_full == WEIR_FULL_ALLOW)
            continue;
        if (all->full[i] && !all->entries[i]) /* an earlier request may have made the shared entry */
            all->entries[i] = all_find_one(memory, all, i);
        if (all->entries[i])
            continue;
        enum table_error error = shard_add(&memory->table, all->shards[i], request, &all->plans[i], all->versions[i],
                                           &all->entries[i]);
        if (error) {
            for (size_t j = 0; j < i; j++)
                if (all->added[j]) {
                    struct entry *added = all->entries[j];
                    shard_remove(&memory->table, all->shards[j], added);
                    for (size_t k = j; k < i; k++)
                        all->entries[k] = all->entries[k] == added ? NULL : all->entries[k];
                }
            *short_of = i;
            return error;
        }
        all->added[i] = true;
        missing_state(request, &all->plans[i], state);
        entry_write(all->entries[i], 0, state, state_words(&all->plans[i]));
    }
    return TABLE_OK;
}

static void all_decide(struct memory *memory, struct all *all, size_t i, const struct weir_backend_request *request,
                       struct weir_decision *out) UNCHECKED
{
    struct entry *entry = all->entries[i];
    if (decide_entry(memory, all->shards[i], request, entry, out))
        return;
    for (size_t j = 0; j < all->n; j++)
        all->entries[j] = all->entries[j] == entry ? NULL : all->entries[j];
}

static void all_take(struct memory *memory, struct all *all, struct weir_decision *out) UNCHECKED
{
    for (size_t i = 0; i < all->n; i++) {
        uint8_t source = out[i].source;
        if (all->entries[i]) {
            all_decide(memory, all, i, &all->requests[i], &out[i]);
        } else { /* on_full allows it without an entry */
            int64_t state[STATE_MAX_WORDS];
            decide_absent(&all->requests[i], &all->plans[i], state, &out[i]);
        }
        out[i].source = source;
    }
}

/* Write the rebase of each state, if one is due: the only change that a denied request makes. Each request asks
 * for more than its limit can ever admit, so that it is written also where the limit alone would have admitted. */
static void all_rebase(struct memory *memory, struct all *all) UNCHECKED
{
    for (size_t i = 0; i < all->n; i++) {
        struct weir_backend_request request = all->requests[i];
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
        memory_sweep(memory, all->shards[i], all->requests[i].now_us, SWEEP_STEPS);
}

static enum table_error all_claimed(struct memory *memory, struct all *all, struct weir_decision *out, size_t *short_of)
{
    if (all_peek(memory, all, out)) {
        enum table_error error = all_add(memory, all, short_of);
        if (error)
            return error;
        all_take(memory, all, out);
    } else {
        all_rebase(memory, all);
    }
    return TABLE_OK;
}

static enum table_error all_locked(struct memory *memory, struct all *all, struct weir_decision *out, size_t *short_of)
{
    enum table_error error = all_find(memory, all);
    if (!error)
        error = all_claimed(memory, all, out, short_of);
    all_let_go(all);
    if (!error)
        all_sweep(memory, all);
    return error;
}

/* Prepare the requests. Those that found no room use the shared state, or none. */
static void all_prepare(struct memory *memory, struct all *all, const struct weir_backend_request *requests)
{
    for (size_t i = 0; i < all->n; i++) {
        all->requests[i] = all->full[i] ? overflow_request(&requests[i]) : requests[i];
        all->versions[i] = weir_request_plan(&requests[i], &all->plans[i]);
        all->shards[i] = all->full[i] ? table_overflow_shard(&memory->table)
                                      : table_shard(&memory->table, requests[i].hash);
    }
}

/* Count the decisions by on_full that mattered: all of them in an admission, the denying ones in a denial. */
static void all_count_full(struct memory *memory, const struct all *all, const struct weir_decision *out)
{
    uint64_t full = 0, denied = 0, full_denied = 0;
    for (size_t i = 0; i < all->n; i++) {
        full += all->full[i];
        denied += !out[i].allowed;
        full_denied += all->full[i] && !out[i].allowed;
    }
    atomic_fetch_add_explicit(&memory->full, denied > 0 ? full_denied : full, memory_order_relaxed);
}

/* Make room for all requests without an entry, from `short_of` on: the earlier ones find what they had before. Making
 * room for one at a time would need a try for each. False: there is no room for any. */
static bool all_make_room(struct memory *memory, const struct all *all, size_t short_of, int64_t *soonest_us)
{
    bool room = false;
    for (size_t i = short_of; i < all->n; i++) {
        if (all->full[i] || all->entries[i])
            continue;
        if (!table_make_room(&memory->table, all->shards[i], all->requests[0].now_us, soonest_us))
            break;
        room = true;
    }
    return room;
}

int memory_decide_all(struct memory *memory, const struct weir_backend_request *requests, size_t n,
                      struct weir_decision *out)
{
    struct all all = { .n = n };
    int tries = ROOM_TRIES;
    for (;;) {
        size_t short_of = 0;
        int64_t soonest_us = INT64_MAX;
        all_prepare(memory, &all, requests);
        all_lock(&all, lock_take);
        enum table_error error = all_locked(memory, &all, out, &short_of);
        all_lock(&all, lock_give);
        if (error != TABLE_NO_ROOM) {
            if (!error)
                all_count_full(memory, &all, out);
            return weir_error_of(error);
        }
        if (--tries > 0 && all_make_room(memory, &all, short_of, &soonest_us))
            continue;
        if (memory->on_full == WEIR_FULL_DENY) /* out[] holds the peeks */
            return weir_error_of(decide_full(memory, &requests[short_of], soonest_us, &out[short_of]));
        all.full[short_of] = true;
    }
}
