/* candidate.c - which half of a policy binds a key, and what becomes of the other one's answer. */
#include "core/limiter/candidate.h"

#include "core/limiter/figures.h"
#include "core/limiter/shadow.h"

#include <stdlib.h>

#include <weir/backend.h>

struct weir_limit *candidate_of(const struct weir_limit *first)
{
    const int32_t kind = atomic_load_explicit(&first->shadow, memory_order_acquire);
    return kind & LIMIT_HAS_CANDIDATE ? atomic_load_explicit(&first->candidate, memory_order_relaxed) : NULL;
}

/* Return the candidate that an outage's settlement means: it knows only the id, which a limit's candidate and those of
 * its overrides have in common. */
static struct weir_limit *candidate_for_key(struct weir_limit *candidate, struct weir_key key)
{
    struct weir_limit *limit = candidate->of;
    const struct overrides *overrides = atomic_load_explicit(&limit->overrides, memory_order_acquire);
    const struct weir_limit *first = overrides ? overrides_find(overrides, limit, key, key_hash(limit, key)) : limit;
    struct weir_limit *found = candidate_of(first);
    return found ? found : candidate;
}

struct weir_limit *candidate_choose(struct weir_limit *target, struct weir_key key)
{
    if (target->first)
        return candidate_for_key(target, key);
    struct weir_limit *candidate = candidate_of(target);
    if (!candidate)
        return target;
    const int32_t enforced = atomic_load_explicit(&candidate->enforced, memory_order_relaxed);
    return enforced > 0 && !shadow_spares(target, key, 100 - enforced) ? candidate : target;
}

void candidate_free(struct weir_limit *first)
{
    struct weir_limit *candidate = atomic_load_explicit(&first->candidate, memory_order_relaxed);
    if (candidate)
        figures_free(candidate);
    free(candidate);
}

void candidate_aim(struct weir_backend_request *request, struct weir_limit *half)
{
    request->limit = half;
    request->limit_id = half->id;
    request->plan_version = plan_cell_version(&half->plan);
    request->hash = key_hash(half, request->key);
    request->cold_since_us = -1;
    request->cold_left = 0;
    request->hint = NULL;
}

bool candidate_begin(const struct weir_backend_request *request, const struct weir_decision *decision,
                     struct candidate_ask *out)
{
    struct weir_limit *limit = request->limit;
    struct weir_limit *other = limit->first ? limit->first : candidate_of(limit);
    switch (request->verb) {
    case WEIR_TAKE:
    case WEIR_PEEK:
        if (!other || !decision->allowed)
            return false;
        break;
    case WEIR_REFUND:
        if (!other || request->ahead != 0) /* a reservation, which is settled half by half */
            return false;
        break;
    case WEIR_CHARGE:
    case WEIR_RESET:
        if (!other)
            return false;
        break;
    default: return false; /* renewals concern the first half */
    }
    out->reservation = (struct weir_reservation){ .permits = -1 };
    out->request = *request;
    out->request.ahead = 0;
    out->request.spread = 0;
    out->request.reservation = request->reservation ? &out->reservation : NULL;
    candidate_aim(&out->request, other);
    return true;
}

/* Return when a half charged the request; 0: it did not, or what it charged does not come back to it: Redis will be
 * charged at another time, or keys without room share a state. */
static int64_t charged_us(const struct weir_reservation *noted, const struct weir_decision *decision)
{
    const bool is_own = decision && decision->source != WEIR_BY_FALLBACK && decision->source != WEIR_BY_FULL;
    return is_own && decision->allowed ? noted->at_us : 0;
}

/* Note when each half charged the request. */
static void reservation_join(struct weir_reservation *noted, const struct weir_decision *decision, bool binds_candidate,
                             int64_t other_us)
{
    if (binds_candidate) {
        const int64_t own_us = charged_us(noted, decision);
        noted->candidate_us = own_us > 0 ? own_us : -1;
        noted->at_us = other_us;
    } else {
        noted->candidate_us = other_us > 0 ? other_us : -1;
    }
}

void candidate_end(struct weir_backend_request *request, struct weir_decision *decision,
                   const struct candidate_ask *ask, const struct weir_decision *answer)
{
    const bool binds_candidate = request->limit->first != NULL;
    const bool is_question = request->verb == WEIR_TAKE || request->verb == WEIR_PEEK;
    if (is_question && answer && !binds_candidate && !answer->allowed)
        decision->would_deny = true;
    if (request->verb == WEIR_TAKE && request->reservation && decision->allowed)
        reservation_join(request->reservation, decision, binds_candidate, charged_us(&ask->reservation, answer));
    if (binds_candidate)
        candidate_aim(request, request->limit->first);
}

void candidate_finish_plain(struct weir_backend_request *request, struct weir_decision *decision)
{
    struct candidate_ask ask;
    struct weir_decision answer;
    struct weir_backend *backend = request->limit->limiter->backend;
    const bool is_asked = candidate_begin(request, decision, &ask) &&
                          backend->ops->decide(backend, &ask.request, 1, false, INT64_MAX, &answer) == WEIR_OK;
    candidate_end(request, decision, &ask, is_asked ? &answer : NULL);
}
