/* slots_group.c - decides a group of requests, some of which are about slots: all or nothing.
 *
 * The slots are taken first, then the rates. If one denies, the slots go again; the area is locked meanwhile, so no
 * other thread sees them.
 */
#include "backends/shared/slots.h"

#include <stdlib.h>

/* Give back the slots of the first `n` requests. */
static void group_undo(struct weir_backend *backend, const struct weir_backend_request *requests, size_t n,
                       slots_serves *serve)
{
    struct weir_decision unused;
    for (size_t i = 0; i < n; i++) {
        struct weir_backend_request request = requests[i];
        request.verb = WEIR_REFUND;
        request.ahead = 0;
        if (request.slot)
            serve(backend, &request, &unused);
    }
}

/* Fill the decision of each request as a peek does. */
static int group_peek(struct weir_backend *backend, const struct weir_backend_request *requests, size_t n,
                      slots_serves *serve, struct weir_decision *out)
{
    int error = WEIR_OK;
    for (size_t i = 0; i < n && !error; i++) {
        struct weir_backend_request request = requests[i];
        request.verb = WEIR_PEEK;
        request.reservation = NULL;
        if (request.slot)
            serve(backend, &request, &out[i]);
        else
            error = backend->ops->decide(backend, &request, 1, false, INT64_MAX, &out[i]);
    }
    return error;
}

/* Let the rates of a group decide. *allowed: they all do. */
static int group_rates(struct weir_backend *backend, const struct weir_backend_request *requests, size_t n,
                       struct weir_decision *out, bool *allowed)
{
    struct weir_backend_request *rates = malloc(n * (sizeof *rates + sizeof *out));
    if (!rates)
        return WEIR_ENOMEM;
    struct weir_decision *decisions = (struct weir_decision *)(void *)(rates + n);
    size_t count = 0;
    for (size_t i = 0; i < n; i++)
        if (!requests[i].slot)
            rates[count++] = requests[i];
    const int error = count > 0 ? backend->ops->decide(backend, rates, count, true, INT64_MAX, decisions) : WEIR_OK;
    *allowed = true;
    count = 0;
    for (size_t i = 0; i < n && !error; i++) {
        if (requests[i].slot)
            continue;
        out[i] = decisions[count++];
        *allowed = *allowed && out[i].allowed;
    }
    free(rates);
    return error;
}

int slots_serve_group(struct weir_backend *backend, const struct weir_backend_request *requests, size_t n,
                      slots_serves *serve, struct weir_decision *out)
{
    bool allowed = true;
    size_t taken = 0;
    int error = WEIR_OK;
    for (; taken < n && allowed; taken++) {
        if (!requests[taken].slot)
            continue;
        serve(backend, &requests[taken], &out[taken]);
        allowed = out[taken].allowed;
    }
    if (allowed)
        error = group_rates(backend, requests, n, out, &allowed);
    if (error || !allowed)
        group_undo(backend, requests, taken, serve);
    return error || allowed ? error : group_peek(backend, requests, n, serve, out);
}
