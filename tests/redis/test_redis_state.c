/* test_redis_state.c - states, fingerprints and items as bytes: what is written is read back, and other bytes are
 * refused. */
#include "backends/redis/flight/state.h"
#include "backends/redis/inspect/decode.h"
#include "backends/redis/wire/scripts.h"
#include "core/algorithm/algorithm.h"
#include "core/algorithm/sliding_window.h"
#include "core/algorithm/top.h"
#include "core/ground/arith.h"
#include "core/policy/plan.h"
#include "support.h"

#include <stdio.h>

static struct weir_plan plan_of(const char *text)
{
    const struct weir_policy policy = policy_of(text);
    struct weir_plan plan;
    const struct message none = { NULL, 0 };
    must_succeed(plan_make(&policy, &share_whole, &plan, none));
    return plan;
}

static struct weir_plan plan_by_chance(struct chance *chance, enum kind kind)
{
    const struct message none = { NULL, 0 };
    for (;;) {
        const struct weir_policy policy = policy_by_chance(chance, kind);
        struct weir_plan plan;
        if (plan_make(&policy, &share_whole, &plan, none) == WEIR_OK)
            return plan;
    }
}

/* Write the layout of redis/flight/state.h, independently of the library. */
static size_t put(unsigned char *out, size_t at, int bytes, int64_t value)
{
    for (int i = 0; i < bytes; i++)
        out[at++] = (unsigned char)(value >> (8 * i));
    return at;
}

static size_t bytes_of(const struct weir_plan *plan, const int64_t *state, unsigned char out[REDIS_STATE_MAX])
{
    size_t at = redis_stamp_write(plan, out);
    if (plan->algorithm == WEIR_SLIDING_WINDOW) {
        int32_t n = plan->blocks + 1;
        while (sliding_count(plan, state, n - 1) == 0)
            n--;
        at = put(out, put(out, at, 7, state[0]), 2, n);
        for (int32_t i = 0; i < n; i++)
            at = put(out, at, plan->size > UINT32_MAX ? 7 : 4, sliding_count(plan, state, i));
        return at;
    }
    return put(out, put(out, at, 7, state[0]), 7, state[1]);
}

/* ---- States without their policies ---- */

/* True if both let the same number of permits come back in the same time. */
static bool same_rate(const struct weir_plan *a, const struct weir_plan *b)
{
    __extension__ typedef unsigned __int128 wide;
    if (a->p > 0)
        return (wide)a->p * (wide)b->q * (wide)b->tick_us == (wide)b->p * (wide)a->q * (wide)a->tick_us;
    return a->limit == b->limit && a->period_us == b->period_us && a->blocks == b->blocks && a->align == b->align;
}

TEST(a_state_is_readable_from_its_stamp_alone_and_gives_an_equivalent_policy, 60)
{
    struct chance chance = chance_make(7);
    const struct message none = { NULL, 0 };
    for (int64_t step = 0; step < steps_or(100000); step++) {
        const struct weir_plan plan = plan_by_chance(&chance, (enum kind)(step % KIND_COUNT));
        unsigned char bytes[REDIS_STATE_MAX];
        struct weir_plan read, again;
        struct weir_inspected found;
        int64_t state[STATE_MAX_WORDS], now_us = chance_between(&chance, 0, WEIR_MAX_TIME_US / 2);
        struct weir_decision peek;
        const size_t stamp_len = redis_stamp_write(&plan, bytes);
        must(redis_stamp_read(bytes, stamp_len, &read) == stamp_len, "the stamp is read");
        read.fingerprint = plan.fingerprint;
        read.limit = plan.limit; /* of a level it is not stored */
        read.period_us = plan.period_us;
        must(memcmp(&read, &plan, sizeof read) == 0, "it is the plan");
        const struct weir_policy policy = plan_policy(&plan);
        must(policy.limit > 0 && plan_make(&policy, &share_whole, &again, none) == WEIR_OK, "there is a policy");
        must(same_rate(&plan, &again) && again.size == plan.size && again.algorithm == plan.algorithm &&
                 again.refill == plan.refill,
             "it has the rate and the size");
        state_charge(&plan, state, now_us, chance_between(&chance, 1, plan.size));
        now_us += chance_magnitude(&chance, WEIR_DAY);
        int64_t at_us = now_us;
        state_decide(&plan, state, now_us, 1, WEIR_PEEK, &peek);
        must(redis_value_decode(bytes, bytes_of(&plan, state, bytes), now_us, &found) && !found.has_former, "a state");
        must(found.state.used == state_used(&plan, state, &at_us) && found.state.decision.remaining == peek.remaining &&
                 found.state.decision.retry_after_us == peek.retry_after_us &&
                 found.state.decision.reset_after_us == peek.reset_after_us,
             "it says what the state says");
    }
}

