/* origin.h - where the permits of a state come from that was made from a state under another plan: pure functions.
 *
 * A state that is made from another one at time c counts its permits as charged at c. So a return of permits that were
 * charged before c would not find them, or would find too many: the former plan had its own rate. The origin says what
 * of them is in the state. docs/design/semantics.md, "A return after another plan", has the definition and the proof.
 *
 *     a return of `cost` permits that were charged at `since` < c:
 *     counted = since >= edge ? cost : rate_us == 0 ? 0 : max(0, cost - ceil((edge - since) * rate / rate_us))
 *     part = min(counted, rest);  cost = min(rest, held) - min(rest - part, held);  rest -= part
 *     since = max(since, from)
 *
 * `rest` is what was in use at c and has not been returned since; `held` is how many of them the new plan could hold.
 */
#ifndef CORE_ALGORITHM_ORIGIN_H
#define CORE_ALGORITHM_ORIGIN_H

#include <weir/backend.h>

#include <stddef.h>

/* Stored as words, in this order. All are below 2^53. */
struct origin {
    int64_t made_us; /* c */
    int64_t from_us; /* permits charged before this count as charged then: c, or 0 if the state kept its times */
    int64_t edge_us; /* permits charged from here on were all in use at c, if nothing else returned them */
    int64_t rate,
        rate_us; /* of those charged before, `rate` had drained in each `rate_us` up to the edge. 0: all had */
    int64_t rest, held;
    int64_t until_us; /* after this it means nothing */
};
#define ORIGIN_WORDS (sizeof(struct origin) / sizeof(int64_t))

/* A state, the plan under which it was written, and the ORIGIN_WORDS of its origin or NULL; a NULL `plan` means none. */
struct written {
    const struct weir_plan *plan;
    const int64_t *state;
    const int64_t *origin;
};

/* True if a state under `to` that is made from `from`, in which `used` permits are in use, needs an origin: permits
 * count from another time or drain at another rate, some find no room, or there was an origin before. */
bool origin_is_needed(const struct written *from, const struct weir_plan *to, int64_t used);

/* Return all of the origin of a state under `to` that is going to be made at `now_us` from `from`, except `rest` and
 * `held`, which are what earlier plans could not hold, and 0. Its permits will count as charged at `made_us`. */
struct origin origin_begin(const struct written *from, const struct weir_plan *to, int64_t now_us, int64_t made_us);

/* Add the permits in use in the state that was made. */
void origin_complete(struct origin *origin, const struct weir_plan *from, const struct weir_plan *to,
                     const int64_t *state, int64_t used);

/* True if these words can be an origin. */
bool origin_is_sound(const int64_t words[ORIGIN_WORDS]);

/* True if the origin means nothing any more: all that the state was made with has left it. */
bool origin_is_over(const struct origin *origin, const struct weir_plan *plan, const int64_t *state, int64_t now_us);

/* Return how many of `cost` permits are in the state, which is under `plan`, and move *since_us to when they count as charged there. They
 * count as returned from then on. */
int64_t origin_return(struct origin *origin, const struct weir_plan *plan, int64_t cost, int64_t *since_us);

#endif
