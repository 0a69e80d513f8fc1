/* test_effects.c - the table "When changes take effect" of docs/operations.md, for two instances in each mode.
 *
 * The instances share a store in this process (tests/support/remote.h) and a clock that the test sets. Cells of the
 * table that are not here have these tests:
 *
 *     a policy from a file             test_policy_watch: a_file_that_is_replaced_by_rename_is_read_again,
 *                                      policies_removed_from_the_file_fall_back_to_those_of_the_code
 *     a policy from Consul             test_consul_policies: a_policy_in_consul_is_in_force_while_it_is_there
 *     the last source of a limit goes  test_layers:
 *                                      a_limit_that_no_source_defines_keeps_its_last_policy_and_is_logged
 *     instances with two policies      test_policy_changes: each_instance_decides_by_its_current_policy
 *     a renewal                        contract: a_renewed_request_in_flight_keeps_its_permit; test_reserve:
 *                                      a_renewal_that_does_not_reach_redis_is_an_error_and_keeps_the_reservation
 *     a share in local mode            test_follow:
 *                                      a_share_shrinks_immediately_grows_after_the_hold_down_and_keeps_used_permits
 *     a share during an outage         test_failure: with_a_common_backend_a_new_share_changes_only_the_fallback
 *     a change that leaves all plans   test_settle: a_redefinition_that_changes_no_key_does_not_split_an_outage
 */
#include "remote.h"
#include "set_share.h"

#include "backends/hybrid/hybrid.h"
#include "backends/memory/memory.h"
#include "core/api/life.h"
#include "core/limiter/options.h"

enum { LIFE_US = 100000, A_WHILE = 1000 };

/* ---- Two instances ---- */

static int64_t now_us;

static int64_t common_clock(void *user)
{
    return now_us;
}

struct instance {
    struct cable cable;
    weir *limiter;
    weir_limit *limit; /* "limit" */
};

struct pair {
    enum weir_mode mode;
    struct remote remote;
    struct instance a, b;
};

static void open_hybrid(const struct weir_options *options, struct instance *instance)
{
    struct weir_options read;
    struct weir_backend *hybrid, *fallback;
    must_succeed(options_read(options, &read));
    const struct hybrid_settings settings = {
        .leases = options_leases(&read),
        .max_keys = 1000,
        .max_bytes = INT64_C(64) << 20,
        .timeout_us = read.timeout_us,
    };
    must_succeed(memory_open(&read, &fallback));
    must_succeed(hybrid_open(&settings, &instance->cable.base, &hybrid));
    must_succeed(limiter_make(&read, hybrid, fallback, NULL, &instance->limiter));
}

static void instance_open(struct pair *pair, struct instance *instance, const char *policy)
{
    const struct weir_policy parsed = policy_of(policy);
    struct weir_options options = WEIR_OPTIONS_INIT;
    options.now_us = common_clock;
    options.quiet = true;
    if (pair->mode != WEIR_LOCAL) {
        cable_init(&instance->cable, &pair->remote);
        options.timeout_us = 10 * WEIR_SECOND;
    }
    if (pair->mode == WEIR_HYBRID) {
        options.mode = WEIR_HYBRID;
        options.redis_url = "unix:///not-used";
        options.by_local_clock = true;
        options.instances = 2;
        options.lease_life_us = LIFE_US;
        options.lease_excess = 100;
        open_hybrid(&options, instance);
    } else if (pair->mode == WEIR_DISTRIBUTED) {
        must_succeed(weir_open_backend(&options, &instance->cable.base, &instance->limiter));
    } else {
        must_succeed(weir_open(&options, &instance->limiter));
    }
    must_succeed(weir_limit_define(instance->limiter, "limit", &parsed, &instance->limit));
}

static void pair_open(struct pair *pair, enum weir_mode mode, const char *policy)
{
    now_us = INT64_C(1) << 40; /* a multiple of what an outage's beginning is rounded up to */
    memset(pair, 0, sizeof *pair);
    pair->mode = mode;
    remote_init(&pair->remote);
    instance_open(pair, &pair->a, policy);
    instance_open(pair, &pair->b, policy);
}

static void pair_close(struct pair *pair)
{
    weir_close(pair->a.limiter);
    weir_close(pair->b.limiter);
    remote_free(&pair->remote);
}

