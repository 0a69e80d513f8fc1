/* test_redis_wire.c - Redis replies fed whole and byte by byte: their kinds, the contents of lists, and what breaks
 * the parser. */
#include "failing_alloc.h"
#include "support.h"

#include "backends/redis/wire/bytes.h"
#include "backends/redis/wire/wire.h"

#include <hiredis/hiredis.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#define TEN_LISTS "*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n"

/* What the reader reported, as text. */
static struct {
    char text[1024];
    size_t len;
} heard;

__attribute__((format(printf, 1, 2))) static void note(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    heard.len += (size_t)vsnprintf(heard.text + heard.len, sizeof heard.text - heard.len, format, arguments);
    va_end(arguments);
    ck_assert_uint_lt(heard.len, sizeof heard.text);
}

/* Note "0.2=7 " for the number 7, third of the first list in the list. Refuse "stop". */
static bool hear_scalar(void *user, const struct redis_wire_scalar *scalar)
{
    ck_assert_ptr_eq(user, &heard);
    ck_assert(scalar->depth >= 1 && scalar->depth <= REDIS_WIRE_DEPTH);
    for (size_t i = 0; i < scalar->depth; i++)
        note(i > 0 ? ".%zu" : "%zu", scalar->place[i]);
    if (scalar->is_number)
        note("=%lld ", scalar->number);
    else if (scalar->is_nil)
        note("=nil ");
    else if (scalar->text)
        note("='%.*s' ", (int)scalar->len, scalar->text);
    else
        note("=other ");
    ck_assert(!scalar->is_number || (!scalar->is_nil && !scalar->text && scalar->len == 0));
    ck_assert(!scalar->is_nil || (!scalar->text && scalar->len == 0));
    return !redis_wire_is_text(scalar, "stop");
}

static void note_reply(const struct redis_reply *reply)
{
    static const char *const kinds[] = {
        [REDIS_REPLY_IS_STRING] = "string", [REDIS_REPLY_IS_STATUS] = "status", [REDIS_REPLY_IS_ERROR] = "error",
        [REDIS_REPLY_IS_NIL] = "nil",       [REDIS_REPLY_IS_NUMBER] = "number", [REDIS_REPLY_IS_LIST] = "list",
        [REDIS_REPLY_IS_OTHER] = "other",
    };
    note("%s", kinds[reply->kind]);
    if (reply->kind == REDIS_REPLY_IS_NUMBER)
        note(" %lld", reply->number);
    else
        ck_assert_int_eq(reply->number, 0);
    if (reply->len > 0)
        note(" %.*s", (int)reply->len, reply->text);
    note("; ");
}

/* Feed the bytes in pieces and note everything; "broken" marks an error. */
static void hear(const char *bytes, size_t len, size_t piece, bool lists)
{
    CLOSED_BY(redis_wire_free) struct redis_wire wire;
    struct redis_reply reply;
    int result = 0;
    heard.len = 0;
    heard.text[0] = '\0';
    ck_assert_int_eq(redis_wire_init(&wire), 0);
    if (lists)
        redis_wire_show_lists(&wire, hear_scalar, &heard);
    for (size_t at = 0; at < len && result == 0; at += piece) {
        result = redis_wire_feed(&wire, bytes + at, len - at < piece ? len - at : piece);
        while (result == 0 && (result = redis_wire_next(&wire, &reply)) == 1) {
            note_reply(&reply);
            result = 0;
        }
    }
    if (result < 0)
        note("broken");
}

static void assert_heard(const char *bytes, bool lists, const char *expected)
{
    const size_t len = strlen(bytes);
    for (size_t piece = len; piece > 0; piece = piece > 3 ? 3 : piece - 1) {
        hear(bytes, len, piece, lists);
        ck_assert_msg(strcmp(heard.text, expected) == 0, "%s in pieces of %zu: \"%s\" is not \"%s\"", bytes, piece,
                      heard.text, expected);
    }
}

