/* sim_late.c - what outages of some instances, one after the other, admit beyond the limit: the figures of
 * docs/design/outages.md. 20 permits a second and bursts of 20, or windows of a second, and four instances that ask for
 * twice the rate together. */
#include "core/policy/plan.h"
#include "sim.h"

#include <stdlib.h>

enum { RATE = 20, INSTANCES = 4, BETWEEN_US = 1500000, ASK_EVERY_US = 25000, ONE_MORE = 2 };

static const struct scenario late_scenario = { "late", 0, LOAD_LATE, "" };

static const struct late_case {
    int cut, times; /* instances that are cut off */
    int64_t for_us;
    int64_t silent_us; /* before the end of an outage the others ask no more for so long: Redis drops the state */
} late_cases[] = { { 2, 8, 2 * WEIR_SECOND, 0 },
                   { 2, 20, 10 * WEIR_SECOND, 0 },
                   { INSTANCES, 20, 10 * WEIR_SECOND, 0 },
                   { 2, 20, 8 * WEIR_SECOND, 5 * WEIR_SECOND },
                   { 2, 10, 20 * WEIR_SECOND, 5 * WEIR_SECOND } };

static const struct weir_policy late_policies[] = {
    { .algorithm = WEIR_TOKEN_BUCKET }, { .algorithm = WEIR_LEAKY_BUCKET },   { .refill = WEIR_INTERVAL },
    { .algorithm = WEIR_FIXED_WINDOW }, { .algorithm = WEIR_SLIDING_WINDOW },
};

/* Return the name of a policy's algorithm. */
static const char *late_name(const struct weir_policy *policy)
{
    static const char *const names[] = { [WEIR_TOKEN_BUCKET] = "token",
                                         [WEIR_LEAKY_BUCKET] = "leaky",
                                         [WEIR_FIXED_WINDOW] = "fixed",
                                         [WEIR_SLIDING_WINDOW] = "sliding" };
    return policy->refill == WEIR_INTERVAL ? "interval" : names[policy->algorithm];
}

struct cutting {
    const struct late_case *made;
    int left, next;
    int64_t mends_us; /* when the outage that lasts ends */
};

static void late_asks(struct sim *sim, void *what)
{
    struct cutting *cutting = what;
    if (sim->now_us >= sim->heal_us)
        return;
    const bool is_silent = cutting->next >= cutting->made->cut && cutting->made->silent_us > 0 &&
                           sim->now_us >= cutting->mends_us - cutting->made->silent_us &&
                           sim->now_us < cutting->mends_us + BETWEEN_US / 2; /* the others settle first */
    if (!is_silent)
        instance_ask(sim, sim->instances[cutting->next], 0, 0, 1, false);
    cutting->next = (cutting->next + 1) % INSTANCES;
    events_add(sim, sim->now_us + ASK_EVERY_US, NULL, late_asks, what);
}

static void late_cuts(struct sim *sim, void *what);

static void late_mends(struct sim *sim, void *what)
{
    struct cutting *cutting = what;
    for (int i = 0; i < cutting->made->cut; i++)
        remote_mend(sim, sim->instances[i]->remote);
    events_add(sim, sim->now_us + BETWEEN_US, NULL, late_cuts, what);
}

static void late_cuts(struct sim *sim, void *what)
{
    struct cutting *cutting = what;
    if (cutting->left-- == 0)
        return;
    for (int i = 0; i < cutting->made->cut; i++)
        remote_cut(sim, sim->instances[i]->remote, true);
    cutting->mends_us = sim->now_us + cutting->made->for_us;
    events_add(sim, cutting->mends_us, NULL, late_mends, what);
}

/* Return the most that was admitted in any stretch beyond the size and what the limit gives back in it, in permits,
 * rounded up. Fixed windows and intervals give RATE permits back where the store's window or interval ends, and at the
 * rate from then until the next one begins; the others at the rate. */
static int64_t late_excess(const struct sim *sim, const struct weir_policy *policy)
{
    const struct audit_track *track = sim->tracks[0][0];
    const bool steps = policy->refill == WEIR_INTERVAL || policy->algorithm == WEIR_FIXED_WINDOW;
    int64_t level = 0, highest = 0, last_us = SIM_EPOCH_US;
    for (size_t i = 0; i < track->count; i++) { /* in the order of the answers, some of which are a trip late */
        const struct record *record = &track->records[i];
        if (steps && record->kind == RECORD_WINDOW && record->amount > last_us) {
            last_us = record->amount; /* nothing comes back before */
            level = max_of(0, level - RATE * WEIR_SECOND);
        }
        if (record->kind != RECORD_USE && record->kind != RECORD_FALLBACK)
            continue;
        level = max_of(0, level - max_of(0, record->at_us - last_us) * RATE) + record->amount * WEIR_SECOND;
        last_us = max_of(last_us, record->at_us);
        highest = max_of(highest, level);
    }
    return max_of(0, div_up(highest, WEIR_SECOND) - RATE);
}

