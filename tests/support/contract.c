/* contract.c - what every backend must do: see contract.h. The loop index _i selects the backend under test. */
#include "contract.h"

#include "core/ground/clock.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { BACKENDS_MOST = 8 };
static const struct contract_backend *backends[BACKENDS_MOST];
static int backend_count;

enum { CONTRACT_MOST = 64 };
static struct contract_test {
    unsigned part;
    const char *name;
    const TTest *test;
    double timeout_seconds;
} contract[CONTRACT_MOST];
static int contract_count;

static void contract_has(unsigned part, const char *name, const TTest *test, double timeout_seconds)
{
    if (contract_count == CONTRACT_MOST)
        abort();
    contract[contract_count++] = (struct contract_test){ part, name, test, timeout_seconds };
}

/* As TEST(), of a part of the contract: contract_add() adds it once for each backend. */
#define CONTRACT_TEST(part, sentence, timeout_seconds)                 \
    static const TTest *sentence;                                      \
    __attribute__((constructor)) static void sentence##_is_added(void) \
    {                                                                  \
        contract_has(part, #sentence, sentence, timeout_seconds);      \
    }                                                                  \
    START_TEST(sentence)

static void open_backend(struct scene *scene, int backend)
{
    struct weir_options options = WEIR_OPTIONS_INIT;
    scene_init(scene, &options);
    must_succeed(backends[backend]->open(&options, &scene->limiter));
}

static struct weir_request request_of(weir_limit *limit, const char *key, int64_t cost)
{
    return (struct weir_request){ .limit = limit, .key = weir_key_text(key), .cost = cost };
}

static void refund(weir_limit *limit, const char *key, int64_t cost)
{
    must_succeed(weir_refund(limit, weir_key_text(key), cost));
}

static void charge(weir_limit *limit, const char *key, int64_t cost)
{
    must_succeed(weir_charge(limit, weir_key_text(key), cost));
}

/* ---- Arguments and names ---- */

/* Assert that every verb refuses the argument and writes no output. */
static void assert_refused(struct scene *scene, weir_limit *limit, struct weir_key key, int64_t cost)
{
    struct weir_decision decision, untouched;
    struct weir_op op = { .request = { .limit = limit, .key = key, .cost = cost } };
    memset(&untouched, 0x5a, sizeof untouched);
    decision = untouched;
    op.decision = untouched;
    ck_assert_int_eq(weir_try(limit, key, cost, &decision), WEIR_EINVAL);
    ck_assert_int_eq(weir_acquire(limit, key, cost, 0, &decision), WEIR_EINVAL);
    ck_assert_int_eq(weir_peek(limit, key, cost, &decision), WEIR_EINVAL);
    ck_assert_int_eq(weir_refund(limit, key, cost), WEIR_EINVAL);
    ck_assert_int_eq(weir_charge(limit, key, cost), WEIR_EINVAL);
    struct weir_reservation reservation;
    ck_assert_int_eq(weir_reserve(limit, key, cost, &decision, &reservation), WEIR_EINVAL);
    if (cost == 1)
        ck_assert_int_eq(weir_reset(limit, key), WEIR_EINVAL);
    ck_assert_int_eq(weir_try_all(scene->limiter, &op.request, 1, &decision), WEIR_EINVAL);
    ck_assert_int_eq(weir_try_batch(scene->limiter, &op.request, 1, &decision), WEIR_EINVAL);
    ck_assert_int_eq(weir_submit(scene->limiter, &op), WEIR_EINVAL);
    ck_assert_int_eq(memcmp(&decision, &untouched, sizeof decision), 0);
    ck_assert_int_eq(memcmp(&op.decision, &untouched, sizeof decision), 0);
}

CONTRACT_TEST(CONTRACT_COUNTS, arguments_out_of_range_are_refused_and_change_nothing, 10)
{
    static char long_key[WEIR_MAX_KEY_LEN + 1];
    static const int64_t costs[] = { 0, -1, WEIR_MAX_PERMITS + 1, INT64_MAX, INT64_MIN };
    struct weir_key key = weir_key_text("a");
    struct weir_decision decision;
    CLOSED_BY(scene_close) struct scene scene;
    open_backend(&scene, _i);
    weir_limit *limit = scene_define_text(&scene, "limit", "fixed_window limit=3 period=1h");
    scene.log_allowed = true;
    for (size_t i = 0; i < sizeof costs / sizeof costs[0]; i++)
        assert_refused(&scene, limit, key, costs[i]);
    assert_refused(&scene, limit, weir_key("a", 0), 1);
    assert_refused(&scene, limit, weir_key(long_key, sizeof long_key), 1);
    assert_refused(&scene, limit, weir_key("a", SIZE_MAX), 1);
    assert_refused(&scene, limit, weir_key(NULL, 1), 1);
    assert_refused(&scene, NULL, key, 1);

    struct weir_request request = request_of(limit, "a", 1);
    ck_assert_int_eq(weir_try(limit, key, 1, NULL), WEIR_EINVAL);
    ck_assert_int_eq(weir_peek(limit, key, 1, NULL), WEIR_EINVAL);
    ck_assert_int_eq(weir_acquire(limit, key, 1, 0, NULL), WEIR_EINVAL);
    ck_assert_int_eq(weir_acquire(limit, key, 1, -1, &decision), WEIR_EINVAL);
    ck_assert_int_eq(weir_try_all(NULL, &request, 1, &decision), WEIR_EINVAL);
    ck_assert_int_eq(weir_try_all(scene.limiter, NULL, 1, &decision), WEIR_EINVAL);
    ck_assert_str_eq(scene.last_line, "requests must not be NULL");
    ck_assert_int_eq(weir_try_all(scene.limiter, &request, 1, NULL), WEIR_EINVAL);
    ck_assert_str_eq(scene.last_line, "out must not be NULL");
    ck_assert_int_eq(weir_try_all(scene.limiter, &request, 0, &decision), WEIR_EINVAL);
    ck_assert_int_eq(weir_try_all(scene.limiter, &request, WEIR_MAX_ALL + 1, &decision), WEIR_EINVAL);
    ck_assert_int_eq(weir_try_batch(NULL, &request, 1, &decision), WEIR_EINVAL);
    ck_assert_int_eq(weir_try_batch(scene.limiter, NULL, 1, &decision), WEIR_EINVAL);
    ck_assert_str_eq(scene.last_line, "requests must not be NULL");
    ck_assert_int_eq(weir_try_batch(scene.limiter, &request, 1, NULL), WEIR_EINVAL);
    ck_assert_str_eq(scene.last_line, "outs must not be NULL");
    ck_assert_int_eq(weir_try_batch(scene.limiter, NULL, 0, NULL), WEIR_OK);
    ck_assert_int_eq(weir_submit(NULL, NULL), WEIR_EINVAL);
    ck_assert_int_eq(weir_submit(scene.limiter, NULL), WEIR_EINVAL);
    request.now_us = -1;
    ck_assert_int_eq(weir_try_batch(scene.limiter, &request, 1, &decision), WEIR_EINVAL);
    request.now_us = WEIR_MAX_TIME_US + 1;
    ck_assert_int_eq(weir_try_all(scene.limiter, &request, 1, &decision), WEIR_EINVAL);
    ck_assert_int_eq(peeked(limit, "a", 1).remaining, 3);
}

CONTRACT_TEST(CONTRACT_COUNTS, a_refusal_names_the_argument_and_its_range, 10)
{
    static char long_key[WEIR_MAX_KEY_LEN + 1];
    struct weir_decision decisions[2];
    CLOSED_BY(scene_close) struct scene scene;
    open_backend(&scene, _i);
    weir_limit *limit = scene_define_text(&scene, "limit", "fixed_window limit=3 period=1h");
    const struct weir_key key = weir_key_text("a");
    struct weir_request request = request_of(limit, "a", 1);
    scene.log_allowed = true;
#define ASSERT_NAMES(call, ...)                           \
    do {                                                  \
        char sentence[128];                               \
        snprintf(sentence, sizeof sentence, __VA_ARGS__); \
        ck_assert_int_eq(call, WEIR_EINVAL);              \
        ck_assert_str_eq(scene.last_line, sentence);      \
    } while (0)
    ASSERT_NAMES(weir_try(limit, key, 0, decisions), "cost must be 1 to %" PRId64 ", not 0", WEIR_MAX_PERMITS);
    ASSERT_NAMES(weir_try(limit, key, WEIR_MAX_PERMITS + 1, decisions), "cost must be 1 to %" PRId64 ", not %" PRId64,
                 WEIR_MAX_PERMITS, WEIR_MAX_PERMITS + 1);
    ASSERT_NAMES(weir_try(limit, weir_key("a", 0), 1, decisions), "key.len must be 1 to %d, not 0", WEIR_MAX_KEY_LEN);
    ASSERT_NAMES(weir_try(limit, weir_key(long_key, sizeof long_key), 1, decisions), "key.len must be 1 to %d, not %d",
                 WEIR_MAX_KEY_LEN, WEIR_MAX_KEY_LEN + 1);
    ASSERT_NAMES(weir_try(limit, weir_key("a", SIZE_MAX), 1, decisions), "key.len must be 1 to %d, not %" PRId64,
                 WEIR_MAX_KEY_LEN, INT64_MAX);
    ASSERT_NAMES(weir_acquire(limit, key, 1, -1, decisions), "max_wait_us must be 0 to %" PRId64 ", not -1", INT64_MAX);
    ASSERT_NAMES(weir_try_all(scene.limiter, &request, 0, decisions), "n must be 1 to %d, not 0", WEIR_MAX_ALL);
    ASSERT_NAMES(weir_try_all(scene.limiter, &request, WEIR_MAX_ALL + 1, decisions), "n must be 1 to %d, not %d",
                 WEIR_MAX_ALL, WEIR_MAX_ALL + 1);
    ASSERT_NAMES(weir_try_all(scene.limiter, &request, SIZE_MAX, decisions), "n must be 1 to %d, not %" PRId64,
                 WEIR_MAX_ALL, INT64_MAX);
    request.now_us = -1;
    ASSERT_NAMES(weir_try_batch(scene.limiter, &request, 1, decisions),
                 "request.now_us must be 0 to %" PRId64 ", not -1", WEIR_MAX_TIME_US);
    request.now_us = WEIR_MAX_TIME_US + 1;
    ASSERT_NAMES(weir_try_batch(scene.limiter, &request, 1, decisions),
                 "request.now_us must be 0 to %" PRId64 ", not %" PRId64, WEIR_MAX_TIME_US, WEIR_MAX_TIME_US + 1);
#undef ASSERT_NAMES
}

CONTRACT_TEST(CONTRACT_COUNTS, a_refused_request_leaves_those_beside_it_uncharged, 10)
{
    CLOSED_BY(scene_close) struct scene scene;
    struct weir_decision decisions[2];
    open_backend(&scene, _i);
    weir_limit *limit = scene_define_text(&scene, "limit", "fixed_window limit=3 period=1h");
    const struct weir_request requests[] = { request_of(limit, "a", 1), request_of(limit, "a", 0) };
    scene.log_allowed = true;
    ck_assert_int_eq(weir_try_all(scene.limiter, requests, 2, decisions), WEIR_EINVAL);
    ck_assert_int_eq(peeked(limit, "a", 1).remaining, 3);
}

CONTRACT_TEST(CONTRACT_COUNTS, a_limit_of_another_limiter_is_refused, 10)
{
    struct scene scene, other;
    struct weir_decision decision;
    open_backend(&scene, _i);
    open_backend(&other, _i);
    struct weir_request request = request_of(scene_define_text(&other, "limit", "fixed_window limit=3 period=1h"), "a",
                                             1);
    struct weir_op op = { .request = request };
    scene.log_allowed = true;
    ck_assert_int_eq(weir_try_all(scene.limiter, &request, 1, &decision), WEIR_EINVAL);
    ck_assert_int_eq(weir_try_batch(scene.limiter, &request, 1, &decision), WEIR_EINVAL);
    ck_assert_int_eq(weir_submit(scene.limiter, &op), WEIR_EINVAL);
    ck_assert_int_eq(peeked(request.limit, "a", 1).remaining, 3);
    scene_close(&other);
    scene_close(&scene);
}

CONTRACT_TEST(CONTRACT_COUNTS, a_limit_is_found_by_its_name_and_tells_its_policy, 10)
{
    CLOSED_BY(scene_close) struct scene scene;
    struct weir_policy policy = policy_of("token_bucket limit=10 period=1m refill=interval debt=5"), read;
    open_backend(&scene, _i);
    ck_assert_ptr_null(weir_limit_find(scene.limiter, "api-read"));
    weir_limit *limit = scene_define(&scene, "api-read", &policy);
    weir_limit *other = scene_define(&scene, "api-rea", &policy);
    ck_assert_ptr_ne(limit, other);
    ck_assert_ptr_eq(weir_limit_find(scene.limiter, "api-read"), limit);
    ck_assert_ptr_eq(weir_limit_find(scene.limiter, "api-rea"), other);
    ck_assert_ptr_null(weir_limit_find(scene.limiter, "api-rea "));
    ck_assert_ptr_null(weir_limit_find(scene.limiter, NULL));
    ck_assert_ptr_null(weir_limit_find(NULL, "api-read"));
    ck_assert_str_eq(weir_limit_name(limit), "api-read");
    must_succeed(weir_limit_policy(limit, &read));
    ck_assert_int_eq(memcmp(&read, &policy, sizeof policy), 0);
    ck_assert_int_eq(weir_limit_policy(limit, NULL), WEIR_EINVAL);
    ck_assert_int_eq(weir_limit_policy(NULL, &read), WEIR_EINVAL);
}

CONTRACT_TEST(CONTRACT_COUNTS, names_are_letters_digits_dots_underscores_and_hyphens, 10)
{
    char longest[WEIR_MAX_NAME_LEN + 2];
    struct weir_policy policy = policy_of("fixed_window limit=3 period=1h");
    CLOSED_BY(scene_close) struct scene scene;
    open_backend(&scene, _i);
    memset(longest, 'x', sizeof longest);
    longest[WEIR_MAX_NAME_LEN] = '\0';
    scene_define(&scene, longest, &policy);
    scene_define(&scene, "Az09._-", &policy);
    scene.log_allowed = true;
    longest[WEIR_MAX_NAME_LEN] = 'x';
    longest[WEIR_MAX_NAME_LEN + 1] = '\0';
    ck_assert_int_eq(weir_limit_define(scene.limiter, longest, &policy, NULL), WEIR_EINVAL);
    ck_assert_int_eq(weir_limit_define(scene.limiter, "", &policy, NULL), WEIR_EINVAL);
    ck_assert_int_eq(weir_limit_define(scene.limiter, NULL, &policy, NULL), WEIR_EINVAL);
    ck_assert_int_eq(weir_limit_define(scene.limiter, "name", NULL, NULL), WEIR_EINVAL);
    ck_assert_int_eq(weir_limit_define(NULL, "name", &policy, NULL), WEIR_EINVAL);
    for (int byte = 1; byte < 256; byte++) {
        const char name[] = { 'a', (char)byte, '\0' };
        bool plain = (byte >= '0' && byte <= '9') || (byte >= 'A' && byte <= 'Z') || (byte >= 'a' && byte <= 'z') ||
                     byte == '.' || byte == '_' || byte == '-';
        int error = weir_limit_define(scene.limiter, name, &policy, NULL);
        ck_assert_msg(error == (plain ? WEIR_OK : WEIR_EINVAL), "byte %d: %s", byte, weir_strerror(error));
    }
}

CONTRACT_TEST(CONTRACT_COUNTS, one_limit_too_many_is_refused_and_the_others_stay, 30)
{
    CLOSED_BY(scene_close) struct scene scene;
    struct weir_policy policy = policy_of("fixed_window limit=3 period=1h");
    char name[32];
    open_backend(&scene, _i);
    for (int i = 0; i < WEIR_MAX_LIMITS; i++) {
        snprintf(name, sizeof name, "limit-%d", i);
        must_succeed(weir_limit_define(scene.limiter, name, &policy, NULL));
    }
    scene.log_allowed = true;
    ck_assert_int_eq(weir_limit_define(scene.limiter, "one-more", &policy, NULL), WEIR_EFULL);
    ck_assert_ptr_null(weir_limit_find(scene.limiter, "one-more"));
    ck_assert_int_eq(weir_limit_define(scene.limiter, name, &policy, NULL), WEIR_OK);
    ck_assert(taken(weir_limit_find(scene.limiter, "limit-0"), "a", 3).allowed);
    ck_assert(taken(weir_limit_find(scene.limiter, name), "a", 3).allowed);
}

/* ---- Keys ---- */

static struct weir_decision taken_by(weir_limit *limit, const void *data, size_t len)
{
    struct weir_decision decision;
    must_succeed(weir_try(limit, weir_key(data, len), 1, &decision));
    return decision;
}

CONTRACT_TEST(CONTRACT_COUNTS, keys_of_every_byte_value_are_kept_apart, 10)
{
    CLOSED_BY(scene_close) struct scene scene;
    open_backend(&scene, _i);
    weir_limit *limit = scene_define_text(&scene, "limit", "fixed_window limit=1 period=1h");
    for (int round = 0; round < 2; round++) {
        for (int byte = 0; byte < 256; byte++) {
            const char key[] = { (char)byte, 'x', (char)byte };
            for (size_t len = 1; len <= 3; len++)
                ck_assert_msg(taken_by(limit, key, len).allowed == (round == 0), "byte %d, length %zu", byte, len);
        }
    }
}

CONTRACT_TEST(CONTRACT_COUNTS, keys_of_every_length_are_kept_apart_and_copied, 10)
{
    static char key[WEIR_MAX_KEY_LEN];
    CLOSED_BY(scene_close) struct scene scene;
    open_backend(&scene, _i);
    weir_limit *limit = scene_define_text(&scene, "limit", "fixed_window limit=1 period=1h");
    for (int round = 0; round < 2; round++) {
        for (size_t len = 1; len <= sizeof key; len = len < 130 ? len + 1 : len + len / 5) {
            memset(key, 'k', sizeof key); /* each is a prefix of the next */
            ck_assert_msg(taken_by(limit, key, len).allowed == (round == 0), "length %zu", len);
            memset(key, '?', sizeof key);
        }
        memset(key, 'k', sizeof key);
        ck_assert(taken_by(limit, key, sizeof key).allowed == (round == 0));
        key[sizeof key - 1] = 'l';
        ck_assert(taken_by(limit, key, sizeof key).allowed == (round == 0));
    }
}

CONTRACT_TEST(CONTRACT_COUNTS, keys_with_nul_braces_and_line_ends_are_only_bytes, 10)
{
    static const struct {
        const char *data;
        size_t len;
    } keys[] = { { "\0", 1 },  { "\0\0", 2 },     { "a\0b", 3 },     { "a\0c", 3 },   { "a", 1 },
                 { "{", 1 },   { "}", 1 },        { "{}", 2 },       { "{a}{b}", 6 }, { "\r\n", 2 },
                 { "\n", 1 },  { "%s%n", 4 },     { "%7B", 3 },      { "%", 1 },      { ":", 1 },
                 { "a:b", 3 }, { "\xff\xfe", 2 }, { "\xc3\x28", 2 }, { " ", 1 },      { "*3\r\n$3\r\n", 8 } };
    CLOSED_BY(scene_close) struct scene scene;
    open_backend(&scene, _i);
    weir_limit *limit = scene_define_text(&scene, "limit", "fixed_window limit=1 period=1h");
    for (int round = 0; round < 2; round++)
        for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++)
            ck_assert_msg(taken_by(limit, keys[i].data, keys[i].len).allowed == (round == 0), "key %zu", i);
}

