/* weir.h - the whole API of weir, a rate limiter that runs inside the calling process.
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
 * Terms    A *limit* is a policy under a name. A *key* identifies whose traffic it is, such as a client's address.
 *          A *permit* is one unit of the limited resource; a request costs one or more permits.
 * Units    Every time is an int64_t in microseconds and its name ends in _us. Every quantity is an int64_t in permits.
 * Errors   Functions that return int return WEIR_OK or a negative enum weir_error unless stated otherwise. On an error
 *          they leave their output arguments untouched. "Denied" is an answer, not an error. The log hook gets details.
 * Threads  Any number of threads may use a limiter and its limits concurrently, except that weir_close() must run
 *          alone. No function may be called from a signal handler. No function is a cancellation point: a thread that
 *          pthread_cancel() cancels in one of them leaves it first. Asynchronous cancellation must be off.
 * Stack    A call that decides takes at most 8 KB of its thread's stack, weir_try_all() and weir_try_batch() at most
 *          17 KB. To these add what your log hook and clock take and, over TLS, up to 8 KB for OpenSSL. The limiter's
 *          threads have stacks of the system's default size; on them `done` of weir_submit() runs.
 * Memory   Typedef'd types are opaque and owned by the library. Struct types are owned by the caller; weir copies them.
 * Strings  Strings are NUL-terminated UTF-8 unless a length stands beside them. Keys are arbitrary bytes.
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

#define WEIR_VERSION "0.1.0" /* of this header; weir_version() returns the library's */

#define WEIR_SECOND INT64_C(1000000) /* microseconds */
#define WEIR_MINUTE (60 * WEIR_SECOND)
#define WEIR_HOUR (60 * WEIR_MINUTE)
#define WEIR_DAY (24 * WEIR_HOUR)
#define WEIR_NEVER INT64_C(-1) /* retry_after_us of a cost that can never be admitted */

/* Ranges. A value outside its range gives WEIR_EINVAL. */
#define WEIR_MAX_PERMITS INT64_C(8796093022208)    /* 2^43: limit, burst, capacity, cost: 1 to this; debt: 0 to this */
#define WEIR_MAX_PERIOD_US (366 * WEIR_DAY)        /* period: 1 us to this */
#define WEIR_MAX_BLOCKS 1024                       /* blocks of a sliding window: 1 to this ... */
#define WEIR_MAX_WIDE_BLOCKS 512                   /* ... or, if its limit is 2^32 or more, to this */
#define WEIR_MAX_FILL_US INT64_C(4481179200000000) /* 142 years: the longest time in which a limit may refill */
#define WEIR_MAX_TIME_US INT64_C(9007199254740991) /* times: 0 to this, the year 2255 */
#define WEIR_MAX_KEY_LEN 65536                     /* key length in bytes: 1 to this */
#define WEIR_MAX_NAME_LEN 128                      /* limit name: 1 to this; letters, digits, '.', '_', '-' */
#define WEIR_MAX_PATTERN_LEN 512                   /* bytes of an override's pattern, as written: 1 to this */
#define WEIR_MAX_LIMITS 65536                      /* limits per limiter, patterns in its life; then WEIR_EFULL */
#define WEIR_MAX_LABELS 32                         /* labels of weir_stats_print() */
#define WEIR_MAX_TOP_KEYS 1024                     /* weir_options.top_keys: 0 to this */
#define WEIR_TOP_KEY_SIZE 64                       /* bytes of a key that weir_top_keys_read() and events show */
#define WEIR_MAX_ALL 64                            /* requests in one weir_try_all() */
#define WEIR_MAX_SLOTS 65536                       /* slots of a key under a limit on requests in flight */
#define WEIR_MAX_SUBMITTED 65536                   /* requests of weir_submit() that may wait for Redis together */
#define WEIR_CLOCK_SLACK_US (2 * WEIR_SECOND)      /* a smaller step back of the clock is ignored, see below */

typedef struct weir weir;               /* a limiter: backend, clock, counters, limits; made by weir_open() */
typedef struct weir_limit weir_limit;   /* a policy under a name; lives as long as its limiter */
typedef struct weir_handle weir_handle; /* a limit's key, prepared for repeated use; made by weir_key_resolve() */

