/* test_ticks.c - time counted from a reading of the clock, with simulated counters and clocks and with this system's.
 *
 * The tests assert the promises of ticks.h: the time is never ahead, and behind by at most BEHIND_US for at most a
 * millisecond. SLEWED_US allows for a system clock that is slewed during a test.
 */
#include "core/ground/clock.h"
#include "core/ground/ticks.h"
#include "core/limiter/limiter.h"
#include "support.h"

#include <inttypes.h>
#include <pthread.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    BEHIND_US = 2,
    SLEWED_US = 250,
    SPAN_US = TICKS_SPAN_NS / 1000,
    THREADS = 4,
    READINGS = 300000, /* of each thread */
    STAY = 5000        /* how many of them on one processor */
};

/* ---- A counter and a clock ---- */

struct world {
    struct chance chance;
    struct ticks ticks;
    uint64_t hz, counter;
    int64_t ns;
    uint64_t rest;       /* of a nanosecond, times 2^32 */
    uint64_t even, rate; /* nanoseconds a tick, times 2^32: unslewed, and as they pass */
    int64_t read_us;     /* what the clock said when it was last read */
};

static void slew(struct world *world, int64_t ppm)
{
    world->rate = world->even + (uint64_t)((int64_t)world->even * ppm / 1000000);
}

static struct world world_make(uint64_t stream, uint64_t hz, uint64_t counter, int64_t ns)
{
    struct world world = { .chance = chance_make(stream), .hz = hz, .counter = counter, .ns = ns };
    world.even = (UINT64_C(1000000000) << 32) / hz;
    slew(&world, 0);
    return world;
}

static struct world world_by_chance(uint64_t stream)
{
    struct chance chance = chance_make(stream);
    const uint64_t hz = UINT64_C(1000000000) * (uint64_t)chance_magnitude(&chance, 6);
    const uint64_t counter = chance_one_in(&chance, 2) ? (uint64_t)chance_magnitude(&chance, INT64_MAX)
                                                       : UINT64_MAX - (uint64_t)chance_magnitude(&chance, INT64_MAX);
    return world_make(stream, hz, counter, chance_magnitude(&chance, INT64_C(1) << 61));
}

static void pass(struct world *world, uint64_t ticks)
{
    const uint64_t passed = ticks * world->rate + world->rest;
    world->counter += ticks;
    world->ns += (int64_t)(passed >> 32);
    world->rest = passed & UINT32_MAX;
}

static void pass_us(struct world *world, uint64_t us)
{
    pass(world, world->hz / 1000000 * us);
}

/* Read the clock as ticks_read_us() does, `before` and `after` ticks from its two readings of the counter. */
static int64_t read_clock(struct world *world, uint64_t ticks_before, uint64_t ticks_after)
{
    const uint64_t before = world->counter;
    pass(world, ticks_before);
    const int64_t ns = world->ns;
    pass(world, ticks_after);
    ticks_anchor(&world->ticks, before, ns, world->counter);
    world->read_us = ns / 1000;
    return world->read_us;
}

/* The same, rarely with an interruption. */
static int64_t read_clock_by_chance(struct world *world)
{
    struct chance *chance = &world->chance;
    const int64_t most = chance_one_in(chance, 20) ? 1 << 20 : TICKS_BRACKET / 2;
    const uint64_t before = (uint64_t)chance_between(chance, 20, most);
    return read_clock(world, before, (uint64_t)chance_between(chance, 20, most));
}

static bool is_counted(const struct world *world)
{
    int64_t us;
    return ticks_tell(&world->ticks, world->counter, &us);
}

static int64_t counted_us(const struct world *world)
{
    int64_t us = 0;
    must(ticks_tell(&world->ticks, world->counter, &us), "it is counted");
    return us;
}

/* Wait until the pace is known. */
static struct world world_counting(uint64_t stream)
{
    struct world world = world_make(stream, UINT64_C(2600000000), UINT64_C(1) << 50, INT64_C(86400000000000));
    for (int i = 0; i < 3; i++) {
        pass_us(&world, SPAN_US + 1);
        read_clock(&world, 30, 30);
    }
    ck_assert(is_counted(&world));
    return world;
}

/* ---- Bounds, by chance ---- */

