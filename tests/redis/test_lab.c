/* test_lab.c - the servers and stand-ins of the lab behave as the other tests assume. */
#include "support.h"

#include "asker.h"
#include "envelope.h"
#include "fake_redis.h"
#include "fproxy.h"
#include "redis_server.h"
#include "wire.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

/* Wait until the condition holds; fail after a time that means never. */
#define await(condition)                           \
    for (int waited = 0; !(condition); waited++) { \
        ck_assert_int_lt(waited, 10000);           \
        usleep(1000);                              \
    }

/* ---- A private Redis server ---- */

static void server_start(struct redis_server *server, enum redis_server_reach reach, const char *const *config)
{
    if (redis_server_start(server, reach, config) != 0)
        ck_abort_msg("%s", server->daemon.error);
}

static const char *asked(struct asker *asker, const char *command, const char *word)
{
    static char reply[4096];
    if (asker_ask(asker, reply, sizeof reply, command, word, NULL) < 0)
        ck_abort_msg("%s", asker->error);
    return reply;
}

TEST(a_server_answers_on_its_socket_and_its_port_and_leaves_nothing_behind, 30)
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
    char dir[sizeof server.daemon.dir];
    memcpy(dir, server.daemon.dir, sizeof dir);
    pid_t pid = server.daemon.pid;
    redis_server_stop(&server);
    ck_assert_int_eq(access(dir, F_OK), -1);
    ck_assert_int_eq(kill(pid, 0), -1);
}

TEST(a_restarted_server_has_its_old_address_and_saved_data, 30)
{
    static const char *const config[] = { "--appendonly", "yes", "--appendfsync", "always", NULL };
    CLOSED_BY(redis_server_stop) struct redis_server server;
    CLOSED_BY(asker_close) struct asker asker;
    server_start(&server, REDIS_SERVER_UNIX_AND_PORT, config);
    int port = server.port;
    must(asker_open(&asker, server.socket) == 0, asker.error);
    ck_assert_int_eq(asker_count(&asker, "INCR", "count", NULL), 1);
    redis_server_kill(&server);
    ck_assert_int_eq(asker_count(&asker, "INCR", "count", NULL), -1);
    ck_assert_msg(strstr(asker.error, "recv") || strstr(asker.error, "send"), "%s", asker.error);
    must(redis_server_restart(&server) == 0, server.daemon.error);
    ck_assert_int_eq(server.port, port);
    must(asker_open_port(&asker, server.port) == 0, asker.error);
    ck_assert_int_eq(asker_count(&asker, "INCR", "count", NULL), 2);
}

/* Return a process's state: 'T' if stopped, 'Z' if dead and not reaped yet (which the system does here), 0 if it does
 * not exist. */
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

TEST(a_paused_server_answers_nothing_until_it_continues, 30)
{
    struct redis_server server;
    struct asker asker;
    server_start(&server, REDIS_SERVER_UNIX, NULL);
    must(asker_open(&asker, server.socket) == 0, asker.error);
    redis_server_pause(&server);
    await(process_state(server.daemon.pid) == 'T');
    ck_assert_int_eq(send(asker.fd, "*1\r\n$4\r\nPING\r\n", 14, 0), 14);
    usleep(20000);
    ck_assert_int_eq(recv(asker.fd, &(char){ 0 }, 1, MSG_DONTWAIT), -1);
    redis_server_resume(&server);
    ck_assert_int_eq(recv(asker.fd, (char[8]){ "" }, 7, MSG_WAITALL), 7);
    asker_close(&asker);
    redis_server_pause(&server);
    redis_server_stop(&server); /* also when it is paused */
}

TEST(a_closed_port_refuses_and_a_free_port_can_be_bound, 60)
{
    struct asker asker;
    struct redis_server server;
    char port[16];
    const char *const config[] = { "--port", port, NULL };
    ck_assert_int_eq(asker_open_port(&asker, daemon_port_closed()), -1);
    ck_assert_msg(strstr(asker.error, "refused"), "%s", asker.error);
    int free_port = daemon_port_free(1);
    ck_assert_int_gt(free_port, 0);
    ck_assert_int_lt(free_port + 1, 32768); /* the system never assigns these ports */
    for (int i = 0; i < 2; i++) {
        snprintf(port, sizeof port, "%d", free_port + i);
        server_start(&server, REDIS_SERVER_UNIX, config);
        must(asker_open_port(&asker, free_port + i) == 0, asker.error);
        asker_close(&asker);
        redis_server_stop(&server);
    }
}

