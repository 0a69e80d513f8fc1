/* test_machine_storm.c - eight processes use a file, and each of them is killed after a millisecond, on average, at
 * whatever instruction it is: every count stays exact, no process blocks, and nothing is damaged.
 *
 * The judge is a ledger in other memory. Before each decision a process writes there what it is about to do, and
 * afterwards the answer.
 *
 * Four keys are a process's own. It checks each answer about them. When it is killed, its successor begins by looking
 * at them: each must be as the ledger says, or as the decision that was under way leaves it. All processes use eight
 * more keys. Of these the ledger knows the permits in use up to the decisions under way when a process was killed, so
 * it is balanced after 50 deaths. All keys are in one stripe, so all processes share its lock, journal and
 * cells. Short keys have few homes, so they take each other's places.
 *
 * In a second storm the processes come in pairs: one opens the file and forks the other. The opener is killed, also while
 * it opens the file; the other makes some more decisions, which would take for ever if a dead opener seemed to live, and
 * kills itself. When no process is left, the judge opens the file.
 *
 * A process has a timer of the kernel kill it. If the test did it, the process would first wait for a processor to die
 * on, and so there would be few deaths. One in eight is killed by the test, while it begins to use the file.
 */
#include "homes.h"
#include "shared_file.h"

#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum {
    PROCESSES = 8,
    OWN = 4,
    SHARED = 8,
    LIMIT = 30,
    ROUND = 50,
    MOST_LIFE_US = 2000,
    MOST_BEGINNING_US = 300,
    MOST_OPENING_US = 3000,
    MOST_ACTS_OF_CHILD = 100,
    NONE = -1
};

/* The answers that a process received. Its successor continues with them, so each word has one writer. */
struct told {
    _Atomic int64_t used[OWN];         /* permits in use of its private keys */
    _Atomic int64_t then[OWN];         /* what the decision under way makes of that if it is admitted, or NONE */
    _Atomic int64_t net[SHARED];       /* permits admitted of the shared keys, less those refunded */
    _Atomic int64_t key, change;       /* what is under way there: the key, or NONE */
    _Atomic int64_t decisions, broken; /* answers about its own keys that were wrong */
    _Atomic bool looks;                /* it has not looked at its own keys yet */
};

struct storm {
    struct told told[PROCESSES];
    weir_limit *limit;
    struct chance chance;
    pid_t children[PROCESSES];          /* 0: none */
    int64_t kills, amid;                /* those amid a decision */
    int64_t more[SHARED], less[SHARED]; /* the judge's: permits of decisions whose answer was lost */
};

/* Numbers in the names of keys, by which the short ones of a process have the same home, and so have those that all
 * use. The last row is for these. */
static uint32_t rivals[PROCESSES + 1][SHARED];

/* Every fourth key is long. */
static struct weir_key key_of(int process, int number, char text[128])
{
    const uint32_t rival = rivals[process == NONE ? PROCESSES : process][number];
    const char *tail = number % 4 == 0
                           ? ", a key of three cells: 012345678901234567890123456789012345678901234567890123"
                           : "";
    const int len = process == NONE ? snprintf(text, 128, "shared %d%s/%u", number, tail, (unsigned)rival)
                                    : snprintf(text, 128, "own %d of %d%s/%u", number, process, tail, (unsigned)rival);
    return weir_key(text, (size_t)len);
}

/* Make short keys rivals of the first one. */
static void keys_make_rivals(const weir_limit *limit, int process, int n)
{
    char text[128], first[128];
    for (int i = 2; i < n; i++) {
        const struct weir_key key = key_of(process, i, text);
        *strrchr(text, '/') = '\0';
        if (key.len <= 32)
            rivals[process == NONE ? PROCESSES : process][i] = rival_number(limit, key_of(process, 1, first), text);
    }
}

/* ---- A process ---- */

static void own_begins(struct told *told, int number, int64_t then)
{
    told->then[number] = then;
}

/* The decision has left `used` permits in use. */
static void own_ends(struct told *told, int number, int64_t used)
{
    told->used[number] = used;
    told->then[number] = NONE;
}