TEST(random_values_are_foreign_or_within_the_range_of_their_policy, 60)
{
    struct chance chance = chance_make(8);
    int64_t ours = 0;
    for (int64_t step = 0; step < steps_or(1000000); step++) {
        static const char tags[] = "TLIFS+";
        unsigned char bytes[128];
        struct weir_inspected found;
        size_t len = (size_t)chance_between(&chance, 0, sizeof bytes);
        for (size_t i = 0; i < len; i++)
            bytes[i] = (unsigned char)(chance_next(&chance) & (uint64_t) - (int64_t)chance_one_in(&chance, 3));
        if (len > 0)
            bytes[0] = (unsigned char)tags[chance_between(&chance, 0, 5)];
        if (chance_one_in(&chance, 2)) { /* the length of a level's state, and of a window's */
            static const size_t lens[] = { 40, 29, 35, 29, 33, 10 + 40 + 26, 10 + 15 + 29 };
            len = lens[chance_between(&chance, 0, 6)];
            bytes[0] = (unsigned char)tags[chance_between(&chance, 0, 5)];
        }
        if (!redis_value_decode(bytes, len, chance_between(&chance, 0, WEIR_MAX_TIME_US), &found))
            continue;
        must(weir_policy_check(&found.state.policy, NULL, 0) == WEIR_OK, "a policy that weir accepts");
        must(found.state.used >= 0 && found.state.decision.remaining <= found.state.decision.limit, "within it");
        ours++;
    }
    must(ours > steps_or(1000000) / 10000, "hardly any bytes were a state: the test says little");
}

TEST(a_key_name_is_read_back_and_no_other_name_is_accepted, 60)
{
    struct chance chance = chance_make(9);
    for (int64_t step = 0; step < steps_or(100000); step++) {
        static const char special[] = "%{}#A7:*\0";
        unsigned char key[600], room[REDIS_KEY_WHOLE];
        char name[REDIS_KEY_MAX];
        struct weir_inspected found;
        const size_t len = (size_t)chance_between(&chance, 1, chance_one_in(&chance, 8) ? 600 : 12);
        for (size_t i = 0; i < len; i++)
            key[i] = (unsigned char)chance_next(&chance);
        for (size_t i = 0; i < len; i += 2)
            key[i] = (unsigned char)special[chance_between(&chance, 0, 9)];
        size_t name_len = redis_key_write("weir:", "a.limit", weir_key(key, len), name);
        must(redis_name_decode(name, name_len, "weir:", room, &found), "weir wrote it");
        must(strcmp(found.limit, "a.limit") == 0 && found.is_cut == (len > REDIS_KEY_WHOLE), "the limit");
        must(found.key.len == (found.is_cut ? REDIS_KEY_BEGINNING : len) &&
                 memcmp(found.key.data, key, found.key.len) == 0,
             "the key");
        name[chance_between(&chance, 0, (int64_t)name_len - 1)] = (char)chance_next(&chance);
        name_len -= (size_t)chance_between(&chance, 0, 1);
        if (!redis_name_decode(name, name_len, "weir:", room, &found) || found.is_cut)
            continue;
        char again[REDIS_KEY_MAX];
        must(redis_key_write("weir:", found.limit, found.key, again) == name_len && memcmp(again, name, name_len) == 0,
             "a name that weir would not write");
    }
}

/* ---- Fingerprints and items ---- */

static void assert_stamp(const char *policy, const char *hex)
{
    const struct weir_plan plan = plan_of(policy);
    unsigned char stamp[REDIS_STAMP_MAX];
    char text[2 * REDIS_STAMP_MAX + 1] = "";
    size_t len = redis_stamp_write(&plan, stamp);
    for (size_t i = 0; i < len; i++)
        snprintf(text + 2 * i, 3, "%02x", stamp[i]);
    ck_assert_str_eq(text, hex);
}

TEST(a_stamp_is_the_plan_field_by_field, 10)
{
    assert_stamp("token_bucket limit=10 period=1s burst=20 debt=5", "54"
                                                                    "01000000000000"
                                                                    "a0860100000000"
                                                                    "0100000000"
                                                                    "190000000000");
    assert_stamp("leaky_bucket limit=10 period=1s capacity=300", "4c"
                                                                 "01000000000000"
                                                                 "a0860100000000"
                                                                 "0100000000"
                                                                 "2c0100000000");
    assert_stamp("token_bucket limit=10 period=1s burst=20 refill=interval align=epoch", "49"
                                                                                         "01"
                                                                                         "0a0000000000"
                                                                                         "40420f00000000"
                                                                                         "140000000000");
    assert_stamp("fixed_window limit=258 period=1h", "46"
                                                     "00"
                                                     "00a493d6000000"
                                                     "020100000000");
    assert_stamp("sliding_window limit=7 period=10s blocks=1000", "53"
                                                                  "e803"
                                                                  "10270000000000"
                                                                  "070000000000");
}

