/* test_level.c - a decision by reciprocals is the decision by division, to the last unit.
 */
#include "support.h"

#include "core/algorithm/level.h"

enum { RUNS = INSTRUMENTED ? 20000 : 200000 };

static void assert_divides(uint64_t x, int64_t divisor)
{
    x &= INT64_MAX;
    const uint64_t quotient = (uint64_t)div_down_by((int64_t)x, inverse_of(divisor));
    ck_assert_msg(quotient == x / (uint64_t)divisor, "%llu / %lld is not %llu", (unsigned long long)x,
                  (long long)divisor, (unsigned long long)quotient);
}

/* Try the numbers around each multiple that a rounded reciprocal could miss. */
static void assert_divides_around(uint64_t quotient, int64_t divisor)
{
    const uint64_t most = INT64_MAX / (uint64_t)divisor;
    const uint64_t multiple = (quotient <= most ? quotient : most) * (uint64_t)divisor;
    for (uint64_t off = 0; off <= 2; off++) {
        assert_divides(multiple + off, divisor);
        assert_divides(multiple - off, divisor);
    }
}

TEST(division_by_a_reciprocal_equals_division_by_the_divisor, 30)
{
    struct chance chance = chance_make(1);
    static const int64_t divisors[] = { 1, 2, 3, 5, 7, 10, 641, 999999, 1000000, 86400000000, EXACT_MAX, INT64_MAX };
    static const uint64_t quotients[] = { 0, 1, 2, UINT32_MAX, (uint64_t)EXACT_MAX, INT64_MAX - 1, INT64_MAX };
    for (int d = 0; d < (int)(sizeof divisors / sizeof divisors[0]) + 3 * 62; d++) {
        const int at = d - (int)(sizeof divisors / sizeof divisors[0]);
        const int64_t divisor = at < 0 ? divisors[d] : (INT64_C(1) << (1 + at / 3)) - 1 + at % 3;
        for (size_t i = 0; i < sizeof quotients / sizeof quotients[0]; i++)
            assert_divides_around(quotients[i], divisor);
        assert_divides(INT64_MAX, divisor);
    }
    for (int run = 0; run < RUNS; run++) {
        const int64_t divisor = 1 + chance_magnitude(&chance, INT64_MAX - 1);
        assert_divides_around((uint64_t)chance_magnitude(&chance, INT64_MAX), divisor);
        assert_divides(chance_next(&chance), divisor);
    }
}

/* Plans and levels at the ends of what plan.c lets through: every product is below 2^53. */
TEST(levels_are_equal_with_and_without_reciprocals, 30)
{
    struct chance chance = chance_make(2);
    int denied = 0, overdrawn = 0;
    for (int run = 0; run < RUNS; run++) {
        struct weir_plan plan = { .size = chance_magnitude(&chance, WEIR_MAX_PERMITS) };
        plan.q = 1 + chance_magnitude(&chance, EXACT_MAX / (plan.size + 1) - 1);
        plan.p = chance_one_in(&chance, 3) ? 1 : 1 + chance_magnitude(&chance, EXACT_MAX - 1);
        plan.tick_us = chance_one_in(&chance, 2) ? 1 : 1000;
        const int64_t top = plan.size * plan.q, now_us = chance_magnitude(&chance, WEIR_MAX_TIME_US / 2);
        const struct level level = {
            .used = chance_one_in(&chance, 4) ? chance_between(&chance, 0, 2 * top) : chance_magnitude(&chance, top),
            .tick = now_us / plan.tick_us,
        };
        const struct level_known known = level_known_of(&plan);
        const int64_t cost = 1 + chance_magnitude(&chance, plan.size + 1);
        const bool allowed = level.used + cost * plan.q <= top;
        if (div_up(2 * top + cost * plan.q, plan.p) > WEIR_MAX_FILL_US / plan.tick_us)
            continue; /* such a plan is refused */
        struct weir_decision divided, multiplied;
        memset(&divided, 0x55, sizeof divided);
        memset(&multiplied, 0xaa, sizeof multiplied);
        level_tell(&plan, &level, now_us, cost, allowed, &divided);
        level_tell_by(&plan, &known, &level, now_us, cost, allowed, &multiplied);
        ck_assert_mem_eq(&divided, &multiplied, sizeof divided);
        ck_assert_int_eq(divided.remaining, level.used < top ? (top - level.used) / plan.q : 0);
        denied += !allowed;
        overdrawn += level.used > top;
    }
    ck_assert_int_gt(denied, RUNS / 100);
    ck_assert_int_gt(overdrawn, RUNS / 100);
}
