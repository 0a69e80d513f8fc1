/* calls.c - the requests of the soak's threads, and the records of their results. */
#include "seat.h"

#include <stdio.h>
#include <string.h>

enum {
    BATCH = 6,
    CHURN_KEYS = 400,
    CHURN_US = 1500000,
    PLANTED_ONE_IN = 20,
    PLANTED_WRONG_ONE_IN = 100,
    ACQUIRE_US = 60000
};

/* ---- Results ---- */

static void note_wrong(struct seat *seat, const char *what, int error)
{
    atomic_fetch_add(&seat_tally(seat)->wrong_errors, 1);
    complain(seat->ledger, seat->process, "%s: %s: %s", soak_modes[seat->mode].name, what, weir_strerror(error));
}

/* True if the mode's options allow this error. `decides`: a fallback may decide instead of Redis. */
static bool may_end_in(const struct seat *seat, int error, bool decides)
{
    const struct soak_mode *mode = &soak_modes[seat->mode];
    if (mode->place == PLACE_NONE)
        return false;
    if (mode->place == PLACE_FILE)
        return error == WEIR_ETIME; /* a process stands still in the middle of a decision */
    if (error == WEIR_ESTATE)
        return atomic_load(&seat->ledger->overwritten);
    return (error == WEIR_ETIME || error == WEIR_EIO) && (!decides || mode->on_failure == WEIR_FAIL_ERROR);
}

static void note_error(struct seat *seat, const char *what, int error, bool decides, int64_t start_us, int64_t times)
{
    struct tally *tally = seat_tally(seat);
    atomic_fetch_add(decides ? &tally->errors : &tally->others, times);
    if (decides)
        atomic_fetch_add(&seat->errors, times);
    if (!may_end_in(seat, error, decides))
        note_wrong(seat, what, error);
    else if (start_us > atomic_load(&seat->ledger->trouble_until_us))
        atomic_fetch_add(&tally->calm_errors, 1);
}

static void note(struct seat *seat, const struct asked *asked, int64_t start_us, enum record_kind kind, int source,
                 int64_t cost)
{
    const struct record record = { .start_us = start_us,
                                   .end_us = now_us(),
                                   .key = asked->key,
                                   .cost = (uint32_t)cost,
                                   .mode = (uint8_t)seat->mode,
                                   .limit = (uint8_t)asked->limit,
                                   .kind = (uint8_t)kind,
                                   .source = (uint8_t)source };
    ledger_write(seat->ledger, seat->process, &record);
}

static void note_decision(struct worker *worker, const struct weir_decision *decision, int64_t times)
{
    struct seat *seat = worker->seat;
    struct tally *tally = seat_tally(seat);
    const bool stood_in = decision->source >= WEIR_BY_FALLBACK;
    atomic_fetch_add(decision->allowed ? &tally->allowed : &tally->denied, times);
    atomic_fetch_add(decision->allowed ? &seat->allowed : &seat->denied, times);
    atomic_fetch_add(&tally->by_store, decision->source >= WEIR_BY_REDIS && !stood_in ? times : 0);
    atomic_fetch_add(&tally->fallbacks, stood_in ? times : 0);
    atomic_fetch_add(&seat->fallbacks, stood_in ? times : 0);
    if (decision->source == WEIR_BY_LEASE && decision->age_us >= LEASE_LIFE_US)
        atomic_fetch_add(&tally->late_leases, 1);
    if (seat->ledger->planted & PLANT_STATS && seat->process == 0 &&
        draw_below(&worker->chance, PLANTED_WRONG_ONE_IN) == 0)
        atomic_fetch_add(&seat->allowed, 1);
    if (seat->ledger->planted & PLANT_ERRORS && seat->process == 0 &&
        draw_below(&worker->chance, PLANTED_WRONG_ONE_IN) == 0)
        note_wrong(seat, "planted", WEIR_EINVAL);
}

/* Record one decision of one key. */
static void note_answer(struct worker *worker, const struct asked *asked, int64_t start_us, int64_t cost,
                        const struct weir_decision *decision)
{
    const bool planted = worker->seat->ledger->planted & PLANT_PERMITS &&
                         draw_below(&worker->chance, PLANTED_ONE_IN) == 0;
    note_decision(worker, decision, 1);
    if (decision->allowed || planted)
        note(worker->seat, asked, start_us, RECORD_ADMITTED, decision->source, cost);
}

