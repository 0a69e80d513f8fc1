/* acquire.c - waits for permits: tries, sleeps for as long as the answer says, and tries again.
 *
 * Every call is counted (inside.h): weir_close() wakes those that sleep and waits until the last one has left.
 */
#include "core/api/verbs.h"
#include "core/ground/arith.h"
#include "core/ground/cancel.h"

#include <errno.h>
#include <time.h>

int acquire_sleep_until(struct weir *limiter, int64_t until_us)
{
    const struct timespec until = clock_timespec(until_us);
    int woken = 0;
    lock_take(&limiter->closing.mutex);
    while (!limiter->closing.has_begun && woken != ETIMEDOUT)
        woken = pthread_cond_timedwait(&limiter->closing.begins, &limiter->closing.mutex.mutex, &until);
    int result = limiter->closing.has_begun ? WEIR_ECLOSED : WEIR_OK;
    lock_give(&limiter->closing.mutex);
    return result;
}

/* Deny a request that was admitted but would have to queue for longer than the caller will wait, and refund its
 * permits. If the refund fails they are lost, and the request is denied all the same. */
static int decline(struct weir *limiter, struct weir_backend_request *request, int64_t left_us,
                   struct weir_decision *decision)
{
    int64_t too_long_us = decision->delay_us - left_us;
    uint8_t source = decision->source;
    request->verb = WEIR_REFUND;
    int error = failure_follow(limiter, request, decision);
    decision->allowed = false;
    decision->source = source;
    decision->delay_us = 0;
    decision->retry_after_us = too_long_us;
    const bool failed = error == WEIR_ETIME || error == WEIR_EIO;
    return failed && limiter->on_failure != WEIR_FAIL_ERROR ? WEIR_OK : error;
}

/* *request is that of the last try. */
static int acquire(struct weir_limit *limit, struct weir_key key, int64_t cost, int64_t max_wait_us,
                   struct weir_backend_request *request, struct weir_decision *out)
{
    struct weir *limiter = limit->limiter;
    int64_t start_us = clock_monotonic_us();
    int64_t end_us = max_wait_us > INT64_MAX - start_us ? INT64_MAX : start_us + max_wait_us;
    for (bool slept = false;; slept = true) {
        *request = backend_request(limit, key, cost, WEIR_OWN_CLOCK, WEIR_TAKE);
        int error = decide_request(limiter, request, out);
        if (error)
            return error;
        int64_t now_us = slept || limiter->can_block || out->delay_us > 0 ? clock_monotonic_us() : start_us;
        int64_t left_us = max_of(0, end_us - now_us);
        if (out->allowed) {
            if (out->delay_us == 0)
                return WEIR_OK;
            if (out->delay_us > left_us)
                return decline(limiter, request, left_us, out);
            error = acquire_sleep_until(limiter, now_us + out->delay_us);
            out->delay_us = 0;
            return error;
        }
        if (out->retry_after_us == WEIR_NEVER || out->retry_after_us > left_us)
            return WEIR_OK;
        error = acquire_sleep_until(limiter, now_us + out->retry_after_us);
        if (error)
            return error;
    }
}

int weir_acquire(weir_limit *limit, struct weir_key key, int64_t cost, int64_t max_wait_us, struct weir_decision *out)
{
    int error = check_arguments(limit, key, cost);
    if (error)
        return error;
    struct weir *limiter = limit->limiter;
    if (!out)
        return refuse_null(limiter, "out");
    if (max_wait_us < 0)
        return refuse_range(limiter, "max_wait_us", max_wait_us, 0, INT64_MAX);

    CANCEL_DISABLED;
    error = inside_add(limiter, 1);
    if (error)
        return error;
    struct weir_decision decision;
    struct weir_backend_request request;
    error = acquire(limit, key, cost, max_wait_us, &request, &decision);
    count_answer(&request, error, &decision);
    if (!error)
        *out = decision;
    inside_remove(limiter, 1); /* the limiter may be freed from here on */
    return error;
}
