/* control.c - the thread that listens at the control socket, and its clients. */
#include "control/control.h"

#include "control/answer.h"
#include "core/ground/arith.h"
#include "core/ground/clock.h"
#include "core/ground/quiet_thread.h"
#include "core/ground/wake_fd.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#define BACKLOG 16
#define FOLDER_TRIES 100     /* to lock the socket's folder, ... */
#define FOLDER_WAIT_US 10000 /* ... with this pause between them */
#define NICENESS 10          /* a tenth of the processor time that a thread that decides would get */

struct client {
    int fd;           /* -1: unused */
    int64_t until_us; /* its end on CLOCK_MONOTONIC */
    bool is_answered; /* the answer is being sent */
    size_t len;       /* of `line` */
    char line[CONTROL_LINE_MAX + 1];
    struct answer answer;
};

/* (c) constant once started; the rest is the thread's */
struct control {
    struct sockaddr_un address; /* (c) */
    dev_t device;               /* (c) of the socket file that this process made, ... */
    ino_t inode;                /* (c) ... which another process may have replaced since */
    pid_t pid;                  /* (c) the process that has the thread */
    pthread_t thread;           /* (c) */
    int wake_fd, listen_fd;     /* (c) wake_fd is rung when the thread must end */
    char *policy_file;          /* (c) NULL: none */
    struct answers_shared shared;
    struct client clients[CONTROL_CLIENTS];
};

/* ---- Clients ---- */

static void client_close(struct client *client)
{
    if (client->fd >= 0)
        close(client->fd);
    client->fd = -1;
}

static void client_open(struct client *client, int fd, int64_t now_us)
{
    client_close(client);
    client->fd = fd;
    client->until_us = now_us + CONTROL_PATIENCE_US;
    client->is_answered = false;
    client->len = 0;
}

/* Send what fits into the socket's buffer now, and end the connection after the last byte. */
static void client_send(struct client *client)
{
    struct answer *answer = &client->answer;
    for (bool more = true; more || answer->len > answer->sent;) {
        more = answer_fill(answer);
        const ssize_t sent = send(client->fd, answer->text + answer->sent, answer->len - answer->sent, MSG_NOSIGNAL);
        if (sent < 0 && (errno == EAGAIN || errno == EINTR))
            return;
        if (sent < 0)
            break;
        answer->sent += (size_t)sent;
    }
    client_close(client);
}

