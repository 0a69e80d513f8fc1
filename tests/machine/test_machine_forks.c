/* test_machine_forks.c - processes that open a shared file, fork, stop and die at inconvenient moments: what they leave
 * to their children and to others. */
#include "homes.h"
#include "shared_file.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define SHARED(...) OPTIONS(.mode = WEIR_MACHINE, .max_keys = 1000, __VA_ARGS__)

/* ---- A pause inside weir: a process draws random numbers when it makes the file, and when it takes a slot ---- */

static int pause_in[2], pause_go[2]; /* pipes: the process is there; it may go on */
static _Atomic int pause_after = -1; /* draws until the pause; below 0: there is none */

static void pause_prepare(int after)
{
    must(pipe(pause_in) == 0 && pipe(pause_go) == 0, "pipes");
    pause_after = after;
}

static void pause_await(void)
{
    char byte;
    must(read(pause_in[0], &byte, 1) == 1, "the process pauses");
}

static void pause_end(void)
{
    must(write(pause_go[1], "", 1) == 1, "it goes on");
}

/* Take the place of the C library's. */
ssize_t getrandom(void *out, size_t len, unsigned flags)
{
    ssize_t (*next)(void *, size_t, unsigned);
    *(void **)&next = dlsym(RTLD_NEXT, "getrandom");
    char byte;
    if (pause_after >= 0 && pause_after-- == 0 && (write(pause_in[1], "", 1) != 1 || read(pause_go[0], &byte, 1) != 1))
        return -1;
    return next(out, len, flags);
}

static int interruptions; /* calls of posix_fallocate() that a signal interrupts */

/* What posix_fallocate() is called with offsets of 64 bits. */
int posix_fallocate64(int fd, off64_t from, off64_t len);

int posix_fallocate64(int fd, off64_t from, off64_t len)
{
    int (*next)(int, off64_t, off64_t);
    *(void **)&next = dlsym(RTLD_NEXT, "posix_fallocate64");
    return interruptions > 0 && interruptions-- > 0 ? EINTR : next(fd, from, len);
}

/* ---- Deaths ---- */

/* Wait until the parent has ended. `end` is of a pipe whose other end only the parent has. */
static void parent_await(int end)
{
    char byte;
    if (read(end, &byte, 1) != 0)
        _exit(2);
}

/* Open, fork, and die with the lock of the only stripe. The child then adds a key, and writes how that ended. */
static void opener_dies(const char *shared, int report)
{
    int alive[2];
    struct scene scene;
    struct weir_decision decision;
    must(pipe(alive) == 0, "a pipe");
    scene_open(&scene, OPTIONS(.mode = WEIR_MACHINE, .shared = shared, .max_keys = 1, .timeout_us = 100000));
    weir_limit *limit = scene_define_text(&scene, "limit", "fixed_window limit=10 period=1h");
    struct machine *machine = machine_of(limit);
    const pid_t child = fork();
    if (child != 0) {
        must(child > 0, "a child starts");
        must(stripe_enter(machine, machine_stripe(machine, 0)) == WEIR_OK, "the lock is taken");
        kill(getpid(), SIGKILL);
    }
    close(alive[1]);
    parent_await(alive[0]);
    const int error = weir_try(limit, weir_key_text("a"), 1, &decision);
    _exit(write(report, &error, sizeof error) != sizeof error);
}

