/* test_redis_network.c - dead links, silent peers and replies that are no answers: faults E1 to E5 and E8 of
 * distributed mode. */
#include "redis_place.h"

#include "backends/redis/wire/pause.h"
#include "core/ground/arith.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

/* ---- No call exceeds its time ---- */

enum { TIMEOUT_US = 50000 };

struct longest {
    int64_t us, kept_us;
    int64_t errors;
};

/* Make one call: any outcome is right except a wrong decision, in time. Return how long it took. */
static int64_t try_once(weir_limit *limit, struct longest *longest)
{
    const struct timed timed = timed_try(limit, "key", 1);
    must(timed.status == WEIR_OK || timed.status == WEIR_ETIME || timed.status == WEIR_EIO, "an outcome that may be");
    if (timed.took_us > call_most_us(TIMEOUT_US))
        ck_abort_msg("a call took %" PRId64 " us, and %" PRId64 " that others ran", timed.took_us, timed.kept_us);
    longest->us = timed.took_us > longest->us ? timed.took_us : longest->us;
    longest->kept_us = timed.kept_us > longest->kept_us ? timed.kept_us : longest->kept_us;
    longest->errors += timed.status != WEIR_OK;
    return timed.took_us;
}

static void report_longest(const char *what, const struct longest *longest)
{
    printf("%s: the longest call took %" PRId64 " us beyond its timeout of %d us (%" PRId64
           " errors); others had the processors for %" PRId64 " us at most\n",
           what, longest->us - TIMEOUT_US, TIMEOUT_US, longest->errors, longest->kept_us);
}

TEST(a_connection_cut_a_hundred_times_blocks_no_call_and_recovers, 60)
{
    struct longest idle = { 0 }, flying = { 0 };
    PLACE(place, true, NULL);
    struct weir_options options = place_options(&place, TIMEOUT_US);
    LIMITER(limiter, &options);
    weir_limit *limit = limit_of(limiter, "limit", UNREFILLED);
    recover(limit, "key");
    for (int i = 0; i < 50; i++) {
        fproxy_cut(place.proxy, i % 2 == 1);
        try_once(limit, &idle);
        try_once(limit, &idle);
    }
    recover(limit, "key");
    fproxy_fault(place.proxy, FPROXY_CLOSE_REPLY, "EVALSHA", 2, 50);
    for (int i = 0; i < 100; i++)
        try_once(limit, &flying);
    recover(limit, "key");
    fproxy_fault(place.proxy, FPROXY_HALF_CLOSE, "EVALSHA", 2, 20);
    for (int i = 0; i < 40; i++)
        try_once(limit, &flying);
    fproxy_fault(place.proxy, FPROXY_NONE, NULL, 1, 0);
    recover(limit, "key");
    const int64_t until_us = wire_now_us() + RECOVERY_MOST_US;
    for (int decided = 0; decided < 200;) {
        must(wire_now_us() < until_us, "Redis decides again");
        const int64_t errors = flying.errors;
        try_once(limit, &flying);
        if (flying.errors == errors)
            decided++;
        else
            recover(limit, "key"); /* the machine is busy */
    }
    report_longest("cut while idle", &idle);
    report_longest("cut in flight", &flying);
}

/* Fall silent in one of three ways. */
static void silence_begin(struct place *place, int way)
{
    if (way == 0)
        redis_server_pause(&place->server);
    else if (way == 1)
        fproxy_freeze(place->proxy, true);
    else
        fproxy_fault(place->proxy, FPROXY_LOSE_REQUEST, NULL, 1, -1);
}

static void silence_end(struct place *place, int way)
{
    if (way == 0)
        redis_server_resume(&place->server);
    else if (way == 1)
        fproxy_freeze(place->proxy, false);
    else
        fproxy_fault(place->proxy, FPROXY_NONE, NULL, 1, 0);
}

static int by_size(const void *left, const void *right)
{
    int64_t a = *(const int64_t *)left, b = *(const int64_t *)right;
    return (a > b) - (a < b);
}

