/* answer.c - the commands of the control socket, by the functions that every program may call. */
#include "control/answer.h"

#include "core/api/limit_file.h"
#include "core/follow/follow.h"
#include "core/ground/arith.h"
#include "core/ground/clock.h"
#include "core/limiter/events.h"
#include "core/limiter/own_ops.h"
#include "core/limiter/request.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#define KEY_TEXT_SIZE (3 * WEIR_TOP_KEY_SIZE + 1)
#define NAME_TEXT_SIZE (WEIR_MAX_NAME_LEN + WEIR_MAX_PATTERN_LEN + 2)

/* ---- Text ---- */

__attribute__((format(printf, 2, 3))) static void answer_say(struct answer *answer, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    const int len = vsnprintf(answer->text + answer->len, ANSWER_SIZE - answer->len, format, arguments);
    va_end(arguments);
    answer->len += len > 0 ? (size_t)len : 0; /* there is room: ANSWER_LINE_MAX */
}

static void answer_refuse(struct answer *answer, const char *sentence)
{
    answer->more = NULL;
    answer_say(answer, "error %.*s\n", ANSWER_LINE_MAX - 16, sentence);
}

static void answer_end(struct answer *answer, const char *line)
{
    answer->more = NULL;
    answer_say(answer, "%send\n", line);
}

static void key_encode(const unsigned char *key, size_t len, char out[KEY_TEXT_SIZE])
{
    for (size_t i = 0; i < len; i++) {
        if (key[i] > ' ' && key[i] <= '~' && key[i] != '%')
            *out++ = (char)key[i];
        else
            out += sprintf(out, "%%%02X", key[i]);
    }
    *out = '\0';
}

static int hex_of(char digit)
{
    if (digit >= '0' && digit <= '9')
        return digit - '0';
    digit |= 'a' ^ 'A';
    return digit >= 'a' && digit <= 'f' ? digit - 'a' + 10 : -1;
}

/* Decode a key in place; its length, or 0 if it is malformed. */
static size_t key_decode(char *text)
{
    size_t len = 0;
    for (const char *at = text; *at; at++) {
        int byte = (unsigned char)*at;
        if (*at == '%') {
            const int high = hex_of(at[1]), low = high < 0 ? -1 : hex_of(at[2]);
            if (low < 0)
                return 0;
            byte = high * 16 + low;
            at += 2;
        }
        text[len++] = (char)byte;
    }
    return len;
}

static void policy_text(const struct weir_policy *policy, char text[WEIR_POLICY_TEXT_SIZE])
{
    if (weir_policy_print(policy, text, WEIR_POLICY_TEXT_SIZE) != WEIR_OK)
        text[0] = '\0';
}

/* ---- stats ---- */

static bool more_stats(struct answer *answer)
{
    struct weir_limit_stats stats = { .size = sizeof stats };
    struct weir_policy policy = { .limit = 0 };
    char name[NAME_TEXT_SIZE], text[WEIR_POLICY_TEXT_SIZE];
    weir_limit *limit = weir_limit_next(answer->shared->limiter, answer->limit);
    answer->limit = limit;
    if (!limit)
        return false;
    weir_limit_stats_read(limit, &stats);
    weir_limit_policy(limit, &policy);
    weir_limit_print_name(limit, name, sizeof name);
    policy_text(&policy, text);
    uint64_t fallback = 0;
    for (int source = WEIR_BY_FALLBACK; source <= WEIR_BY_FAIL_CLOSED; source++)
        fallback += stats.by_source[source];
    answer_say(answer,
               "limit name=%s allowed=%" PRIu64 " denied=%" PRIu64 " would_deny=%" PRIu64 " permits=%" PRIu64
               " near=%" PRIu64 " fallback=%" PRIu64 " policy=%s\n",
               name, stats.allowed, stats.denied, stats.would_deny, stats.permits, stats.near, fallback, text);
    return true;
}

