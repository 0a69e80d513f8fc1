/* policies.c - the policies of a command line: texts (-p) and files (-f), in the order in which they came. */
#include "cli/policies.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"

#define MESSAGE_SIZE 320

/* An override may stand before its limit. */
struct waiting {
    struct waiting *next;
    int line;
    char name[WEIR_MAX_NAME_LEN + 1];
    struct override override;
};

struct file_visit {
    struct policies *policies;
    const char *command, *path;
    size_t first; /* of the file's limits */
    struct waiting *waiting, **last;
    bool has_complained;
};

static int visit_line(void *user, const struct weir_policy_line *line);
static int add(struct policies *policies, const char *name, const struct weir_policy *policy);
static int wait_for_limit(struct file_visit *visit, const struct weir_policy_line *line);
static int add_waiting(struct file_visit *visit);
static void free_waiting(struct file_visit *visit);

void policies_free(struct policies *policies)
{
    free(policies->all);
    free(policies->overrides);
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
    struct file_visit visit = { .policies = policies, .command = command, .path = path, .first = policies->count };
    visit.last = &visit.waiting;
    int error = weir_policy_file_read(path, visit_line, &visit, message, sizeof message);
    if (error == WEIR_OK)
        error = add_waiting(&visit);
    free_waiting(&visit);
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
    if (line->pattern)
        return wait_for_limit(visit, line);
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

static int wait_for_limit(struct file_visit *visit, const struct weir_policy_line *line)
{
    struct waiting *waiting = calloc(1, sizeof *waiting);
    if (!waiting)
        return WEIR_ENOMEM;
    waiting->line = line->number;
    waiting->override.policy = *line->policy;
    snprintf(waiting->name, sizeof waiting->name, "%s", line->name);
    snprintf(waiting->override.pattern, sizeof waiting->override.pattern, "%s", line->pattern);
    *visit->last = waiting;
    visit->last = &waiting->next;
    return weir_policy_print(line->policy, waiting->override.text, sizeof waiting->override.text);
}

/* All overrides of a file have been read, and so have its limits. */
static int add_waiting(struct file_visit *visit)
{
    struct policies *policies = visit->policies;
    size_t count = policies->override_count;
    for (const struct waiting *waiting = visit->waiting; waiting; waiting = waiting->next)
        count++;
    struct override *overrides = realloc(policies->overrides, (count + 1) * sizeof *overrides);
    if (!overrides)
        return WEIR_ENOMEM;
    policies->overrides = overrides;
    for (const struct waiting *waiting = visit->waiting; waiting; waiting = waiting->next) {
        size_t i = visit->first;
        while (i < policies->count && strcmp(policies->all[i].name, waiting->name) != 0)
            i++;
        if (i == policies->count) {
            fprintf(stderr, "%s:%d: the file has no limit '%s' to override\n", visit->path, waiting->line,
                    waiting->name);
            visit->has_complained = true;
            continue;
        }
        struct override *added = &overrides[policies->override_count++];
        *added = waiting->override;
        added->limit = i;
    }
    return visit->has_complained ? WEIR_EINVAL : WEIR_OK;
}

static void free_waiting(struct file_visit *visit)
{
    while (visit->waiting) {
        struct waiting *next = visit->waiting->next;
        free(visit->waiting);
        visit->waiting = next;
    }
}

int policies_override(const struct policies *policies, size_t limit, weir *limiter, const char *name)
{
    int error = WEIR_OK;
    for (size_t i = 0; i < policies->override_count && error == WEIR_OK; i++) {
        const struct override *override = &policies->overrides[i];
        char full[WEIR_MAX_NAME_LEN + WEIR_MAX_PATTERN_LEN + 2];
        if (override->limit != limit)
            continue;
        snprintf(full, sizeof full, "%s/%s", name, override->pattern);
        error = weir_limit_define(limiter, full, &override->policy, NULL);
    }
    return error;
}
