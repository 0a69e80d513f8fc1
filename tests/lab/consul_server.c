/* consul_server.c - a private Consul agent for a test or a benchmark: see consul_server.h. */
#include "consul_server.h"

#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

enum { PORT_TRIES = 5, PATIENCE_MS = 30000 };

/* NULL: none is installed. */
static const char *command(void)
{
    static const char unpacked[] = WEIR_SERVERS "/consul-1.8/server";
    const char *wanted = getenv("WEIR_TEST_CONSUL");
    if (wanted != NULL && *wanted != '\0')
        return wanted;
    if (daemon_in_path("consul"))
        return "consul";
    return access(unpacked, X_OK) == 0 ? unpacked : NULL;
}

bool consul_server_found(void)
{
    return command() != NULL;
}

bool consul_server_missing(void)
{
    if (consul_server_found())
        return false;
    puts("*** SKIPPED: no Consul here: sh tests/tools/servers.sh consul-1.8 gets one ***");
    return true;
}

/* ---- Its command line ---- */

static void command_line(struct consul_server *server, enum consul_server_acl acl)
{
    static char no_updates[] = "disable_update_check=true";
    static char with_acl[] = "acl { enabled = true default_policy = \"deny\" "
                             "tokens { master = \"" CONSUL_SERVER_MASTER "\" agent = \"" CONSUL_SERVER_MASTER "\" } }";
    static char agent[] = "agent", dev[] = "-dev", bind[] = "-bind", client[] = "-client", loopback[] = "127.0.0.1";
    static char http[] = "-http-port", lan[] = "-serf-lan-port", rpc[] = "-server-port", wan[] = "-serf-wan-port";
    static char dns[] = "-dns-port", grpc[] = "-grpc-port", none[] = "-1", hcl[] = "-hcl";
    snprintf(server->command, sizeof server->command, "%s", command() != NULL ? command() : "consul");
    size_t n = daemon_words(server->command, server->words, CONSUL_SERVER_WORDS_MOST / 2);
    char *const words[] = { agent,
                            dev,
                            bind,
                            loopback,
                            client,
                            loopback,
                            dns,
                            none,
                            grpc,
                            none,
                            wan,
                            none,
                            http,
                            server->port_texts[0],
                            lan,
                            server->port_texts[1],
                            rpc,
                            server->port_texts[2],
                            hcl,
                            no_updates,
                            acl == CONSUL_SERVER_ACL ? hcl : NULL,
                            with_acl,
                            NULL };
    memcpy(server->words + n, words, sizeof words);
}

/* ---- Requests ---- */

