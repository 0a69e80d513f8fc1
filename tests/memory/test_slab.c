/* test_slab.c - the slab's entries are whole, disjoint, aligned and counted in the budget. */
#include "support.h"

#include "backends/shared/slab.h"

#include <stdlib.h>

enum { HELD_MOST = 4096, LARGEST = 70000 };

/* An entry that is held, and the byte that fills it. */
struct held {
    unsigned char *memory;
    size_t size;
    unsigned char fill;
};

struct bench {
    struct budget budget;
    struct slab slab;
    struct held held[HELD_MOST];
    size_t count;
};

static void bench_open(struct bench *bench, int64_t max_bytes)
{
    memset(bench, 0, sizeof *bench);
    bench->budget.max = max_bytes;
    slab_init(&bench->slab, &bench->budget);
}

static int64_t bench_used(const struct bench *bench)
{
    return atomic_load(&bench->budget.used);
}

/* Assert that no other entry has overwritten this one. */
static void give(struct bench *bench, size_t i)
{
    struct held *held = &bench->held[i];
    for (size_t j = 0; j < held->size; j++)
        if (held->memory[j] != held->fill)
            ck_abort_msg("an entry of %zu bytes was written over at byte %zu", held->size, j);
    memset(held->memory, 0xee, held->size);
    slab_give(&bench->slab, held->memory, held->size);
    *held = bench->held[--bench->count];
}

static enum slab_error take(struct bench *bench, size_t size, bool beyond_budget, unsigned char fill)
{
    void *memory = NULL;
    enum slab_error error = slab_take(&bench->slab, size, beyond_budget, &memory);
    if (error) {
        must(!memory, "nothing is written on an error");
        return error;
    }
    must((uintptr_t)memory % 16 == 0, "an entry is aligned to 16 bytes");
    must(bench->count < HELD_MOST, "the test holds that many");
    memset(memory, fill, size);
    bench->held[bench->count++] = (struct held){ memory, size, fill };
    return SLAB_OK;
}

static void give_all(struct bench *bench)
{
    while (bench->count > 0)
        give(bench, bench->count - 1);
}

static void bench_close(struct bench *bench)
{
    give_all(bench);
    ck_assert_int_eq(bench_used(bench), 0);
    slab_destroy(&bench->slab);
}

/* Return the bytes that the held entries cost: pages by size class, and large entries by their size. There may be more
 * pages than the tightest packing needs, but never more than entries. */
static void assert_budget_fits(const struct bench *bench)
{
    int64_t large = 0, fewest = 0, most = 0;
    size_t by_class[SLAB_CLASSES] = { 0 };
    for (size_t i = 0; i < bench->count; i++) {
        if (bench->held[i].size > SLAB_MAX_ENTRY)
            large += (int64_t)bench->held[i].size;
        else
            by_class[(bench->held[i].size + SLAB_STEP - 1) / SLAB_STEP - 1]++;
    }
    for (size_t c = 0; c < SLAB_CLASSES; c++) {
        size_t per_page = SLAB_PAGE_BYTES / ((c + 1) * SLAB_STEP);
        fewest += (int64_t)((by_class[c] + per_page - 1) / per_page);
        most += (int64_t)by_class[c];
    }
    int64_t pages = bench_used(bench) - large;
    must(pages % (int64_t)SLAB_PAGE_BYTES == 0, "pages are paid for whole");
    pages /= (int64_t)SLAB_PAGE_BYTES;
    must(pages >= fewest && pages <= most, "as many pages are paid for as hold entries");
}

static size_t size_by_chance(struct chance *chance)
{
    static const int64_t corners[] = { 1, 15, 16, 17, 1008, 1023, 1024, 1025, 65535, 65536 };
    switch (chance_between(chance, 0, 3)) {
    case 0: return (size_t)chance_pick(chance, corners, sizeof corners / sizeof corners[0]);
    case 1: return (size_t)chance_magnitude(chance, LARGEST);
    default: return (size_t)chance_between(chance, 1, (int64_t)SLAB_MAX_ENTRY);
    }
}

TEST(entries_of_all_sizes_keep_what_is_written_to_them, 30)
{
    static struct bench bench;
    struct chance chance = chance_make(1);
    bench_open(&bench, INT64_C(1) << 40);
    for (int64_t step = 0; step < 100000; step++) {
        /* Fill up for a while, empty for a while. */
        bool filling = step / 5000 % 2 == 0;
        bool takes = bench.count == 0 || (bench.count < HELD_MOST && chance_one_in(&chance, 3) != filling);
        if (takes)
            must(take(&bench, size_by_chance(&chance), false, (unsigned char)step) == SLAB_OK, "there is room");
        else
            give(&bench, (size_t)chance_between(&chance, 0, (int64_t)bench.count - 1));
        if (step % 1000 == 0)
            assert_budget_fits(&bench);
    }
    bench_close(&bench);
}

