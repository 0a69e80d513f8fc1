/* test_redis_reads.c - takes that are probably denied read the time and the key instead of running a script. There is
 * no server: the test makes the replies. */
#include "backends/redis/flight/denials.h"
#include "backends/redis/flight/flight.h"
#include "backends/redis/flight/state.h"
#include "core/api/verbs.h"
#include "core/ground/clock.h"
#include "support.h"

#include <stdlib.h>

enum { ASKS = 8 };
#define NOW_S 1790000000
#define NOW_US (NOW_S * WEIR_SECOND)

/* A memory limiter supplies the limits; the test drives the flight by hand. */
static struct desk {
    struct scene scene;
    struct redis_denials *denials;
    struct redis_flight *flight, *again;
    struct redis_bytes out;
    struct weir_decision decisions[ASKS];
    int statuses[ASKS]; /* 1: not finished */
    weir_limit *limit;  /* 5 permits in 5 s */
} desk;

static void desk_clear(void)
{
    redis_flight_clear(desk.flight);
    for (int i = 0; i < ASKS; i++)
        desk.statuses[i] = 1;
}

static void desk_open_by(struct redis_flight_rules rules)
{
    scene_open(&desk.scene, NULL);
    desk.denials = calloc(1, sizeof *desk.denials);
    ck_assert_ptr_nonnull(desk.denials);
    rules.denials = desk.denials;
    desk.flight = redis_flight_make(16, rules);
    desk.again = redis_flight_make(16, rules);
    ck_assert(desk.flight && desk.again);
    desk.out = (struct redis_bytes){ 0 };
    desk.limit = scene_define_text(&desk.scene, "limit", "token_bucket limit=5 period=5s");
    desk_clear();
}

static void desk_open(void)
{
    desk_open_by((struct redis_flight_rules){ .replicas = 0 });
}

static void desk_close(void)
{
    redis_flight_free(desk.flight);
    redis_flight_free(desk.again);
    redis_bytes_free(&desk.out);
    free(desk.denials);
    scene_close(&desk.scene);
}

static struct weir_backend_request request_of(weir_limit *limit, const char *key, int64_t cost, enum weir_verb verb)
{
    return backend_request(limit, weir_key_text(key), cost, WEIR_OWN_CLOCK, verb);
}

static struct weir_backend_request take(const char *key, int64_t cost)
{
    return request_of(desk.limit, key, cost, WEIR_TAKE);
}

static void add(int i, struct weir_backend_request request)
{
    ck_assert(
        redis_flight_add(desk.flight, &request, 1, false, INT64_MAX, &desk.decisions[i], &desk.statuses[i], false));
}

/* Have takes of this cost and above be guessed to be denied. */
static void foresee(const char *key, int64_t cost)
{
    const struct weir_backend_request request = take(key, cost);
    redis_denials_put(desk.denials, request.hash, cost, INT64_MAX);
}

static void ended(struct redis_flight_request *aboard, int status, const struct redis_redirect *redirect)
{
    (void)redirect;
    int *told = aboard->owner;
    ck_assert_int_eq(*told, 1); /* exactly once */
    *told = status;
}

static void write_out(void)
{
    redis_bytes_clear(&desk.out, false);
    redis_flight_write(desk.flight, "weir:", &desk.out);
    ck_assert(!desk.out.failed);
}

static bool is_written(const char *text)
{
    return memmem(desk.out.data, desk.out.len, text, strlen(text)) != NULL;
}

/* Check that the flight's only call reads, or runs a script. */
static void assert_reads(bool reads)
{
    ck_assert(is_written("$4\r\nTIME\r\n*2\r\n$3\r\nGET\r\n") == reads);
    ck_assert(is_written("EVALSHA") == !reads);
}

static void fly_again(void)
{
    redis_flight_clear(desk.again);
    redis_flight_again(desk.flight, desk.again, ended);
    struct redis_flight *landed = desk.flight;
    desk.flight = desk.again;
    desk.again = landed;
    write_out();
}

#define assert_reply(reply, progress) ck_assert_int_eq(redis_flight_reply(desk.flight, reply, ended), progress)

static struct redis_reply reply_of(enum redis_reply_kind kind, const char *text)
{
    return (struct redis_reply){ .kind = kind, .text = text, .len = strlen(text) };
}

