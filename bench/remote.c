/* remote.c - weir's distributed and hybrid mode through its public API, on the private server: see remote.h. */
#include "remote.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define BATCH_MAX 64

static char last_line[80]; /* what weir said last; it speaks seldom, and one limiter at a time is opened */

static void keep_line(void *user, enum weir_log_level level, const char *line)
{
    (void)user;
    if (level == WEIR_LOG_ERROR)
        snprintf(last_line, sizeof last_line, "%s", line);
}

static int open_limit(struct remote *remote, const struct weir_options *options, const char *name,
                      const struct weir_policy *policy)
{
    int status = weir_open(options, &remote->weir);
    if (status != WEIR_OK)
        return status;
    status = weir_limit_define(remote->weir, name, policy, &remote->limit);
    if (status != WEIR_OK)
        remote_close(remote);
    return status;
}

/* Whether it does, told by a peek. What is answered before the connection stands may be a failure. */
static bool asks_redis(const struct remote *remote)
{
    struct weir_decision decision;
    for (int i = 0; i < 3; i++)
        if (weir_peek(remote->limit, weir_key_text("probe"), 1, &decision) == WEIR_OK &&
            decision.source == WEIR_BY_REDIS)
            return true;
    return false;
}

struct weir_options remote_options(enum weir_mode mode)
{
    struct weir_options options = WEIR_OPTIONS_INIT;
    options.mode = mode;
    options.on_failure = WEIR_FAIL_ERROR;
    options.timeout_us = REMOTE_PATIENCE_US;
    return options;
}

bool remote_open(struct remote *remote, const struct store *store, const struct weir_options *given, const char *name,
                 const struct weir_policy *policy)
{
    struct weir_options options = *given;
    options.redis_url = store->url;
    options.log = keep_line;
    remote->sources = 1u << WEIR_BY_REDIS;
    if (options.mode == WEIR_HYBRID)
        remote->sources |= 1u << WEIR_BY_LEASE | 1u << WEIR_BY_DENIAL;
    last_line[0] = '\0';
    int status = open_limit(remote, &options, name, policy);
    if (status == WEIR_OK && asks_redis(remote))
        return true;
    if (last_line[0] == '\0')
        snprintf(last_line, sizeof last_line, "%s",
                 status == WEIR_OK ? "its decisions do not come from Redis" : weir_strerror(status));
    if (status == WEIR_OK)
        remote_close(remote);
    return false;
}

void remote_report_missing(struct bench *bench)
{
    fprintf(stderr, "%sweir-bench: NOT MEASURED: weir on Redis: %s\n", isatty(STDERR_FILENO) ? "\n" : "", last_line);
    store_missing(bench, "weir on Redis", last_line);
}

void remote_open_local(struct remote *remote, const char *name, const struct weir_policy *policy)
{
    struct weir_options options = WEIR_OPTIONS_INIT;
    remote->sources = 1u << WEIR_BY_MEMORY;
    int status = open_limit(remote, &options, name, policy);
    if (status != WEIR_OK) {
        fprintf(stderr, "weir-bench: weir_open in local mode: %s\n", weir_strerror(status));
        exit(2);
    }
}

void remote_close(struct remote *remote)
{
    weir_close(remote->weir);
    remote->weir = NULL;
}

size_t remote_call(void *subject, int thread, const struct bench_key *draws, size_t n)
{
    const struct remote *remote = subject;
    struct weir_decision decision;
    size_t failed = 0;
    (void)thread;
    for (size_t i = 0; i < n; i++) {
        int status = weir_try(remote->limit, weir_key(&draws[i], KEY_LEN), 1, &decision);
        if (status != WEIR_OK)
            load_complain("weir_try", weir_strerror(status));
        failed += status != WEIR_OK || (remote->sources >> decision.source & 1) == 0;
    }
    return failed;
}

size_t remote_call_batch(void *subject, int thread, const struct bench_key *draws, size_t n)
{
    const struct remote *remote = subject;
    struct weir_request requests[BATCH_MAX];
    struct weir_decision decisions[BATCH_MAX];
    size_t failed = 0;
    (void)thread;
    size_t filled = 0;
    do
        requests[filled] = (struct weir_request){ .limit = remote->limit,
                                                  .key = weir_key(&draws[filled], KEY_LEN),
                                                  .cost = 1 };
    while (++filled < n);
    int status = weir_try_batch(remote->weir, requests, n, decisions);
    if (status != WEIR_OK)
        load_complain("weir_try_batch", weir_strerror(status));
    for (size_t i = 0; status == WEIR_OK && i < n; i++)
        failed += (remote->sources >> decisions[i].source & 1) == 0;
    return status == WEIR_OK ? failed : n;
}
