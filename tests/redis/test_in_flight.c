/* test_in_flight.c - processes hold permits of a limit on requests in flight while one after the other is killed.
 *
 * Each process writes to shared memory when it had a permit: from after the reservation until before the release. The
 * test then looks at all of these intervals, cut off where the hold ends or the process was killed. No more than the
 * limit may overlap. Redis charges after the call begins and by a clock that advances like this one's, so a permit
 * counts in Redis at least until its call's beginning plus the hold.
 *
 * Some holders renew. Each renewal ends an interval and begins another one. It must be allowed if its answer arrives
 * within the hold, however many processes wait for the permit.
 *
 * Each process also notes when it was denied. A denial means that at some time during its call no permit was left. So
 * the permits that may have been out at that time must be as many: those of the living from before their reservation
 * until after their release, and those of the dead for the hold. If the dead kept a permit for longer,
 * after any of the kills, denials would lack an explanation. How fast the machine is does not matter: a slow one makes
 * intervals longer.
 */
#include "redis_place.h"

#include "core/ground/clock.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>

enum {
    PROCESSES = 8,
    THREADS_MOST = 4,
    KILLS_MOST = 200,
    LIVES = PROCESSES + KILLS_MOST,
    HELD_MOST = 20000,
    DENIED_MOST = 10000 /* more are not noted */
};
#define HOLD_US (2 * WEIR_SECOND)
#define CLOCKS_US 20000 /* by which this clock may differ from that of Redis after a hold */

/* How large a run is: with WEIR_TEST_FULL one of a minute. */
struct size {
    int threads, limit, kills;
    int permits;          /* that a holder takes at a time */
    int held_before_kill; /* permits that all together take between two kills, at least */
    int64_t gap_us;       /* between two kills, at least */
};

struct held {
    int64_t call_us, begin_us, end_us, back_us; /* INT64_MAX: end_us until the release, back_us until it has returned */
};

struct denied {
    int64_t call_us, end_us;
};

struct life {
    _Atomic int calls;        /* reservations that have been answered */
    _Atomic int64_t call_us;  /* the latest reservation began */
    _Atomic int count;        /* release: that of held[] */
    _Atomic int denied_count; /* the same of denied[] */
    struct held held[HELD_MOST];
    struct denied denied[DENIED_MOST];
};

struct shared {
    atomic_bool stop;
    _Atomic int renewed;
    struct size size;
    struct life lives[LIVES][THREADS_MOST]; /* of each process and thread */
};

struct holder {
    struct shared *shared;
    struct life *life;
    weir_limit *limit;
    int seed;
    pthread_t thread;
};

static weir_limit *define_limit(weir *limiter, const struct shared *shared)
{
    char policy[64];
    snprintf(policy, sizeof policy, "concurrency limit=%d hold=2s", shared->size.limit);
    return limit_of(limiter, "in_flight", policy);
}

static void note_denial(struct life *life, int64_t call_us)
{
    const int n = atomic_load_explicit(&life->denied_count, memory_order_relaxed);
    if (n == DENIED_MOST)
        return;
    life->denied[n] = (struct denied){ call_us, clock_monotonic_us() };
    atomic_store_explicit(&life->denied_count, n + 1, memory_order_release);
}

/* Reserve or, if `before` is the interval of a permit, renew, which ends that. NULL if it is denied, otherwise the
 * interval that begins. A process that is killed has never noted both. */
static struct held *hold(struct holder *holder, struct held *before, struct weir_reservation *reservation)
{
    struct life *life = holder->life;
    struct weir_decision decision;
    const int64_t call_us = clock_monotonic_us();
    const int n = atomic_load_explicit(&life->count, memory_order_relaxed);
    atomic_store(&life->call_us, call_us);
    must_succeed((before ? weir_renew : weir_reserve)(holder->limit, weir_key_text("a"), holder->shared->size.permits,
                                                      &decision, reservation));
    atomic_fetch_add(&life->calls, 1);
    const int64_t now_us = clock_monotonic_us();
    if (before)
        before->end_us = before->back_us = now_us;
    if (!decision.allowed) {
        must(!before || now_us >= before->call_us + HOLD_US - CLOCKS_US, "a renewal within the hold is allowed");
        note_denial(life, call_us);
        return NULL;
    }
    life->held[n] = (struct held){ call_us, now_us, INT64_MAX, INT64_MAX };
    atomic_store_explicit(&life->count, n + 1, memory_order_release);
    atomic_fetch_add(&holder->shared->renewed, before != NULL);
    return &life->held[n];
}

