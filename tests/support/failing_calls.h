/* failing_calls.h - make system calls, and the library functions that wrap them, fail on demand.
 *
 * failing_calls_made.c defines socket(), send(), pthread_create() and so on in the test program and forwards each call
 * to the next definition. The dynamic linker prefers the program's definitions, so the test also sees libcurl's calls;
 * --wrap would only catch the calls of weir's objects. The test does not see calls inside the C library, so
 * getaddrinfo() and stdio fail as a whole. Under a sanitizer the next definition is the sanitizer's. These two files
 * are not instrumented because the sanitizer's library calls them before it is ready.
 *
 * The test identifies a call by its return address and by the calling thread: the watching one or another. So the test
 * can try each call site separately, and a site is the same in every run of a program. Do not run the lab's servers in
 * a watched process: their calls would fail too.
 *
 * Calls that cannot fail in weir are missing: clock_gettime() of an existing clock, timerfd_settime() with a valid
 * time, mutexes and conditions with weir's attributes (glibc) and pthread_sigmask(). failing_alloc.h makes mmap() fail.
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
    CALL_READ, /* from other things than files: eventfds, inotify */
    CALL_READ_FILE,
    CALL_WRITE, /* to other things than files: eventfds */
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
    CALL_FUTEX,      /* only the waiting operation: waking cannot fail */
    CALL_THREAD,     /* pthread_create() */
    CALL_THREAD_KEY, /* pthread_key_create() */
    CALL_THREAD_SET, /* pthread_setspecific() */
    CALL_ATFORK,     /* pthread_atfork() */
    CALL_COUNT
};
extern const char *const call_names[CALL_COUNT];

/* One way for a call to fail. */
enum call_way {
    CALL_FAILS,   /* with `error`, and does nothing; functions that return their error return it */
    CALL_IS_CUT,  /* it takes effect, and still fails with `error` */
    CALL_IS_SHORT /* it transfers one byte, or a part of a long text; with `error` 0 it reports the end */
};
struct call_form {
    enum call call;
    const char *name;
    int error;
    enum call_way way;
    bool is_memory; /* memory is short: weir's errors may say so */
    bool passes;    /* no working system fails so for ever: never try it stubbornly */
};
extern const struct call_form call_forms[];
extern const size_t call_form_count;

/* A place in the program that makes calls. */
struct call_site {
    enum call call;
    uintptr_t address;
    bool by_watcher; /* by the watching thread */
    int64_t times;
};

enum { CALL_SITES_MOST = 256 };
struct calls_record {
    struct call_site sites[CALL_SITES_MOST];
    size_t site_count; /* sites beyond the maximum are not recorded */
    int64_t failed;    /* calls that the test made fail */
};

/* Which call shall fail: the `nth` from that site, counted from 1; 0: none. */
struct calls_plan {
    struct call_site site; /* except `times`; address 0: any site and any thread */
    size_t form;           /* in call_forms[] */
    int64_t nth;
    bool stubborn; /* and every later call of this kind, from any site */
};

/* Return the plan that makes the first such call fail, from any site, in its first form; if stubborn all later ones
 * too. */
struct calls_plan calls_plan_first(enum call call, bool stubborn);

/* Start to note calls in `record`, which the caller owns, and to make them fail by `plan`, which is copied (NULL: no
 * call fails). */
void calls_watch(struct calls_record *record, const struct calls_plan *plan);

/* Stop making calls fail until calls_go_on(), which resumes the rest of the plan and stubborn failures. Calls are still
 * noted. */
void calls_relent(void);
void calls_go_on(void);

/* Return how often the watching thread has made this call. */
int64_t calls_made(const struct calls_record *record, enum call call);

/* Stop noting calls. */
void calls_forget(void);

/* Return how the current call from that address shall fail, or NULL if it shall not. Keeps errno. */
const struct call_form *calls_form(enum call call, const void *from);

/* Call once, first. Finds out which calls a sanitizer makes, which never fail, and makes the child of a fork continue
 * with its parent's plan. */
void calls_begin(void);

/* Neither note nor fail this thread's calls until calls_resume(). */
void calls_pause(void);
void calls_resume(void);

#endif
