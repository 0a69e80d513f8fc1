/* test_settle.c - what an outage admits is charged to the store afterwards: when, and how much. */
#include "settle_place.h"

#include "core/follow/layers.h"
#include "core/ground/clock.h"
#include "core/outage/outage.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* ---- When it is charged ---- */

TEST(all_keys_are_settled_as_soon_as_the_backend_returns, 30)
{
    PLACE(place, EAGER, NULL, ten);
    outage_admits(place, "a", 5 * WEIR_SECOND, 3);
    must(try_in(place, "b", 2).allowed, "as much for each key");
    must(!try_in(place, "c", 6).allowed, "not all");
    cable_set(&place->cable, CABLE_WELL);
    ck_assert_int_eq(place->remote.charged, 5);
    ck_assert_int_eq(place->cable.charges, 0); /* submitted, all of them */
    ck_assert_int_eq(try_in(place, "a", 1).remaining, 6);
    ck_assert_int_eq(try_in(place, "b", 1).remaining, 7);
    ck_assert_int_eq(try_in(place, "c", 1).remaining, 9);
    const struct weir_stats stats = stats_of(place->limiter);
    ck_assert_uint_eq(stats.settled, 5);
    ck_assert_uint_eq(stats.unsettled, 0);
    ck_assert_uint_eq(stats.outages, 1);
    ck_assert_int_eq(stats.keys, 0);
    ck_assert(!atomic_load(&place->limiter->outage->settle.owes));
}

TEST(thousands_of_keys_of_many_limits_are_settled_in_batches, 30)
{
    enum { LIMITS = 3, KEYS = 3000 };
    PLACE(place, EAGER, NULL, ten);
    weir_limit *limits[LIMITS] = { place->limit };
    for (int i = 1; i < LIMITS; i++) {
        char name[16];
        snprintf(name, sizeof name, "limit%d", i);
        limits[i] = limit_of(place->limiter, name, ten);
    }
    atomic_store(&place->cable.later, true);
    outage_admits(place, "a", 5 * WEIR_SECOND, 3);
    for (int i = 0; i < KEYS; i++) {
        char key[16];
        snprintf(key, sizeof key, "%d", i);
        must(taken(limits[i % LIMITS], key, 1 + i % 5).allowed, "time makes permits");
    }
    cable_set(&place->cable, CABLE_WELL);
    while (cable_answer(&place->cable, 7) > 0)
        ;
    ck_assert_int_eq(place->remote.charged, 3 + KEYS / 5 * 15);
    ck_assert_int_eq(place->remote.most_charged, 5);
    ck_assert_int_eq(place->cable.submits, 1 + KEYS);
    ck_assert_int_eq(stats_of(place->limiter).keys, 0);
    ck_assert(!atomic_load(&place->limiter->outage->settle.owes));
}

TEST(a_key_that_owes_for_a_later_outage_only_is_forgotten_for_the_earlier_one, 30)
{
    PLACE(place, EAGER, NULL, ten);
    struct cable *cable = &place->cable;
    atomic_store(&cable->later, true);
    outage_admits(place, "a", 5 * WEIR_SECOND, 1);
    cable_set(cable, CABLE_WELL);
    must(try_in(place, "b", 1).source == WEIR_BY_BACKEND, "the first outage is over");
    cable_set(cable, CABLE_CUT);
    must(cable_answer(cable, 1) == 1, "the charge for the first finds a second");
    now_us += 10 * WEIR_SECOND; /* enough to fill a bucket that was empty at the end of the first outage */
    outage_admits(place, "a", 5 * WEIR_SECOND, 1);
    cable_set(cable, CABLE_WELL);
    while (cable_answer(cable, 1) > 0)
        ;
    ck_assert_int_eq(place->remote.charged, 1);
    ck_assert(!atomic_load(&place->limiter->outage->settle.owes));
    ck_assert_int_eq(stats_of(place->limiter).keys, 0);
}

