/* test_lease.c - leases by themselves: what is asked for, how long it may be used, and what a denial says. */
#include "core/algorithm.h"
#include "core/lease.h"
#include "core/plan.h"
#include "support.h"

#include <inttypes.h>
#include <string.h>

enum { LIFE_US = 100000, START_US = 1000000000 };

/* A key whose truth is a state of the core's, asked without delay. */
struct key {
    struct lease_rules rules;
    struct lease lease;
    int64_t state[STATE_MAX_WORDS];
    int64_t now_us;
    int asked; /* how often */
};

static struct weir_plan plan_for(const char *text)
{
    const struct weir_policy policy = policy_of(text);
    struct weir_plan plan;
    must_succeed(plan_make(&policy, &share_whole, &plan, (struct message){ NULL, 0 }));
    return plan;
}

static void key_init(struct key *key, const char *policy)
{
    const struct weir_plan plan = plan_for(policy);
    memset(key, 0, sizeof *key);
    key->rules = (struct lease_rules){ .life_us = LIFE_US, .max = WEIR_MAX_PERMITS, .instances = 1 };
    key->now_us = START_US;
    state_charge(&plan, key->state, key->now_us, 0);
    lease_renew(&key->lease, &plan, 1);
}

static struct weir_decision store_decides(struct key *key, const struct lease_ask *ask)
{
    struct weir_decision decision;
    const struct weir_plan *plan = &key->lease.plan;
    if (ask->ahead > 0)
        state_take_ahead(plan, key->state, key->now_us, ask->cost, ask->ahead, ask->spread, &decision);
    else
        state_decide(plan, key->state, key->now_us, ask->cost, WEIR_TAKE, &decision);
    key->asked++;
    return decision;
}

/* Let the store decide `ask`, whose answer is there `trip_us` later. */
static struct weir_decision asked(struct key *key, const struct lease_ask *ask, int64_t trip_us)
{
    const int64_t asked_us = key->now_us;
    const struct weir_decision decision = store_decides(key, ask);
    key->now_us += trip_us;
    lease_land(&key->lease, &key->rules, ask, asked_us, key->now_us, &decision);
    return decision;
}

/* A request as an instance decides it. */
static struct weir_decision take(struct key *key, int64_t cost)
{
    struct weir_decision decision;
    lease_count(&key->lease, &key->rules, key->now_us, cost);
    while (lease_decide(&key->lease, key->now_us, cost, WEIR_TAKE, &decision) == LEASE_ASK) {
        const struct lease_ask ask = lease_ask(&key->lease, &key->rules, key->now_us, cost, 0, 0);
        decision = asked(key, &ask, 0);
        if (ask.whole || !decision.allowed) {
            decision.remaining += lease_left(&key->lease, key->now_us);
            break;
        }
    }
    return decision;
}

/* Ask for one permit every `gap_us` for so long. */
static void load(struct key *key, int64_t gap_us, int64_t for_us)
{
    for (const int64_t end_us = key->now_us + for_us; key->now_us < end_us; key->now_us += gap_us)
        take(key, 1);
}

/* As it is when the first life of a steady load is over; the lease is spent. */
static void warm_up(struct key *key, int64_t gap_us)
{
    load(key, gap_us, 5 * LIFE_US);
    while (lease_left(&key->lease, key->now_us) > 0)
        take(key, 1);
    key->asked = 0;
}

static struct lease_ask lease_of(struct key *key, int64_t ahead)
{
    return (struct lease_ask){ .era = key->lease.era, .ahead = ahead, .spread = 1, .whole = true };
}

#define WIDE "token_bucket limit=1000000 period=1s"

START_TEST(a_key_that_is_asked_for_seldom_leases_nothing)
{
    struct key key;
    key_init(&key, WIDE);
    for (int i = 0; i < 50; i++, key.now_us += 2 * LIFE_US) {
        ck_assert_int_eq(take(&key, 1).remaining, 999999);
        ck_assert_int_eq(lease_left(&key.lease, key.now_us), 0);
    }
    ck_assert_int_eq(key.asked, 50);
}
END_TEST

