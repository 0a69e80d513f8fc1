/* serve.c - weir serve: a limiter for programs in any language, which speak to it as to Redis.
 *
 * One thread serves all clients. It never waits for Redis with a take: weir_submit() and weir_dispatch() do that. A
 * group, a peek and a reset have no asynchronous form and may hold it up for timeout_us.
 */
#include <errno.h>
#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <weir/weir.h>

#include "cli/cli.h"
#include "cli/serve/listen.h"
#include "cli/serve/notify.h"
#include "cli/store.h"

#define DEFAULT_LISTEN "127.0.0.1:7379"
#define DEFAULT_CLIENTS 10000
#define CLIENTS_MAX 1000000
#define OTHER_FILES 64 /* descriptors that are not clients' */
#define DRAIN_US (5 * WEIR_SECOND)
#define TICK_MS 1000
#define EVENTS 256
#define PASSWORD_SIZE 512

const char SERVE_HELP[] =
    "Usage: weir serve [-f FILE] [--listen HOST:PORT] [--unix PATH] [OPTION]...\n"
    "\n"
    "Serve limits to programs in any language that has a Redis client. Commands:\n"
    "\n"
    "  CL.THROTTLE key max_burst count period [quantity]   as redis-cell\n"
    "  WEIR.TRY limit key [cost]       take permits of a limit of FILE\n"
    "  WEIR.TRYALL limit key cost ...  of several, all or nothing\n"
    "  WEIR.PEEK limit key [cost]      look without taking\n"
    "  WEIR.RESET limit key            make the key fresh\n"
    "  WEIR.CHARGE limit key [cost]    charge what has been used already\n"
    "  WEIR.RESERVE limit key [cost]   take permits that WEIR.SETTLE corrects\n"
    "  WEIR.SETTLE limit key permits at actual\n"
    "  WEIR.STATS                      counters in the Prometheus text format\n"
    "  WEIR.TOP [count]                the keys that are denied most\n"
    "\n"
    "  -f, --policies FILE    the limits; read again whenever the file changes\n"
    "      --listen HOST:PORT where to listen (default: " DEFAULT_LISTEN "); may be given again. Port 0 means any.\n"
    "                         An address that other machines reach needs --password-file\n"
    "      --unix PATH        listen on a Unix socket; may be given again\n"
    "      --password-file FILE\n"
    "                         clients must log in (AUTH) with the first line of FILE\n"
    "      --max-clients N    connections at a time (default: 10000)\n"
    "      --max-keys N       keys in memory (default: 1000000)\n"
    "      --top-keys N       count the N keys that are denied most, for WEIR.TOP: 1 to 1024 (default: none)\n"
    "      --metrics HOST:PORT\n"
    "                         serve the counters to Prometheus servers, by HTTP at /metrics\n"
    "      --on-failure HOW   local (default), open, closed or error: the answer while Redis is away\n"
    "      --mode MODE        local (default), distributed or hybrid\n"
    "      --redis URL        where Redis is, as for weir try\n"
    "      --redis-password-file FILE\n"
    "                         a file whose first line is the password; without it, the environment variable\n"
    "                         WEIR_REDIS_PASSWORD\n"
    "      --redis-prefix PREFIX\n"
    "                         the beginning of all keys in Redis (default: weir:)\n"
    "      --redis-replicas N how many replicas must acknowledge a charge, 0 to 16 (default: 0)\n"
    "      --instances N      hybrid: how many servers share the limits (default: 1)\n"
    "      --lease-life TIME  hybrid: no lease lives longer\n"
    "      --lease-excess N   hybrid: leases may exceed a token bucket by N percent of its burst (default: 5)\n"
    "      --lease-max N      hybrid: the most permits of a key that a server leases in advance\n"
    "      --strict           hybrid: never exceed a limit\n"
    "  -h, --help             print this text\n"
    "\n"
    "Exit status: 0 ended by SIGTERM or SIGINT, 1 failed, 2 wrong usage.\n";

enum option_code { LISTEN = 256, UNIX, PASSWORD, MAX_CLIENTS, MAX_KEYS, TOP_KEYS, METRICS, ON_FAILURE };

enum address_kind { ADDRESS_TCP, ADDRESS_UNIX, ADDRESS_METRICS };

struct address {
    const char *text;
    enum address_kind kind;
};

