/* test_consul_real.c - shares with a real Consul agent: what it answers when an instance dies, when it restarts, and
 * when a token lacks rights. */
#include "consul_place.h"

#include <signal.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- The agent itself, as the tests rely on it ---- */

TEST(a_consul_agent_lists_services_and_forgets_them_on_restart, 90)
{
    int64_t before = 0, after = 0;
    agent_start(CONSUL_SERVER_OPEN);
    asked(consul_server_register(&server, "api", "a", 3));
    asked(consul_server_register(&server, "api", "b", 1));
    await(passing() == 2);
    asked(consul_server_fail(&server, "a"));
    await(passing() == 1);
    asked(consul_server_deregister(&server, "b"));
    await(passing() == 0);
    for (int i = 0; i < 20; i++)
        asked(consul_server_put(&server, "weir/api", "text"));
    asked(consul_server_register(&server, "api", "c", 1)); /* check "a" would fail even then */
    await(consul_server_passing(&server, "api", &before) == 1);
    asked(consul_server_restart(&server));
    ck_assert_int_eq(consul_server_passing(&server, "api", &after), 0);
    ck_assert_int_lt(after, before); /* the index goes back */
    consul_server_stop(&server);
}

/* ---- Peers ---- */

TEST(instances_that_join_share_by_their_weights_until_they_leave, 90)
{
    struct instance a, b, c;
    agent_start(CONSUL_SERVER_OPEN);
    instance_init(&a, "a", 3);
    instance_init(&b, "b", 1);
    instance_init(&c, "c", 1);
    instance_open_ready(&a);
    ck_assert(share_is(&a, 1, 1));
    instance_open_ready(&b);
    instance_open_ready(&c);
    await(share_is(&a, 3, 5) && share_is(&b, 1, 5) && share_is(&c, 1, 5));
    ck_assert_int_eq(part_of(&a), 60);
    ck_assert_int_eq(part_of(&b), 20);
    ck_assert_int_eq(part_of(&c), 20);
    ck_assert_int_eq(followed(&b, WEIR_FOLLOW_PEERS).instances, 3);
    ck_assert_int_eq(followed(&b, WEIR_FOLLOW_PEERS).rank, 1);
    weir_close(c.limiter);
    ck_assert_int_eq(passing(), 2); /* it deregistered itself */
    await(share_is(&a, 3, 4) && share_is(&b, 1, 4));
    weir_close(a.limiter);
    weir_close(b.limiter);
    ck_assert_int_eq(passing(), 0);
    consul_server_stop(&server);
}

TEST(instance_weights_are_those_in_consul, 90)
{
    struct instance a;
    agent_start(CONSUL_SERVER_OPEN);
    asked(consul_server_register(&server, "api", "a", 3));
    asked(consul_server_register(&server, "api", "b", 2));
    await(passing() == 2);
    instance_init(&a, "a", 0);
    a.peers.join = false;
    a.peers.ttl_us = 0;
    instance_open_ready(&a);
    ck_assert(share_is(&a, 3, 5));
    asked(consul_server_register(&server, "api", "b", 7));
    await(share_is(&a, 3, 10));
    asked(consul_server_register(&server, "api", "a", 13));
    await(share_is(&a, 13, 20));
    asked(consul_server_fail(&server, "b"));
    await(share_is(&a, 1, 1));
    weir_close(a.limiter);
    ck_assert_int_eq(passing(), 1); /* an instance that did not join does not deregister */
    consul_server_stop(&server);
}

/* Start a process that joins as "b" and stays until it is killed. */
static pid_t process_joins(void)
{
    pid_t pid = fork();
    if (pid != 0)
        return pid;
    struct instance b;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    instance_init(&b, "b", 1);
    instance_open(&b);
    for (;;)
        pause();
}

TEST(a_killed_instance_loses_its_share_after_its_ttl, 90)
{
    struct instance a;
    agent_start(CONSUL_SERVER_OPEN);
    pid_t b = process_joins();
    await(passing() == 1);
    instance_init(&a, "a", 1);
    instance_open_ready(&a);
    await(share_is(&a, 1, 2));
    sleep_ms(5000); /* longer than the TTL, which the process keeps renewing */
    await(passing() == 2);
    kill(b, SIGKILL);
    waitpid(b, NULL, 0);
    await(share_is(&a, 1, 1));
    weir_close(a.limiter);
    consul_server_stop(&server);
}

TEST(instances_rejoin_and_follow_an_agent_that_restarts, 90)
{
    struct instance a, b;
    agent_start(CONSUL_SERVER_OPEN);
    instance_init(&a, "a", 1);
    instance_init(&b, "b", 1);
    a.peers.hold_down_us = b.peers.hold_down_us = 10 * WEIR_SECOND; /* longer than the other instance takes to return */
    for (int i = 0; i < 50; i++)
        /* raises the index, so that a restarted agent is behind it */
        asked(consul_server_put(&server, "other", "text"));
    instance_open(&a);
    instance_open(&b);
    await(share_is(&a, 1, 2) && share_is(&b, 1, 2));
    uint64_t failures = followed(&a, WEIR_FOLLOW_PEERS).failures;
    asked(consul_server_restart(&server));
    int64_t most = 0;
    for (int waited_ms = 0; passing() != 2 && waited_ms < PATIENCE_MS; waited_ms += 5) {
        int64_t sum = part_of(&a) + part_of(&b);
        most = sum > most ? sum : most;
        sleep_ms(5);
    }
    await(passing() == 2);
    ck_assert_int_le(most, 100);
    ck_assert_uint_gt(followed(&a, WEIR_FOLLOW_PEERS).failures, failures);
    asked(consul_server_register(&server, "api", "c", 2));
    await(share_is(&a, 1, 4) && share_is(&b, 1, 4)); /* still followed, from an index that went back */
    weir_close(a.limiter);
    weir_close(b.limiter);
    consul_server_stop(&server);
}

