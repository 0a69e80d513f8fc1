/* test_open_follow.c - options of peers and of Consul: refusals with their messages, and defaults. */
#include "support.h"

#include "core/limiter/limiter.h"
#include "core/limiter/options.h"

#include <stdio.h>

static int64_t list_one(void *user, struct weir_peer *peers, size_t room)
{
    peers[0] = (struct weir_peer){ "me", 1 };
    return 1;
}

struct asked {
    struct weir_options options;
    struct weir_peers peers;
    struct weir_consul consul;
};

/* Valid options for peers from a function, from DNS and from Consul. */
static void ask_list(struct asked *asked)
{
    *asked = (struct asked){ .options = WEIR_OPTIONS_INIT, .peers.size = sizeof asked->peers };
    asked->options.peers = &asked->peers;
    asked->peers.list = list_one;
    asked->peers.id = "me";
}

static void ask_dns(struct asked *asked)
{
    ask_list(asked);
    asked->peers.list = NULL;
    asked->peers.id = NULL;
    asked->peers.dns = "peers.example";
}

static void ask_service(struct asked *asked)
{
    ask_list(asked);
    asked->peers.list = NULL;
    asked->peers.service = "web";
    asked->consul.size = sizeof asked->consul;
    asked->options.consul = &asked->consul;
}

static int check(struct asked *asked, struct asked *read)
{
    int error = options_read(&asked->options, &read->options);
    return error ? error : options_read_followed(&read->options, &read->peers, &read->consul);
}

/* Assert that options_read() and weir_open() refuse with this sentence. */
static void assert_refused(struct asked *asked, const char *says)
{
    struct asked read;
    struct scene scene;
    scene_init(&scene, &asked->options);
    scene.log_allowed = true;
    ck_assert_msg(check(asked, &read) == WEIR_EINVAL, "%s", says);
    ck_assert_str_eq(scene.last_line, says);
    ck_assert_int_eq(weir_open(&asked->options, &scene.limiter), WEIR_EINVAL);
    ck_assert_ptr_null(scene.limiter);
    ck_assert_int_eq(scene.log_lines, 2);
    ck_assert_str_eq(scene.last_line, says);
}

/* Set `asked` to valid options of that kind and assert that they are refused after the change. */
#define REFUSED(kind, change, says)   \
    do {                              \
        ask_##kind(&asked);           \
        change;                       \
        assert_refused(&asked, says); \
    } while (0)

static void assert_taken(struct asked *asked)
{
    struct asked read;
    struct scene scene;
    scene_init(&scene, &asked->options);
    must_succeed(check(asked, &read));
}

/* ---- Who the peers are ---- */

TEST(option_peers_requires_exactly_one_source, 30)
{
    static const char one_of[] = "exactly one of peers.service, peers.dns and peers.list must be set";
    struct asked asked;
    REFUSED(list, asked.peers.list = NULL, one_of);
    REFUSED(list, asked.peers.dns = "peers.example", one_of);
    REFUSED(service, asked.peers.list = list_one, one_of);
    REFUSED(service, asked.peers.service = "", "option peers.service must not be empty");
    REFUSED(dns, asked.peers.dns = "", "option peers.dns must not be empty");
}

TEST(option_peers_requires_an_id_except_with_dns, 30)
{
    static char long_id[257];
    struct asked asked;
    memset(long_id, 'x', 256);
    REFUSED(list, asked.peers.id = NULL, "option peers.id is required, except with peers.dns");
    REFUSED(service, asked.peers.id = NULL, "option peers.id is required, except with peers.dns");
    REFUSED(service, asked.peers.id = "", "option peers.id must be 1 to 255 bytes long");
    REFUSED(service, asked.peers.id = long_id, "option peers.id must be 1 to 255 bytes long");
    ask_service(&asked);
    asked.peers.id = long_id;
    long_id[255] = '\0';
    assert_taken(&asked);
    ask_dns(&asked);
    assert_taken(&asked);
    asked.peers.id = "host-3";
    assert_refused(&asked, "option peers.id must be an address in digits with peers.dns, not host-3");
    asked.peers.id = "10.1.2.3";
    assert_taken(&asked);
    asked.peers.id = "2001:db8::7";
    assert_taken(&asked);
}

