/* test_settle.c - what is admitted in outages is charged to the store afterwards: none of it twice at once, none of it
 * forgotten, whoever asks and however often the cable is cut.
 */
#include "remote.h"

#include "core/follow/layers.h"
#include "core/ground/clock.h"
#include "core/limiter/inside.h"
#include "core/limiter/limiter.h"
#include "core/limiter/verbs.h"
#include "core/outage/failure.h"

#include <sched.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

/* An instance, with a clock that all instances of a test may have in common. */
struct instance {
    struct cable cable;
    weir *limiter;
    weir_limit *limit;
};

static int64_t now_us; /* of all */

static int64_t common_clock(void *user)
{
    (void)user;
    return now_us;
}

static void instance_open(struct instance *instance, struct remote *remote, const struct weir_options *options,
                          const char *policy)
{
    struct weir_options own = WEIR_OPTIONS_INIT;
    if (options)
        own = *options;
    own.now_us = common_clock;
    own.timeout_us = own.timeout_us ? own.timeout_us : 10 * WEIR_SECOND;
    if (!instance->cable.remote)
        cable_init(&instance->cable, remote);
    must_succeed(weir_open_backend(&own, &instance->cable.base, &instance->limiter));
    const struct weir_policy read = policy_of(policy);
    must_succeed(weir_limit_define(instance->limiter, "limit", &read, &instance->limit));
}

/* One instance alone with its store. */
struct stage {
    struct remote remote;
    struct instance instance;
};

enum way {
    EAGER, /* it tells of its return, and answers submitted requests at once */
    LATER, /* it answers them when it is told to, and does not tell of its return */
    LAZY   /* it has neither */
};

static void cable_by(struct cable *cable, struct remote *remote, enum way way)
{
    cable_init(cable, remote);
    atomic_store(&cable->later, way == LATER);
    if (way != EAGER)
        cable->ops.watch = NULL;
    if (way == LAZY) {
        cable->ops.submit = NULL;
        cable->ops.shut = NULL;
    }
}

static struct stage *stage_open(enum way way, const struct weir_options *options, const char *policy)
{
    static struct stage stage;
    memset(&stage, 0, sizeof stage);
    now_us = INT64_C(1) << 40; /* a multiple of what an outage's beginning is rounded up to */
    remote_init(&stage.remote);
    cable_by(&stage.instance.cable, &stage.remote, way);
    instance_open(&stage.instance, &stage.remote, options, policy);
    return &stage;
}

static void stage_close(struct stage *stage)
{
    weir_close(stage->instance.limiter);
    remote_free(&stage->remote);
}

static struct weir_stats stats_of(weir *limiter)
{
    struct weir_stats stats = { .size = sizeof stats };
    must_succeed(weir_stats_read(limiter, &stats));
    return stats;
}

static struct weir_decision try_in(struct stage *stage, const char *key, int64_t cost)
{
    return taken(stage->instance.limit, key, cost);
}

/* Cut the cable, let `wait_us` go by, and take `cost` of the key from the stand-in, which has it. */
static void outage_admits(struct stage *stage, const char *key, int64_t wait_us, int64_t cost)
{
    cable_set(&stage->instance.cable, CABLE_CUT);
    struct weir_decision decision = try_in(stage, key, 1);
    must(!decision.allowed && decision.source == WEIR_BY_FALLBACK, "an outage begins cold");
    now_us += wait_us;
    must(try_in(stage, key, cost).allowed, "time makes permits");
}

static const char *const ten = "token_bucket limit=10 period=10s";

/* ---- When it is charged ---- */

TEST(all_keys_are_settled_as_soon_as_the_store_is_back, 30)
{
    struct stage *stage = stage_open(EAGER, NULL, ten);
    outage_admits(stage, "a", 5 * WEIR_SECOND, 3);
    must(try_in(stage, "b", 2).allowed, "as much for each key");
    must(!try_in(stage, "c", 6).allowed, "not all");
    cable_set(&stage->instance.cable, CABLE_WELL);
    ck_assert_int_eq(stage->remote.charged, 5);
    ck_assert_int_eq(stage->instance.cable.charges, 0); /* submitted, all of them */
    ck_assert_int_eq(try_in(stage, "a", 1).remaining, 6);
    ck_assert_int_eq(try_in(stage, "b", 1).remaining, 7);
    ck_assert_int_eq(try_in(stage, "c", 1).remaining, 9);
    const struct weir_stats stats = stats_of(stage->instance.limiter);
    ck_assert_uint_eq(stats.settled, 5);
    ck_assert_uint_eq(stats.unsettled, 0);
    ck_assert_uint_eq(stats.outages, 1);
    ck_assert_int_eq(stats.keys, 0);
    ck_assert(!atomic_load(&stage->instance.limiter->settle.owes));
    stage_close(stage);
}

TEST(thousands_of_keys_of_many_limits_are_settled_in_batches, 30)
{
    enum { LIMITS = 3, KEYS = 3000 };
    struct stage *stage = stage_open(EAGER, NULL, ten);
    weir_limit *limits[LIMITS] = { stage->instance.limit };
    const struct weir_policy policy = policy_of(ten);
    for (int i = 1; i < LIMITS; i++) {
        char name[16];
        snprintf(name, sizeof name, "limit%d", i);
        must_succeed(weir_limit_define(stage->instance.limiter, name, &policy, &limits[i]));
    }
    atomic_store(&stage->instance.cable.later, true);
    outage_admits(stage, "a", 5 * WEIR_SECOND, 3);
    for (int i = 0; i < KEYS; i++) {
        char key[16];
        snprintf(key, sizeof key, "%d", i);
        must(taken(limits[i % LIMITS], key, 1 + i % 5).allowed, "time makes permits");
    }
    cable_set(&stage->instance.cable, CABLE_WELL);
    while (cable_answer(&stage->instance.cable, 7) > 0)
        ;
    ck_assert_int_eq(stage->remote.charged, 3 + KEYS / 5 * 15);
    ck_assert_int_eq(stage->remote.most_charged, 5);
    ck_assert_int_eq(stage->instance.cable.submits, 1 + KEYS);
    ck_assert_int_eq(stats_of(stage->instance.limiter).keys, 0);
    ck_assert(!atomic_load(&stage->instance.limiter->settle.owes));
    stage_close(stage);
}

TEST(a_key_that_owes_for_a_later_outage_only_is_forgotten_for_the_earlier_one, 30)
{
    struct stage *stage = stage_open(EAGER, NULL, ten);
    struct cable *cable = &stage->instance.cable;
    atomic_store(&cable->later, true);
    outage_admits(stage, "a", 5 * WEIR_SECOND, 1);
    cable_set(cable, CABLE_WELL);
    must(try_in(stage, "b", 1).source == WEIR_BY_BACKEND, "the first outage is over");
    cable_set(cable, CABLE_CUT);
    must(cable_answer(cable, 1) == 1, "the charge for the first finds a second");
    outage_admits(stage, "a", 5 * WEIR_SECOND, 1);
    now_us += 5 * WEIR_SECOND; /* a bucket that was empty at the end of the first is full */
    cable_set(cable, CABLE_WELL);
    while (cable_answer(cable, 1) > 0)
        ;
    ck_assert_int_eq(stage->remote.charged, 1);
    ck_assert(!atomic_load(&stage->instance.limiter->settle.owes));
    ck_assert_int_eq(stats_of(stage->instance.limiter).keys, 0);
    stage_close(stage);
}

TEST(a_key_that_is_asked_for_first_is_settled_just_before, 30)
{
    for (int verb = 0; verb < 5; verb++) {
        struct stage *stage = stage_open(LAZY, NULL, ten);
        struct weir *limiter = stage->instance.limiter;
        weir_limit *limit = stage->instance.limit;
        struct weir_decision decision;
        const struct weir_request request = { limit, weir_key_text("a"), 1, 0 };
        outage_admits(stage, "a", 5 * WEIR_SECOND, 3);
        must(try_in(stage, "b", 2).allowed, "as much for each key");
        cable_set(&stage->instance.cable, CABLE_WELL);
        ck_assert_int_eq(stage->remote.charged, 0);
        switch (verb) {
        case 0: must_succeed(weir_try(limit, request.key, 1, &decision)); break;
        case 1: must_succeed(weir_peek(limit, request.key, 1, &decision)); break;
        case 2: must_succeed(weir_acquire(limit, request.key, 1, 0, &decision)); break;
        case 3: must_succeed(weir_try_all(limiter, &request, 1, &decision)); break;
        default: must_succeed(weir_try_batch(limiter, &request, 1, &decision)); break;
        }
        ck_assert_int_eq(decision.source, WEIR_BY_BACKEND);
        ck_assert_int_eq(decision.remaining, verb == 1 ? 7 : 6);
        ck_assert_int_eq(stage->remote.charged, 3);
        ck_assert_int_eq(try_in(stage, "b", 1).remaining, 7);
        ck_assert_uint_eq(stats_of(limiter).settled, 5);
        for (int i = 0; i < 100 && atomic_load(&limiter->settle.owes); i++)
            try_in(stage, "c", 1);
        ck_assert(!atomic_load(&limiter->settle.owes)); /* it is found out that nothing is owed any more */
        stage_close(stage);
    }
}

TEST(the_first_success_ends_an_outage_and_begins_to_settle, 30)
{
    struct stage *stage = stage_open(LATER, NULL, ten);
    outage_admits(stage, "a", 5 * WEIR_SECOND, 3);
    cable_set(&stage->instance.cable, CABLE_WELL);
    ck_assert_int_eq(stage->instance.cable.submits, 0);
    try_in(stage, "b", 1);
    ck_assert_int_eq(stage->instance.cable.submits, 1);
    ck_assert_int_eq(cable_answer(&stage->instance.cable, 10), 1);
    ck_assert_int_eq(stage->remote.charged, 3);
    ck_assert_int_eq(try_in(stage, "a", 1).remaining, 6);
    stage_close(stage);
}

/* A store that is gone and back with each charge that it is asked for. */
static struct {
    struct cable *cable;
    int charges;
    const char *lowest; /* on the stack, of all charges */
    const char *highest;
} blinks;

static int submit_and_blink(struct weir_backend *backend, const struct weir_backend_request *request,
                            int64_t deadline_us, struct weir_op *op)
{
    const char *here = __builtin_frame_address(0); /* a local's address may be elsewhere under AddressSanitizer */
    (void)deadline_us;
    blinks.lowest = blinks.charges == 0 || here < blinks.lowest ? here : blinks.lowest;
    blinks.highest = blinks.charges == 0 || here > blinks.highest ? here : blinks.highest;
    if (++blinks.charges < 1000) {
        cable_set(blinks.cable, CABLE_LOSES_REQUEST);
        cable_set(blinks.cable, CABLE_WELL);
    }
    return backend->ops->decide(backend, request, 1, false, INT64_MAX, &op->decision);
}

