/* test_peers.c - the share in force while instances come and go, with times that the test sets. */
#include "support.h"

#include "core/follow/peers.h"
#include "core/ground/arith.h"
#include "core/policy/plan.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

enum { LIMIT_MOST = 50, HOLD_US = 1000, STALE_US = 1000000, INSTANCES_MOST = 1000 };

enum { SEQUENCES = INSTRUMENTED ? 60 : 400, COUNT_STEP = INSTRUMENTED ? 97 : 9 };

static const struct peers_rules rules = { .hold_down_us = HOLD_US, .max_stale_us = STALE_US };
static const struct message nowhere = { NULL, 0 };

/* ---- What is in force, as numbers ---- */

struct force {
    struct share chain[PEERS_SHARES];
};

static const struct share *in_force(const struct peers *peers, struct force *force)
{
    peers_in_force(peers, force->chain);
    return force->chain;
}

static int64_t part(const struct peers *peers, int64_t whole)
{
    struct force force;
    return share_permits(in_force(peers, &force), whole);
}

static double ratio(const struct peers *peers)
{
    struct force force;
    const struct share *least = in_force(peers, &force);
    must(share_least(least) == least, "the first has the least ratio");
    return (double)least->weight / (double)least->total;
}

/* ---- Lists ---- */

static char ids[INSTANCES_MOST][16];
static struct weir_peer list[INSTANCES_MOST];

/* Peers i-0000, i-0001, ... of weight 1. */
static void list_alike(size_t n)
{
    for (size_t i = 0; i < n; i++) {
        snprintf(ids[i], sizeof ids[i], "i-%04zu", i);
        list[i] = (struct weir_peer){ .id = ids[i], .weight = 1 };
    }
}

static struct share share_of(size_t n, size_t self)
{
    struct share share;
    char why[200] = "";
    if (peers_read(list, n, list[self].id, &share, (struct message){ why, sizeof why }) != WEIR_OK)
        ck_abort_msg("%zu peers: %s", n, why);
    return share;
}

static void hear(struct peers *peers, size_t n, size_t self, int64_t now_us)
{
    const struct share share = share_of(n, self);
    peers_hear(peers, &share, now_us);
}

/* Past the first hold-down, at time HOLD_US. */
static void begin_settled(struct peers *peers, const struct peers_rules *with, size_t n, size_t self)
{
    peers_begin(peers, with);
    hear(peers, n, self, 0);
    peers_turn(peers, HOLD_US);
    must(peers_is_settled(peers), "after the hold-down the answer is in force");
}

static void check_parts(size_t n)
{
    static struct peers all[INSTANCES_MOST];
    for (size_t i = 0; i < n; i++)
        begin_settled(&all[i], &rules, n, i);
    for (int64_t whole = 1; whole <= LIMIT_MOST; whole++) {
        const struct weir_policy policy = { .limit = whole, .period_us = WEIR_SECOND };
        int64_t sum = 0;
        for (size_t i = 0; i < n; i++) {
            struct force force;
            const struct share *share = in_force(&all[i], &force);
            sum += share_permits(share, whole);
            if (whole % 7 != 1)
                continue;
            struct weir_plan plan;
            must(plan_at_share(&policy, share, &plan) <= PLAN_PART_LIFTED, "a rate has arithmetic");
            must(plan.size >= 1 && plan.p > 0 && plan.q > 0, "no rate is zero");
            must((double)plan.p / (double)(plan.q * plan.tick_us) * 1e6 <
                     (double)(whole * share->weight) / (double)share->total * (1 + 1e-12),
                 "nor more than its share");
        }
        if (sum != whole)
            ck_abort_msg("%" PRId64 " over %zu instances: %" PRId64, whole, n, sum);
    }
    for (size_t i = 0; i < n; i++)
        peers_end(&all[i]);
}

TEST(parts_of_up_to_1000_equal_peers_add_up_to_every_limit_up_to_50, 60)
{
    list_alike(INSTANCES_MOST);
    for (size_t n = 1; n <= INSTANCES_MOST; n += n < 60 ? 1 : COUNT_STEP)
        check_parts(n);
    check_parts(INSTANCES_MOST);
}

