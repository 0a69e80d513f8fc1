/* test_rules.c - the rules of a table: found by their numbers, kept while they are held, forgotten at a small cost, and
 * counted in the budget.
 */
#include "support.h"

#include "backends/memory/look.h"
#include "core/api/verbs.h"

#include <stdio.h>
#include <stdlib.h>

static struct readers readers;
static struct budget budget;

/* Prepare rules that may take `bytes`, a fourth of them from a separate budget. */
static void rules_open(struct rules *rules, int64_t bytes)
{
    readers_init(&readers);
    budget = (struct budget){ .max = bytes - bytes / 4 };
    must(rules_init(rules, &readers, &budget, bytes / 4) == 0, "there is memory");
}

static int64_t rules_bytes(const struct rules *rules)
{
    return atomic_load(&budget.used) + budget_used(&rules->own);
}

static struct weir_plan plan_of_number(int number)
{
    struct weir_plan plan = { .p = 1, .q = 1, .tick_us = 1, .size = 10, .limit = 10, .period_us = 1 };
    plan.fingerprint = number + 1;
    return plan;
}

static struct rule *get_by(struct rules *rules, const struct weir_backend_request *request,
                           const struct weir_plan *plan, uint64_t version, const struct weir_plan *former, size_t spare)
{
    bool is_spent = false;
    struct rule *rule = rule_get(rules, request, plan, version, former, spare, &is_spent);
    must(!is_spent, "there is room");
    return rule;
}

/* Make a rule whose plan and limit have that number. */
static struct rule *get(struct rules *rules, int number, uint64_t version)
{
    const struct weir_backend_request request = { .limit_id = (uint32_t)number };
    const struct weir_plan plan = plan_of_number(number);
    return get_by(rules, &request, &plan, version, NULL, 0);
}

TEST(rules_are_found_by_their_numbers_while_they_are_in_use, 10)
{
    enum { HELD = 1000 };
    struct rules rules;
    static struct rule *held[HELD];
    rules_open(&rules, INT64_C(1) << 40);
    for (int i = 0; i < HELD; i++) {
        held[i] = get(&rules, i, 2);
        ck_assert_ptr_nonnull(held[i]);
        ck_assert_ptr_eq(rule_guess(&rules, (uint64_t)i), held[i]);
    }
    for (int round = 0; round < 5; round++)
        for (int i = 0; i < 3 * RULES_IDLE; i++) { /* others come and go */
            struct rule *passing = get(&rules, HELD + i, 2);
            must(passing->number < RULES_FIRST + HELD + RULES_IDLE + 2, "numbers are used again");
            for (int j = 0; i % 16 == 0 && j < HELD; j++)
                must(held[j] != passing, "one that is held is no other");
            rule_drop(&rules, passing);
        }
    for (int i = 0; i < HELD; i++) {
        must(rule_at(&rules, held[i]->number) == held[i], "its number leads to it");
        must(held[i]->key.limit_id == (uint64_t)i && held[i]->plan.fingerprint == i + 1 && rule_version(held[i]) == 2,
             "it is what it was");
        must(get(&rules, i, 4) == held[i] && rule_version(held[i]) == 4, "it is found again, and raised");
        must(get(&rules, i, 2) == held[i] && rule_version(held[i]) == 4, "and never lowered");
        for (int j = 0; j < 3; j++)
            rule_drop(&rules, held[i]);
    }
    rules_destroy(&rules);
}

TEST(unused_rules_are_kept_until_there_are_too_many, 10)
{
    enum { FORGOTTEN = RULES_IDLE / 2 + 1 };
    struct rules rules;
    struct rule *idle[RULES_IDLE + 1];
    rules_open(&rules, INT64_C(1) << 40);
    for (int i = 0; i < RULES_IDLE; i++)
        rule_drop(&rules, idle[i] = get(&rules, i, 2));
    for (int i = 0; i < RULES_IDLE; i++) { /* all rules remain: a returning entry gets the same rule */
        ck_assert_ptr_eq(rule_guess(&rules, (uint64_t)i), idle[i]);
        ck_assert_ptr_eq(get(&rules, i, 2), idle[i]);
        rule_drop(&rules, idle[i]);
    }
    ck_assert_uint_eq(rules.count, RULES_IDLE);
    ck_assert_ptr_eq(get(&rules, 0, 2), idle[0]);
    rule_drop(&rules, idle[0]); /* now it is the last to have become idle */
    rule_drop(&rules, idle[RULES_IDLE] = get(&rules, RULES_IDLE, 2));
    ck_assert_uint_eq(HASH_COUNT(rules.table), RULES_IDLE + 1 - FORGOTTEN);
    for (int i = 0; i <= RULES_IDLE; i++) /* no guess leads to a forgotten rule */
        ck_assert_ptr_eq(rule_guess(&rules, (uint64_t)i), i == 0 || i > FORGOTTEN ? idle[i] : NULL);
    for (int i = 0; i < FORGOTTEN; i++)
        get(&rules, 1000 + i, 2);
    ck_assert_uint_eq(rules.count, RULES_IDLE + 1); /* in the same memory */
    for (int i = 0; i < FORGOTTEN; i++) {
        struct rule *held = get(&rules, 1000 + i, 2);
        rule_drop(&rules, held);
        rule_drop(&rules, held);
    }
    rules_destroy(&rules);
}