static void own_take(struct told *told, weir_limit *limit, int number, struct weir_key key, int64_t cost)
{
    struct weir_decision decision;
    const int64_t used = told->used[number];
    own_begins(told, number, used + cost);
    if (weir_try(limit, key, cost, &decision) != WEIR_OK)
        _exit(3);
    const bool expected = used + cost <= LIMIT;
    told->broken += decision.allowed != expected || decision.remaining != LIMIT - used - (expected ? cost : 0);
    own_ends(told, number, expected ? used + cost : used);
}

/* Take a permit of two keys, or of none. */
static void own_group(struct told *told, weir_limit *limit, int process)
{
    char texts[2][128];
    struct weir_decision decision;
    struct weir_request requests[2];
    bool expected = true;
    for (int i = 0; i < 2; i++) {
        requests[i] = (struct weir_request){ .limit = limit, .key = key_of(process, i, texts[i]), .cost = 1 };
        expected = expected && told->used[i] < LIMIT;
    }
    for (int i = 0; i < 2; i++)
        own_begins(told, i, told->used[i] + 1);
    if (weir_try_all(limit->limiter, requests, 2, &decision) != WEIR_OK)
        _exit(3);
    told->broken += decision.allowed != expected;
    for (int i = 0; i < 2; i++)
        own_ends(told, i, told->used[i] + expected);
}

static void own_act(struct told *told, weir_limit *limit, int process, struct chance *chance)
{
    char text[128];
    const int number = (int)chance_between(chance, 0, OWN - 1);
    const struct weir_key key = key_of(process, number, text);
    const int64_t used = told->used[number], cost = chance_between(chance, 1, 4);
    switch (chance_between(chance, 0, 7)) {
    case 0: own_group(told, limit, process); break;
    case 1:
        own_begins(told, number, 0);
        if (weir_reset(limit, key) != WEIR_OK)
            _exit(3);
        own_ends(told, number, 0);
        break;
    case 2:
    case 3:
        own_begins(told, number, used > cost ? used - cost : 0);
        if (weir_refund(limit, key, cost) != WEIR_OK)
            _exit(3);
        own_ends(told, number, used > cost ? used - cost : 0);
        break;
    default: own_take(told, limit, number, key, cost);
    }
}

static void shared_act(struct told *told, weir_limit *limit, struct chance *chance)
{
    char text[128];
    struct weir_decision decision = { .allowed = true };
    const int number = (int)chance_between(chance, 0, SHARED - 1);
    const struct weir_key key = key_of(NONE, number, text);
    const bool refunds = told->net[number] > 0 && chance_one_in(chance, 2);
    told->change = refunds ? -1 : 1;
    told->key = number;
    if ((refunds ? weir_refund(limit, key, 1) : weir_try(limit, key, 1, &decision)) != WEIR_OK)
        _exit(3);
    if (decision.allowed)
        told->net[number] += told->change;
    told->key = NONE;
}

static int64_t used_of(weir_limit *limit, struct weir_key key)
{
    struct weir_decision decision;
    must_succeed(weir_peek(limit, key, 1, &decision));
    return LIMIT - decision.remaining;
}

/* Look at the own keys of a process that was killed. */
static void own_look(struct told *told, weir_limit *limit, int process)
{
    for (int i = 0; i < OWN; i++) {
        char text[128];
        const int64_t used = used_of(limit, key_of(process, i, text)), was = told->used[i], then = told->then[i];
        if (used != was && (then == NONE || used != then)) {
            fprintf(stderr, "key %d of %d: %" PRId64 " used, neither %" PRId64 " nor %" PRId64 "\n", i, process, used,
                    was, then);
            told->broken++;
        }
        own_ends(told, i, used);
    }
    told->looks = false;
}

/* Have the kernel kill this process at any moment within MOST_LIFE_US. */
static void process_doom(struct chance *chance)
{
    struct sigevent event = { .sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGKILL };
    const struct itimerspec life = { .it_value.tv_nsec = 1000 * chance_between(chance, 1, MOST_LIFE_US) };
    timer_t timer;
    if (timer_create(CLOCK_MONOTONIC, &event, &timer) != 0 || timer_settime(timer, 0, &life, NULL) != 0)
        _exit(4);
}

static void process_act(struct told *told, weir_limit *limit, int process, struct chance *chance, int64_t n)
{
    for (; n > 0; n--, told->decisions++)
        if (chance_one_in(chance, 2))
            own_act(told, limit, process, chance);
        else
            shared_act(told, limit, chance);
}