TEST(parts_of_peers_by_weight_add_up_to_every_limit_up_to_50, 60)
{
    struct chance chance = chance_make(1);
    list_alike(INSTANCES_MOST);
    for (size_t n = 1; n <= INSTANCES_MOST; n += n < 60 ? 1 : (size_t)10 * COUNT_STEP) {
        for (size_t i = 0; i < n; i++)
            list[i].weight = chance_magnitude(&chance, SHARE_MAX_WEIGHT);
        check_parts(n);
    }
    list[0].weight = 3, list[1].weight = list[2].weight = 1;
    struct peers peers;
    static const double expected[] = { 0.6, 0.2, 0.2 };
    for (size_t i = 0; i < 3; i++) {
        begin_settled(&peers, &rules, 3, i);
        ck_assert_double_eq_tol(ratio(&peers), expected[i], 1e-12);
        peers_end(&peers);
    }
}

TEST(the_order_of_the_peer_list_does_not_change_the_share, 30)
{
    struct chance chance = chance_make(2);
    list_alike(20);
    for (int draw = 0; draw < 200; draw++) {
        const size_t n = (size_t)chance_between(&chance, 1, 20), self = (size_t)chance_between(&chance, 0, (int)n - 1);
        struct weir_peer shuffled[20];
        for (size_t i = 0; i < n; i++) {
            list[i].weight = chance_between(&chance, 1, 3);
            shuffled[i] = list[i];
        }
        for (size_t i = n - 1; i > 0; i--) {
            const size_t j = (size_t)chance_between(&chance, 0, (int64_t)i);
            const struct weir_peer peer = shuffled[i];
            shuffled[i] = shuffled[j];
            shuffled[j] = peer;
        }
        const struct share share = share_of(n, self);
        struct share other;
        must_succeed(peers_read(shuffled, n, ids[self], &other, nowhere));
        must(share.rank == (int64_t)self && other.rank == share.rank && other.weight == share.weight &&
                 other.total == share.total && other.count == share.count && !other.weights == !share.weights,
             "the order does not matter");
        for (size_t i = 0; share.weights && i < n; i++)
            must(share.weights[i] == list[i].weight && other.weights[i] == list[i].weight, "weights are by id");
        free((void *)(uintptr_t)share.weights);
        free((void *)(uintptr_t)other.weights);
    }
}

TEST(an_unusable_peer_list_is_refused_with_its_fault, 30)
{
    static char long_id[PEERS_ID_MAX + 2];
    static const struct weir_peer many[SHARE_MAX_INSTANCES + 1];
    memset(long_id, 'x', PEERS_ID_MAX + 1);
    const struct {
        struct weir_peer peers[3];
        size_t n;
        const char *self, *says;
    } rows[] = {
        { { { "a", 1 } }, 0, "a", "the list of peers is empty" },
        { { { "a", 1 }, { "b", 1 } }, 2, "c", "this instance, c, is not among the 2 peers" },
        { { { "a", 1 }, { "b", 1 }, { "a", 1 } }, 3, "b", "peer a is there twice" },
        { { { "a", 1 }, { "b", 0 } }, 2, "a", "the weight of peer b must be 1 to 65535, not 0" },
        { { { "a", -1 }, { "b", 1 } }, 2, "a", "the weight of peer a must be 1 to 65535, not -1" },
        { { { "a", 1 }, { "b", 65536 } }, 2, "a", "the weight of peer b must be 1 to 65535, not 65536" },
        { { { "a", 1 }, { "", 1 } }, 2, "a", "an id of a peer must be 1 to 255 bytes long" },
        { { { "a", 1 }, { NULL, 1 } }, 2, "a", "an id of a peer must be 1 to 255 bytes long" },
        { { { "a", 1 }, { long_id, 1 } }, 2, "a", "an id of a peer must be 1 to 255 bytes long" },
        { { { "a", 1 }, { "b", 2 } }, 2, NULL, "peers of different weights need to know which of them is this one" },
    };
    char why[200];
    const struct message message = { why, sizeof why };
    struct share share;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        ck_assert_int_eq(peers_read(rows[i].peers, rows[i].n, rows[i].self, &share, message), WEIR_EINVAL);
        ck_assert_str_eq(why, rows[i].says);
    }
    ck_assert_int_eq(peers_read(many, SHARE_MAX_INSTANCES + 1, "a", &share, message), WEIR_EINVAL);
    ck_assert_str_eq(why, "10001 peers are more than 10000");
    long_id[PEERS_ID_MAX] = '\0';
    const struct weir_peer longest = { long_id, SHARE_MAX_WEIGHT };
    must_succeed(peers_read(&longest, 1, long_id, &share, message));
}

