/* huge.c - asks the kernel for huge pages. */
#include "backends/shared/huge.h"

#include <stdint.h>
#include <sys/mman.h>
#include <unistd.h>

static size_t huge_whole(size_t bytes)
{
    return (bytes + HUGE_BYTES - 1) / HUGE_BYTES * HUGE_BYTES;
}

static char *huge_mmap(size_t bytes)
{
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return memory != MAP_FAILED ? memory : NULL;
}

/* Mostly the kernel aligns such a mapping by itself, or puts it next to the one before. Otherwise, map one huge page
 * more, and unmap what lies before and behind. */
void *huge_map(size_t bytes)
{
    const size_t kept = huge_whole(bytes);
    char *low = huge_mmap(kept);
    if (!low || (uintptr_t)low % HUGE_BYTES == 0)
        return low;
    munmap(low, kept);
    low = huge_mmap(kept + HUGE_BYTES);
    if (!low)
        return NULL;
    const size_t before = (HUGE_BYTES - (uintptr_t)low % HUGE_BYTES) % HUGE_BYTES;
    if (before > 0)
        munmap(low, before);
    munmap(low + before + kept, HUGE_BYTES - before);
    return low + before;
}

void huge_unmap(void *memory, size_t bytes)
{
    munmap(memory, huge_whole(bytes));
}

void huge_advise(void *memory)
{
    madvise(memory, HUGE_BYTES, MADV_HUGEPAGE);
}

void huge_refuse(void *memory)
{
    madvise(memory, HUGE_BYTES, MADV_NOHUGEPAGE);
}

void huge_drop(void *memory, size_t bytes)
{
    const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    const uintptr_t from = ((uintptr_t)memory + page - 1) / page * page,
                    end = ((uintptr_t)memory + bytes) / page * page;
    if (from < end)
        madvise((void *)from, end - from, MADV_DONTNEED);
}
