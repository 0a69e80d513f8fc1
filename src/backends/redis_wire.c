/* redis_wire.c - replies of Redis, read by hiredis' reader without an allocation for each. */
#include "backends/redis_wire.h"

#include <hiredis/hiredis.h>
#include <string.h>

/* hiredis calls these as it comes by the parts of a reply. The object that stands for a reply is the wire itself. The
 * string is copied, for the reader moves its own buffer before it hands the reply out. */

static void *make_string(const redisReadTask *task, char *text, size_t len)
{
    struct redis_wire *wire = task->privdata;
    if (memcmp(text + len, "\r\n", 2) != 0) /* the reader has these two, but does not look at them */
        return NULL;
    redis_bytes_clear(&wire->text, false);
    redis_bytes_add(&wire->text, text, len);
    wire->kind = task->type == REDIS_REPLY_STRING   ? REDIS_REPLY_IS_STRING
                 : task->type == REDIS_REPLY_STATUS ? REDIS_REPLY_IS_STATUS
                 : task->type == REDIS_REPLY_ERROR  ? REDIS_REPLY_IS_ERROR
                                                    : REDIS_REPLY_IS_OTHER;
    return wire->text.failed ? NULL : wire;
}

static void *make_plain(const redisReadTask *task, enum redis_reply_kind kind)
{
    struct redis_wire *wire = task->privdata;
    if (task->parent)
        return wire;
    redis_bytes_clear(&wire->text, false);
    wire->kind = kind;
    return wire;
}

static void *make_other(const redisReadTask *task)
{
    return make_plain(task, REDIS_REPLY_IS_OTHER);
}

static void *make_nil(const redisReadTask *task)
{
    return make_plain(task, REDIS_REPLY_IS_NIL);
}

static void *make_integer(const redisReadTask *task, long long number)
{
    (void)number;
    return make_other(task);
}

#if HIREDIS_MAJOR >= 1
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

static void free_nothing(void *object)
{
    (void)object;
}

/* ---- Lists ---- */

/* What stands in a list. Deeper strings are dropped. */
static void *make_item(const redisReadTask *task, char *text, size_t len)
{
    struct redis_wire *wire = task->privdata;
    if (!task->parent)
        return make_string(task, text, len);
    if (memcmp(text + len, "\r\n", 2) != 0)
        return NULL;
    if (task->parent->parent || task->idx >= REDIS_WIRE_ITEMS)
        return wire;
    if (len > REDIS_WIRE_ITEM_MAX)
        return NULL;
    wire->items[task->idx].at = wire->text.len;
    wire->items[task->idx].len = len;
    wire->kept |= 1u << task->idx;
    redis_bytes_add(&wire->text, text, len);
    return wire->text.failed ? NULL : wire;
}

/* hiredis 0.14 and 1.x disagree on the type of `count`: the functions differ in their tables alone. */
#if HIREDIS_MAJOR >= 1
static void *make_list(const redisReadTask *task, size_t count)
#else
static void *make_list(const redisReadTask *task, int count)
#endif
{
    struct redis_wire *wire = task->privdata;
    const redisReadTask *parent = task->parent;
    if ((size_t)count > REDIS_WIRE_LIST_MAX || (parent && parent->parent && parent->parent->parent))
        return NULL; /* an error of the reader's */
    if (parent)
        return wire;
    redis_bytes_clear(&wire->text, false);
    wire->kept = 0;
    wire->kind = REDIS_REPLY_IS_LIST;
    return wire;
}

#if HIREDIS_MAJOR >= 1
static void *refuse_list(const redisReadTask *task, size_t count)
#else
static void *refuse_list(const redisReadTask *task, int count)
#endif
{
    (void)task;
    (void)count;
    return NULL;
}

/* Replies of scripts pay nothing for lists. */
#if HIREDIS_MAJOR >= 1
#define SCALARS                                                                                                 \
    .createInteger = make_integer, .createNil = make_nil, .createDouble = make_double, .createBool = make_bool, \
    .freeObject = free_nothing
#else
#define SCALARS .createInteger = make_integer, .createNil = make_nil, .freeObject = free_nothing
#endif
static redisReplyObjectFunctions plain = { .createString = make_string, .createArray = refuse_list, SCALARS };
static redisReplyObjectFunctions with_lists = { .createString = make_item, .createArray = make_list, SCALARS };

void redis_wire_allow_lists(struct redis_wire *wire, bool allowed)
{
    wire->reader->fn = allowed ? &with_lists : &plain;
}

int redis_wire_restart(struct redis_wire *wire)
{
    if (wire->reader)
        redisReaderFree(wire->reader);
    wire->reader = redisReaderCreateWithFunctions(&plain);
    if (!wire->reader)
        return -1;
    wire->reader->privdata = wire;
    wire->reader->maxbuf = 0; /* keep the buffer, however large it once was: REDIS_WIRE_MAX bounds it */
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
    if (!wire->reader || wire->reader->len - wire->reader->pos + len > REDIS_WIRE_MAX)
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
    *out = (struct redis_reply){ .kind = wire->kind, .text = wire->text.data, .len = wire->text.len };
    return 1;
}

const char *redis_wire_item(const struct redis_wire *wire, size_t i, size_t *len)
{
    if (i >= REDIS_WIRE_ITEMS || !(wire->kept >> i & 1))
        return NULL;
    *len = wire->items[i].len;
    return wire->text.data + wire->items[i].at;
}

bool redis_wire_item_is(const struct redis_wire *wire, size_t i, const char *text)
{
    size_t len;
    const char *item = redis_wire_item(wire, i, &len);
    return item && len == strlen(text) && memcmp(item, text, len) == 0;
}

bool redis_reply_is_error(const struct redis_reply *reply, const char *word)
{
    size_t len = strlen(word);
    return reply->kind == REDIS_REPLY_IS_ERROR && reply->len >= len && memcmp(reply->text, word, len) == 0 &&
           (reply->len == len || reply->text[len] == ' ');
}
