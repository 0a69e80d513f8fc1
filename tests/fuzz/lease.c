/* lease.c - the rules of leases: requests, clock and loss, over a store that decides by the core.
 *
 * The input is a policy, the rules and a story: requests arrive, others take from the same key, answers are late or
 * lost, permits are refunded, idle ones returned, the limit redefined, and the clock moves, in some stories also back.
 * Properties:
 *
 *     - no permit is used twice or forgotten: granted = used + held + lost, after every step
 *     - none is used a life or more after its request; at most lease_max() are held
 *     - the store would give the same denial that a lease gives, also just before its retry_after ends; but for 5 ms
 *       at most, where others take what comes back one by one
 *     - lease_hit() equals lease_count() and lease_decide(); a peek takes nothing
 */
#include "fuzz.h"

#include "core/algorithm/algorithm.h"
#include "core/algorithm/lease.h"
#include "core/ground/arith.h"
#include "core/policy/plan.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { ON_THEIR_WAY = 3, PACE_US = 5000 };

struct trip {
    bool is_used;
    struct lease_order order;
    int64_t asked_us;
    struct weir_decision decision;
};

static struct {
    struct feed feed;
    struct lease_rules rules;
    struct lease lease;
    struct weir_plan plan;
    int64_t state[STATE_MAX_WORDS];
    int64_t now_us;
    bool steps_back;
    int64_t granted, used;
    struct trip trips[ON_THEIR_WAY];
    struct weir_decision spent; /* the last decision from a lease */
    int64_t spent_cost, spent_asked_us;
    uint64_t spent_era, version;
} story;

static int64_t held(const struct lease *lease)
{
    return lease->batches[0].left + lease->batches[1].left;
}

static void check_sums(const char *step)
{
    const struct lease *lease = &story.lease;
    fuzz_must(story.granted == story.used + held(lease) + (int64_t)lease->lost,
              "after %s: granted %" PRId64 " = used %" PRId64 " + held %" PRId64 " + lost %" PRIu64, step,
              story.granted, story.used, held(lease), lease->lost);
    fuzz_must(lease->batches[0].left >= 0 && lease->batches[1].left >= 0, "after %s: none is less than none", step);
    struct lease copy = *lease;
    const int64_t left = lease_left(&copy, story.now_us);
    fuzz_must(left <= lease_max(&story.rules, &story.plan), "after %s: %" PRId64 " are held, of at most %" PRId64, step,
              left, lease_max(&story.rules, &story.plan));
}

/* ---- The store ---- */

static struct weir_decision store_peek(int64_t cost, int64_t at_us)
{
    int64_t state[STATE_MAX_WORDS];
    struct weir_decision decision;
    memcpy(state, story.state, sizeof state);
    state_decide(&story.plan, state, at_us, cost, WEIR_PEEK, &decision);
    return decision;
}

static void others_take(void)
{
    struct weir_decision unused;
    const int64_t cost = feed_magnitude(&story.feed, WEIR_MAX_PERMITS);
    state_decide(&story.plan, story.state, story.now_us, min_of(cost, story.plan.size), WEIR_TAKE, &unused);
}

static struct weir_decision store_decides(const struct lease_order *order)
{
    struct weir_decision decision;
    if (order->ahead > 0)
        state_take_ahead(&story.plan, story.state, story.now_us, order->cost, order->ahead, order->spread, &decision);
    else
        state_decide(&story.plan, story.state, story.now_us, order->cost, WEIR_TAKE, &decision);
    return decision;
}

/* ---- Answers ---- */

static void land(struct trip *trip)
{
    lease_answered(&story.lease, &story.rules, &trip->order, trip->asked_us, story.now_us, &trip->decision);
    story.granted += lease_granted(&trip->order, &trip->decision);
    trip->is_used = false;
    struct weir_decision denial;
    const int64_t cost = feed_magnitude(&story.feed, WEIR_MAX_PERMITS);
    if (lease_was_denied(&story.lease, &trip->order, trip->asked_us, story.now_us, cost, &trip->decision, &denial))
        fuzz_must(!denial.allowed && (denial.retry_after_us > 0 || denial.retry_after_us == WEIR_NEVER) &&
                      denial.remaining >= 0 && denial.remaining <= story.plan.size,
                  "who waited is denied for a while");
}

/* The store lost this charge, unnoticed here. */
static void lose(struct trip *trip)
{
    lease_order_failed(&story.lease, &trip->order);
    trip->is_used = false;
}

