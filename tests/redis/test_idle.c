/* test_idle.c - a charge after an outage learns for how long its key lay idle: lua/settle.lua.
 *
 * The script uses the server's clock. So each test reads that clock before and after a call, and the script's answer
 * must lie between the answers that are right at those two times.
 */
#include "scripts.h"

#include "core/policy/plan.h"
#include "support.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

static const char key[] = "weir:limit:{key}", note[] = "weir:limit:{key}:i";

/* The answer to a charge, and the server's time before and after it. */
struct told {
    int64_t idle_us, ended_us, charged, before_us, after_us;
};

static struct weir_plan plan_of(const char *text)
{
    struct weir_policy policy;
    struct weir_plan plan;
    must_succeed(weir_policy_parse(text, &policy, NULL, 0));
    must_succeed(plan_make(&policy, &share_whole, &plan, (struct message){ NULL, 0 }));
    return plan;
}

static int64_t server_us(struct scripts *scripts)
{
    redisReply *reply = ASK(scripts, "TIME");
    const int64_t now_us = strtoll(reply->element[0]->str, NULL, 10) * WEIR_SECOND +
                           strtoll(reply->element[1]->str, NULL, 10);
    freeReplyObject(reply);
    return now_us;
}

static int64_t number_at(const char *bytes)
{
    int64_t number = 0;
    for (int i = 6; i >= 0; i--)
        number = number << 8 | (unsigned char)bytes[i];
    return number;
}

static void bytes_put(unsigned char *at, int n, int64_t number)
{
    for (int i = 0; i < n; i++)
        at[i] = (unsigned char)(number >> 8 * i);
}

static void number_put(unsigned char *at, int64_t number)
{
    bytes_put(at, 7, number);
}

static void value_put(struct scripts *scripts, const char *name, const unsigned char *bytes, size_t len)
{
    static struct call call;
    call.n = 0;
    call.used = 0;
    call_word(&call, "SET", 3);
    call_word(&call, name, strlen(name));
    call_word(&call, bytes, len);
    call_send(scripts, &call);
    freeReplyObject(reply_next(scripts));
}

/* Store a state with room: `used` permits were in use `ago_us` ago, and nothing since. Return the server's time. */
static int64_t state_put(struct scripts *scripts, const struct weir_plan *plan, int64_t used, int64_t ago_us)
{
    unsigned char bytes[REDIS_BUCKET_STATE_SIZE];
    struct weir_plan doubled = *plan;
    doubled.p *= 2;
    doubled.q *= 2;
    const int64_t now_us = server_us(scripts);
    must(redis_stamp_write(&doubled, bytes) == REDIS_STAMP_MAX, "it is a bucket");
    number_put(bytes + REDIS_STAMP_MAX, used * doubled.q);
    number_put(bytes + REDIS_STAMP_MAX + 7, now_us - ago_us);
    value_put(scripts, key, bytes, sizeof bytes);
    return now_us;
}

/* Store the state of a window or of interval refill: `used` permits were charged `ago_us` ago, at the beginning of the
 * window, interval or block. Return that time. */
static int64_t window_put(struct scripts *scripts, const struct weir_plan *plan, int64_t used, int64_t ago_us)
{
    unsigned char bytes[REDIS_STAMP_MAX + 16];
    const size_t len = redis_stamp_write(plan, bytes);
    int64_t start_us = server_us(scripts) - ago_us;
    if (plan->algorithm == WEIR_SLIDING_WINDOW) {
        start_us -= start_us % plan->period_us;
        bytes_put(bytes + len, 7, start_us / plan->period_us);
        bytes_put(bytes + len + 7, 2, 1);
        bytes_put(bytes + len + 9, 4, used);
        value_put(scripts, key, bytes, len + 13);
    } else {
        bytes_put(bytes + len, 7, used);
        bytes_put(bytes + len + 7, 7, start_us);
        value_put(scripts, key, bytes, len + 14);
    }
    return start_us;
}

