/* main.c - the soak: all modes together, for as long as wanted, with a fault every few seconds. See soak.h and
 * --help.
 *
 * The first process forwards signals to a second one in another process group, which does the work. Otherwise Ctrl-C
 * on the terminal would end the servers under test first.
 */
#include "run.h"

#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define TURN_US 20000
#define JUDGE_US 3000000
#define LINE_US WEIR_MINUTE
#define LOOK_US WEIR_SECOND
#define BACK_US WEIR_SECOND        /* on top of the time in which errors are excused */
#define LONGER 6
#define WARM_US (60 * WEIR_SECOND) /* memory is not flat before that; for a short run, a fifth of it */

#if defined(UNDER_ASAN) || defined(UNDER_TSAN)
static const bool memory_tells = false; /* the sanitizer's memory, not weir's */
#else
static const bool memory_tells = true;
#endif

static volatile sig_atomic_t interrupted;

static void interrupt(int signal)
{
    (void)signal;
    interrupted = 1;
}

void run_mishap(struct run *run, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    if (run->mishaps < MISHAPS_MOST)
        vsnprintf(run->mishap[run->mishaps], sizeof run->mishap[0], format, list);
    va_end(list);
    run->mishaps++;
}

/* ---- Looks ---- */

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static void look(struct run *run)
{
    const int64_t at_us = now_us(), warm_us = least(WARM_US, run->wanted_us / 5);
    struct look seen;
    if (at_us - run->start_us < warm_us)
        return;
    for (int process = 0; process < PROCESSES; process++)
        if (at_us - run->place.since_us[process] > warm_us / 2 && flat_look(run->place.pids[process], &seen)) {
            seen.values[FLAT_HEAP] = (double)run->place.ledger->accounts[process].heap_bytes / 1024;
            flat_add(&run->flats[process], &seen);
        }
    if (flat_look(run->place.redis.daemon.pid, &seen))
        flat_add(&run->flats[FLAT_REDIS], &seen);
    if (flat_look(getpid(), &seen))
        flat_add(&run->flats[FLAT_JUDGE], &seen);
}

/* ---- The run ---- */

/* On a busy machine a short run goes on, for at most LONGER times as long, until enough looks can tell growth. */
static bool is_over(const struct run *run)
{
    const int64_t ran_us = now_us() - run->start_us;
    const bool tells = run->flats[0].n >= LOOKS_LEAST || ran_us >= LONGER * run->wanted_us;
    return interrupted || (ran_us >= run->wanted_us && tells);
}

/* Take and judge records until that time, or until the run is over. `calm`: no fault is active. Return false with a
 * sentence in run->place.error. */
static bool turn_until(struct run *run, int64_t until_us, bool calm)
{
    static int64_t judged_us, line_us, looked_us;
    /* the last fault's effects last until then */
    const int64_t calm_us = now_us() + least(run->lasts_us, (until_us - now_us()) / 2);
    for (int64_t at_us; (at_us = now_us()) < until_us && !is_over(run); pause_us(TURN_US)) {
        place_take(&run->place);
        if (at_us - judged_us > JUDGE_US) {
            judge_turn(run->place.judge, at_us, false, run->place.ledger->over_max);
            judged_us = at_us;
        }
        if (calm && at_us > calm_us && at_us - looked_us > least(LOOK_US, run->wanted_us / 100)) {
            look(run);
            looked_us = at_us;
        }
        line_us = line_us != 0 ? line_us : at_us;
        if (at_us - line_us > LINE_US) {
            report_line(run);
            line_us = at_us;
        }
        if (place_processes_run(&run->place) != 0)
            return false;
    }
    return true;
}

