/* acquire.h - submitted requests that wait for permits. */
#ifndef CORE_API_ACQUIRE_H
#define CORE_API_ACQUIRE_H

#include "core/api/errands.h"

/* Begin a WEIR_OP_ACQUIRE that has been checked. Returns as weir_submit(). */
int acquire_submit(struct weir *limiter, struct weir_op *op);

/* Wake a waiter that sleeps, because the limiter is closing. */
void acquire_wake(struct line_waiter *waiter);

#endif