/* Leave a note: the key lay idle from so long ago until so long ago. */
static void note_put(struct scripts *scripts, int64_t from_ago_us, int64_t to_ago_us)
{
    unsigned char bytes[14];
    const int64_t now_us = server_us(scripts);
    number_put(bytes, now_us - from_ago_us);
    number_put(bytes + 7, now_us - to_ago_us);
    value_put(scripts, note, bytes, sizeof bytes);
}

static bool is_noted(struct scripts *scripts)
{
    redisReply *reply = ASK(scripts, "EXISTS", note);
    const bool is_there = reply->integer == 1;
    freeReplyObject(reply);
    return is_there;
}

/* Charge `permits` for an outage that began `ago_us` ago. */
static struct told charge(struct scripts *scripts, const struct weir_plan *plan, int64_t permits, int64_t ago_us)
{
    static struct call call;
    unsigned char stamp[REDIS_STAMP_MAX], argument[REDIS_ASK_SIZE];
    struct told told = { .before_us = server_us(scripts) };
    redis_ask_pack(permits, ago_us, "echo", argument);
    call_begin(&call, REDIS_SETTLE, 2);
    call_word(&call, key, strlen(key));
    call_word(&call, note, strlen(note));
    call_word(&call, stamp, redis_stamp_write(plan, stamp));
    call_word(&call, argument, sizeof argument);
    call_send(scripts, &call);
    redisReply *reply = reply_next(scripts);
    must(reply->type == REDIS_REPLY_STRING && reply->len > 2 * REDIS_HEAD_SIZE, reply->str);
    told.idle_us = number_at(reply->str);
    told.ended_us = number_at(reply->str + 7);
    told.charged = number_at(reply->str + REDIS_HEAD_SIZE + 7);
    freeReplyObject(reply);
    told.after_us = server_us(scripts);
    return told;
}

/* The key lay idle from `from_us` until the charge. */
static void assert_idle_since(const struct told *told, int64_t from_us)
{
    ck_assert_int_ge(told->idle_us, told->before_us - from_us);
    ck_assert_int_le(told->idle_us, told->after_us - from_us);
    ck_assert_int_eq(told->ended_us, 0);
}

#define SCRIPTS(name)    \
    struct scripts name; \
    scripts_open(&(name))

TEST(the_first_settling_charge_notes_the_keys_idle_time_for_other_instances, 30)
{
    static const char *const policies[] = { "token_bucket limit=20 period=1s", "leaky_bucket limit=20 period=1s" };
    for (int i = 0; i < 2; i++) {
        const struct weir_plan plan = plan_of(policies[i]);
        SCRIPTS(scripts);
        const int64_t now_us = state_put(&scripts, &plan, 10, 9 * WEIR_SECOND); /* idle half a second later */
        const struct told first = charge(&scripts, &plan, 5, WEIR_HOUR);
        assert_idle_since(&first, now_us - 8 * WEIR_SECOND - WEIR_SECOND / 2);
        ck_assert_int_eq(first.charged, 5);
        for (int other = 0; other < 3; other++) {
            const struct told next = charge(&scripts, &plan, 2, WEIR_HOUR);
            ck_assert_int_eq(next.idle_us, first.idle_us); /* not counted from the first charge on */
            ck_assert_int_ge(next.ended_us, next.before_us - first.after_us);
            ck_assert_int_le(next.ended_us, next.after_us - first.before_us);
            ck_assert_int_eq(next.charged, 2);
        }
        scripts_close(&scripts);
    }
}

