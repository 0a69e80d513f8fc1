/* test_redis_replicas.c - charges that a replica must acknowledge before they count: which are acknowledged, which
 * are not, and what remains when a replica takes over. Fault D7. */
#include "redis_place.h"
#include "replicated.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

enum { TIMEOUT_US = 600000 /* a machine may stall for half of it */, LIMIT = 400, CREW = 12 };
static const char window[] = "fixed_window limit=400 period=1h";
static const char unacknowledged[] = "a charge was not acknowledged by 1 replica";

static void both_open(struct replicated *both)
{
    if (replicated_start(both) != 0)
        ck_abort_msg("%s", both->error);
}

static struct weir_options durable_options(struct place *place, const struct replicated *both, int64_t timeout_us)
{
    place_open_bare(place);
    struct weir_options options = place_options(place, timeout_us);
    options.redis_url = both->primary.url;
    options.redis_replicas = 1;
    return options;
}

/* Return one number of the primary's INFO, over a separate connection. */
static int64_t primary_info(const struct replicated *both, const char *section, const char *name)
{
    struct asker asker;
    const char *found = NULL;
    if (asker_open(&asker, both->primary.socket) == 0 &&
        asker_ask(&asker, place_reply, sizeof place_reply, "INFO", section, NULL) > 0)
        found = strstr(place_reply, name);
    asker_close(&asker);
    return found == NULL ? 0 : strtoll(found + strlen(name), NULL, 10);
}

/* Hold back the replication stream: the replica gets and acknowledges nothing until let_replica_go(). */
static void hold_replica(struct replicated *both)
{
    fproxy_freeze(both->link, true);
}

static void let_replica_go(struct replicated *both)
{
    fproxy_freeze(both->link, false);
    must(replicated_await(both), "the replica has it all again");
}

/* ---- Acknowledged ---- */

struct load {
    weir_limit *limit;
    int64_t pause_us;     /* after each call of take_until_done() */
    _Atomic int64_t most; /* take_until_done() takes none while this many are allowed; 0: no bound */
    atomic_bool done;
    _Atomic int64_t calls, allowed, denied, failed, by_lease, by_fallback, longest_us;
};

static void count(struct load *load, const struct timed *timed)
{
    int64_t seen = atomic_load(&load->longest_us);
    while (timed->took_us > seen && !atomic_compare_exchange_weak(&load->longest_us, &seen, timed->took_us))
        continue;
    atomic_fetch_add(&load->calls, 1);
    if (timed->status != WEIR_OK) {
        must(timed->status == WEIR_EIO || timed->status == WEIR_ETIME, "an error of Redis");
        atomic_fetch_add(&load->failed, 1);
        return;
    }
    atomic_fetch_add(timed->decision.allowed ? &load->allowed : &load->denied, 1);
    atomic_fetch_add(&load->by_lease, timed->decision.allowed && timed->decision.source == WEIR_BY_LEASE);
    atomic_fetch_add(&load->by_fallback, timed->decision.allowed && timed->decision.source == WEIR_BY_FALLBACK);
}

static void *take_sixty(void *argument)
{
    struct load *load = argument;
    for (int i = 0; i < 60; i++) {
        const struct timed timed = timed_try(load->limit, "key", 1);
        count(load, &timed);
    }
    return NULL;
}

TEST(with_acknowledged_charges_one_or_many_callers_admit_exactly_the_limit, 60)
{
    CLOSED_BY(replicated_stop) struct replicated both;
    both_open(&both);
    static const int callers[] = { 1, CREW };
    for (size_t i = 0; i < sizeof callers / sizeof callers[0]; i++) {
        CLOSED_BY(place_close) struct place place;
        struct crew crew;
        struct load load = { .limit = NULL };
        struct weir_options options = durable_options(&place, &both, 20 * WEIR_SECOND);
        LIMITER(limiter, &options);
        char name[16];
        snprintf(name, sizeof name, "exact%zu", i);
        load.limit = limit_of(limiter, name, callers[i] == 1 ? "fixed_window limit=40 period=1h" : window);
        crew_start(&crew, callers[i], take_sixty, &load);
        crew_join(&crew);
        ck_assert_int_eq(load.failed, 0);
        ck_assert_int_eq(load.allowed, callers[i] == 1 ? 40 : LIMIT);
        ck_assert_int_eq(load.denied, 60 * callers[i] - load.allowed);
        ck_assert_int_gt(primary_info(&both, "commandstats", "cmdstat_wait:calls="), 0);
        ck_assert(!place_logged(&place, "replica"));
        ck_assert_uint_eq(stats_of(limiter).store_breaks, 0);
    }
}

static void submitted_done(struct weir_op *op, int status)
{
    atomic_int *told = op->user;
    atomic_store(told, status == WEIR_OK ? 1 : 2);
}

