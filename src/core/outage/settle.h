/* settle.h - charges the backend after an outage for what the fallback admitted in it; settle.c explains why. */
#ifndef CORE_OUTAGE_SETTLE_H
#define CORE_OUTAGE_SETTLE_H

#include "core/outage/outage.h"

/* WEIR_OK or WEIR_ENOMEM. */
int settle_init(struct weir *limiter);
void settle_free(struct weir *limiter);

/* In the child of a fork, forget what is owed: the parent settles it. */
void settle_begin_in_child(struct weir *limiter);

/* ---- Outages, reported by outage_span.c ---- */

/* Count `permits`, which the fallback has admitted or charged with `request`. `known`: the fallback can tell the key's debt. Return true if
 * the outage is already over: the caller must then call settle_all(). */
bool settle_admitted(struct weir *limiter, const struct weir_backend_request *request, int64_t permits, bool known);

/* An outage is about to begin; the word does not say so yet. Permits counted since the last one ended were admitted in
 * that one, and its record includes them. */
void settle_outage_begins(struct weir *limiter) REQUIRES(limiter->outage->settle.mutex);

/* An outage is over; the word says so already. */
void settle_outage_over(struct weir *limiter, uint32_t tag, int64_t since_us, int64_t until_us)
    REQUIRES(limiter->outage->settle.mutex);

/* ---- Before a decision ---- */

/* True if the functions below may have anything to do. A relaxed load: permits admitted elsewhere at this moment may
 * as well be admitted after it. */
static inline bool settle_is_due(const struct weir *limiter)
{
    return __builtin_expect(atomic_load_explicit(&limiter->outage->settle.owes, memory_order_relaxed), 0);
}

/* True if an outage that is over may have keys in the fallback. */
static inline bool settle_has_records(const struct weir *limiter)
{
    const struct settle *settle = &limiter->outage->settle;
    return atomic_load(&settle->count) > 0 || atomic_load(&settle->given_up_count) > 0;
}

/* Charge the backend for what is owed of the requests' keys, or wait for other threads that do. Return WEIR_OK if
 * nothing more is owed or the backend had no room for it. Return SETTLE_BUSY if the other threads took too long, which
 * says nothing about the backend. Otherwise return the backend's error; something is still owed. */
#define SETTLE_BUSY 2
int settle_before(struct weir *limiter, const struct weir_backend_request *requests, size_t n, int64_t deadline_us);

/* Cancel what is owed of a request's key, because the key has been reset. */
void settle_forgive(struct weir *limiter, const struct weir_backend_request *of);

/* As settle_before(), without waiting. Return WEIR_OK; or 1 if a thread of the backend will call `then` once, with what
 * this would have returned; or SETTLE_BUSY if another thread is charging this key; or an error. */
typedef void settle_then(struct weir_op *op, int status, int64_t deadline_us);
int settle_submit(struct weir *limiter, const struct weir_backend_request *request, int64_t deadline_us,
                  settle_then *then, struct weir_op *op);

/* ---- settle_chain.c ---- */

/* Settle all keys in the background, if the backend has submit(). */
void settle_all(struct weir *limiter);

/* The backend is in reach again: the function for ops->watch; `user` is the limiter. That is not an answer yet, so the
 * outage that lasts is settled too; the first charge that is answered ends it. */
void settle_returned(void *user);

/* Continue the walk over all keys, if no other thread does: a request has found that something is owed. */
void settle_go_on(struct weir *limiter);

/* A charge of the chain's batch has ended. */
void settle_charged(struct weir *limiter, int status);

/* ---- What is owed of a key, settle.c ---- */

/* A key's debt, by outage. */
struct settle_part {
    uint32_t tag;
    int64_t since_us, at_us, permits;
};
struct settle_debt {
    int64_t permits; /* of all parts */
    size_t count;
    struct settle_part parts[SETTLE_RECORDS + 1];
};

/* Return what is owed of the key of a request at the request's time. */
struct settle_debt settle_assess(struct weir *limiter, const struct weir_backend_request *of);

/* True if a request's key still owes permits for an outage that an answer has ended: until they are charged, the
 * fallback admits nothing of it. */
bool settle_owes(struct weir *limiter, const struct weir_backend_request *of);

/* Record `permits` of a part as paid in the fallback; return what is still owed. That includes what the fallback has
 * admitted in the meantime: a thread that entered it during the outage may still be inside. */
int64_t settle_pay(struct weir *limiter, const struct weir_backend_request *of, const struct settle_part *part,
                   int64_t permits);

/* Add what each part has paid to the count of its record. */
void settle_note_paid(struct weir *limiter, const struct settle_debt *paid) REQUIRES(limiter->outage->settle.mutex);

/* Let the fallback forget a key if at most `most` permits are owed of it for this outage. Return false if more is. */
bool settle_forget(struct weir *limiter, const struct weir_backend_request *of, uint32_t tag, int64_t since_us,
                   int64_t most);

/* All keys of an outage that was given up have been forgotten. */
void settle_forgotten(struct weir *limiter, uint32_t tag);

/* Remove a record whose keys have all been settled, unless more than `admitted` was admitted in the meantime. */
void settle_record_done(struct weir *limiter, uint32_t tag, uint64_t admitted);

/* Free what the chain holds. No thread works it any more. */
void settle_chain_drop(struct settle_chain *chain);

/* ---- settle_charge.c ---- */

/* A key whose debt is being charged: no other thread charges it until this has ended. */
struct settlement {
    struct weir_op op;       /* if submitted; the first member */
    struct settlement *next; /* in its bucket */
    struct settlement *also; /* the next one that its owner has claimed */
    struct weir_backend_request charge;
    struct settle_debt debt;
    uint32_t asked;    /* outage_asked() before the charge leaves */
    const void *owner; /* identifies a caller that charges several keys together */
    bool wakes_chain;  /* the chain has left this key to its owner */
    settle_then *then; /* if submitted; NULL: the chain submitted it */
    struct weir_op *then_op;
    int64_t deadline_us;
    char key[];
};

enum settle_claim {
    SETTLE_NOTHING,
    SETTLE_CLAIMED,
    SETTLE_MINE, /* this owner has claimed it already */
    SETTLE_BY_OTHERS,
    SETTLE_OUT_OF_REACH,
    SETTLE_NO_MEMORY
};

#define SETTLE_ANYHOW UINT64_MAX

/* Claim a request's key for `owner` if anything is owed of it and nothing else has claimed it. Then *out must be
 * charged. `since` is a count of ended settlements: a key whose charge has found no room since then is not claimed,
 * unless `since` is SETTLE_ANYHOW. `wakes_chain`: if another owner has the key, it wakes the chain once it has paid all
 * of the debt. */
enum settle_claim settle_claim(struct weir *limiter, const struct weir_backend_request *of, const void *owner,
                               bool wakes_chain, uint64_t since, struct settlement **out);

/* Submit the charge. Return 1, or the status with which it has already ended. The settlement is freed when it ends. */
int settlement_submit(struct weir *limiter, struct settlement *settlement, int64_t deadline_us);

#endif