TEST(a_requested_key_is_settled_before_its_request, 30)
{
    for (int verb = 0; verb < 5; verb++) {
        PLACE(place, LAZY, NULL, ten);
        struct weir *limiter = place->limiter;
        weir_limit *limit = place->limit;
        struct weir_decision decision;
        const struct weir_request request = { limit, weir_key_text("a"), 1, 0 };
        outage_admits(place, "a", 5 * WEIR_SECOND, 3);
        must(try_in(place, "b", 2).allowed, "as much for each key");
        cable_set(&place->cable, CABLE_WELL);
        ck_assert_int_eq(place->remote.charged, 0);
        switch (verb) {
        case 0: must_succeed(weir_try(limit, request.key, 1, &decision)); break;
        case 1: must_succeed(weir_peek(limit, request.key, 1, &decision)); break;
        case 2: must_succeed(weir_acquire(limit, request.key, 1, 0, &decision)); break;
        case 3: must_succeed(weir_try_all(limiter, &request, 1, &decision)); break;
        default: must_succeed(weir_try_batch(limiter, &request, 1, &decision)); break;
        }
        ck_assert_int_eq(decision.source, WEIR_BY_BACKEND);
        ck_assert_int_eq(decision.remaining, verb == 1 ? 7 : 6);
        ck_assert_int_eq(place->remote.charged, 3);
        ck_assert_int_eq(try_in(place, "b", 1).remaining, 7);
        ck_assert_uint_eq(stats_of(limiter).settled, 5);
        for (int i = 0; i < 100 && atomic_load(&limiter->outage->settle.owes); i++)
            try_in(place, "c", 1);
        ck_assert(!atomic_load(&limiter->outage->settle.owes)); /* it is found out that nothing is owed any more */
    }
}

TEST(the_first_success_ends_an_outage_and_begins_to_settle, 30)
{
    PLACE(place, LATER, NULL, ten);
    outage_passes(place, "a", 5 * WEIR_SECOND, 3);
    ck_assert_int_eq(place->cable.submits, 0);
    try_in(place, "b", 1);
    ck_assert_int_eq(place->cable.submits, 1);
    ck_assert_int_eq(cable_answer(&place->cable, 10), 1);
    ck_assert_int_eq(place->remote.charged, 3);
    ck_assert_int_eq(try_in(place, "a", 1).remaining, 6);
}

static int64_t seen_well_us;

static int64_t say_seen_well(struct weir_backend *backend, const struct weir_key *key)
{
    return seen_well_us;
}

TEST(an_outage_that_ended_unnoticed_is_settled_before_the_next_begins, 30)
{
    PLACE(place, LAZY, NULL, ten);
    place->cable.ops.reachable_us = say_seen_well;
    seen_well_us = clock_monotonic_us();
    outage_admits(place, "a", 5 * WEIR_SECOND, 3);
    seen_well_us = clock_monotonic_us() + WEIR_MINUTE;
    ck_assert(!try_in(place, "b", 1).allowed); /* cold once more */
    ck_assert_uint_eq(stats_of(place->limiter).outages, 2);
    cable_set(&place->cable, CABLE_WELL);
    ck_assert_int_eq(try_in(place, "a", 1).remaining, 6);
    ck_assert_uint_eq(stats_of(place->limiter).settled, 3);
}

/* Take with the caller's time. */
static struct weir_decision try_at(struct place *place, const char *key, int64_t at_us, int64_t cost)
{
    const struct weir_request request = { place->limit, weir_key_text(key), cost, at_us };
    struct weir_decision decision;
    must_succeed(weir_try_batch(place->limiter, &request, 1, &decision));
    return decision;
}

