/* test_consul_tls.c - Consul over TLS: which servers this client trusts, and which certificate it presents. */
#include "consul_stage.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define PEERS WEIR_FOLLOW_PEERS
#define MARKER "b1ec4a2e-s3cret-marker"

/* OpenSSL's test server, which answers from files and closes each connection. */

struct tls_server {
    struct folder folder;
    pid_t pid;
    char address[64];
};

/* Make a CA, a server certificate for 127.0.0.1 and a client certificate. */
#define MAKE_CERTIFICATES                                                                                    \
    "cd '%s' && { openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=ca" \
    " -keyout ca.key -out ca.pem && for who in server client; do openssl req -newkey ec -pkeyopt"            \
    " ec_paramgen_curve:P-256 -nodes -subj /CN=$who -keyout $who.key -out $who.csr && printf"                \
    " subjectAltName=IP:127.0.0.1 >$who.ext && openssl x509 -req -in $who.csr -CA ca.pem -CAkey ca.key"      \
    " -CAcreateserial -days 2 -extfile $who.ext -out $who.pem; done; } >log 2>&1"

/* Start s_server on a port that it chooses and prints. */
static void tls_start(struct tls_server *server, const char *protocol, bool asks_for_client)
{
    int out[2];
    folder_make(&server->folder);
    ck_assert_int_eq(folder_shell(MAKE_CERTIFICATES, server->folder.dir), 0);
    ck_assert_int_eq(folder_shell("mkdir -p '%s/v1/health/service'", server->folder.dir), 0);
    folder_write(&server->folder, "v1/health/service/api?passing",
                 "HTTP/1.1 200 OK\r\nX-Consul-Index: 10\r\nConnection: close\r\n\r\n" ONLY_A);
    ck_assert_int_eq(pipe2(out, O_CLOEXEC), 0);
    server->pid = fork();
    if (server->pid == 0) {
        dup2(out[1], STDOUT_FILENO);
        if (chdir(server->folder.dir) != 0 || freopen("server.log", "w", stderr) == NULL)
            _exit(126);
        execlp("openssl", "openssl", "s_server", "-accept", "127.0.0.1:0", "-HTTP", "-cert", "server.pem", "-key",
               "server.key", protocol, asks_for_client ? "-Verify" : NULL, "1", "-verify_return_error", "-CAfile",
               "ca.pem", (char *)NULL);
        _exit(127);
    }
    close(out[1]);
    FILE *lines = fdopen(out[0], "r");
    char line[256];
    int port = 0;
    while (port == 0 && fgets(line, sizeof line, lines) != NULL)
        if (strncmp(line, "ACCEPT ", 7) == 0)
            port = atoi(strrchr(line, ':') + 1);
    ck_assert_int_gt(port, 0);
    snprintf(server->address, sizeof server->address, "https://127.0.0.1:%d", port);
    /* `lines` stays open: the server exits if it cannot write. */
}

static void tls_stop(struct tls_server *server)
{
    kill(server->pid, SIGKILL);
    waitpid(server->pid, NULL, 0);
    folder_remove(&server->folder);
}

/* Follow the server; return "" if instances are reported, otherwise the reason. */
static struct told tls_follow(const struct tls_server *server, const char *ca, const char *client)
{
    struct consul_stage stage;
    char ca_file[128], cert[128], key[128];
    snprintf(ca_file, sizeof ca_file, "%s/%s", server->folder.dir, ca != NULL ? ca : "");
    snprintf(cert, sizeof cert, "%s/%s.pem", server->folder.dir, client != NULL ? client : "");
    snprintf(key, sizeof key, "%s/%s.key", server->folder.dir, client != NULL ? client : "");
    stage_set(&stage, FAKE_ON_TCP);
    stage.consul.address = server->address;
    stage.consul.token = stage.secret = MARKER;
    stage.consul.ca_file = ca != NULL ? ca_file : NULL;
    stage.consul.cert_file = client != NULL ? cert : NULL;
    stage.consul.key_file = client != NULL ? key : NULL;
    stage_start(&stage);
    struct told told = told_await(PEERS, "", 1);
    ck_assert(!told_anywhere(MARKER));
    stage_end(&stage);
    return told;
}

