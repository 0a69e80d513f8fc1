/* own_ops.h - what the core asks of weir's own backends beyond the public table of <weir/backend.h>.
 *
 * Most of it is for settling: charging the store, after an outage, for what the fallback admitted. An odd size marks
 * the larger table; no struct with pointers in it has such a size, so no user's table can be mistaken for one.
 */
#ifndef CORE_LIMITER_OWN_OPS_H
#define CORE_LIMITER_OWN_OPS_H

#include "core/ground/clock.h"
#include "core/ground/hash.h"
#include "core/ground/log.h"

#include <weir/backend.h>

/* A request to the fallback has the number of the outage in its limit_id, above the bits that identify the limit. So
 * each outage has separate keys there. */
#define OUTAGE_TAG_BIT 16

/* Return a decision's source and `allowed` in one number, which counters are found by. */
static inline int own_taken(const struct weir_decision *decision)
{
    return decision->source * 2 + decision->allowed;
}

typedef int own_try_op(struct weir_limit *limit, struct weir_key key, int64_t cost, int64_t now_us,
                       struct weir_decision *out);
typedef int own_try_handle_op(weir_handle *handle, int64_t cost, int64_t now_us, struct weir_decision *out);

typedef int own_reserve_op(struct weir_limit *limit, struct weir_key key, int64_t cost,
                           struct weir_reservation *reservation, struct weir_decision *out);
typedef int own_give_back_op(struct weir_limit *limit, struct weir_key key, int64_t cost, int64_t since_us);

/* A backend's fast paths, for a limiter with is_plain set and a limit whose plan is, or was a moment ago, a token
 * bucket with greedy refill. They use the functions of take.h. A decision in memory takes no longer than a call between
 * core and backend. */
struct own_takes {
    /* Do all of weir_try_at() and weir_handle_try(). `limit` or `handle` is not NULL; the other arguments have not been
     * checked. */
    own_try_op *try_key;
    own_try_handle_op *try_handle;

    /* Both or none, at the limiter's clock, with checked arguments. reserve() takes permits as try_key() and notes them
     * in *reservation. give_back() decides WEIR_REFUND of permits that were charged at `since_us`, which base.decide()
     * gets as request->ahead. It returns WEIR_OK or a negative error. */
    own_reserve_op *reserve;
    own_give_back_op *give_back;

    /* Optional. Do all of weir_try_batch(). `requests` and `outs` are not NULL; what they contain has not been checked.
     * 1: nothing was done, because an argument is wrong, or a limit's plan does not suit it. */
    int (*try_batch)(struct weir *limiter, const struct weir_request *requests, size_t n, struct weir_decision *outs);

    /* Optional. Begin to fetch what a decision about a key with this hash will read, and do not wait for it. To be
     * called before the clock is read. */
    void (*fetch)(struct weir_backend *backend, uint64_t hash);

    /* Optional. Fast paths for limits whose plan is, or was a moment ago, a sliding window. The functions
     * behind give_back() are not in it. */
    const struct own_takes *windows;
};

/* A slot that a fallback has given. */
struct own_slot {
    struct weir_limit *limit; /* or override */
    struct weir_key key;      /* the receiver frees its bytes */
    uint64_t id;
    int64_t cost, left_us, end_us; /* its hold is over in left_us, at end_us */
};

struct own_ops {
    struct weir_backend_ops base; /* base.size is OWN_OPS_SIZE */

    const struct own_takes *takes; /* optional */

