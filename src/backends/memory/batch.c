/* batch.c - decides a batch of the commonest requests, each as take.c does.
 *
 * Up to FETCH_GROUP requests are begun before the first of them is decided, so that their cache misses overlap:
 *
 *     begin     check the request, hash its key, and begin to fetch both groups of the key
 *     decide    choose the cell, and decide by the record in it, or leave the request to take_anew()
 *
 * What the requests share is done once: reading the clock, entering and leaving the readers and, for consecutive
 * requests of a limit, looking up its rule and counting the answers.
 */
#include "backends/memory/take.h"

/* What is known of a request's key before the request is decided. */
struct batch_key {
    uint64_t hash;
    struct look_groups at;
};

/* ---- Deciding ---- */

/* What consecutive requests of a limit share, as long as the thread reads. */
struct batch_run {
    struct weir_limit *limit; /* NULL: the requests are left to take_anew() */
    const struct rule *rule;
    struct figures *figures;
    uint64_t allowed, denied, permits, near; /* not yet in *figures */
};

static inline struct batch_run batch_run_of(const struct table *table, struct weir_limit *limit)
{
    struct batch_run run = { limit, look_rule(table, limit), figures_of(limit, stats_own_stripe), 0, 0, 0, 0 };
    if (!run.rule || !run.figures || limit_is_special(limit))
        run.limit = NULL;
    return run;
}

static inline void batch_count(const struct batch_run *run)
{
    struct figures *figures = run->figures;
    if (run->allowed != 0) {
        figures_add(&figures->singles[WEIR_BY_MEMORY][true], run->allowed);
        figures_add(&figures->permits, run->permits);
    }
    if (run->denied != 0)
        figures_add(&figures->singles[WEIR_BY_MEMORY][false], run->denied);
    if (__builtin_expect(run->near != 0, 0))
        figures_add(&figures->near, run->near);
}

/* Decide a request as take() does. False: nothing was done. */
__attribute__((always_inline)) static inline bool batch_take(const struct table *table, struct batch_run *run,
                                                             const struct weir_request *request,
                                                             const struct batch_key *at, int64_t now_us,
                                                             struct weir_decision *out)
{
    const struct weir_key key = request->key;
    struct record *record = look_probable_cell(&at->at, at->hash); /* a cell, which stays one whatever happens */
    const int64_t cost = request->cost;
    struct look look;
    struct level level;
    bool allowed;
    const bool is_found = __builtin_expect(key.len == 16, 1)
                              ? look_take_at(table, run->rule, weir_key(key.data, 16), record, true, &look)
                              : look_take_at(table, run->rule, key, record, true, &look);
    if (__builtin_expect(!is_found || look_take(&look, now_us, cost, &level, &allowed) != LOOK_DONE, 0))
        return false;
    if (allowed) {
        take_tell(run->rule, &level, cost, now_us, true, out);
        run->allowed++;
        run->permits += (uint64_t)cost;
        if (__builtin_expect(level.used > run->rule->near, 0))
            run->near++;
        return true;
    }
    if (__builtin_expect(run->limit->limiter->top_keys != NULL, 0))
        return false; /* a denial changes nothing, so it can be found once more */
    take_tell(run->rule, &level, cost, now_us, false, out);
    run->denied++;
    return true;
}

#define BATCH_LONG 16 /* the record of a longer key lies behind its entry */
_Static_assert(GREEDY_WORDS + BATCH_LONG / sizeof(int64_t) == CELL_WORDS, "that of a shorter one fits into a cell");

/* Begin to fetch the records of long keys, whose groups are being fetched. */
static void batch_fetch_long(const struct table *table, const struct weir_request *requests, size_t n,
                             const struct batch_key *keys)
{
    for (size_t i = 0; i < n; i++) {
        uint32_t place;
        const struct record *record = requests[i].key.len > BATCH_LONG
                                          ? look_in_cell(table, look_probable_cell(&keys[i].at, keys[i].hash), &place)
                                          : NULL;
        if (record)
            look_fetch_record(record);
    }
}

/* Decide up to FETCH_GROUP requests that have been begun. *decided is raised by how many were decided: all or, on an
 * error, those before it. */
