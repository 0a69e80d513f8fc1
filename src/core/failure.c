/* failure.c - tells outages from one another and answers during one.
 *
 * An outage begins with the first failure after a success and ends with the next success. A process that asks seldom may
 * see no success for long: so a failure also begins a new one if the backend says that it could be reached, for all it
 * knew, OUTAGE_GAP_US after the last. Within an outage the fallback takes every key for one whose permits were all taken
 * when it began; that time is set once, so a failure among others gives nobody anything. Each outage has a number, which
 * makes its keys in the fallback others than those of the outage before.
 *
 * All of it is one word, so that threads that fail and succeed at once agree without a lock:
 *
 *     63 .. 17   when it began, in units of 64 us, rounded up: what is lost by that is never a permit too many
 *     16 ..  2   the outage's number; it comes round after 32,768 outages: a state that is as old as that goes on as the
 *                meter that it is, which is no burst either
 *           1    whether the log was told of it; not of one that begins OUTAGE_TELL_US after the last that was, or sooner
 *           0    whether it lasts
 */
#include "core/failure.h"

#include "core/arith.h"
#include "core/verbs.h"

#include <inttypes.h>

#define OUTAGE_LASTS UINT64_C(1)
#define OUTAGE_TOLD UINT64_C(2)
#define OUTAGE_NUMBER_BIT 2
#define OUTAGE_NUMBER_BITS 15
#define LIMIT_ID_BITS 16
#define OUTAGE_SINCE_BIT (OUTAGE_NUMBER_BIT + OUTAGE_NUMBER_BITS)
#define OUTAGE_SINCE_BITS 47
#define OUTAGE_UNIT_US 64
#define OUTAGE_GAP_US WEIR_SECOND
#define OUTAGE_TELL_US WEIR_SECOND
#define CLOSED_RETRY_US WEIR_SECOND

_Static_assert(WEIR_MAX_LIMITS <= 1 << LIMIT_ID_BITS && LIMIT_ID_BITS + OUTAGE_NUMBER_BITS <= 32,
               "a limit's id and an outage's number share 32 bits");

static uint64_t outage_make(uint64_t number, int64_t since_us)
{
    const int64_t most = (INT64_C(1) << OUTAGE_SINCE_BITS) - 1;
    uint64_t since = (uint64_t)min_of(div_up(since_us, OUTAGE_UNIT_US), most);
    number &= (UINT64_C(1) << OUTAGE_NUMBER_BITS) - 1;
    return since << OUTAGE_SINCE_BIT | number << OUTAGE_NUMBER_BIT | OUTAGE_LASTS;
}

static uint64_t outage_number(uint64_t outage)
{
    return outage >> OUTAGE_NUMBER_BIT & ((UINT64_C(1) << OUTAGE_NUMBER_BITS) - 1);
}

static int64_t outage_since_us(uint64_t outage)
{
    return (int64_t)(outage >> OUTAGE_SINCE_BIT) * OUTAGE_UNIT_US;
}

/* What the log says of each policy. */
static const char *const takes_over[] = {
    [WEIR_FAIL_LOCAL] = "by this process's share",
    [WEIR_FAIL_OPEN] = "to allow everything",
    [WEIR_FAIL_CLOSED] = "to deny everything",
};

/* Whether the backend was well for a while since the last failure, though nobody here saw it. */
static bool was_well_since(const struct weir *limiter, int64_t failed_us)
{
    const struct weir_backend_ops *ops = limiter->backend->ops;
    return ops->reachable_us && ops->reachable_us(limiter->backend) - failed_us > OUTAGE_GAP_US;
}

/* The outage that the backend is in, begun if need be. Relaxed throughout: the word is all there is to see. */
static uint64_t outage_enter(struct weir *limiter, int64_t now_us, int error)
{
    uint64_t outage = atomic_load_explicit(&limiter->outage, memory_order_relaxed);
    for (;;) {
        const int64_t failed_us = atomic_load_explicit(&limiter->failed_us, memory_order_relaxed);
        const bool lasts = outage & OUTAGE_LASTS && !was_well_since(limiter, failed_us);
        /* A clock that stepped back by more than the slack takes the outage along, as it does with a key's state. */
        if (lasts && outage_since_us(outage) - now_us <= WEIR_CLOCK_SLACK_US) {
            atomic_store_explicit(&limiter->failed_us, clock_monotonic_us(), memory_order_relaxed);
            return outage;
        }
        const int64_t here_us = clock_monotonic_us();
        const int64_t told_us = atomic_load_explicit(&limiter->told_us, memory_order_relaxed);
        const bool tells = !lasts && (told_us == 0 || here_us - told_us >= OUTAGE_TELL_US);
        const uint64_t told = lasts ? outage & OUTAGE_TOLD : tells ? OUTAGE_TOLD : 0;
        const uint64_t entered = outage_make(outage_number(outage) + !lasts, now_us) | told;
        if (!atomic_compare_exchange_weak_explicit(&limiter->outage, &outage, entered, memory_order_relaxed,
                                                   memory_order_relaxed))
            continue;
        atomic_store_explicit(&limiter->failed_us, here_us, memory_order_relaxed);
        if (!lasts)
            stats_add(&limiter->stats, STATS_OUTAGES, 1);
        if (tells) {
            atomic_store_explicit(&limiter->told_us, here_us, memory_order_relaxed);
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
        if (outage & OUTAGE_TOLD)
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
        request->limit_id = request->limit->id | (uint32_t)(outage_number(outage) << LIMIT_ID_BITS);
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
    if ((error == WEIR_OK || error == WEIR_ESTATE) &&
        atomic_load_explicit(&limiter->outage, memory_order_relaxed) & OUTAGE_LASTS)
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
