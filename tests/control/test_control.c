/* test_control.c - the control socket: what it answers, who may connect, and clients that are slow, many or mad. */
#include "control/answer.h"
#include "core/ground/clock.h"
#include "core/limiter/top_keys.h"
#include "support.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

/* ---- A folder for the socket, and a client ---- */

enum { ANSWER_MAX = 1 << 20, MANY = 100 };

static char folder[64], socket_path[80];
static char answer[ANSWER_MAX];

static void folder_make(void)
{
    snprintf(folder, sizeof folder, "/tmp/weir-control.XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(folder));
    snprintf(socket_path, sizeof socket_path, "%s/sock", folder);
}

static void folder_remove(struct scene *scene)
{
    struct stat found;
    scene_close(scene);
    ck_assert(lstat(socket_path, &found) != 0 && errno == ENOENT); /* weir_close() has removed it */
    ck_assert_int_eq(rmdir(folder), 0);
}

/* Open a scene with the socket, closed where the block ends. */
#define CONTROL_SCENE(scene, ...)                \
    CLOSED_BY(folder_remove) struct scene scene; \
    folder_make();                               \
    scene_open(&scene, OPTIONS(.control_socket = socket_path, __VA_ARGS__))

/* Connect; a full queue of those that wait to be accepted makes this wait. */
static int client_connect(void)
{
    struct sockaddr_un address = { .sun_family = AF_UNIX };
    strcpy(address.sun_path, socket_path);
    const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    ck_assert_int_ge(fd, 0);
    ck_assert_msg(connect(fd, (const struct sockaddr *)&address, sizeof address) == 0, "%s", strerror(errno));
    return fd;
}

/* Send bytes. The other side may have ended the connection. */
static void client_say(int fd, const char *text, size_t len)
{
    while (len > 0) {
        const ssize_t sent = send(fd, text, len, MSG_NOSIGNAL);
        if (sent < 0)
            return;
        text += sent;
        len -= (size_t)sent;
    }
}

/* Read up to the end of the connection, however it ends, and close it. */
static const char *client_hear(int fd)
{
    size_t len = 0;
    for (ssize_t got; len < ANSWER_MAX - 1 && (got = recv(fd, answer + len, ANSWER_MAX - 1 - len, 0)) > 0;)
        len += (size_t)got;
    answer[len] = '\0';
    close(fd);
    return answer;
}

static const char *ask(const char *line)
{
    const int fd = client_connect();
    client_say(fd, line, strlen(line));
    return client_hear(fd);
}

static void ck_assert_has(const char *text, const char *part)
{
    ck_assert_msg(strstr(text, part) != NULL, "no '%s' in: %s", part, text);
}

/* ---- Answers ---- */

TEST(the_stats_command_reports_each_limits_decisions, 30)
{
    CONTROL_SCENE(scene, .max_keys = 10);
    weir_limit *api = scene_define_text(&scene, "api", "fixed_window limit=2 period=1h");
    scene_define_text(&scene, "api/v*", "fixed_window limit=5 period=1h");
    for (int i = 0; i < 3; i++)
        taken(api, "a", 1);
    const char *text = ask("stats\n");
    ck_assert_has(text, "limiter allowed=2 denied=1 errors=0 ");
    ck_assert_has(text, "\nlimit name=api allowed=2 denied=1 would_deny=0 permits=2 near=1 fallback=0 "
                        "policy=fixed_window limit=2 period=1h\n");
    ck_assert_has(text, "\nlimit name=api/v* allowed=0 denied=0 would_deny=0 permits=0 near=0 fallback=0 policy=");
    ck_assert_str_eq(text + strlen(text) - 5, "\nend\n");
}

TEST(the_control_socket_can_peek_at_and_reset_keys, 30)
{
    CONTROL_SCENE(scene, .max_keys = 10);
    weir_limit *api = scene_define_text(&scene, "api", "fixed_window limit=2 period=1h");
    taken(api, "a b%", 2);
    ck_assert_str_eq(ask("peek api a%20b%25\n"),
                     "state limit=2 used=2 remaining=0 allowed=false would_deny=false retry_after_us=3600000000 "
                     "reset_after_us=3600000000 policy=fixed_window limit=2 period=1h\nend\n");
    ck_assert_str_eq(ask("reset api a%20b%25\n"), "done\nend\n");
    ck_assert(taken(api, "a b%", 2).allowed);
    must_succeed(weir_charge(api, weir_key_text("a b%"), 5));
    ck_assert_has(ask("peek api a%20b%25\n"), "state limit=2 used=7 remaining=0 ");
    ck_assert_has(ask("peek api other\n"), "state limit=2 used=0 remaining=2 ");
}

TEST(the_top_command_lists_the_most_denied_keys, 30)
{
    CONTROL_SCENE(scene, .top_keys = 5, .top_keys_in_clear = true);
    weir_limit *api = scene_define_text(&scene, "api", "fixed_window limit=1 period=1h");
    for (int i = 0; i < 3; i++) {
        scene.now_us += WEIR_SECOND; /* every denial is counted */
        taken(api, "a b", 2);
    }
    ck_assert_has(ask("top 10\n"), "key limit=api denied=3 error=0 hash=");
    ck_assert_has(answer, " len=3 key=a%20b\nend\n");
    ck_assert_str_eq(ask("top 0\n"), "end\n");
    ck_assert_has(ask("top 1025\n"), "error top needs a number");
    ck_assert_has(ask("top -1\n"), "error top needs a number");
}

static void write_policies(const char *path, const char *text)
{
    FILE *file = fopen(path, "we");
    ck_assert_ptr_nonnull(file);
    ck_assert_int_ge(fputs(text, file), 0);
    ck_assert_int_eq(fclose(file), 0);
}

TEST(the_reload_command_applies_the_policy_file_or_reports_its_fault, 30)
{
    char path[96];
    struct weir_policy policy;
    struct scene scene;
    folder_make();
    snprintf(path, sizeof path, "%s/limits", folder);
    write_policies(path, "api = fixed_window limit=2 period=1h\n");
    scene_open(&scene, OPTIONS(.control_socket = socket_path, .policy_file = path));
    write_policies(path, "api = fixed_window limit=3 period=1h\n");
    ck_assert_str_eq(ask("reload\n"), "done\nend\n");
    must_succeed(weir_limit_policy(weir_limit_find(scene.limiter, "api"), &policy));
    ck_assert_int_eq(policy.limit, 3);
    write_policies(path, "api = fixed_window limit=0 period=1h\n");
    ck_assert_has(ask("reload\n"), "error ");
    ck_assert_has(answer, "limits:1: ");
    must_succeed(weir_limit_policy(weir_limit_find(scene.limiter, "api"), &policy));
    ck_assert_int_eq(policy.limit, 3);
    ck_assert_int_eq(unlink(path), 0);
    folder_remove(&scene);
}

TEST(invalid_requests_get_an_error_message, 30)
{
    static const struct {
        const char *request, *answer;
    } rows[] = {
        { "\n", "error the request is unknown\n" },
        { "nonsense\n", "error the request is unknown\n" },
        { "stats now\n", "error the request is unknown\n" },
        { "peek api\n", "error the request is unknown\n" },
        { "peek api a b\n", "error the request is unknown\n" },
        { "peek none a\n", "error the limiter has no such limit\n" },
        { "peek api \n", "error the key is empty or malformed\n" },
        { "reset api a%2\n", "error the key is empty or malformed\n" },
        { "reset api %zz\n", "error the key is empty or malformed\n" },
        { "top 5\n", "error the limiter does not count keys: it needs the option top_keys\n" },
        { "reload\n", "error the limiter has no policy_file to read\n" },
    };
    CONTROL_SCENE(scene, .max_keys = 10);
    scene_define_text(&scene, "api", "fixed_window limit=2 period=1h");
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        ck_assert_str_eq(ask(rows[i].request), rows[i].answer);
}

/* ---- The socket ---- */

TEST(only_the_user_of_the_process_may_connect, 30)
{
    struct stat found;
    CONTROL_SCENE(scene, .max_keys = 10);
    ck_assert_int_eq(lstat(socket_path, &found), 0);
    ck_assert(S_ISSOCK(found.st_mode));
    ck_assert_uint_eq(found.st_mode & 0777, 0600);
}

static void note_level(void *user, enum weir_log_level level, const char *line)
{
    ck_assert_has(line, "another process listens at control_socket");
    *(int *)user = (int)level;
}

TEST(socket_of_a_dead_process_is_replaced_and_one_in_use_is_a_warning, 30)
{
    struct sockaddr_un address = { .sun_family = AF_UNIX };
    folder_make();
    strcpy(address.sun_path, socket_path);
    const int dead = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    ck_assert_int_eq(bind(dead, (const struct sockaddr *)&address, sizeof address), 0);
    close(dead);
    CLOSED_BY(folder_remove) struct scene scene;
    scene_open(&scene, OPTIONS(.control_socket = socket_path));
    ck_assert_has(ask("stats\n"), "limiter ");
    weir *second = NULL;
    int level = -1;
    must_succeed(weir_open(OPTIONS(.control_socket = socket_path, .log = note_level, .user = &level), &second));
    ck_assert_int_eq(level, WEIR_LOG_WARNING);
    weir_close(second);
    ck_assert_has(ask("stats\n"), "limiter ");
}

/* A service script removes the socket, and the next process opens its own before the former one has ended. */
TEST(closing_leaves_the_socket_of_the_next_process, 30)
{
    weir *former;
    folder_make();
    must_succeed(weir_open(OPTIONS(.control_socket = socket_path), &former));
    ck_assert_int_eq(unlink(socket_path), 0);
    CLOSED_BY(folder_remove) struct scene scene;
    scene_open(&scene, OPTIONS(.control_socket = socket_path));
    weir_close(former);
    ck_assert_has(ask("stats\n"), "limiter ");
}

static void *open_at_once(void *user)
{
    weir **limiter = user;
    must_succeed(weir_open(OPTIONS(.control_socket = socket_path, .quiet = true), limiter));
    return NULL;
}

TEST(of_many_that_start_at_once_one_takes_the_socket_of_the_dead, 60)
{
    enum { STARTERS = 4, ROUNDS = 50 };
    struct sockaddr_un address = { .sun_family = AF_UNIX };
    folder_make();
    strcpy(address.sun_path, socket_path);
    for (int round = 0; round < ROUNDS; round++) {
        weir *limiters[STARTERS];
        pthread_t threads[STARTERS];
        const int dead = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
        ck_assert_int_eq(bind(dead, (const struct sockaddr *)&address, sizeof address), 0);
        close(dead);
        for (int i = 0; i < STARTERS; i++)
            ck_assert_int_eq(pthread_create(&threads[i], NULL, open_at_once, &limiters[i]), 0);
        for (int i = 0; i < STARTERS; i++)
            pthread_join(threads[i], NULL);
        int listening = 0;
        for (int i = 0; i < STARTERS; i++)
            listening += limiters[i]->control != NULL;
        ck_assert_int_eq(listening, 1);
        ck_assert_has(ask("stats\n"), "limiter ");
        for (int i = 0; i < STARTERS; i++)
            weir_close(limiters[i]);
        ck_assert(access(socket_path, F_OK) != 0);
    }
    ck_assert_int_eq(rmdir(folder), 0);
}

TEST(a_file_at_the_path_of_the_socket_is_named_and_stays, 30)
{
    weir *limiter = NULL;
    folder_make();
    FILE *file = fopen(socket_path, "we");
    ck_assert_ptr_nonnull(file);
    ck_assert_int_eq(fclose(file), 0);
    ck_assert_int_eq(weir_open(OPTIONS(.control_socket = socket_path, .quiet = true), &limiter), WEIR_EIO);
    ck_assert_has(weir_last_message(), ": File exists");
    ck_assert_int_eq(unlink(socket_path), 0);
    CLOSED_BY(folder_remove) struct scene scene;
    scene_open(&scene, OPTIONS(.control_socket = socket_path));
}

TEST(a_socket_path_that_is_too_long_or_empty_is_refused, 30)
{
    char path[200];
    weir *limiter;
    memset(path, 'x', sizeof path - 1);
    path[sizeof path - 1] = '\0';
    ck_assert_int_eq(weir_open(OPTIONS(.control_socket = path, .quiet = true), &limiter), WEIR_EINVAL);
    ck_assert_str_eq(weir_last_message(), "option control_socket must be a path of 1 to 107 bytes, not 199");
    ck_assert_int_eq(weir_open(OPTIONS(.control_socket = "", .quiet = true), &limiter), WEIR_EINVAL);
}

/* ---- Clients that mean no good ---- */

TEST(a_slow_reader_receives_a_long_answer_completely, 60)
{
    enum { LIMITS = 3000 };
    char name[32];
    CONTROL_SCENE(scene, .max_keys = 10);
    for (int i = 0; i < LIMITS; i++) {
        snprintf(name, sizeof name, "limit-%d", i);
        scene_define_text(&scene, name, "fixed_window limit=2 period=1h");
    }
    const int fd = client_connect();
    size_t len = 0;
    client_say(fd, "stats\n", 6);
    for (ssize_t got; (got = recv(fd, answer + len, len < 100000 ? 64 : ANSWER_MAX - 1 - len, 0)) > 0;)
        len += (size_t)got;
    answer[len] = '\0';
    close(fd);
    ck_assert_uint_gt(len, 5 * ANSWER_SIZE);
    ck_assert_has(answer, "\nlimit name=limit-2999 ");
    ck_assert_str_eq(answer + len - 5, "\nend\n");
}

TEST(garbage_closes_its_own_connection_and_no_other, 60)
{
    static char garbage[4 * CONTROL_LINE_MAX];
    struct chance chance = chance_make(1);
    CONTROL_SCENE(scene, .max_keys = 10);
    for (int i = 0; i < 50; i++) {
        const size_t len = (size_t)chance_magnitude(&chance, sizeof garbage);
        for (size_t j = 0; j < len; j++)
            garbage[j] = (char)chance_next(&chance);
        const int fd = client_connect();
        client_say(fd, garbage, len);
        shutdown(fd, SHUT_WR);
        client_hear(fd);
    }
    memset(garbage, 'a', sizeof garbage); /* no end of a line */
    const int fd = client_connect();
    client_say(fd, garbage, sizeof garbage);
    ck_assert_str_eq(client_hear(fd), "");
    const int nul = client_connect();
    client_say(nul, "stats\0\n", 7);
    ck_assert_str_eq(client_hear(nul), "");
    ck_assert_has(ask("stats\n"), "limiter ");
}

TEST(a_hundred_silent_clients_keep_no_other_client_out, 60)
{
    int fds[MANY];
    CONTROL_SCENE(scene, .max_keys = 10);
    weir_limit *api = scene_define_text(&scene, "api", "fixed_window limit=2 period=1h");
    for (int i = 0; i < MANY; i++) {
        fds[i] = client_connect();
        if (i % 2 == 0)
            client_say(fds[i], "sta", 3); /* half a word */
    }
    ck_assert_has(ask("stats\n"), "limiter ");
    ck_assert(taken(api, "a", 1).allowed);
    for (int i = 0; i < MANY - CONTROL_CLIENTS; i++) /* the oldest were ended */
        ck_assert_str_eq(client_hear(fds[i]), "");
    for (int i = MANY - CONTROL_CLIENTS; i < MANY; i++)
        close(fds[i]);
    ck_assert_has(ask("stats\n"), "limiter ");
}

/* The two locks that the answers take are held here, so the control socket's thread can get no further, and this thread
 * would stop for ever if a decision took one of them. */
TEST(decisions_take_no_lock_that_control_clients_can_hold, 60)
{
    CONTROL_SCENE(scene, .top_keys = WEIR_MAX_TOP_KEYS);
    weir_limit *api = scene_define_text(&scene, "api", "token_bucket limit=1000 period=1h");
    weir_limit *login = scene_define_text(&scene, "login", "fixed_window limit=5 period=1h");
    taken(api, "known", 1);
    lock_take(&scene.limiter->mutex);
    top_keys_hold(scene.limiter->top_keys);
    const int stats = client_connect(), top = client_connect();
    client_say(stats, "stats\n", 6);
    client_say(top, "top 1024\n", 9);
    for (int i = 0; i < 5; i++) {
        ck_assert(taken(api, "known", 1).allowed);
        ck_assert(taken(login, "new", 1).allowed);
    }
    top_keys_go_on(scene.limiter->top_keys);
    lock_give(&scene.limiter->mutex);
    ck_assert_has(client_hear(stats), "limit name=api allowed=6 ");
    ck_assert_str_eq(client_hear(top), "end\n");
}

/* Only a denial that is counted for `top` may wait, for one reading of at most WEIR_MAX_TOP_KEYS counts, and many
 * clients share a reading. */
TEST(clients_that_request_top_keys_together_share_one_reading, 60)
{
    uint64_t before = 0;
    int readings = 0;
    CONTROL_SCENE(scene, .top_keys = WEIR_MAX_TOP_KEYS);
    weir_limit *api = scene_define_text(&scene, "api", "fixed_window limit=1 period=1h");
    const int64_t begin_us = clock_monotonic_us();
    taken(api, "a", 1);
    for (int i = 0; i < MANY; i++) {
        scene.now_us += WEIR_SECOND; /* every denial is counted, and a reading would tell of it */
        taken(api, "a", 1);
        const char *denied = strstr(ask("top 1\n"), "denied=");
        ck_assert_ptr_nonnull(denied);
        const uint64_t now = strtoull(denied + strlen("denied="), NULL, 10);
        readings += now != before;
        before = now;
    }
    ck_assert_int_le(readings, 1 + (clock_monotonic_us() - begin_us) / CONTROL_TOP_US);
    ck_assert_int_ge(readings, 1);
}

/* ---- Threads ---- */

static atomic_bool goes_on;

static void *decide(void *argument)
{
    struct weir_decision decision;
    char key[16];
    for (int i = 0; atomic_load(&goes_on); i++) {
        snprintf(key, sizeof key, "%d", i % 50);
        must_succeed(weir_try(argument, weir_key_text(key), 1, &decision));
    }
    return NULL;
}

TEST(threads_decide_while_control_clients_send_requests, 60)
{
    CONTROL_SCENE(scene, .top_keys = 20);
    weir_limit *api = scene_define_text(&scene, "api", "fixed_window limit=20 period=1h");
    struct crew crew;
    atomic_store(&goes_on, true);
    crew_start(&crew, 2, decide, api);
    for (int i = 0; i < 20; i++) {
        ck_assert_has(ask("stats\n"), "limit name=api ");
        ck_assert_has(ask("top 5\n"), "end\n");
        ck_assert_has(ask("peek api 7\n"), "state ");
        ck_assert_has(ask("reset api 7\n"), "done\n");
    }
    atomic_store(&goes_on, false);
    crew_join(&crew);
}