/* ---- Tokens ---- */

#define READ_NODES "node_prefix \\\"\\\" { policy = \\\"read\\\" } "
#define READ_SERVICES "service_prefix \\\"\\\" { policy = \\\"read\\\" } "

/* All that a limiter needs, as docs/local.md lists it: its own service, all nodes, its own keys. */
#define LEAST_RULES \
    "service \\\"api\\\" { policy = \\\"write\\\" } " READ_NODES "key_prefix \\\"weir/\\\" { policy = \\\"read\\\" }"

TEST(the_documented_consul_rules_suffice_to_join_and_follow, 90)
{
    struct instance a;
    char token[40];
    agent_start(CONSUL_SERVER_ACL);
    asked(consul_server_token(&server, LEAST_RULES, token));
    asked(consul_server_put(&server, "weir/api", "token_bucket limit=30 period=1s"));
    instance_init(&a, "a", 1);
    a.consul.token = token;
    a.options.consul_policies = "weir";
    instance_open_ready(&a);
    ck_assert_int_eq(part_of(&a), 30);
    await(passing() == 1);
    weir_close(a.limiter);
    await(passing() == 0);
    ck_assert_msg(!logged(token), "a secret is in the log");
    consul_server_stop(&server);
}

TEST(a_token_without_read_rights_never_means_an_empty_list, 90)
{
    struct instance a;
    char token[40];
    agent_start(CONSUL_SERVER_ACL);
    asked(consul_server_register(&server, "api", "a", 1));
    await(passing() == 1);
    asked(consul_server_token(&server, READ_NODES, token)); /* Consul answers 200 and [] to such a token */
    instance_init(&a, "a", 0);
    a.peers.join = false;
    a.peers.ttl_us = 0;
    a.consul.token = token;
    instance_open(&a);
    await(followed(&a, WEIR_FOLLOW_PEERS).failures > 0);
    ck_assert_int_eq(weir_await_ready(a.limiter, 100000), WEIR_ETIME);
    struct weir_decision decision = taken(a.limit, "key", 1);
    ck_assert(!decision.allowed && decision.retry_after_us == WEIR_NEVER);
    ck_assert_uint_eq(followed(&a, WEIR_FOLLOW_PEERS).answers, 0);
    ck_assert_int_eq(followed(&a, WEIR_FOLLOW_PEERS).age_us, -1);
    ck_assert_str_ne(followed(&a, WEIR_FOLLOW_PEERS).last_error, "");
    ck_assert_msg(!logged(token), "a secret is in the log");
    weir_close(a.limiter);
    consul_server_stop(&server);
}

TEST(a_token_that_loses_its_rights_leaves_the_share_unchanged, 90)
{
    struct instance a;
    struct consul_answer answer;
    char token[40], path[64];
    agent_start(CONSUL_SERVER_ACL);
    asked(consul_server_register(&server, "api", "a", 1));
    asked(consul_server_register(&server, "api", "b", 1));
    await(passing() == 2);
    asked(consul_server_token(&server, READ_NODES READ_SERVICES, token));
    instance_init(&a, "a", 0);
    a.peers.join = false;
    a.peers.ttl_us = 0;
    a.consul.token = token;
    instance_open_ready(&a);
    ck_assert(share_is(&a, 1, 2));
    server.token = token;
    asked(consul_server_ask(&server, "GET", "/v1/acl/token/self", NULL, PATIENCE_MS, &answer));
    server.token = CONSUL_SERVER_MASTER;
    const char *accessor = strstr(answer.body, "\"AccessorID\": \"");
    must(accessor != NULL, "a token has an accessor");
    snprintf(path, sizeof path, "/v1/acl/token/%.36s", accessor + strlen("\"AccessorID\": \""));
    asked(consul_server_ask(&server, "DELETE", path, NULL, PATIENCE_MS, &answer));
    ck_assert_int_eq(answer.status, 200);
    asked(consul_server_register(&server, "api", "b", 2)); /* a change that it would see */
    await(followed(&a, WEIR_FOLLOW_PEERS).failures > 1);
    ck_assert(share_is(&a, 1, 2) || share_is(&a, 1, 3)); /* 1/3 if Consul was still answering the old query */
    ck_assert_msg(!logged(token) && strstr(followed(&a, WEIR_FOLLOW_PEERS).last_error, token) == NULL,
                  "a secret is told");
    weir_close(a.limiter);
    consul_server_stop(&server);
}

int main(void)
{
    if (consul_server_missing())
        return 77;
    return suite_run(tests());
}
