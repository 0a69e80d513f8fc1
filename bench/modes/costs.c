/* costs.c - what each mode costs: calls to Redis, CPU time, and memory on both sides.
 *
 * CPU time is what the whole process used while callers made requests as fast as they were answered: this process, and
 * Redis. Memory is what each side reports. For Redis that is MEMORY USAGE of some keys, because its total jumps
 * whenever one of its tables grows. Local mode does not use Redis.
 */
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "modes/turns.h"
#include "redis/user_store.h"

#define LIMIT "costs"
#define MEMORY_LIMIT "memory"
#define CALLERS 8
#define ZIPF_KEYS 100
#define MEMORY_KEYS 100000
#define QUICK_MEMORY_KEYS 10000
#define SAMPLED_KEYS 5
#define TIMED_AT_ONCE 64   /* as in speed.c */
#define LEAD_SECONDS 0.2   /* as in speed.c, too */
#define LEAST_SECONDS 0.25 /* of a repetition: leases are renewed every 0.1 s */

enum { KEYS_ZIPF, KEYS_HOT, CASES };
static const char *const CASE_NAMES[CASES] = { [KEYS_ZIPF] = "100 keys zipf", [KEYS_HOT] = "one hot key" };

/* ---- Calls and CPU time ---- */

static void report_loads(const struct modes *modes, const struct turns *turns, int loads[CASES][MODES + 1])
{
    static const struct {
        const char *name;
        const struct turns_look *look;
        bool is_of_redis;
    } figures[] = { { "Redis calls per million", &turns_calls_per_million, true },
                    { "Redis CPU, ns per decision", &turns_server_ns, true },
                    { "this process's CPU, ns per decision", &turns_client_ns, false } };
    char figure[64];
    report_heading(modes->bench->report, "What decisions cost, 8 callers as fast as possible");
    for (size_t i = 0; i < sizeof figures / sizeof figures[0]; i++)
        for (int which = 0; which < CASES; which++) {
            snprintf(figure, sizeof figure, "%s, %s", figures[i].name, CASE_NAMES[which]);
            int shown[MODES + 1];
            memcpy(shown, loads[which], sizeof shown);
            if (figures[i].is_of_redis)
                shown[WEIR_LOCAL] = -1;
            turns_report(modes, turns, figure, shown, figures[i].look, NULL);
            if (figures[i].is_of_redis && modes->is_chosen[WEIR_LOCAL])
                modes_text(modes, WEIR_LOCAL, "none");
        }
}

static void measure_loads(struct modes *modes)
{
    static struct turns turns;
    struct remote remotes[MODES];
    struct stream streams[CASES];
    int loads[CASES][MODES + 1];
    stream_make(&streams[KEYS_ZIPF], ZIPF_KEYS, SKEW_ZIPF);
    stream_make(&streams[KEYS_HOT], 1, SKEW_ZIPF);
    user_store_remember(modes->store, LIMIT, ZIPF_KEYS);
    turns.n = 0;
    for (int mode = 0; mode <= MODES; mode++) {
        loads[KEYS_ZIPF][mode] = loads[KEYS_HOT][mode] = -1;
        if (mode == MODES || !modes->is_chosen[mode])
            continue;
        if (!modes_open(modes, (enum weir_mode)mode, LIMIT, &turns_policies[KIND_TOKEN], &remotes[mode])) {
            turns_give_up(modes, (enum weir_mode)mode);
            continue;
        }
        remote_fill(&remotes[mode], ZIPF_KEYS, turns_fill[KIND_TOKEN]);
        for (int which = 0; which < CASES; which++)
            loads[which][mode] = turns_add(&turns,
                                           &(struct load){ .call = remote_call,
                                                           .subject = &remotes[mode],
                                                           .threads = CALLERS,
                                                           .step = mode == WEIR_DISTRIBUTED ? 1 : TIMED_AT_ONCE,
                                                           .stream = &streams[which],
                                                           .lead_seconds = mode == WEIR_HYBRID ? LEAD_SECONDS : 0,
                                                           .weir = remotes[mode].weir });
    }
    bench_progress("costs: calls and CPU time");
    const double least = modes->bench->is_quick ? 0 : LEAST_SECONDS;
    turns_measure(modes, &turns, fmax(modes->bench->seconds, least));
    report_loads(modes, &turns, loads);
    for (int mode = 0; mode < MODES; mode++)
        if (modes->is_chosen[mode])
            remote_close(&remotes[mode]);
    for (int which = 0; which < CASES; which++)
        stream_free(&streams[which]);
}

/* ---- Memory ---- */

struct memory { /* bytes a key; empty: unknown */
    struct sample own, of_redis;
};

static bool costs_measure_memory(const struct modes *modes, enum weir_mode mode, uint64_t keys, struct memory *memory)
{
    char limit[32];
    struct remote remote;
    const bool is_in_store = mode != WEIR_LOCAL;
    snprintf(limit, sizeof limit, "%s-%s", MEMORY_LIMIT, modes_names[mode]);
    if (!modes_open(modes, mode, limit, &turns_policies[KIND_TOKEN], &remote))
        return false;
    if (is_in_store)
        user_store_remember(modes->store, limit, keys);
    const int64_t own = remote_stats(&remote).bytes;
    remote_fill(&remote, keys, turns_fill[KIND_TOKEN]);
    sample_add(&memory->own, (double)(remote_stats(&remote).bytes - own) / (double)keys);
    for (uint64_t i = 0; is_in_store && i < SAMPLED_KEYS; i++) {
        struct bench_key key;
        key_write(i * (keys / SAMPLED_KEYS), &key);
        const int64_t bytes = store_key_bytes(modes->store, limit, &key);
        if (bytes >= 0)
            sample_add(&memory->of_redis, (double)bytes);
    }
    remote_close(&remote);
    return true;
}

static void report_memory(const struct modes *modes, const char *figure, const struct sample *samples[MODES])
{
    modes_row(modes, figure);
    for (int mode = 0; mode < MODES; mode++) {
        if (!modes->is_chosen[mode])
            continue;
        if (samples[mode]->n > 0)
            modes_figure(modes, (enum weir_mode)mode, samples[mode]);
        else
            modes_text(modes, (enum weir_mode)mode, mode == WEIR_LOCAL ? "none" : "unknown");
    }
}

static void measure_memories(struct modes *modes)
{
    const uint64_t keys = modes->bench->is_quick ? QUICK_MEMORY_KEYS : MEMORY_KEYS;
    struct memory memories[MODES] = { 0 };
    const struct sample *own[MODES], *of_redis[MODES];
    char heading[96];
    for (int mode = 0; mode < MODES; mode++) {
        own[mode] = &memories[mode].own;
        of_redis[mode] = &memories[mode].of_redis;
        if (!modes->is_chosen[mode])
            continue;
        bench_progress("costs: memory, %s", modes_names[mode]);
        if (!costs_measure_memory(modes, (enum weir_mode)mode, keys, &memories[mode]))
            turns_give_up(modes, (enum weir_mode)mode);
    }
    snprintf(heading, sizeof heading, "Memory, bytes a key, %llu,000 keys of %d bytes, token bucket",
             (unsigned long long)keys / 1000, KEY_LEN);
    report_heading(modes->bench->report, heading);
    report_memory(modes, "in each instance", own);
    report_memory(modes, "in Redis", of_redis);
}

void modes_costs(struct modes *modes)
{
    measure_loads(modes);
    measure_memories(modes);
}
