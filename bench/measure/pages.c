/* pages.c - zeroed memory straight from the kernel, on huge pages if it has them.
 *
 * A mapping is made one huge page longer than requested. Its ends are cut off, so that the rest starts on a huge page's
 * boundary. The kernel decides whether it uses huge pages; the report's machine line shows its setting.
 */
#include "measure/pages.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "measure/say.h"

#define HUGE_PAGE ((size_t)2 << 20)

static size_t whole_pages(size_t size)
{
    return (size + HUGE_PAGE - 1) / HUGE_PAGE * HUGE_PAGE;
}

void *pages_map(size_t size)
{
    size_t kept = whole_pages(size);
    char *map = mmap(NULL, kept + HUGE_PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (map == MAP_FAILED)
        bench_fail("no memory for %zu MiB of the benchmark's own", kept >> 20);
    size_t before = (HUGE_PAGE - (uintptr_t)map % HUGE_PAGE) % HUGE_PAGE;
    if (before > 0)
        munmap(map, before);
    munmap(map + before + kept, HUGE_PAGE - before);
    madvise(map + before, kept, MADV_HUGEPAGE); /* a refusal only makes the benchmark slower */
    return map + before;
}

void pages_unmap(void *pages, size_t size)
{
    if (pages)
        munmap(pages, whole_pages(size));
}
