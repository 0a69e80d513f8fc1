/* settle_state.h - what a limiter keeps about permits that are owed; settle.h has the functions. */
#ifndef CORE_OUTAGE_SETTLE_STATE_H
#define CORE_OUTAGE_SETTLE_STATE_H

#include "core/ground/lock.h"

#include <weir/backend.h>

#include <stdatomic.h>

#define SETTLE_RECORDS 16
#define SETTLE_BUCKETS 64 /* a power of two */

/* An outage that is over and in which permits were admitted. */
struct settle_record {
    uint32_t tag;      /* its number, the upper bits of a limit_id */
    bool walked;       /* the chain has begun with it */
    bool by_own_time;  /* requests brought times far from the limiter's clock: only requests can settle it */
    uint32_t answered; /* outage->answered while it lasted */
    int64_t since_us, until_us;
    uint64_t admitted, settled; /* permits */
};

/* A key that the walk found in the fallback. */
struct settle_key {
    struct settle_key *next;
    uint32_t limit_id;
    size_t len;
    char bytes[];
};

/* The walk that settles all keys, one record after another. The thread that has set `busy` owns all that is not
 * atomic. */
struct settle_chain {
    atomic_bool busy;
    atomic_bool again;           /* there is more to settle than when the walk began */
    atomic_bool takes_outage;    /* the walk includes the outage that lasts */
    atomic_bool failed;          /* a charge failed */
    atomic_bool has_left_some;   /* keys of the record are still owed */
    atomic_size_t waiting;       /* charges of the batch that have not ended */
    _Atomic int64_t again_us;    /* on CLOCK_MONOTONIC: begin no new walk before, unless there is more to settle */
    int64_t pause_us;            /* the pause that led to again_us */
    atomic_bool has_paid;        /* a charge has found room since the walk began */
    atomic_bool rests;           /* the walk has stopped midway; the next request continues it */
    bool walks, at_end;          /* it is in a record; it has seen all of the record */
    struct settle_record record; /* the record, as it was when its walk began */
    uint64_t place;              /* in the record, see own_ops.debtors */
    bool forgets;                /* the record was given up: its keys are forgotten, not charged */
    struct settle_key *batch;
    struct weir_limit **limits; /* by id */
    size_t limit_count;
};

/* A charge that was answered but found too little room. */
struct settle_no_room {
    uint64_t hash;  /* of the key */
    uint64_t ended; /* count of ended settlements, including this one; 0: the slot is free */
    int64_t now_us; /* the charge's time, or WEIR_OWN_CLOCK */
};

/* (c) constant, (a) atomic, (s) mutex */
struct settle {
    bool is_on;                  /* (c) */
    atomic_bool owes;            /* (a) something may be owed; otherwise no request has to look */
    _Atomic uint64_t admitted;   /* (a) permits that the fallback has admitted in the outage that lasts */
    _Atomic int64_t own_time_us; /* (a) time of the last admission far from the limiter's clock; -1: there was none */
    atomic_size_t count;         /* (a) of records; (s) writers */

    struct lock mutex;
    pthread_cond_t changed;                        /* a settlement has ended; CLOCK_MONOTONIC */
    uint64_t ended;                                /* (s) count of ended settlements */
    struct settle_record records[SETTLE_RECORDS];  /* (s) the oldest first */
    atomic_size_t given_up_count;                  /* (a) (s) writers */
    uint32_t given_up[SETTLE_RECORDS];             /* (s) tags of outages whose keys must be forgotten */
    struct settlement *under_way[SETTLE_BUCKETS];  /* (s) by the hash of the key */
    struct settle_no_room no_room[SETTLE_BUCKETS]; /* (s) by the hash, too: the last one of each bucket */
    struct settle_chain chain;
};

#endif
