/* modes.h - local, distributed and hybrid mode side by side: what the parts of that table share.
 *
 * A row is one figure. Its columns are the modes, then the floor, measured in the same run: the least that such a
 * decision costs. The last column names the floor. A mode that was not chosen, or cannot be opened, has no column.
 */
#ifndef BENCH_MODES_H
#define BENCH_MODES_H

#include "redis/remote.h"

#define MODES 3

struct modes {
    struct bench *bench;
    struct store *store;   /* the server of distributed and hybrid mode; NULL: there is none */
    bool is_chosen[MODES]; /* by enum weir_mode: chosen, and possible */
    struct plots *plots;   /* NULL: no plots */
};

extern const char *const modes_names[MODES];

/* Begin the table; its sentence says what all rows share. */
void modes_section(const struct modes *modes);

/* Begin a row. */
void modes_row(const struct modes *modes, const char *figure);

/* Set a mode's value in the current row, or the floor's with its name. */
void modes_figure(const struct modes *modes, enum weir_mode mode, const struct sample *sample);
void modes_text(const struct modes *modes, enum weir_mode mode, const char *text);
void modes_floor(const struct modes *modes, const struct sample *sample, const char *what);

/* Open a limiter in that mode as a single program would; see remote_open(). False on failure. */
bool modes_open(const struct modes *modes, enum weir_mode mode, const char *limit, const struct weir_policy *policy,
                struct remote *out);

/* ---- The parts, in order; each adds rows under its own headings ---- */

void modes_speed(struct modes *modes);    /* speed.c: decisions a second, by callers, algorithm, keys; denials */
void modes_pace(struct modes *modes);     /* pace.c: latency of requests that come at random: open loop */
void modes_costs(struct modes *modes);    /* costs.c: calls and CPU time of Redis, memory of both sides */
void modes_accuracy(struct modes *modes); /* accuracy.c: what several processes admit of one limit */
void modes_changes(struct modes *modes);  /* changes.c: one process dies, another one starts */
void modes_gap(struct modes *modes);      /* gap.c: Redis goes away for some seconds */
void modes_log(struct modes *modes);      /* log.c: the user's log, if --log names one */

#endif
