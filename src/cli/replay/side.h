/* side.h - several policies applied to the same rows one by one, side by side. */
#ifndef WEIR_CLI_SIDE_H
#define WEIR_CLI_SIDE_H

#include "cli/replay/hold.h"

struct side { /* the outcome of one policy */
    uint64_t denied;
    size_t keys, keys_denied;
};

struct side_output {
    bool is_json;
    const char *html; /* NULL: no page */
};

/* Take one policy and its overrides out of all; `out->overrides` is the caller's to free. False: out of memory. */
bool side_policy(const struct policies *policies, size_t number, struct policies *out);

/* Print what each policy decided alone, as text or as one JSON object, and the page. Return EXIT_OK, or EXIT_FAILED
 * after a complaint. */
int side_print(const struct rows *rows, const struct policies *policies, const struct hold *holds,
               struct side_output output);

/* Write the outcomes as an HTML page. Return EXIT_OK, or EXIT_FAILED after a complaint. */
int page_side_write(const struct rows *rows, const struct policies *policies, const struct side *sides,
                    const char *path);

#endif
