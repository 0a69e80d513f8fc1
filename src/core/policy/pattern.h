/* pattern.h - the keys that an override applies to, as text: one key, or all keys with a prefix. */
#ifndef CORE_POLICY_PATTERN_H
#define CORE_POLICY_PATTERN_H

#include "core/ground/log.h"

#include <weir/weir.h>

struct pattern {
    bool is_prefix; /* it matches all keys that begin with the bytes; otherwise the one key that has these bytes */
    size_t len;
    unsigned char bytes[WEIR_MAX_PATTERN_LEN];
};

/* Read a pattern in the grammar of weir_limit_define(). WEIR_OK, or WEIR_EINVAL with a sentence. */
int pattern_read(const char *text, struct pattern *out, struct message message);

/* True if the pattern matches a key. `is_cut`: these are the key's first bytes, and it is longer. It then counts as
 * matched if the bytes that are there fit. */
bool pattern_matches(const struct pattern *pattern, struct weir_key key, bool is_cut);

/* Write the text of a pattern with these bytes, without a NUL: at most WEIR_MAX_PATTERN_LEN bytes. Return how many. */
size_t pattern_print(const unsigned char *bytes, size_t len, bool is_prefix, char *out);

/* A limit's name, or `<limit>/<pattern>`. */
struct limit_name {
    char limit[WEIR_MAX_NAME_LEN + 1];
    bool is_override;
    struct pattern pattern; /* if is_override */
};

/* Make a name of its two parts; a NULL `pattern` names the limit itself. WEIR_OK, or WEIR_EINVAL with a sentence. */
int limit_name_make(const char *limit, const char *pattern, struct limit_name *out, struct message message);

/* Make a name of one text. */
int limit_name_read(const char *text, struct limit_name *out, struct message message);

#endif