static void note_either(struct worker *worker, const char *what, int error, const struct asked *asked, int64_t start_us,
                        int64_t cost, const struct weir_decision *decision)
{
    if (error != WEIR_OK)
        note_error(worker->seat, what, error, true, start_us, 1);
    else
        note_answer(worker, asked, start_us, cost, decision);
}

/* ---- Keys ---- */

static struct asked key_of(int limit, uint32_t key)
{
    struct asked asked = { .limit = limit, .key = key };
    snprintf(asked.text, sizeof asked.text, "key-%u", (unsigned)key);
    return asked;
}

/* Choose a key. Of a limit whose keys churn, one of the current ones; otherwise a constant key, or sometimes one that
 * is also reset. */
static struct asked any_key(struct worker *worker, int limit)
{
    if (soak_limits[limit].churns)
        return key_of(limit, NAMED_KEYS + (uint32_t)(now_us() / CHURN_US % 1000000 * CHURN_KEYS) +
                                 (uint32_t)draw_below(&worker->chance, CHURN_KEYS));
    const bool turned = soak_limits[limit].turned && draw_below(&worker->chance, 4) == 0;
    return key_of(limit, turned ? HOT_KEYS + (uint32_t)draw_below(&worker->chance, TURNED_KEYS)
                                : (uint32_t)draw_below(&worker->chance, HOT_KEYS));
}

static int any_limit(struct worker *worker)
{
    const int chance = draw_below(&worker->chance, LIMITS + 2);
    return chance < LIMITS ? chance : 0; /* mostly the fastest */
}

static int64_t any_cost(struct worker *worker)
{
    return draw_below(&worker->chance, 4) == 0 ? 2 : 1;
}

/* ---- Calls ---- */

static void call_try(struct worker *worker)
{
    const struct asked asked = any_key(worker, any_limit(worker));
    const int64_t cost = any_cost(worker), start_us = now_us();
    struct weir_decision decision;
    int error = weir_try(worker->seat->limits[asked.limit], weir_key_text(asked.text), cost, &decision);
    note_either(worker, "try", error, &asked, start_us, cost, &decision);
}

/* In local mode use the limiter's clock as it was a moment ago, as an event loop would. In other modes that time
 * would replace Redis's, which is under test. */
static void call_handle(struct worker *worker)
{
    struct seat *seat = worker->seat;
    const int limit = draw_below(&worker->chance, LIMITS - 1);
    const struct asked asked = key_of(limit, (uint32_t)draw_below(&worker->chance, HOT_KEYS));
    const int64_t cost = any_cost(worker), start_us = now_us();
    struct weir_decision decision;
    int64_t clock_us = 0;
    int error = soak_modes[seat->mode].place == PLACE_NONE ? weir_clock(seat->limiter, &clock_us) : WEIR_OK;
    if (error == WEIR_OK)
        error = weir_handle_try(seat->handles[limit][asked.key], cost, clock_us, &decision);
    note_either(worker, "handle_try", error, &asked, start_us, cost, &decision);
}

static void call_batch(struct worker *worker)
{
    struct seat *seat = worker->seat;
    struct asked asked[BATCH];
    struct weir_request requests[BATCH] = { { .limit = NULL } };
    struct weir_decision decisions[BATCH];
    for (int i = 0; i < BATCH; i++) {
        asked[i] = any_key(worker, any_limit(worker));
        requests[i].limit = seat->limits[asked[i].limit];
        requests[i].key = weir_key_text(asked[i].text);
        requests[i].cost = any_cost(worker);
    }
    const int64_t start_us = now_us();
    int error = weir_try_batch(seat->limiter, requests, BATCH, decisions);
    if (error != WEIR_OK)
        note_error(seat, "try_batch", error, true, start_us, BATCH);
    for (int i = 0; i < BATCH && error == WEIR_OK; i++)
        note_answer(worker, &asked[i], start_us, requests[i].cost, &decisions[i]);
}

