/* redis_sentinel.c - what sentinels say, and which primary is then used: over a connection, cut at random.
 *
 * The input is a story: a service, and a sentinel's actions. It answers, confirms, publishes, sends any bytes, hangs
 * up, or is silent while the clock advances. The connections are sockets in this process; name resolution is
 * replaced. Properties:
 *
 *     - a named primary has a valid host name and a port in range
 *     - an answer or the news of a failover names a primary exactly if it concerns the service and contains one as the
 *       test made it, and it names that one
 *     - anything else leads to a pause, another question or another sentinel; no log line has a secret
 */
#include "fuzz.h"

#include "backends/redis/engine/sentinel.h"
#include "core/ground/arith.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/un.h>
#include <unistd.h>

enum { TURNS_MOST = 64, WORD_MOST = 300, SAID_MOST = 4096 };
#define SECRET "swordfish"

static struct {
    struct feed feed;
    struct redis_target target;
    struct redis_sentinel sentinel;
    int64_t now_us;
    int guest;    /* our end of the connection; -1: none */
    unsigned met; /* connections so far */
    bool odd;     /* the connection carried something other than complete expected replies */
    int named;    /* since the last step began */
} story;

static struct {
    int fd;
    struct resolve_address address;
} door = { .fd = -1 };

static void door_open_once(void)
{
    struct sockaddr_un *name = (struct sockaddr_un *)&door.address.name;
    if (door.fd >= 0)
        return;
    name->sun_family = AF_UNIX; /* abstract, so it vanishes with the process */
    const int len = snprintf(name->sun_path + 1, sizeof name->sun_path - 1, "weir-fuzz-sentinel-%d", (int)getpid());
    door.address.len = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)len);
    door.fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    fuzz_must(door.fd >= 0 && bind(door.fd, (const struct sockaddr *)name, door.address.len) == 0 &&
                  listen(door.fd, 8) == 0,
              "a socket can be listened on: %s", strerror(errno));
}

/* Replaces the resolver: every host is at the door. */
enum resolved __wrap_resolver_ask(struct resolver *resolver, struct resolve_address *list, size_t *count, char *reason,
                                  size_t reason_size);
enum resolved __wrap_resolver_ask(struct resolver *resolver, struct resolve_address *list, size_t *count, char *reason,
                                  size_t reason_size)
{
    (void)resolver;
    list[0] = list[1] = door.address;
    *count = feed_byte(&story.feed) % 3;
    snprintf(reason, reason_size, "no such name");
    return *count > 0 ? RESOLVED : NOT_RESOLVED;
}

static void hear_line(void *user, enum weir_log_level level, const char *line)
{
    (void)user;
    (void)level;
    fuzz_must(!strstr(line, SECRET), "no line has a secret: %s", line);
}

/* ---- Turns ---- */

