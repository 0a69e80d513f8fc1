/* llm_gateway.c - limits a language model's users: requests a minute, tokens a minute, and answers in progress.
 *
 * The tokens of an answer are known when it ends. So the gateway reserves an estimate and settles what was used. Prints
 *
 *     alice asks for 400 tokens: admitted
 *     alice asks for 500 tokens: admitted
 *     alice asks for 100 tokens: denied by in_flight
 *     alice's answer had 100 tokens: 400 of 1000 left
 *     alice asks for 300 tokens: admitted
 *     alice's answer had 900 tokens: 0 of 1000 left
 *     alice's answer had 300 tokens: 0 of 1000 left
 *     alice asks for 1 tokens: denied by tokens
 */
#include <weir/weir.h>

#include <stdio.h>

enum { IN_FLIGHT, REQUESTS, TOKENS, LIMITS };

static const struct {
    const char *name, *policy;
} definitions[LIMITS] = {
    { "in_flight", "concurrency limit=2 hold=5m" },
    { "requests", "sliding_window limit=20 period=1m" },
    { "tokens", "sliding_window limit=1000 period=1m" },
};

/* An answer in progress. */
struct answer {
    struct weir_key user;
    struct weir_reservation reserved[LIMITS];
};

static weir *w;
static weir_limit *limits[LIMITS];

static int64_t fixed_clock(void *user)
{
    (void)user;
    return WEIR_DAY; /* this makes the example repeatable; a gateway leaves weir_options.now_us at NULL */
}

static int define_limits(void)
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

/* Begin an answer of about `estimate` tokens. */
static int answer_begin(struct answer *answer, const char *user, int64_t estimate)
{
    answer->user = weir_key_text(user);
    const struct weir_request requests[LIMITS] = {
        { limits[IN_FLIGHT], answer->user, 1, 0 },
        { limits[REQUESTS], answer->user, 1, 0 },
        { limits[TOKENS], answer->user, estimate, 0 },
    };
    struct weir_decision d;
    const int error = weir_reserve_all(w, requests, LIMITS, &d, answer->reserved);
    if (!error && d.allowed)
        printf("%s asks for %d tokens: admitted\n", user, (int)estimate);
    else if (!error)
        printf("%s asks for %d tokens: denied by %s\n", user, (int)estimate, definitions[d.bound_by].name);
    return error;
}

/* End an answer that had `tokens`, however it ended. */
static int answer_end(struct answer *answer, int64_t tokens)
{
    struct weir_decision d;
    int error = weir_release(limits[IN_FLIGHT], answer->user, &answer->reserved[IN_FLIGHT]);
    if (!error)
        error = weir_settle(limits[TOKENS], answer->user, &answer->reserved[TOKENS], tokens);
    if (!error)
        error = weir_peek(limits[TOKENS], answer->user, 1, &d);
    if (!error)
        printf("%.*s's answer had %d tokens: %d of %d left\n", (int)answer->user.len, (const char *)answer->user.data,
               (int)tokens, (int)d.remaining, (int)d.limit);
    return error;
}

int main(void)
{
    struct weir_options opts = WEIR_OPTIONS_INIT;
    struct answer first, second, third;
    opts.now_us = fixed_clock;
    int error = weir_open(&opts, &w);
    if (!error)
        error = define_limits();
    if (!error)
        error = answer_begin(&first, "alice", 400);
    if (!error)
        error = answer_begin(&second, "alice", 500);
    if (!error)
        error = answer_begin(&third, "alice", 100);
    if (!error)
        error = answer_end(&first, 100);
    if (!error)
        error = answer_begin(&third, "alice", 300);
    if (!error)
        error = answer_end(&second, 900);
    if (!error)
        error = answer_end(&third, 300);
    if (!error)
        error = answer_begin(&first, "alice", 1);
    if (error)
        fprintf(stderr, "llm_gateway: %s\n", weir_strerror(error));
    weir_close(w);
    return error != WEIR_OK;
}
