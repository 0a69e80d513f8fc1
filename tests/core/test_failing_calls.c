/* test_failing_calls.c - make each system call of a limiter without Redis fail in turn. */
#include "failing_play.h"
#include "support.h"

#include "core/ground/clock.h"
#include "core/ground/fence.h"
#include "lab/scratch.h"

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#ifdef WEIR_CONSUL
#include "consul_json.h"
#include "fake_consul.h"
#endif

/* ---- Planted defects ---- */

static void opens_and_closes(struct failing_run *run)
{
    const int fd = eventfd(0, EFD_CLOEXEC);
    if (fd >= 0)
        close(fd);
    else
        run->errors++;
}

static void leaves_the_first_open(struct failing_run *run)
{
    const int first = eventfd(0, EFD_CLOEXEC), second = eventfd(0, EFD_CLOEXEC);
    if (second < 0)
        return;
    close(first);
    close(second);
}

static void closes_what_it_has_not(struct failing_run *run)
{
    const int fd = eventfd(0, EFD_CLOEXEC);
    close(fd < 0 ? STDERR_FILENO : fd);
}

static void waits_for_ever(struct failing_run *run)
{
    opens_and_closes(run);
    if (run->errors > 0)
        pause();
}

#if !INSTRUMENTED
static void tries_again_at_once(struct failing_run *run)
{
    opens_and_closes(run);
    while (run->errors > 0 && clock() / (CLOCKS_PER_SEC / 1000) < run_processor_most_ms() + 50)
        ;
}
#endif

static void believes_in_the_file(struct failing_run *run)
{
    FILE *file = fopen("/dev/null", "re");
    if (getc(file) != EOF)
        abort();
    fclose(file);
}

static void ends_the_process(struct failing_run *run)
{
    opens_and_closes(run);
    if (run->errors > 0)
        exit(3);
}

static void *sleeps(void *user)
{
    pause();
    return user;
}

static void leaves_a_thread(struct failing_run *run)
{
    pthread_t thread;
    opens_and_closes(run);
    if (run->errors > 0 && pthread_create(&thread, NULL, sleeps, NULL) != 0)
        abort();
}

static void believes_in_half_a_number(struct failing_run *run)
{
    unsigned char bytes[8] = { 0 };
    if (getrandom(bytes, sizeof bytes, 0) < 0)
        return;
    for (size_t i = 1; i < sizeof bytes; i++)
        if (bytes[i] != 0)
            return;
    run_blame(run, "seven zeroes");
}

#ifdef UNDER_ASAN
static void leaves_memory(struct failing_run *run)
{
    char *volatile memory = malloc(100);
    opens_and_closes(run);
    if (run->errors == 0)
        free(memory);
    memory = NULL;
}
#endif

TEST(the_failing_calls_harness_finds_planted_defects, 120)
{
    static const struct {
        const char *name;
        void (*play)(struct failing_run *run);
        const char *blame;
    } defects[] = {
        { "a descriptor is left", leaves_the_first_open, "is left open: anon_inode:[eventfd]" },
        { "another's is closed", closes_what_it_has_not, "descriptor 2 is gone" },
        { "it hangs", waits_for_ever, "it hangs" },
#if !INSTRUMENTED /* which takes long itself */
        { "it spins", tries_again_at_once, "it took the processor for" },
#endif
        { "NULL is a file", believes_in_the_file, INSTRUMENTED ? "it ended" : "it ended by signal 11" },
        { "it exits", ends_the_process, "it ended with status 3" },
        { "a thread is left", leaves_a_thread, "1 threads are left" },
        { "a short answer", believes_in_half_a_number, "seven zeroes" },
#ifdef UNDER_ASAN
        { "memory is left", leaves_memory, "memory is left" },
#endif
    };
    for (size_t i = 0; i < sizeof defects / sizeof defects[0]; i++) {
        const struct failing_scene scene = {
            .name = defects[i].name,
            .play = defects[i].play,
            .at_once = 8,
            .seconds_most = defects[i].play == waits_for_ever ? 0.1 : 30,
        };
        struct failing_sum sum;
        failing_play(&scene, true, &sum);
        ck_assert_msg(sum.blamed > 0 && strstr(sum.blame, defects[i].blame), "%s: %s", defects[i].name, sum.blame);
    }
}

