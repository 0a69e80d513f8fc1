/* test_redis_sentinel.c - a primary that sentinels name: found, followed at a failover, and verified before use.
 * Faults D2, D7 and E3, on real servers and sentinels. */
#include "redis_place.h"
#include "sentinels.h"

#include <inttypes.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum { TIMEOUT_US = 50000 };

static const char marker[] = "s3cret-marker", sentinel_marker[] = "s3ntinel-marker";

/* Shared by all tests that change nothing but the choice of primary. */
static struct sentinels common;

/* ---- Options for a trio of servers ---- */

static void trio_open(struct sentinels *trio, const struct sentinels_wish *wish)
{
    if (sentinels_start(trio, wish) != 0)
        ck_abort_msg("%s", trio->error);
}

/* Return options with a URL of all sentinels, beginning with number `first`. */
static struct weir_options trio_options_from(struct place *place, const struct sentinels *trio, int first,
                                             const char *user_info, int64_t timeout_us)
{
    static char url[512];
    sentinels_url(trio, first, user_info, url, sizeof url);
    place_open_bare(place);
    struct weir_options options = place_options(place, timeout_us);
    options.redis_url = url;
    return options;
}

static struct weir_options trio_options(struct place *place, const struct sentinels *trio, const char *user_info,
                                        int64_t timeout_us)
{
    return trio_options_from(place, trio, 0, user_info, timeout_us);
}

/* Count a server's script calls since its start; a replica receives writes, not calls. */
static int64_t script_calls(const struct sentinels *trio, int server)
{
    static char reply[32768];
    struct asker asker;
    const char *found = NULL;
    if (asker_open(&asker, trio->servers[server].socket) == 0 &&
        asker_ask(&asker, reply, sizeof reply, "INFO", "commandstats", NULL) > 0)
        found = strstr(reply, "cmdstat_evalsha:calls=");
    asker_close(&asker);
    return found == NULL ? 0 : strtoll(found + strlen("cmdstat_evalsha:calls="), NULL, 10);
}

/* Return the only server that says it is a primary and that all sentinels name, once earlier failovers are over. */
static int primary_of(const struct sentinels *trio)
{
    for (int64_t until_us = wire_now_us() + 60 * WEIR_SECOND; wire_now_us() < until_us; sleep_us(10000)) {
        int named = sentinels_named(trio, 0);
        bool agreed = named >= 0;
        for (int i = 1; i < trio->wish.sentinels; i++)
            agreed = agreed && sentinels_named(trio, i) == named;
        for (int i = 0; i < trio->wish.servers; i++)
            agreed = agreed && sentinels_is_primary(trio, i) == (i == named);
        if (agreed)
            return named;
    }
    ck_abort_msg("the sentinels do not agree on a primary");
    return -1;
}

/* Return the first server other than `before` that says it is a primary; store when in *when_us. */
static int await_promotion(const struct sentinels *trio, int before, int64_t *when_us)
{
    for (int64_t until_us = wire_now_us() + 40 * WEIR_SECOND; wire_now_us() < until_us; sleep_us(1000)) {
        for (int i = 0; i < trio->wish.servers; i++) {
            *when_us = wire_now_us();
            if (i != before && sentinels_is_primary(trio, i))
                return i;
        }
    }
    ck_abort_msg("no replica is promoted");
    return -1;
}

/* ---- All is well ---- */

struct load {
    weir_limit *limit;
    atomic_bool done;
    _Atomic int64_t calls, by_redis, by_fallback, allowed, longest_us;
    _Atomic int64_t redis_us, gap_us; /* the last decision by Redis, and the longest gap between two */
};

static void raise_to(_Atomic int64_t *most, int64_t value)
{
    int64_t seen = atomic_load(most);
    while (value > seen && !atomic_compare_exchange_weak(most, &seen, value))
        continue;
}

