/* events.h - what weir reports to weir_options.event: keys that reach their limit, outages, changes of policies and
 * shares. Included by weir.h.
 *
 *     static void report(void *user, const struct weir_event *event)
 *     {
 *         if (event->kind == WEIR_EVENT_DENIED)
 *             fprintf(stderr, "%s denies %016" PRIx64 "\n", weir_limit_name(event->key.limit), event->key.hash);
 *     }
 *     options.event = report;
 *
 * Events wait in a queue of WEIR_EVENTS_QUEUED for all limiters of the process, and a separate thread calls the hooks,
 * one event after the other, with the lines for weir_options.log among them. So a hook that blocks holds up no decision
 * and no connection. Events that find the queue full are lost, and weir_stats.events_lost counts them.
 */
#ifndef WEIR_EVENTS_H
#define WEIR_EVENTS_H

#ifndef WEIR_H
#error "include <weir/weir.h>"
#endif

#define WEIR_EVENTS_QUEUED 256               /* events that may wait for their hooks */
#define WEIR_EVENT_GAP_US (60 * WEIR_SECOND) /* between two events of a kind about a key; more are left out */

enum weir_event_kind {
    WEIR_EVENT_NEAR,         /* key: an admission left less than a tenth of the limit, where there was more before */
    WEIR_EVENT_DENIED,       /* key: denied for the first time since it was admitted, or would be by a shadow limit */
    WEIR_EVENT_OUTAGE_BEGAN, /* outage: weir_options.on_failure decides */
    WEIR_EVENT_OUTAGE_ENDED, /* outage: the backend decides again. A change of policy or share ends an outage, too, and
                              * the next failure begins another one */
    WEIR_EVENT_POLICY, /* policy: a limit or an override has come into force, or has another policy, or has ended */
    WEIR_EVENT_SHARE   /* share: this instance's share of every limit has changed */
};

/* weir remembers the last events of up to 4,096 keys, four of a hash; another key takes over the oldest. Then a key
 * that is forgotten, and still denied, may be reported again before WEIR_EVENT_GAP_US has passed. Of several threads
 * that decide about one key at the same moment, one may miss a change. */
struct weir_event_key {
    weir_limit *limit;                    /* or the override that applies */
    uint64_t hash;                        /* of the limit and the key, as in struct weir_top_key */
    size_t key_len;                       /* of the whole key; 0 without weir_options.events_in_clear */
    unsigned char key[WEIR_TOP_KEY_SIZE]; /* its first bytes, `key_len` of them at most */
    int64_t cost;
    struct weir_decision decision;
};

/* An outage that begins less than a second after the last one that was reported is not reported, nor is its end. */
struct weir_event_outage {
    int error;         /* WEIR_EVENT_OUTAGE_BEGAN: of the request that failed, a WEIR_ETIME or WEIR_EIO */
    int64_t lasted_us; /* WEIR_EVENT_OUTAGE_ENDED: since it began */
};

struct weir_event_policy {
    weir_limit *limit;         /* or the override: weir_limit_print_name() has its name */
    bool has_ended;            /* it is no longer in force: an override that its source does not have any more */
    struct weir_policy policy; /* in force, or the last that was. If it changes quickly, changes may be left out */
};

struct weir_event_share {
    int64_t weight, total; /* as in struct weir_stats */
    int64_t instances;
};

/* Only the member that `kind` names is filled; the others are zero. */
struct weir_event {
    enum weir_event_kind kind;
    int64_t at_us; /* by the limiter's clock, or the time that the request brought */
    struct weir_event_key key;
    struct weir_event_outage outage;
    struct weir_event_policy policy;
    struct weir_event_share share;
    uint64_t reserved[8]; /* 0 */
};

#endif
