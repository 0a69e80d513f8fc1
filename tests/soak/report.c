/* report.c - the report of a soak run: see run.h. */
#include "run.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>

#define TOO_LATE_MOST 0.0001                /* of admitted calls */
#define DENIED_WITHIN_US (30 * WEIR_SECOND) /* a slow machine's demand is below the limits at first */

struct sums {
    int64_t allowed, denied, errors, others, calm_errors, wrong_errors, fallbacks, late_leases, limiters, unlike, keys,
        bytes;
};

static struct sums sums_of(const struct run *run, int mode)
{
    struct sums sums = { 0 };
    for (int process = 0; process < PROCESSES; process++) {
        const struct tally *tally = &run->place.ledger->accounts[process].tallies[mode];
        sums.allowed += tally->allowed;
        sums.denied += tally->denied;
        sums.errors += tally->errors;
        sums.others += tally->others;
        sums.calm_errors += tally->calm_errors;
        sums.wrong_errors += tally->wrong_errors;
        sums.fallbacks += tally->fallbacks;
        sums.late_leases += tally->late_leases;
        sums.limiters += tally->limiters;
        sums.unlike += tally->unlike;
        sums.keys += tally->keys;
        sums.bytes += tally->bytes;
    }
    return sums;
}

bool is_run(const struct run *run, int mode)
{
    return run->with_cluster || soak_modes[mode].place != PLACE_CLUSTER;
}

static double worst_of(const struct run *run, int mode, int *limit)
{
    *limit = 0;
    for (int i = 1; i < LIMITS; i++)
        if (judge_worst(run->place.judge, mode, i) > judge_worst(run->place.judge, mode, *limit))
            *limit = i;
    return judge_worst(run->place.judge, mode, *limit);
}

void report_line(const struct run *run)
{
    int64_t allowed = 0, denied = 0, errors = 0, fallbacks = 0, faults = 0;
    double worst = -1e9, memory = 0;
    for (int mode = 0; mode < MODES; mode++) {
        const struct sums sums = sums_of(run, mode);
        int limit;
        const double over = worst_of(run, mode, &limit);
        worst = over > worst ? over : worst;
        allowed += sums.allowed;
        denied += sums.denied;
        errors += sums.errors + sums.others;
        fallbacks += sums.fallbacks;
    }
    for (int fault = 0; fault < faults_count(); fault++)
        faults += run->faults.counts[fault];
    for (int process = 0; process < PROCESSES; process++)
        memory += run->flats[process].n > 0
                      ? run->flats[process].looks[run->flats[process].n - 1].values[FLAT_MEMORY] / 1024
                      : 0;
    printf("%5" PRId64 " s: %" PRId64 " admitted, %" PRId64 " denied, %" PRId64 " errors, %" PRId64
           " fallbacks, %" PRId64 " faults, over the bound by %.2f, %.1f MiB\n",
           (now_us() - run->start_us) / WEIR_SECOND, allowed, denied, errors, fallbacks, faults, worst, memory);
    fflush(stdout);
}

/* ---- The tables ---- */

static void print_modes(const struct run *run)
{
    printf("\n%-25s %10s %10s %10s %8s %7s %9s %7s %8s %7s %6s\n", "mode", "decisions", "admitted", "denied", "errors",
           "calm", "fallbacks", "over", "limiters", "keys", "KiB");
    for (int mode = 0; mode < MODES; mode++) {
        const struct sums sums = sums_of(run, mode);
        int limit;
        if (is_run(run, mode))
            printf("%-25s %10" PRId64 " %10" PRId64 " %10" PRId64 " %8" PRId64 " %7" PRId64 " %9" PRId64
                   " %7.2f %8" PRId64 " %7" PRId64 " %6" PRId64 "\n",
                   soak_modes[mode].name, sums.allowed + sums.denied + sums.errors, sums.allowed, sums.denied,
                   sums.errors + sums.others, sums.calm_errors, sums.fallbacks, worst_of(run, mode, &limit),
                   sums.limiters, sums.keys, sums.bytes / 1024);
    }
    puts(
        "errors: that the options allow, of decisions, peeks, refunds and resets; calm: of those, when nothing had been\n"
        "done to anybody for 3 s: what a machine that is busy with other work brings.\n"
        "over: permits beyond what the mode, and what was done to it, allow, of the worst key in any stretch of time;\n"
        "below 0: so much less. limiters: closed in order, and their stats found to be what callers saw.\n"
        "keys, KiB: held at the last look, by weir_stats.");
}

