/* releases.h - slots that are given back, or given by the fallback, while the backend does not answer: releases.c. */
#ifndef CORE_OUTAGE_RELEASES_H
#define CORE_OUTAGE_RELEASES_H

#include "core/outage/outage.h"

void releases_init(struct weir *limiter);
void releases_free(struct weir *limiter);

/* In the child of a fork, forget all of it: the parent goes on with it. */
void releases_begin_in_child(struct weir *limiter);

/* The limiter is closing: send once more what waits, and end the thread. The backend still answers. */
void releases_end(struct weir *limiter);

/* Decide a request about a slot that the fallback has given, if it still has it. False: the backend decides. */
bool releases_decide(struct weir *limiter, const struct weir_backend_request *request, struct weir_decision *out);

/* The backend has failed to answer requests, which are one or a group. Keep a release until it is answered. Give back
 * slots that the requests may have taken. True: *out is filled, the request is done. */
bool releases_after(struct weir *limiter, const struct weir_backend_request *requests, size_t n,
                    struct weir_decision *out);

/* The fallback may have given a slot, of which the backend must learn. */
void releases_gave(struct weir *limiter);

#endif
