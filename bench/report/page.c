/* page.c - the results as one HTML file.
 *
 * The table of the modes becomes a chart for each of its headings: a bar stands below each figure, and the bars of one
 * heading and unit compare. Other sections are tables without bars, since their columns differ in unit.
 */
#include "report/page.h"

#include <math.h>
#include <stdarg.h>
#include <string.h>

#include "cli/cli.h"
#include "cli/page/page.h"
#include "measure/say.h"
#include "report/format.h"
#include "report/report.h"
#include "report/verdict.h"

#define MODES_COLUMNS 5 /* with bars: the figure, the three modes and the floor */

/* Print the messages of the weir program's parts that are linked here. */
void complain(const char *format, ...)
{
    char line[600];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(line, sizeof line, format, arguments);
    va_end(arguments);
    bench_say("%s", line);
}

/* What a reader sees below a heading that contains some words. */
static const struct {
    const char *words, *caption;
} CAPTIONS[] = {
    { "Throughput",
      "Longer bars are better. Local and hybrid mode decide in memory; distributed mode waits for Redis. The "
      "floor is the number of PINGs that the same server answers, so it bounds distributed mode with one "
      "caller only: callers that wait together share a round trip." },
    { "Wall time",
      "Shorter bars are better. The floor reads a clock, locks a mutex and looks a key up. Hybrid mode is slow "
      "where keys are many: a key with fewer than two requests in the life of a lease waits for Redis." },
    { "Latency",
      "Shorter bars are better. Requests come at random times whether or not earlier ones have been answered. "
      "The floor does nothing, so it shows what this machine adds by itself." },
    { "What decisions cost",
      "Shorter bars are better. Distributed mode calls Redis for each request, hybrid mode once for "
      "many, local mode never." },
    { "Memory",
      "Shorter bars are better. Hybrid mode keeps a lease beside each key and pays for that in every instance." },
    { "share windows",
      "100 is right; below it, permits stay unused; above it, the limit is exceeded. Local mode loses what "
      "the balancer does not deal to an instance: uneven traffic shows that plainly." },
    { "the same, token bucket",
      "100 is what one limiter admits. Hybrid mode loses a little where leases end unspent." },
    { "clocks",
      "Shorter bars are better for differences. Only local mode uses the clock of its own machine to refill." },
    { "killed",
      "Shorter bars are better for seconds. After a process dies, local mode denies what the dead one could have "
      "admitted until the others notice." },
    { "Redis dies",
      "Shorter bars are better for times. This is where weir looks worst: requests that wait for Redis run "
      "into the timeout, and after Redis returns some instances still admit their own share while others "
      "ask Redis again. The last rows count what that admits above the limit." },
};

bool report_page_open(struct report *report, const char *folder)
{
    if (snprintf(report->page_path, MAX_PATH, "%s/results.html", folder) >= MAX_PATH)
        return false;
    report->page = page_open(report->page_path, "weir: results of the benchmark");
    return report->page;
}

static void write_verdict(const struct report *report)
{
    char sentences[VERDICT_SENTENCES][VERDICT_SIZE];
    verdict_write(report, sentences);
    fputs("<div class=\"verdict\">", report->page);
    for (int i = 0; i < VERDICT_SENTENCES; i++)
        if (sentences[i][0] != '\0')
            page_element(report->page, "p", NULL, "%s", sentences[i]);
    fputs("</div>\n", report->page);
    page_element(report->page, "p", "note", "%s", report->machine);
    page_element(report->page, "p", "note", "%s", report->sentence);
}

/* Write one row: a bar below each number, relative to the largest of the row. */
static void write_bars(const struct report *report, int row)
{
    static const char *const classes[MODES_COLUMNS] = { "", "admitted", "denied", "plain", "floor" };
    double most = 0;
    fputs("<tr>", report->page);
    fputs("<th scope=\"row\" class=\"row\">", report->page);
    page_say(report->page, "%s", report->rows[row][0].table);
    fputs("</th>", report->page);
    for (int i = 1; i < report->columns_len && i < MODES_COLUMNS; i++)
        most = fmax(most, verdict_number(&report->rows[row][i])); /* fmax ignores NAN */
    for (int i = 1; i < report->columns_len; i++) {
        const struct value *value = &report->rows[row][i];
        const double number = verdict_number(value);
        fputs("<td>", report->page);
        page_say(report->page, "%s", *value->table ? value->table : "-");
        if (i < MODES_COLUMNS && !isnan(number))
            page_meter(report->page, number, most, classes[i]);
        fputs("</td>", report->page);
    }
    fputs("</tr>\n", report->page);
}

static void write_texts(const struct report *report, int row)
{
    fputs("<tr>", report->page);
    for (int i = 0; i < report->columns_len; i++)
        page_element(report->page, "td", NULL, "%s", *report->rows[row][i].table ? report->rows[row][i].table : "-");
    fputs("</tr>\n", report->page);
}

static const char *caption_of(const char *heading)
{
    for (size_t i = 0; i < sizeof CAPTIONS / sizeof *CAPTIONS; i++)
        if (strstr(heading, CAPTIONS[i].words))
            return CAPTIONS[i].caption;
    return "";
}

static void start_table(const struct report *report, bool has_bars, const char *caption)
{
    char headings[MAX_COLUMNS * (MAX_TEXT + 1)] = "";
    size_t len = 0;
    for (int i = 0; i < report->columns_len; i++)
        len += (size_t)snprintf(headings + len, sizeof headings - len, "%s%s", i ? "|" : "", report->columns[i]);
    page_table(report->page, has_bars ? "A bar's length is relative to the longest of its row." : caption, headings);
}

void report_page_section(struct report *report)
{
    if (!report->page)
        return;
    const bool has_bars = strcmp(report->section, "modes") == 0;
    bool is_in_table = false;
    if (has_bars)
        write_verdict(report);
    for (int row = 0; row < report->rows_len; row++) {
        const char *heading = report->headings[row];
        if (is_in_table && *heading) {
            page_table_end(report->page);
            page_section_end(report->page);
            is_in_table = false;
        }
        if (!is_in_table) {
            page_section(report->page, *heading ? heading : has_bars ? "What each mode promises" : report->section);
            if (*caption_of(heading))
                page_element(report->page, "p", NULL, "%s", caption_of(heading));
            start_table(report, has_bars, report->sentence);
            is_in_table = true;
        }
        (has_bars ? write_bars : write_texts)(report, row);
    }
    if (is_in_table) {
        page_table_end(report->page);
        page_section_end(report->page);
    }
    for (int i = 0; i < report->notes_len; i++)
        page_element(report->page, "p", has_bars ? NULL : "note", "%s", report->notes[i]);
}

bool report_page_close(struct report *report)
{
    if (!report->page)
        return true;
    return page_close(report->page, report->page_path) == EXIT_OK;
}
