/* guard.c - the handler of SIGBUS, and the list of what it guards. */
#include "backends/machine/guard.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

static struct guard *_Atomic guards;
static struct sigaction guard_before; /* written before the handler is installed */
static uintptr_t guard_page;          /* the size of a page; the same */

/* Map an empty page, by the system call itself: mmap() is not among the functions that a handler may call, and
 * ThreadSanitizer takes it for a write, which would be a race with the threads that use the page. */
static bool guard_map(uintptr_t page)
{
#ifdef SYS_mmap2
    const long call = SYS_mmap2;
#else
    const long call = SYS_mmap;
#endif
    return syscall(call, page, guard_page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0L) !=
           -1;
}

/* Put an empty page where one is missing. False: the address is in no guarded file. */
static bool guard_mend(uintptr_t at)
{
    for (struct guard *guard = atomic_load_explicit(&guards, memory_order_acquire); guard; guard = guard->next) {
        const size_t len = atomic_load_explicit(&guard->len, memory_order_acquire);
        if (at - atomic_load_explicit(&guard->from, memory_order_relaxed) >= len)
            continue;
        atomic_store_explicit(&guard->is_lost, true, memory_order_relaxed);
        return guard_map(at & ~(guard_page - 1));
    }
    return false;
}

/* Do what would happen without this handler. */
static void guard_pass_on(int number, siginfo_t *info, void *context)
{
    const bool is_fault = info->si_code > 0; /* otherwise a process sent the signal */
    if ((guard_before.sa_flags & SA_SIGINFO) != 0) {
        guard_before.sa_sigaction(number, info, context);
    } else if (guard_before.sa_handler != SIG_DFL && guard_before.sa_handler != SIG_IGN) {
        guard_before.sa_handler(number);
    } else if (is_fault || guard_before.sa_handler == SIG_DFL) {
        const struct sigaction end = { .sa_handler = SIG_DFL };
        sigaction(number, &end, NULL); /* a fault comes again when this returns, and ends the process */
        if (!is_fault)
            raise(number);
    }
}

static void guard_hear(int number, siginfo_t *info, void *context)
{
    const int code = errno;
    if (info->si_code <= 0 || !guard_mend((uintptr_t)info->si_addr))
        guard_pass_on(number, info, context);
    errno = code;
}

/* Install the handler, unless that was done. */
static void guard_install(void)
{
    static atomic_flag is_installed = ATOMIC_FLAG_INIT;
    struct sigaction hear = { .sa_sigaction = guard_hear, .sa_flags = SA_SIGINFO | SA_ONSTACK | SA_RESTART };
    if (atomic_flag_test_and_set(&is_installed))
        return;
    guard_page = (uintptr_t)sysconf(_SC_PAGESIZE);
    sigemptyset(&hear.sa_mask);
    if (sigaction(SIGBUS, NULL, &guard_before) == 0)
        sigaction(SIGBUS, &hear, NULL);
}

/* Take a guard that is not in use, or add one. */
static struct guard *guard_take(void)
{
    struct guard *first = atomic_load_explicit(&guards, memory_order_acquire);
    for (struct guard *guard = first; guard; guard = guard->next)
        if (!atomic_flag_test_and_set(&guard->is_taken))
            return guard;
    struct guard *guard = calloc(1, sizeof *guard);
    if (!guard)
        return NULL;
    atomic_flag_test_and_set(&guard->is_taken);
    guard->next = first;
    while (!atomic_compare_exchange_weak_explicit(&guards, &guard->next, guard, memory_order_release,
                                                  memory_order_acquire))
        ;
    return guard;
}

struct guard *guard_begin(void *map, size_t len)
{
    struct guard *guard = guard_take();
    if (!guard)
        return NULL;
    guard_install();
    atomic_store_explicit(&guard->is_lost, false, memory_order_relaxed);
    atomic_store_explicit(&guard->from, (uintptr_t)map, memory_order_relaxed);
    atomic_store_explicit(&guard->len, len, memory_order_release);
    return guard;
}

void guard_end(struct guard *guard)
{
    if (!guard)
        return;
    atomic_store_explicit(&guard->len, 0, memory_order_release);
    atomic_flag_clear(&guard->is_taken);
}
