/* main.c - weir-bench: what weir's decisions cost, beside the floors and the yardstick of the same run.
 *
 * Every figure is a median of repetitions with its spread, and what is compared is measured in turns. Absolute figures
 * do not carry to other machines or days; ratios nearly do. Memory and growth are measured first, in forked children,
 * while the heap is still untouched. Unless asked for more it measures the modes side by side, in one table.
 */
#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "measure/timer.h"
#include "options.h"

static const struct section SECTIONS[] = {
    { .name = "memory", .run = bench_memory }, /* this and growth in forked children, while the heap is untouched */
    { .name = "growth", .run = bench_growth },
    { .name = "goals", .run = bench_goals },
    { .name = "floors", .run = bench_floors },
    { .name = "decisions", .run = bench_decisions },
    { .name = "denials", .run = bench_denials },
    { .name = "latency", .run = bench_latency },
    { .name = "batch", .run = bench_batch },
    { .name = "handles", .run = bench_handles },
    { .name = "modes", .run = bench_modes, .is_usual = true },
    { .name = "server", .run = bench_server },
    { .name = "callers", .run = bench_callers },
    { .name = "round-trip", .run = bench_round_trip },
    { .name = "leases", .run = bench_leases },
    { .name = "outage", .run = bench_outage },
    { .name = "cluster", .run = bench_cluster },
    { .name = "replicas", .run = bench_replicas },
    { .name = "tls", .run = bench_tls },
    { .name = "peers", .run = bench_peers },
};
#define SECTIONS_LEN ((int)(sizeof SECTIONS / sizeof SECTIONS[0]))

/* ---- What the sections share ---- */

void bench_progress(const char *format, ...)
{
    static int64_t start_ns;
    char line[120];
    va_list arguments;
    int64_t now_ns = clock_ns(CLOCK_MONOTONIC);
    start_ns = start_ns ? start_ns : now_ns;
    va_start(arguments, format);
    vsnprintf(line, sizeof line, format, arguments);
    va_end(arguments);
    fprintf(stderr, isatty(STDERR_FILENO) ? "\r%4.0f s  %-70s" : "%4.0f s  %s\n", (double)(now_ns - start_ns) / 1e9,
            line);
}

void bench_missing(struct bench *bench, const char *name, const char *why)
{
    fprintf(stderr, "%sweir-bench: %s: NOT MEASURED: %s\n", isatty(STDERR_FILENO) ? "\n" : "", name, why);
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

void *bench_allocate(size_t n, size_t size)
{
    void *memory = calloc(n, size);
    if (!memory) {
        fprintf(stderr, "weir-bench: no memory for %zu times %zu bytes\n", n, size);
        exit(2);
    }
    return memory;
}

void bench_in_child(void (*work)(void *shared), void *shared, size_t size)
{
    void *map = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    int status = -1;
    fflush(NULL); /* or the child would write what the parent has buffered */
    pid_t child = map == MAP_FAILED ? -1 : fork();
    if (child == 0) {
        memcpy(map, shared, size);
        work(map);
        _exit(0);
    }
    while (child > 0 && waitpid(child, &status, 0) < 0 && errno == EINTR)
        continue;
    if (child < 0 || !WIFEXITED(status) || WEXITSTATUS(status) != 0) {
        fputs("weir-bench: a child process could not be started or failed\n", stderr);
        exit(2);
    }
    memcpy(shared, map, size);
    munmap(map, size);
}

int main(int argc, char **argv)
{
    static struct options options = { .sections = SECTIONS, .sections_len = SECTIONS_LEN };
    struct bench *bench = &options.bench;
    _Static_assert(SECTIONS_LEN <= OPTIONS_MAX_SECTIONS, "one mark each");
    signal(SIGPIPE, SIG_IGN); /* a server that has gone is a sentence, not an end without one */
    options_parse(&options, argc, argv);
    if (bench->log)
        bench_read_log(bench);
    if (bench->redis_url)
        bench_reach_redis(bench);
    bench->report = report_open(options.json, bench->results);
    if (!bench->report)
        return 2;
    measure_start();
    measure_pin_main();
    bench_machine(bench->report);
    for (int i = 0; i < SECTIONS_LEN; i++)
        if (options.is_chosen[i])
            SECTIONS[i].run(bench);
    bench_progress("done");
    if (isatty(STDERR_FILENO))
        fputc('\n', stderr);
    return report_close(bench->report) ? 0 : 2;
}
