/* test_lease.c - leases alone: how many permits an order asks for, how long a lease lasts, what a denial says. */
#include "core/algorithm/algorithm.h"
#include "core/algorithm/lease.h"
#include "core/policy/plan.h"
#include "support.h"

#include <inttypes.h>
#include <string.h>

enum { LIFE_US = 100000, START_US = 1000000000 };

/* A key with its lease, and the store's state of it, which answers without delay. */
struct key {
    struct lease_rules rules;
    struct lease lease;
    int64_t state[STATE_MAX_WORDS];
    int64_t now_us;
    int asked; /* requests to the store */
};

static struct weir_plan plan_for(const char *text)
{
    const struct weir_policy policy = policy_of(text);
    struct weir_plan plan;
    must_succeed(plan_make(&policy, &share_whole, &plan, (struct message){ NULL, 0 }));
    return plan;
}

static struct key fresh_key(const char *policy)
{
    const struct weir_plan plan = plan_for(policy);
    struct key key = {
        .rules = { .life_us = LIFE_US, .excess = 100, .denial_us = WEIR_DAY, .max = WEIR_MAX_PERMITS, .instances = 1 },
        .now_us = START_US
    };
    state_charge(&plan, key.state, key.now_us, 0);
    lease_renew(&key.lease, &key.rules, &plan, 1);
    return key;
}

static struct weir_decision store_decides(struct key *key, const struct lease_order *order)
{
    struct weir_decision decision;
    const struct weir_plan *plan = &key->lease.plan;
    if (order->ahead > 0)
        state_take_ahead(plan, key->state, key->now_us, order->cost, order->ahead, order->spread, &decision);
    else
        state_decide(plan, key->state, key->now_us, order->cost, WEIR_TAKE, &decision);
    key->asked++;
    return decision;
}

/* Let the store decide `ask`, whose answer is there `trip_us` later. */
static struct weir_decision asked(struct key *key, const struct lease_order *order, int64_t trip_us)
{
    const int64_t asked_us = key->now_us;
    const struct weir_decision decision = store_decides(key, order);
    key->now_us += trip_us;
    lease_answered(&key->lease, &key->rules, order, asked_us, key->now_us, &decision);
    return decision;
}

/* Decide a request as an instance does. */
static struct weir_decision take(struct key *key, int64_t cost)
{
    struct weir_decision decision;
    lease_count(&key->lease, key->now_us, cost);
    while (lease_decide(&key->lease, key->now_us, cost, WEIR_TAKE, &decision) == LEASE_UNDECIDED) {
        const struct lease_order order = lease_make_order(&key->lease, &key->rules, key->now_us, cost, 0, 0);
        decision = asked(key, &order, 0);
        if (order.whole || !decision.allowed) {
            decision.remaining += lease_left(&key->lease, key->now_us);
            break;
        }
    }
    return decision;
}

/* Let Redis have reported less than half of the permits: nothing is ordered beyond the load. */
static struct key half_used_key(const char *policy)
{
    struct key key = fresh_key(policy);
    key.lease.is_known = true;
    key.lease.known_us = START_US;
    key.lease.reset_at_us = INT64_MAX;
    key.lease.remaining = key.lease.plan.size / 2 - 1;
    return key;
}

/* Take one permit every `gap_us` for `for_us`. */
static void load(struct key *key, int64_t gap_us, int64_t for_us)
{
    for (const int64_t end_us = key->now_us + for_us; key->now_us < end_us; key->now_us += gap_us)
        take(key, 1);
}

/* Bring the key to a steady load with a spent lease. */
static void warm_up(struct key *key, int64_t gap_us)
{
    load(key, gap_us, 5 * LIFE_US);
    while (lease_left(&key->lease, key->now_us) > 0)
        take(key, 1);
    key->asked = 0;
}

static struct lease_order lease_of(struct key *key, int64_t ahead)
{
    return (struct lease_order){ .era = key->lease.era, .ahead = ahead, .spread = 1, .whole = true };
}

#define WIDE "token_bucket limit=1000000 period=1s"

TEST(a_key_with_less_than_one_request_per_lease_life_leases_nothing, 10)
{
    struct key key = fresh_key(WIDE);
    for (int i = 0; i < 50; i++, key.now_us += 2 * LIFE_US) {
        ck_assert_int_eq(take(&key, 1).remaining, 999999);
        ck_assert_int_eq(lease_left(&key.lease, key.now_us), 0);
    }
    ck_assert_int_eq(key.asked, 50);
}

TEST(a_key_with_little_traffic_leases_a_few_permits_while_more_than_half_remain, 10)
{
    struct key key = fresh_key("fixed_window limit=1000 period=1h");
    key.lease.life_us = key.lease.life_max_us = WEIR_HOUR; /* without the bound that these tests set */
    for (int i = 0; i < 900; i++, key.now_us += 3 * WEIR_SECOND)
        ck_assert(take(&key, 1).allowed);
    ck_assert_msg(key.asked < 500 / 8 + 400 + 2, "asked %d times", key.asked);
    ck_assert_msg(key.asked > 400, "asked %d times", key.asked);
}

TEST(one_request_even_a_large_one_causes_no_lease, 10)
{
    struct key key = fresh_key(WIDE);
    take(&key, 5000);
    ck_assert_int_eq(lease_left(&key.lease, key.now_us), 0);
}

TEST(a_busy_key_leases_for_half_a_life_or_a_whole_one_while_most_permits_remain, 10)
{
    struct key key = fresh_key(WIDE);
    warm_up(&key, 1000);
    take(&key, 1);
    int64_t left = lease_left(&key.lease, key.now_us);
    ck_assert_msg(left >= 90 && left <= 110, "%" PRId64 " permits for a load of 50", left);
    key.now_us += 7 * LIFE_US / 10;
    while (lease_left(&key.lease, key.now_us) > 0)
        take(&key, 1);
    key.lease.remaining = 400000;
    key.lease.reset_at_us = INT64_MAX;
    key.lease.count = 0;
    left = lease_make_order(&key.lease, &key.rules, key.now_us, 0, 0, 0).ahead;
    ck_assert_msg(left >= 18 && left <= 30, "%" PRId64 " permits for half a load of about 50", left);
}

TEST(a_busy_key_asks_redis_no_more_than_twice_per_lease_life, 10)
{
    struct key key = fresh_key(WIDE);
    for (int64_t gap_us = 100; gap_us <= LIFE_US; gap_us = gap_us * 3 / 2) {
        warm_up(&key, gap_us);
        load(&key, gap_us, 40 * LIFE_US);
        ck_assert_msg(key.asked <= 80 + 1, "asked %d times in 40 lives with a request every %" PRId64 " us", key.asked,
                      gap_us);
    }
}

/* Let the key have little load, two permits in the last life, and a spent lease. A greedy bucket lacks `lacks` now. */
static struct key lightly_used_key(const char *policy, int64_t lacks)
{
    struct key key = fresh_key(policy);
    const struct weir_plan *plan = &key.lease.plan;
    take(&key, 1);
    key.now_us += 3 * LIFE_US / 4;
    take(&key, 1);
    key.now_us += LIFE_US / 4;
    key.lease.batches[0].left = 0;
    key.lease.reset_at_us = key.now_us + lacks * plan->q / plan->p * plan->tick_us;
    return key;
}

TEST(a_greedy_bucket_spares_up_to_a_64th_while_it_lacks_at_most_a_16th, 10)
{
    static const struct {
        const char *policy;
        int64_t lacks, ahead;
    } table[] = {
        { "token_bucket limit=1024 period=1s", 0, 8 },  { "token_bucket limit=1024 period=1s", 64, 8 },
        { "token_bucket limit=1024 period=1s", 66, 0 }, { "token_bucket limit=449 period=1s", 0, 7 },
        { "token_bucket limit=257 period=1s", 0, 4 },   { "token_bucket limit=256 period=1s", 0, 0 },
    };
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        struct key key = lightly_used_key(table[i].policy, table[i].lacks);
        ck_assert_int_eq(lease_needs_renewal(&key.lease, key.now_us), table[i].ahead > 0);
        const struct lease_order order = lease_make_order(&key.lease, &key.rules, key.now_us, 0, 0, 0);
        ck_assert_msg(order.ahead == table[i].ahead, "%s lacks %d: %d", table[i].policy, (int)table[i].lacks,
                      (int)order.ahead);
        /* A key that was last asked for a life ago is likely to leave them unused. */
        key.lease.is_asked = false;
        const struct lease_order late = lease_make_order(&key.lease, &key.rules, key.now_us + LIFE_US, 0, 0, 0);
        ck_assert_int_eq(late.ahead, 0);
    }
}

TEST(a_lease_needs_renewal_if_it_ends_soon_and_was_used_lately_more_than_once, 10)
{
    struct key key = lightly_used_key(WIDE, 0);
    ck_assert(lease_needs_renewal(&key.lease, key.now_us));
    const struct lease_order order = lease_make_order(&key.lease, &key.rules, key.now_us, 0, 0, 0);
    ck_assert(!lease_needs_renewal(&key.lease, key.now_us)); /* its order is on its way */
    asked(&key, &order, 0);
    ck_assert_int_eq(lease_left(&key.lease, key.now_us), order.ahead);
    const int64_t half_us = key.now_us + LIFE_US / 2;
    key.now_us += LIFE_US / 5;
    take(&key, 1);
    ck_assert(!lease_needs_renewal(&key.lease, half_us));
    ck_assert(lease_needs_renewal(&key.lease, half_us + 10)); /* use has kept it young for some microseconds */
    ck_assert(lease_needs_renewal(&key.lease, key.now_us + LIFE_US / 2 - 1));
    ck_assert(!lease_needs_renewal(&key.lease, key.now_us + LIFE_US / 2)); /* unused, as for giving back */

    struct key once = fresh_key(WIDE);
    take(&once, 1);
    ck_assert(!lease_needs_renewal(&once.lease, once.now_us + LIFE_US / 2 - 1));
}

