/* test_redis_denials.c - a key that Redis denies is read instead of decided by a script. The tests look at the commands
 * that the server gets, at changes made by other instances, and at servers that answer a read oddly. */
#include "redis_place.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TIMEOUT_US = 20 * 1000 * 1000 };

static int64_t scripts_run(struct place *place)
{
    return place_info(place, "commandstats", "cmdstat_evalsha:calls=");
}

/* Take until the key denies, which it does by its script, and return that denial. */
static struct weir_decision exhaust(weir_limit *limit, const char *key, int64_t cost)
{
    struct weir_decision decision;
    do
        decision = taken(limit, key, cost);
    while (decision.allowed);
    return decision;
}

static void assert_denied_as(struct weir_decision decision, const struct weir_decision *before)
{
    ck_assert(!decision.allowed);
    ck_assert_int_eq(decision.source, WEIR_BY_REDIS);
    ck_assert_int_eq(decision.limit, before->limit);
    ck_assert_int_eq(decision.remaining, before->remaining);
    ck_assert_int_le(decision.retry_after_us, before->retry_after_us);
    ck_assert_int_le(decision.reset_after_us, before->reset_after_us);
    ck_assert_int_gt(decision.retry_after_us, 0);
}

/* ---- What the server is asked ---- */

TEST(a_key_that_is_denied_runs_no_script_until_it_admits_again, 60)
{
    static const char *const policies[] = {
        "token_bucket limit=5 period=366d",
        "leaky_bucket limit=5 period=366d capacity=5",
        "token_bucket limit=5 period=366d refill=interval",
        "fixed_window limit=5 period=366d",
        "sliding_window limit=5 period=366d blocks=6",
        "token_bucket limit=999983 period=366d burst=5",
        "token_bucket limit=5 period=366d debt=3",
    };
    PLACE(place, false, NULL);
    struct weir_options options = place_options(&place, TIMEOUT_US);
    LIMITER(limiter, &options);
    for (size_t i = 0; i < sizeof policies / sizeof policies[0]; i++) {
        char name[16];
        snprintf(name, sizeof name, "limit-%zu", i);
        weir_limit *limit = limit_of(limiter, name, policies[i]);
        const struct weir_decision first = exhaust(limit, "key", 2);
        const int64_t run = scripts_run(&place);
        for (int k = 0; k < 5; k++)
            assert_denied_as(taken(limit, "key", 2), &first);
        const struct weir_decision too_much = taken(limit, "key", 6 + 3);
        ck_assert(!too_much.allowed && too_much.retry_after_us == WEIR_NEVER);
        ck_assert_int_eq(scripts_run(&place), run);
        must_succeed(weir_refund(limit, weir_key_text("key"), 2));
        ck_assert(taken(limit, "key", 2).allowed);
        ck_assert_int_eq(scripts_run(&place), run + 2);
    }
}

TEST(waiters_that_are_denied_together_share_a_read, 60)
{
    enum { OPS = 32 };
    PLACE(place, false, NULL);
    struct weir_options options = place_options(&place, TIMEOUT_US);
    LIMITER(limiter, &options);
    weir_limit *limit = limit_of(limiter, "limit", "token_bucket limit=5 period=366d");
    struct weir_request requests[OPS];
    struct weir_decision decisions[OPS];
    exhaust(limit, "key", 2);
    const int64_t run = scripts_run(&place);
    for (int i = 0; i < OPS; i++)
        requests[i] = (struct weir_request){ .limit = limit, .key = weir_key_text("key"), .cost = 2 + i % 3 };
    const uint64_t calls = stats_of(limiter).store_calls;
    must_succeed(weir_try_batch(limiter, requests, OPS, decisions));
    for (int i = 0; i < OPS; i++)
        ck_assert(!decisions[i].allowed && decisions[i].source == WEIR_BY_REDIS);
    ck_assert_uint_eq(stats_of(limiter).store_calls, calls + 1);
    ck_assert_int_eq(scripts_run(&place), run);
}

/* ---- Elsewhere ---- */

/* Changes by another instance to a key that this one remembers as denied. */
enum elsewhere { REFUNDS, RESETS, RAISES, DELETES, ELSEWHERES };

