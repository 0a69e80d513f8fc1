/* failing_calls.c - how calls fail, and which call does: see failing_calls.h. */
#include "failing_calls.h"

#include <errno.h>
#include <link.h>
#include <netdb.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

const char *const call_names[CALL_COUNT] = {
    [CALL_SOCKET] = "socket",
    [CALL_SOCKETPAIR] = "socketpair",
    [CALL_CONNECT] = "connect",
    [CALL_SEND] = "send",
    [CALL_RECV] = "recv",
    [CALL_POLL] = "poll",
    [CALL_PPOLL] = "ppoll",
    [CALL_SETSOCKOPT] = "setsockopt",
    [CALL_GETSOCKOPT] = "getsockopt",
    [CALL_FCNTL] = "fcntl",
    [CALL_EVENTFD] = "eventfd",
    [CALL_TIMERFD] = "timerfd_create",
    [CALL_READ] = "read",
    [CALL_READ_FILE] = "read of a file",
    [CALL_WRITE] = "write",
    [CALL_OPEN] = "open",
    [CALL_FSTAT] = "fstat",
    [CALL_STAT] = "stat",
    [CALL_FDOPEN] = "fdopen",
    [CALL_FOPEN] = "fopen",
    [CALL_REALPATH] = "realpath",
    [CALL_GETCWD] = "getcwd",
    [CALL_INOTIFY_INIT] = "inotify_init1",
    [CALL_INOTIFY_ADD] = "inotify_add_watch",
    [CALL_GETADDRINFO] = "getaddrinfo",
    [CALL_GETRANDOM] = "getrandom",
    [CALL_NANOSLEEP] = "nanosleep",
    [CALL_MEMBARRIER] = "membarrier",
    [CALL_FUTEX] = "futex",
    [CALL_THREAD] = "pthread_create",
    [CALL_THREAD_KEY] = "pthread_key_create",
    [CALL_THREAD_SET] = "pthread_setspecific",
    [CALL_ATFORK] = "pthread_atfork",
};

/* A socket may always report EAGAIN, as if it were full or empty. An eventfd never is full, so EAGAIN would wrongly
 * lose a wake-up. */
