/* modes.h - the modes side by side: what the parts of that table share.
 *
 * A row is one figure. Its columns are the modes, then the floor, measured in the same run: the least that such a
 * decision costs. The last column names the floor. A mode that was not chosen, or cannot be opened, has no column.
 *
 * Traffic is ordinary unless a row says otherwise: keys are addresses and UUIDs, limits are of four kinds, and leases
 * live as long as they do by default.
 */
#ifndef BENCH_MODES_H
#define BENCH_MODES_H

#include "redis/remote.h"

#define MODES 4

struct modes {
    struct bench *bench;
    struct store *store;   /* the server of distributed and hybrid mode; NULL: there is none */
    bool is_chosen[MODES]; /* by enum weir_mode: chosen, and possible */
};

extern const char *const modes_names[MODES];

/* True if that mode counts in Redis. */
static inline bool modes_asks_redis(enum weir_mode mode)
{
    return mode == WEIR_DISTRIBUTED || mode == WEIR_HYBRID;
}

/* Begin a row. */
void modes_row(const struct modes *modes, const char *figure);

/* Set a mode's value in the current row, or the floor's with its name. */
void modes_figure(const struct modes *modes, enum weir_mode mode, const struct sample *sample);
void modes_text(const struct modes *modes, enum weir_mode mode, const char *text);
void modes_floor(const struct modes *modes, const struct sample *sample, const char *what);

/* Begin curves, one a chosen mode, and one named `last` unless it is NULL. `values` of report_point() follow them. */
void modes_curves(const struct modes *modes, struct report_curves curves, const char *last);

/* Open a limiter in that mode as a single program would; see remote_open(). If that fails, stop measuring the mode,
 * say why, and return false. */
bool modes_open(struct modes *modes, enum weir_mode mode, const char *limit, const struct weir_policy *policy,
                struct remote *out);

/* ---- The parts, in order; each adds rows under its own headings ---- */

void modes_speed(struct modes *modes);  /* speed.c: decisions a second of callers that wait for each */
void modes_pace(struct modes *modes);   /* pace.c: latency of requests that come at random, and what they cost Redis */
void modes_memory(struct modes *modes); /* memory.c: on both sides */
void modes_accuracy(struct modes *modes); /* accuracy.c: what several processes admit of one limit */
void modes_gap(struct modes *modes);      /* gap.c: Redis goes away for some seconds */
void modes_log(struct modes *modes);      /* log.c: the user's log, if --log names one */

/* Return how often the accuracy is measured, and how often Redis dies. */
int accuracy_runs(const struct bench *bench);
int gap_count(const struct modes *modes);

#endif