static void assert_time(enum redis_progress progress)
{
    const struct redis_reply now = reply_of(REDIS_REPLY_IS_LIST, "1790000000 0");
    assert_reply(&now, progress);
}

/* ---- States ---- */

static void number(char *out, int64_t value)
{
    for (int i = 0; i < 7; i++)
        out[i] = (char)((uint64_t)value >> 8 * i);
}

struct value {
    char bytes[REDIS_BUCKET_STATE_SIZE + 32];
    struct redis_reply reply;
};

/* Make the value of a key of which `tenths` of a permit were in use at `at_us`, with room in its time to live or
 * not. */
static const struct redis_reply *value_of(struct value *value, int64_t tenths, int64_t at_us, bool has_room)
{
    struct weir_plan plan;
    const struct weir_backend_request request = take("a", 1);
    weir_request_plan(&request, &plan);
    const int64_t unit = has_room ? 2 * plan.q : plan.q;
    if (has_room) {
        plan.p *= 2;
        plan.q *= 2;
    }
    ck_assert_uint_eq(redis_stamp_write(&plan, (unsigned char *)value->bytes), REDIS_STAMP_MAX);
    number(value->bytes + REDIS_STAMP_MAX, tenths * unit / 10);
    number(value->bytes + REDIS_STAMP_MAX + 7, at_us);
    value->reply = (struct redis_reply){ .kind = REDIS_REPLY_IS_STRING,
                                         .text = value->bytes,
                                         .len = REDIS_BUCKET_STATE_SIZE };
    return &value->reply;
}

/* Answer the flight's only take with its script's short denial by this value, a second after NOW_US. */
static void answer_denial(const struct redis_reply *value)
{
    char bytes[128];
    static const char time[] = "1790000001 0";
    memcpy(bytes, value->text, value->len);
    memcpy(bytes + value->len, time, sizeof time - 1);
    memcpy(bytes + value->len + sizeof time - 1, &desk.flight->first_echo, REDIS_ECHO_SIZE);
    const struct redis_reply reply = { .kind = REDIS_REPLY_IS_STRING,
                                       .text = bytes,
                                       .len = value->len + sizeof time - 1 + REDIS_ECHO_SIZE };
    assert_reply(&reply, REDIS_LANDED);
}

/* Answer the flight's only take with its script's answer for a fresh key, which charges `cost`. */
static void answer_fresh(int64_t cost)
{
    char bytes[REDIS_HEAD_SIZE + 1 + REDIS_ECHO_SIZE] = { 0 };
    number(bytes, NOW_US);
    number(bytes + 7, cost);
    memcpy(bytes + REDIS_HEAD_SIZE + 1, &desk.flight->first_echo, REDIS_ECHO_SIZE);
    const struct redis_reply reply = { .kind = REDIS_REPLY_IS_STRING, .text = bytes, .len = sizeof bytes };
    assert_reply(&reply, REDIS_LANDED);
}

/* ---- Decided by reading ---- */

TEST(a_read_of_a_denied_key_gives_the_decision_of_its_script, 10)
{
    const struct redis_reply later = reply_of(REDIS_REPLY_IS_LIST, "1790000001 0");
    for (int has_room = 0; has_room < 2; has_room++) {
        struct value value;
        desk_open();
        add(0, take("a", 3));
        write_out();
        assert_reads(false);
        answer_denial(value_of(&value, 45, NOW_US, true));
        ck_assert_int_eq(desk.statuses[0], WEIR_OK);
        const struct weir_decision by_script = desk.decisions[0];
        ck_assert(!by_script.allowed);
        ck_assert_int_eq(by_script.remaining, 1); /* 4.5 in use, and 1 has come back */
        ck_assert_int_eq(by_script.retry_after_us, WEIR_SECOND + WEIR_SECOND / 2);
        desk_clear();
        add(0, take("a", 3));
        write_out();
        assert_reads(true);
        assert_reply(&later, REDIS_FLYING);
        ck_assert_int_eq(desk.statuses[0], 1);
        assert_reply(value_of(&value, 45, NOW_US, has_room), REDIS_LANDED);
        ck_assert_int_eq(desk.statuses[0], WEIR_OK);
        ck_assert_int_eq(memcmp(&desk.decisions[0], &by_script, sizeof by_script), 0);
        ck_assert(!redis_flight_goes_on(desk.flight));
        ck_assert(desk.flight->decided);
        desk_close();
    }
}

