/* test_redis_addresses.c - a host name with several addresses, some of which do not answer. */
#include "redis_place.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

/* ---- A name with addresses that the test chooses ---- */

enum { ADDRESSES_MOST = 4 };

static struct {
    int ports[ADDRESSES_MOST]; /* on 127.0.0.1; a 0 ends the list */
    atomic_bool is_asked_for;  /* set when a thread looks up the name (which is not a number), */
    atomic_int error;          /* if not 0, the lookup fails with this error, */
    atomic_bool waits;         /* and does not finish while this is true */
} name;

int __wrap_getaddrinfo(const char *host, const char *service, const struct addrinfo *hints, struct addrinfo **found);
void __wrap_freeaddrinfo(struct addrinfo *found);

int __wrap_getaddrinfo(const char *host, const char *service, const struct addrinfo *hints, struct addrinfo **found)
{
    const bool is_number = strcmp(host, "127.0.0.1") == 0;
    const int own_port[ADDRESSES_MOST] = { (int)strtol(service, NULL, 10) }, *ports = is_number ? own_port : name.ports;
    must(is_number || strcmp(host, "several.example") == 0, "this name is asked for");
    if (!is_number && name.is_asked_for && (hints->ai_flags & AI_NUMERICHOST))
        return EAI_NONAME;
    while (!is_number && atomic_load(&name.waits))
        sleep_us(1000);
    if (!is_number && name.error != 0)
        return name.error;
    *found = NULL;
    for (int i = 0; i < ADDRESSES_MOST && ports[i] != 0; i++) {
        struct sockaddr_in *address = calloc(1, sizeof *address);
        must(address != NULL, "memory");
        address->sin_family = AF_INET;
        address->sin_port = htons((uint16_t)ports[i]);
        address->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        struct addrinfo **last = found;
        while (*last != NULL)
            last = &(*last)->ai_next;
        *last = calloc(1, sizeof **last);
        must(*last != NULL, "memory");
        **last = (struct addrinfo){
            .ai_family = AF_INET,
            .ai_socktype = hints->ai_socktype,
            .ai_addr = (struct sockaddr *)address,
            .ai_addrlen = sizeof *address,
        };
    }
    return 0;
}

void __wrap_freeaddrinfo(struct addrinfo *found)
{
    while (found != NULL) {
        struct addrinfo *next = found->ai_next;
        free(found->ai_addr);
        free(found);
        found = next;
    }
}

/* Bind a port without listening: it refuses connections while the socket is open. */
static int refuse(int *port)
{
    struct sockaddr_in address = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    socklen_t len = sizeof address;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    must(fd >= 0 && bind(fd, (struct sockaddr *)&address, sizeof address) == 0 &&
             getsockname(fd, (struct sockaddr *)&address, &len) == 0,
         "a port is held");
    *port = ntohs(address.sin_port);
    return fd;
}

static struct weir_options options_by_name(struct place *place)
{
    struct weir_options options = place_options(place, 10 * WEIR_SECOND);
    static char url[96];
    snprintf(url, sizeof url, "redis://%sseveral.example", place->server.login);
    options.redis_url = url;
    return options;
}

/* ---- What a caller sees ---- */

TEST(an_address_that_refuses_connections_is_skipped_without_an_outage, 30)
{
    PLACE(place, false, NULL);
    int fd = refuse(&name.ports[0]);
    name.ports[1] = name.ports[0];
    name.ports[2] = place.server.port;
    struct weir_options options = options_by_name(&place);
    weir *limiter = limiter_of(&options);
    weir_limit *limit = limit_of(limiter, "limit", UNREFILLED);
    ck_assert_int_eq(taken(limit, "key", 1).source, WEIR_BY_REDIS);
    ck_assert_uint_eq(stats_of(limiter).outages, 0);
    ck_assert_msg(place_log_lines(&place) == 0, "%s", place.log);
    weir_close(limiter);
    close(fd);
}

TEST(a_host_is_down_while_all_of_its_addresses_refuse_connections, 30)
{
    struct weir_decision decision;
    PLACE(place, false, NULL);
    int fd = refuse(&name.ports[0]);
    name.ports[1] = place.server.port;
    redis_server_kill(&place.server);
    struct weir_options options = options_by_name(&place);
    weir *limiter = limiter_of(&options);
    weir_limit *limit = limit_of(limiter, "limit", UNREFILLED);
    ck_assert_int_eq(weir_try(limit, weir_key_text("key"), 1, &decision), WEIR_EIO);
    ck_assert_msg(place_logged(&place, "redis cannot be used: cannot connect: Connection refused"), "%s", place.log);
    must(redis_server_restart(&place.server) == 0, place.server.daemon.error);
    recover(limit, "key");
    weir_close(limiter);
    close(fd);
    asker_close(&place.asker);
}

/* ---- Names without an address ---- */

TEST(a_host_name_that_cannot_be_resolved_is_an_outage_until_it_can, 30)
{
    struct weir_decision decision;
    PLACE(place, false, NULL);
    name.is_asked_for = true;
    name.error = EAI_NONAME;
    name.ports[0] = place.server.port;
    struct weir_options options = options_by_name(&place);
    LIMITER(limiter, &options);
    weir_limit *limit = limit_of(limiter, "limit", UNREFILLED);
    ck_assert_int_eq(weir_try(limit, weir_key_text("key"), 1, &decision), WEIR_EIO);
    ck_assert_msg(place_logged(&place, "redis cannot be used: the host's name is not resolved: "), "%s", place.log);
    name.error = 0;
    recover(limit, "key");
}