    /* All three or none: the functions of a fallback.
     *
     * debt: return how many permits of the request's key were admitted during the outage: those in use at
     * request->now_us beyond what a cold key without any admission would have in use. Return 0 if there is no such key.
     *
     * pay: forget the key if its debt is at most `permits`, which may be 0; otherwise give that many back to it. Return
     * the debt that is left. One atomic step, because other threads may be admitted at any moment.
     *
     * debtors: visit keys of the outage `tag`, beginning at *place (0 at first), and move *place on. The call takes as
     * long as a look at `most` keys takes, whether there are that many or none. It ends early when `visit` returns
     * false; the next call then visits a few keys again. Apart from that, each key that exists from the first call to
     * the last is visited once. Return false if this call was the last. The key's bytes are valid during the visit,
     * which happens under a lock and must not call the backend. */
    int64_t (*debt)(struct weir_backend *backend, const struct weir_backend_request *request);
    int64_t (*pay)(struct weir_backend *backend, const struct weir_backend_request *request, int64_t permits);
    bool (*debtors)(struct weir_backend *backend, uint32_t tag, uint64_t *place, size_t most,
                    bool (*visit)(void *user, uint32_t limit_id, struct weir_key key), void *user);

    /* Optional: a fallback's. List up to `most` slots that are held, from *place on (0 at first), and move *place on.
     * Return their number; 0: these were all. WEIR_REFUND of a slot with a cold_left that is not 0 does nothing if the
     * slot ends later than that. */
    size_t (*slots_list)(struct weir_backend *backend, uint32_t *place, int64_t now_us, struct own_slot *out,
                         size_t most);

    /* Optional. Return how many permits of the request's key this process has leased and not used; decision.remaining
     * includes them. */
    int64_t (*leased)(struct weir_backend *backend, const struct weir_backend_request *request);

    /* Optional. Return how many permits of the request's key are in use at request->now_us, rounded up, be it more than
     * the limit. */
    int64_t (*used)(struct weir_backend *backend, const struct weir_backend_request *request);

    /* Optional. True if the calling thread is one on which the backend delivers answers: it must not wait for one. */
    bool (*is_here)(struct weir_backend *backend);

    /* A settlement may ask how long its key lay idle. It is a WEIR_TAKE of cost 0 whose cold_left is not 0, but how
     * long ago the outage began, in us; `ahead` is what it charges, which may be 0. Write to decision.age_us for how
     * many us of that time, before the charge, the key had nothing in use; and to decision.retry_after_us how long ago
     * they ended, 0 if the key was idle until the charge. A backend may know less, and then reports less. A key without
     * a state counts as idle since the outage began and a full bucket had drained. */
    bool idles;

    /* Optional. Return when, on CLOCK_MONOTONIC, the part that has the key last was well, judged by its answers: the
     * current time, or the time of the first failure since the last decision. If the failure was that charges were
     * refused (the server is full, or lacks replicas), only a charge ends it. Otherwise as reachable_us(), and never
     * later than that. */
    int64_t (*well_us)(struct weir_backend *backend, const struct weir_key *key);

    /* Optional. Decide as base.decide() does without `all`, past all leases. On an error, write the latest failure in
     * words. */
    int (*probe)(struct weir_backend *backend, const struct weir_backend_request *requests, size_t n,
                 int64_t deadline_us, struct weir_decision *out, struct message why);

    /* Optional. Write what all processes that count in this backend share: the secret from which the hashes of keys are
     * made, and Unix time at boot, from which the default clock continues. */
    void (*common)(struct weir_backend *backend, struct hash_secret *secret, int64_t *epoch_us);
};

#define OWN_OPS_SIZE (sizeof(struct own_ops) | 1)

/* The larger table, or NULL if the backend is a user's. */
static inline const struct own_ops *own_ops(const struct weir_backend *backend)
{
    return backend->ops->size == OWN_OPS_SIZE ? (const struct own_ops *)(const void *)backend->ops : NULL;
}

/* Do ops->reachable_us(). A backend without it does not know: -1. */
static inline int64_t backend_reachable_us(struct weir_backend *backend, const struct weir_key *key)
{
    return backend->ops->reachable_us ? backend->ops->reachable_us(backend, key) : -1;
}

/* True unless the backend says that it would send nothing for this key now. If `key` is NULL: for at least one key. */
static inline bool backend_is_in_reach(struct weir_backend *backend, const struct weir_key *key)
{
    const int64_t now_us = clock_monotonic_us(), seen_us = backend_reachable_us(backend, key);
    return seen_us < 0 || seen_us >= now_us;
}

#endif
