/* test_redis_inspect.c - the inspector shows the keys in Redis by their stored plans alone, and forgets a key. */
#include "redis_place.h"

#include <stdio.h>
#include <stdlib.h>

enum { PATIENT_US = 20 * 1000 * 1000 };

/* Open an inspector as the server's default user, who may do everything. */
static weir_inspector *inspector_of(struct place *place)
{
    char url[160];
    weir_inspector *inspector;
    struct weir_options options = place_options(place, PATIENT_US);
    snprintf(url, sizeof url, "unix://%s", place->server.socket);
    options.redis_url = url;
    must(weir_inspect_open(&options, &inspector) == WEIR_OK, weir_last_message());
    return inspector;
}

static void inspector_close(weir_inspector **inspector)
{
    weir_inspect_close(*inspector);
}

#define INSPECTOR(name, place) CLOSED_BY(inspector_close) weir_inspector *name = inspector_of(place)

static struct weir_inspected inspected(weir_inspector *inspector, const char *limit, const char *key)
{
    struct weir_inspected found = { .size = sizeof found };
    must(weir_inspect_key(inspector, limit, weir_key_text(key), &found) == WEIR_OK, weir_last_message());
    return found;
}

static void assert_policy(const struct weir_inspected_state *state, const char *text)
{
    char printed[160];
    must_succeed(weir_policy_print(&state->policy, printed, sizeof printed));
    ck_assert_str_eq(printed, text);
}

/* ---- One key ---- */

TEST(the_inspector_shows_every_algorithms_state_without_its_policy, 30)
{
    /* As configured, and as shown. */
    static const char *const policies[][2] = {
        { "token_bucket limit=100 period=1d", "token_bucket limit=100 period=1d" },
        { "token_bucket limit=7 period=90s burst=40 debt=2", "token_bucket limit=280 period=1h burst=42" },
        { "token_bucket limit=100 period=1d burst=50 refill=interval align=epoch",
          "token_bucket limit=100 period=1d burst=50 refill=interval align=epoch" },
        { "fixed_window limit=100 period=1d align=epoch", "fixed_window limit=100 period=1d align=epoch" },
        { "sliding_window limit=100 period=1d blocks=7", "sliding_window limit=100 period=86400000001us blocks=7" },
        { "leaky_bucket limit=60 period=1d capacity=90", "leaky_bucket limit=60 period=1d capacity=90" },
    };
    PLACE(place, false, NULL);
    const struct weir_options options = place_options(&place, PATIENT_US);
    LIMITER(limiter, &options);
    INSPECTOR(inspector, &place);
    for (size_t i = 0; i < sizeof policies / sizeof *policies; i++) {
        char name[16];
        snprintf(name, sizeof name, "limit-%zu", i);
        weir_limit *limit = limit_of(limiter, name, policies[i][0]);
        const struct weir_decision decision = taken(limit, "10.0.0.7", 12);
        const struct weir_inspected found = inspected(inspector, name, "10.0.0.7");
        ck_assert_int_eq(found.found, WEIR_FOUND_STATE);
        ck_assert_str_eq(found.limit, name);
        ck_assert_int_eq(found.state.used, 12);
        ck_assert_int_eq(found.state.decision.limit, decision.limit);
        ck_assert_int_eq(found.state.decision.remaining, decision.remaining);
        ck_assert_int_eq(found.state.decision.source, WEIR_BY_REDIS);
        ck_assert(found.state.decision.allowed && !found.has_former && !found.is_cut);
        ck_assert_int_le(found.state.decision.reset_after_us, decision.reset_after_us);
        assert_policy(&found.state, policies[i][1]);
        taken(limit, "10.0.0.7", found.state.decision.remaining);
        const struct weir_inspected full = inspected(inspector, name, "10.0.0.7");
        ck_assert(!full.state.decision.allowed && full.state.decision.retry_after_us > 0);
        ck_assert_int_eq(inspected(inspector, name, "10.0.0.8").found, WEIR_FOUND_NOTHING);
    }
}

