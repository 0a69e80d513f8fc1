/* limiter.c - the life of a limiter, and the share that is in force. */
#include "core/limiter/limiter.h"

#include "core/outage/failure.h"
#include "core/follow/follow.h"
#include "core/limiter/inside.h"
#include "core/limiter/limits.h"
#include "core/outage/settle.h"
#include "core/ground/wake_fd.h"

#include <fcntl.h>
#include <stddef.h>
#include <stdlib.h>
#include <unistd.h>

/* With all that holds beside it, and classes for its weights, in one piece of memory. */
static int share_copy(const struct share *share, struct share *out, void **memory)
{
    size_t size = 0;
    for (const struct share *link = share; link; link = link->next)
        size += sizeof *link + (link->weights ? (size_t)link->count * sizeof *link->classes : 0);
    struct share *links = NULL;
    *out = *share;
    *memory = NULL;
    if (size == sizeof *share)
        return WEIR_OK;
    links = malloc(size);
    if (!links)
        return WEIR_ENOMEM;
    size_t count = 0;
    for (const struct share *link = share; link; link = link->next)
        links[count++] = *link;
    struct share_class *classes = (struct share_class *)(links + count);
    for (size_t i = 0; i < count; i++) {
        links[i].next = i + 1 < count ? &links[i + 1] : NULL;
        assert(!links[i].classes); /* a copy is not copied */
        if (!links[i].weights)
            continue;
        links[i].class_count = share_classes(&links[i], classes);
        links[i].classes = classes;
        links[i].weights = NULL; /* the caller's */
        classes += links[i].class_count;
    }
    *out = links[0];
    *memory = links;
    return WEIR_OK;
}

/* The parent's, under whose number the child's own is to be, must not stay: who drains it takes the parent's rings. */
static void renew_event_fd(struct weir *limiter)
{
    const int event_fd = atomic_load_explicit(&limiter->event_fd, memory_order_relaxed);
    if (event_fd < 0)
        return;
    const int own = wake_fd_open();
    if (own < 0 || dup3(own, event_fd, O_CLOEXEC) < 0) {
        close(event_fd);
        atomic_store_explicit(&limiter->event_fd, -1, memory_order_relaxed);
    }
    if (own >= 0)
        close(own);
}

/* What the child's only thread has of a limiter: no call inside, no request submitted, all of which are
 * the parent's; and an event fd of its own under the same number. The locks are held over the fork, so that what they
 * guard is whole in the child; a condition may be half-way through the waiting of a thread that is not here. */
static void begin_in_child(struct weir *limiter) UNCHECKED
{
    inside_init(limiter);
    atomic_store_explicit(&limiter->answered, NULL, memory_order_relaxed);
    lock_condition_init(&limiter->closing_begins);
    failure_begin_in_child(limiter);
    if (limiter->follow)
        follow_begin_in_child(limiter->follow);
    renew_event_fd(limiter);
}

static void told_of_fork(struct forks_watcher *watcher, enum forks_moment moment) UNCHECKED
{
    struct weir *limiter = (struct weir *)((char *)watcher - offsetof(struct weir, forks));
    if (moment == FORKS_BEFORE) {
        if (limiter->follow)
            follow_hold(limiter->follow);
        lock_take(&limiter->mutex);
        lock_take(&limiter->wait_mutex);
        lock_take(&limiter->settle.mutex);
        return;
    }
    if (moment == FORKS_IN_CHILD)
        begin_in_child(limiter);
    lock_give(&limiter->settle.mutex);
    lock_give(&limiter->wait_mutex);
    lock_give(&limiter->mutex);
    if (limiter->follow)
        follow_go_on(limiter->follow);
}

static void limiter_free(struct weir *limiter)
{
    if (limiter->event_fd >= 0)
        close(limiter->event_fd);
    settle_free(limiter);
    limits_free(limiter);
    follow_free(limiter);
    free(limiter->share_memory);
    pthread_cond_destroy(&limiter->closing_begins);
    lock_destroy(&limiter->wait_mutex);
    lock_destroy(&limiter->mutex);
    free(limiter);
}

