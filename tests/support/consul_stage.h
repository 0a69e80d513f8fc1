/* consul_stage.h - a source that follows a fake agent, and what it tells the limiter. */
#ifndef WEIR_TESTS_CONSUL_STAGE_H
#define WEIR_TESTS_CONSUL_STAGE_H

#include "consul_json.h"
#include "fake_consul.h"
#include "follow_double.h"
#include "support.h"

#define HEALTH "/v1/health/service/api"
#define KV "/v1/kv/weir/"
#define REGISTER "/v1/agent/service/register"
#define RENEW "/v1/agent/check/pass/service%3Aa"
#define DEREGISTER "/v1/agent/service/deregister/a"

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

/* A fake agent that knows ONLY_A at index 10 under HEALTH; options for `service` "api", `id` "a"; timeouts such that
 * only what hangs gets late. What the environment says of Consul is gone. */
void stage_set(struct consul_stage *stage, enum fake_place place);

/* Start to follow. stage_try() returns the error instead of failing the test. */
void stage_start(struct consul_stage *stage);
int stage_try(struct consul_stage *stage);

/* End what was started, and then the fake. */
void stage_end(struct consul_stage *stage);
void stage_stop_following(struct consul_stage *stage);

/* Of the requests whose target begins so, the one numbered `to` came at least `least_us` after the one numbered
 * `from`. */
void stage_assert_gap(struct consul_stage *stage, const char *target, int from, int to, int64_t least_us);

/* The latest value of CURLOPT_CAPATH: "" for NULL; "not set". */
const char *stage_ca_path(void);

/* Whether the latest list of header lines, which must not have been freed, holds `text`. */
bool stage_headers_hold(const char *text);

/* How often libcurl was prepared in this process. */
int stage_curl_inits(void);

/* A folder of the test's own. */
struct folder {
    char dir[64];
    char path[128]; /* of what was written last */
};
void folder_make(struct folder *folder);
const char *folder_write(struct folder *folder, const char *name, const char *text);
int folder_shell(const char *format, const char *dir); /* a command in which %s is the folder */
void folder_remove(struct folder *folder);

#endif
