/* due.c - files entries by the time at which they may become idle. */
#include "backends/memory/due.h"

#include "core/ground/arith.h"

#include <assert.h>

/* Return the slot of a time that is not before the base. */
static unsigned due_slot(int64_t base_us, int64_t time_us)
{
    if (time_us == base_us)
        return 0;
    const unsigned level = (63 - (unsigned)__builtin_clzll((uint64_t)(base_us ^ time_us))) / DUE_BITS;
    assert(level < DUE_LEVELS);
    return 1 + level * DUE_DIGITS + (unsigned)(time_us >> level * DUE_BITS) % DUE_DIGITS;
}

/* Return the first slot with entries, or DUE_SLOTS. */
static unsigned due_first_slot(struct due *due)
{
    for (unsigned i = 0; i < sizeof due->used / sizeof due->used[0]; i++)
        while (due->used[i] != 0) {
            const unsigned slot = i * 64 + (unsigned)__builtin_ctzll(due->used[i]);
            if (due->slots[slot].first)
                return slot;
            due->used[i] &= due->used[i] - 1;
        }
    return DUE_SLOTS;
}

/* Note that a slot has an entry whose time is not before `time_us`. */
static struct due_slot *due_use(struct due *due, unsigned number, int64_t time_us)
{
    struct due_slot *slot = &due->slots[number];
    slot->soonest_us = slot->first ? min_of(slot->soonest_us, time_us) : time_us;
    due->used[number / 64] |= UINT64_C(1) << number % 64;
    return slot;
}

/* Put a list of entries in front of another one. */
static void due_link(void **list, struct entry *first, struct entry *last)
{
    struct entry *after = *list;
    last->hh.next = after;
    if (after)
        after->hh.prev = &last->hh.next;
    first->hh.prev = (void *)list;
    *list = first;
}

void due_remove(struct entry *entry)
{
    void **link = entry->hh.prev;
    struct entry *next = entry->hh.next;
    if (!link)
        return;
    *link = next;
    if (next)
        next->hh.prev = (void *)link;
    entry->hh.prev = NULL;
}

void due_moved(struct entry *entry)
{
    void **link = entry->hh.prev;
    struct entry *next = entry->hh.next;
    *link = entry;
    if (next)
        next->hh.prev = (void *)&entry->hh.next;
}

/* Move all entries of a slot to another one. Takes time for each entry unless that one is empty. */
static void due_move(struct due *due, unsigned from, unsigned to)
{
    struct entry *first = due->slots[from].first, *last = first;
    if (!first)
        return;
    struct due_slot *slot = due_use(due, to, due->slots[from].soonest_us);
    while (slot->first && last->hh.next)
        last = last->hh.next;
    if (slot->first) {
        due_link(&slot->first, first, last);
    } else {
        slot->first = first;
        first->hh.prev = (void *)&slot->first;
    }
    due->slots[from].first = NULL;
}

/* Lower the base, which a clock that steps back makes necessary. The slots before that of the old base become part of
 * it; the other ones stay what they are. */
static void due_lower(struct due *due, int64_t base_us)
{
    const unsigned to = due_slot(base_us, due->base_us);
    for (unsigned from = 0; from < to; from++)
        due_move(due, from, to);
    due->base_us = base_us;
}

void due_file(struct due *due, struct entry *entry, int64_t time_us)
{
    time_us = time_us == 0 ? due->base_us : min_of(time_us, DUE_MAX_US);
    due_remove(entry);
    if (time_us < due->base_us)
        due_lower(due, time_us);
    due_link(&due_use(due, due_slot(due->base_us, time_us), time_us)->first, entry, entry);
    atomic_store_explicit(&entry->due_us, time_us, memory_order_relaxed);
}

struct entry *due_first(struct due *due, int64_t now_us)
{
    const unsigned number = due_first_slot(due);
    if (number == DUE_SLOTS || due->slots[number].soonest_us > now_us)
        return NULL;
    if (number != 0) {
        due->base_us = due->slots[number].soonest_us;
        due_move(due, number, 0);
    }
    return due->slots[0].first;
}

int64_t due_soonest_us(struct due *due)
{
    const unsigned number = due_first_slot(due);
    return number == DUE_SLOTS ? INT64_MAX : due->slots[number].soonest_us;
}