TEST(a_sliding_windows_lease_needs_renewal_once_it_has_ended_while_half_of_the_permits_remain, 10)
{
    struct key key = fresh_key("sliding_window limit=1000 period=1s blocks=10");
    load(&key, LIFE_US / 8, 2 * LIFE_US);
    ck_assert(!lease_needs_renewal(&key.lease, key.now_us - LIFE_US / 8)); /* it has permits */
    key.now_us += LIFE_US / 8;
    ck_assert_int_eq(lease_left(&key.lease, key.now_us), 0);
    ck_assert(lease_needs_renewal(&key.lease, key.now_us));
    key.lease.remaining = 499;
    ck_assert(!lease_needs_renewal(&key.lease, key.now_us));

    struct key fixed = fresh_key("fixed_window limit=1000 period=100ms"); /* the next request begins the window */
    load(&fixed, LIFE_US / 64, 2 * LIFE_US);
    fixed.lease.batches[0].left = fixed.lease.batches[1].left = 0;
    ck_assert(!lease_needs_renewal(&fixed.lease, fixed.now_us));

    struct key slots = fresh_key("leaky_bucket limit=1000000 period=1s");
    load(&slots, LIFE_US / 8, 2 * LIFE_US);
    ck_assert(!lease_needs_renewal(&slots.lease, slots.now_us)); /* slots pass unused */
}

TEST(a_cost_of_n_counts_like_n_requests_when_leases_are_sized, 10)
{
    struct key ones = fresh_key(WIDE);
    struct key tens = fresh_key(WIDE);
    for (int i = 0; i < 2000; i++) {
        ones.now_us += 500;
        take(&ones, 1);
        if (i % 10 == 9) {
            tens.now_us += 5000;
            take(&tens, 10);
        }
    }
    const struct lease_order one = lease_make_order(&ones.lease, &ones.rules, ones.now_us, 0, 0, 0);
    const struct lease_order ten = lease_make_order(&tens.lease, &tens.rules, tens.now_us, 0, 0, 0);
    ck_assert_msg(one.ahead - ten.ahead <= 10 && ten.ahead - one.ahead <= 10, "%" PRId64 " and %" PRId64, one.ahead,
                  ten.ahead);
}

TEST(nothing_is_leased_if_answers_take_over_a_tenth_of_a_lease_life, 10)
{
    struct key key = fresh_key(WIDE);
    warm_up(&key, 1000);
    lease_count(&key.lease, key.now_us, 1);
    ck_assert_int_gt(lease_make_order(&key.lease, &key.rules, key.now_us, 1, 0, LIFE_US / 10).ahead, 0);
    const struct lease_order slow = lease_make_order(&key.lease, &key.rules, key.now_us, 1, 0, LIFE_US / 10 + 1);
    ck_assert(slow.ahead == 0 && slow.alone);
}

TEST(near_the_limit_leases_leave_room_for_all_instances, 10)
{
    struct key key = fresh_key("token_bucket limit=1000 period=366d");
    key.rules.instances = 4;
    for (int64_t i = 0; i < 1000; i++) {
        const int64_t before = lease_left(&key.lease, key.now_us);
        const struct weir_decision decision = take(&key, 1);
        const int64_t store_left = decision.remaining - lease_left(&key.lease, key.now_us);
        if (decision.source != WEIR_BY_LEASE)
            must(before == 0 && (lease_left(&key.lease, key.now_us) <= (store_left + 1) / 7 ||
                                 lease_left(&key.lease, key.now_us) <= i / 10),
                 "a grant is an eighth of what is left, or what 5 ms ask for, at most");
        ck_assert(decision.allowed);
        ck_assert_int_eq(decision.remaining, 999 - i); /* the only instance: the sum is exact */
    }
    ck_assert(!take(&key, 1).allowed);
}

TEST(when_permits_are_scarce_the_cost_of_waiting_requests_is_ordered_immediately, 10)
{
    struct key key = fresh_key("token_bucket limit=1000 period=366d");
    key.rules.instances = 16;
    warm_up(&key, 1000); /* 500 taken */
    key.lease.scarce = true;
    key.lease.rivals_until_us = INT64_MAX;
    lease_count(&key.lease, key.now_us, 1);
    for (key.lease.remaining = 0; key.lease.remaining < 640; key.lease.remaining += 160)
        for (int64_t waiting = 0; waiting < 20; waiting++) {
            struct lease again = key.lease;
            const int64_t presses = waiting > 4 ? waiting : 4; /* a load of 49 in 50 ms requests as many in 5 ms */
            const bool is_little = presses > key.lease.remaining / 32;
            const struct lease_order order = lease_make_order(&again, &key.rules, key.now_us, 1, waiting, 0);
            ck_assert_uint_eq(order.spread, is_little ? 1 : 32);
            ck_assert_msg(is_little ? order.ahead == presses : order.ahead > 20 + waiting, "%" PRId64 " of %" PRId64,
                          order.ahead, waiting);
        }
}

TEST(permits_are_scarce_from_a_short_grant_until_a_full_one, 10)
{
    static const struct {
        struct weir_decision told;
        int64_t ahead;
        bool is_scarce;
    } table[] = {
        { { .allowed = true, .ahead = 3 }, 7, true },
        { { .allowed = true }, 0, true }, /* says nothing about it */
        { { .allowed = true, .ahead = 7 }, 7, false },
        { { .allowed = true }, 0, false },
        { { .allowed = false }, 0, true },
        { { .allowed = true, .ahead = 1 }, 1, false },
        { { .allowed = true }, 1, true },
        { { .allowed = true, .ahead = 2 }, 2, false },
        { { .allowed = false }, 5, true },
    };
    struct key key = fresh_key(WIDE);
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        const struct lease_order order = {
            .era = key.lease.era, .cost = 1, .ahead = table[i].ahead, .spread = 1, .whole = true
        };
        lease_answered(&key.lease, &key.rules, &order, key.now_us, key.now_us, &table[i].told);
        ck_assert_msg(key.lease.scarce == table[i].is_scarce, "row %zu", i);
    }
}

TEST(no_lease_exceeds_option_lease_max, 10)
{
    struct key key = fresh_key(WIDE);
    key.rules.max = 3;
    for (int i = 0; i < 5000; i++, key.now_us += 20) {
        take(&key, 1);
        must(lease_left(&key.lease, key.now_us) <= 3, "at most three");
    }
    ck_assert_int_gt(key.asked, 5000 / 5);
}

TEST(a_request_orders_only_its_missing_permits_if_the_largest_lease_can_hold_its_cost, 10)
{
    struct key key = fresh_key(WIDE);
    key.rules.max = 8;
    const struct lease_order some = lease_of(&key, 3);
    asked(&key, &some, 0);
    struct lease again = key.lease;
    struct lease_order order = lease_make_order(&again, &key.rules, key.now_us, 9, 0, 0);
    ck_assert(order.whole && order.cost == 9);
    order = lease_make_order(&key.lease, &key.rules, key.now_us, 8, 0, 0);
    ck_assert(!order.whole && order.cost == 5);
    asked(&key, &order, 0);
    ck_assert_int_eq(lease_left(&key.lease, key.now_us), 8);
}

TEST(permits_held_and_ordered_never_exceed_the_largest_lease, 10)
{
    struct key key = fresh_key(WIDE);
    warm_up(&key, 100); /* a load of 500 in half a life */
    key.rules.max = 100;
    for (int64_t held = 0; held <= 100; held += 10) {
        struct key again = key;
        const struct lease_order some = lease_of(&key, held);
        asked(&again, &some, 0);
        ck_assert_int_eq(lease_left(&again.lease, again.now_us), held);
        struct lease_order order = lease_make_order(&again.lease, &again.rules, again.now_us, 0, 0, 0);
        ck_assert_int_eq(order.ahead, 100 - held); /* before any request */
        again.lease.is_asked = false;
        order = lease_make_order(&again.lease, &again.rules, again.now_us, held + 30, 0, 0);
        if (held == 0 || held + 30 > 100) /* beside the request's own cost */
            ck_assert(order.whole && order.ahead == 100 - held);
        else /* and with the permits that it lacks */
            ck_assert(!order.whole && order.cost == 30 && order.ahead == 100 - (held + 30) && again.lease.is_asked);
    }
}

TEST(no_permits_are_ordered_in_advance_while_an_order_is_in_flight, 10)
{
    struct key key = fresh_key(WIDE);
    warm_up(&key, 1000);
    const struct lease_order few = lease_of(&key, 5);
    asked(&key, &few, 0);
    const struct lease_order first = lease_make_order(&key.lease, &key.rules, key.now_us, 0, 0, 0);
    ck_assert_int_gt(first.ahead, 0);
    ck_assert(key.lease.is_asked);
    const struct lease_order second = lease_make_order(&key.lease, &key.rules, key.now_us, 7, 0, 0);
    ck_assert(second.whole && second.cost == 7 && second.ahead == 0); /* not even the missing permits */
    asked(&key, &second, 0);
    ck_assert(key.lease.is_asked); /* still: that answer was the request's own */
    asked(&key, &first, 0);
    ck_assert(!key.lease.is_asked);
}

TEST(missing_permits_count_as_ordered_until_their_answer_or_failure, 10)
{
    struct key key = fresh_key(WIDE);
    const struct lease_order few = lease_of(&key, 5);
    asked(&key, &few, 0);
    key.lease.known_us -= LIFE_US; /* so seldom that nothing is ordered beyond the load */
    for (int fails = 0; fails < 2; fails++) {
        const struct lease_order first = lease_make_order(&key.lease, &key.rules, key.now_us, 20 + fails, 0, 0);
        ck_assert(!first.whole && first.ahead == 0 && key.lease.is_asked);
        ck_assert(lease_make_order(&key.lease, &key.rules, key.now_us, 20 + fails, 0, 0).whole);
        struct lease_order old = first;
        old.era--;
        lease_order_failed(&key.lease, &old);
        ck_assert(key.lease.is_asked); /* that answer was for another lease */
        if (fails)
            lease_order_failed(&key.lease, &first);
        else
            asked(&key, &first, 0);
        ck_assert(!key.lease.is_asked);
    }
}

