/* test_failing_calls_redis.c - every system call of a limiter on Redis fails once. */
#include "cluster.h"
#include "failing_play.h"
#include "redis_place.h"
#include "scratch.h"
#include "sentinels.h"

#ifdef WEIR_TLS
#include "pki.h"
#endif

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define TIMEOUT_US (10 * WEIR_SECOND) /* on a loaded machine two seconds have not been enough for 32 TLS clients */
#define WINDOW "fixed_window limit=30 period=366d"

static char folder[64]; /* holds the tests' files */

static struct failing_mode mode_of(enum weir_mode mode, const char *url)
{
    struct failing_mode made = {
        .options = WEIR_OPTIONS_INIT,
        .policy = WINDOW,
        .limit = 30,
        .begins_with = 4,
    };
    made.options.mode = mode;
    made.options.redis_url = url;
    made.options.timeout_us = TIMEOUT_US;
    made.options.on_failure = WEIR_FAIL_ERROR;
    return made;
}

static void server_start(struct redis_server *server, const char *const *config)
{
    if (redis_server_start(server, REDIS_SERVER_UNIX_AND_PORT, config) != 0)
        ck_abort_msg("%s", server->daemon.error);
}

static const char *file_write(const char *name, const char *text)
{
    static char path[128];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "we");
    ck_assert(file && fputs(text, file) >= 0 && fclose(file) == 0);
    return path;
}

TEST(redis_over_a_unix_socket_survives_failing_system_calls, 300)
{
    CLOSED_BY(redis_server_stop) struct redis_server server;
    struct failing_sum sum;
    server_start(&server, NULL);
    struct failing_mode mode = mode_of(WEIR_DISTRIBUTED, server.url);
    mode.has_event_fd = true;
    failing_play_mode("Redis, Unix socket", &mode, &sum);
}

/* ThreadSanitizer does not support threads in a forked child. A lock of AddressSanitizer's allocator that another
 * thread held at the fork stays locked. */
#if !INSTRUMENTED
TEST(a_forked_child_survives_failing_system_calls, 300)
{
    CLOSED_BY(redis_server_stop) struct redis_server server;
    struct failing_sum sum;
    server_start(&server, NULL);
    struct failing_mode mode = mode_of(WEIR_DISTRIBUTED, server.url);
    mode.has_event_fd = true;
    mode.in_child = true;
    failing_play_mode("Redis, in a child", &mode, &sum);
}
#endif

TEST(redis_by_host_name_survives_failing_system_calls, 300)
{
    CLOSED_BY(redis_server_stop) struct redis_server server;
    struct failing_sum sum;
    char url[128];
    server_start(&server, NULL);
    snprintf(url, sizeof url, "redis://%s@localhost:%d", server.user.words[0], server.port);
    struct failing_mode mode = mode_of(WEIR_DISTRIBUTED, url);
    mode.options.on_failure = WEIR_FAIL_LOCAL;
    mode.options.redis_password_file = file_write("password", server.user.password);
    failing_play_mode("Redis, TCP by name", &mode, &sum);
}

TEST(leases_survive_failing_system_calls, 300)
{
    CLOSED_BY(redis_server_stop) struct redis_server server;
    struct failing_sum sum;
    server_start(&server, NULL);
    struct failing_mode mode = mode_of(WEIR_HYBRID, server.url);
    mode.policy = "fixed_window limit=600 period=366d";
    mode.limit = 600;
    mode.begins_with = 200;
    mode.leases = true;
    mode.options.on_failure = WEIR_FAIL_CLOSED;
    failing_play_mode("hybrid", &mode, &sum);
}

TEST(following_sentinels_survives_failing_system_calls, 300)
{
    static struct sentinels trio;
    static const char *const uses[] = { "sentinels", NULL };
    struct failing_sum sum;
    char url[512];
    if (sentinels_start(&trio, &(struct sentinels_wish){ .servers = 1, .sentinels = 1, .uses = uses }) != 0)
        ck_abort_msg("%s", trio.error);
    sentinels_url(&trio, 0, trio.servers[0].login, url, sizeof url);
    struct failing_mode mode = mode_of(WEIR_DISTRIBUTED, url);
    mode.options.on_failure = WEIR_FAIL_OPEN;
    failing_play_mode("Redis Sentinel", &mode, &sum);
    sentinels_stop(&trio);
}

