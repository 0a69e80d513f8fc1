/* url.h - where Redis is, and as whom to log in: the URL, the password files and the environment in one struct.
 *
 *     redis://[user:password@]host[:port][/db]      unix://[user:password@]/path[?db=N]
 *     redis-sentinel://[user:password@]host[:port][,host[:port]...]/service[?db=N]
 *     redis-cluster://[user:password@]host[:port][,host[:port]...][/]
 *     rediss://, rediss-sentinel:// and rediss-cluster://, which are the same with TLS
 *
 * With sentinels the hosts are the sentinels, but user and password are for the servers that they name. With a cluster
 * the hosts are some of its nodes; a cluster has db 0 only. A user or a password may stand alone
 * (`redis://:password@host`, `redis://user@host`); an empty one counts as missing. In user, password, path and service
 * any byte except NUL may be written %XX; `@`, `/`, `?`, `#` and `%` must be where they would otherwise have a meaning.
 * An IPv6 address is written in brackets, with its zone after `%25`. An error message names the faulty part and never
 * quotes the URL: after a stray `/` in a password, the host or the db would show a part of that password.
 */
#ifndef BACKENDS_REDIS_WIRE_URL_H
#define BACKENDS_REDIS_WIRE_URL_H

#include "core/ground/log.h"

#define REDIS_HOST_MAX 253   /* bytes, as in DNS */
#define REDIS_PATH_MAX 107   /* bytes: sun_path without its NUL */
#define REDIS_SECRET_MAX 512 /* bytes of a user or a password */
#define REDIS_DB_MAX 65535   /* the server decides how many there are */
#define REDIS_DEFAULT_PORT 6379
#define REDIS_SENTINEL_DEFAULT_PORT 26379
#define REDIS_HOSTS_MAX 16    /* of a URL */
#define REDIS_SERVICE_MAX 255 /* bytes of a service's name */

struct redis_host {
    char *name; /* or address, without brackets */
    int port;   /* 1 to 65535 */
};

struct redis_target {
    bool is_unix;
    char *host;          /* NULL if is_unix, `service` or is_cluster; no brackets */
    int port;            /* 1 to 65535; 0 without a host */
    char *path;          /* NULL unless is_unix */
    char *user;          /* NULL: the default user; otherwise there is a password */
    char *password;      /* NULL: no AUTH */
    char *password_file; /* NULL: `password` is from elsewhere; otherwise each connection reads it again */
    int db;              /* 0 to REDIS_DB_MAX */
    char *service;       /* NULL: no sentinels; otherwise their name for the server */
    bool is_cluster;
    struct redis_host hosts[REDIS_HOSTS_MAX]; /* the sentinels, or nodes of the cluster, in the URL's order */
    size_t host_count;
    char *sentinel_user, *sentinel_password, *sentinel_password_file; /* to log in at the sentinels */
    bool is_tls;
    struct redis_tls_context *tls; /* NULL unless is_tls; made by redis_target_secure() */
};

/* Read redis_url and redis_password_file from the options, and WEIR_REDIS_PASSWORD from the environment. The first of
 * them that has a password is used; the others are not looked at. The same holds for the sentinels'
 * redis_sentinel_user, redis_sentinel_password_file and WEIR_REDIS_SENTINEL_PASSWORD. WEIR_OK, WEIR_EINVAL, WEIR_EIO (a
 * password file cannot be read) or WEIR_ENOMEM; an error comes with a message that begins with the option's name and
 * holds no secret. On WEIR_OK the caller frees `out`; on an error it is untouched. */
int redis_target_read(const struct weir_options *options, struct redis_target *out, struct message message);

/* Make the context that all TLS connections share, if the URL asks for TLS. WEIR_OK, or an error as of
 * redis_tls_context_make(); WEIR_EINVAL, too, for options of TLS beside a URL without it. */
int redis_target_secure(const struct weir_options *options, struct redis_target *target, struct message message);

/* Wipe the secrets, free everything and leave zeroes. A target of zeroes is allowed. */
void redis_target_free(struct redis_target *target);

#endif
