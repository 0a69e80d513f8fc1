/* scripts.h - the scripts called by hand, over a connection of hiredis's, on a private server. */
#ifndef WEIR_TESTS_SCRIPTS_H
#define WEIR_TESTS_SCRIPTS_H

#include "backends/redis/flight/state.h"
#include "lab/redis_server.h"

#include <hiredis/hiredis.h>

enum { CALL_KEYS = 64, CALL_ITEMS = 4096, CALL_WORDS = 3 + 2 * CALL_KEYS + 2 };

struct scripts {
    struct redis_server server;
    redisContext *redis;
};

/* Start a server, connect and load every script, each of which must get the SHA-1 that the build gave it. */
void scripts_open(struct scripts *scripts);
void scripts_close(struct scripts *scripts);

/* The words of a command, copied. */
struct call {
    const char *words[CALL_WORDS];
    size_t lens[CALL_WORDS];
    int n;
    size_t used;
    char bytes[65536];
};

void call_begin(struct call *call, enum redis_script_id script, int64_t keys);
void call_word(struct call *call, const void *bytes, size_t len);
void call_number(struct call *call, int64_t number);
/* The word that ends in "echo", which the answer repeats. call_items() packs the items before, as calls of try_all do
 * not. */
void call_tail(struct call *call, const unsigned char *bytes, size_t len);
void call_items(struct call *call, const unsigned char *items, size_t len);

/* How long an answer is without its echo; 0: it is none, or repeats something else. */
size_t answer_len(const redisReply *reply);
/* Send with whatever goes out next; its reply is read in turn. */
void call_send(struct scripts *scripts, const struct call *call);

/* Send `words`, text, in the same way. */
void words_send(struct scripts *scripts, int n, const char *const *words);

/* The next reply; the caller frees it. A lost connection fails the test. */
redisReply *reply_next(struct scripts *scripts);

/* Send a command of text words at once and return its reply. */
redisReply *ask(struct scripts *scripts, int n, const char *const *words);
#define ASK(scripts, ...) \
    ask(scripts, (int)(sizeof((const char *[]){ __VA_ARGS__ }) / sizeof(char *)), (const char *[]){ __VA_ARGS__ })

#endif
