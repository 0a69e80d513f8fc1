/* plots.h - pictures of what was measured: a table of numbers, and a PNG and an SVG that gnuplot draws of it.
 *
 * The numbers of the plot NAME are in NAME.tsv, a line of column names and one for each x, so that anyone can draw them
 * another way. Without gnuplot that is all there is, and it is said so, once. A mode has one colour in all pictures:
 * a series whose name begins with a mode's has it, and a second one of the same mode is dashed.
 */
#ifndef BENCH_PLOTS_H
#define BENCH_PLOTS_H

#define PLOTS_MAX_SERIES 12

struct plots;

/* The folder is made if it is not there. NULL, with a line on stderr, if that cannot be done. */
struct plots *plots_open(const char *folder);
void plots_close(struct plots *plots); /* NULL is fine */

enum plots_look {
    PLOTS_LINES,     /* over a number */
    PLOTS_LINES_LOG, /* the same, y on a logarithmic scale */
    PLOTS_BARS,      /* over words, side by side */
};

/* Begin a plot with so many series, named as the legend shall have them; its name becomes that of files. All texts are
 * copied. Of a NULL `plots` nothing is drawn. */
void plots_begin(struct plots *plots, const char *name, enum plots_look look, const char *title, const char *x_label,
                 const char *y_label, int series_len, const char *const *series);

/* Where x is a number, a value for each series; NAN: none. Where x is a word, likewise. Numbers ascend. */
void plots_at(struct plots *plots, double x, const double *values);
void plots_at_word(struct plots *plots, const char *x, const double *values);

/* A time during which something held, as a grey field behind the lines, named in the legend. One a plot. */
void plots_shade(struct plots *plots, double from_x, double to_x, const char *what);

/* Write the numbers and draw the picture. */
void plots_end(struct plots *plots);

#endif