TEST(every_verb_works_the_same_with_acknowledgements, 30)
{
    CLOSED_BY(replicated_stop) struct replicated both;
    both_open(&both);
    CLOSED_BY(place_close) struct place place;
    struct weir_options options = durable_options(&place, &both, 20 * WEIR_SECOND);
    LIMITER(limiter, &options);
    weir_limit *limit = limit_of(limiter, "verbs", window), *other = limit_of(limiter, "verbs-2", window);
    struct weir_decision decisions[3];
    const struct weir_request three[] = { { limit, weir_key_text("a"), 1, 0 },
                                          { limit, weir_key_text("b"), LIMIT + 1, 0 },
                                          { limit, weir_key_text("a"), 2, 0 } };
    must_succeed(weir_try_batch(limiter, three, 3, decisions));
    ck_assert(decisions[0].allowed && !decisions[1].allowed && decisions[2].allowed);
    ck_assert_int_eq(decisions[2].remaining, LIMIT - 3);
    const struct weir_request two[] = { { limit, weir_key_text("a"), 4, 0 }, { other, weir_key_text("a"), 5, 0 } };
    must_succeed(weir_try_all(limiter, two, 2, &decisions[0]));
    ck_assert(decisions[0].allowed);
    must_succeed(weir_refund(limit, weir_key_text("a"), 6));
    ck_assert_int_eq(peeked(limit, "a", 1).remaining, LIMIT - 1);
    must_succeed(weir_reset(limit, weir_key_text("a")));
    ck_assert_int_eq(peeked(limit, "a", 1).remaining, LIMIT);
    atomic_int told = 0;
    struct weir_op op = { .request = { limit, weir_key_text("a"), 7, 0 }, .done = submitted_done, .user = &told };
    ck_assert_int_eq(weir_submit(limiter, &op), 1);
    while (atomic_load(&told) == 0)
        sleep_us(100);
    ck_assert_int_eq(told, 1);
    ck_assert_int_eq(op.decision.remaining, LIMIT - 7);
}

TEST(a_script_that_was_flushed_is_loaded_again_and_its_charge_acknowledged, 30)
{
    CLOSED_BY(replicated_stop) struct replicated both;
    both_open(&both);
    CLOSED_BY(place_close) struct place place;
    struct asker asker;
    char reply[64];
    struct weir_options options = durable_options(&place, &both, 20 * WEIR_SECOND);
    LIMITER(limiter, &options);
    weir_limit *limit = limit_of(limiter, "flushed", window);
    must(asker_open(&asker, both.primary.socket) == 0, asker.error);
    for (int i = 1; i <= 3; i++) {
        ck_assert_int_eq(taken(limit, "key", 1).remaining, LIMIT - i);
        must(asker_ask(&asker, reply, sizeof reply, "SCRIPT", "FLUSH", NULL) > 0, asker.error);
    }
    asker_close(&asker);
}

static void *take_until_done(void *argument)
{
    struct load *load = argument;
    while (!atomic_load(&load->done)) {
        const int64_t most = atomic_load(&load->most);
        if (most == 0 || atomic_load(&load->allowed) < most) {
            const struct timed timed = timed_try(load->limit, "key", 1);
            count(load, &timed);
        }
        if (load->pause_us > 0)
            sleep_us(load->pause_us);
    }
    return NULL;
}

static void *take_three(void *argument)
{
    struct load *load = argument;
    for (int i = 0; i < 3; i++) {
        const struct timed timed = timed_try(load->limit, "key", 1);
        count(load, &timed);
    }
    return NULL;
}

/* Requests queued behind another's WAIT once had too little time left for their own, and hardly any was admitted.
 * Even if the machine stalls, one round of the three is admitted. */
TEST(many_callers_share_waits_for_a_replica_half_a_timeout_away, 60)
{
    enum { TAKERS = 24, LAG_US = 900000, CALLS = 3 * TAKERS };
    CLOSED_BY(replicated_stop) struct replicated both;
    CLOSED_BY(place_close) struct place place;
    struct crew crew;
    struct load load = { .limit = NULL };
    both_open(&both);
    struct weir_options options = durable_options(&place, &both, 2 * WEIR_SECOND);
    LIMITER(limiter, &options);
    load.limit = limit_of(limiter, "far", UNREFILLED);
    must_succeed(weir_reset(load.limit, weir_key_text("key")));
    fproxy_pace(both.link, 0, LAG_US, 0);
    const int64_t waits = primary_info(&both, "commandstats", "cmdstat_wait:calls=");
    crew_start(&crew, TAKERS, take_three, &load);
    crew_join(&crew);
    const int64_t waited = primary_info(&both, "commandstats", "cmdstat_wait:calls=") - waits;
    printf("crowd: %" PRId64 " of %d admitted, by %" PRId64 " WAITs\n", load.allowed, CALLS, waited);
    ck_assert_int_eq(load.calls, CALLS);
    ck_assert_int_gt(load.allowed, CALLS / 4);
    ck_assert_int_lt(waited, CALLS / 2);
}

/* ---- Not acknowledged ---- */

static void stop_replica(struct replicated *both)
{
    redis_server_pause(&both->replica);
}

static void wake_replica(struct replicated *both)
{
    redis_server_resume(&both->replica);
    must(replicated_await(both), "the replica has it all again");
}

