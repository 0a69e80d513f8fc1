/* pages.h - zeroed memory straight from the kernel, on huge pages if it has them. */
#ifndef BENCH_PAGES_H
#define BENCH_PAGES_H

#include <stddef.h>

/* Map `size` zeroed bytes, aligned to a huge page. Fails without memory. */
void *pages_map(size_t size);

/* Unmap it. NULL is ignored. */
void pages_unmap(void *pages, size_t size);

#endif
