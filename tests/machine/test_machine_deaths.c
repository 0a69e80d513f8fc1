/* test_machine_deaths.c - a process dies at each instruction of a decision: no permit is given out twice, at most one
 * decision's cost is lost, no other process blocks, and nothing is damaged.
 *
 * The first test steps a child through a decision, one instruction at a time, and copies the shared memory whenever it
 * has changed. Each copy is what the child's death at that instruction would leave. Two judges examine each copy: one
 * that has been using the file, and so inherits the dead process's lock; and one that opens it.
 *
 * The second test kills the child after each instruction that has changed the file, and another process goes on. A
 * death at any other instruction leaves the same file.
 */
#include "homes.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

#define LONG_KEY "a key that is so long that it takes three cells: 0123456789012345678901234567890123456789"

/* ---- Death at each instruction ---- */

enum { DEATH_KEYS = 6, NEW_KEYS = 3 };

static char rival[32] = "rival"; /* has the same home as "b" */
static const char *const death_keys[DEATH_KEYS] = { "a", "b", "c", LONG_KEY, "d", rival };

static void charge_key(weir_limit *limit, const char *key, int64_t cost)
{
    must_succeed(weir_charge(limit, weir_key_text(key), cost));
}

static void act_take(weir *limiter, weir_limit *limit)
{
    (void)limiter;
    taken(limit, "a", 2);
}

static void act_refund(weir *limiter, weir_limit *limit)
{
    (void)limiter;
    must_succeed(weir_refund(limit, weir_key_text("b"), 1));
}

static void act_refund_all(weir *limiter, weir_limit *limit)
{
    (void)limiter;
    must_succeed(weir_refund(limit, weir_key_text("b"), 1000));
}

static void act_add(weir *limiter, weir_limit *limit)
{
    (void)limiter;
    taken(limit, "d", 3);
}

static void act_add_long(weir *limiter, weir_limit *limit)
{
    (void)limiter;
    taken(limit, LONG_KEY, 1);
}

static void act_reset(weir *limiter, weir_limit *limit)
{
    (void)limiter;
    must_succeed(weir_reset(limit, weir_key_text("c")));
}

static void act_group(weir *limiter, weir_limit *limit)
{
    struct weir_decision decision;
    struct weir_request requests[] = { { .limit = limit, .key = weir_key_text("a"), .cost = 1 },
                                       { .limit = limit, .key = weir_key_text("d"), .cost = 2 },
                                       { .limit = limit, .key = weir_key_text("c"), .cost = 3 } };
    must_succeed(weir_try_all(limiter, requests, 3, &decision));
}

static void act_redefine(weir *limiter, weir_limit *limit)
{
    const struct weir_policy policy = policy_of("sliding_window limit=20 period=1h blocks=20");
    must_succeed(weir_limit_define(limiter, "limit", &policy, &limit));
    taken(limit, "a", 1);
}

static void act_rehome(weir *limiter, weir_limit *limit)
{
    const struct weir_key key = weir_key_text("b");
    (void)limiter;
    machine_rehome(machine_of(limit), limit, key, key_hash(limit, key), true);
}

static const struct death {
    const char *policy, *policy_after;
    void (*act)(weir *limiter, weir_limit *limit);
    bool removes_long; /* before: the list of free cells is not empty */
} deaths[] = {
    { "token_bucket limit=20 period=1h", NULL, act_take, false },
    { "sliding_window limit=20 period=1h", NULL, act_take, false },
    { "sliding_window limit=20 period=1h blocks=60", NULL, act_take, false },
    { "sliding_window limit=20 period=1h blocks=60", NULL, act_refund, false },
    { "fixed_window limit=20 period=1h", NULL, act_refund, false },
    { "token_bucket limit=20 period=1h", NULL, act_refund_all, true },
    { "token_bucket limit=20 period=1h", NULL, act_add, true },
    { "leaky_bucket limit=20 period=1h", NULL, act_add_long, false },
    { "leaky_bucket limit=20 period=1h", NULL, act_add_long, true },
    { "sliding_window limit=20 period=1h blocks=60", NULL, act_add_long, true },
    { "token_bucket limit=20 period=1h", NULL, act_reset, true },
    { "token_bucket limit=20 period=1h", NULL, act_group, true },
    { "token_bucket limit=30 period=1h", "sliding_window limit=20 period=1h blocks=20", act_redefine, true },
    { "token_bucket limit=20 period=1h", NULL, act_rehome, false },
    { "fixed_window limit=20 period=1h", NULL, act_rehome, true },
};

