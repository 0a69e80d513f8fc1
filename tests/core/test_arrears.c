/* test_arrears.c - permits of several outages do not add up, though they drain in the fallback, unless the key lay idle
 * in the store. */
#include "settle_place.h"

#include "core/limiter/request.h"
#include "core/outage/arrears.h"

#include <time.h>

/* A bucket that fills in two seconds. */
static const char *const two = "token_bucket limit=1 period=1s burst=2";

/* Return what is noted of a key. */
static int64_t noted(struct place *place, const char *key)
{
    const struct weir_backend_request of = backend_request(place->limit, weir_key_text(key), 1, now_us, WEIR_TAKE);
    return arrears_of(place->limiter, &of);
}

/* End the last outage, cut the cable, take a permit a second for as long, and mend it. Return how many permits there
 * were. */
static int64_t outage_of(struct place *place, const char *key, int seconds)
{
    int64_t admitted = 0;
    must(try_in(place, "c", 1).source == WEIR_BY_BACKEND, "the last outage is over");
    cable_set(&place->cable, CABLE_CUT);
    must(!try_in(place, key, 1).allowed, "it begins cold");
    for (int i = 0; i < seconds; i++) {
        now_us += WEIR_SECOND;
        admitted += try_in(place, key, 1).allowed;
    }
    cable_set(&place->cable, CABLE_WELL);
    return admitted;
}

/* Ask once more, after the pause between two charges of arrears. */
static struct weir_decision try_later(struct place *place, const char *key)
{
    nanosleep(&(struct timespec){ .tv_nsec = 110000000 }, NULL);
    return try_in(place, key, 1);
}

TEST(repeated_outages_admit_nothing_more_for_a_key_in_use_elsewhere, 30)
{
    PLACE(place, LAZY_TELLING, NULL, two);
    OTHER(other);
    place_join(&other, &place->remote, OPTIONS(.rank = 0), two);
    must(try_in(&other, "a", 2).allowed, "it is in use");
    ck_assert_int_eq(outage_of(place, "a", 10), 10);
    for (int flap = 0; flap < 20; flap++) {
        for (int i = 0; i < 5; i++) {
            now_us += WEIR_SECOND;
            try_in(&other, "a", 1);
            try_in(place, "b", 1);
        }
        ck_assert_int_eq(outage_of(place, "a", 10), 0);
    }
    ck_assert_int_ge(outage_of(place, "b", 10), 9); /* a key without arrears */
    ck_assert_int_le(outage_of(place, "a", 14), 14 - 10 + 1);
}

TEST(with_outage_adds_every_outage_admits_its_own_permits, 30)
{
    for (int own = 0; own < 2; own++) { /* with the option, or over a backend that does not tell idle times */
        PLACE(place, own ? LAZY_TELLING : LAZY, OPTIONS(.outage_adds = own), two);
        ck_assert_int_eq(outage_of(place, "a", 10), 10);
        now_us += 10 * WEIR_SECOND;
        ck_assert_int_ge(outage_of(place, "a", 10), 9);
        ck_assert_int_eq(noted(place, "a"), 0);
    }
}

TEST(arrears_that_drained_while_the_key_was_idle_in_redis_are_forgiven, 30)
{
    PLACE(place, LAZY_TELLING, NULL, two);
    place->remote.idle_us = 10 * WEIR_SECOND;
    for (int outage = 0; outage < 5; outage++) {
        ck_assert_int_ge(outage_of(place, "a", 10), 9);
        must(noted(place, "a") >= 9, "all of it is noted");
        try_in(place, "a", 1);
        ck_assert_int_eq(noted(place, "a"), 0); /* the rest was a debt, and is paid */
        now_us += 3 * WEIR_SECOND;
    }
    ck_assert_int_eq(place->remote.asks, 5);
}

TEST(arrears_are_forgiven_for_idle_time_only, 30)
{
    PLACE(place, LAZY_TELLING, NULL, two);
    ck_assert_int_eq(outage_of(place, "a", 10), 10);
    place->remote.idle_us = 6 * WEIR_SECOND;
    now_us += WEIR_HOUR; /* no debt is left */
    for (int i = 0; i < 3; i++) {
        must(try_in(place, "a", 1).source == WEIR_BY_BACKEND, "the backend decides");
        ck_assert_int_eq(noted(place, "a"), 10 - 6);
    }
    ck_assert_int_eq(place->remote.asks, 1);
    ck_assert_int_eq(place->remote.charged, 0);
}