TEST(changes_by_another_instance_take_effect_immediately, 60)
{
    static const char *const policies[] = { "token_bucket limit=5 period=366d", "fixed_window limit=5 period=366d" };
    for (size_t p = 0; p < sizeof policies / sizeof policies[0]; p++) {
        for (int what = 0; what < ELSEWHERES; what++) {
            PLACE(place, false, NULL);
            struct weir_options options = place_options(&place, TIMEOUT_US);
            LIMITER(here, &options);
            LIMITER(elsewhere, &options);
            weir_limit *limit = limit_of(here, "limit", policies[p]);
            weir_limit *other = limit_of(elsewhere, "limit", policies[p]);
            const struct weir_key key = weir_key_text("key");
            exhaust(limit, "key", 1);
            for (int i = 0; i < 3; i++)
                ck_assert(!taken(limit, "key", 1).allowed);
            if (what == REFUNDS)
                must_succeed(weir_refund(other, key, 1));
            else if (what == RESETS)
                must_succeed(weir_reset(other, key));
            else if (what == RAISES)
                limit = limit_of(here, "limit",
                                 p == 0 ? "token_bucket limit=9 period=366d" : "fixed_window limit=9 period=366d");
            else
                place_ask(&place, "DEL", "weir:limit:{key}");
            const struct weir_decision decision = taken(limit, "key", 1);
            ck_assert(decision.allowed);
            ck_assert_int_eq(decision.remaining, what == REFUNDS ? 0 : what == RAISES ? 3 : 4);
        }
    }
}

/* The two plans of a rollout share a key, whose value is then no plain state: scripts decide, once each. */
TEST(a_denied_key_shared_by_two_plans_is_decided_by_its_scripts, 60)
{
    PLACE(place, false, NULL);
    struct weir_options options = place_options(&place, TIMEOUT_US);
    LIMITER(before, &options);
    LIMITER(after, &options);
    weir_limit *old = limit_of(before, "limit", "token_bucket limit=5 period=366d");
    weir_limit *new = limit_of(after, "limit", "token_bucket limit=6 period=366d");
    exhaust(old, "key", 1);
    exhaust(new, "key", 1);
    for (int i = 0; i < 3; i++) {
        ck_assert(!taken(old, "key", 1).allowed);
        ck_assert(!taken(new, "key", 1).allowed);
    }
}

TEST(a_foreign_value_is_reported_instead_of_a_cached_denial, 60)
{
    static const char *const values[] = { "", "1", "another program's", NULL };
    for (size_t i = 0; i < sizeof values / sizeof values[0]; i++) {
        PLACE(place, false, NULL);
        struct weir_options options = place_options(&place, TIMEOUT_US);
        LIMITER(limiter, &options);
        weir_limit *limit = limit_of(limiter, "limit", "token_bucket limit=5 period=366d");
        struct weir_decision decision;
        exhaust(limit, "key", 1);
        place_ask(&place, "DEL", "weir:limit:{key}");
        if (values[i])
            place_ask(&place, "SET", "weir:limit:{key}", values[i]);
        else
            place_ask(&place, "LPUSH", "weir:limit:{key}", "a");
        for (int k = 0; k < 3; k++)
            ck_assert_int_eq(weir_try(limit, weir_key_text("key"), 1, &decision), WEIR_ESTATE);
        must(place_logged(&place, "not a state of weir's"), "the log tells");
    }
}

TEST(a_denied_request_is_admitted_exactly_after_its_retry_after, 60)
{
    PLACE(place, false, NULL);
    struct weir_options options = place_options(&place, TIMEOUT_US);
    LIMITER(limiter, &options);
    weir_limit *limit = limit_of(limiter, "limit", "token_bucket limit=100 period=1s burst=1");
    const int64_t from_us = wire_now_us();
    for (int admitted = 0; admitted < 50;)
        admitted += taken(limit, "key", 1).allowed;
    ck_assert_int_ge(wire_now_us() - from_us, 49 * 9000);
    struct weir_decision decision;
    must_succeed(weir_acquire(limit, weir_key_text("key"), 1, WEIR_SECOND * 10, &decision));
    ck_assert(decision.allowed);
}

/* ---- Servers that answer oddly ---- */

/* A fake that admits or denies by scripts and answers reads as it is asked to. */
struct odd {
    pthread_mutex_t lock;     /* guards these */
    const char *time, *value; /* answers in Redis's protocol; NULL: it hangs up */
    int64_t reads, scripts;   /* requests so far */
    struct place place;
    struct fake_redis *fake;
    weir *limiter;
    weir_limit *limit;
};

