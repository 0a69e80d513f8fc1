/* due.h - the entries of a shard in the order in which they may become idle: a radix heap.
 *
 * Each entry is filed under a time before which it cannot become idle. A take moves that time later without filing the
 * entry again, so an entry that is due need not be idle. A sweep that finds such an entry files it anew.
 *
 * A slot is a list of entries whose times differ from `base_us` first in the same octal digit, and agree in that one.
 * So all times of a slot are earlier than those of the slots after it. When the first slot is due, its earliest time
 * becomes the base, and its entries move to slot 0, from which the sweep takes them one by one. An entry that is not
 * idle and was not used goes to a slot before the old one. So a sweep looks at an entry at most once for each digit,
 * and three or four times as a rule, before a take or the end of the entry. Filing takes constant time. (Ahuja,
 * Mehlhorn, Orlin and Tarjan, "Faster algorithms for the shortest path problem", 1990.)
 *
 * The links are the two pointers of the handle with which uthash keeps the order of insertion, which nothing needs:
 * `next`, and in `prev` the address of the pointer that leads to the entry.
 *
 * An entry also keeps the time that it is filed under (`due_us`). A thread without the mutex gives permits back only if
 * the key becomes idle no earlier than that (memory/look.h).
 *
 * Lock: the shard's mutex.
 */
#ifndef BACKENDS_MEMORY_DUE_H
#define BACKENDS_MEMORY_DUE_H

#include "backends/memory/entry.h"

#define DUE_BITS 3
#define DUE_DIGITS (1u << DUE_BITS)
#define DUE_LEVELS 18 /* 54 bits */
#define DUE_MAX_US ((INT64_C(1) << DUE_LEVELS * DUE_BITS) - 1)
#define DUE_SLOTS (1 + DUE_LEVELS * DUE_DIGITS)

struct due_slot {
    void *first;        /* struct entry * */
    int64_t soonest_us; /* a lower bound of its entries' times */
};

struct due {
    int64_t base_us;                      /* no entry's time is earlier */
    uint64_t used[(DUE_SLOTS + 63) / 64]; /* a bit for each slot that may have entries */
    struct due_slot slots[DUE_SLOTS];
};

/* File an entry under a time, or under another one; 0: it may be idle now. */
void due_file(struct due *due, struct entry *entry, int64_t time_us);

static inline bool due_has(const struct entry *entry)
{
    return entry->hh.prev != NULL;
}

/* Take an entry out, if it is filed. */
void due_remove(struct entry *entry);

/* Lead the links to an entry whose handle is a copy of another one's, which was filed. */
void due_moved(struct entry *entry);

/* Return an entry that is due at `now_us`, with the earliest ones first; NULL: there is none. */
struct entry *due_first(struct due *due, int64_t now_us);

/* Return a time before which no entry is due, or INT64_MAX without entries. */
int64_t due_soonest_us(struct due *due);

#endif
