/* plots.h - plots of the results: a table of numbers, and a PNG and an SVG that gnuplot draws from it.
 *
 * NAME.tsv holds the numbers of the plot NAME: a line of column names and a line for each x. Without gnuplot there are
 * only the numbers, and one line on stderr says so. A mode has the same colour in all plots: a series whose name begins
 * with a mode's name has it, and a second series of the same mode is dashed.
 */
#ifndef BENCH_PLOTS_H
#define BENCH_PLOTS_H

#define PLOTS_MAX_SERIES 12

struct plots;

/* Make the folder if it is missing. NULL, with a line on stderr, if that fails. */
struct plots *plots_open(const char *folder);
void plots_close(struct plots *plots); /* NULL is ignored */

enum plots_look {
    PLOTS_LINES,     /* over numbers */
    PLOTS_LINES_LOG, /* the same, y on a logarithmic scale */
    PLOTS_BARS,      /* over words, side by side */
};

/* Begin a plot. The names of its series go into the legend, `name` into the names of its files. All texts are copied. A
 * NULL `plots` draws nothing, here and below. */
void plots_begin(struct plots *plots, const char *name, enum plots_look look, const char *title, const char *x_label,
                 const char *y_label, int series_len, const char *const *series);

/* Add a value of each series at a number or a word x; NAN: none. Numbers ascend. */
void plots_at(struct plots *plots, double x, const double *values);
void plots_at_word(struct plots *plots, const char *x, const double *values);

/* Shade the range from `from_x` to `to_x` in grey behind the lines and name it in the legend. One per plot. */
void plots_shade(struct plots *plots, double from_x, double to_x, const char *what);

/* Write the numbers and draw the picture. */
void plots_end(struct plots *plots);

#endif
