/* events.h - tells weir_options.event what happens to keys, policies, shares and the backend.
 *
 * A limiter without the hook has no struct events, and a decision pays for one branch; in local mode it pays for none,
 * because ask_plain() is for limiters without the hook. Whether a key was near its limit, or admitted, before this
 * decision: the first follows from the decision and its cost, the second is kept for the keys that were denied last, in
 * a table without locks. Threads that race for a place of the table may report an event too much or too little.
 *
 * No caller holds a lock of the limiter: with events_at_once the hook is called right here.
 */
#ifndef CORE_LIMITER_EVENTS_H
#define CORE_LIMITER_EVENTS_H

#include "core/limiter/limiter.h"

#include <weir/backend.h>

#define EVENT_PLACES 4096
#define EVENT_WAYS 4 /* places in which a key may be, by its hash */

/* Make it for options with the hook. NULL: out of memory. */
struct events *events_make(const struct weir_options *options);

/* Wait until the hook has got all events, and free it. NULL is ignored. */
void events_free(struct events *events);

/* Return how many events are lost. `events` may be NULL. */
uint64_t events_lost(const struct events *events);

/* Report an event if the limiter has the hook. event->at_us is filled unless `kind` is about a key. */
void events_tell(struct weir *limiter, struct weir_event *event);

/* Report what limits_policies() has found changed; between two reports the mutex is free. */
void events_tell_policies(struct weir *limiter);

/* Report what an answer to a request to take permits means for its key. */
void events_look(const struct weir_backend_request *request, const struct weir_decision *decision);

/* Do that if the limiter has the hook. */
static inline void events_note(const struct weir_backend_request *request, const struct weir_decision *decision)
{
    if (__builtin_expect(request->limit->limiter->events != NULL, 0))
        events_look(request, decision);
}

#endif
