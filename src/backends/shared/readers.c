/* readers.c - waits for readers to leave. */
#include "backends/shared/readers.h"

#include "backends/shared/wait_briefly.h"
#include "core/ground/fence.h"

void readers_init(struct readers *readers)
{
    atomic_store_explicit(&readers->care, fence_ready() ? 0 : READERS_FENCES, memory_order_relaxed);
    for (int i = 0; i < STATS_STRIPES; i++)
        atomic_store_explicit(&readers->stripes[i].turn, 0, memory_order_relaxed);
}

static bool readers_need_fences(const struct readers *readers)
{
    return (atomic_load_explicit(&readers->care, memory_order_relaxed) & READERS_FENCES) != 0;
}

/* The store to the turn in readers_begin() is not a barrier, so end that read here and begin another one. */
bool readers_begin_with_care(struct readers *readers, _Atomic uint64_t *turn)
{
    const bool fences = readers_need_fences(readers);
    if (fences) {
        readers_leave(turn);
        atomic_fetch_add(turn, 1);
    }
    if ((atomic_load_explicit(&readers->care, memory_order_acquire) & READERS_SHUT) == 0)
        return true;
    readers_leave(turn);
    return false;
}

/* Read a turn. Without fence_all() both sides add to the turn, so that one of them comes first. A reader that
 * begins afterwards has read this addition of 0 and sees everything before it; a reader that began before is seen
 * here. A plain load would not do, because it is not ordered with the reader's loads. */
static uint64_t turn_of(const struct readers *readers, _Atomic uint64_t *turn)
{
    return readers_need_fences(readers) ? atomic_fetch_add(turn, 0) : atomic_load(turn);
}

void readers_wait(struct readers *readers)
{
    if (!readers_need_fences(readers))
        fence_all();
    for (int i = 0; i < STATS_SHARED_STRIPE; i++) {
        _Atomic uint64_t *turn = &readers->stripes[i].turn;
        const uint64_t seen = turn_of(readers, turn);
        if (seen % 2 == 0)
            continue;
        for (int tries = 0; atomic_load(turn) == seen; tries++)
            wait_briefly(tries);
    }
}

void readers_shut(struct readers *readers)
{
    atomic_fetch_or(&readers->care, READERS_SHUT);
    readers_wait(readers);
}

void readers_open(struct readers *readers)
{
    atomic_fetch_and(&readers->care, ~READERS_SHUT);
}
