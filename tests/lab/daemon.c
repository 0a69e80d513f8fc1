/* daemon.c - a private server's process for a test or a benchmark: see daemon.h. */
#include "daemon.h"
#include "scratch.h"

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
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { START_MOST_MS = 20000, STOP_MOST_MS = 5000, PORT_LEAST = 12000, PORTS = 10000 };

static void wait_ms(int ms)
{
    const struct timespec time = { .tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000L };
    nanosleep(&time, NULL);
}

int daemon_fail(struct daemon *daemon, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    vsnprintf(daemon->error, sizeof daemon->error, format, list);
    va_end(list);
    return -1;
}

bool daemon_in_path(const char *program)
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

size_t daemon_words(char *command, char **words, size_t most)
{
    size_t n = 0;
    for (char *word; n < most && (word = strsep(&command, " ")) != NULL;)
        if (*word != '\0')
            words[n++] = word;
    return n;
}

/* Return a socket bound to that port of 127.0.0.1 (0: any); -1 if it is taken. */
static int bound(int port)
{
    const struct sockaddr_in address = { .sin_family = AF_INET,
                                         .sin_port = htons((uint16_t)port),
                                         .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd >= 0 && setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &(int){ 1 }, sizeof(int)) == 0 &&
        bind(fd, (const struct sockaddr *)&address, sizeof address) == 0)
        return fd;
    if (fd >= 0)
        close(fd);
    return -1;
}

static bool is_free(int port)
{
    int fd = bound(port);
    if (fd >= 0)
        close(fd);
    return fd >= 0;
}

int daemon_port_free(int away)
{
    for (int tries = 0; tries < 1000; tries++) {
        unsigned chance = 0;
        if (getrandom(&chance, sizeof chance, 0) != sizeof chance)
            return 0;
        int port = PORT_LEAST + (int)(chance % PORTS);
        if (is_free(port) && (away == 0 || is_free(port + away)))
            return port;
    }
    return 0;
}

int daemon_port_closed(void)
{
    struct sockaddr_in address = { 0 };
    socklen_t len = sizeof address;
    int fd = bound(0); /* never closed: bound without listening, it refuses connections */
    return fd >= 0 && getsockname(fd, (struct sockaddr *)&address, &len) == 0 ? ntohs(address.sin_port) : 0;
}

/* ---- Its folder ---- */

static int remove_entry(const char *path, const struct stat *about, int type, struct FTW *place)
{
    (void)about, (void)type, (void)place;
    return remove(path);
}

void daemon_folder_remove(struct daemon *daemon)
{
    if (daemon->dir[0] != '\0')
        nftw(daemon->dir, remove_entry, 8, FTW_DEPTH | FTW_PHYS);
    daemon->dir[0] = '\0';
    if (daemon->watch_fd > 0)
        close(daemon->watch_fd);
    daemon->watch_fd = 0;
}

/* Start a process that removes the folder when the process that started the server has ended, which it sees by the
 * pipe's end. It leaves Check's process group, which Check kills, and no parent waits for it. Without it the folder may
 * remain. */
static void folder_watch(struct daemon *daemon)
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
        wait_ms(100); /* the server dies at the same time */
        daemon_folder_remove(daemon);
        _exit(0);
    }
    close(ends[0]);
    if (child > 0)
        waitpid(child, NULL, 0);
    daemon->watch_fd = ends[1];
}

int daemon_folder_make(struct daemon *daemon, const char *name)
{
    const char *parent = scratch_parent();
    snprintf(daemon->dir, sizeof daemon->dir, "%s/weir-%s-XXXXXX", parent, name);
    if (mkdtemp(daemon->dir) == NULL) {
        daemon->dir[0] = '\0';
        return daemon_fail(daemon, "no folder in %s: %s", parent, strerror(errno));
    }
    folder_watch(daemon);
    return 0;
}

/* ---- The process ---- */

__attribute__((noreturn)) static void become(const struct daemon *daemon, char *const *words, const char *or_else,
                                             pid_t parent)
{
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    signal(SIGPIPE, SIG_DFL);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent || chdir(daemon->dir) != 0)
        _exit(126);
    int log = open("log", O_WRONLY | O_CREAT | O_APPEND, 0600), input = open("/dev/null", O_RDONLY);
    if (log < 0 || input < 0 || dup2(input, 0) < 0 || dup2(log, 1) < 0 || dup2(log, 2) < 0)
        _exit(126);
    execvp(words[0], words);
    if (or_else != NULL)
        execv(or_else, words);
    _exit(127);
}

static void last_log_line(const struct daemon *daemon, char *line, size_t size)
{
    char path[sizeof daemon->dir + 8], read_line[256];
    snprintf(path, sizeof path, "%s/log", daemon->dir);
    FILE *log = fopen(path, "re");
    snprintf(line, size, "its log is empty");
    while (log != NULL && fgets(read_line, sizeof read_line, log) != NULL)
        if (read_line[0] != '\n')
            snprintf(line, size, "%.*s", (int)strcspn(read_line, "\n"), read_line);
    if (log != NULL)
        fclose(log);
}

int daemon_run(struct daemon *daemon, char *const *words, const char *or_else, bool (*ready)(void *user), void *user)
{
    int status;
    char line[256];
    pid_t parent = getpid(), pid = fork();
    if (pid < 0)
        return daemon_fail(daemon, "fork: %s", strerror(errno));
    if (pid == 0)
        become(daemon, words, or_else, parent);
    daemon->pid = pid;
    for (int waited = 0; waited < START_MOST_MS; waited += 2) {
        if (waitpid(pid, &status, WNOHANG) == pid) {
            daemon->pid = 0;
            last_log_line(daemon, line, sizeof line);
            return daemon_fail(daemon, "%s ended at once (status %d): %s", words[0], status, line);
        }
        if (ready(user))
            return 0;
        wait_ms(2);
    }
    daemon_kill(daemon);
    last_log_line(daemon, line, sizeof line);
    return daemon_fail(daemon, "%s does not answer: %s", words[0], line);
}

static void wait_for_end(struct daemon *daemon)
{
    while (waitpid(daemon->pid, NULL, 0) < 0 && errno == EINTR)
        continue;
    daemon->pid = 0;
}

void daemon_stop(struct daemon *daemon)
{
    if (daemon->pid == 0)
        return;
    kill(daemon->pid, SIGTERM);
    kill(daemon->pid, SIGCONT);
    for (int waited = 0; waited < STOP_MOST_MS && waitpid(daemon->pid, NULL, WNOHANG | WNOWAIT) == 0; waited++)
        wait_ms(1);
    daemon_kill(daemon); /* does nothing if it has ended */
}

void daemon_kill(struct daemon *daemon)
{
    if (daemon->pid == 0)
        return;
    kill(daemon->pid, SIGKILL);
    wait_for_end(daemon);
}

void daemon_pause(const struct daemon *daemon)
{
    siginfo_t stopped;
    kill(daemon->pid, SIGSTOP);
    while (waitid(P_PID, (id_t)daemon->pid, &stopped, WSTOPPED | WEXITED | WNOWAIT) < 0 && errno == EINTR)
        continue;
}

void daemon_resume(const struct daemon *daemon)
{
    kill(daemon->pid, SIGCONT);
}
