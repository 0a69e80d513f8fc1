/* lines.h - an input line by line, whatever the lines' length.
 *
 * A line ends with LF or CR LF, the last one also without. A byte order mark at the start is skipped. A CSV record may
 * take several lines: lines_extend() adds the next line to the one at hand, and lines_retract() undoes that. Spans stay
 * valid until the next call.
 */
#ifndef WEIR_CLI_LINES_H
#define WEIR_CLI_LINES_H

#include "cli/replay/input/bytes.h"
#include "cli/span.h"

#define LINES_MAX_LEN ((size_t)1 << 30) /* a longer line is an error: the input has no lines */

struct lines {
    struct bytes *bytes; /* the caller's */
    const char *name;
    char *buffer;
    size_t size, filled;
    size_t line, next, first_next; /* where the line at hand begins, where the next one does, before extending too */
    int64_t number, last_number;   /* of the first and the last line of what is at hand, from 1 */
    bool ended;
};

void lines_start(struct lines *lines, struct bytes *bytes, const char *name);
void lines_free(struct lines *lines);

/* 1 with a line, 0 at the end, -1 after a complaint. */
int lines_next(struct lines *lines, struct span *out);

/* The line at hand, a line feed, and the line after it. As lines_next(). */
int lines_extend(struct lines *lines, struct span *out);

/* Back to the first line: the next one is the one after it. */
void lines_retract(struct lines *lines);

/* The next line is the one at hand, once more. */
void lines_repeat(struct lines *lines);

#endif
