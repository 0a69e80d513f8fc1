/* slab.c - pages of entries of one size.
 *
 * A page begins with its header, which an entry's address leads to by clearing its low bits. Slots are handed
 * out in address order until the page has been used up once, and from a list of freed ones after that, so that no
 * memory is touched before it is needed. For the same reason a region is cut into pages one by one. */
#include "backends/shared/slab.h"

#include "backends/shared/huge.h"
#include "core/ground/arith.h"

#include <stdalign.h>
#include <stdlib.h>
#include <string.h>

#define PLACED_REGIONS (INT64_C(1) << 32 >> 18) /* as many as places of 32 bits can name */
#define PACK_CHOICE 8                           /* pages of which the one with the fewest entries is emptied */

struct free_entry {
    struct free_entry *next;
};

/* Behind the slots lie their owners, in 16 bits each. */
struct slab_page {
    struct free_entry *freed;
    struct slab_page *next, *previous; /* in class->open; in slab->empty only `next` */
    uint32_t entry_bytes;              /* of the class that it serves or served last; 0: none yet */
    uint32_t live;                     /* entries handed out */
    uint32_t fresh;                    /* slots handed out at least once since the page was empty */
    uint32_t region;                   /* the region's number */
};

#define FIRST_ENTRY 64 /* a whole cache line */

_Static_assert(SLAB_REGION_BYTES == HUGE_BYTES, "a region can be a huge page");
_Static_assert(FIRST_ENTRY % SLAB_STEP == 0 && FIRST_ENTRY >= sizeof(struct slab_page), "entries are aligned");
_Static_assert(PLACED_REGIONS *SLAB_PLACES_PER_REGION == INT64_C(1) << 32, "a place has 32 bits");

struct slab_region {
    struct slab_region *next;
    void *address;
};

static size_t slab_class_of(size_t size)
{
    if (size <= SLAB_LEAST)
        return 0;
    if (size <= 256)
        return (size + 31) / 32 - 1;
    return size <= 512 ? (size - 256 + 63) / 64 + 7 : (size - 512 + 127) / 128 + 11;
}

static uint32_t slab_class_bytes(uint32_t class)
{
    if (class == 0)
        return SLAB_LEAST;
    if (class < 8)
        return (class + 1) * 32;
    return class < 12 ? 256 + (class - 7) * 64 : 512 + (class - 11) * 128;
}

static struct slab_page *slab_page_of(const struct slab *slab, const void *entry)
{
    return (struct slab_page *)((uintptr_t)entry & ~(uintptr_t)(slab->page_bytes - 1));
}

static struct free_entry *slab_slot(struct slab_page *page, uint32_t number)
{
    return (struct free_entry *)((char *)page + FIRST_ENTRY + number * page->entry_bytes);
}

/* Return the owner of a slot, plus 1; 0: the slot is free. Relaxed: a change happens under slab->mutex and under the
 * owner's lock, and a thread that reads it without either checks it again under the latter. */
static _Atomic uint16_t *slab_owner(const struct slab *slab, struct slab_page *page, const void *entry)
{
    const size_t offset = (size_t)((const char *)entry - (const char *)page);
    _Atomic uint16_t *end = (_Atomic uint16_t *)((char *)page + slab->page_bytes);
    return end - 1 - (offset - FIRST_ENTRY) / page->entry_bytes;
}

void slab_init(struct slab *slab, struct budget *budget)
{
    *slab = (struct slab){ .budget = budget, .cut = SLAB_REGION_BYTES };
    slab->page_bytes = SLAB_SMALL_PAGE;
    while (slab->page_bytes < SLAB_LARGE_PAGE && budget->max / 768 >= (int64_t)slab->page_bytes)
        slab->page_bytes *= 2;
    for (uint32_t i = 0; i < SLAB_CLASSES; i++) {
        const uint32_t bytes = slab_class_bytes(i);
        const uint32_t slots = (uint32_t)((slab->page_bytes - FIRST_ENTRY) / (bytes + sizeof(uint16_t)));
        slab->classes[i] = (struct slab_class){ .entry_bytes = bytes, .slots = slots };
    }
    lock_init(&slab->mutex);
    lock_init(&slab->packing);
}

int slab_init_placed(struct slab *slab, struct budget *budget, struct readers *readers, int64_t max_bytes)
{
    slab_init(slab, budget);
    slab->readers = readers;
    slab->most_regions = (uint32_t)min_of(PLACED_REGIONS, max_bytes / (int64_t)SLAB_REGION_BYTES * 2 + 64);
    slab->directory = calloc(slab->most_regions, sizeof *slab->directory);
    return slab->directory ? 0 : -1;
}

