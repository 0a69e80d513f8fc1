/* store.c - where a command keeps its counts: its options, its keys in Redis, and whether Redis answers. */
#include "cli/store.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>

#include "cli/cli.h"

/* Long, because no caller waits: a slow server is slow, not gone. */
#define PATIENCE_US (5 * WEIR_SECOND)

/* The range of lease_life_us in options.h. */
#define LEASE_LIFE_MIN_US 1000
#define LEASE_LIFE_MAX_US WEIR_MAX_PERIOD_US
#define REPLICAS_MAX 16 /* of redis_replicas */

static const char *const mode_names[] = {
    [WEIR_LOCAL] = "local", [WEIR_DISTRIBUTED] = "distributed", [WEIR_HYBRID] = "hybrid", [WEIR_MACHINE] = "machine"
};
enum { UNSHARED_MODES = WEIR_MACHINE };
static const char *const deal_names[] = {
    [DEAL_ROUND_ROBIN] = "round-robin", [DEAL_KEY] = "key", [DEAL_SKEWED] = "skewed"
};
#define COUNT_OF(array) (sizeof(array) / sizeof *(array))

const char *store_mode_name(const struct store *store)
{
    return mode_names[store->mode];
}

const char *store_deal_name(const struct store *store)
{
    return deal_names[store->deal];
}

/* Return the index of `value` among the names; `count` if it is not one of them. */
static size_t name_find(const char *const *names, size_t count, const char *value)
{
    size_t i = 0;
    while (i < count && strcmp(names[i], value) != 0)
        i++;
    return i;
}

/* Read a time as policies write it, with the library's parser. */
static bool life_read(const char *value, int64_t *out_us)
{
    char text[80];
    struct weir_policy policy;
    int len = snprintf(text, sizeof text, "fixed_window limit=1 period=%s", value);
    if (len >= (int)sizeof text || strpbrk(value, " \t=") || weir_policy_parse(text, &policy, NULL, 0) != WEIR_OK)
        return false;
    *out_us = policy.period_us;
    return *out_us >= LEASE_LIFE_MIN_US && *out_us <= LEASE_LIFE_MAX_US;
}

static bool count_read(const char *value, int64_t max, int64_t *out)
{
    return span_number(span_of(value), out) && *out >= 1 && *out <= max;
}

static int read_hybrid_option(struct store *store, const char *command, int code, const char *value)
{
    size_t deal;
    switch (code) {
    case STORE_INSTANCES:
        store->hybrid_option = "--instances";
        if (!count_read(value, STORE_INSTANCES_MAX, &store->instances))
            return usage_error(command, "--instances '%s' is not a whole number from 1 to %d", value,
                               STORE_INSTANCES_MAX);
        break;
    case STORE_DEAL:
        store->hybrid_option = "--deal";
        deal = name_find(deal_names, COUNT_OF(deal_names), value);
        if (deal == COUNT_OF(deal_names))
            return usage_error(command, "--deal '%s' is not one of round-robin, key, skewed", value);
        store->deal = (enum deal)deal;
        break;
    case STORE_LEASE_LIFE:
        store->hybrid_option = "--lease-life";
        if (!life_read(value, &store->lease_life_us))
            return usage_error(command, "--lease-life '%s' is not a time from 1ms to 366d", value);
        break;
    case STORE_LEASE_EXCESS:
        store->hybrid_option = "--lease-excess";
        if (!count_read(value, 100, &store->lease_excess))
            return usage_error(command, "--lease-excess '%s' is not a whole number from 1 to 100", value);
        break;
    case STORE_LEASE_MAX:
        store->hybrid_option = "--lease-max";
        if (!count_read(value, WEIR_MAX_PERMITS, &store->lease_max))
            return usage_error(command, "--lease-max '%s' is not a whole number from 1 to %lld", value,
                               (long long)WEIR_MAX_PERMITS);
        break;
    default: store->hybrid_option = "--strict"; store->strict = true;
    }
    return EXIT_OK;
}

