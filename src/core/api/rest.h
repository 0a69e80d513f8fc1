/* rest.h - shares the permits of a limit on requests in flight between processes that wait for them.
 *
 * A process hears of its own releases immediately, and of others' only when it looks, every 100 ms at most. Without a rule,
 * one that takes and releases a single permit all the time would get it every time. The rule: while another process
 * waits for the key, a process whose waiters have been served for REST_US asks for nothing for the next REST_US. In that
 * time the other one looks.
 *
 * A process that waits says so in the store: every NOTE_US / 2 at most it charges a permit of a limit that no program
 * can name, under the limit's name and the key. A process that is being served reads that every REST_US. It knows when
 * it has charged itself. A note that is lost, or read too late, costs a rest or a turn, and no permit.
 */
#ifndef CORE_API_REST_H
#define CORE_API_REST_H

#include "core/api/line.h"

#define REST_SLOTS 64 /* a power of two: keys known at a time; one that takes another's place forgets that one */

/* What is known of a key. All (e) */
struct rest {
    uint64_t hash;          /* of the key */
    int64_t since_us;       /* when a waiter was served first, since the last rest; 0: none was */
    int64_t until_us;       /* the rest */
    int64_t noted_us;       /* when this process last noted that it waits, */
    int64_t noted_until_us; /* and until when that note stands */
};

struct rests {
    struct rest slots[REST_SLOTS];
    struct weir_limit *notes; /* made by the first note */
};

/* Return the time until which this process must not ask for the key; 0: it may now. May ask the store. No lock is held.
 */
int64_t rest_until_us(struct weir *limiter, const struct line_waiter *at);

/* A waiter has got its permits, or must wait for them. No lock is held; the second may ask the store. */
void rest_served(struct weir *limiter, const struct line_waiter *at);
void rest_note_waiting(struct weir *limiter, const struct line_waiter *at);

void rests_free(struct rests *rests);

#endif
