/* parts.h - the memory backend, and how its parts decide.
 *
 * The files build on one another in this order, each on those above it:
 *
 *     state.c     what one key's state decides
 *     carry.c     brings an entry under another plan of its limit
 *     locked.c    decides for one key under its shard's mutex
 *     debt.c      what a fallback has admitted and still owes
 *     all.c       decides for a group: all or nothing
 *     in_flight.c decides about slots
 *     decide.c    decides for one key or a batch, without the mutex if possible
 *     take.c      decides the commonest request by the shortest way; denied.h remembers a denial for it
 *     batch.c     does that for many requests
 *     window.c    does that for sliding windows
 *
 * Unless a comment says otherwise, the caller holds the shard's mutex and has claimed the entry (memory/entry.h).
 */
#ifndef BACKENDS_MEMORY_PARTS_H
#define BACKENDS_MEMORY_PARTS_H

#include "backends/memory/table.h"
#include "backends/shared/slots.h"
#include "core/algorithm/algorithm.h"
#include "core/ground/forks.h"
#include "core/limiter/own_ops.h"

#define SWEEP_STEPS 2 /* entries swept by an insertion, and by each request of a group */
/* How often a new key makes some room before on_full decides. With ROOM_DROPS a time, that is enough for a key of any
 * size among keys of any sizes: before the slab can empty a page, at most 1,360 keys must go (all but one slot of a
 * page of each class), and each of the 5 pages that the longest key needs takes at most 281 more. */
#define ROOM_TRIES 192

/* Slots, in_flight.c. */
struct memory_flight {
    struct lock mutex;  /* taken before a shard's */
    void *_Atomic area; /* NULL: not mapped yet; written under the mutex */
    size_t bytes;       /* of the area */
    struct slots slots; /* under the mutex */
};

struct memory {
    struct weir_backend backend;
    enum weir_on_full on_full; /* (c) */
    bool keep_idle;            /* (c) */
    _Atomic uint64_t full;     /* (a) decisions by on_full */
    struct table table;
    struct memory_flight flight;
    struct forks_watcher forks; /* told is NULL if forks are not watched */
};

static inline int weir_error_of(enum table_error error)
{
    return error == TABLE_OK ? WEIR_OK : WEIR_ENOMEM;
}

/* Drop idle keys among the next `steps` entries of a shard. Any entry of the shard may be gone afterwards. */
static inline void memory_sweep(struct memory *memory, struct shard *shard, int64_t now_us, unsigned steps)
    REQUIRES(shard->mutex)
{
    if (!memory->keep_idle)
        shard_sweep(&memory->table, shard, now_us - WEIR_CLOCK_SLACK_US, steps);
}

/* ---- state.c ---- */

/* Write the state of a key without an entry: fresh, or cold if the request is for a fallback. */
void missing_state(const struct weir_backend_request *request, const struct weir_plan *plan, int64_t *state);

/* Decide for a key without an entry. Leaves the resulting state in `state`. */
void decide_absent(const struct weir_backend_request *request, const struct weir_plan *plan, int64_t *state,
                   struct weir_decision *out);

/* Peek at an entry by the plan that it was written under. */
void peek_entry(struct memory *memory, const struct weir_backend_request *request, const struct entry *entry,
                struct weir_decision *out);

/* ---- carry.c ---- */

/* Bring an entry under the plan of the request's limit as core/algorithm/former.c defines it, and drop a former state
 * in which nothing is used. *entry may move; it becomes NULL if nothing in it is used. An entry written under a later
 * plan than the request's stays as it is: that plan decides for late requests, too. On an error nothing changed;
 * TABLE_NO_ROOM: the state must grow, and on_full decides as for a new key if peek_carried() admits. */
enum table_error carry_entry(struct memory *memory, struct shard *shard, const struct weir_backend_request *request,
                             struct entry **entry) REQUIRES(shard->mutex);

/* Peek at an entry that may be under another plan than the request's, as if it had been carried over to `plan`, which
 * the limit has at `version`. `state` has room for a state under that. TABLE_NO_ROOM: it would admit, but carry_entry()
 * would find no room. */
enum table_error peek_carried(struct memory *memory, struct shard *shard, const struct weir_backend_request *request,
                              const struct weir_plan *plan, uint64_t version, struct entry *entry, int64_t *state,
                              struct weir_decision *out) REQUIRES(shard->mutex);

/* Do decide_entry() for an entry that has something behind its state. */
bool decide_with_behind(struct memory *memory, struct shard *shard, const struct weir_backend_request *request,
                        struct entry *entry, struct weir_decision *decision) REQUIRES(shard->mutex);

