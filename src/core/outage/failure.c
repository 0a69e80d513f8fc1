/* failure.c - tells outages from one another and answers during one.
 *
 * An outage begins with the first failure after a success and ends with the next success. A process that asks seldom
 * may see no success for long: so a failure also begins a new one if the backend says that it could be reached, for all
 * it knew, OUTAGE_GAP_US after the last. Within an outage the fallback takes every key for one whose permits were all
 * taken when it began; that time is set once, so a failure among others gives nobody anything. Each outage has a
 * number, which makes its keys in the fallback others than those of the outage before. What was admitted by then is
 * settled (settle.c).
 *
 * A backend may have parts that fail each by itself, as a cluster has. While it says that one of them cannot be reached
 * the outage lasts, whatever the others answer; and when one returns, or one that was well fails as well, it ends and
 * another begins (failure_split()), so that no key is taken for one that was cut off when it was not. The keys of the
 * parts that are still away then begin cold once more, which costs them permits and gives nobody any.
 *
 * Nor does it end while the backend says of itself that it is not well: a server that is full, or whose replicas are
 * missing, denies as ever and charges nobody. Else each denial would make all keys begin cold.
 *
 * All of it is one word, which whoever fails or succeeds reads without a lock; beginnings and ends are written under
 * settle.mutex, with what follows from them:
 *
 *     63 .. 17   when it began, in units of 64 us, rounded up: what is lost by that is never a permit too many
 *     16 ..  2   the outage's number; it comes round after 32,768 outages: a state that is as old as that goes on as
 *                the meter that it is, which is no burst either
 *           1    whether the log was told of it; not of one that begins OUTAGE_TELL_US after the last that was, or
 *                sooner
 *           0    whether it lasts
 */
#include "core/outage/failure.h"

#include "core/ground/arith.h"
#include "core/limiter/verbs.h"
#include "core/outage/settle.h"

#include <inttypes.h>

#define OUTAGE_LASTS UINT64_C(1)
#define OUTAGE_TOLD UINT64_C(2)
#define OUTAGE_NUMBER_BIT 2
#define OUTAGE_NUMBER_BITS 15
#define OUTAGE_SINCE_BIT (OUTAGE_NUMBER_BIT + OUTAGE_NUMBER_BITS)
#define OUTAGE_SINCE_BITS 47
#define OUTAGE_UNIT_US 64
#define OUTAGE_GAP_US WEIR_SECOND
#define OUTAGE_TELL_US WEIR_SECOND
#define PART_GAP_US (WEIR_SECOND / 2) /* parts that fail within this are in one outage */
#define CLOSED_RETRY_US WEIR_SECOND
#define BUSY_RETRY_US 1000

_Static_assert(WEIR_MAX_LIMITS <= 1 << OUTAGE_TAG_BIT && OUTAGE_TAG_BIT + OUTAGE_NUMBER_BITS <= 32,
               "a limit's id and an outage's number share 32 bits");

static uint64_t outage_make(uint64_t number, int64_t since_us)
{
    const int64_t most = (INT64_C(1) << OUTAGE_SINCE_BITS) - 1;
    uint64_t since = (uint64_t)min_of(div_up(since_us, OUTAGE_UNIT_US), most);
    number &= (UINT64_C(1) << OUTAGE_NUMBER_BITS) - 1;
    return since << OUTAGE_SINCE_BIT | number << OUTAGE_NUMBER_BIT | OUTAGE_LASTS;
}

static uint32_t outage_number(uint64_t outage)
{
    return (uint32_t)(outage >> OUTAGE_NUMBER_BIT & ((UINT64_C(1) << OUTAGE_NUMBER_BITS) - 1));
}

static int64_t outage_since_us(uint64_t outage)
{
    return (int64_t)(outage >> OUTAGE_SINCE_BIT) * OUTAGE_UNIT_US;
}

bool failure_outage(const struct weir *limiter, struct failure_outage *out)
{
    const uint64_t outage = atomic_load(&limiter->outage);
    *out = (struct failure_outage){ outage_number(outage), outage_since_us(outage) };
    return outage & OUTAGE_LASTS;
}

int64_t failure_time(const struct weir *limiter, int64_t request_us)
{
    if (request_us != WEIR_OWN_CLOCK)
        return request_us;
    return max_of(0, min_of(clock_now_us(&limiter->clock), WEIR_MAX_TIME_US));
}

/* What the log says of each policy. */
static const char *const takes_over[] = {
    [WEIR_FAIL_LOCAL] = "by this process's share",
    [WEIR_FAIL_OPEN] = "to allow everything",
    [WEIR_FAIL_CLOSED] = "to deny everything",
};

