/* test_redis_tls.c - Redis over TLS: which certificates are accepted, which are refused and why, and that all else
 * works as without TLS. */
#include "pki.h"
#include "redis_place.h"
#include "sentinels.h"
#include "stack_depth.h"
#include "tls_front.h"

#include "contract/contract.h"

#include <netinet/in.h>
#include <openssl/ssl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define DAYS (24L * 3600)
#define TIMEOUT_US (10 * WEIR_SECOND) /* handshakes take long on a busy machine */

/* ---- Certificates, once for all tests ---- */

static char certificates[64];

static const struct pki_wish wishes[] = {
    { "ca", NULL, NULL, -DAYS, 30 * DAYS },
    { "other-ca", NULL, NULL, -DAYS, 30 * DAYS },
    { "good", "ca", "DNS:localhost,IP:127.0.0.1", -DAYS, 30 * DAYS },
    { "by-name", "ca", "DNS:localhost", -DAYS, 30 * DAYS },
    { "elsewhere", "ca", "DNS:redis.example,DNS:*.host,IP:127.0.0.2", -DAYS, 30 * DAYS },
    { "expired", "ca", "DNS:localhost,IP:127.0.0.1", -3 * DAYS, -DAYS },
    { "early", "ca", "DNS:localhost,IP:127.0.0.1", DAYS, 3 * DAYS },
    { "client", "ca", NULL, -DAYS, 30 * DAYS },
    { "stranger", "other-ca", NULL, -DAYS, 30 * DAYS },
    { "locked", "ca", NULL, -DAYS, 30 * DAYS },
};

static void make_certificates(void)
{
    snprintf(certificates, sizeof certificates, "/tmp/weir-pki-XXXXXX");
    must(mkdtemp(certificates) != NULL, "a folder for certificates");
    for (size_t i = 0; i < sizeof wishes / sizeof *wishes; i++)
        must(pki_issue(certificates, &wishes[i]) == 0, wishes[i].name);
    must(pki_lock(certificates, "locked", "secret") == 0, "a key with a passphrase");
}

static void remove_certificates(void)
{
    for (size_t i = 0; i < sizeof wishes / sizeof *wishes; i++) {
        char path[128];
        snprintf(path, sizeof path, "%s/%s.pem", certificates, wishes[i].name);
        unlink(path);
        snprintf(path, sizeof path, "%s/%s.key", certificates, wishes[i].name);
        unlink(path);
    }
    rmdir(certificates);
}

/* Return the path of file `name`; the last few results stay valid. */
static const char *file_of(const char *name, const char *kind)
{
    static char paths[8][128];
    static unsigned next;
    char *path = paths[next++ % 8];
    snprintf(path, sizeof paths[0], "%s/%s.%s", certificates, name, kind);
    return path;
}

/* ---- A server with TLS ---- */

struct secured {
    struct place place;
    char port[8];
    char url[128];
};

static void secured_open(struct secured *secured, const char *certificate, bool asks_clients, const char *host)
{
    snprintf(secured->port, sizeof secured->port, "%d", daemon_port_free(0));
    const char *const config[] = { "--tls-port",
                                   secured->port,
                                   "--tls-cert-file",
                                   file_of(certificate, "pem"),
                                   "--tls-key-file",
                                   file_of(certificate, "key"),
                                   "--tls-ca-cert-file",
                                   file_of("ca", "pem"),
                                   "--tls-auth-clients",
                                   asks_clients ? "yes" : "no",
                                   NULL };
    place_open(&secured->place, false, config);
    snprintf(secured->url, sizeof secured->url, "rediss://%s%s:%s", secured->place.server.login, host, secured->port);
}

static struct weir_options secured_options(struct secured *secured)
{
    struct weir_options options = place_options(&secured->place, TIMEOUT_US);
    options.redis_url = secured->url;
    options.redis_ca_file = file_of("ca", "pem");
    return options;
}

