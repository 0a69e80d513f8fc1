/* plot.c - admitted and denied requests over time, drawn by gnuplot. */
#include "cli/replay/plot.h"

#include <stdio.h>
#include <stdlib.h>

#include <weir/weir.h>

#include "cli/cli.h"
#include "cli/replay/gnuplot.h"
#include "cli/times.h"

#define MOST_BINS 200
#define MOST_LABELS 7 /* on the axis, so that not even dates touch */

static void write_script(FILE *script, const void *user);

/* Return the smallest familiar time that is not less than `least_us`, and not a part of a second if whole ones count. */
static int64_t familiar_us(int64_t least_us, bool has_whole_seconds)
{
    static const int64_t round[] = {
        1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 43200, 86400
    };
    int64_t width_us = has_whole_seconds ? WEIR_SECOND : 1;
    for (; width_us < WEIR_SECOND; width_us *= 10)
        for (int64_t factor = 1; factor <= 5; factor = factor * 2 + (factor == 2))
            if (width_us * factor >= least_us)
                return width_us * factor;
    for (size_t i = 0; i < sizeof round / sizeof *round; i++)
        if (round[i] * WEIR_SECOND >= least_us)
            return round[i] * WEIR_SECOND;
    return (least_us / WEIR_DAY + 1) * WEIR_DAY;
}

bool plot_start(struct plot *plot, const struct rows *rows)
{
    int64_t first_us = rows->all[0].time_us, last_us = first_us;
    bool has_whole_seconds = true;
    for (size_t i = 0; i < rows->count; i++) {
        int64_t time_us = rows->all[i].time_us;
        first_us = time_us < first_us ? time_us : first_us;
        last_us = time_us > last_us ? time_us : last_us;
        has_whole_seconds = has_whole_seconds && time_us % WEIR_SECOND == 0;
    }
    plot->first_us = first_us;
    plot->last_us = last_us;
    plot->width_us = familiar_us((last_us - first_us) / MOST_BINS + 1, has_whole_seconds);
    plot->begin_us = first_us - first_us % plot->width_us;
    plot->count = (size_t)((last_us - plot->begin_us) / plot->width_us) + 1;
    plot->bins = calloc(plot->count, sizeof *plot->bins);
    return plot->bins;
}

void plot_add(struct plot *plot, int64_t time_us, bool is_admitted)
{
    struct plot_bin *bin = &plot->bins[(time_us - plot->begin_us) / plot->width_us];
    bin->admitted += is_admitted;
    bin->denied += !is_admitted;
}

void plot_free(struct plot *plot)
{
    free(plot->bins);
    plot->bins = NULL;
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

/* True if the input covers less than nine tenths of the bar's time, so that the bar is low although the load was not. */
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
            (double)familiar_us((right_us - left_us) / MOST_LABELS + 1, plot->width_us >= WEIR_SECOND) / 1e6);
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
