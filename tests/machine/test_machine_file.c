/* test_machine_file.c - the shared file itself: who may use it, what is refused, what survives, and what happens when
 * it is full, or used by several processes and threads. */
#include "backends/machine/layout.h"
#include "file_bytes.h"
#include "support.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define SHARED(...) OPTIONS(.mode = WEIR_MACHINE, .shared = path, .max_keys = 1000, __VA_ARGS__)

static int64_t left(weir_limit *limit, const char *key)
{
    return peeked(limit, key, 1).remaining;
}

/* Open with other options, which must fail with `error` and a line that contains `words`. */
static void assert_is_refused(const struct weir_options *given, int error, const char *words)
{
    struct scene scene;
    struct weir_options options = *given;
    scene_init(&scene, &options);
    scene.log_allowed = true;
    ck_assert_int_eq(weir_open(&options, &scene.limiter), error);
    scene_heard(&scene);
    ck_assert_msg(strstr(scene.last_line, words) != NULL, "'%s' does not say '%s'", scene.last_line, words);
}

/* ---- Several limiters ---- */

TEST(limiters_over_one_file_count_together_and_after_each_other, 20)
{
    folder_make();
    OPEN_SCENE(first, SHARED(.instances = 1));
    OPEN_SCENE(second, SHARED(.instances = 1));
    weir_limit *one = scene_define_text(&first, "limit", "fixed_window limit=10 period=1h");
    weir_limit *other = scene_define_text(&second, "other", "fixed_window limit=10 period=1h");
    weir_limit *two = scene_define_text(&second, "limit", "fixed_window limit=10 period=1h");
    second.now_us = first.now_us;
    ck_assert(taken(one, "a", 4).allowed);
    ck_assert_int_eq(left(two, "a"), 6);
    ck_assert_int_eq(left(other, "a"), 10);
    ck_assert(taken(two, "a", 6).allowed);
    ck_assert(!taken(one, "a", 1).allowed);
    struct stat stat;
    ck_assert_int_eq(lstat(path, &stat), 0);
    ck_assert_uint_eq(stat.st_mode & 0777, 0600);
    ck_assert_int_eq(stats_of(first.limiter).bytes, stat.st_size);
    scene_close(&first);
    scene_close(&second);

    /* Nobody uses it now; the counts are still there. */
    scene_open(&first, SHARED(.instances = 1));
    first.now_us = second.now_us;
    one = scene_define_text(&first, "limit", "fixed_window limit=12 period=1h");
    ck_assert_int_eq(left(one, "a"), 2);
    ck_assert_int_eq(stats_of(first.limiter).keys, 1);
    scene_open(&second, SHARED(.instances = 1)); /* closed where the block ends */
    folder_remove();
}

TEST(memory_that_the_process_has_open_outlives_its_limiters, 20)
{
    char open_file[64];
    const int fd = memfd_create("test", MFD_CLOEXEC);
    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(fchmod(fd, 0600), 0);
    snprintf(open_file, sizeof open_file, "/proc/self/fd/%d", fd);
    const struct weir_options *options = OPTIONS(.mode = WEIR_MACHINE, .shared = open_file, .max_keys = 1000);
    OPEN_SCENE(first, options);
    OPEN_SCENE(second, options);
    second.now_us = first.now_us;
    weir_limit *one = scene_define_text(&first, "limit", "fixed_window limit=10 period=1h");
    weir_limit *two = scene_define_text(&second, "limit", "fixed_window limit=12 period=1h");
    ck_assert(taken(one, "a", 4).allowed);
    ck_assert_int_eq(left(two, "a"), 8);
    scene_close(&first);
    scene_close(&second);
    scene_open(&first, options);
    first.now_us = second.now_us;
    one = scene_define_text(&first, "limit", "fixed_window limit=10 period=1h");
    ck_assert_int_eq(left(one, "a"), 6);
    close(fd);
}