TEST(an_agent_with_a_certificate_of_the_configured_ca_is_accepted, 60)
{
    CLOSED_BY(tls_stop) struct tls_server server;
    tls_start(&server, "-no_tls1_1", false);
    ck_assert_str_eq(tls_follow(&server, "ca.pem", NULL).text, "peers self=a: a=3");
    ck_assert_ptr_nonnull(strstr(tls_follow(&server, NULL, NULL).text, "certificate"));
    ck_assert_ptr_nonnull(strstr(tls_follow(&server, "client.pem", NULL).text, "certificate"));
}

/* libcurl also uses the system's CA folder unless it is disabled. */
TEST(the_configured_ca_is_the_only_trusted_one, 60)
{
    CLOSED_BY(tls_stop) struct tls_server server;
    tls_start(&server, "-no_tls1_1", false);
    ck_assert_ptr_nonnull(strstr(tls_follow(&server, NULL, NULL).text, "certificate"));
    ck_assert_str_eq(stage_ca_path(), "not set");
    ck_assert_str_eq(tls_follow(&server, "ca.pem", NULL).text, "peers self=a: a=3");
    ck_assert_str_eq(stage_ca_path(), "");
}

/* OpenSSL asks for the password on the terminal or, without one, on stdin: here a pipe that never delivers anything. */
TEST(a_client_key_with_a_password_fails_without_a_prompt, 60)
{
    CLOSED_BY(tls_stop) struct tls_server server;
    int silent[2], terminal = open("/dev/tty", O_RDWR | O_CLOEXEC);
    if (terminal >= 0)
        ck_assert_int_eq(ioctl(terminal, TIOCNOTTY), 0);
    tls_start(&server, "-no_tls1_3", true);
    ck_assert_int_eq(folder_shell("cd '%s' && cp client.pem locked.pem && openssl ec -in client.key -aes128"
                                  " -passout pass:secret -out locked.key >log 2>&1",
                                  server.folder.dir),
                     0);
    ck_assert_int_eq(pipe2(silent, O_CLOEXEC), 0);
    dup2(silent[0], STDIN_FILENO);
    ck_assert_ptr_nonnull(strstr(tls_follow(&server, "ca.pem", "locked").text, "failed: Consul at 127.0.0.1:"));
    close(silent[0]);
    close(silent[1]);
}

TEST(an_agent_with_a_certificate_for_another_host_is_refused, 60)
{
    CLOSED_BY(tls_stop) struct tls_server server;
    tls_start(&server, "-no_tls1_1", false);
    char port[16];
    snprintf(port, sizeof port, "%s", strrchr(server.address, ':'));
    snprintf(server.address, sizeof server.address, "https://localhost%s", port);
    ck_assert_ptr_nonnull(strstr(tls_follow(&server, "ca.pem", NULL).text, "subject name"));
}

TEST(an_agent_that_requires_a_client_certificate_gets_the_configured_one, 60)
{
    CLOSED_BY(tls_stop) struct tls_server server;
    tls_start(&server, "-no_tls1_3", true);
    ck_assert_str_eq(tls_follow(&server, "ca.pem", "client").text, "peers self=a: a=3");
    ck_assert_ptr_nonnull(strstr(tls_follow(&server, "ca.pem", NULL).text, "failed: Consul at 127.0.0.1:"));
}

TEST(an_agent_limited_to_tls_1_1_is_refused, 60)
{
    CLOSED_BY(tls_stop) struct tls_server server;
    tls_start(&server, "-tls1_1", false);
    ck_assert_ptr_nonnull(strstr(tls_follow(&server, "ca.pem", NULL).text, "failed: Consul at 127.0.0.1:"));
}

int main(void)
{
    if (system("openssl version >/dev/null 2>&1") != 0) {
        puts("skipped: no openssl program here (Debian's openssl)");
        return 77;
    }
    return suite_run(tests());
}