TEST(permits_owed_at_a_callers_time_are_settled_at_that_time, 30)
{
    static const int64_t ahead_us[] = { 30 * WEIR_SECOND, -WEIR_HOUR };
    for (int i = 0; i < 4; i++) {
        PLACE(place, EAGER, NULL, "token_bucket limit=10 period=20s");
        struct weir *limiter = place->limiter;
        const int64_t at_us = now_us + ahead_us[i % 2], later_us = at_us + 2 * WEIR_SECOND;
        must(try_at(place, "a", at_us, 10).allowed, "it is full");
        cable_set(&place->cable, CABLE_CUT);
        must(!try_at(place, "a", at_us, 1).allowed, "an outage begins cold");
        must(try_at(place, "a", later_us, 1).allowed, "time makes a permit");
        now_us += 2 * WEIR_SECOND;
        cable_set(&place->cable, CABLE_WELL);
        if (i >= 2)
            ck_assert_int_eq(try_in(place, "b", 1).remaining, 9); /* by the clock; ends the outage */
        ck_assert_int_eq(place->remote.charged, 0);
        struct weir_decision decision = try_at(place, "a", later_us, 1);
        ck_assert(!decision.allowed && decision.source == WEIR_BY_BACKEND && decision.remaining == 0);
        ck_assert_int_eq(place->remote.charged, 1);
        ck_assert(try_at(place, "a", later_us + 2 * WEIR_SECOND, 1).allowed);
        atomic_store(&limiter->outage->settle.chain.again_us, 0);
        try_in(place, "b", 1);
        ck_assert(!atomic_load(&limiter->outage->settle.owes));
        ck_assert_uint_eq(stats_of(limiter).settled, 1);
        ck_assert_uint_eq(stats_of(limiter).unsettled, 0);
    }
}

/* ---- How much ---- */

TEST(a_short_outage_charges_a_key_exactly_what_it_admitted, 30)
{
    for (enum way way = EAGER; way <= LAZY; way += LAZY) {
        PLACE(place, way, NULL, ten);
        ck_assert_int_eq(try_in(place, "a", 4).remaining, 6);
        outage_admits(place, "a", 3 * WEIR_SECOND + 300000, 2); /* both sides have a fraction of a permit */
        cable_set(&place->cable, CABLE_WELL);
        ck_assert_int_eq(try_in(place, "a", 1).remaining, 10 - 1 - 2 - 1); /* 0.7 of the four, then these */
        ck_assert_uint_eq(stats_of(place->limiter).settled, 2);
    }
}

TEST(permits_owed_by_a_bucket_stay_constant_after_the_outage_until_it_is_full, 30)
{
    static const char *const policies[] = { "token_bucket limit=10 period=10s", "leaky_bucket limit=10 period=10s",
                                            "token_bucket limit=1 period=1s burst=10 refill=interval" };
    for (size_t i = 0; i < sizeof policies / sizeof policies[0]; i++) {
        for (int64_t later_us = 3 * WEIR_SECOND; later_us <= 10 * WEIR_SECOND; later_us += 7 * WEIR_SECOND) {
            PLACE(place, LAZY, NULL, policies[i]);
            outage_passes(place, "a", 10 * WEIR_SECOND, 4);
            try_in(place, "b", 1);
            now_us += later_us;
            const bool has_filled = later_us == 10 * WEIR_SECOND;
            ck_assert_int_eq(try_in(place, "a", 1).remaining, has_filled ? 9 : 5);
        }
    }
}

TEST(of_an_outage_over_three_windows_the_current_one_alone_is_settled, 30)
{
    static const char *const policies[] = { "fixed_window limit=10 period=10s",
                                            "fixed_window limit=10 period=10s align=epoch",
                                            "sliding_window limit=10 period=10s" };
    for (size_t i = 0; i < sizeof policies / sizeof policies[0]; i++) {
        for (enum way way = EAGER; way <= LAZY; way += LAZY) {
            PLACE(place, way, NULL, policies[i]);
            outage_admits(place, "a", 11 * WEIR_SECOND, 10);
            now_us += 11 * WEIR_SECOND;
            must(try_in(place, "a", 10).allowed && try_in(place, "b", 9).allowed, "the next window");
            now_us += 11 * WEIR_SECOND;
            must(try_in(place, "a", 3).allowed, "and one more");
            cable_set(&place->cable, CABLE_WELL);
            ck_assert_int_eq(try_in(place, "a", 1).remaining, 6);
            ck_assert_int_eq(try_in(place, "b", 1).remaining, 9);
            ck_assert_uint_eq(stats_of(place->limiter).settled, 3);
        }
    }
}

