/* test_redis_messages.c - each message in the table of docs/operations.md, made to happen on a real server. */
#include "pki.h"
#include "redis_place.h"
#include "sentinels.h"

#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#define DAYS (24L * 3600)

enum { MESSAGE_ROWS_MOST = 64, MESSAGE_MOST = 256 };

static struct place place;
static struct weir_options options;
static char url[256];

/* ---- The table ---- */

/* Read the messages, the first cells of the table's rows without their backticks; return their number. */
static int page_read(char messages[MESSAGE_ROWS_MOST][MESSAGE_MOST])
{
    char line[2048];
    int n = 0;
    bool is_in_table = false;
    FILE *page = fopen(WEIR_PAGE, "re");
    must(page != NULL, WEIR_PAGE);
    while (fgets(line, sizeof line, page) != NULL) {
        is_in_table = is_in_table ? line[0] == '|' : strncmp(line, "| message |", 11) == 0;
        const char *end = is_in_table && strncmp(line, "| `", 3) == 0 ? strchr(line + 3, '`') : NULL;
        if (end == NULL)
            continue;
        must(n < MESSAGE_ROWS_MOST, "there is room for the table");
        snprintf(messages[n++], MESSAGE_MOST, "%.*s", (int)(end - line - 3), line + 3);
    }
    fclose(page);
    return n;
}

/* True if the text has the message's words in their order; "..." stands for any. */
static bool has_message(const char *text, const char *message)
{
    char part[MESSAGE_MOST];
    while (*message != '\0') {
        const char *dots = strstr(message, "...");
        const size_t len = dots != NULL ? (size_t)(dots - message) : strlen(message);
        snprintf(part, sizeof part, "%.*s", (int)len, message);
        text = strstr(text, part);
        if (text == NULL)
            return false;
        text += len;
        message += len + (dots != NULL ? 3 : 0);
    }
    return true;
}

/* ---- What makes them happen ---- */

static void open_with(const char *const *config)
{
    place_open(&place, false, config);
    options = place_options(&place, 5 * WEIR_SECOND);
}

static void change_user(const char *rule)
{
    place_ask(&place, "ACL", "SETUSER", "weir", rule);
}

static void has_no_server(void)
{
    open_with(NULL);
    redis_server_kill(&place.server);
}

/* A listener whose backlog is full: the system drops what asks for another connection. */
static int crowded[8];

static void has_no_way_through(void)
{
    struct sockaddr_in name = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    socklen_t len = sizeof name;
    open_with(NULL);
    for (int i = 0; i < 8; i++)
        crowded[i] = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    must(bind(crowded[0], (struct sockaddr *)&name, len) == 0 && listen(crowded[0], 0) == 0 &&
             getsockname(crowded[0], (struct sockaddr *)&name, &len) == 0,
         "a listener");
    for (int i = 1; i < 8; i++)
        must(connect(crowded[i], (struct sockaddr *)&name, len) == 0 || errno == EINPROGRESS, "it is crowded");
    snprintf(url, sizeof url, "redis://127.0.0.1:%d", ntohs(name.sin_port));
    options.redis_url = url;
}

static void has_no_such_host(void)
{
    open_with(NULL);
    options.redis_url = "redis://weir.invalid";
}

static void has_no_password(void)
{
    static const char *const config[] = { "--requirepass", "secret", NULL };
    open_with(config);
    snprintf(url, sizeof url, "unix://%s", place.server.socket);
    options.redis_url = url;
}

static void has_a_wrong_password(void)
{
    open_with(NULL);
    snprintf(url, sizeof url, "unix://weir:s3cret@%s", place.server.socket);
    options.redis_url = url;
}

static void has_a_needless_password(void)
{
    open_with(NULL);
    snprintf(url, sizeof url, "unix://:s3cret@%s", place.server.socket);
    options.redis_url = url;
}

static void has_no_such_db(void)
{
    open_with(NULL);
    snprintf(url, sizeof url, "unix://%s?db=300", place.server.socket);
    options.redis_url = url;
}

static void may_not_load(void)
{
    open_with(NULL);
    change_user("-script"); /* Redis 6.0 takes away whole commands only */
}

static void may_not_write(void)
{
    open_with(NULL);
    change_user("-psetex");
}

