/* store.c - where a command keeps its counts: its options, its keys, and whether Redis is there. */
#include "store.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>

#include "cli.h"

/* Long, for nobody waits at the other end: a slow server is slow, not gone. */
#define PATIENCE_US (5 * WEIR_SECOND)

int store_read_option(struct store *store, const char *command, int code, const char *value)
{
    switch ((enum store_option)code) {
    case STORE_REDIS: store->redis_url = value; break;
    case STORE_PASSWORD_FILE: store->password_file = value; break;
    case STORE_PREFIX: store->prefix = value; break;
    case STORE_MODE:
        if (strcmp(value, "local") != 0 && strcmp(value, "distributed") != 0)
            return usage_error(command, "--mode '%s' is neither local nor distributed", value);
        store->is_distributed = value[0] == 'd';
        break;
    }
    return EXIT_OK;
}

int store_check(const struct store *store, const char *command)
{
    if (store->is_distributed && !store->redis_url)
        return usage_error(command, "--mode distributed needs to know which Redis: --redis URL");
    if (!store->is_distributed && (store->redis_url || store->password_file || store->prefix))
        return usage_error(command, "%s belongs to --mode distributed",
                           store->redis_url       ? "--redis"
                           : store->password_file ? "--redis-password-file"
                                                  : "--redis-prefix");
    return EXIT_OK;
}

int store_make_prefix(struct store *store)
{
    uint64_t run;
    if (getrandom(&run, sizeof run, 0) != sizeof run) {
        complain("the system has no random numbers");
        return EXIT_FAILED;
    }
    snprintf(store->run_prefix, sizeof store->run_prefix, "weir:replay-%016llx:", (unsigned long long)run);
    store->prefix = store->run_prefix;
    return EXIT_OK;
}

static void log_line(void *user, enum weir_log_level level, const char *line)
{
    (void)user;
    if (level != WEIR_LOG_INFO)
        complain("%s", line);
}

void store_options(const struct store *store, struct weir_options *options)
{
    options->log = log_line;
    if (!store->is_distributed)
        return;
    options->mode = WEIR_DISTRIBUTED;
    options->redis_url = store->redis_url;
    options->redis_password_file = store->password_file;
    options->redis_prefix = store->prefix;
    options->on_failure = WEIR_FAIL_ERROR;
    options->timeout_us = PATIENCE_US;
}

int store_reach(const struct store *store)
{
    struct weir_options options = WEIR_OPTIONS_INIT;
    const struct weir_policy policy = { .limit = 1, .period_us = WEIR_SECOND };
    struct weir_decision decision;
    weir *limiter;
    weir_limit *limit;
    if (!store->is_distributed)
        return EXIT_OK;
    store_options(store, &options);
    int error = weir_open(&options, &limiter);
    if (error != WEIR_OK) {
        complain("cannot open a limiter: %s", weir_strerror(error));
        return EXIT_ERROR;
    }
    error = weir_limit_define(limiter, "reach", &policy, &limit);
    if (error == WEIR_OK)
        error = weir_peek(limit, weir_key_text("key"), 1, &decision);
    if (error != WEIR_OK)
        complain("cannot ask Redis: %s", weir_strerror(error));
    weir_close(limiter);
    return error == WEIR_OK ? EXIT_OK : EXIT_FAILED;
}

const char *store_source_name(unsigned source)
{
    static const char *const names[] = {
        [WEIR_BY_MEMORY] = "memory",           [WEIR_BY_FULL] = "full",
        [WEIR_BY_BACKEND] = "backend",         [WEIR_BY_REDIS] = "redis",
        [WEIR_BY_LEASE] = "lease",             [WEIR_BY_DENIAL] = "denial",
        [WEIR_BY_FALLBACK] = "fallback",       [WEIR_BY_FAIL_OPEN] = "fail open",
        [WEIR_BY_FAIL_CLOSED] = "fail closed",
    };
    return source < sizeof names / sizeof *names ? names[source] : "unknown";
}

/* ---- Signals ---- */

static const int noted_signals[] = { SIGINT, SIGTERM, SIGHUP, SIGPIPE };
enum { NOTED_SIGNALS = sizeof noted_signals / sizeof *noted_signals };
static struct sigaction before[NOTED_SIGNALS];
static volatile sig_atomic_t noted;

static void note(int number)
{
    noted = number;
}

void store_hold_signals(void)
{
    struct sigaction once = { .sa_handler = note, .sa_flags = (int)(SA_RESETHAND | SA_RESTART) };
    for (size_t i = 0; i < NOTED_SIGNALS; i++)
        if (sigaction(noted_signals[i], NULL, &before[i]) == 0 && before[i].sa_handler != SIG_IGN) /* as nohup does */
            sigaction(noted_signals[i], &once, NULL);
}

int store_signal(void)
{
    return noted;
}

void store_release_signals(void)
{
    for (size_t i = 0; i < NOTED_SIGNALS; i++)
        sigaction(noted_signals[i], &before[i], NULL);
    if (noted)
        raise(noted);
}
