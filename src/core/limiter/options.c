/* options.c - the options of a limiter: one table, by which they are read as text, checked, and get their defaults. */
#include "core/limiter/options.h"

#include "core/ground/arith.h"
#include "core/policy/policy.h"
#include "core/policy/share.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>

#define DEFAULT_BYTES_PER_KEY 256
#define MIN_BYTES (INT64_C(1) << 20)
#define REDIS_PREFIX_MAX_LEN 64

/* ---- The options, in one table ---- */

enum option_kind {
    OPTION_NUMBER,
    OPTION_TIME,
    OPTION_CHOICE, /* an enum */
    OPTION_FLAG,
    OPTION_SEED, /* a uint64_t; 0: random */
    OPTION_TEXT,
    OPTION_FILE
};

enum {
    IN_LOCAL = 1 << WEIR_LOCAL,
    IN_MACHINE = 1 << WEIR_MACHINE,
    IN_HYBRID = 1 << WEIR_HYBRID,
    IN_REDIS = 1 << WEIR_DISTRIBUTED | IN_HYBRID,
    IN_ALL = IN_LOCAL | IN_MACHINE | IN_REDIS
};

struct option_row {
    struct weir_option told; /* name, modes and text */
    const char *field;       /* its name in C, for sentences of weir_open() */
    enum option_kind kind;
    size_t offset;
    int64_t min, max, initial;  /* initial: what 0 means, if that is one number */
    const char *const *choices; /* OPTION_CHOICE: the words of its values, from 0, then NULL */
};

static const char *const mode_words[] = { "local", "distributed", "hybrid", "machine", NULL };
static const char *const failure_words[] = { "local", "open", "closed", "error", NULL };
static const char *const full_words[] = { "deny", "allow", "share", NULL };

#define ROW(name, field, kind, modes, min, max, initial, choices, text)                                              \
    {                                                                                                                \
        { name, modes, kind == OPTION_FILE, text }, #field, kind, offsetof(struct weir_options, field), min, max, \
            initial, choices                                                                                         \
    }
