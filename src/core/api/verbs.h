/* verbs.h - what all verbs share: deciding one request, and counting the answer. */
#ifndef CORE_API_VERBS_H
#define CORE_API_VERBS_H

#include "core/api/acquire.h"
#include "core/ground/cancel.h"
#include "core/limiter/candidate.h"
#include "core/limiter/events.h"
#include "core/limiter/figures.h"
#include "core/limiter/fixed.h"
#include "core/limiter/inside.h"
#include "core/limiter/request.h"
#include "core/limiter/take.h"
#include "core/limiter/top_keys.h"
#include "core/outage/failure.h"

#include <assert.h>

/* Ask the other half of the policy after the one that binds the key has decided, and make the request one to the first
 * half. Returns an error only if a reset is not made. */
int candidate_finish(struct weir *limiter, struct weir_backend_request *request, int64_t deadline_us,
                     struct weir_decision *out);

/* Do what follows a decision: by the policy's other half, and by a shadow. Both halves of a policy share the time of a
 * call, so `until_us` is a deadline if there are two. */
static inline int decide_rest(struct weir *limiter, struct weir_backend_request *request, int64_t until_us,
                              struct weir_decision *out)
{
    const int error = limit_has_halves(request->limit) ? candidate_finish(limiter, request, until_us, out) : WEIR_OK;
    if (!error)
        shadow_apply(request->limit, request->key, out);
    return error;
}

static inline int64_t request_bound_us(const struct weir *limiter, const struct weir_backend_request *request)
{
    return limit_has_halves(request->limit) ? deadline_us(limiter) : span_or_deadline_us(limiter);
}

/* Decide one request; it is rewritten if the fallback decides it. The clock is read last. Reading it waits for all
 * earlier instructions, so work before it here (the hash) overlaps with the previous decision, and the first steps of
 * the backend do not wait for the reading. */
static inline int decide_request(struct weir *limiter, struct weir_backend_request *request, struct weir_decision *out)
{
    int error = request_time(limiter, &request->now_us);
    const int64_t until_us = error ? 0 : request_bound_us(limiter, request);
    if (!error)
        error = failure_decide(limiter, request, 1, false, until_us, out);
    return error ? error : decide_rest(limiter, request, until_us, out);
}

/* Decide it at a caller's time if that is not 0. */
static inline int decide_request_at(struct weir *limiter, struct weir_backend_request *request, int64_t now_us,
                                    struct weir_decision *out)
{
    if (now_us == 0)
        return decide_request(limiter, request, out);
    request->now_us = now_us;
    const int64_t until_us = request_bound_us(limiter, request);
    const int error = failure_decide(limiter, request, 1, false, until_us, out);
    return error ? error : decide_rest(limiter, request, until_us, out);
}

/* Sleep until `until_us` on CLOCK_MONOTONIC. WEIR_ECLOSED if the limiter is being closed. */
int acquire_sleep_until(struct weir *limiter, int64_t until_us);

/* Count the answer to a single request. */
static inline void count_answer(const struct weir_backend_request *request, int error,
                                const struct weir_decision *decision)
{
    struct stats *stats = &request->limit->limiter->stats;
    if (error) {
        stats_add(stats, STATS_ERRORS, 1);
        return;
    }
    figures_count(request->limit, request->cost, decision);
    top_keys_count(request, decision);
    events_note(request, decision);
    if (failure_decided(decision))
        stats_add(stats, STATS_FALLBACKS, 1);
}

/* Count a charge of `cost` permits. */
static inline void charge_count(struct weir *limiter, struct weir_limit *limit, int64_t cost,
                                const struct weir_decision *decision)
{
    figures_count_charge(limit, cost - decision->ahead);
    if (decision->ahead > 0)
        stats_add(&limiter->stats, STATS_UNSETTLED, (uint64_t)decision->ahead);
}

/* Decide a request about `limit`, at a caller's time if that is not 0, and do what follows from the answer: for a
 * backend that may fail or block or has its own clock. Arguments have been checked. */
static inline int ask_request(struct weir_limit *limit, struct weir_backend_request *request, int64_t now_us,
                              struct weir_decision *out)
{
    struct weir *limiter = limit->limiter;
    CANCEL_DISABLED_IF(limiter->is_foreign);
    int error = inside_enter(limiter, 1);
    if (error)
        return error;
    error = decide_request_at(limiter, request, now_us, out);
    if (request->verb == WEIR_TAKE)
        count_answer(request, error, out);
    else if (request->verb == WEIR_CHARGE && !error)
        charge_count(limiter, request->limit, request->cost, out);
    if ((request->verb == WEIR_REFUND || request->verb == WEIR_RESET) && !error)
        acquire_freed(limit, request->key, request->hash);
    inside_leave(limiter, 1);
    return error;
}

/* Refuse a refund to a limit on requests in flight, which would free the slot of another request. */
int check_refund(const struct weir_limit *limit, struct weir_key key);

/* Do that for a key whose hash is known. */
int ask_guarded(struct weir_limit *limit, struct weir_key key, uint64_t hash, int64_t cost, int64_t now_us,
                enum weir_verb verb, struct weir_decision *out);

/* Do the rest of ask_plain() after an error, or for a limit that is a shadow for some keys. Returns `error`. */
int ask_plain_rarely(const struct weir_backend_request *request, int error, struct weir_decision *out);

/* What some requests bring besides; a constant where it is passed. */
struct ask_more {
    struct weir_backend_hint *hint;         /* a handle's */
    struct weir_reservation *reservation;   /* WEIR_TAKE, WEIR_RENEW: what to note */
    const struct weir_reservation *settles; /* WEIR_REFUND, WEIR_RENEW: the reservation that is meant; NULL: none */
};

#define ASK_NO_MORE ((struct ask_more){ NULL, NULL, NULL })

/* Do what ask_guarded() does for a limiter with is_plain set. */
static inline int ask_plain(struct weir_limit *limit, struct weir_key key, uint64_t hash, int64_t cost, int64_t now_us,
                            enum weir_verb verb, const struct ask_more more, struct weir_decision *out)
{
    struct weir *limiter = limit->limiter;
    struct weir_backend_request request;
    int error = WEIR_OK;
    fill_request(&request, limit, key, hash, cost, now_us, verb);
    request.hint = limit_has_halves(request.limit) ? NULL : more.hint; /* a note is of one state */
    request.reservation = more.reservation;
    if (more.settles) {
        candidate_aim_first(&request); /* the other half is settled by itself */
        request_settles(&request, more.settles, verb == WEIR_REFUND ? cost : 0);
    }
    const bool is_fixed = !fixed_leaves(&request) && fixed_decide(request.limit, out);
    if (now_us == 0 && !is_fixed) {
        if (limiter->takes && limiter->takes->fetch && !more.hint)
            limiter->takes->fetch(limiter->backend, hash); /* it arrives while the clock is read */
        error = read_clock(limiter, &request.now_us);
    }
    if (!error && !is_fixed)
        error = limiter->backend->ops->decide(limiter->backend, &request, 1, false, INT64_MAX, out);
    assert(error <= 0);
    if (__builtin_expect(error != WEIR_OK || limit_has_shadow(request.limit), 0))
        return ask_plain_rarely(&request, error, out);
    if (verb == WEIR_TAKE) {
        figures_count_bound(request.limit, cost, out);
        top_keys_count(&request, out);
    } else if (verb == WEIR_CHARGE) {
        charge_count(limiter, request.limit, cost, out);
    }
    return WEIR_OK;
}

#endif
