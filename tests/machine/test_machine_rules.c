/* test_machine_rules.c - the table of plans in a shared file: it grows with the limits, and each of them decides. */
#include "homes.h"
#include "shared_file.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#define SHARED(...) OPTIONS(.mode = WEIR_MACHINE, .shared = path, .timeout_us = WEIR_HOUR, __VA_ARGS__)

static int64_t left(weir_limit *limit, const char *key)
{
    return peeked(limit, key, 1).remaining;
}

static weir_limit *define(struct scene *scene, int number, const char *text)
{
    char name[24];
    snprintf(name, sizeof name, "limit-%d", number);
    return scene_define_text(scene, name, text);
}

/* A file of 512 rules cannot grow then: no process may write behind its end. */
static void forbid_growth(const weir_limit *limit)
{
    struct rlimit most;
    must(getrlimit(RLIMIT_FSIZE, &most) == 0, "the bound is known");
    most.rlim_cur = machine_of(limit)->file.facts.size;
    must(setrlimit(RLIMIT_FSIZE, &most) == 0, "it is set");
}

TEST(each_of_20000_limits_admits_its_keys_in_every_process, 120)
{
    enum { LIMITS = 20000 };
    folder_make();
    OPEN_SCENE(second, SHARED(.max_keys = 40000)); /* its file grows while it is open */
    OPEN_SCENE(first, SHARED(.max_keys = 40000));
    second.now_us = first.now_us;
    for (int i = 0; i < LIMITS; i++) {
        const struct weir_decision decision = taken(define(&first, i, "fixed_window limit=10 period=1h"), "key", 3);
        must(decision.allowed && decision.source == WEIR_BY_MEMORY && decision.remaining == 7, "a new limit admits");
    }
    for (int i = 0; i < LIMITS; i++)
        must(taken(define(&second, i, "fixed_window limit=10 period=1h"), "key", 3).remaining == 4,
             "another process counts in the same place");
    struct stat stat;
    ck_assert_int_eq(lstat(path, &stat), 0);
    ck_assert_int_eq(stats_of(first.limiter).bytes, stat.st_size);
    ck_assert_int_le(stat.st_size - (int64_t)machine_of(first.limiter->limits)->file.facts.size, LIMITS * 1024);
    scene_close(&first);
    scene_close(&second);
    scene_open(&first, SHARED(.max_keys = 40000));
    first.now_us = second.now_us;
    for (int i = 0; i < LIMITS; i += 100)
        must(peeked(define(&first, i, "fixed_window limit=10 period=1h"), "key", 1).remaining == 4,
             "a restart loses nothing");
    ck_assert_int_eq(stats_of(first.limiter).keys, LIMITS);
    folder_remove();
}

/* Both processes decide by their own plans in turn, so keys are carried over again and again. */
TEST(a_rollout_that_lowers_600_limits_gives_out_no_second_burst, 120)
{
    enum { LIMITS = 600 };
    int64_t admitted[LIMITS] = { 0 };
    folder_make();
    OPEN_SCENE(old, SHARED(.max_keys = 2000));
    OPEN_SCENE(new, SHARED(.max_keys = 2000));
    new.now_us = old.now_us;
    for (int i = 0; i < LIMITS; i++) {
        weir_limit *before = define(&old, i, "token_bucket limit=30 period=1d");
        weir_limit *after = define(&new, i, "sliding_window limit=10 period=1d");
        for (int request = 0; request < 50; request++) {
            const struct weir_decision decision = taken(request % 2 ? after : before, "key", 1);
            must(decision.source == WEIR_BY_MEMORY, "there is room for all plans");
            admitted[i] += decision.allowed;
        }
    }
    for (int i = 0; i < LIMITS; i++)
        ck_assert_int_le(admitted[i], 30);
    folder_remove();
}

