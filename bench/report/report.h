/* report.h - rows of named values, printed as a table for people and as JSON for programs. */
#ifndef BENCH_REPORT_H
#define BENCH_REPORT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "measure/measure.h"

struct report;

/* Open a report. The table goes to stdout and to table.txt in `folder`; the JSON goes to `json_path`, or else to
 * results.json in `folder`. Either may be NULL. NULL, with a line on stderr, if a file cannot be written. */
struct report *report_open(const char *json_path, const char *folder);

/* Add a fact to the machine line. Before the first section. */
void report_machine(struct report *report, const char *name, const char *value);

/* Begin a table: a name for programs, a sentence for people. It is printed when the section ends. */
void report_section(struct report *report, const char *name, const char *sentence);
void report_end_section(struct report *report);

/* Add a row, then its values from left to right. Columns stand in the order of their first use; a row without a value
 * shows "-". Texts and names are copied. */
void report_row(struct report *report);
void report_text(struct report *report, const char *column, const char *text);
void report_count(struct report *report, const char *column, uint64_t count);
void report_number(struct report *report, const char *column, double number);               /* three digits */
void report_sample(struct report *report, const char *column, const struct sample *sample); /* median (min..max) */

void report_figure(struct report *report, const char *column, const struct sample *sample); /* 26.1k +-3% */

/* Put a heading above the following rows; in JSON it is their "part". */
void report_heading(struct report *report, const char *words);

/* Add a sentence below the section's table. */
void report_note(struct report *report, const char *sentence);

/* Print the disturbances, end the JSON, free everything. False, with a line on stderr, if
 * writing failed. */
bool report_close(struct report *report);

#endif
