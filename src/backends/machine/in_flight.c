/* in_flight.c - decides about slots, which all processes keep in one area of the file: backends/shared/slots.h.
 *
 * One lock guards the area. Its owner may die at any instruction: the next one finds the area dirty and makes its lists
 * anew. A process that dies in the middle of a group may leave the group's slots or its rates taken. The slots end with
 * their hold.
 */
#include "backends/machine/visit.h"
#include "core/algorithm/algorithm.h"
#include "core/policy/plan.h"

void machine_flight_view(struct machine *machine)
{
    const struct machine_facts *facts = &machine->file.facts;
    slots_view(&machine->slots, machine->file.map + machine_slots_at(facts), machine_slot_keys(facts), WEIR_MAX_SLOTS,
               false);
}

void machine_flight_look_through(struct machine *machine)
{
    atomic_store_explicit(&file_header(&machine->file)->slots_lock, 0, memory_order_relaxed);
    if (machine->slots.head->slots_made > 0)
        slots_repair(&machine->slots);
}

/* Take the lock. WEIR_OK or WEIR_ETIME. */
static int flight_enter(struct machine *machine)
{
    struct machine_header *header = file_header(&machine->file);
    int64_t patience_us = machine->patience_us;
    const enum lock_end end = lock_enter(&machine->file, &header->slots_lock, &patience_us);
    if (end == LOCK_TIMEOUT)
        return WEIR_ETIME;
    const int error = machine_reach(machine);
    if (error) {
        lock_leave(&header->slots_lock);
        return error;
    }
    if (end == LOCK_INHERITED || machine->slots.head->is_dirty)
        slots_repair(&machine->slots);
    return WEIR_OK;
}

/* Give it back. An area whose indices led nowhere is made anew first. */
static void flight_leave(struct machine *machine)
{
    if (machine->slots.is_broken)
        slots_repair(&machine->slots);
    lock_leave(&file_header(&machine->file)->slots_lock);
}

int64_t machine_flight_keys(struct machine *machine)
{
    if (flight_enter(machine) != WEIR_OK)
        return 0;
    const int64_t keys = machine->slots.head->keys;
    flight_leave(machine);
    return keys;
}

static void flight_serve(struct weir_backend *backend, const struct weir_backend_request *request,
                         struct weir_decision *out)
{
    struct machine *machine = (struct machine *)backend;
    slots_serve(&machine->slots, request, machine->on_full, out);
    if (out->source == WEIR_BY_FULL && request->verb != WEIR_PEEK)
        atomic_fetch_add_explicit(&machine->full, 1, memory_order_relaxed);
}

int machine_flight_decide(struct machine *machine, const struct weir_backend_request *request,
                          struct weir_decision *out)
{
    const int error = flight_enter(machine);
    if (error)
        return error;
    flight_serve(&machine->backend, request, out);
    flight_leave(machine);
    return WEIR_OK;
}

int machine_flight_all(struct machine *machine, const struct weir_backend_request *requests, size_t n,
                       struct weir_decision *out)
{
    int error = flight_enter(machine);
    if (error)
        return error;
    error = slots_serve_group(&machine->backend, requests, n, flight_serve, out);
    flight_leave(machine);
    return error;
}

int machine_flight_look(struct machine *machine, const struct weir_backend_request *request, int64_t now_us,
                        bool remove, struct weir_inspected *out)
{
    const int error = flight_enter(machine);
    if (error)
        return error;
    int64_t used = 0, first_us = 0, last_us = 0;
    const int64_t held = slots_look(&machine->slots, request, now_us, &used, &first_us, &last_us);
    if (held > 0) {
        out->found = WEIR_FOUND_STATE;
        out->slots = held;
        out->first_slot_us = first_us;
        out->state.policy = (struct weir_policy){ .algorithm = WEIR_CONCURRENCY };
        out->state.used = used;
        out->state.decision = (struct weir_decision){ .reset_after_us = last_us };
        if (remove)
            slots_forget(&machine->slots, request);
    }
    flight_leave(machine);
    return WEIR_OK;
}

struct flight_walk {
    const char *limit;
    const struct pattern *pattern;
    int64_t now_us;
    int (*visit)(void *user, const struct weir_inspected *key);
    void *user;
    int result;
    struct weir_inspected found;
    unsigned char bytes[SLOTS_KEY_SIZE];
};

/* Copy the key, so that it is visited without the lock. */
static bool flight_copy(void *user, const struct slots *slots, const struct slots_key *key)
{
    struct flight_walk *walk = user;
    const struct weir_key text = slots_key_text(key);
    if (key->len == 0 || key->count == 0)
        return true;
    walk->found = (struct weir_inspected){
        .size = sizeof walk->found, .found = WEIR_FOUND_STATE, .is_cut = key->len > SLOTS_KEY_SIZE, .slots = key->count
    };
    memcpy(walk->bytes, text.data, text.len);
    walk->found.key = weir_key(walk->bytes, text.len);
    memcpy(walk->found.limit, key->name, strnlen(key->name, SLOTS_NAME_SIZE - 1));
    walk->found.state.policy = (struct weir_policy){ .algorithm = WEIR_CONCURRENCY };
    slots_tell_ends(slots, key, walk->now_us, &walk->found.state.used, &walk->found.first_slot_us,
                    &walk->found.state.decision.reset_after_us);
    return walk->found.state.decision.reset_after_us <= 0; /* otherwise this one is visited */
}

int machine_flight_walk(struct machine *machine, const char *limit, const struct pattern *pattern, int64_t now_us,
                        int (*visit)(void *user, const struct weir_inspected *key), void *user)
{
    struct flight_walk walk = { .limit = limit, .pattern = pattern, .now_us = now_us };
    uint32_t place = 0;
    for (int result = WEIR_OK;;) {
        walk.found.size = 0;
        result = flight_enter(machine);
        if (result)
            return result;
        slots_each_key(&machine->slots, &place, flight_copy, &walk);
        flight_leave(machine);
        if (walk.found.size == 0)
            return WEIR_OK;
        place++;
        if (walk.found.state.decision.reset_after_us <= 0 ||
            (limit && strncmp(limit, walk.found.limit, SLOTS_NAME_SIZE - 1) != 0) ||
            (pattern && !pattern_matches(pattern, walk.found.key, walk.found.is_cut)))
            continue;
        result = visit(user, &walk.found);
        if (result)
            return result;
    }
}