TEST(windows_and_interval_refill_are_idle_from_their_end_on, 30)
{
    static const struct {
        const char *policy;
        int64_t lasts_us;
    } cases[] = { { "fixed_window limit=20 period=1s", WEIR_SECOND },
                  { "fixed_window limit=20 period=500ms", WEIR_SECOND / 2 },
                  { "sliding_window limit=20 period=1s", WEIR_SECOND + WEIR_SECOND / 10 },
                  { "token_bucket limit=4 period=1s burst=20 refill=interval", 3 * WEIR_SECOND } };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const struct weir_plan plan = plan_of(cases[i].policy);
        SCRIPTS(scripts);
        const int64_t start_us = window_put(&scripts, &plan, 10, 9 * WEIR_SECOND);
        const struct told first = charge(&scripts, &plan, 5, WEIR_HOUR);
        assert_idle_since(&first, start_us + cases[i].lasts_us);
        ck_assert_int_eq(first.charged, 5);
        const struct told next = charge(&scripts, &plan, 20, WEIR_HOUR);
        ck_assert_int_eq(next.idle_us, first.idle_us);
        ck_assert_int_ge(next.ended_us, next.before_us - first.after_us);
        freeReplyObject(ASK(&scripts, "DEL", note, key));
        window_put(&scripts, &plan, 20, 0);
        ck_assert_int_eq(charge(&scripts, &plan, 0, WEIR_HOUR).idle_us, 0); /* in use */
        freeReplyObject(ASK(&scripts, "DEL", key));
        ck_assert_int_ge(charge(&scripts, &plan, 0, WEIR_HOUR).idle_us, WEIR_HOUR - 6 * WEIR_SECOND);
        scripts_close(&scripts);
    }
}

TEST(a_charge_takes_what_fits_from_any_state, 30)
{
    static const char *const policies[] = { "fixed_window limit=20 period=1m",
                                            "sliding_window limit=20 period=1m",
                                            "token_bucket limit=20 period=1m refill=interval",
                                            "token_bucket limit=20 period=1m",
                                            "leaky_bucket limit=20 period=1m",
                                            "token_bucket limit=123457 period=365d" /* no room, longer ticks */ };
    for (size_t i = 0; i < sizeof policies / sizeof *policies; i++) {
        const struct weir_plan plan = plan_of(policies[i]), other = plan_of("token_bucket limit=30 period=1m");
        SCRIPTS(scripts);
        ck_assert_int_eq(charge(&scripts, &plan, plan.size - 5, WEIR_SECOND).charged, plan.size - 5);
        ck_assert_int_eq(charge(&scripts, &plan, 9, WEIR_SECOND).charged, 5);
        ck_assert_int_eq(charge(&scripts, &plan, 9, WEIR_SECOND).charged, 0);
        freeReplyObject(ASK(&scripts, "DEL", note, key));
        must(charge(&scripts, &other, 15, WEIR_SECOND).charged == 15, "a state of another plan");
        ck_assert_int_eq(charge(&scripts, &plan, plan.size, WEIR_SECOND).charged, plan.size - 15);
        scripts_close(&scripts);
    }
}

TEST(only_idle_time_since_the_start_of_the_outage_counts, 30)
{
    const struct weir_plan plan = plan_of("token_bucket limit=20 period=1s");
    SCRIPTS(scripts);
    state_put(&scripts, &plan, 10, WEIR_HOUR);
    ck_assert_int_eq(charge(&scripts, &plan, 5, 3 * WEIR_MINUTE).idle_us, 3 * WEIR_MINUTE);
    const struct told other = charge(&scripts, &plan, 5, 4 * WEIR_MINUTE); /* the note says all of it */
    ck_assert_int_eq(other.idle_us + other.ended_us, 4 * WEIR_MINUTE);
    scripts_close(&scripts);
}

TEST(a_key_that_was_never_idle_leaves_no_note, 30)
{
    const struct weir_plan plan = plan_of("token_bucket limit=20 period=1s burst=2000");
    SCRIPTS(scripts);
    state_put(&scripts, &plan, 2000, 10 * WEIR_SECOND); /* it takes a hundred seconds to drain */
    const struct told told = charge(&scripts, &plan, 5, WEIR_MINUTE);
    ck_assert_int_eq(told.idle_us, 0);
    ck_assert_int_eq(told.ended_us, 0);
    ck_assert(!is_noted(&scripts));
    scripts_close(&scripts);
}

