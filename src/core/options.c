/* options.c - checks the options of a limiter and fills in their defaults. */
#include "core/limiter.h"

#include <inttypes.h>

#define DEFAULT_MAX_KEYS INT64_C(1000000)
#define DEFAULT_BYTES_PER_KEY 256
#define MIN_BYTES (INT64_C(1) << 20)
#define MAX_BYTES (INT64_C(1) << 50)
#define DEFAULT_TIMEOUT_US 50000
#define DEFAULT_REDIS_PREFIX "weir:"
#define REDIS_PREFIX_MAX_LEN 64
#define DEFAULT_LEASE_LIFE_US 100000
#define MIN_LEASE_LIFE_US 1000
#define MAX_LEASE_LIFE_US (10 * WEIR_SECOND)

static int range(const struct log *log, const char *name, int64_t value, int64_t min, int64_t max)
{
    if (value >= min && value <= max)
        return WEIR_OK;
    log_line(log, WEIR_LOG_ERROR, "option %s must be %" PRId64 " to %" PRId64 ", not %" PRId64, name, min, max, value);
    return WEIR_EINVAL;
}

/* Options from a caller that was built with another version of the header: what is missing is 0, and what this
 * library does not know must be. */
static int options_copy(const struct weir_options *options, struct weir_options *out)
{
    const struct log silent = { NULL, NULL };
    struct weir_options copy = WEIR_OPTIONS_INIT;
    if (!options) {
        *out = copy;
        return WEIR_OK;
    }
    size_t known = options->size < sizeof copy ? options->size : sizeof copy;
    if (range(&silent, "size", (int64_t)options->size, sizeof options->size, 1 << 16) != WEIR_OK)
        return WEIR_EINVAL;
    memcpy(&copy, options, known);
    copy.size = sizeof copy;
    const struct log log = { copy.log, copy.user };
    const unsigned char *bytes = (const unsigned char *)options;
    for (size_t i = known; i < options->size; i++) {
        if (bytes[i] != 0) {
            log_line(&log, WEIR_LOG_ERROR, "option at byte %zu is not known to weir " WEIR_VERSION, i);
            return WEIR_EINVAL;
        }
    }
    *out = copy;
    return WEIR_OK;
}

static int only_for(const struct log *log, const char *name, const char *modes)
{
    log_line(log, WEIR_LOG_ERROR, "option %s is for %s and must be 0 without it", name, modes);
    return WEIR_EINVAL;
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
    if (range(log, "lease_life_us", read->lease_life_us, MIN_LEASE_LIFE_US, MAX_LEASE_LIFE_US) != WEIR_OK)
        return WEIR_EINVAL;
    return range(log, "lease_max", read->lease_max, 1, WEIR_MAX_PERMITS);
}

/* It goes before every key: what would be hard to read there, or hide where the key begins, may not be in it. */
static bool prefix_is_good(const char *prefix)
{
    size_t len = 0;
    for (; prefix[len] && len <= REDIS_PREFIX_MAX_LEN; len++)
        if (prefix[len] <= ' ' || prefix[len] > '~' || prefix[len] == '{' || prefix[len] == '}')
            return false;
    return len >= 1 && len <= REDIS_PREFIX_MAX_LEN;
}

/* Where the count is kept, and what answers when it cannot be had there. */
static int mode_read(struct weir_options *read, const struct log *log)
{
    if (range(log, "mode", (int64_t)read->mode, WEIR_LOCAL, WEIR_HYBRID) != WEIR_OK ||
        range(log, "on_failure", (int64_t)read->on_failure, WEIR_FAIL_LOCAL, WEIR_FAIL_ERROR) != WEIR_OK)
        return WEIR_EINVAL;
    if (read->mode == WEIR_LOCAL) {
        if (read->redis_url)
            return only_redis(log, "redis_url");
        if (read->redis_password_file)
            return only_redis(log, "redis_password_file");
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
        return read->by_local_clock ? only_redis(log, "by_local_clock") : WEIR_OK;
    }
    if (!read->redis_url) {
        log_line(log, WEIR_LOG_ERROR, "option redis_url is required in mode %s",
                 read->mode == WEIR_HYBRID ? "WEIR_HYBRID" : "WEIR_DISTRIBUTED");
        return WEIR_EINVAL;
    }
    if (!read->redis_prefix)
        read->redis_prefix = DEFAULT_REDIS_PREFIX;
    if (!prefix_is_good(read->redis_prefix)) {
        log_line(log, WEIR_LOG_ERROR,
                 "option redis_prefix must be 1 to %d printable bytes of ASCII, no space, '{' or '}' among them",
                 REDIS_PREFIX_MAX_LEN);
        return WEIR_EINVAL;
    }
    return WEIR_OK;
}

int options_read(const struct weir_options *options, struct weir_options *out)
{
    struct weir_options read;
    int error = options_copy(options, &read);
    if (error)
        return error;
    const struct log log = { read.log, read.user };

    error = mode_read(&read, &log);
    if (!error)
        error = leases_read(&read, &log);
    if (error)
        return error;
    if (read.open_for_us && read.on_failure != WEIR_FAIL_OPEN)
        return only_for(&log, "open_for_us", "on_failure WEIR_FAIL_OPEN");
    if (read.max_keys == 0)
        read.max_keys = DEFAULT_MAX_KEYS;
    if (range(&log, "max_keys", read.max_keys, 1, INT64_C(1) << 31) != WEIR_OK)
        return WEIR_EINVAL;
    if (read.max_bytes == 0)
        read.max_bytes = read.max_keys * DEFAULT_BYTES_PER_KEY < MIN_BYTES ? MIN_BYTES
                                                                           : read.max_keys * DEFAULT_BYTES_PER_KEY;
    if (read.timeout_us == 0)
        read.timeout_us = DEFAULT_TIMEOUT_US;
    if (range(&log, "max_bytes", read.max_bytes, MIN_BYTES, MAX_BYTES) != WEIR_OK ||
        range(&log, "timeout_us", read.timeout_us, 1, WEIR_HOUR) != WEIR_OK ||
        range(&log, "open_for_us", read.open_for_us, 0, WEIR_DAY) != WEIR_OK ||
        range(&log, "on_full", (int64_t)read.on_full, WEIR_FULL_DENY, WEIR_FULL_SHARE) != WEIR_OK)
        return WEIR_EINVAL;

    char sentence[LOG_LINE_SIZE - 16];
    struct share share;
    error = share_from_options(&read, &share, (struct message){ sentence, sizeof sentence });
    if (error)
        log_line(&log, WEIR_LOG_ERROR, "option %s", sentence);
    else
        *out = read;
    return error;
}
