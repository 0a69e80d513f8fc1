/* test_redis_cluster_slots.c - slots that move to another primary under load, and slots in mid-migration: callers
 * notice nothing, and no permit is lost or admitted twice. Faults D3 (TRYAGAIN) and D6. */
#include "cluster_place.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

enum { MOVED = 1000, AROUND = 200, WAYS = 4 };
#define MOVES_MOST_US (8 * WEIR_SECOND)

static struct cluster common;

/* ---- Many slots, under load ---- */

/* Choose keys in the slots of a primary that move, in slots just behind them, and in slots of the other primaries. */
static void keys_in_and_around(struct load *load, unsigned first)
{
    struct load_key *of_slot[MOVED + AROUND] = { NULL };
    load->n = MOVED + AROUND + 2;
    for (size_t i = 0, found = 0; found < MOVED + AROUND; i++) {
        char text[LOAD_KEY_SIZE];
        snprintf(text, sizeof text, "k%zu", i);
        unsigned slot = cluster_key_slot(text);
        if (slot < first || slot >= first + MOVED + AROUND || of_slot[slot - first] != NULL)
            continue;
        of_slot[slot - first] = &load->keys[slot - first];
        memcpy(of_slot[slot - first]->text, text, sizeof text);
        found++;
    }
    key_of(&common, 1, 0, load->keys[MOVED + AROUND].text);
    key_of(&common, 2, 0, load->keys[MOVED + AROUND + 1].text);
}

static void slot_moves(unsigned slot, int from, int to)
{
    cluster_good(&common, cluster_slot_begin(&common, slot, from, to));
    cluster_good(&common, cluster_slot_carry(&common, slot, from, to, 1000));
    cluster_good(&common, cluster_slot_end(&common, slot, from, to));
}

TEST(no_caller_notices_slots_that_migrate_under_load, 120)
{
    static struct load loads[WAYS] = {
        { .way = LOAD_TRY }, { .way = LOAD_BATCH }, { .way = LOAD_SUBMIT }, { .way = LOAD_TRY, .in_a_row = 4 }
    };
    static const char *const names[] = { "one-by-one", "in-batches", "submitted", "few" };
    struct place place;
    struct weir_options options = cluster_options(&place, &common, PATIENT_US);
    const unsigned first = first_slot(&common, 0);
    int from = cluster_owner(&common, first), to = cluster_owner(&common, first_slot(&common, 1)), moved = 0;
    weir *limiter = limiter_of(&options);
    taken(limit_of(limiter, "first", UNREFILLED), "first", 1);
    int64_t asks = map_asks(&common), began_us = wire_now_us();
    for (int i = 0; i < WAYS; i++) {
        keys_in_and_around(&loads[i], first);
        load_start(&loads[i], limiter, limit_of(limiter, names[i], i == WAYS - 1 ? FEW_OF_EACH : UNREFILLED), 1);
    }
    sleep_us(50000);
    for (; moved < MOVED && wire_now_us() - began_us < MOVES_MOST_US; moved++)
        slot_moves(first + (unsigned)moved, from, to);
    int64_t took_us = wire_now_us() - began_us;
    sleep_us(100000);
    printf("%d slots moved in %" PRId64 " ms\n", moved, took_us / 1000);
    for (int i = 0; i < WAYS; i++)
        load_end(&loads[i]);
    for (int i = 0; i < WAYS; i++)
        load_print(&loads[i], names[i]);
    ck_assert_int_gt(moved, 50);
    assert_no_storm(asks < 0 ? -1 : map_asks(&common) - asks, took_us, 1, "slots move");
    for (int i = 0; i < WAYS - 1; i++)
        assert_load_exact(&loads[i]);
    assert_load_undisturbed(&loads[WAYS - 1]);
    assert_few(&loads[WAYS - 1], 1, "few");
    ck_assert_msg(place_log_lines(&place) == 0, "%s", place.log);
    weir_close(limiter);
    place_close(&place);
    cluster_good(&common, cluster_settle(&common));
    for (int slot = 0; slot < moved; slot++) /* restore the slots */
        slot_moves(first + (unsigned)slot, to, from);
    cluster_good(&common, cluster_settle(&common));
}