static void process_start(struct storm *storm, int process)
{
    const bool begins_only = chance_one_in(&storm->chance, 8);
    const uint64_t stream = chance_next(&storm->chance);
    struct told *told = &storm->told[process];
    told->looks = true;
    const pid_t child = fork();
    must(child >= 0, "a process starts");
    if (child > 0) {
        storm->children[process] = child;
        if (begins_only) {
            nanosleep(&(struct timespec){ .tv_nsec = 1000 * chance_between(&storm->chance, 0, MOST_BEGINNING_US) },
                      NULL);
            must(kill(child, SIGKILL) == 0, "it is killed");
        }
        return;
    }
    struct chance chance = chance_make(stream);
    own_look(told, storm->limit, process);
    process_doom(&chance);
    process_act(told, storm->limit, process, &chance, INT64_MAX);
}

/* Start a process that opens the file and forks another one. */
static void pair_start(struct storm *storm, int process, const struct weir_options *options, const char *policy)
{
    const bool opens_only = chance_one_in(&storm->chance, 4);
    const uint64_t stream = chance_next(&storm->chance);
    struct told *told = &storm->told[process];
    told[0].looks = told[1].looks = true;
    const pid_t opener = fork();
    must(opener >= 0, "a process starts");
    if (opener > 0) {
        if (opens_only) {
            nanosleep(&(struct timespec){ .tv_nsec = 1000 * chance_between(&storm->chance, 0, MOST_OPENING_US) }, NULL);
            must(kill(opener, SIGKILL) == 0, "it is killed");
        }
        return;
    }
    struct chance chance = chance_make(stream);
    struct scene own;
    scene_open(&own, options);
    weir_limit *limit = scene_define_text(&own, "limit", policy);
    const pid_t child = fork();
    if (child < 0)
        _exit(5);
    if (child > 0) {
        own_look(told, limit, process);
        process_doom(&chance);
        process_act(told, limit, process, &chance, INT64_MAX);
    }
    chance = chance_make(stream + 1);
    own_look(told + 1, limit, process + 1);
    process_act(told + 1, limit, process + 1, &chance, chance_between(&chance, 1, MOST_ACTS_OF_CHILD));
    kill(getpid(), SIGKILL);
    _exit(6);
}

/* ---- The judge ---- */

/* Note what a process was about to do when it died. */
static void judge_note(struct storm *storm, int process)
{
    struct told *told = &storm->told[process];
    bool is_amid = told->key != NONE;
    for (int i = 0; i < OWN; i++)
        is_amid = is_amid || (!told->looks && told->then[i] != NONE);
    must(told->broken == 0, "each answer about its own keys was right");
    if (told->key != NONE && told->change > 0)
        storm->more[told->key]++;
    else if (told->key != NONE)
        storm->less[told->key]++;
    told->key = NONE;
    storm->amid += is_amid;
}

static pid_t judge_await_any(struct storm *storm)
{
    int status;
    const pid_t child = waitpid(-1, &status, 0);
    must(child < 0 || (WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL), "no decision failed");
    storm->kills += child > 0;
    return child;
}

/* Wait for a death, and return whose it was. */
static int judge_await(struct storm *storm)
{
    int process = 0;
    const pid_t child = judge_await_any(storm);
    while (process < PROCESSES && storm->children[process] != child)
        process++;
    must(process < PROCESSES, "it is a process of the storm");
    storm->children[process] = 0;
    judge_note(storm, process);
    return process;
}

/* All processes are dead. Compare the shared keys with the ledger, and balance it. */
static void judge_balance(struct storm *storm)
{
    for (int i = 0; i < SHARED; i++) {
        char text[128];
        int64_t net = 0;
        for (int process = 0; process < PROCESSES; process++)
            net += storm->told[process].net[i];
        const int64_t used = used_of(storm->limit, key_of(NONE, i, text));
        ck_assert_msg(used >= net - storm->less[i] && used <= net + storm->more[i],
                      "shared key %d: %" PRId64 " used, but %" PRId64 " are out (%" PRId64 " and %" PRId64
                      " not known)",
                      i, used, net, storm->more[i], storm->less[i]);
        storm->told[0].net[i] += used - net; /* a process may have fewer than none: it refunds none then */
        storm->more[i] = storm->less[i] = 0;
    }
}

