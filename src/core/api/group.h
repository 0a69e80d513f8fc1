/* group.h - checks and times a caller's struct weir_request, and makes it one of the backend's. */
#ifndef CORE_API_GROUP_H
#define CORE_API_GROUP_H

#include "core/api/verbs.h"

/* Check a request: WEIR_OK, or WEIR_EINVAL with a line in the log. Inline, because a batch checks every key. */
static inline int check_request(const struct weir *limiter, const struct weir_request *request)
{
    if (!request->limit)
        return refuse_null(limiter, "request.limit");
    if (request->limit->limiter != limiter) {
        request_tell_foreign(limiter, request->limit);
        return WEIR_EINVAL;
    }
    if (request->now_us < 0 || request->now_us > WEIR_MAX_TIME_US)
        return refuse_range(limiter, "request.now_us", request->now_us, 0, WEIR_MAX_TIME_US);
    return check_arguments(request->limit, request->key, request->cost);
}

/* Find the time for requests that bring none. Reads the clock at most once, and only if one of them needs it. */
int group_time(const struct weir *limiter, const struct weir_request *requests, size_t n, int64_t *out);

struct weir_backend_request take_request(const struct weir_request *request, int64_t now_us);

#endif
