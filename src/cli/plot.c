/* plot.c - admitted and denied requests over time, as a picture that gnuplot draws.
 *
 * gnuplot runs as a child process without a shell. It reads commands and data from a pipe and writes the picture to a
 * nameless file, which is copied to its place when gnuplot has succeeded: no file name is ever part of a command.
 */
#include "plot.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <weir/weir.h>

#include "cli.h"
#include "times.h"

#define MOST_BINS 200
#define COULD_NOT_RUN 127 /* as shells report it */

static void write_script(FILE *script, const struct plot *plot, bool is_svg, const char *title);
static int draw(const struct plot *plot, bool is_svg, const char *title, FILE *picture);
static int copy(FILE *picture, const char *path);

static bool ends_in(const char *path, const char *suffix)
{
    size_t len = strlen(path), suffix_len = strlen(suffix);
    return len > suffix_len && strcmp(path + len - suffix_len, suffix) == 0;
}

bool plot_can_write(const char *path)
{
    return ends_in(path, ".svg") || ends_in(path, ".png");
}

/* The least width that people name and that makes do with MOST_BINS. */
static int64_t width_choose(int64_t span_us, bool has_whole_seconds)
{
    static const int64_t round[] = {
        1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 43200, 86400
    };
    int64_t least_us = span_us / MOST_BINS + 1, width_us = has_whole_seconds ? WEIR_SECOND : 1;
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
    plot->width_us = width_choose(last_us - first_us, has_whole_seconds);
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

int plot_write(const struct plot *plot, const char *path, const char *title)
{
    FILE *picture = tmpfile();
    if (!picture) {
        complain("cannot make a temporary file for the plot: %s", strerror(errno));
        return EXIT_FAILED;
    }
    int code = draw(plot, ends_in(path, ".svg"), title, picture);
    if (code == EXIT_OK)
        code = copy(picture, path);
    fclose(picture);
    return code;
}

/* Become gnuplot, its input the pipe and its output the picture. */
static void become_gnuplot(int script, int picture)
{
    static char name[] = "gnuplot";
    char *const words[] = { name, NULL };
    if (dup2(script, STDIN_FILENO) >= 0 && dup2(picture, STDOUT_FILENO) >= 0)
        execvp(name, words);
    _exit(COULD_NOT_RUN);
}

/* Send the script down the pipe. A gnuplot that has gone already is told by its exit status, not by SIGPIPE. */
static void send_script(const struct plot *plot, bool is_svg, const char *title, int descriptor)
{
    struct sigaction ignore = { .sa_handler = SIG_IGN }, before;
    FILE *script = fdopen(descriptor, "w");
    if (!script) {
        close(descriptor); /* gnuplot then draws nothing, which copy() notices */
        return;
    }
    sigaction(SIGPIPE, &ignore, &before);
    write_script(script, plot, is_svg, title);
    fclose(script);
    sigaction(SIGPIPE, &before, NULL);
}

static int draw(const struct plot *plot, bool is_svg, const char *title, FILE *picture)
{
    int script[2], status;
    if (pipe(script) != 0) {
        complain("cannot run gnuplot: %s", strerror(errno));
        return EXIT_FAILED;
    }
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        close(script[1]);
        become_gnuplot(script[0], fileno(picture));
    }
    close(script[0]);
    if (child < 0) {
        complain("cannot run gnuplot: %s", strerror(errno));
        close(script[1]);
        return EXIT_FAILED;
    }
    send_script(plot, is_svg, title, script[1]);
    pid_t waited;
    do
        waited = waitpid(child, &status, 0);
    while (waited < 0 && errno == EINTR);
    if (waited == child && WIFEXITED(status) && WEXITSTATUS(status) == 0)
        return EXIT_OK;
    if (waited == child && WIFEXITED(status) && WEXITSTATUS(status) == COULD_NOT_RUN)
        complain("cannot run gnuplot, which draws the plot: is it installed?");
    else
        complain("gnuplot failed: there is no plot");
    return EXIT_FAILED;
}