static void *hold_permits(void *argument)
{
    struct holder *holder = argument;
    struct life *life = holder->life;
    struct chance chance = chance_make((uint64_t)holder->seed);
    while (atomic_load(&life->count) < HELD_MOST && !atomic_load(&holder->shared->stop)) {
        struct weir_reservation reservation;
        struct held *held = hold(holder, NULL, &reservation);
        if (!held)
            sleep_us(chance_between(&chance, 0, 500));
        while (held) {
            sleep_us(chance_between(&chance, 0, 3000));
            if (chance_one_in(&chance, 3) && atomic_load(&life->count) < HELD_MOST) {
                held = hold(holder, held, &reservation);
                continue;
            }
            held->end_us = clock_monotonic_us();
            must_succeed(weir_release(holder->limit, weir_key_text("a"), &reservation));
            held->back_us = clock_monotonic_us();
            held = NULL;
        }
    }
    return NULL;
}

static void live(const struct weir_options *options, struct shared *shared, int life)
{
    LIMITER(limiter, options);
    struct holder holders[THREADS_MOST];
    for (int i = 0; i < shared->size.threads; i++) {
        holders[i] = (struct holder){ .shared = shared,
                                      .life = &shared->lives[life][i],
                                      .limit = define_limit(limiter, shared),
                                      .seed = life * THREADS_MOST + i };
        must(pthread_create(&holders[i].thread, NULL, hold_permits, &holders[i]) == 0, "a thread");
    }
    for (int i = 0; i < shared->size.threads; i++)
        pthread_join(holders[i].thread, NULL);
}

static pid_t start(const struct weir_options *options, struct shared *shared, int life)
{
    const pid_t pid = fork();
    must(pid >= 0, "a process");
    if (pid == 0) {
        live(options, shared, life);
        _exit(0);
    }
    return pid;
}

static int held_by_all(struct shared *shared)
{
    int count = 0;
    for (int i = 0; i < LIVES; i++)
        for (int thread = 0; thread < shared->size.threads; thread++)
            count += atomic_load_explicit(&shared->lives[i][thread].count, memory_order_acquire);
    return count;
}

/* Return a time by which Redis has read what the dead had sent. By then a thread has made three calls, of which the
 * last two have begun after this call: two round trips. */
static int64_t when_read_us(const struct shared *shared, const int *lives)
{
    int before[PROCESSES][THREADS_MOST];
    for (int i = 0; i < PROCESSES; i++)
        for (int thread = 0; thread < shared->size.threads; thread++)
            before[i][thread] = atomic_load(&shared->lives[lives[i]][thread].calls);
    for (;; sleep_us(1000))
        for (int i = 0; i < PROCESSES; i++)
            for (int thread = 0; thread < shared->size.threads; thread++)
                if (atomic_load(&shared->lives[lives[i]][thread].calls) >= before[i][thread] + 3)
                    return clock_monotonic_us();
}

/* ---- The judge ---- */

struct edge {
    int64_t at_us;
    int change;
};

/* By time; where one interval ends when another begins, the end comes first. */
static int by_time(const void *a, const void *b)
{
    const struct edge *one = a, *other = b;
    if (one->at_us != other->at_us)
        return one->at_us < other->at_us ? -1 : 1;
    return one->change - other->change;
}

static void edges_add(const struct life *life, int permits, int64_t killed_us, struct edge *edges, size_t *count)
{
    for (int k = 0; k < atomic_load(&life->count); k++) {
        const struct held *held = &life->held[k];
        int64_t end_us = held->call_us + HOLD_US;
        end_us = held->end_us < end_us ? held->end_us : end_us;
        end_us = killed_us < end_us ? killed_us : end_us;
        if (end_us <= held->begin_us)
            continue;
        edges[(*count)++] = (struct edge){ held->begin_us, permits };
        edges[(*count)++] = (struct edge){ end_us, -permits };
    }
}

static int most_in_flight(struct shared *shared, const int64_t *killed_us)
{
    const int n = held_by_all(shared);
    struct edge *edges = calloc((size_t)n * 2, sizeof *edges);
    size_t count = 0;
    int now = 0, most = 0;
    must(edges != NULL, "memory");
    for (int i = 0; i < LIVES; i++)
        for (int thread = 0; thread < shared->size.threads; thread++)
            edges_add(&shared->lives[i][thread], shared->size.permits, killed_us[i], edges, &count);
    qsort(edges, count, sizeof *edges, by_time);
    for (size_t i = 0; i < count; i++) {
        now += edges[i].change;
        most = now > most ? now : most;
    }
    free(edges);
    return most;
}

/* Add the time for which a permit may have been out. */
static void edges_add_out(int64_t from_us, int64_t to_us, int permits, struct edge *edges, size_t *count)
{
    edges[(*count)++] = (struct edge){ from_us, permits };
    edges[(*count)++] = (struct edge){ to_us, -permits };
}

