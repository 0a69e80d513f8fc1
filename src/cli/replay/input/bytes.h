/* bytes.h - the bytes of an input, unpacked on the way if it is gzip.
 *
 * gzip is told by its first two bytes, never by the name, so it works from a pipe too. Several gzip members in a row
 * are read as one, as gzip -d does. Input that ends in the middle of one is an error, not an end.
 */
#ifndef WEIR_CLI_BYTES_H
#define WEIR_CLI_BYTES_H

#include <stddef.h>
#include <sys/types.h>

struct bytes;

/* Open a file, or the standard input if `path` is "-". NULL after a complaint. */
struct bytes *bytes_open(const char *path);

/* Up to `size` bytes; 0 at the end; -1 after a complaint. */
ssize_t bytes_read(struct bytes *bytes, void *out, size_t size);

void bytes_close(struct bytes *bytes);

/* How people know the input that `path` names. */
const char *bytes_name(const char *path);

#endif
