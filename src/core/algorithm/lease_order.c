/* lease_order.c - what to ask Redis for. */
#include "core/algorithm/lease_load.h"
#include "core/algorithm/lease_rest.h"
#include "core/ground/arith.h"

#define TRIPS_IN_LIFE 10 /* a life must last this many round trips; otherwise a lease would end before it is of use */
#define LOW_PART 8       /* order ahead when this part of the permits requested in a turn is left */
#define PLENTY_AHEAD 8   /* ordered beyond the load while plenty remains ... */
#define PLENTY_SPREAD 16 /* ... of which it is this part at most; */
#define PLENTY_LEAST 4   /* if that is fewer, nothing is */
#define FULL_PART 16     /* a bucket that lacks at most this part of its permits counts as full */

/* Return how long a grant asked for now is expected to stay useful: until the next edge. */
static int64_t order_useful_us(const struct lease *lease, int64_t now_us)
{
    const struct weir_plan *plan = &lease->plan;
    const bool returns = plan->algorithm != WEIR_FIXED_WINDOW || plan->align == WEIR_ALIGN_EPOCH;
    const int64_t ahead_us = lease->edge_us - now_us;
    if (lease->edge_us == 0 || (ahead_us <= 0 && !returns))
        return lease->life_us;
    return min_of(lease->life_us,
                  ahead_us > 0 ? (ahead_us - 1) % plan->period_us + 1 : plan->period_us - -ahead_us % plan->period_us);
}

static bool order_can_lease(const struct lease *lease, int64_t trip_us)
{
    return lease->life_us > 0 && trip_us <= lease->life_us / TRIPS_IN_LIFE;
}

/* True if the lease can hold one grant more. */
static bool order_has_place(const struct lease *lease)
{
    return lease->batches[0].left == 0 || lease->batches[1].left == 0;
}

/* True if a greedy bucket lacks at most this part of its size, as far as is known. */
static bool order_lacks_at_most(const struct lease *lease, int64_t now_us, int part)
{
    const struct weir_plan *plan = &lease->plan;
    return lease->reset_at_us - now_us <= div_down(plan->size * plan->q, part * plan->p) * plan->tick_us;
}

/* True if more than half of the permits remain, or may. */
static bool order_has_plenty(const struct lease *lease, int64_t now_us)
{
    const struct weir_plan *plan = &lease->plan;
    return !lease->is_known || now_us >= lease->reset_at_us || 2 * lease->remaining >= plan->size ||
           (is_greedy(plan) && order_lacks_at_most(lease, now_us, 2));
}

/* Return the permits that a greedy bucket can spare although they may end unused: they come back before anyone misses
 * them. None go back to Redis, because they are too few for that. */
static int64_t order_spare(const struct lease *lease, int64_t now_us, int64_t want)
{
    const int64_t part = (lease->plan.size - 1) / LEASE_LEAST_PART;
    const bool is_full = lease->is_known && order_lacks_at_most(lease, now_us, FULL_PART);
    return is_full && part >= PLENTY_LEAST ? min_of(2 * want + PLENTY_AHEAD, part) : 0;
}

/* Return what a life asks for, less one: that number is used almost certainly. */
static int64_t order_sure(const struct lease *lease, int64_t want)
{
    const int64_t in_life = max_of(lease->average * LOAD_TURNS_IN_LIFE, want * LOAD_AVERAGE_ONE);
    return max_of(0, in_life / LOAD_AVERAGE_ONE - 1);
}

/* Return the permits to order ahead of requests that want `want`, without those that wait for them. A greedy bucket
 * never regains what ends unused, so it gets what is used nearly for sure, unless it can spare more. A sliding window
 * regains it late. So it gets half the load where little remains, otherwise what a life asks for at most. A key that was
 * last asked for more than a life ago gets none beyond its load: they would end unused. */
static int64_t order_ahead(const struct lease *lease, int64_t now_us, int64_t want)
{
    const struct weir_plan *plan = &lease->plan;
    const int64_t load = want + want / 8, part = plan->size / PLENTY_SPREAD;
    const bool is_scant = plan->algorithm == WEIR_SLIDING_WINDOW, has_plenty = order_has_plenty(lease, now_us);
    const bool is_late = lease->is_known && now_us - lease->known_us >= lease->life_us;
    if (plan->algorithm == WEIR_LEAKY_BUCKET)
        return load;
    if (is_greedy(plan))
        return max_of(min_of(order_sure(lease, want), has_plenty ? max_of(load, part) : want / 2),
                      is_late ? 0 : order_spare(lease, now_us, want));
    if (!has_plenty)
        return is_scant ? want / 2 : load;
    if (part < PLENTY_LEAST || is_late)
        return load;
    const int64_t more = is_scant ? div_up(lease->average * LOAD_TURNS_IN_LIFE, LOAD_AVERAGE_ONE)
                                  : 2 * want + PLENTY_AHEAD;
    return max_of(load, min_of(more, part));
}

