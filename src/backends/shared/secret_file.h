/* secret_file.h - reads a secret from the first line of a file. */
#ifndef BACKENDS_SHARED_SECRET_FILE_H
#define BACKENDS_SHARED_SECRET_FILE_H

#include <stddef.h>
#include <sys/types.h>

/* Read the first line of `path` into `line`, without LF or CRLF, and its length into *len. A longer line is cut,
 * so that *len is `size`. 0, or -1 with errno. The caller wipes `line`. */
int secret_file_read(const char *path, char *line, size_t size, size_t *len);

#endif
