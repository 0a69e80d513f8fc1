/* top_keys.h - the keys that are denied most, in bounded memory.
 *
 * It keeps a count for each of up to `room` keys. A key that has none takes over the smallest count when all are in
 * use, and its error is then that count: it was denied at least `count - error` times and at most `count` times. A key
 * that has more than 1 / room of all denials is always among them. (Metwally, Agrawal, El Abbadi, "Efficient
 * computation of frequent and top-k elements in data streams", 2005: "space saving".)
 *
 * Denials that take tens of nanoseconds must not wait for each other here. So a thread counts one in TOP_KEYS_SAMPLE of
 * them, with that weight, unless its last denial in memory is TOP_KEYS_CALM_US ago. The estimate is right on average.
 */
#ifndef CORE_LIMITER_TOP_KEYS_H
#define CORE_LIMITER_TOP_KEYS_H

#include "core/limiter/limiter.h"

#include <weir/backend.h>

#define TOP_KEYS_SAMPLE 32
#define TOP_KEYS_CALM_US 100

/* Make a sketch of `room` keys. NULL: out of memory. */
struct top_keys *top_keys_make(size_t room, bool in_clear);
void top_keys_free(struct top_keys *top);

/* Hold the sketch during a fork. */
void top_keys_hold(struct top_keys *top);
void top_keys_go_on(struct top_keys *top);

/* Count a denial, or leave it to others. */
void top_keys_note(struct top_keys *top, const struct weir_backend_request *request,
                   const struct weir_decision *decision);

/* Write up to `room` keys, the one denied most first, and return their number. `restart`: forget all keys. */
size_t top_keys_read(struct top_keys *top, struct weir_top_key *out, size_t room, bool restart);

/* Forget the keys of a limit. */
void top_keys_forget(struct top_keys *top, const struct weir_limit *limit);

/* Count the answer to a request if it is a denial, or would be one without a shadow. */
static inline void top_keys_count(const struct weir_backend_request *request, const struct weir_decision *decision)
{
    if (__builtin_expect(decision->allowed && !decision->would_deny, 1))
        return;
    struct top_keys *top = request->limit->limiter->top_keys;
    if (top)
        top_keys_note(top, request, decision);
}

#endif
