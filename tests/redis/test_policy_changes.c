/* test_policy_changes.c - a policy that changes a thousand times under load never admits more than the larger of its
 * two forms would, and admits again once it stays.
 *
 * Threads take permits as fast as they can while another thread switches the policy of each limit. Every admitted
 * call is recorded with its times. It is an error if the larger form could never have admitted these calls in these
 * times (lab/envelope.h), however slow or fast the machine is. A change that returned a second burst would show
 * immediately: there is one every few milliseconds.
 */
#include "redis_place.h"

#include "envelope.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum {
    CHANGES = 1000,
    ASKERS = 3,
    INSTANCES_MOST = 2,
    ADMITS_MOST = 1 << 17, /* of one thread: about ten times what a test may admit */
    PAUSE_US = 2000        /* after each change of all limits */
};

enum meter { METER_RATE, METER_GRID, METER_STRETCH };

static const struct pair {
    const char *large, *small;
    enum meter meter;
} pairs[] = {
    { "token_bucket limit=100 period=1s", "token_bucket limit=50 period=1s", METER_RATE },
    { "token_bucket limit=1000 period=1s", "token_bucket limit=10 period=1s", METER_RATE },
    { "token_bucket limit=100 period=1s burst=10", "token_bucket limit=100 period=1s burst=1", METER_RATE },
    { "leaky_bucket limit=100 period=1s capacity=40", "leaky_bucket limit=10 period=1s capacity=4", METER_RATE },
    { "token_bucket limit=100 period=1s refill=interval align=epoch",
      "token_bucket limit=50 period=1s refill=interval align=epoch", METER_GRID },
    { "fixed_window limit=100 period=1s align=epoch", "fixed_window limit=50 period=1s align=epoch", METER_GRID },
    { "sliding_window limit=100 period=1s", "sliding_window limit=50 period=1s", METER_STRETCH },
    { "sliding_window limit=1000 period=1s blocks=4", "sliding_window limit=10 period=1s blocks=40", METER_STRETCH },
};
enum { PAIRS = sizeof pairs / sizeof pairs[0] };

struct change_load {
    weir *limiters[INSTANCES_MOST];
    weir_limit *limits[INSTANCES_MOST][PAIRS];
    int instances;
    atomic_int next; /* index of the next asker */
    atomic_bool over;
    struct weir_policy large[PAIRS];
    _Atomic int64_t large_us[PAIRS]; /* the latest decision by the larger form */
    atomic_int gaps[PAIRS];          /* pauses in which the key may have forgotten the larger form */
    struct admitted {
        int64_t start_us, end_us;
        int pair;
    } * admitted[ASKERS];
    size_t n[ASKERS];
};

/* Redis's clock, so that the grid's windows begin where Redis begins them. */
static int64_t unix_time_us(void *user)
{
    struct timespec now;
    (void)user;
    clock_gettime(CLOCK_REALTIME, &now);
    return now.tv_sec * WEIR_SECOND + now.tv_nsec / 1000;
}

static int64_t size_of(const struct weir_policy *policy)
{
    return policy->capacity != 0 ? policy->capacity : policy->burst != 0 ? policy->burst : policy->limit;
}

/* A key forgets a plan that no request has used for as long as the plan's full state takes to drain. On a busy machine
 * the larger form may go unused for so long; half of that counts, because Redis decides at some time within a call. */
static void note_gap(struct change_load *load, int pair, int64_t limit, int64_t start_us, int64_t end_us)
{
    const struct weir_policy *large = &load->large[pair];
    if (limit != size_of(large))
        return;
    const int64_t last_us = atomic_exchange(&load->large_us[pair], end_us);
    const int64_t drain_us = size_of(large) * large->period_us / large->limit;
    if (last_us != 0 && start_us - last_us > drain_us / 2)
        atomic_fetch_add(&load->gaps[pair], 1);
}

