/* main.c - weir-bench: what weir's decisions cost, next to floors measured in the same run.
 *
 * Every figure is a median of repetitions with its spread; figures that are compared are measured in turns. Absolute
 * figures do not carry over to other machines or days; ratios nearly do. Unless the options say otherwise, the program
 * measures the modes side by side, in one table.
 */
#include <signal.h>
#include <stdio.h>
#include <unistd.h>

#include "options.h"

static const struct section SECTIONS[] = {
    { .name = "modes", .run = bench_modes, .is_usual = true },
    { .name = "processes", .run = bench_processes },
    { .name = "server", .run = bench_server },
    { .name = "callers", .run = bench_callers },
    { .name = "one-caller", .run = bench_one_caller },
};
#define SECTIONS_LEN ((int)(sizeof SECTIONS / sizeof SECTIONS[0]))

int main(int argc, char **argv)
{
    static struct options options = { .sections = SECTIONS, .sections_len = SECTIONS_LEN };
    struct bench *bench = &options.bench;
    _Static_assert(SECTIONS_LEN <= OPTIONS_MAX_SECTIONS, "one mark each");
    signal(SIGPIPE, SIG_IGN); /* a server that has gone is reported; it does not end the program */
    options_parse(&options, argc, argv);
    if (bench->log) /* a mistake in the log or the URL ends the program before anything is measured */
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
