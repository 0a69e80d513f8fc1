/* linear.h - numbers of parts that come into use one by one: of a shard's groups of cells, and of its buckets.
 *
 * A new part takes what belongs there from one existing part. Part n is divided from part n without its highest bit,
 * and the next bit of a hash says to which of the two it leads (Litwin, "Linear hashing", 1980). With 4 + 3 parts,
 * parts 0 to 2 have been divided; the keys of part 3 will be those of 3 and 7.
 */
#ifndef BACKENDS_MEMORY_LINEAR_H
#define BACKENDS_MEMORY_LINEAR_H

#include <stdint.h>

static inline uint32_t linear_top(uint32_t count)
{
    return 1u << (31 ^ (unsigned)__builtin_clz(count)); /* the highest bit */
}

/* Return the number of a hash's part, of `count` in use, which is not 0. */
static inline uint32_t linear_number(uint32_t hash, uint32_t count)
{
    const uint32_t bits = UINT32_MAX >> __builtin_clz(count), number = hash & bits;
    return number < count ? number : number & bits >> 1;
}

/* Return in how many parts of equal size all hashes would be if each part were as this one: a power of two. */
static inline uint64_t linear_parts(uint32_t number, uint32_t count)
{
    const uint64_t top = linear_top(count);
    return number >= top || number + top < count ? 2 * top : top;
}

/* Return the number of the part that this one, which is not 0, is divided from. */
static inline uint32_t linear_origin(uint32_t number)
{
    return number ^ linear_top(number);
}

#endif