/* Return when permits that were charged by `us` are back at the latest. */
static int64_t back_by_us(int64_t us)
{
    return us + HOLD_US + CLOCKS_US;
}

/* Write the times at which permits may have been out, in order. Return their number. `read_us`: when Redis had read all
 * that a killed process had sent. */
static size_t edges_out(struct shared *shared, const int64_t *read_us, struct edge *edges)
{
    size_t count = 0;
    for (int i = 0; i < LIVES; i++)
        for (int thread = 0; thread < shared->size.threads; thread++) {
            struct life *life = &shared->lives[i][thread];
            const int64_t call_us = atomic_load(&life->call_us);
            for (int k = 0; k < atomic_load(&life->count); k++) {
                const struct held *held = &life->held[k];
                const int64_t back_us = back_by_us(held->begin_us);
                edges_add_out(held->call_us, held->back_us < back_us ? held->back_us : back_us, shared->size.permits,
                              edges, &count);
            }
            if (call_us > 0 && read_us[i] != INT64_MAX) /* its last call may have been charged */
                edges_add_out(call_us, back_by_us(read_us[i]), shared->size.permits, edges, &count);
        }
    qsort(edges, count, sizeof *edges, by_time);
    for (size_t i = 1; i < count; i++) /* from now on the permits that are out from this time on */
        edges[i].change += edges[i - 1].change;
    return count;
}

/* True if at some time during a denied call all permits may have been in flight. */
static bool is_explained(const struct denied *denied, const struct edge *edges, size_t count, int least)
{
    size_t after = 0, end = count; /* the first edge that is not earlier than the call's beginning */
    while (after < end) {
        const size_t middle = after + (end - after) / 2;
        if (edges[middle].at_us >= denied->call_us)
            end = middle;
        else
            after = middle + 1;
    }
    for (size_t i = after > 0 ? after - 1 : 0; i < count && (i < after || edges[i].at_us <= denied->end_us); i++)
        if (edges[i].change >= least)
            return true;
    return false;
}

/* Check that each denial was due to permits of the living, or of the dead for their time. Return their number. */
static int check_that_denials_are_explained(struct shared *shared, const int64_t *read_us)
{
    const size_t room = 2 * ((size_t)held_by_all(shared) + LIVES * THREADS_MOST);
    struct edge *edges = calloc(room, sizeof *edges);
    must(edges != NULL, "memory");
    const size_t count = edges_out(shared, read_us, edges);
    const int least = shared->size.limit - shared->size.permits + 1;
    int denials = 0;
    for (int i = 0; i < LIVES; i++)
        for (int thread = 0; thread < shared->size.threads; thread++) {
            const struct life *life = &shared->lives[i][thread];
            for (int k = 0; k < atomic_load(&life->denied_count); k++, denials++)
                ck_assert_msg(is_explained(&life->denied[k], edges, count, least),
                              "a denial while fewer than %d of %d permits can have been out", least,
                              shared->size.limit);
        }
    free(edges);
    return denials;
}

/* Redis runs here, by this clock. */
static int64_t redis_clock_us(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return now.tv_sec * WEIR_SECOND + now.tv_nsec / 1000;
}

/* Check that all permits of the dead are back in time, by the clock of Redis: however late this process looks, Redis
 * decides each look at or after the time that was read before it. */
static void check_that_all_come_back(weir_limit *limit, int64_t most)
{
    for (int i = 0; i < 2; i++) /* two round trips: Redis has read what the dead had sent */
        peeked(limit, "a", 1);
    const int64_t last_us = redis_clock_us() + HOLD_US;
    for (;;) {
        const int64_t looked_us = redis_clock_us(), left = peeked(limit, "a", 1).remaining;
        if (left == most)
            return;
        ck_assert_msg(looked_us < last_us, "%d of %d permits are back", (int)left, (int)most);
        sleep_us(5000);
    }
}

