/* policy_file_watch.c - a thread that sees to a policy file.
 *
 * A file is written in place, replaced by rename, deleted and made again, or is a link that comes to lead elsewhere, as
 * Kubernetes swaps `..data`. What all these have in common is that something happens in the folder that the path names,
 * or in the folder where the file is when all links are followed: so those two are watched, not the file. What happened
 * says no more than that it is time to look; whether the file is another, its inode, size and times say.
 *
 * A file that is being written is left alone until its writer closes it, or has done nothing for a while: half a file
 * may be a valid one. After any event a moment goes by, so that several that belong together are one change.
 *
 * inotify does not tell of everything (network file systems, links further up), and may be used up. So the file is
 * looked at every other second as well, and what has changed then is read if it is the same at the next look.
 */
#include "backends/follow/policy_file_watch.h"

#include "backends/shared/follow_thread.h"
#include "core/ground/arith.h"
#include "core/ground/clock.h"
#include "core/follow/follow.h"
#include "core/policy/policy_list.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <unistd.h>

#define QUIET_US 20000            /* so long without an event before the file is read ... */
#define BUSY_MOST_US 500000       /* ... but not later than this, for a folder where something happens all the time */
#define WRITING_MOST_US 2000000   /* a writer who has done nothing for so long is not waited for */
#define LOOK_US (2 * WEIR_SECOND) /* between two looks without an event */

#define EVENTS                                                                                           \
    (IN_CREATE | IN_MODIFY | IN_CLOSE_WRITE | IN_MOVED_FROM | IN_MOVED_TO | IN_DELETE | IN_DELETE_SELF | \
     IN_MOVE_SELF | IN_ATTRIB)

/* What tells a file from another, or from itself before it was changed; all 0: there is none. */
struct look {
    bool is_file; /* a pipe, say, would be waited for */
    dev_t device;
    ino_t inode;
    off_t size;
    struct timespec modified, changed;
};

/* A folder that is watched, and the file's name in it. */
struct folder {
    int watch; /* -1: none */
    char path[PATH_MAX];
    char name[NAME_MAX + 1];
};

/* The thread's alone, but for what is constant: `limiter`, `path`, `thread` and inotify_fd. */
struct policy_watch {
    struct follower follower;
    struct weir *limiter;
    char *path;
    struct follow_thread thread;
    int inotify_fd; /* -1: not to be had */

    struct folder folders[2]; /* that of the path, and that of the file itself */
    struct look read, seen;   /* when it was read last; when it was looked at last */
    bool is_known;            /* the last reading was good */
    int64_t first_us;         /* of the events since the last look, the first; 0: there was none */
    int64_t last_us;          /* and the last */
    int64_t written_us;       /* when somebody wrote who has not closed it since; 0: nobody does */
    int64_t looked_us;        /* the last look; 0: none yet */
};

/* ---- The file ---- */

static bool looks_equal(const struct look *a, const struct look *b)
{
    return a->device == b->device && a->inode == b->inode && a->size == b->size &&
           a->modified.tv_sec == b->modified.tv_sec && a->modified.tv_nsec == b->modified.tv_nsec &&
           a->changed.tv_sec == b->changed.tv_sec && a->changed.tv_nsec == b->changed.tv_nsec;
}

/* Links are followed. False: there is no such file, errno says why. */
static bool look_at(const char *path, struct look *out)
{
    struct stat stat_now;
    *out = (struct look){ .size = 0 };
    if (stat(path, &stat_now) != 0)
        return false;
    out->is_file = S_ISREG(stat_now.st_mode);
    out->device = stat_now.st_dev;
    out->inode = stat_now.st_ino;
    out->size = stat_now.st_size;
    out->modified = stat_now.st_mtim;
    out->changed = stat_now.st_ctim;
    return true;
}

