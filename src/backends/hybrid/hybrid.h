/* hybrid.h - the hybrid backend: leases permits from a remote backend in advance and spends them in this process. */
#ifndef BACKENDS_HYBRID_HYBRID_H
#define BACKENDS_HYBRID_HYBRID_H

#include "core/algorithm/lease.h"

struct hybrid_settings {
    struct lease_rules leases;
    int64_t max_keys, max_bytes; /* for keys that have a lease, a denial or recent requests */
    bool keep_idle;     /* while there is room: a sweep's choice depends on chance, which a replay cannot repeat */
    int64_t timeout_us; /* longest time that an order in advance of any request may take */
    /* Returns the time for leases: microseconds that include suspend, from any zero. NULL: core/ground/clock.h.
     * Leases for requests that bring a time use that time. */
    int64_t (*now_us)(void *user);
    void *user;
};

/* Make a hybrid backend over `remote`, which must have submit(), shut() and `shared`. It owns `remote` on success
 * only. WEIR_OK or WEIR_ENOMEM. */
int hybrid_open(const struct hybrid_settings *settings, struct weir_backend *remote, struct weir_backend **out);

/* Hold the backend's locks while the process forks, so that a child can use it. The child starts without leases. */
void hybrid_watch_forks(struct weir_backend *backend);

#endif
