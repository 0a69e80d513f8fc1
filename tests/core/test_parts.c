/* test_parts.c - a backend of two parts that fail independently, like the primaries of a cluster: what one part answers
 * while the other is down, and what weir owes each of them.
 *
 * Keys that begin with 'a' are in one part, all others in the other.
 */
#include "core/ground/clock.h"
#include "core/limiter/limiter.h"
#include "core/limiter/own_ops.h"
#include "remote.h"

#include <stdio.h>

struct parts {
    struct weir_backend base;
    struct remote remote; /* its store has both parts */
    bool away[2];
    bool charges_nobody[2]; /* it fails instead of admitting, and denies as usual */
    int64_t seen_us[2];     /* when the part was last well */
    size_t sizes[4];        /* of the last calls of decide(), the latest first */
    void (*returned)(void *user);
    void *user;
};

static struct parts *the_parts;
static struct scene scene;
static weir_limit *limit;

/* The library's monotonic clock is the scene's, too. */
int64_t __wrap_clock_monotonic_us(void);
int64_t __wrap_clock_monotonic_us(void)
{
    return scene.now_us;
}

static int part_of(const struct weir_key *key)
{
    return *(const char *)key->data != 'a';
}

/* Decide a single request. */
static int part_decide(struct parts *parts, const struct weir_backend_request *request, struct weir_decision *out)
{
    struct weir_backend *store = parts->remote.store;
    struct weir_backend_request peek = *request;
    struct weir_decision decision;
    const int part = part_of(&request->key);
    if (parts->away[part] && request->key.len > 1 &&
        ((const char *)request->key.data)[1] == '!') { /* like a denial from the deny cache */
        *out = (struct weir_decision){ .source = WEIR_BY_DENIAL, .retry_after_us = WEIR_SECOND };
        return WEIR_OK;
    }
    bool would_charge = request->ahead > 0;
    peek.verb = WEIR_PEEK;
    if (request->verb == WEIR_TAKE && !would_charge) {
        must_succeed(store->ops->decide(store, &peek, 1, false, INT64_MAX, &decision));
        would_charge = decision.allowed;
    }
    if (parts->away[part] || (parts->charges_nobody[part] && would_charge))
        return WEIR_EIO;
    must_succeed(store->ops->decide(store, request, 1, false, INT64_MAX, out));
    out->source = WEIR_BY_BACKEND;
    return WEIR_OK;
}

static int parts_decide(struct weir_backend *backend, const struct weir_backend_request *requests, size_t n, bool all,
                        int64_t deadline_us, struct weir_decision *out)
{
    struct parts *parts = (struct parts *)backend;
    struct weir_backend *store = parts->remote.store;
    int error = WEIR_OK;
    memmove(parts->sizes + 1, parts->sizes, sizeof parts->sizes - sizeof parts->sizes[0]);
    parts->sizes[0] = n;
    for (size_t i = 0; i < n; i++) {
        must(n == 1 || all || out[i].source == WEIR_BY_NOBODY, "the core says that nobody has decided");
        const int status = !all                                     ? part_decide(parts, &requests[i], &out[i])
                           : parts->away[part_of(&requests[i].key)] ? WEIR_EIO
                                                                    : WEIR_OK;
        error = error ? error : status;
    }
    if (all && !error)
        error = store->ops->decide(store, requests, n, true, INT64_MAX, out);
    return error;
}

static int parts_submit(struct weir_backend *backend, const struct weir_backend_request *request, int64_t deadline_us,
                        struct weir_op *op)
{
    return parts_decide(backend, request, 1, false, deadline_us, &op->decision);
}

static void parts_shut(struct weir_backend *backend)
{
}

static void parts_destroy(struct weir_backend *backend)
{
    remote_free(&((struct parts *)backend)->remote);
}

static int64_t parts_reachable_us(struct weir_backend *backend, const struct weir_key *key)
{
    const struct parts *parts = (const struct parts *)backend;
    int64_t worst_us = clock_monotonic_us();
    for (int i = 0; i < 2; i++)
        if (parts->away[i] && (!key || part_of(key) == i) && parts->seen_us[i] < worst_us)
            worst_us = parts->seen_us[i];
    return worst_us;
}

static int64_t parts_well_us(struct weir_backend *backend, const struct weir_key *key)
{
    const struct parts *parts = (const struct parts *)backend;
    int64_t worst_us = parts_reachable_us(backend, key);
    for (int i = 0; i < 2; i++)
        if (parts->charges_nobody[i] && (!key || part_of(key) == i) && parts->seen_us[i] < worst_us)
            worst_us = parts->seen_us[i];
    return worst_us;
}