TEST(a_key_of_two_policies_shows_both_states, 30)
{
    PLACE(place, false, NULL);
    const struct weir_options options = place_options(&place, PATIENT_US);
    LIMITER(one, &options);
    LIMITER(other, &options);
    INSPECTOR(inspector, &place);
    taken(limit_of(one, "api", "fixed_window limit=100 period=1d"), "key", 10);
    taken(limit_of(other, "api", "sliding_window limit=50 period=1h"), "key", 5);
    const struct weir_inspected found = inspected(inspector, "api", "key");
    ck_assert(found.found == WEIR_FOUND_STATE && found.has_former);
    assert_policy(&found.state, "sliding_window limit=50 period=1h");
    assert_policy(&found.former, "fixed_window limit=100 period=1d");
    ck_assert_int_eq(found.former.used, 15);
    ck_assert_int_eq(found.state.used, 15);
}

TEST(an_inspectors_reset_says_whether_the_key_had_a_state, 30)
{
    PLACE(place, false, NULL);
    const struct weir_options options = place_options(&place, PATIENT_US);
    LIMITER(limiter, &options);
    weir_limit *limit = limit_of(limiter, "api", FIFTY_AN_HOUR);
    INSPECTOR(inspector, &place);
    bool existed = false;
    taken(limit, "key", 50);
    must_succeed(weir_inspect_reset(inspector, "api", weir_key_text("key"), &existed));
    ck_assert(existed);
    ck_assert_int_eq(taken(limit, "key", 1).remaining, 49);
    must_succeed(weir_inspect_reset(inspector, "api", weir_key_text("other"), &existed));
    ck_assert(!existed);
    must_succeed(weir_inspect_reset(inspector, "api", weir_key_text("key"), NULL));
    ck_assert_int_eq(inspected(inspector, "api", "key").found, WEIR_FOUND_NOTHING);
}

TEST(the_inspector_reports_foreign_values_and_leaves_them_alone, 30)
{
    static char large[9000];
    PLACE(place, false, NULL);
    const struct weir_options options = place_options(&place, PATIENT_US);
    LIMITER(limiter, &options);
    INSPECTOR(inspector, &place);
    taken(limit_of(limiter, "api", FIFTY_AN_HOUR), "real", 1);
    memset(large, 'T', sizeof large - 1);
    place_ask(&place, "SET", "weir:api:{text}", "T");
    place_ask(&place, "SET", "weir:api:{large}", large);
    place_ask(&place, "SET", "weir:api:{plus}", "+123456789");
    place_ask(&place, "LPUSH", "weir:api:{list}", "x");
    place_ask(&place, "COPY", "weir:api:{real}", "weir:api:{longer}");
    place_ask(&place, "APPEND", "weir:api:{longer}", "x");
    static const char *const keys[] = { "text", "large", "plus", "list", "longer" };
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        bool existed = true;
        if (strcmp(keys[i], "longer") == 0 && strstr(place_ask(&place, "EXISTS", "weir:api:{longer}"), "1") == NULL)
            continue; /* Redis before 6.2 has no COPY */
        ck_assert_msg(inspected(inspector, "api", keys[i]).found == WEIR_FOUND_FOREIGN, "%s", keys[i]);
        ck_assert_int_eq(weir_inspect_reset(inspector, "api", weir_key_text(keys[i]), &existed), WEIR_ESTATE);
        ck_assert(!existed && strstr(weir_last_message(), "not weir's") != NULL);
    }
    ck_assert_int_eq(inspected(inspector, "api", "real").found, WEIR_FOUND_STATE);
    ck_assert_str_eq(place_ask(&place, "EXISTS", "weir:api:{text}", "weir:api:{list}", "weir:api:{large}"), "3");
}

/* ---- All keys ---- */

struct seen {
    size_t count, foreign, cut;
    int64_t used;
    char last[600];
    int status; /* to return */
};

static int see(void *user, const struct weir_inspected *key)
{
    struct seen *seen = user;
    seen->count++;
    seen->foreign += key->found == WEIR_FOUND_FOREIGN;
    seen->cut += key->is_cut;
    seen->used += key->found == WEIR_FOUND_STATE ? key->state.used : 0;
    snprintf(seen->last, sizeof seen->last, "%s/%.*s", key->limit, (int)key->key.len, (const char *)key->key.data);
    return seen->status;
}