static void may_not_use_the_prefix(void)
{
    open_with(NULL);
    options.redis_prefix = "shop:";
}

static void has_too_many_clients(void)
{
    static const char *const config[] = { "--maxclients", "1", NULL };
    open_with(config); /* its asker is the one, once the client that waited for the server has gone */
    const int64_t until_us = wire_now_us() + RECOVERY_MOST_US;
    while (asker_ask(&place.asker, place_reply, sizeof place_reply, "PING", NULL) < 0 ||
           strstr(place_reply, "PONG") == NULL) {
        must(wire_now_us() < until_us, "the server has room for one client");
        asker_close(&place.asker);
        must(asker_open(&place.asker, place.server.socket) == 0, place.asker.error);
    }
    snprintf(url, sizeof url, "unix://%s", place.server.socket);
    options.redis_url = url;
}

static void asks_a_plain_port_for_tls(void)
{
    open_with(NULL);
    snprintf(url, sizeof url, "rediss://%s127.0.0.1:%d", place.server.login, place.server.port);
    options.redis_url = url;
    options.redis_insecure = true;
}

/* Issue what the TLS server needs into a new folder, and start it with a certificate for `host`. */
static char folder[64];

static const char *file_of(const char *name)
{
    static char paths[4][96];
    static unsigned next;
    char *path = paths[next++ % 4];
    snprintf(path, sizeof paths[0], "%s/%s", folder, name);
    return path;
}

static void open_with_tls(const char *host, const char *scheme)
{
    char port[8];
    snprintf(folder, sizeof folder, "/tmp/weir-pki-XXXXXX");
    must(mkdtemp(folder) != NULL, "a folder for certificates");
    const struct pki_wish wishes[] = { { "ca", NULL, NULL, -DAYS, DAYS },
                                       { "other", NULL, NULL, -DAYS, DAYS },
                                       { "server", "ca", host, -DAYS, DAYS } };
    for (size_t i = 0; i < sizeof wishes / sizeof *wishes; i++)
        must(pki_issue(folder, &wishes[i]) == 0, wishes[i].name);
    snprintf(port, sizeof port, "%d", daemon_port_free(0));
    const char *const config[] = { "--tls-port",
                                   port,
                                   "--tls-cert-file",
                                   file_of("server.pem"),
                                   "--tls-key-file",
                                   file_of("server.key"),
                                   "--tls-ca-cert-file",
                                   file_of("ca.pem"),
                                   "--tls-auth-clients",
                                   "no",
                                   NULL };
    open_with(config);
    snprintf(url, sizeof url, "%s://%s127.0.0.1:%s", scheme, place.server.login, port);
    options.redis_url = url;
}

static void asks_a_tls_port_without_tls(void)
{
    open_with_tls("IP:127.0.0.1", "redis");
}

static void trusts_another_authority(void)
{
    open_with_tls("IP:127.0.0.1", "rediss");
    options.redis_ca_file = file_of("other.pem");
}

static void is_shown_another_host(void)
{
    open_with_tls("IP:127.0.0.2", "rediss");
    options.redis_ca_file = file_of("ca.pem");
}

static struct sentinels trio;

static void asks_for_another_service(void)
{
    static const struct sentinels_wish wish = { .servers = 1, .sentinels = 1 };
    must(sentinels_start(&trio, &wish) == 0, trio.error);
    place_open_bare(&place);
    options = place_options(&place, 5 * WEIR_SECOND);
    sentinels_url(&trio, 0, "", url, sizeof url);
    must(strstr(url, SENTINELS_SERVICE) != NULL, url);
    memcpy(strstr(url, SENTINELS_SERVICE), "nobody", sizeof "nobody");
    options.redis_url = url;
}

static void takes_it_for_a_cluster(void)
{
    open_with(NULL);
    snprintf(url, sizeof url, "redis-cluster://127.0.0.1:%d", place.server.port);
    options.redis_url = url;
}

static const char *const clustered[] = { "--cluster-enabled", "yes", NULL };

