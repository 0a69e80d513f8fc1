/* redis_read.c - takes that read the time and the key instead of running their script.
 *
 * The input is takes for one key, the time and the value that the server answers, and a fate of the two replies.
 * Properties:
 *
 *     - replies that say what the server has, however they are cut, end all takes with the decisions of the core by
 *       take, if these are denials and the state is not younger than the time; otherwise they end none
 *     - a read never ends a take with an admission, whatever arrives, and never changes a state
 *     - takes that a read has not ended are sent again once, by their script, and each ends once
 */
#include "fuzz.h"
#include "state_bytes.h"

#include "backends/redis/flight/call.h"
#include "backends/redis/flight/denials.h"
#include "core/algorithm/algorithm.h"
#include "core/api/verbs.h"
#include "core/ground/arith.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TAKES = 4, POLICIES = 6, NOT_ENDED = 99 };

static struct {
    weir *limiter;
    weir_limit *limits[POLICIES];
    struct redis_denials *denials;
    struct redis_flight *flight, *again;
    struct weir_backend_request takes[TAKES];
    struct weir_decision decisions[TAKES];
    int statuses[TAKES];
    size_t n;
    struct weir_plan plan;
    int64_t now_us, state[STATE_MAX_WORDS]; /* what the server has */
    bool stored;
} play;

static void open_once(void)
{
    static const char *const policies[POLICIES] = {
        "token_bucket limit=10 period=1s burst=20 debt=3", "leaky_bucket limit=50 period=1s capacity=100",
        "token_bucket limit=10 period=1m refill=interval", "fixed_window limit=1000 period=1h align=epoch",
        "sliding_window limit=100 period=1m blocks=6",     "token_bucket limit=999983 period=366d burst=7",
    };
    if (play.limiter)
        return;
    fuzz_must(weir_open(NULL, &play.limiter) == WEIR_OK, "a limiter opens");
    for (int i = 0; i < POLICIES; i++) {
        struct weir_policy policy;
        char name[16];
        snprintf(name, sizeof name, "limit-%d", i);
        fuzz_must(weir_policy_parse(policies[i], &policy, NULL, 0) == WEIR_OK &&
                      weir_limit_define(play.limiter, name, &policy, &play.limits[i]) == WEIR_OK,
                  "a limit is defined");
    }
    play.denials = calloc(1, sizeof *play.denials);
    const struct redis_flight_rules rules = { .replicas = 1, .denials = play.denials };
    play.flight = redis_flight_make(TAKES, rules);
    play.again = redis_flight_make(TAKES, rules);
    fuzz_must(play.denials && play.flight && play.again, "there is memory");
}

static void ended(struct redis_flight_request *aboard, int status, const struct redis_redirect *redirect)
{
    (void)redirect;
    int *told = aboard->owner;
    fuzz_must(*told == NOT_ENDED && status <= WEIR_OK, "a take ends once");
    *told = status;
}

/* Return true if the flight reads. */
static bool write_out(struct redis_flight *flight)
{
    struct redis_bytes out = { 0 };
    redis_flight_write(flight, "weir:", &out);
    fuzz_must(!out.failed && out.len > 0 && flight->call_count == 1, "takes of one key are one call");
    const bool reads = memmem(out.data, out.len, "EVALSHA", 7) == NULL;
    fuzz_must(reads == flight->calls[0].reads, "a call reads or runs its script");
    redis_bytes_free(&out);
    return reads;
}

/* Fill a flight with takes that are foreseen to be denied. */
static void board(struct feed *feed)
{
    weir_limit *limit = play.limits[feed_byte(feed) % POLICIES];
    play.n = (size_t)feed_between(feed, 1, TAKES);
    memset(play.denials, 0, sizeof *play.denials);
    redis_flight_clear(play.flight);
    redis_flight_clear(play.again);
    for (size_t i = 0; i < play.n; i++) {
        const int64_t cost = feed_magnitude(feed, WEIR_MAX_PERMITS);
        play.takes[i] = backend_request(limit, weir_key_text("key"), cost, WEIR_OWN_CLOCK, WEIR_TAKE);
        play.statuses[i] = NOT_ENDED;
        fuzz_must(redis_flight_add(play.flight, &play.takes[i], 1, false, INT64_MAX, &play.decisions[i],
                                   &play.statuses[i], false),
                  "there is room");
    }
    weir_request_plan(&play.takes[0], &play.plan);
    redis_denials_put(play.denials, play.takes[0].hash, 1, INT64_MAX);
    fuzz_must(write_out(play.flight), "takes that are foreseen to be denied read");
}

