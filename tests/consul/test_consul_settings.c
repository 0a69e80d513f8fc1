/* test_consul_settings.c - Consul's address, token and query settings, and that they cost nothing when Consul is not
 * used. */
#include "consul_stage.h"

#include "backends/consul/config.h"
#include "backends/consul/pace.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define PEERS WEIR_FOLLOW_PEERS
#define MARKER "b1ec4a2e-s3cret-marker"

static struct consul_stage stage; /* the current test's */

/* ---- Addresses ---- */

static struct weir_consul consul_at(const char *address)
{
    return (
        struct weir_consul){ .size = sizeof(struct weir_consul), .address = address, .wait_us = 1, .timeout_us = 1 };
}

TEST(address_is_a_host_with_or_without_scheme_and_port_or_a_socket, 60)
{
    static const struct {
        const char *address, *base, *where, *path;
    } good[] = {
        { "http://consul.example", "http://consul.example:8500", "consul.example:8500", NULL },
        { "https://consul.example", "https://consul.example:8501", "consul.example:8501", NULL },
        { "http://consul.example:80/", "http://consul.example:80", "consul.example:80", NULL },
        { "10.0.0.1:8600", "http://10.0.0.1:8600", "10.0.0.1:8600", NULL },
        { "localhost", "http://localhost:8500", "localhost:8500", NULL },
        { "https://[::1]:99", "https://[::1]:99", "[::1]:99", NULL },
        { "unix:///run/consul.sock", "http://localhost", "/run/consul.sock", "/run/consul.sock" },
    };
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        struct weir_consul options = consul_at(good[i].address);
        struct consul_config config;
        char sentence[256] = "";
        ck_assert_msg(consul_config_read(&options, &config, (struct message){ sentence, sizeof sentence }) == WEIR_OK,
                      "%s: %s", good[i].address, sentence);
        ck_assert_str_eq(config.base, good[i].base);
        ck_assert_str_eq(config.where, good[i].where);
        ck_assert_pstr_eq(config.socket_path, good[i].path);
        consul_config_free(&config);
    }
}

TEST(invalid_address_is_refused_and_never_quoted, 60)
{
    static const struct {
        const char *address, *sentence;
    } bad[] = {
        { "ftp://consul.example", "option consul.address must begin with http://, https:// or unix://" },
        { "redis://consul.example", "option consul.address must begin with" },
        { "http://", "option consul.address must be" },
        { "http://me:" MARKER "@consul.example", "option consul.address may have no user or password" },
        { "http://" MARKER "@consul.example", "option consul.address may have no user or password" },
        { "http://consul.example/v1?token=" MARKER, "option consul.address may have nothing after the host and port" },
        { "http://consul.example#" MARKER, "option consul.address may have nothing after" },
        { "consul.example:0", "option consul.address" },
        { "consul.example:65536", "option consul.address must be" },
        { "consul.example:http", "option consul.address must be" },
        { "consul example", "option consul.address has a byte that is blank" },
        { "http://c\r\nX-Evil: 1", "option consul.address has a byte that is blank, a control" },
        { "unix://run/consul.sock", "the path after unix:// must begin with '/'" },
        { "unix:///aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
          "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
          "have less than 108 bytes" },
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct weir_consul options = consul_at(bad[i].address);
        struct consul_config config;
        char sentence[256] = "";
        ck_assert_int_eq(consul_config_read(&options, &config, (struct message){ sentence, sizeof sentence }),
                         WEIR_EINVAL);
        ck_assert_msg(strstr(sentence, bad[i].sentence) != NULL, "%s: %s", bad[i].address, sentence);
        ck_assert_ptr_null(strstr(sentence, MARKER));
    }
}

TEST(the_consul_address_comes_from_the_environment_without_the_option, 60)
{
    stage_set(&stage, FAKE_ON_TCP);
    setenv("CONSUL_HTTP_ADDR", stage.consul.address, 1);
    stage.consul.address = NULL;
    stage_start(&stage);
    told_await(PEERS, "peers", 1);
    stage_stop_following(&stage);
    setenv("CONSUL_HTTP_ADDR", "gopher://x", 1);
    stage.log_lines = 0;
    ck_assert_int_eq(stage_try(&stage), WEIR_EINVAL);
    ck_assert_str_eq(stage.last_line, "CONSUL_HTTP_ADDR must begin with http://, https:// or unix://");
    ck_assert_int_eq(stage.log_lines, 1);
    weir_close(stage.limiter);
    fake_consul_stop(stage.fake);
}

