/* url.h - where Redis is and who asks: the URL, the password files and the environment, read into one struct.
 *
 *     redis://[user:password@]host[:port][/db]      unix://[user:password@]/path[?db=N]
 *     redis-sentinel://[user:password@]host[:port][,host[:port]...]/service[?db=N]
 *     redis-cluster://[user:password@]host[:port][,host[:port]...][/]
 *     rediss://, rediss-sentinel:// and rediss-cluster://, as these but with TLS
 *
 * With sentinels the hosts are theirs, user and password are those of the servers, which the sentinels name. Those of a
 * cluster are nodes of it that are asked for the others; it has no db but 0. A user or a password may stand alone
 * (`redis://:password@host`, `redis://user@host`); an empty one counts as none. In user, password, path and service any
 * byte but NUL may be written %XX, and `@`, `/`, `?`, `#` and `%` must be where they would be read as something else.
 * An IPv6 address stands in brackets, its zone after `%25`. Whatever is wrong, the sentence says which part it is and never quotes the URL: a stray `/` in a password would show it as a host or db.
 */
#ifndef BACKENDS_REDIS_WIRE_URL_H
#define BACKENDS_REDIS_WIRE_URL_H

#include "core/ground/log.h"

#define REDIS_HOST_MAX 253   /* bytes: what DNS can say */
#define REDIS_PATH_MAX 107   /* bytes: sun_path without its NUL */
#define REDIS_SECRET_MAX 512 /* bytes of a user or a password */
#define REDIS_DB_MAX 65535   /* how many there are is the server's to say */
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
    char *host;     /* NULL if is_unix, `service` or is_cluster; no brackets */
    int port;       /* 1 to 65535; 0 without a host */
    char *path;     /* NULL unless is_unix */
    char *user;     /* NULL: the default user; else there is a password */
    char *password; /* NULL: no AUTH */
    int db;         /* 0 to REDIS_DB_MAX */
    char *service;  /* NULL: no sentinels; else the name by which they know the server */
    bool is_cluster;
    struct redis_host hosts[REDIS_HOSTS_MAX]; /* the sentinels, or nodes of the cluster, as the URL has them */
    size_t host_count;
    char *sentinel_user, *sentinel_password; /* as user and password, for the sentinels */
    bool is_tls;
    struct redis_tls_context *tls; /* NULL unless is_tls; made by redis_open() */
};

/* Read `options`' redis_url and redis_password_file, and WEIR_REDIS_PASSWORD of the environment; the first of the three
 * that has a password is taken and the others are not looked at. For sentinels likewise redis_sentinel_user,
 * redis_sentinel_password_file and WEIR_REDIS_SENTINEL_PASSWORD. WEIR_OK, WEIR_EINVAL, WEIR_EIO (a password file
 * cannot be read) or WEIR_ENOMEM, all but the first with a sentence that begins with the option's name and holds no
 * secret. On WEIR_OK `out` is the caller's to free; on an error it is untouched. */
int redis_target_read(const struct weir_options *options, struct redis_target *out, struct message message);

/* Wipes the secrets, frees all and leaves zeroes; a target of zeroes is fine. */
void redis_target_free(struct redis_target *target);

#endif
