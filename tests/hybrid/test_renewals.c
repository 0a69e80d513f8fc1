/* test_renewals.c - leases that are about to end are renewed beside the call of another key. */
#include "backends/hybrid/accounts.h"
#include "core/limiter/request.h"
#include "stage.h"

#include <stdio.h>

enum { KEYS = 200, GAP_US = STAGE_LIFE_US / 4, RENEWALS_MOST = 32 /* of beside.c */ };

/* Keys whose accounts are in one shard: a call for one of them looks at the others. */
struct keys {
    char names[KEYS][16];
};

static void keys_find(struct keys *keys, const struct stage *stage)
{
    const uint64_t shard = key_hash(stage->limit, weir_key_text("key 0")) >> 59;
    for (int found = 0, i = 0; found < KEYS; i++) {
        char *name = keys->names[found];
        snprintf(name, sizeof keys->names[found], "key %d", i);
        found += key_hash(stage->limit, weir_key_text(name)) >> 59 == shard;
    }
}

/* Ask for each of `n` keys in turn, so that each is asked for every GAP_US. Return how many requests had to wait. */
static int ask_in_turn(struct stage *stage, const struct keys *keys, int n, int64_t for_us)
{
    static struct asked asked;
    int waited = 0, i = 0;
    for (const int64_t end_us = stage_now_us(stage) + for_us; stage_now_us(stage) < end_us; i = (i + 1) % n) {
        waited += stage_submit(stage, &asked, keys->names[i], 1) == 1;
        stage_answer(stage, 0);
        must(asked.done && asked.op.decision.allowed, "the limit is far above the demand");
        stage_pass(stage, GAP_US / n);
    }
    return waited;
}

TEST(few_requests_wait_while_calls_of_other_keys_renew_leases, 10)
{
    static const struct {
        const char *policy;
        int most; /* of 100 requests: without renewals, one of the four that a key gets in a lease's life waits */
    } table[] = { { STAGE_WIDE, 5 }, { "sliding_window limit=1000000 period=1s", 6 } };
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        static struct keys keys;
        STAGE(stage, table[i].policy);
        keys_find(&keys, &stage);
        ask_in_turn(&stage, &keys, KEYS, 5 * STAGE_LIFE_US);
        const int waited = ask_in_turn(&stage, &keys, KEYS, 50 * STAGE_LIFE_US);
        const int asked = 50 * STAGE_LIFE_US / GAP_US * KEYS;
        ck_assert_msg(100 * waited <= table[i].most * asked, "%s: %d of %d requests had to wait", table[i].policy,
                      waited, asked);
    }
}

/* Return how many requests that wait for an answer only lease. */
static int renewals_under_way(const struct stage *stage)
{
    int count = 0;
    for (int i = stage->remote.answered; i < stage->remote.queued; i++)
        count += stage->remote.queue[i].request.verb == WEIR_TAKE && stage->remote.queue[i].request.cost == 0;
    return count;
}

/* Where all leases end together, at the end of a block, calls for new keys find many that are to be renewed. */
TEST(a_shard_has_at_most_32_renewals_under_way, 10)
{
    enum { CALLS = 50, BUSY = KEYS - CALLS };
    static struct asked asked[CALLS];
    static struct keys keys;
    STAGE(stage, "sliding_window limit=1000000 period=1s blocks=10");
    keys_find(&keys, &stage);
    for (int round = 0; round < 2; round++) { /* the second shows that answered ones no longer count */
        ask_in_turn(&stage, &keys, BUSY, 5 * STAGE_LIFE_US - stage_now_us(&stage) % STAGE_LIFE_US);
        for (int i = 0; i < CALLS; i++)
            ck_assert_int_eq(stage_submit(&stage, &asked[i], keys.names[BUSY + i], 1), 1);
        ck_assert_int_eq(renewals_under_way(&stage), RENEWALS_MOST);
        stage_answer(&stage, 0);
    }
}
