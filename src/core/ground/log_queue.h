/* log_queue.h - lines for log hooks, called by a separate thread, so that a hook that blocks holds up no decision.
 *
 * All limiters of the process share the queue. Its thread starts with a line and ends when none is left. The queue holds
 * LOG_QUEUE_LINES lines; more are lost, and a line says how many. Lines keep their order. If the system has no thread
 * left, the caller's thread calls the hook.
 */
#ifndef CORE_GROUND_LOG_QUEUE_H
#define CORE_GROUND_LOG_QUEUE_H

#include "core/ground/log.h"

#define LOG_QUEUE_LINES 64

/* Queue a line for the hook, which is not NULL. Any thread; does not block. */
void log_queue_put(const struct log *log, enum weir_log_level level, const char *line);

/* Wait until the hook has got all of its lines and has returned. Called from a hook on the queue's thread, it ends the
 * program with a sentence on stderr. */
void log_queue_settle(const struct log *log);

#endif
