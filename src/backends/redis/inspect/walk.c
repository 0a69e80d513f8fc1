/* walk.c - visits keys: all, or those of a limit or a pattern, in steps of SCAN. */
#include "backends/redis/flight/key.h"
#include "backends/redis/flight/redirect.h"
#include "backends/redis/inspect/inspector.h"
#include "core/policy/pattern.h"
#include "core/policy/policy.h"

#include <string.h>

#define SCAN_COUNT 256   /* keys that the server looks at in a step, which takes it some 0.2 ms */
#define READ_TOGETHER 64 /* values read in one round trip */

static bool hear_names(void *user, const struct redis_wire_scalar *scalar)
{
    struct weir_inspector *inspector = user;
    if (!scalar->text)
        return false;
    if (scalar->depth == 1 && scalar->place[0] == 0) {
        if (scalar->len == 0 || scalar->len >= sizeof inspector->cursor)
            return false;
        memcpy(inspector->cursor, scalar->text, scalar->len);
        inspector->cursor[scalar->len] = '\0';
    } else if (scalar->len <= REDIS_KEY_MAX) { /* weir has no longer names */
        redis_bytes_add(&inspector->names, &scalar->len, sizeof scalar->len);
        redis_bytes_add(&inspector->names, scalar->text, scalar->len);
    }
    return true;
}

/* A walk over keys: which ones it visits, and how. */
struct walk {
    const char *limit; /* NULL: any */
    int64_t left;      /* keys that servers may still look at */
    bool is_all;       /* no server had more */
    bool has_pattern;
    struct pattern pattern;
    int (*visit)(void *user, const struct weir_inspected *key);
    void *user;
    struct redis_bytes glob; /* SCAN's MATCH */
};

/* Write bytes to a glob so that they stand for themselves. */
static void glob_add(struct redis_bytes *glob, const char *bytes, size_t len)
{
    for (size_t i = 0; i < len; i++) {
        if (strchr("*?[]\\", bytes[i]) && bytes[i])
            redis_bytes_add(glob, "\\", 1);
        redis_bytes_add(glob, &bytes[i], 1);
    }
}

/* Write the names to look for. The pattern narrows them by its first bytes only, because a long key's name is cut; the
 * walk then matches the key. */
static void walk_write_glob(struct walk *walk, const char *prefix)
{
    char name[REDIS_KEY_MAX];
    glob_add(&walk->glob, prefix, strlen(prefix));
    if (walk->limit)
        glob_add(&walk->glob, walk->limit, strlen(walk->limit));
    else
        redis_bytes_add(&walk->glob, "*", 1);
    redis_bytes_add(&walk->glob, ":{", 2);
    if (walk->has_pattern && walk->pattern.len > 0) {
        const size_t len = walk->pattern.len < REDIS_KEY_BEGINNING ? walk->pattern.len : REDIS_KEY_BEGINNING;
        const size_t end = redis_key_write("", "", weir_key(walk->pattern.bytes, len), name) - 1; /* ":{...}" */
        glob_add(&walk->glob, name + 2, end - 2);
    }
    redis_bytes_add(&walk->glob, "*}*", 3); /* also the names of slots */
}

/* Read the name of a key. False: it is none that the walk looks for. */
static bool walk_names(struct weir_inspector *inspector, const struct walk *walk, const char *name, size_t len,
                       struct weir_inspected *out)
{
    return redis_name_decode(name, len, inspector->prefix, inspector->key, out) &&
           (!walk->has_pattern || pattern_matches(&walk->pattern, out->key, out->is_cut)) &&
           (!walk->limit || strcmp(walk->limit, out->limit) == 0);
}

/* True if this is the name of a key's slots. */
static bool is_slots(const char *name, size_t len)
{
    return len > REDIS_SUFFIX_LEN && memcmp(name + len - REDIS_SUFFIX_LEN, REDIS_SLOTS_SUFFIX, REDIS_SUFFIX_LEN) == 0;
}