TEST(stamps_are_equal_only_if_their_plans_are_equal, 30)
{
    struct chance chance = chance_make(1);
    for (int64_t step = 0; step < 20000; step++) {
        const enum kind kind = (enum kind)(step % KIND_COUNT);
        struct weir_plan one = plan_by_chance(&chance, kind), other = one;
        int64_t *const fields[] = { &other.p, &other.q, &other.tick_us, &other.limit, &other.period_us, &other.size };
        unsigned char stamps[2][REDIS_STAMP_MAX];
        size_t len = redis_stamp_write(&one, stamps[0]);
        bool window = kind == KIND_FIXED || kind == KIND_SLIDING; /* its limit is its size */
        for (size_t i = 0; i < sizeof fields / sizeof fields[0]; i++) {
            if (*fields[i] == 0 || (window && fields[i] == &other.limit))
                continue;
            *fields[i] ^= 1;
            must(redis_stamp_write(&other, stamps[1]) == len, "the length of a stamp depends on its values");
            must(memcmp(stamps[0], stamps[1], len) != 0, "two plans have one stamp");
            *fields[i] ^= 1;
        }
    }
}

TEST(each_plan_has_the_script_of_its_algorithm, 10)
{
    static const char *const policies[] = { "token_bucket limit=1 period=1s", "leaky_bucket limit=1 period=1s",
                                            "token_bucket limit=1 period=1s refill=interval",
                                            "fixed_window limit=1 period=1s", "sliding_window limit=1 period=1s" };
    static const char *const names[] = { "token_bucket", "leaky_bucket", "interval_bucket", "fixed_window",
                                         "sliding_window" };
    for (int i = 0; i < 5; i++) {
        const struct weir_plan plan = plan_of(policies[i]);
        ck_assert_str_eq(redis_scripts[redis_script_of(&plan)].name, names[i]);
    }
    ck_assert_str_eq(redis_scripts[REDIS_TRY_ALL].name, "try_all");
}

TEST(an_item_is_fifteen_bytes, 10)
{
    unsigned char item[REDIS_ITEM_SIZE];
    static const struct {
        int verb;
        bool more;
        int64_t cost, times;
        unsigned char bytes[REDIS_ITEM_SIZE];
    } cases[] = {
        { WEIR_TAKE,
          false,
          WEIR_MAX_ALL * WEIR_MAX_PERMITS,
          REDIS_MAX_TIMES,
          { 0, 0, 0, 0, 0, 0, 0, 2, 0xff, 0xff, 0, 0, 0, 0, 0 } },
        { WEIR_REFUND, true, 3, 1, { 130, 3, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0 } },
        { REDIS_LEASE,
          false,
          WEIR_MAX_PERMITS,
          WEIR_MAX_SPREAD,
          { 6, 0, 0, 0, 0, 0, 8, 0, 0xff, 0xff, 0, 0, 0, 0, 0 } },
        { REDIS_LEASE_IF_TAKEN, true, 7, 2, { 135, 7, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0 } },
        { REDIS_RETURN,
          false,
          7,
          INT64_C(1790000000123456),
          { 8, 7, 0, 0, 0, 0, 0, 0, 0x40, 0xc2, 0x27, 0xda, 0xfe, 0x5b, 0x06 } },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        redis_item_write(item, cases[i].verb, cases[i].more, cases[i].cost, cases[i].times);
        ck_assert_mem_eq(item, cases[i].bytes, sizeof item);
    }
}

/* Read a number that is written as a double. */
static int64_t double_at(const unsigned char *bytes)
{
    uint64_t bits = 0;
    double number;
    for (int i = 7; i >= 0; i--)
        bits = bits << 8 | bytes[i];
    memcpy(&number, &bits, sizeof number);
    return (int64_t)number;
}

#define AT_US INT64_C(1790000000123456)

static size_t write_item(unsigned char *at, const char *item, size_t place)
{
    const bool returns = item[0] == 'R';
    redis_item_write(at, returns ? REDIS_RETURN : WEIR_TAKE, item[0] == 'm', item[1] - '0',
                     returns ? AT_US + (int64_t)place : 1);
    return REDIS_ITEM_SIZE;
}

