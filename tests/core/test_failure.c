/* test_failure.c - decisions while the backend fails: each enum weir_on_failure, each verb, several outages. */
#include "fake.h"
#include "set_share.h"

#include <time.h>

#include "core/api/life.h"
#include "core/ground/hook_queue.h"
#include "core/limiter/limiter.h"
#include "core/limiter/options.h"

#include <stdio.h>
#include <unistd.h>

/* A fake backend, a limiter over it and a limit of ten permits, one back each second. */
struct stage {
    struct fake fake;
    struct scene scene;
    weir_limit *limit;
};

static const int64_t ten_us = 10 * WEIR_SECOND;

static void stage_open(struct stage *stage, const struct weir_options *options, bool shared)
{
    struct weir_options cold = WEIR_OPTIONS_INIT;
    if (options)
        cold = *options;
    cold.outage_cold = true;
    fake_init(&stage->fake);
    stage->fake.ops.shared = shared;
    fake_open(&stage->fake, &stage->scene, &cold);
    stage->scene.now_us -= stage->scene.now_us % 64; /* an outage's beginning is rounded up to this */
    stage->limit = scene_define_text(&stage->scene, "limit", "token_bucket limit=10 period=10s");
}

static void stage_end(struct stage *stage)
{
    scene_close(&stage->scene);
}

/* Open a stage that is closed where its block ends. */
#define STAGE(name, ...)                    \
    CLOSED_BY(stage_end) struct stage name; \
    stage_open(&name, __VA_ARGS__)

/* ---- By this process's share ---- */

TEST(during_an_outage_memory_decides_by_the_share_and_starts_cold, 30)
{
    struct stage stage;
    stage_open(&stage, OPTIONS(.instances = 2), true);
    struct weir_decision decision = taken(stage.limit, "a", 10);
    ck_assert_int_eq(decision.source, WEIR_BY_BACKEND);
    ck_assert_int_eq(decision.limit, 10); /* the whole limit, because all instances count in the backend */

    atomic_store(&stage.fake.answer, WEIR_ETIME);
    decision = taken(stage.limit, "a", 1);
    ck_assert_int_eq(decision.source, WEIR_BY_FALLBACK);
    ck_assert(!decision.allowed);
    ck_assert_uint_eq(stats_of(stage.scene.limiter).outage, 1);
    ck_assert_int_eq(decision.limit, 5);
    ck_assert_int_eq(decision.remaining, 0);
    ck_assert_int_eq(decision.retry_after_us, WEIR_SECOND); /* two at half the rate, but the outage may end */
    ck_assert_int_eq(decision.reset_after_us, ten_us);
    ck_assert_int_eq(taken(stage.limit, "a", 6).retry_after_us, WEIR_SECOND); /* more than the share */
    ck_assert_int_eq(taken(stage.limit, "a", 11).retry_after_us, WEIR_NEVER);

    stage.scene.now_us += 2 * WEIR_SECOND;
    atomic_store(&stage.fake.answer, WEIR_EIO);
    ck_assert(peeked(stage.limit, "a", 1).allowed);
    ck_assert(taken(stage.limit, "a", 1).allowed);
    ck_assert(!taken(stage.limit, "a", 1).allowed);
    stage.scene.now_us += ten_us;
    decision = taken(stage.limit, "b", 5); /* an unknown key is full again by now */
    ck_assert(decision.allowed && decision.source == WEIR_BY_FALLBACK);

    atomic_store(&stage.fake.answer, WEIR_OK);
    ck_assert_int_eq(taken(stage.limit, "a", 1).source, WEIR_BY_BACKEND);
    const struct weir_stats stats = stats_of(stage.scene.limiter);
    ck_assert_uint_eq(stats.fallbacks, 6); /* peeks are not counted */
    ck_assert_uint_eq(stats.outages, 1);
    ck_assert_uint_eq(stats.outage, 0);
    ck_assert_uint_eq(stats.allowed, 4);
    ck_assert_uint_eq(stats.denied, 4);
    ck_assert_uint_eq(stats.errors, 0);
    ck_assert_int_eq(stats.keys, 0); /* the fallback's two are settled */
    ck_assert_int_gt(stats.bytes, 0);
    scene_close(&stage.scene);
    ck_assert(stage.fake.destroyed);
}

TEST(the_fallback_of_a_backend_that_enforces_shares_uses_the_same_share, 30)
{
    STAGE(stage, OPTIONS(.instances = 5), false);
    ck_assert_int_eq(taken(stage.limit, "a", 1).limit, 2);
    atomic_store(&stage.fake.answer, WEIR_EIO);
    ck_assert_int_eq(taken(stage.limit, "a", 1).limit, 2);
    ck_assert_int_eq(stage.fake.last_plan.size, 2);
}

static int64_t reachable_us; /* as the backend reports it */

static int64_t say_reachable(struct weir_backend *backend, const struct weir_key *key)
{
    return reachable_us;
}

static int64_t monotonic_us(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * WEIR_SECOND + time.tv_nsec / 1000;
}

