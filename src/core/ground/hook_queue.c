/* hook_queue.c - lines and events for hooks, told by a separate thread. */
#include "core/ground/hook_queue.h"

#include "core/ground/forks.h"
#include "core/ground/lock.h"
#include "core/ground/quiet_thread.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ROOM (HOOK_QUEUE_LINES + WEIR_EVENTS_QUEUED)

struct queued {
    bool is_event;
    struct log log;         /* of a line */
    struct event_hook hook; /* of an event */
    enum weir_log_level level;
    unsigned lost; /* a line's: lines that found no room after it */
    union {
        char line[LOG_LINE_SIZE];
        struct weir_event event;
    };
};

/* All guarded by the mutex, inside which no other lock is taken. */
static struct {
    struct lock mutex;
    pthread_cond_t told; /* a hook has returned */
    struct queued entries[ROOM];
    size_t first, count;
    size_t events;                /* of `count` */
    struct queued *last_line;     /* among the entries, if a line is */
    const struct queued *telling; /* what the thread tells, on its stack; NULL: nothing */
    bool has_thread;
} queue = { .mutex = { PTHREAD_MUTEX_INITIALIZER }, .told = PTHREAD_COND_INITIALIZER };

static _Thread_local bool is_here; /* this is the queue's thread */

/* True if both are for the same hook. */
static bool same_hook(const struct queued *a, const struct queued *b)
{
    if (a->is_event != b->is_event)
        return false;
    return a->is_event ? a->hook.tell == b->hook.tell && a->hook.user == b->hook.user
                       : a->log.line == b->log.line && a->log.user == b->log.user;
}

/* ---- Forks ---- */

/* The parent's thread tells what is queued; the child has neither it nor that. */
static void queue_forked(struct forks_watcher *watcher, enum forks_moment moment) UNCHECKED
{
    (void)watcher;
    if (moment == FORKS_BEFORE) {
        lock_take(&queue.mutex);
        return;
    }
    if (moment == FORKS_IN_CHILD) {
        queue.first = queue.count = queue.events = 0;
        queue.telling = NULL;
        queue.has_thread = false;
        is_here = false;                      /* a hook may have forked */
        pthread_cond_init(&queue.told, NULL); /* threads of the parent may have waited */
    }
    lock_give(&queue.mutex);
}

static void queue_watch_forks(void)
{
    static struct forks_watcher watcher = { .told = queue_forked };
    forks_watch(&watcher);
}

/* ---- The thread ---- */

static void queue_tell(const struct queued *queued)
{
    char line[LOG_LINE_SIZE];
    if (queued->is_event) {
        queued->hook.tell(queued->hook.user, &queued->event);
        return;
    }
    queued->log.line(queued->log.user, queued->level, queued->line);
    if (queued->lost == 0)
        return;
    snprintf(line, sizeof line, "the log hook is too slow: %u lines are lost after the last one", queued->lost);
    queued->log.line(queued->log.user, WEIR_LOG_WARNING, line);
}

static void *queue_run(void *user)
{
    (void)user;
    is_here = true;
    lock_take(&queue.mutex);
    while (queue.count > 0) {
        const struct queued next = queue.entries[queue.first];
        queue.first = (queue.first + 1) % ROOM;
        queue.count--;
        queue.events -= next.is_event;
        queue.telling = &next;
        lock_give(&queue.mutex);
        queue_tell(&next);
        lock_take(&queue.mutex);
        queue.telling = NULL;
        pthread_cond_broadcast(&queue.told);
    }
    queue.has_thread = false;
    lock_give(&queue.mutex);
    return NULL;
}

static bool queue_start(void)
{
    pthread_attr_t attributes;
    pthread_t thread;
    if (pthread_attr_init(&attributes) != 0)
        return false;
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    const bool started = quiet_thread_start(&thread, &attributes, queue_run, NULL) == 0;
    pthread_attr_destroy(&attributes);
    return started;
}

/* ---- Entries ---- */

/* Return an entry to fill. NULL: there is no thread to tell it. */
static struct queued *queue_enter(void) REQUIRES(queue.mutex)
{
    if (!queue.has_thread && !queue_start())
        return NULL;
    queue.has_thread = true;
    struct queued *entry = &queue.entries[(queue.first + queue.count++) % ROOM];
    entry->lost = 0;
    return entry;
}

static void queue_take(void) TAKES(queue.mutex)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, queue_watch_forks);
    lock_take(&queue.mutex);
}

void hook_queue_put(const struct log *log, enum weir_log_level level, const char *line)
{
    queue_take();
    if (queue.count - queue.events == HOOK_QUEUE_LINES) {
        queue.last_line->lost++;
        lock_give(&queue.mutex);
        return;
    }
    struct queued *entry = queue_enter();
    if (entry) {
        entry->is_event = false;
        entry->log = *log;
        entry->level = level;
        snprintf(entry->line, sizeof entry->line, "%s", line);
        queue.last_line = entry;
    }
    lock_give(&queue.mutex);
    if (!entry)
        log->line(log->user, level, line);
}

bool hook_queue_put_event(const struct event_hook *hook, const struct weir_event *event)
{
    queue_take();
    struct queued *entry = queue.events < WEIR_EVENTS_QUEUED ? queue_enter() : NULL;
    if (entry) {
        entry->is_event = true;
        entry->hook = *hook;
        entry->event = *event;
        queue.events++;
    }
    lock_give(&queue.mutex);
    return entry != NULL;
}

/* True if something for the same hook is queued, or the hook runs. */
static bool queue_has(const struct queued *like) REQUIRES(queue.mutex)
{
    bool has = queue.telling && same_hook(queue.telling, like);
    for (size_t i = 0; i < queue.count; i++)
        has = has || same_hook(&queue.entries[(queue.first + i) % ROOM], like);
    return has;
}

static void queue_settle(const struct queued *like)
{
    if (is_here) { /* it cannot wait for itself, and returning would let it use what weir_close() frees */
        fputs("weir: weir_close() was called from a hook for which it waits\n", stderr);
        abort();
    }
    lock_take(&queue.mutex);
    while (queue_has(like))
        pthread_cond_wait(&queue.told, &queue.mutex.mutex);
    lock_give(&queue.mutex);
}

void hook_queue_settle(const struct log *log)
{
    queue_settle(&(const struct queued){ .log = *log });
}

void hook_queue_settle_events(const struct event_hook *hook)
{
    queue_settle(&(const struct queued){ .is_event = true, .hook = *hook });
}
