/* options_follow.c - checks the options for what is followed, peers and policies, and fills in their defaults. */
#include "core/follow/peers.h"
#include "core/ground/arith.h"
#include "core/limiter/options.h"

#include <arpa/inet.h>
#include <inttypes.h>

#define DEFAULT_POLL_US (30 * WEIR_SECOND)
#define MIN_POLL_US (WEIR_SECOND / 10)
#define DEFAULT_HOLD_DOWN_US (2 * WEIR_SECOND)
#define POLL_TAKES_US WEIR_SECOND /* allowance for a late answer, by default */
#define DEFAULT_MAX_STALE_US (5 * WEIR_MINUTE)
#define DEFAULT_TTL_US (10 * WEIR_SECOND)
#define DEFAULT_WAIT_US (30 * WEIR_SECOND)
#define DEFAULT_CONSUL_TIMEOUT_US (5 * WEIR_SECOND)

static void option_default(int64_t *value, int64_t default_value)
{
    if (*value == 0)
        *value = default_value;
}

static int option_not_empty(const struct log *log, const char *name, const char *text)
{
    return !text || *text ? WEIR_OK : options_refuse(log, "option %s must not be empty", name);
}

/* ---- Consul ---- */

static int consul_read(struct weir_consul *consul, const struct log *log)
{
    const struct {
        const char *name, *text;
    } texts[] = {
        { "consul.address", consul->address },       { "consul.token", consul->token },
        { "consul.token_file", consul->token_file }, { "consul.datacenter", consul->datacenter },
        { "consul.query", consul->query },           { "consul.ca_file", consul->ca_file },
        { "consul.cert_file", consul->cert_file },   { "consul.key_file", consul->key_file },
    };
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++)
        if (option_not_empty(log, texts[i].name, texts[i].text) != WEIR_OK)
            return WEIR_EINVAL;
    option_default(&consul->wait_us, DEFAULT_WAIT_US);
    option_default(&consul->timeout_us, DEFAULT_CONSUL_TIMEOUT_US);
    if (options_range(log, "consul.wait_us", consul->wait_us, WEIR_SECOND, 10 * WEIR_MINUTE) != WEIR_OK)
        return WEIR_EINVAL;
    return options_range(log, "consul.timeout_us", consul->timeout_us, WEIR_SECOND / 100, WEIR_MINUTE);
}

/* ---- Peers ---- */

/* Refuse options whose values peers supply while running. */
static int numbers_check(const struct weir_options *read, const struct weir_peers *peers, const struct log *log)
{
    const char *given = read->instances      ? "instances"
                        : read->rank         ? "rank"
                        : read->total_weight ? "total_weight"
                        : read->weights      ? "weights"
                                             : NULL;
    if (given)
        return options_refuse(log, "option %s must be 0 with option peers, which finds it out", given);
    if (read->weight && !peers->join)
        return options_refuse(log, "option weight must be 0 with option peers, unless peers.join is set");
    return WEIR_OK;
}

static int source_check(const struct weir_options *read, const struct weir_peers *peers, const struct log *log)
{
    if (!!peers->service + !!peers->dns + !!peers->list != 1)
        return options_refuse(log, "exactly one of peers.service, peers.dns and peers.list must be set");
    if (option_not_empty(log, "peers.service", peers->service) != WEIR_OK ||
        option_not_empty(log, "peers.dns", peers->dns) != WEIR_OK)
        return WEIR_EINVAL;
    if (peers->service && !read->consul)
        return options_refuse(log, "option peers.service needs option consul");
    return WEIR_OK;
}

static int id_check(const struct weir_peers *peers, const struct log *log)
{
    if (!peers->id)
        return peers->dns ? WEIR_OK : options_refuse(log, "option peers.id is required, except with peers.dns");
    if (strnlen(peers->id, PEERS_ID_MAX + 1) - 1 >= PEERS_ID_MAX)
        return options_refuse(log, "option peers.id must be 1 to %d bytes long", PEERS_ID_MAX);
    unsigned char address[16];
    if (peers->dns && inet_pton(AF_INET, peers->id, address) != 1 && inet_pton(AF_INET6, peers->id, address) != 1)
        return options_refuse(log, "option peers.id must be an address in digits with peers.dns, not %s", peers->id);
    return WEIR_OK;
}

/* Check the options that only an instance registered in Consul, or one that registers itself, can use. */
static int join_check(const struct weir_peers *peers, const struct log *log)
{
    if (!peers->service && (peers->join || peers->weight_meta))
        return options_refuse(log, "option peers.%s is for peers.service and must be 0 without it",
                              peers->join ? "join" : "weight_meta");
    const char *given = peers->join_address ? "join_address" : peers->join_port ? "join_port" : "ttl_us";
    if (!peers->join && (peers->join_address || peers->join_port || peers->ttl_us))
        return options_refuse(log, "option peers.%s is for peers.join and must be 0 without it", given);
    if (option_not_empty(log, "peers.join_address", peers->join_address) != WEIR_OK ||
        option_not_empty(log, "peers.weight_meta", peers->weight_meta) != WEIR_OK)
        return WEIR_EINVAL;
    return options_range(log, "peers.join_port", peers->join_port, 0, 65535);
}

