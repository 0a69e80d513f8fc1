/* plans.h - plans by chance. */
#ifndef WEIR_TESTS_PLANS_H
#define WEIR_TESTS_PLANS_H

#include "support.h"

#include <weir/backend.h>

/* Make a plan of `kind` (enum kind). Every second one is friendly: its limit binds and its periods end. */
struct weir_plan plan_by_chance(struct chance *chance, int kind);

/* Return the time from a fresh key's last permit, or from the last of `used` permits if those are more, until the key
 * is fresh again: the scale of times at which something happens. */
int64_t plan_fill_us(const struct weir_plan *plan, int64_t used);

#endif
