/* options.c - checks the options of a limiter and fills in their defaults. */
#include "core/limiter/limiter.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>

#define OPTIONS_MAX_SIZE (1 << 16)
#define DEFAULT_MAX_KEYS INT64_C(1000000)
#define DEFAULT_BYTES_PER_KEY 256
#define MIN_BYTES (INT64_C(1) << 20)
#define MAX_BYTES (INT64_C(1) << 50)
#define DEFAULT_TIMEOUT_US 50000
#define DEFAULT_REDIS_PREFIX "weir:"
#define REDIS_PREFIX_MAX_LEN 64
#define REDIS_REPLICAS_MAX 16
#define DEFAULT_LEASE_LIFE_US 100000
#define MIN_LEASE_LIFE_US 1000
#define MAX_LEASE_LIFE_US (10 * WEIR_SECOND)

int options_refuse(const struct log *log, const char *format, ...)
{
    char sentence[LOG_LINE_SIZE];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(sentence, sizeof sentence, format, arguments);
    va_end(arguments);
    log_line(log, WEIR_LOG_ERROR, "%s", sentence);
    return WEIR_EINVAL;
}

int options_range(const struct log *log, const char *name, int64_t value, int64_t min, int64_t max)
{
    if (value >= min && value <= max)
        return WEIR_OK;
    return options_refuse(log, "option %s must be %" PRId64 " to %" PRId64 ", not %" PRId64, name, min, max, value);
}

int options_copy(const struct log *log, const char *name, const void *from, size_t from_size, void *to, size_t to_size)
{
    const unsigned char *bytes = from;
    for (size_t i = to_size; i < from_size; i++)
        if (bytes[i] != 0)
            return options_refuse(log, "option %sat byte %zu is not known to weir " WEIR_VERSION, name, i);
    memcpy(to, from, from_size < to_size ? from_size : to_size);
    memcpy(to, &to_size, sizeof to_size);
    return WEIR_OK;
}

/* The hook that is to hear of what is wrong is itself an option. */
static int options_begin(const struct weir_options *options, struct weir_options *out)
{
    const struct log silent = { NULL, NULL };
    struct weir_options hooks = WEIR_OPTIONS_INIT;
    *out = hooks;
    if (!options)
        return WEIR_OK;
    if (options_range(&silent, "size", (int64_t)options->size, sizeof options->size, OPTIONS_MAX_SIZE) != WEIR_OK)
        return WEIR_EINVAL;
    memcpy(&hooks, options, options->size < sizeof hooks ? options->size : sizeof hooks);
    const struct log log = { hooks.log, hooks.user };
    return options_copy(&log, "", options, options->size, out, sizeof *out);
}

static int only_for(const struct log *log, const char *name, const char *modes)
{
    return options_refuse(log, "option %s is for %s and must be 0 without it", name, modes);
}

static int only_redis(const struct log *log, const char *name)
{
    return only_for(log, name, "mode WEIR_DISTRIBUTED or WEIR_HYBRID");
}

static int leases_read(struct weir_options *read, const struct log *log)
{
    if (read->mode != WEIR_HYBRID) {
        const char *given = read->lease_life_us ? "lease_life_us" : read->lease_max ? "lease_max" : "strict";
        if (read->lease_life_us || read->lease_max || read->strict)
            return only_for(log, given, "mode WEIR_HYBRID");
        return WEIR_OK;
    }
    if (read->lease_life_us == 0)
        read->lease_life_us = DEFAULT_LEASE_LIFE_US;
    if (read->lease_max == 0)
        read->lease_max = WEIR_MAX_PERMITS;
    if (options_range(log, "lease_life_us", read->lease_life_us, MIN_LEASE_LIFE_US, MAX_LEASE_LIFE_US) != WEIR_OK)
        return WEIR_EINVAL;
    return options_range(log, "lease_max", read->lease_max, 1, WEIR_MAX_PERMITS);
}

/* It goes before every key: what would be hard to read there, or hide where the key begins, may not be in it. */
static bool prefix_is_good(const char *prefix)
{
    size_t len = 0;
    for (; len <= REDIS_PREFIX_MAX_LEN && prefix[len]; len++)
        if (prefix[len] <= ' ' || prefix[len] > '~' || prefix[len] == '{' || prefix[len] == '}')
            return false;
    return len >= 1 && len <= REDIS_PREFIX_MAX_LEN;
}

