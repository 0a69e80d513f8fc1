/* keys.h - what identifies whose request a row is: one field or several, an address perhaps by its prefix.
 *
 *     client          the field
 *     user+path       both, with a space between them; a space in a field becomes %20
 *     client/64       of an IPv6 address the first 64 bits; client/24 of an IPv4 address the first 24; client/24/64 both
 */
#ifndef WEIR_CLI_KEYS_H
#define WEIR_CLI_KEYS_H

#include "cli/span.h"

#define KEYS_MAX_PARTS 4
#define KEYS_NAME_SIZE 128

struct key_part {
    char name[KEYS_NAME_SIZE]; /* empty: the input's usual field */
    int ipv4_bits, ipv6_bits;  /* 0: the whole address */
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

#endif
