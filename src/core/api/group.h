/* group.h - checks and times a caller's struct weir_request, and makes it one of the backend's. */
#ifndef CORE_API_GROUP_H
#define CORE_API_GROUP_H

#include "core/api/verbs.h"

/* Check a request: WEIR_OK, or WEIR_EINVAL with a line in the log. */
int check_request(const struct weir *limiter, const struct weir_request *request);

/* Find the time for requests that bring none. Reads the clock at most once, and only if one of them needs it. */
int group_time(const struct weir *limiter, const struct weir_request *requests, size_t n, int64_t *out);

struct weir_backend_request take_request(const struct weir_request *request, int64_t now_us);

#endif
