/* progress.h - a line on the terminal that says how far a long piece of work has come.
 *
 * Nothing appears in the first half second, when stderr is no terminal, or more than ten times a second.
 */
#ifndef WEIR_CLI_PROGRESS_H
#define WEIR_CLI_PROGRESS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct progress {
    bool is_on, is_shown;
    int64_t next_us; /* when the line may change again */
};

/* `is_wanted`: false if something else is on the terminal. */
void progress_start(struct progress *progress, bool is_wanted);

/* `what` and how many rows; with a `total` other than 0 the percentage instead. Cheap enough for each row. */
void progress_show(struct progress *progress, const char *what, size_t done, size_t total);

/* Take the line away, before something else is printed. */
void progress_clear(struct progress *progress);

#endif
