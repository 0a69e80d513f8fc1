/* policy_file_watch.h - follows a policy file: reads it again whenever it has changed, however it was changed. */
#ifndef BACKENDS_FOLLOW_POLICY_FILE_WATCH_H
#define BACKENDS_FOLLOW_POLICY_FILE_WATCH_H

#include "core/limiter/limiter.h"

/* Before the limiter is the caller's, see follow_add(). `path` is copied. WEIR_OK; or, with a line in the log and
 * nothing started, WEIR_ENOMEM, or WEIR_EIO: no thread to be had. */
int policy_file_follow(const char *path, struct weir *limiter);

#endif