CONTRACT_TEST(CONTRACT_COUNTS, a_key_under_another_limit_is_another_key, 10)
{
    CLOSED_BY(scene_close) struct scene scene;
    open_backend(&scene, _i);
    weir_limit *ab = scene_define_text(&scene, "ab", "fixed_window limit=1 period=1h");
    weir_limit *a = scene_define_text(&scene, "a", "fixed_window limit=1 period=1h");
    ck_assert(taken(ab, "c", 1).allowed);
    ck_assert(taken(a, "c", 1).allowed);
    ck_assert(taken(a, "bc", 1).allowed);
    ck_assert(!taken(ab, "c", 1).allowed);
    must_succeed(weir_reset(ab, weir_key_text("c")));
    ck_assert(taken(ab, "c", 1).allowed);
    ck_assert(!taken(a, "c", 1).allowed);
}

/* ---- Verbs ---- */

CONTRACT_TEST(CONTRACT_COUNTS, permits_count_down_and_a_denial_changes_nothing, 10)
{
    CLOSED_BY(scene_close) struct scene scene;
    open_backend(&scene, _i);
    weir_limit *limit = scene_define_text(&scene, "limit", "fixed_window limit=10 period=1h");
    for (int left = 9; left >= 3; left--) {
        struct weir_decision decision = taken(limit, "a", 1);
        ck_assert(decision.allowed);
        ck_assert_int_eq(decision.limit, 10);
        ck_assert_int_eq(decision.remaining, left);
        ck_assert_int_eq(decision.retry_after_us, 0);
        ck_assert_int_eq(decision.delay_us, 0);
        ck_assert_int_eq(decision.bound_by, 0);
    }
    for (int i = 0; i < 5; i++) {
        struct weir_decision denied = taken(limit, "a", 4);
        ck_assert(!denied.allowed);
        ck_assert_int_eq(denied.remaining, 3);
        ck_assert_int_ne(denied.retry_after_us, 0);
    }
    ck_assert(taken(limit, "a", 3).allowed);
    ck_assert_int_eq(taken(limit, "a", 1).remaining, 0);
}