static void parts_watch(struct weir_backend *backend, void (*returned)(void *user), void *user)
{
    struct parts *parts = (struct parts *)backend;
    parts->returned = returned;
    parts->user = user;
}

static const struct own_ops parts_ops = {
    .base = {
        .size = OWN_OPS_SIZE,
        .name = "parts",
        .shared = true,
        .decide = parts_decide,
        .submit = parts_submit,
        .shut = parts_shut,
        .destroy = parts_destroy,
        .reachable_us = parts_reachable_us,
        .watch = parts_watch,
    },
    .well_us = parts_well_us,
};

static void begin(const struct weir_options *options)
{
    struct weir_options all = options ? *options : (struct weir_options)WEIR_OPTIONS_INIT;
    all.outage_cold = true;
    static struct parts parts;
    memset(&parts, 0, sizeof parts);
    the_parts = &parts;
    parts.base.ops = &parts_ops.base;
    remote_init(&parts.remote);
    scene_init(&scene, &all);
    scene.log_allowed = true;
    must_succeed(weir_open_backend(&all, &parts.base, &scene.limiter));
    scene.now_us -= scene.now_us % 64; /* an outage's beginning is rounded up to this */
    limit = scene_define_text(&scene, "limit", "token_bucket limit=10 period=10s");
}

static void goes(int part)
{
    the_parts->away[part] = true;
    the_parts->seen_us[part] = clock_monotonic_us();
}

static void comes_back(int part)
{
    the_parts->away[part] = false;
    the_parts->returned(the_parts->user);
}

static void pass(int64_t us)
{
    scene.now_us += us;
}

TEST(in_a_batch_the_fallback_decides_only_requests_for_unreachable_parts, 60)
{
    begin(NULL);
    goes(1);
    const struct weir_request requests[] = {
        { limit, weir_key_text("a1"), 4, 0 },
        { limit, weir_key_text("b1"), 1, 0 },
        { limit, weir_key_text("a2"), 2, 0 },
    };
    struct weir_decision out[3];
    must_succeed(weir_try_batch(scene.limiter, requests, 3, out));
    ck_assert_int_eq(out[0].source, WEIR_BY_BACKEND);
    ck_assert_int_eq(out[1].source, WEIR_BY_FALLBACK);
    ck_assert_int_eq(out[2].source, WEIR_BY_BACKEND);
    ck_assert(out[0].allowed && !out[1].allowed && out[2].allowed);
    ck_assert_int_eq(peeked(limit, "a1", 1).remaining, 6); /* charged once */
    ck_assert_uint_eq(stats_of(scene.limiter).fallbacks, 1);
    scene_close(&scene);
}

TEST(permits_owed_to_an_unreachable_part_do_not_block_requests_for_the_other, 60)
{
    begin(NULL);
    goes(0);
    ck_assert(!taken(limit, "a", 1).allowed);
    pass(2 * WEIR_SECOND);
    ck_assert(taken(limit, "a", 1).allowed);
    pass(1000);
    const struct weir_request requests[] = { { limit, weir_key_text("b"), 1, 0 }, { limit, weir_key_text("a"), 9, 0 } };
    struct weir_decision out[2];
    for (int i = 0; i < 5; i++) {
        must_succeed(weir_try_batch(scene.limiter, requests, 2, out));
        ck_assert_int_eq(out[0].source, WEIR_BY_BACKEND);
        ck_assert_int_eq(out[1].source, WEIR_BY_FALLBACK);
    }
    ck_assert_uint_eq(stats_of(scene.limiter).outages, 1);
    scene_close(&scene);
}

TEST(a_denial_without_asking_an_unreachable_part_does_not_end_its_outage, 60)
{
    begin(NULL);
    goes(0);
    ck_assert(!taken(limit, "a", 1).allowed);
    const struct weir_request requests[] = { { limit, weir_key_text("a!"), 1, 0 },
                                             { limit, weir_key_text("b"), 1, 0 } };
    struct weir_decision out[2];
    for (int i = 0; i < 5; i++) {
        pass(WEIR_SECOND);
        must_succeed(weir_try_batch(scene.limiter, requests, 2, out));
        ck_assert_int_eq(out[0].source, WEIR_BY_DENIAL);
        ck_assert_int_eq(out[1].source, WEIR_BY_BACKEND);
        ck_assert(!taken(limit, "a", 9).allowed);
    }
    ck_assert_uint_eq(stats_of(scene.limiter).outages, 1);
    ck_assert_int_eq(peeked(limit, "a", 1).remaining, 5);
    scene_close(&scene);
}

