/* flight.c - the requests of a replay that are in flight: they give back permits when they end. */
#include "cli/replay/flight.h"

#include <stdlib.h>

static bool ends_before(const struct flights *flights, size_t a, size_t b)
{
    return flights->heap[a].ends_us < flights->heap[b].ends_us;
}

static void flights_swap(struct flights *flights, size_t a, size_t b)
{
    const struct flight moved = flights->heap[a];
    flights->heap[a] = flights->heap[b];
    flights->heap[b] = moved;
}

static bool flights_push(struct flights *flights, struct flight flight)
{
    if (flights->count == flights->capacity) {
        const size_t capacity = flights->capacity ? 2 * flights->capacity : 64;
        struct flight *grown = realloc(flights->heap, capacity * sizeof *grown);
        if (!grown)
            return false;
        flights->heap = grown;
        flights->capacity = capacity;
    }
    size_t at = flights->count++;
    flights->heap[at] = flight;
    for (; at > 0 && ends_before(flights, at, (at - 1) / 2); at = (at - 1) / 2)
        flights_swap(flights, at, (at - 1) / 2);
    return true;
}

bool flights_add(struct flights *flights, const struct instance *instance, const struct rows *rows,
                 const struct row *row, const struct weir_reservation *reservations)
{
    bool has_room = true;
    for (size_t i = 0; i < instance->limit_count && has_room; i++) {
        const uint32_t number = rows_key_of(rows, row, instance->policies->all[i].key_kind);
        const struct span key = rows_key(rows, number);
        struct weir_policy policy;
        if (reservations[i].permits < 1 ||
            weir_limit_policy_for(instance->limits[i], weir_key(key.data, key.len), &policy) != WEIR_OK ||
            policy.algorithm != WEIR_CONCURRENCY)
            continue;
        has_room = flights_push(flights, (struct flight){ .ends_us = row->time_us + rows->durations_us[row->place],
                                                          .reservation = reservations[i],
                                                          .key = number,
                                                          .limit = (uint32_t)i });
    }
    return has_room;
}

bool flights_end(struct flights *flights, int64_t until_us, struct flight *out)
{
    if (flights->count == 0 || flights->heap[0].ends_us > until_us)
        return false;
    *out = flights->heap[0];
    flights_swap(flights, 0, --flights->count);
    for (size_t at = 0, least;; at = least) {
        least = at;
        for (size_t child = 2 * at + 1; child <= 2 * at + 2 && child < flights->count; child++)
            least = ends_before(flights, child, least) ? child : least;
        if (least == at)
            return true;
        flights_swap(flights, at, least);
    }
}

void flights_free(struct flights *flights)
{
    free(flights->heap);
    *flights = (struct flights){ 0 };
}
