/* differs.h - which options of weir a section's limiters had other than the defaults. */
#ifndef BENCH_DIFFERS_H
#define BENCH_DIFFERS_H

#include <weir/weir.h>

#include "report/report.h"

/* Remember the options of a limiter of the current section that differ from their defaults, except the server, the
 * mode, the log, and the room for keys. */
void differs_note(const struct weir_options *options);

/* Remember how long leases of a limit in hybrid mode live, which depends on its policy. */
void differs_note_leases(weir_limit *limit);

/* Add them to the report as a note and an array of the JSON, as `name=value`, and forget them. */
void differs_report(struct report *report);

#endif