static const char *const silences[] = { "a stopped server", "a dead link", "lost requests" };

TEST_EACH(a_silent_server_delays_only_three_calls_by_their_timeout, 3, 30)
{
    enum { CALLS = 20000 };
    static int64_t took_us[CALLS];
    struct longest longest = { 0 };
    PLACE(place, true, NULL);
    struct weir_options options = place_options(&place, TIMEOUT_US);
    LIMITER(limiter, &options);
    weir_limit *limit = limit_of(limiter, "limit", UNREFILLED);
    for (int round = 0; round < 2; round++) {
        recover(limit, "key");
        timed_try(limit, "key", 1);
        uint64_t timeouts = stats_of(limiter).store_timeouts;
        silence_begin(&place, _i);
        int64_t until_us = wire_now_us() + WEIR_SECOND, calls = 0;
        for (; calls < 10 || wire_now_us() < until_us; calls++)
            took_us[calls % CALLS] = try_once(limit, &longest);
        qsort(took_us, (size_t)(calls < CALLS ? calls : CALLS), sizeof took_us[0], by_size);
        timeouts = stats_of(limiter).store_timeouts - timeouts;
        printf("%s: %" PRIu64 " late answers in %" PRId64 " calls, p99.9 %" PRId64 " us\n", silences[_i], timeouts,
               calls, took_us[(calls < CALLS ? calls : CALLS) * 999 / 1000]);
        ck_assert_uint_ge(timeouts, 1);
        ck_assert_uint_le(timeouts, 3);
        if (full_or(1, 0)) /* a busy machine may not make as many */
            ck_assert_int_ge(calls, 1000);
        silence_end(&place, _i);
    }
    recover(limit, "key");
    ck_assert_uint_gt(stats_of(limiter).store_breaks, 0);
    report_longest(silences[_i], &longest);
}

struct outage {
    weir_limit *limit;
    int64_t pace_us; /* of each thread */
    atomic_bool open, done;
    /* after the breaker opened: all calls, and those over 100 us */
    _Atomic int64_t calls, slow, longest_us, after, long_after;
};

static void *call_all_the_while(void *argument)
{
    struct outage *outage = argument;
    while (!atomic_load(&outage->done)) {
        const bool is_open = atomic_load(&outage->open);
        const struct timed timed = timed_try(outage->limit, "key", 1);
        must(timed.status == WEIR_OK && timed.decision.source == WEIR_BY_FALLBACK, "the fallback decides");
        atomic_fetch_add(&outage->calls, 1);
        atomic_fetch_add(&outage->slow, timed.took_us > TIMEOUT_US / 2);
        atomic_fetch_add(&outage->after, is_open);
        atomic_fetch_add(&outage->long_after, is_open && timed.took_us > 100);
        if (timed.took_us > atomic_load(&outage->longest_us))
            atomic_store(&outage->longest_us, timed.took_us);
        sleep_us(outage->pace_us);
    }
    return NULL;
}

