/* control.h - the control socket of a running limiter: a Unix socket on which `weir stats`, `weir watch` and others
 * ask.
 *
 * A client sends one line and gets one answer, then the connection ends. Words are separated by a blank; a key is
 * written with %XX for blanks, '%', control bytes and bytes above 0x7e.
 *
 *     stats                   limiter allowed=1 denied=0 ...           weir_stats_read()
 *                             limit name=NAME allowed=1 ... policy=P   one of each limit and override in force
 *     top COUNT               key limit=NAME denied=3 error=0 hash=H len=9 key=KEY
 *     peek LIMIT KEY          state limit=3 used=1 ... policy=P        weir_peek() for one permit
 *     reset LIMIT KEY         done                                     weir_reset()
 *     reload                  done                                     policy_file is read again
 *
 * The last line is `end`, so that a client notices if an answer is cut. Instead of all that, `error SENTENCE`.
 *
 * One thread serves all clients. No client can hold up a decision for long: the thread takes no lock that a decision of
 * a known key takes, has a low priority, and turns at most once in CONTROL_TURN_US. It serves at most CONTROL_CLIENTS
 * clients, each for at most CONTROL_PATIENCE_US. When one more arrives, the oldest is disconnected. An answer is made
 * in parts, as the socket's buffer takes them, so a client costs a fixed amount of memory.
 */
#ifndef CONTROL_CONTROL_H
#define CONTROL_CONTROL_H

#include "core/limiter/limiter.h"

#define CONTROL_CLIENTS 16
#define CONTROL_PATIENCE_US (5 * WEIR_SECOND)
#define CONTROL_TURN_US 1000
#define CONTROL_TOP_US (WEIR_SECOND / 4) /* how old an answer to `top` may be: reading holds up denials */
#define CONTROL_LINE_MAX 8192            /* bytes of a request */

struct control;

/* Listen at options->control_socket. WEIR_OK; WEIR_EIO after a line in the log; or WEIR_ENOMEM. If another process
 * listens there, that is a warning: WEIR_OK, and *out is NULL. */
int control_open(const struct weir_options *options, struct control **out);

/* Answer for the limiter, which is complete, from now on. The limiter owns `control` then, and weir_close() ends it. If
 * the system has no thread left, a line says so, and there is no socket. */
void control_start(struct control *control, struct weir *limiter);

/* End the thread, if it was started, and remove the socket, unless another process has replaced it. In a child of fork() both are the parent's, and stay. */
void control_close(struct control *control);

#endif
