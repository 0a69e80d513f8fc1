/* test_redis_roles.c - a server that becomes a replica under its callers, that loads, that has lost its primary: faults
 * D2 and D3, on real servers by a plain URL, where nobody says which other server to ask.
 */
#include "redis_place.h"
#include "replicated.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

enum { CREW = 4, BUSY_US = 5 * 1000 * 1000 };

static int64_t is_charged(weir_limit *limit)
{
    const struct weir_decision decision = peeked(limit, "key", 1);
    must(decision.source == WEIR_BY_REDIS, "Redis says it");
    return decision.limit - decision.remaining;
}

/* ---- FAILOVER TO ---- */

/* One of the two, and a limiter that knows of it alone. */
struct end {
    struct place place;
    weir *limiter;
    weir_limit *limit;
};

static void end_open(struct end *end, const struct redis_server *server)
{
    place_open_bare(&end->place);
    must(asker_open(&end->place.asker, server->socket) == 0, "the server is asked");
    struct weir_options options = place_options(&end->place, BUSY_US);
    options.redis_url = server->tcp_url;
    end->limiter = limiter_of(&options);
    end->limit = limit_of(end->limiter, "limit", UNREFILLED);
}

static void end_close(struct end *end)
{
    weir_close(end->limiter);
    place_close(&end->place);
}

/* Without the proxy between them: FAILOVER names a replica by its address. */
static void follow_at_its_port(struct replicated *both)
{
    struct asker asker;
    char port[8], reply[64];
    snprintf(port, sizeof port, "%d", both->primary.port);
    must(asker_open(&asker, both->replica.socket) == 0, asker.error);
    asker_ask(&asker, reply, sizeof reply, "REPLICAOF", "127.0.0.1", port, NULL);
    ck_assert_str_eq(reply, "OK");
    asker_close(&asker);
    must(replicated_await(both), "the replica follows");
}

/* From one end to the other; false before Redis 6.2, which has no such command. */
static bool fail_over(struct end *from, struct end *to, const struct redis_server *server)
{
    char port[8];
    snprintf(port, sizeof port, "%d", server->port);
    place_ask(&from->place, "FAILOVER", "TO", "127.0.0.1", port, "TIMEOUT", "10000");
    if (strncmp(place_reply, "-ERR unknown command", 20) == 0)
        return false;
    ck_assert_str_eq(place_reply, "OK");
    const int64_t until_us = wire_now_us() + 2 * RECOVERY_MOST_US;
    while (strstr(place_ask(&to->place, "INFO", "replication"), "role:master") == NULL ||
           strstr(place_ask(&from->place, "INFO", "replication"), "role:slave") == NULL) {
        must(wire_now_us() < until_us, "the other one is the primary");
        sleep_us(1000);
    }
    return true;
}

struct load {
    weir_limit *limit;
    atomic_bool done;
    _Atomic int64_t allowed, failed;
};

static void *take_until_done(void *argument)
{
    struct load *load = argument;
    struct weir_decision decision;
    while (!atomic_load(&load->done)) {
        const int status = weir_try(load->limit, weir_key_text("key"), 1, &decision);
        must(status == WEIR_OK || status == WEIR_EIO || status == WEIR_ETIME, weir_strerror(status));
        must(status != WEIR_OK || (decision.allowed && decision.source == WEIR_BY_REDIS), "Redis admits it");
        atomic_fetch_add(status == WEIR_OK ? &load->allowed : &load->failed, 1);
        sleep_us(200); /* the servers need the processors */
    }
    return NULL;
}

START_TEST(a_primary_that_hands_over_to_its_replica_admits_nothing_more_and_is_used_again_when_it_is_one_again)
{
    struct replicated both;
    struct crew crew;
    struct load load = { .limit = NULL };
    static struct end first, second;
    if (replicated_start(&both) != 0)
        ck_abort_msg("%s", both.error);
    follow_at_its_port(&both);
    end_open(&first, &both.primary);
    end_open(&second, &both.replica);
    load.limit = first.limit;
    crew_start(&crew, CREW, take_until_done, &load);
    while (atomic_load(&load.allowed) < 100)
        sleep_us(1000);
    const bool hands_over = fail_over(&first, &second, &both.replica);
    for (int64_t until_us = wire_now_us() + RECOVERY_MOST_US; hands_over && load.failed < 50; sleep_us(1000))
        must(wire_now_us() < until_us, "it is left");
    if (hands_over) { /* what it has admitted is with the other one, every permit */
        recover(second.limit, "key");
        const int64_t allowed = is_charged(second.limit);
        for (int64_t until_us = wire_now_us() + RECOVERY_MOST_US; load.allowed != allowed; sleep_us(1000))
            must(wire_now_us() < until_us, "it has what was admitted, and no more");
        ck_assert_int_eq(taken(second.limit, "key", 7).source, WEIR_BY_REDIS);
        ck_assert_int_eq(load.allowed, allowed);
        must(fail_over(&second, &first, &both.primary), "back again");
        const int64_t began_us = wire_now_us(), until_us = began_us + RECOVERY_MOST_US;
        while (load.allowed == allowed) {
            must(wire_now_us() < until_us, "it is used again");
            sleep_us(100);
        }
        printf("FAILOVER TO: used again after %" PRId64 " us\n", wire_now_us() - began_us);
    } else {
        printf("not tried: this server has no FAILOVER\n");
    }
    atomic_store(&load.done, true);
    crew_join(&crew);
    ck_assert_int_eq(is_charged(first.limit), load.allowed + (hands_over ? 7 : 0));
    end_close(&first);
    end_close(&second);
    replicated_stop(&both);
}
END_TEST

