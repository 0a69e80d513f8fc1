/* instances.c - real processes that share limits: see instances.h. */
#include "modes/instances.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "measure/timer.h"
#include "redis/user_store.h"

#define BATCH_MAX 64
#define BEAT_US 20000 /* the longest time between two signs of life, calls to Redis aside */
#define POLL_US 1000
#define BEGIN_US 10000 /* from the signal to the start: all have read it by then */
#define READY_MOST_US (20 * WEIR_SECOND)
#define INTERRUPT_US (10 * WEIR_SECOND)
#define CLOCKS 2

struct wrong_clock {
    int64_t base_us, since_us; /* its value at that time of the monotonic clock */
    int64_t ppm;               /* how fast it runs */
};

struct serving { /* an instance's limiter of one mode */
    struct remote remote;
    weir_limit *limits[INSTANCES_MAX_LIMITS];
};

struct instance {
    const struct instances *all;
    int number;
    struct wrong_clock clock;
    struct serving serving[CLOCKS][MODES]; /* by whether its clock is wrong */
    struct arrival **arrivals;             /* its own, in the order of their due times */
    size_t arrivals_len;
};

int64_t instances_now_us(void)
{
    return clock_ns(CLOCK_MONOTONIC) / 1000;
}

static void sleep_us(int64_t us)
{
    const struct timespec time = { .tv_sec = us / WEIR_SECOND, .tv_nsec = us % WEIR_SECOND * 1000 };
    nanosleep(&time, NULL);
}

/* ---- An instance ---- */

__attribute__((noreturn)) static void instance_fail(const struct instance *self, const char *what, const char *why)
{
    bench_say("instance %d: %s: %s", self->number + 1, what, why);
    _exit(2);
}

static void beat(const struct instance *self)
{
    atomic_store(&self->all->board->beat_us[self->number], instances_now_us());
}

static int64_t wrong_now_us(void *user)
{
    const struct wrong_clock *clock = user;
    const int64_t passed_us = instances_now_us() - clock->since_us;
    return clock->base_us + passed_us + passed_us * clock->ppm / 1000000;
}

static void set_clock(struct instance *self)
{
    static const int64_t fast_ppm[] = { INSTANCES_CLOCK_PPM, 0, -INSTANCES_CLOCK_PPM };
    const int64_t hours = self->number - (self->all->n - 1) / 2;
    self->clock = (struct wrong_clock){ .base_us = clock_ns(CLOCK_REALTIME) / 1000 + hours * WEIR_HOUR,
                                        .since_us = instances_now_us(),
                                        .ppm = fast_ppm[self->number % 3] };
}

static void open_serving(struct instance *self, bool clock_is_wrong, enum weir_mode mode)
{
    const struct instances *all = self->all;
    struct serving *serving = &self->serving[clock_is_wrong][mode];
    struct weir_options options = remote_options(mode);
    int status = WEIR_OK;
    options.instances = all->n;
    options.rank = self->number;
    if (clock_is_wrong) {
        options.now_us = wrong_now_us;
        options.user = &self->clock;
    }
    if (all->adjust)
        all->adjust(all, self->number, &options);
    if (!remote_open(&serving->remote, all->modes->store, &options, all->limits[0].name, &all->limits[0].policy)) {
        remote_report_missing(all->modes->bench);
        instance_fail(self, modes_names[mode], "its limiter cannot be opened");
    }
    for (int i = 0; status == WEIR_OK && i < all->limits_len; i++)
        status = weir_limit_define(serving->remote.weir, all->limits[i].name, &all->limits[i].policy,
                                   &serving->limits[i]);
    if (status != WEIR_OK)
        instance_fail(self, modes_names[mode], weir_strerror(status));
}

static void instance_open(struct instance *self)
{
    const struct instances *all = self->all;
    bool clocks_differ = false;
    for (int i = 0; i < all->cells_len; i++)
        clocks_differ = clocks_differ || all->cells[i].clocks_differ;
    set_clock(self);
    for (int clock = 0; clock <= (int)clocks_differ; clock++)
        for (int mode = 0; mode < MODES; mode++)
            if (all->modes->is_chosen[mode])
                open_serving(self, clock == 1, (enum weir_mode)mode);
}

static void instance_close(struct instance *self)
{
    for (int clock = 0; clock < CLOCKS; clock++)
        for (int mode = 0; mode < MODES; mode++)
            if (self->serving[clock][mode].remote.weir)
                remote_close(&self->serving[clock][mode].remote);
}

