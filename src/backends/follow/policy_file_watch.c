/* policy_file_watch.c - the thread that follows a policy file.
 *
 * A file can be written in place, replaced by rename, deleted and created again, or be a link that is changed to
 * lead elsewhere, as Kubernetes swaps `..data`. In each case something happens in the folder of the path, or in
 * the folder of the real file when all links are followed. So inotify watches those two folders, not the file. An
 * event only says that it is time to look; the inode, size and times say whether the file has changed.
 *
 * Half a file may be a valid one, and an empty one ends all its overrides. So a file that is being written is left alone
 * until its writer closes it or has paused for a while, and any file is read only when it has been the same for a
 * moment: its inode, size, times and content.
 *
 * inotify misses changes on network file systems and in links further up, and its watches can be used up. So the
 * thread also looks at the file every other second.
 */
#include "backends/follow/sources.h"

#include "backends/shared/files.h"
#include "backends/shared/follow_thread.h"
#include "core/ground/arith.h"
#include "core/ground/clock.h"
#include "core/ground/hash.h"
#include "core/policy/policy_list.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <unistd.h>

#define STILL_US 100000           /* how long a file must have been the same before it is read */
#define EVENTS_US 20000           /* least time between looks in a folder with constant events */
#define WRITING_MOST_US 2000000   /* longest wait for a writer that does nothing */
#define LOOK_US (2 * WEIR_SECOND) /* time between looks without events */

#define EVENTS                                                                                           \
    (IN_CREATE | IN_MODIFY | IN_CLOSE_WRITE | IN_MOVED_FROM | IN_MOVED_TO | IN_DELETE | IN_DELETE_SELF | \
     IN_MOVE_SELF | IN_ATTRIB)

/* The fields that distinguish a file from another and from an earlier version. */
struct look {
    int error;    /* errno of a file that is not there; 0: it is, or nothing is known yet */
    bool is_file; /* opening a pipe, for example, would block */
    dev_t device;
    ino_t inode;
    off_t size;
    struct timespec modified, changed;
    uint64_t content; /* a hash; only in `seen`, of a file that is about to be read */
};

/* A watched folder, and the file's name in it. */
struct folder {
    int watch; /* -1: none */
    char path[PATH_MAX];
    char name[NAME_MAX + 1];
};

/* All of it is the thread's, except what is constant: `path`, `thread` and inotify_fd. */
struct policy_watch {
    struct follow_thread thread;
    char *path;
    int inotify_fd; /* -1: not available */

    struct folder folders[2]; /* the path's and the real file's */
    struct look read, seen;   /* at the last reading; at the last look */
    bool is_known;            /* the last reading succeeded */
    bool has_events;          /* since the last look */
    int64_t written_us;       /* time of a write that was not closed yet; 0: none */
    int64_t looked_us;        /* time of the last look; 0: none yet */
    int64_t changed_us;       /* time of the look that first saw `seen`, which is to be acted on; 0: that is done */
};

/* ---- The file ---- */

static bool watch_looks_equal(const struct look *a, const struct look *b)
{
    return a->error == b->error && a->device == b->device && a->inode == b->inode && a->size == b->size &&
           a->modified.tv_sec == b->modified.tv_sec && a->modified.tv_nsec == b->modified.tv_nsec &&
           a->changed.tv_sec == b->changed.tv_sec && a->changed.tv_nsec == b->changed.tv_nsec;
}

/* Describe the file, following links. */
static void watch_stat(const char *path, struct look *out)
{
    struct stat stat_now;
    *out = (struct look){ .size = 0 };
    if (stat(path, &stat_now) != 0) {
        out->error = errno;
        return;
    }
    out->is_file = S_ISREG(stat_now.st_mode);
    out->device = stat_now.st_dev;
    out->inode = stat_now.st_ino;
    out->size = stat_now.st_size;
    out->modified = stat_now.st_mtim;
    out->changed = stat_now.st_ctim;
}

/* Return a hash of the file's content. File systems whose times are coarse do not show every write. */
static uint64_t watch_hash(const char *path)
{
    static const size_t room = 65536;
    struct hash_secret so_far = { 0, 0 };
    FILE *file = fopen(path, "re");
    char *bytes = file ? malloc(room) : NULL;
    for (size_t len; bytes && (len = fread(bytes, 1, room, file)) > 0; so_far.k1++)
        so_far.k0 = siphash13(&so_far, bytes, len);
    free(bytes);
    if (file)
        fclose(file);
    return so_far.k0;
}

/* Read the file and report the result. False: it changed during that. */
static bool watch_read(struct policy_watch *watch, const struct look *before)
{
    char sentence[LOG_LINE_SIZE] = "";
    struct policy_list list;
    struct look after;
    int error = policy_list_read(watch->path, &list, (struct message){ sentence, sizeof sentence });
    watch_stat(watch->path, &after);
    const bool is_whole = watch_looks_equal(before, &after);
    const bool is_list = error == WEIR_OK;
    if (is_whole && is_list)
        error = follow_policies(watch->thread.limiter, WEIR_FOLLOW_POLICY_FILE, list.entries, list.count);
    else if (is_whole)
        follow_failed(watch->thread.limiter, WEIR_FOLLOW_POLICY_FILE, "%s", sentence);
    if (is_list)
        policy_list_free(&list);
    if (!is_whole)
        return false;
    watch->is_known = !error;
    /* A good file, or one with a bad line, is not read again until it changes; after any other failure it is, at
     * the next look. */
    watch->read = error == WEIR_OK || error == WEIR_EINVAL ? *before : (struct look){ .size = 0 };
    return true;
}

