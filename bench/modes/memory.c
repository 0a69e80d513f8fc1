/* memory.c - bytes a key on both sides, as each reports them.
 *
 * For Redis that is MEMORY USAGE of some keys, because its total jumps whenever one of its tables grows. Machine mode
 * takes all memory of its file when that is made; the file is made for these keys, and all processes share it.
 */
#include <stdio.h>

#include "modes/modes.h"
#include "redis/user_store.h"

#define MEMORY_KEYS 100000
#define QUICK_MEMORY_KEYS 10000
#define SAMPLED_KEYS 6

struct memory { /* bytes a key; empty: unknown */
    struct sample own, of_redis;
};

static const struct weir_policy policy = { .limit = 100, .period_us = WEIR_MINUTE };

static void measure_memory(struct modes *modes, enum weir_mode mode, uint64_t keys, struct memory *memory)
{
    struct weir_options options = remote_options(mode);
    char limit[32];
    struct remote remote;
    snprintf(limit, sizeof limit, "memory-%s", modes_names[mode]);
    if (mode == WEIR_MACHINE)
        options.max_keys = (int64_t)keys;
    if (!remote_open(&remote, modes->store, &options, limit, &policy)) {
        bench_say("memory of %s mode: NOT MEASURED: %s", modes_names[mode], remote_complaint());
        return;
    }
    if (modes_asks_redis(mode))
        user_store_remember(modes->store, limit, keys);
    const int64_t before = mode == WEIR_MACHINE ? 0 : remote_stats(&remote).bytes;
    remote_fill(&remote, keys, policy.limit);
    sample_add(&memory->own, (double)(remote_stats(&remote).bytes - before) / (double)keys);
    for (uint64_t i = 0; modes_asks_redis(mode) && i < SAMPLED_KEYS; i++) {
        struct bench_key key;
        key_write(i * (keys / SAMPLED_KEYS), &key);
        const int64_t bytes = store_key_bytes(modes->store, limit, &key);
        if (bytes >= 0)
            sample_add(&memory->of_redis, (double)bytes);
    }
    remote_close(&remote);
}

void modes_memory(struct modes *modes)
{
    const uint64_t keys = modes->bench->is_quick ? QUICK_MEMORY_KEYS : MEMORY_KEYS;
    struct memory memories[MODES] = { 0 };
    char heading[96];
    bench_step("memory");
    for (int mode = 0; mode < MODES; mode++)
        if (modes->is_chosen[mode])
            measure_memory(modes, (enum weir_mode)mode, keys, &memories[mode]);
    snprintf(heading, sizeof heading, "Memory, bytes a key: %llu,000 keys of one token bucket",
             (unsigned long long)keys / 1000);
    report_heading(modes->bench->report, heading);
    modes_row(modes, "in each instance (machine: in all together)");
    for (int mode = 0; mode < MODES; mode++)
        modes_figure(modes, (enum weir_mode)mode, &memories[mode].own);
    modes_row(modes, "in Redis");
    for (int mode = 0; mode < MODES; mode++)
        if (memories[mode].of_redis.n > 0)
            modes_figure(modes, (enum weir_mode)mode, &memories[mode].of_redis);
        else if (modes->is_chosen[mode])
            modes_text(modes, (enum weir_mode)mode, modes_asks_redis((enum weir_mode)mode) ? "unknown" : "none");
}