static struct seen seen_of(weir_inspector *inspector, const char *limit, const char *pattern)
{
    struct seen seen = { 0 };
    must(weir_inspect_keys(inspector, limit, pattern, see, &seen) == WEIR_OK, weir_last_message());
    return seen;
}

TEST(all_keys_are_listed_or_those_of_a_limit_or_a_pattern, 60)
{
    enum { MANY = 3000 };
    static char longest[WEIR_MAX_KEY_LEN];
    PLACE(place, false, NULL);
    const struct weir_options options = place_options(&place, PATIENT_US);
    LIMITER(limiter, &options);
    weir_limit *login = limit_of(limiter, "login", FIFTY_AN_HOUR), *api = limit_of(limiter, "api", FIFTY_AN_HOUR);
    INSPECTOR(inspector, &place);
    ck_assert_uint_eq(seen_of(inspector, NULL, NULL).count, 0);
    for (int i = 0; i < MANY; i++) {
        char key[24];
        snprintf(key, sizeof key, "10.%d.%d", i % 10, i);
        taken(login, key, 2);
    }
    memset(longest, '{', sizeof longest);
    struct weir_decision decision;
    must_succeed(weir_try(api, weir_key(longest, sizeof longest), 3, &decision));
    must_succeed(weir_try(api, weir_key("a\0b{}%*", 7), 1, &decision));
    place_ask(&place, "SET", "weir:api:no-braces", "x");
    place_ask(&place, "SET", "weir:api:{%zz}", "x");
    place_ask(&place, "SET", "weir:api:{x}:i", "a note"); /* lua/settle.lua */
    place_ask(&place, "SET", "weirdo:{x}", "x");
    place_ask(&place, "SET", "weir:a b:{x}", "x");
    place_ask(&place, "SET", "other", "x");
    struct seen seen = seen_of(inspector, "login", NULL);
    ck_assert_uint_eq(seen.count, MANY);
    ck_assert_int_eq(seen.used, 2 * MANY);
    seen = seen_of(inspector, NULL, NULL);
    ck_assert_uint_eq(seen.count, MANY + 2);
    ck_assert_uint_eq(seen.cut, 1);
    ck_assert_uint_eq(seen.foreign, 0);
    ck_assert_uint_eq(seen_of(inspector, "login", "10.3.*").count, MANY / 10);
    ck_assert_uint_eq(seen_of(inspector, "login", "10.3.13").count, 1);
    ck_assert_uint_eq(seen_of(inspector, "login", "10.3.1").count, 0);
    ck_assert_uint_eq(seen_of(inspector, NULL, "1?*").count, 0);
    ck_assert_uint_eq(seen_of(inspector, "api", "a%00b{}%25%2A").count, 1);
    ck_assert_uint_eq(seen_of(inspector, "api", "{{{{*").cut, 1);
    ck_assert_uint_eq(seen_of(inspector, "log", NULL).count, 0);
    seen = (struct seen){ .status = 7 };
    ck_assert_int_eq(weir_inspect_keys(inspector, NULL, NULL, see, &seen), 7);
    ck_assert_uint_eq(seen.count, 1);
    ck_assert_str_eq(seen_of(inspector, "login", "10.9.2999").last, "login/10.9.2999"); /* it is of use after that */
    struct weir_inspected found = { .size = sizeof found };
    must_succeed(weir_inspect_key(inspector, "api", weir_key(longest, sizeof longest), &found));
    ck_assert_int_eq(found.state.used, 3);
}