TEST(the_budget_is_a_bound_that_is_never_passed, 30)
{
    static struct bench bench;
    struct chance chance = chance_make(2);
    const int64_t max = INT64_C(3) << 20;
    int64_t refused = 0;
    bench_open(&bench, max);
    for (int64_t step = 0; step < 100000; step++) {
        if (bench.count < HELD_MOST && !chance_one_in(&chance, 3)) {
            int64_t before = bench_used(&bench);
            enum slab_error error = take(&bench, size_by_chance(&chance), false, (unsigned char)step);
            must(error == SLAB_OK || error == SLAB_NO_BUDGET, "memory is there, if not the budget");
            must(error == SLAB_OK || bench_used(&bench) == before, "what is refused is not paid for");
            refused += error == SLAB_NO_BUDGET;
        } else if (bench.count > 0) {
            give(&bench, (size_t)chance_between(&chance, 0, (int64_t)bench.count - 1));
        }
        must(bench_used(&bench) <= max, "the budget is a bound");
    }
    ck_assert_int_gt(refused, 1000);
    bench_close(&bench);
}

TEST(entries_beyond_the_budget_are_had_and_paid_back, 30)
{
    static struct bench bench;
    bench_open(&bench, (int64_t)SLAB_PAGE_BYTES);
    ck_assert_int_eq(take(&bench, 100, false, 1), SLAB_OK);
    ck_assert_int_eq(take(&bench, 200, false, 2), SLAB_NO_BUDGET); /* another class, another page */
    ck_assert_int_eq(take(&bench, 2000, false, 3), SLAB_NO_BUDGET);
    ck_assert_int_eq(take(&bench, 100, false, 4), SLAB_OK); /* the existing page has room */
    ck_assert_int_eq(take(&bench, 200, true, 5), SLAB_OK);
    ck_assert_int_eq(take(&bench, 2000, true, 6), SLAB_OK);
    ck_assert_int_eq(bench_used(&bench), 2 * (int64_t)SLAB_PAGE_BYTES + 2000);
    ck_assert_int_eq(take(&bench, 300, false, 7), SLAB_NO_BUDGET);
    give(&bench, 3); /* of 2000 */
    give(&bench, 2); /* of 200 */
    ck_assert_int_eq(bench_used(&bench), (int64_t)SLAB_PAGE_BYTES);
    bench_close(&bench);
}

TEST(a_page_that_is_empty_serves_another_size, 30)
{
    static struct bench bench;
    bench_open(&bench, (int64_t)SLAB_PAGE_BYTES); /* room for one page */
    for (size_t size = 1; size <= SLAB_MAX_ENTRY; size += 5) {
        while (take(&bench, size, false, (unsigned char)size) == SLAB_OK)
            ck_assert_int_eq(bench_used(&bench), (int64_t)SLAB_PAGE_BYTES);
        size_t stride = (size + SLAB_STEP - 1) / SLAB_STEP * SLAB_STEP;
        ck_assert_uint_ge(bench.count, (SLAB_PAGE_BYTES - 256) / stride); /* all but the page's own header */
        give_all(&bench);
        ck_assert_int_eq(bench_used(&bench), 0);
    }
    bench_close(&bench);
}

/* After any order of takes and frees, as many entries as before fit into the old places. */
TEST(freed_places_are_used_again, 30)
{
    static struct bench bench;
    struct chance chance = chance_make(3);
    bench_open(&bench, INT64_C(1) << 30);
    for (int i = 0; i < 3000; i++)
        take(&bench, 112, false, (unsigned char)i);
    const int64_t full = bench_used(&bench);
    for (int round = 0; round < 20; round++) {
        for (int i = 0; i < 1000; i++)
            give(&bench, (size_t)chance_between(&chance, 0, (int64_t)bench.count - 1));
        for (int i = 0; i < 1000; i++)
            take(&bench, 112, false, (unsigned char)i);
        ck_assert_int_le(bench_used(&bench), full);
    }
    bench_close(&bench);
}

TEST(regions_are_had_as_they_are_needed_and_no_entry_crosses_a_page, 30)
{
    static struct bench bench;
    bench_open(&bench, INT64_C(1) << 30);
    for (int i = 0; i < HELD_MOST; i++) { /* 4,096 entries of 1,024 bytes are over two regions */
        take(&bench, 1024, false, (unsigned char)i);
        uintptr_t first = (uintptr_t)bench.held[i].memory;
        must(first / SLAB_PAGE_BYTES == (first + 1023) / SLAB_PAGE_BYTES, "an entry lies in one page");
    }
    ck_assert_int_gt(bench_used(&bench), (int64_t)SLAB_REGION_BYTES);
    bench_close(&bench);
}