/* With --full: five minutes, with a thousand calls per second. */
TEST(timeouts_of_fifty_threads_neither_accumulate_nor_use_memory, 30)
{
    enum { CALLERS = 50 };
    struct crew crew;
    struct outage outage = { .limit = NULL, .pace_us = full_or(CALLERS * 1000, 200) };
    PLACE(place, false, NULL);
    struct weir_options options = place_options(&place, TIMEOUT_US);
    options.on_failure = WEIR_FAIL_LOCAL;
    LIMITER(limiter, &options);
    outage.limit = limit_of(limiter, "limit", UNREFILLED);
    recover(outage.limit, "key");
    const struct weir_stats before = stats_of(limiter); /* no outage, unless connecting took long */
    redis_server_pause(&place.server);
    crew_start(&crew, CALLERS, call_all_the_while, &outage);
    sleep_us(500000);
    atomic_store(&outage.open, true);
    const int64_t resident = resident_bytes();
    sleep_us(full_or(5 * WEIR_MINUTE, 2500000));
    const int64_t grown = resident_bytes() - resident;
    atomic_store(&outage.done, true);
    crew_join(&crew);
    const struct weir_stats stats = stats_of(limiter);
    printf("fifty threads: %" PRId64 " calls, %" PRId64 " slow, the longest %" PRId64 " us, memory grew by %" PRId64
           " bytes; of %" PRId64 " after that %.4f %% took more than 100 us\n",
           outage.calls, outage.slow, outage.longest_us, grown, outage.after,
           100.0 * (double)outage.long_after / (double)outage.after);
    ck_assert_uint_le(stats.store_timeouts - before.store_timeouts, 3 * CALLERS);
    if (full_or(1, 0)) /* on a busy machine a thread may be stopped for longer */
        ck_assert_int_le(outage.slow, 3 * CALLERS);
    ck_assert_int_le(outage.longest_us, call_most_us(TIMEOUT_US));
    if (full_or(1, 0)) /* without the pauses the threads wait for each other */
        ck_assert_int_le(outage.long_after, outage.after / 100);
    if (!INSTRUMENTED)
        ck_assert_int_le(grown, 4 << 20);
    ck_assert_uint_eq(stats.fallbacks - before.fallbacks, (uint64_t)outage.calls);
    ck_assert_uint_eq(stats.outages - before.outages, 1);
    redis_server_resume(&place.server);
    recover(outage.limit, "key");
}

/* ---- Connecting again ---- */

static void *call_for_nothing(void *argument)
{
    struct outage *outage = argument;
    struct weir_decision decision;
    while (!atomic_load(&outage->done)) {
        weir_try(outage->limit, weir_key_text("key"), 1, &decision);
        sleep_us(500);
    }
    return NULL;
}

TEST(pauses_between_retries_grow_to_a_maximum_and_restart, 30)
{
    enum { PAUSES = 10000 };
    struct redis_pauses pauses, others;
    redis_pauses_init(&pauses);
    redis_pauses_init(&others);
    int64_t last = 0, longest = 0, equal = 0;
    for (int i = 0; i < PAUSES; i++) {
        int64_t pause = redis_pause_next_us(&pauses);
        ck_assert_int_ge(pause, REDIS_PAUSE_MIN_US);
        ck_assert_int_le(pause, last ? min_of(3 * last, REDIS_PAUSE_MAX_US) : REDIS_PAUSE_MIN_US);
        equal += pause == redis_pause_next_us(&others);
        longest = max_of(longest, pause);
        last = pause;
    }
    ck_assert_int_ge(longest, REDIS_PAUSE_MAX_US * 9 / 10);
    ck_assert_int_le(equal, PAUSES / 10);
    pauses.last_us = 0;
    ck_assert_int_eq(redis_pause_next_us(&pauses), REDIS_PAUSE_MIN_US);
}

/* Without growing pauses there were 400 attempts in the third second. With them, 20 million simulated runs exceeded
 * 40 once in a thousand, and never 73. */
TEST(pauses_between_connections_grow_and_differ, 30)
{
    enum { LIMITERS = 4, TIMES = 4096 };
    static int64_t times_us[TIMES];
    struct crew crews[LIMITERS];
    static struct outage outages[LIMITERS];
    weir *limiters[LIMITERS];
    PLACE(place, true, NULL);
    struct weir_options options = place_options(&place, TIMEOUT_US);
    for (int i = 0; i < LIMITERS; i++) {
        limiters[i] = limiter_of(&options);
        outages[i].limit = limit_of(limiters[i], "limit", UNREFILLED);
        recover(outages[i].limit, "key");
    }
    int64_t before = fproxy_counts(place.proxy).connections;
    redis_server_kill(&place.server);
    for (int i = 0; i < LIMITERS; i++)
        crew_start(&crews[i], 4, call_for_nothing, &outages[i]);
    sleep_us(3 * WEIR_SECOND);
    const int64_t until_us = wire_now_us() + RECOVERY_MOST_US;
    int64_t made;
    while ((made = fproxy_counts(place.proxy).connections - before) < 2 * LIMITERS && wire_now_us() < until_us)
        sleep_us(1000);
    int n = fproxy_connection_times(place.proxy, times_us, TIMES), early = 0, late = 0;
    int64_t first_us = times_us[n - made], together = 0;
    for (int i = n - (int)made; i < n; i++) {
        early += times_us[i] - first_us < 1000000;
        late += times_us[i] - first_us >= 2000000;
        together += i > n - (int)made + 20 && times_us[i] - times_us[i - 1] < 100;
    }
    printf("%d limiters made %" PRId64 " connections in 3 s without a server, %d in the first and %d in the third\n",
           (int)LIMITERS, made, early, late);
    ck_assert_int_ge(made, 2 * LIMITERS);
    ck_assert_int_le(made, 60 * LIMITERS);
    ck_assert_int_le(late, 25 * LIMITERS);
    if (full_or(1, 0)) /* a busy machine accepts several at once */
        ck_assert_int_le(together, made / 2);
    must(redis_server_restart(&place.server) == 0, place.server.daemon.error);
    for (int i = 0; i < LIMITERS; i++) {
        recover(outages[i].limit, "key");
        atomic_store(&outages[i].done, true);
        crew_join(&crews[i]);
        weir_close(limiters[i]);
    }
    asker_close(&place.asker);
}

