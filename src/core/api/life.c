/* life.c - opens and closes a limiter, and reads its stats. */
#include "core/api/life.h"

#include "core/api/acquire.h"
#include "core/api/limit_file.h"
#include "core/follow/follow.h"
#include "core/ground/cancel.h"
#include "core/ground/hook_queue.h"
#include "core/ground/wake_fd.h"
#include "core/limiter/events.h"
#include "core/limiter/figures.h"
#include "core/limiter/inside.h"
#include "core/limiter/limits.h"
#include "core/limiter/options.h"
#include "core/limiter/own_ops.h"
#include "core/limiter/request.h"
#include "core/limiter/top_keys.h"
#include "core/outage/failure.h"
#include "core/outage/outage_span.h"
#include "core/outage/releases.h"
#include "core/outage/settle.h"

#include <fcntl.h>
#include <stddef.h>
#include <stdlib.h>
#include <unistd.h>

/* How often one who waits asks again because of other processes, if the mode remembers no denials. */
#define LOOK_US (2 * WEIR_SECOND)
#define LOOK_IN_MEMORY_US 100000

/* Replace the event fd in a child of fork() under the same number. A child that drained the parent's would take the
 * parent's wake-ups. */
static void renew_event_fd(struct weir *limiter)
{
    const int event_fd = atomic_load_explicit(&limiter->answers.event_fd, memory_order_relaxed);
    if (event_fd < 0)
        return;
    const int own = wake_fd_open();
    if (own < 0 || dup3(own, event_fd, O_CLOEXEC) < 0) {
        close(event_fd);
        atomic_store_explicit(&limiter->answers.event_fd, -1, memory_order_relaxed);
    }
    if (own >= 0)
        close(own);
}

/* Choose where this process begins to number slots. */
static int slots_seed(struct weir *limiter)
{
    struct hash_secret chance;
    if (hash_secret_draw(&chance) != 0)
        return -1;
    atomic_store_explicit(&limiter->slot_number, chance.k0, memory_order_relaxed);
    return 0;
}

/* Reset what belongs to the parent's threads: calls inside, submitted requests, the event fd. The fork holds the locks,
 * so what they guard is consistent in the child. A condition may still count a waiter that does not exist here. */
static void limiter_begin_in_child(struct weir *limiter) UNCHECKED
{
    inside_init(limiter);
    if (slots_seed(limiter) != 0) /* far from the parent's: neither counts so far */
        atomic_fetch_add_explicit(&limiter->slot_number, UINT64_C(1) << 48, memory_order_relaxed);
    atomic_store_explicit(&limiter->answers.latest, NULL, memory_order_relaxed);
    lock_condition_init(&limiter->closing.begins);
    errands_begin_in_child(limiter->errands);
    outage_begin_in_child(limiter);
    if (limiter->follow)
        follow_begin_in_child(limiter->follow);
    renew_event_fd(limiter);
}

static void limiter_forks(struct forks_watcher *watcher, enum forks_moment moment) UNCHECKED
{
    struct weir *limiter = (struct weir *)((char *)watcher - offsetof(struct weir, forks));
    if (moment == FORKS_BEFORE) {
        if (limiter->follow)
            follow_hold(limiter->follow);
        lock_take(&limiter->mutex);
        lock_take(&limiter->closing.mutex);
        lock_take(&limiter->errands->mutex);
        lock_take(&limiter->outage->settle.mutex);
        top_keys_hold(limiter->top_keys);
        return;
    }
    if (moment == FORKS_IN_CHILD)
        limiter_begin_in_child(limiter);
    top_keys_go_on(limiter->top_keys);
    lock_give(&limiter->outage->settle.mutex);
    lock_give(&limiter->errands->mutex);
    lock_give(&limiter->closing.mutex);
    lock_give(&limiter->mutex);
    if (limiter->follow)
        follow_go_on(limiter->follow);
}

