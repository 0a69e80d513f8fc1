/* page_suggest.h - the findings of weir suggest as an HTML page. */
#ifndef WEIR_CLI_PAGE_SUGGEST_H
#define WEIR_CLI_PAGE_SUGGEST_H

#include "cli/replay/findings.h"

/* Write the page. Return EXIT_OK, or EXIT_FAILED after a complaint. */
int page_suggest_write(const struct suggest *suggest, const struct findings *findings, const char *key_name);

#endif
