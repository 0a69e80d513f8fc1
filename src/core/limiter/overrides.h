/* overrides.h - the keys of a limit that have a policy of their own: who is asked for a key, found without a lock.
 *
 * An override is a struct weir_limit that stands in for the limit in requests for its keys: of the same name, id and
 * secret, but with plans of its own. So a backend finds the same state of a key whichever of them it is asked by, and
 * carries it over as if the limit had been redefined.
 *
 * Patterns are only ever added. What is added is published, by release stores, when all of it is written, and nothing
 * is freed before the limiter is: a reader may find what is out of force by now, but never what is gone. The table of
 * slots grows by being copied; the old ones stay for those who look at them, which is less than the new one takes.
 */
#ifndef CORE_LIMITER_OVERRIDES_H
#define CORE_LIMITER_OVERRIDES_H

#include "core/policy/pattern.h"

#include <stdatomic.h>

struct weir_limit;

struct override {
    struct weir_limit *limit; /* (c) what stands in for it */
    uint64_t hash;            /* (c) of the bytes, by the limit's secret */
    bool is_prefix;           /* (c) */
    size_t len;               /* (c) */
    atomic_bool in_force;     /* (a) release: its plans have been written */
    unsigned char bytes[];    /* (c) */
};

struct override_table {
    size_t mask; /* (c) slots - 1 */
    struct override_table *older;
    struct override *_Atomic slots[]; /* (a) by hash, else the next; NULL: no more */
};

#define OVERRIDE_LEN_WORDS ((WEIR_MAX_PATTERN_LEN + 63) / 64)

/* (a) atomic, (m) the limiter's mutex: writers, and whoever reads what is not atomic */
struct overrides {
    struct override_table *_Atomic table;             /* (a) */
    _Atomic uint64_t prefix_lens[OVERRIDE_LEN_WORDS]; /* (a) a bit for each length that a prefix ever had */
    struct override **all; /* (m) in the order of plans: shorter prefixes before longer ones, then single keys */
    size_t count, room;    /* (m) */
};

struct overrides *overrides_make(void); /* NULL: out of memory */

/* With what stands in for the limit. Nobody may be reading any more. */
void overrides_free(struct overrides *overrides);

/* The override of that pattern, in force or not; NULL: there is none. `hash` is of its bytes, by the limit's secret. */
struct override *overrides_get(const struct overrides *overrides, const struct pattern *pattern, uint64_t hash);

/* Room for one more, so that it can be added. WEIR_OK or WEIR_ENOMEM. */
int overrides_reserve(struct overrides *overrides);

/* One that is not there yet; overrides_reserve() has been called for it. */
void overrides_add(struct overrides *overrides, struct override *added);

/* Who is asked for a key of `limit`: the override in force for the key alone, else that of the longest prefix, else the
 * limit itself. `hash` is the key's. */
struct weir_limit *overrides_find(const struct overrides *overrides, struct weir_limit *limit, struct weir_key key,
                                  uint64_t hash);

#endif