#define NUMBER(field, modes, min, max, initial, text) \
    ROW(#field, field, OPTION_NUMBER, modes, min, max, initial, NULL, text)
#define TIME(name, modes, min, max, initial, text) \
    ROW(#name, name##_us, OPTION_TIME, modes, min, max, initial, NULL, text)
#define CHOICE(field, words, text) \
    ROW(#field, field, OPTION_CHOICE, IN_ALL, 0, sizeof words / sizeof *words - 2, 0, words, text)
#define FLAG(field, modes, text) ROW(#field, field, OPTION_FLAG, modes, 0, 1, 0, NULL, text)
#define TEXT(name, field, modes, text) ROW(name, field, OPTION_TEXT, modes, 0, 0, 0, NULL, text)
#define FILE_OF(field, modes, text) ROW(#field, field, OPTION_FILE, modes, 0, 0, 0, NULL, text)

static const struct option_row rows[] = {
    CHOICE(mode, mode_words, "Where to count."),
    CHOICE(on_failure, failure_words, "The answer while Redis is away."),
    TEXT("redis", redis_url, IN_REDIS, "Where Redis is: a URL."),
    FILE_OF(redis_password_file, IN_REDIS, "The password is its first line."),
    TEXT("redis_sentinel_user", redis_sentinel_user, IN_REDIS, "The user of the sentinels."),
    FILE_OF(redis_sentinel_password_file, IN_REDIS, "The sentinels' password is its first line."),
    TEXT("redis_prefix", redis_prefix, IN_REDIS, "The beginning of all keys in Redis. Default weir:"),
    FILE_OF(redis_ca_file, IN_REDIS, "The authorities that may sign the server's certificate. Default the system's."),
    FILE_OF(redis_cert_file, IN_REDIS, "This client's certificate."),
    FILE_OF(redis_key_file, IN_REDIS, "The certificate's private key."),
    FLAG(redis_insecure, IN_REDIS, "Do not verify the server's certificate."),
    NUMBER(redis_replicas, IN_REDIS, 0, 16, 0, "How many replicas must acknowledge a charge."),
    TIME(redis_gather, IN_REDIS, 0, WEIR_MAX_GATHER_US, 0, "The shortest time between two calls to a server."),
    FLAG(by_local_clock, IN_REDIS, "Decide by this process's clock, not by the server's."),
    NUMBER(max_bytes, IN_ALL & ~IN_MACHINE, MIN_BYTES, INT64_C(1) << 50, 0,
           "Memory for keys and tables. Default 256 bytes for each of max_keys."),
    TEXT("shared", shared, IN_MACHINE, "The file in which the processes count."),
    TIME(lease_life, IN_HYBRID, 1000, WEIR_MAX_PERIOD_US, WEIR_MAX_PERIOD_US, "No lease lives longer."),
    NUMBER(lease_excess, IN_HYBRID, 1, 100, 5, "Percent of a token bucket's burst by which leases may exceed it."),
    NUMBER(lease_max, IN_HYBRID, 1, WEIR_MAX_PERMITS, WEIR_MAX_PERMITS, "Most permits of a key in one lease."),
    TIME(denial_life, IN_HYBRID, 1000, WEIR_MAX_PERIOD_US, 2 * WEIR_SECOND, "How long a denial is remembered."),
    FLAG(strict, IN_HYBRID, "Never exceed a token bucket."),
    NUMBER(max_keys, IN_ALL, 1, INT64_C(1) << 31, 1000000, "Most keys in memory."),
    TIME(timeout, IN_ALL, 1, WEIR_HOUR, 50000, "The longest time that one call may block."),
    TIME(outage_retry, IN_ALL, 1, WEIR_DAY, WEIR_SECOND, "The longest Retry-After during an outage."),
    TIME(open_for, IN_ALL, 0, WEIR_DAY, 0, "on_failure=open: how long to allow everything. Default without a bound."),
    FLAG(outage_cold, IN_ALL, "on_failure=local: an outage begins without permits."),
    FLAG(outage_adds, IN_ALL, "on_failure=local: outages of some instances add up."),
    CHOICE(on_full, full_words, "The answer to a new key when there is no room."),
    FLAG(keep_idle, IN_ALL, "Keep idle keys until their room is needed."),
    FILE_OF(policy_file, IN_ALL, "The limits."),
    FLAG(follow_policy_file, IN_ALL, "Read policy_file again when it changes."),
    NUMBER(instances, IN_ALL, 1, SHARE_MAX_INSTANCES, 0, "How many instances share the limits. Default 1."),
    NUMBER(rank, IN_ALL, 0, SHARE_MAX_INSTANCES - 1, 0, "This instance's place among them."),
    NUMBER(weight, IN_ALL, 1, SHARE_MAX_WEIGHT, 0, "This instance's weight. Default 1."),
    NUMBER(total_weight, IN_ALL, 1, (int64_t)SHARE_MAX_INSTANCES *SHARE_MAX_WEIGHT, 0,
           "The sum of all weights. Default instances * weight."),
    ROW("percent_seed", percent_seed, OPTION_SEED, IN_ALL, 0, 0, 0, NULL,
        "Chooses the keys of limits with percent=N. The same on all instances. Default random."),
    NUMBER(top_keys, IN_ALL, 0, WEIR_MAX_TOP_KEYS, 0, "Count this many of the keys that are denied most."),
    FLAG(top_keys_in_clear, IN_ALL, "Keep the first bytes of these keys, too."),
    FLAG(events_in_clear, IN_ALL, "Events have the first bytes of keys."),
    FLAG(events_at_once, IN_ALL, "Call the event hook on the thread of the event."),
    FLAG(quiet, IN_ALL, "Without a log hook, write nothing to stderr."),
    TEXT("control_socket", control_socket, IN_ALL, "The Unix socket on which weir stats and others ask this limiter."),
};
enum { ROWS = sizeof rows / sizeof rows[0] };
_Static_assert(ROWS <= 64, "weir_options_parse() has a bit for each");

const struct weir_option *weir_option_at(size_t index)
{
    return index < ROWS ? &rows[index].told : NULL;
}

/* Return what a row's field holds as a number. A text counts as 1 if it is there. */
static int64_t row_value(const struct option_row *row, const struct weir_options *options)
{
    const void *field = (const char *)options + row->offset;
    int choice;
    switch (row->kind) {
    case OPTION_NUMBER:
    case OPTION_TIME:
    case OPTION_SEED: return *(const int64_t *)field;
    case OPTION_CHOICE: memcpy(&choice, field, sizeof choice); return choice;
    case OPTION_FLAG: return *(const bool *)field;
    default: return *(const char *const *)field != NULL;
    }
}

static void row_set(const struct option_row *row, struct weir_options *options, int64_t value)
{
    void *field = (char *)options + row->offset;
    const int choice = (int)value;
    switch (row->kind) {
    case OPTION_NUMBER:
    case OPTION_TIME:
    case OPTION_SEED: *(int64_t *)field = value; break;
    case OPTION_CHOICE: memcpy(field, &choice, sizeof choice); break;
    case OPTION_FLAG: *(bool *)field = value != 0; break;
    default: *(const char **)field = NULL;
    }
}

/* ---- Options as text ---- */

static void print_time(char *text, size_t size, int64_t time_us)
{
    int i = 0;
    while (time_us % policy_time_units[i].us != 0)
        i++;
    snprintf(text, size, "%" PRId64 "%s", time_us / policy_time_units[i].us, policy_time_units[i].name);
}

size_t weir_option_values(const struct weir_option *option, char *text, size_t size)
{
    const struct option_row *row = (const struct option_row *)option; /* its first member */
    char min[32], max[32];
    int len = 0;
    switch (row->kind) {
    case OPTION_TIME:
        print_time(min, sizeof min, row->min);
        print_time(max, sizeof max, row->max);
        len = snprintf(text, size, "a time, %s to %s", row->min == 0 ? "0" : min, max);
        break;
    case OPTION_NUMBER:
        len = snprintf(text, size, "a whole number, %" PRId64 " to %" PRId64, row->min, row->max);
        break;
    case OPTION_SEED: len = snprintf(text, size, "a whole number, 1 to %" PRIu64, UINT64_MAX); break;
    case OPTION_FLAG: len = snprintf(text, size, "on or off"); break;
    case OPTION_CHOICE:
        for (int i = 0; row->choices[i]; i++)
            len += snprintf(len < (int)size ? text + len : NULL, len < (int)size ? size - (size_t)len : 0, "%s%s",
                            i == 0               ? ""
                            : row->choices[i + 1] ? ", "
                                                  : " or ",
                            row->choices[i]);
        break;
    default: len = snprintf(text, size, row->kind == OPTION_FILE ? "a path" : "a text that is not empty");
    }
    return (size_t)len;
}

/* Read a value other than a text: false if it is none that the row allows. */
static bool read_number(const struct option_row *row, const char *value, int64_t *out)
{
    char *end;
    *out = -1;
    if (row->kind == OPTION_SEED) {
        errno = 0;
        *out = (int64_t)strtoull(value, &end, 10);
        return *value >= '0' && *value <= '9' && *end == '\0' && errno == 0 && *out != 0;
    }
    if (row->kind == OPTION_FLAG)
        *out = strcmp(value, "on") == 0 ? 1 : strcmp(value, "off") == 0 ? 0 : -1;
    else if (row->kind == OPTION_CHOICE)
        for (int i = 0; row->choices[i]; i++)
            *out = strcmp(value, row->choices[i]) == 0 ? i : *out;
    else if (row->kind == OPTION_NUMBER)
        *out = policy_read_count(value, value + strlen(value));
    else if (strcmp(value, "0") == 0)
        *out = 0;
    else
        *out = policy_read_time(value, value + strlen(value));
    return *out >= row->min && *out <= row->max;
}

static const struct option_row *row_find(const char *name)
{
    for (size_t i = 0; i < ROWS; i++)
        if (strcmp(rows[i].told.name, name) == 0)
            return &rows[i];
    return NULL;
}

static int option_set(struct weir_options *options, const char *name, const char *value, struct message message)
{
    const struct option_row *row = row_find(name);
    char values[128];
    int64_t number;
    if (!row)
        return message_refuse(message, "there is no option \"%.64s\"", name);
    const bool is_text = row->kind == OPTION_TEXT || row->kind == OPTION_FILE;
    if (is_text ? *value == '\0' : !read_number(row, value, &number)) {
        weir_option_values(&row->told, values, sizeof values);
        return message_refuse(message, "%s must be %s, not \"%.64s\"", name, values, value);
    }
    if (is_text)
        *(const char **)((char *)options + row->offset) = value;
    else
        row_set(row, options, number);
    return WEIR_OK;
}

int weir_options_set(struct weir_options *options, const char *name, const char *value, char *message, size_t size)
{
    const struct message to = { message, size };
    if (!options || !name || !value)
        return message_refuse(to, "options, name and value must not be NULL");
    return option_set(options, name, value, to);
}

/* Return the next word and end it with a 0, or NULL. A double quote begins and ends a part with blanks and is left out.
 * *is_whole becomes false if a quote is missing. */
static char *next_word(char **at, bool *is_whole)
{
    static const char blanks[] = " \t\r\n";
    char *from = *at + strspn(*at, blanks), *to = from;
    bool is_quoted = false;
    *at = from;
    if (*from == '\0')
        return NULL;
    char *word = from;
    for (; *from && (is_quoted || !strchr(blanks, *from)); from++) {
        if (*from == '"')
            is_quoted = !is_quoted;
        else
            *to++ = *from;
    }
    *is_whole = !is_quoted;
    *at = *from ? from + 1 : from;
    *to = '\0';
    return word;
}

int weir_options_parse(struct weir_options *options, char *text, char *message, size_t size)
{
    const struct message to = { message, size };
    if (!options || !text)
        return message_refuse(to, "options and text must not be NULL");
    struct weir_options read = *options;
    uint64_t seen = 0;
    bool is_whole = true;
    for (char *word; (word = next_word(&text, &is_whole)) != NULL;) {
        char *equals = strchr(word, '=');
        if (!equals || !is_whole)
            return message_refuse(to, "\"%.64s\": %s", word,
                                  is_whole ? "name=value is expected" : "the second double quote is missing");
        *equals = '\0';
        const int error = option_set(&read, word, equals + 1, to);
        if (error)
            return error;
        const uint64_t bit = UINT64_C(1) << (row_find(word) - rows);
        if (seen & bit)
            return message_refuse(to, "%s is given twice", word);
        seen |= bit;
    }
    *options = read;
    return WEIR_OK;
}

/* ---- Checks and defaults ---- */

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

static bool mode_has_redis(enum weir_mode mode)
{
    return mode == WEIR_DISTRIBUTED || mode == WEIR_HYBRID;
}

static void foreign_drop(struct weir_options *read, const struct log *log)
{
    static const char *const modes[] = { "WEIR_LOCAL", "WEIR_DISTRIBUTED", "WEIR_HYBRID", "WEIR_MACHINE" };
    struct foreign foreign = { .len = 0 };
    for (const struct option_row *row = rows; row < rows + ROWS; row++) {
        if (row->told.modes & 1u << read->mode)
            continue;
        foreign_add(&foreign, row_value(row, read) != 0, row->field);
        row_set(row, read, 0);
    }
    if (foreign.len > 0)
        log_line(log, WEIR_LOG_INFO, "mode %s does not use these options: %s", modes[read->mode], foreign.names);
    if (read->on_failure != WEIR_FAIL_OPEN && read->open_for_us != 0) {
        log_line(log, WEIR_LOG_INFO, "option open_for_us is used with on_failure WEIR_FAIL_OPEN only");
        read->open_for_us = 0;
    }
}

/* Give the options that are 0 their defaults, and check the ranges of all that this mode uses. */
static int ranges_read(struct weir_options *read, const struct log *log)
{
    for (const struct option_row *row = rows; row < rows + ROWS; row++) {
        if (!(row->told.modes & 1u << read->mode) || row->kind == OPTION_SEED)
            continue;
        if (row->initial != 0 && row_value(row, read) == 0)
            row_set(row, read, row->initial);
        const int64_t value = row_value(row, read);
        const bool has_range = row->kind == OPTION_NUMBER || row->kind == OPTION_TIME || row->kind == OPTION_CHOICE;
        if (has_range && value != 0 && options_range(log, row->field, value, row->min, row->max) != WEIR_OK)
            return WEIR_EINVAL;
    }
    if (read->max_bytes == 0)
        read->max_bytes = max_of(MIN_BYTES, read->max_keys * DEFAULT_BYTES_PER_KEY);
    if (read->redis_gather_us > read->timeout_us / 4)
        return options_refuse(
            log, "option redis_gather_us must be at most a quarter of timeout_us, %" PRId64 ", not %" PRId64,
            read->timeout_us / 4, read->redis_gather_us);
    return WEIR_OK;
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

static int redis_read(struct weir_options *read, const struct log *log)
{
    if (!mode_has_redis(read->mode))
        return WEIR_OK;
    if (!read->redis_url || !*read->redis_url)
        return options_refuse(log, "option redis_url is required in mode %s",
                              read->mode == WEIR_HYBRID ? "WEIR_HYBRID" : "WEIR_DISTRIBUTED");
    if (!read->redis_prefix)
        read->redis_prefix = "weir:";
    if (!prefix_is_good(read->redis_prefix))
        return options_refuse(log,
                              "option redis_prefix must be 1 to %d printable bytes of ASCII, no space, '{' or '}' among"
                              " them",
                              REDIS_PREFIX_MAX_LEN);
    return WEIR_OK;
}

static int control_read(const struct weir_options *read, const struct log *log)
{
    const size_t most = sizeof((struct sockaddr_un *)NULL)->sun_path - 1;
    const size_t len = read->control_socket ? strlen(read->control_socket) : 1;
    if (len >= 1 && len <= most)
        return WEIR_OK;
    return options_refuse(log, "option control_socket must be a path of 1 to %zu bytes, not %zu", most, len);
}

int options_read(const struct weir_options *options, struct weir_options *out)
{
    struct weir_options read;
    int error = options_begin(options, &read);
    if (error)
        return error;
    const struct log log = { read.log, read.user };

    error = options_range(&log, "mode", (int64_t)read.mode, WEIR_LOCAL, WEIR_MACHINE);
    if (error)
        return error;
    foreign_drop(&read, &log);
    error = redis_read(&read, &log);
    if (error)
        return error;
    char sentence[LOG_LINE_SIZE - 16];
    struct share share;
    error = share_from_options(&read, &share, (struct message){ sentence, sizeof sentence });
    if (error)
        return options_refuse(&log, "option %s", sentence);
    error = ranges_read(&read, &log);
    if (!error)
        error = control_read(&read, &log);
    if (!error)
        *out = read;
    return error;
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