TEST(the_failing_calls_harness_blames_no_correct_program, 60)
{
    const struct failing_scene scene = {
        .name = "no defect",
        .play = opens_and_closes,
        .at_once = 8,
        .seconds_most = 30,
    };
    struct failing_sum sum;
    failing_play(&scene, true, &sum);
    ck_assert_int_eq(sum.blamed, 0);
    ck_assert_int_eq(sum.runs, 4); /* by EMFILE and by ENOMEM, once and for good */
    ck_assert_int_eq(sum.reached, 4);
}

/* ---- Files ---- */

static char folder[128];

static void folder_make(void)
{
    snprintf(folder, sizeof folder, "%s/weir-calls-XXXXXX", scratch_parent());
    ck_assert_ptr_nonnull(mkdtemp(folder));
}

static void folder_remove(void)
{
    char command[200];
    snprintf(command, sizeof command, "rm -r '%s'", folder);
    ck_assert_int_eq(system(command), 0);
}

static const char *path_of(const struct failing_run *run, const char *name)
{
    static char path[200];
    snprintf(path, sizeof path, "%s/%d-%s", folder, run->number, name);
    return path;
}

static void write_policy(const struct failing_run *run, int limit)
{
    char before[200];
    snprintf(before, sizeof before, "%s", path_of(run, "new"));
    FILE *file = fopen(before, "we");
    if (!file || fprintf(file, "api = fixed_window limit=%d period=366d\n", limit) < 0 || fclose(file) != 0 ||
        rename(before, path_of(run, "policies")) != 0)
        abort();
}

static void with_file(struct failing_run *run, struct weir_options *options)
{
    write_policy(run, 20);
    options->policy_file = path_of(run, "policies");
}

static void with_relative_file(struct failing_run *run, struct weir_options *options)
{
    with_file(run, options);
    if (chdir(folder) != 0)
        abort();
    options->policy_file = strrchr(options->policy_file, '/') + 1;
}

static void write_more(struct failing_run *run)
{
    write_policy(run, 30);
}

/* ---- Modes ---- */

TEST(a_memory_limiter_survives_failing_system_calls, 120)
{
    const struct failing_mode mode = {
        .options = WEIR_OPTIONS_INIT,
        .policy = NULL,
        .limit = 20,
        .begins_with = 4,
        .has_event_fd = true,
        .begin = with_file,
    };
    struct failing_sum sum;
    folder_make();
    failing_play_mode("memory, policy file", &mode, &sum);
    folder_remove();
}

TEST(a_followed_policy_file_survives_failing_system_calls, 300)
{
    struct failing_mode mode = {
        .options = WEIR_OPTIONS_INIT,
        .limit = 30,
        .begins_with = 4,
        .begin = with_relative_file,
        .change = write_more,
    };
    struct failing_sum sum;
    mode.options.follow_policy_file = true;
    folder_make();
    failing_play_mode("policy file followed", &mode, &sum);
    folder_remove();
}

static int64_t list_two(void *user, struct weir_peer *peers, size_t room)
{
    peers[0] = (struct weir_peer){ "a", 1 };
    peers[1] = (struct weir_peer){ "b", 3 };
    return 2;
}

TEST(peers_from_a_list_survive_failing_system_calls, 120)
{
    const struct weir_peers peers = {
        .size = sizeof peers,
        .list = list_two,
        .id = "a",
        .poll_us = WEIR_SECOND / 10,
        .hold_down_us = WEIR_SECOND / 10,
    };
    struct failing_mode mode = {
        .options = WEIR_OPTIONS_INIT,
        .policy = "fixed_window limit=20 period=366d",
        .limit = 5,
        .begins_with = 2,
    };
    struct failing_sum sum;
    mode.options.peers = &peers;
    failing_play_mode("peers by a list", &mode, &sum);
}

