/* slab.h - memory for entries of a few sizes, without a header per entry and without lasting fragmentation.
 *
 * Regions of 2 MiB come from the system, aligned, so that each can become a huge page when it is used up (huge.h). A
 * region is cut into pages, and a page into slots of one size class. The smallest class has SLAB_LEAST bytes;
 * the others are 32 bytes apart up to 256, then 64 up to 512, then 128 up to SLAB_MAX_ENTRY. Larger entries come from
 * malloc(). Everything is taken from a budget first.
 *
 * An empty page can serve any class. If a class has a page's worth of free slots in partly used pages, slab_pack()
 * empties one of them: the slab's user moves its entries to the other pages. So entries of one size cannot lock out
 * those of another. Where slab_pack() finds nothing to do, each class has fewer free slots than a page has. That slack
 * is at most 234 KB, and less than 4.5 % of a budget of 1 MiB or more.
 *
 * Every entry has an owner, a number that the user chooses, such as that of its shard. It takes two bytes a slot and
 * tells slab_pack()'s callback which lock guards the entry.
 *
 * Regions are never given back. An entry has a place, a number of 32 bits that leads to its memory through a
 * short directory. Readers (readers.h) may read an entry by its place without a lock: while they read, it stays
 * an entry of that size, in use or not, because a page waits for them before it serves another class.
 *
 * With malloc() alone a key of 16 bytes would need 16 bytes more than its 96, and the memory held would be
 * unknown.
 *
 * Locks, outer first: slab->packing; the locks of owners; slab->mutex.
 */
#ifndef BACKENDS_SHARED_SLAB_H
#define BACKENDS_SHARED_SLAB_H

#include "backends/shared/budget.h"
#include "backends/shared/readers.h"
#include "core/ground/lock.h"

#include <stddef.h>

#define SLAB_REGION_BYTES ((size_t)2 << 20)
#define SLAB_STEP ((size_t)8)   /* entries are aligned to it */
#define SLAB_LEAST ((size_t)56) /* the smallest class, of entries whose records are in cells (backends/memory) */
#define SLAB_MAX_ENTRY ((size_t)1024)
#define SLAB_CLASSES 16
#define SLAB_MAX_OWNER 0xfffeu
#define SLAB_SMALL_PAGE ((size_t)4 << 10)  /* of a slab with less than 3 MiB */
#define SLAB_LARGE_PAGE ((size_t)16 << 10) /* with 6 MiB or more; between these, a page has 8 KiB */

#define SLAB_PLACES_PER_REGION (SLAB_REGION_BYTES / SLAB_STEP) /* a power of two */

struct slab_page;
struct slab_region;

/* (c) constant, (m) slab->mutex */
struct slab_class {
    struct slab_page *open; /* (m) pages with free slots */
    int64_t free;           /* (m) free slots in them */
    uint32_t entry_bytes;   /* (c) */
    uint32_t slots;         /* (c) of a page */
};

/* (c) constant, (m) slab->mutex, (a) atomic. The mutex is some cache lines away from what every decision reads. */
struct slab {
    char *_Atomic *directory; /* (a) regions by the places in them */
    _Atomic uint32_t recast;  /* (a) how often a page began to serve another class */
    uint32_t most_regions;    /* (c) regions whose entries have places */
    struct budget *budget;    /* (c) */
    struct readers *readers;  /* (c) or NULL */
    size_t page_bytes;        /* (c) */
    struct slab_class classes[SLAB_CLASSES];
    struct slab_page *empty;     /* (m) pages without a class */
    struct slab_page *packed;    /* (m) the page that is being emptied, or NULL; it is not open */
    struct slab_region *regions; /* (m) all regions, the newest first */
    size_t cut;                  /* (m) bytes of the newest region that were cut into pages */
    uint32_t region_count;       /* (m) */
    struct lock mutex;
    struct lock packing; /* one thread at a time empties a page */
};

enum slab_error { SLAB_OK = 0, SLAB_NO_MEMORY, SLAB_NO_BUDGET };

/* Prepare a slab whose entries have no places: they are never read without a lock. budget->max decides the size of a
 * page. */
void slab_init(struct slab *slab, struct budget *budget);

/* Prepare a slab whose entries have places, except those beyond about twice `max_bytes` or beyond 32 GiB. 0, or
 * -1: out of memory. */
int slab_init_placed(struct slab *slab, struct budget *budget, struct readers *readers, int64_t max_bytes);

/* Free every page and the directory. Entries larger than SLAB_MAX_ENTRY must have been freed one by one. */
void slab_destroy(struct slab *slab);

/* Allocate an entry. It is aligned to SLAB_STEP bytes and not
 * cleared: it holds what the previous entry in this slot, of the same class, left there. An owner that has a lock holds
 * it in slab_take() and slab_give(). */
enum slab_error slab_take(struct slab *slab, size_t size, unsigned owner, void **out);

/* True if slab_take() would not return SLAB_NO_BUDGET. */
bool slab_has_room(struct slab *slab, size_t size);

/* Free an entry of the same `size` as it was taken with. Overwrites as many of its first bytes as a pointer has. */
void slab_give(struct slab *slab, void *entry, size_t size);

/* True if a class has a page's worth of free slots, or a thread is emptying a page. */
bool slab_can_pack(struct slab *slab);

/* Empty a page, or wait for the thread that is emptying one. False: slab_can_pack() is false, or an entry could not be
 * moved. The caller holds no lock.
 *
 * `move` is called for each entry of a page, without a lock. It takes the owner's lock, checks slab_is_owned(), and
 * frees the entry or moves it: it takes another one with slab_take() and frees the old one. */
bool slab_pack(struct slab *slab, void (*move)(void *user, unsigned owner, void *entry), void *user);

/* True if an entry that is passed to `move` still belongs to that owner, whose lock the caller holds. */
bool slab_is_owned(const struct slab *slab, const void *entry, unsigned owner);

/* Return the place of an entry of `size` bytes; 0: it has none. */
uint32_t slab_place(const struct slab *slab, const void *entry, size_t size);

/* Return the entry at a place. */
static inline void *slab_entry(const struct slab *slab, uint32_t place)
{
    char *region = atomic_load_explicit(&slab->directory[place / SLAB_PLACES_PER_REGION], memory_order_relaxed);
    return region + place % SLAB_PLACES_PER_REGION * SLAB_STEP;
}

/* Return a count that changes when a stored place may have become one of an entry of another size. */
static inline uint32_t slab_recast(const struct slab *slab)
{
    return atomic_load_explicit(&slab->recast, memory_order_acquire);
}

#endif
