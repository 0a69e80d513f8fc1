/* tls.c - what TLS costs: distributed mode on one server, over TCP as it is and over TLS. */
#include <pki.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "remote.h"

#define DAY (24L * 3600)
#define GOAL_CALLERS 64
#define GOAL_SPEED 0.75

static const int CALLERS[] = { 1, 8, 64 };
#define CALLERS_LEN 3

enum way { WAY_PLAIN, WAY_TLS, WAYS };
static const char *const WAY_NAMES[WAYS] = { "TCP", "TLS" };

struct secured {
    struct store stores[WAYS]; /* the same server, by its one URL and by the other */
    char ca[64], cert[64], key[64], ca_key[64], folder[32];
};

static bool make_certificates(struct secured *secured)
{
    const struct pki_wish wishes[] = { { "ca", NULL, NULL, -DAY, DAY },
                                       { "server", "ca", "DNS:localhost,IP:127.0.0.1", -DAY, DAY } };
    snprintf(secured->folder, sizeof secured->folder, "/tmp/weir-bench-XXXXXX");
    if (!mkdtemp(secured->folder))
        return false;
    snprintf(secured->ca, sizeof secured->ca, "%s/ca.pem", secured->folder);
    snprintf(secured->ca_key, sizeof secured->ca_key, "%s/ca.key", secured->folder);
    snprintf(secured->cert, sizeof secured->cert, "%s/server.pem", secured->folder);
    snprintf(secured->key, sizeof secured->key, "%s/server.key", secured->folder);
    return pki_issue(secured->folder, &wishes[0]) == 0 && pki_issue(secured->folder, &wishes[1]) == 0;
}

static void remove_certificates(const struct secured *secured)
{
    unlink(secured->ca);
    unlink(secured->ca_key);
    unlink(secured->cert);
    unlink(secured->key);
    rmdir(secured->folder);
}

static bool start_server(struct secured *secured)
{
    static char port[8];
    struct store *plain = &secured->stores[WAY_PLAIN], *tls = &secured->stores[WAY_TLS];
    const char *const config[] = { "--tls-port",
                                   port,
                                   "--tls-cert-file",
                                   secured->cert,
                                   "--tls-key-file",
                                   secured->key,
                                   "--tls-ca-cert-file",
                                   secured->ca,
                                   "--tls-auth-clients",
                                   "no",
                                   NULL };
    snprintf(port, sizeof port, "%d", daemon_port_free());
    measure_unpin_main();
    bool started = redis_server_start(&plain->server, REDIS_SERVER_UNIX_AND_PORT, config) == 0;
    if (started)
        measure_pin_server(plain->server.daemon.pid);
    measure_pin_main();
    if (!started)
        return false;
    tls->server = plain->server; /* another way to the same process */
    snprintf(plain->server.url, sizeof plain->server.url, "%s", plain->server.tcp_url);
    snprintf(tls->server.url, sizeof tls->server.url, "rediss://%slocalhost:%s", tls->server.login, port);
    return true;
}

static void measure(struct bench *bench, struct secured *secured, struct remote *remotes)
{
    for (int i = 0; i < CALLERS_LEN; i++) {
        static struct load loads[WAYS];
        bench_progress("tls: %d callers", CALLERS[i]);
        for (int way = 0; way < WAYS; way++)
            loads[way] = (struct load){ .name = WAY_NAMES[way],
                                        .call = remote_call,
                                        .subject = &remotes[way],
                                        .threads = CALLERS[i],
                                        .step = 1,
                                        .stream = &secured->stores[way].stream };
        load_measure(loads, WAYS, bench->repeats, bench->seconds, &secured->stores[WAY_PLAIN]);
        for (int way = 0; way < WAYS; way++) {
            report_row(bench->report);
            report_count(bench->report, "callers", (uint64_t)CALLERS[i]);
            report_text(bench->report, "how", loads[way].name);
            report_sample(bench->report, "decisions/s", &loads[way].per_second);
            report_sample(bench->report, "server us", &loads[way].server_us);
            report_sample(bench->report, "client us", &loads[way].client_us);
            report_sample(bench->report, "p50 us", &loads[way].p50_us);
            report_sample(bench->report, "p99 us", &loads[way].p99_us);
            if (loads[way].failed > 0)
                report_count(bench->report, "failed", loads[way].failed);
            if (way == WAY_PLAIN)
                continue;
            struct sample speed = sample_ratio(&loads[WAY_TLS].per_second, &loads[WAY_PLAIN].per_second);
            report_sample(bench->report, "times TCP's", &speed);
            if (CALLERS[i] == GOAL_CALLERS)
                report_goal(bench->report, "decisions/s over TLS to those over TCP, callers: 64", &speed, AT_LEAST,
                            GOAL_SPEED);
        }
    }
}

void bench_tls(struct bench *bench)
{
    const struct store *store = store_of(bench, "tls"); /* for its stream of keys */
    static struct secured secured;
    struct remote remotes[WAYS];
    struct weir_options options = remote_options(WEIR_DISTRIBUTED);
    if (!store)
        return;
    secured.stores[WAY_PLAIN] = secured.stores[WAY_TLS] = *store;
    bool has_certificates = make_certificates(&secured);
    if (!has_certificates || !start_server(&secured)) {
        bench_missing(bench, "tls",
                      has_certificates ? secured.stores[WAY_PLAIN].server.daemon.error : "no certificates");
        remove_certificates(&secured);
        return;
    }
    report_section(
        bench->report, "tls",
        "threads that each wait for one decision after the other, over TCP on the loopback and over TLS; as in "
        "callers");
    bool plain_open = remote_open(&remotes[WAY_PLAIN], &secured.stores[WAY_PLAIN], &options, CALLS_LIMIT,
                                  &calls_policies[KIND_TOKEN]);
    options.redis_ca_file = secured.ca;
    bool tls_open = plain_open && remote_open(&remotes[WAY_TLS], &secured.stores[WAY_TLS], &options, CALLS_LIMIT,
                                              &calls_policies[KIND_TOKEN]);
    if (tls_open)
        measure(bench, &secured, remotes);
    else
        remote_report_missing(bench);
    if (tls_open)
        remote_close(&remotes[WAY_TLS]);
    if (plain_open)
        remote_close(&remotes[WAY_PLAIN]);
    report_end_section(bench->report);
    redis_server_stop(&secured.stores[WAY_PLAIN].server);
    remove_certificates(&secured);
}
