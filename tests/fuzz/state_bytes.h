/* state_bytes.h - the layout of backends/redis/flight/state.h, written a second time: what a script answers. */
#ifndef WEIR_TESTS_STATE_BYTES_H
#define WEIR_TESTS_STATE_BYTES_H

#include "backends/redis/flight/state.h"

/* A state in which something is used, behind its stamp; returns how many bytes. */
size_t state_bytes(const struct weir_plan *plan, const int64_t *state, unsigned char out[REDIS_STATE_MAX]);

#endif