/* Start the only node of a cluster, which serves the first `slots`. */
static void open_node(int slots)
{
    char texts[64][8];
    const char *words[2 + 64] = { "CLUSTER", "ADDSLOTS" };
    size_t lens[2 + 64] = { 7, 8 };
    open_with(clustered);
    for (int slot = 0; slot < slots; slot++) {
        snprintf(texts[slot % 64], sizeof texts[0], "%d", slot);
        words[2 + slot % 64] = texts[slot % 64];
        lens[2 + slot % 64] = strlen(texts[slot % 64]);
        if (slot % 64 == 63)
            must(asker_ask_words(&place.asker, place_reply, sizeof place_reply, 66, words, lens) > 0, "slots");
    }
}

static void takes_a_node_for_a_server(void)
{
    open_node(16384);
}

/* Slots are missing, so that the node takes no requests. */
static void asks_a_broken_cluster(void)
{
    open_node(16384 - 64);
    snprintf(url, sizeof url, "redis-cluster://127.0.0.1:%d", place.server.port);
    options.redis_url = url;
}

static void fills_the_server(void)
{
    open_with(NULL);
    place_ask(&place, "CONFIG", "SET", "maxmemory", "1");
}

static void asks_a_replica(void)
{
    open_with(NULL);
    place_ask(&place, "REPLICAOF", "127.0.0.1", "1");
}

static void pauses_the_server(void)
{
    open_with(NULL);
    options.timeout_us = WEIR_SECOND / 2;
}

static void lacks_a_replica(void)
{
    open_with(NULL);
    change_user("+wait");
    options.redis_replicas = 1;
    options.timeout_us = WEIR_SECOND / 2;
}

static void meets_a_foreign_value(void)
{
    open_with(NULL);
    place_ask(&place, "SET", "weir:limit:{key}", "foreign");
}

static const struct happening {
    const char *message;
    void (*happens)(void); /* NULL: the test in the comment makes it happen */
    bool needs_tls;
} happenings[] = {
    { "redis cannot be used: cannot connect: Connection refused", has_no_server, false },
    { "redis cannot be used: no connection in time", has_no_way_through, false },
    { "redis cannot be used: the host's name is not resolved: ...", has_no_such_host, false },
    { "redis cannot be used: the server answers NOAUTH to SCRIPT LOAD: Authentication required.", has_no_password,
      false },
    { "redis cannot be used: the server answers WRONGPASS to AUTH: the user or the password is wrong",
      has_a_wrong_password, false },
    { "redis cannot be used: the server answers ERR to AUTH: the server may have no password set, or no users",
      has_a_needless_password, false },
    { "redis cannot be used: the server answers ERR to SELECT: DB index is out of range", has_no_such_db, false },
    { "redis cannot be used: the server answers NOPERM to SCRIPT LOAD: ...", may_not_load, false },
    { "redis answers NOPERM ... 'psetex'... (to EVALSHA for limit ...)", may_not_write, false },
    { "redis answers NOPERM ... key... (to EVALSHA for limit ...)", may_not_use_the_prefix, false },
    { "redis cannot be used: the server answers ERR to SCRIPT LOAD: max number of clients reached",
      has_too_many_clients, false },
    { "redis cannot be used: ...: for a plain port use a redis:// URL", asks_a_plain_port_for_tls, true },
    { "redis cannot be used: the server...: use a rediss:// URL", asks_a_tls_port_without_tls, true },
    { "redis cannot be used: TLS: self-signed certificate in certificate chain", trusts_another_authority, true },
    { "redis cannot be used: TLS: IP address mismatch", is_shown_another_host, true },
    /* test_redis_sentinel_replies: a_server_is_used_only_if_its_role_is_primary */
    { "redis cannot be used: the server that a sentinel named is not a primary", NULL, false },
    { "redis cannot be used: no sentinel names the primary; the last one: it does not know the service",
      asks_for_another_service, false },
    { "no node of the redis cluster gives a map of the slots: the server is not part of a cluster",
      takes_it_for_a_cluster, false },
    { "redis answers ...: it is part of a cluster; use a redis-cluster:// URL", takes_a_node_for_a_server, false },
    { "redis answers CLUSTERDOWN ...", asks_a_broken_cluster, false },
    { "redis answers OOM ...", fills_the_server, false },
    { "redis answers READONLY ...", asks_a_replica, false },
    { "redis cannot be used: no answer in time", pauses_the_server, false },
    { "a charge was not acknowledged by 1 replica in time", lacks_a_replica, false },
    { "a value in redis under limit ... is not a state of weir's", meets_a_foreign_value, false },
};