START_TEST(one_request_however_large_is_no_load_yet)
{
    struct key key;
    key_init(&key, WIDE);
    take(&key, 5000);
    ck_assert_int_eq(lease_left(&key.lease, key.now_us), 0);
}
END_TEST

START_TEST(a_busy_key_leases_what_half_a_life_asks_for)
{
    struct key key;
    key_init(&key, WIDE);
    warm_up(&key, 1000);
    take(&key, 1);
    const int64_t left = lease_left(&key.lease, key.now_us);
    ck_assert_msg(left >= 45 && left <= 60, "%" PRId64 " permits for a load of 50", left);
}
END_TEST

START_TEST(a_busy_key_is_asked_for_no_more_than_twice_in_a_life)
{
    struct key key;
    key_init(&key, WIDE);
    for (int64_t gap_us = 100; gap_us <= LIFE_US; gap_us = gap_us * 3 / 2) {
        warm_up(&key, gap_us);
        load(&key, gap_us, 40 * LIFE_US);
        ck_assert_msg(key.asked <= 80 + 1, "asked %d times in 40 lives with a request every %" PRId64 " us", key.asked,
                      gap_us);
    }
}
END_TEST

START_TEST(costs_weigh_as_much_as_as_many_requests)
{
    struct key ones, tens;
    key_init(&ones, WIDE);
    key_init(&tens, WIDE);
    for (int i = 0; i < 2000; i++) {
        ones.now_us += 500;
        take(&ones, 1);
        if (i % 10 == 9) {
            tens.now_us += 5000;
            take(&tens, 10);
        }
    }
    const struct lease_ask one = lease_ask(&ones.lease, &ones.rules, ones.now_us, 0, 0, 0);
    const struct lease_ask ten = lease_ask(&tens.lease, &tens.rules, tens.now_us, 0, 0, 0);
    ck_assert_msg(one.ahead - ten.ahead <= 10 && ten.ahead - one.ahead <= 10, "%" PRId64 " and %" PRId64, one.ahead,
                  ten.ahead);
}
END_TEST

START_TEST(nothing_is_leased_where_answers_take_a_tenth_of_a_life)
{
    struct key key;
    key_init(&key, WIDE);
    warm_up(&key, 1000);
    lease_count(&key.lease, &key.rules, key.now_us, 1);
    ck_assert_int_gt(lease_ask(&key.lease, &key.rules, key.now_us, 1, 0, LIFE_US / 10).ahead, 0);
    const struct lease_ask slow = lease_ask(&key.lease, &key.rules, key.now_us, 1, 0, LIFE_US / 10 + 1);
    ck_assert(slow.ahead == 0 && slow.alone);
}
END_TEST

START_TEST(near_the_limit_leases_leave_room_for_all_instances)
{
    struct key key;
    key_init(&key, "token_bucket limit=1000 period=366d");
    key.rules.instances = 4;
    for (int64_t i = 0; i < 1000; i++) {
        const int64_t before = lease_left(&key.lease, key.now_us);
        const struct weir_decision decision = take(&key, 1);
        const int64_t store_left = decision.remaining - lease_left(&key.lease, key.now_us);
        if (decision.source != WEIR_BY_LEASE)
            must(before == 0 && lease_left(&key.lease, key.now_us) <= (store_left + 1) / 7,
                 "a grant is an eighth of what is left at most");
        ck_assert(decision.allowed);
        ck_assert_int_eq(decision.remaining, 999 - i); /* nobody else has any: the sum is exact */
    }
    ck_assert(!take(&key, 1).allowed);
}
END_TEST

START_TEST(what_others_wait_for_is_asked_for_at_once_when_permits_are_scarce)
{
    struct key key;
    key_init(&key, "token_bucket limit=1000 period=366d");
    key.rules.instances = 16;
    warm_up(&key, 1000); /* 500 taken */
    key.lease.scarce = true;
    lease_count(&key.lease, &key.rules, key.now_us, 1);
    const struct lease_ask ask = lease_ask(&key.lease, &key.rules, key.now_us, 1, 7, 0);
    ck_assert_int_eq(ask.ahead, 7);
    ck_assert_int_eq(ask.spread, 1);
}
END_TEST

