/* limit_file.h - defines limits from a policy file. */
#ifndef CORE_API_LIMIT_FILE_H
#define CORE_API_LIMIT_FILE_H

#include "core/limiter/limiter.h"

/* Do weir_limits_load() into a layer. A file that is followed may override limits that do not exist yet. */
int limits_load(struct weir *limiter, const char *path, enum layer layer, struct message message);

#endif