/* ---- How long ---- */

static bool can_spend(struct key *key, int64_t at_us)
{
    struct weir_decision decision;
    return lease_decide(&key->lease, at_us, 1, WEIR_PEEK, &decision) == LEASE_SPENT;
}

/* Lease at `offset_us` into an interval, and return when the lease ends. */
static void check_end(const char *policy, int64_t offset_us, int64_t end_us)
{
    struct key key = fresh_key(policy);
    struct weir_decision first;
    state_decide(&key.lease.plan, key.state, key.now_us, 1, WEIR_TAKE, &first); /* an interval or window begins */
    key.now_us += offset_us;
    const struct lease_order order = lease_of(&key, 5);
    asked(&key, &order, 10);
    ck_assert_msg(can_spend(&key, START_US + end_us - 1), "%s: spent until %" PRId64, policy, end_us);
    ck_assert_msg(!can_spend(&key, START_US + end_us), "%s: not at %" PRId64, policy, end_us);
    ck_assert_uint_eq(key.lease.lost, 5);
}

TEST(a_lease_ends_after_its_life_or_at_the_next_edge_of_its_window, 10)
{
    check_end("fixed_window limit=100 period=1s", 7, 7 + LIFE_US);
    check_end("fixed_window limit=100 period=1s", 950000, 1000000);
    check_end("fixed_window limit=100 period=1s align=epoch", 950000, 1000000);
    check_end("sliding_window limit=100 period=1s blocks=20", 7, 50000);
    check_end("sliding_window limit=100 period=1s blocks=20", 149000, 150000);
    check_end("sliding_window limit=100 period=10s blocks=10", 7, 7 + LIFE_US);
    check_end("token_bucket limit=10 period=1s burst=100 refill=interval", 990000, 1000000);
    check_end("token_bucket limit=2 period=1s burst=100 refill=interval", 990000, 1000000);
    check_end("token_bucket limit=10 period=1s burst=100 refill=interval align=epoch", 7, 7 + LIFE_US);
}

/* Giving back what has not refilled yet, and taking it again, would change nothing in Redis. */
TEST(a_greedy_buckets_lease_shrinks_after_its_life_by_what_the_bucket_refills, 10)
{
    struct key key = fresh_key("token_bucket limit=7 period=1s burst=70");
    struct weir_decision decision;
    const struct lease_order order = lease_of(&key, 20);
    asked(&key, &order, 10);
    const int64_t end_us = START_US + LIFE_US;
    ck_assert_int_eq(lease_left(&key.lease, end_us - 1), 20);
    for (int64_t lost = 0; lost < 10; lost++) {
        const int64_t at_us = end_us + lost * WEIR_SECOND / 7;
        ck_assert_int_eq(lease_left(&key.lease, at_us + 1), 20 - lost - 1);
        ck_assert_int_eq(lease_decide(&key.lease, at_us + 1, 1, WEIR_PEEK, &decision), LEASE_SPENT);
        ck_assert(decision.age_us < LIFE_US);
    }
    ck_assert_int_eq(lease_left(&key.lease, end_us + WEIR_DAY), 0);
    ck_assert_uint_eq(key.lease.lost, 20);
}

TEST(an_answer_that_arrives_after_the_leases_end_adds_no_permits, 10)
{
    struct key key = fresh_key(WIDE);
    const struct lease_order order = lease_of(&key, 5);
    asked(&key, &order, LIFE_US);
    ck_assert_int_eq(lease_left(&key.lease, key.now_us), 0);
    ck_assert_uint_eq(key.lease.lost, 5);
}

TEST(the_older_permits_are_spent_first, 10)
{
    struct weir_decision decision;
    struct key key = fresh_key(WIDE);
    const struct lease_order order = lease_of(&key, 5);
    asked(&key, &order, 10);
    asked(&key, &order, 10);
    ck_assert_int_eq(lease_left(&key.lease, key.now_us), 10);
    ck_assert_int_eq(lease_decide(&key.lease, key.now_us, 7, WEIR_TAKE, &decision), LEASE_SPENT);
    ck_assert_int_eq(decision.age_us, 20);
    ck_assert_int_eq(lease_left(&key.lease, START_US + LIFE_US), 3);
    ck_assert_int_eq(lease_left(&key.lease, START_US + 10 + LIFE_US), 2);
    ck_assert_uint_eq(key.lease.lost, 1);
}

TEST(a_third_grant_joins_the_second_and_takes_the_older_time, 10)
{
    for (int64_t asked_us = START_US + 5; asked_us <= START_US + 20; asked_us += 15) {
        struct key key = fresh_key(WIDE);
        struct lease *lease = &key.lease;
        const int64_t at_us[] = { START_US, START_US + 10, asked_us };
        const int64_t oldest_us = asked_us < at_us[1] ? asked_us : at_us[1];
        for (int i = 0; i < 3; i++) {
            const struct lease_order order = lease_of(&key, 1 << i);
            const struct weir_decision told = { .allowed = true, .ahead = 1 << i };
            lease_answered(lease, &key.rules, &order, at_us[i], START_US + 30, &told);
        }
        ck_assert(lease->batches[0].left == 1 && lease->batches[0].asked_us == START_US);
        ck_assert(lease->batches[1].left == 2 + 4 && lease->batches[1].asked_us == oldest_us);
        ck_assert_int_eq(lease_left(lease, START_US + LIFE_US - 1), 1 + 2 + 4);
        ck_assert_int_eq(lease_left(lease, oldest_us + LIFE_US - 1), 2 + 4);
        ck_assert_int_eq(lease_left(lease, oldest_us + LIFE_US), 2 + 4 - 1);
    }
}

TEST(leased_permits_of_a_leaky_bucket_are_time_slots_that_expire, 10)
{
    struct weir_decision decision;
    struct key key = fresh_key("leaky_bucket limit=1000 period=1s capacity=100");
    const struct lease_order order = { .era = key.lease.era, .cost = 1, .ahead = 10, .spread = 1, .whole = true };
    asked(&key, &order, 100); /* departs immediately; the ten after it every 1,000 us */
    const int64_t base_us = key.now_us;
    for (int slot = 1; slot <= 3; slot++) {
        ck_assert_int_eq(lease_decide(&key.lease, key.now_us, 1, WEIR_TAKE, &decision), LEASE_SPENT);
        ck_assert_int_eq(key.now_us + decision.delay_us, base_us + slot * 1000);
    }
    key.now_us = base_us + 4000; /* the fourth is due now */
    ck_assert_int_eq(lease_left(&key.lease, key.now_us), 7);
    key.now_us++; /* and now it has passed */
    ck_assert_int_eq(lease_left(&key.lease, key.now_us), 6);
    ck_assert_uint_eq(key.lease.lost, 1);
    ck_assert_int_eq(lease_decide(&key.lease, key.now_us, 2, WEIR_TAKE, &decision), LEASE_SPENT);
    ck_assert_int_eq(key.now_us + decision.delay_us, base_us + 5000);
    key.now_us = base_us + 9500;
    ck_assert_int_eq(lease_left(&key.lease, key.now_us), 1);
    key.now_us = base_us + 10001;
    ck_assert_int_eq(lease_left(&key.lease, key.now_us), 0);
    ck_assert_uint_eq(key.lease.lost, 5);
}

TEST(slots_of_a_leaky_bucket_with_an_uneven_rate_are_never_early, 10)
{
    struct weir_decision decision;
    struct key key = fresh_key("leaky_bucket limit=7 period=1s capacity=100");
    key.lease.life_us = key.lease.life_max_us = 10 * WEIR_SECOND;
    const struct lease_order order = { .era = key.lease.era, .cost = 3, .ahead = 40, .spread = 1, .whole = true };
    asked(&key, &order, 0);
    for (int64_t slot = 3; slot < 43; slot++) {
        ck_assert_int_eq(lease_decide(&key.lease, key.now_us, 1, WEIR_TAKE, &decision), LEASE_SPENT);
        ck_assert_int_eq(decision.delay_us, (slot * WEIR_SECOND + 6) / 7);
    }
}

/* Found by fuzzing: a denial then held for longer than the pace that explains it. */
TEST(an_older_answer_that_arrives_late_sets_nothing_back, 10)
{
    struct key key = fresh_key("token_bucket limit=1000 period=1s");
    const struct lease_order one = { .era = key.lease.era, .cost = 1, .spread = 1, .whole = true };
    const struct weir_decision latest = { .allowed = true, .remaining = 5, .reset_after_us = WEIR_SECOND };
    const struct weir_decision older = { .allowed = true, .remaining = 9, .reset_after_us = 3 * WEIR_SECOND };
    key.lease.is_known = true;
    lease_answered(&key.lease, &key.rules, &one, START_US + 10, START_US + 20, &latest);
    lease_answered(&key.lease, &key.rules, &one, START_US, START_US + 30, &older);
    ck_assert_int_eq(key.lease.rivals_until_us, START_US + 10 + WEIR_SECOND);
    ck_assert_int_eq(key.lease.known_us, START_US + 10);
    ck_assert_int_eq(key.lease.remaining, 5);
}

