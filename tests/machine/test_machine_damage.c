/* test_machine_damage.c - what a shared file holds that no limiter would have written, or that a dead process left. */
#include "backends/machine/visit.h"
#include "core/limiter/limiter.h"
#include "file_bytes.h"

#include <inttypes.h>

static int64_t left(weir_limit *limit, const char *key)
{
    return peeked(limit, key, 1).remaining;
}

TEST(a_damaged_state_counts_as_used_up_and_a_damaged_key_starts_fresh, 60)
{
    folder_make();
    OPEN_SCENE(scene, OPTIONS(.mode = WEIR_MACHINE, .shared = path, .max_keys = 1)); /* one stripe */
    scene.log_allowed = true;
    weir_limit *limit = scene_define_text(&scene, "limit", "fixed_window limit=10 period=1h");
    ck_assert(taken(limit, "a", 3).allowed);
    const off_t cell = key_find();
    const uint64_t wrong[] = { UINT64_MAX };
    file_write(cell + MACHINE_CELL_HEAD * 8, wrong, sizeof wrong);
    ck_assert(!taken(limit, "a", 1).allowed);
    stats_of(scene.limiter);
    scene_heard(&scene);
    ck_assert_msg(strstr(scene.last_line, "damaged") != NULL, "%s", scene.last_line);
    scene.now_us += WEIR_HOUR;
    ck_assert(taken(limit, "a", 3).allowed);
    file_write(cell + 8, wrong, sizeof wrong); /* what the cell is */
    ck_assert(taken(limit, "a", 1).allowed);
    ck_assert_int_eq(left(limit, "a"), 9);
    file_write(cell, wrong, sizeof wrong); /* where it leads */
    ck_assert(taken(limit, "b", 1).allowed);
    ck_assert_int_eq(left(limit, "b"), 9);
    folder_remove();
}

/* Give the only stripe of a file to a process that does not live, with a journal of one word, and hold the key of a
 * cell. */
static void stripe_leave_behind(off_t stripe, off_t cell, uint64_t at, uint64_t value, uint64_t len)
{
    const off_t time = cell + (MACHINE_CELL_HEAD + 1) * (off_t)sizeof(uint64_t);
    const uint64_t words[] = { 7 << 16 | 9, len }, write[] = { at, value };
    const uint64_t held = file_word(time) | PAIR_HELD;
    file_write(time, &held, sizeof held);
    file_write(stripe + (off_t)offsetof(struct machine_stripe, journal), write, sizeof write);
    file_write(stripe, words, sizeof words);
}

TEST(a_dead_processs_stripe_is_taken_over_with_its_last_decision, 60)
{
    folder_make();
    OPEN_SCENE(scene, OPTIONS(.mode = WEIR_MACHINE, .shared = path, .max_keys = 1, .timeout_us = WEIR_HOUR));
    weir_limit *limit = scene_define_text(&scene, "limit", "fixed_window limit=10 period=1h");
    ck_assert(taken(limit, "a", 3).allowed);
    const off_t stripe = (off_t)machine_stripes_at(), cell = key_find();
    const uint64_t used_at = (uint64_t)(cell - stripe) / sizeof(uint64_t) + MACHINE_CELL_HEAD;
    stripe_leave_behind(stripe, cell, used_at, 5, 1);
    ck_assert_int_eq(taken(limit, "a", 1).remaining, 4);
    stripe_leave_behind(stripe, cell, used_at, 1, 0); /* it had decided nothing */
    ck_assert_int_eq(taken(limit, "a", 1).remaining, 3);
    scene.log_allowed = true;
    stripe_leave_behind(stripe, cell, UINT64_MAX, 1, 1); /* damaged: nothing is written */
    ck_assert_int_eq(taken(limit, "a", 1).remaining, 2);
    stats_of(scene.limiter);
    scene_heard(&scene);
    ck_assert_msg(strstr(scene.last_line, "damaged") != NULL, "%s", scene.last_line);
    stripe_leave_behind(stripe, cell, used_at, 6, 1);
    ck_assert_int_eq(taken(limit, "b", 1).remaining, 9); /* a key that is added takes the stripe over, too */
    ck_assert_int_eq(left(limit, "a"), 4);
    folder_remove();
}