/* ---- LOADING and MASTERDOWN ---- */

/* Ask until the log has this word; Redis decides nothing all the while. */
static void assert_told(struct place *place, weir_limit *limit, const char *word)
{
    struct weir_decision decision;
    for (int64_t until_us = wire_now_us() + RECOVERY_MOST_US; !place_logged(place, word); sleep_us(500)) {
        ck_assert_msg(weir_try(limit, weir_key_text("key"), 1, &decision) < 0 || place_logged(place, word),
                      "Redis decides before it was told: %s", place->log);
        if (wire_now_us() > until_us)
            ck_abort_msg("not %s: %s", word, place->log);
    }
}

START_TEST(a_server_that_loads_decides_nothing_until_it_knows_what_was_charged)
{
    static const char *const config[] = { "--key-load-delay", "1000", "--rdbcompression", "no", NULL };
    /* It answers after each 2 MiB: that many are some half a second, and six times. */
    static const char fill[] = "for i = 1, 400 do redis.call('SET', 'filler:' .. i, string.rep('x', 32768)) end";
    struct place place;
    place_open(&place, false, config);
    struct weir_options options = place_options(&place, BUSY_US);
    weir *limiter = limiter_of(&options);
    weir_limit *limit = limit_of(limiter, "limit", UNREFILLED);
    taken(limit, "key", 20);
    place_ask(&place, "EVAL", fill, "0");
    ck_assert_str_eq(place_ask(&place, "SAVE"), "OK");
    asker_close(&place.asker);
    redis_server_kill(&place.server);
    must(redis_server_restart_to_load(&place.server) == 0, place.server.daemon.error);
    weir *another = limiter_of(&options); /* one outage is told once: of the first the log knows another reason */
    assert_told(&place, limit_of(another, "limit", UNREFILLED), "LOADING");
    recover(limit, "key");
    ck_assert_int_eq(is_charged(limit), 20);
    ck_assert(taken(limit, "key", 1).allowed);
    weir_close(another);
    weir_close(limiter);
    place_close(&place);
}
END_TEST

START_TEST(a_replica_whose_primary_is_gone_decides_nothing_until_it_is_one_itself)
{
    struct place place;
    place_open(&place, false, NULL);
    ck_assert_str_eq(place_ask(&place, "CONFIG", "SET", "replica-serve-stale-data", "no"), "OK");
    struct weir_options options = place_options(&place, BUSY_US);
    weir *limiter = limiter_of(&options);
    weir_limit *limit = limit_of(limiter, "limit", UNREFILLED);
    taken(limit, "key", 20);
    ck_assert_str_eq(place_ask(&place, "REPLICAOF", "127.0.0.1", "1"), "OK");
    assert_told(&place, limit, "MASTERDOWN");
    ck_assert_str_eq(place_ask(&place, "REPLICAOF", "NO", "ONE"), "OK");
    recover(limit, "key");
    ck_assert_int_eq(is_charged(limit), 20);
    ck_assert(taken(limit, "key", 1).allowed);
    weir_close(limiter);
    place_close(&place);
}
END_TEST

int main(void)
{
    if (server_missing())
        return 77;
    Suite *suite = suite_create("redis_roles");
    suite_test(suite,
               a_primary_that_hands_over_to_its_replica_admits_nothing_more_and_is_used_again_when_it_is_one_again, 60);
    suite_test(suite, a_server_that_loads_decides_nothing_until_it_knows_what_was_charged, 60);
    suite_test(suite, a_replica_whose_primary_is_gone_decides_nothing_until_it_is_one_itself, 60);
    return suite_run(suite);
}
