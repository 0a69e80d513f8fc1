/* policy.c - the fields of a policy and their ranges. */
#include "core/policy/policy.h"

#include <inttypes.h>

#define OF(algorithm) (1u << (algorithm))
#define OF_ALL (OF(POLICY_ALGORITHMS) - 1)
#define OF_COUNTING (OF_ALL & ~OF(WEIR_UNLIMITED) & ~OF(WEIR_DENY))

const char *const policy_algorithms[POLICY_ALGORITHMS] = {
    [WEIR_TOKEN_BUCKET] = "token_bucket",
    [WEIR_FIXED_WINDOW] = "fixed_window",
    [WEIR_SLIDING_WINDOW] = "sliding_window",
    [WEIR_LEAKY_BUCKET] = "leaky_bucket",
    [WEIR_CONCURRENCY] = "concurrency",
    [WEIR_UNLIMITED] = "unlimited",
    [WEIR_DENY] = "deny",
};

const struct policy_unit policy_time_units[POLICY_TIME_UNITS] = { { "d", WEIR_DAY },    { "h", WEIR_HOUR },
                                                                  { "m", WEIR_MINUTE }, { "s", WEIR_SECOND },
                                                                  { "ms", 1000 },       { "us", 1 } };

static const char *const refill_words[] = { [WEIR_GREEDY] = "greedy", [WEIR_INTERVAL] = "interval" };
static const char *const align_words[] = { [WEIR_ALIGN_FIRST] = "first", [WEIR_ALIGN_EPOCH] = "epoch" };

const struct policy_field policy_fields[POLICY_FIELDS] = {
    [POLICY_LIMIT] = { "limit", POLICY_COUNT, OF_COUNTING, true, 1, WEIR_MAX_PERMITS, NULL },
    [POLICY_PERIOD] = { "period", POLICY_TIME, OF_COUNTING & ~OF(WEIR_CONCURRENCY), true, 1, WEIR_MAX_PERIOD_US, NULL },
    [POLICY_HOLD] = { "hold", POLICY_TIME, OF(WEIR_CONCURRENCY), true, 1, WEIR_MAX_PERIOD_US, NULL },
    [POLICY_BURST] = { "burst", POLICY_COUNT, OF(WEIR_TOKEN_BUCKET), false, 1, WEIR_MAX_PERMITS, NULL },
    [POLICY_DEBT] = { "debt", POLICY_COUNT, OF(WEIR_TOKEN_BUCKET), false, 0, WEIR_MAX_PERMITS, NULL },
    [POLICY_CAPACITY] = { "capacity", POLICY_COUNT, OF(WEIR_LEAKY_BUCKET), false, 1, WEIR_MAX_PERMITS, NULL },
    [POLICY_BLOCKS] = { "blocks", POLICY_COUNT, OF(WEIR_SLIDING_WINDOW), false, 1, WEIR_MAX_BLOCKS, NULL },
    [POLICY_REFILL] = { "refill", POLICY_CHOICE, OF(WEIR_TOKEN_BUCKET), false, 0, 1, refill_words },
    [POLICY_ALIGN] = { "align", POLICY_CHOICE, OF(WEIR_TOKEN_BUCKET) | OF(WEIR_FIXED_WINDOW), false, 0, 1,
                       align_words },
    [POLICY_SHADOW] = { "shadow", POLICY_WORD, OF_ALL & ~OF(WEIR_UNLIMITED), false, 0, 1, NULL },
    [POLICY_PERCENT] = { "percent", POLICY_COUNT, OF_ALL & ~OF(WEIR_UNLIMITED), false, 1, 100, NULL },
};

int64_t policy_get(const struct weir_policy *policy, enum policy_field_id id)
{
    switch (id) {
    case POLICY_LIMIT: return policy->limit;
    case POLICY_PERIOD: return policy->algorithm == WEIR_CONCURRENCY ? 0 : policy->period_us;
    case POLICY_HOLD: return policy->algorithm == WEIR_CONCURRENCY ? policy->period_us : 0;
    case POLICY_BURST: return policy->burst;
    case POLICY_DEBT: return policy->debt;
    case POLICY_CAPACITY: return policy->capacity;
    case POLICY_BLOCKS: return policy->blocks;
    case POLICY_REFILL: return (int64_t)policy->refill;
    case POLICY_ALIGN: return (int64_t)policy->align;
    case POLICY_SHADOW: return policy->shadow;
    case POLICY_PERCENT: return policy->percent;
    case POLICY_FIELDS: break;
    }
    return 0;
}