static void storm_round(struct storm *storm)
{
    for (int i = 0; i < PROCESSES; i++)
        process_start(storm, i);
    for (int death = 0; death < ROUND; death++)
        process_start(storm, judge_await(storm));
    for (int i = 0; i < PROCESSES; i++)
        judge_await(storm);
    for (int i = 0; i < PROCESSES; i++)
        own_look(&storm->told[i], storm->limit, i);
    judge_balance(storm);
}

/* Start all pairs and wait until no process is left. Orphans are this process's children then. */
static void pairs_round(struct storm *storm, const struct weir_options *options, const char *policy)
{
    for (int i = 0; i < PROCESSES; i += 2)
        pair_start(storm, i, options, policy);
    while (judge_await_any(storm) > 0)
        ;
    for (int i = 0; i < PROCESSES; i++)
        judge_note(storm, i);
    OPEN_SCENE(scene, options);
    storm->limit = scene_define_text(&scene, "limit", policy);
    for (int i = 0; i < PROCESSES; i++)
        own_look(&storm->told[i], storm->limit, i);
    judge_balance(storm);
    must(machine_damages(machine_of(storm->limit)) == 0, "nothing was repaired");
}

static struct storm *storm_make(void)
{
    struct storm *storm = mmap(NULL, sizeof *storm, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    must(storm != MAP_FAILED, "memory for the ledger");
    storm->chance = chance_make(1);
    for (int i = 0; i < PROCESSES; i++) {
        storm->told[i].key = NONE;
        for (int key = 0; key < OWN; key++)
            storm->told[i].then[key] = NONE;
    }
    return storm;
}

static void storm_tell(const struct storm *storm)
{
    int64_t decisions = 0;
    for (int i = 0; i < PROCESSES; i++)
        decisions += storm->told[i].decisions;
    must(decisions > 0, "decisions were made");
    printf("%" PRId64 " kills, %" PRId64 " of them amid a decision, after %" PRId64 " decisions\n", storm->kills,
           storm->amid, decisions);
}

/* The keys of a sliding window have two cells, and a pair that tells of the other counts. */
static const char *const storms[] = { "token_bucket limit=30 period=366d", "sliding_window limit=30 period=366d" };

/* 232 processes die in each; with WEIR_TEST_FULL 12,000, which takes some 15 seconds on an idle machine with two
 * processors. */
TEST_EACH(counts_stay_exact_while_many_processes_are_killed, sizeof storms / sizeof *storms, 1200)
{
    struct storm *storm = storm_make();
    OPEN_SCENE(scene, OPTIONS(.mode = WEIR_MACHINE, .max_keys = 1, .timeout_us = WEIR_HOUR));
    storm->limit = scene_define_text(&scene, "limit", storms[_i]);
    struct machine *machine = machine_of(storm->limit);
    for (int i = 0; i < PROCESSES; i++)
        keys_make_rivals(storm->limit, i, OWN);
    keys_make_rivals(storm->limit, NONE, SHARED);
    for (const int64_t most = full_or(12000, 200); storm->kills < most || storm->amid == 0;)
        storm_round(storm);
    must(stripe_check(machine, machine_stripe(machine, 0)), "the stripe is sound");
    must(machine_damages(machine) == 0, "nothing was repaired");
    storm_tell(storm);
    munmap(storm, sizeof *storm);
}

/* 100 processes die; with WEIR_TEST_FULL 12,000. */
TEST_EACH(counts_stay_exact_while_openers_are_killed_and_their_children_live, sizeof storms / sizeof *storms, 1200)
{
    struct storm *storm = storm_make();
    folder_make();
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    const struct weir_options *options = OPTIONS(.mode = WEIR_MACHINE, .shared = path, .max_keys = 1,
                                                 .timeout_us = WEIR_HOUR);
    {
        OPEN_SCENE(scene, options);
        const weir_limit *limit = scene_define_text(&scene, "limit", storms[_i]);
        for (int i = 0; i < PROCESSES; i++)
            keys_make_rivals(limit, i, OWN);
        keys_make_rivals(limit, NONE, SHARED);
    }
    for (const int64_t most = full_or(12000, 100); storm->kills < most || storm->amid == 0;)
        pairs_round(storm, options, storms[_i]);
    storm_tell(storm);
    munmap(storm, sizeof *storm);
    folder_remove();
}
