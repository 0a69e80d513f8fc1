/* consul_server.h - a private Consul agent for a test or a benchmark: server and agent in one, with nothing on disk.
 *
 * The program is the command in the environment's WEIR_TEST_CONSUL, split at blanks; otherwise consul from PATH;
 * otherwise the one that tests/tools/servers.sh unpacked. It ends with the thread that started it: see daemon.h.
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
    const char *token; /* sent with requests; NULL: none */
    char port_texts[3][8];
    char command[512]; /* the command's words, each ended by a NUL */
    char *words[CONSUL_SERVER_WORDS_MOST + 1];
};

/* The token with all rights where ACLs are on. */
#define CONSUL_SERVER_MASTER "6d617374-6572-4f66-7468-65746573740a"

enum consul_server_acl { CONSUL_SERVER_OPEN, CONSUL_SERVER_ACL /* nothing without a token */ };

/* True if an agent can be started here. */
bool consul_server_found(void);

/* True, with a printed line, if none can: the test then ends with status 77. */
bool consul_server_missing(void);

/* Start it and wait until it has a leader and knows itself. Return 0, or -1 with a sentence in server->daemon.error
 * and nothing left behind. */
int consul_server_start(struct consul_server *server, enum consul_server_acl acl);

/* Stop it, wait for its end, and remove its folder. It need not be running. */
void consul_server_stop(struct consul_server *server);

/* Kill it and start it on the same ports. It has then forgotten all services, keys and tokens, and its index went
 * back. Returns as consul_server_start(). */
int consul_server_restart(struct consul_server *server);

struct consul_answer {
    int status;    /* of HTTP */
    int64_t index; /* X-Consul-Index; 0: none */
    char body[CONSUL_ANSWER_MOST];
};

/* Make one request on a separate connection, with the server's token; wait at most `patience_ms`. `body` may be NULL.
 * Return 0, or -1 with a sentence in server->daemon.error. */
int consul_server_ask(struct consul_server *server, const char *method, const char *path, const char *body,
                      int64_t patience_ms, struct consul_answer *answer);

/* Make requests that must be answered by 200: 0, or -1 with a sentence in server->daemon.error. A registered instance
 * passes its check until consul_server_fail(). */
int consul_server_register(struct consul_server *server, const char *service, const char *id, int64_t weight);
int consul_server_deregister(struct consul_server *server, const char *id);
int consul_server_fail(struct consul_server *server, const char *id);
int consul_server_put(struct consul_server *server, const char *key, const char *value);
int consul_server_delete(struct consul_server *server, const char *key);

/* Return how many instances of the service pass, -1 without an answer; store its index in *index (may be NULL). */
int64_t consul_server_passing(struct consul_server *server, const char *service, int64_t *index);

/* Make a token with these rules, in Consul's language. Return 0 or -1 as above. */
int consul_server_token(struct consul_server *server, const char *rules, char token[40]);

#endif
