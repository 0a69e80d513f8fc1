/* failure.c - tells outages from one another and answers during one.
 *
 * An outage begins with the first failure after a success and ends with the next success. Within it the fallback takes
 * every key for one whose permits were all taken when it began; that time is set once, so a failure among others gives
 * nobody anything. Each outage has a number, which makes its keys in the fallback others than those of the outage before.
 *
 * All of it is one word, so that threads that fail and succeed at once agree without a lock:
 *
 *     63 .. 17   when it began, in units of 64 us, rounded up: what is lost by that is never a permit too many
 *     16 ..  1   the outage's number; it comes round, but a state that old owes nothing to the outage at hand
 *           0    whether it lasts
 */
#include "core/failure.h"

#include "core/arith.h"
#include "core/verbs.h"

#include <inttypes.h>

#define OUTAGE_LASTS UINT64_C(1)
#define OUTAGE_NUMBER_BITS 16
#define OUTAGE_SINCE_BITS 47
#define OUTAGE_UNIT_US 64
#define CLOSED_RETRY_US WEIR_SECOND

_Static_assert(WEIR_MAX_LIMITS <= 1 << (32 - OUTAGE_NUMBER_BITS), "a limit's id and an outage's number share 32 bits");

static uint64_t outage_make(uint64_t number, int64_t since_us)
{
    const int64_t most = (INT64_C(1) << OUTAGE_SINCE_BITS) - 1;
    uint64_t since = (uint64_t)min_of(div_up(since_us, OUTAGE_UNIT_US), most);
    number &= (UINT64_C(1) << OUTAGE_NUMBER_BITS) - 1;
    return since << (1 + OUTAGE_NUMBER_BITS) | number << 1 | OUTAGE_LASTS;
}

static uint64_t outage_number(uint64_t outage)
{
    return outage >> 1 & ((UINT64_C(1) << OUTAGE_NUMBER_BITS) - 1);
}

static int64_t outage_since_us(uint64_t outage)
{
    return (int64_t)(outage >> (1 + OUTAGE_NUMBER_BITS)) * OUTAGE_UNIT_US;
}

/* What the log says of each policy. */
static const char *const takes_over[] = {
    [WEIR_FAIL_LOCAL] = "by this process's share",
    [WEIR_FAIL_OPEN] = "to allow everything",
    [WEIR_FAIL_CLOSED] = "to deny everything",
};

/* The outage that the backend is in, begun if need be. Relaxed throughout: the word is all there is to see. */
static uint64_t outage_enter(struct weir *limiter, int64_t now_us, int error)
{
    uint64_t outage = atomic_load_explicit(&limiter->outage, memory_order_relaxed);
    for (;;) {
        const bool lasts = outage & OUTAGE_LASTS;
        /* A clock that stepped back by more than the slack takes the outage along, as it does with a key's state. */
        if (lasts && outage_since_us(outage) - now_us <= WEIR_CLOCK_SLACK_US)
            return outage;
        const uint64_t entered = outage_make(outage_number(outage) + !lasts, now_us);
        if (!atomic_compare_exchange_weak_explicit(&limiter->outage, &outage, entered, memory_order_relaxed,
                                                   memory_order_relaxed))
            continue;
        if (!lasts) {
            stats_add(&limiter->stats, STATS_OUTAGES, 1);
            log_line(&limiter->log, WEIR_LOG_WARNING, "backend %s: %s; deciding %s until it answers",
                     limiter->backend->ops->name, weir_strerror(error), takes_over[limiter->on_failure]);
        }
        return entered;
    }
}

__attribute__((noinline)) static void outage_leave(struct weir *limiter)
{
    uint64_t outage = atomic_load_explicit(&limiter->outage, memory_order_relaxed);
    while (outage & OUTAGE_LASTS) {
        if (!atomic_compare_exchange_weak_explicit(&limiter->outage, &outage, outage & ~OUTAGE_LASTS,
                                                   memory_order_relaxed, memory_order_relaxed))
            continue;
        log_line(&limiter->log, WEIR_LOG_INFO, "backend %s answers again", limiter->backend->ops->name);
        return;
    }
}

