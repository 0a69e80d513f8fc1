/* test_settle_fails.c - charges that fail, that are given up, and that are made for several keys at once. */
#include "settle_place.h"

#include "set_share.h"

#include "core/limiter/own_ops.h"
#include "core/outage/failure.h"
#include "core/outage/outage.h"

#include <stdio.h>
#include <stdlib.h>

/* ---- Charges that fail ---- */

TEST(after_a_failed_charge_the_fallback_decides_and_the_permits_stay_owed, 30)
{
    PLACE(place, LAZY, NULL, ten);
    outage_admits(place, "a", 5 * WEIR_SECOND, 3);
    cable_set(&place->cable, CABLE_LOSES_REQUEST);
    struct weir_decision decision = try_in(place, "a", 1);
    ck_assert(decision.allowed && decision.source == WEIR_BY_FALLBACK && decision.remaining == 1);
    ck_assert_int_eq(place->remote.charged, 0);
    cable_set(&place->cable, CABLE_WELL);
    ck_assert_int_eq(try_in(place, "a", 1).remaining, 10 - 4 - 1);
    ck_assert_uint_eq(stats_of(place->limiter).settled, 4);
}

TEST(a_charge_without_an_answer_is_made_again, 30)
{
    PLACE(place, LAZY, NULL, ten);
    outage_admits(place, "a", 5 * WEIR_SECOND, 3);
    cable_set(&place->cable, CABLE_LOSES_ANSWER);
    ck_assert_int_eq(try_in(place, "a", 1).source, WEIR_BY_FALLBACK);
    ck_assert_int_eq(place->remote.charged, 3);
    cable_set(&place->cable, CABLE_WELL);
    ck_assert_int_eq(try_in(place, "a", 1).remaining,
                     10 - 3 - 4 - 1); /* charged twice: too few permits, never too many */
}

TEST(owed_permits_are_dropped_if_the_key_holds_a_foreign_value, 30)
{
    PLACE(place, LAZY, NULL, ten);
    struct weir_decision decision;
    outage_passes(place, "a", 5 * WEIR_SECOND, 3);
    atomic_store(&place->cable.error, WEIR_ESTATE);
    ck_assert_int_eq(weir_try(place->limit, weir_key_text("a"), 1, &decision), WEIR_ESTATE);
    ck_assert_int_eq(try_in(place, "a", 1).remaining, 9);
    const struct weir_stats stats = stats_of(place->limiter);
    ck_assert_uint_eq(stats.settled, 0);
    ck_assert_uint_eq(stats.unsettled, 3);
}

/* A store in which the state of "bad" is not weir's, and which stops there. */
static int (*decide_well)(struct weir_backend *backend, const struct weir_backend_request *requests, size_t n, bool all,
                          int64_t deadline_us, struct weir_decision *out);

static int decide_up_to_bad(struct weir_backend *backend, const struct weir_backend_request *requests, size_t n,
                            bool all, int64_t deadline_us, struct weir_decision *out)
{
    if (atomic_load(&((struct cable *)backend)->fault) != CABLE_WELL)
        return decide_well(backend, requests, n, all, deadline_us, out);
    for (size_t i = 0; i < n; i++) {
        if (requests[i].key.len == 3 && memcmp(requests[i].key.data, "bad", 3) == 0)
            return WEIR_ESTATE;
        int error = decide_well(backend, &requests[i], 1, all, deadline_us, &out[i]);
        if (error)
            return error;
    }
    return WEIR_OK;
}

TEST(a_key_with_a_foreign_value_leaves_the_other_keys_of_its_batch_owed, 30)
{
    PLACE(place, LAZY, NULL, ten);
    weir_limit *limit = place->limit;
    struct weir_decision decisions[3];
    const struct weir_request requests[] = { { limit, weir_key_text("a"), 1, 0 },
                                             { limit, weir_key_text("bad"), 1, 0 },
                                             { limit, weir_key_text("good"), 1, 0 } };
    decide_well = place->cable.ops.decide;
    place->cable.ops.decide = decide_up_to_bad;
    outage_admits(place, "a", 10 * WEIR_SECOND, 2);
    must(try_in(place, "bad", 1).allowed && try_in(place, "good", 9).allowed, "time makes permits");
    cable_set(&place->cable, CABLE_WELL);
    ck_assert_int_eq(weir_try_batch(place->limiter, requests, 3, decisions), WEIR_ESTATE);
    ck_assert_int_eq(try_in(place, "good", 1).remaining, 0);
    ck_assert_int_eq(try_in(place, "a", 1).remaining, 10 - 2 - 2 - 1); /* charged before the failure, and once more */
    const struct weir_stats stats = stats_of(place->limiter);
    ck_assert_uint_eq(stats.settled, 2 + 9);
    ck_assert_uint_eq(stats.unsettled, 1);
}

