/* memory.c - the memory backend: its life, its counters, and the vtable. */
#include "backends/memory/memory.h"

#include "backends/memory/in_flight.h"
#include "backends/memory/parts.h"

#include <stddef.h>
#include <stdlib.h>

static void memory_stats(struct weir_backend *backend, struct weir_stats *add)
{
    struct memory *memory = (struct memory *)backend;
    add->full += atomic_load_explicit(&memory->full, memory_order_relaxed);
    add->evictions += table_evictions(&memory->table);
    add->keys += atomic_load_explicit(&memory->table.keys, memory_order_relaxed);
    add->bytes += table_bytes(&memory->table);
}

/* Hold every lock during a fork. Clang's analysis cannot follow locks chosen at run time. */
static void memory_forked(struct forks_watcher *watcher, enum forks_moment moment) UNCHECKED
{
    struct memory *memory = (struct memory *)((char *)watcher - offsetof(struct memory, forks));
    void (*turn)(struct lock * lock) = moment == FORKS_BEFORE ? lock_take : lock_give;
    if (moment == FORKS_IN_CHILD)
        readers_init(&memory->table.readers); /* no reading thread exists in the child */
    else if (moment == FORKS_IN_PARENT)
        readers_open(&memory->table.readers);
    if (moment == FORKS_IN_CHILD) /* the lock is held: its parent took it */
        memory_flight_forget(memory);
    turn(&memory->flight.mutex);
    turn(&memory->table.slab.packing);
    for (size_t i = 0; i <= memory->table.shard_count; i++) /* the last one is the overflow shard */
        turn(&memory->table.shards[i].mutex);
    turn(&memory->table.slab.mutex);
    turn(&memory->table.rules.mutex);
    turn(&memory->table.soonest_mutex);
    if (moment == FORKS_BEFORE) /* no change is half done: from now on every request takes a mutex */
        readers_shut(&memory->table.readers);
}

void memory_watch_forks(struct weir_backend *backend)
{
    struct memory *memory = (struct memory *)backend;
    memory->forks.told = memory_forked;
    forks_watch(&memory->forks);
}

static void memory_destroy(struct weir_backend *backend)
{
    struct memory *memory = (struct memory *)backend;
    if (memory->forks.told)
        forks_forget(&memory->forks);
    memory_flight_free(memory);
    table_free(&memory->table);
    free(memory);
}

static const struct own_takes window_takes = {
    .try_key = memory_try_window,
    .try_handle = memory_try_window_handle,
    .reserve = memory_reserve_window,
    .give_back = memory_give_back_window,
};

static const struct own_takes takes = {
    .try_key = memory_try,
    .try_handle = memory_try_handle,
    .reserve = memory_reserve,
    .give_back = memory_give_back,
    .try_batch = memory_try_batch,
    .fetch = memory_fetch,
    .windows = &window_takes,
};

static const struct own_ops memory_ops = {
    .base = {
        .size = OWN_OPS_SIZE,
        .name = "memory",
        .decide = memory_decide,
        .stats = memory_stats,
        .destroy = memory_destroy,
        .slots = true,
    },
    .takes = &takes,
    .debt = memory_debt,
    .pay = memory_pay,
    .debtors = memory_debtors,
    .used = memory_used,
    .slots_list = memory_flight_list,
};

int memory_open(const struct weir_options *options, struct weir_backend **out)
{
    struct memory *memory = aligned_alloc(alignof(struct memory), sizeof *memory);
    if (!memory)
        return WEIR_ENOMEM;
    memset(memory, 0, sizeof *memory);
    memory->backend.ops = &memory_ops.base;
    memory->on_full = options->on_full;
    memory->keep_idle = options->keep_idle;
    lock_init(&memory->flight.mutex);
    if (table_init(&memory->table, options->max_keys, options->max_bytes) != 0) {
        free(memory);
        return WEIR_ENOMEM;
    }
    *out = &memory->backend;
    return WEIR_OK;
}
