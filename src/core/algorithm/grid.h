/* grid.h - where an interval or a window starts: at now, or on the grid of multiples of its period since the epoch. */
#ifndef CORE_ALGORITHM_GRID_H
#define CORE_ALGORITHM_GRID_H

#include "core/ground/arith.h"

#include <weir/backend.h>

static inline int64_t grid_start_us(const struct weir_plan *plan, int64_t now_us)
{
    return plan->align == WEIR_ALIGN_EPOCH ? now_us - now_us % plan->period_us : now_us;
}

#endif
