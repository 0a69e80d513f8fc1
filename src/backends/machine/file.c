/* file.c - makes, checks and maps the file in which all processes of a machine count. */
#include "backends/machine/file.h"

#include "backends/shared/huge.h"
#include "core/ground/clock.h"
#include "core/ground/forks.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define NAMES_FOLDER "/dev/shm/"
#define OPEN_FILES_FOLDER \
    "/proc/self/fd/"               /* its links are the kernel's: no other process can make them lead elsewhere */
#define DOOR_AT (INT64_C(1) << 48) /* the byte that is held to enter; those of the slots follow */
#define SLOT_BITS 16
#define DOOR_PAUSE_NS 1000000

_Static_assert(MACHINE_SLOTS < 1 << SLOT_BITS, "a slot fits into the word of a lock");

/* Write the sentence, and return the error. */
__attribute__((format(printf, 3, 4))) static int file_refuse(struct message why, int error, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    if (why.size > 0)
        vsnprintf(why.text, why.size, format, arguments);
    va_end(arguments);
    return error;
}

/* ---- Who uses it ---- */

static bool file_lock(int fd, int command, short type, int64_t from, int64_t len)
{
    struct flock range = { .l_type = type, .l_whence = SEEK_SET, .l_start = from, .l_len = len };
    int result;
    do
        result = fcntl(fd, command, &range);
    while (result != 0 && errno == EINTR);
    return result == 0;
}

static bool file_take_byte(int fd, int64_t at)
{
    return file_lock(fd, F_OFD_SETLK, F_WRLCK, at, 1);
}

/* Take the door, which other processes keep while they open the file. 0, or an error: ETIMEDOUT. */
static int door_close(int fd, int64_t patience_us)
{
    const int64_t until_us = clock_monotonic_us() + patience_us;
    while (!file_take_byte(fd, DOOR_AT)) {
        if (errno != EAGAIN && errno != EACCES)
            return errno;
        if (clock_monotonic_us() >= until_us)
            return ETIMEDOUT;
        nanosleep(&(struct timespec){ .tv_nsec = DOOR_PAUSE_NS }, NULL);
    }
    return 0;
}

/* Say who has the door. The file may be empty or another program's, so it is written when it is known to be weir's. */
static void door_sign(int fd)
{
    const uint64_t pid = (uint64_t)getpid();
    if (pwrite(fd, &pid, sizeof pid, offsetof(struct machine_header, door_pid)) != sizeof pid)
        errno = 0; /* it is for people */
}

void file_entered(const struct machine_file *file)
{
    atomic_store_explicit(&file_header(file)->door_pid, 0, memory_order_relaxed);
    file_lock(file->fd, F_OFD_SETLK, F_UNLCK, DOOR_AT, 1);
}

/* True if no other process has a slot. The caller holds the door. */
static bool file_is_unused(int fd)
{
    const bool unused = file_lock(fd, F_OFD_SETLK, F_WRLCK, DOOR_AT + 1, MACHINE_SLOTS);
    if (unused)
        file_lock(fd, F_OFD_SETLK, F_UNLCK, DOOR_AT + 1, MACHINE_SLOTS);
    return unused;
}

/* Take a free slot. Its turn begins at random, so that no damaged word of a lock names a process that lives. */
static bool file_take_slot(struct machine_file *file)
{
    struct hash_secret chance;
    if (hash_secret_draw(&chance) != 0)
        return false;
    for (uint64_t i = 0; i < MACHINE_SLOTS; i++) {
        const uint64_t number = (chance.k1 + i) % MACHINE_SLOTS;
        struct machine_slot *slot = &file_header(file)->slots[number];
        if (!file_take_byte(file->fd, DOOR_AT + 1 + (int64_t)number))
            continue;
        uint64_t turn = chance.k0 >> (SLOT_BITS + 1) | UINT64_C(1) << 40 | 3;
        turn += turn == atomic_load_explicit(&slot->turn, memory_order_relaxed);
        atomic_store_explicit(&slot->turn, turn, memory_order_release);
        atomic_store_explicit(&slot->pid, (uint64_t)getpid(), memory_order_relaxed);
        file->owner = turn << SLOT_BITS | number;
        return true;
    }
    return false;
}