TEST(a_server_that_cannot_start_says_why, 30)
{
    static const char *const nonsense[] = { "--no-such-option", "1", NULL };
    struct redis_server server;
    ck_assert_int_eq(redis_server_start(&server, REDIS_SERVER_UNIX, nonsense), -1);
    ck_assert_msg(strstr(server.daemon.error, "ended at once"), "%s", server.daemon.error);
    ck_assert_str_eq(server.daemon.dir, "");
    setenv("WEIR_TEST_REDIS_SERVER", "/nonexistent/loader --library-path x redis-server", 1);
    ck_assert_int_eq(redis_server_start(&server, REDIS_SERVER_UNIX_AND_PORT, NULL), -1);
    ck_assert_str_eq(server.words[1], "--library-path");
}

TEST(a_server_dies_with_the_process_that_started_it, 30)
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
    close(channel[0]), close(channel[1]);
    char state;
    await((state = process_state(server.daemon.pid)) == 0 || state == 'Z');
    await(access(server.daemon.dir, F_OK) != 0); /* the process's folder is removed as well */
}

/* ---- The proxy ---- */

struct street {
    struct redis_server server;
    struct fproxy *proxy;
    struct asker asker; /* to the server through the proxy */
};

static void street_open(struct street *street)
{
    server_start(&street->server, REDIS_SERVER_UNIX, NULL);
    street->proxy = fproxy_start(street->server.socket);
    must(street->proxy != NULL, "a proxy starts");
    must(asker_open_port(&street->asker, fproxy_port(street->proxy)) == 0, street->asker.error);
}

static void street_close(struct street *street)
{
    asker_close(&street->asker);
    fproxy_stop(street->proxy);
    redis_server_stop(&street->server);
}

static int64_t count_at_server(struct street *street)
{
    struct asker direct;
    char reply[32] = "";
    must(asker_open(&direct, street->server.socket) == 0, direct.error);
    ck_assert_int_gt(asker_ask(&direct, reply, sizeof reply, "GET", "n", NULL), 0);
    asker_close(&direct);
    return strcmp(reply, "(nil)") == 0 ? 0 : strtoll(reply, NULL, 10);
}

TEST(a_proxy_forwards_and_counts_messages, 30)
{
    CLOSED_BY(street_close) struct street street;
    char big[100001];
    street_open(&street);
    fproxy_fault(street.proxy, FPROXY_NONE, "incr", 1, -1);
    for (int i = 1; i <= 100; i++)
        ck_assert_int_eq(asker_count(&street.asker, "INCR", "n", NULL), i);
    memset(big, 'x', sizeof big - 1);
    big[sizeof big - 1] = '\0';
    ck_assert_int_eq(asker_ask(&street.asker, NULL, 0, "SET", "big", big, NULL), 2);
    ck_assert_int_eq(asker_ask(&street.asker, big, sizeof big, "GET", "big", NULL), sizeof big - 1);
    ck_assert_int_eq(big[sizeof big - 2], 'x');
    struct fproxy_counts counts = fproxy_counts(street.proxy);
    ck_assert_int_eq(counts.connections, 1);
    ck_assert_int_eq(counts.requests, 100);
    ck_assert_int_eq(counts.delivered, 100);
    ck_assert_int_eq(counts.replies, 100);
    ck_assert_int_eq(counts.faults, 0);
}

/* The answer that a client with a request in flight sees, whether the server received the request, and whether a
 * second one can follow. */
