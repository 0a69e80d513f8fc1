/* user_store.h - the server that --redis names: reached, and left as it was. */
#ifndef BENCH_USER_STORE_H
#define BENCH_USER_STORE_H

#include "redis/store.h"

/* Whatever is written there is as good as new after so long at most: if this program is killed, that cleans up. */
#define USER_STORE_LIFE_US WEIR_MINUTE

/* Reached at the first call. Ends the program with a sentence if weir refuses the URL, or if its decisions do not come
 * from there: nothing is measured in its place. No scripts or keys are put in place for others than weir. */
struct store *user_store(const char *url);

/* So many keys, 0 to keys-1, are filled under that limit, and will be removed when the program ends, also by SIGINT or
 * SIGTERM. Nothing is to be done if the store is a private one. */
void user_store_remember(const struct store *store, const char *limit, uint64_t keys);

/* Sleeps for ever once the program was interrupted and is about to end: nobody is to fill what is being removed. */
void user_store_heed_interrupt(void);

/* For store.c: whether it can be asked by itself, and a connection for that; NULL or one with an error if not. */
bool user_store_can_be_asked(void);
redisContext *user_store_connect(void);

#endif