bool file_owner_lives(const struct machine_file *file, uint64_t owner)
{
    const uint64_t number = owner & ((1 << SLOT_BITS) - 1);
    if (owner == file->owner)
        return true;
    if (number >= MACHINE_SLOTS ||
        atomic_load_explicit(&file_header(file)->slots[number].turn, memory_order_acquire) != owner >> SLOT_BITS)
        return false;
    struct flock range = {
        .l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = DOOR_AT + 1 + (int64_t)number, .l_len = 1
    };
    return fcntl(file->fd, F_OFD_GETLK, &range) != 0 || range.l_type != F_UNLCK;
}

/* ---- Descriptions of the open file ---- */

/* Return a descriptor of another description of the file, or -1. */
static int file_open_again(int fd)
{
    char path[64];
    snprintf(path, sizeof path, OPEN_FILES_FOLDER "%d", fd);
    return open(path, O_RDWR | O_CLOEXEC);
}

/* Map the page that keeps the description, and with it the locks, for this process alone. False: it cannot be. */
static bool file_anchor(struct machine_file *file)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    void *anchor = mmap(NULL, page, PROT_NONE, MAP_SHARED, file->fd, 0);
    file->anchor = NULL;
    if (anchor == MAP_FAILED)
        return false;
    if (madvise(anchor, page, MADV_DONTFORK) != 0) {
        munmap(anchor, page);
        return false;
    }
    file->anchor = anchor;
    return true;
}

/* Give up the description, and with it the locks. */
static void file_leave(struct machine_file *file)
{
    forks_hold();
    if (file->anchor)
        munmap(file->anchor, (size_t)sysconf(_SC_PAGESIZE));
    file->anchor = NULL;
    if (file->fd >= 0)
        close(file->fd);
    file->fd = -1;
    forks_release();
}

void file_drop_in_child(struct machine_file *file)
{
    file->anchor = NULL; /* it was not inherited */
    if (file->fd >= 0)
        close(file->fd);
    file->fd = -1;
}

bool file_begin_in_child(struct machine_file *file)
{
    const int parents = file->fd;
    if (parents < 0)
        return false;
    file->fd = file_open_again(parents);
    const bool is_in = file->fd >= 0 && file_anchor(file) && file_take_slot(file);
    close(parents);
    if (!is_in)
        file_drop_in_child(file);
    return is_in;
}

/* ---- What it is ---- */

static uint64_t file_sum(const struct machine_facts *facts)
{
    return machine_sum(facts, offsetof(struct machine_facts, sum));
}

/* Read which boot this is, and Unix time at its beginning. */
static void file_read_boot(struct machine_facts *facts)
{
    char text[64] = { 0 };
    struct timespec boot, now;
    const int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
    if (fd >= 0 && read(fd, text, sizeof text - 1) < 0)
        text[0] = '\0';
    if (fd >= 0)
        close(fd);
    facts->boot[0] = machine_sum(text, sizeof text);
    facts->boot[1] = machine_sum(text, sizeof text / 2);
    clock_gettime(CLOCK_REALTIME, &now);
    clock_gettime(CLOCK_BOOTTIME, &boot);
    facts->epoch_us = (now.tv_sec - boot.tv_sec) * (int64_t)1000000 + now.tv_nsec / 1000 - boot.tv_nsec / 1000;
}

static uint64_t file_root(uint64_t value)
{
    uint64_t root = 0;
    while ((root + 1) * (root + 1) <= value)
        root++;
    return root;
}

#define FEWEST_CELLS 1888 /* enough for the longest key with two states of the largest size, and a 64th beside it */

_Static_assert(MACHINE_CELL_CONTENT + (FEWEST_CELLS - FEWEST_CELLS / 64 - 1) * MACHINE_MORE_CONTENT >=
                   2 * STATE_MAX_WORDS + WEIR_MAX_KEY_LEN / 8,
               "there are so many cells");

