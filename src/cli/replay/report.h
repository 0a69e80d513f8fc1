/* report.h - the report of a replay, as a document and for people. */
#ifndef WEIR_CLI_REPORT_H
#define WEIR_CLI_REPORT_H

#include "cli/replay/document.h"
#include "cli/replay/hold.h"
#include "cli/replay/timeline.h"

struct report {
    const struct rows *rows;
    const struct policies *policies;
    const struct tally *tally;
    const struct store *store; /* where the counts were kept */
    char *const *files;
    size_t file_count;
    const char *key_name; /* empty: all rows have the same key */
    size_t unreadable, top;
    struct busiest busiest;
    const struct timeline *timeline; /* NULL: no page is wanted */
};

/* Counts by key number, of all limits together or of one. */
struct key_counts {
    const uint32_t *requests, *denied;
};

/* Add "keys_ever_denied" and "top_keys": most denials first, then most requests, then the first seen. With a timeline,
 * add "over_time", too. */
void report_add_keys(json_t *object, const struct rows *rows, struct key_counts counts, size_t top,
                     const struct timeline *timeline);

/* Add a policy's name, or null, and its text. */
void report_add_policy(json_t *object, const struct named_policy *policy);

/* Return the document; NULL after a complaint. */
json_t *report_document(const struct report *report);

/* Print the document for people. */
void report_print(const json_t *document);

/* The same of what each policy decided alone, one by one: see --compare. */
json_t *side_document(const struct rows *rows, const struct policies *policies, const struct hold *holds);
void side_print(const json_t *document);

/* Take one policy and its overrides out of all; `out->overrides` is the caller's to free. False: out of memory. */
bool side_policy(const struct policies *policies, size_t number, struct policies *out);

/* Print a line of counts, with its share of `whole` unless that is 0, and a note unless that is empty. */
void report_count(const char *name, uint64_t count, uint64_t whole, const char *note);

/* Write 12.3 %, and never 0.0 or 100.0 unless that is exact. `text` has TIME_TEXT_SIZE bytes. */
void report_share(uint64_t part, uint64_t whole, char *text);

/* Print the top keys of an object, and how to see the others. */
void report_keys(const json_t *object);

#endif
