/* client.c - the whole client against a scripted server: a real limiter with its threads and connections.
 *
 * The input is two stories: requests to the limiter, in distributed or hybrid mode; and, at its end, the server's
 * reaction to each call. It answers correctly (plain_store.h), whole, a byte at a time or late; or with an error,
 * damage, any bytes or nothing; or it hangs up. Times are real and short. Properties:
 *
 *     - each call returns, each submitted request ends once, closing ends those that wait, and no connection remains
 *     - a decision is in range whatever the server said, and an error is a documented one
 *     - with a truthful server no more is admitted than it charged and, except for requests that on_failure allowed,
 *       no more than the limit
 *     - no log line contains the password
 */
#include "client_server.h"
#include "fuzz.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { OPS = 8, BATCH = 4, SIZE_OF_FIRST = 10, NOT_ENDED = 99 };

/* ---- The client ---- */

struct tally {
    int64_t admitted; /* by Redis or a lease */
    int64_t at_all;   /* also by the fallback */
    bool gives_back;  /* a refund or a reset was requested */
};

static struct {
    struct feed feed;
    weir *limiter;
    weir_limit *limits[LIMITS];
    enum weir_on_failure on_failure;
    bool by_event_fd, has_password;
    struct tally tallies[LIMITS][KEYS];
    struct submitted {
        struct weir_op op;
        int limit, key;
        bool is_used;
        atomic_int status; /* NOT_ENDED until `done` has run */
    } ops[OPS];
} story;

static void hear_line(void *user, enum weir_log_level level, const char *line)
{
    (void)user;
    (void)level;
    fuzz_must(*line, "a line of the log says something");
    fuzz_must(!story.has_password || !strstr(line, SECRET), "a line of the log has no secret: %s", line);
}

static void check_status(int status, int key)
{
    const bool lied = server_lied();
    fuzz_must(status == WEIR_OK || status == WEIR_ETIME || status == WEIR_EIO || status == WEIR_ESTATE,
              "%d, %s: an error that it tells of", status, weir_strerror(status));
    fuzz_must(status != WEIR_ESTATE || key == FOREIGN_KEY || lied, "a state is said not to be ours where it is not");
}

static bool is_by_redis(const struct weir_decision *decision)
{
    return decision->source == WEIR_BY_REDIS || decision->source == WEIR_BY_LEASE || decision->source == WEIR_BY_DENIAL;
}

static void check_ranges(const struct weir_decision *decision)
{
    fuzz_must(decision->remaining >= 0 && decision->remaining <= decision->limit && decision->delay_us >= 0 &&
                  decision->reset_after_us >= 0,
              "a decision is in its ranges");
    fuzz_must(decision->allowed ? decision->retry_after_us == 0
                                : decision->retry_after_us > 0 || decision->retry_after_us == WEIR_NEVER,
              "who is denied is told for how long");
}

static void count(int limit, int key, int64_t cost, const struct weir_decision *decision)
{
    struct tally *tally = &story.tallies[limit][key];
    if (!decision->allowed)
        return;
    tally->admitted += is_by_redis(decision) ? cost : 0;
    tally->at_all += decision->source != WEIR_BY_FAIL_OPEN ? cost : 0;
}

static void check_end(int status, int limit, int key, int64_t cost, const struct weir_decision *decision)
{
    check_status(status, key);
    if (status != WEIR_OK)
        return;
    if (is_by_redis(decision))
        check_ranges(decision);
    count(limit, key, cost, decision);
}

/* ---- Steps ---- */

static int64_t cost_by_feed(void)
{
    const uint8_t choice = feed_byte(&story.feed);
    return choice < 224 ? choice % 8 + 1 : feed_magnitude(&story.feed, WEIR_MAX_PERMITS);
}

static void one_verb(uint8_t choice)
{
    const int limit = choice % LIMITS, key = choice / LIMITS % KEYS;
    const struct weir_key name = weir_key_text(key_names[key]);
    const int64_t cost = cost_by_feed();
    struct weir_decision decision = { 0 };
    struct tally *tally = &story.tallies[limit][key];
    switch (choice / 16 % 8) {
    case 0:
        tally->gives_back = true;
        check_status(weir_refund(story.limits[limit], name, cost), key);
        break;
    case 1:
        tally->gives_back = true;
        check_status(weir_reset(story.limits[limit], name), key);
        break;
    case 2: check_status(weir_peek(story.limits[limit], name, cost, &decision), key); break;
    default: {
        const int status = weir_try(story.limits[limit], name, cost, &decision);
        check_end(status, limit, key, cost, &decision);
    }
    }
}

static void several(uint8_t choice, bool all)
{
    struct weir_request requests[BATCH];
    struct weir_decision decisions[BATCH];
    const size_t n = choice / 64 + 1;
    const int key = choice / LIMITS % KEYS;
    memset(decisions, 0, sizeof decisions);
    for (size_t i = 0; i < n; i++)
        requests[i] = (struct weir_request){ .limit = story.limits[all ? i : choice % LIMITS],
                                             .key = weir_key_text(key_names[all ? key : (key + (int)i) % KEYS]),
                                             .cost = cost_by_feed() };
    if (all) {
        const int status = weir_try_all(story.limiter, requests, n, &decisions[0]);
        check_status(status, key);
        for (size_t i = 0; status == WEIR_OK && i < n; i++) /* a group is admitted for all or for none */
            count((int)i, key, requests[i].cost, &decisions[0]);
        return;
    }
    check_status(weir_try_batch(story.limiter, requests, n, decisions), FOREIGN_KEY);
    for (size_t i = 0; i < n; i++)
        count(choice % LIMITS, (key + (int)i) % KEYS, requests[i].cost, &decisions[i]);
}