TEST(a_refusing_or_silent_server_is_retried_until_it_answers, 30)
{
    static const enum fproxy_door doors[] = { FPROXY_REFUSE, FPROXY_HOLD };
    PLACE(place, true, NULL);
    for (int i = 0; i < 2; i++) {
        struct weir_options options = place_options(&place, TIMEOUT_US);
        struct longest longest = { 0 };
        fproxy_door(place.proxy, doors[i]);
        LIMITER(limiter, &options);
        weir_limit *limit = limit_of(limiter, "limit", UNREFILLED);
        for (int j = 0; j < 100; j++) {
            try_once(limit, &longest);
            sleep_us(1000);
        }
        ck_assert_int_eq(longest.errors, 100);
        report_longest(doors[i] == FPROXY_HOLD ? "a silent door" : "a closed door", &longest);
        fproxy_door(place.proxy, FPROXY_OPEN);
        recover(limit, "key");
    }
}

/* ---- Answers to other questions ---- */

static const struct {
    enum fproxy_fault fault;
    const char *name;
} confusions[] = {
    { FPROXY_TWICE, "replayed" },  { FPROXY_SWAP, "swapped" },      { FPROXY_DROP_REPLY, "dropped" },
    { FPROXY_GARBAGE, "garbage" }, { FPROXY_CUT_REPLY, "cut off" }, { FPROXY_DRIP, "a byte at a time" },
};

enum { KEYS = 8, APART = 10000 };

/* Keys that only this thread takes from. It takes until it has some answers, because calls in an outage get none. Their
 * counts differ by so much that another thread's answer would show. */
struct counted {
    weir_limit *limit;
    char prefix;
    int calls;
    int64_t answered;
};

static void *take_and_compare(void *argument)
{
    struct counted *counted = argument;
    struct chance chance = chance_make((uint64_t)counted->prefix);
    int64_t taken_most[KEYS] = { 0 }, taken_least[KEYS] = { 0 };
    const int64_t until_us = wire_now_us() + RECOVERY_MOST_US;
    for (int i = 0; i < counted->calls || (counted->answered < 5 && wire_now_us() < until_us); i++) {
        int64_t k = chance_between(&chance, 0, KEYS - 1);
        const char key[] = { counted->prefix, (char)('0' + k), '\0' };
        int64_t cost = taken_most[k] == 0 ? (k + 1) * APART : 1;
        struct timed timed = timed_try(counted->limit, key, cost);
        taken_most[k] += cost;
        if (timed.status != WEIR_OK)
            continue;
        counted->answered++;
        taken_least[k] += cost;
        int64_t gone = timed.decision.limit - timed.decision.remaining;
        must(timed.decision.allowed, "there is plenty");
        if (gone < taken_least[k] || gone > taken_most[k])
            ck_abort_msg("call %d on key %s: %" PRId64 " are gone, not %" PRId64 " to %" PRId64, i, key, gone,
                         taken_least[k], taken_most[k]);
        taken_least[k] = gone; /* the server has answered by now */
        taken_most[k] = gone;
    }
    return NULL;
}

