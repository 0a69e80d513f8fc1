/* report.h - the report of a replay, for people and as JSON. */
#ifndef WEIR_CLI_REPORT_H
#define WEIR_CLI_REPORT_H

#include "cli/replay/hold.h"

struct report {
    const struct rows *rows;
    const struct policies *policies;
    const struct tally *tally;
    const struct store *store; /* where the counts were kept */
    const char *const *files;  /* as shown to people */
    size_t file_count;
    const char *key_name; /* empty: all rows have the same key */
    size_t unreadable;
    size_t top;
    struct busiest busiest;
};

/* Counts by key number, of all limits together or of one. */
struct key_counts {
    const uint32_t *requests, *denied;
};

/* Return the keys with a denial: most denials first, then most requests, then the first seen. The caller frees them.
 * NULL: out of memory. */
uint32_t *report_denied_keys(const struct report *report, struct key_counts counts, size_t *out_count);

/* Return the counts of the keys of limit `number`, or of all limits together. */
struct key_counts report_counts_of(const struct report *report, size_t number);
struct key_counts report_counts(const struct report *report);

/* Print a line of counts, with its share of `whole` unless that is 0, and a note unless that is empty. */
void report_count(const char *name, uint64_t count, uint64_t whole, const char *note);

/* Write 12.3 %, and never 0.0 or 100.0 unless that is exact. `text` has TIME_TEXT_SIZE bytes. */
void report_share(uint64_t part, uint64_t whole, char *text);

/* Print the keys with the most denials, and how to see the others. Uses only `rows` and `top` of the report. False: out
 * of memory. */
bool report_keys(const struct report *report, struct key_counts counts);

/* The additions of hybrid mode: the line that names the mode, its part of the report, and the member "hybrid" of the
 * JSON object with a comma after it. */
void report_hybrid_mode(const struct report *report);
void report_hybrid_text(const struct report *report);
void report_hybrid_json(const struct report *report);

/* Print to stdout. False: out of memory, and the output is incomplete. */
bool report_text(const struct report *report);
bool report_json(const struct report *report);

#endif
