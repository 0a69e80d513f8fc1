/* search.h - the tightest limit that denies at most a given number of requests and clients of a log.
 *
 * The library decides each row by each limit that is tried. Keys do not affect one another, so the rows are decided key
 * by key, each key's in the order of time. A key that never asks for more permits in two periods than the limit has is
 * never denied, whichever algorithm; its rows need no decision. A trial also ends once it has denied too many.
 *
 * The search bisects, so a limit is the tightest if a larger limit never denies more. That holds for requests of one
 * permit. With costs that differ, the limit below the one found denies too many, but a still smaller one may fit.
 */
#ifndef WEIR_CLI_SEARCH_H
#define WEIR_CLI_SEARCH_H

#include "cli/replay/input/rows.h"

struct search_key {
    uint32_t key;
    uint32_t count;   /* of its rows */
    size_t first;     /* in search->order */
    uint64_t busiest; /* permits asked for in the busiest two periods; see search_period() */
};

struct search {
    const struct rows *rows; /* sorted by time */
    uint32_t *order;         /* rows by key, each key's by time */
    struct search_key *keys; /* the busiest first */
    size_t key_count;
};

struct outcome {
    uint64_t denied; /* requests */
    uint64_t keys;   /* with a denial */
};

/* Return EXIT_OK, or EXIT_FAILED after a complaint. Call search_end() in either case. */
int search_start(struct search *search, const struct rows *rows);
void search_end(struct search *search);

/* Prepare trials of limits over this period. */
void search_period(struct search *search, int64_t period_us);

/* Return the smallest limit that never denies in the prepared period. */
uint64_t search_ceiling(const struct search *search);

/* Decide all rows by the policy, whose period is the prepared one, until more than `most` is denied. `denied_by_key`,
 * by key number and zeroed by the caller, may be NULL. Return EXIT_OK, or EXIT_FAILED after a complaint. */
int search_try(const struct search *search, const char *policy, struct outcome most, struct outcome *out,
               uint32_t *denied_by_key);

/* Find the smallest limit of "ALGORITHM limit=... period=PERIOD" that denies at most `most`. Returns as
 * search_try(). */
int search_limit(const struct search *search, const char *algorithm, const char *period, struct outcome most,
                 uint64_t *out_limit, struct outcome *out);

#endif
