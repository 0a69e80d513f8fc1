/* gnuplot.c - draws a picture with gnuplot: see gnuplot.h. */
#include "cli/replay/gnuplot.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cli/cli.h"

#define COULD_NOT_RUN 127 /* as shells report it */

static enum gnuplot_end gnuplot_run(const struct gnuplot_picture *picture, bool is_svg, FILE *out);
static enum gnuplot_end gnuplot_copy(FILE *drawn, const char *path);

static bool ends_in(const char *path, const char *suffix)
{
    size_t len = strlen(path), suffix_len = strlen(suffix);
    return len > suffix_len && strcmp(path + len - suffix_len, suffix) == 0;
}

bool gnuplot_can_draw(const char *path)
{
    return ends_in(path, ".svg") || ends_in(path, ".png");
}

enum gnuplot_end gnuplot_draw(const struct gnuplot_picture *picture, const char *path)
{
    FILE *drawn = tmpfile();
    if (!drawn) {
        complain("cannot make a temporary file for the plot: %s", strerror(errno));
        return GNUPLOT_FAILED;
    }
    enum gnuplot_end end = gnuplot_run(picture, ends_in(path, ".svg"), drawn);
    if (end == GNUPLOT_DREW)
        end = gnuplot_copy(drawn, path);
    fclose(drawn);
    return end;
}

/* Become gnuplot, which reads the pipe and writes the picture. */
static void become_gnuplot(int script, int drawn)
{
    static char name[] = "gnuplot";
    char *const words[] = { name, NULL };
    if (dup2(script, STDIN_FILENO) >= 0 && dup2(drawn, STDOUT_FILENO) >= 0)
        execvp(name, words);
    _exit(COULD_NOT_RUN);
}

static void write_terminal(FILE *script, const struct gnuplot_picture *picture, bool is_svg)
{
    int width = picture->width, height = picture->height;
    if (is_svg)
        fprintf(script, "set terminal svg size %d,%d dynamic font 'sans-serif,12' background rgb 'white'\n", width,
                height);
    else
        fprintf(script,
                "if (strstrt(GPVAL_TERMINALS, 'pngcairo')) set terminal pngcairo size %d,%d; "
                "else set terminal png size %d,%d\n",
                width, height, width, height);
}

/* Write the script into the pipe. If gnuplot has exited already, its exit status says so, not SIGPIPE. */
static void send_script(const struct gnuplot_picture *picture, bool is_svg, int descriptor)
{
    struct sigaction ignore = { .sa_handler = SIG_IGN }, before;
    FILE *script = fdopen(descriptor, "w");
    if (!script) {
        close(descriptor); /* gnuplot then draws nothing, which copy() notices */
        return;
    }
    sigaction(SIGPIPE, &ignore, &before);
    write_terminal(script, picture, is_svg);
    picture->write(script, picture->user);
    fclose(script);
    sigaction(SIGPIPE, &before, NULL);
}

static enum gnuplot_end gnuplot_run(const struct gnuplot_picture *picture, bool is_svg, FILE *out)
{
    int script[2], status;
    if (pipe(script) != 0) {
        complain("cannot run gnuplot: %s", strerror(errno));
        return GNUPLOT_FAILED;
    }
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        close(script[1]);
        become_gnuplot(script[0], fileno(out));
    }
    close(script[0]);
    if (child < 0) {
        complain("cannot run gnuplot: %s", strerror(errno));
        close(script[1]);
        return GNUPLOT_FAILED;
    }
    send_script(picture, is_svg, script[1]);
    pid_t waited;
    do
        waited = waitpid(child, &status, 0);
    while (waited < 0 && errno == EINTR);
    if (waited == child && WIFEXITED(status) && WEXITSTATUS(status) == 0)
        return GNUPLOT_DREW;
    if (waited == child && WIFEXITED(status) && WEXITSTATUS(status) == COULD_NOT_RUN) {
        complain("cannot run gnuplot, which draws the plot: is it installed?");
        return GNUPLOT_MISSING;
    }
    complain("gnuplot failed: there is no plot");
    return GNUPLOT_FAILED;
}

/* Inside gnuplot's single quotes only a doubled quote is special: it means one. */
void gnuplot_write_quoted(FILE *script, const char *text)
{
    fputc('\'', script);
    for (; *text; text++)
        fputs(*text == '\'' ? "''" : (const char[]){ *text, '\0' }, script);
    fputc('\'', script);
}

static enum gnuplot_end gnuplot_copy(FILE *drawn, const char *path)
{
    char buffer[16384];
    size_t len, all = 0;
    if (fseek(drawn, 0, SEEK_END) != 0 || ftell(drawn) <= 0) {
        complain("gnuplot drew nothing: there is no plot");
        return GNUPLOT_FAILED;
    }
    rewind(drawn);
    FILE *file = fopen(path, "w");
    if (!file) {
        complain("%s: %s", path, strerror(errno));
        return GNUPLOT_FAILED;
    }
    while ((len = fread(buffer, 1, sizeof buffer, drawn)) > 0)
        all += fwrite(buffer, 1, len, file) == len ? len : 0;
    bool is_whole = !ferror(file) && !ferror(drawn) && all == (size_t)ftell(drawn);
    if (fclose(file) == 0 && is_whole)
        return GNUPLOT_DREW;
    complain("%s: cannot write the plot", path);
    return GNUPLOT_FAILED;
}