TEST(an_outage_that_ended_unnoticed_adds_no_permits_to_the_next_one, 30)
{
    CLOSED_BY(stage_end) struct stage stage;
    fake_init(&stage.fake);
    stage.fake.ops.reachable_us = say_reachable;
    fake_open(&stage.fake, &stage.scene, NULL);
    stage.limit = scene_define_text(&stage.scene, "limit", "token_bucket limit=10 period=10s");
    atomic_store(&stage.fake.answer, WEIR_ETIME);
    reachable_us = monotonic_us();
    ck_assert(!taken(stage.limit, "a", 1).allowed); /* one late answer; then the backend is well without being asked */
    stage.scene.now_us += WEIR_HOUR;
    ck_assert(taken(stage.limit, "b", 10).allowed);  /* weir does not know that yet: an hour's permits */
    reachable_us = monotonic_us() + 2 * WEIR_SECOND; /* some time after that failure */
    ck_assert(!taken(stage.limit, "c", 1).allowed);
    ck_assert_uint_eq(stats_of(stage.scene.limiter).outages, 2);
    reachable_us = 0;
    stage.scene.now_us += WEIR_SECOND;
    ck_assert(taken(stage.limit, "c", 1).allowed);
    ck_assert_uint_eq(stats_of(stage.scene.limiter).outages, 2);
}

TEST(with_a_common_backend_a_new_share_changes_only_the_fallback, 30)
{
    const struct share half = { .weight = 1, .total = 2, .rank = 0, .count = 2 };
    STAGE(stage, NULL, true);
    atomic_store(&stage.fake.answer, WEIR_EIO);
    ck_assert_int_eq(taken(stage.limit, "a", 1).limit, 10);
    const uint64_t version = stage.fake.last.plan_version;
    stage.scene.now_us += ten_us;
    ck_assert_int_eq(taken(stage.limit, "a", 8).remaining, 2);

    must_succeed(limiter_set_share(stage.scene.limiter, &half));
    struct weir_decision decision = taken(stage.limit, "a",
                                          1); /* carried over: all five permits of the half are used */
    ck_assert_int_eq(decision.limit, 5);
    ck_assert(!decision.allowed && decision.remaining == 0);
    ck_assert_int_eq(stage.fake.last_plan.size, 10);
    ck_assert_uint_eq(stage.fake.last.plan_version, version);
    ck_assert_int_eq(stats_of(stage.scene.limiter).share_total, 2);

    must_succeed(weir_limit_define(stage.scene.limiter, "limit",
                                   &(struct weir_policy){ .limit = 8, .period_us = ten_us }, NULL));
    ck_assert_int_eq(taken(stage.limit, "b", 1).limit, 4);
    ck_assert_int_eq(stage.fake.last_plan.size, 8);
    ck_assert_uint_gt(stage.fake.last.plan_version, version);
}

TEST(a_share_change_with_an_equal_plan_does_not_split_an_outage, 10)
{
    const struct share half = { .weight = 1, .total = 2, .rank = 0, .count = 2 };
    const struct share also = { .weight = 2, .total = 4, .rank = 0, .count = 2 };
    STAGE(stage, NULL, true);
    must_succeed(limiter_set_share(stage.scene.limiter, &half));
    atomic_store(&stage.fake.answer, WEIR_EIO);
    ck_assert(!taken(stage.limit, "a", 1).allowed); /* an outage begins cold */
    stage.scene.now_us += ten_us;
    must_succeed(limiter_set_share(stage.scene.limiter, &also));
    ck_assert(taken(stage.limit, "a", 5).allowed);
    ck_assert_uint_eq(stats_of(stage.scene.limiter).outages, 1);
}

TEST(a_limit_is_refused_if_only_its_share_is_out_of_range, 30)
{
    /* It takes a hundred years to fill, and a share of 1/10,000 takes ten thousand times as long. */
    const struct weir_policy slow = { .limit = 1, .period_us = 366 * WEIR_DAY, .burst = 100 };
    struct weir_options options = WEIR_OPTIONS_INIT;
    struct stage stage;
    stage_open(&stage, &options, true);
    must_succeed(weir_limit_define(stage.scene.limiter, "slow", &slow, NULL));
    scene_close(&stage.scene);
    options.instances = 10000;
    stage_open(&stage, &options, true);
    ck_assert_int_eq(weir_limit_define(stage.scene.limiter, "slow", &slow, NULL), WEIR_EINVAL);
    ck_assert_ptr_null(weir_limit_find(stage.scene.limiter, "slow"));
    scene_close(&stage.scene);
}

TEST(shares_rounded_to_zero_are_counted_for_the_share_not_for_the_whole_limit, 30)
{
    STAGE(stage, OPTIONS(.instances = 20, .rank = 19), true);
    weir_limit *window = scene_define_text(&stage.scene, "window", "fixed_window limit=10 period=1h");
    const struct weir_stats stats = stats_of(stage.scene.limiter);
    ck_assert_uint_eq(stats.share_lifts, 2); /* in an outage a window is a bucket, which a rate bounds */
    ck_assert_uint_eq(stats.share_zeros, 0);
    ck_assert_int_eq(taken(window, "a", 1).limit, 10);
    atomic_store(&stage.fake.answer, WEIR_EIO);
    ck_assert_int_eq(taken(window, "a", 1).limit, 1);
    ck_assert_int_eq(taken(stage.limit, "a", 1).limit, 1);
}

