/* timeline.h - what a replay notes of each decision for its page: requests over time, of each key, and waits.
 *
 * The page shows the worst keys over time, and which ones they are is known at the end only. So the requests of each
 * key are counted in bins: up to TIMELINE_BINS cells of 24 bytes for a key, and one for each request if it has few. The
 * bins widen as the input gets longer; each width is a multiple of those before.
 */
#ifndef WEIR_CLI_TIMELINE_H
#define WEIR_CLI_TIMELINE_H

#include <jansson.h>
#include <weir/weir.h>

#include "cli/replay/input/rows.h"

#define TIMELINE_BINS 400
#define TIMELINE_WAITS 10 /* steps of the distribution of waits */

struct timeline_cell { /* the requests of a key in a bin */
    int64_t begin_us;
    uint32_t key, admitted, denied;
};

struct timeline { /* starts as all zero */
    struct timeline_cell *cells;
    size_t count, capacity;
    uint32_t *last; /* of each key: the number of its newest cell, from 1 */
    size_t key_capacity;
    size_t step;               /* of the width of the bins */
    int64_t first_us, last_us; /* of the rows */
    int64_t first_denied_us, last_denied_us;
    bool has_denial;
    uint64_t denials[TIMELINE_WAITS]; /* by the time until the request would be admitted */
    uint64_t delays[TIMELINE_WAITS];  /* of admitted requests, by the time that they should wait */
};

/* Note a decision. False: out of memory. */
bool timeline_add(struct timeline *timeline, const struct row *row, const struct weir_decision *decision);

/* Return the bins as a document: all requests, and those of each of the first `count` keys. NULL: out of memory. */
json_t *timeline_document(const struct timeline *timeline, const uint32_t *keys, size_t count);

void timeline_free(struct timeline *timeline);

#endif
