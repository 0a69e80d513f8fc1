#include "stack_depth.h"

#include <limits.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { ROOM = (INSTRUMENTED ? 4096 : 512) * 1024, PAINT = 0xa5 };

/* ---- What calls are made with ---- */

void stack_ask_begin(struct stack_ask *ask, weir *limiter)
{
    memset(ask, 0, sizeof *ask);
    ask->limiter = limiter;
    for (size_t i = 0; i < STACK_KEYS; i++) {
        memset(ask->keys[i], '.', STACK_KEY_SIZE);
        snprintf(ask->keys[i], STACK_KEY_SIZE, "key %zu", i);
    }
}

void stack_ask_end(struct stack_ask *ask)
{
    weir_handle_free(ask->handle);
    ask->handle = NULL;
}

void stack_ask_define(struct stack_ask *ask, const char *policy)
{
    char name[16];
    for (size_t i = 0; i < STACK_KEYS; i++) {
        snprintf(name, sizeof name, "limit%zu", i);
        ask->limits[i] = limit_of(ask->limiter, name, policy);
        ask->requests[i] = (struct weir_request){ ask->limits[i], weir_key(ask->keys[i], STACK_KEY_SIZE), .cost = 1 };
    }
    if (!ask->handle)
        must_succeed(weir_key_resolve(ask->limits[0], ask->requests[0].key, &ask->handle));
}

void stack_ask_use(struct stack_ask *ask, int64_t cost)
{
    struct weir_decision decision;
    for (size_t i = 0; i < STACK_KEYS; i++)
        (void)weir_try_at(ask->limits[i], ask->requests[i].key, cost, ask->now_us, &decision);
}

/* ---- The verbs ---- */

static void call_try(void *argument)
{
    struct stack_ask *ask = argument;
    ask->status = weir_try(ask->limits[0], ask->requests[0].key, 1, ask->decisions);
}

static void call_try_at(void *argument)
{
    struct stack_ask *ask = argument;
    int64_t now_us = ask->now_us;
    ask->status = now_us ? WEIR_OK : weir_clock(ask->limiter, &now_us);
    if (!ask->status)
        ask->status = weir_try_at(ask->limits[0], ask->requests[0].key, 1, now_us, ask->decisions);
}

static void call_peek(void *argument)
{
    struct stack_ask *ask = argument;
    ask->status = weir_peek(ask->limits[0], ask->requests[0].key, 1, ask->decisions);
}

static void call_refund(void *argument)
{
    struct stack_ask *ask = argument;
    ask->status = weir_refund(ask->limits[0], ask->requests[0].key, 1);
}

static void call_reset(void *argument)
{
    struct stack_ask *ask = argument;
    ask->status = weir_reset(ask->limits[0], ask->requests[0].key);
}

static void call_acquire(void *argument)
{
    struct stack_ask *ask = argument;
    ask->status = weir_acquire(ask->limits[0], ask->requests[0].key, 1, 1, ask->decisions);
}

static void call_handle(void *argument)
{
    struct stack_ask *ask = argument;
    ask->status = weir_handle_try(ask->handle, 1, ask->now_us, ask->decisions);
}

static void op_done(struct weir_op *op, int status)
{
    struct stack_ask *ask = op->user;
    ask->status = status;
    atomic_store(&ask->done, true);
}

static void call_submit(void *argument)
{
    struct stack_ask *ask = argument;
    ask->op = (struct weir_op){ .request = ask->requests[0], .done = op_done, .user = ask };
    ask->op.request.now_us = ask->now_us;
    atomic_store(&ask->done, false);
    const int result = weir_submit(ask->limiter, &ask->op);
    while (result == 1 && !atomic_load(&ask->done))
        sched_yield();
    if (result != 1)
        ask->status = result;
}

static void stack_ask_time(struct stack_ask *ask)
{
    for (size_t i = 0; i < STACK_KEYS; i++)
        ask->requests[i].now_us = ask->now_us;
}

static void call_all(void *argument)
{
    struct stack_ask *ask = argument;
    stack_ask_time(ask);
    ask->status = weir_try_all(ask->limiter, ask->requests, STACK_KEYS, ask->decisions);
}

static void call_batch(void *argument)
{
    struct stack_ask *ask = argument;
    stack_ask_time(ask);
    ask->status = weir_try_batch(ask->limiter, ask->requests, STACK_KEYS, ask->decisions);
}

const struct stack_verb stack_verbs[STACK_VERBS] = {
    { "weir_try", call_try, false },           { "weir_try_at", call_try_at, false },
    { "weir_peek", call_peek, false },         { "weir_refund", call_refund, false },
    { "weir_reset", call_reset, false },       { "weir_acquire", call_acquire, false },
    { "weir_handle_try", call_handle, false }, { "weir_submit", call_submit, false },
    { "weir_try_all", call_all, true },        { "weir_try_batch", call_batch, true },
};

const struct stack_history stack_histories[STACK_HISTORIES] = {
    { "a new key", { STACK_BUCKET } },
    { "a new key of a large window", { STACK_LARGE } },
    { "a known key of a large window", { STACK_LARGE, STACK_LARGE } },
    { "to a large window", { STACK_BUCKET, STACK_LARGE } },
    { "from a large window", { STACK_LARGE, STACK_BUCKET } },
    { "from a large window to a smaller one", { STACK_LARGE, STACK_SMALL } },
    { "to a smaller window and back", { STACK_LARGE, STACK_SMALL, STACK_LARGE } },
    { "to a bucket, a smaller window and a large one", { STACK_BUCKET, STACK_SMALL, STACK_LARGE } },
};

/* ---- Measuring ---- */

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

static size_t verb_most(const struct stack_verb *verb)
{
    return verb->is_group ? STACK_GROUP_MOST : STACK_SINGLE_MOST;
}

void assert_stack(const struct stack_verb *verb, struct stack_ask *ask, const char *when)
{
    const size_t depth = stack_depth(verb->call, ask);
    printf("%6zu bytes: %s, %s\n", depth, verb->name, when);
    fflush(stdout);
    if (STACK_CAN_BE_MEASURED)
        ck_assert_msg(depth <= verb_most(verb) + ask->others, "%s, %s, takes %zu bytes of stack", verb->name, when,
                      depth);
}

void stack_run_small(const struct stack_verb *verb, struct stack_ask *ask)
{
    struct stack_call run = { .call = verb->call, .argument = ask };
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    const size_t size = ((size_t)PTHREAD_STACK_MIN + verb_most(verb) + page - 1) / page * page;
    unsigned char *memory = mmap(NULL, page + size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    ck_assert_ptr_ne(memory, MAP_FAILED);
    ck_assert_int_eq(mprotect(memory, page, PROT_NONE), 0);
    stack_run(&run, memory + page, size);
    munmap(memory, page + size);
}