TEST(known_keys_are_decided_while_a_process_is_stopped_with_the_lock, 60)
{
    OPEN_SCENE(scene, OPTIONS(.mode = WEIR_MACHINE, .max_keys = 1, .timeout_us = 20000)); /* one stripe */
    const struct machine *machine = (const struct machine *)scene.limiter->backend;
    struct machine_stripe *stripe = machine_stripe(machine, 0);
    struct weir_decision decision;
    static const char *const policies[] = { "token_bucket limit=10 period=1h", "fixed_window limit=10 period=1h",
                                            "sliding_window limit=10 period=1h", "sliding_window limit=10 period=1h" };
    for (size_t i = 0; i < sizeof policies / sizeof *policies; i++) {
        const char *key = i % 2 == 1 ? "a key that takes two cells, because it has more than 32 bytes" : "a";
        char name[16];
        snprintf(name, sizeof name, "limit%zu", i);
        weir_limit *limit = scene_define_text(&scene, name, policies[i]);
        ck_assert_int_eq(taken(limit, key, 1).remaining, 9);
        ck_assert_int_eq(weir_charge(limit, weir_key_text("other"), 1), WEIR_OK);
        atomic_store(&stripe->lock, machine->file.owner); /* this process lives, so no other takes the lock over */
        ck_assert_int_eq(taken(limit, key, 1).remaining, 8);
        ck_assert_int_eq(left(limit, key), 8);
        ck_assert(!taken(limit, key, 9).allowed);
        ck_assert_int_eq(weir_try(limit, weir_key_text("new"), 1, &decision), WEIR_ETIME);
        ck_assert_int_eq(weir_reset(limit, weir_key_text("other")), WEIR_ETIME);
        atomic_store(&stripe->lock, 0);
        ck_assert_int_eq(taken(limit, "new", 1).remaining, 9);
    }
}

/* ---- Calls while a process is stopped with the lock ---- */

static const char *const in_two_words[] = { "token_bucket limit=10 period=1h", "fixed_window limit=10 period=1h",
                                            "leaky_bucket limit=10 period=1h" };

/* The lists are those of docs/machine.md. */
TEST_EACH(calls_for_keys_in_use_wait_for_no_stopped_process, sizeof in_two_words / sizeof *in_two_words, 60)
{
    OPEN_SCENE(scene, OPTIONS(.mode = WEIR_MACHINE, .max_keys = 1, .timeout_us = 20000)); /* one stripe */
    const struct machine *machine = (const struct machine *)scene.limiter->backend;
    struct machine_stripe *stripe = machine_stripe(machine, 0);
    const struct weir_key key = weir_key_text("a");
    struct weir_decision decision;
    struct weir_reservation reservation;
    weir_limit *limit = scene_define_text(&scene, "limit", in_two_words[_i]);
    must_succeed(weir_charge(limit, key, 4));
    atomic_store(&stripe->lock, machine->file.owner);
    must_succeed(weir_try(limit, key, 1, &decision));
    must_succeed(weir_peek(limit, key, 1, &decision));
    must_succeed(weir_charge(limit, key, 1));
    must_succeed(weir_refund(limit, key, 1));
    must_succeed(weir_reserve(limit, key, 2, &decision, &reservation));
    ck_assert(decision.allowed);
    must_succeed(weir_settle(limit, key, &reservation, 1));
    must_succeed(weir_try(limit, key, 9, &decision));
    ck_assert(!decision.allowed);
    ck_assert_uint_eq(stats_of(scene.limiter).lock_waits, 0);

    struct weir_request requests[] = { { .limit = limit, .key = key, .cost = 1 } };
    ck_assert_int_eq(weir_try(limit, weir_key_text("new"), 1, &decision), WEIR_ETIME);
    ck_assert_int_eq(weir_peek(limit, weir_key_text("new"), 1, &decision), WEIR_ETIME);
    ck_assert_int_eq(weir_refund(limit, key, 10), WEIR_ETIME); /* nothing would be in use */
    ck_assert_int_eq(weir_reset(limit, key), WEIR_ETIME);
    ck_assert_int_eq(weir_try_all(scene.limiter, requests, 1, &decision), WEIR_ETIME);
    ck_assert_uint_eq(stats_of(scene.limiter).lock_waits, 5);
    limit = scene_define_text(&scene, "limit", "token_bucket limit=20 period=1h");
    ck_assert_int_eq(weir_try(limit, key, 1, &decision), WEIR_ETIME);
    atomic_store(&stripe->lock, 0);
    must_succeed(weir_try(limit, key, 1, &decision));
}

