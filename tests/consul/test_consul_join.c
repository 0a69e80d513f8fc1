/* test_consul_join.c - this instance in Consul: registered, renewed, registered again, deregistered. */
#include "consul_stage.h"

#include "core/ground/clock.h"
#include "core/ground/forks.h"

#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#define PEERS WEIR_FOLLOW_PEERS
#define PUT_REGISTER "PUT " REGISTER
#define PUT_RENEW "PUT " RENEW
#define PUT_DEREGISTER "PUT " DEREGISTER

static struct consul_stage stage; /* the current test's */

static void stage_set_join(void)
{
    stage_set(&stage, FAKE_ON_TCP);
    stage.peers.join = true;
    stage.peers.ttl_us = WEIR_SECOND;
    stage.options.weight = 3;
    fake_consul_page(stage.fake, REGISTER, 200, 0, "");
    fake_consul_page(stage.fake, RENEW, 200, 0, "");
    fake_consul_page(stage.fake, DEREGISTER, 200, 0, "");
}

static struct fake_asked asked_at(const char *target, int i)
{
    struct fake_asked asked;
    ck_assert_msg(fake_consul_asked(stage.fake, target, i, &asked), "no %s number %d", target, i);
    return asked;
}

TEST(registration_sends_the_id_service_and_weight, 60)
{
    stage_set_join();
    stage_start(&stage);
    told_await(PEERS, "peers", 1);
    ck_assert_str_eq(asked_at(PUT_REGISTER, 0).body,
                     "{\"ID\":\"a\",\"Name\":\"api\",\"Weights\":{\"Passing\":3,\"Warning\":1},\"Check\":{\"CheckID\":"
                     "\"service:a\",\"TTL\":\"1000ms\",\"Status\":\"passing\",\"DeregisterCriticalServiceAfter\":"
                     "\"60000ms\"}}");
    ck_assert_ptr_nonnull(strstr(asked_at(PUT_REGISTER, 0).head, "Content-Type: application/json"));
    stage_end(&stage);
    ck_assert_int_eq(told_count(PEERS, "failed"), 0);
}

TEST(registration_sends_the_configured_address_and_port, 60)
{
    stage_set_join();
    stage.peers.ttl_us = WEIR_HOUR;
    stage.peers.join_address = "10.0.0.7";
    stage.peers.join_port = 8080;
    stage.peers.weight_meta = "share";
    stage_start(&stage);
    ck_assert(fake_consul_await(stage.fake, PUT_REGISTER, 1));
    struct fake_asked asked = asked_at(PUT_REGISTER, 0);
    ck_assert_ptr_nonnull(strstr(asked.body, "\"Address\":\"10.0.0.7\",\"Port\":8080,\"Meta\":{\"share\":\"3\"},"));
    ck_assert_ptr_nonnull(strstr(asked.body, "\"TTL\":\"3600000ms\""));
    ck_assert_ptr_nonnull(strstr(asked.body, "\"DeregisterCriticalServiceAfter\":\"3600000ms\""));
    stage_end(&stage);
}

TEST(ids_and_services_may_have_any_bytes, 60)
{
    stage_set_join();
    stage.peers.service = "a b/?c";
    stage.peers.id = "x/y%z \"1\"\xc3\xa9";
    fake_consul_page(stage.fake, "/v1/health/service/a%20b%2F%3Fc", 200, 10, "[]");
    fake_consul_page(stage.fake, "/v1/agent/service/deregister/x%2Fy%25z%20%221%22%C3%A9", 200, 10, "");
    stage_start(&stage);
    ck_assert_str_eq(told_await(PEERS, "peers", 1).text, "peers self=x/y%z \"1\"\xc3\xa9:");
    ck_assert(fake_consul_await(stage.fake, "PUT /v1/agent/check/pass/service%3Ax%2Fy%25z%20%221%22%C3%A9", 1));
    ck_assert_ptr_nonnull(strstr(asked_at(PUT_REGISTER, 0).body, "\"ID\":\"x/y%z \\\"1\\\"\xc3\xa9\","));
    stage_stop_following(&stage);
    ck_assert_int_eq(fake_consul_count(stage.fake, "PUT /v1/agent/service/deregister/x%2Fy%25z%20%221%22%C3%A9"), 1);
    stage_end(&stage);
}

