/* slab.c - pages of entries of one size.
 *
 * A page begins with its header, which an entry's address leads to by clearing its low bits. Entries are handed
 * out in address order until the page has been used up once, and from a list of freed ones after that, so that no
 * memory is touched before it is needed. */
#include "backends/shared/slab.h"

#include "core/ground/arith.h"

#include <stdalign.h>
#include <stdlib.h>
#include <sys/mman.h>

#define PAGES_PER_REGION (SLAB_REGION_BYTES / SLAB_PAGE_BYTES)
#define PLACED_REGIONS (INT64_C(1) << 32 >> 16) /* as many as places of 32 bits can name */

struct free_entry {
    struct free_entry *next;
};

struct slab_page {
    alignas(SLAB_STEP) struct free_entry *freed;
    struct slab_page *next, *previous; /* in slab->open[class]; in slab->empty only `next` */
    uint32_t entry_bytes;              /* of the class that it serves or served last; 0: none yet */
    uint32_t live;                     /* entries handed out */
    uint32_t fresh;                    /* offset of the first entry not handed out since the page was empty */
    uint32_t region;                   /* the region's number */
};

/* Entries begin half a cache line off. With entries of 96 bytes, which keys of 16 bytes have, every second one
 * then has all that a decision reads, its last 64 bytes, in one line. */
#define FIRST_ENTRY 96

_Static_assert(FIRST_ENTRY % SLAB_STEP == 0 && FIRST_ENTRY >= sizeof(struct slab_page), "entries are aligned");
_Static_assert(PLACED_REGIONS *SLAB_PLACES_PER_REGION == INT64_C(1) << 32, "a place has 32 bits");

struct slab_region {
    struct slab_region *next;
    void *address;
};

static size_t slab_class_of(size_t size)
{
    return (size + SLAB_STEP - 1) / SLAB_STEP - 1;
}

static struct slab_page *slab_page_of(const void *entry)
{
    return (struct slab_page *)((uintptr_t)entry & ~(uintptr_t)(SLAB_PAGE_BYTES - 1));
}

void slab_init(struct slab *slab, struct budget *budget)
{
    *slab = (struct slab){ .budget = budget };
    lock_init(&slab->mutex);
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
        munmap(region->address, SLAB_REGION_BYTES);
        free(region);
    }
    free((void *)slab->directory);
    lock_destroy(&slab->mutex);
}

/* ---- Pages ---- */

