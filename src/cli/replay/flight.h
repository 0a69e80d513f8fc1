/* flight.h - the requests of a replay that are in flight: they give back permits when they end.
 *
 * A heap by the time of the end; 40 bytes a request and limit.
 */
#ifndef WEIR_CLI_FLIGHT_H
#define WEIR_CLI_FLIGHT_H

#include "cli/replay/instance.h"

struct flight {
    int64_t ends_us;
    struct weir_reservation reservation;
    uint32_t key, limit; /* their numbers */
};

struct flights {
    struct flight *heap; /* the one that ends first is at 0 */
    size_t count, capacity;
};

/* Add what a row that was admitted has reserved of limits on requests in flight. False: out of memory. */
bool flights_add(struct flights *flights, const struct instance *instance, const struct rows *rows,
                 const struct row *row, const struct weir_reservation *reservations);

/* Take out the request that ends first, if it ends by `until_us`. False: none does. */
bool flights_end(struct flights *flights, int64_t until_us, struct flight *out);

void flights_free(struct flights *flights);

#endif
