/* redis_server.h - a private Redis server for a test or a benchmark, with its own folder and socket, which vanish
 * with it.
 *
 * The server is the command in the environment's WEIR_TEST_REDIS_SERVER, split at blanks (it may begin with a loader
 * and its arguments); otherwise redis-server from PATH; otherwise Debian's redis-check-rdb, which acts as the server
 * under that name.
 *
 * It has two users: `default`, with all rights, for tests that look inside; and the user that docs/redis.md creates for
 * weir, as which its URLs log in: see redis_user.h.
 *
 * It ends with the thread that started it: see daemon.h.
 */
#ifndef WEIR_LAB_REDIS_SERVER_H
#define WEIR_LAB_REDIS_SERVER_H

#include "daemon.h"
#include "redis_user.h"

#include <stdint.h>

enum { REDIS_SERVER_WORDS_MOST = 96 };

struct redis_server {
    struct daemon daemon;
    int port;         /* of 127.0.0.1; 0: none */
    char socket[108]; /* the path of its Unix socket */
    struct redis_user user;
    char login[64];    /* the part of the user's URLs before the host or path: <name>:<password>@ */
    char url[192];     /* unix://<login><socket> */
    char tcp_url[96];  /* redis://<login>127.0.0.1:<port>, or empty */
    char command[512]; /* WEIR_TEST_REDIS_SERVER's words, each ended by a NUL */
    char *words[REDIS_SERVER_WORDS_MOST + 1];
};

enum redis_server_reach { REDIS_SERVER_UNIX, REDIS_SERVER_UNIX_AND_PORT };

/* True if a server can be started here. */
bool redis_server_found(void);

/* True, with a printed line, if none can: the test then ends with status 77. */
bool redis_server_missing(void);

/* Store the first words of a server's command line, taken out of `command`, in `words`, which has room for
 * REDIS_SERVER_WORDS_MOST; return how many. */
size_t redis_server_words(char *command, size_t size, char **words);
const char *redis_server_or_else(void); /* for daemon_run() */

/* Start it and wait until it answers PING, if only with an error such as NOAUTH. It saves nothing. `config` holds
 * more words for its command line ("--requirepass", "secret"), up to a NULL, which must outlive the server; NULL:
 * none. Return 0, or -1 with a sentence in server->daemon.error and nothing left behind. */
int redis_server_start(struct redis_server *server, enum redis_server_reach reach, const char *const *config);

/* The same, with a user that also has the rights for `uses`, as redis_user_read() takes them. */
int redis_server_start_for(struct redis_server *server, enum redis_server_reach reach, const char *const *config,
                           const char *const *uses);

/* Stop it, wait for its end, and remove its folder. It need not be running. */
void redis_server_stop(struct redis_server *server);

/* kill -9; its folder stays. */
void redis_server_kill(struct redis_server *server);

/* Start it again, in the same folder and on the same socket and port. Returns as redis_server_start(). */
int redis_server_restart(struct redis_server *server);

/* The same, but it may still be loading its data. */
int redis_server_restart_to_load(struct redis_server *server);

/* Pause it (SIGSTOP) and resume it: it keeps its connections but answers nothing. pause returns once it has stopped. */
void redis_server_pause(struct redis_server *server);
void redis_server_resume(struct redis_server *server);

/* Return the CPU time that its process has used, in microseconds; -1 if unknown. */
int64_t redis_server_cpu_us(const struct redis_server *server);

/* Return its resident memory in bytes; -1 if unknown. */
int64_t redis_server_memory(const struct redis_server *server);

#endif
