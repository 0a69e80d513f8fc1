/* pages.h - zeroed memory straight from the kernel, on huge pages where it has them. */
#ifndef BENCH_PAGES_H
#define BENCH_PAGES_H

#include <stddef.h>

/* `size` bytes, zeroed, aligned to a huge page; ends the program with a message if there are none. */
void *pages_map(size_t size);

/* Keeps what has not been touched of them off huge pages. */
void pages_keep_small(void *pages, size_t size);

/* Gives back what pages_map() gave. NULL is ignored. */
void pages_unmap(void *pages, size_t size);

#endif