TEST(peers_from_dns_survive_failing_system_calls, 120)
{
    const struct weir_peers peers = {
        .size = sizeof peers,
        .dns = "localhost",
        .id = "127.0.0.1",
        .poll_us = WEIR_SECOND / 10,
        .hold_down_us = WEIR_SECOND / 10,
    };
    struct failing_mode mode = {
        .options = WEIR_OPTIONS_INIT,
        .policy = "fixed_window limit=20 period=366d",
        .begins_with = 2,
    };
    struct failing_sum sum;
    mode.options.peers = &peers;
    failing_play_mode("peers by DNS", &mode, &sum);
}

/* ---- Single calls ---- */

/* A limiter that the child of a fork continues to use. */
static int open_follower(struct failing_run *run, weir **out)
{
    static const struct weir_peers peers = { .size = sizeof peers, .list = list_two, .id = "a" };
    return weir_open(OPTIONS(.peers = &peers, .log = run_log, .user = run), out);
}

TEST(opening_fails_if_the_fork_handlers_cannot_be_registered, 30)
{
    struct failing_run run = { .number = 1, .plan = calls_plan_first(CALL_ATFORK, true) };
    weir *limiter;
    calls_watch(&run.record, &run.plan);
    ck_assert_int_eq(open_follower(&run, &limiter), WEIR_ENOMEM);
    calls_forget();
    ck_assert_int_gt(run.record.failed, 0);
    must_succeed(open_follower(&run, &limiter));
    weir_close(limiter);
}

TEST(a_forked_child_without_a_new_event_fd_closes_its_parents, 30)
{
    struct failing_run run = { .number = 1, .plan = calls_plan_first(CALL_EVENTFD, true) };
    weir *limiter;
    must_succeed(open_follower(&run, &limiter));
    const int event_fd = weir_event_fd(limiter);
    ck_assert_int_ge(event_fd, 0);
    calls_watch(&run.record, &run.plan);
    const pid_t child = fork();
    if (child == 0) {
        const bool is_gone = fcntl(event_fd, F_GETFD) < 0;
        calls_forget();
        const int own = weir_event_fd(limiter);
        const uint64_t one = 1;
        _exit(is_gone && own >= 0 && write(own, &one, sizeof one) == sizeof one ? 0 : 1);
    }
    calls_forget();
    assert_child_succeeds(child);
    ck_assert_int_eq(poll(&(struct pollfd){ .fd = event_fd, .events = POLLIN }, 1, 0), 0);
    weir_close(limiter);
}

/* Standard input is closed, so the event fd gets its number. */
TEST(a_forked_childs_event_fd_keeps_its_number_even_if_it_is_0, 30)
{
    struct failing_run run = { .number = 1 };
    weir *limiter;
    must_succeed(open_follower(&run, &limiter));
    close(STDIN_FILENO);
    const int event_fd = weir_event_fd(limiter);
    ck_assert_int_eq(event_fd, STDIN_FILENO);
    const pid_t child = fork();
    if (child == 0) {
        const uint64_t one = 1;
        const bool is_there = fcntl(event_fd, F_GETFD) == FD_CLOEXEC && weir_event_fd(limiter) == event_fd;
        _exit(is_there && write(event_fd, &one, sizeof one) == sizeof one ? 0 : 1);
    }
    assert_child_succeeds(child);
    ck_assert_int_eq(poll(&(struct pollfd){ .fd = event_fd, .events = POLLIN }, 1, 0), 0);
    weir_close(limiter);
}

