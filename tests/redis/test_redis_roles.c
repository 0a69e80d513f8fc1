/* test_redis_roles.c - a server that becomes a replica under load, one that loads its data, and one that lost its
 * primary: faults D2 and D3, on real servers at a plain URL, which names no other server. */
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

/* One of the two servers, and a limiter that knows only that one. */
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

/* Decide by this server; on failure say why. */
static struct weir_decision end_decides(struct end *end, int64_t cost)
{
    struct weir_decision decision;
    const int status = cost == 0 ? weir_peek(end->limit, weir_key_text("key"), 1, &decision)
                                 : weir_try(end->limit, weir_key_text("key"), cost, &decision);
    if (status != WEIR_OK || decision.source != WEIR_BY_REDIS)
        ck_abort_msg("a cost of %" PRId64 ": %s\n%s", cost, weir_strerror(status), end->place.log);
    return decision;
}

static int64_t end_is_charged(struct end *end)
{
    const struct weir_decision decision = end_decides(end, 0);
    return decision.limit - decision.remaining;
}

/* Replicate without the proxy, because FAILOVER names a replica by its address. */
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

/* Fail over from one end to the other; false before Redis 6.2, which lacks the command. */
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
        sleep_us(200); /* leaves the processors to the servers */
    }
    return NULL;
}

TEST(a_primary_that_hands_over_admits_nothing_until_it_is_primary_again, 60)
{
    CLOSED_BY(replicated_stop) struct replicated both;
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
    if (hands_over) { /* the other server has every admitted permit */
        recover(second.limit, "key");
        const int64_t allowed = end_is_charged(&second);
        for (int64_t until_us = wire_now_us() + RECOVERY_MOST_US; load.allowed != allowed; sleep_us(1000))
            must(wire_now_us() < until_us, "it has what was admitted, and no more");
        end_decides(&second, 7);
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
    ck_assert_int_eq(end_is_charged(&first), load.allowed + (hands_over ? 7 : 0));
    end_close(&first);
    end_close(&second);
}

/* ---- LOADING and MASTERDOWN ---- */

/* Ask until the log has this word, and return true; false if Redis decides before. */
static bool is_told(struct place *place, weir_limit *limit, const char *word)
{
    struct weir_decision decision;
    for (int64_t until_us = wire_now_us() + RECOVERY_MOST_US; !place_logged(place, word); sleep_us(500)) {
        if (weir_try(limit, weir_key_text("key"), 1, &decision) >= 0)
            return place_logged(place, word);
        if (wire_now_us() > until_us)
            ck_abort_msg("not %s: %s", word, place->log);
    }
    return true;
}

/* Fill the server's disk with data that takes a while to load. With --full: a gigabyte. */
static void save_fillers(struct place *place, bool full)
{
    /* The server answers once per 2 MiB, a dozen times in more than a second. */
    static const char few[] = "for i = 1, 800 do redis.call('SET', 'filler:' .. i, string.rep('x', 32768)) end";
    static const char many[] = "for i = 1, 1e5 do redis.call('SET', KEYS[1] .. i, string.rep('x', 512)) end";
    char name[8];
    for (int i = 0; full && i < 20; i++) {
        snprintf(name, sizeof name, "%d:", i);
        place_ask(place, "EVAL", many, "1", name);
    }
    if (!full)
        place_ask(place, "EVAL", few, "0");
    ck_assert(strncmp(place_ask(place, "BGSAVE"), "Background", 10) == 0);
    for (int64_t until_us = wire_now_us() + 10 * RECOVERY_MOST_US;
         place_info(place, "persistence", "rdb_bgsave_in_progress:") != 0; sleep_us(1000))
        must(wire_now_us() < until_us, "it has saved all");
    if (full)
        printf("saved: %" PRId64 " MB\n", place_info(place, "memory", "used_memory:") / 1000000);
}

/* With --full: a gigabyte, as fast as it loads. */
TEST(a_loading_server_decides_nothing_until_it_knows_all_charges, 60)
{
    static const char *const slowly[] = { "--key-load-delay", "1000", "--rdbcompression", "no", NULL };
    const bool full = full_or(1, 0);
    PLACE(place, false, full ? slowly + 2 : slowly);
    struct weir_options options = place_options(&place, BUSY_US);
    LIMITER(limiter, &options);
    weir_limit *limit = limit_of(limiter, "limit", UNREFILLED);
    taken(limit, "key", 20);
    save_fillers(&place, full);
    asker_close(&place.asker);
    int64_t began_us;
    bool was_told = false;
    for (int tries = 0; !was_told && tries < 10; tries++) { /* on a busy machine it may have loaded before weir asks */
        redis_server_kill(&place.server);
        must(redis_server_restart_to_load(&place.server) == 0, place.server.daemon.error);
        began_us = wire_now_us();
        weir *another = limiter_of(&options); /* a limiter logs an outage once, and the first one has done so */
        was_told = is_told(&place, limit_of(another, "another", UNREFILLED), "LOADING");
        weir_close(another);
    }
    ck_assert_msg(was_told, "Redis decides before: %s", place.log);
    recover(limit, "key");
    printf("it has loaded, and decides, after %" PRId64 " ms\n", (wire_now_us() - began_us) / 1000);
    ck_assert_int_eq(is_charged(limit), 20);
    ck_assert(taken(limit, "key", 1).allowed);
}

TEST(a_replica_without_its_primary_decides_nothing_until_it_is_promoted, 60)
{
    PLACE(place, false, NULL);
    ck_assert_str_eq(place_ask(&place, "CONFIG", "SET", "replica-serve-stale-data", "no"), "OK");
    struct weir_options options = place_options(&place, BUSY_US);
    LIMITER(limiter, &options);
    weir_limit *limit = limit_of(limiter, "limit", UNREFILLED);
    taken(limit, "key", 20);
    ck_assert_str_eq(place_ask(&place, "REPLICAOF", "127.0.0.1", "1"), "OK");
    ck_assert_msg(is_told(&place, limit, "MASTERDOWN"), "Redis decides before: %s", place.log);
    ck_assert_str_eq(place_ask(&place, "REPLICAOF", "NO", "ONE"), "OK");
    recover(limit, "key");
    ck_assert_int_eq(is_charged(limit), 20);
    ck_assert(taken(limit, "key", 1).allowed);
}

int main(void)
{
    if (redis_server_missing())
        return 77;
    return suite_run(tests());
}
