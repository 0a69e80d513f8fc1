/* policy.h - the fields of a policy, in one table that serves to check, read and print them. */
#ifndef CORE_POLICY_POLICY_H
#define CORE_POLICY_POLICY_H

#include "core/ground/log.h"

#include <weir/weir.h>

#define POLICY_DEFAULT_BLOCKS 10

/* Ends the name under which a backend keeps the states of a limit's candidate. No limit's name contains it. */
#define CANDIDATE_MARK '~'

enum policy_kind { POLICY_COUNT, POLICY_TIME, POLICY_CHOICE, POLICY_WORD };

struct policy_field {
    const char *name;
    enum policy_kind kind;
    unsigned algorithms; /* bit 1 << enum weir_algorithm: the algorithms that have it */
    bool required;
    int64_t min, max;           /* of a value other than the default; 0 and 1 of a choice and of a word */
    const char *const *choices; /* POLICY_CHOICE: the two words */
};

enum policy_field_id {
    POLICY_LIMIT,
    POLICY_PERIOD,
    POLICY_HOLD, /* the period of a limit on requests in flight */
    POLICY_BURST,
    POLICY_DEBT,
    POLICY_CAPACITY,
    POLICY_BLOCKS,
    POLICY_REFILL,
    POLICY_ALIGN,
    POLICY_SHADOW,
    POLICY_PERCENT,
    POLICY_FIELDS
};

extern const struct policy_field policy_fields[POLICY_FIELDS];

/* From large to small: a time is printed in the first unit that divides it. */
#define POLICY_TIME_UNITS 6
extern const struct policy_unit {
    const char *name;
    int64_t us;
} policy_time_units[POLICY_TIME_UNITS];

#define POLICY_ALGORITHMS 7
extern const char *const policy_algorithms[POLICY_ALGORITHMS]; /* by enum weir_algorithm */

int64_t policy_get(const struct weir_policy *policy, enum policy_field_id id);
void policy_set(struct weir_policy *policy, enum policy_field_id id, int64_t value);

/* True if the policy decides without any state: WEIR_UNLIMITED or WEIR_DENY. */
static inline bool policy_is_fixed(const struct weir_policy *policy)
{
    return policy->algorithm == WEIR_UNLIMITED || policy->algorithm == WEIR_DENY;
}

/* True if the field has a meaning in this policy. */
bool policy_field_applies(const struct weir_policy *policy, enum policy_field_id id);

/* True if the policy has a second half. */
static inline bool policy_has_candidate(const struct weir_policy *policy)
{
    return policy->candidate.limit != 0;
}

/* Return the second half of a policy as a policy, with its percent; and such a half as it stands in a policy. */
struct weir_policy policy_candidate(const struct weir_policy *policy);
struct weir_candidate policy_as_candidate(const struct weir_policy *half);

/* Return the percent of keys for which the policy's limit denies nothing. */
int32_t policy_shadow(const struct weir_policy *policy);

/* Check that each field is in its range: WEIR_OK, or WEIR_EINVAL with a sentence and the field at fault in *fault.
 * plan_check() also checks the fields together. */
int policy_check(const struct weir_policy *policy, struct message message, enum policy_field_id *fault);

/* Do weir_policy_parse() for a text that begins at `first_column` of its line. */
int policy_read(const char *text, int first_column, struct weir_policy *out, struct message message);

/* Read a number up to `limit`: digits, perhaps a point and more digits, perhaps a unit (k, M, GiB). Return -1 if it is
 * none, is not a whole number, is too large, or has more than 18 digits behind the point. */
int64_t policy_read_count(const char *text, const char *limit);

/* Read a time up to `limit`, a whole number and a unit, in microseconds. Return -1 if it is none. */
int64_t policy_read_time(const char *text, const char *limit);

/* Check a limit's name: 1 to WEIR_MAX_NAME_LEN letters, digits, '.', '_', '-'. WEIR_OK, or WEIR_EINVAL with a sentence.
 */
int policy_name_check(const char *name, struct message message);

/* Check a name under which a backend keeps states: a limit's, or with CANDIDATE_MARK behind it its candidate's. */
int policy_state_name_check(const char *name, struct message message);

#endif
