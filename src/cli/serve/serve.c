/* serve.c - weir serve: a limiter for programs in any language, which speak to it as to Redis.
 *
 * One thread serves all clients. It never waits for Redis: weir_submit() and weir_dispatch() do that.
 */
#include <errno.h>
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
#include "cli/serve/settings.h"

#define OTHER_FILES 64 /* descriptors that are not clients' */
#define DRAIN_US (5 * WEIR_SECOND)
#define TICK_MS 1000
#define EVENTS 256
#define PASSWORD_SIZE 512

struct serve {
    struct settings settings;
    int argc; /* the command line, which is read again with the file of --config */
    char **argv;
    char password[PASSWORD_SIZE];
    struct listener listeners[LISTEN_MAX];
    size_t listener_count;
    struct server server;
    struct watch signals, answers;
    int64_t drain_until_us; /* 0: not draining */
    bool tells_reload; /* SIGHUP has been obeyed: say so at the next tick, when a changed policy file is in force */
};

/* ---- Start ---- */

/* Read the password of those settings into `password`, which stays empty without one. */
static int read_password(const char *path, char password[PASSWORD_SIZE])
{
    password[0] = '\0';
    if (!path)
        return EXIT_OK;
    FILE *file = fopen(path, "re");
    const char *line = file ? fgets(password, PASSWORD_SIZE, file) : NULL;
    const int error = errno;
    if (file)
        fclose(file);
    if (!file) {
        complain("%s: %s", path, strerror(error));
        return EXIT_FAILED;
    }
    const size_t len = line ? strcspn(line, "\r\n") : 0;
    if (len == 0 || len == PASSWORD_SIZE - 1) {
        complain("%s: the first line must have 1 to %d bytes", path, PASSWORD_SIZE - 2);
        return EXIT_FAILED;
    }
    password[len] = '\0';
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

/* Put into force what a running server can change: the password, TLS, and the bounds on clients. If a file cannot be
 * used, nothing changes. */
static int serve_apply(struct serve *serve, const struct settings *settings)
{
    struct server *server = &serve->server;
    char password[PASSWORD_SIZE];
    struct tls_context *tls = NULL;
    if (read_password(settings->password_file, password) != EXIT_OK)
        return EXIT_FAILED;
    if (settings->tls_cert) {
        tls = tls_open(settings->tls_cert, settings->tls_key, settings->tls_ca);
        if (!tls)
            return EXIT_FAILED;
    }
    tls_close(server->tls); /* clients keep theirs */
    server->tls = tls;
    memcpy(serve->password, password, sizeof password);
    server->password = password[0] ? serve->password : NULL;
    server->client_max = clients_for(settings->max_clients);
    server->idle_us = settings->idle_s * WEIR_SECOND;
    return EXIT_OK;
}

/* A server says everything: its operator also wants to know that Redis answers again. */
static void serve_log(void *user, enum weir_log_level level, const char *line)
{
    (void)user, (void)level;
    complain("%s", line);
}

static int open_limiter(struct serve *serve)
{
    const struct settings *settings = &serve->settings;
    struct weir_options options = WEIR_OPTIONS_INIT;
    store_options(&settings->store, &options);
    options.log = serve_log;
    options.timeout_us = 0; /* the library's default: clients wait */
    options.on_failure = settings->store.options.on_failure;
    options.top_keys_in_clear = true; /* clients of this server name the keys themselves */
    serve->server.counts_top_keys = options.top_keys > 0;
    serve->server.bits = settings->bits;
    options.follow_policy_file = options.policy_file != NULL;
    const int error = weir_open(&options, &serve->server.limiter);
    if (error == WEIR_OK)
        return EXIT_OK;
    store_open_failed(error);
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

/* True if a password or TLS would go although other machines can reach the server. */
static bool loses_protection(const struct serve *serve, const struct settings *read)
{
    return (serve->server.password && !read->password_file) || (serve->server.tls && !read->tls_cert) ||
           (!serve->server.tls && read->tls_cert);
}

/* Read the files again. A file that cannot be used changes nothing. */
static void serve_reload(struct serve *serve)
{
    struct settings read;
    bool wants_help = false;
    int result = settings_read(&read, serve->argc, serve->argv, &wants_help);
    if (result == EXIT_OK && loses_protection(serve, &read)) {
        complain("%s: a running server cannot lose its password, nor begin or end TLS; nothing changes", read.config);
        settings_free(&read);
        return;
    }
    if (result == EXIT_OK) {
        settings_compare(&serve->settings, &read);
        result = serve_apply(serve, &read);
    }
    serve->tells_reload = result == EXIT_OK;
    settings_free(&read);
}

/* Say what SIGHUP has done. A policy file is followed and needs no signal; whether it was taken is said all the same. */
static void tell_reload(struct serve *serve)
{
    struct weir_follow_stats stats = { .size = sizeof stats };
    const char *policies = serve->settings.store.options.policy_file;
    serve->tells_reload = false;
    if (!policies || weir_follow_read(serve->server.limiter, WEIR_FOLLOW_POLICY_FILE, &stats) != WEIR_OK)
        complain("SIGHUP: the options have been read again");
    else
        complain(
            "SIGHUP: the options have been read again; %s was loaded %llu times, last %lld s ago, and refused %llu "
            "times",
            policies, (unsigned long long)stats.answers, (long long)(stats.age_us / WEIR_SECOND),
            (unsigned long long)(stats.failures + stats.refused));
}

/* Answer what clients have sent so far, also those that have connected and wait to be accepted, and take no more. */
static void serve_drain(struct serve *serve)
{
    struct server *server = &serve->server;
    notify("STOPPING=1");
    serve->drain_until_us = server->now_us + DRAIN_US;
    server->is_draining = true;
    for (size_t i = 0; i < serve->listener_count; i++) {
        listen_accept_all(server, &serve->listeners[i]);
        listen_close(&serve->listeners[i]);
    }
    for (struct client *client = server->clients; client; client = client->next)
        client_is_due(client);
}

/* SIGHUP reads files again; the other signals end the server. */
static void signals_ready(struct server *server, struct watch *watch, uint32_t events)
{
    struct serve *serve = (struct serve *)((char *)watch - offsetof(struct serve, signals));
    struct signalfd_siginfo signal;
    (void)server, (void)events;
    if (read(watch->fd, &signal, sizeof signal) != sizeof signal || serve->drain_until_us)
        return;
    if (signal.ssi_signo == SIGHUP) {
        serve_reload(serve);
        return;
    }
    serve_drain(serve);
}

static int open_signals(void)
{
    sigset_t ends;
    sigemptyset(&ends);
    sigaddset(&ends, SIGTERM);
    sigaddset(&ends, SIGINT);
    sigaddset(&ends, SIGHUP);
    signal(SIGPIPE, SIG_IGN);
    sigprocmask(SIG_BLOCK, &ends, NULL); /* before the limiter starts threads, which inherit it */
    return signalfd(-1, &ends, SFD_NONBLOCK | SFD_CLOEXEC);
}

static int serve_listen(struct serve *serve)
{
    const struct settings *settings = &serve->settings;
    for (size_t i = 0; i < settings->address_count; i++) {
        struct listener *listener = &serve->listeners[i];
        const struct address *address = &settings->addresses[i];
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

static int serve_start(struct serve *serve)
{
    struct server *server = &serve->server;
    serve->signals = (struct watch){ signals_ready, open_signals() };
    server->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    if (server->epoll_fd < 0 || !watch_add(server, &serve->signals) ||
        !throttle_init(&server->throttle, serve->settings.store.options.mode == WEIR_LOCAL)) {
        complain("cannot start: the system has no memory or descriptors left");
        return EXIT_FAILED;
    }
    int result = serve_apply(serve, &serve->settings);
    if (result == EXIT_OK)
        result = open_limiter(serve);
    if (result != EXIT_OK)
        return result;
    if (store_has_redis(&serve->settings.store)) {
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
            if (serve->tells_reload)
                tell_reload(serve);
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
        tls_end(client->tls);
        if (client->watch.fd >= 0)
            close(client->watch.fd);
        client_free(client);
    }
    tls_close(server->tls);
    throttle_free(&server->throttle);
    close(serve->signals.fd);
    close(server->epoll_fd);
}

static int serve_run(struct serve *serve)
{
    const int code = serve_start(serve);
    if (code == EXIT_OK) {
        fflush(stdout); /* where it listens */
        notify("READY=1");
        serve_loop(serve);
    }
    serve_end(serve);
    return code == EXIT_OK ? output_finish(EXIT_OK, EXIT_FAILED) : code;
}

int command_serve(int argc, char **argv)
{
    static struct serve serve;
    serve = (struct serve){ .argc = argc, .argv = argv };
    bool wants_help = false;
    int code = settings_read(&serve.settings, argc, argv, &wants_help);
    if (code == EXIT_OK && wants_help) {
        fputs(SERVE_HELP, stdout);
        return output_finish(EXIT_OK, EXIT_ERROR);
    }
    if (code == EXIT_OK)
        code = serve_run(&serve);
    settings_free(&serve.settings);
    return code;
}