/* Keys spread over the stripes by chance: six standard deviations of room let a stripe hold its part in practice. */
static void file_size(struct machine_facts *facts, int64_t max_keys)
{
    uint64_t keys = (uint64_t)max_keys;
    const bool has_few = keys <= MACHINE_FEW_KEYS;
    facts->max_keys = keys;
    facts->stripes = 1;
    while (facts->stripes < (has_few ? MACHINE_FEW_STRIPES : MACHINE_MAX_STRIPES) &&
           keys / (2 * facts->stripes) >= (has_few ? MACHINE_FEW_KEYS_PER_STRIPE : MACHINE_KEYS_PER_STRIPE))
        facts->stripes *= 2;
    keys = (keys + facts->stripes - 1) / facts->stripes;
    facts->cells = machine_rounded(keys + (facts->stripes > 1 ? 6 * file_root(keys) : 0), 16);
    if (facts->cells < FEWEST_CELLS)
        facts->cells = FEWEST_CELLS;
    facts->size = machine_level_at(facts, 1);
}

static bool file_write_facts(int fd, struct machine_facts *facts)
{
    facts->sum = file_sum(facts);
    /* The magic last: without it the file counts as begun. */
    const size_t from = sizeof facts->magic;
    return pwrite(fd, (const char *)facts + from, sizeof *facts - from, (off_t)from) ==
               (ssize_t)(sizeof *facts - from) &&
           pwrite(fd, facts, from, 0) == (ssize_t)from;
}

#define ALLOCATE_STEP (16 << 20) /* bytes: signals wait for no more */

/* Give a part of the file its memory. 0, or an error of the system. No signal disturbs a step: on some kernels,
 * a file in memory gives back what it got when one arrives, so a call that is repeated may never succeed. */
static int file_allocate(int fd, uint64_t from, uint64_t end)
{
    sigset_t all, before;
    int error = 0;
    sigfillset(&all);
    for (uint64_t at = from; at < end && !error;) {
        const uint64_t len = end - at < ALLOCATE_STEP ? end - at : ALLOCATE_STEP;
        pthread_sigmask(SIG_SETMASK, &all, &before);
        error = posix_fallocate(fd, (off_t)at, (off_t)len);
        pthread_sigmask(SIG_SETMASK, &before, NULL);
        if (!error)
            at += len;
        else if (error == EINTR) /* a debugger, or a freezer of processes */
            error = 0;
    }
    return error;
}

/* Make an empty file of the size that max_keys takes, with all its memory. */
static int file_make(int fd, const char *path, int64_t max_keys, struct machine_facts *facts, struct message why)
{
    const uint64_t begun = MACHINE_BEGUN;
    *facts = (struct machine_facts){ .magic = MACHINE_MAGIC, .version = MACHINE_VERSION, .layout = MACHINE_LAYOUT };
    file_size(facts, max_keys);
    file_read_boot(facts);
    int error = ftruncate(fd, 0) != 0 || pwrite(fd, &begun, sizeof begun, 0) != sizeof begun ? errno : 0;
    door_sign(fd);
    if (hash_secret_draw(&facts->secret) != 0)
        return file_refuse(why, WEIR_EIO, "shared: %s cannot be made: the system has no random numbers", path);
    if (!error)
        error = file_allocate(fd, 0, facts->size);
    if (!error && !file_write_facts(fd, facts))
        error = errno;
    if (!error)
        return WEIR_OK;
    if (ftruncate(fd, 0) != 0) /* the next process begins anew all the same */
        errno = 0;
    return file_refuse(why, WEIR_EIO,
                       "shared: %s of %" PRIu64 " bytes cannot be made (%s): free as much there, or lower max_keys",
                       path, facts->size, strerror(error));
}