/* Return the result of one request. */
static int tried(const struct weir_options *options)
{
    weir *limiter = limiter_of(options);
    weir_limit *limit = limit_of(limiter, "tls", UNREFILLED);
    struct weir_decision decision;
    int status = weir_try(limit, weir_key_text("key"), 1, &decision);
    if (status == WEIR_OK)
        must(decision.allowed && decision.source == WEIR_BY_REDIS, "Redis admits it");
    weir_close(limiter);
    return status;
}

/* ---- Which certificates are accepted ---- */

TEST(a_server_with_a_trusted_certificate_is_used, 30)
{
    struct secured secured;
    secured_open(&secured, "good", false, "localhost");
    struct weir_options options = secured_options(&secured);
    ck_assert_int_eq(tried(&options), WEIR_OK);
    snprintf(secured.url, sizeof secured.url, "rediss://%s127.0.0.1:%s", secured.place.server.login, secured.port);
    ck_assert_int_eq(tried(&options), WEIR_OK);
    place_close(&secured.place);
}

TEST(a_certificate_that_does_not_match_the_server_is_refused_and_logged, 60)
{
    const struct {
        const char *certificate, *host, *authority, *words;
    } rows[] = {
        { "good", "localhost", "other-ca", "TLS: self-signed certificate in certificate chain" },
        /* the system's certificates */
        { "good", "localhost", NULL, "TLS: self-signed certificate in certificate chain" },
        { "elsewhere", "localhost", "ca", "TLS: hostname mismatch" },
        { "elsewhere", "127.0.0.1", "ca", "TLS: IP address mismatch" },
        { "by-name", "127.0.0.1", "ca", "TLS: IP address mismatch" },
        { "expired", "localhost", "ca", "TLS: certificate has expired" },
        { "early", "localhost", "ca", "TLS: certificate is not yet valid" },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct secured secured;
        secured_open(&secured, rows[i].certificate, false, rows[i].host);
        struct weir_options options = secured_options(&secured);
        options.redis_ca_file = rows[i].authority ? file_of(rows[i].authority, "pem") : NULL;
        ck_assert_msg(tried(&options) == WEIR_EIO, "row %zu", i);
        ck_assert_msg(place_logged(&secured.place, rows[i].words), "row %zu: %s", i, secured.place.log);
        must(place_info(&secured.place, "commandstats", "cmdstat_evalsha:calls=") == 0, "nothing was asked of it");
        place_close(&secured.place);
    }
}

/* Make one request through a front and return its result; the log is in place->log. */
static int tried_by_front(struct place *place, struct tls_front_wish wish, const char *host, bool insecure)
{
    char url[128];
    wish.server_port = place->server.port;
    struct tls_front *front = tls_front_start(&wish);
    ck_assert_ptr_nonnull(front);
    struct weir_options options = place_options(place, TIMEOUT_US);
    snprintf(url, sizeof url, "rediss://%s%s:%d", place->server.login, host, tls_front_port(front));
    options.redis_url = url;
    options.redis_ca_file = insecure ? NULL : file_of("ca", "pem");
    options.redis_insecure = insecure;
    place->log[place->log_len = 0] = '\0';
    const int status = tried(&options);
    tls_front_stop(front);
    return status;
}

TEST(the_handshake_names_a_host_but_never_an_address, 60)
{
    PLACE(place, false, NULL);
    const struct tls_front_wish wish = { .certificate = file_of("elsewhere", "pem"),
                                         .key = file_of("elsewhere", "key"),
                                         .name = "localhost",
                                         .name_certificate = file_of("good", "pem"),
                                         .name_key = file_of("good", "key") };
    ck_assert_msg(tried_by_front(&place, wish, "localhost", false) == WEIR_OK, "%s", place.log);
    ck_assert_int_eq(tried_by_front(&place, wish, "127.0.0.1", false), WEIR_EIO);
    ck_assert_msg(place_logged(&place, "TLS: IP address mismatch"), "%s", place.log);
}