TEST(a_chain_that_is_told_to_begin_anew_time_and_again_does_not_nest, 30)
{
    static const char *const slow = "token_bucket limit=10 period=1d";
    static struct instance other;
    struct stage *stage = stage_open(EAGER, NULL, slow);
    blinks.cable = &stage->instance.cable;
    blinks.charges = 0;
    blinks.cable->ops.submit = submit_and_blink;
    memset(&other, 0, sizeof other);
    instance_open(&other, &stage->remote, NULL, slow);
    outage_admits(stage, "a", WEIR_DAY / 2, 3);
    must(taken(other.limit, "a", 10).allowed, "it knows of no debt");
    cable_set(&stage->instance.cable, CABLE_WELL);
    ck_assert_int_eq(blinks.charges, 1000);
    ck_assert_ptr_eq(blinks.lowest, blinks.highest);
    weir_close(other.limiter);
    stage_close(stage);
}

static void keys_admit(struct stage *stage, int count)
{
    for (int i = 0; i < count; i++) {
        char key[16];
        snprintf(key, sizeof key, "%d", i);
        must(try_in(stage, key, 1).allowed, "time makes permits");
    }
}

TEST(nobody_is_held_up_by_many_keys_that_owe_nothing, 30)
{
    enum { KEYS = 20000, MOST = 2500 };
    struct stage *stage = stage_open(LATER, NULL, "token_bucket limit=10 period=1s");
    outage_admits(stage, "a", 2 * WEIR_SECOND, 1);
    keys_admit(stage, KEYS);
    now_us += WEIR_SECOND; /* all is made up for */
    cable_set(&stage->instance.cable, CABLE_WELL);
    int64_t keys = stats_of(stage->instance.limiter).keys;
    ck_assert_int_gt(keys, KEYS);
    for (int calls = 0; keys > 0; calls++) {
        try_in(stage, "b", 1);
        const int64_t left = stats_of(stage->instance.limiter).keys;
        ck_assert_int_le(keys - left, MOST);
        keys = left;
        ck_assert_int_lt(calls, 1000);
    }
    for (int i = 0; i < 100 && atomic_load(&stage->instance.limiter->settle.owes); i++)
        try_in(stage, "b", 1);
    ck_assert(!atomic_load(&stage->instance.limiter->settle.owes));
    ck_assert_int_eq(stage->instance.cable.submits, 0);
    stage_close(stage);
}

static bool visit_none(void *user, uint32_t limit_id, struct weir_key key)
{
    (void)user, (void)limit_id, (void)key;
    return false;
}

TEST(a_look_at_a_few_keys_ends_though_a_large_table_is_empty, 30)
{
    struct weir_options options = WEIR_OPTIONS_INIT;
    options.max_keys = 10000000; /* many shards */
    struct stage *stage = stage_open(LAZY, &options, ten);
    struct weir_backend *fallback = stage->instance.limiter->fallback;
    uint64_t place = 0;
    int looks = 1;
    while (own_ops(fallback)->debtors(fallback, 1, &place, 1, visit_none, NULL))
        looks++;
    ck_assert_int_gt(looks, 10);
    stage_close(stage);
}

TEST(a_chain_whose_debts_find_no_room_is_seldom_and_one_that_pays_is_not, 30)
{
    static const char *const slow = "token_bucket limit=10 period=1d";
    static struct instance other;
    struct stage *stage = stage_open(EAGER, NULL, slow);
    struct settle_chain *chain = &stage->instance.limiter->settle.chain;
    memset(&other, 0, sizeof other);
    instance_open(&other, &stage->remote, NULL, slow);
    outage_admits(stage, "a", WEIR_DAY / 2, 3);
    must(taken(other.limit, "a", 10).allowed, "it knows of no debt");
    cable_set(&stage->instance.cable, CABLE_WELL);
    int64_t pause_us = chain->pause_us;
    ck_assert_int_le(pause_us, 400000); /* it was told to begin by the return, and by the first answer */
    for (int walks = 0; walks < 10; walks++) {
        atomic_store(&chain->again_us, 0); /* the pause is over */
        try_in(stage, "b", 1);
        ck_assert_int_eq(chain->pause_us, pause_us < 5 * WEIR_SECOND ? 2 * pause_us : 10 * WEIR_SECOND);
        pause_us = chain->pause_us;
        const int submits = atomic_load(&stage->instance.cable.submits);
        try_in(stage, "b", 1);
        ck_assert_int_eq(stage->instance.cable.submits, submits);
        ck_assert_int_gt(atomic_load(&chain->again_us), clock_monotonic_us());
    }
    now_us += WEIR_DAY / 8; /* room for one */
    atomic_store(&chain->again_us, 0);
    try_in(stage, "b", 1);
    ck_assert_int_eq(stage->remote.charged, 1);
    ck_assert_int_eq(chain->pause_us, 100000);
    weir_close(other.limiter);
    stage_close(stage);
}

void __real_settle_outage_over(struct weir *limiter, uint32_t tag, int64_t since_us, int64_t until_us);
void __wrap_settle_outage_over(struct weir *limiter, uint32_t tag, int64_t since_us, int64_t until_us);

/* In all tests of this file. */
void __wrap_settle_outage_over(struct weir *limiter, uint32_t tag, int64_t since_us, int64_t until_us)
{
    struct failure_outage outage;
    must(!failure_outage(limiter, &outage), "what is admitted in the next outage is not counted to the one that ends");
    __real_settle_outage_over(limiter, tag, since_us, until_us);
}

static int64_t seen_well_us;

static int64_t say_seen_well(struct weir_backend *backend, const struct weir_key *key)
{
    (void)key;
    (void)backend;
    return seen_well_us;
}

TEST(an_outage_whose_end_nobody_saw_is_counted_up_before_the_next_begins, 30)
{
    struct stage *stage = stage_open(LAZY, NULL, ten);
    stage->instance.cable.ops.reachable_us = say_seen_well;
    seen_well_us = clock_monotonic_us();
    outage_admits(stage, "a", 5 * WEIR_SECOND, 3);
    seen_well_us = clock_monotonic_us() + WEIR_MINUTE;
    ck_assert(!try_in(stage, "b", 1).allowed); /* cold once more */
    ck_assert_uint_eq(stats_of(stage->instance.limiter).outages, 2);
    cable_set(&stage->instance.cable, CABLE_WELL);
    ck_assert_int_eq(try_in(stage, "a", 1).remaining, 6);
    ck_assert_uint_eq(stats_of(stage->instance.limiter).settled, 3);
    stage_close(stage);
}

/* By a time that the caller brings. */
static struct weir_decision try_at(struct stage *stage, const char *key, int64_t at_us, int64_t cost)
{
    const struct weir_request request = { stage->instance.limit, weir_key_text(key), cost, at_us };
    struct weir_decision decision;
    must_succeed(weir_try_batch(stage->instance.limiter, &request, 1, &decision));
    return decision;
}

TEST(callers_who_bring_a_time_far_from_the_clock_have_their_debts_charged_by_it, 30)
{
    static const int64_t ahead_us[] = { 30 * WEIR_SECOND, -WEIR_HOUR };
    for (int i = 0; i < 4; i++) {
        struct stage *stage = stage_open(EAGER, NULL, "token_bucket limit=10 period=20s");
        struct weir *limiter = stage->instance.limiter;
        const int64_t at_us = now_us + ahead_us[i % 2], later_us = at_us + 2 * WEIR_SECOND;
        must(try_at(stage, "a", at_us, 10).allowed, "it is full");
        cable_set(&stage->instance.cable, CABLE_CUT);
        must(!try_at(stage, "a", at_us, 1).allowed, "an outage begins cold");
        must(try_at(stage, "a", later_us, 1).allowed, "time makes a permit");
        now_us += 2 * WEIR_SECOND;
        cable_set(&stage->instance.cable, CABLE_WELL);
        if (i >= 2)
            ck_assert_int_eq(try_in(stage, "b", 1).remaining, 9); /* by the clock, and ends it */
        ck_assert_int_eq(stage->remote.charged, 0);
        struct weir_decision decision = try_at(stage, "a", later_us, 1);
        ck_assert(!decision.allowed && decision.source == WEIR_BY_BACKEND && decision.remaining == 0);
        ck_assert_int_eq(stage->remote.charged, 1);
        ck_assert(try_at(stage, "a", later_us + 2 * WEIR_SECOND, 1).allowed);
        atomic_store(&limiter->settle.chain.again_us, 0);
        try_in(stage, "b", 1);
        ck_assert(!atomic_load(&limiter->settle.owes));
        ck_assert_uint_eq(stats_of(limiter).settled, 1);
        ck_assert_uint_eq(stats_of(limiter).unsettled, 0);
        stage_close(stage);
    }
}

/* ---- How much ---- */

TEST(a_blip_costs_a_key_what_it_admitted_and_no_more, 30)
{
    for (enum way way = EAGER; way <= LAZY; way += LAZY) {
        struct stage *stage = stage_open(way, NULL, ten);
        ck_assert_int_eq(try_in(stage, "a", 4).remaining, 6);
        outage_admits(stage, "a", 3 * WEIR_SECOND + 300000, 2); /* some of a permit is left on both sides */
        cable_set(&stage->instance.cable, CABLE_WELL);
        ck_assert_int_eq(try_in(stage, "a", 1).remaining, 10 - 1 - 2 - 1); /* 0.7 of the four, then these */
        ck_assert_uint_eq(stats_of(stage->instance.limiter).settled, 2);
        stage_close(stage);
    }
}

TEST(a_buckets_debt_stands_still_from_the_end_of_the_outage_until_it_has_filled, 30)
{
    static const char *const policies[] = { "token_bucket limit=10 period=10s", "leaky_bucket limit=10 period=10s",
                                            "token_bucket limit=1 period=1s burst=10 refill=interval" };
    for (size_t i = 0; i < sizeof policies / sizeof policies[0]; i++) {
        for (int64_t later_us = 3 * WEIR_SECOND; later_us <= 10 * WEIR_SECOND; later_us += 7 * WEIR_SECOND) {
            struct stage *stage = stage_open(LAZY, NULL, policies[i]);
            outage_admits(stage, "a", 10 * WEIR_SECOND, 4);
            cable_set(&stage->instance.cable, CABLE_WELL);
            try_in(stage, "b", 1);
            now_us += later_us;
            const bool has_filled = later_us == 10 * WEIR_SECOND;
            ck_assert_int_eq(try_in(stage, "a", 1).remaining, has_filled ? 9 : 5);
            stage_close(stage);
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
            struct stage *stage = stage_open(way, NULL, policies[i]);
            outage_admits(stage, "a", 11 * WEIR_SECOND, 10);
            now_us += 11 * WEIR_SECOND;
            must(try_in(stage, "a", 10).allowed && try_in(stage, "b", 9).allowed, "the next window");
            now_us += 11 * WEIR_SECOND;
            must(try_in(stage, "a", 3).allowed, "and one more");
            cable_set(&stage->instance.cable, CABLE_WELL);
            ck_assert_int_eq(try_in(stage, "a", 1).remaining, 6);
            ck_assert_int_eq(try_in(stage, "b", 1).remaining, 9);
            ck_assert_uint_eq(stats_of(stage->instance.limiter).settled, 3);
            stage_close(stage);
        }
    }
}

