/* inspect_kind.h - the two kinds of inspectors: over Redis, and over the file of machine mode.
 *
 * Each begins with a pointer to its functions, which do what those of <weir/inspect.h> say. The caller has disabled
 * cancellation, and checked that the inspector and what is written to are not NULL.
 */
#ifndef BACKENDS_SHARED_INSPECT_KIND_H
#define BACKENDS_SHARED_INSPECT_KIND_H

#include <weir/weir.h>

struct inspect_kind {
    void (*close)(weir_inspector *inspector);
    int (*key)(weir_inspector *inspector, const char *limit, struct weir_key key, struct weir_inspected *out);
    int (*some)(weir_inspector *inspector, const char *limit, const char *pattern, int64_t most, bool *is_all,
                int (*visit)(void *user, const struct weir_inspected *key), void *user);
    int (*reset)(weir_inspector *inspector, const char *limit, struct weir_key key, bool *existed);
};

#endif
