/* json_lines.h - lines that are JSON objects each.
 *
 * A field is a path: the names of members with points between them, as in request.client_ip. A name that contains
 * points is found, too, if the object has it. client, user, method and path are looked for under their usual names, and
 * so is the time. Parsing is jansson's work.
 */
#ifndef WEIR_CLI_JSON_LINES_H
#define WEIR_CLI_JSON_LINES_H

#include "cli/times.h"

struct json_lines {
    void *tree;        /* of the current line */
    char numbers[256]; /* the texts of numbers in it */
    size_t number_len;
};

/* True if this weir can read JSON. */
bool json_lines_are_known(void);

void json_lines_free(struct json_lines *json);

/* Parse a line. On failure return false, and the fault says why. The values below are valid until the next call. */
bool json_lines_parse(struct json_lines *json, struct span line, struct fault *fault);

/* Find the value of a field: a string, or a number or a boolean as text. False: it is missing, or not such a value. */
bool json_lines_value(struct json_lines *json, const char *name, struct span *out);

/* Read the time in the field of that name; NULL: in the first field with a usual name, or else the text `around` it,
 * unless that is empty. A whole number has the unit, or the unit in the field's name, if `unit` is NULL, or else it is
 * in microseconds. */
bool json_lines_time(struct json_lines *json, const char *name, const enum time_unit *unit, struct span around,
                     int64_t *out_us, struct fault *fault);

#endif