static bool odd_answer(void *user, const struct fake_request *request, struct fake_reply *reply)
{
    struct odd *odd = user;
    const bool is_time = fake_request_is(request, "TIME"), is_get = fake_request_is(request, "GET");
    if (!is_time && !is_get) {
        unsigned char answer[TRUTH_LEN];
        if (!fake_request_is(request, "EVALSHA"))
            return false;
        truth_about(request, answer);
        if (memmem(request->words[3], request->lens[3], "{key}", 5)) /* nothing is charged to it */
            memset(answer + 7, 0, 7);
        pthread_mutex_lock(&odd->lock);
        odd->scripts++; /* before the test can have the answer */
        pthread_mutex_unlock(&odd->lock);
        fake_say_bulk(reply, answer, TRUTH_LEN);
        return true;
    }
    pthread_mutex_lock(&odd->lock);
    const char *text = is_time ? odd->time : odd->value;
    odd->reads += is_get;
    pthread_mutex_unlock(&odd->lock);
    if (text)
        fake_say_text(reply, text);
    else
        fake_hang_up(reply);
    return true;
}

static void odd_open(struct odd *odd, const char *time, const char *value)
{
    memset(odd, 0, sizeof *odd);
    pthread_mutex_init(&odd->lock, NULL);
    odd->time = time;
    odd->value = value;
    place_open_bare(&odd->place);
    odd->fake = fake_redis_start(odd_answer, odd);
    must(odd->fake != NULL, "a fake starts");
    struct weir_options options = place_options(&odd->place, TIMEOUT_US);
    options.redis_url = fake_redis_url(odd->fake);
    odd->limiter = limiter_of(&options);
    odd->limit = limit_of(odd->limiter, "limit", FIFTY_AN_HOUR);
}

static void odd_close(struct odd *odd)
{
    weir_close(odd->limiter);
    fake_redis_stop(odd->fake);
    pthread_mutex_destroy(&odd->lock);
    place_close(&odd->place);
}

static int64_t odd_count(struct odd *odd, const int64_t *count)
{
    pthread_mutex_lock(&odd->lock);
    const int64_t n = *count;
    pthread_mutex_unlock(&odd->lock);
    return n;
}

#define NOW "*2\r\n$10\r\n1790000000\r\n$1\r\n0\r\n"

/* The script of this fake finds every key fresh, so it denies only what exceeds the size: 51 permits. */
static int take_too_much(struct odd *odd)
{
    struct weir_decision decision;
    const int status = weir_try(odd->limit, weir_key_text("key"), 51, &decision);
    ck_assert(status != WEIR_OK || (!decision.allowed && decision.retry_after_us == WEIR_NEVER));
    return status;
}

TEST(after_an_error_to_a_read_scripts_decide, 60)
{
    static const struct {
        const char *time, *value;
        int64_t reads; /* of three takes after the first denial */
    } cases[] = {
        { NOW, "$-1\r\n", 3 },
        { "-NOPERM no\r\n", "-NOPERM no\r\n", 1 },
        { "-ERR unknown command\r\n", "$-1\r\n", 1 },
        { NOW, "-NOPERM no\r\n", 1 },
        { NOW, "-LOADING\r\n", 1 }, /* within a second */
        { NOW, "$3\r\nodd\r\n", 1 },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct odd odd;
        odd_open(&odd, cases[i].time, cases[i].value);
        for (int k = 0; k < 4; k++)
            must_succeed(take_too_much(&odd));
        const int64_t reads = odd_count(&odd, &odd.reads);
        ck_assert_int_ge(reads, cases[i].reads);
        if (cases[i].reads == 3)
            ck_assert_int_eq(odd_count(&odd, &odd.scripts), 1);
        else
            ck_assert_int_eq(odd_count(&odd, &odd.scripts), 4);
        odd_close(&odd);
    }
}

TEST(a_server_that_answers_a_read_with_nonsense_loses_the_connection, 60)
{
    static const struct {
        const char *time, *value;
    } cases[] = {
        { NOW, NULL },  /* cut between the two replies */
        { NULL, NULL }, /* cut before them */
        { NOW, "+OK\r\n" },
        { NOW, ":1\r\n" },
        { NOW, NOW },
        { "+OK\r\n", "$-1\r\n" },
        { "$-1\r\n", "$-1\r\n" },
        { "*3\r\n$1\r\n1\r\n$1\r\n0\r\n$1\r\n0\r\n", "$-1\r\n" },
        { "*2\r\n:1790000000\r\n:0\r\n", "$-1\r\n" },
        { "*2\r\n$1\r\n1\r\n*1\r\n$1\r\n0\r\n", "$-1\r\n" },
        { "*2\r\n$33\r\n000000000000000000000000000000001\r\n$1\r\n0\r\n", "$-1\r\n" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct odd odd;
        odd_open(&odd, cases[i].time, cases[i].value);
        must_succeed(take_too_much(&odd));
        ck_assert_int_eq(take_too_much(&odd), WEIR_EIO);
        ck_assert(taken_by_redis(odd.limit, "other", 1).allowed);
        odd_close(&odd);
    }
}