static void assert_off_by_no_more(const struct world *world, int64_t us, int64_t ahead_us, int64_t behind_us)
{
    const int64_t clock_us = world->ns / 1000;
    if (us > clock_us + ahead_us || us < clock_us - behind_us)
        ck_abort_msg("%" PRId64 " us at %" PRId64 " us, %" PRIu64 " Hz", us, clock_us, world->hz);
}

/* Make steps of every size, sometimes with a slew of up to `ppm`. Returns the percentage of counted times. */
static int64_t wander(struct world *world, int64_t ppm, int64_t ahead_us, int64_t behind_us)
{
    struct chance *chance = &world->chance;
    const int64_t steps = 20000;
    int64_t counted = 0, last_us = 0;
    for (int64_t i = 0; i < steps; i++) {
        int64_t us;
        pass(world, (uint64_t)chance_magnitude(chance, (int64_t)world->hz / (chance_one_in(chance, 500) ? 25 : 20000)));
        if (chance_one_in(chance, 50))
            slew(world, chance_one_in(chance, 2) ? chance_between(chance, -ppm, ppm)
                                                 : (chance_one_in(chance, 2) ? ppm : -ppm));
        if (ticks_tell(&world->ticks, world->counter, &us)) {
            assert_off_by_no_more(world, us, ahead_us, behind_us);
            counted++;
        } else {
            us = read_clock_by_chance(world);
        }
        must(us >= last_us - ahead_us, "time does not step back by more than it was ahead");
        last_us = us;
    }
    return counted * 100 / steps;
}

TEST(the_counted_time_is_never_ahead_and_at_most_two_microseconds_behind, 60)
{
    const int64_t runs = steps_or(6000000) / 20000;
    for (int64_t run = 0; run < runs; run++) {
        struct world world = world_by_chance((uint64_t)run);
        ck_assert_int_gt(wander(&world, 240, 0, BEHIND_US), 75);
    }
}

TEST(a_clock_slewed_by_a_tenth_is_followed_within_a_quarter_millisecond, 60)
{
    const int64_t runs = steps_or(6000000) / 20000;
    for (int64_t run = 0; run < runs; run++) {
        struct world world = world_by_chance((uint64_t)run);
        ck_assert_int_gt(wander(&world, 100000, SLEWED_US, SLEWED_US), 10);
    }
}

/* Read the clock at the start of one bracket and at the end of the next, then slew it. */
TEST(slow_readings_of_a_slewed_clock_stay_within_the_bounds, 10)
{
    for (int64_t start_ns = INT64_C(1000000000); start_ns < INT64_C(1000001000); start_ns += 50)
        for (int i = 0; i < 4; i++) {
            struct world world = world_make(0, UINT64_C(1000000000), 0, start_ns);
            for (int reading = 0; reading < 4; reading++) {
                const bool is_late = (reading + i) % 2;
                pass_us(&world, SPAN_US + 1);
                read_clock(&world, is_late ? TICKS_BRACKET : 0, is_late ? 0 : TICKS_BRACKET);
            }
            slew(&world, i < 2 ? 480 : -480);
            pass_us(&world, SPAN_US - 1);
            assert_off_by_no_more(&world, counted_us(&world), 0, BEHIND_US);
        }
}

static void disturb(struct world *world)
{
    struct chance *chance = &world->chance;
    switch (chance_between(chance, 0, 7)) {
    case 0: world->counter += (uint64_t)chance_magnitude(chance, INT64_MAX); break;
    case 1: world->counter -= (uint64_t)chance_magnitude(chance, INT64_MAX); break;
    case 2: world->counter = (uint64_t)chance_magnitude(chance, INT64_C(1) << 32); break;
    case 3: world->ns += chance_magnitude(chance, INT64_C(1) << 60); break;
    case 4: world->ns -= chance_magnitude(chance, INT64_C(1) << 60); break;
    case 5: world->rate = 0; break;
    case 6: world->rate = (uint64_t)chance_magnitude(chance, INT64_MAX); break;
    default: slew(world, 0); break;
    }
    world->ns = world->ns < 0 ? 0 : world->ns & INT64_MAX >> 1;
}

