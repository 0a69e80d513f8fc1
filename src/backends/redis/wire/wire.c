/* wire.c - parses Redis' replies with hiredis' reader, without an allocation per reply. */
#include "backends/redis/wire/wire.h"

#include <hiredis/hiredis.h>
#include <stdio.h>
#include <string.h>

#define SECRET_CUT 4 /* bytes of a password at the end of a text that has been cut */

/* hiredis calls these functions for each part of a reply; NULL means an error. The wire itself serves as the object
 * that stands for a reply. */

/* Join a string of a pair to the reply's text. */
static void *wire_join(const redisReadTask *task, const struct redis_wire_scalar *scalar)
{
    struct redis_wire *wire = task->privdata;
    if (!scalar->text || scalar->len > REDIS_WIRE_PAIR_MAX)
        return NULL;
    if (task->idx > 0)
        redis_bytes_add(&wire->text, " ", 1);
    redis_bytes_add(&wire->text, scalar->text, scalar->len);
    return wire->text.failed ? NULL : wire;
}

/* Show an element of a list to the visitor. */
static void *wire_show(const redisReadTask *task, struct redis_wire_scalar scalar)
{
    struct redis_wire *wire = task->privdata;
    if (!wire->visit)
        return wire_join(task, &scalar);
    for (const redisReadTask *list = task->parent; list; list = list->parent)
        scalar.depth++;
    for (size_t i = scalar.depth; i-- > 0; task = task->parent)
        scalar.place[i] = (size_t)task->idx;
    return wire->visit(wire->user, &scalar) ? wire : NULL;
}

static void *wire_take(const redisReadTask *task, enum redis_reply_kind kind, long long number)
{
    struct redis_wire *wire = task->privdata;
    redis_bytes_clear(&wire->text, false);
    wire->kind = kind;
    wire->number = number;
    return wire;
}

/* Copy the string: the reader moves its buffer before it hands out the reply. */
static void *make_string(const redisReadTask *task, char *text, size_t len)
{
    const bool is_text = task->type == REDIS_REPLY_STRING || task->type == REDIS_REPLY_STATUS;
    if (memcmp(text + len, "\r\n", 2) != 0) /* the reader does not check them */
        return NULL;
    if (task->parent)
        return wire_show(task, (struct redis_wire_scalar){ .text = is_text ? text : NULL, .len = is_text ? len : 0 });
    struct redis_wire *wire = wire_take(task,
                                        task->type == REDIS_REPLY_STRING   ? REDIS_REPLY_IS_STRING
                                        : task->type == REDIS_REPLY_STATUS ? REDIS_REPLY_IS_STATUS
                                        : task->type == REDIS_REPLY_ERROR  ? REDIS_REPLY_IS_ERROR
                                                                           : REDIS_REPLY_IS_OTHER,
                                        0);
    redis_bytes_add(&wire->text, text, len);
    return wire->text.failed ? NULL : wire;
}

static void *make_integer(const redisReadTask *task, long long number)
{
    return task->parent ? wire_show(task, (struct redis_wire_scalar){ .is_number = true, .number = number })
                        : wire_take(task, REDIS_REPLY_IS_NUMBER, number);
}

static void *make_nil(const redisReadTask *task)
{
    return task->parent ? wire_show(task, (struct redis_wire_scalar){ .is_nil = true })
                        : wire_take(task, REDIS_REPLY_IS_NIL, 0);
}

#if HIREDIS_MAJOR >= 1
static void *make_other(const redisReadTask *task)
{
    return task->parent ? wire_show(task, (struct redis_wire_scalar){ 0 }) : wire_take(task, REDIS_REPLY_IS_OTHER, 0);
}

static void *make_double(const redisReadTask *task, double number, char *text, size_t len)
{
    (void)number;
    (void)text;
    (void)len;
    return make_other(task);
}

static void *make_bool(const redisReadTask *task, int value)
{
    (void)value;
    return make_other(task);
}
#endif

/* hiredis 0.14 and 1.x differ in the type of `count`. 1.x also calls this for maps, sets and pushes, which a server
 * sends only to clients that ask for them. */
#if HIREDIS_MAJOR >= 1
static void *make_list(const redisReadTask *task, size_t count)
#else
static void *make_list(const redisReadTask *task, int count)
#endif
{
    struct redis_wire *wire = task->privdata;
    size_t depth = 1;
    for (const redisReadTask *list = task->parent; list; list = list->parent)
        depth++;
    const bool is_pair = !wire->visit && count == 2 && depth == 1;
    if (task->type != REDIS_REPLY_ARRAY || (size_t)count > REDIS_WIRE_LIST_MAX || depth > REDIS_WIRE_DEPTH ||
        (!wire->visit && !is_pair))
        return NULL;
    return task->parent ? wire : wire_take(task, REDIS_REPLY_IS_LIST, 0);
}

static void free_nothing(void *object)
{
    (void)object;
}

static redisReplyObjectFunctions functions = {
    .createString = make_string,
    .createArray = make_list,
    .createInteger = make_integer,
    .createNil = make_nil,
#if HIREDIS_MAJOR >= 1
    .createDouble = make_double,
    .createBool = make_bool,
#endif
    .freeObject = free_nothing,
};

void redis_wire_show_lists(struct redis_wire *wire, redis_wire_visit *visit, void *user)
{
    wire->visit = visit;
    wire->user = user;
}

int redis_wire_restart(struct redis_wire *wire)
{
    if (wire->reader)
        redisReaderFree(wire->reader);
    wire->pending = 0;
    redis_wire_show_lists(wire, NULL, NULL);
    wire->reader = redisReaderCreateWithFunctions(&functions);
    if (!wire->reader)
        return -1;
    wire->reader->privdata = wire;
    wire->reader->maxbuf = 0; /* never shrink the buffer: REDIS_WIRE_MAX bounds it */
    return 0;
}