CONTRACT_TEST(CONTRACT_COUNTS, a_peek_tells_what_a_try_would_and_changes_nothing, 10)
{
    CLOSED_BY(scene_close) struct scene scene;
    open_backend(&scene, _i);
    weir_limit *limit = scene_define_text(&scene, "limit", "fixed_window limit=10 period=1h");
    for (int i = 0; i < 20; i++) {
        struct weir_decision fits = peeked(limit, "a", 10), beyond = peeked(limit, "a", 11);
        ck_assert(fits.allowed && fits.remaining == 10 && fits.limit == 10 && fits.reset_after_us == 0);
        ck_assert(!beyond.allowed && beyond.remaining == 10);
    }
    taken(limit, "a", 7);
    struct weir_decision first = peeked(limit, "a", 4);
    ck_assert(!first.allowed && first.remaining == 3);
    for (int i = 0; i < 20; i++) {
        struct weir_decision again = peeked(limit, "a", 4);
        assert_decision_is(&again, &first, "a peek after a peek");
        ck_assert(peeked(limit, "a", 3).allowed);
    }
    struct weir_decision denied = taken(limit, "a", 4);
    assert_decision_is(&denied, &first, "a denial after its peek");
}

CONTRACT_TEST(CONTRACT_COUNTS, a_charge_is_never_denied_and_overdraws_the_key, 10)
{
    CLOSED_BY(scene_close) struct scene scene;
    open_backend(&scene, _i);
    weir_limit *limit = scene_define_text(&scene, "limit", "fixed_window limit=10 period=1h");
    weir_limit *beside = scene_define_text(&scene, "beside", "fixed_window limit=10 period=1h");
    taken(limit, "a", 7);
    charge(limit, "a", 1);
    ck_assert_int_eq(peeked(limit, "a", 1).remaining, 2);
    charge(limit, "a", 5);
    const struct weir_decision denied = taken(limit, "a", 1);
    ck_assert(!denied.allowed && denied.remaining == 0 && denied.retry_after_us > 0);
    refund(limit, "a", 3);
    ck_assert(!taken(limit, "a", 1).allowed);
    refund(limit, "a", 1);
    ck_assert_int_eq(peeked(limit, "a", 1).remaining, 1);
    charge(limit, "new", 25);
    ck_assert(!taken(limit, "new", 1).allowed);
    struct weir_decision decision;
    const struct weir_request group[] = { request_of(beside, "new", 1), request_of(limit, "new", 1) };
    must_succeed(weir_try_all(scene.limiter, group, 2, &decision));
    ck_assert(!decision.allowed && decision.bound_by == 1);
    ck_assert_int_eq(peeked(beside, "new", 1).remaining, 10);
    must_succeed(weir_reset(limit, weir_key_text("new")));
    ck_assert_int_eq(taken(limit, "new", 1).remaining, 9);
    struct weir_limit_stats stats = { .size = sizeof stats };
    must_succeed(weir_limit_stats_read(limit, &stats));
    ck_assert_uint_eq(stats.permits, 7 + 1 + 5 + 25 + 1);
}

/* Reserve, and assert that the request is allowed or denied. */
static struct weir_reservation reserved(weir_limit *limit, const char *key, int64_t estimate, bool allowed)
{
    struct weir_decision decision;
    struct weir_reservation reservation;
    must_succeed(weir_reserve(limit, weir_key_text(key), estimate, &decision, &reservation));
    ck_assert_int_eq(decision.allowed, allowed);
    ck_assert_int_eq(reservation.permits, allowed ? estimate : -1);
    return reservation;
}

static void settle(weir_limit *limit, const char *key, struct weir_reservation reservation, int64_t actual)
{
    must_succeed(weir_settle(limit, weir_key_text(key), &reservation, actual));
}

CONTRACT_TEST(CONTRACT_COUNTS, a_reservation_is_settled_for_what_was_used, 10)
{
    CLOSED_BY(scene_close) struct scene scene;
    open_backend(&scene, _i);
    weir_limit *limit = scene_define_text(&scene, "limit", "fixed_window limit=10 period=1h");
    weir_limit *beside = scene_define_text(&scene, "beside", "fixed_window limit=10 period=1h");
    struct weir_reservation first = reserved(limit, "a", 6, true);
    ck_assert_int_eq(peeked(limit, "a", 1).remaining, 4);
    const struct weir_reservation denied = reserved(limit, "a", 5, false);
    settle(limit, "a", denied, 0);
    settle(limit, "a", denied, 5);
    settle(limit, "a", first, 6);
    ck_assert_int_eq(peeked(limit, "a", 1).remaining, 4);
    settle(limit, "a", first, 2);
    ck_assert_int_eq(peeked(limit, "a", 1).remaining, 8);
    settle(limit, "a", reserved(limit, "a", 5, true), 9);
    ck_assert(!taken(limit, "a", 1).allowed);
    must_succeed(weir_refund(limit, weir_key_text("a"), 2));
    ck_assert_int_eq(peeked(limit, "a", 1).remaining, 1);
    settle(limit, "b", reserved(limit, "b", 10, true), 0);
    ck_assert_int_eq(peeked(limit, "b", 1).reset_after_us, 0);

    struct weir_decision decision;
    struct weir_reservation all[3];
    const struct weir_request group[] = { request_of(limit, "c", 3), request_of(beside, "c", 5),
                                          request_of(limit, "c", 2) };
    must_succeed(weir_reserve_all(scene.limiter, group, 3, &decision, all));
    ck_assert(decision.allowed && all[0].permits == 3 && all[1].permits == 5 && all[2].permits == 2);
    settle(limit, "c", all[0], 1);
    settle(beside, "c", all[1], 8);
    settle(limit, "c", all[2], 2);
    ck_assert_int_eq(peeked(limit, "c", 1).remaining, 7);
    ck_assert_int_eq(peeked(beside, "c", 1).remaining, 2);
    must_succeed(weir_reserve_all(scene.limiter, group, 3, &decision, all));
    ck_assert(!decision.allowed && all[0].permits == -1 && all[1].permits == -1 && all[2].permits == -1);
    ck_assert_int_eq(peeked(limit, "c", 1).remaining, 7);
}

CONTRACT_TEST(CONTRACT_TIME, requests_in_flight_are_limited_and_those_of_the_dead_come_back, 20)
{
    CLOSED_BY(scene_close) struct scene scene;
    open_backend(&scene, _i);
    weir_limit *limit = scene_define_text(&scene, "limit", "concurrency limit=3 hold=10s");
    weir_limit *rate = scene_define_text(&scene, "rate", "fixed_window limit=10 period=1h");
    scene.now_us = 1700000000 * WEIR_SECOND;
    struct weir_decision decision;
    struct weir_reservation slots[3], group[2];
    for (int i = 0; i < 3; i++) {
        slots[i] = reserved(limit, "a", 1, true);
        scene.now_us += 2 * WEIR_SECOND;
    }
    reserved(limit, "a", 1, false);
    const struct weir_request requests[] = { request_of(rate, "a", 1), request_of(limit, "a", 1) };
    must_succeed(weir_reserve_all(scene.limiter, requests, 2, &decision, group));
    ck_assert(!decision.allowed && decision.bound_by == 1);
    ck_assert_int_eq(peeked(rate, "a", 1).remaining, 10);
    must_succeed(weir_release(limit, weir_key_text("a"), &slots[1]));
    must_succeed(weir_reserve_all(scene.limiter, requests, 2, &decision, group));
    ck_assert(decision.allowed);
    reserved(limit, "a", 1, false);
    must_succeed(weir_release(limit, weir_key_text("a"), &group[1]));
    ck_assert_int_eq(peeked(limit, "a", 1).remaining, 1);

    /* The first was taken at 0 s and the last at 4 s; neither is released. A block is a second. */
    scene.now_us = 1700000011 * WEIR_SECOND - 1;
    ck_assert_int_eq(peeked(limit, "a", 1).remaining, 1);
    scene.now_us++;
    ck_assert_int_eq(peeked(limit, "a", 1).remaining, 2);
    must_succeed(weir_release(limit, weir_key_text("a"), &slots[0])); /* too late: it has come back */
    ck_assert_int_eq(peeked(limit, "a", 1).remaining, 2);
    scene.now_us += 4 * WEIR_SECOND;
    ck_assert_int_eq(peeked(limit, "a", 1).remaining, 3);
}

/* Renew a reservation of a permit, and assert that it is allowed or denied. */
static void renew(weir_limit *limit, const char *key, struct weir_reservation *reservation, bool allowed)
{
    struct weir_decision decision;
    must_succeed(weir_renew(limit, weir_key_text(key), 1, &decision, reservation));
    ck_assert_int_eq(decision.allowed, allowed);
    ck_assert_int_eq(reservation->permits, allowed ? 1 : -1);
    ck_assert(allowed ? decision.retry_after_us == 0 : decision.retry_after_us > 0);
}

CONTRACT_TEST(CONTRACT_TIME, a_request_in_flight_that_renews_keeps_its_permit, 20)
{
    CLOSED_BY(scene_close) struct scene scene;
    open_backend(&scene, _i);
    weir_limit *limit = scene_define_text(&scene, "limit", "concurrency limit=2 hold=10s");
    scene.now_us = 1700000000 * WEIR_SECOND;
    struct weir_reservation renews = reserved(limit, "a", 1, true), dies = reserved(limit, "a", 1, true);
    for (int i = 0; i < 3; i++) {
        scene.now_us += 4 * WEIR_SECOND - 1;
        renew(limit, "a", &renews, true);
    }
    /* 12 s: the other one has come back, and another request takes it. */
    struct weir_reservation third = reserved(limit, "a", 1, true);
    reserved(limit, "a", 1, false);
    renew(limit, "a", &dies, false);
    must_succeed(weir_release(limit, weir_key_text("a"), &dies)); /* of nothing */
    renew(limit, "a", &dies, false);
    scene.now_us += 10 * WEIR_SECOND;
    renew(limit, "a", &renews, true);
    scene.now_us += 2 * WEIR_SECOND; /* the third has come back, too */
    ck_assert_int_eq(peeked(limit, "a", 1).remaining, 1);
    renew(limit, "a", &dies, true);
    renew(limit, "a", &third, false);
    must_succeed(weir_release(limit, weir_key_text("a"), &renews));
    must_succeed(weir_release(limit, weir_key_text("a"), &dies));
    ck_assert_int_eq(peeked(limit, "a", 1).remaining, 2);
    ck_assert_int_eq(peeked(limit, "a", 1).reset_after_us, 0);
    renew(limit, "a", &renews, true); /* a key with nothing in use */
    ck_assert_int_eq(peeked(limit, "a", 1).remaining, 1);
}