TEST(an_instance_without_a_known_rank_rounds_its_share_down, 30)
{
    list_alike(7);
    CLOSED_BY(peers_end) struct peers peers;
    struct share share;
    must_succeed(peers_read(list, 7, NULL, &share, nowhere));
    peers_begin(&peers, &rules);
    peers_hear(&peers, &share, 0);
    peers_turn(&peers, HOLD_US);
    for (int64_t whole = 1; whole <= LIMIT_MOST; whole++)
        ck_assert_int_eq(part(&peers, whole), whole / 7);
}

/* ---- One instance's views ---- */

TEST(no_share_is_in_force_until_a_hold_down_after_the_first_answer, 30)
{
    CLOSED_BY(peers_end) struct peers peers;
    list_alike(2);
    peers_begin(&peers, &rules);
    ck_assert_int_eq(peers_due_us(&peers), INT64_MAX);
    ck_assert(!peers_turn(&peers, 10 * STALE_US)); /* nothing gets old */
    ck_assert_int_eq(part(&peers, LIMIT_MOST), 0);
    hear(&peers, 2, 0, 100);
    ck_assert_int_eq(part(&peers, LIMIT_MOST), 0);
    ck_assert_int_eq(peers_due_us(&peers), 100 + HOLD_US);
    ck_assert(!peers_turn(&peers, 100 + HOLD_US - 1));
    ck_assert(!peers_is_settled(&peers));
    ck_assert_int_eq(part(&peers, LIMIT_MOST), 0);
    ck_assert(peers_turn(&peers, 100 + HOLD_US));
    ck_assert(peers_is_settled(&peers));
    ck_assert_int_eq(part(&peers, LIMIT_MOST), LIMIT_MOST / 2);
}

TEST(a_configured_floor_is_in_force_before_the_first_answer, 30)
{
    struct peers_rules with = rules;
    struct peers peers;
    struct force force;
    list_alike(20);
    with.floor_instances = 10;
    peers_begin(&peers, &with);
    ck_assert_int_eq(part(&peers, LIMIT_MOST), 5);
    ck_assert_int_eq(share_instances(in_force(&peers, &force)), 10);
    hear(&peers, 2, 0, 0); /* more: after the hold-down */
    ck_assert_int_eq(part(&peers, LIMIT_MOST), 5);
    peers_turn(&peers, HOLD_US);
    ck_assert_int_eq(part(&peers, LIMIT_MOST), 25);
    peers_end(&peers);
    peers_begin(&peers, &with);
    hear(&peers, 20, 0, 0); /* less: at once */
    ck_assert_int_eq(part(&peers, LIMIT_MOST), 3);
    ck_assert_int_eq(share_instances(in_force(&peers, &force)), 20);
    peers_end(&peers);
}

TEST(leases_leave_room_for_the_largest_instance_count_that_may_be_in_force, 30)
{
    CLOSED_BY(peers_end) struct peers peers;
    struct force force;
    list_alike(20);
    peers_begin(&peers, &rules);
    ck_assert_int_eq(share_instances(in_force(&peers, &force)), SHARE_MAX_INSTANCES);
    hear(&peers, 20, 0, 0);
    ck_assert_int_eq(share_instances(in_force(&peers, &force)), SHARE_MAX_INSTANCES);
    peers_turn(&peers, HOLD_US);
    ck_assert_int_eq(share_instances(in_force(&peers, &force)), 20);
    hear(&peers, 3, 0, 2 * HOLD_US);
    ck_assert_int_eq(share_instances(in_force(&peers, &force)), 20);
    peers_turn(&peers, 3 * HOLD_US);
    ck_assert_int_eq(share_instances(in_force(&peers, &force)), 3);
}

TEST(a_smaller_share_takes_effect_immediately_and_a_larger_one_after_the_hold_down, 30)
{
    CLOSED_BY(peers_end) struct peers peers;
    list_alike(10);
    begin_settled(&peers, &rules, 2, 0);
    hear(&peers, 10, 0, 5000);
    ck_assert_int_eq(part(&peers, LIMIT_MOST), 5);
    hear(&peers, 5, 0, 5500);
    ck_assert_int_eq(part(&peers, LIMIT_MOST), 5);
    peers_turn(&peers, 6000); /* half of the hold-down has passed without effect */
    ck_assert_int_eq(part(&peers, LIMIT_MOST), 5);
    peers_turn(&peers, 6499);
    ck_assert_int_eq(part(&peers, LIMIT_MOST), 5);
    peers_turn(&peers, 6500);
    ck_assert_int_eq(part(&peers, LIMIT_MOST), 10);
    ck_assert_uint_eq(peers.count, 1);
}

