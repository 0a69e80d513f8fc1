/* support.c - what the tests share: see support.h. */
#include "support.h"

#include "core/ground/hook_queue.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

/* ---- Suites ---- */

static uint64_t seed(void)
{
    const char *text = getenv("WEIR_TEST_SEED");
    return text != NULL && *text != '\0' ? strtoull(text, NULL, 0) : 20261120;
}

int64_t steps_or(int64_t default_steps)
{
    const char *text = getenv("WEIR_TEST_STEPS");
    return text != NULL && *text != '\0' ? strtoll(text, NULL, 0) : INSTRUMENTED ? default_steps / 4 : default_steps;
}

int64_t full_or(int64_t full, int64_t brief)
{
    const char *text = getenv("WEIR_TEST_FULL");
    return text != NULL && *text != '\0' ? full : brief;
}

Suite *tests(void)
{
    static Suite *suite;
    if (suite == NULL)
        suite = suite_create(program_invocation_short_name);
    return suite;
}

void test_add(const char *name, const TTest *test, int n, double timeout_seconds)
{
    TCase *alone = tcase_create(name);
    tcase_set_timeout(alone, timeout_seconds);
    tcase_add_loop_test(alone, test, 0, n);
    suite_add_tcase(tests(), alone);
}

/* Print the named cases (one a line) that the suite does not have; return their number. */
static int cases_missing(Suite *suite, const char *named)
{
    int missing = 0;
    while (*named != '\0') {
        const size_t len = strcspn(named, "\n");
        char name[256];
        snprintf(name, sizeof name, "%.*s", (int)len, named);
        if (!suite_tcase(suite, name)) {
            printf("no case \"%s\"\n", name);
            missing++;
        }
        named += len + (named[len] == '\n');
    }
    return missing;
}

int suite_run(Suite *suite)
{
    SRunner *runner = srunner_create(suite);
    const char *named = getenv("WEIR_TEST_HAS");
    if (named != NULL) {
        const int missing = cases_missing(suite, named);
        srunner_free(runner);
        return missing > 0 ? EXIT_FAILURE : EXIT_SUCCESS;
    }
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    if (failed > 0)
        printf("the seed was WEIR_TEST_SEED=%" PRIu64 "\n", seed());
    return failed > 0 ? EXIT_FAILURE : EXIT_SUCCESS;
}

/* ---- Chance: SplitMix64 (Steele, Lea, Flood, "Fast splittable pseudorandom number generators", 2014) ---- */

