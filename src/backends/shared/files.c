/* files.c - reads a secret from the first line of a file, and makes paths that stay valid. */
#include "backends/shared/files.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <weir/weir.h>

/* Read until `line` is full, the file ends, or a newline was read. Returns the number of bytes, or -1 with errno. */
static ssize_t secret_read_line(int fd, char *line, size_t size)
{
    size_t len = 0;
    while (len < size && !memchr(line, '\n', len)) {
        ssize_t got = read(fd, line + len, size - len);
        if (got == 0)
            break;
        if (got < 0 && errno != EINTR)
            return -1;
        if (got > 0)
            len += (size_t)got;
    }
    return (ssize_t)len;
}

int secret_file_read(const char *path, char *line, size_t size, size_t *len)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return -1;
    ssize_t got = secret_read_line(fd, line, size);
    int error = errno;
    close(fd);
    errno = error;
    if (got < 0)
        return -1;
    const char *end = memchr(line, '\n', (size_t)got);
    *len = end ? (size_t)(end - line) : (size_t)got;
    while (*len > 0 && line[*len - 1] == '\r')
        --*len;
    return 0;
}

int path_absolute(const char *path, char **out)
{
    char folder[PATH_MAX] = "";
    const bool is_relative = path[0] != '/';
    if (is_relative && !getcwd(folder, sizeof folder))
        return WEIR_EIO;
    const size_t size = strlen(folder) + strlen(path) + 2;
    char *whole = malloc(size);
    if (!whole)
        return WEIR_ENOMEM;
    snprintf(whole, size, "%s%s%s", folder, is_relative ? "/" : "", path);
    *out = whole;
    return WEIR_OK;
}
