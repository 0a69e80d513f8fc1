/* submitted.c - decisions that one thread submits without waiting for each: see submitted.h. */
#include "redis/submitted.h"

#include <poll.h>

static void submitted_rests(struct submitted *submitted, struct weir_op *op, int status)
{
    const bool is_decided = status == WEIR_OK && (submitted->remote->sources >> op->decision.source & 1) != 0;
    if (status != WEIR_OK)
        load_complain("weir_submit", weir_strerror(status));
    submitted->failed += !is_decided;
    submitted->idle[submitted->idle_len++] = (size_t)(op - submitted->ops);
}

static void submitted_done(struct weir_op *op, int status)
{
    submitted_rests(op->user, op, status);
}

static void submitted_hear(struct submitted *submitted)
{
    struct pollfd ready = { .fd = submitted->fd, .events = POLLIN };
    poll(&ready, 1, 100);
    weir_dispatch(submitted->remote->weir);
}

void submitted_begin(struct submitted *submitted, struct remote *remote)
{
    *submitted = (struct submitted){ .remote = remote, .fd = weir_event_fd(remote->weir) };
    bench_require(submitted->fd < 0 ? submitted->fd : WEIR_OK, "weir_event_fd");
    while (submitted->idle_len < SUBMITTED_MOST) {
        submitted->idle[submitted->idle_len] = submitted->idle_len;
        submitted->idle_len++;
    }
}

size_t submitted_call(void *subject, int thread, const struct bench_key *draws, size_t n)
{
    struct submitted *submitted = subject;
    const size_t failed_before = submitted->failed;
    (void)thread;
    for (size_t i = 0; i < n; i++) {
        while (submitted->idle_len == 0)
            submitted_hear(submitted);
        struct weir_op *op = &submitted->ops[submitted->idle[--submitted->idle_len]];
        *op = (struct weir_op){ .request = { .limit = submitted->remote->limit, .key = key_of(&draws[i]), .cost = 1 },
                                .done = submitted_done,
                                .user = submitted };
        const int status = weir_submit(submitted->remote->weir, op);
        if (status != 1)
            submitted_rests(submitted, op, status);
    }
    return submitted->failed - failed_before;
}

void submitted_end(struct submitted *submitted)
{
    while (submitted->idle_len < SUBMITTED_MOST)
        submitted_hear(submitted);
}
