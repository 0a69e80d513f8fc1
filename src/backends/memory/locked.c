/* locked.c - decides for one key under its shard's mutex.
 *
 * The first admitted request of a key makes its entry; a denied one leaves no trace. carry.c brings the entry under a
 * new plan of its limit. The entry goes when nothing in it is used any more. The option on_full decides for a key that
 * finds no room, be it new or in need of a larger state; a denial needs none.
 *
 * While this backend is the fallback of another one, a key without an entry is cold: its permits count as used since
 * the outage began. Each request carries that time, so the cold state itself is never stored.
 */
#include "backends/memory/parts.h"
#include "core/ground/arith.h"

#define LOCKED_SWEEP_TURNS 64 /* decisions of a shard under its mutex between two sweeps */

/* ---- Under the shard's mutex ---- */

/* True if the decision gave a missing key a state worth storing, or would as a take. A refund does that only for a
 * cold key. If it refunds everything, the key is fresh and needs no entry, so that it is cold again. */
static bool state_is_worth_storing(const struct weir_backend_request *request, const struct weir_decision *decision)
{
    if (request->verb == WEIR_REFUND)
        return request->cold_since_us >= 0 && decision->reset_after_us > 0;
    return request->verb != WEIR_RESET && decision->allowed && (request->cost > 0 || decision->ahead > 0);
}

static enum table_error locked_decide_missing(struct memory *memory, struct shard *shard,
                                              const struct weir_backend_request *request, struct weir_decision *out)
    REQUIRES(shard->mutex)
{
    int64_t state[STATE_MAX_WORDS];
    struct weir_decision decision; /* *out must stay unchanged if there is no memory */
    struct weir_plan plan;
    uint64_t version = weir_request_plan(request, &plan);
    if (request->verb == WEIR_REFUND && request->ahead == 0 && memory->on_full == WEIR_FULL_SHARE &&
        shard_has_cells(&memory->table, shard))
        return TABLE_NO_ROOM; /* the permits may have come from the shared state */
    decide_absent(request, &plan, state, &decision);
    if (request->verb == WEIR_PEEK) {
        *out = decision;
        if (state_is_worth_storing(request, &decision) && !shard_has_room(&memory->table, shard, request, &plan))
            return TABLE_NO_ROOM;
    } else if (state_is_worth_storing(request, &decision)) {
        struct entry *entry;
        memory_sweep(memory, shard, request->now_us, SWEEP_STEPS);
        enum table_error error = shard_add(&memory->table, shard, request, &plan, version, &entry);
        if (error == TABLE_NO_ROOM)
            *out = decision;
        if (error == TABLE_NO_ROOM && request->verb == WEIR_REFUND) /* it is lost, but never an error */
            return TABLE_OK;
        if (error == TABLE_NO_ROOM && memory->on_full != WEIR_FULL_ALLOW) { /* nothing was taken after all */
            missing_state(request, &plan, state);
            out->reset_after_us = max_of(0, state_fresh_at_us(&plan, state) - request->now_us);
        }
        if (error)
            return error;
        entry_write(entry, 0, state, state_words(&plan));
        entry_let_go(&memory->table, entry);
        shard_note(&memory->table, shard, entry, request->now_us + decision.reset_after_us);
    }
    *out = decision;
    return TABLE_OK;
}

bool decide_entry(struct memory *memory, struct shard *shard, const struct weir_backend_request *request,
                  struct entry *entry, struct weir_decision *out)
{
    int64_t copy[ENTRY_COPIED_WORDS];
    const struct rule *rule = entry_rule(&memory->table, entry);
    const size_t words = state_words(&rule->plan);
    if (rule_former(rule))
        return decide_with_behind(memory, shard, request, entry, out);
    int64_t *state = entry_get(entry, 0, copy, words);
    const int64_t time_us = state[state_time_at(&rule->plan)];
    if (!state_decide_request(&rule->plan, state, NULL, request->now_us, request->verb, request, out))
        return true;
    entry_put(entry, 0, state, words);
    /* A fresh key needs no entry. This holds in an outage, too: permits are taken on top of the cold state, so that
     * has drained as well. */
    if (state_is_fresh(&rule->plan, state, request, out)) {
        shard_remove(&memory->table, shard, entry);
        return false;
    }
    if (request->verb != WEIR_TAKE || state[state_time_at(&rule->plan)] < time_us) /* it may be idle earlier */
        shard_note(&memory->table, shard, entry,
                   out->reset_after_us > 0 ? request->now_us + out->reset_after_us
                                           : entry_fresh_at_us(&memory->table, entry));
    return true;
}