TEST(a_share_that_grows_by_its_rank_alone_waits_for_the_hold_down_too, 30)
{
    CLOSED_BY(peers_end) struct peers peers;
    list_alike(4);
    begin_settled(&peers, &rules, 2, 1); /* 1 of 3 permits: the first has 2 */
    ck_assert_int_eq(part(&peers, 3), 1);
    ck_assert_int_eq(part(&peers, 1), 0);
    struct share share;
    const struct weir_peer now[] = { { "i-0001", 1 }, { "i-0002", 1 }, { "i-0003", 1 } };
    must_succeed(peers_read(now, 3, "i-0001", &share, nowhere)); /* it is the first now */
    peers_hear(&peers, &share, 5000);
    ck_assert_int_eq(part(&peers, 1), 0);
    peers_turn(&peers, 5000 + HOLD_US);
    ck_assert_int_eq(part(&peers, 1), 1);
}

TEST(the_same_answer_again_changes_nothing, 30)
{
    CLOSED_BY(peers_end) struct peers peers;
    list_alike(3);
    list[1].weight = 5;
    begin_settled(&peers, &rules, 3, 1);
    for (int64_t now_us = 2000; now_us < 5000; now_us += 10) {
        const struct share share = share_of(3, 1);
        ck_assert(!peers_hear(&peers, &share, now_us));
        ck_assert_int_eq(peers_due_us(&peers), now_us + STALE_US);
    }
    peers_confirm(&peers, 6000);
    ck_assert_int_eq(peers_due_us(&peers), 6000 + STALE_US);
    ck_assert_uint_eq(peers.count, 1);
}

TEST(flapping_peers_keep_the_smaller_share_and_use_no_more_memory, 30)
{
    CLOSED_BY(peers_end) struct peers peers;
    list_alike(3);
    begin_settled(&peers, &rules, 2, 0);
    int64_t now_us = 5000;
    for (int i = 0; i < 1000; i++, now_us += 100) {
        hear(&peers, i % 2 ? 2 : 3, 0, now_us);
        peers_turn(&peers, now_us);
        ck_assert_int_eq(part(&peers, 30), 10);
        ck_assert_uint_le(peers.count, 2);
    }
    peers_turn(&peers, now_us + HOLD_US); /* the last one was of two */
    ck_assert_int_eq(part(&peers, 30), 15);
}

TEST(peer_lists_merged_for_lack_of_room_give_no_more_than_each_alone, 60)
{
    struct chance chance = chance_make(3);
    list_alike(60);
    for (int draw = 0; draw < (INSTRUMENTED ? 60 : 300); draw++) {
        CLOSED_BY(peers_end) struct peers peers;
        struct share heard[40];
        int64_t heard_us[40];
        begin_settled(&peers, &rules, 1, 0);
        int64_t now_us = 2 * HOLD_US;
        for (int i = 0; i < 40; i++, now_us += chance_between(&chance, 0, 60)) {
            const size_t n = (size_t)chance_between(&chance, 1, draw % 3 ? 60 : 4);
            for (size_t k = 0; k < n; k++)
                list[k].weight = draw % 2 ? 1 : chance_between(&chance, 1, 9);
            const size_t rank = (size_t)chance_between(&chance, 0, (int64_t)(n < 3 ? n : 3) - 1);
            heard[i] = share_of(n, rank);
            heard_us[i] = now_us;
            hear(&peers, n, rank, now_us);
            must(peers.count <= PEERS_VIEWS, "views are few");
            for (int64_t whole = 1; whole <= LIMIT_MOST; whole++)
                for (int k = 0; k <= i; k++)
                    if (k == i || heard_us[k + 1] + HOLD_US > now_us)
                        must(part(&peers, whole) <= share_permits(&heard[k], whole), "no more than any that holds");
        }
        peers_turn(&peers, now_us + HOLD_US);
        for (int64_t whole = 1; whole <= LIMIT_MOST; whole++)
            must(part(&peers, whole) == share_permits(&heard[39], whole), "once it is quiet the last is in force");
        for (int i = 0; i < 40; i++)
            free((void *)(uintptr_t)heard[i].weights);
    }
}

