/* plan_cell.h - the plan in force: one writer at a time replaces it, and any number of readers copy it without a lock.
 *
 * Two slots take turns, as in Linux's seqcount_latch. The writer fills the slot that is not in use and then moves the
 * turn, so a preempted writer delays no reader. A reader copies the slot of the turn and reads the turn again; if it
 * has moved, the reader starts over. Each word is stored with release order and loaded with acquire order: a reader
 * that has loaded a word of a newer plan also sees that the turn has moved. (Boehm, "Can seqlocks get along with
 * programming language memory models?", 2012.) There is no pointer to a plan that would have to outlive its last
 * reader.
 *
 * The turn also holds the plan's version. Versions may skip numbers, because several cells may share one count.
 */
#ifndef CORE_POLICY_PLAN_CELL_H
#define CORE_POLICY_PLAN_CELL_H

#include <weir/backend.h>

#include <stdatomic.h>
#include <string.h>

#define PLAN_CELL_WORDS (sizeof(struct weir_plan) / sizeof(uint64_t))

_Static_assert(sizeof(struct weir_plan) % sizeof(uint64_t) == 0, "a plan is whole words");

struct plan_cell {
    _Atomic uint64_t turn;
    _Atomic uint64_t slots[2][PLAN_CELL_WORDS];
};

/* Replace the plan. The caller holds a lock that keeps other writers out. `count` rises with each write to this cell or
 * to one that shares the count. */
static inline void plan_cell_write(struct plan_cell *cell, const struct weir_plan *plan, uint64_t count)
{
    uint64_t words[PLAN_CELL_WORDS];
    memcpy(words, plan, sizeof words);
    const uint64_t slot = ~atomic_load_explicit(&cell->turn, memory_order_relaxed) & 1;
    const uint64_t turn = count << 1 | slot;
    for (size_t i = 0; i < PLAN_CELL_WORDS; i++)
        atomic_store_explicit(&cell->slots[turn & 1][i], words[i], memory_order_release);
    atomic_store_explicit(&cell->turn, turn, memory_order_release);
}

/* Give the plan a later version, as plan_cell_write() of the same plan would. It writes one word instead of all. */
static inline void plan_cell_renumber(struct plan_cell *cell, uint64_t count)
{
    const uint64_t slot = atomic_load_explicit(&cell->turn, memory_order_relaxed) & 1;
    atomic_store_explicit(&cell->turn, count << 1 | slot, memory_order_release);
}

/* Copy the plan and return its version, which is above that of every plan written earlier under the same count. */
static inline uint64_t plan_cell_read(struct plan_cell *cell, struct weir_plan *out)
{
    uint64_t __attribute__((may_alias)) *words = (void *)out;
    uint64_t turn = atomic_load_explicit(&cell->turn, memory_order_acquire);
    for (;;) {
#pragma GCC unroll 16
        for (size_t i = 0; i < PLAN_CELL_WORDS; i++)
            words[i] = atomic_load_explicit(&cell->slots[turn & 1][i], memory_order_acquire);
        uint64_t now = atomic_load_explicit(&cell->turn, memory_order_acquire);
        if (now == turn)
            return turn;
        turn = now;
    }
}

/* Return the plan's version. */
static inline uint64_t plan_cell_version(struct plan_cell *cell)
{
    return atomic_load_explicit(&cell->turn, memory_order_acquire);
}

#endif
