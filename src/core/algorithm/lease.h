/* lease.h - what an instance knows about a key whose state is in Redis: permits leased from there, a denial that still
 * holds, and the load here. Pure functions: no lock, no I/O, no clock.
 *
 * Redis charges a lease before the holder uses it. A lease lives as long as it does no harm, counted by the holder's
 * clock from the time at which it *asked*. (A clock may be some microseconds behind, ticks.h. That is less than asking
 * takes: at the time of the charge, no lease has more than its life left.)
 *
 *     fixed window       ends with the window
 *     sliding window     ends with the block that it was charged to
 *     interval refill    ends at the next refill
 *     leaky bucket       each permit is a departure slot, which is good until its own time
 *     greedy bucket      whole for a life, then it shrinks at the bucket's rate; the excess is at most rate * life.
 *                        It does not age while permits that this instance has used have not refilled: so long the
 *                        bucket is not full without the lease either (docs/design/hybrid.md)
 *
 * The size of a lease follows the load: the permits requested here in a turn, and somewhat more while plenty remains.
 * Redis grants at most what remains divided by twice the number of instances. So leases shrink near the limit, where
 * another instance would miss a permit that lies idle here. */
#ifndef CORE_ALGORITHM_LEASE_H
#define CORE_ALGORITHM_LEASE_H

#include "core/algorithm/lease_rules.h"
#include "core/ground/arith.h"

/* One grant. A leaky bucket's permits are slots: slot i departs at slot_us + ceil(i * q / p) ticks, and `next` is the
 * first that is left. */
struct lease_batch {
    int64_t left;
    int64_t asked_us, end_us; /* from lease_end_us() on, a greedy bucket's shrinks, and any other is unusable. A greedy
                               * bucket's moves with each permit that is used here */
    int64_t slot_us, next;
    int64_t charged_us; /* by Redis's clock; 0: not known */
    int64_t from_us;    /* permits charged since then, by Redis's clock, come back with these; greedy: these only */
    int64_t lead_us;    /* greedy, at the answer: charged_us less the time since which it had aged */
};

#define LEASE_RESTS 2
#define LEASE_LEAST_PART 64 /* less than this part of a limit is not given back: another instance hardly misses it */

struct lease {
    struct weir_plan plan;
    int64_t life_us;     /* lease_life_us() of the plan */
    int64_t life_max_us; /* the option's bound on all lives */
    int64_t permit_us;   /* greedy: the time in which a permit refills, rounded down. 0: leases age all the time */
    int64_t busy_us;     /* until then permits that were used here have not refilled, so leases do not age */
    int64_t idle_us;     /* at this time that was last otherwise, for all that is known */
    int64_t noted_us;    /* the latest time of a request whose use is in busy_us */
    int64_t lead_us;     /* how far Redis's clock is ahead, at most */
    uint64_t version;    /* the plan's; 0: the lease is new */
    uint64_t era;        /* 1, 2, ...; an answer to an order of an earlier era is ignored, it may be of another plan */

    struct lease_batch batches[2]; /* the older first; one without permits is free */
    bool is_asked;                 /* an order is on its way, so no other is made */
    bool scarce;                   /* the last grant was smaller than the order */
    int64_t coming;                /* with is_asked: the most permits that it may bring */
    int64_t late_us;               /* with is_asked: what they will have aged in addition */
    int64_t low;                   /* when this many are left, order ahead; 0: never order ahead of a request */

    /* What Redis last answered, true at known_us. */
    bool is_known;
    int64_t known_us, remaining, reset_at_us;
    int64_t edge_us;     /* the earliest possible end of a window, block or refill interval */
    int64_t denied_cost; /* 0: none; until denied_until_us, this cost and larger ones are denied */
    int64_t denied_asked_us, denied_until_us;
    int64_t denied_end_us;   /* when a retry may succeed, for all that is known: at denied_until_us or later */
    int64_t rivals_until_us; /* until then, others are assumed to take permits that come back */
    int64_t refunded_us;     /* permits were given back at this time: a denial asked for earlier may be outdated */

    /* The load: permits requested in this turn, which ends at turn_us, and their moving average * 16. */
    int64_t count, average, turn_us, turn_len_us;
    int64_t used_us; /* the last request */

    /* Permits that are not needed here and can be given back: not used in time, or settled for less. */
    struct lease_rest {
        int64_t left, charged_us;
    } rests[LEASE_RESTS];
    uint64_t lost; /* permits not used in time; the owner moves them to its own count */
};

/* The outcome of a request. */
enum lease_answer {
    LEASE_SPENT,    /* allowed, *out is filled; source WEIR_BY_LEASE */
    LEASE_DENIED,   /* denied, *out is filled; source WEIR_BY_DENIAL */
    LEASE_UNDECIDED /* Redis must be asked */
};

