/* failure.c - begins and ends outages, and answers during one.
 *
 * An outage begins with the first failure after a success and ends with the next success. A process with little traffic
 * may see no success for a long time. So a failure also begins a new outage if the backend says that, to its knowledge,
 * it was in reach more than OUTAGE_GAP_US after the last failure. During an outage the fallback treats every key as if
 * all its permits had been taken when the outage began, except its share of those known to be left (known.h). That time
 * is set once, so a later failure gives no permits back. Each outage has a number, and the fallback keeps its keys
 * apart from those of the outage before. What the fallback admitted is settled afterwards (settle.c).
 *
 * A backend may have parts that fail separately, as a cluster has. While it says that one of them is out of reach, the
 * outage lasts, whatever the others answer. When one part returns, or another fails, the outage ends and a new one
 * begins (failure_split()). So no key counts as cut off while it was not. The keys of parts that are still away begin
 * cold again, which costs them permits and gives none.
 *
 * An outage does not end either while the backend says that it is not well. A server that is full, or whose replicas
 * are missing, still denies but charges nothing; if its denials ended the outage, each one would make all keys begin
 * cold.
 */
#include "core/outage/failure.h"

#include "core/ground/arith.h"
#include "core/limiter/events.h"
#include "core/limiter/own_ops.h"
#include "core/limiter/request.h"
#include "core/outage/returns_kept.h"
#include "core/outage/settle.h"

#include <stdlib.h>

#define OUTAGE_LOG_US WEIR_SECOND
#define BUSY_RETRY_US 1000

static const char *const log_action[] = {
    [WEIR_FAIL_LOCAL] = "deciding by this process's share",
    [WEIR_FAIL_OPEN] = "allowing everything",
    [WEIR_FAIL_CLOSED] = "denying everything",
};

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
    if ((!knows || limiter->outage->known) && settle_init(limiter) == WEIR_OK)
        return WEIR_OK;
    free(limiter->outage->known);
    free(limiter->outage);
    return WEIR_ENOMEM;
}

void failure_free(struct weir *limiter)
{
    returns_drop(limiter);
    settle_free(limiter);
    free(limiter->outage->known);
    free(limiter->outage);
}

/* ---- How much of open_for_us all outages together have used ---- */

static void open_begin(struct outage *outage, int64_t now_us) REQUIRES(outage->settle.mutex)
{
    const int64_t given_back_us = max_of(0, now_us - outage->over_us);
    const int64_t spent_us = atomic_load_explicit(&outage->open_spent_us, memory_order_relaxed);
    atomic_store_explicit(&outage->open_spent_us, max_of(0, spent_us - given_back_us), memory_order_relaxed);
}

static void open_end(struct outage *outage, int64_t since_us, int64_t now_us) REQUIRES(outage->settle.mutex)
{
    const int64_t spent_us = atomic_load_explicit(&outage->open_spent_us, memory_order_relaxed);
    const int64_t lasted_us = max_of(0, now_us - since_us);
    atomic_store_explicit(&outage->open_spent_us, min_of(outage->open_for_us, spent_us + lasted_us),
                          memory_order_relaxed);
    outage->over_us = now_us;
}

static bool open_is_spent(const struct outage *outage, int64_t lasts_us)
{
    const int64_t spent_us = atomic_load_explicit(&outage->open_spent_us, memory_order_relaxed);
    return outage->open_for_us > 0 && spent_us + lasts_us >= outage->open_for_us;
}

/* ---- Beginning and end ---- */

/* Do what follows from the end of an outage. The word no longer says that it lasts. */
static void outage_ended(struct weir *limiter, uint64_t word, int64_t now_us) REQUIRES(limiter->outage->settle.mutex)
{
    open_end(limiter->outage, outage_since_us(word), now_us);
    settle_outage_over(limiter, outage_number(word), outage_since_us(word), now_us);
}

/* End the outage if it lasts; return its word from before. */
static uint64_t outage_end(struct weir *limiter, int64_t now_us, bool is_answered)
{
    struct outage *outage = limiter->outage;
    lock_take(&limiter->outage->settle.mutex);
    const uint64_t word = atomic_load(&outage->word);
    if (word & OUTAGE_LASTS) {
        atomic_store(&outage->word, word & ~OUTAGE_LASTS);
        outage_ended(limiter, word, now_us);
        outage->answered += is_answered;
    }
    lock_give(&limiter->outage->settle.mutex);
    return word;
}

/* Begin the outage after that of `word`. If that one lasts, the clock has stepped back: it continues from `now_us`.
 * Return the new word. *logs: the caller must log it. */