/* True: it was read, and what it says has been reported; false: it changed meanwhile. */
static bool read_file(struct policy_watch *watch, const struct look *before)
{
    char sentence[LOG_LINE_SIZE] = "";
    struct policy_list list;
    struct look after;
    int error = policy_list_read(watch->path, &list, (struct message){ sentence, sizeof sentence });
    const bool is_whole = look_at(watch->path, &after) && looks_equal(before, &after);
    const bool is_list = error == WEIR_OK;
    if (is_whole && is_list)
        error = follow_policies(watch->limiter, WEIR_FOLLOW_POLICY_FILE, list.entries, list.count);
    else if (is_whole)
        follow_failed(watch->limiter, WEIR_FOLLOW_POLICY_FILE, "%s", sentence);
    if (is_list)
        policy_list_free(&list);
    if (!is_whole)
        return false;
    watch->is_known = !error;
    /* What is known of it, a bad line included, stays so until it changes. Else it is read again at the next look. */
    watch->read = error == WEIR_OK || error == WEIR_EINVAL ? *before : (struct look){ .size = 0 };
    return true;
}

/* The file may have changed. `by_event`: what is not as it was is not still changing, as far as can be told. */
static void look(struct policy_watch *watch, bool by_event)
{
    struct look now;
    watch->first_us = 0;
    const bool is_there = look_at(watch->path, &now);
    if (!is_there || !now.is_file) {
        follow_failed(watch->limiter, WEIR_FOLLOW_POLICY_FILE, "%s: %s", watch->path,
                      is_there ? "not a file" : strerror(errno));
        watch->is_known = false;
        watch->read = (struct look){ .size = 0 };
    } else if (looks_equal(&now, &watch->read)) {
        if (watch->is_known)
            follow_confirmed(watch->limiter, WEIR_FOLLOW_POLICY_FILE);
    } else if ((by_event || looks_equal(&now, &watch->seen)) && !read_file(watch, &now)) {
        watch->first_us = watch->last_us = clock_boot_us();
    }
    watch->seen = now;
}

/* ---- Its folders ---- */

/* A folder of that path may be another by now. */
static void folder_watch(struct policy_watch *watch, struct folder *folder, const char *path)
{
    const char *name = strrchr(path, '/') + 1; /* it is absolute */
    snprintf(folder->path, sizeof folder->path, "%.*s", (int)(name - path), path);
    snprintf(folder->name, sizeof folder->name, "%s", name);
    const int before = folder->watch;
    folder->watch = inotify_add_watch(watch->inotify_fd, folder->path, EVENTS | IN_ONLYDIR);
    if (before >= 0 && before != watch->folders[0].watch && before != watch->folders[1].watch)
        inotify_rm_watch(watch->inotify_fd, before);
}

static void watch_folders(struct policy_watch *watch)
{
    char real[PATH_MAX];
    if (watch->inotify_fd < 0)
        return;
    folder_watch(watch, &watch->folders[0], watch->path);
    if (realpath(watch->path, real))
        folder_watch(watch, &watch->folders[1], real);
}

static bool is_empty(const char *path)
{
    struct look now;
    return look_at(path, &now) && now.size == 0;
}

static void take_event(struct policy_watch *watch, const struct inotify_event *event, int64_t now_us)
{
    bool is_ours = false;
    for (size_t i = 0; i < 2; i++) {
        struct folder *folder = &watch->folders[i];
        if (folder->watch != event->wd)
            continue;
        is_ours = is_ours || (event->len > 0 && strcmp(event->name, folder->name) == 0);
        if (event->mask & IN_IGNORED)
            folder->watch = -1;
    }
    watch->last_us = now_us;
    if (watch->first_us == 0)
        watch->first_us = now_us;
    if (!is_ours)
        return;
    if (event->mask & IN_MODIFY || (event->mask & IN_CREATE && is_empty(watch->path)))
        watch->written_us = now_us;
    else if (event->mask & (IN_CLOSE_WRITE | IN_MOVED_TO | IN_MOVED_FROM | IN_DELETE))
        watch->written_us = 0;
}

