/* hybrid.h - the hybrid backend: permits leased from a remote backend ahead of use, spent in this process. */
#ifndef BACKENDS_HYBRID_HYBRID_H
#define BACKENDS_HYBRID_HYBRID_H

#include "core/algorithm/lease.h"

struct hybrid_settings {
    struct lease_rules leases;
    int64_t max_keys, max_bytes; /* for keys that have a lease, a denial or recent requests */
    bool keep_idle;     /* until there is no room: which are found first is by chance, and a replay must not be */
    int64_t timeout_us; /* how long to wait for what is asked ahead of use */
    /* What leases are held by: microseconds that count suspend, from any zero; NULL: core/ground/clock.h's. Requests that
     * bring a time of their own are held by that. */
    int64_t (*now_us)(void *user);
    void *user;
};

/* Over `remote`, which must have submit(), shut() and `shared`; owned on success only. WEIR_OK or WEIR_ENOMEM. */
int hybrid_open(const struct hybrid_settings *settings, struct weir_backend *remote, struct weir_backend **out);

/* The locks of a hybrid backend are held while the process forks, and the child starts without leases. */
void hybrid_watch_forks(struct weir_backend *backend);

#endif
