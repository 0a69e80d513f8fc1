/* lines.h - an input line by line, of any length.
 *
 * A line ends with LF or CR LF; the last one may lack it. A byte order mark at the start is skipped. A CSV record may
 * take several lines: lines_extend() adds the next line to the current one, and lines_retract() undoes that. To look
 * ahead, mark a line, read on and rewind. Spans stay valid until the next call.
 */
#ifndef WEIR_CLI_LINES_H
#define WEIR_CLI_LINES_H

#include "cli/replay/input/bytes.h"
#include "cli/span.h"

#define LINES_MAX_LEN ((size_t)1 << 30) /* a longer line is an error: such input has no lines */

struct lines {
    struct bytes *bytes; /* owned by the caller */
    const char *name;
    char *buffer;
    size_t size, filled;
    size_t line, next,
        first_next;              /* starts of the current line, of the next one, and of the next one before extending */
    int64_t number, last_number; /* of the first and the last line of the current text, from 1 */
    bool ended, is_marked;
    size_t mark; /* start of the marked line; the buffer keeps everything from there on */
    int64_t mark_number;
};

void lines_start(struct lines *lines, struct bytes *bytes, const char *name);
void lines_free(struct lines *lines);

/* Return 1 with a line, 0 at the end, -1 after a complaint. */
int lines_next(struct lines *lines, struct span *out);

/* Extend the current line by a line feed and the next line. Returns like lines_next(). */
int lines_extend(struct lines *lines, struct span *out);

/* Undo extending: the next line is the one after the first. */
void lines_retract(struct lines *lines);

/* Mark the current line. Everything from it on stays in memory until lines_rewind(). */
void lines_mark(struct lines *lines);

/* Make the marked line the next one, and remove the mark. */
void lines_rewind(struct lines *lines);

#endif
