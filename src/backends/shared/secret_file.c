/* secret_file.c - reads a secret from the first line of a file. */
#include "backends/shared/secret_file.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

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
