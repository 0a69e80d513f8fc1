/* memory_decide.c - decides for one key, under its shard's lock.
 *
 * The algorithms are core's; the table is memory_table.h's. What is decided here is what becomes of a state: it is
 * made by the first admitted request of a key (a denied one leaves no trace), carried over when the limit has another
 * plan, and dropped when nothing is used. A key that finds no room is answered by the option on_full.
 */
#include "backends/memory_decide.h"

#include "core/algorithm.h"
#include "core/arith.h"

#define SWEEP_STEPS_AT_INSERT 2
#define SWEEP_TURNS 64 /* every so many decisions of a shard look at one entry as well */

/* ---- The shard's mutex is held ---- */

static void sweep(struct memory *memory, struct shard *shard, int64_t now_us, unsigned steps)
{
    if (!memory->keep_idle)
        shard_sweep(&memory->table, shard, now_us, WEIR_CLOCK_SLACK_US, &steps, steps);
}

void decide_fresh(const struct weir_backend_request *request, int64_t *state, int64_t now_us,
                         struct weir_decision *out)
{
    enum weir_verb verb = request->verb == WEIR_RESET ? WEIR_PEEK : request->verb;
    state_charge(request->plan, state, now_us, 0);
    state_decide(request->plan, state, now_us, request->cost, verb, out);
}

static enum table_error decide_missing(struct memory *memory, struct shard *shard,
                                       const struct weir_backend_request *request, int64_t now_us,
                                       struct weir_decision *out)
{
    int64_t state[STATE_MAX_WORDS];
    struct entry *entry;
    decide_fresh(request, state, now_us, out);
    if (request->verb != WEIR_TAKE || !out->allowed)
        return TABLE_OK;
    sweep(memory, shard, now_us, SWEEP_STEPS_AT_INSERT);
    enum table_error error = shard_add(&memory->table, shard, request, &entry);
    if (error)
        return error;
    memcpy(entry->state, state, entry->rule->state_bytes);
    shard_note(&memory->table, shard, now_us + out->reset_after_us);
    return TABLE_OK;
}

/* A peek at a state under another plan: as if it were carried over. */
static void peek_carried(const struct weir_backend_request *request, const struct entry *entry, int64_t now_us,
                         struct weir_decision *out)
{
    int64_t state[STATE_MAX_WORDS];
    int64_t used = state_used(&entry->rule->plan, entry->state, now_us);
    state_charge(request->plan, state, now_us, used);
    state_decide(request->plan, state, now_us, request->cost, WEIR_PEEK, out);
}

void decide_entry(struct memory *memory, struct shard *shard, const struct weir_backend_request *request,
                         struct entry *entry, int64_t now_us, struct weir_decision *out)
{
    bool changed = state_decide(request->plan, entry->state, now_us, request->cost, request->verb, out);
    if (!changed)
        return;
    if (out->reset_after_us == 0)
        shard_remove(&memory->table, shard, entry);
    else
        shard_note(&memory->table, shard, now_us + out->reset_after_us);
}

static enum table_error decide_locked(struct memory *memory, struct shard *shard,
                                      const struct weir_backend_request *request, int64_t now_us,
                                      struct weir_decision *out)
{
    struct table *table = &memory->table;
    struct entry *entry = shard_find(shard, request);
    if (entry && request->verb == WEIR_RESET) {
        shard_remove(table, shard, entry);
        entry = NULL;
    }
    if (entry && !rule_is(entry->rule, request->plan, request->limit_id)) {
        if (request->verb == WEIR_PEEK) {
            peek_carried(request, entry, now_us, out);
            return TABLE_OK;
        }
        enum table_error error = shard_carry(table, shard, request, now_us, &entry);
        if (error)
            return error;
    }
    if (!entry)
        return decide_missing(memory, shard, request, now_us, out);
    decide_entry(memory, shard, request, entry, now_us, out);
    if (++shard->turns % SWEEP_TURNS == 0)
        sweep(memory, shard, now_us, 1);
    return TABLE_OK;
}

/* ---- No room ---- */

struct weir_backend_request overflow_request(const struct weir_backend_request *request)
{
    struct weir_backend_request shared = *request;
    shared.key = weir_key("*", 1);
    shared.hash = request->limit_id;
    return shared;
}

enum table_error decide_full(struct memory *memory, const struct weir_backend_request *request, int64_t now_us,
                                    int64_t soonest_us, struct weir_decision *out)
{
    enum table_error error = TABLE_OK;
    atomic_fetch_add_explicit(&memory->full, 1, memory_order_relaxed);
    if (memory->on_full == WEIR_FULL_SHARE) {
        struct shard *shard = table_overflow_shard(&memory->table);
        const struct weir_backend_request shared = overflow_request(request);
        pthread_mutex_lock(&shard->mutex);
        error = decide_locked(memory, shard, &shared, now_us, out);
        pthread_mutex_unlock(&shard->mutex);
    } else {
        int64_t state[STATE_MAX_WORDS];
        decide_fresh(request, state, now_us, out);
        if (memory->on_full == WEIR_FULL_DENY) {
            out->allowed = false;
            out->remaining = 0;
            out->delay_us = 0;
            out->retry_after_us = soonest_us == INT64_MAX ? 1 : max_of(1, soonest_us - now_us);
            out->reset_after_us = 0;
        }
    }
    out->source = WEIR_BY_FULL;
    return error;
}

int memory_decide_one(struct memory *memory, const struct weir_backend_request *request, int64_t now_us,
                      struct weir_decision *out)
{
    struct shard *shard = table_shard(&memory->table, request->hash);
    int64_t soonest_us = INT64_MAX;
    for (int tries = 0; tries < ROOM_TRIES; tries++) {
        pthread_mutex_lock(&shard->mutex);
        enum table_error error = decide_locked(memory, shard, request, now_us, out);
        pthread_mutex_unlock(&shard->mutex);
        if (error != TABLE_NO_ROOM)
            return weir_error_of(error);
        if (!table_make_room(&memory->table, shard, now_us, &soonest_us))
            break;
    }
    return weir_error_of(decide_full(memory, request, now_us, soonest_us, out));
}
