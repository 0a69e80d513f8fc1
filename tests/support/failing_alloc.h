/* failing_alloc.h - an allocator that fails on demand and knows which blocks have not been freed.
 *
 * Link with -Wl,--wrap= for malloc, calloc, realloc, aligned_alloc, strdup, strndup, free, mmap and munmap. Then it
 * sees every call from the program's objects and static libraries, but none inside libc. One thread only.
 */
#ifndef WEIR_TESTS_FAILING_ALLOC_H
#define WEIR_TESTS_FAILING_ALLOC_H

#include <stdbool.h>
#include <stdint.h>

/* Start to watch allocations and make the `fail_at`-th fail (counted from 1; 0: none). If `stubborn`, all later ones
 * fail too until alloc_failed() is called. */
void alloc_watch(int64_t fail_at, bool stubborn);

/* Do not count, fail or record allocations until alloc_resume(). */
void alloc_pause(void);
void alloc_resume(void);

/* True if an allocation has failed since the last call. */
bool alloc_failed(void);

/* Return the number of allocations since alloc_watch(). */
int64_t alloc_count(void);

/* Return the blocks and mapped bytes that were allocated since alloc_watch() and are not freed. */
int64_t alloc_live_blocks(void);
int64_t alloc_live_mapped_bytes(void);

#endif