TEST(idle_time_before_an_outage_forgives_none_of_its_arrears, 30)
{
    PLACE(place, LAZY_TELLING, NULL, two);
    ck_assert_int_eq(outage_of(place, "a", 10), 10);
    place->remote.idle_us = 9 * WEIR_SECOND;
    place->remote.ended_us = WEIR_MINUTE; /* longer ago than the outage's end, whose time is real */
    now_us += WEIR_HOUR;
    try_in(place, "a", 1);
    ck_assert_int_eq(noted(place, "a"), 10);
    try_in(place, "a", 1);
    ck_assert_int_eq(place->remote.asks, 1);
}

TEST(a_charge_without_an_answer_forgives_nothing, 30)
{
    PLACE(place, LAZY_TELLING, NULL, two);
    ck_assert_int_eq(outage_of(place, "a", 10), 10);
    place->remote.idle_us = 10 * WEIR_SECOND;
    now_us += WEIR_HOUR;
    cable_set(&place->cable, CABLE_LOSES_ANSWER);
    ck_assert(try_in(place, "a", 1).source == WEIR_BY_FALLBACK);
    ck_assert_int_ge(noted(place, "a"), 10);
    cable_set(&place->cable, CABLE_WELL);
    try_in(place, "a", 1);
    ck_assert_int_eq(noted(place, "a"), 0);
}

TEST(arrears_are_paid_from_unused_permits_and_deny_no_request, 30)
{
    PLACE(place, LAZY_TELLING, NULL, "token_bucket limit=10 period=1s burst=30");
    ck_assert_int_eq(outage_of(place, "a", 8), 8);
    must(noted(place, "a") == 8, "all of it is noted");
    now_us += WEIR_HOUR;
    ck_assert_int_eq(try_in(place, "a", 1).remaining, 29); /* it has asked whether the key lay idle */
    now_us += WEIR_HOUR;
    for (int64_t left = 8; left > 0; left -= 2) { /* a fifteenth of 30 */
        const struct weir_decision decision = try_later(place, "a");
        ck_assert(decision.allowed && decision.source == WEIR_BY_BACKEND);
        ck_assert_int_eq(decision.remaining, 30 - 2 - 1);
        ck_assert_int_eq(noted(place, "a"), left - 2);
        now_us += WEIR_HOUR;
    }
    ck_assert_int_eq(try_later(place, "a").remaining, 29);
    ck_assert_int_eq(place->remote.charged, 8);
    ck_assert_int_eq(outage_of(place, "a", 8), 8);
}

TEST(a_key_near_its_limit_pays_no_arrears, 30)
{
    PLACE(place, LAZY_TELLING, NULL, "token_bucket limit=10 period=1s burst=30");
    ck_assert_int_eq(outage_of(place, "a", 8), 8);
    now_us += WEIR_HOUR;
    must(try_in(place, "a", 20).allowed, "it leaves fewer than 15");
    try_in(place, "a", 1);
    const int64_t before = noted(place, "a");
    ck_assert(try_later(place, "a").allowed);
    ck_assert_int_eq(noted(place, "a"), before);
}

TEST(a_bucket_with_a_burst_of_one_pays_no_arrears, 30)
{
    PLACE(place, LAZY_TELLING, NULL, "token_bucket limit=1 period=1s burst=1");
    must(outage_of(place, "a", 10) > 0, "time makes permits");
    now_us += WEIR_HOUR;
    const int64_t before = noted(place, "a");
    must(before > 0, "something is noted");
    for (int i = 0; i < 3; i++, now_us += WEIR_SECOND)
        ck_assert(try_later(place, "a").allowed);
    ck_assert_int_eq(noted(place, "a"), before);
}

TEST(owed_permits_are_charged_before_arrears_and_counted_once, 30)
{
    PLACE(place, LAZY_TELLING, NULL, ten);
    outage_admits(place, "a", 4 * WEIR_SECOND, 4);
    ck_assert_int_eq(noted(place, "a"), 4);
    cable_set(&place->cable, CABLE_WELL);
    ck_assert_int_eq(try_in(place, "a", 1).remaining, 10 - 4 - 1);
    ck_assert_int_eq(noted(place, "a"), 0);
}

