/* bytes.c - the bytes of an input, decompressed if it is gzip or Zstandard. */
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
#ifdef WEIR_CLI_ZSTD
#include <zstd.h>
#endif

#include "cli/cli.h"

#define RAW_SIZE ((size_t)65536) /* a pipe's size: one read returns no more */

enum packing { PLAIN, GZIP, ZSTANDARD };

struct bytes {
    int fd;
    const char *name;
    enum packing packing;
    bool is_inside_member;     /* of gzip, or a frame of Zstandard */
    size_t raw_at, raw_filled; /* read from fd and not handed on yet */
#ifdef WEIR_CLI_ZLIB
    z_stream unpacker;
#endif
#ifdef WEIR_CLI_ZSTD
    ZSTD_DStream *frames;
#endif
    unsigned char raw[RAW_SIZE];
};

static bool sniff(struct bytes *bytes);
static bool unpacker_start(struct bytes *bytes);
static ssize_t unpack(struct bytes *bytes, void *out, size_t size);
static void unpacker_end(struct bytes *bytes);
static bool frames_start(struct bytes *bytes);
static ssize_t frames_unpack(struct bytes *bytes, void *out, size_t size);
static void frames_end(struct bytes *bytes);
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
    if (!sniff(bytes) || (bytes->packing == GZIP && !unpacker_start(bytes)) ||
        (bytes->packing == ZSTANDARD && !frames_start(bytes)))
        goto failed;
    return bytes;

failed:
    if (bytes->fd > STDIN_FILENO)
        close(bytes->fd);
    free(bytes);
    return NULL;
}

/* Detect the compression by the first bytes. A pipe may deliver them one by one. */
static bool sniff(struct bytes *bytes)
{
    while (bytes->raw_filled < 4) {
        ssize_t got = read_some(bytes, bytes->raw + bytes->raw_filled, RAW_SIZE - bytes->raw_filled);
        if (got < 0)
            return false;
        if (got == 0)
            break;
        bytes->raw_filled += (size_t)got;
    }
    if (bytes->raw_filled >= 2 && memcmp(bytes->raw, "\x1f\x8b", 2) == 0)
        bytes->packing = GZIP;
    if (bytes->raw_filled >= 4 && memcmp(bytes->raw, "\x28\xb5\x2f\xfd", 4) == 0)
        bytes->packing = ZSTANDARD;
    return true;
}

ssize_t bytes_read(struct bytes *bytes, void *out, size_t size)
{
    if (bytes->packing == GZIP)
        return unpack(bytes, out, size);
    if (bytes->packing == ZSTANDARD)
        return frames_unpack(bytes, out, size);
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

void bytes_close(struct bytes *bytes)
{
    if (bytes->packing == GZIP)
        unpacker_end(bytes);
    if (bytes->packing == ZSTANDARD)
        frames_end(bytes);
    if (bytes->fd != STDIN_FILENO)
        close(bytes->fd);
    free(bytes);
}

/* Read more compressed bytes: 1; 0 at the end; -1 after a complaint, also if the input ends in the middle. */
static int raw_fill(struct bytes *bytes, const char *what)
{
    ssize_t got = read_some(bytes, bytes->raw, RAW_SIZE);
    if (got < 0)
        return -1;
    bytes->raw_at = 0, bytes->raw_filled = (size_t)got;
    if (got > 0 || !bytes->is_inside_member)
        return got > 0;
    complain("%s: the %s data ends in the middle: the file is cut off", bytes->name, what);
    return -1;
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
            int result = raw_fill(bytes, "gzip");
            if (result <= 0)
                return result;
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

static void unpacker_end(struct bytes *bytes)
{
    inflateEnd(&bytes->unpacker);
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

static void unpacker_end(struct bytes *bytes)
{
    (void)bytes;
}

#endif

#ifdef WEIR_CLI_ZSTD

static bool frames_start(struct bytes *bytes)
{
    bytes->frames = ZSTD_createDStream();
    if (!bytes->frames)
        complain("%s: out of memory", bytes->name);
    return bytes->frames;
}

static ssize_t frames_unpack(struct bytes *bytes, void *out, size_t size)
{
    ZSTD_outBuffer unpacked = { out, size, 0 };
    for (;;) {
        ZSTD_inBuffer raw = { bytes->raw, bytes->raw_filled, bytes->raw_at };
        size_t rest = ZSTD_decompressStream(bytes->frames, &unpacked, &raw); /* may still hold bytes of earlier input */
        if (ZSTD_isError(rest)) {
            complain("%s: the Zstandard data is corrupt: %s", bytes->name, ZSTD_getErrorName(rest));
            return -1;
        }
        if (raw.pos > bytes->raw_at || unpacked.pos > 0)
            bytes->is_inside_member = rest > 0;
        bytes->raw_at = raw.pos;
        if (unpacked.pos > 0)
            return (ssize_t)unpacked.pos;
        int result = bytes->raw_at == bytes->raw_filled ? raw_fill(bytes, "Zstandard") : 1;
        if (result <= 0)
            return result;
    }
}

static void frames_end(struct bytes *bytes)
{
    ZSTD_freeDStream(bytes->frames);
}

#else

static bool frames_start(struct bytes *bytes)
{
    complain("%s: is compressed by Zstandard, but this weir was built without libzstd; try: zstd -dc FILE | weir ...",
             bytes->name);
    return false;
}

static ssize_t frames_unpack(struct bytes *bytes, void *out, size_t size)
{
    (void)bytes, (void)out, (void)size;
    return -1;
}

static void frames_end(struct bytes *bytes)
{
    (void)bytes;
}

#endif
