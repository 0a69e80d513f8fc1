/* follow.h - where what is followed reaches a limiter: peers and policies, as a source reports them (weir/follow.h).
 *
 * A source is a thread of src/backends: it asks somebody outside, and calls the functions below with what it was told.
 * They may be called from any thread, take locks of the limiter's, and log.
 */
#ifndef CORE_FOLLOW_FOLLOW_H
#define CORE_FOLLOW_FOLLOW_H

#include "core/follow/peers.h"
#include "core/limiter/limiter.h"
#include "core/policy/policy_list.h"

#define FOLLOWED 3 /* enum weir_followed */

/* One thing that is followed: what weir_follow_read() tells of it. */
struct followed {
    bool is_on;                     /* (c) */
    int64_t answered_us;            /* (f) the last good answer; -1: none yet */
    int64_t said_us;                /* (f) the last failure that the log was told of; -1: none */
    bool fails;                     /* (f) since the last good answer */
    bool said;                      /* (f) and the log was told of it */
    struct weir_follow_stats stats; /* (f) */
};

/* Something that runs as long as a limiter is open. weir_close() calls `end` before the backend's end, the last one
 * first: it stops the thread, waits for it, and frees the follower.
 *
 * In a child of fork() there is no thread. `abandon` is called there at the fork, and at each fork after it, before the
 * program can close or open anything: it closes what is open, as far as that can be done there, and neither allocates
 * nor frees. `end` then frees what it can. */
struct follower {
    void (*end)(struct follower *follower);
    void (*abandon)(struct follower *follower);
    struct follower *next; /* follow.c's */
};

/* (c) constant once open, (p) peers_mutex, (f) mutex */
struct follow {
    struct follower *followers; /* (c) the last one first */
    int64_t (*now_us)(void);    /* (c) CLOCK_BOOTTIME, but in tests */

    /* Held while a share is put into force, which takes limiter->mutex and settle.mutex, so that shares come into force
     * in the order in which they were told. */
    struct lock peers_mutex;
    struct peers peers; /* (p) */

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

/* Whether the options ask for anything that is followed. */
bool follow_is_asked(const struct weir_options *options);

/* WEIR_OK, or WEIR_ENOMEM. With peers, the share before the first answer is in force afterwards. */
int follow_begin(struct weir *limiter, const struct weir_options *options);

/* Nobody waits in weir_await_ready() any more, and all followers end. */
void follow_close(struct weir *limiter);
void follow_free(struct weir *limiter);

/* While the process forks: both locks are taken, and given back on both sides. */
void follow_hold(struct follow *follow) TAKES(follow->peers_mutex, follow->mutex);
void follow_go_on(struct follow *follow) GIVES(follow->peers_mutex, follow->mutex);
void follow_begin_in_child(struct follow *follow);

/* ---- For sources ---- */

/* To be called before the limiter is the caller's. */
void follow_add(struct weir *limiter, struct follower *follower);

/* A list of peers, in any order; `self` is this one's id, or NULL if the source cannot tell. Ids and weights are
 * checked here: a list that peers_read() refuses says nothing, and counts as a failure. */
void follow_peers(struct weir *limiter, const struct weir_peer *peers, size_t n, const char *self);

/* When, on CLOCK_BOOTTIME, follow_peers_turn() has something to do if nothing is reported before: a hold-down ends, or
 * what is known gets too old. INT64_MAX: never. The peers' source sees to it. */
int64_t follow_peers_due_us(struct weir *limiter);
void follow_peers_turn(struct weir *limiter);

/* All that a source of policies has now, WEIR_FOLLOW_CONSUL_POLICIES or WEIR_FOLLOW_POLICY_FILE: names that it had
 * before and has no longer fall back to what is below. Whatever is refused is logged, counted, and leaves what was
 * there. WEIR_OK; or WEIR_ENOMEM, a failure: some are not in force, and the source is to say them all again later,
 * though it was told nothing else. */
int follow_policies(struct weir *limiter, enum weir_followed what, const struct policy_entry *entries, size_t n);

/* The source was told the same as by its last good answer: what is known is as young as now. */
void follow_confirmed(struct weir *limiter, enum weir_followed what);

/* The source was told nothing: a sentence for the log (once, until an answer is good again; then at most one a minute)
 * and for last_error. Never a secret. */
void follow_failed(struct weir *limiter, enum weir_followed what, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

#endif