static void order(int64_t cost)
{
    struct trip *trip = story.trips;
    while (trip < story.trips + ON_THEIR_WAY && trip->is_used)
        trip++;
    if (trip == story.trips + ON_THEIR_WAY)
        return;
    const uint8_t choice = feed_byte(&story.feed);
    const int64_t waiting = choice & 1 ? feed_byte(&story.feed) : 0;
    const int64_t trip_us = choice & 2 ? feed_magnitude(&story.feed, story.rules.life_us) : 0;
    trip->order = lease_make_order(&story.lease, &story.rules, story.now_us, cost, waiting, trip_us);
    fuzz_must(trip->order.cost >= 0 && trip->order.ahead >= 0 && trip->order.spread >= 1,
              "what is asked for is in its ranges");
    if (trip->order.cost == 0 && trip->order.ahead == 0)
        return; /* no request is needed */
    trip->asked_us = story.now_us;
    if (!story.steps_back && choice & 4)
        story.now_us += feed_magnitude(&story.feed, story.rules.life_us);
    trip->decision = store_decides(&trip->order);
    trip->is_used = true;
    if (choice & 8)
        return; /* later */
    if (choice & 16)
        story.now_us += feed_magnitude(&story.feed, story.rules.life_us);
    if ((choice & 224) == 224)
        lose(trip);
    else
        land(trip);
}

/* ---- Requests ---- */

/* Return by how much the denial may outlast the store's: where others take what comes back one by one, a denial holds
 * for PACE_US at least. */
static int64_t pace_of_denial(void)
{
    const struct lease *lease = &story.lease;
    const bool one_by_one = story.plan.algorithm == WEIR_LEAKY_BUCKET || is_greedy(&story.plan);
    return one_by_one && lease->denied_asked_us < lease->rivals_until_us &&
                   lease->denied_end_us - lease->denied_asked_us == PACE_US
               ? PACE_US
               : 0;
}

static void check_denial(int64_t cost, int64_t left, const struct weir_decision *denial)
{
    fuzz_must(!denial->allowed && denial->source == WEIR_BY_DENIAL, "a denial denies");
    fuzz_must(denial->retry_after_us > 0 || (denial->retry_after_us == WEIR_NEVER && cost > story.plan.size),
              "for a while, or for ever what can never be");
    if (story.steps_back)
        return;
    const int64_t lacks = story.plan.algorithm == WEIR_LEAKY_BUCKET ? cost : cost - left;
    const int64_t pace_us = pace_of_denial();
    fuzz_must(denial->age_us < pace_us || !store_peek(lacks, story.now_us).allowed,
              "the store would deny what lacks, %" PRId64, lacks);
    const int64_t last_us = story.now_us + denial->retry_after_us - 1 - pace_us;
    if (denial->retry_after_us != WEIR_NEVER && last_us >= story.now_us && last_us <= WEIR_MAX_TIME_US)
        fuzz_must(!store_peek(lacks, last_us).allowed, "and until retry_after is over");
}

static void request(int64_t cost)
{
    struct lease copy = story.lease;
    struct weir_decision hit = { 0 }, decision = { 0 };
    const enum lease_answer quick = lease_hit(&copy, story.now_us, cost, &hit);
    lease_count(&story.lease, story.now_us, cost);
    struct lease peeked = story.lease;
    const int64_t left = lease_left(&peeked, story.now_us);
    const enum lease_answer foreseen = lease_decide(&peeked, story.now_us, cost, WEIR_PEEK, &decision);
    fuzz_must(lease_left(&peeked, story.now_us) == left, "a peek takes nothing");
    const enum lease_answer answer = lease_decide(&story.lease, story.now_us, cost, WEIR_TAKE, &decision);
    fuzz_must(answer == foreseen, "a peek says what a take would come to");
    if (quick != LEASE_UNDECIDED) {
        fuzz_must(quick == answer && hit.allowed == decision.allowed && hit.retry_after_us == decision.retry_after_us &&
                      hit.reset_after_us == decision.reset_after_us && hit.age_us == decision.age_us &&
                      hit.source == decision.source && hit.limit == decision.limit,
                  "the short way comes to the same");
        fuzz_must(lease_left(&copy, story.now_us) == lease_left(&story.lease, story.now_us), "and leaves the same");
    }
    if (answer == LEASE_SPENT) {
        fuzz_must(left >= cost && decision.allowed && decision.source == WEIR_BY_LEASE, "it was there");
        fuzz_must(decision.age_us < story.rules.life_us, "it was asked for less than a life ago");
        fuzz_must(decision.remaining >= 0 && decision.remaining <= story.plan.size, "what remains is in its range");
        story.used += cost;
        story.spent = decision;
        story.spent_cost = cost;
        story.spent_asked_us = story.now_us - decision.age_us;
        story.spent_era = story.lease.era;
    } else if (answer == LEASE_DENIED) {
        check_denial(cost, left, &decision);
    } else {
        order(cost);
    }
}