/* Charge the keys that are there before the act. One that goes home finds its rival at home. */
static void death_prepare(const struct death *death, weir_limit *limit)
{
    snprintf(rival, sizeof rival, "rival/%u", (unsigned)rival_number(limit, weir_key_text("b"), "rival"));
    if (death->act == act_rehome)
        charge_key(limit, rival, 4);
    charge_key(limit, "a", 5);
    charge_key(limit, "b", 6);
    charge_key(limit, "c", 7);
    must(death->act != act_rehome || cell_of(limit, weir_key_text("b")) != home_of(limit, weir_key_text("b")),
         "the key is not at home");
}

/* What a judge finds. */
struct verdict {
    int64_t remaining[DEATH_KEYS], keys;
};

struct judge {
    char path[128];
    struct scene scene; /* uses the file of the first path */
    weir_limit *limit;
    const char *policy;
    int64_t now_us;
};

static void judge_write(const char *path, const unsigned char *memory, size_t size)
{
    const int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    must(fd >= 0 && pwrite(fd, memory, size, 0) == (ssize_t)size, "a copy is written");
    close(fd);
}

static void judge_open(const struct judge *judge, const char *path, struct scene *scene, weir_limit **limit)
{
    scene_open(scene, OPTIONS(.mode = WEIR_MACHINE, .shared = path, .max_keys = 1, .timeout_us = WEIR_HOUR));
    scene->now_us = judge->now_us;
    *limit = scene_define_text(scene, "limit", judge->policy);
}

static char new_key_text[80];

/* Return the name of a new key of judge_look(). */
static const char *new_key(int number)
{
    snprintf(new_key_text, sizeof new_key_text, "%d is a new key, of two or three cells 012345678901234567890", number);
    return new_key_text;
}

/* Look at all keys, and see that new ones find their places. A line in the log, which would tell of damage, fails the
 * test. */
static struct verdict judge_look(struct scene *scene, weir_limit *limit)
{
    struct verdict verdict;
    for (int i = 0; i < DEATH_KEYS; i++)
        verdict.remaining[i] = peeked(limit, death_keys[i], 1).remaining;
    verdict.keys = stats_of(scene->limiter).keys;
    for (int i = 0; i < NEW_KEYS; i++) {
        const struct weir_decision decision = taken(limit, new_key(i), 7);
        must(decision.remaining == decision.limit - 7, "a new key is a fresh one");
    }
    for (int i = 0; i < DEATH_KEYS; i++)
        must(peeked(limit, death_keys[i], 1).remaining == verdict.remaining[i], "new keys take nothing from others");
    must(stats_of(scene->limiter).keys == verdict.keys + NEW_KEYS, "new keys are counted");
    struct machine *machine = (struct machine *)scene->limiter->backend;
    must(stripe_check(machine, machine_stripe(machine, 0)), "the stripe is sound");
    must(machine_damages(machine) == 0, "nothing was repaired");
    return verdict;
}

static struct verdict judge_copy(struct judge *judge, const unsigned char *memory, size_t size)
{
    struct scene newcomer;
    weir_limit *limit;
    char path[160];
    judge_write(judge->path, memory, size); /* under the judge that uses it */
    const struct verdict verdict = judge_look(&judge->scene, judge->limit);
    snprintf(path, sizeof path, "%s-new", judge->path);
    judge_write(path, memory, size);
    judge_open(judge, path, &newcomer, &limit);
    const struct verdict second = judge_look(&newcomer, limit);
    must(memcmp(&verdict, &second, sizeof verdict) == 0, "both judges agree");
    scene_close(&newcomer);
    return verdict;
}

/* Each key is as before or as after, and so is their number. */
static void judge_compare(const struct verdict *now, const struct verdict *before, const struct verdict *after)
{
    for (int i = 0; i < DEATH_KEYS; i++)
        if (now->remaining[i] != before->remaining[i] && now->remaining[i] != after->remaining[i])
            ck_abort_msg("key %s has %" PRId64 " permits, neither %" PRId64 " nor %" PRId64, death_keys[i],
                         now->remaining[i], before->remaining[i], after->remaining[i]);
    must((now->keys >= before->keys && now->keys <= after->keys) ||
             (now->keys <= before->keys && now->keys >= after->keys),
         "no key is lost but those that go");
}

/* Start a child that stops, acts and exits. 0: tracing is not allowed here, which main() tells. */
static pid_t child_start(struct scene *scene, weir_limit *limit, const struct death *death)
{
    int status;
    const pid_t child = fork();
    must(child >= 0, "a child starts");
    if (child == 0) {
        if (ptrace(PTRACE_TRACEME, 0, NULL, NULL) != 0)
            _exit(77);
        raise(SIGSTOP);
        death->act(scene->limiter, limit);
        _exit(0);
    }
    must(waitpid(child, &status, 0) == child, "the child stops");
    return WIFSTOPPED(status) ? child : 0;
}

