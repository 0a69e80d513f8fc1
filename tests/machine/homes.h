/* homes.h - where the keys of a test lie in a shared file. */
#ifndef WEIR_TESTS_HOMES_H
#define WEIR_TESTS_HOMES_H

#include "backends/machine/visit.h"
#include "core/limiter/request.h"
#include "support.h"

#include <stdio.h>

static inline struct machine *machine_of(const weir_limit *limit)
{
    return (struct machine *)limit->limiter->backend;
}

static inline struct machine_stripe *stripe_of_key(const weir_limit *limit, struct weir_key key)
{
    return machine_stripe_of(machine_of(limit), key_hash(limit, key));
}

static inline uint32_t home_of(const weir_limit *limit, struct weir_key key)
{
    return bucket_home(bucket_of(&machine_of(limit)->shape, key_hash(limit, key)));
}

/* Return the first cell of a key, or 0. Nothing else uses the file. */
static inline uint32_t cell_of(const weir_limit *limit, struct weir_key key)
{
    struct machine *machine = machine_of(limit);
    const struct weir_backend_request request = { .key = key, .hash = key_hash(limit, key) };
    struct visit visit = { .machine = machine,
                           .stripe = machine_stripe_of(machine, request.hash),
                           .len = key.len,
                           .limit = &limit->secret,
                           .request = &request };
    must(stripe_enter(machine, visit.stripe) == WEIR_OK, "the lock is free");
    must(visit_find(&visit) == WEIR_OK, "the stripe is sound");
    visit_leave(&visit);
    stripe_leave(visit.stripe);
    return visit.first;
}

/* Return a number that makes `text` and the number, behind a slash, a key with the same home as another key. */
static inline uint32_t rival_number(const weir_limit *limit, struct weir_key key, const char *text)
{
    for (uint32_t number = 0;; number++) {
        char rival[128];
        const int len = snprintf(rival, sizeof rival, "%s/%u", text, (unsigned)number);
        const struct weir_key other = weir_key(rival, (size_t)len);
        if (home_of(limit, other) == home_of(limit, key) && stripe_of_key(limit, other) == stripe_of_key(limit, key))
            return number;
    }
}

#endif
