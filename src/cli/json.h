/* json.h - strings for JSON on stdout. */
#ifndef WEIR_CLI_JSON_H
#define WEIR_CLI_JSON_H

#include "cli/span.h"

/* `text` in quotes, escaped; U+FFFD stands for each byte that is not UTF-8. */
void json_string(struct span text);

#endif