static void print_flats(const struct run *run)
{
    printf("\n%-12s %9s %9s %9s %9s %7s %7s %8s %8s %6s\n", "process", "MiB first", "last", "KiB heap", "last", "fds",
           "last", "threads", "last", "looks");
    for (int i = 0; i < FLATS; i++) {
        const struct flat *flat = &run->flats[i];
        double first[FLAT_KINDS], last[FLAT_KINDS];
        for (int kind = 0; kind < FLAT_KINDS; kind++)
            flat_means(flat, (enum flat_kind)kind, &first[kind], &last[kind]);
        printf("%-12s %9.2f %9.2f %9.0f %9.0f %7.1f %7.1f %8.1f %8.1f %6zu\n", flat->name, first[FLAT_MEMORY] / 1024,
               last[FLAT_MEMORY] / 1024, first[FLAT_HEAP], last[FLAT_HEAP], first[FLAT_DESCRIPTORS],
               last[FLAT_DESCRIPTORS], first[FLAT_THREADS], last[FLAT_THREADS], flat->n);
    }
    puts("first, last: the means of the first and of the last third of all looks");
}

static void print_faults(const struct run *run)
{
    printf("\n%5s  %s\n", "times", "fault");
    for (int fault = 0; fault < faults_count(); fault++)
        if (run->faults.counts[fault] > 0)
            printf("%5" PRId64 "  %s\n", run->faults.counts[fault], fault_name(fault));
}

/* ---- What was found ---- */

static int found;

__attribute__((format(printf, 1, 2))) static void say_failed(const char *format, ...)
{
    va_list list;
    va_start(list, format);
    fputs("FAILED: ", stdout);
    vprintf(format, list);
    putchar('\n');
    va_end(list);
    found++;
}

static void judge_mode(const struct run *run, int mode)
{
    const struct sums sums = sums_of(run, mode);
    const char *name = soak_modes[mode].name;
    for (int limit = 0; limit < LIMITS; limit++)
        if (judge_worst(run->place.judge, mode, limit) > 0)
            say_failed("%s: more was admitted than is promised: %s", name,
                       judge_worst_key(run->place.judge, mode, limit));
    if (sums.wrong_errors > 0)
        say_failed("%s: %" PRId64 " errors that the options do not allow", name, sums.wrong_errors);
    if (sums.late_leases > 0)
        say_failed("%s: %" PRId64 " leases used after their life", name, sums.late_leases);
    if (sums.allowed == 0 || (sums.denied == 0 && now_us() - run->start_us > DENIED_WITHIN_US))
        say_failed("%s: nothing was admitted, or nothing denied", name);
    if (sums.unlike > 0)
        say_failed("%s: weir_stats were %" PRId64 " times not what callers saw", name, sums.unlike);
    if (sums.limiters == 0)
        say_failed("%s: no stats were ever compared", name);
}

static void judge_flats(const struct run *run)
{
    static const char *const kinds[FLAT_KINDS] = { "KiB of memory", "KiB of heap", "descriptors", "threads" };
    for (int i = 0; i < FLATS; i++)
        for (int kind = 0; kind < FLAT_KINDS; kind++) {
            double first, last;
            if (flat_holds(&run->flats[i], (enum flat_kind)kind))
                continue;
            flat_means(&run->flats[i], (enum flat_kind)kind, &first, &last);
            say_failed("%s: %s grow, from %.1f to %.1f", run->flats[i].name, kinds[kind], first, last);
        }
}

bool report(const struct run *run)
{
    int64_t allowed = 0;
    print_modes(run);
    print_flats(run);
    print_faults(run);
    printf("\n%.0f s, %" PRId64 " keys, seed %" PRIu64 "\n", (double)(run->end_us - run->start_us) / 1e6,
           judge_keys(run->place.judge), run->seed);
    found = 0;
    for (int mode = 0; mode < MODES; mode++) {
        allowed += sums_of(run, mode).allowed;
        if (is_run(run, mode))
            judge_mode(run, mode);
    }
    judge_flats(run);
    if ((double)judge_too_late(run->place.judge) > TOO_LATE_MOST * (double)allowed)
        say_failed("%" PRId64 " admits came too late to be judged", judge_too_late(run->place.judge));
    for (int process = 0; process < PROCESSES; process++) {
        const struct account *account = &run->place.ledger->accounts[process];
        if (account->complaints > 0)
            say_failed("process %d, %d complaints, the first: %s", process, account->complaints, account->complaint);
    }
    for (int i = 0; i < run->mishaps && i < MISHAPS_MOST; i++)
        say_failed("%s", run->mishap[i]);
    if (run->mishaps > MISHAPS_MOST)
        say_failed("and %d more of that sort", run->mishaps - MISHAPS_MOST);
    puts(found == 0 ? "all as promised" : "not as promised");
    fflush(stdout);
    return found == 0;
}
