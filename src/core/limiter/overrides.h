/* overrides.h - the overrides of a limit: finds the one that applies to a key, without a lock.
 *
 * An override is a struct weir_limit that takes the limit's place in requests for its keys. It has the limit's name, id
 * and secret, but another policy's plans. So a backend finds the same state of a key with either of them, and carries
 * it over as if the limit had been redefined.
 *
 * Patterns are only ever added. A new one is published by release stores once it is complete. Nothing is freed before
 * the limiter is: a reader may find an override that is out of force, but never one that is gone. The table of slots
 * grows by copying. The old tables stay for readers that still look at them; together they take less than the newest
 * one.
 */
#ifndef CORE_LIMITER_OVERRIDES_H
#define CORE_LIMITER_OVERRIDES_H

#include "core/policy/pattern.h"

#include <stdatomic.h>

struct weir_limit;

struct override {
    struct weir_limit *limit;     /* (c) takes the limit's place */
    uint64_t hash;                /* (c) of the bytes, by the limit's secret */
    bool is_prefix;               /* (c) */
    size_t len;                   /* (c) */
    atomic_bool in_force;         /* (a) release: its plans have been written */
    struct override *next_begins; /* (m) while plans are written: the next one that comes into force */
    unsigned char bytes[];        /* (c) */
};

struct override_table {
    size_t mask; /* (c) slots - 1 */
    struct override_table *older;
    struct override *_Atomic slots[]; /* (a) at the hash or after it; NULL ends the search */
};

#define OVERRIDE_LEN_WORDS ((WEIR_MAX_PATTERN_LEN + 63) / 64)

/* (a) atomic, (m) the limiter's mutex: for writers, and for readers of what is not atomic */
struct overrides {
    struct override_table *_Atomic table;             /* (a) */
    _Atomic uint64_t prefix_lens[OVERRIDE_LEN_WORDS]; /* (a) one bit for each length that a prefix ever had */
    /* (m) The first `sorted` of them are in the order in which plans are written: by their bytes, so that those which
     * begin with a prefix follow it. The others stand in the order in which they were added. */
    struct override **all;
    size_t count, sorted, room; /* (m) */
};

struct overrides *overrides_make(void); /* Return NULL if out of memory. */

/* Free all overrides. No thread reads them any more. */
void overrides_free(struct overrides *overrides);

/* Return the override of that pattern, in force or not; NULL if there is none. `hash` is of its bytes, by the limit's
 * secret. */
struct override *overrides_get(const struct overrides *overrides, const struct pattern *pattern, uint64_t hash);

/* Reserve room for one more. WEIR_OK or WEIR_ENOMEM. */
int overrides_reserve(struct overrides *overrides);

/* Add an override that is not there yet, after overrides_reserve(). */
void overrides_add(struct overrides *overrides, struct override *added);

/* Put all of them in the order in which plans are written. */
void overrides_sort(struct overrides *overrides);

/* Return the place in `all`, which is sorted, behind the last override that begins with this prefix. They begin at the
 * place behind the prefix, which is *first. */
size_t overrides_below(const struct overrides *overrides, const struct override *prefix, size_t *first);

/* Return the limit to ask for a key: the override in force for the key alone, or that of the longest prefix, or `limit`
 * itself. `hash` is the key's. */
struct weir_limit *overrides_find(const struct overrides *overrides, struct weir_limit *limit, struct weir_key key,
                                  uint64_t hash);

#endif