/* With --full: a hundred times as many calls. */
TEST_EACH(an_answer_to_another_request_is_never_accepted, sizeof confusions / sizeof confusions[0], 30)
{
    enum { CALLERS = 12 };
    const int times = (int)full_or(100, 1);
    struct crew crew;
    static struct counted counted[CALLERS + 1];
    PLACE(place, true, NULL);
    struct weir_options options = place_options(&place, TIMEOUT_US);
    LIMITER(limiter, &options);
    weir_limit *limit = limit_of(limiter, "limit", UNREFILLED);
    fproxy_pace(place.proxy, 0, 0, 100);
    recover(limit, "key");
    fproxy_fault(place.proxy, confusions[_i].fault, "EVALSHA", 7, -1);
    counted[CALLERS] = (struct counted){ limit, 'z', 300 * times, 0 };
    take_and_compare(&counted[CALLERS]); /* a single caller */
    for (int i = 0; i < CALLERS; i++) {  /* many callers */
        counted[i] = (struct counted){ limit, (char)('a' + i), 100 * times, 0 };
        must(pthread_create(&crew.threads[i], NULL, take_and_compare, &counted[i]) == 0, "a thread starts");
    }
    crew.n = CALLERS;
    crew_join(&crew);
    int64_t answered = 0;
    for (int i = 0; i <= CALLERS; i++)
        answered += counted[i].answered;
    printf("%s: %" PRId64 " faults, %" PRId64 " answers, all right\n", confusions[_i].name,
           fproxy_counts(place.proxy).faults, answered);
    ck_assert_int_gt(fproxy_counts(place.proxy).faults, 3);
    ck_assert_int_gt(answered, 20);
    fproxy_fault(place.proxy, FPROXY_NONE, NULL, 1, 0);
    recover(limit, "key");
}

/* ---- Three outcomes ---- */

TEST(a_decision_in_an_outage_never_names_redis_as_its_source, 30)
{
    static const struct {
        enum weir_on_failure on_failure;
        int status;
        enum weir_source source;
        bool allowed;
    } rows[] = {
        { WEIR_FAIL_OPEN, WEIR_OK, WEIR_BY_FAIL_OPEN, true },
        { WEIR_FAIL_CLOSED, WEIR_OK, WEIR_BY_FAIL_CLOSED, false },
        { WEIR_FAIL_LOCAL, WEIR_OK, WEIR_BY_FALLBACK, false }, /* in an outage keys start cold */
        { WEIR_FAIL_ERROR, WEIR_EIO, WEIR_BY_REDIS, false },
    };
    struct place place;
    place_open(&place, false, NULL);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct weir_options options = place_options(&place, TIMEOUT_US);
        options.on_failure = rows[i].on_failure;
        options.outage_cold = true;
        weir *limiter = limiter_of(&options);
        weir_limit *limit = limit_of(limiter, "limit", "token_bucket limit=50 period=1h");
        recover(limit, "key");
        const uint64_t before = stats_of(limiter).outages; /* none, unless connecting took long */
        redis_server_kill(&place.server);
        for (int j = 0; j < 20; j++) {
            struct timed timed = timed_try(limit, "key", 1);
            const struct weir_decision *decision = &timed.decision;
            ck_assert(timed.status == rows[i].status || (rows[i].status != WEIR_OK && timed.status == WEIR_ETIME));
            if (timed.status != WEIR_OK)
                continue;
            ck_assert_int_eq(decision->source, rows[i].source);
            ck_assert_int_eq(decision->allowed, rows[i].allowed);
            ck_assert_int_eq(decision->limit, 50);
            if (decision->allowed)
                ck_assert_int_eq(decision->retry_after_us, 0);
            else
                ck_assert_int_gt(decision->retry_after_us, 0);
        }
        struct weir_decision decision = { .limit = 4711 };
        const int refunded = weir_refund(limit, weir_key_text("key"), 1);
        ck_assert_int_eq(refunded == WEIR_OK, rows[i].on_failure == WEIR_FAIL_LOCAL); /* it waits for Redis */
        ck_assert_int_lt(weir_reset(limit, weir_key_text("key")), 0);
        int peeked_status = weir_peek(limit, weir_key_text("key"), 1, &decision);
        ck_assert_int_eq(peeked_status == WEIR_OK, rows[i].status == WEIR_OK);
        if (peeked_status != WEIR_OK)
            ck_assert_int_eq(decision.limit, 4711); /* unchanged */
        struct weir_stats stats = stats_of(limiter);
        ck_assert_uint_eq(stats.outages - before, rows[i].status == WEIR_OK);
        ck_assert_uint_ge(rows[i].status == WEIR_OK ? stats.fallbacks : stats.errors, 20);
        weir_close(limiter);
        must(redis_server_restart(&place.server) == 0, place.server.daemon.error);
    }
    asker_close(&place.asker);
    place_close(&place);
}