TEST(windows_and_interval_refill_have_arrears_too, 30)
{
    static const char *const policies[] = { "fixed_window limit=2 period=2s", "sliding_window limit=2 period=2s",
                                            "token_bucket limit=2 period=2s refill=interval" };
    for (size_t i = 0; i < sizeof policies / sizeof *policies; i++) {
        PLACE(place, LAZY_TELLING, NULL, policies[i]);
        OTHER(other);
        place_join(&other, &place->remote, OPTIONS(.rank = 0), policies[i]);
        must(try_in(&other, "a", 2).allowed, "it is in use");
        ck_assert_int_eq(outage_of(place, "a", 10), 10);
        for (int flap = 0; flap < 3; flap++) {
            for (int k = 0; k < 5; k++) {
                now_us += WEIR_SECOND;
                try_in(&other, "a", 2);
                try_in(place, "b", 1);
            }
            ck_assert_int_eq(outage_of(place, "a", 10), 0);
        }
        place->remote.idle_us = 30 * WEIR_SECOND;
        try_in(place, "a", 1);
        ck_assert_int_eq(noted(place, "a"), 0);
    }
}

TEST(arrears_of_terabytes_are_noted_in_coarser_units, 30)
{
    static const char *const policy = "token_bucket limit=1T period=1s burst=2T";
    const int64_t cost = 1000000000000 - 1;
    PLACE(place, LAZY_TELLING, NULL, policy);
    OTHER(other);
    place_join(&other, &place->remote, OPTIONS(.rank = 0), policy);
    must(try_in(&other, "a", 2 * cost).allowed, "it is in use");
    must(try_in(place, "c", 1).source == WEIR_BY_BACKEND, "no outage yet");
    cable_set(&place->cable, CABLE_CUT);
    must(!try_in(place, "a", 1).allowed, "it begins cold");
    now_us += WEIR_SECOND;
    must(try_in(place, "a", cost).allowed, "a second's permits");
    ck_assert_int_ge(noted(place, "a"), cost);
    ck_assert_int_lt(noted(place, "a"), cost + cost / (1 << 20));
    cable_set(&place->cable, CABLE_WELL);
    for (int i = 0; i < 5; i++) {
        now_us += WEIR_SECOND;
        try_in(&other, "a", cost);
        try_in(place, "b", 1);
    }
    ck_assert_int_ge(noted(place, "a"), cost);
    place->remote.idle_us = 30 * WEIR_SECOND;
    try_in(place, "a", 1);
    ck_assert_int_eq(noted(place, "a"), 0);
}

TEST(requests_in_flight_have_no_arrears, 30)
{
    PLACE(place, LAZY_TELLING, NULL, "concurrency limit=2 hold=2s");
    must(try_in(place, "b", 1).source == WEIR_BY_BACKEND, "no outage yet");
    cable_set(&place->cable, CABLE_CUT);
    must(try_in(place, "a", 1).allowed, "the fallback gives a slot");
    cable_set(&place->cable, CABLE_WELL);
    try_in(place, "b", 1);
    ck_assert_int_eq(noted(place, "a"), 0);
}

TEST(a_reset_ends_arrears, 30)
{
    PLACE(place, LAZY_TELLING, NULL, two);
    ck_assert_int_eq(outage_of(place, "a", 10), 10);
    must(noted(place, "a") == 10, "all of it is noted");
    must_succeed(weir_reset(place->limit, weir_key_text("a")));
    ck_assert_int_eq(noted(place, "a"), 0);
}

TEST(a_submitted_request_pays_arrears_too, 30)
{
    PLACE(place, EAGER_TELLING, NULL, "token_bucket limit=10 period=1s burst=30");
    struct asked asked = { .done = 0 };
    ck_assert_int_eq(outage_of(place, "a", 8), 8);
    now_us += WEIR_HOUR;
    submit_in(place, "a", &asked);
    ck_assert_int_eq(place->remote.asks, 1);
    const int64_t before = noted(place, "a");
    nanosleep(&(struct timespec){ .tv_nsec = 110000000 }, NULL);
    submit_in(place, "a", &asked);
    ck_assert(asked.op.decision.allowed);
    ck_assert_int_lt(noted(place, "a"), before);
}