TEST(an_agent_on_a_unix_socket_can_be_followed, 60)
{
    stage_set(&stage, FAKE_ON_UNIX);
    stage_start(&stage);
    told_await(PEERS, "peers self=a: a=3", 1);
    fake_consul_page(stage.fake, HEALTH, 200, 11, A_AND_B);
    told_await(PEERS, "peers self=a: b=1", 1);
    fake_consul_listen(stage.fake, false);
    ck_assert_ptr_nonnull(strstr(told_await(PEERS, "failed", 1).text, "consul.sock, instances of api: "));
    stage_end(&stage);
}

/* ---- Tokens ---- */

static void assert_token_goes(void)
{
    struct fake_asked asked;
    stage.secret = MARKER;
    stage.peers.join = true;
    stage.peers.ttl_us = WEIR_SECOND;
    stage.options.consul_policies = "weir";
    fake_consul_page(stage.fake, KV, 403, 1, MARKER);
    fake_consul_page(stage.fake, REGISTER, 200, 0, "");
    fake_consul_page(stage.fake, RENEW, 500, 0, MARKER);
    stage_start(&stage);
    told_await(PEERS, "peers", 1);
    told_await(WEIR_FOLLOW_CONSUL_POLICIES, "failed", 1);
    told_await(PEERS, "failed", 1);
    fake_consul_listen(stage.fake, false);
    told_await(PEERS, "failed", 2);
    stage_stop_following(&stage);
    for (int i = 0; fake_consul_asked(stage.fake, "", i, &asked); i++) {
        ck_assert_ptr_nonnull(strstr(asked.head, "X-Consul-Token: " MARKER "\r\n"));
        ck_assert_ptr_null(strstr(asked.target, MARKER));
        ck_assert_ptr_null(strstr(asked.body, MARKER));
    }
    ck_assert_int_gt(fake_consul_count(stage.fake, ""), 3);
    ck_assert(!told_anywhere(MARKER));
    stage_end(&stage);
}

TEST(a_token_from_an_option_appears_in_a_header_only, 60)
{
    stage_set(&stage, FAKE_ON_TCP);
    stage.consul.token = MARKER;
    setenv("CONSUL_HTTP_TOKEN", "another", 1);
    assert_token_goes();
}

TEST(the_token_can_be_the_first_line_of_a_file, 60)
{
    struct folder folder;
    folder_make(&folder);
    stage_set(&stage, FAKE_ON_TCP);
    stage.consul.token_file = folder_write(&folder, "token", MARKER "\r\nanother\n");
    setenv("CONSUL_HTTP_TOKEN", "another", 1);
    assert_token_goes();
    folder_remove(&folder);
}

TEST(a_token_file_that_is_rotated_is_read_again, 60)
{
    struct folder folder;
    struct fake_asked asked;
    folder_make(&folder);
    stage_set(&stage, FAKE_ON_TCP);
    stage.consul.token_file = folder_write(&folder, "token", MARKER "-old\n");
    stage_start(&stage);
    ck_assert(fake_consul_await(stage.fake, "GET", 1));
    ck_assert(fake_consul_asked(stage.fake, "GET", 0, &asked));
    ck_assert_ptr_nonnull(strstr(asked.head, "X-Consul-Token: " MARKER "-old\r\n"));
    folder_write(&folder, "token", MARKER "-new\n");
    fake_consul_listen(stage.fake, false);
    told_await(PEERS, "failed", 1);
    const int before = fake_consul_count(stage.fake, "GET");
    fake_consul_listen(stage.fake, true);
    ck_assert(fake_consul_await(stage.fake, "GET", before + 1));
    ck_assert(fake_consul_asked(stage.fake, "GET", before, &asked));
    ck_assert_ptr_nonnull(strstr(asked.head, "X-Consul-Token: " MARKER "-new\r\n"));
    stage_end(&stage);
    ck_assert(!told_anywhere(MARKER));
    folder_remove(&folder);
}

