/* test_redis_replies.c - hostile or broken server replies and hostile keys: faults F5 to F9 of distributed mode. */
#include "redis_place.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

enum { TIMEOUT_US = 100000 };

/* ---- A server that answers anything ---- */

struct says {
    const char *bytes;
    size_t len;
    enum { SAYS_ONCE, SAYS_FOR_EVER, SAYS_SLOWLY } how;
};

enum { LIE_MOST = 128 };

struct liar {
    pthread_mutex_t lock; /* guards lies, says and bytes */
    bool lies;
    struct says says;     /* its bytes are the next field's */
    char bytes[LIE_MOST]; /* a copy: after a timeout the fake still answers while the test makes the next lie */
    struct place place;
    struct fake_redis *fake;
    weir *limiter;
    weir_limit *limit;
};

/* Replace "echo" in a lie by the correct echo, so that the lie is wrong elsewhere. */
static void tell_echo(const struct fake_request *request, char *bytes, size_t len)
{
    char *echo = memmem(bytes, len, "echo", ECHO_LEN);
    if (echo != NULL)
        memcpy(echo, echo_asked(request), ECHO_LEN);
}

static bool liar_answer(void *user, const struct fake_request *request, struct fake_reply *reply)
{
    struct liar *liar = user;
    unsigned char answer[TRUTH_LEN];
    char bytes[LIE_MOST];
    if (!fake_request_is(request, "EVALSHA"))
        return false;
    pthread_mutex_lock(&liar->lock);
    bool lies = liar->lies;
    struct says says = liar->says;
    memcpy(bytes, liar->bytes, says.len);
    pthread_mutex_unlock(&liar->lock);
    tell_echo(request, bytes, says.len);
    says.bytes = bytes;
    if (!lies)
        fake_say_bulk(reply, answer, truth_about(request, answer));
    else if (says.how == SAYS_ONCE)
        fake_say(reply, says.bytes, says.len);
    else if (says.how == SAYS_FOR_EVER)
        fake_say_for_ever(reply, says.bytes, says.len);
    else
        fake_say_slowly(reply, says.bytes, says.len, 100000);
    return true;
}

static void liar_open(struct liar *liar, int64_t timeout_us)
{
    memset(liar, 0, sizeof *liar);
    pthread_mutex_init(&liar->lock, NULL);
    place_open_bare(&liar->place);
    liar->fake = fake_redis_start(liar_answer, liar);
    must(liar->fake != NULL, "a fake starts");
    struct weir_options options = place_options(&liar->place, timeout_us);
    options.redis_url = fake_redis_url(liar->fake);
    liar->limiter = limiter_of(&options);
    liar->limit = limit_of(liar->limiter, "limit", FIFTY_AN_HOUR);
}

static void liar_close(struct liar *liar)
{
    weir_close(liar->limiter);
    fake_redis_stop(liar->fake);
    pthread_mutex_destroy(&liar->lock);
    place_close(&liar->place);
}

static void liar_lies(struct liar *liar, bool lies, struct says says)
{
    must(says.len <= LIE_MOST, "a lie fits");
    pthread_mutex_lock(&liar->lock);
    liar->lies = lies;
    liar->says = says;
    memcpy(liar->bytes, says.bytes, says.len);
    pthread_mutex_unlock(&liar->lock);
}

#define SAYS(text, how)             \
    {                               \
        text, sizeof(text) - 1, how \
    }