TEST(a_fallback_that_is_full_answers_by_on_full, 30)
{
    STAGE(stage, OPTIONS(.max_keys = 1), true);
    atomic_store(&stage.fake.answer, WEIR_EIO);
    taken(stage.limit, "a", 1);
    stage.scene.now_us += ten_us / 2;
    ck_assert(taken(stage.limit, "a", 1).allowed);
    struct weir_decision decision = taken(stage.limit, "b", 1);
    ck_assert(!decision.allowed && decision.source == WEIR_BY_FALLBACK);
    ck_assert_int_eq(decision.reset_after_us, ten_us / 2); /* cold, although there is no room for it */
    ck_assert_uint_eq(stats_of(stage.scene.limiter).full, 1);
}

/* ---- Outages ---- */

TEST(a_long_outage_admits_its_rate_and_nothing_at_its_start, 30)
{
    int64_t admitted = 0;
    STAGE(stage, NULL, true);
    atomic_store(&stage.fake.answer, WEIR_ETIME);
    for (int i = 0; i < 6000; i++) { /* ten minutes */
        admitted += taken(stage.limit, "a", 1).allowed;
        stage.scene.now_us += WEIR_SECOND / 10;
    }
    ck_assert_int_eq(admitted, 599); /* one a second, none at the start */
    ck_assert_uint_eq(stats_of(stage.scene.limiter).outages, 1);
}

TEST(flapping_admits_no_more_than_the_rate_over_its_outages, 30)
{
    int64_t admitted = 0, longest_us = 0;
    struct chance chance = chance_make(1);
    STAGE(stage, NULL, true);
    for (int flap = 1; flap <= 300; flap++) {
        const int64_t lasts_us = chance_between(&chance, 0, 5 * WEIR_SECOND), begin_us = stage.scene.now_us;
        int64_t here = 0;
        atomic_store(&stage.fake.answer, WEIR_EIO);
        while (stage.scene.now_us <= begin_us + lasts_us) {
            here += taken(stage.limit, "a", 1).allowed;
            stage.scene.now_us += WEIR_SECOND / 4;
        }
        must(here <= lasts_us / WEIR_SECOND, "no outage admits more than its time makes");
        admitted += here;
        longest_us = longest_us > lasts_us ? longest_us : lasts_us;
        atomic_store(&stage.fake.answer, WEIR_OK);
        taken(stage.limit, "b", 1);
        ck_assert_uint_eq(stats_of(stage.scene.limiter).outages, (uint64_t)flap);
    }
    ck_assert_int_gt(admitted, 300);
}

TEST(outages_start_cold_even_after_their_numbers_wrap_around, 30)
{
    STAGE(stage, NULL, true);
    for (int flap = 0; flap < 66000; flap++) {
        atomic_store(&stage.fake.answer, WEIR_EIO);
        must(!taken(stage.limit, "a", 1).allowed, "cold");
        atomic_store(&stage.fake.answer, WEIR_OK);
        taken(stage.limit, "a", 1);
    }
    ck_assert_uint_eq(stats_of(stage.scene.limiter).outages, 66000);
}

TEST(an_outage_is_logged_once_at_its_start_and_once_at_its_end, 30)
{
    STAGE(stage, NULL, true);
    ck_assert_int_eq(scene_heard(&stage.scene)->log_lines, 0);
    atomic_store(&stage.fake.answer, WEIR_ETIME);
    for (int i = 0; i < 5; i++)
        taken(stage.limit, "a", 1);
    ck_assert_int_eq(scene_heard(&stage.scene)->log_lines, 1);
    ck_assert_str_eq(scene_heard(&stage.scene)->last_line,
                     "backend fake: the backend did not answer in time; deciding by this process's "
                     "share until it answers");
    atomic_store(&stage.fake.answer, WEIR_OK);
    for (int i = 0; i < 5; i++)
        taken(stage.limit, "a", 1);
    ck_assert_int_eq(scene_heard(&stage.scene)->log_lines, 2);
    ck_assert_str_eq(scene_heard(&stage.scene)->last_line, "backend fake answers again");
}

TEST(an_outage_by_WEIR_EIO_is_logged_without_a_word_about_files, 30)
{
    STAGE(stage, NULL, true);
    atomic_store(&stage.fake.answer, WEIR_EIO);
    taken(stage.limit, "a", 1);
    ck_assert_str_eq(scene_heard(&stage.scene)->last_line,
                     "backend fake: it cannot be used; deciding by this process's share until it answers");
}