/* Like a server that is full or lacks its replicas. */
TEST(denials_by_a_reachable_part_that_cannot_charge_start_no_key_cold, 60)
{
    begin(NULL);
    ck_assert(taken(limit, "b1", 10).allowed);
    the_parts->charges_nobody[1] = true;
    the_parts->seen_us[1] = scene.now_us;
    pass(1000);
    ck_assert(!taken(limit, "b2", 1).allowed); /* cold */
    for (int i = 0; i < 50; i++) {
        pass(WEIR_SECOND / 10);
        ck_assert_int_eq(taken(limit, "b1", 10).source, WEIR_BY_BACKEND);
        ck_assert_int_eq(taken(limit, "a", 10).source, WEIR_BY_BACKEND);
    }
    ck_assert_int_eq(peeked(limit, "b1", 1).remaining, 5); /* the part's own count: no key was charged */
    ck_assert(taken(limit, "b2", 4).allowed);
    ck_assert_uint_eq(stats_of(scene.limiter).outages, 1);
    the_parts->charges_nobody[1] = false;
    ck_assert_int_eq(taken(limit, "b2", 1).source, WEIR_BY_BACKEND);
    ck_assert_uint_eq(stats_of(scene.limiter).settled, 4);
    the_parts->charges_nobody[1] = true;
    the_parts->seen_us[1] = scene.now_us;
    ck_assert(!taken(limit, "b2", 1).allowed); /* another outage */
    ck_assert_uint_eq(stats_of(scene.limiter).outages, 2);
    scene_close(&scene);
}

TEST(a_large_batch_reaches_the_backend_in_groups_of_256, 60)
{
    enum { MANY = 600 };
    static struct weir_request requests[MANY];
    static struct weir_decision out[MANY];
    static char keys[MANY][16];
    begin(NULL);
    for (int i = 0; i < MANY; i++) {
        snprintf(keys[i], sizeof keys[i], "%c%d", "ab"[i % 2], i);
        requests[i] = (struct weir_request){ .limit = limit, .key = weir_key_text(keys[i]), .cost = 1 };
    }
    must_succeed(weir_try_batch(scene.limiter, requests, MANY, out));
    ck_assert_uint_eq(the_parts->sizes[2], 256);
    ck_assert_uint_eq(the_parts->sizes[1], 256);
    ck_assert_uint_eq(the_parts->sizes[0], 88);
    goes(0);
    must_succeed(weir_try_batch(scene.limiter, requests, 257, out));
    ck_assert_uint_eq(the_parts->sizes[1], 256);
    ck_assert_uint_eq(the_parts->sizes[0], 1);
    for (int i = 0; i < 257; i++)
        ck_assert_int_eq(out[i].source, i % 2 == 0 ? WEIR_BY_FALLBACK : WEIR_BY_BACKEND);
    scene_close(&scene);
}

TEST(with_on_failure_error_a_batch_with_an_unreachable_part_fails, 60)
{
    begin(OPTIONS(.on_failure = WEIR_FAIL_ERROR));
    goes(0);
    const struct weir_request requests[] = { { limit, weir_key_text("b"), 1, 0 }, { limit, weir_key_text("a"), 1, 0 } };
    struct weir_decision out[2];
    ck_assert_int_eq(weir_try_batch(scene.limiter, requests, 2, out), WEIR_EIO);
    scene_close(&scene);
}

TEST(answers_of_one_part_do_not_end_the_outage_of_another, 60)
{
    begin(NULL);
    goes(1);
    ck_assert(!taken(limit, "b", 1).allowed);
    for (int i = 0; i < 5; i++) {
        pass(WEIR_SECOND);
        ck_assert_int_eq(taken(limit, "a", 1).source, WEIR_BY_BACKEND);
        ck_assert(!taken(limit, "b", 7).allowed);
    }
    ck_assert_int_eq(peeked(limit, "b", 1).remaining, 5); /* a permit a second: the key was not made cold again */
    ck_assert_uint_eq(stats_of(scene.limiter).outages, 1);
    comes_back(1);
    ck_assert_int_eq(taken(limit, "b", 1).source, WEIR_BY_BACKEND);
    goes(1);
    ck_assert(!taken(limit, "b", 1).allowed);
    ck_assert_uint_eq(stats_of(scene.limiter).outages, 2);
    scene_close(&scene);
}

