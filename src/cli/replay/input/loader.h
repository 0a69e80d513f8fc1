/* loader.h - what is read, by which options, and what was found in it so far. */
#ifndef WEIR_CLI_LOADER_H
#define WEIR_CLI_LOADER_H

#include "cli/replay/input/csv.h"
#include "cli/replay/input/feed.h"
#include "cli/replay/input/formats.h"
#include "cli/replay/input/keys.h"
#include "cli/replay/input/rows.h"
#include "cli/replay/progress.h"

#define LOAD_MAX_SHOWN 20
#define LOAD_MIN_PERCENT 95
#define LOAD_MANY_ROWS 200 /* with one key in this many rows, the key is probably the wrong field */
#define LOAD_MAX_FIELDS CSV_MAX_MORE

struct load_options {
    const char *format;       /* csv, json or a named format; NULL: find out */
    const char *log_format;   /* a text for layout.h, or NULL */
    struct csv_choice choice; /* choice.time also names the time of JSON */
    int year;                 /* of the first stamp without a year; 0: none is chosen */
    bool is_lenient;          /* the caller uses the rows even if too few of them fit */
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
    char key_name[64];     /* what the keys are; empty: all rows have the same one */
    bool has_key_name;
};

/* True if the caller should print a note now; false if it was printed when the input was read before. */
static inline bool load_may_say(struct loader *load)
{
    return load->said++ >= load->heard;
}

#endif
