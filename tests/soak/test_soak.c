/* test_soak.c - the soak's checks can fail: its judge and its looks at processes tell too much from enough. */
#include "flat.h"
#include "judge.h"
#include "support.h"

#include <stdlib.h>
#include <unistd.h>

enum { BUCKET, SLIDING, WINDOW, QUEUE, INTERVAL, CHURN };
enum { LOCAL = 0, OWN_CLOCK = 1, SHARED = 2, DISTRIBUTED = 4, HYBRID = 6 };

#define EPOCH (1000000 * WEIR_SECOND) /* where windows begin */

static struct judge *judge;
static _Atomic int64_t over_max[MODES][LIMITS];
static int64_t at_us; /* the time of the next call */

static void set_up(void)
{
    policies_read();
    judge = judge_make(true);
    at_us = EPOCH + 1000;
}

static void tear_down(void)
{
    judge_free(judge);
}

static void take(int process, int mode, int limit, int64_t took_us, uint32_t cost, enum record_kind kind, int source)
{
    const struct record record = { .start_us = at_us,
                                   .end_us = at_us + took_us,
                                   .cost = cost,
                                   .mode = (uint8_t)mode,
                                   .limit = (uint8_t)limit,
                                   .kind = (uint8_t)kind,
                                   .source = (uint8_t)source };
    judge_take(judge, process, &record);
}

/* Admit n calls in a row, a microsecond each. */
static void admit(int mode, int limit, int n)
{
    for (int i = 0; i < n; i++, at_us += 2)
        take(0, mode, limit, 1, 1, RECORD_ADMITTED, WEIR_BY_REDIS);
}

static void stand_in(int process, int limit, int n)
{
    for (int i = 0; i < n; i++, at_us += 2)
        take(process, DISTRIBUTED, limit, 1, 1, RECORD_ADMITTED, WEIR_BY_FALLBACK);
}

static int64_t size_of(int limit)
{
    return policy_size(&soak_policies[limit]);
}

static bool is_within(int mode, int limit)
{
    judge_turn(judge, at_us, true, over_max);
    return judge_worst(judge, mode, limit) <= 0;
}

static void allow(enum allowance_kind kind, int64_t from_us, int64_t until_us, int64_t forward_us)
{
    const struct allowance allowance = { .start_us = from_us,
                                         .end_us = until_us,
                                         .kind = kind,
                                         .modes = UINT32_MAX,
                                         .process = 0,
                                         .forward_us = forward_us };
    judge_allow(judge, &allowance);
}

/* ---- Without faults ---- */

TEST(the_soak_judge_accepts_the_limit_and_rejects_one_permit_more, 10)
{
    for (int limit = 0; limit < LIMITS; limit++) {
        set_up();
        admit(DISTRIBUTED, limit, (int)size_of(limit));
        ck_assert_msg(is_within(DISTRIBUTED, limit), "%s", judge_worst_key(judge, DISTRIBUTED, limit));
        admit(DISTRIBUTED, limit, 1);
        ck_assert_msg(!is_within(DISTRIBUTED, limit), "%s", soak_limits[limit].name);
        tear_down();
    }
}

TEST(calls_that_may_have_been_decided_earlier_do_not_count, 10)
{
    set_up();
    at_us -= WEIR_SECOND;
    take(0, DISTRIBUTED, BUCKET, 2 * WEIR_SECOND, 10, RECORD_ADMITTED, WEIR_BY_REDIS);
    at_us += WEIR_SECOND;
    admit(DISTRIBUTED, BUCKET, (int)size_of(BUCKET));
    ck_assert(is_within(DISTRIBUTED, BUCKET));
    tear_down();
}

