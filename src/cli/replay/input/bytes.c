/* bytes.c - the bytes of an input, decompressed if it is gzip. */
#include "cli/replay/input/bytes.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#ifdef WEIR_CLI_ZLIB
#include <zlib.h>
#endif

#include "cli/cli.h"

#define RAW_SIZE ((size_t)65536) /* a pipe's size: one read returns no more */

struct bytes {
    int fd;
    const char *name;
    bool is_gzip, is_inside_member;
    size_t raw_at, raw_filled; /* read from fd and not handed on yet */
#ifdef WEIR_CLI_ZLIB
    z_stream unpacker;
#endif
    unsigned char raw[RAW_SIZE];
};

static bool sniff(struct bytes *bytes);
static bool unpacker_start(struct bytes *bytes);
static ssize_t unpack(struct bytes *bytes, void *out, size_t size);
static ssize_t read_some(struct bytes *bytes, void *out, size_t size);

const char *bytes_name(const char *path)
{
    return strcmp(path, "-") == 0 ? "stdin" : path;
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
        complain("%s: %s", path, strerror(errno));
        goto failed;
    }
    if (!sniff(bytes) || (bytes->is_gzip && !unpacker_start(bytes)))
        goto failed;
    return bytes;

failed:
    if (bytes->fd > STDIN_FILENO)
        close(bytes->fd);
    free(bytes);
    return NULL;
}

/* Detect gzip by the first two bytes. A pipe may deliver them one by one. */
static bool sniff(struct bytes *bytes)
{
    while (bytes->raw_filled < 2) {
        ssize_t got = read_some(bytes, bytes->raw + bytes->raw_filled, RAW_SIZE - bytes->raw_filled);
        if (got < 0)
            return false;
        if (got == 0)
            return true;
        bytes->raw_filled += (size_t)got;
    }
    bytes->is_gzip = bytes->raw[0] == 0x1f && bytes->raw[1] == 0x8b;
    return true;
}

ssize_t bytes_read(struct bytes *bytes, void *out, size_t size)
{
    if (bytes->is_gzip)
        return unpack(bytes, out, size);
    size_t left = bytes->raw_filled - bytes->raw_at;
    if (left == 0)
        return read_some(bytes, out, size);
    size_t len = left < size ? left : size;
    memcpy(out, bytes->raw + bytes->raw_at, len);
    bytes->raw_at += len;
    return (ssize_t)len;
}

static ssize_t read_some(struct bytes *bytes, void *out, size_t size)
{
    ssize_t got;
    do
        got = read(bytes->fd, out, size);
    while (got < 0 && errno == EINTR);
    if (got < 0)
        complain("%s: %s", bytes->name, strerror(errno));
    return got;
}

#ifdef WEIR_CLI_ZLIB

static bool unpacker_start(struct bytes *bytes)
{
    int windows = 15 + 16; /* the largest window, and a gzip header rather than a zlib one */
    if (inflateInit2(&bytes->unpacker, windows) == Z_OK)
        return true;
    complain("%s: out of memory", bytes->name);
    return false;
}

static ssize_t unpack(struct bytes *bytes, void *out, size_t size)
{
    z_stream *unpacker = &bytes->unpacker;
    unsigned room = size < (1u << 30) ? (unsigned)size : 1u << 30;
    unpacker->next_out = out;
    unpacker->avail_out = room;
    while (unpacker->avail_out == room) {
        if (bytes->raw_at == bytes->raw_filled) {
            ssize_t got = read_some(bytes, bytes->raw, RAW_SIZE);
            if (got < 0)
                return -1;
            bytes->raw_at = 0, bytes->raw_filled = (size_t)got;
            if (got == 0 && !bytes->is_inside_member)
                return 0;
            if (got == 0) {
                complain("%s: the gzip data ends in the middle: the file is cut off", bytes->name);
                return -1;
            }
        }
        bytes->is_inside_member = true;
        unpacker->next_in = bytes->raw + bytes->raw_at;
        unpacker->avail_in = (unsigned)(bytes->raw_filled - bytes->raw_at);
        int result = inflate(unpacker, Z_NO_FLUSH);
        bytes->raw_at = bytes->raw_filled - unpacker->avail_in;
        if (result == Z_STREAM_END) {
            bytes->is_inside_member = false;
            inflateReset(unpacker);
        } else if (result != Z_OK && result != Z_BUF_ERROR) {
            complain("%s: the gzip data is corrupt: %s", bytes->name, unpacker->msg ? unpacker->msg : "not readable");
            return -1;
        }
    }
    return (ssize_t)(room - unpacker->avail_out);
}

void bytes_close(struct bytes *bytes)
{
    if (bytes->is_gzip)
        inflateEnd(&bytes->unpacker);
    if (bytes->fd != STDIN_FILENO)
        close(bytes->fd);
    free(bytes);
}

#else

static bool unpacker_start(struct bytes *bytes)
{
    complain("%s: is gzip, but this weir was built without zlib; try: gzip -dc FILE | weir replay ...", bytes->name);
    return false;
}

static ssize_t unpack(struct bytes *bytes, void *out, size_t size)
{
    (void)bytes, (void)out, (void)size;
    return -1;
}

void bytes_close(struct bytes *bytes)
{
    if (bytes->fd != STDIN_FILENO)
        close(bytes->fd);
    free(bytes);
}

#endif