TEST(a_window_that_ends_before_it_is_settled_owes_nothing, 30)
{
    struct stage *stage = stage_open(LAZY, NULL, "fixed_window limit=10 period=10s");
    outage_admits(stage, "a", 11 * WEIR_SECOND, 10);
    cable_set(&stage->instance.cable, CABLE_WELL);
    try_in(stage, "b", 1);
    now_us += 10 * WEIR_SECOND;
    ck_assert_int_eq(try_in(stage, "a", 1).remaining, 9);
    ck_assert_uint_eq(stats_of(stage->instance.limiter).settled, 0);
    stage_close(stage);
}

TEST(a_debt_is_charged_as_far_as_there_is_room_and_the_rest_comes_first, 30)
{
    for (enum way way = EAGER; way <= LAZY; way += LAZY) {
        static struct instance other;
        struct stage *stage = stage_open(way, NULL, ten);
        struct weir *limiter = stage->instance.limiter;
        memset(&other, 0, sizeof other);
        instance_open(&other, &stage->remote, NULL, ten);
        outage_admits(stage, "a", 8 * WEIR_SECOND, 8);
        ck_assert_int_eq(taken(other.limit, "a", 7).remaining, 3); /* which is not cut off */
        cable_set(&stage->instance.cable, CABLE_WELL);
        ck_assert(!try_in(stage, "a", 1).allowed);
        ck_assert_uint_eq(stats_of(limiter).settled, 3);
        now_us += 4 * WEIR_SECOND;
        ck_assert(taken(other.limit, "a", 3).allowed); /* it knows of no debt */
        ck_assert(!try_in(stage, "a", 1).allowed);
        ck_assert_uint_eq(stats_of(limiter).settled, 4);
        now_us += 5 * WEIR_SECOND;
        struct weir_decision decision = try_in(stage, "a", 1);
        ck_assert(decision.allowed && decision.source == WEIR_BY_BACKEND && decision.remaining == 0);
        ck_assert_uint_eq(stats_of(limiter).settled, 8);
        ck_assert_uint_eq(stats_of(limiter).unsettled, 0);
        weir_close(other.limiter);
        stage_close(stage);
    }
}

TEST(a_debt_is_charged_to_whatever_the_limit_is_by_then, 30)
{
    struct stage *stage = stage_open(LAZY, NULL, ten);
    const struct weir_policy policy = policy_of("fixed_window limit=5 period=1h");
    outage_admits(stage, "a", 5 * WEIR_SECOND, 3);
    cable_set(&stage->instance.cable, CABLE_WELL);
    must_succeed(weir_limit_define(stage->instance.limiter, "limit", &policy, NULL));
    ck_assert_int_eq(try_in(stage, "a", 1).remaining, 1);
    stage_close(stage);
}

/* ---- Policies that change during an outage ---- */

static void put_text(struct stage *stage, const char *name, const char *policy)
{
    const struct weir_policy read = policy_of(policy ? policy : ten);
    must_succeed(weir_limit_define(stage->instance.limiter, name, policy ? &read : NULL, NULL));
}

static void put_layer(struct stage *stage, const char *pattern, const char *policy)
{
    const struct policy_entry entry = { .name = "limit", .pattern = pattern, .policy = policy_of(policy) };
    struct layers_result result;
    must_succeed(layers_apply(stage->instance.limiter, WEIR_FOLLOW_CONSUL_POLICIES, &entry, 1, &result));
    ck_assert_uint_eq(result.changes, 1);
}

static void put_file(struct stage *stage, const char *line)
{
    char path[] = "/tmp/weir-test-XXXXXX";
    const int fd = mkstemp(path);
    must(fd >= 0 && write(fd, line, strlen(line)) == (ssize_t)strlen(line) && close(fd) == 0, "a file");
    must_succeed(weir_limits_load(stage->instance.limiter, path, NULL, 0));
    unlink(path);
}

static const char *const thousand = "token_bucket limit=1000 period=1000s";

static void put_change(struct stage *stage, int change)
{
    switch (change) {
    case 0: put_text(stage, "limit", thousand); break;
    case 1: put_text(stage, "limit/a", thousand); break;
    case 2: put_text(stage, "limit/a*", thousand); break;
    case 3: put_text(stage, "limit/pre*", NULL); break;
    case 4: put_text(stage, "limit/prefix", NULL); break;
    case 5: put_layer(stage, NULL, thousand); break;
    case 6: put_layer(stage, "a", thousand); break;
    case 7: put_file(stage, "limit = token_bucket limit=1000 period=1000s\n"); break;
    default: put_file(stage, "limit/a* = token_bucket limit=1000 period=1000s\n"); break;
    }
}

TEST(a_policy_that_changes_in_an_outage_hands_out_nothing_and_forgets_no_debt, 10)
{
    for (int change = 0; change < 9; change++) {
        struct stage *stage = stage_open(EAGER, NULL, change == 3 || change == 4 ? thousand : ten);
        const char *const key = change == 3 || change == 4 ? "prefix" : "a";
        put_text(stage, "limit/pre*", ten);
        if (change == 4) {
            put_text(stage, "limit/pre*", thousand);
            put_text(stage, "limit/prefix", ten);
        }
        outage_admits(stage, key, 5 * WEIR_SECOND, 3);
        put_change(stage, change);
        const struct weir_decision cold = try_in(stage, key, 1);
        ck_assert_int_eq(cold.limit, 1000);
        ck_assert(!cold.allowed);
        now_us += 2 * WEIR_SECOND;
        must(try_in(stage, key, 2).allowed, "time makes permits");
        must(!try_in(stage, key, 1).allowed, "and no more");
        cable_set(&stage->instance.cable, CABLE_WELL);
        ck_assert_int_eq(stage->remote.charged, 5);
        ck_assert_int_eq(try_in(stage, key, 1).remaining, 994);
        const struct weir_stats stats = stats_of(stage->instance.limiter);
        ck_assert_uint_eq(stats.settled, 5);
        ck_assert_uint_eq(stats.unsettled, 0);
        ck_assert_uint_eq(stats.outages, 2);
        stage_close(stage);
    }
}

TEST(a_change_of_no_key_in_an_outage_leaves_it_one, 10)
{
    struct stage *stage = stage_open(EAGER, NULL, ten);
    outage_admits(stage, "a", 5 * WEIR_SECOND, 3);
    put_text(stage, "limit", ten);
    put_text(stage, "another", thousand);
    put_text(stage, "limit/b", NULL);
    put_layer(stage, NULL, ten);
    must(try_in(stage, "a", 2).allowed, "what it had");
    ck_assert_uint_eq(stats_of(stage->instance.limiter).outages, 1);
    stage_close(stage);
}

TEST(a_reset_forgets_what_is_owed_and_a_refund_does_not, 30)
{
    struct stage *stage = stage_open(LAZY, NULL, ten);
    outage_admits(stage, "a", 5 * WEIR_SECOND, 3);
    must(try_in(stage, "b", 3).allowed, "as much for each key");
    cable_set(&stage->instance.cable, CABLE_WELL);
    must_succeed(weir_reset(stage->instance.limit, weir_key_text("a")));
    ck_assert_int_eq(try_in(stage, "a", 1).remaining, 9);
    must_succeed(weir_refund(stage->instance.limit, weir_key_text("b"), 1));
    ck_assert_int_eq(try_in(stage, "b", 1).remaining, 6);

    static struct instance other; /* which leaves no room for what is owed */
    memset(&other, 0, sizeof other);
    instance_open(&other, &stage->remote, NULL, ten);
    taken(other.limit, "c", 9);
    outage_admits(stage, "c", 3 * WEIR_SECOND, 3);
    taken(other.limit, "c", 3);
    cable_set(&stage->instance.cable, CABLE_WELL);
    must_succeed(weir_reset(stage->instance.limit, weir_key_text("c")));
    ck_assert_int_eq(try_in(stage, "c", 1).remaining, 9);
    weir_close(other.limiter);
    stage_close(stage);
}

/* ---- Charges that fail ---- */

TEST(a_charge_that_fails_leaves_the_decision_to_the_stand_in_and_the_debt_as_it_was, 30)
{
    struct stage *stage = stage_open(LAZY, NULL, ten);
    outage_admits(stage, "a", 5 * WEIR_SECOND, 3);
    cable_set(&stage->instance.cable, CABLE_LOSES_REQUEST);
    struct weir_decision decision = try_in(stage, "a", 1);
    ck_assert(decision.allowed && decision.source == WEIR_BY_FALLBACK && decision.remaining == 1);
    ck_assert_int_eq(stage->remote.charged, 0);
    cable_set(&stage->instance.cable, CABLE_WELL);
    ck_assert_int_eq(try_in(stage, "a", 1).remaining, 10 - 4 - 1);
    ck_assert_uint_eq(stats_of(stage->instance.limiter).settled, 4);
    stage_close(stage);
}

TEST(a_charge_without_an_answer_is_made_again, 30)
{
    struct stage *stage = stage_open(LAZY, NULL, ten);
    outage_admits(stage, "a", 5 * WEIR_SECOND, 3);
    cable_set(&stage->instance.cable, CABLE_LOSES_ANSWER);
    ck_assert_int_eq(try_in(stage, "a", 1).source, WEIR_BY_FALLBACK);
    ck_assert_int_eq(stage->remote.charged, 3);
    cable_set(&stage->instance.cable, CABLE_WELL);
    ck_assert_int_eq(try_in(stage, "a", 1).remaining, 10 - 3 - 4 - 1); /* too few, never too many */
    stage_close(stage);
}

static atomic_bool has_no_memory;
static _Atomic int in_vain; /* allocations */

void *__real_malloc(size_t size);
void *__wrap_malloc(size_t size);

void *__wrap_malloc(size_t size)
{
    if (!atomic_load(&has_no_memory) || size > 40) /* Check has larger things to remember, amid a call, too */
        return __real_malloc(size);
    if (atomic_fetch_add(&in_vain, 1) == 1000) /* else it would go on for ever */
        atomic_store(&has_no_memory, false);
    return NULL;
}

