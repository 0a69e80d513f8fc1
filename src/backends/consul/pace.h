/* pace.h - how soon somebody who asks Consul again and again may ask next.
 *
 * After a failure the next request is a second away, after each further one twice as long, up to CONSUL_GAP_MOST_US;
 * each time drawn between that and twice that, so that many instances do not come back at once. Answers are no more
 * than ten a second, and of those that come at once and say nothing new ten in a row are put up with; the next
 * requests are one to two seconds apart.
 *
 * The list of instances is urgent: others wait no longer than their hold-down for this instance to have seen who joins,
 * before they give it what this one has to give up. There every gap is drawn between 1 and 1.5 s and none grows.
 */
#ifndef BACKENDS_CONSUL_PACE_H
#define BACKENDS_CONSUL_PACE_H

#include "core/ground/hash.h"

#include <stdbool.h>

#define CONSUL_GAP_US 1000000
#define CONSUL_GAP_MOST_US 10000000
#define CONSUL_GAP_URGENT_MOST_US 1500000

struct consul_pace {
    struct hash_secret chance;
    uint64_t drawn;
    bool is_urgent;
    unsigned failures; /* in a row */
    unsigned empties;  /* answers in a row that came at once and said nothing new */
    int64_t full_us;   /* when ten answers may come at once again */
};

void consul_pace_init(struct consul_pace *pace, bool is_urgent);

/* When to ask next, on the clock of now_us. */
int64_t consul_pace_failed(struct consul_pace *pace, int64_t now_us);
int64_t consul_pace_answered(struct consul_pace *pace, int64_t asked_us, int64_t now_us, bool is_new);

#endif
