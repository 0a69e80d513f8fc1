/* test_settle_chain.c - the background chain that charges all debts, and submitted requests that follow a charge. */
#include "settle_place.h"

#include "core/ground/clock.h"
#include "core/limiter/own_ops.h"
#include "core/outage/outage.h"

#include <stdlib.h>
#include <unistd.h>

/* A store that disappears and returns with each charge. */
static struct {
    struct cable *cable;
    int charges;
    const char *lowest; /* stack address over all charges */
    const char *highest;
} blinks;

static int submit_and_blink(struct weir_backend *backend, const struct weir_backend_request *request,
                            int64_t deadline_us, struct weir_op *op)
{
    const char *here = __builtin_frame_address(0); /* a local's address may be elsewhere under AddressSanitizer */
    blinks.lowest = blinks.charges == 0 || here < blinks.lowest ? here : blinks.lowest;
    blinks.highest = blinks.charges == 0 || here > blinks.highest ? here : blinks.highest;
    if (++blinks.charges < 1000) {
        cable_set(blinks.cable, CABLE_LOSES_REQUEST);
        cable_set(blinks.cable, CABLE_WELL);
    }
    return backend->ops->decide(backend, request, 1, false, INT64_MAX, &op->decision);
}

TEST(a_settling_chain_that_restarts_repeatedly_does_not_recurse, 30)
{
    static const char *const slow = "token_bucket limit=10 period=1d";
    PLACE(place, EAGER, NULL, slow);
    blinks.cable = &place->cable;
    blinks.charges = 0;
    blinks.cable->ops.submit = submit_and_blink;
    OTHER(other);
    place_join(&other, &place->remote, NULL, slow);
    outage_admits(place, "a", WEIR_DAY / 2, 3);
    must(taken(other.limit, "a", 10).allowed, "it knows of no debt");
    cable_set(&place->cable, CABLE_WELL);
    ck_assert_int_eq(blinks.charges, 1000);
    ck_assert_ptr_eq(blinks.lowest, blinks.highest);
}

TEST(many_keys_that_owe_nothing_delay_no_caller, 30)
{
    enum { KEYS = 20000, MOST = 2500 };
    PLACE(place, LATER, NULL, "token_bucket limit=10 period=1s");
    outage_admits(place, "a", 2 * WEIR_SECOND, 1);
    keys_admit(place, KEYS);
    now_us += WEIR_SECOND; /* all debts have expired */
    cable_set(&place->cable, CABLE_WELL);
    int64_t keys = stats_of(place->limiter).keys;
    ck_assert_int_gt(keys, KEYS);
    for (int calls = 0; keys > 0; calls++) {
        try_in(place, "b", 1);
        const int64_t left = stats_of(place->limiter).keys;
        ck_assert_int_le(keys - left, MOST);
        keys = left;
        ck_assert_int_lt(calls, 1000);
    }
    for (int i = 0; i < 100 && atomic_load(&place->limiter->outage->settle.owes); i++)
        try_in(place, "b", 1);
    ck_assert(!atomic_load(&place->limiter->outage->settle.owes));
    ck_assert_int_eq(place->cable.submits, 0);
}

static bool visit_none(void *user, uint32_t limit_id, struct weir_key key)
{
    return false;
}

TEST(a_bounded_search_for_debtors_ends_even_in_a_large_empty_table, 30)
{
    PLACE(place, LAZY, OPTIONS(.max_keys = 10000000), ten); /* many shards */
    struct weir_backend *fallback = place->limiter->fallback;
    uint64_t next = 0;
    int looks = 1;
    while (own_ops(fallback)->debtors(fallback, 1, &next, 1, visit_none, NULL))
        looks++;
    ck_assert_int_gt(looks, 10);
}

TEST(settling_slows_down_while_owed_permits_do_not_fit_and_speeds_up_again, 30)
{
    static const char *const slow = "token_bucket limit=10 period=1d";
    PLACE(place, EAGER, NULL, slow);
    struct settle_chain *chain = &place->limiter->outage->settle.chain;
    OTHER(other);
    place_join(&other, &place->remote, NULL, slow);
    outage_admits(place, "a", WEIR_DAY / 2, 3);
    must(taken(other.limit, "a", 10).allowed, "it knows of no debt");
    cable_set(&place->cable, CABLE_WELL);
    int64_t pause_us = chain->pause_us;
    ck_assert_int_le(pause_us, 400000); /* started by the return and by the first answer */
    for (int walks = 0; walks < 10; walks++) {
        atomic_store(&chain->again_us, 0); /* the pause is over */
        try_in(place, "b", 1);
        ck_assert_int_eq(chain->pause_us, pause_us < 5 * WEIR_SECOND ? 2 * pause_us : 10 * WEIR_SECOND);
        pause_us = chain->pause_us;
        const int submits = atomic_load(&place->cable.submits);
        try_in(place, "b", 1);
        ck_assert_int_eq(place->cable.submits, submits);
        ck_assert_int_gt(atomic_load(&chain->again_us), clock_monotonic_us());
    }
    now_us += WEIR_DAY / 8; /* room for one */
    atomic_store(&chain->again_us, 0);
    try_in(place, "b", 1);
    ck_assert_int_eq(place->remote.charged, 1);
    ck_assert_int_eq(chain->pause_us, 100000);
}

