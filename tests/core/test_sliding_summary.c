/* test_sliding_summary.c - a sliding window's summary decides what the whole state would. */
#include "core/algorithm/algorithm.h"
#include "core/algorithm/sliding_window.h"
#include "plans.h"

#include <string.h>

/* A state as a thread keeps it that decides by the summary where it can, and beside it one without a summary. */
struct pair {
    struct weir_plan plan;
    int64_t summary[SLIDING_SUMMARY_WORDS], state[STATE_MAX_WORDS], plain[STATE_MAX_WORDS];
    int64_t decided[2][WEIR_RENEW + 1]; /* by the summary: denied or allowed, by verb */
    int64_t left;
};

static void pair_open(struct pair *pair)
{
    const size_t words = state_words(&pair->plan);
    if (!sliding_summary_open(pair->summary, pair->state) && words > SLIDING_SUMMARY_WORDS)
        memset(pair->state + SLIDING_SUMMARY_WORDS, 0, (words - SLIDING_SUMMARY_WORDS) * sizeof *pair->state);
}

static void pair_decide(struct pair *pair, const struct weir_backend_request *request, struct weir_decision *out)
{
    int64_t summary[SLIDING_SUMMARY_WORDS];
    memcpy(summary, pair->summary, sizeof summary);
    if (sliding_summary_decide(&pair->plan, summary, request, out)) {
        must(request->verb != WEIR_PEEK || memcmp(summary, pair->summary, sizeof summary) == 0,
             "a peek changes nothing");
        if (out->allowed)
            memcpy(pair->summary, summary, sizeof summary);
        pair->decided[out->allowed][request->verb]++;
        return;
    }
    must(memcmp(summary, pair->summary, sizeof summary) == 0, "it changes nothing that it does not decide");
    pair_open(pair);
    state_decide_request(&pair->plan, pair->state, NULL, request->now_us, request->verb, request, out);
    sliding_summary_close(&pair->plan, pair->state, pair->summary);
    pair->left++;
}

static void request_by_chance(struct chance *chance, const struct pair *pair, struct weir_backend_request *request)
{
    static const uint8_t verbs[] = { WEIR_TAKE, WEIR_TAKE,   WEIR_TAKE,   WEIR_TAKE,
                                     WEIR_PEEK, WEIR_REFUND, WEIR_CHARGE, WEIR_REFUND };
    const int64_t block_us = pair->plan.period_us, size = pair->plan.size;
    const int verb = (int)chance_between(chance, 0, 7);
    const int64_t step_us = chance_one_in(chance, 3)    ? 0
                            : chance_one_in(chance, 10) ? chance_between(chance, -3, 1) * WEIR_SECOND
                            : chance_one_in(chance, 8)  ? chance_between(chance, 0, 2 * pair->plan.blocks) * block_us
                                                        : chance_between(chance, 0, block_us);
    request->now_us += step_us;
    request->verb = verbs[verb];
    request->cost = chance_one_in(chance, 20) ? size + chance_between(chance, 0, 1)
                                              : chance_between(chance, 0, 1 + size / 3);
    request->ahead = verb == 7 ? request->now_us - chance_between(chance, 0, 2 * block_us) : 0;
}

TEST(a_summary_decides_what_the_whole_state_would, 60)
{
    struct chance chance = chance_make(47);
    int64_t decided[2][WEIR_RENEW + 1] = { { 0 } }, left = 0;
    for (int64_t episode = 0; episode < steps_or(20000); episode++) {
        struct pair pair = { .plan = plan_by_chance(&chance, KIND_SLIDING) };
        while (sliding_is_wide(&pair.plan)) /* it has no summary */
            pair.plan = plan_by_chance(&chance, KIND_SLIDING);
        struct weir_backend_request request = {
            .spread = 1, .now_us = 1000000 * WEIR_SECOND + chance_between(&chance, 0, WEIR_DAY)
        };
        state_charge(&pair.plan, pair.plain, request.now_us, chance_between(&chance, 1, pair.plan.size));
        memcpy(pair.state, pair.plain, sizeof pair.state);
        sliding_summary_close(&pair.plan, pair.state, pair.summary);
        for (int act = 0; act < 50; act++) {
            struct weir_decision out, plain;
            request_by_chance(&chance, &pair, &request);
            pair_decide(&pair, &request, &out);
            state_decide_request(&pair.plan, pair.plain, NULL, request.now_us, request.verb, &request, &plain);
            assert_decision_is(&out, &plain, "by the summary, and by the state");
            if (chance_one_in(&chance, 4)) {
                pair_open(&pair);
                ck_assert_mem_eq(pair.state, pair.plain, state_words(&pair.plan) * sizeof *pair.state);
            }
        }
        for (int allowed = 0; allowed < 2; allowed++)
            for (int verb = 0; verb <= WEIR_RENEW; verb++)
                decided[allowed][verb] += pair.decided[allowed][verb];
        left += pair.left;
    }
    ck_assert_int_gt(decided[1][WEIR_TAKE], 0);
    ck_assert_int_gt(decided[0][WEIR_TAKE], 0);
    ck_assert_int_gt(decided[1][WEIR_PEEK], 0);
    ck_assert_int_gt(decided[0][WEIR_PEEK], 0);
    ck_assert_int_gt(decided[1][WEIR_REFUND], 0);
    ck_assert_int_gt(left, 0);
}