TEST(a_chain_without_memory_ends_and_is_taken_up_again, 30)
{
    struct stage *stage = stage_open(LATER, NULL, ten);
    try_in(stage, "b", 1); /* the store has a place for it */
    outage_admits(stage, "a", 5 * WEIR_SECOND, 3);
    cable_set(&stage->instance.cable, CABLE_WELL);
    atomic_store(&has_no_memory, true);
    struct weir_decision decision;
    int error = weir_try(stage->instance.limit, weir_key_text("b"), 1, &decision);
    atomic_store(&has_no_memory, false);
    ck_assert(error == WEIR_OK && decision.source == WEIR_BY_BACKEND);
    ck_assert_int_ge(atomic_load(&in_vain), 1);
    ck_assert_int_le(atomic_load(&in_vain), 2);
    ck_assert_int_eq(stage->instance.cable.submits, 0);
    atomic_store(&stage->instance.limiter->settle.chain.again_us, 0);
    try_in(stage, "b", 1);
    ck_assert_int_eq(cable_answer(&stage->instance.cable, 10), 1);
    ck_assert_int_eq(stage->remote.charged, 3);
    ck_assert(!atomic_load(&stage->instance.limiter->settle.owes));
    stage_close(stage);
}

TEST(what_cannot_be_charged_for_the_stores_state_is_not_weirs_is_given_up, 30)
{
    struct stage *stage = stage_open(LAZY, NULL, ten);
    struct weir_decision decision;
    outage_admits(stage, "a", 5 * WEIR_SECOND, 3);
    cable_set(&stage->instance.cable, CABLE_WELL);
    atomic_store(&stage->instance.cable.error, WEIR_ESTATE);
    ck_assert_int_eq(weir_try(stage->instance.limit, weir_key_text("a"), 1, &decision), WEIR_ESTATE);
    ck_assert_int_eq(try_in(stage, "a", 1).remaining, 9);
    const struct weir_stats stats = stats_of(stage->instance.limiter);
    ck_assert_uint_eq(stats.settled, 0);
    ck_assert_uint_eq(stats.unsettled, 3);
    stage_close(stage);
}

/* A store that has a state of "bad" that is not weir's, and stops at it. */
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

TEST(one_key_whose_state_is_not_weirs_leaves_the_debts_of_its_batch_owed, 30)
{
    struct stage *stage = stage_open(LAZY, NULL, ten);
    weir_limit *limit = stage->instance.limit;
    struct weir_decision decisions[3];
    const struct weir_request requests[] = { { limit, weir_key_text("a"), 1, 0 },
                                             { limit, weir_key_text("bad"), 1, 0 },
                                             { limit, weir_key_text("good"), 1, 0 } };
    decide_well = stage->instance.cable.ops.decide;
    stage->instance.cable.ops.decide = decide_up_to_bad;
    outage_admits(stage, "a", 10 * WEIR_SECOND, 2);
    must(try_in(stage, "bad", 1).allowed && try_in(stage, "good", 9).allowed, "time makes permits");
    cable_set(&stage->instance.cable, CABLE_WELL);
    ck_assert_int_eq(weir_try_batch(stage->instance.limiter, requests, 3, decisions), WEIR_ESTATE);
    ck_assert_int_eq(try_in(stage, "good", 1).remaining, 0);
    ck_assert_int_eq(try_in(stage, "a", 1).remaining, 10 - 2 - 2 - 1); /* it came before and was charged twice */
    const struct weir_stats stats = stats_of(stage->instance.limiter);
    ck_assert_uint_eq(stats.settled, 2 + 9);
    ck_assert_uint_eq(stats.unsettled, 1);
    stage_close(stage);
}

TEST(a_charge_that_may_not_be_made_here_is_still_owed, 30)
{
    struct stage *stage = stage_open(LAZY, NULL, ten);
    struct weir_decision decision;
    outage_admits(stage, "a", 5 * WEIR_SECOND, 3);
    cable_set(&stage->instance.cable, CABLE_WELL);
    atomic_store(&stage->instance.cable.error, WEIR_EINVAL); /* as in a callback of the backend's */
    ck_assert_int_eq(weir_try(stage->instance.limit, weir_key_text("a"), 1, &decision), WEIR_EINVAL);
    atomic_store(&stage->instance.cable.error, WEIR_OK);
    ck_assert_int_eq(try_in(stage, "a", 1).remaining, 10 - 3 - 1);
    ck_assert_uint_eq(stats_of(stage->instance.limiter).unsettled, 0);
    stage_close(stage);
}

TEST(outages_beyond_those_that_are_kept_are_given_up_and_counted, 30)
{
    struct stage *stage = stage_open(LAZY, NULL, "token_bucket limit=1000 period=1000s");
    for (int i = 0; i < SETTLE_RECORDS + 4; i++) {
        char key[16];
        snprintf(key, sizeof key, "%d", i);
        outage_admits(stage, key, 2 * WEIR_SECOND, 2);
        cable_set(&stage->instance.cable, CABLE_WELL);
        try_in(stage, "b", 1);
    }
    ck_assert_uint_eq(stats_of(stage->instance.limiter).unsettled, 4 * 2);
    for (int i = 0; i < SETTLE_RECORDS + 4; i++) {
        char key[16];
        snprintf(key, sizeof key, "%d", i);
        ck_assert_int_eq(try_in(stage, key, 1).remaining, i < 4 ? 999 : 997);
    }
    ck_assert_uint_eq(stats_of(stage->instance.limiter).settled, SETTLE_RECORDS * 2);
    for (int i = 0; i < 10000 && atomic_load(&stage->instance.limiter->settle.owes); i++)
        try_in(stage, "b", 1);
    ck_assert(!atomic_load(&stage->instance.limiter->settle.owes));
    ck_assert_int_eq(stats_of(stage->instance.limiter).keys, 0); /* nobody needs those that were given up */
    stage_close(stage);
}

TEST(an_outage_that_has_been_paid_makes_room_before_one_that_has_not, 30)
{
    struct stage *stage = stage_open(LAZY, NULL, "token_bucket limit=1000 period=1000s");
    struct settle *settle = &stage->instance.limiter->settle;
    atomic_store(&settle->chain.busy, true); /* no walk removes the record of an outage that has been paid */
    for (int i = 0; i < SETTLE_RECORDS + 1; i++) {
        char key[16];
        snprintf(key, sizeof key, "%d", i);
        outage_admits(stage, key, 2 * WEIR_SECOND, 2);
        cable_set(&stage->instance.cable, CABLE_WELL);
        try_in(stage, i == 5 ? key : "b", 1);
    }
    atomic_store(&settle->chain.busy, false);
    ck_assert_uint_eq(stats_of(stage->instance.limiter).unsettled, 0);
    for (int i = 0; i < SETTLE_RECORDS + 1; i++) {
        char key[16];
        snprintf(key, sizeof key, "%d", i);
        try_in(stage, key, 1);
    }
    ck_assert_int_eq(stage->remote.charged, 2 * (SETTLE_RECORDS + 1));
    ck_assert_uint_eq(stats_of(stage->instance.limiter).settled, 2 * (SETTLE_RECORDS + 1));
    stage_close(stage);
}

TEST(one_key_of_several_outages_is_settled_as_one, 30)
{
    struct stage *stage = stage_open(LAZY, NULL, "token_bucket limit=1000 period=1000s");
    for (int i = 0; i < 3; i++) {
        outage_admits(stage, "a", 2 * WEIR_SECOND, 2);
        cable_set(&stage->instance.cable, CABLE_WELL);
        try_in(stage, "b", 1);
    }
    outage_admits(stage, "a", WEIR_SECOND, 1);
    cable_set(&stage->instance.cable, CABLE_WELL);
    ck_assert_int_eq(try_in(stage, "a", 1).remaining, 1000 - 7 - 1);
    ck_assert_int_eq(stage->remote.most_charged, 7);
    stage_close(stage);
}

TEST(what_is_settled_is_counted_with_its_outage, 30)
{
    struct stage *stage = stage_open(LAZY, NULL, "token_bucket limit=10 period=1d");
    const struct settle *settle = &stage->instance.limiter->settle;
    static const char *const keys[] = { "a", "b" };
    for (int i = 0; i < 2; i++) {
        outage_admits(stage, keys[i], WEIR_DAY / 2, 3 + i);
        cable_set(&stage->instance.cable, CABLE_WELL);
        must(try_in(stage, "c", 1).source == WEIR_BY_BACKEND, "the outage is over");
    }
    ck_assert_uint_eq(atomic_load(&settle->count), 2);
    ck_assert_int_eq(try_in(stage, "b", 1).remaining, 10 - 4 - 1);
    ck_assert_uint_eq(settle->records[0].settled, 0);
    ck_assert_uint_eq(settle->records[1].settled, 4);
    stage_close(stage);
}

TEST(what_was_admitted_for_want_of_room_is_owed_by_nobody_and_counted, 30)
{
    struct weir_options options = WEIR_OPTIONS_INIT;
    options.max_keys = 1;
    options.on_full = WEIR_FULL_ALLOW;
    struct stage *stage = stage_open(EAGER, &options, ten);
    outage_admits(stage, "a", 5 * WEIR_SECOND, 3);
    must(try_in(stage, "b", 2).allowed, "without room it is allowed");
    ck_assert_uint_eq(atomic_load(&stage->instance.limiter->settle.admitted), 3);
    cable_set(&stage->instance.cable, CABLE_WELL);
    const struct weir_stats stats = stats_of(stage->instance.limiter);
    ck_assert_uint_eq(stats.settled, 3);
    ck_assert_uint_eq(stats.unsettled, 2);
    stage_close(stage);
}

TEST(a_backend_of_shares_and_other_policies_of_failure_owe_nothing, 30)
{
    for (int i = 0; i < 4; i++) {
        struct weir_options options = WEIR_OPTIONS_INIT;
        static struct stage stage;
        struct weir_decision decision;
        memset(&stage, 0, sizeof stage);
        options.on_failure = (enum weir_on_failure[]){ WEIR_FAIL_LOCAL, WEIR_FAIL_OPEN, WEIR_FAIL_CLOSED,
                                                       WEIR_FAIL_ERROR }[i];
        now_us = INT64_C(1) << 40;
        remote_init(&stage.remote);
        cable_init(&stage.instance.cable, &stage.remote);
        stage.instance.cable.ops.shared = options.on_failure != WEIR_FAIL_LOCAL;
        instance_open(&stage.instance, &stage.remote, &options, ten);
        cable_set(&stage.instance.cable, CABLE_CUT);
        weir_try(stage.instance.limit, weir_key_text("a"), 1, &decision);
        now_us += 5 * WEIR_SECOND;
        weir_try(stage.instance.limit, weir_key_text("a"), 1, &decision);
        cable_set(&stage.instance.cable, CABLE_WELL);
        ck_assert_int_eq(taken(stage.instance.limit, "a", 1).remaining, 9);
        const struct weir_stats stats = stats_of(stage.instance.limiter);
        ck_assert_uint_eq(stats.settled + stats.unsettled, 0);
        stage_close(&stage);
    }
}

