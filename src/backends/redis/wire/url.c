/* url.c - reads Redis' URL and finds the password for it. */
#include "backends/redis/wire/url.h"

#include "backends/redis/wire/text.h"
#include "backends/redis/wire/tls.h"
#include "backends/shared/files.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdlib.h>

#define SCHEMES \
    "redis://, rediss://, redis-sentinel://, rediss-sentinel://, redis-cluster://, rediss-cluster:// or unix://"

struct reader {
    struct redis_target target;
    struct message message;
};

static void free_secret(char *secret)
{
    if (secret)
        explicit_bzero(secret, strlen(secret));
    free(secret);
}

void redis_target_free(struct redis_target *target)
{
    free(target->host);
    free(target->path);
    free_secret(target->user);
    free_secret(target->password);
    free(target->password_file);
    free(target->service);
    for (size_t i = 0; i < target->host_count; i++)
        free(target->hosts[i].name);
    free_secret(target->sentinel_user);
    free_secret(target->sentinel_password);
    free(target->sentinel_password_file);
    redis_tls_context_free(target->tls);
    *target = (struct redis_target){ 0 };
}

/* ---- Parts ---- */

static int url_no_memory(struct message message, const char *option)
{
    message_write(message, "%s: out of memory", option);
    return WEIR_ENOMEM;
}

static bool starts_with(const char *text, const char *beginning)
{
    return strncmp(text, beginning, strlen(beginning)) == 0;
}

static bool is_name_byte(char c)
{
    return redis_is_digit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '.' || c == '-' || c == '_';
}

