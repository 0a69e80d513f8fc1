/* decide.c - decides for one key and for a batch of them: by a look (memory/look.h), or under the shard's mutex.
 *
 * The algorithms are core's; the table is memory/table.h's. What is decided here is what becomes of a state: it is
 * made by the first admitted request of a key (a denied one leaves no trace), carried over when the limit has another
 * plan (memory/carry.c), and dropped when nothing is used. A key that finds no room is answered by the option on_full.
 *
 * While this backend stands in for another one a key that is not there is cold: its permits count as taken when the
 * outage began. That state is not kept, for the request tells it anew.
 */
#include "backends/memory/look.h"
#include "core/ground/arith.h"

#define SWEEP_TURNS 64 /* every so many decisions of a shard, or a thread, try one entry for the sweep as well */
#define FETCH_GROUP 32 /* how many keys of a batch are fetched from memory at once */

_Static_assert(FETCH_GROUP < SWEEP_TURNS, "not every look sweeps");

/* ---- Under the shard's mutex ---- */

void memory_sweep(struct memory *memory, struct shard *shard, int64_t now_us, unsigned steps)
{
    if (!memory->keep_idle)
        shard_sweep(&memory->table, shard, now_us, WEIR_CLOCK_SLACK_US, &steps, steps);
}

void missing_state(const struct weir_backend_request *request, const struct weir_plan *plan, int64_t *state)
{
    if (request->cold_since_us < 0)
        state_charge(plan, state, request->now_us, 0);
    else
        state_charge(plan, state, request->cold_since_us, plan->size);
}

void decide_absent(const struct weir_backend_request *request, const struct weir_plan *plan, int64_t *state,
                   struct weir_decision *out)
{
    enum weir_verb verb = request->verb == WEIR_RESET ? WEIR_PEEK : request->verb;
    missing_state(request, plan, state);
    if (verb == WEIR_TAKE && request->ahead > 0)
        state_take_ahead(plan, state, request->now_us, request->cost, request->ahead, request->spread, out);
    else
        state_decide(plan, state, request->now_us, request->cost, verb, out);
}

/* Whether the state of a key that was not there is now another than that of one that is not there. Only a cold key has
 * something to give back; if that is everything, the key goes as any that is as good as new, and is cold again. */
static bool is_worth_an_entry(const struct weir_backend_request *request, const struct weir_decision *decision)
{
    if (request->verb == WEIR_REFUND)
        return request->cold_since_us >= 0 && decision->reset_after_us > 0;
    return request->verb == WEIR_TAKE && decision->allowed && (request->cost > 0 || decision->ahead > 0);
}

static enum table_error decide_missing(struct memory *memory, struct shard *shard,
                                       const struct weir_backend_request *request, struct weir_decision *out)
    REQUIRES(shard->mutex)
{
    int64_t state[STATE_MAX_WORDS];
    struct weir_decision decision; /* *out stays as it is if there is no memory */
    struct weir_plan plan;
    uint64_t version = weir_request_plan(request, &plan);
    decide_absent(request, &plan, state, &decision);
    if (is_worth_an_entry(request, &decision)) {
        struct entry *entry;
        memory_sweep(memory, shard, request->now_us, SWEEP_STEPS);
        enum table_error error = shard_add(&memory->table, shard, request, &plan, version, &entry);
        if (error == TABLE_NO_ROOM && request->verb == WEIR_REFUND) { /* lost: a refund is never turned away */
            *out = decision;
            return TABLE_OK;
        }
        if (error)
            return error;
        entry_write(entry, 0, state, state_words(&plan));
        entry_let_go(entry);
        shard_note(&memory->table, shard, request->now_us + decision.reset_after_us);
    }
    *out = decision;
    return TABLE_OK;
}

void peek_entry(struct memory *memory, const struct weir_backend_request *request, const struct entry *entry,
                struct weir_decision *out)
{
    int64_t state[STATE_MAX_WORDS];
    const struct weir_plan *plan = &entry_rule(&memory->table, entry)->plan;
    entry_read(entry, 0, state, state_words(plan));
    state_decide(plan, state, request->now_us, request->cost, WEIR_PEEK, out);
}

bool decide_entry(struct memory *memory, struct shard *shard, const struct weir_backend_request *request,
                  struct entry *entry, struct weir_decision *out)
{
    int64_t state[STATE_MAX_WORDS];
    const struct rule *rule = entry_rule(&memory->table, entry);
    const size_t words = state_words(&rule->plan);
    bool changed;
    entry_read(entry, 0, state, words);
    if (request->verb == WEIR_TAKE && request->ahead > 0)
        changed = state_take_ahead(&rule->plan, state, request->now_us, request->cost, request->ahead, request->spread,
                                   out);
    else
        changed = state_decide(&rule->plan, state, request->now_us, request->cost, request->verb, out);
    if (!changed)
        return true;
    entry_write(entry, 0, state, words);
    if (rule_former(rule))
        return former_changed(memory, shard, request, entry, out);
    /* As good as new it goes, and that is so in an outage as well: what was taken comes on top of the cold state, so
     * that has drained by then too. */
    if (out->reset_after_us == 0) {
        shard_remove(&memory->table, shard, entry);
        return false;
    }
    shard_note(&memory->table, shard, request->now_us + out->reset_after_us);
    return true;
}