TEST(limiters_with_different_policies_give_no_second_burst, 20)
{
    folder_make();
    OPEN_SCENE(first, SHARED(.instances = 1));
    OPEN_SCENE(second, SHARED(.instances = 1));
    weir_limit *small = scene_define_text(&first, "limit", "token_bucket limit=10 period=1h");
    weir_limit *large = scene_define_text(&second, "limit", "token_bucket limit=30 period=1h");
    int64_t allowed = 0;
    second.now_us = first.now_us;
    for (int i = 0; i < 100; i++)
        allowed += taken(i % 2 ? small : large, "a", 1).allowed;
    ck_assert_int_eq(allowed, 30);
    folder_remove();
}

static void take_all(weir_limit *limit, int64_t *admitted)
{
    struct weir_decision decision;
    for (int i = 0; i < 3000; i++) {
        char key[40];
        const int len = snprintf(key, sizeof key, i % 3 ? "key%d" : "a key that takes more than a cell %d", i % 50);
        must_succeed(weir_try(limit, weir_key(key, (size_t)len), 1, &decision));
        *admitted += decision.allowed;
    }
}

/* 8 processes ask for 3,000 permits each, of 100 keys that have 100: children that inherit the memory, or open the
 * file. */
TEST_EACH(eight_processes_admit_exactly_the_limit, 2, 60)
{
    int pipes[2];
    int64_t admitted, sum = 0;
    ck_assert_int_eq(pipe(pipes), 0);
    folder_make();
    const char *shared = _i ? path : NULL;
    OPEN_SCENE(scene, OPTIONS(.mode = WEIR_MACHINE, .shared = shared, .max_keys = 1000, .timeout_us = WEIR_HOUR));
    weir_limit *limit = scene_define_text(&scene, "limit", "fixed_window limit=100 period=1d");
    pid_t children[8];
    for (int i = 0; i < 8; i++) {
        children[i] = fork();
        ck_assert_int_ge(children[i], 0);
        if (children[i] > 0)
            continue;
        struct scene own;
        admitted = 0;
        if (_i) {
            scene_open(&own, SHARED(.timeout_us = WEIR_HOUR));
            own.now_us = scene.now_us;
            limit = scene_define_text(&own, "limit", "fixed_window limit=100 period=1d");
        }
        take_all(limit, &admitted);
        _exit(write(pipes[1], &admitted, sizeof admitted) != sizeof admitted);
    }
    for (int i = 0; i < 8; i++) {
        ck_assert_int_eq(read(pipes[0], &admitted, sizeof admitted), sizeof admitted);
        sum += admitted;
    }
    for (int i = 0; i < 8; i++)
        assert_child_succeeds(children[i]);
    ck_assert_int_eq(sum, 100 * (int64_t)stats_of(scene.limiter).keys);
    ck_assert_int_eq(stats_of(scene.limiter).keys, 100);
    close(pipes[0]);
    close(pipes[1]);
    folder_remove();
}

/* ---- A name that is gone ---- */

/* Remove the file, move it away, or put another in its place. */
TEST_EACH(a_file_removed_or_replaced_in_use_is_logged_once_and_counted, 3, 20)
{
    char aside[160];
    folder_make();
    snprintf(aside, sizeof aside, "%s-aside", path);
    OPEN_SCENE(scene, SHARED(.instances = 1));
    weir_limit *limit = scene_define_text(&scene, "limit", "fixed_window limit=10 period=1h");
    ck_assert(taken(limit, "a", 4).allowed);
    ck_assert_uint_eq(stats_of(scene.limiter).file_gone, 0);
    ck_assert_int_eq(_i == 0 ? unlink(path) : rename(path, aside), 0);
    if (_i == 2)
        file_write(0, "x", 1);
    scene.log_allowed = true;
    scene.now_us += 2 * WEIR_SECOND;
    ck_assert_int_eq(left(limit, "a"), 6);
    ck_assert(taken(limit, "new", 1).allowed); /* adds a key */
    scene_heard(&scene);
    ck_assert_msg(strstr(scene.last_line, "was removed or replaced while it is in use") != NULL, "%s", scene.last_line);
    scene.log_allowed = false;
    ck_assert_uint_eq(stats_of(scene.limiter).file_gone, 1);
    scene.now_us += 2 * WEIR_SECOND;
    ck_assert(taken(limit, "newer", 1).allowed);
    unlink(aside);
    folder_remove();
}

