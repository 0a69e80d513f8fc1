/* policy.h - what a limit promises: algorithms, their parameters, the grammar of a policy and of a policy file.
 * Included by weir.h.
 */
#ifndef WEIR_POLICY_H
#define WEIR_POLICY_H

#ifndef WEIR_H
#error "include <weir/weir.h>"
#endif

enum weir_algorithm {
    WEIR_TOKEN_BUCKET,   /* the default: `limit` permits a period, up to `burst` together */
    WEIR_FIXED_WINDOW,   /* `limit` permits a window; twice that can pass around the edge of two windows */
    WEIR_SLIDING_WINDOW, /* `limit` permits in any stretch of one period */
    WEIR_LEAKY_BUCKET,   /* a queue of `capacity` that drains `limit` a period; it admits with a delay */
    WEIR_CONCURRENCY, /* `limit` permits at a time, each until it is released, or for `period_us`, see weir_release() */
    WEIR_UNLIMITED, /* exempts a key: everything is admitted. This and WEIR_DENY have no other field, keep no state, and
                       * are decided without a call to Redis, in all modes; docs/design/semantics.md says what they answer */
    WEIR_DENY       /* bans a key: everything is denied, for as long as the policy is in force */
};
enum weir_refill {
    WEIR_GREEDY,  /* continuously, at the policy's rate */
    WEIR_INTERVAL /* `limit` permits together, every period */
};
enum weir_align {
    WEIR_ALIGN_FIRST, /* a key's interval or window starts with its first admitted request */
    WEIR_ALIGN_EPOCH  /* it starts at multiples of the period since 1970-01-01T00:00Z: clock hours, UTC days */
};

/* The second half of a policy, see struct weir_policy. Its fields are those of a policy. */
struct weir_candidate {
    enum weir_algorithm algorithm; /* WEIR_TOKEN_BUCKET, WEIR_FIXED_WINDOW or WEIR_SLIDING_WINDOW */
    enum weir_refill refill;       /* token bucket */
    enum weir_align align;         /* fixed window, interval refill */
    int32_t blocks;                /* sliding window; 0 means 10 */
    int64_t limit;                 /* 0: the policy has no candidate, and all fields are 0 */
    int64_t period_us;             /* as of a policy */
    int64_t burst;                 /* token bucket; 0 means `limit` */
    int64_t debt;                  /* token bucket */
    int64_t capacity;              /* 0 */
    int64_t percent; /* of the keys for which the candidate is enforced instead of the first half: 0 to 100 */
};

/* Start with all fields 0. A field that does not belong to the algorithm must stay 0. */
struct weir_policy {
    enum weir_algorithm algorithm; /* default WEIR_TOKEN_BUCKET */
    enum weir_refill refill;       /* token bucket; default WEIR_GREEDY */
    enum weir_align align;         /* fixed window, interval refill; default WEIR_ALIGN_FIRST */
    int32_t blocks;                /* sliding window: 1 to WEIR_MAX_BLOCKS or, if limit is 2^32 or more, to
                                    * WEIR_MAX_WIDE_BLOCKS; 0 means 10 */
    int64_t limit;                 /* required, but not by the last two: permits a period, 1 to WEIR_MAX_PERMITS */
    int64_t period_us;             /* as `limit`: 1 to WEIR_MAX_PERIOD_US; concurrency: the hold, see weir_release() */
    int64_t burst;                 /* token bucket: its size; 0 means `limit` */
    int64_t debt;                  /* token bucket: how far a request may overdraw it, 0 to WEIR_MAX_PERMITS */
    int64_t capacity;              /* leaky bucket: its size; 0 means `limit` */
    int32_t shadow;  /* 1: a shadow limit. It decides and counts, but denies nothing: see struct weir_decision */
    int32_t percent; /* 1 to 100: enforced for this many percent of the keys and a shadow for the others; 0 means 100.
                      * Which ones: weir_options.percent_seed. More percent add keys and keep the former ones */
    /* Counts beside the policy and denies nothing: `would_deny` says what it would have denied. It is enforced for its
     * `percent` of the keys, and the first half for the others. Both halves are then token buckets or windows, and the
     * first has neither shadow nor percent. The limit's name has at most WEIR_MAX_NAME_LEN - 1 bytes */
    struct weir_candidate candidate;
};

