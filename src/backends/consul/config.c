/* config.c - reads the address of Consul's agent, its token and its certificates. */
#include "backends/consul/config.h"

#include "backends/shared/files.h"

#include <curl/curl.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/un.h>
#include <unistd.h>

#define DEFAULT_ADDRESS "http://127.0.0.1:8500"
#define UNIX_PREFIX "unix://"

/* A setting, and the name that messages use: an option's or an environment variable's. */
struct setting {
    const char *name;
    const char *value; /* NULL: not set */
};

struct reader {
    struct consul_config config;
    struct message message;
};

void consul_config_free(struct consul_config *config)
{
    if (config->token)
        explicit_bzero(config->token, strlen(config->token));
    free(config->where);
    free(config->base);
    free(config->socket_path);
    free(config->token);
    free(config->token_file);
    free(config->query);
    free(config->ca_file);
    free(config->cert_file);
    free(config->key_file);
    *config = (struct consul_config){ 0 };
}

static int config_no_memory(const struct reader *reader)
{
    message_write(reader->message, "option consul: out of memory");
    return WEIR_ENOMEM;
}

static int config_print(const struct reader *reader, char **out, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

static int config_print(const struct reader *reader, char **out, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    int len = vasprintf(out, format, arguments);
    va_end(arguments);
    if (len >= 0)
        return WEIR_OK;
    *out = NULL;
    return config_no_memory(reader);
}

/* Return the option if it is given, otherwise the environment variable, where an empty one counts as not set. */
static struct setting config_option_or(const char *option, const char *value, const char *variable)
{
    const char *environment = variable && !value ? getenv(variable) : NULL;
    if (environment && *environment)
        return (struct setting){ variable, environment };
    return (struct setting){ option, value };
}

/* ---- Bytes of a URL ---- */

/* Escape all bytes of `text` except letters, digits, "-._~" and those in `also`. `out` has room for 3 bytes each. */
static char *config_escape(char *out, const char *text, const char *also)
{
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._~";
    for (; *text; text++) {
        if (strchr(plain, *text) || strchr(also, *text))
            *out++ = *text;
        else
            out += sprintf(out, "%%%02X", (unsigned)(unsigned char)*text);
    }
    *out = '\0';
    return out;
}

char *consul_url(const struct consul_config *config, const char *path, const char *name, bool name_is_path,
                 const char *parameters)
{
    size_t room = strlen(config->base) + strlen(path) + 3 * strlen(name) + strlen(parameters) + strlen(config->query) +
                  2;
    char *url = malloc(room);
    if (!url)
        return NULL;
    char *at = stpcpy(stpcpy(url, config->base), path);
    at = config_escape(at, name, name_is_path ? "/" : "");
    const char *query = config->query;
    if (*parameters || *query)
        *at++ = '?';
    at = stpcpy(at, parameters);
    stpcpy(at, *parameters || !*query ? query : query + 1);
    return url;
}

/* ---- The address ---- */

/* Read an address that is not a socket's path. Only scheme, host and port are allowed: a password, for example,
 * would show up in messages. */
static int read_parts(struct reader *reader, struct setting address, CURLU *parts, const char *text)
{
    char *scheme = NULL, *host = NULL, *port = NULL, *path = NULL, *other = NULL;
    int error = WEIR_OK;
    if (curl_url_set(parts, CURLUPART_URL, text, CURLU_NON_SUPPORT_SCHEME) != CURLUE_OK ||
        curl_url_get(parts, CURLUPART_SCHEME, &scheme, 0) != CURLUE_OK ||
        curl_url_get(parts, CURLUPART_HOST, &host, 0) != CURLUE_OK ||
        curl_url_get(parts, CURLUPART_PATH, &path, 0) != CURLUE_OK)
        error = message_refuse(reader->message, "%s must be [http://|https://]host[:port] or unix:///path",
                               address.name);
    else if (strcmp(scheme, "http") != 0 && strcmp(scheme, "https") != 0)
        error = message_refuse(reader->message, "%s must begin with http://, https:// or unix://", address.name);
    else if (curl_url_get(parts, CURLUPART_USER, &other, 0) == CURLUE_OK ||
             curl_url_get(parts, CURLUPART_PASSWORD, &other, 0) == CURLUE_OK)
        error = message_refuse(reader->message, "%s may have no user or password: Consul uses tokens", address.name);
    else if (strcmp(path, "/") != 0 || strpbrk(text, "?#"))
        error = message_refuse(reader->message, "%s may have nothing after the host and port", address.name);
    if (!error) {
        bool has_port = curl_url_get(parts, CURLUPART_PORT, &port, 0) == CURLUE_OK;
        const char *own = strcmp(scheme, "https") == 0 ? "8501" : "8500";
        if (has_port && strtol(port, NULL, 10) < 1)
            error = message_refuse(reader->message, "%s: the port must be 1 to 65535", address.name);
        else
            error = config_print(reader, &reader->config.base, "%s://%s:%s", scheme, host, has_port ? port : own);
        if (!error)
            error = config_print(reader, &reader->config.where, "%s:%s", host, has_port ? port : own);
    }
    curl_free(scheme);
    curl_free(host);
    curl_free(port);
    curl_free(path);
    curl_free(other);
    return error;
}

static int read_network_address(struct reader *reader, struct setting address)
{
    char *with_scheme = NULL;
    CURLU *parts = curl_url();
    int error = parts ? config_print(reader, &with_scheme, "%s%s", strstr(address.value, "://") ? "" : "http://",
                                     address.value)
                      : config_no_memory(reader);
    if (!error)
        error = read_parts(reader, address, parts, with_scheme);
    free(with_scheme);
    curl_url_cleanup(parts);
    return error;
}

static int config_read_address(struct reader *reader, const char *option)
{
    struct setting address = config_option_or("option consul.address", option, "CONSUL_HTTP_ADDR");
    if (!address.value)
        address.value = DEFAULT_ADDRESS;
    for (const char *at = address.value; *at; at++)
        if ((unsigned char)*at <= ' ' || (unsigned char)*at >= 0x7f)
            return message_refuse(reader->message, "%s has a byte that is blank, a control or not ASCII", address.name);
    if (strncmp(address.value, UNIX_PREFIX, strlen(UNIX_PREFIX)) != 0)
        return read_network_address(reader, address);

    const char *path = address.value + strlen(UNIX_PREFIX);
    if (*path != '/' || strlen(path) >= sizeof((struct sockaddr_un *)0)->sun_path)
        return message_refuse(reader->message,
                              "%s: the path after unix:// must begin with '/' and have less than %zu bytes",
                              address.name, sizeof((struct sockaddr_un *)0)->sun_path);
    int error = config_print(reader, &reader->config.socket_path, "%s", path);
    if (!error)
        error = config_print(reader, &reader->config.where, "%s", path);
    return error ? error : config_print(reader, &reader->config.base, "http://localhost");
}

/* Keep the path of a file that is read again later. */
static int config_keep_path(struct reader *reader, struct setting file, char **out)
{
    const int error = path_absolute(file.value, out);
    if (error == WEIR_ENOMEM)
        return config_no_memory(reader);
    if (error)
        message_write(reader->message, "%s \"%s\": %s", file.name, file.value, strerror(errno));
    return error;
}

/* ---- The token ---- */

/* Check a token, which becomes a header line. */
static int check_token(const char *name, const char *bytes, size_t len, struct message message)
{
    if (len == 0)
        return message_refuse(message, "%s is empty", name);
    if (len > CONSUL_TOKEN_MAX)
        return message_refuse(message, "%s is longer than %d bytes", name, CONSUL_TOKEN_MAX);
    for (size_t i = 0; i < len; i++)
        if (bytes[i] <= ' ' || bytes[i] > '~')
            return message_refuse(message, "%s has a byte that is blank, a control or not ASCII", name);
    return WEIR_OK;
}

static int config_take_token(struct reader *reader, const char *name, const char *bytes, size_t len)
{
    const int error = check_token(name, bytes, len, reader->message);
    if (error)
        return error;
    reader->config.token = strndup(bytes, len);
    return reader->config.token ? WEIR_OK : config_no_memory(reader);
}

/* Read the token of a file into `token`, and check it. `option` is for the message. */
static int token_file_read(const char *option, const char *path, char token[CONSUL_TOKEN_MAX + 1],
                           struct message message)
{
    char line[CONSUL_TOKEN_MAX + 3]; /* CR and LF may follow; one byte more shows that it is too long */
    char name[160];
    size_t len;
    snprintf(name, sizeof name, "%s \"%s\": the first line", option, path);
    if (secret_file_read(path, line, sizeof line, &len) != 0) {
        message_write(message, "%s \"%s\" cannot be read: %s", option, path, strerror(errno));
        return WEIR_EIO;
    }
    const int error = check_token(name, line, len, message);
    if (!error) {
        memcpy(token, line, len);
        token[len] = '\0';
    }
    explicit_bzero(line, sizeof line);
    return error;
}

static int config_read_token_file(struct reader *reader, struct setting file)
{
    char token[CONSUL_TOKEN_MAX + 1];
    int error = token_file_read(file.name, file.value, token, reader->message);
    if (error)
        return error;
    error = config_take_token(reader, file.name, token, strlen(token));
    explicit_bzero(token, sizeof token);
    return error ? error : config_keep_path(reader, file, &reader->config.token_file);
}

void consul_config_token(const struct consul_config *config, char token[CONSUL_TOKEN_MAX + 1])
{
    token[0] = '\0';
    if (config->token_file && token_file_read("", config->token_file, token, (struct message){ NULL, 0 }) == WEIR_OK)
        return;
    if (config->token)
        memcpy(token, config->token, strlen(config->token) + 1);
}

static int config_read_token(struct reader *reader, const struct weir_consul *options)
{
    struct setting token = { "option consul.token", options->token };
    struct setting file = { "option consul.token_file", options->token_file };
    if (!token.value && !file.value) {
        token = config_option_or(NULL, NULL, "CONSUL_HTTP_TOKEN");
        if (!token.value)
            file = config_option_or(NULL, NULL, "CONSUL_HTTP_TOKEN_FILE");
    }
    if (token.value)
        return config_take_token(reader, token.name, token.value, strlen(token.value));
    return file.value ? config_read_token_file(reader, file) : WEIR_OK;
}

/* ---- The rest ---- */

/* Refuse parameters that weir sets itself, and the token, which must not be in a URL. */
static int config_check_query(const struct reader *reader, const char *query)
{
    static const char *const ours[] = { "token", "index", "wait", "dc", "passing", "recurse" };
    if (strchr("?&", *query))
        return message_refuse(reader->message, "option consul.query must begin with the name of a parameter");
    for (const char *at = query; at; at = strchr(at, '&') ? strchr(at, '&') + 1 : NULL) {
        size_t len = strcspn(at, "=&");
        for (size_t i = 0; i < sizeof ours / sizeof ours[0]; i++)
            if (len == strlen(ours[i]) && memcmp(at, ours[i], len) == 0)
                return message_refuse(reader->message, "option consul.query may not set \"%s\"", ours[i]);
    }
    return WEIR_OK;
}

static int config_read_query(struct reader *reader, const struct weir_consul *options)
{
    const char *dc = options->datacenter ? options->datacenter : "", *query = options->query ? options->query : "";
    int error = *query ? config_check_query(reader, query) : WEIR_OK;
    if (error)
        return error;
    char *at = reader->config.query = malloc(3 * strlen(dc) + 3 * strlen(query) + sizeof "&dc=&");
    if (!at)
        return config_no_memory(reader);
    *at = '\0';
    if (*dc)
        at = config_escape(stpcpy(at, "&dc="), dc, "");
    if (*query) /* escapes only bytes that a URL cannot contain */
        config_escape(stpcpy(at, "&"), query, "&=%+!$'()*,;:@/?");
    return WEIR_OK;
}

static int config_read_file(struct reader *reader, struct setting file, char **out)
{
    if (!file.value)
        return WEIR_OK;
    if (access(file.value, R_OK) != 0) {
        message_write(reader->message, "%s \"%s\" cannot be read: %s", file.name, file.value, strerror(errno));
        return WEIR_EIO;
    }
    return config_keep_path(reader, file, out);
}

static int config_read_tls(struct reader *reader, const struct weir_consul *options)
{
    struct consul_config *config = &reader->config;
    if (strncmp(config->base, "https:", 6) != 0) {
        const char *given = options->ca_file ? "ca_file" : options->cert_file ? "cert_file" : "key_file";
        if (options->ca_file || options->cert_file || options->key_file)
            return message_refuse(reader->message, "option consul.%s needs an address with https://", given);
        return WEIR_OK; /* the environment's files do not matter either */
    }
    if (options->key_file && !options->cert_file)
        return message_refuse(reader->message, "option consul.key_file needs cert_file");
    struct setting key = config_option_or("option consul.key_file", options->key_file,
                                          options->cert_file ? NULL : "CONSUL_CLIENT_KEY");
    int error = config_read_file(reader, config_option_or("option consul.ca_file", options->ca_file, "CONSUL_CACERT"),
                                 &config->ca_file);
    if (!error)
        error = config_read_file(reader,
                                 config_option_or("option consul.cert_file", options->cert_file, "CONSUL_CLIENT_CERT"),
                                 &config->cert_file);
    if (!error && config->cert_file)
        error = config_read_file(reader, key, &config->key_file);
    return error;
}

int consul_config_read(const struct weir_consul *options, struct consul_config *out, struct message message)
{
    struct reader reader = { .message = message };
    reader.config.wait_us = options->wait_us;
    reader.config.timeout_us = options->timeout_us;
    int error = config_read_address(&reader, options->address);
    if (!error)
        error = config_read_token(&reader, options);
    if (!error)
        error = config_read_query(&reader, options);
    if (!error)
        error = config_read_tls(&reader, options);
    if (error)
        consul_config_free(&reader.config);
    else
        *out = reader.config;
    return error;
}