TEST_EACH(an_outage_admits_at_the_rate_for_every_period, 3, 60)
{
    static const char *const policies[] = { "fixed_window limit=1000000 period=1d",
                                            "sliding_window limit=1000000 period=1d",
                                            "token_bucket limit=1000000 period=1d refill=interval" };
    enum { TAKEN = 5 }; /* about 12 come in a second */
    PLACE(place, false, NULL);
    struct weir_options options = place_options(&place, TIMEOUT_US);
    options.on_failure = WEIR_FAIL_LOCAL;
    options.outage_cold = true;
    weir *limiter = limiter_of(&options);
    weir_limit *limit = limit_of(limiter, "limit", policies[_i]);
    recover(limit, "key");
    const int64_t began_us = clock_monotonic_us();
    redis_server_kill(&place.server);
    for (int64_t admitted = 0; admitted < TAKEN;) {
        struct timed timed = timed_try(limit, "key", 1);
        ck_assert_int_eq(timed.status, WEIR_OK);
        ck_assert_int_eq(timed.decision.source, WEIR_BY_FALLBACK);
        admitted += timed.decision.allowed;
        ck_assert_int_le(admitted * WEIR_DAY, (clock_monotonic_us() - began_us) * 1000000);
        ck_assert_int_le(timed.decision.retry_after_us, WEIR_SECOND);
        sleep_us(1000);
    }
    must(redis_server_restart(&place.server) == 0, place.server.daemon.error); /* it has forgotten all keys */
    ck_assert_int_eq(taken_by_redis(limit, "key", 1).remaining, 1000000 - TAKEN - 1);
    weir_close(limiter);
    asker_close(&place.asker);
}

TEST(in_an_outage_a_window_of_a_day_continues_with_its_remaining_permits, 60)
{
    enum { TAKEN = 200 };
    struct place place;
    place_open(&place, false, NULL);
    struct weir_options options = place_options(&place, TIMEOUT_US);
    options.on_failure = WEIR_FAIL_LOCAL;
    weir *limiter = limiter_of(&options);
    weir_limit *limit = limit_of(limiter, "limit", "fixed_window limit=10000 period=1d");
    taken_by_redis(limit, "key", 1);
    redis_server_kill(&place.server);
    for (int i = 0; i < TAKEN; i++) {
        struct timed timed = timed_try(limit, "key", 1);
        ck_assert_int_eq(timed.status, WEIR_OK);
        ck_assert_int_eq(timed.decision.source, WEIR_BY_FALLBACK);
        ck_assert(timed.decision.allowed);
    }
    must(redis_server_restart(&place.server) == 0, place.server.daemon.error); /* it has forgotten all keys */
    ck_assert_int_eq(taken_by_redis(limit, "key", 1).remaining, 10000 - TAKEN - 1);
    weir_close(limiter);
    asker_close(&place.asker);
    place_close(&place);
}

int main(void)
{
    if (redis_server_missing())
        return 77;
    return suite_run(tests());
}
