/* test_settle_threads.c - threads that settle one key together, and closes and forks during that. */
#include "core/limiter/own_ops.h"
#include "core/outage/outage.h"
#include "settle_place.h"

#include <sched.h>
#include <semaphore.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

int __real_pthread_cond_timedwait(pthread_cond_t *cond, pthread_mutex_t *mutex, const struct timespec *until);
int __wrap_pthread_cond_timedwait(pthread_cond_t *cond, pthread_mutex_t *mutex, const struct timespec *until);

static atomic_int waits; /* calls so far that wait for another's settlement; each holds the mutex until it waits */

int __wrap_pthread_cond_timedwait(pthread_cond_t *cond, pthread_mutex_t *mutex, const struct timespec *until)
{
    atomic_fetch_add(&waits, 1);
    return __real_pthread_cond_timedwait(cond, mutex, until);
}

static void await_waits(int most)
{
    while (atomic_load(&waits) < most)
        sched_yield();
}

TEST(a_caller_waits_for_another_caller_that_settles_its_key, 30)
{
    for (int spans = 0; spans < 2; spans++) { /* with deadlines as times or as durations */
        PLACE(place, LATER, NULL, ten);
        struct caller callers[3];
        place->limiter->spans = spans;
        outage_admits(place, "a", 5 * WEIR_SECOND, 3);
        const int charges = atomic_load(&place->cable.charges);
        cable_set(&place->cable, CABLE_WELL);
        cable_hold(&place->cable);
        atomic_store(&waits, 0);
        for (int i = 0; i < 3; i++)
            caller_start(&callers[i], place);
        cable_await_held(&place->cable);
        await_waits(2);
        cable_let_go(&place->cable);
        int64_t remaining = 0;
        for (int i = 0; i < 3; i++) {
            pthread_join(callers[i].thread, NULL);
            ck_assert(callers[i].error == WEIR_OK && callers[i].decision.source == WEIR_BY_BACKEND);
            remaining += callers[i].decision.remaining;
        }
        ck_assert_int_eq(remaining, 6 + 5 + 4);
        ck_assert_int_eq(place->remote.charged, 3);
        ck_assert_int_eq(place->cable.charges, charges + 1);
    }
}

TEST(a_caller_that_waits_too_long_for_a_settlement_is_answered_by_the_fallback, 30)
{
    PLACE(place, LATER, OPTIONS(.timeout_us = 1000), ten);
    struct caller first;
    outage_passes(place, "a", 5 * WEIR_SECOND, 3);
    cable_hold(&place->cable);
    caller_start(&first, place);
    cable_await_held(&place->cable);
    struct weir_decision decision = try_in(place, "a", 1);
    ck_assert(decision.allowed && decision.source == WEIR_BY_FALLBACK);
    cable_let_go(&place->cable);
    pthread_join(first.thread, NULL);
    ck_assert_int_eq(first.decision.source, WEIR_BY_BACKEND);
    while (cable_answer(&place->cable, 10) > 0)
        ;
    ck_assert_int_eq(try_in(place, "a", 1).remaining,
                     10 - 4 - 2); /* the permit admitted in between is owed and settled too */
}

/* Open a place whose outage is over and whose store has no room for the debt of "a". */
static struct place *place_without_room(const struct weir_options *options, struct place *other)
{
    static const char *const slow = "token_bucket limit=10 period=1d";
    struct place *place = place_open(LAZY, options, slow);
    memset(other, 0, sizeof *other);
    place_join(other, &place->remote, NULL, slow);
    outage_admits(place, "a", WEIR_DAY / 2, 3);
    must(taken(other->limit, "a", 10).allowed, "it knows of no debt");
    cable_set(&place->cable, CABLE_WELL);
    must(try_in(place, "b", 1).source == WEIR_BY_BACKEND, "the outage is over");
    return place;
}

