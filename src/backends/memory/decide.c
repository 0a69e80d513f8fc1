/* decide.c - decides for one key or for a batch of independent keys.
 *
 * It tries a look first (memory/look.h), which takes no mutex, and else decides under the shard's mutex (locked.c).
 */
#include "backends/memory/in_flight.h"
#include "backends/memory/look.h"

/* Looks never sweep, so without this a shard that only looks decide in would keep idle keys. */
__attribute__((noinline)) void decide_sweep(struct memory *memory, uint64_t hash, int64_t now_us)
{
    struct shard *shard = table_shard(&memory->table, hash);
    if (memory->keep_idle || shard_soonest_us(&memory->table, shard) > now_us - WEIR_CLOCK_SLACK_US)
        return;
    lock_take(&shard->mutex);
    memory_sweep(memory, shard, now_us, 1);
    lock_give(&shard->mutex);
}

static void decide_sweep_for(struct memory *memory, const struct weir_backend_request *request)
{
    if (request->verb != WEIR_PEEK)
        decide_sweep(memory, request->hash, request->now_us);
}

__attribute__((always_inline)) static inline int
memory_decide_one(struct memory *memory, const struct weir_backend_request *request, struct weir_decision *out)
{
    const struct table *table = &memory->table;
    const bool is_plain = __builtin_expect(look_may(request), 1);
    _Atomic uint64_t *turn = is_plain || look_may_rarely(request) ? readers_enter(&memory->table.readers) : NULL;
    if (__builtin_expect(turn != NULL, 1)) {
        struct record *noted;
        if (!request->hint || !look_hinted(table, request->hint, &noted))
            noted = NULL;
        const bool decided = look_and_decide(table, request, noted, is_plain, out);
        const uint64_t looks = readers_leave(turn);
        if (__builtin_expect(decide_sweeps_now(looks, 1), 0))
            decide_sweep_for(memory, request);
        if (__builtin_expect(decided, 1))
            return WEIR_OK;
    }
    return memory_decide_locked(memory, request, out);
}

/* ---- A batch ---- */

/* Fetch the memory of a batch. Deciding key by key would wait for the cache misses of each. Prefetching the first
 * groups of all keys, and then what those lead to, lets these misses overlap. Fills `records` with probable ones in
 * cells, which stay cells whatever happens; NULL: unknown. */
static inline void decide_fetch(const struct table *table, const struct weir_backend_request *requests, size_t n,
                                struct record **records)
{
    struct look_groups groups[FETCH_GROUP];
    for (size_t i = 0; i < n; i++)
        groups[i] = look_fetch(table, requests[i].hash);
    for (size_t i = 0; i < n; i++) {
        uint32_t place;
        struct record *record;
        records[i] = NULL;
        if (!look_first_cell(table, requests[i].hash, &groups[i], &record))
            continue;
        record = look_in_cell(table, record, &place);
        if (place == 0) {
            records[i] = record;
            continue;
        }
        look_fetch_record(record);
    }
}

/* Decide up to FETCH_GROUP requests, each by itself and in order, within one look as long as none needs the
 * mutex. */
static int memory_decide_group(struct memory *memory, const struct weir_backend_request *requests, size_t n,
                               struct weir_decision *out)
{
    struct table *table = &memory->table;
    struct record *records[FETCH_GROUP];
    _Atomic uint64_t *turn = readers_enter(&table->readers);
    decide_fetch(table, requests, n, records);
    for (size_t i = 0; i < n; i++) {
        if (turn && look_may(&requests[i]) && look_and_decide(table, &requests[i], records[i], true, &out[i]))
            continue;
        if (turn)
            readers_leave(turn);
        int error = memory_decide_locked(memory, &requests[i], &out[i]);
        if (error)
            return error;
        turn = readers_enter(&table->readers);
    }
    const uint64_t looks = turn ? readers_leave(turn) : 0;
    if (looks != 0 && decide_sweeps_now(looks, n))
        decide_sweep_for(memory, &requests[(decide_scatter(looks) >> 16) % n]); /* the lower bits repeat early */
    return WEIR_OK;
}

__attribute__((noinline)) static int memory_decide_each(struct memory *memory,
                                                        const struct weir_backend_request *requests, size_t n,
                                                        struct weir_decision *out)
{
    for (size_t i = 0; i < n; i += FETCH_GROUP) {
        int error = memory_decide_group(memory, requests + i, n - i < FETCH_GROUP ? n - i : FETCH_GROUP, out + i);
        if (error)
            return error;
    }
    return WEIR_OK;
}

int memory_decide(struct weir_backend *backend, const struct weir_backend_request *requests, size_t n, bool all,
                  int64_t deadline_us, struct weir_decision *out)
{
    struct memory *memory = (struct memory *)backend;
    (void)deadline_us;                       /* nothing here blocks */
    if (__builtin_expect(n == 1 && !all, 1)) /* one key has no misses to overlap */
        return __builtin_expect(requests->slot != 0, 0) ? memory_flight_decide(memory, requests, out)
                                                        : memory_decide_one(memory, requests, out);
    for (size_t i = 0; i < n; i++)
        if (requests[i].slot)
            return all ? memory_flight_all(memory, requests, n, out) : memory_flight_each(memory, requests, n, out);
    if (all)
        return memory_decide_all(memory, requests, n, out);
    return memory_decide_each(memory, requests, n, out);
}
