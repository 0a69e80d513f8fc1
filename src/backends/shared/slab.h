/* slab.h - memory for entries of a few sizes: no header per entry, no fragmentation that lasts.
 *
 * Regions of 2 MiB come from the system, aligned, so that a huge page fits; the kernel is asked for one only when the
 * region is used up, so that it makes one in its own time: a huge page made on first touch holds up one insertion for
 * as long as it takes to clear 2 MiB, milliseconds on a virtual machine. A region is cut into pages of 64 KiB, and a
 * page serves one size class (multiples of 32 bytes). A page whose last entry is freed serves any class again, so
 * keys of one size cannot lock keys of another out. What is larger than SLAB_MAX_ENTRY comes from malloc(). All of it
 * is taken from a budget first.
 *
 * Regions are never given back, and an entry has a place, a number of 32 bits that leads to its memory at the price of
 * one look into a short directory. Readers (readers.h) may look at a place without a lock: it is an entry of the same
 * size as long as they look, in use or not, for a page waits for them before it serves another class.
 *
 * malloc() alone would cost 16 bytes more a key of 16 bytes, of 96, and could not tell what it holds.
 *
 * Locks: slab->mutex, inside a shard's.
 */
#ifndef BACKENDS_SHARED_SLAB_H
#define BACKENDS_SHARED_SLAB_H

#include "backends/shared/budget.h"
#include "backends/shared/readers.h"
#include "core/ground/lock.h"

#include <stddef.h>

#define SLAB_REGION_BYTES ((size_t)2 << 20)
#define SLAB_PAGE_BYTES ((size_t)64 << 10)
#define SLAB_STEP ((size_t)32)
#define SLAB_MAX_ENTRY ((size_t)1024)
#define SLAB_CLASSES (SLAB_MAX_ENTRY / SLAB_STEP)

#define SLAB_PLACES_PER_REGION (SLAB_REGION_BYTES / SLAB_STEP) /* a power of two */

struct slab_page;
struct slab_region;

/* (c) constant, (m) slab->mutex, (a) atomic. What every decision reads comes first, the mutex cache lines further on. */
struct slab {
    char *_Atomic *directory;             /* (a) the regions that places lead to */
    _Atomic uint32_t recast;              /* (a) how often a page came to serve another class than before */
    uint32_t most_regions;                /* (c) whose entries have places */
    struct budget *budget;                /* (c) */
    struct readers *readers;              /* (c) or NULL */
    struct slab_page *open[SLAB_CLASSES]; /* (m) pages with room, by class */
    struct slab_page *empty;              /* (m) pages that serve no class */
    struct slab_region *regions;          /* (m) all of them, to be freed */
    uint32_t region_count;                /* (m) */
    struct lock mutex;
};

enum slab_error { SLAB_OK = 0, SLAB_NO_MEMORY, SLAB_NO_BUDGET };

/* For entries that nobody looks at, and that have no places. */
void slab_init(struct slab *slab, struct budget *budget);

/* For others. Entries beyond some twice `max_bytes`, or beyond 128 GiB, have no places. 0, or -1 if there was no memory.
 */
int slab_init_placed(struct slab *slab, struct budget *budget, struct readers *readers, int64_t max_bytes);

/* Frees every page, and the directory; entries larger than SLAB_MAX_ENTRY must have been freed one by one. */
void slab_destroy(struct slab *slab);

/* `beyond_budget`: take the memory even if the budget is spent. The entry is aligned to SLAB_STEP bytes, not cleared;
 * what an entry of its size held that had this memory before is still in it. */
enum slab_error slab_take(struct slab *slab, size_t size, bool beyond_budget, void **out);

/* `size` as it was taken. The entry's first bytes are written to, as many as a pointer has. */
void slab_give(struct slab *slab, void *entry, size_t size);

/* The place of an entry of `size` bytes; 0: it has none. */
uint32_t slab_place(const struct slab *slab, const void *entry, size_t size);

/* The entry at a place that slab_place() told. */
static inline void *slab_entry(const struct slab *slab, uint32_t place)
{
    char *region = atomic_load_explicit(&slab->directory[place / SLAB_PLACES_PER_REGION], memory_order_relaxed);
    return region + place % SLAB_PLACES_PER_REGION * SLAB_STEP;
}

/* A place that was kept while nobody looked may lead to an entry of another size by now if this has changed. */
static inline uint32_t slab_recast(const struct slab *slab)
{
    return atomic_load_explicit(&slab->recast, memory_order_acquire);
}

#endif