static void *take_two_hundred(void *argument)
{
    struct load *load = argument;
    struct weir_decision decision;
    for (int i = 0; i < 200; i++) {
        must_succeed(weir_try(load->limit, weir_key_text("key"), 1, &decision));
        must(decision.source == WEIR_BY_REDIS, "Redis decides");
        atomic_fetch_add(&load->allowed, decision.allowed);
    }
    return NULL;
}

TEST(the_primary_that_sentinels_name_admits_exactly_the_limit, 60)
{
    CLOSED_BY(place_close) struct place place;
    struct crew crew;
    struct load load = { .limit = NULL };
    struct weir_options options = trio_options(&place, &common, common.servers[0].login, 20 * WEIR_SECOND);
    weir *limiters[3];
    weir_limit *limits[3];
    int64_t allowed = 0;
    for (int i = 0; i < 3; i++) {
        limiters[i] = limiter_of(&options);
        limits[i] = limit_of(limiters[i], "exact", "token_bucket limit=500 period=366d");
        load.limit = limits[i];
        crew_start(&crew, 4, take_two_hundred, &load);
        crew_join(&crew);
        allowed += atomic_exchange(&load.allowed, 0);
    }
    ck_assert_int_eq(allowed, 500);
    ck_assert_int_ge(script_calls(&common, primary_of(&common)), 1);
    for (int i = 0; i < 3; i++)
        weir_close(limiters[i]);
}

TEST(the_inspector_asks_the_primary_that_sentinels_name, 60)
{
    CLOSED_BY(place_close) struct place place;
    weir_inspector *inspector;
    struct weir_inspected found = { .size = sizeof found };
    struct weir_options options = trio_options(&place, &common, common.servers[0].login, 20 * WEIR_SECOND);
    LIMITER(limiter, &options);
    taken(limit_of(limiter, "inspected", "fixed_window limit=10 period=366d"), "key", 4);
    options = trio_options(&place, &common, "", 20 * WEIR_SECOND);
    must(weir_inspect_open(&options, &inspector) == WEIR_OK, weir_last_message());
    must(weir_inspect_key(inspector, "inspected", weir_key_text("key"), &found) == WEIR_OK, weir_last_message());
    ck_assert_int_eq(found.state.used, 4);
    weir_inspect_close(inspector);
    char url[600];
    snprintf(url, sizeof url, "%s-unknown", options.redis_url);
    options.redis_url = url;
    ck_assert_int_eq(weir_inspect_open(&options, &inspector), WEIR_EIO);
    ck_assert_msg(strstr(weir_last_message(), "does not know the service"), "%s", weir_last_message());
}

TEST(the_db_of_a_sentinel_url_is_selected_on_the_primary, 30)
{
    CLOSED_BY(place_close) struct place place;
    char url[600];
    struct weir_options options = trio_options(&place, &common, common.servers[0].login, 5 * WEIR_SECOND);
    snprintf(url, sizeof url, "%s?db=5", options.redis_url);
    options.redis_url = url;
    LIMITER(limiter, &options);
    taken(limit_of(limiter, "in-db", UNREFILLED), "key", 1);
    must(asker_open(&place.asker, common.servers[primary_of(&common)].socket) == 0, "the primary is asked");
    ck_assert_ptr_nonnull(strstr(place_ask(&place, "INFO", "keyspace"), "db5:keys=1"));
}

#if !defined(UNDER_TSAN) /* ThreadSanitizer does not support threads in a forked child */
TEST(a_forked_child_asks_the_sentinels_itself, 30)
{
    CLOSED_BY(place_close) struct place place;
    struct weir_options options = trio_options(&place, &common, common.servers[0].login, 20 * WEIR_SECOND);
    LIMITER(limiter, &options);
    weir_limit *limit = limit_of(limiter, "forked", UNREFILLED);
    taken(limit, "key", 1);
    assert_child_takes_too(limiter, limit, "key");
    struct weir_decision last = taken(limit, "key", 1);
    ck_assert_int_eq(last.limit - last.remaining, 102);
}
#endif

