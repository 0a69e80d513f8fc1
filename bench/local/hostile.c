/* hostile.c - single decisions while 100 clients do their worst at the limiter's control socket.
 *
 * A third of the clients sends garbage, a third sends a request byte by byte, and a third asks for the longest answers
 * and does not read them. All come again as soon as they are thrown out. They are one process on the last processor,
 * which they keep busy; decisions run on the first. So each repetition has three turns: without clients; with the same
 * clients at the socket of another process, which shows what the clients themselves cost the machine; and with them at
 * the socket of the limiter that decides. The last divided by the second is what weir's socket adds.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "local/sections.h"
#include "measure/timer.h"

#define CLIENTS 100
#define KEYS 1000
#define TOP_KEYS 1024
#define LIMITS 200 /* for a long answer to `stats` */

enum turn { TURN_NONE, TURN_ELSEWHERE, TURN_HERE, TURNS };

static const char *const TURN_NAMES[TURNS] = { "none", "100, at another process", "100, at this limiter" };

/* What the processes share. */
struct hostile {
    _Atomic int turn;        /* an enum turn: whom the clients molest */
    _Atomic uint64_t rounds; /* of all clients */
    char folder[32], paths[TURNS][64];
};

static pid_t children[2]; /* the clients and the other process; not shared, because fork() returns in both */

static void hostile_rest(void)
{
    nanosleep(&(struct timespec){ .tv_nsec = 1000000 }, NULL);
}

/* ---- The clients ---- */

static int client_connect(const char *path)
{
    struct sockaddr_un address = { .sun_family = AF_UNIX };
    memcpy(address.sun_path, path, strlen(path) + 1);
    const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd >= 0 && connect(fd, (const struct sockaddr *)&address, sizeof address) == 0)
        return fd;
    if (fd >= 0)
        close(fd);
    return -1;
}

/* Do client `i`'s next step; false: its connection has ended. */
static bool client_step(int fd, int i, uint64_t round)
{
    char garbage[512];
    const char *long_ones[] = { "stats\n", "top 1024\n" };
    switch (i % 3) {
    case 0:
        memset(garbage, (int)(round % 255) + 1, sizeof garbage);
        return send(fd, garbage, sizeof garbage, MSG_NOSIGNAL) > 0 || errno == EAGAIN;
    case 1: return send(fd, &"stats "[round % 6], 1, MSG_NOSIGNAL) > 0 || errno == EAGAIN;
    default:
        if (round % 64 == 0) /* it has had enough: another one asks */
            return false;
        return send(fd, long_ones[i % 2], strlen(long_ones[i % 2]), MSG_NOSIGNAL) > 0 || errno == EAGAIN;
    }
}

static void clients_run(struct hostile *hostile)
{
    int fds[CLIENTS];
    memset(fds, -1, sizeof fds);
    for (int before = TURN_NONE;;) {
        const int turn = atomic_load(&hostile->turn);
        for (int i = 0; turn != before && i < CLIENTS; i++) {
            if (fds[i] >= 0)
                close(fds[i]);
            fds[i] = -1;
        }
        before = turn;
        const uint64_t round = atomic_load(&hostile->rounds);
        for (int i = 0; turn != TURN_NONE && i < CLIENTS; i++) {
            if (fds[i] >= 0 && !client_step(fds[i], i, round)) {
                close(fds[i]);
                fds[i] = -1;
            }
            if (fds[i] < 0)
                fds[i] = client_connect(hostile->paths[turn]);
        }
        atomic_store(&hostile->rounds, round + 1);
        if (turn == TURN_NONE)
            hostile_rest();
    }
}

/* ---- The processes ---- */

static void hostile_open_limiter(struct subject *subject, const char *path, enum answer answer)
{
    const struct weir_policy policy = { .limit = 1, .period_us = WEIR_SECOND };
    struct weir_options options = WEIR_OPTIONS_INIT;
    weir_limit *limit;
    options.control_socket = path;
    options.top_keys = TOP_KEYS;
    options.top_keys_in_clear = true;
    measure_unpin_main(); /* the limiter's threads may run anywhere */
    subject_open_with(subject, &options, KIND_TOKEN, answer, KEYS);
    for (int i = 0; i < LIMITS; i++) {
        char name[32];
        snprintf(name, sizeof name, "other-%d", i);
        bench_require(weir_limit_define(subject->weir, name, &policy, &limit), "weir_limit_define");
    }
    subject_fill(subject, answer, KEYS);
    measure_pin_main();
}