/* Read some of the request. A line that is too long, or has a NUL, ends the connection. */
static void client_read(struct client *client, struct answers_shared *shared)
{
    const ssize_t got = recv(client->fd, client->line + client->len, CONTROL_LINE_MAX - client->len, 0);
    if (got < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (got <= 0) {
        client_close(client);
        return;
    }
    char *end = memchr(client->line + client->len, '\n', (size_t)got);
    client->len += (size_t)got;
    if (!end) {
        if (client->len == CONTROL_LINE_MAX)
            client_close(client);
        return;
    }
    *end = '\0';
    if (strlen(client->line) != (size_t)(end - client->line)) {
        client_close(client);
        return;
    }
    client->is_answered = true;
    answer_begin(&client->answer, shared, client->line);
    client_send(client);
}

/* ---- The thread ---- */

/* Return an unused client, or the one that has been here longest. */
static struct client *control_place(struct control *control)
{
    struct client *oldest = control->clients;
    for (size_t i = 0; i < CONTROL_CLIENTS; i++) {
        struct client *client = &control->clients[i];
        if (client->fd < 0)
            return client;
        if (client->until_us < oldest->until_us)
            oldest = client;
    }
    return oldest;
}

/* Accept those that wait, no more than can be served together. */
static void control_accept(struct control *control, int64_t now_us)
{
    for (size_t i = 0; i < CONTROL_CLIENTS; i++) {
        const int fd = accept4(control->listen_fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd < 0)
            return; /* none waits, or there is no descriptor left: then the next turn tries again */
        client_open(control_place(control), fd, now_us);
    }
}

/* Serve those that are ready, and end those whose time is up. */
static void control_serve(struct control *control, const struct pollfd *polled, int64_t now_us)
{
    for (size_t i = 0; i < CONTROL_CLIENTS; i++) {
        struct client *client = &control->clients[i];
        if (client->fd < 0)
            continue;
        if (polled[i].revents && client->is_answered)
            client_send(client);
        else if (polled[i].revents)
            client_read(client, &control->shared);
        if (client->fd >= 0 && now_us >= client->until_us) /* this thread may be late: what is ready was served */
            client_close(client);
    }
}

/* Return how long to wait for the first client whose time will be up, in milliseconds, rounded up; -1: for ever. */
static int control_wait_ms(const struct control *control, int64_t now_us)
{
    int64_t until_us = INT64_MAX;
    for (size_t i = 0; i < CONTROL_CLIENTS; i++)
        if (control->clients[i].fd >= 0)
            until_us = min_of(until_us, control->clients[i].until_us);
    return until_us == INT64_MAX ? -1 : (int)div_up(max_of(0, until_us - now_us), 1000);
}

static void *control_run(void *user)
{
    struct control *control = user;
    const struct timespec turn = { .tv_nsec = CONTROL_TURN_US * 1000L };
    struct pollfd polled[CONTROL_CLIENTS + 2];
    setpriority(PRIO_PROCESS, (id_t)syscall(SYS_gettid), NICENESS); /* on Linux, of this thread only */
    for (;;) {
        for (size_t i = 0; i < CONTROL_CLIENTS; i++) {
            const struct client *client = &control->clients[i];
            polled[i] = (struct pollfd){ .fd = client->fd, .events = client->is_answered ? POLLOUT : POLLIN };
        }
        polled[CONTROL_CLIENTS] = (struct pollfd){ .fd = control->listen_fd, .events = POLLIN };
        polled[CONTROL_CLIENTS + 1] = (struct pollfd){ .fd = control->wake_fd, .events = POLLIN };
        const int ready = poll(polled, CONTROL_CLIENTS + 2, control_wait_ms(control, clock_monotonic_us()));
        if (ready > 0 && polled[CONTROL_CLIENTS + 1].revents)
            return NULL;
        const int64_t now_us = clock_monotonic_us();
        control_serve(control, polled, now_us);
        if (ready > 0 && polled[CONTROL_CLIENTS].revents)
            control_accept(control, now_us);
        nanosleep(&turn, NULL);
    }
}

/* ---- Beginning and end ---- */

static void control_free(struct control *control)
{
    for (size_t i = 0; i < CONTROL_CLIENTS; i++)
        client_close(&control->clients[i]);
    if (control->listen_fd >= 0)
        close(control->listen_fd);
    if (control->wake_fd >= 0)
        close(control->wake_fd);
    free(control->policy_file);
    free(control->shared.top);
    free(control);
}

/* Lock the folder of the socket, so that of several processes only one at a time looks at the path and changes it.
 * Return the folder's descriptor, whose closing unlocks it. -1: it cannot be opened, or another process kept it locked
 * for a second; then nothing guards the path. */
static int control_lock_folder(const struct sockaddr_un *address)
{
    char folder[sizeof address->sun_path] = ".";
    const char *name = strrchr(address->sun_path, '/');
    const struct timespec pause = { .tv_nsec = FOLDER_WAIT_US * 1000L };
    if (name) {
        const size_t len = name > address->sun_path ? (size_t)(name - address->sun_path) : 1;
        memcpy(folder, address->sun_path, len);
        folder[len] = '\0';
    }
    const int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    for (int tries = 0; fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) != 0; tries++) {
        if (tries == FOLDER_TRIES) {
            close(fd);
            return -1;
        }
        nanosleep(&pause, NULL);
    }
    return fd;
}

/* Remove a socket that a process has left behind. 0, or -1 with errno: EADDRINUSE if a process listens there, EEXIST if
 * another kind of file has this name. */
static int control_remove_stale(const struct sockaddr_un *address)
{
    struct stat found;
    if (lstat(address->sun_path, &found) != 0)
        return 0;
    if (!S_ISSOCK(found.st_mode)) {
        errno = EEXIST;
        return -1;
    }
    const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return -1;
    const bool is_stale = connect(fd, (const struct sockaddr *)address, sizeof *address) != 0 && errno == ECONNREFUSED;
    close(fd);
    if (is_stale)
        return unlink(address->sun_path) == 0 || errno == ENOENT ? 0 : -1;
    errno = EADDRINUSE;
    return -1;
}