static void give_back(void)
{
    if (story.spent_cost == 0 || story.plan.algorithm == WEIR_LEAKY_BUCKET)
        return;
    lease_give_back(&story.lease, &story.rules, story.spent_era, story.spent_asked_us, story.spent_cost);
    story.used -= story.spent_cost;
    story.spent_cost = 0;
}

static void refund(void)
{
    struct weir_decision decision;
    state_decide(&story.plan, story.state, story.now_us, feed_magnitude(&story.feed, WEIR_MAX_PERMITS), WEIR_REFUND,
                 &decision);
    lease_refunded(&story.lease, story.now_us, story.now_us, &decision);
}

/* Idle permits go back to the store. */
static void return_rest(void)
{
    struct weir_decision unused;
    int64_t charged_us;
    const int64_t permits = lease_take_rest(&story.lease, story.now_us, false, &charged_us);
    fuzz_must(permits >= 0 && (permits == 0 || charged_us > 0), "a return has the time of its charge");
    if (permits > 0)
        state_return(&story.plan, story.state, NULL, story.now_us, charged_us, permits, &unused);
}

static bool make_plan(void)
{
    struct weir_policy policy = feed_policy(&story.feed);
    if (weir_policy_check(&policy, NULL, 0) != WEIR_OK ||
        plan_make(&policy, &share_whole, &story.plan, (struct message){ NULL, 0 }) != WEIR_OK)
        return false;
    const int64_t reserve = lease_reserve(&story.rules, &story.plan);
    if (reserve > 0)
        plan_hold_back(&story.plan, reserve);
    memset(story.state, 0, sizeof story.state);
    state_charge(&story.plan, story.state, story.now_us, 0);
    lease_renew(&story.lease, &story.rules, &story.plan, ++story.version);
    story.spent_cost = 0;
    for (int i = 0; i < ON_THEIR_WAY; i++) { /* what the store has granted by another plan is lost when it lands */
        struct trip *trip = &story.trips[i];
        if (trip->is_used)
            land(trip);
    }
    return true;
}

static void move_clock(uint8_t choice)
{
    int64_t by_us = choice & 1   ? feed_magnitude(&story.feed, story.rules.life_us)
                    : choice & 2 ? feed_magnitude(&story.feed, 366 * WEIR_DAY)
                                 : feed_byte(&story.feed) * 100;
    if (story.steps_back && choice & 4)
        by_us = -by_us;
    story.now_us = max_of(WEIR_DAY, min_of(story.now_us + by_us, WEIR_MAX_TIME_US / 2));
}

static void step(void)
{
    const uint8_t choice = feed_byte(&story.feed);
    struct trip *trip = &story.trips[choice / 16 % ON_THEIR_WAY];
    struct weir_decision unused;
    switch (choice % 16) {
    case 0: move_clock(choice / 16); break;
    case 1: others_take(); break;
    case 2:
        if (trip->is_used)
            land(trip);
        break;
    case 3:
        if (trip->is_used)
            lose(trip);
        break;
    case 4: give_back(); break;
    case 5: refund(); break;
    case 6:
        if (choice / 16 == 15)
            make_plan();
        else if (choice / 16 >= 8)
            return_rest();
        else
            lease_recall(&story.lease, story.now_us, &unused);
        break;
    case 7:
        if (lease_runs_low(&story.lease))
            order(0);
        break;
    case 8: request(feed_magnitude(&story.feed, WEIR_MAX_PERMITS)); break;
    case 9: request(max_of(1, held(&story.lease) + choice / 16 - 8)); break;
    case 10: story.now_us += story.rules.life_us / 64; break;
    default: request(1 + choice / 16 % 4); break;
    }
    check_sums("a step");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    memset(&story, 0, sizeof story);
    story.feed = feed_of(data, size);
    const uint8_t choice = feed_byte(&story.feed);
    story.now_us = INT64_C(1790000000123456);
    story.steps_back = choice & 1;
    story.rules = (struct lease_rules){ .life_us = choice & 2 ? 100000 : 10 * WEIR_SECOND,
                                        .excess = choice & 32 ? 5 : 100,
                                        .denial_us = 2 * WEIR_SECOND,
                                        .max = WEIR_MAX_PERMITS,
                                        .instances = choice & 4 ? feed_magnitude(&story.feed, 100) : 1,
                                        .strict = choice & 8 };
    if (choice & 16)
        story.rules.max = feed_magnitude(&story.feed, WEIR_MAX_PERMITS);
    if (!make_plan())
        return 0;
    while (!feed_is_over(&story.feed))
        step();
    return 0;
}
