/* log_queue.c - lines for log hooks, called by a separate thread. */
#include "core/ground/log_queue.h"

#include "core/ground/forks.h"
#include "core/ground/lock.h"
#include "core/ground/quiet_thread.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct queued {
    struct log log;
    enum weir_log_level level;
    unsigned lost; /* lines that found no room after this one */
    char line[LOG_LINE_SIZE];
};

/* All guarded by the mutex, inside which no other lock is taken. */
static struct {
    struct lock mutex;
    pthread_cond_t told; /* a hook has returned */
    struct queued lines[LOG_QUEUE_LINES];
    size_t first, count;
    const struct log *telling; /* the hook that runs, on the thread's stack; NULL: none */
    bool has_thread;
} queue = { .mutex = { PTHREAD_MUTEX_INITIALIZER }, .told = PTHREAD_COND_INITIALIZER };

static _Thread_local bool is_here; /* this is the queue's thread */

static bool same_log(const struct log *a, const struct log *b)
{
    return a->line == b->line && a->user == b->user;
}

/* ---- Forks ---- */

/* The parent's thread tells the lines that are queued; the child has neither it nor them. */
static void queue_forked(struct forks_watcher *watcher, enum forks_moment moment) UNCHECKED
{
    (void)watcher;
    if (moment == FORKS_BEFORE) {
        lock_take(&queue.mutex);
        return;
    }
    if (moment == FORKS_IN_CHILD) {
        queue.first = queue.count = 0;
        queue.telling = NULL;
        queue.has_thread = false;
        is_here = false; /* a hook may have forked */
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
        const struct queued next = queue.lines[queue.first];
        queue.first = (queue.first + 1) % LOG_QUEUE_LINES;
        queue.count--;
        queue.telling = &next.log;
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

/* ---- Lines ---- */

void log_queue_put(const struct log *log, enum weir_log_level level, const char *line)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, queue_watch_forks);
    lock_take(&queue.mutex);
    if (queue.count == LOG_QUEUE_LINES) {
        queue.lines[(queue.first + queue.count - 1) % LOG_QUEUE_LINES].lost++;
        lock_give(&queue.mutex);
        return;
    }
    if (!queue.has_thread && !queue_start()) {
        lock_give(&queue.mutex);
        log->line(log->user, level, line);
        return;
    }
    queue.has_thread = true;
    struct queued *queued = &queue.lines[(queue.first + queue.count++) % LOG_QUEUE_LINES];
    queued->log = *log;
    queued->level = level;
    queued->lost = 0;
    snprintf(queued->line, sizeof queued->line, "%s", line);
    lock_give(&queue.mutex);
}

/* True if a line of the hook is queued, or the hook runs. */
static bool queue_has(const struct log *log) REQUIRES(queue.mutex)
{
    bool has = queue.telling && same_log(queue.telling, log);
    for (size_t i = 0; i < queue.count; i++)
        has = has || same_log(&queue.lines[(queue.first + i) % LOG_QUEUE_LINES].log, log);
    return has;
}

void log_queue_settle(const struct log *log)
{
    if (is_here) { /* it cannot wait for itself, and returning would let it use what weir_close() frees */
        fputs("weir: weir_close() was called from the log hook, for which it waits\n", stderr);
        abort();
    }
    lock_take(&queue.mutex);
    while (queue_has(log))
        pthread_cond_wait(&queue.told, &queue.mutex.mutex);
    lock_give(&queue.mutex);
}
