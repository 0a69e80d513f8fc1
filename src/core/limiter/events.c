/* events.c - finds out what is worth reporting, and passes it to the hook. */
#include "core/limiter/events.h"

#include "core/ground/arith.h"
#include "core/ground/hook_queue.h"
#include "core/limiter/figures.h"
#include "core/limiter/limits.h"

#include <stdlib.h>

/* A key of which something was reported. All are relaxed: they order nothing. Times are plus 1; 0: never. */
struct event_place {
    _Atomic uint64_t hash;
    _Atomic int64_t near_us, denied_us; /* the last reports */
    atomic_bool is_denied;              /* its last answer was a denial */
};

/* (c) constant, (a) atomic */
struct events {
    struct event_hook hook; /* (c) */
    bool at_once, in_clear; /* (c) */
    _Atomic uint64_t lost;  /* (a) */
    struct event_place places[EVENT_PLACES];
};

struct events *events_make(const struct weir_options *options)
{
    struct events *events = calloc(1, sizeof *events);
    if (!events)
        return NULL;
    events->hook = (struct event_hook){ options->event, options->user };
    events->at_once = options->events_at_once;
    events->in_clear = options->events_in_clear;
    return events;
}

void events_free(struct events *events)
{
    if (events)
        hook_queue_settle_events(&events->hook);
    free(events);
}

uint64_t events_lost(const struct events *events)
{
    return events ? atomic_load_explicit(&events->lost, memory_order_relaxed) : 0;
}

static void event_send(struct events *events, const struct weir_event *event)
{
    if (events->at_once)
        events->hook.tell(events->hook.user, event);
    else if (!hook_queue_put_event(&events->hook, event))
        atomic_fetch_add_explicit(&events->lost, 1, memory_order_relaxed);
}

static int64_t event_time(const struct weir *limiter)
{
    return max_of(0, min_of(clock_now_us(&limiter->clock), WEIR_MAX_TIME_US));
}

void events_tell(struct weir *limiter, struct weir_event *event)
{
    if (!limiter->events)
        return;
    event->at_us = event_time(limiter);
    event_send(limiter->events, event);
}

/* ---- Keys ---- */

static void event_tell_key(const struct weir_backend_request *request, const struct weir_decision *decision,
                           enum weir_event_kind kind, int64_t at_us)
{
    struct events *events = request->limit->limiter->events;
    struct weir_event event = { .kind = kind, .at_us = at_us };
    event.key = (struct weir_event_key){
        .limit = request->limit,
        .hash = request->hash,
        .key_len = events->in_clear ? request->key.len : 0,
        .cost = request->cost,
        .decision = *decision,
    };
    if (events->in_clear)
        memcpy(event.key.key, request->key.data, (size_t)min_of((int64_t)request->key.len, WEIR_TOP_KEY_SIZE));
    event_send(events, &event);
}

static int64_t place_last_us(const struct event_place *place)
{
    return max_of(atomic_load_explicit(&place->near_us, memory_order_relaxed),
                  atomic_load_explicit(&place->denied_us, memory_order_relaxed));
}

/* Return the key's place, or the one among those of its hash whose last report is oldest. */
static struct event_place *place_find(struct events *events, uint64_t hash, bool *is_its)
{
    struct event_place *set = &events->places[hash % (EVENT_PLACES / EVENT_WAYS) * EVENT_WAYS], *oldest = set;
    for (size_t i = 0; i < EVENT_WAYS; i++) {
        *is_its = atomic_load_explicit(&set[i].hash, memory_order_relaxed) == hash;
        if (*is_its)
            return &set[i];
        if (place_last_us(&set[i]) < place_last_us(oldest))
            oldest = &set[i];
    }
    return oldest;
}

/* Give the place to a key that is not there yet. */
static void place_take_over(struct event_place *place, uint64_t hash)
{
    atomic_store_explicit(&place->hash, hash, memory_order_relaxed);
    atomic_store_explicit(&place->near_us, 0, memory_order_relaxed);
    atomic_store_explicit(&place->denied_us, 0, memory_order_relaxed);
    atomic_store_explicit(&place->is_denied, false, memory_order_relaxed);
}

/* True if it is time for a report again; then note this one. */
static bool event_is_due(_Atomic int64_t *last, int64_t at_us)
{
    const int64_t last_us = atomic_load_explicit(last, memory_order_relaxed) - 1;
    if (last_us >= 0 && at_us >= last_us && at_us - last_us < WEIR_EVENT_GAP_US)
        return false;
    atomic_store_explicit(last, at_us + 1, memory_order_relaxed);
    return true;
}

/* True if the admission left less than a tenth of the limit, and without it there was more. */
static bool event_is_near(const struct weir_backend_request *request, const struct weir_decision *decision)
{
    return decision->remaining * FIGURES_NEAR < decision->limit &&
           (decision->remaining + request->cost) * FIGURES_NEAR >= decision->limit;
}

void events_look(const struct weir_backend_request *request, const struct weir_decision *decision)
{
    struct weir *limiter = request->limit->limiter;
    const bool is_denied = !decision->allowed || decision->would_deny;
    bool is_its;
    struct event_place *place = place_find(limiter->events, request->hash, &is_its);
    if (!is_denied && is_its)
        atomic_store_explicit(&place->is_denied, false, memory_order_relaxed);
    if (!is_denied && !event_is_near(request, decision))
        return;
    if (!is_its)
        place_take_over(place, request->hash);
    if (is_denied && atomic_exchange_explicit(&place->is_denied, true, memory_order_relaxed))
        return;
    const int64_t at_us = request->now_us == WEIR_OWN_CLOCK ? event_time(limiter) : request->now_us;
    if (event_is_due(is_denied ? &place->denied_us : &place->near_us, at_us))
        event_tell_key(request, decision, is_denied ? WEIR_EVENT_DENIED : WEIR_EVENT_NEAR, at_us);
}

/* ---- Policies ---- */

/* Find the next limit or override after `previous` whose change was not reported, and fill the event. */
static struct weir_limit *event_find_policy(struct weir *limiter, struct weir_limit *previous, struct weir_event *event)
{
    lock_take(&limiter->mutex);
    struct weir_limit *target = limits_next_changed(limiter, previous);
    if (target) {
        event->policy = (struct weir_event_policy){
            .limit = target,
            .has_ended = !limits_is_in_force(target),
            .policy = target->policy,
        };
        target->is_untold = false;
    }
    lock_give(&limiter->mutex);
    return target;
}

void events_tell_policies(struct weir *limiter)
{
    if (!limiter->events)
        return;
    struct weir_event event = { .kind = WEIR_EVENT_POLICY };
    for (struct weir_limit *target = NULL; (target = event_find_policy(limiter, target, &event));)
        events_tell(limiter, &event);
}