CONTRACT_TEST(CONTRACT_TIME, a_renewal_finds_what_a_reset_or_another_policy_has_left, 20)
{
    CLOSED_BY(scene_close) struct scene scene;
    open_backend(&scene, _i);
    weir_limit *limit = scene_define_text(&scene, "limit", "concurrency limit=2 hold=10s");
    scene.now_us = 1700000000 * WEIR_SECOND;
    struct weir_reservation slots[2] = { reserved(limit, "a", 1, true), reserved(limit, "a", 1, true) };
    scene.now_us += 2 * WEIR_SECOND;
    must_succeed(weir_reset(limit, weir_key_text("a")));
    renew(limit, "a", &slots[0], true);
    ck_assert_int_eq(peeked(limit, "a", 1).remaining, 1);
    reserved(limit, "a", 1, true);
    renew(limit, "a", &slots[1], false);
    renew(limit, "a", &slots[0], true);

    scene_define_text(&scene, "limit", "concurrency limit=1 hold=10s");
    scene.now_us += 2 * WEIR_SECOND;
    renew(limit, "a", &slots[0], true);
    ck_assert(!peeked(limit, "a", 1).allowed);
    scene.now_us += 8 * WEIR_SECOND;
    renew(limit, "a", &slots[0], true);
    scene_define_text(&scene, "limit", "fixed_window limit=1 period=1h");
    renew(limit, "a", &slots[0], true);
    ck_assert(!peeked(limit, "a", 1).allowed);
    must_succeed(weir_release(limit, weir_key_text("a"), &slots[0]));
    ck_assert(peeked(limit, "a", 1).allowed);
}

CONTRACT_TEST(CONTRACT_TIME, a_renewal_takes_what_has_come_back_a_second_time, 20)
{
    static const struct {
        const char *policy;
        int64_t left_early, left_late; /* of 10, after 8 are renewed 2 s later, and of 10 after 20 s */
    } cases[] = {
        { "token_bucket limit=10 period=10s", 2, 2 },
        { "leaky_bucket limit=10 period=10s", 2, 2 },
        { "token_bucket limit=10 period=10s refill=interval", 2, 2 },
        { "fixed_window limit=10 period=10s", 2, 2 },
        { "sliding_window limit=10 period=10s", 2, 2 },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        CLOSED_BY(scene_close) struct scene scene;
        open_backend(&scene, _i);
        struct weir_decision decision;
        weir_limit *limit = scene_define_text(&scene, "limit", cases[i].policy);
        scene.now_us = 1700000000 * WEIR_SECOND;
        struct weir_reservation held = reserved(limit, "a", 8, true);
        scene.now_us += 2 * WEIR_SECOND;
        must_succeed(weir_renew(limit, weir_key_text("a"), 8, &decision, &held));
        ck_assert(decision.allowed && decision.remaining == cases[i].left_early);
        charge(limit, "a", 5); /* the key is overdrawn: what is renewed at once needs no room */
        must_succeed(weir_renew(limit, weir_key_text("a"), 8, &decision, &held));
        ck_assert(decision.allowed && decision.remaining == 0);
        scene.now_us += 30 * WEIR_SECOND;
        must_succeed(weir_renew(limit, weir_key_text("a"), 8, &decision, &held));
        ck_assert(decision.allowed && decision.remaining == cases[i].left_late);
        scene.now_us += 30 * WEIR_SECOND;
        taken(limit, "a", 5);
        must_succeed(weir_renew(limit, weir_key_text("a"), 8, &decision, &held));
        ck_assert(!decision.allowed && decision.remaining == 5 && held.permits == -1);
    }
}

CONTRACT_TEST(CONTRACT_TIME, settling_gives_back_no_permit_that_has_come_back, 20)
{
    static const struct {
        const char *policy;
        bool refills; /* continuously */
    } cases[] = {
        { "token_bucket limit=10 period=10s", true },
        { "leaky_bucket limit=10 period=10s", true },
        { "token_bucket limit=10 period=10s refill=interval", false },
        { "fixed_window limit=10 period=10s", false },
        { "sliding_window limit=10 period=10s", false },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        CLOSED_BY(scene_close) struct scene scene;
        open_backend(&scene, _i);
        weir_limit *limit = scene_define_text(&scene, "limit", cases[i].policy);
        scene.now_us = 1700000000 * WEIR_SECOND;
        settle(limit, "at once", reserved(limit, "at once", 8, true), 2);
        ck_assert_int_eq(peeked(limit, "at once", 1).remaining, 8);

        const struct weir_reservation alone = reserved(limit, "alone", 8, true);
        scene.now_us += 3 * WEIR_SECOND;
        settle(limit, "alone", alone, 2);
        ck_assert_int_eq(peeked(limit, "alone", 1).remaining, 8);

        scene.now_us = 1700000100 * WEIR_SECOND;
        const struct weir_reservation amid = reserved(limit, "amid", 8, true);
        scene.now_us += 5 * WEIR_SECOND;
        taken(limit, "amid", cases[i].refills ? 5 : 2); /* a bucket then holds 3 of 8 permits and 5 */
        settle(limit, "amid", amid, 0);
        ck_assert_int_eq(peeked(limit, "amid", 1).remaining, cases[i].refills ? 5 : 8);

        scene.now_us = 1700000200 * WEIR_SECOND;
        const struct weir_reservation late = reserved(limit, "late", 8, true);
        scene.now_us += 20 * WEIR_SECOND;
        taken(limit, "late", 3);
        settle(limit, "late", late, 0);
        ck_assert_int_eq(peeked(limit, "late", 1).remaining, 7);
    }
}

CONTRACT_TEST(CONTRACT_TIME, settling_a_reservation_larger_than_the_new_limit_gives_back_no_later_permit, 20)
{
    CLOSED_BY(scene_close) struct scene scene;
    open_backend(&scene, _i);
    weir_limit *limit = scene_define_text(&scene, "limit", "token_bucket limit=1000 period=1000s");
    scene.now_us = 1700000000 * WEIR_SECOND;
    const struct weir_reservation larger = reserved(limit, "a", 25, true), large = reserved(limit, "a", 900, true);
    scene_define_text(&scene, "limit", "token_bucket limit=10 period=10s");
    ck_assert(!taken(limit, "a", 1).allowed);
    scene.now_us += 20 * WEIR_SECOND;
    ck_assert(taken(limit, "a", 10).allowed);
    settle(limit, "a", larger, 0);
    ck_assert(!taken(limit, "a", 1).allowed);
    settle(limit, "a", large, 0);
    ck_assert(!taken(limit, "a", 1).allowed);
}

CONTRACT_TEST(CONTRACT_TIME, what_was_charged_beyond_the_limit_comes_back_at_its_rate, 20)
{
    static const struct {
        const char *policy;
        int64_t retry_after_us; /* of one permit, after 25 were charged at a multiple of 10 s */
    } cases[] = {
        { "token_bucket limit=10 period=10s", 16 * WEIR_SECOND },
        { "token_bucket limit=10 period=10s burst=20", 6 * WEIR_SECOND },
        { "leaky_bucket limit=10 period=10s", 16 * WEIR_SECOND },
        { "token_bucket limit=10 period=10s refill=interval", 20 * WEIR_SECOND },
        { "fixed_window limit=10 period=10s", 10 * WEIR_SECOND },
        { "sliding_window limit=10 period=10s", 11 * WEIR_SECOND },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        CLOSED_BY(scene_close) struct scene scene;
        open_backend(&scene, _i);
        weir_limit *limit = scene_define_text(&scene, "limit", cases[i].policy);
        scene.now_us = 1700000000 * WEIR_SECOND;
        charge(limit, "a", 20);
        charge(limit, "a", 5);
        const struct weir_decision denied = taken(limit, "a", 1);
        ck_assert(!denied.allowed && denied.remaining == 0);
        ck_assert_int_eq(denied.retry_after_us, cases[i].retry_after_us);
        scene.now_us += cases[i].retry_after_us - 1;
        ck_assert(!peeked(limit, "a", 1).allowed);
        scene.now_us++;
        ck_assert(taken(limit, "a", 1).allowed);
    }
}

CONTRACT_TEST(CONTRACT_COUNTS, a_refund_gives_back_and_never_more_than_was_taken, 10)
{
    CLOSED_BY(scene_close) struct scene scene;
    open_backend(&scene, _i);
    weir_limit *limit = scene_define_text(&scene, "limit", "fixed_window limit=10 period=1h");
    taken(limit, "a", 7);
    refund(limit, "a", 2);
    ck_assert_int_eq(peeked(limit, "a", 1).remaining, 5);
    refund(limit, "a", 6);
    ck_assert_int_eq(peeked(limit, "a", 1).remaining, 10);
    ck_assert_int_eq(peeked(limit, "a", 1).reset_after_us, 0);
    refund(limit, "a", WEIR_MAX_PERMITS);
    refund(limit, "never seen", WEIR_MAX_PERMITS);
    ck_assert_int_eq(peeked(limit, "a", 1).remaining, 10);
    ck_assert_int_eq(peeked(limit, "never seen", 1).remaining, 10);
    ck_assert(!taken(limit, "never seen", 11).allowed);
}

CONTRACT_TEST(CONTRACT_COUNTS, a_reset_forgets_the_key_and_no_other, 10)
{
    CLOSED_BY(scene_close) struct scene scene;
    open_backend(&scene, _i);
    weir_limit *limit = scene_define_text(&scene, "limit", "fixed_window limit=10 period=1h");
    taken(limit, "a", 10);
    taken(limit, "b", 10);
    must_succeed(weir_reset(limit, weir_key_text("a")));
    must_succeed(weir_reset(limit, weir_key_text("never seen")));
    ck_assert_int_eq(peeked(limit, "a", 1).remaining, 10);
    ck_assert_int_eq(peeked(limit, "b", 1).remaining, 0);
    ck_assert(taken(limit, "a", 10).allowed);
}

CONTRACT_TEST(CONTRACT_COUNTS, a_cost_that_can_never_fit_is_denied_for_ever, 10)
{
    static const char *const policies[] = { "token_bucket limit=10 period=1s debt=2",
                                            "leaky_bucket limit=1 period=1s capacity=12",
                                            "token_bucket limit=3 period=1s burst=12 refill=interval",
                                            "fixed_window limit=12 period=1s", "sliding_window limit=12 period=1s" };
    CLOSED_BY(scene_close) struct scene scene;
    open_backend(&scene, _i);
    for (size_t i = 0; i < sizeof policies / sizeof policies[0]; i++) {
        char name[32];
        snprintf(name, sizeof name, "limit-%zu", i);
        weir_limit *limit = scene_define_text(&scene, name, policies[i]);
        const struct weir_decision never = taken(limit, "a", 13);
        ck_assert_msg(!never.allowed && never.retry_after_us == WEIR_NEVER && never.limit == 12, "%s", policies[i]);
        ck_assert_int_eq(taken(limit, "a", WEIR_MAX_PERMITS).retry_after_us, WEIR_NEVER);
        ck_assert_msg(taken(limit, "a", 12).allowed, "%s", policies[i]);
    }
}

/* ---- Several at once ---- */