TEST(a_window_that_ends_before_it_is_settled_owes_nothing, 30)
{
    PLACE(place, LAZY, NULL, "fixed_window limit=10 period=10s");
    outage_passes(place, "a", 11 * WEIR_SECOND, 10);
    try_in(place, "b", 1);
    now_us += 10 * WEIR_SECOND;
    ck_assert_int_eq(try_in(place, "a", 1).remaining, 9);
    ck_assert_uint_eq(stats_of(place->limiter).settled, 0);
}

TEST(owed_permits_are_charged_as_far_as_they_fit_and_the_rest_before_new_requests, 30)
{
    for (enum way way = EAGER; way <= LAZY; way += LAZY) {
        PLACE(place, way, NULL, ten);
        struct weir *limiter = place->limiter;
        OTHER(other);
        place_join(&other, &place->remote, NULL, ten);
        outage_admits(place, "a", 8 * WEIR_SECOND, 8);
        ck_assert_int_eq(taken(other.limit, "a", 7).remaining, 3); /* the other instance is not cut off */
        cable_set(&place->cable, CABLE_WELL);
        ck_assert(!try_in(place, "a", 1).allowed);
        ck_assert_uint_eq(stats_of(limiter).settled, 3);
        now_us += 4 * WEIR_SECOND;
        ck_assert(taken(other.limit, "a", 3).allowed); /* it knows of no debt */
        ck_assert(!try_in(place, "a", 1).allowed);
        ck_assert_uint_eq(stats_of(limiter).settled, 4);
        now_us += 5 * WEIR_SECOND;
        struct weir_decision decision = try_in(place, "a", 1);
        ck_assert(decision.allowed && decision.source == WEIR_BY_BACKEND && decision.remaining == 0);
        ck_assert_uint_eq(stats_of(limiter).settled, 8);
        ck_assert_uint_eq(stats_of(limiter).unsettled, 0);
    }
}

TEST(owed_permits_are_charged_to_the_current_policy, 30)
{
    PLACE(place, LAZY, NULL, ten);
    outage_passes(place, "a", 5 * WEIR_SECOND, 3);
    limit_of(place->limiter, "limit", "fixed_window limit=5 period=1h");
    ck_assert_int_eq(try_in(place, "a", 1).remaining, 1);
}

/* ---- Policies that change during an outage ---- */

static void put_text(struct place *place, const char *name, const char *policy)
{
    const struct weir_policy read = policy_of(policy ? policy : ten);
    must_succeed(weir_limit_define(place->limiter, name, policy ? &read : NULL, NULL));
}

static void put_layer(struct place *place, const char *pattern, const char *policy)
{
    const struct policy_entry entry = { .name = "limit", .pattern = pattern, .policy = policy_of(policy) };
    struct layers_result result;
    must_succeed(layers_apply(place->limiter, WEIR_FOLLOW_CONSUL_POLICIES, &entry, 1, &result));
    ck_assert_uint_eq(result.changes, 1);
}

static void put_file(struct place *place, const char *line)
{
    char path[] = "/tmp/weir-test-XXXXXX";
    const int fd = mkstemp(path);
    must(fd >= 0 && write(fd, line, strlen(line)) == (ssize_t)strlen(line) && close(fd) == 0, "a file");
    must_succeed(weir_limits_load(place->limiter, path, NULL, 0));
    unlink(path);
}

