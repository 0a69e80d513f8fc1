/* several_limits.c - holds each request to three limits, all or nothing: the client's requests, the client's tokens for
 * a language model, and the tokens of all clients together.
 *
 * A denied request charges none of the limits, and the decision names the limit that denied it. Prints
 *
 *     alice 300 tokens: allowed
 *     alice 300 tokens: denied by client_tokens, retry in 6.0 s
 *     bob 500 tokens: allowed
 *     carol 400 tokens: denied by all_tokens, retry in 7.2 s
 *     carol 1100 tokens: denied by client_tokens, never
 */
#include <weir/weir.h>

#include <stdio.h>

enum { CLIENT_REQUESTS, CLIENT_TOKENS, ALL_TOKENS, LIMITS };

static const struct {
    const char *name, *policy;
} definitions[LIMITS] = {
    { "client_requests", "sliding_window limit=20 period=1m" },
    { "client_tokens", "token_bucket limit=1000 period=1m burst=500" },
    { "all_tokens", "token_bucket limit=2500 period=1m burst=900" },
};

static int define_limits(weir *w, weir_limit **limits)
{
    int error = WEIR_OK;
    for (int i = 0; i < LIMITS && !error; i++) {
        struct weir_policy policy;
        error = weir_policy_parse(definitions[i].policy, &policy, NULL, 0);
        if (!error)
            error = weir_limit_define(w, definitions[i].name, &policy, &limits[i]);
    }
    return error;
}

static int ask(weir *w, weir_limit *const *limits, const char *client, int64_t tokens)
{
    /* Put the limit that denies most often first: in a Redis Cluster keys are charged in this order. The fixed time
     * makes the example repeatable; a server leaves now_us at 0. */
    const struct weir_request requests[LIMITS] = {
        { limits[CLIENT_REQUESTS], weir_key_text(client), 1, WEIR_DAY },
        { limits[CLIENT_TOKENS], weir_key_text(client), tokens, WEIR_DAY },
        { limits[ALL_TOKENS], weir_key_text("all"), tokens, WEIR_DAY },
    };
    struct weir_decision d;
    int error = weir_try_all(w, requests, LIMITS, &d);
    if (error)
        return error;
    printf("%s %d tokens: ", client, (int)tokens);
    if (d.allowed)
        puts("allowed");
    else if (d.retry_after_us == WEIR_NEVER)
        printf("denied by %s, never\n", definitions[d.bound_by].name);
    else
        printf("denied by %s, retry in %.1f s\n", definitions[d.bound_by].name, (double)d.retry_after_us / 1e6);
    return WEIR_OK;
}

int main(void)
{
    static const struct {
        const char *client;
        int64_t tokens;
    } traffic[] = { { "alice", 300 }, { "alice", 300 }, { "bob", 500 }, { "carol", 400 }, { "carol", 1100 } };
    weir_limit *limits[LIMITS];
    weir *w;
    int error = weir_open(NULL, &w);
    if (error) {
        fprintf(stderr, "several_limits: %s\n", weir_strerror(error));
        return 1;
    }
    error = define_limits(w, limits);
    for (size_t i = 0; i < sizeof traffic / sizeof traffic[0] && !error; i++)
        error = ask(w, limits, traffic[i].client, traffic[i].tokens);
    if (error)
        fprintf(stderr, "several_limits: %s\n", weir_strerror(error));
    weir_close(w);
    return error ? 1 : 0;
}
