/* bytes.c - the bytes of an input, through gzip or zstd if it is compressed: see bytes.h. */
#include "cli/replay/input/bytes.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cli/cli.h"

extern char **environ;

enum { FIRST = 4 }; /* bytes that identify the compression */

struct bytes {
    int fd; /* of the file, or of what the program writes */
    const char *name, *program;
    pid_t child, feeder; /* 0: none */
    unsigned char first[FIRST];
    size_t first_at, first_len; /* those of a plain input that were not handed on yet */
};

const char *bytes_name(const char *path)
{
    return strcmp(path, "-") == 0 ? "stdin" : path;
}

static ssize_t read_some(const struct bytes *bytes, void *out, size_t size)
{
    ssize_t got;
    do
        got = read(bytes->fd, out, size);
    while (got < 0 && errno == EINTR);
    if (got < 0)
        complain("%s: %s", bytes->name, strerror(errno));
    return got;
}

/* Write the first bytes and all others of an input that cannot be read again, in a process of its own. */
static pid_t feed(const struct bytes *bytes, int ends[2])
{
    const pid_t child = fork();
    if (child != 0)
        return child;
    char buffer[65536];
    ssize_t got = (ssize_t)bytes->first_len;
    memcpy(buffer, bytes->first, bytes->first_len);
    close(ends[0]);
    for (; got > 0; got = read(bytes->fd, buffer, sizeof buffer))
        for (ssize_t at = 0, put; at < got; at += put)
            if ((put = write(ends[1], buffer + at, (size_t)(got - at))) <= 0)
                _exit(1);
    _exit(got < 0);
}

/* Run the program with the input as its standard input. False after a complaint. */
static bool program_start(struct bytes *bytes)
{
    char name[8], option[] = "-dcq";
    char *const argv[] = { name, option, NULL };
    int ends[2], in[2] = { bytes->fd, -1 };
    posix_spawn_file_actions_t actions;
    memcpy(name, bytes->program, strlen(bytes->program) + 1);
    if (lseek(bytes->fd, -(off_t)bytes->first_len, SEEK_CUR) < 0 &&
        (pipe2(in, O_CLOEXEC) != 0 || (bytes->feeder = feed(bytes, in)) < 0)) {
        complain("%s: %s", bytes->name, strerror(errno));
        return false;
    }
    int error = pipe2(ends, O_CLOEXEC) == 0 ? posix_spawn_file_actions_init(&actions) : errno;
    if (error == 0) {
        error = posix_spawn_file_actions_adddup2(&actions, in[0], STDIN_FILENO);
        error = error ? error : posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
        error = error ? error : posix_spawnp(&bytes->child, name, &actions, NULL, argv, environ);
        posix_spawn_file_actions_destroy(&actions);
        close(ends[1]);
        if (bytes->fd != STDIN_FILENO)
            close(bytes->fd);
        bytes->fd = ends[0];
    }
    if (in[1] >= 0) {
        close(in[0]);
        close(in[1]);
    }
    if (error)
        complain("%s: is compressed by %s, which cannot be run: %s", bytes->name, bytes->program, strerror(error));
    return error == 0;
}

struct bytes *bytes_open(const char *path)
{
    struct bytes *bytes = calloc(1, sizeof *bytes);
    if (!bytes) {
        complain("%s: out of memory", bytes_name(path));
        return NULL;
    }
    bytes->name = bytes_name(path);
    bytes->fd = strcmp(path, "-") == 0 ? STDIN_FILENO : open(path, O_RDONLY | O_CLOEXEC);
    if (bytes->fd < 0) {
        complain("%s: %s", bytes->name, strerror(errno));
        free(bytes);
        return NULL;
    }
    ssize_t got = 1;
    for (; bytes->first_len < FIRST && got > 0; bytes->first_len += got > 0 ? (size_t)got : 0)
        got = read_some(bytes, bytes->first + bytes->first_len, FIRST - bytes->first_len);
    if (bytes->first_len >= 2 && memcmp(bytes->first, "\x1f\x8b", 2) == 0)
        bytes->program = "gzip";
    else if (bytes->first_len == FIRST && memcmp(bytes->first, "\x28\xb5\x2f\xfd", FIRST) == 0)
        bytes->program = "zstd";
    if (got < 0 || (bytes->program && !program_start(bytes))) {
        bytes_close(bytes);
        return NULL;
    }
    return bytes;
}

/* Wait for a program; false after a complaint if it has failed. */
static bool program_end(struct bytes *bytes)
{
    int status = 0;
    while (waitpid(bytes->child, &status, 0) < 0 && errno == EINTR)
        ;
    bytes->child = 0;
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
        return true;
    complain("%s: %s cannot read it: it is cut off or corrupt", bytes->name, bytes->program);
    return false;
}

ssize_t bytes_read(struct bytes *bytes, void *out, size_t size)
{
    if (!bytes->program && bytes->first_at < bytes->first_len) {
        const size_t len = bytes->first_len - bytes->first_at < size ? bytes->first_len - bytes->first_at : size;
        memcpy(out, bytes->first + bytes->first_at, len);
        bytes->first_at += len;
        return (ssize_t)len;
    }
    const ssize_t got = read_some(bytes, out, size);
    return got == 0 && bytes->child && !program_end(bytes) ? -1 : got;
}

void bytes_close(struct bytes *bytes)
{
    if (bytes->fd != STDIN_FILENO)
        close(bytes->fd);
    if (bytes->feeder > 0)
        kill(bytes->feeder, SIGTERM); /* it may wait for input */
    /* The program ends, because its output is closed and its input ends. */
    const pid_t children[] = { bytes->feeder, bytes->child };
    for (size_t i = 0; i < 2; i++)
        while (children[i] > 0 && waitpid(children[i], NULL, 0) < 0 && errno == EINTR)
            ;
    free(bytes);
}
