/* test_redis_rights.c - the users that docs/redis.md creates on a server and on a sentinel have exactly the rights that
 * weir needs. */
#include "redis_place.h"
#include "sentinels.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static const char marker[] = "s3cret-marker";

/* ---- Users ---- */

/* Read the page's user, without one word unless it is NULL. */
static void user_read(struct redis_user *user, const char *name, const char *const *uses, const char *without)
{
    must(redis_user_read(user, name, uses) == 0, user->error);
    must(without == NULL || redis_user_without(user, without) == 0, user->error);
}

/* Replace one word of the user. */
static void user_change(struct redis_user *user, const char *word, const char *other)
{
    static char text[32];
    bool changed = false;
    snprintf(text, sizeof text, "%s", other);
    for (size_t i = 0; i < user->n; i++)
        if (strcmp(user->words[i], word) == 0) {
            user->words[i] = text;
            changed = true;
        }
    must(changed, word);
}

static void ask_user(struct asker *asker, struct redis_user *user)
{
    must(redis_user_set(user, asker) == 0, user->error);
}

/* ---- All that a limiter requests ---- */

struct served {
    weir *limiter;
    weir_limit *limit, *other;
};

static struct served served_open(const struct weir_options *options)
{
    struct served served = { .limiter = limiter_of(options) };
    served.limit = limit_of(served.limiter, "limit", FIFTY_AN_HOUR);
    served.other = limit_of(served.limiter, "other", "sliding_window limit=50 period=1h");
    return served;
}

/* Make one request, a batch, a group, a refund and a reset. Return the worst status. */
static int ask_everything(const struct served *served)
{
    struct weir_request requests[4], pair[2];
    struct weir_decision decisions[4] = { 0 }, decision;
    static const char *const keys[] = { "a", "b", "c", "d" };
    for (int i = 0; i < 4; i++)
        requests[i] = (struct weir_request){ .limit = served->limit, .key = weir_key_text(keys[i]), .cost = 1 };
    pair[0] = requests[0];
    pair[1] = (struct weir_request){ .limit = served->other, .key = weir_key_text("a"), .cost = 1 };
    int statuses[6];
    statuses[0] = weir_try(served->limit, weir_key_text("a"), 1, &decision);
    statuses[1] = weir_try_batch(served->limiter, requests, 4, decisions);
    statuses[2] = weir_try_all(served->limiter, pair, 2, &decision);
    statuses[3] = weir_refund(served->limit, weir_key_text("b"), 1);
    statuses[4] = weir_reset(served->limit, weir_key_text("a"));
    statuses[5] = weir_peek(served->limit, weir_key_text("a"), 1, &decision);
    int worst = WEIR_OK;
    for (size_t i = 0; i < sizeof statuses / sizeof *statuses; i++)
        worst = statuses[i] < worst ? statuses[i] : worst;
    return worst;
}

/* Repeat until it succeeds: a failure is followed by a pause without requests. */
static void ask_until_all_is_well(const struct served *served)
{
    for (int64_t until_us = wire_now_us() + RECOVERY_MOST_US; ask_everything(served) != WEIR_OK; sleep_us(1000))
        must(wire_now_us() < until_us, "all is well in the end");
}

/* ---- A server's user ---- */

TEST(the_documented_redis_rights_suffice_for_all_verbs_in_both_modes, 60)
{
    static const enum weir_mode modes[] = { WEIR_DISTRIBUTED, WEIR_HYBRID };
    PLACE(place, false, NULL);
    for (int i = 0; i < 2; i++) {
        struct weir_options options = place_options(&place, 20 * WEIR_SECOND);
        options.mode = modes[i];
        struct served served = served_open(&options);
        for (int j = 0; j < 20; j++)
            must_succeed(ask_everything(&served));
        weir_close(served.limiter);
    }
    ck_assert_msg(place_log_lines(&place) == 0, "%s", place.log);
    ck_assert_ptr_nonnull(strstr(place_ask(&place, "ACL", "LIST"), "user weir on"));
    ck_assert_int_gt(place_info(&place, "commandstats", "cmdstat_evalsha:calls="), 0);
}

/* From a user with all that `uses` need, remove one word at a time. Request by `url`, or by the place's URL if it is
 * NULL. */