static enum table_error decide_claimed(struct memory *memory, struct shard *shard,
                                       const struct weir_backend_request *request, struct entry **entry,
                                       struct weir_decision *out) REQUIRES(shard->mutex)
{
    if (request->verb == WEIR_RESET) {
        shard_remove(&memory->table, shard, *entry);
        *entry = NULL;
        return decide_missing(memory, shard, request, out);
    }
    if (!rule_is_current(entry_rule(&memory->table, *entry), request)) {
        if (request->verb == WEIR_PEEK) {
            peek_carried(memory, request, *entry, out);
            return TABLE_OK;
        }
        enum table_error error = carry_entry(memory, shard, request, entry);
        if (error)
            return error;
        if (!*entry)
            return decide_missing(memory, shard, request, out);
    }
    if (!decide_entry(memory, shard, request, *entry, out))
        *entry = NULL;
    return TABLE_OK;
}

static enum table_error decide(struct memory *memory, struct shard *shard, const struct weir_backend_request *request,
                               struct weir_decision *out)
{
    enum table_error error;
    lock_take(&shard->mutex);
    struct entry *entry = shard_find(&memory->table, shard, request);
    if (entry)
        error = decide_claimed(memory, shard, request, &entry, out);
    else
        error = decide_missing(memory, shard, request, out);
    if (entry)
        entry_let_go(entry);
    if (++shard->turns % SWEEP_TURNS == 0)
        memory_sweep(memory, shard, request->now_us, 1);
    lock_give(&shard->mutex);
    return error;
}

/* ---- No room ---- */

struct weir_backend_request overflow_request(const struct weir_backend_request *request)
{
    struct weir_backend_request shared = *request;
    shared.key = weir_key(&request->limit, sizeof(weir_limit *)); /* a limit's and each override's keys share one */
    shared.hash = request->limit_id;
    shared.hint = NULL; /* that is of the caller's key */
    return shared;
}

enum table_error decide_full(struct memory *memory, const struct weir_backend_request *request, int64_t soonest_us,
                             struct weir_decision *out)
{
    enum table_error error = TABLE_OK;
    atomic_fetch_add_explicit(&memory->full, 1, memory_order_relaxed);
    if (memory->on_full == WEIR_FULL_SHARE) {
        struct shard *shard = table_overflow_shard(&memory->table);
        const struct weir_backend_request shared = overflow_request(request);
        error = decide(memory, shard, &shared, out);
    } else {
        int64_t state[STATE_MAX_WORDS];
        struct weir_backend_request asked = *request;
        struct weir_plan plan;
        weir_request_plan(request, &plan);
        if (memory->on_full == WEIR_FULL_DENY)
            asked.verb = WEIR_PEEK;
        decide_absent(&asked, &plan, state, out);
        if (memory->on_full == WEIR_FULL_DENY) {
            out->allowed = request->cost == 0; /* it asked for what it can be given ahead: nothing */
            out->remaining = 0;
            out->delay_us = 0;
            out->retry_after_us = out->allowed              ? 0
                                  : soonest_us == INT64_MAX ? 1
                                                            : max_of(1, soonest_us - request->now_us);
        }
    }
    out->source = WEIR_BY_FULL;
    return error;
}

__attribute__((noinline)) static enum table_error decide_without_room(struct memory *memory, struct shard *shard,
                                                                      const struct weir_backend_request *request,
                                                                      struct weir_decision *out)
{
    int64_t soonest_us = INT64_MAX;
    for (int tries = 0; tries < ROOM_TRIES; tries++) {
        if (!table_make_room(&memory->table, shard, request->now_us, &soonest_us))
            break;
        enum table_error error = decide(memory, shard, request, out);
        if (error != TABLE_NO_ROOM)
            return error;
    }
    return decide_full(memory, request, soonest_us, out);
}

/* ---- No lock is held ---- */

/* Under the mutex. */
__attribute__((noinline)) static int decide_locked(struct memory *memory, const struct weir_backend_request *request,
                                                   struct weir_decision *out)
{
    struct shard *shard = table_shard(&memory->table, request->hash);
    enum table_error error = decide(memory, shard, request, out);
    if (error == TABLE_NO_ROOM)
        error = decide_without_room(memory, shard, request, out);
    return weir_error_of(error);
}

