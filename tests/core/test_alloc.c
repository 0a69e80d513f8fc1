/* test_alloc.c - make every allocation fail once; the call in which it fails must lose, leak and charge nothing.
 *
 * The scenarios together cover all code that allocates. There are several, because a scenario takes time that is
 * quadratic in its allocations. Its first run gets all its memory and records its decisions. Further runs make the
 * first, the second, the third allocation fail, up to the last. A run repeats each call that returns WEIR_ENOMEM; then
 * all decisions must equal the recorded ones.
 */
#include "failing_alloc.h"
#include "fake.h"
#include "set_share.h"
#include "stage.h"
#include "support.h"

#include "core/follow/layers.h"
#include "core/limiter/limiter.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* ---- What was decided ---- */

enum { RECORD_MOST = 8192 };

struct record {
    struct weir_decision decisions[RECORD_MOST];
    size_t count;
};

struct run {
    struct scene scene;
    const struct record *expected; /* NULL: this run records */
    struct record *written;
    size_t at;
    int64_t number;   /* the allocation that fails */
    int64_t to_open;  /* the allocations of a run that opens the limiter without a failure */
    int refused;      /* calls that returned WEIR_ENOMEM */
    int done_without; /* calls that succeeded despite a failed allocation */
    char path[64], second_path[64];
};

static void note(struct run *run, const struct weir_decision *decision)
{
    alloc_pause();
    if (!run->expected) {
        ck_assert_uint_lt(run->written->count, RECORD_MOST);
        run->written->decisions[run->written->count++] = *decision;
    } else {
        char where[64];
        snprintf(where, sizeof where, "decision %zu, allocation %lld failing", run->at, (long long)run->number);
        ck_assert_uint_lt(run->at, run->expected->count);
        assert_decision_is(decision, &run->expected->decisions[run->at++], where);
    }
    alloc_resume();
}

/* True if the call must be repeated. `may_do_without`: it may succeed despite a failed allocation. */
static bool refused(struct run *run, int error, bool may_do_without)
{
    bool failed = alloc_failed();
    if (error == WEIR_OK) {
        must(!failed || may_do_without, "a call that had no memory succeeded");
        run->done_without += failed;
        return false;
    }
    if (error != WEIR_ENOMEM || !failed)
        ck_abort_msg("allocation %lld failing: %s", (long long)run->number, weir_strerror(error));
    run->refused++;
    return true;
}

/* ---- The scenario ---- */

enum {
    GROWING_KEYS = 1000,
    LONG_KEYS = 6,
    CHANGING_KEYS = 12,
    BATCH = 100,
    LIMITS = 120,
    FILE_LIMITS = 40,
    OVERRIDES = 20
};

static const char *const policies[] = {
    "token_bucket limit=50 period=1h",
    "sliding_window limit=40 period=1h blocks=60",
    "fixed_window limit=60 period=1h",
    "token_bucket limit=50 period=1h refill=interval debt=3",
    "sliding_window limit=45 period=2h blocks=500",
    "leaky_bucket limit=30 period=1h capacity=44",
};
enum { POLICIES = sizeof policies / sizeof policies[0] };

static void write_policies(char *path, size_t size, const char *prefix, int count)
{
    snprintf(path, size, "/tmp/weir-test-XXXXXX");
    int descriptor = mkstemp(path);
    ck_assert_int_ge(descriptor, 0);
    FILE *file = fdopen(descriptor, "w");
    ck_assert_ptr_nonnull(file);
    for (int i = 0; i < count; i++)
        fprintf(file, "%s-%d/key-* = %s\n%s-%d = %s # a comment\n", prefix, i, policies[(i + 1) % POLICIES], prefix, i,
                policies[i % POLICIES]);
    ck_assert_int_eq(fclose(file), 0);
}

static void open_limiter(struct run *run)
{
    struct weir_options options = WEIR_OPTIONS_INIT;
    options.policy_file = run->path;
    options.max_keys = 10000; /* few shards, which grow the more often */
    options.keep_idle = true; /* chance decides a key's shard, and so when it is swept */
    scene_init(&run->scene, &options);
    run->scene.log_allowed = true;
    int error;
    do {
        run->scene.limiter = NULL;
        run->scene.log_lines = 0;
        error = weir_open(&options, &run->scene.limiter);
        must(!error || run->scene.log_lines == 0 || strstr(run->scene.last_line, "out of memory"),
             "what the log says is what was missing");
        must(error == WEIR_OK || !run->scene.limiter, "what would have been written is untouched on an error");
        if (error)
            must(alloc_live_blocks() == 0 && alloc_live_mapped_bytes() == 0,
                 "an open that fails leaves nothing behind");
    } while (refused(run, error, false));
    for (int i = 0; i < FILE_LIMITS; i++) {
        char name[32];
        snprintf(name, sizeof name, "opened-%d", i);
        must(weir_limit_find(run->scene.limiter, name) != NULL, "every line of the file is a limit");
    }
}

