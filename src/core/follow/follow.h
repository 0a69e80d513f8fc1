/* follow.h - what is followed: peers and policies, as sources report them to a limiter (weir/follow.h).
 *
 * A source is a thread of src/backends. It queries something outside and reports the answers through the functions
 * below. Any thread may call them; they take locks of the limiter, and log.
 */
#ifndef CORE_FOLLOW_FOLLOW_H
#define CORE_FOLLOW_FOLLOW_H

#include "core/follow/peers.h"
#include "core/limiter/limiter.h"
#include "core/policy/policy_list.h"

#define FOLLOWED 3 /* enum weir_followed */

/* One thing that is followed; weir_follow_read() reports it. */
struct followed {
    bool is_on;          /* (c) */
    int64_t answered_us; /* (f) the last good answer; -1: none yet */
    int64_t said_us;     /* (f) the last failure that was logged; -1: none */
    bool fails;          /* (f) a query has failed since the last good answer */
    bool said;           /* (f) and that was logged */
    char last_said[sizeof((struct weir_follow_stats *)0)->last_error]; /* (f) the sentence that was logged last */
    struct weir_follow_stats stats;                                    /* (f) */
};

/* Something that runs while a limiter is open. weir_close() calls `end` before it ends the backend, the last follower
 * first: it stops the thread, waits for it, and frees the follower.
 *
 * A child of fork() does not have the thread. `abandon` is called there at the fork and at each later fork, before the
 * program can close or open anything. It closes what is open as far as a child can, and neither allocates nor frees.
 * `end` then frees what it can. */
struct follower {
    void (*end)(struct follower *follower);
    void (*abandon)(struct follower *follower);
    struct follower *next; /* follow.c's */
};

/* (c) constant once open, (p) peers_mutex, (f) mutex */
struct follow {
    struct follower *followers; /* (c) the newest first */
    int64_t (*now_us)(void);    /* (c) CLOCK_BOOTTIME, except in tests */

    /* Held while a share is put into force, which takes limiter->mutex and settle.mutex. So shares come into force in
     * the order in which they were reported. */
    struct lock peers_mutex;
    struct peers peers;                 /* (p) */
    struct weir_event_share last_share; /* (p) in force */

    struct lock mutex;
    pthread_cond_t changes;             /* (f) what weir_await_ready() waits for; CLOCK_MONOTONIC */
    struct followed followed[FOLLOWED]; /* by enum weir_followed */
    bool is_settled;                    /* (f) no share from before the first answer is in force */
    bool closing;                       /* (f) */
};

static inline bool follow_is_on(const struct weir *limiter, enum weir_followed what)
{
    return limiter->follow && limiter->follow->followed[what].is_on;
}

/* ---- A limiter's beginning and end ---- */

/* True if the options ask to follow anything. */
bool follow_is_asked(const struct weir_options *options);

/* Make limiter->follow. WEIR_OK or WEIR_ENOMEM. With peers, the share that precedes the first answer is in force
 * afterwards. */
int follow_begin(struct weir *limiter, const struct weir_options *options);

/* Wait until every source has answered and the resulting share is in force. WEIR_OK, WEIR_ETIME or WEIR_ECLOSED. */
int follow_await_ready(struct weir *limiter, int64_t until_us);

/* Wake all calls in weir_await_ready(), and end all followers. */
void follow_close(struct weir *limiter);
void follow_free(struct weir *limiter);

/* Take both locks for a fork, and release them on both sides. */
void follow_hold(struct follow *follow) TAKES(follow->peers_mutex, follow->mutex);
void follow_go_on(struct follow *follow) GIVES(follow->peers_mutex, follow->mutex);
void follow_begin_in_child(struct follow *follow);

/* ---- For sources ---- */

/* Add a follower, before the limiter is handed to the caller. */
void follow_add(struct weir *limiter, struct follower *follower);

/* Report a list of peers, in any order. `self` is this instance's id, or NULL if the source cannot tell. A list that
 * peers_read() refuses counts as a failure. */
void follow_peers(struct weir *limiter, const struct weir_peer *peers, size_t n, const char *self);

/* Return when, on CLOCK_BOOTTIME, follow_peers_turn() must be called unless a report comes first: a hold-down ends, or
 * what is known becomes too old. INT64_MAX: never. The source of the peers calls both. */
int64_t follow_peers_due_us(struct weir *limiter);
void follow_peers_turn(struct weir *limiter);

/* Report all policies that a source has now: WEIR_FOLLOW_CONSUL_POLICIES or WEIR_FOLLOW_POLICY_FILE. A name that it had
 * before and no longer has falls back to the layer below. A refused entry is logged and counted, and changes nothing.
 * WEIR_OK; or WEIR_ENOMEM, which is a failure: some are not in force, and the source must report them again later even
 * if nothing changes. */
int follow_policies(struct weir *limiter, enum weir_followed what, const struct policy_entry *entries, size_t n);

/* Report the same answer as the last good one: what is known is current again. */
void follow_confirmed(struct weir *limiter, enum weir_followed what);

/* Report a failure, with a sentence for the log and for last_error. It is logged if it is the first since the last good
 * answer, or differs from the one that was logged last; but for peers and Consul at most once a minute.
 * It must not contain secrets. */
void follow_failed(struct weir *limiter, enum weir_followed what, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

#endif
