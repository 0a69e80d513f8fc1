/* test_redis_sentinel_replies.c - hostile or broken sentinels, and servers' answers about their role. */
#include "redis_place.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

enum { TIMEOUT_US = 100000, PATIENCE_US = 20 * 1000 * 1000 };

#define NAMES "*2\r\n$9\r\n127.0.0.1\r\n"
#define SUBSCRIBED \
    "*3\r\n$9\r\nsubscribe\r\n$15\r\n+promoted-slave\r\n:1\r\n*3\r\n$9\r\nsubscribe\r\n$14\r\n+switch-master\r\n:2\r\n"
#define PONG "*2\r\n$4\r\npong\r\n$0\r\n\r\n"
#define MASTER "*3\r\n$6\r\nmaster\r\n:3129\r\n*0\r\n"
#define SLAVE "*5\r\n$5\r\nslave\r\n$9\r\n127.0.0.1\r\n:6379\r\n$9\r\nconnected\r\n:3129\r\n"

#define TEN "1234567890"
#define FIFTY TEN TEN TEN TEN TEN
#define HUNDRED FIFTY FIFTY
#define FIVE_HUNDRED HUNDRED HUNDRED HUNDRED HUNDRED HUNDRED

/* ---- A sentinel and servers with scripted answers ---- */

/* Set before it starts, except for the atomic fields. */
struct speaker {
    struct fake_redis *fake;
    char names[1200];          /* to SENTINEL */
    const char *subscribed;    /* to SUBSCRIBE */
    const char *pong;          /* to PING; NULL: nothing */
    const char *role;          /* to ROLE; NULL: nothing */
    _Atomic int64_t primaries; /* connections up to this number hear MASTER, later ones `role` */
    _Atomic int64_t strangers; /* script calls on the later ones */
};

static bool speak(void *user, const struct fake_request *request, struct fake_reply *reply)
{
    struct speaker *speaker = user;
    const bool is_primary = request->connection <= atomic_load(&speaker->primaries);
    const char *says = NULL;
    if (fake_request_is(request, "SENTINEL")) {
        says = speaker->names;
    } else if (fake_request_is(request, "SUBSCRIBE")) {
        says = speaker->subscribed;
    } else if (fake_request_is(request, "PING")) {
        says = speaker->pong;
    } else if (fake_request_is(request, "ROLE")) {
        says = is_primary ? MASTER : speaker->role;
    } else if (fake_request_is(request, "EVALSHA")) {
        unsigned char answer[TRUTH_LEN];
        fake_say_bulk(reply, answer, truth_about(request, answer));
        atomic_fetch_add(&speaker->strangers, !is_primary);
    } else {
        return false;
    }
    if (says != NULL)
        fake_say_text(reply, says);
    return true;
}

static int speaker_start(struct speaker *speaker)
{
    speaker->fake = fake_redis_start_port(speak, speaker);
    must(speaker->fake != NULL, "a fake starts");
    return fake_redis_port(speaker->fake);
}

static void name_port(struct speaker *sentinel, int port)
{
    char digits[8];
    int len = snprintf(digits, sizeof digits, "%d", port);
    snprintf(sentinel->names, sizeof sentinel->names, NAMES "$%d\r\n%s\r\n", len, digits);
}

/* Make options for one sentinel or two. */
static struct weir_options options_for(struct place *place, int64_t timeout_us, int port, int other_port)
{
    static char url[128];
    int len = snprintf(url, sizeof url, "redis-sentinel://127.0.0.1:%d", port);
    if (other_port != 0)
        len += snprintf(url + len, sizeof url - (size_t)len, ",127.0.0.1:%d", other_port);
    snprintf(url + len, sizeof url - (size_t)len, "/weir-primary");
    place_open_bare(place);
    struct weir_options options = place_options(place, timeout_us);
    options.redis_url = url;
    return options;
}

