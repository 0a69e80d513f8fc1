/* submit.h - requests for programs with an event loop: they never block, and their answers come later. Included by
 * weir.h.
 *
 *     struct weir_op op = { .request = { .limit = limit, .key = weir_key_text(address), .cost = 1 }, .done = answered };
 *     int status = weir_submit(limiter, &op);
 *     if (status != 1)
 *         answered(&op, status);
 *
 * docs/event-loops.md has whole programs.
 */
#ifndef WEIR_SUBMIT_H
#define WEIR_SUBMIT_H

#ifndef WEIR_H
#error "include <weir/weir.h>"
#endif

/* The verb of a submitted request, which does the same as the function of that name. */
enum weir_op_verb {
    WEIR_OP_TRY, /* the default; the others need a request.now_us of 0 */
    WEIR_OP_RESERVE,
    WEIR_OP_RENEW,
    WEIR_OP_SETTLE, /* request.cost is what was used: 0 or more */
    WEIR_OP_REFUND,
    WEIR_OP_CHARGE,
    WEIR_OP_PEEK,
    WEIR_OP_RESET,       /* request.cost means nothing */
    WEIR_OP_TRY_ALL,     /* of `requests`; `request` means nothing, and each of them may have a time */
    WEIR_OP_RESERVE_ALL, /* the same */
    WEIR_OP_ACQUIRE      /* waits up to `max_wait_us`, as weir_reserve_wait() does; weir_cancel() ends the wait */
};

/* A submitted request. Fields that the caller does not set must be 0. The caller owns it and must keep it in place
 * until weir_submit() has returned another value than 1, or `done` has run. */
struct weir_op {
    struct weir_request request;
    struct weir_decision decision; /* of verbs that decide, otherwise undefined: written before `done` runs, or before
                                    * weir_submit() returns WEIR_OK */
    void (*done)(struct weir_op *op, int status);
    void *user; /* for the caller */
    enum weir_op_verb verb;
    struct weir_reservation reservation; /* WEIR_OP_RESERVE, WEIR_OP_RENEW, WEIR_OP_ACQUIRE: written like the decision;
                                          * WEIR_OP_SETTLE, WEIR_OP_RENEW: read */

    /* WEIR_OP_TRY_ALL, WEIR_OP_RESERVE_ALL: 1 to WEIR_MAX_ALL requests, and room for as many reservations. Both must
     * stay in place as long as the op. */
    const struct weir_request *requests;
    struct weir_reservation *reservations;
    size_t n;

    int64_t max_wait_us; /* WEIR_OP_ACQUIRE: 0 or more */
    uint64_t opaque[9];  /* for the library */
};

/* Start a request without ever blocking.
 *
 *     WEIR_OK    the decision is made; `done` will not run. Always so in local mode, except that a WEIR_OP_ACQUIRE may
 *                have to wait for its permits.
 *     1          `done` will run once, within timeout_us. The key's bytes must stay in place until then. It runs
 *                in weir_dispatch() if weir_event_fd() has been called; otherwise on a thread of the limiter, or on one
 *                that is in a call to it, where it must not block. Its `status` is WEIR_OK or an error of the function
 *                that the verb stands for.
 *     negative   an error; `done` will not run. WEIR_EFULL if WEIR_MAX_SUBMITTED requests wait already; WEIR_EIO if the
 *                system has no thread for the verbs of the next paragraph.
 *
 * Peeks, resets, groups and tries of acquires are calls that a few threads of the limiter make, up to four at a time,
 * in the order in which they were submitted. So `done` runs within timeout_us of the moment at which a thread begins
 * with it. An acquire that waits for permits keeps no thread busy; its `done` runs within max_wait_us in addition. In
 * local mode only waiting acquires need a thread, and only one. Requests that wait at the same time may be decided in
 * any order, except that acquires of a key keep theirs, and so do the `done` of those that get their permits. */
WEIR_API int weir_submit(weir *w, struct weir_op *op);

/* End the wait of a submitted WEIR_OP_ACQUIRE whose `done` has not run. Never blocks. WEIR_OK: `done` runs soon, as it
 * always does, with WEIR_ECANCELED and without permits, also if weir_close() follows; or with the answer, if that came
 * first. Permits of a leaky bucket that wait only for their delay_us are given back, as by weir_refund(). WEIR_EINVAL
 * if the op has another verb; WEIR_ECLOSED. Do not call it while another thread may run `done` of the same op. */
WEIR_API int weir_cancel(weir *w, struct weir_op *op);

/* Return a file descriptor for the caller's event loop: it is readable while weir_dispatch() has requests to
 * complete. From the first call on, `done` runs nowhere else. Call it before the first weir_submit(). The limiter
 * owns the descriptor. WEIR_EIO if the system has no descriptor left.
 *
 * In the child of a fork() the same number is a separate descriptor. If the system had none left at the fork, the
 * number is closed and the child behaves as if this function had not been called. So call it there again, before the
 * first weir_submit(). */
WEIR_API int weir_event_fd(weir *w);

/* Run `done`, on this thread, for each submitted request that has its answer, and return how many there were. Never
 * blocks, never fails. `w` must not be NULL. One thread at a time. */
WEIR_API int weir_dispatch(weir *w);

#endif
