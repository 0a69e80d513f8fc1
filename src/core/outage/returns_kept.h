/* returns_kept.h - refunds and settlements that give permits back while the backend is out of reach. They wait here,
 * and go to it when it returns. */
#ifndef CORE_OUTAGE_RETURNS_KEPT_H
#define CORE_OUTAGE_RETURNS_KEPT_H

#include "core/outage/outage.h"

void returns_init(struct kept_returns *kept);

/* Keep a WEIR_REFUND if the backend says that it would not even try to send it, and fill *out. False: it must be sent,
 * or too many wait already. Any thread; holds no lock. */
bool returns_keep(struct weir *limiter, const struct weir_backend_request *request, struct weir_decision *out);

/* Keep one that the backend has certainly not executed, WEIR_EIO_UNDONE, and fill *out. False: too many wait already, or
 * without WEIR_FAIL_LOCAL: the caller gets the error. */
bool returns_keep_refused(struct weir *limiter, const struct weir_backend_request *request, struct weir_decision *out);

/* The backend, or a part of it, is in reach again: send what waits for it. */
void returns_send(struct weir *limiter);

/* Forget all that wait: in the child of a fork, whose parent sends them, or at the end. The caller holds the mutex, or
 * is alone. */
void returns_drop(struct weir *limiter);

#endif
