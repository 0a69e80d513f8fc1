/* test_redis_ttl.c - every key gets the time to live that docs/redis.md states, whatever was requested and whenever the
 * server was killed.
 *
 * The time to live is the time until the key is idle plus GRACE_MS, or plus a week with the caller's times. A greedy or
 * leaky bucket's key has up to a quarter of its longest time more, and a second: its room.
 */
#include "redis_place.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { GRACE_MS = 2000, WEEK_MS = 7 * 86400000, ROUNDING_MS = 2, LIMITS = 12, KEYS = 20, KEYS_MOST = 1200 };

/* The longest time until a key is idle, and its room. */
static const struct {
    const char *policy;
    int64_t fill_us;
    bool has_room;
} kinds[LIMITS] = {
    { "token_bucket limit=50 period=1s burst=200", 4 * WEIR_SECOND, true },
    { "token_bucket limit=10 period=1m burst=20 debt=10", 3 * WEIR_MINUTE, true },
    { "token_bucket limit=1000000000 period=1us", 1, true },
    { "token_bucket limit=100 period=1h refill=interval", WEIR_HOUR, false },
    { "token_bucket limit=10 period=1s burst=25 refill=interval align=epoch", 3 * WEIR_SECOND, false },
    { "fixed_window limit=30 period=366d", 366 * WEIR_DAY, false },
    { "fixed_window limit=30 period=100ms", WEIR_SECOND / 10, false },
    { "fixed_window limit=30 period=1h align=epoch", WEIR_HOUR, false },
    { "sliding_window limit=30 period=1s", WEIR_SECOND + WEIR_SECOND / 10, false },
    { "sliding_window limit=1000 period=1d blocks=1024", WEIR_DAY + WEIR_DAY / 1024 + 1, false },
    { "leaky_bucket limit=50 period=1s capacity=100", 2 * WEIR_SECOND, true },
    { "leaky_bucket limit=1 period=1h capacity=24", WEIR_DAY, true },
};

/* ---- Stored keys ---- */

struct scan {
    int64_t keys, without, longest_ms[LIMITS]; /* of keys of the limits "l<number>" */
};

/* Return all keys with their times to live, at one instant. */
static struct scan scan_of(struct place *place)
{
    static const char script[] =
        "local all = {} for _, key in ipairs(redis.call('KEYS', '*')) do "
        "all[#all + 1] = key .. '=' .. redis.call('PTTL', key) end return table.concat(all, ' ')";
    struct scan scan = { 0 };
    char *rest = (char *)(uintptr_t)place_ask(place, "EVAL", script, "0"), *word;
    while ((word = strsep(&rest, " ")) != NULL) {
        const char *number = strrchr(word, '=');
        if (number == NULL)
            continue;
        must(strncmp(word, "weir:l", 6) == 0, word);
        const int limit = atoi(word + 6);
        const int64_t ttl_ms = strtoll(number + 1, NULL, 10);
        scan.keys++;
        scan.without += ttl_ms < 0;
        scan.longest_ms[limit] = ttl_ms > scan.longest_ms[limit] ? ttl_ms : scan.longest_ms[limit];
    }
    must(scan.keys < KEYS_MOST, "all keys fit into one answer");
    return scan;
}

static int64_t life_us(int kind)
{
    return kinds[kind].fill_us + (kinds[kind].has_room ? kinds[kind].fill_us / 4 + WEIR_SECOND : 0);
}

static void assert_all_end(const struct scan *scan, const int64_t *life_us, int64_t grace_ms)
{
    ck_assert_int_eq(scan->without, 0);
    for (int i = 0; i < LIMITS; i++)
        ck_assert_msg(scan->longest_ms[i] <= life_us[i] / 1000 + ROUNDING_MS + grace_ms, "%s: %" PRId64 " ms",
                      kinds[i].policy, scan->longest_ms[i]);
}

/* ---- Whatever was requested ---- */

struct asked {
    weir *limiter;
    weir_limit *limits[LIMITS];
    int64_t life_us[LIMITS]; /* the time that each key's use takes to refill, and its room */
};

static void asked_open(struct asked *asked, const struct weir_options *options)
{
    char name[8];
    asked->limiter = limiter_of(options);
    for (int i = 0; i < LIMITS; i++) {
        snprintf(name, sizeof name, "l%d", i);
        asked->limits[i] = limit_of(asked->limiter, name, kinds[i].policy);
        asked->life_us[i] = life_us(i);
    }
}

