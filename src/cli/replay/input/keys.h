/* keys.h - what identifies whose request a row is: one field or several, an address perhaps by its prefix.
 *
 *     client            the field
 *     user+path         both, with a space between them; a space in a field becomes %20
 *     client/64         of an IPv6 address the first 64 bits; client/24 of an IPv4 address the first 24; client/24/64 both
 *     x_forwarded_for#2 of several addresses with commas between them the second; #-1 is the last one
 *
 * Text that is an address becomes the same key in whatever way a producer writes it: without a port, brackets or a
 * zone, and an IPv4 address in IPv6 (::ffff:192.0.2.7) as IPv4. Of several addresses the first is the client, unless a
 * number chooses another one. Other text stays as it is.
 */
#ifndef WEIR_CLI_KEYS_H
#define WEIR_CLI_KEYS_H

#include "cli/span.h"

#define KEYS_MAX_PARTS 4
#define KEYS_NAME_SIZE 128
#define KEYS_ADDRESS_SIZE 64 /* an address and its prefix as text */

struct key_part {
    char name[KEYS_NAME_SIZE]; /* empty: the input's usual field */
    int ipv4_bits, ipv6_bits;  /* 0: the whole address */
    int pick;                  /* of several addresses: 1 is the first, -1 the last; 0: not chosen, the first */
    size_t field;              /* the caller's number of the field */
};

struct key_spec {
    const char *text; /* as the user wrote it; NULL: the input's usual field */
    size_t count;
    struct key_part parts[KEYS_MAX_PARTS];
};

struct key_buffer { /* the bytes of a key that is not a field as it stands */
    char *bytes;
    size_t size;
};

/* Read a key; NULL is the usual field. On failure return false, and the fault says why. */
bool key_spec_read(struct key_spec *spec, const char *text, struct fault *fault);

/* Make the key out of the fields' values. False: out of memory. The key is valid until the next call. */
bool key_make(const struct key_spec *spec, const struct span *values, struct key_buffer *buffer, struct span *out);

/* True for an IPv4 or IPv6 address, perhaps with brackets, a port or a zone. */
bool key_is_address(struct span text);

/* True for the address of a machine that is not reached from the internet. */
bool key_is_private(struct span text);

/* True for what producers write as a client: an address, several with commas between them, a host name, or "unix:",
 * which nginx writes for each client of a Unix socket. */
bool key_is_client(struct span text);

#endif
