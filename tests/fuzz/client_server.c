/* client_server.c - the server of fuzz target `client`: see client_server.h. */
#include "client_server.h"

#include "fuzz.h"
#include "plain_store.h"

#include "lab/fake_redis.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

const char *const limit_names[LIMITS] = { "year", "second", "blocks", "queue" };
const char *const key_names[KEYS] = { "a", "b", "c", "foreign" };

/* Used on the fake's thread. */
static struct {
    pthread_mutex_t lock; /* guards all fields below */
    struct feed script;
    struct plain_store store;
    bool greets_oddly;
    bool lied; /* it has sent something untrue */
} server = { .lock = PTHREAD_MUTEX_INITIALIZER };
static struct fake_redis *fake;

static void tell_error(struct fake_reply *reply, uint8_t choice)
{
    static const char *const errors[] = {
        "-NOSCRIPT No matching script. Please use EVAL.\r\n",
        "-LOADING Redis is loading the dataset in memory\r\n",
        "-READONLY You can't write against a read only replica.\r\n",
        "-OOM command not allowed when used memory > 'maxmemory'.\r\n",
        "-NOPERM this user has no permissions to run the 'evalsha' command\r\n",
        "-MOVED 3999 127.0.0.1:6381\r\n",
        "-BUSY Redis is busy running a script.\r\n",
        "-WEIR bad stamp\r\n",
        "-\r\n",
        "-NOAUTH " SECRET "\r\n",
    };
    fake_say_text(reply, errors[choice % 10]);
}

static void tell_anything(struct fake_reply *reply)
{
    static const char *const bytes[] = { "$-1\r\n",       "*0\r\n",           ":1\r\n", "+OK\r\n",
                                         "$3\r\nabc\r\n", "$99999999999\r\n", "\r\n" };
    const uint8_t choice = feed_byte(&server.script);
    server.lied = true;
    if (choice < 128) {
        fake_say_text(reply, bytes[choice % 7]);
        return;
    }
    size_t len;
    char *any = feed_bytes(&server.script, 63, &len);
    fake_say(reply, any, len);
    free(any);
}

/* Send the correct answer, or what the script makes of it. The call has been executed. */
static void tell_executed(const struct fake_request *request, struct fake_reply *reply, uint8_t choice)
{
    static unsigned char answer[STORE_ANSWER_MAX];
    static char bulk[STORE_ANSWER_MAX + 32];
    size_t len = plain_store_call(&server.store, request->words, request->lens, request->n, answer);
    size_t at = (size_t)sprintf(bulk, "$%zu\r\n", len);
    memcpy(bulk + at, answer, len);
    memcpy(bulk + at + len, "\r\n", 2);
    len += at + 2;
    switch (choice % 16) {
    case 8: fake_say_slowly(reply, bulk, len, 0); return;
    case 9: {
        const uint8_t by = (feed_byte(&server.script) | 1) & 0xff;
        at = (size_t)feed_between(&server.script, 0, (int64_t)len - 1);
        bulk[at] = (char)(bulk[at] ^ by);
        server.lied = true;
        break;
    }
    case 10: fake_say_slowly(reply, bulk, len, 10 + choice / 16 * 20); return;
    case 11: return;
    case 12:
        fake_say(reply, bulk, len / 2);
        fake_hang_up(reply);
        return;
    case 13: fake_hang_up(reply); return;
    default: break;
    }
    fake_say(reply, bulk, len);
    if (choice % 16 == 7)
        fake_hang_up(reply);
}

static bool serve(void *user, const struct fake_request *request, struct fake_reply *reply)
{
    static const int64_t steps_us[] = { 0, 0, 1, 1000, 20000, WEIR_SECOND, WEIR_MINUTE, -WEIR_SECOND };
    bool answered = true;
    (void)user;
    pthread_mutex_lock(&server.lock);
    const bool is_call = fake_request_is(request, "EVALSHA");
    const uint8_t choice = is_call || server.greets_oddly ? feed_byte(&server.script) : 0;
    server.store.now_us += steps_us[choice / 16 % 8];
    if (choice % 16 == 14)
        tell_error(reply, feed_byte(&server.script));
    else if (choice % 16 == 15)
        tell_anything(reply);
    else if (is_call)
        tell_executed(request, reply, choice);
    else if (choice % 16 == 13)
        fake_hang_up(reply);
    else
        answered = choice % 16 == 11; /* or it ends without an answer */
    pthread_mutex_unlock(&server.lock);
    return answered;
}

static void store_name(char name[64], int limit, int key)
{
    snprintf(name, 64, "weir:%s:{%s}", limit_names[limit], key_names[key]);
}

void server_begin(const uint8_t *script, size_t size, bool greets_oddly)
{
    char name[64];
    if (!fake) {
        fake = fake_redis_start(serve, NULL);
        fuzz_must(fake, "a server starts");
    }
    pthread_mutex_lock(&server.lock);
    server.script = feed_of(script, size);
    server.greets_oddly = greets_oddly;
    server.lied = false;
    plain_store_clear(&server.store, INT64_C(1790000000123456));
    for (int i = 0; i < LIMITS; i++) {
        store_name(name, i, FOREIGN_KEY);
        plain_store_key(&server.store, name, strlen(name))->foreign = true;
    }
    pthread_mutex_unlock(&server.lock);
}

/* Connections are accepted in order: after this one, none is waiting. */
void server_rest(void)
{
    static const char ping[] = "*1\r\n$4\r\nPING\r\n";
    struct sockaddr_un name = { .sun_family = AF_UNIX };
    char pong;
    snprintf(name.sun_path, sizeof name.sun_path, "%s", server_path());
    pthread_mutex_lock(&server.lock);
    server.greets_oddly = false;
    pthread_mutex_unlock(&server.lock);
    const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0); /* libFuzzer's timer may interrupt these calls */
    fuzz_must(fd >= 0 && TEMP_FAILURE_RETRY(connect(fd, (const struct sockaddr *)&name, sizeof name)) == 0 &&
                  TEMP_FAILURE_RETRY(send(fd, ping, sizeof ping - 1, MSG_NOSIGNAL)) == (ssize_t)sizeof ping - 1 &&
                  TEMP_FAILURE_RETRY(recv(fd, &pong, 1, 0)) == 1,
              "the server is there: %s", strerror(errno));
    close(fd);
    while (fake_redis_counts(fake).open > 0)
        nanosleep(&(struct timespec){ .tv_nsec = 20000 }, NULL);
}

__attribute__((destructor)) static void server_end(void)
{
    fake_redis_stop(fake);
    fake = NULL;
}

const char *server_path(void)
{
    return fake_redis_url(fake) + strlen("unix://");
}

bool server_lied(void)
{
    pthread_mutex_lock(&server.lock);
    const bool lied = server.lied;
    pthread_mutex_unlock(&server.lock);
    return lied;
}

int64_t server_charged(int limit, int key)
{
    char name[64];
    store_name(name, limit, key);
    return plain_store_key(&server.store, name, strlen(name))->charged;
}
