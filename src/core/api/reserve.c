/* reserve.c - takes permits that are corrected once the caller knows how many it has used.
 *
 * A reservation is a take whose charge the backend notes. Settling it is one more request: a return of what was not
 * used (core/algorithm/algorithm.h, state_return()), or a charge of what was used beyond it. So is renewing it, a
 * return and a take in one (state_renew()). A reservation with an id is a slot, which is released or renewed by that.
 */
#include "core/api/reserve.h"

#include "core/api/acquire.h"
#include "core/api/verbs.h"

int reservation_check(const struct weir *limiter, const struct weir_reservation *reservation, int64_t actual)
{
    if (!reservation)
        return refuse_null(limiter, "reservation");
    if (reservation->permits < -1 || reservation->permits > WEIR_MAX_PERMITS)
        return refuse_range(limiter, "reservation.permits", reservation->permits, -1, WEIR_MAX_PERMITS);
    const int64_t least_us = limiter->backend->ops->shared ? 0 : -WEIR_MAX_TIME_US;
    if (reservation->at_us < least_us || reservation->at_us > WEIR_MAX_TIME_US)
        return refuse_range(limiter, "reservation.at_us", reservation->at_us, least_us, WEIR_MAX_TIME_US);
    if (reservation->candidate_us < -1 || reservation->candidate_us > WEIR_MAX_TIME_US)
        return refuse_range(limiter, "reservation.candidate_us", reservation->candidate_us, -1, WEIR_MAX_TIME_US);
    if (actual < 0)
        return refuse_range(limiter, "actual", actual, 0, INT64_MAX);
    return WEIR_OK;
}

/* True if the limit admitted the request. A shadow limit that would deny it admits the caller, and charges nothing; a
 * candidate that would deny it leaves the charge of the first half. */
static bool reservation_is_made(const struct weir_decision *decision, int64_t candidate_us)
{
    return decision->allowed && (!decision->would_deny || candidate_us != 0);
}

void reservation_finish(struct weir_reservation *reservation, struct weir_reservation noted, int64_t cost,
                        const struct weir_decision *decision)
{
    const uint8_t source = decision->source;
    const int64_t noted_us = noted.at_us;
    if (!reservation_is_made(decision, noted.candidate_us))
        *reservation = RESERVATION_NONE;
    else if (__builtin_expect(noted.id != 0, 0))
        *reservation = (struct weir_reservation){ .permits = cost, .id = noted.id };
    else if (__builtin_expect(source == WEIR_BY_MEMORY, 1))
        *reservation = (struct weir_reservation){ .permits = cost, .at_us = noted_us };
    else if (source == WEIR_BY_POLICY) /* so that nothing is given back, and only what was used beyond it is charged */
        *reservation = (struct weir_reservation){ .permits = cost };
    else if (source == WEIR_BY_FULL && noted_us > 0) /* of the state that keys without room share */
        *reservation = (struct weir_reservation){ .permits = cost, .at_us = -noted_us };
    else if (source == WEIR_BY_FAIL_OPEN || (source == WEIR_BY_FULL && noted_us == 0)) /* nothing was charged */
        *reservation = (struct weir_reservation){ .permits = 0 };
    else /* after a fallback's decision, Redis will be charged at another time */
        *reservation = (struct weir_reservation){ .permits = cost, .at_us = source == WEIR_BY_FALLBACK ? 0 : noted_us };
    if (reservation->permits >= 0)
        reservation->candidate_us = noted.candidate_us;
}

void renewal_finish(struct weir_reservation *reservation, struct weir_reservation noted, int64_t cost,
                    const struct weir_decision *decision)
{
    if (reservation_is_made(decision, noted.candidate_us))
        reservation_finish(reservation, noted, cost, decision);
}

/* Reserve where own_takes->reserve() is not for it or, if `renews` is not NULL, renew that. Out of line, because a
 * request on the stack costs every call. */
__attribute__((noinline)) static int reserve_otherwise(struct weir_limit *limit, struct weir_key key, uint64_t hash,
                                                       int64_t cost, const struct weir_reservation *renews,
                                                       struct weir_reservation *noted, struct weir_decision *out)
{
    const enum weir_verb verb = renews ? WEIR_RENEW : WEIR_TAKE;
    if (limit->limiter->is_plain) {
        const struct ask_more more = { .reservation = noted, .settles = renews };
        return ask_plain(limit, key, hash, cost, 0, verb, more, out);
    }
    struct weir_backend_request request;
    fill_request(&request, limit, key, hash, cost, WEIR_OWN_CLOCK, verb);
    request.reservation = noted;
    if (renews)
        request_settles(&request, renews, 0);
    return ask_request(limit, &request, 0, out);
}

int weir_reserve(weir_limit *limit, struct weir_key key, int64_t estimate, struct weir_decision *out,
                 struct weir_reservation *reservation)
{
    int error = check_arguments(limit, key, estimate);
    if (error)
        return error;
    const struct weir *limiter = limit->limiter;
    if (!out || !reservation)
        return refuse_null(limiter, out ? "reservation" : "out");
    struct weir_reservation noted = RESERVATION_NONE;
    const struct own_takes *takes = limit_takes(limit);
    if (__builtin_expect(takes && takes->reserve, 1))
        error = takes->reserve(limit, key, estimate, &noted, out);
    else
        error = reserve_otherwise(limit, key, key_hash(limit, key), estimate, NULL, &noted, out);
    if (!error)
        reservation_finish(reservation, noted, estimate, out);
    return error;
}