void slab_destroy(struct slab *slab)
{
    for (struct slab_region *region = slab->regions, *next; region; region = next) {
        next = region->next;
        huge_unmap(region->address, SLAB_REGION_BYTES);
        free(region);
    }
    free((void *)slab->directory);
    lock_destroy(&slab->mutex);
    lock_destroy(&slab->packing);
}

/* ---- Pages ---- */

static bool slab_region_add(struct slab *slab) REQUIRES(slab->mutex)
{
    struct slab_region *region = malloc(sizeof *region);
    if (!region)
        return false;
    region->address = huge_map(SLAB_REGION_BYTES);
    if (!region->address) {
        free(region);
        return false;
    }
    if (slab->regions) /* the previous region is used up */
        huge_advise(slab->regions->address);
    region->next = slab->regions;
    slab->regions = region;
    slab->cut = 0;
    const uint32_t number = slab->region_count++;
    if (number < slab->most_regions)
        atomic_store_explicit(&slab->directory[number], region->address, memory_order_relaxed);
    return true;
}

/* Return a page without a class, or NULL: out of memory. */
static struct slab_page *slab_page_find(struct slab *slab) REQUIRES(slab->mutex)
{
    struct slab_page *page = slab->empty;
    if (page) {
        slab->empty = page->next;
        return page;
    }
    if (slab->cut == SLAB_REGION_BYTES && !slab_region_add(slab))
        return NULL;
    page = (struct slab_page *)((char *)slab->regions->address + slab->cut);
    page->region = slab->region_count - 1;
    slab->cut += slab->page_bytes;
    return page;
}

/* Give an empty page to a class. */
static void slab_page_cast(struct slab *slab, struct slab_page *page, const struct slab_class *class)
    REQUIRES(slab->mutex)
{
    const bool is_recast = page->entry_bytes != 0 && page->entry_bytes != class->entry_bytes;
    page->entry_bytes = class->entry_bytes;
    page->freed = NULL;
    page->fresh = 0;
    if (is_recast && slab->readers) { /* stored places become stale before the readers are waited for */
        atomic_fetch_add(&slab->recast, 1);
        readers_wait(slab->readers);
    }
    if (is_recast) /* entries have been where the owners are now */
        memset((char *)page + slab->page_bytes - class->slots * sizeof(uint16_t), 0, class->slots * sizeof(uint16_t));
}

/* Let a page with free slots serve its class. */
static void slab_page_open(struct slab_class *class, struct slab_page *page)
{
    page->previous = NULL;
    page->next = class->open;
    if (page->next)
        page->next->previous = page;
    class->open = page;
}

static void slab_page_close(struct slab_class *class, struct slab_page *page)
{
    if (page->next)
        page->next->previous = page->previous;
    if (page->previous)
        page->previous->next = page->next;
    else
        class->open = page->next;
}

static enum slab_error slab_page_add(struct slab *slab, struct slab_class *class) REQUIRES(slab->mutex)
{
    if (!budget_take(slab->budget, (int64_t)slab->page_bytes))
        return SLAB_NO_BUDGET;
    struct slab_page *page = slab_page_find(slab);
    if (!page) {
        budget_give(slab->budget, (int64_t)slab->page_bytes);
        return SLAB_NO_MEMORY;
    }
    slab_page_cast(slab, page, class);
    slab_page_open(class, page);
    class->free += class->slots;
    return SLAB_OK;
}

/* Take back an empty page that is not open. */
static void slab_page_retire(struct slab *slab, struct slab_page *page) REQUIRES(slab->mutex)
{
    page->next = slab->empty;
    slab->empty = page;
    budget_give(slab->budget, (int64_t)slab->page_bytes);
}

/* ---- Entries ---- */

static enum slab_error slab_take_large(struct slab *slab, size_t size, void **out)
{
    if (!budget_take(slab->budget, (int64_t)size))
        return SLAB_NO_BUDGET;
    void *entry = malloc(size);
    if (!entry) {
        budget_give(slab->budget, (int64_t)size);
        return SLAB_NO_MEMORY;
    }
    *out = entry;
    return SLAB_OK;
}

/* Hand out a slot of an open page. */
static void *slab_page_take(struct slab *slab, struct slab_class *class, struct slab_page *page, unsigned owner)
    REQUIRES(slab->mutex)
{
    struct free_entry *entry = page->freed;
    if (entry)
        page->freed = entry->next;
    else
        entry = slab_slot(page, page->fresh++);
    atomic_store_explicit(slab_owner(slab, page, entry), (uint16_t)(owner + 1), memory_order_relaxed);
    class->free--;
    if (++page->live == class->slots)
        slab_page_close(class, page);
    return entry;
}

enum slab_error slab_take(struct slab *slab, size_t size, unsigned owner, void **out)
{
    if (size > SLAB_MAX_ENTRY)
        return slab_take_large(slab, size, out);