TEST(with_option_peers_instances_and_weights_must_not_be_set, 30)
{
    static const int64_t weights[] = { 1, 2, 3 };
    static const char no_weight[] = "option weight must be 0 with option peers, unless peers.join is set";
    struct asked asked;
    REFUSED(list, asked.options.instances = 3, "option instances must be 0 with option peers, which finds it out");
    REFUSED(list, asked.options.total_weight = 1,
            "option total_weight must be 0 with option peers, which finds it out");
    REFUSED(list, asked.options.weights = weights, "option weights must be 0 with option peers, which finds it out");
    REFUSED(list, asked.options.weight = 3, no_weight);
    REFUSED(service, asked.options.weight = 3, no_weight);
    ask_service(&asked);
    asked.options.weight = 3;
    asked.peers.join = true;
    assert_taken(&asked);
}

TEST(options_of_peers_join_are_refused_without_it, 30)
{
    struct asked asked;
    REFUSED(list, asked.peers.join = true, "option peers.join is for peers.service and must be 0 without it");
    REFUSED(dns, asked.peers.weight_meta = "weight",
            "option peers.weight_meta is for peers.service and must be 0 without it");
    REFUSED(service, asked.peers.join_address = "10.0.0.1",
            "option peers.join_address is for peers.join and must be 0 without it");
    REFUSED(service, asked.peers.join_port = 80, "option peers.join_port is for peers.join and must be 0 without it");
    REFUSED(service, asked.peers.ttl_us = WEIR_SECOND,
            "option peers.ttl_us is for peers.join and must be 0 without it");
    ask_service(&asked);
    asked.peers.join = true;
    asked.peers.ttl_us = WEIR_SECOND;
    assert_taken(&asked);
    asked.peers.join_address = "";
    assert_refused(&asked, "option peers.join_address must not be empty");
    asked.peers.join_address = NULL;
    asked.peers.weight_meta = "";
    assert_refused(&asked, "option peers.weight_meta must not be empty");
}

/* ---- Ranges and defaults ---- */

TEST(options_of_peers_and_consul_have_ranges, 30)
{
    static const struct {
        size_t offset;
        int64_t low, high;
        const char *below, *above;
    } rows[] = {
        { offsetof(struct asked, peers.poll_us), 100000, WEIR_HOUR,
          "option peers.poll_us must be 100000 to 3600000000, not 99999",
          "option peers.poll_us must be 100000 to 3600000000, not 3600000001" },
        { offsetof(struct asked, peers.hold_down_us), 1000, 2 * WEIR_HOUR,
          "option peers.hold_down_us must be 1000 to 7200000000, not 999",
          "option peers.hold_down_us must be 1000 to 7200000000, not 7200000001" },
        { offsetof(struct asked, peers.max_stale_us), 36875000, 30 * WEIR_DAY,
          "option peers.max_stale_us must be 36875000 or more, not 36874999: with this consul.wait_us "
          "and consul.timeout_us, Consul may take that long to report that nothing has changed",
          "option peers.max_stale_us must be 1000000 to 2592000000000, not 2592000000001" },
        { offsetof(struct asked, peers.floor_instances), 2, 10000,
          "option peers.floor_instances must be 2 to 10000, not 1",
          "option peers.floor_instances must be 2 to 10000, not 10001" },
        { offsetof(struct asked, peers.ttl_us), WEIR_SECOND, WEIR_HOUR,
          "option peers.ttl_us must be 1000000 to 3600000000, not 999999",
          "option peers.ttl_us must be 1000000 to 3600000000, not 3600000001" },
        { offsetof(struct asked, peers.join_port), 0, 65535, "option peers.join_port must be 0 to 65535, not -1",
          "option peers.join_port must be 0 to 65535, not 65536" },
        { offsetof(struct asked, consul.wait_us), WEIR_SECOND, 10 * WEIR_MINUTE,
          "option consul.wait_us must be 1000000 to 600000000, not 999999",
          "option consul.wait_us must be 1000000 to 600000000, not 600000001" },
        { offsetof(struct asked, consul.timeout_us), 10000, WEIR_MINUTE,
          "option consul.timeout_us must be 10000 to 60000000, not 9999",
          "option consul.timeout_us must be 10000 to 60000000, not 60000001" },
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct asked asked;
        int64_t *value = (int64_t *)(void *)((char *)&asked + rows[i].offset);
        ask_service(&asked);
        asked.peers.join = true;
        *value = rows[i].low;
        assert_taken(&asked);
        *value = rows[i].high;
        assert_taken(&asked);
        *value = rows[i].low - 1;
        assert_refused(&asked, rows[i].below);
        *value = rows[i].high + 1;
        assert_refused(&asked, rows[i].above);
    }
}

