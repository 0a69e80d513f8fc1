/* request.c - what callers ask, checked and made into requests to a backend. */
#include "core/limiter/request.h"

#include <inttypes.h>

void request_tell_range(const struct weir *limiter, const char *what, int64_t value, int64_t min, int64_t max)
{
    if (max == min)
        log_line(&limiter->log, WEIR_LOG_WARNING, "%s must be %" PRId64 ", not %" PRId64, what, min, value);
    else if (max == INT64_MAX)
        log_line(&limiter->log, WEIR_LOG_WARNING, "%s must be %" PRId64 " or more, not %" PRId64, what, min, value);
    else
        log_line(&limiter->log, WEIR_LOG_WARNING, "%s must be %" PRId64 " to %" PRId64 ", not %" PRId64, what, min, max,
                 value);
}

void request_tell_null(const struct weir *limiter, const char *what)
{
    log_line(&limiter->log, WEIR_LOG_WARNING, "%s must not be NULL", what);
}

void request_tell_foreign(const struct weir *limiter, const struct weir_limit *limit)
{
    log_line(&limiter->log, WEIR_LOG_WARNING, "limit %s belongs to another limiter", limit->name);
}

uint64_t weir_request_plan(const struct weir_backend_request *request, struct weir_plan *out)
{
    return plan_cell_read(request->cold_since_us >= 0 ? &request->limit->local_plan : &request->limit->plan, out);
}