/* ---- Another primary ---- */

static void *take_until_done(void *argument)
{
    struct load *load = argument;
    while (!atomic_load(&load->done)) {
        struct timed timed = timed_try(load->limit, "key", 1);
        must_succeed(timed.status);
        must(timed.decision.source == WEIR_BY_REDIS || timed.decision.source == WEIR_BY_FALLBACK, "one of two decides");
        atomic_fetch_add(timed.decision.source == WEIR_BY_REDIS ? &load->by_redis : &load->by_fallback, 1);
        raise_to(&load->longest_us, timed.took_us);
        if (timed.decision.source == WEIR_BY_REDIS) {
            int64_t now_us = wire_now_us(), last_us = atomic_exchange(&load->redis_us, now_us);
            raise_to(&load->gap_us, last_us != 0 ? now_us - last_us : 0);
        }
        atomic_fetch_add(&load->calls, 1);
        if (timed.decision.source == WEIR_BY_FALLBACK)
            sleep_us(100); /* leaves the processors to the servers */
    }
    return NULL;
}

/* Wait until the replicas have all writes so far. */
static void await_replicas(const struct sentinels *trio, int primary)
{
    CLOSED_BY(asker_close) struct asker asker;
    char reply[32];
    must(asker_open(&asker, trio->servers[primary].socket) == 0 &&
             asker_ask(&asker, reply, sizeof reply, "SET", "awaited", "1", NULL) > 0 &&
             asker_count(&asker, "WAIT", "2", "20000", NULL) == trio->wish.servers - 1,
         "the replicas follow");
}

/* Reserve all permits of a limit on requests in flight or, with permits in *held, renew them, and check that the
 * primary admits it. The call may take long: a renewal without an answer could not be repeated. */
static void hold_all(struct place *place, const struct sentinels *trio, const char *key, struct weir_reservation *held)
{
    struct place calm;
    struct weir_decision decision;
    const struct weir_options options = trio_options(&calm, trio, trio->servers[0].login, 20 * WEIR_SECOND);
    weir *limiter = limiter_of(&options);
    weir_limit *limit = limit_of(limiter, "in-flight", "concurrency limit=3 hold=1h");
    const bool renews = held->permits == 3;
    must_succeed((renews ? weir_renew : weir_reserve)(limit, weir_key_text(key), 3, &decision, held));
    ck_assert_msg(decision.allowed && decision.source == WEIR_BY_REDIS, "%s", place->log);
    ck_assert(!taken_by_redis(limit, key, 1).allowed);
    weir_close(limiter);
    place_close(&calm);
}

/* Run callers while `end` removes the primary; return the new primary. No caller may see an error, and the new
 * primary must decide soon after its promotion. `watched` is the sentinel that the limiter listens to: number 0 leads
 * the failover, the others hear of it. */
