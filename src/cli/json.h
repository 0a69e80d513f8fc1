/* json.h - strings for JSON on stdout. */
#ifndef WEIR_CLI_JSON_H
#define WEIR_CLI_JSON_H

#include "cli/span.h"

/* Print `text` in quotes, escaped; U+FFFD replaces each byte that is not UTF-8. */
void json_put_string(struct span text);

#endif
