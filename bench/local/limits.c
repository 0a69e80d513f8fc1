/* limits.c - what many limits in one limiter cost a decision.
 *
 * Every key belongs to one limit, chosen by the key's text. Each draw's limit is looked up in advance and read in the
 * order of the draws, with one limit as with many. The difference is what a decision pays for them.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "local/sections.h"

/* Choose by the key's text, which is a well mixed number. */
static weir_limit *limits_choose(const struct limited *limited, const struct bench_key *key)
{
    char text[KEY_LEN + 1] = { 0 };
    memcpy(text, key->text, KEY_LEN);
    return limited->limits[strtoull(text, NULL, 16) % limited->limits_len];
}

static void limits_define(struct limited *limited)
{
    struct weir_policy policy;
    bench_require(weir_limit_policy(limited->subject.limit, &policy), "weir_limit_policy");
    limited->limits[0] = limited->subject.limit;
    for (uint64_t i = 1; i < limited->limits_len; i++) {
        char name[32];
        snprintf(name, sizeof name, "limit-%" PRIu64, i);
        bench_require(weir_limit_define(limited->subject.weir, name, &policy, &limited->limits[i]),
                      "weir_limit_define");
    }
}

static uint64_t limits_take(weir_limit *limit, const struct bench_key *key, int64_t cost)
{
    struct weir_decision decision;
    bench_require(weir_try(limit, weir_key(key, KEY_LEN), cost, &decision), "weir_try");
    return decision.allowed;
}

void limits_open(struct limited *limited, uint64_t limits_len, uint64_t keys, const struct stream *stream)
{
    *limited = (struct limited){ .limits_len = limits_len, .stream = stream };
    subject_open(&limited->subject, KIND_TOKEN, ANSWER_ALLOW, keys);
    limited->limits = bench_allocate(limits_len, sizeof(weir_limit *));
    limits_define(limited);
    for (uint64_t i = 0; i < keys; i++) {
        struct bench_key key;
        key_write(i, &key);
        limits_take(limits_choose(limited, &key), &key, SUBJECT_FILL);
    }
    limited->drawn = bench_allocate(stream->len, sizeof(weir_limit *));
    for (size_t i = 0; i < stream->len; i++)
        limited->drawn[i] = limits_choose(limited, &stream->draws[i]);
}

void limits_close(struct limited *limited)
{
    subject_close(&limited->subject);
    free(limited->limits);
    free(limited->drawn);
}

uint64_t limits_work(void *subject, const struct bench_key *draws, size_t n)
{
    const struct limited *limited = subject;
    weir_limit *const *limits = limited->drawn + (draws - limited->stream->draws);
    uint64_t admitted = 0;
    for (size_t i = 0; i < n; i++)
        admitted += limits_take(limits[i], &draws[i], 1);
    return admitted;
}
