/* policies.c - the policies of a command line: texts (-p) and files (-f), in their order. */
#include "cli/policies.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"

#define MESSAGE_SIZE 320

struct file_visit {
    struct policies *policies;
    const char *path;
    size_t first_limit, first_override; /* of the file */
    bool has_complained;
};

static int visit_line(void *user, const struct weir_policy_line *line);
static int policies_add_limit(struct policies *policies, const char *name, const struct weir_policy *policy);
static int policies_add_override(struct policies *policies, const struct weir_policy_line *line);
static int find_limits(struct file_visit *visit);

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
    if (policies_add_limit(policies, "", &policy) == WEIR_OK)
        return EXIT_OK;
    complain("out of memory");
    return EXIT_ERROR;
}

int policies_add_file(struct policies *policies, const char *path)
{
    char message[MESSAGE_SIZE] = "";
    struct file_visit visit = {
        .policies = policies, .path = path, .first_limit = policies->count, .first_override = policies->override_count
    };
    int error = weir_policy_file_read(path, visit_line, &visit, message, sizeof message);
    if (error == WEIR_OK)
        error = find_limits(&visit);
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
        return WEIR_OK; /* continue: report the other bad lines, too */
    }
    if (line->pattern)
        return policies_add_override(visit->policies, line);
    for (size_t i = 0; i < visit->policies->count; i++)
        if (strcmp(visit->policies->all[i].name, line->name) == 0) {
            fprintf(stderr, "%s:%d: another policy file has a limit '%s' already\n", visit->path, line->number,
                    line->name);
            visit->has_complained = true;
            return WEIR_EINVAL;
        }
    return policies_add_limit(visit->policies, line->name, line->policy);
}

static int policies_add_limit(struct policies *policies, const char *name, const struct weir_policy *policy)
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

static int policies_add_override(struct policies *policies, const struct weir_policy_line *line)
{
    struct override *overrides = realloc(policies->overrides, (policies->override_count + 1) * sizeof *overrides);
    if (!overrides)
        return WEIR_ENOMEM;
    policies->overrides = overrides;
    struct override *added = &overrides[policies->override_count++];
    *added = (struct override){ .line = line->number, .policy = *line->policy };
    snprintf(added->name, sizeof added->name, "%s", line->name);
    snprintf(added->pattern, sizeof added->pattern, "%s", line->pattern);
    return weir_policy_print(line->policy, added->text, sizeof added->text);
}

/* Find the limit of each of the file's overrides: an override may stand before its limit. */
static int find_limits(struct file_visit *visit)
{
    struct policies *policies = visit->policies;
    for (size_t i = visit->first_override; i < policies->override_count; i++) {
        struct override *override = &policies->overrides[i];
        override->limit = visit->first_limit;
        while (override->limit < policies->count && strcmp(policies->all[override->limit].name, override->name) != 0)
            override->limit++;
        if (override->limit < policies->count)
            continue;
        fprintf(stderr, "%s:%d: the file has no limit '%s' to override\n", visit->path, override->line, override->name);
        visit->has_complained = true;
    }
    return visit->has_complained ? WEIR_EINVAL : WEIR_OK;
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