/* For those who have decided by looks. */
__attribute__((noinline)) static void sweep_shard(struct memory *memory, const struct weir_backend_request *request)
{
    struct shard *shard = table_shard(&memory->table, request->hash);
    if (memory->keep_idle || atomic_load_explicit(&memory->table.soonest_us[shard->number], memory_order_relaxed) >
                                 request->now_us - WEIR_CLOCK_SLACK_US)
        return;
    lock_take(&shard->mutex);
    memory_sweep(memory, shard, request->now_us, 1);
    lock_give(&shard->mutex);
}

/* One look in SWEEP_TURNS, or `n` of as many that decide for n keys, unevenly: a thread whose keys come round and round
 * must not always sweep at the same ones. (Fibonacci hashing: Knuth, TAOCP 3, 6.4.) */
static inline uint64_t scattered(uint64_t looks)
{
    return looks * UINT64_C(0x9e3779b97f4a7c15);
}

static inline bool is_sweep_turn(uint64_t looks, size_t n)
{
    return scattered(looks) < UINT64_MAX / SWEEP_TURNS * n;
}

__attribute__((always_inline)) static inline int
decide_one(struct memory *memory, const struct weir_backend_request *request, struct weir_decision *out)
{
    const struct table *table = &memory->table;
    _Atomic uint64_t *turn = look_may(request) ? readers_enter(&memory->table.readers) : NULL;
    if (__builtin_expect(turn != NULL, 1)) {
        const uint32_t place = request->hint ? look_hinted(table, request) : 0;
        const bool decided = look_and_decide(table, request, place, out);
        const uint64_t looks = readers_leave(turn);
        if (__builtin_expect(is_sweep_turn(looks, 1), 0))
            sweep_shard(memory, request);
        if (__builtin_expect(decided, 1))
            return WEIR_OK;
    }
    return decide_locked(memory, request, out);
}

/* ---- A batch ---- */

/* It is dominated by cache misses that depend on one another, index and entry: fetch each kind for all keys before the
 * next. A place is probably the key's; 0: none is known. */
static inline void fetch_places(const struct table *table, const struct weir_backend_request *requests, size_t n,
                                uint32_t *places)
{
    const struct index_line *lines[FETCH_GROUP];
    for (size_t i = 0; i < n; i++) {
        lines[i] = look_line(table, requests[i].hash);
        __builtin_prefetch(lines[i]);
    }
    for (size_t i = 0; i < n; i++) {
        const uint64_t matches = index_matches(lines[i], index_tag(requests[i].hash));
        places[i] = matches ? index_place(lines[i], index_first(matches)) : 0;
        if (places[i] != 0) {
            const struct entry *entry = slab_entry(&table->slab, places[i]);
            __builtin_prefetch(&entry->word, 1);
            __builtin_prefetch(&entry->cells[3], 1); /* the end of a key of 16 bytes */
        }
    }
}

/* Each request by itself, in order, up to FETCH_GROUP of them; by one look, as long as none needs a mutex. */
static int decide_group(struct memory *memory, const struct weir_backend_request *requests, size_t n,
                        struct weir_decision *out)
{
    struct table *table = &memory->table;
    uint32_t places[FETCH_GROUP];
    const uint32_t recast = slab_recast(&table->slab);
    _Atomic uint64_t *turn = readers_enter(&table->readers);
    fetch_places(table, requests, n, places);
    for (size_t i = 0; i < n; i++) {
        if (turn && look_may(&requests[i]) && look_and_decide(table, &requests[i], places[i], &out[i]))
            continue;
        if (turn)
            readers_leave(turn);
        int error = decide_locked(memory, &requests[i], &out[i]);
        if (error)
            return error;
        turn = readers_enter(&table->readers);
        if (slab_recast(&table->slab) != recast)
            memset(places, 0, sizeof places);
    }
    const uint64_t looks = turn ? readers_leave(turn) : 0;
    if (looks != 0 && is_sweep_turn(looks, n))
        sweep_shard(memory, &requests[(scattered(looks) >> 32) % n]); /* its lower bits come round soon */
    return WEIR_OK;
}

__attribute__((noinline)) static int decide_each(struct memory *memory, const struct weir_backend_request *requests,
                                                 size_t n, struct weir_decision *out)
{
    for (size_t i = 0; i < n; i += FETCH_GROUP) {
        int error = decide_group(memory, requests + i, n - i < FETCH_GROUP ? n - i : FETCH_GROUP, out + i);
        if (error)
            return error;
    }
    return WEIR_OK;
}

int memory_decide(struct weir_backend *backend, const struct weir_backend_request *requests, size_t n, bool all,
                  int64_t deadline_us, struct weir_decision *out)
{
    struct memory *memory = (struct memory *)backend;
    (void)deadline_us; /* nothing here blocks */
    if (all)
        return memory_decide_all(memory, requests, n, out);
    if (__builtin_expect(n == 1, 1)) /* alone it has nothing to overlap with */
        return decide_one(memory, requests, out);
    return decide_each(memory, requests, n, out);
}
