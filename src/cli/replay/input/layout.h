/* layout.h - a log's format, compiled from the text that configures it.
 *
 * The text is a log_format of nginx ($name) or a LogFormat of Apache (%h, %{Name}i), as it stands in the configuration:
 * the whole directive, its strings in quotation marks, or the bare string. A layout alternates between literal bytes
 * and fields. A space in a literal stands for one or more spaces.
 *
 * A field ends at the first place where the next literal stands and the status and numbers behind it fit. So a request
 * may contain spaces and bare quotation marks, which clients send and some servers log. A line may continue after the
 * last field.
 *
 * Fields of known meaning have weir's names: client, user, method, path, host, request, status, time. The method and
 * the path (without the query) are also read from the request. A header of Apache has nginx's name for it: %{X-Key}i is
 * http_x_key.
 */
#ifndef WEIR_CLI_LAYOUT_H
#define WEIR_CLI_LAYOUT_H

#include "cli/span.h"
#include "cli/times.h"

#define LAYOUT_MAX_FIELDS 64
#define LAYOUT_MAX_TEXT 2048

enum layout_kind {
    LAYOUT_TEXT,            /* any bytes */
    LAYOUT_WORD,            /* one or more bytes without a space */
    LAYOUT_HOST,            /* a host name, perhaps with a port */
    LAYOUT_CLIENT,          /* a host name or an address, also with a port, or several with commas between them */
    LAYOUT_CLIENT_PORT,     /* an address, perhaps with a port, and no name */
    LAYOUT_CLIENT_AND_PORT, /* an address and always a port: what stands behind the last colon of IPv6, too */
    LAYOUT_CLIENTS,         /* as in X-Forwarded-For: the last one, which the server itself added, is the client */
    LAYOUT_CODE,            /* capital letters, digits and underscores, such as TCP_MISS */
    LAYOUT_DATA,            /* the structured data of RFC 5424 */
    LAYOUT_IDENT,
    LAYOUT_USER,
    LAYOUT_STATUS, /* three digits, or "-" */
    LAYOUT_NUMBER, /* digits, or "-" */
    LAYOUT_TIME,
    LAYOUT_STAMP /* Nov 10 06:00:00, as in syslog: the year is missing */
};

struct layout_field {
    char name[48];
    enum layout_kind kind;
    enum time_unit unit;         /* of a time that is a whole number */
    size_t literal, literal_len; /* before the field, in layout->text */
};

struct layout {
    size_t count;
    size_t tail, tail_len;   /* the literal after the last field */
    size_t time;             /* the field with the time; LAYOUT_MAX_FIELDS: none */
    const char *time_format; /* of strptime(3); NULL: the usual ones */
    size_t text_len;
    char text[LAYOUT_MAX_TEXT];
    struct layout_field fields[LAYOUT_MAX_FIELDS];
};

/* Compile a format behind a prefix, which has nginx's syntax and may be empty. On failure return false, and the fault
 * says why. */
bool layout_compile(struct layout *layout, struct span prefix, struct span text, struct fault *fault);

/* Split a line into the fields' values, of which there are layout->count. On failure return false; the fault, unless it
 * is NULL, says why. */
bool layout_split(const struct layout *layout, struct span line, struct span *values, struct fault *fault);

/* Read the time of a field, as time_read(). */
bool layout_time(const struct layout *layout, struct span text, enum time_unit unit, int64_t *out_us,
                 const char **wrong);

/* Where a value comes from: a field, or a part of the request in it. */
enum layout_part {
    LAYOUT_WHOLE,
    LAYOUT_METHOD,
    LAYOUT_PATH, /* of a request, without the query */
    LAYOUT_NO_QUERY
};

/* Find the field of that name, or the request that contains it. False if there is none. */
bool layout_find(const struct layout *layout, const char *name, size_t *out_field, enum layout_part *out_part);

/* Return a part of a value; "-" if it is missing. */
struct span layout_part(struct span value, enum layout_part part);

#endif