void policy_set(struct weir_policy *policy, enum policy_field_id id, int64_t value)
{
    switch (id) {
    case POLICY_LIMIT: policy->limit = value; break;
    case POLICY_PERIOD:
    case POLICY_HOLD: policy->period_us = value; break;
    case POLICY_BURST: policy->burst = value; break;
    case POLICY_DEBT: policy->debt = value; break;
    case POLICY_CAPACITY: policy->capacity = value; break;
    case POLICY_BLOCKS: policy->blocks = (int32_t)value; break;
    case POLICY_REFILL: policy->refill = (enum weir_refill)value; break;
    case POLICY_ALIGN: policy->align = (enum weir_align)value; break;
    case POLICY_SHADOW: policy->shadow = (int32_t)value; break;
    case POLICY_PERCENT: policy->percent = (int32_t)value; break;
    case POLICY_FIELDS: break;
    }
}

bool policy_field_applies(const struct weir_policy *policy, enum policy_field_id id)
{
    if (!(policy_fields[id].algorithms & OF(policy->algorithm)))
        return false;
    bool greedy = policy->algorithm == WEIR_TOKEN_BUCKET && policy->refill == WEIR_GREEDY;
    return !(id == POLICY_ALIGN && greedy) && !(id == POLICY_PERCENT && policy->shadow);
}

struct weir_policy policy_candidate(const struct weir_policy *policy)
{
    const struct weir_candidate *half = &policy->candidate;
    return (struct weir_policy){ .algorithm = half->algorithm,
                                 .refill = half->refill,
                                 .align = half->align,
                                 .blocks = half->blocks,
                                 .limit = half->limit,
                                 .period_us = half->period_us,
                                 .burst = half->burst,
                                 .debt = half->debt,
                                 .capacity = half->capacity,
                                 .percent = (int32_t)half->percent };
}

struct weir_candidate policy_as_candidate(const struct weir_policy *half)
{
    return (struct weir_candidate){ .algorithm = half->algorithm,
                                    .refill = half->refill,
                                    .align = half->align,
                                    .blocks = half->blocks,
                                    .limit = half->limit,
                                    .period_us = half->period_us,
                                    .burst = half->burst,
                                    .debt = half->debt,
                                    .capacity = half->capacity,
                                    .percent = half->percent };
}

int32_t policy_shadow(const struct weir_policy *policy)
{
    if (policy->shadow)
        return 100;
    return policy->percent ? 100 - policy->percent : 0;
}

static int field_check(const struct weir_policy *policy, enum policy_field_id id, struct message message)
{
    const struct policy_field *field = &policy_fields[id];
    int64_t value = policy_get(policy, id);

    if (!policy_field_applies(policy, id) && value != 0)
        return message_refuse(message, "%s does not apply to %s%s%s", field->name, policy_is_fixed(policy) ? "" : "a ",
                              id == POLICY_PERCENT && policy->shadow ? "shadow" : policy_algorithms[policy->algorithm],
                              id == POLICY_ALIGN ? " without refill=interval" : "");
    if (value == 0 && !(field->required && policy_field_applies(policy, id)))
        return WEIR_OK;
    if (value < field->min || value > field->max)
        return message_refuse(message, "%s must be %" PRId64 " to %" PRId64 "%s, not %" PRId64, field->name, field->min,
                              field->max, field->kind == POLICY_TIME ? " us (366 days)" : "", value);
    return WEIR_OK;
}

int policy_check(const struct weir_policy *policy, struct message message, enum policy_field_id *fault)
{
    *fault = POLICY_LIMIT;
    if ((unsigned)policy->algorithm >= POLICY_ALGORITHMS)
        return message_refuse(message, "algorithm must be 0 to %d, not %d", POLICY_ALGORITHMS - 1,
                              (int)policy->algorithm);
    for (unsigned id = 0; id < POLICY_FIELDS; id++) {
        *fault = (enum policy_field_id)id;
        int error = field_check(policy, *fault, message);
        if (error)
            return error;
    }
    return WEIR_OK;
}

int policy_name_check(const char *name, struct message message)
{
    size_t len = 0;
    for (; name[len]; len++) {
        char c = name[len];
        bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' ||
                     c == '_' || c == '-';
        if (!plain)
            return message_refuse(message, "name \"%.*s\": byte %zu is not a letter, digit, '.', '_' or '-'",
                                  (int)(len + 1), name, len + 1);
        if (len == WEIR_MAX_NAME_LEN)
            return message_refuse(message, "name \"%.20s...\" is longer than %d bytes", name, WEIR_MAX_NAME_LEN);
    }
    if (len == 0)
        return message_refuse(message, "name must not be empty");
    return WEIR_OK;
}

int policy_state_name_check(const char *name, struct message message)
{
    char limit[WEIR_MAX_NAME_LEN + 1];
    const size_t len = strnlen(name, sizeof limit);
    if (len < 2 || len == sizeof limit || name[len - 1] != CANDIDATE_MARK)
        return policy_name_check(name, message);
    memcpy(limit, name, len - 1);
    limit[len - 1] = '\0';
    return policy_name_check(limit, message);
}