TEST(at_most_a_millisecond_is_counted_whatever_counter_and_clock_do, 60)
{
    const int64_t steps = steps_or(10000000);
    struct world world = world_by_chance(0);
    int64_t counted = 0;
    for (int64_t i = 0; i < steps; i++) {
        int64_t us;
        if (chance_one_in(&world.chance, 2000))
            world = world_by_chance((uint64_t)i);
        if (chance_one_in(&world.chance, 20))
            disturb(&world);
        pass(&world, (uint64_t)chance_magnitude(&world.chance, (int64_t)world.hz / 1000));
        world.ns &= INT64_MAX >> 1;
        if (ticks_tell(&world.ticks, world.counter, &us)) {
            must(us >= world.read_us && us <= world.read_us + SPAN_US, "it is counted on from the last reading");
            counted++;
        } else {
            read_clock_by_chance(&world);
        }
        if (chance_one_in(&world.chance, 1000)) { /* trouble ends */
            slew(&world, 0);
            for (int k = 0; k < 5; k++) {
                pass_us(&world, 2 * SPAN_US);
                read_clock(&world, 40, 40);
            }
            must(is_counted(&world), "after some readings it is counted again");
        }
    }
    ck_assert_int_gt(counted, steps / 100);
}

/* ---- One trouble after another ---- */

TEST(nothing_is_counted_before_two_paces_agree, 10)
{
    struct world world = world_make(0, UINT64_C(2000000000), 12345, INT64_C(5000000000));
    for (int i = 0; i < 3; i++) {
        ck_assert(!is_counted(&world));
        read_clock(&world, 30, 30);
        pass_us(&world, 10);
        ck_assert_int_eq(is_counted(&world), i == 2);
        pass_us(&world, SPAN_US);
    }
    ck_assert(!is_counted(&world));
}

TEST(readings_that_are_close_together_determine_no_pace, 10)
{
    struct world world = world_counting(0);
    const int64_t from_us = world.read_us;
    do {
        pass_us(&world, 1);
        read_clock(&world, 30, 30);
    } while (!is_counted(&world));
    ck_assert_int_ge(world.read_us - from_us, SPAN_US);
    ck_assert_int_le(world.read_us - from_us, SPAN_US + 2);
}

TEST(an_interrupted_clock_reading_is_not_used, 10)
{
    const uint64_t counts[] = { TICKS_BRACKET + 1, 1000000, 60000000 };
    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++) {
        struct world world = world_counting(i);
        pass_us(&world, SPAN_US + 1);
        read_clock(&world, i % 2 ? counts[i] : 0, i % 2 ? 0 : counts[i]);
        ck_assert(!is_counted(&world));
        pass_us(&world, SPAN_US + 1);
        read_clock(&world, 30, 30);
        pass_us(&world, 500);
        if (counts[i] < world.hz / 100) /* the previous reading is recent enough to give a pace */
            assert_off_by_no_more(&world, counted_us(&world), 0, BEHIND_US);
        else
            ck_assert(!is_counted(&world));
    }
}

TEST(a_pause_in_which_the_system_may_have_slept_determines_no_pace, 10)
{
    struct world world = world_counting(0);
    pass_us(&world, TICKS_PACE_NS / 1000 + 1);
    ck_assert(!is_counted(&world));
    read_clock(&world, 30, 30);
    ck_assert(!is_counted(&world));
    pass_us(&world, SPAN_US + 1);
    read_clock(&world, 30, 30);
    pass_us(&world, SPAN_US / 2);
    assert_off_by_no_more(&world, counted_us(&world), 0, BEHIND_US);
}

TEST(a_counter_that_jumps_by_a_millisecond_is_not_used, 10)
{
    struct world world = world_counting(0);
    pass_us(&world, 100);
    const int64_t ms = (int64_t)world.hz / 1000;
    const int64_t jumps[] = { ms, 2 * ms, INT64_MAX, -ms / 2, -ms, -INT64_MAX, -(int64_t)world.counter };
    for (size_t i = 0; i < sizeof jumps / sizeof jumps[0]; i++) {
        struct world moved = world;
        moved.counter += (uint64_t)jumps[i];
        ck_assert(!is_counted(&moved));
        read_clock(&moved, 30, 30); /* the clock's time; a pace across the jump is rejected */
        ck_assert(!is_counted(&moved));
    }
}

TEST(a_counter_jump_within_a_millisecond_causes_an_error_until_it_ends, 10)
{
    for (int64_t jump_us = -400; jump_us <= 400; jump_us += 100) {
        struct world world = world_counting(0);
        pass_us(&world, 500);
        world.counter += (uint64_t)(jump_us * (int64_t)(world.hz / 1000000));
        assert_off_by_no_more(&world, counted_us(&world), jump_us > 0 ? jump_us : 0,
                              BEHIND_US + (jump_us < 0 ? -jump_us : 0));
        pass_us(&world, (uint64_t)(SPAN_US - 500 - jump_us + 1));
        ck_assert(!is_counted(&world));
    }
}