/* Wait until shares apply, for an instance that follows peers from the start. */
static void await_shares(const struct instance *self)
{
    const int64_t since_us = instances_now_us();
    for (int mode = 0; mode < MODES; mode++) {
        weir *limiter = self->serving[0][mode].remote.weir;
        while (limiter && weir_await_ready(limiter, BEAT_US) == WEIR_ETIME) {
            beat(self);
            if (instances_now_us() - since_us > READY_MOST_US)
                instance_fail(self, modes_names[mode], "its share is not known");
        }
    }
}

static void tell_of_hybrid(const struct instance *self)
{
    struct instances_board *board = self->all->board;
    for (int i = 0; self->all->modes->is_chosen[WEIR_HYBRID] && i < self->all->limits_len; i++) {
        board->hybrid[i].size = sizeof board->hybrid[i];
        weir_limit_info(self->serving[0][WEIR_HYBRID].limits[i], &board->hybrid[i]);
    }
}

static void find_arrivals(struct instance *self)
{
    const struct instances *all = self->all;
    self->arrivals = malloc((all->arrivals_len + 1) * sizeof(struct arrival *));
    if (!self->arrivals)
        instance_fail(self, "its requests", "no memory");
    for (size_t i = 0; i < all->arrivals_len; i++)
        if (all->arrivals[i].instance == self->number)
            self->arrivals[self->arrivals_len++] = &all->arrivals[i];
}

static void instance_ask(const struct instance *self, struct arrival **due, size_t n, bool clock_is_wrong,
                         enum weir_mode mode)
{
    const struct serving *serving = &self->serving[clock_is_wrong][mode];
    const struct instances_cell *cells = self->all->cells;
    const int64_t origin_us = atomic_load(&self->all->board->start_us);
    struct weir_request requests[BATCH_MAX];
    struct weir_decision decisions[BATCH_MAX];
    struct asked *asked[BATCH_MAX];
    size_t len = 0;
    for (size_t i = 0; i < n; i++) {
        const struct instances_cell *cell = &cells[due[i]->cell];
        if (cell->clocks_differ != clock_is_wrong)
            continue;
        asked[len] = &due[i]->asked[mode];
        requests[len++] = (struct weir_request){ serving->limits[cell->limit], weir_key(&cell->keys[mode], KEY_LEN), 1,
                                                 0 };
    }
    if (len == 0)
        return;
    const int64_t start_us = instances_now_us() - origin_us;
    const int status = weir_try_batch(serving->remote.weir, requests, len, decisions);
    const int64_t end_us = instances_now_us() - origin_us;
    if (status != WEIR_OK)
        instance_fail(self, modes_names[mode], weir_strerror(status));
    for (size_t i = 0; i < len; i++) {
        if ((serving->remote.sources >> decisions[i].source & 1) == 0)
            instance_fail(self, modes_names[mode], "a decision came from an unexpected source");
        *asked[i] = (struct asked){ start_us, end_us, true, decisions[i].allowed };
    }
}

static void await_us(const struct instance *self, int64_t until_us)
{
    int64_t now_us;
    while ((now_us = instances_now_us()) < until_us) {
        beat(self);
        sleep_us(until_us - now_us < BEAT_US ? until_us - now_us : BEAT_US);
    }
    beat(self);
}

static void serve_all(const struct instance *self)
{
    int64_t origin_us;
    while ((origin_us = atomic_load(&self->all->board->start_us)) == 0) {
        beat(self);
        sleep_us(POLL_US);
    }
    for (size_t first = 0, end; first < self->arrivals_len; first = end) {
        await_us(self, origin_us + self->arrivals[first]->due_us);
        const int64_t now_us = instances_now_us() - origin_us;
        for (end = first + 1; end < self->arrivals_len && end - first < BATCH_MAX; end++)
            if (self->arrivals[end]->due_us > now_us)
                break;
        for (int clock = 0; clock < CLOCKS; clock++)
            for (int mode = 0; mode < MODES; mode++)
                if (self->all->modes->is_chosen[mode])
                    instance_ask(self, self->arrivals + first, end - first, clock == 1, (enum weir_mode)mode);
    }
}

/* Become independent of the parent's cleanup on interrupts, and die with the parent. */
static void mind_parent(pid_t parent)
{
    sigset_t none;
    sigemptyset(&none);
    signal(SIGINT, SIG_DFL);
    signal(SIGTERM, SIG_DFL);
    pthread_sigmask(SIG_SETMASK, &none, NULL);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent)
        _exit(2);
}