static void take_events(struct policy_watch *watch, int64_t now_us)
{
    _Alignas(struct inotify_event) char buffer[4096];
    ssize_t len;
    while (watch->inotify_fd >= 0 && (len = read(watch->inotify_fd, buffer, sizeof buffer)) > 0) {
        const struct inotify_event *event;
        for (char *at = buffer; at < buffer + len; at += sizeof *event + event->len) {
            event = (const struct inotify_event *)(void *)at;
            take_event(watch, event, now_us);
        }
    }
}

/* ---- The thread ---- */

static int64_t due_us(const struct policy_watch *watch)
{
    if (watch->looked_us == 0)
        return 0;
    if (watch->written_us != 0)
        return watch->written_us + WRITING_MOST_US;
    if (watch->first_us != 0)
        return min_of(watch->last_us + QUIET_US, watch->first_us + BUSY_MOST_US);
    return watch->looked_us + LOOK_US;
}

static void *run(void *user)
{
    struct policy_watch *watch = user;
    while (!follow_thread_ends(&watch->thread)) {
        const int64_t now_us = clock_boot_us();
        take_events(watch, now_us);
        if (now_us >= due_us(watch)) {
            const bool by_event = watch->first_us != 0 || watch->looked_us == 0;
            watch->written_us = 0;
            watch->looked_us = now_us;
            watch_folders(watch); /* first, so that nothing happens unseen between the two */
            look(watch, by_event);
        }
        follow_thread_wait(&watch->thread, watch->inotify_fd, due_us(watch));
    }
    return NULL;
}

static void close_inotify(struct policy_watch *watch)
{
    if (watch->inotify_fd >= 0)
        close(watch->inotify_fd);
    watch->inotify_fd = -1;
}

static void watch_free(struct policy_watch *watch)
{
    close_inotify(watch);
    free(watch->path);
    free(watch);
}

static void end(struct follower *follower)
{
    struct policy_watch *watch = (struct policy_watch *)(void *)follower; /* its first member */
    follow_thread_end(&watch->thread);
    watch_free(watch);
}

static void abandon(struct follower *follower)
{
    struct policy_watch *watch = (struct policy_watch *)(void *)follower;
    follow_thread_abandon(&watch->thread);
    close_inotify(watch);
}

/* A program may go to another folder later. WEIR_OK, WEIR_ENOMEM, or WEIR_EIO and errno: the folder cannot be told. */
static int absolute(const char *path, char **out)
{
    char folder[PATH_MAX] = "";
    const bool is_relative = path[0] != '/';
    if (is_relative && !getcwd(folder, sizeof folder))
        return WEIR_EIO;
    const size_t size = strlen(folder) + strlen(path) + 2;
    char *whole = malloc(size);
    if (!whole)
        return WEIR_ENOMEM;
    snprintf(whole, size, "%s%s%s", folder, is_relative ? "/" : "", path);
    *out = whole;
    return WEIR_OK;
}

static int start(struct policy_watch *watch, const char *path)
{
    int error = absolute(path, &watch->path);
    const char *why = strerror(errno);
    if (!error) {
        error = follow_thread_start(&watch->thread, run, watch);
        why = "no thread or descriptor to be had";
    }
    if (error)
        log_line(&watch->limiter->log, WEIR_LOG_ERROR, "%s cannot be followed: %s", path,
                 error == WEIR_EIO ? why : weir_strerror(error));
    return error;
}

int policy_file_follow(const char *path, struct weir *limiter)
{
    struct policy_watch *watch = calloc(1, sizeof *watch);
    if (!watch)
        return WEIR_ENOMEM;
    watch->limiter = limiter;
    watch->follower.end = end;
    watch->follower.abandon = abandon;
    watch->folders[0].watch = watch->folders[1].watch = -1;
    watch->inotify_fd = inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
    if (watch->inotify_fd < 0)
        log_line(&limiter->log, WEIR_LOG_WARNING, "%s is only looked at every other second: inotify: %s", path,
                 strerror(errno));
    int error = start(watch, path);
    if (error) {
        watch_free(watch);
        return error;
    }
    follow_add(limiter, &watch->follower);
    return WEIR_OK;
}
