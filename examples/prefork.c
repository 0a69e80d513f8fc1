/* prefork.c - an HTTP server of four worker processes that count in one limit, as the workers of other prefork servers
 * can: nginx's, gunicorn's, PHP-FPM's.
 *
 * The parent opens the limiter and the socket, then it forks. Each worker takes connections and asks the limit about
 * the client's address. A worker that dies, however it dies, is replaced, and the counts go on: they are in memory that
 * all processes share. With a port it serves there until it is interrupted. Without one, it serves on a free port, asks
 * by itself, and kills a worker halfway. It prints
 *
 *     200 200 200 200
 *     a worker is killed and replaced
 *     200 429 429 429
 */
#include <weir/weir.h>

#include <arpa/inet.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum { WORKERS = 4, REQUESTS = 4 };

static weir_limit *open_limit(weir **w)
{
    struct weir_options options = WEIR_OPTIONS_INIT;
    struct weir_policy policy;
    weir_limit *limit;
    options.mode = WEIR_MACHINE; /* without a name for `shared`: this process and those that it forks */
    options.max_keys = 100000;
    if (weir_policy_parse("fixed_window limit=5 period=1h", &policy, NULL, 0) == WEIR_OK &&
        weir_open(&options, w) == WEIR_OK && weir_limit_define(*w, "clients", &policy, &limit) == WEIR_OK)
        return limit;
    fprintf(stderr, "%s\n", weir_last_message());
    exit(1);
}

/* Listen on a port of this machine; 0: a free one, which *port gets. */
static int listen_at(in_port_t *port)
{
    struct sockaddr_in at = { .sin_family = AF_INET, .sin_port = htons(*port), .sin_addr = { htonl(INADDR_LOOPBACK) } };
    socklen_t len = sizeof at;
    const int fd = socket(AF_INET, SOCK_STREAM, 0), yes = 1;
    if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes) != 0 ||
        bind(fd, (struct sockaddr *)&at, sizeof at) != 0 || listen(fd, 128) != 0 ||
        getsockname(fd, (struct sockaddr *)&at, &len) != 0) {
        perror("cannot listen");
        exit(1);
    }
    *port = ntohs(at.sin_port);
    return fd;
}

/* ---- A worker ---- */

static void answer(int fd, weir_limit *limit, const struct sockaddr_in *client)
{
    char request[4096], text[256], address[48];
    struct weir_decision d;
    if (recv(fd, request, sizeof request, 0) <= 0) /* a real server reads up to the end of the head */
        return;
    const int len = weir_key_address((const struct sockaddr *)client, 32, 64, address, sizeof address);
    const int error = weir_try(limit, weir_key(address, (size_t)len), 1, &d);
    if (error) /* such as WEIR_ETIME: another worker was stopped in the middle of a decision */
        snprintf(text, sizeof text, "HTTP/1.1 500 Error\r\nConnection: close\r\nContent-Length: 0\r\n\r\n");
    else if (d.allowed)
        snprintf(text, sizeof text, "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 6\r\n\r\nhello\n");
    else
        snprintf(
            text, sizeof text,
            "HTTP/1.1 429 Too Many Requests\r\nRetry-After: %lld\r\nConnection: close\r\nContent-Length: 0\r\n\r\n",
            (long long)(d.retry_after_us + WEIR_SECOND - 1) / WEIR_SECOND);
    if (send(fd, text, strlen(text), MSG_NOSIGNAL) < 0)
        perror("send");
}

static pid_t start_worker(int listener, weir_limit *limit)
{
    const pid_t pid = fork();
    if (pid != 0)
        return pid;
    prctl(PR_SET_PDEATHSIG, SIGTERM); /* Linux: end with the parent */
    for (;;) {
        struct sockaddr_in client;
        socklen_t len = sizeof client;
        const int fd = accept(listener, (struct sockaddr *)&client, &len);
        if (fd >= 0) {
            answer(fd, limit, &client);
            close(fd);
        }
    }
}

/* ---- The parent ---- */

/* Replace the workers that die, for as long as this process lives. */
static void look_after(int listener, weir_limit *limit, pid_t *workers)
{
    pid_t dead;
    while ((dead = wait(NULL)) > 0)
        for (int i = 0; i < WORKERS; i++)
            if (workers[i] == dead)
                workers[i] = start_worker(listener, limit);
}

/* Ask the server, and print the status of each answer. */
static void ask(in_port_t port)
{
    const struct sockaddr_in at = { .sin_family = AF_INET,
                                    .sin_port = htons(port),
                                    .sin_addr = { htonl(INADDR_LOOPBACK) } };
    for (int i = 0; i < REQUESTS; i++) {
        char head[512] = { 0 };
        const int fd = socket(AF_INET, SOCK_STREAM, 0);
        if (connect(fd, (const struct sockaddr *)&at, sizeof at) != 0 ||
            send(fd, "GET / HTTP/1.1\r\n\r\n", 18, 0) != 18 || recv(fd, head, sizeof head - 1, MSG_WAITALL) < 12)
            perror("the server does not answer");
        close(fd);
        printf("%.3s%s", head + strlen("HTTP/1.1 "), i + 1 < REQUESTS ? " " : "\n");
    }
    fflush(stdout); /* before a fork */
}

int main(int argc, char **argv)
{
    weir *w;
    pid_t workers[WORKERS];
    const long asked = argc > 1 ? strtol(argv[1], NULL, 10) : 0;
    if (argc > 2 || (argc > 1 && (asked < 1 || asked > 65535))) {
        fputs("usage: prefork [PORT]\n", stderr);
        return 2;
    }
    weir_limit *limit = open_limit(&w);
    in_port_t port = (in_port_t)asked;
    const int listener = listen_at(&port);
    for (int i = 0; i < WORKERS; i++)
        workers[i] = start_worker(listener, limit);
    if (argc > 1) {
        look_after(listener, limit, workers);
        return 1;
    }
    ask(port);
    kill(workers[0], SIGKILL);
    waitpid(workers[0], NULL, 0);
    puts("a worker is killed and replaced");
    fflush(stdout);
    workers[0] = start_worker(listener, limit);
    ask(port);
    for (int i = 0; i < WORKERS; i++) {
        kill(workers[i], SIGTERM);
        waitpid(workers[i], NULL, 0);
    }
    weir_close(w);
    return 0;
}
