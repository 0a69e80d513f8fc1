/* report.h - rows of named values, printed as a table for people and as JSON for programs. */
#ifndef BENCH_REPORT_H
#define BENCH_REPORT_H

#include <stdbool.h>
#include <stdint.h>

#include "measure/measure.h"

struct report;

/* The table goes to stdout and to table.txt in `folder`, the JSON to `json_path`, or else to results.json in `folder`.
 * Either may be NULL. NULL, with a line on stderr, if a file cannot be written. */
struct report *report_open(const char *json_path, const char *folder);

/* One fact of the machine line. Before the first section. */
void report_machine(struct report *report, const char *name, const char *value);

/* A table: a name for programs, a sentence for people. The table is printed when the section ends. */
void report_section(struct report *report, const char *name, const char *sentence);
void report_end_section(struct report *report);

/* A row, then its values from left to right. A column is known by its name, and stands where it was first seen; a row
 * without a value for it shows "-". Texts and names are copied. */
void report_row(struct report *report);
void report_text(struct report *report, const char *column, const char *text);
void report_count(struct report *report, const char *column, uint64_t count);
void report_number(struct report *report, const char *column, double number);               /* three digits */
void report_sample(struct report *report, const char *column, const struct sample *sample); /* median (min..max) */

void report_figure(struct report *report, const char *column, const struct sample *sample); /* 26.1k +-3% */

/* What follows in this section belongs together under these words: a line of the table, the rows' "part" in JSON. */
void report_heading(struct report *report, const char *words);

/* A sentence below the section's table. */
void report_note(struct report *report, const char *sentence);

/* Holds the median of a sample against a goal: a value of the row, and a line of the summary under `what`. A row has
 * room for two. */
enum bound { AT_MOST, AT_LEAST };
void report_goal(struct report *report, const char *what, const struct sample *sample, enum bound bound, double goal);

/* The same without a value of the row, for a table whose columns are other things. */
void report_goal_apart(struct report *report, const char *what, const struct sample *sample, enum bound bound,
                       double goal);

/* Prints the summary of goals and what disturbed the measurements, ends the JSON, frees all. False, with a line on
 * stderr, if writing failed. */
bool report_close(struct report *report);

#endif
