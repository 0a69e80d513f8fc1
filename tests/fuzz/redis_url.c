/* redis_url.c - the URL of a Redis.
 *
 * The input is a URL, then bytes for its parts. Properties:
 *
 *     - a parsed URL survives being written with every allowed byte escaped and parsed again, field by field
 *     - its numbers and lengths are in range
 *     - random parts in such a URL are parsed unchanged
 *     - a refusal's sentence begins with the option's name, writes nothing, and never shows a secret: the word SECRET,
 *       wherever it stands
 */
#include "fuzz.h"

#include "backends/redis/wire/url.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { URL_MAX = 8192 };

static int read_url(const char *url, struct redis_target *out, char *sentence, size_t size)
{
    struct weir_options options = WEIR_OPTIONS_INIT;
    options.redis_url = url;
    return redis_target_read(&options, out, (struct message){ sentence, size });
}

static bool is_same_text(const char *a, const char *b)
{
    return a && b ? strcmp(a, b) == 0 : a == b;
}

static bool are_same_hosts(const struct redis_target *a, const struct redis_target *b)
{
    if (a->host_count != b->host_count || !is_same_text(a->service, b->service))
        return false;
    for (size_t i = 0; i < a->host_count; i++)
        if (!is_same_text(a->hosts[i].name, b->hosts[i].name) || a->hosts[i].port != b->hosts[i].port)
            return false;
    return true;
}

static bool is_same(const struct redis_target *a, const struct redis_target *b)
{
    return are_same_hosts(a, b) && a->is_cluster == b->is_cluster && a->is_unix == b->is_unix &&
           a->is_tls == b->is_tls && a->port == b->port && a->db == b->db && is_same_text(a->host, b->host) &&
           is_same_text(a->path, b->path) && is_same_text(a->user, b->user) && is_same_text(a->password, b->password);
}

static size_t put_escaped(char *url, size_t at, const char *text)
{
    for (; text && *text; text++)
        at += (size_t)snprintf(url + at, URL_MAX - at, "%%%02X", (unsigned)(unsigned char)*text);
    return at;
}

/* In an IPv6 address only the zone is escaped. */
static size_t put_host(char *url, size_t at, const char *host)
{
    if (!strchr(host, ':'))
        return at + (size_t)snprintf(url + at, URL_MAX - at, "%s", host);
    const size_t len = strcspn(host, "%");
    return at + (size_t)snprintf(url + at, URL_MAX - at, "[%.*s%s%s]", (int)len, host, host[len] ? "%25" : "",
                                 host[len] ? host + len + 1 : "");
}

static void write_url(const struct redis_target *target, char url[URL_MAX])
{
    const char *scheme = target->is_unix ? "unix" : target->is_tls ? "rediss" : "redis";
    size_t at = (size_t)snprintf(url, URL_MAX, "%s%s://", scheme,
                                 target->service      ? "-sentinel"
                                 : target->is_cluster ? "-cluster"
                                                      : "");
    if (target->user || target->password) {
        at = put_escaped(url, at, target->user);
        url[at++] = ':';
        at = put_escaped(url, at, target->password);
        url[at++] = '@';
    }
    if (target->is_unix) {
        url[at++] = '/'; /* there is always one */
        at = put_escaped(url, at, target->path + 1);
        snprintf(url + at, URL_MAX - at, "?db=%d", target->db);
    } else if (target->host_count > 0) {
        for (size_t i = 0; i < target->host_count; i++) {
            at = put_host(url, at, target->hosts[i].name);
            at += (size_t)snprintf(url + at, URL_MAX - at, ":%d%s", target->hosts[i].port,
                                   i + 1 < target->host_count ? "," : "/");
        }
        at = put_escaped(url, at, target->service);
        if (target->service)
            snprintf(url + at, URL_MAX - at, "?db=%d", target->db);
    } else {
        at = put_host(url, at, target->host);
        snprintf(url + at, URL_MAX - at, ":%d/%d", target->port, target->db);
    }
}

static bool is_host(const char *name, int port)
{
    return name && *name && strlen(name) <= REDIS_HOST_MAX && port >= 1 && port <= 65535;
}