TEST(a_read_of_a_fresh_key_denies_a_cost_above_its_size, 10)
{
    const struct redis_reply nil = { .kind = REDIS_REPLY_IS_NIL, .text = "" };
    desk_open();
    foresee("a", 6);
    add(0, take("a", 6));
    write_out();
    assert_reads(true);
    assert_time(REDIS_FLYING);
    assert_reply(&nil, REDIS_LANDED);
    ck_assert_int_eq(desk.statuses[0], WEIR_OK);
    ck_assert(!desk.decisions[0].allowed);
    ck_assert_int_eq(desk.decisions[0].remaining, 5);
    ck_assert_int_eq(desk.decisions[0].retry_after_us, WEIR_NEVER);
    desk_close();
}

TEST(takes_of_one_key_share_a_read, 10)
{
    struct value value;
    desk_open();
    foresee("a", 2);
    add(0, take("a", 2));
    add(1, take("a", 4));
    write_out();
    assert_reads(true);
    assert_time(REDIS_FLYING);
    assert_reply(value_of(&value, 40, NOW_US, true), REDIS_LANDED);
    for (int i = 0; i < 2; i++) {
        ck_assert_int_eq(desk.statuses[i], WEIR_OK);
        ck_assert(!desk.decisions[i].allowed);
        ck_assert_int_eq(desk.decisions[i].retry_after_us, (i == 0 ? 1 : 3) * WEIR_SECOND);
    }
    desk_close();
}

/* ---- Left to the script ---- */

TEST(only_takes_that_will_probably_be_denied_use_a_read, 10)
{
    enum { CHEAPER, OTHER_KEY, PEEK, LEASE, WITH_A_REFUND, TWO_KEYS, CALLERS_TIME, ASKING, ALL, OFF, PAST, KINDS };
    for (int kind = 0; kind < KINDS; kind++) {
        desk_open();
        foresee("a", 3);
        foresee("b", 3);
        struct weir_backend_request request = take(kind == OTHER_KEY ? "c" : "a", kind == CHEAPER ? 2 : 3);
        if (kind == PEEK)
            request.verb = WEIR_PEEK;
        if (kind == LEASE)
            request.ahead = request.spread = 1;
        if (kind == CALLERS_TIME)
            request.now_us = NOW_US;
        if (kind == OFF)
            redis_denials_stop(desk.denials);
        if (kind == PAST)
            redis_denials_put(desk.denials, request.hash, 3, clock_monotonic_us());
        ck_assert(redis_flight_add(desk.flight, &request, 1, kind == ALL, INT64_MAX, desk.decisions, desk.statuses,
                                   kind == ASKING));
        if (kind == WITH_A_REFUND)
            add(1, request_of(desk.limit, "a", 3, WEIR_REFUND));
        if (kind == TWO_KEYS)
            add(1, take("b", 3));
        write_out();
        ck_assert(!is_written("TIME"));
        ck_assert(is_written("EVALSHA"));
        redis_flight_fail(desk.flight, WEIR_EIO, ended);
        desk_close();
    }
}

/* Read with these two replies, which do not decide, and then run the script, although the key is foreseen to be denied
 * again. */
static void read_in_vain(const struct redis_reply *time, const struct redis_reply *value, int64_t cost)
{
    desk_clear();
    add(0, take("a", cost));
    write_out();
    assert_reads(true);
    assert_reply(time, REDIS_FLYING);
    assert_reply(value, REDIS_LANDED);
    ck_assert_int_eq(desk.statuses[0], 1);
    ck_assert(redis_flight_goes_on(desk.flight));
    ck_assert_int_eq(desk.flight->error_word[0], '\0');
    ck_assert(!desk.flight->decided);
}

/* True if the key of the flight's i-th take is left to its script since the flight was written. */
static bool is_doubted(int i)
{
    struct redis_denial *slot = redis_denials_slot(desk.denials, desk.flight->requests[i].request.hash);
    return slot->cost == REDIS_UNCLEAR && slot->until_us == desk.flight->written_us + REDIS_UNCLEAR_US;
}