const struct call_form call_forms[] = {
    { CALL_SOCKET, "EMFILE", EMFILE, CALL_FAILS, false, false },
    { CALL_SOCKET, "ENOBUFS", ENOBUFS, CALL_FAILS, true, false },
    { CALL_SOCKETPAIR, "EMFILE", EMFILE, CALL_FAILS, false, false },
    { CALL_CONNECT, "ECONNREFUSED", ECONNREFUSED, CALL_FAILS, false, false },
    { CALL_CONNECT, "ETIMEDOUT", ETIMEDOUT, CALL_FAILS, false, false },
    { CALL_CONNECT, "EADDRNOTAVAIL", EADDRNOTAVAIL, CALL_FAILS, false, false },
    { CALL_CONNECT, "EAGAIN", EAGAIN, CALL_FAILS, false, false },
    { CALL_CONNECT, "EINTR", EINTR, CALL_IS_CUT, false, true },
    { CALL_SEND, "EPIPE", EPIPE, CALL_FAILS, false, false },
    { CALL_SEND, "ENOBUFS", ENOBUFS, CALL_FAILS, true, false },
    { CALL_SEND, "EINTR", EINTR, CALL_FAILS, false, true },
    { CALL_SEND, "EAGAIN", EAGAIN, CALL_FAILS, false, true },
    { CALL_SEND, "a byte", 1, CALL_IS_SHORT, false, false },
    { CALL_RECV, "ECONNRESET", ECONNRESET, CALL_FAILS, false, false },
    { CALL_RECV, "EINTR", EINTR, CALL_FAILS, false, true },
    { CALL_RECV, "EAGAIN", EAGAIN, CALL_FAILS, false, true },
    { CALL_RECV, "a byte", 1, CALL_IS_SHORT, false, false },
    { CALL_RECV, "the end", 0, CALL_IS_SHORT, false, false },
    { CALL_POLL, "ENOMEM", ENOMEM, CALL_FAILS, true, true },
    { CALL_POLL, "EINTR", EINTR, CALL_FAILS, false, true },
    { CALL_PPOLL, "ENOMEM", ENOMEM, CALL_FAILS, true, true },
    { CALL_PPOLL, "EINTR", EINTR, CALL_FAILS, false, true },
    { CALL_SETSOCKOPT, "ENOMEM", ENOMEM, CALL_FAILS, true, false },
    { CALL_GETSOCKOPT, "ENOBUFS", ENOBUFS, CALL_FAILS, true, false },
    { CALL_FCNTL, "EPERM", EPERM, CALL_FAILS, false, false },
    { CALL_EVENTFD, "EMFILE", EMFILE, CALL_FAILS, false, false },
    { CALL_EVENTFD, "ENOMEM", ENOMEM, CALL_FAILS, true, false },
    { CALL_TIMERFD, "EMFILE", EMFILE, CALL_FAILS, false, false },
    { CALL_READ, "EINTR", EINTR, CALL_FAILS, false, true },
    { CALL_READ_FILE, "EIO", EIO, CALL_FAILS, false, false },
    { CALL_READ_FILE, "EINTR", EINTR, CALL_FAILS, false, true },
    { CALL_READ_FILE, "a byte", 1, CALL_IS_SHORT, false, false },
    { CALL_WRITE, "EINTR", EINTR, CALL_FAILS, false, true },
    { CALL_OPEN, "EMFILE", EMFILE, CALL_FAILS, false, false },
    { CALL_OPEN, "EACCES", EACCES, CALL_FAILS, false, false },
    { CALL_FSTAT, "EIO", EIO, CALL_FAILS, false, false },
    { CALL_STAT, "EIO", EIO, CALL_FAILS, false, false },
    { CALL_STAT, "ENOENT", ENOENT, CALL_FAILS, false, false },
    { CALL_FDOPEN, "ENOMEM", ENOMEM, CALL_FAILS, true, false },
    { CALL_FOPEN, "EMFILE", EMFILE, CALL_FAILS, false, false },
    { CALL_REALPATH, "EIO", EIO, CALL_FAILS, false, false },
    { CALL_GETCWD, "ENOENT", ENOENT, CALL_FAILS, false, false },
    { CALL_INOTIFY_INIT, "EMFILE", EMFILE, CALL_FAILS, false, false },
    { CALL_INOTIFY_ADD, "ENOSPC", ENOSPC, CALL_FAILS, false, false },
    { CALL_GETADDRINFO, "EAI_AGAIN", EAI_AGAIN, CALL_FAILS, false, false },
    { CALL_GETADDRINFO, "EAI_MEMORY", EAI_MEMORY, CALL_FAILS, true, false },
    { CALL_GETADDRINFO, "EAI_SYSTEM", EAI_SYSTEM, CALL_FAILS, false, false },
    { CALL_GETRANDOM, "ENOSYS", ENOSYS, CALL_FAILS, false, false },
    { CALL_GETRANDOM, "EINTR", EINTR, CALL_FAILS, false, true },
    { CALL_GETRANDOM, "a byte", 1, CALL_IS_SHORT, false, false },
    { CALL_NANOSLEEP, "EINTR", EINTR, CALL_FAILS, false, true },
    { CALL_MEMBARRIER, "EPERM", EPERM, CALL_FAILS, false, false },
    { CALL_FUTEX, "EINTR", EINTR, CALL_FAILS, false, true },
    { CALL_THREAD, "EAGAIN", EAGAIN, CALL_FAILS, false, false },
    { CALL_THREAD_KEY, "EAGAIN", EAGAIN, CALL_FAILS, false, false },
    { CALL_THREAD_SET, "ENOMEM", ENOMEM, CALL_FAILS, true, false },
    { CALL_ATFORK, "ENOMEM", ENOMEM, CALL_FAILS, true, false },
};
const size_t call_form_count = sizeof call_forms / sizeof call_forms[0];

/* ---- The watch ---- */

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER; /* of all below */
static struct calls_record *noted;                        /* NULL: no thread watches */
static struct calls_plan planned;                         /* nth 0: no call fails */
static int64_t come;                                      /* calls from the planned site so far */
static bool relents;

static atomic_bool watches; /* true while a thread watches; a hint for calls before locks work */

static _Thread_local bool is_watcher;
static _Thread_local int paused;

/* The addresses of a sanitizer's library, whose calls are not weir's. */
enum { SANITIZERS_MOST = 4 };
static struct {
    uintptr_t begin, end;
} sanitizers[SANITIZERS_MOST];
static size_t sanitizer_count;

