/* asker.h - one blocking connection to a Redis server, for questions of a test or a benchmark.
 *
 * It shares no code with the library, so that it observes a server independently.
 */
#ifndef WEIR_LAB_ASKER_H
#define WEIR_LAB_ASKER_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct asker {
    int fd;          /* -1: closed */
    size_t at, held; /* buffer[at..held) has been read and is not used yet */
    char buffer[4096];
    char error[160]; /* the reason after a -1 */
};

enum { ASKER_PATIENCE_MS = 10000 }; /* longest wait for a connection, or for the next bytes of a reply */

/* Connect to a Unix socket, or to a port of 127.0.0.1. Return 0, or -1 with a sentence in asker->error. */
int asker_open(struct asker *asker, const char *socket_path);
int asker_open_port(struct asker *asker, int port);
void asker_close(struct asker *asker); /* also if it was never open */

/* Send a command of text words, up to a NULL, and read its reply into `reply`, truncated and NUL-terminated. Nested
 * replies become lines, one per element. An error reply keeps its '-'; nil is "(nil)". Return the length of the whole
 * reply, or -1 with a sentence in asker->error; the asker is then closed. */
ssize_t asker_ask(struct asker *asker, char *reply, size_t size, ...) __attribute__((sentinel));

/* The same with words of any bytes. */
ssize_t asker_ask_words(struct asker *asker, char *reply, size_t size, size_t n, const char *const *words,
                        const size_t *lens);

/* Return the integer answer to a command of text words; -1 also if it is not an integer. */
int64_t asker_count(struct asker *asker, ...) __attribute__((sentinel));

#endif