enum { HAPPENINGS = sizeof happenings / sizeof *happenings };

TEST(the_documented_table_lists_exactly_the_tested_messages, 10)
{
    static char messages[MESSAGE_ROWS_MOST][MESSAGE_MOST];
    ck_assert_int_eq(page_read(messages), HAPPENINGS);
    for (int i = 0; i < HAPPENINGS; i++)
        ck_assert_str_eq(messages[i], happenings[i].message);
}

/* ---- They happen ---- */

static bool logged(const char *message)
{
    pthread_mutex_lock(&place.log_lock);
    const bool is_there = has_message(place.log, message);
    pthread_mutex_unlock(&place.log_lock);
    return is_there;
}

static void happening_ends(void)
{
    if (happenings[0].happens != NULL && trio.wish.servers > 0)
        sentinels_stop(&trio);
    place_close(&place);
    static const char *const files[] = { "ca.pem", "ca.key", "other.pem", "other.key", "server.pem", "server.key" };
    for (size_t i = 0; folder[0] != '\0' && i < sizeof files / sizeof *files; i++)
        unlink(file_of(files[i]));
    if (folder[0] != '\0')
        rmdir(folder);
}

TEST_EACH(weir_ping_and_the_log_report_each_failure, HAPPENINGS, 120)
{
    const struct happening *this = &happenings[_i];
    char message[512] = "", key[] = "key";
    struct weir_decision decision;
#ifndef WEIR_TLS
    if (this->needs_tls)
        return;
#endif
    if (this->happens == NULL)
        return;
    this->happens();
    weir *limiter = limiter_of(&options);
    weir_limit *limit = limit_of(limiter, "limit", FIFTY_AN_HOUR);
    if (this->happens == pauses_the_server) {
        recover(limit, key);
        redis_server_pause(&place.server);
    }
    if (this->happens == meets_a_foreign_value) {
        recover(limit, "another key");
        ck_assert_int_eq(weir_try(limit, weir_key_text(key), 1, &decision), WEIR_ESTATE);
        must_succeed(weir_ping(limiter, WEIR_MINUTE, message, sizeof message));
    } else {
        for (int64_t until_us = wire_now_us() + RECOVERY_MOST_US; !has_message(message, this->message);) {
            const int error = weir_ping(limiter, 0, message, sizeof message);
            must(error == WEIR_EIO || error == WEIR_ETIME, "the ping fails");
            if (wire_now_us() > until_us)
                ck_abort_msg("%s: weir_ping() says: %s", this->message, message);
        }
        ck_assert_int_eq(weir_await_ready(limiter, 0), WEIR_ETIME);
    }
    for (int64_t until_us = wire_now_us() + RECOVERY_MOST_US; !logged(this->message); weir_ping(limiter, 0, NULL, 0))
        if (wire_now_us() > until_us)
            ck_abort_msg("%s: %s", this->message, place.log);
    ck_assert_msg(!place_logged(&place, "s3cret"), "%s", place.log);
    if (this->happens == pauses_the_server)
        redis_server_resume(&place.server);
    weir_close(limiter);
    happening_ends();
}

TEST(a_ping_succeeds_in_both_modes_and_leaves_nothing_behind, 60)
{
    static const enum weir_mode modes[] = { WEIR_LOCAL, WEIR_DISTRIBUTED, WEIR_HYBRID };
    open_with(NULL);
    for (int i = 0; i < 3; i++) {
        char message[64] = "untouched";
        options.mode = modes[i];
        weir *limiter = limiter_of(&options);
        must_succeed(weir_ping(limiter, WEIR_MINUTE, message, sizeof message));
        must_succeed(weir_await_ready(limiter, WEIR_MINUTE));
        ck_assert_str_eq(place_ask(&place, "DBSIZE"), "0");
        ck_assert_int_eq(weir_ping(limiter, -1, NULL, 0), WEIR_EINVAL);
        ck_assert_int_eq(weir_ping(limiter, WEIR_HOUR + 1, NULL, 0), WEIR_EINVAL);
        weir_close(limiter);
    }
    ck_assert_int_eq(weir_ping(NULL, 0, NULL, 0), WEIR_EINVAL);
    place_close(&place);
}

int main(void)
{
    if (redis_server_missing())
        return 77;
    return suite_run(tests());
}
