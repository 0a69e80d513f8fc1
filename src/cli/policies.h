/* policies.h - the policies of a command line: texts (-p) and files (-f), in the order in which they came. */
#ifndef WEIR_CLI_POLICIES_H
#define WEIR_CLI_POLICIES_H

#include <weir/weir.h>

struct named_policy {
    char name[WEIR_MAX_NAME_LEN + 1]; /* from a file; empty for one that -p gave */
    char text[160];                   /* as weir_policy_print() writes it */
    struct weir_policy policy;
};

/* Of one of a file's limits, for some of its keys. */
struct override {
    size_t limit; /* its index */
    char pattern[WEIR_MAX_PATTERN_LEN + 1];
    char text[160];
    struct weir_policy policy;
};

struct policies {
    struct named_policy *all;
    size_t count;
    struct override *overrides;
    size_t override_count;
};

void policies_free(struct policies *policies);

/* Each returns EXIT_OK, or EXIT_ERROR after a complaint that begins with the command's name. */
int policies_add_text(struct policies *policies, const char *command, const char *text);
int policies_add_file(struct policies *policies, const char *command, const char *path);

/* Define the overrides of the limit with that index, which is defined under `name`. WEIR_OK or an error. */
int policies_override(const struct policies *policies, size_t limit, weir *limiter, const char *name);

#endif
