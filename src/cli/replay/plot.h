/* plot.h - admitted and denied requests over time, drawn by gnuplot. */
#ifndef WEIR_CLI_PLOT_H
#define WEIR_CLI_PLOT_H

#include "cli/replay/input/rows.h"

struct plot_bin {
    uint32_t admitted, denied;
};

struct plot {
    int64_t first_us, last_us;  /* of the input */
    int64_t begin_us, width_us; /* of the first bin; of each bin */
    size_t count;
    struct plot_bin *bins;
};

/* Cut the rows' time into some 80 to 200 bins. There must be a row. False: out of memory. */
bool plot_start(struct plot *plot, const struct rows *rows);
void plot_add(struct plot *plot, int64_t time_us, bool is_admitted);

/* Draw the plot, see gnuplot.h. Return EXIT_OK, or EXIT_FAILED after a complaint. */
int plot_write(const struct plot *plot, const char *path, const char *title);

void plot_free(struct plot *plot);

#endif