/* Check the hold-down. A change may become known one poll late: with a shorter hold-down, shares could add up to more
 * than the whole. */
static int hold_down_check(const struct weir_peers *peers, const struct log *log)
{
    if (options_range(log, "peers.hold_down_us", peers->hold_down_us, 1000, 2 * WEIR_HOUR) != WEIR_OK)
        return WEIR_EINVAL;
    if (peers->hold_down_us < peers->poll_us)
        return options_refuse(
            log, "option peers.hold_down_us must not be less than peers.poll_us, which is %" PRId64 ", but is %" PRId64,
            peers->poll_us, peers->hold_down_us);
    return WEIR_OK;
}

/* Check max_stale_us against the time between good answers when nothing changes and nothing fails. `wait_us`: of
 * queries that wait for a change; 0 if there are none. */
static int max_stale_read(struct weir_peers *peers, int64_t wait_us, const struct log *log)
{
    option_default(&peers->max_stale_us, max_of(DEFAULT_MAX_STALE_US, max_of(4 * peers->poll_us, 2 * wait_us)));
    if (options_range(log, "peers.max_stale_us", peers->max_stale_us, WEIR_SECOND, 30 * WEIR_DAY) != WEIR_OK)
        return WEIR_EINVAL;
    if (peers->max_stale_us < wait_us)
        return options_refuse(log,
                              "option peers.max_stale_us must be %" PRId64 " or more, not %" PRId64
                              ": with this consul.wait_us and consul.timeout_us, Consul may take that long to "
                              "report that nothing has changed",
                              wait_us, peers->max_stale_us);
    if (peers->max_stale_us < 2 * peers->poll_us)
        return options_refuse(
            log, "option peers.max_stale_us must be %" PRId64 " or more, twice peers.poll_us, not %" PRId64,
            2 * peers->poll_us, peers->max_stale_us);
    return WEIR_OK;
}

/* Read the times; `consul` is NULL or has been read. */
static int times_read(struct weir_peers *peers, const struct weir_consul *consul, const struct log *log)
{
    const bool tells_changes = peers->service && peers->poll_us == 0;
    const int64_t wait_us = tells_changes ? consul->wait_us + consul->wait_us / 16 + consul->timeout_us : 0;
    if (!peers->service)
        option_default(&peers->poll_us, DEFAULT_POLL_US);
    if (!tells_changes && options_range(log, "peers.poll_us", peers->poll_us, MIN_POLL_US, WEIR_HOUR) != WEIR_OK)
        return WEIR_EINVAL;
    option_default(&peers->hold_down_us, tells_changes ? DEFAULT_HOLD_DOWN_US : peers->poll_us + POLL_TAKES_US);
    if (hold_down_check(peers, log) != WEIR_OK || max_stale_read(peers, wait_us, log) != WEIR_OK)
        return WEIR_EINVAL;
    if (peers->join)
        option_default(&peers->ttl_us, DEFAULT_TTL_US);
    if (peers->join && options_range(log, "peers.ttl_us", peers->ttl_us, WEIR_SECOND, WEIR_HOUR) != WEIR_OK)
        return WEIR_EINVAL;
    if (peers->floor_instances == 0)
        return WEIR_OK;
    return options_range(log, "peers.floor_instances", peers->floor_instances, 2, SHARE_MAX_INSTANCES);
}

static int peers_options_read(struct weir_options *read, struct weir_peers *peers, const struct weir_consul *consul,
                              const struct log *log)
{
    int error = source_check(read, peers, log);
    if (!error)
        error = id_check(peers, log);
    if (!error)
        error = join_check(peers, log);
    if (!error)
        error = times_read(peers, consul, log);
    if (!error)
        error = numbers_check(read, peers, log);
    return error;
}

static int structs_copy(struct weir_options *read, struct weir_peers *peers, struct weir_consul *consul,
                        const struct log *log)
{
    int error = WEIR_OK;
    if (read->peers)
        error = options_copy(log, "peers.", read->peers, peers, sizeof *peers);
    if (!error && read->consul)
        error = options_copy(log, "consul.", read->consul, consul, sizeof *consul);
    if (read->peers)
        read->peers = peers;
    if (read->consul)
        read->consul = consul;
    return error;
}

int options_read_followed(struct weir_options *read, struct weir_peers *peers, struct weir_consul *consul)
{
    const struct log log = { read->log, read->user };
    *peers = (struct weir_peers){ 0 };
    *consul = (struct weir_consul){ 0 };
    int error = structs_copy(read, peers, consul, &log);
    if (!error && read->consul)
        error = consul_read(consul, &log);
    if (!error && read->peers)
        error = peers_options_read(read, peers, consul, &log);
    if (error)
        return error;
    if (read->consul_policies && !read->consul)
        return options_refuse(&log, "option consul_policies needs option consul");
    if (option_not_empty(&log, "consul_policies", read->consul_policies) != WEIR_OK)
        return WEIR_EINVAL;
    if (read->consul && !read->consul_policies && !(read->peers && read->peers->service))
        return options_refuse(&log, "option consul is for peers.service and consul_policies: neither is set");
    if (read->follow_policy_file && !read->policy_file)
        return options_refuse(&log, "option follow_policy_file needs option policy_file");
    return WEIR_OK;
}
