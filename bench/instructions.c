/* instructions.c - makes decisions for bench/instructions.sh, which counts their instructions.
 *
 *     weir-instructions DECISIONS allow|deny [event] [top-keys]
 *
 * 64 keys of 16 bytes have a token bucket in local mode. The caller's time is 1 us later with each decision, so that what
 * depends on the time is the same on a slow machine.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <weir/weir.h>

#define KEYS 64
#define BEGIN_US INT64_C(1700000000000000)

static void hear(void *user, const struct weir_event *event)
{
    (void)user, (void)event;
}

int main(int argc, char **argv)
{
    struct weir_options options = WEIR_OPTIONS_INIT;
    struct weir_policy policy;
    struct weir_decision decision;
    weir *limiter;
    weir_limit *limit;
    char keys[KEYS][17];
    if (argc < 3)
        return 2;
    const long count = strtol(argv[1], NULL, 10);
    const char *text = strcmp(argv[2], "allow") == 0 ? "token_bucket limit=1000000000 period=1h burst=1000000000"
                                                     : "token_bucket limit=1 period=1d";
    for (int i = 3; i < argc; i++) {
        if (strcmp(argv[i], "event") == 0)
            options.event = hear;
        else
            options.top_keys = WEIR_MAX_TOP_KEYS;
    }
    if (weir_open(&options, &limiter) != WEIR_OK || weir_policy_parse(text, &policy, NULL, 0) != WEIR_OK ||
        weir_limit_define(limiter, "limit", &policy, &limit) != WEIR_OK)
        return 2;
    for (int i = 0; i < KEYS; i++)
        snprintf(keys[i], sizeof keys[i], "%016d", i);
    for (long i = 0; i < count; i++)
        if (weir_try_at(limit, weir_key(keys[i % KEYS], 16), 1, BEGIN_US + i, &decision) != WEIR_OK)
            return 2;
    printf("%s\n", decision.allowed ? "allowed" : "denied");
    weir_close(limiter);
    return 0;
}
