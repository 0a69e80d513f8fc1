/* failing_calls_made.c - the definitions that replace the system's functions: see failing_calls.h. */
#undef _FORTIFY_SOURCE /* its inline functions have the same names */
#include "failing_calls.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <netdb.h>
#include <poll.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/inotify.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

/* clang-format off */
#define ALL_REAL(X) \
    X(socket) X(socketpair) X(connect) X(send) X(recv) X(poll) X(ppoll) X(setsockopt) X(getsockopt) X(fcntl) \
    X(fcntl64) X(eventfd) X(timerfd_create) X(read) X(write) X(open) X(open64) X(fstat) X(stat) X(stat64) X(fdopen) \
    X(fopen) X(realpath) X(getcwd) X(inotify_init1) X(inotify_add_watch) X(getaddrinfo) X(getrandom) X(nanosleep) \
    X(syscall) X(pthread_create) X(pthread_key_create) X(pthread_setspecific) X(__register_atfork)
/* clang-format on */

/* Glibc links pthread_atfork() into each program; it calls this. Its fortified variants follow, without the checks. */
int __register_atfork(void (*before)(void), void (*in_parent)(void), void (*in_child)(void), void *library);
char *__realpath_chk(const char *path, char *resolved, size_t size);

#define DECLARE_REAL(name) static __typeof__(name) *real_##name;
ALL_REAL(DECLARE_REAL)

static void find(void *function, size_t size, const char *name)
{
    void *found = dlsym(RTLD_NEXT, name);
    if (!found)
        abort();
    memcpy(function, &found, size);
}

/* Runs before any thread starts. Earlier calls, from starting libraries, look up their functions themselves. */
#define FIND_REAL(name) find(&real_##name, sizeof real_##name, #name);
__attribute__((constructor)) static void find_all(void)
{
    ALL_REAL(FIND_REAL)
    calls_begin();
}

#define REAL(name) (real_##name ? (void)0 : find(&real_##name, sizeof real_##name, #name), real_##name)

/* The address that called the enclosing function. */
#define FORM(call) calls_form(call, __builtin_return_address(0))

/* For functions that fail with -1 and errno: true if the call must fail without effect. */
static bool fails(const struct call_form *form)
{
    if (form && form->way == CALL_FAILS)
        errno = form->error;
    return form && form->way == CALL_FAILS;
}

static size_t size_by(const struct call_form *form, size_t size)
{
    return form && form->way == CALL_IS_SHORT && size > (size_t)form->error ? (size_t)form->error : size;
}

static bool is_file(int fd)
{
    struct stat look;
    const int before = errno;
    const bool is = REAL(fstat)(fd, &look) == 0 && S_ISREG(look.st_mode);
    errno = before;
    return is;
}

int socket(int family, int type, int protocol)
{
    return fails(FORM(CALL_SOCKET)) ? -1 : REAL(socket)(family, type, protocol);
}

int socketpair(int family, int type, int protocol, int fds[2])
{
    return fails(FORM(CALL_SOCKETPAIR)) ? -1 : REAL(socketpair)(family, type, protocol, fds);
}

int connect(int fd, __CONST_SOCKADDR_ARG address, socklen_t len)
{
    const struct call_form *form = FORM(CALL_CONNECT);
    if (fails(form))
        return -1;
    const int result = REAL(connect)(fd, address, len);
    if (!form)
        return result;
    errno = form->error;
    return -1;
}

ssize_t send(int fd, const void *data, size_t size, int flags)
{
    const struct call_form *form = FORM(CALL_SEND);
    size_t sent = size_by(form, size);
    if (sent < size && size > 1024) /* byte by byte, the scripts take longer than the timeout on a busy machine */
        sent = size / 32;
    return fails(form) ? -1 : REAL(send)(fd, data, sent, flags);
}

ssize_t recv(int fd, void *data, size_t size, int flags)
{
    const struct call_form *form = FORM(CALL_RECV);
    return fails(form) ? -1 : form && size_by(form, size) == 0 ? 0 : REAL(recv)(fd, data, size_by(form, size), flags);
}

int poll(struct pollfd *fds, nfds_t count, int timeout_ms)
{
    return fails(FORM(CALL_POLL)) ? -1 : REAL(poll)(fds, count, timeout_ms);
}

int ppoll(struct pollfd *fds, nfds_t count, const struct timespec *timeout, const sigset_t *signals)
{
    return fails(FORM(CALL_PPOLL)) ? -1 : REAL(ppoll)(fds, count, timeout, signals);
}

int setsockopt(int fd, int level, int name, const void *value, socklen_t len)
{
    return fails(FORM(CALL_SETSOCKOPT)) ? -1 : REAL(setsockopt)(fd, level, name, value, len);
}

int getsockopt(int fd, int level, int name, void *restrict value, socklen_t *restrict len)
{
    return fails(FORM(CALL_GETSOCKOPT)) ? -1 : REAL(getsockopt)(fd, level, name, value, len);
}

/* The optional argument is an int or a pointer; both are forwarded in a pointer's size. */
int fcntl(int fd, int command, ...)
{
    va_list arguments;
    va_start(arguments, command);
    void *value = va_arg(arguments, void *);
    va_end(arguments);
    return fails(FORM(CALL_FCNTL)) ? -1 : REAL(fcntl)(fd, command, value);
}

int fcntl64(int fd, int command, ...)
{
    va_list arguments;
    va_start(arguments, command);
    void *value = va_arg(arguments, void *);
    va_end(arguments);
    return fails(FORM(CALL_FCNTL)) ? -1 : REAL(fcntl64)(fd, command, value);
}

int eventfd(unsigned count, int flags)
{
    return fails(FORM(CALL_EVENTFD)) ? -1 : REAL(eventfd)(count, flags);
}