TEST(with_polled_peers_hold_down_and_max_stale_must_cover_the_poll_interval, 30)
{
    struct asked asked;
    for (int i = 0; i < 3; i++) {
        i == 0 ? ask_service(&asked) : i == 1 ? ask_dns(&asked) : ask_list(&asked);
        asked.peers.poll_us = 10 * WEIR_SECOND;
        asked.peers.hold_down_us = 10 * WEIR_SECOND;
        asked.peers.max_stale_us = 20 * WEIR_SECOND; /* less than one wait, which this source does not have */
        assert_taken(&asked);
        asked.peers.hold_down_us--;
        assert_refused(
            &asked, "option peers.hold_down_us must not be less than peers.poll_us, which is 10000000, but is 9999999");
        asked.peers.hold_down_us++;
        asked.peers.max_stale_us--;
        assert_refused(&asked, "option peers.max_stale_us must be 20000000 or more, twice peers.poll_us, not 19999999");
        asked.peers.max_stale_us = WEIR_SECOND - 1;
        assert_refused(&asked, "option peers.max_stale_us must be 1000000 to 2592000000000, not 999999");
        asked.peers.poll_us = WEIR_SECOND / 10;
        asked.peers.max_stale_us = WEIR_SECOND;
        assert_taken(&asked);
    }
    ask_list(&asked); /* defaults count too */
    asked.peers.hold_down_us = 20 * WEIR_SECOND;
    assert_refused(&asked,
                   "option peers.hold_down_us must not be less than peers.poll_us, which is 30000000, but is 20000000");
}

TEST(text_options_of_consul_must_not_be_empty, 30)
{
    static const struct {
        size_t offset;
        const char *says;
    } rows[] = {
        { offsetof(struct weir_consul, address), "option consul.address must not be empty" },
        { offsetof(struct weir_consul, token), "option consul.token must not be empty" },
        { offsetof(struct weir_consul, token_file), "option consul.token_file must not be empty" },
        { offsetof(struct weir_consul, datacenter), "option consul.datacenter must not be empty" },
        { offsetof(struct weir_consul, query), "option consul.query must not be empty" },
        { offsetof(struct weir_consul, ca_file), "option consul.ca_file must not be empty" },
        { offsetof(struct weir_consul, cert_file), "option consul.cert_file must not be empty" },
        { offsetof(struct weir_consul, key_file), "option consul.key_file must not be empty" },
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct asked asked;
        static const char *const empty = "";
        ask_service(&asked);
        memcpy((char *)&asked.consul + rows[i].offset, &empty, sizeof empty);
        assert_refused(&asked, rows[i].says);
    }
}

