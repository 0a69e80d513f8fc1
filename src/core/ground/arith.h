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

/* Return a divisor's reciprocal for div_down_by(). */
static inline uint64_t inverse_of(int64_t divisor)
{
    assert(divisor > 0);
    return UINT64_MAX / (uint64_t)divisor;
}

__extension__ typedef unsigned __int128 arith_wide;

/* Return div_down(x, divisor) without a division. The reciprocal is short of 2^64 / divisor by at most 1, so the product
 * is short of x / divisor by less than 1, and its whole part by at most 1. (Granlund and Montgomery, "Division by
 * invariant integers using multiplication", 1994.) */
static inline int64_t div_down_by(uint64_t x, int64_t divisor, uint64_t inverse)
{
    assert(divisor > 0 && inverse == inverse_of(divisor));
    const uint64_t guess = (uint64_t)(((arith_wide)x * inverse) >> 64);
    const uint64_t rest = x - guess * (uint64_t)divisor;
    return (int64_t)(guess + (rest >= (uint64_t)divisor));
}

/* Return a * b, or INT64_MAX if that does not fit. */
static inline int64_t mul_capped(int64_t a, int64_t b)
{
    int64_t product;
    return __builtin_mul_overflow(a, b, &product) ? INT64_MAX : product;
}

#endif
