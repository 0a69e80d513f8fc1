/* store.c - where a command keeps its counts: its options, its keys in Redis, and whether Redis answers. */
#include "cli/store.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>

#include "cli/cli.h"

/* Long, because no caller waits: a slow server is slow, not gone. */
#define PATIENCE_US (5 * WEIR_SECOND)

static const char *const mode_names[] = {
    [WEIR_LOCAL] = "local", [WEIR_DISTRIBUTED] = "distributed", [WEIR_HYBRID] = "hybrid", [WEIR_MACHINE] = "machine"
};
static const char *const deal_names[] = {
    [DEAL_ROUND_ROBIN] = "round-robin", [DEAL_KEY] = "key", [DEAL_SKEWED] = "skewed"
};
#define COUNT_OF(array) (sizeof(array) / sizeof *(array))

const char *store_mode_name(const struct store *store)
{
    return mode_names[store->options.mode];
}

const char *store_deal_name(const struct store *store)
{
    return deal_names[store->deal];
}

int store_set(struct store *store, const char *command, const char *name, const char *value)
{
    char plain[64], message[256];
    size_t len = 0;
    for (; name[len] && len < sizeof plain - 1; len++)
        plain[len] = name[len] == '-' ? '_' : name[len];
    plain[len] = '\0';
    if (weir_options_set(&store->options, plain, value ? value : "on", message, sizeof message) == WEIR_OK)
        return EXIT_OK;
    return usage_error(command, "--%s%s", name, message + len); /* which begins with the name */
}

static const struct {
    const char *name;
    enum { ANY_STORE, REDIS_ONLY, HYBRID_ONLY } use;
} store_names[] = {
    [STORE_MODE - STORE_MODE] = { "--mode", ANY_STORE },
    [STORE_ANY_MODE - STORE_MODE] = { "--mode", ANY_STORE },
    [STORE_SHARED - STORE_MODE] = { "--shared", ANY_STORE },
    [STORE_REDIS - STORE_MODE] = { "--redis", REDIS_ONLY },
    [STORE_PASSWORD_FILE - STORE_MODE] = { "--redis-password-file", REDIS_ONLY },
    [STORE_PREFIX - STORE_MODE] = { "--redis-prefix", REDIS_ONLY },
    [STORE_REPLICAS - STORE_MODE] = { "--redis-replicas", REDIS_ONLY },
    [STORE_CA_FILE - STORE_MODE] = { "--redis-ca-file", REDIS_ONLY },
    [STORE_CERT_FILE - STORE_MODE] = { "--redis-cert-file", REDIS_ONLY },
    [STORE_KEY_FILE - STORE_MODE] = { "--redis-key-file", REDIS_ONLY },
    [STORE_INSTANCES - STORE_MODE] = { "--instances", HYBRID_ONLY },
    [STORE_DEAL - STORE_MODE] = { "--deal", HYBRID_ONLY },
    [STORE_LEASE_LIFE - STORE_MODE] = { "--lease-life", HYBRID_ONLY },
    [STORE_LEASE_EXCESS - STORE_MODE] = { "--lease-excess", HYBRID_ONLY },
    [STORE_LEASE_MAX - STORE_MODE] = { "--lease-max", HYBRID_ONLY },
    [STORE_STRICT - STORE_MODE] = { "--strict", HYBRID_ONLY },
    [STORE_PERCENT_SEED - STORE_MODE] = { "--percent-seed", ANY_STORE },
};

static int read_deal(struct store *store, const char *command, const char *value)
{
    for (size_t i = 0; i < COUNT_OF(deal_names); i++) {
        if (strcmp(deal_names[i], value) == 0) {
            store->deal = (enum deal)i;
            return EXIT_OK;
        }
    }
    return usage_error(command, "--deal must be round-robin, key or skewed, not \"%s\"", value);
}

