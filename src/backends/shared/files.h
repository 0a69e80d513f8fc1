/* files.h - reads a secret from the first line of a file, and makes paths that stay valid.
 *
 * Secrets are rotated while a process runs. So each new connection reads its files again.
 */
#ifndef BACKENDS_SHARED_FILES_H
#define BACKENDS_SHARED_FILES_H

#include <stddef.h>
#include <sys/types.h>

/* Read the first line of `path` into `line`, without LF or CRLF, and its length into *len. A longer line is cut,
 * so that *len is `size`. 0, or -1 with errno. The caller wipes `line`. */
int secret_file_read(const char *path, char *line, size_t size, size_t *len);

/* Make a path absolute, because the program may change its directory later. Links stay in it, so that a link that is
 * swapped is followed. WEIR_OK, WEIR_ENOMEM, or WEIR_EIO with errno. The caller frees *out. */
int path_absolute(const char *path, char **out);

#endif