struct copies {
    unsigned char *bytes; /* all copies, one after the other */
    size_t size;
    int n;
};

enum { COPIES_MOST = 2000 };

/* Add a copy if the stripe has changed. */
static void copies_add(struct copies *copies, const struct machine *machine)
{
    const unsigned char *memory = machine->file.map;
    const size_t from = (size_t)(machine->stripes - memory);
    const size_t len = machine->shape.words * sizeof(uint64_t);
    const unsigned char *last = copies->bytes + (size_t)(copies->n - 1) * copies->size;
    if (copies->n > 0 && memcmp(last + from, memory + from, len) == 0)
        return;
    must(copies->n < COPIES_MOST, "there is room for the copies");
    memcpy(copies->bytes + (size_t)copies->n++ * copies->size, memory, copies->size);
}

static void child_run(pid_t child, struct copies *copies, const struct machine *machine)
{
    int status = 0;
    copies_add(copies, machine);
    while (ptrace(PTRACE_SINGLESTEP, child, NULL, NULL) == 0 && waitpid(child, &status, 0) == child &&
           WIFSTOPPED(status))
        copies_add(copies, machine);
    must(WIFEXITED(status) && WEXITSTATUS(status) == 0, "the child's act succeeds");
}

TEST_EACH(a_process_killed_at_any_instruction_loses_at_most_one_decision, sizeof deaths / sizeof *deaths, 120)
{
    const struct death *death = &deaths[_i];
    struct judge judge = { .policy = death->policy_after ? death->policy_after : death->policy };
    struct copies copies = { 0 };
    char folder[] = "/tmp/weir-machine-XXXXXX";
    must(mkdtemp(folder) != NULL, "a folder");
    snprintf(judge.path, sizeof judge.path, "%s/copy", folder);

    OPEN_SCENE(scene, OPTIONS(.mode = WEIR_MACHINE, .max_keys = 1, .timeout_us = WEIR_HOUR));
    weir_limit *limit = scene_define_text(&scene, "limit", death->policy);
    const struct machine *machine = (const struct machine *)scene.limiter->backend;
    death_prepare(death, limit);
    if (death->removes_long) {
        charge_key(limit, LONG_KEY "...and longer", 1);
        must_succeed(weir_reset(limit, weir_key_text(LONG_KEY "...and longer")));
    }
    judge.now_us = scene.now_us;
    copies.size = machine->file.facts.size;
    copies.bytes = mmap(NULL, copies.size * COPIES_MOST, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    must(copies.bytes != MAP_FAILED, "room for copies");
    const pid_t child = child_start(&scene, limit, death);
    if (child > 0) {
        child_run(child, &copies, machine);
        judge_write(judge.path, copies.bytes, copies.size);
        judge_open(&judge, judge.path, &judge.scene, &judge.limit);
        const struct verdict before = judge_copy(&judge, copies.bytes, copies.size);
        const struct verdict after = judge_copy(&judge, copies.bytes + (size_t)(copies.n - 1) * copies.size,
                                                copies.size);
        must((memcmp(&before, &after, sizeof before) != 0) == (death->act != act_rehome), "the act changes a count");
        must(copies.n == 2 || copies.n > 6, "it changes memory in one step, or in several under a lock");
        for (int i = 1; i < copies.n - 1; i++) {
            const struct verdict now = judge_copy(&judge, copies.bytes + (size_t)i * copies.size, copies.size);
            judge_compare(&now, &before, &after);
        }
        scene_close(&judge.scene);
    }
    munmap(copies.bytes, copies.size * COPIES_MOST);
    unlink(judge.path);
    strcat(judge.path, "-new");
    unlink(judge.path);
    must(rmdir(folder) == 0, "the folder is removed");
}

/* ---- Deaths in earnest ---- */

/* Give all keys the state in which they were before the act. */
static void lives_prepare(const struct death *death, weir_limit *limit)
{
    for (int i = 0; i < DEATH_KEYS; i++)
        must_succeed(weir_reset(limit, weir_key_text(death_keys[i])));
    for (int i = 0; i < NEW_KEYS; i++)
        must_succeed(weir_reset(limit, weir_key_text(new_key(i))));
    death_prepare(death, limit);
}

/* The contents of the file at the last comparison. */
struct watch {
    const struct machine *machine;
    unsigned char *stripe, *rules;
    size_t stripe_len, rules_len;
    uint64_t rules_lock;
};

static struct watch watch_begin(const struct machine *machine)
{
    struct watch watch = { .machine = machine,
                           .stripe_len = machine->shape.words * sizeof(uint64_t),
                           .rules_len = (size_t)(machine_level_at(&machine->file.facts, 1) -
                                                 machine_rules_at(&machine->file.facts)) };
    watch.stripe = malloc(watch.stripe_len);
    watch.rules = malloc(watch.rules_len);
    must(watch.stripe && watch.rules, "room for copies");
    memcpy(watch.stripe, machine->stripes, watch.stripe_len);
    memcpy(watch.rules, machine->file.map + machine_rules_at(&machine->file.facts), watch.rules_len);
    watch.rules_lock = file_header(&machine->file)->rules_lock;
    return watch;
}

static void watch_end(struct watch *watch)
{
    free(watch->stripe);
    free(watch->rules);
}

/* Copy `now` if it differs from the copy. */
static bool watch_copy(unsigned char *copy, const void *now, size_t len)
{
    if (memcmp(copy, now, len) == 0)
        return false;
    memcpy(copy, now, len);
    return true;
}

/* True if the file has changed since the last look. Rules change while their lock is taken. */
static bool watch_look(struct watch *watch)
{
    const struct machine_file *file = &watch->machine->file;
    const uint64_t rules_lock = file_header(file)->rules_lock;
    const bool locks = rules_lock != watch->rules_lock;
    watch->rules_lock = rules_lock;
    return watch_copy(watch->stripe, watch->machine->stripes, watch->stripe_len) || locks ||
           (rules_lock != 0 && watch_copy(watch->rules, file->map + machine_rules_at(&file->facts), watch->rules_len));
}

/* Have a child act until it has changed the file `most` times, one instruction after the other, then kill it. Return
 * how often it did if it ended before, otherwise `most`. */
static int64_t lives_act(struct scene *scene, weir_limit *limit, const struct death *death, int64_t most)
{
    int status = 0;
    int64_t changes = 0;
    struct watch watch = watch_begin((const struct machine *)scene->limiter->backend);
    const pid_t child = child_start(scene, limit, death);
    while (child > 0 && changes < most && ptrace(PTRACE_SINGLESTEP, child, NULL, NULL) == 0 &&
           waitpid(child, &status, 0) == child && WIFSTOPPED(status))
        changes += watch_look(&watch);
    if (child > 0 && changes == most)
        must(kill(child, SIGKILL) == 0 && waitpid(child, &status, 0) == child && WIFSIGNALED(status), "it is killed");
    else if (child > 0)
        must(WIFEXITED(status) && WEXITSTATUS(status) == 0, "the child's act succeeds");
    watch_end(&watch);
    return changes;
}

/* Have a child act, and see what it leaves. */
static struct verdict lives_after(struct scene *scene, weir_limit *limit, const struct death *death)
{
    int status = 0;
    const pid_t child = child_start(scene, limit, death);
    if (child > 0)
        must(ptrace(PTRACE_CONT, child, NULL, NULL) == 0 && waitpid(child, &status, 0) == child && WIFEXITED(status) &&
                 WEXITSTATUS(status) == 0,
             "the child's act succeeds");
    return judge_look(scene, limit);
}

/* Up to two deaths of each act; with WEIR_TEST_FULL one after each change to the file. */
TEST_EACH(a_process_killed_at_any_instruction_delays_no_other, sizeof deaths / sizeof *deaths, 120)
{
    const struct death *death = &deaths[_i];
    struct chance chance = chance_make((uint64_t)_i);
    OPEN_SCENE(scene, OPTIONS(.mode = WEIR_MACHINE, .max_keys = 1, .timeout_us = WEIR_HOUR));
    weir_limit *limit = scene_define_text(&scene, "limit", death->policy);
    lives_prepare(death, limit);
    const struct verdict before = judge_look(&scene, limit);
    lives_prepare(death, limit);
    const struct verdict after = lives_after(&scene, limit, death);
    int64_t at = full_or(1, chance_between(&chance, 1, 6));
    for (int64_t left = full_or(INT64_MAX, 2); left > 0; left--) {
        lives_prepare(death, limit);
        const int64_t changes = lives_act(&scene, limit, death, at);
        const struct verdict now = judge_look(&scene, limit); /* takes the dead process's locks */
        judge_compare(&now, &before, &after);
        if (changes < at)
            break;
        at += full_or(1, chance_between(&chance, 1, 50));
    }
}

static bool may_trace(void)
{
    int status;
    const pid_t child = fork();
    must(child >= 0, "a child starts");
    if (child == 0)
        _exit(ptrace(PTRACE_TRACEME, 0, NULL, NULL) != 0);
    must(waitpid(child, &status, 0) == child, "it ends");
    return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

int main(void)
{
    const bool traces = may_trace();
    const int status = suite_run(tests());
    if (!traces)
        puts("this system does not let a process trace its child: no death at an instruction was tested");
    return status == 0 && !traces ? 77 : status;
}
