/* key.h - the names of keys in Redis, `<prefix><limit>:{<key>}`, and their slots.
 *
 * The braces are Redis Cluster's hash tag: the limits over one key all share a slot. In the key, `%`, `{` and `}` are
 * written %25, %7B and %7D, so that no key can end the tag early and choose its slot. Every other byte is written as it
 * is. A key of more than 512 bytes is written as its first 448 bytes, escaped in the same way, then `%#` and the
 * SHA-256 of the whole key in 64 hex digits. `%#` cannot come from escaping, and neither names nor prefixes contain a
 * brace. So two pairs of limit and key have the same name only if two long keys have the same digest.
 */
#ifndef BACKENDS_REDIS_FLIGHT_KEY_H
#define BACKENDS_REDIS_FLIGHT_KEY_H

#include <weir/weir.h>

#define REDIS_PREFIX_MAX 64     /* bytes */
#define REDIS_KEY_WHOLE 512     /* keys of up to this many bytes are written in full */
#define REDIS_KEY_BEGINNING 448 /* bytes written of a longer key: escaped, with the digest, at most REDIS_TAG_MAX */
#define REDIS_CLUSTER_SLOTS 16384

/* The longest text between braces, and the longest name; neither ends with a NUL. */
#define REDIS_TAG_MAX (3 * REDIS_KEY_WHOLE)
#define REDIS_KEY_MAX (REDIS_PREFIX_MAX + WEIR_MAX_NAME_LEN + 3 + REDIS_TAG_MAX)

/* Behind the name: that of the key's slots, and that of their costs. lua/slots_of.lua */
#define REDIS_SLOTS_SUFFIX ":s"
#define REDIS_COSTS_SUFFIX ":c"
#define REDIS_SUFFIX_LEN 2

/* Return the length of the name, at most REDIS_KEY_MAX. `prefix` has up to REDIS_PREFIX_MAX bytes, `limit_name` up to
 * WEIR_MAX_NAME_LEN, `key` 1 to WEIR_MAX_KEY_LEN. */
size_t redis_key_len(const char *prefix, const char *limit_name, struct weir_key key);

/* Write the name and return its length. */
size_t redis_key_write(const char *prefix, const char *limit_name, struct weir_key key, char *out);

/* Return the slot of all names of `key`, whatever their prefix and limit: 0 to REDIS_CLUSTER_SLOTS - 1. */
unsigned redis_key_slot(struct weir_key key);

#endif