TEST(tls_before_1_2_is_refused_even_without_verification, 60)
{
    static const struct {
        int newest;
        bool used;
    } rows[] = { { 0, true }, { TLS1_2_VERSION, true }, { TLS1_1_VERSION, false }, { TLS1_VERSION, false } };
    PLACE(place, false, NULL);
    for (size_t i = 0; i < 2 * sizeof rows / sizeof *rows; i++) {
        const bool insecure = i % 2 == 1;
        const struct tls_front_wish wish = { .certificate = file_of("good", "pem"),
                                             .key = file_of("good", "key"),
                                             .newest = rows[i / 2].newest };
        ck_assert_msg(tried_by_front(&place, wish, "localhost", insecure) == (rows[i / 2].used ? WEIR_OK : WEIR_EIO),
                      "row %zu: %s", i / 2, place.log);
        ck_assert_msg(rows[i / 2].used || place_logged(&place, "protocol version"), "row %zu: %s", i / 2, place.log);
    }
}

TEST(an_insecure_connection_needs_an_option_and_is_logged, 30)
{
    struct secured secured;
    secured_open(&secured, "expired", false, "localhost");
    struct weir_options options = secured_options(&secured);
    options.redis_ca_file = NULL;
    ck_assert_int_eq(tried(&options), WEIR_EIO);
    ck_assert(!place_logged(&secured.place, "redis_insecure"));
    options.redis_insecure = true;
    ck_assert_int_eq(tried(&options), WEIR_OK);
    ck_assert(place_logged(&secured.place, "redis_insecure"));
    place_close(&secured.place);
}

TEST(a_server_that_requires_a_client_certificate_gets_the_configured_one, 30)
{
    struct secured secured;
    secured_open(&secured, "good", true, "localhost");
    struct weir_options options = secured_options(&secured);
    ck_assert_int_eq(tried(&options), WEIR_EIO);
    options.redis_cert_file = file_of("stranger", "pem");
    options.redis_key_file = file_of("stranger", "key");
    ck_assert_int_eq(tried(&options), WEIR_EIO);
    options.redis_cert_file = file_of("client", "pem");
    options.redis_key_file = file_of("client", "key");
    ck_assert_int_eq(tried(&options), WEIR_OK);
    place_close(&secured.place);
}

/* Copy a file over another one. */
static void replace_file(const char *from, const char *to)
{
    char command[640];
    snprintf(command, sizeof command, "cp '%s' '%s.new' && mv '%s.new' '%s'", from, to, to, to);
    must(system(command) == 0, command);
}

static int tried_again(struct secured *secured, weir_limit *limit)
{
    struct weir_decision decision;
    place_ask(&secured->place, "CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes");
    int status = WEIR_EIO;
    for (int i = 0; i < 1000 && status != WEIR_OK; i++) { /* a failure is followed by a pause without requests */
        status = weir_try(limit, weir_key_text("key"), 1, &decision);
        if (status != WEIR_OK)
            sleep_us(5000);
    }
    return status;
}

/* The server trusts one client. The limiter begins with that one's files; then they are replaced by a stranger's, by a
 * certificate without its key, and by the right ones again. */
TEST(each_connection_looks_whether_its_certificate_has_been_replaced, 60)
{
    char certificate[128], key[128];
    struct secured secured;
    secured_open(&secured, "good", true, "localhost");
    snprintf(certificate, sizeof certificate, "%s", file_of("rotated", "pem"));
    snprintf(key, sizeof key, "%s", file_of("rotated", "key"));
    replace_file(file_of("client", "pem"), certificate);
    replace_file(file_of("client", "key"), key);
    struct weir_options options = secured_options(&secured);
    options.redis_cert_file = certificate;
    options.redis_key_file = key;
    weir *limiter = limiter_of(&options);
    weir_limit *limit = limit_of(limiter, "tls", UNREFILLED);
    ck_assert_int_eq(tried_again(&secured, limit), WEIR_OK);

    replace_file(file_of("stranger", "pem"), certificate); /* the key does not belong to it: the former pair serves */
    ck_assert_int_eq(tried_again(&secured, limit), WEIR_OK);

    replace_file(file_of("stranger", "key"), key);
    struct weir_decision decision;
    place_ask(&secured.place, "CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes");
    for (int i = 0; i < 1000 && weir_try(limit, weir_key_text("key"), 1, &decision) == WEIR_OK; i++)
        sleep_us(5000);
    ck_assert_int_eq(weir_try(limit, weir_key_text("key"), 1, &decision), WEIR_EIO);

    replace_file(file_of("client", "pem"), certificate);
    replace_file(file_of("client", "key"), key);
    ck_assert_int_eq(tried_again(&secured, limit), WEIR_OK);
    weir_close(limiter);
    place_close(&secured.place);
}