static const struct {
    enum fproxy_fault fault;
    const char *name;
    int64_t first, second; /* the answers; -1: none */
    bool delivered;
    bool is_silent; /* the connection stays open without an answer; the test's timeout ends the wait */
} faults[] = {
    { FPROXY_CUT_REQUEST, "cut request", -1, -1, false, false },
    { FPROXY_RESET_REQUEST, "reset request", -1, -1, false, false },
    { FPROXY_LOSE_REQUEST, "lost request", -1, -1, false, true },
    { FPROXY_DROP_REPLY, "dropped reply", -1, -1, true, true },
    { FPROXY_STALL, "stall", -1, -1, true, true },
    { FPROXY_CLOSE_REPLY, "closed", -1, -1, true, false },
    { FPROXY_RESET_REPLY, "reset", -1, -1, true, false },
    { FPROXY_CUT_REPLY, "cut reply", -1, -1, true, false },
    { FPROXY_HALF_CLOSE, "half closed", 1, -1, true, false },
    { FPROXY_GARBAGE, "garbage", -1, -1, true, false },
    { FPROXY_TWICE, "replay", 1, 1, true, false },
    { FPROXY_SWAP, "swap", -1, -1, true, true },
    { FPROXY_DRIP, "drip", 1, 2, true, false },
};

TEST_EACH(a_proxy_applies_each_fault_to_its_target_request, sizeof faults / sizeof faults[0], 60)
{
    const struct timeval soon = { .tv_usec = 50000 };
    CLOSED_BY(street_close) struct street street;
    street_open(&street);
    fproxy_fault(street.proxy, faults[_i].fault, "INCR", 1, 1);
    ck_assert_int_eq(asker_ask(&street.asker, NULL, 0, "PING", NULL), 4);
    if (faults[_i].is_silent)
        setsockopt(street.asker.fd, SOL_SOCKET, SO_RCVTIMEO, &soon, sizeof soon);
    int64_t first = asker_count(&street.asker, "INCR", "n", NULL);
    ck_assert_msg(first == faults[_i].first, "%s: %s", faults[_i].name, street.asker.error);
    /* a client without a reply may look before the server has the request */
    await(count_at_server(&street) == faults[_i].delivered);
    ck_assert_int_eq(count_at_server(&street), faults[_i].delivered);
    int64_t second = asker_count(&street.asker, "INCR", "n", NULL);
    ck_assert_msg(second == faults[_i].second, "%s: %s", faults[_i].name, street.asker.error);
    struct fproxy_counts counts = fproxy_counts(street.proxy);
    ck_assert_int_eq(counts.faults, 1);
    ck_assert_int_ge(counts.requests, 1);
    asker_close(&street.asker); /* the fault hit only that connection: a new one works */
    must(asker_open_port(&street.asker, fproxy_port(street.proxy)) == 0, street.asker.error);
    ck_assert_int_eq(asker_ask(&street.asker, NULL, 0, "PING", NULL), 4);
}

TEST(a_swapped_reply_comes_after_the_next_one, 30)
{
    CLOSED_BY(street_close) struct street street;
    char replies[64] = "";
    static const char both[] = "*2\r\n$4\r\nINCR\r\n$1\r\nn\r\n*2\r\n$4\r\nINCR\r\n$1\r\nn\r\n";
    street_open(&street);
    fproxy_fault(street.proxy, FPROXY_SWAP, NULL, 1, 1);
    ck_assert_int_eq(write(street.asker.fd, both, sizeof both - 1), sizeof both - 1);
    ck_assert_int_eq(recv(street.asker.fd, replies, 8, MSG_WAITALL), 8);
    ck_assert_str_eq(replies, ":2\r\n:1\r\n");
}