/* What to ask Redis for: WEIR_TAKE with `cost`, `ahead` and `spread`. */
struct lease_order {
    uint64_t era; /* the lease's era when it was made; 0: do not keep what the answer says about the key */
    int64_t cost, ahead;
    uint32_t spread;
    bool whole; /* `cost` is the request's: the answer decides it; otherwise it is what the lease lacks */
    bool alone; /* no other request is likely to wait for the answer: little load, or nothing is leased */
};

/* ---- One key ---- */

/* Forget everything except the load: the limit has another plan. */
void lease_renew(struct lease *lease, const struct lease_rules *rules, const struct weir_plan *plan, uint64_t version);

/* Note another version of the same plan. Nothing is forgotten, but an order under way may have been decided by a plan
 * between the two versions. */
void lease_keep(struct lease *lease, uint64_t version);

/* Forget everything except the load and the plan: the key was reset. */
void lease_forget(struct lease *lease);

/* Count a request of `cost`. */
void lease_count(struct lease *lease, int64_t now_us, int64_t cost);

/* Take or peek, if the lease or its denial can decide. */
enum lease_answer lease_decide(struct lease *lease, int64_t now_us, int64_t cost, enum weir_verb verb,
                               struct weir_decision *out);

/* Return when a batch ends, or begins to shrink. */
static inline int64_t lease_end_us(const struct lease *lease, const struct lease_batch *batch)
{
    return min_of(batch->end_us, batch->asked_us + lease->life_max_us);
}

/* Note that `cost` permits were used here that Redis has charged, at a request of that time: a lease does not age while
 * they have not refilled. Not for permits that are reserved, which may come back unused. If later use is known already,
 * they may have refilled before it. */
static inline void lease_used(struct lease *lease, int64_t asked_us, int64_t now_us, int64_t cost)
{
    const int64_t was_us = lease->busy_us, refill_us = cost * lease->permit_us;
    if (lease->permit_us == 0)
        return;
    lease->busy_us = asked_us < lease->noted_us ? max_of(was_us, asked_us + refill_us)
                                                : max_of(was_us, asked_us) + refill_us;
    lease->noted_us = max_of(lease->noted_us, asked_us);
    if (was_us < now_us)
        lease->idle_us = now_us;
    const int64_t more_us = max_of(0, lease->busy_us - max_of(was_us, now_us));
    for (struct lease_batch *batch = lease->batches; batch < &lease->batches[2]; batch++)
        batch->end_us += batch->end_us > now_us ? more_us : 0; /* what has ended does not become young again */
}

/* Do it for permits that LEASE_SPENT has taken just now. Those that a lease has only because it need not shrink before
 * its end do not count, since the excess would add up. */
static inline void lease_spent_is_used(struct lease *lease, int64_t now_us, int64_t cost)
{
    const struct lease_batch *batch = &lease->batches[0];
    const int64_t aged_us = max_of(lease->busy_us, now_us) + lease->life_us - batch->end_us;
    if (aged_us <= batch->left * lease->permit_us)
        lease_used(lease, now_us, now_us, cost);
}

/* Let what was used here refill earlier by `less_us`. */
static inline void lease_age(struct lease *lease, int64_t less_us)
{
    less_us = min_of(lease->busy_us, less_us);
    lease->busy_us -= less_us;
    lease->batches[0].end_us -= less_us;
    lease->batches[1].end_us -= less_us;
}

/* Undo lease_used(): permits have come back. */
static inline void lease_unused(struct lease *lease, int64_t cost)
{
    lease_age(lease, mul_capped(cost, lease->permit_us));
}

/* Do lease_count() and lease_decide() of a take for the two common cases: the older batch covers the cost, or there are
 * no permits and exactly this cost was denied. LEASE_UNDECIDED: neither case applies, and nothing has changed. */
static inline enum lease_answer lease_hit(struct lease *lease, int64_t now_us, int64_t cost, struct weir_decision *out)
{
    struct lease_batch *batch = &lease->batches[0];
    const bool same_turn = (uint64_t)(lease->turn_us - 1 - now_us) < (uint64_t)(2 * lease->turn_len_us);
    const bool spends = batch->left >= cost && now_us < lease_end_us(lease, batch) &&
                        lease->plan.algorithm != WEIR_LEAKY_BUCKET;
    const bool denies = cost == lease->denied_cost && now_us < lease->denied_until_us && cost <= lease->plan.size &&
                        batch->left == 0 && lease->batches[1].left == 0;
    if (!same_turn || !(spends || denies))
        return LEASE_UNDECIDED;
    const int64_t asked_us = spends ? batch->asked_us : lease->denied_asked_us;
    lease->count += cost;
    lease->used_us = now_us;
    batch->left -= spends ? cost : 0;
    *out = (struct weir_decision){
        .allowed = spends,
        .source = spends ? WEIR_BY_LEASE : WEIR_BY_DENIAL,
        .limit = lease->plan.size,
        .remaining = min_of(lease->plan.size, lease->remaining + batch->left + lease->batches[1].left),
        .retry_after_us = spends ? 0 : lease->denied_end_us - now_us,
        .reset_after_us = lease->reset_at_us > now_us ? lease->reset_at_us - now_us : 0,
        .age_us = now_us > asked_us ? now_us - asked_us : 0,
    };
    return spends ? LEASE_SPENT : LEASE_DENIED;
}