TEST(an_unverified_certificate_is_not_blamed_for_another_failure, 30)
{
    struct secured secured;
    secured_open(&secured, "expired", true, "localhost");
    struct weir_options options = secured_options(&secured);
    options.redis_ca_file = NULL;
    options.redis_insecure = true;
    ck_assert_int_eq(tried(&options), WEIR_EIO);
    ck_assert(place_logged(&secured.place, "redis cannot be used")); /* this client has no certificate */
    ck_assert_msg(!place_logged(&secured.place, "issuer") && !place_logged(&secured.place, "self-signed"), "%s",
                  secured.place.log);
    place_close(&secured.place);
}

/* ---- Options ---- */

TEST(unusable_certificate_and_key_files_are_refused_by_name, 30)
{
    const char *pem = file_of("client", "pem"), *key = file_of("client", "key"), *other = file_of("good", "key");
    const struct {
        const char *url, *ca, *cert, *key;
        bool insecure;
        int error;
        const char *words;
    } rows[] = {
        { "rediss://h", "/nowhere", NULL, NULL, false, WEIR_EIO, "redis_ca_file \"/nowhere\" cannot be read: No such" },
        { "rediss://h", key, NULL, NULL, false, WEIR_EINVAL, "redis_ca_file" },
        { "rediss://h", NULL, pem, NULL, false, WEIR_EINVAL, "redis_key_file is needed with redis_cert_file" },
        { "rediss://h", NULL, NULL, key, false, WEIR_EINVAL, "redis_cert_file is needed with redis_key_file" },
        { "rediss://h", NULL, pem, other, false, WEIR_EINVAL, "redis_key_file" },
        { "rediss://h", NULL, "/nowhere", key, false, WEIR_EIO, "redis_cert_file \"/nowhere\" cannot be read" },
        { "rediss://h", NULL, key, key, false, WEIR_EINVAL, "redis_cert_file" },
        { "redis://h", pem, NULL, NULL, false, WEIR_EINVAL,
          "redis_ca_file is for a redis_url that begins with rediss" },
        { "redis://h", NULL, pem, NULL, false, WEIR_EINVAL, "redis_cert_file is for a redis_url" },
        { "unix:///s", NULL, NULL, key, false, WEIR_EINVAL, "redis_key_file is for a redis_url" },
        { "redis://h", NULL, NULL, NULL, true, WEIR_EINVAL, "redis_insecure is for a redis_url" },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct place place;
        weir *limiter;
        place_open_bare(&place);
        struct weir_options options = place_options(&place, TIMEOUT_US);
        options.redis_url = rows[i].url;
        options.redis_ca_file = rows[i].ca;
        options.redis_cert_file = rows[i].cert;
        options.redis_key_file = rows[i].key;
        options.redis_insecure = rows[i].insecure;
        ck_assert_msg(weir_open(&options, &limiter) == rows[i].error, "row %zu: %s", i, place.log);
        ck_assert_msg(place_logged(&place, rows[i].words), "row %zu: %s", i, place.log);
        pthread_mutex_destroy(&place.log_lock);
    }
}

TEST(a_key_with_a_passphrase_is_refused_without_a_prompt, 10)
{
    struct place place;
    weir *limiter;
    int silent[2];
    /* where OpenSSL might wait for a password */
    ck_assert(pipe(silent) == 0 && dup2(silent[0], STDIN_FILENO) == STDIN_FILENO);
    place_open_bare(&place);
    struct weir_options options = place_options(&place, TIMEOUT_US);
    options.redis_url = "rediss://h";
    options.redis_cert_file = file_of("locked", "pem");
    options.redis_key_file = file_of("locked", "key");
    ck_assert_int_eq(weir_open(&options, &limiter), WEIR_EINVAL);
    ck_assert_msg(place_logged(&place, "redis_key_file"), "%s", place.log);
    pthread_mutex_destroy(&place.log_lock);
}