struct serve {
    struct store store;
    const char *policies, *password_file;
    char password[PASSWORD_SIZE];
    int64_t max_clients, max_keys, top_keys;
    enum weir_on_failure on_failure;
    struct address addresses[LISTEN_MAX];
    size_t address_count;
    struct listener listeners[LISTEN_MAX];
    size_t listener_count;
    struct server server;
    struct watch signals, answers;
    int64_t drain_until_us; /* 0: not draining */
};

/* ---- Options ---- */

static int add_address(struct serve *serve, const char *text, enum address_kind kind)
{
    if (serve->address_count == LISTEN_MAX)
        return usage_error("serve", "at most %d addresses can be listened on", LISTEN_MAX);
    serve->addresses[serve->address_count++] = (struct address){ text, kind };
    return EXIT_OK;
}

static int read_number(const char *name, const char *value, int64_t most, int64_t *out)
{
    if (span_number(span_of(value), out) && *out >= 1 && *out <= most)
        return EXIT_OK;
    return usage_error("serve", "%s '%s' is not a whole number from 1 to %lld", name, value, (long long)most);
}

static int read_on_failure(struct serve *serve, const char *value)
{
    static const char *const names[] = { [WEIR_FAIL_LOCAL] = "local",
                                         [WEIR_FAIL_OPEN] = "open",
                                         [WEIR_FAIL_CLOSED] = "closed",
                                         [WEIR_FAIL_ERROR] = "error" };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(value, names[i]) == 0) {
            serve->on_failure = (enum weir_on_failure)i;
            return EXIT_OK;
        }
    return usage_error("serve", "--on-failure '%s' is not one of local, open, closed, error", value);
}

static int serve_read_option(struct serve *serve, int code, const char *value)
{
    switch (code) {
    case 'f': serve->policies = value; return EXIT_OK;
    case LISTEN: return add_address(serve, value, ADDRESS_TCP);
    case UNIX: return add_address(serve, value, ADDRESS_UNIX);
    case METRICS: return add_address(serve, value, ADDRESS_METRICS);
    case PASSWORD: serve->password_file = value; return EXIT_OK;
    case MAX_CLIENTS: return read_number("--max-clients", value, CLIENTS_MAX, &serve->max_clients);
    case MAX_KEYS: return read_number("--max-keys", value, INT64_C(1) << 31, &serve->max_keys);
    case TOP_KEYS: return read_number("--top-keys", value, WEIR_MAX_TOP_KEYS, &serve->top_keys);
    case ON_FAILURE: return read_on_failure(serve, value);
    default: return store_read_option(&serve->store, "serve", code, value);
    }
}

static int serve_read_options(struct serve *serve, int argc, char **argv, bool *wants_help)
{
    static const struct option options[] = {
        { "policies", required_argument, NULL, 'f' },
        { "listen", required_argument, NULL, LISTEN },
        { "unix", required_argument, NULL, UNIX },
        { "password-file", required_argument, NULL, PASSWORD },
        { "max-clients", required_argument, NULL, MAX_CLIENTS },
        { "max-keys", required_argument, NULL, MAX_KEYS },
        { "top-keys", required_argument, NULL, TOP_KEYS },
        { "metrics", required_argument, NULL, METRICS },
        { "on-failure", required_argument, NULL, ON_FAILURE },
        { "mode", required_argument, NULL, STORE_MODE },
        { "redis", required_argument, NULL, STORE_REDIS },
        { "redis-password-file", required_argument, NULL, STORE_PASSWORD_FILE },
        { "redis-prefix", required_argument, NULL, STORE_PREFIX },
        { "redis-replicas", required_argument, NULL, STORE_REPLICAS },
        { "instances", required_argument, NULL, STORE_INSTANCES },
        { "lease-life", required_argument, NULL, STORE_LEASE_LIFE },
        { "lease-excess", required_argument, NULL, STORE_LEASE_EXCESS },
        { "lease-max", required_argument, NULL, STORE_LEASE_MAX },
        { "strict", no_argument, NULL, STORE_STRICT },
        { "help", no_argument, NULL, 'h' },
        { NULL, 0, NULL, 0 },
    };
    int code;
    opterr = 0;
    while ((code = getopt_long(argc, argv, ":f:h", options, NULL)) != -1) {
        if (code == '?' || code == ':')
            return option_error("serve", code, argv);
        const int result = code == 'h' ? EXIT_OK : serve_read_option(serve, code, optarg);
        *wants_help = *wants_help || code == 'h';
        if (result != EXIT_OK)
            return result;
    }
    if (optind < argc)
        return usage_error("serve", "unexpected argument '%s'", argv[optind]);
    bool has_address = false;
    for (size_t i = 0; i < serve->address_count; i++)
        has_address = has_address || serve->addresses[i].kind != ADDRESS_METRICS;
    if (!has_address && add_address(serve, DEFAULT_LISTEN, ADDRESS_TCP) != EXIT_OK)
        return EXIT_ERROR;
    return *wants_help ? EXIT_OK : store_check(&serve->store, "serve");
}

