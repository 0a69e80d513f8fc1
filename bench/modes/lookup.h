/* lookup.h - the floor of a decision in this process: a clock, a mutex, and a table that holds the keys. */
#ifndef BENCH_LOOKUP_H
#define BENCH_LOOKUP_H

#include "redis/load.h"

/* Open a bare uthash table that holds keys 0 to keys-1. */
struct lookup *lookup_open(uint64_t keys);
void lookup_close(struct lookup *lookup);

/* load_call of a struct lookup: read the clock, lock the mutex and look up the key, for each draw. */
size_t lookup_call(void *lookup, int thread, const struct bench_key *draws, size_t n);

#endif