/* Check the counts and the items that are left after packing items of these verbs, whose costs are digits. */
static void assert_packed(const char *items, size_t same, size_t returns, const char *kept)
{
    unsigned char bytes[REDIS_COUNTS_SIZE + 8 * REDIS_RETURN_SIZE], item[REDIS_ITEM_SIZE];
    const size_t n = strlen(items) / 2, n_kept = strlen(kept) / 2, first = same > 0;
    size_t at = REDIS_COUNTS_SIZE;
    for (size_t i = 0; i < n; i++)
        at += write_item(bytes + at, items + 2 * i, i);
    const size_t len = redis_items_pack(bytes, n);
    ck_assert_uint_eq(bytes[0] + bytes[1] * 256U, same);
    ck_assert_uint_eq(bytes[2] + bytes[3] * 256U, returns);
    at = REDIS_COUNTS_SIZE;
    for (size_t i = 0; i < n_kept; i++) {
        const size_t place = i + n - n_kept;
        if (i >= first && i < first + returns) {
            ck_assert_int_eq(double_at(bytes + at), kept[2 * i + 1] - '0');
            ck_assert_int_eq(double_at(bytes + at + 8), AT_US + (int64_t)place);
            at += REDIS_RETURN_SIZE;
        } else {
            write_item(item, kept + 2 * i, place);
            ck_assert_mem_eq(bytes + at, item, sizeof item);
            at += sizeof item;
        }
    }
    ck_assert_uint_eq(len, at);
}

TEST(equal_items_of_the_leading_keys_are_merged_and_refunds_counted, 10)
{
    assert_packed("T1", 1, 0, "T1");
    assert_packed("T1T1T1", 3, 0, "T1");
    assert_packed("T1T2", 1, 0, "T1T2");
    assert_packed("m1T1", 0, 0, "m1T1"); /* of one key */
    assert_packed("T1T1R1R2T1", 2, 2, "T1R1R2T1");
    assert_packed("T1R3m1T2R1", 1, 1, "T1R3m1T2R1");
    assert_packed("R1R2", 0, 2, "R1R2");
    assert_packed("R1R2R3R4R5R6R7R8", 0, 8, "R1R2R3R4R5R6R7R8");
    assert_packed("T1m1R1", 1, 0, "T1m1R1");
    assert_packed("m1m1T1R1", 0, 0, "m1m1T1R1");
}

/* ---- One take from a bucket ---- */

/* Check the stamp of an argument and the numbers behind it, except the echo between the fourth and the fifth. */
static void assert_argument(const unsigned char *argument, size_t len, const char *stamp, const int64_t *numbers)
{
    char text[2 * REDIS_STAMP_MAX + 1];
    for (size_t i = 0; i < REDIS_STAMP_MAX; i++)
        snprintf(text + 2 * i, 3, "%02x", argument[i]);
    ck_assert_str_eq(text, stamp);
    size_t at = REDIS_STAMP_MAX;
    for (int i = 0; at < len; i++) {
        ck_assert_int_eq(double_at(argument + at), numbers[i]);
        at += 8;
        if (i == 3) {
            ck_assert_mem_eq(argument + at, "echo", REDIS_ECHO_SIZE);
            at += REDIS_ECHO_SIZE;
        }
    }
    ck_assert_uint_eq(at, len);
}

static void assert_take(const char *policy, int64_t cost, const char *stamp, int64_t units)
{
    const struct weir_plan plan = plan_of(policy);
    unsigned char argument[REDIS_TAKE_SIZE];
    /* 20 permits of 200,000 half units, of which 2 drain each microsecond; a quarter of 2 s, and a second */
    const int64_t numbers[] = { 2, 4000000, 1500001 - 4, units };
    ck_assert_uint_eq(redis_take_write(&plan, cost, "echo", argument), REDIS_TAKE_SIZE);
    assert_argument(argument, REDIS_TAKE_SIZE, stamp, numbers);
}

static void assert_no_take(const char *policy)
{
    const struct weir_plan plan = plan_of(policy);
    unsigned char argument[REDIS_TAKE_SIZE];
    ck_assert_uint_eq(redis_take_write(&plan, 1, "echo", argument), 0);
}

#define HALVES_OF_TEN_A_SECOND \
    "02000000000000"           \
    "400d0300000000"           \
    "0100000000"               \
    "140000000000"

