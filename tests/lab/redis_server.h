/* redis_server.h - a private Redis server for a test or a benchmark: its own folder, its own socket, gone at the end.
 *
 * The server to run is the command in the environment's WEIR_TEST_REDIS_SERVER, words parted by blanks (it may begin
 * with a loader and its arguments), or else redis-server from PATH, or else Debian's redis-check-rdb, which is the
 * server when it is called by that name.
 *
 * It has two users: `default`, who may do everything, for those who want to look into it, and the one that docs/redis.md
 * tells weir's users to make, as whom all log in who come by its URLs: see redis_user.h.
 *
 * It ends with the thread that started it: see daemon.h.
 */
#ifndef WEIR_LAB_REDIS_SERVER_H
#define WEIR_LAB_REDIS_SERVER_H

#include "daemon.h"
#include "redis_user.h"

#include <stdint.h>

enum { REDIS_SERVER_WORDS_MOST = 64 };

struct redis_server {
    struct daemon daemon;
    int port;         /* of 127.0.0.1; 0: none */
    char socket[108]; /* the path of its Unix socket */
    struct redis_user user;
    char login[64];    /* what the user's URLs have before the host or path: <name>:<password>@ */
    char url[192];     /* unix://<login><socket> */
    char tcp_url[96];  /* redis://<login>127.0.0.1:<port>, or empty */
    char command[512]; /* WEIR_TEST_REDIS_SERVER's words, each ended by a NUL */
    char *words[REDIS_SERVER_WORDS_MOST + 1];
};

enum redis_server_reach { REDIS_SERVER_UNIX, REDIS_SERVER_UNIX_AND_PORT };

/* Whether there is a server to run; a test that needs one ends with status 77 otherwise. */
bool redis_server_found(void);

/* The words that a server's command line begins with, in `words`, which has room for REDIS_SERVER_WORDS_MOST, and out
 * of `command`; how many. */
size_t redis_server_words(char *command, size_t size, char **words);
const char *redis_server_or_else(void); /* as daemon_run() wants it */

/* Start it and wait until it answers PING, an error such as NOAUTH included. It saves nothing. `config` holds more
 * words for its command line ("--requirepass", "secret"), up to a NULL; they must live as long as the server. NULL:
 * none. 0, or -1 with a sentence in server->daemon.error and nothing left behind. */
int redis_server_start(struct redis_server *server, enum redis_server_reach reach, const char *const *config);

/* The same with a user who has the rights for `uses` too, as redis_user_read() takes them. */
int redis_server_start_for(struct redis_server *server, enum redis_server_reach reach, const char *const *config,
                           const char *const *uses);

/* End it in an orderly way, wait for that, and remove its folder. Not running is fine. */
void redis_server_stop(struct redis_server *server);

/* As by kill -9; its folder stays. */
void redis_server_kill(struct redis_server *server);

/* Start it again, in the same folder and on the same socket and port. As redis_server_start(). */
int redis_server_restart(struct redis_server *server);

/* The same, but it may still be loading what it saved. */
int redis_server_restart_to_load(struct redis_server *server);

/* Stop its process where it is (SIGSTOP) and let it go on: it holds its connections, but answers nothing. pause returns
 * once it has stopped. */
void redis_server_pause(struct redis_server *server);
void redis_server_resume(struct redis_server *server);

/* CPU time its process has taken, in microseconds; -1 if the system does not tell. */
int64_t redis_server_cpu_us(const struct redis_server *server);

/* Its resident memory in bytes; -1 if the system does not tell. */
int64_t redis_server_memory(const struct redis_server *server);

#endif