static void *ask_until_over(void *argument)
{
    struct change_load *load = argument;
    int asker = atomic_fetch_add(&load->next, 1);
    for (int turn = asker; !atomic_load(&load->over); turn++) {
        int pair = turn % PAIRS;
        struct weir_decision decision;
        int64_t start_us = unix_time_us(NULL);
        must_succeed(weir_try(load->limits[turn / PAIRS % load->instances][pair], weir_key_text("key"), 1, &decision));
        int64_t end_us = unix_time_us(NULL);
        note_gap(load, pair, decision.limit, start_us, end_us);
        if (!decision.allowed || load->n[asker] == ADMITS_MOST)
            continue;
        load->admitted[asker][load->n[asker]++] = (struct admitted){ start_us, end_us, pair };
    }
    return NULL;
}

/* Define all limits in all instances, one instance after the other. */
static void define_all(const struct change_load *load, bool large)
{
    for (int i = 0; i < load->instances; i++)
        for (int pair = 0; pair < PAIRS; pair++) {
            const struct weir_policy policy = policy_of(large ? pairs[pair].large : pairs[pair].small);
            must_succeed(weir_limit_define(load->limiters[i], weir_limit_name(load->limits[i][pair]), &policy, NULL));
        }
}

static int64_t over_max_of(weir_limit *limit)
{
    struct weir_limit_info info = { .size = sizeof info };
    must_succeed(weir_limit_info(limit, &info));
    return info.over_max;
}

static double most_admitted(const struct pair *pair, const struct weir_policy *policy, struct admit *admits, size_t n)
{
    switch (pair->meter) {
    case METER_RATE: return envelope_burst(admits, n, policy->limit, policy->period_us);
    case METER_GRID: return (double)envelope_grid(admits, n, policy->period_us);
    case METER_STRETCH: return (double)envelope_stretch(admits, n, policy->period_us);
    }
    return -1;
}

/* True if no more was admitted than the larger form allows plus `over_max`; otherwise adds a line to `report`. Each gap
 * may add a full state. */
static bool within(const struct change_load *load, int pair, int64_t over_max, char *report, size_t report_size)
{
    const struct weir_policy *policy = &load->large[pair];
    struct admit *admits = calloc((size_t)ASKERS * ADMITS_MOST, sizeof *admits);
    size_t n = 0, len = strlen(report);
    must(admits != NULL, "memory");
    for (int asker = 0; asker < ASKERS; asker++)
        for (size_t i = 0; i < load->n[asker]; i++)
            if (load->admitted[asker][i].pair == pair)
                admits[n++] = (struct admit){ load->admitted[asker][i].start_us, load->admitted[asker][i].end_us, 1 };
    const int64_t allowed = size_of(policy) * (1 + atomic_load(&load->gaps[pair])) + over_max;
    double most = most_admitted(&pairs[pair], policy, admits, n), size = (double)allowed;
    free(admits);
    if (most >= 0 && most <= size * (1 + 1e-6)) /* the meter counts in doubles */
        return true;
    snprintf(report + len, report_size - len, "%s: %zu were admitted, at worst %.1f at once of %.0f\n",
             pairs[pair].large, n, most, size);
    return false;
}

/* Check that the limit, now unchanging, admits immediately or after the wait that it states. */
static void admits_again(weir_limit *limit)
{
    struct weir_decision decision;
    must_succeed(weir_acquire(limit, weir_key_text("key"), 1, 30 * WEIR_SECOND, &decision));
    ck_assert_msg(decision.allowed, "%s denies for %" PRId64 " us more", weir_limit_name(limit),
                  decision.retry_after_us);
}

