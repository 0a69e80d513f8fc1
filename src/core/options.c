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

static int only_distributed(const struct log *log, const char *name)
{
    log_line(log, WEIR_LOG_ERROR, "option %s is for mode WEIR_DISTRIBUTED and must be 0 without it", name);
    return WEIR_EINVAL;
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
    if (range(log, "mode", (int64_t)read->mode, WEIR_LOCAL, WEIR_DISTRIBUTED) != WEIR_OK ||
        range(log, "on_failure", (int64_t)read->on_failure, WEIR_FAIL_LOCAL, WEIR_FAIL_ERROR) != WEIR_OK)
        return WEIR_EINVAL;
    if (read->mode == WEIR_LOCAL) {
        if (read->redis_url)
            return only_distributed(log, "redis_url");
        if (read->redis_password_file)
            return only_distributed(log, "redis_password_file");
        if (read->redis_prefix)
            return only_distributed(log, "redis_prefix");
        return read->by_local_clock ? only_distributed(log, "by_local_clock") : WEIR_OK;
    }
    if (!read->redis_url) {
        log_line(log, WEIR_LOG_ERROR, "option redis_url is required in mode WEIR_DISTRIBUTED");
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
    if (error)
        return error;
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
