/* settle_state.h - what a limiter keeps of what is owed; settle.h has the functions. */
#ifndef CORE_OUTAGE_SETTLE_STATE_H
#define CORE_OUTAGE_SETTLE_STATE_H

#include "core/ground/lock.h"

#include <weir/backend.h>

#include <stdatomic.h>

#define SETTLE_RECORDS 16
#define SETTLE_BUCKETS 64 /* a power of two */

/* An outage in which permits were admitted, and which is over. */
struct settle_record {
    uint32_t tag;     /* its number, which is the upper bits of the ids of its limits */
    bool walked;      /* the chain has been at it */
    bool by_own_time; /* of requests that brought one far from the limiter's clock: only requests can settle it */
    int64_t since_us, until_us;
    uint64_t admitted, settled; /* permits */
};

/* The walk that settles all keys, one record after the other. What is not atomic is whose it is while it is busy. */
struct settle_chain {
    atomic_bool busy;
    atomic_bool again;           /* there is more to settle than there was when it began */
    atomic_bool takes_outage;    /* that lasts, too */
    atomic_bool failed;          /* a charge did */
    atomic_bool has_left_some;   /* keys of the record are still owed */
    atomic_size_t waiting;       /* for charges of the batch */
    _Atomic int64_t again_us;    /* on CLOCK_MONOTONIC: not to begin anew before, unless there is more to settle */
    int64_t pause_us;            /* that it was set with */
    atomic_bool has_paid;        /* a charge has found room since it began */
    atomic_bool rests;           /* amid a walk, for the next who comes along */
    bool walks, at_end;          /* it is at a record; has seen all of it */
    struct settle_record record; /* which it is at, as that was when the walk began */
    uint64_t place;              /* in it, see own_ops.debtors */
    bool forgets;                /* it was given up: what is owed of its keys is forgotten */
    struct settle_key *batch;
    struct weir_limit **limits; /* by id */
    size_t limit_count;
};

/* A charge that was answered and found too little room. */
struct settle_no_room {
    uint64_t hash;  /* of the key */
    uint64_t ended; /* settlements, with this one; 0: none has */
    int64_t now_us; /* it was charged by, or WEIR_OWN_CLOCK */
};

/* (c) constant, (a) atomic, (s) mutex */
struct settle {
    bool is_on;                  /* (c) */
    atomic_bool owes;            /* (a) something may be owed: else nobody has to look */
    _Atomic uint64_t admitted;   /* (a) permits, by the stand-in in the outage that lasts */
    _Atomic int64_t own_time_us; /* (a) of the last of them whose time was far from the limiter's clock; -1: none was */
    atomic_size_t count;         /* (a) of records; (s) writers */

    struct lock mutex;
    pthread_cond_t changed;                        /* a settlement has ended; CLOCK_MONOTONIC */
    uint64_t ended;                                /* (s) settlements */
    struct settle_record records[SETTLE_RECORDS];  /* (s) the oldest first */
    atomic_size_t given_up_count;                  /* (a) (s) writers */
    uint32_t given_up[SETTLE_RECORDS];             /* (s) outages whose keys are to be forgotten, by number */
    struct settlement *under_way[SETTLE_BUCKETS];  /* (s) by the hash of the key */
    struct settle_no_room no_room[SETTLE_BUCKETS]; /* (s) likewise, the last of each */
    struct settle_chain chain;
};

#endif