/* ---- What is refused ---- */

TEST(a_file_of_another_program_is_refused_and_left_unchanged, 20)
{
    static const char text[] = "Dear diary, today I counted nothing at all.";
    char after[sizeof text];
    folder_make();
    file_write(0, text, sizeof text);
    assert_is_refused(SHARED(.instances = 1), WEIR_ESTATE, "not a file of weir's");
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    ck_assert_int_eq(read(fd, after, sizeof after), sizeof after);
    ck_assert_mem_eq(after, text, sizeof text);
    close(fd);
    folder_remove();
}

TEST(a_file_of_another_layout_size_owner_or_mode_is_refused_with_a_message, 20)
{
    folder_make();
    struct scene scene;
    scene_open(&scene, SHARED(.instances = 1));
    scene_close(&scene);
    const struct machine_facts facts = file_facts();
    const uint64_t version = 1000, keys = 77;
    file_write(offsetof(struct machine_facts, version), &version, sizeof version);
    assert_is_refused(SHARED(.instances = 1), WEIR_ESTATE, "another layout (version 1000, this is");
    file_write(0, &facts, sizeof facts);
    file_write(offsetof(struct machine_facts, layout), &keys, sizeof keys);
    assert_is_refused(SHARED(.instances = 1), WEIR_ESTATE, "another kind of processor");
    file_write(0, &facts, sizeof facts);
    file_write(offsetof(struct machine_facts, max_keys), &keys, sizeof keys);
    assert_is_refused(SHARED(.instances = 1), WEIR_ESTATE, "damaged");
    file_write(0, &facts, sizeof facts);
    char last[4096];
    const off_t last_at = (off_t)(facts.size - sizeof last);
    file_read(last_at, last, sizeof last);
    ck_assert_int_eq(truncate(path, last_at), 0);
    assert_is_refused(SHARED(.instances = 1), WEIR_ESTATE, "truncated");
    file_write(last_at, last, sizeof last);
    ck_assert_int_eq(chmod(path, 0640), 0);
    assert_is_refused(SHARED(.instances = 1), WEIR_EIO, "chmod 600");
    ck_assert_int_eq(chmod(path, 0600), 0);
    if (geteuid() == 0) {
        ck_assert_int_eq(chown(path, 12345, (gid_t)-1), 0);
        assert_is_refused(SHARED(.instances = 1), WEIR_EIO, "belongs to user 12345");
        ck_assert_int_eq(chown(path, 0, (gid_t)-1), 0);
    }
    scene_open(&scene, SHARED(.instances = 1));
    scene_close(&scene);
    unlink(path);
    ck_assert_int_eq(symlink("/dev/null", path), 0);
    assert_is_refused(SHARED(.instances = 1), WEIR_EIO, "is a symbolic link");
    assert_is_refused(OPTIONS(.mode = WEIR_MACHINE, .shared = "/proc/nowhere/x"), WEIR_EIO, "cannot be opened");
    assert_is_refused(OPTIONS(.mode = WEIR_MACHINE, .shared = folder), WEIR_EIO, "cannot be opened");
    assert_is_refused(OPTIONS(.mode = WEIR_MACHINE, .shared = ""), WEIR_EINVAL, "option shared");
    folder_remove();
}

TEST(a_file_whose_creator_died_is_created_again, 20)
{
    const uint64_t begun = MACHINE_BEGUN;
    folder_make();
    file_write(0, &begun, sizeof begun);
    file_write(100000, "rest", 4);
    OPEN_SCENE(scene, SHARED(.instances = 1));
    ck_assert_uint_eq(file_facts().magic, MACHINE_MAGIC);
    folder_remove();
}

TEST(a_file_keeps_the_size_that_it_was_created_with, 20)
{
    folder_make();
    OPEN_SCENE(first, SHARED(.instances = 1));
    CLOSED_BY(scene_close) struct scene second;
    struct weir_options options = *SHARED(.instances = 1);
    options.max_keys = 5000;
    scene_init(&second, &options);
    second.log_allowed = true;
    must_succeed(weir_open(&options, &second.limiter));
    ck_assert_str_eq(second.last_line, "shared: the file was made for 1000 keys, which holds; option max_keys is 5000");
    folder_remove();
}

