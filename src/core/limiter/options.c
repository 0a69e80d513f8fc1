/* options.c - checks the options of a limiter and fills in their defaults. */
#include "core/limiter/options.h"

#include "core/ground/arith.h"
#include "core/policy/share.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/un.h>

#define DEFAULT_MAX_KEYS INT64_C(1000000)
#define DEFAULT_BYTES_PER_KEY 256
#define MIN_BYTES (INT64_C(1) << 20)
#define MAX_BYTES (INT64_C(1) << 50)
#define DEFAULT_TIMEOUT_US 50000
#define DEFAULT_OUTAGE_RETRY_US WEIR_SECOND
#define DEFAULT_REDIS_PREFIX "weir:"
#define REDIS_PREFIX_MAX_LEN 64
#define REDIS_REPLICAS_MAX 16
#define MIN_LEASE_LIFE_US 1000
#define DEFAULT_LEASE_EXCESS 5
#define DEFAULT_DENIAL_LIFE_US (2 * WEIR_SECOND)

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

int options_copy(const struct log *log, const char *name, const void *from, void *to, size_t size)
{
    size_t given;
    memcpy(&given, from, sizeof given);
    if (given != size)
        return options_refuse(log,
                              "option %ssize is %zu, but this weir " WEIR_VERSION " knows %zu only: set it to sizeof"
                              " the struct, and compile with this version's headers",
                              name, given, size);
    memcpy(to, from, size);
    return WEIR_OK;
}

static int options_begin(const struct weir_options *options, struct weir_options *out)
{
    const struct log log = { log_to_stderr, NULL }; /* a struct of another size may have its hook elsewhere */
    struct weir_options defaults = WEIR_OPTIONS_INIT;
    int error = options_copy(&log, "", options ? options : &defaults, out, sizeof *out);
    if (!error && !out->log && !out->quiet)
        out->log = log_to_stderr;
    return error;
}

/* ---- Options that mean nothing in this mode: one line names them, and they count as not given ---- */

struct foreign {
    char names[LOG_LINE_SIZE / 2];
    size_t len;
};

static void foreign_add(struct foreign *foreign, bool is_given, const char *name)
{
    if (is_given && foreign->len < sizeof foreign->names)
        foreign->len += (size_t)snprintf(foreign->names + foreign->len, sizeof foreign->names - foreign->len, "%s%s",
                                         foreign->len > 0 ? ", " : "", name);
}

#define FOREIGN(option) (foreign_add(&foreign, read->option != 0, #option), read->option = 0)

static bool mode_has_redis(enum weir_mode mode)
{
    return mode == WEIR_DISTRIBUTED || mode == WEIR_HYBRID;
}

static void foreign_drop(struct weir_options *read, const struct log *log)
{
    static const char *const modes[] = { "WEIR_LOCAL", "WEIR_DISTRIBUTED", "WEIR_HYBRID", "WEIR_MACHINE" };
    struct foreign foreign = { .len = 0 };
    if (!mode_has_redis(read->mode)) {
        FOREIGN(redis_url);
        FOREIGN(redis_password_file);
        FOREIGN(redis_sentinel_user);
        FOREIGN(redis_sentinel_password_file);
        FOREIGN(redis_prefix);
        FOREIGN(redis_ca_file);
        FOREIGN(redis_cert_file);
        FOREIGN(redis_key_file);
        FOREIGN(redis_insecure);
        FOREIGN(redis_replicas);
        FOREIGN(redis_gather_us);
        FOREIGN(by_local_clock);
    }
    if (read->mode == WEIR_MACHINE)
        FOREIGN(max_bytes);
    else
        FOREIGN(shared);
    if (read->mode != WEIR_HYBRID) {
        FOREIGN(lease_life_us);
        FOREIGN(lease_excess);
        FOREIGN(lease_max);
        FOREIGN(denial_life_us);
        FOREIGN(strict);
    }
    if (foreign.len > 0)
        log_line(log, WEIR_LOG_INFO, "mode %s does not use these options: %s", modes[read->mode], foreign.names);
    foreign.len = 0;
    if (read->on_failure != WEIR_FAIL_OPEN)
        FOREIGN(open_for_us);
    if (foreign.len > 0)
        log_line(log, WEIR_LOG_INFO, "option open_for_us is used with on_failure WEIR_FAIL_OPEN only");
}