int timerfd_create(clockid_t clock, int flags)
{
    return fails(FORM(CALL_TIMERFD)) ? -1 : REAL(timerfd_create)(clock, flags);
}

ssize_t read(int fd, void *data, size_t size)
{
    const struct call_form *form = FORM(is_file(fd) ? CALL_READ_FILE : CALL_READ);
    return fails(form) ? -1 : REAL(read)(fd, data, size_by(form, size));
}

ssize_t write(int fd, const void *data, size_t size)
{
    const struct call_form *form = is_file(fd) ? NULL : FORM(CALL_WRITE);
    return fails(form) ? -1 : REAL(write)(fd, data, size);
}

int open(const char *path, int flags, ...)
{
    va_list arguments;
    va_start(arguments, flags);
    const mode_t mode = flags & (O_CREAT | __O_TMPFILE) ? va_arg(arguments, mode_t) : 0;
    va_end(arguments);
    return fails(FORM(CALL_OPEN)) ? -1 : REAL(open)(path, flags, mode);
}

int open64(const char *path, int flags, ...)
{
    va_list arguments;
    va_start(arguments, flags);
    const mode_t mode = flags & (O_CREAT | __O_TMPFILE) ? va_arg(arguments, mode_t) : 0;
    va_end(arguments);
    return fails(FORM(CALL_OPEN)) ? -1 : REAL(open64)(path, flags, mode);
}

int fstat(int fd, struct stat *look)
{
    return fails(FORM(CALL_FSTAT)) ? -1 : REAL(fstat)(fd, look);
}

int stat(const char *restrict path, struct stat *restrict look)
{
    return fails(FORM(CALL_STAT)) ? -1 : REAL(stat)(path, look);
}

int stat64(const char *restrict path, struct stat64 *restrict look)
{
    return fails(FORM(CALL_STAT)) ? -1 : REAL(stat64)(path, look);
}

FILE *fdopen(int fd, const char *mode)
{
    return fails(FORM(CALL_FDOPEN)) ? NULL : REAL(fdopen)(fd, mode);
}

FILE *fopen(const char *restrict path, const char *restrict mode)
{
    return fails(FORM(CALL_FOPEN)) ? NULL : REAL(fopen)(path, mode);
}

char *realpath(const char *restrict path, char *restrict resolved)
{
    return fails(FORM(CALL_REALPATH)) ? NULL : REAL(realpath)(path, resolved);
}

char *__realpath_chk(const char *path, char *resolved, size_t size)
{
    return fails(FORM(CALL_REALPATH)) ? NULL : REAL(realpath)(path, resolved);
}

char *getcwd(char *path, size_t size)
{
    return fails(FORM(CALL_GETCWD)) ? NULL : REAL(getcwd)(path, size);
}

int inotify_init1(int flags)
{
    return fails(FORM(CALL_INOTIFY_INIT)) ? -1 : REAL(inotify_init1)(flags);
}

int inotify_add_watch(int fd, const char *path, uint32_t events)
{
    return fails(FORM(CALL_INOTIFY_ADD)) ? -1 : REAL(inotify_add_watch)(fd, path, events);
}

int getaddrinfo(const char *restrict host, const char *restrict service, const struct addrinfo *restrict hints,
                struct addrinfo **restrict found)
{
    const struct call_form *form = FORM(CALL_GETADDRINFO);
    if (!form)
        return REAL(getaddrinfo)(host, service, hints, found);
    errno = EMFILE; /* for EAI_SYSTEM */
    return form->error;
}

ssize_t getrandom(void *data, size_t size, unsigned flags)
{
    const struct call_form *form = FORM(CALL_GETRANDOM);
    return fails(form) ? -1 : REAL(getrandom)(data, size_by(form, size), flags);
}

int nanosleep(const struct timespec *time, struct timespec *left)
{
    if (!fails(FORM(CALL_NANOSLEEP)))
        return REAL(nanosleep)(time, left);
    if (left)
        *left = *time;
    return -1;
}

/* Forward six words, as the C library does, even if the call has fewer. */
long syscall(long number, ...)
{
    long words[6];
    va_list arguments;
    va_start(arguments, number);
    for (size_t i = 0; i < 6; i++)
        words[i] = va_arg(arguments, long);
    va_end(arguments);
    const bool waits = number == SYS_futex && ((int)words[1] & FUTEX_CMD_MASK) == FUTEX_WAIT;
    const struct call_form *form = number == SYS_membarrier ? FORM(CALL_MEMBARRIER) : waits ? FORM(CALL_FUTEX) : NULL;
    if (fails(form))
        return -1;
    return REAL(syscall)(number, words[0], words[1], words[2], words[3], words[4], words[5]);
}

int pthread_create(pthread_t *restrict thread, const pthread_attr_t *restrict attributes, void *(*run)(void *),
                   void *restrict user)
{
    const struct call_form *form = FORM(CALL_THREAD);
    return form ? form->error : REAL(pthread_create)(thread, attributes, run, user);
}

int pthread_key_create(pthread_key_t *key, void (*at_end)(void *))
{
    const struct call_form *form = FORM(CALL_THREAD_KEY);
    return form ? form->error : REAL(pthread_key_create)(key, at_end);
}

int pthread_setspecific(pthread_key_t key, const void *value)
{
    const struct call_form *form = FORM(CALL_THREAD_SET);
    return form ? form->error : REAL(pthread_setspecific)(key, value);
}

int __register_atfork(void (*before)(void), void (*in_parent)(void), void (*in_child)(void), void *library)
{
    const struct call_form *form = FORM(CALL_ATFORK);
    return form ? form->error : REAL(__register_atfork)(before, in_parent, in_child, library);
}