TEST(a_proxys_port_can_refuse_delay_and_accept_connections, 30)
{
    CLOSED_BY(street_close) struct street street;
    struct asker other;
    const struct timeval soon = { .tv_usec = 50000 };
    int64_t times_us[8];
    street_open(&street);
    ck_assert_int_eq(asker_count(&street.asker, "INCR", "n", NULL), 1);
    fproxy_door(street.proxy, FPROXY_REFUSE);
    ck_assert_int_eq(asker_open_port(&other, fproxy_port(street.proxy)), -1);
    ck_assert_msg(strstr(other.error, "refused"), "%s", other.error);
    ck_assert_int_eq(asker_count(&street.asker, "INCR", "n", NULL), 2);
    fproxy_door(street.proxy, FPROXY_HOLD);
    must(asker_open_port(&other, fproxy_port(street.proxy)) == 0, other.error);
    setsockopt(other.fd, SOL_SOCKET, SO_RCVTIMEO, &soon, sizeof soon);
    ck_assert_int_eq(asker_count(&other, "INCR", "n", NULL), -1);
    await(fproxy_counts(street.proxy).connections >= 2); /* otherwise the door might still be open */
    fproxy_door(street.proxy, FPROXY_OPEN);
    must(asker_open_port(&other, fproxy_port(street.proxy)) == 0, other.error);
    ck_assert_int_eq(asker_count(&other, "INCR", "n", NULL), 3);
    ck_assert_int_eq(fproxy_counts(street.proxy).connections, 3);
    ck_assert_int_eq(fproxy_connection_times(street.proxy, times_us, 8), 3);
    ck_assert(times_us[0] <= times_us[1] && times_us[1] <= times_us[2] && times_us[2] <= wire_now_us());
    fproxy_cut(street.proxy, false);
    ck_assert_int_eq(asker_count(&other, "INCR", "n", NULL), -1);
    ck_assert_int_eq(asker_count(&street.asker, "INCR", "n", NULL), -1);
}

TEST(a_frozen_proxy_answers_once_it_resumes_and_a_slow_one_after_its_delay, 30)
{
    CLOSED_BY(street_close) struct street street;
    street_open(&street);
    ck_assert_int_eq(asker_count(&street.asker, "INCR", "n", NULL), 1);
    fproxy_freeze(street.proxy, true);
    ck_assert_int_eq(send(street.asker.fd, "*1\r\n$4\r\nPING\r\n", 14, 0), 14);
    usleep(20000);
    ck_assert_int_eq(recv(street.asker.fd, &(char){ 0 }, 1, MSG_DONTWAIT), -1);
    fproxy_freeze(street.proxy, false);
    ck_assert_int_eq(recv(street.asker.fd, (char[8]){ "" }, 7, MSG_WAITALL), 7);
    fproxy_pace(street.proxy, 10000, 20000, 0);
    int64_t began_us = wire_now_us();
    ck_assert_int_eq(asker_count(&street.asker, "INCR", "n", NULL), 2);
    ck_assert_int_ge(wire_now_us() - began_us, 30000);
}

/* ---- The fake ---- */

static bool answer_oddly(void *user, const struct fake_request *request, struct fake_reply *reply)
{
    ++*(int *)user;
    if (fake_request_is(request, "bulk"))
        fake_say_bulk(reply, "a\0b", 3);
    else if (fake_request_is(request, "SLOW"))
        fake_say_slowly(reply, "+slow\r\n", 7, 1000);
    else if (fake_request_is(request, "ENDLESS"))
        fake_say_for_ever(reply, "*1\r\n", 4);
    else if (fake_request_is(request, "LAST"))
        fake_say_text(reply, ":9\r\n"), fake_hang_up(reply);
    else
        return false;
    return true;
}

