/* consul_server.h - a private Consul agent for a test or a benchmark: server and agent in one, with nothing on disk.
 *
 * The program to run is the command in the environment's WEIR_TEST_CONSUL, words parted by blanks, or else consul from
 * PATH, or else what tests/tools/servers.sh has unpacked. It ends with the thread that started it: see daemon.h.
 */
#ifndef WEIR_LAB_CONSUL_SERVER_H
#define WEIR_LAB_CONSUL_SERVER_H

#include "daemon.h"

#include <stdint.h>

enum { CONSUL_SERVER_WORDS_MOST = 64, CONSUL_ANSWER_MOST = 65536 };

struct consul_server {
    struct daemon daemon;
    int port;          /* of 127.0.0.1, for HTTP */
    char address[40];  /* http://127.0.0.1:<port> */
    const char *token; /* what it is asked with; NULL: none */
    char port_texts[3][8];
    char command[512]; /* the command's words, each ended by a NUL */
    char *words[CONSUL_SERVER_WORDS_MOST + 1];
};

/* The token that may do everything where ACLs are on. */
#define CONSUL_SERVER_MASTER "6d617374-6572-4f66-7468-65746573740a"

enum consul_server_acl { CONSUL_SERVER_OPEN, CONSUL_SERVER_ACL /* nothing without a token */ };

/* Whether there is an agent to run. */
bool consul_server_found(void);

/* For main() of a test: if there is none it says so on the standard output, and main() returns 77. */
bool consul_server_missing(void);

/* Start it and wait until it has a leader and knows of itself. 0, or -1 with a sentence in server->daemon.error and
 * nothing left behind. */
int consul_server_start(struct consul_server *server, enum consul_server_acl acl);

/* End it, wait for that, and remove its folder. Not running is fine. */
void consul_server_stop(struct consul_server *server);

/* Kill it, and start it again on the same ports: it has forgotten all services, keys and tokens, and its index is
 * behind. As consul_server_start(). */
int consul_server_restart(struct consul_server *server);

struct consul_answer {
    int status;    /* of HTTP */
    int64_t index; /* X-Consul-Index; 0: none */
    char body[CONSUL_ANSWER_MOST];
};

/* One request on a connection of its own, with the server's token; waits for the answer for `patience_ms`. `body` may
 * be NULL. 0, or -1 with a sentence in server->daemon.error. */
int consul_server_ask(struct consul_server *server, const char *method, const char *path, const char *body,
                      int64_t patience_ms, struct consul_answer *answer);

/* Requests that must be answered by 200: 0, or -1 with a sentence in server->daemon.error. An instance that is
 * registered so passes until it is failed. */
int consul_server_register(struct consul_server *server, const char *service, const char *id, int64_t weight);
int consul_server_deregister(struct consul_server *server, const char *id);
int consul_server_fail(struct consul_server *server, const char *id);
int consul_server_put(struct consul_server *server, const char *key, const char *value);
int consul_server_delete(struct consul_server *server, const char *key);

/* How many instances of the service pass, -1 if it does not tell; *index (may be NULL) is of the answer. */
int64_t consul_server_passing(struct consul_server *server, const char *service, int64_t *index);

/* A new token with these rules, in Consul's own language. 0 or -1 as above. */
int consul_server_token(struct consul_server *server, const char *rules, char token[40]);

#endif