TEST(a_missing_key_counts_as_idle_after_a_full_bucket_has_drained, 30)
{
    const struct weir_plan plan = plan_of("token_bucket limit=20 period=1s burst=40");
    SCRIPTS(scripts);
    const struct told told = charge(&scripts, &plan, 0, 10 * WEIR_SECOND);
    ck_assert_int_eq(told.idle_us, 8 * WEIR_SECOND);
    ck_assert_int_eq(told.charged, 0);
    const struct told short_one = charge(&scripts, &plan, 3, WEIR_SECOND); /* before it had drained */
    ck_assert_int_le(short_one.idle_us, WEIR_SECOND);
    ck_assert_int_eq(short_one.charged, 3);
    redisReply *life = ASK(&scripts, "PTTL", note);
    ck_assert_int_gt(life->integer, 0);
    ck_assert_int_le(life->integer, 20000);
    freeReplyObject(life);
    scripts_close(&scripts);
}

TEST(states_of_other_plans_and_foreign_values_give_no_idle_time, 30)
{
    const struct weir_plan plan = plan_of("token_bucket limit=20 period=1s"),
                           other = plan_of("token_bucket limit=30 period=1s");
    SCRIPTS(scripts);
    state_put(&scripts, &other, 10, WEIR_MINUTE);
    ck_assert_int_eq(charge(&scripts, &plan, 1, 10 * WEIR_SECOND).idle_us, 0);
    state_put(&scripts, &plan, 10, -WEIR_MINUTE); /* of a clock that has stepped back */
    ck_assert_int_eq(charge(&scripts, &plan, 1, 10 * WEIR_SECOND).idle_us, 0);
    value_put(&scripts, key, (const unsigned char *)"+ or anything else", 18);
    ck_assert_int_eq(charge(&scripts, &plan, 1, 10 * WEIR_SECOND).idle_us, 0);
    ck_assert(!is_noted(&scripts));
    scripts_close(&scripts);
}

TEST(invalid_notes_of_idle_time_are_ignored, 30)
{
    const struct weir_plan plan = plan_of("token_bucket limit=20 period=1s burst=2000");
    SCRIPTS(scripts);
    state_put(&scripts, &plan, 2000, 0);
    note_put(&scripts, 5 * WEIR_SECOND, -WEIR_MINUTE); /* it ends in the future */
    ck_assert_int_eq(charge(&scripts, &plan, 1, 10 * WEIR_SECOND).idle_us, 0);
    value_put(&scripts, note, (const unsigned char *)"weir", 4);
    ck_assert_int_eq(charge(&scripts, &plan, 1, 10 * WEIR_SECOND).idle_us, 0);
    freeReplyObject(ASK(&scripts, "DEL", note));
    freeReplyObject(ASK(&scripts, "RPUSH", note, "weir"));
    ck_assert_int_eq(charge(&scripts, &plan, 1, 10 * WEIR_SECOND).idle_us, 0);
    note_put(&scripts, 5 * WEIR_SECOND, 2 * WEIR_SECOND);
    const struct told told = charge(&scripts, &plan, 1, 10 * WEIR_SECOND);
    ck_assert_int_eq(told.idle_us, 3 * WEIR_SECOND);
    ck_assert_int_ge(told.ended_us, 2 * WEIR_SECOND);
    scripts_close(&scripts);
}

TEST(the_longer_idle_time_of_state_and_note_counts, 30)
{
    const struct weir_plan plan = plan_of("token_bucket limit=20 period=1s");
    SCRIPTS(scripts);
    note_put(&scripts, 50 * WEIR_MINUTE, 40 * WEIR_MINUTE);
    state_put(&scripts, &plan, 20, 3 * WEIR_SECOND); /* idle for two seconds */
    ck_assert_int_eq(charge(&scripts, &plan, 20, WEIR_HOUR).idle_us, 10 * WEIR_MINUTE);
    note_put(&scripts, WEIR_MINUTE, 59 * WEIR_SECOND);
    state_put(&scripts, &plan, 20, 3 * WEIR_SECOND);
    const struct told told = charge(&scripts, &plan, 20, WEIR_HOUR);
    ck_assert_int_ge(told.idle_us, 2 * WEIR_SECOND);
    ck_assert_int_eq(told.ended_us, 0);
    scripts_close(&scripts);
}
