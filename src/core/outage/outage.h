/* outage.h - the outage that lasts, if one does: which one it is, and when it began. */
#ifndef CORE_OUTAGE_OUTAGE_H
#define CORE_OUTAGE_OUTAGE_H

#include "core/limiter/limiter.h"
#include "core/outage/known.h"
#include "core/outage/settle_state.h"

/* Returns that wait for the backend: returns_kept.h. All (s) */
struct kept_returns {
    struct kept_return *first, **end;
    size_t count;
    size_t unseen;    /* of these, from the first on, that have not been sent yet */
    unsigned refused; /* of those sent since, so many were refused and wait again */
    bool is_sending;  /* a thread sends, or an answer is under way */
};

/* Releases that wait for the backend, and slots of the fallback that it must learn of: releases.c. (r) mutex */
struct releases {
    struct lock mutex;
    pthread_cond_t changes;       /* CLOCK_MONOTONIC */
    struct release *first, **end; /* (r) */
    size_t count;                 /* (r) including those that are being sent */
    bool is_running, ends;        /* (r) its thread */
    pthread_t thread;             /* (r) */
    atomic_bool gives;            /* (a) the fallback may have slots */
    atomic_bool is_telling;       /* (a) the backend is being told of them */
};

/* (a) atomic, (s) settle.mutex, (c) constant */
struct outage {
    _Atomic uint64_t word;           /* (a) readers, (s) writers: outage.c */
    _Atomic int64_t failed_us;       /* (a) the last failure, on CLOCK_MONOTONIC */
    _Atomic int64_t begun_us;        /* (a) when the last outage began, on CLOCK_MONOTONIC */
    _Atomic int64_t first_us;        /* (a) the same of the first outage since the last answer */
    _Atomic int64_t ended_us;        /* (a) when the last outage ended, on CLOCK_MONOTONIC */
    _Atomic int64_t logged_us;       /* (a) when an outage was last logged, on CLOCK_MONOTONIC */
    int64_t open_for_us;             /* (c) with WEIR_FAIL_OPEN: how long all outages may admit; 0: no end */
    int64_t retry_us;                /* (c) longest retry_after_us of a denial during an outage */
    _Atomic int64_t open_spent_us;   /* (a) readers, (s) writers: how much of that was spent when the outage began */
    int64_t over_us;                 /* (s) when the last outage ended */
    uint32_t answered;               /* (s) count of outages that an answer has ended; it wraps */
    _Atomic uint32_t begun_answered; /* (a) readers, (s) writers: that count when the last outage began */
    atomic_bool is_split;            /* (a) the last outage continues one that no answer has ended */
    struct known *known;             /* (c) what was left of keys; NULL: outages begin without permits */
    struct arrears *arrears;         /* (c) what no charge has paid; NULL: outages add up */
    struct settle settle;            /* what is owed */
    struct kept_returns kept;        /* what is to be given back */
    struct releases releases;
};

/* An outage, as its requests to the fallback and its record name it. */
struct outage_id {
    uint32_t tag; /* its number, the upper bits of a limit_id: OUTAGE_TAG_BIT */
    int64_t since_us;
};

/* Copy the last outage's id; true if that outage lasts. Any thread. Sequentially consistent. */
bool outage_read(const struct weir *limiter, struct outage_id *out);

/* Return the time of a request for comparing it with outages: its own, or the limiter's clock, clamped to its range. */
int64_t outage_time(const struct weir *limiter, int64_t request_us);

/* Return what outage_note_left() needs to know: which answers have been noted before a request leaves. */
static inline uint32_t outage_asked(const struct weir *limiter)
{
    const struct known *known = limiter->outage->known;
    return known ? atomic_load_explicit(&known->answers, memory_order_relaxed) : 0;
}

/* Remember what the backend's decisions report as left, except permits that this process has leased. Requests whose
 * source is WEIR_BY_NOBODY were not decided. `asked`: outage_asked() before they left. */
void outage_note_left(struct weir *limiter, const struct weir_backend_request *requests, size_t n, uint32_t asked,
                      const struct weir_decision *decisions);

/* Return this instance's part of what the backend last reported as left of a request's key; 0 if that is not known, or
 * may have been admitted before the outage was split. */
int64_t outage_left(const struct weir *limiter, const struct weir_backend_request *request);

/* True if the backend says that the part of it that has the key is in reach now, or does not know. NULL: all parts. */
bool outage_is_in_reach(const struct weir *limiter, const struct weir_key *key);

/* True if the backend says that all of it has been well until now, or does not know. */
bool outage_is_well(const struct weir *limiter);

/* True if the key's part of the backend was well for a while after the last failure, unseen by this process; or after
 * the outage began, which then is another part's outage. */
bool outage_was_well_since(const struct weir *limiter, const struct weir_key *key);

/* ---- The word ---- */

#define OUTAGE_LASTS UINT64_C(1)
#define OUTAGE_LOGGED UINT64_C(2)

/* Return the word of an outage that lasts; the number is reduced to its bits. */
uint64_t outage_word(uint64_t number, int64_t since_us);
uint32_t outage_number(uint64_t word);
int64_t outage_since_us(uint64_t word);

#endif