/* True if a denial holds for a request that lacks this many permits. */
bool lease_denies(const struct lease *lease, int64_t now_us, int64_t lacks);

/* Return the permits that one request can use now. */
int64_t lease_left(struct lease *lease, int64_t now_us);

/* Make the order for a request of `cost` that was counted and that the lease cannot decide; or with cost 0, an order
 * ahead of any request. `waiting`: the permits for which other requests wait. `trip_us`: how long an answer takes. */
struct lease_order lease_make_order(struct lease *lease, const struct lease_rules *rules, int64_t now_us, int64_t cost,
                                    int64_t waiting, int64_t trip_us);

/* True if permits should be ordered before a request needs them. The lease has ended, or a greedy bucket's ends within
 * half a life. More than one request used it lately. And most permits of the limit remain, so that other instances do
 * not miss those that end unused. docs/design/hybrid.md has the exact rule, "Beside a call". */
bool lease_needs_renewal(struct lease *lease, int64_t now_us);

/* Return the permits of an answer that go to the lease: all except those of a request that Redis has decided. */
static inline int64_t lease_granted(const struct lease_order *order, const struct weir_decision *decision)
{
    return decision->ahead + (order->whole || !decision->allowed ? 0 : order->cost);
}

/* Record what Redis has decided about an order made at `asked_us`. Permits of an order of another era are lost. */
void lease_answered(struct lease *lease, const struct lease_rules *rules, const struct lease_order *order,
                    int64_t asked_us, int64_t now_us, const struct weir_decision *decision);

/* True if this answer proves that Redis could not cover what a request of `cost` lacks, which arrived before the order
 * was sent. *out is then its denial, true at that time. */
bool lease_was_denied(struct lease *lease, const struct lease_order *order, int64_t asked_us, int64_t now_us,
                      int64_t cost, const struct weir_decision *decision, struct weir_decision *out);

/* Take from the lease permits that this instance does not use: those that no request has used for long, that ended
 * with a block of a sliding window, or that lease_settle() left. With `all`, take any of one grant. It can be called
 * until it returns 0. Return their number, and when Redis charged them. They count as lost here; a refund in Redis may
 * save them for others. */
int64_t lease_take_rest(struct lease *lease, int64_t now_us, bool all, int64_t *charged_us);

/* Note that an order has failed. */
static inline void lease_order_failed(struct lease *lease, const struct lease_order *order)
{
    if ((order->ahead > 0 || !order->whole) && order->era == lease->era) {
        lease->is_asked = false;
        lease->late_us = 0;
    }
}

/* True if it is time to order ahead: what is left will not last until the answer arrives. */
static inline bool lease_runs_low(const struct lease *lease)
{
    return lease->batches[0].left <= lease->low && lease->low > 0 && lease->batches[1].left == 0 && !lease->scarce;
}

/* Record a refund in Redis, asked for at `asked_us`: a cost that was denied may be admitted now. */
static inline void lease_refunded(struct lease *lease, int64_t asked_us, int64_t now_us,
                                  const struct weir_decision *decision)
{
    lease->denied_cost = 0;
    lease->refunded_us = now_us;
    lease->remaining = decision->remaining;
    lease->reset_at_us = asked_us + decision->reset_after_us;
}

/* Give back permits that LEASE_SPENT took from a lease asked for at `asked_us` and that were not used. If that lease
 * has ended, they are lost. Not for leaky buckets, whose slots pass. */
void lease_give_back(struct lease *lease, const struct lease_rules *rules, uint64_t era, int64_t asked_us,
                     int64_t cost);

/* Return when Redis charged the permits that LEASE_SPENT has taken just now: the oldest of them. 0: not known. */
static inline int64_t lease_spent_charged_us(const struct lease *lease)
{
    return lease->batches[0].charged_us;
}

/* Take back `cost` permits that were charged at `charged_us` and not used. Those that are as good as permits of a lease
 * that still lives join it. Others wait for the next call to Redis, if one is likely to come soon: `is_busy`, or
 * permits are left here. False: give them back now. Not for leaky buckets, whose slots pass. */
bool lease_settle(struct lease *lease, const struct lease_rules *rules, int64_t now_us, int64_t cost,
                  int64_t charged_us, bool is_busy);

/* Fill *out with what Redis last answered, as a peek would. False if it has answered nothing yet. */
bool lease_recall(struct lease *lease, int64_t now_us, struct weir_decision *out);

/* True if what is known is from later than `now_us`, by more than the clock slack. */
static inline bool lease_is_ahead(const struct lease *lease, int64_t now_us)
{
    return lease->is_known && lease->known_us - now_us > WEIR_CLOCK_SLACK_US;
}

/* True if forgetting the lease would lose nothing. For `asking_us` after a request, its answer may be under way. */
bool lease_is_idle(struct lease *lease, int64_t now_us, int64_t asking_us);

#endif
