/* inspector.h - an inspector, and the parts of it that build on one another:
 *
 *     talk.c      a connection on which the caller waits
 *     decode.c    names and values of Redis as keys and states
 *     reach.c     which server has a slot, and the connection to it
 *     value.c     the value of one key, read or deleted
 *     walk.c      all keys
 *     inspect.c   the API
 *
 * Each function that returns an error writes its sentence to inspector->why.
 */
#ifndef BACKENDS_REDIS_INSPECT_INSPECTOR_H
#define BACKENDS_REDIS_INSPECT_INSPECTOR_H

#include "backends/redis/cluster/map.h"
#include "backends/redis/inspect/decode.h"
#include "backends/redis/inspect/talk.h"
#include "backends/shared/inspect_kind.h"

#define INSPECT_WHY_SIZE 384
#define INSPECT_CURSOR_SIZE 24

struct weir_inspector {
    const struct inspect_kind *kind;   /* (c) */
    struct log log;                    /* (c) */
    char prefix[REDIS_PREFIX_MAX + 1]; /* (c) */
    struct redis_target target;        /* (c) */
    struct redis_talk talk;
    struct redis_map *map;              /* NULL outside a cluster */
    struct redis_node_name primary;     /* that a sentinel has named; port 0: none yet */
    unsigned char key[REDIS_KEY_WHOLE]; /* of the key being visited */
    long long clock[2];                 /* the latest answer to TIME: seconds, microseconds */
    int64_t end_us;                     /* the latest answer about a slot */
    struct redis_bytes names;           /* of a step of SCAN: a size_t and a name, for each key */
    char cursor[INSPECT_CURSOR_SIZE];   /* where the next step begins */
    char why[INSPECT_WHY_SIZE];         /* the sentence of an error, or "" */
};

static inline struct message inspect_why(struct weir_inspector *inspector)
{
    return (struct message){ inspector->why, sizeof inspector->why };
}

/* ---- inspect.c ---- */

/* Do weir_inspect_open() with checked options of a mode over Redis. */
int redis_inspect_open(const struct weir_options *options, weir_inspector **out);

/* ---- reach.c ---- */

/* Connect to a node of a cluster, unless the connection is to it already. */
int inspect_open_node(struct weir_inspector *inspector, const struct redis_node_name *name);

/* Connect to the server that serves a slot; outside a cluster to the only one. */
int inspect_open_slot(struct weir_inspector *inspector, unsigned slot);

/* Ask the nodes of the URL, one after the other, which node serves which slots. */
int inspect_read_map(struct weir_inspector *inspector);

/* ---- value.c ---- */

/* Write TIME. inspect_hear_time() hears the answer. */
void inspect_write_time(struct weir_inspector *inspector);
int inspect_hear_time(struct weir_inspector *inspector, int64_t *now_us);

/* Write a command that reads a name's value, and take the answer into the states of *out. */
void inspect_write_read(struct weir_inspector *inspector, const char *name, size_t len);
int inspect_take_value(struct weir_inspector *inspector, const struct redis_reply *reply, int64_t now_us,
                       struct weir_inspected *out);

/* Read what is said about the slots of a key of this name, if it has any. The connection is to its server. */
int inspect_read_slots(struct weir_inspector *inspector, const char *name, size_t len, int64_t now_us,
                       struct weir_inspected *out);

/* Read one key's value into *out; or delete it, and tell in *existed whether it was there. Redirects are followed. */
int inspect_read(struct weir_inspector *inspector, const char *limit, struct weir_key key, struct weir_inspected *out);
int inspect_delete(struct weir_inspector *inspector, const char *limit, struct weir_key key, bool *existed);

/* ---- walk.c ---- */

/* Do weir_inspect_some(). */
int inspect_walk(struct weir_inspector *inspector, const char *limit, const char *pattern, int64_t most, bool *is_all,
                 int (*visit)(void *user, const struct weir_inspected *key), void *user);

#endif