/* ---- Servers that do not complete a handshake ---- */

TEST(a_server_without_tls_is_an_error_within_the_timeout, 30)
{
    char url[128];
    PLACE(place, false, NULL);
    snprintf(url, sizeof url, "rediss://%s127.0.0.1:%d", place.server.login, place.server.port);
    struct weir_options options = place_options(&place, TIMEOUT_US);
    options.redis_url = url;
    options.redis_ca_file = file_of("ca", "pem");
    int status = tried(&options);
    ck_assert_msg(status == WEIR_EIO || status == WEIR_ETIME, "%d", status);
}

TEST(a_silent_server_is_an_error_within_the_timeout, 30)
{
    struct sockaddr_in address = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    socklen_t len = sizeof address;
    struct place place;
    char url[128];
    int silent = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    ck_assert(silent >= 0 && bind(silent, (struct sockaddr *)&address, len) == 0 && listen(silent, 16) == 0 &&
              getsockname(silent, (struct sockaddr *)&address, &len) == 0);
    place_open_bare(&place);
    snprintf(url, sizeof url, "rediss://127.0.0.1:%d", ntohs(address.sin_port));
    struct weir_options options = place_options(&place, 50000);
    options.redis_url = url;
    options.redis_ca_file = file_of("ca", "pem");
    weir *limiter = limiter_of(&options);
    weir_limit *limit = limit_of(limiter, "tls", UNREFILLED);
    for (int i = 0; i < 20; i++) {
        struct timed timed = timed_try(limit, "key", 1);
        ck_assert_msg(timed.status == WEIR_EIO || timed.status == WEIR_ETIME, "%d", timed.status);
        ck_assert_int_lt(timed.took_us, call_most_us(50000));
    }
    weir_close(limiter);
    close(silent);
    pthread_mutex_destroy(&place.log_lock);
}

/* ---- Sentinels ---- */

/* Start a server and a sentinel, both with `certificate`. The sentinel names the server as `announced`, or by its
 * address if it is NULL. Return false before Redis 6.2, whose sentinels know only addresses. */
static bool guarded_open(struct sentinels *guarded, const char *certificate, const char *announced)
{
    static char lines[1024];
    const char *const words[] = { "--tls-cert-file",
                                  file_of(certificate, "pem"),
                                  "--tls-key-file",
                                  file_of(certificate, "key"),
                                  "--tls-ca-cert-file",
                                  file_of("ca", "pem"),
                                  "--tls-auth-clients",
                                  "no",
                                  NULL };
    snprintf(lines, sizeof lines, "tls-cert-file %s\ntls-key-file %s\ntls-ca-cert-file %s\ntls-auth-clients no\n%s",
             words[1], words[3], words[5],
             announced ? "sentinel resolve-hostnames yes\nsentinel announce-hostnames yes" : "");
    const struct sentinels_wish wish = {
        .servers = 1, .sentinels = 1, .server_words = words, .sentinel_lines = lines, .host = announced, .tls = true
    };
    const bool started = sentinels_start(guarded, &wish) == 0;
    ck_assert_msg(started || (announced && strstr(guarded->error, "Unrecognized sentinel")), "%s", guarded->error);
    if (!started)
        printf("not tried, for sentinels that know names: %s\n", guarded->error);
    return started;
}