static weir_limit *define(struct run *run, const char *name, const char *text)
{
    const struct weir_policy policy = policy_of(text);
    weir_limit *before = weir_limit_find(run->scene.limiter, name), *limit = before;
    int error;
    do {
        error = weir_limit_define(run->scene.limiter, name, &policy, &limit);
        if (error)
            must(limit == before && weir_limit_find(run->scene.limiter, name) == before,
                 "a name that could not be defined is as it was");
    } while (refused(run, error, false));
    must(weir_limit_find(run->scene.limiter, name) == limit, "a limit is found");
    return limit;
}

static void define_many(struct run *run)
{
    for (int i = 0; i < LIMITS; i++) {
        char name[32];
        struct weir_decision decision;
        snprintf(name, sizeof name, "limit-%d", i);
        weir_limit *limit = define(run, name, policies[i % POLICIES]);
        must(limit->id == (uint32_t)(FILE_LIMITS + i), "ids stay dense");
        must_succeed(weir_peek(limit, weir_key_text("key"), 1, &decision));
        note(run, &decision);
    }
}

/* A table may fail to grow: its chains get longer. */
static void take(struct run *run, weir_limit *limit, struct weir_key key, int64_t cost, bool may_grow)
{
    struct weir_decision decision = { .limit = 4711 };
    while (refused(run, weir_try(limit, key, cost, &decision), may_grow))
        must(decision.limit == 4711, "a decision that was not made is not written");
    note(run, &decision);
}

static void peek(struct run *run, weir_limit *limit, struct weir_key key)
{
    struct weir_decision decision;
    must_succeed(weir_peek(limit, key, 1, &decision)); /* asks for no memory */
    note(run, &decision);
}

static void grow(struct run *run)
{
    weir_limit *limit = define(run, "growing", "token_bucket limit=100 period=1h");
    for (int i = 0; i < GROWING_KEYS; i++)
        take(run, limit, weir_key(&i, sizeof i), 1 + i % 7, true);
    for (int i = 0; i < GROWING_KEYS; i++)
        peek(run, limit, weir_key(&i, sizeof i));
    static const char long_key[WEIR_MAX_KEY_LEN];
    for (size_t i = 0; i < LONG_KEYS; i++)
        take(run, limit, weir_key(long_key, sizeof long_key >> i), 1 + (int64_t)i, true);
}

/* Redefine one limit with each algorithm in turn; its keys keep the permits they have used. */
static void change(struct run *run)
{
    weir_limit *limit = define(run, "changing", policies[0]);
    for (int p = 0; p < 2 * POLICIES; p++) {
        define(run, "changing", policies[(p * 5 + 1) % POLICIES]);
        for (int i = 0; i < CHANGING_KEYS; i++) {
            peek(run, limit, weir_key(&i, sizeof i));
            if (i == p)
                must_succeed(weir_reset(limit, weir_key(&i, sizeof i)));
            take(run, limit, weir_key(&i, sizeof i), 1 + i % 3, true);
        }
        run->scene.now_us += WEIR_MINUTE;
    }
}

static void refund_under_another_policy(struct run *run)
{
    weir_limit *limit = weir_limit_find(run->scene.limiter, "changing");
    define(run, "changing", policies[4]);
    for (int i = 0; i < CHANGING_KEYS; i++) {
        while (refused(run, weir_refund(limit, weir_key(&i, sizeof i), 1), false))
            continue;
        peek(run, limit, weir_key(&i, sizeof i));
    }
}

