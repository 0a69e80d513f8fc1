/* policy_print.c - writes policies in the grammar that policy_text.c reads. */
#include "core/policy/policy.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static int policy_print_time(char *text, size_t size, const char *name, int64_t time_us)
{
    int i = 0;
    while (time_us % policy_time_units[i].us != 0)
        i++;
    return snprintf(text, size, " %s=%" PRId64 "%s", name, time_us / policy_time_units[i].us,
                    policy_time_units[i].name);
}

static int print_field(char *text, size_t size, const struct policy_field *field, int64_t value)
{
    switch (field->kind) {
    case POLICY_TIME: return policy_print_time(text, size, field->name, value);
    case POLICY_CHOICE: return snprintf(text, size, " %s=%s", field->name, field->choices[value]);
    case POLICY_WORD: return snprintf(text, size, " %s", field->name);
    case POLICY_COUNT: break;
    }
    return snprintf(text, size, " %s=%" PRId64, field->name, value);
}

/* Print a half. Leave out what is the same in `first`, unless that is NULL. Return how many bytes. */
static size_t print_half(char *line, size_t size, const struct weir_policy *half, const struct weir_policy *first)
{
    size_t len = first ? 0 : (size_t)snprintf(line, size, "%s", policy_algorithms[half->algorithm]);
    for (unsigned id = 0; id < POLICY_FIELDS; id++) {
        const int64_t value = policy_get(half, (enum policy_field_id)id);
        if (value != 0 && !(first && value == policy_get(first, (enum policy_field_id)id)))
            len += (size_t)print_field(line + len, size - len, &policy_fields[id], value);
    }
    return len;
}

/* True if `half` can be printed as changes of `first`: none of them takes a field away. */
static bool half_changes(const struct weir_policy *half, const struct weir_policy *first)
{
    bool changes = half->algorithm == first->algorithm, differs = false;
    for (unsigned id = 0; id < POLICY_FIELDS; id++) {
        const int64_t value = policy_get(half, (enum policy_field_id)id);
        const int64_t before = policy_get(first, (enum policy_field_id)id);
        changes = changes && !(value == 0 && before != 0);
        differs = differs || value != before;
    }
    return changes && differs;
}

static size_t print_candidate(char *line, size_t size, const struct weir_policy *policy)
{
    const struct weir_policy half = policy_candidate(policy);
    const bool changes = half_changes(&half, policy);
    const size_t len = (size_t)snprintf(line, size, ", candidate%s", changes ? "" : " ");
    return len + print_half(line + len, size - len, &half, changes ? policy : NULL);
}

int weir_policy_print(const struct weir_policy *policy, char *text, size_t text_size)
{
    if (!text || weir_policy_check(policy, NULL, 0) != WEIR_OK)
        return WEIR_EINVAL;

    char line[WEIR_POLICY_TEXT_SIZE];
    size_t len = print_half(line, sizeof line, policy, NULL);
    if (policy_has_candidate(policy))
        len += print_candidate(line + len, sizeof line - len, policy);
    if (len >= text_size)
        return WEIR_EINVAL;
    snprintf(text, text_size, "%s", line);
    return WEIR_OK;
}