static void assert_each_is_needed(struct place *place, const char *const *uses, const char *url)
{
    struct redis_user all, fewer;
    int tried = 0;
    user_read(&all, "weir", uses, NULL);
    for (size_t i = 0; i < all.n; i++) {
        if (all.words[i][0] != '+' && all.words[i][0] != '~')
            continue;
        user_read(&fewer, "weir", uses, all.words[i]);
        ask_user(&place->asker, &fewer);
        struct weir_options options = place_options(place, 5 * WEIR_SECOND);
        options.redis_url = url != NULL ? url : options.redis_url;
        place->log[place->log_len = 0] = '\0';
        struct served served = served_open(&options);
        ck_assert_msg(ask_everything(&served) == WEIR_EIO, "without %s all is well", all.words[i]);
        ck_assert_msg(place_logged(place, "NOPERM"), "without %s the log says: %s", all.words[i], place->log);
        ask_user(&place->asker, &all);
        ask_until_all_is_well(&served);
        weir_close(served.limiter);
        tried++;
    }
    ck_assert_int_ge(tried, 8);
}

TEST(each_documented_right_is_necessary_and_a_missing_one_is_logged, 120)
{
    static const char *const uses[] = { "db", NULL };
    char url[192];
    PLACE(place, false, NULL);
    assert_each_is_needed(&place, NULL, NULL);
    snprintf(url, sizeof url, "%s/3", place.server.tcp_url);
    assert_each_is_needed(&place, uses, url);
}

TEST(a_missing_right_is_logged_while_the_fallback_decides, 60)
{
    struct redis_user fewer;
    user_read(&fewer, "weir", NULL, "+psetex");
    PLACE(place, false, NULL);
    ask_user(&place.asker, &fewer);
    struct weir_options options = place_options(&place, 5 * WEIR_SECOND);
    options.on_failure = WEIR_FAIL_LOCAL;
    struct served served = served_open(&options);
    for (int64_t until_us = wire_now_us() + RECOVERY_MOST_US; place_log_lines(&place) < 2; sleep_us(10000)) {
        must(taken(served.limit, "key", 1).source != WEIR_BY_REDIS, "the fallback decides");
        must(wire_now_us() < until_us, "it is told again and again");
    }
    ck_assert_msg(place_logged(&place, "NOPERM"), "%s", place.log);
    ck_assert_uint_gt(stats_of(served.limiter).outages, 0);
    ck_assert_str_eq(place_ask(&place, "DBSIZE"), "0");
    weir_close(served.limiter);
}

TEST(the_documented_redis_user_may_run_no_other_command, 30)
{
    static const char *const refused[][5] = {
        { "EVAL", "return 1", "0" },
        { "FLUSHALL" },
        { "FLUSHDB" },
        { "KEYS", "*" },
        { "SCAN", "0" },
        { "SET", "weir:limit:{key}", "x" },
        { "GET", "other:key" },
        { "DEL", "other:key" },
        { "MGET", "weir:limit:{key}", "other:key" },
        { "PSETEX", "other:key", "1000", "x" },
        { "SETRANGE", "other:key", "0", "x" },
        { "SCRIPT", "FLUSH" },
        { "SCRIPT", "KILL" },
        { "CONFIG", "GET", "*" },
        { "CONFIG", "SET", "maxmemory", "1" },
        { "ACL", "SETUSER", "weir", "+@all" },
        { "ACL", "LIST" },
        { "PUBLISH", "channel", "x" },
        { "SUBSCRIBE", "channel" },
        { "CLIENT", "LIST" },
        { "REPLICAOF", "NO", "ONE" },
        { "SHUTDOWN", "NOSAVE" },
        { "MONITOR" },
        { "INFO" },
        { "SELECT", "1" },
        { "ROLE" },
    };
    struct place place;
    struct asker asker;
    char reply[1024];
    place_open(&place, false, NULL);
    must(asker_open(&asker, place.server.socket) == 0, asker.error);
    asker_ask(&asker, reply, sizeof reply, "AUTH", "weir", place.server.user.password, NULL);
    ck_assert_str_eq(reply, "OK");
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        const char *const *words = refused[i];
        must(asker_ask(&asker, reply, sizeof reply, words[0], words[1], words[2], words[3], words[4], NULL) > 0,
             asker.error);
        ck_assert_msg(strncmp(reply, "-NOPERM", 7) == 0, "%s %s: %s", words[0], words[1] ? words[1] : "", reply);
    }
    asker_close(&asker);
    place_close(&place);
}

