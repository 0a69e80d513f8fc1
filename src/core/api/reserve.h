/* reserve.h - turns what a backend noted into reservations. */
#ifndef CORE_API_RESERVE_H
#define CORE_API_RESERVE_H

#include "core/limiter/limiter.h"

/* The value of a reservation before its request is decided, and if the request was denied. */
#define RESERVATION_NONE ((struct weir_reservation){ .permits = -1 })

/* Check what may have come from another process: WEIR_OK, or WEIR_EINVAL with a line in the log. */
int reservation_check(const struct weir *limiter, const struct weir_reservation *reservation, int64_t actual);

/* Do that for a renewal, whose cost must be the reservation's if it has permits. */
int renewal_check(const struct weir *limiter, const struct weir_reservation *reservation, int64_t cost);

/* True if the reservation has permits that can be returned to a limit or override, as of limit_for_key(). */
static inline bool reservation_is_out(const struct weir_limit *limit, const struct weir_reservation *reservation)
{
    return reservation->permits > 0 && (limit_in_flight(limit) ? reservation->id != 0 : reservation->at_us != 0);
}

/* True if settling the reservation for `actual` permits changes nothing. */
bool reservation_settles_nothing(const struct weir_reservation *reservation, int64_t actual);

/* Write the reservation of a request that has been decided. `noted` is what the backend noted, and when the policy's
 * candidate charged; its permits mean nothing. */
void reservation_finish(struct weir_reservation *reservation, struct weir_reservation noted, int64_t cost,
                        const struct weir_decision *decision);

/* Do that for a renewal. A denial leaves the reservation as it was. */
void renewal_finish(struct weir_reservation *reservation, struct weir_reservation noted, int64_t cost,
                    const struct weir_decision *decision);

#endif