TEST(a_redis_cluster_survives_failing_system_calls, 300)
{
    static struct cluster cluster;
    struct failing_sum sum;
    char url[256];
    if (cluster_start(&cluster, &(struct cluster_wish){ .without_replica = true, .patient = true }) != 0)
        ck_abort_msg("%s", cluster.error);
    cluster_url(&cluster, 0, 2, NULL, url, sizeof url);
    struct failing_mode mode = mode_of(WEIR_DISTRIBUTED, url);
    mode.has_event_fd = true;
    failing_play_mode("Redis Cluster", &mode, &sum);
    cluster_stop(&cluster);
}

#ifdef WEIR_TLS
static const char *certificate(const char *name, const char *issuer, const char *hosts, char path[static 128])
{
    const struct pki_wish wish = { name, issuer, hosts, -3600, 24L * 3600 };
    ck_assert_int_eq(pki_issue(folder, &wish), 0);
    snprintf(path, 128, "%s/%s.pem", folder, name);
    return path;
}

TEST(redis_over_tls_survives_failing_system_calls, 300)
{
    CLOSED_BY(redis_server_stop) struct redis_server server;
    struct failing_sum sum;
    char authority[128], own[128], key[160], url[160], port[8];
    certificate("ca", NULL, NULL, authority);
    certificate("good", "ca", "DNS:localhost,IP:127.0.0.1", own);
    snprintf(key, sizeof key, "%s/good.key", folder);
    snprintf(port, sizeof port, "%d", daemon_port_free(0));
    const char *const config[] = { "--tls-port",
                                   port,
                                   "--tls-cert-file",
                                   own,
                                   "--tls-key-file",
                                   key,
                                   "--tls-ca-cert-file",
                                   authority,
                                   "--tls-auth-clients",
                                   "no",
                                   NULL };
    server_start(&server, config);
    snprintf(url, sizeof url, "rediss://%s127.0.0.1:%s", server.login, port);
    struct failing_mode mode = mode_of(WEIR_DISTRIBUTED, url);
    mode.options.redis_ca_file = authority;
    failing_play_mode("Redis, TLS", &mode, &sum);
}
#endif

/* ---- A slow server, in its own process ---- */

enum { ANSWER_US = 200000 };

static bool answer_late(void *user, const struct fake_request *request, struct fake_reply *reply)
{
    unsigned char answer[TRUTH_LEN];
    (void)user;
    if (!fake_request_is(request, "EVALSHA"))
        return false;
    sleep_us(ANSWER_US);
    fake_say_bulk(reply, answer, truth_about(request, answer));
    return true;
}

static pid_t start_late_server(char *url, size_t size)
{
    int told[2];
    ck_assert_int_eq(pipe2(told, O_CLOEXEC), 0);
    const pid_t pid = fork();
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        struct fake_redis *fake = fake_redis_start(answer_late, NULL);
        if (!fake || write(told[1], fake_redis_url(fake), strlen(fake_redis_url(fake))) < 0)
            _exit(1);
        pause();
    }
    close(told[1]);
    const ssize_t len = read(told[0], url, size - 1);
    ck_assert_int_gt(len, 0);
    url[len] = '\0';
    close(told[0]);
    return pid;
}

TEST(a_limiter_that_cannot_set_a_sockets_timeout_does_not_spin, 60)
{
    struct calls_record record;
    const struct calls_plan plan = calls_plan_first(CALL_SETSOCKOPT, true);
    struct place place;
    char url[128];
    const pid_t server = start_late_server(url, sizeof url);
    place_open_bare(&place);
    struct weir_options options = place_options(&place, TIMEOUT_US);
    options.redis_url = url;
    calls_watch(&record, &plan);
    weir *limiter = limiter_of(&options);
    weir_limit *limit = limit_of(limiter, "api", WINDOW);
    for (int i = 0; i < 2; i++) /* the I/O thread makes the first call if it is still connecting */
        must_succeed(timed_try(limit, "key", 1).status);
    calls_forget();
    ck_assert_int_gt(record.failed, 0);
    ck_assert_int_gt(calls_made(&record, CALL_RECV), 0); /* the caller has its own connection */
    ck_assert_int_lt(calls_made(&record, CALL_RECV), 100);
    weir_close(limiter);
    kill(server, SIGKILL);
    ck_assert_int_eq(waitpid(server, NULL, 0), server);
}

static void folder_remove(void)
{
    char command[100];
    snprintf(command, sizeof command, "rm -r '%s'", folder);
    if (system(command) != 0)
        printf("%s is left\n", folder);
}

int main(void)
{
    if (redis_server_missing())
        return 77;
    snprintf(folder, sizeof folder, "%s/weir-calls-XXXXXX", scratch_parent());
    if (!mkdtemp(folder))
        return 1;
    const int status = suite_run(tests());
    folder_remove();
    return status;
}
