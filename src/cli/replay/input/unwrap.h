/* unwrap.h - what stands around the lines that a server has written.
 *
 * Docker keeps each line as a JSON object: {"log":"LINE\n","stream":"stdout","time":"..."}. An object may also stand
 * behind text: a container's name and time, or Caddy's console format, which is the time, the level, the logger and a
 * message between tabs, and then the object. The time around a line counts if the line itself has none.
 */
#ifndef WEIR_CLI_UNWRAP_H
#define WEIR_CLI_UNWRAP_H

#include "cli/replay/input/json_lines.h"

/* True if Docker has written the line. */
bool unwrap_is_docker(struct span line);

/* Take the line and the time out of Docker's object. On failure return false, and the fault says why. The spans are
 * valid until the next call. */
bool unwrap_docker(struct json_lines *json, struct span line, struct span *out_line, struct span *out_time,
                   struct fault *fault);

/* Return the JSON object at the end of a line, and the time before it, which may be empty. The object is empty if there
 * is none. */
struct span unwrap_object(struct span line, struct span *out_time);

/* True if Caddy has written the line: for a request, or about anything else. */
bool unwrap_is_caddy_request(struct span line);
bool unwrap_is_caddy_other(struct span line);

#endif