/* Permits that a smaller policy cannot hold stay beside its state, through several changes, until they expire. */
static void lower_and_raise(struct run *run)
{
    static const char *const sizes[] = {
        "sliding_window limit=100 period=1h blocks=60",
        "token_bucket limit=10 period=1h",
        "sliding_window limit=60 period=1h blocks=500",
        "fixed_window limit=5 period=1h",
        "leaky_bucket limit=100 period=1h",
    };
    enum { SIZES = sizeof sizes / sizeof sizes[0], FLIPPING_KEYS = 6 };
    weir_limit *limit = define(run, "flipping", sizes[0]);
    for (int i = 0; i < FLIPPING_KEYS; i++)
        take(run, limit, weir_key(&i, sizeof i), 50 + 10 * i, true);
    for (int p = 1; p < 3 * SIZES + 2; p++) {
        define(run, "flipping", sizes[p % SIZES]);
        for (int i = 0; i < FLIPPING_KEYS; i++) {
            peek(run, limit, weir_key(&i, sizeof i));
            take(run, limit, weir_key(&i, sizeof i), 1 + i % 2, true);
        }
        run->scene.now_us += WEIR_MINUTE;
    }
    run->scene.now_us += 2 * WEIR_HOUR;
    for (int turn = 0; turn < 3; turn++)
        for (int i = 0; i < FLIPPING_KEYS; i++)
            take(run, limit, weir_key(&i, sizeof i), 1, true);
}

/* Existing and new keys, of limits that the table has not seen. */
static void take_all(struct run *run)
{
    weir_limit *known = define(run, "changing", policies[1]);
    for (int round = 0; round < 20; round++) {
        char name[32];
        struct weir_decision decision = { .limit = 4711 };
        snprintf(name, sizeof name, "limit-%d", round);
        weir_limit *one = weir_limit_find(run->scene.limiter, name);
        snprintf(name, sizeof name, "limit-%d", LIMITS - 1 - round);
        weir_limit *other = weir_limit_find(run->scene.limiter, name);
        const int there = round % CHANGING_KEYS;
        const struct weir_request requests[] = {
            { one, weir_key(&round, sizeof round), 3, 0 },
            { known, weir_key(&there, sizeof there), 1, 0 },
            { other, weir_key(&round, sizeof round), 2, 0 },
            { one, weir_key_text("another"), 1, 0 },
        };
        while (refused(run, weir_try_all(run->scene.limiter, requests, 4, &decision), true)) {
            struct weir_decision fresh;
            must_succeed(weir_peek(one, requests[0].key, 1, &fresh));
            must(fresh.remaining == fresh.limit, "all or nothing");
            must(decision.limit == 4711, "a decision that was not made is not written");
        }
        note(run, &decision);
        for (int i = 0; i < 4; i++)
            peek(run, requests[i].limit, requests[i].key);
    }
}

/* A failing batch may have charged its first requests, up to some point, and none after it. */
static void take_batch(struct run *run)
{
    weir_limit *limit = define(run, "batch", "token_bucket limit=10 period=1h");
    struct weir_request requests[BATCH];
    struct weir_decision decisions[BATCH], now;
    int keys[BATCH];
    for (int i = 0; i < BATCH; i++) {
        keys[i] = i;
        requests[i] = (struct weir_request){ limit, weir_key(&keys[i], sizeof keys[i]), 1 + i % 5, 0 };
    }
    size_t charged = 0;
    while (refused(run, weir_try_batch(run->scene.limiter, requests + charged, BATCH - charged, decisions), true)) {
        for (; charged < BATCH; charged++) {
            must_succeed(weir_peek(limit, requests[charged].key, 1, &now));
            if (now.remaining == 10)
                break;
        }
        for (size_t i = charged; i < BATCH; i++) {
            must_succeed(weir_peek(limit, requests[i].key, 1, &now));
            must(now.remaining == 10, "a request after the failing one was charged");
        }
    }
    for (int i = 0; i < BATCH; i++)
        peek(run, limit, requests[i].key);

    struct weir_op op = { .request = { limit, weir_key_text("submitted"), 4, 0 } };
    while (refused(run, weir_submit(run->scene.limiter, &op), true))
        continue;
    note(run, &op.decision);
}

static void take_by_handle(struct run *run)
{
    weir_limit *limit = define(run, "by-handle", "token_bucket limit=10 period=1h");
    for (int i = 0; i < 20; i++) {
        weir_handle *handle = NULL;
        struct weir_decision decision = { .limit = 4711 };
        while (refused(run, weir_key_resolve(limit, weir_key(&i, sizeof i), &handle), false))
            must(!handle, "a handle that could not be made is not written");
        for (int turn = 0; turn < 3; turn++) {
            while (refused(run, weir_handle_try(handle, 2, 0, &decision), true))
                must(decision.limit == 4711, "a decision that was not made is not written");
            note(run, &decision);
        }
        weir_handle_free(handle);
    }
}

