/* policy_file_watch.h - follows a policy file: reads it again whenever it has changed in any way. */
#ifndef BACKENDS_FOLLOW_POLICY_FILE_WATCH_H
#define BACKENDS_FOLLOW_POLICY_FILE_WATCH_H

#include "core/limiter/limiter.h"

/* Follow a file, before the limiter is returned to the caller, see follow_add(). `path` is copied. WEIR_OK; or
 * WEIR_ENOMEM or WEIR_EIO (no thread is available) with a line in the log and nothing started. */
int policy_file_follow(const char *path, struct weir *limiter);

#endif