static struct weir_decision tried_all(struct scene *scene, const struct weir_request *requests, size_t n)
{
    struct weir_decision decision;
    must_succeed(weir_try_all(scene->limiter, requests, n, &decision));
    return decision;
}

CONTRACT_TEST(CONTRACT_COUNTS, several_limits_are_all_charged_or_none_and_the_one_that_binds_is_told, 10)
{
    CLOSED_BY(scene_close) struct scene scene;
    open_backend(&scene, _i);
    weir_limit *wide_limit = scene_define_text(&scene, "wide", "fixed_window limit=10 period=1h");
    weir_limit *narrow = scene_define_text(&scene, "narrow", "fixed_window limit=3 period=1h");
    const struct weir_request requests[] = { request_of(wide_limit, "a", 1), request_of(narrow, "a", 1),
                                             request_of(wide_limit, "b", 2) };
    for (int left = 2; left >= 0; left--) {
        struct weir_decision decision = tried_all(&scene, requests, 3);
        ck_assert(decision.allowed);
        ck_assert_int_eq(decision.remaining, left);
        ck_assert_int_eq(decision.limit, 3);
        ck_assert_int_eq(decision.bound_by, 1);
    }
    for (int i = 0; i < 5; i++) {
        struct weir_decision decision = tried_all(&scene, requests, 3);
        ck_assert(!decision.allowed);
        ck_assert_int_eq(decision.bound_by, 1);
        ck_assert_int_eq(decision.limit, 3);
        ck_assert_int_eq(decision.remaining, 0);
    }
    ck_assert_int_eq(peeked(wide_limit, "a", 1).remaining, 7);
    ck_assert_int_eq(peeked(wide_limit, "b", 1).remaining, 4);
}

CONTRACT_TEST(CONTRACT_COUNTS, a_cost_that_can_never_fit_binds_more_than_any_wait, 10)
{
    CLOSED_BY(scene_close) struct scene scene;
    open_backend(&scene, _i);
    weir_limit *wide_limit = scene_define_text(&scene, "wide", "fixed_window limit=10 period=1h");
    weir_limit *narrow = scene_define_text(&scene, "narrow", "fixed_window limit=3 period=1h");
    taken(wide_limit, "a", 10);
    const struct weir_request requests[] = { request_of(wide_limit, "a", 1), request_of(narrow, "b", 4) };
    struct weir_decision decision = tried_all(&scene, requests, 2);
    ck_assert(!decision.allowed);
    ck_assert_int_eq(decision.retry_after_us, WEIR_NEVER);
    ck_assert_int_eq(decision.bound_by, 1);
    ck_assert_int_eq(decision.limit, 3);
    ck_assert_int_eq(decision.remaining, 0);
}

CONTRACT_TEST(CONTRACT_COUNTS, the_same_limit_and_key_twice_in_one_event_adds_up, 10)
{
    CLOSED_BY(scene_close) struct scene scene;
    open_backend(&scene, _i);
    weir_limit *limit = scene_define_text(&scene, "limit", "fixed_window limit=10 period=1h");
    weir_limit *other = scene_define_text(&scene, "other", "fixed_window limit=10 period=1h");
    const struct weir_request requests[] = { request_of(limit, "a", 3), request_of(other, "a", 1),
                                             request_of(limit, "a", 4) };
    struct weir_decision decision = tried_all(&scene, requests, 3);
    ck_assert(decision.allowed);
    ck_assert_int_eq(decision.remaining, 3);
    ck_assert_int_eq(decision.bound_by, 0);
    ck_assert(!tried_all(&scene, requests, 3).allowed); /* 3 would fit, 3 + 4 do not */
    ck_assert_int_eq(peeked(limit, "a", 1).remaining, 3);
    ck_assert_int_eq(peeked(other, "a", 1).remaining, 9);

    struct weir_request most[WEIR_MAX_ALL];
    for (int i = 0; i < WEIR_MAX_ALL; i++)
        most[i] = request_of(limit, "b", WEIR_MAX_PERMITS);
    ck_assert_int_eq(tried_all(&scene, most, WEIR_MAX_ALL).retry_after_us, WEIR_NEVER);
    ck_assert_int_eq(peeked(limit, "b", 1).remaining, 10);
}

CONTRACT_TEST(CONTRACT_COUNTS, a_batch_decides_as_its_requests_would_one_by_one, 30)
{
    enum { MOST = 200 };
    static struct weir_request requests[MOST];
    static struct weir_decision decisions[MOST];
    struct scene batch, single;
    struct chance chance = chance_make(11);
    open_backend(&batch, _i);
    open_backend(&single, _i);
    for (int round = 0; round < 20; round++) {
        char names[2][32];
        for (int i = 0; i < 2; i++) {
            snprintf(names[i], sizeof names[i], "limit-%d-%d", round, i);
            scene_define_text(&batch, names[i], "fixed_window limit=20 period=1h");
            scene_define_text(&single, names[i], "fixed_window limit=20 period=1h");
        }
        static const char *const keys[] = { "a", "b", "c", "d" };
        size_t n = (size_t)chance_between(&chance, 0, MOST);
        for (size_t i = 0; i < n; i++)
            requests[i] = request_of(weir_limit_find(batch.limiter, names[chance_between(&chance, 0, 1)]),
                                     keys[chance_between(&chance, 0, 3)], chance_between(&chance, 1, 4));
        must_succeed(weir_try_batch(batch.limiter, requests, n, decisions));
        for (size_t i = 0; i < n; i++) {
            weir_limit *twin = weir_limit_find(single.limiter, weir_limit_name(requests[i].limit));
            struct weir_decision alone = taken(twin, requests[i].key.data, requests[i].cost);
            if (backends[_i]->sources_vary)
                alone.source = decisions[i].source;
            assert_decision_is(&decisions[i], &alone, "in a batch, and alone");
        }
    }
    scene_close(&single);
    scene_close(&batch);
}

struct completion {
    atomic_int runs;
    atomic_int status;
};

static void complete(struct weir_op *op, int status)
{
    struct completion *completion = op->user;
    atomic_store(&completion->status, status);
    atomic_fetch_add(&completion->runs, 1);
}

/* Submit and wait for the answer in op->decision. */
static void submit_and_wait(weir *limiter, struct weir_op *op)
{
    struct completion completion = { 0, 0 };
    op->done = complete;
    op->user = &completion;
    int result = weir_submit(limiter, op);
    ck_assert(result == WEIR_OK || result == 1);
    while (result == 1 && atomic_load(&completion.runs) == 0)
        nanosleep(&(struct timespec){ .tv_nsec = 100000 }, NULL);
    ck_assert_int_eq(atomic_load(&completion.runs), result);
    ck_assert_int_eq(atomic_load(&completion.status), WEIR_OK);
}

CONTRACT_TEST(CONTRACT_COUNTS, peeks_resets_groups_and_acquires_can_be_submitted_too, 30)
{
    CLOSED_BY(scene_close) struct scene scene;
    open_backend(&scene, _i);
    weir_limit *wide = scene_define_text(&scene, "wide", "fixed_window limit=10 period=1h");
    weir_limit *narrow = scene_define_text(&scene, "narrow", "fixed_window limit=4 period=1h");
    const struct weir_request requests[] = { request_of(wide, "a", 3), request_of(narrow, "a", 4) };
    struct weir_reservation reservations[2];
    struct weir_op op = { .requests = requests, .n = 2, .verb = WEIR_OP_TRY_ALL };
    submit_and_wait(scene.limiter, &op);
    ck_assert(op.decision.allowed && op.decision.remaining == 0 && op.decision.bound_by == 1);
    op.request = request_of(wide, "a", 1);
    op.verb = WEIR_OP_PEEK;
    submit_and_wait(scene.limiter, &op);
    ck_assert(op.decision.allowed && op.decision.remaining == 7);
    op.verb = WEIR_OP_TRY_ALL;
    submit_and_wait(scene.limiter, &op);
    ck_assert(!op.decision.allowed && op.decision.bound_by == 1);
    ck_assert_int_eq(peeked(wide, "a", 1).remaining, 7); /* nothing of the group was charged */
    op.request = request_of(narrow, "a", 0);             /* the cost means nothing */
    op.verb = WEIR_OP_RESET;
    submit_and_wait(scene.limiter, &op);
    ck_assert_int_eq(peeked(narrow, "a", 1).remaining, 4);
    op.verb = WEIR_OP_RESERVE_ALL;
    op.reservations = reservations;
    submit_and_wait(scene.limiter, &op);
    ck_assert(op.decision.allowed && reservations[0].permits == 3 && reservations[1].permits == 4);
    must_succeed(weir_settle(wide, weir_key_text("a"), &reservations[0], 1));
    ck_assert_int_eq(peeked(wide, "a", 1).remaining, 6);
    op.request = request_of(wide, "a", 6);
    op.verb = WEIR_OP_ACQUIRE;
    submit_and_wait(scene.limiter, &op);
    ck_assert(op.decision.allowed && op.decision.remaining == 0);
    submit_and_wait(scene.limiter, &op);
    ck_assert(!op.decision.allowed && op.decision.retry_after_us > 0);

    const struct weir_op good = op;
    scene.log_allowed = true;
    op.max_wait_us = -1;
    ck_assert_int_eq(weir_submit(scene.limiter, &op), WEIR_EINVAL);
    op = good;
    op.done = NULL;
    ck_assert_int_eq(weir_submit(scene.limiter, &op), WEIR_EINVAL);
    op = good;
    op.verb = WEIR_OP_RESERVE_ALL;
    op.reservations = NULL;
    ck_assert_int_eq(weir_submit(scene.limiter, &op), WEIR_EINVAL);
    op.verb = WEIR_OP_TRY_ALL;
    op.n = WEIR_MAX_ALL + 1;
    ck_assert_int_eq(weir_submit(scene.limiter, &op), WEIR_EINVAL);
    op.n = 2;
    op.requests = NULL;
    ck_assert_int_eq(weir_submit(scene.limiter, &op), WEIR_EINVAL);
    ck_assert_int_eq(weir_cancel(scene.limiter, &op), WEIR_EINVAL);
    ck_assert_int_eq(weir_cancel(scene.limiter, NULL), WEIR_EINVAL);
    ck_assert_int_eq(weir_cancel(NULL, &op), WEIR_EINVAL);
}

