/* test_settle_bursts.c - however often the connection flaps, no burst admits more than the limit allows. */
#include "settle_place.h"

/* An unbounded leaky meter of all admitted permits, in microseconds at one permit a second. */
struct meter {
    int64_t level_us, at_us;
};

static int64_t meter_add(struct meter *meter, int64_t permits)
{
    const int64_t drained_us = now_us - meter->at_us;
    meter->level_us = (drained_us > meter->level_us ? 0 : meter->level_us - drained_us) + permits * WEIR_SECOND;
    meter->at_us = now_us;
    return meter->level_us;
}

enum { MOST_INSTANCES = 4, FLAP_KEYS = 2 };

struct crowd {
    struct remote remote;
    struct place instances[MOST_INSTANCES];
    bool is_cut[MOST_INSTANCES];
    struct meter meters[FLAP_KEYS];
    /* The time for which instances that are cut off may add their share of the rate: each one since its cable was cut;
     * the sum; and the part of the sum from before a key's meter was last empty, without outages still open then. */
    int64_t part_us[MOST_INSTANCES], parts_us, past_us[FLAP_KEYS];
    int count;
};

static int64_t worst_us, stood_in; /* over all crowds: the highest meter; permits that fallbacks admitted */

static void crowd_open(struct crowd *crowd, int count, enum way way)
{
    memset(crowd, 0, sizeof *crowd);
    now_us = INT64_C(1) << 40;
    remote_init(&crowd->remote);
    crowd->count = count;
    for (int i = 0; i < count; i++) {
        cable_by(&crowd->instances[i].cable, &crowd->remote, way);
        place_join(&crowd->instances[i], &crowd->remote, OPTIONS(.instances = count, .rank = i), ten);
    }
}

static void crowd_close(struct crowd *crowd)
{
    for (int i = 0; i < crowd->count; i++)
        weir_close(crowd->instances[i].limiter);
    remote_free(&crowd->remote);
}

static void crowd_wait(struct crowd *crowd, int64_t by_us)
{
    now_us += by_us;
    for (int i = 0; i < crowd->count; i++) {
        const int64_t part_us = crowd->is_cut[i] ? by_us / crowd->count + 1 : 0;
        crowd->part_us[i] += part_us;
        crowd->parts_us += part_us;
    }
}

static void crowd_set(struct crowd *crowd, int i, enum cable_fault fault)
{
    crowd->is_cut[i] = fault != CABLE_WELL;
    if (fault == CABLE_WELL)
        crowd->part_us[i] = 0;
    cable_set(&crowd->instances[i].cable, fault);
    if (fault == CABLE_WELL)
        taken(crowd->instances[i].limit, "c", 1); /* an outage in which nothing was admitted ends with a success */
}

/* Take permits at a random instance. `apart`: instances fail separately and may add their part of the rate. */
static void crowd_try(struct crowd *crowd, struct chance *chance, bool apart)
{
    static const char *const keys[FLAP_KEYS] = { "a", "b" };
    const int i = (int)chance_between(chance, 0, crowd->count - 1);
    const int key = (int)chance_between(chance, 0, FLAP_KEYS - 1);
    const int64_t cost = chance_between(chance, 1, 3);
    const struct weir_decision decision = taken(crowd->instances[i].limit, keys[key], cost);
    if (meter_add(&crowd->meters[key], 0) == 0) {
        crowd->past_us[key] = crowd->parts_us;
        for (int other = 0; other < crowd->count; other++)
            crowd->past_us[key] -= crowd->part_us[other];
    }
    if (!decision.allowed)
        return;
    stood_in += decision.source == WEIR_BY_FALLBACK ? cost : 0;
    const int64_t level_us = meter_add(&crowd->meters[key], cost);
    const int64_t more_us = apart ? crowd->parts_us - crowd->past_us[key] : 0;
    must(level_us <= 10 * WEIR_SECOND + more_us, "no more at once than the limit");
    if (level_us > worst_us)
        worst_us = level_us;
}

static void flap(struct crowd *crowd, struct chance *chance, int flaps, bool apart)
{
    for (int flap = 0; flap < 2 * flaps; flap++) {
        const enum cable_fault fault = (enum cable_fault)chance_between(chance, CABLE_CUT, CABLE_LOSES_ANSWER);
        const bool cuts = flap % 2 == 0;
        for (int i = 0; i < crowd->count; i++) {
            if (!apart || chance_one_in(chance, 2))
                crowd_set(crowd, i, cuts ? fault : CABLE_WELL);
        }
        for (int64_t steps = chance_between(chance, 0, cuts ? 60 : 20); steps > 0; steps--) {
            crowd_try(crowd, chance, apart);
            crowd_wait(crowd, chance_one_in(chance, 4) ? chance_magnitude(chance, 2 * WEIR_SECOND) : 0);
        }
    }
}

/* `count` instances, or 1 and all in turn if it is 0, whose cables flap a hundred times at most; the meters must get to
 * `least_us`. */