TEST(a_script_of_the_redis_user_can_do_no_more_than_the_user, 30)
{
    static const char *const scripts[] = { "return redis.call('GET', 'other:key')", "return redis.call('FLUSHALL')",
                                           "return redis.call('PUBLISH', 'channel', 'x')",
                                           "return redis.call('SET', KEYS[1], 'x')" };
    struct place place;
    struct asker asker;
    char reply[1024], sha1[64];
    place_open(&place, false, NULL);
    place_ask(&place, "SET", "other:key", "a-secret");
    must(asker_open(&asker, place.server.socket) == 0, asker.error);
    asker_ask(&asker, reply, sizeof reply, "AUTH", "weir", place.server.user.password, NULL);
    for (size_t i = 0; i < sizeof scripts / sizeof *scripts; i++) {
        must(asker_ask(&asker, sha1, sizeof sha1, "SCRIPT", "LOAD", scripts[i], NULL) == 40, sha1);
        must(asker_ask(&asker, reply, sizeof reply, "EVALSHA", sha1, "1", "weir:key", NULL) > 0, asker.error);
        ck_assert_msg(reply[0] == '-', "%s: %s", scripts[i], reply);
        must(asker_ask(&asker, reply, sizeof reply, "EVALSHA", sha1, "1", "other:key", NULL) > 0, asker.error);
        ck_assert_msg(strncmp(reply, "-NOPERM", 7) == 0, "%s: %s", scripts[i], reply);
    }
    ck_assert_str_eq(place_ask(&place, "GET", "other:key"), "a-secret");
    asker_close(&asker);
    place_close(&place);
}

TEST(the_documented_rights_work_with_another_key_prefix, 60)
{
    struct redis_user shop;
    PLACE(place, false, NULL);
    struct weir_options options = place_options(&place, 5 * WEIR_SECOND);
    options.redis_prefix = "shop/";
    struct served served = served_open(&options);
    ck_assert_int_eq(ask_everything(&served), WEIR_EIO);
    ck_assert_msg(place_logged(&place, "NOPERM"), "%s", place.log);
    ck_assert_str_eq(place_ask(&place, "DBSIZE"), "0");
    user_read(&shop, "weir", NULL, NULL);
    user_change(&shop, "~weir:*", "~shop/*");
    ask_user(&place.asker, &shop);
    ask_until_all_is_well(&served);
    weir_close(served.limiter);
    options.redis_prefix = NULL;
    place.log[place.log_len = 0] = '\0';
    served = served_open(&options);
    ck_assert_int_eq(ask_everything(&served), WEIR_EIO);
    ck_assert_msg(place_logged(&place, "NOPERM"), "%s", place.log);
    weir_close(served.limiter);
}

/* Count this user's connections in CLIENT LIST. */
static int connections_of(struct asker *asker, const char *user)
{
    static char list[16384];
    int count = 0;
    must(asker_ask(asker, list, sizeof list, "CLIENT", "LIST", NULL) > 0, asker->error);
    for (const char *at = list; (at = strstr(at, user)) != NULL; at++)
        count++;
    return count;
}

TEST(a_default_user_without_a_password_needs_ping_for_callers_connections, 60)
{
    struct redis_user stripped;
    static char name[] = "default", ping[] = "+ping";
    char url[192];
    CLOSED_BY(asker_close) struct asker boss;
    char reply[64];
    PLACE(place, false, NULL);
    place_ask(&place, "ACL", "SETUSER", "boss", "on", ">boss", "~*", "+@all");
    must(asker_open(&boss, place.server.socket) == 0, boss.error);
    asker_ask(&boss, reply, sizeof reply, "AUTH", "boss", "boss", NULL);
    ck_assert_str_eq(reply, "OK");
    user_read(&stripped, "weir", NULL, NULL);
    stripped.words[0] = name;
    user_change(&stripped, stripped.password - 1, "nopass");
    struct weir_options options = place_options(&place, 5 * WEIR_SECOND);
    snprintf(url, sizeof url, "unix://%s", place.server.socket);
    options.redis_url = url;
    for (int i = 0; i < 2; i++) {
        ask_user(&boss, &stripped);
        int before = connections_of(&boss, "user=default");
        struct served served = served_open(&options);
        must_succeed(ask_everything(&served));
        ck_assert_int_eq(connections_of(&boss, "user=default") - before, i == 0 ? 1 : 2);
        weir_close(served.limiter);
        stripped.words[stripped.n++] = ping;
    }
}