/* Compare with the slots: the n-th departs at slot_us + ceil(n * q / p) ticks and can be spent until then. */
TEST(a_slot_is_skipped_exactly_when_its_time_has_passed, 10)
{
    static const char *const policies[] = {
        "leaky_bucket limit=1000 period=1s capacity=100", "leaky_bucket limit=7 period=1s capacity=100",
        "leaky_bucket limit=3000000 period=1s capacity=100",
        "leaky_bucket limit=999983 period=1d capacity=1000000", /* its tick is 10 us */
    };
    enum { SLOTS = 40, FIRST = 3 };
    struct chance chance = chance_make(4);
    for (size_t p = 0; p < sizeof policies / sizeof policies[0]; p++) {
        struct key key = fresh_key(policies[p]);
        const struct weir_plan plan = key.lease.plan;
        ck_assert(plan.tick_us == (p == 3 ? 10 : 1));
        key.lease.life_us = key.lease.life_max_us = 366 * WEIR_DAY;
        const struct lease_order order = { .era = 1, .cost = FIRST, .ahead = SLOTS, .spread = 1, .whole = true };
        key.lease.era = 1;
        asked(&key, &order, chance_between(&chance, 0, 9));
        int64_t departs_us[SLOTS], left = SLOTS;
        for (int64_t n = 0; n < SLOTS; n++)
            departs_us[n] = key.now_us + ((n + FIRST) * plan.q + plan.p - 1) / plan.p * plan.tick_us;
        while (left > 0) {
            ck_assert_int_eq(lease_left(&key.lease, key.now_us), left);
            ck_assert_uint_eq(key.lease.lost, (uint64_t)(SLOTS - left));
            const int64_t gap_us = chance_one_in(&chance, 3) ? 0 : chance_magnitude(&chance, 2 * plan.q / plan.p + 20);
            key.now_us = chance_one_in(&chance, 4) ? departs_us[SLOTS - left] + chance_between(&chance, 0, 1)
                                                   : key.now_us + gap_us;
            while (left > 0 && departs_us[SLOTS - left] < key.now_us)
                left--;
        }
        ck_assert_int_eq(lease_left(&key.lease, key.now_us), 0);
    }
}

TEST(permits_taken_from_a_lease_can_be_refunded_while_it_lasts, 10)
{
    struct weir_decision decision;
    struct key key = fresh_key(WIDE);
    const struct lease_order order = lease_of(&key, 5);
    asked(&key, &order, 10);
    ck_assert_int_eq(lease_decide(&key.lease, key.now_us, 5, WEIR_TAKE, &decision), LEASE_SPENT);
    lease_give_back(&key.lease, &key.rules, key.lease.era, key.now_us - decision.age_us, 5);
    ck_assert_int_eq(lease_left(&key.lease, key.now_us), 5);
    ck_assert_int_eq(lease_left(&key.lease, START_US + LIFE_US), 4); /* no longer than before */
    lease_give_back(&key.lease, &key.rules, key.lease.era, 77, 5);
    ck_assert_int_eq(lease_left(&key.lease, key.now_us), 4);
    ck_assert_uint_eq(key.lease.lost, 6);
}

TEST(permits_refunded_beyond_the_largest_lease_are_lost, 10)
{
    struct weir_decision decision;
    struct key key = fresh_key(WIDE);
    key.rules.max = 8;
    const struct lease_order order = lease_of(&key, 8);
    asked(&key, &order, 0);
    ck_assert_int_eq(lease_decide(&key.lease, key.now_us, 5, WEIR_TAKE, &decision), LEASE_SPENT);
    key.now_us += 10;
    const struct lease_order meanwhile = lease_of(&key, 3);
    asked(&key, &meanwhile, 0);
    lease_give_back(&key.lease, &key.rules, key.lease.era, START_US, 5);
    ck_assert_int_eq(lease_left(&key.lease, key.now_us), 8);
    ck_assert_uint_eq(key.lease.lost, 3);
    ck_assert_int_eq(lease_left(&key.lease, START_US + LIFE_US), 7); /* it returned to its own batch */
}

/* A lease as Redis grants it, which says when it has charged. */
static struct key key_with_lease(const char *policy, int64_t permits)
{
    struct key key = fresh_key(policy);
    key.rules.life_us = WEIR_DAY;
    key.rules.excess = 5;
    lease_renew(&key.lease, &key.rules, &key.lease.plan, 2);
    const struct lease_order order = lease_of(&key, permits);
    asked(&key, &order, 0);
    key.lease.used_us = START_US;
    return key;
}

TEST(permits_of_an_unused_lease_are_given_back_once, 10)
{
    static const struct {
        const char *policy;
        int64_t idle_us;
    } table[] = {
        { "fixed_window limit=1000 period=1h", WEIR_HOUR / 32 },
        { "token_bucket limit=1000 period=1h", 3 * WEIR_MINUTE / 2 },
        { "sliding_window limit=1000 period=10h", WEIR_HOUR / 2 },
        { "token_bucket limit=1000 period=1h refill=interval", WEIR_HOUR / 32 },
    };
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        struct key key = key_with_lease(table[i].policy, 100);
        int64_t charged_us;
        ck_assert_int_eq(lease_take_rest(&key.lease, START_US + table[i].idle_us - 1, false, &charged_us), 0);
        ck_assert_int_eq(lease_take_rest(&key.lease, START_US + table[i].idle_us, false, &charged_us), 100);
        ck_assert_int_eq(charged_us, START_US);
        ck_assert_int_eq(lease_left(&key.lease, START_US + table[i].idle_us), 0);
        ck_assert_uint_eq(key.lease.lost, 100);
        ck_assert_int_eq(lease_take_rest(&key.lease, START_US + 2 * table[i].idle_us, false, &charged_us), 0);
    }
    int64_t charged_us;
    struct key few = key_with_lease("fixed_window limit=1000 period=1h", 15); /* not worth a call */
    ck_assert_int_eq(lease_take_rest(&few.lease, START_US + WEIR_HOUR / 2, false, &charged_us), 0);
    struct key slots = key_with_lease("leaky_bucket limit=1000 period=1h", 100);
    ck_assert_int_eq(lease_take_rest(&slots.lease, START_US + WEIR_HOUR / 64, false, &charged_us), 0);
}

TEST(a_lease_that_ends_with_its_sliding_window_block_is_given_back, 10)
{
    struct key key = key_with_lease("sliding_window limit=1000 period=10m blocks=10", 7);
    int64_t charged_us;
    key.lease.used_us = START_US + WEIR_MINUTE - 1;
    ck_assert_int_eq(lease_left(&key.lease, START_US + WEIR_MINUTE), 0);
    ck_assert_int_eq(lease_take_rest(&key.lease, START_US + WEIR_MINUTE, false, &charged_us), 7);
    ck_assert_int_eq(charged_us, START_US);
    struct key old = key_with_lease("fixed_window limit=1000 period=1m", 700);
    ck_assert_int_eq(lease_take_rest(&old.lease, START_US + WEIR_MINUTE, false, &charged_us),
                     0); /* the window has ended */
}

/* ---- Leases do not age while permits that were used here have not refilled ---- */

#define SLOW "token_bucket limit=1000 period=1h" /* a permit in 3.6 s; a life lasts 3 minutes */
#define SLOW_PERMIT_US (WEIR_HOUR / 1000)
#define SLOW_LIFE_US (3 * WEIR_MINUTE)

/* Use permits of the lease. */
static void spend_leased(struct key *key, int64_t cost)
{
    struct weir_decision decision;
    ck_assert_int_eq(lease_decide(&key->lease, key->now_us, cost, WEIR_TAKE, &decision), LEASE_SPENT);
    lease_spent_is_used(&key->lease, key->now_us, cost);
}

TEST(a_lease_stays_whole_until_the_permits_used_from_it_have_refilled, 10)
{
    struct key key = key_with_lease(SLOW, 100);
    spend_leased(&key, 40);
    const int64_t young_us = 40 * SLOW_PERMIT_US;
    ck_assert_int_eq(lease_left(&key.lease, START_US + SLOW_LIFE_US + young_us - 1), 60);
    ck_assert_int_eq(lease_left(&key.lease, START_US + SLOW_LIFE_US + young_us), 59);
    ck_assert_int_eq(lease_left(&key.lease, START_US + SLOW_LIFE_US + young_us + 10 * SLOW_PERMIT_US), 49);
}

TEST(a_later_grant_stays_whole_until_earlier_used_permits_have_refilled, 10)
{
    struct key key = key_with_lease(SLOW, 40);
    spend_leased(&key, 40);
    key.now_us += SLOW_PERMIT_US;
    const struct lease_order order = lease_of(&key, 100);
    asked(&key, &order, 0);
    ck_assert_int_eq(lease_left(&key.lease, START_US + SLOW_LIFE_US + 40 * SLOW_PERMIT_US - 1), 100);
    ck_assert_int_eq(lease_left(&key.lease, START_US + SLOW_LIFE_US + 40 * SLOW_PERMIT_US), 99);
}

/* Permits of a request that Redis decided count from the time at which it was sent: the request may have ended before
 * the answer arrived. */
TEST(permits_used_by_an_answer_count_from_the_time_of_its_request, 10)
{
    struct key key = key_with_lease(SLOW, 100);
    lease_used(&key.lease, START_US, START_US + SLOW_PERMIT_US, 5);
    ck_assert_int_eq(lease_left(&key.lease, START_US + SLOW_LIFE_US + 4 * SLOW_PERMIT_US - 1), 100);
    ck_assert_int_eq(lease_left(&key.lease, START_US + SLOW_LIFE_US + 4 * SLOW_PERMIT_US), 99);
}

/* Otherwise instances could hold permits back, use them at the end of a life, and so keep other leases young that Redis
 * has charged since. Their excesses would add up. */
TEST(permits_that_would_have_expired_without_the_lease_life_do_not_extend_it, 10)
{
    struct key key = key_with_lease(SLOW, 10);
    key.now_us = START_US + SLOW_LIFE_US - 1;
    spend_leased(&key, 10);
    const struct lease_order order = lease_of(&key, 20);
    asked(&key, &order, 0);
    ck_assert_int_eq(lease_left(&key.lease, key.now_us + SLOW_LIFE_US), 19);
}

TEST(lease_life_bounds_the_leases_of_busy_keys_too, 10)
{
    struct key key = fresh_key(SLOW);
    key.rules.excess = 5;
    key.rules.life_us = 4 * WEIR_MINUTE;
    lease_renew(&key.lease, &key.rules, &key.lease.plan, 2);
    const struct lease_order order = lease_of(&key, 100);
    asked(&key, &order, 0);
    spend_leased(&key, 40);
    ck_assert_int_eq(lease_left(&key.lease, START_US + 4 * WEIR_MINUTE - 1), 60);
    ck_assert_int_eq(lease_left(&key.lease, START_US + 4 * WEIR_MINUTE), 59);
}