TEST(a_counter_that_stands_still_is_not_used_after_the_next_reading, 10)
{
    struct world world = world_counting(0);
    const int64_t us = counted_us(&world);
    world.ns += 50 * TICKS_SPAN_NS;
    ck_assert_int_eq(counted_us(&world), us); /* undetectable */
    for (int i = 0; i < 10; i++) {
        world.ns += 2 * TICKS_SPAN_NS;
        read_clock(&world, 0, 0);
        ck_assert(!is_counted(&world));
    }
}

TEST(a_new_pace_is_used_once_it_was_measured_twice, 10)
{
    const int64_t changes_ppm[] = { 1200, -1200, 100000, -100000, 900000, -900000 };
    for (size_t i = 0; i < sizeof changes_ppm / sizeof changes_ppm[0]; i++) {
        struct world world = world_counting(i);
        slew(&world, changes_ppm[i]);
        for (int reading = 0; reading < 2; reading++) {
            pass_us(&world, 20 * SPAN_US / 2);
            read_clock(&world, 30, 30);
            pass_us(&world, 100);
            ck_assert_int_eq(is_counted(&world), reading == 1);
        }
        assert_off_by_no_more(&world, counted_us(&world), 0, BEHIND_US);
    }
}

/* A clock like libfaketime's, which may stop, run at any speed and jump. */
TEST(a_replaced_clock_is_followed_after_a_millisecond, 10)
{
    const int64_t steps_ns[] = { INT64_C(3600000000000), -INT64_C(3600000000000), 1, -1, -TICKS_SPAN_NS };
    for (size_t i = 0; i < sizeof steps_ns / sizeof steps_ns[0]; i++) {
        struct world world = world_counting(i);
        world.ns += steps_ns[i];
        pass_us(&world, SPAN_US + 1);
        ck_assert(!is_counted(&world));
        for (int k = 0; k < 4; k++) {
            read_clock(&world, 30, 30);
            pass_us(&world, k < 3 ? SPAN_US + 1 : SPAN_US / 2);
        }
        assert_off_by_no_more(&world, counted_us(&world), 0, BEHIND_US);
    }
    struct world world = world_counting(0);
    const int64_t stopped_us = world.ns / 1000;
    world.rate = 0;
    for (int i = 0; i < 100; i++) {
        pass_us(&world, SPAN_US / 10);
        int64_t us = world.read_us;
        if (!ticks_tell(&world.ticks, world.counter, &us))
            us = read_clock(&world, 30, 30);
        ck_assert_int_ge(us, stopped_us);
        ck_assert_int_le(us, i < 10 ? stopped_us + SPAN_US : stopped_us);
    }
}

TEST(after_system_sleep_the_time_is_late_for_at_most_a_millisecond, 10)
{
    for (int how = 0; how < 3; how++) { /* the counter went on, stood still, began anew */
        struct world world = world_counting(0);
        pass_us(&world, 300);
        world.ns += INT64_C(3600000000000);
        world.counter = how == 0 ? world.counter + 3600 * world.hz : how == 1 ? world.counter : 0;
        ck_assert_int_eq(is_counted(&world), how == 1);
        pass_us(&world, SPAN_US - 300 + 1);
        ck_assert(!is_counted(&world));
    }
}

TEST(the_first_clock_reading_may_be_any_time, 10)
{
    const int64_t times_ns[] = { 0, 1, TICKS_SPAN_NS, 5 * TICKS_SPAN_NS, TICKS_PACE_NS, INT64_MAX - 4 * TICKS_PACE_NS };
    const uint64_t counters[] = { 0, 1, UINT64_C(1) << 32, UINT64_MAX - 31, UINT64_MAX };
    for (size_t i = 0; i < sizeof times_ns / sizeof times_ns[0]; i++)
        for (size_t k = 0; k < sizeof counters / sizeof counters[0]; k++) {
            struct world world = world_make(0, UINT64_C(1000000000), counters[k], times_ns[i]);
            for (int reading = 0; reading < 4; reading++) {
                read_clock(&world, 30, 30);
                if (is_counted(&world))
                    assert_off_by_no_more(&world, counted_us(&world), 0, BEHIND_US);
                pass_us(&world, SPAN_US + 1);
            }
            read_clock(&world, 30, 30);
            pass_us(&world, SPAN_US / 2);
            assert_off_by_no_more(&world, counted_us(&world), 0, BEHIND_US);
        }
}

