/* plot.c - admitted and denied requests over time, drawn by gnuplot. */
#include "cli/replay/plot.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <weir/weir.h>

#include "cli/cli.h"
#include "cli/replay/gnuplot.h"
#include "cli/times.h"

#define MOST_BINS 200
#define MOST_LABELS 7 /* on the axis, so that not even dates touch */

static void write_script(FILE *script, const void *user);

/* Familiar times from a second on. `bin`: all of them from here on, and whole days, are multiples of it. */
static const struct {
    int64_t seconds, bin;
} FAMILIAR[] = { { 1, 1 },       { 2, 1 },       { 5, 5 },         { 10, 5 },        { 15, 15 },      { 30, 30 },
                 { 60, 60 },     { 120, 60 },    { 300, 300 },     { 600, 300 },     { 900, 900 },    { 1800, 1800 },
                 { 3600, 3600 }, { 7200, 7200 }, { 14400, 14400 }, { 43200, 43200 }, { 86400, 86400 } };

/* Return the smallest familiar time that is not less than `least_us`, and not a part of a second if whole ones count;
 * and the width of bins for it. */
static int64_t familiar_us(int64_t least_us, bool has_whole_seconds, int64_t *out_bin_us)
{
    int64_t width_us = has_whole_seconds ? WEIR_SECOND : 1;
    for (; width_us < WEIR_SECOND; width_us *= 10)
        for (int64_t factor = 1; factor <= 5; factor = factor * 2 + (factor == 2))
            if (width_us * factor >= least_us) {
                *out_bin_us = factor == 2 ? width_us : width_us * factor;
                return width_us * factor;
            }
    for (size_t i = 0; i < sizeof FAMILIAR / sizeof *FAMILIAR; i++)
        if (FAMILIAR[i].seconds * WEIR_SECOND >= least_us) {
            *out_bin_us = FAMILIAR[i].bin * WEIR_SECOND;
            return FAMILIAR[i].seconds * WEIR_SECOND;
        }
    *out_bin_us = WEIR_DAY;
    return (least_us / WEIR_DAY + 1) * WEIR_DAY;
}

/* Merge the bins into wider ones, whose width is a multiple of theirs. */
static void plot_widen(struct plot *plot, int64_t width_us)
{
    const int64_t begin_us = plot->begin_us - plot->begin_us % width_us;
    size_t count = 0;
    for (size_t i = 0; i < plot->count; i++) {
        const struct plot_bin bin = plot->bins[i];
        const size_t to = (size_t)((plot->begin_us + plot->width_us * (int64_t)i - begin_us) / width_us);
        if (i == 0 || to >= count)
            plot->bins[to] = (struct plot_bin){ 0 };
        plot->bins[to].admitted += bin.admitted;
        plot->bins[to].denied += bin.denied;
        count = to + 1;
    }
    plot->begin_us = begin_us;
    plot->width_us = width_us;
    plot->count = count;
}

/* Extend the bins to those of first_us and last_us. */
static bool plot_extend(struct plot *plot)
{
    int64_t bin_us;
    size_t before, count;
    for (;;) {
        const int64_t begin_us = plot->first_us - plot->first_us % plot->width_us;
        before = plot->count && begin_us < plot->begin_us ? (size_t)((plot->begin_us - begin_us) / plot->width_us) : 0;
        count = (size_t)((plot->last_us - begin_us) / plot->width_us) + 1;
        if (count <= PLOT_BINS)
            break;
        familiar_us((plot->last_us - plot->first_us) / MOST_BINS + 1, false, &bin_us);
        if (bin_us <= plot->width_us)
            break;
        plot_widen(plot, bin_us);
    }
    if (count > plot->capacity) {
        const size_t capacity = count < PLOT_BINS ? PLOT_BINS : 2 * count;
        struct plot_bin *grown = realloc(plot->bins, capacity * sizeof *grown);
        if (!grown)
            return false;
        plot->bins = grown;
        plot->capacity = capacity;
    }
    memmove(plot->bins + before, plot->bins, plot->count * sizeof *plot->bins);
    memset(plot->bins, 0, before * sizeof *plot->bins);
    memset(plot->bins + before + plot->count, 0, (count - before - plot->count) * sizeof *plot->bins);
    plot->begin_us -= plot->width_us * (int64_t)before;
    plot->count = count;
    return true;
}

bool plot_add(struct plot *plot, int64_t time_us, struct plot_bin requests)
{
    if (plot->count == 0) {
        plot->first_us = plot->last_us = plot->begin_us = time_us;
        plot->width_us = 1;
    }
    plot->first_us = time_us < plot->first_us ? time_us : plot->first_us;
    plot->last_us = time_us > plot->last_us ? time_us : plot->last_us;
    if ((time_us < plot->begin_us || time_us >= plot->begin_us + plot->width_us * (int64_t)plot->count) &&
        !plot_extend(plot))
        return false;
    struct plot_bin *bin = &plot->bins[(time_us - plot->begin_us) / plot->width_us];
    bin->admitted += requests.admitted;
    bin->denied += requests.denied;
    plot->has_parts = plot->has_parts || time_us % WEIR_SECOND != 0;
    return true;
}