static uint64_t outage_begin(struct weir *limiter, uint64_t word, bool lasts, int64_t now_us, bool *logs)
    REQUIRES(limiter->outage->settle.mutex)
{
    struct outage *outage = limiter->outage;
    const int64_t here_us = clock_monotonic_us();
    const int64_t failed_us = atomic_load_explicit(&outage->failed_us, memory_order_relaxed);
    const int64_t logged_us = atomic_load_explicit(&outage->logged_us, memory_order_relaxed);
    *logs = !lasts && (logged_us == 0 || here_us - logged_us >= OUTAGE_LOG_US);
    const uint64_t logged = lasts ? word & OUTAGE_LOGGED : *logs ? OUTAGE_LOGGED : 0;
    const uint64_t begun = outage_word(outage_number(word) + !lasts, now_us) | logged;
    if (!lasts && word & OUTAGE_LASTS) {
        /* No request saw the end of this outage, so it ended with its last failure. Clear the bit first, then count
         * what was admitted: after that, admissions count towards the next outage. */
        atomic_store(&outage->word, word & ~OUTAGE_LASTS);
        outage_ended(limiter, word, max_of(outage_since_us(word), now_us - (here_us - failed_us)));
        outage->answered++;
    }
    if (!lasts) {
        settle_outage_begins(limiter);
        atomic_store(&outage->is_split, outage->begun_answered == outage->answered);
        outage->begun_answered = outage->answered;
    }
    atomic_store(&outage->word, begun);
    atomic_store_explicit(&outage->failed_us, here_us, memory_order_relaxed);
    if (!lasts)
        atomic_store_explicit(&outage->begun_us, here_us, memory_order_relaxed);
    if (*logs)
        atomic_store_explicit(&outage->logged_us, here_us, memory_order_relaxed);
    if (!lasts)
        open_begin(limiter->outage, now_us);
    return begun;
}

/* Report the end of an outage, whose word this is, if its beginning was reported. Holds no mutex. */
static void outage_tell_end(struct weir *limiter, uint64_t word, int64_t now_us)
{
    struct weir_event event = { .kind = WEIR_EVENT_OUTAGE_ENDED };
    event.outage = (struct weir_event_outage){ .lasted_us = max_of(0, now_us - outage_since_us(word)) };
    if (word & OUTAGE_LASTS && word & OUTAGE_LOGGED)
        events_tell(limiter, &event);
}

/* Log and report an outage that has begun. */
static void outage_tell_begin(struct weir *limiter, int error)
{
    struct weir_event event = { .kind = WEIR_EVENT_OUTAGE_BEGAN };
    event.outage = (struct weir_event_outage){ .error = error };
    log_later(&limiter->log, WEIR_LOG_WARNING, "backend %s: %s; %s until it answers", limiter->backend->ops->name,
              weir_strerror(error), log_action[limiter->on_failure]);
    events_tell(limiter, &event);
}

/* Return the word of the outage that the backend is in; begin one if none lasts. */
static uint64_t outage_enter(struct weir *limiter, const struct weir_key *key, int64_t now_us, int error)
{
    struct outage *outage = limiter->outage;
    uint64_t word;
    bool lasts, logs;
    for (;;) {
        word = atomic_load_explicit(&outage->word, memory_order_relaxed);
        lasts = word & OUTAGE_LASTS && !outage_was_well_since(limiter, key);
        /* If the clock has stepped back by more than the slack, rebase the outage, as the state of a key is rebased. */
        if (lasts && outage_since_us(word) - now_us <= WEIR_CLOCK_SLACK_US) {
            atomic_store_explicit(&outage->failed_us, clock_monotonic_us(), memory_order_relaxed);
            return word;
        }
        lock_take(&limiter->outage->settle.mutex);
        if (atomic_load_explicit(&outage->word, memory_order_relaxed) == word)
            break;
        lock_give(&limiter->outage->settle.mutex); /* another thread was faster */
    }
    const uint64_t before = word;
    word = outage_begin(limiter, word, lasts, now_us, &logs);
    lock_give(&limiter->outage->settle.mutex);
    if (!lasts) {
        stats_add(&limiter->stats, STATS_OUTAGES, 1);
        outage_tell_end(limiter, before, now_us);
    }
    if (logs)
        outage_tell_begin(limiter, error);
    return word;
}

__attribute__((noinline)) void failure_over(struct weir *limiter, const struct weir_key *key, int64_t now_us)
{
    if (!(atomic_load_explicit(&limiter->outage->word, memory_order_relaxed) & OUTAGE_LASTS))
        return;
    if (outage_is_in_reach(limiter, key) && !outage_is_well(limiter))
        return; /* another part is away, or the backend answers but does not charge */
    const uint64_t word = outage_end(limiter, now_us, true);
    if (!(word & OUTAGE_LASTS))
        return;
    if (word & OUTAGE_LOGGED)
        log_later(&limiter->log, WEIR_LOG_INFO, "backend %s answers again", limiter->backend->ops->name);
    outage_tell_end(limiter, word, now_us);
    if (settle_is_due(limiter))
        settle_all(limiter);
}

void failure_split(struct weir *limiter)
{
    if (!limiter->fallback)
        return;
    const int64_t now_us = outage_time(limiter, WEIR_OWN_CLOCK);
    outage_tell_end(limiter, outage_end(limiter, now_us, false), now_us);
}

