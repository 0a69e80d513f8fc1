/* settle.h - what a stand-in has admitted in an outage is charged to the backend afterwards: settle.c says why. */
#ifndef CORE_OUTAGE_SETTLE_H
#define CORE_OUTAGE_SETTLE_H

#include "core/limiter/limiter.h"

/* WEIR_OK or WEIR_ENOMEM. */
int settle_init(struct weir *limiter);
void settle_free(struct weir *limiter);

/* In the child of a fork, which has one thread: what is owed is the parent's to settle. */
void settle_begin_in_child(struct weir *limiter);

/* ---- Outages, as failure.c tells of them ---- */

/* The stand-in has admitted permits in an outage that lasted when it was asked; `known`: it can tell whose they are. */
void settle_admitted(struct weir *limiter, uint32_t tag, int64_t since_us, int64_t now_us, int64_t permits, bool known);

/* An outage is about to begin, and limiter->outage does not say so yet. What has been counted since the last one ended
 * was admitted in that, and is in its record. */
void settle_outage_begins(struct weir *limiter) REQUIRES(limiter->settle.mutex);

/* An outage is over, and limiter->outage says so already. */
void settle_outage_over(struct weir *limiter, uint32_t tag, int64_t since_us, int64_t until_us)
    REQUIRES(limiter->settle.mutex);

/* ---- Before a decision ---- */

/* Whether there is anything to do for the functions below. Relaxed: what is admitted elsewhere at this moment may as
 * well have been admitted after it. */
static inline bool settle_is_due(const struct weir *limiter)
{
    return __builtin_expect(atomic_load_explicit(&limiter->settle.owes, memory_order_relaxed), 0);
}

/* Whether an outage that is over has keys in the stand-in, or may have. */
static inline bool settle_has_records(const struct weir *limiter)
{
    return atomic_load(&limiter->settle.count) > 0 || atomic_load(&limiter->settle.given_up_count) > 0;
}

/* Charge what is owed of the requests' keys to the backend, or wait for others who do. WEIR_OK: nothing is owed of them
 * any more, or there was no room for it just now. SETTLE_BUSY: others took too long, which tells nothing of the
 * backend. Otherwise an error of the backend, and something is owed. */
#define SETTLE_BUSY 2
int settle_before(struct weir *limiter, const struct weir_backend_request *requests, size_t n, int64_t deadline_us);

/* Nothing is to be owed of a request's key: it has been reset. */
void settle_forgive(struct weir *limiter, const struct weir_backend_request *of);

/* The same as settle_before() without waiting. WEIR_OK; 1: `then` will be told once, on a thread of the backend's, what
 * this would have returned; SETTLE_BUSY: somebody else charges this key just now; or an error. */
typedef void settle_then(struct weir_op *op, int status, int64_t deadline_us);
int settle_submit(struct weir *limiter, const struct weir_backend_request *request, int64_t deadline_us,
                  settle_then *then, struct weir_op *op);

/* ---- settle_chain.c ---- */

/* Settle all keys in the background, if the backend has submit(). */
void settle_all(struct weir *limiter);

/* The backend tells that it can be reached again, ops->watch. That is not yet an answer, so the outage that lasts is
 * settled as well, and is over once a charge of it is answered. `user` is the limiter. */
void settle_returned(void *user);

/* Somebody has found that something is owed: go on with it if nobody else does. */
void settle_go_on(struct weir *limiter);

/* Nobody is at it any more, or ever will be. */
void settle_chain_drop(struct settle_chain *chain);

/* A charge of the chain's batch has ended. */
void settle_charged(struct weir *limiter, int status);

/* ---- What is owed of a key, settle.c ---- */

/* What is owed of a key, outage by outage. */
struct settle_part {
    uint32_t tag;
    int64_t since_us, at_us, permits;
};
struct settle_debt {
    int64_t permits; /* of all parts */
    size_t count;
    struct settle_part parts[SETTLE_RECORDS + 1];
};

/* What is owed of the key of a request at its time. */
struct settle_debt settle_assess(struct weir *limiter, const struct weir_backend_request *of);

/* So much of a part has been paid, which the stand-in writes down; what is left. That is owed, and so is what it has
 * admitted meanwhile: for a thread may still be in it that went there in the outage. */
int64_t settle_pay(struct weir *limiter, const struct weir_backend_request *of, const struct settle_part *part,
                   int64_t permits);

/* So much of each part has been paid: its record counts it. */
void settle_note_paid(struct weir *limiter, const struct settle_debt *paid) REQUIRES(limiter->settle.mutex);

/* The stand-in forgets a key of which no more than `most` is owed for an outage. False: something still is. */
bool settle_forget(struct weir *limiter, const struct weir_backend_request *of, uint32_t tag, int64_t since_us,
                   int64_t most);

/* All keys of an outage that was given up have been forgotten. */
void settle_forgotten(struct weir *limiter, uint32_t tag);

/* A record has been seen to the end, and nothing is owed of it, unless more was admitted than there was. */
void settle_record_done(struct weir *limiter, uint32_t tag, uint64_t admitted);

/* ---- settle_charge.c ---- */

/* A key whose debt is being charged: nobody else charges it until that has ended. */
struct settlement {
    struct weir_op op;       /* when submitted */
    struct settlement *next; /* in its bucket */
    struct weir_backend_request charge;
    struct settle_debt debt;
    const void *owner; /* who charges several at once */
    bool wakes_chain;  /* which has left this key to its owner */
    settle_then *then; /* when submitted; NULL: the chain's */
    struct weir_op *then_op;
    int64_t deadline_us;
    char key[];
};

enum settle_claim {
    SETTLE_NOTHING,
    SETTLE_CLAIMED,
    SETTLE_MINE, /* this owner has it already */
    SETTLE_BY_OTHERS,
    SETTLE_OUT_OF_REACH,
    SETTLE_NO_MEMORY
};

#define SETTLE_ANYHOW UINT64_MAX

/* Look what is owed of a request's key; if anything is, and nobody has it, it is the owner's to charge: then *out is to
 * be submitted. `since`, a count of ended settlements: nothing is to do for a key whose charge has found no room since
 * then; SETTLE_ANYHOW: it is to be tried all the same. `wakes_chain`: whoever has it wakes the chain if it pays all of
 * it. */
enum settle_claim settle_claim(struct weir *limiter, const struct weir_backend_request *of, const void *owner,
                               bool wakes_chain, uint64_t since, struct settlement **out);

/* Ask for it: 1, or at once the status that it has ended with. It is gone then, or will be. */
int settlement_submit(struct weir *limiter, struct settlement *settlement, int64_t deadline_us);

#endif