static bool start_processes(struct run *run)
{
    int failed = 0;
    for (int process = 0; process < PROCESSES && failed == 0; process++)
        failed = place_process_start(&run->place, process);
    for (int process = 0; process < PROCESSES && failed == 0; process++)
        failed = place_process_await(&run->place, process);
    if (failed != 0)
        run_mishap(run, "%s", run->place.error);
    place_calms_down(&run->place);
    if (failed == 0)
        printf("all are up; for %.1f minutes, with a fault every %.1f s, seed %" PRIu64 "\n",
               (double)run->wanted_us / 60e6, (double)run->every_us / 1e6, run->seed);
    fflush(stdout);
    return failed == 0;
}

/* Once no fault is active, Redis must decide every request again. */
static bool await_all_back(struct run *run, int64_t until_us)
{
    int64_t before[PROCESSES][MODES];
    struct account *accounts = run->place.ledger->accounts;
    for (int i = 0; i < PROCESSES * MODES; i++)
        before[i / MODES][i % MODES] = accounts[i / MODES].tallies[i % MODES].by_store;
    const int64_t start_us = now_us();
    const bool good = turn_until(run, until_us, true), lasted = now_us() - start_us >= BACK_US;
    for (int i = 0; i < PROCESSES * MODES && good && lasted; i++)
        if (mode_asks_redis(i % MODES) && is_run(run, i % MODES) &&
            accounts[i / MODES].tallies[i % MODES].by_store == before[i / MODES][i % MODES])
            run_mishap(run, "%s in process %d is not back at Redis, long after: %s", soak_modes[i % MODES].name,
                       i / MODES, run->faults.last < 0 ? "the start" : fault_name(run->faults.last));
    return good;
}

static void run_through(struct run *run)
{
    bool good = start_processes(run);
    run->start_us = now_us();
    for (int64_t begin_us = run->start_us; good; begin_us += run->every_us) {
        const int64_t next_us = begin_us + run->every_us, calm_us = run->place.ledger->trouble_until_us;
        good = turn_until(run, least(calm_us, next_us), true);
        good = good && await_all_back(run, next_us);
        if (good && is_over(run))
            break;
        good = good && faults_begin(&run->faults) == 0 && turn_until(run, now_us() + run->lasts_us, false);
        if (!good)
            run_mishap(run, "%s", run->place.error);
        if (faults_end(&run->faults) != 0) {
            run_mishap(run, "%s", run->place.error);
            good = false;
        }
        if (begin_us + 2 * run->every_us < now_us()) /* the return took long */
            begin_us = now_us() - run->every_us;
    }
}

static void end(struct run *run)
{
    atomic_store(&run->place.ledger->over, true);
    for (int process = 0; process < PROCESSES; process++)
        if (place_process_end(&run->place, process) != 0)
            run_mishap(run, "%s", run->place.error);
    place_take(&run->place);
    judge_turn(run->place.judge, now_us(), true, run->place.ledger->over_max);
    run->end_us = now_us();
    stored_check(run);
    if (run->place.ledger->planted & PLANT_ORPHAN && fork() == 0) {
        pause();
        _exit(0);
    }
}

/* Report and kill any process that has not ended. */
static void await_nobody(struct run *run)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/self/task/%d/children", (int)getpid());
    FILE *file = fopen(path, "re");
    for (int pid; file != NULL && fscanf(file, "%d", &pid) == 1;) {
        run_mishap(run, "process %d was started and is there still", pid);
        kill(pid, SIGKILL);
        waitpid(pid, NULL, 0);
    }
    if (file != NULL)
        fclose(file);
    if (waitpid(-1, NULL, WNOHANG) != -1 || errno != ECHILD)
        run_mishap(run, "there are processes left that nobody waited for");
}

