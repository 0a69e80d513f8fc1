/* accounts.h - what an instance in hybrid mode knows about keys: uthash tables in shards, each guarded by a
 * mutex.
 *
 * An account may be dropped at any time, because Redis has the truth: at worst the permits that it holds are
 * lost. So each new account sweeps a few others and drops idle ones; without room it takes the room of any. Only
 * an account whose lease call is under way stays. Accounts of all sizes share the memory (backends/shared/slab.h), so
 * an account moves when it is in the way of another size.
 *
 * All overrides of a limit share one account per key. So a reset finds everything that is known about the key, and
 * its leases are all of one plan. Plans have versions (core/limiter/limits.c says why). While a policy changes,
 * requests with several versions are under way. One that reaches the account with another version than its own is
 *
 *     newer   The account changes to the request's plan and drops its lease.
 *     older   The account decides by its own plan if it can. Otherwise Redis decides by the older plan, and its answer
 *             changes the account back to that. The next request with the newer plan changes it again and drops what
 *             the answer brought.
 *
 * Locks, outer first: slab->packing, shard->mutex, slab->mutex. None is held during a call to the remote backend.
 */
#ifndef BACKENDS_HYBRID_ACCOUNTS_H
#define BACKENDS_HYBRID_ACCOUNTS_H

#include "backends/shared/bell.h"
#include "backends/shared/budget.h"
#include "backends/shared/slab.h"
#include "core/algorithm/lease.h"
#include "core/ground/uthash_config.h"

#define HYBRID_SHARDS 32 /* a power of two */

struct lease_call;

struct account {
    UT_hash_handle hh;
    struct lease_call *call; /* under way to Redis for this key; NULL: none */
    weir_limit *limit;       /* of the last request; it may be an override */
    uint64_t hash;           /* the requests' */
    uint32_t limit_id;       /* the same for all overrides of a limit */
    bool by_caller;          /* requests bring their time, and the lease's times are on that clock */
    struct lease lease;
    char key[];
};

/* (s) shard->mutex, (a) atomic */
struct account_shard {
    _Alignas(128) struct lock mutex;
    struct account *accounts; /* (s) */
    struct account *hand;     /* (s) the next account to sweep; NULL: the first */
    uint64_t eras;         /* (s) gives each new account its first era, which no earlier account of the key has had */
    uint64_t leased, lost; /* (s) permits leased, and permits of those not used in time */
    uint64_t lease_hits, denial_hits;
    int renewals;     /* (s) renewals that are under way */
    struct bell bell; /* (a) rings when threads that wait for a key of this shard have their answer */
};

struct accounts {
    struct account_shard shards[HYBRID_SHARDS];
    _Atomic int64_t count; /* (a) */
    _Atomic unsigned turn; /* (a) the shard that makes room next */
    int64_t max;
    int64_t asking_us; /* for so long after a request, its answer may be under way, so the account is not idle */
    bool keep_idle;    /* keep idle accounts while there is room */
    struct budget budget;
    struct slab slab;
};

/* No call to the remote takes longer than `asking_us`. */
void accounts_init(struct accounts *accounts, int64_t max_keys, int64_t max_bytes, int64_t asking_us);
void accounts_free(struct accounts *accounts);

static inline struct account_shard *account_shard(struct accounts *accounts, uint64_t hash)
{
    return &accounts->shards[hash >> 59];
}
_Static_assert(HYBRID_SHARDS == 32, "the upper five bits of a hash are its shard");

/* Return the account of the request's key, or NULL. */
struct account *account_find(struct account_shard *shard, const struct weir_backend_request *request)
    REQUIRES(shard->mutex);

/* Unless there is room for a key of `key_len` bytes, make some: empty a page of the slab, or else drop an account of
 * the next shard in turn, one that is idle if a few steps lead to one. False: every account has a call under way. The
 * caller holds no lock. */
bool accounts_make_room(struct accounts *accounts, size_t key_len, int64_t now_us, bool by_caller);

/* Add an account under the request's plan. NULL: no room, or out of memory. */
struct account *account_add(struct accounts *accounts, struct account_shard *shard, const struct lease_rules *rules,
                            const struct weir_backend_request *request, int64_t now_us) REQUIRES(shard->mutex);

/* Bring the account under the plan and the clock of the request. A change of plan or clock loses its permits and
 * those that are under way. */
void account_keep_up(struct account_shard *shard, struct account *account, const struct lease_rules *rules,
                     const struct weir_backend_request *request) REQUIRES(shard->mutex);

/* Drop all permits of the lease. account_forget_times() is for a change of clock: no time in the lease is valid
 * any more. */
void account_forget_lease(struct account_shard *shard, struct account *account) REQUIRES(shard->mutex);
void account_forget_times(struct account_shard *shard, struct account *account) REQUIRES(shard->mutex);

/* Take Redis's answer to `order` into the account's lease. NULL: the account is gone, and the permits are lost. `uses`:
 * permits of the request that Redis itself has decided are used now. */
void account_answered(struct account_shard *shard, struct account *account, const struct lease_rules *rules,
                      const struct lease_order *order, int64_t asked_us, int64_t now_us,
                      const struct weir_decision *decision, bool uses) REQUIRES(shard->mutex);

/* Count in the shard what the lease has lost. */
void account_count_lost(struct account_shard *shard, struct account *account) REQUIRES(shard->mutex);

/* Note what a request has just taken from the lease: when it was charged, if the permits are reserved; or else that
 * they are used. `reservation` may be NULL. */
static inline void lease_note(struct lease *lease, int64_t now_us, int64_t cost, struct weir_reservation *reservation)
{
    if (reservation)
        reservation->at_us = lease_spent_charged_us(lease);
    else
        lease_spent_is_used(lease, now_us, cost);
}

#endif