/* Call without success, each time within the timeout, until the log has `says`. */
static void assert_shut_out(struct place *place, const struct weir_options *options, const char *says, const char *what)
{
    LIMITER(limiter, options);
    weir_limit *limit = limit_of(limiter, "limit", FIFTY_AN_HOUR);
    int64_t until_us = wire_now_us() + PATIENCE_US;
    do {
        struct timed timed = timed_try(limit, "key", 1);
        must(timed.status == WEIR_EIO || timed.status == WEIR_ETIME, "nobody decides");
        must(timed.took_us <= call_most_us(options->timeout_us), "a call ends in its time");
        if (wire_now_us() > until_us)
            ck_abort_msg("%s: no \"%s\" in: %s", what, says, place->log);
        sleep_us(200);
    } while (!place_logged(place, says));
}

TEST(a_wrong_answer_about_the_primary_is_refused, 60)
{
    static const struct {
        const char *names, *says;
    } rows[] = {
        { "*-1\r\n", "it does not know the service" },
        { "$-1\r\n", "it does not know the service" },
        { "+OK\r\n", "it names no host and port" },
        { ":1\r\n", "it names no host and port" },
        { "$9\r\n127.0.0.1\r\n", "it names no host and port" },
        { "*0\r\n", "it names no host and port" },
        { "*1\r\n$9\r\n127.0.0.1\r\n", "it names no host and port" },
        { "*2\r\n:1\r\n:2\r\n", "it names no host and port" },
        { "*2\r\n$-1\r\n$1\r\n1\r\n", "it names no host and port" },
        { "*2\r\n*1\r\n$1\r\nh\r\n$1\r\n1\r\n", "it names no host and port" },
        { "*1\r\n*2\r\n$9\r\n127.0.0.1\r\n$1\r\n1\r\n", "it names no host and port" },
        { "*2\r\n$0\r\n\r\n$1\r\n1\r\n", "it names no host and port" },
        { "*2\r\n$3\r\na b\r\n$1\r\n1\r\n", "it names no host and port" },
        { "*2\r\n$3\r\na\nb\r\n$1\r\n1\r\n", "it names no host and port" },
        { "*2\r\n$4\r\n/run\r\n$1\r\n1\r\n", "it names no host and port" },
        { "*2\r\n$254\r\n" HUNDRED HUNDRED FIFTY "1234\r\n$1\r\n1\r\n", "it names no host and port" },
        { NAMES "$0\r\n\r\n", "it names no host and port" },
        { NAMES "$1\r\n0\r\n", "it names no host and port" },
        { NAMES "$2\r\n-1\r\n", "it names no host and port" },
        { NAMES "$5\r\n65536\r\n", "it names no host and port" },
        { NAMES "$6\r\n006379\r\n", "it names no host and port" },
        { NAMES "$2\r\n1x\r\n", "it names no host and port" },
        { "-ERR No such master with that name\r\n", "the server answers ERR to SENTINEL" },
        { "-NOPERM it may not read 's3cret'\r\n", "the server answers NOPERM to SENTINEL" },
        { "*2\r\n$1025\r\n" FIVE_HUNDRED FIVE_HUNDRED TEN TEN "12345\r\n", "does not speak Redis' protocol" },
        { "*32769\r\n", "does not speak Redis' protocol" },
        { "*2000000000\r\n", "does not speak Redis' protocol" },
        { "*-2\r\n", "does not speak Redis' protocol" },
        { "*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n", "does not speak Redis' protocol" },
        { "HTTP/1.1 400 Bad Request\r\n\r\n", "does not speak Redis' protocol" },
        { "*2\r\n$9\r\n127.0", "no answer in time" },
        { "", "no answer in time" },
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        CLOSED_BY(place_close) struct place place;
        static struct speaker sentinel;
        sentinel = (struct speaker){ .pong = PONG };
        snprintf(sentinel.names, sizeof sentinel.names, "%s", rows[i].names);
        struct weir_options options = options_for(&place, TIMEOUT_US, speaker_start(&sentinel), 0);
        char says[128];
        snprintf(says, sizeof says, "sentinel 1 of 1 cannot be used: %s%s",
                 strncmp(rows[i].says, "does not", 8) == 0 ? "the server " : "", rows[i].says);
        assert_shut_out(&place, &options, says, rows[i].names);
        ck_assert(!place_logged(&place, "s3cret"));
        fake_redis_stop(sentinel.fake);
    }
}

