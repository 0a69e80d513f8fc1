/* verbs.c - the calls about one limit that answer immediately. */
#include "core/api/verbs.h"

/* Out of line, because local mode does not need it. */
__attribute__((noinline)) int ask_guarded(struct weir_limit *limit, struct weir_key key, uint64_t hash, int64_t cost,
                                          int64_t now_us, enum weir_verb verb, struct weir_decision *out)
{
    struct weir_backend_request request;
    fill_request(&request, limit, key, hash, cost, WEIR_OWN_CLOCK, verb);
    return ask_request(limit, &request, now_us, out);
}

__attribute__((noinline)) int ask_plain_rarely(const struct weir_backend_request *request, int error,
                                               struct weir_decision *out)
{
    struct weir_backend_request own = *request;
    if (request->verb == WEIR_TAKE)
        return take_told(request, error, out);
    if (error)
        return error;
    if (limit_has_halves(own.limit))
        candidate_finish_plain(&own, out);
    shadow_apply(own.limit, own.key, out);
    if (own.verb == WEIR_CHARGE)
        charge_count(own.limit->limiter, own.limit, own.cost, out);
    return WEIR_OK;
}

int candidate_finish(struct weir *limiter, struct weir_backend_request *request, int64_t deadline_us,
                     struct weir_decision *out)
{
    struct candidate_ask ask;
    struct weir_decision answer;
    const bool is_asked = candidate_begin(request, out, &ask);
    const int error = is_asked ? failure_decide(limiter, &ask.request, 1, false, deadline_us, &answer) : WEIR_OK;
    candidate_end(request, out, &ask, is_asked && !error ? &answer : NULL);
    return request->verb == WEIR_RESET ? error : WEIR_OK;
}

/* Decide about a key, where take.h is not for it. Arguments have been checked. Out of line, because a request on the
 * stack costs every call. */
__attribute__((noinline)) static int ask(struct weir_limit *limit, struct weir_key key, int64_t cost, int64_t now_us,
                                         enum weir_verb verb, struct weir_decision *out)
{
    const uint64_t hash = key_hash(limit, key);
    if (!limit->limiter->is_plain)
        return ask_guarded(limit, key, hash, cost, now_us, verb, out);
    const int error = ask_plain(limit, key, hash, cost, now_us, verb, ASK_NO_MORE, out);
    if ((verb == WEIR_REFUND || verb == WEIR_RESET) && !error)
        acquire_freed(limit, key, hash);
    return error;
}

static inline int try_at(struct weir_limit *limit, struct weir_key key, int64_t cost, int64_t now_us,
                         struct weir_decision *out)
{
    const struct own_takes *takes = limit ? limit_takes(limit) : NULL;
    if (__builtin_expect(takes != NULL, 1))
        return takes->try_key(limit, key, cost, now_us, out);
    const int error = take_check_key(limit, key, cost, now_us, out);
    return error ? error : ask(limit, key, cost, now_us, WEIR_TAKE, out);
}

int weir_try(weir_limit *limit, struct weir_key key, int64_t cost, struct weir_decision *out)
{
    return try_at(limit, key, cost, 0, out);
}

int weir_try_at(weir_limit *limit, struct weir_key key, int64_t cost, int64_t now_us, struct weir_decision *out)
{
    return try_at(limit, key, cost, now_us, out);
}

int weir_peek(weir_limit *limit, struct weir_key key, int64_t cost, struct weir_decision *out)
{
    int error = check_arguments(limit, key, cost);
    if (error)
        return error;
    if (!out)
        return refuse_null(limit->limiter, "out");
    return ask(limit, key, cost, 0, WEIR_PEEK, out);
}

int check_refund(const struct weir_limit *limit, struct weir_key key)
{
    struct weir_limit *own = limit->of;
    if (!limit_in_flight(limit_for_key(own, key, key_hash(own, key))))
        return WEIR_OK;
    log_line(&limit->limiter->log, WEIR_LOG_WARNING,
             "limit %s counts requests in flight: a slot is given back by weir_release() with its reservation",
             limit->name);
    return WEIR_EINVAL;
}

int weir_refund(weir_limit *limit, struct weir_key key, int64_t cost)
{
    struct weir_decision decision;
    int error = check_arguments(limit, key, cost);
    if (!error)
        error = check_refund(limit, key);
    return error ? error : ask(limit, key, cost, 0, WEIR_REFUND, &decision);
}

int weir_charge(weir_limit *limit, struct weir_key key, int64_t cost)
{
    struct weir_decision decision;
    int error = check_arguments(limit, key, 1);
    if (!error)
        error = check_charge(limit->limiter, cost);
    return error ? error : ask(limit, key, charge_cost(cost), 0, WEIR_CHARGE, &decision);
}

int weir_reset(weir_limit *limit, struct weir_key key)
{
    struct weir_decision decision;
    int error = check_arguments(limit, key, 1);
    return error ? error : ask(limit, key, 1, 0, WEIR_RESET, &decision);
}

int weir_clock(weir *limiter, int64_t *now_us)
{
    if (!limiter)
        return WEIR_EINVAL;
    if (!now_us)
        return refuse_null(limiter, "now_us");
    int64_t read_us;
    int error = read_clock(limiter, &read_us);
    if (!error)
        *now_us = read_us;
    return error;
}