TEST(listing_keys_stops_once_redis_has_scanned_enough, 60)
{
    enum { MANY = 2000, FEW = 300 };
    bool is_all = true;
    PLACE(place, false, NULL);
    const struct weir_options options = place_options(&place, PATIENT_US);
    LIMITER(limiter, &options);
    weir_limit *api = limit_of(limiter, "api", FIFTY_AN_HOUR);
    INSPECTOR(inspector, &place);
    for (int i = 0; i < MANY; i++) {
        char key[24];
        snprintf(key, sizeof key, "%d", i);
        taken(api, key, 1);
    }
    struct seen seen = { 0 };
    must_succeed(weir_inspect_some(inspector, NULL, NULL, FEW, &is_all, see, &seen));
    ck_assert(!is_all);
    ck_assert(seen.count > 0 && seen.count < MANY);
    seen = (struct seen){ 0 };
    must_succeed(weir_inspect_some(inspector, "other", NULL, FEW, &is_all, see, &seen));
    ck_assert(!is_all && seen.count == 0); /* keys of other limits are examined, too */
    must_succeed(weir_inspect_some(inspector, "api", NULL, 100 * MANY, &is_all, see, &seen));
    ck_assert(is_all);
    ck_assert_uint_ge(seen.count, MANY);
    ck_assert_int_eq(weir_inspect_some(inspector, NULL, NULL, 0, &is_all, see, &seen), WEIR_EINVAL);
    ck_assert(!is_all && strstr(weir_last_message(), "most must be") != NULL);
    ck_assert_int_eq(weir_inspect_some(inspector, NULL, NULL, 1, NULL, see, &seen), WEIR_EINVAL);
}

/* ---- What goes wrong ---- */

TEST(bad_arguments_of_the_inspector_are_refused_with_a_message, 30)
{
    PLACE(place, false, NULL);
    INSPECTOR(inspector, &place);
    struct weir_inspected found = { .size = sizeof found };
    struct weir_options options = place_options(&place, PATIENT_US);
    weir_inspector *none = NULL;
    struct seen seen = { 0 };
    ck_assert_int_eq(weir_inspect_key(inspector, NULL, weir_key_text("k"), &found), WEIR_EINVAL);
    ck_assert(strstr(weir_last_message(), "limit must not be NULL") != NULL);
    ck_assert_int_eq(weir_inspect_key(inspector, "a b", weir_key_text("k"), &found), WEIR_EINVAL);
    ck_assert_int_eq(weir_inspect_key(inspector, "api", weir_key_text(""), &found), WEIR_EINVAL);
    ck_assert(strstr(weir_last_message(), "key must have 1 to 65536 bytes") != NULL);
    found.size = 1;
    ck_assert_int_eq(weir_inspect_key(inspector, "api", weir_key_text("k"), &found), WEIR_EINVAL);
    ck_assert_int_eq(weir_inspect_key(NULL, "api", weir_key_text("k"), &found), WEIR_EINVAL);
    ck_assert_int_eq(weir_inspect_keys(inspector, "api", "a*b", see, &seen), WEIR_EINVAL);
    ck_assert_int_eq(weir_inspect_keys(inspector, "a b", NULL, see, &seen), WEIR_EINVAL);
    ck_assert_int_eq(weir_inspect_keys(inspector, NULL, NULL, NULL, NULL), WEIR_EINVAL);
    ck_assert_int_eq(weir_inspect_open(&options, NULL), WEIR_EINVAL);
    options = (struct weir_options)WEIR_OPTIONS_INIT;
    options.quiet = true;
    ck_assert_int_eq(weir_inspect_open(&options, &none), WEIR_EINVAL);
    ck_assert(strstr(weir_last_message(), "mode is WEIR_LOCAL") != NULL);
    weir_inspect_close(NULL);
}

TEST(the_inspector_reports_an_absent_or_silent_server_with_a_message, 60)
{
    PLACE(place, false, NULL);
    INSPECTOR(inspector, &place);
    struct weir_options options = place_options(&place, WEIR_SECOND / 5);
    struct weir_inspected found = { .size = sizeof found };
    weir_inspector *late;
    options.redis_url = "redis://127.0.0.1:1";
    ck_assert_int_eq(weir_inspect_open(&options, &late), WEIR_EIO);
    ck_assert_msg(strstr(weir_last_message(), "127.0.0.1:1 cannot be used") != NULL, "%s", weir_last_message());
    options.redis_url = "redis://host.invalid";
    ck_assert_int_lt(weir_inspect_open(&options, &late), 0);
    options.redis_url = place.server.url;
    must_succeed(weir_inspect_open(&options, &late));
    redis_server_pause(&place.server);
    ck_assert_int_eq(weir_inspect_key(late, "api", weir_key_text("key"), &found), WEIR_ETIME);
    ck_assert_msg(strstr(weir_last_message(), "no answer in time") != NULL, "%s", weir_last_message());
    redis_server_resume(&place.server);
    weir_inspect_close(late);
    redis_server_kill(&place.server);
    must(redis_server_restart(&place.server) == 0, place.server.daemon.error);
    ck_assert_int_eq(inspected(inspector, "api", "key").found, WEIR_FOUND_NOTHING); /* on a new connection */
}