#define NOW_AND_ONE "\x40\x47\x6b\x5b\x00\x5c\x06\x01\x00\x00\x00\x00\x00\x00" /* a time, and one permit charged */
static const struct says lies[] = {
    SAYS("\r\n", SAYS_ONCE),
    SAYS("\0\0\0\0\0\0\0\0\r\n", SAYS_ONCE),
    SAYS("HTTP/1.1 400 Bad Request\r\n\r\n", SAYS_ONCE),
    SAYS("+OK\r\n", SAYS_ONCE),
    SAYS("+\r\n", SAYS_ONCE),
    SAYS(":1\r\n", SAYS_ONCE),
    SAYS(":9223372036854775808\r\n", SAYS_ONCE),
    SAYS(":\r\n", SAYS_ONCE),
    SAYS("-\r\n", SAYS_ONCE),
    SAYS("-ERR something odd\r\n", SAYS_ONCE),
    SAYS("$-1\r\n", SAYS_ONCE),
    SAYS("$-2\r\n", SAYS_ONCE),
    SAYS("$0\r\n\r\n", SAYS_ONCE),
    SAYS("$1\r\na\r\n", SAYS_ONCE),
    SAYS("$19\r\n" NOW_AND_ONE "\0ohce\r\n", SAYS_ONCE),   /* another call's */
    SAYS("$18\r\n" NOW_AND_ONE "echo\r\n", SAYS_ONCE),     /* the state is missing */
    SAYS("$20\r\n" NOW_AND_ONE "\0\0echo\r\n", SAYS_ONCE), /* one byte too long */
    SAYS("$19\r\n" NOW_AND_ONE "\2echo\r\n", SAYS_ONCE),   /* an unknown tag */
    SAYS("$19\r\n" NOW_AND_ONE "\0echoxx", SAYS_ONCE),     /* no line end where it should be */
    SAYS("$36\r\nTxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx\r\n", SAYS_ONCE),
    SAYS("$+19\r\n" NOW_AND_ONE "\0echo\r\n", SAYS_ONCE),
    SAYS("$0x13\r\n" NOW_AND_ONE "\0echo\r\n", SAYS_ONCE),
    SAYS("$536870912\r\nand no more", SAYS_ONCE),
    SAYS("$9223372036854775807\r\n", SAYS_ONCE),
    SAYS("$99999999999999999999999999\r\n", SAYS_ONCE),
    SAYS("*0\r\n", SAYS_ONCE),
    SAYS("*-1\r\n", SAYS_ONCE),
    SAYS("*1\r\n$19\r\n" NOW_AND_ONE "\0echo\r\n", SAYS_ONCE),
    SAYS("*2147483647\r\n", SAYS_ONCE),
    SAYS("*4294967297\r\n:1\r\n", SAYS_ONCE),
    SAYS("*1000000000000000000\r\n", SAYS_ONCE),
    SAYS("*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n:1\r\n", SAYS_ONCE),
    SAYS("%1\r\n+a\r\n:1\r\n", SAYS_ONCE),
    SAYS(">2\r\n+message\r\n+hello\r\n", SAYS_ONCE),
    SAYS("~1\r\n:1\r\n", SAYS_ONCE),
    SAYS("_\r\n", SAYS_ONCE),
    SAYS(",3.14\r\n", SAYS_ONCE),
    SAYS("#t\r\n", SAYS_ONCE),
    SAYS("(3492890328409238509324850943850943825024385\r\n", SAYS_ONCE),
    SAYS("=15\r\ntxt:Some string\r\n", SAYS_ONCE),
    SAYS("-MOVED 3999 127.0.0.1:6381\r\n", SAYS_ONCE),
    SAYS("-ASK 3999 127.0.0.1:6381\r\n", SAYS_ONCE),
    SAYS("-NOSCRIPT No matching script. Please use EVAL.\r\n", SAYS_ONCE), /* on every attempt */
    SAYS("-NOAUTH Authentication required.\r\n", SAYS_ONCE),
    SAYS("*1\r\n", SAYS_FOR_EVER),
    SAYS("+a", SAYS_FOR_EVER),
    SAYS("-aaaaaaaaaaaaaaaa", SAYS_FOR_EVER),
    SAYS("$3\r\nabc\r\n", SAYS_FOR_EVER),
    SAYS(":1\r\n", SAYS_FOR_EVER),
    SAYS("$10000000\r\n", SAYS_FOR_EVER),
    SAYS("\r\n", SAYS_FOR_EVER),
    SAYS("$19\r\n" NOW_AND_ONE "\0echo\r\n", SAYS_SLOWLY), /* correct, but it takes 2 s */
    SAYS("+OK, I am coming\r\n", SAYS_SLOWLY),
};