TEST(options_that_consul_cannot_represent_are_refused_with_peers_join, 60)
{
    static const struct {
        struct weir_peers peers;
        const char *sentence;
    } bad[] = {
        { { .service = "api", .id = "a\xff" }, "option peers.id must be UTF-8 with peers.join" },
        { { .service = "a\xc3", .id = "a" }, "option peers.service must be UTF-8 with peers.join" },
        { { .service = "api", .id = "a", .weight_meta = "\xe9" }, "option peers.weight_meta must be UTF-8" },
        { { .service = "api", .id = "a", .join_address = "\x80" }, "option peers.join_address must be UTF-8" },
        { { .service = "api", .id = "a\nb" }, "option peers.id has a control character at byte 2" },
        { { .service = "api", .id = "\x7f" }, "option peers.id has a control character at byte 1" },
        { { .service = "api", .id = "a//b" }, "option peers.id has \"\" where it is parted by '/'" },
        { { .service = "api", .id = "/a" }, "option peers.id has \"\" where" },
        { { .service = "api", .id = "a//" }, "option peers.id has \"\" where" },
        { { .service = "api", .id = "." }, "option peers.id has \".\" where" },
        { { .service = "api", .id = "a/.." }, "option peers.id has \"..\" where" },
        { { .service = "api", .id = "a/./b" }, "option peers.id has \".\" where" },
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        stage_set_join();
        stage.peers.service = bad[i].peers.service;
        stage.peers.id = bad[i].peers.id;
        stage.peers.weight_meta = bad[i].peers.weight_meta;
        stage.peers.join_address = bad[i].peers.join_address;
        ck_assert_int_eq(stage_try(&stage), WEIR_EINVAL);
        ck_assert_msg(strncmp(stage.last_line, bad[i].sentence, strlen(bad[i].sentence)) == 0, "expected %s: %s",
                      bad[i].sentence, stage.last_line);
        stage_end(&stage);
    }
}

TEST_EACH(instances_join_with_ids_of_dots_and_slashes, 3, 60)
{
    static const char *const good[][2] = { { "a/b/", "a%2Fb%2F" }, { "...", "..." }, { "a/.b", "a%2F.b" } };
    char deregister[64];
    stage_set_join();
    snprintf(deregister, sizeof deregister, "PUT /v1/agent/service/deregister/%s", good[_i][1]);
    stage.peers.id = good[_i][0];
    stage_start(&stage);
    ck_assert(fake_consul_await(stage.fake, PUT_REGISTER, 1));
    stage_stop_following(&stage);
    ck_assert_int_eq(fake_consul_count(stage.fake, deregister), 1);
    stage_end(&stage);
}

TEST(the_instance_list_is_requested_after_the_registration, 60)
{
    stage_set_join();
    stage_start(&stage);
    ck_assert(fake_consul_await(stage.fake, "GET", 1));
    ck_assert_int_eq(fake_consul_count(stage.fake, PUT_REGISTER), 1);
    stage_end(&stage);
}

TEST(the_instance_list_is_requested_even_if_the_registration_fails, 60)
{
    stage_set_join();
    fake_consul_page(stage.fake, REGISTER, 403, 0, "Permission denied");
    stage_start(&stage);
    told_await(PEERS, "peers", 1);
    ck_assert_ptr_nonnull(
        strstr(told_at(PEERS, "failed", 0).text,
               "registering this instance: it answered with status 403: the token lacks the permission"));
    ck_assert(fake_consul_await(stage.fake, PUT_REGISTER, 2));
    ck_assert_int_ge(asked_at(PUT_REGISTER, 1).at_us - asked_at(PUT_REGISTER, 0).at_us, WEIR_SECOND);
    stage_end(&stage);
}

/* Behind a connection that only renewals used for a while there may be another agent than the one that gave the
 * index. */
