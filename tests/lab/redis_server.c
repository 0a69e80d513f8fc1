/* redis_server.c - a private Redis server for a test or a benchmark: see redis_server.h. */
#include "redis_server.h"

#include "asker.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { START_MOST_MS = 20000, STOP_MOST_MS = 5000, PORT_TRIES = 5 };

static const char debian_server[] = "/usr/bin/redis-check-rdb";

static void wait_ms(int ms)
{
    const struct timespec time = { .tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000L };
    nanosleep(&time, NULL);
}

__attribute__((format(printf, 2, 3))) static int fail(struct redis_server *server, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    vsnprintf(server->error, sizeof server->error, format, list);
    va_end(list);
    return -1;
}

/* ---- Which server ---- */

static const char *wanted_command(void)
{
    const char *command = getenv("WEIR_TEST_REDIS_SERVER");
    return command != NULL && *command != '\0' ? command : NULL;
}

static bool in_path(const char *program)
{
    char path[512];
    for (const char *folder = getenv("PATH"); folder != NULL && *folder != '\0';) {
        int len = (int)strcspn(folder, ":");
        if (snprintf(path, sizeof path, "%.*s/%s", len, folder, program) < (int)sizeof path && access(path, X_OK) == 0)
            return true;
        folder += len;
        folder += *folder == ':';
    }
    return false;
}

bool redis_server_found(void)
{
    return wanted_command() != NULL || in_path("redis-server") || access(debian_server, X_OK) == 0;
}

/* Split the wanted command into words; the number of them, 0 if there is none. */
static size_t command_words(struct redis_server *server)
{
    size_t n = 0;
    const char *command = wanted_command();
    snprintf(server->command, sizeof server->command, "%s", command != NULL ? command : "");
    for (char *rest = server->command, *word; n < REDIS_SERVER_WORDS_MOST / 2 && (word = strsep(&rest, " ")) != NULL;)
        if (*word != '\0')
            server->words[n++] = word;
    return n;
}

/* ---- Its folder, port and command line ---- */

static int remove_entry(const char *path, const struct stat *about, int type, struct FTW *place)
{
    (void)about, (void)type, (void)place;
    return remove(path);
}

static void folder_remove(struct redis_server *server)
{
    if (server->dir[0] != '\0')
        nftw(server->dir, remove_entry, 8, FTW_DEPTH | FTW_PHYS);
    server->dir[0] = '\0';
    if (server->watch_fd > 0)
        close(server->watch_fd);
    server->watch_fd = 0;
}

/* A process that removes the folder once whoever started the server is gone, however that went: the pipe is then at its
 * end. It is in no group of ours, for Check kills a test's whole group, and nobody's child. Without it all
 * works as well, but the folder may stay. */
static void folder_watch(struct redis_server *server)
{
    int ends[2], nothing;
    char byte;
    if (pipe2(ends, O_CLOEXEC) != 0)
        return;
    pid_t child = fork();
    if (child == 0) {
        if (setsid() < 0 || fork() != 0)
            _exit(0);
        nothing = open("/dev/null", O_RDWR);
        for (int fd = 0; fd < 3; fd++)
            dup2(nothing, fd);
        if (dup2(ends[0], 3) != 3 || close_range(4, ~0U, 0) != 0)
            _exit(0);
        while (read(3, &byte, 1) < 0 && errno == EINTR)
            continue;
        wait_ms(100); /* the server dies of the same end */
        folder_remove(server);
        _exit(0);
    }
    close(ends[0]);
    if (child > 0)
        waitpid(child, NULL, 0);
    server->watch_fd = ends[1];
}

static int folder_make(struct redis_server *server)
{
    const char *parent = getenv("TMPDIR");
    if (parent == NULL || *parent == '\0')
        parent = "/tmp";
    if (snprintf(server->dir, sizeof server->dir, "%s/weir-redis-XXXXXX", parent) >= (int)sizeof server->dir)
        return fail(server, "TMPDIR is too long for a socket's path: %s", parent);
    if (mkdtemp(server->dir) == NULL) {
        server->dir[0] = '\0';
        return fail(server, "no folder in %s: %s", parent, strerror(errno));
    }
    snprintf(server->socket, sizeof server->socket, "%s/redis.sock", server->dir);
    snprintf(server->url, sizeof server->url, "unix://%s", server->socket);
    folder_watch(server);
    return 0;
}

/* One that was free a moment ago: another process may be quicker, so the caller tries again. */
static int port_free(void)
{
    struct sockaddr_in address = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    socklen_t len = sizeof address;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    bool got = fd >= 0 && bind(fd, (struct sockaddr *)&address, len) == 0 &&
               getsockname(fd, (struct sockaddr *)&address, &len) == 0;
    if (fd >= 0)
        close(fd);
    return got ? ntohs(address.sin_port) : 0;
}

static int command_line(struct redis_server *server, const char *const *config)
{
    static char port_word[] = "--port", bind_word[] = "--bind", loopback[] = "127.0.0.1", save_word[] = "--save";
    static char socket_word[] = "--unixsocket", dir_word[] = "--dir", none[] = "", program[] = "redis-server";
    static char no_port[] = "0";
    size_t n = command_words(server);
    if (n == 0)
        server->words[n++] = program;
    char *fixed[] = { port_word,   server->port != 0 ? strrchr(server->tcp_url, ':') + 1 : no_port,
                      bind_word,   loopback,
                      save_word,   none,
                      socket_word, server->socket,
                      dir_word,    server->dir };
    for (size_t i = 0; i < sizeof fixed / sizeof fixed[0]; i++)
        server->words[n++] = fixed[i];
    for (; config != NULL && *config != NULL; config++) {
        if (n == REDIS_SERVER_WORDS_MOST)
            return fail(server, "more than %d words on its command line", REDIS_SERVER_WORDS_MOST);
        server->words[n++] = (char *)(uintptr_t)*config; /* execv() does not write to them */
    }
    server->words[n] = NULL;
    return 0;
}

