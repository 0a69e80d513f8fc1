/* submit.c - contract: every verb through weir_submit(). */
#include "contract/parts.h"

CONTRACT_TEST(CONTRACT_COUNTS, peeks_resets_groups_and_acquires_can_be_submitted, 30)
{
    CLOSED_BY(scene_close) struct scene scene;
    open_backend(&scene, _i);
    weir_limit *wide = scene_define_text(&scene, "wide", "fixed_window limit=10 period=1h");
    weir_limit *narrow = scene_define_text(&scene, "narrow", "fixed_window limit=4 period=1h");
    const struct weir_request requests[] = { request_of(wide, "a", 3), request_of(narrow, "a", 4) };
    struct weir_reservation reservations[2];
    struct weir_op op = { .requests = requests, .n = 2, .verb = WEIR_OP_TRY_ALL };
    submit_and_wait(scene.limiter, &op);
    ck_assert(op.decision.allowed && op.decision.remaining == 0 && op.decision.bound_by == 1);
    op.request = request_of(wide, "a", 1);
    op.verb = WEIR_OP_PEEK;
    submit_and_wait(scene.limiter, &op);
    ck_assert(op.decision.allowed && op.decision.remaining == 7);
    op.verb = WEIR_OP_TRY_ALL;
    submit_and_wait(scene.limiter, &op);
    ck_assert(!op.decision.allowed && op.decision.bound_by == 1);
    ck_assert_int_eq(peeked(wide, "a", 1).remaining, 7); /* nothing of the group was charged */
    op.request = request_of(narrow, "a", 0);             /* the cost means nothing */
    op.verb = WEIR_OP_RESET;
    submit_and_wait(scene.limiter, &op);
    ck_assert_int_eq(peeked(narrow, "a", 1).remaining, 4);
    op.verb = WEIR_OP_RESERVE_ALL;
    op.reservations = reservations;
    submit_and_wait(scene.limiter, &op);
    ck_assert(op.decision.allowed && reservations[0].permits == 3 && reservations[1].permits == 4);
    must_succeed(weir_settle(wide, weir_key_text("a"), &reservations[0], 1));
    ck_assert_int_eq(peeked(wide, "a", 1).remaining, 6);
    op.request = request_of(wide, "a", 6);
    op.verb = WEIR_OP_ACQUIRE;
    submit_and_wait(scene.limiter, &op);
    ck_assert(op.decision.allowed && op.decision.remaining == 0);
    submit_and_wait(scene.limiter, &op);
    ck_assert(!op.decision.allowed && op.decision.retry_after_us > 0);

    const struct weir_op good = op;
    scene.log_allowed = true;
    op.max_wait_us = -1;
    ck_assert_int_eq(weir_submit(scene.limiter, &op), WEIR_EINVAL);
    op = good;
    op.done = NULL;
    ck_assert_int_eq(weir_submit(scene.limiter, &op), WEIR_EINVAL);
    op = good;
    op.verb = WEIR_OP_RESERVE_ALL;
    op.reservations = NULL;
    ck_assert_int_eq(weir_submit(scene.limiter, &op), WEIR_EINVAL);
    op.verb = WEIR_OP_TRY_ALL;
    op.n = WEIR_MAX_ALL + 1;
    ck_assert_int_eq(weir_submit(scene.limiter, &op), WEIR_EINVAL);
    op.n = 2;
    op.requests = NULL;
    ck_assert_int_eq(weir_submit(scene.limiter, &op), WEIR_EINVAL);
    ck_assert_int_eq(weir_cancel(scene.limiter, &op), WEIR_EINVAL);
    ck_assert_int_eq(weir_cancel(scene.limiter, NULL), WEIR_EINVAL);
    ck_assert_int_eq(weir_cancel(NULL, &op), WEIR_EINVAL);
}