static const char *const thousand = "token_bucket limit=1000 period=1000s";

static void put_change(struct place *place, int change)
{
    switch (change) {
    case 0: put_text(place, "limit", thousand); break;
    case 1: put_text(place, "limit/a", thousand); break;
    case 2: put_text(place, "limit/a*", thousand); break;
    case 3: put_text(place, "limit/pre*", NULL); break;
    case 4: put_text(place, "limit/prefix", NULL); break;
    case 5: put_layer(place, NULL, thousand); break;
    case 6: put_layer(place, "a", thousand); break;
    case 7: put_file(place, "limit = token_bucket limit=1000 period=1000s\n"); break;
    default: put_file(place, "limit/a* = token_bucket limit=1000 period=1000s\n"); break;
    }
}

TEST(a_policy_change_in_an_outage_admits_nothing_extra_and_forgets_no_owed_permit, 10)
{
    for (int change = 0; change < 9; change++) {
        PLACE(place, EAGER, NULL, change == 3 || change == 4 ? thousand : ten);
        const char *const key = change == 3 || change == 4 ? "prefix" : "a";
        put_text(place, "limit/pre*", ten);
        if (change == 4) {
            put_text(place, "limit/pre*", thousand);
            put_text(place, "limit/prefix", ten);
        }
        outage_admits(place, key, 5 * WEIR_SECOND, 3);
        put_change(place, change);
        const struct weir_decision cold = try_in(place, key, 1);
        ck_assert_int_eq(cold.limit, 1000);
        ck_assert(!cold.allowed);
        now_us += 2 * WEIR_SECOND;
        must(try_in(place, key, 2).allowed, "time makes permits");
        must(!try_in(place, key, 1).allowed, "and no more");
        cable_set(&place->cable, CABLE_WELL);
        ck_assert_int_eq(place->remote.charged, 5);
        ck_assert_int_eq(try_in(place, key, 1).remaining, 994);
        const struct weir_stats stats = stats_of(place->limiter);
        ck_assert_uint_eq(stats.settled, 5);
        ck_assert_uint_eq(stats.unsettled, 0);
        ck_assert_uint_eq(stats.outages, 2);
    }
}

TEST(a_redefinition_that_changes_no_key_does_not_split_an_outage, 10)
{
    PLACE(place, EAGER, NULL, ten);
    outage_admits(place, "a", 5 * WEIR_SECOND, 3);
    put_text(place, "limit", ten);
    put_text(place, "another", thousand);
    put_text(place, "limit/b", NULL);
    put_layer(place, NULL, ten);
    must(try_in(place, "a", 2).allowed, "what it had");
    ck_assert_uint_eq(stats_of(place->limiter).outages, 1);
}

TEST(a_reset_forgets_owed_permits_and_a_refund_does_not, 30)
{
    PLACE(place, LAZY, NULL, ten);
    outage_admits(place, "a", 5 * WEIR_SECOND, 3);
    must(try_in(place, "b", 3).allowed, "as much for each key");
    cable_set(&place->cable, CABLE_WELL);
    must_succeed(weir_reset(place->limit, weir_key_text("a")));
    ck_assert_int_eq(try_in(place, "a", 1).remaining, 9);
    must_succeed(weir_refund(place->limit, weir_key_text("b"), 1));
    ck_assert_int_eq(try_in(place, "b", 1).remaining, 6);

    OTHER(other); /* leaves no room for the debt */
    place_join(&other, &place->remote, NULL, ten);
    taken(other.limit, "c", 9);
    outage_admits(place, "c", 3 * WEIR_SECOND, 3);
    taken(other.limit, "c", 3);
    cable_set(&place->cable, CABLE_WELL);
    must_succeed(weir_reset(place->limit, weir_key_text("c")));
    ck_assert_int_eq(try_in(place, "c", 1).remaining, 9);
}
