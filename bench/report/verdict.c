/* verdict.c - what the table of the modes says, in three sentences: see verdict.h. */
#include "report/verdict.h"

#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "report/format.h"

#define FIGURE_SIZE 32

double verdict_number(const struct value *value)
{
    static const char median[] = "{\"median\": ";
    const char *text = value->json;
    char *end;
    if (strncmp(text, median, sizeof median - 1) == 0)
        text += sizeof median - 1;
    const double number = strtod(text, &end);
    return end == text ? NAN : number;
}

/* Return the largest repetition, or the number where there is one only. */
static double verdict_largest(const struct value *value)
{
    const char *max = strstr(value->json, "\"max\": ");
    return max ? strtod(max + strlen("\"max\": "), NULL) : verdict_number(value);
}

/* Return the value in the first row below a heading that begins with `heading`; NAN: there is none. */
static double verdict_find(const struct report *report, const char *heading, const char *figure, const char *column,
                           double (*read)(const struct value *))
{
    bool is_below = false;
    int at = 0;
    while (at < report->columns_len && strcmp(report->columns[at], column) != 0)
        at++;
    for (int row = 0; row < report->rows_len && at < report->columns_len; row++) {
        if (report->headings[row][0] != '\0')
            is_below = strstr(report->headings[row], heading) != NULL;
        if (is_below && strncmp(report->rows[row][0].table, figure, strlen(figure)) == 0)
            return read(&report->rows[row][at]);
    }
    return NAN;
}

struct figures { /* of the modes */
    double local, distributed, hybrid;
    char texts[3][FIGURE_SIZE]; /* "not measured" where a figure is missing */
};

static struct figures verdict_figures(const struct report *report, const char *heading, const char *figure,
                                      double (*read)(const struct value *))
{
    struct figures figures = { .local = verdict_find(report, heading, figure, "local", read),
                               .distributed = verdict_find(report, heading, figure, "distributed", read),
                               .hybrid = verdict_find(report, heading, figure, "hybrid", read) };
    const double all[3] = { figures.local, figures.distributed, figures.hybrid };
    for (int i = 0; i < 3; i++)
        if (isnan(all[i]))
            snprintf(figures.texts[i], FIGURE_SIZE, "not measured");
        else
            format_short(figures.texts[i], FIGURE_SIZE, all[i]);
    return figures;
}

static bool is_measured(const struct figures *figures)
{
    return !isnan(figures->local) || !isnan(figures->distributed) || !isnan(figures->hybrid);
}

void verdict_write(const struct report *report, char sentences[VERDICT_SENTENCES][VERDICT_SIZE])
{
    const struct figures speed = verdict_figures(report, "Throughput", "decisions/s, 1 caller", verdict_number);
    const struct figures p99 = verdict_figures(report, "Latency", "10,000 requests/s: p99", verdict_number);
    const struct figures unused = verdict_figures(report, "share windows", "unused, %", verdict_number);
    const struct figures over = verdict_figures(report, "share windows", "largest excess", verdict_largest);
    const struct figures longest = verdict_figures(report, "Redis dies", "away: longest call", verdict_largest);
    const struct figures excess = verdict_figures(report, "Redis dies", "largest excess of a key", verdict_largest);
    for (int i = 0; i < VERDICT_SENTENCES; i++)
        sentences[i][0] = '\0';
    if (is_measured(&speed))
        snprintf(
            sentences[0], VERDICT_SIZE,
            "Cost: one caller makes %s decisions a second in local mode, %s in distributed and %s in hybrid mode; at "
            "10,000 requests a second, the 99th percentile is %s, %s and %s us.",
            speed.texts[0], speed.texts[1], speed.texts[2], p99.texts[0], p99.texts[1], p99.texts[2]);
    if (is_measured(&unused))
        snprintf(
            sentences[1], VERDICT_SIZE,
            "Accuracy: where instances share a limit, the worst traffic leaves %s %% of it unused in local mode, %s %% "
            "in distributed and %s %% in hybrid mode; the largest excess is %s, %s and %s permits.",
            unused.texts[0], unused.texts[1], unused.texts[2], over.texts[0], over.texts[1], over.texts[2]);
    if (is_measured(&longest))
        snprintf(sentences[2], VERDICT_SIZE,
                 "Outage: while Redis is away, the longest call takes %s ms in local mode, %s in distributed and %s in "
                 "hybrid mode; around its return a key exceeds its limit by at most %s, %s and %s permits.",
                 longest.texts[0], longest.texts[1], longest.texts[2], excess.texts[0], excess.texts[1],
                 excess.texts[2]);
}
