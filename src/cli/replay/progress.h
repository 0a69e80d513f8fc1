/* progress.h - a line on the terminal that shows how far a long task has got.
 *
 * Nothing appears in the first half second or if stderr is not a terminal. The line changes at most ten times a second.
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

/* `is_wanted`: false if other output goes to the terminal. */
void progress_start(struct progress *progress, bool is_wanted);

/* Show `what` and the number of rows, or the percentage if `total` is not 0. Cheap enough to call for each row. */
void progress_show(struct progress *progress, const char *what, size_t done, size_t total);

/* Remove the line before something else is printed. */
void progress_clear(struct progress *progress);

#endif
