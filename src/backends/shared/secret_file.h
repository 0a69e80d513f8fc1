/* secret_file.h - a secret that stands on the first line of a file. */
#ifndef BACKENDS_SHARED_SECRET_FILE_H
#define BACKENDS_SHARED_SECRET_FILE_H

#include <stddef.h>
#include <sys/types.h>

/* Read the first line of `path` into `line`, without its end (LF, CRLF), and put its length in *len; a line that does
 * not fit is cut, so that *len is `size`. 0, or -1 with errno: it cannot be read. Whoever calls wipes `line`. */
int secret_file_read(const char *path, char *line, size_t size, size_t *len);

#endif