    struct slab_class *class = &slab->classes[slab_class_of(size)];
    enum slab_error error = SLAB_OK;
    lock_take(&slab->mutex);
    if (!class->open)
        error = slab_page_add(slab, class);
    if (!error)
        *out = slab_page_take(slab, class, class->open, owner);
    lock_give(&slab->mutex);
    return error;
}

bool slab_has_room(struct slab *slab, size_t size)
{
    if (size > SLAB_MAX_ENTRY)
        return budget_has(slab->budget, (int64_t)size);
    lock_take(&slab->mutex);
    const bool is_open = slab->classes[slab_class_of(size)].open != NULL;
    lock_give(&slab->mutex);
    return is_open || budget_has(slab->budget, (int64_t)slab->page_bytes);
}

void slab_give(struct slab *slab, void *entry, size_t size)
{
    if (size > SLAB_MAX_ENTRY) {
        free(entry);
        budget_give(slab->budget, (int64_t)size);
        return;
    }
    struct slab_class *class = &slab->classes[slab_class_of(size)];
    struct slab_page *page = slab_page_of(slab, entry);
    struct free_entry *freed = entry;
    lock_take(&slab->mutex);
    freed->next = page->freed;
    page->freed = freed;
    atomic_store_explicit(slab_owner(slab, page, entry), 0, memory_order_relaxed);
    page->live--;
    if (page != slab->packed) {
        class->free++;
        if (page->live + 1 == class->slots)
            slab_page_open(class, page);
        if (page->live == 0) {
            slab_page_close(class, page);
            class->free -= class->slots;
            slab_page_retire(slab, page);
        }
    }
    lock_give(&slab->mutex);
}

uint32_t slab_place(const struct slab *slab, const void *entry, size_t size)
{
    if (size > SLAB_MAX_ENTRY)
        return 0;
    const uint32_t region = slab_page_of(slab, entry)->region;
    const size_t within = ((uintptr_t)entry & (SLAB_REGION_BYTES - 1)) / SLAB_STEP;
    return region < slab->most_regions ? (uint32_t)(region * SLAB_PLACES_PER_REGION + within) : 0;
}

/* ---- Packing ---- */

bool slab_is_owned(const struct slab *slab, const void *entry, unsigned owner)
{
    struct slab_page *page = slab_page_of(slab, entry);
    return atomic_load_explicit(slab_owner(slab, page, entry), memory_order_relaxed) == owner + 1;
}

/* Return a class that has a page's worth of free slots, or NULL. */
static struct slab_class *slab_loose_class(struct slab *slab) REQUIRES(slab->mutex)
{
    for (size_t i = 0; i < SLAB_CLASSES; i++)
        if (slab->classes[i].free >= slab->classes[i].slots)
            return &slab->classes[i];
    return NULL;
}

/* Empty a page of a class whose other open pages have room for its entries. */
static bool slab_pack_page(struct slab *slab, void (*move)(void *user, unsigned owner, void *entry), void *user)
    REQUIRES(slab->packing)
{
    lock_take(&slab->mutex);
    struct slab_class *class = slab_loose_class(slab);
    if (!class) { /* another thread has emptied it */
        lock_give(&slab->mutex);
        return true;
    }
    struct slab_page *page = class->open, *other = page;
    for (int i = 0; i < PACK_CHOICE && other; i++, other = other->next)
        page = other->live < page->live ? other : page;
    slab_page_close(class, page);
    class->free -= class->slots - page->live;
    slab->packed = page;
    lock_give(&slab->mutex);

    for (uint32_t i = 0; i < class->slots; i++) {
        void *entry = slab_slot(page, i);
        const unsigned owner = atomic_load_explicit(slab_owner(slab, page, entry), memory_order_relaxed);
        if (owner != 0)
            move(user, owner - 1, entry);
    }

    lock_take(&slab->mutex);
    slab->packed = NULL;
    const bool is_empty = page->live == 0;
    if (is_empty) {
        slab_page_retire(slab, page);
    } else {
        slab_page_open(class, page);
        class->free += class->slots - page->live;
    }
    lock_give(&slab->mutex);
    return is_empty;
}

bool slab_can_pack(struct slab *slab)
{
    lock_take(&slab->mutex);
    const bool can_pack = slab->packed || slab_loose_class(slab);
    lock_give(&slab->mutex);
    return can_pack;
}

bool slab_pack(struct slab *slab, void (*move)(void *user, unsigned owner, void *entry), void *user)
{
    if (!slab_can_pack(slab))
        return false;
    lock_take(&slab->packing);
    const bool is_emptied = slab_pack_page(slab, move, user);
    lock_give(&slab->packing);
    return is_emptied;
}
