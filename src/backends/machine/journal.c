/* journal.c - finishes the changes of a process that died. */
#include "backends/machine/latch.h"

/* True if a change may write the word. */
static bool journal_may_write(const struct machine_shape *shape, uint64_t at)
{
    return at == offsetof(struct machine_stripe, room) / sizeof(uint64_t) ||
           at == offsetof(struct machine_stripe, counts) / sizeof(uint64_t) ||
           (at >= shape->bucket_word && at < shape->words);
}

bool journal_recover(struct machine_stripe *stripe, const struct machine_shape *shape)
{
    const uint64_t len = atomic_load_explicit(&stripe->journal_len, memory_order_acquire);
    bool is_sound = len <= MACHINE_JOURNAL && atomic_load_explicit(&stripe->repairs, memory_order_relaxed) % 2 == 0;
    for (uint64_t i = 0; i < len && is_sound; i++)
        is_sound = journal_may_write(shape, journal_at(stripe, i));
    if (is_sound)
        journal_apply(stripe, len);
    else
        atomic_store_explicit(&stripe->journal_len, 0, memory_order_release);
    return is_sound;
}

bool latch_recover(struct machine_stripe *stripe, const struct machine_shape *shape, struct machine_latch *latch)
{
    const uint64_t run = atomic_load_explicit(&latch->run, memory_order_acquire);
    const uint64_t at = run >> LATCH_RUN_BITS, n = run & ((1 << LATCH_RUN_BITS) - 1);
    const bool is_sound = run == 0 || (n <= MACHINE_LATCH_WORDS && at >= shape->cell_word && at + n <= shape->words);
    for (uint64_t i = 0; i < n && is_sound; i++)
        stripe_store(stripe, at + i, atomic_load_explicit(&latch->values[i], memory_order_relaxed));
    atomic_store_explicit(&latch->run, 0, memory_order_release);
    return is_sound;
}