TEST(permits_stay_owed_after_a_charge_inside_a_callback_is_refused, 30)
{
    PLACE(place, LAZY, NULL, ten);
    struct weir_decision decision;
    outage_passes(place, "a", 5 * WEIR_SECOND, 3);
    atomic_store(&place->cable.error, WEIR_EINVAL); /* as inside a backend's callback */
    ck_assert_int_eq(weir_try(place->limit, weir_key_text("a"), 1, &decision), WEIR_EINVAL);
    atomic_store(&place->cable.error, WEIR_OK);
    ck_assert_int_eq(try_in(place, "a", 1).remaining, 10 - 3 - 1);
    ck_assert_uint_eq(stats_of(place->limiter).unsettled, 0);
}

TEST(a_refused_settlement_is_sent_again_until_it_is_executed_and_a_lost_one_is_not, 30)
{
    PLACE(place, EAGER, NULL, "fixed_window limit=10 period=1h");
    struct weir_reservation first, second;
    struct weir_decision decision;
    must_succeed(weir_reserve(place->limit, weir_key_text("a"), 4, &decision, &first));
    must_succeed(weir_reserve(place->limit, weir_key_text("a"), 4, &decision, &second));
    atomic_store(&place->cable.error, WEIR_EIO_UNDONE);
    ck_assert_int_eq(weir_settle(place->limit, weir_key_text("a"), &first, 1), WEIR_OK);
    place->cable.returned(place->cable.user); /* and is refused again */
    ck_assert_int_eq(peeked(place->limit, "a", 1).remaining, 2);
    atomic_store(&place->cable.error, WEIR_OK);
    place->cable.returned(place->cable.user);
    ck_assert_int_eq(peeked(place->limit, "a", 1).remaining, 5);
    place->cable.returned(place->cable.user);
    ck_assert_int_eq(peeked(place->limit, "a", 1).remaining, 5); /* once */

    atomic_store(&place->cable.error, WEIR_EIO_UNDONE);
    ck_assert_int_eq(weir_settle(place->limit, weir_key_text("a"), &second, 1), WEIR_OK);
    atomic_store(&place->cable.error, WEIR_ETIME); /* it may have been executed */
    place->cable.returned(place->cable.user);
    atomic_store(&place->cable.error, WEIR_OK);
    place->cable.returned(place->cable.user);
    ck_assert_int_eq(peeked(place->limit, "a", 1).remaining, 5);
}

TEST(a_refused_settlement_of_a_candidate_is_sent_again_to_the_candidate, 30)
{
    PLACE(place, EAGER, NULL, "fixed_window limit=100 period=1h, candidate limit=10");
    struct weir_reservation reservation;
    struct weir_decision decision;
    must_succeed(weir_reserve(place->limit, weir_key_text("a"), 4, &decision, &reservation));
    atomic_store(&place->cable.error, WEIR_EIO_UNDONE);
    ck_assert_int_eq(weir_settle(place->limit, weir_key_text("a"), &reservation, 1), WEIR_OK);
    place->cable.returned(place->cable.user); /* and is refused again */
    atomic_store(&place->cable.error, WEIR_OK);
    place->cable.returned(place->cable.user);
    ck_assert_int_eq(peeked(place->limit, "a", 1).remaining, 100 - 1);
    ck_assert(!peeked(place->limit, "a", 9).would_deny && peeked(place->limit, "a", 10).would_deny);
}

TEST(outages_beyond_the_number_kept_are_dropped_and_counted, 30)
{
    PLACE(place, LAZY, NULL, "token_bucket limit=1000 period=1000s");
    for (int i = 0; i < SETTLE_RECORDS + 4; i++) {
        char key[16];
        snprintf(key, sizeof key, "%d", i);
        outage_passes(place, key, 2 * WEIR_SECOND, 2);
        try_in(place, "b", 1);
    }
    ck_assert_uint_eq(stats_of(place->limiter).unsettled, 4 * 2);
    for (int i = 0; i < SETTLE_RECORDS + 4; i++) {
        char key[16];
        snprintf(key, sizeof key, "%d", i);
        ck_assert_int_eq(try_in(place, key, 1).remaining, i < 4 ? 999 : 997);
    }
    ck_assert_uint_eq(stats_of(place->limiter).settled, SETTLE_RECORDS * 2);
    for (int i = 0; i < 10000 && atomic_load(&place->limiter->outage->settle.owes); i++)
        try_in(place, "b", 1);
    ck_assert(!atomic_load(&place->limiter->outage->settle.owes));
    ck_assert_int_eq(stats_of(place->limiter).keys, 0); /* no outage needs those that were dropped */
}

