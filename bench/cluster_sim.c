/* cluster_sim.c - hybrid mode with up to a thousand simulated instances: see cluster_sim.h.
 *
 * The simulator gives the library its own clocks and random numbers, which takes a separate program: weir-bench-sim,
 * beside this one. It prints a row for each number of instances and each demand.
 */
#include "cluster_sim.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "measure/say.h"

#define MAX_STEPS 16
#define DEMANDS 3
#define PATH_SIZE 4096

struct outcome {
    long long instances, demand_percent, asked, admitted, ideal, calls_a_second;
};

struct outcomes { /* by number of instances, then by demand */
    struct outcome all[MAX_STEPS * DEMANDS];
    int n;
};

/* Start the simulator; NULL: it cannot be. */
static FILE *simulator_start(int most)
{
    char path[PATH_SIZE], command[PATH_SIZE + 64];
    const ssize_t len = readlink("/proc/self/exe", path, sizeof path - 16);
    char *name = NULL;
    if (len > 0) {
        path[len] = '\0';
        name = strrchr(path, '/');
    }
    if (!name || strchr(path, '\''))
        return NULL;
    snprintf(name, 16, "/weir-bench-sim");
    snprintf(command, sizeof command, "exec '%s' --scale %d", path, most);
    return access(path, X_OK) == 0 ? popen(command, "r") : NULL;
}

/* Read a row of numbers; false for the line of names, or the end. */
static bool outcome_read(const char *line, struct outcome *out)
{
    return sscanf(line, "%lld\t%lld\t%lld\t%lld\t%lld\t%lld", &out->instances, &out->demand_percent, &out->asked,
                  &out->admitted, &out->ideal, &out->calls_a_second) == 6;
}

/* Return how many permits too few were admitted. */
static long long wrongly_denied(const struct outcome *outcome)
{
    return outcome->ideal > outcome->admitted ? outcome->ideal - outcome->admitted : 0;
}

static double percent(long long part, long long whole)
{
    return whole > 0 ? 100.0 * (double)part / (double)whole : 0;
}

static void outcome_report(struct report *report, const struct outcome *outcome)
{
    report_row(report);
    report_count(report, "instances", (uint64_t)outcome->instances);
    report_count(report, "demand, % of the limit", (uint64_t)outcome->demand_percent);
    report_number(report, "admitted, % of one limit's", percent(outcome->admitted, outcome->ideal));
    report_number(report, "wrongly denied, % of the requests", percent(wrongly_denied(outcome), outcome->asked));
    report_number(report, "Redis calls a second", (double)outcome->calls_a_second);
    report_number(report, "distributed mode's", (double)outcome->asked / 10);
}

/* Draw what `look` says of each outcome, a curve for each demand. */
static void draw(struct report *report, const struct outcomes *outcomes, const char *heading, const char *caption,
                 double (*look)(const struct outcome *outcome))
{
    static const char *const names[DEMANDS] = { "demand half the limit", "equal to it", "twice the limit" };
    double x[MAX_STEPS], y[DEMANDS][MAX_STEPS];
    const int steps = outcomes->n / DEMANDS;
    for (int i = 0; i < steps; i++)
        for (int d = 0; d < DEMANDS; d++) {
            x[i] = (double)outcomes->all[DEMANDS * i].instances;
            y[d][i] = look(&outcomes->all[DEMANDS * i + d]);
        }
    report_curves(report, heading, caption,
                  &(struct report_curves){ .names = { names[0], names[1], names[2] },
                                           .x = x,
                                           .y = { y[0], y[1], y[2] },
                                           .count = (size_t)steps,
                                           .x_unit = "instances" });
}

static double look_admitted(const struct outcome *outcome)
{
    return percent(outcome->admitted, outcome->ideal);
}

static double look_denied(const struct outcome *outcome)
{
    return percent(wrongly_denied(outcome), outcome->asked);
}

static double look_calls(const struct outcome *outcome)
{
    return (double)outcome->calls_a_second;
}

/* Say what the largest number of instances does at twice the limit. */
static void verdict(struct report *report, const struct outcomes *outcomes)
{
    char text[400];
    if (outcomes->n == 0)
        return;
    const struct outcome *last = &outcomes->all[outcomes->n - 1];
    snprintf(
        text, sizeof text,
        "With %lld instances and a demand of %lld %% of the limit, hybrid mode admits %.1f %% of what one limit for all "
        "would. It denies %.2f %% of the requests wrongly, and makes %lld calls to Redis a second where distributed mode "
        "makes %lld.",
        last->instances, last->demand_percent, look_admitted(last), look_denied(last), last->calls_a_second,
        last->asked / 10);
    report_page_verdict(report, text);
}

bool cluster_sim(int most, struct report *report)
{
    struct outcomes outcomes = { .n = 0 };
    char line[400];
    FILE *rows = simulator_start(most);
    if (!rows) {
        bench_say("--cluster-sim: cannot start weir-bench-sim, which the build puts beside this program");
        return false;
    }
    while (fgets(line, sizeof line, rows))
        if (outcomes.n < MAX_STEPS * DEMANDS && outcome_read(line, &outcomes.all[outcomes.n])) {
            bench_progress("cluster-sim: %lld instances, demand %lld %%", outcomes.all[outcomes.n].instances,
                           outcomes.all[outcomes.n].demand_percent);
            outcomes.n++;
        } else if (strstr(line, "VIOLATION"))
            bench_say("%s", line);
    const int status = pclose(rows);
    const bool good = WIFEXITED(status) && WEXITSTATUS(status) == 0 && outcomes.n > 0;
    if (!good)
        bench_say("--cluster-sim: weir-bench-sim failed or a promise was broken, status %d", status);
    report_section(
        report, "cluster-sim",
        "hybrid mode simulated with the library's code and virtual time, 10 s a row, default options: one key, "
        "1000 a second, burst 1000, requests at random times dealt to instances at random, 0.3 to 0.8 ms to "
        "Redis and back. Wrongly denied: so many more would have been admitted by one limit for all");
    for (int i = 0; i < outcomes.n; i++)
        outcome_report(report, &outcomes.all[i]);
    verdict(report, &outcomes);
    draw(report, &outcomes, "What is admitted",
         "100 is what one limit for all would admit. Permits that lie in leases of instances that do not need them are "
         "missing.",
         look_admitted);
    draw(report, &outcomes, "What is denied wrongly",
         "Lower is better. In percent of the requests: so many more would have been admitted by one limit for all.",
         look_denied);
    draw(report, &outcomes, "Calls to Redis a second",
         "Lower is better. Distributed mode makes a call for each request: 500, 1,000 and 2,000 a second. The more "
         "instances share the load, the fewer requests a lease serves.",
         look_calls);
    report_end_section(report);
    return good;
}