/* ---- This system's own ---- */

/* Compares each time with the clock before and after it, so that load does not matter. */
struct watch {
    weir *limiter;
    bool moves; /* from one processor to another */
    int64_t off, worst_us;
};

static int64_t boot_ns(void)
{
    struct timespec time;
    clock_gettime(CLOCK_BOOTTIME, &time);
    return (int64_t)time.tv_sec * 1000000000 + time.tv_nsec;
}

/* To the next processor after `processor`; returns which. */
static size_t move_on(size_t processor)
{
    cpu_set_t all, one;
    CPU_ZERO(&one);
    if (sched_getaffinity(getpid(), sizeof all, &all) != 0) /* the first thread's, which does not move */
        return processor;
    do {
        processor = (processor + 1) % CPU_SETSIZE;
    } while (!CPU_ISSET(processor, &all));
    CPU_SET(processor, &one);
    pthread_setaffinity_np(pthread_self(), sizeof one, &one);
    return processor;
}

static void *watch_clock(void *argument)
{
    struct watch *watch = argument;
    size_t processor = 0;
    for (int64_t i = 0; i < READINGS; i++) {
        int64_t told_us = 0;
        if (watch->moves && i % STAY == 0)
            processor = move_on(processor);
        const int64_t before_us = boot_ns() / 1000;
        must_succeed(weir_clock(watch->limiter, &told_us));
        const int64_t after_us = boot_ns() / 1000;
        told_us -= watch->limiter->clock.epoch_us;
        const int64_t ahead_us = told_us - after_us, behind_us = before_us - told_us;
        watch->off += ahead_us > 0 || behind_us > BEHIND_US;
        watch->worst_us = ahead_us > watch->worst_us ? ahead_us : watch->worst_us;
        watch->worst_us = behind_us > watch->worst_us ? behind_us : watch->worst_us;
    }
    return NULL;
}

static void assert_watched(const struct watch *watch)
{
    ck_assert_int_le(watch->worst_us, SLEWED_US);
    ck_assert_int_le(watch->off, READINGS / 100); /* only in the milliseconds in which slews began */
}

TEST(the_limiters_clock_agrees_with_the_systems_on_all_threads_and_processors, 60)
{
    weir *limiter;
    struct watch watches[THREADS] = { { 0 } };
    pthread_t threads[THREADS];
    must_succeed(weir_open(NULL, &limiter));
    for (int i = 0; i < THREADS; i++) {
        watches[i] = (struct watch){ .limiter = limiter, .moves = i % 2 };
        ck_assert_int_eq(pthread_create(&threads[i], NULL, watch_clock, &watches[i]), 0);
    }
    for (int i = 0; i < THREADS; i++) {
        ck_assert_int_eq(pthread_join(threads[i], NULL), 0);
        assert_watched(&watches[i]);
    }
    weir_close(limiter);
}

TEST(spans_are_measured_to_the_nanosecond, 10)
{
    static const struct {
        int64_t us, seconds;
        long ns;
    } table[] = {
        { 0, 0, 0 }, { 1, 0, 1000 }, { 999999, 0, 999999000 }, { 1000000, 1, 0 }, { 86400000001, 86400, 1000 }
    };
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        const struct timespec span = clock_timespec(table[i].us);
        ck_assert_int_eq(span.tv_sec, table[i].seconds);
        ck_assert_int_eq(span.tv_nsec, table[i].ns);
    }
}

TEST(a_forked_child_continues_from_its_parents_clock_reading, 60)
{
    weir *limiter;
    struct watch watch = { 0 };
    must_succeed(weir_open(NULL, &watch.limiter));
    limiter = watch.limiter;
    watch_clock(&watch);
    const pid_t child = fork();
    ck_assert_int_ge(child, 0);
    if (child == 0) {
        watch_clock(&watch);
        _exit(watch.worst_us > SLEWED_US || watch.off > 2 * READINGS / 100);
    }
    assert_child_succeeds(child);
    assert_watched(&watch);
    weir_close(limiter);
}