TEST(wrong_keys_missing_rights_and_unknown_users_fail_and_no_password_is_logged, 60)
{
    char url[256];
    PLACE(place, false, NULL);
    place_ask(&place, "ACL", "SETUSER", "blind", "on", ">s3cret-marker", "~other:*", "+@all");
    place_ask(&place, "ACL", "SETUSER", "idle", "on", ">s3cret-marker", "~weir:*", "-@all", "+ping");
    static const char *const shut_out[] = { "blind", "idle", "nobody" };
    for (int i = 0; i < 3; i++) {
        struct weir_options options = place_options(&place, 5 * WEIR_SECOND);
        int lines = place_log_lines(&place);
        snprintf(url, sizeof url, "redis://%s:%s@127.0.0.1:%d", shut_out[i], marker, place.server.port);
        options.redis_url = url;
        struct served served = served_open(&options);
        ck_assert_int_eq(ask_everything(&served), WEIR_EIO);
        ck_assert_msg(place_log_lines(&place) > lines, "%s: nothing in the log", shut_out[i]);
        weir_close(served.limiter);
    }
    ck_assert_msg(place_logged(&place, "NOPERM"), "%s", place.log);
    ck_assert_msg(!place_logged(&place, marker), "%s", place.log);
}

/* ---- A password that is rotated ---- */

static void write_line(const char *path, const char *line)
{
    FILE *file = fopen(path, "w");
    must(file && fputs(line, file) >= 0 && fclose(file) == 0, path);
}

/* End weir's connections and see that it comes back by the password of the file. */
static void assert_comes_back(struct place *place, const struct served *served)
{
    place_ask(place, "CLIENT", "KILL", "USER", "rotated");
    ask_until_all_is_well(served);
    ck_assert_int_ge(connections_of(&place->asker, "user=rotated"), 1);
}

TEST(each_connection_reads_the_password_file_again, 60)
{
    char url[192], path[128];
    PLACE(place, false, NULL);
    place_ask(&place, "ACL", "SETUSER", "rotated", "on", ">first", "~weir:*", "+@all");
    snprintf(url, sizeof url, "redis://rotated@127.0.0.1:%d", place.server.port);
    snprintf(path, sizeof path, "%s.password", place.server.socket);
    write_line(path, "first\n");
    struct weir_options options = place_options(&place, 5 * WEIR_SECOND);
    options.redis_url = url;
    options.redis_password_file = path;
    struct served served = served_open(&options);
    must_succeed(ask_everything(&served));

    place_ask(&place, "ACL", "SETUSER", "rotated", "resetpass", ">second");
    write_line(path, "second\r\n");
    assert_comes_back(&place, &served);

    /* While the file is empty or missing, as between two steps of its replacement, weir's first password serves. */
    place_ask(&place, "ACL", "SETUSER", "rotated", ">first");
    write_line(path, "");
    assert_comes_back(&place, &served);
    ck_assert_int_eq(unlink(path), 0);
    assert_comes_back(&place, &served);

    place_ask(&place, "ACL", "SETUSER", "rotated", "resetpass", ">third");
    write_line(path, "third");
    assert_comes_back(&place, &served);
    weir_close(served.limiter);
    ck_assert_msg(!place_logged(&place, "second") && !place_logged(&place, "third"), "%s", place.log);
    unlink(path);
}

/* ---- A sentinel's user ---- */