/* ---- One slot in mid-migration ---- */

struct half {
    struct place place;
    weir *limiter;
    weir_limit *limits[3];
    char key[LOAD_KEY_SIZE]; /* in the slot; each limit has its own Redis key for it */
    unsigned slot;
    int from, to;
};

/* A slot whose keys for limits 0 and 1 have migrated and whose key for limit 2 has not. */
static void half_open(struct half *half, int primary, int64_t timeout_us)
{
    static const char *const names[] = { "one", "two", "three" };
    struct weir_options options = cluster_options(&half->place, &common, timeout_us);
    half->limiter = limiter_of(&options);
    key_of(&common, primary, 7, half->key);
    half->slot = cluster_key_slot(half->key);
    half->from = cluster_owner(&common, half->slot);
    half->to = cluster_owner(&common, first_slot(&common, (primary + 1) % 3));
    for (int i = 0; i < 3; i++) {
        half->limits[i] = limit_of(half->limiter, names[i], "fixed_window limit=50 period=366d");
        if (i < 2)
            ck_assert_int_eq(taken(half->limits[i], half->key, 1).remaining, 49);
    }
    cluster_good(&common, cluster_slot_begin(&common, half->slot, half->from, half->to));
    ck_assert_int_eq(cluster_slot_carry(&common, half->slot, half->from, half->to, 1), 1);
}

static void half_finish(struct half *half)
{
    cluster_good(&common, cluster_slot_carry(&common, half->slot, half->from, half->to, 1000));
    cluster_good(&common, cluster_slot_end(&common, half->slot, half->from, half->to));
}

/* Return the slot to its former primary, for the other tests. */
static void half_close(struct half *half)
{
    cluster_good(&common, cluster_settle(&common));
    cluster_good(&common, cluster_slot_move(&common, half->slot, half->from));
    cluster_good(&common, cluster_settle(&common));
    weir_close(half->limiter);
    place_close(&half->place);
}

/* A script that has to be loaded again goes to the redirect's target, with another ASKING. */
static void forget_scripts(const struct half *half)
{
    must(cluster_ask(&common, half->from, place_reply, sizeof place_reply, "SCRIPT", "FLUSH") == 2 &&
             cluster_ask(&common, half->to, place_reply, sizeof place_reply, "SCRIPT", "FLUSH") == 2,
         "scripts are forgotten");
}

static void assert_takes_count(struct half *half, int64_t *taken_so_far)
{
    forget_scripts(half);
    for (int times = 0; times < 5; times++)
        for (int i = 0; i < 3; i++) {
            struct weir_decision decision = taken(half->limits[i], half->key, 1);
            must(decision.source == WEIR_BY_REDIS, "Redis decides");
            ck_assert_int_eq(decision.limit - decision.remaining, ++taken_so_far[i]);
        }
}

TEST_EACH(keys_of_a_migrating_slot_are_found_and_new_ones_created_at_the_target, 3, 60)
{
    CLOSED_BY(half_close) struct half half;
    int64_t taken_so_far[3] = { 1, 1, 0 };
    half_open(&half, _i, PATIENT_US);
    assert_takes_count(&half, taken_so_far);
    half_finish(&half);
    assert_takes_count(&half, taken_so_far);
    cluster_good(&common, cluster_settle(&common));
    /* Move the slot back by the same steps. */
    cluster_good(&common, cluster_slot_begin(&common, half.slot, half.to, half.from));
    cluster_good(&common, cluster_slot_carry(&common, half.slot, half.to, half.from, 2));
    assert_takes_count(&half, taken_so_far);
    cluster_good(&common, cluster_slot_carry(&common, half.slot, half.to, half.from, 1000));
    cluster_good(&common, cluster_slot_end(&common, half.slot, half.to, half.from));
    assert_takes_count(&half, taken_so_far);
    ck_assert_uint_eq(stats_of(half.limiter).errors, 0);
}

