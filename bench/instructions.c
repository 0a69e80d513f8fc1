/* instructions.c - makes decisions for bench/instructions.sh, which counts their instructions.
 *
 *     weir-instructions DECISIONS allow|deny [event] [top-keys] [handle]
 *     weir-instructions DECISIONS try|pair ALGORITHM
 *
 * The first form decides at the caller's time about 64 keys of 16 bytes with a token bucket in local mode. The second
 * one decides about 1,000 keys of the named algorithm. A pair is a weir_reserve() of 10 permits and a weir_settle() for
 * 7. Time, the caller's or the clock's, is 1 us later with each decision, so that what depends on it is the same on a
 * slow machine.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <weir/weir.h>

#define KEYS 64
#define PAIR_KEYS 1000
#define BEGIN_US INT64_C(1700000000000000)

static char keys[PAIR_KEYS][17];

static void hear(void *user, const struct weir_event *event)
{
    (void)user, (void)event;
}

static int64_t tick(void *user)
{
    int64_t *now_us = user;
    return ++*now_us;
}

static weir_limit *open_limit(const struct weir_options *options, const char *text, weir **limiter)
{
    struct weir_policy policy;
    weir_limit *limit;
    if (weir_open(options, limiter) != WEIR_OK || weir_policy_parse(text, &policy, NULL, 0) != WEIR_OK ||
        weir_limit_define(*limiter, "limit", &policy, &limit) != WEIR_OK)
        exit(2);
    return limit;
}

static int try_alone(struct weir_options *options, long count, const char *answer, bool by_handle)
{
    struct weir_decision decision;
    weir_handle *handles[KEYS];
    weir *limiter;
    weir_limit *limit = open_limit(options,
                                   strcmp(answer, "allow") == 0
                                       ? "token_bucket limit=1000000000 period=1h burst=1000000000"
                                       : "token_bucket limit=1 period=1d",
                                   &limiter);
    for (int i = 0; i < KEYS; i++)
        if (weir_key_resolve(limit, weir_key(keys[i], 16), &handles[i]) != WEIR_OK)
            return 2;
    for (long i = 0; i < count; i++) {
        const int error = by_handle ? weir_handle_try(handles[i % KEYS], 1, BEGIN_US + i, &decision)
                                    : weir_try_at(limit, weir_key(keys[i % KEYS], 16), 1, BEGIN_US + i, &decision);
        if (error != WEIR_OK)
            return 2;
    }
    printf("%s\n", decision.allowed ? "allowed" : "denied");
    for (int i = 0; i < KEYS; i++)
        weir_handle_free(handles[i]);
    weir_close(limiter);
    return 0;
}

static int try_or_pair(struct weir_options *options, long count, bool is_pair, const char *algorithm)
{
    struct weir_decision decision = { 0 };
    struct weir_reservation reservation;
    char text[100];
    static int64_t now_us = BEGIN_US;
    int error = WEIR_OK;
    weir *limiter;
    options->now_us = tick;
    options->user = &now_us;
    snprintf(text, sizeof text, "%s limit=1000000000 %s=1h", algorithm,
             strcmp(algorithm, "concurrency") == 0 ? "hold" : "period");
    weir_limit *limit = open_limit(options, text, &limiter);
    for (long i = 0; i < count && !error; i++) {
        const struct weir_key key = weir_key(keys[i % PAIR_KEYS], 16);
        if (is_pair)
            error = weir_reserve(limit, key, 10, &decision, &reservation);
        else
            error = weir_try(limit, key, 10, &decision);
        if (is_pair && !error)
            error = weir_settle(limit, key, &reservation, 7);
    }
    printf("%s, %lld left\n", decision.allowed ? "allowed" : "denied", (long long)decision.remaining);
    weir_close(limiter);
    return error ? 2 : 0;
}

int main(int argc, char **argv)
{
    struct weir_options options = WEIR_OPTIONS_INIT;
    bool by_handle = false;
    if (argc < 3)
        return 2;
    const long count = strtol(argv[1], NULL, 10);
    for (int i = 0; i < PAIR_KEYS; i++)
        snprintf(keys[i], sizeof keys[i], "%016d", i);
    if (argc == 4 && (strcmp(argv[2], "try") == 0 || strcmp(argv[2], "pair") == 0))
        return try_or_pair(&options, count, strcmp(argv[2], "pair") == 0, argv[3]);
    for (int i = 3; i < argc; i++) {
        if (strcmp(argv[i], "event") == 0)
            options.event = hear;
        else if (strcmp(argv[i], "handle") == 0)
            by_handle = true;
        else
            options.top_keys = WEIR_MAX_TOP_KEYS;
    }
    return try_alone(&options, count, argv[2], by_handle);
}