TEST(an_outage_begins_at_the_time_that_the_caller_gave, 30)
{
    struct weir_decision decisions[2];
    STAGE(stage, NULL, true);
    atomic_store(&stage.fake.answer, WEIR_EIO);
    const int64_t start_us = 64000000; /* a replay of long ago */
    struct weir_request requests[2] = { { stage.limit, weir_key_text("a"), 1, start_us },
                                        { stage.limit, weir_key_text("a"), 1, start_us + WEIR_SECOND } };
    must_succeed(weir_try_batch(stage.scene.limiter, requests, 2, decisions));
    ck_assert(!decisions[0].allowed && decisions[0].retry_after_us == WEIR_SECOND);
    ck_assert(decisions[1].allowed);
}

TEST(a_clock_step_back_moves_the_start_of_the_outage_back_too, 30)
{
    STAGE(stage, OPTIONS(.outage_retry_us = WEIR_HOUR), true);
    atomic_store(&stage.fake.answer, WEIR_EIO);
    ck_assert(!taken(stage.limit, "a", 1).allowed);
    stage.scene.now_us -= WEIR_CLOCK_SLACK_US; /* held */
    ck_assert_int_eq(taken(stage.limit, "a", 1).retry_after_us, WEIR_CLOCK_SLACK_US + WEIR_SECOND);
    stage.scene.now_us -= WEIR_HOUR;
    ck_assert_int_eq(taken(stage.limit, "a", 1).retry_after_us, WEIR_SECOND);
    stage.scene.now_us += WEIR_SECOND;
    ck_assert(taken(stage.limit, "a", 1).allowed);
    ck_assert_uint_eq(stats_of(stage.scene.limiter).outages, 1);
    ck_assert_int_eq(scene_heard(&stage.scene)->log_lines, 1);
}

TEST(a_clock_out_of_range_is_an_error_in_an_outage_too, 30)
{
    CLOSED_BY(stage_end) struct stage stage;
    fake_init(&stage.fake);
    stage.fake.ops.own_clock = true;
    fake_open(&stage.fake, &stage.scene, OPTIONS(.outage_cold = true));
    stage.limit = scene_define_text(&stage.scene, "limit", "leaky_bucket limit=10 period=10s");
    struct weir_decision decision;
    stage.scene.now_us = -5; /* unused while the backend has its own clock */
    ck_assert_int_eq(taken(stage.limit, "a", 1).source, WEIR_BY_BACKEND);
    atomic_store(&stage.fake.answer, WEIR_EIO);
    ck_assert_int_eq(weir_try(stage.limit, weir_key_text("a"), 1, &decision), WEIR_EINVAL);
    ck_assert_uint_eq(stats_of(stage.scene.limiter).errors, 1);
    const struct weir_request both[] = { { stage.limit, weir_key_text("a"), 1, 0 },
                                         { stage.limit, weir_key_text("b"), 1, 0 } };
    struct weir_decision decisions[2];
    ck_assert_int_eq(weir_try_batch(stage.scene.limiter, both, 2, decisions), WEIR_EINVAL);
    ck_assert_uint_eq(stats_of(stage.scene.limiter).outages, 0);
    stage.scene.now_us = 64;
    ck_assert_int_eq(taken(stage.limit, "a", 1).retry_after_us, WEIR_SECOND);
    ck_assert_int_eq(stage.fake.last.now_us, WEIR_OWN_CLOCK);
    stage.scene.now_us = WEIR_MAX_TIME_US;
    ck_assert(taken(stage.limit, "a", 1).allowed);
}

TEST(an_outage_at_the_greatest_time_is_decided_by_the_fallback, 30)
{
    STAGE(stage, NULL, true);
    stage.scene.now_us = WEIR_MAX_TIME_US;
    atomic_store(&stage.fake.answer, WEIR_EIO);
    ck_assert(!taken(stage.limit, "a", 1).allowed);
    ck_assert_int_eq(taken(stage.limit, "a", 1).source, WEIR_BY_FALLBACK);
}

/* ---- Each policy, each verb ---- */

enum { VERBS = 6 };

static void never_done(struct weir_op *op, int status)
{
    ck_abort_msg("what was answered at once is done");
}

/* Ask for one decision by the verb of that number. */
static int ask(struct stage *stage, int verb, int64_t cost, struct weir_decision *out)
{
    const struct weir_key key = weir_key_text("a");
    const struct weir_request request = { stage->limit, key, cost, 0 };
    struct weir_op op = { .request = request };
    int error;
    switch (verb) {
    case 0: return weir_try(stage->limit, key, cost, out);
    case 1: return weir_acquire(stage->limit, key, cost, 0, out);
    case 2: return weir_try_all(stage->scene.limiter, &request, 1, out);
    case 3: return weir_try_batch(stage->scene.limiter, &request, 1, out);
    case 4: return weir_peek(stage->limit, key, cost, out);
    default:
        op.done = never_done;
        error = weir_submit(stage->scene.limiter, &op);
        if (error == WEIR_OK)
            *out = op.decision;
        return error;
    }
}