TEST(permits_given_back_from_a_busy_key_count_as_charged_later, 10)
{
    struct key key = key_with_lease(SLOW, 100);
    int64_t charged_us;
    spend_leased(&key, 40); /* they refill in 144 s */
    ck_assert_int_eq(lease_take_rest(&key.lease, START_US + SLOW_LIFE_US / 2, false, &charged_us), 60);
    ck_assert_int_eq(charged_us, START_US + SLOW_LIFE_US / 2);
    struct key other = key_with_lease(SLOW, 100);
    spend_leased(&other, 20);
    ck_assert_int_eq(lease_take_rest(&other.lease, START_US + SLOW_LIFE_US / 2, false, &charged_us), 80);
    ck_assert_int_eq(charged_us, START_US + 20 * SLOW_PERMIT_US);
}

TEST(lease_life_bounds_the_lease_and_not_what_goes_back, 10)
{
    struct key key = fresh_key(SLOW);
    int64_t charged_us;
    key.rules.excess = 5;
    key.rules.life_us = 4 * WEIR_MINUTE;
    lease_renew(&key.lease, &key.rules, &key.lease.plan, 2);
    const struct lease_order order = lease_of(&key, 500);
    asked(&key, &order, 0);
    spend_leased(&key, 200); /* they refill in 12 minutes */
    lease_unused(&key.lease, 50);
    ck_assert_int_eq(lease_left(&key.lease, START_US + 4 * WEIR_MINUTE - 1), 300);
    ck_assert_int_eq(lease_take_rest(&key.lease, START_US + 3 * WEIR_MINUTE, true, &charged_us), 300);
    ck_assert_int_eq(charged_us, START_US + 3 * WEIR_MINUTE); /* it has not aged: all of it comes back */
}

/* Found by a model: Redis dates such use to the charge of its lease. If the instance does not, the excess adds up. */
TEST(leases_that_are_used_late_and_returned_stay_within_the_excess_together, 10)
{
    struct key key = fresh_key("token_bucket limit=100 period=1s burst=1000");
    struct weir_decision decision;
    key.rules.excess = 5;
    key.rules.life_us = WEIR_MAX_PERIOD_US;
    key.rules.instances = 2;
    lease_renew(&key.lease, &key.rules, &key.lease.plan, 2);
    const int64_t burst = key.lease.plan.size, over_max = lease_over_max(&key.rules, &key.lease.plan);
    int64_t used_us = 0; /* when all that was used will have refilled; 10 ms a permit */
    for (int i = 0; i < 6; i++) {
        int64_t charged_us;
        const struct lease_order order = lease_of(&key, 250);
        asked(&key, &order, 0);
        key.now_us = max_of(key.now_us, key.lease.busy_us) + key.lease.life_us * 98 / 100;
        spend_leased(&key, 200);
        key.lease.used_us = key.now_us;
        used_us = max_of(used_us, key.now_us) + 200 * 10000;
        key.now_us += key.lease.life_us / 2 + 1;
        const int64_t back = lease_take_rest(&key.lease, key.now_us, false, &charged_us);
        ck_assert_int_gt(back, 0);
        state_return(&key.lease.plan, key.state, NULL, key.now_us, charged_us, back, &decision);
    }
    state_decide(&key.lease.plan, key.state, key.now_us, 1, WEIR_PEEK, &decision);
    const int64_t used = div_up(used_us - key.now_us, 10000) + decision.remaining;
    ck_assert_msg(used <= burst + over_max, "%" PRId64 " at once, of %" PRId64 " + %" PRId64, used, burst, over_max);
}

/* Found by a model. */
TEST(a_use_that_refilled_before_the_charge_makes_no_return_younger, 10)
{
    struct key key = fresh_key(SLOW);
    int64_t charged_us;
    key.rules.excess = 5;
    key.rules.life_us = WEIR_MAX_PERIOD_US;
    lease_renew(&key.lease, &key.rules, &key.lease.plan, 2);
    lease_used(&key.lease, key.now_us, key.now_us, 10);
    const struct lease_order order = lease_of(&key, 100);
    const int64_t asked_us = key.now_us;
    key.now_us += 10 * SLOW_PERMIT_US; /* on its way */
    const struct weir_decision decision = store_decides(&key, &order);
    lease_answered(&key.lease, &key.rules, &order, asked_us, key.now_us, &decision);
    key.now_us += WEIR_SECOND;
    ck_assert_int_eq(lease_take_rest(&key.lease, key.now_us, true, &charged_us), 100);
    ck_assert_int_eq(charged_us, key.now_us - WEIR_SECOND); /* it has aged since it was charged */
}

/* Found by a model. */
TEST(an_order_ages_on_its_way_until_permits_are_used_here, 10)
{
    struct key key = fresh_key(SLOW);
    key.rules.excess = 5;
    key.rules.life_us = WEIR_MAX_PERIOD_US;
    lease_renew(&key.lease, &key.rules, &key.lease.plan, 2);
    const struct lease_order order = lease_of(&key, 100);
    const int64_t asked_us = key.now_us;
    const struct weir_decision decision = store_decides(&key, &order);
    key.now_us += WEIR_MINUTE;
    lease_used(&key.lease, key.now_us, key.now_us, 10);
    lease_answered(&key.lease, &key.rules, &order, asked_us, key.now_us, &decision);
    const int64_t end_us = key.now_us + 10 * SLOW_PERMIT_US + SLOW_LIFE_US - WEIR_MINUTE;
    ck_assert_int_eq(lease_left(&key.lease, end_us - 1), 100);
    ck_assert_int_eq(lease_left(&key.lease, end_us), 99);
}

/* Found by a model: an answer may follow use that came after its request. */
TEST(use_that_is_known_late_refills_from_its_request_on, 10)
{
    struct key key = key_with_lease(SLOW, 100);
    key.now_us += WEIR_MINUTE;
    spend_leased(&key, 1);
    lease_used(&key.lease, START_US, key.now_us, 2); /* has refilled since */
    ck_assert_int_eq(key.lease.busy_us, key.now_us + SLOW_PERMIT_US);
    lease_used(&key.lease, START_US, key.now_us, 30);
    ck_assert_int_eq(key.lease.busy_us, START_US + 30 * SLOW_PERMIT_US);
}

TEST(refunded_permits_do_not_extend_a_lease, 10)
{
    struct key key = key_with_lease(SLOW, 100);
    spend_leased(&key, 40);
    lease_give_back(&key.lease, &key.rules, key.lease.era, START_US, 40);
    ck_assert_int_eq(lease_left(&key.lease, START_US + SLOW_LIFE_US - 1), 100);
    ck_assert_int_eq(lease_left(&key.lease, START_US + SLOW_LIFE_US), 99);
}

/* Found by fuzzing: permits on their way came on top of those given back before they arrived. */
TEST(permits_refunded_while_an_order_is_in_flight_count_towards_the_largest_lease, 10)
{
    struct weir_decision decision;
    struct key key = fresh_key(WIDE);
    key.rules.max = 8;
    const struct lease_order first = lease_of(&key, 8);
    asked(&key, &first, 0);
    key.lease.known_us -= LIFE_US;
    ck_assert_int_eq(lease_decide(&key.lease, key.now_us, 8, WEIR_TAKE, &decision), LEASE_SPENT);
    lease_count(&key.lease, key.now_us, 6);
    lease_count(&key.lease, key.now_us, 1);
    const struct lease_order order = lease_make_order(&key.lease, &key.rules, key.now_us, 1, 0, 0);
    ck_assert(order.ahead > 0 && order.ahead < 8);
    lease_give_back(&key.lease, &key.rules, key.lease.era, START_US, 8);
    ck_assert_int_eq(lease_left(&key.lease, key.now_us), 8 - order.ahead);
    asked(&key, &order, 10);
    ck_assert_int_eq(lease_left(&key.lease, key.now_us), 8);
    ck_assert_int_eq((int64_t)key.lease.lost, order.ahead);
}

TEST(permits_refunded_to_a_lease_of_another_era_are_lost, 10)
{
    struct weir_decision decision;
    struct key key = fresh_key(WIDE);
    const struct lease_order old = lease_of(&key, 5);
    asked(&key, &old, 0);
    ck_assert_int_eq(lease_decide(&key.lease, key.now_us, 5, WEIR_TAKE, &decision), LEASE_SPENT);
    const uint64_t era = key.lease.era;
    const struct weir_plan plan = plan_for(WIDE);
    lease_renew(&key.lease, &key.rules, &plan, 2);
    const struct lease_order other = lease_of(&key, 2);
    asked(&key, &other, 0); /* at the same time */
    lease_give_back(&key.lease, &key.rules, era, START_US, 5);
    ck_assert_int_eq(lease_left(&key.lease, key.now_us), 2);
    ck_assert_uint_eq(key.lease.lost, 5);
}

/* ---- The exact size of an order ---- */

/* Return the permits ordered ahead for a request of `cost`, with `waiting` more, at a load of a hundred. */
static int64_t ahead_at(const struct lease *lease, const struct lease_rules *rules, int64_t cost, int64_t waiting)
{
    struct lease again = *lease;
    again.count = 100 + cost;
    again.turn_us = START_US + LIFE_US / 2;
    return lease_make_order(&again, rules, START_US, cost, waiting, 0).ahead;
}

TEST(the_average_moves_by_a_quarter_of_the_difference_each_half_life, 10)
{
    struct key key = fresh_key(WIDE);
    struct lease *lease = &key.lease;
    const int64_t half_us = LIFE_US / 2, start_us = START_US + 12345;
    lease_count(lease, start_us, 100);
    lease_count(lease, start_us + half_us - 1, 20);
    ck_assert(lease->count == 120 && lease->average == 0 && lease->turn_us == start_us + half_us);
    lease_count(lease, start_us + half_us, 40);
    ck_assert(lease->count == 40 && lease->average == 480 && lease->turn_us == start_us + 2 * half_us);
    lease_count(lease, start_us + 4 * half_us - 1, 5); /* two turns, the second one without requests */
    ck_assert(lease->count == 5 && lease->average == 390 && lease->turn_us == start_us + 4 * half_us);
    static const int64_t falls[] = { 313, 235, 177, 133, 100, 75, 57, 43, 33, 25, 19, 15, 12, 9, 7, 6, 5, 4, 0, 0 };
    for (int i = 0; i < 20; i++) {
        lease_count(lease, start_us + (4 + i) * half_us, 0);
        ck_assert_int_eq(lease->average, falls[i]);
    }
    lease_count(lease, start_us + INT64_C(1000000000) * half_us, 7); /* after any time */
    ck_assert(lease->count == 7 && lease->turn_us == start_us + INT64_C(1000000001) * half_us);
}

