/* redis_server.c - a private Redis server for a test or a benchmark: see redis_server.h. */
#include "redis_server.h"

#include "asker.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { PORT_TRIES = 5 };

static const char debian_server[] = "/usr/bin/redis-check-rdb";

/* ---- Which server ---- */

static const char *wanted_command(void)
{
    const char *command = getenv("WEIR_TEST_REDIS_SERVER");
    return command != NULL && *command != '\0' ? command : NULL;
}

bool redis_server_found(void)
{
    return wanted_command() != NULL || daemon_in_path("redis-server") || access(debian_server, X_OK) == 0;
}

bool redis_server_missing(void)
{
    if (redis_server_found())
        return false;
    puts("skipped: found no redis-server; install Debian's redis-tools");
    return true;
}

size_t redis_server_words(char *command, size_t size, char **words)
{
    static char program[] = "redis-server";
    const char *wanted = wanted_command();
    snprintf(command, size, "%s", wanted != NULL ? wanted : "");
    size_t n = daemon_words(command, words, REDIS_SERVER_WORDS_MOST / 2);
    if (n == 0)
        words[n++] = program;
    return n;
}

const char *redis_server_or_else(void)
{
    return wanted_command() == NULL ? debian_server : NULL;
}

/* ---- Folder, port and command line ---- */

static int command_line(struct redis_server *server, const char *const *config)
{
    static char port_word[] = "--port", bind_word[] = "--bind", loopback[] = "127.0.0.1", save_word[] = "--save";
    static char socket_word[] = "--unixsocket", dir_word[] = "--dir", user_word[] = "--user", none[] = "";
    static char no_port[] = "0";
    size_t n = redis_server_words(server->command, sizeof server->command, server->words);
    char *fixed[] = { port_word,   server->port != 0 ? strrchr(server->tcp_url, ':') + 1 : no_port,
                      bind_word,   loopback,
                      save_word,   none,
                      socket_word, server->socket,
                      dir_word,    server->daemon.dir };
    for (size_t i = 0; i < sizeof fixed / sizeof fixed[0]; i++)
        server->words[n++] = fixed[i];
    server->words[n++] = user_word;
    for (size_t i = 0; i < server->user.n; i++)
        server->words[n++] = server->user.words[i];
    for (; config != NULL && *config != NULL; config++) {
        if (n == REDIS_SERVER_WORDS_MOST)
            return daemon_fail(&server->daemon, "more than %d words on its command line", REDIS_SERVER_WORDS_MOST);
        server->words[n++] = (char *)(uintptr_t)*config; /* execv() does not write to them */
    }
    server->words[n] = NULL;
    return 0;
}

/* ---- Process ---- */

static bool is_answered(const struct redis_server *server, char *reply, size_t size)
{
    struct asker asker;
    bool answered = asker_open(&asker, server->socket) == 0 && asker_ask(&asker, reply, size, "PING", NULL) > 0;
    asker_close(&asker);
    return answered;
}

static bool answers(void *user)
{
    char reply[64];
    return is_answered(user, reply, sizeof reply);
}

static bool answers_and_has_loaded(void *user)
{
    char reply[64];
    return is_answered(user, reply, sizeof reply) && strncmp(reply, "-LOADING", 8) != 0;
}

static int run(struct redis_server *server, bool (*ready)(void *user))
{
    return daemon_run(&server->daemon, server->words, redis_server_or_else(), ready, server);
}

int redis_server_start(struct redis_server *server, enum redis_server_reach reach, const char *const *config)
{
    return redis_server_start_for(server, reach, config, NULL);
}

#define USES_MOST 6

int redis_server_start_for(struct redis_server *server, enum redis_server_reach reach, const char *const *config,
                           const char *const *uses)
{
    *server = (struct redis_server){ 0 };
    const char *all[USES_MOST + 2] = { "requests in flight" };
    for (size_t i = 0; uses != NULL && uses[i] != NULL && i < USES_MOST; i++)
        all[i + 1] = uses[i];
    if (redis_user_read(&server->user, "weir", all) != 0)
        return daemon_fail(&server->daemon, "%s", server->user.error);
    int error = daemon_folder_make(&server->daemon, "redis");
    snprintf(server->login, sizeof server->login, "%s:%s@", server->user.words[0], server->user.password);
    snprintf(server->socket, sizeof server->socket, "%s/redis.sock", server->daemon.dir);
    snprintf(server->url, sizeof server->url, "unix://%s%s", server->login, server->socket);
    for (int tries = reach == REDIS_SERVER_UNIX_AND_PORT ? PORT_TRIES : 1; error == 0 && tries > 0; tries--) {
        server->port = reach == REDIS_SERVER_UNIX_AND_PORT ? daemon_port_free(0) : 0;
        if (server->port != 0)
            snprintf(server->tcp_url, sizeof server->tcp_url, "redis://%s127.0.0.1:%d", server->login, server->port);
        error = command_line(server, config);
        if (error == 0 && run(server, answers_and_has_loaded) == 0)
            return 0;
        error = tries > 1 ? error : -1;
    }
    daemon_folder_remove(&server->daemon);
    return error;
}

void redis_server_stop(struct redis_server *server)
{
    daemon_stop(&server->daemon);
    daemon_folder_remove(&server->daemon);
}

void redis_server_kill(struct redis_server *server)
{
    daemon_kill(&server->daemon);
}

int redis_server_restart(struct redis_server *server)
{
    daemon_kill(&server->daemon);
    return run(server, answers_and_has_loaded);
}

int redis_server_restart_to_load(struct redis_server *server)
{
    daemon_kill(&server->daemon);
    return run(server, answers);
}

void redis_server_pause(struct redis_server *server)
{
    daemon_pause(&server->daemon);
}

void redis_server_resume(struct redis_server *server)
{
    daemon_resume(&server->daemon);
}

/* ---- Cost ---- */

int64_t redis_server_cpu_us(const struct redis_server *server)
{
    clockid_t clock;
    struct timespec time;
    if (clock_getcpuclockid(server->daemon.pid, &clock) != 0 || clock_gettime(clock, &time) != 0)
        return -1;
    return time.tv_sec * INT64_C(1000000) + time.tv_nsec / 1000;
}

int64_t redis_server_memory(const struct redis_server *server)
{
    char path[32];
    long long total, resident = -1;
    snprintf(path, sizeof path, "/proc/%d/statm", (int)server->daemon.pid);
    FILE *file = fopen(path, "re");
    if (file == NULL)
        return -1;
    if (fscanf(file, "%lld %lld", &total, &resident) != 2)
        resident = -1;
    fclose(file);
    return resident < 0 ? -1 : resident * sysconf(_SC_PAGESIZE);
}