/* ---- Start ---- */

static int read_password(struct serve *serve)
{
    if (!serve->password_file)
        return EXIT_OK;
    FILE *file = fopen(serve->password_file, "re");
    const char *line = file ? fgets(serve->password, sizeof serve->password, file) : NULL;
    const int error = errno;
    if (file)
        fclose(file);
    if (!file) {
        complain("%s: %s", serve->password_file, strerror(error));
        return EXIT_FAILED;
    }
    const size_t len = line ? strcspn(line, "\r\n") : 0;
    if (len == 0 || len == sizeof serve->password - 1) {
        complain("%s: the first line must have 1 to %zu bytes", serve->password_file, sizeof serve->password - 2);
        return EXIT_FAILED;
    }
    serve->password[len] = '\0';
    serve->server.password = serve->password;
    return EXIT_OK;
}

static int open_limiter(struct serve *serve)
{
    struct weir_options options = WEIR_OPTIONS_INIT;
    store_options(&serve->store, &options);
    options.timeout_us = 0; /* the library's default: clients wait */
    options.on_failure = serve->on_failure;
    options.max_keys = serve->max_keys;
    options.top_keys = serve->top_keys;
    options.top_keys_in_clear = true; /* clients of this server name the keys themselves */
    serve->server.counts_top_keys = serve->top_keys > 0;
    options.policy_file = serve->policies;
    options.follow_policy_file = serve->policies != NULL;
    if (weir_open(&options, &serve->server.limiter) == WEIR_OK)
        return EXIT_OK;
    complain("cannot open a limiter: %s", weir_last_message());
    return EXIT_FAILED;
}

static bool watch_add(struct server *server, struct watch *watch)
{
    struct epoll_event event = { .events = EPOLLIN, .data.ptr = watch };
    return watch->fd >= 0 && epoll_ctl(server->epoll_fd, EPOLL_CTL_ADD, watch->fd, &event) == 0;
}

static void answers_ready(struct server *server, struct watch *watch, uint32_t events)
{
    (void)watch, (void)events;
    weir_dispatch(server->limiter);
}

/* End what the clients have sent so far, and take no more. */
static void signals_ready(struct server *server, struct watch *watch, uint32_t events)
{
    struct serve *serve = (struct serve *)((char *)watch - offsetof(struct serve, signals));
    struct signalfd_siginfo signal;
    (void)events;
    if (read(watch->fd, &signal, sizeof signal) != sizeof signal || serve->drain_until_us)
        return;
    notify("STOPPING=1");
    serve->drain_until_us = server->now_us + DRAIN_US;
    for (size_t i = 0; i < serve->listener_count; i++)
        listen_close(&serve->listeners[i]);
    for (struct client *client = server->clients; client; client = client->next) {
        client->is_at_end = true;
        client_is_due(client);
    }
}

static int open_signals(void)
{
    sigset_t ends;
    sigemptyset(&ends);
    sigaddset(&ends, SIGTERM);
    sigaddset(&ends, SIGINT);
    signal(SIGPIPE, SIG_IGN);
    sigprocmask(SIG_BLOCK, &ends, NULL); /* before the limiter starts threads, which inherit it */
    return signalfd(-1, &ends, SFD_NONBLOCK | SFD_CLOEXEC);
}