CONTRACT_TEST(CONTRACT_COUNTS, reservations_renewals_settlements_and_charges_can_be_submitted, 10)
{
    CLOSED_BY(scene_close) struct scene scene;
    open_backend(&scene, _i);
    weir_limit *limit = scene_define_text(&scene, "limit", "fixed_window limit=10 period=1h");
    struct weir_op op = { .request = request_of(limit, "a", 6), .verb = WEIR_OP_RESERVE };
    submit_and_wait(scene.limiter, &op);
    ck_assert(op.decision.allowed && op.reservation.permits == 6);
    op.verb = WEIR_OP_RENEW;
    submit_and_wait(scene.limiter, &op);
    ck_assert(op.decision.allowed && op.reservation.permits == 6);
    ck_assert_int_eq(peeked(limit, "a", 1).remaining, 4);
    op.verb = WEIR_OP_SETTLE;
    op.request.cost = 2;
    submit_and_wait(scene.limiter, &op);
    ck_assert_int_eq(peeked(limit, "a", 1).remaining, 8);
    op.request.cost = 9; /* beyond the 6 that it had reserved */
    submit_and_wait(scene.limiter, &op);
    ck_assert_int_eq(peeked(limit, "a", 1).remaining, 5);
    op.verb = WEIR_OP_CHARGE;
    op.request.cost = 7;
    submit_and_wait(scene.limiter, &op);
    ck_assert(!taken(limit, "a", 1).allowed);
    op.verb = WEIR_OP_REFUND;
    op.request.cost = 3;
    submit_and_wait(scene.limiter, &op);
    ck_assert_int_eq(peeked(limit, "a", 1).remaining, 1);
    op.verb = WEIR_OP_RESERVE;
    submit_and_wait(scene.limiter, &op);
    ck_assert(!op.decision.allowed && op.reservation.permits == -1);
    op.verb = WEIR_OP_SETTLE; /* of nothing */
    submit_and_wait(scene.limiter, &op);
    ck_assert_int_eq(peeked(limit, "a", 1).remaining, 1);
    op.verb = WEIR_OP_RENEW; /* the same: it reserves */
    submit_and_wait(scene.limiter, &op);
    ck_assert(!op.decision.allowed && op.reservation.permits == -1);
    op.request.cost = 1;
    submit_and_wait(scene.limiter, &op);
    ck_assert(op.decision.allowed && op.reservation.permits == 1);
    op.verb = WEIR_OP_SETTLE;
    op.request.cost = 0;
    submit_and_wait(scene.limiter, &op);
    op.request.cost = 3;

    const struct weir_op good = op;
    scene.log_allowed = true;
    op.request.cost = -1;
    ck_assert_int_eq(weir_submit(scene.limiter, &op), WEIR_EINVAL);
    op = good;
    op.reservation.permits = -2;
    ck_assert_int_eq(weir_submit(scene.limiter, &op), WEIR_EINVAL);
    op.verb = WEIR_OP_RENEW;
    op.reservation.permits = 2;
    ck_assert_int_eq(weir_submit(scene.limiter, &op), WEIR_EINVAL);
    op = good;
    op.verb = (enum weir_op_verb)(WEIR_OP_ACQUIRE + 1);
    ck_assert_int_eq(weir_submit(scene.limiter, &op), WEIR_EINVAL);
    op = good;
    op.verb = WEIR_OP_CHARGE;
    op.request.now_us = 1;
    ck_assert_int_eq(weir_submit(scene.limiter, &op), WEIR_EINVAL);
    ck_assert_int_eq(peeked(limit, "a", 1).remaining, 1);
}

CONTRACT_TEST(CONTRACT_COUNTS, a_submitted_request_is_decided_once_immediately_or_later, 10)
{
    CLOSED_BY(scene_close) struct scene scene;
    open_backend(&scene, _i);
    weir_limit *limit = scene_define_text(&scene, "limit", "fixed_window limit=2 period=1h");
    for (int i = 0; i < 4; i++) {
        struct weir_op op = { .request = request_of(limit, "a", 1) };
        submit_and_wait(scene.limiter, &op);
        ck_assert(op.decision.allowed == (i < 2));
        ck_assert_int_eq(op.decision.remaining, i < 2 ? 1 - i : 0);
    }
}
