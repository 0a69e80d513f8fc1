/* sim_load.c - the demand: skewed, moving, in crowds, by weight, or timed to exploit leases. */
#include "sim.h"

enum { MOVES = 8 /* of the load's skew in a run */ };

/* Return the permits requested per second, over all keys. */
static int64_t asked_a_second(const struct sim *sim, int limit)
{
    const struct weir_policy *policy = &sim->limits[limit].policy;
    return max_of(1, policy->limit * WEIR_SECOND / policy->period_us * sim->limits[limit].demand_permille / 1000);
}

static int64_t cost_of(struct sim *sim, int limit)
{
    const int64_t size = sim->limits[limit].plan.size;
    if (sim->scenario->load != LOAD_WEIGHTS || random_chance(sim, 500))
        return 1;
    if (random_chance(sim, 10))
        return size + random_in(sim, 0, 5); /* may just fit, or never */
    return random_in(sim, 1, max_of(1, random_chance(sim, 200) ? size / 2 : size / 16));
}

static int64_t mean_cost(const struct sim *sim, int limit)
{
    return sim->scenario->load == LOAD_WEIGHTS ? 1 + sim->limits[limit].plan.size / 20 : 1;
}

static struct instance *instance_drawn(struct sim *sim)
{
    int64_t total = 0;
    for (int i = 0; i < sim->count; i++)
        total += sim->instances[i]->weight;
    int64_t at = random_in(sim, 0, total - 1);
    int i = 0;
    while (at >= sim->instances[i]->weight)
        at -= sim->instances[i++]->weight;
    return sim->instances[i];
}

static int key_drawn(struct sim *sim)
{
    int64_t total = 0;
    for (int key = 0; key < sim->key_count; key++)
        total += sim->key_weights[key];
    int64_t at = random_in(sim, 0, total - 1);
    int key = 0;
    while (at >= sim->key_weights[key])
        at -= sim->key_weights[key++];
    return key;
}

/* Requests that would go to a paused instance go to another one. */
static void ask_one(struct sim *sim, int limit)
{
    struct instance *instance = instance_drawn(sim);
    if (instance->resumes_us <= sim->now_us)
        instance_ask(sim, instance, limit, key_drawn(sim), cost_of(sim, limit), false);
}

/* ---- A stream of requests to a limit ---- */

struct stream {
    int limit;
};

static void stream_asks(struct sim *sim, void *what)
{
    const struct stream *stream = what;
    if (sim->now_us >= sim->heal_us)
        return;
    ask_one(sim, stream->limit);
    const int64_t a_second = asked_a_second(sim, stream->limit) * sim->crowd_permille / 1000 /
                             mean_cost(sim, stream->limit);
    const int64_t mean_us = max_of(1, WEIR_SECOND / max_of(1, a_second)); /* or time would stand still */
    events_add(sim, sim->now_us + random_in(sim, 0, 2 * mean_us), NULL, stream_asks, what);
}

/* ---- Skew that moves, and crowds ---- */

static void weights_draw(struct sim *sim)
{
    const int64_t skew = random_in(sim, 0, 2);
    for (int i = 0; i < sim->count; i++) {
        const int64_t rank = random_in(sim, 1, sim->count);
        sim->instances[i]->weight = skew == 0 ? 1 : skew == 1 ? 1 + 100 / rank : 1 + 1000 / (rank * rank);
    }
    for (int key = 0; key < sim->key_count; key++)
        sim->key_weights[key] = random_in(sim, 1, 10);
}

static void load_moves(struct sim *sim, void *what)
{
    if (sim->now_us >= sim->heal_us)
        return;
    weights_draw(sim);
    sim->crowd_permille = random_chance(sim, 250) ? random_in(sim, 2000, 8000) : random_in(sim, 500, 1500);
    events_add(sim, sim->now_us + (sim->heal_us - SIM_EPOCH_US) / MOVES, NULL, load_moves, what);
}

/* ---- Hoarders ---- */

/* One round of a hoarder. Each instance looks busy for two lives, so that leases grow. Then requests stop until the
 * last lease, or the store's window, is about to end. Then all instances spend what they have and ask for more. */
struct hoard {
    int limit;
    int64_t busy_until_us;
};

static void all_spend(struct sim *sim, void *what)
{
    const struct hoard *hoard = what;
    const int64_t most = min_of(sim->limits[hoard->limit].lease_max + 2, 300 / sim->count + 4);
    if (sim->now_us >= sim->heal_us)
        return;
    for (int i = 0; i < sim->count; i++)
        for (int64_t k = 0; k < most && sim->instances[i]->resumes_us <= sim->now_us; k++)
            instance_ask(sim, sim->instances[i], hoard->limit, 0, 1, false);
}

static void hoard_begins(struct sim *sim, void *what);

/* Return when all spend: `back_us` before the end of a life that began now, or at the end of the store's window. */
static int64_t last_moment_us(struct sim *sim, const struct hoard *hoard)
{
    const struct cell *cell = &sim->store.cells[hoard->limit][0];
    const int64_t life_end_us = sim->now_us + sim->leases.life_us - random_in(sim, 1, sim->leases.life_us / 8);
    if (!cell->is_there || random_chance(sim, 500))
        return life_end_us;
    const int64_t fresh_us = state_fresh_at_us(&cell->plan, cell->state) - sim->store.offset_us;
    return fresh_us > sim->now_us && fresh_us < life_end_us ? fresh_us - random_in(sim, -500, 500) : life_end_us;
}

static void hoard_grows(struct sim *sim, void *what)
{
    struct hoard *hoard = what;
    if (sim->now_us >= sim->heal_us)
        return;
    for (int i = 0; i < sim->count; i++)
        if (sim->instances[i]->resumes_us <= sim->now_us)
            instance_ask(sim, sim->instances[i], hoard->limit, 0, 1, false);
    const int64_t gap_us = max_of(WEIR_SECOND * sim->count / asked_a_second(sim, hoard->limit), 50);
    if (sim->now_us < hoard->busy_until_us) {
        events_add(sim, sim->now_us + random_in(sim, 1, 2 * gap_us), NULL, hoard_grows, hoard);
        return;
    }
    const int64_t spend_us = last_moment_us(sim, hoard);
    events_add(sim, spend_us, NULL, all_spend, hoard);
    events_add(sim, spend_us + random_in(sim, 1, sim->down_max_us), NULL, all_spend, hoard);
    events_add(sim, spend_us + random_in(sim, 0, 4 * sim->leases.life_us), NULL, hoard_begins, hoard);
}

static void hoard_begins(struct sim *sim, void *what)
{
    struct hoard *hoard = what;
    if (sim->now_us >= sim->heal_us)
        return;
    hoard->busy_until_us = sim->now_us + 2 * sim->leases.life_us;
    hoard_grows(sim, hoard);
}

void load_start(struct sim *sim)
{
    sim->crowd_permille = 1000;
    weights_draw(sim);
    for (int limit = 0; limit < sim->limit_count; limit++) {
        struct stream *stream = sim_take(sim, sizeof *stream);
        struct hoard *hoard = sim_take(sim, sizeof *hoard);
        stream->limit = hoard->limit = limit;
        if (sim->scenario->load == LOAD_HOARD)
            events_add(sim, sim->now_us, NULL, hoard_begins, hoard);
        else
            events_add(sim, sim->now_us + random_in(sim, 0, 1000), NULL, stream_asks, stream);
    }
    if (sim->scenario->load == LOAD_MIXED || sim->scenario->load == LOAD_WEIGHTS || sim->scenario->load == LOAD_LATE)
        events_add(sim, sim->now_us, NULL, load_moves, NULL);
}
