/* journal.c - finishes the changes of a process that died. */
#include "backends/machine/journal.h"

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
