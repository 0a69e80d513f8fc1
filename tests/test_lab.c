/* test_lab.c - the servers that the other tests run on do what those tests rely on. */
#include "support.h"

#include "asker.h"
#include "redis_server.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- A Redis server of one's own ---- */

static void server_start(struct redis_server *server, enum redis_server_reach reach, const char *const *config)
{
    if (redis_server_start(server, reach, config) != 0)
        ck_abort_msg("%s", server->error);
}

static const char *asked(struct asker *asker, const char *command, const char *word)
{
    static char reply[4096];
    if (asker_ask(asker, reply, sizeof reply, command, word, NULL) < 0)
        ck_abort_msg("%s", asker->error);
    return reply;
}

START_TEST(a_server_answers_on_its_socket_and_its_port_and_leaves_nothing_behind)
{
    struct redis_server server;
    struct asker asker;
    server_start(&server, REDIS_SERVER_UNIX_AND_PORT, NULL);
    must(asker_open(&asker, server.socket) == 0, asker.error);
    ck_assert_str_eq(asked(&asker, "PING", NULL), "PONG");
    ck_assert_int_eq(asker_ask(&asker, NULL, 0, "SET", "count", "7", NULL), strlen("OK"));
    asker_close(&asker);
    must(asker_open_port(&asker, server.port) == 0, asker.error);
    ck_assert_str_eq(asked(&asker, "GET", "count"), "7");
    ck_assert_str_eq(asked(&asker, "GET", "nothing"), "(nil)");
    ck_assert_int_eq(asker_count(&asker, "INCR", "count", NULL), 8);
    ck_assert_int_eq(asker_count(&asker, "PING", NULL), -1);
    ck_assert_int_eq(asked(&asker, "NONSENSE", NULL)[0], '-');
    ck_assert_int_gt(redis_server_cpu_us(&server), 0);
    ck_assert_int_gt(redis_server_memory(&server), 1 << 20);
    asker_close(&asker);
    char dir[sizeof server.dir];
    memcpy(dir, server.dir, sizeof dir);
    pid_t pid = server.pid;
    redis_server_stop(&server);
    ck_assert_int_eq(access(dir, F_OK), -1);
    ck_assert_int_eq(kill(pid, 0), -1);
}
END_TEST

START_TEST(a_server_killed_and_started_again_is_where_it_was_with_what_it_kept)
{
    static const char *const config[] = { "--appendonly", "yes", "--appendfsync", "always", NULL };
    struct redis_server server;
    struct asker asker;
    server_start(&server, REDIS_SERVER_UNIX_AND_PORT, config);
    int port = server.port;
    must(asker_open(&asker, server.socket) == 0, asker.error);
    ck_assert_int_eq(asker_count(&asker, "INCR", "count", NULL), 1);
    redis_server_kill(&server);
    ck_assert_int_eq(asker_count(&asker, "INCR", "count", NULL), -1);
    ck_assert_msg(strstr(asker.error, "recv") || strstr(asker.error, "send"), "%s", asker.error);
    must(redis_server_restart(&server) == 0, server.error);
    ck_assert_int_eq(server.port, port);
    must(asker_open_port(&asker, server.port) == 0, asker.error);
    ck_assert_int_eq(asker_count(&asker, "INCR", "count", NULL), 2);
    asker_close(&asker);
    redis_server_stop(&server);
}
END_TEST

START_TEST(a_paused_server_takes_no_cpu_and_goes_on_afterwards)
{
    struct redis_server server;
    struct asker asker;
    server_start(&server, REDIS_SERVER_UNIX, NULL);
    must(asker_open(&asker, server.socket) == 0, asker.error);
    redis_server_pause(&server);
    int64_t cpu_us = redis_server_cpu_us(&server);
    usleep(20000);
    ck_assert_int_eq(redis_server_cpu_us(&server), cpu_us);
    redis_server_resume(&server);
    ck_assert_str_eq(asked(&asker, "PING", NULL), "PONG");
    asker_close(&asker);
    redis_server_pause(&server);
    redis_server_stop(&server); /* also a paused one */
}
END_TEST

START_TEST(a_server_that_cannot_start_says_why)
{
    static const char *const nonsense[] = { "--no-such-option", "1", NULL };
    struct redis_server server;
    ck_assert_int_eq(redis_server_start(&server, REDIS_SERVER_UNIX, nonsense), -1);
    ck_assert_msg(strstr(server.error, "ended at once"), "%s", server.error);
    ck_assert_str_eq(server.dir, "");
    setenv("WEIR_TEST_REDIS_SERVER", "/nonexistent/loader --library-path x redis-server", 1);
    ck_assert_int_eq(redis_server_start(&server, REDIS_SERVER_UNIX_AND_PORT, NULL), -1);
    ck_assert_str_eq(server.words[1], "--library-path");
}
END_TEST

/* 'Z' if it is dead and not buried yet, which is for the system to do here; 0 if there is no such process. */
static char process_state(pid_t pid)
{
    char path[32], state = 0;
    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    FILE *file = fopen(path, "re");
    if (file == NULL)
        return 0;
    if (fscanf(file, "%*d %*s %c", &state) != 1)
        state = 0;
    fclose(file);
    return state;
}

START_TEST(a_server_dies_with_the_process_that_started_it)
{
    struct redis_server server;
    int channel[2];
    ck_assert_int_eq(pipe(channel), 0);
    pid_t starter = fork();
    if (starter == 0) {
        if (redis_server_start(&server, REDIS_SERVER_UNIX, NULL) == 0 &&
            write(channel[1], &server, sizeof server) == sizeof server)
            raise(SIGKILL);
        _exit(1);
    }
    ck_assert_int_eq(read(channel[0], &server, sizeof server), sizeof server);
    waitpid(starter, NULL, 0);
    char state;
    for (int waited = 0; (state = process_state(server.pid)) != 0 && state != 'Z'; waited++) {
        ck_assert_int_lt(waited, 10000);
        usleep(1000);
    }
    server.pid = 0;
    redis_server_stop(&server);
}
END_TEST

int main(void)
{
    if (!redis_server_found()) {
        puts("skipped: no redis-server here (Debian's redis-tools)");
        return 77;
    }
    Suite *suite = suite_create("lab");
    suite_test(suite, a_server_answers_on_its_socket_and_its_port_and_leaves_nothing_behind, 30);
    suite_test(suite, a_server_killed_and_started_again_is_where_it_was_with_what_it_kept, 30);
    suite_test(suite, a_paused_server_takes_no_cpu_and_goes_on_afterwards, 30);
    suite_test(suite, a_server_that_cannot_start_says_why, 30);
    suite_test(suite, a_server_dies_with_the_process_that_started_it, 30);
    return suite_run(suite);
}