TEST(a_peer_list_stops_counting_within_eight_sevenths_of_the_hold_down, 60)
{
    struct chance chance = chance_make(5);
    static struct share heard[400];
    static int64_t ends_us[400];
    enum { LONGEST_US = HOLD_US + (HOLD_US + PEERS_VIEWS - 3) / (PEERS_VIEWS - 2), LAST = 399 };
    list_alike(60);
    for (int draw = 0; draw < 60; draw++) {
        CLOSED_BY(peers_end) struct peers peers;
        begin_settled(&peers, &rules, 1, 0);
        int64_t now_us = 2 * HOLD_US;
        int oldest = 0; /* that may still count */
        for (int i = 0; i <= LAST; i++, now_us += chance_between(&chance, 0, draw % 2 ? 60 : 2 * HOLD_US / 7)) {
            const size_t n = chance_one_in(&chance, 40) ? 60 : (size_t)chance_between(&chance, 1, 20);
            heard[i] = share_of(n, 0);
            ends_us[i] = INT64_MAX;
            if (i > 0)
                ends_us[i - 1] = now_us;
            hear(&peers, n, 0, now_us);
            while (ends_us[oldest] != INT64_MAX && ends_us[oldest] + LONGEST_US <= now_us)
                oldest++;
            struct share least = share_whole;
            for (int k = oldest; k <= i; k++)
                least = share_is_less(&heard[k], &least) ? heard[k] : least;
            must(ratio(&peers) >= (double)least.weight / (double)least.total, "it has grown back");
            for (int64_t whole = 1; whole <= LIMIT_MOST; whole += 7)
                must(part(&peers, whole) >= whole / least.total, "and the parts");
        }
    }
}

TEST(an_instance_gets_a_share_within_eight_sevenths_of_the_hold_down_while_others_join, 30)
{
    CLOSED_BY(peers_end) struct peers peers;
    list_alike(INSTANCES_MOST);
    peers_begin(&peers, &rules);
    const int64_t step_us = HOLD_US / 10;
    for (int64_t i = 0; i < 600; i++) {
        hear(&peers, (size_t)(i == 50 ? 900 : 100 + i), 0, i * step_us); /* once a much longer list, by mistake */
        ck_assert_uint_le(peers.count, PEERS_VIEWS);
        const bool is_over = i * step_us >= HOLD_US + HOLD_US / (PEERS_VIEWS - 2) + 1;
        ck_assert(i * step_us >= HOLD_US || part(&peers, 90000) == 0);
        if (is_over)
            ck_assert(peers_is_settled(&peers));
        if (is_over && i < 50)
            ck_assert_int_ge(part(&peers, 90000), 90000 / (100 + i));
        if (i >= 51 && i * step_us < 51 * step_us + HOLD_US)
            ck_assert_int_eq(part(&peers, 90000), 90000 / 900);
        if (i * step_us > 51 * step_us + HOLD_US + HOLD_US / (PEERS_VIEWS - 2))
            ck_assert_int_ge(part(&peers, 90000), 90000 / (100 + i));
    }
}

TEST(among_too_many_answers_the_first_share_settles_after_the_hold_down, 30)
{
    CLOSED_BY(peers_end) struct peers peers;
    list_alike(60);
    peers_begin(&peers, &rules);
    for (size_t i = 0; i < 20; i++) {
        hear(&peers, 60 - i, 0, (int64_t)i);
        ck_assert_int_eq(part(&peers, LIMIT_MOST), 0);
        ck_assert(!peers_is_settled(&peers));
    }
    peers_turn(&peers, HOLD_US + 19);
    ck_assert(peers_is_settled(&peers));
    ck_assert_int_eq(part(&peers, 41), 1);
}

/* ---- What gets too old ---- */

TEST(after_max_stale_the_smallest_share_so_far_applies_until_a_new_answer_settles, 30)
{
    CLOSED_BY(peers_end) struct peers peers;
    list_alike(10);
    begin_settled(&peers, &rules, 10, 0);
    hear(&peers, 2, 0, 2000);
    peers_turn(&peers, 2000 + HOLD_US);
    ck_assert_int_eq(part(&peers, LIMIT_MOST), 25);
    ck_assert_int_eq(peers_due_us(&peers), 2000 + STALE_US);
    ck_assert(!peers_turn(&peers, 2000 + STALE_US - 1));
    ck_assert(peers_turn(&peers, 2000 + STALE_US));
    ck_assert_int_eq(part(&peers, LIMIT_MOST), 5);
    ck_assert_int_eq(peers_due_us(&peers), INT64_MAX);

    const int64_t again_us = 5 * STALE_US;
    peers_confirm(&peers, again_us); /* as it was before */
    ck_assert_int_eq(part(&peers, LIMIT_MOST), 5);
    ck_assert_int_eq(peers_due_us(&peers), again_us + HOLD_US);
    peers_turn(&peers, again_us + HOLD_US);
    ck_assert_int_eq(part(&peers, LIMIT_MOST), 25);
}