static void kill_replica(struct replicated *both)
{
    redis_server_kill(&both->replica);
}

static void revive_replica(struct replicated *both)
{
    if (redis_server_restart(&both->replica) != 0)
        ck_abort_msg("%s", both->replica.daemon.error);
    must(replicated_await(both), "the replica has it all again");
}

static const struct {
    const char *what;
    void (*begin)(struct replicated *both);
    void (*end)(struct replicated *both);
} absences[] = {
    { "held", hold_replica, let_replica_go },
    { "stopped", stop_replica, wake_replica },
    { "killed", kill_replica, revive_replica },
};
enum { ABSENCES = sizeof absences / sizeof absences[0] };

/* Check all results of Redis while no replica acknowledges. */
static void assert_not_admitted(weir *limiter, weir_limit *limit, const struct replicated *both, struct place *place,
                                const char *what)
{
    enum { CHARGES = 3 };
    int64_t longest_us = 0;
    const int64_t waits = primary_info(both, "commandstats", "cmdstat_wait:calls=");
    for (int i = 0; i < CHARGES; i++) {
        struct timed timed = timed_try(limit, "key", 1);
        ck_assert_msg(timed.status == WEIR_EIO || timed.status == WEIR_ETIME, "%s: %s", what,
                      weir_strerror(timed.status));
        ck_assert_int_le(timed.took_us, call_most_us(TIMEOUT_US));
        longest_us = timed.took_us > longest_us ? timed.took_us : longest_us;
        timed = timed_try(limit, "key", LIMIT); /* a denial and a peek need only the server */
        must_succeed(timed.status);
        ck_assert(!timed.decision.allowed && timed.decision.source == WEIR_BY_REDIS);
        struct weir_decision decision;
        must_succeed(weir_peek(limit, weir_key_text("other"), 1, &decision));
        ck_assert(decision.allowed && decision.source == WEIR_BY_REDIS);
    }
    ck_assert_int_le(primary_info(both, "commandstats", "cmdstat_wait:calls=") - waits, CHARGES);
    const int refunded = weir_refund(limit, weir_key_text("key"), 1), reset = weir_reset(limit, weir_key_text("key"));
    ck_assert(refunded == WEIR_EIO || refunded == WEIR_ETIME);
    ck_assert(reset == WEIR_EIO || reset == WEIR_ETIME);
    ck_assert_msg(place_logged(place, unacknowledged), "%s", place->log);
    ck_assert_uint_eq(stats_of(limiter).store_breaks, 0); /* the server works */
    printf("replica %s: the longest call took %" PRId64 " of %d us\n", what, longest_us, TIMEOUT_US);
}

TEST(unacknowledged_charges_are_not_admitted_and_redis_stays_in_use, 60)
{
    CLOSED_BY(replicated_stop) struct replicated both;
    both_open(&both);
    for (int i = 0; i < ABSENCES; i++) {
        CLOSED_BY(place_close) struct place place;
        struct weir_options options = durable_options(&place, &both, TIMEOUT_US);
        LIMITER(limiter, &options);
        weir_limit *limit = limit_of(limiter, "absent", window);
        must_succeed(weir_reset(limit, weir_key_text("key")));
        ck_assert_int_eq(taken(limit, "key", 1).remaining, LIMIT - 1);
        ck_assert(!place_logged(&place, "replica"));
        absences[i].begin(&both);
        assert_not_admitted(limiter, limit, &both, &place, absences[i].what);
        absences[i].end(&both);
        struct timed timed = timed_try(limit, "key", 1);
        for (int tries = 0; timed.status != WEIR_OK && tries < 100; tries++) /* a busy machine may need several tries */
            timed = timed_try(limit, "key", 1);
        must_succeed(timed.status);
        ck_assert(timed.decision.allowed && timed.decision.source == WEIR_BY_REDIS);
    }
}

static void *be_denied(void *argument)
{
    struct load *load = argument;
    for (int i = 0; i < 250; i++) {
        const struct timed timed = timed_try(load->limit, "denied", INT64_C(2) * LIMIT);
        count(load, &timed);
    }
    return NULL;
}

/* A denial used to leave a WAIT behind, for other callers' charges. The next caller gave it 5 ms and then
 * reconnected: most of the 1000 here did. */