TEST(a_fake_server_answers_as_redis_does_or_as_the_test_specifies, 30)
{
    static const char script[] = "return 1";
    int asked_for = 0;
    struct fake_redis *fake = fake_redis_start(answer_oddly, &asked_for);
    struct asker asker;
    char reply[64];
    must(fake != NULL, "a fake starts");
    must(asker_open(&asker, fake_redis_url(fake) + strlen("unix://")) == 0, asker.error);
    ck_assert_str_eq(asked(&asker, "PING", NULL), "PONG");
    ck_assert_str_eq(asked(&asker, "AUTH", "marker"), "OK");
    ck_assert_int_eq(asker_ask(&asker, reply, sizeof reply, "SCRIPT", "LOAD", script, NULL), 40);
    ck_assert_str_eq(reply, "e0e1f9fabfc9d4800c877a703b823ac0578ff8db");
    ck_assert_int_eq(strncmp(asked(&asker, "EVALSHA", reply), "-NOSCRIPT", 9), 0);
    ck_assert_int_eq(strncmp(asked(&asker, "HELLO", "3"), "-ERR", 4), 0);
    ck_assert_int_eq(asker_ask(&asker, reply, sizeof reply, "BULK", NULL), 3);
    ck_assert_mem_eq(reply, "a\0b", 4);
    ck_assert_str_eq(asked(&asker, "SLOW", NULL), "slow");
    ck_assert_int_eq(asker_ask(&asker, reply, sizeof reply, "ENDLESS", NULL), -1);
    must(asker_open(&asker, fake_redis_url(fake) + strlen("unix://")) == 0, asker.error);
    ck_assert_int_eq(asker_count(&asker, "LAST", NULL), 9);
    ck_assert_int_eq(asker_count(&asker, "PING", NULL), -1);
    ck_assert(fake_redis_heard(fake, "marker"));
    ck_assert(!fake_redis_heard(fake, "remarkable"));
    struct fake_counts counts = fake_redis_counts(fake);
    ck_assert_int_eq(counts.connections, 2);
    ck_assert_int_eq(counts.script_calls, 1);
    fake_redis_stop(fake);
    ck_assert_int_eq(counts.requests, asked_for);
}

/* ---- The envelope ---- */

/* Compute the same by the definition: try every stretch from a start to an end. */
static double burst_by_definition(const struct admit *admits, size_t n, int64_t limit, int64_t period_us)
{
    double most = 0;
    for (size_t from = 0; from < n; from++)
        for (size_t to = 0; to < n; to++) {
            int64_t start_us = admits[from].start_us, end_us = admits[to].end_us, sum = 0;
            for (size_t i = 0; i < n; i++)
                sum += admits[i].start_us >= start_us && admits[i].end_us <= end_us ? admits[i].cost : 0;
            double burst = (double)sum - (double)(end_us - start_us) * (double)limit / (double)period_us;
            if (start_us <= end_us && burst > most)
                most = burst;
        }
    return most;
}

/* Try every stretch of that length that begins at an admitted call, or on the grid. */
static int64_t stretch_by_definition(const struct admit *admits, size_t n, int64_t period_us, bool on_grid)
{
    int64_t most = 0;
    for (size_t from = 0; from < n; from++) {
        int64_t start_us = admits[from].start_us - (on_grid ? admits[from].start_us % period_us : 0), sum = 0;
        for (size_t i = 0; i < n; i++)
            sum += admits[i].start_us >= start_us && admits[i].end_us < start_us + period_us ? admits[i].cost : 0;
        most = sum > most ? sum : most;
    }
    return most;
}

TEST(an_envelope_matches_its_definition, 30)
{
    struct chance chance = chance_make(1);
    struct admit admits[40];
    for (int times = 0; times < 300; times++) {
        size_t n = (size_t)chance_between(&chance, 0, 40);
        int64_t limit = chance_between(&chance, 1, 100), start_us = INT64_C(1790000000123456);
        for (size_t i = 0; i < n; i++) {
            start_us += chance_between(&chance, 0, 30) + (chance_one_in(&chance, 9) ? 5000 : 0);
            int64_t end_us = start_us + chance_between(&chance, 0, 100);
            admits[i] = (struct admit){ start_us, end_us, chance_between(&chance, 1, 5) };
        }
        double expected = burst_by_definition(admits, n, limit, 1000);
        ck_assert_double_eq_tol(envelope_burst(admits, n, limit, 1000), expected, 1e-6);
        int64_t period_us = chance_between(&chance, 1, 300);
        int64_t stretch = stretch_by_definition(admits, n, period_us, false);
        int64_t grid = stretch_by_definition(admits, n, period_us, true);
        ck_assert_int_eq(envelope_stretch(admits, n, period_us), stretch);
        ck_assert_int_eq(envelope_grid(admits, n, period_us), grid);
    }
}

int main(void)
{
    if (redis_server_missing())
        return 77;
    return suite_run(tests());
}
