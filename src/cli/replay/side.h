/* side.h - several policies applied to the same rows one by one, side by side. */
#ifndef WEIR_CLI_SIDE_H
#define WEIR_CLI_SIDE_H

#include "cli/replay/hold.h"

/* Apply each policy alone and print the outcomes, as text or as one JSON object. The store is this process. Return
 * EXIT_OK, or EXIT_FAILED after a complaint. */
int side_print(const struct rows *rows, const struct policies *policies, const struct store *store,
               struct progress *progress, bool json);

#endif