int store_read_option(struct store *store, const char *command, int code, const char *value)
{
    const char *name = store_names[code - STORE_MODE].name;
    if (store_names[code - STORE_MODE].use == HYBRID_ONLY)
        store->hybrid_option = name;
    if (store_names[code - STORE_MODE].use == REDIS_ONLY && (!store->redis_option || code == STORE_REDIS))
        store->redis_option = name;
    store->has_mode = store->has_mode || code == STORE_MODE || code == STORE_ANY_MODE;
    switch (code) {
    case STORE_DEAL: return read_deal(store, command, value);
    case STORE_INSTANCES: /* fewer than the library allows */
        if (span_number(span_of(value), &store->options.instances) && store->options.instances >= 1 &&
            store->options.instances <= STORE_INSTANCES_MAX)
            return EXIT_OK;
        return usage_error(command, "--instances must be a whole number, 1 to %d, not \"%s\"", STORE_INSTANCES_MAX,
                           value);
    case STORE_MODE:
        if (strcmp(value, "local") != 0 && strcmp(value, "distributed") != 0 && strcmp(value, "hybrid") != 0)
            return usage_error(command, "--mode must be local, distributed or hybrid, not \"%s\"", value);
        break;
    default: break;
    }
    return store_set(store, command, name + 2, code == STORE_STRICT ? NULL : value);
}

int store_check(struct store *store, const char *command)
{
    struct weir_options *options = &store->options;
    if (options->shared && store->has_mode && options->mode != WEIR_MACHINE)
        return usage_error(command, "--shared belongs to --mode machine");
    if (options->shared)
        options->mode = WEIR_MACHINE;
    if (options->mode == WEIR_MACHINE && !options->shared)
        return usage_error(command, "--mode machine needs --shared FILE");
    if (store_has_redis(store) && !options->redis_url)
        return usage_error(command, "--mode %s needs --redis URL", store_mode_name(store));
    if (!store_has_redis(store) && store->redis_option)
        return usage_error(command, "%s belongs to --mode distributed or hybrid", store->redis_option);
    if (options->mode != WEIR_HYBRID && store->hybrid_option)
        return usage_error(command, "%s belongs to --mode hybrid", store->hybrid_option);
    return EXIT_OK;
}

int store_make_prefix(struct store *store)
{
    uint64_t run;
    if (getrandom(&run, sizeof run, 0) != sizeof run) {
        complain("cannot get random numbers from the system");
        return EXIT_FAILED;
    }
    snprintf(store->run_prefix, sizeof store->run_prefix, "weir:replay-%016llx:", (unsigned long long)run);
    store->options.redis_prefix = store->run_prefix;
    return EXIT_OK;
}

static void store_log(void *user, enum weir_log_level level, const char *line)
{
    (void)user;
    if (level != WEIR_LOG_INFO)
        complain("%s", line);
}

void store_options(const struct store *store, struct weir_options *options)
{
    *options = store->options;
    options->size = sizeof *options;
    options->log = store_log;
    if (!store_has_redis(store))
        return;
    options->on_failure = WEIR_FAIL_ERROR;
    options->timeout_us = PATIENCE_US;
}

void store_open_failed(int error)
{
    if (!*weir_last_message())
        complain("cannot open a limiter: %s", weir_strerror(error));
}

int store_reach(const struct store *store)
{
    struct weir_options options = WEIR_OPTIONS_INIT;
    const struct weir_policy policy = { .limit = 1, .period_us = WEIR_SECOND };
    struct weir_decision decision;
    weir *limiter;
    weir_limit *limit;
    if (!store_has_redis(store))
        return EXIT_OK;
    store_options(store, &options);
    int error = weir_open(&options, &limiter);
    if (error != WEIR_OK) {
        store_open_failed(error);
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
        [WEIR_BY_MEMORY] = "memory",     [WEIR_BY_FULL] = "full",           [WEIR_BY_BACKEND] = "backend",
        [WEIR_BY_REDIS] = "redis",       [WEIR_BY_LEASE] = "lease",         [WEIR_BY_DENIAL] = "denial",
        [WEIR_BY_FALLBACK] = "fallback", [WEIR_BY_FAIL_OPEN] = "fail open", [WEIR_BY_FAIL_CLOSED] = "fail closed",
        [WEIR_BY_POLICY] = "policy",
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
        if (sigaction(noted_signals[i], NULL, &before[i]) == 0 &&
            before[i].sa_handler != SIG_IGN) /* nohup ignores it */
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
