/* slab.h - memory for entries of a few sizes: no header per entry, no fragmentation that lasts.
 *
 * Regions of 2 MiB come from the system, aligned, so that a huge page fits; the kernel is asked for one only when the
 * region is used up, so that it makes one in its own time: a huge page made on first touch holds up one insertion for
 * as long as it takes to clear 2 MiB, milliseconds on a virtual machine. A region is cut into pages of 64 KiB, and a
 * page serves one size class (multiples of 16 bytes). A page whose last entry is freed serves any class again, so
 * keys of one size cannot lock keys of another out. What is larger than SLAB_MAX_ENTRY comes from malloc(). All of it
 * is taken from a budget first.
 *
 * malloc() alone would cost 16 bytes more a key of 16 bytes, of 96, and could not tell what it holds.
 *
 * Locks: slab->mutex, inside a shard's.
 */
#ifndef BACKENDS_SLAB_H
#define BACKENDS_SLAB_H

#include "backends/budget.h"
#include "core/lock.h"

#include <stddef.h>

#define SLAB_REGION_BYTES ((size_t)2 << 20)
#define SLAB_PAGE_BYTES ((size_t)64 << 10)
#define SLAB_STEP ((size_t)16)
#define SLAB_MAX_ENTRY ((size_t)1024)
#define SLAB_CLASSES (SLAB_MAX_ENTRY / SLAB_STEP)

struct slab_page;
struct slab_region;

/* (m) slab->mutex */
struct slab {
    struct lock mutex;
    struct budget *budget;
    struct slab_page *open[SLAB_CLASSES]; /* (m) pages with room, by class */
    struct slab_page *empty;              /* (m) pages that serve no class */
    struct slab_region *regions;          /* (m) all of them, to be freed */
};

enum slab_error { SLAB_OK = 0, SLAB_NO_MEMORY, SLAB_NO_BUDGET };

void slab_init(struct slab *slab, struct budget *budget);

/* Frees every page; entries larger than SLAB_MAX_ENTRY must have been freed one by one. */
void slab_destroy(struct slab *slab);

/* `beyond_budget`: take the memory even if the budget is spent. The entry is aligned to 16 bytes, not cleared. */
enum slab_error slab_take(struct slab *slab, size_t size, bool beyond_budget, void **out);

/* `size` as it was taken. */
void slab_give(struct slab *slab, void *entry, size_t size);

#endif
