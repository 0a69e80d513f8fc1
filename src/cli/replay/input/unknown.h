/* unknown.h - the answer to an input that no format fits. */
#ifndef WEIR_CLI_UNKNOWN_H
#define WEIR_CLI_UNKNOWN_H

#include "cli/span.h"

/* Say on stderr what the first lines of the input `name` look like, and what to try. `format` is the nearest one, which
 * fits `fits` of them. */
void unknown_complain(const char *name, const struct span *lines, size_t count, const char *format, size_t fits);

#endif