TEST(no_wrong_reply_becomes_a_decision_blocks_a_call_or_uses_memory, 60)
{
    struct liar liar;
    int64_t longest_us = 0;
    liar_open(&liar, TIMEOUT_US);
    recover(liar.limit, "key");
    int64_t before = resident_bytes();
    for (size_t i = 0; i < sizeof lies / sizeof lies[0]; i++) {
        recover(liar.limit, "key");
        for (int times = 0; times < 2; times++) {
            liar_lies(&liar, true, lies[i]);
            struct timed timed = timed_try(liar.limit, "key", 1);
            ck_assert_msg(timed.status == WEIR_EIO || timed.status == WEIR_ETIME, "lie %zu: %s", i,
                          weir_strerror(timed.status));
            ck_assert_int_le(timed.took_us, call_most_us(TIMEOUT_US));
            longest_us = timed.took_us > longest_us ? timed.took_us : longest_us;
        }
        liar_lies(&liar, false, lies[i]);
    }
    recover(liar.limit, "key");
    ck_assert_int_eq(taken(liar.limit, "key", 1).remaining, 49);
    int64_t grown = resident_bytes() - before;
    printf("lies: the longest call took %" PRId64 " us beyond its timeout, memory grew by %" PRId64 " bytes\n",
           longest_us - TIMEOUT_US, grown);
    if (!INSTRUMENTED)
        ck_assert_int_le(grown, 4 << 20);
    liar_close(&liar);
}

/* Change some bytes of a correct reply: the result is an error or a possible decision. */
TEST(a_damaged_reply_is_an_error_or_a_possible_decision, 30)
{
    enum { TIMES = INSTRUMENTED ? 300 : 1500 };
    static const char whole[] = "$19\r\n" NOW_AND_ONE "\0echo\r\n";
    struct liar liar;
    struct chance chance = chance_make(8);
    char turned[sizeof whole - 1];
    int64_t refused = 0, until_us = wire_now_us() + 4 * WEIR_SECOND;
    liar_open(&liar, 5000);
    for (int times = 0; times < TIMES && (refused <= 10 || wire_now_us() < until_us); times++) {
        struct weir_decision decision;
        memcpy(turned, whole, sizeof turned);
        for (int64_t i = chance_between(&chance, 1, 3); i > 0; i--)
            turned[chance_between(&chance, 0, sizeof turned - 1)] = (char)chance_next(&chance);
        liar_lies(&liar, true, (struct says){ turned, sizeof turned, SAYS_ONCE });
        int status = weir_try(liar.limit, weir_key_text("key"), 1, &decision);
        ck_assert(status == WEIR_OK || status == WEIR_EIO || status == WEIR_ETIME || status == WEIR_ESTATE);
        refused += status != WEIR_OK;
        if (status == WEIR_OK) {
            ck_assert_int_eq(decision.limit, 50);
            ck_assert_int_ge(decision.remaining, 0);
            ck_assert_int_le(decision.remaining, 50);
            ck_assert_int_ge(decision.reset_after_us, 0);
        }
        if (status == WEIR_EIO || status == WEIR_ETIME) {
            liar_lies(&liar, false, (struct says){ turned, 0, SAYS_ONCE });
            if (times % 20 == 0)
                recover(liar.limit, "key");
        }
    }
    ck_assert_int_gt(refused, 10);
    liar_lies(&liar, false, (struct says){ turned, 0, SAYS_ONCE });
    recover(liar.limit, "key");
    liar_close(&liar);
}

/* ---- Hostile keys ---- */

struct keys {
    char *bytes[1024];
    size_t lens[1024];
    int n;
};

static void keys_add(struct keys *keys, const void *bytes, size_t len)
{
    ck_assert_int_lt(keys->n, 1024);
    for (int i = 0; i < keys->n; i++)
        if (keys->lens[i] == len && memcmp(keys->bytes[i], bytes, len) == 0)
            return;
    keys->bytes[keys->n] = malloc(len);
    memcpy(keys->bytes[keys->n], bytes, len);
    keys->lens[keys->n++] = len;
}

