/* load.h - reads access logs, JSON lines and CSV files into rows.
 *
 * A bad row is reported with its file, line and reason, counted and left out; only the first LOAD_MAX_SHOWN are
 * reported. If fewer than LOAD_MIN_PERCENT of all rows fit, the files are probably not in the assumed format.
 */
#ifndef WEIR_CLI_LOAD_H
#define WEIR_CLI_LOAD_H

#include "cli/replay/input/loader.h"

/* Add the rows of a file, or of stdin if `path` is "-". Return EXIT_OK, FEED_AGAIN, or after a complaint EXIT_FAILED or
 * EXIT_ERROR. */
int load_file(struct loader *load, const char *path);

/* After the last file, report the number of bad rows, and warn if many rows all have the same key. True if at least
 * LOAD_MIN_PERCENT of all rows fit. */
bool load_finish(struct loader *load);

/* True if this is the name of a format that can be read. */
bool load_format_exists(const char *name);

#endif
