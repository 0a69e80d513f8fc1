/* policies.c - the policies of a command line: texts (-p) and files (-f), in the order in which they came. */
#include "policies.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli.h"

#define MESSAGE_SIZE 320

struct file_visit {
    struct policies *policies;
    const char *command, *path;
    bool has_complained;
};

static int visit_line(void *user, const struct weir_policy_line *line);
static int add(struct policies *policies, const char *name, const struct weir_policy *policy);

void policies_free(struct policies *policies)
{
    free(policies->all);
    *policies = (struct policies){ 0 };
}

int policies_add_text(struct policies *policies, const char *command, const char *text)
{
    char message[MESSAGE_SIZE] = "";
    struct weir_policy policy = { 0 };
    int error = weir_policy_parse(text, &policy, message, sizeof message);
    if (error != WEIR_OK)
        return usage_error(command, "policy '%s': %s", text, *message ? message : weir_strerror(error));
    if (add(policies, "", &policy) == WEIR_OK)
        return EXIT_OK;
    complain("out of memory");
    return EXIT_ERROR;
}

int policies_add_file(struct policies *policies, const char *command, const char *path)
{
    char message[MESSAGE_SIZE] = "";
    struct file_visit visit = { .policies = policies, .command = command, .path = path };
    int error = weir_policy_file_read(path, visit_line, &visit, message, sizeof message);
    if (error == WEIR_OK)
        return EXIT_OK;
    if (!visit.has_complained && *message) /* the message names the file */
        complain("%s", message);
    else if (!visit.has_complained)
        complain("%s: %s", path, weir_strerror(error));
    return EXIT_ERROR;
}

static int visit_line(void *user, const struct weir_policy_line *line)
{
    struct file_visit *visit = user;
    if (!line->policy) {
        fprintf(stderr, "%s:%d: %s\n", visit->path, line->number, line->error);
        visit->has_complained = true;
        return WEIR_OK; /* go on: the other bad lines want to be known too */
    }
    for (size_t i = 0; i < visit->policies->count; i++)
        if (strcmp(visit->policies->all[i].name, line->name) == 0) {
            fprintf(stderr, "%s:%d: another policy file has a limit '%s' already\n", visit->path, line->number,
                    line->name);
            visit->has_complained = true;
            return WEIR_EINVAL;
        }
    return add(visit->policies, line->name, line->policy);
}

static int add(struct policies *policies, const char *name, const struct weir_policy *policy)
{
    struct named_policy *all = realloc(policies->all, (policies->count + 1) * sizeof *all);
    if (!all)
        return WEIR_ENOMEM;
    policies->all = all;
    struct named_policy *added = &all[policies->count];
    *added = (struct named_policy){ .policy = *policy };
    snprintf(added->name, sizeof added->name, "%s", name);
    int error = weir_policy_print(policy, added->text, sizeof added->text);
    if (error == WEIR_OK)
        policies->count++;
    return error;
}
