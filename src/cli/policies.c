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

struct pattern_shown pattern_shown(const char *pattern)
{
    struct pattern_shown out = { "" };
    const struct span span = span_of(pattern);
    size_t used = 0;
    for (size_t i = 0, len; i < span.len; i += len) {
        char shown[24];
        len = span_character(span_slice(span, i, span.len));
        len = len ? len : 1;
        span_show(span_slice(span, i, i + len), shown, sizeof shown);
        const bool is_obeyed = shown[0] == '\\' && shown[1] == 'x';
        for (size_t j = i; j < i + len; j++)
            used += (size_t)sprintf(out.text + used, is_obeyed ? "%%%02X" : "%c", (unsigned char)pattern[j]);
    }
    return out;
}

void policies_free(struct policies *policies)
{
    free(policies->all);
    free(policies->overrides);
    *policies = (struct policies){ 0 };
}

int policies_add_text(struct policies *policies, const char *command, const char *text)
{
    char message[MESSAGE_SIZE] = "", whole[80];
    struct weir_policy policy = { 0 };
    text += strspn(text, " \t");
    const size_t digits = strspn(text, "0123456789"); /* 100/m is short for a window */
    if (digits > 0 && digits < 20 && text[digits] == '/' && text[digits + 1] && strchr("smhd", text[digits + 1]) &&
        !text[digits + 2]) {
        snprintf(whole, sizeof whole, "sliding_window limit=%.*s period=1%c", (int)digits, text, text[digits + 1]);
        text = whole;
    }
    int error = weir_policy_parse(text, &policy, message, sizeof message);
    if (error != WEIR_OK)
        return usage_error(command, "policy '%s': %s", text, *message ? message : weir_strerror(error));
    if (policies_add_limit(policies, "", &policy) == WEIR_OK)
        return EXIT_OK;
    complain("out of memory");
    return EXIT_ERROR;
}

/* Take a word that stands before the colon. False after a complaint. */
static bool take_word(struct named_policy *policy, const char *command, const char *word, size_t len)
{
    const char *equals = memchr(word, '=', len);
    size_t name_len = equals ? (size_t)(equals - word) : len, value_len = equals ? len - name_len - 1 : len;
    bool is_key = equals && name_len == 3 && memcmp(word, "key", 3) == 0;
    bool is_cost = equals && name_len == 4 && memcmp(word, "cost", 4) == 0;
    char *out = is_key ? policy->key : is_cost ? policy->cost : policy->name;
    size_t room = is_key ? sizeof policy->key : is_cost ? sizeof policy->cost : sizeof policy->name;
    if ((equals && !is_key && !is_cost) || *out)
        usage_error(command, "'%.*s' before the colon of a policy is not a name, key=FIELD or cost=FIELD", (int)len,
                    word);
    else if (value_len == 0 || value_len >= room)
        usage_error(command, "'%.*s' has %zu bytes, and 1 to %zu are allowed", (int)len, word, value_len, room - 1);
    else
        return memcpy(out, equals ? equals + 1 : word, value_len), true;
    return false;
}

int policies_add_keyed(struct policies *policies, const char *command, const char *text)
{
    const char *colon = strchr(text, ':');
    struct named_policy head = { 0 };
    for (const char *at = text; colon && at < colon;) {
        size_t len = strcspn(at, " \t:");
        if (len && !take_word(&head, command, at, len))
            return EXIT_ERROR;
        at += len + (at + len < colon);
    }
    for (size_t i = 0; i < policies->count && head.name[0]; i++)
        if (strcmp(policies->all[i].name, head.name) == 0)
            return usage_error(command, "there are two limits '%s'", head.name);
    int code = policies_add_text(policies, command, colon ? colon + 1 : text);
    if (code != EXIT_OK)
        return code;
    struct named_policy *added = &policies->all[policies->count - 1];
    memcpy(added->name, head.name, sizeof head.name);
    memcpy(added->key, head.key, sizeof head.key);
    memcpy(added->cost, head.cost, sizeof head.cost);
    return EXIT_OK;
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
