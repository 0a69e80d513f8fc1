/* acquire.c - threads that wait for permits: a thread asks, waits for as long as the answer says, and asks again.
 *
 * Those who wait for the same key stand in one line (line.h), threads in weir_acquire() and submitted requests
 * (acquire_op.c) alike. Nothing is asked while the mutex is held.
 *
 * Every call is counted (inside.h): weir_close() wakes those that sleep and waits until the last one has left.
 */
#include "core/api/acquire_turn.h"
#include "core/api/reserve.h"
#include "core/api/verbs.h"
#include "core/ground/cancel.h"

#include <errno.h>
#include <time.h>

int acquire_sleep_until(struct weir *limiter, int64_t until_us)
{
    const struct timespec until = clock_timespec(until_us);
    int woken = 0;
    lock_take(&limiter->closing.mutex);
    while (!limiter->closing.has_begun && woken != ETIMEDOUT)
        woken = pthread_cond_timedwait(&limiter->closing.begins, &limiter->closing.mutex.mutex, &until);
    int result = limiter->closing.has_begun ? WEIR_ECLOSED : WEIR_OK;
    lock_give(&limiter->closing.mutex);
    return result;
}

/* Wait in line and ask. Returns with the mutex held, after leaving the line. */
static enum acquire_outcome acquire_in_line(struct weir *limiter, struct acquire *acquire, int64_t *due_us)
    REQUIRES(limiter->errands->mutex)
{
    enum acquire_outcome outcome = ACQUIRE_AGAIN;
    acquire->may_ask = line_join(&limiter->errands->lines, &acquire->at);
    while (!limiter->errands->is_closing) {
        const int64_t now_us = clock_monotonic_us();
        if (acquire_is_due(acquire, now_us)) {
            line_asks(&limiter->errands->lines, &acquire->at);
            lock_give(&limiter->errands->mutex);
            outcome = acquire_ask(limiter, acquire, due_us);
            lock_take(&limiter->errands->mutex);
            if (outcome != ACQUIRE_AGAIN)
                break;
            acquire->may_ask = false;
            acquire_denied(limiter, acquire, *due_us);
            continue;
        }
        const int64_t until_us = acquire_due_us(limiter, acquire);
        if (until_us <= now_us) {
            if (acquire_stays(limiter, acquire))
                continue;
            return ACQUIRE_OVER;
        }
        const struct timespec until = clock_timespec(until_us);
        pthread_cond_timedwait(&acquire->turn, &limiter->errands->mutex.mutex, &until);
    }
    if (outcome == ACQUIRE_AGAIN) { /* otherwise the answer came before the end */
        acquire->status = WEIR_ECLOSED;
        outcome = ACQUIRE_OVER;
    }
    acquire_leave(limiter, acquire);
    return outcome;
}

static void acquire_wait(struct weir *limiter, struct acquire *acquire)
{
    enum acquire_outcome outcome = ACQUIRE_AGAIN;
    int64_t due_us;
    const bool is_alone = !limiter->can_block &&
                          atomic_load_explicit(&limiter->errands->lines.count, memory_order_relaxed) == 0;
    if (is_alone) /* the usual case takes no mutex */
        outcome = acquire_ask(limiter, acquire, &due_us);
    if (outcome == ACQUIRE_AGAIN) {
        acquire->status = lock_condition_init(&acquire->turn) == 0 ? WEIR_OK : WEIR_ENOMEM;
        if (acquire->status)
            return;
        acquire->hopes = acquire_hopes(&acquire->at);
        lock_take(&limiter->errands->mutex);
        outcome = acquire_in_line(limiter, acquire, &due_us);
        lock_give(&limiter->errands->mutex);
        pthread_cond_destroy(&acquire->turn);
    }
    if (outcome == ACQUIRE_DELAY)
        acquire->status = acquire_sleep_until(limiter, due_us);
}

/* Acquire permits, and write a reservation for them unless that is NULL. */
static int acquire_for(struct weir_limit *limit, struct weir_key key, int64_t cost, int64_t max_wait_us,
                       struct weir_decision *out, struct weir_reservation *reservation)
{
    struct weir *limiter = limit->limiter;
    if (!out)
        return refuse_null(limiter, "out");
    if (max_wait_us < 0)
        return refuse_range(limiter, "max_wait_us", max_wait_us, 0, INT64_MAX);

    CANCEL_DISABLED;
    int error = inside_add(limiter, 1);
    if (error)
        return error;
    struct acquire acquire = { .op = NULL, .reserves = reservation != NULL };
    acquire.request = backend_request(limit, key, cost, WEIR_OWN_CLOCK, WEIR_TAKE);
    acquire_fill(&acquire, &(struct weir_request){ .limit = limit, .key = key, .cost = cost }, max_wait_us);
    acquire_wait(limiter, &acquire);
    count_answer(&acquire.request, acquire.status, &acquire.decision);
    error = acquire.status;
    if (!error)
        *out = acquire.decision;
    if (!error && reservation)
        reservation_finish(reservation, acquire.reservation, cost, out);
    inside_remove(limiter, 1); /* the limiter may be freed from here on */
    return error;
}

int weir_acquire(weir_limit *limit, struct weir_key key, int64_t cost, int64_t max_wait_us, struct weir_decision *out)
{
    const int error = check_arguments(limit, key, cost);
    return error ? error : acquire_for(limit, key, cost, max_wait_us, out, NULL);
}

int weir_reserve_wait(weir_limit *limit, struct weir_key key, int64_t estimate, int64_t max_wait_us,
                      struct weir_decision *out, struct weir_reservation *reservation)
{
    const int error = check_arguments(limit, key, estimate);
    if (error)
        return error;
    return reservation ? acquire_for(limit, key, estimate, max_wait_us, out, reservation)
                       : refuse_null(limit->limiter, "reservation");
}
