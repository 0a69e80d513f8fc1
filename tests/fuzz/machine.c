/* machine.c - a shared file whose bytes change under a limiter: bits that flip, words and pieces that are overwritten.
 *
 * The input is a list of acts: requests for a few keys of three limits, lists of all keys, and damage anywhere in the
 * file behind what a process copies when it opens it. Properties:
 *
 *     - nothing crashes, and nothing is read or written outside of the file
 *     - each call returns: a decision whose fields are in their ranges, or one of the documented errors
 *     - a key is never allowed more than its limit at once
 *     - the file can be opened again, is sound then, and decides
 */
#include "fuzz.h"

#include "backends/machine/visit.h"
#include "core/limiter/limiter.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { ACTS_MOST = 200, LIMITS = 3, LIMIT_SIZE = 10 };

static int64_t now_us;

static int64_t fuzz_clock(void *user)
{
    (void)user;
    return now_us;
}

static struct weir_options file_options(const char *path)
{
    struct weir_options options = WEIR_OPTIONS_INIT;
    options.mode = WEIR_MACHINE;
    options.shared = path;
    options.max_keys = 1;
    options.now_us = fuzz_clock;
    options.quiet = true;
    return options;
}

static weir *open_file(const char *path)
{
    const struct weir_options options = file_options(path);
    weir *limiter;
    fuzz_must(weir_open(&options, &limiter) == WEIR_OK, "the file opens: %s", weir_last_message());
    return limiter;
}

static weir_limit *define(weir *limiter, int number, const char *text)
{
    struct weir_policy policy;
    char name[16];
    weir_limit *limit;
    snprintf(name, sizeof name, "limit%d", number);
    fuzz_must(weir_policy_parse(text, &policy, NULL, 0) == WEIR_OK &&
                  weir_limit_define(limiter, name, &policy, &limit) == WEIR_OK,
              "a limit");
    return limit;
}

/* Overwrite a word of what matters most, or anything, from the stripes on. */
static void damage(const struct machine *machine, struct feed *feed)
{
    struct machine_stripe *stripe = machine_stripe(machine, 0);
    const struct machine_shape *shape = &machine->shape;
    const uint64_t words = (machine->file.facts.size - machine_stripes_at()) / sizeof(uint64_t);
    _Atomic uint64_t *word;
    switch (feed_between(feed, 0, 5)) {
    case 0: word = stripe_word(stripe, (uint64_t)feed_between(feed, 0, 40)); break; /* lock, lists, the journal */
    case 1:
        word = stripe_word(stripe, shape->cell_word + (uint64_t)feed_between(feed, 0, 40 * MACHINE_CELL_WORDS));
        break;
    case 2:
        word = stripe_word(stripe, shape->bucket_word + (uint64_t)feed_between(feed, 0, shape->cells / 2 - 1));
        break;
    case 3:
        word = feed_byte(feed) % 4 != 0 ? &file_header(&machine->file)->rules_turn
                                        : &file_header(&machine->file)->levels;
        break;
    case 4: word = stripe_word(stripe, pair_at(shape, (uint32_t)feed_between(feed, 1, 20)) + 1); break;
    default:
        word = (_Atomic uint64_t *)(void *)(machine->file.map + machine_stripes_at()) +
               feed_between(feed, 0, (int64_t)words - 1);
    }
    if (feed_byte(feed) % 4 != 0)
        atomic_fetch_xor(word, UINT64_C(1) << feed_between(feed, 0, 63));
    else
        atomic_store(word, (uint64_t)feed_between(feed, 0, INT64_MAX) * 2 + feed_byte(feed) % 2);
}