TEST(after_max_stale_a_share_that_was_never_smaller_stays_unchanged, 30)
{
    CLOSED_BY(peers_end) struct peers peers;
    list_alike(3);
    begin_settled(&peers, &rules, 3, 0);
    ck_assert(peers_turn(&peers, STALE_US));
    ck_assert_int_eq(part(&peers, LIMIT_MOST), 17); /* a floor of 1 in 3 would be 16 */
}

TEST(after_max_stale_a_configured_floor_applies_if_it_is_smaller, 30)
{
    struct peers_rules with = rules;
    struct peers peers;
    list_alike(10);
    with.floor_instances = 5;
    begin_settled(&peers, &with, 2, 0);
    peers_turn(&peers, STALE_US);
    ck_assert_int_eq(part(&peers, LIMIT_MOST), 10);
    peers_end(&peers);
    begin_settled(&peers, &with, 10, 0);
    peers_turn(&peers, STALE_US);
    ck_assert_int_eq(part(&peers, LIMIT_MOST), 5);
    peers_end(&peers);
}

TEST(a_share_never_grows_because_answers_are_missing, 60)
{
    struct chance chance = chance_make(4);
    list_alike(40);
    for (int draw = 0; draw < 2000; draw++) {
        struct peers_rules with = rules;
        CLOSED_BY(peers_end) struct peers peers;
        with.floor_instances = chance_one_in(&chance, 2) ? 0 : chance_between(&chance, 2, 60);
        peers_begin(&peers, &with);
        int64_t now_us = 0;
        const int answers = (int)chance_between(&chance, 1, 12);
        for (int i = 0; i < answers; i++, now_us += chance_between(&chance, 1, 2 * HOLD_US)) {
            const size_t n = (size_t)chance_between(&chance, 1, 40);
            for (size_t k = 0; k < n; k++)
                list[k].weight = draw % 2 ? 1 : chance_between(&chance, 1, 9);
            hear(&peers, n, (size_t)chance_between(&chance, 0, (int64_t)n - 1), now_us);
        }
        peers_turn(&peers, now_us + HOLD_US);
        int64_t before[LIMIT_MOST + 1];
        for (int64_t whole = 1; whole <= LIMIT_MOST; whole++)
            before[whole] = part(&peers, whole);
        const double rate = ratio(&peers);
        peers_turn(&peers, now_us + STALE_US);
        must(peers.is_stale, "it is too old now");
        must(ratio(&peers) <= rate, "no rate grows");
        for (int64_t whole = 1; whole <= LIMIT_MOST; whole++)
            must(part(&peers, whole) <= before[whole], "no part grows");
    }
}

/* ---- All instances together ----
 *
 * Instances join, leave and change their weights. Each present instance hears of each change, in order, in less than
 * `delay_most`. One that joins knows nothing at first; one that leaves admits nothing more. */

enum { MEMBERS = 9, CHANGES = 25, WAITING_MOST = CHANGES };

struct telling {
    int64_t at_us;
    struct weir_peer peers[MEMBERS];
    size_t n;
};

struct member {
    bool is_there;
    int64_t weight;
    struct peers peers;
    struct telling waiting[WAITING_MOST]; /* the oldest first */
    size_t count;
};

struct world {
    struct chance chance;
    struct peers_rules rules;
    int64_t delay_most_us;
    struct member members[MEMBERS];
    int64_t now_us;
    bool is_breached; /* the parts of a limit summed to more than the limit */
};

static size_t world_list(const struct world *world, struct weir_peer *peers)
{
    size_t n = 0;
    for (size_t i = 0; i < MEMBERS; i++)
        if (world->members[i].is_there)
            peers[n++] = (struct weir_peer){ ids[i], world->members[i].weight };
    return n;
}

