/* releases.c - tells the backend what became of slots while it did not answer.
 *
 * A release whose answer is missing may have been executed. Repeating it does no harm, because it names its slot. So it
 * is sent until it is answered or the slot's hold is over. Likewise a take whose answer is missing may have added its
 * slot, which now belongs to nobody: it is released.
 *
 * Slots that the fallback has given live in the fallback. Once the backend is in reach they are added there, each with
 * what is left of its hold, and then forgotten in the fallback. Their ids have a bit of their own, SLOT_LOCAL: a request
 * about such a slot asks the fallback first. While the backend is being told (is_telling), a release also goes to the
 * queue: the same thread sends it after what it is sending now.
 *
 * One thread does all this. It begins with the first release or slot, and sends up to SEND_MOST requests together.
 */
#include "core/outage/releases.h"

#include "core/ground/arith.h"
#include "core/ground/cancel.h"
#include "core/ground/quiet_thread.h"
#include "core/limiter/request.h"

#include <stdlib.h>

#define SEND_MOST 32
#define RETRY_LEAST_US 5000
#define RETRY_MOST_US 100000

struct release {
    struct release *next;
    struct weir_limit *limit;
    uint64_t id;
    int64_t cost, left; /* what goes, at least 1; what stays */
    int64_t until_us;   /* on CLOCK_MONOTONIC, when its hold is over */
    size_t len;
    char key[];
};

void releases_init(struct weir *limiter)
{
    struct releases *releases = &limiter->outage->releases;
    *releases = (struct releases){ .end = &releases->first };
    lock_init(&releases->mutex);
    lock_condition_init(&releases->changes);
}

static void releases_drop(struct releases *releases)
{
    while (releases->first) {
        struct release *release = releases->first;
        releases->first = release->next;
        free(release);
    }
    releases->end = &releases->first;
    releases->count = 0;
}

void releases_free(struct weir *limiter)
{
    struct releases *releases = &limiter->outage->releases;
    releases_drop(releases);
    pthread_cond_destroy(&releases->changes);
    lock_destroy(&releases->mutex);
}

/* Its mutex may be held by a thread of the parent, and what it guards half changed: the child leaves that behind. */
void releases_begin_in_child(struct weir *limiter)
{
    releases_init(limiter);
}

/* ---- Telling the backend ---- */

static struct weir_backend_request release_request(const struct release *release)
{
    struct weir_backend_request request = backend_request(release->limit, weir_key(release->key, release->len),
                                                          release->cost, WEIR_OWN_CLOCK, WEIR_REFUND);
    request.slot = release->id;
    request.ahead = release->left;
    return request;
}

/* Ask the backend; *decided gets which of them it has answered. Return their number. */
static size_t releases_ask(struct weir *limiter, struct weir_backend_request *requests, size_t n, bool *decided)
{
    struct weir_decision decisions[SEND_MOST];
    size_t count = 0;
    int64_t now_us;
    if (request_time(limiter, &now_us) != WEIR_OK)
        return 0;
    for (size_t i = 0; i < n; i++) {
        requests[i].now_us = now_us;
        decisions[i].source = WEIR_BY_NOBODY;
    }
    const int error = limiter->backend->ops->decide(limiter->backend, requests, n, false,
                                                    clock_monotonic_us() + limiter->timeout_us, decisions);
    for (size_t i = 0; i < n; i++) {
        decided[i] = !error || (n > 1 && decisions[i].source != WEIR_BY_NOBODY) || error == WEIR_ESTATE;
        count += decided[i];
    }
    return count;
}

/* Send what waits first. True if there was something and all of it was answered. */
static bool releases_send(struct weir *limiter)
{
    struct releases *releases = &limiter->outage->releases;
    struct release *sent[SEND_MOST];
    struct weir_backend_request requests[SEND_MOST];
    bool decided[SEND_MOST];
    size_t n = 0, answered = 0;
    lock_take(&releases->mutex);
    while (n < SEND_MOST && releases->first) {
        sent[n] = releases->first;
        releases->first = sent[n]->next;
        requests[n] = release_request(sent[n]);
        n++;
    }
    if (!releases->first)
        releases->end = &releases->first;
    lock_give(&releases->mutex);
    if (n == 0)
        return true;
    answered = releases_ask(limiter, requests, n, decided);
    const int64_t now_us = clock_monotonic_us();
    lock_take(&releases->mutex);
    for (size_t i = 0; i < n; i++) {
        if (decided[i] || sent[i]->until_us <= now_us) {
            free(sent[i]);
            releases->count--;
            continue;
        }
        sent[i]->next = NULL;
        *releases->end = sent[i];
        releases->end = &sent[i]->next;
    }
    lock_give(&releases->mutex);
    return answered == n;
}

