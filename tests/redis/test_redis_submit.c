/* test_redis_submit.c - submitted requests while Redis does not answer, and acquires that wait for permits in Redis. */
#include "redis_place.h"

#include "backends/redis/engine/engine.h"
#include "core/api/errands.h"

#include <sched.h>

enum { VERBS = WEIR_OP_ACQUIRE + 1, ROUNDS = 20, TIMEOUT_US = 30 * 1000 * 1000 };

struct submitted {
    struct weir_op op;
    struct weir_reservation reservations[2];
    struct weir_request requests[2];
    atomic_int status; /* 1: not done */
};

static _Atomic int done_count;

static void note_end(struct weir_op *op, int status)
{
    atomic_store(&((struct submitted *)(void *)op)->status, status);
    atomic_fetch_add(&done_count, 1);
}

static void submitted_fill(struct submitted *submitted, weir_limit *limit, enum weir_op_verb verb)
{
    *submitted = (struct submitted){ .status = 1 };
    submitted->op = (struct weir_op){ .request = { limit, weir_key_text("d"), 1, 0 }, /* of which no lease is known */
                                      .verb = verb,
                                      .done = note_end,
                                      .reservation = { .permits = verb == WEIR_OP_RENEW ? 1 : 2, .at_us = 1 },
                                      .requests = submitted->requests,
                                      .reservations = submitted->reservations,
                                      .n = 2,
                                      .max_wait_us = WEIR_MINUTE };
    submitted->requests[0] = (struct weir_request){ limit, weir_key_text("b"), 1, 0 };
    submitted->requests[1] = (struct weir_request){ limit, weir_key_text("c"), 1, 0 };
}

static void await_done(int count)
{
    while (atomic_load(&done_count) < count)
        sched_yield();
}

static const enum weir_mode modes[] = { WEIR_DISTRIBUTED, WEIR_HYBRID };

TEST_EACH(weir_submit_never_waits_for_a_stopped_server, 2, 120)
{
    static struct submitted all[ROUNDS][VERBS];
    PLACE(place, false, NULL);
    struct weir_options options = place_options(&place, TIMEOUT_US);
    options.mode = modes[_i];
    LIMITER(limiter, &options);
    weir_limit *limit = limit_of(limiter, "limit", UNREFILLED);
    taken_by_redis(limit, "a", 1);
    atomic_store(&done_count, 0);
    redis_server_pause(&place.server);
    int settled = 0;
    for (int round = 0; round < ROUNDS; round++) {
        for (int verb = 0; verb < VERBS; verb++) {
            struct weir_op *op = &all[round][verb].op;
            submitted_fill(&all[round][verb], limit, (enum weir_op_verb)verb);
            const int result = weir_submit(limiter, op); /* before the server can answer */
            if (modes[_i] == WEIR_HYBRID && verb == WEIR_OP_SETTLE && result == WEIR_OK) {
                note_end(op, result); /* it goes to Redis with the next call for its key */
                settled++;
            } else {
                ck_assert_int_eq(result, 1);
            }
        }
    }
    ck_assert_int_eq(atomic_load(&done_count), settled);
    redis_server_resume(&place.server);
    await_done(ROUNDS * VERBS);
    for (int round = 0; round < ROUNDS; round++)
        for (int verb = 0; verb < VERBS; verb++)
            ck_assert_int_eq(atomic_load(&all[round][verb].status), WEIR_OK);
}

/* More threads than there are lanes: the I/O thread carries their requests and submitted ones in one flight. A key that
 * the flight held twice would be charged once. */
enum { CROWD = 4 * REDIS_LANES, WINDOW = 16 };

static _Atomic int64_t crowd_allowed;

static void *crowd(void *user)
{
    weir_limit *limit = user;
    struct weir_decision decision = { .allowed = true };
    while (decision.allowed) {
        ck_assert_int_eq(weir_try(limit, weir_key_text("d"), 1, &decision), WEIR_OK);
        atomic_fetch_add(&crowd_allowed, decision.allowed);
    }
    return NULL;
}

