/* sentinels.c - a Redis primary, its replicas, and the sentinels that watch them: see sentinels.h. */
#include "sentinels.h"

#include "asker.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { PORT_TRIES = 5, READY_MOST_MS = 30000 };

static int fail(struct sentinels *trio, const char *what, const char *why)
{
    char sentence[sizeof trio->error]; /* `why` may be in the trio */
    snprintf(sentence, sizeof sentence, "%s: %s", what, why);
    memcpy(trio->error, sentence, sizeof sentence);
    return -1;
}

/* ---- Servers ---- */

static void server_line(struct sentinels *trio, int i)
{
    const char **words = trio->words[i];
    size_t n = 0;
    const char *const fixed[] = { "--repl-diskless-sync-delay", "0", "--repl-ping-replica-period", "1" };
    for (; n < sizeof fixed / sizeof fixed[0]; n++)
        words[n] = fixed[n];
    if (trio->wish.password != NULL) {
        const char *const secret[] = { "--requirepass", trio->wish.password, "--masterauth", trio->wish.password };
        for (int j = 0; j < 4; j++)
            words[n++] = secret[j];
    }
    if (trio->wish.tls) {
        words[n++] = "--tls-port";
        words[n++] = trio->port_texts[i];
        words[n++] = "--tls-replication";
        words[n++] = "yes";
    }
    if (i > 0) {
        words[n++] = "--replicaof";
        words[n++] = "127.0.0.1";
        words[n++] = trio->port_texts[0];
    }
    for (const char *const *more = trio->wish.server_words; more != NULL && *more != NULL; more++)
        if (n < SENTINELS_WORDS_MOST)
            words[n++] = *more;
    words[n] = NULL;
}

static int start_server(struct sentinels *trio, int i)
{
    for (int tries = PORT_TRIES; tries > 0; tries--) {
        if (trio->wish.tls)
            snprintf(trio->port_texts[i], sizeof trio->port_texts[i], "%d", daemon_port_free(0));
        server_line(trio, i);
        if (redis_server_start_for(&trio->servers[i], REDIS_SERVER_UNIX_AND_PORT, trio->words[i], trio->wish.uses) != 0)
            continue;
        if (!trio->wish.tls)
            snprintf(trio->port_texts[i], sizeof trio->port_texts[i], "%d", trio->servers[i].port);
        trio->ports[i] = atoi(trio->port_texts[i]);
        return 0;
    }
    return fail(trio, "a server", trio->servers[i].daemon.error);
}

/* ---- Sentinels ---- */

/* Return the answer to `command`, or "". */
static const char *ask(const char *socket, const char *password, char *reply, size_t size, const char *const *command)
{
    size_t lens[8], n = 0;
    struct asker asker;
    reply[0] = '\0';
    for (; command[n] != NULL; n++)
        lens[n] = strlen(command[n]);
    if (asker_open(&asker, socket) == 0 &&
        (password == NULL || asker_ask(&asker, reply, size, "AUTH", password, NULL) >= 0) &&
        asker_ask_words(&asker, reply, size, n, command, lens) < 0)
        reply[0] = '\0';
    asker_close(&asker);
    return reply;
}

#define ask_sentinel(trio, i, reply, ...)                                             \
    ask((trio)->sentinels[i].socket, (trio)->wish.own_password, reply, sizeof(reply), \
        (const char *const[]){ __VA_ARGS__, NULL })

static bool answers(void *user)
{
    const struct sentinels_one *one = user;
    char reply[64];
    return ask(one->socket, NULL, reply, sizeof reply, (const char *const[]){ "PING", NULL })[0] != '\0';
}

