/* log.c - formatting of log lines and messages. */
#include "core/ground/log.h"

#include <stdarg.h>
#include <stdio.h>

void log_line(const struct log *log, enum weir_log_level level, const char *format, ...)
{
    if (!log->line)
        return;
    char line[LOG_LINE_SIZE];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(line, sizeof line, format, arguments);
    va_end(arguments);
    log->line(log->user, level, line);
}

__attribute__((format(printf, 2, 0))) static void write_sentence(struct message message, const char *format,
                                                                 va_list arguments)
{
    if (message.text && message.size > 0)
        vsnprintf(message.text, message.size, format, arguments);
}

int message_refuse(struct message message, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    write_sentence(message, format, arguments);
    va_end(arguments);
    return WEIR_EINVAL;
}

void message_write(struct message message, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    write_sentence(message, format, arguments);
    va_end(arguments);
}