int store_read_option(struct store *store, const char *command, int code, const char *value)
{
    size_t mode, modes;
    switch ((enum store_option)code) {
    case STORE_SHARED: store->shared = value; break;
    case STORE_REDIS: store->redis_url = value; break;
    case STORE_PASSWORD_FILE: store->password_file = value; break;
    case STORE_PREFIX: store->prefix = value; break;
    case STORE_CA_FILE: store->ca_file = value; break;
    case STORE_CERT_FILE: store->cert_file = value; break;
    case STORE_KEY_FILE: store->key_file = value; break;
    case STORE_REPLICAS:
        store->has_replicas = true;
        if (!span_number(span_of(value), &store->replicas) || store->replicas < 0 || store->replicas > REPLICAS_MAX)
            return usage_error(command, "--redis-replicas '%s' is not a whole number from 0 to %d", value,
                               REPLICAS_MAX);
        break;
    case STORE_PERCENT_SEED:
        if (!count_read(value, INT64_MAX, &store->percent_seed))
            return usage_error(command, "--percent-seed '%s' is not a whole number of 1 or more", value);
        break;
    case STORE_MODE:
    case STORE_ANY_MODE:
        modes = code == STORE_MODE ? UNSHARED_MODES : COUNT_OF(mode_names);
        mode = name_find(mode_names, modes, value);
        if (mode == modes)
            return usage_error(command, "--mode '%s' is not one of local, %sdistributed, hybrid", value,
                               code == STORE_MODE ? "" : "machine, ");
        store->mode = (enum weir_mode)mode;
        store->has_mode = true;
        break;
    default: return read_hybrid_option(store, command, code, value);
    }
    return EXIT_OK;
}

const char *store_redis_option(const struct store *store)
{
    return store->redis_url       ? "--redis"
           : store->password_file ? "--redis-password-file"
           : store->ca_file       ? "--redis-ca-file"
           : store->cert_file     ? "--redis-cert-file"
           : store->key_file      ? "--redis-key-file"
           : store->prefix        ? "--redis-prefix"
           : store->has_replicas  ? "--redis-replicas"
                                  : NULL;
}

int store_check(struct store *store, const char *command)
{
    if (store->shared && store->has_mode && store->mode != WEIR_MACHINE)
        return usage_error(command, "--shared belongs to --mode machine");
    if (store->shared)
        store->mode = WEIR_MACHINE;
    if (store->mode == WEIR_MACHINE && !store->shared)
        return usage_error(command, "--mode machine needs --shared FILE");
    if (store_has_redis(store) && !store->redis_url)
        return usage_error(command, "--mode %s needs --redis URL", store_mode_name(store));
    const char *redis_option = store_redis_option(store);
    if (!store_has_redis(store) && redis_option)
        return usage_error(command, "%s belongs to --mode distributed or hybrid", redis_option);
    if (store->mode != WEIR_HYBRID && store->hybrid_option)
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
    store->prefix = store->run_prefix;
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
    options->log = store_log;
    options->percent_seed = (uint64_t)store->percent_seed;
    options->mode = store->mode;
    options->shared = store->shared;
    if (!store_has_redis(store))
        return;
    options->redis_url = store->redis_url;
    options->redis_password_file = store->password_file;
    options->redis_prefix = store->prefix;
    options->redis_ca_file = store->ca_file;
    options->redis_cert_file = store->cert_file;
    options->redis_key_file = store->key_file;
    options->redis_replicas = store->replicas;
    options->on_failure = WEIR_FAIL_ERROR;
    options->timeout_us = PATIENCE_US;
    options->instances = store->instances;
    options->lease_life_us = store->lease_life_us;
    options->lease_excess = store->lease_excess;
    options->lease_max = store->lease_max;
    options->strict = store->strict;
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
