/* bytes.h - the bytes of an input, through gzip or zstd if it is compressed.
 *
 * The first bytes identify the compression, not the file's name, so it works from a pipe, too. An input that the program
 * cannot read to its end is an error.
 */
#ifndef WEIR_CLI_BYTES_H
#define WEIR_CLI_BYTES_H

#include <stddef.h>
#include <sys/types.h>

struct bytes;

/* Open a file, or the standard input if `path` is "-". NULL after a complaint. */
struct bytes *bytes_open(const char *path);

/* Read up to `size` bytes; 0 at the end; -1 after a complaint. */
ssize_t bytes_read(struct bytes *bytes, void *out, size_t size);

void bytes_close(struct bytes *bytes);

/* Return the name of the input to show to people. */
const char *bytes_name(const char *path);

#endif