/* Return a connection whose reads and writes wait at most that long; -1: none. */
static int connected(const struct consul_server *server, int64_t patience_ms)
{
    struct sockaddr_in address = { .sin_family = AF_INET,
                                   .sin_port = htons((uint16_t)server->port),
                                   .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    const struct timeval patience = { .tv_sec = patience_ms / 1000, .tv_usec = patience_ms % 1000 * 1000 };
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return -1;
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
    if (connect(fd, (struct sockaddr *)&address, sizeof address) == 0)
        return fd;
    close(fd);
    return -1;
}

/* Read a whole HTTP/1.0 answer, which ends with its connection and has no chunks. Return false if it breaks off. */
static bool received(int fd, char *text, size_t size)
{
    size_t len = 0;
    ssize_t got = 1;
    while (got > 0 && len < size - 1) {
        do /* a stopped process may be interrupted */
            got = recv(fd, text + len, size - 1 - len, 0);
        while (got < 0 && errno == EINTR);
        len += got > 0 ? (size_t)got : 0;
    }
    text[len] = '\0';
    return got == 0;
}

static bool understood(char *text, struct consul_answer *answer)
{
    static const char index_name[] = "\r\nX-Consul-Index: ";
    char *body = strstr(text, "\r\n\r\n");
    if (body == NULL || strncmp(text, "HTTP/1.", 7) != 0 || strlen(text) < 12)
        return false;
    *body = '\0';
    const char *index = strstr(text, index_name);
    answer->status = (int)strtol(text + 9, NULL, 10);
    answer->index = index != NULL ? strtoll(index + sizeof index_name - 1, NULL, 10) : 0;
    snprintf(answer->body, sizeof answer->body, "%s", body + 4);
    return true;
}

int consul_server_ask(struct consul_server *server, const char *method, const char *path, const char *body,
                      int64_t patience_ms, struct consul_answer *answer)
{
    static _Thread_local char text[CONSUL_ANSWER_MOST + 4096];
    size_t body_len = body != NULL ? strlen(body) : 0;
    int len = snprintf(text, sizeof text, "%s %s HTTP/1.0\r\nContent-Length: %zu\r\n%s%s%s\r\n%s", method, path,
                       body_len, server->token != NULL ? "X-Consul-Token: " : "",
                       server->token != NULL ? server->token : "", server->token != NULL ? "\r\n" : "",
                       body != NULL ? body : "");
    if (len < 0 || (size_t)len >= sizeof text)
        return daemon_fail(&server->daemon, "a request of %d bytes is too long", len);
    int fd = connected(server, patience_ms);
    bool good = fd >= 0 && send(fd, text, (size_t)len, MSG_NOSIGNAL) == len && received(fd, text, sizeof text) &&
                understood(text, answer);
    if (fd >= 0)
        close(fd);
    return good ? 0 : daemon_fail(&server->daemon, "%s %s: no answer from Consul", method, path);
}

/* Make a PUT or DELETE without a body that must succeed. */
static int done(struct consul_server *server, const char *method, const char *path, const char *body)
{
    struct consul_answer answer;
    if (consul_server_ask(server, method, path, body, PATIENCE_MS, &answer) != 0)
        return -1;
    if (answer.status != 200)
        return daemon_fail(&server->daemon, "%s %s: %d %.200s", method, path, answer.status, answer.body);
    return 0;
}

int consul_server_register(struct consul_server *server, const char *service, const char *id, int64_t weight)
{
    char body[1024];
    snprintf(body, sizeof body,
             "{\"Name\": \"%s\", \"ID\": \"%s\", \"Weights\": {\"Passing\": %lld, \"Warning\": 1}, \"Check\": "
             "{\"CheckID\": \"check-%s\", \"TTL\": \"24h\", \"Status\": \"passing\"}}",
             service, id, (long long)weight, id);
    return done(server, "PUT", "/v1/agent/service/register", body);
}

int consul_server_deregister(struct consul_server *server, const char *id)
{
    char path[512];
    snprintf(path, sizeof path, "/v1/agent/service/deregister/%s", id);
    return done(server, "PUT", path, NULL);
}

int consul_server_fail(struct consul_server *server, const char *id)
{
    char path[512];
    snprintf(path, sizeof path, "/v1/agent/check/fail/check-%s", id);
    return done(server, "PUT", path, NULL);
}

int consul_server_put(struct consul_server *server, const char *key, const char *value)
{
    char path[1024];
    snprintf(path, sizeof path, "/v1/kv/%s", key);
    return done(server, "PUT", path, value);
}

int consul_server_delete(struct consul_server *server, const char *key)
{
    char path[1024];
    snprintf(path, sizeof path, "/v1/kv/%s", key);
    return done(server, "DELETE", path, NULL);
}

/* Count `part` in `text`. */
static int64_t count(const char *text, const char *part)
{
    int64_t n = 0;
    for (const char *at = text; (at = strstr(at, part)) != NULL; at++)
        n++;
    return n;
}

int64_t consul_server_passing(struct consul_server *server, const char *service, int64_t *index)
{
    struct consul_answer answer;
    char path[512];
    snprintf(path, sizeof path, "/v1/health/service/%s?passing", service);
    if (consul_server_ask(server, "GET", path, NULL, PATIENCE_MS, &answer) != 0 || answer.status != 200)
        return -1;
    if (index != NULL)
        *index = answer.index;
    /* There is one object per instance. -dev writes JSON with blanks; the "Service" inside an object's "Service" is a
     * text. */
    return count(answer.body, "\"Service\": {") + count(answer.body, "\"Service\":{");
}

/* Read the text value of a name in JSON without escapes. */
static bool text_of(const char *json, const char *name, char *value, size_t size)
{
    const char *at = strstr(json, name);
    at = at != NULL ? strchr(at + strlen(name), '"') : NULL;
    if (at == NULL || strcspn(at + 1, "\"") >= size)
        return false;
    snprintf(value, size, "%.*s", (int)strcspn(at + 1, "\""), at + 1);
    return true;
}

int consul_server_token(struct consul_server *server, const char *rules, char token[40])
{
    struct consul_answer answer;
    char body[2048], id[40];
    static int number;
    snprintf(body, sizeof body, "{\"Name\": \"rules-%d\", \"Rules\": \"%s\"}", ++number, rules);
    if (consul_server_ask(server, "PUT", "/v1/acl/policy", body, PATIENCE_MS, &answer) != 0)
        return -1;
    if (answer.status != 200 || !text_of(answer.body, "\"ID\":", id, sizeof id))
        return daemon_fail(&server->daemon, "PUT /v1/acl/policy: %d %.200s", answer.status, answer.body);
    snprintf(body, sizeof body, "{\"Policies\": [{\"ID\": \"%s\"}]}", id);
    if (consul_server_ask(server, "PUT", "/v1/acl/token", body, PATIENCE_MS, &answer) != 0)
        return -1;
    if (answer.status != 200 || !text_of(answer.body, "\"SecretID\":", token, 40))
        return daemon_fail(&server->daemon, "PUT /v1/acl/token: %d %.200s", answer.status, answer.body);
    return 0;
}

/* ---- Its process ---- */

/* It has a leader, which knows the agent. */
static bool answers(void *server)
{
    return consul_server_passing(server, "consul", NULL) == 1;
}

static int run(struct consul_server *server)
{
    return daemon_run(&server->daemon, server->words, NULL, answers, server);
}

int consul_server_start(struct consul_server *server, enum consul_server_acl acl)
{
    *server = (struct consul_server){ .token = acl == CONSUL_SERVER_ACL ? CONSUL_SERVER_MASTER : NULL };
    if (daemon_folder_make(&server->daemon, "consul") != 0)
        return -1;
    for (int tries = 0; tries < PORT_TRIES; tries++) {
        for (int i = 0; i < 3; i++)
            snprintf(server->port_texts[i], sizeof server->port_texts[i], "%d", daemon_port_free(0));
        server->port = (int)strtol(server->port_texts[0], NULL, 10);
        snprintf(server->address, sizeof server->address, "http://127.0.0.1:%d", server->port);
        command_line(server, acl);
        if (run(server) == 0)
            return 0;
    }
    daemon_folder_remove(&server->daemon);
    return -1;
}

void consul_server_stop(struct consul_server *server)
{
    daemon_stop(&server->daemon);
    daemon_folder_remove(&server->daemon);
}

int consul_server_restart(struct consul_server *server)
{
    daemon_kill(&server->daemon);
    return run(server);
}