TEST(the_token_can_come_from_the_environment, 60)
{
    stage_set(&stage, FAKE_ON_TCP);
    setenv("CONSUL_HTTP_TOKEN", MARKER, 1);
    setenv("CONSUL_HTTP_TOKEN_FILE", "/nowhere", 1);
    assert_token_goes();
}

TEST(the_token_can_come_from_a_file_that_the_environment_names, 60)
{
    struct folder folder;
    folder_make(&folder);
    stage_set(&stage, FAKE_ON_TCP);
    setenv("CONSUL_HTTP_TOKEN", "", 1);
    setenv("CONSUL_HTTP_TOKEN_FILE", folder_write(&folder, "token", MARKER), 1);
    assert_token_goes();
    folder_remove(&folder);
}

TEST(without_a_configured_token_none_is_sent, 60)
{
    struct fake_asked asked;
    stage_set(&stage, FAKE_ON_TCP);
    stage_start(&stage);
    ck_assert(fake_consul_await(stage.fake, "GET", 1));
    ck_assert(fake_consul_asked(stage.fake, "GET", 0, &asked));
    ck_assert_ptr_null(strstr(asked.head, "Token"));
    stage_end(&stage);
}

TEST(unusable_settings_are_refused_when_the_limiter_opens, 60)
{
    struct folder folder;
    char empty[128], blank[128], line[700], long_file[128];
    folder_make(&folder);
    memset(line, 'x', sizeof line - 1);
    line[sizeof line - 1] = '\0';
    snprintf(empty, sizeof empty, "%s", folder_write(&folder, "empty", "\n" MARKER "\n"));
    snprintf(blank, sizeof blank, "%s", folder_write(&folder, "blank", MARKER " " MARKER));
    snprintf(long_file, sizeof long_file, "%s", folder_write(&folder, "long", line));
    const struct {
        struct weir_consul consul;
        int error;
        const char *sentence;
    } bad[] = {
        { { .token = MARKER "\r\nX-Evil: 1" }, WEIR_EINVAL, "option consul.token has a byte that is blank, a control" },
        { { .token_file = "/nowhere/token" },
          WEIR_EIO,
          "option consul.token_file \"/nowhere/token\" cannot be read: No such file" },
        { { .token_file = empty }, WEIR_EINVAL, "the first line is empty" },
        { { .token_file = blank }, WEIR_EINVAL, "the first line has a byte that is blank" },
        { { .token_file = long_file }, WEIR_EINVAL, "the first line is longer than 512 bytes" },
        { { .query = "token=" MARKER }, WEIR_EINVAL, "option consul.query may not set \"token\"" },
        { { .query = "ns=a&index=7" }, WEIR_EINVAL, "option consul.query may not set \"index\"" },
        { { .query = "&ns=a" }, WEIR_EINVAL, "option consul.query must begin with the name of a parameter" },
        { { .address = "http://c", .ca_file = "/etc/passwd" },
          WEIR_EINVAL,
          "option consul.ca_file needs an address with https://" },
        { { .address = "https://c", .ca_file = "/nowhere/ca" },
          WEIR_EIO,
          "option consul.ca_file \"/nowhere/ca\" cannot" },
        { { .address = "https://c", .key_file = "/etc/passwd" },
          WEIR_EINVAL,
          "option consul.key_file needs cert_file" },
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct consul_config config;
        char sentence[256] = "";
        ck_assert_int_eq(consul_config_read(&bad[i].consul, &config, (struct message){ sentence, sizeof sentence }),
                         bad[i].error);
        ck_assert_msg(strstr(sentence, bad[i].sentence) != NULL, "expected \"%s\": %s", bad[i].sentence, sentence);
        ck_assert_ptr_null(strstr(sentence, MARKER));
    }
    folder_remove(&folder);
}