static int write_config(struct sentinels *trio, const struct sentinels_one *one)
{
    char path[sizeof one->daemon.dir + 16];
    snprintf(path, sizeof path, "%s/sentinel.conf", one->daemon.dir);
    FILE *file = fopen(path, "we");
    if (file == NULL)
        return fail(trio, path, "cannot be written");
    fprintf(file, "port %d\n", trio->wish.tls ? 0 : one->port);
    if (trio->wish.tls)
        fprintf(file, "tls-port %d\ntls-replication yes\n", one->port);
    fprintf(file, "bind 127.0.0.1\nunixsocket %s\ndir %s\n%s\n", one->socket, one->daemon.dir,
            trio->wish.sentinel_lines != NULL ? trio->wish.sentinel_lines : "");
    if (trio->wish.own_password != NULL)
        fprintf(file, "requirepass %s\n", trio->wish.own_password);
    fprintf(file, "sentinel monitor " SENTINELS_SERVICE " %s %d 1\n",
            trio->wish.host != NULL ? trio->wish.host : "127.0.0.1", trio->ports[0]);
    fprintf(file, "sentinel down-after-milliseconds " SENTINELS_SERVICE " %d\n",
            one == &trio->sentinels[0] ? SENTINELS_DOWN_MS : 20 * SENTINELS_DOWN_MS);
    fprintf(file, "sentinel failover-timeout " SENTINELS_SERVICE " %d\n", SENTINELS_FAILOVER_MS);
    if (trio->wish.password != NULL)
        fprintf(file, "sentinel auth-pass " SENTINELS_SERVICE " %s\n", trio->wish.password);
    return fclose(file) == 0 ? 0 : fail(trio, path, "cannot be written");
}

static int run(struct sentinels_one *one)
{
    static char config[] = "sentinel.conf", mode[] = "--sentinel"; /* in its folder, where it runs */
    size_t n = redis_server_words(one->command, sizeof one->command, one->words);
    one->words[n++] = config;
    one->words[n++] = mode;
    one->words[n] = NULL;
    return daemon_run(&one->daemon, one->words, redis_server_or_else(), answers, one);
}

static int start_sentinel(struct sentinels *trio, int i)
{
    struct sentinels_one *one = &trio->sentinels[i];
    char dir[sizeof one->daemon.dir]; /* a copy, because gcc takes both for the same array */
    if (daemon_folder_make(&one->daemon, "sentinel") != 0)
        return fail(trio, "a sentinel", one->daemon.error);
    memcpy(dir, one->daemon.dir, sizeof dir);
    snprintf(one->socket, sizeof one->socket, "%s/sentinel.sock", dir);
    for (int tries = PORT_TRIES; tries > 0; tries--) {
        one->port = daemon_port_free(0);
        if (write_config(trio, one) != 0)
            return -1;
        if (run(one) == 0)
            return 0;
    }
    return fail(trio, "a sentinel", one->daemon.error);
}

/* ---- All together ---- */

/* Set how often sentinels look and talk, in milliseconds. Before Redis 7.0 this is fixed, and they take some seconds
 * longer to know each other. The times have fixed proportions to others, so they are changed only for that long. */
static void set_pace(struct sentinels *trio, const char *info_ms, const char *publish_ms)
{
    char reply[256];
    for (int i = 0; i < trio->wish.sentinels; i++) {
        ask_sentinel(trio, i, reply, "SENTINEL", "DEBUG", "info-period", info_ms);
        ask_sentinel(trio, i, reply, "SENTINEL", "DEBUG", "publish-period", publish_ms);
    }
}

/* Return the number after a line of this name. */
static int number_after(const char *reply, const char *name)
{
    const char *found = strstr(reply, name);
    return found != NULL ? atoi(found + strlen(name)) : -1;
}

static bool is_ready(struct sentinels *trio, int i)
{
    char reply[8192];
    ask_sentinel(trio, i, reply, "SENTINEL", "master", SENTINELS_SERVICE);
    if (number_after(reply, "num-slaves\n") != trio->wish.servers - 1 ||
        number_after(reply, "num-other-sentinels\n") != trio->wish.sentinels - 1)
        return false;
    int fit = 0;
    const char *at = ask_sentinel(trio, i, reply, "SENTINEL", "slaves", SENTINELS_SERVICE);
    while ((at = strstr(at, "master-link-status\nok")) != NULL) {
        fit++;
        at++;
    }
    return fit == trio->wish.servers - 1;
}