TEST(callers_that_waited_for_a_charge_without_room_do_not_charge_again, 30)
{
    enum { CALLERS = 8 };
    OTHER(other);
    CLOSED_PLACE *place = place_without_room(NULL, &other);
    struct caller callers[CALLERS];
    const int charges = atomic_load(&place->cable.charges);
    cable_hold(&place->cable);
    for (int i = 0; i < CALLERS; i++)
        caller_start(&callers[i], place);
    cable_await_held(&place->cable);
    await_waits(CALLERS - 1);
    cable_let_go(&place->cable);
    for (int i = 0; i < CALLERS; i++) {
        pthread_join(callers[i].thread, NULL);
        ck_assert_int_eq(callers[i].error, WEIR_OK);
        ck_assert(!callers[i].decision.allowed);
        ck_assert_int_eq(callers[i].decision.source, WEIR_BY_BACKEND);
    }
    ck_assert_int_eq(place->cable.charges - charges, 1);
    ck_assert_int_eq(place->remote.charged, 0);
    now_us += WEIR_DAY;
    try_in(place, "a", 1);
    ck_assert_uint_eq(stats_of(place->limiter).outages, 1);
}

TEST(a_caller_that_waits_too_long_for_a_reachable_backend_is_denied_without_an_outage, 30)
{
    OTHER(other);
    CLOSED_PLACE *place = place_without_room(OPTIONS(.timeout_us = 1000), &other);
    struct caller first;
    cable_hold(&place->cable);
    caller_start(&first, place);
    cable_await_held(&place->cable);
    struct weir_decision decision = try_in(place, "a", 1);
    ck_assert(!decision.allowed && decision.source == WEIR_BY_FALLBACK && decision.remaining == 0);
    ck_assert_int_gt(decision.retry_after_us, 0);
    ck_assert_int_ge(decision.reset_after_us, decision.retry_after_us);
    ck_assert_int_eq(weir_reset(place->limit, weir_key_text("a")), WEIR_ETIME);
    struct weir_reservation held = { .permits = 2, .at_us = 7 };
    ck_assert_int_eq(weir_renew(place->limit, weir_key_text("a"), 2, &decision, &held), WEIR_ETIME);
    ck_assert(held.permits == 2 && held.at_us == 7);
    cable_let_go(&place->cable);
    pthread_join(first.thread, NULL);
    ck_assert_int_eq(first.decision.source, WEIR_BY_BACKEND);
    ck_assert_uint_eq(stats_of(place->limiter).outages, 1);
}

static void try_denied(void *user)
{
    struct weir_decision decision;
    struct place *place = user;
    must_succeed(weir_try(place->limit, weir_key_text("a"), 1, &decision));
    must(!decision.allowed, "another thread settles the key");
}

TEST(waiting_for_another_settlement_is_not_a_cancellation_point, 30)
{
    OTHER(other);
    CLOSED_PLACE *place = place_without_room(OPTIONS(.timeout_us = 1000), &other);
    struct caller first;
    cable_hold(&place->cable);
    caller_start(&first, place);
    cable_await_held(&place->cable);
    ck_assert(ends_uncancelled(try_denied, place));
    cable_let_go(&place->cable);
    pthread_join(first.thread, NULL);
    ck_assert_int_eq(first.error, WEIR_OK);
}

/* A thread that asks the fallback in an outage and is admitted while another thread settles the key, before that one
 * records the payment. */
static struct {
    const struct own_ops *before;
    struct own_ops ops;
    sem_t is_there, may_go_on, was_admitted;
    bool is_due; /* the settling thread records the payment next */
    struct caller caller;
} straggler;
static _Thread_local bool is_straggler;

static int decide_late(struct weir_backend *backend, const struct weir_backend_request *requests, size_t n, bool all,
                       int64_t deadline_us, struct weir_decision *out)
{
    if (!is_straggler)
        return straggler.before->base.decide(backend, requests, n, all, deadline_us, out);
    sem_post(&straggler.is_there);
    sem_wait(&straggler.may_go_on);
    int error = straggler.before->base.decide(backend, requests, n, all, deadline_us, out);
    sem_post(&straggler.was_admitted);
    return error;
}