/* Look at the file and read it if it has changed, but not for a while. The first look reads it at once, as weir_open()
 * did a moment before. */
static void watch_look(struct policy_watch *watch, int64_t now_us)
{
    struct look now;
    watch_stat(watch->path, &now);
    const bool is_read = now.is_file && watch_looks_equal(&now, &watch->read);
    if (now.is_file && !is_read)
        now.content = watch_hash(watch->path);
    if (watch->looked_us != 0 &&
        (!watch_looks_equal(&now, &watch->seen) || (!is_read && now.content != watch->seen.content)))
        watch->changed_us = now_us;
    watch->seen = now;
    if (watch->changed_us != 0 && now_us - watch->changed_us < STILL_US)
        return;
    watch->changed_us = 0;
    if (!now.is_file) {
        follow_failed(watch->thread.limiter, WEIR_FOLLOW_POLICY_FILE, "%s: %s", watch->path,
                      now.error ? strerror(now.error) : "not a file");
        watch->is_known = false;
        watch->read = (struct look){ .size = 0 };
    } else if (is_read) {
        if (watch->is_known)
            follow_confirmed(watch->thread.limiter, WEIR_FOLLOW_POLICY_FILE);
    } else if (!watch_read(watch, &now)) {
        watch->changed_us = now_us;
    }
}

/* ---- Its folders ---- */

/* Watch the folder of `path`; another one may have that name by now. */
static void watch_folder(struct policy_watch *watch, struct folder *folder, const char *path)
{
    const char *name = strrchr(path, '/') + 1; /* the path is absolute */
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
    watch_folder(watch, &watch->folders[0], watch->path);
    if (realpath(watch->path, real))
        watch_folder(watch, &watch->folders[1], real);
}

static bool watch_is_empty(const char *path)
{
    struct look now;
    watch_stat(path, &now);
    return now.error == 0 && now.size == 0;
}

static void watch_take_event(struct policy_watch *watch, const struct inotify_event *event, int64_t now_us)
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
    watch->has_events = true;
    if (!is_ours)
        return;
    if (event->mask & IN_MODIFY || (event->mask & IN_CREATE && watch_is_empty(watch->path)))
        watch->written_us = now_us;
    else if (event->mask & (IN_CLOSE_WRITE | IN_MOVED_TO | IN_MOVED_FROM | IN_DELETE))
        watch->written_us = 0;
}

static void watch_take_events(struct policy_watch *watch, int64_t now_us)
{
    _Alignas(struct inotify_event) char buffer[4096];
    ssize_t len;
    while (watch->inotify_fd >= 0 && (len = read(watch->inotify_fd, buffer, sizeof buffer)) > 0) {
        const struct inotify_event *event;
        for (char *at = buffer; at < buffer + len; at += sizeof *event + event->len) {
            event = (const struct inotify_event *)(void *)at;
            watch_take_event(watch, event, now_us);
        }
    }
}

/* ---- The thread ---- */

static int64_t watch_due_us(const struct policy_watch *watch)
{
    if (watch->looked_us == 0)
        return 0;
    if (watch->written_us != 0)
        return watch->written_us + WRITING_MOST_US;
    if (watch->has_events)
        return watch->looked_us + EVENTS_US;
    return watch->changed_us != 0 ? watch->changed_us + STILL_US : watch->looked_us + LOOK_US;
}

static void *watch_run(void *user)
{
    struct policy_watch *watch = user;
    while (!follow_thread_ends(&watch->thread)) {
        const int64_t now_us = clock_boot_us();
        watch_take_events(watch, now_us);
        if (now_us >= watch_due_us(watch)) {
            watch->written_us = 0;
            watch->has_events = false;
            watch_folders(watch); /* before the look, so that no change falls between the two */
            watch_look(watch, now_us);
            watch->looked_us = now_us;
        }
        follow_thread_wait(&watch->thread, watch->inotify_fd, watch_due_us(watch));
    }
    return NULL;
}

/* ---- Beginning and end ---- */

static void watch_abandon(struct follow_thread *thread)
{
    struct policy_watch *watch = (struct policy_watch *)thread;
    if (watch->inotify_fd >= 0)
        close(watch->inotify_fd);
    watch->inotify_fd = -1;
}

static void watch_destroy(struct follow_thread *thread, bool ended)
{
    struct policy_watch *watch = (struct policy_watch *)thread;
    (void)ended;
    watch_abandon(thread);
    free(watch->path);
    free(watch);
}

int policy_file_follow(const char *path, struct weir *limiter)
{
    struct policy_watch *watch = calloc(1, sizeof *watch);
    if (!watch)
        return follow_thread_refuse(limiter, path, WEIR_ENOMEM, NULL);
    watch->thread.limiter = limiter;
    watch->thread.destroy = watch_destroy;
    watch->thread.abandon = watch_abandon;
    watch->folders[0].watch = watch->folders[1].watch = -1;
    watch->inotify_fd = inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
    if (watch->inotify_fd < 0)
        log_line(&limiter->log, WEIR_LOG_WARNING, "%s is checked only every 2 s, without inotify: %s", path,
                 strerror(errno));
    return follow_thread_start(&watch->thread, path_absolute(path, &watch->path), path, watch_run);
}