/* ---- Room ---- */

/* Fill a small file, of 1,888 cells. Return how many of `n` keys found room. */
static int fill(weir_limit *limit, int n, int64_t *full_allowed)
{
    int kept = 0;
    for (int i = 0; i < n; i++) {
        char key[24];
        snprintf(key, sizeof key, "key %d", i);
        const struct weir_decision decision = taken(limit, key, 1);
        kept += decision.source == WEIR_BY_MEMORY;
        *full_allowed += decision.source == WEIR_BY_FULL && decision.allowed;
    }
    return kept;
}

TEST(a_full_file_answers_new_keys_by_on_full_and_resets_no_existing_key, 60)
{
    static const struct {
        enum weir_on_full on_full;
        int kept;
        int64_t allowed;
    } cases[] = { { WEIR_FULL_DENY, 1888, 0 }, { WEIR_FULL_ALLOW, 1888, 1112 }, { WEIR_FULL_SHARE, 1859, 10 } };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        int64_t allowed = 0;
        OPEN_SCENE(scene, OPTIONS(.mode = WEIR_MACHINE, .max_keys = 1, .on_full = cases[i].on_full));
        weir_limit *limit = scene_define_text(&scene, "limit", "token_bucket limit=10 period=1h");
        ck_assert_int_eq(fill(limit, 3000, &allowed), cases[i].kept);
        ck_assert_int_eq(allowed, cases[i].allowed);
        ck_assert_int_eq(left(limit, "key 7"), 9);
        ck_assert_uint_eq(stats_of(scene.limiter).full, 3000 - (uint64_t)cases[i].kept);

        /* An hour later all keys are idle, and make room. */
        scene.now_us += WEIR_HOUR + WEIR_SECOND;
        char key[] = "new";
        ck_assert_int_eq(taken(limit, key, 1).source, WEIR_BY_MEMORY);
        ck_assert_uint_ge(stats_of(scene.limiter).evictions, 1);
        struct weir_request requests[] = { { .limit = limit, .key = weir_key_text("g1"), .cost = 1 },
                                           { .limit = limit, .key = weir_key_text("g2"), .cost = 1 } };
        struct weir_decision decision;
        must_succeed(weir_try_all(scene.limiter, requests, 2, &decision));
        ck_assert(decision.allowed && decision.remaining == 9);
    }
}

TEST(a_group_finds_room_for_all_of_its_keys_or_takes_nothing, 60)
{
    int64_t allowed = 0;
    OPEN_SCENE(scene, OPTIONS(.mode = WEIR_MACHINE, .max_keys = 1));
    weir_limit *limit = scene_define_text(&scene, "limit", "token_bucket limit=10 period=1h");
    ck_assert_int_eq(fill(limit, 1887, &allowed), 1887);
    struct weir_request requests[] = { { .limit = limit, .key = weir_key_text("g1"), .cost = 1 },
                                       { .limit = limit, .key = weir_key_text("g2"), .cost = 1 } };
    struct weir_decision decision;
    must_succeed(weir_try_all(scene.limiter, requests, 2, &decision));
    ck_assert(!decision.allowed && decision.source == WEIR_BY_FULL);
    ck_assert_int_eq(stats_of(scene.limiter).keys, 1887);
    must_succeed(weir_try_all(scene.limiter, requests, 1, &decision));
    ck_assert(decision.allowed && decision.source == WEIR_BY_MEMORY);
}

