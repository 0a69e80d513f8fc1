/* failing_alloc.c - see failing_alloc.h. */
#include "failing_alloc.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/types.h>

/* The linker's names for the wrapped functions and their wrappers. */
void *__real_malloc(size_t size);
void *__real_calloc(size_t count, size_t size);
void *__real_realloc(void *block, size_t size);
void *__real_aligned_alloc(size_t alignment, size_t size);
void __real_free(void *block);
void *__real_mmap(void *address, size_t len, int protection, int flags, int file, off_t offset);
int __real_munmap(void *address, size_t len);

void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t count, size_t size);
void *__wrap_realloc(void *block, size_t size);
void *__wrap_aligned_alloc(size_t alignment, size_t size);
void __wrap_free(void *block);
char *__wrap_strdup(const char *text);
char *__wrap_strndup(const char *text, size_t most);
void *__wrap_mmap64(void *address, size_t len, int protection, int flags, int file, off_t offset);
void *__wrap_mmap(void *address, size_t len, int protection, int flags, int file, off_t offset);
int __wrap_munmap(void *address, size_t len);

static bool watching, stubborn, failed;
static int64_t count, fail_at, mapped_bytes;

/* The held blocks: open addressing, linear probing, backward shift on removal. */
#define SLOTS ((size_t)1 << 16)
static const void *slots[SLOTS];
static int64_t held;

static size_t slot_of(const void *block)
{
    return (size_t)((uint64_t)(uintptr_t)block * UINT64_C(0x9e3779b97f4a7c15) >> 48) % SLOTS;
}

static size_t slot_next(size_t i)
{
    return (i + 1) % SLOTS;
}

static void *hold(void *block)
{
    if (!watching || !block)
        return block;
    if ((size_t)++held >= SLOTS / 2)
        abort(); /* the table is too small for this test */
    size_t i = slot_of(block);
    while (slots[i])
        i = slot_next(i);
    slots[i] = block;
    return block;
}

/* The table does not know libc's blocks and those from before the watch. */
static void let_go(const void *block)
{
    size_t i = slot_of(block);
    while (slots[i] && slots[i] != block)
        i = slot_next(i);
    if (!block || !slots[i])
        return;
    held--;
    slots[i] = NULL;
    for (size_t j = slot_next(i); slots[j]; j = slot_next(j)) {
        const void *moved = slots[j];
        slots[j] = NULL;
        size_t to = slot_of(moved);
        while (slots[to])
            to = slot_next(to);
        slots[to] = moved;
    }
}

static bool is_to_fail(void)
{
    if (!watching)
        return false;
    bool fails = ++count == fail_at || (failed && stubborn);
    failed = failed || fails;
    return fails;
}

void *__wrap_malloc(size_t size)
{
    return is_to_fail() ? NULL : hold(__real_malloc(size));
}

void *__wrap_calloc(size_t n, size_t size)
{
    return is_to_fail() ? NULL : hold(__real_calloc(n, size));
}

void *__wrap_aligned_alloc(size_t alignment, size_t size)
{
    return is_to_fail() ? NULL : hold(__real_aligned_alloc(alignment, size));
}

void *__wrap_realloc(void *block, size_t size)
{
    if (is_to_fail())
        return NULL;
    let_go(block); /* uses the address only as a number */
    return hold(__real_realloc(block, size));
}

char *__wrap_strndup(const char *text, size_t most)
{
    const size_t len = strnlen(text, most);
    char *copy = __wrap_malloc(len + 1);
    if (copy) {
        memcpy(copy, text, len);
        copy[len] = '\0';
    }
    return copy;
}

char *__wrap_strdup(const char *text)
{
    return __wrap_strndup(text, SIZE_MAX);
}

void __wrap_free(void *block)
{
    let_go(block);
    __real_free(block);
}

void *__wrap_mmap(void *address, size_t len, int protection, int flags, int file, off_t offset)
{
    if (is_to_fail())
        return MAP_FAILED;
    void *mapped = __real_mmap(address, len, protection, flags, file, offset);
    if (watching && mapped != MAP_FAILED)
        mapped_bytes += (int64_t)len;
    return mapped;
}

/* The name of mmap() in code built with wide file offsets, such as hiredis. */
void *__wrap_mmap64(void *address, size_t len, int protection, int flags, int file, off_t offset)
{
    return __wrap_mmap(address, len, protection, flags, file, offset);
}

int __wrap_munmap(void *address, size_t len)
{
    if (watching)
        mapped_bytes -= (int64_t)len;
    return __real_munmap(address, len);
}

void alloc_watch(int64_t fail_at_number, bool fail_stubbornly)
{
    memset(slots, 0, sizeof slots);
    held = count = mapped_bytes = 0;
    failed = false;
    fail_at = fail_at_number;
    stubborn = fail_stubbornly;
    watching = true;
}

void alloc_pause(void)
{
    watching = false;
}

void alloc_resume(void)
{
    watching = true;
}

bool alloc_failed(void)
{
    bool answer = failed;
    failed = false;
    return answer;
}

int64_t alloc_count(void)
{
    return count;
}

int64_t alloc_live_blocks(void)
{
    return held;
}

int64_t alloc_live_mapped_bytes(void)
{
    return mapped_bytes;
}
