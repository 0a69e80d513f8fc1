/* pair.h - the two words of a key's state that change as one, without a lock.
 *
 * A pair is an anchor, and the word that a take changes. These hold all of a token bucket, a fixed window and a leaky
 * bucket, and the summary of a sliding window (stored.h). A decision reads the pair, computes, and swaps the new pair
 * for the one that it read, in one instruction. So a process that dies has done all of a decision or nothing, and no
 * thread ever waits for it.
 *
 * The anchor leaves 11 bits of its word, because no time has more than 53:
 *
 *     held    a thread with the stripe's lock has the key; or a process died while it had it; or the cell belongs to no
 *             key. No swap succeeds, and the stripe's lock decides
 *     turn    10 bits that such a thread raises whenever it changes the key, or gives the cell to another one. So a
 *             swap succeeds only if all of the key is as it was when the pair was read
 *
 * A thread with the stripe's lock that finds a key held may go on as if it had held it itself: only the owner of that
 * lock can.
 *
 * Processors without an instruction for two words take the stripe's lock for each decision.
 */
#ifndef BACKENDS_MACHINE_PAIR_H
#define BACKENDS_MACHINE_PAIR_H

#include "backends/machine/journal.h"

#define PAIR_WORDS 2
#define PAIR_TRIES 8 /* reads of a pair that others swap, before a thread with the stripe's lock holds it */
#define PAIR_TIME_BITS 53
#define PAIR_TIME ((UINT64_C(1) << PAIR_TIME_BITS) - 1)
#define PAIR_TURN (UINT64_C(1) << PAIR_TIME_BITS)
#define PAIR_HELD (UINT64_C(1) << 63)

_Static_assert(WEIR_MAX_TIME_US <= PAIR_TIME, "every anchor fits");

struct pair {
    uint64_t other; /* the state's word that is not the anchor */
    uint64_t time;  /* the anchor, with the bits above */
};

static inline bool pair_is_held(struct pair pair)
{
    return (pair.time & PAIR_HELD) != 0;
}

/* Return the word of a pair whose anchor moves. */
static inline uint64_t pair_time_of(struct pair pair, int64_t anchor)
{
    return (pair.time & ~PAIR_TIME) | (uint64_t)anchor;
}

/* Return the pair at a place. The two words may be of different moments: pair_is() or pair_swap() tells. */
static inline struct pair pair_load(const struct machine_stripe *stripe, uint64_t at)
{
    const uint64_t time = stripe_load(stripe, at + 1);
    return (struct pair){ .other = stripe_load(stripe, at), .time = time };
}

/* True if the pair is still what pair_load() returned: so was the key, whatever was read of it since. */
static inline bool pair_is(const struct machine_stripe *stripe, uint64_t at, struct pair pair)
{
    return stripe_load(stripe, at + 1) == pair.time && stripe_load(stripe, at) == pair.other;
}

/* Swap `to` for `from`. False: the pair is another one, or the processor cannot. */
static inline bool pair_swap(struct machine_stripe *stripe, uint64_t at, struct pair from, struct pair to)
{
    struct pair *place = (struct pair *)(void *)stripe_word(stripe, at);
#if defined(__x86_64__)
    bool is_done; /* the first x86-64 processors, of 2003 to 2005, lack the instruction */
    __asm__ volatile("lock cmpxchg16b %1"
                     : "=@ccz"(is_done), "+m"(*place), "+a"(from.other), "+d"(from.time)
                     : "b"(to.other), "c"(to.time)
                     : "memory");
    return is_done;
#elif defined(__aarch64__) && defined(__AARCH64EL__)
    uint64_t other, time;
    uint32_t differs;
    __asm__ volatile(
        "0: ldaxp %[other], %[time], %[place]\n"
        "   cmp %[other], %[from_other]\n"
        "   ccmp %[time], %[from_time], #0, eq\n"
        "   cset %w[differs], ne\n"
        "   b.ne 1f\n"
        "   stlxp %w[differs], %[to_other], %[to_time], %[place]\n"
        "   cbnz %w[differs], 0b\n"
        "1:"
        : [other] "=&r"(other), [time] "=&r"(time), [differs] "=&r"(differs), [place] "+Q"(*place)
        : [from_other] "r"(from.other), [from_time] "r"(from.time), [to_other] "r"(to.other), [to_time] "r"(to.time)
        : "cc", "memory");
    return differs == 0;
#else
    (void)place, (void)from, (void)to;
    return false;
#endif
}

/* Hold a key, with the stripe's lock. False: it was held already. */
static inline bool pair_hold(struct machine_stripe *stripe, uint64_t at)
{
    return (atomic_fetch_or_explicit(stripe_word(stripe, at + 1), PAIR_HELD, memory_order_acq_rel) & PAIR_HELD) == 0;
}

static inline void pair_release(struct machine_stripe *stripe, uint64_t at)
{
    stripe_store(stripe, at + 1, stripe_load(stripe, at + 1) & ~PAIR_HELD);
}

/* Return the pair at a place as it is while the key is held for that. The caller has the stripe's lock. */
static inline struct pair pair_read_held(struct machine_stripe *stripe, uint64_t at)
{
    const bool was_free = pair_hold(stripe, at);
    struct pair pair = pair_load(stripe, at);
    if (was_free) {
        pair_release(stripe, at);
        pair.time &= ~PAIR_HELD;
    }
    return pair;
}

/* Return the same, and hold the key only if other threads swap too often. */
static inline struct pair pair_read(struct machine_stripe *stripe, uint64_t at)
{
    for (int tries = 0; tries < PAIR_TRIES; tries++) {
        const struct pair pair = pair_load(stripe, at);
        if (pair_is(stripe, at, pair))
            return pair;
    }
    return pair_read_held(stripe, at);
}

/* Return the upper bits of a pair that is held and changes, or goes to another key. */
static inline uint64_t pair_next(uint64_t time)
{
    return ((time + PAIR_TURN) & ~PAIR_TIME) | PAIR_HELD;
}

/* Return the pair of a state, or write the first two words of a state from a pair. `anchor_at` is 0 or 1. */
static inline struct pair pair_of(const int64_t *state, size_t anchor_at, uint64_t bits)
{
    return (struct pair){ .other = (uint64_t)state[1 - anchor_at], .time = bits | (uint64_t)state[anchor_at] };
}

static inline void pair_tell(struct pair pair, size_t anchor_at, int64_t *state)
{
    state[1 - anchor_at] = (int64_t)pair.other;
    state[anchor_at] = (int64_t)(pair.time & PAIR_TIME);
}

#endif
