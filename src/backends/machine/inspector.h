/* inspector.h - the parts of the inspector of a shared file. */
#ifndef BACKENDS_MACHINE_INSPECTOR_H
#define BACKENDS_MACHINE_INSPECTOR_H

#include "backends/machine/visit.h"
#include "backends/shared/inspect_kind.h"
#include "core/ground/clock.h"

struct file_inspector {
    const struct inspect_kind *kind; /* (c) the first member */
    struct machine *machine;         /* (c) */
    struct clock clock;              /* (c) */
    struct log log;                  /* (c) */
};

/* ---- tell.c ---- */

/* Give the log a sentence and return WEIR_EINVAL. */
int inspect_refuse(const struct file_inspector *inspector, const char *sentence);

/* Tell what the states of a visit's key say. WEIR_ESTATE: they cannot be read. */
int inspect_tell(const struct visit *visit, struct weir_inspected *out);

/* ---- walk.c ---- */

/* Do weir_inspect_some(). */
int inspect_file_some(struct file_inspector *inspector, const char *limit, const char *pattern, int64_t most,
                      bool *is_all, int (*visit)(void *user, const struct weir_inspected *key), void *user);

#endif
