/* grid.h - where a window or an interval starts and ends: anywhere, or on the grid of multiples of its period since the
 * epoch (align=epoch). docs/design/semantics.md, Clock, defines both. */
#ifndef CORE_ALGORITHM_GRID_H
#define CORE_ALGORITHM_GRID_H

#include "core/ground/arith.h"

#include <weir/backend.h>

static inline int64_t grid_start_us(const struct weir_plan *plan, int64_t now_us)
{
    return plan->align == WEIR_ALIGN_EPOCH ? now_us - now_us % plan->period_us : now_us;
}

/* Return when the window or interval that starts at `start_us` ends. A rebase moves a start off the grid: it then ends
 * at the first grid point at or after a whole period, so that a clock that steps back gains no window. */
static inline int64_t grid_end_us(const struct weir_plan *plan, int64_t start_us)
{
    const int64_t off_us = plan->align == WEIR_ALIGN_EPOCH ? start_us % plan->period_us : 0;
    return start_us + plan->period_us + (off_us > 0 ? plan->period_us - off_us : 0);
}

#endif