TEST(a_part_that_returns_is_settled_while_the_other_is_unreachable, 60)
{
    begin(NULL);
    goes(0);
    goes(1);
    ck_assert(!taken(limit, "a", 1).allowed);
    ck_assert(!taken(limit, "b", 1).allowed);
    pass(5 * WEIR_SECOND);
    ck_assert(taken(limit, "a", 3).allowed);
    ck_assert(taken(limit, "b", 4).allowed);
    comes_back(0);
    ck_assert_int_eq(the_parts->remote.charged + taken(limit, "a", 1).remaining, 6);
    ck_assert_uint_eq(stats_of(scene.limiter).settled, 3);
    ck_assert(!taken(limit, "b", 1).allowed); /* another outage: cold once more */
    goes(0);
    ck_assert(!taken(limit, "a", 1).allowed); /* and this key, which was forgotten, does not count as fresh */
    pass(WEIR_SECOND);
    ck_assert(taken(limit, "a", 1).allowed);
    ck_assert(!taken(limit, "a", 1).allowed);
    comes_back(0);
    comes_back(1);
    ck_assert_int_eq(taken(limit, "b", 1).source, WEIR_BY_BACKEND);
    ck_assert_uint_eq(stats_of(scene.limiter).settled, 3 + 4 + 1);
    scene_close(&scene);
}

/* A request may reach the part before the core learns of its return. */
TEST(a_part_that_returns_unnoticed_is_settled_and_starts_cold_at_its_next_outage, 60)
{
    begin(NULL);
    goes(0);
    goes(1);
    ck_assert(!taken(limit, "a", 1).allowed);
    ck_assert(!taken(limit, "b", 1).allowed);
    pass(5 * WEIR_SECOND);
    ck_assert(taken(limit, "a", 5).allowed);
    pass(1000);
    the_parts->away[0] = false;
    ck_assert_int_eq(taken(limit, "a", 1).remaining, 4);
    ck_assert_uint_eq(stats_of(scene.limiter).settled, 5);
    goes(0);
    ck_assert(!taken(limit, "a", 1).allowed);
    scene_close(&scene);
}

TEST(a_part_that_fails_during_another_parts_outage_starts_cold, 60)
{
    begin(NULL);
    goes(1);
    ck_assert(!taken(limit, "b", 1).allowed);
    pass(WEIR_HOUR);
    ck_assert(taken(limit, "a", 10).allowed);
    goes(0);
    ck_assert(!taken(limit, "a", 1).allowed);
    ck_assert_uint_eq(stats_of(scene.limiter).outages, 2);
    pass(WEIR_SECOND);
    ck_assert(taken(limit, "a", 1).allowed); /* still the same outage */
    ck_assert_uint_eq(stats_of(scene.limiter).outages, 2);
    scene_close(&scene);
}

/* However often the parts fail, each key stays within an envelope of the limit, because weir charges what it owes. */
TEST(parts_that_fail_and_return_admit_no_more_than_the_limit, 60)
{
    struct chance chance = chance_make(7);
    begin(NULL);
    static const char *const keys[] = { "a", "b" };
    int64_t level[2] = { 0, 0 }, worst = 0; /* a leaky meter of all admitted permits, in permits * 10^6 */
    for (int step = 0; step < 20000; step++) {
        const int part = (int)chance_between(&chance, 0, 1);
        if (chance_between(&chance, 0, 9) == 0) {
            if (the_parts->away[part])
                comes_back(part);
            else
                goes(part);
        }
        const int64_t gap_us = chance_between(&chance, 0, WEIR_SECOND);
        pass(gap_us);
        for (int i = 0; i < 2; i++)
            level[i] = level[i] > gap_us ? level[i] - gap_us : 0;
        const int64_t cost = chance_between(&chance, 1, 3);
        if (taken(limit, keys[part], cost).allowed)
            level[part] += cost * WEIR_SECOND;
        if (level[part] > worst)
            worst = level[part];
    }
    ck_assert_int_le(worst, 11 * WEIR_SECOND); /* one more because the outage's start is rounded, and for drift */
    ck_assert_int_ge(worst, 9 * WEIR_SECOND);
    ck_assert_uint_ge(stats_of(scene.limiter).outages, 100);
    scene_close(&scene);
}
