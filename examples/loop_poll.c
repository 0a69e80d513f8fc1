/* loop_poll.c - decides through Redis in a program with an event loop around poll().
 *
 *     loop_poll URL REQUESTS
 *
 * Requests one permit REQUESTS times, with up to 32 requests in progress, and prints how many were allowed. All copies
 * of this program together, on any number of machines, are allowed LIMIT.
 */
#include <weir/weir.h>

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>

#define LIMIT "fixed_window limit=100 period=1d"

enum { UNDER_WAY_MOST = 32 };

static struct {
    weir *limiter;
    weir_limit *limit;
    long to_ask, under_way;
    long allowed, without_redis, errors;
} program;

static void print_log(void *user, enum weir_log_level level, const char *line)
{
    (void)user;
    (void)level;
    fprintf(stderr, "%s\n", line);
}

/* Handle an answer: a server would now serve the request, or reply 429. */
static void count(const struct weir_op *op, int status)
{
    if (status != WEIR_OK) {
        fprintf(stderr, "cannot decide: %s\n", weir_strerror(status));
        program.errors++;
        return;
    }
    program.allowed += op->decision.allowed;
    program.without_redis += op->decision.source != WEIR_BY_REDIS;
}

/* Submit requests with this op until one has to wait for its answer. */
static void ask(struct weir_op *op)
{
    while (program.to_ask > 0) {
        program.to_ask--;
        int status = weir_submit(program.limiter, op);
        if (status == 1) {
            program.under_way++;
            return;
        }
        count(op, status); /* decided already, or an error: done() will not run */
    }
}

/* weir_dispatch() runs this, on the loop's own thread. */
static void done(struct weir_op *op, int status)
{
    program.under_way--;
    count(op, status);
    ask(op);
}

static int run_loop(void)
{
    static struct weir_op ops[UNDER_WAY_MOST]; /* each must stay in place until its request is done */
    struct pollfd ready = { .events = POLLIN };
    ready.fd = weir_event_fd(program.limiter); /* before the first weir_submit() */
    if (ready.fd < 0)
        return ready.fd;
    for (int i = 0; i < UNDER_WAY_MOST; i++) {
        ops[i].request.limit = program.limit;
        ops[i].request.key = weir_key_text("192.0.2.7");
        ops[i].request.cost = 1;
        ops[i].done = done;
        ask(&ops[i]);
    }
    while (program.under_way > 0) {
        if (poll(&ready, 1, -1) < 0 && errno != EINTR) /* a server polls its own descriptors here too */
            return WEIR_EIO;
        if (ready.revents)
            weir_dispatch(program.limiter);
    }
    return WEIR_OK;
}

int main(int argc, char **argv)
{
    struct weir_options options = WEIR_OPTIONS_INIT;
    struct weir_policy policy;
    if (argc != 3) {
        fputs("usage: loop_poll URL REQUESTS\n", stderr);
        return 2;
    }
    program.to_ask = strtol(argv[2], NULL, 10);
    options.mode = WEIR_DISTRIBUTED;
    options.redis_url = argv[1];
    options.log = print_log;
    options.timeout_us = WEIR_SECOND;
    int error = weir_open(&options, &program.limiter);
    if (!error)
        error = weir_policy_parse(LIMIT, &policy, NULL, 0);
    if (!error)
        error = weir_limit_define(program.limiter, "example", &policy, &program.limit);
    if (!error)
        error = run_loop();
    weir_close(program.limiter);
    if (error) {
        fprintf(stderr, "loop_poll: %s\n", weir_strerror(error));
        return 1;
    }
    printf("%ld allowed, %ld without Redis, %ld errors\n", program.allowed, program.without_redis, program.errors);
    return 0;
}