enum weir_error {
    WEIR_OK = 0,
    WEIR_EINVAL = -1,  /* an argument, option or policy is outside its documented range */
    WEIR_ENOMEM = -2,  /* an allocation failed; nothing was changed */
    WEIR_EFULL = -3,   /* the limiter already has WEIR_MAX_LIMITS limits, has had as many patterns, or
                       * WEIR_MAX_SUBMITTED requests wait */
    WEIR_ETIME = -4,   /* the backend did not answer in time; it may or may not have taken the permits */
    WEIR_EIO = -5,     /* a file cannot be read, or the backend cannot be reached or broke its protocol */
    WEIR_ESTATE = -6,  /* a stored state, or the file of option `shared`, is not weir's: another program wrote it, or it
                        * has another type or layout */
    WEIR_ECLOSED = -7, /* the limiter was closed while the call waited */
    WEIR_ECANCELED = -8 /* weir_cancel() ended the wait */
};

/* Return the meaning of `error` in a few lower-case words. Never NULL; static storage; any thread. */
WEIR_API const char *weir_strerror(int error);

/* Return why the calling thread's latest weir_open(), weir_open_backend() or weir_limit_define() failed, in a line that
 * names the option or field and its range. Every later warning or error of this thread replaces it. Empty before the
 * first. Never NULL; valid until the thread calls weir again. */
WEIR_API const char *weir_last_message(void);

/* Return the library's version, "MAJOR.MINOR.PATCH". Static storage. */
WEIR_API const char *weir_version(void);

/* ---- The limiter ---- */

#include <weir/options.h>
#include <weir/policy.h>

/* Open a limiter. `opts` may be NULL for all defaults: local mode. Does not wait for Redis: a request made before the
 * connection is ready waits for it, up to timeout_us.
 *
 * WEIR_EINVAL, WEIR_ENOMEM; WEIR_EIO (no random numbers from the system, a file or the control socket cannot be used,
 * or no thread could be started); WEIR_ESTATE (the file of option `shared` is not weir's); WEIR_ETIME (another process
 * has been opening that file for timeout_us, or for a second and one more for each 32 MB of it if that is longer).
 * weir_last_message() and the log hook name the option and its range, or the file and the reason.
 *
 * After fork(), only the process that opened a limiter in local mode may use it. In machine mode the child goes on
 * counting in the same file. In the modes on Redis it closes the parent's connections to Redis immediately. It starts
 * its own thread and connections with its first request, and begins without leases. Connections to Consul stay open in
 * the child, unused, because only libcurl could close them. */
WEIR_API int weir_open(const struct weir_options *opts, weir **out);

/* Close a limiter and free everything that belongs to it. Calls that wait for permits or for Redis wake up and return
 * WEIR_ECLOSED; weir_close() waits for them. Submitted requests that wait get `done` with WEIR_ECLOSED, on this
 * thread if weir_event_fd() has been called. No call may start after it. In local mode only weir_acquire() may still be
 * running. In hybrid mode leased permits go back to Redis, which takes up to timeout_us; those of leaky buckets do not.
 * Must not be called from weir_options.log or weir_peers.list. NULL is ignored. */
WEIR_API void weir_close(weir *w);

/* Check that Redis can be reached and used: charge and reset two keys of a limit that no program can name. Until this
 * succeeds, try again for at most max_wait_us (0 to WEIR_HOUR); with 0, try once, for at most twice timeout_us. Each
 * try needs the same rights as a request. In a Redis Cluster it asks the two nodes that serve these keys.
 *
 * WEIR_OK; always so in local mode and with a backend of your own. WEIR_EIO or WEIR_ETIME: Redis cannot be used, and
 * `message` gets the latest failure in words, as the log has it (docs/operations.md lists them). `message` may be NULL;
 * the sentence is truncated to `message_size` bytes, its NUL included. WEIR_EINVAL, WEIR_ENOMEM, WEIR_ESTATE,
 * WEIR_ECLOSED. */
WEIR_API int weir_ping(weir *w, int64_t max_wait_us, char *message, size_t message_size);

