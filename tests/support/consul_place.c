/* consul_place.c - where the tests on a real Consul take place: see consul_place.h. */
#include "consul_place.h"

#include <pthread.h>
#include <stdio.h>
#include <time.h>

struct consul_server server;

static pthread_mutex_t log_lock = PTHREAD_MUTEX_INITIALIZER;
static char log_text[16384];

static void log_line(void *user, enum weir_log_level level, const char *line)
{
    pthread_mutex_lock(&log_lock);
    size_t len = strlen(log_text);
    snprintf(log_text + len, sizeof log_text - len, "%d: %s\n", (int)level, line);
    pthread_mutex_unlock(&log_lock);
}

bool logged(const char *text)
{
    pthread_mutex_lock(&log_lock);
    bool found = strstr(log_text, text) != NULL;
    pthread_mutex_unlock(&log_lock);
    return found;
}

void sleep_ms(int ms)
{
    const struct timespec time = { .tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000L };
    nanosleep(&time, NULL);
}

void never_came(const char *what)
{
    ck_abort_msg("never came: %s\n%s", what, log_text);
}

void agent_start(enum consul_server_acl acl)
{
    if (consul_server_start(&server, acl) != 0)
        ck_abort_msg("%s", server.daemon.error);
}

void asked(int status)
{
    if (status != 0)
        ck_abort_msg("%s", server.daemon.error);
}

void instance_init(struct instance *instance, const char *id, int64_t weight)
{
    *instance = (struct instance){
        .peers = { .size = sizeof instance->peers,
                   .service = "api",
                   .id = id,
                   .join = true,
                   .ttl_us = 3 * WEIR_SECOND,
                   .hold_down_us = 20000 },
        .consul = { .size = sizeof instance->consul,
                    .address = server.address,
                    .token = server.token,
                    .wait_us = 2 * WEIR_SECOND,
                    .timeout_us = WEIR_SECOND },
        .options = WEIR_OPTIONS_INIT,
    };
    instance->options.weight = weight;
    instance->options.peers = &instance->peers;
    instance->options.consul = &instance->consul;
    instance->options.log = log_line;
}

void instance_open(struct instance *instance)
{
    const struct weir_policy policy = policy_of("token_bucket limit=100 period=1s");
    int error = weir_open(&instance->options, &instance->limiter);
    if (error != WEIR_OK)
        ck_abort_msg("%s\n%s", weir_strerror(error), log_text);
    must_succeed(weir_limit_define(instance->limiter, "api", &policy, &instance->limit));
}

void instance_open_ready(struct instance *instance)
{
    instance_open(instance);
    if (weir_await_ready(instance->limiter, PATIENCE_MS * INT64_C(1000)) != WEIR_OK)
        ck_abort_msg("never ready\n%s", log_text);
}

int64_t part_of(const struct instance *instance)
{
    return peeked(instance->limit, "key", 1).limit;
}

bool share_is(const struct instance *instance, int64_t weight, int64_t total)
{
    struct weir_stats stats = stats_of(instance->limiter);
    return stats.share_weight * total == stats.share_total * weight;
}

struct weir_follow_stats followed(const struct instance *instance, enum weir_followed what)
{
    return follow_stats_of(instance->limiter, what);
}

int64_t passing(void)
{
    return consul_server_passing(&server, "api", NULL);
}
