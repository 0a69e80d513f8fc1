/* limiter.h - a limiter and its limits: what weir_open() makes, whatever backend is below.
 *
 * Locks, none of them held while another is taken, none held while a backend or a hook is called:
 *
 *     limiter->mutex        the table of limits, policies, plans being replaced
 *     limiter->wait_mutex   who waits in weir_acquire(), and the limiter's end
 *
 * A decision takes neither: it copies the limit's plan (plan_cell.h) and calls the backend.
 */
#ifndef CORE_LIMITER_H
#define CORE_LIMITER_H

#include "core/clock.h"
#include "core/hash.h"
#include "core/lock.h"
#include "core/log.h"
#include "core/peers.h"
#include "core/plan.h"
#include "core/plan_cell.h"
#include "core/stats.h"
#include "core/uthash_config.h"

#include <weir/backend.h>

#include <pthread.h>

/* (c) constant once made, (m) limiter->mutex, (w) limiter->wait_mutex, (a) atomic */
struct weir_limit {
    struct weir *limiter;      /* (c) */
    struct hash_secret secret; /* (c) for the hashes of its keys */
    struct plan_cell plan;     /* (a) readers; (m) writers */
    uint32_t id;               /* (c) */
    enum plan_part part;       /* (m) */
    struct weir_policy policy; /* (m) */
    UT_hash_handle hh;         /* (m) by name */
    char name[];               /* (c) */
};

struct weir {
    struct weir_backend *backend; /* (c) */
    struct clock clock;           /* (c) */
    struct log log;               /* (c) */
    struct hash_secret secret;    /* (c) */
    int64_t timeout_us;           /* (c) */

    struct lock mutex;
    struct weir_limit *limits; /* (m) */
    struct share share;        /* (m) share.weights is ours */

    struct lock wait_mutex;
    pthread_cond_t closing_or_left; /* CLOCK_MONOTONIC */
    int64_t waiting;                /* (w) threads in weir_acquire() that have begun to wait */
    bool closing;                   /* (w) */

    struct stats stats; /* (a) */
};

/* Options are checked apart from all else, so that every kind of open refuses the same way. The sentence goes to the
 * log hook of `options`. On WEIR_OK every field of *out has its value, defaults filled in. */
int options_read(const struct weir_options *options, struct weir_options *out);

/* The parts of weir_open() and weir_open_backend() that have nothing to do with the backend. `options` come from
 * options_read(). Owns `backend` on success only. */
int limiter_make(const struct weir_options *options, struct weir_backend *backend, struct weir **out);

/* Put another share into force for all limits; what keys have used stays used. `share` is copied. WEIR_ENOMEM, or
 * WEIR_EINVAL if a limit cannot be enforced exactly at this share: then nothing has changed. */
int limiter_set_share(struct weir *limiter, const struct share *share);

/* limit.c: free the table of limits. */
void limits_free(struct weir *limiter);

#endif
