/* gnuplot.h - draws a picture with gnuplot.
 *
 * gnuplot runs as a child process without a shell. It reads commands and data from a pipe and writes the picture to a
 * nameless file, which is copied to its place once gnuplot has succeeded. No file name is ever part of a command.
 */
#ifndef WEIR_CLI_GNUPLOT_H
#define WEIR_CLI_GNUPLOT_H

#include <stdbool.h>
#include <stdio.h>

/* True if `path` ends in .svg or .png, which selects the format. */
bool gnuplot_can_draw(const char *path);

struct gnuplot_picture {
    int width, height; /* in pixels */
    /* Writes all commands except those that say where the picture goes. */
    void (*write)(FILE *script, const void *user);
    const void *user;
};

enum gnuplot_end { GNUPLOT_DREW, GNUPLOT_FAILED, GNUPLOT_MISSING };

/* Draw into a file, which is written once the picture is complete. Complains if there is no picture. */
enum gnuplot_end gnuplot_draw(const struct gnuplot_picture *picture, const char *path);

/* Write any text as a word of a command. */
void gnuplot_write_quoted(FILE *script, const char *text);

#endif
