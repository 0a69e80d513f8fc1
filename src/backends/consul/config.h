/* config.h - where Consul's agent is and who asks it: options, files and environment, read into one struct.
 *
 *     http://host[:port]   https://host[:port]   host[:port]   unix:///path
 *
 * A port that is not given is Consul's own: 8500, with https 8501. Whatever is wrong, the sentence begins with the
 * option's name, or the environment variable's, and holds no secret.
 */
#ifndef BACKENDS_CONSUL_CONFIG_H
#define BACKENDS_CONSUL_CONFIG_H

#include "core/ground/log.h"

#define CONSUL_TOKEN_MAX 512 /* bytes; Consul's own have 36 */

struct consul_config {
    char *where;       /* for sentences: the address, or the socket's path */
    char *base;        /* what every URL begins with, up to the host or port */
    char *socket_path; /* NULL: none */
    char *token;       /* NULL: none */
    char *query;       /* what every URL ends with, escaped: each parameter with an '&' before it; may be empty */
    char *ca_file;     /* NULL: the system's */
    char *cert_file;   /* NULL: none */
    char *key_file;    /* NULL: none, or in cert_file */
    int64_t wait_us, timeout_us;
};

/* WEIR_OK, WEIR_EINVAL, WEIR_EIO (a file cannot be read) or WEIR_ENOMEM, all but the first with a sentence. On
 * WEIR_OK `out` is the caller's to free; on an error it is untouched. */
int consul_config_read(const struct weir_consul *options, struct consul_config *out, struct message message);

/* Wipes the token, frees all and leaves zeroes; zeroes are fine. */
void consul_config_free(struct consul_config *config);

/* A URL of the agent: `path`, `name` with all but letters, digits and -._~ escaped (and '/', if `name_is_path`), then
 * `parameters` and the configured ones. NULL: out of memory. */
char *consul_url(const struct consul_config *config, const char *path, const char *name, bool name_is_path,
                 const char *parameters);

#endif