CONTRACT_TEST(CONTRACT_COUNTS, what_is_not_a_take_can_be_submitted_too, 10)
{
    CLOSED_BY(scene_close) struct scene scene;
    open_backend(&scene, _i);
    weir_limit *limit = scene_define_text(&scene, "limit", "fixed_window limit=10 period=1h");
    struct weir_op op = { .request = request_of(limit, "a", 6), .verb = WEIR_OP_RESERVE };
    submit_and_wait(scene.limiter, &op);
    ck_assert(op.decision.allowed && op.reservation.permits == 6);
    op.verb = WEIR_OP_RENEW;
    submit_and_wait(scene.limiter, &op);
    ck_assert(op.decision.allowed && op.reservation.permits == 6);
    ck_assert_int_eq(peeked(limit, "a", 1).remaining, 4);
    op.verb = WEIR_OP_SETTLE;
    op.request.cost = 2;
    submit_and_wait(scene.limiter, &op);
    ck_assert_int_eq(peeked(limit, "a", 1).remaining, 8);
    op.request.cost = 9; /* beyond the 6 that it had reserved */
    submit_and_wait(scene.limiter, &op);
    ck_assert_int_eq(peeked(limit, "a", 1).remaining, 5);
    op.verb = WEIR_OP_CHARGE;
    op.request.cost = 7;
    submit_and_wait(scene.limiter, &op);
    ck_assert(!taken(limit, "a", 1).allowed);
    op.verb = WEIR_OP_REFUND;
    op.request.cost = 3;
    submit_and_wait(scene.limiter, &op);
    ck_assert_int_eq(peeked(limit, "a", 1).remaining, 1);
    op.verb = WEIR_OP_RESERVE;
    submit_and_wait(scene.limiter, &op);
    ck_assert(!op.decision.allowed && op.reservation.permits == -1);
    op.verb = WEIR_OP_SETTLE; /* of nothing */
    submit_and_wait(scene.limiter, &op);
    ck_assert_int_eq(peeked(limit, "a", 1).remaining, 1);
    op.verb = WEIR_OP_RENEW; /* the same: it reserves */
    submit_and_wait(scene.limiter, &op);
    ck_assert(!op.decision.allowed && op.reservation.permits == -1);
    op.request.cost = 1;
    submit_and_wait(scene.limiter, &op);
    ck_assert(op.decision.allowed && op.reservation.permits == 1);
    op.verb = WEIR_OP_SETTLE;
    op.request.cost = 0;
    submit_and_wait(scene.limiter, &op);
    op.request.cost = 3;

    const struct weir_op good = op;
    scene.log_allowed = true;
    op.request.cost = -1;
    ck_assert_int_eq(weir_submit(scene.limiter, &op), WEIR_EINVAL);
    op = good;
    op.reservation.permits = -2;
    ck_assert_int_eq(weir_submit(scene.limiter, &op), WEIR_EINVAL);
    op.verb = WEIR_OP_RENEW;
    op.reservation.permits = 2;
    ck_assert_int_eq(weir_submit(scene.limiter, &op), WEIR_EINVAL);
    op = good;
    op.verb = (enum weir_op_verb)(WEIR_OP_ACQUIRE + 1);
    ck_assert_int_eq(weir_submit(scene.limiter, &op), WEIR_EINVAL);
    op = good;
    op.verb = WEIR_OP_CHARGE;
    op.request.now_us = 1;
    ck_assert_int_eq(weir_submit(scene.limiter, &op), WEIR_EINVAL);
    ck_assert_int_eq(peeked(limit, "a", 1).remaining, 1);
}

CONTRACT_TEST(CONTRACT_COUNTS, a_submitted_request_is_decided_at_once_or_once_later, 10)
{
    CLOSED_BY(scene_close) struct scene scene;
    open_backend(&scene, _i);
    weir_limit *limit = scene_define_text(&scene, "limit", "fixed_window limit=2 period=1h");
    for (int i = 0; i < 4; i++) {
        struct weir_op op = { .request = request_of(limit, "a", 1) };
        submit_and_wait(scene.limiter, &op);
        ck_assert(op.decision.allowed == (i < 2));
        ck_assert_int_eq(op.decision.remaining, i < 2 ? 1 - i : 0);
    }
}

CONTRACT_TEST(CONTRACT_COUNTS, the_same_definition_again_keeps_the_handle_and_what_was_used, 10)
{
    CLOSED_BY(scene_close) struct scene scene;
    open_backend(&scene, _i);
    weir_limit *limit = scene_define_text(&scene, "limit", "fixed_window limit=10 period=1h");
    taken(limit, "a", 4);
    struct weir_decision before = peeked(limit, "a", 7);
    ck_assert_ptr_eq(scene_define_text(&scene, "limit", "fixed_window limit=10 period=60m"), limit);
    struct weir_decision after = peeked(limit, "a", 7);
    assert_decision_is(&after, &before, "after the same definition");
    scene.log_allowed = true;
    struct weir_policy bad = { .limit = -1, .period_us = 1 };
    ck_assert_int_eq(weir_limit_define(scene.limiter, "limit", &bad, NULL), WEIR_EINVAL);
    after = peeked(limit, "a", 7);
    assert_decision_is(&after, &before, "after a definition that was refused");
}

CONTRACT_TEST(CONTRACT_COUNTS, an_override_decides_for_its_keys_alone_and_they_keep_what_they_have_used, 10)
{
    CLOSED_BY(scene_close) struct scene scene;
    struct weir_decision decisions[3];
    open_backend(&scene, _i);
    weir_limit *limit = scene_define_text(&scene, "api", "fixed_window limit=10 period=1d");
    ck_assert_int_eq(taken(limit, "gold-1", 4).remaining, 6);
    ck_assert_int_eq(taken(limit, "lead", 4).remaining, 6);
    scene_define_text(&scene, "api/gold-*", "fixed_window limit=20 period=1d");
    ck_assert_int_eq(peeked(limit, "gold-1", 4).remaining, 16); /* no lease that the next change would lose */
    scene_define_text(&scene, "api/gold-1", "fixed_window limit=40 period=1d");
    ck_assert_int_eq(taken(limit, "gold-1", 26).remaining, 10);
    const struct weir_request requests[] = { request_of(limit, "gold-1", 5), request_of(limit, "gold-2", 15),
                                             request_of(limit, "lead", 1) };
    must_succeed(weir_try_all(scene.limiter, requests, 3, &decisions[0]));
    ck_assert(decisions[0].allowed);
    must_succeed(weir_try_batch(scene.limiter, requests, 3, decisions));
    ck_assert(decisions[0].allowed && !decisions[1].allowed && decisions[2].allowed);
    ck_assert_int_eq(decisions[0].remaining, 0);
    ck_assert_int_eq(decisions[1].limit, 20);
    ck_assert_int_eq(decisions[2].remaining, 4);
    must_succeed(weir_limit_define(scene.limiter, "api/gold-*", NULL, NULL));
    ck_assert_int_eq(peeked(limit, "gold-1", 1).limit, 40);
    ck_assert_int_eq(peeked(limit, "gold-2", 1).limit, 10);
    must_succeed(weir_limit_define(scene.limiter, "api/gold-1", NULL, NULL));
    const struct weir_decision decision = peeked(limit, "gold-1", 1); /* used 40 of 10 */
    ck_assert(!decision.allowed && decision.limit == 10);
    ck_assert_int_eq(taken(limit, "lead", 4).remaining, 0);
    refund(limit, "lead", 3);
    must_succeed(weir_reset(limit, weir_key_text("gold-1")));
    ck_assert_int_eq(peeked(limit, "gold-1", 1).remaining, 10);
}

CONTRACT_TEST(CONTRACT_COUNTS, a_shadow_limit_counts_and_denies_nothing, 10)
{
    CLOSED_BY(scene_close) struct scene scene;
    open_backend(&scene, _i);
    weir_limit *shadow = scene_define_text(&scene, "shadow", "fixed_window limit=3 period=1h shadow");
    for (int i = 0; i < 5; i++) {
        struct weir_decision decision = taken(shadow, "a", 1);
        ck_assert(decision.allowed);
        ck_assert(decision.would_deny == (i >= 3));
        ck_assert_int_eq(decision.retry_after_us, 0);
        ck_assert_int_eq(decision.remaining, i < 3 ? 2 - i : 0);
    }
    ck_assert(peeked(shadow, "a", 1).allowed && peeked(shadow, "a", 1).would_deny);
    struct weir_limit_stats stats = { .size = sizeof stats };
    must_succeed(weir_limit_stats_read(shadow, &stats));
    ck_assert_uint_eq(stats.allowed, 5);
    ck_assert_uint_eq(stats.denied, 0);
    ck_assert_uint_eq(stats.would_deny, 2);
    ck_assert_uint_eq(stats.permits, 3);

    scene_define_text(&scene, "shadow", "fixed_window limit=3 period=1h"); /* what was used stays used */
    ck_assert(!taken(shadow, "a", 1).allowed);
    ck_assert(!taken(shadow, "a", 1).would_deny);
}

CONTRACT_TEST(CONTRACT_COUNTS, a_shadow_limit_binds_no_group_and_is_charged_with_it, 10)
{
    CLOSED_BY(scene_close) struct scene scene;
    open_backend(&scene, _i);
    weir_limit *small = scene_define_text(&scene, "small", "fixed_window limit=2 period=1h shadow");
    weir_limit *tiny = scene_define_text(&scene, "tiny", "fixed_window limit=1 period=1h shadow");
    weir_limit *large = scene_define_text(&scene, "large", "fixed_window limit=3 period=1h");
    const struct weir_request requests[] = { request_of(small, "a", 1), request_of(large, "a", 1),
                                             request_of(tiny, "a", 1) };
    struct weir_decision decision;
    for (int i = 0; i < 4; i++) {
        must_succeed(weir_try_all(scene.limiter, requests, 3, &decision));
        ck_assert(decision.allowed == (i < 3));
        ck_assert(decision.would_deny == (i == 1 || i == 2));
        ck_assert_int_eq(decision.would_deny_by, i == 1 ? 2 : 0);
        ck_assert_int_eq(decision.bound_by, 1);
        ck_assert_int_eq(decision.limit, 3);
        ck_assert_int_eq(decision.remaining, i < 3 ? 2 - i : 0);
    }
    ck_assert_int_eq(peeked(small, "a", 1).remaining, 0);
    must_succeed(weir_reset(small, weir_key_text("a")));
    must_succeed(weir_try_all(scene.limiter, requests, 3, &decision)); /* denied by `large`: nothing is charged */
    ck_assert(!decision.allowed);
    ck_assert_int_eq(peeked(small, "a", 1).remaining, 2);

    must_succeed(weir_try_all(scene.limiter, &requests[0], 1, &decision)); /* no limit of the group is enforced */
    ck_assert(decision.allowed && !decision.would_deny);
    ck_assert_int_eq(decision.remaining, 1);
    const struct weir_request twice[] = { requests[0], requests[0] };
    must_succeed(weir_try_all(scene.limiter, twice, 2, &decision));
    ck_assert(decision.allowed && decision.would_deny);

    struct weir_limit_stats stats = { .size = sizeof stats };
    must_succeed(weir_limit_stats_read(small, &stats));
    ck_assert_uint_eq(stats.allowed, 5);
    ck_assert_uint_eq(stats.would_deny, 2);
    ck_assert_uint_eq(stats.permits, 3);
    must_succeed(weir_limit_stats_read(large, &stats));
    ck_assert_uint_eq(stats.allowed, 3);
    ck_assert_uint_eq(stats.denied, 2);
    ck_assert_uint_eq(stats.permits, 3);
    ck_assert_uint_eq(stats_of(scene.limiter).allowed, 5); /* each call once */
    ck_assert_uint_eq(stats_of(scene.limiter).denied, 2);
}