static void assert_every_verb_answers(enum weir_on_failure on_failure, const struct weir_decision *fits,
                                      const struct weir_decision *never, int failure)
{
    for (int verb = 0; verb < VERBS; verb++) {
        struct weir_decision decision;
        /* the decision must still show the whole limit */
        STAGE(stage, OPTIONS(.on_failure = on_failure, .instances = 2), true);
        atomic_store(&stage.fake.answer, failure);
        must_succeed(ask(&stage, verb, 10, &decision));
        assert_decision_is(&decision, fits, "a cost that fits");
        must_succeed(ask(&stage, verb, 11, &decision));
        assert_decision_is(&decision, never, "a cost that never can");
        const struct weir_stats stats = stats_of(stage.scene.limiter);
        const bool counts = verb != 4;
        ck_assert_uint_eq(stats.fallbacks, counts ? 2 : 0);
        ck_assert_uint_eq(stats.allowed, counts && fits->allowed);
        ck_assert_uint_eq(stats.allowed + stats.denied, counts ? 2 : 0);
        ck_assert_uint_eq(stats.outages, 1);
        atomic_store(&stage.fake.answer, WEIR_OK);
        must_succeed(ask(&stage, verb, 10, &decision));
        ck_assert_int_eq(decision.source, WEIR_BY_BACKEND);
        ck_assert_int_eq(scene_heard(&stage.scene)->log_lines, 2);
    }
}

TEST(with_on_failure_open_every_verb_allows_costs_within_the_limit, 30)
{
    const struct weir_decision fits = { .allowed = true, .source = WEIR_BY_FAIL_OPEN, .limit = 10, .remaining = 10 };
    const struct weir_decision never = {
        .source = WEIR_BY_FAIL_OPEN, .limit = 10, .remaining = 10, .retry_after_us = WEIR_NEVER
    };
    assert_every_verb_answers(WEIR_FAIL_OPEN, &fits, &never, WEIR_ETIME);
    assert_every_verb_answers(WEIR_FAIL_OPEN, &fits, &never, WEIR_EIO);
}

TEST(with_on_failure_closed_every_verb_denies_for_a_second, 30)
{
    const struct weir_decision fits = { .source = WEIR_BY_FAIL_CLOSED, .limit = 10, .retry_after_us = WEIR_SECOND };
    const struct weir_decision never = { .source = WEIR_BY_FAIL_CLOSED, .limit = 10, .retry_after_us = WEIR_NEVER };
    assert_every_verb_answers(WEIR_FAIL_CLOSED, &fits, &never, WEIR_ETIME);
    assert_every_verb_answers(WEIR_FAIL_CLOSED, &fits, &never, WEIR_EIO);
}

TEST(with_on_failure_local_every_verb_is_answered_by_memory, 30)
{
    for (int verb = 0; verb < VERBS; verb++) {
        struct weir_decision decision;
        STAGE(stage, NULL, true);
        atomic_store(&stage.fake.answer, WEIR_EIO);
        must_succeed(ask(&stage, verb, 3, &decision));
        ck_assert(!decision.allowed && decision.source == WEIR_BY_FALLBACK);
        ck_assert_int_eq(decision.retry_after_us, WEIR_SECOND);
        stage.scene.now_us += ten_us;
        must_succeed(ask(&stage, verb, 3, &decision));
        ck_assert(decision.allowed && decision.source == WEIR_BY_FALLBACK);
        ck_assert_int_eq(decision.remaining, verb == 4 ? 10 : 7);
        ck_assert_uint_eq(stats_of(stage.scene.limiter).fallbacks, verb == 4 ? 0 : 2);
    }
}

TEST(with_on_failure_error_every_verb_fails, 30)
{
    for (int verb = 0; verb < VERBS; verb++) {
        struct weir_decision decision = { .limit = 4711 };
        STAGE(stage, OPTIONS(.on_failure = WEIR_FAIL_ERROR), true);
        atomic_store(&stage.fake.answer, WEIR_EIO);
        ck_assert_int_eq(ask(&stage, verb, 1, &decision), WEIR_EIO);
        ck_assert_int_eq(decision.limit, 4711);
        const struct weir_stats stats = stats_of(stage.scene.limiter);
        ck_assert_uint_eq(stats.errors, verb == 4 ? 0 : 1);
        ck_assert_uint_eq(stats.fallbacks + stats.outages, 0);
        ck_assert_int_eq(stats.bytes, 0); /* no memory to fall back on */
        ck_assert_int_eq(scene_heard(&stage.scene)->log_lines, 0);
    }
}

TEST(errors_that_are_no_outage_reach_the_caller_whatever_on_failure_is, 30)
{
    static const int errors[] = { WEIR_ESTATE, WEIR_ENOMEM, WEIR_ECLOSED, WEIR_EFULL };
    for (int on_failure = WEIR_FAIL_LOCAL; on_failure <= WEIR_FAIL_ERROR; on_failure++) {
        STAGE(stage, OPTIONS(.on_failure = (enum weir_on_failure)on_failure), true);
        for (int i = 0; i < 4; i++) {
            atomic_store(&stage.fake.answer, errors[i]);
            for (int verb = 0; verb < VERBS; verb++) {
                struct weir_decision decision = { .limit = 4711 };
                ck_assert_int_eq(ask(&stage, verb, 1, &decision), errors[i]);
                ck_assert_int_eq(decision.limit, 4711);
            }
        }
        const struct weir_stats stats = stats_of(stage.scene.limiter);
        ck_assert_uint_eq(stats.errors, 4 * (VERBS - 1));
        ck_assert_uint_eq(stats.outages + stats.fallbacks, 0);
    }
}

