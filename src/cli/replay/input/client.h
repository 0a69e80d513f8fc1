/* client.h - what servers write as a client: a host name, an address, or an address with a port. */
#ifndef WEIR_CLI_CLIENT_H
#define WEIR_CLI_CLIENT_H

#include "cli/span.h"

/* True for a host name, an address, or "unix:", which nginx writes for each client of a Unix socket. */
bool is_client(struct span word);

/* True for an IPv4 or IPv6 address. An IPv6 one may have a zone, as in fe80::1%eth0. */
bool is_address(struct span word);

/* Return the client without its port and brackets: [2001:db8::7]:443 is 2001:db8::7. */
struct span client_without_port(struct span word);

#endif