TEST(a_settled_outage_is_forgotten_before_an_unsettled_one, 30)
{
    PLACE(place, LAZY, NULL, "token_bucket limit=1000 period=1000s");
    struct settle *settle = &place->limiter->outage->settle;
    atomic_store(&settle->chain.busy, true); /* no walk removes the record of an outage that has been paid */
    for (int i = 0; i < SETTLE_RECORDS + 1; i++) {
        char key[16];
        snprintf(key, sizeof key, "%d", i);
        outage_passes(place, key, 2 * WEIR_SECOND, 2);
        try_in(place, i == 5 ? key : "b", 1);
    }
    atomic_store(&settle->chain.busy, false);
    ck_assert_uint_eq(stats_of(place->limiter).unsettled, 0);
    for (int i = 0; i < SETTLE_RECORDS + 1; i++) {
        char key[16];
        snprintf(key, sizeof key, "%d", i);
        try_in(place, key, 1);
    }
    ck_assert_int_eq(place->remote.charged, 2 * (SETTLE_RECORDS + 1));
    ck_assert_uint_eq(stats_of(place->limiter).settled, 2 * (SETTLE_RECORDS + 1));
}

TEST(a_key_that_owes_for_an_earlier_outage_gets_nothing_in_the_next, 30)
{
    PLACE(place, LAZY, NULL, "token_bucket limit=1000 period=1000s");
    outage_passes(place, "a", 2 * WEIR_SECOND, 2);
    must(try_in(place, "b", 1).source == WEIR_BY_BACKEND, "the outage is over");
    cable_set(&place->cable, CABLE_CUT);
    now_us += WEIR_SECOND;
    must(!try_in(place, "c", 1).allowed, "another one begins");
    now_us += 5 * WEIR_SECOND;
    const struct weir_decision decision = try_in(place, "a", 1);
    ck_assert(!decision.allowed && decision.source == WEIR_BY_FALLBACK);
    ck_assert_int_eq(decision.retry_after_us, WEIR_SECOND);
    ck_assert(try_in(place, "c", 1).allowed);
    cable_set(&place->cable, CABLE_WELL);
    ck_assert_int_eq(try_in(place, "a", 1).remaining, 1000 - 2 - 1);
    outage_passes(place, "a", 2 * WEIR_SECOND, 2); /* it has paid */
}

TEST(a_share_change_in_an_outage_does_not_start_another_outage, 30)
{
    PLACE(place, LAZY, NULL, "token_bucket limit=1000 period=1000s");
    outage_admits(place, "a", 2 * WEIR_SECOND, 2);
    const struct share half = { .weight = 1, .total = 2, .rank = 0, .count = 2 };
    must_succeed(limiter_set_share(place->limiter, &half));
    must(!try_in(place, "a", 1).allowed, "it begins cold again");
    now_us += 4 * WEIR_SECOND;
    ck_assert(try_in(place, "a", 2).allowed);
    cable_set(&place->cable, CABLE_WELL);
    ck_assert_int_eq(try_in(place, "a", 1).remaining, 1000 - 4 - 1);
    ck_assert_int_eq(place->remote.most_charged, 4);
}

TEST(in_an_outage_a_key_starts_with_its_share_of_the_remaining_permits, 30)
{
    static const char *const policies[] = { "fixed_window limit=10000 period=1d", "token_bucket limit=10000 period=1d",
                                            "sliding_window limit=10000 period=1d" };
    for (int i = 0; i < 3; i++) {
        PLACE(place, LAZY, OPTIONS(.instances = 4), policies[i]);
        place->limiter->outage->known = calloc(1, sizeof *place->limiter->outage->known);
        must(try_in(place, "a", 2000).remaining == 8000, "the backend says so");
        cable_set(&place->cable, CABLE_CUT);
        ck_assert_int_eq(try_in(place, "a", 2000).remaining, 0);
        ck_assert(!try_in(place, "a", 1).allowed);
        ck_assert(!try_in(place, "b", 1).allowed); /* unknown */
        cable_set(&place->cable, CABLE_WELL);
        ck_assert_int_eq(try_in(place, "a", 1).remaining, 8000 - 2000 - 1);
        ck_assert_uint_eq(stats_of(place->limiter).settled, 2000);
        cable_set(&place->cable, CABLE_CUT);
        ck_assert_int_eq(try_in(place, "a", 1).remaining, 5999 / 4 - 1);
    }
}