/* Define the limit `name`, or redefine it in place: its handle and its keys stay. `out` may be NULL. While a followed
 * policy (follow.h) has the same name, that one stays in force, and this one takes over when it goes.
 *
 * Redefining a limit never returns used permits early. At its next decision a key is charged under the new policy
 * with the permits it has in use, clipped to the new size. They return at the new policy's rate and, in local mode,
 * stay returned when a slower policy follows. If they were clipped, weir also keeps the key's use under the old policy:
 * there they return at the old rate, and later requests are charged as well. The next change begins with the larger of
 * the two uses. Redis always keeps the use under two policies, so that instances may disagree for a while. A state that
 * must grow needs room: on a full table weir_options.on_full answers for the key, as for a new one, and the key keeps
 * its old state. docs/operations.md lists when each change takes effect, in each mode and on other instances.
 *
 * A name `<limit>/<pattern>` overrides an existing limit for some of its keys. The pattern is one key; or it ends in
 * '*', and stands for all keys that begin with the bytes before it. An exact match wins, then the longest pattern. A
 * key keeps its used permits. A pattern has 1 to WEIR_MAX_PATTERN_LEN bytes of text; in it %XX stands for a key's
 * control bytes, blanks, '%', '*', '#' and '='. *out is then the limit's handle. With `policy` NULL the call ends the
 * override, if there is one.
 *
 * A limiter never forgets a pattern, because other threads may be reading it. It accepts WEIR_MAX_LIMITS different
 * patterns in its life, ended ones included. To override ever-changing keys, define one limit for each of a few
 * policies and choose by the key; or, at WEIR_EFULL, open another limiter and close this one.
 *
 * WEIR_EINVAL, WEIR_ENOMEM, WEIR_EFULL. */
WEIR_API int weir_limit_define(weir *w, const char *name, const struct weir_policy *policy, weir_limit **out);

/* Make another limit of one that the program defined and no longer uses: it gets this name, this policy and fresh keys.
 * A limiter forgets no limit, so this is for programs that make limits as their users ask for them. `limit` itself is
 * then the other limit.
 *
 * Nothing may use the limit during the call: no other call with it or about all limits, no submitted request, handle or
 * reservation. Its keys' states are not looked at any more; in memory they go as they become idle. So choose a limit
 * whose last request was reset_after_us ago, and in hybrid mode twice lease_life_us of weir_limit_info() longer.
 * Its figures begin anew.
 *
 * WEIR_EINVAL also if the name is in use, or if `limit` is or has an override or has a followed policy. WEIR_EFULL, and
 * nothing has changed, while permits of an outage are owed to Redis. After WEIR_ENOMEM the limit cannot be used again.
 */
WEIR_API int weir_limit_rename(weir_limit *limit, const char *name, const struct weir_policy *policy);

/* Define every limit and override of a policy file; none if any line is bad. WEIR_EINVAL, WEIR_EIO, WEIR_ENOMEM or
 * WEIR_EFULL with a sentence in `message` (as for weir_policy_check()) that names the file and the line. */
WEIR_API int weir_limits_load(weir *w, const char *path, char *message, size_t message_size);

/* Return the limit of that name, or NULL. */
WEIR_API weir_limit *weir_limit_find(weir *w, const char *name);

/* Return the limit's name. The string lives as long as the limit. */
WEIR_API const char *weir_limit_name(const weir_limit *limit);

/* Copy the policy in force to *out, as it was defined: the whole limit, not this instance's share. */
WEIR_API int weir_limit_policy(weir_limit *limit, struct weir_policy *out);

/* The effect of a limit in this limiter's mode. Set `size` to sizeof(struct weir_limit_info) before the call. */
struct weir_limit_info {
    size_t size;
    int64_t limit;         /* the largest cost admitted for a fresh key; in local mode, within this instance's share */
    int64_t lease_life_us; /* how long a lease may be spent at most; 0: this limit is not leased. After that a greedy
                            * token bucket's lease shrinks by what the bucket refills, until nothing is left of it. Its
                            * life stands still while what this instance has used of the key has not refilled */
    int64_t lease_max;     /* most permits of a key that this instance leases in advance */
    int64_t over_max;      /* most permits of a key that all instances together, however many, admit beyond the limit in
                            * any stretch of time, as long as Redis is available and keeps its data. If it is not 0, as
                            * many permits more as weir_refund() gives back */
};