/* Take three times a permit that each of the first two limits denies, the first time by its script. */
static void assert_denied(const struct half *half)
{
    for (int times = 0; times < 3; times++)
        for (int i = 0; i < 2; i++) {
            const struct weir_decision decision = taken(half->limits[i], half->key, 1);
            ck_assert(!decision.allowed && decision.source == WEIR_BY_REDIS && decision.remaining == 0);
        }
}

/* A read is not sent with ASKING, so a script follows it to the other node. */
TEST_EACH(a_key_that_migrates_stays_denied_until_it_is_refunded, 3, 60)
{
    CLOSED_BY(half_close) struct half half;
    half_open(&half, _i, PATIENT_US);
    for (int i = 0; i < 2; i++)
        ck_assert(taken(half.limits[i], half.key, 49).allowed);
    assert_denied(&half);
    half_finish(&half);
    assert_denied(&half);
    for (int i = 0; i < 2; i++) {
        must_succeed(weir_refund(half.limits[i], weir_key_text(half.key), 1));
        ck_assert(taken(half.limits[i], half.key, 1).allowed);
    }
    assert_denied(&half);
    ck_assert_uint_eq(stats_of(half.limiter).errors, 0);
}

static struct weir_request request_of(const struct half *half, int limit)
{
    return (struct weir_request){ .limit = half->limits[limit], .key = weir_key_text(half->key), .cost = 1 };
}

static struct weir_decision both_taken(const struct half *half)
{
    struct weir_decision decision;
    const struct weir_request requests[] = { request_of(half, 0), request_of(half, 1) };
    forget_scripts(half);
    must_succeed(weir_try_all(half->limiter, requests, 2, &decision));
    must(decision.source == WEIR_BY_REDIS, "Redis decides");
    return decision;
}

/* Which key has migrated is random, so each takes a turn as the one that denies. */
TEST_EACH(a_group_over_a_migrating_key_is_charged_completely_or_not_at_all, 3, 60)
{
    CLOSED_BY(half_close) struct half half;
    half_open(&half, _i, PATIENT_US);
    ck_assert(both_taken(&half).allowed);
    for (int tight = 0; tight < 2; tight++) {
        int64_t before[2];
        int64_t left = 50 - charged(half.limits[tight], half.key);
        ck_assert(taken(half.limits[tight], half.key, left).allowed);
        for (int i = 0; i < 2; i++)
            before[i] = charged(half.limits[i], half.key);
        struct weir_decision denied = both_taken(&half);
        ck_assert(!denied.allowed && denied.bound_by == (uint32_t)tight);
        for (int i = 0; i < 2; i++)
            ck_assert_int_eq(charged(half.limits[i], half.key), before[i]);
        must_succeed(weir_refund(half.limits[tight], weir_key_text(half.key), left));
    }
    for (int i = 0; i < 2; i++)
        ck_assert_int_eq(charged(half.limits[i], half.key), 2);
    half_finish(&half);
    ck_assert(both_taken(&half).allowed);
    for (int i = 0; i < 2; i++)
        ck_assert_int_eq(charged(half.limits[i], half.key), 3);
    ck_assert_uint_eq(stats_of(half.limiter).errors, 0);
}

TEST_EACH(a_group_over_a_migrated_key_is_charged_at_the_new_node, 3, 60)
{
    CLOSED_BY(half_close) struct half half;
    half_open(&half, _i, PATIENT_US);
    cluster_good(&common, cluster_slot_carry(&common, half.slot, half.from, half.to, 1000));
    ck_assert(both_taken(&half).allowed); /* ASK leads to both keys */
    ck_assert(both_taken(&half).allowed);
    for (int i = 0; i < 2; i++)
        ck_assert_int_eq(charged(half.limits[i], half.key), 3);
    half_finish(&half);
    ck_assert(both_taken(&half).allowed);
}

int main(void)
{
    return suite_on_cluster(tests(), &common, NULL);
}