static int leases_read(struct weir_options *read, const struct log *log)
{
    if (read->mode != WEIR_HYBRID)
        return WEIR_OK;
    if (read->lease_life_us == 0)
        read->lease_life_us = WEIR_MAX_PERIOD_US;
    if (read->lease_excess == 0)
        read->lease_excess = DEFAULT_LEASE_EXCESS;
    if (read->denial_life_us == 0)
        read->denial_life_us = DEFAULT_DENIAL_LIFE_US;
    if (read->lease_max == 0)
        read->lease_max = WEIR_MAX_PERMITS;
    if (options_range(log, "lease_life_us", read->lease_life_us, MIN_LEASE_LIFE_US, WEIR_MAX_PERIOD_US) != WEIR_OK ||
        options_range(log, "lease_excess", read->lease_excess, 1, 100) != WEIR_OK ||
        options_range(log, "denial_life_us", read->denial_life_us, MIN_LEASE_LIFE_US, WEIR_MAX_PERIOD_US) != WEIR_OK)
        return WEIR_EINVAL;
    return options_range(log, "lease_max", read->lease_max, 1, WEIR_MAX_PERMITS);
}

/* True if the prefix may precede every key: it has no byte that is hard to read or hides where the key begins. */
static bool prefix_is_good(const char *prefix)
{
    size_t len = 0;
    for (; len <= REDIS_PREFIX_MAX_LEN && prefix[len]; len++)
        if (prefix[len] <= ' ' || prefix[len] > '~' || prefix[len] == '{' || prefix[len] == '}')
            return false;
    return len >= 1 && len <= REDIS_PREFIX_MAX_LEN;
}

/* Read the mode, and what answers when the store is out of reach. */
static int mode_read(struct weir_options *read, const struct log *log)
{
    if (options_range(log, "mode", (int64_t)read->mode, WEIR_LOCAL, WEIR_MACHINE) != WEIR_OK ||
        options_range(log, "on_failure", (int64_t)read->on_failure, WEIR_FAIL_LOCAL, WEIR_FAIL_ERROR) != WEIR_OK)
        return WEIR_EINVAL;
    foreign_drop(read, log);
    if (!mode_has_redis(read->mode))
        return WEIR_OK;
    if (!read->redis_url || !*read->redis_url)
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

static int control_read(const struct weir_options *read, const struct log *log)
{
    const size_t most = sizeof((struct sockaddr_un *)NULL)->sun_path - 1;
    const size_t len = read->control_socket ? strlen(read->control_socket) : 1;
    if (len >= 1 && len <= most)
        return WEIR_OK;
    return options_refuse(log, "option control_socket must be a path of 1 to %zu bytes, not %zu", most, len);
}

/* Read the bounds of memory and of the time of a call. */
static int bounds_read(struct weir_options *read, const struct log *log)
{
    if (read->max_keys == 0)
        read->max_keys = DEFAULT_MAX_KEYS;
    if (options_range(log, "max_keys", read->max_keys, 1, INT64_C(1) << 31) != WEIR_OK)
        return WEIR_EINVAL;
    if (read->max_bytes == 0)
        read->max_bytes = read->max_keys * DEFAULT_BYTES_PER_KEY < MIN_BYTES ? MIN_BYTES
                                                                             : read->max_keys * DEFAULT_BYTES_PER_KEY;
    if (read->timeout_us == 0)
        read->timeout_us = DEFAULT_TIMEOUT_US;
    if (read->outage_retry_us == 0)
        read->outage_retry_us = DEFAULT_OUTAGE_RETRY_US;
    if (options_range(log, "max_bytes", read->max_bytes, MIN_BYTES, MAX_BYTES) != WEIR_OK ||
        options_range(log, "timeout_us", read->timeout_us, 1, WEIR_HOUR) != WEIR_OK ||
        options_range(log, "redis_gather_us", read->redis_gather_us, 0, WEIR_MAX_GATHER_US) != WEIR_OK ||
        options_range(log, "outage_retry_us", read->outage_retry_us, 1, WEIR_DAY) != WEIR_OK ||
        options_range(log, "open_for_us", read->open_for_us, 0, WEIR_DAY) != WEIR_OK ||
        options_range(log, "top_keys", read->top_keys, 0, WEIR_MAX_TOP_KEYS) != WEIR_OK ||
        options_range(log, "on_full", (int64_t)read->on_full, WEIR_FULL_DENY, WEIR_FULL_SHARE) != WEIR_OK)
        return WEIR_EINVAL;
    if (read->redis_gather_us > read->timeout_us / 4)
        return options_refuse(
            log, "option redis_gather_us must be at most a quarter of timeout_us, %" PRId64 ", not %" PRId64,
            read->timeout_us / 4, read->redis_gather_us);
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
    if (!error)
        error = control_read(&read, &log);
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

struct lease_rules options_leases(const struct weir_options *read)
{
    return (struct lease_rules){
        .life_us = read->lease_life_us,
        .excess = read->lease_excess,
        .denial_us = read->denial_life_us,
        .max = read->lease_max,
        .instances = max_of(1, read->instances),
        .strict = read->strict,
    };
}