TEST(a_forked_childs_event_fd_occupies_no_second_descriptor, 30)
{
    struct failing_run run = { .number = 1 };
    weir *limiter;
    must_succeed(open_follower(&run, &limiter));
    const int event_fd = weir_event_fd(limiter);
    close(STDIN_FILENO);
    const pid_t child = fork();
    if (child == 0)
        _exit(fcntl(event_fd, F_GETFD) == FD_CLOEXEC && fcntl(STDIN_FILENO, F_GETFD) < 0 ? 0 : 1);
    assert_child_succeeds(child);
    weir_close(limiter);
}

TEST(a_signal_does_not_shorten_the_pause_that_replaces_a_fence, 30)
{
    struct calls_record record;
    const struct calls_plan plan = calls_plan_first(CALL_NANOSLEEP, false);
    const int64_t began_us = clock_monotonic_us();
    calls_watch(&record, &plan);
    fence_all(); /* this process has not registered for membarrier(2) */
    calls_forget();
    ck_assert_int_eq(record.failed, 1);
    ck_assert_int_ge(clock_monotonic_us() - began_us, 10000);
}

#ifdef WEIR_CONSUL
/* ---- Consul: the agent runs in another process because its calls must not fail ---- */

struct agent {
    pid_t pid;
    int lives; /* closing it ends the agent */
    char address[128];
};

static _Noreturn void be_agent(int tell, int wait)
{
    static const char *const answered[] = { "/v1/agent/service/register", "/v1/agent/check/pass/service%3Aa",
                                            "/v1/agent/service/deregister/a" };
    struct fake_consul *fake = fake_consul_start(FAKE_ON_TCP);
    char end;
    if (!fake)
        _exit(1);
    fake_consul_page(fake, "/v1/health/service/api", 200, 10, A_AND_B);
    fake_consul_page(fake, "/v1/kv/weir/", 200, 10, "[" KEY("weir/ours", BUCKET) "]");
    for (size_t i = 0; i < sizeof answered / sizeof answered[0]; i++)
        fake_consul_page(fake, answered[i], 200, 0, "");
    const char *address = fake_consul_address(fake);
    if (write(tell, address, strlen(address)) < 0 || read(wait, &end, 1) < 0)
        _exit(1);
    fake_consul_stop(fake);
    _exit(0);
}

static void agent_start(struct agent *agent)
{
    int told[2], lives[2];
    ck_assert(pipe2(told, O_CLOEXEC) == 0 && pipe2(lives, O_CLOEXEC) == 0);
    agent->pid = fork();
    if (agent->pid == 0) {
        close(lives[1]);
        be_agent(told[1], lives[0]);
    }
    close(told[1]);
    close(lives[0]);
    const ssize_t len = read(told[0], agent->address, sizeof agent->address - 1);
    ck_assert_int_gt(len, 0);
    agent->address[len] = '\0';
    agent->lives = lives[1];
    close(told[0]);
}

static void agent_stop(struct agent *agent)
{
    int status;
    close(agent->lives);
    ck_assert_int_eq(waitpid(agent->pid, &status, 0), agent->pid);
    ck_assert(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

TEST(following_consul_survives_failing_system_calls, 300)
{
    struct agent agent;
    agent_start(&agent);
    const struct weir_consul consul = {
        .size = sizeof consul,
        .address = agent.address,
        .wait_us = WEIR_SECOND,
        .timeout_us = 2 * WEIR_SECOND,
    };
    const struct weir_peers peers = {
        .size = sizeof peers,
        .service = "api",
        .id = "a",
        .join = true,
        .hold_down_us = WEIR_SECOND / 10,
    };
    struct failing_mode mode = {
        .options = WEIR_OPTIONS_INIT,
        .policy = "fixed_window limit=20 period=366d",
        .limit = 15,
        .begins_with = 2,
    };
    struct failing_sum sum;
    mode.options.peers = &peers;
    mode.options.consul = &consul;
    mode.options.consul_policies = "weir/";
    mode.options.weight = 3;
    failing_play_mode("Consul", &mode, &sum);
    ck_assert_int_gt(sum.elsewhere, 0); /* libcurl's calls are seen */
    agent_stop(&agent);
}
#endif