/* ---- Several at once ---- */

TEST(all_or_nothing_settles_every_key_first_or_is_a_failure_as_a_whole, 30)
{
    struct stage *stage = stage_open(LAZY, NULL, ten);
    const struct weir_policy policy = policy_of("token_bucket limit=20 period=20s");
    struct weir_decision decision;
    weir_limit *other;
    must_succeed(weir_limit_define(stage->instance.limiter, "other", &policy, &other));
    const struct weir_request both[2] = { { stage->instance.limit, weir_key_text("a"), 1, 0 },
                                          { other, weir_key_text("a"), 1, 0 } };
    outage_admits(stage, "a", 5 * WEIR_SECOND, 3);
    must(taken(other, "a", 4).allowed, "as much for each limit");
    cable_set(&stage->instance.cable, CABLE_LOSES_REQUEST);
    must_succeed(weir_try_all(stage->instance.limiter, both, 2, &decision));
    ck_assert(decision.allowed && decision.source == WEIR_BY_FALLBACK);
    const int charges = stage->instance.cable.charges;
    cable_set(&stage->instance.cable, CABLE_WELL);
    must_succeed(weir_try_all(stage->instance.limiter, both, 2, &decision));
    ck_assert(decision.allowed && decision.source == WEIR_BY_BACKEND);
    ck_assert_int_eq(decision.remaining, 10 - 4 - 1);
    ck_assert_int_eq(peeked(other, "a", 1).remaining, 20 - 5 - 1);
    ck_assert_int_eq(stage->instance.cable.charges, charges + 1); /* one call for both */
    stage_close(stage);
}

TEST(a_batch_settles_each_of_its_keys_once, 30)
{
    struct stage *stage = stage_open(LAZY, NULL, ten);
    struct weir_decision decisions[4];
    weir_limit *limit = stage->instance.limit;
    const struct weir_request requests[4] = { { limit, weir_key_text("a"), 1, 0 },
                                              { limit, weir_key_text("b"), 1, 0 },
                                              { limit, weir_key_text("a"), 1, 0 },
                                              { limit, weir_key_text("c"), 1, 0 } };
    outage_admits(stage, "a", 5 * WEIR_SECOND, 3);
    must(try_in(stage, "b", 2).allowed, "as much for each key");
    cable_set(&stage->instance.cable, CABLE_WELL);
    must_succeed(weir_try_batch(stage->instance.limiter, requests, 4, decisions));
    ck_assert_int_eq(decisions[0].remaining, 6);
    ck_assert_int_eq(decisions[1].remaining, 7);
    ck_assert_int_eq(decisions[2].remaining, 5);
    ck_assert_int_eq(decisions[3].remaining, 9);
    ck_assert_int_eq(stage->remote.charged, 5);
    stage_close(stage);
}

/* ---- Submitted ---- */

struct asked {
    struct weir_op op;
    int done, status;
};

static void note_done(struct weir_op *op, int status)
{
    struct asked *asked = op->user;
    asked->done++;
    asked->status = status;
}

static int submit_in(struct stage *stage, const char *key, struct asked *asked)
{
    memset(asked, 0, sizeof *asked);
    asked->op.request = (struct weir_request){ stage->instance.limit, weir_key_text(key), 1, 0 };
    asked->op.done = note_done;
    asked->op.user = asked;
    return weir_submit(stage->instance.limiter, &asked->op);
}

TEST(a_submitted_request_follows_its_keys_settlement_and_another_is_denied_for_the_moment, 30)
{
    struct stage *stage = stage_open(LATER, NULL, ten);
    struct asked first, second, third;
    outage_admits(stage, "a", 5 * WEIR_SECOND, 3);
    cable_set(&stage->instance.cable, CABLE_WELL);
    ck_assert_int_eq(submit_in(stage, "a", &first), 1);
    ck_assert_int_eq(submit_in(stage, "a", &second), WEIR_OK);
    ck_assert(!second.op.decision.allowed && second.op.decision.source == WEIR_BY_FALLBACK);
    ck_assert_int_eq(second.op.decision.retry_after_us, 1000);
    ck_assert_int_eq(second.op.decision.limit, 10);
    ck_assert_int_eq(submit_in(stage, "b", &third), 1);
    ck_assert_int_eq(cable_answer(&stage->instance.cable, 1), 1);
    ck_assert_int_eq(stage->remote.charged, 3);
    ck_assert_int_eq(first.done, 0);
    cable_answer(&stage->instance.cable, 10);
    ck_assert(first.done == 1 && first.status == WEIR_OK && first.op.decision.remaining == 6);
    ck_assert(third.done == 1 && third.status == WEIR_OK && third.op.decision.remaining == 9);
    ck_assert_int_eq(second.done, 0);
    ck_assert_int_eq(submit_in(stage, "a", &second), 1);
    cable_answer(&stage->instance.cable, 1);
    ck_assert_int_eq(second.op.decision.remaining, 5);
    ck_assert_int_eq(stage->remote.charged, 3);
    stage_close(stage);
}

TEST(a_chain_that_failed_is_taken_up_again_by_whoever_asks, 30)
{
    struct weir_options options = WEIR_OPTIONS_INIT;
    options.max_keys = 1000; /* few shards: both keys are in one batch, or in two */
    for (int submits = 0; submits < 2; submits++) {
        struct stage *stage = stage_open(LATER, &options, ten);
        struct settle_chain *chain = &stage->instance.limiter->settle.chain;
        struct asked asked;
        outage_admits(stage, "a", 5 * WEIR_SECOND, 3);
        must(try_in(stage, "b", 2).allowed, "as much for each key");
        cable_set(&stage->instance.cable, CABLE_WELL);
        try_in(stage, "c", 1);
        cable_set(&stage->instance.cable, CABLE_LOSES_REQUEST);
        ck_assert_int_gt(cable_answer(&stage->instance.cable, 10), 0);
        const int64_t pause_us = chain->pause_us;
        for (int failures = 0; failures < 3; failures++) {
            cable_set(&stage->instance.cable, CABLE_WELL);
            atomic_store(&chain->again_us, 0); /* the pause is over */
            try_in(stage, "c", 1);
            cable_set(&stage->instance.cable, CABLE_LOSES_REQUEST);
            ck_assert_int_gt(cable_answer(&stage->instance.cable, 10), 0);
            ck_assert_int_eq(chain->pause_us, pause_us); /* which is for those that found nothing to charge to grow */
        }
        cable_set(&stage->instance.cable, CABLE_WELL);
        for (int tries = 0; tries < 10000 && stage->remote.charged < 5; tries++) { /* 100 ms later, or so */
            if (submits)
                must(submit_in(stage, "c", &asked) == 1, "a request is submitted");
            else
                try_in(stage, "c", 1);
            cable_answer(&stage->instance.cable, 10);
            usleep(1000);
        }
        ck_assert_int_eq(stage->remote.charged, 5);
        ck_assert(!atomic_load(&stage->instance.limiter->settle.owes));
        stage_close(stage);
    }
}

static struct {
    int (*submit)(struct weir_backend *backend, const struct weir_backend_request *request, int64_t deadline_us,
                  struct weir_op *op);
    int64_t deadlines_us[2]; /* of the last two charges or requests */
} noted;

static int submit_and_note(struct weir_backend *backend, const struct weir_backend_request *request,
                           int64_t deadline_us, struct weir_op *op)
{
    noted.deadlines_us[0] = noted.deadlines_us[1];
    noted.deadlines_us[1] = deadline_us;
    return noted.submit(backend, request, deadline_us, op);
}

TEST(a_submitted_request_and_its_settlement_share_a_deadline, 10)
{
    struct stage *stage = stage_open(LATER, NULL, ten);
    struct cable *cable = &stage->instance.cable;
    struct asked asked;
    outage_admits(stage, "a", 5 * WEIR_SECOND, 3);
    cable_set(cable, CABLE_WELL);
    noted.submit = cable->ops.submit;
    cable->ops.submit = submit_and_note;
    const int64_t asked_us = clock_monotonic_us();
    ck_assert_int_eq(submit_in(stage, "a", &asked), 1);
    ck_assert_int_eq(cable_answer(cable, 1), 1); /* the charge; then the request */
    ck_assert_int_gt(noted.deadlines_us[0], asked_us);
    ck_assert_int_eq(noted.deadlines_us[1], noted.deadlines_us[0]);
    cable_answer(cable, 1);
    ck_assert_int_eq(asked.op.decision.remaining, 6);
    stage_close(stage);
}

TEST(a_submitted_request_whose_settlement_fails_is_answered_by_the_stand_in, 30)
{
    struct stage *stage = stage_open(LATER, NULL, ten);
    struct asked asked;
    outage_admits(stage, "a", 5 * WEIR_SECOND, 3);
    ck_assert_int_eq(submit_in(stage, "a", &asked), WEIR_OK); /* it fails at once */
    ck_assert(asked.op.decision.allowed && asked.op.decision.source == WEIR_BY_FALLBACK);
    cable_set(&stage->instance.cable, CABLE_LOSES_ANSWER);
    ck_assert_int_eq(submit_in(stage, "a", &asked), 1);
    ck_assert_int_eq(cable_answer(&stage->instance.cable, 10), 1);
    ck_assert(asked.done == 1 && asked.status == WEIR_OK);
    ck_assert(asked.op.decision.allowed && asked.op.decision.source == WEIR_BY_FALLBACK);
    ck_assert_int_eq(asked.op.decision.remaining, 0);
    ck_assert_int_eq(stage->remote.charged, 4);
    cable_set(&stage->instance.cable, CABLE_WELL);
    ck_assert_int_eq(try_in(stage, "a", 1).remaining, 10 - 4 - 5 - 1); /* too few, never too many */
    stage_close(stage);
}

/* ---- Who waits ---- */

struct caller {
    struct stage *stage;
    struct weir_decision decision;
    int error;
    pthread_t thread;
};

static void *call_try(void *argument)
{
    struct caller *caller = argument;
    caller->error = weir_try(caller->stage->instance.limit, weir_key_text("a"), 1, &caller->decision);
    return NULL;
}

