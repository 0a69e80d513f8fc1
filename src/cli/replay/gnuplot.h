/* gnuplot.h - a picture that gnuplot draws.
 *
 * gnuplot runs as a child process without a shell. It reads commands and data from a pipe and writes the picture to a
 * nameless file, which is copied to its place when gnuplot has succeeded: no file name is ever part of a command.
 */
#ifndef WEIR_CLI_GNUPLOT_H
#define WEIR_CLI_GNUPLOT_H

#include <stdbool.h>
#include <stdio.h>

/* Whether `path` ends in .svg or .png, which says what is drawn. */
bool gnuplot_can_draw(const char *path);

struct gnuplot_picture {
    int width, height; /* in pixels */
    /* Writes all commands but those that say where the picture goes. */
    void (*write)(FILE *script, const void *user);
    const void *user;
};

enum gnuplot_end { GNUPLOT_DREW, GNUPLOT_FAILED, GNUPLOT_MISSING };

/* The file is written when the picture is whole, not before. If there is none, a complaint. */
enum gnuplot_end gnuplot_draw(const struct gnuplot_picture *picture, const char *path);

/* Text as a word of a command, whatever is in it. */
void gnuplot_write_quoted(FILE *script, const char *text);

#endif
