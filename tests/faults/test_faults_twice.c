/* test_faults_twice.c - decide the same requests with and without leases: fault A6 of tests/tools/faults.conf.
 *
 * With one instance and windows shorter than a lease no leased permit is lost. So leases must not change any answer,
 * however close to the limit.
 */
#include "stage.h"

#include "core/ground/arith.h"

#include <inttypes.h>
#include <stdio.h>

TEST(one_leasing_instance_decides_as_redis_alone_would, 60)
{
    enum { KEYS = 4, STEPS_LEAST = 100000 }; /* with fewer steps nothing is denied */
    static const char *const policies[] = { "fixed_window limit=400 period=80ms", "fixed_window limit=37 period=50ms",
                                            "fixed_window limit=1000 period=100ms align=epoch" };
    static const char *const keys[KEYS] = { "a", "b", "c", "d" };
    static struct stage stage;
    const int64_t steps = max_of(STEPS_LEAST, steps_or(STEPS_LEAST));
    struct chance chance = chance_make(1);
    uint64_t by_lease = 0;
    for (size_t p = 0; p < sizeof policies / sizeof policies[0]; p++) {
        struct scene alone;
        int64_t allowed = 0;
        stage_open(&stage, policies[p]);
        scene_open(&alone, NULL);
        weir_limit *store = scene_define_text(&alone, "limit", policies[p]);
        for (int64_t i = 0; i < steps; i++) {
            struct asked asked;
            const char *key = keys[chance_magnitude(&chance, KEYS) - 1]; /* some are busy */
            const int64_t cost = chance_one_in(&chance, 10) ? chance_between(&chance, 1, 20) : 1;
            alone.now_us = stage_now_us(&stage);
            stage_submit(&stage, &asked, key, cost);
            stage_answer(&stage, 0);
            must(asked.done > 0 && asked.status == WEIR_OK, "an answer");
            const struct weir_decision expected = taken(store, key, cost);
            ck_assert_msg(asked.op.decision.allowed == expected.allowed,
                          "%s, request %" PRId64 ": key %s, cost %" PRId64 ": %s with leases", policies[p], i, key,
                          cost, expected.allowed ? "denied" : "allowed");
            allowed += expected.allowed;
            stage_pass(&stage, chance_one_in(&chance, 1000) ? chance_between(&chance, 1, 300000)
                                                            : chance_between(&chance, 1, 150));
        }
        must(allowed > steps / 100 && allowed < steps, "some are allowed and some are denied");
        by_lease += stats_of(stage.limiter).lease_hits;
        scene_close(&alone);
        stage_close(&stage);
    }
    printf("%" PRIu64 " decisions by leases\n", by_lease);
    ck_assert_uint_gt(by_lease, (uint64_t)steps / 10);
}