static void ask(weir_limit *limit, struct feed *feed)
{
    static const char long_key[600] = { 'k' };
    struct weir_decision decision = { .limit = LIMIT_SIZE };
    const size_t len = feed_byte(feed) % 4 == 0 ? (size_t)feed_between(feed, 1, sizeof long_key) : 5;
    char text[8];
    snprintf(text, sizeof text, "key%02d", (int)feed_between(feed, 0, 20));
    const struct weir_key key = len == 5 ? weir_key(text, len) : weir_key(long_key, len);
    int error;
    switch (feed_byte(feed) % 8) {
    case 0: error = weir_refund(limit, key, 1); break;
    case 1: error = weir_reset(limit, key); break;
    case 2: error = weir_charge(limit, key, 3); break;
    case 3: error = weir_peek(limit, key, 1, &decision); break;
    case 4: {
        struct weir_request requests[] = { { .limit = limit, .key = key, .cost = 1 },
                                           { .limit = limit, .key = weir_key("other", 5), .cost = 1 } };
        error = weir_try_all(limit->limiter, requests, 2, &decision);
        break;
    }
    default: error = weir_try(limit, key, feed_between(feed, 1, LIMIT_SIZE + 1), &decision);
    }
    fuzz_must(error == WEIR_OK || error == WEIR_EIO || error == WEIR_ETIME, "a documented error, not %d", error);
    if (error == WEIR_OK)
        fuzz_must(decision.remaining >= 0 && decision.remaining <= decision.limit && decision.limit <= 2 * LIMIT_SIZE &&
                      decision.reset_after_us >= 0 && decision.retry_after_us >= WEIR_NEVER,
                  "fields in their ranges");
}

/* ---- The inspector ---- */

static int see(void *user, const struct weir_inspected *key)
{
    int *left = user;
    fuzz_must(key->found == WEIR_FOUND_STATE && key->key.len >= 1 && key->key.len <= WEIR_MAX_KEY_LEN &&
                  strlen(key->limit) <= WEIR_MAX_NAME_LEN && key->state.used >= 0,
              "a key with its state");
    return (*left)-- == 0 ? 1 : WEIR_OK;
}

static void list_keys(const char *path, struct feed *feed)
{
    static const char *const patterns[] = { NULL, "key0*", "key07", "*" };
    const struct weir_options options = file_options(path);
    int left = (int)feed_between(feed, 0, 5000);
    bool existed;
    weir_inspector *inspector;
    fuzz_must(weir_inspect_open(&options, &inspector) == WEIR_OK, "it opens: %s", weir_last_message());
    const char *limit = feed_byte(feed) % 2 ? "limit1" : NULL, *pattern = patterns[feed_byte(feed) % 4];
    int error = weir_inspect_keys(inspector, limit, pattern, see, &left);
    fuzz_must(error == WEIR_OK || error == 1 || error == WEIR_EIO || error == WEIR_ETIME, "a documented error, not %d",
              error);
    error = weir_inspect_reset(inspector, "limit2", weir_key("key03", 5), &existed);
    fuzz_must(error == WEIR_OK || error == WEIR_EIO || error == WEIR_ETIME, "a documented error, not %d", error);
    weir_inspect_close(inspector);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char *const policies[] = { "token_bucket limit=10 period=1h", "fixed_window limit=10 period=1m",
                                            "sliding_window limit=10 period=1h blocks=12",
                                            "leaky_bucket limit=20 period=1h" };
    char path[64];
    struct feed feed = feed_of(data, size);
    weir_limit *limits[LIMITS];
    now_us = INT64_C(1700000000000000);
    snprintf(path, sizeof path, "/dev/shm/weir-fuzz-%d", (int)getpid());
    unlink(path);
    weir *limiter = open_file(path);
    for (int i = 0; i < LIMITS; i++)
        limits[i] = define(limiter, i, policies[i]);
    for (int acts = 0; acts < ACTS_MOST && !feed_is_over(&feed); acts++) {
        const uint8_t act = feed_byte(&feed);
        if (act % 4 == 0)
            damage((const struct machine *)limiter->backend, &feed);
        else if (act % 16 == 1)
            now_us += feed_magnitude(&feed, WEIR_HOUR);
        else if (act % 64 == 34)
            list_keys(path, &feed);
        else if (act % 64 == 2)
            define(limiter, act / 64 % LIMITS, policies[feed_byte(&feed) % 4]);
        else
            ask(limits[act / 16 % LIMITS], &feed);
    }
    weir_close(limiter);
    limiter = open_file(path);
    struct machine *machine = (struct machine *)limiter->backend;
    fuzz_must(stripe_check(machine, machine_stripe(machine, 0)), "the file is sound after it was opened");
    struct weir_decision decision;
    fuzz_must(weir_try(define(limiter, 0, policies[0]), weir_key("fresh", 5), 1, &decision) == WEIR_OK, "it decides");
    weir_close(limiter);
    unlink(path);
    return 0;
}