TEST(a_caller_waits_for_the_one_who_settles_its_key, 30)
{
    for (int spans = 0; spans < 2; spans++) { /* whether the backend is told deadlines, or how long it may take */
        struct stage *stage = stage_open(LATER, NULL, ten);
        struct caller callers[3] = { { .stage = stage }, { .stage = stage }, { .stage = stage } };
        stage->instance.limiter->spans = spans;
        outage_admits(stage, "a", 5 * WEIR_SECOND, 3);
        const int charges = atomic_load(&stage->instance.cable.charges);
        cable_set(&stage->instance.cable, CABLE_WELL);
        cable_hold(&stage->instance.cable);
        for (int i = 0; i < 3; i++)
            ck_assert_int_eq(pthread_create(&callers[i].thread, NULL, call_try, &callers[i]), 0);
        cable_await_held(&stage->instance.cable);
        usleep(20000);
        cable_let_go(&stage->instance.cable);
        int64_t remaining = 0;
        for (int i = 0; i < 3; i++) {
            pthread_join(callers[i].thread, NULL);
            ck_assert(callers[i].error == WEIR_OK && callers[i].decision.source == WEIR_BY_BACKEND);
            remaining += callers[i].decision.remaining;
        }
        ck_assert_int_eq(remaining, 6 + 5 + 4);
        ck_assert_int_eq(stage->remote.charged, 3);
        ck_assert_int_eq(stage->instance.cable.charges, charges + 1);
        stage_close(stage);
    }
}

TEST(a_caller_who_waits_too_long_is_answered_by_the_stand_in, 30)
{
    struct weir_options options = WEIR_OPTIONS_INIT;
    options.timeout_us = 1000;
    struct stage *stage = stage_open(LATER, &options, ten);
    struct caller first = { .stage = stage };
    outage_admits(stage, "a", 5 * WEIR_SECOND, 3);
    cable_set(&stage->instance.cable, CABLE_WELL);
    cable_hold(&stage->instance.cable);
    ck_assert_int_eq(pthread_create(&first.thread, NULL, call_try, &first), 0);
    cable_await_held(&stage->instance.cable);
    struct weir_decision decision = try_in(stage, "a", 1);
    ck_assert(decision.allowed && decision.source == WEIR_BY_FALLBACK);
    cable_let_go(&stage->instance.cable);
    pthread_join(first.thread, NULL);
    ck_assert_int_eq(first.decision.source, WEIR_BY_BACKEND);
    while (cable_answer(&stage->instance.cable, 10) > 0)
        ;
    ck_assert_int_eq(try_in(stage, "a", 1).remaining, 10 - 4 - 2); /* what came in between is owed, and settled too */
    stage_close(stage);
}

/* The cable is well, and the outage of another key is over; the store has no room for what is owed of "a". */
static struct stage *stage_without_room(const struct weir_options *options, struct instance *other)
{
    static const char *const slow = "token_bucket limit=10 period=1d";
    struct stage *stage = stage_open(LAZY, options, slow);
    memset(other, 0, sizeof *other);
    instance_open(other, &stage->remote, NULL, slow);
    outage_admits(stage, "a", WEIR_DAY / 2, 3);
    must(taken(other->limit, "a", 10).allowed, "it knows of no debt");
    cable_set(&stage->instance.cable, CABLE_WELL);
    must(try_in(stage, "b", 1).source == WEIR_BY_BACKEND, "the outage is over");
    return stage;
}

TEST(callers_who_waited_for_a_charge_that_found_no_room_do_not_charge_again, 30)
{
    enum { CALLERS = 8 };
    static struct instance other;
    struct stage *stage = stage_without_room(NULL, &other);
    struct caller callers[CALLERS];
    const int charges = atomic_load(&stage->instance.cable.charges);
    cable_hold(&stage->instance.cable);
    for (int i = 0; i < CALLERS; i++) {
        callers[i] = (struct caller){ .stage = stage };
        ck_assert_int_eq(pthread_create(&callers[i].thread, NULL, call_try, &callers[i]), 0);
    }
    cable_await_held(&stage->instance.cable);
    usleep(50000); /* all others wait by now, but for those that a busy machine holds up: they charge once more each */
    cable_let_go(&stage->instance.cable);
    for (int i = 0; i < CALLERS; i++) {
        pthread_join(callers[i].thread, NULL);
        ck_assert_int_eq(callers[i].error, WEIR_OK);
        ck_assert(!callers[i].decision.allowed);
        ck_assert_int_eq(callers[i].decision.source, WEIR_BY_BACKEND);
    }
    ck_assert_int_lt(stage->instance.cable.charges - charges, CALLERS);
    ck_assert_int_eq(stage->remote.charged, 0);
    now_us += WEIR_DAY;
    try_in(stage, "a", 1);
    ck_assert_uint_eq(stats_of(stage->instance.limiter).outages, 1);
    weir_close(other.limiter);
    stage_close(stage);
}

TEST(a_caller_who_waits_too_long_for_a_well_store_is_denied_for_the_moment_and_it_is_no_outage, 30)
{
    struct weir_options options = WEIR_OPTIONS_INIT;
    static struct instance other;
    options.timeout_us = 1000;
    struct stage *stage = stage_without_room(&options, &other);
    struct caller first = { .stage = stage };
    cable_hold(&stage->instance.cable);
    ck_assert_int_eq(pthread_create(&first.thread, NULL, call_try, &first), 0);
    cable_await_held(&stage->instance.cable);
    struct weir_decision decision = try_in(stage, "a", 1);
    ck_assert(!decision.allowed && decision.source == WEIR_BY_FALLBACK && decision.remaining == 0);
    ck_assert_int_gt(decision.retry_after_us, 0);
    ck_assert_int_ge(decision.reset_after_us, decision.retry_after_us);
    ck_assert_int_eq(weir_reset(stage->instance.limit, weir_key_text("a")), WEIR_ETIME);
    cable_let_go(&stage->instance.cable);
    pthread_join(first.thread, NULL);
    ck_assert_int_eq(first.decision.source, WEIR_BY_BACKEND);
    ck_assert_uint_eq(stats_of(stage->instance.limiter).outages, 1);
    weir_close(other.limiter);
    stage_close(stage);
}

/* A thread that went to the stand-in in an outage and is admitted there while another settles the key, just before that
 * one writes down what has been paid. */
static struct {
    const struct own_ops *before;
    struct own_ops ops;
    sem_t is_there, may_go_on, was_admitted;
    bool is_due; /* the thread that settles writes it down next */
    struct caller caller;
} straggler;
static _Thread_local bool is_straggler;

static int decide_late(struct weir_backend *backend, const struct weir_backend_request *requests, size_t n, bool all,
                       int64_t deadline_us, struct weir_decision *out)
{
    if (!is_straggler)
        return straggler.before->base.decide(backend, requests, n, all, deadline_us, out);
    sem_post(&straggler.is_there);
    sem_wait(&straggler.may_go_on);
    int error = straggler.before->base.decide(backend, requests, n, all, deadline_us, out);
    sem_post(&straggler.was_admitted);
    return error;
}

static int64_t pay_after_the_straggler(struct weir_backend *backend, const struct weir_backend_request *request,
                                       int64_t permits)
{
    if (straggler.is_due) {
        straggler.is_due = false;
        sem_post(&straggler.may_go_on);
        sem_wait(&straggler.was_admitted);
    }
    return straggler.before->pay(backend, request, permits);
}

static void *straggle(void *argument)
{
    struct caller *caller = argument;
    is_straggler = true;
    caller->decision = try_in(caller->stage, "a", 7);
    return NULL;
}

TEST(what_a_straggler_is_admitted_while_its_key_is_settled_is_owed, 30)
{
    struct stage *stage = stage_open(LAZY, NULL, ten);
    struct weir *limiter = stage->instance.limiter;
    straggler.caller = (struct caller){ .stage = stage };
    straggler.before = own_ops(limiter->fallback);
    straggler.ops = *straggler.before;
    straggler.ops.base.decide = decide_late;
    straggler.ops.pay = pay_after_the_straggler;
    must(sem_init(&straggler.is_there, 0, 0) == 0 && sem_init(&straggler.may_go_on, 0, 0) == 0, "semaphores");
    must(sem_init(&straggler.was_admitted, 0, 0) == 0, "a semaphore");
    outage_admits(stage, "a", 10 * WEIR_SECOND, 3);
    limiter->fallback->ops = &straggler.ops.base;
    ck_assert_int_eq(pthread_create(&straggler.caller.thread, NULL, straggle, &straggler.caller), 0);
    sem_wait(&straggler.is_there);
    cable_set(&stage->instance.cable, CABLE_WELL);
    straggler.is_due = true;
    ck_assert_int_eq(try_in(stage, "a", 1).remaining, 10 - 3 - 1);
    pthread_join(straggler.caller.thread, NULL);
    ck_assert(straggler.caller.decision.allowed && straggler.caller.decision.source == WEIR_BY_FALLBACK);
    ck_assert(!try_in(stage, "a", 1).allowed); /* there was room for six of the seven */
    ck_assert_int_eq(stage->remote.charged, 3 + 6);
    now_us += 2 * WEIR_SECOND;
    ck_assert_int_eq(try_in(stage, "a", 1).remaining, 0);
    ck_assert_int_eq(stage->remote.charged, 3 + 7);
    ck_assert_uint_eq(stats_of(limiter).unsettled, 0);
    cable_set(&stage->instance.cable, CABLE_CUT);
    ck_assert(!try_in(stage, "a", 1).allowed);
    ck_assert_uint_eq(atomic_load(&limiter->settle.admitted), 0); /* of the outage that has just begun */
    stage_close(stage);
}

/* A stand-in of whose debts another thread pays each, just after it was first seen. */
static struct {
    const struct own_ops *before;
    struct own_ops ops;
    int seen;
} payer;

static int64_t debt_that_is_paid(struct weir_backend *backend, const struct weir_backend_request *request)
{
    return payer.seen++ == 0 ? payer.before->debt(backend, request) : 0;
}

TEST(a_debt_that_another_pays_just_before_is_not_charged_again, 10)
{
    struct stage *stage = stage_open(LAZY, NULL, ten);
    struct weir_backend *fallback = stage->instance.limiter->fallback;
    outage_admits(stage, "a", 5 * WEIR_SECOND, 3);
    cable_set(&stage->instance.cable, CABLE_WELL);
    const int charges = atomic_load(&stage->instance.cable.charges);
    payer.before = own_ops(fallback);
    payer.ops = *payer.before;
    payer.ops.debt = debt_that_is_paid;
    payer.seen = 0;
    fallback->ops = &payer.ops.base;
    ck_assert_int_eq(try_in(stage, "a", 1).remaining, 9);
    ck_assert_int_ge(payer.seen, 2);
    fallback->ops = &payer.before->base;
    ck_assert_int_eq(stage->instance.cable.charges, charges);
    ck_assert_int_eq(try_in(stage, "a", 1).remaining, 9 - 3 - 1); /* the key is nobody's */
    ck_assert_int_eq(stage->remote.charged, 3);
    stage_close(stage);
}