static int64_t reachable_us(const struct weir *limiter, const struct weir_key *key)
{
    const struct weir_backend_ops *ops = limiter->backend->ops;
    return ops->reachable_us ? ops->reachable_us(limiter->backend, key) : -1;
}

bool failure_is_in_reach(const struct weir *limiter, const struct weir_key *key)
{
    const int64_t now_us = clock_monotonic_us(), seen_us = reachable_us(limiter, key);
    return seen_us < 0 || seen_us >= now_us;
}

/* When a key's part of the backend, or with NULL the worst of it, last was well; -1: it cannot tell. */
static int64_t well_us(const struct weir *limiter, const struct weir_key *key)
{
    struct weir_backend *backend = limiter->backend;
    const struct own_ops *own = own_ops(backend);
    const int64_t well_us = own && own->well_us ? own->well_us(backend, key) : -1;
    return well_us < 0 ? reachable_us(limiter, key) : well_us;
}

/* Whether the backend says that all of it has been well until now; true if it cannot tell. */
static bool is_well(const struct weir *limiter)
{
    const int64_t now_us = clock_monotonic_us(), seen_us = well_us(limiter, NULL);
    return seen_us < 0 || seen_us >= now_us;
}

/* Whether the key's part of the backend was well for a while since the last failure, though nobody here saw it; or
 * since the outage began, which then is another part's. */
static bool was_well_since(const struct weir *limiter, const struct weir_key *key)
{
    const int64_t seen_us = well_us(limiter, key);
    if (seen_us - atomic_load_explicit(&limiter->failed_us, memory_order_relaxed) > OUTAGE_GAP_US)
        return true;
    return seen_us - atomic_load_explicit(&limiter->begun_us, memory_order_relaxed) > PART_GAP_US &&
           seen_us - well_us(limiter, NULL) > PART_GAP_US;
}

/* ---- What all outages together have used of open_for_us ---- */

static void open_begin(struct weir *limiter, int64_t now_us) REQUIRES(limiter->settle.mutex)
{
    const int64_t given_back_us = max_of(0, now_us - limiter->over_us);
    const int64_t spent_us = atomic_load_explicit(&limiter->open_spent_us, memory_order_relaxed);
    atomic_store_explicit(&limiter->open_spent_us, max_of(0, spent_us - given_back_us), memory_order_relaxed);
}

static void open_end(struct weir *limiter, int64_t since_us, int64_t now_us) REQUIRES(limiter->settle.mutex)
{
    const int64_t spent_us = atomic_load_explicit(&limiter->open_spent_us, memory_order_relaxed);
    const int64_t lasted_us = max_of(0, now_us - since_us);
    atomic_store_explicit(&limiter->open_spent_us, min_of(limiter->open_for_us, spent_us + lasted_us),
                          memory_order_relaxed);
    limiter->over_us = now_us;
}

static bool open_is_spent(const struct weir *limiter, int64_t lasts_us)
{
    const int64_t spent_us = atomic_load_explicit(&limiter->open_spent_us, memory_order_relaxed);
    return limiter->open_for_us > 0 && spent_us + lasts_us >= limiter->open_for_us;
}

/* ---- Beginning and end ---- */

/* What follows from an end, once it has been written down. */
static void outage_ended(struct weir *limiter, uint64_t outage, int64_t now_us) REQUIRES(limiter->settle.mutex)
{
    open_end(limiter, outage_since_us(outage), now_us);
    settle_outage_over(limiter, outage_number(outage), outage_since_us(outage), now_us);
}

/* End the outage that lasts, if one does, and return what it was. */
static uint64_t outage_end(struct weir *limiter, int64_t now_us)
{
    lock_take(&limiter->settle.mutex);
    const uint64_t outage = atomic_load(&limiter->outage);
    if (outage & OUTAGE_LASTS) {
        atomic_store(&limiter->outage, outage & ~OUTAGE_LASTS);
        outage_ended(limiter, outage, now_us);
    }
    lock_give(&limiter->settle.mutex);
    return outage;
}