static void redefine_by_chance(struct asked *asked, struct chance *chance)
{
    const int i = (int)chance_between(chance, 0, LIMITS - 1), to = (int)chance_between(chance, 0, LIMITS - 1);
    char name[8];
    snprintf(name, sizeof name, "l%d", i);
    limit_of(asked->limiter, name, kinds[to].policy);
    if (life_us(to) > asked->life_us[i])
        asked->life_us[i] = life_us(to);
}

/* Make a random request for a key of a random limit. */
static void ask_by_chance(const struct asked *asked, struct chance *chance)
{
    struct weir_request requests[3];
    struct weir_decision decisions[3];
    char name[8];
    snprintf(name, sizeof name, "k%d", (int)chance_between(chance, 0, KEYS - 1));
    const struct weir_key key = weir_key_text(name);
    const int first = (int)chance_between(chance, 0, LIMITS - 1);
    weir_limit *limit = asked->limits[first];
    const int64_t cost = chance_magnitude(chance, 40);
    for (int i = 0; i < 3; i++)
        requests[i] = (struct weir_request){ .limit = asked->limits[(first + i) % LIMITS], .key = key, .cost = cost };
    switch (chance_between(chance, 0, 9)) {
    case 0: must_succeed(weir_refund(limit, key, cost)); break;
    case 1: must_succeed(weir_reset(limit, key)); break;
    case 2: must_succeed(weir_peek(limit, key, cost, decisions)); break;
    case 3: must_succeed(weir_try_all(asked->limiter, requests, 3, decisions)); break;
    case 4: must_succeed(weir_try_batch(asked->limiter, requests, 3, decisions)); break;
    default: must_succeed(weir_try(limit, key, cost, decisions));
    }
}

static const struct {
    enum weir_mode mode;
    bool redefines, by_local_clock;
} ways[] = {
    { WEIR_DISTRIBUTED, false, false },
    { WEIR_DISTRIBUTED, true, false },
    { WEIR_DISTRIBUTED, true, true },
    { WEIR_HYBRID, true, false }, /* charges in advance */
};

TEST_EACH(every_key_expires_within_the_documented_time, sizeof ways / sizeof *ways, 60)
{
    struct asked asked;
    struct chance chance = chance_make((uint64_t)_i);
    int64_t seen = 0;
    PLACE(place, false, NULL);
    struct weir_options options = place_options(&place, 20 * WEIR_SECOND);
    options.mode = ways[_i].mode;
    /* long enough for a busy machine to lease */
    options.lease_life_us = ways[_i].mode == WEIR_HYBRID ? WEIR_SECOND : 0;
    options.by_local_clock = ways[_i].by_local_clock;
    asked_open(&asked, &options);
    for (int i = 0; i < 40; i++) {
        for (int j = 0; j < 150; j++) {
            if (ways[_i].redefines && chance_one_in(&chance, 10))
                redefine_by_chance(&asked, &chance);
            ask_by_chance(&asked, &chance);
        }
        const struct scan scan = scan_of(&place);
        assert_all_end(&scan, asked.life_us, GRACE_MS + (ways[_i].by_local_clock ? WEEK_MS : 0));
        seen = scan.keys > seen ? scan.keys : seen;
    }
    ck_assert_int_gt(seen, LIMITS * KEYS / 2);
    ck_assert_msg(place_log_lines(&place) == 0, "%s", place.log);
    weir_limit *plenty = limit_of(asked.limiter, "plenty", UNREFILLED);
    for (int64_t until_us = wire_now_us() + RECOVERY_MOST_US;
         ways[_i].mode == WEIR_HYBRID && stats_of(asked.limiter).leased == 0;) {
        must(wire_now_us() < until_us, "a key that is in demand is leased");
        taken(plenty, "key", 1);
    }
    weir_close(asked.limiter);
}

TEST(no_key_expires_before_it_is_idle, 60)
{
    struct asked asked;
    struct chance chance = chance_make(9);
    char name[8], stored[32];
    PLACE(place, false, NULL);
    struct weir_options options = place_options(&place, 20 * WEIR_SECOND);
    asked_open(&asked, &options);
    for (int i = 0; i < 3000; i++) {
        const int limit = (int)chance_between(&chance, 0, LIMITS - 1);
        ask_by_chance(&asked, &chance);
        snprintf(name, sizeof name, "k%d", (int)chance_between(&chance, 0, KEYS - 1));
        snprintf(stored, sizeof stored, "weir:l%d:{%s}", limit, name);
        const int64_t began_us = wire_now_us();
        const struct weir_decision decision = peeked(asked.limits[limit], name, 1);
        const int64_t ttl_us = asker_count(&place.asker, "PTTL", stored, NULL) * 1000;
        if (decision.reset_after_us > 0)
            ck_assert_msg(ttl_us + (wire_now_us() - began_us) >= decision.reset_after_us,
                          "%s: %" PRId64 " us to live, and new after %" PRId64, stored, ttl_us,
                          decision.reset_after_us);
    }
    weir_close(asked.limiter);
}

