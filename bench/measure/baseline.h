/* baseline.h - the yardstick: the plainest limiter that could be called fast, with nothing a product needs. */
#ifndef BENCH_BASELINE_H
#define BENCH_BASELINE_H

#include <stdbool.h>
#include <stdint.h>

#include "measure/keys.h"

struct baseline;

/* A limiter for up to `keys` keys of KEY_LEN bytes: a permit comes back every `permit_ns`, at most `burst` of them.
 * permit_ns * burst stays below 2^62. Ends the program with a message if there is no memory. */
struct baseline *baseline_open(uint64_t keys, int64_t permit_ns, int64_t burst);

/* Takes `cost` permits if they are there. False also for one key more than there is room for. Any thread. */
bool baseline_try(struct baseline *baseline, const struct bench_key *key, int64_t cost);

/* NULL is ignored. */
void baseline_close(struct baseline *baseline);

#endif