CONTRACT_TEST(CONTRACT_COUNTS, each_limit_counts_its_own_answers_by_every_verb, 10)
{
    CLOSED_BY(scene_close) struct scene scene;
    open_backend(&scene, _i);
    weir_limit *limit = scene_define_text(&scene, "limit", "fixed_window limit=30 period=1h");
    weir_limit *other = scene_define_text(&scene, "other", "fixed_window limit=5 period=1h");
    struct weir_limit_stats stats = { .size = sizeof stats };
    struct weir_decision decisions[2];
    taken(limit, "a", 2);
    taken(limit, "a", 29);
    peeked(limit, "a", 1);
    refund(limit, "a", 1);
    must_succeed(weir_acquire(limit, weir_key_text("a"), 26, 0, decisions));
    const struct weir_request both[] = { request_of(limit, "a", 1), request_of(other, "a", 5) };
    must_succeed(weir_try_batch(scene.limiter, both, 2, decisions));
    must_succeed(weir_try_all(scene.limiter, both, 2, decisions)); /* `other` denies; `limit` would have admitted */
    struct weir_op op = { .request = request_of(limit, "a", 1) };
    submit_and_wait(scene.limiter, &op);

    must_succeed(weir_limit_stats_read(limit, &stats));
    ck_assert_uint_eq(stats.allowed, 4);
    ck_assert_uint_eq(stats.denied, 1);
    ck_assert_uint_eq(stats.permits, 30);
    ck_assert_uint_eq(stats.near, 2); /* when 2 and 1 of 30 were left */
    uint64_t sources = 0;
    for (int source = 0; source < WEIR_SOURCES_LEN; source++)
        sources += stats.by_source[source];
    ck_assert_uint_eq(sources, 5);
    must_succeed(weir_limit_stats_read(other, &stats));
    ck_assert_uint_eq(stats.allowed, 1);
    ck_assert_uint_eq(stats.denied, 1);
    ck_assert_uint_eq(stats.permits, 5);
}

CONTRACT_TEST(CONTRACT_COUNTS, every_answer_is_counted_once, 10)
{
    CLOSED_BY(scene_close) struct scene scene;
    struct weir_stats stats = { .size = sizeof stats };
    open_backend(&scene, _i);
    weir_limit *limit = scene_define_text(&scene, "limit", "fixed_window limit=5 period=1h");
    const struct weir_request three[] = { request_of(limit, "b", 2), request_of(limit, "c", 2),
                                          request_of(limit, "d", 9) };
    struct weir_decision decisions[3];
    struct weir_op op = { .request = request_of(limit, "e", 5) };
    must_succeed(weir_stats_read(scene.limiter, &stats));
    ck_assert_uint_eq(stats.allowed + stats.denied + stats.errors, 0);
    for (int i = 0; i < 8; i++)
        taken(limit, "a", 1);                                               /* 5 and 3 */
    must_succeed(weir_try_batch(scene.limiter, three, 3, decisions));       /* 2 and 1 */
    must_succeed(weir_try_all(scene.limiter, three, 2, decisions));         /* 1 */
    must_succeed(weir_try_all(scene.limiter, three, 3, decisions));         /* and 1 */
    must_succeed(weir_acquire(limit, weir_key_text("f"), 1, 0, decisions)); /* 1 */
    must_succeed(weir_acquire(limit, weir_key_text("f"), 5, 0, decisions)); /* and 1 */
    peeked(limit, "a", 1);
    refund(limit, "a", 1);
    must_succeed(weir_reset(limit, weir_key_text("a")));
    submit_and_wait(scene.limiter, &op); /* 1 */
    must_succeed(weir_stats_read(scene.limiter, &stats));
    ck_assert_uint_eq(stats.allowed, 10);
    ck_assert_uint_eq(stats.denied, 6);
    ck_assert_uint_eq(stats.errors, 0);
    ck_assert_int_eq(stats.share_weight, 1);
    ck_assert_int_eq(stats.share_total, 1);
    stats.size = 1;
    ck_assert_int_eq(weir_stats_read(scene.limiter, &stats), WEIR_EINVAL);
    ck_assert_int_eq(weir_stats_read(scene.limiter, NULL), WEIR_EINVAL);
    ck_assert_int_eq(weir_stats_read(NULL, &stats), WEIR_EINVAL);
}

/* ---- Time ---- */

static const char *const one_of_each[] = {
    "token_bucket limit=10 period=1s",
    "token_bucket limit=10 period=1s burst=20 debt=5",
    "token_bucket limit=10 period=1s refill=interval",
    "token_bucket limit=5 period=1s refill=interval align=epoch burst=15",
    "fixed_window limit=10 period=1s",
    "fixed_window limit=12 period=1m align=epoch",
    "sliding_window limit=10 period=1s",
    "sliding_window limit=30 period=1m blocks=60",
    "leaky_bucket limit=10 period=1s",
    "leaky_bucket limit=7 period=1m capacity=25",
};
enum { EACH = sizeof one_of_each / sizeof one_of_each[0] };

CONTRACT_TEST(CONTRACT_TIME, every_algorithm_denies_when_used_up_and_admits_again_at_retry_after, 10)
{
    CLOSED_BY(scene_close) struct scene scene;
    open_backend(&scene, _i);
    for (int i = 0; i < EACH; i++) {
        char name[32];
        snprintf(name, sizeof name, "limit-%d", i);
        weir_limit *limit = scene_define_text(&scene, name, one_of_each[i]);
        int64_t size = peeked(limit, "a", 1).limit;
        ck_assert_msg(taken(limit, "a", size).allowed, "%s", one_of_each[i]);
        struct weir_decision denied = taken(limit, "a", 1);
        ck_assert_msg(!denied.allowed && denied.retry_after_us > 0 && denied.reset_after_us >= denied.retry_after_us,
                      "%s", one_of_each[i]);
        scene.now_us += denied.retry_after_us - 1;
        ck_assert_msg(!taken(limit, "a", 1).allowed, "%s", one_of_each[i]);
        scene.now_us++;
        ck_assert_msg(taken(limit, "a", 1).allowed, "%s", one_of_each[i]);
        scene.now_us += peeked(limit, "a", 1).reset_after_us;
        ck_assert_msg(taken(limit, "a", size).allowed, "%s", one_of_each[i]);
    }
}

CONTRACT_TEST(CONTRACT_TIME, a_leaky_bucket_tells_each_caller_how_long_to_wait, 10)
{
    CLOSED_BY(scene_close) struct scene scene;
    open_backend(&scene, _i);
    weir_limit *limit = scene_define_text(&scene, "limit", "leaky_bucket limit=10 period=1s capacity=3");
    for (int i = 0; i < 3; i++)
        ck_assert_int_eq(taken(limit, "a", 1).delay_us, i * 100000);
    struct weir_decision denied = taken(limit, "a", 1);
    ck_assert(!denied.allowed && denied.delay_us == 0 && denied.retry_after_us == 100000);
    scene.now_us += 150000;
    ck_assert_int_eq(taken(limit, "a", 1).delay_us, 150000);
}

CONTRACT_TEST(CONTRACT_TIME, no_redefinition_hands_out_a_second_burst_or_keeps_denying, 10)
{
    CLOSED_BY(scene_close) struct scene scene;
    open_backend(&scene, _i);
    for (int from = 0; from < EACH; from++) {
        for (int to = 0; to < EACH; to++) {
            char name[32];
            snprintf(name, sizeof name, "limit-%d-%d", from, to);
            weir_limit *limit = scene_define_text(&scene, name, one_of_each[from]);
            int64_t old_size = peeked(limit, "a", 1).limit;
            ck_assert(taken(limit, "a", old_size).allowed && taken(limit, "b", 3).allowed);
            ck_assert_ptr_eq(scene_define_text(&scene, name, one_of_each[to]), limit);
            int64_t new_size = peeked(limit, "fresh", 1).limit;
            int64_t left = new_size > old_size ? new_size - old_size : 0;
            ck_assert_msg(peeked(limit, "a", 1).remaining == left && peeked(limit, "b", 1).remaining == new_size - 3,
                          "%s, then %s", one_of_each[from], one_of_each[to]);
            ck_assert(left == 0 || taken(limit, "a", left).allowed);
            ck_assert_msg(!taken(limit, "a", 1).allowed, "%s, then %s", one_of_each[from], one_of_each[to]);
            scene.now_us += peeked(limit, "a", 1).reset_after_us;
            ck_assert_msg(taken(limit, "a", new_size).allowed, "%s, then %s", one_of_each[from], one_of_each[to]);
        }
    }
}

CONTRACT_TEST(CONTRACT_TIME, a_request_with_a_time_of_its_own_is_decided_by_it, 10)
{
    CLOSED_BY(scene_close) struct scene scene;
    struct weir_decision decisions[3];
    open_backend(&scene, _i);
    weir_limit *limit = scene_define_text(&scene, "limit", "token_bucket limit=1 period=1s");
    struct weir_request requests[3];
    for (int i = 0; i < 3; i++) {
        requests[i] = request_of(limit, "a", 1);
        requests[i].now_us = scene.now_us + i * 600000;
    }
    must_succeed(weir_try_batch(scene.limiter, requests, 3, decisions));
    ck_assert(decisions[0].allowed && !decisions[1].allowed && decisions[2].allowed);
    ck_assert_int_eq(decisions[1].retry_after_us, 400000);
    struct weir_op op = { .request = requests[2] };
    op.request.now_us += 500000;
    submit_and_wait(scene.limiter, &op);
    ck_assert(!op.decision.allowed && op.decision.retry_after_us == 500000);
}

/* ---- Waiting ---- */

CONTRACT_TEST(CONTRACT_WAITS, an_acquire_that_cannot_be_served_within_its_bound_is_denied_at_once, 10)
{
    CLOSED_BY(scene_close) struct scene scene;
    struct weir_decision decision;
    open_backend(&scene, _i); /* its clock stands still: a call that waits would never return */
    weir_limit *limit = scene_define_text(&scene, "limit", "token_bucket limit=2 period=2h");
    weir_limit *queue = scene_define_text(&scene, "queue", "leaky_bucket limit=2 period=2h capacity=9");
    struct weir_key key = weir_key_text("a");
    must_succeed(weir_acquire(limit, key, 2, 0, &decision));
    ck_assert(decision.allowed);
    must_succeed(weir_acquire(limit, key, 1, WEIR_HOUR - 1, &decision));
    ck_assert(!decision.allowed);
    ck_assert_int_eq(decision.retry_after_us, WEIR_HOUR);
    must_succeed(weir_acquire(limit, key, 3, INT64_MAX, &decision));
    ck_assert(!decision.allowed && decision.retry_after_us == WEIR_NEVER);
    must_succeed(weir_acquire(queue, key, 1, 0, &decision));
    ck_assert(decision.allowed && decision.delay_us == 0);
    must_succeed(weir_acquire(queue, key, 1, WEIR_MINUTE, &decision));
    ck_assert(!decision.allowed && decision.delay_us == 0);
    ck_assert_int_ge(decision.retry_after_us, WEIR_HOUR - WEIR_MINUTE);
    ck_assert_int_lt(decision.retry_after_us, WEIR_HOUR); /* shorter by the permitted wait */
    ck_assert_int_eq(peeked(queue, "a", 1).remaining, 8); /* the declined permit was given back */
}

