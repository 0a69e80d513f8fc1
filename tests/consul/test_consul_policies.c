/* test_consul_policies.c - policies in a real Consul agent's KV store: they are added, changed, refused and removed. */
#include "consul_place.h"

static int64_t limit_in_force(weir_limit *limit)
{
    struct weir_policy policy;
    must_succeed(weir_limit_policy(limit, &policy));
    return policy.limit;
}

static void follows_policies(struct instance *instance)
{
    instance_init(instance, NULL, 0);
    instance->options.peers = NULL;
    instance->options.consul_policies = "weir";
}

TEST(a_policy_in_consul_is_in_force_while_it_is_there, 90)
{
    struct instance a;
    agent_start(CONSUL_SERVER_OPEN);
    follows_policies(&a);
    instance_open_ready(&a);
    ck_assert_int_eq(limit_in_force(a.limit), 100);
    asked(consul_server_put(&server, "weir/api", "token_bucket limit=10 period=1s"));
    await(limit_in_force(a.limit) == 10);
    ck_assert_int_eq(part_of(&a), 10);
    asked(consul_server_put(&server, "weir/api", "token_bucket limit=20 period=1s"));
    await(limit_in_force(a.limit) == 20);
    asked(consul_server_put(&server, "weir/api", "token_bucket limit=many period=1s"));
    await(followed(&a, WEIR_FOLLOW_CONSUL_POLICIES).refused > 0);
    ck_assert_int_eq(limit_in_force(a.limit), 20);
    ck_assert_msg(strstr(followed(&a, WEIR_FOLLOW_CONSUL_POLICIES).last_error, "many") != NULL, "%s",
                  followed(&a, WEIR_FOLLOW_CONSUL_POLICIES).last_error);
    await(logged("weir/api")); /* the log line follows the count */
    asked(consul_server_delete(&server, "weir/api"));
    await(limit_in_force(a.limit) == 100);
    ck_assert_int_eq(part_of(&a), 100);
    weir_close(a.limiter);
    consul_server_stop(&server);
}

TEST(a_ready_limiter_has_consuls_policies_until_an_agent_says_that_they_are_gone, 90)
{
    struct instance a;
    agent_start(CONSUL_SERVER_OPEN);
    asked(consul_server_put(&server, "weir/api", "token_bucket limit=10 period=1s"));
    asked(consul_server_put(&server, "weir/only-in-consul", "fixed_window limit=7 period=1h"));
    follows_policies(&a);
    instance_open_ready(&a);
    ck_assert_int_eq(limit_in_force(a.limit), 10);
    weir_limit *found = weir_limit_find(a.limiter, "only-in-consul");
    must(found != NULL, "a name that Consul alone has makes a limit");
    ck_assert_int_eq(limit_in_force(found), 7);
    daemon_pause(&server.daemon);
    await(followed(&a, WEIR_FOLLOW_CONSUL_POLICIES).failures > 0); /* a hung agent sends nothing */
    ck_assert_int_eq(limit_in_force(a.limit), 10);
    daemon_resume(&server.daemon);
    asked(consul_server_restart(&server)); /* an agent without the key answers that there is none */
    await(limit_in_force(a.limit) == 100);
    ck_assert_int_eq(limit_in_force(found), 7); /* nothing is stored under the prefix */
    asked(consul_server_put(&server, "weir/api", "token_bucket limit=30 period=1s"));
    await(limit_in_force(a.limit) == 30); /* still followed, from an index that went back */
    weir_close(a.limiter);
    consul_server_stop(&server);
}

static int64_t limit_of_key(const struct instance *instance, const char *key)
{
    return peeked(instance->limit, key, 1).limit;
}

TEST(overrides_for_some_keys_can_be_defined_in_consul, 90)
{
    struct instance a;
    agent_start(CONSUL_SERVER_OPEN);
    follows_policies(&a);
    instance_open_ready(&a);
    asked(consul_server_put(&server, "weir/api/10.0.*", "token_bucket limit=5 period=1s"));
    asked(consul_server_put(&server, "weir/api/10.0.0.1", "token_bucket limit=500 period=1s"));
    await(limit_of_key(&a, "10.0.0.1") == 500 && limit_of_key(&a, "10.0.0.2") == 5);
    ck_assert_int_eq(limit_of_key(&a, "10.1.0.1"), 100);
    asked(consul_server_delete(&server, "weir/api/10.0.0.1"));
    await(limit_of_key(&a, "10.0.0.1") == 5);
    asked(consul_server_delete(&server, "weir/api/10.0.*"));
    await(limit_of_key(&a, "10.0.0.1") == 100 && limit_of_key(&a, "10.0.0.2") == 100);
    weir_close(a.limiter);
    consul_server_stop(&server);
}

int main(void)
{
    if (consul_server_missing())
        return 77;
    return suite_run(tests());
}