static void begin_stats(struct answer *answer)
{
    struct weir_stats stats = { .size = sizeof stats };
    if (weir_stats_read(answer->shared->limiter, &stats) != WEIR_OK) {
        answer_refuse(answer, "the counters cannot be read");
        return;
    }
    answer_say(answer,
               "limiter allowed=%" PRIu64 " denied=%" PRIu64 " errors=%" PRIu64 " fallbacks=%" PRIu64
               " outages=%" PRIu64 " full=%" PRIu64 " evictions=%" PRIu64 " keys=%" PRId64 " bytes=%" PRId64
               " share_weight=%" PRId64 " share_total=%" PRId64 " events_lost=%" PRIu64 "\n",
               stats.allowed, stats.denied, stats.errors, stats.fallbacks, stats.outages, stats.full, stats.evictions,
               stats.keys, stats.bytes, stats.share_weight, stats.share_total, stats.events_lost);
    answer->limit = NULL;
    answer->more = more_stats;
}

/* ---- top ---- */

static bool more_top(struct answer *answer)
{
    const struct answers_shared *shared = answer->shared;
    char key[KEY_TEXT_SIZE];
    if (answer->at >= answer->end || answer->at >= shared->top_count) /* fewer, if they were read anew */
        return false;
    const struct weir_top_key *top = &shared->top[answer->at++];
    key_encode(top->key, top->key_len < WEIR_TOP_KEY_SIZE ? top->key_len : WEIR_TOP_KEY_SIZE, key);
    answer_say(answer, "key limit=%s denied=%" PRIu64 " error=%" PRIu64 " hash=%016" PRIx64 " len=%zu key=%s\n",
               weir_limit_name(top->limit), top->denied, top->error, top->hash, top->key_len, key);
    return true;
}

static void begin_top(struct answer *answer, const char *count)
{
    struct answers_shared *shared = answer->shared;
    char *end;
    const unsigned long wanted = strtoul(count, &end, 10);
    if (!shared->limiter->top_keys || !shared->top) {
        answer_refuse(answer, "the limiter does not count keys: it needs the option top_keys");
        return;
    }
    if (*count < '0' || *count > '9' || *end || wanted > WEIR_MAX_TOP_KEYS) {
        answer_refuse(answer, "top needs a number of keys, 0 to 1024");
        return;
    }
    const int64_t now_us = clock_monotonic_us();
    if (shared->top_us == 0 || now_us - shared->top_us >= CONTROL_TOP_US) {
        const int n = weir_top_keys_read(shared->limiter, shared->top, WEIR_MAX_TOP_KEYS, false);
        shared->top_count = n > 0 ? (size_t)n : 0;
        shared->top_us = now_us;
    }
    answer->at = 0;
    answer->end = wanted;
    answer->more = more_top;
}

/* ---- peek, reset, reload ---- */

/* Find the limit and decode the key; NULL after a refusal. */
static weir_limit *read_key(struct answer *answer, const char *limit, char *key, struct weir_key *out)
{
    weir_limit *found = weir_limit_find(answer->shared->limiter, limit);
    *out = weir_key(key, key_decode(key));
    if (!found)
        answer_refuse(answer, "the limiter has no such limit");
    else if (out->len == 0)
        answer_refuse(answer, "the key is empty or malformed");
    return out->len > 0 ? found : NULL;
}

/* Return how many permits of the key are in use. A decision tells of an overdrawn key only that none is left. */
static int64_t used_of(weir_limit *limit, struct weir_key key, const struct weir_decision *decision)
{
    struct weir_backend *backend = limit->limiter->backend;
    const struct own_ops *own = own_ops(backend);
    struct weir_backend_request request;
    int64_t now_us;
    if (decision->remaining > 0 || !own || !own->used || read_clock(limit->limiter, &now_us) != WEIR_OK)
        return decision->limit - decision->remaining;
    request = backend_request(limit, key, 1, now_us, WEIR_PEEK);
    return max_of(decision->limit, own->used(backend, &request));
}

