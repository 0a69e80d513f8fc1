/* redis_store.h - the store's twin in a private Redis server, for sim --lua. */
#ifndef SIM_REDIS_STORE_H
#define SIM_REDIS_STORE_H

#include "sim.h"

/* Return false if there is no server. */
bool redis_store_open(void);
void redis_store_close(void);

extern const struct store_twin redis_store;

#endif