/* Where the count is kept, and what answers when it cannot be had there. */
static int mode_read(struct weir_options *read, const struct log *log)
{
    if (options_range(log, "mode", (int64_t)read->mode, WEIR_LOCAL, WEIR_HYBRID) != WEIR_OK ||
        options_range(log, "on_failure", (int64_t)read->on_failure, WEIR_FAIL_LOCAL, WEIR_FAIL_ERROR) != WEIR_OK)
        return WEIR_EINVAL;
    if (read->mode == WEIR_LOCAL) {
        if (read->redis_url)
            return only_redis(log, "redis_url");
        if (read->redis_password_file)
            return only_redis(log, "redis_password_file");
        if (read->redis_sentinel_user)
            return only_redis(log, "redis_sentinel_user");
        if (read->redis_sentinel_password_file)
            return only_redis(log, "redis_sentinel_password_file");
        if (read->redis_prefix)
            return only_redis(log, "redis_prefix");
        if (read->redis_ca_file)
            return only_redis(log, "redis_ca_file");
        if (read->redis_cert_file)
            return only_redis(log, "redis_cert_file");
        if (read->redis_key_file)
            return only_redis(log, "redis_key_file");
        if (read->redis_insecure)
            return only_redis(log, "redis_insecure");
        if (read->redis_replicas)
            return only_redis(log, "redis_replicas");
        return read->by_local_clock ? only_redis(log, "by_local_clock") : WEIR_OK;
    }
    if (!read->redis_url)
        return options_refuse(log, "option redis_url is required in mode %s",
                              read->mode == WEIR_HYBRID ? "WEIR_HYBRID" : "WEIR_DISTRIBUTED");
    if (!read->redis_prefix)
        read->redis_prefix = DEFAULT_REDIS_PREFIX;
    if (!prefix_is_good(read->redis_prefix))
        return options_refuse(log,
                              "option redis_prefix must be 1 to %d printable bytes of ASCII, no space, '{' or '}' among"
                              " them",
                              REDIS_PREFIX_MAX_LEN);
    return options_range(log, "redis_replicas", read->redis_replicas, 0, REDIS_REPLICAS_MAX);
}

/* How much memory may hold, how long a call may take. */
static int bounds_read(struct weir_options *read, const struct log *log)
{
    if (read->open_for_us && read->on_failure != WEIR_FAIL_OPEN)
        return only_for(log, "open_for_us", "on_failure WEIR_FAIL_OPEN");
    if (read->max_keys == 0)
        read->max_keys = DEFAULT_MAX_KEYS;
    if (options_range(log, "max_keys", read->max_keys, 1, INT64_C(1) << 31) != WEIR_OK)
        return WEIR_EINVAL;
    if (read->max_bytes == 0)
        read->max_bytes = read->max_keys * DEFAULT_BYTES_PER_KEY < MIN_BYTES ? MIN_BYTES
                                                                             : read->max_keys * DEFAULT_BYTES_PER_KEY;
    if (read->timeout_us == 0)
        read->timeout_us = DEFAULT_TIMEOUT_US;
    if (options_range(log, "max_bytes", read->max_bytes, MIN_BYTES, MAX_BYTES) != WEIR_OK ||
        options_range(log, "timeout_us", read->timeout_us, 1, WEIR_HOUR) != WEIR_OK ||
        options_range(log, "open_for_us", read->open_for_us, 0, WEIR_DAY) != WEIR_OK ||
        options_range(log, "on_full", (int64_t)read->on_full, WEIR_FULL_DENY, WEIR_FULL_SHARE) != WEIR_OK)
        return WEIR_EINVAL;

    return WEIR_OK;
}

int options_read(const struct weir_options *options, struct weir_options *out)
{
    struct weir_options read;
    int error = options_begin(options, &read);
    if (error)
        return error;
    const struct log log = { read.log, read.user };

    error = mode_read(&read, &log);
    if (!error)
        error = leases_read(&read, &log);
    if (!error)
        error = bounds_read(&read, &log);
    if (error)
        return error;

    char sentence[LOG_LINE_SIZE - 16];
    struct share share;
    error = share_from_options(&read, &share, (struct message){ sentence, sizeof sentence });
    if (error)
        return options_refuse(&log, "option %s", sentence);
    *out = read;
    return WEIR_OK;
}