TEST(a_server_is_used_only_if_its_role_is_primary, 60)
{
    static const struct {
        const char *role, *says; /* says: NULL: it is used */
    } rows[] = {
        { MASTER, NULL },
        { "*3\r\n$6\r\nmaster\r\n:1\r\n*2\r\n*3\r\n$9\r\n127.0.0.1\r\n$4\r\n9001\r\n$7\r\n3129543\r\n*3\r\n$9\r\n127.0.0.1"
          "\r\n$4\r\n9002\r\n$7\r\n3129543\r\n",
          NULL },
        { SLAVE, "the server that a sentinel named is not a primary" },
        { "*2\r\n$8\r\nsentinel\r\n*1\r\n$1\r\na\r\n", "the server that a sentinel named is not a primary" },
        { "*1\r\n$7\r\nmasters\r\n", "the server that a sentinel named is not a primary" },
        { "*1\r\n*1\r\n$6\r\nmaster\r\n", "the server that a sentinel named is not a primary" },
        { "*1\r\n:1\r\n", "the server that a sentinel named is not a primary" },
        { "*0\r\n", "the server that a sentinel named is not a primary" },
        { "+master\r\n", "the server does not speak Redis' protocol" },
        { "$6\r\nmaster\r\n", "the server does not speak Redis' protocol" },
        { "*-1\r\n", "the server does not speak Redis' protocol" },
        { "*32769\r\n", "the server does not speak Redis' protocol" },
        { "-NOPERM this user has no permissions to run the 'role' command\r\n", "the server answers NOPERM to ROLE" },
        { NULL, "the server does not speak Redis' protocol" }, /* the next answer is mistaken for PING's */
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        CLOSED_BY(place_close) struct place place;
        static struct speaker sentinel, server;
        sentinel = (struct speaker){ .subscribed = SUBSCRIBED, .pong = PONG };
        server = (struct speaker){ .role = rows[i].role };
        name_port(&sentinel, speaker_start(&server));
        struct weir_options options = options_for(&place, TIMEOUT_US, speaker_start(&sentinel), 0);
        if (rows[i].says != NULL) {
            assert_shut_out(&place, &options, rows[i].says, rows[i].says);
            ck_assert_int_eq(fake_redis_counts(server.fake).script_calls, 0);
        } else {
            options.timeout_us = PATIENCE_US;
            weir *limiter = limiter_of(&options);
            weir_limit *limit = limit_of(limiter, "limit", FIFTY_AN_HOUR);
            for (int j = 0; j < 20; j++)
                ck_assert_int_eq(taken(limit, "key", 1).source, WEIR_BY_REDIS);
            weir_close(limiter);
            ck_assert_int_ge(fake_redis_counts(server.fake).connections, 2); /* also the caller's own connection */
        }
        fake_redis_stop(sentinel.fake);
        fake_redis_stop(server.fake);
    }
}

/* The I/O thread makes the first connection. */
TEST(a_callers_connection_to_a_new_replica_gets_no_request, 60)
{
    CLOSED_BY(place_close) struct place place;
    static struct speaker sentinel, server;
    sentinel = (struct speaker){ .subscribed = SUBSCRIBED, .pong = PONG };
    server = (struct speaker){ .role = SLAVE, .primaries = 1 };
    name_port(&sentinel, speaker_start(&server));
    struct weir_options options = options_for(&place, TIMEOUT_US, speaker_start(&sentinel), 0);
    weir *limiter = limiter_of(&options);
    weir_limit *limit = limit_of(limiter, "limit", FIFTY_AN_HOUR);
    for (int64_t until_us = wire_now_us() + PATIENCE_US; fake_redis_counts(server.fake).connections < 4;) {
        timed_try(limit, "key", 1);
        must(wire_now_us() < until_us, "the primary is looked for again");
        sleep_us(200);
    }
    ck_assert_int_eq(atomic_load(&server.strangers), 0);
    ck_assert_int_ge(fake_redis_counts(sentinel.fake).connections, 2);
    atomic_store(&server.primaries, INT64_MAX);
    recover(limit, "key");
    weir_close(limiter);
    fake_redis_stop(sentinel.fake);
    fake_redis_stop(server.fake);
}