static int run_all(struct run *run, struct ledger *ledger, int ledger_fd)
{
    static const char *const names[FLATS] = { "0", "1", "2", "Redis", "judge" };
    policies_read();
    for (int i = 0; i < FLATS; i++) {
        run->flats[i].name = names[i];
        run->flats[i].is_one_life = i == FLAT_REDIS || (i == 0 && memory_tells);
        run->flats[i].is_judged =
            i != FLAT_JUDGE; /* the judge's process keeps more the longer it runs, and half of all connections */
    }
    if (place_start(&run->place, ledger, ledger_fd, run->with_cluster) != 0) {
        fprintf(stderr, "soak: %s\n", run->place.error);
        return 1;
    }
    faults_init(&run->faults, &run->place, run->seed);
    if (run->only != NULL && !faults_only(&run->faults, run->only)) {
        fprintf(stderr, "soak: there is no fault \"%s\"; there are:\n", run->only);
        for (int fault = 0; fault < faults_count(); fault++)
            fprintf(stderr, "    %s\n", fault_name(fault));
        place_stop(&run->place);
        return 2;
    }
    run_through(run);
    end(run);
    struct judge *judge = run->place.judge; /* only the report still needs it */
    run->place.judge = NULL;
    place_stop(&run->place);
    run->place.judge = judge;
    await_nobody(run);
    const bool good = report(run);
    judge_free(judge);
    return good ? 0 : 1;
}

/* ---- Arguments ---- */

static const char usage[] =
    "usage: soak [--minutes N | --seconds N] [--seed N] [--every-ms N] [--lasts-ms N] [--pace-us N] [--only FAULT]\n"
    "            [--no-cluster] [--log] [--plant DEFECT]...\n"
    "Runs every mode on a private Redis, a cluster and a stand-in for Consul for 10 minutes or as long as is said, with a\n"
    "fault every 10 s (--every-ms) that lasts 3 (--lasts-ms, at most 8000), and says whether all was as promised. Ctrl-C ends it\n"
    "early, in order. --seed repeats the order of the faults, --only has one of them alone. --pace-us: pauses of up to\n"
    "so long between the calls of a thread. --log: the log lines of all limiters, on stderr. --plant makes a defect,\n"
    "which must be found: memory, descriptors, threads, permits, stats, errors, immortal, orphan;\n"
    "or nothing-allowed: the faults themselves are taken for defects.\n"
    "Exit status: 0 all was as promised, 1 it was not, 2 wrong arguments, 77 no Redis server was found.\n";

static bool read_number(const char *text, int64_t least_value, int64_t most, int64_t *out)
{
    char *end = NULL;
    errno = 0;
    const long long value = strtoll(text, &end, 10);
    if (end == text || *end != '\0' || errno != 0 || value < least_value || value > most)
        return false;
    *out = value;
    return true;
}

static bool read_plant(const char *word, unsigned *planted)
{
    static const char *const words[] = { "memory", "descriptors", "threads", "permits",        "stats",
                                         "errors", "immortal",    "orphan",  "nothing-allowed" };
    for (unsigned i = 0; i < sizeof words / sizeof *words; i++)
        if (strcmp(words[i], word) == 0) {
            *planted |= 1U << i;
            return true;
        }
    return false;
}