static int64_t pay_after_the_straggler(struct weir_backend *backend, const struct weir_backend_request *request,
                                       int64_t permits)
{
    if (straggler.is_due) {
        straggler.is_due = false;
        sem_post(&straggler.may_go_on);
        sem_wait(&straggler.was_admitted);
    }
    return straggler.before->pay(backend, request, permits);
}

static void *straggle(void *argument)
{
    struct caller *caller = argument;
    is_straggler = true;
    caller->decision = try_in(caller->place, "a", 7);
    return NULL;
}

TEST(permits_admitted_while_their_key_is_settled_are_owed, 30)
{
    PLACE(place, LAZY, NULL, ten);
    struct weir *limiter = place->limiter;
    straggler.caller = (struct caller){ .place = place };
    straggler.before = own_ops(limiter->fallback);
    straggler.ops = *straggler.before;
    straggler.ops.base.decide = decide_late;
    straggler.ops.pay = pay_after_the_straggler;
    must(sem_init(&straggler.is_there, 0, 0) == 0 && sem_init(&straggler.may_go_on, 0, 0) == 0, "semaphores");
    must(sem_init(&straggler.was_admitted, 0, 0) == 0, "a semaphore");
    outage_admits(place, "a", 10 * WEIR_SECOND, 3);
    limiter->fallback->ops = &straggler.ops.base;
    ck_assert_int_eq(pthread_create(&straggler.caller.thread, NULL, straggle, &straggler.caller), 0);
    sem_wait(&straggler.is_there);
    cable_set(&place->cable, CABLE_WELL);
    straggler.is_due = true;
    ck_assert_int_eq(try_in(place, "a", 1).remaining, 10 - 3 - 1);
    pthread_join(straggler.caller.thread, NULL);
    ck_assert(straggler.caller.decision.allowed && straggler.caller.decision.source == WEIR_BY_FALLBACK);
    ck_assert(!try_in(place, "a", 1).allowed); /* there was room for six of the seven */
    ck_assert_int_eq(place->remote.charged, 3 + 6);
    now_us += 2 * WEIR_SECOND;
    ck_assert_int_eq(try_in(place, "a", 1).remaining, 0);
    ck_assert_int_eq(place->remote.charged, 3 + 7);
    ck_assert_uint_eq(stats_of(limiter).unsettled, 0);
    cable_set(&place->cable, CABLE_CUT);
    ck_assert(!try_in(place, "a", 1).allowed);
    ck_assert_uint_eq(atomic_load(&limiter->outage->settle.admitted), 0); /* of the outage that has just begun */
}

/* A fallback each of whose debts another thread pays just after its first reading. */
static struct {
    const struct own_ops *before;
    struct own_ops ops;
    int seen;
} payer;

static int64_t debt_that_is_paid(struct weir_backend *backend, const struct weir_backend_request *request)
{
    return payer.seen++ == 0 ? payer.before->debt(backend, request) : 0;
}

TEST(a_debt_that_another_thread_has_just_paid_is_not_charged_again, 10)
{
    PLACE(place, LAZY, NULL, ten);
    struct weir_backend *fallback = place->limiter->fallback;
    outage_passes(place, "a", 5 * WEIR_SECOND, 3);
    const int charges = atomic_load(&place->cable.charges);
    payer.before = own_ops(fallback);
    payer.ops = *payer.before;
    payer.ops.debt = debt_that_is_paid;
    payer.seen = 0;
    fallback->ops = &payer.ops.base;
    ck_assert_int_eq(try_in(place, "a", 1).remaining, 9);
    ck_assert_int_ge(payer.seen, 2);
    fallback->ops = &payer.before->base;
    ck_assert_int_eq(place->cable.charges, charges);
    ck_assert_int_eq(try_in(place, "a", 1).remaining, 9 - 3 - 1); /* no thread holds the key */
    ck_assert_int_eq(place->remote.charged, 3);
}

/* ---- Ends ---- */