TEST(a_denied_caller_waits_for_no_replica_and_keeps_its_connection, 60)
{
    enum { DENIED = 4, LANES_AND_ONE = 9, CHANCE = 7 };
    static const struct {
        bool held;
        int64_t lag_us;
    } rows[] = { { false, 0 }, { false, 8000 }, { true, 0 } };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        CLOSED_BY(replicated_stop) struct replicated both;
        CLOSED_BY(place_close) struct place place;
        struct crew crew, taker;
        both_open(&both);
        struct weir_options options = durable_options(&place, &both, 4 * WEIR_SECOND);
        LIMITER(limiter, &options);
        struct load denied = { .limit = limit_of(limiter, "limit", window) };
        struct load taken_by_one = { .limit = limit_of(limiter, "beside", UNREFILLED) };
        must_succeed(weir_reset(taken_by_one.limit, weir_key_text("key")));
        fproxy_pace(both.link, 0, rows[i].lag_us, 0);
        fproxy_freeze(both.link, rows[i].held);
        const int64_t waits = primary_info(&both, "commandstats", "cmdstat_wait:calls=");
        const uint64_t asked = stats_of(limiter).store_requests;
        crew_start(&taker, 1, take_until_done, &taken_by_one);
        while (stats_of(limiter).store_requests == asked)
            sleep_us(100);
        crew_start(&crew, DENIED, be_denied, &denied);
        crew_join(&crew);
        const uint64_t connections = stats_of(limiter).store_connections;
        atomic_store(&taken_by_one.done, true);
        crew_join(&taker);
        const int64_t waited = primary_info(&both, "commandstats", "cmdstat_wait:calls=") - waits;
        printf("denied, replica %s, %" PRId64 " us away: %" PRIu64 " connections, %" PRId64 " WAITs for %" PRId64
               " charges\n",
               rows[i].held ? "held" : "there", rows[i].lag_us, connections, waited, taken_by_one.calls);
        ck_assert_int_ge(denied.denied, 250 * DENIED - CHANCE);
        ck_assert_uint_le(connections, LANES_AND_ONE + CHANCE);
        ck_assert_int_le(waited, taken_by_one.calls);
        ck_assert_int_gt(waited, 0);
        ck_assert_uint_eq(stats_of(limiter).store_breaks, 0);
        fproxy_freeze(both.link, false);
    }
}

TEST(without_an_acknowledgement_on_failure_decides, 60)
{
    CLOSED_BY(replicated_stop) struct replicated both;
    both_open(&both);
    static const struct {
        enum weir_on_failure on_failure;
        unsigned source;
        bool allowed;
    } rows[] = {
        { WEIR_FAIL_OPEN, WEIR_BY_FAIL_OPEN, true },
        { WEIR_FAIL_CLOSED, WEIR_BY_FAIL_CLOSED, false },
        { WEIR_FAIL_LOCAL, WEIR_BY_FALLBACK, false }, /* it starts cold */
    };
    hold_replica(&both);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        CLOSED_BY(place_close) struct place place;
        struct weir_options options = durable_options(&place, &both, TIMEOUT_US);
        options.on_failure = rows[i].on_failure;
        LIMITER(limiter, &options);
        weir_limit *limit = limit_of(limiter, "policies", window);
        for (int times = 0; times < 3; times++) {
            struct timed timed = timed_try(limit, "key", 1);
            must_succeed(timed.status);
            ck_assert_uint_eq(timed.decision.source, rows[i].source);
            ck_assert(timed.decision.allowed == rows[i].allowed);
            ck_assert_int_le(timed.took_us, call_most_us(TIMEOUT_US));
        }
    }
    let_replica_go(&both);
}

TEST(without_acknowledgements_no_caller_is_admitted_or_exceeds_its_timeout, 60)
{
    CLOSED_BY(replicated_stop) struct replicated both;
    both_open(&both);
    CLOSED_BY(place_close) struct place place;
    struct crew crew;
    struct load load = { .limit = NULL };
    struct weir_options options = durable_options(&place, &both, TIMEOUT_US);
    LIMITER(limiter, &options);
    load.limit = limit_of(limiter, "crowd", UNREFILLED);
    must_succeed(weir_reset(load.limit, weir_key_text("key")));
    hold_replica(&both);
    crew_start(&crew, CREW, take_until_done, &load);
    while (atomic_load(&load.calls) < 5 * CREW)
        sleep_us(1000);
    ck_assert_int_eq(load.allowed + load.denied, 0);
    let_replica_go(&both);
    const int64_t until_us = wire_now_us() + RECOVERY_MOST_US;
    while (atomic_load(&load.allowed) < 100 && wire_now_us() < until_us)
        sleep_us(1000);
    atomic_store(&load.done, true);
    crew_join(&crew);
    ck_assert_int_ge(load.allowed, 100);
    ck_assert_int_le(load.longest_us, call_most_us(TIMEOUT_US));
    ck_assert_uint_eq(stats_of(limiter).store_breaks, 0);
    ck_assert(place_logged(&place, unacknowledged));
    const struct weir_decision after = peeked(load.limit, "key", 1); /* each admitted permit was charged */
    ck_assert_int_ge(after.limit - after.remaining, load.allowed);
}