static weir *open_in_real_time(int backend)
{
    struct weir_options options = WEIR_OPTIONS_INIT;
    weir *limiter;
    must_succeed(backends[backend]->open(&options, &limiter));
    return limiter;
}

CONTRACT_TEST(CONTRACT_WAITS, an_acquire_waits_for_its_permits_and_gets_them, 60)
{
    struct weir_policy policies[] = { policy_of("token_bucket limit=1 period=20ms"),
                                      policy_of("fixed_window limit=1 period=20ms"),
                                      policy_of("leaky_bucket limit=1 period=20ms capacity=2") };
    CLOSED_BY(limiter_close) weir *limiter = open_in_real_time(_i);
    for (size_t i = 0; i < sizeof policies / sizeof policies[0]; i++) {
        weir_limit *limit;
        struct weir_decision decision;
        char name[32];
        snprintf(name, sizeof name, "limit-%zu", i);
        must_succeed(weir_limit_define(limiter, name, &policies[i], &limit));
        const int64_t began_us = clock_monotonic_us();
        for (int turn = 0; turn < 3; turn++) {
            must_succeed(weir_acquire(limit, weir_key_text("a"), 1, WEIR_MINUTE, &decision));
            ck_assert(decision.allowed);
            ck_assert_int_eq(decision.delay_us, 0);
            ck_assert_int_eq(decision.retry_after_us, 0);
            /* Whatever the clocks' paces; the first window may be about to end. */
            const int64_t periods = policies[i].algorithm == WEIR_FIXED_WINDOW ? turn - 1 : turn;
            ck_assert_int_gt(clock_monotonic_us() - began_us, periods * 20000 - 5000);
        }
    }
}

struct waiter {
    weir_limit *limit;
    pthread_t thread;
    atomic_int id; /* of the thread, once it runs */
    int result;
};

static void *wait_for_permits(void *user)
{
    struct waiter *waiter = user;
    struct weir_decision decision;
    atomic_store(&waiter->id, (int)syscall(SYS_gettid));
    waiter->result = weir_acquire(waiter->limit, weir_key_text("a"), 1, WEIR_DAY, &decision);
    return NULL;
}

/* Wait until the thread sleeps. No other thread holds a lock that it needs, so it sleeps in weir_acquire(). */
static void await_sleep(struct waiter *waiter)
{
    char path[64], state = '?';
    while (state != 'S') {
        nanosleep(&(struct timespec){ .tv_nsec = 2000000 }, NULL);
        snprintf(path, sizeof path, "/proc/self/task/%d/stat", atomic_load(&waiter->id));
        FILE *file = atomic_load(&waiter->id) != 0 ? fopen(path, "r") : NULL;
        if (file == NULL)
            continue;
        if (fscanf(file, "%*d (%*[^)]) %c", &state) != 1)
            state = '?';
        fclose(file);
    }
}

CONTRACT_TEST(CONTRACT_WAITS, closing_wakes_those_who_wait, 60)
{
    enum { WAITERS = 3 };
    struct waiter waiters[WAITERS];
    struct weir_decision decision;
    weir *limiter = open_in_real_time(_i);
    weir_limit *limit;
    limit = limit_of(limiter, "limit", "token_bucket limit=1 period=20h");
    must_succeed(weir_try(limit, weir_key_text("a"), 1, &decision));
    for (int i = 0; i < WAITERS; i++) {
        waiters[i] = (struct waiter){ .limit = limit, .result = 1 };
        ck_assert_int_eq(pthread_create(&waiters[i].thread, NULL, wait_for_permits, &waiters[i]), 0);
        await_sleep(&waiters[i]);
    }
    weir_close(limiter);
    for (int i = 0; i < WAITERS; i++) {
        pthread_join(waiters[i].thread, NULL);
        ck_assert_int_eq(waiters[i].result, WEIR_ECLOSED);
    }
}

CONTRACT_TEST(CONTRACT_WAITS, a_cancelled_waiter_waits_to_the_end_and_no_other_waits_longer, 60)
{
    struct waiter waiters[2];
    weir *limiter = open_in_real_time(_i);
    weir_limit *limit = limit_of(limiter, "limit", "token_bucket limit=1 period=20h");
    taken(limit, "a", 1);
    for (int i = 0; i < 2; i++) {
        waiters[i] = (struct waiter){ .limit = limit, .result = 1 };
        ck_assert_int_eq(pthread_create(&waiters[i].thread, NULL, wait_for_permits, &waiters[i]), 0);
        await_sleep(&waiters[i]);
    }
    pthread_cancel(waiters[0].thread);
    weir_close(limiter);
    for (int i = 0; i < 2; i++) {
        pthread_join(waiters[i].thread, NULL);
        ck_assert_int_eq(waiters[i].result, WEIR_ECLOSED);
    }
}

/* ---- Cancellation ---- */

struct cancelled_calls {
    struct scene scene;
    weir *another; /* to be closed */
    weir_limit *limit;
    struct completion completion;
    struct weir_op op;
    int submitted;
    pid_t child;
    const char *policy_file;
};

static int64_t cancellable_clock(void *user)
{
    const struct cancelled_calls *calls = user;
    pthread_testcancel();
    return calls->scene.now_us;
}

static void cancellable_log(void *user, enum weir_log_level level, const char *line)
{
    pthread_testcancel();
}

static int cancellable_visit(void *user, const struct weir_policy_line *line)
{
    pthread_testcancel();
    return 0;
}

static void cancellable_done(struct weir_op *op, int status)
{
    pthread_testcancel();
    complete(op, status);
}

static weir *open_for_cancellation(struct cancelled_calls *calls, int backend)
{
    struct weir_options options = WEIR_OPTIONS_INIT;
    weir *limiter;
    options.now_us = cancellable_clock;
    options.log = cancellable_log;
    options.user = calls;
    must_succeed(backends[backend]->open(&options, &limiter));
    return limiter;
}

static void call_everything(void *user)
{
    struct cancelled_calls *calls = user;
    weir *limiter = calls->scene.limiter;
    weir_limit *limit = calls->limit, *other;
    const struct weir_key key = weir_key_text("a");
    const struct weir_request requests[] = { request_of(limit, "a", 1), request_of(limit, "b", 1) };
    struct weir_stats stats = { .size = sizeof stats };
    struct weir_decision decisions[2];
    weir_handle *handle;
    int64_t now_us;
    must_succeed(weir_try(limit, key, 1, decisions));
    must(weir_try(limit, key, 0, decisions) == WEIR_EINVAL, "the log gets a line");
    must_succeed(weir_try_at(limit, key, 1, calls->scene.now_us, decisions));
    must_succeed(weir_acquire(limit, key, 1, 0, decisions));
    must_succeed(weir_peek(limit, key, 1, decisions));
    must_succeed(weir_refund(limit, key, 1));
    must_succeed(weir_reset(limit, key));
    must_succeed(weir_try_all(limiter, requests, 2, decisions));
    must_succeed(weir_try_batch(limiter, requests, 2, decisions));
    must_succeed(weir_key_resolve(limit, key, &handle));
    must_succeed(weir_handle_try(handle, 1, 0, decisions));
    weir_handle_free(handle);
    must_succeed(weir_clock(limiter, &now_us));
    must_succeed(weir_stats_read(limiter, &stats));
    must_succeed(weir_ping(limiter, WEIR_MINUTE, NULL, 0));
    must_succeed(weir_await_ready(limiter, WEIR_MINUTE));
    const struct weir_policy policy = policy_of("fixed_window limit=9 period=1h");
    must_succeed(weir_limit_define(limiter, "other", &policy, &other));
    must_succeed(weir_limits_load(limiter, calls->policy_file, NULL, 0));
    must_succeed(weir_policy_file_read(calls->policy_file, cancellable_visit, NULL, NULL, 0));
    must(weir_event_fd(limiter) >= 0, "an event fd");
    weir_dispatch(limiter);
    calls->submitted = weir_submit(limiter, &calls->op);
    weir_close(calls->another);
    must_succeed(weir_open(NULL, &calls->another));
    weir_close(calls->another);
    calls->child = fork();
    if (calls->child == 0)
        _exit(0);
}

CONTRACT_TEST(CONTRACT_COUNTS, no_call_is_a_cancellation_point, 60)
{
    static struct cancelled_calls calls;
    char path[] = "/tmp/weir-cancel-XXXXXX";
    const int fd = mkstemp(path);
    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(dprintf(fd, "filed = fixed_window limit=9 period=1h\n"), 39);
    close(fd);
    calls = (struct cancelled_calls){ .policy_file = path };
    calls.scene.now_us = INT64_C(1790000000123456);
    calls.scene.limiter = open_for_cancellation(&calls, _i);
    calls.another = open_for_cancellation(&calls, _i);
    calls.limit = limit_of(calls.scene.limiter, "limit", "fixed_window limit=90 period=1h");
    calls.op = (struct weir_op){ .request = request_of(calls.limit, "a", 1),
                                 .done = cancellable_done,
                                 .user = &calls.completion };
    const bool all_returned = ends_uncancelled(call_everything, &calls);
    remove(path);
    ck_assert(all_returned);
    assert_child_succeeds(calls.child);
    ck_assert_int_ge(calls.submitted, 0);
    while (calls.submitted == 1 && weir_dispatch(calls.scene.limiter) == 0)
        nanosleep(&(struct timespec){ .tv_nsec = 100000 }, NULL);
    ck_assert_int_eq(atomic_load(&calls.completion.runs), calls.submitted);
    weir_close(calls.scene.limiter);
}

/* ---- The suite ---- */

/* Check keeps the names of its cases by address. */
static char titles[BACKENDS_MOST][CONTRACT_MOST][160];

void contract_add(Suite *suite, const struct contract_backend *backend)
{
    if (backend_count == BACKENDS_MOST)
        abort();
    const int index = backend_count++;
    backends[index] = backend;
    for (int i = 0; i < contract_count; i++) {
        const struct contract_test *test = &contract[i];
        if (!(backend->parts & test->part))
            continue;
        snprintf(titles[index][i], sizeof titles[index][i], "%s: %s", backend->name, test->name);
        TCase *alone = tcase_create(titles[index][i]);
        tcase_set_timeout(alone, test->timeout_seconds);
        tcase_add_loop_test(alone, test->test, index, index + 1);
        suite_add_tcase(suite, alone);
    }
}