/* Open two instances that are closed where the block ends. They are static: cables are large. */
#define PAIR(name, ...)                   \
    static struct pair name##_pair;       \
    pair_open(&name##_pair, __VA_ARGS__); \
    CLOSED_BY(pair_end) struct pair *name = &name##_pair

static void pair_end(struct pair **pair)
{
    pair_close(*pair);
}

static struct weir_decision take(const struct instance *instance, int64_t cost)
{
    return taken(instance->limit, "key", cost);
}

static struct weir_decision peek(const struct instance *instance)
{
    return peeked(instance->limit, "key", 1);
}

static int reset(const struct instance *instance)
{
    return weir_reset(instance->limit, weir_key_text("key"));
}

static int refund(const struct instance *instance, int64_t cost)
{
    return weir_refund(instance->limit, weir_key_text("key"), cost);
}

/* `policy` NULL ends an override. */
static void define(const struct instance *instance, const char *name, const char *policy)
{
    const struct weir_policy parsed = policy_of(policy ? policy : "fixed_window limit=1 period=1s");
    must_succeed(weir_limit_define(instance->limiter, name, policy ? &parsed : NULL, NULL));
}

static bool has_lease(const struct instance *instance)
{
    return peek(instance).source == WEIR_BY_LEASE;
}

/* Make the key busy until the instance has a lease for it. */
static void lease(const struct instance *instance)
{
    for (int i = 0; i < A_WHILE && !has_lease(instance); i++, now_us += 1000)
        must(take(instance, 1).allowed, "the limit is wide");
    must(has_lease(instance), "a busy key is leased");
}

/* Return how many permits the instance spends of its lease without asking the store. */
static int64_t spend(const struct instance *instance)
{
    const int calls = atomic_load(&instance->cable.calls);
    int64_t spent = 0;
    for (; has_lease(instance); spent++)
        must(take(instance, 1).source == WEIR_BY_LEASE, "a lease decides");
    must(atomic_load(&instance->cable.calls) <= calls + 1, "only the last peek asks the store");
    return spent;
}

#define TEN "fixed_window limit=10 period=1h"
#define WIDE "fixed_window limit=100000 period=1h"

/* ---- A reset, and a refund ---- */

TEST(in_local_mode_a_reset_or_refund_affects_this_instance_only, 10)
{
    PAIR(pair, WEIR_LOCAL, TEN);
    ck_assert(take(&pair->a, 10).allowed && take(&pair->b, 10).allowed);
    must_succeed(refund(&pair->a, 3));
    ck_assert_int_eq(peek(&pair->a).remaining, 3);
    must_succeed(reset(&pair->a));
    ck_assert_int_eq(peek(&pair->a).remaining, 10);
    ck_assert_int_eq(peek(&pair->b).remaining, 0);
}

TEST(in_distributed_mode_a_reset_or_refund_affects_all_instances_immediately, 10)
{
    PAIR(pair, WEIR_DISTRIBUTED, TEN);
    ck_assert(take(&pair->a, 10).allowed);
    ck_assert(!take(&pair->b, 1).allowed);
    must_succeed(refund(&pair->a, 3));
    ck_assert_int_eq(peek(&pair->a).remaining, 3);
    ck_assert_int_eq(peek(&pair->b).remaining, 3);
    must_succeed(reset(&pair->a));
    ck_assert_int_eq(peek(&pair->a).remaining, 10);
    ck_assert_int_eq(peek(&pair->b).remaining, 10);
}

TEST(a_reset_drops_this_instances_lease_while_those_of_peers_last_their_lives, 10)
{
    for (int spends = 0; spends < 2; spends++) {
        PAIR(pair, WEIR_HYBRID, WIDE);
        lease(&pair->a);
        lease(&pair->b);
        const int64_t asked_us = now_us - peek(&pair->b).age_us;
        must_succeed(reset(&pair->a));
        ck_assert(!has_lease(&pair->a));
        ck_assert_int_eq(peek(&pair->a).remaining, 100000);
        if (spends) {
            ck_assert_int_gt(spend(&pair->b), 0);
            ck_assert_int_eq(peek(&pair->a).remaining, 100000); /* they had been charged before */
        } else {
            now_us = asked_us + LIFE_US - 1;
            ck_assert(has_lease(&pair->b));
            now_us++;
            ck_assert(!has_lease(&pair->b));
        }
    }
}

TEST(a_refund_leaves_all_leases, 10)
{
    PAIR(pair, WEIR_HYBRID, WIDE);
    lease(&pair->a);
    lease(&pair->b);
    const int64_t left = peeked(pair->b.limit, "key", 50000).remaining; /* more than its lease: it asks the store */
    must_succeed(refund(&pair->a, 2));
    ck_assert(has_lease(&pair->a) && has_lease(&pair->b));
    ck_assert_int_eq(peeked(pair->b.limit, "key", 50000).remaining, left + 2);
}

TEST(a_reset_or_refund_ends_a_denial_here_and_at_peers_within_two_seconds, 10)
{
    for (int refunds = 0; refunds < 2; refunds++) {
        PAIR(pair, WEIR_HYBRID, TEN);
        ck_assert(take(&pair->a, 10).allowed);
        ck_assert(!take(&pair->a, 1).allowed && !take(&pair->b, 1).allowed);
        ck_assert_int_eq(peek(&pair->a).source, WEIR_BY_DENIAL);
        now_us += WEIR_SECOND;
        must_succeed(refunds ? refund(&pair->a, 5) : reset(&pair->a));
        ck_assert(take(&pair->a, 1).allowed);
        const struct weir_decision denied = take(&pair->b, 1);
        ck_assert(!denied.allowed && denied.source == WEIR_BY_DENIAL && denied.retry_after_us > WEIR_SECOND);
        now_us += WEIR_SECOND - 1;
        ck_assert_int_eq(take(&pair->b, 1).source, WEIR_BY_DENIAL);
        now_us++;
        ck_assert(take(&pair->b, 1).allowed);
    }
}

TEST(a_reset_or_refund_in_an_outage_is_an_error_and_changes_nothing, 10)
{
    for (int mode = WEIR_DISTRIBUTED; mode <= WEIR_HYBRID; mode++) {
        PAIR(pair, (enum weir_mode)mode, "token_bucket limit=10 period=10s");
        ck_assert(take(&pair->b, 10).allowed);
        cable_set(&pair->a.cable, CABLE_CUT);
        ck_assert(!take(&pair->a, 1).allowed); /* an outage begins cold */
        now_us += 4 * WEIR_SECOND;
        ck_assert_int_eq(take(&pair->a, 1).source, WEIR_BY_FALLBACK);
        const int64_t left = peek(&pair->a).remaining;
        ck_assert_int_eq(reset(&pair->a), WEIR_EIO);
        ck_assert_int_eq(refund(&pair->a, 1), WEIR_EIO);
        ck_assert_int_eq(peek(&pair->a).remaining, left);
        ck_assert_int_eq(peek(&pair->b).remaining, 4);
        cable_set(&pair->a.cable, CABLE_WELL); /* and what the fallback admitted is charged */
        ck_assert_int_eq(peek(&pair->b).remaining, 3);
    }
}

TEST(a_reset_that_fails_still_drops_this_instances_lease, 10)
{
    PAIR(pair, WEIR_HYBRID, WIDE);
    lease(&pair->a);
    cable_set(&pair->a.cable, CABLE_CUT);
    ck_assert(has_lease(&pair->a)); /* an outage leaves it */
    ck_assert_int_eq(reset(&pair->a), WEIR_EIO);
    ck_assert_int_eq(take(&pair->a, 1).source, WEIR_BY_FALLBACK);
}

TEST(a_reset_by_a_peer_leaves_the_permits_that_this_instance_owes, 10)
{
    PAIR(pair, WEIR_DISTRIBUTED, "token_bucket limit=10 period=10s");
    cable_set(&pair->a.cable, CABLE_CUT);
    ck_assert(!take(&pair->a, 1).allowed);
    now_us += 4 * WEIR_SECOND;
    ck_assert(take(&pair->a, 3).allowed);
    must_succeed(reset(&pair->b));
    ck_assert_int_eq(peek(&pair->b).remaining, 10);
    cable_set(&pair->a.cable, CABLE_WELL);
    ck_assert_int_eq(peek(&pair->b).remaining, 7);
}

/* ---- Another policy: of the limit, and an override's beginning and end ---- */

static const struct change {
    const char *name, *policy;
    int64_t limit; /* afterwards */
} changes[] = {
    { "limit", "fixed_window limit=200000 period=1h", 200000 },
    { "limit/key", "fixed_window limit=150000 period=1h", 150000 },
    { "limit/k*", "fixed_window limit=120000 period=1h", 150000 }, /* the key's own goes before */
    { "limit/key", NULL, 120000 },
    { "limit/k*", NULL, 200000 },
};
enum { CHANGES = sizeof changes / sizeof changes[0] };

TEST(a_new_policy_applies_to_the_next_decision_and_used_permits_stay_used, 10)
{
    for (int mode = WEIR_LOCAL; mode <= WEIR_HYBRID; mode++) {
        PAIR(pair, (enum weir_mode)mode, WIDE);
        ck_assert(take(&pair->a, 1000).allowed);
        for (int i = 0; i < CHANGES; i++) {
            define(&pair->a, changes[i].name, changes[i].policy);
            const struct weir_decision decision = take(&pair->a, 1);
            ck_assert_int_eq(decision.limit, changes[i].limit);
            const int64_t left = changes[i].limit - 1001 - i;
            if (mode == WEIR_HYBRID) /* a lease that is dropped stays charged */
                ck_assert_int_le(decision.remaining, left);
            else
                ck_assert_int_eq(decision.remaining, left);
        }
    }
}

TEST(a_new_policy_drops_this_instances_lease_and_leaves_those_of_peers, 10)
{
    for (int i = 0; i < CHANGES; i++) {
        PAIR(pair, WEIR_HYBRID, WIDE);
        int64_t before = 100000;
        for (int k = 0; k < i; k++) {
            define(&pair->a, changes[k].name, changes[k].policy);
            define(&pair->b, changes[k].name, changes[k].policy);
            before = changes[k].limit;
        }
        lease(&pair->a);
        lease(&pair->b);
        define(&pair->a, changes[i].name, changes[i].policy);
        const struct weir_decision here = take(&pair->a, 1);
        ck_assert_int_eq(here.limit, changes[i].limit);
        ck_assert_int_eq(here.source == WEIR_BY_LEASE, changes[i].limit == before); /* the same plan keeps it */
        const struct weir_decision elsewhere = take(&pair->b, 1);
        ck_assert_int_eq(elsewhere.limit, before);
        ck_assert_int_eq(elsewhere.source, WEIR_BY_LEASE);
        define(&pair->b, changes[i].name, changes[i].policy);
        ck_assert_int_eq(take(&pair->b, 1).limit, changes[i].limit);
    }
}

TEST(a_cached_denial_ends_when_its_policy_changes, 10)
{
    PAIR(pair, WEIR_HYBRID, TEN);
    ck_assert(take(&pair->a, 10).allowed);
    ck_assert(!take(&pair->a, 1).allowed && !take(&pair->b, 1).allowed);
    define(&pair->a, "limit/key", "fixed_window limit=20 period=1h");
    ck_assert(take(&pair->a, 1).allowed);
    ck_assert_int_eq(take(&pair->b, 1).source, WEIR_BY_DENIAL);
    define(&pair->b, "limit/key", "fixed_window limit=20 period=1h");
    ck_assert(take(&pair->b, 1).allowed);
}

TEST(a_policy_change_in_an_outage_makes_every_key_of_the_instance_cold_again, 10)
{
    for (int ends = 0; ends < 2; ends++) {
        PAIR(pair, WEIR_DISTRIBUTED, "token_bucket limit=10 period=10s");
        weir_limit *other;
        const struct weir_policy policy = policy_of("token_bucket limit=10 period=10s");
        must_succeed(weir_limit_define(pair->a.limiter, "other", &policy, &other));
        if (ends)
            define(&pair->a, "limit/key", "token_bucket limit=20 period=20s");
        cable_set(&pair->a.cable, CABLE_CUT);
        cable_set(&pair->b.cable, CABLE_CUT);
        ck_assert(!take(&pair->a, 1).allowed && !take(&pair->b, 1).allowed);
        now_us += 5 * WEIR_SECOND;
        ck_assert_int_eq(peek(&pair->a).remaining, 5);
        define(&pair->a, "limit/key", ends ? NULL : "token_bucket limit=20 period=20s");
        ck_assert_int_eq(take(&pair->a, 1).limit, ends ? 10 : 20);
        ck_assert_int_eq(peek(&pair->a).remaining, 0);
        ck_assert_int_eq(peeked(other, "key", 1).remaining, 0); /* whose limit has not changed */
        ck_assert_int_eq(peek(&pair->b).remaining, 5);
        ck_assert_int_eq(peek(&pair->b).limit, 10);
    }
}

/* ---- Another share ---- */

static const struct share quarter = { .weight = 1, .total = 4, .rank = 0, .count = 4 };

/* Return the most permits leased together while the key gets 50,000 requests a second. */
static int64_t lease_most(struct pair *pair)
{
    pair->remote.most_charged = 0;
    for (int i = 0; i < 3000; i++, now_us += 20)
        must(take(&pair->a, 1).allowed, "the limit is wide");
    return pair->remote.most_charged;
}

/* A lease call takes what is left divided by twice the number of instances, at most. */
TEST(a_share_change_leaves_decisions_of_redis_alone_and_sizes_the_next_lease, 10)
{
    struct weir_limit_info info = { .size = sizeof info };
    PAIR(pair, WEIR_HYBRID, "fixed_window limit=20000 period=1h");
    const int64_t most = lease_most(pair);
    must_succeed(weir_limit_info(pair->a.limit, &info));
    const int64_t lease_max = info.lease_max;
    must_succeed(limiter_set_share(pair->a.limiter, &(struct share){ .weight = 1, .total = 10, .count = 10 }));
    must_succeed(weir_limit_info(pair->a.limit, &info));
    ck_assert_int_eq(info.lease_max, lease_max / 5);
    ck_assert_int_eq(peek(&pair->a).limit, 20000);
    ck_assert_int_gt(spend(&pair->a), 0); /* what it had */
    const int64_t left = peek(&pair->b).remaining, now_most = lease_most(pair);
    ck_assert_int_gt(now_most, 0);
    ck_assert_int_le(now_most, left / 20);
    ck_assert_int_gt(most, left / 20);
}

TEST(a_share_change_in_an_outage_makes_every_key_cold_again, 10)
{
    PAIR(pair, WEIR_DISTRIBUTED, "token_bucket limit=20 period=20s");
    cable_set(&pair->a.cable, CABLE_CUT);
    ck_assert(!take(&pair->a, 1).allowed);
    now_us += 8 * WEIR_SECOND;
    ck_assert_int_eq(peek(&pair->a).remaining, 8);
    must_succeed(limiter_set_share(pair->a.limiter, &quarter));
    ck_assert(!take(&pair->a, 1).allowed);
    now_us += 8 * WEIR_SECOND;
    ck_assert_int_eq(peek(&pair->a).limit, 5);
    ck_assert_int_eq(peek(&pair->a).remaining, 2);
}

/* ---- A limiter that closes ---- */

static void reopen_a(struct pair *pair, const char *policy)
{
    weir_close(pair->a.limiter);
    instance_open(pair, &pair->a, policy);
}

TEST(closing_forgets_all_keys_in_local_mode_and_none_in_redis, 10)
{
    for (int mode = WEIR_LOCAL; mode <= WEIR_HYBRID; mode++) {
        PAIR(pair, (enum weir_mode)mode, TEN);
        ck_assert(take(&pair->a, 4).allowed);
        reopen_a(pair, TEN);
        ck_assert_int_eq(peek(&pair->a).remaining, mode == WEIR_LOCAL ? 10 : 6);
        ck_assert_int_eq(peek(&pair->b).remaining, mode == WEIR_LOCAL ? 10 : 6);
    }
}

TEST(a_lease_of_a_limiter_that_closes_stays_charged, 10)
{
    PAIR(pair, WEIR_HYBRID, WIDE);
    lease(&pair->a);
    const int64_t left = peek(&pair->b).remaining;
    reopen_a(pair, WIDE);
    ck_assert_int_eq(peek(&pair->b).remaining, left);
    ck_assert_int_eq(peek(&pair->a).remaining, left);
    now_us += WEIR_HOUR; /* with the window they are back */
    ck_assert_int_eq(peek(&pair->b).remaining, 100000);
}

TEST(permits_owed_by_a_limiter_that_closes_in_an_outage_are_never_charged, 10)
{
    PAIR(pair, WEIR_DISTRIBUTED, "token_bucket limit=10 period=10s");
    cable_set(&pair->a.cable, CABLE_CUT);
    ck_assert(!take(&pair->a, 1).allowed);
    now_us += 4 * WEIR_SECOND;
    ck_assert(take(&pair->a, 3).allowed);
    reopen_a(pair, "token_bucket limit=10 period=10s");
    ck_assert_int_eq(peek(&pair->a).remaining, 10);
}