/* Two overrides with the same plan have two rules. A rule with a former state is another one and matches no request. */
TEST(rules_differ_by_limit_override_plan_former_plan_and_spare_words, 10)
{
    struct rules rules;
    rules_open(&rules, INT64_C(1) << 40);
    const struct weir_plan plan = plan_of_number(1), former = plan_of_number(2);
    struct weir_backend_request request = { .limit_id = 7, .plan_version = 10 };
    struct rule *plain = get_by(&rules, &request, &plan, 10, NULL, 0);
    struct rule *aside = get_by(&rules, &request, &plan, 10, &former, 0);
    ck_assert_ptr_ne(plain, aside);
    ck_assert(rule_is_current(plain, &request));
    ck_assert(!rule_is_current(aside, &request));
    ck_assert(rule_is_greedy(plain) && !rule_is_greedy(aside));
    ck_assert_uint_eq(plain->words, 2);
    ck_assert_uint_eq(aside->words, 4);
    struct rule *roomy = get_by(&rules, &request, &plan, 10, NULL, 3);
    ck_assert_ptr_ne(plain, roomy);
    ck_assert(rule_is_current(roomy, &request));
    ck_assert_uint_eq(roomy->words, 5);
    rule_drop(&rules, roomy);
    request.limit = (weir_limit *)(uintptr_t)&rules;
    struct rule *override = get_by(&rules, &request, &plan, 12, NULL, 0);
    ck_assert_ptr_ne(plain, override);
    ck_assert(!rule_is_current(override, &request));
    request.plan_version = 12;
    ck_assert(rule_is_current(override, &request));
    request.limit_id = 8;
    struct rule *another = get_by(&rules, &request, &plan, 12, NULL, 0);
    ck_assert_ptr_ne(override, another);
    ck_assert_uint_eq(HASH_COUNT(rules.table), 5);
    rule_drop(&rules, plain);
    rule_drop(&rules, aside);
    rule_drop(&rules, override);
    rule_drop(&rules, another);
    rules_destroy(&rules);
}

/* ---- Forgetting ---- */

TEST(dropping_unused_rules_visits_no_rule_in_use, 30)
{
    enum { HELD = 60000, PASSING = 20000 };
    static struct rule *held[HELD];
    struct rules rules;
    rules_open(&rules, INT64_C(1) << 40);
    for (int i = 0; i < HELD; i++)
        held[i] = get(&rules, i, 2);
    for (int i = 0; i < PASSING; i++) {
        const uint64_t before = rules.visited;
        rule_drop(&rules, get(&rules, HELD + i, 2));
        must(rules.visited - before <= RULES_IDLE / 2 + 1, "one batch at most");
        must(rules.idle_count <= RULES_IDLE, "few idle rules are kept");
    }
    ck_assert_uint_ge(rules.visited, PASSING - RULES_IDLE);
    ck_assert_uint_le(rules.visited, PASSING); /* each once */
    for (int i = 0; i < HELD; i++)
        must(rule_at(&rules, held[i]->number) == held[i] && held[i]->key.limit_id == (uint64_t)i, "it is what it was");
    for (int i = 0; i < HELD; i++)
        rule_drop(&rules, held[i]);
    ck_assert_uint_le(rules.visited, HELD + PASSING);
    rules_destroy(&rules);
}

/* ---- The budget ---- */

static struct rule *get_if_room(struct rules *rules, int number, bool *is_spent)
{
    const struct weir_backend_request request = { .limit_id = (uint32_t)number };
    const struct weir_plan plan = plan_of_number(number);
    *is_spent = false;
    return rule_get(rules, &request, &plan, 2, NULL, 0, is_spent);
}