/* Text in gnuplot's single quotes, in which a doubled quote is one. */
static void write_quoted(FILE *script, const char *text)
{
    fputc('\'', script);
    for (; *text; text++)
        fputs(*text == '\'' ? "''" : (const char[]){ *text, '\0' }, script);
    fputc('\'', script);
}

/* Dates for times that are dates; seconds since the begin for traces that start near 0 or are short. */
static bool has_dates(const struct plot *plot)
{
    return plot->begin_us >= 366 * WEIR_DAY && plot->width_us * (int64_t)plot->count >= 10 * WEIR_SECOND;
}

static void write_script(FILE *script, const struct plot *plot, bool is_svg, const char *title)
{
    char width[TIME_TEXT_SIZE], begin[TIME_TEXT_SIZE];
    bool is_dated = has_dates(plot);
    int64_t origin_us = is_dated ? 0 : plot->begin_us;
    duration_print(plot->width_us, width);
    time_print(plot->begin_us, begin);
    fputs("$bins << END\n", script);
    for (size_t i = 0; i < plot->count; i++) {
        int64_t middle_us = plot->begin_us - origin_us + plot->width_us * (int64_t)i + plot->width_us / 2;
        fprintf(script, "%lld.%06lld %u %u\n", (long long)(middle_us / WEIR_SECOND),
                (long long)(middle_us % WEIR_SECOND), plot->bins[i].admitted, plot->bins[i].denied);
    }
    fputs("END\n", script);
    fputs(is_svg ? "set terminal svg size 1000,500 dynamic font 'sans-serif,12' background rgb 'white'\n"
                 : "if (strstrt(GPVAL_TERMINALS, 'pngcairo')) set terminal pngcairo size 1000,500; "
                   "else set terminal png size 1000,500\n",
          script);
    fputs("set title ", script);
    write_quoted(script, title);
    fprintf(script, " noenhanced\nset ylabel 'requests per %s'\n", width);
    int64_t left_us = plot->begin_us - origin_us, right_us = left_us + plot->width_us * (int64_t)plot->count;
    fprintf(script, "set xrange [%.6f:%.6f] noextend\n", (double)left_us / 1e6, (double)right_us / 1e6);
    if (is_dated)
        fprintf(script, "set xdata time\nset timefmt '%%s'\nset format x '%s'\nset xlabel 'UTC, from %s'\n",
                plot->width_us < 600 * WEIR_SECOND ? "%H:%M:%S" : "%m-%d %H:%M", begin);
    else
        fprintf(script, "set xlabel 'seconds since the first request'\n");
    fprintf(
        script,
        "set style fill solid noborder\nset boxwidth %.9f\nset yrange [0:*]\nset grid ytics\nset tics out nomirror\n"
        "set key outside bottom right horizontal\nset rmargin 6\n"
        "plot $bins using 1:($2+$3) with boxes lc rgb '#d95f02' title 'denied', "
        "$bins using 1:2 with boxes lc rgb '#1f78b4' title 'admitted'\n",
        (double)plot->width_us / 1e6);
}

static int copy(FILE *picture, const char *path)
{
    char buffer[16384];
    size_t len, all = 0;
    if (fseek(picture, 0, SEEK_END) != 0 || ftell(picture) <= 0) {
        complain("gnuplot drew nothing: there is no plot");
        return EXIT_FAILED;
    }
    rewind(picture);
    FILE *file = fopen(path, "w");
    if (!file) {
        complain("%s: %s", path, strerror(errno));
        return EXIT_FAILED;
    }
    while ((len = fread(buffer, 1, sizeof buffer, picture)) > 0)
        all += fwrite(buffer, 1, len, file) == len ? len : 0;
    bool is_whole = !ferror(file) && !ferror(picture) && all == (size_t)ftell(picture);
    if (fclose(file) == 0 && is_whole)
        return EXIT_OK;
    complain("%s: cannot write the plot", path);
    return EXIT_FAILED;
}