/* Another outage than that of the word, or the same where the clock has stepped back. */
static uint64_t outage_begin(struct weir *limiter, uint64_t outage, bool lasts, int64_t now_us, bool *tells)
    REQUIRES(limiter->settle.mutex)
{
    const int64_t here_us = clock_monotonic_us();
    const int64_t failed_us = atomic_load_explicit(&limiter->failed_us, memory_order_relaxed);
    const int64_t told_us = atomic_load_explicit(&limiter->told_us, memory_order_relaxed);
    *tells = !lasts && (told_us == 0 || here_us - told_us >= OUTAGE_TELL_US);
    const uint64_t told = lasts ? outage & OUTAGE_TOLD : *tells ? OUTAGE_TOLD : 0;
    const uint64_t begun = outage_make(outage_number(outage) + !lasts, now_us) | told;
    if (!lasts &&
        outage & OUTAGE_LASTS) { /* nobody saw its end: it is not known to have lasted beyond the last failure */
        /* It is over before what was admitted in it is counted up, and that before the next one's can be counted. */
        atomic_store(&limiter->outage, outage & ~OUTAGE_LASTS);
        outage_ended(limiter, outage, max_of(outage_since_us(outage), now_us - (here_us - failed_us)));
    }
    if (!lasts)
        settle_outage_begins(limiter);
    atomic_store(&limiter->outage, begun);
    atomic_store_explicit(&limiter->failed_us, here_us, memory_order_relaxed);
    if (!lasts)
        atomic_store_explicit(&limiter->begun_us, here_us, memory_order_relaxed);
    if (*tells)
        atomic_store_explicit(&limiter->told_us, here_us, memory_order_relaxed);
    if (!lasts)
        open_begin(limiter, now_us);
    return begun;
}

/* The outage that the backend is in, begun if need be. */
static uint64_t outage_enter(struct weir *limiter, const struct weir_key *key, int64_t now_us, int error)
{
    uint64_t outage;
    bool lasts, tells;
    for (;;) {
        outage = atomic_load_explicit(&limiter->outage, memory_order_relaxed);
        lasts = outage & OUTAGE_LASTS && !was_well_since(limiter, key);
        /* A clock that stepped back by more than the slack takes the outage along, as it does with a key's state. */
        if (lasts && outage_since_us(outage) - now_us <= WEIR_CLOCK_SLACK_US) {
            atomic_store_explicit(&limiter->failed_us, clock_monotonic_us(), memory_order_relaxed);
            return outage;
        }
        lock_take(&limiter->settle.mutex);
        if (atomic_load_explicit(&limiter->outage, memory_order_relaxed) == outage)
            break;
        lock_give(&limiter->settle.mutex); /* another thread was faster */
    }
    outage = outage_begin(limiter, outage, lasts, now_us, &tells);
    lock_give(&limiter->settle.mutex);
    if (!lasts)
        stats_add(&limiter->stats, STATS_OUTAGES, 1);
    if (tells)
        log_line(&limiter->log, WEIR_LOG_WARNING, "backend %s: %s; deciding %s until it answers",
                 limiter->backend->ops->name, weir_strerror(error), takes_over[limiter->on_failure]);
    return outage;
}

__attribute__((noinline)) void failure_over(struct weir *limiter, const struct weir_key *key, int64_t now_us)
{
    if (!(atomic_load_explicit(&limiter->outage, memory_order_relaxed) & OUTAGE_LASTS))
        return;
    if (failure_is_in_reach(limiter, key) && !is_well(limiter))
        return; /* it is another part that is away, or charges are not answered alike */
    const uint64_t outage = outage_end(limiter, now_us);
    if (!(outage & OUTAGE_LASTS))
        return;
    if (outage & OUTAGE_TOLD)
        log_line(&limiter->log, WEIR_LOG_INFO, "backend %s answers again", limiter->backend->ops->name);
    if (settle_is_due(limiter))
        settle_all(limiter);
}

/* The next failure begins another, with every key cold; what was admitted in this one is owed. */
void failure_split(struct weir *limiter)
{
    if (limiter->fallback)
        outage_end(limiter, failure_time(limiter, WEIR_OWN_CLOCK));
}

void failure_begin_in_child(struct weir *limiter)
{
    settle_begin_in_child(limiter);
    if (limiter->settle.is_on)
        atomic_fetch_and(&limiter->outage, ~OUTAGE_LASTS);
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
        const uint64_t outage = outage_enter(limiter, &request->key, request->now_us, failure);
        request->cold_since_us = outage_since_us(outage);
        request->limit_id = request->limit->id | outage_number(outage) << OUTAGE_TAG_BIT;
        request->plan_version = plan_cell_version(limit_plan(request->limit, true));
    }
    struct weir_backend *fallback = limiter->fallback;
    error = fallback->ops->decide(fallback, requests, n, all, INT64_MAX, out);
    bool charged = !error;
    for (size_t i = 0; all && charged && i < n; i++)
        charged = out[i].allowed;
    for (size_t i = 0; !error && i < n; i++) {
        const struct weir_backend_request *request = &requests[i];
        if (charged && out[i].allowed && request->verb == WEIR_TAKE)
            settle_admitted(limiter, request->limit_id >> OUTAGE_TAG_BIT, request->cold_since_us, request->now_us,
                            request->cost, out[i].source != WEIR_BY_FULL);
        out[i].source = WEIR_BY_FALLBACK;
        out[i].age_us = max_of(0, request->now_us - request->cold_since_us);
    }
    return error;
}