TEST(a_failing_refund_or_reset_is_an_error_and_starts_no_outage, 30)
{
    for (int on_failure = WEIR_FAIL_LOCAL; on_failure <= WEIR_FAIL_ERROR; on_failure++) {
        const struct weir_key key = weir_key_text("a");
        STAGE(stage, OPTIONS(.on_failure = (enum weir_on_failure)on_failure), true);
        atomic_store(&stage.fake.answer, WEIR_ETIME);
        ck_assert_int_eq(weir_refund(stage.limit, key, 1), WEIR_ETIME);
        ck_assert_int_eq(weir_reset(stage.limit, key), WEIR_ETIME);
        ck_assert_uint_eq(stats_of(stage.scene.limiter).outages, 0);
        atomic_store(&stage.fake.answer, WEIR_OK);
        must_succeed(weir_refund(stage.limit, key, 1));
        must_succeed(weir_reset(stage.limit, key));
    }
}

TEST(a_group_in_an_outage_is_decided_as_one, 30)
{
    struct weir_decision decision;
    STAGE(stage, NULL, true);
    weir_limit *slow = scene_define_text(&stage.scene, "slow", "token_bucket limit=1 period=1h burst=5");
    const struct weir_request both[2] = { { stage.limit, weir_key_text("a"), 1, 0 },
                                          { slow, weir_key_text("a"), 1, 0 } };
    atomic_store(&stage.fake.answer, WEIR_EIO);
    must_succeed(weir_try_all(stage.scene.limiter, both, 2, &decision));
    ck_assert(!decision.allowed && decision.retry_after_us == WEIR_SECOND);
    stage.scene.now_us += WEIR_MINUTE;
    must_succeed(weir_try_all(stage.scene.limiter, both, 2, &decision));
    ck_assert(!decision.allowed && decision.source == WEIR_BY_FALLBACK);
    ck_assert_int_eq(peeked(stage.limit, "a", 1).remaining, 10); /* nothing was charged */
    stage.scene.now_us += WEIR_HOUR;
    must_succeed(weir_try_all(stage.scene.limiter, both, 2, &decision));
    ck_assert(decision.allowed);
    ck_assert_int_eq(peeked(stage.limit, "a", 1).remaining, 9);
    ck_assert_uint_eq(stats_of(stage.scene.limiter).fallbacks, 3);
}

TEST(each_key_of_a_group_in_an_outage_starts_cold_and_is_owed, 30)
{
    struct weir_decision decision;
    STAGE(stage, NULL, true);
    weir_limit *slow = scene_define_text(&stage.scene, "slow", "token_bucket limit=1 period=1h burst=5");
    const struct weir_request both[2] = { { slow, weir_key_text("a"), 1, 0 },
                                          { stage.limit, weir_key_text("a"), 2, 0 } };
    atomic_store(&stage.fake.answer, WEIR_EIO);
    must_succeed(weir_try_all(stage.scene.limiter, both, 2, &decision));
    ck_assert(!decision.allowed && decision.retry_after_us == WEIR_SECOND);
    stage.scene.now_us += WEIR_HOUR;
    must_succeed(weir_try_all(stage.scene.limiter, both, 2, &decision));
    ck_assert(decision.allowed && decision.source == WEIR_BY_FALLBACK);

    atomic_store(&stage.fake.answer, WEIR_OK);
    ck_assert_int_eq(taken(stage.limit, "a", 1).source, WEIR_BY_BACKEND);
    ck_assert_int_eq(taken(slow, "a", 1).source, WEIR_BY_BACKEND);
    ck_assert_uint_eq(stats_of(stage.scene.limiter).settled, 1 + 2);
}

/* ---- What an acquire gives back ---- */

TEST(an_acquire_returns_declined_permits_to_the_backend_that_granted_them, 30)
{
    struct weir_decision decision;
    const struct weir_key key = weir_key_text("a");
    STAGE(stage, NULL, true);
    weir_limit *queue = scene_define_text(&stage.scene, "queue", "leaky_bucket limit=10 period=10s");
    atomic_store(&stage.fake.answer, WEIR_EIO);
    taken(queue, "a", 1);
    stage.scene.now_us += 5 * WEIR_SECOND;
    ck_assert_int_eq(peeked(queue, "a", 1).remaining, 5);
    must_succeed(weir_acquire(queue, key, 3, 0, &decision));
    ck_assert(!decision.allowed && decision.source == WEIR_BY_FALLBACK);
    ck_assert_int_eq(decision.retry_after_us, 5 * WEIR_SECOND);
    ck_assert_int_eq(decision.delay_us, 0);
    ck_assert_int_eq(peeked(queue, "a", 1).remaining, 5);
    ck_assert_int_eq(stage.fake.verbs[WEIR_REFUND], 0);

    atomic_store(&stage.fake.answer, WEIR_OK);
    atomic_store(&stage.fake.delay_us, WEIR_HOUR);
    must_succeed(weir_acquire(queue, key, 3, 1, &decision));
    ck_assert(!decision.allowed && decision.retry_after_us > WEIR_HOUR - WEIR_SECOND);
    ck_assert_int_eq(stage.fake.verbs[WEIR_REFUND], 1);
    ck_assert_int_eq(stage.fake.last.cost, 3);
}

