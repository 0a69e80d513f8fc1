/* accounts.h - the keys that an instance in hybrid mode knows something about: uthash tables in shards, each
 * guarded by a mutex.
 *
 * An account can be forgotten at any time, for the truth is in Redis: at worst the permits that it holds are lost. So
 * each new one looks at a few others and drops those that have nothing left, and where there is no room it takes that
 * of one that has. Only what waits for an answer stays.
 *
 * A key has one account, by whichever of its limit's overrides it is asked for: so a reset finds all that is known of
 * it, and what it has ahead of use are the leases of one plan. Under which of them it is, plans' versions tell (core/
 * limits.c says why): a request by a newer plan takes it along, one by an older plan, which has been late, is decided
 * by it as it is. What such a one asks of Redis is decided by the older plan, and its answer takes the account back, so
 * that none of it is held; the next request by the newer one takes it along again.
 *
 * Locks: shard->mutex, and inside it slab->mutex. None is held while the remote backend is called.
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
    struct lease_call *call; /* on its way to Redis for this key; NULL: none */
    uint32_t limit_id;       /* the same for all overrides of a limit */
    bool by_caller;          /* the lease's times are those that requests bring */
    struct lease lease;
    char key[];
};

/* (s) shard->mutex, (a) atomic */
struct account_shard {
    _Alignas(128) struct lock mutex;
    struct account *accounts; /* (s) */
    struct account *hand;     /* (s) the next to be looked at; NULL: the first */
    uint64_t eras;         /* (s) for the first era of an account that is made: none of a key's has been there before */
    uint64_t leased, lost; /* (s) permits taken ahead, and those of them not used in time */
    uint64_t lease_hits, denial_hits;
    struct bell bell; /* (a) rings when callers that wait for a key of this shard have their answer */
};

struct accounts {
    struct account_shard shards[HYBRID_SHARDS];
    _Atomic int64_t count; /* (a) */
    int64_t max;
    bool keep_idle; /* while there is room */
    struct budget budget;
    struct slab slab;
};

void accounts_init(struct accounts *accounts, int64_t max_keys, int64_t max_bytes);
void accounts_free(struct accounts *accounts);

static inline struct account_shard *account_shard(struct accounts *accounts, uint64_t hash)
{
    return &accounts->shards[hash >> 59];
}
_Static_assert(HYBRID_SHARDS == 32, "the upper five bits of a hash are its shard");

/* NULL: there is none. */
struct account *account_find(struct account_shard *shard, const struct weir_backend_request *request)
    REQUIRES(shard->mutex);

/* A new one, under the limit's plan; NULL: there is no room, or no memory. */
struct account *account_add(struct accounts *accounts, struct account_shard *shard, const struct lease_rules *rules,
                            const struct weir_backend_request *request, int64_t now_us) REQUIRES(shard->mutex);

/* Have it under the plan that the request is decided by, and by the request's clock: under another plan, or by another
 * clock, what it holds is lost, and so is what is on its way. */
void account_keep_up(struct account_shard *shard, struct account *account, const struct weir_backend_request *request)
    REQUIRES(shard->mutex);

/* What it holds is lost; and no time that it knows means anything any more. */
void account_forget_lease(struct account_shard *shard, struct account *account) REQUIRES(shard->mutex);
void account_forget_times(struct account_shard *shard, struct account *account) REQUIRES(shard->mutex);

/* What Redis has decided of `ask`, for the account's lease; NULL: there is no account any more. */
void account_answered(struct account_shard *shard, struct account *account, const struct lease_rules *rules,
                      const struct lease_order *order, int64_t asked_us, int64_t now_us,
                      const struct weir_decision *decision) REQUIRES(shard->mutex);

/* Have the shard count what leases have lost. */
void account_count_lost(struct account_shard *shard, struct account *account) REQUIRES(shard->mutex);

#endif