static void begin_peek(struct answer *answer, const char *limit_name, char *key_text)
{
    struct weir_key key;
    struct weir_decision decision;
    struct weir_policy policy = { .limit = 0 };
    char line[ANSWER_LINE_MAX], text[WEIR_POLICY_TEXT_SIZE];
    weir_limit *limit = read_key(answer, limit_name, key_text, &key);
    if (!limit)
        return;
    const int error = weir_peek(limit, key, 1, &decision);
    if (error) {
        answer_refuse(answer, weir_strerror(error));
        return;
    }
    weir_limit_policy_for(limit, key, &policy);
    policy_text(&policy, text);
    snprintf(line, sizeof line,
             "state limit=%" PRId64 " used=%" PRId64 " remaining=%" PRId64
             " allowed=%s would_deny=%s retry_after_us=%" PRId64 " reset_after_us=%" PRId64 " policy=%s\n",
             decision.limit, used_of(limit, key, &decision), decision.remaining, decision.allowed ? "true" : "false",
             decision.would_deny ? "true" : "false", decision.retry_after_us, decision.reset_after_us, text);
    answer_end(answer, line);
}

static void begin_reset(struct answer *answer, const char *limit_name, char *key_text)
{
    struct weir_key key;
    weir_limit *limit = read_key(answer, limit_name, key_text, &key);
    if (!limit)
        return;
    const int error = weir_reset(limit, key);
    if (error)
        answer_refuse(answer, weir_strerror(error));
    else
        answer_end(answer, "done\n");
}

/* Read the policies of a file that is followed, as its watcher does when it changes. */
static int reload_followed(const struct answers_shared *shared, struct message message)
{
    struct policy_list list;
    int error = policy_list_read(shared->policy_file, &list, message);
    if (error)
        return error;
    error = follow_policies(shared->limiter, WEIR_FOLLOW_POLICY_FILE, list.entries, list.count);
    policy_list_free(&list);
    if (error)
        message_write(message, "%s", weir_strerror(error));
    return error;
}

static void begin_reload(struct answer *answer)
{
    const struct answers_shared *shared = answer->shared;
    char sentence[LOG_LINE_SIZE] = "";
    const struct message message = { sentence, sizeof sentence };
    if (!shared->policy_file) {
        answer_refuse(answer, "the limiter has no policy_file to read");
        return;
    }
    const int error = shared->is_followed
                          ? reload_followed(shared, message)
                          : weir_limits_load(shared->limiter, shared->policy_file, sentence, sizeof sentence);
    if (error)
        answer_refuse(answer, sentence);
    else
        answer_end(answer, "done\n");
}

/* ---- Requests ---- */

void answer_begin(struct answer *answer, struct answers_shared *shared, char *line)
{
    const char *words[3] = { "", "", "" };
    char *at = line, *last = line;
    size_t count = 0;
    answer->shared = shared;
    answer->more = NULL;
    answer->len = answer->sent = 0;
    for (char *word; count < 3 && (word = strsep(&at, " "));) {
        words[count++] = word;
        last = word;
    }
    if (!at && count == 1 && strcmp(words[0], "stats") == 0)
        begin_stats(answer);
    else if (!at && count == 2 && strcmp(words[0], "top") == 0)
        begin_top(answer, words[1]);
    else if (!at && count == 3 && strcmp(words[0], "peek") == 0)
        begin_peek(answer, words[1], last);
    else if (!at && count == 3 && strcmp(words[0], "reset") == 0)
        begin_reset(answer, words[1], last);
    else if (!at && count == 1 && strcmp(words[0], "reload") == 0)
        begin_reload(answer);
    else
        answer_refuse(answer, "the request is unknown");
}

bool answer_fill(struct answer *answer)
{
    memmove(answer->text, answer->text + answer->sent, answer->len - answer->sent);
    answer->len -= answer->sent;
    answer->sent = 0;
    while (answer->more && ANSWER_SIZE - answer->len >= ANSWER_LINE_MAX)
        if (!answer->more(answer))
            answer_end(answer, "");
    return answer->more;
}