static bool is_host(const char *host)
{
    static const char bytes[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-_:%";
    const size_t len = strlen(host);
    return len >= 1 && len <= REDIS_HOST_MAX && strspn(host, bytes) == len;
}

static void meet_guests(void)
{
    for (int fd; (fd = accept4(door.fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC)) >= 0;) {
        if (story.guest >= 0)
            close(story.guest);
        story.guest = fd;
        story.met++;
        story.odd = false;
    }
}

static void hang_up(void)
{
    if (story.guest >= 0)
        close(story.guest);
    story.guest = -1;
}

static void turn(void)
{
    char heard[4096];
    enum redis_sentinel_news news;
    int turns = 0;
    while ((news = redis_sentinel_turn(&story.sentinel, story.now_us)) != REDIS_NO_NEWS) {
        fuzz_must(++turns < TURNS_MOST, "it comes to rest");
        if (news != REDIS_PRIMARY_NAMED)
            continue;
        const struct redis_node_name *primary = &story.sentinel.primary;
        fuzz_must(is_host(primary->host) && primary->port >= 1 && primary->port <= 65535, "the primary has an address");
        story.named++;
    }
    const struct redis_sentinel *sentinel = &story.sentinel;
    fuzz_must(sentinel->at < story.target.host_count, "it is one of the URL's");
    fuzz_must(sentinel->state == REDIS_SENTINEL_IDLE || sentinel->due_us > story.now_us, "it does not wait for ever");
    fuzz_must(!sentinel->wanted || sentinel->state != REDIS_SENTINEL_IDLE || sentinel->due_us != INT64_MAX,
              "who wants an answer gets one");
    meet_guests();
    while (story.guest >= 0 && recv(story.guest, heard, sizeof heard, MSG_DONTWAIT) > 0)
        ;
    redis_sentinel_polled(sentinel);
}

/* ---- What the sentinel says ---- */

/* Send the bytes in pieces over one connection; return how many primaries it named. */
static int say(const char *bytes, size_t len)
{
    uint64_t chance = feed_byte(&story.feed);
    const unsigned met = story.met;
    story.named = 0;
    for (size_t at = 0, piece; at < len && story.guest >= 0 && story.met == met; at += piece) {
        piece = (size_t)min_of((int64_t)fuzz_piece(&chance), (int64_t)(len - at));
        if (send(story.guest, bytes + at, piece, MSG_NOSIGNAL | MSG_DONTWAIT) < 0)
            hang_up();
        turn();
    }
    return story.named;
}

static size_t put_bulk(char *out, const char *text)
{
    return (size_t)sprintf(out, "$%zu\r\n%s\r\n", strlen(text), text);
}

/* Choose a host and a port, usually valid; false if they name no possible primary. */
static bool name_by_feed(char host[WORD_MOST], char port[16])
{
    static const char *const hosts[] = {
        "10.0.0.1", "redis-2.example", "::1", "fe80::1%eth0", "a_b", "", "a b", "h\t", "@", "[::1]"
    };
    static const char *const ports[] = { "6379", "1", "65535", "65536", "0", "", "6379x", "-1", "00006", "000006" };
    const uint8_t choice = feed_byte(&story.feed);
    snprintf(host, WORD_MOST, "%s", hosts[choice % 10]);
    if (choice >= 240) {
        memset(host, 'x', REDIS_HOST_MAX + 1);
        host[choice & 1 ? REDIS_HOST_MAX : REDIS_HOST_MAX + 1] = '\0';
    }
    const uint8_t digits = feed_byte(&story.feed);
    snprintf(port, 16, "%s", ports[digits % 16 < 10 ? digits % 16 : 0]);
    const long number = strtol(port, NULL, 10);
    return is_host(host) && *port && strlen(port) <= 5 && strspn(port, "0123456789") == strlen(port) && number >= 1 &&
           number <= 65535;
}

/* True if the next bytes on the connection are parsed as intended. */
static bool is_heard_in(enum redis_sentinel_state state)
{
    return story.guest >= 0 && !story.odd && story.sentinel.state == state &&
           story.sentinel.link.state == REDIS_LINK_UP;
}

static void check_named(bool was_heard, int named, bool should, const char *host, const char *port)
{
    if (!was_heard)
        return;
    fuzz_must(named == (should ? 1 : 0), "%s:%s is named exactly if it should be", host, port);
    fuzz_must(!should || (strcmp(story.sentinel.primary.host, host) == 0 &&
                          story.sentinel.primary.port == (int)strtol(port, NULL, 10)),
              "it is %s:%s that is named", host, port);
}

static void say_answer(void)
{
    char host[WORD_MOST], port[16], said[SAID_MOST];
    const bool is_good = name_by_feed(host, port), was_heard = is_heard_in(REDIS_SENTINEL_ASKING);
    size_t len = (size_t)sprintf(said, "*2\r\n");
    len += put_bulk(said + len, host);
    len += put_bulk(said + len, port);
    check_named(was_heard, say(said, len), is_good, host, port);
}

static void say_news(uint8_t choice)
{
    static const char *const services[] = { "mymaster", "x mymaster", "mymaster ", "z @ mymaster",
                                            "m",        "a b",        "@",         "6379" };
    char host[WORD_MOST], port[16], old_host[WORD_MOST], old_port[16], text[4 * WORD_MOST], said[SAID_MOST];
    const bool is_good = name_by_feed(host, port);
    name_by_feed(old_host, old_port);
    const char *service = choice & 64 ? story.target.service : services[choice / 8 % 8];
    const bool is_switch = choice & 128;
    if (is_switch)
        snprintf(text, sizeof text, "%s %s %s %s %s", service, old_host, old_port, host, port);
    else
        snprintf(text, sizeof text, "slave %s:%s %s %s @ %s %s %s", host, port, host, port, service, old_host,
                 old_port);
    const bool was_heard = is_heard_in(REDIS_SENTINEL_WATCHING) && !strchr(host, ' ') && !strchr(old_host, ' ');
    size_t len = (size_t)sprintf(said, "*3\r\n");
    len += put_bulk(said + len, "message");
    len += put_bulk(said + len, is_switch ? "+switch-master" : "+promoted-slave");
    len += put_bulk(said + len, text);
    check_named(was_heard, say(said, len), is_good && strcmp(service, story.target.service) == 0, host, port);
}

/* Say something that names no primary, even if it resembles an answer or news. */
static void say_plain(uint8_t choice)
{
    static const char *const replies[] = {
        "+OK\r\n",
        "*3\r\n$9\r\nsubscribe\r\n$14\r\n+switch-master\r\n:1\r\n",
        "*2\r\n$4\r\npong\r\n$0\r\n\r\n",
        "*3\r\n$9\r\nsubscribe\r\n$15\r\n+promoted-slave\r\n:2\r\n",
        "*-1\r\n",
        "-NOAUTH Authentication required, " SECRET ".\r\n",
        "-ERR unknown command\r\n",
        ":1\r\n",
        "*0\r\n",
        "*3\r\n$7\r\nmessage\r\n*1\r\n$1\r\nx\r\n:1\r\n",
        "*1\r\n$7\r\nmessage\r\n",
        "*2\r\n$7\r\nmessage\r\n$14\r\n+switch-master\r\n",
        "*3\r\n$7\r\nmessage\r\n$15\r\n+promoted-slave\r\n$0\r\n\r\n",
    };
    const char *reply = replies[choice / 8 % 13];
    const bool was_odd = story.odd;
    fuzz_must(say(reply, strlen(reply)) == 0 || was_odd, "%s names nobody", reply);
}

static void say_anything(void)
{
    size_t len;
    char *bytes = feed_bytes(&story.feed, 255, &len);
    story.odd = true;
    say(bytes, len);
    free(bytes);
}

static void step(void)
{
    const uint8_t choice = feed_byte(&story.feed);
    switch (choice % 8) {
    case 0: say_answer(); break;
    case 1:
    case 2: say_news(choice); break;
    case 3: say_plain(choice); break;
    case 4: say_anything(); break;
    case 5:
        hang_up();
        turn();
        break;
    case 6:
        story.now_us += feed_magnitude(&story.feed, 20 * WEIR_SECOND);
        turn();
        break;
    default: redis_sentinel_ask(&story.sentinel, choice & 128); turn();
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static char *const services[] = { "mymaster", "a b", "@", "x mymaster" };
    static const struct log log = { hear_line, NULL };
    door_open_once();
    story.feed = feed_of(data, size);
    story.now_us = WEIR_HOUR;
    story.guest = -1;
    const uint8_t choice = feed_byte(&story.feed);
    story.target = (struct redis_target){ .service = services[choice % 4], .host_count = choice / 4 % 3 + 1u };
    for (size_t i = 0; i < story.target.host_count; i++)
        story.target.hosts[i] = (struct redis_host){ "host", 26379 };
    char password[] = SECRET;
    if (choice & 64)
        story.target.sentinel_password = password;
    fuzz_must(redis_sentinel_init(&story.sentinel, &story.target, &log) == 0, "there is memory");
    redis_sentinel_ask(&story.sentinel, false);
    turn();
    while (!feed_is_over(&story.feed))
        step();
    redis_sentinel_free(&story.sentinel);
    hang_up();
    meet_guests();
    hang_up();
    return 0;
}