int redis_wire_init(struct redis_wire *wire)
{
    *wire = (struct redis_wire){ 0 };
    return redis_wire_restart(wire);
}

void redis_wire_free(struct redis_wire *wire)
{
    if (wire->reader)
        redisReaderFree(wire->reader);
    redis_bytes_free(&wire->text);
    wire->reader = NULL;
}

int redis_wire_feed(struct redis_wire *wire, const char *data, size_t len)
{
    const size_t most = wire->visit ? REDIS_WIRE_LIST_BYTES : REDIS_WIRE_MAX;
    wire->pending += len;
    if (!wire->reader || wire->pending > most)
        return -1;
    return redisReaderFeed(wire->reader, data, len) == REDIS_OK ? 0 : -1;
}

int redis_wire_next(struct redis_wire *wire, struct redis_reply *out)
{
    void *object = NULL;
    if (!wire->reader || redisReaderGetReply(wire->reader, &object) != REDIS_OK)
        return -1;
    if (!object)
        return 0;
    wire->pending = wire->reader->len - wire->reader->pos;
    *out = (struct redis_reply){
        .kind = wire->kind,
        .text = wire->text.data,
        .len = wire->text.len,
        .number = wire->number,
        .secret = wire->secret,
    };
    return 1;
}

bool redis_wire_is_text(const struct redis_wire_scalar *scalar, const char *text)
{
    return scalar->text && scalar->len == strlen(text) && memcmp(scalar->text, text, scalar->len) == 0;
}

bool redis_reply_is_error(const struct redis_reply *reply, const char *word)
{
    size_t len = strlen(word);
    return reply->kind == REDIS_REPLY_IS_ERROR && reply->len >= len && memcmp(reply->text, word, len) == 0 &&
           (reply->len == len || reply->text[len] == ' ');
}

/* Return how many bytes at `at` are the password, or its first bytes, SECRET_CUT or more, where the text ends; or 0. */
static size_t secret_len(const char *secret, const char *at, size_t left)
{
    const size_t len = secret ? strlen(secret) : 0, seen = len < left ? len : left;
    const bool is_whole = seen == len || seen >= SECRET_CUT;
    return is_whole && seen > 0 && memcmp(at, secret, seen) == 0 ? seen : 0;
}

void redis_reply_word(const struct redis_reply *error, char out[REDIS_WORD_SIZE])
{
    size_t len = 0;
    for (; len < error->len && len + 1 < REDIS_WORD_SIZE; len++) {
        const char c = error->text[len];
        if ((c < 'A' || c > 'Z') && c != '_')
            break;
        out[len] = c;
    }
    out[len] = '\0';
    if (len == 0 || secret_len(error->secret, error->text, error->len) > 0)
        memcpy(out, "ERR", sizeof "ERR");
}

/* Return the length of the quoted text at `at`, quotes included, or 0 if it must not be repeated. */
static size_t quoted_len(const char *at, size_t left)
{
    size_t len = 1;
    while (len < left && ((at[len] >= 'a' && at[len] <= 'z') || strchr("|_-", at[len])))
        len++;
    return len < left && at[len] == '\'' ? len + 1 : 0;
}

void redis_reply_sentence(const struct redis_reply *error, char out[REDIS_SENTENCE_SIZE])
{
    static const char *const ends[] = { ", with args", " script: " };
    size_t left = error->len, len = 0;
    for (size_t i = 0; i < sizeof ends / sizeof ends[0]; i++) {
        const char *end = memmem(error->text, left, ends[i], strlen(ends[i]));
        if (end)
            left = (size_t)(end - error->text);
    }
    for (const char *at = error->text, *end = at + left; at < end && len + 1 < REDIS_SENTENCE_SIZE;) {
        const size_t hidden = secret_len(error->secret, at, (size_t)(error->text + error->len - at));
        const bool opens = *at == '\'' && (at == error->text || at[-1] == ' ');
        const char *close = opens ? memchr(at + 1, '\'', (size_t)(end - at - 1)) : NULL;
        const bool is_quote = opens && quoted_len(at, (size_t)(end - at)) == 0;
        if (is_quote || hidden > 0) {
            len += (size_t)snprintf(out + len, REDIS_SENTENCE_SIZE - len, is_quote ? "'...'" : "...");
            at = !is_quote ? at + hidden : close ? close + 1 : end;
            len = len < REDIS_SENTENCE_SIZE ? len : REDIS_SENTENCE_SIZE - 1;
        } else {
            out[len++] = *at++;
        }
    }
    while (len > 0 && out[len - 1] == ' ')
        len--;
    out[len] = '\0';
}

void redis_reply_refusal(const struct redis_reply *error, const char *what, char *reason, size_t size)
{
    char word[REDIS_WORD_SIZE], sentence[REDIS_SENTENCE_SIZE];
    redis_reply_word(error, word);
    redis_reply_sentence(error, sentence);
    const char *words = sentence;
    if (strcmp(what, "AUTH") == 0) /* the server may quote the password */
        words = strcmp(word, "WRONGPASS") == 0 ? "the user or the password is wrong"
                : strcmp(word, "ERR") == 0     ? "the server may have no password set, or no users"
                                               : "";
    else if (strncmp(sentence, word, strlen(word)) == 0)
        words += strlen(word) + (sentence[strlen(word)] == ' ');
    snprintf(reason, size, "the server answers %s to %s%s%s", word, what, *words ? ": " : "", words);
}