/* Map an aligned region: map twice as much, and unmap what lies before and behind. */
static void *slab_region_map(void)
{
    size_t mapped = 2 * SLAB_REGION_BYTES;
    char *low = mmap(NULL, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (low == MAP_FAILED)
        return NULL;
    char *region = (char *)(((uintptr_t)low + SLAB_REGION_BYTES - 1) & ~(uintptr_t)(SLAB_REGION_BYTES - 1));
    char *end = region + SLAB_REGION_BYTES;
    if (region > low)
        munmap(low, (size_t)(region - low));
    if (low + mapped > end)
        munmap(end, (size_t)(low + mapped - end));
    return region;
}

static bool slab_region_add(struct slab *slab) REQUIRES(slab->mutex)
{
    struct slab_region *region = malloc(sizeof *region);
    if (!region)
        return false;
    region->address = slab_region_map();
    if (!region->address) {
        free(region);
        return false;
    }
    if (slab->regions) /* the previous region is used up */
        madvise(slab->regions->address, SLAB_REGION_BYTES, MADV_HUGEPAGE);
    region->next = slab->regions;
    slab->regions = region;
    const uint32_t number = slab->region_count++;
    if (number < slab->most_regions)
        atomic_store_explicit(&slab->directory[number], region->address, memory_order_relaxed);
    for (size_t i = PAGES_PER_REGION; i-- > 0;) {
        struct slab_page *page = (struct slab_page *)((char *)region->address + i * SLAB_PAGE_BYTES);
        page->region = number;
        page->next = slab->empty;
        slab->empty = page;
    }
    return true;
}

/* Give an empty page to a class. */
static void slab_page_cast(struct slab *slab, struct slab_page *page, uint32_t entry_bytes) REQUIRES(slab->mutex)
{
    const bool is_recast = page->entry_bytes != 0 && page->entry_bytes != entry_bytes;
    page->entry_bytes = entry_bytes;
    page->freed = NULL;
    page->live = 0;
    page->fresh = FIRST_ENTRY;
    if (is_recast && slab->readers) { /* stored places become stale before the readers are waited for */
        atomic_fetch_add(&slab->recast, 1);
        readers_wait(slab->readers);
    }
}

static void slab_page_open(struct slab *slab, struct slab_page *page, size_t class) REQUIRES(slab->mutex)
{
    page->previous = NULL;
    page->next = slab->open[class];
    if (page->next)
        page->next->previous = page;
    slab->open[class] = page;
}

static void slab_page_close(struct slab *slab, struct slab_page *page, size_t class) REQUIRES(slab->mutex)
{
    if (page->next)
        page->next->previous = page->previous;
    if (page->previous)
        page->previous->next = page->next;
    else
        slab->open[class] = page->next;
}

static enum slab_error slab_page_add(struct slab *slab, size_t class, bool beyond_budget) REQUIRES(slab->mutex)
{
    if (!budget_take(slab->budget, SLAB_PAGE_BYTES)) {
        if (!beyond_budget)
            return SLAB_NO_BUDGET;
        budget_overdraw(slab->budget, SLAB_PAGE_BYTES);
    }
    if (!slab->empty && !slab_region_add(slab)) {
        budget_give(slab->budget, SLAB_PAGE_BYTES);
        return SLAB_NO_MEMORY;
    }
    struct slab_page *page = slab->empty;
    slab->empty = page->next;
    slab_page_cast(slab, page, (uint32_t)((class + 1) * SLAB_STEP));
    slab_page_open(slab, page, class);
    return SLAB_OK;
}

static bool slab_page_is_full(const struct slab_page *page)
{
    return !page->freed && page->fresh + page->entry_bytes > SLAB_PAGE_BYTES;
}

/* ---- Entries ---- */

static enum slab_error slab_take_large(struct slab *slab, size_t size, bool beyond_budget, void **out)
{
    if (!budget_take(slab->budget, (int64_t)size)) {
        if (!beyond_budget)
            return SLAB_NO_BUDGET;
        budget_overdraw(slab->budget, (int64_t)size);
    }
    void *entry = malloc(size);
    if (!entry) {
        budget_give(slab->budget, (int64_t)size);
        return SLAB_NO_MEMORY;
    }
    *out = entry;
    return SLAB_OK;
}

enum slab_error slab_take(struct slab *slab, size_t size, bool beyond_budget, void **out)
{
    if (size > SLAB_MAX_ENTRY)
        return slab_take_large(slab, size, beyond_budget, out);

    size_t class = slab_class_of(size);
    enum slab_error error = SLAB_OK;
    lock_take(&slab->mutex);
    if (!slab->open[class])
        error = slab_page_add(slab, class, beyond_budget);
    if (!error) {
        struct slab_page *page = slab->open[class];
        if (page->freed) {
            *out = page->freed;
            page->freed = page->freed->next;
        } else {
            *out = (char *)page + page->fresh;
            page->fresh += page->entry_bytes;
        }
        page->live++;
        if (slab_page_is_full(page))
            slab_page_close(slab, page, class);
    }
    lock_give(&slab->mutex);
    return error;
}

bool slab_has_room(struct slab *slab, size_t size)
{
    if (size > SLAB_MAX_ENTRY)
        return budget_has(slab->budget, (int64_t)size);
    lock_take(&slab->mutex);
    const bool is_open = slab->open[slab_class_of(size)] != NULL;
    lock_give(&slab->mutex);
    return is_open || budget_has(slab->budget, SLAB_PAGE_BYTES);
}

void slab_give(struct slab *slab, void *entry, size_t size)
{
    if (size > SLAB_MAX_ENTRY) {
        free(entry);
        budget_give(slab->budget, (int64_t)size);
        return;
    }
    size_t class = slab_class_of(size);
    struct slab_page *page = slab_page_of(entry);
    lock_take(&slab->mutex);
    bool was_full = slab_page_is_full(page);
    struct free_entry *freed = entry;
    freed->next = page->freed;
    page->freed = freed;
    page->live--;
    if (was_full)
        slab_page_open(slab, page, class);
    if (page->live == 0) {
        slab_page_close(slab, page, class);
        page->next = slab->empty;
        slab->empty = page;
        budget_give(slab->budget, SLAB_PAGE_BYTES);
    }
    lock_give(&slab->mutex);
}

uint32_t slab_place(const struct slab *slab, const void *entry, size_t size)
{
    if (size > SLAB_MAX_ENTRY)
        return 0;
    const uint32_t region = slab_page_of(entry)->region;
    const size_t within = ((uintptr_t)entry & (SLAB_REGION_BYTES - 1)) / SLAB_STEP;
    return region < slab->most_regions ? (uint32_t)(region * SLAB_PLACES_PER_REGION + within) : 0;
}
