/* bench.c - what more than one section needs: see bench.h. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bench.h"

void bench_missing(struct bench *bench, const char *name, const char *why)
{
    bench_say("%s: NOT MEASURED: %s", name, why);
    report_section(bench->report, name, "NOT MEASURED");
    report_row(bench->report);
    report_text(bench->report, "not measured", name);
    report_text(bench->report, "why", why);
    report_end_section(bench->report);
}

uint64_t bench_largest_keys(const struct bench *bench, uint64_t normal)
{
    return bench->keys_given ? bench->keys[bench->keys_len - 1] : normal;
}

void bench_in_child(void (*work)(void *shared), void *shared, size_t size)
{
    void *map = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    int status = -1;
    fflush(NULL); /* or the child would write the parent's buffers, too */
    pid_t child = map == MAP_FAILED ? -1 : fork();
    if (child == 0) {
        memcpy(map, shared, size);
        work(map);
        _exit(0);
    }
    while (child > 0 && waitpid(child, &status, 0) < 0 && errno == EINTR)
        continue;
    if (child < 0 || !WIFEXITED(status) || WEXITSTATUS(status) != 0)
        bench_fail("a child process could not be started or failed");
    memcpy(shared, map, size);
    munmap(map, size);
}
