/* record.h - a line as named values: the members of a JSON object, the pairs of logfmt, or the fields of a table.
 *
 * A member's path is the names of the objects around it and its own, with points between them, as in request.client_ip.
 * An array counts as its first element if that is a string, a number or a boolean. Objects in arrays and nulls are left
 * out. Values are text: a number is as the line has it.
 *
 * The scanner reads a JSON line once, without a tree: a library that builds one takes ten times as long.
 */
#ifndef WEIR_CLI_RECORD_H
#define WEIR_CLI_RECORD_H

#include "cli/span.h"

#define RECORD_MAX 4096 /* members; a line with more cannot be read */
#define RECORD_DEPTH 64 /* objects and arrays within each other */
#define RECORD_NONE ((size_t)RECORD_MAX)

struct member {
    struct span name, value;
    uint32_t parent; /* the object around it, in `objects`; 0: the line itself */
};

struct record { /* spans point into the line, the header or `bytes` */
    size_t count, object_count;
    struct member all[RECORD_MAX];
    struct member objects[RECORD_MAX]; /* their names and parents; [0] is the line itself */
    char *bytes;                       /* text without its escapes */
    size_t size, used;
};

void record_free(struct record *record);

/* Remove all members, and make room for a line of `len` bytes. False: out of memory. */
bool record_start(struct record *record, size_t len);

/* Add a member; false if there are RECORD_MAX. */
bool record_add(struct record *record, struct span name, struct span value, uint32_t parent);

/* Read a line. On failure return false, and the fault says why. The members are valid until the next call. */
bool record_json(struct record *record, struct span line, struct fault *fault);
bool record_logfmt(struct record *record, struct span line, struct fault *fault);

/* Find a member by its path; `hint` is where it was in the last line. RECORD_NONE if it is missing. */
size_t record_find(const struct record *record, const char *path, size_t hint);

/* Write a member's path; what does not fit is cut off. */
void record_path(const struct record *record, size_t member, char *out, size_t size);

#endif
