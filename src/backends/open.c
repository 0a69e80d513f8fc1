/* open.c - opens a limiter: makes the backend that the options choose, its fallback, and what it follows. */
#include "backends/follow/sources.h"
#include "backends/hybrid/hybrid.h"
#include "backends/machine/machine.h"
#include "backends/memory/memory.h"
#include "control/control.h"
#include "core/api/life.h"
#include "core/follow/follow.h"
#include "core/ground/cancel.h"
#include "core/ground/hook_queue.h"
#include "core/limiter/options.h"
#include "core/limiter/own_ops.h"

#ifdef WEIR_CONSUL
#include "backends/consul/consul.h"
#endif
#ifdef WEIR_REDIS
#include "backends/redis/redis.h"
#endif

/* Log the sentence and return WEIR_EINVAL. */
static int open_refuse(const struct weir_options *options, const char *sentence)
{
    const struct log log = { options->log, options->user };
    log_line(&log, WEIR_LOG_ERROR, "%s", sentence);
    return WEIR_EINVAL;
}

/* Return the part of max_bytes that leases get in hybrid mode. */
static int64_t lease_bytes(const struct weir_options *options)
{
    return options->max_bytes / 4;
}

/* ---- What is followed ---- */

/* Checked options, and the structs that they point to. */
struct checked {
    struct weir_options options;
    struct weir_peers peers;
    struct weir_consul consul;
};

static int open_check(const struct weir_options *options, struct checked *out)
{
    int error = options_read(options, &out->options);
    if (!error)
        error = options_read_followed(&out->options, &out->peers, &out->consul);
    return error;
}

static int follow_consul(const struct weir_options *options, struct weir *limiter)
{
#ifdef WEIR_CONSUL
    return consul_follow(options, limiter);
#else
    (void)limiter;
    return open_refuse(options, "option consul is set, but this build of weir has no Consul");
#endif
}

/* Start what the limiter follows. On an error the started sources end with the limiter. */
static int start_sources(const struct weir_options *options, struct weir *limiter)
{
    int error = WEIR_OK;
    if (options->consul)
        error = follow_consul(options, limiter);
    if (!error && options->peers && options->peers->dns)
        error = peers_dns_follow(options, limiter);
    if (!error && options->peers && options->peers->list)
        error = peers_list_follow(options, limiter);
    if (!error && options->follow_policy_file)
        error = policy_file_follow(options->policy_file, limiter);
    return error;
}

/* ---- What decides ---- */

/* Make a limiter over `backend`, with a memory fallback if on_failure=local. It owns `backend` on success only. */
static int open_over(const struct weir_options *options, struct weir_backend *backend, weir **out)
{
    struct weir_backend *fallback = NULL;
    struct weir_options stand_in = *options;
    int error = WEIR_OK;
    if (options->mode == WEIR_HYBRID)
        stand_in.max_bytes -= lease_bytes(options);
    if (options->on_failure == WEIR_FAIL_LOCAL)
        error = memory_open(&stand_in, &fallback);
    if (fallback)
        memory_watch_forks(fallback);
    if (!error)
        error = limiter_make(options, backend, fallback, start_sources, out);
    if (error && fallback)
        fallback->ops->destroy(fallback);
    return error;
}

/* The same with a control socket, if the options ask for it. */
static int open_controlled(const struct weir_options *options, struct weir_backend *backend, weir **out)
{
    struct control *control = NULL;
    int error = options->control_socket ? control_open(options, &control) : WEIR_OK;
    if (!error)
        error = open_over(options, backend, out);
    if (control && error)
        control_close(control);
    else if (control)
        control_start(control, *out);
    return error;
}

static int open_distributed(const struct weir_options *options, struct weir_backend **out)
{
#ifdef WEIR_REDIS
    return redis_open(options, out);
#else
    (void)out;
    return open_refuse(options, "option mode is not WEIR_LOCAL, but this build of weir has no Redis");
#endif
}

static int open_hybrid(const struct weir_options *options, struct weir_backend **out)
{
    struct weir_backend *remote;
    int error = open_distributed(options, &remote);
    if (error)
        return error;
    const struct hybrid_settings settings = {
        .leases = options_leases(options),
        .max_keys = options->max_keys,
        .max_bytes = lease_bytes(options),
        .keep_idle = options->keep_idle,
        .timeout_us = options->timeout_us,
    };
    error = hybrid_open(&settings, remote, out);
    if (error)
        remote->ops->destroy(remote);
    else
        hybrid_watch_forks(*out);
    return error;
}

static int open_mode(const struct weir_options *options, struct weir_backend **out)
{
    switch (options->mode) {
    case WEIR_DISTRIBUTED: return open_distributed(options, out);
    case WEIR_HYBRID: return open_hybrid(options, out);
    case WEIR_MACHINE: return machine_open(options, out);
    default: return memory_open(options, out);
    }
}

/* Conclude an attempt to open. After a failure the hook gets no more lines: the caller may free what it uses. */
static int open_conclude(const struct weir_options *options, int error)
{
    if (error && options && options->size == sizeof *options && options->log)
        hook_queue_settle(&(struct log){ options->log, options->user });
    return log_conclude(error);
}

static int open_own(const struct weir_options *options, weir **out)
{
    struct checked checked;
    struct weir_backend *backend;
    int error = open_check(options, &checked);
    if (error)
        return error;
    struct weir_options *read = &checked.options;
    if (!out)
        return open_refuse(read, "out must not be NULL");
    if (read->mode == WEIR_LOCAL || read->mode == WEIR_MACHINE)
        read->on_failure = WEIR_FAIL_ERROR; /* memory does not fail, so it needs no fallback */
    error = open_mode(read, &backend);
    if (error)
        return error;
    error = open_controlled(read, backend, out);
    if (error)
        backend->ops->destroy(backend);
    return error;
}

int weir_open(const struct weir_options *options, weir **out)
{
    CANCEL_DISABLED;
    log_forget();
    return open_conclude(options, open_own(options, out));
}

static int open_foreign(const struct weir_options *options, struct weir_backend *backend, weir **out)
{
    struct checked checked;
    int error = open_check(options, &checked);
    if (error)
        return error;
    const struct weir_options *read = &checked.options;
    if (read->mode != WEIR_LOCAL)
        return open_refuse(read, "option mode must be WEIR_LOCAL with weir_open_backend()");
    if (!backend || !out || !backend->ops)
        return open_refuse(read, !backend ? "backend must not be NULL"
                                 : !out   ? "out must not be NULL"
                                          : "backend->ops must not be NULL");
    const struct weir_backend_ops *ops = backend->ops;
    const bool is_table = ops->size == sizeof *ops || ops->size == OWN_OPS_SIZE;
    if (!is_table || !ops->name || !ops->decide || !ops->destroy || (ops->submit && !ops->shut)) {
        const struct log log = { read->log, read->user };
        log_line(&log, WEIR_LOG_ERROR,
                 "backend needs a name, decide(), destroy(), shut() if it has submit(), and a table of %zu bytes",
                 sizeof *ops);
        return WEIR_EINVAL;
    }
    return open_controlled(read, backend, out);
}

int weir_open_backend(const struct weir_options *options, struct weir_backend *backend, weir **out)
{
    CANCEL_DISABLED;
    log_forget();
    return open_conclude(options, open_foreign(options, backend, out));
}