bool lease_needs_renewal(struct lease *lease, int64_t now_us)
{
    const bool one_by_one = is_greedy(&lease->plan);
    /* A renewal would begin a fixed window or an interval at another time than the next request does. */
    if (lease->is_asked || lease->scarce || lease_is_unused(lease, now_us) ||
        !(one_by_one || lease->plan.algorithm == WEIR_SLIDING_WINDOW))
        return false;
    load_turn(lease, now_us);
    if (lease->average <= LOAD_AVERAGE_ONE / LOAD_AVERAGE_TURNS) /* no more than one lately */
        return false;
    const int64_t left = lease_left(lease, now_us);
    const struct lease_batch *last = &lease->batches[lease->batches[1].left > 0 ? 1 : 0];
    const bool ends = left == 0 || (one_by_one && lease_end_us(lease, last) - now_us < lease->life_us / 2);
    return ends && order_has_place(lease) &&
           (one_by_one ? order_spare(lease, now_us, 0) > 0 : order_has_plenty(lease, now_us));
}

/* Return how many of the `left` permits will be gone when an answer arrives: a greedy bucket's lease that has ended goes
 * on shrinking. A request whose order lacked them would have to ask again, and again would lack some. The trip may take
 * twice as long as usual. */
static int64_t order_shrinks(const struct lease *lease, int64_t now_us, int64_t left, int64_t trip_us)
{
    struct lease later = *lease;
    return is_greedy(&lease->plan) ? left - lease_left(&later, now_us + 2 * trip_us) : 0;
}

static void order_note(struct lease *lease, const struct lease_order *order)
{
    lease->coming = order->ahead + (order->whole ? 0 : order->cost);
    lease->is_asked = lease->coming > 0;
}

struct lease_order lease_make_order(struct lease *lease, const struct lease_rules *rules, int64_t now_us, int64_t cost,
                                    int64_t waiting, int64_t trip_us)
{
    const struct weir_plan *plan = &lease->plan;
    const uint32_t fair = (uint32_t)(2 * rules->instances);
    struct lease_order order = { .era = lease->era, .cost = cost, .spread = fair, .whole = true };
    const int64_t left = lease_left(lease, now_us);
    const bool lacks = left > 0 && left < cost && !lease->is_asked && plan->algorithm != WEIR_LEAKY_BUCKET;
    const int64_t shrinks = lacks ? order_shrinks(lease, now_us, left, trip_us) : 0;
    /* An order on its way counts as held: both together never exceed lease_max(). */
    if (lacks && cost + shrinks <= lease_max(rules, plan)) {
        order.cost = cost - left;
        order.whole = false;
        order.ahead = shrinks;
        order.spread = 1;
    }
    load_turn(lease, now_us);
    const int64_t load = load_beside(lease, cost);
    const bool leases = order_can_lease(lease, trip_us);
    order.alone = load < 1 || !leases;
    if (order.alone)
        lease->low = 0;
    const bool was_asked = lease->is_asked;
    if (!was_asked)
        order_note(lease, &order);
    if (!leases || was_asked || !order_has_place(lease))
        return order;
    if (load >= 1)
        lease->low = load / LOW_PART + mul_capped(2 * load, trip_us) / lease->turn_len_us;
    const int64_t want = min_of(load, mul_capped(load, order_useful_us(lease, now_us)) / lease->turn_len_us);
    const int64_t room = max_of(0, lease_max(rules, plan) - (order.whole ? left : cost));
    waiting += order.ahead;
    order.spread = fair;
    const int64_t pressing = max_of(waiting,
                                    lease->scarce && now_us < lease->rivals_until_us ? load_in_pace(lease, load) : 0);
    if (lease->scarce && pressing > lease->remaining / order.spread) {
        /* Near the limit, order only what is sure to be used, but with spread 1. */
        order.ahead = min_of(pressing, room);
        order.spread = 1;
    } else { /* an order ahead of any request must last as long as others, and no request comes with it */
        order.ahead = min_of(waiting + order_ahead(lease, now_us, want) + (cost == 0 && want > 0), room);
        if (!lease->is_known)
            order.spread = (uint32_t)max_of(order.spread, PLENTY_SPREAD);
    }
    order_note(lease, &order);
    return order;
}
