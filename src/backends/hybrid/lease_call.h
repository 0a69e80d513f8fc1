/* lease_call.h - one request to Redis for a key, and the waiters that its answer serves.
 *
 * At most one call that others can join is under way for a key. A request that arrives in that time joins it if
 * the call ends no later than its own deadline. The answer's permits are spent in order of arrival, and the
 * waiters that they do not cover are sent again immediately. So a request waits for two calls, and for more only if
 * its lease ends, or loses more than expected, while what the request lacks is under way. Waiters need no timers: the
 * remote backend ends each call by its deadline, which is the earliest of its waiters'.
 */
#ifndef BACKENDS_HYBRID_LEASE_CALL_H
#define BACKENDS_HYBRID_LEASE_CALL_H

#include "backends/hybrid/accounts.h"
#include "backends/hybrid/waiter.h"
#include "core/ground/clock.h"
#include "core/ground/forks.h"

struct hybrid {
    struct weir_backend backend;
    struct weir_backend *remote;
    struct lease_rules rules; /* (c) except `instances`: the next field has it */
    _Atomic int64_t instances;
    _Atomic int64_t trip_us; /* moving average of an answer's time; relaxed */
    int64_t timeout_us;
    struct clock clock; /* (c) the clock of leases */
    struct accounts accounts;
    struct hybrid_return *_Atomic refused; /* returns that the remote has certainly not executed, beside.c */
    _Atomic int64_t refused_count;
    void (*returned)(void *user); /* (c) once watched */
    void *returned_user;          /* (c) once watched */
    struct forks_watcher forks;
};

struct lease_call {
    struct weir_op op; /* the op submitted to the remote */
    struct hybrid *hybrid;
    struct account_shard *shard;
    bool is_lone; /* others cannot join; otherwise the account stays while the call is under way */
    struct weir_backend_request request; /* the first waiter's, or like it; its key is a copy, below */
    struct lease_order order;
    int64_t asked_us, deadline_us;
    bool is_led;     /* the order includes the first waiter's request */
    bool is_renewal; /* counts in shard->renewals until it is answered */
    struct hybrid_waiter *first, **end;
    size_t present;          /* waiters that were queued when the call was sent: its answer holds for them */
    struct lease_call *next; /* the next call to be sent */
    char key[];
};

/* Return the current time on the clock that the request's lease uses. */
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

/* Return the request to the remote for `order`. */
struct weir_backend_request hybrid_remote_request(const struct weir_backend_request *request,
                                                  const struct lease_order *order);

/* Add the time of one answer to the average. */
void hybrid_note_trip(struct hybrid *hybrid, int64_t trip_us);

/* Queue a waiter behind the account's call. False if it may not join: there is none, the call uses a time that a
 * request brought, it may end after the waiter's deadline, or it is for another override of the limit, whose plan
 * would decide. The waiter's request must use the limiter's own clock. */
bool lease_call_join(struct account *account, const struct weir_backend_request *request, struct hybrid_waiter *waiter);

/* True if waiters are queued: a later request is served after them. */
bool lease_call_has_waiters(const struct lease_call *call);

/* True if the remote delivers answers on this thread, which therefore must not wait for one. */
bool hybrid_is_answer_thread(const struct hybrid *hybrid);

/* Make a call for an account that has none, with `waiter` first. Send it after releasing the shard's mutex. NULL:
 * out of memory. */
struct lease_call *lease_call_make(struct hybrid *hybrid, struct account_shard *shard, struct account *account,
                                   const struct weir_backend_request *request, const struct lease_order *order,
                                   int64_t asked_us, struct hybrid_waiter *waiter) REQUIRES(shard->mutex);

/* Make a call that only leases permits in advance of any request. */
struct lease_call *lease_call_make_ahead(struct hybrid *hybrid, struct account_shard *shard, struct account *account,
                                         const struct weir_backend_request *request, const struct lease_order *order,
                                         int64_t asked_us, int64_t deadline_us) REQUIRES(shard->mutex);

/* Make a call for one request that others cannot join; request->key is the waiter's. */
struct lease_call *lease_call_make_lone(struct hybrid *hybrid, const struct weir_backend_request *request,
                                        const struct lease_order *order, int64_t asked_us,
                                        struct hybrid_waiter *waiter);

/* Drop the account's call in the child of a fork: no thread waits for it there, and no answer will come. */
void lease_call_forget(struct account *account);

/* Queue a waiter, and take the first one out of the queue, which is not empty. The shard's mutex is held if others can
 * join. */
void lease_call_add(struct lease_call *call, struct hybrid_waiter *waiter);
struct hybrid_waiter *lease_call_take_first(struct lease_call *call);

/* Let the call ask for an order. */
void lease_call_set_order(struct lease_call *call, const struct lease_order *order, int64_t asked_us);

/* Let it note when its first waiter's permits were charged, if that one reserves them. */
void lease_call_set_reservation(struct lease_call *call);

/* ---- beside.c ---- */

/* Give back permits that this instance does not use: the key's own, and those of few other keys. Renew leases of the
 * others that are about to end. The caller holds no lock, and is about to ask the remote for `request`. */
void hybrid_look_around(struct hybrid *hybrid, const struct weir_backend_request *request);

/* Do that and send a call, unless it is NULL. The caller holds no lock. */
void lease_call_send(struct lease_call *call);

/* Give back all permits that are leased, for at most timeout_us: no call begins any more. Permits whose return has no
 * answer after that time are lost. The caller holds no lock. */
void hybrid_give_all_back(struct hybrid *hybrid);

/* Send again, or forget, the returns that the remote has refused to execute. */
void hybrid_send_refused(struct hybrid *hybrid);
void hybrid_drop_refused(struct hybrid *hybrid);

/* ---- lease_answer.c ---- */

/* Send a call and those after it, unless it is NULL. The caller holds no lock. */
void lease_call_submit(struct lease_call *call);

/* Run a call on this thread, which leads it: its waiter has been served when the function returns, unless the answer
 * brought too little for it. The caller holds no lock. */
void lease_call_run(struct lease_call *call);

/* Send the call of an op that is being submitted. Returns 1, or the op's status if it has ended. */
int lease_call_submit_for(struct lease_call *call, struct weir_op *op);

#endif
