/* log.h - lines to the user's log hook, and sentences into a caller's buffer.
 *
 * A line is made on the stack. It contains no control characters, so no newline, and no keys or secrets. The hook is
 * called without any lock held. A hook may block for long, so lines about Redis and outages go through a queue
 * (hook_queue.h): otherwise the hook would hold up decisions. Lines about what a caller has asked for come in its call.
 */
#ifndef CORE_GROUND_LOG_H
#define CORE_GROUND_LOG_H

#include <weir/weir.h>

#define LOG_LINE_SIZE 512 /* bytes, NUL included; a longer line is cut */

struct log {
    void (*line)(void *user, enum weir_log_level level, const char *line); /* (c) NULL: none */
    void *user;                                                            /* (c) */
};

/* Give the hook a line. weir_last_message() returns a warning or an error to this thread, even without a hook. */
void log_line(const struct log *log, enum weir_log_level level, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* The same through the queue: the hook gets the line later, on another thread. */
void log_later(const struct log *log, enum weir_log_level level, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Around what may fail without a line: make weir_last_message() empty, and give it the words of the error if it still
 * is. log_conclude() returns the error. */
void log_forget(void);
int log_conclude(int error);

/* The hook of a limiter that has none: write warnings and errors to stderr, one of a kind a minute. */
void log_to_stderr(void *user, enum weir_log_level level, const char *line);

/* A sentence for the caller, cut to fit. Nothing is written if `text` is NULL or `size` is 0. */
struct message {
    char *text;
    size_t size;
};

/* Write the sentence and return WEIR_EINVAL, the error that most sentences explain. */
int message_refuse(struct message message, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Write the sentence; for any other error. */
void message_write(struct message message, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif
