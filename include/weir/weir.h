/* weir.h - the whole API of weir, a rate limiter that lives in its caller's process.
 *
 *     weir *w;  weir_limit *login;  struct weir_decision d;
 *     struct weir_options opts = WEIR_OPTIONS_INIT;
 *     struct weir_policy policy = { 0 };
 *     policy.limit = 5, policy.period_us = 60 * WEIR_SECOND, policy.burst = 10;
 *     if (weir_open(&opts, &w) != WEIR_OK || weir_limit_define(w, "login", &policy, &login) != WEIR_OK)
 *         return -1;
 *     if (weir_try(login, weir_key(ip, ip_len), 1, &d) == WEIR_OK && !d.allowed)
 *         respond_429(d.retry_after_us);
 *
 * Terms    A *limit* is a policy under a name. A *key* is whose traffic it is, such as a client's address.
 *          A *permit* is one unit of what is limited; a request costs one or more of them.
 * Units    Every time is int64_t microseconds and its name ends in _us; every quantity is int64_t permits.
 * Errors   int functions return WEIR_OK or a negative enum weir_error, and leave what they would have written
 *          untouched on an error. "Denied" is an answer, not an error. Details go to the log hook.
 * Threads  A limiter and its limits may be used from any thread at once; only weir_close() needs to be alone.
 *          No function may be called from a signal handler.
 * Memory   typedef'd types are opaque and the library's; struct types are the caller's and are copied.
 * Strings  are NUL-terminated UTF-8 unless a length stands beside them. Keys are any bytes.
 */
#ifndef WEIR_H
#define WEIR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#if defined(_WIN32)
#error "weir needs a POSIX system"
#elif defined(__GNUC__)
#define WEIR_API __attribute__((visibility("default")))
#else
#define WEIR_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

#define WEIR_VERSION "0.1.0" /* of this header; weir_version() tells the library's */

#define WEIR_SECOND INT64_C(1000000) /* microseconds */
#define WEIR_MINUTE (60 * WEIR_SECOND)
#define WEIR_HOUR (60 * WEIR_MINUTE)
#define WEIR_DAY (24 * WEIR_HOUR)
#define WEIR_NEVER INT64_C(-1) /* retry_after_us of a cost that can never fit */

/* Ranges; what lies outside is refused with WEIR_EINVAL. */
#define WEIR_MAX_PERMITS INT64_C(1000000000)       /* limit, burst, capacity, cost: 1 to this; debt: 0 to this */
#define WEIR_MAX_PERIOD_US (366 * WEIR_DAY)        /* period: 1 us to this */
#define WEIR_MAX_BLOCKS 1024                       /* blocks of a sliding window: 1 to this */
#define WEIR_MAX_FILL_US INT64_C(4481179200000000) /* 142 years: a limit that takes longer to fill is refused */
#define WEIR_MAX_TIME_US INT64_C(9007199254740991) /* times: 0 to this, the year 2255 */
#define WEIR_MAX_KEY_LEN 65536                     /* key length: 1 to this, bytes */
#define WEIR_MAX_NAME_LEN 128                      /* limit name: 1 to this; letters, digits, '.', '_', '-' */
#define WEIR_MAX_PATTERN_LEN 512                   /* pattern of an override, as written: 1 to this */
#define WEIR_MAX_LIMITS 65536                      /* limits per limiter, and patterns ever; one more is WEIR_EFULL */
#define WEIR_MAX_LABELS 32                         /* labels of weir_stats_print() */
#define WEIR_MAX_ALL 64                            /* requests in one weir_try_all() */
#define WEIR_MAX_SUBMITTED 65536                   /* requests of weir_submit() that wait for Redis at once */
#define WEIR_CLOCK_SLACK_US (2 * WEIR_SECOND)      /* a clock that steps back by no more than this is held, see below */

typedef struct weir weir;               /* backend, clock, counters and limits: made by weir_open() */
typedef struct weir_limit weir_limit;   /* a policy under a name; lives as long as its limiter does */
typedef struct weir_handle weir_handle; /* a key of a limit for a caller that comes back: made by weir_key_resolve() */

enum weir_error {
    WEIR_OK = 0,
    WEIR_EINVAL = -1, /* an argument, option or policy is outside its documented range */
    WEIR_ENOMEM = -2, /* an allocation failed; nothing was changed */
    WEIR_EFULL = -3,  /* WEIR_MAX_LIMITS limits are defined already, or as many patterns have ever been, or
                       * WEIR_MAX_SUBMITTED requests wait */
    WEIR_ETIME = -4,  /* the backend did not answer in time; the permits may or may not be taken */
    WEIR_EIO = -5,    /* a file or the backend cannot be reached or read, or broke its protocol */
    WEIR_ESTATE = -6, /* a stored state is not weir's: another writer, another type */
    WEIR_ECLOSED = -7 /* the limiter was closed while the call waited */
};

/* What `error` means, in a few lower-case words. Never NULL, static storage, any thread. */
WEIR_API const char *weir_strerror(int error);

/* The library's version, "MAJOR.MINOR.PATCH". Static storage. */
WEIR_API const char *weir_version(void);

/* ---- Policies: what the user says ---- */

enum weir_algorithm {
    WEIR_TOKEN_BUCKET,   /* the default: `limit` permits a period, up to `burst` at once */
    WEIR_FIXED_WINDOW,   /* `limit` permits a window; two windows' worth can pass around its edge */
    WEIR_SLIDING_WINDOW, /* `limit` permits in any window of that length */
    WEIR_LEAKY_BUCKET    /* a queue of `capacity` that drains `limit` a period; admits with a delay */
};
enum weir_refill {
    WEIR_GREEDY,  /* continuously, as fast as the rate makes a permit */
    WEIR_INTERVAL /* `limit` permits at once, every period */
};
enum weir_align {
    WEIR_ALIGN_FIRST, /* a key's interval or window starts with its first admitted request */
    WEIR_ALIGN_EPOCH  /* multiples of the period since 1970-01-01T00:00Z: clock hours, UTC days */
};

/* Start from all zeroes. A field that does not belong to the algorithm must stay 0. */
struct weir_policy {
    enum weir_algorithm algorithm; /* default WEIR_TOKEN_BUCKET */
    enum weir_refill refill;       /* token bucket; default WEIR_GREEDY */
    enum weir_align align;         /* fixed window, interval refill; default WEIR_ALIGN_FIRST */
    int32_t blocks;                /* sliding window: 1 to WEIR_MAX_BLOCKS; 0 means 10 */
    int64_t limit;                 /* required: permits a period, 1 to WEIR_MAX_PERMITS */
    int64_t period_us;             /* required: 1 to WEIR_MAX_PERIOD_US */
    int64_t burst;                 /* token bucket: its size; 0 means `limit` */
    int64_t debt;                  /* token bucket: how far it may be overdrawn, 0 to WEIR_MAX_PERMITS */
    int64_t capacity;              /* leaky bucket: its size; 0 means `limit` */
};

/* Whether `policy` can be enforced exactly: WEIR_OK, or WEIR_EINVAL with a sentence in `message` (may be NULL,
 * `message_size` bytes, truncated to fit) that names the field and its range. */
WEIR_API int weir_policy_check(const struct weir_policy *policy, char *message, size_t message_size);

/* Read a policy from text: an algorithm, then name=value words in any order, each at most once.
 *
 *     token_bucket   limit=N period=TIME [burst=N] [debt=N] [refill=greedy|interval] [align=first|epoch]
 *     fixed_window   limit=N period=TIME [align=first|epoch]
 *     sliding_window limit=N period=TIME [blocks=N]
 *     leaky_bucket   limit=N period=TIME [capacity=N]
 *
 * TIME is a whole number and a unit: us, ms, s, m, h, d. align belongs to a token bucket only with refill=interval.
 * WEIR_OK, or WEIR_EINVAL with a sentence in `message` (as above) that gives the word, its position (the column of
 * its first byte, from 1) and what is allowed there. `out` is checked as by weir_policy_check(). */
WEIR_API int weir_policy_parse(const char *text, struct weir_policy *out, char *message, size_t message_size);

/* Write `policy` in that grammar, fields that are 0 left out; weir_policy_parse() reads it back to the same policy.
 * WEIR_EINVAL if the policy does not pass weir_policy_check() or `text_size` bytes cannot hold the text
 * and its NUL; 160 always can. */
WEIR_API int weir_policy_print(const struct weir_policy *policy, char *text, size_t text_size);

/* One line of a policy file that is not blank and not a comment. Valid during the visit. */
struct weir_policy_line {
    int number;                       /* from 1 */
    const char *name;                 /* the limit's; NULL if the line is bad */
    const char *pattern;              /* of an override, as written; NULL if the line is for the limit itself, or bad */
    const struct weir_policy *policy; /* NULL if the line is bad */
    const char *error;                /* NULL, or what is wrong with the line and where */
};

/* Read a policy file, one `name = policy` a line, or `name/pattern = policy` for some keys (weir_limit_define()); `#`
 * starts a comment, blank lines count for nothing, a name, and a pattern of a name, may stand once. `visit` is called
 * for each line in turn, the bad ones included; a value other than 0 from it ends the reading and is returned.
 * Otherwise WEIR_OK, WEIR_EINVAL if any line was bad, WEIR_EIO (cannot be read, or is no file: a pipe or a device may
 * be only what is open already, such as /dev/stdin) or WEIR_ENOMEM, the latter two with a sentence in `message` as
 * above. */
WEIR_API int weir_policy_file_read(const char *path, int (*visit)(void *user, const struct weir_policy_line *line),
                                   void *user, char *message, size_t message_size);

/* ---- The limiter ---- */

#include <weir/options.h>

/* Make a limiter. `opts` may be NULL for all defaults: local mode. WEIR_EINVAL (the log hook gets the option's name and
 * range), WEIR_ENOMEM, WEIR_EIO (no random numbers from the system, policy or password file not readable, no thread to
 * be had). It does not wait for Redis: what is asked before the connection stands waits for it, up to timeout_us.
 * After fork() a limiter in local mode may be used only in the process that opened it. In the other modes it closes its
 * parent's connections to Redis in the child, at once, and makes a thread and connections of its own there when it is
 * first asked; the child has no leases at first. Those to Consul stay open in the child, unused: libcurl alone could
 * close them. */
WEIR_API int weir_open(const struct weir_options *opts, weir **out);

/* End a limiter and all that came from it. Calls that wait, for permits or for Redis, are woken and return
 * WEIR_ECLOSED, and are waited for; submitted requests that wait get their `done` with it, on this thread if there is a
 * weir_event_fd(). No call may come later, and in local mode none but weir_acquire() may be under way. Not to be called
 * from weir_options.log or weir_peers.list, see there. NULL is ignored. */
WEIR_API void weir_close(weir *w);

/* Put `policy` under `name`. A name that is there already keeps its handle and its keys: what a key has used so far,
 * rounded up and clipped to the new size, is charged to it under the new policy at its next decision, and what was
 * clipped is remembered for the next change: no change hands out what is used still. It comes back by the policy in
 * force: what has come back under a faster one is there, and stays so when a slower one is in force again. `out` may be
 * NULL. While a policy that is followed (follow.h) is under the same name, this one waits for its end.
 *
 * `<limit>/<pattern>` as a name overrides a limit that is there for some of its keys: for the key that is the pattern's
 * bytes, or, if it ends in '*', for all that begin with what stands before it. The exact key goes first, then the
 * longest pattern. A key keeps what it has used. Patterns are 1 to WEIR_MAX_PATTERN_LEN bytes of text, of which each
 * key byte that is a control, a blank, '%', '*', '#' or '=' is written %XX. *out is then the limit's handle. `policy`
 * NULL ends such an override, if it is there.
 *
 * No pattern is ever forgotten, for threads may be looking at it: a limiter takes WEIR_MAX_LIMITS of them in its life,
 * counting those that have ended, and the same one any number of times. Who overrides ever other keys makes one limit
 * of each of a few policies instead and chooses by the key, or, at WEIR_EFULL, opens another limiter and closes this.
 *
 * WEIR_EINVAL, WEIR_ENOMEM, WEIR_EFULL. */
WEIR_API int weir_limit_define(weir *w, const char *name, const struct weir_policy *policy, weir_limit **out);

/* Define every limit and override of a policy file, or none if any line is bad. WEIR_EINVAL, WEIR_EIO, WEIR_ENOMEM or
 * WEIR_EFULL with a sentence in `message` (as for weir_policy_check()) that names the file and the line. */
WEIR_API int weir_limits_load(weir *w, const char *path, char *message, size_t message_size);

/* The limit of that name, or NULL. */
WEIR_API weir_limit *weir_limit_find(weir *w, const char *name);

/* Its name: lives as long as the limit. */
WEIR_API const char *weir_limit_name(const weir_limit *limit);

/* The policy in force, as it was defined (whole, not this instance's share). */
WEIR_API int weir_limit_policy(weir_limit *limit, struct weir_policy *out);

/* What a limit amounts to in this limiter's mode. Set `size` to sizeof(struct weir_limit_info) before the call. */
struct weir_limit_info {
    size_t size;
    int64_t limit;         /* the largest cost that a fresh key admits; in local mode, of this instance's share */
    int64_t lease_life_us; /* 0: nothing of this limit is leased */
    int64_t lease_max;     /* permits of a key that this instance has at most ahead of use */
    int64_t over_max; /* all instances together admit at most so many permits more of a key, in any stretch of time,
                       * than the limit itself would, as long as Redis is there and keeps what it was told */
};

/* WEIR_EINVAL if out->size is not a known size. */
WEIR_API int weir_limit_info(weir_limit *limit, struct weir_limit_info *out);

/* ---- Decisions ---- */

struct weir_key {
    const void *data;
    size_t len; /* 1 to WEIR_MAX_KEY_LEN */
};
static inline struct weir_key weir_key(const void *data, size_t len)
{
    struct weir_key key;
    key.data = data;
    key.len = len;
    return key;
}
static inline struct weir_key weir_key_text(const char *text)
{
    return weir_key(text, strlen(text));
}

/* As weir_limit_policy(), for one key: the policy of its override, where it has one. */
WEIR_API int weir_limit_policy_for(weir_limit *limit, struct weir_key key, struct weir_policy *out);

/* Who decided. */
enum weir_source {
    WEIR_BY_MEMORY,  /* the key's own state in this process */
    WEIR_BY_FULL,    /* enum weir_on_full, for want of room for a new key */
    WEIR_BY_BACKEND, /* a backend of the user's own */
    WEIR_BY_REDIS,
    WEIR_BY_LEASE,      /* permits leased from Redis before */
    WEIR_BY_DENIAL,     /* a denial by Redis that still holds */
    WEIR_BY_FALLBACK,   /* enum weir_on_failure, while Redis cannot be had */
    WEIR_BY_FAIL_OPEN,  /* likewise */
    WEIR_BY_FAIL_CLOSED /* likewise */
};

struct weir_decision {      /* 64 bytes */
    bool allowed;           /* the permits are taken; go ahead, after delay_us */
    uint8_t source;         /* enum weir_source */
    uint16_t reserved0;     /* 0 */
    uint32_t bound_by;      /* weir_try_all(): index of the request that binds; else 0 */
    int64_t limit;          /* the largest cost that a fresh key would admit */
    int64_t remaining;      /* the largest cost that would be admitted right now, after this decision */
    int64_t delay_us;       /* leaky bucket: how long an admitted caller should wait before it goes ahead */
    int64_t retry_after_us; /* 0 if allowed; else the least wait after which this cost would be admitted if nobody
                             * else took anything; WEIR_NEVER if it never can be */
    int64_t reset_after_us; /* until the key is as good as new; 0: it is */
    int64_t age_us; /* how old the knowledge is by which it was made: since the lease or the denial was asked for,
                     * since the outage began; else 0. remaining and reset_after_us are as of then */
    int64_t ahead;  /* between backends (<weir/backend.h>); else 0 */
};

/* A clock that steps back by no more than WEIR_CLOCK_SLACK_US is held at a key's last change; one that steps back
 * further moves the key's state to its time with all that was used still used. Neither mints a permit. */

/* Take `cost` permits (1 to WEIR_MAX_PERMITS) if they are there; never waits for them. A denial changes nothing.
 * WEIR_EINVAL, WEIR_ENOMEM. Not in local mode also WEIR_ESTATE, WEIR_ECLOSED, and with WEIR_FAIL_ERROR WEIR_ETIME and
 * WEIR_EIO; it then blocks for timeout_us at most. The same holds for every verb below. */
WEIR_API int weir_try(weir_limit *limit, struct weir_key key, int64_t cost, struct weir_decision *out);

/* As weir_try(), at the time `now_us` (1 to WEIR_MAX_TIME_US) of a caller who has read its clock already, as in struct
 * weir_request; 0: the limiter's clock. In the modes on Redis such a time takes the place of the server's, as with
 * weir_options.by_local_clock: then the clocks of all instances must agree, and keys stay there a week longer. */
WEIR_API int weir_try_at(weir_limit *limit, struct weir_key key, int64_t cost, int64_t now_us,
                         struct weir_decision *out);

/* Read the limiter's clock: an event loop reads it once a turn and decides all that came in by it. WEIR_EINVAL if
 * weir_options.now_us answers out of its range. */
WEIR_API int weir_clock(weir *w, int64_t *now_us);

/* A handle for a key that is asked for again and again, such as that of a connection: what is needed to find it is
 * worked out once. In local mode a decision by it does without the hash and, while the key's state stays where it is,
 * without looking for it; it decides what weir_try() would, whatever happened to the key or the limit meanwhile, be it
 * dropped, reset, redefined or overridden. The key itself need not be there, nor does a handle keep it. In the other
 * modes only the hash is saved. The key's bytes are copied.
 *
 * A handle is the caller's until weir_handle_free(), and good for use until weir_close(). Any number of threads may use
 * it at once. WEIR_EINVAL, WEIR_ENOMEM. */
WEIR_API int weir_key_resolve(weir_limit *limit, struct weir_key key, weir_handle **out);

/* weir_try_at() by a handle, with all of its errors. */
WEIR_API int weir_handle_try(weir_handle *handle, int64_t cost, int64_t now_us, struct weir_decision *out);

/* Give a handle back, which no other call may be using: before weir_close() or after it. NULL is ignored. */
WEIR_API void weir_handle_free(weir_handle *handle);

/* As weir_try(), but waits up to `max_wait_us` (0 or more) of real time for the permits, and waits out delay_us too:
 * an allowed caller may go ahead at once (delay_us is 0). Denied at once if the wait would be longer than that.
 * Those who wait are served in no particular order. Also WEIR_ECLOSED. */
WEIR_API int weir_acquire(weir_limit *limit, struct weir_key key, int64_t cost, int64_t max_wait_us,
                          struct weir_decision *out);

/* What weir_try() would answer; changes nothing. `remaining` is what is there now. */
WEIR_API int weir_peek(weir_limit *limit, struct weir_key key, int64_t cost, struct weir_decision *out);

/* Give `cost` permits back, never beyond the fresh state. A sliding window gives back from its oldest block, so that
 * its promise holds whichever permits they were; a fixed window from the one that runs, even if they are of another. */
WEIR_API int weir_refund(weir_limit *limit, struct weir_key key, int64_t cost);

/* Forget the key: it is fresh again. In hybrid mode other instances see this, and a refund, when the leases and denials
 * that they have of the key have run out: a denial lasts for its retry_after_us. */
WEIR_API int weir_reset(weir_limit *limit, struct weir_key key);

struct weir_request {
    weir_limit *limit;
    struct weir_key key;
    int64_t cost;
    int64_t now_us; /* the time to decide by, 1 to WEIR_MAX_TIME_US, from a caller who has read its clock already;
                     * 0: the limiter's clock. Times must be on one scale for all requests of a limiter. */
};

/* Hold one event against several limits of `w`, all or nothing: 1 to WEIR_MAX_ALL requests, each of a limit and key of
 * its own or not, decided as one atomic step at the first request's time. If any denies, none is charged. Out:
 * allowed = all; remaining = the least; retry_after_us = the greatest of those that deny (WEIR_NEVER is greatest);
 * reset_after_us and delay_us = the greatest; limit and bound_by = those of the request that binds: the one that
 * denies longest, or else the one with the least remaining.
 *
 * In a Redis Cluster it is one step for one key under several limits. Keys in different slots are charged one after the
 * other, in their order, a round trip each, and get it back when a later one denies or fails: until then others see the
 * charge, and what cannot be given back, for its node has gone meanwhile, is lost. The round trips must fit in three
 * quarters of timeout_us, for the rest is for giving back; else it is WEIR_ETIME. So put first what denies most. */
WEIR_API int weir_try_all(weir *w, const struct weir_request *requests, size_t n, struct weir_decision *out);

/* `n` independent weir_try() at the price of fewer: decided in order (in a Redis Cluster, those of one key are), times
 * read once a call. On an error nothing in `outs` means anything and any of the requests may have been charged. Where
 * on_failure answers in place of Redis it does so for those that Redis has not decided. n = 0 is WEIR_OK. */
WEIR_API int weir_try_batch(weir *w, const struct weir_request *requests, size_t n, struct weir_decision *outs);

/* The caller's; stays in place until weir_submit() returned other than 1, or `done` has run. */
struct weir_op {
    struct weir_request request;
    struct weir_decision decision; /* written before `done` runs, or before weir_submit() returns WEIR_OK */
    void (*done)(struct weir_op *op, int status);
    void *user;         /* the caller's own */
    uint64_t opaque[8]; /* the library's */
};

