/* client_server.h - the server of the target `client`: it executes calls as it should and answers as its script says. */
#ifndef WEIR_TESTS_CLIENT_SERVER_H
#define WEIR_TESTS_CLIENT_SERVER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { LIMITS = 4, KEYS = 4, FOREIGN_KEY = 3 /* whose value is not a state of ours */ };
#define SECRET "swordfish" /* the password, which errors quote */
extern const char *const limit_names[LIMITS], *const key_names[KEYS];

/* Begin a story, with nothing stored: a byte or so of the script for each call; where that has ended, all is well.
 * `greets_oddly`: for each request of a greeting, too. */
void server_begin(const uint8_t *script, size_t size, bool greets_oddly);

/* The socket that it listens on. */
const char *server_path(void);

/* Wait until it has seen the last of all connections: what is charged can be told then. */
void server_rest(void);

/* Whether it has said anything that is not true; any thread, any time. */
bool server_lied(void);

/* The permits that it has charged for a key. */
int64_t server_charged(int limit, int key);

#endif
