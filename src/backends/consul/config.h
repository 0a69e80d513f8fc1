/* config.h - where Consul's agent is and how weir authenticates: options, files and environment in one struct.
 *
 *     http://host[:port]   https://host[:port]   host[:port]   unix:///path
 *
 * The default port is Consul's: 8500, or 8501 with https. Each error message begins with the name of the option
 * or of the environment variable, and contains no secret. */
#ifndef BACKENDS_CONSUL_CONFIG_H
#define BACKENDS_CONSUL_CONFIG_H

#include "core/ground/log.h"

#define CONSUL_TOKEN_MAX 512 /* bytes; Consul's tokens have 36 */

struct consul_config {
    char *where;       /* for messages: the address or the socket's path */
    char *base;        /* the beginning of every URL, up to the host or port */
    char *socket_path; /* NULL: none */
    char *token;       /* at the start; NULL: none */
    char *token_file;  /* NULL: `token` is from elsewhere; otherwise each request reads it again */
    char *query;       /* the end of every URL, escaped: each parameter with '&' before it; may be empty */
    char *ca_file;     /* NULL: the system's */
    char *cert_file;   /* NULL: none */
    char *key_file;    /* NULL: none, or in cert_file */
    int64_t wait_us, timeout_us;
};

/* Read the configuration. WEIR_OK, and `out` is the caller's to free; WEIR_EINVAL, WEIR_EIO (a file cannot be
 * read) or WEIR_ENOMEM with a message, and `out` is unchanged. */
int consul_config_read(const struct weir_consul *options, struct consul_config *out, struct message message);

/* Write the token to send, or an empty text: that of the file, which may have been rotated; while the file cannot be
 * used, the one that consul_config_read() found. The caller wipes it. */
void consul_config_token(const struct consul_config *config, char token[CONSUL_TOKEN_MAX + 1]);

/* Wipe the token, free everything and leave zeros. Zeros are a valid argument. */
void consul_config_free(struct consul_config *config);

/* Return a URL of the agent: `path`, then `name` with all bytes escaped except letters, digits and -._~ (and '/'
 * if `name_is_path`), then `parameters` and the configured ones. NULL: out of memory. */
char *consul_url(const struct consul_config *config, const char *path, const char *name, bool name_is_path,
                 const char *parameters);

#endif