/* Fill *out for `limit`. WEIR_EINVAL if out->size is not a known size. */
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

/* Make one key of several parts, such as an address and a path, so that different parts never make the same key. A
 * single part is the key itself. Of several, each is written as its length in decimal, a colon, its bytes and a comma
 * (a netstring, https://cr.yp.to/proto/netstrings.txt): "192.0.2.7" and "/api" make "9:192.0.2.7,4:/api,". Parts may be
 * empty; give the keys of one limit the same number of parts.
 *
 * Returns the length of the key, which `out` receives, without a NUL, if it has room for it: `size` is in bytes, and
 * `out` may be NULL if that is 0. WEIR_EINVAL if the key would be empty or longer than WEIR_MAX_KEY_LEN, or for n = 0.
 * Any thread. */
WEIR_API int weir_key_join(const struct weir_key *parts, size_t n, void *out, size_t size);

/* Make one key of a network address, so that a client has one key however its connection arrives. The first `ipv4_bits`
 * (0 to 32) of an IPv4 address count, the first `ipv6_bits` (0 to 128) of an IPv6 address. One IPv6 client usually has
 * a whole /64, so 64 is the usual choice. An IPv4-mapped address (::ffff:192.0.2.7) is that IPv4 address. Ports and
 * zones do not count. The key is text: "192.0.2.7", or with fewer bits "192.0.2.0/24" and "2001:db8::/64".
 *
 * Returns the length of the key, which `out` receives as from weir_key_join(); 48 bytes are always enough.
 * WEIR_EINVAL if the number of bits is out of range or the address is not AF_INET or AF_INET6, such as that of a Unix
 * socket. Any thread. */
struct sockaddr;
WEIR_API int weir_key_address(const struct sockaddr *address, int ipv4_bits, int ipv6_bits, void *out, size_t size);

/* Do that for an address in text: "192.0.2.7", "192.0.2.7:443", "2001:db8::1", "[2001:db8::1]:443" or
 * "fe80::1%eth0". WEIR_EINVAL if the text is anything else. */
WEIR_API int weir_key_address_text(struct weir_key text, int ipv4_bits, int ipv6_bits, void *out, size_t size);

/* Copy the policy in force for one key to *out: that of its override, or else the limit's. */
WEIR_API int weir_limit_policy_for(weir_limit *limit, struct weir_key key, struct weir_policy *out);

/* The component that made a decision. */
enum weir_source {
    WEIR_BY_MEMORY,  /* the key's state in this process, or in the file of WEIR_MACHINE */
    WEIR_BY_FULL,    /* enum weir_on_full: the table had no room for a new key */
    WEIR_BY_BACKEND, /* the user's own backend */
    WEIR_BY_REDIS,
    WEIR_BY_LEASE,       /* permits leased from Redis before */
    WEIR_BY_DENIAL,      /* a denial by Redis that still holds */
    WEIR_BY_FALLBACK,    /* WEIR_FAIL_LOCAL, during an outage */
    WEIR_BY_FAIL_OPEN,   /* WEIR_FAIL_OPEN, during an outage */
    WEIR_BY_FAIL_CLOSED, /* WEIR_FAIL_CLOSED, during an outage */
    WEIR_BY_POLICY       /* WEIR_UNLIMITED or WEIR_DENY: no state was looked at */
};
#define WEIR_SOURCES_LEN 10 /* how many there are */

struct weir_decision {      /* 64 bytes */
    bool allowed;           /* true if the permits are taken: go ahead, after delay_us */
    uint8_t source;         /* enum weir_source */
    bool would_deny;        /* true if a shadow limit or a policy's candidate would have denied the request; its permits
                             * are not taken there */
    uint8_t would_deny_by;  /* weir_try_all(): the first request that its shadow limit would have denied; else 0 */
    uint32_t bound_by;      /* weir_try_all(): index of the request that binds; else 0 */
    int64_t limit;          /* the largest cost that a fresh key would admit */
    int64_t remaining;      /* the largest cost that would be admitted right after this decision */
    int64_t delay_us;       /* leaky bucket: how long an admitted caller should wait before it goes ahead */
    int64_t retry_after_us; /* 0 if allowed; else the shortest wait after which this cost would be admitted if no other
                             * request took permits; WEIR_NEVER if it never can be */
    int64_t reset_after_us; /* time until the key has no permits in use; 0: none are */
    int64_t age_us; /* age of the information behind the decision: since the request for the lease or for the denial,
                     * or since the outage began; else 0. remaining and reset_after_us describe that moment */
    int64_t ahead;  /* between backends (<weir/backend.h>); else 0 */
};

