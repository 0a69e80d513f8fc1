/* tls.c - what TLS costs: distributed mode on one server, over plain TCP and over TLS. */
#include <pki.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "redis/ways.h"

#define DAY (24L * 3600)
#define GOAL_CALLERS 64
#define GOAL_SPEED 0.75

enum { WAY_PLAIN, WAY_TLS, WAYS };

struct secured {
    struct store stores[WAYS]; /* the same server under its two URLs */
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
    snprintf(port, sizeof port, "%d", daemon_port_free(0));
    measure_unpin_main();
    bool started = redis_server_start(&plain->server, REDIS_SERVER_UNIX_AND_PORT, config) == 0;
    if (started)
        measure_pin_server(plain->server.daemon.pid);
    measure_pin_main();
    if (!started)
        return false;
    tls->server = plain->server; /* the same process, under another URL */
    snprintf(plain->url, sizeof plain->url, "%s", plain->server.tcp_url);
    snprintf(tls->url, sizeof tls->url, "rediss://%slocalhost:%s", tls->server.login, port);
    return true;
}

static void tls_compare(struct bench *bench, const struct load *loads, int way)
{
    struct sample speed = sample_ratio(&loads[way].per_second, &loads[WAY_PLAIN].per_second);
    report_sample(bench->report, "times TCP's", &speed);
    if (loads[way].threads == GOAL_CALLERS)
        report_goal(bench->report, "decisions/s over TLS relative to TCP, callers: 64", &speed, AT_LEAST, GOAL_SPEED);
}

void bench_tls(struct bench *bench)
{
    const struct store *store = store_of(bench, "tls"); /* for its stream of keys */
    static struct secured secured;
    const struct store *const stores[WAYS] = { &secured.stores[WAY_PLAIN], &secured.stores[WAY_TLS] };
    const struct weir_options distributed = remote_options(WEIR_DISTRIBUTED);
    struct weir_options options[WAYS] = { distributed, distributed };
    const struct ways ways = { .section = "tls",
                               .column = "how",
                               .store = stores[WAY_PLAIN],
                               .callers = ways_callers,
                               .n = WAYS,
                               .way = { { .name = "TCP" }, { .name = "TLS" } },
                               .compare = tls_compare };
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
        "threads that wait for each decision before the next, over TCP on the loopback and over TLS; otherwise "
        "as in callers");
    options[WAY_TLS].redis_ca_file = secured.ca;
    ways_measure_distributed(bench, &ways, stores, options);
    report_end_section(bench->report);
    redis_server_stop(&secured.stores[WAY_PLAIN].server);
    remove_certificates(&secured);
}