/* Check that `policy` can be enforced exactly. WEIR_OK, or WEIR_EINVAL with a sentence in `message` that names the
 * field and its range. `message` may be NULL; the sentence is truncated to `message_size` bytes, its NUL included. */
WEIR_API int weir_policy_check(const struct weir_policy *policy, char *message, size_t message_size);

/* Parse a policy from text: an algorithm, then name=value words in any order, each at most once.
 *
 *     token_bucket   limit=N period=TIME [burst=N] [debt=N] [refill=greedy|interval] [align=first|epoch]
 *     fixed_window   limit=N period=TIME [align=first|epoch]
 *     sliding_window limit=N period=TIME [blocks=N]
 *     leaky_bucket   limit=N period=TIME [capacity=N]
 *     concurrency    limit=N hold=TIME
 *     unlimited
 *     deny
 *
 * Each but unlimited may also have the word shadow, or percent=N with N from 1 to 100.
 *
 * A comma and the word candidate begin the policy's second half, of a token bucket or a window. What follows changes
 * fields of the first half, and may set percent=N: token_bucket limit=10 period=1h, candidate limit=5. If an algorithm
 * follows, the candidate has only what stands behind it.
 *
 * N is a whole number, perhaps with a unit: k, M, G, T, or kB, MB, GB, TB (powers of 1000), or KiB, MiB, GiB, TiB
 * (powers of 1024). A fraction, of at most 18 digits, must make a whole number: 1.5k. TIME is a whole number and a
 * unit: us, ms, s, m, h, d. A token bucket takes align only with refill=interval. The result also passes weir_policy_check().
 * WEIR_OK, or WEIR_EINVAL with a sentence in `message` (as above) that gives the word, the column of its first byte
 * (from 1) and the allowed values. */
WEIR_API int weir_policy_parse(const char *text, struct weir_policy *out, char *message, size_t message_size);

/* Write `policy` in that grammar, without the fields that are 0. weir_policy_parse() reads back the same policy.
 * WEIR_EINVAL if the policy fails weir_policy_check(), or the text and its NUL need more than `text_size` bytes;
 * WEIR_POLICY_TEXT_SIZE are always enough. */
#define WEIR_POLICY_TEXT_SIZE 320
WEIR_API int weir_policy_print(const struct weir_policy *policy, char *text, size_t text_size);

/* A line of a policy file that is neither blank nor a comment. Valid only during the visit. */
struct weir_policy_line {
    int number;                       /* from 1 */
    const char *name;                 /* the limit's name; NULL if the line is bad */
    const char *pattern;              /* an override's pattern, as written; NULL for the limit itself or a bad line */
    const struct weir_policy *policy; /* NULL if the line is bad */
    const char *error;                /* NULL, or the mistake and its place in the line */
};

/* Read a policy file. Each line is `name = policy`, or `name/pattern = policy` for some keys of a limit (see
 * weir_limit_define()). `#` starts a comment; blank lines are ignored. A name, or a pattern of a name, may appear once.
 *
 * `visit` runs for each line in turn, bad lines included. If it returns a value other than 0, reading ends and returns
 * that value. Otherwise WEIR_OK; WEIR_EINVAL if any line was bad; WEIR_EIO or WEIR_ENOMEM with a sentence in `message`
 * (as above). WEIR_EIO means that the file cannot be read or is not a regular file: a pipe or a device is accepted only
 * if the process has it open already, such as /dev/stdin. */
WEIR_API int weir_policy_file_read(const char *path, int (*visit)(void *user, const struct weir_policy_line *line),
                                   void *user, char *message, size_t message_size);

#endif