/* Start a process on the last processor that ends with this one. Return 0 in it. */
static pid_t hostile_fork(void)
{
    fflush(NULL); /* or the child would write the parent's buffers, too */
    const pid_t child = fork();
    if (child < 0)
        bench_fail("a child process could not be started");
    if (child == 0)
        prctl(PR_SET_PDEATHSIG, SIGKILL);
    else
        measure_pin_server(child);
    return child;
}

static struct hostile *hostile_start(enum answer answer)
{
    struct hostile *hostile = mmap(NULL, sizeof *hostile, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (hostile == MAP_FAILED)
        bench_fail("no memory");
    snprintf(hostile->folder, sizeof hostile->folder, "/tmp/weir-bench.XXXXXX");
    if (!mkdtemp(hostile->folder))
        bench_fail("cannot make a folder in /tmp");
    for (int turn = TURN_ELSEWHERE; turn < TURNS; turn++)
        snprintf(hostile->paths[turn], sizeof hostile->paths[turn], "%s/%d", hostile->folder, turn);
    children[0] = hostile_fork();
    if (children[0] == 0) {
        struct subject subject;
        hostile_open_limiter(&subject, hostile->paths[TURN_ELSEWHERE], answer);
        for (;;)
            pause();
    }
    children[1] = hostile_fork();
    if (children[1] == 0)
        clients_run(hostile);
    while (access(hostile->paths[TURN_ELSEWHERE], F_OK) != 0)
        hostile_rest();
    return hostile;
}

static void hostile_end(struct hostile *hostile)
{
    for (int i = 0; i < 2; i++) {
        kill(children[i], SIGKILL);
        waitpid(children[i], NULL, 0);
    }
    unlink(hostile->paths[TURN_ELSEWHERE]);
    rmdir(hostile->folder);
    munmap(hostile, sizeof *hostile);
}

/* Let the clients molest whom it is the turn of, and wait until they do. */
static void hostile_turn(struct hostile *hostile, int turn)
{
    atomic_store(&hostile->turn, turn);
    const uint64_t rounds = atomic_load(&hostile->rounds);
    while (atomic_load(&hostile->rounds) < rounds + 3)
        hostile_rest();
}

/* ---- The section ---- */

static void hostile_report(struct bench *bench, const struct timed *timed, enum answer answer)
{
    for (int turn = 0; turn < TURNS; turn++) {
        report_row(bench->report);
        report_text(bench->report, "clients", TURN_NAMES[turn]);
        report_text(bench->report, "answer", answer_name(answer));
        latency_report(bench->report, &timed[turn]);
        for (int to = 0; to < turn; to++) {
            const struct sample ratio = sample_ratio(&timed[turn].quantiles[2], &timed[to].quantiles[2]);
            report_sample(bench->report, to == TURN_NONE ? "p99.9 to none" : "p99.9 to another's", &ratio);
        }
    }
}

static void measure_hostile(struct bench *bench, enum answer answer)
{
    static struct timed timed[TURNS];
    struct subject subject;
    struct stream stream;
    bench_progress("hostile: %s", answer_name(answer));
    stream_make(&stream, KEYS, SKEW_ZIPF);
    struct hostile *hostile = hostile_start(answer);
    hostile_open_limiter(&subject, hostile->paths[TURN_HERE], answer);
    const uint64_t overhead_ticks = timer_overhead_ticks();
    for (int turn = 0; turn < TURNS; turn++)
        timed[turn] = (struct timed){ .work = subject_work, .subject = &subject };
    latency_run(&timed[0], &stream, bench->seconds / 4); /* warm up */
    for (int repeat = 0; repeat < bench->repeats; repeat++) {
        for (int i = 0; i < TURNS; i++) {
            const int turn = repeat % 2 == 0 ? i : TURNS - 1 - i;
            hostile_turn(hostile, turn);
            hist_clear(&timed[turn].hist);
            latency_run(&timed[turn], &stream, bench->seconds);
            latency_note(&timed[turn], overhead_ticks);
        }
    }
    hostile_turn(hostile, TURN_NONE);
    hostile_report(bench, timed, answer);
    subject_finish(&subject, KEYS);
    hostile_end(hostile);
    stream_free(&stream);
}

void bench_hostile(struct bench *bench)
{
    report_section(bench->report, "hostile",
                   "one decision at a time, fenced, token bucket, 1,000 keys (Zipf), top_keys=1024, with 100 hostile "
                   "clients at a control socket; median (min..max) of the repetitions, ratios in pairs");
    measure_hostile(bench, ANSWER_ALLOW);
    measure_hostile(bench, ANSWER_DENY);
    report_end_section(bench->report);
}