/* Return what an outage adds at most because Redis has dropped the state: docs/design/outages.md. */
static int64_t late_adds(const struct late_case *made, int64_t fill_us)
{
    const int64_t late_us = (made->for_us - fill_us) * made->cut / INSTANCES, idle_us = made->silent_us - fill_us;
    return made->silent_us > 0 ? div_up(max_of(0, late_us - idle_us) * RATE, WEIR_SECOND) : 0;
}

/* Print one row. True if a promise was broken. */
static bool late_run(const struct late_case *made, const struct weir_policy *like, bool adds)
{
    const struct run_settings settings = { .tells = true, .asks = 1 };
    struct sim *sim = sim_make(&late_scenario, 1, &settings);
    struct cutting cutting = { .made = made, .left = made->times };
    struct weir_policy policy = *like;
    policy.limit = RATE;
    policy.period_us = WEIR_SECOND;
    sim->leases = (struct lease_rules){
        .life_us = WEIR_MAX_PERIOD_US, .excess = 5, .denial_us = 2 * WEIR_SECOND, .max = WEIR_MAX_PERMITS
    };
    sim->timeout_us = 50000;
    sim->up_min_us = sim->down_min_us = 150;
    sim->up_max_us = sim->down_max_us = 400;
    sim->limit_count = sim->key_count = 1;
    sim->limits[0] = (struct sim_limit){ .policy = policy, .name = "limit0", .rate_limit = RATE };
    if (plan_make(&policy, &share_whole, &sim->limits[0].plan, (struct message){ NULL, 0 }) != WEIR_OK)
        abort();
    sim->limits[0].size = sim->limits[0].plan.size;
    sim->all_adds = adds;
    for (int i = 0; i < INSTANCES; i++)
        instance_make(sim);
    instances_recount(sim);
    audit_start(sim);
    sim->heal_us = sim->now_us + made->times * (made->for_us + BETWEEN_US);
    events_add(sim, sim->now_us, NULL, late_asks, &cutting);
    events_add(sim, sim->now_us + BETWEEN_US, NULL, late_cuts, &cutting);
    while (!sim->failed && events_step(sim, sim->heal_us + WEIR_SECOND))
        ;
    const int64_t over = late_excess(sim, &policy), one = RATE * made->for_us / WEIR_SECOND * made->cut / INSTANCES;
    const int64_t adds_up = made->times * late_adds(made, state_drain_us(&sim->limits[0].plan, 0));
    const int64_t most = drains_steadily(&sim->limits[0].plan) && made->cut == INSTANCES
                             ? sim->limits[0].over_max
                             : one + adds_up + sim->limits[0].over_max + ONE_MORE;
    /* Debts count until their window has ended, and some are charged to the next one: too few permits, never too many. */
    const int64_t least_percent = drains_steadily(&sim->limits[0].plan) ? (made->cut == INSTANCES ? 97 : 100)
                                                                        : (made->cut == INSTANCES ? 94 : 99);
    const struct run_result result = sim_end(sim);
    const bool is_kept = over <= most && (made->silent_us > 0 || result.used >= result.ideal * least_percent / 100);
    printf("%-8s %d of %d cut off %2d times for %2d s%s, outage_adds %-3s: %4lld over, of %lld; %lld admitted, "
           "ideally %lld\n",
           late_name(&policy), made->cut, INSTANCES, made->times, (int)(made->for_us / WEIR_SECOND),
           made->silent_us > 0 ? ", others silent" : "", adds ? "on" : "off", (long long)over, (long long)most,
           (long long)result.used, (long long)result.ideal);
    return !result.good || (!adds && !is_kept);
}

int late(void)
{
    bool is_broken = false;
    for (size_t k = 0; k < sizeof late_policies / sizeof *late_policies; k++) {
        for (size_t i = 0; i < sizeof late_cases / sizeof *late_cases; i++) {
            is_broken = late_run(&late_cases[i], &late_policies[k], true) || is_broken;
            is_broken = late_run(&late_cases[i], &late_policies[k], false) || is_broken;
        }
    }
    return is_broken;
}
