/* take.c - counts answers to the commonest request that are not the commonest answer. */
#include "core/limiter/take.h"

#include "core/limiter/top_keys.h"

int take_told(const struct weir_backend_request *request, int error, struct weir_decision *out)
{
    if (error) {
        stats_add(&request->limit->limiter->stats, STATS_ERRORS, 1);
        return error;
    }
    struct weir_backend_request own;
    if (limit_has_halves(request->limit)) {
        own = *request;
        candidate_finish_plain(&own, out);
        request = &own;
    }
    shadow_apply(request->limit, request->key, out);
    figures_count(request->limit, request->cost, out);
    top_keys_count(request, out);
    return WEIR_OK;
}

int take_halves(struct weir_limit *limit, struct weir_key key, uint64_t hash, int64_t cost, int64_t now_us,
                struct weir_reservation *reservation, struct weir_decision *out)
{
    struct weir_backend *backend = limit->limiter->backend;
    struct weir_backend_request request;
    int error = take_time(limit, &now_us);
    fill_request(&request, limit, key, hash, cost, now_us, WEIR_TAKE);
    request.reservation = reservation;
    if (!error)
        error = backend->ops->decide(backend, &request, 1, false, INT64_MAX, out);
    return take_told(&request, error, out);
}

int take_told_rarely(struct weir_limit *limit, struct weir_key key, uint64_t hash, int64_t cost, int64_t now_us,
                     int taken, struct weir_decision *out)
{
    struct weir_backend_request request;
    fill_request(&request, limit, key, hash, cost, now_us, WEIR_TAKE);
    return take_told(&request, taken < 0 ? taken : WEIR_OK, out);
}
