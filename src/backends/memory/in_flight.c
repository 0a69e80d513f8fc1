/* in_flight.c - decides about slots: requests for limits on requests in flight, alone or in a group beside rates.
 *
 * All slots lie in one area (backends/shared/slots.h) under one mutex. The area is mapped with the first slot, as large
 * as the options allow, and takes memory as it is used. What it uses counts in the table's budget, and its keys count
 * among the table's.
 *
 * A group takes its slots first and holds the mutex while the rates decide. If one denies, the slots go again, so no
 * other thread sees them.
 */
#include "backends/memory/in_flight.h"

#include "core/ground/arith.h"

#include <stdlib.h>
#include <sys/mman.h>

#define KEYS_MOST (INT64_C(1) << 22)
#define SLOTS_MOST (INT64_C(1) << 23)
#define SLOTS_FEWEST 1024

struct flight_use {
    int64_t keys, bytes;
};

static struct flight_use flight_use(const struct memory *memory)
{
    const struct slots *slots = &memory->flight.slots;
    return (struct flight_use){ .keys = slots->head->keys, .bytes = slots_used_bytes(slots) };
}

/* Count what has been added to the area, or removed, since it was in this use. */
static void flight_count(struct memory *memory, struct flight_use before)
{
    const struct flight_use now = flight_use(memory);
    if (now.bytes != before.bytes)
        budget_overdraw(&memory->table.budget, now.bytes - before.bytes);
    if (now.keys != before.keys)
        atomic_fetch_add_explicit(&memory->table.keys, now.keys - before.keys, memory_order_relaxed);
}

/* Map the area. */
static int area_make(struct memory *memory)
{
    struct memory_flight *flight = &memory->flight;
    const uint32_t keys = (uint32_t)min_of(memory->table.max_keys + WEIR_MAX_LIMITS,
                                           KEYS_MOST); /* one shared a limit */
    const uint32_t slots = (uint32_t)max_of(
        SLOTS_FEWEST, min_of(memory->table.budget.max / (int64_t)sizeof(struct slots_slot), SLOTS_MOST));
    const size_t bytes = slots_bytes(keys, slots);
    void *area = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (area == MAP_FAILED)
        return WEIR_ENOMEM;
    slots_view(&flight->slots, area, keys, slots, true);
    flight->bytes = bytes;
    atomic_store_explicit(&flight->area, area, memory_order_release);
    return WEIR_OK;
}

void memory_flight_free(struct memory *memory)
{
    struct memory_flight *flight = &memory->flight;
    void *area = atomic_load_explicit(&flight->area, memory_order_relaxed);
    if (area) {
        slots_drop(&flight->slots);
        munmap(area, flight->bytes);
    }
    lock_destroy(&flight->mutex);
}

void memory_flight_forget(struct memory *memory)
{
    if (!atomic_load_explicit(&memory->flight.area, memory_order_relaxed))
        return;
    const struct flight_use before = flight_use(memory);
    slots_drop(&memory->flight.slots);
    flight_count(memory, before);
}

/* Decide one request, in the area. */
static void flight_serve(struct weir_backend *backend, const struct weir_backend_request *request,
                         struct weir_decision *out)
{
    struct memory *memory = (struct memory *)backend;
    const struct table *table = &memory->table;
    struct slots *slots = &memory->flight.slots;
    const struct flight_use before = flight_use(memory);
    slots->keys_most = before.keys + table->max_keys - atomic_load_explicit(&table->keys, memory_order_relaxed);
    slots->bytes_most = before.bytes + table->budget.max - budget_used(&table->budget);
    slots_serve(slots, request, memory->on_full, out);
    flight_count(memory, before);
    if (out->source == WEIR_BY_FULL && request->verb != WEIR_PEEK)
        atomic_fetch_add_explicit(&memory->full, 1, memory_order_relaxed);
}

static int flight_enter(struct memory *memory) TAKES(memory->flight.mutex)
{
    lock_take(&memory->flight.mutex);
    return atomic_load_explicit(&memory->flight.area, memory_order_relaxed) ? WEIR_OK : area_make(memory);
}

int memory_flight_decide(struct memory *memory, const struct weir_backend_request *request, struct weir_decision *out)
{
    const int error = flight_enter(memory);
    if (!error)
        flight_serve(&memory->backend, request, out);
    lock_give(&memory->flight.mutex);
    return error;
}

int memory_flight_each(struct memory *memory, const struct weir_backend_request *requests, size_t n,
                       struct weir_decision *out)
{
    int error = WEIR_OK;
    for (size_t i = 0; i < n && !error; i++)
        error = requests[i].slot
                    ? memory_flight_decide(memory, &requests[i], &out[i])
                    : memory->backend.ops->decide(&memory->backend, &requests[i], 1, false, INT64_MAX, &out[i]);
    return error;
}

int memory_flight_all(struct memory *memory, const struct weir_backend_request *requests, size_t n,
                      struct weir_decision *out)
{
    int error = flight_enter(memory);
    if (!error)
        error = slots_serve_group(&memory->backend, requests, n, flight_serve, out);
    lock_give(&memory->flight.mutex);
    return error;
}

/* ---- For a fallback ---- */

struct flight_listing {
    struct own_slot *out;
    size_t n, most;
    int64_t now_us;
};

static bool flight_list(void *user, const struct slots_key *key, const struct slots_slot *slot)
{
    struct flight_listing *listing = user;
    const int64_t left_us = atomic_load_explicit(&slot->end_us, memory_order_relaxed) - listing->now_us;
    if (listing->n == listing->most)
        return false;
    const struct weir_key text = slots_key_text(key);
    if (left_us <= 0 || text.len == 0)
        return true;
    char *copy = malloc(text.len);
    if (!copy)
        return false;
    memcpy(copy, text.data, text.len);
    listing->out[listing->n++] = (struct own_slot){
        .limit = (struct weir_limit *)(uintptr_t)key->owner,
        .key = weir_key(copy, text.len),
        .id = atomic_load_explicit(&slot->id, memory_order_relaxed),
        .cost = atomic_load_explicit(&slot->cost, memory_order_relaxed),
        .left_us = left_us,
        .end_us = listing->now_us + left_us,
    };
    return true;
}

size_t memory_flight_list(struct weir_backend *backend, uint32_t *place, int64_t now_us, struct own_slot *out,
                          size_t most)
{
    struct memory *memory = (struct memory *)backend;
    struct flight_listing listing = { .out = out, .most = most, .now_us = now_us };
    if (!atomic_load_explicit(&memory->flight.area, memory_order_acquire))
        return 0;
    lock_take(&memory->flight.mutex);
    slots_each(&memory->flight.slots, place, flight_list, &listing);
    lock_give(&memory->flight.mutex);
    return listing.n;
}