/* Forget in the fallback what the backend has learned. A slot that was renewed since stays there, to be told again. */
static void releases_forget(struct weir *limiter, const struct weir_backend_request *told, int64_t end_us)
{
    struct weir_backend_request request = *told;
    struct weir_decision decision;
    request.verb = WEIR_REFUND;
    request.ahead = 0;
    request.cold_since_us = 0;
    request.cold_left = end_us;
    if (read_clock(limiter, &request.now_us) == WEIR_OK)
        limiter->fallback->ops->decide(limiter->fallback, &request, 1, false, INT64_MAX, &decision);
}

/* Tell the backend of slots that the fallback has. True if it has none, or all were told. */
static bool releases_tell(struct weir *limiter)
{
    struct releases *releases = &limiter->outage->releases;
    const struct own_ops *own = limiter->fallback ? own_ops(limiter->fallback) : NULL;
    struct own_slot slots[SEND_MOST];
    struct weir_backend_request requests[SEND_MOST];
    bool decided[SEND_MOST], all = true;
    uint32_t place = 0;
    if (!own || !own->slots_list || !atomic_exchange(&releases->gives, false))
        return true;
    atomic_store(&releases->is_telling, true);
    for (size_t n = SEND_MOST; n > 0 && all;) {
        int64_t now_us;
        n = read_clock(limiter, &now_us) == WEIR_OK
                ? own->slots_list(limiter->fallback, &place, now_us, slots, SEND_MOST)
                : 0;
        for (size_t i = 0; i < n; i++) {
            requests[i] = backend_request(slots[i].limit->of, slots[i].key, slots[i].cost, WEIR_OWN_CLOCK, WEIR_CHARGE);
            requests[i].slot = slots[i].id;
            requests[i].ahead = slots[i].left_us;
        }
        all = n == 0 || releases_ask(limiter, requests, n, decided) == n;
        for (size_t i = 0; i < n; i++) {
            if (decided[i])
                releases_forget(limiter, &requests[i], slots[i].end_us);
            free((void *)(uintptr_t)slots[i].key.data);
        }
    }
    atomic_store(&releases->is_telling, false);
    if (!all)
        atomic_store(&releases->gives, true);
    return all;
}

static bool releases_has_work(struct releases *releases) REQUIRES(releases->mutex)
{
    return releases->first || atomic_load(&releases->gives);
}

static void *releases_run(void *user)
{
    struct weir *limiter = user;
    struct releases *releases = &limiter->outage->releases;
    int64_t pause_us = RETRY_LEAST_US;
    lock_take(&releases->mutex);
    while (!releases->ends) {
        if (!releases_has_work(releases)) {
            pthread_cond_wait(&releases->changes, &releases->mutex.mutex);
            continue;
        }
        lock_give(&releases->mutex);
        const bool done = backend_is_in_reach(limiter->backend, NULL) && releases_send(limiter) &&
                          releases_tell(limiter);
        lock_take(&releases->mutex);
        pause_us = done ? RETRY_LEAST_US : min_of(2 * pause_us, RETRY_MOST_US);
        const struct timespec until = clock_timespec(clock_monotonic_us() + pause_us);
        if (!done && !releases->ends)
            pthread_cond_timedwait(&releases->changes, &releases->mutex.mutex, &until);
    }
    lock_give(&releases->mutex);
    for (size_t i = 0; i < WEIR_MAX_RELEASES / SEND_MOST && releases->first; i++)
        if (!releases_send(limiter))
            break;
    releases_tell(limiter);
    return NULL;
}

void releases_end(struct weir *limiter)
{
    struct releases *releases = &limiter->outage->releases;
    lock_take(&releases->mutex);
    releases->ends = true;
    pthread_cond_signal(&releases->changes);
    const bool runs = releases->is_running;
    lock_give(&releases->mutex);
    if (runs)
        pthread_join(releases->thread, NULL);
    releases->is_running = false;
}