TEST(redis_and_the_fallback_stay_within_the_limit_while_replicas_fail_and_return, 60)
{
    CLOSED_BY(replicated_stop) struct replicated both;
    CLOSED_BY(place_close) struct place place;
    struct crew crew;
    struct load load = { .limit = NULL };
    both_open(&both);
    struct weir_options options = durable_options(&place, &both, 50000);
    options.on_failure = WEIR_FAIL_LOCAL;
    LIMITER(limiter, &options);
    load.limit = limit_of(limiter, "flaps", "token_bucket limit=100 period=1s burst=50");
    const int64_t began_us = wire_now_us();
    crew_start(&crew, 4, take_until_done, &load);
    for (int i = 0; i < 4; i++) {
        sleep_us(300000);
        hold_replica(&both);
        sleep_us(300000);
        let_replica_go(&both);
    }
    atomic_store(&load.done, true);
    crew_join(&crew);
    const int64_t took_us = wire_now_us() - began_us, most = 50 + took_us / 10000 + 1;
    printf("flaps: %" PRId64 " admitted, %" PRId64 " of them by the fallback, and at most %" PRId64 " may be\n",
           load.allowed, load.by_fallback, most);
    ck_assert_int_eq(load.failed, 0);
    ck_assert_int_gt(load.by_fallback, 0);
    ck_assert_int_le(load.allowed, most);
    recover(load.limit, "key");
}

TEST(a_redis_user_without_the_right_to_wait_admits_nothing_and_is_logged, 30)
{
    CLOSED_BY(replicated_stop) struct replicated both;
    both_open(&both);
    CLOSED_BY(place_close) struct place place;
    CLOSED_BY(asker_close) struct asker asker;
    char reply[128], url[200];
    must(asker_open(&asker, both.primary.socket) == 0, asker.error);
    must(asker_ask(&asker, reply, sizeof reply, "ACL", "SETUSER", "hasty", "on", ">pw", "~*", "+@all", "-wait", NULL) >
                 0 &&
             strncmp(reply, "OK", 2) == 0,
         "a user");
    struct weir_options options = durable_options(&place, &both, TIMEOUT_US);
    snprintf(url, sizeof url, "unix://hasty:pw@%s", both.primary.socket);
    options.redis_url = url;
    for (int submitted = 0; submitted < 2; submitted++) { /* on a lane, and on the thread's own connection */
        place.log_len = 0;
        place.log[0] = '\0';
        weir *limiter = limiter_of(&options);
        weir_limit *limit = limit_of(limiter, "hasty", window);
        ck_assert(!taken(limit, "key", INT64_C(2) * LIMIT).allowed); /* needs no replica */
        ck_assert(peeked(limit, "key", 1).allowed);
        ck_assert(!place_logged(&place, "NOPERM"));
        if (submitted) {
            atomic_int told = 0;
            struct weir_op op = { .request = { limit, weir_key_text("key"), 1, 0 },
                                  .done = submitted_done,
                                  .user = &told };
            ck_assert_int_eq(weir_submit(limiter, &op), 1);
            while (atomic_load(&told) == 0)
                sleep_us(100);
            ck_assert_int_eq(told, 2);
        } else {
            ck_assert_int_eq(timed_try(limit, "key", 1).status, WEIR_EIO);
        }
        for (int64_t until_us = wire_now_us() + RECOVERY_MOST_US;
             !place_logged(&place, "redis answers NOPERM") && wire_now_us() < until_us;)
            sleep_us(1000); /* a submitted op ends before the line is logged */
        ck_assert_msg(place_logged(&place, "redis answers NOPERM"), "%s", place.log);
        ck_assert(!place_logged(&place, unacknowledged));
        weir_close(limiter);
    }
    must(asker_ask(&asker, reply, sizeof reply, "ACL", "DELUSER", "hasty", NULL) > 0, asker.error);
}

/* Before Redis 7.0 scripts write all the same; docs/redis.md says so. */
TEST(a_primary_with_min_replicas_to_write_charges_nothing_without_replicas, 30)
{
    static const char *const lonely[] = { "--min-replicas-to-write", "1", "--min-replicas-max-lag", "10", NULL };
    PLACE(place, false, lonely);
    struct weir_options options = place_options(&place, TIMEOUT_US);
    LIMITER(limiter, &options);
    weir_limit *limit = limit_of(limiter, "lonely", window);
    const bool heeds = place_info(&place, "server", "redis_version:") >= 7;
    ck_assert_int_eq(timed_try(limit, "key", 1).status, heeds ? WEIR_EIO : WEIR_OK);
    ck_assert_msg(place_logged(&place, "redis answers NOREPLICAS") == heeds, "%s", place.log);
    ck_assert_int_eq(peeked(limit, "key", 1).remaining, heeds ? LIMIT : LIMIT - 1);
}

/* ---- A server that never answers WAIT ---- */

struct mute {
    atomic_bool speaks;
    _Atomic int64_t waits;
};

static bool mute_answer(void *user, const struct fake_request *request, struct fake_reply *reply)
{
    struct mute *mute = user;
    unsigned char truth[TRUTH_LEN];
    if (fake_request_is(request, "EVALSHA")) {
        fake_say_bulk(reply, truth, truth_about(request, truth));
        return true;
    }
    if (!fake_request_is(request, "WAIT"))
        return false;
    atomic_fetch_add(&mute->waits, 1);
    if (atomic_load(&mute->speaks))
        fake_say_text(reply, ":1\r\n");
    return true;
}

