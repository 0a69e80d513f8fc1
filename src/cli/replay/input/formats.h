/* formats.h - the log formats that have a name, and finding out which one an input has.
 *
 * A named format is one or more texts for layout.h. Several texts are several kinds of lines, as sshd writes them; its
 * other lines are not requests. A format may stand behind a prefix, as syslog and containers add it, and lines may stand
 * in quotation marks as a whole.
 */
#ifndef WEIR_CLI_FORMATS_H
#define WEIR_CLI_FORMATS_H

#include "cli/replay/input/layout.h"

#define FORMATS_MAX_TEXTS 4
#define FORMATS_REPEAT_MAX 10000 /* requests of one line, as in "message repeated 5 times" */

/* How lines stand in quotation marks: not at all, or with the quotation marks inside bare, doubled or escaped. */
enum line_quotes { QUOTES_NONE, QUOTES_BARE, QUOTES_DOUBLED, QUOTES_ESCAPED };

struct format {
    const char *name, *prefix; /* to show to people; the prefix may be empty */
    const char *const *texts;  /* for layout.h, ended by NULL */
    const char *own_texts[2];
    const char *other; /* the text of lines that are not requests; NULL: there are none */
    bool needs_syslog; /* the format exists behind a prefix of syslog only */
    const char *time_format;
    struct span around;      /* the time around the lines, such as Docker's; empty: none */
    enum line_quotes quotes; /* of lines that stand in quotation marks */
    bool has_others;         /* behind this prefix */
    size_t layout_count;
    struct layout layouts[FORMATS_MAX_TEXTS];
    struct layout others; /* if has_others */
    char *unquoted;       /* a line without its quotation marks */
    size_t unquoted_size;
    /* Times repeat from line to line, so the last one is kept. */
    char last_time[64];
    size_t last_time_len;
    int64_t last_time_us;
    int year, last_month; /* of stamps without a year, which passes from December to January */
};

struct format_row {
    const struct layout *layout; /* of the line */
    struct span values[LAYOUT_MAX_FIELDS];
    int64_t time_us;
    int64_t repeat; /* how many requests the line stands for */
};

enum format_line { FORMAT_BAD, FORMAT_ROW, FORMAT_OTHER };

/* Set up a named format; false if there is none of that name. */
bool format_named(struct format *format, const char *name);

/* Set up the format of a text such as an nginx log_format, which must outlive it. On failure return false, and the
 * fault says why. `time_format` is as in struct layout. */
bool format_text(struct format *format, const char *text, const char *time_format, struct fault *fault);

void format_free(struct format *format);

/* Read a line. The fault, unless it is NULL, says why a line is bad. Spans are valid until the next call. */
enum format_line format_read(struct format *format, struct span line, struct format_row *out, struct fault *fault);

/* A guess: how many of the lines the best format and prefix fit, and the next best format of another name. */
struct format_guess {
    size_t fits, next_fits;
    const char *next; /* NULL: no other fits any line */
};

/* Find the named format, prefix and quotation marks that fit most of the lines; on a tie the one with most requests, or
 * else the first in the table. If `format` has a name already, find its prefix and quotation marks. False: none fits
 * any line, or memory is out. */
bool format_detect(struct format *format, const struct span *lines, size_t line_count, struct format_guess *out);

/* True if the stamps of the lines lack the year. */
bool format_lacks_year(const struct format *format);

/* The named formats, for a complaint: "combined, common, ...". */
extern const char FORMAT_NAMES[];

#endif
