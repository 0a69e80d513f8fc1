/* lease.h - what an instance knows of a key whose truth is in Redis: permits that were charged there ahead of use, a
 * denial that still holds, and how much is asked for here. Pure functions: no lock, no I/O, no clock of their own.
 *
 * A lease is charged before it is used, and used within `life_us` from when it was *asked for*, by the holder's clock;
 * so whatever happens to a holder, no more is used than was charged, and in any stretch of time no more than is charged
 * in that stretch and the life before it. For greedy refill that is rate * life over the limit at most. Where permits
 * come back at once a lease ends before they do, so nothing is over. (The microseconds by which a clock may be behind,
 * ticks.h, are less than it takes to ask: by the time of the charge a lease is never held for longer.)
 *
 *     fixed window       with the window
 *     sliding window     with the block that it was charged to
 *     interval refill    at the next refill
 *     leaky bucket       each permit is a departure slot, good until its own time
 *
 * Leases are asked for by load: `half`, permits asked for here in half a life, and Redis grants no more of them than
 * what is left divided by twice the number of instances. So they get smaller near the limit, where a permit that lies
 * idle here is missed elsewhere, and a key that is asked for less than twice in a life has none.
 */
#ifndef CORE_ALGORITHM_LEASE_H
#define CORE_ALGORITHM_LEASE_H

#include "core/algorithm/lease_rules.h"
#include "core/ground/arith.h"

/* What came with one grant. A leaky bucket's are slots: the i-th departs at slot_us + ceil(i * q / p) ticks, and the
 * first that is left is `next`. */
struct lease_batch {
    int64_t left;
    int64_t asked_us, end_us; /* not used at or after end_us */
    int64_t slot_us, next;
};

struct lease {
    struct weir_plan plan;
    uint64_t version; /* of it; 0: the lease is new */
    uint64_t era;     /* 1, 2, ...: what was asked for in an era before this one says nothing any more */

    struct lease_batch batches[2]; /* the older first; without permits: free */
    bool is_asked;                 /* permits ahead of use are on their way: none else are asked for */
    bool scarce;                   /* the last grant was less than was asked for */
    int64_t coming;                /* with is_asked: how many at most */
    int64_t low;                   /* with so many left it is time to ask ahead; 0: not ahead of any request */

    /* What Redis last said, as of known_us. */
    bool is_known;
    int64_t known_us, remaining, reset_at_us;
    int64_t edge_us;     /* of windows, blocks and refills: an end of one, as early as it may be */
    int64_t denied_cost; /* 0: none; what was asked for and more is denied until denied_until_us */
    int64_t denied_asked_us, denied_until_us;
    int64_t refunded_us; /* what was asked for by then may have been denied for want of what was given back */

    /* How much is asked for: permits in this half of a life, until turn_us, and their moving average * 16. */
    int64_t count, average, turn_us;

    uint64_t lost; /* permits not used in time; the owner takes them from here */
};

/* What a request comes to. */
enum lease_answer {
    LEASE_SPENT,    /* allowed, *out is filled; source WEIR_BY_LEASE */
    LEASE_DENIED,   /* denied, *out is filled; source WEIR_BY_DENIAL */
    LEASE_UNDECIDED /* Redis must be asked */
};

/* What to ask of Redis: TAKE `cost`, and `ahead` with `spread`. */
struct lease_order {
    uint64_t era; /* the lease's when this was asked for; 0: what the answer says of the key is not kept */
    int64_t cost, ahead;
    uint32_t spread;
    bool whole; /* `cost` is all of the request's: the answer is its decision. Else it is what the lease lacks for it */
    bool alone; /* no other is likely to wait for the same answer: the key is asked for seldom, or nothing is leased */
};

/* ---- One key ---- */

/* Forget all but how much is asked for: the limit has another plan, or the key was reset. */
void lease_renew(struct lease *lease, const struct weir_plan *plan, uint64_t version);

/* A request of `cost` has come. */
void lease_count(struct lease *lease, const struct lease_rules *rules, int64_t now_us, int64_t cost);

/* Take or peek, if it can be told here. */
enum lease_answer lease_decide(struct lease *lease, int64_t now_us, int64_t cost, enum weir_verb verb,
                               struct weir_decision *out);

/* lease_count() and lease_decide() of a take in one, for the two common cases: the older of the leases covers the cost,
 * or there is none and the cost is what was denied. LEASE_UNDECIDED: it is neither, and nothing has happened. */
