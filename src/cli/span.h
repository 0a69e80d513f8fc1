/* span.h - a range of bytes that the span does not own.
 *
 * Lines, fields and keys are spans: they may contain any byte, including NUL, and need not end with one.
 */
#ifndef WEIR_CLI_SPAN_H
#define WEIR_CLI_SPAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct span {
    const char *data;
    size_t len;
};

/* Why a row cannot be read: a sentence without a full stop, safe to show on a terminal. */
struct fault {
    char text[240];
};

struct span span_of(const char *text);

/* Strip the spaces and tabs at both ends. */
struct span span_trim(struct span span);

bool span_is(struct span span, const char *text);

/* Compare like span_is(), but ignore the case of A to Z. */
bool span_is_like(struct span span, const char *text);

/* Return where `byte` occurs first or last; span.len if it does not occur. */
size_t span_find(struct span span, char byte);
size_t span_find_last(struct span span, char byte);

/* Return the bytes from `from` up to `to`. */
static inline struct span span_slice(struct span span, size_t from, size_t to)
{
    struct span slice = { span.data + from, to - from };
    return slice;
}

/* Read digits only, at most INT64_MAX. */
bool span_number(struct span span, int64_t *out);

/* Return the length of the UTF-8 character at the start of `span` in bytes; 0 if there is none. */
size_t span_character(struct span span);

bool span_is_utf8(struct span span);

/* Write `span` so that a terminal shows it and obeys nothing in it. Backslashes are doubled; control characters and
 * bytes that are not UTF-8 become \xNN. If the text does not fit in `size` bytes, including a NUL, its end becomes
 * "..."; `size` is at least 8. */
void span_show(struct span span, char *out, size_t size);

/* The same as a value: span_shown(name).text serves as an argument of printf(). */
struct shown {
    char text[640]; /* the name of an override fits */
};
struct shown span_shown(struct span span);

/* Set the fault to `what 'value' wrong`, for example: cost '0' is not 1 to 9. Return false, for the caller to return.
 */
bool fault_set(struct fault *fault, const char *what, struct span value, const char *wrong);

/* Set the fault to a sentence. Return false. */
__attribute__((format(printf, 2, 3))) bool fault_say(struct fault *fault, const char *format, ...);

#endif