TEST(an_index_is_used_only_on_the_connection_that_delivered_it, 60)
{
    stage_set_join();
    fake_consul_way(stage.fake, HEALTH, FAKE_AND_CLOSE, -1);
    stage_start(&stage);
    ck_assert(fake_consul_await(stage.fake, "GET " HEALTH, 13));
    ck_assert(fake_consul_await(stage.fake, PUT_RENEW, 3));
    ck_assert_int_eq(fake_consul_count(stage.fake, "GET " HEALTH "?passing&index"), 0);
    stage_end(&stage);
    ck_assert_int_eq(told_count(PEERS, "failed"), 0);
}

TEST(the_health_check_is_renewed_repeatedly, 60)
{
    stage_set_join();
    stage_start(&stage);
    ck_assert(fake_consul_await(stage.fake, PUT_RENEW, 4));
    ck_assert_int_eq(fake_consul_count(stage.fake, PUT_REGISTER), 1);
    ck_assert_str_eq(asked_at(PUT_RENEW, 0).body, "");
    stage_end(&stage);
    ck_assert_int_eq(told_count(PEERS, "failed"), 0);
}

/* Newer agents answer 404, version 1.8 answers 500. */
TEST_EACH(an_instance_registers_again_when_the_agent_has_forgotten_it, 2, 60)
{
    static const int statuses[] = { 404, 500 };
    stage_set_join();
    stage_start(&stage);
    ck_assert(fake_consul_await(stage.fake, PUT_RENEW, 1));
    fake_consul_page(stage.fake, RENEW, statuses[_i], 0, "Unknown check ID \"service:a\"");
    ck_assert(fake_consul_await(stage.fake, PUT_REGISTER, 2));
    fake_consul_page(stage.fake, RENEW, 200, 0, "");
    int renewals = fake_consul_count(stage.fake, PUT_RENEW);
    ck_assert(fake_consul_await(stage.fake, PUT_RENEW, renewals + 2));
    ck_assert_int_le(fake_consul_count(stage.fake, PUT_REGISTER), 3);
    ck_assert_ptr_nonnull(strstr(told_at(PEERS, "failed", 0).text, "renewing this instance: it answered with status"));
    stage_end(&stage);
}

TEST(an_agent_that_always_forgets_gets_registrations_at_a_limited_rate, 60)
{
    stage_set_join();
    fake_consul_page(stage.fake, RENEW, 404, 0, "");
    stage_start(&stage);
    ck_assert(fake_consul_await(stage.fake, PUT_REGISTER, 4));
    for (int i = 2; i < 4; i++) /* the second comes immediately, later ones are paced */
        ck_assert_int_ge(asked_at(PUT_REGISTER, i).at_us - asked_at(PUT_RENEW, i - 1).at_us, WEIR_SECOND);
    stage_end(&stage);
}

TEST(an_instance_registers_again_when_the_list_lacks_it, 60)
{
    stage_set_join();
    stage.peers.ttl_us = WEIR_HOUR;
    stage_start(&stage);
    told_await(PEERS, "peers self=a: a=3", 1);
    fake_consul_page(stage.fake, HEALTH, 200, 11, "[]");
    ck_assert(fake_consul_await(stage.fake, PUT_REGISTER, 3));
    for (int i = 1; i < 3; i++)
        ck_assert_int_ge(asked_at(PUT_REGISTER, i).at_us - asked_at(PUT_REGISTER, i - 1).at_us, WEIR_SECOND);
    stage_end(&stage);
}

TEST(an_instance_registers_again_when_the_agent_returns, 60)
{
    stage_set_join();
    stage_start(&stage);
    ck_assert(fake_consul_await(stage.fake, PUT_RENEW, 1));
    fake_consul_listen(stage.fake, false);
    told_await(PEERS, "failed", 2);
    int lists = told_count(PEERS, "peers");
    fake_consul_listen(stage.fake, true);
    ck_assert(fake_consul_await(stage.fake, PUT_REGISTER, 2));
    told_await(PEERS, "peers", lists + 1);
    stage_end(&stage);
}