TEST(windows_wait_for_a_stopped_process_in_a_new_block_and_for_some_verbs, 60)
{
    OPEN_SCENE(scene, OPTIONS(.mode = WEIR_MACHINE, .max_keys = 1, .timeout_us = 20000)); /* one stripe */
    const struct machine *machine = (const struct machine *)scene.limiter->backend;
    struct machine_stripe *stripe = machine_stripe(machine, 0);
    struct weir_decision decision;
    weir_limit *limit = scene_define_text(&scene, "limit", "sliding_window limit=10 period=1h");
    weir_limit *wide = scene_define_text(&scene, "wide", "sliding_window limit=8G period=1h");
    ck_assert(taken(limit, "a", 1).allowed);
    ck_assert(taken(wide, "a", 1).allowed);
    atomic_store(&stripe->lock, machine->file.owner);
    struct weir_reservation reservation;
    const struct weir_key key = weir_key_text("a");
    ck_assert(taken(limit, "a", 1).allowed);
    must_succeed(weir_peek(limit, key, 1, &decision));
    must_succeed(weir_reserve(limit, key, 2, &decision, &reservation));
    must_succeed(weir_settle(limit, key, &reservation, 1));
    ck_assert_int_eq(weir_charge(limit, key, 1), WEIR_ETIME);
    ck_assert_int_eq(weir_refund(limit, key, 1), WEIR_ETIME);
    ck_assert_int_eq(weir_try(wide, weir_key_text("a"), 1, &decision), WEIR_ETIME);
    scene.now_us += 30 * WEIR_MINUTE;
    ck_assert_int_eq(weir_try(limit, weir_key_text("a"), 1, &decision), WEIR_ETIME);
    atomic_store(&stripe->lock, 0);
    ck_assert(taken(limit, "a", 1).allowed);
    atomic_store(&stripe->lock, machine->file.owner);
    ck_assert(taken(limit, "a", 1).allowed);
}

TEST(one_patience_is_enough_for_several_locks, 60)
{
    OPEN_SCENE(scene, OPTIONS(.mode = WEIR_MACHINE, .max_keys = 1000));
    struct machine *machine = (struct machine *)scene.limiter->backend;
    int64_t patience_us = 20000;
    for (uint64_t i = 0; i < 2; i++) {
        atomic_store(&machine_stripe(machine, i)->lock, machine->file.owner);
        ck_assert_int_eq(stripe_enter_within(machine, machine_stripe(machine, i), &patience_us), WEIR_ETIME);
        ck_assert_int_le(patience_us, 0);
        atomic_store(&machine_stripe(machine, i)->lock, 0);
    }
    ck_assert_int_eq(stripe_enter_within(machine, machine_stripe(machine, 2), &patience_us), WEIR_OK);
    stripe_leave(machine_stripe(machine, 2));
}

TEST(a_part_that_was_zeroed_begins_anew_and_the_log_says_so, 60)
{
    OPEN_SCENE(scene, OPTIONS(.mode = WEIR_MACHINE, .max_keys = 1));
    const struct machine *machine = (const struct machine *)scene.limiter->backend;
    weir_limit *limit = scene_define_text(&scene, "limit", "token_bucket limit=10 period=1h");
    ck_assert(taken(limit, "a", 3).allowed);
    memset((void *)machine_stripe(machine, 0), 0, machine->stripe_bytes);
    scene.log_allowed = true;
    const struct weir_decision decision = taken(limit, "b", 1);
    ck_assert(decision.allowed && decision.source == WEIR_BY_MEMORY);
    scene_heard(&scene);
    ck_assert_msg(strstr(scene.last_line, "the file was found damaged") != NULL, "%s", scene.last_line);
    ck_assert_int_eq(taken(limit, "a", 1).remaining, 9);
}