/* Speak as a primary, its sentinel and a cluster's only node, all on one port. */
static bool speak(void *user, const struct fake_request *request, struct fake_reply *reply)
{
    const char *port = user;
    char says[160];
    if (fake_request_is(request, "SENTINEL")) {
        snprintf(says, sizeof says, "*2\r\n$9\r\n127.0.0.1\r\n$%zu\r\n%s\r\n", strlen(port), port);
        fake_say_text(reply, says);
    } else if (fake_request_is(request, "SUBSCRIBE")) {
        fake_say_text(reply, "*3\r\n$9\r\nsubscribe\r\n$15\r\n+promoted-slave\r\n:1\r\n");
    } else if (fake_request_is(request, "ROLE")) {
        fake_say_text(reply, "*3\r\n$6\r\nmaster\r\n:3129\r\n*0\r\n");
    } else if (fake_request_is(request, "CLUSTER")) {
        snprintf(says, sizeof says, "*1\r\n*3\r\n:0\r\n:16383\r\n*2\r\n$9\r\n127.0.0.1\r\n:%s\r\n", port);
        fake_say_text(reply, says);
    } else if (fake_request_is(request, "EVALSHA")) {
        unsigned char answer[TRUTH_LEN];
        fake_say_bulk(reply, answer, truth_about(request, answer));
    } else {
        return false;
    }
    return true;
}

static bool say_nothing(void *user, const struct fake_request *request, struct fake_reply *reply)
{
    (void)user;
    (void)request;
    (void)reply;
    return true;
}

static struct fake_redis *speaker_start(char port[static 8])
{
    struct fake_redis *fake = fake_redis_start_port(speak, port);
    must(fake != NULL, "a fake starts");
    snprintf(port, 8, "%d", fake_redis_port(fake));
    return fake;
}

/* Check that `url`, with the speaker's port for %s, decides in time; return the log in `place`. */
static void assert_decides(struct place *place, const char *beginning, const char *port, const char *end)
{
    char url[128];
    snprintf(url, sizeof url, "%s%s%s", beginning, port, end);
    place_open_bare(place);
    struct weir_options options = place_options(place, 20 * WEIR_SECOND);
    options.redis_url = url;
    LIMITER(limiter, &options);
    weir_limit *limit = limit_of(limiter, "limit", UNREFILLED);
    ck_assert_int_eq(taken(limit, "key", 1).source, WEIR_BY_REDIS);
}

TEST(a_sentinel_or_node_with_an_unresolvable_name_is_skipped, 30)
{
    static const struct {
        const char *beginning, *end, *says[2]; /* when the name is not found, and when the lookup is late */
    } rows[] = {
        { "redis-sentinel://several.example,127.0.0.1:",
          "/service",
          { "sentinel 1 of 2 cannot be used: the host's name is not resolved: ",
            "sentinel 1 of 2 cannot be used: the host's name is not resolved in time" } },
        { "redis-cluster://several.example,127.0.0.1:", "", { "", "" } }, /* passed over without a log line */
    };
    char port[8];
    struct fake_redis *fake = speaker_start(port);
    name.is_asked_for = true;
    name.ports[0] = atoi(port);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        for (int late = 0; late < 2; late++) {
            CLOSED_BY(place_close) struct place place;
            name.error = late ? 0 : EAI_AGAIN;
            atomic_store(&name.waits, late);
            assert_decides(&place, rows[i].beginning, port, rows[i].end);
            ck_assert_msg(place_logged(&place, rows[i].says[late]), "%s", place.log);
            atomic_store(&name.waits, false);
        }
    }
    fake_redis_stop(fake);
}

TEST(a_cluster_without_a_resolvable_name_is_logged, 30)
{
    static const char *const says[] = {
        "no node of the redis cluster gives a map of the slots: the host's name is not resolved: ",
        "no node of the redis cluster gives a map of the slots: its name is not resolved in time",
    };
    for (int late = 0; late < 2; late++) {
        CLOSED_BY(place_close) struct place place;
        struct weir_decision decision;
        name.is_asked_for = true;
        name.error = late ? 0 : EAI_FAIL;
        atomic_store(&name.waits, late);
        place_open_bare(&place);
        struct weir_options options = place_options(&place, 20 * WEIR_SECOND);
        options.redis_url = "redis-cluster://several.example";
        LIMITER(limiter, &options);
        weir_limit *limit = limit_of(limiter, "limit", UNREFILLED);
        /* The log line may follow the answer, and a failing lookup may be slow. */
        const int64_t until_us = wire_now_us() + 20 * WEIR_SECOND;
        do
            ck_assert_int_eq(weir_try(limit, weir_key_text("key"), 1, &decision), WEIR_EIO);
        while (!place_logged(&place, says[late]) && wire_now_us() < until_us);
        ck_assert_msg(place_logged(&place, says[late]), "%s", place.log);
        atomic_store(&name.waits, false);
    }
}

/* The first address refuses; the second accepts connections and stays silent. */
TEST(a_sentinel_is_tried_at_each_of_its_addresses, 30)
{
    struct place place;
    char port[8];
    struct fake_redis *fake = speaker_start(port), *silent = fake_redis_start_port(say_nothing, NULL);
    int fd = refuse(&name.ports[0]);
    name.ports[1] = fake_redis_port(silent);
    name.ports[2] = atoi(port);
    name.is_asked_for = true;
    assert_decides(&place, "redis-sentinel://several.example/service", "", "");
    ck_assert_msg(!place_logged(&place, "cannot be used"), "%s", place.log);
    ck_assert_int_ge(fake_redis_counts(silent).connections, 1);
    place_close(&place);
    close(fd);
    fake_redis_stop(silent);
    fake_redis_stop(fake);
}

int main(void)
{
    if (redis_server_missing())
        return 77;
    return suite_run(tests());
}
