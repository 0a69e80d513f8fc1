/* clf.h - one line of an access log in Common or Combined Log Format.
 *
 *     client ident user [01/Jul/1995:00:00:01 -0400] "GET /path?query HTTP/1.0" 200 6245 "referrer" "agent"
 *
 * The client is a host name or an address. Anything after the size is ignored.
 */
#ifndef WEIR_CLI_CLF_H
#define WEIR_CLI_CLF_H

#include "cli/span.h"

enum clf_key { CLF_CLIENT, CLF_PATH, CLF_USER, CLF_METHOD };

/* Read client, path, user or method. */
bool clf_key_read(struct span name, enum clf_key *out);

/* Read the time and the key of a line. The path excludes the query; a missing part of the request is "-", as in the log
 * itself. On failure return false, and the fault says why. */
bool clf_read(struct span line, enum clf_key which, int64_t *out_time_us, struct span *out_key, struct fault *fault);

/* True if a line, even a damaged one, is more likely from an access log than from anything else. */
bool clf_likely(struct span line);

#endif
