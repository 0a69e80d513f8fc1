/* test_in_flight.c - processes hold permits of a limit on requests in flight while one after the other is killed.
 *
 * Each process writes to shared memory when it had a permit: from after the reservation until before the release. The
 * test then looks at all of these intervals, cut off where the hold ends or the process was killed. No more than the
 * limit may overlap. Redis charges after the call begins and by a clock that advances like this one's, so a permit
 * counts in Redis at least until its call's beginning plus the hold.
 */
#include "redis_place.h"

#include "core/ground/clock.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>

enum { PROCESSES = 8, THREADS_MOST = 4, KILLS_MOST = 200, LIVES = PROCESSES + KILLS_MOST, HELD_MOST = 20000 };
#define HOLD_US (2 * WEIR_SECOND)
#define BACK_US (HOLD_US + HOLD_US / 10) /* a permit of the dead comes back after its hold and at most a block of it */

/* How large a run is: with WEIR_TEST_FULL one of a minute. */
struct size {
    int threads, limit, kills;
    int permits;          /* that a holder takes at a time */
    int held_before_kill; /* permits that all together take between two kills, at least */
    int64_t gap_us;       /* between two kills, at least */
};

struct held {
    int64_t call_us, begin_us, end_us; /* end_us is INT64_MAX until the release */
};

struct life {
    _Atomic int count; /* release: that of held[] */
    struct held held[HELD_MOST];
};

struct shared {
    atomic_bool stop;
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

static void *hold_permits(void *argument)
{
    struct holder *holder = argument;
    struct life *life = holder->life;
    struct chance chance = chance_make((uint64_t)holder->seed);
    const struct weir_key key = weir_key_text("a");
    for (int n = 0; n < HELD_MOST && !atomic_load(&holder->shared->stop);) {
        struct weir_decision decision;
        struct weir_reservation reservation;
        struct held *held = &life->held[n];
        held->call_us = clock_monotonic_us();
        must_succeed(weir_reserve(holder->limit, key, holder->shared->size.permits, &decision, &reservation));
        if (decision.allowed) {
            held->begin_us = clock_monotonic_us();
            held->end_us = INT64_MAX;
            atomic_store_explicit(&life->count, ++n, memory_order_release);
            sleep_us(chance_between(&chance, 0, 3000));
            held->end_us = clock_monotonic_us();
            must_succeed(weir_release(holder->limit, key, &reservation));
        } else {
            sleep_us(chance_between(&chance, 0, 500));
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
    const int64_t last_us = redis_clock_us() + BACK_US;
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
    int64_t killed_us[LIVES];
    int next = 0;
    for (int i = 0; i < LIVES; i++)
        killed_us[i] = INT64_MAX;
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
    printf("%d kills, %d times held, at most %d at a time of %d\n", shared->size.kills, held_by_all(shared), most,
           shared->size.limit);
    ck_assert_int_ge(most, 1);
    ck_assert_int_le(most, shared->size.limit);

    LIMITER(limiter, &options);
    check_that_all_come_back(define_limit(limiter, shared), shared->size.limit);
    munmap(shared, sizeof *shared);
}