/* One permit too many per hundred seconds: no stretch of a few seconds shows it. */
TEST(the_soak_judge_finds_a_bucket_that_is_slightly_too_fast, 30)
{
    for (int fast = 0; fast < 2; fast++) {
        set_up();
        const int64_t apart_us = soak_policies[BUCKET].period_us / soak_policies[BUCKET].limit;
        admit(DISTRIBUTED, BUCKET, (int)size_of(BUCKET));
        for (int64_t i = 0; i < 60000; i++) {
            at_us += apart_us - (fast == 1 && i % 10 == 0);
            take(0, DISTRIBUTED, BUCKET, 1, 1, RECORD_ADMITTED, WEIR_BY_REDIS);
            if (i % 600 == 0)
                judge_turn(judge, at_us, false, over_max);
        }
        ck_assert_int_eq(is_within(DISTRIBUTED, BUCKET), fast == 0);
        ck_assert_int_eq(judge_too_late(judge), 0);
        tear_down();
    }
}

TEST(repeatedly_full_windows_are_within_the_bound, 10)
{
    static const int limits[] = { SLIDING, WINDOW, INTERVAL };
    for (size_t i = 0; i < 3; i++) {
        const int limit = limits[i];
        set_up();
        for (int window = 0; window < 100; window++) {
            at_us = EPOCH + window * soak_policies[limit].period_us + 1000;
            admit(DISTRIBUTED, limit, (int)size_of(limit));
            judge_turn(judge, at_us, false, over_max);
        }
        ck_assert(is_within(DISTRIBUTED, limit));
        at_us += 1000;
        admit(DISTRIBUTED, limit, 1);
        ck_assert(!is_within(DISTRIBUTED, limit));
        tear_down();
    }
}

TEST(the_soak_judge_allows_hybrid_mode_the_excess_of_weir_limit_info, 10)
{
    set_up();
    over_max[HYBRID][BUCKET] = 20;
    admit(HYBRID, BUCKET, (int)size_of(BUCKET) + 20);
    ck_assert(is_within(HYBRID, BUCKET));
    admit(HYBRID, BUCKET, 1);
    ck_assert(!is_within(HYBRID, BUCKET));
    over_max[HYBRID][BUCKET] = 0;
    tear_down();
}

TEST(only_in_local_mode_each_process_has_a_separate_limit, 10)
{
    set_up();
    for (int process = 0; process < PROCESSES; process++)
        for (int64_t i = 0; i < size_of(BUCKET); i++, at_us++) {
            take(process, LOCAL, BUCKET, 1, 1, RECORD_ADMITTED, WEIR_BY_MEMORY);
            take(process, SHARED, BUCKET, 1, 1, RECORD_ADMITTED, WEIR_BY_MEMORY);
        }
    ck_assert(is_within(LOCAL, BUCKET));
    ck_assert(!is_within(SHARED, BUCKET));
    tear_down();
}

/* ---- With faults ---- */

TEST(a_loss_of_state_allows_one_extra_limit_where_it_happened, 10)
{
    for (int limit = 0; limit < LIMITS; limit++)
        for (int extra = 0; extra < 2; extra++) {
            set_up();
            admit(DISTRIBUTED, limit, (int)size_of(limit));
            allow(ALLOW_LOSS, at_us, at_us + 1000, 0);
            at_us += 2000;
            admit(DISTRIBUTED, limit, (int)size_of(limit) + extra);
            ck_assert_msg(is_within(DISTRIBUTED, limit) == (extra == 0), "%s", soak_limits[limit].name);
            tear_down();

            set_up();
            allow(ALLOW_LOSS, at_us, at_us + 1000, 0);
            at_us += 2 * WEIR_SECOND;
            admit(DISTRIBUTED, limit, (int)size_of(limit) + extra);
            ck_assert_msg(is_within(DISTRIBUTED, limit) == (extra == 0), "%s", soak_limits[limit].name);
            tear_down();
        }
}