TEST(the_argument_of_a_take_is_the_doubled_plan_and_derived_numbers, 10)
{
    assert_take("token_bucket limit=10 period=1s burst=20", 3, "54" HALVES_OF_TEN_A_SECOND, 600000);
    assert_take("leaky_bucket limit=10 period=1s capacity=20", 20, "4c" HALVES_OF_TEN_A_SECOND, 4000000);
    assert_take("token_bucket limit=10 period=1s burst=20", 21, "54" HALVES_OF_TEN_A_SECOND, 4000001); /* never */
    assert_no_take("token_bucket limit=10 period=1s refill=interval");
    assert_no_take("fixed_window limit=10 period=1s");
    assert_no_take("sliding_window limit=10 period=1s");
    const struct weir_plan coarse = plan_of("token_bucket limit=7 period=365d burst=990");
    ck_assert_int_gt(coarse.tick_us, 1);
    ck_assert_int_lt(coarse.size * coarse.q, EXACT_MAX / 2);
    assert_no_take("token_bucket limit=7 period=365d burst=990");
}

TEST(the_argument_of_a_settlement_has_its_permits_and_their_time, 10)
{
    const struct weir_plan plan = plan_of("token_bucket limit=10 period=1s burst=20");
    unsigned char argument[REDIS_SETTLE_SIZE];
    const int64_t numbers[] = { 2, 4000000, 1500001 - 4, 4000000, 200000 /* of a permit */, AT_US };
    ck_assert_uint_eq(redis_settle_write(&plan, 20, AT_US, "echo", argument), REDIS_SETTLE_SIZE);
    assert_argument(argument, REDIS_SETTLE_SIZE, "54" HALVES_OF_TEN_A_SECOND, numbers);
    ck_assert_uint_eq(redis_settle_write(&plan, 20, 0, "echo", argument), REDIS_CHARGE_SIZE);
    assert_argument(argument, REDIS_CHARGE_SIZE, "54" HALVES_OF_TEN_A_SECOND, numbers);
    ck_assert_uint_eq(redis_settle_write(&plan, 21, 1, "echo", argument), 0); /* more than a full bucket */
    const struct weir_plan window = plan_of("fixed_window limit=10 period=1s");
    ck_assert_uint_eq(redis_settle_write(&window, 1, 1, "echo", argument), 0);
}

TEST(every_number_in_the_argument_of_a_take_is_exact, 30)
{
    struct chance chance = chance_make(10);
    int64_t large = 0;
    for (int64_t step = 0; step < steps_or(100000); step++) {
        const struct weir_plan plan = plan_by_chance(&chance, step % 2 == 0 ? KIND_GREEDY : KIND_LEAKY);
        unsigned char argument[REDIS_TAKE_SIZE];
        const int64_t cost = chance_magnitude(&chance, WEIR_MAX_PERMITS);
        const bool fits = 2 * plan.p <= EXACT_MAX && plan.size <= EXACT_MAX / 2 / plan.q;
        must((redis_take_write(&plan, cost, "echo", argument) > 0) == (fits && plan.tick_us == 1),
             "a plan has the short script exactly if its halves are exact and its tick is a microsecond");
        large += !fits;
    }
    must(large > steps_or(100000) / 1000, "hardly any plan was too large: the test says little");
}

TEST(a_short_denial_ends_with_the_time_in_decimals, 10)
{
    static const struct {
        const char *text;
        bool fits;
        int64_t now_us;
    } cases[] = {
        { "1790000000 123456", true, INT64_C(1790000000123456) },
        { "1790000000 7", true, INT64_C(1790000000000007) },
        { "0 0", true, 0 },
        { "9007199254 740991", true, WEIR_MAX_TIME_US },
        { "9007199254 740992", false, 0 }, /* no double holds more exactly */
        { "9007199255 0", false, 0 },
        { "1790000000 1000000", false, 0 },
        { "99999999999999999999 0", false, 0 },
        { "1790000000 99999999999999999999", false, 0 },
        { "1790000000+123456", false, 0 },
        { "1790000000 123456 7", false, 0 },
        { "1790000000 123456T7", false, 0 },
        { "1790000000", false, 0 },
        { "1790000000 ", false, 0 },
        { " 123456", false, 0 },
        { "-1 123456", false, 0 },
        { "", false, 0 },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        int64_t now_us = 0;
        ck_assert_int_eq(redis_time_read((const unsigned char *)cases[i].text, strlen(cases[i].text), &now_us),
                         cases[i].fits);
        if (cases[i].fits)
            ck_assert_int_eq(now_us, cases[i].now_us);
    }
}