/* Make a group of one key under two limits and a churning key. The requests point into `asked`. */
static void group_make(struct worker *worker, struct asked asked[GROUP], struct weir_request requests[GROUP])
{
    const int first = draw_below(&worker->chance, LIMITS - 1);
    const uint32_t key = (uint32_t)draw_below(&worker->chance, HOT_KEYS);
    asked[0] = key_of(first, key);
    asked[1] = key_of((first + 1) % (LIMITS - 1), key);
    asked[2] = any_key(worker, LIMITS - 1);
    for (int i = 0; i < GROUP; i++)
        requests[i] = (struct weir_request){ .limit = worker->seat->limits[asked[i].limit],
                                             .key = weir_key_text(asked[i].text),
                                             .cost = 1 };
}

static void note_group(struct worker *worker, const char *what, int error, const struct asked asked[GROUP],
                       int64_t start_us, const struct weir_decision *decision)
{
    if (error != WEIR_OK) {
        note_error(worker->seat, what, error, true, start_us, 1);
        return;
    }
    note_decision(worker, decision, 1);
    for (int i = 0; i < GROUP && decision->allowed; i++)
        note(worker->seat, &asked[i], start_us, RECORD_ADMITTED, decision->source, 1);
}

static void call_all(struct worker *worker)
{
    struct asked asked[GROUP];
    struct weir_request requests[GROUP];
    struct weir_decision decision;
    group_make(worker, asked, requests);
    const int64_t start_us = now_us();
    int error = weir_try_all(worker->seat->limiter, requests, GROUP, &decision);
    note_group(worker, "try_all", error, asked, start_us, &decision);
}

static void sent_is_done(struct weir_op *op, int status)
{
    struct sent *sent = op->user;
    if (op->verb == WEIR_OP_TRY_ALL)
        note_group(sent->worker, "submitted group", status, sent->asked, sent->start_us, &op->decision);
    else
        note_either(sent->worker, "submit", status, sent->asked, sent->start_us, op->request.cost, &op->decision);
    atomic_store(&sent->busy, false);
}

static void call_submit(struct worker *worker)
{
    static const enum weir_op_verb verbs[] = { WEIR_OP_TRY, WEIR_OP_TRY, WEIR_OP_RESERVE, WEIR_OP_ACQUIRE,
                                               WEIR_OP_TRY_ALL };
    struct seat *seat = worker->seat;
    struct sent *sent = worker->sent;
    while (sent < worker->sent + SENT && atomic_load(&sent->busy))
        sent++;
    if (sent == worker->sent + SENT)
        return;
    atomic_store(&sent->busy, true);
    sent->worker = worker;
    memset(&sent->op, 0, sizeof sent->op);
    sent->op.verb = verbs[draw_below(&worker->chance, sizeof verbs / sizeof verbs[0])];
    if (sent->op.verb == WEIR_OP_TRY_ALL) {
        group_make(worker, sent->asked, sent->requests);
        sent->op.requests = sent->requests;
        sent->op.n = GROUP;
    } else {
        sent->asked[0] = any_key(worker, any_limit(worker));
        sent->op.request.limit = seat->limits[sent->asked[0].limit];
        sent->op.request.key = weir_key_text(sent->asked[0].text);
        sent->op.request.cost = any_cost(worker);
        sent->op.max_wait_us = draw_below(&worker->chance, ACQUIRE_US);
    }
    sent->op.done = sent_is_done;
    sent->op.user = sent;
    sent->start_us = now_us();
    int status = weir_submit(seat->limiter, &sent->op);
    if (status != 1)
        sent_is_done(&sent->op, status);
}

static void call_acquire(struct worker *worker)
{
    const struct asked asked = any_key(worker, any_limit(worker));
    const int64_t start_us = now_us();
    struct weir_decision decision;
    int error = weir_acquire(worker->seat->limits[asked.limit], weir_key_text(asked.text), 1,
                             draw_below(&worker->chance, ACQUIRE_US), &decision);
    note_either(worker, "acquire", error, &asked, start_us, 1, &decision);
}

static void call_peek(struct worker *worker)
{
    const struct asked asked = any_key(worker, any_limit(worker));
    const int64_t start_us = now_us();
    struct weir_decision decision;
    int error = weir_peek(worker->seat->limits[asked.limit], weir_key_text(asked.text), 1, &decision);
    if (error == WEIR_OK)
        return;
    /* weir_stats does not count it, but the fallback decided it. */
    atomic_fetch_add(&seat_tally(worker->seat)->others, 1);
    if (!may_end_in(worker->seat, error, true))
        note_wrong(worker->seat, "peek", error);
    else if (start_us > atomic_load(&worker->seat->ledger->trouble_until_us))
        atomic_fetch_add(&seat_tally(worker->seat)->calm_errors, 1);
}