/* Ask for what settles a reservation: WEIR_REFUND where own_takes->give_back() is not for it, or WEIR_CHARGE of the state
 * that keys without room share. */
__attribute__((noinline)) static int settle_otherwise(struct weir_limit *limit, struct weir_key key, uint64_t hash,
                                                      const struct weir_reservation *reservation, int64_t permits,
                                                      enum weir_verb verb)
{
    struct weir_decision decision;
    if (limit->limiter->is_plain) {
        const struct ask_more more = { .settles = reservation };
        const int error = ask_plain(limit, key, hash, permits, 0, verb, more, &decision);
        if (!error && verb == WEIR_REFUND)
            acquire_freed(limit, key, hash);
        return error;
    }
    struct weir_backend_request request;
    fill_request(&request, limit, key, hash, permits, WEIR_OWN_CLOCK, verb);
    candidate_aim_first(&request); /* the other half is settled by itself */
    request_settles(&request, reservation, permits);
    return ask_request(limit, &request, 0, &decision);
}

/* Give back permits of a reservation that were not used. */
static inline int give_back(struct weir_limit *limit, struct weir_key key, const struct weir_reservation *reservation,
                            int64_t permits)
{
    const struct own_takes *takes = limit_takes(limit);
    if (__builtin_expect(!takes || !takes->give_back || reservation->id || reservation->at_us < 0, 0))
        return settle_otherwise(limit, key, key_hash(limit, key), reservation, permits, WEIR_REFUND);
    const int error = takes->give_back(limit, key, permits, reservation->at_us);
    if (__builtin_expect(!error && acquire_awaits(limit->limiter), 0))
        acquire_freed_permits(limit, key, key_hash(limit, key));
    return error;
}

bool reservation_settles_nothing(const struct weir_reservation *reservation, int64_t actual)
{
    const int64_t permits = reservation->permits;
    return permits < 0 || permits == actual ||
           (actual < permits && reservation->at_us == 0 && reservation->id == 0 && reservation->candidate_us <= 0);
}

/* Give back what a policy's candidate has charged. It binds nothing, or only some keys, so an error is not the caller's. */
static void candidate_give_back(struct weir_limit *limit, struct weir_key key, int64_t since_us, int64_t permits)
{
    struct weir *limiter = limit->limiter;
    struct weir_decision decision;
    struct weir_backend_request request = backend_request(limit, key, permits, WEIR_OWN_CLOCK, WEIR_REFUND);
    struct weir_limit *candidate = candidate_of(limit_first_half(request.limit));
    if (!candidate)
        return; /* the policy has none any more */
    candidate_aim(&request, candidate);
    request.ahead = since_us;
    if (!limiter->is_plain) {
        ask_request(limit, &request, 0, &decision);
    } else if (read_clock(limiter, &request.now_us) == WEIR_OK) {
        limiter->backend->ops->decide(limiter->backend, &request, 1, false, INT64_MAX, &decision);
        acquire_freed(limit, key, key_hash(limit, key));
    }
}

int weir_settle(weir_limit *limit, struct weir_key key, const struct weir_reservation *reservation, int64_t actual)
{
    int error = check_arguments(limit, key, 1);
    if (!error)
        error = reservation_check(limit->limiter, reservation, actual);
    if (error || reservation_settles_nothing(reservation, actual))
        return error;
    const int64_t beyond = actual - reservation->permits;
    if (beyond > 0)
        return reservation->at_us < 0
                   ? settle_otherwise(limit, key, key_hash(limit, key), reservation, charge_cost(beyond), WEIR_CHARGE)
                   : weir_charge(limit, key, beyond);
    if (reservation->candidate_us > 0)
        candidate_give_back(limit, key, reservation->candidate_us, -beyond);
    if (reservation->at_us == 0 && reservation->id == 0) /* nothing else comes back */
        return WEIR_OK;
    return give_back(limit, key, reservation, -beyond);
}

int renewal_check(const struct weir *limiter, const struct weir_reservation *reservation, int64_t cost)
{
    const int error = reservation_check(limiter, reservation, 0);
    if (!error && reservation->permits > 0 && reservation->permits != cost)
        return refuse_range(limiter, "cost", cost, reservation->permits, reservation->permits);
    return error;
}

int weir_renew(weir_limit *limit, struct weir_key key, int64_t cost, struct weir_decision *out,
               struct weir_reservation *reservation)
{
    int error = check_arguments(limit, key, cost);
    if (!error && !out)
        error = refuse_null(limit->limiter, "out");
    if (!error)
        error = renewal_check(limit->limiter, reservation, cost);
    if (error)
        return error;
    struct weir_reservation noted = RESERVATION_NONE;
    const uint64_t hash = key_hash(limit, key);
    const bool is_out = reservation_is_out(limit_first_half(limit_for_key(limit, key, hash)), reservation);
    error = reserve_otherwise(limit, key, hash, cost, is_out ? reservation : NULL, &noted, out);
    if (is_out) /* its candidate's permits are not renewed */
        noted.candidate_us = reservation->candidate_us;
    if (!error)
        renewal_finish(reservation, noted, cost, out);
    return error;
}