TEST(submitted_and_blocking_requests_share_one_limit, 120)
{
    static struct submitted all[WINDOW];
    PLACE(place, false, NULL);
    const struct weir_options options = place_options(&place, TIMEOUT_US);
    LIMITER(limiter, &options);
    limit_of(limiter, "first", UNREFILLED); /* the other one's number is not 0 */
    weir_limit *limit = limit_of(limiter, "second", "fixed_window limit=3000 period=366d");
    const int64_t permits = 3000;
    int64_t allowed = 0;
    pthread_t threads[CROWD];
    for (int i = 0; i < CROWD; i++)
        ck_assert_int_eq(pthread_create(&threads[i], NULL, crowd, limit), 0);
    for (bool is_over = false; !is_over;) {
        atomic_store(&done_count, 0);
        for (int i = 0; i < WINDOW; i++) {
            submitted_fill(&all[i], limit, WEIR_OP_TRY);
            ck_assert_int_eq(weir_submit(limiter, &all[i].op), 1);
        }
        await_done(WINDOW);
        for (int i = 0; i < WINDOW; i++) {
            ck_assert_int_eq(atomic_load(&all[i].status), WEIR_OK);
            allowed += all[i].op.decision.allowed;
            is_over = is_over || !all[i].op.decision.allowed;
        }
    }
    for (int i = 0; i < CROWD; i++)
        pthread_join(threads[i], NULL);
    ck_assert_int_eq(allowed + atomic_load(&crowd_allowed), permits);
}

TEST_EACH(submitted_acquires_wait_for_permits_in_redis_and_are_all_admitted, 2, 120)
{
    enum { ACQUIRES = 12 };
    static struct submitted all[ACQUIRES];
    PLACE(place, false, NULL);
    struct weir_options options = place_options(&place, TIMEOUT_US);
    options.mode = modes[_i];
    LIMITER(limiter, &options);
    weir_limit *limit = limit_of(limiter, "limit", "token_bucket limit=1 period=20ms burst=3");
    atomic_store(&done_count, 0);
    taken_by_redis(limit, "d", 3);
    for (int i = 0; i < ACQUIRES; i++) {
        submitted_fill(&all[i], limit, WEIR_OP_ACQUIRE);
        all[i].op.request.cost = 3 - i % 3; /* smaller ones behind larger ones */
        ck_assert_int_eq(weir_submit(limiter, &all[i].op), 1);
    }
    for (int i = 0; i < ACQUIRES; i++) {
        while (atomic_load(&all[i].status) == 1)
            sched_yield();
        ck_assert_int_eq(atomic_load(&all[i].status), WEIR_OK);
        ck_assert(all[i].op.decision.allowed);
    }
    await_done(ACQUIRES);
    ck_assert_uint_eq(stats_of(limiter).allowed, ACQUIRES + 1);
}

TEST(closing_ends_requests_submitted_to_a_stopped_server, 120)
{
    static struct submitted all[VERBS];
    PLACE(place, false, NULL);
    const struct weir_options options = place_options(&place, TIMEOUT_US);
    weir *limiter = limiter_of(&options);
    weir_limit *limit = limit_of(limiter, "limit", UNREFILLED);
    taken_by_redis(limit, "a", 1);
    atomic_store(&done_count, 0);
    redis_server_pause(&place.server);
    for (int verb = 0; verb < VERBS; verb++) {
        submitted_fill(&all[verb], limit, (enum weir_op_verb)verb);
        ck_assert_int_eq(weir_submit(limiter, &all[verb].op), 1);
    }
    weir_close(limiter);
    ck_assert_int_eq(atomic_load(&done_count), VERBS);
    for (int verb = 0; verb < VERBS; verb++)
        ck_assert_int_eq(atomic_load(&all[verb].status), WEIR_ECLOSED);
    redis_server_resume(&place.server);
}
