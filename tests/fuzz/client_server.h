/* client_server.h - the server of fuzz target `client`: it executes calls correctly and answers as its script says. */
#ifndef WEIR_TESTS_CLIENT_SERVER_H
#define WEIR_TESTS_CLIENT_SERVER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { LIMITS = 4, KEYS = 4, FOREIGN_KEY = 3 /* its value is not a state of weir's */ };
#define SECRET "swordfish" /* the password, which errors quote */
extern const char *const limit_names[LIMITS], *const key_names[KEYS];

/* Begin a story with an empty store. The script has about one byte per call; after its end, all answers are correct.
 * With `greets_oddly`, requests of a greeting use script bytes too. */
void server_begin(const uint8_t *script, size_t size, bool greets_oddly);

/* Return the path of its socket. */
const char *server_path(void);

/* Wait until it has seen all connections end; then its charges are final. */
void server_rest(void);

/* True if it has sent anything untrue. Any thread may call it at any time. */
bool server_lied(void);

/* Return the permits that it has charged for a key. */
int64_t server_charged(int limit, int key);

#endif