/* `doubted`: the value does not tell what the script would do. */
static void assert_runs_after(const struct redis_reply *time, const struct redis_reply *value, bool doubted)
{
    read_in_vain(time, value, 3);
    ck_assert(is_doubted(0) == doubted);
    foresee("a", 3);
    fly_again();
    assert_reads(false);
    ck_assert(!is_written("SCRIPT"));
    ck_assert(!redis_flight_goes_on(desk.flight));
    answer_fresh(3);
    ck_assert_int_eq(desk.statuses[0], WEIR_OK);
    ck_assert(desk.decisions[0].allowed);
    ck_assert_int_eq(desk.decisions[0].remaining, 2);
}

TEST(a_read_of_a_state_that_admits_is_followed_by_the_script, 10)
{
    const struct redis_reply now = reply_of(REDIS_REPLY_IS_LIST, "1790000000 0");
    const struct redis_reply nil = { .kind = REDIS_REPLY_IS_NIL, .text = "" };
    struct value value;
    desk_open();
    foresee("a", 3);
    assert_runs_after(&now, value_of(&value, 20, NOW_US, true), false);
    foresee("a", 3);
    assert_runs_after(&now, &nil, false);
    desk_close();
}

TEST(after_a_read_that_admits_the_script_decides_all_takes_of_the_key, 10)
{
    struct value value;
    desk_open_by((struct redis_flight_rules){ .replicas = 1 });
    foresee("a", 1);
    add(0, take("a", 5));
    add(1, take("a", 1));
    write_out();
    assert_reads(true);
    assert_time(REDIS_FLYING);
    assert_reply(value_of(&value, 20, NOW_US, true), REDIS_LANDED);
    ck_assert(desk.statuses[0] == 1 && desk.statuses[1] == 1);
    ck_assert(!desk.flight->requests[0].changed && !desk.flight->requests[1].changed);
    fly_again();
    assert_reads(false);
    ck_assert_uint_eq(desk.flight->request_count, 2);
    redis_flight_fail(desk.flight, WEIR_EIO, ended);
    desk_close();
}

/* None of these values tells what the script would do, so the key is left to its script for a while. */
TEST(a_read_of_anything_but_a_plain_state_is_followed_by_the_script, 10)
{
    static const char *const errors[] = {
        "WRONGTYPE Operation against a key holding the wrong kind of value",
        "LOADING Redis is loading the dataset in memory",
        "MOVED 3999 127.0.0.1:6381",
        "ASK 3999 127.0.0.1:6381",
        "MASTERDOWN Link with MASTER is down",
    };
    enum { OTHER_PLAN, LONGER, SHORTER, YOUNGER, FRESH_MARK, FOREIGN_MARK, EMPTY, NOTHING_USED, ODD, KINDS };
    const struct redis_reply now = reply_of(REDIS_REPLY_IS_LIST, "1790000000 0");
    for (size_t kind = 0; kind < KINDS + sizeof errors / sizeof errors[0]; kind++) {
        struct value value;
        desk_open();
        foresee("a", 3);
        value_of(&value, 40, kind == YOUNGER ? NOW_US + 1 : NOW_US, true);
        switch (kind) {
        case OTHER_PLAN: value.bytes[1]++; break;
        case LONGER: value.reply.len++; break;
        case SHORTER: value.reply.len--; break;
        case YOUNGER: break;
        case FRESH_MARK: value.reply = (struct redis_reply){ .text = "\0", .len = 1 }; break;
        case FOREIGN_MARK: value.reply = (struct redis_reply){ .text = "\1", .len = 1 }; break;
        case EMPTY: value.reply.len = 0; break;
        case NOTHING_USED: value_of(&value, 0, NOW_US, true); break;
        case ODD: value.bytes[REDIS_STAMP_MAX]++; break;
        default: value.reply = reply_of(REDIS_REPLY_IS_ERROR, errors[kind - KINDS]);
        }
        assert_runs_after(&now, &value.reply, true);
        desk_close();
    }
}