TEST(a_limiter_is_closed_while_it_settles_and_nothing_is_left, 30)
{
    struct place *place = place_open(LATER, NULL, ten);
    struct asked asked;
    outage_admits(place, "a", 5 * WEIR_SECOND, 3);
    keys_admit(place, 200);
    cable_set(&place->cable, CABLE_WELL);
    ck_assert_int_eq(submit_in(place, "a", &asked), 1);
    try_in(place, "c", 1);
    ck_assert_int_ge(place->cable.submits, 30); /* a batch is under way */
    weir_close(place->limiter);
    ck_assert(asked.done == 1 && asked.status == WEIR_ECLOSED);
    ck_assert_int_eq(place->remote.charged, 0);
    remote_free(&place->remote);
}

TEST(closing_wakes_callers_that_settle_or_wait_for_it, 30)
{
    struct place *place = place_open(LATER, NULL, ten);
    struct caller callers[2];
    outage_passes(place, "a", 5 * WEIR_SECOND, 3);
    cable_hold(&place->cable);
    for (int i = 0; i < 2; i++)
        caller_start(&callers[i], place);
    cable_await_held(&place->cable);
    await_waits(1);
    weir_close(place->limiter);
    for (int i = 0; i < 2; i++) {
        pthread_join(callers[i].thread, NULL);
        ck_assert_int_eq(callers[i].error, WEIR_ECLOSED);
    }
    remote_free(&place->remote);
}

void __real_free(void *block);
void __wrap_free(void *block);

static _Atomic int freed;

void __wrap_free(void *block)
{
    atomic_fetch_add(&freed, 1);
    __real_free(block);
}

static pid_t child_amid_batch; /* 0: not yet */

/* The first charge of a batch forks. */
static int submit_and_fork(struct weir_backend *backend, const struct weir_backend_request *request,
                           int64_t deadline_us, struct weir_op *op)
{
    if (child_amid_batch == 0) {
        const int freed_before = atomic_load(&freed);
        pid_t child = fork();
        if (child == 0)
            _exit(atomic_load(&freed) - freed_before < 128 ? atomic_load(&freed) - freed_before : 128);
        child_amid_batch = child;
    }
    return backend->ops->decide(backend, request, 1, false, INT64_MAX, &op->decision);
}

TEST(a_forked_child_frees_the_batch_that_its_parent_was_settling, 30)
{
    enum { KEYS = 20 };
    PLACE(place, EAGER, OPTIONS(.max_keys = 1000),
          ten); /* few shards, as below: all keys are in one batch, or in two */
    place->cable.ops.submit = submit_and_fork;
    child_amid_batch = 0;
    outage_admits(place, "a", 5 * WEIR_SECOND, 3);
    keys_admit(place, KEYS);
    cable_set(&place->cable, CABLE_WELL);
    int status;
    ck_assert_int_gt(child_amid_batch, 0);
    ck_assert_int_eq(waitpid(child_amid_batch, &status, 0), child_amid_batch);
    ck_assert(WIFEXITED(status));
    ck_assert_int_ge(WEXITSTATUS(status), 2 + KEYS / 2); /* the settlement, the table of limits, and the keys */
    ck_assert_int_eq(place->remote.charged, 3 + KEYS);
}

TEST(a_forked_child_owes_nothing_and_starts_cold_while_its_parent_settles, 30)
{
    PLACE(place, EAGER, OPTIONS(.max_keys = 1000),
          ten); /* few shards: ThreadSanitizer cannot count more locks that one thread holds */
    outage_admits(place, "a", 5 * WEIR_SECOND, 3);
    pid_t child = fork();
    if (child == 0) {
        bool right = !try_in(place, "a", 1).allowed; /* a separate outage */
        cable_set(&place->cable, CABLE_WELL);
        right = right && try_in(place, "a", 1).remaining == 9 && place->remote.charged == 0;
        right = right && stats_of(place->limiter).settled == 0;
        _exit(right ? 0 : 1);
    }
    assert_child_succeeds(child);
    must(try_in(place, "a", 1).allowed, "the parent's goes on");
    cable_set(&place->cable, CABLE_WELL);
    ck_assert_int_eq(place->remote.charged, 4);
}