static void limiter_free(struct weir *limiter)
{
    if (limiter->answers.event_fd >= 0)
        close(limiter->answers.event_fd);
    failure_free(limiter);
    errands_free(limiter->errands);
    limits_free(limiter);
    follow_free(limiter);
    free(atomic_load(&limiter->ping));
    free(limiter->share_memory);
    top_keys_free(limiter->top_keys);
    events_free(limiter->events);
    pthread_cond_destroy(&limiter->closing.begins);
    lock_destroy(&limiter->closing.mutex);
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

/* True if the limiter must watch forks: a child may use one that can block or counts with other processes, and close
 * one that follows something. */
static bool limiter_survives_forks(const struct weir *limiter)
{
    const struct own_ops *own = own_ops(limiter->backend);
    return limiter->can_block || limiter->follow || (own && own->common);
}

static void watch_forks(struct weir *limiter, void (*watch_or_forget)(struct forks_watcher *watcher))
{
    if (limiter_survives_forks(limiter))
        watch_or_forget(&limiter->forks);
}

int limiter_make(const struct weir_options *options, struct weir_backend *backend, struct weir_backend *fallback,
                 int (*start)(const struct weir_options *options, struct weir *limiter), struct weir **out)
{
    size_t size = (sizeof(struct weir) + 63) & ~(size_t)63;
    struct weir *limiter = aligned_alloc(64, size); /* each stripe of stats is a cache line */
    if (!limiter)
        return WEIR_ENOMEM;
    memset(limiter, 0, size);
    const struct weir_backend_ops *ops = backend->ops;
    limiter->backend = backend;
    limiter->fallback = fallback;
    limiter->on_failure = options->on_failure;
    limiter->can_block = ops->submit || ops->shut;
    limiter->is_foreign = limiter->can_block && !own_ops(backend);
    limiter->has_others = ops->shared || options->mode == WEIR_MACHINE;
    limiter->look_us = options->mode == WEIR_MACHINE ? LOOK_IN_MEMORY_US
                       : options->denial_life_us > 0 ? options->denial_life_us
                                                     : LOOK_US;
    limiter->freed = acquire_freed_all;
    limiter->spans = ops->spans;
    limiter->own_clock = ops->own_clock && !options->by_local_clock;
    limiter->is_plain = !limiter->can_block && !limiter->own_clock && options->on_failure == WEIR_FAIL_ERROR &&
                        !options->event;
    const struct own_ops *own = own_ops(backend);
    if (limiter->is_plain && own) {
        limiter->takes = own->takes;
    }
    atomic_init(&limiter->answers.event_fd, -1);
    limiter->log = (struct log){ options->log, options->user };
    clock_init(&limiter->clock, options->now_us, options->user);
    limiter->timeout_us = options->timeout_us;
    limiter->leases = options_leases(options);
    if (lock_condition_init(&limiter->closing.begins) != 0) {
        free(limiter);
        return WEIR_ENOMEM;
    }
    if (failure_init(limiter, options) != WEIR_OK) {
        pthread_cond_destroy(&limiter->closing.begins);
        free(limiter);
        return WEIR_ENOMEM;
    }
    inside_init(limiter);
    lock_init(&limiter->mutex);
    lock_init(&limiter->closing.mutex);

    struct share share;
    int error = share_from_options(options, &share, (struct message){ NULL, 0 });
    if (!error)
        error = share_copy(&share, &limiter->share, &limiter->share_memory);
    if (!error && (hash_secret_draw(&limiter->secret) != 0 || slots_seed(limiter) != 0)) {
        log_line(&limiter->log, WEIR_LOG_ERROR, "the limiter cannot be opened: the system has no random numbers");
        error = WEIR_EIO;
    }
    if (!error && own && own->common)
        own->common(backend, &limiter->secret, &limiter->clock.epoch_us);
    limiter->chooses = options->percent_seed ? (struct hash_secret){ options->percent_seed, 0 } : limiter->secret;
    if (!error && options->top_keys > 0) {
        limiter->top_keys = top_keys_make((size_t)options->top_keys, options->top_keys_in_clear);
        error = limiter->top_keys ? WEIR_OK : WEIR_ENOMEM;
    }
    if (!error && options->event) {
        limiter->events = events_make(options);
        error = limiter->events ? WEIR_OK : WEIR_ENOMEM;
    }
    if (!error && follow_is_asked(options))
        error = follow_begin(limiter, options);
    if (!error)
        error = load_policy_file(limiter, options);
    if (!error)
        error = errands_init(limiter);
    if (!error && forks_ready() != 0)
        error = WEIR_ENOMEM;
    if (error) {
        limiter_free(limiter);
        return error;
    }
    limiter->forks.told = limiter_forks;
    watch_forks(limiter, forks_watch);
    if (limiter->follow)
        error = start(options, limiter);
    if (error) {
        watch_forks(limiter, forks_forget);
        follow_close(limiter);
        limiter_free(limiter);
        return error;
    }
    if (ops->watch)
        ops->watch(backend, settle_returned, limiter);
    events_tell_policies(limiter);
    *out = limiter;
    return WEIR_OK;
}

void weir_close(weir *limiter)
{
    if (!limiter)
        return;
    CANCEL_DISABLED;
    if (limiter->control)
        limiter->end_control(limiter->control);
    struct weir_backend *backend = limiter->backend;
    struct weir_backend *fallback = limiter->fallback;
    watch_forks(limiter, forks_forget);
    if (limiter->follow)
        follow_close(limiter);
    lock_take(&limiter->closing.mutex);
    limiter->closing.has_begun = true;
    pthread_cond_broadcast(&limiter->closing.begins);
    lock_give(&limiter->closing.mutex);
    errands_shut(limiter, acquire_wake);
    releases_end(limiter);

    inside_shut(limiter);
    if (backend->ops->shut)
        backend->ops->shut(backend);

    inside_await_none(limiter);
    errands_join(limiter);
    weir_dispatch(limiter);
    backend->ops->destroy(backend);
    if (fallback)
        fallback->ops->destroy(fallback);
    hook_queue_settle(&limiter->log);
    limiter_free(limiter);
}

/* ---- Stats ---- */

int weir_top_keys_read(weir *limiter, struct weir_top_key *out, size_t room, bool restart)
{
    if (!limiter)
        return WEIR_EINVAL;
    if (!out && room > 0)
        return refuse_null(limiter, "out");
    if (!limiter->top_keys) {
        log_line(&limiter->log, WEIR_LOG_WARNING, "weir_top_keys_read() needs the option top_keys");
        return WEIR_EINVAL;
    }
    CANCEL_DISABLED_IF(limiter->is_foreign);
    return (int)top_keys_read(limiter->top_keys, out, room < WEIR_MAX_TOP_KEYS ? room : WEIR_MAX_TOP_KEYS, restart);
}

int weir_stats_read(weir *limiter, struct weir_stats *out)
{
    if (!limiter || !out || out->size != sizeof *out)
        return WEIR_EINVAL;
    CANCEL_DISABLED_IF(limiter->is_foreign);
    struct outage_id last;
    struct weir_stats read = {
        .size = sizeof read,
        .outage = outage_read(limiter, &last),
        .allowed = stats_sum(&limiter->stats, STATS_GROUPS_ALLOWED),
        .denied = stats_sum(&limiter->stats, STATS_GROUPS_DENIED),
        .errors = stats_sum(&limiter->stats, STATS_ERRORS),
        .fallbacks = stats_sum(&limiter->stats, STATS_FALLBACKS),
        .outages = stats_sum(&limiter->stats, STATS_OUTAGES),
        .settled = stats_sum(&limiter->stats, STATS_SETTLED),
        .unsettled = stats_sum(&limiter->stats, STATS_UNSETTLED),
        .releases_lost = stats_sum(&limiter->stats, STATS_RELEASES_LOST),
        .events_lost = events_lost(limiter->events),
    };
    if (limiter->backend->ops->stats)
        limiter->backend->ops->stats(limiter->backend, &read);
    if (limiter->fallback)
        limiter->fallback->ops->stats(limiter->fallback, &read);

    lock_take(&limiter->mutex);
    read.share_weight = limiter->share.weight;
    read.share_total = limiter->share.total;
    limits_count_parts(limiter, &read.share_lifts, &read.share_zeros);
    figures_count_singles(limiter, &read.allowed, &read.denied);
    lock_give(&limiter->mutex);
    *out = read;
    return WEIR_OK;
}

const char *weir_version(void)
{
    return WEIR_VERSION;
}
