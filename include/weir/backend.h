/* backend.h - how to teach weir a new place to keep its counts.
 *
 * Only those who write a backend include this; it may change in a minor release, weir.h may not. A backend is a
 * struct that starts with a struct weir_backend and one static table shared by its instances. It decides where the
 * state lives (under a lock, in a script on a server), so that one decision is one atomic step: never get, then
 * compare-and-swap, which loses updates or livelocks on hot keys.
 *
 * The core has validated every plan, key, cost and time before it calls: a backend asserts, it does not check again.
 * The core alone counts and sleeps: a backend only reports.
 */
#ifndef WEIR_BACKEND_H
#define WEIR_BACKEND_H

#include <weir/weir.h>

#ifdef __cplusplus
extern "C" {
#endif

enum weir_verb {
    WEIR_TAKE,   /* decide, and charge if allowed */
    WEIR_PEEK,   /* decide; nothing changes */
    WEIR_REFUND, /* give `cost` permits back, never beyond the fresh state; the decision is always allowed */
    WEIR_RESET   /* forget the key; the decision is that of a fresh key */
};

/* A policy made ready to run: integers only, every product below 2^53; of the whole limit if ops->shared, else with
 * this instance's share in it. What each algorithm does with it stands at the top of src/core/<algorithm>.c. Fields
 * that an algorithm has no use for are 0. */
struct weir_plan {
    int32_t algorithm, refill, align; /* enum weir_algorithm, weir_refill, weir_align */
    int32_t blocks;                   /* sliding window: how many cover a period; one more counts */
    int64_t p, q, tick_us;            /* greedy token bucket, leaky bucket: a permit is q units, p drain per tick */
    int64_t limit, period_us;         /* interval refill, windows; a sliding window's period is one block's */
    int64_t size;                     /* the largest cost a fresh key admits; 0: this share admits nothing */
    int64_t reserve;                  /* permits of the policy that `size` leaves out, weir_options.strict; else 0 */
    int64_t fingerprint;              /* of all above, 1 to 2^53-1: a state written under another one is carried over */
};

#define WEIR_OWN_CLOCK INT64_C(-1)
#define WEIR_MAX_SPREAD 65535

struct weir_backend_request {
    weir_limit *limit;     /* its name: weir_limit_name(); its plan: weir_request_plan(). Where the key has an override
                            * it stands for that: the same name and limit_id, another pointer and plan */
    struct weir_key key;   /* the bytes are valid during the call */
    uint64_t hash;         /* of key, keyed by a secret of the limiter and the limit's name */
    int64_t cost;          /* RESET: 1; TAKE with `ahead`: may be 0 */
    int64_t now_us;        /* the time to decide by, 0 to WEIR_MAX_TIME_US; or WEIR_OWN_CLOCK, see ops->own_clock */
    uint64_t plan_version; /* of that plan when the request was made: greater than 0, and than that of any plan which
                            * was in force for this key before it. Of several overrides each has versions of its own */
    /* -1: a key that is not there is fresh. Otherwise the request stands in for a backend that has failed since then:
     * its plan is this instance's share, and a key that is not there counts as one whose permits were all taken then.
     */
    int64_t cold_since_us;
    /* TAKE: permits to charge ahead of use. If `cost` is admitted (0 is), as many more of them are charged as fit into
     * what is left then divided by `spread`; decision.ahead says how many, and all else in it is as of after that, but
     * for a leaky bucket's delay_us, which is for the first of the permits charged. 0: none. Only to a backend that
     * says ops->shared or stands in for one, and never with `all`. */
    int64_t ahead;
    uint32_t spread;   /* 1 to WEIR_MAX_SPREAD where `ahead` is not 0 */
    uint32_t limit_id; /* stands for the limit: 0, 1, 2, ... in the order of definition, and for each outage anew */
    enum weir_verb verb;
    /* NULL, or a place for the backend to note where it found the key: it may write there during the call, and finds it
     * again with every request that comes by the same handle, all of which are for one key and limit_id. Requests of
     * several threads may have the same one at once: the backend guards it as it guards the key. All zeroes at first.
     * Only where nothing stands in for the backend. */
    struct weir_backend_hint *hint;
};

struct weir_backend_hint {
    uint64_t opaque[2];
};

/* Copy the plan of the request's limit and return its version: the request's, or a later one if the limit has been
 * redefined since. A backend that keeps states by version asks only for plans that it has not met; of two requests
 * that run at once the later may have the older version, and must not undo the newer one's work. Never blocks. */
WEIR_API uint64_t weir_request_plan(const struct weir_backend_request *request, struct weir_plan *out);

/* The source of a decision that was not made: see decide() below. Never seen by users. */
#define WEIR_BY_NOBODY UINT8_MAX

struct weir_backend {
    const struct weir_backend_ops *ops;
};

struct weir_backend_ops {
    size_t size;      /* sizeof(struct weir_backend_ops) where the backend was compiled */
    const char *name; /* a word, for log lines */
    bool own_clock;   /* the backend has a clock of its own: now_us is WEIR_OWN_CLOCK unless the caller gave a time */
    bool spans;       /* seldom needs to know the time: a negative deadline_us of decide() is as long from then on */
    bool shared;      /* all instances count together in it: plans are of whole limits, not of this instance's share */

    /* Required. Decide reqs[0..n), each atomic by itself and in order, or all of them as one step, all or nothing,
     * if `all` (verbs are then all WEIR_TAKE, times all the first's, no two with the same limit and key, n at most
     * WEIR_MAX_ALL; a cost may be up to WEIR_MAX_ALL times WEIR_MAX_PERMITS). Returns no later than `deadline_us` on
     * CLOCK_MONOTONIC. WEIR_OK with out[0..n) filled: with `all`, each is the decision of its own limit, as of a peek
     * wherever any denies. Otherwise a negative enum weir_error. With `all` nothing in out[] then means anything; with
     * n = 1 out[0] is as it was; else some of them may have been decided, and those that were not are left with, or
     * given, the source WEIR_BY_NOBODY, which the core has set everywhere before. WEIR_ETIME and WEIR_EIO are failures,
     * to which the core applies options.on_failure, request by request; the others reach the caller. Called from any
     * number of threads at once. */
    int (*decide)(struct weir_backend *backend, const struct weir_backend_request *reqs, size_t n, bool all,
                  int64_t deadline_us, struct weir_decision *out);

    /* Optional; NULL means that decide() never blocks. One request without blocking: WEIR_OK if decided at once
     * (op->decision is filled), 1 if op->done will run once, later, on a thread of the backend's, no later than the
     * deadline, with op->decision filled on WEIR_OK and untouched otherwise; a negative error if it will not. `req` is
     * valid during the call only, op and the bytes of its key until `done` runs. op->opaque[2..7] are the backend's,
     * the first two the core's. */
    int (*submit)(struct weir_backend *backend, const struct weir_backend_request *req, int64_t deadline_us,
                  struct weir_op *op);

    /* Optional. Add to the fields that the backend knows: full, evictions, keys, bytes, and those named store_. */
    void (*stats)(struct weir_backend *backend, struct weir_stats *add);

    /* Optional, and required with submit(). The limiter is being closed: answer what waits, and what still comes, with
     * WEIR_ECLOSED, soon. Does not block; called once at most, before destroy(), while others may be in the backend. */
    void (*shut)(struct weir_backend *backend);

    /* Required. Free it all; nobody else is in `backend` any more. */
    void (*destroy)(struct weir_backend *backend);

    /* Optional. When, on CLOCK_MONOTONIC, there last was no reason to think that the part of the backend where this key
     * is could not be reached: now, or when it began to answer WEIR_EIO without trying. Of a backend with several
     * parts, which may fail each by itself, NULL asks for the worst of them. -1: it cannot tell. Any thread; never
     * blocks. */
    int64_t (*reachable_us)(struct weir_backend *backend, const struct weir_key *key);

    /* Optional. From now on tell `returned` of each time that the backend, or a part of it, can be reached again: on a
     * thread of the backend's, which it must not hold up; it may call submit(). Called once at most, before the first
     * request. */
    void (*watch)(struct weir_backend *backend, void (*returned)(void *user), void *user);

    /* All three or none; for a backend that stands in for another (cold_since_us of all requests is 0 or more).
     *
     * debt: the permits of the request's key that were admitted in the other's place: those in use at request->now_us
     * beyond what a cold key's use would be then. Nothing changes; 0 if there is no such key.
     *
     * pay: forget the key if its debt is `permits` (0 or more) or less, otherwise give so many back to it; what is
     * still owed. One atomic step, for others may be admitted at any moment.
     *
     * debtors: visit keys of the limits whose ids have `id_tag` in their bits above the lowest 16, in some order from
     * *place on (0 at first), and move *place on. It takes about as long as to look at `most` keys, whether there are
     * as many or none, and ends early when `visit` returns false; then a few keys are visited again by the next call.
     * But for that, each key that is there from the first call to the last is visited once. False: that was the last.
     * `limit_id` tells the limit; the key's bytes are valid during the visit, under a lock: it must not call the
     * backend. */
    int64_t (*debt)(struct weir_backend *backend, const struct weir_backend_request *request);
    int64_t (*pay)(struct weir_backend *backend, const struct weir_backend_request *request, int64_t permits);
    bool (*debtors)(struct weir_backend *backend, uint32_t id_tag, uint64_t *place, size_t most,
                    bool (*visit)(void *user, uint32_t limit_id, struct weir_key key), void *user);

    /* Optional, and needed with submit() if `done` may run on a thread that brings others their answers. Whether this
     * is such a thread: it must not wait for the backend. */
    bool (*is_here)(struct weir_backend *backend);

    /* Optional. There are so many instances now. Any thread; never blocks. */
    void (*instances)(struct weir_backend *backend, int64_t count);

    /* Optional. When, on CLOCK_MONOTONIC, the part where this key is last was well, by what came of it: now, or when
     * the first of those requests failed after which none has been decided, or, if that was because nothing was to be
     * charged, none has been charged. As reachable_us() in all else; never later than that. */
    int64_t (*well_us)(struct weir_backend *backend, const struct weir_key *key);

    /* New entries go below, with the release that added them. */
};

/* Open a limiter over a backend of one's own. The options max_keys, max_bytes, on_full and keep_idle are for what
 * stands in for it with WEIR_FAIL_LOCAL; mode must be WEIR_LOCAL. Owns `backend` on success only. Errors as
 * weir_open(). */
WEIR_API int weir_open_backend(const struct weir_options *opts, struct weir_backend *backend, weir **out);

#ifdef __cplusplus
}
#endif
#endif
