/* limits.h - a limiter's limits and their overrides: which of their policies is in force, and the plans made of it. */
#ifndef CORE_LIMITER_LIMITS_H
#define CORE_LIMITER_LIMITS_H

#include "core/limiter/limiter.h"

/* Below, a target is a limit or an override of one. A change is made in two steps: what may fail is found out and
 * reserved for all targets first, then layers are set and committed, all under one holding of the limiter's mutex. */

/* The target of that name, or NULL. */
struct weir_limit *limits_find(const struct weir *limiter, const struct limit_name *name) REQUIRES(limiter->mutex);

/* The same, made if it is not there, without a policy; so is the limit of an override. WEIR_OK, or WEIR_EFULL or
 * WEIR_ENOMEM with a sentence. */
int limits_get(struct weir *limiter, const struct limit_name *name, struct weir_limit **out, struct message message)
    REQUIRES(limiter->mutex);

/* All limits but the first `count` are gone: those that limits_get() has made since, under the same holding of the
 * mutex, and that are not committed. */
void limits_undo(struct weir *limiter, size_t count) REQUIRES(limiter->mutex);

/* Whether the policy, which has passed plan_check(), can be enforced at the limiter's share: at one that is fixed
 * exactly, while one that is followed may be another at any moment, and suits all. WEIR_OK, or WEIR_EINVAL with a
 * sentence. */
int limits_check(const struct weir *limiter, const struct weir_policy *policy, struct message message)
    REQUIRES(limiter->mutex);

/* What would be in force if the layer were empty; NULL: nothing would. */
const struct weir_policy *target_without(const struct weir_limit *target, enum layer layer);

/* Put a policy that has been checked into a layer; NULL: empty it. */
void target_set(struct weir_limit *target, enum layer layer, const struct weir_policy *policy);

/* Put what target_set() has changed of the limit into force: its own policy and those of all its overrides. Whether any
 * key that may have been asked for has another plan in the stand-in: then failure_split() is called once the mutex has
 * been given back. */
bool target_commit(struct weir *limiter, struct weir_limit *target) REQUIRES(limiter->mutex);

/* Plans for all limits and overrides at the share that is the limiter's now. Whether any is another than before,
 * as for target_commit(); *unfit: one that is enforced at nothing for want of exact arithmetic, or NULL. */
bool limits_at_share(struct weir *limiter, struct weir_limit **unfit) REQUIRES(limiter->mutex);

/* How many limits and overrides in force have a part that was lifted to 1 at the share, and how many one of nothing. */
void limits_count_parts(const struct weir *limiter, uint64_t *lifts, uint64_t *zeros) REQUIRES(limiter->mutex);

/* Free the table of limits. Nobody else uses the limiter any more. */
void limits_free(struct weir *limiter);

/* limit_file.c: weir_limits_load() into a layer. A file that is followed may override limits that are not there yet. */
int limits_load(struct weir *limiter, const char *path, enum layer layer, struct message message);

#endif