static int serve_listen(struct serve *serve)
{
    for (size_t i = 0; i < serve->address_count; i++) {
        struct listener *listener = &serve->listeners[i];
        const struct address *address = &serve->addresses[i];
        const int result = address->kind == ADDRESS_UNIX ? listen_unix(address->text, listener)
                           : address->kind == ADDRESS_METRICS
                               ? listen_metrics(address->text, listener)
                               : listen_tcp(address->text, serve->server.password, listener);
        if (result != EXIT_OK)
            return result;
        serve->listener_count++;
        if (!watch_add(&serve->server, &listener->watch)) {
            complain("cannot listen on '%s': %s", address->text, strerror(errno));
            return EXIT_FAILED;
        }
    }
    return EXIT_OK;
}

/* As many clients as there may be descriptors for. */
static size_t clients_for(int64_t wanted)
{
    struct rlimit files = { 0, 0 };
    getrlimit(RLIMIT_NOFILE, &files);
    const rlim_t room = files.rlim_cur > 2 * OTHER_FILES ? files.rlim_cur - OTHER_FILES : OTHER_FILES;
    return room < (rlim_t)wanted ? (size_t)room : (size_t)wanted;
}

static int serve_start(struct serve *serve)
{
    struct server *server = &serve->server;
    serve->signals = (struct watch){ signals_ready, open_signals() };
    server->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    server->client_max = clients_for(serve->max_clients);
    if (server->epoll_fd < 0 || !watch_add(server, &serve->signals) || !throttle_init(&server->throttle)) {
        complain("cannot start: the system has no memory or descriptors left");
        return EXIT_FAILED;
    }
    int result = read_password(serve);
    if (result == EXIT_OK)
        result = open_limiter(serve);
    if (result != EXIT_OK)
        return result;
    if (serve->store.mode != WEIR_LOCAL) {
        serve->answers = (struct watch){ answers_ready, weir_event_fd(server->limiter) };
        if (!watch_add(server, &serve->answers)) {
            complain("cannot start: the system has no descriptors left");
            return EXIT_FAILED;
        }
    }
    return serve_listen(serve);
}

/* ---- The loop ---- */

static int64_t monotonic_us(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * WEIR_SECOND + now.tv_nsec / 1000;
}

/* Serve the clients that are due, each once. Clients that become due during this come in the next turn. */
static void serve_due(struct server *server)
{
    struct client *client = server->due;
    server->due = NULL;
    while (client) {
        struct client *next = client->next_due;
        client->is_due = false;
        client_serve(client);
        client = next;
    }
}

static void serve_loop(struct serve *serve)
{
    struct server *server = &serve->server;
    struct epoll_event events[EVENTS];
    int64_t ticked_us = monotonic_us();
    while (!serve->drain_until_us || (server->clients && server->now_us < serve->drain_until_us)) {
        const int count = epoll_wait(server->epoll_fd, events, EVENTS, server->due ? 0 : TICK_MS);
        server->now_us = monotonic_us();
        for (int i = 0; i < count; i++) {
            struct watch *watch = events[i].data.ptr;
            watch->ready(server, watch, events[i].events);
        }
        if (server->now_us - ticked_us >= TICK_MS * 1000) {
            ticked_us = server->now_us;
            for (struct client *client = server->clients; client; client = client->next)
                client_check_patience(client);
        }
        serve_due(server);
    }
}

static void serve_end(struct serve *serve)
{
    struct server *server = &serve->server;
    for (size_t i = 0; i < serve->listener_count; i++)
        listen_close(&serve->listeners[i]);
    weir_close(server->limiter); /* completes what still waits */
    while (server->clients) {
        struct client *client = server->clients;
        client_collect(client);
        if (client->watch.fd >= 0)
            close(client->watch.fd);
        client_free(client);
    }
    throttle_free(&server->throttle);
    close(serve->signals.fd);
    close(server->epoll_fd);
}

int command_serve(int argc, char **argv)
{
    static struct serve serve;
    serve = (struct serve){ .max_clients = DEFAULT_CLIENTS };
    bool wants_help = false;
    int code = serve_read_options(&serve, argc, argv, &wants_help);
    if (code == EXIT_OK && wants_help) {
        fputs(SERVE_HELP, stdout);
        return output_finish(EXIT_OK, EXIT_ERROR);
    }
    if (code != EXIT_OK)
        return code;
    code = serve_start(&serve);
    if (code == EXIT_OK) {
        fflush(stdout); /* where it listens */
        notify("READY=1");
        serve_loop(&serve);
    }
    serve_end(&serve);
    return code == EXIT_OK ? output_finish(EXIT_OK, EXIT_FAILED) : code;
}
