/* times.h - exact points in time from text.
 *
 * All arithmetic is on integers: microseconds since 1970-01-01T00:00Z, without leap seconds.
 *
 *     1700000000000000                    a whole number: microseconds, or the chosen unit
 *     1700000000.25                       with a point: seconds, whatever the unit
 *     2023-11-16 18:17:03.9799600         UTC; also with T, without seconds or without a time of day
 *     2023/11/16 18:17:03.979             the same, as Caddy's console and nginx's error log write it
 *     2023-11-16T18:17:03+01:00           Z, +hh:mm, +hhmm or +hh names the zone
 *     01/Jul/1995:00:00:01.25 -0400       as in access logs, with or without [ ], a fraction and a zone
 *
 * Digits beyond the microsecond are cut off. A leap second (23:59:60 UTC) is the second after it, as in POSIX.
 */
#ifndef WEIR_CLI_TIMES_H
#define WEIR_CLI_TIMES_H

#include "cli/span.h"

enum time_unit { TIME_MICROSECONDS, TIME_MILLISECONDS, TIME_SECONDS, TIME_NANOSECONDS };

#define TIME_TEXT_SIZE 40 /* room for time_print() and duration_print() */

/* Read a time from 0 to WEIR_MAX_TIME_US. On failure return false, and `wrong` says why: "is ..." or "has ...". */
bool time_read(struct span text, enum time_unit unit, int64_t *out_us, const char **wrong);

/* Read us, ms, s or ns. */
bool time_unit_read(struct span text, enum time_unit *out);

/* Read the unit at the end of a column's name, as in sent_ms; false if there is none. */
bool time_unit_of_name(struct span name, enum time_unit *out);

/* Print the second that `time_us` lies in: 1995-07-01T04:00:01Z. */
void time_print(int64_t time_us, char *text);

/* Print 250 us, 1.5 s or 1 h 8 min 53 s: exact below a minute, cut to whole seconds above. */
void duration_print(int64_t duration_us, char *text);

#endif