static void load_file(struct run *run)
{
    char message[256] = "";
    int error;
    do {
        error = weir_limits_load(run->scene.limiter, run->second_path, message, sizeof message);
        for (int i = 0; i < FILE_LIMITS; i++) {
            char name[32];
            snprintf(name, sizeof name, "loaded-%d", i);
            must((weir_limit_find(run->scene.limiter, name) != NULL) == (error == WEIR_OK),
                 "all limits of a file are defined, or none");
        }
        if (error)
            must(strstr(message, run->second_path) && strstr(message, "out of memory"), message);
    } while (refused(run, error, false));
    must(weir_limit_find(run->scene.limiter, "loaded-0")->id + FILE_LIMITS - 1 ==
             weir_limit_find(run->scene.limiter, "loaded-39")->id,
         "ids stay dense");
}

/* Define and end overrides of keys and prefixes, more than a limit's first table holds, and a layer of them. */
static void override_some(struct run *run)
{
    weir_limit *limit = define(run, "overridden", policies[0]);
    struct policy_entry entries[OVERRIDES];
    static char patterns[OVERRIDES][16];
    for (int i = 0; i < OVERRIDES; i++) {
        char name[32];
        const struct weir_policy policy = policy_of(policies[i % POLICIES]);
        snprintf(patterns[i], sizeof patterns[i], i % 2 ? "key-%d" : "key-%d*", i);
        snprintf(name, sizeof name, "overridden/%.15s", patterns[i]);
        entries[i] = (struct policy_entry){
            .name = i % 3 ? "overridden" : "waits", .pattern = patterns[i], .policy = policy, .where = "here"
        };
        struct weir_decision before, after;
        must_succeed(weir_peek(limit, weir_key_text(patterns[i]), 1, &before));
        while (refused(run, weir_limit_define(run->scene.limiter, name, &policy, NULL), false)) {
            must_succeed(weir_peek(limit, weir_key_text(patterns[i]), 1, &after));
            assert_decision_is(&after, &before, "an override that could not be defined is not there");
        }
        take(run, limit, weir_key_text(patterns[i]), 2, true);
    }
    for (int i = 0; i < OVERRIDES; i += 2) {
        char name[32];
        snprintf(name, sizeof name, "overridden/%.15s", patterns[i]);
        must_succeed(weir_limit_define(run->scene.limiter, name, NULL, NULL)); /* asks for no memory */
        take(run, limit, weir_key_text(patterns[i]), 1, true);
    }
    struct layers_result result;
    int error;
    do {
        error = layers_apply(run->scene.limiter, WEIR_FOLLOW_POLICY_FILE, entries, OVERRIDES, &result);
        must((result.refused > 0) == (error == WEIR_ENOMEM), "what found no memory is refused, and no more");
    } while (refused(run, error, false));
    define(run, "waits", policies[1]);
    for (int i = 0; i < OVERRIDES; i++) {
        peek(run, limit, weir_key_text(patterns[i]));
        peek(run, weir_limit_find(run->scene.limiter, "waits"), weir_key_text(patterns[i]));
    }
    must_succeed(layers_apply(run->scene.limiter, WEIR_FOLLOW_POLICY_FILE, NULL, 0, &result));
    must(result.changes == OVERRIDES, "all of them end, without any memory");
}

static void share_out(struct run *run)
{
    const int64_t weights[] = { 3, 2, 5 };
    const struct share share = { .weight = 2, .total = 10, .rank = 1, .count = 3, .weights = weights };
    while (refused(run, limiter_set_share(run->scene.limiter, &share), false)) {
        must(stats_of(run->scene.limiter).share_total == 1, "the share that could not be put into force is not");
        must(strstr(run->scene.last_line, "the new share is not in force: ") == run->scene.last_line, "which is told");
        run->scene.last_line[0] = '\0';
    }
    must(stats_of(run->scene.limiter).share_weight == 2 && stats_of(run->scene.limiter).share_total == 10,
         "the share is in force");
    weir_limit *limit = weir_limit_find(run->scene.limiter, "changing");
    for (int i = 0; i < CHANGING_KEYS + 2; i++) {
        take(run, limit, weir_key(&i, sizeof i), 1, true);
        peek(run, limit, weir_key(&i, sizeof i));
    }
}

