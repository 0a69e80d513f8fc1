/* test_slab.c - the slab's entries are whole, disjoint, aligned and counted in the budget. */
#include "support.h"

#include "backends/shared/slab.h"

#include <stdlib.h>

enum { HELD_MOST = 4096, LARGEST = 70000 };

/* An entry that is held, and the byte that fills it, which is also its owner. */
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

static int64_t page_of(const struct bench *bench)
{
    return (int64_t)bench->slab.page_bytes;
}

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

static enum slab_error take(struct bench *bench, size_t size, unsigned char fill)
{
    void *memory = NULL;
    enum slab_error error = slab_take(&bench->slab, size, fill, &memory);
    if (error) {
        must(!memory, "nothing is written on an error");
        return error;
    }
    must((uintptr_t)memory % SLAB_STEP == 0, "an entry is aligned");
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
    int64_t by_class[SLAB_CLASSES] = { 0 };
    for (size_t i = 0; i < bench->count; i++) {
        size_t c = 0;
        while (c < SLAB_CLASSES && bench->slab.classes[c].entry_bytes < bench->held[i].size)
            c++;
        if (c == SLAB_CLASSES)
            large += (int64_t)bench->held[i].size;
        else
            by_class[c]++;
    }
    for (size_t c = 0; c < SLAB_CLASSES; c++) {
        const int64_t slots = bench->slab.classes[c].slots;
        fewest += (by_class[c] + slots - 1) / slots;
        most += by_class[c];
    }
    int64_t pages = bench_used(bench) - large;
    must(pages % page_of(bench) == 0, "pages are paid for whole");
    pages /= page_of(bench);
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

TEST(entries_of_all_sizes_keep_their_contents, 30)
{
    static struct bench bench;
    struct chance chance = chance_make(1);
    bench_open(&bench, INT64_C(1) << 40);
    for (int64_t step = 0; step < 100000; step++) {
        /* Fill up for a while, empty for a while. */
        bool filling = step / 5000 % 2 == 0;
        bool takes = bench.count == 0 || (bench.count < HELD_MOST && chance_one_in(&chance, 3) != filling);
        if (takes)
            must(take(&bench, size_by_chance(&chance), (unsigned char)step) == SLAB_OK, "there is room");
        else
            give(&bench, (size_t)chance_between(&chance, 0, (int64_t)bench.count - 1));
        if (step % 1000 == 0)
            assert_budget_fits(&bench);
    }
    bench_close(&bench);
}

TEST(the_slab_never_exceeds_its_budget, 30)
{
    static struct bench bench;
    struct chance chance = chance_make(2);
    const int64_t max = INT64_C(3) << 20;
    int64_t refused = 0;
    bench_open(&bench, max);
    for (int64_t step = 0; step < 100000; step++) {
        if (bench.count < HELD_MOST && !chance_one_in(&chance, 3)) {
            int64_t before = bench_used(&bench);
            enum slab_error error = take(&bench, size_by_chance(&chance), (unsigned char)step);
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

TEST(a_page_that_is_empty_serves_another_size, 30)
{
    static struct bench bench;
    bench_open(&bench, (int64_t)SLAB_SMALL_PAGE); /* room for one page */
    for (size_t size = 1, c = 0; size <= SLAB_MAX_ENTRY; size += 5) {
        while (take(&bench, size, (unsigned char)size) == SLAB_OK)
            ck_assert_int_eq(bench_used(&bench), page_of(&bench));
        c += bench.slab.classes[c].entry_bytes < size;
        ck_assert_uint_eq(bench.count, bench.slab.classes[c].slots);
        const size_t entry_bytes = bench.slab.classes[c].entry_bytes + 2;     /* with its owner */
        ck_assert_uint_ge(bench.count, (SLAB_SMALL_PAGE - 96) / entry_bytes); /* all but the page's own header */
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
        take(&bench, 112, (unsigned char)i);
    const int64_t full = bench_used(&bench);
    for (int round = 0; round < 20; round++) {
        for (int i = 0; i < 1000; i++)
            give(&bench, (size_t)chance_between(&chance, 0, (int64_t)bench.count - 1));
        for (int i = 0; i < 1000; i++)
            take(&bench, 112, (unsigned char)i);
        ck_assert_int_le(bench_used(&bench), full);
    }
    bench_close(&bench);
}

TEST(regions_are_mapped_on_demand_and_no_entry_crosses_a_page, 30)
{
    static struct bench bench;
    bench_open(&bench, INT64_C(1) << 30);
    for (int i = 0; i < HELD_MOST; i++) { /* 4,096 entries of 1,024 bytes are over two regions */
        take(&bench, 1024, (unsigned char)i);
        uintptr_t first = (uintptr_t)bench.held[i].memory;
        must(first / SLAB_LARGE_PAGE == (first + 1023) / SLAB_LARGE_PAGE, "an entry lies in one page");
    }
    ck_assert_int_gt(bench_used(&bench), (int64_t)SLAB_REGION_BYTES);
    bench_close(&bench);
}

/* ---- Packing ---- */

/* Move an entry as the slab's users do. */
static void move(void *user, unsigned owner, void *entry)
{
    struct bench *bench = user;
    void *to;
    size_t i = 0;
    while (i < bench->count && bench->held[i].memory != entry)
        i++;
    must(i < bench->count, "only entries that are held are moved");
    struct held *held = &bench->held[i];
    must(owner == held->fill && slab_is_owned(&bench->slab, entry, owner), "the owner is known");
    must(slab_take(&bench->slab, held->size, owner, &to) == SLAB_OK, "the other pages have room");
    memcpy(to, entry, held->size);
    slab_give(&bench->slab, entry, held->size);
    must(!slab_is_owned(&bench->slab, entry, owner), "a free slot has no owner");
    held->memory = to;
}

static bool make_room(struct bench *bench, size_t size)
{
    while (!slab_has_room(&bench->slab, size))
        if (!slab_pack(&bench->slab, move, bench))
            return false;
    return true;
}

/* Return the bytes of free slots. */
static int64_t assert_no_class_has_a_free_page(const struct bench *bench)
{
    int64_t free_bytes = 0;
    for (size_t c = 0; c < SLAB_CLASSES; c++) {
        must(bench->slab.classes[c].free < bench->slab.classes[c].slots, "no page could be emptied");
        free_bytes += bench->slab.classes[c].free * bench->slab.classes[c].entry_bytes;
    }
    return free_bytes;
}

/* Whatever the sizes, an entry is refused only if less is free than the slack and the entry itself. */
TEST(a_full_slab_has_little_free_memory_with_any_mix_of_sizes, 60)
{
    static const int64_t most[] = { 256 << 10, 1 << 20, 3 << 20, 6 << 20 };
    static struct bench bench;
    for (int run = 0; run < 8; run++) {
        struct chance chance = chance_make((uint64_t)run);
        const int64_t max = most[run % 4];
        int64_t refused = 0, moved = 0, worst = 0;
        bench_open(&bench, max);
        const int64_t others = max > 1 << 20 ? max - (1 << 20) : 0; /* bytes that are not the slab's */
        budget_overdraw(&bench.budget, others);
        for (int64_t step = 0; step < 30000; step++) {
            const size_t from = (size_t)chance_between(&chance, 80, 1200); /* the sizes change from time to time */
            for (int i = 0; i < 300 && bench.count < HELD_MOST; i++, step++) {
                size_t size = (size_t)chance_between(&chance, 80, (int64_t)from + 20);
                if (chance_one_in(&chance, 100))
                    size = size_by_chance(&chance);
                if (take(&bench, size, (unsigned char)step) == SLAB_OK)
                    continue;
                if (make_room(&bench, size)) {
                    must(take(&bench, size, (unsigned char)step) == SLAB_OK, "the room is there");
                    moved++;
                    continue;
                }
                const int64_t in_pages = assert_no_class_has_a_free_page(&bench), rest = max - bench_used(&bench);
                must(rest < (size > SLAB_MAX_ENTRY ? (int64_t)size : page_of(&bench)), "the budget is spent");
                worst = in_pages > worst ? in_pages : worst;
                refused++;
            }
            for (int64_t i = chance_between(&chance, 1, 300); i > 0 && bench.count > 0; i--)
                give(&bench, (size_t)chance_between(&chance, 0, (int64_t)bench.count - 1));
        }
        ck_assert_int_gt(refused, 100);
        ck_assert_int_gt(moved, 10);
        ck_assert_int_le(worst * 1000, max * (max >= 1 << 20 ? 45 : 200));
        budget_give(&bench.budget, others);
        bench_close(&bench);
    }
}

TEST(a_page_is_emptied_once_the_others_have_room_for_its_entries, 10)
{
    static struct bench bench;
    bench_open(&bench, 10 * (int64_t)SLAB_SMALL_PAGE);
    for (unsigned char i = 0; take(&bench, 96, i) == SLAB_OK; i++)
        ;
    const size_t slots = bench.count / 10;
    must(!make_room(&bench, 2000), "no slot is free");
    for (size_t i = 0; i < slots - 1; i++)
        give(&bench, i * 9); /* of several pages */
    must(!make_room(&bench, 2000), "not enough of them for a page");
    give(&bench, 1);
    must(make_room(&bench, 2000), "a large entry fits into a page's budget");
    ck_assert_int_eq(bench_used(&bench), 9 * page_of(&bench));
    must(!make_room(&bench, 5000), "a larger one does not");
    bench_close(&bench);
}