void plot_finish(struct plot *plot)
{
    int64_t bin_us;
    plot_widen(plot, familiar_us((plot->last_us - plot->first_us) / MOST_BINS + 1, !plot->has_parts, &bin_us));
}

void plot_free(struct plot *plot)
{
    free(plot->bins);
    *plot = (struct plot){ 0 };
}

struct titled {
    const struct plot *plot;
    const char *title;
};

int plot_write(const struct plot *plot, const char *path, const char *title)
{
    struct titled titled = { plot, title };
    struct gnuplot_picture picture = { .width = 1000, .height = 500, .write = write_script, .user = &titled };
    return gnuplot_draw(&picture, path) == GNUPLOT_DREW ? EXIT_OK : EXIT_FAILED;
}

/* True if the axis shows dates; otherwise it shows seconds since the start, for traces that start near 0 or are short.
 */
static bool has_dates(const struct plot *plot)
{
    return plot->begin_us >= 366 * WEIR_DAY && plot->width_us * (int64_t)plot->count >= 10 * WEIR_SECOND;
}

/* True if the input covers less than nine tenths of the bar's time, so that the bar is low although the load was
 * not. */
static bool is_partial(const struct plot *plot, size_t bin)
{
    const int64_t begin_us = plot->begin_us + plot->width_us * (int64_t)bin, end_us = begin_us + plot->width_us;
    const int64_t from_us = plot->first_us > begin_us ? plot->first_us : begin_us;
    const int64_t to_us = plot->last_us < end_us ? plot->last_us : end_us;
    return plot->count > 1 && (to_us - from_us) * 10 < plot->width_us * 9;
}

static void write_script(FILE *script, const void *user)
{
    const struct titled *titled = user;
    const struct plot *plot = titled->plot;
    char width[TIME_TEXT_SIZE], begin[TIME_TEXT_SIZE];
    bool is_dated = has_dates(plot);
    int64_t origin_us = is_dated ? 0 : plot->begin_us;
    int64_t bin_us;
    duration_print(plot->width_us, width);
    time_print(plot->begin_us, begin);
    bool has_partial = false;
    fputs("$bins << END\n", script);
    for (size_t i = 0; i < plot->count; i++) {
        int64_t middle_us = plot->begin_us - origin_us + plot->width_us * (int64_t)i + plot->width_us / 2;
        const unsigned all = plot->bins[i].admitted + plot->bins[i].denied;
        has_partial = has_partial || is_partial(plot, i);
        fprintf(script, "%lld.%06lld %u %u %u\n", (long long)(middle_us / WEIR_SECOND),
                (long long)(middle_us % WEIR_SECOND), plot->bins[i].admitted, plot->bins[i].denied,
                is_partial(plot, i) ? all : 0);
    }
    fputs("END\n", script);
    fputs("set title ", script);
    gnuplot_write_quoted(script, titled->title);
    fprintf(script, " noenhanced\nset ylabel 'requests per %s'\n", width);
    int64_t left_us = plot->begin_us - origin_us, right_us = left_us + plot->width_us * (int64_t)plot->count;
    fprintf(script, "set xrange [%.6f:%.6f] noextend\nset xtics %.6f\n", (double)left_us / 1e6, (double)right_us / 1e6,
            (double)familiar_us((right_us - left_us) / MOST_LABELS + 1, plot->width_us >= WEIR_SECOND, &bin_us) / 1e6);
    if (is_dated)
        fprintf(script, "set xdata time\nset timefmt '%%s'\nset format x '%s'\nset xlabel 'UTC, from %s'\n",
                plot->width_us < 600 * WEIR_SECOND ? "%H:%M:%S"
                : plot->width_us < WEIR_DAY        ? "%m-%d %H:%M"
                                                   : "%Y-%m-%d",
                begin);
    else
        fprintf(script, "set xlabel 'seconds since the first request'\n");
    fprintf(
        script,
        "set style fill solid noborder\nset boxwidth %.9f\nset yrange [0:*]\nset grid ytics\nset tics out nomirror\n"
        "set key outside bottom right horizontal\nset rmargin 6\nset bmargin 6\n"
        "plot $bins using 1:($2+$3) with boxes lc rgb '#d95f02' title 'denied', "
        "$bins using 1:2 with boxes lc rgb '#1f78b4' title 'admitted'%s\n",
        (double)plot->width_us / 1e6,
        has_partial ? ", $bins using 1:4 with boxes fs pattern 4 lc rgb '#404040' title 'not the whole time'" : "");
}