/* Record the counters in the form of a decision. Bytes may differ: a table may have failed to grow. */
static void count_up(struct run *run)
{
    struct weir_stats stats = stats_of(run->scene.limiter);
    must((int64_t)stats.errors <= run->refused * BATCH, "errors are decisions that ended in one");
    const struct weir_decision counters = {
        .limit = (int64_t)stats.allowed,
        .remaining = (int64_t)stats.denied,
        .delay_us = stats.keys,
        .retry_after_us = (int64_t)stats.evictions,
        .reset_after_us = (int64_t)stats.full,
        .bound_by = (uint32_t)stats.share_lifts,
    };
    if (run->refused == 0) /* a batch in two parts counts its charged requests as errors if it fails later */
        note(run, &counters);
    else
        run->at++;
    const struct weir_decision held = { .delay_us = stats.keys, .retry_after_us = (int64_t)stats.evictions };
    note(run, &held);
}

enum { STEPS_MOST = 3 };
typedef void step(struct run *);
static step *const scenarios[][STEPS_MOST] = {
    { define_many, take_all },
    { grow },
    { change, refund_under_another_policy },
    { lower_and_raise },
    { take_batch, take_by_handle },
    { load_file, override_some },
    { define_many, change, share_out },
};
enum { SCENARIOS = sizeof scenarios / sizeof scenarios[0] };

static void play(step *const *steps, struct run *run, int64_t fail_at, bool stubborn)
{
    run->number = fail_at;
    run->at = 0;
    run->refused = run->done_without = 0;
    alloc_watch(fail_at, stubborn);
    open_limiter(run);
    if (!run->expected)
        run->to_open = alloc_count();
    for (int i = 0; i < STEPS_MOST && steps[i]; i++)
        steps[i](run);
    count_up(run);
    scene_close(&run->scene);
    must(!alloc_failed(), "the end asks for no memory");
    if (alloc_live_blocks() != 0 || alloc_live_mapped_bytes() != 0)
        ck_abort_msg("allocation %lld failing: %lld blocks and %lld mapped bytes are leaked", (long long)fail_at,
                     (long long)alloc_live_blocks(), (long long)alloc_live_mapped_bytes());
    alloc_pause();
}

/* Instrumented code fails the odd ones, and if `stubborn` the even ones. */
static void fail_each(bool stubborn)
{
    enum { STEP = INSTRUMENTED ? 2 : 1 };
    static struct record record;
    struct run run = { .written = &record };
    int refused_in_all = 0, done_without_in_all = 0, missed = 0;
    write_policies(run.path, sizeof run.path, "opened", FILE_LIMITS);
    write_policies(run.second_path, sizeof run.second_path, "loaded", FILE_LIMITS);
    for (int s = 0; s < SCENARIOS; s++) {
        run.expected = NULL;
        record.count = 0;
        play(scenarios[s], &run, 0, stubborn);
        const int64_t allocations = alloc_count();
        run.expected = &record;
        const int64_t before = s > 0 ? run.to_open : 0; /* every scenario opens in the same way */
        for (int64_t n = before + 1 + stubborn % STEP; n <= allocations; n += STEP) {
            play(scenarios[s], &run, n, stubborn);
            ck_assert_uint_eq(run.at, record.count);
            ck_assert_int_le(run.refused + run.done_without, 1);
            missed += run.refused + run.done_without == 0;
            refused_in_all += run.refused;
            done_without_in_all += run.done_without;
        }
    }
    /* The hash secret differs in each run, and so does the growth of shards: a run may have fewer allocations. */
    ck_assert_int_le(missed, 100);
    ck_assert_int_gt(refused_in_all, 300 / STEP);
    ck_assert_int_gt(done_without_in_all, 20 / STEP);
    unlink(run.path);
    unlink(run.second_path);
}

TEST(a_failed_allocation_yields_an_error_and_changes_nothing, 60)
{
    fail_each(false);
}

TEST(a_call_survives_when_all_later_allocations_fail, 60)
{
    fail_each(true);
}

