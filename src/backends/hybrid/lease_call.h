/* flight.h - one request to Redis for a key, and all who wait for what it brings.
 *
 * At most one that others can join is on its way for a key. Who comes meanwhile waits for it, if it will have ended by
 * his deadline; what it brings is spent in the order of coming, and those for whom it was not enough are asked for at
 * once. So nobody waits for more than two, and nobody needs a timer of his own: the remote backend ends each flight by
 * its deadline, which is no later than any of theirs.
 *
 * Who waits is a caller's thread, with a node on its stack, or a submitted op, with a node in its words.
 */
#ifndef BACKENDS_HYBRID_LEASE_CALL_H
#define BACKENDS_HYBRID_LEASE_CALL_H

#include "backends/hybrid/accounts.h"
#include "core/ground/clock.h"
#include "core/ground/forks.h"

struct hybrid {
    struct weir_backend backend;
    struct weir_backend *remote;
    struct lease_rules rules; /* (c) but `instances`, which is in the next */
    _Atomic int64_t instances;
    _Atomic int64_t trip_us; /* how long an answer takes: a moving average; relaxed */
    int64_t timeout_us;
    struct clock clock; /* (c) by which leases are held */
    struct accounts accounts;
    struct forks_watcher forks;
};

struct hybrid_waiter {
    struct hybrid_waiter *next;
    struct weir_op *op; /* NULL: this is the head of a struct hybrid_thread_waiter */
    int64_t deadline_us;
    int64_t now_us; /* WEIR_OWN_CLOCK, or the time that the request brings */
} __attribute__((may_alias));
_Static_assert(sizeof(struct hybrid_waiter) <= 6 * sizeof(uint64_t), "it fits the words of an op");

struct hybrid_thread_waiter {
    struct hybrid_waiter waiter;
    struct weir_key key;
    int64_t cost;
    struct weir_decision *out;
    int status;
    atomic_bool done; /* release: status and *out */
};

/* The time by which leases are held for a request. */
static inline int64_t hybrid_time(const struct hybrid *hybrid, int64_t request_us)
{
    return request_us == WEIR_OWN_CLOCK ? clock_now_us(&hybrid->clock) : request_us;
}

static inline struct lease_rules hybrid_rules(const struct hybrid *hybrid)
{
    struct lease_rules rules = hybrid->rules;
    rules.instances = atomic_load_explicit(&hybrid->instances, memory_order_relaxed);
    return rules;
}

/* The request that `ask` comes to. */
struct weir_backend_request hybrid_remote_request(const struct weir_backend_request *request,
                                                  const struct lease_order *order);

/* An answer took so long. */
void hybrid_note_trip(struct hybrid *hybrid, int64_t trip_us);

/* Wait for the account's flight: false if there is none, it goes by a time that a request brought, it may be later than
 * this waiter's deadline, or it is of another of the limit's overrides than the waiter's request: he would be decided by
 * that one's plan. The request goes by the limiter's own clock. */
bool lease_call_join(struct account *account, const struct weir_backend_request *request, struct hybrid_waiter *waiter);

/* Whether somebody waits for it: who comes later is served later. */
bool lease_call_has_waiters(const struct lease_call *call);

/* Whether this thread is the one on which flights land, which cannot wait for one. */
bool hybrid_is_answer_thread(const struct hybrid *hybrid);

/* A flight for an account that has none, with `waiter` first; to be launched when the shard's lock is no longer held.
 * NULL: out of memory. */
struct lease_call *lease_call_make(struct hybrid *hybrid, struct account_shard *shard, struct account *account,
                                   const struct weir_backend_request *request, const struct lease_order *order,
                                   int64_t asked_us, struct hybrid_waiter *waiter) REQUIRES(shard->mutex);

/* The same for permits ahead of any request. */
struct lease_call *lease_call_make_ahead(struct hybrid *hybrid, struct account_shard *shard, struct account *account,
                                         const struct weir_backend_request *request, const struct lease_order *order,
                                         int64_t asked_us, int64_t deadline_us) REQUIRES(shard->mutex);

/* One of a request alone, which nobody can join; request->key is the waiter's. */
struct lease_call *lease_call_make_lone(struct hybrid *hybrid, const struct weir_backend_request *request,
                                        const struct lease_order *order, int64_t asked_us,
                                        struct hybrid_waiter *waiter);

/* No lock is held; NULL: there is none. */
void lease_call_send(struct lease_call *call);

/* The same for one that carries an op that is being submitted: 1, or what it has come to at once. */
int lease_call_send_for(struct lease_call *call, struct weir_op *op);

/* In the child of a fork: nobody waits for it here, and no answer will come. */
void lease_call_forget(struct account *account);

#endif