void failure_begin_in_child(struct weir *limiter)
{
    returns_drop(limiter);
    settle_begin_in_child(limiter);
    limiter->outage->answered++; /* what the parent's fallback admitted is not owed here */
    if (limiter->outage->settle.is_on)
        atomic_fetch_and(&limiter->outage->word, ~OUTAGE_LASTS);
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
        request->cold_left = outage_left(limiter, request);
        owes = owes || (request->verb != WEIR_CHARGE && settle_owes(limiter, request));
        request->limit_id = request->limit->id | outage_number(word) << OUTAGE_TAG_BIT;
        request->plan_version = plan_cell_version(&request->limit->local_plan);
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
        if (charged && out[i].allowed &&
            (request->verb == WEIR_TAKE || (request->verb == WEIR_CHARGE && out[i].ahead == 0)))
            is_late = settle_admitted(limiter, request, out[i].source != WEIR_BY_FULL) || is_late;
        bound_retry(limiter, request, &out[i]);
        out[i].source = WEIR_BY_FALLBACK;
        out[i].age_us = max_of(0, request->now_us - request->cold_since_us);
    }
    if (is_late)
        settle_all(limiter);
    return error;
}

/* Answer without looking at the key: what the plan alone tells. */
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
        const int status = failure_answer(limiter, error, &requests[i], 1, false, &out[i]);
        first = first ? first : status;
    }
    return first;
}

int failure_answer(struct weir *limiter, int error, struct weir_backend_request *requests, size_t n, bool all,
                   struct weir_decision *out)
{
    const bool lasts = atomic_load_explicit(&limiter->outage->word, memory_order_relaxed) & OUTAGE_LASTS;
    const size_t asked = !lasts || error == WEIR_ESTATE ? 0 : error == WEIR_OK ? first_asked(out, n) : n;
    if (lasts && asked < n)
        failure_over(limiter, &requests[asked].key, outage_time(limiter, requests[asked].now_us));
    const bool failed = error == WEIR_ETIME || error == WEIR_EIO;
    if (!error)
        outage_note_left(limiter, requests, n, out);
    if (!failed || limiter->on_failure == WEIR_FAIL_ERROR || requests[0].verb == WEIR_REFUND ||
        requests[0].verb == WEIR_RESET ||
        (requests[0].verb == WEIR_CHARGE && limiter->on_failure != WEIR_FAIL_LOCAL)) /* nothing else can record it */
        return error;
    if (n > 1 && !all)
        return answer_rest(limiter, error, requests, n, out);
    if (limiter->on_failure == WEIR_FAIL_LOCAL)
        return decide_local(limiter, error, requests, n, all, out);
    const int64_t now_us = outage_time(limiter, requests[0].now_us);
    const int64_t age_us = max_of(0, now_us - outage_since_us(outage_enter(limiter, &requests[0].key, now_us, error)));
    const bool open = limiter->on_failure == WEIR_FAIL_OPEN && !open_is_spent(limiter->outage, age_us);
    for (size_t i = 0; i < n; i++)
        decide_blindly(limiter, &requests[i], open, age_us, &out[i]);
    return WEIR_OK;
}

/* Deny, because other threads took too long to settle a key. The backend may be well, so this is no outage. */
static int deny_for_now(const struct weir_backend_request *requests, size_t n, struct weir_decision *out)
{
    if (requests[0].verb == WEIR_RESET) /* a reset cannot be denied */
        return WEIR_ETIME;
    for (size_t i = 0; i < n; i++)
        failure_deny_for_now(&requests[i], &out[i]);
    return WEIR_OK;
}

/* Decide a batch request by request: one of its keys cannot be settled now, but others may be decided. */
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
    const bool is_calm = !is_due &&
                         !(atomic_load_explicit(&limiter->outage->word, memory_order_relaxed) & OUTAGE_LASTS);
    int error = WEIR_OK;
    if (requests[0].verb == WEIR_REFUND && returns_keep(limiter, requests, out))
        return WEIR_OK;
    if (is_due && requests[0].verb != WEIR_REFUND && requests[0].verb != WEIR_CHARGE) { /* these need no answer */
        if (deadline_us < 0)
            deadline_us = clock_monotonic_us() - deadline_us; /* settling and deciding share the span */
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
    if (!error && is_calm) {
        if (limiter->outage->known)
            outage_note_left(limiter, requests, n, out);
        return WEIR_OK;
    }
    if (!error && requests[0].verb == WEIR_RESET && settle_is_due(limiter))
        settle_forgive(limiter, &requests[0]);
    return failure_answer(limiter, error, requests, n, all, out);
}

int failure_follow(struct weir *limiter, struct weir_backend_request *request, struct weir_decision *out)
{
    const bool fell_back = request->cold_since_us >= 0;
    struct weir_backend *decider = fell_back ? limiter->fallback : limiter->backend;
    request->now_us = WEIR_OWN_CLOCK;
    int error = fell_back ? read_clock(limiter, &request->now_us) : request_time(limiter, &request->now_us);
    if (error)
        return error;
    return decider->ops->decide(decider, request, 1, false, deadline_us(limiter), out);
}