TEST(an_allowance_counts_once_even_across_judgements, 10)
{
    set_up();
    admit(DISTRIBUTED, BUCKET, (int)size_of(BUCKET));
    allow(ALLOW_LOSS, at_us, at_us + 1000, 0);
    at_us += 2000;
    admit(DISTRIBUTED, BUCKET, (int)size_of(BUCKET));
    const int64_t apart_us = soak_policies[BUCKET].period_us / soak_policies[BUCKET].limit;
    for (int i = 0; i < 6000; i++) {
        at_us += apart_us;
        take(0, DISTRIBUTED, BUCKET, 1, 1, RECORD_ADMITTED, WEIR_BY_REDIS);
        if (i % 600 == 0)
            judge_turn(judge, at_us, false, over_max);
    }
    ck_assert(is_within(DISTRIBUTED, BUCKET));
    admit(DISTRIBUTED, BUCKET, 2);
    ck_assert(!is_within(DISTRIBUTED, BUCKET));
    tear_down();
}

TEST(a_clock_step_allows_at_most_twice_the_refill_of_that_time, 10)
{
    for (int extra = 0; extra < 2; extra++) {
        set_up();
        admit(OWN_CLOCK, BUCKET, (int)size_of(BUCKET));
        allow(ALLOW_CLOCK, at_us, at_us, 10 * soak_policies[BUCKET].period_us / soak_policies[BUCKET].limit);
        at_us += 10;
        admit(OWN_CLOCK, BUCKET, 20 + 2 * extra);
        ck_assert(is_within(OWN_CLOCK, BUCKET) == (extra == 0));
        tear_down();
    }
}

TEST(a_restarted_process_may_use_its_local_limit_anew_and_its_share_twice, 10)
{
    for (int extra = 0; extra < 2; extra++) {
        set_up();
        admit(LOCAL, BUCKET, (int)size_of(BUCKET));
        admit(SHARED, BUCKET, (int)size_of(BUCKET));
        allow(ALLOW_FORGOTTEN, at_us, at_us, 0);
        at_us += 10;
        admit(LOCAL, BUCKET, (int)size_of(BUCKET) + 2 * extra);
        admit(SHARED, BUCKET, 2 * (int)part_of(size_of(BUCKET)) + 2 * extra);
        ck_assert(is_within(LOCAL, BUCKET) == (extra == 0));
        ck_assert(is_within(SHARED, BUCKET) == (extra == 0));
        tear_down();
    }
}

TEST(the_soak_judge_allows_admissions_of_an_outage_up_to_one_bucket, 10)
{
    for (int extra = 0; extra < 2; extra++) {
        set_up();
        judge_gone(judge, UINT32_MAX, at_us);
        stand_in(0, BUCKET, 10);
        judge_back(judge, at_us);
        at_us += 10;
        judge_over(judge, at_us);
        at_us += 10;
        admit(DISTRIBUTED, BUCKET, (int)size_of(BUCKET) + extra);
        ck_assert(is_within(DISTRIBUTED, BUCKET) == (extra == 0));
        tear_down();
    }
    set_up(); /* not before the outage is over: it begins with the earlier level */
    admit(DISTRIBUTED, BUCKET, (int)size_of(BUCKET));
    judge_gone(judge, UINT32_MAX, at_us);
    stand_in(0, BUCKET, 2);
    ck_assert(!is_within(DISTRIBUTED, BUCKET));
    tear_down();
    /* all three fallbacks admit their shares for long: one bucket more is allowed afterwards, however much they
     * admitted */
    set_up();
    judge_gone(judge, UINT32_MAX, at_us);
    for (int process = 0; process < PROCESSES; process++)
        stand_in(process, BUCKET, (int)part_of(size_of(BUCKET)) - 1);
    const int64_t made = 30 * soak_policies[BUCKET].limit;
    for (int64_t i = 0; i < made; i++) {
        at_us += 30 * WEIR_SECOND / made;
        take((int)(i % PROCESSES), DISTRIBUTED, BUCKET, 1, 1, RECORD_ADMITTED, WEIR_BY_FALLBACK);
    }
    judge_back(judge, at_us);
    judge_over(judge, at_us);
    at_us += 10;
    admit(DISTRIBUTED, BUCKET, (int)size_of(BUCKET));
    ck_assert_msg(is_within(DISTRIBUTED, BUCKET), "%s", judge_worst_key(judge, DISTRIBUTED, BUCKET));
    admit(DISTRIBUTED, BUCKET, 1);
    ck_assert(!is_within(DISTRIBUTED, BUCKET));
    tear_down();
}

