/* report.h - the results as one JSON document; the terminal's tables and the page are printed from it.
 *
 * A section is a table: rows of named values. A section may also have curves, which only the page shows.
 */
#ifndef BENCH_REPORT_H
#define BENCH_REPORT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <weir/weir.h>

#include "measure/measure.h"

struct report;

/* Open a report. results.json, results.html and table.txt go into `folder`, the JSON to `json_path` instead if that is
 * given. Either may be NULL. NULL, with a line on stderr, if a file cannot be written. */
struct report *report_open(const char *json_path, const char *folder);

/* Add a fact about the machine. */
void report_machine(struct report *report, const char *name, const char *value);

/* Begin a section: a name for programs, a sentence for people. */
void report_section(struct report *report, const char *name, const char *sentence);

/* Put a heading above the following rows and curves; in JSON it is their "part". */
void report_heading(struct report *report, const char *words);

/* Add a row, then its values from left to right. Columns stand in the order of their first use; a row without a value
 * shows "-". The terminal leaves out a row of details. */
void report_row(struct report *report);
void report_detail(struct report *report);
void report_text(struct report *report, const char *column, const char *text);
void report_count(struct report *report, const char *column, uint64_t count);
void report_number(struct report *report, const char *column, double number);
void report_sample(struct report *report, const char *column, const struct sample *sample);

/* Add a sentence below the section's table. */
void report_note(struct report *report, const char *sentence);

/* Remember the options of a limiter of the current section of the open report that differ from their defaults, except the
 * server, the mode, the log, and the room for keys; and how long leases of a limit in hybrid mode live, which depends
 * on its policy. The report names them. */
void report_options(const struct weir_options *options);
void report_lease(weir_limit *limit);

/* Begin a curve for each of `names`, up to the NULL, over x. */
struct report_curves {
    const char *title, *x, *y;
    bool is_log_x, is_log_y;
    const char *names[6];
};
void report_curves(struct report *report, const struct report_curves *curves);

/* Add a point of each curve; NAN: none. The x ascend. */
void report_point(struct report *report, double x, const double *values);

/* Mark a range of x, and say what it is. */
void report_range(struct report *report, double from, double to, const char *what);

/* Print the tables, write the files and free everything. False, with a line on stderr, if writing failed. */
bool report_close(struct report *report);

#endif
