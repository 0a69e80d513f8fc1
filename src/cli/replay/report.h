/* report.h - what a replay found, for people and as JSON. */
#ifndef WEIR_CLI_REPORT_H
#define WEIR_CLI_REPORT_H

#include "cli/replay/hold.h"

struct report {
    const struct rows *rows;
    const struct policies *policies;
    const struct tally *tally;
    const struct store *store; /* where the counts were kept */
    const char *const *files;  /* as people know them */
    size_t file_count;
    const char *key_name; /* empty: all rows have the same key */
    size_t unreadable;
    size_t top;
    int64_t busiest_second; /* since 1970; means nothing if busiest_count is 0 */
    size_t busiest_count;
};

/* The keys that `denied_by_key` has a denial for: most denials first, then most requests, then the first seen. For
 * free(); NULL: out of memory. */
uint32_t *report_denied_keys(const struct report *report, const uint32_t *denied_by_key, size_t *out_count);

/* A line of counts; its share of `whole` unless that is 0, and a note unless that is empty. */
void report_count(const char *name, uint64_t count, uint64_t whole, const char *note);

/* What there is to say besides in hybrid mode: the line that names the mode, the rest of the report, the part of the
 * JSON object that is called "hybrid", with a comma after it. */
void report_hybrid_mode(const struct report *report);
void report_hybrid_text(const struct report *report);
void report_hybrid_json(const struct report *report);

/* Write to stdout. False: out of memory, and it is not whole. */
bool report_text(const struct report *report);
bool report_json(const struct report *report);

#endif
