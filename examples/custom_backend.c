/* custom_backend.c - a backend that counts all keys of a limit together, in a fixed window, and a limiter over it.
 *
 * Prints
 *
 *     192.0.2.7 allowed, 2 left
 *     192.0.2.8 allowed, 1 left
 *     192.0.2.7 allowed, 0 left
 *     192.0.2.8 denied, 0 left
 */
#include <pthread.h>
#include <stdio.h>
#include <weir/backend.h>

enum { MOST_LIMITS = 16 };

struct window {
    int64_t end, used;
};

struct total {
    struct weir_backend backend;        /* must be first */
    pthread_mutex_t lock;               /* guards the windows */
    struct window windows[MOST_LIMITS]; /* by limit_id */
};

/* The window of this request. A window lasts to its end, even if the clock steps back. */
static struct window current_window(const struct window *stored, const struct weir_plan *plan, int64_t now)
{
    struct window window = { .end = now - now % plan->period_us + plan->period_us };
    return stored->end >= window.end ? *stored : window;
}

static int decide_one(struct total *total, const struct weir_backend_request *request, struct weir_decision *out)
{
    struct weir_plan plan;
    weir_request_plan(request, &plan);
    if (plan.algorithm != WEIR_FIXED_WINDOW || plan.align != WEIR_ALIGN_EPOCH || request->limit_id >= MOST_LIMITS)
        return WEIR_EINVAL; /* the caller gets it */
    int64_t now = request->now_us, cost = request->cost;
    struct window window = current_window(&total->windows[request->limit_id], &plan, now);
    bool asks = request->verb == WEIR_TAKE || request->verb == WEIR_PEEK;
    bool allowed = !asks || window.used + cost <= plan.size;
    if (request->verb == WEIR_RESET || (request->verb == WEIR_REFUND && window.used < cost))
        window.used = 0;
    else if (request->verb == WEIR_REFUND)
        window.used -= cost;
    else if (request->verb == WEIR_CHARGE || (request->verb == WEIR_TAKE && allowed))
        window.used += cost;
    total->windows[request->limit_id] = window;
    *out = (struct weir_decision){
        .allowed = allowed,
        .source = WEIR_BY_BACKEND,
        .limit = plan.size,
        .remaining = window.used < plan.size ? plan.size - window.used : 0,
        .reset_after_us = window.used > 0 ? window.end - now : 0,
        .retry_after_us = allowed            ? 0
                          : cost > plan.size ? WEIR_NEVER
                                             : window.end - now,
    };
    return WEIR_OK;
}

static int decide(struct weir_backend *backend, const struct weir_backend_request *requests, size_t n, bool all,
                  int64_t deadline_us, struct weir_decision *out)
{
    struct total *total = (struct total *)backend;
    int error = all && n > 1 ? WEIR_EINVAL : WEIR_OK; /* this backend has no weir_try_all() */
    (void)deadline_us;                                /* it never blocks for long */
    pthread_mutex_lock(&total->lock);
    for (size_t i = 0; i < n && error == WEIR_OK; i++)
        error = decide_one(total, &requests[i], &out[i]);
    pthread_mutex_unlock(&total->lock);
    return error;
}

static void destroy(struct weir_backend *backend)
{
    pthread_mutex_destroy(&((struct total *)backend)->lock);
}

int main(void)
{
    static const struct weir_backend_ops ops = {
        .size = sizeof ops, .name = "total", .decide = decide, .destroy = destroy
    };
    static const char *const keys[] = { "192.0.2.7", "192.0.2.8" };
    struct total total = { .backend = { &ops }, .lock = PTHREAD_MUTEX_INITIALIZER };
    struct weir_policy policy = {
        .algorithm = WEIR_FIXED_WINDOW, .align = WEIR_ALIGN_EPOCH, .limit = 3, .period_us = WEIR_HOUR
    };
    struct weir_decision d;
    weir_limit *mail;
    weir *w;
    int error = weir_open_backend(NULL, &total.backend, &w);
    if (error) {
        fprintf(stderr, "custom_backend: %s\n", weir_strerror(error));
        return 1;
    }
    error = weir_limit_define(w, "mail", &policy, &mail);
    for (int i = 0; i < 4 && !error; i++) { /* all at one given time, so that no window ends between them */
        const char *key = keys[i % 2];
        error = weir_try_at(mail, weir_key_text(key), 1, WEIR_DAY, &d);
        if (!error)
            printf("%s %s, %d left\n", key, d.allowed ? "allowed" : "denied", (int)d.remaining);
    }
    if (error)
        fprintf(stderr, "custom_backend: %s\n", weir_strerror(error));
    weir_close(w);
    return error ? 1 : 0;
}
