/* stats.h - counters of a limiter and of each limit, the keys that are denied most, and Prometheus's text of them.
 * Included by weir.h. docs/operations.md has queries.
 */
#ifndef WEIR_STATS_H
#define WEIR_STATS_H

#ifndef WEIR_H
#error "include <weir/weir.h>"
#endif

struct weir_stats {
    size_t size;          /* set to sizeof(struct weir_stats) before the call */
    uint64_t allowed;     /* requests admitted; each one of a batch counts, a weir_try_all() counts once */
    uint64_t denied;      /* requests denied, counted alike; peeks, refunds and resets do not count */
    uint64_t errors;      /* decisions that ended in an error */
    uint64_t fallbacks;   /* decisions by enum weir_on_failure; each also counts as allowed or denied */
    uint64_t outages;     /* outages: times that enum weir_on_failure took over */
    uint64_t full;        /* decisions by enum weir_on_full; peeks and refunds do not count */
    uint64_t evictions;   /* idle keys dropped */
    uint64_t share_lifts; /* limits and overrides in force whose share of the burst here rounds to 0 and was raised
                           * to 1, see weir_options.instances */
    uint64_t share_zeros; /* windows in force whose share here is 0: everything is denied */
    int64_t keys;         /* keys in memory; in hybrid mode also those with a lease, a denial or recent requests */
    int64_t bytes;        /* memory in use for keys and tables */
    int64_t share_weight, share_total; /* this instance's share in force; 0 of 1: unknown, see weir_peers */
    uint64_t store_requests;           /* requests sent to Redis */
    uint64_t store_calls;              /* calls of scripts, or reads, that carried them */
    uint64_t store_timeouts;           /* connections closed because an answer was late */
    uint64_t store_connections;        /* connections opened */
    uint64_t store_breaks;             /* times that the breaker opened: calls no longer waited for Redis */
    uint64_t leased;                   /* permits leased in advance */
    uint64_t lease_hits;               /* decisions by leases */
    uint64_t lease_lost;               /* leased permits that were not used in time */
    uint64_t denial_hits;              /* decisions by remembered denials */
    uint64_t settled;                  /* permits admitted in outages and charged to Redis afterwards */
    uint64_t unsettled;                /* permits used and never charged: admitted in an outage, of too many outages,
                                        * with too little memory or a state in Redis that is not weir's; or of
                                        * weir_charge(), beyond what a key can hold */
    uint64_t releases_lost;            /* releases of slots that were not repeated, because WEIR_MAX_RELEASES waited */
    uint64_t events_lost;              /* events for weir_options.event that found the queue full */
    uint64_t lock_waits;               /* machine mode: times that a call slept until a lock of the file was free */
    uint64_t file_gone;                /* machine mode: 1 if the file was removed or replaced while it is in use */
    uint64_t outage;                   /* 1 while an outage lasts: enum weir_on_failure decides, or for some keys */
};

/* The answers of one limit, or of one override. A member of weir_try_all() counts when the group is admitted, or when
 * this limit denies it. */
struct weir_limit_stats {
    size_t size;         /* set to sizeof(struct weir_limit_stats) before the call */
    uint64_t allowed;    /* requests admitted */
    uint64_t denied;     /* requests denied; peeks, refunds and resets do not count */
    uint64_t would_deny; /* requests admitted because the limit is a shadow, or that its policy's candidate would have
                          * denied; they also count as allowed */
    uint64_t permits;    /* permits taken or charged */
    uint64_t near;       /* requests admitted that left less than a tenth of the limit */
    uint64_t by_source[WEIR_SOURCES_LEN]; /* allowed and denied together, by enum weir_source */
};

/* Add up a limit's counters, without those of its overrides, or an override's. They are exact while no call is running.
 * WEIR_EINVAL if out->size is not a known size. */
WEIR_API int weir_limit_stats_read(const weir_limit *limit, struct weir_limit_stats *out);

/* Return the limit or override in force that was made first, or the next one after `previous`; NULL: there is none. No
 * limit is ever forgotten, so limits may come into force and go between two calls. An override's handle is for
 * weir_limit_stats_read(), weir_limit_policy() and weir_limit_print_name(); requests take the limit's. */
WEIR_API weir_limit *weir_limit_next(weir *w, const weir_limit *previous);

/* Write the name under which weir_limit_define() knows the limit: "login", or "login/10.0.*" for an override. Returns
 * the length of the text. If that is `size` or more, the text did not fit, and only "" was written if size is not 0. */
WEIR_API int weir_limit_print_name(const weir_limit *limit, char *text, size_t size);

/* One of the keys that are denied most. */
struct weir_top_key {
    weir_limit *limit; /* that denied it */
    uint64_t denied;   /* how often; requests that a shadow limit would have denied count, too */
    uint64_t error;    /* `denied` may include as many denials of other keys: weir counts at most top_keys keys, and a
                        * new one takes over the smallest count. Denials in memory that follow each other within 100 us
                        * on a thread are counted by sample, one in 32, so `denied` is an estimate for them */
    uint64_t hash;     /* of the limit and the key, by a secret of this limiter: tells keys apart */
    size_t key_len;    /* of the whole key; 0 without weir_options.top_keys_in_clear */
    unsigned char key[WEIR_TOP_KEY_SIZE]; /* its first bytes, `key_len` of them at most */
};

/* Write the keys that have been denied most since weir_open(), or since the last call with `restart`, to the `room`
 * elements of `out`, the one denied most first. Returns their number, at most weir_options.top_keys. A key with more
 * than 1 / top_keys of all denials is among them. Any thread. WEIR_EINVAL without that option. */
WEIR_API int weir_top_keys_read(weir *w, struct weir_top_key *out, size_t room, bool restart);

/* Add up the counters. They are exact while no call is running. WEIR_EINVAL if out->size is not a known size. */
WEIR_API int weir_stats_read(weir *w, struct weir_stats *out);

struct weir_label {
    const char *name;  /* a letter or '_', then letters, digits and '_'; not beginning with "__" */
    const char *value; /* any text; weir escapes it */
};

/* Write `stats` in Prometheus's text format (version 0.0.4, Content-Type "text/plain; version=0.0.4"). Each field gets
 * # HELP, # TYPE and a sample with the `n` labels: 0 to WEIR_MAX_LABELS, each name once; NULL if n is 0. Counters are
 * named weir_..._total and never fall while the limiter is open; all other fields are gauges. weir_build_info is 1 and
 * has the label `version`, that of weir_version(), in place of a label of this name among the `n`. The format allows a
 * name once a page, so give each of several limiters a separate page.
 *
 * Returns the length of the text. If that is `size` or more, the text did not fit, and only "" was written if size is
 * not 0. So `text` NULL with `size` 0 returns the length; 8192 bytes are enough without labels. WEIR_EINVAL if
 * stats->size is not a known size or a label is malformed. */
WEIR_API int weir_stats_print(const struct weir_stats *stats, const struct weir_label *labels, size_t n, char *text,
                              size_t size);

/* Write the counters of all limits in that format, each with a label `limit` and the `n` labels. An override counts
 * towards its limit, so there are as many samples as limits, whatever the keys. The names begin with weir_limit_, so
 * the text may follow that of weir_stats_print() on one page. Returns as weir_stats_print(), or WEIR_ENOMEM. A label
 * named "limit" gives WEIR_EINVAL. The next call may need more room, because counters grow. */
WEIR_API int weir_limit_stats_print(weir *w, const struct weir_label *labels, size_t n, char *text, size_t size);

#endif