int sentinels_start(struct sentinels *trio, const struct sentinels_wish *wish)
{
    static const char *const sentinels[] = { "sentinels", NULL };
    const struct timespec step = { .tv_nsec = 10 * 1000000L };
    *trio = (struct sentinels){ 0 };
    if (wish != NULL)
        trio->wish = *wish;
    trio->wish.uses = trio->wish.uses != NULL ? trio->wish.uses : sentinels;
    trio->wish.servers = trio->wish.servers != 0 ? trio->wish.servers : SENTINELS_MOST;
    trio->wish.sentinels = trio->wish.sentinels != 0 ? trio->wish.sentinels : SENTINELS_MOST;
    int error = 0, waited = 0;
    for (int i = 0; i < trio->wish.servers && error == 0; i++)
        error = start_server(trio, i);
    for (int i = 0; i < trio->wish.sentinels && error == 0; i++)
        error = start_sentinel(trio, i);
    if (error == 0)
        set_pace(trio, "100", "100");
    for (int i = 0; i < trio->wish.sentinels && error == 0; i++) {
        while (!is_ready(trio, i) && waited < READY_MOST_MS) {
            nanosleep(&step, NULL);
            waited += 10;
        }
        if (waited >= READY_MOST_MS)
            error = fail(trio, "the sentinels", "they do not know one another, or the replicas");
    }
    if (error == 0)
        set_pace(trio, "10000", "2000");
    if (error != 0)
        sentinels_stop(trio);
    return error;
}

void sentinels_stop(struct sentinels *trio)
{
    for (int i = 0; i < trio->wish.sentinels; i++) {
        daemon_kill(&trio->sentinels[i].daemon); /* there is nothing to save */
        daemon_folder_remove(&trio->sentinels[i].daemon);
    }
    for (int i = trio->wish.servers - 1; i >= 0; i--) {
        redis_server_kill(&trio->servers[i]);
        redis_server_stop(&trio->servers[i]);
    }
}

void sentinels_url(const struct sentinels *trio, int first, const char *user_info, char *url, size_t size)
{
    int len = snprintf(url, size, "redis%s-sentinel://%s", trio->wish.tls ? "s" : "", user_info);
    for (int i = 0; i < trio->wish.sentinels; i++)
        len += snprintf(url + len, size - (size_t)len, "%s127.0.0.1:%d", i > 0 ? "," : "",
                        trio->sentinels[(first + i) % trio->wish.sentinels].port);
    snprintf(url + len, size - (size_t)len, "/" SENTINELS_SERVICE);
}

/* ---- The primary ---- */

int sentinels_named(const struct sentinels *trio, int i)
{
    char reply[256];
    ask_sentinel(trio, i, reply, "SENTINEL", "get-master-addr-by-name", SENTINELS_SERVICE);
    const char *line = strchr(reply, '\n');
    for (int server = 0; line != NULL && server < trio->wish.servers; server++)
        if (atoi(line + 1) == trio->ports[server])
            return server;
    return -1;
}

bool sentinels_is_primary(const struct sentinels *trio, int server)
{
    char reply[1024];
    ask(trio->servers[server].socket, trio->wish.password, reply, sizeof reply, (const char *const[]){ "ROLE", NULL });
    return strncmp(reply, "master", 6) == 0;
}

int sentinels_fail_over(struct sentinels *trio, int i)
{
    char reply[256];
    ask_sentinel(trio, i, reply, "SENTINEL", "FAILOVER", SENTINELS_SERVICE);
    return strncmp(reply, "OK", 2) == 0 ? 0 : fail(trio, "SENTINEL FAILOVER", reply);
}

void sentinels_kill(struct sentinels *trio, int i)
{
    daemon_kill(&trio->sentinels[i].daemon);
}

int sentinels_restart(struct sentinels *trio, int i)
{
    daemon_kill(&trio->sentinels[i].daemon);
    return run(&trio->sentinels[i]) == 0 ? 0 : fail(trio, "a sentinel", trio->sentinels[i].daemon.error);
}