/* Do all that an operator does, in a db, for a key that a limiter has used. */
static int inspect_everything(struct place *place)
{
    char url[192];
    weir_inspector *inspector;
    struct seen seen = { 0 };
    struct weir_inspected found = { .size = sizeof found };
    struct weir_options options = place_options(place, PATIENT_US);
    snprintf(url, sizeof url, "unix://%s?db=1", place->server.socket);
    options.redis_url = url;
    LIMITER(limiter, &options);
    taken(limit_of(limiter, "api", FIFTY_AN_HOUR), "key", 1);
    weir_limit *flight = limit_of(limiter, "flight", "concurrency limit=9 hold=1h");
    must_succeed(weir_reset(flight, weir_key_text("key")));
    taken(flight, "key", 2);
    taken(flight, "key", 1);
    snprintf(url, sizeof url, "unix://operator:operator@%s?db=1", place->server.socket);
    options.redis_url = url;
    int error = weir_inspect_open(&options, &inspector);
    if (error)
        return error;
    error = weir_inspect_keys(inspector, "api", NULL, see, &seen);
    struct weir_inspected slots = { .size = sizeof slots };
    if (!error)
        error = weir_inspect_key(inspector, "flight", weir_key_text("key"), &slots);
    must(error || (slots.found == WEIR_FOUND_STATE && slots.slots == 2 && slots.state.used == 3 &&
                   slots.first_slot_us > 0 && slots.state.decision.reset_after_us > slots.first_slot_us &&
                   slots.state.decision.reset_after_us <= WEIR_HOUR),
         "it sees the slots");
    if (!error)
        error = weir_inspect_reset(inspector, "flight", weir_key_text("key"), NULL);
    must(error || peeked(flight, "key", 1).remaining == 9, "they are gone");
    if (!error)
        error = weir_inspect_key(inspector, "api", weir_key_text("key"), &found);
    if (!error)
        error = weir_inspect_reset(inspector, "api", weir_key_text("key"), NULL);
    must(error || (seen.count == 1 && found.state.used == 1), "it sees what the limiter did");
    weir_inspect_close(inspector);
    return error;
}

TEST(the_operators_rights_are_necessary_and_sufficient, 60)
{
    static const char *const uses[] = { "db", NULL };
    struct redis_user all, fewer;
    int tried = 0;
    PLACE(place, false, NULL);
    must(redis_user_read(&all, "operator", uses) == 0 && redis_user_set(&all, &place.asker) == 0, all.error);
    place_ask(&place, "ACL", "SETUSER", "operator", "resetpass", ">operator");
    ck_assert_msg(inspect_everything(&place) == WEIR_OK, "%s", weir_last_message());
    for (size_t i = 0; i < all.n; i++) {
        if (all.words[i][0] != '+')
            continue;
        must(redis_user_read(&fewer, "operator", uses) == 0 && redis_user_without(&fewer, all.words[i]) == 0 &&
                 redis_user_set(&fewer, &place.asker) == 0,
             fewer.error);
        place_ask(&place, "ACL", "SETUSER", "operator", "resetpass", ">operator");
        const int error = inspect_everything(&place);
        ck_assert_msg(error == WEIR_EIO && strstr(weir_last_message(), "NOPERM") != NULL, "without %s: %d, %s",
                      all.words[i], error, weir_last_message());
        tried++;
    }
    ck_assert_int_eq(tried, 9);
}

int main(void)
{
    if (redis_server_missing())
        return 77;
    return suite_run(tests());
}