/* Have the thread look. False: there is none. */
static bool releases_wake(struct weir *limiter) REQUIRES(limiter->outage->releases.mutex)
{
    struct releases *releases = &limiter->outage->releases;
    if (!releases->is_running && !releases->ends)
        releases->is_running = quiet_thread_start(&releases->thread, NULL, releases_run, limiter) == 0;
    pthread_cond_signal(&releases->changes);
    return releases->is_running && !releases->ends;
}

/* ---- What waits ---- */

/* Keep the release of a request's slot. False: it is lost. */
static bool releases_keep(struct weir *limiter, const struct weir_backend_request *request, int64_t left)
{
    struct releases *releases = &limiter->outage->releases;
    struct release *release = malloc(sizeof *release + request->key.len);
    struct weir_plan plan;
    bool kept = false;
    plan_cell_read(&request->limit->plan, &plan);
    if (release) {
        *release = (struct release){ .limit = request->limit->of,
                                     .id = request->slot,
                                     .cost = request->cost,
                                     .left = left,
                                     .until_us = clock_monotonic_us() + max_of(plan.period_us, WEIR_SECOND),
                                     .len = request->key.len };
        memcpy(release->key, request->key.data, request->key.len);
        lock_take(&limiter->outage->releases.mutex);
        if (releases->count < WEIR_MAX_RELEASES && releases_wake(limiter)) {
            *releases->end = release;
            releases->end = &release->next;
            releases->count++;
            kept = true;
        }
        lock_give(&limiter->outage->releases.mutex);
    }
    if (!kept) {
        free(release);
        stats_add(&limiter->stats, STATS_RELEASES_LOST, 1);
    }
    return kept;
}

/* Answer a release that weir has taken on. */
static void releases_answer(const struct weir_backend_request *request, struct weir_decision *out)
{
    struct weir_plan plan;
    plan_cell_read(&request->limit->plan, &plan);
    *out = (struct weir_decision){ .allowed = true, .source = WEIR_BY_FALLBACK, .limit = plan.size };
}

bool releases_after(struct weir *limiter, const struct weir_backend_request *requests, size_t n,
                    struct weir_decision *out)
{
    if (!limiter->can_block)
        return false;
    CANCEL_DISABLED;
    for (size_t i = 0; i < n; i++)
        if (requests[i].slot && requests[i].verb == WEIR_TAKE)
            releases_keep(limiter, &requests[i], 0);
    if (n > 1 || !requests[0].slot || requests[0].verb != WEIR_REFUND ||
        !releases_keep(limiter, &requests[0], requests[0].ahead))
        return false;
    releases_answer(&requests[0], out);
    return true;
}

void releases_gave(struct weir *limiter)
{
    struct releases *releases = &limiter->outage->releases;
    if (!limiter->can_block || atomic_exchange(&releases->gives, true))
        return;
    CANCEL_DISABLED;
    lock_take(&limiter->outage->releases.mutex);
    releases_wake(limiter);
    lock_give(&limiter->outage->releases.mutex);
}

bool releases_decide(struct weir *limiter, const struct weir_backend_request *request, struct weir_decision *out)
{
    if (!(request->slot & SLOT_LOCAL) || !limiter->fallback ||
        (request->verb != WEIR_REFUND && request->verb != WEIR_RENEW))
        return false;
    struct weir_backend_request here = *request;
    struct weir_decision decision;
    here.cold_since_us = 0;
    here.plan_version = plan_cell_version(&request->limit->local_plan);
    here.verb = WEIR_REFUND; /* a renewal asks whether it is there: all of its cost stays */
    here.ahead = request->verb == WEIR_RENEW ? EXACT_MAX : request->ahead;
    if (here.now_us == WEIR_OWN_CLOCK && read_clock(limiter, &here.now_us) != WEIR_OK)
        return false;
    if (limiter->fallback->ops->decide(limiter->fallback, &here, 1, false, INT64_MAX, &decision) != WEIR_OK ||
        decision.ahead == 0)
        return false;
    if (request->verb == WEIR_RENEW) {
        here.verb = WEIR_RENEW;
        here.ahead = 0;
        if (limiter->fallback->ops->decide(limiter->fallback, &here, 1, false, INT64_MAX, &decision) != WEIR_OK ||
            !decision.allowed)
            return false;
        releases_gave(limiter);
    } else if (atomic_load(&limiter->outage->releases.is_telling)) {
        releases_keep(limiter, request, request->ahead);
    }
    *out = decision;
    out->ahead = 0;
    out->source = WEIR_BY_FALLBACK;
    return true;
}
