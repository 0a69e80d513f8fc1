/* failure.c - decides by the backend, and answers in its place during an outage.
 *
 * During an outage the fallback treats every key as if all its permits had been taken when the outage began, except its
 * share of those known to be left (known.h). That time is set once, so a later failure gives no permits back. Each
 * outage has a number (outage_span.c), and the fallback keeps its keys apart from those of the outage before. Permits
 * that the fallback admitted are settled afterwards (settle.c).
 */
#include "core/outage/failure.h"

#include "core/ground/arith.h"
#include "core/limiter/fixed.h"
#include "core/limiter/own_ops.h"
#include "core/limiter/request.h"
#include "core/outage/arrears.h"
#include "core/outage/outage_span.h"
#include "core/outage/releases.h"
#include "core/outage/returns_kept.h"
#include "core/outage/settle.h"

#include <stdlib.h>

#define BUSY_RETRY_US 1000

int failure_init(struct weir *limiter, const struct weir_options *options)
{
    limiter->outage = calloc(1, sizeof *limiter->outage);
    if (!limiter->outage)
        return WEIR_ENOMEM;
    limiter->outage->open_for_us = options->open_for_us;
    limiter->outage->retry_us = options->outage_retry_us;
    limiter->outage->answered = 1;
    returns_init(&limiter->outage->kept);
    const bool knows = limiter->fallback && !options->outage_cold;
    if (knows)
        limiter->outage->known = calloc(1, sizeof *limiter->outage->known);
    const struct own_ops *own = own_ops(limiter->backend);
    const bool once = limiter->fallback && own && own->idles && !options->outage_adds;
    if (once)
        limiter->outage->arrears = calloc(1, sizeof *limiter->outage->arrears);
    releases_init(limiter);
    if ((!knows || limiter->outage->known) && (!once || limiter->outage->arrears) && settle_init(limiter) == WEIR_OK)
        return WEIR_OK;
    releases_free(limiter);
    free(limiter->outage->arrears);
    free(limiter->outage->known);
    free(limiter->outage);
    return WEIR_ENOMEM;
}

void failure_free(struct weir *limiter)
{
    returns_drop(limiter);
    releases_free(limiter);
    settle_free(limiter);
    free(limiter->outage->arrears);
    free(limiter->outage->known);
    free(limiter->outage);
}

/* ---- Answers ---- */

/* Give each request a time, which the fallback needs: its own, or one reading of the limiter's clock. */
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

/* Bound the wait of a fallback's denial: the outage may end, and a cost above the share may fit the whole limit. */
static void bound_retry(const struct weir *limiter, const struct weir_backend_request *request,
                        struct weir_decision *out)
{
    struct weir_plan whole;
    if (out->allowed)
        return;
    plan_cell_read(&request->limit->plan, &whole);
    if (out->retry_after_us != WEIR_NEVER)
        out->retry_after_us = min_of(out->retry_after_us, limiter->outage->retry_us);
    else if (request->cost <= whole.size)
        out->retry_after_us = limiter->outage->retry_us;
}

/* Deny, because a key still owes permits for an earlier outage. */
static void deny_owing(const struct weir *limiter, const struct weir_backend_request *requests, size_t n,
                       struct weir_decision *out)
{
    for (size_t i = 0; i < n; i++) {
        failure_deny_for_now(&requests[i], &out[i]);
        out[i].retry_after_us = WEIR_NEVER;
        bound_retry(limiter, &requests[i], &out[i]);
        out[i].age_us = max_of(0, requests[i].now_us - requests[i].cold_since_us);
    }
}

static int decide_local(struct weir *limiter, int failure, struct weir_backend_request *requests, size_t n, bool all,
                        struct weir_decision *out)
{
    int error = fill_times(limiter, requests, n);
    bool owes = false;
    if (error)
        return error;
    for (size_t i = 0; i < n; i++) {
        struct weir_backend_request *request = &requests[i];
        const uint64_t word = outage_enter(limiter, &request->key, request->now_us, failure);
        request->cold_since_us = outage_since_us(word);
        request->plan_version = plan_cell_version(&request->limit->local_plan);
        if (request->slot) { /* slots are counted as they are held, whatever outage they are of */
            request->slot = request->verb == WEIR_TAKE ? slot_next(limiter) | SLOT_LOCAL : request->slot;
            continue;
        }
        request->cold_left = outage_left(limiter, request);
        owes = owes ||
               (request->verb != WEIR_CHARGE && (settle_owes(limiter, request) || arrears_forbid(limiter, request)));
        request->limit_id = request->limit->id | outage_number(word) << OUTAGE_TAG_BIT;
    }
    if (owes) {
        deny_owing(limiter, requests, n, out);
        return WEIR_OK;
    }
    struct weir_backend *fallback = limiter->fallback;
    error = fallback->ops->decide(fallback, requests, n, all, INT64_MAX, out);
    bool charged = !error, is_late = false;
    for (size_t i = 0; all && charged && i < n; i++)
        charged = out[i].allowed;
    for (size_t i = 0; !error && i < n; i++) {
        const struct weir_backend_request *request = &requests[i];
        const int64_t beyond = request->verb == WEIR_CHARGE ? out[i].ahead : 0; /* not charged: no state holds more */
        if (request->slot)
            releases_gave(limiter);
        else if (charged && out[i].allowed && (request->verb == WEIR_TAKE || request->verb == WEIR_CHARGE) &&
                 request->cost > beyond)
            is_late = settle_admitted(limiter, request, request->cost - beyond, out[i].source != WEIR_BY_FULL) ||
                      is_late;
        bound_retry(limiter, request, &out[i]);
        out[i].source = WEIR_BY_FALLBACK;
        out[i].age_us = max_of(0, request->now_us - request->cold_since_us);
    }
    if (is_late)
        settle_all(limiter);
    return error;
}