static atomic_bool has_no_memory;
static _Atomic int in_vain; /* allocations */

void *__real_malloc(size_t size);
void *__wrap_malloc(size_t size);

void *__wrap_malloc(size_t size)
{
    if (!atomic_load(&has_no_memory) || size > 40) /* Check itself makes larger allocations during a call */
        return __real_malloc(size);
    if (atomic_fetch_add(&in_vain, 1) == 1000) /* otherwise the chain would never end */
        atomic_store(&has_no_memory, false);
    return NULL;
}

TEST(a_settling_chain_without_memory_ends_and_is_resumed, 30)
{
    PLACE(place, LATER, NULL, ten);
    try_in(place, "b", 1); /* the store knows the key now */
    outage_passes(place, "a", 5 * WEIR_SECOND, 3);
    atomic_store(&has_no_memory, true);
    struct weir_decision decision;
    int error = weir_try(place->limit, weir_key_text("b"), 1, &decision);
    atomic_store(&has_no_memory, false);
    ck_assert(error == WEIR_OK && decision.source == WEIR_BY_BACKEND);
    ck_assert_int_ge(atomic_load(&in_vain), 1);
    ck_assert_int_le(atomic_load(&in_vain), 2);
    ck_assert_int_eq(place->cable.submits, 0);
    atomic_store(&place->limiter->outage->settle.chain.again_us, 0);
    try_in(place, "b", 1);
    ck_assert_int_eq(cable_answer(&place->cable, 10), 1);
    ck_assert_int_eq(place->remote.charged, 3);
    ck_assert(!atomic_load(&place->limiter->outage->settle.owes));
}

TEST(a_failed_settling_chain_is_resumed_by_the_next_request, 30)
{
    struct weir_options options = WEIR_OPTIONS_INIT;
    options.max_keys = 1000; /* few shards: both keys are in one batch, or in two */
    for (int submits = 0; submits < 2; submits++) {
        PLACE(place, LATER, &options, ten);
        struct settle_chain *chain = &place->limiter->outage->settle.chain;
        struct asked asked;
        outage_admits(place, "a", 5 * WEIR_SECOND, 3);
        must(try_in(place, "b", 2).allowed, "as much for each key");
        cable_set(&place->cable, CABLE_WELL);
        try_in(place, "c", 1);
        cable_set(&place->cable, CABLE_LOSES_REQUEST);
        ck_assert_int_gt(cable_answer(&place->cable, 10), 0);
        const int64_t pause_us = chain->pause_us;
        for (int failures = 0; failures < 3; failures++) {
            cable_set(&place->cable, CABLE_WELL);
            atomic_store(&chain->again_us, 0); /* the pause is over */
            try_in(place, "c", 1);
            cable_set(&place->cable, CABLE_LOSES_REQUEST);
            ck_assert_int_gt(cable_answer(&place->cable, 10), 0);
            ck_assert_int_eq(chain->pause_us, pause_us); /* only chains without a charge lengthen it */
        }
        cable_set(&place->cable, CABLE_WELL);
        for (int tries = 0; tries < 10000 && place->remote.charged < 5; tries++) { /* 100 ms later, or so */
            if (submits)
                must(submit_in(place, "c", &asked) == 1, "a request is submitted");
            else
                try_in(place, "c", 1);
            cable_answer(&place->cable, 10);
            usleep(1000);
        }
        ck_assert_int_eq(place->remote.charged, 5);
        ck_assert(!atomic_load(&place->limiter->outage->settle.owes));
    }
}

/* ---- Submitted requests ---- */