static void flap_often(int first_seed, int count, enum way way, bool apart, int64_t least_us)
{
    static struct crowd crowd;
    for (int seed = 0; seed < 300; seed++) {
        struct chance chance = chance_make((uint64_t)(first_seed + seed));
        crowd_open(&crowd, count > 0 ? count : seed % 2 ? MOST_INSTANCES : 1, way);
        flap(&crowd, &chance, 1 + seed % 100, apart);
        crowd_close(&crowd);
    }
    ck_assert_int_gt(worst_us, least_us);
    ck_assert_int_gt(stood_in, 3000);
}

enum { NEARLY_THE_LIMIT_US = 9900000, THE_LIMIT_US = 10000000 };

TEST(flapping_never_admits_more_than_the_limit_in_one_burst, 120)
{
    flap_often(0, 0, EAGER, false, NEARLY_THE_LIMIT_US);
}

TEST(flapping_settled_key_by_key_never_admits_more_than_the_limit_in_one_burst, 120)
{
    flap_often(1000, 1, LAZY, false, NEARLY_THE_LIMIT_US);
}

TEST(instances_cut_off_one_by_one_add_only_their_share_of_the_rate, 120)
{
    flap_often(2000, MOST_INSTANCES, EAGER, true, THE_LIMIT_US);
}

TEST(partial_outages_do_not_add_up, 30)
{
    static struct crowd crowd;
    crowd_open(&crowd, MOST_INSTANCES, EAGER);
    int64_t highest_us = 0, lent = 0;
    for (int flap = 0; flap < 100; flap++) {
        for (int step = 0; step < 40; step++) { /* 20 s, half of it with the first instance cut off */
            if (step % 20 == 0)
                crowd_set(&crowd, 0, step == 0 ? CABLE_CUT : CABLE_WELL);
            for (int i = 0; i < crowd.count; i++) {
                const struct weir_decision decision = taken(crowd.instances[i].limit, "a", 1);
                const int64_t level_us = meter_add(&crowd.meters[0], decision.allowed);
                lent += decision.allowed && decision.source == WEIR_BY_FALLBACK;
                highest_us = level_us > highest_us ? level_us : highest_us;
            }
            now_us += WEIR_SECOND / 2;
        }
    }
    ck_assert_int_ge(lent, 150);
    ck_assert_int_le(highest_us, (10 + 3) * WEIR_SECOND); /* a quarter of the rate for one outage, in whole permits */
    crowd_close(&crowd);
}

/* ---- The grace of WEIR_FAIL_OPEN ---- */

TEST(open_for_bounds_the_time_in_which_all_outages_admit_everything, 30)
{
    PLACE(place, EAGER, OPTIONS(.on_failure = WEIR_FAIL_OPEN, .open_for_us = WEIR_SECOND), ten);
    cable_set(&place->cable, CABLE_CUT);
    for (int i = 0; i < 20; i++) {
        struct weir_decision decision = try_in(place, "a", 1);
        ck_assert_int_eq(decision.allowed, i < 10);
        ck_assert_int_eq(decision.source, i < 10 ? WEIR_BY_FAIL_OPEN : WEIR_BY_FAIL_CLOSED);
        ck_assert_int_eq(decision.retry_after_us, i < 10 ? 0 : WEIR_SECOND);
        ck_assert_int_eq(decision.age_us, i * 100000);
        now_us += 100000;
    }
    cable_set(&place->cable, CABLE_WELL);
    ck_assert_int_eq(try_in(place, "a", 1).source, WEIR_BY_BACKEND);
    now_us += 320000;
    cable_set(&place->cable, CABLE_CUT);
    for (int i = 0; i < 10; i++) {
        ck_assert_int_eq(try_in(place, "a", 1).allowed, i < 4);
        now_us += 100000;
    }
}

TEST(flapping_extends_open_for_by_no_more_than_the_time_without_an_outage, 120)
{
    PLACE(place, EAGER, OPTIONS(.on_failure = WEIR_FAIL_OPEN, .open_for_us = WEIR_SECOND),
          "token_bucket limit=1000000 period=1s");
    struct chance chance = chance_make(5);
    int64_t open_us = 0, well_us = 0, denied = 0;
    for (int flap = 0; flap < 3000; flap++) {
        const int64_t lasts = chance_between(&chance, 1, 30), rests = chance_between(&chance, 1, 20);
        cable_set(&place->cable, CABLE_CUT);
        for (int64_t i = 0; i < lasts; i++) { /* each stands for the next 10 ms */
            const bool allowed = try_in(place, "a", 1).allowed;
            open_us += allowed ? 10000 : 0;
            denied += !allowed;
            now_us += 10000;
        }
        cable_set(&place->cable, CABLE_WELL);
        must(try_in(place, "a", 1).source == WEIR_BY_BACKEND, "it is over");
        now_us += rests * 10000;
        well_us += rests * 10000;
        must(open_us <= WEIR_SECOND + well_us + 10000 * (flap + 1), "never re-armed");
    }
    ck_assert_int_gt(denied, 1000);
    ck_assert_int_gt(open_us, well_us / 2);
}
