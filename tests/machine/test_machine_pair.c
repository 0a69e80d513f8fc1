/* test_machine_pair.c - a pair is read as it was at one moment, while another thread swaps it. */
#include "support.h"

#include "backends/machine/pair.h"

#include <pthread.h>

enum { READS = INSTRUMENTED ? 20000 : 500000 };

#define AT (sizeof(struct machine_stripe) / sizeof(uint64_t))

static struct {
    struct machine_stripe stripe;
    alignas(16) _Atomic uint64_t words[PAIR_WORDS]; /* both are always equal, apart from the bits above a time */
} file;

static atomic_bool is_over;
static _Atomic uint64_t swapped;

_Static_assert(sizeof(struct machine_stripe) % 16 == 0, "the words are at AT");

/* Swap the pair until the reader is done. Fails while the reader holds it. */
static void *swap(void *unused)
{
    uint64_t own = 0;
    while (!atomic_load(&is_over)) {
        const struct pair from = pair_load(&file.stripe, AT);
        const struct pair to = { from.other + 1, from.time + 1 };
        if (!pair_is_held(from) && pair_swap(&file.stripe, AT, from, to))
            atomic_store(&swapped, ++own);
    }
    return unused;
}

TEST(a_pair_is_read_atomically, 60)
{
    const struct pair zero = { 0, 0 };
    pthread_t swapper;
    if (!pair_swap(&file.stripe, AT, zero, zero))
        return; /* this processor cannot swap: all decisions take the stripe's lock */
    ck_assert_int_eq(pthread_create(&swapper, NULL, swap, NULL), 0);
    uint64_t last = 0;
    for (int i = 0; i < READS; i++) {
        const struct pair pair = i % 2 ? pair_read(&file.stripe, AT) : pair_read_held(&file.stripe, AT);
        must(pair.other == pair.time, "both words are of one moment, and the key is not held");
        must(pair.other >= last, "a later read sees no earlier pair");
        last = pair.other;
    }
    while (atomic_load(&swapped) <= last) /* the reader has released it */
        ;
    atomic_store(&is_over, true);
    ck_assert_int_eq(pthread_join(swapper, NULL), 0);
    ck_assert_uint_eq(pair_load(&file.stripe, AT).other, atomic_load(&swapped));
}

TEST(a_held_key_stays_held_when_it_is_read, 10)
{
    ck_assert(pair_hold(&file.stripe, AT));
    ck_assert(pair_is_held(pair_read_held(&file.stripe, AT)));
    ck_assert(pair_is_held(pair_load(&file.stripe, AT)));
    ck_assert(!pair_hold(&file.stripe, AT));
}
