/* fetch.h - brings a cache line that will be written. */
#ifndef CORE_GROUND_FETCH_H
#define CORE_GROUND_FETCH_H

/* Begin to fetch the line at an address, and take it away from other processors. For x86-64, compilers make
 * __builtin_prefetch(at, 1) a fetch to read, after which the first store asks the other processors once more. Any
 * address will do, also one that is not mapped. */
static inline void fetch_to_write(const void *at)
{
#if defined(__x86_64__)
    __asm__ volatile("prefetchw %0" : : "m"(*(const char *)at)); /* does nothing on processors without it */
#else
    __builtin_prefetch(at, 1);
#endif
}

#endif
