/* stored.h - a state as the file has it: the pair, and the rest behind the key.
 *
 * A token bucket, a fixed window and a leaky bucket are a pair and no more. A sliding window whose counts have 64 bits
 * is stored as it is. Of one whose counts have 32 bits, the pair is the summary
 * (core/algorithm/sliding_window.h), which decides most requests, and the rest are the counts of all blocks but the
 * newest, two in a word. A decision without the stripe's lock may change the summary alone. If it says that nothing
 * counts in the older blocks, their counts are old, and mean 0.
 */
#ifndef BACKENDS_MACHINE_STORED_H
#define BACKENDS_MACHINE_STORED_H

#include "backends/machine/book.h"
#include "core/algorithm/sliding_window.h"

/* A pair and a rest. */
#define STORED_WORDS(page) (PAIR_WORDS + (page)->rest_words)
#define STORED_MAX_WORDS STATE_MAX_WORDS
_Static_assert(PAIR_WORDS + (WEIR_MAX_BLOCKS + 1) / 2 <= STORED_MAX_WORDS, "the rest behind a summary is no longer");

/* True if a summary can be one that its plan has led to. */
static inline bool summary_is_sound(const struct page *page, const struct sliding_summary *summary)
{
    return (uint64_t)summary->id <= (uint64_t)page->last_anchor &&
           (uint64_t)summary->newest + summary->older <= (uint64_t)page->top;
}

/* Return where the counts of the older blocks begin in a window's state: behind the newest block's. */
static inline char *stored_older(int64_t *state)
{
    return (char *)(state + 1) + sizeof(uint32_t);
}

/* Write what the file gets for a state. */
static inline void stored_of(const struct page *page, const int64_t *state, int64_t *stored)
{
    if (!page->has_summary) {
        memcpy(stored, state, STORED_WORDS(page) * sizeof *stored);
        return;
    }
    const size_t bytes = (size_t)page->text.plan.blocks * sizeof(uint32_t);
    sliding_summary_close(&page->text.plan, state, stored);
    stored[PAIR_WORDS + page->rest_words - 1] = 0; /* an odd number of blocks leaves half of it */
    memcpy(stored + PAIR_WORDS, stored_older((int64_t *)(uintptr_t)state), bytes);
}

/* Write the state that is in the file. False: it cannot be one that its plan has led to. */
static inline bool stored_tell(const struct page *page, const int64_t *stored, int64_t *state)
{
    const struct weir_plan *plan = &page->text.plan;
    if (!page->has_summary) {
        memcpy(state, stored, STORED_WORDS(page) * sizeof *state);
        return state_is_sound(plan, page->top, page->last_anchor, state);
    }
    struct sliding_summary summary;
    uint64_t older = 0;
    memcpy(&summary, stored, sizeof summary);
    for (size_t i = 0; i < page->rest_words; i++)
        older += state_counts((uint64_t)stored[PAIR_WORDS + i]);
    const size_t words = sliding_window_words(plan);
    state[words - 1] = 0;
    memcpy(stored_older(state), stored + PAIR_WORDS, (size_t)plan->blocks * sizeof(uint32_t));
    if (!sliding_summary_open(stored, state))
        memset(state + SLIDING_SUMMARY_WORDS, 0, (words - SLIDING_SUMMARY_WORDS) * sizeof *state);
    return (older == summary.older || summary.older == 0) && summary_is_sound(page, &summary);
}

#endif