static int follow_under_load(struct sentinels *trio, struct place *place, int watched, const char *what,
                             void (*end)(struct sentinels *trio, int primary))
{
    struct crew crew;
    static struct load load;
    const int before = primary_of(trio);
    struct weir_options options = trio_options_from(place, trio, watched, trio->servers[0].login, TIMEOUT_US);
    options.on_failure = WEIR_FAIL_LOCAL;
    weir *limiter = limiter_of(&options);
    load = (struct load){ .limit = limit_of(limiter, "limit", UNREFILLED) };
    char fresh[32]; /* each test runs in its own process */
    snprintf(fresh, sizeof fresh, "key-%d", (int)getpid());
    weir_limit *spent = limit_of(limiter, "spent", FIFTY_AN_HOUR);
    must(taken_by_redis(spent, fresh, 50).remaining == 0, "all of it is taken");
    struct weir_reservation held = { .permits = -1 };
    hold_all(place, trio, fresh, &held);
    await_replicas(trio, before);
    crew_start(&crew, 6, take_until_done, &load);
    sleep_us(100000);
    int64_t promoted_us, back_us, named_us = -1;
    end(trio, before);
    int after = await_promotion(trio, before, &promoted_us);
    int64_t calls = script_calls(trio, after);
    do {
        sleep_us(1000);
        back_us = wire_now_us() - promoted_us;
        if (back_us > full_or(10 * WEIR_SECOND, RECOVERY_MOST_US))
            ck_abort_msg("server %d is promoted, but does not decide; sentinels name %d, %d and %d: %s", after,
                         sentinels_named(trio, 0), sentinels_named(trio, 1), sentinels_named(trio, 2), place->log);
        for (int i = 0; i < trio->wish.sentinels && named_us < 0; i++)
            if (sentinels_named(trio, i) == after)
                named_us = back_us;
    } while (script_calls(trio, after) == calls);
    sleep_us(300000);
    atomic_store(&load.done, true);
    crew_join(&crew);
    printf("%s: the new primary is named by a sentinel %" PRId64 " us after its promotion and decides after %" PRId64
           "; of %" PRId64 " calls %" PRId64 " by the fallback, the longest took %" PRId64
           " us (timeout %d), no decision "
           "of Redis for %" PRId64 " us\n",
           what, named_us, back_us, load.calls, load.by_fallback, load.longest_us, TIMEOUT_US, load.gap_us);
    ck_assert_int_le(load.longest_us, call_most_us(TIMEOUT_US));
    taken_by_redis(load.limit, "key", 1);
    ck_assert(!taken_by_redis(spent, fresh, 2).allowed); /* one permit refills in 72 s */
    hold_all(place, trio, fresh, &held);                 /* it renews within the hold, so the new primary admits it */
    weir_close(limiter);
    return after;
}

static void hand_over(struct sentinels *trio, int primary)
{
    (void)primary;
    for (int tries = 0; sentinels_fail_over(trio, 0) != 0; tries++) {
        must(tries < 300, trio->error);
        sleep_us(100000); /* the previous failover is still finishing */
    }
}

TEST_EACH(a_failover_under_load_is_followed_immediately_without_an_error, 2, 120)
{
    struct place place;
    struct sentinels trio; /* its own trio: a new primary may be demoted when failovers follow closely */
    trio_open(&trio, NULL);
    int after = follow_under_load(&trio, &place, _i, "SENTINEL FAILOVER", hand_over);
    ck_assert(sentinels_is_primary(&trio, after));
    place_close(&place);
    sentinels_stop(&trio);
}

static void kill_it(struct sentinels *trio, int primary)
{
    redis_server_kill(&trio->servers[primary]);
}

/* Print whether a returning primary believes it still is one, which takes the sentinels eight seconds to correct. */
static void say_if_told(const struct sentinels *trio, int server)
{
    if (!sentinels_is_primary(trio, server))
        puts("this machine is slow: the former primary knows already that it is none");
}

TEST(a_killed_primary_is_replaced_and_not_used_when_it_returns, 120)
{
    CLOSED_BY(place_close) struct place place;
    CLOSED_BY(sentinels_stop) struct sentinels trio;
    trio_open(&trio, NULL);
    int after = follow_under_load(&trio, &place, 0, "kill -9 of the primary", kill_it);
    ck_assert_int_ne(after, 0);

    struct weir_options options = place_options(&place, WEIR_SECOND);
    char url[512];
    sentinels_url(&trio, 1, trio.servers[0].login, url, sizeof url);
    options.redis_url = url;
    LIMITER(limiter, &options);
    weir_limit *limit = limit_of(limiter, "limit", UNREFILLED);
    recover(limit, "key");
    must(redis_server_restart(&trio.servers[0]) == 0, trio.servers[0].daemon.error);
    say_if_told(&trio, 0);
    for (int i = 0; i < 200; i++) {
        recover(limit, "key");
        sleep_us(1000);
    }
    ck_assert_int_eq(script_calls(&trio, 0), 0);
}