TEST(what_is_paid_of_a_debt_is_given_back_or_forgotten_as_one_step, 30)
{
    static const char *const policies[] = { "token_bucket limit=10 period=10s", "leaky_bucket limit=10 period=10s",
                                            "fixed_window limit=10 period=10s", "sliding_window limit=10 period=10s",
                                            "token_bucket limit=1 period=1s burst=10 refill=interval" };
    for (size_t i = 0; i < sizeof policies / sizeof policies[0]; i++) {
        struct stage *stage = stage_open(LAZY, NULL, policies[i]);
        struct weir_backend *fallback = stage->instance.limiter->fallback;
        struct failure_outage outage;
        outage_admits(stage, "a", 11 * WEIR_SECOND, 5);
        must(failure_outage(stage->instance.limiter, &outage), "it lasts");
        struct weir_backend_request request = backend_request(stage->instance.limit, weir_key_text("a"), 1, now_us,
                                                              WEIR_PEEK);
        request.cold_since_us = outage.since_us;
        request.limit_id |= outage.tag << OUTAGE_TAG_BIT;
        ck_assert_int_eq(own_ops(fallback)->debt(fallback, &request), 5);
        ck_assert_int_eq(own_ops(fallback)->pay(fallback, &request, 0), 5);
        ck_assert_int_eq(own_ops(fallback)->pay(fallback, &request, 2), 3);
        ck_assert_int_eq(own_ops(fallback)->debt(fallback, &request), 3);
        ck_assert_int_eq(stats_of(stage->instance.limiter).keys, 1);
        ck_assert_int_eq(own_ops(fallback)->pay(fallback, &request, 4), 0);
        ck_assert_int_eq(stats_of(stage->instance.limiter).keys, 0);
        ck_assert_int_eq(own_ops(fallback)->pay(fallback, &request, 1), 0);
        stage_close(stage);
    }
}

/* ---- Ends ---- */

TEST(a_limiter_is_closed_while_it_settles_and_nothing_is_left, 30)
{
    struct stage *stage = stage_open(LATER, NULL, ten);
    struct asked asked;
    outage_admits(stage, "a", 5 * WEIR_SECOND, 3);
    for (int i = 0; i < 200; i++) {
        char key[16];
        snprintf(key, sizeof key, "%d", i);
        must(try_in(stage, key, 1).allowed, "time makes permits");
    }
    cable_set(&stage->instance.cable, CABLE_WELL);
    ck_assert_int_eq(submit_in(stage, "a", &asked), 1);
    try_in(stage, "c", 1);
    ck_assert_int_ge(stage->instance.cable.submits, 30); /* a batch is under way */
    weir_close(stage->instance.limiter);
    ck_assert(asked.done == 1 && asked.status == WEIR_ECLOSED);
    ck_assert_int_eq(stage->remote.charged, 0);
    remote_free(&stage->remote);
}

TEST(callers_who_settle_or_wait_for_it_are_woken_by_the_close, 30)
{
    struct stage *stage = stage_open(LATER, NULL, ten);
    struct caller callers[2] = { { .stage = stage }, { .stage = stage } };
    outage_admits(stage, "a", 5 * WEIR_SECOND, 3);
    cable_set(&stage->instance.cable, CABLE_WELL);
    cable_hold(&stage->instance.cable);
    for (int i = 0; i < 2; i++)
        ck_assert_int_eq(pthread_create(&callers[i].thread, NULL, call_try, &callers[i]), 0);
    cable_await_held(&stage->instance.cable);
    while (inside_sum(stage->instance.limiter) < 2) /* or else the other one might come too late for it */
        sched_yield();
    usleep(20000);
    weir_close(stage->instance.limiter);
    for (int i = 0; i < 2; i++) {
        pthread_join(callers[i].thread, NULL);
        ck_assert_int_eq(callers[i].error, WEIR_ECLOSED);
    }
    remote_free(&stage->remote);
}

void __real_free(void *block);
void __wrap_free(void *block);

static _Atomic int freed;

void __wrap_free(void *block)
{
    atomic_fetch_add(&freed, 1);
    __real_free(block);
}

static pid_t child_amid_batch; /* 0: not yet */

/* The first charge of a batch forks. */
static int submit_and_fork(struct weir_backend *backend, const struct weir_backend_request *request,
                           int64_t deadline_us, struct weir_op *op)
{
    (void)deadline_us;
    if (child_amid_batch == 0) {
        const int freed_before = atomic_load(&freed);
        pid_t child = fork();
        if (child == 0)
            _exit(atomic_load(&freed) - freed_before < 128 ? atomic_load(&freed) - freed_before : 128);
        child_amid_batch = child;
    }
    return backend->ops->decide(backend, request, 1, false, INT64_MAX, &op->decision);
}

TEST(the_child_of_a_fork_frees_the_batch_that_its_parent_is_at, 30)
{
    enum { KEYS = 20 };
    struct weir_options options = WEIR_OPTIONS_INIT;
    options.max_keys = 1000; /* few shards, as below: all keys are in one batch, or in two */
    struct stage *stage = stage_open(EAGER, &options, ten);
    stage->instance.cable.ops.submit = submit_and_fork;
    child_amid_batch = 0;
    outage_admits(stage, "a", 5 * WEIR_SECOND, 3);
    keys_admit(stage, KEYS);
    cable_set(&stage->instance.cable, CABLE_WELL);
    int status;
    ck_assert_int_gt(child_amid_batch, 0);
    ck_assert_int_eq(waitpid(child_amid_batch, &status, 0), child_amid_batch);
    ck_assert(WIFEXITED(status));
    ck_assert_int_ge(WEXITSTATUS(status), 2 + KEYS / 2); /* the settlement, the table of limits, and the keys */
    ck_assert_int_eq(stage->remote.charged, 3 + KEYS);
    stage_close(stage);
}

TEST(the_child_of_a_fork_owes_nothing_and_begins_cold_and_the_parent_settles, 30)
{
    struct weir_options options = WEIR_OPTIONS_INIT;
    options.max_keys = 1000; /* few shards: ThreadSanitizer cannot count more locks that one thread holds */
    struct stage *stage = stage_open(EAGER, &options, ten);
    outage_admits(stage, "a", 5 * WEIR_SECOND, 3);
    pid_t child = fork();
    if (child == 0) {
        bool right = !try_in(stage, "a", 1).allowed; /* an outage of its own */
        cable_set(&stage->instance.cable, CABLE_WELL);
        right = right && try_in(stage, "a", 1).remaining == 9 && stage->remote.charged == 0;
        right = right && stats_of(stage->instance.limiter).settled == 0;
        _exit(right ? 0 : 1);
    }
    int status;
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    ck_assert_int_eq(status, 0);
    must(try_in(stage, "a", 1).allowed, "the parent's goes on");
    cable_set(&stage->instance.cable, CABLE_WELL);
    ck_assert_int_eq(stage->remote.charged, 4);
    stage_close(stage);
}

/* ---- Bursts ---- */

/* An unlimited leaky meter over all that anybody admits, in microseconds of a rate of one permit a second. */
struct meter {
    int64_t level_us, at_us;
};

static int64_t meter_add(struct meter *meter, int64_t permits)
{
    const int64_t drained_us = now_us - meter->at_us;
    meter->level_us = (drained_us > meter->level_us ? 0 : meter->level_us - drained_us) + permits * WEIR_SECOND;
    meter->at_us = now_us;
    return meter->level_us;
}

enum { MOST_INSTANCES = 4, FLAP_KEYS = 2 };

struct crowd {
    struct remote remote;
    struct instance instances[MOST_INSTANCES];
    bool is_cut[MOST_INSTANCES];
    struct meter meters[FLAP_KEYS];
    /* What those cut off may add by their part of the rate: since the cable was cut; in all; and what of that was
     * before a key's meter was last empty, but for that of outages that were not over then. */
    int64_t part_us[MOST_INSTANCES], parts_us, past_us[FLAP_KEYS];
    int count;
};

static int64_t worst_us, stood_in; /* over all crowds: levels of meters; permits admitted by stand-ins */

static void crowd_open(struct crowd *crowd, int count, enum way way)
{
    memset(crowd, 0, sizeof *crowd);
    now_us = INT64_C(1) << 40;
    remote_init(&crowd->remote);
    crowd->count = count;
    for (int i = 0; i < count; i++) {
        struct weir_options options = WEIR_OPTIONS_INIT;
        options.instances = count;
        options.rank = i;
        cable_by(&crowd->instances[i].cable, &crowd->remote, way);
        instance_open(&crowd->instances[i], &crowd->remote, &options, ten);
    }
}

static void crowd_close(struct crowd *crowd)
{
    for (int i = 0; i < crowd->count; i++)
        weir_close(crowd->instances[i].limiter);
    remote_free(&crowd->remote);
}

static void crowd_wait(struct crowd *crowd, int64_t by_us)
{
    now_us += by_us;
    for (int i = 0; i < crowd->count; i++) {
        const int64_t part_us = crowd->is_cut[i] ? by_us / crowd->count + 1 : 0;
        crowd->part_us[i] += part_us;
        crowd->parts_us += part_us;
    }
}

static void crowd_set(struct crowd *crowd, int i, enum cable_fault fault)
{
    crowd->is_cut[i] = fault != CABLE_WELL;
    if (fault == CABLE_WELL)
        crowd->part_us[i] = 0;
    cable_set(&crowd->instances[i].cable, fault);
    if (fault == CABLE_WELL)
        taken(crowd->instances[i].limit, "c", 1); /* an outage in which nothing was admitted ends with a success */
}

/* One asks for some. `apart`: those that are cut off while others are not may add their part of the rate. */
static void crowd_try(struct crowd *crowd, struct chance *chance, bool apart)
{
    static const char *const keys[FLAP_KEYS] = { "a", "b" };
    const int i = (int)chance_between(chance, 0, crowd->count - 1);
    const int key = (int)chance_between(chance, 0, FLAP_KEYS - 1);
    const int64_t cost = chance_between(chance, 1, 3);
    const struct weir_decision decision = taken(crowd->instances[i].limit, keys[key], cost);
    if (meter_add(&crowd->meters[key], 0) == 0) {
        crowd->past_us[key] = crowd->parts_us;
        for (int other = 0; other < crowd->count; other++)
            crowd->past_us[key] -= crowd->part_us[other];
    }
    if (!decision.allowed)
        return;
    stood_in += decision.source == WEIR_BY_FALLBACK ? cost : 0;
    const int64_t level_us = meter_add(&crowd->meters[key], cost);
    const int64_t more_us = apart ? crowd->parts_us - crowd->past_us[key] : 0;
    must(level_us <= 10 * WEIR_SECOND + more_us, "no more at once than the limit");
    if (level_us > worst_us)
        worst_us = level_us;
}