static int find_sanitizer(struct dl_phdr_info *library, size_t size, void *user)
{
    const char *name = strstr(library->dlpi_name, "san.so"); /* libasan, libtsan, libubsan, liblsan */
    for (size_t i = 0; name && i < library->dlpi_phnum && sanitizer_count < SANITIZERS_MOST; i++) {
        const ElfW(Phdr) *part = &library->dlpi_phdr[i];
        const uintptr_t begin = (uintptr_t)(library->dlpi_addr + part->p_vaddr);
        if (part->p_type != PT_LOAD || !(part->p_flags & PF_X))
            continue;
        sanitizers[sanitizer_count].begin = begin;
        sanitizers[sanitizer_count++].end = begin + (uintptr_t)part->p_memsz;
    }
    return 0;
}

static bool is_sanitizers(uintptr_t address)
{
    for (size_t i = 0; i < sanitizer_count; i++)
        if (address >= sanitizers[i].begin && address < sanitizers[i].end)
            return true;
    return false;
}

static void note(enum call call, uintptr_t address)
{
    for (size_t i = 0; i < noted->site_count; i++) {
        struct call_site *site = &noted->sites[i];
        if (site->call == call && site->address == address && site->by_watcher == is_watcher) {
            site->times++;
            return;
        }
    }
    if (noted->site_count < CALL_SITES_MOST)
        noted->sites[noted->site_count++] = (struct call_site){ call, address, is_watcher, 1 };
}

static bool is_due(enum call call, uintptr_t address)
{
    if (planned.nth == 0 || relents || planned.site.call != call)
        return false;
    const struct call_site *site = &planned.site;
    const bool is_there = site->address == 0 || (site->address == address && site->by_watcher == is_watcher);
    come += is_there;
    return (is_there && come == planned.nth) || (planned.stubborn && come >= planned.nth);
}

const struct call_form *calls_form(enum call call, const void *from)
{
    const struct call_form *form = NULL;
    if (!atomic_load_explicit(&watches, memory_order_relaxed) || paused > 0 || is_sanitizers((uintptr_t)from))
        return NULL;
    pthread_mutex_lock(&mutex);
    if (noted) {
        note(call, (uintptr_t)from);
        if (is_due(call, (uintptr_t)from)) {
            form = &call_forms[planned.form];
            noted->failed++;
        }
    }
    pthread_mutex_unlock(&mutex);
    return form;
}

struct calls_plan calls_plan_first(enum call call, bool stubborn)
{
    struct calls_plan plan = { .site.call = call, .nth = 1, .stubborn = stubborn };
    while (call_forms[plan.form].call != call)
        plan.form++;
    return plan;
}

int64_t calls_made(const struct calls_record *record, enum call call)
{
    int64_t sum = 0;
    for (size_t i = 0; i < record->site_count; i++)
        if (record->sites[i].call == call && record->sites[i].by_watcher)
            sum += record->sites[i].times;
    return sum;
}

void calls_watch(struct calls_record *record, const struct calls_plan *plan)
{
    pthread_mutex_lock(&mutex);
    memset(record, 0, sizeof *record);
    noted = record;
    planned = plan ? *plan : (struct calls_plan){ .nth = 0 };
    come = 0;
    relents = false;
    is_watcher = true;
    watches = true;
    pthread_mutex_unlock(&mutex);
}

static void relent(bool now)
{
    pthread_mutex_lock(&mutex);
    relents = now;
    pthread_mutex_unlock(&mutex);
}

void calls_relent(void)
{
    relent(true);
}

void calls_go_on(void)
{
    relent(false);
}

void calls_forget(void)
{
    pthread_mutex_lock(&mutex);
    noted = NULL;
    watches = false;
    is_watcher = false;
    pthread_mutex_unlock(&mutex);
}

void calls_pause(void)
{
    paused++;
}

void calls_resume(void)
{
    paused--;
}

/* ---- Initialisation ---- */

static void before_fork(void)
{
    pthread_mutex_lock(&mutex);
}

static void after_fork(void)
{
    pthread_mutex_unlock(&mutex);
}

void calls_begin(void)
{
    dl_iterate_phdr(find_sanitizer, NULL);
    pthread_atfork(before_fork, after_fork, after_fork);
}