/* ---- Whenever the server is killed ---- */

/* kinds[WINDOW] never ends during the test */
enum { CREW = 3, WINDOW = 5, WINDOW_LIMIT = 30, KILLING_US = 5 * 1000 * 1000 };

struct load {
    struct asked asked;
    atomic_int crew;
    atomic_bool over;
    _Atomic int64_t answers, admitted[KEYS]; /* the window's */
};

/* Make any request, then take one permit of the window; sometimes nothing answers. */
static void *ask_on(void *argument)
{
    struct load *load = argument;
    struct weir_decision decision;
    char name[8];
    struct chance chance = chance_make((uint64_t)atomic_fetch_add(&load->crew, 1));
    while (!atomic_load(&load->over)) {
        const int limit = (int)chance_between(&chance, 0, LIMITS - 1), key = (int)chance_between(&chance, 0, KEYS - 1);
        snprintf(name, sizeof name, "k%d", key);
        if (limit != WINDOW && chance_one_in(&chance, 5))
            weir_refund(load->asked.limits[limit], weir_key_text(name), 1);
        else if (weir_try(load->asked.limits[limit], weir_key_text(name), 1, &decision) == WEIR_OK) {
            atomic_fetch_add(&load->answers, 1);
            if (limit == WINDOW)
                atomic_fetch_add(&load->admitted[key], decision.allowed);
        } else {
            sleep_us(100); /* leaves the processors to the server */
        }
    }
    return NULL;
}

/* With --full: a thousand times. */
TEST(a_killed_server_returns_without_endless_keys_or_lost_charges, 120)
{
    static const char *const config[] = {
        "--appendonly", "yes", "--appendfsync", "no", "--auto-aof-rewrite-min-size", "512kb", NULL
    }; /* so that some kills hit it while it rewrites its file */
    static struct load load;
    struct crew crew;
    struct chance chance = chance_make(4);
    int kills = 0;
    int64_t keys = 0;
    PLACE(place, false, config);
    struct weir_options options = place_options(&place, WEIR_SECOND);
    asked_open(&load.asked, &options);
    crew_start(&crew, CREW, ask_on, &load);
    const int64_t least = full_or(1000, 4);
    for (const int64_t until_us = wire_now_us() + KILLING_US; wire_now_us() < until_us || kills < least; kills++) {
        const int64_t before = atomic_load(&load.answers), late_us = wire_now_us() + RECOVERY_MOST_US;
        while (atomic_load(&load.answers) < before + 50) {
            if (wire_now_us() > late_us)
                ck_abort_msg("after %d kills Redis does not decide again: %" PRId64 " answers, %" PRIu64
                             " connections, %" PRId64 " keys\n%s",
                             kills, atomic_load(&load.answers) - before, stats_of(load.asked.limiter).store_connections,
                             asker_count(&place.asker, "DBSIZE", NULL), place.log);
            sleep_us(100);
        }
        sleep_us(chance_between(&chance, 0, 20000));
        asker_close(&place.asker);
        redis_server_kill(&place.server);
        must(redis_server_restart(&place.server) == 0, place.server.daemon.error);
        must(asker_open(&place.asker, place.server.socket) == 0, place.asker.error);
        const struct scan scan = scan_of(&place);
        assert_all_end(&scan, load.asked.life_us, GRACE_MS);
        keys += scan.keys;
        if (kills % 100 == 99) { /* progress for a long run */
            printf("%d times\n", kills + 1);
            fflush(stdout);
        }
    }
    atomic_store(&load.over, true);
    crew_join(&crew);
    for (int key = 0; key < KEYS; key++)
        ck_assert_int_le(load.admitted[key], WINDOW_LIMIT);
    printf("%d times killed under load, %" PRId64 " answers, %" PRId64 " keys looked at\n", kills,
           atomic_load(&load.answers), keys);
    ck_assert_int_gt(keys, 0);
    weir_close(load.asked.limiter);
}

int main(void)
{
    if (redis_server_missing())
        return 77;
    if (access("/dev/shm", W_OK) == 0) /* disk speed does not matter here */
        setenv("TMPDIR", "/dev/shm", 0);
    return suite_run(tests());
}
