/* plots.c - plots of the results: see plots.h.
 *
 * A plot stays in memory until it ends. If a plot cannot be written or drawn, a line on stderr says so and the run goes
 * on: the table holds the results.
 */
#include "report/plots.h"

#include <assert.h>
#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/cli.h"
#include "cli/replay/gnuplot.h"
#include "measure/say.h"

#define MAX_TEXT 120
#define MAX_POINTS 4096
#define MAX_PATH 4096
#define WIDTH 1200
#define HEIGHT 700

struct point {
    double x; /* or the word's place */
    double values[PLOTS_MAX_SERIES];
};

struct plots {
    const char *folder;
    bool is_gnuplot_missing;
    /* The current plot: */
    enum plots_look look;
    char name[MAX_TEXT / 2], title[MAX_TEXT], x_label[MAX_TEXT], y_label[MAX_TEXT];
    int series_len, points_len;
    char series[PLOTS_MAX_SERIES][MAX_TEXT];
    struct point points[MAX_POINTS];
    char words[MAX_POINTS][MAX_TEXT / 2]; /* the names of groups of bars */
    char shade[MAX_TEXT];                 /* empty: none */
    double shade_from, shade_to;
};

/* Okabe and Ito's colours, distinguishable with any colour vision: the modes' first. */
static const struct {
    const char *begins, *colour;
} COLOURS[] = {
    { "local", "#0072b2" }, { "distributed", "#d55e00" }, { "hybrid", "#009e73" }, { NULL, "#cc79a7" },
    { NULL, "#e69f00" },    { NULL, "#56b4e9" },          { NULL, "#000000" },
};
#define COLOURS_LEN ((int)(sizeof COLOURS / sizeof COLOURS[0]))
#define MODES_COLOURS 3

struct plots *plots_open(const char *folder)
{
    if (mkdir(folder, 0777) != 0 && errno != EEXIST) {
        complain("no plots: cannot make the folder %s: %s", folder, strerror(errno));
        return NULL;
    }
    struct plots *plots = calloc(1, sizeof *plots);
    if (plots)
        plots->folder = folder;
    else
        complain("no plots: no memory");
    return plots;
}

void plots_close(struct plots *plots)
{
    free(plots);
}

void plots_begin(struct plots *plots, const char *name, enum plots_look look, const char *title, const char *x_label,
                 const char *y_label, int series_len, const char *const *series)
{
    if (!plots)
        return;
    assert(series_len >= 1 && series_len <= PLOTS_MAX_SERIES);
    plots->look = look;
    plots->series_len = series_len;
    plots->points_len = 0;
    plots->shade[0] = '\0';
    snprintf(plots->name, sizeof plots->name, "%s", name);
    snprintf(plots->title, sizeof plots->title, "%s", title);
    snprintf(plots->x_label, sizeof plots->x_label, "%s", x_label);
    snprintf(plots->y_label, sizeof plots->y_label, "%s", y_label);
    for (int i = 0; i < series_len; i++)
        snprintf(plots->series[i], sizeof plots->series[i], "%s", series[i]);
}

void plots_at(struct plots *plots, double x, const double *values)
{
    if (!plots)
        return;
    if (plots->points_len == MAX_POINTS)
        bench_fail("plot %s: more than %d points", plots->name, MAX_POINTS);
    struct point *point = &plots->points[plots->points_len++];
    point->x = x;
    memcpy(point->values, values, (size_t)plots->series_len * sizeof *values);
}

void plots_at_word(struct plots *plots, const char *x, const double *values)
{
    if (!plots)
        return;
    plots_at(plots, plots->points_len, values);
    snprintf(plots->words[plots->points_len - 1], sizeof plots->words[0], "%s", x);
}

void plots_shade(struct plots *plots, double from_x, double to_x, const char *what)
{
    if (!plots)
        return;
    plots->shade_from = from_x;
    plots->shade_to = to_x;
    snprintf(plots->shade, sizeof plots->shade, "%s", what);
}

/* ---- The numbers ---- */

static bool write_numbers(const struct plots *plots, const char *path)
{
    FILE *file = fopen(path, "w");
    if (!file) {
        complain("%s: %s", path, strerror(errno));
        return false;
    }
    fputs(plots->x_label, file);
    for (int i = 0; i < plots->series_len; i++)
        fprintf(file, "\t%s", plots->series[i]);
    for (int row = 0; row < plots->points_len; row++) {
        if (plots->look == PLOTS_BARS)
            fprintf(file, "\n%s", plots->words[row]);
        else
            fprintf(file, "\n%.9g", plots->points[row].x);
        for (int i = 0; i < plots->series_len; i++)
            if (isnan(plots->points[row].values[i]))
                fputc('\t', file);
            else
                fprintf(file, "\t%.9g", plots->points[row].values[i]);
    }
    fputc('\n', file);
    bool failed = ferror(file) != 0;
    if (fclose(file) == 0 && !failed)
        return true;
    complain("%s: cannot write the numbers", path);
    return false;
}

/* ---- The picture ---- */

