/* failing_alloc.h - an allocator that fails when told to, and knows what has not been given back.
 *
 * Links with -Wl,--wrap= for each of malloc, calloc, realloc, aligned_alloc, strdup, strndup, free, mmap, munmap, so that
 * every call from the program's own objects and static libraries comes by here; those inside libc do not. One thread
 * only.
 */
#ifndef WEIR_TESTS_FAILING_ALLOC_H
#define WEIR_TESTS_FAILING_ALLOC_H

#include <stdbool.h>
#include <stdint.h>

/* From now on allocations are watched, and the `fail_at`-th of them (from 1; 0: none) fails. `stubborn`: so do all
 * that follow it, until alloc_failed() is asked. */
void alloc_watch(int64_t fail_at, bool stubborn);

/* Do not count, fail or record what follows, until alloc_resume(). */
void alloc_pause(void);
void alloc_resume(void);

/* Whether an allocation has failed since this was asked last. */
bool alloc_failed(void);

/* How many allocations were asked for since alloc_watch(). */
int64_t alloc_count(void);

/* Blocks and mapped bytes that were taken since alloc_watch() and are still held. */
int64_t alloc_live_blocks(void);
int64_t alloc_live_mapped_bytes(void);

#endif
