/* machine.c - the facts about the machine and the build without which a result means nothing. */
#include <stdio.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>
#include <weir/weir.h>

#include "bench.h"

#if defined(__clang__)
#define COMPILER "clang " __clang_version__
#elif defined(__GNUC__)
#define COMPILER "gcc " __VERSION__
#else
#define COMPILER "unknown"
#endif

#define FACT_MAX 80

/* Copy the rest of the first line that begins with `start`, without leading spaces and colons, or "unknown". */
static void read_fact(const char *path, const char *start, char *out, size_t out_size)
{
    char line[256];
    FILE *file = fopen(path, "r");
    snprintf(out, out_size, "unknown");
    while (file && fgets(line, sizeof line, file)) {
        if (strncmp(line, start, strlen(start)) != 0)
            continue;
        const char *fact = line + strlen(start);
        fact += strspn(fact, " \t:");
        snprintf(out, out_size, "%.*s", (int)strcspn(fact, "\n"), fact);
        break;
    }
    if (file)
        fclose(file);
}

void bench_machine(struct report *report)
{
    char fact[FACT_MAX];
    struct utsname kernel;
    read_fact("/proc/cpuinfo", "model name", fact, sizeof fact);
    report_machine(report, "cpu", fact);
    snprintf(fact, sizeof fact, "%d of %ld", measure_processors(), sysconf(_SC_NPROCESSORS_ONLN));
    report_machine(report, "processors used", fact);
    read_fact("/sys/devices/system/clocksource/clocksource0/current_clocksource", "", fact, sizeof fact);
    report_machine(report, "clock source", fact);
    if (uname(&kernel) == 0) {
        snprintf(fact, sizeof fact, "%.20s %.40s %.15s", kernel.sysname, kernel.release, kernel.machine);
        report_machine(report, "kernel", fact);
    }
    read_fact("/proc/loadavg", "", fact, sizeof fact);
    fact[strcspn(fact, " ")] = '\0';
    report_machine(report, "load before", fact);
    report_machine(report, "compiler", COMPILER);
    report_machine(report, "flags", WEIR_BENCH_FLAGS);
    report_machine(report, "weir", weir_version());
}