TEST(an_unanswered_wait_costs_its_timeout_but_not_the_connection, 60)
{
    struct mute mute = { .waits = 0 };
    CLOSED_BY(place_close) struct place place;
    struct fake_redis *fake = fake_redis_start(mute_answer, &mute);
    must(fake != NULL, "a fake starts");
    place_open_bare(&place);
    struct weir_options options = place_options(&place, TIMEOUT_US);
    options.redis_url = fake_redis_url(fake);
    options.redis_replicas = 1;
    weir *limiter = limiter_of(&options);
    weir_limit *limit = limit_of(limiter, "limit", FIFTY_AN_HOUR);
    recover(limit, "key");
    enum { CALLS = 4 }; /* more than the breaker allows */
    for (int i = 0; i < CALLS; i++) {
        struct timed timed = timed_try(limit, "key", 1);
        ck_assert_msg(timed.status == WEIR_ETIME || timed.status == WEIR_EIO, "%s", weir_strerror(timed.status));
        ck_assert_int_le(timed.took_us, call_most_us(TIMEOUT_US));
        atomic_int told = 0;
        struct weir_op op = { .request = { limit, weir_key_text("key"), 1, 0 }, .done = submitted_done, .user = &told };
        const int submitted = weir_submit(limiter, &op); /* on the thread's own connection */
        ck_assert_int_eq(submitted, 1);
        while (atomic_load(&told) == 0)
            sleep_us(100);
        ck_assert_int_eq(told, 2);
    }
    ck_assert_uint_eq(stats_of(limiter).store_breaks, 0);
    ck_assert_msg(place_logged(&place, unacknowledged), "%s", place.log);
    ck_assert_int_eq(mute.waits, 2 * CALLS); /* each WAIT is sent exactly once */
    atomic_store(&mute.speaks, true);
    recover(limit, "key");
    ck_assert(taken(limit, "key", 1).allowed);
    weir_close(limiter);
    fake_redis_stop(fake);
}

/* ---- Hybrid ---- */

TEST(an_unacknowledged_lease_is_never_spent, 60)
{
    CLOSED_BY(replicated_stop) struct replicated both;
    both_open(&both);
    CLOSED_BY(place_close) struct place place;
    struct weir_options options = durable_options(&place, &both, TIMEOUT_US);
    options.mode = WEIR_HYBRID;
    options.lease_life_us = 2 * WEIR_SECOND;
    LIMITER(limiter, &options);
    weir_limit *limit = limit_of(limiter, "leased", UNREFILLED);
    struct load load = { .limit = limit };
    must_succeed(weir_reset(limit, weir_key_text("key")));
    const int64_t until_us = wire_now_us() + RECOVERY_MOST_US;
    while (atomic_load(&load.by_lease) < 100 && wire_now_us() < until_us) { /* make the key hot */
        const struct timed timed = timed_try(limit, "key", 1);
        count(&load, &timed);
    }
    ck_assert_int_ge(load.by_lease, 100);
    hold_replica(&both);
    const int64_t held_us = wire_now_us(), before = load.allowed;
    while (wire_now_us() - held_us < 3 * WEIR_SECOND) { /* earlier leases last at most 2 s */
        const struct timed timed = timed_try(limit, "key", 1);
        const int64_t allowed = load.allowed;
        count(&load, &timed);
        if (wire_now_us() - timed.took_us - timed.kept_us - held_us > 2 * WEIR_SECOND)
            ck_assert_int_eq(load.allowed, allowed);
    }
    ck_assert_int_gt(load.failed, 0);
    let_replica_go(&both);
    printf("hybrid: %" PRId64 " admitted, %" PRId64 " of them after the replica was held, by earlier leases\n",
           load.allowed, load.allowed - before);
    const struct weir_decision after = peeked(limit, "key", 1);
    ck_assert_int_ge(after.limit - after.remaining, load.allowed);
}

/* ---- A replica takes over ---- */

/* Take permits from `server` until it denies; return how many it admitted. */
static int64_t drain(const struct redis_server *server)
{
    struct place place;
    struct weir_decision decision = { .allowed = true };
    int64_t allowed = 0;
    place_open_bare(&place);
    struct weir_options options = place_options(&place, 20 * WEIR_SECOND);
    options.redis_url = server->url;
    weir *limiter = limiter_of(&options);
    weir_limit *limit = limit_of(limiter, "limit", window);
    while (decision.allowed) {
        must_succeed(weir_try(limit, weir_key_text("key"), 1, &decision));
        allowed += decision.allowed;
    }
    weir_close(limiter);
    place_close(&place);
    return allowed;
}

/* Run callers until the primary dies together with the data on its way to the replica; then drain the promoted
 * replica. Return what both admitted. */