/* ---- Its process ---- */

static void become_server(const struct redis_server *server, pid_t parent)
{
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    signal(SIGPIPE, SIG_DFL);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent || chdir(server->dir) != 0)
        _exit(126);
    int log = open("log", O_WRONLY | O_CREAT | O_APPEND, 0600), input = open("/dev/null", O_RDONLY);
    if (log < 0 || input < 0 || dup2(input, 0) < 0 || dup2(log, 1) < 0 || dup2(log, 2) < 0)
        _exit(126);
    execvp(server->words[0], server->words);
    if (wanted_command() == NULL)
        execv(debian_server, server->words);
    _exit(127);
}

static void last_log_line(const struct redis_server *server, char *line, size_t size)
{
    char path[sizeof server->dir + 8], read_line[256];
    snprintf(path, sizeof path, "%s/log", server->dir);
    FILE *log = fopen(path, "re");
    snprintf(line, size, "its log is empty");
    while (log != NULL && fgets(read_line, sizeof read_line, log) != NULL)
        if (read_line[0] != '\n')
            snprintf(line, size, "%.*s", (int)strcspn(read_line, "\n"), read_line);
    if (log != NULL)
        fclose(log);
}

/* Whether it answers, and not that it is still loading. */
static bool answers(const struct redis_server *server)
{
    struct asker asker;
    char reply[64];
    bool ready = asker_open(&asker, server->socket) == 0 && asker_ask(&asker, reply, sizeof reply, "PING", NULL) > 0 &&
                 strncmp(reply, "-LOADING", 8) != 0;
    asker_close(&asker);
    return ready;
}

static int run(struct redis_server *server)
{
    int status;
    char line[256];
    pid_t parent = getpid(), pid = fork();
    if (pid < 0)
        return fail(server, "fork: %s", strerror(errno));
    if (pid == 0)
        become_server(server, parent);
    server->pid = pid;
    for (int waited = 0; waited < START_MOST_MS; waited += 2) {
        if (waitpid(pid, &status, WNOHANG) == pid) {
            server->pid = 0;
            last_log_line(server, line, sizeof line);
            return fail(server, "%s ended at once (status %d): %s", server->words[0], status, line);
        }
        if (answers(server))
            return 0;
        wait_ms(2);
    }
    redis_server_kill(server);
    last_log_line(server, line, sizeof line);
    return fail(server, "%s does not answer: %s", server->words[0], line);
}

int redis_server_start(struct redis_server *server, enum redis_server_reach reach, const char *const *config)
{
    *server = (struct redis_server){ 0 };
    int error = folder_make(server);
    for (int tries = reach == REDIS_SERVER_UNIX_AND_PORT ? PORT_TRIES : 1; error == 0 && tries > 0; tries--) {
        server->port = reach == REDIS_SERVER_UNIX_AND_PORT ? port_free() : 0;
        if (server->port != 0)
            snprintf(server->tcp_url, sizeof server->tcp_url, "redis://127.0.0.1:%d", server->port);
        error = command_line(server, config);
        if (error == 0 && run(server) == 0)
            return 0;
        error = tries > 1 ? error : -1;
    }
    folder_remove(server);
    return error;
}

static void wait_for_end(struct redis_server *server)
{
    while (waitpid(server->pid, NULL, 0) < 0 && errno == EINTR)
        continue;
    server->pid = 0;
}

void redis_server_stop(struct redis_server *server)
{
    if (server->pid != 0) {
        kill(server->pid, SIGTERM);
        kill(server->pid, SIGCONT);
        for (int waited = 0; waited < STOP_MOST_MS && waitpid(server->pid, NULL, WNOHANG | WNOWAIT) == 0; waited++)
            wait_ms(1);
        kill(server->pid, SIGKILL); /* of no effect on one that has ended */
        wait_for_end(server);
    }
    folder_remove(server);
}

void redis_server_kill(struct redis_server *server)
{
    if (server->pid == 0)
        return;
    kill(server->pid, SIGKILL);
    wait_for_end(server);
}

int redis_server_restart(struct redis_server *server)
{
    if (server->pid != 0)
        redis_server_kill(server);
    return run(server);
}

void redis_server_pause(struct redis_server *server)
{
    siginfo_t stopped;
    kill(server->pid, SIGSTOP);
    while (waitid(P_PID, (id_t)server->pid, &stopped, WSTOPPED | WEXITED | WNOWAIT) < 0 && errno == EINTR)
        continue;
}

void redis_server_resume(struct redis_server *server)
{
    kill(server->pid, SIGCONT);
}

/* ---- What it costs ---- */

int64_t redis_server_cpu_us(const struct redis_server *server)
{
    clockid_t clock;
    struct timespec time;
    if (clock_getcpuclockid(server->pid, &clock) != 0 || clock_gettime(clock, &time) != 0)
        return -1;
    return time.tv_sec * INT64_C(1000000) + time.tv_nsec / 1000;
}

int64_t redis_server_memory(const struct redis_server *server)
{
    char path[32];
    long long total, resident = -1;
    snprintf(path, sizeof path, "/proc/%d/statm", (int)server->pid);
    FILE *file = fopen(path, "re");
    if (file == NULL)
        return -1;
    if (fscanf(file, "%lld %lld", &total, &resident) != 2)
        resident = -1;
    fclose(file);
    return resident < 0 ? -1 : resident * sysconf(_SC_PAGESIZE);
}
