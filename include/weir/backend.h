/* backend.h - how to write a backend: a place of your own in which weir keeps its counts.
 *
 * Only authors of backends include this header. It may change in a minor release; weir.h may not.
 *
 * A backend is a struct that begins with a struct weir_backend, and a constant table of functions that all its
 * instances share. It decides where the state lives: under a mutex, or in a script that runs on a server. Each decision
 * must be one atomic step. A backend that reads a state and writes it back later loses updates between the two; one
 * that retries with compare-and-swap makes no progress on busy keys.
 *
 * weir validates every plan, key, cost and time before it calls the backend. The backend asserts; it does not check
 * again. It does not count decisions or sleep either: weir does both.
 *
 * While a thread is in a backend that has submit() or shut(), weir disables its cancellation. Without them decide()
 * must contain no cancellation point.
 */
#ifndef WEIR_BACKEND_H
#define WEIR_BACKEND_H

#include <weir/weir.h>

#ifdef __cplusplus
extern "C" {
#endif

enum weir_verb {
    WEIR_TAKE,   /* decide, and charge the key if the request is allowed */
    WEIR_PEEK,   /* decide; change nothing */
    WEIR_REFUND, /* give `cost` permits back, at most as many as are in use; the decision is always allowed */
    WEIR_RESET,  /* forget the key; the decision is that of a fresh key */
    WEIR_CHARGE, /* charge `cost`, which has been used, beyond the limit if need be; the decision is always allowed, and
                  * decision.ahead is how many permits were not charged, because no state can hold more */
    WEIR_RENEW   /* WEIR_REFUND with `ahead`, and WEIR_TAKE of the same permits, in one step. It is denied, and changes
                  * nothing, only if `cost` exceeds the plan's size, or if it would raise what is in use above that */
};

/* A policy made ready to run: integers only, and every product of them is below 2^53. It is the plan of the whole limit
 * if ops->shared is set, otherwise the plan of this instance's share. The top of src/core/algorithm/<algorithm>.c
 * defines what each algorithm does with it. A field that the algorithm does not use is 0. */
struct weir_plan {
    int32_t algorithm, refill, align; /* enum weir_algorithm, weir_refill, weir_align */
    int32_t blocks;                   /* sliding window: blocks in a period; one more is counted */
    int64_t p, q, tick_us;    /* greedy token bucket, leaky bucket: a permit is q units, p units drain per tick */
    int64_t limit, period_us; /* interval refill, windows; for a sliding window the period of one block; for requests
                               * in flight the hold */
    int64_t size;             /* the largest cost that a fresh key admits; 0: this share admits nothing */
    int64_t reserve;          /* permits that weir_options.strict subtracted from `size`; otherwise 0 */
    int64_t is_local;         /* 1: the plan is a fallback's, whose states keep cold_left; otherwise 0 */
    int64_t fingerprint;      /* of the fields above but is_local, 1 to 2^53-1; it tells which plan wrote a state */
};

#define WEIR_OWN_CLOCK INT64_C(-1)
#define WEIR_MAX_SPREAD 65535

struct weir_backend_request {
    /* weir_limit_name() returns its name, weir_request_plan() the plan to decide by. If an override applies to the key,
     * this pointer and the plan are the override's; the name and limit_id are still the limit's. */
    weir_limit *limit;
    struct weir_key key;   /* its bytes are valid during the call */
    uint64_t hash;         /* of the key, keyed by a secret of this limiter and by the limit's name */
    int64_t cost;          /* 1 with WEIR_RESET; may be 0 with WEIR_TAKE if `ahead` is not 0; up to 2^53 - 1 with
                            * WEIR_CHARGE */
    int64_t now_us;        /* the time to decide by, 0 to WEIR_MAX_TIME_US; or WEIR_OWN_CLOCK, see ops->own_clock */
    uint64_t plan_version; /* version of the plan when the request was made; always above 0. It is above the version of
                            * every earlier plan for this key. Each override has separate versions. */
    int64_t cold_since_us; /* -1 in every request that your backend receives. 0 or more only for the fallback: its keys
                            * begin at this time with all permits taken, except ... */
    int64_t cold_left;     /* ... these, as many as the plan allows */
    /* WEIR_TAKE: permits to lease in addition to `cost`; 0: none. If `cost` is admitted (a cost of 0 always is), also
     * charge as many of them as fit into (permits that remain) / `spread`. Write the number to decision.ahead. The
     * other fields describe the state after both charges, except a leaky bucket's delay_us, which is that of the first
     * permit charged, and age_us, which is the time by which the backend decided. Never set with `all`, and only if
     * ops->shared is set.
     *
     * WEIR_REFUND: the age_us of an answer, or 0. The permits were charged ahead at that time and never used. Do not
     * give back those of them that have come back since: none if a window, or an interval of refill, has ended since
     * then, and with continuous refill those that had refilled by the last charge.
     *
     * WEIR_RENEW: the at_us of a reservation, above 0: the same of its permits. */
    int64_t ahead;
    uint32_t limit_id; /* identifies the limit, including its overrides: 0, 1, 2, ... in the order of definition */
    uint16_t spread;   /* 1 to WEIR_MAX_SPREAD if `ahead` is not 0 */
    uint8_t verb;      /* enum weir_verb */
    /* NULL, or room for a note on where the backend found the key. The backend may write it during the call. Every
     * request made with the same handle brings the same note, and all of them have the same key and limit_id. Several
     * threads may bring one note concurrently, so guard it with whatever guards the key. It begins as zeroes. */
    struct weir_backend_hint *hint;
    /* WEIR_TAKE, WEIR_RENEW: NULL, or the reservation for its `cost` permits. If they are charged and can be returned,
     * write the time of the charge to at_us, at least 1; a return brings it as `ahead` of WEIR_REFUND. Write nothing
     * after the request has ended. For other requests it means nothing. If `slot` is not 0, write that to its id
     * instead, and nothing to at_us. */
    struct weir_reservation *reservation;
    /* 0, or the request is about slots, because the policy in force is WEIR_CONCURRENCY or was when the slot was taken.
     * Only a backend whose ops->slots is set gets such requests. docs/design/semantics.md defines them:
     *
     *     WEIR_TAKE     add this slot, of `cost`, if that fits
     *     WEIR_CHARGE   add it, or change its cost and its end, whether it fits or not; if `ahead` is not 0, its hold
     *                   is that many microseconds instead of the plan's
     *     WEIR_REFUND   let this slot's cost be `ahead` at most; remove it if that is 0. A slot that is not there is
     *                   no error
     *     WEIR_RENEW    begin the hold of this slot anew, or take it if it is not there and fits
     *     WEIR_PEEK, WEIR_RESET   of the key; the number means nothing */
    uint64_t slot;
};

struct weir_backend_hint {
    uint64_t opaque[2];
};

/* Copy the plan of the request's limit, and return its version. That is the request's plan_version, or a later one if
 * the limit has been redefined since. A backend that stores states by version needs the plan only of versions that are
 * new to it. Of two concurrent requests, the later may bring the older version; it must not undo what the newer
 * one has done. Never blocks. */
WEIR_API uint64_t weir_request_plan(const struct weir_backend_request *request, struct weir_plan *out);

/* The source of a decision that was not made, see decide() below. Users never see it. */
#define WEIR_BY_NOBODY UINT8_MAX

/* An error of decide(), submit() and `done` beside enum weir_error: WEIR_EIO for a request that has certainly changed
 * nothing. The store answered that it did not execute it, for example because it is full or read-only, or the request
 * never left. With WEIR_FAIL_LOCAL weir keeps such a refund or settlement and sends it again when the backend calls
 * `returned`, see watch(). Users see WEIR_EIO. */
#define WEIR_EIO_UNDONE (-64)

struct weir_backend {
    const struct weir_backend_ops *ops;
};

struct weir_backend_ops {
    size_t size;      /* sizeof(struct weir_backend_ops) where the backend was compiled */
    const char *name; /* one word, for log lines */
    bool own_clock;   /* the backend has its own clock: now_us is WEIR_OWN_CLOCK unless the caller passed a time */
    bool spans;       /* a negative deadline_us is a span: decide() may take -deadline_us from the start of the call.
                       * Set it if the backend seldom reads the clock; weir then does not read it either */
    bool shared;      /* all instances count together in this backend: plans are of whole limits, not of shares */

    /* Required. Decide reqs[0..n) by `deadline_us` on CLOCK_MONOTONIC. Any number of threads may call it
     * concurrently.
     *
     * Without `all`, each request is one atomic step, in order. Return WEIR_OK with out[0..n) filled, or a negative
     * enum weir_error. On an error with n = 1, leave out[0] untouched. On an error with n > 1, some requests may have
     * been decided; leave the source of the others at WEIR_BY_NOBODY, to which weir sets all sources before the call.
     *
     * With `all`, the requests together are one step that charges all of them or none. They are all WEIR_TAKE, all have
     * the first one's time, and no two have the same limit and key. n is at most WEIR_MAX_ALL, and a cost may be as
     * large as WEIR_MAX_ALL * WEIR_MAX_PERMITS. Fill out[i] with the decision of request i's own limit; if any of them
     * denies, fill each as WEIR_PEEK would. On an error, out[] means nothing.
     *
     * WEIR_ETIME, WEIR_EIO and WEIR_EIO_UNDONE are failures: weir applies options.on_failure to each request that was
     * not decided. It returns any other error to the caller. */
    int (*decide)(struct weir_backend *backend, const struct weir_backend_request *reqs, size_t n, bool all,
                  int64_t deadline_us, struct weir_decision *out);

    /* Optional; NULL promises that decide() never blocks. Begin one request, never a peek or a reset, without blocking.
     * Return
     *
     *     WEIR_OK           already decided; op->decision is filled
     *     1                 a thread of the backend will call op->done once, by the deadline, with a status. On WEIR_OK
     *                       it fills op->decision first; on an error it leaves that untouched
     *     a negative error  op->done will not be called
     *
     * `req` is valid during the call; op and the bytes of its key are valid until `done` runs. The backend may use
     * op->opaque[2] to [8]; the first two belong to weir. */
    int (*submit)(struct weir_backend *backend, const struct weir_backend_request *req, int64_t deadline_us,
                  struct weir_op *op);

    /* Optional. Add to the fields that the backend knows: full, evictions, keys, bytes, and those named store_. */
    void (*stats)(struct weir_backend *backend, struct weir_stats *add);

    /* Required with submit(), optional otherwise. The limiter is closing: soon answer every request, those that wait
     * and those that still arrive, with WEIR_ECLOSED. Must not block. Called at most once, before destroy(); other
     * threads may be inside the backend. */
    void (*shut)(struct weir_backend *backend);

    /* Required. Free everything. No other thread is inside the backend. */
    void (*destroy)(struct weir_backend *backend);

    /* Optional. Return the last time, on CLOCK_MONOTONIC, at which nothing suggested that the backend was out of reach:
     * the current time, or the time at which it began to return WEIR_EIO without trying. A backend whose parts fail
     * separately reports on the part that has `key`; with NULL, on the part that has been away longest. Return -1 if
     * it is not known. Any thread may call it. Must not block. */
    int64_t (*reachable_us)(struct weir_backend *backend, const struct weir_key *key);

    /* Optional. From now on, call `returned` each time the backend, or a part of it, becomes reachable again, and a
     * while after a WEIR_EIO_UNDONE, on a thread of the backend. `returned` does not block; it may call submit().
     * Called at most once, before the first request. */
    void (*watch)(struct weir_backend *backend, void (*returned)(void *user), void *user);

    /* Optional. The number of instances is now `count`. Any thread may call it. Must not block. */
    void (*instances)(struct weir_backend *backend, int64_t count);

    /* Optional: false. The backend keeps slots, see weir_backend_request.slot. Without it a limit cannot be
     * WEIR_CONCURRENCY. */
    bool slots;

    /* A release that adds entries adds them below this line. */
};

/* Open a limiter over a backend of your own. options.mode must be WEIR_LOCAL. The options max_keys, max_bytes, on_full
 * and keep_idle configure the fallback that decides during an outage with WEIR_FAIL_LOCAL. The limiter owns `backend`
 * if the call succeeds; otherwise the caller still does. Errors are those of weir_open(). */
WEIR_API int weir_open_backend(const struct weir_options *opts, struct weir_backend *backend, weir **out);

#ifdef __cplusplus
}
#endif
#endif