TEST(a_fallback_beside_redis_is_checked_against_its_share, 10)
{
    for (int limit = 0; limit < LIMITS; limit++) {
        set_up();
        admit(DISTRIBUTED, limit, (int)size_of(limit));
        for (int process = 0; process < PROCESSES; process++)
            stand_in(process, limit, (int)part_of(size_of(limit)));
        ck_assert_msg(is_within(DISTRIBUTED, limit), "%s", judge_worst_key(judge, DISTRIBUTED, limit));
        stand_in(1, limit, 1);
        ck_assert_msg(!is_within(DISTRIBUTED, limit), "%s", soak_limits[limit].name);
        tear_down();
    }
}

TEST(a_reset_allows_a_bucket_and_a_refund_its_permits, 10)
{
    for (int extra = 0; extra < 2; extra++) {
        set_up();
        admit(DISTRIBUTED, BUCKET, (int)size_of(BUCKET));
        take(0, DISTRIBUTED, BUCKET, 1, 2, RECORD_REFUNDED, 0);
        at_us += 5;
        admit(DISTRIBUTED, BUCKET, 2);
        take(0, DISTRIBUTED, BUCKET, 1, 1, RECORD_RESET, 0);
        at_us += 5;
        admit(DISTRIBUTED, BUCKET, (int)size_of(BUCKET) + extra);
        ck_assert(is_within(DISTRIBUTED, BUCKET) == (extra == 0));
        tear_down();
    }
}

/* ---- Memory, descriptors and threads ---- */

static bool holds(double first, double step, double jitter)
{
    static struct flat flat;
    flat = (struct flat){ .is_judged = true, .is_one_life = true };
    struct chance chance = chance_make(1);
    for (int i = 0; i < 3 * LOOKS_MOST; i++) {
        const double noise = jitter * (double)chance_between(&chance, -100, 100) / 100;
        const struct look look = { { first + noise + step * i, 9000, 60 + noise / 1000, 30 } };
        flat_add(&flat, &look);
    }
    return flat_holds(&flat, FLAT_MEMORY) && flat_holds(&flat, FLAT_DESCRIPTORS) && flat_holds(&flat, FLAT_THREADS);
}

TEST(growing_memory_is_distinguished_from_varying_memory, 10)
{
    ck_assert(holds(30000, 0, 1000));
    ck_assert(!holds(30000, 2, 1000)); /* 12 MB in all */
    ck_assert(holds(30000, -1, 1000));
}

TEST(growth_of_heap_descriptors_and_threads_is_found, 10)
{
    static struct flat flat;
    for (int kind = FLAT_HEAP; kind <= FLAT_THREADS; kind++) {
        flat = (struct flat){ .is_judged = true, .is_one_life = true };
        for (int i = 0; i < 60; i++) {
            struct look look = { { 30000, 9000, 60, 30 } };
            look.values[kind] += kind == FLAT_HEAP ? 30 * i : i / 2;
            flat_add(&flat, &look);
        }
        ck_assert(!flat_holds(&flat, (enum flat_kind)kind));
    }
}

TEST(measuring_a_process_gives_its_real_values, 10)
{
    struct look before, after;
    int fd = dup(1);
    ck_assert(flat_look(getpid(), &before));
    int more = dup(1);
    char *memory = malloc(8 << 20);
    ck_assert_ptr_nonnull(memory);
    for (int i = 0; i < 8 << 20; i += 1024)
        ((volatile char *)memory)[i] = 1;
    ck_assert(flat_look(getpid(), &after));
    ck_assert(after.values[FLAT_DESCRIPTORS] == before.values[FLAT_DESCRIPTORS] + 1);
    ck_assert(after.values[FLAT_THREADS] >= 1);
    ck_assert(after.values[FLAT_MEMORY] >= before.values[FLAT_MEMORY] + 7 * 1024);
    ck_assert(!flat_look(-1, &after));
    free(memory);
    close(fd);
    close(more);
}