TEST(rules_stay_within_their_budget_and_replace_unused_ones, 10)
{
    enum { BYTES = 200000 };
    static struct rule *held[BYTES / sizeof(struct rule)];
    struct rules rules;
    bool is_spent;
    int count = 0;
    rules_open(&rules, BYTES);
    while ((held[count] = get_if_room(&rules, count, &is_spent)))
        count++;
    ck_assert(is_spent);
    const int64_t full = rules_bytes(&rules);
    ck_assert_int_gt(full, BYTES - 2 * (int64_t)sizeof(struct rule));
    ck_assert_int_le(full, BYTES);
    ck_assert_int_ge(full, count * (int64_t)sizeof(struct rule));
    ck_assert_ptr_eq(get_if_room(&rules, 0, &is_spent), held[0]); /* a known rule takes no room */
    ck_assert(!is_spent);
    rule_drop(&rules, held[0]);

    for (int i = 0; i < 1000; i++) {
        rule_drop(&rules, held[i % count]);
        held[i % count] = get_if_room(&rules, count + i, &is_spent);
        must(held[i % count] && !is_spent, "the idle rule gives its memory");
        must(rules_bytes(&rules) == full, "no more is taken");
    }

    for (int i = 0; i < count; i++)
        rule_drop(&rules, held[i]);
    rules_destroy(&rules);
}

/* ---- Sixty thousand limits ---- */

enum { LIMITS = INSTRUMENTED ? 6000 : 60000 };

static void define_limits(struct scene *scene, weir_limit **limits)
{
    for (int i = 0; i < LIMITS; i++) {
        char name[32];
        snprintf(name, sizeof name, "limit-%d", i);
        limits[i] = scene_define_text(scene, name, "token_bucket limit=10 period=1m");
    }
}

static bool has_room(weir_limit *limit)
{
    const uint8_t told = peeked(limit, "key", 1).source;
    const uint8_t source = taken(limit, "key", 1).source;
    must(told == source, "a peek knows whether there is room");
    return source != WEIR_BY_FULL;
}

TEST(keys_of_many_limits_come_and_go_at_a_bounded_cost, 60)
{
    static weir_limit *limits[LIMITS];
    OPEN_SCENE(scene, OPTIONS(.max_keys = 1000000));
    const struct rules *rules = &((struct memory *)scene.limiter->backend)->table.rules;
    define_limits(&scene, limits);
    uint64_t decisions = 0;
    for (int round = 0; round < 3; round++)
        for (int i = 0; i < LIMITS; i++) {
            const uint64_t before = rules->visited;
            scene.now_us += WEIR_MINUTE / (LIMITS / 2); /* half of the limits have a key at a time */
            must(has_room(limits[i]), "there is room");
            must(rules->visited - before <= RULES_IDLE, "one decision forgets a batch or two");
            decisions++;
        }
    ck_assert_uint_gt(rules->visited, LIMITS); /* rules did go */
    ck_assert_uint_le(rules->visited, decisions);
    ck_assert_int_ge(stats_of(scene.limiter).bytes, (int64_t)rules->count * (int64_t)sizeof(struct rule));
}

TEST(limits_without_room_are_answered_by_on_full_and_find_room_later, 60)
{
    static weir_limit *limits[LIMITS];
    const int64_t most = INT64_C(1) << 20;
    OPEN_SCENE(scene, OPTIONS(.max_bytes = most));
    const struct table *table = &((struct memory *)scene.limiter->backend)->table;
    define_limits(&scene, limits);
    for (int round = 0; round < 3; round++) {
        int in = 0, full = 0;
        for (int i = 0; i < LIMITS; i++) {
            if (has_room(limits[i]))
                in++;
            else
                full++;
            must(table_bytes(table) <= most, "the cap holds at every moment");
        }
        ck_assert_int_gt(in, 1000); /* as many as there is memory for */
        ck_assert_int_gt(full, 1000);
        scene.now_us += WEIR_MINUTE; /* all keys are idle */
    }
    ck_assert_int_eq(stats_of(scene.limiter).bytes, table_bytes(table));
    ck_assert_uint_eq(stats_of(scene.limiter).errors, 0);
}

TEST(a_new_limit_finds_room_although_keys_fill_the_table, 60)
{
    enum { LATE = 30 };
    const int64_t most = INT64_C(1) << 20;
    OPEN_SCENE(scene, OPTIONS(.max_bytes = most));
    weir_limit *first = scene_define_text(&scene, "first", "token_bucket limit=10 period=1m");
    for (int round = 0; round < 2; round++)
        for (int i = 0; i < 20000; i++) {
            char key[32];
            struct weir_decision decision;
            snprintf(key, sizeof key, "%016d", i);
            must_succeed(weir_try(first, weir_key_text(key), 1, &decision));
            must((decision.source == WEIR_BY_FULL) <= (i > 1000), "no sooner than the table is full");
        }
    scene.now_us += 2 * WEIR_MINUTE;
    for (int i = 0; i < LATE; i++) {
        char name[32];
        snprintf(name, sizeof name, "late-%d", i);
        must(has_room(scene_define_text(&scene, name, "token_bucket limit=10 period=1m")), "an idle key makes room");
        ck_assert_int_le(stats_of(scene.limiter).bytes, most);
    }
}
