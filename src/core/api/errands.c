/* errands.c - a heap of errands by time, and the threads that run them. */
#include "core/api/errands.h"

#include "core/ground/clock.h"
#include "core/ground/quiet_thread.h"

#include <stdlib.h>

int errands_init(struct weir *limiter)
{
    struct errands *errands = calloc(1, sizeof *errands);
    if (!errands)
        return WEIR_ENOMEM;
    if (lock_condition_init(&errands->changed) != 0) {
        free(errands);
        return WEIR_ENOMEM;
    }
    lock_init(&errands->mutex);
    limiter->errands = errands;
    return WEIR_OK;
}

void errands_free(struct errands *errands)
{
    if (!errands)
        return;
    pthread_cond_destroy(&errands->changed);
    lock_destroy(&errands->mutex);
    free(errands->heap);
    rests_free(&errands->rests);
    free(errands);
}

/* Not checked: the fork holds the mutex. */
void errands_begin_in_child(struct errands *errands) UNCHECKED
{
    lock_condition_init(&errands->changed);
    memset(&errands->lines, 0, sizeof errands->lines);
    memset(errands->asked, 0, sizeof errands->asked);
    errands->count = errands->admitted = 0;
    errands->threads = errands->idle = 0;
}

/* ---- The heap ---- */

static bool errand_is_before(const struct errand *a, const struct errand *b)
{
    return a->due_us != b->due_us ? a->due_us < b->due_us : a->number < b->number;
}

static void heap_set(struct errands *errands, size_t place, struct errand *errand)
{
    errands->heap[place] = errand;
    errand->place = place;
}

/* Put an errand where it belongs, beginning at a free place. */
static void heap_settle(struct errands *errands, size_t place, struct errand *errand)
{
    for (; place > 1 && errand_is_before(errand, errands->heap[place / 2]); place /= 2)
        heap_set(errands, place, errands->heap[place / 2]);
    for (size_t child; (child = 2 * place) <= errands->count; place = child) {
        if (child < errands->count && errand_is_before(errands->heap[child + 1], errands->heap[child]))
            child++;
        if (errand_is_before(errand, errands->heap[child]))
            break;
        heap_set(errands, place, errands->heap[child]);
    }
    heap_set(errands, place, errand);
}

static struct errand *heap_pop(struct errands *errands)
{
    struct errand *first = errands->heap[1], *last = errands->heap[errands->count--];
    if (errands->count > 0)
        heap_settle(errands, 1, last);
    first->place = 0;
    return first;
}

/* ---- The threads ---- */

static void *errands_work(void *user);

static int errands_start_thread(struct weir *limiter) REQUIRES(limiter->errands->mutex)
{
    struct errands *errands = limiter->errands;
    if (quiet_thread_start(&errands->thread[errands->threads], NULL, errands_work, limiter) != 0)
        return WEIR_EIO;
    errands->threads++;
    return WEIR_OK;
}

/* An errand is or may be due: wake a thread, or start one. If none can be started, the others run it later. */
static void errands_call_help(struct weir *limiter) REQUIRES(limiter->errands->mutex)
{
    struct errands *errands = limiter->errands;
    if (errands->idle > 0)
        pthread_cond_signal(&errands->changed);
    else if (errands->threads < ERRANDS_THREADS && limiter->can_block && !errands->is_closing)
        errands_start_thread(limiter);
}

static void *errands_work(void *user)
{
    struct weir *limiter = user;
    struct errands *errands = limiter->errands;
    lock_take(&limiter->errands->mutex);
    while (errands->count > 0 || !errands->is_closing) {
        const int64_t due_us = errands->count > 0 ? errands->heap[1]->due_us : INT64_MAX;
        if (!errands->is_closing && due_us > clock_monotonic_us()) {
            const struct timespec until = clock_timespec(due_us);
            errands->idle++;
            if (due_us == INT64_MAX)
                pthread_cond_wait(&errands->changed, &errands->mutex.mutex);
            else
                pthread_cond_timedwait(&errands->changed, &errands->mutex.mutex, &until);
            errands->idle--;
            continue;
        }
        struct errand *errand = heap_pop(errands);
        if (errands->count > 0 && errands->heap[1]->due_us <= clock_monotonic_us())
            errands_call_help(limiter);
        lock_give(&limiter->errands->mutex);
        errand->run(limiter, errand);
        lock_take(&limiter->errands->mutex);
    }
    lock_give(&limiter->errands->mutex);
    return NULL;
}

void errands_shut(struct weir *limiter, void (*wake)(struct line_waiter *waiter))
{
    struct errands *errands = limiter->errands;
    lock_take(&limiter->errands->mutex);
    errands->is_closing = true;
    pthread_cond_broadcast(&errands->changed);
    for (size_t i = 0; i < LINE_BUCKETS; i++)
        for (struct line_waiter *line = errands->lines.buckets[i]; line; line = line->next_line)
            for (struct line_waiter *waiter = line; waiter; waiter = waiter->next)
                wake(waiter);
    lock_give(&limiter->errands->mutex);
}

void errands_join(struct weir *limiter)
{
    struct errands *errands = limiter->errands;
    for (unsigned i = 0; i < errands->threads; i++)
        pthread_join(errands->thread[i], NULL);
}

/* ---- Errands ---- */

int errands_admit(struct weir *limiter)
{
    struct errands *errands = limiter->errands;
    if (errands->admitted >= WEIR_MAX_SUBMITTED)
        return WEIR_EFULL;
    if (errands->admitted == errands->room) {
        const size_t room = errands->room ? 2 * errands->room : 64;
        struct errand **heap = realloc(errands->heap, (room + 1) * sizeof(struct errand *));
        if (!heap)
            return WEIR_ENOMEM;
        errands->heap = heap;
        errands->room = room;
    }
    const int error = errands->threads > 0 ? WEIR_OK : errands_start_thread(limiter);
    if (!error)
        errands->admitted++;
    return error;
}

void errands_ended(struct weir *limiter)
{
    limiter->errands->admitted--;
}

void errands_put(struct weir *limiter, struct errand *errand, int64_t due_us)
{
    struct errands *errands = limiter->errands;
    errand->due_us = due_us;
    if (errand->place == 0) {
        errand->number = errands->numbers++;
        errand->place = ++errands->count;
    }
    heap_settle(errands, errand->place, errand);
    errands_call_help(limiter);
}
