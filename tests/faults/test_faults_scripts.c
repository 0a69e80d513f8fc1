/* test_faults_scripts.c - server clocks that scripts may meet: fault B5 of tests/tools/faults.conf.
 *
 * TIME answers with two texts, seconds and microseconds without leading zeroes. Here a few lines before each script
 * replace `redis` with one whose TIME the test sets.
 */
#include "mirror.h"
#include "scripts.h"
#include "support.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

enum { SECONDS = 1790000000 };

/* Return the script with a clock that stands at these microseconds. The caller frees it. */
static char *told_the_time(const struct redis_script *script, const char *microseconds)
{
    static const char clock[] = "local server = redis\n"
                                "local redis = { pcall = server.pcall, error_reply = server.error_reply }\n"
                                "function redis.call(name, ...)\n"
                                "  if name == 'TIME' then return { '%d', '%s' } end\n"
                                "  return server.call(name, ...)\n"
                                "end\n%s";
    const size_t room = sizeof clock + script->len + 64;
    char *text = malloc(room);
    must(text != NULL && snprintf(text, room, clock, (int)SECONDS, microseconds, script->text) < (int)room, "room");
    return text;
}

/* Take one permit of `key` with the given script text, or with the loaded script and an explicit time. */
static redisReply *take(struct scripts *scripts, const struct weir_plan *plan, const char *key, const char *text,
                        int64_t now_us)
{
    static struct call call;
    unsigned char stamp[REDIS_STAMP_MAX], item[REDIS_ITEM_SIZE];
    call_begin(&call, redis_script_of(plan), 1);
    call_word(&call, key, strlen(key));
    call_word(&call, stamp, redis_stamp_write(plan, stamp));
    redis_item_write(item, (int)WEIR_TAKE, false, 1, 1);
    call_items(&call, item, sizeof item);
    if (text == NULL) {
        call_number(&call, now_us);
    } else {
        call.words[0] = "EVAL";
        call.lens[0] = strlen("EVAL");
        call.words[1] = text;
        call.lens[1] = strlen(text);
    }
    call_send(scripts, &call);
    return reply_next(scripts);
}

/* Compare two texts, in which a state follows `head` bytes and `tail` bytes follow the state. Only the server's clock
 * gives a key room in its time to live. */
static void assert_same_bytes(redisReply *one, redisReply *other, size_t head, size_t tail, const char *where)
{
    ck_assert_msg(one->type == REDIS_REPLY_STRING && other->type == REDIS_REPLY_STRING, "%s: %s, %s", where, one->str,
                  other->str);
    mirror_leave_room((unsigned char *)one->str + head, (size_t)one->len - head - tail);
    ck_assert_msg(one->len == other->len && memcmp(one->str, other->str, (size_t)one->len) == 0, "%s differ", where);
    freeReplyObject(one);
    freeReplyObject(other);
}

TEST(scripts_read_redis_time_with_any_number_of_microsecond_digits, 60)
{
    static const char *const microseconds[] = { "0",    "1",    "9",     "10",    "99",     "100",   "999",
                                                "1000", "9999", "10000", "99999", "100000", "999999" };
    static struct scripts scripts;
    struct chance chance = chance_make(1);
    scripts_open(&scripts);
    for (int kind = 0; kind < KIND_COUNT; kind++) {
        const struct weir_plan plan = plan_by_chance(&chance, kind);
        freeReplyObject(ASK(&scripts, "DEL", "clock", "told"));
        for (size_t i = 0; i < sizeof microseconds / sizeof microseconds[0]; i++) { /* one state, as time goes on */
            char *text = told_the_time(&redis_scripts[redis_script_of(&plan)], microseconds[i]);
            const int64_t now_us = SECONDS * WEIR_SECOND + strtoll(microseconds[i], NULL, 10);
            char where[64];
            snprintf(where, sizeof where, "%s at %s us: answers", kind_names[kind], microseconds[i]);
            assert_same_bytes(take(&scripts, &plan, "clock", text, 0), take(&scripts, &plan, "told", NULL, now_us),
                              REDIS_HEAD_SIZE, REDIS_ECHO_SIZE, where);
            snprintf(where, sizeof where, "%s at %s us: states", kind_names[kind], microseconds[i]);
            assert_same_bytes(ASK(&scripts, "GET", "clock"), ASK(&scripts, "GET", "told"), 0, 0, where);
            free(text);
        }
    }
    scripts_close(&scripts);
}

int main(void)
{
    if (redis_server_missing())
        return 77;
    return suite_run(tests());
}