/* Listen; 0, or -1 with errno. The mode is set before the socket has a name, so at no moment can others connect. */
static int control_listen_locked(struct control *control)
{
    const char *path = control->address.sun_path;
    struct stat made = { 0 };
    if (control_remove_stale(&control->address) != 0)
        return -1;
    control->listen_fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (control->listen_fd < 0 || fchmod(control->listen_fd, S_IRUSR | S_IWUSR) != 0 ||
        bind(control->listen_fd, (const struct sockaddr *)&control->address, sizeof control->address) != 0)
        return -1;
    if (listen(control->listen_fd, BACKLOG) == 0 && lstat(path, &made) == 0) {
        control->device = made.st_dev;
        control->inode = made.st_ino;
        return 0;
    }
    const int error = errno;
    unlink(path);
    errno = error;
    return -1;
}

static int control_listen(struct control *control)
{
    const int folder = control_lock_folder(&control->address);
    const int failed = control_listen_locked(control), error = errno;
    if (folder >= 0)
        close(folder);
    errno = error;
    return failed;
}

/* Remove the socket, unless another process has put its own in the place. */
static void control_remove(const struct control *control)
{
    const int folder = control_lock_folder(&control->address);
    struct stat found;
    if (lstat(control->address.sun_path, &found) == 0 && found.st_dev == control->device &&
        found.st_ino == control->inode)
        unlink(control->address.sun_path);
    if (folder >= 0)
        close(folder);
}

static struct control *control_make(const struct weir_options *options)
{
    struct control *control = calloc(1, sizeof *control);
    if (!control)
        return NULL;
    control->pid = getpid();
    control->listen_fd = -1;
    control->wake_fd = wake_fd_open();
    control->address.sun_family = AF_UNIX;
    /* options_read() has checked the length */
    memcpy(control->address.sun_path, options->control_socket, strlen(options->control_socket) + 1);
    for (size_t i = 0; i < CONTROL_CLIENTS; i++)
        control->clients[i].fd = -1;
    control->policy_file = options->policy_file ? strdup(options->policy_file) : NULL;
    control->shared.policy_file = control->policy_file;
    control->shared.is_followed = options->follow_policy_file;
    if (options->top_keys > 0)
        control->shared.top = calloc(WEIR_MAX_TOP_KEYS, sizeof(struct weir_top_key));
    if (control->wake_fd >= 0 && !control->policy_file == !options->policy_file &&
        !control->shared.top == (options->top_keys == 0))
        return control;
    control_free(control);
    return NULL;
}

int control_open(const struct weir_options *options, struct control **out)
{
    const struct log log = { options->log, options->user };
    struct control *control = control_make(options);
    if (!control)
        return WEIR_ENOMEM;
    if (control_listen(control) == 0) {
        *out = control;
        return WEIR_OK;
    }
    if (errno == EADDRINUSE) { /* of a service that is about to end, say: a diagnostic stops no other */
        control_free(control);
        log_line(&log, WEIR_LOG_WARNING,
                 "another process listens at control_socket %s; nothing answers there for this one",
                 options->control_socket);
        *out = NULL;
        return WEIR_OK;
    }
    log_line(&log, WEIR_LOG_ERROR, "cannot listen at control_socket %s: %s", options->control_socket, strerror(errno));
    control_free(control);
    return WEIR_EIO;
}

void control_close(struct control *control)
{
    if (control->pid == getpid()) {
        if (control->shared.limiter) {
            wake_fd_ring(control->wake_fd);
            pthread_join(control->thread, NULL);
        }
        control_remove(control);
    }
    control_free(control);
}

void control_start(struct control *control, struct weir *limiter)
{
    control->shared.limiter = limiter;
    const int failed = quiet_thread_start(&control->thread, NULL, control_run, control);
    if (failed) {
        log_line(&limiter->log, WEIR_LOG_ERROR, "nothing answers at control_socket %s: no thread can be started: %s",
                 control->address.sun_path, strerror(failed));
        control->shared.limiter = NULL;
        control_close(control);
        return;
    }
    limiter->control = control;
    limiter->end_control = control_close;
}
