/* gap.h - Redis dies while requests keep coming, and comes back: the requests, and what their answers show. */
#ifndef BENCH_GAP_H
#define BENCH_GAP_H

#include "modes/modes.h"

#define GAP_KEYS 10
#define GAP_LIMIT 50  /* permits a second for each key */
#define GAP_BURST 20  /* each instance's part is at least one */
#define GAP_DEMAND 2  /* times the limit */
#define GAP_CALLERS 2 /* per instance: one may still wait when the next request is due */
#define GAP_MAX_CALLERS (GAP_CALLERS * BENCH_MAX_INSTANCES)
#define GAP_TIMEOUT_MS 50

struct visit { /* a request; times are nanoseconds of CLOCK_MONOTONIC */
    int64_t due_ns, start_ns, end_ns;
    int key, instance;
    bool is_failed, is_allowed;
    uint8_t source; /* enum weir_source */
};

struct visitor { /* a caller */
    weir_limit *limit;
    struct visit *visits;
    size_t visits_len;
};

struct gap { /* one gap */
    int64_t start_ns, end_ns;
    int64_t dead_ns; /* the server is killed */
    int64_t back_ns; /* it has been restarted and answers */
    int instances;   /* of each mode */
    int shared_fd;   /* of machine mode's memory */
    char shared[REMOTE_SHARED_SIZE];
    struct remote remotes[MODES][BENCH_MAX_INSTANCES];
    struct visitor visitors[MODES][GAP_MAX_CALLERS];
};

/* ---- gap_found.c ---- */

struct gap_found { /* of a mode, one value per gap */
    struct sample longest_ms, p99_us, last_ms, away_percent, over;
    uint64_t failed, never; /* failed calls; instances for which Redis did not decide again */
};

void gap_find(const struct gap *gap, enum weir_mode mode, struct gap_found *found);

/* Add curves of latency and admissions over time. */
void gap_draw(const struct modes *modes, const struct gap *gap);

#endif
