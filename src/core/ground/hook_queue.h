/* hook_queue.h - lines for log hooks and events for event hooks, told by a separate thread, so that a hook that blocks
 * holds up no decision.
 *
 * All limiters of the process share the queue. Its thread starts with a line or an event and ends when none is left.
 * The queue has room for HOOK_QUEUE_LINES lines and WEIR_EVENTS_QUEUED events, so neither displaces the other; more are
 * lost. Of lines, another line says how many; of events, the caller counts them. All keep their order. If the system
 * has no thread left, the caller's thread tells a line, and an event is lost.
 */
#ifndef CORE_GROUND_HOOK_QUEUE_H
#define CORE_GROUND_HOOK_QUEUE_H

#include "core/ground/log.h"

#define HOOK_QUEUE_LINES 64

/* Queue a line for the hook, which is not NULL. Any thread; does not block. */
void hook_queue_put(const struct log *log, enum weir_log_level level, const char *line);

struct event_hook {
    void (*tell)(void *user, const struct weir_event *event); /* (c) NULL: none */
    void *user;                                               /* (c) */
};

/* Queue an event for the hook, which is not NULL. Any thread; does not block. False: it is lost. */
bool hook_queue_put_event(const struct event_hook *hook, const struct weir_event *event);

/* Wait until the hook has got all of its lines, or events, and has returned. Called from a hook on the queue's thread,
 * either ends the program with a sentence on stderr. */
void hook_queue_settle(const struct log *log);
void hook_queue_settle_events(const struct event_hook *hook);

#endif
