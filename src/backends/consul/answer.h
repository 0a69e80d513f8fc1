/* answer.h - reads the JSON answers of Consul's agent: instances of a service, and policies under a prefix.
 *
 * The text is not trusted. Before it is parsed, it is refused if it nests deeper than CONSUL_NESTING_MAX or has
 * more than CONSUL_CONTAINERS_MAX objects and arrays, each of which takes about 200 bytes of memory. The type of
 * every field that is read is checked. Other fields may hold anything that JSON allows: a NUL in text, a number
 * of any size, a name twice. */
#ifndef BACKENDS_CONSUL_ANSWER_H
#define BACKENDS_CONSUL_ANSWER_H

#include "core/follow/follow.h"

#define CONSUL_NESTING_MAX 16
#define CONSUL_CONTAINERS_MAX 65536

struct consul_peers {
    struct json_t *root; /* holds the ids */
    struct weir_peer *peers;
    size_t n;
};

/* Read the answer to GET /v1/health/service/NAME. A weight is Service.Weights.Passing or, with `weight_meta`, the
 * Meta field of that name; 1 if it is missing. WEIR_OK, and `out` is the caller's to free; WEIR_EINVAL or
 * WEIR_ENOMEM with a message, and `out` is unchanged. */
int consul_peers_read(const char *body, size_t len, const char *weight_meta, struct consul_peers *out,
                      struct message message);
void consul_peers_free(struct consul_peers *peers);

struct consul_policies {
    struct policy_entry *entries;
    size_t n;
};

/* Read the answer to GET /v1/kv/<prefix>/?recurse. Folders, which are keys that end in '/' and hold nothing, are
 * left out. A key with a bad policy or without a limit's name becomes an entry with an error. Returns as
 * consul_peers_read() does. */
int consul_policies_read(const char *body, size_t len, const char *prefix, struct consul_policies *out,
                         struct message message);
void consul_policies_free(struct consul_policies *policies);

#endif