/* ---- Answers ---- */

/* The fallback needs times: those of the caller, or the limiter's clock, read once. */
static int fill_times(const struct weir *limiter, struct weir_backend_request *requests, size_t n)
{
    int64_t now_us = WEIR_OWN_CLOCK;
    for (size_t i = 0; i < n; i++) {
        if (requests[i].now_us != WEIR_OWN_CLOCK)
            continue;
        int error = now_us == WEIR_OWN_CLOCK ? read_clock(limiter, &now_us) : WEIR_OK;
        if (error)
            return error;
        requests[i].now_us = now_us;
    }
    return WEIR_OK;
}

static int decide_local(struct weir *limiter, int failure, struct weir_backend_request *requests, size_t n, bool all,
                        struct weir_decision *out)
{
    int error = fill_times(limiter, requests, n);
    if (error)
        return error;
    for (size_t i = 0; i < n; i++) {
        struct weir_backend_request *request = &requests[i];
        const uint64_t outage = outage_enter(limiter, request->now_us, failure);
        request->cold_since_us = outage_since_us(outage);
        request->limit_id = request->limit->id | (uint32_t)(outage_number(outage) << 16);
        request->plan_version = plan_cell_version(limit_plan(request->limit, true));
    }
    struct weir_backend *fallback = limiter->fallback;
    error = fallback->ops->decide(fallback, requests, n, all, INT64_MAX, out);
    for (size_t i = 0; !error && i < n; i++)
        out[i].source = WEIR_BY_FALLBACK;
    return error;
}

/* Without a look at the key: its plan alone says what can be said. */
static void decide_blindly(const struct weir *limiter, const struct weir_backend_request *request,
                           struct weir_decision *out)
{
    const bool open = limiter->on_failure == WEIR_FAIL_OPEN;
    struct weir_plan plan;
    weir_request_plan(request, &plan);
    const bool fits = request->cost <= plan.size;
    *out = (struct weir_decision){
        .allowed = open && fits,
        .source = open ? WEIR_BY_FAIL_OPEN : WEIR_BY_FAIL_CLOSED,
        .limit = plan.size,
        .remaining = open ? plan.size : 0,
        .retry_after_us = !fits  ? WEIR_NEVER
                          : open ? 0
                                 : CLOSED_RETRY_US,
    };
}

int failure_answer(struct weir *limiter, int error, struct weir_backend_request *requests, size_t n, bool all,
                   struct weir_decision *out)
{
    if (error == WEIR_OK && atomic_load_explicit(&limiter->outage, memory_order_relaxed) & OUTAGE_LASTS)
        outage_leave(limiter);
    const bool failed = error == WEIR_ETIME || error == WEIR_EIO;
    if (!failed || limiter->on_failure == WEIR_FAIL_ERROR || requests[0].verb == WEIR_REFUND ||
        requests[0].verb == WEIR_RESET)
        return error;
    if (limiter->on_failure == WEIR_FAIL_LOCAL)
        return decide_local(limiter, error, requests, n, all, out);
    outage_enter(limiter, 0, error);
    for (size_t i = 0; i < n; i++)
        decide_blindly(limiter, &requests[i], &out[i]);
    return WEIR_OK;
}

int failure_decide(struct weir *limiter, struct weir_backend_request *requests, size_t n, bool all, int64_t deadline_us,
                   struct weir_decision *out)
{
    int error = limiter->backend->ops->decide(limiter->backend, requests, n, all, deadline_us, out);
    assert(error <= 0);
    return failure_answer(limiter, error, requests, n, all, out);
}

int failure_follow(struct weir *limiter, struct weir_backend_request *request, struct weir_decision *out)
{
    struct weir_backend *decider = failure_fell_back(request) ? limiter->fallback : limiter->backend;
    request->now_us = WEIR_OWN_CLOCK;
    int error = failure_fell_back(request) ? read_clock(limiter, &request->now_us)
                                           : request_time(limiter, &request->now_us);
    if (error)
        return error;
    return decider->ops->decide(decider, request, 1, false, deadline_us(limiter), out);
}