TEST(a_window_in_which_nothing_counts_any_more_begins_anew_without_the_lock, 60)
{
    OPEN_SCENE(scene, OPTIONS(.mode = WEIR_MACHINE, .max_keys = 1, .timeout_us = 20000)); /* one stripe */
    const struct machine *machine = (const struct machine *)scene.limiter->backend;
    struct machine_stripe *stripe = machine_stripe(machine, 0);
    weir_limit *limit = scene_define_text(&scene, "limit", "sliding_window limit=10 period=1h");
    ck_assert_int_eq(taken(limit, "a", 4).remaining, 6);
    scene.now_us += 30 * WEIR_MINUTE;
    ck_assert_int_eq(taken(limit, "a", 5).remaining, 1);
    scene.now_us += 2 * WEIR_HOUR;
    atomic_store(&stripe->lock, machine->file.owner); /* this process lives, so no other takes the lock over */
    ck_assert_int_eq(taken(limit, "a", 2).remaining, 8);
    ck_assert_int_eq(taken(limit, "a", 1).remaining, 7);
    atomic_store(&stripe->lock, 0);
    scene.now_us += 30 * WEIR_MINUTE; /* the whole state is read: of the old counts nothing is left */
    ck_assert_int_eq(taken(limit, "a", 1).remaining, 6);
    scene.now_us += WEIR_HOUR - 15 * WEIR_MINUTE;
    ck_assert_int_eq(left(limit, "a"), 9);
}

TEST(a_windows_summary_that_its_counts_belie_counts_as_used_up, 60)
{
    folder_make();
    OPEN_SCENE(scene, OPTIONS(.mode = WEIR_MACHINE, .shared = path, .max_keys = 1));
    weir_limit *limit = scene_define_text(&scene, "limit", "sliding_window limit=10 period=1h");
    ck_assert_int_eq(taken(limit, "a", 4).remaining, 6);
    scene.now_us += 30 * WEIR_MINUTE;
    ck_assert_int_eq(taken(limit, "a", 1).remaining, 5);
    const off_t counts = key_find() + MACHINE_CELL_HEAD * (off_t)sizeof(uint64_t);
    ck_assert_uint_eq(file_word(counts), UINT64_C(4) << 32 | 1);
    const uint64_t wrong = UINT64_C(3) << 32 | 1;
    file_write(counts, &wrong, sizeof wrong);
    scene.log_allowed = true;
    scene.now_us += 15 * WEIR_MINUTE;
    ck_assert(!taken(limit, "a", 1).allowed);
    stats_of(scene.limiter);
    scene_heard(&scene);
    ck_assert_msg(strstr(scene.last_line, "damaged") != NULL, "%s", scene.last_line);
    folder_remove();
}

TEST(a_key_held_by_a_dead_process_is_freed_by_its_next_decision, 60)
{
    folder_make();
    OPEN_SCENE(scene, OPTIONS(.mode = WEIR_MACHINE, .shared = path, .max_keys = 1, .timeout_us = WEIR_HOUR));
    weir_limit *limit = scene_define_text(&scene, "limit", "fixed_window limit=10 period=1h");
    ck_assert(taken(limit, "a", 3).allowed);
    const off_t time = key_find() + (MACHINE_CELL_HEAD + 1) * (off_t)sizeof(uint64_t);
    ck_assert_uint_eq(file_word(time) & PAIR_HELD, 0);
    const uint64_t held = file_word(time) | PAIR_HELD;
    file_write(time, &held, sizeof held);
    ck_assert_int_eq(taken(limit, "a", 1).remaining, 6);
    ck_assert_uint_eq(file_word(time) & PAIR_HELD, 0);
    ck_assert_uint_ne(file_word(time), held & ~PAIR_HELD); /* it has another turn */
    folder_remove();
}