/* Without a look at the key: its plan alone says what can be said. */
static void decide_blindly(const struct weir_backend_request *request, bool open, int64_t age_us,
                           struct weir_decision *out)
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
                                 : CLOSED_RETRY_US,
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

/* The first request in whose decision the store behind the backend has had a part: its index, or `n`. */
static size_t first_asked(const struct weir_decision *out, size_t n)
{
    size_t i = 0;
    while (i < n && (out[i].source == WEIR_BY_LEASE || out[i].source == WEIR_BY_DENIAL))
        i++;
    return i;
}

/* Those of a batch that were not decided, each for itself. */
static int answer_rest(struct weir *limiter, int error, struct weir_backend_request *requests, size_t n,
                       struct weir_decision *out)
{
    int first = WEIR_OK;
    for (size_t i = 0; i < n; i++) {
        if (out[i].source != WEIR_BY_NOBODY)
            continue;
        const int status = failure_answer(limiter, error, &requests[i], 1, false, &out[i]);
        first = first ? first : status;
    }
    return first;
}

int failure_answer(struct weir *limiter, int error, struct weir_backend_request *requests, size_t n, bool all,
                   struct weir_decision *out)
{
    const bool lasts = atomic_load_explicit(&limiter->outage, memory_order_relaxed) & OUTAGE_LASTS;
    const size_t asked = !lasts || error == WEIR_ESTATE ? 0 : error == WEIR_OK ? first_asked(out, n) : n;
    if (lasts && asked < n)
        failure_over(limiter, &requests[asked].key, failure_time(limiter, requests[asked].now_us));
    const bool failed = error == WEIR_ETIME || error == WEIR_EIO;
    if (!failed || limiter->on_failure == WEIR_FAIL_ERROR || requests[0].verb == WEIR_REFUND ||
        requests[0].verb == WEIR_RESET)
        return error;
    if (n > 1 && !all)
        return answer_rest(limiter, error, requests, n, out);
    if (limiter->on_failure == WEIR_FAIL_LOCAL)
        return decide_local(limiter, error, requests, n, all, out);
    const int64_t now_us = failure_time(limiter, requests[0].now_us);
    const int64_t age_us = max_of(0, now_us - outage_since_us(outage_enter(limiter, &requests[0].key, now_us, error)));
    const bool open = limiter->on_failure == WEIR_FAIL_OPEN && !open_is_spent(limiter, age_us);
    for (size_t i = 0; i < n; i++)
        decide_blindly(&requests[i], open, age_us, &out[i]);
    return WEIR_OK;
}

/* Others were too slow to settle a key: the backend may be well, so that is no outage. */
static int deny_for_now(const struct weir_backend_request *requests, size_t n, struct weir_decision *out)
{
    if (requests[0].verb == WEIR_RESET) /* which cannot be denied */
        return WEIR_ETIME;
    for (size_t i = 0; i < n; i++)
        failure_deny_for_now(&requests[i], &out[i]);
    return WEIR_OK;
}

/* A batch of which something is owed that cannot be paid just now: others of it may be decided all the same. */
static int decide_one_by_one(struct weir *limiter, struct weir_backend_request *requests, size_t n, int64_t deadline_us,
                             struct weir_decision *out)
{
    int error = WEIR_OK;
    for (size_t i = 0; i < n && !error; i++)
        error = failure_decide(limiter, &requests[i], 1, false, deadline_us, &out[i]);
    return error;
}

int failure_decide(struct weir *limiter, struct weir_backend_request *requests, size_t n, bool all, int64_t deadline_us,
                   struct weir_decision *out)
{
    const bool is_due = settle_is_due(limiter);
    const bool is_calm = !is_due && !(atomic_load_explicit(&limiter->outage, memory_order_relaxed) & OUTAGE_LASTS);
    int error = WEIR_OK;
    if (is_due && requests[0].verb != WEIR_REFUND) {
        if (deadline_us < 0)
            deadline_us = clock_monotonic_us() - deadline_us; /* it is for both */
        error = settle_before(limiter, requests, n, deadline_us);
    }
    if (error == SETTLE_BUSY)
        return deny_for_now(requests, n, out);
    if ((error == WEIR_EIO || error == WEIR_ETIME) && n > 1 && !all)
        return decide_one_by_one(limiter, requests, n, deadline_us, out);
    for (size_t i = 0; n > 1 && i < n; i++)
        out[i].source = WEIR_BY_NOBODY;
    if (!error)
        error = limiter->backend->ops->decide(limiter->backend, requests, n, all, deadline_us, out);
    assert(error <= 0);
    if (!error && is_calm)
        return WEIR_OK;
    if (!error && requests[0].verb == WEIR_RESET && settle_is_due(limiter))
        settle_forgive(limiter, &requests[0]);
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
