/* test_machine_guard.c - a file that becomes shorter while it is in use fails calls and ends no process; faults that
 * are not weir's do what they would do without it. */
#include "backends/machine/layout.h"
#include "shared_file.h"
#include "support.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define SHARED OPTIONS(.mode = WEIR_MACHINE, .shared = path, .max_keys = 50000, .timeout_us = WEIR_HOUR)

/* ---- weir's file ---- */

/* Each verb, in pages that exist or are missing. */
static void call_all(struct scene *scene, weir_limit *limit, int error)
{
    for (int i = 0; i < 500; i++) {
        char text[120];
        struct weir_decision decision;
        const int len = snprintf(text, sizeof text, i % 2 ? "key %d" : "a key of several cells %0*d", i % 2 ? i : 90,
                                 i);
        const struct weir_key key = weir_key(text, (size_t)len);
        struct weir_request requests[] = { { .limit = limit, .key = key, .cost = 1 },
                                           { .limit = limit, .key = weir_key_text("other"), .cost = 1 } };
        ck_assert_int_eq(weir_try(limit, key, 1, &decision), error);
        ck_assert_int_eq(weir_peek(limit, key, 1, &decision), error);
        ck_assert_int_eq(weir_charge(limit, key, 1), error);
        ck_assert_int_eq(weir_refund(limit, key, 1), error);
        ck_assert_int_eq(weir_try_all(scene->limiter, requests, 2, &decision), error);
        ck_assert_int_eq(weir_reset(limit, key), error);
    }
}

TEST_EACH(truncating_a_file_in_use_fails_calls_but_ends_no_process, 4, 60)
{
    folder_make();
    OPEN_SCENE(scene, SHARED);
    weir_limit *limit = scene_define_text(&scene, "limit", "token_bucket limit=100 period=1h");
    call_all(&scene, limit, WEIR_OK);
    struct stat stat;
    ck_assert_int_eq(lstat(path, &stat), 0);
    const off_t left[] = { 0, 4096, (off_t)machine_stripes_at() + 4096, stat.st_size / 8 };
    ck_assert_int_eq(truncate(path, left[_i]), 0);
    scene.log_allowed = true;
    struct weir_decision decision;
    for (int i = 0; i < 1000; i++) { /* until one touches a page that is missing */
        char key[24];
        snprintf(key, sizeof key, "key %d", i);
        weir_try(limit, weir_key_text(key), 1, &decision);
    }
    call_all(&scene, limit, WEIR_EIO);
    scene_heard(&scene);
    ck_assert_msg(strstr(scene.last_line, "truncated while it was in use") != NULL, "%s", scene.last_line);
    stats_of(scene.limiter);

    /* A new file under that name is a different one. */
    ck_assert_int_eq(unlink(path), 0);
    OPEN_SCENE(second, SHARED);
    call_all(&second, scene_define_text(&second, "limit", "token_bucket limit=100 period=1h"), WEIR_OK);
    folder_remove();
}

static void *crew_work(void *limit)
{
    int errors = 0;
    for (int i = 0; errors < 1000; i++) {
        char key[24];
        struct weir_decision decision;
        snprintf(key, sizeof key, "key %d", i % 5000);
        const int error = weir_try(limit, weir_key_text(key), 1, &decision);
        must(error == WEIR_OK || error == WEIR_EIO, "each call is answered or fails");
        errors += error == WEIR_EIO;
    }
    return NULL;
}

TEST(threads_survive_when_the_file_in_use_is_truncated, 60)
{
    struct crew crew;
    folder_make();
    OPEN_SCENE(scene, OPTIONS(.mode = WEIR_MACHINE, .shared = path, .max_keys = 50000, .timeout_us = WEIR_HOUR,
                              .quiet = true));
    scene.log_allowed = true;
    weir_limit *limit = scene_define_text(&scene, "limit", "token_bucket limit=100 period=1h");
    crew_start(&crew, 4, crew_work, limit);
    ck_assert_int_eq(truncate(path, 0), 0);
    crew_join(&crew);
    folder_remove();
}

TEST(anonymous_shared_memory_cannot_be_truncated, 20)
{
    char entry[64];
    struct stat stat;
    int found = 0;
    OPEN_SCENE(scene, OPTIONS(.mode = WEIR_MACHINE, .max_keys = 1000));
    for (int fd = 0; fd < 64; fd++) {
        char target[64] = { 0 };
        snprintf(entry, sizeof entry, "/proc/self/fd/%d", fd);
        if (readlink(entry, target, sizeof target - 1) < 0 || strncmp(target, "/memfd:weir", 11) != 0)
            continue;
        found++;
        ck_assert_int_eq(fstat(fd, &stat), 0);
        ck_assert_int_eq(ftruncate(fd, stat.st_size - 4096), -1);
        ck_assert_int_eq(errno, EPERM);
    }
    ck_assert_int_eq(found, 1);
}

/* ---- Other faults ---- */

/* Touch a page of another file that is missing. */
static void fault(void)
{
    char other[120];
    snprintf(other, sizeof other, "%s/other", folder);
    const int fd = open(other, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0 || ftruncate(fd, 4096) != 0)
        _exit(1);
    volatile char *map = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (map == MAP_FAILED || ftruncate(fd, 0) != 0)
        _exit(1);
    unlink(other);
    map[0] = 1;
    _exit(2);
}

static void send(void)
{
    kill(getpid(), SIGBUS);
}

static void hear(int number)
{
    _exit(number == SIGBUS ? 42 : 1);
}

static void hear_all(int number, siginfo_t *info, void *context)
{
    (void)context;
    _exit(number == SIGBUS && info->si_addr != NULL ? 43 : 1);
}

/* What a child's program does with SIGBUS before it opens a limiter; then how a fault of the program ends it. */
static const struct other {
    void (*handler)(int number);
    void (*handler_of_all)(int number, siginfo_t *info, void *context);
    void (*act)(void);
    int status; /* of its exit; -1: SIGBUS ends it */
} others[] = {
    { SIG_DFL, NULL, fault, -1 },  { SIG_IGN, NULL, fault, -1 }, { hear, NULL, fault, 42 },
    { NULL, hear_all, fault, 43 }, { SIG_DFL, NULL, send, -1 },  { hear, NULL, send, 42 },
};

TEST_EACH(memory_faults_outside_the_file_are_handled_as_before, sizeof others / sizeof *others, 30)
{
    const struct other *other = &others[_i];
    int status;
    folder_make();
    const pid_t child = fork();
    must(child >= 0, "a child starts");
    if (child == 0) {
        struct sigaction action = { .sa_flags = other->handler_of_all ? SA_SIGINFO : 0 };
        struct scene scene;
        if (other->handler_of_all)
            action.sa_sigaction = other->handler_of_all;
        else
            action.sa_handler = other->handler;
        sigaction(SIGBUS, &action, NULL);
        scene_open(&scene, SHARED);
        other->act();
        _exit(3);
    }
    must(waitpid(child, &status, 0) == child, "it ends");
    if (other->status < 0)
        ck_assert_msg(WIFSIGNALED(status) && WTERMSIG(status) == SIGBUS, "status %x", (unsigned)status);
    else
        ck_assert_msg(WIFEXITED(status) && WEXITSTATUS(status) == other->status, "status %x", (unsigned)status);
    folder_remove();
}