/* Not inline: its frame holds a whole state. */
__attribute__((noinline)) static enum table_error locked_peek_carried(struct memory *memory, struct shard *shard,
                                                                      const struct weir_backend_request *request,
                                                                      struct entry *entry, struct weir_decision *out)
    REQUIRES(shard->mutex)
{
    int64_t state[STATE_MAX_WORDS];
    struct weir_plan plan;
    const uint64_t version = weir_request_plan(request, &plan);
    return peek_carried(memory, shard, request, &plan, version, entry, state, out);
}

static enum table_error locked_decide_claimed(struct memory *memory, struct shard *shard,
                                              const struct weir_backend_request *request, struct entry **entry,
                                              struct weir_decision *out) REQUIRES(shard->mutex)
{
    if (request->verb == WEIR_RESET) {
        shard_remove(&memory->table, shard, *entry);
        *entry = NULL;
        return locked_decide_missing(memory, shard, request, out);
    }
    if (!rule_is_current(entry_rule(&memory->table, *entry), request)) {
        if (request->verb == WEIR_PEEK)
            return locked_peek_carried(memory, shard, request, *entry, out);
        enum table_error error = carry_entry(memory, shard, request, entry);
        if (error == TABLE_NO_ROOM && request->verb == WEIR_TAKE) {
            locked_peek_carried(memory, shard, request, *entry, out);
            return out->allowed ? TABLE_NO_ROOM : TABLE_OK;
        }
        if (error && error != TABLE_NO_ROOM) /* a refund stays under the old plan */
            return error;
        if (!*entry)
            return locked_decide_missing(memory, shard, request, out);
    }
    if (!decide_entry(memory, shard, request, *entry, out))
        *entry = NULL;
    return TABLE_OK;
}

static enum table_error locked_decide(struct memory *memory, struct shard *shard,
                                      const struct weir_backend_request *request, struct weir_decision *out)
{
    enum table_error error;
    lock_take(&shard->mutex);
    struct entry *entry = shard_find(&memory->table, shard, request);
    if (entry)
        error = locked_decide_claimed(memory, shard, request, &entry, out);
    else
        error = locked_decide_missing(memory, shard, request, out);
    if (entry)
        entry_let_go(&memory->table, entry);
    if (request->verb != WEIR_PEEK && ++shard->turns % LOCKED_SWEEP_TURNS == 0)
        memory_sweep(memory, shard, request->now_us, 1);
    lock_give(&shard->mutex);
    return error;
}

int64_t memory_used(struct weir_backend *backend, const struct weir_backend_request *request)
{
    int64_t used = 0, at_us = request->now_us;
    struct memory *memory = (struct memory *)backend;
    struct shard *shard = table_shard(&memory->table, request->hash);
    lock_take(&shard->mutex);
    struct entry *entry = shard_find(&memory->table, shard, request);
    if (entry) {
        used = state_used(&entry_rule(&memory->table, entry)->plan, entry_state(entry, 0), &at_us);
        entry_let_go(&memory->table, entry);
    }
    lock_give(&shard->mutex);
    return used;
}

/* ---- No room ---- */

struct weir_backend_request overflow_request(const struct weir_backend_request *request)
{
    struct weir_backend_request shared = *request;
    shared.key = weir_key(&request->limit, sizeof(weir_limit *)); /* one for the limit, one for each override */
    shared.hash = request->limit_id;
    shared.hint = NULL; /* it belongs to the caller's key */
    return shared;
}