static int file_check(int fd, const char *path, struct machine_facts *facts, struct message why)
{
    struct stat stat;
    uint64_t levels = 0;
    const ssize_t got = pread(fd, facts, sizeof *facts, 0);
    if (got != (ssize_t)sizeof *facts || facts->magic != MACHINE_MAGIC)
        return file_refuse(why, WEIR_ESTATE, "shared: %s is not a file of weir's; remove it or name another one", path);
    if (facts->version != MACHINE_VERSION || facts->layout != MACHINE_LAYOUT)
        return file_refuse(why, WEIR_ESTATE,
                           "shared: %s was made by a weir with another layout (version %" PRIu64 ", this is %d%s): stop"
                           " the programs that use it and remove it, or name another file",
                           path, facts->version, MACHINE_VERSION,
                           facts->version == MACHINE_VERSION ? ", built for another kind of processor" : "");
    struct machine_facts expected = *facts;
    if (facts->sum == file_sum(facts))
        file_size(&expected, (int64_t)(facts->max_keys & INT64_MAX));
    if (facts->sum != file_sum(facts) || memcmp(&expected, facts, sizeof expected) != 0 ||
        facts->max_keys > (uint64_t)MACHINE_MAX_KEYS)
        return file_refuse(why, WEIR_ESTATE,
                           "shared: the header of %s is damaged: stop the programs that use it and remove it", path);
    uint64_t size = facts->size;
    if (pread(fd, &levels, sizeof levels, offsetof(struct machine_header, levels)) == sizeof levels &&
        machine_levels_told(levels) > 0)
        size = machine_level_at(facts, machine_levels_told(levels));
    if (fstat(fd, &stat) != 0 || (uint64_t)stat.st_size < size)
        return file_refuse(why, WEIR_ESTATE,
                           "shared: %s has %" PRId64 " bytes instead of %" PRIu64
                           ": it was truncated or is damaged; stop the programs that use it and remove it",
                           path, (int64_t)stat.st_size, size);
    return WEIR_OK;
}

/* ---- Its rules ---- */

void file_look(struct machine_file *file)
{
    struct stat stat;
    unsigned known = file_levels(file), levels = known;
    if (fstat(file->fd, &stat) != 0)
        return;
    while (levels < MACHINE_LEVELS && (uint64_t)stat.st_size >= machine_level_at(&file->facts, levels + 1))
        levels++;
    while (known < levels && !atomic_compare_exchange_weak_explicit(&file->levels, &known, levels, memory_order_release,
                                                                    memory_order_acquire))
        ;
}

bool file_grow(struct machine_file *file)
{
    const unsigned levels = file_levels(file);
    struct rlimit most;
    struct stat stat;
    if (levels == MACHINE_LEVELS)
        return false;
    const uint64_t from = machine_level_at(&file->facts, levels), end = machine_level_at(&file->facts, levels + 1);
    if (getrlimit(RLIMIT_FSIZE, &most) == 0 && most.rlim_cur < end) /* the system would send SIGXFSZ */
        return false;
    if (fstat(file->fd, &stat) != 0 || (uint64_t)stat.st_size < from) /* it was truncated, which must not be hidden */
        return false;
    if (file_allocate(file->fd, from, end) != 0)
        return false;
    file_look(file);
    atomic_store_explicit(&file_header(file)->levels, (levels + 1) * LEVELS_WORD, memory_order_release);
    return true;
}

/* True if the file is empty, or a process died while it made it. */
static bool file_is_new(int fd)
{
    uint64_t magic = 0;
    const ssize_t got = pread(fd, &magic, sizeof magic, 0);
    return got == 0 || (got == sizeof magic && magic == MACHINE_BEGUN);
}

/* ---- Opening ---- */

static int file_check_rights(int fd, const char *path, struct message why)
{
    struct stat stat;
    if (fstat(fd, &stat) != 0 || !S_ISREG(stat.st_mode))
        return file_refuse(why, WEIR_EIO, "shared: %s is not a regular file", path);
    if (stat.st_uid != geteuid())
        return file_refuse(
            why, WEIR_EIO,
            "shared: %s belongs to user %u, not to this process's user %u: run all programs that use it as"
            " one user",
            path, (unsigned)stat.st_uid, (unsigned)geteuid());
    if ((stat.st_mode & 077) != 0)
        return file_refuse(why, WEIR_EIO,
                           "shared: %s may be used by other users (mode %03o): anyone who writes to it can lift limits;"
                           " run chmod 600 on it",
                           path, (unsigned)stat.st_mode & 0777);
    return WEIR_OK;
}