static void stop_it(struct sentinels *trio, int primary)
{
    redis_server_pause(&trio->servers[primary]);
}

TEST(a_primary_that_was_stopped_finds_its_callers_gone, 120)
{
    CLOSED_BY(place_close) struct place place;
    CLOSED_BY(sentinels_stop) struct sentinels trio;
    trio_open(&trio, NULL);
    follow_under_load(&trio, &place, 1, "a primary that stands still", stop_it);
    struct weir_options options = trio_options_from(&place, &trio, 1, trio.servers[0].login, WEIR_SECOND);
    LIMITER(limiter, &options);
    weir_limit *limit = limit_of(limiter, "limit", UNREFILLED);
    recover(limit, "key");
    redis_server_resume(&trio.servers[0]);
    say_if_told(&trio, 0);
    int64_t calls = script_calls(&trio, 0);
    for (int i = 0; i < 200; i++) {
        recover(limit, "key");
        sleep_us(1000);
    }
    ck_assert_int_eq(script_calls(&trio, 0), calls);
}

TEST(a_primary_demoted_to_a_replica_is_no_longer_used_despite_open_connections, 60)
{
    CLOSED_BY(place_close) struct place place;
    CLOSED_BY(sentinels_stop) struct sentinels trio;
    const struct sentinels_wish alone = { .servers = 1, .sentinels = 1 };
    trio_open(&trio, &alone);
    struct weir_options options = trio_options(&place, &trio, trio.servers[0].login, WEIR_SECOND);
    LIMITER(limiter, &options);
    weir_limit *limit = limit_of(limiter, "limit", UNREFILLED);
    recover(limit, "key");
    must(asker_open(&place.asker, trio.servers[0].socket) == 0, "the server is asked");
    place_ask(&place, "REPLICAOF", "127.0.0.1", "1");
    /* READONLY ends existing connections and ROLE prevents new ones, so it soon gets no more requests. */
    int64_t before, until_us = wire_now_us() + 20 * WEIR_SECOND;
    do {
        if (wire_now_us() > until_us)
            ck_abort_msg("it is not left: %s", place.log);
        before = script_calls(&trio, 0);
        for (int i = 0; i < 100; i++) {
            ck_assert_int_ne(timed_try(limit, "key", 1).status, WEIR_OK);
            sleep_us(1000);
        }
    } while (script_calls(&trio, 0) != before);
    ck_assert_msg(place_logged(&place, "redis cannot be used: the server is a replica"), "%s", place.log);
    place_ask(&place, "REPLICAOF", "NO", "ONE");
    recover(limit, "key");
}

/* ---- Sentinels that fail ---- */

/* Return a listening port that never accepts: the system completes its connections, but nothing answers. */
static int silent_port(int *port)
{
    struct sockaddr_in address = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    socklen_t len = sizeof address;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    must(fd >= 0 && bind(fd, (struct sockaddr *)&address, len) == 0 && listen(fd, 64) == 0 &&
             getsockname(fd, (struct sockaddr *)&address, &len) == 0,
         "a silent port");
    *port = ntohs(address.sin_port);
    return fd;
}

/* Answer `names` to every request for the primary, and otherwise as a good sentinel. */
static bool name_it(void *user, const struct fake_request *request, struct fake_reply *reply)
{
    if (fake_request_is(request, "SENTINEL"))
        fake_say_text(reply, user);
    else if (fake_request_is(request, "SUBSCRIBE"))
        fake_say_text(reply, "*3\r\n$9\r\nsubscribe\r\n$14\r\n+switch-master\r\n:1\r\n");
    else
        return false;
    return true;
}

