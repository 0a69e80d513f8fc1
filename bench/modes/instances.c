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
#define POLL_US 1000
#define BEGIN_US 10000 /* from the signal to the start: all have read it by then */
#define INTERRUPT_US (10 * WEIR_SECOND)

struct serving { /* an instance's limiter of one mode */
    struct remote remote;
    weir_limit *limits[INSTANCES_MAX_LIMITS];
};

struct instance {
    const struct instances *all;
    int number;
    struct serving serving[MODES];
    struct arrival **arrivals; /* its own, in the order of their due times */
    size_t arrivals_len;
};

static int64_t instances_now_us(void)
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

static void open_serving(struct instance *self, enum weir_mode mode)
{
    const struct instances *all = self->all;
    struct serving *serving = &self->serving[mode];
    struct weir_options options = remote_options(mode);
    int status = WEIR_OK;
    if (mode != WEIR_MACHINE) { /* there, all count together */
        options.instances = all->n;
        options.rank = self->number;
    }
    options.shared = all->shared;
    if (!remote_open(&serving->remote, all->modes->store, &options, all->limits[0].name, &all->limits[0].policy))
        instance_fail(self, modes_names[mode], remote_complaint());
    for (int i = 0; status == WEIR_OK && i < all->limits_len; i++)
        status = weir_limit_define(serving->remote.weir, all->limits[i].name, &all->limits[i].policy,
                                   &serving->limits[i]);
    if (status != WEIR_OK)
        instance_fail(self, modes_names[mode], weir_strerror(status));
}

static void tell_of_hybrid(const struct instance *self)
{
    struct instances_board *board = self->all->board;
    for (int i = 0; self->all->modes->is_chosen[WEIR_HYBRID] && i < self->all->limits_len; i++) {
        board->hybrid[i].size = sizeof board->hybrid[i];
        weir_limit_info(self->serving[WEIR_HYBRID].limits[i], &board->hybrid[i]);
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

static void instance_ask(const struct instance *self, struct arrival **due, size_t n, enum weir_mode mode)
{
    const struct serving *serving = &self->serving[mode];
    const struct instances_cell *cells = self->all->cells;
    const int64_t origin_us = atomic_load(&self->all->board->start_us);
    struct weir_request requests[BATCH_MAX];
    struct weir_decision decisions[BATCH_MAX];
    struct asked *asked[BATCH_MAX];
    for (size_t i = 0; i < n; i++) {
        const struct instances_cell *cell = &cells[due[i]->cell];
        asked[i] = &due[i]->asked[mode];
        requests[i] = (struct weir_request){ serving->limits[cell->limit], key_of(&cell->keys[mode]), 1, 0 };
    }
    const int64_t start_us = instances_now_us() - origin_us;
    const int status = weir_try_batch(serving->remote.weir, requests, n, decisions);
    const int64_t end_us = instances_now_us() - origin_us;
    if (status != WEIR_OK)
        instance_fail(self, modes_names[mode], weir_strerror(status));
    for (size_t i = 0; i < n; i++) {
        if ((serving->remote.sources >> decisions[i].source & 1) == 0)
            instance_fail(self, modes_names[mode], "a decision came from an unexpected source");
        *asked[i] = (struct asked){ start_us, end_us, true, decisions[i].allowed };
    }
}

static void serve_all(const struct instance *self)
{
    int64_t origin_us, left_us;
    while ((origin_us = atomic_load(&self->all->board->start_us)) == 0)
        sleep_us(POLL_US);
    for (size_t first = 0, end; first < self->arrivals_len; first = end) {
        while ((left_us = origin_us + self->arrivals[first]->due_us - instances_now_us()) > 0)
            sleep_us(left_us);
        const int64_t now_us = instances_now_us() - origin_us;
        for (end = first + 1; end < self->arrivals_len && end - first < BATCH_MAX; end++)
            if (self->arrivals[end]->due_us > now_us)
                break;
        for (int mode = 0; mode < MODES; mode++)
            if (self->all->modes->is_chosen[mode])
                instance_ask(self, self->arrivals + first, end - first, (enum weir_mode)mode);
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
    find_arrivals(&self);
    for (int mode = 0; mode < MODES; mode++)
        if (all->modes->is_chosen[mode])
            open_serving(&self, (enum weir_mode)mode);
    if (number == 0)
        tell_of_hybrid(&self);
    atomic_store(&all->board->is_ready[number], true);
    serve_all(&self);
    atomic_store(&all->board->has_served[number], true);
    while (!atomic_load(&all->board->is_over))
        sleep_us(POLL_US);
    for (int mode = 0; mode < MODES; mode++)
        if (all->modes->is_chosen[mode])
            remote_close(&self.serving[mode].remote);
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
    all->shared_fd = remote_shared(all->shared);
}

void instances_unmap(struct instances *all)
{
    munmap(all->arrivals, all->arrivals_len * sizeof *all->arrivals);
    munmap(all->board, sizeof *all->board);
    close(all->shared_fd);
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
    for (int i = 0; i < BENCH_MAX_INSTANCES; i++)
        if (all->pids[i] != 0)
            await_end(all, i, WNOHANG);
}

static void instances_start(struct instances *all, int number)
{
    const pid_t parent = getpid();
    fflush(NULL); /* or the child would write the parent's buffers, too */
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
    for (int i = 0; i < BENCH_MAX_INSTANCES; i++) {
        while (all->pids[i] != 0 && !atomic_load(&flags[i])) {
            look_after_all(all);
            sleep_us(POLL_US);
        }
    }
}

void instances_run(struct instances *all)
{
    for (int i = 0; i < all->n; i++)
        instances_start(all, i);
    await_flags(all, all->board->is_ready);
    atomic_store(&all->board->start_us, instances_now_us() + BEGIN_US);
    await_flags(all, all->board->has_served);
    atomic_store(&all->board->is_over, true);
    for (int i = 0; i < all->n; i++)
        await_end(all, i, 0);
}