TEST(a_state_after_a_request_must_fit_the_plan, 10)
{
    static const struct {
        int64_t halves, tick;
        bool fits;
    } cases[] = { { 2, 0, true },  { 20, WEIR_MAX_TIME_US, true },    { 22, 0, false }, { 0, 0, true },
                  { 3, 0, false }, { 2, WEIR_MAX_TIME_US + 1, false } };
    const struct weir_plan plan = plan_of("token_bucket limit=10 period=10us burst=10");
    ck_assert_int_eq(plan.q, 1);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        unsigned char bytes[REDIS_LEFT_SIZE];
        int64_t state[STATE_MAX_WORDS] = { 0 };
        put(bytes, put(bytes, 0, 7, cases[i].halves), 7, cases[i].tick);
        ck_assert_int_eq(redis_left_read(&plan, bytes, state), cases[i].fits);
        ck_assert_int_eq(state[0], cases[i].fits ? cases[i].halves / 2 : 0);
        ck_assert_int_eq(state[1], cases[i].fits ? cases[i].tick : 0);
    }
}

TEST(a_full_answer_to_a_take_is_never_mistaken_for_a_short_denial, 10)
{
    unsigned char bytes[REDIS_HEAD_SIZE + REDIS_BUCKET_STATE_SIZE];
    memset(bytes, '1', sizeof bytes);
    ck_assert(redis_denial_is_short(bytes, sizeof bytes));
    ck_assert(!redis_denial_is_short(bytes, REDIS_BUCKET_STATE_SIZE));
    put(bytes, sizeof bytes - 7, 7, EXACT_MAX); /* a state ends with its anchor */
    ck_assert(!redis_denial_is_short(bytes, sizeof bytes));
    bytes[REDIS_HEAD_SIZE] = 1; /* the largest byte that stands for a state */
    ck_assert(!redis_denial_is_short(bytes, REDIS_HEAD_SIZE + 1));
}

/* ---- States ---- */

/* Make a state with something used by a random history. */
static void state_by_chance(struct chance *chance, const struct weir_plan *plan, int64_t *state)
{
    struct weir_decision decision;
    int64_t now_us = chance_one_in(chance, 3) ? chance_between(chance, 0, WEIR_MAX_TIME_US) : INT64_C(1790000000123456);
    state_charge(plan, state, now_us, chance_between(chance, 1, plan->size));
    for (int64_t i = chance_between(chance, 0, 6); i > 0; i--) {
        now_us = min_of(now_us + chance_magnitude(chance, plan->period_us > 0 ? plan->period_us : WEIR_SECOND),
                        WEIR_MAX_TIME_US);
        state_decide(plan, state, now_us, chance_between(chance, 1, plan->size),
                     chance_one_in(chance, 3) ? WEIR_REFUND : WEIR_TAKE, &decision);
        if (decision.reset_after_us == 0)
            state_charge(plan, state, now_us, 1);
    }
}

TEST(a_written_state_is_read_back_unchanged, 60)
{
    struct chance chance = chance_make(2);
    for (int64_t step = 0; step < steps_or(200000); step++) {
        const struct weir_plan plan = plan_by_chance(&chance, (enum kind)(step % KIND_COUNT));
        int64_t state[STATE_MAX_WORDS], read[STATE_MAX_WORDS];
        unsigned char bytes[REDIS_STATE_MAX + 8] = { 0 };
        enum redis_found found;
        state_by_chance(&chance, &plan, state);
        size_t len = bytes_of(&plan, state, bytes), words = state_words(&plan);
        must(len <= REDIS_STATE_MAX, "longer than the longest");
        memset(read, 0xff, sizeof read);
        size_t behind = (size_t)chance_between(&chance, 0, 8);
        must(redis_state_read(&plan, bytes, len + behind, read, &found) == (int)len, "not taken, or not all of it");
        must(found == REDIS_STATE && memcmp(state, read, words * sizeof *read) == 0, "read as another state");
        /* Any prefix of it is no state, and nothing is written. */
        found = REDIS_FOREIGN;
        size_t cut = (size_t)chance_between(&chance, 0, (int64_t)len - 1);
        memcpy(read, state, words * sizeof *read);
        must(redis_state_read(&plan, bytes, cut, read, &found) == -1, "half a state was taken");
        must(found == REDIS_FOREIGN && memcmp(state, read, words * sizeof *read) == 0, "half a state was written");
        /* Under another plan it is no state either. */
        struct weir_plan other = plan;
        other.size += 1;
        must(redis_state_read(&other, bytes, len, read, &found) == -1, "a state of another plan was taken");
    }
}

TEST(a_missing_and_a_foreign_state_are_one_byte_each, 10)
{
    const struct weir_plan plan = plan_of("token_bucket limit=5 period=1s");
    static const unsigned char bytes[] = { 0, 1, 2 };
    int64_t state[STATE_MAX_WORDS];
    enum redis_found found = REDIS_STATE;
    ck_assert_int_eq(redis_state_read(&plan, bytes, 3, state, &found), 1);
    ck_assert_int_eq(found, REDIS_FRESH);
    ck_assert_int_eq(redis_state_read(&plan, bytes + 1, 2, state, &found), 1);
    ck_assert_int_eq(found, REDIS_FOREIGN);
    ck_assert_int_eq(redis_state_read(&plan, bytes + 2, 1, state, &found), -1);
    ck_assert_int_eq(redis_state_read(&plan, bytes, 0, state, &found), -1);
}

