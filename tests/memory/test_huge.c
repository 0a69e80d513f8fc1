/* test_huge.c - memory may become huge pages once it is in use, and not before. */
#include "support.h"

#include "backends/memory/cells.h"
#include "backends/shared/huge.h"
#include "backends/shared/slab.h"

#include <sys/mman.h>

/* ---- The requests to the kernel ---- */

enum { ADVISED_MOST = 64 };

static char *advised[ADVISED_MOST];
static size_t advised_count;

/* Takes the place of the C library's function, whose answer weir does not look at. */
int madvise(void *memory, size_t bytes, int advice)
{
    must(advice == MADV_HUGEPAGE && bytes == HUGE_BYTES, "2 MiB may become a huge page");
    must((uintptr_t)memory % HUGE_BYTES == 0, "they can be one");
    must(advised_count < ADVISED_MOST, "there is room to note it");
    advised[advised_count++] = memory;
    return -1;
}

static size_t times_advised(const void *memory)
{
    size_t times = 0;
    for (size_t i = 0; i < advised_count; i++)
        times += (uintptr_t)advised[i] == ((uintptr_t)memory & ~(HUGE_BYTES - 1));
    return times;
}

TEST(mapped_memory_is_aligned_and_zeroed, 10)
{
    static const size_t sizes[] = { 1, 4096, HUGE_BYTES - 1, HUGE_BYTES, HUGE_BYTES + 1, 5 * HUGE_BYTES };
    for (int i = 0; i < 50; i++) {
        const size_t bytes = sizes[(size_t)i % (sizeof sizes / sizeof sizes[0])];
        char *memory = huge_map(bytes);
        must(memory != NULL, "there is memory");
        ck_assert_uint_eq((uintptr_t)memory % HUGE_BYTES, 0);
        ck_assert_int_eq(memory[0] | memory[bytes / 2] | memory[bytes - 1], 0);
        memory[0] = memory[bytes / 2] = memory[bytes - 1] = 1;
        huge_unmap(memory, bytes);
    }
}

TEST(a_region_may_become_a_huge_page_when_it_is_used_up, 10)
{
    enum { REGIONS = 4, ENTRY = 1024 };
    struct budget budget = { .max = INT64_C(64) << 20 };
    struct slab slab;
    char *first[REGIONS] = { NULL };
    slab_init(&slab, &budget);
    advised_count = 0;
    for (size_t region = 0; region < REGIONS;) {
        void *entry;
        const uint32_t before = slab.region_count;
        must(slab_take(&slab, ENTRY, 0, &entry) == SLAB_OK, "there is memory");
        if (slab.region_count == before)
            continue;
        first[region++] = entry;
        ck_assert_uint_eq(advised_count, region - 1);
        for (size_t i = 0; i < region; i++)
            ck_assert_uint_eq(times_advised(first[i]), i + 1 < region);
    }
    slab_destroy(&slab);
}

/* Give the shards groups in turns, and compare each 2 MiB of the mapping with the groups that are in use there. */
TEST(cells_may_become_huge_pages_where_a_whole_page_is_in_use, 20)
{
    enum { SHARDS = 512, PAGES = 64, GROUPS = HUGE_BYTES / sizeof(struct cell_group) };
    struct budget budget = { .max = INT64_C(128) << 20 };
    struct cells cells;
    must(cells_init(&cells, SHARDS, 2000, &budget, NULL) == 0, "there is memory");
    const size_t whole = cells.most_groups * SHARDS / GROUPS;
    must(whole >= 2 && whole < PAGES, "some whole ones, and a rest");
    advised_count = 0;
    for (bool is_widened = true; is_widened;) {
        is_widened = false;
        for (size_t shard = 0; shard < SHARDS; shard++) {
            const uint32_t before = cells_groups(&cells, shard);
            if (before < cells.most_groups)
                cells_widen(&cells, shard);
            is_widened = is_widened || cells_groups(&cells, shard) > before;
            if (shard % 64 != 0)
                continue;
            size_t used[PAGES] = { 0 };
            for (size_t i = 0; i < SHARDS; i++)
                for (uint32_t n = 0; n < cells_groups(&cells, i) && cells_groups(&cells, i) > CELLS_FIRST; n++)
                    used[cells_index(&cells, i, n) / GROUPS]++;
            for (size_t page = 0; page < whole; page++)
                ck_assert_uint_eq(times_advised(&cells.groups[page * GROUPS]), used[page] == GROUPS);
            ck_assert_uint_eq(times_advised(&cells.groups[whole * GROUPS]), 0);
        }
    }
    ck_assert_uint_eq(advised_count, whole);
    cells_free(&cells);
}

/* On the first touch it would become one immediately, and the first key would wait for that. */
TEST(memory_that_no_key_has_touched_never_becomes_a_huge_page, 20)
{
    enum { SHARDS = HUGE_BYTES / sizeof(struct cell_group) };
    struct budget budget = { .max = INT64_C(128) << 20 };
    struct cells cells;
    advised_count = 0;
    must(cells_init(&cells, SHARDS, 2000, &budget, NULL) == 0, "there is memory");
    ck_assert_uint_eq(advised_count, 0);
    cells_free(&cells);
}