TEST(rules_without_keys_are_replaced_when_the_file_cannot_grow, 60)
{
    OPEN_SCENE(scene, OPTIONS(.mode = WEIR_MACHINE, .max_keys = 1000));
    weir_limit *kept = scene_define_text(&scene, "kept", "token_bucket limit=5 period=1h");
    ck_assert(taken(kept, "a", 3).allowed);
    forbid_growth(kept);
    for (int i = 1; i <= 5000; i++) { /* there is room for 512 */
        char text[64];
        snprintf(text, sizeof text, "fixed_window limit=%d period=1h", i + 5);
        weir_limit *limit = scene_define_text(&scene, "changes", text);
        const struct weir_decision decision = taken(limit, "b", 1);
        ck_assert_msg(decision.source == WEIR_BY_MEMORY && decision.remaining == 5, "change %d", i);
    }
    ck_assert_int_eq(left(kept, "a"), 2);
    ck_assert_int_eq(stats_of(scene.limiter).bytes, (int64_t)machine_of(kept)->file.facts.size);
}

TEST(limits_without_room_for_their_plans_are_decided_by_on_full, 60)
{
    OPEN_SCENE(scene, OPTIONS(.mode = WEIR_MACHINE, .max_keys = 1000, .on_full = WEIR_FULL_ALLOW));
    int by_full = 0;
    for (int i = 0; i < 600; i++) {
        weir_limit *limit = define(&scene, i, "token_bucket limit=5 period=1h");
        if (i == 0)
            forbid_growth(limit);
        const struct weir_decision decision = taken(limit, "a", 1);
        ck_assert(decision.allowed);
        by_full += decision.source == WEIR_BY_FULL;
    }
    ck_assert_int_ge(by_full, 600 - 512);
    ck_assert_int_le(by_full, 600 - 512 * 4 / 5);
}

/* ---- Deaths while the file grows ---- */

static void file_extend(uint64_t size)
{
    const int fd = open(path, O_RDWR | O_CLOEXEC);
    must(fd >= 0 && posix_fallocate(fd, 0, (off_t)size) == 0, "the file grows");
    close(fd);
}

/* A process died when the file had grown by a part of a level; and by all of it, which it had not told the others. */
TEST_EACH(a_death_while_the_file_grows_loses_no_plan, 2, 60)
{
    folder_make();
    OPEN_SCENE(other, SHARED(.max_keys = 2000));
    OPEN_SCENE(scene, SHARED(.max_keys = 2000));
    other.now_us = scene.now_us;
    const struct machine_facts facts = machine_of(define(&scene, 0, "token_bucket limit=5 period=1h"))->file.facts;
    file_extend(_i ? machine_level_at(&facts, 2) : facts.size + 8192);
    for (int i = 0; i < 1000; i++)
        must(taken(define(&scene, i, "token_bucket limit=5 period=1h"), "a", 2).source == WEIR_BY_MEMORY,
             "there is room");
    for (int i = 0; i < 1000; i++)
        must(taken(define(&other, i, "token_bucket limit=5 period=1h"), "a", 2).remaining == 1, "for all of them");
    ck_assert_uint_eq(machine_damages(machine_of(other.limiter->limits)), 0);
    folder_remove();
}

TEST(a_file_that_has_lost_a_level_of_plans_is_refused, 60)
{
    folder_make();
    struct scene scene;
    struct weir_options options = *SHARED(.max_keys = 2000);
    scene_open(&scene, &options);
    for (int i = 0; i < 1000; i++)
        taken(define(&scene, i, "token_bucket limit=5 period=1h"), "a", 2);
    const struct machine_facts facts = machine_of(scene.limiter->limits)->file.facts;
    scene_close(&scene);
    ck_assert_int_eq(truncate(path, (off_t)facts.size), 0);
    scene_init(&scene, &options);
    scene.log_allowed = true;
    ck_assert_int_eq(weir_open(&options, &scene.limiter), WEIR_ESTATE);
    scene_heard(&scene);
    ck_assert_msg(strstr(scene.last_line, "truncated") != NULL, "%s", scene.last_line);
    folder_remove();
}

/* ---- The rules' lock ---- */