/* A reset or a refund that failed may have happened all the same. */
static void call_turn(struct worker *worker, enum record_kind kind)
{
    struct seat *seat = worker->seat;
    const struct asked asked = key_of(0, HOT_KEYS + (uint32_t)draw_below(&worker->chance, TURNED_KEYS));
    const int64_t start_us = now_us();
    int error = kind == RECORD_RESET ? weir_reset(seat->limits[0], weir_key_text(asked.text))
                                     : weir_refund(seat->limits[0], weir_key_text(asked.text), 2);
    if (error != WEIR_OK)
        note_error(seat, kind == RECORD_RESET ? "reset" : "refund", error, false, start_us, 1);
    note(seat, &asked, start_us, kind, 0, 2);
}

/* Reserve two permits of a key that is also refunded, and use one. */
static void call_settled(struct worker *worker)
{
    struct seat *seat = worker->seat;
    const struct asked asked = key_of(0, HOT_KEYS + (uint32_t)draw_below(&worker->chance, TURNED_KEYS));
    const int64_t start_us = now_us();
    struct weir_reservation reservation;
    struct weir_decision decision;
    int error = weir_reserve(seat->limits[0], weir_key_text(asked.text), 2, &decision, &reservation);
    note_either(worker, "reserve", error, &asked, start_us, 2, &decision);
    if (error != WEIR_OK || !decision.allowed)
        return;
    const int64_t settle_us = now_us();
    error = weir_settle(seat->limits[0], weir_key_text(asked.text), &reservation, 1);
    if (error != WEIR_OK)
        note_error(seat, "settle", error, false, settle_us, 1);
    note(seat, &asked, settle_us, RECORD_REFUNDED, 0, 1);
}

static void call_look(struct worker *worker)
{
    struct seat *seat = worker->seat;
    struct weir_stats stats = { .size = sizeof stats };
    struct weir_follow_stats follow = { .size = sizeof follow };
    char text[8192];
    int error = weir_stats_read(seat->limiter, &stats);
    if (error == WEIR_OK) {
        atomic_store(&seat_tally(seat)->keys, stats.keys);
        atomic_store(&seat_tally(seat)->bytes, stats.bytes);
    }
    if (error == WEIR_OK && weir_stats_print(&stats, NULL, 0, text, sizeof text) <= 0)
        error = WEIR_EINVAL;
    if (error == WEIR_OK)
        error = weir_follow_read(seat->limiter, WEIR_FOLLOW_POLICY_FILE, &follow);
    if (error != WEIR_OK)
        note_wrong(seat, "a look at the stats", error);
    for (int limit = 0; limit < LIMITS; limit++) {
        struct weir_limit_info info = { .size = sizeof info };
        _Atomic int64_t *most = &seat->ledger->over_max[seat->mode][limit];
        if (weir_limit_info(seat->limits[limit], &info) != WEIR_OK)
            note_wrong(seat, "limit_info", WEIR_EINVAL);
        else if (info.over_max > atomic_load(most))
            atomic_store(most, info.over_max);
    }
}

void call_any(struct worker *worker)
{
    const int chance = draw_below(&worker->chance, 1000);
    if (soak_modes[worker->seat->mode].event_fd && worker->number == 0)
        weir_dispatch(worker->seat->limiter);
    if (chance < 550)
        call_try(worker);
    else if (chance < 700)
        call_handle(worker);
    else if (chance < 760)
        call_batch(worker);
    else if (chance < 820)
        call_all(worker);
    else if (chance < 900)
        call_submit(worker);
    else if (chance < 920)
        call_acquire(worker);
    else if (chance < 935)
        call_settled(worker);
    else if (chance < 975)
        call_peek(worker);
    else if (chance < 980)
        call_turn(worker, RECORD_RESET);
    else if (chance < 995)
        call_turn(worker, RECORD_REFUNDED);
    else
        call_look(worker);
}
