/* policies.h - the policies of a command line: texts (-p) and files (-f), in the order in which they came. */
#ifndef WEIR_CLI_POLICIES_H
#define WEIR_CLI_POLICIES_H

#include <weir/weir.h>

struct named_policy {
    char name[WEIR_MAX_NAME_LEN + 1]; /* from a file; empty for one that -p gave */
    char text[160];                   /* as weir_policy_print() writes it */
    struct weir_policy policy;
};

struct policies {
    struct named_policy *all;
    size_t count;
};

void policies_free(struct policies *policies);

/* Each returns EXIT_OK, or EXIT_ERROR after a complaint that begins with the command's name. */
int policies_add_text(struct policies *policies, const char *command, const char *text);
int policies_add_file(struct policies *policies, const char *command, const char *path);

#endif
