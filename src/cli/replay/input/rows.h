/* rows.h - the requests of a replay that are in memory: all of them, or those that feed.h has not handed on yet.
 *
 * A row takes 32 bytes, and each distinct key is kept once. Key numbers count from 0 in the order of first appearance.
 * A table with open addressing, at most half full, finds a key's number. Its hash has a random seed, so that no sender
 * of keys can make them collide.
 *
 * Limits may differ in what their key and their cost is. A row then has further keys, 4 bytes each, and costs, 8 bytes
 * each. All kinds of keys share one numbering: a user and a client of the same name have the same number.
 */
#ifndef WEIR_CLI_ROWS_H
#define WEIR_CLI_ROWS_H

#include "cli/span.h"

#define ROWS_MAX UINT32_C(4000000000)
#define ROWS_MAX_KEYS 16  /* kinds of keys of a row */
#define ROWS_MAX_COSTS 16 /* kinds of costs of a row */

struct row {
    int64_t time_us, cost;
    uint32_t key;
    uint32_t position; /* in the input, from 0 */
    uint32_t place;    /* of its further keys and costs, and of its duration */
};

struct busiest {    /* the second with the most rows, the earliest of several */
    int64_t second; /* since 1970; undefined if the count is 0 */
    size_t count;
    int64_t last; /* the second of the last row, */
    size_t run;   /* and how many rows it has so far */
};

struct rows_key {
    size_t offset; /* in `bytes` */
    uint32_t len;
    uint32_t hash;
};

struct rows {
    struct row *all;              /* those in memory */
    size_t count, capacity;       /* how many are in memory */
    size_t total;                 /* how many were added, those that are gone included */
    bool is_sorted;               /* no time is before the previous one */
    size_t more_keys, more_costs; /* of each row; set before the first one */
    uint32_t *further_keys;       /* of each place */
    int64_t *further_costs;       /* of each place */
    size_t further_keys_capacity, further_costs_capacity;
    int64_t *durations_us; /* of each place: how long the request took; NULL: not known */
    size_t duration_capacity;
    uint32_t *free_places; /* of rows that are gone */
    size_t free_count, free_capacity;
    uint32_t place_count; /* places that are in use or free */
    struct rows_key *keys;
    size_t key_count, key_capacity;
    char *bytes; /* of all keys */
    size_t byte_count, byte_capacity;
    uint32_t *slots;   /* a key's number + 1; 0: free */
    size_t slot_count; /* a power of two */
    uint64_t seed;
};

void rows_start(struct rows *rows);
void rows_free(struct rows *rows);

/* Add a row with one key and one cost. False, without a new row, if memory or ROWS_MAX is reached. */
bool rows_add(struct rows *rows, int64_t time_us, struct span key, int64_t cost);

/* Set the further keys and costs of the row added last. False: out of memory. */
bool rows_add_more(struct rows *rows, const struct span *keys, const int64_t *costs);

/* Set how long the request of the row added last took. False: out of memory. */
bool rows_add_duration(struct rows *rows, int64_t duration_us);

/* Return the number of a row's key, and its cost, of the kind `which`; kind 0 is in the row. */
uint32_t rows_key_of(const struct rows *rows, const struct row *row, size_t which);
int64_t rows_cost_of(const struct rows *rows, const struct row *row, size_t which);

struct span rows_key(const struct rows *rows, size_t number);

/* Remove the first `count` rows. Further rows take their places. False: out of memory. */
bool rows_remove(struct rows *rows, size_t count);

/* Sort the rows by time; rows of equal times keep their order. */
void rows_sort(struct rows *rows);

/* Add the time of a row, which is not before the one added last. */
void busiest_add(struct busiest *busiest, int64_t time_us);

/* Find the busiest second of all rows in memory, in whatever order they are. False: out of memory. */
bool rows_busiest_second(const struct rows *rows, struct busiest *out);

#endif
