/* client.h - a connection to weir serve: the bytes that it has sent, and the replies that it still gets.
 *
 * Replies go out in the order of the commands. A request that waits for Redis is a `waiting` reply; replies to later
 * commands queue behind it. A client that closes its connection stays until its requests have been answered, because
 * the library has them.
 */
#ifndef WEIR_CLI_SERVE_CLIENT_H
#define WEIR_CLI_SERVE_CLIENT_H

#include "cli/serve/resp.h"
#include "cli/serve/throttle.h"
#include "cli/serve/tls.h"

#include <weir/weir.h>

#define CLIENT_WAITING_MAX 1024         /* replies of a client that may queue */
#define CLIENT_WAITING_HIGH (256 << 10) /* with more bytes of keys and replies in that queue, its commands wait */
#define CLIENT_OUTPUT_HIGH (64 << 10)   /* the same of unsent bytes */
#define CLIENT_STRANGER_MAX (16 << 10)  /* bytes of a command from a client that has not logged in */

struct server;

/* What epoll watches. */
struct watch {
    void (*ready)(struct server *server, struct watch *watch, uint32_t events);
    int fd; /* -1: closed */
};

/* How to put a decision. */
enum answer {
    ANSWER_TRY,      /* allowed, limit, remaining, retry_after_us, reset_after_us, delay_us, would_deny, bound_by */
    ANSWER_THROTTLE, /* limited, limit, remaining, retry_after, reset_after, in seconds */
    ANSWER_LOOK      /* the same of a look, which is always allowed */
};

struct waiting {
    struct weir_op op; /* user: the struct waiting */
    struct client *client;
    struct waiting *next;
    enum answer answer;
    struct throttle_set *set; /* of a CL.THROTTLE; NULL: another command */
    bool is_ready;
    size_t bytes;                   /* counted in client->waiting_bytes */
    struct output text;             /* once it is ready */
    struct weir_request requests[]; /* op.n of them; the keys are behind them */
};

struct client {
    struct watch watch; /* first */
    struct tls *tls;    /* NULL: none */
    struct server *server;
    struct client *prev, *next; /* of server->clients */
    struct client *next_due;    /* of server->due */
    bool is_due;                /* it is in that list: something may be sent or carried out */
    uint32_t events;            /* that epoll watches */
    bool is_scraper;            /* it came by the metrics port and speaks HTTP */
    bool is_authenticated;
    bool is_queueing;  /* between MULTI and EXEC */
    bool is_spoiled;   /* a command of that transaction was refused: EXEC carries nothing out */
    bool is_at_end;    /* it will send no more: close when all that it has sent is answered */
    bool is_ending;    /* carry out no more of its commands; close after the last reply */
    int version;       /* of the protocol, 2 or 3 */
    int64_t id;        /* for CLIENT ID; from 1, never again */
    char name[64];     /* of CLIENT SETNAME; empty: none */
    int64_t began_us;  /* when the first byte of an unfinished command came; 0: there is none */
    int64_t stuck_us;  /* since when bytes wait to be sent, or the last CLIENT_OUTPUT_HIGH of them went; 0: none wait */
    size_t stuck_sent; /* bytes sent since then */
    int64_t accepted_us;
    int64_t active_us; /* when bytes last came or went */
    char *input;
    size_t input_len, input_size;
    struct output output;
    struct waiting *first, *last; /* replies that wait, in order */
    size_t waiting_count;         /* of them, also those of a closed connection */
    size_t waiting_bytes;         /* of their keys, and of texts when they were put */
    struct output queued;         /* the commands since MULTI, as arrays of bulk strings */
    size_t queued_count;
};

/* The prefixes of addresses that count as one key; 0 and 0: keys are what clients send. */
struct address_bits {
    int ipv4, ipv6;
};

/* What the commands know of the server. */
struct server {
    weir *limiter;
    struct throttle throttle;
    const char *password;    /* NULL: none is needed */
    struct tls_context *tls; /* of the addresses on TCP; NULL: none */
    struct address_bits bits;
    bool counts_top_keys;
    bool is_draining; /* clients end when what they have sent is answered */
    int epoll_fd;
    size_t client_count, client_max;
    int64_t idle_us;        /* a client that has been silent for longer is disconnected; 0: never */
    int64_t last_id;        /* of a client */
    int64_t http_said_us;   /* when the log last told of HTTP on a port for commands: at most once a minute; 0: never */
    uint64_t commands;      /* carried out */
    struct client *clients; /* also closed ones with requests that wait */
    struct client *due;     /* clients to be served in this turn */
    int64_t now_us;         /* CLOCK_MONOTONIC at the turn's beginning */
};

/* Take a connection over. Closes the descriptor if memory runs out. `is_secure`: the client speaks TLS. */
void client_accept(struct server *server, int fd, bool is_scraper, bool is_secure);

/* Have a client served in this turn of the loop. */
void client_is_due(struct client *client);

/* Serve a client: carry out what it has sent, and send replies. It may be freed. */
void client_serve(struct client *client);

/* Close the connection of a client that has kept the server waiting for too long. */
void client_check_patience(struct client *client);

/* Free a client whose requests have all been answered. */
void client_free(struct client *client);

/* Count the bytes of the reply that was put last, if it waits behind others. */
void client_count_reply(struct client *client);

/* Carry out a command. Puts the reply, or notes that it waits. */
void command_run(struct client *client, const struct resp_command *command);

/* True if this is no line of Redis's protocol but of another one, with which a web page can have a browser bring commands
 * to this port: the next lines, and a body, would be commands. As in Redis, POST and Host: give HTTP away; so does the
 * version at the end of a request line. A first word that no command can have gives away header lines, TLS and STUN. */
bool command_is_foreign(const struct resp_command *command);

/* The commands that ask a limit, decisions.c. The number of words has been checked. */
void run_try(struct client *client, const struct resp_command *command);
void run_try_all(struct client *client, const struct resp_command *command);
void run_peek(struct client *client, const struct resp_command *command);
void run_reset(struct client *client, const struct resp_command *command);
void run_charge(struct client *client, const struct resp_command *command);
void run_reserve(struct client *client, const struct resp_command *command);
void run_settle(struct client *client, const struct resp_command *command);
void run_renew(struct client *client, const struct resp_command *command);
void run_release(struct client *client, const struct resp_command *command);
void run_throttle(struct client *client, const struct resp_command *command);

/* The commands about the connection, connection.c. */
void run_auth(struct client *client, const struct resp_command *command);
void run_hello(struct client *client, const struct resp_command *command);
void run_ping(struct client *client, const struct resp_command *command);
void run_echo(struct client *client, const struct resp_command *command);
void run_select(struct client *client, const struct resp_command *command);
void run_quit(struct client *client, const struct resp_command *command);
void run_client(struct client *client, const struct resp_command *command);

/* Move replies that are ready to the output. */
void client_collect(struct client *client);

/* Return where a reply goes: to the output, or behind the replies that wait. NULL: no memory; the client is ending. */
struct output *client_reply(struct client *client);

#endif
