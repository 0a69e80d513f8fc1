/* limits.h - a limiter's limits and their overrides: which policy is in force, and the plans made of it.
 *
 * A target is a limit or an override of one. A change has two steps, for which the limiter's mutex is held once. The
 * first makes every check and reservation that may fail, for all targets. The second sets and commits the layers.
 */
#ifndef CORE_LIMITER_LIMITS_H
#define CORE_LIMITER_LIMITS_H

#include "core/limiter/limiter.h"
#include "core/limiter/overrides.h"

/* ---- The table, limits.c ---- */

/* Return the target of that name, or NULL. */
struct weir_limit *limits_find(const struct weir *limiter, const struct limit_name *name) REQUIRES(limiter->mutex);

/* Return it in *out. If it does not exist, make it without a policy; an override's limit, too. WEIR_OK, or WEIR_EFULL
 * or WEIR_ENOMEM with a sentence. */
int limits_get(struct weir *limiter, const struct limit_name *name, struct weir_limit **out, struct message message)
    REQUIRES(limiter->mutex);

/* Make a limit that no program can name, for requests of the limiter itself. The caller frees it. NULL: no memory. */
struct weir_limit *limits_make_private(struct weir *limiter, const char *name, const struct weir_policy *policy);

/* Make room for a policy that a target gets: its candidate, if it has one. */
int limits_prepare(struct weir *limiter, struct weir_limit *target, const struct weir_policy *policy,
                   struct message message) REQUIRES(limiter->mutex);

/* Remove all limits but the first `count`: those that limits_get() has made since, under the same holding of the mutex,
 * and that were not committed. */
void limits_undo(struct weir *limiter, size_t count) REQUIRES(limiter->mutex);

/* Return the first limit or override in force, after `target` if that is not NULL; NULL: there is none. They are in
 * the order in which they were made. */
struct weir_limit *limits_next(const struct weir *limiter, const struct weir_limit *target) REQUIRES(limiter->mutex);

/* Return the first limit or override after `target`, or of all, whose is_untold is set; NULL: there is none. */
struct weir_limit *limits_next_changed(const struct weir *limiter, const struct weir_limit *target)
    REQUIRES(limiter->mutex);

/* True if the limit or override is in force. */
bool limits_is_in_force(const struct weir_limit *target);

/* Give a limit that nothing uses another name and forget its figures; it has no policy in force then. The name is free.
 * WEIR_OK, or WEIR_ENOMEM with a sentence: the limit then stays out of the table for good. */
int limits_rename(struct weir *limiter, struct weir_limit *limit, const char *name, struct message message)
    REQUIRES(limiter->mutex);

/* Free the table of limits. No other thread uses the limiter any more. */
void limits_free(struct weir *limiter);

/* Return the overrides of a limit, or NULL. Writers hold the mutex, so the load needs no order. */
static inline struct overrides *limit_overrides(const struct weir_limit *limit)
{
    return atomic_load_explicit(&limit->overrides, memory_order_relaxed);
}

/* ---- Policies and plans, targets.c ---- */

/* Check whether a policy, which has passed plan_check(), can be enforced at the limiter's share. A share that varies
 * may be any other one at any moment, and suits every policy. WEIR_OK, or WEIR_EINVAL with a sentence. */
int limits_check(const struct weir *limiter, const struct weir_policy *policy, struct message message)
    REQUIRES(limiter->mutex);

/* Return the policy that would be in force if the layer were empty; NULL if there is none. */
const struct weir_policy *target_without(const struct weir_limit *target, enum layer layer);

/* Put a policy that has been checked into a layer; NULL empties it. */
void target_set(struct weir_limit *target, enum layer layer, const struct weir_policy *policy);

/* Put what target_set() has changed of the limit into force: its own policy and those of all its overrides. True if a
 * key that the fallback may know has another plan now: the caller then gives the mutex back and calls outage_split().
 */
bool target_commit(struct weir *limiter, struct weir_limit *target) REQUIRES(limiter->mutex);

/* Copy a share, or a chain of shares that all hold, and put it into force for all limits; used permits stay used. A
 * limit without exact arithmetic at this share gets less (plan_at_share()), in the worst case nothing: *unfit is one
 * that gets nothing, or NULL. *changes: as target_commit() returns. WEIR_ENOMEM: nothing has changed; not for one share
 * without weights. Takes the mutex. */
int limits_put_share(struct weir *limiter, const struct share *share, struct weir_limit **unfit, bool *changes);

/* Log that a limit gets nothing at the share in force; NULL: do nothing. */
void limits_tell_unfit(const struct weir *limiter, const struct weir_limit *unfit);

/* Count the limits and overrides in force whose part was lifted to 1 at the share, and those whose part is 0. */
void limits_count_parts(const struct weir *limiter, uint64_t *lifts, uint64_t *zeros) REQUIRES(limiter->mutex);

#endif