static void change_under_load(const struct weir_options *options, int instances)
{
    struct change_load load = { .instances = instances };
    struct crew crew;
    int64_t over_max[PAIRS];
    char report[PAIRS * 160] = "";
    bool good = true;
    for (int pair = 0; pair < PAIRS; pair++)
        load.large[pair] = policy_of(pairs[pair].large);
    for (int i = 0; i < instances; i++) {
        load.limiters[i] = limiter_of(options);
        for (int pair = 0; pair < PAIRS; pair++) {
            char name[16];
            snprintf(name, sizeof name, "limit-%d", pair);
            load.limits[i][pair] = limit_of(load.limiters[i], name, pairs[pair].small);
        }
    }
    for (int asker = 0; asker < ASKERS; asker++)
        must((load.admitted[asker] = calloc(ADMITS_MOST, sizeof *load.admitted[asker])) != NULL, "memory");
    for (int pair = 0; pair < PAIRS; pair++)
        over_max[pair] = over_max_of(load.limits[0][pair]);
    define_all(&load, true);
    for (int pair = 0; pair < PAIRS; pair++)
        if (over_max_of(load.limits[0][pair]) > over_max[pair])
            over_max[pair] = over_max_of(load.limits[0][pair]);
    crew_start(&crew, ASKERS, ask_until_over, &load);
    for (int change = 0; change < CHANGES; change++) {
        sleep_us(PAUSE_US);
        define_all(&load, change % 2 != 0);
    }
    atomic_store(&load.over, true);
    crew_join(&crew);
    for (int pair = 0; pair < PAIRS; pair++)
        good = within(&load, pair, over_max[pair], report, sizeof report) && good;
    for (int asker = 0; asker < ASKERS; asker++)
        good = load.n[asker] < ADMITS_MOST && good; /* otherwise the record is incomplete */
    ck_assert_msg(good, "more than the larger limit was admitted:\n%s", report);
    for (int i = 0; i < instances; i++)
        for (int pair = 0; pair < PAIRS; pair++)
            admits_again(load.limits[i][pair]);
    for (int i = 0; i < instances; i++)
        weir_close(load.limiters[i]);
    for (int asker = 0; asker < ASKERS; asker++)
        free(load.admitted[asker]);
}

TEST(a_policy_change_under_load_in_local_mode_gives_no_second_burst, 60)
{
    struct weir_options options = WEIR_OPTIONS_INIT;
    options.now_us = unix_time_us;
    change_under_load(&options, 1);
}

static bool lacks_redis;

static void change_under_load_on_redis(enum weir_mode mode, int instances)
{
    struct place place;
    if (lacks_redis)
        return;
    place_open(&place, false, NULL);
    struct weir_options options = place_options(&place, 10 * WEIR_SECOND);
    options.mode = mode;
    options.instances = mode == WEIR_HYBRID ? instances : 0;
    change_under_load(&options, instances);
    place_close(&place);
}

TEST(a_policy_change_under_load_in_distributed_mode_gives_no_second_burst, 60)
{
    change_under_load_on_redis(WEIR_DISTRIBUTED, 1);
}

TEST(a_policy_change_under_load_in_hybrid_mode_gives_no_second_burst, 60)
{
    change_under_load_on_redis(WEIR_HYBRID, 1);
}

TEST(each_instance_decides_by_its_current_policy, 60)
{
    struct place place;
    weir *limiters[2];
    weir_limit *limits[2];
    if (lacks_redis)
        return;
    place_open(&place, false, NULL);
    struct weir_options options = place_options(&place, 10 * WEIR_SECOND);
    options.mode = WEIR_DISTRIBUTED;
    for (int i = 0; i < 2; i++) {
        limiters[i] = limiter_of(&options);
        limits[i] = limit_of(limiters[i], "limit", "fixed_window limit=100 period=1h");
    }
    ck_assert(taken(limits[0], "key", 10).allowed);
    limit_of(limiters[0], "limit", "fixed_window limit=200 period=1h");
    for (int turn = 0; turn < 4; turn++) {
        const struct weir_decision decision = taken(limits[turn % 2], "key", 1);
        ck_assert_int_eq(decision.limit, turn % 2 ? 100 : 200);
        ck_assert_int_eq(decision.remaining, decision.limit - 11 - turn);
    }
    for (int i = 0; i < 2; i++)
        weir_close(limiters[i]);
    place_close(&place);
}

/* For a while the instances run different policies. */
TEST(policy_changes_in_two_instances_in_turn_give_no_second_burst, 60)
{
    change_under_load_on_redis(WEIR_DISTRIBUTED, 2);
}

TEST(policy_changes_in_two_leasing_instances_in_turn_give_no_second_burst, 60)
{
    change_under_load_on_redis(WEIR_HYBRID, 2);
}

int main(void)
{
    lacks_redis = redis_server_missing();
    const int status = suite_run(tests());
    return status == 0 && lacks_redis ? 77 : status;
}