static int hex_value(char c)
{
    if (redis_is_digit(c))
        return c - '0';
    if (c >= 'a' && c <= 'f')
        return c - 'a' + 10;
    return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

/* Copy `part` and resolve its escapes. An empty part gives NULL. */
static int url_decode(struct reader *reader, struct redis_text part, const char *name, size_t max, char **out)
{
    if (part.len == 0)
        return WEIR_OK;
    char *decoded = malloc(part.len + 1);
    if (!decoded)
        return url_no_memory(reader->message, "redis_url");
    int error = WEIR_OK;
    size_t len = 0;
    for (size_t i = 0; i < part.len && !error; i++) {
        char c = part.at[i];
        if (c == '%') {
            int high = i + 2 < part.len ? hex_value(part.at[i + 1]) : -1;
            int low = high >= 0 ? hex_value(part.at[i + 2]) : -1;
            c = (char)(high * 16 + low);
            i += 2;
            if (low < 0)
                error = message_refuse(reader->message, "redis_url: a '%%' in the %s is not followed by two hex digits",
                                       name);
            else if (c == '\0')
                error = message_refuse(reader->message, "redis_url: %%00 in the %s", name);
        }
        decoded[len++] = c;
    }
    if (!error && len > max)
        error = message_refuse(reader->message, "redis_url: the %s is longer than %zu bytes", name, max);
    if (error) {
        explicit_bzero(decoded, len);
        free(decoded);
        return error;
    }
    decoded[len] = '\0';
    *out = decoded;
    return WEIR_OK;
}

/* ---- The URL ---- */

static int url_read_user(struct reader *reader, struct redis_text info)
{
    struct redis_text user = redis_text_cut(&info, ':');
    int error = url_decode(reader, user, "user", REDIS_SECRET_MAX, &reader->target.user);
    return error ? error : url_decode(reader, info, "password", REDIS_SECRET_MAX, &reader->target.password);
}

static int url_read_db(struct reader *reader, struct redis_text db)
{
    reader->target.db = redis_text_number(db, 0, REDIS_DB_MAX);
    return reader->target.db >= 0 ? WEIR_OK
                                  : message_refuse(reader->message, "redis_url: the db must be 0 to %d", REDIS_DB_MAX);
}

/* `host` comes without its brackets. */
static int url_read_ipv6(struct reader *reader, struct redis_text host, char **out)
{
    char text[REDIS_HOST_MAX + 1];
    struct in6_addr address;
    bool is_good = host.len < sizeof text;
    if (is_good) {
        memcpy(text, host.at, host.len);
        text[host.len] = '\0';
        char *zone = strchr(text, '%');
        if (zone) {
            is_good = starts_with(zone, "%25") && zone[3];
            for (const char *at = zone + 3; is_good && *at; at++)
                is_good = is_name_byte(*at);
            *zone = '\0';
        }
        is_good = is_good && inet_pton(AF_INET6, text, &address) == 1;
        if (is_good && zone) {
            *zone = '%';
            memmove(zone + 1, zone + 3, strlen(zone + 3) + 1);
        }
    }
    if (!is_good)
        return message_refuse(reader->message, "redis_url: the host in brackets is not an IPv6 address");
    *out = strdup(text);
    return *out ? WEIR_OK : url_no_memory(reader->message, "redis_url");
}

static int url_read_host(struct reader *reader, struct redis_text host, char **out)
{
    if (host.len == 0)
        return message_refuse(reader->message, "redis_url: the host is missing");
    if (host.len > REDIS_HOST_MAX)
        return message_refuse(reader->message, "redis_url: the host is longer than %d bytes", REDIS_HOST_MAX);
    for (size_t i = 0; i < host.len; i++)
        if (!is_name_byte(host.at[i]))
            return message_refuse(reader->message, "redis_url: the host may have letters, digits, '.', '-' and '_', or "
                                                   "be an IPv6 address in brackets");
    *out = strndup(host.at, host.len);
    return *out ? WEIR_OK : url_no_memory(reader->message, "redis_url");
}

static int url_read_address(struct reader *reader, struct redis_text address, int default_port, char **host, int *port)
{
    int error;
    if (address.len > 0 && address.at[0] == '[') {
        struct redis_text rest = { address.at + 1, address.len - 1 };
        struct redis_text digits = redis_text_cut(&rest, ']');
        if (!rest.at)
            return message_refuse(reader->message, "redis_url: the bracket before the address is never closed");
        error = url_read_ipv6(reader, digits, host);
        address = rest;
        struct redis_text garbage = redis_text_cut(&address, ':');
        if (!error && garbage.len > 0)
            error = message_refuse(reader->message, "redis_url: after the brackets a ':' and the port are expected");
    } else {
        error = url_read_host(reader, redis_text_cut(&address, ':'), host);
    }
    *port = address.at ? redis_text_number(address, 1, 65535) : default_port;
    if (!error && *port < 0)
        error = message_refuse(reader->message, "redis_url: the port must be 1 to 65535");
    return error;
}

static int url_read_redis(struct reader *reader, struct redis_text address, struct redis_text path)
{
    int error = url_read_address(reader, address, REDIS_DEFAULT_PORT, &reader->target.host, &reader->target.port);
    if (error)
        return error;
    if (memchr(path.at, '?', path.len) || memchr(path.at, '#', path.len))
        return message_refuse(reader->message, "redis_url: redis%s:// takes no '?' or '#'; the db is written /N",
                              reader->target.is_tls ? "s" : "");
    if (path.len <= 1) /* "" or "/" */
        return WEIR_OK;
    return url_read_db(reader, (struct redis_text){ path.at + 1, path.len - 1 });
}

/* `query` follows a '?'; its text is NULL if there was none. */
static int url_read_query(struct reader *reader, struct redis_text query)
{
    if (!query.at)
        return WEIR_OK;
    if (query.len < 3 || !starts_with(query.at, "db="))
        return message_refuse(reader->message, "redis_url: after the '?' only db=N is known");
    return url_read_db(reader, (struct redis_text){ query.at + 3, query.len - 3 });
}

static int url_read_hosts(struct reader *reader, struct redis_text addresses, int default_port)
{
    struct redis_target *target = &reader->target;
    int error = WEIR_OK;
    while (addresses.at && !error) {
        if (target->host_count == REDIS_HOSTS_MAX)
            return message_refuse(reader->message, "redis_url: there are more than %d hosts", REDIS_HOSTS_MAX);
        struct redis_host *host = &target->hosts[target->host_count++];
        error = url_read_address(reader, redis_text_cut(&addresses, ','), default_port, &host->name, &host->port);
    }
    return error;
}

static int url_read_sentinels(struct reader *reader, struct redis_text addresses, struct redis_text path)
{
    int error = url_read_hosts(reader, addresses, REDIS_SENTINEL_DEFAULT_PORT);
    if (error)
        return error;
    struct redis_text service = redis_text_cut(&path, '?');
    if (service.len <= 1) /* "" or "/" */
        return message_refuse(reader->message, "redis_url: the service's name is missing: "
                                               "redis-sentinel://host/service");
    service = (struct redis_text){ service.at + 1, service.len - 1 };
    if (memchr(service.at, '/', service.len) || memchr(service.at, '#', service.len))
        return message_refuse(reader->message, "redis_url: in the service's name a '/' is written %%2F and a '#' %%23; "
                                               "the db is written ?db=N");
    error = url_decode(reader, service, "service's name", REDIS_SERVICE_MAX, &reader->target.service);
    return error ? error : url_read_query(reader, path);
}

static int url_read_cluster(struct reader *reader, struct redis_text addresses, struct redis_text path)
{
    reader->target.is_cluster = true;
    int error = url_read_hosts(reader, addresses, REDIS_DEFAULT_PORT);
    if (!error && path.len > 0 && (path.len > 1 || path.at[0] != '/'))
        error = message_refuse(reader->message,
                               "redis_url: nothing may follow the hosts of redis-cluster://: a cluster "
                               "has no db but 0");
    return error;
}

static int url_read_unix(struct reader *reader, struct redis_text address, struct redis_text rest)
{
    reader->target.is_unix = true;
    struct redis_text path = redis_text_cut(&rest, '?');
    if (address.len > 0 || path.len == 0)
        return message_refuse(reader->message, "redis_url: the path of unix:// must begin with '/'");
    if (memchr(path.at, '#', path.len))
        return message_refuse(reader->message, "redis_url: a '#' in the path is written %%23");
    int error = url_decode(reader, path, "path", REDIS_PATH_MAX, &reader->target.path);
    return error ? error : url_read_query(reader, rest);
}

/* How each scheme begins, and the function that reads what follows, without user and password: first up to the path,
 * then the path. */
static const struct scheme {
    const char *beginning;
    bool is_tls;
    int (*read)(struct reader *reader, struct redis_text address, struct redis_text path);
} schemes[] = {
    { "redis://", false, url_read_redis },
    { "rediss://", true, url_read_redis },
    { "redis-sentinel://", false, url_read_sentinels },
    { "rediss-sentinel://", true, url_read_sentinels },
    { "redis-cluster://", false, url_read_cluster },
    { "rediss-cluster://", true, url_read_cluster },
    { "unix://", false, url_read_unix },
};

/* NULL: the scheme is unknown. */
static const struct scheme *scheme_of(const char *url)
{
    for (size_t i = 0; i < sizeof schemes / sizeof schemes[0]; i++)
        if (starts_with(url, schemes[i].beginning))
            return &schemes[i];
    return NULL;
}

static int read_url(struct reader *reader, const char *url)
{
    if (!url || !*url)
        return message_refuse(reader->message, "redis_url is required in distributed mode");
    for (const char *at = url; *at; at++)
        if ((unsigned char)*at <= ' ' || *at == 0x7f)
            return message_refuse(reader->message, "redis_url: a blank or control byte is written %%XX");
    const struct scheme *scheme = scheme_of(url);
    if (!scheme)
        return message_refuse(reader->message, "redis_url must begin with " SCHEMES);
    reader->target.is_tls = scheme->is_tls;

    const char *authority = url + strlen(scheme->beginning);
    struct redis_text address = { authority, strcspn(authority, "/?#") };
    struct redis_text path = { authority + address.len, strlen(authority + address.len) };
    if (memchr(address.at, '@', address.len)) {
        int error = url_read_user(reader, redis_text_cut(&address, '@'));
        if (error)
            return error;
    }
    if (memchr(address.at, '@', address.len) || memchr(path.at, '@', path.len))
        return message_refuse(reader->message, "redis_url: an '@' of a user, password or path is written %%40, and a "
                                               "'/', '?' or '#' before it %%2F, %%3F or %%23");
    return scheme->read(reader, address, path);
}

/* ---- Passwords outside the URL ---- */

/* Where to look for a password. */
struct whose {
    const char *option, *file; /* the option that names a file, and its value */
    const char *environment;
    const char *user_alone;          /* the message for a user without a password, up to the list of places */
    char **user, **password, **path; /* `path`: that of the file, if the password is from there */
};

static int take_secret(struct reader *reader, const char *bytes, size_t len, const char *what, const char *where,
                       char **out)
{
    if (len > REDIS_SECRET_MAX)
        return message_refuse(reader->message, "%s: the %s is longer than %d bytes", where, what, REDIS_SECRET_MAX);
    if (memchr(bytes, '\0', len))
        return message_refuse(reader->message, "%s: the %s has a NUL byte", where, what);
    *out = strndup(bytes, len);
    return *out ? WEIR_OK : url_no_memory(reader->message, where);
}

static int read_password_file(struct reader *reader, const struct whose *whose)
{
    char line[REDIS_SECRET_MAX + 3]; /* room for CR and LF, and for one byte too many */
    size_t len;
    if (secret_file_read(whose->file, line, sizeof line, &len) != 0) {
        message_write(reader->message, "%s \"%s\" cannot be read: %s", whose->option, whose->file, strerror(errno));
        return WEIR_EIO;
    }
    int error = len > 0
                    ? take_secret(reader, line, len, "password", whose->option, whose->password)
                    : message_refuse(reader->message, "%s \"%s\" has an empty first line", whose->option, whose->file);
    explicit_bzero(line, sizeof line);
    if (!error && (error = path_absolute(whose->file, whose->path)) != WEIR_OK)
        message_write(reader->message, "%s \"%s\": %s", whose->option, whose->file,
                      error == WEIR_EIO ? strerror(errno) : "out of memory");
    return error;
}

static int find_password(struct reader *reader, const struct whose *whose)
{
    int error = WEIR_OK;
    const char *environment = getenv(whose->environment);
    if (*whose->password)
        return WEIR_OK;
    if (whose->file)
        error = read_password_file(reader, whose);
    else if (environment && *environment)
        error = take_secret(reader, environment, strlen(environment), "password", whose->environment, whose->password);
    if (!error && *whose->user && !*whose->password)
        error = message_refuse(reader->message, "%s, no %s, no %s in the environment", whose->user_alone, whose->option,
                               whose->environment);
    return error;
}

static int find_sentinel_password(struct reader *reader, const struct weir_options *options)
{
    struct redis_target *target = &reader->target;
    const char *user = options->redis_sentinel_user, *file = options->redis_sentinel_password_file;
    if (!target->service && (user || file))
        return message_refuse(reader->message,
                              "%s is for a redis_url that begins with redis-sentinel:// or "
                              "rediss-sentinel://",
                              user ? "redis_sentinel_user" : "redis_sentinel_password_file");
    if (!target->service)
        return WEIR_OK;
    int error = user && *user
                    ? take_secret(reader, user, strlen(user), "user", "redis_sentinel_user", &target->sentinel_user)
                    : WEIR_OK;
    return error ? error
                 : find_password(reader, &(struct whose){
                                             .option = "redis_sentinel_password_file",
                                             .file = file,
                                             .environment = "WEIR_REDIS_SENTINEL_PASSWORD",
                                             .user_alone = "redis_sentinel_user is given, but there is no password",
                                             .user = &target->sentinel_user,
                                             .password = &target->sentinel_password,
                                             .path = &target->sentinel_password_file,
                                         });
}

int redis_target_read(const struct weir_options *options, struct redis_target *out, struct message message)
{
    struct reader reader = { .message = message };
    int error = read_url(&reader, options->redis_url);
    if (!error)
        error = find_password(&reader,
                              &(struct whose){
                                  .option = "redis_password_file",
                                  .file = options->redis_password_file,
                                  .environment = "WEIR_REDIS_PASSWORD",
                                  .user_alone = "redis_url has a user, but there is no password: not in the URL",
                                  .user = &reader.target.user,
                                  .password = &reader.target.password,
                                  .path = &reader.target.password_file,
                              });
    if (!error)
        error = find_sentinel_password(&reader, options);
    if (error)
        redis_target_free(&reader.target);
    else
        *out = reader.target;
    return error;
}

int redis_target_secure(const struct weir_options *options, struct redis_target *target, struct message message)
{
    const char *given = options->redis_ca_file     ? "redis_ca_file"
                        : options->redis_cert_file ? "redis_cert_file"
                        : options->redis_key_file  ? "redis_key_file"
                        : options->redis_insecure  ? "redis_insecure"
                                                   : NULL;
    if (target->is_tls)
        return redis_tls_context_make(options, &target->tls, message);
    if (!given)
        return WEIR_OK;
    return message_refuse(message,
                          "%s is for a redis_url that begins with rediss://, rediss-sentinel:// or "
                          "rediss-cluster://",
                          given);
}
