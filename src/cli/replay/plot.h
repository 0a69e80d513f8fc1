/* plot.h - admitted and denied requests over time, drawn by gnuplot.
 *
 * Requests are counted as they come, without knowing how long the input is. The bins begin at a microsecond each. When
 * they become too many, they merge into wider ones. Every width that the plot can still get is a multiple of the bins'
 * width, so the plot is the same as if its width had been known from the start.
 */
#ifndef WEIR_CLI_PLOT_H
#define WEIR_CLI_PLOT_H

#include "cli/replay/input/rows.h"

#define PLOT_BINS 512 /* while requests are counted; more only if a bin is a day */

struct plot_bin {
    uint32_t admitted, denied;
};

struct plot {                   /* starts as all zero */
    int64_t first_us, last_us;  /* of the requests */
    int64_t begin_us, width_us; /* of the first bin; of each bin */
    size_t count, capacity;     /* of the bins */
    struct plot_bin *bins;
    bool has_parts; /* some time is not a whole second */
};

/* Count requests. False: out of memory. */
bool plot_add(struct plot *plot, int64_t time_us, struct plot_bin requests);

/* After the last request, merge the bins into some 80 to 200. There must be a request. */
void plot_finish(struct plot *plot);

/* Draw the plot, see gnuplot.h. Return EXIT_OK, or EXIT_FAILED after a complaint. */
int plot_write(const struct plot *plot, const char *path, const char *title);

void plot_free(struct plot *plot);

#endif
