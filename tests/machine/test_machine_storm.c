/* test_machine_storm.c - eight processes use a file, and one of them is killed every 5 ms at whatever instruction it is:
 * every count stays exact, no process blocks, and nothing is damaged.
 *
 * The judge is a ledger in other memory. Before each decision a process writes there what it is about to do, and
 * afterwards what it was told.
 *
 * Four keys are a process's own. It checks each answer about them, and when it is killed, each of them must be as the
 * ledger says, or as the decision that was under way leaves it. All processes use eight more keys. Of these the ledger
 * knows the permits in use up to the decisions under way when a process was killed, so it is balanced after 50 deaths.
 * All keys are in one stripe, so all processes share its lock, journal and cells.
 */
#include "backends/machine/visit.h"
#include "core/limiter/limiter.h"
#include "support.h"

#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { PROCESSES = 8, OWN = 4, SHARED = 8, LIMIT = 30, ROUND = 50, NONE = -1 };

/* What a process was told. Its successor goes on with it, so each word has one writer. */
struct told {
    _Atomic int64_t used[OWN];         /* permits in use of its own keys */
    _Atomic int64_t then[OWN];         /* what the decision under way makes of that if it is admitted, or NONE */
    _Atomic int64_t net[SHARED];       /* permits admitted of the shared keys, less those refunded */
    _Atomic int64_t key, change;       /* what is under way there: the key, or NONE */
    _Atomic int64_t decisions, broken; /* answers about its own keys that were wrong */
};

struct storm {
    struct told told[PROCESSES];
    int64_t more[SHARED], less[SHARED]; /* the judge's: permits of decisions whose answer nobody got */
};

/* Every fourth key is long. */
static struct weir_key key_of(int process, int number, char text[128])
{
    const char *tail = number % 4 == 0
                           ? ", a key of three cells: 012345678901234567890123456789012345678901234567890123"
                           : "";
    const int len = process == NONE ? snprintf(text, 128, "shared %d%s", number, tail)
                                    : snprintf(text, 128, "own %d of %d%s", number, process, tail);
    return weir_key(text, (size_t)len);
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

static pid_t process_start(struct storm *storm, int process, weir_limit *limit, uint64_t stream)
{
    const pid_t child = fork();
    must(child >= 0, "a process starts");
    if (child > 0)
        return child;
    struct told *told = &storm->told[process];
    struct chance chance = chance_make(stream);
    for (;; told->decisions++)
        if (chance_one_in(&chance, 2))
            own_act(told, limit, process, &chance);
        else
            shared_act(told, limit, &chance);
}

/* ---- The judge ---- */

static int64_t judge_used(weir_limit *limit, struct weir_key key)
{
    struct weir_decision decision;
    must_succeed(weir_peek(limit, key, 1, &decision));
    return LIMIT - decision.remaining;
}

/* Kill a process, and look at its own keys. */
static void judge_kill(struct storm *storm, int process, weir_limit *limit, pid_t child)
{
    int status;
    struct told *told = &storm->told[process];
    must(kill(child, SIGKILL) == 0, "a process is killed");
    must(waitpid(child, &status, 0) == child, "it ends");
    must(WIFSIGNALED(status), "it has not ended before, so no decision failed");
    must(told->broken == 0, "each answer about its own keys was right");
    for (int i = 0; i < OWN; i++) {
        char text[128];
        const int64_t used = judge_used(limit, key_of(process, i, text)), then = told->then[i];
        ck_assert_msg(used == told->used[i] || (then != NONE && used == then),
                      "key %d of %d: %" PRId64 " used, neither %" PRId64 " nor %" PRId64, i, process, used,
                      told->used[i], then);
        own_ends(told, i, used);
    }
    if (told->key != NONE && told->change > 0)
        storm->more[told->key]++;
    else if (told->key != NONE)
        storm->less[told->key]++;
    told->key = NONE;
}

/* All processes are dead. Compare the shared keys with the ledger, and balance it. */
static void judge_balance(struct storm *storm, weir_limit *limit)
{
    for (int i = 0; i < SHARED; i++) {
        char text[128];
        int64_t net = 0;
        for (int process = 0; process < PROCESSES; process++)
            net += storm->told[process].net[i];
        const int64_t used = judge_used(limit, key_of(NONE, i, text));
        ck_assert_msg(used >= net - storm->less[i] && used <= net + storm->more[i],
                      "shared key %d: %" PRId64 " used, but %" PRId64 " are out (%" PRId64 " and %" PRId64
                      " not known)",
                      i, used, net, storm->more[i], storm->less[i]);
        storm->told[0].net[i] += used - net; /* a process may have fewer than none: it refunds none then */
        storm->more[i] = storm->less[i] = 0;
    }
}

static int64_t storm_round(struct storm *storm, weir_limit *limit, struct chance *chance)
{
    pid_t children[PROCESSES];
    int64_t decisions = 0;
    for (int i = 0; i < PROCESSES; i++)
        children[i] = process_start(storm, i, limit, chance_next(chance));
    for (int death = 0; death < ROUND; death++) {
        const int process = (int)chance_between(chance, 0, PROCESSES - 1);
        nanosleep(&(struct timespec){ .tv_nsec = 5000000 }, NULL);
        judge_kill(storm, process, limit, children[process]);
        children[process] = process_start(storm, process, limit, chance_next(chance));
    }
    for (int i = 0; i < PROCESSES; i++) {
        judge_kill(storm, i, limit, children[i]);
        decisions += storm->told[i].decisions;
    }
    judge_balance(storm, limit);
    return decisions;
}

/* 50 processes die in it; with WEIR_TEST_FULL 12,000, which takes a minute on an idle machine with many processors. */
TEST(a_storm_of_deaths_leaves_every_count_exact, 1200)
{
    struct chance chance = chance_make(1);
    struct storm *storm = mmap(NULL, sizeof *storm, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    must(storm != MAP_FAILED, "memory for the ledger");
    for (int i = 0; i < PROCESSES; i++) {
        storm->told[i].key = NONE;
        for (int key = 0; key < OWN; key++)
            storm->told[i].then[key] = NONE;
    }
    OPEN_SCENE(scene, OPTIONS(.mode = WEIR_MACHINE, .max_keys = 1, .timeout_us = WEIR_HOUR));
    weir_limit *limit = scene_define_text(&scene, "limit", "token_bucket limit=30 period=366d");
    struct machine *machine = (struct machine *)scene.limiter->backend;
    int64_t decisions = 0;
    for (int64_t rounds = full_or(240, 1); rounds > 0; rounds--)
        decisions = storm_round(storm, limit, &chance);
    must(decisions > 0, "decisions were made");
    must(stripe_check(machine, machine_stripe(machine, 0)), "the stripe is sound");
    must(machine_damages(machine) == 0, "nothing was repaired");
    printf("%" PRId64 " decisions\n", decisions);
    munmap(storm, sizeof *storm);
}
