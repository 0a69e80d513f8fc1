/* load.h - reads logs, JSON lines and tables into rows.
 *
 * A bad row is reported with its file, line and reason, counted and left out; only the first LOAD_MAX_SHOWN are
 * reported. If fewer than LOAD_MIN_PERCENT of all rows fit, the files are probably not in the assumed format.
 */
#ifndef WEIR_CLI_LOAD_H
#define WEIR_CLI_LOAD_H

#include "cli/replay/input/feed.h"
#include "cli/replay/input/keys.h"
#include "cli/replay/input/rows.h"
#include "cli/replay/progress.h"
#include "cli/times.h"

#define LOAD_MAX_SHOWN 20
#define LOAD_MIN_PERCENT 95
#define LOAD_MANY_ROWS 20 /* with one key in this many rows, the key is probably the wrong field */
#define LOAD_MAX_FIELDS 64

struct load_options {
    const char *format;      /* csv, json or a named format; NULL: find out */
    const char *log_format;  /* a text for layout.h, or NULL */
    const char *time;        /* of JSON and tables: the field with the time; NULL: find out */
    const char *time_format; /* of strptime(3); NULL: the usual ones */
    bool has_unit;
    enum time_unit unit; /* of whole-number times */
    int year;            /* of the first stamp without a year; 0: none is chosen */
    bool is_lenient;     /* the caller uses the rows even if too few of them fit */
    /* The keys and costs of each row, the first of each by --key and --cost. Without any, the usual ones. */
    struct key_spec keys[ROWS_MAX_KEYS];
    size_t key_count;
    const char *costs[ROWS_MAX_COSTS]; /* fields; NULL: the usual one */
    size_t cost_count;
    const char *duration; /* the field that says how long each request took; NULL: none */
    enum time_unit duration_unit;
    bool has_duration_unit;
    bool times_are_ends; /* each request began its duration before its time */
};

struct loader {
    struct rows *rows;
    const struct load_options *options;
    struct progress *progress;
    struct feed *feed;      /* takes the rows while they are read; NULL: all rows are kept */
    size_t said, heard;     /* notes on stderr, and how many of them were printed when the input was read before */
    const char *again_name; /* the file of the row at which the feed wanted all again; NULL: none */
    int64_t again_line;
    size_t unreadable, others;    /* rows that are bad, lines that are not requests */
    const char *first_unreadable; /* the file of the first unreadable row */
    int64_t first_unreadable_line;
    char first_format[48]; /* the format of that row's file */
    char next_format[48];  /* what fits it next best; may be empty */
    size_t next_fits;
    char key_name[128]; /* what the keys are; empty: all rows have the same one */
    bool has_key_name;
    size_t free_rows; /* those that cost nothing */
    size_t fractions; /* rows whose time is not a whole second */
};

/* True if the caller should print a note now; false if it was printed when the input was read before. */
static inline bool load_may_say(struct loader *load)
{
    return load->said++ >= load->heard;
}

/* Add the rows of a file, or of stdin if `path` is "-". Return EXIT_OK, FEED_AGAIN, or after a complaint EXIT_FAILED or
 * EXIT_ERROR. */
int load_file(struct loader *load, const char *path);

/* After the last file, report the number of bad rows, and warn if the keys can hardly be clients. True if at least
 * LOAD_MIN_PERCENT of all rows fit. */
bool load_finish(struct loader *load);

/* Warn that periods up to `period_us` are too short for times in whole seconds, if they are. */
void load_warn_of_seconds(struct loader *load, int64_t period_us);

/* True if this is the name of a format that can be read. */
bool load_format_exists(const char *name);

#endif
