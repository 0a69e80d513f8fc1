/* arith.h - whole-number arithmetic that names its rounding. Operands are never negative, divisors never 0. */
#ifndef CORE_GROUND_ARITH_H
#define CORE_GROUND_ARITH_H

#include <assert.h>
#include <stdbool.h>
#include <stdint.h>

/* 2^53 - 1: a double represents every whole number up to here, so the Lua twins of these functions are exact too. */
#define EXACT_MAX ((INT64_C(1) << 53) - 1)

/* Say what the compiler cannot know. Builds with assertions check it. */
__attribute__((always_inline)) static inline void assume(bool is_true)
{
    assert(is_true);
    if (!is_true)
        __builtin_unreachable();
}

static inline int64_t min_of(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static inline int64_t max_of(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

/* Most divisors here are 1 (a tick of 1 us, a rate that divides its period), so a branch saves a division. The division
 * is unsigned; with a signed one the compiler sees that both give the same result, and drops the branch. */
static inline int64_t div_down(int64_t x, int64_t divisor)
{
    assert(x >= 0 && divisor > 0);
    return divisor == 1 ? x : (int64_t)((uint64_t)x / (uint64_t)divisor);
}

static inline int64_t div_up(int64_t x, int64_t divisor)
{
    assert(x >= 0 && divisor > 0 && x <= INT64_MAX - (divisor - 1));
    return divisor == 1 ? x : (int64_t)((uint64_t)(x + divisor - 1) / (uint64_t)divisor);
}

__extension__ typedef unsigned __int128 arith_wide;

/* A divisor's reciprocal: 2^(64 + shift) / divisor, rounded down, or 2^64 - 1 for a power of two. The divisor is at
 * least 2^shift and less than twice that. */
struct inverse {
    uint64_t factor;
    uint32_t shift;
};

static inline struct inverse inverse_of(int64_t divisor)
{
    assert(divisor > 0);
    const uint64_t d = (uint64_t)divisor;
    const unsigned shift = 63 - (unsigned)__builtin_clzll(d);
    const bool is_power = (d & (d - 1)) == 0;
    return (struct inverse){ is_power ? UINT64_MAX : (uint64_t)(((arith_wide)1 << (64 + shift)) / d), shift };
}

/* Return div_down(x, divisor) without a division, for the reciprocal of a divisor d. The factor is
 * (2^(64 + shift) - e) / d with 0 < e <= d, so the product is (x + 1) / d, less (x + 1) * e / (d * 2^(64 + shift)).
 * The subtrahend is above 0 and, as x < 2^63 and e < 2^(shift + 1), at most 1 / d. So no whole number comes between
 * the product and x / d. (Robison, "N-bit unsigned division via N-bit multiply-add", 2005.) */
static inline int64_t div_down_by(int64_t x, struct inverse inverse)
{
    assert(x >= 0);
    return (int64_t)((uint64_t)(((arith_wide)((uint64_t)x + 1) * inverse.factor) >> 64) >> inverse.shift);
}

/* Return a * b, or INT64_MAX if that does not fit. */
static inline int64_t mul_capped(int64_t a, int64_t b)
{
    int64_t product;
    return __builtin_mul_overflow(a, b, &product) ? INT64_MAX : product;
}

#endif