TEST(a_server_that_a_sentinel_names_has_a_certificate_for_that_name, 60)
{
    static const struct {
        const char *certificate, *announced, *asked, *says; /* says: NULL: it is used */
    } rows[] = {
        { "good", NULL, "127.0.0.1", NULL },
        { "good", NULL, "localhost", NULL },
        { "by-name", "localhost", "localhost", NULL },
        { "by-name", NULL, "localhost", "redis cannot be used: TLS: IP address mismatch" },
        { "by-name", NULL, "127.0.0.1", "sentinel 1 of 1 cannot be used: TLS: IP address mismatch" },
        { "elsewhere", NULL, "localhost", "sentinel 1 of 1 cannot be used: TLS: hostname mismatch" },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct sentinels guarded;
        struct place place;
        char url[128];
        if (!guarded_open(&guarded, rows[i].certificate, rows[i].announced))
            continue;
        place_open_bare(&place);
        snprintf(url, sizeof url, "rediss-sentinel://%s%s:%d/" SENTINELS_SERVICE, guarded.servers[0].login,
                 rows[i].asked, guarded.sentinels[0].port);
        struct weir_options options = place_options(&place, TIMEOUT_US);
        options.redis_url = url;
        options.redis_ca_file = file_of("ca", "pem");
        ck_assert_msg(tried(&options) == (rows[i].says ? WEIR_EIO : WEIR_OK), "row %zu: %s", i, place.log);
        ck_assert_msg(!rows[i].says || place_logged(&place, rows[i].says), "row %zu: %s", i, place.log);
        place_close(&place);
        sentinels_stop(&guarded);
    }
}

/* ---- All else works as without TLS ---- */

enum { THREADS = 24, EACH = 60 };

static void *ask_often(void *user)
{
    for (int i = 0; i < EACH; i++) {
        struct weir_decision decision;
        must_succeed(weir_try(user, weir_key_text("hot"), 1, &decision));
        must(decision.source == WEIR_BY_REDIS, "Redis decides");
    }
    return NULL;
}

TEST(many_threads_share_a_tls_connection_without_losing_a_request, 60)
{
    struct secured secured;
    struct crew crew;
    secured_open(&secured, "good", false, "localhost");
    struct weir_options options = secured_options(&secured);
    options.timeout_us = 20 * WEIR_SECOND;
    weir *limiter = limiter_of(&options);
    weir_limit *limit = limit_of(limiter, "tls", UNREFILLED);
    crew_start(&crew, THREADS, ask_often, limit);
    crew_join(&crew);
    struct weir_decision decision;
    must_succeed(weir_peek(limit, weir_key_text("hot"), 1, &decision));
    ck_assert_int_eq(decision.limit - decision.remaining, THREADS * EACH);
    weir_close(limiter);
    place_close(&secured.place);
}

TEST(tls_connections_that_are_cut_are_reopened, 60)
{
    struct secured secured;
    secured_open(&secured, "good", false, "localhost");
    struct weir_options options = secured_options(&secured);
    weir *limiter = limiter_of(&options);
    weir_limit *limit = limit_of(limiter, "tls", UNREFILLED);
    recover(limit, "key");
    for (int i = 0; i < 10; i++) {
        place_ask(&secured.place, "CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes");
        recover(limit, "key");
    }
    weir_close(limiter);
    place_close(&secured.place);
}

/* A submitted op and its status. */
struct submitted {
    struct weir_op op;
    _Atomic int status; /* 1: pending */
};

static void note_status(struct weir_op *op, int status)
{
    atomic_store(&((struct submitted *)(void *)op)->status, status);
}

static int submit_and_wait(weir *limiter, struct submitted *submitted)
{
    atomic_store(&submitted->status, 1);
    submitted->op.done = note_status;
    const int status = weir_submit(limiter, &submitted->op);
    if (status != 1)
        return status;
    while (atomic_load(&submitted->status) == 1)
        sleep_us(1000);
    return atomic_load(&submitted->status);
}

