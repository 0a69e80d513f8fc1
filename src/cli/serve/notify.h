/* notify.h - tells a service manager how far the server is. */
#ifndef WEIR_CLI_SERVE_NOTIFY_H
#define WEIR_CLI_SERVE_NOTIFY_H

/* Send a state such as "READY=1" to the socket that NOTIFY_SOCKET names, if it is set (sd_notify(3)). */
void notify(const char *state);

#endif