/* Answer from the plan alone, without the key's state. */
static void decide_blindly(const struct weir *limiter, const struct weir_backend_request *request, bool open,
                           int64_t age_us, struct weir_decision *out)
{
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
                                 : limiter->outage->retry_us,
        .age_us = age_us,
    };
}

void failure_deny_for_now(const struct weir_backend_request *request, struct weir_decision *out)
{
    struct weir_plan plan;
    weir_request_plan(request, &plan);
    *out = (struct weir_decision){
        .source = WEIR_BY_FALLBACK,
        .limit = plan.size,
        .retry_after_us = request->cost <= plan.size ? BUSY_RETRY_US : WEIR_NEVER,
        .reset_after_us = BUSY_RETRY_US,
    };
}

/* Return the index of the first request that the store took part in deciding, or `n`. */
static size_t first_asked(const struct weir_decision *out, size_t n)
{
    size_t i = 0;
    while (i < n && (out[i].source == WEIR_BY_LEASE || out[i].source == WEIR_BY_DENIAL))
        i++;
    return i;
}

/* Answer each request of a batch that was not decided. Return the first error. */
static int answer_rest(struct weir *limiter, int error, struct weir_backend_request *requests, size_t n,
                       struct weir_decision *out)
{
    int first = WEIR_OK;
    for (size_t i = 0; i < n; i++) {
        if (out[i].source != WEIR_BY_NOBODY)
            continue;
        const int status = failure_answer(limiter, error, &requests[i], 1, false, 0, &out[i]);
        first = first ? first : status;
    }
    return first;
}

int failure_answer(struct weir *limiter, int error, struct weir_backend_request *requests, size_t n, bool all,
                   uint32_t asked, struct weir_decision *out)
{
    const bool lasts = atomic_load_explicit(&limiter->outage->word, memory_order_relaxed) & OUTAGE_LASTS;
    const size_t first = !lasts || error == WEIR_ESTATE ? 0 : error == WEIR_OK ? first_asked(out, n) : n;
    if (lasts && first < n)
        outage_over(limiter, &requests[first].key, outage_time(limiter, requests[first].now_us));
    const bool failed = failure_is_failure(error);
    if (failed && (n == 1 || all) && releases_after(limiter, requests, n, out))
        return WEIR_OK;
    if (error == WEIR_EIO_UNDONE && requests[0].verb == WEIR_REFUND && returns_keep_refused(limiter, requests, out))
        return WEIR_OK;
    if (error == WEIR_EIO_UNDONE)
        error = WEIR_EIO;
    if (!error || (n > 1 && !all)) /* some of a batch may have been decided */
        outage_note_left(limiter, requests, n, asked, out);
    if (!failed || limiter->on_failure == WEIR_FAIL_ERROR || requests[0].verb == WEIR_REFUND ||
        requests[0].verb == WEIR_RESET || requests[0].verb == WEIR_RENEW ||
        (requests[0].verb == WEIR_CHARGE && limiter->on_failure != WEIR_FAIL_LOCAL)) /* nothing else can record it */
        return error;
    if (n > 1 && !all)
        return answer_rest(limiter, error, requests, n, out);
    if (limiter->on_failure == WEIR_FAIL_LOCAL)
        return decide_local(limiter, error, requests, n, all, out);
    const int64_t now_us = outage_time(limiter, requests[0].now_us);
    const int64_t age_us = max_of(0, now_us - outage_since_us(outage_enter(limiter, &requests[0].key, now_us, error)));
    const bool open = limiter->on_failure == WEIR_FAIL_OPEN && !outage_open_is_spent(limiter->outage, age_us);
    for (size_t i = 0; i < n; i++)
        decide_blindly(limiter, &requests[i], open, age_us, &out[i]);
    return WEIR_OK;
}

/* Deny, because other threads took too long to settle a key. The backend may be well, so this is no outage. */
static int deny_for_now(const struct weir_backend_request *requests, size_t n, struct weir_decision *out)
{
    if (requests[0].verb == WEIR_RESET || requests[0].verb == WEIR_RENEW) /* these cannot be denied */
        return WEIR_ETIME;
    for (size_t i = 0; i < n; i++)
        failure_deny_for_now(&requests[i], &out[i]);
    return WEIR_OK;
}

static int decide_counted(struct weir *limiter, struct weir_backend_request *requests, size_t n, bool all,
                          int64_t deadline_us, struct weir_decision *out);

