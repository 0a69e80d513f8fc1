#include "stack_depth.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { ROOM = 512 * 1024, PAINT = 0xa5 };

struct stack_call {
    void (*call)(void *argument);
    void *argument;
    unsigned char *from; /* the frame below which the call runs */
};

static void *stack_thread(void *argument)
{
    struct stack_call *call = argument;
    call->from = __builtin_frame_address(0);
    call->call(call->argument);
    return NULL;
}

static void stack_run(struct stack_call *call, void *stack, size_t size)
{
    pthread_attr_t attributes;
    pthread_t thread;
    ck_assert_int_eq(pthread_attr_init(&attributes), 0);
    ck_assert_int_eq(pthread_attr_setstack(&attributes, stack, size), 0);
    ck_assert_int_eq(pthread_create(&thread, &attributes, stack_thread, call), 0);
    ck_assert_int_eq(pthread_join(thread, NULL), 0);
    pthread_attr_destroy(&attributes);
}

size_t stack_depth(void (*call)(void *argument), void *argument)
{
    struct stack_call run = { .call = call, .argument = argument };
    unsigned char *stack = aligned_alloc(4096, ROOM);
    ck_assert_ptr_nonnull(stack);
    memset(stack, PAINT, ROOM);
    stack_run(&run, stack, ROOM);
    size_t untouched = 0;
    while (stack[untouched] == PAINT)
        untouched++;
    const size_t depth = (size_t)(run.from - (stack + untouched));
    free(stack);
    return depth;
}

void stack_run_small(void (*call)(void *argument), void *argument, size_t more)
{
    struct stack_call run = { .call = call, .argument = argument };
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    const size_t size = ((size_t)sysconf(_SC_THREAD_STACK_MIN) + more + page - 1) / page * page;
    unsigned char *memory = mmap(NULL, page + size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    ck_assert_ptr_ne(memory, MAP_FAILED);
    ck_assert_int_eq(mprotect(memory, page, PROT_NONE), 0);
    stack_run(&run, memory + page, size);
    munmap(memory, page + size);
}

void assert_stack(const char *what, void (*call)(void *argument), void *argument, size_t most)
{
    const size_t depth = stack_depth(call, argument);
    printf("%-60s %6zu bytes\n", what, depth);
    fflush(stdout);
    if (STACK_CAN_BE_MEASURED)
        ck_assert_msg(depth <= most, "%s takes %zu bytes of stack, more than %zu", what, depth, most);
}
