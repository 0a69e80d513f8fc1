/* report.h - what a replay found, for people and as JSON. */
#ifndef WEIR_CLI_REPORT_H
#define WEIR_CLI_REPORT_H

#include "hold.h"

struct report {
    const struct rows *rows;
    const struct policies *policies;
    const struct tally *tally;
    bool is_distributed;      /* the counts were kept in Redis */
    const char *const *files; /* as people know them */
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

/* Write to stdout. False: out of memory, and it is not whole. */
bool report_text(const struct report *report);
bool report_json(const struct report *report);

#endif
