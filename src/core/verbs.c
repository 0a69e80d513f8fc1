/* verbs.c - what a caller asks of one limit, answered at once. */
#include "core/verbs.h"

#include <inttypes.h>

int refuse_range(const struct weir *limiter, const char *what, int64_t value, int64_t min, int64_t max)
{
    log_line(&limiter->log, WEIR_LOG_WARNING, "%s must be %" PRId64 " to %" PRId64 ", not %" PRId64, what, min, max,
             value);
    return WEIR_EINVAL;
}

int refuse_null(const struct weir *limiter, const char *what)
{
    log_line(&limiter->log, WEIR_LOG_WARNING, "%s must not be NULL", what);
    return WEIR_EINVAL;
}

int weir_try(weir_limit *limit, struct weir_key key, int64_t cost, struct weir_decision *out)
{
    int error = check_arguments(limit, key, cost);
    if (error)
        return error;
    if (!out)
        return refuse_null(limit->limiter, "out");
    error = decide_once(limit, key, cost, WEIR_TAKE, out);
    count_answer(limit->limiter, error, !error && out->allowed);
    return error;
}

int weir_peek(weir_limit *limit, struct weir_key key, int64_t cost, struct weir_decision *out)
{
    int error = check_arguments(limit, key, cost);
    if (error)
        return error;
    if (!out)
        return refuse_null(limit->limiter, "out");
    return decide_once(limit, key, cost, WEIR_PEEK, out);
}

int weir_refund(weir_limit *limit, struct weir_key key, int64_t cost)
{
    struct weir_decision decision;
    int error = check_arguments(limit, key, cost);
    return error ? error : decide_once(limit, key, cost, WEIR_REFUND, &decision);
}

int weir_reset(weir_limit *limit, struct weir_key key)
{
    struct weir_decision decision;
    int error = check_arguments(limit, key, 1);
    return error ? error : decide_once(limit, key, 1, WEIR_RESET, &decision);
}