/* Return how many bytes are mapped: as many as the file ever has. */
static size_t file_reach(const struct machine_file *file)
{
    return (size_t)machine_level_at(&file->facts, MACHINE_LEVELS);
}

static void file_unmap(struct machine_file *file)
{
    guard_end(file->guard);
    huge_unmap(file->map, file_reach(file));
}

#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25 /* Linux 6.1; an older kernel refuses it */
#endif

/* Map `reach` bytes where huge pages can be mapped, of which the file has the first `size`. Copy a new one to huge
 * pages, so that decisions seldom miss the processor's cache of the addresses of pages. The kernel does so for memory,
 * not for a file on disk. The file has all its memory and no user yet, so no thread waits for the copy. NULL: it cannot
 * be mapped. */
static unsigned char *file_map(int fd, size_t reach, size_t size, bool is_new)
{
    void *place = huge_map(reach);
    if (!place)
        return NULL;
    forks_hold();                          /* no child inherits the second descriptor */
    const int again = file_open_again(fd); /* without /proc, no child can use the file, but it keeps the locks */
    void *map = mmap(place, reach, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, again >= 0 ? again : fd, 0);
    if (again >= 0)
        close(again);
    forks_release();
    if (map == MAP_FAILED) {
        const int code = errno;
        huge_unmap(place, reach);
        errno = code;
        return NULL;
    }
    if (is_new && size >= 2 * HUGE_BYTES && madvise(map, size, MADV_COLLAPSE) != 0)
        errno = 0; /* it stays on small pages */
    return map;
}

/* Enter the file, or make it. The door is held. */
static int file_enter(struct machine_file *file, const char *path, bool has_name, int64_t max_keys, struct message why)
{
    int error = file_check_rights(file->fd, path, why);
    file->is_alone = file_is_unused(file->fd);
    const bool is_new = !error && max_keys > 0 && file->is_alone && file_is_new(file->fd);
    if (is_new)
        error = file_make(file->fd, path, max_keys, &file->facts, why);
    if (!error)
        error = file_check(file->fd, path, &file->facts, why);
    if (error)
        return error;
    door_sign(file->fd);
    if (file->is_alone) {
        struct machine_facts now = file->facts;
        file_read_boot(&now);
        if (memcmp(now.boot, file->facts.boot, sizeof now.boot) != 0 && file_write_facts(file->fd, &now))
            file->facts = now;
    }
    file->map = file_map(file->fd, file_reach(file), file->facts.size, is_new);
    if (!file->map)
        return file_refuse(why, WEIR_ENOMEM, "shared: %s cannot be mapped (%s)", path, strerror(errno));
    file->guard = has_name ? guard_begin(file->map, file_reach(file)) : NULL;
    atomic_store_explicit(&file->levels, 1, memory_order_relaxed);
    file_look(file);
    if (has_name && !file->guard)
        error = WEIR_ENOMEM;
    else if (!file_anchor(file))
        error = WEIR_ENOMEM;
    else if (!file_take_slot(file))
        error = file_refuse(why, WEIR_EIO, "shared: %s is used by %d processes already, and has no room for more", path,
                            MACHINE_SLOTS);
    if (error)
        file_unmap(file);
    return error;
}

/* Return how long to wait for processes that are opening the file. */
static int64_t file_patience_us(int fd, int64_t max_keys, int64_t patience_us)
{
    struct machine_facts facts = { .size = 0 };
    struct stat stat;
    if (max_keys > 0)
        file_size(&facts, max_keys);
    if (fstat(fd, &stat) == 0 && (uint64_t)stat.st_size > facts.size)
        facts.size = (uint64_t)stat.st_size;
    const int64_t seconds = 1 + (int64_t)(facts.size / FILE_BYTES_PER_SECOND);
    return patience_us > seconds * FILE_PATIENCE_US ? patience_us : seconds * FILE_PATIENCE_US;
}