TEST(a_server_that_refuses_reads_gets_no_more_of_them, 10)
{
    static const char *const errors[] = { "NOPERM this user has no permissions to run the 'get' command",
                                          "ERR unknown command 'TIME'" };
    const struct redis_reply now = reply_of(REDIS_REPLY_IS_LIST, "1790000000 0");
    for (int i = 0; i < 4; i++) {
        struct value value;
        const struct redis_reply error = reply_of(REDIS_REPLY_IS_ERROR, errors[i % 2]);
        desk_open();
        value_of(&value, 40, NOW_US, true);
        foresee("a", 3);
        if (i < 2)
            assert_runs_after(&error, &value.reply, true);
        else
            assert_runs_after(&now, &error, true);
        desk_clear();
        foresee("b", 3);
        add(0, take("b", 3));
        write_out();
        assert_reads(false);
        redis_flight_fail(desk.flight, WEIR_EIO, ended);
        desk_close();
    }
}

TEST(a_read_is_tried_again_after_a_busy_answer, 10)
{
    const struct redis_reply busy = reply_of(REDIS_REPLY_IS_ERROR, "BUSY Redis is busy running a script");
    const struct redis_reply nil = { .kind = REDIS_REPLY_IS_NIL, .text = "" };
    desk_open();
    foresee("a", 6);
    read_in_vain(&busy, &nil, 6); /* a value without a time says nothing */
    foresee("a", 3);
    assert_runs_after(&busy, &busy, true);
    desk_clear();
    foresee("b", 3);
    add(0, take("b", 3));
    write_out();
    assert_reads(true);
    redis_flight_fail(desk.flight, WEIR_EIO, ended);
    desk_close();
}

TEST(a_read_reply_of_another_kind_is_rejected, 10)
{
    static const struct redis_reply times[] = {
        { .kind = REDIS_REPLY_IS_STRING, .text = "1790000000 0", .len = 12 },
        { .kind = REDIS_REPLY_IS_LIST, .text = "1790000000", .len = 10 },
        { .kind = REDIS_REPLY_IS_LIST, .text = "now now", .len = 7 },
        { .kind = REDIS_REPLY_IS_LIST, .text = "" },
        { .kind = REDIS_REPLY_IS_NIL, .text = "" },
        { .kind = REDIS_REPLY_IS_NUMBER, .text = "", .number = NOW_S },
    };
    static const struct redis_reply values[] = {
        { .kind = REDIS_REPLY_IS_LIST, .text = "1790000000 0", .len = 12 },
        { .kind = REDIS_REPLY_IS_STATUS, .text = "OK", .len = 2 },
        { .kind = REDIS_REPLY_IS_NUMBER, .text = "" },
        { .kind = REDIS_REPLY_IS_OTHER, .text = "" },
    };
    const size_t time_count = sizeof times / sizeof times[0], value_count = sizeof values / sizeof values[0];
    for (size_t i = 0; i < time_count + value_count; i++) {
        desk_open();
        foresee("a", 3);
        add(0, take("a", 3));
        write_out();
        if (i < time_count) {
            assert_reply(&times[i], REDIS_MISFIT);
        } else {
            assert_time(REDIS_FLYING);
            assert_reply(&values[i - time_count], REDIS_MISFIT);
        }
        redis_flight_fail(desk.flight, WEIR_EIO, ended);
        ck_assert_int_eq(desk.statuses[0], WEIR_EIO);
        ck_assert(!redis_flight_goes_on(desk.flight));
        desk_close();
    }
}

TEST(a_read_does_not_count_as_a_try_of_the_script, 10)
{
    const struct redis_reply now = reply_of(REDIS_REPLY_IS_LIST, "1790000000 0");
    const struct redis_reply not_loaded = reply_of(REDIS_REPLY_IS_ERROR, "NOSCRIPT No matching script.");
    const struct redis_reply nil = { .kind = REDIS_REPLY_IS_NIL, .text = "" };
    const struct redis_reply loaded = { .kind = REDIS_REPLY_IS_STRING,
                                        .text = redis_scripts[REDIS_BUCKET_SINGLE].sha1,
                                        .len = 40 };
    desk_open();
    foresee("a", 3);
    read_in_vain(&now, &nil, 3);
    for (int i = 0; i < REDIS_TRIES; i++) {
        fly_again();
        if (i > 0)
            assert_reply(&loaded, REDIS_FLYING);
        assert_reply(&not_loaded, REDIS_LANDED);
        ck_assert_int_eq(desk.statuses[0], 1);
    }
    redis_flight_clear(desk.again);
    redis_flight_again(desk.flight, desk.again, ended);
    ck_assert_int_eq(desk.statuses[0], WEIR_EIO_UNDONE);
    ck_assert_uint_eq(desk.again->request_count, 0);
    desk_close();
}