static void flap(struct crowd *crowd, struct chance *chance, int flaps, bool apart)
{
    for (int flap = 0; flap < 2 * flaps; flap++) {
        const enum cable_fault fault = (enum cable_fault)chance_between(chance, CABLE_CUT, CABLE_LOSES_ANSWER);
        const bool cuts = flap % 2 == 0;
        for (int i = 0; i < crowd->count; i++) {
            if (!apart || chance_one_in(chance, 2))
                crowd_set(crowd, i, cuts ? fault : CABLE_WELL);
        }
        for (int64_t steps = chance_between(chance, 0, cuts ? 60 : 20); steps > 0; steps--) {
            crowd_try(crowd, chance, apart);
            crowd_wait(crowd, chance_one_in(chance, 4) ? chance_magnitude(chance, 2 * WEIR_SECOND) : 0);
        }
    }
}

TEST(no_flapping_admits_more_than_the_limit_at_once, 120)
{
    static struct crowd crowd;
    for (int seed = 0; seed < 300; seed++) {
        struct chance chance = chance_make((uint64_t)seed);
        crowd_open(&crowd, seed % 2 ? MOST_INSTANCES : 1, EAGER);
        flap(&crowd, &chance, 1 + seed % 100, false);
        crowd_close(&crowd);
    }
    ck_assert_int_gt(worst_us, 99 * WEIR_SECOND / 10); /* the limit is reached */
    ck_assert_int_gt(stood_in, 3000);
}

TEST(no_flapping_that_is_settled_key_by_key_admits_more_than_the_limit_at_once, 120)
{
    static struct crowd crowd;
    for (int seed = 0; seed < 300; seed++) {
        struct chance chance = chance_make(1000 + (uint64_t)seed);
        crowd_open(&crowd, 1, LAZY);
        flap(&crowd, &chance, 1 + seed % 100, false);
        crowd_close(&crowd);
    }
    ck_assert_int_gt(worst_us, 99 * WEIR_SECOND / 10);
    ck_assert_int_gt(stood_in, 3000);
}

TEST(instances_that_are_cut_off_one_by_one_add_their_part_of_the_rate_and_no_more, 120)
{
    static struct crowd crowd;
    for (int seed = 0; seed < 300; seed++) {
        struct chance chance = chance_make(2000 + (uint64_t)seed);
        crowd_open(&crowd, MOST_INSTANCES, EAGER);
        flap(&crowd, &chance, 1 + seed % 100, true);
        crowd_close(&crowd);
    }
    ck_assert_int_gt(worst_us, 10 * WEIR_SECOND);
    ck_assert_int_gt(stood_in, 3000);
}

TEST(partial_outages_do_not_add_up, 30)
{
    static struct crowd crowd;
    crowd_open(&crowd, MOST_INSTANCES, EAGER);
    int64_t highest_us = 0, lent = 0;
    for (int flap = 0; flap < 100; flap++) {
        for (int step = 0; step < 40; step++) { /* 20 s, half of it with the first instance cut off */
            if (step % 20 == 0)
                crowd_set(&crowd, 0, step == 0 ? CABLE_CUT : CABLE_WELL);
            for (int i = 0; i < crowd.count; i++) {
                const struct weir_decision decision = taken(crowd.instances[i].limit, "a", 1);
                const int64_t level_us = meter_add(&crowd.meters[0], decision.allowed);
                lent += decision.allowed && decision.source == WEIR_BY_FALLBACK;
                highest_us = level_us > highest_us ? level_us : highest_us;
            }
            now_us += WEIR_SECOND / 2;
        }
    }
    ck_assert_int_ge(lent, 150);
    ck_assert_int_le(highest_us, (10 + 3) * WEIR_SECOND); /* a quarter of the rate for one outage, in whole permits */
    crowd_close(&crowd);
}

/* ---- Threads ---- */

enum { THREADS = 4, ROUNDS = 4000, THREAD_KEYS = 3 };

static _Atomic int64_t shared_now_us;

static int64_t shared_clock(void *user)
{
    (void)user;
    return atomic_load(&shared_now_us);
}

struct mob {
    struct stage stage;
    _Atomic int64_t stood_in, by_store;
    atomic_bool is_over;
};

static void *try_many(void *argument)
{
    static const char *const keys[THREAD_KEYS] = { "a", "b", "c" };
    struct mob *mob = argument;
    for (int i = 0; i < ROUNDS; i++) {
        struct weir_decision decision;
        must_succeed(weir_try(mob->stage.instance.limit, weir_key_text(keys[i % THREAD_KEYS]), 1, &decision));
        if (decision.allowed)
            atomic_fetch_add(decision.source == WEIR_BY_FALLBACK ? &mob->stood_in : &mob->by_store, 1);
    }
    return NULL;
}

static void *answer_all(void *argument)
{
    struct mob *mob = argument;
    while (!atomic_load(&mob->is_over))
        if (cable_answer(&mob->stage.instance.cable, 5) == 0)
            usleep(100);
    return NULL;
}

/* Weir keeps SETTLE_RECORDS outages and gives up the oldest of more. Until the next cut is well again, threads that are
 * held up between a failure and what follows from it can add 14: 6 outages while it is cut, 4 while it is well, and 4
 * that they were in before. Wait, however slowly the threads run, until there is room for them. */
static void await_room_for_outages(struct mob *mob)
{
    struct settle *settle = &mob->stage.instance.limiter->settle;
    while (atomic_load(&settle->count) > SETTLE_RECORDS - 14) {
        atomic_store(&settle->chain.again_us, 0); /* the pause is over */
        taken(mob->stage.instance.limit, "d", 1);
        usleep(100);
    }
}

TEST(threads_that_ask_while_the_cable_flaps_leave_nothing_owed, 120)
{
    static struct mob mob;
    pthread_t threads[THREADS], answerer;
    struct weir_options options = WEIR_OPTIONS_INIT;
    memset(&mob, 0, sizeof mob);
    atomic_store(&shared_now_us, INT64_C(1) << 40);
    remote_init(&mob.stage.remote);
    cable_init(&mob.stage.instance.cable, &mob.stage.remote);
    atomic_store(&mob.stage.instance.cable.later, true);
    options.now_us = shared_clock;
    options.timeout_us = 10 * WEIR_SECOND;
    must_succeed(weir_open_backend(&options, &mob.stage.instance.cable.base, &mob.stage.instance.limiter));
    const struct weir_policy policy = policy_of("token_bucket limit=1000000 period=1s burst=1000");
    must_succeed(weir_limit_define(mob.stage.instance.limiter, "limit", &policy, &mob.stage.instance.limit));
    ck_assert_int_eq(pthread_create(&answerer, NULL, answer_all, &mob), 0);
    for (int i = 0; i < THREADS; i++)
        ck_assert_int_eq(pthread_create(&threads[i], NULL, try_many, &mob), 0);
    for (int i = 0; i < 300; i++) {
        if (i % 2 == 0)
            await_room_for_outages(&mob);
        cable_set(&mob.stage.instance.cable, i % 2 ? CABLE_WELL : CABLE_CUT);
        atomic_fetch_add(&shared_now_us, 100);
        usleep(200);
    }
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    cable_set(&mob.stage.instance.cable, CABLE_WELL);
    for (int i = 0; i < 5000 && atomic_load(&mob.stage.instance.limiter->settle.owes); i++) {
        taken(mob.stage.instance.limit, "d", 1);
        usleep(1000);
    }
    ck_assert(!atomic_load(&mob.stage.instance.limiter->settle.owes));
    atomic_store(&mob.is_over, true);
    pthread_join(answerer, NULL);
    const struct weir_stats stats = stats_of(mob.stage.instance.limiter);
    ck_assert_int_eq(stats.keys, 0);
    ck_assert_uint_le(stats.settled, (uint64_t)atomic_load(&mob.stood_in));
    ck_assert_uint_eq(stats.unsettled, 0);
    weir_close(mob.stage.instance.limiter);
    remote_free(&mob.stage.remote);
}

/* ---- The grace of WEIR_FAIL_OPEN ---- */

TEST(all_is_allowed_for_so_long_over_all_outages_and_denied_afterwards, 30)
{
    struct weir_options options = WEIR_OPTIONS_INIT;
    options.on_failure = WEIR_FAIL_OPEN;
    options.open_for_us = WEIR_SECOND;
    struct stage *stage = stage_open(EAGER, &options, ten);
    cable_set(&stage->instance.cable, CABLE_CUT);
    for (int i = 0; i < 20; i++) {
        struct weir_decision decision = try_in(stage, "a", 1);
        ck_assert_int_eq(decision.allowed, i < 10);
        ck_assert_int_eq(decision.source, i < 10 ? WEIR_BY_FAIL_OPEN : WEIR_BY_FAIL_CLOSED);
        ck_assert_int_eq(decision.retry_after_us, i < 10 ? 0 : WEIR_SECOND);
        ck_assert_int_eq(decision.age_us, i * 100000);
        now_us += 100000;
    }
    cable_set(&stage->instance.cable, CABLE_WELL);
    ck_assert_int_eq(try_in(stage, "a", 1).source, WEIR_BY_BACKEND);
    now_us += 320000;
    cable_set(&stage->instance.cable, CABLE_CUT);
    for (int i = 0; i < 10; i++) {
        ck_assert_int_eq(try_in(stage, "a", 1).allowed, i < 4);
        now_us += 100000;
    }
    stage_close(stage);
}

TEST(no_flapping_opens_for_longer_than_the_grace_and_the_time_without_an_outage, 120)
{
    struct weir_options options = WEIR_OPTIONS_INIT;
    options.on_failure = WEIR_FAIL_OPEN;
    options.open_for_us = WEIR_SECOND;
    struct stage *stage = stage_open(EAGER, &options, "token_bucket limit=1000000 period=1s");
    struct chance chance = chance_make(5);
    int64_t open_us = 0, well_us = 0, denied = 0;
    for (int flap = 0; flap < 3000; flap++) {
        const int64_t lasts = chance_between(&chance, 1, 30), rests = chance_between(&chance, 1, 20);
        cable_set(&stage->instance.cable, CABLE_CUT);
        for (int64_t i = 0; i < lasts; i++) { /* each stands for the 10 ms that come */
            const bool allowed = try_in(stage, "a", 1).allowed;
            open_us += allowed ? 10000 : 0;
            denied += !allowed;
            now_us += 10000;
        }
        cable_set(&stage->instance.cable, CABLE_WELL);
        must(try_in(stage, "a", 1).source == WEIR_BY_BACKEND, "it is over");
        now_us += rests * 10000;
        well_us += rests * 10000;
        must(open_us <= WEIR_SECOND + well_us + 10000 * (flap + 1), "never re-armed");
    }
    ck_assert_int_gt(denied, 1000);
    ck_assert_int_gt(open_us, well_us / 2);
    stage_close(stage);
}