/* Choose what the server has, and write its two replies. Return false if they are damaged or say something else. */
static bool answer(struct feed *feed, struct redis_bytes *out)
{
    static const char *const errors[] = { "-LOADING\r\n", "-NOPERM no\r\n", "-WRONGTYPE\r\n", "-MOVED 1 a:1\r\n" };
    unsigned char value[REDIS_STATE_MAX];
    char text[96];
    const uint8_t choice = feed_byte(feed), fate = feed_byte(feed);
    play.now_us = choice & 1 ? feed_between(feed, 0, WEIR_MAX_TIME_US) : INT64_C(1790000000000000);
    play.stored = choice & 6;
    const int64_t since_us = choice & 8 ? feed_between(feed, 0, WEIR_MAX_TIME_US)
                                        : max_of(0, play.now_us - feed_byte(feed) * 1000);
    memset(play.state, 0, sizeof play.state);
    state_charge(&play.plan, play.state, play.stored ? since_us : play.now_us,
                 play.stored ? feed_magnitude(feed, play.plan.size) : 0);
    char seconds[24], micros[24];
    const int first = snprintf(seconds, sizeof seconds, "%lld", (long long)(play.now_us / WEIR_SECOND));
    const int second = snprintf(micros, sizeof micros, "%lld", (long long)(play.now_us % WEIR_SECOND));
    redis_bytes_add(
        out, text,
        (size_t)snprintf(text, sizeof text, "*2\r\n$%d\r\n%s\r\n$%d\r\n%s\r\n", first, seconds, second, micros));
    const size_t len = play.stored ? state_bytes(&play.plan, play.state, value) : 0;
    if (fate % 8 == 7) {
        redis_bytes_add(out, errors[fate / 8 % 4], strlen(errors[fate / 8 % 4]));
        return false;
    }
    redis_bytes_add(out, text, (size_t)snprintf(text, sizeof text, play.stored ? "$%zu\r\n" : "$-1\r\n", len));
    if (play.stored) {
        redis_bytes_add(out, value, len);
        redis_bytes_add(out, "\r\n", 2);
    }
    if (fate % 8 != 6)
        return true;
    const size_t at = (size_t)feed_between(feed, 0, (int64_t)out->len - 1);
    const uint8_t by = feed_byte(feed);
    out->data[at] = (char)(out->data[at] ^ by);
    return by == 0;
}

static enum redis_progress feed_replies(struct feed *feed, const struct redis_bytes *bytes)
{
    struct redis_wire wire;
    struct redis_reply reply;
    enum redis_progress progress = REDIS_FLYING;
    uint64_t chance = feed_byte(feed);
    fuzz_must(redis_wire_init(&wire) == 0, "there is memory");
    for (size_t at = 0, piece; at < bytes->len && progress == REDIS_FLYING; at += piece) {
        piece = (size_t)min_of((int64_t)fuzz_piece(&chance), (int64_t)(bytes->len - at));
        int result = redis_wire_feed(&wire, bytes->data + at, piece);
        while (result == 0 && progress == REDIS_FLYING && (result = redis_wire_next(&wire, &reply)) == 1) {
            progress = redis_flight_reply(play.flight, &reply, ended);
            result = 0;
            if (progress != REDIS_FLYING)
                break;
        }
        if (result < 0)
            progress = REDIS_MISFIT;
    }
    redis_wire_free(&wire);
    return progress;
}

/* Check what an undamaged answer has brought. */
static void check_truth(void)
{
    struct weir_decision expected[TAKES];
    bool denied = !play.stored || state_noted_us(&play.plan, play.state, 0) <= play.now_us;
    for (size_t i = 0; i < play.n; i++) {
        state_decide(&play.plan, play.state, play.now_us, play.takes[i].cost, WEIR_TAKE, &expected[i]);
        expected[i].source = WEIR_BY_REDIS;
        denied = denied && !expected[i].allowed;
    }
    fuzz_must(redis_flight_goes_on(play.flight) == !denied, "only denials are decided");
    for (size_t i = 0; i < play.n && denied; i++)
        fuzz_same_decision(&play.decisions[i], &expected[i], "a read");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct feed feed = feed_of(data, size);
    struct redis_bytes bytes = { 0 };
    open_once();
    board(&feed);
    const bool is_true = answer(&feed, &bytes);
    const enum redis_progress progress = feed_replies(&feed, &bytes);
    redis_bytes_free(&bytes);
    fuzz_must(!is_true || progress == REDIS_LANDED, "a true answer lands");
    for (size_t i = 0; i < play.n; i++) {
        fuzz_must(!play.flight->requests[i].changed, "a read changes nothing");
        fuzz_must(play.statuses[i] == NOT_ENDED || (play.statuses[i] == WEIR_OK && !play.decisions[i].allowed),
                  "a read only denies");
        fuzz_must((play.statuses[i] == NOT_ENDED) == (play.statuses[0] == NOT_ENDED), "it decides all or none");
    }
    if (is_true)
        check_truth();
    if (progress == REDIS_LANDED && redis_flight_goes_on(play.flight)) {
        redis_flight_again(play.flight, play.again, ended);
        fuzz_must(!redis_flight_goes_on(play.flight) && play.again->request_count == play.n, "all are sent again");
        fuzz_must(!write_out(play.again), "once more means by the script");
    }
    redis_flight_fail(play.flight, WEIR_EIO, ended);
    redis_flight_fail(play.again, WEIR_EIO, ended);
    for (size_t i = 0; i < play.n; i++)
        fuzz_must(play.statuses[i] != NOT_ENDED, "each take ends");
    return 0;
}
