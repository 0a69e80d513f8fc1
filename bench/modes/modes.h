/* modes.h - local, distributed and hybrid mode side by side: what the parts of that one table share.
 *
 * A row is one figure, and its columns are the modes, then the floor that stands beside them: what a decision of that
 * kind cannot do without, measured in the same run, and in the last column its name. A mode that was not asked for, or
 * cannot be had, has no column.
 */
#ifndef BENCH_MODES_H
#define BENCH_MODES_H

#include "redis/remote.h"

#define MODES 3

struct modes {
    struct bench *bench;
    struct store *store;   /* what distributed and hybrid mode are measured on; NULL: they cannot be had */
    bool is_chosen[MODES]; /* by enum weir_mode: asked for, and to be had */
    struct plots *plots;   /* where pictures go; NULL: nowhere */
};

extern const char *const modes_names[MODES];

/* Begins the table, whose sentence says what all rows share. */
void modes_section(const struct modes *modes);

/* A row of it. */
void modes_row(const struct modes *modes, const char *figure);

/* In the current row: a mode's value, and the floor's with what it is. */
void modes_figure(const struct modes *modes, enum weir_mode mode, const struct sample *sample);
void modes_text(const struct modes *modes, enum weir_mode mode, const char *text);
void modes_floor(const struct modes *modes, const struct sample *sample, const char *what);

/* A limiter in that mode as one program alone would open it; see remote_open(). False: it cannot be had. */
bool modes_open(const struct modes *modes, enum weir_mode mode, const char *limit, const struct weir_policy *policy,
                struct remote *out);

/* ---- The parts, in their order: each adds its rows under headings of its own ---- */

void modes_speed(struct modes *modes);    /* speed.c: decisions a second, by callers, algorithm, keys; denials */
void modes_pace(struct modes *modes);     /* pace.c: latency where requests come when they come: open loop */
void modes_costs(struct modes *modes);    /* costs.c: calls and CPU time of Redis, memory of both sides */
void modes_accuracy(struct modes *modes); /* accuracy.c: what several processes admit of one limit */
void modes_changes(struct modes *modes);  /* changes.c: one of them dies, another one comes */
void modes_gap(struct modes *modes);      /* gap.c: Redis goes away for some seconds */
void modes_log(struct modes *modes);      /* log.c: a log of the user's, if --log names one */

#endif
