/* support.h - what all tests share: reproducible chance, a clock that the test sets, policies of every kind.
 *
 * Environment: WEIR_TEST_SEED is the seed of all chance (a failing suite prints it). WEIR_TEST_STEPS is the number of
 * random decisions in each long test. WEIR_TEST_FULL has tests go as far as tests/tools/faults.conf says that a fault's
 * test should, whatever time that takes. WEIR_TEST_HAS names cases, one a line: then no test is run, and it is a
 * failure if the suite lacks one of them (tests/tools/faults.sh).
 */
#ifndef WEIR_TESTS_SUPPORT_H
#define WEIR_TESTS_SUPPORT_H

#include <check.h>
#include <pthread.h>
#include <sys/types.h>
#include <weir/weir.h>

/* Whether something watches the program, which makes it ten times as slow or more and takes memory itself: a
 * sanitizer, or memcheck (tests/tools/valgrind.sh). */
#if defined(UNDER_ASAN) || defined(UNDER_TSAN) || defined(UNDER_MEMCHECK)
#define INSTRUMENTED 1
#else
#define INSTRUMENTED 0
#endif

/* Have `close` called with the variable's address where its block ends. */
#define CLOSED_BY(close) __attribute__((cleanup(close)))

/* weir_close() for CLOSED_BY. */
static inline void limiter_close(weir **limiter)
{
    weir_close(*limiter);
}

/* ---- Suites ---- */

/* Define one test, whose name is the sentence that it proves:
 *
 *     TEST(full_bucket_admits_exactly_its_burst, 10)
 *     {
 *         ck_assert(...);
 *     }
 *
 * The definition adds the test to tests(), as a case of the same name, with a time limit that CK_TIMEOUT_MULTIPLIER
 * stretches. test_main.c runs them all; a program that has to prepare something first defines its own main().
 */
#define TEST(sentence, timeout_seconds) TEST_EACH(sentence, 1, timeout_seconds)

/* The same for `n` runs, which read their number, 0 to n - 1, from `_i`. */
#define TEST_EACH(sentence, n, timeout_seconds)                        \
    static const TTest *sentence;                                      \
    __attribute__((constructor)) static void sentence##_is_added(void) \
    {                                                                  \
        test_add(#sentence, sentence, (int)(n), timeout_seconds);      \
    }                                                                  \
    START_TEST(sentence)

void test_add(const char *name, const TTest *test, int n, double timeout_seconds);

/* Return the suite of this program's tests. */
Suite *tests(void);

/* Run the suite, free it, and return main()'s exit status. */
int suite_run(Suite *suite);

/* ---- Chance ---- */

/* Return WEIR_TEST_STEPS, or the default: a quarter of it in an instrumented program. */
int64_t steps_or(int64_t default_steps);
/* Return `full` with WEIR_TEST_FULL, which needs a larger CK_TIMEOUT_MULTIPLIER; otherwise `brief`. */
int64_t full_or(int64_t full, int64_t brief);

struct chance {
    uint64_t state;
};

/* Return an independent stream for each number. */
struct chance chance_make(uint64_t stream);
uint64_t chance_next(struct chance *chance);
int64_t chance_between(struct chance *chance, int64_t least, int64_t most);
bool chance_one_in(struct chance *chance, int64_t n);
/* Return 1 to `most`, each order of magnitude with the same probability. */
int64_t chance_magnitude(struct chance *chance, int64_t most);
int64_t chance_pick(struct chance *chance, const int64_t *values, size_t count);

/* ---- A limiter whose clock the test sets ---- */

struct scene {
    weir *limiter;
    int64_t now_us;   /* what the limiter's clock shows */
    bool log_allowed; /* otherwise a log line fails the test */
    int log_lines;
    char last_line[512];
};

/* Wait for the lines of the log so far, and return the scene. */
const struct scene *scene_heard(struct scene *scene);

/* Options with other values than the defaults: OPTIONS(.max_keys = 10). */
#define OPTIONS(...) (&(const struct weir_options){ .size = sizeof(struct weir_options), __VA_ARGS__ })

/* `options` may be NULL; clock and log are the scene's. */
void scene_init(struct scene *scene, struct weir_options *options);
void scene_open(struct scene *scene, const struct weir_options *options);
void scene_close(struct scene *scene);

/* Open a scene that is closed where its block ends. */
#define OPEN_SCENE(name, options)             \
    CLOSED_BY(scene_close) struct scene name; \
    scene_open(&name, options)

weir_limit *scene_define(struct scene *scene, const char *name, const struct weir_policy *policy);
weir_limit *scene_define_text(struct scene *scene, const char *name, const char *policy);

struct weir_policy policy_of(const char *text); /* fails the test if it cannot be read */

/* Define the limit by the policy's text and return it. */
weir_limit *limit_of(weir *limiter, const char *name, const char *policy);

/* ---- Policies of every sort, friendly to nasty ---- */

enum kind { KIND_GREEDY, KIND_INTERVAL, KIND_FIXED, KIND_SLIDING, KIND_LEAKY, KIND_COUNT };
extern const char *const kind_names[KIND_COUNT];

enum kind kind_of(const struct weir_policy *policy);
/* Return a policy with parameters in range; weir_policy_check() may still refuse its arithmetic. */
struct weir_policy policy_by_chance(struct chance *chance, enum kind kind);
int64_t permits_by_chance(struct chance *chance);
int64_t period_by_chance(struct chance *chance);

/* ---- Assertions for inner loops: Check's own write to a pipe each time ---- */

void must(bool holds, const char *what);
void must_succeed(int error);

/* ---- Threads and processes ---- */

/* Threads that all call the same function with the same argument. */
struct crew {
    pthread_t threads[128];
    int n;
};
void crew_start(struct crew *crew, int n, void *(*work)(void *), void *argument);
void crew_join(struct crew *crew);

/* Start a thread that has been cancelled and calls `work` before it reaches its first cancellation point. Return
 * true if `work` returned, which it does if it reaches none. */
bool ends_uncancelled(void (*work)(void *), void *argument);

/* Wait for the child, which must exit with status 0. */
void assert_child_succeeds(pid_t child);

/* ---- Decisions ---- */

/* Fails the test, with `where` and both in full, unless they agree in every field. */
void assert_decision_is(const struct weir_decision *actual, const struct weir_decision *expected, const char *where);

/* weir_stats_read() and weir_follow_read() that must succeed. */
struct weir_stats stats_of(weir *limiter);
struct weir_follow_stats follow_stats_of(weir *limiter, enum weir_followed what);

/* weir_try() and weir_peek() that must succeed. */
struct weir_decision taken(weir_limit *limit, const char *key, int64_t cost);
struct weir_decision peeked(weir_limit *limit, const char *key, int64_t cost);

#endif