static void world_change(struct world *world)
{
    struct member *member = &world->members[chance_between(&world->chance, 0, MEMBERS - 1)];
    if (!member->is_there) {
        peers_begin(&member->peers, &world->rules);
        member->is_there = true;
        member->weight = chance_one_in(&world->chance, 2) ? 1 : chance_between(&world->chance, 1, 5);
        member->count = 0;
    } else if (chance_one_in(&world->chance, 2)) {
        peers_end(&member->peers);
        member->is_there = false;
    } else {
        member->weight = chance_between(&world->chance, 1, 5);
    }
    for (size_t i = 0; i < MEMBERS; i++) {
        struct member *told = &world->members[i];
        if (!told->is_there)
            continue;
        struct telling *telling = &told->waiting[told->count++];
        telling->at_us = world->now_us + chance_between(&world->chance, 0, world->delay_most_us - 1);
        if (told->count > 1) /* in order, so this one is within its time as well */
            telling->at_us = max_of(telling->at_us, told->waiting[told->count - 2].at_us);
        telling->n = world_list(world, telling->peers);
    }
}

static void world_check(struct world *world, bool is_quiet)
{
    struct force forces[MEMBERS];
    const struct share *shares[MEMBERS];
    size_t there = 0;
    double rates = 0;
    for (size_t i = 0; i < MEMBERS; i++) {
        if (!world->members[i].is_there)
            continue;
        rates += ratio(&world->members[i].peers);
        shares[there] = in_force(&world->members[i].peers, &forces[there]);
        there++;
    }
    world->is_breached = world->is_breached || rates > 1 + 1e-9;
    must(!is_quiet || there == 0 || (rates > 1 - 1e-9 && rates < 1 + 1e-9), "once it is quiet the rates add up");
    for (int64_t whole = 1; whole <= LIMIT_MOST; whole++) {
        int64_t sum = 0;
        for (size_t i = 0; i < there; i++)
            sum += share_permits(shares[i], whole);
        world->is_breached = world->is_breached || sum > whole;
        must(!is_quiet || there == 0 || sum == whole, "once it is quiet the parts add up to the limit");
    }
}

/* Make the next event until `until_us` happen. False if there is none. */
static bool world_step(struct world *world, int64_t until_us)
{
    struct member *next = NULL;
    int64_t next_us = until_us;
    for (size_t i = 0; i < MEMBERS; i++) {
        struct member *member = &world->members[i];
        if (!member->is_there)
            continue;
        const int64_t told_us = member->count > 0 ? member->waiting[0].at_us : INT64_MAX;
        const int64_t due_us = min_of(told_us, peers_due_us(&member->peers));
        if (due_us <= next_us) {
            next_us = due_us;
            next = member;
        }
    }
    world->now_us = next_us;
    if (!next)
        return false;
    if (next->count > 0 && next->waiting[0].at_us <= next_us) {
        struct share share;
        const struct telling *telling = &next->waiting[0];
        const char *self = ids[next - world->members];
        must_succeed(peers_read(telling->peers, telling->n, self, &share, nowhere));
        peers_hear(&next->peers, &share, next_us);
        memmove(next->waiting, next->waiting + 1, --next->count * sizeof *next->waiting);
    }
    peers_turn(&next->peers, next_us);
    return true;
}

/* True if the parts ever sum to more than a limit when instances wait `hold_down_us`. */
static bool sequence_breaches(uint64_t stream, int64_t hold_down_us, int64_t delay_most_us)
{
    static struct world world;
    world = (struct world){ .chance = chance_make(stream), .delay_most_us = delay_most_us };
    world.rules = (struct peers_rules){ .hold_down_us = hold_down_us, .max_stale_us = 100 * WEIR_MINUTE };
    list_alike(MEMBERS);
    const int64_t hurry = chance_magnitude(&world.chance, 100); /* frequent or rare changes */
    for (int i = 0; i < CHANGES; i++) {
        const int64_t until_us = world.now_us + chance_between(&world.chance, 0, 3 * HOLD_US / hurry);
        while (world_step(&world, until_us))
            world_check(&world, false);
        world_change(&world);
        world_check(&world, false);
    }
    while (world_step(&world, world.now_us + delay_most_us + hold_down_us))
        world_check(&world, false);
    world_check(&world, true);
    for (size_t i = 0; i < MEMBERS; i++)
        if (world.members[i].is_there)
            peers_end(&world.members[i].peers);
    return world.is_breached;
}

static int breaches(int64_t hold_down_us, int64_t delay_most_us)
{
    int count = 0;
    for (uint64_t stream = 0; stream < SEQUENCES; stream++)
        count += sequence_breaches(100 + stream, hold_down_us, delay_most_us);
    return count;
}