TEST(a_clock_step_back_of_a_lease_life_restarts_the_load_count, 10)
{
    struct key key = fresh_key(WIDE);
    struct lease *lease = &key.lease;
    lease_count(lease, START_US, 100);
    const int64_t turn_us = lease->turn_us;
    lease_count(lease, turn_us - LIFE_US, 1);
    ck_assert(lease->count == 101 && lease->turn_us == turn_us);
    lease->average = 160;
    lease_count(lease, turn_us - LIFE_US - 1, 1);
    ck_assert(lease->count == 1 && lease->turn_us == turn_us - LIFE_US - 1 + LIFE_US / 2 && lease->average == 160);
}

TEST(an_order_covers_the_load_an_eighth_more_and_all_waiting_requests, 10)
{
    struct key key = half_used_key("fixed_window limit=1000000 period=1s");
    key.rules.instances = 3;
    ck_assert_int_eq(ahead_at(&key.lease, &key.rules, 5, 0), 112);
    ck_assert_int_eq(ahead_at(&key.lease, &key.rules, 5, 30), 142);
    ck_assert_int_eq(ahead_at(&key.lease, &key.rules, 0, 0), 113); /* before any request, without its own cost */
    key.lease.turn_us = START_US + LIFE_US / 2;
    for (int64_t average = 792; average < 825; average++) { /* in sixteenths, rounded, if larger than the count */
        struct lease again = key.lease;
        again.average = average;
        again.count = 9;
        const struct lease_order order = lease_make_order(&again, &key.rules, START_US, 9, 0, 0);
        const int64_t load = (average + 8) / 16;
        ck_assert(order.ahead == load + load / 8 && order.spread == 6 && order.whole && !order.alone);
        ck_assert(again.is_asked && again.coming == order.ahead);
    }
    struct lease later = key.lease; /* without requests since then the average falls before it is read */
    later.count = 160;
    ck_assert_int_eq(lease_make_order(&later, &key.rules, START_US + LIFE_US, 0, 0, 0).ahead, 30 + 30 / 8 + 1);
    struct lease seldom = key.lease;
    seldom.average = 7;
    seldom.low = 3;
    const struct lease_order order = lease_make_order(&seldom, &key.rules, START_US, 1, 0, 0);
    ck_assert(order.ahead == 0 && order.alone && !seldom.is_asked && seldom.low == 0);
    seldom.average = 8;
    ck_assert(!lease_make_order(&seldom, &key.rules, START_US, 1, 0, 0).alone);
}

TEST(a_lease_runs_low_if_it_does_not_last_until_an_answer_arrives, 10)
{
    struct key key = fresh_key(WIDE);
    for (int64_t trip_us = 0; trip_us <= LIFE_US / 10; trip_us += 100) {
        struct lease again = key.lease;
        again.count = 100;
        again.turn_us = START_US + LIFE_US / 2;
        lease_make_order(&again, &key.rules, START_US, 0, 0, trip_us);
        ck_assert_int_eq(again.low, 100 / 8 + 2 * 100 * trip_us / (LIFE_US / 2));
        again.batches[0].left = again.low;
        ck_assert(lease_runs_low(&again));
        again.scarce = true;
        ck_assert(!lease_runs_low(&again));
        again.scarce = false;
        again.batches[1].left = 1;
        ck_assert(!lease_runs_low(&again));
        again.batches[1].left = 0;
        again.batches[0].left++;
        ck_assert(!lease_runs_low(&again));
    }
    struct lease none = key.lease;
    ck_assert(!lease_runs_low(&none));
}

TEST(an_order_covers_no_more_than_can_be_used_before_the_next_refill, 10)
{
    /* The time at which permits come back, from now; half a life of 50 ms asks for a hundred. */
    static const struct {
        const char *policy;
        int64_t ahead_us, permits;
    } table[] = {
        { "fixed_window limit=1000000 period=30ms align=epoch", 20000, 40 },
        { "fixed_window limit=1000000 period=30ms align=epoch", 50000, 40 },
        { "fixed_window limit=1000000 period=30ms align=epoch", 30000, 60 },
        { "fixed_window limit=1000000 period=30ms align=epoch", 500, 1 },
        { "fixed_window limit=1000000 period=30ms align=epoch", 499, 0 },
        { "fixed_window limit=1000000 period=30ms align=epoch", 0, 60 },
        { "fixed_window limit=1000000 period=30ms align=epoch", -10000, 40 },
        { "fixed_window limit=1000000 period=30ms align=epoch", -40000, 40 },
        { "fixed_window limit=1000000 period=30ms", 20000, 40 },
        { "fixed_window limit=1000000 period=30ms", 0, 100 }, /* a window begins with its first request */
        { "fixed_window limit=1000000 period=30ms", -10000, 100 },
        { "sliding_window limit=1000000 period=30ms blocks=1", -10000, 40 },
        { "fixed_window limit=1000000 period=1s", 900000, 100 },
    };
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        struct key key = half_used_key(table[i].policy);
        key.lease.edge_us = START_US + table[i].ahead_us;
        key.lease.life_us = LIFE_US;
        key.lease.turn_len_us = LIFE_US / 2;
        const int64_t permits = table[i].permits;
        const bool slides = key.lease.plan.algorithm == WEIR_SLIDING_WINDOW; /* which regains the rest late */
        ck_assert_int_eq(ahead_at(&key.lease, &key.rules, 1, 0), slides ? permits / 2 : permits + permits / 8);
    }
}

/* ---- Denials ---- */

TEST(a_denial_holds_for_its_cost_and_more_until_it_may_change, 10)
{
    struct weir_decision decision;
    struct key key = fresh_key("token_bucket limit=10 period=1s");
    take(&key, 8);
    key.now_us += 1000;
    decision = take(&key, 4);
    ck_assert(!decision.allowed && decision.source == 0);
    ck_assert_int_eq(decision.retry_after_us, 200000 - 1000);
    key.asked = 0;
    key.now_us += 50000;
    decision = take(&key, 4);
    ck_assert(!decision.allowed && decision.source == WEIR_BY_DENIAL);
    ck_assert_int_eq(decision.retry_after_us, 149000);
    ck_assert_int_eq(decision.age_us, 50000);
    decision = take(&key, 5); /* one more takes 100,000 us more */
    ck_assert(!decision.allowed && decision.retry_after_us == 249000);
    ck_assert_int_eq(key.asked, 0);
    ck_assert(take(&key, 2).allowed); /* a lower cost than the denied one asks the store */
    ck_assert_int_eq(key.asked, 1);
    key.now_us = START_US + 200000;
    ck_assert(!take(&key, 4).allowed);
    ck_assert_int_eq(key.asked, 2); /* the state may have changed: the store was asked again */
}

TEST(a_cost_above_the_limit_is_denied_for_ever_and_asked_for_once_a_second, 10)
{
    struct key key = fresh_key("fixed_window limit=10 period=1m");
    for (int i = 0; i < 100; i++, key.now_us += 30000)
        ck_assert_int_eq(take(&key, 11).retry_after_us, WEIR_NEVER);
    ck_assert_int_eq(key.asked, 3);
}

TEST(a_denial_of_a_request_sent_before_a_refund_is_not_cached, 10)
{
    struct weir_decision decision, refunded = { 0 };
    struct key key = fresh_key("fixed_window limit=10 period=1m");
    take(&key, 10);
    const struct weir_plan plan = key.lease.plan;
    for (int late_us = 0; late_us < 2; late_us++) {
        const struct lease_order order = { .era = key.lease.era, .cost = 3, .whole = true };
        const int64_t asked_us = key.now_us;
        const struct weir_decision denied = store_decides(&key, &order);
        ck_assert(!denied.allowed);
        state_decide(&plan, key.state, key.now_us, 3, WEIR_REFUND, &refunded);
        lease_refunded(&key.lease, key.now_us, key.now_us + late_us, &refunded);
        key.now_us += 10;
        lease_answered(&key.lease, &key.rules, &order, asked_us, key.now_us, &denied);
        ck_assert_int_eq(lease_decide(&key.lease, key.now_us, 3, WEIR_TAKE, &decision), LEASE_UNDECIDED);
        ck_assert(take(&key, 3).allowed);
    }
    ck_assert(!take(&key, 3).allowed);
    ck_assert_int_eq(take(&key, 3).source, WEIR_BY_DENIAL); /* a denial requested after the refund holds */
}

TEST(a_request_larger_than_the_lease_orders_the_missing_permits, 10)
{
    struct key key = fresh_key("fixed_window limit=10 period=1m");
    const struct lease_order order = lease_of(&key, 6);
    asked(&key, &order, 0);
    const struct weir_decision decision = take(&key, 10);
    ck_assert(decision.allowed && decision.source == WEIR_BY_LEASE && decision.remaining == 0);
    ck_assert(!take(&key, 1).allowed);
}

TEST(a_new_plan_drops_the_leases_and_denials_of_the_old_one, 10)
{
    struct weir_decision decision;
    struct key key = fresh_key("fixed_window limit=10 period=1m");
    const struct lease_order order = lease_of(&key, 6);
    asked(&key, &order, 0);
    take(&key, 11);
    const struct weir_plan plan = plan_for("fixed_window limit=20 period=1m");
    lease_renew(&key.lease, &key.rules, &plan, 2);
    ck_assert_int_eq(lease_decide(&key.lease, key.now_us, 11, WEIR_TAKE, &decision), LEASE_UNDECIDED);
    ck_assert_int_eq(lease_decide(&key.lease, key.now_us, 1, WEIR_TAKE, &decision), LEASE_UNDECIDED);
    ck_assert_uint_eq(key.lease.lost, 6);
}