/* Check that, with a bad first sentinel at `port` before the common trio, Redis decides and the log says `says`. */
static void assert_passed_over(int port, const char *says)
{
    CLOSED_BY(place_close) struct place place;
    char url[600];
    struct weir_options options = trio_options(&place, &common, common.servers[0].login, TIMEOUT_US);
    snprintf(url, sizeof url, "redis-sentinel://%s127.0.0.1:%d,%s", common.servers[0].login, port,
             strchr(options.redis_url, '@') + 1);
    options.redis_url = url;
    LIMITER(limiter, &options);
    weir_limit *limit = limit_of(limiter, "limit", UNREFILLED);
    int64_t took_us = recover(limit, "key");
    printf("%s: passed over in %" PRId64 " us\n", says, took_us);
    taken_by_redis(limit, "key", 1);
    ck_assert_msg(place_logged(&place, says), "%s", place.log);
}

TEST(a_sentinel_that_is_down_is_skipped, 30)
{
    assert_passed_over(daemon_port_closed(), "sentinel 1 of 4 cannot be used: cannot connect: Connection refused");
}

TEST(a_silent_sentinel_is_skipped, 30)
{
    int port, fd = silent_port(&port);
    assert_passed_over(port, "sentinel 1 of 4 cannot be used: no answer in time");
    close(fd);
}

TEST(a_sentinel_that_does_not_know_the_service_is_skipped, 30)
{
    static char nobody[] = "*-1\r\n";
    struct fake_redis *fake = fake_redis_start_port(name_it, nobody);
    assert_passed_over(fake_redis_port(fake), "sentinel 1 of 4 cannot be used: it does not know the service");
    fake_redis_stop(fake);
}

TEST(a_replica_named_by_a_sentinel_is_refused_by_its_role, 30)
{
    int replica = (primary_of(&common) + 1) % SENTINELS_MOST;
    char names[64], port[8];
    int len = snprintf(port, sizeof port, "%d", common.ports[replica]);
    snprintf(names, sizeof names, "*2\r\n$9\r\n127.0.0.1\r\n$%d\r\n%s\r\n", len, port);
    struct fake_redis *liar = fake_redis_start_port(name_it, names);
    int64_t calls = script_calls(&common, replica);
    assert_passed_over(fake_redis_port(liar), "the server that a sentinel named is not a primary");
    ck_assert_int_eq(script_calls(&common, replica), calls);
    fake_redis_stop(liar);
}

TEST(a_service_unknown_to_all_sentinels_is_an_outage_and_logged, 60)
{
    CLOSED_BY(place_close) struct place place;
    char url[600];
    struct weir_options options = trio_options(&place, &common, common.servers[0].login, TIMEOUT_US);
    snprintf(url, sizeof url, "%s-of-others", options.redis_url);
    options.redis_url = url;
    LIMITER(limiter, &options);
    weir_limit *limit = limit_of(limiter, "limit", UNREFILLED);
    for (int i = 0; i < 50; i++) {
        struct timed timed = timed_try(limit, "key", 1);
        ck_assert(timed.status == WEIR_EIO || timed.status == WEIR_ETIME);
        ck_assert_int_le(timed.took_us, call_most_us(TIMEOUT_US));
    }
    for (int64_t until_us = wire_now_us() + 20 * WEIR_SECOND;
         !place_logged(&place, "redis cannot be used: no sentinel names the primary"); sleep_us(1000))
        must(wire_now_us() < until_us, "the log says so");
    ck_assert_msg(place_logged(&place, "sentinel 3 of 3 cannot be used: it does not know the service"), "%s",
                  place.log);
}