TEST(prefix_of_policies_does_not_begin_with_a_slash, 60)
{
    stage_set(&stage, FAKE_ON_TCP);
    stage.options.consul_policies = "/weir";
    ck_assert_int_eq(stage_try(&stage), WEIR_EINVAL);
    ck_assert_str_eq(stage.last_line, "option consul_policies must not begin with '/': Consul's keys do not");
    ck_assert_ptr_null(told_follower());
    stage_end(&stage);
}

/* ---- Queries ---- */

TEST(datacenter_and_query_are_sent_escaped_with_every_request, 60)
{
    struct fake_asked asked;
    stage_set(&stage, FAKE_ON_TCP);
    stage.consul.datacenter = "dc 1&x=#";
    stage.consul.query = "ns=team one&partition=\xc3\xa9#";
    stage.peers.join = true;
    stage.peers.ttl_us = WEIR_SECOND;
    stage.options.consul_policies = "a b/c?d";
    fake_consul_page(stage.fake, REGISTER, 200, 0, "");
    stage_start(&stage);
    ck_assert(fake_consul_await(stage.fake, "GET /v1/kv", 1));
    told_await(PEERS, "peers", 1);
    stage_stop_following(&stage);
    ck_assert(fake_consul_asked(stage.fake, "GET /v1/kv", 0, &asked));
    ck_assert_str_eq(asked.target,
                     "GET /v1/kv/a%20b/c%3Fd/?recurse&dc=dc%201%26x%3D%23&ns=team%20one&partition=%C3%A9%23");
    ck_assert(fake_consul_asked(stage.fake, "PUT " REGISTER, 0, &asked));
    ck_assert_str_eq(asked.target, "PUT " REGISTER "?dc=dc%201%26x%3D%23&ns=team%20one&partition=%C3%A9%23");
    ck_assert(fake_consul_asked(stage.fake, "PUT " DEREGISTER, 0, &asked));
    ck_assert_str_eq(asked.target, "PUT " DEREGISTER "?dc=dc%201%26x%3D%23&ns=team%20one&partition=%C3%A9%23");
    stage_end(&stage);
}

TEST(proxy_of_the_environment_is_not_used, 60)
{
    stage_set(&stage, FAKE_ON_TCP);
    setenv("http_proxy", "http://127.0.0.1:1", 1);
    setenv("ALL_PROXY", "http://127.0.0.1:1", 1);
    stage_start(&stage);
    told_await(PEERS, "peers", 1);
    stage_end(&stage);
}

TEST(a_limiter_that_does_not_follow_consul_does_not_initialise_libcurl, 60)
{
    struct weir_options plain = WEIR_OPTIONS_INIT;
    struct weir_decision decision;
    struct scene scene;
    scene_open(&scene, &plain);
    must_succeed(
        weir_try(scene_define_text(&scene, "api", "token_bucket limit=1 period=1s"), weir_key_text("k"), 1, &decision));
    scene_close(&scene);
    ck_assert_int_eq(stage_curl_inits(), 0);
    for (int i = 0; i < 2; i++) {
        stage_set(&stage, FAKE_ON_TCP);
        stage_start(&stage);
        stage_end(&stage);
    }
    ck_assert_int_eq(stage_curl_inits(), 1);
}

/* ---- Pauses ---- */

/* Each pause is random, between its least value and twice that, or one and a half times that if urgent. */
TEST(pauses_after_failures_double_up_to_a_maximum_and_restart_after_an_answer, 10)
{
    struct consul_pace pace, urgent;
    consul_pace_init(&pace, false);
    consul_pace_init(&urgent, true);
    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < 40; i++) {
            const int64_t least_us = i < 4 ? INT64_C(1000000) << i : CONSUL_GAP_MOST_US;
            const int64_t gap_us = consul_pace_failed(&pace, 77) - 77;
            const int64_t urgent_us = consul_pace_failed(&urgent, 77) - 77;
            ck_assert_msg(gap_us >= least_us && gap_us < 2 * least_us, "%d: %lld", i, (long long)gap_us);
            ck_assert_int_ge(urgent_us, CONSUL_GAP_US);
            ck_assert_int_lt(urgent_us, CONSUL_GAP_URGENT_MOST_US);
        }
        consul_pace_answered(&pace, 0, 2 * CONSUL_GAP_US, true);
    }
}