static int refuse_refunds(struct weir_backend *backend, const struct weir_backend_request *requests, size_t n, bool all,
                          int64_t deadline_us, struct weir_decision *out)
{
    struct fake *fake = (struct fake *)backend;
    if (requests[0].verb == WEIR_REFUND)
        return atomic_load(&fake->answer);
    *out = (struct weir_decision){ .allowed = true, .limit = 10, .remaining = 9, .delay_us = WEIR_HOUR };
    return WEIR_OK;
}

TEST(permits_whose_refund_fails_are_lost_and_the_denial_stands, 30)
{
    static const struct {
        enum weir_on_failure on_failure;
        int refund, result;
    } rows[] = {
        { WEIR_FAIL_LOCAL, WEIR_ETIME, WEIR_OK },       { WEIR_FAIL_CLOSED, WEIR_EIO, WEIR_OK },
        { WEIR_FAIL_ERROR, WEIR_ETIME, WEIR_ETIME },    { WEIR_FAIL_LOCAL, WEIR_ESTATE, WEIR_ESTATE },
        { WEIR_FAIL_OPEN, WEIR_ECLOSED, WEIR_ECLOSED },
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct weir_decision decision = { .limit = 4711 };
        CLOSED_BY(stage_end) struct stage stage;
        fake_init(&stage.fake);
        stage.fake.ops.decide = refuse_refunds;
        fake_open(&stage.fake, &stage.scene, OPTIONS(.on_failure = rows[i].on_failure));
        stage.limit = scene_define_text(&stage.scene, "limit", "leaky_bucket limit=10 period=10s");
        atomic_store(&stage.fake.answer, rows[i].refund);
        ck_assert_int_eq(weir_acquire(stage.limit, weir_key_text("a"), 1, 0, &decision), rows[i].result);
        ck_assert(!decision.allowed);
        ck_assert_int_eq(decision.limit, rows[i].result == WEIR_OK ? 10 : 4711);
        const struct weir_stats stats = stats_of(stage.scene.limiter);
        ck_assert_uint_eq(stats.denied, rows[i].result == WEIR_OK);
        ck_assert_uint_eq(stats.errors, rows[i].result != WEIR_OK);
    }
}

/* ---- Times ---- */

TEST(with_by_local_clock_a_backend_with_its_own_clock_receives_the_local_time, 30)
{
    for (int by_local_clock = 0; by_local_clock < 2; by_local_clock++) {
        struct weir_options options = *OPTIONS(.on_failure = WEIR_FAIL_ERROR), read;
        CLOSED_BY(stage_end) struct stage stage;
        fake_init(&stage.fake);
        stage.fake.ops.own_clock = true;
        scene_init(&stage.scene, &options);
        must_succeed(options_read(&options, &read));
        read.by_local_clock = by_local_clock; /* an option of the Redis backend only */
        must_succeed(limiter_make(&read, &stage.fake.base, NULL, NULL, &stage.scene.limiter));
        stage.limit = scene_define_text(&stage.scene, "limit", "token_bucket limit=10 period=10s");
        for (int verb = 0; verb < VERBS; verb++) {
            struct weir_decision decision;
            must_succeed(ask(&stage, verb, 1, &decision));
            ck_assert_int_eq(stage.fake.last.now_us, by_local_clock ? stage.scene.now_us : WEIR_OWN_CLOCK);
        }
        must_succeed(weir_refund(stage.limit, weir_key_text("a"), 1));
        ck_assert_int_eq(stage.fake.last.now_us, by_local_clock ? stage.scene.now_us : WEIR_OWN_CLOCK);
    }
}

/* ---- Threads ---- */

enum { THREADS = 4, ROUNDS = 3000 };

static void *try_and_count(void *argument)
{
    struct stage *stage = argument;
    int64_t fallbacks = 0;
    for (int i = 0; i < ROUNDS; i++) {
        struct weir_decision decision;
        must_succeed(weir_try(stage->limit, weir_key_text("a"), 1, &decision));
        fallbacks += decision.source == WEIR_BY_FALLBACK;
        must(decision.source == WEIR_BY_BACKEND || !decision.allowed, "the clock stands still: cold is cold");
    }
    return (void *)(intptr_t)fallbacks;
}

