/* test_redis_addresses.c - a host's name that leads to several addresses, at some of which nobody answers. */
#include "redis_place.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

/* ---- A name that leads where the test says ---- */

enum { ADDRESSES_MOST = 4 };

static struct {
    int ports[ADDRESSES_MOST]; /* of 127.0.0.1, up to a 0 */
} name;

int __wrap_getaddrinfo(const char *host, const char *service, const struct addrinfo *hints, struct addrinfo **found);
void __wrap_freeaddrinfo(struct addrinfo *found);

int __wrap_getaddrinfo(const char *host, const char *service, const struct addrinfo *hints, struct addrinfo **found)
{
    (void)service;
    must(strcmp(host, "several.example") == 0, "this name is asked for");
    *found = NULL;
    for (int i = 0; i < ADDRESSES_MOST && name.ports[i] != 0; i++) {
        struct sockaddr_in *address = calloc(1, sizeof *address);
        must(address != NULL, "memory");
        address->sin_family = AF_INET;
        address->sin_port = htons((uint16_t)name.ports[i]);
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

/* A port that refuses for as long as the socket is held: bound, and nobody listens. */
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

/* ---- What a caller sees of it ---- */

START_TEST(an_address_that_refuses_is_passed_over_and_no_outage)
{
    struct place place;
    place_open(&place, false, NULL);
    int fd = refuse(&name.ports[0]);
    name.ports[1] = name.ports[0];
    name.ports[2] = place.server.port;
    struct weir_options options = options_by_name(&place);
    weir *limiter = limiter_of(&options);
    weir_limit *limit = limit_of(limiter, "limit", UNREFILLED);
    ck_assert_int_eq(taken(limit, "key", 1).source, WEIR_BY_REDIS);
    ck_assert_uint_eq(stats_of(limiter).outages, 0);
    ck_assert_msg(atomic_load(&place.log_lines) == 0, "%s", place.log);
    weir_close(limiter);
    close(fd);
    place_close(&place);
}
END_TEST

START_TEST(a_host_is_out_when_all_its_addresses_refuse_and_back_when_one_answers)
{
    struct place place;
    struct weir_decision decision;
    place_open(&place, false, NULL);
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
    place_close(&place);
}
END_TEST

int main(void)
{
    if (server_missing())
        return 77;
    Suite *suite = suite_create("redis_addresses");
    suite_test(suite, an_address_that_refuses_is_passed_over_and_no_outage, 30);
    suite_test(suite, a_host_is_out_when_all_its_addresses_refuse_and_back_when_one_answers, 30);
    return suite_run(suite);
}