static int batch_decide(struct memory *memory, const struct weir_request *requests, size_t n, int64_t now_us,
                        struct batch_key *keys, struct weir_decision *outs, size_t *decided)
{
    struct table *table = &memory->table;
    _Atomic uint64_t *turn = readers_enter(&table->readers);
    struct batch_run run = { 0 };
    for (size_t i = 0; i < n; i++) {
        const struct weir_request *request = &requests[i];
        const int64_t time_us = request->now_us != 0 ? request->now_us : now_us;
        bool is_short = true;
        if (__builtin_expect(request->limit != run.limit, 0)) {
            batch_count(&run);
            run = turn ? batch_run_of(table, request->limit) : (struct batch_run){ 0 };
            is_short = run.limit != NULL;
        }
        if (__builtin_expect(is_short && batch_take(table, &run, request, &keys[i], time_us, &outs[i]), 1))
            continue;
        batch_count(&run);
        run = (struct batch_run){ 0 };
        if (turn)
            readers_leave(turn);
        const int error = take_anew(request->limit, request->key, keys[i].hash, request->cost, time_us, &outs[i]);
        if (error) {
            *decided += i;
            return error;
        }
        turn = readers_enter(&table->readers);
    }
    *decided += n;
    batch_count(&run);
    const uint64_t looks = turn ? readers_leave(turn) : 0;
    if (looks != 0 && decide_sweeps_now(looks, n)) {
        const size_t i = (decide_scatter(looks) >> 16) % n; /* the lower bits repeat early */
        decide_sweep(memory, keys[i].hash, requests[i].now_us != 0 ? requests[i].now_us : now_us);
    }
    return WEIR_OK;
}

/* ---- The arguments ---- */

/* Bits that are set in the argument of any request, so that one comparison checks them all. */
struct batch_seen {
    const struct weir_limit *limit; /* of the last request, or none */
    uint64_t costs, lens;           /* each less 1; lens without those of 16 */
    uint64_t times, before;         /* each as it is; each less 1, which is negative for no time */
};

#define BATCH_COSTS (UINT64_C(1) << 29) /* larger costs are left to the core */
#define BATCH_TIMES ((uint64_t)WEIR_MAX_TIME_US + 1)
#define IS_POWER_OF_TWO(n) (((n) & ((n)-1)) == 0)
_Static_assert(BATCH_COSTS <= WEIR_MAX_PERMITS, "valid costs");
_Static_assert(IS_POWER_OF_TWO(BATCH_TIMES) && IS_POWER_OF_TWO(WEIR_MAX_KEY_LEN), "numbers below these are their bits");

/* Note a request's arguments. False: it must be left to the core. */
__attribute__((always_inline)) static inline bool batch_see(const struct weir *limiter,
                                                            const struct weir_request *request, struct batch_seen *seen)
{
    const struct weir_limit *limit = request->limit;
    if (__builtin_expect(limit != seen->limit, 0)) {
        if (!limit || limit->limiter != limiter || limit_takes(limit) != limiter->takes)
            return false;
        seen->limit = limit;
    }
    seen->costs |= (uint64_t)request->cost - 1;
    seen->times |= (uint64_t)request->now_us;
    seen->before |= (uint64_t)request->now_us - 1;
    if (__builtin_expect(request->key.len != 16, 0)) {
        seen->lens |= request->key.len - 1;
        if (seen->lens >= WEIR_MAX_KEY_LEN)
            return false;
    }
    return __builtin_expect(request->key.data != NULL, 1);
}

static inline bool batch_is_valid(const struct batch_seen *seen)
{
    return seen->costs < BATCH_COSTS && seen->times < BATCH_TIMES;
}

__attribute__((always_inline)) static inline void batch_begin(const struct table *table,
                                                              const struct weir_request *request, struct batch_key *key)
{
    key->hash = key_hash(request->limit, request->key);
    key->at = look_fetch_by(table, key->hash, true);
}

int memory_try_batch(struct weir *limiter, const struct weir_request *requests, size_t n, struct weir_decision *outs)
{
    struct memory *memory = (struct memory *)limiter->backend;
    struct batch_key keys[FETCH_GROUP];
    struct batch_seen seen = { .limit = (const void *)limiter }; /* not NULL, and no limit */
    size_t i = 0;
    const size_t first = n < FETCH_GROUP ? n : FETCH_GROUP;
    for (; i < first; i++) {
        if (!batch_see(limiter, &requests[i], &seen))
            return 1;
        batch_begin(&memory->table, &requests[i], &keys[i]);
    }
    for (; i < n; i++)
        if (!batch_see(limiter, &requests[i], &seen))
            return 1;
    if (!batch_is_valid(&seen))
        return 1;
    int64_t now_us = 0;
    int error = (int64_t)seen.before < 0 ? read_clock(limiter, &now_us) : WEIR_OK;
    size_t decided = 0, counted = 0;
    while (!error && decided < n) {
        const size_t from = decided, count = n - from < FETCH_GROUP ? n - from : FETCH_GROUP;
        for (i = 0; from > 0 && i < count; i++)
            batch_begin(&memory->table, &requests[from + i], &keys[i]);
        if (__builtin_expect(seen.lens >= BATCH_LONG, 0))
            batch_fetch_long(&memory->table, requests + from, count, keys);
        error = batch_decide(memory, requests + from, count, now_us, keys, outs + from, &decided);
        counted = error != WEIR_OK; /* by take_anew() */
    }
    if (error)
        stats_add(&limiter->stats, STATS_ERRORS, n - decided - counted);
    return error;
}