/* If the clock steps back by at most WEIR_CLOCK_SLACK_US, or with a sliding window by at most twice its period, a
 * key's time stays at its last change. After a larger step the key's state moves to the new time with all used permits
 * still used. Neither case creates permits. */

/* Take `cost` permits (1 to WEIR_MAX_PERMITS) if they are available; never wait for them. A denial changes nothing.
 *
 * WEIR_EINVAL, WEIR_ENOMEM. In the modes on Redis the call blocks for at most timeout_us and can also return
 * WEIR_ESTATE, WEIR_ECLOSED and, with WEIR_FAIL_ERROR, WEIR_ETIME and WEIR_EIO. Refunds, resets and renewals return
 * WEIR_ETIME and WEIR_EIO whatever on_failure says; see weir_refund(). In mode WEIR_MACHINE a call can return
 * WEIR_ETIME and WEIR_EIO, see weir_options.shared. The same applies to all verbs below. */
WEIR_API int weir_try(weir_limit *limit, struct weir_key key, int64_t cost, struct weir_decision *out);

/* Decide as weir_try(), at the time `now_us` (1 to WEIR_MAX_TIME_US) that the caller has read already, as in struct
 * weir_request; 0 means the limiter's clock. In the modes on Redis this time replaces the server's, as with
 * weir_options.by_local_clock: the clocks of all instances must then agree, and keys stay in Redis a week longer. */
WEIR_API int weir_try_at(weir_limit *limit, struct weir_key key, int64_t cost, int64_t now_us,
                         struct weir_decision *out);

/* Read the limiter's clock. An event loop can read it once a turn and decide all requests of the turn at that time.
 * WEIR_EINVAL if weir_options.now_us returns a value out of range. */
WEIR_API int weir_clock(weir *w, int64_t *now_us);

/* Make a handle for a key that is used repeatedly, such as a connection's. In local mode a decision with a handle
 * skips hashing and, unless the key's entry has moved, the lookup. In the other modes it only skips hashing. It
 * always decides as weir_try() would, even if the key was dropped or reset, or the limit redefined or overridden,
 * since the call.
 *
 * The key need not exist, and a handle does not keep it alive. weir copies the key's bytes. The caller owns the
 * handle until weir_handle_free() and may use it until weir_close(), from any number of threads. WEIR_EINVAL,
 * WEIR_ENOMEM. */
WEIR_API int weir_key_resolve(weir_limit *limit, struct weir_key key, weir_handle **out);

/* Decide as weir_try_at() for the handle's key, with the same errors. */
WEIR_API int weir_handle_try(weir_handle *handle, int64_t cost, int64_t now_us, struct weir_decision *out);

/* Free a handle that no other call is using, before weir_close() or after it. NULL is ignored. */
WEIR_API void weir_handle_free(weir_handle *handle);

/* Take `cost` permits, waiting for them up to `max_wait_us` (0 or more) of real time. It also waits out delay_us, so an
 * allowed caller may go ahead immediately (delay_us is 0). Denies without waiting if the wait would exceed max_wait_us.
 *
 * Callers of this process that wait for the same key are served in the order in which they came, together with
 * submitted acquires (WEIR_OP_ACQUIRE). weir_try() and the other verbs do not stand in that line. The call also denies
 * without waiting if the first of the line waits for longer than max_wait_us. A settlement, refund or reset by this
 * process and any new policy let the first of the line ask again. It also asks every denial_life_us (2 s without it;
 * 100 ms in machine mode), because other processes may have given permits back.
 *
 * A limit on requests in flight (WEIR_CONCURRENCY) cannot tell when a permit is released, so the call waits for that up
 * to max_wait_us, and the first of the line asks every 100 ms at most. While another process waits for the same key, a
 * process whose callers have been served for 100 ms asks for nothing for the next 100 ms.
 *
 * weir_reserve_wait() does the same, and what it takes can be released or settled. Errors as weir_try(); also
 * WEIR_ECLOSED. */
