/* failing_calls.h - system calls, and what of the C library stands for them, that fail when told to.
 *
 * failing_calls_made.c defines socket(), send(), pthread_create() and so on in the test program, and hands each call
 * on to the next definition there is. The dynamic linker prefers a program's own, so that what libcurl calls comes by
 * here as well; --wrap would have caught the calls of weir's own objects only. What the C library calls within itself
 * does not come by: getaddrinfo() and stdio fail as a whole. Under a sanitizer the next definition is the sanitizer's;
 * these two files are not instrumented themselves, for its library calls them before it is ready.
 *
 * Calls are known by the place that they are made from, and by whether the thread that watches made them or another:
 * so each place can be tried by itself, and in every run of the same program it is the same one. Servers of the lab do
 * not belong in a process that is watched: their calls would fail too.
 *
 * What is not here cannot fail where weir asks for it: clock_gettime() of a clock that there is, timerfd_settime() of
 * a time that is valid, mutexes and conditions with those attributes (glibc), pthread_sigmask(). mmap() is
 * failing_alloc.h's.
 */
#ifndef WEIR_TESTS_FAILING_CALLS_H
#define WEIR_TESTS_FAILING_CALLS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum call {
    CALL_SOCKET,
    CALL_SOCKETPAIR,
    CALL_CONNECT,
    CALL_SEND,
    CALL_RECV,
    CALL_POLL,
    CALL_PPOLL,
    CALL_SETSOCKOPT,
    CALL_GETSOCKOPT,
    CALL_FCNTL,
    CALL_EVENTFD,
    CALL_TIMERFD,
    CALL_READ, /* of what is no file: eventfds, inotify */
    CALL_READ_FILE,
    CALL_WRITE, /* to what is no file: eventfds */
    CALL_OPEN,
    CALL_FSTAT,
    CALL_STAT,
    CALL_FDOPEN,
    CALL_FOPEN,
    CALL_REALPATH,
    CALL_GETCWD,
    CALL_INOTIFY_INIT,
    CALL_INOTIFY_ADD,
    CALL_GETADDRINFO,
    CALL_GETRANDOM,
    CALL_NANOSLEEP,
    CALL_MEMBARRIER,
    CALL_FUTEX,      /* to wait: to wake cannot fail */
    CALL_THREAD,     /* pthread_create() */
    CALL_THREAD_KEY, /* pthread_key_create() */
    CALL_THREAD_SET, /* pthread_setspecific() */
    CALL_ATFORK,     /* pthread_atfork() */
    CALL_COUNT
};
extern const char *const call_names[CALL_COUNT];

/* One way for a call to fail. */
enum call_way {
    CALL_FAILS,   /* with `error`; nothing is done. Functions that return their error return it */
    CALL_IS_CUT,  /* it is done, and fails with `error` */
    CALL_IS_SHORT /* one byte of what was asked for is done; 0 of `error` bytes: the end */
};
struct call_form {
    enum call call;
    const char *name;
    int error;
    enum call_way way;
    bool is_memory; /* there is none: errors may say so */
    bool passes;    /* what would be so for ever is no system any more: it is not tried stubbornly */
};
extern const struct call_form call_forms[];
extern const size_t call_form_count;

/* Where calls are made. */
struct call_site {
    enum call call;
    uintptr_t address;
    bool by_watcher; /* by the thread that watches */
    int64_t times;
};

enum { CALL_SITES_MOST = 256 };
struct calls_record {
    struct call_site sites[CALL_SITES_MOST];
    size_t site_count; /* those beyond the most are not known */
    int64_t failed;    /* how many calls were made to fail */
};

/* What is to fail: the `nth` call (from 1; 0: none) from that place. */
struct calls_plan {
    struct call_site site; /* but for `times`; address 0: wherever from, by any thread */
    size_t form;           /* in call_forms[] */
    int64_t nth;
    bool stubborn; /* and from then on every such call, wherever from */
};

/* The plan by which the first such call fails, wherever from, in the first way there is, and if stubborn all others. */
struct calls_plan calls_plan_first(enum call call, bool stubborn);

/* From now on calls are noted in `record`, which stays the caller's, and fail by `plan`, which is copied (NULL: none
 * fails). */
void calls_watch(struct calls_record *record, const struct calls_plan *plan);

/* From now on nothing fails, until calls_go_on(): what was not yet to fail, and what fails stubbornly, fails then.
 * Calls are noted all the same. */
void calls_relent(void);
void calls_go_on(void);

/* How often a call has been made, by the thread that watches alone. */
int64_t calls_made(const struct calls_record *record, enum call call);

/* Nothing is noted any more. */
void calls_forget(void);

/* How the call that is made now, from there, is to fail; NULL: not at all. errno stays as it is. */
const struct call_form *calls_form(enum call call, const void *from);

/* Once, before all else: finds out whose calls are a sanitizer's own, which are left alone, and sees to it that the
 * child of a fork goes on by what its parent was told. */
void calls_begin(void);

/* What this thread calls is its own affair, until calls_resume(). */
void calls_pause(void);
void calls_resume(void);

#endif