/* Say which process keeps the file from being opened. */
static int file_refuse_late(int fd, const char *path, int64_t patience_us, struct message why)
{
    uint64_t pid = 0;
    char name[32] = "another process";
    if (pread(fd, &pid, sizeof pid, offsetof(struct machine_header, door_pid)) == sizeof pid && pid != 0)
        snprintf(name, sizeof name, "process %" PRIu64, pid);
    return file_refuse(why, WEIR_ETIME,
                       "shared: %s cannot be opened: %s has been opening it for %" PRId64
                       " ms; if it was stopped, let it go on or end it",
                       path, name, patience_us / 1000);
}

int file_open(const char *shared, int64_t max_keys, int64_t patience_us, struct machine_file *out, struct message why)
{
    char path[4096];
    const bool is_name = shared && !strchr(shared, '/');
    const int len = snprintf(path, sizeof path, "%s%s", is_name ? NAMES_FOLDER : "", shared ? shared : "memory");
    if (len >= (int)sizeof path || (shared && !*shared))
        return file_refuse(why, WEIR_EINVAL, "option shared must be a path of 1 to %zu bytes", sizeof path - 1);
    const size_t number_at = strlen(OPEN_FILES_FOLDER);
    const bool is_open = strncmp(path, OPEN_FILES_FOLDER, number_at) == 0 && !strchr(path + number_at, '/');
    const int flags = O_RDWR | O_CLOEXEC | O_NONBLOCK | (max_keys > 0 ? O_CREAT : 0) | (is_open ? 0 : O_NOFOLLOW);
    forks_hold(); /* a child that inherits the descriptor finds it in *out */
    out->fd = shared ? open(path, flags, 0600) : memfd_create("weir", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    forks_release();
    if (out->fd < 0 && errno == ELOOP)
        return file_refuse(why, WEIR_EIO, "shared: %s is a symbolic link: name the file that it leads to", path);
    if (out->fd < 0)
        return file_refuse(why, WEIR_EIO, "shared: %s cannot be opened (%s)", path, strerror(errno));
    if (!shared && fchmod(out->fd, 0600) != 0) /* no other process has a name for it */
        errno = 0;
    patience_us = file_patience_us(out->fd, max_keys, patience_us);
    const int locked = door_close(out->fd, patience_us);
    out->path = shared && !is_open ? strdup(path) : NULL;
    int error = locked == ETIMEDOUT ? file_refuse_late(out->fd, path, patience_us, why)
                : locked != 0
                    ? file_refuse(why, WEIR_EIO, "shared: %s cannot be locked (%s): put it on a local file system",
                                  path, strerror(locked))
                    : file_enter(out, path, shared != NULL, max_keys, why);
    if (!error && !shared && fcntl(out->fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_SEAL) != 0) {
        error = file_refuse(why, WEIR_EIO, "shared: the size of the memory cannot be sealed (%s)", strerror(errno));
        file_unmap(out);
    }
    if (!error && shared && !is_open && !out->path) {
        file_unmap(out);
        error = WEIR_ENOMEM;
    }
    if (error) {
        file_leave(out);
        free(out->path);
    }
    return error;
}

bool file_is_gone(const struct machine_file *file)
{
    struct stat own, named;
    if (!file->path || file->fd < 0 || fstat(file->fd, &own) != 0)
        return false;
    if (own.st_nlink == 0)
        return true;
    if (file->path[0] != '/') /* the program may be in another folder by now */
        return false;
    return stat(file->path, &named) != 0 ? errno == ENOENT : named.st_dev != own.st_dev || named.st_ino != own.st_ino;
}

void file_close(struct machine_file *file)
{
    file_unmap(file);
    file_leave(file);
    free(file->path);
}
