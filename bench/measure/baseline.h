/* baseline.h - the yardstick: the plainest limiter that could be called fast, without anything that a product needs. */
#ifndef BENCH_BASELINE_H
#define BENCH_BASELINE_H

#include <stdbool.h>
#include <stdint.h>

#include "measure/keys.h"

struct baseline;

/* Open a limiter for up to `keys` keys of KEY_LEN bytes. A permit returns every `permit_ns`; a key holds at most
 * `burst` of them. permit_ns * burst must stay below 2^62. Fails without memory. */
struct baseline *baseline_open(uint64_t keys, int64_t permit_ns, int64_t burst);

/* Take `cost` permits if they are there. False also if the key does not fit. Any thread may call this. */
bool baseline_try(struct baseline *baseline, const struct bench_key *key, int64_t cost);

/* Close it. NULL is ignored. */
void baseline_close(struct baseline *baseline);

#endif