/* Called on any thread. */
static void op_done(struct weir_op *op, int status)
{
    struct submitted *submitted = op->user;
    fuzz_must(atomic_load(&submitted->status) == NOT_ENDED && status != NOT_ENDED, "a request ends once");
    atomic_store_explicit(&submitted->status, status, memory_order_release);
}

static void collect(void)
{
    if (story.by_event_fd)
        weir_dispatch(story.limiter);
    for (int i = 0; i < OPS; i++) {
        struct submitted *submitted = &story.ops[i];
        const int status = atomic_load_explicit(&submitted->status, memory_order_acquire);
        if (!submitted->is_used || status == NOT_ENDED)
            continue;
        submitted->is_used = false;
        if (status != WEIR_ECLOSED)
            check_end(status, submitted->limit, submitted->key, submitted->op.request.cost, &submitted->op.decision);
    }
}

static void submit(uint8_t choice)
{
    struct submitted *submitted = &story.ops[choice / 16 % OPS];
    collect();
    if (submitted->is_used)
        return;
    submitted->limit = choice % LIMITS;
    submitted->key = choice / LIMITS % KEYS;
    submitted->is_used = true;
    atomic_store(&submitted->status, NOT_ENDED);
    submitted->op = (struct weir_op){ .request = { .limit = story.limits[submitted->limit],
                                                   .key = weir_key_text(key_names[submitted->key]),
                                                   .cost = cost_by_feed() },
                                      .done = op_done,
                                      .user = submitted };
    const int status = weir_submit(story.limiter, &submitted->op);
    if (status != 1)
        op_done(&submitted->op, status);
}

static bool anything_waits(void)
{
    for (int i = 0; i < OPS; i++)
        if (story.ops[i].is_used)
            return true;
    return false;
}

static void await(void)
{
    for (collect(); anything_waits(); collect())
        nanosleep(&(struct timespec){ .tv_nsec = 20000 }, NULL);
}

static void step(void)
{
    const uint8_t choice = feed_byte(&story.feed), what = feed_byte(&story.feed);
    switch (what % 8) {
    case 0: await(); break;
    case 1: several(choice, true); break;
    case 2: several(choice, false); break;
    case 3:
    case 4: submit(choice); break;
    default: one_verb(choice);
    }
}

/* ---- Life ---- */

static void story_open(uint8_t shape)
{
    static const char *const policies[LIMITS] = { "fixed_window limit=10 period=366d",
                                                  "token_bucket limit=100 period=1s burst=20",
                                                  "sliding_window limit=7 period=1m blocks=6",
                                                  "leaky_bucket limit=50 period=1s capacity=5" };
    static const int64_t timeouts_us[] = { 10000, 3000, 1000, 30 };
    char url[256];
    struct weir_options options = WEIR_OPTIONS_INIT;
    story.has_password = shape & 16;
    snprintf(url, sizeof url, "unix://%s%s", story.has_password ? ":" SECRET "@" : "", server_path());
    story.on_failure = (enum weir_on_failure)(shape / 2 % 4);
    options.mode = shape & 1 ? WEIR_HYBRID : WEIR_DISTRIBUTED;
    options.on_failure = story.on_failure;
    options.redis_url = url;
    options.timeout_us = timeouts_us[shape / 32 % 4];
    options.log = hear_line;
    fuzz_must(weir_open(&options, &story.limiter) == WEIR_OK, "a limiter opens");
    story.by_event_fd = shape & 8;
    fuzz_must(!story.by_event_fd || weir_event_fd(story.limiter) >= 0, "there is a descriptor");
    for (int i = 0; i < LIMITS; i++) {
        struct weir_policy policy;
        fuzz_must(weir_policy_parse(policies[i], &policy, NULL, 0) == WEIR_OK &&
                      weir_limit_define(story.limiter, limit_names[i], &policy, &story.limits[i]) == WEIR_OK,
                  "a limit is defined");
    }
}

static void story_close(void)
{
    weir_close(story.limiter);
    for (int i = 0; i < OPS; i++)
        fuzz_must(!story.ops[i].is_used || atomic_load(&story.ops[i].status) != NOT_ENDED, "closing ends what waits");
    story.by_event_fd = false;
    collect();
    server_rest();
}

static void check_sums(void)
{
    if (server_lied())
        return;
    for (int i = 0; i < LIMITS; i++) {
        for (int k = 0; k < KEYS; k++) {
            const struct tally *tally = &story.tallies[i][k];
            const int64_t charged = server_charged(i, k);
            fuzz_must(tally->admitted <= charged, "%s of %s: %lld were charged, %lld admitted", key_names[k],
                      limit_names[i], (long long)charged, (long long)tally->admitted);
            fuzz_must(i > 0 || tally->gives_back || tally->at_all <= SIZE_OF_FIRST, "%s of %s: %lld were admitted",
                      key_names[k], limit_names[i], (long long)tally->at_all);
        }
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 3)
        return 0;
    const size_t script = (size_t)data[1] * (size - 2) / 255;
    story.feed = feed_of(data + 2, size - 2 - script);
    memset(story.tallies, 0, sizeof story.tallies);
    for (int i = 0; i < OPS; i++)
        story.ops[i].is_used = false;
    server_begin(data + size - script, script, data[0] & 128);
    story_open(data[0]);
    while (!feed_is_over(&story.feed))
        step();
    story_close();
    check_sums();
    return 0;
}
