/* user_store.h - the server that --redis names: reached, and left as it was. */
#ifndef BENCH_USER_STORE_H
#define BENCH_USER_STORE_H

#include "redis/store.h"

/* Every key written there is idle after this time at most, so the server cleans up even if this program is killed. */
#define USER_STORE_LIFE_US WEIR_MINUTE

/* Return the server; the first call reaches it. Fails if weir refuses the URL or if decisions do not come from there:
 * nothing else is measured in its place. Only weir's own scripts and keys are put there. */
struct store *user_store(const char *url);

/* Remember that keys 0 to keys-1 are filled under that limit. They are removed when the program ends, also after SIGINT
 * or SIGTERM. Does nothing for a private store. */
void user_store_remember(const struct store *store, const char *limit, uint64_t keys);

/* Sleep forever if the program was interrupted and is about to end: no thread may fill what is being removed. */
void user_store_heed_interrupt(void);

/* For store.c: true if the benchmark can connect directly; such a connection, or NULL or one with an error. */
bool user_store_can_be_asked(void);
redisContext *user_store_connect(void);

#endif