TEST(a_failing_batchs_permits_are_not_available_in_the_next_outage, 30)
{
    PLACE(place, LAZY, NULL, "fixed_window limit=10 period=1d");
    weir_limit *limit = place->limit;
    struct weir_decision decisions[2];
    const struct weir_request requests[] = { { limit, weir_key_text("a"), 8, 0 },
                                             { limit, weir_key_text("bad"), 1, 0 } };
    decide_well = place->cable.ops.decide;
    place->cable.ops.decide = decide_up_to_bad;
    place->limiter->outage->known = calloc(1, sizeof *place->limiter->outage->known);
    must(try_in(place, "a", 1).remaining == 9, "the backend says so");
    ck_assert_int_eq(weir_try_batch(place->limiter, requests, 2, decisions), WEIR_ESTATE);
    must(decisions[0].allowed && decisions[0].remaining == 1, "the backend says so");
    cable_set(&place->cable, CABLE_CUT);
    ck_assert(!try_in(place, "a", 2).allowed);
    ck_assert(try_in(place, "a", 1).allowed);
}

TEST(settled_permits_are_counted_for_their_outage, 30)
{
    PLACE(place, LAZY, NULL, "token_bucket limit=10 period=1d");
    const struct settle *settle = &place->limiter->outage->settle;
    static const char *const keys[] = { "a", "b" };
    for (int i = 0; i < 2; i++) {
        outage_passes(place, keys[i], WEIR_DAY / 2, 3 + i);
        must(try_in(place, "c", 1).source == WEIR_BY_BACKEND, "the outage is over");
    }
    ck_assert_uint_eq(atomic_load(&settle->count), 2);
    ck_assert_int_eq(try_in(place, "b", 1).remaining, 10 - 4 - 1);
    ck_assert_uint_eq(settle->records[0].settled, 0);
    ck_assert_uint_eq(settle->records[1].settled, 4);
}

TEST(permits_admitted_by_on_full_in_an_outage_are_counted_as_unsettled, 30)
{
    PLACE(place, EAGER, OPTIONS(.max_keys = 1, .on_full = WEIR_FULL_ALLOW), ten);
    outage_admits(place, "a", 5 * WEIR_SECOND, 3);
    must(try_in(place, "b", 2).allowed, "without room it is allowed");
    ck_assert_uint_eq(atomic_load(&place->limiter->outage->settle.admitted), 3);
    cable_set(&place->cable, CABLE_WELL);
    const struct weir_stats stats = stats_of(place->limiter);
    ck_assert_uint_eq(stats.settled, 3);
    ck_assert_uint_eq(stats.unsettled, 2);
}

TEST(permits_are_owed_only_with_on_failure_local_and_a_common_backend, 30)
{
    for (int i = 0; i < 4; i++) {
        struct weir_options options = WEIR_OPTIONS_INIT;
        static struct place place;
        struct weir_decision decision;
        memset(&place, 0, sizeof place);
        options.on_failure = (enum weir_on_failure[]){ WEIR_FAIL_LOCAL, WEIR_FAIL_OPEN, WEIR_FAIL_CLOSED,
                                                       WEIR_FAIL_ERROR }[i];
        now_us = INT64_C(1) << 40;
        remote_init(&place.remote);
        cable_init(&place.cable, &place.remote);
        place.cable.ops.shared = options.on_failure != WEIR_FAIL_LOCAL;
        place_join(&place, &place.remote, &options, ten);
        cable_set(&place.cable, CABLE_CUT);
        weir_try(place.limit, weir_key_text("a"), 1, &decision);
        now_us += 5 * WEIR_SECOND;
        weir_try(place.limit, weir_key_text("a"), 1, &decision);
        cable_set(&place.cable, CABLE_WELL);
        ck_assert_int_eq(taken(place.limit, "a", 1).remaining, 9);
        const struct weir_stats stats = stats_of(place.limiter);
        ck_assert_uint_eq(stats.settled + stats.unsettled, 0);
        place_close(&place);
    }
}