static void be_instance(const struct instances *all, int number, pid_t parent)
{
    struct instance self = { .all = all, .number = number };
    mind_parent(parent);
    measure_unpin_main();
    prctl(PR_SET_TIMERSLACK, 1UL);
    beat(&self);
    find_arrivals(&self);
    instance_open(&self);
    if (atomic_load(&all->board->start_us) == 0)
        await_shares(&self);
    if (number == 0)
        tell_of_hybrid(&self);
    atomic_store(&all->board->is_ready[number], true);
    serve_all(&self);
    atomic_store(&all->board->has_served[number], true);
    while (!atomic_load(&all->board->is_over)) {
        beat(&self);
        sleep_us(POLL_US);
    }
    instance_close(&self);
    free(self.arrivals);
}

/* ---- All of them ---- */

static void *map_shared(size_t size)
{
    void *map = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (map == MAP_FAILED)
        bench_fail("processes that share a limit: no shared memory");
    return map;
}

uint64_t instances_keys(int cells, int runs)
{
    return (uint64_t)runs * (uint64_t)cells * MODES;
}

void instances_map(struct instances *all, size_t arrivals)
{
    uint64_t key = instances_keys(all->cells_len, all->run);
    for (int i = 0; i < all->cells_len; i++)
        for (int mode = 0; mode < MODES; mode++)
            key_write(key++, &all->cells[i].keys[mode]);
    all->arrivals_len = arrivals;
    all->arrivals = map_shared(arrivals * sizeof *all->arrivals);
    all->board = map_shared(sizeof *all->board);
}

void instances_unmap(struct instances *all)
{
    munmap(all->arrivals, all->arrivals_len * sizeof *all->arrivals);
    munmap(all->board, sizeof *all->board);
}

/* Note the end of a process, if it has ended or `flags` say to wait. If it failed, so does the program. */
static void await_end(struct instances *all, int number, int flags)
{
    int status = 0;
    pid_t ended;
    while ((ended = waitpid(all->pids[number], &status, flags)) < 0 && errno == EINTR)
        continue;
    if (ended == 0)
        return;
    all->pids[number] = 0;
    if (ended > 0 && WIFSIGNALED(status) && WTERMSIG(status) == SIGINT)
        sleep_us(
            INTERRUPT_US); /* the interrupt went to all of them: the thread that handles it here ends the program */
    if (ended < 0 || !WIFEXITED(status) || WEXITSTATUS(status) != 0 || !atomic_load(&all->board->is_over))
        bench_fail("processes that share a limit: one of them has ended early");
}

static void look_after_all(struct instances *all)
{
    user_store_heed_interrupt();
    for (int i = 0; i < TRAFFIC_MAX_INSTANCES; i++)
        if (all->pids[i] != 0)
            await_end(all, i, WNOHANG);
}

void instances_start(struct instances *all, int number)
{
    const pid_t parent = getpid();
    fflush(NULL); /* or the child would write the parent's buffers, too */
    atomic_store(&all->board->beat_us[number], instances_now_us());
    all->pids[number] = fork();
    if (all->pids[number] < 0)
        bench_fail("processes that share a limit: one of them cannot be started");
    if (all->pids[number] != 0)
        return;
    be_instance(all, number, parent);
    _exit(0);
}

/* Wait until every running process has raised its flag. */
static void await_flags(struct instances *all, const atomic_bool *flags)
{
    for (int i = 0; i < TRAFFIC_MAX_INSTANCES; i++) {
        while (all->pids[i] != 0 && !atomic_load(&flags[i])) {
            look_after_all(all);
            sleep_us(POLL_US);
        }
    }
}

void instances_begin(struct instances *all)
{
    await_flags(all, all->board->is_ready);
    atomic_store(&all->board->start_us, instances_now_us() + BEGIN_US);
}

void instances_await(struct instances *all, int64_t after_us)
{
    int64_t left_us;
    while ((left_us = atomic_load(&all->board->start_us) + after_us - instances_now_us()) > 0) {
        look_after_all(all);
        sleep_us(left_us < BEAT_US ? left_us : BEAT_US);
    }
}

void instances_kill(struct instances *all, int number)
{
    if (all->pids[number] <= 0)
        bench_fail("processes that share a limit: the one to be killed has ended by itself");
    kill(all->pids[number], SIGKILL);
    while (waitpid(all->pids[number], NULL, 0) < 0 && errno == EINTR)
        continue;
    all->pids[number] = 0;
}

void instances_finish(struct instances *all)
{
    await_flags(all, all->board->has_served);
    atomic_store(&all->board->is_over, true);
    for (int i = 0; i < TRAFFIC_MAX_INSTANCES; i++)
        if (all->pids[i] != 0)
            await_end(all, i, 0);
}
