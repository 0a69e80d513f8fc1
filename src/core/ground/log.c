/* log.c - formatting of log lines and messages. */
#include "core/ground/log.h"

#include "core/ground/cancel.h"
#include "core/ground/clock.h"
#include "core/ground/hook_queue.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

#define STDERR_KINDS 64 /* a power of two; two kinds that share a place may both come more often */

/* True if a terminal may obey the character at `at`: ASCII's control characters, and Unicode's from U+0080 to U+009F.
 */
static bool log_is_control(const unsigned char *at)
{
    return at[0] < ' ' || at[0] == 0x7f || (at[0] == 0xc2 && at[1] >= 0x80 && at[1] <= 0x9f);
}

/* Format into `out`, cut to fit, with \xNN for each byte of a control character. A name, path or word from a file, a
 * server or a caller could otherwise forge a line or drive the operator's terminal. */
__attribute__((format(printf, 3, 0))) static void write_clean(char *out, size_t size, const char *format,
                                                              va_list arguments)
{
    char raw[LOG_LINE_SIZE];
    size_t len = 0;
    if (!out || size == 0)
        return;
    vsnprintf(raw, sizeof raw, format, arguments);
    size_t escape = 0; /* bytes that are left of a control character */
    for (const unsigned char *at = (const unsigned char *)raw; *at; at++) {
        if (escape == 0 && log_is_control(at))
            escape = *at == 0xc2 ? 2 : 1;
        if (len + (escape > 0 ? 4 : 1) >= size)
            break;
        if (escape == 0) {
            out[len++] = (char)*at;
            continue;
        }
        len += (size_t)snprintf(out + len, size - len, "\\x%02x", *at);
        escape--;
    }
    out[len] = '\0';
}

static _Thread_local char last_message[LOG_LINE_SIZE];

const char *weir_last_message(void)
{
    return last_message;
}

void log_forget(void)
{
    last_message[0] = '\0';
}

int log_conclude(int error)
{
    if (error && !*last_message)
        log_line(&(struct log){ NULL, NULL }, WEIR_LOG_ERROR, "%s", weir_strerror(error));
    return error;
}

/* Make the line, and note it as this thread's latest message unless it only informs. */
__attribute__((format(printf, 3, 0))) static void make_line(char line[LOG_LINE_SIZE], enum weir_log_level level,
                                                            const char *format, va_list arguments)
{
    write_clean(line, LOG_LINE_SIZE, format, arguments); /* the arguments may be the last message */
    if (level != WEIR_LOG_INFO)
        memcpy(last_message, line, strlen(line) + 1);
}

void log_line(const struct log *log, enum weir_log_level level, const char *format, ...)
{
    if (!log->line && level == WEIR_LOG_INFO)
        return;
    CANCEL_DISABLED;          /* the hook may write to a file */
    char line[LOG_LINE_SIZE]; /* the hook may call weir */
    va_list arguments;
    va_start(arguments, format);
    make_line(line, level, format, arguments);
    va_end(arguments);
    if (log->line)
        log->line(log->user, level, line);
}

void log_later(const struct log *log, enum weir_log_level level, const char *format, ...)
{
    if (!log->line && level == WEIR_LOG_INFO)
        return;
    CANCEL_DISABLED;
    char line[LOG_LINE_SIZE];
    va_list arguments;
    va_start(arguments, format);
    make_line(line, level, format, arguments);
    va_end(arguments);
    if (log->line)
        hook_queue_put(log, level, line);
}

/* ---- Without a hook ---- */

/* FNV-1a over all but digits: lines that differ only in numbers are of one kind. */
static uint64_t kind_of(const char *line)
{
    uint64_t hash = UINT64_C(0xcbf29ce484222325);
    for (; *line; line++)
        if (*line < '0' || *line > '9')
            hash = (hash ^ (unsigned char)*line) * UINT64_C(0x100000001b3);
    return hash | 1;
}

void log_to_stderr(void *user, enum weir_log_level level, const char *line)
{
    static struct {
        _Atomic uint64_t kind; /* 0: none yet */
        _Atomic int64_t said_us;
    } kinds[STDERR_KINDS];
    (void)user;
    if (level == WEIR_LOG_INFO)
        return;
    const uint64_t kind = kind_of(line);
    const int64_t now_us = clock_monotonic_us();
    const size_t place = (size_t)(kind >> 32) % STDERR_KINDS;
    int64_t said_us = atomic_load_explicit(&kinds[place].said_us, memory_order_relaxed);
    if (atomic_load_explicit(&kinds[place].kind, memory_order_relaxed) == kind && now_us - said_us < WEIR_MINUTE)
        return;
    /* Of several threads with the same line, one writes it. */
    if (!atomic_compare_exchange_strong_explicit(&kinds[place].said_us, &said_us, now_us, memory_order_relaxed,
                                                 memory_order_relaxed))
        return;
    atomic_store_explicit(&kinds[place].kind, kind, memory_order_relaxed);
    const char *what = level == WEIR_LOG_ERROR ? "weir: error: " : "weir: warning: ";
    const struct iovec text[] = { { (char *)what, strlen(what) }, { (char *)line, strlen(line) }, { (char *)"\n", 1 } };
    if (writev(STDERR_FILENO, text, 3) < 0)
        return; /* there is nowhere else to say it */
}

/* ---- Sentences ---- */

int message_refuse(struct message message, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    write_clean(message.text, message.size, format, arguments);
    va_end(arguments);
    return WEIR_EINVAL;
}

void message_write(struct message message, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    write_clean(message.text, message.size, format, arguments);
    va_end(arguments);
}

const char *weir_strerror(int error)
{
    switch (error) {
    case WEIR_OK: return "no error";
    case WEIR_EINVAL: return "an argument, option or policy is outside its range";
    case WEIR_ENOMEM: return "out of memory";
    case WEIR_EFULL: return "no room for another limit or request";
    case WEIR_ETIME: return "the backend did not answer in time";
    case WEIR_EIO: return "the backend cannot be reached, or a file cannot be read";
    case WEIR_ESTATE: return "a stored state is not weir's";
    case WEIR_ECLOSED: return "the limiter was closed";
    case WEIR_ECANCELED: return "the wait was cancelled";
    default: return "not an error of weir";
    }
}