TEST(a_process_stopped_with_the_rules_lock_delays_new_plans_only, 60)
{
    OPEN_SCENE(scene, OPTIONS(.mode = WEIR_MACHINE, .max_keys = 1000, .timeout_us = 20000, .on_full = WEIR_FULL_ALLOW));
    struct weir_decision decision;
    weir_limit *known = scene_define_text(&scene, "known", "token_bucket limit=5 period=1h");
    weir_limit *other = scene_define_text(&scene, "other", "token_bucket limit=5 period=1h");
    ck_assert(taken(known, "a", 1).allowed);
    ck_assert(taken(other, "a", 1).allowed);
    struct machine_header *header = file_header(&machine_of(known)->file);
    atomic_store(&header->rules_lock, machine_of(known)->file.owner); /* this process lives: no other takes it over */
    weir_limit *new = scene_define_text(&scene, "new", "token_bucket limit=5 period=1h");
    ck_assert_int_eq(weir_try(new, weir_key_text("a"), 1, &decision), WEIR_ETIME);
    struct weir_request requests[] = { { .limit = known, .key = weir_key_text("a"), .cost = 1 },
                                       { .limit = new, .key = weir_key_text("a"), .cost = 1 } };
    ck_assert_int_eq(weir_try_all(scene.limiter, requests, 2, &decision), WEIR_ETIME);
    ck_assert_int_eq(taken(known, "new key", 1).source, WEIR_BY_MEMORY);
    other = scene_define_text(&scene, "other",
                              "fixed_window limit=5 period=1h"); /* the key takes its old state along */
    ck_assert_int_eq(weir_try(other, weir_key_text("a"), 1, &decision), WEIR_ETIME);
    other = scene_define_text(&scene, "other", "token_bucket limit=5 period=1h"); /* a plan that is in the file */
    ck_assert_int_eq(taken(other, "a", 1).remaining, 3);
    atomic_store(&header->rules_lock, 0);
    ck_assert_int_eq(taken(new, "a", 1).remaining, 4);
    ck_assert_uint_eq(stats_of(scene.limiter).full, 0);
}

/* ---- Copies ---- */

/* A process that has a copy of a forgotten rule repairs a stripe in which a key names the rule that took its place. */
TEST(a_repair_with_copies_of_forgotten_rules_drops_no_key, 60)
{
    folder_make();
    OPEN_SCENE(stale, SHARED(.max_keys = 1));
    OPEN_SCENE(other, SHARED(.max_keys = 1));
    other.now_us = stale.now_us;
    weir_limit *gone = scene_define_text(&stale, "gone", "token_bucket limit=5 period=1h");
    weir_limit *stays = scene_define_text(&stale, "stays", "token_bucket limit=5 period=1h");
    ck_assert(taken(gone, "a", 1).allowed);
    ck_assert(taken(stays, "a", 1).allowed);
    const uint32_t number = gone->bound->number;
    must_succeed(weir_reset(gone, weir_key_text("a")));
    weir_limit *next = define(&other, 0, "sliding_window limit=20 period=1h blocks=60");
    must(machine_forget_rules(machine_of(next)), "the rule is forgotten");
    for (int i = 0;; i++) {
        next = define(&other, i, "sliding_window limit=20 period=1h blocks=60");
        ck_assert(taken(next, "key", 3).allowed);
        if (next->bound->number == number)
            break;
        must_succeed(weir_reset(next, weir_key_text("key")));
    }
    struct machine_stripe *stripe = machine_stripe(machine_of(gone), 0);
    atomic_store(&stripe->journal_len, MACHINE_JOURNAL + 1);        /* what it says is damaged */
    atomic_store(&stripe->lock, UINT64_C(1) << 40 | MACHINE_SLOTS); /* of a process that has ended */
    stale.log_allowed = other.log_allowed = true;
    ck_assert_int_eq(left(stays, "new"), 5);
    ck_assert(taken(stays, "new", 1).allowed); /* inherits the lock */
    ck_assert_int_eq(left(next, "key"), 17);
    ck_assert_int_eq(left(stays, "a"), 4);
    scene_heard(&stale);
    folder_remove();
}