START_TEST(no_more_is_leased_than_the_option_says)
{
    struct key key;
    key_init(&key, WIDE);
    key.rules.max = 3;
    for (int i = 0; i < 5000; i++, key.now_us += 20) {
        take(&key, 1);
        must(lease_left(&key.lease, key.now_us) <= 3, "at most three");
    }
    ck_assert_int_gt(key.asked, 5000 / 5);
}
END_TEST

START_TEST(what_a_request_lacks_is_asked_for_if_a_lease_may_be_as_large_as_the_request)
{
    struct key key;
    key_init(&key, WIDE);
    key.rules.max = 8;
    const struct lease_ask some = lease_of(&key, 3);
    asked(&key, &some, 0);
    struct lease_ask ask = lease_ask(&key.lease, &key.rules, key.now_us, 9, 0, 0);
    ck_assert(ask.whole && ask.cost == 9);
    ask = lease_ask(&key.lease, &key.rules, key.now_us, 8, 0, 0);
    ck_assert(!ask.whole && ask.cost == 5);
    asked(&key, &ask, 0);
    ck_assert_int_eq(lease_left(&key.lease, key.now_us), 8);
}
END_TEST

START_TEST(what_is_held_and_what_is_on_its_way_are_no_more_together_than_a_lease_may_be)
{
    struct key key;
    key_init(&key, WIDE);
    warm_up(&key, 100); /* a load of 500 in half a life */
    key.rules.max = 100;
    for (int64_t held = 0; held <= 100; held += 10) {
        struct key again = key;
        const struct lease_ask some = lease_of(&key, held);
        asked(&again, &some, 0);
        ck_assert_int_eq(lease_left(&again.lease, again.now_us), held);
        struct lease_ask ask = lease_ask(&again.lease, &again.rules, again.now_us, 0, 0, 0);
        ck_assert_int_eq(ask.ahead, 100 - held); /* before any request */
        again.lease.is_asked = false;
        ask = lease_ask(&again.lease, &again.rules, again.now_us, held + 30, 0, 0);
        if (held == 0 || held + 30 > 100) /* beside a request of its own */
            ck_assert(ask.whole && ask.ahead == 100 - held);
        else /* and with what it lacks */
            ck_assert(!ask.whole && ask.cost == 30 && ask.ahead == 100 - (held + 30) && again.lease.is_asked);
    }
}
END_TEST

START_TEST(while_permits_are_on_their_way_no_others_are_asked_for)
{
    struct key key;
    key_init(&key, WIDE);
    warm_up(&key, 1000);
    const struct lease_ask few = lease_of(&key, 5);
    asked(&key, &few, 0);
    const struct lease_ask first = lease_ask(&key.lease, &key.rules, key.now_us, 0, 0, 0);
    ck_assert_int_gt(first.ahead, 0);
    ck_assert(key.lease.is_asked);
    const struct lease_ask second = lease_ask(&key.lease, &key.rules, key.now_us, 7, 0, 0);
    ck_assert(second.whole && second.cost == 7 && second.ahead == 0); /* not even what it lacks */
    asked(&key, &second, 0);
    ck_assert(key.lease.is_asked); /* still: that was the request's own */
    asked(&key, &first, 0);
    ck_assert(!key.lease.is_asked);
}
END_TEST

START_TEST(what_a_request_lacks_is_on_its_way_until_it_comes_or_fails)
{
    struct key key;
    key_init(&key, WIDE);
    const struct lease_ask few = lease_of(&key, 5);
    asked(&key, &few, 0);
    for (int fails = 0; fails < 2; fails++) {
        const struct lease_ask first = lease_ask(&key.lease, &key.rules, key.now_us, 20 + fails, 0, 0);
        ck_assert(!first.whole && first.ahead == 0 && key.lease.is_asked);
        ck_assert(lease_ask(&key.lease, &key.rules, key.now_us, 20 + fails, 0, 0).whole);
        struct lease_ask old = first;
        old.era--;
        lease_ask_failed(&key.lease, &old);
        ck_assert(key.lease.is_asked); /* that was another lease's */
        if (fails)
            lease_ask_failed(&key.lease, &first);
        else
            asked(&key, &first, 0);
        ck_assert(!key.lease.is_asked);
    }
}
END_TEST

