/* answer.h - what Consul's agent answers, read from JSON: instances of a service, policies under a prefix.
 *
 * The text is not trusted: before it is parsed it is refused if it nests deeper than CONSUL_NESTING_MAX or has more
 * than CONSUL_CONTAINERS_MAX objects and arrays (each takes some 200 bytes of memory), and every field's type is
 * looked at. Fields that are not read may be anything that JSON has: a NUL in text, a number of any size, a name twice.
 */
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

/* From GET /v1/health/service/NAME. A weight is Service.Weights.Passing, or with `weight_meta` the Meta field of that
 * name; 1 where there is none. WEIR_OK, WEIR_EINVAL or WEIR_ENOMEM, the latter two with half a sentence. On WEIR_OK
 * `out` is the caller's to free; on an error it is untouched. */
int consul_peers_read(const char *body, size_t len, const char *weight_meta, struct consul_peers *out,
                      struct message message);
void consul_peers_free(struct consul_peers *peers);

struct consul_policies {
    struct policy_entry *entries;
    size_t n;
};

/* From GET /v1/kv/<prefix>/?recurse; folders, whose keys end in '/' and hold nothing, are left out. What stands under a
 * key that is no policy, or whose name is no limit's, becomes an entry with an error. Returns as above. */
int consul_policies_read(const char *body, size_t len, const char *prefix, struct consul_policies *out,
                         struct message message);
void consul_policies_free(struct consul_policies *policies);

#endif