/* Decide a batch request by request: one of its keys cannot be settled now, but others may be decided. */
static int decide_one_by_one(struct weir *limiter, struct weir_backend_request *requests, size_t n, int64_t deadline_us,
                             struct weir_decision *out)
{
    int error = WEIR_OK;
    for (size_t i = 0; i < n && !error; i++)
        error = decide_counted(limiter, &requests[i], 1, false, deadline_us, &out[i]);
    return error;
}

/* Decide requests whose limits count. */
static int decide_counted(struct weir *limiter, struct weir_backend_request *requests, size_t n, bool all,
                          int64_t deadline_us, struct weir_decision *out)
{
    const bool is_due = settle_is_due(limiter) || arrears_any(limiter, requests, n);
    const bool is_calm = !is_due &&
                         !(atomic_load_explicit(&limiter->outage->word, memory_order_relaxed) & OUTAGE_LASTS);
    int error = WEIR_OK;
    if (n == 1 && releases_decide(limiter, requests, out))
        return WEIR_OK;
    if (requests[0].verb == WEIR_REFUND && returns_keep(limiter, requests, out))
        return WEIR_OK;
    if (is_due && requests[0].verb != WEIR_REFUND && requests[0].verb != WEIR_CHARGE) { /* these need no answer */
        if (deadline_us < 0)
            deadline_us = clock_monotonic_us() - deadline_us; /* settling and deciding share the span */
        error = settle_before(limiter, requests, n, deadline_us);
    }
    if (error == SETTLE_BUSY)
        return deny_for_now(requests, n, out);
    if (failure_is_failure(error) && n > 1 && !all)
        return decide_one_by_one(limiter, requests, n, deadline_us, out);
    for (size_t i = 0; n > 1 && i < n; i++)
        out[i].source = WEIR_BY_NOBODY;
    const uint32_t asked = outage_asked(limiter);
    if (!error)
        error = limiter->backend->ops->decide(limiter->backend, requests, n, all, deadline_us, out);
    assert(error <= 0);
    if (!error && is_calm) {
        if (limiter->outage->known)
            outage_note_left(limiter, requests, n, asked, out);
        return WEIR_OK;
    }
    if (!error && requests[0].verb == WEIR_RESET && (is_due || settle_is_due(limiter)))
        settle_forgive(limiter, &requests[0]);
    return failure_answer(limiter, error, requests, n, all, asked, out);
}

static void swap_requests(struct weir_backend_request *a, struct weir_backend_request *b)
{
    const struct weir_backend_request request = *a;
    *a = *b;
    *b = request;
}

/* Decide a batch some of whose limits are fixed: the others in one call, for which they move to the front. */
static int decide_mixed(struct weir *limiter, struct weir_backend_request *requests, size_t n, int64_t deadline_us,
                        struct weir_decision *out)
{
    uint16_t from[FAILURE_BATCH_MAX];
    size_t count = 0;
    assert(n <= FAILURE_BATCH_MAX);
    for (size_t i = 0; i < n; i++) {
        if (limit_is_fixed(requests[i].limit))
            continue;
        swap_requests(&requests[count], &requests[i]);
        from[count++] = (uint16_t)i;
    }
    int error = count > 0 ? decide_counted(limiter, requests, count, false, deadline_us, out) : WEIR_OK;
    for (size_t k = count; k-- > 0;) { /* back to their places, the last first */
        out[from[k]] = out[k];
        swap_requests(&requests[k], &requests[from[k]]);
    }
    for (size_t i = 0, k = 0; i < n && !error; i++) {
        if (k < count && from[k] == i)
            k++;
        else if (!fixed_decide(requests[i].limit, &out[i])) /* it has just ended */
            error = decide_counted(limiter, &requests[i], 1, false, deadline_us, &out[i]);
    }
    return error;
}

int failure_decide(struct weir *limiter, struct weir_backend_request *requests, size_t n, bool all, int64_t deadline_us,
                   struct weir_decision *out)
{
    if (n == 1 && !fixed_leaves(&requests[0]) && fixed_decide(requests[0].limit, out))
        return WEIR_OK;
    for (size_t i = 0; n > 1 && !all && i < n; i++)
        if (limit_is_fixed(requests[i].limit))
            return decide_mixed(limiter, requests, n, deadline_us, out);
    return decide_counted(limiter, requests, n, all, deadline_us, out);
}

int failure_follow(struct weir *limiter, struct weir_backend_request *request, struct weir_decision *out)
{
    const bool fell_back = request->cold_since_us >= 0;
    struct weir_backend *decider = fell_back ? limiter->fallback : limiter->backend;
    request->now_us = WEIR_OWN_CLOCK;
    int error = fell_back ? read_clock(limiter, &request->now_us) : request_time(limiter, &request->now_us);
    if (error)
        return error;
    error = decider->ops->decide(decider, request, 1, false, deadline_us(limiter), out);
    if (error == WEIR_EIO_UNDONE && request->verb == WEIR_REFUND && returns_keep_refused(limiter, request, out))
        return WEIR_OK;
    return error == WEIR_EIO_UNDONE ? WEIR_EIO : error;
}
