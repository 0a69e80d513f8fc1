/* options.c - checks the options of a limiter and fills in their defaults. */
#include "core/limiter.h"

#include <inttypes.h>

#define DEFAULT_MAX_KEYS INT64_C(1000000)
#define DEFAULT_BYTES_PER_KEY 256
#define MIN_BYTES (INT64_C(1) << 20)
#define MAX_BYTES (INT64_C(1) << 50)
#define DEFAULT_TIMEOUT_US 50000

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

int options_read(const struct weir_options *options, struct weir_options *out)
{
    struct weir_options read;
    int error = options_copy(options, &read);
    if (error)
        return error;
    const struct log log = { read.log, read.user };

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
