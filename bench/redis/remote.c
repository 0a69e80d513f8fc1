/* remote.c - weir's distributed and hybrid mode through its public API, on a Redis server: see remote.h. */
#include "redis/remote.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "redis/user_store.h"
#include "report/report.h"

#define BATCH_MAX 256

static char last_line[200]; /* weir's last log line; it logs seldom, and limiters are opened one at a time */

static void keep_line(void *user, enum weir_log_level level, const char *line)
{
    (void)user;
    if (level <= WEIR_LOG_WARNING)
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

/* True if a peek is answered by Redis within a second. Answers before the connection stands may be failures. */
static bool asks_redis(const struct remote *remote)
{
    struct weir_decision decision;
    for (int tries = 0; tries < 100; tries++) {
        if (weir_peek(remote->limit, weir_key_text("probe"), 1, &decision) == WEIR_OK &&
            decision.source == WEIR_BY_REDIS)
            return true;
        usleep(10000);
    }
    return false;
}

struct weir_options remote_options(enum weir_mode mode)
{
    struct weir_options options = WEIR_OPTIONS_INIT;
    if (mode == WEIR_LOCAL)
        return options;
    options.mode = mode;
    options.timeout_us = REMOTE_PATIENCE_US;
    if (mode != WEIR_MACHINE)
        options.on_failure = WEIR_FAIL_ERROR;
    return options;
}

bool remote_open(struct remote *remote, const struct store *store, const struct weir_options *given, const char *name,
                 const struct weir_policy *policy)
{
    struct weir_options options = *given;
    if (options.mode == WEIR_LOCAL || options.mode == WEIR_MACHINE) {
        remote->sources = 1u << WEIR_BY_MEMORY;
        if (options.mode == WEIR_MACHINE)
            report_options(&options);
        const int error = open_limit(remote, &options, name, policy);
        snprintf(last_line, sizeof last_line, "%s", weir_strerror(error));
        return error == WEIR_OK;
    }
    options.redis_url = store->url;
    options.redis_prefix = store->prefix[0] ? store->prefix : NULL;
    options.log = keep_line;
    remote->sources = 1u << WEIR_BY_REDIS;
    if (options.mode == WEIR_HYBRID)
        remote->sources |= 1u << WEIR_BY_LEASE | 1u << WEIR_BY_DENIAL;
    last_line[0] = '\0';
    report_options(&options);
    int status = open_limit(remote, &options, name, policy);
    if (status == WEIR_OK && options.mode == WEIR_HYBRID)
        report_lease(remote->limit);
    if (status == WEIR_OK && asks_redis(remote))
        return true;
    if (status == WEIR_OK)
        remote_close(remote); /* its threads log nothing more */
    if (last_line[0] == '\0')
        snprintf(last_line, sizeof last_line, "%s",
                 status == WEIR_OK ? "its decisions do not come from Redis" : weir_strerror(status));
    return false;
}

int remote_shared(char name[REMOTE_SHARED_SIZE])
{
    const int fd = memfd_create("weir-bench", 0);
    if (fd < 0 || fchmod(fd, 0600) != 0)
        bench_fail("no shared memory");
    snprintf(name, REMOTE_SHARED_SIZE, "/proc/self/fd/%d", fd);
    return fd;
}

const char *remote_complaint(void)
{
    return last_line;
}

void remote_report_missing(struct bench *bench)
{
    bench_say("NOT MEASURED: weir on Redis: %s", last_line);
    report_note(bench->report, last_line);
}

struct remote remote_define(const struct remote *remote, const char *name, const struct weir_policy *policy)
{
    struct remote other = *remote;
    int status = weir_limit_define(remote->weir, name, policy, &other.limit);
    if (status != WEIR_OK)
        bench_fail("weir_limit_define: %s", weir_strerror(status));
    return other;
}

struct weir_stats remote_stats(const struct remote *remote)
{
    struct weir_stats stats = { .size = sizeof stats };
    weir_stats_read(remote->weir, &stats);
    return stats;
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
        int status = weir_try(remote->limit, key_of(&draws[i]), 1, &decision);
        if (status != WEIR_OK)
            load_complain("weir_try", weir_strerror(status));
        failed += status != WEIR_OK || (remote->sources >> decision.source & 1) == 0;
    }
    return failed;
}

/* Take from keys[0..n), n up to BATCH_MAX, in one weir_try_batch(). Return how many decisions failed. */
static size_t take_batch(const struct remote *remote, const struct bench_key *keys, size_t n, int64_t cost)
{
    struct weir_request requests[BATCH_MAX];
    struct weir_decision decisions[BATCH_MAX];
    size_t failed = 0, filled = 0;
    do
        requests[filled] = (struct weir_request){ .limit = remote->limit, .key = key_of(&keys[filled]), .cost = cost };
    while (++filled < n);
    int status = weir_try_batch(remote->weir, requests, n, decisions);
    if (status != WEIR_OK)
        load_complain("weir_try_batch", weir_strerror(status));
    for (size_t i = 0; status == WEIR_OK && i < n; i++)
        failed += (remote->sources >> decisions[i].source & 1) == 0;
    return status == WEIR_OK ? failed : n;
}

void remote_fill(const struct remote *remote, uint64_t keys, int64_t cost)
{
    struct bench_key batch[BATCH_MAX];
    size_t failed = 0;
    for (uint64_t i = 0; i < keys; i += BATCH_MAX) {
        size_t n = keys - i < BATCH_MAX ? (size_t)(keys - i) : BATCH_MAX;
        for (size_t place = 0; place < n; place++)
            key_write(i + place, &batch[place]);
        user_store_heed_interrupt();
        failed += take_batch(remote, batch, n, cost);
    }
    if (failed > 0)
        bench_say("%zu of %llu keys could not be filled", failed, (unsigned long long)keys);
}