/* weir_try() without ever blocking. WEIR_OK: decided already, `done` will not run. 1: `done` will run once, within
 * timeout_us, on a thread of the limiter's or one that is in a call to it (it must not block there) or, if
 * weir_event_fd() has been called, in weir_dispatch(); the bytes of the key must stay until then. `status` is WEIR_OK
 * or an error of weir_try(). Negative: an error, `done` will not run; WEIR_EFULL if WEIR_MAX_SUBMITTED requests wait
 * already. In local mode never 1. */
WEIR_API int weir_submit(weir *w, struct weir_op *op);

/* A file descriptor for the caller's own event loop: readable while weir_dispatch() has requests to complete. From the
 * first call on, no `done` runs anywhere else. To be called before the first weir_submit(); the descriptor is the
 * limiter's. WEIR_EIO if the system has none to give. In the child of a fork() the same number is a descriptor of its
 * own; if the system had none to give at that moment it is closed, and as if this had not been called yet: so call it
 * there, too, before the first weir_submit(). */
WEIR_API int weir_event_fd(weir *w);

/* Run the `done` of each submitted request that has its answer, on this thread; returns how many. Never blocks, never
 * fails; `w` must not be NULL. One thread at a time. */
WEIR_API int weir_dispatch(weir *w);

/* ---- What it has done ---- */

struct weir_stats {
    size_t size;          /* set to sizeof(struct weir_stats) before the call */
    uint64_t allowed;     /* requests admitted, those of a batch each, an all-or-nothing once */
    uint64_t denied;      /* requests denied, likewise; peeks, refunds and resets are not counted */
    uint64_t errors;      /* decisions that ended in an error */
    uint64_t fallbacks;   /* decisions by enum weir_on_failure; each counts as allowed or denied as well */
    uint64_t outages;     /* times that it took over */
    uint64_t full;        /* answers by enum weir_on_full */
    uint64_t evictions;   /* keys as good as new that were dropped */
    uint64_t share_lifts; /* limits and overrides in force whose part of a burst was 0 here and was lifted to 1, see
                           * weir_options.instances */
    uint64_t share_zeros; /* likewise, those (windows) whose part is 0 here: everything is denied */
    int64_t keys;         /* keys held; in hybrid mode those with a lease, a denial or recent requests as well */
    int64_t bytes;        /* memory held for keys and tables */
    int64_t share_weight, share_total; /* this instance's share in force; 0 of 1: none yet, see struct weir_peers */
    uint64_t store_requests;           /* requests sent to Redis */
    uint64_t store_calls;              /* script calls that carried them */
    uint64_t store_timeouts;           /* connections given up because an answer was late */
    uint64_t store_connections;        /* connections made */
    uint64_t store_breaks;             /* times that calls were answered without waiting, for Redis was thought gone */
    uint64_t leased;                   /* permits taken ahead of use */
    uint64_t lease_hits;               /* decisions by a lease */
    uint64_t lease_lost;               /* leased permits that were not used in time */
    uint64_t denial_hits;              /* decisions by a denial that still held */
    uint64_t settled;                  /* permits that were admitted in outages and charged to Redis afterwards */
    uint64_t unsettled;                /* those that it was not told of: for too many outages, for want of memory, or
                                        * for a state of the key there that is not weir's */
};

/* Add up the counters; exact when no call is under way. WEIR_EINVAL if out->size is not a known size. */
WEIR_API int weir_stats_read(weir *w, struct weir_stats *out);

struct weir_label {
    const char *name;  /* a letter or '_', then letters, digits and '_'; not beginning with "__" */
    const char *value; /* any text; what has to be escaped is */
};

/* Write `stats` in Prometheus's text format (version 0.0.4, Content-Type "text/plain; version=0.0.4"): for each field
 * # HELP, # TYPE and a sample with the `n` labels (0 to WEIR_MAX_LABELS, no name twice), which may be NULL if n is 0.
 * Counters are named weir_..._total and never fall while the limiter is open; all else are gauges. The format wants a
 * name once a page: of several limiters, print one, or give each a page of its own.
 *
 * Returns the length of the text, which may be `size` or more: then only "" was written, if there is room for that. So
 * `text` NULL and `size` 0 ask how long it is; without labels 8192 is room for it. WEIR_EINVAL if stats->size is not a
 * known size or a label is not as said. */
WEIR_API int weir_stats_print(const struct weir_stats *stats, const struct weir_label *labels, size_t n, char *text,
                              size_t size);

#include <weir/follow.h>
#include <weir/http.h>

#ifdef __cplusplus
}
#endif
#endif
