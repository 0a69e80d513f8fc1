/* counts.c - in a coverage build, has a process write its counts also where it does not end by exit().
 *
 * Links with -Wl,--wrap= for each of _exit, execvp and raise. One that a signal ends from outside writes none. What a
 * process has counted is for that process to write: its child begins with nothing. GCC would have the parent write and
 * begin anew before each fork(), while its other threads go on counting; -fno-builtin-fork keeps it from that.
 */
#include <gcov.h>
#include <pthread.h>
#include <signal.h>
#include <unistd.h>

_Noreturn void __real__exit(int status);
int __real_execvp(const char *file, char *const words[]);
int __real_raise(int number);

_Noreturn void __wrap__exit(int status);
int __wrap_execvp(const char *file, char *const words[]);
int __wrap_raise(int number);

/* Before anybody else asks to be called in a child, and so before them: what they do there is the child's. */
__attribute__((constructor(101))) static void begin_anew_in_children(void)
{
    pthread_atfork(NULL, NULL, __gcov_reset);
}

void __wrap__exit(int status)
{
    __gcov_dump();
    __real__exit(status);
}

int __wrap_execvp(const char *file, char *const words[])
{
    __gcov_dump();
    const int result = __real_execvp(file, words);
    __gcov_reset();
    return result;
}

int __wrap_raise(int number)
{
    __gcov_dump();
    __gcov_reset(); /* it may be a signal that ends nothing */
    return __real_raise(number);
}