TEST(no_more_are_in_flight_than_allowed_while_processes_are_killed, 300)
{
    PLACE(place, false, NULL);
    const struct weir_options options = place_options(&place, 20 * WEIR_SECOND);
    struct shared *shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE,
                                 MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    must(shared != MAP_FAILED, "shared memory");
    shared->size = (struct size){ .threads = (int)full_or(4, 1),
                                  .limit = (int)full_or(50, 3),
                                  .permits = (int)full_or(2, 1),
                                  .kills = (int)full_or(KILLS_MOST, 12),
                                  .held_before_kill = (int)full_or(1, 40),
                                  .gap_us = full_or(300000, 0) };
    pid_t pids[PROCESSES];
    int lives[PROCESSES];
    int64_t killed_us[LIVES], read_us[LIVES];
    int next = 0;
    for (int i = 0; i < LIVES; i++)
        killed_us[i] = read_us[i] = INT64_MAX;
    for (int i = 0; i < PROCESSES; i++) {
        lives[i] = next++;
        pids[i] = start(&options, shared, lives[i]);
    }
    for (int i = 0; i < shared->size.kills; i++) {
        const int victim = i % PROCESSES, before = held_by_all(shared);
        sleep_us(shared->size.gap_us);
        while (held_by_all(shared) < before + shared->size.held_before_kill)
            sleep_us(1000);
        killed_us[lives[victim]] = clock_monotonic_us();
        kill(pids[victim], SIGKILL);
        waitpid(pids[victim], NULL, 0);
        read_us[lives[victim]] = when_read_us(shared, lives);
        lives[victim] = next++;
        pids[victim] = start(&options, shared, lives[victim]);
    }
    atomic_store(&shared->stop, true);
    for (int i = 0; i < PROCESSES; i++) {
        int status;
        waitpid(pids[i], &status, 0);
        must(WIFEXITED(status) && WEXITSTATUS(status) == 0, "a process that was not killed ends well");
    }
    const int most = most_in_flight(shared, killed_us);
    const int denials = check_that_denials_are_explained(shared, read_us);
    const int renewed = atomic_load(&shared->renewed);
    printf("%d kills, %d times held, %d of these by renewals, at most %d at a time of %d; %d denials are explained\n",
           shared->size.kills, held_by_all(shared), renewed, most, shared->size.limit, denials);
    ck_assert_int_gt(renewed, 0);
    ck_assert_int_ge(most, 1);
    ck_assert_int_le(most, shared->size.limit);

    LIMITER(limiter, &options);
    check_that_all_come_back(define_limit(limiter, shared), shared->size.limit);
    munmap(shared, sizeof *shared);
}

/* ---- Renewals while Redis is away ---- */

struct renewal {
    struct weir_op op;
    int status;
    atomic_bool done;
};

static void renewal_done(struct weir_op *op, int status)
{
    struct renewal *renewal = op->user;
    renewal->status = status;
    atomic_store(&renewal->done, true);
}

/* Renew by weir_submit(), and wait for the answer. */
static int renewed_by_op(weir *limiter, weir_limit *limit, struct weir_decision *out,
                         struct weir_reservation *reservation)
{
    struct renewal renewal = { .op = { .request = { limit, weir_key_text("a"), 1, 0 },
                                       .verb = WEIR_OP_RENEW,
                                       .reservation = *reservation,
                                       .done = renewal_done,
                                       .user = &renewal } };
    int status = weir_submit(limiter, &renewal.op);
    while (status == 1 && !atomic_load(&renewal.done))
        sleep_us(100);
    status = status == 1 ? renewal.status : status;
    *reservation = renewal.op.reservation;
    if (status == WEIR_OK)
        *out = renewal.op.decision;
    return status;
}

TEST_EACH(a_renewal_fails_while_redis_is_away_and_keeps_the_permit, 4, 120)
{
    const bool submits = _i % 2 == 1;
    PLACE(place, true, NULL);
    struct weir_options options = place_options(&place, 20 * WEIR_SECOND);
    options.mode = _i < 2 ? WEIR_DISTRIBUTED : WEIR_HYBRID;
    options.on_failure = WEIR_FAIL_LOCAL;
    LIMITER(limiter, &options);
    weir_limit *limit = limit_of(limiter, "in_flight", "concurrency limit=1 hold=366d");
    const struct weir_key key = weir_key_text("a");
    struct weir_decision decision;
    struct weir_reservation reservation, before;
    must_succeed(weir_reserve(limit, key, 1, &decision, &reservation));
    ck_assert(decision.allowed && decision.source == WEIR_BY_REDIS);

    fproxy_door(place.proxy, FPROXY_REFUSE);
    fproxy_cut(place.proxy, true);
    int status = submits ? renewed_by_op(limiter, limit, &decision, &reservation)
                         : weir_renew(limit, key, 1, &decision, &reservation);
    ck_assert(status == WEIR_EIO || status == WEIR_ETIME);
    before = reservation;
    ck_assert(before.permits == 1 && before.id != 0);

    fproxy_door(place.proxy, FPROXY_OPEN);
    do {
        sleep_us(1000);
        status = submits ? renewed_by_op(limiter, limit, &decision, &reservation)
                         : weir_renew(limit, key, 1, &decision, &reservation);
        ck_assert(status != WEIR_OK || decision.allowed);
    } while (status != WEIR_OK);
    ck_assert(reservation.permits == 1 && reservation.id == before.id);
    must_succeed(weir_release(limit, key, &reservation));
    ck_assert_int_eq(peeked(limit, "a", 1).remaining, 1);
}