TEST(longest_key_with_largest_state_finds_room_in_smallest_file, 60)
{
    static const char longest[WEIR_MAX_KEY_LEN] = { 'k' };
    const struct weir_key key = weir_key(longest, sizeof longest);
    struct weir_decision decision;
    OPEN_SCENE(scene, OPTIONS(.mode = WEIR_MACHINE, .max_keys = 1, .on_full = WEIR_FULL_SHARE));
    weir_limit *limit = scene_define_text(&scene, "limit", "sliding_window limit=9 period=1h blocks=1024");
    for (int64_t left = 8; left >= 0; left--) {
        must_succeed(weir_try(limit, key, 1, &decision));
        ck_assert_int_eq(decision.source, WEIR_BY_MEMORY);
        ck_assert_int_eq(decision.remaining, left);
    }
    must_succeed(weir_try(limit, key, 1, &decision));
    ck_assert(!decision.allowed);
    ck_assert_int_eq(stats_of(scene.limiter).keys, 1);
}

/* ---- Memory ---- */

static const int64_t many[] = { 50000, 65536, 131072 };

TEST_EACH(many_keys_of_24_bytes_take_80_bytes_each, sizeof many / sizeof *many, 60)
{
    char text[32];
    struct weir_decision decision;
    OPEN_SCENE(scene, OPTIONS(.mode = WEIR_MACHINE, .max_keys = many[_i]));
    weir_limit *limit = scene_define_text(&scene, "limit", "token_bucket limit=30 period=1d");
    for (int64_t i = 0; i < many[_i]; i++) {
        snprintf(text, sizeof text, "client %017" PRId64, i);
        must_succeed(weir_try(limit, weir_key(text, 24), 1, &decision));
        must(decision.source == WEIR_BY_MEMORY, "the key has a place");
    }
    const struct weir_stats stats = stats_of(scene.limiter);
    ck_assert_int_eq(stats.keys, many[_i]);
    const int64_t slot_keys = many[_i] < MACHINE_SLOT_KEYS ? many[_i] : MACHINE_SLOT_KEYS;
    const int64_t slots = (int64_t)slots_bytes((uint32_t)slot_keys, WEIR_MAX_SLOTS);
    must(stats.bytes <= 80 * many[_i] + slots, "no key takes more than 80 bytes, beside its slots");
}

/* ---- Threads ---- */

static _Atomic int64_t crew_admitted;

static void *crew_work(void *limit)
{
    int64_t admitted = 0;
    take_all(limit, &admitted);
    atomic_fetch_add(&crew_admitted, admitted);
    return NULL;
}

TEST(threads_of_one_process_admit_exactly_the_limit, 60)
{
    struct crew crew;
    OPEN_SCENE(scene, OPTIONS(.mode = WEIR_MACHINE, .max_keys = 1000, .timeout_us = WEIR_HOUR));
    weir_limit *limit = scene_define_text(&scene, "limit", "token_bucket limit=30 period=1d");
    crew_admitted = 0;
    crew_start(&crew, 4, crew_work, limit);
    crew_join(&crew);
    ck_assert_int_eq(crew_admitted, 3000);
}

enum { MOVING_KEYS = 1500, MOVING_ASKS = 20, MOVING_LIMIT = 50 };

/* Ask for each key MOVING_ASKS times. Of 16 bytes, keys have one cell and so move to their homes. */
static void *moving_work(void *limit)
{
    struct weir_decision decision;
    int64_t admitted = 0;
    char key[32];
    for (int i = 0; i < MOVING_KEYS * MOVING_ASKS; i++) {
        snprintf(key, sizeof key, "client %09d", i * 7 % MOVING_KEYS);
        must_succeed(weir_try(limit, weir_key(key, 16), 1, &decision));
        admitted += decision.allowed;
    }
    atomic_fetch_add(&crew_admitted, admitted);
    return NULL;
}

TEST(threads_admit_exactly_the_limit_while_keys_move, 60)
{
    struct crew crew;
    OPEN_SCENE(scene, OPTIONS(.mode = WEIR_MACHINE, .max_keys = 1, .timeout_us = WEIR_HOUR)); /* one stripe, full */
    weir_limit *limit = scene_define_text(&scene, "limit", "token_bucket limit=50 period=1d");
    crew_admitted = 0;
    crew_start(&crew, 4, moving_work, limit);
    crew_join(&crew);
    ck_assert_int_eq(crew_admitted, MOVING_KEYS * MOVING_LIMIT);
    ck_assert_int_eq(stats_of(scene.limiter).keys, MOVING_KEYS);
}