WEIR_API int weir_acquire(weir_limit *limit, struct weir_key key, int64_t cost, int64_t max_wait_us,
                          struct weir_decision *out);

/* Return what weir_try() would answer, without changing anything. `remaining` is what is available now. For a new key
 * and a full table that is the answer of weir_options.on_full. */
WEIR_API int weir_peek(weir_limit *limit, struct weir_key key, int64_t cost, struct weir_decision *out);

/* Return `cost` permits to the key, up to the state of a fresh key. A sliding window takes them from its oldest block,
 * so that its promise holds no matter when they were taken. A fixed window takes them from the current window, even if
 * the permits belong to an earlier one.
 *
 * With WEIR_FAIL_LOCAL, refunds and settlements that Redis has certainly not executed are sent again until it does, and
 * the call returns WEIR_OK: because Redis is out of reach, or answers that it executes nothing (READONLY, OOM,
 * NOREPLICAS and the like). Up to 16,384 wait. Those that still wait when the limiter is closed are lost. */
WEIR_API int weir_refund(weir_limit *limit, struct weir_key key, int64_t cost);

/* Make the key fresh. In hybrid mode other instances notice a reset or a refund only when their leases and remembered
 * denials of the key have expired; a denial lasts for denial_life_us. During an outage a reset changes nothing and
 * returns an error. */
WEIR_API int weir_reset(weir_limit *limit, struct weir_key key);

/* A request for weir_try_all(), weir_try_batch() or weir_submit(). */
struct weir_request {
    weir_limit *limit;
    struct weir_key key;
    int64_t cost;
    int64_t now_us; /* decision time, 1 to WEIR_MAX_TIME_US, if the caller has read its clock already; 0: the limiter's
                     * clock. All requests of a limiter must use the same time scale. */
};

/* Charge one event to several limits of `w`, all or nothing, as one atomic step at the first request's time. Takes 1
 * to WEIR_MAX_ALL requests; limits and keys may repeat. If one request is denied, none is charged. In *out:
 *
 *     allowed                      true if every request is admitted
 *     remaining                    the smallest of all requests
 *     retry_after_us               the largest of all denials; WEIR_NEVER counts as largest
 *     reset_after_us, delay_us     the largest of all requests
 *     limit, bound_by              those of the request that binds: the denial with the longest retry_after_us, or
 *                                  without a denial the request with the least remaining
 *
 * Shadow limits bind nothing. They are asked after the others have admitted the group, each by itself, and charged if
 * they admit the request, too: out->would_deny says whether one would not. In the modes on Redis that is a second round
 * trip. The fields above describe the enforced limits, if there are any.
 *
 * In a Redis Cluster this is one step only for one key under several limits. weir charges keys in different slots one
 * after the other, in the given order, with a round trip each, and refunds them when a later one is denied or fails.
 * Until then others see the charge; a charge whose node fails in between cannot be refunded. The round trips must fit
 * in three quarters of timeout_us, because the rest is for refunds; otherwise the call returns WEIR_ETIME. Put the
 * request that is denied most often first. */
WEIR_API int weir_try_all(weir *w, const struct weir_request *requests, size_t n, struct weir_decision *out);

/* Decide `n` independent requests as weir_try(), for less than n calls would cost. They are decided in order (in a
 * Redis Cluster, in order per key), with one reading of the clock. On an error `outs` is undefined and any of the
 * requests may have been charged. During an outage on_failure answers the requests that Redis has not decided. `n`
 * may be 0. In distributed mode, up to 256 requests share one wait for Redis; a call with more than 64 allocates memory
 * for them while it lasts. */
WEIR_API int weir_try_batch(weir *w, const struct weir_request *requests, size_t n, struct weir_decision *outs);

#include <weir/costs.h>
#include <weir/events.h>
#include <weir/follow.h>
#include <weir/http.h>
#include <weir/inspect.h>
#include <weir/stats.h>
#include <weir/submit.h>

#ifdef __cplusplus
}
#endif
#endif
