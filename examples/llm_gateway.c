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
 *
 * llm_gateway FILE LIMIT replays a trace instead, with a limit of LIMIT tokens a minute. It does so twice: with the cost
 * of each request known at its beginning, and with estimates that are off by a factor of 0.25 to 4. It prints how the
 * admitted tokens compare. A line of FILE is the time of a request, its tokens and those of its answer:
 * "2023-11-16 18:17:03.97,4808,10", as in the traces of the Azure Public Dataset.
 */
#include <weir/weir.h>

#include <stdio.h>
#include <stdlib.h>

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

static int64_t now_us = WEIR_DAY;

static int64_t set_clock(void *user)
{
    (void)user;
    return now_us; /* this makes the example repeatable; a gateway leaves weir_options.now_us at NULL */
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

/* ---- Replaying a trace ---- */

enum { MOST = 100000, TOKEN_US = 30000 /* in which a model writes a token */ };

/* An admitted request. */
struct served {
    int64_t at_us, ends_us, tokens, beyond; /* beyond: by which the tokens exceed the estimate */
    struct weir_reservation reserved;
    bool is_over;
};

static struct served served[MOST];

/* The tokens and answers that a replay admits. */
struct replay {
    int64_t count, tokens;
    int64_t most; /* tokens in a minute, without those that answers in progress use beyond their estimates */
};

/* Settle the answers that have ended. *used: the tokens of the last minute; *beyond: those that exceed the estimates of
 * answers in progress. */
static int replay_settle(struct replay *replay, int64_t *first, int64_t *used, int64_t *beyond)
{
    int error = WEIR_OK;
    *used = *beyond = 0;
    while (*first < replay->count && served[*first].is_over && served[*first].at_us <= now_us - WEIR_MINUTE)
        ++*first;
    for (int64_t i = *first; i < replay->count && !error; i++) {
        struct served *one = &served[i];
        if (!one->is_over && one->ends_us <= now_us) {
            error = weir_settle(limits[TOKENS], weir_key_text("all"), &one->reserved, one->tokens);
            one->is_over = true;
        }
        *used += one->at_us > now_us - WEIR_MINUTE ? one->tokens : 0;
        *beyond += one->is_over ? 0 : one->beyond;
    }
    return error;
}

static int replay_request(struct replay *replay, int64_t *first, int64_t asks, int64_t writes, int64_t quarters)
{
    struct weir_decision d;
    int64_t used, beyond;
    const int64_t tokens = asks + writes, estimate = tokens * quarters / 4 > 0 ? tokens * quarters / 4 : 1;
    struct served *one = &served[replay->count];
    int error = replay_settle(replay, first, &used, &beyond);
    if (!error)
        error = weir_reserve(limits[TOKENS], weir_key_text("all"), estimate, &d, &one->reserved);
    if (error || !d.allowed || replay->count == MOST - 1)
        return error;
    one->at_us = now_us;
    one->ends_us = now_us + writes * TOKEN_US;
    one->tokens = tokens;
    one->beyond = tokens > estimate ? tokens - estimate : 0;
    one->is_over = false;
    replay->count++;
    replay->tokens += tokens;
    used += tokens - beyond - one->beyond;
    replay->most = used > replay->most ? used : replay->most;
    return WEIR_OK;
}

/* Replay a trace with estimates that are exact, or off by 1 to 16 quarters. */
static int replay_run(const char *path, bool is_exact, struct replay *replay)
{
    char line[256];
    int day, hour, minute;
    double second;
    long long asks, writes;
    int error = WEIR_OK;
    int64_t first = 0;
    uint64_t random = 1;
    *replay = (struct replay){ .count = 0 };
    FILE *file = fopen(path, "r");
    if (!file) {
        perror(path);
        return WEIR_EIO;
    }
    while (!error && fgets(line, sizeof line, file)) {
        if (sscanf(line, "%*d-%*d-%d %d:%d:%lf,%lld,%lld", &day, &hour, &minute, &second, &asks, &writes) != 6)
            continue; /* the heading */
        random = random * 6364136223846793005u + 1442695040888963407u;
        now_us = day * WEIR_DAY + hour * WEIR_HOUR + minute * WEIR_MINUTE + (int64_t)(second * 1e6);
        error = replay_request(replay, &first, asks, writes, is_exact ? 4 : 1 + (int64_t)(random >> 60));
    }
    fclose(file);
    return error;
}

static int replay_both(const char *path, const char *limit)
{
    struct replay exact = { 0 }, off = { 0 };
    char text[64], message[200];
    struct weir_policy policy;
    snprintf(text, sizeof text, "sliding_window limit=%s period=1m", limit);
    int error = weir_policy_parse(text, &policy, message, sizeof message);
    if (error)
        fprintf(stderr, "%s\n", message);
    for (int i = 0; i < 2 && !error; i++) {
        error = weir_limit_define(w, "tokens", &policy, &limits[TOKENS]);
        if (!error)
            error = weir_reset(limits[TOKENS], weir_key_text("all"));
        if (!error)
            error = replay_run(path, i == 0, i == 0 ? &exact : &off);
    }
    if (!error)
        printf(
            "%lld answers with %lld tokens if each cost is known\n%lld answers with %lld tokens, %.1f %%, by estimates\n"
            "at most %lld tokens in a minute beside those that answers in progress use beyond their estimates\n",
            (long long)exact.count, (long long)exact.tokens, (long long)off.count, (long long)off.tokens,
            exact.tokens ? 100.0 * (double)off.tokens / (double)exact.tokens : 0.0, (long long)off.most);
    return error;
}

int main(int argc, char **argv)
{
    struct weir_options opts = WEIR_OPTIONS_INIT;
    struct answer first, second, third;
    if (argc != 1 && argc != 3) {
        fputs("usage: llm_gateway [FILE LIMIT]\n", stderr);
        return 2;
    }
    opts.now_us = set_clock;
    int error = weir_open(&opts, &w);
    if (!error && argc == 3) {
        error = replay_both(argv[1], argv[2]);
        if (error)
            fprintf(stderr, "llm_gateway: %s\n", weir_strerror(error));
        weir_close(w);
        return error != WEIR_OK;
    }
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