/* ---- In one flight with others ---- */

/* Add takes of two limits, which are foreseen to be denied. Their keys have different slots; the hash's key is
 * random. */
static void add_two_reads(void)
{
    weir_limit *twin = scene_define_text(&desk.scene, "twin", "token_bucket limit=5 period=5s");
    const uint64_t slot = take("a", 3).hash % REDIS_DENIALS;
    const struct weir_backend_request b = request_of(twin, "b", 3, WEIR_TAKE), c = request_of(twin, "c", 3, WEIR_TAKE);
    const struct weir_backend_request other = b.hash % REDIS_DENIALS != slot ? b : c;
    foresee("a", 3);
    redis_denials_put(desk.denials, other.hash, 3, INT64_MAX);
    add(0, take("a", 3));
    add(1, other);
    write_out();
    ck_assert_uint_eq(desk.flight->call_count, 2);
    ck_assert(!is_written("EVALSHA"));
}

TEST(each_read_has_the_server_time_of_its_call, 10)
{
    const struct redis_reply later = reply_of(REDIS_REPLY_IS_LIST, "1790000001 0");
    struct value value;
    desk_open();
    add_two_reads();
    assert_time(REDIS_FLYING);
    assert_reply(value_of(&value, 45, NOW_US, true), REDIS_FLYING);
    ck_assert_int_eq(desk.decisions[0].retry_after_us, 2 * WEIR_SECOND + WEIR_SECOND / 2);
    assert_reply(&later, REDIS_FLYING);
    assert_reply(&value.reply, REDIS_LANDED);
    ck_assert_int_eq(desk.decisions[1].retry_after_us, WEIR_SECOND + WEIR_SECOND / 2);
    desk_close();
}

TEST(a_read_without_a_decision_fails_with_its_connection, 10)
{
    struct value value;
    desk_open();
    add_two_reads();
    assert_time(REDIS_FLYING);
    assert_reply(value_of(&value, 20, NOW_US, true), REDIS_FLYING);
    redis_flight_fail(desk.flight, WEIR_EIO, ended);
    ck_assert(desk.statuses[0] == WEIR_EIO && desk.statuses[1] == WEIR_EIO);
    ck_assert(!redis_flight_goes_on(desk.flight));
    ck_assert(is_doubted(0) && is_doubted(1));
    desk_close();
}

TEST(a_read_ends_while_other_calls_wait_for_replicas_or_scripts, 10)
{
    const struct redis_reply not_loaded = reply_of(REDIS_REPLY_IS_ERROR, "NOSCRIPT No matching script.");
    const struct redis_reply loaded = { .kind = REDIS_REPLY_IS_STRING,
                                        .text = redis_scripts[REDIS_FIXED_WINDOW].sha1,
                                        .len = 40 };
    const struct redis_reply one = { .kind = REDIS_REPLY_IS_NUMBER, .text = "", .number = 1 };
    struct value value;
    desk_open_by((struct redis_flight_rules){ .replicas = 1 });
    weir_limit *window = scene_define_text(&desk.scene, "window", "fixed_window limit=5 period=1s");
    foresee("a", 3);
    add(0, take("a", 3));
    add(1, request_of(window, "b", 1, WEIR_TAKE));
    write_out();
    ck_assert(is_written("TIME") && is_written("EVALSHA"));
    assert_time(REDIS_FLYING);
    assert_reply(value_of(&value, 20, NOW_US, true), REDIS_FLYING);
    assert_reply(&not_loaded, REDIS_LANDED);
    fly_again();
    ck_assert(is_written("SCRIPT") && !is_written("$4\r\nTIME"));
    ck_assert_uint_eq(desk.flight->call_count, 2);
    assert_reply(&loaded, REDIS_FLYING);
    for (int i = 0; i < 2; i++) { /* the two takes, of 3 permits and of one */
        char bytes[REDIS_HEAD_SIZE + 1 + REDIS_ECHO_SIZE] = { 0 };
        const uint32_t echo = desk.flight->first_echo + (uint32_t)i;
        number(bytes, NOW_US);
        number(bytes + 7, i == 0 ? 3 : 1);
        memcpy(bytes + REDIS_HEAD_SIZE + 1, &echo, REDIS_ECHO_SIZE);
        const struct redis_reply reply = { .kind = REDIS_REPLY_IS_STRING, .text = bytes, .len = sizeof bytes };
        assert_reply(&reply, i == 0 ? REDIS_FLYING : REDIS_HELD);
    }
    assert_reply(&one, REDIS_LANDED);
    ck_assert(desk.statuses[0] == WEIR_OK && desk.statuses[1] == WEIR_OK);
    desk_close();
}