/* The decision that an answer gives to an earlier request for which the lease does not cover `cost`. */
TEST(an_answer_denies_earlier_requests_as_of_the_time_of_its_request, 10)
{
    /* Take `used` permits, then order `asked_cost` and `asked_ahead`; the answer arrives 1,000 us later. */
    static const struct {
        const char *policy;
        int64_t used, asked_cost, asked_ahead, cost, retry_us; /* 0: no denial */
    } table[] = {
        { "token_bucket limit=10 period=1s", 8, 4, 0, 4, 200000 },
        { "token_bucket limit=10 period=1s", 8, 4, 0, 3, 0 },
        { "token_bucket limit=10 period=1s", 8, 4, 0, 6, 400000 },
        { "token_bucket limit=10 period=1s", 8, 4, 0, 10, 800000 },
        { "token_bucket limit=10 period=1s", 8, 4, 0, 11, WEIR_NEVER },
        { "token_bucket limit=10 period=1s", 8, 11, 0, 11, WEIR_NEVER },
        { "token_bucket limit=10 period=1s", 8, 2, 0, 4, 0 }, /* admitted, and nothing was ordered ahead */
        { "token_bucket limit=10 period=1s", 7, 0, 3, 4, 0 }, /* the whole order was granted: there may be more */
        { "token_bucket limit=10 period=1s", 7, 0, 7, 4,
          100000 }, /* 3 of 7: one more when the next permit comes back */
        { "token_bucket limit=10 period=1s", 7, 0, 7, 3, 0 },
        { "token_bucket limit=10 period=1s", 7, 0, 7, 6, 300000 },
        { "token_bucket limit=10 period=1s burst=20", 17, 0, 7, 4, 100000 },
        { "token_bucket limit=10 period=1s", 10, 0, 7, 1, 100000 },
        { "leaky_bucket limit=10 period=1s", 7, 0, 7, 4, 400000 }, /* slots cannot be combined */
        { "leaky_bucket limit=10 period=1s", 10, 0, 7, 1, 100000 },
        { "fixed_window limit=10 period=1s", 7, 0, 7, 9, 1000000 },
        { "fixed_window limit=10 period=1s", 8, 4, 0, 9, 1000000 },
        { "sliding_window limit=10 period=1s blocks=4", 7, 0, 7, 9, 250000 },
        { "token_bucket limit=2 period=1s refill=interval burst=10", 10, 0, 7, 1, 1000000 },
        { "token_bucket limit=2 period=1s refill=interval burst=10", 10, 0, 7, 2, 1000000 },
        { "token_bucket limit=2 period=1s refill=interval burst=10", 10, 0, 7, 3, 2000000 },
    };
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        struct weir_decision told;
        struct key key = fresh_key(table[i].policy);
        state_decide(&key.lease.plan, key.state, key.now_us, table[i].used, WEIR_TAKE, &told);
        const struct lease_order order = {
            .era = key.lease.era, .cost = table[i].asked_cost, .ahead = table[i].asked_ahead, .spread = 1, .whole = true
        };
        const struct weir_decision decision = asked(&key, &order, 1000);
        const int64_t left = lease_left(&key.lease, key.now_us);
        const bool denied = lease_was_denied(&key.lease, &order, START_US, key.now_us, table[i].cost, &decision, &told);
        ck_assert_msg(denied == (table[i].retry_us != 0), "row %zu", i);
        if (!denied)
            continue;
        ck_assert(!told.allowed && told.source == WEIR_BY_REDIS && told.limit == key.lease.plan.size);
        ck_assert_int_eq(told.remaining, decision.remaining + left);
        ck_assert_int_eq(told.reset_after_us, decision.reset_after_us - 1000);
        ck_assert_msg(told.retry_after_us == table[i].retry_us - (table[i].retry_us == WEIR_NEVER ? 0 : 1000),
                      "row %zu: %" PRId64, i, told.retry_after_us);
        key.lease.era++;
        ck_assert(!lease_was_denied(&key.lease, &order, START_US, key.now_us, table[i].cost, &decision, &told));
        key.lease.era--;
        lease_was_denied(&key.lease, &order, START_US, START_US + WEIR_MINUTE, table[i].cost, &decision, &told);
        ck_assert(told.retry_after_us == (table[i].retry_us == WEIR_NEVER ? WEIR_NEVER : 1) &&
                  told.reset_after_us == 0);
    }
}

TEST(the_last_answer_of_redis_is_recalled_with_its_age, 10)
{
    struct weir_decision told;
    struct key key = fresh_key("token_bucket limit=10 period=1s");
    ck_assert(!lease_recall(&key.lease, key.now_us, &told));
    const struct lease_order order = { .era = key.lease.era, .cost = 2, .ahead = 3, .spread = 1, .whole = true };
    asked(&key, &order, 50);
    ck_assert(lease_recall(&key.lease, START_US + 70, &told));
    ck_assert(told.allowed && told.source == WEIR_BY_LEASE && told.limit == 10 && told.remaining == 5 + 3);
    ck_assert_int_eq(told.age_us, 70);
    ck_assert_int_eq(told.reset_after_us, 500000 - 70);
    ck_assert(lease_recall(&key.lease, START_US - 5, &told) && told.age_us == 0);
    ck_assert(lease_recall(&key.lease, START_US + WEIR_MINUTE, &told));
    ck_assert(told.reset_after_us == 0 && told.remaining == 5); /* the lease has ended */
    ck_assert(!lease_is_ahead(&key.lease, START_US - WEIR_CLOCK_SLACK_US));
    ck_assert(lease_is_ahead(&key.lease, START_US - WEIR_CLOCK_SLACK_US - 1));
    key.lease.is_known = false;
    ck_assert(!lease_is_ahead(&key.lease, START_US - WEIR_CLOCK_SLACK_US - 1));
}

/* ---- The two common cases together: lease_hit() ---- */

static struct lease lease_by_chance(struct chance *chance, const struct lease_rules *rules,
                                    const struct weir_plan *plan)
{
    struct lease lease;
    memset(&lease, 0, sizeof lease);
    lease_renew(&lease, rules, plan, 1);
    for (int i = 0; i < 2; i++)
        lease.batches[i] = (struct lease_batch){ .left = chance_between(chance, 0, 4),
                                                 .asked_us = START_US - chance_between(chance, -1, 20),
                                                 .end_us = START_US + chance_between(chance, -1, 3) };
    if (chance_one_in(chance, 2))
        lease.batches[0].left = lease.batches[1].left = 0;
    if (chance_one_in(chance, 2)) {
        lease.denied_cost = chance_between(chance, 1, 4);
        lease.denied_asked_us = START_US - chance_between(chance, -1, 20);
        lease.denied_until_us = START_US + chance_between(chance, -1, 3);
    }
    lease.batches[1].end_us = lease.batches[0].end_us + chance_between(chance, 0, 2); /* it was ordered later */
    lease.remaining = chance_between(chance, 0, plan->size);
    lease.reset_at_us = START_US + chance_between(chance, -2, 2);
    lease.turn_us = START_US + chance_between(chance, -1, 2) + (chance_one_in(chance, 3) ? LIFE_US : 0);
    lease.count = chance_between(chance, 0, 9);
    lease.average = chance_between(chance, 0, 99);
    return lease;
}

TEST(the_fast_path_of_a_lease_hit_equals_count_and_decide, 10)
{
    static const char *const policies[] = { "token_bucket limit=3 period=1s", "fixed_window limit=9 period=1s",
                                            "leaky_bucket limit=9 period=1s" };
    const struct lease_rules rules = {
        .life_us = LIFE_US, .excess = 100, .denial_us = WEIR_DAY, .max = WEIR_MAX_PERMITS, .instances = 1
    };
    struct chance chance = chance_make(5);
    int64_t answers[LEASE_UNDECIDED + 1] = { 0 };
    for (int i = 0; i < 100000; i++) {
        const struct weir_plan plan = plan_for(policies[i % 3]);
        const struct lease lease = lease_by_chance(&chance, &rules, &plan);
        struct lease hit = lease, decided = lease;
        struct weir_decision hit_told, told;
        const int64_t cost = chance_between(&chance, 1, 4);
        const enum lease_answer answer = lease_hit(&hit, START_US, cost, &hit_told);
        answers[answer]++;
        if (answer == LEASE_UNDECIDED) {
            must(memcmp(&hit, &lease, sizeof lease) == 0, "nothing has happened");
            continue;
        }
        lease_count(&decided, START_US, cost);
        must(lease_decide(&decided, START_US, cost, WEIR_TAKE, &told) == answer, "the same answer");
        assert_decision_is(&hit_told, &told, "by lease_hit() and by lease_decide()");
        must(memcmp(&hit, &decided, sizeof hit) == 0, "and the same is left");
    }
    ck_assert_int_gt(answers[LEASE_SPENT], 1000);
    ck_assert_int_gt(answers[LEASE_DENIED], 500);
}

