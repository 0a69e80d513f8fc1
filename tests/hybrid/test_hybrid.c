/* test_hybrid.c - run the backend contract on hybrid mode over Redis. */
#include "backends/hybrid/lease_call.h"
#include "contract/contract.h"
#include "core/limiter/limiter.h"
#include "lab/redis_server.h"

#include <stdio.h>
#include <unistd.h>

static struct redis_server server;

static int open_hybrid(const struct weir_options *options, weir **out)
{
    static int opened;
    char prefix[64];
    struct weir_options own = *options;
    snprintf(prefix, sizeof prefix, "weir:test-%d-%d:", (int)getpid(), opened++);
    own.mode = WEIR_HYBRID;
    own.redis_url = server.url;
    own.redis_prefix = prefix;
    own.on_failure = WEIR_FAIL_ERROR;
    own.timeout_us = 20 * WEIR_SECOND; /* a busy machine must not fail the test */
    own.by_local_clock = own.now_us != NULL;
    return weir_open(&own, out);
}

static const struct contract_backend hybrid = { "hybrid", CONTRACT_ALL, open_hybrid, .sources_vary = true };

int main(void)
{
    if (!redis_server_found())
        return 77;
    if (redis_server_start(&server, REDIS_SERVER_UNIX, NULL) != 0) {
        fprintf(stderr, "%s\n", server.daemon.error);
        return 1;
    }
    contract_add(tests(), &hybrid);
    int status = suite_run(tests());
    redis_server_stop(&server);
    return status;
}