/* Open a server and a sentinel with this user; return false before Redis 6.2, which has no channel rights. */
static bool guarded_open(struct sentinels *guarded, const struct redis_user *watcher)
{
    static char lines[512];
    int len = snprintf(lines, sizeof lines, "user");
    for (size_t i = 0; i < watcher->n; i++)
        len += snprintf(lines + len, sizeof lines - (size_t)len, " %s", watcher->words[i]);
    const struct sentinels_wish wish = { .servers = 1, .sentinels = 1, .sentinel_lines = lines };
    if (sentinels_start(guarded, &wish) == 0)
        return true;
    ck_assert_msg(strstr(guarded->error, "user declaration 'resetchannels'") != NULL, "%s", guarded->error);
    printf("not tried: %s\n", guarded->error);
    return false;
}

/* Find it by a sentinel, as user `watcher`, or without users if it is NULL. */
static struct served guarded_served(struct place *place, const struct sentinels *guarded,
                                    const struct redis_user *watcher)
{
    static char url[256];
    sentinels_url(guarded, 0, guarded->servers[0].login, url, sizeof url);
    struct weir_options options = place_options(place, 5 * WEIR_SECOND);
    options.redis_url = url;
    if (watcher != NULL) {
        options.redis_sentinel_user = watcher->words[0];
        setenv("WEIR_REDIS_SENTINEL_PASSWORD", watcher->password, 1);
    }
    struct served served = served_open(&options);
    unsetenv("WEIR_REDIS_SENTINEL_PASSWORD");
    return served;
}

TEST(a_server_that_a_sentinel_names_requires_the_right_to_role, 60)
{
    static const struct sentinels_wish wish = { .servers = 1, .sentinels = 1 };
    static const char *const uses[] = { "sentinels", NULL };
    CLOSED_BY(place_close) struct place place;
    CLOSED_BY(sentinels_stop) struct sentinels trio;
    struct redis_user all, fewer;
    user_read(&all, "weir", uses, NULL);
    user_read(&fewer, "weir", uses, "+role");
    must(sentinels_start(&trio, &wish) == 0, trio.error);
    place_open_bare(&place);
    must(asker_open(&place.asker, trio.servers[0].socket) == 0, "the server is asked");
    ask_user(&place.asker, &fewer);
    struct served served = guarded_served(&place, &trio, NULL);
    ck_assert_int_eq(ask_everything(&served), WEIR_EIO);
    ck_assert_msg(place_logged(&place, "redis cannot be used: the server answers NOPERM to ROLE"), "%s", place.log);
    ask_user(&place.asker, &all);
    ask_until_all_is_well(&served);
    weir_close(served.limiter);
}

TEST(behind_a_sentinel_the_documented_rights_of_both_users_suffice, 60)
{
    struct place place;
    struct sentinels guarded;
    struct redis_user watcher;
    user_read(&watcher, "watcher", NULL, NULL);
    if (!guarded_open(&guarded, &watcher))
        return;
    place_open_bare(&place);
    struct served served = guarded_served(&place, &guarded, &watcher);
    for (int i = 0; i < 20; i++)
        must_succeed(ask_everything(&served));
    ck_assert_msg(place_log_lines(&place) == 0, "%s", place.log);
    weir_close(served.limiter);
    place_close(&place);
    sentinels_stop(&guarded);
}

TEST(each_documented_right_at_a_sentinel_is_necessary, 120)
{
    struct redis_user all, fewer;
    int tried = 0;
    user_read(&all, "watcher", NULL, NULL);
    for (size_t i = 0; i < all.n; i++) {
        struct place place;
        struct sentinels guarded;
        if (all.words[i][0] != '+' && all.words[i][0] != '&')
            continue;
        user_read(&fewer, "watcher", NULL, all.words[i]);
        if (!guarded_open(&guarded, &fewer))
            return;
        place_open_bare(&place);
        struct served served = guarded_served(&place, &guarded, &fewer);
        for (int64_t until_us = wire_now_us() + RECOVERY_MOST_US; !place_logged(&place, "NOPERM"); sleep_us(1000)) {
            ask_everything(&served);
            if (wire_now_us() > until_us)
                ck_abort_msg("without %s: %s", all.words[i], place.log);
        }
        weir_close(served.limiter);
        place_close(&place);
        sentinels_stop(&guarded);
        tried++;
    }
    ck_assert_int_eq(tried, 4);
}

int main(void)
{
    if (redis_server_missing())
        return 77;
    return suite_run(tests());
}