/* ---- How long ---- */

static bool can_spend(struct key *key, int64_t at_us)
{
    struct weir_decision decision;
    return lease_decide(&key->lease, at_us, 1, WEIR_PEEK, &decision) == LEASE_SPENT;
}

/* Lease at `offset_us` into an interval, and say until when it can be spent. */
static void check_end(const char *policy, int64_t offset_us, int64_t end_us)
{
    struct key key;
    key_init(&key, policy);
    take(&key, 1); /* an interval or window begins */
    key.now_us += offset_us;
    const struct lease_ask ask = lease_of(&key, 5);
    asked(&key, &ask, 10);
    ck_assert_msg(can_spend(&key, START_US + end_us - 1), "%s: spent until %" PRId64, policy, end_us);
    ck_assert_msg(!can_spend(&key, START_US + end_us), "%s: not at %" PRId64, policy, end_us);
    ck_assert_uint_eq(key.lease.lost, 5);
}

START_TEST(a_lease_ends_a_life_after_it_was_asked_for_or_when_permits_come_back_at_once)
{
    check_end("token_bucket limit=100 period=1s", 7, 7 + LIFE_US);
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
END_TEST

START_TEST(an_answer_later_than_the_lease_brings_nothing)
{
    struct key key;
    key_init(&key, WIDE);
    const struct lease_ask ask = lease_of(&key, 5);
    asked(&key, &ask, LIFE_US);
    ck_assert_int_eq(lease_left(&key.lease, key.now_us), 0);
    ck_assert_uint_eq(key.lease.lost, 5);
}
END_TEST

START_TEST(the_older_permits_are_spent_first)
{
    struct key key;
    struct weir_decision decision;
    key_init(&key, WIDE);
    const struct lease_ask ask = lease_of(&key, 5);
    asked(&key, &ask, 10);
    asked(&key, &ask, 10);
    ck_assert_int_eq(lease_left(&key.lease, key.now_us), 10);
    ck_assert_int_eq(lease_decide(&key.lease, key.now_us, 7, WEIR_TAKE, &decision), LEASE_SPENT);
    ck_assert_int_eq(decision.age_us, 20);
    ck_assert_int_eq(lease_left(&key.lease, START_US + LIFE_US), 3);
    ck_assert_int_eq(lease_left(&key.lease, START_US + 10 + LIFE_US), 0);
    ck_assert_uint_eq(key.lease.lost, 3);
}
END_TEST

START_TEST(a_leaky_buckets_permits_are_slots_that_pass)
{
    struct key key;
    struct weir_decision decision;
    key_init(&key, "leaky_bucket limit=1000 period=1s capacity=100");
    const struct lease_ask ask = { .era = key.lease.era, .cost = 1, .ahead = 10, .spread = 1, .whole = true };
    asked(&key, &ask, 100); /* departs at once; the ten after it every 1,000 us */
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
END_TEST

START_TEST(slots_of_uneven_rates_are_never_early)
{
    struct key key;
    struct weir_decision decision;
    key_init(&key, "leaky_bucket limit=7 period=1s capacity=100");
    key.rules.life_us = 10 * WEIR_SECOND;
    const struct lease_ask ask = { .era = key.lease.era, .cost = 3, .ahead = 40, .spread = 1, .whole = true };
    asked(&key, &ask, 0);
    for (int64_t slot = 3; slot < 43; slot++) {
        ck_assert_int_eq(lease_decide(&key.lease, key.now_us, 1, WEIR_TAKE, &decision), LEASE_SPENT);
        ck_assert_int_eq(decision.delay_us, (slot * WEIR_SECOND + 6) / 7);
    }
}
END_TEST

START_TEST(what_was_taken_can_be_given_back_while_its_lease_lasts)
{
    struct key key;
    struct weir_decision decision;
    key_init(&key, WIDE);
    const struct lease_ask ask = lease_of(&key, 5);
    asked(&key, &ask, 10);
    ck_assert_int_eq(lease_decide(&key.lease, key.now_us, 5, WEIR_TAKE, &decision), LEASE_SPENT);
    lease_give_back(&key.lease, &key.rules, key.lease.era, key.now_us - decision.age_us, 5);
    ck_assert_int_eq(lease_left(&key.lease, key.now_us), 5);
    ck_assert_int_eq(lease_left(&key.lease, START_US + LIFE_US), 0); /* no longer than before */
    lease_give_back(&key.lease, &key.rules, key.lease.era, 77, 5);
    ck_assert_int_eq(lease_left(&key.lease, key.now_us), 0);
    ck_assert_uint_eq(key.lease.lost, 10);
}
END_TEST

START_TEST(what_is_given_back_above_the_most_is_lost)
{
    struct key key;
    struct weir_decision decision;
    key_init(&key, WIDE);
    key.rules.max = 8;
    const struct lease_ask ask = lease_of(&key, 8);
    asked(&key, &ask, 0);
    ck_assert_int_eq(lease_decide(&key.lease, key.now_us, 5, WEIR_TAKE, &decision), LEASE_SPENT);
    key.now_us += 10;
    const struct lease_ask meanwhile = lease_of(&key, 3);
    asked(&key, &meanwhile, 0);
    lease_give_back(&key.lease, &key.rules, key.lease.era, START_US, 5);
    ck_assert_int_eq(lease_left(&key.lease, key.now_us), 8);
    ck_assert_uint_eq(key.lease.lost, 3);
    ck_assert_int_eq(lease_left(&key.lease, START_US + LIFE_US), 3); /* it went to where it had come from */
}
END_TEST

/* Found by fuzzing: what was on its way came on top of what had been given back meanwhile. */
START_TEST(what_is_given_back_while_others_are_on_their_way_counts_with_them)
{
    struct key key;
    struct weir_decision decision;
    key_init(&key, WIDE);
    key.rules.max = 8;
    const struct lease_ask first = lease_of(&key, 8);
    asked(&key, &first, 0);
    ck_assert_int_eq(lease_decide(&key.lease, key.now_us, 8, WEIR_TAKE, &decision), LEASE_SPENT);
    lease_count(&key.lease, &key.rules, key.now_us, 6);
    lease_count(&key.lease, &key.rules, key.now_us, 1);
    const struct lease_ask ask = lease_ask(&key.lease, &key.rules, key.now_us, 1, 0, 0);
    ck_assert(ask.ahead > 0 && ask.ahead < 8);
    lease_give_back(&key.lease, &key.rules, key.lease.era, START_US, 8);
    ck_assert_int_eq(lease_left(&key.lease, key.now_us), 8 - ask.ahead);
    asked(&key, &ask, 10);
    ck_assert_int_eq(lease_left(&key.lease, key.now_us), 8);
    ck_assert_int_eq((int64_t)key.lease.lost, ask.ahead);
}
END_TEST

START_TEST(what_is_given_back_of_another_era_is_lost)
{
    struct key key;
    struct weir_decision decision;
    key_init(&key, WIDE);
    const struct lease_ask old = lease_of(&key, 5);
    asked(&key, &old, 0);
    ck_assert_int_eq(lease_decide(&key.lease, key.now_us, 5, WEIR_TAKE, &decision), LEASE_SPENT);
    const uint64_t era = key.lease.era;
    const struct weir_plan plan = plan_for(WIDE);
    lease_renew(&key.lease, &plan, 2);
    const struct lease_ask other = lease_of(&key, 2);
    asked(&key, &other, 0); /* at the same time */
    lease_give_back(&key.lease, &key.rules, era, START_US, 5);
    ck_assert_int_eq(lease_left(&key.lease, key.now_us), 2);
    ck_assert_uint_eq(key.lease.lost, 5);
}
END_TEST

/* ---- Denials ---- */

START_TEST(a_denial_holds_for_its_cost_and_more_until_it_may_change)
{
    struct key key;
    struct weir_decision decision;
    key_init(&key, "token_bucket limit=10 period=1s");
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
    ck_assert(take(&key, 2).allowed); /* less than was denied is another question */
    ck_assert_int_eq(key.asked, 1);
    key.now_us = START_US + 200000;
    ck_assert(!take(&key, 4).allowed);
    ck_assert_int_eq(key.asked, 2); /* it may have changed: it was asked for anew */
}
END_TEST

START_TEST(what_can_never_fit_is_denied_for_ever_and_asked_for_once_a_second)
{
    struct key key;
    key_init(&key, "fixed_window limit=10 period=1m");
    for (int i = 0; i < 100; i++, key.now_us += 30000)
        ck_assert_int_eq(take(&key, 11).retry_after_us, WEIR_NEVER);
    ck_assert_int_eq(key.asked, 3);
}
END_TEST

START_TEST(a_denial_asked_for_before_a_refund_says_nothing_after_it)
{
    struct key key;
    struct weir_decision decision, refunded = { 0 };
    key_init(&key, "fixed_window limit=10 period=1m");
    take(&key, 10);
    const struct weir_plan plan = key.lease.plan;
    for (int late_us = 0; late_us < 2; late_us++) {
        const struct lease_ask ask = { .era = key.lease.era, .cost = 3, .whole = true };
        const int64_t asked_us = key.now_us;
        const struct weir_decision denied = store_decides(&key, &ask);
        ck_assert(!denied.allowed);
        state_decide(&plan, key.state, key.now_us, 3, WEIR_REFUND, &refunded);
        lease_refunded(&key.lease, key.now_us, key.now_us + late_us, &refunded);
        key.now_us += 10;
        lease_land(&key.lease, &key.rules, &ask, asked_us, key.now_us, &denied);
        ck_assert_int_eq(lease_decide(&key.lease, key.now_us, 3, WEIR_TAKE, &decision), LEASE_ASK);
        ck_assert(take(&key, 3).allowed);
    }
    ck_assert(!take(&key, 3).allowed);
    ck_assert_int_eq(take(&key, 3).source, WEIR_BY_DENIAL); /* one that was asked for since holds */
}
END_TEST

START_TEST(a_request_larger_than_the_lease_asks_for_what_is_lacking)
{
    struct key key;
    key_init(&key, "fixed_window limit=10 period=1m");
    const struct lease_ask ask = lease_of(&key, 6);
    asked(&key, &ask, 0);
    const struct weir_decision decision = take(&key, 10);
    ck_assert(decision.allowed && decision.source == WEIR_BY_LEASE && decision.remaining == 0);
    ck_assert(!take(&key, 1).allowed);
}
END_TEST

START_TEST(another_plan_drops_what_the_old_one_leased_and_denied)
{
    struct key key;
    struct weir_decision decision;
    key_init(&key, "fixed_window limit=10 period=1m");
    const struct lease_ask ask = lease_of(&key, 6);
    asked(&key, &ask, 0);
    take(&key, 11);
    const struct weir_plan plan = plan_for("fixed_window limit=20 period=1m");
    lease_renew(&key.lease, &plan, 2);
    ck_assert_int_eq(lease_decide(&key.lease, key.now_us, 11, WEIR_TAKE, &decision), LEASE_ASK);
    ck_assert_int_eq(lease_decide(&key.lease, key.now_us, 1, WEIR_TAKE, &decision), LEASE_ASK);
    ck_assert_uint_eq(key.lease.lost, 6);
}
END_TEST

/* ---- By the rules alone ---- */

START_TEST(the_bound_is_what_the_rate_makes_in_a_life_or_what_all_can_hold)
{
    struct lease_rules rules = { .life_us = LIFE_US, .max = WEIR_MAX_PERMITS, .instances = 4 };
    struct weir_plan plan = plan_for("token_bucket limit=1000 period=1s");
    ck_assert_int_eq(lease_over_max(&rules, &plan), 100);
    ck_assert_int_eq(lease_max(&rules, &plan), 250);
    rules.max = 3;
    ck_assert_int_eq(lease_over_max(&rules, &plan), 12);
    ck_assert_int_eq(lease_max(&rules, &plan), 3);
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
END_TEST

START_TEST(strict_holds_back_what_comes_back_in_a_life_or_leases_nothing)
{
    const struct lease_rules rules = { .life_us = LIFE_US, .max = WEIR_MAX_PERMITS, .instances = 2, .strict = true };
    struct weir_plan plan = plan_for("token_bucket limit=1000 period=1s");
    ck_assert_int_eq(lease_reserve(&rules, &plan), 100);
    ck_assert(!lease_is_on(&rules, &plan)); /* as long as it is not held back */
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
END_TEST

START_TEST(a_key_is_idle_when_nothing_of_it_would_be_lost)
{
    struct key key;
    key_init(&key, WIDE);
    ck_assert(lease_is_idle(&key.lease, &key.rules, key.now_us));
    take(&key, 1);
    ck_assert(!lease_is_idle(&key.lease, &key.rules, key.now_us));
    ck_assert(lease_is_idle(&key.lease, &key.rules, key.now_us + 3 * LIFE_US));
    load(&key, 100, LIFE_US);
    ck_assert(!lease_is_idle(&key.lease, &key.rules, key.now_us + LIFE_US));
    key.now_us += 100 * LIFE_US;
    ck_assert(lease_is_idle(&key.lease, &key.rules, key.now_us));
    take(&key, 2000000);
    key.now_us += LIFE_US * 3;
    ck_assert(!lease_is_idle(&key.lease, &key.rules, key.now_us)); /* a denial */
    key.now_us += WEIR_SECOND;
    ck_assert_msg(lease_is_idle(&key.lease, &key.rules, key.now_us + 40 * LIFE_US), "and when that is over");
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("lease");
    suite_test(suite, a_key_that_is_asked_for_seldom_leases_nothing, 10);
    suite_test(suite, one_request_however_large_is_no_load_yet, 10);
    suite_test(suite, a_busy_key_leases_what_half_a_life_asks_for, 10);
    suite_test(suite, a_busy_key_is_asked_for_no_more_than_twice_in_a_life, 10);
    suite_test(suite, costs_weigh_as_much_as_as_many_requests, 10);
    suite_test(suite, nothing_is_leased_where_answers_take_a_tenth_of_a_life, 10);
    suite_test(suite, near_the_limit_leases_leave_room_for_all_instances, 10);
    suite_test(suite, what_others_wait_for_is_asked_for_at_once_when_permits_are_scarce, 10);
    suite_test(suite, no_more_is_leased_than_the_option_says, 10);
    suite_test(suite, what_a_request_lacks_is_asked_for_if_a_lease_may_be_as_large_as_the_request, 10);
    suite_test(suite, what_is_held_and_what_is_on_its_way_are_no_more_together_than_a_lease_may_be, 10);
    suite_test(suite, while_permits_are_on_their_way_no_others_are_asked_for, 10);
    suite_test(suite, what_a_request_lacks_is_on_its_way_until_it_comes_or_fails, 10);
    suite_test(suite, a_lease_ends_a_life_after_it_was_asked_for_or_when_permits_come_back_at_once, 10);
    suite_test(suite, an_answer_later_than_the_lease_brings_nothing, 10);
    suite_test(suite, the_older_permits_are_spent_first, 10);
    suite_test(suite, a_leaky_buckets_permits_are_slots_that_pass, 10);
    suite_test(suite, slots_of_uneven_rates_are_never_early, 10);
    suite_test(suite, what_was_taken_can_be_given_back_while_its_lease_lasts, 10);
    suite_test(suite, what_is_given_back_above_the_most_is_lost, 10);
    suite_test(suite, what_is_given_back_while_others_are_on_their_way_counts_with_them, 10);
    suite_test(suite, what_is_given_back_of_another_era_is_lost, 10);
    suite_test(suite, a_denial_holds_for_its_cost_and_more_until_it_may_change, 10);
    suite_test(suite, what_can_never_fit_is_denied_for_ever_and_asked_for_once_a_second, 10);
    suite_test(suite, a_denial_asked_for_before_a_refund_says_nothing_after_it, 10);
    suite_test(suite, a_request_larger_than_the_lease_asks_for_what_is_lacking, 10);
    suite_test(suite, another_plan_drops_what_the_old_one_leased_and_denied, 10);
    suite_test(suite, the_bound_is_what_the_rate_makes_in_a_life_or_what_all_can_hold, 10);
    suite_test(suite, strict_holds_back_what_comes_back_in_a_life_or_leases_nothing, 10);
    suite_test(suite, a_key_is_idle_when_nothing_of_it_would_be_lost, 10);
    return suite_run(suite);
}
