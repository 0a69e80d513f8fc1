/* policy_list.h - everything that a policy file says, kept until it can be put into force together. */
#ifndef CORE_POLICY_POLICY_LIST_H
#define CORE_POLICY_POLICY_LIST_H

#include "core/ground/log.h"

#include <weir/weir.h>

/* One policy of a list. */
struct policy_entry {
    const char *name;          /* the limit's */
    const char *pattern;       /* an override's, as written; NULL: the limit itself */
    struct weir_policy policy; /* as read; not yet checked against shares */
    const char *error;         /* NULL, or why there is no policy; the name then keeps the one it had */
    const char *where;         /* for log lines and last_error: "limits.conf:3", "Consul's weir/api" */
};

struct policy_list {
    struct policy_entry *entries; /* `where` is "<path>:<line>", `error` NULL */
    size_t count, room;
};

/* Read every line of the file. On WEIR_OK the caller frees the list. Otherwise return WEIR_EINVAL, WEIR_EIO or
 * WEIR_ENOMEM with a sentence that names the file, and the line if one is bad. */
int policy_list_read(const char *path, struct policy_list *out, struct message message);

void policy_list_free(struct policy_list *list);

#endif
