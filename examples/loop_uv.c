/* loop_uv.c - decides through Redis in a program that runs on libuv.
 *
 *     loop_uv URL REQUESTS
 *
 * A timer stands for a server's traffic: each tick brings 10 requests, up to REQUESTS. The program prints how many were
 * allowed. All copies of it together, on any number of machines, are allowed LIMIT.
 */
#include <weir/weir.h>

#include <stdio.h>
#include <stdlib.h>
#include <uv.h>

#define LIMIT "fixed_window limit=100 period=1d"

enum { TICK_MS = 1, REQUESTS_PER_TICK = 10 };

static struct {
    weir *limiter;
    weir_limit *limit;
    uv_poll_t answers;
    uv_timer_t traffic;
    long to_come, under_way;
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

/* weir_dispatch() runs this, on the loop's own thread. */
static void done(struct weir_op *op, int status)
{
    program.under_way--;
    count(op, status);
    free(op);
}

static void on_request(void)
{
    struct weir_op *op = calloc(1, sizeof *op); /* a server would embed it in its own request struct */
    if (!op) {
        program.errors++;
        return;
    }
    op->request.limit = program.limit;
    op->request.key = weir_key_text("192.0.2.7");
    op->request.cost = 1;
    op->done = done;
    int status = weir_submit(program.limiter, op);
    if (status == 1) {
        program.under_way++;
        return;
    }
    count(op, status); /* decided already, or an error: done() will not run */
    free(op);
}

/* Close the handles once all requests are done, so that the loop ends. */
static void stop_when_finished(void)
{
    if (program.to_come == 0 && !uv_is_closing((uv_handle_t *)&program.traffic))
        uv_close((uv_handle_t *)&program.traffic, NULL);
    if (program.to_come == 0 && program.under_way == 0 && !uv_is_closing((uv_handle_t *)&program.answers))
        uv_close((uv_handle_t *)&program.answers, NULL);
}

static void on_tick(uv_timer_t *timer)
{
    (void)timer;
    for (int i = 0; i < REQUESTS_PER_TICK && program.to_come > 0; i++) {
        program.to_come--;
        on_request();
    }
    stop_when_finished();
}

static void on_answers(uv_poll_t *poll, int status, int events)
{
    (void)poll;
    (void)status;
    (void)events;
    weir_dispatch(program.limiter);
    stop_when_finished();
}

static int run_loop(void)
{
    uv_loop_t *loop = uv_default_loop();
    int fd = weir_event_fd(program.limiter); /* before the first weir_submit(); the limiter owns it */
    if (fd < 0)
        return fd;
    if (!loop || uv_poll_init(loop, &program.answers, fd) != 0)
        return WEIR_EIO;
    uv_timer_init(loop, &program.traffic);
    if (uv_poll_start(&program.answers, UV_READABLE, on_answers) != 0 ||
        uv_timer_start(&program.traffic, on_tick, 0, TICK_MS) != 0)
        return WEIR_EIO;
    uv_run(loop, UV_RUN_DEFAULT);
    return uv_loop_close(loop) == 0 ? WEIR_OK : WEIR_EIO; /* before weir_close(), which closes the descriptor */
}

int main(int argc, char **argv)
{
    struct weir_options options = WEIR_OPTIONS_INIT;
    struct weir_policy policy;
    if (argc != 3) {
        fputs("usage: loop_uv URL REQUESTS\n", stderr);
        return 2;
    }
    program.to_come = strtol(argv[2], NULL, 10);
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
        fprintf(stderr, "loop_uv: %s\n", weir_strerror(error));
        return 1;
    }
    printf("%ld allowed, %ld without Redis, %ld errors\n", program.allowed, program.without_redis, program.errors);
    return 0;
}