TEST(without_sentinels_decisions_continue_until_the_primary_is_lost, 120)
{
    CLOSED_BY(place_close) struct place place;
    CLOSED_BY(sentinels_stop) struct sentinels trio;
    const struct sentinels_wish alone = { .servers = 1, .sentinels = 2 };
    trio_open(&trio, &alone);
    struct weir_options options = trio_options(&place, &trio, trio.servers[0].login, TIMEOUT_US);
    LIMITER(limiter, &options);
    weir_limit *limit = limit_of(limiter, "limit", UNREFILLED);
    recover(limit, "key");
    options.timeout_us = 20 * WEIR_SECOND;
    LIMITER(patient, &options);
    weir_limit *of_patient = limit_of(patient, "limit", UNREFILLED);
    taken(of_patient, "key", 1);
    sentinels_kill(&trio, 0);
    sentinels_kill(&trio, 1);
    for (int64_t until_us = wire_now_us() + 20 * WEIR_SECOND;
         !place_logged(&place, "sentinel 2 of 2 cannot be used");) {
        ck_assert_int_eq(taken(of_patient, "key", 1).source, WEIR_BY_REDIS);
        must(wire_now_us() < until_us, "the loss is noticed");
    }
    ck_assert_uint_eq(stats_of(patient).errors, 0);
    must(asker_open(&place.asker, trio.servers[0].socket) == 0, "the server is asked");
    place_ask(&place, "CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes");
    struct timed timed;
    for (int64_t until_us = wire_now_us() + 20 * WEIR_SECOND; (timed = timed_try(limit, "key", 1)).status == WEIR_OK;)
        must(wire_now_us() < until_us, "nobody knows the primary");
    ck_assert_int_le(timed.took_us, call_most_us(TIMEOUT_US));
    must(sentinels_restart(&trio, 1) == 0, trio.error);
    printf("a sentinel is back: Redis decides again in %" PRId64 " us\n", recover(limit, "key"));
    recover(of_patient, "key");
}

/* ---- Secrets ---- */

TEST(sentinels_and_servers_have_separate_passwords_and_neither_is_logged, 120)
{
    static const struct {
        const char *user_info, *sentinel_password, *says; /* says: NULL: accepted */
    } rows[] = {
        { ":s3cret-marker@", "s3ntinel-marker", NULL },
        { ":s3cret-marker@", "s3ntinel-marker-not", "cannot be used: the server answers WRONGPASS to AUTH" },
        { ":s3cret-marker@", NULL, "cannot be used: the server answers NOAUTH to SENTINEL" },
        { ":s3cret-marker-not@", "s3ntinel-marker", "redis cannot be used: the server answers WRONGPASS to AUTH" },
        { "", "s3ntinel-marker", "redis cannot be used: the server answers NOAUTH to ROLE" },
    };
    CLOSED_BY(sentinels_stop) struct sentinels trio;
    const struct sentinels_wish locked = {
        .servers = 1, .sentinels = 1, .password = marker, .own_password = sentinel_marker
    };
    trio_open(&trio, &locked);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        CLOSED_BY(place_close) struct place place;
        struct weir_options options = trio_options(&place, &trio, rows[i].user_info, WEIR_SECOND);
        if (rows[i].sentinel_password)
            setenv("WEIR_REDIS_SENTINEL_PASSWORD", rows[i].sentinel_password, 1);
        else
            unsetenv("WEIR_REDIS_SENTINEL_PASSWORD");
        LIMITER(limiter, &options);
        unsetenv("WEIR_REDIS_SENTINEL_PASSWORD");
        weir_limit *limit = limit_of(limiter, "limit", UNREFILLED);
        if (rows[i].says)
            assert_refused(&place, limit, rows[i].says);
        else
            recover(limit, "key");
        ck_assert_msg(!place_logged(&place, "marker"), "%s", place.log);
    }
}

int main(void)
{
    if (redis_server_missing())
        return 77;
    if (access("/dev/shm", W_OK) == 0) /* avoids disk waits, during which sentinels stand still */
        setenv("TMPDIR", "/dev/shm", 0);
    static const char *const uses[] = { "sentinels", "db", NULL };
    const struct sentinels_wish wish = { .uses = uses };
    if (sentinels_start(&common, &wish) != 0) {
        printf("%s\n", common.error);
        return 1;
    }
    int status = suite_run(tests());
    sentinels_stop(&common);
    return status;
}
