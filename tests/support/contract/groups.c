/* groups.c - contract: several requests in one call, all or nothing or each alone. */
#include "contract/parts.h"

#include <stdio.h>

static struct weir_decision tried_all(struct scene *scene, const struct weir_request *requests, size_t n)
{
    struct weir_decision decision;
    must_succeed(weir_try_all(scene->limiter, requests, n, &decision));
    return decision;
}

CONTRACT_TEST(CONTRACT_COUNTS, a_group_charges_all_or_none_and_reports_the_binding_limit, 10)
{
    CLOSED_BY(scene_close) struct scene scene;
    open_backend(&scene, _i);
    weir_limit *wide_limit = scene_define_text(&scene, "wide", "fixed_window limit=10 period=1h");
    weir_limit *narrow = scene_define_text(&scene, "narrow", "fixed_window limit=3 period=1h");
    const struct weir_request requests[] = { request_of(wide_limit, "a", 1), request_of(narrow, "a", 1),
                                             request_of(wide_limit, "b", 2) };
    for (int left = 2; left >= 0; left--) {
        struct weir_decision decision = tried_all(&scene, requests, 3);
        ck_assert(decision.allowed);
        ck_assert_int_eq(decision.remaining, left);
        ck_assert_int_eq(decision.limit, 3);
        ck_assert_int_eq(decision.bound_by, 1);
    }
    for (int i = 0; i < 5; i++) {
        struct weir_decision decision = tried_all(&scene, requests, 3);
        ck_assert(!decision.allowed);
        ck_assert_int_eq(decision.bound_by, 1);
        ck_assert_int_eq(decision.limit, 3);
        ck_assert_int_eq(decision.remaining, 0);
    }
    ck_assert_int_eq(peeked(wide_limit, "a", 1).remaining, 7);
    ck_assert_int_eq(peeked(wide_limit, "b", 1).remaining, 4);
}

CONTRACT_TEST(CONTRACT_COUNTS, a_cost_above_the_limit_binds_a_group_before_any_wait, 10)
{
    CLOSED_BY(scene_close) struct scene scene;
    open_backend(&scene, _i);
    weir_limit *wide_limit = scene_define_text(&scene, "wide", "fixed_window limit=10 period=1h");
    weir_limit *narrow = scene_define_text(&scene, "narrow", "fixed_window limit=3 period=1h");
    taken(wide_limit, "a", 10);
    const struct weir_request requests[] = { request_of(wide_limit, "a", 1), request_of(narrow, "b", 4) };
    struct weir_decision decision = tried_all(&scene, requests, 2);
    ck_assert(!decision.allowed);
    ck_assert_int_eq(decision.retry_after_us, WEIR_NEVER);
    ck_assert_int_eq(decision.bound_by, 1);
    ck_assert_int_eq(decision.limit, 3);
    ck_assert_int_eq(decision.remaining, 0);
}

CONTRACT_TEST(CONTRACT_COUNTS, costs_for_the_same_key_in_one_group_add_up, 10)
{
    CLOSED_BY(scene_close) struct scene scene;
    open_backend(&scene, _i);
    weir_limit *limit = scene_define_text(&scene, "limit", "fixed_window limit=10 period=1h");
    weir_limit *other = scene_define_text(&scene, "other", "fixed_window limit=10 period=1h");
    const struct weir_request requests[] = { request_of(limit, "a", 3), request_of(other, "a", 1),
                                             request_of(limit, "a", 4) };
    struct weir_decision decision = tried_all(&scene, requests, 3);
    ck_assert(decision.allowed);
    ck_assert_int_eq(decision.remaining, 3);
    ck_assert_int_eq(decision.bound_by, 0);
    ck_assert(!tried_all(&scene, requests, 3).allowed); /* 3 would fit, 3 + 4 do not */
    ck_assert_int_eq(peeked(limit, "a", 1).remaining, 3);
    ck_assert_int_eq(peeked(other, "a", 1).remaining, 9);

    struct weir_request most[WEIR_MAX_ALL];
    for (int i = 0; i < WEIR_MAX_ALL; i++)
        most[i] = request_of(limit, "b", WEIR_MAX_PERMITS);
    ck_assert_int_eq(tried_all(&scene, most, WEIR_MAX_ALL).retry_after_us, WEIR_NEVER);
    ck_assert_int_eq(peeked(limit, "b", 1).remaining, 10);
}

CONTRACT_TEST(CONTRACT_COUNTS, a_batch_decides_as_single_requests_would, 30)
{
    enum { MOST = 200 };
    static struct weir_request requests[MOST];
    static struct weir_decision decisions[MOST];
    struct scene batch, single;
    struct chance chance = chance_make(11);
    open_backend(&batch, _i);
    open_backend(&single, _i);
    for (int round = 0; round < 20; round++) {
        char names[2][32];
        for (int i = 0; i < 2; i++) {
            snprintf(names[i], sizeof names[i], "limit-%d-%d", round, i);
            scene_define_text(&batch, names[i], "fixed_window limit=20 period=1h");
            scene_define_text(&single, names[i], "fixed_window limit=20 period=1h");
        }
        static const char *const keys[] = { "a", "b", "c", "d" };
        size_t n = (size_t)chance_between(&chance, 0, MOST);
        for (size_t i = 0; i < n; i++)
            requests[i] = request_of(weir_limit_find(batch.limiter, names[chance_between(&chance, 0, 1)]),
                                     keys[chance_between(&chance, 0, 3)], chance_between(&chance, 1, 4));
        must_succeed(weir_try_batch(batch.limiter, requests, n, decisions));
        for (size_t i = 0; i < n; i++) {
            weir_limit *twin = weir_limit_find(single.limiter, weir_limit_name(requests[i].limit));
            struct weir_decision alone = taken(twin, requests[i].key.data, requests[i].cost);
            if (contract_backend(_i)->sources_vary)
                alone.source = decisions[i].source;
            assert_decision_is(&decisions[i], &alone, "in a batch, and alone");
        }
    }
    scene_close(&single);
    scene_close(&batch);
}