TEST(closing_deregisters_the_instance, 60)
{
    stage_set_join();
    stage_start(&stage);
    told_await(PEERS, "peers", 1);
    stage_stop_following(&stage);
    ck_assert_int_eq(fake_consul_count(stage.fake, PUT_DEREGISTER), 1);
    ck_assert_int_eq(stage.log_lines, 0);
    stage_end(&stage);
}

/* The agent may have accepted a registration whose answer never arrived. */
TEST(closing_deregisters_even_if_the_registration_was_not_answered, 60)
{
    stage_set_join();
    fake_consul_way(stage.fake, REGISTER, FAKE_HANGS, -1);
    stage_start(&stage);
    ck_assert(fake_consul_await(stage.fake, PUT_REGISTER, 1));
    stage_stop_following(&stage);
    ck_assert_int_eq(fake_consul_count(stage.fake, PUT_DEREGISTER), 1);
    stage_end(&stage);
}

TEST(closing_waits_at_most_a_second_for_an_agent_that_hangs, 60)
{
    stage_set_join();
    stage.consul.timeout_us = WEIR_MINUTE;
    fake_consul_way(stage.fake, DEREGISTER, FAKE_HANGS, -1);
    stage_start(&stage);
    told_await(PEERS, "peers", 1);
    int64_t begin_us = clock_monotonic_us();
    stage_stop_following(&stage);
    int64_t took_us = clock_monotonic_us() - begin_us;
    ck_assert_int_ge(took_us, WEIR_SECOND);
    ck_assert_int_lt(took_us, 20 * WEIR_SECOND); /* less than the timeout */
    ck_assert_ptr_nonnull(strstr(stage.last_line, "did not confirm that this instance was deregistered"));
    stage_end(&stage);
}

TEST(closing_does_not_wait_for_a_pending_query, 60)
{
    stage_set(&stage, FAKE_ON_TCP);
    stage_start(&stage);
    ck_assert(fake_consul_await(stage.fake, "GET " HEALTH "?passing&index", 1)); /* the agent holds it for 10 minutes */
    stage_stop_following(&stage);
    ck_assert_int_eq(fake_consul_count(stage.fake, "PUT"), 0);
    stage_end(&stage);
}

/* Tell the follower of a fork. A limiter that follows anything watches forks; this stage has no such limiter. */
static void told_of_fork(struct forks_watcher *watcher, enum forks_moment moment)
{
    (void)watcher;
    (void)moment;
}

TEST(a_forked_child_leaves_its_parents_connection_to_consul_alone, 60)
{
    struct forks_watcher watcher = { .told = told_of_fork };
    forks_watch(&watcher);
    stage_set_join();
    stage_start(&stage);
    ck_assert(fake_consul_await(stage.fake, "GET " HEALTH "?passing&index", 1));
    pid_t child = fork();
    if (child == 0) {
        struct follower *follower = told_follower();
        follower->end(follower);
        _exit(0);
    }
    int status;
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    ck_assert_int_eq(status, 0);
    fake_consul_page(stage.fake, HEALTH, 200, 11, A_AND_B);
    told_await(PEERS, "peers self=a: b=1", 1);
    ck_assert_int_eq(fake_consul_count(stage.fake, PUT_DEREGISTER), 0);
    stage_end(&stage);
    forks_forget(&watcher);
    ck_assert_int_eq(told_count(PEERS, "failed"), 0);
}

TEST(a_forked_child_that_closes_wipes_the_token, 60)
{
    struct forks_watcher watcher = { .told = told_of_fork };
    forks_watch(&watcher);
    stage_set(&stage, FAKE_ON_TCP);
    stage.consul.token = stage.secret = "s3cret-marker";
    stage_start(&stage);
    told_await(PEERS, "peers", 1);
    ck_assert(stage_headers_hold("s3cret-marker"));
    pid_t child = fork();
    if (child == 0) {
        struct follower *follower = told_follower();
        follower->end(follower);
        _exit(stage_headers_hold("s3cret-marker") ? 1 : 0);
    }
    int status;
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    ck_assert_int_eq(status, 0);
    ck_assert(stage_headers_hold("s3cret-marker"));
    stage_end(&stage);
    forks_forget(&watcher);
}
