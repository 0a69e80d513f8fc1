/* policies.h - the policies of a command line: texts (-p) and files (-f), in their order. */
#ifndef WEIR_CLI_POLICIES_H
#define WEIR_CLI_POLICIES_H

#include <weir/weir.h>

struct named_policy {
    char name[WEIR_MAX_NAME_LEN + 1]; /* from a file; empty for a policy of -p */
    char text[WEIR_POLICY_TEXT_SIZE]; /* as weir_policy_print() writes it */
    struct weir_policy policy;
    char key[128], cost[64];    /* fields of the input that are its key and its cost; empty: those of all policies */
    size_t key_kind, cost_kind; /* the replay's numbers of them */
};

/* A policy for some keys of a file's limit. */
struct override {
    size_t limit;                     /* the limit's index */
    int line;                         /* in the file */
    char name[WEIR_MAX_NAME_LEN + 1]; /* of the limit */
    char pattern[WEIR_MAX_PATTERN_LEN + 1];
    char text[WEIR_POLICY_TEXT_SIZE];
    struct weir_policy policy;
};

/* A pattern to print: as written, but with %XX for what a terminal may obey, which is the same pattern. */
struct pattern_shown {
    char text[3 * WEIR_MAX_PATTERN_LEN + 1];
};
struct pattern_shown pattern_shown(const char *pattern);

struct policies {
    struct named_policy *all;
    size_t count;
    struct override *overrides;
    size_t override_count;
};

void policies_free(struct policies *policies);

/* Add a policy with what may stand before it and a colon: a name, key=FIELD and cost=FIELD. */
int policies_add_keyed(struct policies *policies, const char *command, const char *text);

/* Add a policy, or all policies of a file. Return EXIT_OK, or EXIT_ERROR after a complaint. */
int policies_add_text(struct policies *policies, const char *command, const char *text);
int policies_add_file(struct policies *policies, const char *path);

/* Define the overrides of the limit with that index, which is defined as `name`. Return WEIR_OK or an error. */
int policies_override(const struct policies *policies, size_t limit, weir *limiter, const char *name);

#endif
