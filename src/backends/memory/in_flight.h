/* in_flight.h - decides about slots, in_flight.c. */
#ifndef BACKENDS_MEMORY_IN_FLIGHT_H
#define BACKENDS_MEMORY_IN_FLIGHT_H

#include "backends/memory/parts.h"

/* Decide one request about a slot: WEIR_OK or WEIR_ENOMEM. The caller holds no lock; so below. */
int memory_flight_decide(struct memory *memory, const struct weir_backend_request *request, struct weir_decision *out);

/* Decide independent requests, some of which are about slots. */
int memory_flight_each(struct memory *memory, const struct weir_backend_request *requests, size_t n,
                       struct weir_decision *out);

/* Decide a group, some of whose requests are about slots. */
int memory_flight_all(struct memory *memory, const struct weir_backend_request *requests, size_t n,
                      struct weir_decision *out);

/* Forget all slots: in the child of a fork, whose parent has them. */
void memory_flight_forget(struct memory *memory);

void memory_flight_free(struct memory *memory);

/* Implements own_ops.slots_list(). */
size_t memory_flight_list(struct weir_backend *backend, uint32_t *place, int64_t now_us, struct own_slot *out,
                          size_t most);

#endif