TEST(a_paid_part_of_a_debt_is_returned_or_dropped_in_one_step, 30)
{
    static const char *const policies[] = { "token_bucket limit=10 period=10s", "leaky_bucket limit=10 period=10s",
                                            "fixed_window limit=10 period=10s", "sliding_window limit=10 period=10s",
                                            "token_bucket limit=1 period=1s burst=10 refill=interval" };
    for (size_t i = 0; i < sizeof policies / sizeof policies[0]; i++) {
        PLACE(place, LAZY, NULL, policies[i]);
        struct weir_backend *fallback = place->limiter->fallback;
        struct outage_id outage;
        outage_admits(place, "a", 11 * WEIR_SECOND, 5);
        must(outage_read(place->limiter, &outage), "it lasts");
        struct weir_backend_request request = backend_request(place->limit, weir_key_text("a"), 1, now_us, WEIR_PEEK);
        request.cold_since_us = outage.since_us;
        request.limit_id |= outage.tag << OUTAGE_TAG_BIT;
        ck_assert_int_eq(own_ops(fallback)->debt(fallback, &request), 5);
        ck_assert_int_eq(own_ops(fallback)->pay(fallback, &request, 0), 5);
        ck_assert_int_eq(own_ops(fallback)->pay(fallback, &request, 2), 3);
        ck_assert_int_eq(own_ops(fallback)->debt(fallback, &request), 3);
        ck_assert_int_eq(stats_of(place->limiter).keys, 1);
        ck_assert_int_eq(own_ops(fallback)->pay(fallback, &request, 4), 0);
        ck_assert_int_eq(stats_of(place->limiter).keys, 0);
        ck_assert_int_eq(own_ops(fallback)->pay(fallback, &request, 1), 0);
    }
}

/* ---- Several at once ---- */

TEST(a_group_settles_all_of_its_keys_first_or_fails_as_a_whole, 30)
{
    PLACE(place, LAZY, NULL, ten);
    struct weir_decision decision;
    weir_limit *other;
    other = limit_of(place->limiter, "other", "token_bucket limit=20 period=20s");
    const struct weir_request both[2] = { { place->limit, weir_key_text("a"), 1, 0 },
                                          { other, weir_key_text("a"), 1, 0 } };
    outage_admits(place, "a", 5 * WEIR_SECOND, 3);
    must(taken(other, "a", 4).allowed, "as much for each limit");
    cable_set(&place->cable, CABLE_LOSES_REQUEST);
    must_succeed(weir_try_all(place->limiter, both, 2, &decision));
    ck_assert(decision.allowed && decision.source == WEIR_BY_FALLBACK);
    const int charges = place->cable.charges;
    cable_set(&place->cable, CABLE_WELL);
    must_succeed(weir_try_all(place->limiter, both, 2, &decision));
    ck_assert(decision.allowed && decision.source == WEIR_BY_BACKEND);
    ck_assert_int_eq(decision.remaining, 10 - 4 - 1);
    ck_assert_int_eq(peeked(other, "a", 1).remaining, 20 - 5 - 1);
    ck_assert_int_eq(place->cable.charges, charges + 1); /* one call for both */
}

TEST(a_batch_settles_each_of_its_keys_once, 30)
{
    PLACE(place, LAZY, NULL, ten);
    struct weir_decision decisions[4];
    weir_limit *limit = place->limit;
    const struct weir_request requests[4] = { { limit, weir_key_text("a"), 1, 0 },
                                              { limit, weir_key_text("b"), 1, 0 },
                                              { limit, weir_key_text("a"), 1, 0 },
                                              { limit, weir_key_text("c"), 1, 0 } };
    outage_admits(place, "a", 5 * WEIR_SECOND, 3);
    must(try_in(place, "b", 2).allowed, "as much for each key");
    cable_set(&place->cable, CABLE_WELL);
    must_succeed(weir_try_batch(place->limiter, requests, 4, decisions));
    ck_assert_int_eq(decisions[0].remaining, 6);
    ck_assert_int_eq(decisions[1].remaining, 7);
    ck_assert_int_eq(decisions[2].remaining, 5);
    ck_assert_int_eq(decisions[3].remaining, 9);
    ck_assert_int_eq(place->remote.charged, 5);
}