static inline enum lease_answer lease_hit(struct lease *lease, const struct lease_rules *rules, int64_t now_us,
                                          int64_t cost, struct weir_decision *out)
{
    struct lease_batch *batch = &lease->batches[0];
    const bool same_half = (uint64_t)(lease->turn_us - 1 - now_us) < (uint64_t)rules->life_us;
    const bool spends = batch->left >= cost && now_us < batch->end_us && lease->plan.algorithm != WEIR_LEAKY_BUCKET;
    const bool denies = cost == lease->denied_cost && now_us < lease->denied_until_us && cost <= lease->plan.size &&
                        batch->left == 0 && lease->batches[1].left == 0;
    if (!same_half || !(spends || denies))
        return LEASE_UNDECIDED;
    const int64_t asked_us = spends ? batch->asked_us : lease->denied_asked_us;
    lease->count += cost;
    batch->left -= spends ? cost : 0;
    *out = (struct weir_decision){
        .allowed = spends,
        .source = spends ? WEIR_BY_LEASE : WEIR_BY_DENIAL,
        .limit = lease->plan.size,
        .remaining = min_of(lease->plan.size, lease->remaining + batch->left + lease->batches[1].left),
        .retry_after_us = spends ? 0 : lease->denied_until_us - now_us,
        .reset_after_us = lease->reset_at_us > now_us ? lease->reset_at_us - now_us : 0,
        .age_us = now_us > asked_us ? now_us - asked_us : 0,
    };
    return spends ? LEASE_SPENT : LEASE_DENIED;
}

/* Whether a denial holds for what lacks so many permits. */
bool lease_denies(const struct lease *lease, int64_t now_us, int64_t lacks);

/* The permits that can be used now for one request. */
int64_t lease_left(struct lease *lease, int64_t now_us);

/* What to ask for a request of `cost` that cannot be told here and was counted, or with cost 0 ahead of any; `waiting`:
 * what others wait for beside it; `trip_us`: how long an answer takes. */
struct lease_order lease_make_order(struct lease *lease, const struct lease_rules *rules, int64_t now_us, int64_t cost,
                                    int64_t waiting, int64_t trip_us);

/* The permits of an answer that are for the lease: all but those of a request that Redis itself has decided. */
static inline int64_t lease_granted(const struct lease_order *order, const struct weir_decision *decision)
{
    return decision->ahead + (order->whole || !decision->allowed ? 0 : order->cost);
}

/* Redis has decided what was asked for at `asked_us`. What was asked for in another era is lost. */
void lease_answered(struct lease *lease, const struct lease_rules *rules, const struct lease_order *order,
                    int64_t asked_us, int64_t now_us, const struct weir_decision *decision);

/* Whether that, landed, has shown that Redis had not what a request of `cost` lacks that had come before it was asked:
 * *out is the denial as of then. */
bool lease_was_denied(struct lease *lease, const struct lease_order *order, int64_t asked_us, int64_t now_us,
                      int64_t cost, const struct weir_decision *decision, struct weir_decision *out);

/* What was asked for will not come. */
static inline void lease_order_failed(struct lease *lease, const struct lease_order *order)
{
    if ((order->ahead > 0 || !order->whole) && order->era == lease->era)
        lease->is_asked = false;
}

/* Whether to ask ahead now: what is left will not last until the answer comes. */
static inline bool lease_runs_low(const struct lease *lease)
{
    return lease->batches[0].left <= lease->low && lease->low > 0 && lease->batches[1].left == 0 && !lease->scarce;
}

/* Permits were given back in Redis, asked for at `asked_us`: what was denied may be admitted. */
static inline void lease_refunded(struct lease *lease, int64_t asked_us, int64_t now_us,
                                  const struct weir_decision *decision)
{
    lease->denied_cost = 0;
    lease->refunded_us = now_us;
    lease->remaining = decision->remaining;
    lease->reset_at_us = asked_us + decision->reset_after_us;
}

/* Give back what LEASE_SPENT took of a lease asked for at `asked_us`, and what was not used; if that lease is not there
 * any more it is lost. Not for a leaky bucket, whose slots pass. */
void lease_give_back(struct lease *lease, const struct lease_rules *rules, uint64_t era, int64_t asked_us,
                     int64_t cost);

/* What Redis last said, as of a peek; false: it has said nothing yet. */
bool lease_recall(struct lease *lease, int64_t now_us, struct weir_decision *out);

/* Whether what is known was true later than `now_us`, by more than a clock may step back unnoticed. */
static inline bool lease_is_ahead(const struct lease *lease, int64_t now_us)
{
    return lease->is_known && lease->known_us - now_us > WEIR_CLOCK_SLACK_US;
}

/* Whether nothing would be lost if it were forgotten. */
bool lease_is_idle(struct lease *lease, const struct lease_rules *rules, int64_t now_us);

#endif