static int load_policy_file(struct weir *limiter, const struct weir_options *options)
{
    if (!options->policy_file)
        return WEIR_OK;
    char sentence[LOG_LINE_SIZE];
    const enum layer layer = options->follow_policy_file ? LAYER_FILE : LAYER_CODE;
    int error = limits_load(limiter, options->policy_file, layer, (struct message){ sentence, sizeof sentence });
    if (error)
        log_line(&limiter->log, WEIR_LOG_ERROR, "%s", sentence);
    return error;
}

/* A child may use a limiter that can block, and close one that follows something. */
static bool lives_on(const struct weir *limiter)
{
    return limiter->can_block || limiter->follow;
}

static void watch_forks(struct weir *limiter, void (*watch_or_forget)(struct forks_watcher *watcher))
{
    if (lives_on(limiter))
        watch_or_forget(&limiter->forks);
}

int limiter_make(const struct weir_options *options, struct weir_backend *backend, struct weir_backend *fallback,
                 int (*start)(const struct weir_options *options, struct weir *limiter), struct weir **out)
{
    size_t size = (sizeof(struct weir) + 63) & ~(size_t)63;
    struct weir *limiter = aligned_alloc(64, size); /* a stripe of stats is a cache line */
    if (!limiter)
        return WEIR_ENOMEM;
    memset(limiter, 0, size);
    const struct weir_backend_ops *ops = backend->ops;
    limiter->backend = backend;
    limiter->fallback = fallback;
    limiter->on_failure = options->on_failure;
    limiter->open_for_us = options->open_for_us;
    limiter->can_block = ops->submit || ops->shut;
    limiter->spans = ops->spans;
    limiter->own_clock = ops->own_clock && !options->by_local_clock;
    limiter->is_plain = !limiter->can_block && !limiter->own_clock && options->on_failure == WEIR_FAIL_ERROR;
    atomic_init(&limiter->event_fd, -1);
    limiter->log = (struct log){ options->log, options->user };
    clock_init(&limiter->clock, options->now_us, options->user);
    limiter->timeout_us = options->timeout_us;
    limiter->leases = (struct lease_rules){
        .life_us = options->lease_life_us,
        .max = options->lease_max,
        .strict = options->strict,
    };
    if (lock_condition_init(&limiter->closing_begins) != 0) {
        free(limiter);
        return WEIR_ENOMEM;
    }
    if (settle_init(limiter) != WEIR_OK) {
        pthread_cond_destroy(&limiter->closing_begins);
        free(limiter);
        return WEIR_ENOMEM;
    }
    inside_init(limiter);
    lock_init(&limiter->mutex);
    lock_init(&limiter->wait_mutex);

    struct share share;
    int error = share_from_options(options, &share, (struct message){ NULL, 0 });
    if (!error)
        error = share_copy(&share, &limiter->share, &limiter->share_memory);
    if (!error && hash_secret_draw(&limiter->secret) != 0) {
        log_line(&limiter->log, WEIR_LOG_ERROR, "the system has no random numbers");
        error = WEIR_EIO;
    }
    if (!error && follow_is_asked(options))
        error = follow_begin(limiter, options);
    if (!error)
        error = load_policy_file(limiter, options);
    if (!error && lives_on(limiter) && forks_ready() != 0)
        error = WEIR_ENOMEM;
    if (error) {
        limiter_free(limiter);
        return error;
    }
    limiter->forks.told = told_of_fork;
    watch_forks(limiter, forks_watch);
    if (limiter->follow)
        error = start(options, limiter);
    if (error) {
        watch_forks(limiter, forks_forget);
        follow_close(limiter);
        limiter_free(limiter);
        return error;
    }
    if (ops->watch && limiter->settle.is_on)
        ops->watch(backend, settle_returned, limiter);
    *out = limiter;
    return WEIR_OK;
}

