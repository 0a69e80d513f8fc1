/* consumer.c - a user's program, built against the installed library. */
#include <weir/weir.h>

#include <stdio.h>

int main(void)
{
    struct weir_options opts = WEIR_OPTIONS_INIT;
    struct weir_policy policy;
    struct weir_decision first, second;
    weir *w;
    weir_limit *limit;
    char text[160];

    if (weir_policy_parse("fixed_window limit=1 period=1d", &policy, text, sizeof text) != WEIR_OK ||
        weir_open(&opts, &w) != WEIR_OK)
        return 2;
    if (weir_limit_define(w, "once", &policy, &limit) != WEIR_OK ||
        weir_try(limit, weir_key_text("key"), 1, &first) != WEIR_OK ||
        weir_try(limit, weir_key_text("key"), 1, &second) != WEIR_OK)
        return 2;
    weir_close(w);
    printf("weir %s: %d %d\n", weir_version(), first.allowed, second.allowed);
    return 0;
}