uint64_t chance_next(struct chance *chance)
{
    uint64_t mixed = chance->state += UINT64_C(0x9e3779b97f4a7c15);
    mixed = (mixed ^ (mixed >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    mixed = (mixed ^ (mixed >> 27)) * UINT64_C(0x94d049bb133111eb);
    return mixed ^ (mixed >> 31);
}

struct chance chance_make(uint64_t stream)
{
    struct chance chance = { .state = seed() };
    chance.state = chance_next(&chance) ^ (stream * UINT64_C(0xda942042e4dd58b5));
    chance.state = chance_next(&chance);
    return chance;
}

int64_t chance_between(struct chance *chance, int64_t least, int64_t most)
{
    uint64_t span = (uint64_t)most - (uint64_t)least + 1;
    return (int64_t)((uint64_t)least + (span == 0 ? chance_next(chance) : chance_next(chance) % span));
}

bool chance_one_in(struct chance *chance, int64_t n)
{
    return chance_between(chance, 1, n) == 1;
}

int64_t chance_magnitude(struct chance *chance, int64_t most)
{
    int bits = 0;
    while (most >> bits > 1)
        bits++;
    int64_t value = INT64_C(1) << chance_between(chance, 0, bits);
    value += chance_between(chance, 0, value - 1);
    return value < most ? value : most;
}

int64_t chance_pick(struct chance *chance, const int64_t *values, size_t count)
{
    return values[chance_between(chance, 0, (int64_t)count - 1)];
}

/* ---- A limiter whose clock the test sets ---- */

static int64_t scene_clock(void *user)
{
    return ((struct scene *)user)->now_us;
}

static void scene_log(void *user, enum weir_log_level level, const char *line)
{
    static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER; /* lines come from this thread and from the log's */
    struct scene *scene = user;
    pthread_mutex_lock(&mutex);
    scene->log_lines++;
    snprintf(scene->last_line, sizeof scene->last_line, "%s", line);
    pthread_mutex_unlock(&mutex);
    if (!scene->log_allowed)
        ck_abort_msg("unexpected log line, level %d: %s", (int)level, line);
}

const struct scene *scene_heard(struct scene *scene)
{
    hook_queue_settle(&(struct log){ scene_log, scene });
    return scene;
}

void scene_init(struct scene *scene, struct weir_options *options)
{
    *scene = (struct scene){ .now_us = INT64_C(1790000000123456) };
    options->now_us = scene_clock;
    options->log = scene_log;
    options->user = scene;
}

void scene_open(struct scene *scene, const struct weir_options *options)
{
    struct weir_options own = WEIR_OPTIONS_INIT;
    if (options != NULL)
        own = *options;
    scene_init(scene, &own);
    must_succeed(weir_open(&own, &scene->limiter));
}

void scene_close(struct scene *scene)
{
    weir_close(scene->limiter);
    scene->limiter = NULL;
}

weir_limit *scene_define(struct scene *scene, const char *name, const struct weir_policy *policy)
{
    weir_limit *limit = NULL;
    must_succeed(weir_limit_define(scene->limiter, name, policy, &limit));
    return limit;
}

weir_limit *scene_define_text(struct scene *scene, const char *name, const char *policy)
{
    return limit_of(scene->limiter, name, policy);
}

struct weir_policy policy_of(const char *text)
{
    struct weir_policy policy;
    char message[256] = "";
    if (weir_policy_parse(text, &policy, message, sizeof message) != WEIR_OK)
        ck_abort_msg("%s: %s", text, message);
    return policy;
}

weir_limit *limit_of(weir *limiter, const char *name, const char *policy)
{
    const struct weir_policy parsed = policy_of(policy);
    weir_limit *limit = NULL;
    must_succeed(weir_limit_define(limiter, name, &parsed, &limit));
    return limit;
}

/* ---- Policies of every sort ---- */

const char *const kind_names[KIND_COUNT] = { "greedy token bucket", "interval token bucket", "fixed window",
                                             "sliding window", "leaky bucket" };

enum kind kind_of(const struct weir_policy *policy)
{
    switch (policy->algorithm) {
    case WEIR_FIXED_WINDOW: return KIND_FIXED;
    case WEIR_SLIDING_WINDOW:
    case WEIR_CONCURRENCY: return KIND_SLIDING;
    case WEIR_LEAKY_BUCKET: return KIND_LEAKY;
    case WEIR_TOKEN_BUCKET:
    case WEIR_UNLIMITED:
    case WEIR_DENY: break; /* no kind has them */
    }
    return policy->refill == WEIR_INTERVAL ? KIND_INTERVAL : KIND_GREEDY;
}

int64_t permits_by_chance(struct chance *chance)
{
    static const int64_t awkward[] = { 1,
                                       2,
                                       3,
                                       7,
                                       13,
                                       97,
                                       101,
                                       997,
                                       65521,
                                       65536,
                                       1000003,
                                       16777213,
                                       999999937,
                                       1000000000,
                                       4294967295,
                                       4294967296,
                                       4294967297,
                                       99999999977,
                                       100000000000,
                                       1099511627776,
                                       WEIR_MAX_PERMITS - 1,
                                       WEIR_MAX_PERMITS };
    static const int64_t usual[] = { 1, 2, 5, 10, 20, 50, 100, 250, 500, 1000, 5000, 10000, 100000, 1000000 };
    switch (chance_between(chance, 0, 3)) {
    case 0: return chance_between(chance, 1, 12);
    case 1: return chance_pick(chance, usual, sizeof usual / sizeof usual[0]);
    case 2: return chance_pick(chance, awkward, sizeof awkward / sizeof awkward[0]);
    default: return chance_magnitude(chance, WEIR_MAX_PERMITS);
    }
}

int64_t period_by_chance(struct chance *chance)
{
    static const int64_t awkward[] = { 1,
                                       2,
                                       3,
                                       7,
                                       10,
                                       11,
                                       999983,
                                       1000003,
                                       86400000001,
                                       2147483647,
                                       2147483648,
                                       4294967296,
                                       366 * WEIR_DAY - 1,
                                       366 * WEIR_DAY,
                                       3333333333333 };
    static const int64_t usual[] = {
        1000,        20000,     WEIR_SECOND, WEIR_SECOND,  10 * WEIR_SECOND, WEIR_MINUTE,
        WEIR_MINUTE, WEIR_HOUR, WEIR_DAY,    7 * WEIR_DAY, 30 * WEIR_DAY,    365 * WEIR_DAY
    };
    switch (chance_between(chance, 0, 3)) {
    case 0: return chance_between(chance, 1, 30);
    case 1: return chance_pick(chance, usual, sizeof usual / sizeof usual[0]);
    case 2: return chance_pick(chance, awkward, sizeof awkward / sizeof awkward[0]);
    default: return chance_magnitude(chance, WEIR_MAX_PERIOD_US);
    }
}

struct weir_policy policy_by_chance(struct chance *chance, enum kind kind)
{
    static const int64_t block_counts[] = { 0, 1, 2, 3, 7, 10, 60, 1000, WEIR_MAX_BLOCKS };
    struct weir_policy policy = { .limit = permits_by_chance(chance), .period_us = period_by_chance(chance) };
    bool epoch = chance_one_in(chance, 2), sized = chance_one_in(chance, 2);
    switch (kind) {
    case KIND_INTERVAL:
        policy.refill = WEIR_INTERVAL;
        policy.align = epoch ? WEIR_ALIGN_EPOCH : WEIR_ALIGN_FIRST;
        /* fallthrough */
    case KIND_GREEDY:
        policy.burst = sized ? permits_by_chance(chance) : 0;
        policy.debt = chance_one_in(chance, 3) ? permits_by_chance(chance) : 0;
        break;
    case KIND_FIXED:
        policy.algorithm = WEIR_FIXED_WINDOW;
        policy.align = epoch ? WEIR_ALIGN_EPOCH : WEIR_ALIGN_FIRST;
        break;
    case KIND_SLIDING:
        policy.algorithm = WEIR_SLIDING_WINDOW;
        policy.blocks = (int32_t)(sized ? chance_pick(chance, block_counts, 9) : chance_between(chance, 0, 20));
        break;
    case KIND_LEAKY:
    case KIND_COUNT:
        policy.algorithm = WEIR_LEAKY_BUCKET;
        policy.capacity = sized ? permits_by_chance(chance) : 0;
        break;
    }
    return policy;
}

/* ---- Assertions ---- */

void must(bool holds, const char *what)
{
    if (!holds)
        ck_abort_msg("%s", what);
}

void must_succeed(int error)
{
    if (error != WEIR_OK)
        ck_abort_msg("a call that must succeed: %s", weir_strerror(error));
}

/* ---- Threads and processes ---- */

struct cancelled {
    void (*work)(void *);
    void *argument;
    bool returned;
};

static void *work_cancelled(void *user)
{
    struct cancelled *cancelled = user;
    pthread_cancel(pthread_self()); /* deferred: it takes effect at the next cancellation point */
    cancelled->work(cancelled->argument);
    cancelled->returned = true;
    pthread_testcancel();
    ck_abort_msg("cancellation stayed disabled");
    return NULL;
}

bool ends_uncancelled(void (*work)(void *), void *argument)
{
    struct cancelled cancelled = { work, argument, false };
    pthread_t thread;
    void *result;
    ck_assert_int_eq(pthread_create(&thread, NULL, work_cancelled, &cancelled), 0);
    pthread_join(thread, &result);
    ck_assert_ptr_eq(result, PTHREAD_CANCELED);
    return cancelled.returned;
}

void crew_start(struct crew *crew, int n, void *(*work)(void *), void *argument)
{
    crew->n = n;
    for (int i = 0; i < n; i++)
        must(pthread_create(&crew->threads[i], NULL, work, argument) == 0, "a thread starts");
}

void crew_join(struct crew *crew)
{
    for (int i = 0; i < crew->n; i++)
        must(pthread_join(crew->threads[i], NULL) == 0, "a thread ends");
}

void assert_child_succeeds(pid_t child)
{
    int status = -1;
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    ck_assert_msg(WIFEXITED(status) && WEXITSTATUS(status) == 0, "the child ended with status %#x", (unsigned)status);
}

/* ---- Decisions ---- */

static const char *decision_text(const struct weir_decision *decision, char *text, size_t size)
{
    snprintf(text, size,
             "allowed %d source %u bound_by %" PRIu32 " limit %" PRId64 " remaining %" PRId64 " delay %" PRId64
             " retry %" PRId64 " reset %" PRId64,
             decision->allowed, decision->source, decision->bound_by, decision->limit, decision->remaining,
             decision->delay_us, decision->retry_after_us, decision->reset_after_us);
    return text;
}

void assert_decision_is(const struct weir_decision *actual, const struct weir_decision *expected, const char *where)
{
    char actual_text[256], expected_text[256];
    if (memcmp(actual, expected, sizeof *actual) != 0)
        ck_abort_msg("%s\n  decided  %s\n  expected %s", where, decision_text(actual, actual_text, sizeof actual_text),
                     decision_text(expected, expected_text, sizeof expected_text));
}

struct weir_stats stats_of(weir *limiter)
{
    struct weir_stats stats = { .size = sizeof stats };
    must_succeed(weir_stats_read(limiter, &stats));
    return stats;
}

struct weir_follow_stats follow_stats_of(weir *limiter, enum weir_followed what)
{
    struct weir_follow_stats stats = { .size = sizeof stats };
    must_succeed(weir_follow_read(limiter, what, &stats));
    return stats;
}

struct weir_decision taken(weir_limit *limit, const char *key, int64_t cost)
{
    struct weir_decision decision;
    must_succeed(weir_try(limit, weir_key_text(key), cost, &decision));
    return decision;
}

struct weir_decision peeked(weir_limit *limit, const char *key, int64_t cost)
{
    struct weir_decision decision;
    must_succeed(weir_peek(limit, weir_key_text(key), cost, &decision));
    return decision;
}
