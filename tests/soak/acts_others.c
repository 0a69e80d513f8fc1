/* acts_others.c - faults of Consul, policies, clocks and processes: see acts.h. */
#include "acts.h"

#include <signal.h>
#include <stdlib.h>

#define SLEEP_US 500000
#define CLOCK_READ_US 500000 /* a thread that has read a clock makes its request within this time */
#define CONSUL_PAGE "/v1/health/service/soak"

/* ---- Consul ---- */

int consul_gone(struct faults *faults)
{
    fake_consul_listen(faults->place->consul, false);
    return 0;
}

int consul_back(struct faults *faults)
{
    fake_consul_listen(faults->place->consul, true);
    return 0;
}

int consul_empty(struct faults *faults)
{
    fake_consul_page(faults->place->consul, CONSUL_PAGE, 200, ++faults->place->consul_index, "[]");
    return 0;
}

int consul_flaps(struct faults *faults)
{
    for (int i = 0; i < 4; i++) {
        place_list(faults->place, -1, 1 + draw_below(&faults->chance, 6));
        pause_us(20000);
        place_list(faults->place, -1, i % 2);
        pause_us(20000);
    }
    return 0;
}

int consul_noise(struct faults *faults)
{
    fake_consul_way(faults->place->consul, CONSUL_PAGE, FAKE_NOISE, 3);
    fake_consul_page(faults->place->consul, CONSUL_PAGE, 500, ++faults->place->consul_index, "[{\"Service\":");
    return 0;
}

int consul_is_well(struct faults *faults)
{
    fake_consul_way(faults->place->consul, CONSUL_PAGE, FAKE_CHUNKED, -1);
    place_list(faults->place, -1, 0);
    return 0;
}

/* ---- Policies, clocks, processes ---- */

int policies_smaller(struct faults *faults)
{
    return place_policies(faults->place, POLICIES_SMALL);
}

int policies_broken(struct faults *faults)
{
    return place_policies(faults->place, POLICIES_BROKEN);
}

int policies_as_before(struct faults *faults)
{
    return place_policies(faults->place, POLICIES_LARGE);
}

static uint32_t modes_with_own_clock(void)
{
    uint32_t modes = 0;
    for (int mode = 0; mode < MODES; mode++)
        modes |= soak_modes[mode].own_clock ? UINT32_C(1) << mode : 0;
    return modes;
}

static void clock_set(struct faults *faults, int64_t offset_us)
{
    _Atomic int64_t *offset = &faults->place->ledger->clock_offset_us;
    struct allowance step = { .start_us = now_us(), .kind = ALLOW_CLOCK, .modes = modes_with_own_clock() };
    /* the way back as well: a thread that read the old clock may ask last */
    step.forward_us = llabs(offset_us - atomic_load(offset));
    atomic_store(offset, offset_us);
    pause_us(CLOCK_READ_US);
    step.end_us = now_us();
    if (step.forward_us > 0)
        judge_allow(faults->place->judge, &step);
}

/* Step by whole seconds, so that windows stay on the clock's grid. */
int clock_steps(struct faults *faults)
{
    static const int64_t steps[] = { -3600, -5, -1, 1, 5, 3600 };
    clock_set(faults, steps[draw_below(&faults->chance, 6)] * WEIR_SECOND);
    return 0;
}

int clock_is_right(struct faults *faults)
{
    clock_set(faults, 0);
    return 0;
}

/* The first process is never killed: its memory is watched from start to end. */
int process_killed(struct faults *faults)
{
    faults->victim = 1 + draw_below(&faults->chance, PROCESSES - 1);
    faults_allow(faults, ALLOW_FORGOTTEN, modes_local(), 0);
    place_process_kill(faults->place, faults->victim);
    place_list(faults->place, faults->victim, 0);
    return 0;
}

int process_returns(struct faults *faults)
{
    place_list(faults->place, -1, 0);
    if (place_process_start(faults->place, faults->victim) != 0)
        return -1;
    return place_process_await(faults->place, faults->victim);
}

int process_stopped(struct faults *faults)
{
    faults->victim = draw_below(&faults->chance, PROCESSES);
    kill(faults->place->pids[faults->victim], SIGSTOP);
    return 0;
}

int process_goes_on(struct faults *faults)
{
    kill(faults->place->pids[faults->victim], SIGCONT);
    return 0;
}

/* Kill a process in an outage, and end the outage: no instance ever learns what that process admitted. */
int process_dies_owing(struct faults *faults)
{
    process_killed(faults);
    if (redis_returns(faults) != 0)
        return -1;
    return process_returns(faults);
}

/* Delay one process's return from an outage: the others cannot know what it admitted. */
int process_sleeps_owing(struct faults *faults)
{
    process_stopped(faults);
    const int failed = redis_returns(faults);
    pause_us(SLEEP_US);
    process_goes_on(faults);
    return failed;
}

int reopened(struct faults *faults)
{
    faults_allow(faults, ALLOW_REOPENED, modes_local(), 0);
    atomic_fetch_add(&faults->place->ledger->reopen, 1);
    for (int process = 0; process < PROCESSES; process++)
        if (place_process_await_reopened(faults->place, process) != 0)
            return -1;
    return 0;
}