TEST(a_denial_by_a_read_waits_for_no_replica, 10)
{
    struct value value;
    desk_open_by((struct redis_flight_rules){ .replicas = 2 });
    foresee("a", 3);
    add(0, take("a", 3));
    write_out();
    assert_time(REDIS_FLYING);
    assert_reply(value_of(&value, 40, NOW_US, true), REDIS_LANDED);
    ck_assert_int_eq(desk.statuses[0], WEIR_OK);
    desk_close();
}

TEST(a_take_that_expires_while_it_reads_is_not_sent_again, 10)
{
    struct value value;
    desk_open();
    foresee("a", 3);
    add(0, take("a", 3));
    write_out();
    assert_time(REDIS_FLYING);
    redis_flight_expire(desk.flight, INT64_MAX, ended);
    ck_assert_int_eq(desk.statuses[0], WEIR_ETIME);
    assert_reply(value_of(&value, 20, NOW_US, true), REDIS_LANDED);
    redis_flight_clear(desk.again);
    redis_flight_again(desk.flight, desk.again, ended);
    ck_assert_uint_eq(desk.again->request_count, 0);
    desk_close();
}

/* ---- What is remembered ---- */

TEST(denials_are_cached_by_cost_until_they_end, 10)
{
    desk_open();
    struct redis_denials *denials = desk.denials;
    struct weir_decision decision = { .allowed = 0, .retry_after_us = 1000 };
    struct weir_backend_request two = take("a", 2), one = take("a", 1), three = take("a", 3);
    redis_denials_note(denials, &two, &decision, 5000);
    ck_assert(redis_denials_foresee(denials, &two, 5999));
    ck_assert(redis_denials_foresee(denials, &three, 5999));
    ck_assert(!redis_denials_foresee(denials, &one, 5999));
    ck_assert(!redis_denials_foresee(denials, &two, 6000));
    decision.retry_after_us = 9000; /* the smaller cost is kept as long as it holds */
    redis_denials_note(denials, &three, &decision, 5999);
    ck_assert(redis_denials_foresee(denials, &two, 5999));
    redis_denials_note(denials, &three, &decision, 6000);
    ck_assert(!redis_denials_foresee(denials, &two, 6000));
    ck_assert(redis_denials_foresee(denials, &three, 14999));
    redis_denials_note(denials, &one, &decision, 6000);
    ck_assert(redis_denials_foresee(denials, &one, 14999));
    decision.allowed = 1;
    redis_denials_note(denials, &three, &decision, 6000);
    ck_assert(!redis_denials_foresee(denials, &three, 6000));
    decision.allowed = 0;
    decision.retry_after_us = WEIR_NEVER;
    redis_denials_note(denials, &three, &decision, 6000);
    ck_assert(redis_denials_foresee(denials, &three, INT64_MAX - 1));
    redis_denials_doubt(denials, three.hash, 7000);
    redis_denials_note(denials, &three, &decision, 7000 + REDIS_UNCLEAR_US - 1);
    ck_assert(!redis_denials_foresee(denials, &three, 7000));
    redis_denials_note(denials, &three, &decision, 7000 + REDIS_UNCLEAR_US);
    ck_assert(redis_denials_foresee(denials, &three, 7000));
    one.hash += REDIS_DENIALS; /* another key in the slot */
    redis_denials_forget(denials, one.hash);
    ck_assert(redis_denials_foresee(denials, &three, 7000));
    redis_denials_note(denials, &one, &decision, 7000);
    ck_assert(!redis_denials_foresee(denials, &three, 7000));
    ck_assert(redis_denials_foresee(denials, &one, 7000));
    desk_close();
}