TEST(defaults_of_peers_and_consul_are_those_of_the_header, 30)
{
    struct asked asked, read;
    ask_service(&asked);
    asked.peers.join = true;
    must_succeed(check(&asked, &read));
    ck_assert(read.options.peers == &read.peers && read.options.consul == &read.consul);
    ck_assert_int_eq(read.peers.poll_us, 0);
    ck_assert_int_eq(read.peers.hold_down_us, 2 * WEIR_SECOND);
    ck_assert_int_eq(read.peers.max_stale_us, 5 * WEIR_MINUTE);
    ck_assert_int_eq(read.peers.ttl_us, 10 * WEIR_SECOND);
    ck_assert_int_eq(read.peers.floor_instances, 0);
    ck_assert_int_eq(read.consul.wait_us, 30 * WEIR_SECOND);
    ck_assert_int_eq(read.consul.timeout_us, 5 * WEIR_SECOND);
    ck_assert(asked.peers.hold_down_us == 0 && asked.consul.wait_us == 0); /* the caller's structs are unchanged */

    asked.consul.wait_us = 8 * WEIR_MINUTE; /* so long without news is no failure */
    must_succeed(check(&asked, &read));
    ck_assert_int_eq(read.peers.max_stale_us, 2 * (510 + 5) * WEIR_SECOND);

    asked.peers.poll_us = 7 * WEIR_MINUTE; /* with such polls Consul has the usual hold-down */
    must_succeed(check(&asked, &read));
    ck_assert_int_eq(read.peers.hold_down_us, 7 * WEIR_MINUTE + WEIR_SECOND);
    ck_assert_int_eq(read.peers.max_stale_us, 28 * WEIR_MINUTE);

    for (int i = 0; i < 2; i++) {
        i ? ask_list(&asked) : ask_dns(&asked);
        must_succeed(check(&asked, &read));
        ck_assert_int_eq(read.peers.poll_us, 30 * WEIR_SECOND);
        ck_assert_int_eq(read.peers.hold_down_us, 31 * WEIR_SECOND);
        ck_assert_int_eq(read.peers.max_stale_us, 5 * WEIR_MINUTE);
        ck_assert_int_eq(read.peers.ttl_us, 0);
    }
}

/* ---- What needs what ---- */

TEST(options_that_use_consul_require_it_and_an_unused_one_is_refused, 30)
{
    struct asked asked;
    ask_service(&asked);
    asked.options.consul = NULL;
    assert_refused(&asked, "option peers.service needs option consul");
    ask_list(&asked);
    asked.options.consul_policies = "weir";
    assert_refused(&asked, "option consul_policies needs option consul");
    asked.options.consul = &asked.consul;
    asked.consul.size = sizeof asked.consul;
    assert_taken(&asked);
    asked.options.consul_policies = "";
    assert_refused(&asked, "option consul_policies must not be empty");
    asked.options.consul_policies = NULL;
    assert_refused(&asked, "option consul is for peers.service and consul_policies: neither is set");
    ask_list(&asked);
    asked.options.follow_policy_file = true;
    assert_refused(&asked, "option follow_policy_file needs option policy_file");
}

#ifndef WEIR_CONSUL
TEST(a_build_without_consul_says_so_and_leaves_nothing_behind, 30)
{
    struct asked asked;
    struct scene scene;
    ask_service(&asked);
    scene_init(&scene, &asked.options);
    scene.log_allowed = true;
    ck_assert_int_eq(weir_open(&asked.options, &scene.limiter), WEIR_EINVAL);
    ck_assert_str_eq(scene.last_line, "option consul is set, but this build of weir has no Consul");
    ck_assert_ptr_null(scene.limiter);
}
#endif

TEST(a_struct_of_another_size_is_refused, 30)
{
    const size_t sizes[] = { 0, sizeof(struct weir_peers) - 1, sizeof(struct weir_peers) + 1, SIZE_MAX };
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        struct asked asked;
        char says[160];
        ask_list(&asked);
        asked.peers.size = sizes[i];
        snprintf(says, sizeof says,
                 "option peers.size is %zu, but this weir " WEIR_VERSION
                 " knows %zu only: set it to sizeof the struct, and"
                 " compile with this version's headers",
                 sizes[i], sizeof(struct weir_peers));
        assert_refused(&asked, says);
    }
}

TEST(a_limiter_opens_without_waiting_for_its_peers_and_closes_before_they_are_known, 30)
{
    struct asked asked;
    ask_list(&asked);
    OPEN_SCENE(scene, &asked.options);
    ck_assert_int_eq(weir_await_ready(scene.limiter, 0), WEIR_ETIME); /* at the soonest a hold-down of 31 s later */
}