/* ---- News ---- */

TEST(sentinel_events_about_other_services_are_ignored, 60)
{
    static const struct {
        const char *channel, *text; /* PORT stands for the other server's port */
        bool is_followed;
    } rows[] = {
        { "+switch-master", "weir-primary 127.0.0.1 1 127.0.0.1 PORT", true },
        { "+promoted-slave", "slave 127.0.0.1:PORT 127.0.0.1 PORT @ weir-primary 127.0.0.1 1", true },
        { "+switch-master", "weir-primary-2 127.0.0.1 1 127.0.0.1 PORT", false },
        { "+switch-master", "a-weir-primary 127.0.0.1 1 127.0.0.1 PORT", false },
        { "+switch-master", "weir-primary 127.0.0.1 PORT", false },
        { "+switch-master", "127.0.0.1 1 127.0.0.1 PORT", false },
        { "+switch-master", "weir-primary 127.0.0.1 1 127.0.0.1 PORTx", false },
        { "+switch-master", "weir-primary 127.0.0.1 1 /run/x PORT", false },
        { "+switch-master", "weir-primary 127.0.0.1 1 127.0.0.1 ", false },
        { "+switch-master", "", false },
        { "+switch-master", "     ", false },
        { "+promoted-slave", "slave 127.0.0.1:PORT 127.0.0.1 PORT @ another 127.0.0.1 1", false },
        { "+promoted-slave", "slave 127.0.0.1:PORT 127.0.0.1 PORT @ a-weir-primary 127.0.0.1 1", false },
        { "+promoted-slave", "weir-primary 127.0.0.1 1 127.0.0.1 PORT", false },
        { "+promoted-slave", " @ weir-primary 127.0.0.1 1", false },
        { "+switch-mastery", "weir-primary 127.0.0.1 1 127.0.0.1 PORT", false },
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        CLOSED_BY(place_close) struct place place;
        char says[1024], text[256] = "", digits[8];
        static struct speaker sentinel, first, second;
        sentinel = (struct speaker){ .pong = PONG };
        first = second = (struct speaker){ .role = MASTER };
        name_port(&sentinel, speaker_start(&first));
        snprintf(digits, sizeof digits, "%d", speaker_start(&second));
        for (const char *at = rows[i].text; *at != '\0';) {
            const bool is_port = strncmp(at, "PORT", 4) == 0;
            size_t len = strlen(text);
            snprintf(text + len, sizeof text - len, is_port ? "%s" : "%.1s", is_port ? digits : at);
            at += is_port ? 4 : 1;
        }
        snprintf(says, sizeof says, SUBSCRIBED "*3\r\n$7\r\nmessage\r\n$%zu\r\n%s\r\n$%zu\r\n%s\r\n",
                 strlen(rows[i].channel), rows[i].channel, strlen(text), text);
        sentinel.subscribed = says;
        struct weir_options options = options_for(&place, PATIENCE_US, speaker_start(&sentinel), 0);
        weir *limiter = limiter_of(&options);
        weir_limit *limit = limit_of(limiter, "limit", FIFTY_AN_HOUR);
        recover(limit, "key"); /* a request during the switch may end with an unknown result */
        for (int64_t until_us = wire_now_us() + PATIENCE_US; wire_now_us() < until_us; sleep_us(200)) {
            timed_try(limit, "key", 1);
            if (fake_redis_counts(rows[i].is_followed ? second.fake : first.fake).script_calls > 0)
                break;
        }
        for (int j = 0; j < 20; j++)
            timed_try(limit, "key", 1);
        recover(limit, "key");
        int64_t there = fake_redis_counts(second.fake).script_calls;
        ck_assert_msg((there > 0) == rows[i].is_followed, "row %zu: %" PRId64 " calls at the other server", i, there);
        weir_close(limiter);
        fake_redis_stop(sentinel.fake);
        fake_redis_stop(first.fake);
        fake_redis_stop(second.fake);
    }
}