static bool read_arguments(int argc, char **argv, struct run *run)
{
    static const struct option options[] = {
        { "minutes", required_argument, NULL, 'm' },
        { "seconds", required_argument, NULL, 's' },
        { "seed", required_argument, NULL, 'r' },
        { "every-ms", required_argument, NULL, 'e' },
        { "lasts-ms", required_argument, NULL, 'l' },
        { "pace-us", required_argument, NULL, 'p' },
        { "only", required_argument, NULL, 'o' },
        { "no-cluster", no_argument, NULL, 'c' },
        { "log", no_argument, NULL, 'v' },
        { "plant", required_argument, NULL, 'x' },
        { "help", no_argument, NULL, 'h' },
        { NULL, 0, NULL, 0 },
    };
    int64_t number = 0;
    bool good = true;
    for (int option; good && (option = getopt_long(argc, argv, "", options, NULL)) != -1;) {
        switch (option) {
        case 'm':
            good = read_number(optarg, 1, 100000, &number);
            run->wanted_us = number * WEIR_MINUTE;
            break;
        case 's':
            good = read_number(optarg, 1, 1000000, &number);
            run->wanted_us = number * WEIR_SECOND;
            break;
        case 'r':
            good = read_number(optarg, 0, INT64_MAX, &number);
            run->seed = (uint64_t)number;
            break;
        case 'e':
            good = read_number(optarg, 100, 3600000, &number);
            run->every_us = number * 1000;
            break;
        case 'l':
            good = read_number(optarg, 10, 8000, &number);
            run->lasts_us = number * 1000;
            break;
        case 'p': good = read_number(optarg, 100, 1000000, &run->pace_us); break;
        case 'o': run->only = optarg; break;
        case 'c': run->with_cluster = false; break;
        case 'v': run->tells = true; break;
        case 'x': good = read_plant(optarg, &run->planted); break;
        default: return false;
        }
        if (!good)
            fprintf(stderr, "soak: \"%s\" is not what it takes there\n", optarg);
    }
    return good && optind == argc;
}

/* ---- Two processes ---- */

static int work(struct run *run)
{
    int ledger_fd;
    struct ledger *ledger = ledger_make(&ledger_fd);
    if (ledger == NULL)
        return 1;
    ledger->planted = run->planted;
    ledger->pace_us = run->pace_us;
    ledger->tells = run->tells;
    ledger->seed = run->seed;
    return run_all(run, ledger, ledger_fd);
}

static pid_t worker;

static void hand_on(int signal)
{
    (void)signal;
    kill(worker, SIGINT);
}

static int work_apart(struct run *run)
{
    const struct sigaction ending = { .sa_handler = interrupt }, handing_on = { .sa_handler = hand_on };
    const pid_t parent = getpid();
    sigset_t both, before;
    int status;
    sigemptyset(&both);
    sigaddset(&both, SIGINT);
    sigaddset(&both, SIGTERM);
    sigprocmask(SIG_BLOCK, &both, &before);
    worker = fork();
    if (worker < 0) {
        perror("soak: fork");
        return 1;
    }
    sigaction(SIGINT, worker == 0 ? &ending : &handing_on, NULL);
    sigaction(SIGTERM, worker == 0 ? &ending : &handing_on, NULL);
    if (worker == 0) {
        setpgid(0, 0);
        prctl(PR_SET_PDEATHSIG, SIGINT);
        if (getppid() != parent)
            exit(1);
        sigprocmask(SIG_SETMASK, &before, NULL);
        exit(work(run));
    }
    sigprocmask(SIG_SETMASK, &before, NULL);
    while (waitpid(worker, &status, 0) < 0 && errno == EINTR)
        continue;
    if (WIFEXITED(status))
        return WEXITSTATUS(status);
    fprintf(stderr, "soak: ended by signal %d\n", WTERMSIG(status));
    return 1;
}

int main(int argc, char **argv)
{
    static struct run run = { .wanted_us = 10 * WEIR_MINUTE,
                              .every_us = 10 * WEIR_SECOND,
                              .lasts_us = 3 * WEIR_SECOND,
                              .pace_us = 3000,
                              .with_cluster = true };
    if (argc == 4 && strcmp(argv[1], "--process") == 0) { /* started by this program */
        struct ledger *ledger = ledger_open(LEDGER_FD);
        policies_read();
        return ledger != NULL ? instance_run(ledger, atoi(argv[2]), atoi(argv[3])) : 1;
    }
    run.seed = (uint64_t)now_us() % 1000000;
    if (!read_arguments(argc, argv, &run)) {
        fputs(usage, argc == 2 && strcmp(argv[1], "--help") == 0 ? stdout : stderr);
        return argc == 2 && strcmp(argv[1], "--help") == 0 ? 0 : 2;
    }
    if (redis_server_missing())
        return 77;
    return work_apart(&run);
}