TEST(shares_never_exceed_the_limit_while_peers_change_and_finally_add_up_to_it, 60)
{
    ck_assert_int_eq(breaches(HOLD_US, HOLD_US), 0);
}

TEST(without_a_sufficient_hold_down_shares_exceed_the_limit_while_peers_change, 60)
{
    ck_assert_int_gt(breaches(0, HOLD_US), SEQUENCES / 2);
    ck_assert_int_gt(breaches(HOLD_US / 2, HOLD_US), 0);
}

/* ---- Plans ---- */

TEST(a_share_without_exact_arithmetic_is_replaced_by_a_smaller_one, 30)
{
    const struct weir_policy policy = { .limit = 999999937, .period_us = 999983, .burst = 1000000000 };
    const int64_t weights[] = { 65521, 65535 };
    const struct share share = { .weight = 65521, .total = 131056, .count = 2, .weights = weights };
    const struct share third = { .weight = 1, .total = 3, .count = 2, .floors_only = true };
    struct weir_plan plan, expected;
    ck_assert_int_eq(plan_make(&policy, &share_whole, &plan, nowhere), WEIR_OK);
    ck_assert_int_eq(plan_make(&policy, &share, &plan, nowhere), WEIR_EINVAL);
    ck_assert_int_eq(plan_at_share(&policy, &share, &plan), PLAN_PART);
    must_succeed(plan_make(&policy, &third, &expected, nowhere));
    ck_assert_int_eq(plan.fingerprint, expected.fingerprint);
}

TEST(a_plan_for_several_shares_is_no_larger_than_the_plan_of_each, 60)
{
    struct chance chance = chance_make(5);
    list_alike(40);
    for (int draw = 0; draw < 3000; draw++) {
        const struct weir_policy policy = policy_by_chance(&chance, (enum kind)(draw % KIND_COUNT));
        char why[8];
        struct share shares[3];
        const int count = (int)chance_between(&chance, 1, 3);
        if (weir_policy_check(&policy, why, sizeof why) != WEIR_OK)
            continue;
        for (int i = 0; i < count; i++) {
            const size_t n = (size_t)chance_between(&chance, 1, 40);
            for (size_t k = 0; k < n; k++)
                list[k].weight = chance_one_in(&chance, 2) ? 1 : chance_magnitude(&chance, SHARE_MAX_WEIGHT);
            shares[i] = share_of(n, (size_t)chance_between(&chance, 0, (int64_t)n - 1));
        }
        for (int i = 0; i < count; i++)
            shares[i].next = i + 1 < count ? &shares[i + 1] : NULL;
        struct weir_plan plan, each;
        plan_at_share(&policy, &shares[0], &plan);
        for (int i = 0; i < count; i++) {
            struct share alone = shares[i];
            alone.next = NULL;
            if (plan_at_share(&policy, &alone, &each) == PLAN_PART_UNFIT || plan.size == 0)
                continue;
            must(plan.size <= max_of(each.size, 1), "no larger");
            if (plan.p > 0 && each.p > 0)
                must((long double)plan.p / plan.q / plan.tick_us <=
                         (long double)alone.weight / alone.total * policy.limit / policy.period_us * (1 + 1e-15L),
                     "no faster");
            else if (plan.limit > 0 && each.limit > 0)
                must((long double)plan.limit / plan.period_us <=
                         (long double)each.limit / each.period_us * (1 + 1e-15L),
                     "no faster refills");
        }
        for (int i = 0; i < count; i++)
            free((void *)(uintptr_t)shares[i].weights);
    }
}

TEST(a_plan_of_zero_permits_denies_for_ever_with_every_algorithm, 30)
{
    static const struct share nothing = { .weight = 0, .total = 1, .count = 1 };
    for (int kind = 0; kind < KIND_COUNT; kind++) {
        struct chance chance = chance_make(6);
        for (int draw = 0; draw < 50; draw++) {
            const struct weir_policy policy = policy_by_chance(&chance, (enum kind)kind);
            struct weir_plan plan;
            must_succeed(plan_make(&policy, &nothing, &plan, nowhere));
            must(plan.size == 0 && plan.fingerprint > 0, "its size is 0");
            must(plan_at_share(&policy, &nothing, &plan) == PLAN_PART_ZERO, "and its part");
            must(plan.p > 0 ? plan.q > 0 && plan.tick_us > 0 : plan.period_us > 0, "nothing is divided by 0");
        }
    }
}