static void keys_collect(struct keys *keys)
{
    static const char *const texts[] = {
        "{}",        "}{",        "{a}",      "{a}{b}", "a}{b", "a:b",
        "limit:{a}", "a}",        "%",        "%%",     "%7B",  "%7b",
        "%25",       "%257B",     "%s%n%n",   "%#",     "\r\n", "a\r\nDEL *",
        "*1\r\n$",   "$3\r\nabc", " ",        "key*",   "[a]",  "\\x00",
        "\xc3\xa9",  "e\xcc\x81", "\xff\xfe", "'",      "\"",   "weir:limit:{a}",
        "a%7Db",     "%7Da",
    };
    static char big[WEIR_MAX_KEY_LEN];
    for (int byte = 0; byte < 256; byte++)
        keys_add(keys, &(char){ (char)byte }, 1);
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++)
        keys_add(keys, texts[i], strlen(texts[i]));
    keys_add(keys, "\0", 2);
    keys_add(keys, "\0\0", 3);
    keys_add(keys, "a\0b", 3);
    keys_add(keys, "a\0c", 3);
    static const char fillers[] = { 'x', '{', '%', '\0' };
    static const size_t lens[] = { 447, 448, 449, 511, 512, 513, 514, 1024, WEIR_MAX_KEY_LEN };
    for (size_t i = 0; i < sizeof fillers; i++)
        for (size_t j = 0; j < sizeof lens / sizeof lens[0]; j++) {
            memset(big, fillers[i], lens[j]);
            keys_add(keys, big, lens[j]);
            big[lens[j] - 1] = 'y'; /* only the last byte differs */
            keys_add(keys, big, lens[j]);
        }
}

TEST(keys_of_any_bytes_are_counted_separately, 30)
{
    static struct keys keys;
    struct place place;
    place_open(&place, false, NULL);
    struct weir_options options = place_options(&place, 10 * WEIR_SECOND);
    weir *limiter = limiter_of(&options);
    weir_limit *limit = limit_of(limiter, "limit", UNREFILLED);
    struct weir_decision decision;
    keys_collect(&keys);
    for (int i = 0; i < keys.n; i++)
        must_succeed(weir_try(limit, weir_key(keys.bytes[i], keys.lens[i]), i + 1, &decision));
    for (int i = 0; i < keys.n; i++) {
        must_succeed(weir_peek(limit, weir_key(keys.bytes[i], keys.lens[i]), 1, &decision));
        ck_assert_msg(decision.limit - decision.remaining == i + 1, "key %d of %zu bytes, first %02x", i, keys.lens[i],
                      (unsigned char)keys.bytes[i][0]);
    }
    ck_assert_int_eq(strtoll(place_ask(&place, "DBSIZE"), NULL, 10), keys.n);
    struct weir_request requests[64]; /* the same, with many keys per call */
    struct weir_decision decisions[64];
    for (int i = 0; i + 64 <= keys.n; i += 64) {
        for (int j = 0; j < 64; j++)
            requests[j] = (struct weir_request){ limit, weir_key(keys.bytes[i + j], keys.lens[i + j]), 1, 0 };
        must_succeed(weir_try_batch(limiter, requests, 64, decisions));
        for (int j = 0; j < 64; j++)
            ck_assert_int_eq(decisions[j].limit - decisions[j].remaining, i + j + 2);
    }
    /* The tag is the key alone; other limits have other names. */
    const char *slot = place_ask(&place, "EVAL", "return #redis.call('KEYS', 'weir:limit:{*}')", "0");
    ck_assert_int_eq(strtoll(slot, NULL, 10), keys.n);
    weir_limit *other = limit_of(limiter, "limit.a", UNREFILLED);
    must_succeed(weir_peek(other, weir_key(keys.bytes[0], keys.lens[0]), 1, &decision));
    ck_assert_int_eq(decision.remaining, decision.limit);
    for (int i = 0; i < keys.n; i++)
        free(keys.bytes[i]);
    weir_close(limiter);
    place_close(&place);
}

int main(void)
{
    if (redis_server_missing())
        return 77;
    return suite_run(tests());
}
