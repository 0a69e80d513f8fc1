/* policy.h - what a policy may say: one table of its fields, used to check, to read and to print it. */
#ifndef CORE_POLICY_POLICY_H
#define CORE_POLICY_POLICY_H

#include "core/ground/log.h"

#include <weir/weir.h>

#define POLICY_DEFAULT_BLOCKS 10

enum policy_kind { POLICY_COUNT, POLICY_TIME, POLICY_CHOICE };

struct policy_field {
    const char *name;
    enum policy_kind kind;
    unsigned algorithms; /* bit 1 << enum weir_algorithm: whose field it is */
    bool required;
    int64_t min, max;           /* of a value that is given; a choice's are 0 and 1 */
    const char *const *choices; /* POLICY_CHOICE: the two words */
};

enum policy_field_id {
    POLICY_LIMIT,
    POLICY_PERIOD,
    POLICY_BURST,
    POLICY_DEBT,
    POLICY_CAPACITY,
    POLICY_BLOCKS,
    POLICY_REFILL,
    POLICY_ALIGN,
    POLICY_FIELDS
};

extern const struct policy_field policy_fields[POLICY_FIELDS];

#define POLICY_ALGORITHMS 4
extern const char *const policy_algorithms[POLICY_ALGORITHMS]; /* by enum weir_algorithm */

int64_t policy_get(const struct weir_policy *policy, enum policy_field_id id);
void policy_set(struct weir_policy *policy, enum policy_field_id id, int64_t value);

/* Whether the field means anything in this policy. */
bool policy_field_applies(const struct weir_policy *policy, enum policy_field_id id);

/* Whether each field is in its range: WEIR_OK, or WEIR_EINVAL with a sentence and in *fault the field that it is about.
 * What the fields amount to together, plan_check() looks at. */
int policy_check(const struct weir_policy *policy, struct message message, enum policy_field_id *fault);

/* weir_policy_parse() of a text that stands at `first_column` of its line. */
int policy_read(const char *text, int first_column, struct weir_policy *out, struct message message);

/* A limit's name: 1 to WEIR_MAX_NAME_LEN letters, digits, '.', '_', '-'. WEIR_OK, or WEIR_EINVAL with a sentence. */
int policy_name_check(const char *name, struct message message);

#endif