/* Run with the n-th allocation failing. False if there was no n-th one. */
static bool fall_back_without(int64_t number)
{
    static struct fake fake;
    struct run run = { .number = number };
    struct weir_options options = WEIR_OPTIONS_INIT;
    bool failed = false;
    int error;
    fake_init(&fake);
    scene_init(&run.scene, &options);
    run.scene.log_allowed = true;
    atomic_store(&fake.answer, WEIR_EIO);
    alloc_watch(number, false);
    while ((error = weir_open_backend(&options, &fake.base, &run.scene.limiter)) == WEIR_ENOMEM) {
        must(!run.scene.limiter && alloc_live_blocks() == 0 && alloc_live_mapped_bytes() == 0,
             "an open that fails leaves nothing behind");
        must(alloc_failed() && !failed, "one allocation fails");
        failed = true;
    }
    must_succeed(error);
    weir_limit *limit = define(&run, "limit", "sliding_window limit=10 period=10s");
    for (int i = 0; i < 2; i++) {
        struct weir_decision decision = { .limit = 4711 };
        while ((error = weir_try(limit, weir_key_text("a"), 1, &decision)) == WEIR_ENOMEM) {
            must(decision.limit == 4711, "what would have been written is untouched on an error");
            must(alloc_failed() && !failed, "one allocation fails");
            failed = true;
        }
        must_succeed(error);
        must(decision.allowed == (i > 0) && decision.source == WEIR_BY_FALLBACK, "decided as ever");
        run.scene.now_us += WEIR_MINUTE;
    }
    scene_close(&run.scene);
    must(alloc_live_blocks() == 0 && alloc_live_mapped_bytes() == 0, "nothing is leaked");
    alloc_pause();
    return failed || run.refused + run.done_without > 0;
}

TEST(a_failed_allocation_in_the_fallback_yields_an_answer_and_changes_nothing, 60)
{
    int64_t number = 1;
    while (fall_back_without(number))
        number++;
    ck_assert_int_gt(number, 20);
}

/* ---- Hybrid mode ---- */

/* Lease while the key is requested every millisecond. */
static int64_t leased_by(struct stage *stage, int requests)
{
    const uint64_t before = stats_of(stage->limiter).leased;
    for (int i = 0; i < requests; i++) {
        struct asked asked;
        stage_ask(stage, &asked, "a", 1, 0);
        must(asked.done && asked.status == WEIR_OK && asked.op.decision.allowed, "admitted");
        stage_pass(stage, 1000);
    }
    return (int64_t)(stats_of(stage->limiter).leased - before);
}

TEST(a_submitted_lease_call_survives_lack_of_memory_and_leasing_resumes, 60)
{
    static struct stage stage;
    for (int stubborn = 0; stubborn < 2; stubborn++) { /* with none for another flight without a lease, too */
        struct asked asked;
        stage_open(&stage, STAGE_WIDE);
        stage_warm_up(&stage, "a", 1000);
        alloc_watch(1, stubborn);
        const int result = stage_submit(&stage, &asked, "a", 1);
        alloc_pause();
        ck_assert(alloc_failed());
        ck_assert_int_eq(result, stubborn ? WEIR_ENOMEM : 1);
        stage_answer(&stage, 0);
        ck_assert_int_eq(asked.done, stubborn ? 0 : 1);
        ck_assert_int_gt(leased_by(&stage, 300), 100);
        stage_close(&stage);
    }
}

TEST(a_thread_without_memory_for_a_lease_call_asks_redis_directly, 60)
{
    STAGE(stage, STAGE_WIDE);
    stage_warm_up(&stage, "a", 1000);
    alloc_watch(1, true);
    const struct weir_decision decision = taken(stage.limit, "a", 1);
    alloc_pause();
    ck_assert(alloc_failed() && decision.allowed && decision.source == WEIR_BY_REDIS);
    ck_assert_int_eq(stage.remote.decided, 1);
    ck_assert_int_gt(leased_by(&stage, 300), 100);
}

TEST(without_memory_to_lease_in_advance_the_request_itself_asks_redis, 60)
{
    struct weir_decision decision;
    STAGE(stage, STAGE_WIDE);
    leased_by(&stage, 300);
    alloc_watch(1, true);
    do
        decision = taken(stage.limit, "a", 1);
    while (decision.source == WEIR_BY_LEASE);
    alloc_pause();
    ck_assert(alloc_failed() && decision.allowed && decision.source == WEIR_BY_REDIS);
    ck_assert_int_gt(leased_by(&stage, 300), 100);
}

TEST(an_error_without_a_log_line_replaces_the_last_message, 30)
{
    struct weir_options options = WEIR_OPTIONS_INIT;
    weir *limiter;
    options.quiet = true;
    options.max_keys = -1;
    ck_assert_int_eq(weir_open(&options, &limiter), WEIR_EINVAL);
    options.max_keys = 10;
    alloc_watch(1, false);
    const int error = weir_open(&options, &limiter);
    alloc_pause();
    ck_assert_int_eq(error, WEIR_ENOMEM);
    ck_assert_str_eq(weir_last_message(), weir_strerror(WEIR_ENOMEM));
}