void weir_close(weir *limiter)
{
    if (!limiter)
        return;
    struct weir_backend *backend = limiter->backend;
    struct weir_backend *fallback = limiter->fallback;
    watch_forks(limiter, forks_forget);
    if (limiter->follow)
        follow_close(limiter);
    lock_take(&limiter->wait_mutex);
    limiter->closing = true;
    pthread_cond_broadcast(&limiter->closing_begins);
    lock_give(&limiter->wait_mutex);

    inside_shut(limiter);
    if (backend->ops->shut)
        backend->ops->shut(backend);

    inside_await_none(limiter);
    weir_dispatch(limiter);
    backend->ops->destroy(backend);
    if (fallback)
        fallback->ops->destroy(fallback);
    limiter_free(limiter);
}

/* ---- Shares ---- */

int limiter_put_share(struct weir *limiter, const struct share *share, struct weir_limit **unfit)
{
    struct share copy;
    void *memory;
    int error = share_copy(share, &copy, &memory);
    if (error)
        return error;

    lock_take(&limiter->mutex);
    void *old_memory = limiter->share_memory;
    limiter->share = copy;
    limiter->share_memory = memory;
    const bool changes = limits_at_share(limiter, unfit);
    lock_give(&limiter->mutex);

    if (limiter->backend->ops->instances)
        limiter->backend->ops->instances(limiter->backend, share_instances(share));
    if (changes)
        failure_split(limiter);
    free(old_memory);
    return WEIR_OK;
}

void limiter_tell_unfit(struct weir *limiter, const struct weir_limit *unfit)
{
    if (unfit)
        log_line(&limiter->log, WEIR_LOG_ERROR,
                 "%slimit %s has no exact arithmetic at this instance's share: it is denied here",
                 unfit->override ? "an override of " : "", unfit->name);
}

int limiter_set_share(struct weir *limiter, const struct share *share)
{
    struct weir_limit *unfit;
    int error = limiter_put_share(limiter, share, &unfit);
    if (error)
        log_line(&limiter->log, WEIR_LOG_ERROR, "the new share is not in force: %s", weir_strerror(error));
    else
        limiter_tell_unfit(limiter, unfit);
    return error;
}

/* ---- Stats ---- */

int weir_stats_read(weir *limiter, struct weir_stats *out)
{
    if (!limiter || !out || out->size != sizeof *out)
        return WEIR_EINVAL;
    struct weir_stats read = {
        .size = sizeof read,
        .allowed = stats_sum(&limiter->stats, STATS_ALLOWED),
        .denied = stats_sum(&limiter->stats, STATS_DENIED),
        .errors = stats_sum(&limiter->stats, STATS_ERRORS),
        .fallbacks = stats_sum(&limiter->stats, STATS_FALLBACKS),
        .outages = stats_sum(&limiter->stats, STATS_OUTAGES),
        .settled = stats_sum(&limiter->stats, STATS_SETTLED),
        .unsettled = stats_sum(&limiter->stats, STATS_UNSETTLED),
    };
    if (limiter->backend->ops->stats)
        limiter->backend->ops->stats(limiter->backend, &read);
    if (limiter->fallback)
        limiter->fallback->ops->stats(limiter->fallback, &read);

    lock_take(&limiter->mutex);
    read.share_weight = limiter->share.weight;
    read.share_total = limiter->share.total;
    limits_count_parts(limiter, &read.share_lifts, &read.share_zeros);
    lock_give(&limiter->mutex);
    *out = read;
    return WEIR_OK;
}

const char *weir_version(void)
{
    return WEIR_VERSION;
}

const char *weir_strerror(int error)
{
    switch (error) {
    case WEIR_OK: return "no error";
    case WEIR_EINVAL: return "an argument, option or policy is outside its range";
    case WEIR_ENOMEM: return "out of memory";
    case WEIR_EFULL: return "no room for another limit or request";
    case WEIR_ETIME: return "the backend did not answer in time";
    case WEIR_EIO: return "a file or the backend cannot be reached or read";
    case WEIR_ESTATE: return "a stored state is not weir's";
    case WEIR_ECLOSED: return "the limiter was closed";
    default: return "not an error of weir";
    }
}