TEST(a_lease_is_hit_up_to_its_last_permit_and_microsecond, 10)
{
    const struct lease_rules rules = {
        .life_us = LIFE_US, .excess = 100, .denial_us = WEIR_DAY, .max = WEIR_MAX_PERMITS, .instances = 1
    };
    const struct weir_plan plan = plan_for("token_bucket limit=3 period=1s");
    struct weir_decision told;
    struct lease lease;
    memset(&lease, 0, sizeof lease);
    lease_renew(&lease, &rules, &plan, 1);
    lease.turn_us = START_US + LIFE_US / 2;
    lease.denied_cost = 3;
    lease.denied_until_us = START_US + 10;
    lease.batches[0] = (struct lease_batch){ .left = 4, .asked_us = START_US - 20, .end_us = START_US + 5 };
    ck_assert_int_eq(lease_hit(&lease, START_US + 5, 4, &told), LEASE_UNDECIDED);
    ck_assert_int_eq(lease_hit(&lease, START_US + 4, 5, &told), LEASE_UNDECIDED);
    ck_assert_int_eq(lease_hit(&lease, START_US + 4, 4, &told), LEASE_SPENT);
    ck_assert_int_eq(lease_hit(&lease, START_US + 9, 3, &told), LEASE_DENIED); /* a cost of the whole size */
    ck_assert_int_eq(lease_hit(&lease, START_US + 9, 2, &told), LEASE_UNDECIDED);
    ck_assert_int_eq(lease_hit(&lease, START_US + 10, 3, &told), LEASE_UNDECIDED);
    lease.batches[0].left = 1;
    lease.batches[0].end_us = INT64_MAX;
    ck_assert_int_eq(lease_hit(&lease, lease.turn_us, 1, &told), LEASE_UNDECIDED); /* the half life is over */
    ck_assert_int_eq(lease_hit(&lease, lease.turn_us - LIFE_US - 1, 1, &told), LEASE_UNDECIDED);
    ck_assert_int_eq(lease_hit(&lease, lease.turn_us - 1, 1, &told), LEASE_SPENT);
    lease.batches[0].left = 1;
    ck_assert_int_eq(lease_hit(&lease, lease.turn_us - LIFE_US, 1, &told), LEASE_SPENT);
}

TEST(the_next_edge_is_the_time_of_the_next_bulk_refill, 10)
{
    static const struct {
        const char *policy;
        int64_t edge_us; /* after one permit was taken; 0: they come back evenly */
    } table[] = { { "token_bucket limit=10 period=1s", 0 },
                  { "leaky_bucket limit=10 period=1s", 0 },
                  { "fixed_window limit=10 period=1s", WEIR_SECOND },
                  { "sliding_window limit=10 period=1s blocks=4", WEIR_SECOND / 4 },
                  { "token_bucket limit=2 period=1s burst=10 refill=interval", WEIR_SECOND } };
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        struct key key = fresh_key(table[i].policy);
        const struct lease_order nothing = { .era = key.lease.era, .whole = true };
        asked(&key, &nothing, 7);
        ck_assert_int_eq(key.lease.edge_us, 0); /* nothing is used: nothing comes back */
        key.now_us = START_US;
        take(&key, 1);
        ck_assert_int_eq(key.lease.edge_us, table[i].edge_us ? START_US + table[i].edge_us : 0);
    }
}

/* ---- Rules without state ---- */

TEST(the_excess_bound_is_the_refill_of_one_lease_life, 10)
{
    struct lease_rules rules = {
        .life_us = LIFE_US, .excess = 100, .denial_us = WEIR_DAY, .max = WEIR_MAX_PERMITS, .instances = 4
    };
    struct weir_plan plan = plan_for("token_bucket limit=1000 period=1s");
    ck_assert_int_eq(lease_over_max(&rules, &plan), 100);
    ck_assert_int_eq(lease_max(&rules, &plan), 250);
    rules.max = 3;
    ck_assert_int_eq(lease_max(&rules, &plan), 3);
    ck_assert_int_eq(lease_over_max(&rules, &plan), 100); /* there may be more instances than are known */
    rules.excess = 1;
    ck_assert_int_eq(lease_life_us(&rules, &plan), 10000);
    ck_assert_int_eq(lease_over_max(&rules, &plan), 10);
    rules.excess = 100;
    plan = plan_for("token_bucket limit=7 period=1s burst=100");
    ck_assert_int_eq(lease_over_max(&rules, &plan), 1);
    plan = plan_for("token_bucket limit=100 period=1s burst=7"); /* too small for four */
    ck_assert(!lease_is_on(&rules, &plan) && lease_max(&rules, &plan) == 0 && lease_over_max(&rules, &plan) == 0);
    const char *const exact[] = { "fixed_window limit=1000 period=1s", "sliding_window limit=1000 period=1s",
                                  "leaky_bucket limit=1000 period=1s",
                                  "token_bucket limit=1000 period=1s refill=interval" };
    for (size_t i = 0; i < sizeof exact / sizeof *exact; i++) {
        plan = plan_for(exact[i]);
        ck_assert(lease_is_on(&rules, &plan) && lease_over_max(&rules, &plan) == 0);
    }
    rules.life_us = 0;
    ck_assert(!lease_is_on(&rules, &plan) && lease_reserve(&rules, &plan) == 0);
}

TEST(strict_mode_holds_back_one_lease_lifes_refill_or_leases_nothing, 10)
{
    const struct lease_rules rules = { .life_us = LIFE_US,
                                       .excess = 100,
                                       .denial_us = WEIR_DAY,
                                       .max = WEIR_MAX_PERMITS,
                                       .instances = 2,
                                       .strict = true };
    struct weir_plan plan = plan_for("token_bucket limit=1000 period=1s");
    ck_assert_int_eq(lease_reserve(&rules, &plan), 100);
    ck_assert(!lease_is_on(&rules, &plan)); /* as long as the plan does not hold permits back */
    plan_hold_back(&plan, 100);
    ck_assert(lease_is_on(&rules, &plan) && plan.size == 900);
    ck_assert_int_eq(lease_over_max(&rules, &plan), 0);
    plan = plan_for("token_bucket limit=1000 period=1s burst=199");
    ck_assert(lease_reserve(&rules, &plan) == 0 && !lease_is_on(&rules, &plan));
    plan = plan_for("token_bucket limit=1000 period=1s burst=200");
    ck_assert_int_eq(lease_reserve(&rules, &plan), 100);
    plan = plan_for("sliding_window limit=1000 period=1s");
    ck_assert(lease_reserve(&rules, &plan) == 0 && lease_is_on(&rules, &plan));
}

/* Let a key have a lease that has ended, in one grant or in two, and shrinks by a permit a millisecond. */
static struct key shrinking_key(bool in_two)
{
    struct key key = fresh_key("token_bucket limit=1000 period=1s");
    struct lease_order order = lease_of(&key, in_two ? 200 : 300);
    asked(&key, &order, 0);
    key.now_us += 1000;
    order = lease_of(&key, 100);
    if (in_two)
        asked(&key, &order, 0);
    key.now_us += LIFE_US + 10000;
    return key;
}

TEST(an_order_for_lacking_permits_has_those_that_the_lease_loses_until_the_answer, 10)
{
    enum { TRIP_US = 3000 };
    for (int in_two = 0; in_two < 2; in_two++)
        for (int trips = 1; trips <= 2; trips++) {
            struct weir_decision decision;
            struct key key = shrinking_key(in_two);
            const int64_t cost = lease_left(&key.lease, key.now_us) + 5;
            const struct lease_order order = lease_make_order(&key.lease, &key.rules, key.now_us, cost, 0, TRIP_US);
            ck_assert(!order.whole && order.cost == 5);
            ck_assert(asked(&key, &order, trips * TRIP_US).allowed);
            ck_assert_int_eq(lease_decide(&key.lease, key.now_us, cost, WEIR_TAKE, &decision), LEASE_SPENT);
        }
}

TEST(a_request_is_asked_for_as_a_whole_if_lease_max_leaves_no_room_for_what_the_lease_loses, 10)
{
    struct key key = shrinking_key(true);
    const int64_t cost = lease_left(&key.lease, key.now_us) + 5;
    key.rules.max = cost + 5;
    const struct lease_order order = lease_make_order(&key.lease, &key.rules, key.now_us, cost, 0, 3000);
    ck_assert(order.whole);
    ck_assert_int_eq(order.cost, cost);
}

TEST(a_request_is_denied_if_redis_has_too_few_permits_for_what_the_lease_loses, 10)
{
    struct weir_decision decision, denial;
    struct key key = shrinking_key(true);
    const int64_t cost = lease_left(&key.lease, key.now_us) + 5, asked_us = key.now_us;
    const struct lease_order order = lease_make_order(&key.lease, &key.rules, key.now_us, cost, 0, 3000);
    state_decide(&key.lease.plan, key.state, key.now_us, 0, WEIR_PEEK, &decision);
    state_decide(&key.lease.plan, key.state, key.now_us, decision.remaining - 6, WEIR_TAKE, &decision);
    decision = asked(&key, &order, 6000);
    ck_assert(decision.allowed && decision.ahead == 1);
    ck_assert_int_eq(lease_decide(&key.lease, key.now_us, cost, WEIR_TAKE, &denial), LEASE_UNDECIDED);
    ck_assert(lease_was_denied(&key.lease, &order, asked_us, key.now_us, cost, &decision, &denial));
}

TEST(an_account_is_idle_once_dropping_it_loses_nothing, 10)
{
    struct key key = fresh_key(WIDE);
    ck_assert(lease_is_idle(&key.lease, key.now_us, LIFE_US));
    take(&key, 1);
    ck_assert(!lease_is_idle(&key.lease, key.now_us, LIFE_US));
    ck_assert(lease_is_idle(&key.lease, key.now_us + 3 * LIFE_US, LIFE_US));
    load(&key, 100, LIFE_US);
    ck_assert(!lease_is_idle(&key.lease, key.now_us + LIFE_US, LIFE_US));
    key.now_us += 100 * LIFE_US;
    ck_assert(lease_is_idle(&key.lease, key.now_us, LIFE_US));
    key.lease.average = 7; /* sixteenths: not half a permit */
    ck_assert(lease_is_idle(&key.lease, key.now_us, LIFE_US));
    key.lease.average = 8;
    ck_assert(!lease_is_idle(&key.lease, key.now_us, LIFE_US));
    key.lease.average = 0;
    key.lease.count = 1;
    ck_assert(!lease_is_idle(&key.lease, key.now_us, LIFE_US));
    key.lease.count = 0;
    take(&key, 2000000);
    key.now_us += LIFE_US * 3;
    ck_assert(!lease_is_idle(&key.lease, key.now_us, LIFE_US)); /* a denial */
    key.now_us += WEIR_SECOND;
    ck_assert_msg(lease_is_idle(&key.lease, key.now_us + 40 * LIFE_US, LIFE_US), "and when that is over");
}
