/* key.h - the names of keys in Redis: `<prefix><limit>:{<key>}`, and the slots in which they lie.
 *
 * The braces are Redis Cluster's hash tag: all limits over the same caller's key lie in one slot. `%`, `{` and `}` in
 * the key are written %25, %7B and %7D, so that nobody can end the tag early and choose his slot; every other byte
 * stands as it is. A key of more than 512 bytes is written as its first 448, escaped likewise, then `%#` and 64 hex
 * digits of the SHA-256 of the whole key. `%#` comes from nowhere else and neither name nor prefix has a brace, so two
 * pairs of limit and key share a name only if two long keys share a digest.
 */
#ifndef BACKENDS_REDIS_FLIGHT_KEY_H
#define BACKENDS_REDIS_FLIGHT_KEY_H

#include <weir/weir.h>

#define REDIS_PREFIX_MAX 64     /* bytes */
#define REDIS_KEY_WHOLE 512     /* a key of up to this many bytes is written in full */
#define REDIS_KEY_BEGINNING 448 /* bytes of a longer one that are: with the digest no longer than the former */
#define REDIS_CLUSTER_SLOTS 16384

/* Room for what stands between the braces, and for any name; there is no NUL at its end. */
#define REDIS_TAG_MAX (3 * REDIS_KEY_WHOLE)
#define REDIS_KEY_MAX (REDIS_PREFIX_MAX + WEIR_MAX_NAME_LEN + 3 + REDIS_TAG_MAX)

/* Write the name and return its length, at most REDIS_KEY_MAX. `prefix` has up to REDIS_PREFIX_MAX bytes, `limit_name`
 * up to WEIR_MAX_NAME_LEN, `key` 1 to WEIR_MAX_KEY_LEN. */
size_t redis_key_write(const char *prefix, const char *limit_name, struct weir_key key, char *out);

/* The slot of Redis Cluster in which the names of `key` lie, whatever their prefix and limit: 0 to
 * REDIS_CLUSTER_SLOTS - 1. */
unsigned redis_key_slot(struct weir_key key);

#endif