/* ---- What is not a state ---- */

static bool is_read(const struct weir_plan *plan, const unsigned char *bytes, size_t len)
{
    int64_t state[STATE_MAX_WORDS];
    enum redis_found found;
    return redis_state_read(plan, bytes, len, state, &found) == (int)len && found == REDIS_STATE;
}

/* True if `policy` accepts a state of two numbers. */
static bool takes(const char *policy, int64_t used, int64_t anchor)
{
    const struct weir_plan plan = plan_of(policy);
    const int64_t state[2] = { used, anchor };
    unsigned char bytes[REDIS_STATE_MAX];
    size_t len = bytes_of(&plan, state, bytes);
    return is_read(&plan, bytes, len);
}

TEST(an_impossible_use_of_a_bucket_is_refused, 10)
{
    static const char *const greedy[] = { "token_bucket limit=1 period=1ms burst=7",
                                          "leaky_bucket limit=1 period=1ms capacity=7" };
    static const struct {
        const char *policy;
        int64_t most;
    } whole[] = { { "token_bucket limit=7 period=365d refill=interval", 142 * 7 }, /* what 142 years give back */
                  { "token_bucket limit=7 period=365d burst=5 debt=2 refill=interval", 142 * 7 },
                  { "token_bucket limit=7 period=1s refill=interval", 7 * (WEIR_MAX_FILL_US / WEIR_SECOND) },
                  { "token_bucket limit=7M period=1s refill=interval", EXACT_MAX },
                  { "fixed_window limit=7 period=1s", EXACT_MAX } };
    for (int i = 0; i < 2; i++) { /* one permit is 1000 units of 1 us, and one of them drains every microsecond */
        ck_assert(takes(greedy[i], WEIR_MAX_FILL_US, EXACT_MAX));
        ck_assert(takes(greedy[i], 1, 0));
        ck_assert(!takes(greedy[i], WEIR_MAX_FILL_US + 1, 0));
        ck_assert(!takes(greedy[i], 0, 0));
        ck_assert(!takes(greedy[i], 1, EXACT_MAX + 1));
    }
    for (int i = 0; i < 5; i++) {
        ck_assert(takes(whole[i].policy, whole[i].most, EXACT_MAX));
        ck_assert(takes(whole[i].policy, 1, 0));
        ck_assert(!takes(whole[i].policy, whole[i].most + 1, 0));
        ck_assert(!takes(whole[i].policy, 0, 0));
        ck_assert(!takes(whole[i].policy, 1, EXACT_MAX + 1));
    }
    /* Ticks of 10 us: use the last one that begins before 2^53 us. */
    const struct weir_plan coarse = plan_of("token_bucket limit=7 period=365d burst=990");
    ck_assert_int_gt(coarse.tick_us, 1);
    ck_assert(takes("token_bucket limit=7 period=365d burst=990", 1, EXACT_MAX / coarse.tick_us));
    ck_assert(!takes("token_bucket limit=7 period=365d burst=990", 1, EXACT_MAX / coarse.tick_us + 1));
}

/* A script may deny by such a state before it looks closer. */
TEST(an_impossible_use_in_a_bucket_written_with_room_is_foreign, 10)
{
    static const char slow[] = "token_bucket limit=1 period=1ms burst=7",
                      fast[] = "token_bucket limit=4 period=1us burst=7"; /* its states could pass 2^53 half units */
    static const struct {
        const char *policy;
        int64_t used_halves, tick;
        enum redis_found found;
    } cases[] = { { slow, 2, 0, REDIS_STATE },
                  { slow, 2 * WEIR_MAX_FILL_US, EXACT_MAX, REDIS_STATE },
                  { slow, 2 * WEIR_MAX_FILL_US + 2, 0, REDIS_FOREIGN },
                  { slow, 3, 0, REDIS_FOREIGN },
                  { slow, 0, 0, REDIS_FOREIGN },
                  { slow, 2, EXACT_MAX + 1, REDIS_FOREIGN },
                  { fast, EXACT_MAX - 1, 0, REDIS_STATE },
                  { fast, EXACT_MAX + 1, 0, REDIS_FOREIGN } };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        unsigned char bytes[REDIS_TAKE_SIZE];
        int64_t state[STATE_MAX_WORDS];
        enum redis_found found;
        struct weir_inspected inspected;
        const struct weir_plan plan = plan_of(cases[i].policy);
        ck_assert_uint_gt(redis_take_write(&plan, 1, "echo", bytes), 0); /* its stamp has room */
        const size_t len = put(bytes, put(bytes, REDIS_STAMP_MAX, 7, cases[i].used_halves), 7, cases[i].tick);
        ck_assert_int_eq(redis_state_read(&plan, bytes, len, state, &found), (int)len);
        ck_assert_int_eq(found, cases[i].found);
        ck_assert_int_eq(redis_value_decode(bytes, len, 0, &inspected), cases[i].found == REDIS_STATE);
        ck_assert_int_eq(redis_state_read(&plan, bytes, len - 1, state, &found), -1);
    }
}