TEST(replies_are_separated_however_they_are_cut, 30)
{
    static const struct {
        const char *bytes, *expected;
    } rows[] = {
        { "$3\r\nabc\r\n$0\r\n\r\n", "string abc; string; " },
        { "+OK\r\n+\r\n", "status OK; status; " },
        { "-MOVED 1 h:1\r\n", "error MOVED 1 h:1; " },
        { "$-1\r\n*-1\r\n", "nil; nil; " },
        { ":0\r\n:-7\r\n:9223372036854775807\r\n", "number 0; number -7; number 9223372036854775807; " },
        { ":5\r\n+OK\r\n:6\r\n", "number 5; status OK; number 6; " },
        { "$4\r\na\r\nb\r\n", "string a\r\nb; " },
        { "$3\r\nab", "" },
        { "$3\r\nabcde", "broken" },
        { "+OK\r\n$3\r\nabcde+OK\r\n", "status OK; broken" },
        { ":9223372036854775808\r\n", "broken" },
        { ":1x\r\n", "broken" },
        { "$-2\r\n", "broken" },
        { "HTTP/1.1 400 Bad Request\r\n", "broken" },
        { "*0\r\n", "broken" },
        { "*1\r\n+a\r\n", "broken" },
        { ":1\r\n*1\r\n+a\r\n", "number 1; broken" },
        { "%1\r\n+a\r\n+b\r\n", "broken" },
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        assert_heard(rows[i].bytes, false, rows[i].expected);
}

TEST(elements_of_a_list_reply_are_reported_with_their_place, 30)
{
    static const struct {
        const char *bytes, *expected;
    } rows[] = {
        { "*0\r\n", "list; " },
        { "*3\r\n:7\r\n$-1\r\n+b\r\n", "0=7 1=nil 2='b' list; " },
        { "*2\r\n$0\r\n\r\n$4\r\na\r\nb\r\n", "0='' 1='a\r\nb' list; " },
        { "*2\r\n-ERR no\r\n*-1\r\n", "0=other 1=nil list; " },
        { "*3\r\n*0\r\n:1\r\n*2\r\n:2\r\n:3\r\n", "1=1 2.0=2 2.1=3 list; " },
        { "*2\r\n*1\r\n*1\r\n*2\r\n+a\r\n:1\r\n+z\r\n", "0.0.0.0='a' 0.0.0.1=1 1='z' list; " },
        { "*1\r\n:1\r\n*1\r\n:2\r\n+OK\r\n", "0=1 list; 0=2 list; status OK; " },
        { "*2\r\n*3\r\n:0\r\n:1\r\n*2\r\n$1\r\nh\r\n:9\r\n*3\r\n:2\r\n:3\r\n*2\r\n$1\r\ni\r\n:8\r\n",
          "0.0=0 0.1=1 0.2.0='h' 0.2.1=9 1.0=2 1.1=3 1.2.0='i' 1.2.1=8 list; " },
        { "*2\r\n:1\r\n", "0=1 " },
        { "*3\r\n:1\r\n+stop\r\n:2\r\n", "0=1 1='stop' broken" },
        { "*1\r\n*1\r\n*1\r\n*1\r\n+a\r\n", "0.0.0.0='a' list; " },
        { "*1\r\n*1\r\n*1\r\n*1\r\n*0\r\n", "broken" },
        { "+OK\r\n" TEN_LISTS TEN_LISTS, "status OK; broken" },
        { "*32768\r\n:1\r\n", "0=1 " },
        { "*32769\r\n", "broken" },
        { "*2\r\n:1\r\n*32769\r\n", "0=1 broken" },
        { "*2147483647\r\n", "broken" },
        { "*2147483648\r\n", "broken" },
        { "*4294967297\r\n", "broken" },
        { "*9223372036854775807\r\n", "broken" },
        { "*99999999999999999999\r\n", "broken" },
        { "*-2\r\n", "broken" },
        { "*2\r\n$3\r\nabcde", "broken" },
        { "*1\r\n%1\r\n+a\r\n+b\r\n", "broken" },
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        assert_heard(rows[i].bytes, true, rows[i].expected);
}

/* RESP3, which weir never requests; hiredis 0.14 does not support it. */
TEST(doubles_and_booleans_are_replies_of_an_unknown_kind, 30)
{
    const bool is_known = HIREDIS_MAJOR >= 1;
    assert_heard(",1.5\r\n#t\r\n", false, is_known ? "other; other; " : "broken");
    assert_heard("*2\r\n,1.5\r\n#f\r\n", true, is_known ? "0=other 1=other list; " : "broken");
    assert_heard("*2\r\n:1\r\n_\r\n", true, is_known ? "0=1 1=nil list; " : "0=1 broken");
}

TEST(list_elements_are_reported_only_while_a_list_is_expected, 30)
{
    CLOSED_BY(redis_wire_free) struct redis_wire wire;
    struct redis_reply reply;
    heard.len = 0;
    ck_assert_int_eq(redis_wire_init(&wire), 0);
    ck_assert_int_eq(redis_wire_feed(&wire, "+OK\r\n*1\r\n:1\r\n*1\r\n:2\r\n", 21), 0);
    ck_assert_int_eq(redis_wire_next(&wire, &reply), 1);
    redis_wire_show_lists(&wire, hear_scalar, &heard);
    ck_assert_int_eq(redis_wire_next(&wire, &reply), 1);
    ck_assert_int_eq(reply.kind, REDIS_REPLY_IS_LIST);
    redis_wire_show_lists(&wire, NULL, NULL);
    ck_assert_int_eq(redis_wire_next(&wire, &reply), -1);
    ck_assert_str_eq(heard.text, "0=1 ");

    /* A new connection begins without lists, whatever the previous one sent. */
    redis_wire_show_lists(&wire, hear_scalar, &heard);
    ck_assert_int_eq(redis_wire_restart(&wire), 0);
    ck_assert_int_eq(redis_wire_feed(&wire, "*1\r\n:1\r\n", 8), 0);
    ck_assert_int_eq(redis_wire_next(&wire, &reply), -1);

    /* After a restart in the middle of a list, the rest of that list is not shown. */
    ck_assert_int_eq(redis_wire_restart(&wire), 0);
    redis_wire_show_lists(&wire, hear_scalar, &heard);
    ck_assert_int_eq(redis_wire_feed(&wire, "*2\r\n:1\r\n", 8), 0);
    ck_assert_int_eq(redis_wire_next(&wire, &reply), 0);
    redis_wire_show_lists(&wire, NULL, NULL);
    ck_assert_int_eq(redis_wire_feed(&wire, ":2\r\n", 4), 0);
    ck_assert_int_eq(redis_wire_next(&wire, &reply), -1);
}

TEST(a_pair_of_short_strings_is_joined_and_no_other_list_is_read, 30)
{
    static const struct {
        const char *bytes, *text; /* NULL: the wire breaks */
    } cases[] = {
        { "*2\r\n$10\r\n1790000000\r\n$6\r\n000123\r\n", "1790000000 000123" },
        { "*2\r\n+a\r\n$0\r\n\r\n", "a " },
        { "*2\r\n$32\r\n12345678901234567890123456789012\r\n$1\r\n0\r\n", "12345678901234567890123456789012 0" },
        { "*2\r\n$33\r\n123456789012345678901234567890123\r\n$1\r\n0\r\n", NULL },
        { "*1\r\n$1\r\n1\r\n", NULL },
        { "*3\r\n$1\r\n1\r\n$1\r\n2\r\n$1\r\n3\r\n", NULL },
        { "*0\r\n", NULL },
        { "*2\r\n:1\r\n:2\r\n", NULL },
        { "*2\r\n$1\r\n1\r\n$-1\r\n", NULL },
        { "*2\r\n$1\r\n1\r\n-ERR\r\n", NULL },
        { "*2\r\n$1\r\n1\r\n*2\r\n$1\r\n1\r\n$1\r\n2\r\n", NULL },
        { "*1\r\n*2\r\n$1\r\n1\r\n$1\r\n2\r\n", NULL },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        for (size_t piece = 1; piece < 64; piece += 31) { /* byte by byte, and in larger pieces */
            CLOSED_BY(redis_wire_free) struct redis_wire wire;
            struct redis_reply reply = { .len = 0 };
            const size_t len = strlen(cases[i].bytes);
            int result = 0;
            ck_assert_int_eq(redis_wire_init(&wire), 0);
            for (size_t at = 0; at < len && result == 0; at += piece) {
                const size_t left = len - at;
                ck_assert_int_eq(redis_wire_feed(&wire, cases[i].bytes + at, piece < left ? piece : left), 0);
                result = redis_wire_next(&wire, &reply);
            }
            ck_assert_int_eq(result, cases[i].text ? 1 : -1);
            if (cases[i].text) {
                ck_assert_int_eq(reply.kind, REDIS_REPLY_IS_LIST);
                ck_assert_uint_eq(reply.len, strlen(cases[i].text));
                ck_assert_int_eq(memcmp(reply.text, cases[i].text, reply.len), 0);
            }
        }
    }
}

/* ---- Bounds ---- */

static bool count_scalar(void *user, const struct redis_wire_scalar *scalar)
{
    ++*(size_t *)user;
    return scalar->is_number;
}

/* Feed `bytes` until the reader breaks or `most` bytes went in; return that number. */
static size_t feed_until_broken(struct redis_wire *wire, const char *bytes, size_t len, size_t most)
{
    struct redis_reply reply;
    size_t fed = 0;
    while (fed < most && redis_wire_feed(wire, bytes, len) == 0) {
        fed += len;
        const int result = redis_wire_next(wire, &reply);
        ck_assert_int_ne(result, 1);
        if (result < 0)
            break;
    }
    return fed;
}

TEST(an_endless_reply_breaks_the_reader_at_a_bound, 60)
{
    static char numbers[4 * 4096];
    CLOSED_BY(redis_wire_free) struct redis_wire wire;
    size_t count = 0;
    for (size_t at = 0; at < sizeof numbers; at += 4)
        memcpy(numbers + at, ":1\r\n", 4);
    ck_assert_int_eq(redis_wire_init(&wire), 0);
    ck_assert_int_eq(redis_wire_feed(&wire, "$2000000\r\n", 10), 0);
    const size_t fed = feed_until_broken(&wire, numbers, sizeof numbers, REDIS_WIRE_LIST_BYTES);
    ck_assert(fed <= REDIS_WIRE_MAX && fed > REDIS_WIRE_MAX - 2 * sizeof numbers);

    /* An endless list is shown without using memory. */
    ck_assert_int_eq(redis_wire_restart(&wire), 0);
    redis_wire_show_lists(&wire, count_scalar, &count);
    ck_assert_int_eq(redis_wire_feed(&wire, "*32768\r\n", 8), 0);
    size_t in_lists = 0;
    for (; in_lists < 2 * REDIS_WIRE_LIST_BYTES && redis_wire_feed(&wire, "*32768\r\n", 8) == 0; in_lists += 131072)
        if (feed_until_broken(&wire, numbers, sizeof numbers, 131072) < 131072)
            break;
    ck_assert(in_lists <= REDIS_WIRE_LIST_BYTES && in_lists > REDIS_WIRE_LIST_BYTES - 3 * 131072);
    ck_assert_uint_gt(count, (REDIS_WIRE_LIST_BYTES - 3 * 131072) / 4);
    ck_assert_uint_eq(wire.text.room, 0);
}

TEST(a_list_longer_than_the_bound_on_other_replies_is_read, 60)
{
    CLOSED_BY(redis_wire_free) struct redis_wire wire;
    struct redis_reply reply;
    size_t count = 0, fed = 8;
    ck_assert_int_eq(redis_wire_init(&wire), 0);
    redis_wire_show_lists(&wire, count_scalar, &count);
    for (int round = 0; round < 3; round++) {
        ck_assert_int_eq(redis_wire_feed(&wire, "*16384\r\n", 8), 0);
        for (int i = 0; i < 16384; i++) {
            char range[1024];
            size_t at = (size_t)snprintf(range, sizeof range, "*32\r\n");
            for (int j = 0; j < 32; j++)
                at += (size_t)snprintf(range + at, sizeof range - at, ":%d\r\n", i);
            ck_assert_int_eq(redis_wire_feed(&wire, range, at), 0);
            ck_assert_int_eq(redis_wire_next(&wire, &reply), i == 16383);
            fed += at;
        }
        ck_assert_int_eq(reply.kind, REDIS_REPLY_IS_LIST);
    }
    ck_assert_uint_gt(fed, 3 * REDIS_WIRE_MAX);
    ck_assert_uint_eq(count, 3 * 16384 * 32);
}

TEST(an_error_is_identified_by_its_first_word, 30)
{
    static const struct {
        const char *text, *word;
        bool is_it;
    } rows[] = {
        { "ASK 1 h:1", "ASK", true },    { "ASK", "ASK", true }, { "ASKING 1", "ASK", false },
        { "MOVED 1 h:1", "ASK", false }, { "AS", "ASK", false }, { "", "ASK", false },
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct redis_reply reply = { .kind = REDIS_REPLY_IS_ERROR, .text = rows[i].text, .len = strlen(rows[i].text) };
        ck_assert_msg(redis_reply_is_error(&reply, rows[i].word) == rows[i].is_it, "%s", rows[i].text);
        reply.kind = REDIS_REPLY_IS_STATUS;
        ck_assert(!redis_reply_is_error(&reply, rows[i].word));
    }
}

/* ---- Memory ---- */

static bool no_memory; /* for hiredis */

/* The linker's names of the wrapped functions and their wrappers. */
redisReader *__real_redisReaderCreateWithFunctions(redisReplyObjectFunctions *functions);
redisReader *__wrap_redisReaderCreateWithFunctions(redisReplyObjectFunctions *functions);
int __real_redisReaderFeed(redisReader *reader, const char *data, size_t len);
int __wrap_redisReaderFeed(redisReader *reader, const char *data, size_t len);

redisReader *__wrap_redisReaderCreateWithFunctions(redisReplyObjectFunctions *functions)
{
    return no_memory ? NULL : __real_redisReaderCreateWithFunctions(functions);
}

int __wrap_redisReaderFeed(redisReader *reader, const char *data, size_t len)
{
    return no_memory ? REDIS_ERR : __real_redisReaderFeed(reader, data, len);
}

static void assert_reads(struct redis_wire *wire, const char *bytes, int expected)
{
    struct redis_reply reply;
    ck_assert_int_eq(redis_wire_feed(wire, bytes, strlen(bytes)), 0);
    ck_assert_int_eq(redis_wire_next(wire, &reply), expected);
}

TEST(a_reader_without_memory_stays_broken_until_it_is_restarted, 30)
{
    struct redis_wire wire;
    struct redis_reply reply;
    no_memory = true;
    ck_assert_int_eq(redis_wire_init(&wire), -1);
    redis_wire_free(&wire);
    no_memory = false;
    ck_assert_int_eq(redis_wire_init(&wire), 0);
    assert_reads(&wire, ":1\r\n", 1);
    no_memory = true;
    ck_assert_int_eq(redis_wire_feed(&wire, ":2\r\n", 4), -1);
    ck_assert_int_eq(redis_wire_restart(&wire), -1);
    no_memory = false;
    ck_assert_int_eq(redis_wire_feed(&wire, ":3\r\n", 4), -1);
    ck_assert_int_eq(redis_wire_next(&wire, &reply), -1);
    ck_assert_int_eq(redis_wire_restart(&wire), 0);
    ck_assert_int_eq(redis_wire_feed(&wire, "$3\r\nabc\r\n", 9), 0);
    alloc_watch(1, false);
    const int result = redis_wire_next(&wire, &reply); /* no memory for its text */
    alloc_pause();
    ck_assert(alloc_failed() && result == -1);
    ck_assert_int_eq(redis_wire_restart(&wire), 0);
    assert_reads(&wire, "$3\r\nabc\r\n", 1);
    redis_wire_free(&wire);
}

/* ---- What is repeated of an error ---- */

TEST(an_error_is_repeated_without_the_password_of_its_connection, 10)
{
    static const char secret[] = "swordfish";
    static const struct {
        const char *error, *sentence, *word;
    } rows[] = {
        { "NOAUTH swordfish is wrong", "NOAUTH ... is wrong", "NOAUTH" },
        { "ERR no user has 'swordfish'", "ERR no user has '...'", "ERR" },
        { "ERR a:swordfish,swordfish.", "ERR a:...,....", "ERR" },
        { "ERR cut after sword", "ERR cut after ...", "ERR" },
        { "ERR of swo", "ERR of swo", "ERR" },
        { "swordfish", "...", "ERR" },
        { "ERR unknown 'get' command, with args beginning with: swordfish", "ERR unknown 'get' command", "ERR" },
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const struct redis_reply reply = {
            .kind = REDIS_REPLY_IS_ERROR, .text = rows[i].error, .len = strlen(rows[i].error), .secret = secret
        };
        char sentence[REDIS_SENTENCE_SIZE], word[REDIS_WORD_SIZE];
        redis_reply_sentence(&reply, sentence);
        redis_reply_word(&reply, word);
        ck_assert_str_eq(sentence, rows[i].sentence);
        ck_assert_str_eq(word, rows[i].word);
    }
}

TEST(a_password_in_capitals_is_not_taken_for_an_error_code, 10)
{
    const struct redis_reply reply = {
        .kind = REDIS_REPLY_IS_ERROR, .text = "SWORDFISH", .len = 9, .secret = "SWORDFISH"
    };
    char word[REDIS_WORD_SIZE];
    redis_reply_word(&reply, word);
    ck_assert_str_eq(word, "ERR");
}

TEST(a_reply_refers_to_the_password_that_its_connection_sent, 10)
{
    struct redis_wire wire = { 0 };
    struct redis_reply reply;
    static const char secret[] = "swordfish";
    ck_assert_int_eq(redis_wire_init(&wire), 0);
    wire.secret = secret;
    ck_assert_int_eq(redis_wire_feed(&wire, "-ERR swordfish\r\n", 16), 0);
    ck_assert_int_eq(redis_wire_next(&wire, &reply), 1);
    ck_assert_ptr_eq(reply.secret, secret);
    redis_wire_free(&wire);
}

/* Write two parts that fit into the initial buffer and one that does not. */
static void write_command(struct redis_bytes *bytes)
{
    static const char large[8192];
    redis_bytes_command(bytes, 3);
    redis_bytes_text(bytes, "SET");
    redis_bytes_number(bytes, 1234567890);
    redis_bytes_string(bytes, large, sizeof large);
}

TEST(a_write_without_memory_fails_until_the_buffer_is_cleared, 30)
{
    struct redis_bytes bytes = { 0 }, whole = { 0 };
    write_command(&whole);
    ck_assert(!whole.failed);
    for (int64_t number = 1; number <= 2; number++) {
        alloc_watch(number, false);
        write_command(&bytes);
        alloc_pause();
        ck_assert(alloc_failed() && bytes.failed);
        const size_t len = bytes.len;
        redis_bytes_text(&bytes, "PING");
        redis_bytes_add(&bytes, "x", 1);
        ck_assert_ptr_null(redis_bytes_room(&bytes, 1));
        ck_assert_uint_eq(bytes.len, len);
        redis_bytes_clear(&bytes, true);
        write_command(&bytes);
        ck_assert(!bytes.failed && bytes.len == whole.len && memcmp(bytes.data, whole.data, whole.len) == 0);
        redis_bytes_free(&bytes);
    }
    redis_bytes_free(&whole);
}

/* Found by fuzzing: a new connection's first empty reply had a NULL pointer, on which arithmetic is undefined. */
TEST(an_empty_reply_is_a_string_of_zero_bytes, 10)
{
    static const char bytes[] = "$0\r\n\r\n";
    CLOSED_BY(redis_wire_free) struct redis_wire wire;
    struct redis_reply reply;
    ck_assert_int_eq(redis_wire_init(&wire), 0);
    ck_assert_int_eq(redis_wire_feed(&wire, bytes, sizeof bytes - 1), 0);
    ck_assert_int_eq(redis_wire_next(&wire, &reply), 1);
    ck_assert_int_eq(reply.kind, REDIS_REPLY_IS_STRING);
    ck_assert_uint_eq(reply.len, 0);
    ck_assert_ptr_nonnull(reply.text);
}