static void check_hosts(const struct redis_target *target)
{
    fuzz_must(!target->host && !target->path && target->port == 0, "they are for sentinels, or a cluster");
    fuzz_must(target->is_cluster == !target->service, "they are for one of them");
    fuzz_must(!target->is_cluster || target->db == 0, "a cluster has no db");
    fuzz_must(target->is_cluster || (*target->service && strlen(target->service) <= REDIS_SERVICE_MAX),
              "a service fits");
    fuzz_must(target->host_count <= REDIS_HOSTS_MAX, "there are not too many");
    for (size_t i = 0; i < target->host_count; i++)
        fuzz_must(is_host(target->hosts[i].name, target->hosts[i].port), "host and port fit");
}

static void check_target(const struct redis_target *target)
{
    fuzz_must(target->db >= 0 && target->db <= REDIS_DB_MAX, "a db is in its range");
    fuzz_must(!target->user || target->password, "a user has a password");
    fuzz_must(!target->user || (*target->user && strlen(target->user) <= REDIS_SECRET_MAX), "a user fits");
    fuzz_must(!target->password || (*target->password && strlen(target->password) <= REDIS_SECRET_MAX),
              "a password fits");
    fuzz_must((target->service || target->is_cluster) == (target->host_count > 0), "these have hosts, and others none");
    if (target->host_count > 0)
        check_hosts(target);
    else if (target->is_unix)
        fuzz_must(!target->host && !target->is_tls && target->path && target->path[0] == '/' &&
                      strlen(target->path) <= REDIS_PATH_MAX && target->port == 0,
                  "a path fits");
    else
        fuzz_must(!target->path && is_host(target->host, target->port), "a host and a port fit");
}

static void check_round(const struct redis_target *target)
{
    char url[URL_MAX], sentence[512] = "";
    struct redis_target again;
    write_url(target, url);
    fuzz_must(read_url(url, &again, sentence, sizeof sentence) == WEIR_OK, "%s is read: %s", url, sentence);
    fuzz_must(is_same(target, &again), "%s is read as what it was written of", url);
    redis_target_free(&again);
}

static void check_url(const char *url)
{
    char sentence[512] = "";
    struct redis_target target, untouched;
    memset(&target, 0xa5, sizeof target);
    memcpy(&untouched, &target, sizeof target);
    const int error = read_url(url, &target, sentence, sizeof sentence);
    if (error == WEIR_OK) {
        check_target(&target);
        check_round(&target);
        redis_target_free(&target);
        return;
    }
    fuzz_must(error == WEIR_EINVAL && memcmp(&target, &untouched, sizeof target) == 0, "a refusal writes nothing");
    fuzz_must(strncmp(sentence, "redis_url", 9) == 0, "\"%s\" names the option", sentence);
    fuzz_clean(sentence);
    fuzz_must(!strstr(sentence, "SECRET"), "\"%s\" shows no secret", sentence);
}

/* Choose a text without NUL; an empty one means none. */
static char *feed_text(struct feed *feed, size_t most, const char *beginning)
{
    size_t len;
    char *bytes = feed_bytes(feed, most, &len);
    char *text = NULL;
    if (bytes[0] || *beginning) {
        text = malloc(strlen(beginning) + strlen(bytes) + 1);
        fuzz_must(text, "there is memory");
        memcpy(stpcpy(text, beginning), bytes, strlen(bytes) + 1);
    }
    free(bytes);
    return text;
}

static void check_parts(struct feed *feed)
{
    const uint8_t choice = feed_byte(feed);
    struct redis_target target = { .is_unix = choice & 1, .is_tls = (choice & 3) == 2 };
    target.db = (int)feed_between(feed, 0, REDIS_DB_MAX);
    target.password = feed_text(feed, REDIS_SECRET_MAX, "");
    target.user = target.password ? feed_text(feed, REDIS_SECRET_MAX, "") : NULL;
    if (target.is_unix) {
        target.path = feed_text(feed, REDIS_PATH_MAX - 1, "/");
    } else {
        static const char *const hosts[] = { "h", "a_b-c.example", "127.0.0.1", "::1", "fe80::1%eth0", "2001:db8::7" };
        target.host = strdup(hosts[choice / 4 % 6]);
        fuzz_must(target.host, "there is memory");
        target.port = (int)feed_between(feed, 1, 65535);
    }
    check_round(&target);
    redis_target_free(&target);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    unsetenv("WEIR_REDIS_PASSWORD");
    char *url = fuzz_text(data, size);
    check_url(url);
    free(url);
    struct feed feed = feed_of(data, size);
    check_parts(&feed);
    return 0;
}