/* Check counts of "sliding_window limit=7 period=2s blocks=2": three blocks of a second count. */
static bool takes_counts(int64_t newest, int64_t n, const int64_t *counts, int64_t given)
{
    const struct weir_plan plan = plan_of("sliding_window limit=7 period=2s blocks=2");
    unsigned char bytes[64];
    size_t at = put(bytes, put(bytes, redis_stamp_write(&plan, bytes), 7, newest), 2, n);
    for (int64_t i = 0; i < given; i++)
        at = put(bytes, at, 4, counts[i]);
    return is_read(&plan, bytes, at);
}

TEST(impossible_counts_of_a_sliding_window_are_refused, 10)
{
    static const int64_t full[] = { 2, 0, 5, 1 }, none[] = { 3, 1, 0 }, overdrawn[] = { 3, UINT32_MAX - 4, 1 },
                         wide[] = { 4294967295, 1, 1 };
    ck_assert(takes_counts(9, 3, full, 3));
    ck_assert(takes_counts(0, 1, full, 1));
    ck_assert(takes_counts(EXACT_MAX / WEIR_SECOND, 1, full, 1));
    ck_assert(!takes_counts(EXACT_MAX / WEIR_SECOND + 1, 1, full, 1));
    ck_assert(!takes_counts(9, 0, full, 0));
    ck_assert(!takes_counts(9, 4, full, 4));
    ck_assert(!takes_counts(9, 65535, full, 4));
    ck_assert(!takes_counts(9, 3, full, 2));
    ck_assert(!takes_counts(9, 2, full, 3));
    ck_assert(!takes_counts(9, 2, full, 2)); /* must not end in a 0 */
    ck_assert(!takes_counts(9, 3, none, 3));
    ck_assert(takes_counts(9, 3, overdrawn, 3));
    ck_assert(!takes_counts(9, 3, wide, 3));
}

TEST(random_bytes_are_refused_or_a_state_in_range, 60)
{
    struct chance chance = chance_make(3);
    int64_t taken_count = 0;
    for (int64_t step = 0; step < steps_or(1000000); step++) {
        static struct weir_plan plan;
        if (step % 16 == 0)
            plan = plan_by_chance(&chance, (enum kind)(step / 16 % KIND_COUNT));
        unsigned char bytes[256];
        int64_t state[STATE_MAX_WORDS];
        enum redis_found found = REDIS_FOREIGN;
        size_t len = (size_t)chance_between(&chance, 0, chance_one_in(&chance, 4) ? 255 : 48);
        for (size_t i = 0; i < len; i++)
            bytes[i] = (unsigned char)chance_next(&chance);
        if (len >= REDIS_STAMP_MAX &&
            !chance_one_in(&chance, 3)) { /* a valid fingerprint, then numbers that are not too large */
            size_t stamp_len = redis_stamp_write(&plan, bytes);
            for (size_t i = stamp_len + 1; i < len; i++)
                bytes[i] &= (unsigned char)-(int)chance_one_in(&chance, 4);
        }
        int taken_len = redis_state_read(&plan, bytes, len, state, &found);
        must(taken_len >= -1 && taken_len != 0 && taken_len <= (int)len, "no such length");
        if (taken_len <= 1)
            continue;
        unsigned char again[REDIS_STATE_MAX];
        must(found == REDIS_STATE && bytes_of(&plan, state, again) == (size_t)taken_len &&
                 memcmp(again, bytes, (size_t)taken_len) == 0,
             "taken for a state that has other bytes");
        int64_t at_us = WEIR_MAX_TIME_US;
        must(state_fresh_at_us(&plan, state) > 0, "a state with nothing used");
        must(plan.p > 0 || state_used(&plan, state, &at_us) <= state_top(&plan), "more used than any state holds");
        taken_count++;
    }
    must(taken_count > steps_or(1000000) / 1000, "hardly any bytes were a state: the test says little");
}