static int64_t admitted_over_failover(enum weir_mode mode, int64_t lag_us, int64_t enough)
{
    struct replicated both;
    struct place place;
    struct crew crew;
    struct load load = { .limit = NULL };
    both_open(&both);
    struct weir_options options = durable_options(&place, &both, WEIR_SECOND);
    options.mode = mode;
    options.lease_life_us = mode == WEIR_HYBRID ? 5 * WEIR_SECOND : 0;
    options.lease_max = mode == WEIR_HYBRID ? 20 : 0;
    weir *limiter = limiter_of(&options);
    load.limit = limit_of(limiter, "limit", window);
    fproxy_pace(both.link, 0, lag_us, 0);
    crew_start(&crew, 4, take_until_done, &load);
    const int64_t until_us = wire_now_us() + RECOVERY_MOST_US;
    while (atomic_load(&load.allowed) < enough && wire_now_us() < until_us)
        sleep_us(100);
    must(replicated_promote(&both) == 0, both.error);
    atomic_store(&load.done, true);
    crew_join(&crew);
    weir_close(limiter);
    const int64_t after = drain(&both.replica);
    printf("failover, %s, %" PRId64 " us of lag: %" PRId64 " admitted before it (%" PRId64 " by leases), %" PRId64
           " after it, of %d\n",
           mode == WEIR_HYBRID ? "hybrid" : "distributed", lag_us, load.allowed, load.by_lease, after, LIMIT);
    ck_assert_int_ge(load.allowed, enough);
    place_close(&place);
    replicated_stop(&both);
    return load.allowed + after;
}