/* ---- Many threads ---- */

enum { THREADS = 4, ROUNDS = 4000, THREAD_KEYS = 3 };

static _Atomic int64_t shared_now_us;

static int64_t shared_clock(void *user)
{
    return atomic_load(&shared_now_us);
}

struct mob {
    struct place place;
    _Atomic int64_t stood_in, by_store;
    atomic_bool is_over;
};

static void *try_many(void *argument)
{
    static const char *const keys[THREAD_KEYS] = { "a", "b", "c" };
    struct mob *mob = argument;
    for (int i = 0; i < ROUNDS; i++) {
        struct weir_decision decision;
        must_succeed(weir_try(mob->place.limit, weir_key_text(keys[i % THREAD_KEYS]), 1, &decision));
        if (decision.allowed)
            atomic_fetch_add(decision.source == WEIR_BY_FALLBACK ? &mob->stood_in : &mob->by_store, 1);
    }
    return NULL;
}

static void *answer_all(void *argument)
{
    struct mob *mob = argument;
    while (!atomic_load(&mob->is_over))
        if (cable_answer(&mob->place.cable, 5) == 0)
            usleep(100);
    return NULL;
}

/* Weir keeps SETTLE_RECORDS outages and gives up the oldest of more. Until the next cut is well again, threads that are
 * held up between a failure and what follows from it can add 14: 6 outages while it is cut, 4 while it is well, and 4
 * that they were in before. Wait, however slowly the threads run, until there is room for them. */
static void await_room_for_outages(struct mob *mob)
{
    struct settle *settle = &mob->place.limiter->outage->settle;
    while (atomic_load(&settle->count) > SETTLE_RECORDS - 14) {
        atomic_store(&settle->chain.again_us, 0); /* the pause is over */
        taken(mob->place.limit, "d", 1);
        usleep(100);
    }
}

TEST(threads_that_decide_while_the_connection_flaps_leave_nothing_owed, 120)
{
    static struct mob mob;
    struct crew threads;
    pthread_t answerer;
    memset(&mob, 0, sizeof mob);
    atomic_store(&shared_now_us, INT64_C(1) << 40);
    remote_init(&mob.place.remote);
    cable_init(&mob.place.cable, &mob.place.remote);
    atomic_store(&mob.place.cable.later, true);
    must_succeed(weir_open_backend(OPTIONS(.now_us = shared_clock, .timeout_us = 10 * WEIR_SECOND),
                                   &mob.place.cable.base, &mob.place.limiter));
    mob.place.limit = limit_of(mob.place.limiter, "limit", "token_bucket limit=1000000 period=1s burst=1000");
    ck_assert_int_eq(pthread_create(&answerer, NULL, answer_all, &mob), 0);
    crew_start(&threads, THREADS, try_many, &mob);
    for (int i = 0; i < 300; i++) {
        if (i % 2 == 0)
            await_room_for_outages(&mob);
        cable_set(&mob.place.cable, i % 2 ? CABLE_WELL : CABLE_CUT);
        atomic_fetch_add(&shared_now_us, 100);
        usleep(200);
    }
    crew_join(&threads);
    cable_set(&mob.place.cable, CABLE_WELL);
    for (int i = 0; i < 30000 && atomic_load(&mob.place.limiter->outage->settle.owes); i++) {
        taken(mob.place.limit, "d", 1);
        usleep(1000);
    }
    ck_assert(!atomic_load(&mob.place.limiter->outage->settle.owes));
    atomic_store(&mob.is_over, true);
    pthread_join(answerer, NULL);
    const struct weir_stats stats = stats_of(mob.place.limiter);
    ck_assert_int_eq(stats.keys, 0);
    ck_assert_uint_le(stats.settled, (uint64_t)atomic_load(&mob.stood_in));
    ck_assert_uint_eq(stats.unsettled, 0);
    weir_close(mob.place.limiter);
    remote_free(&mob.place.remote);
}