static void count_lines(void *user, enum weir_log_level level, const char *line)
{
    atomic_fetch_add((_Atomic int *)user + (level == WEIR_LOG_INFO), 1);
}

TEST(threads_that_fail_and_succeed_concurrently_count_each_outage_once, 60)
{
    CLOSED_BY(stage_end) struct stage stage;
    _Atomic int lines[2] = { 0, 0 };
    pthread_t threads[THREADS];
    int64_t fallbacks = 0;
    fake_init(&stage.fake);
    atomic_store(&stage.fake.flaky, 3);
    must_succeed(weir_open_backend(OPTIONS(.log = count_lines, .user = lines, .outage_cold = true), &stage.fake.base,
                                   &stage.scene.limiter));
    stage.limit = scene_define_text(&stage.scene, "limit", "fixed_window limit=5 period=366d");
    for (int i = 0; i < THREADS; i++)
        ck_assert_int_eq(pthread_create(&threads[i], NULL, try_and_count, &stage), 0);
    for (int i = 0; i < THREADS; i++) {
        void *count;
        ck_assert_int_eq(pthread_join(threads[i], &count), 0);
        fallbacks += (intptr_t)count;
    }
    atomic_store(&stage.fake.flaky, 0);
    taken(stage.limit, "a", 1); /* no outage lasts beyond this */
    hook_queue_settle(&(struct log){ count_lines, lines });
    const struct weir_stats stats = stats_of(stage.scene.limiter);
    ck_assert_uint_eq(stats.fallbacks, (uint64_t)fallbacks);
    ck_assert_int_eq(fallbacks, THREADS * ROUNDS / 3);
    ck_assert_uint_eq(stats.allowed + stats.denied, THREADS * ROUNDS + 1);
    ck_assert_uint_le(stats.outages, stats.fallbacks);
    ck_assert_uint_ge(stats.outages, 1);
    ck_assert_uint_le((uint64_t)atomic_load(&lines[0]), stats.outages); /* a line a second at most */
    ck_assert_int_ge(atomic_load(&lines[0]), 1);
    ck_assert_int_eq(atomic_load(&lines[0]), atomic_load(&lines[1]));
}

/* ---- What the backend last reported as left ---- */

static void ignore_answer(struct weir_op *op, int status)
{
    (void)op, (void)status;
}

static void submit_one(struct stage *stage, struct weir_op *op)
{
    *op = (struct weir_op){ .request = { stage->limit, weir_key_text("a"), 1, 0 }, .done = ignore_answer };
    ck_assert_int_eq(weir_submit(stage->scene.limiter, op), 1);
}

/* Answer the i-th request that was submitted: so many permits are left. */
static void answer_left(struct fake *fake, int i, int64_t left)
{
    struct weir_op *op = fake->queue[i];
    op->decision = (struct weir_decision){ .allowed = true, .source = WEIR_BY_BACKEND, .limit = 10, .remaining = left };
    op->done(op, WEIR_OK);
    fake->answered++;
}

static int64_t admitted_in_an_outage(struct stage *stage)
{
    int64_t count = 0;
    atomic_store(&stage->fake.answer, WEIR_EIO);
    while (taken(stage->limit, "a", 1).allowed)
        count++;
    return count;
}

TEST(answers_in_another_order_do_not_raise_what_is_known_to_be_left, 30)
{
    for (int later = 0; later < 2; later++) {
        struct stage stage;
        struct weir_op ops[3];
        fake_init(&stage.fake);
        stage.fake.ops.shared = true;
        fake_open(&stage.fake, &stage.scene, NULL);
        stage.limit = scene_define_text(&stage.scene, "limit", "token_bucket limit=10 period=10s");
        atomic_store(&stage.fake.later, true);
        submit_one(&stage, &ops[0]);
        submit_one(&stage, &ops[1]);
        answer_left(&stage.fake, 1, 3);
        answer_left(&stage.fake, 0, 8); /* older, for all that the order says */
        if (later) {
            submit_one(&stage, &ops[2]);
            answer_left(&stage.fake, 2, 6);
        }
        ck_assert_int_eq(admitted_in_an_outage(&stage), later ? 6 : 3);
        stage_end(&stage);
    }
}

TEST(what_is_left_of_a_limit_of_terabytes_is_known_in_an_outage, 30)
{
    struct stage stage;
    struct weir_op op;
    fake_init(&stage.fake);
    stage.fake.ops.shared = true;
    fake_open(&stage.fake, &stage.scene, NULL);
    stage.limit = scene_define_text(&stage.scene, "limit", "token_bucket limit=8796093022208 period=30d");
    atomic_store(&stage.fake.later, true);
    submit_one(&stage, &op);
    answer_left(&stage.fake, 0, 5000000000000);
    atomic_store(&stage.fake.answer, WEIR_EIO);
    ck_assert(!taken(stage.limit, "a", 5000000000001).allowed);
    ck_assert(taken(stage.limit, "a", 4999999000000).allowed); /* known to 25 bits, rounded down */
    ck_assert(!taken(stage.limit, "a", 1000001).allowed);
    stage_end(&stage);
}
