/* consul_stage.h - a source that follows a fake agent, and what it tells the limiter. */
#ifndef WEIR_TESTS_CONSUL_STAGE_H
#define WEIR_TESTS_CONSUL_STAGE_H

#include "fake_consul.h"
#include "follow_double.h"
#include "support.h"

#define HEALTH "/v1/health/service/api"
#define KV "/v1/kv/weir/"
#define REGISTER "/v1/agent/service/register"
#define RENEW "/v1/agent/check/pass/service:a"
#define DEREGISTER "/v1/agent/service/deregister/a"

/* Answers of a real agent (1.8.7), with all that nobody reads. */
#define INSTANCE(id, weights) \
    "{\"Node\":{\"ID\":\"b1\",\"Node\":\"n\",\"Address\":\"10.0.0.1\",\"TaggedAddresses\":{\"lan\":\"10.0.0.1\"},\"Meta\":{}}," \
    "\"Service\":{\"ID\":\"" id "\",\"Service\":\"api\",\"Tags\":[],\"Address\":\"\",\"Meta\":null,\"Port\":0," weights \
    "\"EnableTagOverride\":false,\"Proxy\":{\"MeshGateway\":{},\"Expose\":{}},\"Connect\":{},\"CreateIndex\":20}," \
    "\"Checks\":[{\"Node\":\"n\",\"CheckID\":\"serfHealth\",\"Status\":\"passing\",\"Definition\":{},\"Output\":\"\"}]}"
#define WEIGHS(weight) "\"Weights\":{\"Passing\":" #weight ",\"Warning\":1},"
#define ONLY_A "[" INSTANCE("a", WEIGHS(3)) "]"
#define A_AND_B "[" INSTANCE("b", "") "," INSTANCE("a", WEIGHS(3)) "]"

struct consul_stage {
    struct fake_consul *fake;
    weir *limiter;
    struct weir_options options;
    struct weir_peers peers;
    struct weir_consul consul;
    const char *secret; /* NULL, or what no log line may hold */
    _Atomic int log_lines;
    char last_line[512];
};

/* A fake agent that knows ONLY_A at index 10 under HEALTH; options for `service` "api", `id` "a"; timeouts such that only
 * what hangs gets late. What the environment says of Consul is gone. */
void stage_set(struct consul_stage *stage, enum fake_place place);

/* Start to follow. stage_try() returns the error instead of failing the test. */
void stage_start(struct consul_stage *stage);
int stage_try(struct consul_stage *stage);

/* End what was started, and then the fake. */
void stage_end(struct consul_stage *stage);
void stage_stop_following(struct consul_stage *stage);

#endif
