/* times.h - exact points in time from text.
 *
 * All arithmetic is on integers: microseconds since 1970-01-01T00:00Z, without leap seconds.
 *
 *     1700000000000000                    a whole number: the chosen unit, or that of its size
 *     1700000000.25                       with a point: seconds; or milliseconds, if it is too large for seconds
 *     2023-11-16 18:17:03.9799600         UTC; also with T, without seconds or without a time of day
 *     2023/11/16 18:17:03.979             the same, as Caddy's console and nginx's error log write it
 *     2023-11-16T18:17:03+01:00           Z, +hh:mm, +hhmm or +hh names the zone
 *     01/Jul/1995:00:00:01.25 -0400       as in access logs, with or without [ ], a fraction and a zone; also with
 *                                         a space before the time of day
 *     Tue, 10 Nov 2026 06:00:00 GMT       as in HTTP; also Tue Nov 10 06:00:00 2026, and 10-Nov-2026 06:00:00
 *
 * Digits beyond the microsecond are cut off. A leap second (23:59:60 UTC) is the second after it, as in POSIX.
 */
#ifndef WEIR_CLI_TIMES_H
#define WEIR_CLI_TIMES_H

#include "cli/span.h"

/* TIME_BY_SIZE: the unit in which a whole number lies between 1990 and 2060. In none it is an error. */
enum time_unit { TIME_BY_SIZE, TIME_MICROSECONDS, TIME_MILLISECONDS, TIME_SECONDS, TIME_NANOSECONDS };
#define TIME_UNITS 5

#define TIME_TEXT_SIZE 40 /* room for time_print() and duration_print() */

/* Read a time from 0 to WEIR_MAX_TIME_US. On failure return false, and `wrong` says why: "is ..." or "has ...". */
bool time_read(struct span text, enum time_unit unit, int64_t *out_us, const char **wrong);

/* Read a time by a format of strptime(3). A fraction and a zone may follow what the format describes. */
bool time_read_by(struct span text, const char *format, int64_t *out_us, const char **wrong);

/* Find the unit of a whole number by its size; false if it lies between 1990 and 2060 in none. */
bool time_unit_of_size(int64_t value, enum time_unit *out);

/* True for a time that a log can have: from 1990 on, before 2060. */
bool time_is_plausible(int64_t time_us);

/* True for a time of day without a date, such as 06:00:00.25. */
bool time_is_clock(struct span text);

/* Read us, ms, s or ns. */
bool time_unit_read(struct span text, enum time_unit *out);

/* Return "microseconds" and so on. */
const char *time_unit_name(enum time_unit unit);

/* Read the unit at the end of a column's name, as in sent_ms; false if there is none. */
bool time_unit_of_name(struct span name, enum time_unit *out);

/* Print the second that `time_us` lies in: 1995-07-01T04:00:01Z. */
void time_print(int64_t time_us, char *text);

/* Print 250 us, 1.5 s or 1 h 8 min 53 s: exact below a minute, cut to whole seconds above. */
void duration_print(int64_t duration_us, char *text);

#endif