TEST(a_promoted_replica_has_every_acknowledged_charge, 120)
{
    static const struct {
        enum weir_mode mode;
        int64_t lag_us, enough;
    } rows[] = {
        { WEIR_DISTRIBUTED, 0, 150 }, { WEIR_DISTRIBUTED, 5000, 100 }, { WEIR_DISTRIBUTED, 100000, 12 },
        { WEIR_HYBRID, 0, 150 },      { WEIR_HYBRID, 5000, 100 },      { WEIR_HYBRID, 100000, 12 },
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        ck_assert_int_le(admitted_over_failover(rows[i].mode, rows[i].lag_us, rows[i].enough), LIMIT);
}

/* Without the option, exactly the charges that the replica did not have yet are lost. */
TEST(without_acknowledgements_a_failover_admits_again_what_was_not_replicated, 60)
{
    enum { REPLICATED = 100, LATE = 50 };
    for (int durable = 0; durable < 2; durable++) {
        CLOSED_BY(replicated_stop) struct replicated both;
        CLOSED_BY(place_close) struct place place;
        int64_t allowed = 0;
        both_open(&both);
        struct weir_options options = durable_options(&place, &both, 5 * WEIR_SECOND);
        options.redis_replicas = durable;
        weir *limiter = limiter_of(&options);
        weir_limit *limit = limit_of(limiter, "limit", window);
        for (int i = 0; i < REPLICATED; i++)
            allowed += taken(limit, "key", 1).allowed;
        must(replicated_await(&both), "the replica has it all");
        hold_replica(&both);
        for (int i = 0; i < (durable ? 1 : LATE); i++) {
            const struct timed timed = timed_try(limit, "key", 1);
            allowed += timed.status == WEIR_OK && timed.decision.allowed;
        }
        must(replicated_promote(&both) == 0, both.error);
        weir_close(limiter);
        const int64_t excess = allowed + drain(&both.replica) - LIMIT;
        printf("failover, %s: %" PRId64 " permits too many\n", durable ? "acknowledged" : "not acknowledged", excess);
        ck_assert_int_eq(allowed, durable ? REPLICATED : REPLICATED + LATE);
        ck_assert_int_le(excess, durable ? 0 : LATE);
    }
}

/* A primary is cut off together with callers that still reach it, while its replica has taken its place. No replica
 * has its charges from then on, so it must not admit where a replica is required. */
TEST(a_primary_isolated_with_some_callers_admits_nothing_twice, 60)
{
    static const struct {
        enum weir_mode mode;
        bool in_silence;
    } rows[] = {
        { WEIR_DISTRIBUTED, false }, { WEIR_HYBRID, false }, { WEIR_DISTRIBUTED, true }, { WEIR_HYBRID, true }
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        CLOSED_BY(replicated_stop) struct replicated both;
        CLOSED_BY(place_close) struct place place;
        struct crew crew;
        struct load load = { .pause_us = 500, .most = LIMIT / 2 }; /* the rest is left for after the split */
        both_open(&both);
        struct weir_options options = durable_options(&place, &both, TIMEOUT_US);
        options.mode = rows[i].mode;
        options.lease_max = rows[i].mode == WEIR_HYBRID ? 20 : 0;
        LIMITER(limiter, &options);
        load.limit = limit_of(limiter, "limit", window);
        crew_start(&crew, 4, take_until_done, &load);
        const int64_t until_us = wire_now_us() + RECOVERY_MOST_US;
        while (atomic_load(&load.allowed) < 100 && wire_now_us() < until_us)
            sleep_us(100);
        must((rows[i].in_silence ? replicated_part_in_silence(&both) : replicated_part(&both)) == 0, both.error);
        atomic_store(&load.most, 0);
        const int64_t calls = atomic_load(&load.calls);
        const int64_t elsewhere = drain(&both.replica);
        while ((atomic_load(&load.calls) < calls + 8 || atomic_load(&load.failed) == 0) &&
               wire_now_us() < until_us) /* callers go on throughout, from leases at first */
            sleep_us(100);
        atomic_store(&load.done, true);
        crew_join(&crew);
        printf("parted%s, %s: %" PRId64 " admitted by the old primary, %" PRId64 " by the new one, of %d\n",
               rows[i].in_silence ? " in silence" : "", rows[i].mode == WEIR_HYBRID ? "hybrid" : "distributed",
               load.allowed, elsewhere, LIMIT);
        ck_assert_int_ge(load.allowed, 100);
        ck_assert_int_ge(load.calls, calls + 8);
        ck_assert_int_gt(load.failed, 0);
        ck_assert_int_gt(elsewhere, 0);
        ck_assert_int_le(load.allowed + elsewhere, LIMIT);
    }
}

/* A bucket on one side of a split, and when it last admitted. */
struct side {
    struct load load;
    struct place place;
    struct crew crew;
    weir *limiter;
    _Atomic int64_t last_us;
};

static void *note_last_until_done(void *argument)
{
    struct side *side = argument;
    while (!atomic_load(&side->load.done)) {
        const struct timed timed = timed_try(side->load.limit, "key", 1);
        count(&side->load, &timed);
        if (timed.status == WEIR_OK && timed.decision.allowed)
            atomic_store(&side->last_us, wire_now_us());
        sleep_us(500); /* leaves the processors to the servers */
    }
    return NULL;
}

static void side_open(struct side *side, const struct redis_server *server)
{
    place_open_bare(&side->place);
    struct weir_options options = place_options(&side->place, 20 * WEIR_SECOND);
    options.redis_url = server->url;
    side->limiter = limiter_of(&options);
    side->load.limit = limit_of(side->limiter, "limit", "token_bucket limit=100 period=1s");
    crew_start(&side->crew, 2, note_last_until_done, side);
}

static void side_close(struct side *side)
{
    atomic_store(&side->load.done, true);
    crew_join(&side->crew);
    weir_close(side->limiter);
    place_close(&side->place);
}

/* The primary notices a missing replica by its silence: after MAX_LAG_S, rounded to whole seconds at both ends, and
 * one second until its next check. Before Redis 7.0 its scripts write all the same. */
TEST(an_isolated_primary_with_min_replicas_to_write_admits_for_their_lag_and_two_seconds, 60)
{
    enum { MAX_LAG_S = 1 };
    const int64_t busy_s = full_or(2, 30); /* slack for a busy machine */
    CLOSED_BY(replicated_stop) struct replicated both;
    static struct side old, new;
    struct asker asker;
    char reply[64];
    both_open(&both);
    must(asker_open(&asker, both.primary.socket) == 0, asker.error);
    asker_ask(&asker, reply, sizeof reply, "CONFIG", "SET", "min-replicas-max-lag", "1", NULL);
    ck_assert_str_eq(reply, "OK");
    asker_ask(&asker, reply, sizeof reply, "CONFIG", "SET", "min-replicas-to-write", "1", NULL);
    ck_assert_str_eq(reply, "OK");
    asker_close(&asker);
    const bool heeds = primary_info(&both, "server", "redis_version:") >= 7;
    side_open(&old, &both.primary);
    while (atomic_load(&old.load.allowed) < 120)
        sleep_us(1000);
    const int64_t split_us = wire_now_us(), before = old.load.allowed;
    must(replicated_part_in_silence(&both) == 0, both.error);
    side_open(&new, &both.replica);
    const int64_t until_us = split_us + (MAX_LAG_S + 2 + busy_s) * WEIR_SECOND;
    while (heeds ? !place_logged(&old.place, "redis answers NOREPLICAS") : old.load.allowed < before + 150) {
        must(wire_now_us() < until_us, "the primary finds out");
        sleep_us(1000);
    }
    sleep_us(300000); /* and keeps refusing */
    while (atomic_load(&new.load.allowed) == 0 && wire_now_us() < until_us)
        sleep_us(1000);
    side_close(&old);
    side_close(&new);
    const int64_t for_us = old.last_us - split_us, admitted = old.load.allowed - before;
    printf("a silent split: the old primary admitted %" PRId64 " for %" PRId64 " ms, the new one %" PRId64 "\n",
           admitted, for_us / 1000, new.load.allowed);
    ck_assert_int_le(for_us, until_us - split_us);
    ck_assert_int_le(admitted, 100 + 100 * for_us / WEIR_SECOND + 2);
    ck_assert_int_le(new.load.allowed, 100 + 100 * (new.last_us - split_us) / WEIR_SECOND + 2);
    ck_assert_int_gt(new.load.allowed, 0);
    ck_assert_int_eq(old.load.failed > 0, heeds);
    ck_assert_int_eq(new.load.failed, 0);
}

int main(void)
{
    if (redis_server_missing())
        return 77;
    return suite_run(tests());
}