TEST_EACH(a_child_takes_over_the_lock_of_a_dead_opener, 2, 60)
{
    int pipes[2], status, error = -1;
    folder_make();
    must(pipe(pipes) == 0, "a pipe");
    const pid_t opener = fork();
    must(opener >= 0, "a process starts");
    if (opener == 0)
        opener_dies(_i ? path : NULL, pipes[1]);
    ck_assert_int_eq(waitpid(opener, &status, 0), opener);
    ck_assert(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    ck_assert_int_eq(read(pipes[0], &error, sizeof error), sizeof error);
    ck_assert_int_eq(error, WEIR_OK);
    folder_remove();
}

TEST(another_process_takes_over_the_lock_of_an_opener_whose_child_lives, 60)
{
    int status, alive[2];
    char byte;
    folder_make();
    must(pipe(alive) == 0, "a pipe");
    OPEN_SCENE(scene, OPTIONS(.mode = WEIR_MACHINE, .shared = path, .max_keys = 1, .timeout_us = 100000));
    weir_limit *limit = scene_define_text(&scene, "limit", "fixed_window limit=10 period=1h");
    const pid_t opener = fork();
    must(opener >= 0, "a process starts");
    if (opener == 0) {
        struct scene own;
        scene_open(&own, OPTIONS(.mode = WEIR_MACHINE, .shared = path, .max_keys = 1, .timeout_us = 100000));
        struct machine *machine = (struct machine *)own.limiter->backend;
        const pid_t child = fork();
        if (child == 0) {
            close(alive[1]);
            _exit(read(alive[0], &byte, 1) != 0); /* until the test ends */
        }
        must(stripe_enter(machine, machine_stripe(machine, 0)) == WEIR_OK, "the lock is taken");
        kill(getpid(), SIGKILL);
    }
    ck_assert_int_eq(waitpid(opener, &status, 0), opener);
    ck_assert(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    ck_assert(taken(limit, "a", 1).allowed);
    close(alive[1]);
    folder_remove();
}

TEST(a_file_is_in_use_while_a_child_takes_its_slot_and_its_parent_has_ended, 60)
{
    int status;
    folder_make();
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    pause_prepare(-1);
    const pid_t opener = fork();
    must(opener >= 0, "a process starts");
    if (opener == 0) {
        struct scene own;
        scene_open(&own, SHARED(.shared = path));
        pause_after = 0;
        if (fork() != 0)
            _exit(0);
        _exit(machine_of(scene_define_text(&own, "limit", "fixed_window limit=10 period=1h"))->file.fd < 0);
    }
    ck_assert_int_eq(waitpid(opener, &status, 0), opener);
    pause_await();
    OPEN_SCENE(scene, SHARED(.shared = path));
    ck_assert(!((struct machine *)scene.limiter->backend)->file.is_alone);
    pause_end();
    const pid_t child = waitpid(-1, &status, 0);
    ck_assert(child > 0 && WIFEXITED(status) && WEXITSTATUS(status) == 0);
    folder_remove();
}

TEST(a_process_that_closes_all_descriptors_stays_in_the_file, 60)
{
    folder_make();
    OPEN_SCENE(scene, SHARED(.shared = path));
    close(((struct machine *)scene.limiter->backend)->file.fd); /* as daemons do */
    OPEN_SCENE(other, SHARED(.shared = path));
    ck_assert(!((struct machine *)other.limiter->backend)->file.is_alone);
    ck_assert(file_owner_lives(&((struct machine *)other.limiter->backend)->file,
                               ((struct machine *)scene.limiter->backend)->file.owner));
    ((struct machine *)scene.limiter->backend)->file.fd = -1; /* its number may be another file's */
    folder_remove();
}

/* ---- While a thread opens the file ---- */

static void *thread_open(void *unused)
{
    struct scene scene;
    (void)unused;
    scene_open(&scene, SHARED(.shared = path));
    scene_close(&scene);
    return NULL;
}

static int descriptors_of_path(void)
{
    int found = 0;
    for (int fd = 0; fd < 256; fd++) {
        char entry[64], target[256] = { 0 };
        snprintf(entry, sizeof entry, "/proc/self/fd/%d", fd);
        found += readlink(entry, target, sizeof target - 1) > 0 && strcmp(target, path) == 0;
    }
    return found;
}

/* The thread pauses as it makes the file, and as it takes its slot. */
TEST_EACH(a_child_inherits_nothing_of_a_file_that_a_thread_is_opening, 2, 60)
{
    pthread_t thread;
    folder_make();
    pause_prepare(_i);
    ck_assert_int_eq(pthread_create(&thread, NULL, thread_open, NULL), 0);
    pause_await();
    ck_assert_int_ge(descriptors_of_path(), 1);
    const pid_t child = fork();
    must(child >= 0, "a child starts");
    if (child == 0)
        _exit(descriptors_of_path());
    assert_child_succeeds(child);
    pause_end();
    pthread_join(thread, NULL);
    folder_remove();
}

TEST(opening_waits_for_a_stopped_process_for_a_bounded_time_and_names_it, 60)
{
    pthread_t thread;
    char words[64];
    folder_make();
    pause_prepare(0);
    ck_assert_int_eq(pthread_create(&thread, NULL, thread_open, NULL), 0);
    pause_await();
    struct scene scene;
    struct weir_options options = *SHARED(.shared = path, .timeout_us = 1);
    scene_init(&scene, &options);
    scene.log_allowed = true;
    ck_assert_int_eq(weir_open(&options, &scene.limiter), WEIR_ETIME);
    scene_heard(&scene);
    snprintf(words, sizeof words, "process %d has been opening it", (int)getpid());
    ck_assert_msg(strstr(scene.last_line, words) != NULL, "%s", scene.last_line);
    weir_inspector *inspector;
    ck_assert_int_eq(weir_inspect_open(&options, &inspector), WEIR_ETIME);
    pause_end();
    pthread_join(thread, NULL);
    scene_open(&scene, SHARED(.shared = path));
    scene_close(&scene);
    folder_remove();
}

TEST(signals_while_the_file_gets_its_memory_do_no_harm, 20)
{
    folder_make();
    interruptions = 3;
    OPEN_SCENE(scene, SHARED(.shared = path));
    ck_assert_int_eq(interruptions, 0);
    folder_remove();
}