TEST(a_sentinel_that_refuses_or_falls_silent_is_replaced_without_an_error, 120)
{
    static const struct {
        const char *subscribed, *pong, *says;
    } rows[] = {
        { "-NOPERM it may not read 's3cret'\r\n", PONG,
          "sentinel 1 of 2 cannot be used: the server answers NOPERM to SUBSCRIBE" },
        { "+OK\r\n", PONG, "sentinel 1 of 2 cannot be used: an answer did not fit its question" },
        { "*32769\r\n", PONG, "sentinel 1 of 2 cannot be used: the server does not speak Redis' protocol" },
        { "", PONG, "sentinel 1 of 2 cannot be used: no answer in time" },
        { SUBSCRIBED, NULL, "sentinel 1 of 2 cannot be used: no answer in time" },
        { SUBSCRIBED, "$4\r\nPONG\r\n", "sentinel 1 of 2 cannot be used: an answer did not fit its question" },
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        CLOSED_BY(place_close) struct place place;
        static struct speaker bad, good, server;
        bad = (struct speaker){ .subscribed = rows[i].subscribed, .pong = rows[i].pong };
        good = (struct speaker){ .subscribed = SUBSCRIBED, .pong = PONG };
        server = (struct speaker){ .role = MASTER };
        name_port(&bad, speaker_start(&server));
        memcpy(good.names, bad.names, sizeof good.names);
        int port = speaker_start(&bad);
        struct weir_options options = options_for(&place, PATIENCE_US, port, speaker_start(&good));
        weir *limiter = limiter_of(&options);
        weir_limit *limit = limit_of(limiter, "limit", FIFTY_AN_HOUR);
        int64_t until_us = wire_now_us() + PATIENCE_US;
        while (!place_logged(&place, rows[i].says) || fake_redis_counts(good.fake).requests < 2) {
            ck_assert_int_eq(taken(limit, "key", 1).source, WEIR_BY_REDIS);
            if (wire_now_us() > until_us)
                ck_abort_msg("row %zu: %s", i, place.log);
            sleep_us(1000);
        }
        ck_assert_uint_eq(stats_of(limiter).errors, 0);
        ck_assert_msg(!place_logged(&place, "redis cannot") && !place_logged(&place, "s3cret"), "%s", place.log);
        weir_close(limiter);
        fake_redis_stop(bad.fake);
        fake_redis_stop(good.fake);
        fake_redis_stop(server.fake);
    }
}

TEST(sentinel_queries_about_an_unusable_primary_have_pauses, 30)
{
    CLOSED_BY(place_close) struct place place;
    static struct speaker sentinel;
    sentinel = (struct speaker){ .subscribed = SUBSCRIBED, .pong = PONG };
    name_port(&sentinel, daemon_port_closed());
    struct weir_options options = options_for(&place, TIMEOUT_US, speaker_start(&sentinel), 0);
    weir *limiter = limiter_of(&options);
    weir_limit *limit = limit_of(limiter, "limit", FIFTY_AN_HOUR);
    const int64_t began_us = wire_now_us();
    int64_t asked, took_us;
    do {
        ck_assert_int_ne(timed_try(limit, "key", 1).status, WEIR_OK);
        sleep_us(500);
        asked = fake_redis_counts(sentinel.fake).connections;
        took_us = wire_now_us() - began_us;
    } while (took_us < 3 * WEIR_SECOND || asked < 2);
    printf("a sentinel that names nobody who is there is asked %" PRId64 " times in %" PRId64 " ms\n", asked,
           took_us / 1000);
    ck_assert_int_le(asked, 20 * took_us / WEIR_SECOND);
    weir_close(limiter);
    fake_redis_stop(sentinel.fake);
}