void deny_full(const struct weir_backend_request *request, int64_t soonest_us, struct weir_decision *out)
{
    out->allowed = request->cost == 0; /* a cost of 0 needs no room; nothing is granted ahead */
    out->remaining = 0;
    out->ahead = 0;
    out->delay_us = 0;
    out->retry_after_us = out->allowed ? 0 : soonest_us == INT64_MAX ? 1 : max_of(1, soonest_us - request->now_us);
    out->source = WEIR_BY_FULL;
}

/* Decide what concerns a reservation that was made of the shared state, wherever the key is now. */
static enum table_error decide_shared(struct memory *memory, const struct weir_backend_request *request,
                                      struct weir_decision *out)
{
    struct weir_backend_request shared = overflow_request(request);
    shared.ahead = request->verb == WEIR_CHARGE ? 0 : -request->ahead;
    const enum table_error error = locked_decide(memory, table_overflow_shard(&memory->table), &shared, out);
    out->source = WEIR_BY_FULL;
    if (error != TABLE_NO_ROOM)
        return error;
    if (request->verb == WEIR_CHARGE)
        out->ahead = request->cost; /* it can't be denied, only lost */
    else if (request->verb == WEIR_RENEW)
        deny_full(request, INT64_MAX, out);
    return TABLE_OK;
}

/* Decide by on_full for a key that found no room; *out is as locked_decide() left it. The caller holds no lock. */
static enum table_error decide_full(struct memory *memory, const struct weir_backend_request *request,
                                    int64_t soonest_us, struct weir_decision *out)
{
    enum table_error error = TABLE_OK;
    enum weir_on_full on_full = memory->on_full;
    if (request->verb == WEIR_TAKE)
        atomic_fetch_add_explicit(&memory->full, 1, memory_order_relaxed);
    if (on_full == WEIR_FULL_SHARE) {
        const struct weir_backend_request shared = overflow_request(request);
        error = locked_decide(memory, table_overflow_shard(&memory->table), &shared, out);
        on_full = error == TABLE_NO_ROOM ? WEIR_FULL_DENY : on_full;
    }
    if (request->verb == WEIR_CHARGE && (error || on_full != WEIR_FULL_SHARE)) { /* it can't be denied, only lost */
        out->source = WEIR_BY_FULL;
        out->ahead = request->cost;
        return TABLE_OK;
    }
    if (request->reservation && on_full != WEIR_FULL_SHARE) /* nothing was charged that could come back */
        request->reservation->at_us = 0;
    if (on_full == WEIR_FULL_DENY) {
        deny_full(request, soonest_us, out);
        return TABLE_OK;
    }
    out->source = WEIR_BY_FULL;
    return error;
}

__attribute__((noinline)) static enum table_error
locked_make_room_and_decide(struct memory *memory, struct shard *shard, const struct weir_backend_request *request,
                            struct weir_decision *out)
{
    const bool is_peek = request->verb == WEIR_PEEK;
    int64_t soonest_us = INT64_MAX;
    for (int tries = 0; request->verb != WEIR_REFUND && tries < ROOM_TRIES; tries++) {
        if (!table_make_room(&memory->table, request->now_us, 1, !is_peek, &soonest_us))
            break;
        if (is_peek) /* *out holds its answer */
            return TABLE_OK;
        enum table_error error = locked_decide(memory, shard, request, out);
        if (error != TABLE_NO_ROOM)
            return error;
    }
    return decide_full(memory, request, soonest_us, out);
}

__attribute__((noinline)) int memory_decide_locked(struct memory *memory, const struct weir_backend_request *request,
                                                   struct weir_decision *out)
{
    if (__builtin_expect(request->ahead < 0, 0))
        return weir_error_of(decide_shared(memory, request, out));
    struct shard *shard = table_shard(&memory->table, request->hash);
    enum table_error error = locked_decide(memory, shard, request, out);
    if (error == TABLE_NO_ROOM)
        error = locked_make_room_and_decide(memory, shard, request, out);
    return weir_error_of(error);
}
