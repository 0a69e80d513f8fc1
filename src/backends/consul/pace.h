/* pace.h - limits how often weir asks Consul.
 *
 * After a failure the next request comes a second later, and after each further failure twice as late, up to
 * CONSUL_GAP_MOST_US. Each gap is drawn at random between that and twice that, so that many instances do not
 * return together. Answers are limited to ten a second. Ten answers in a row may come immediately without news;
 * after that, requests are one to two seconds apart.
 *
 * The list of instances is urgent: after their hold-down, other instances assume that this one has seen who
 * joined and has given up part of its share. So its gaps are drawn between 1 and 1.5 s, and none grows.
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
    unsigned failures; /* failures in a row */
    unsigned empties;  /* immediate answers in a row without news */
    int64_t full_us;   /* the time at which ten answers may come together again */
};

void consul_pace_init(struct consul_pace *pace, bool is_urgent);

/* Return when to ask next, on the clock of now_us. */
int64_t consul_pace_failed(struct consul_pace *pace, int64_t now_us);
int64_t consul_pace_answered(struct consul_pace *pace, int64_t asked_us, int64_t now_us, bool is_new);

#endif