/* ---- locked.c ---- */

/* Decide by the plan that the entry was written under. False if nothing in it is used any more: it was removed. */
bool decide_entry(struct memory *memory, struct shard *shard, const struct weir_backend_request *request,
                  struct entry *entry, struct weir_decision *out) REQUIRES(shard->mutex);

/* Return the request for the key that all keys of a limit share when they find no room. Its entry is in the overflow
 * shard, which holds no caller's key. */
struct weir_backend_request overflow_request(const struct weir_backend_request *request);

/* Deny a new key that found no room; *out holds its peek. */
void deny_full(const struct weir_backend_request *request, int64_t soonest_us, struct weir_decision *out);

/* Decide for one key under its shard's mutex, which the caller does not hold. WEIR_OK or WEIR_ENOMEM. */
int memory_decide_locked(struct memory *memory, const struct weir_backend_request *request, struct weir_decision *out);

/* ---- debt.c: for a fallback; see core/limiter/own_ops.h ---- */

int64_t memory_debt(struct weir_backend *backend, const struct weir_backend_request *request);
int64_t memory_pay(struct weir_backend *backend, const struct weir_backend_request *request, int64_t permits);
int64_t memory_used(struct weir_backend *backend, const struct weir_backend_request *request);
bool memory_debtors(struct weir_backend *backend, uint32_t tag, uint64_t *place, size_t most,
                    bool (*visit)(void *user, uint32_t limit_id, struct weir_key key), void *user);

/* ---- all.c ---- */

/* Decide for a group. The caller holds no lock. */
int memory_decide_all(struct memory *memory, const struct weir_backend_request *requests, size_t n,
                      struct weir_decision *out);

/* ---- decide.c ---- */

/* Implements ops->decide(). */
int memory_decide(struct weir_backend *backend, const struct weir_backend_request *requests, size_t n, bool all,
                  int64_t deadline_us, struct weir_decision *out);

#define SWEEP_TURNS 64 /* looks of a thread between two sweeps, on average */
#define FETCH_GROUP 32 /* keys of a batch that are prefetched together */
_Static_assert(FETCH_GROUP < SWEEP_TURNS, "not every look sweeps");

/* Sweep one entry. The caller holds no lock and is not a reader. */
void decide_sweep(struct memory *memory, uint64_t hash, int64_t now_us);

/* True if a thread whose stripe has had `looks` looks, the last one for n keys, should sweep: once in SWEEP_TURNS keys.
 * Scattering makes the distances uneven. Otherwise a thread that asks for the same keys in a fixed order would sweep at
 * the same key each time. (Fibonacci hashing: Knuth, TAOCP 3, 6.4.) */
static inline uint32_t decide_scatter(uint64_t looks)
{
    return (uint32_t)looks * UINT32_C(0x9e3779b9);
}

static inline bool decide_sweeps_now(uint64_t looks, size_t n)
{
    return decide_scatter(looks) < UINT32_MAX / SWEEP_TURNS * n;
}

/* ---- take.c ---- */

/* Implement own_takes->try_key() and try_handle(). */
int memory_try(struct weir_limit *limit, struct weir_key key, int64_t cost, int64_t now_us, struct weir_decision *out);
int memory_try_handle(weir_handle *handle, int64_t cost, int64_t now_us, struct weir_decision *out);

/* Implement own_takes->reserve() and give_back(). */
int memory_reserve(struct weir_limit *limit, struct weir_key key, int64_t cost, struct weir_reservation *reservation,
                   struct weir_decision *out);
int memory_give_back(struct weir_limit *limit, struct weir_key key, int64_t cost, int64_t since_us);

/* Implements own_takes->fetch(). */
void memory_fetch(struct weir_backend *backend, uint64_t hash);

/* ---- batch.c ---- */

/* Implements own_takes->try_batch(). */
int memory_try_batch(struct weir *limiter, const struct weir_request *requests, size_t n, struct weir_decision *outs);

/* ---- window.c ---- */

/* Do memory_try(), memory_try_handle(), memory_reserve() and memory_give_back() for a sliding window. */
int memory_try_window(struct weir_limit *limit, struct weir_key key, int64_t cost, int64_t now_us,
                      struct weir_decision *out);
int memory_try_window_handle(weir_handle *handle, int64_t cost, int64_t now_us, struct weir_decision *out);
int memory_reserve_window(struct weir_limit *limit, struct weir_key key, int64_t cost,
                          struct weir_reservation *reservation, struct weir_decision *out);
int memory_give_back_window(struct weir_limit *limit, struct weir_key key, int64_t cost, int64_t since_us);

#endif