/* Read the values of up to READ_TOGETHER names at *at, and visit those that still exist. */
static int walk_read(struct weir_inspector *inspector, const struct walk *walk, size_t *at)
{
    struct redis_talk *talk = &inspector->talk;
    const char *names[READ_TOGETHER];
    size_t lens[READ_TOGETHER], count = 0;
    int64_t now_us = 0;
    inspect_write_time(inspector);
    for (; count < READ_TOGETHER && *at < inspector->names.len; count++) {
        memcpy(&lens[count], inspector->names.data + *at, sizeof lens[count]);
        names[count] = inspector->names.data + *at + sizeof lens[count];
        *at += sizeof lens[count] + lens[count];
        inspect_write_read(inspector, names[count], lens[count]);
    }
    int error = inspect_hear_time(inspector, &now_us);
    for (size_t i = 0; !error && i < count; i++) {
        struct weir_inspected key = { .size = sizeof key };
        struct redis_redirect redirect;
        struct redis_reply reply;
        error = redis_talk_hear(talk, "GETRANGE", &reply, inspect_why(inspector));
        if (error)
            return error;
        if ((inspector->map && redis_redirect_read(&reply, &redirect)) ||
            !walk_names(inspector, walk, names[i], lens[i], &key))
            continue;
        error = inspect_take_value(inspector, &reply, now_us, &key);
        if (!error && key.found != WEIR_FOUND_NOTHING)
            error = walk->visit(walk->user, &key);
    }
    for (size_t i = 0; !error && i < count; i++) {
        struct weir_inspected key = { .size = sizeof key };
        if (!is_slots(names[i], lens[i]) || !walk_names(inspector, walk, names[i], lens[i] - REDIS_SUFFIX_LEN, &key))
            continue;
        error = inspect_read_slots(inspector, names[i], lens[i] - REDIS_SUFFIX_LEN, now_us, &key);
        if (!error && key.found == WEIR_FOUND_STATE)
            error = walk->visit(walk->user, &key);
    }
    return error;
}

/* Visit keys of the server at the other end. It looks at `most`, rounded up to a step. */
static int walk_server(struct weir_inspector *inspector, struct walk *walk, int64_t most)
{
    struct redis_talk *talk = &inspector->talk;
    const struct message why = inspect_why(inspector);
    int64_t seen = 0;
    memcpy(inspector->cursor, "0", sizeof "0");
    do {
        struct redis_reply reply;
        redis_bytes_clear(&inspector->names, false);
        redis_wire_show_lists(&talk->link.wire, hear_names, inspector);
        redis_bytes_words(&talk->link.out, 5, "SCAN", NULL);
        redis_bytes_text(&talk->link.out, inspector->cursor);
        redis_bytes_text(&talk->link.out, "MATCH");
        redis_bytes_string(&talk->link.out, walk->glob.data, walk->glob.len);
        redis_bytes_text(&talk->link.out, "COUNT");
        redis_bytes_number(&talk->link.out, SCAN_COUNT);
        int error = redis_talk_hear_kind(talk, "SCAN", REDIS_REPLY_IS_LIST, &reply, why);
        if (!error && inspector->names.failed)
            error = WEIR_ENOMEM;
        for (size_t at = 0; !error && at < inspector->names.len;)
            error = walk_read(inspector, walk, &at);
        if (error)
            return error;
        seen += SCAN_COUNT;
    } while (strcmp(inspector->cursor, "0") != 0 && seen < most);
    walk->is_all = walk->is_all && strcmp(inspector->cursor, "0") == 0;
    walk->left = seen < walk->left ? walk->left - seen : 0;
    return WEIR_OK;
}

/* Visit keys of all servers. Each one of a cluster looks at its part of what is left. */
static int walk_all(struct weir_inspector *inspector, struct walk *walk)
{
    int error = inspector->map ? inspect_read_map(inspector) : inspect_open_slot(inspector, 0);
    if (error || !inspector->map)
        return error ? error : walk_server(inspector, walk, walk->left);
    for (size_t i = 0; !error && i < inspector->map->node_count; i++) {
        error = inspect_open_node(inspector, &inspector->map->nodes[i]);
        if (!error)
            error = walk_server(inspector, walk, walk->left / (int64_t)(inspector->map->node_count - i));
    }
    return error;
}

int inspect_walk(struct weir_inspector *inspector, const char *limit, const char *pattern, int64_t most, bool *is_all,
                 int (*visit)(void *user, const struct weir_inspected *key), void *user)
{
    const struct message why = inspect_why(inspector);
    struct walk walk = {
        .limit = limit, .has_pattern = pattern != NULL, .left = most, .is_all = true, .visit = visit, .user = user
    };
    if (!visit)
        return message_refuse(why, "visit must not be NULL");
    if (most < 1)
        return message_refuse(why, "most must be 1 or more");
    if (limit && policy_state_name_check(limit, why) != WEIR_OK)
        return WEIR_EINVAL;
    if (pattern && pattern_read(pattern, &walk.pattern, why) != WEIR_OK)
        return WEIR_EINVAL;
    walk_write_glob(&walk, inspector->prefix);
    const int error = walk.glob.failed ? WEIR_ENOMEM : walk_all(inspector, &walk);
    redis_bytes_free(&walk.glob);
    *is_all = !error && walk.is_all;
    return error;
}