static int colour_of(const struct plots *plots, int series)
{
    for (int mode = 0; mode < MODES_COLOURS; mode++)
        if (strncmp(plots->series[series], COLOURS[mode].begins, strlen(COLOURS[mode].begins)) == 0)
            return mode;
    int others = 0; /* the other series before this one */
    for (int i = 0; i < series; i++)
        others += colour_of(plots, i) >= MODES_COLOURS;
    return MODES_COLOURS + others % (COLOURS_LEN - MODES_COLOURS);
}

static int dashes_of(const struct plots *plots, int series)
{
    int dashes = 1;
    for (int i = 0; i < series; i++)
        dashes += colour_of(plots, i) == colour_of(plots, series);
    return dashes;
}

static void write_data(FILE *script, const struct plots *plots)
{
    fputs("$data << END\n", script);
    for (int row = 0; row < plots->points_len; row++) {
        fprintf(script, "%.9g", plots->points[row].x);
        for (int i = 0; i < plots->series_len; i++) {
            if (isnan(plots->points[row].values[i]))
                fputs(" NaN", script);
            else
                fprintf(script, " %.9g", plots->points[row].values[i]);
        }
        fputc('\n', script);
    }
    fputs("END\n", script);
}

static void write_text(FILE *script, const char *what, const char *text)
{
    fprintf(script, "set %s ", what);
    gnuplot_write_quoted(script, text);
    fputs(" noenhanced\n", script);
}

/* Draw the shade as a rectangle. write_series() adds an empty series of its colour for the legend. */
static void write_shade(FILE *script, const struct plots *plots)
{
    if (plots->shade[0] == '\0')
        return;
    fprintf(script,
            "set object rectangle from first %.9g, graph 0 to first %.9g, graph 1 behind fc rgb '#dddddd' fs solid "
            "noborder\n",
            plots->shade_from, plots->shade_to);
}

static void write_words(FILE *script, const struct plots *plots)
{
    fputs("set style data histograms\nset style histogram clustered gap 1\nset style fill solid 0.9 noborder\n"
          "set boxwidth 0.9\nset yrange [0:*]\nset xtics (",
          script);
    for (int row = 0; row < plots->points_len; row++) {
        fputs(row > 0 ? ", " : "", script);
        gnuplot_write_quoted(script, plots->words[row]);
        fprintf(script, " %d", row);
    }
    fputs(") noenhanced nomirror\n", script);
}

static void write_series(FILE *script, const struct plots *plots)
{
    fputs("plot ", script);
    for (int i = 0; i < plots->series_len; i++) {
        const char *colour = COLOURS[colour_of(plots, i)].colour;
        int dashes = dashes_of(plots, i);
        if (plots->look == PLOTS_BARS)
            fprintf(script, "%s$data using %d lc rgb '%s' fs %s title ", i > 0 ? ", " : "", i + 2, colour,
                    dashes == 1 ? "solid 0.9" : "solid 0.45");
        else
            fprintf(script, "%s$data using 1:%d with linespoints lc rgb '%s' lw 2 dt %d pt 7 ps 0.4 title ",
                    i > 0 ? ", " : "", i + 2, colour, dashes);
        gnuplot_write_quoted(script, plots->series[i]);
        fputs(" noenhanced", script);
    }
    if (plots->shade[0] != '\0') {
        fputs(", NaN with boxes lc rgb '#dddddd' fs solid noborder title ", script);
        gnuplot_write_quoted(script, plots->shade);
        fputs(" noenhanced", script);
    }
    fputc('\n', script);
}

static void write_picture(FILE *script, const void *user)
{
    const struct plots *plots = user;
    write_data(script, plots);
    write_text(script, "title", plots->title);
    write_text(script, "xlabel", plots->x_label);
    write_text(script, "ylabel", plots->y_label);
    fputs("set grid xtics ytics lt 1 lc rgb '#bbbbbb' lw 1\nset tics out nomirror\nset border 3\n"
          "set key outside top center horizontal\nset rmargin 6\nset format y '%.12g'\n",
          script);
    if (plots->look == PLOTS_BARS)
        write_words(script, plots);
    else
        fputs(plots->look == PLOTS_LINES_LOG ? "set logscale y\n" : "set yrange [0:*]\n", script);
    write_shade(script, plots);
    write_series(script, plots);
}

void plots_end(struct plots *plots)
{
    static const char *const kinds[] = { "png", "svg" };
    char path[MAX_PATH];
    if (!plots || plots->points_len == 0)
        return;
    snprintf(path, sizeof path, "%s/%s.tsv", plots->folder, plots->name);
    if (!write_numbers(plots, path))
        return;
    struct gnuplot_picture picture = { .width = WIDTH, .height = HEIGHT, .write = write_picture, .user = plots };
    for (int i = 0; i < 2 && !plots->is_gnuplot_missing; i++) {
        snprintf(path, sizeof path, "%s/%s.%s", plots->folder, plots->name, kinds[i]);
        plots->is_gnuplot_missing = gnuplot_draw(&picture, path) == GNUPLOT_MISSING;
    }
}