TEST(an_answer_in_the_same_segment_as_the_end_of_the_connection_is_used, 60)
{
    enum { TIMES = 10 };
    char url[128];
    PLACE(place, false, NULL);
    const struct tls_front_wish wish = { .certificate = file_of("good", "pem"),
                                         .key = file_of("good", "key"),
                                         .server_port = place.server.port,
                                         .last = "EVALSHA" };
    struct tls_front *front = tls_front_start(&wish);
    ck_assert_ptr_nonnull(front);
    snprintf(url, sizeof url, "rediss://%s127.0.0.1:%d", place.server.login, tls_front_port(front));
    struct weir_options options = place_options(&place, 20 * WEIR_SECOND);
    options.redis_url = url;
    options.redis_ca_file = file_of("ca", "pem");
    for (int i = 0; i < TIMES; i++) { /* on the caller's connection, and on the thread's */
        weir *limiter = limiter_of(&options);
        weir_limit *limit = limit_of(limiter, "tls", UNREFILLED);
        struct submitted submitted = { .op.request = { .limit = limit, .key = weir_key_text("b"), .cost = 1 } };
        struct weir_decision decision;
        if (i == 0)
            recover(limit, "a"); /* loads the scripts */
        for (int k = 0; k < 3; k++) {
            must_succeed(weir_try(limit, weir_key_text("a"), 1, &decision));
            ck_assert_int_eq(decision.source, WEIR_BY_REDIS);
            ck_assert_int_eq(decision.limit - decision.remaining, 3 * i + k + 1);
        }
        must_succeed(submit_and_wait(limiter, &submitted));
        ck_assert_int_eq(submitted.op.decision.source, WEIR_BY_REDIS);
        ck_assert_int_eq(submitted.op.decision.limit - submitted.op.decision.remaining, i + 1);
        weir_close(limiter);
    }
    ck_assert_int_ge(tls_front_stop(front), 4 * TIMES);
}

#if !defined(UNDER_TSAN) /* ThreadSanitizer does not support threads in a forked child */
TEST(a_forked_child_has_a_separate_tls_session, 60)
{
    struct secured secured;
    secured_open(&secured, "good", false, "localhost");
    struct weir_options options = secured_options(&secured);
    options.timeout_us = 20 * WEIR_SECOND;
    weir *limiter = limiter_of(&options);
    weir_limit *limit = limit_of(limiter, "tls", UNREFILLED);
    taken(limit, "key", 1);
    assert_child_takes_too(limiter, limit, "key");
    struct weir_decision last = taken(limit, "key", 1);
    ck_assert_int_eq(last.limit - last.remaining, 102);
    weir_close(limiter);
    place_close(&secured.place);
}
#endif

/* One server for the whole contract. */
static struct secured common;

static int open_secured(const struct weir_options *options, weir **out)
{
    static int opened;
    char prefix[64];
    struct weir_options own = *options;
    snprintf(prefix, sizeof prefix, "weir:test-%d-%d:", (int)getpid(), opened++);
    own.mode = WEIR_DISTRIBUTED;
    own.redis_url = common.url;
    own.redis_ca_file = file_of("ca", "pem");
    own.redis_prefix = prefix;
    own.on_failure = WEIR_FAIL_ERROR;
    own.timeout_us = 20 * WEIR_SECOND; /* long enough for a busy machine */
    own.by_local_clock = own.now_us != NULL;
    return weir_open(&own, out);
}

static const struct contract_backend over_tls = { "redis over TLS", CONTRACT_ALL, open_secured, .sources_vary = false };

/* ---- The stack ---- */

TEST(openssl_uses_little_of_the_callers_stack, 60)
{
    static struct stack_ask ask;
    struct secured secured;
    secured_open(&secured, "good", false, "localhost");
    const struct weir_options options = secured_options(&secured);
    for (int i = 0; i < STACK_VERBS; i++) {
        stack_ask_begin(&ask, limiter_of(&options));
        ask.others = 8 * 1024;
        stack_ask_define(&ask, STACK_LARGE);
        recover(ask.limits[0], "recovered");
        place_ask(&secured.place, "CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes");
        for (int k = 0; k < 3; k++) {
            assert_stack(&stack_verbs[i], &ask, "connecting over TLS");
            sleep_us(
                50000); /* so that the next call may find the server connected to the limiter, and connect itself */
        }
        stack_ask_end(&ask);
        weir_close(ask.limiter);
    }
    place_close(&secured.place);
}

int main(void)
{
    if (redis_server_missing())
        return 77;
    make_certificates();
    secured_open(&common, "good", false, "localhost");
    Suite *suite = tests();
    contract_add(suite, &over_tls);
    int status = suite_run(suite);
    place_close(&common.place);
    remove_certificates();
    return status;
}