TEST(a_submitted_request_waits_for_its_keys_settlement_and_a_second_one_is_denied, 30)
{
    PLACE(place, LATER, NULL, ten);
    struct asked first, second, third;
    outage_passes(place, "a", 5 * WEIR_SECOND, 3);
    ck_assert_int_eq(submit_in(place, "a", &first), 1);
    ck_assert_int_eq(submit_in(place, "a", &second), WEIR_OK);
    ck_assert(!second.op.decision.allowed && second.op.decision.source == WEIR_BY_FALLBACK);
    ck_assert_int_eq(second.op.decision.retry_after_us, 1000);
    ck_assert_int_eq(second.op.decision.limit, 10);
    ck_assert_int_eq(submit_in(place, "b", &third), 1);
    ck_assert_int_eq(cable_answer(&place->cable, 1), 1);
    ck_assert_int_eq(place->remote.charged, 3);
    ck_assert_int_eq(first.done, 0);
    cable_answer(&place->cable, 10);
    ck_assert(first.done == 1 && first.status == WEIR_OK && first.op.decision.remaining == 6);
    ck_assert(third.done == 1 && third.status == WEIR_OK && third.op.decision.remaining == 9);
    ck_assert_int_eq(second.done, 0);
    ck_assert_int_eq(submit_in(place, "a", &second), 1);
    cable_answer(&place->cable, 1);
    ck_assert_int_eq(second.op.decision.remaining, 5);
    ck_assert_int_eq(place->remote.charged, 3);
}

static void not_done(struct weir_op *op, int status)
{
    (void)op;
    must(false, weir_strerror(status));
}

TEST(a_submitted_renewal_of_a_key_that_is_being_settled_fails_and_keeps_its_permits, 30)
{
    PLACE(place, LATER, NULL, ten);
    struct asked first;
    struct weir_op renewal = { .request = { .limit = place->limit, .key = weir_key_text("a"), .cost = 2 },
                               .verb = WEIR_OP_RENEW,
                               .reservation = { .permits = 2, .at_us = 7 },
                               .done = not_done };
    outage_passes(place, "a", 5 * WEIR_SECOND, 3);
    ck_assert_int_eq(submit_in(place, "a", &first), 1);
    ck_assert_int_eq(weir_submit(place->limiter, &renewal), WEIR_ETIME); /* it cannot be denied for the moment */
    ck_assert(renewal.reservation.permits == 2 && renewal.reservation.at_us == 7);
    cable_answer(&place->cable, 10);
    ck_assert(first.done == 1 && first.status == WEIR_OK);
    ck_assert_uint_eq(stats_of(place->limiter).outages, 1);
}

static struct {
    int (*submit)(struct weir_backend *backend, const struct weir_backend_request *request, int64_t deadline_us,
                  struct weir_op *op);
    int64_t deadlines_us[2]; /* of the last two charges or requests */
} noted;

static int submit_and_note(struct weir_backend *backend, const struct weir_backend_request *request,
                           int64_t deadline_us, struct weir_op *op)
{
    noted.deadlines_us[0] = noted.deadlines_us[1];
    noted.deadlines_us[1] = deadline_us;
    return noted.submit(backend, request, deadline_us, op);
}

TEST(a_submitted_request_and_its_settlement_share_a_deadline, 10)
{
    PLACE(place, LATER, NULL, ten);
    struct cable *cable = &place->cable;
    struct asked asked;
    outage_admits(place, "a", 5 * WEIR_SECOND, 3);
    cable_set(cable, CABLE_WELL);
    noted.submit = cable->ops.submit;
    cable->ops.submit = submit_and_note;
    const int64_t asked_us = clock_monotonic_us();
    ck_assert_int_eq(submit_in(place, "a", &asked), 1);
    ck_assert_int_eq(cable_answer(cable, 1), 1); /* the charge; then the request */
    ck_assert_int_gt(noted.deadlines_us[0], asked_us);
    ck_assert_int_eq(noted.deadlines_us[1], noted.deadlines_us[0]);
    cable_answer(cable, 1);
    ck_assert_int_eq(asked.op.decision.remaining, 6);
}

TEST(a_submitted_request_whose_settlement_fails_is_answered_by_the_fallback, 30)
{
    PLACE(place, LATER, NULL, ten);
    struct asked asked;
    outage_admits(place, "a", 5 * WEIR_SECOND, 3);
    ck_assert_int_eq(submit_in(place, "a", &asked), WEIR_OK); /* it fails immediately */
    ck_assert(asked.op.decision.allowed && asked.op.decision.source == WEIR_BY_FALLBACK);
    cable_set(&place->cable, CABLE_LOSES_ANSWER);
    ck_assert_int_eq(submit_in(place, "a", &asked), 1);
    ck_assert_int_eq(cable_answer(&place->cable, 10), 1);
    ck_assert(asked.done == 1 && asked.status == WEIR_OK);
    ck_assert(asked.op.decision.allowed && asked.op.decision.source == WEIR_BY_FALLBACK);
    ck_assert_int_eq(asked.op.decision.remaining, 0);
    ck_assert_int_eq(place->remote.charged, 4);
    cable_set(&place->cable, CABLE_WELL);
    ck_assert_int_eq(try_in(place, "a", 1).remaining,
                     10 - 4 - 5 - 1); /* charged twice: too few permits, never too many */
}
