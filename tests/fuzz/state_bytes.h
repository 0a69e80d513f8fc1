/* state_bytes.h - the layout of backends/redis/flight/state.h, implemented independently, as a script writes it. */
#ifndef WEIR_TESTS_STATE_BYTES_H
#define WEIR_TESTS_STATE_BYTES_H

#include "backends/redis/flight/state.h"

/* Write a used state after its fingerprint; return the number of bytes. */
size_t state_bytes(const struct weir_plan *plan, const int64_t *state, unsigned char out[REDIS_STATE_MAX]);

#endif
