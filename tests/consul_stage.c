/* consul_stage.c - a source that follows a fake agent: see consul_stage.h. */
#include "consul_stage.h"

#include "backends/consul.h"

#include <stdio.h>
#include <stdlib.h>

static void hear(void *user, enum weir_log_level level, const char *line)
{
    struct consul_stage *stage = user;
    (void)level;
    ck_assert_msg(stage->secret == NULL || strstr(line, stage->secret) == NULL, "a secret is logged: %s", line);
    snprintf(stage->last_line, sizeof stage->last_line, "%s", line);
    stage->log_lines++;
}

void stage_set(struct consul_stage *stage, enum fake_place place)
{
    static const char *const variables[] = { "CONSUL_HTTP_ADDR", "CONSUL_HTTP_TOKEN",  "CONSUL_HTTP_TOKEN_FILE",
                                             "CONSUL_CACERT",    "CONSUL_CLIENT_CERT", "CONSUL_CLIENT_KEY" };
    for (size_t i = 0; i < sizeof variables / sizeof variables[0]; i++)
        unsetenv(variables[i]);
    told_reset();
    *stage = (struct consul_stage){ .fake = fake_consul_start(place) };
    ck_assert_ptr_nonnull(stage->fake);
    fake_consul_page(stage->fake, HEALTH, 200, 10, ONLY_A);
    stage->consul = (struct weir_consul){ .size = sizeof stage->consul,
                                          .address = fake_consul_address(stage->fake),
                                          .wait_us = 10 * WEIR_MINUTE,
                                          .timeout_us = 20 * WEIR_SECOND };
    stage->peers = (struct weir_peers){ .size = sizeof stage->peers, .service = "api", .id = "a" };
    struct weir_options options = WEIR_OPTIONS_INIT;
    stage->options = options;
    stage->options.peers = &stage->peers;
    stage->options.consul = &stage->consul;
    stage->options.log = hear;
    stage->options.user = stage;
}

int stage_try(struct consul_stage *stage)
{
    struct weir_options plain = WEIR_OPTIONS_INIT;
    plain.log = stage->options.log;
    plain.user = stage;
    must_succeed(weir_open(&plain, &stage->limiter));
    return consul_follow(&stage->options, stage->limiter);
}

void stage_start(struct consul_stage *stage)
{
    must_succeed(stage_try(stage));
    ck_assert_ptr_nonnull(told_follower());
}

void stage_stop_following(struct consul_stage *stage)
{
    struct follower *follower = told_follower();
    if (stage->limiter == NULL)
        return;
    if (follower != NULL)
        follower->end(follower);
    weir_close(stage->limiter);
    stage->limiter = NULL;
}

void stage_end(struct consul_stage *stage)
{
    stage_stop_following(stage);
    fake_consul_stop(stage->fake);
}
