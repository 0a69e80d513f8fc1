/* rows.h - the requests of a replay, held in memory.
 *
 * A row takes 24 bytes, and each distinct key is kept once: 10^7 lines of a log fit into a few hundred MB. Key numbers
 * count from 0 in the order in which the keys were first seen. The table that finds a key's number is open addressing
 * over key numbers, at most half full, with a hash seeded at random: whoever chose the keys cannot make them collide.
 */
#ifndef WEIR_CLI_ROWS_H
#define WEIR_CLI_ROWS_H

#include "cli/span.h"

#define ROWS_MAX UINT32_C(4000000000)

struct row {
    int64_t time_us;
    uint32_t key;
    uint32_t cost;
    uint32_t position; /* in the input, from 0 */
};

struct rows_key {
    size_t offset; /* in `bytes` */
    uint32_t len;
    uint32_t hash;
};

struct rows {
    struct row *all;
    size_t count, capacity;
    bool is_sorted; /* each time at or after the one before it */
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

/* False if memory or ROWS_MAX is reached; nothing has changed then that matters. */
bool rows_add(struct rows *rows, int64_t time_us, struct span key, int64_t cost);

struct span rows_key(const struct rows *rows, size_t number);

/* Put the rows in the order of their times, those of equal times in the order of the input. */
void rows_sort(struct rows *rows);

/* The second since 1970 in which most rows lie, the earliest of several, and how many those are. There must be a row.
 * False: out of memory. */
bool rows_busiest_second(const struct rows *rows, int64_t *out_second, size_t *out_count);

#endif
