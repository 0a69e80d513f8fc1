/* counts.c - in a coverage build, make a process write its counts even if it does not end with exit().
 *
 * Link with -Wl,--wrap= for _exit, execvp and raise. A process that an outside signal kills writes nothing. Each
 * process writes its own counts; a child begins with none. GCC would make the parent write and reset its counts before
 * each fork() while other threads count; -fno-builtin-fork prevents that.
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

/* Register first, so that this runs first in a child: what later handlers do there counts for the child. */
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
    __gcov_reset(); /* the signal may not end the process */
    return __real_raise(number);
}
