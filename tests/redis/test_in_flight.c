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

enum { PROCESSES = 8, LIMIT = 3, KILLS = 12, LIVES = PROCESSES + KILLS, HELD_MOST = 20000, HELD_BEFORE_KILL = 40 };
#define IN_FLIGHT "concurrency limit=3 hold=2s"
#define HOLD_US (2 * WEIR_SECOND)

struct held {
    int64_t call_us, begin_us, end_us; /* end_us is INT64_MAX until the release */
};

struct life {
    _Atomic int count; /* release: that of held[] */
    struct held held[HELD_MOST];
};

struct shared {
    atomic_bool stop;
    struct life lives[LIVES];
};

static void hold_permits(const struct weir_options *options, struct shared *shared, struct life *life, int seed)
{
    struct chance chance = chance_make((uint64_t)seed);
    LIMITER(limiter, options);
    weir_limit *limit = limit_of(limiter, "in_flight", IN_FLIGHT);
    const struct weir_key key = weir_key_text("a");
    for (int n = 0; n < HELD_MOST && !atomic_load(&shared->stop);) {
        struct weir_decision decision;
        struct weir_reservation reservation;
        struct held *held = &life->held[n];
        held->call_us = clock_monotonic_us();
        must_succeed(weir_reserve(limit, key, 1, &decision, &reservation));
        if (decision.allowed) {
            held->begin_us = clock_monotonic_us();
            held->end_us = INT64_MAX;
            atomic_store_explicit(&life->count, ++n, memory_order_release);
            sleep_us(chance_between(&chance, 0, 3000));
            held->end_us = clock_monotonic_us();
            must_succeed(weir_release(limit, key, &reservation));
        } else {
            sleep_us(chance_between(&chance, 0, 500));
        }
    }
}

static pid_t start(const struct weir_options *options, struct shared *shared, int life)
{
    const pid_t pid = fork();
    must(pid >= 0, "a process");
    if (pid == 0) {
        hold_permits(options, shared, &shared->lives[life], life);
        _exit(0);
    }
    return pid;
}

static int held_by_all(struct shared *shared)
{
    int count = 0;
    for (int i = 0; i < LIVES; i++)
        count += atomic_load_explicit(&shared->lives[i].count, memory_order_acquire);
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

static int most_in_flight(struct shared *shared, const int64_t *killed_us)
{
    const int n = held_by_all(shared);
    struct edge *edges = calloc((size_t)n * 2, sizeof *edges);
    size_t count = 0;
    int now = 0, most = 0;
    must(edges != NULL, "memory");
    for (int i = 0; i < LIVES; i++) {
        for (int k = 0; k < atomic_load(&shared->lives[i].count); k++) {
            const struct held *held = &shared->lives[i].held[k];
            int64_t end_us = held->call_us + HOLD_US;
            end_us = held->end_us < end_us ? held->end_us : end_us;
            end_us = killed_us[i] < end_us ? killed_us[i] : end_us;
            if (end_us <= held->begin_us)
                continue;
            edges[count++] = (struct edge){ held->begin_us, 1 };
            edges[count++] = (struct edge){ end_us, -1 };
        }
    }
    qsort(edges, count, sizeof *edges, by_time);
    for (size_t i = 0; i < count; i++) {
        now += edges[i].change;
        most = now > most ? now : most;
    }
    free(edges);
    return most;
}

TEST(no_more_are_in_flight_than_allowed_while_processes_are_killed, 300)
{
    PLACE(place, false, NULL);
    const struct weir_options options = place_options(&place, 20 * WEIR_SECOND);
    struct shared *shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    must(shared != MAP_FAILED, "shared memory");
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
    for (int i = 0; i < KILLS; i++) {
        const int victim = i % PROCESSES, before = held_by_all(shared);
        while (held_by_all(shared) < before + HELD_BEFORE_KILL)
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
    printf("%d permits held, at most %d at a time\n", held_by_all(shared), most);
    ck_assert_int_ge(most, 1);
    ck_assert_int_le(most, LIMIT);

    /* Permits of the dead come back. */
    LIMITER(limiter, &options);
    weir_limit *limit = limit_of(limiter, "in_flight", IN_FLIGHT);
    const int64_t give_up_us = clock_monotonic_us() + RECOVERY_MOST_US;
    while (peeked(limit, "a", 1).remaining < LIMIT && clock_monotonic_us() < give_up_us)
        sleep_us(20000);
    ck_assert_int_eq(peeked(limit, "a", 1).remaining, LIMIT);
    munmap(shared, sizeof *shared);
}
