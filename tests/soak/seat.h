/* seat.h - a limiter of one mode in one process, and the threads that call it. */
#ifndef SOAK_SEAT_H
#define SOAK_SEAT_H

#include "soak.h"

#include <pthread.h>

enum { WORKERS = 2, SENT = 8, GROUP = 3, NAMED_KEYS = HOT_KEYS + TURNED_KEYS };

struct asked { /* a key of a limit */
    int limit;
    uint32_t key;
    char text[24];
};

struct sent { /* a request of weir_submit() */
    struct weir_op op;
    struct asked asked[GROUP]; /* of a group; otherwise one */
    struct weir_request requests[GROUP];
    struct worker *worker;
    int64_t start_us;
    atomic_bool busy;
};

struct worker {
    struct seat *seat;
    int number;
    uint64_t chance;
    pthread_t thread;
    struct sent sent[SENT];
};

struct seat {
    struct ledger *ledger;
    int process, mode;
    weir *limiter;
    weir_limit *limits[LIMITS];
    weir_handle *handles[LIMITS][NAMED_KEYS];
    atomic_bool halted;
    /* The answers that callers have seen since the limiter was opened, to be compared with weir_stats. */
    _Atomic int64_t allowed, denied, errors, fallbacks;
    struct worker workers[WORKERS];
};

static inline struct tally *seat_tally(const struct seat *seat)
{
    return &seat->ledger->accounts[seat->process].tallies[seat->mode];
}

/* Open the limiter, and close it. Return 0, or -1 with a complaint and nothing left behind. */
int seat_open(struct seat *seat, struct ledger *ledger, int process, int mode);
void seat_close(struct seat *seat);

/* Start the threads; end them, and compare the stats with what they saw. Return 0, or -1 with a complaint. */
int seat_start(struct seat *seat);
int seat_end(struct seat *seat);

/* calls.c: make a random request. */
void call_any(struct worker *worker);

#endif
