/* hybrid.c - hybrid mode: instances that lease from one store over links that delay, lose and reorder.
 *
 * The input is a story: rules, policies, instances, and events. Requests come alone, submitted, in batches or in
 * groups, also by the caller's clock; there are refunds and resets; submitted requests are executed, answered or lost
 * in any order; the clock advances; limits are redefined. Properties:
 *
 *     - an instance admits only permits that a received answer charged; none is used twice, whatever is lost; and
 *       leased permits = admitted from leases + still held + counted as lost
 *     - no leased permit is used later than one life after its request
 *     - all instances together admit at most the limit plus `over_max`, in any stretch of time (greedy buckets), window
 *       or refill (limits on the clock's grid)
 *     - each request ends once, also when the limiter closes, and none waits when no answer is under way
 */
#include "fuzz.h"
#include "hybrid_audit.h"
#include "hybrid_remote.h"

#include "backends/hybrid/accounts.h"
#include "backends/hybrid/hybrid.h"
#include "backends/hybrid/lease_call.h"
#include "core/api/life.h"
#include "core/ground/arith.h"
#include "core/limiter/limiter.h"
#include "core/limiter/options.h"

#include <inttypes.h>
#include <string.h>

enum { OPS = 12, BATCH = 4, ADMITTED_MOST = 512, NOT_ENDED = 99 };

struct subject {
    struct weir_policy policy;
    int64_t over_max;
    bool redefined;
    struct {
        size_t n;
        bool given_back; /* a refund or a reset was requested, so the sums no longer hold */
        bool late;       /* nor do they if time passed between the decision and its use */
        struct admitted list[ADMITTED_MOST];
    } keys[KEYS];
};

struct instance {
    struct weir_backend *hybrid;
    weir *limiter;
    weir_limit *limits[LIMITS];
    int64_t admitted[LIMITS][KEYS], by_lease;
    struct op {
        struct weir_op op;
        struct instance *instance;
        int limit, key, status;
        bool is_used, by_caller;
    } ops[OPS];
};

static struct {
    int64_t life_us;
    int n;
    bool all_admitted; /* a group was admitted: which part came from leases is unknown */
    struct subject subjects[LIMITS];
    struct instance instances[INSTANCES];
} story;

/* ---- Properties ---- */

/* Record the decision of `request`. A leased permit counts at the request's time, or now if it has none. */
static void note(struct instance *instance, int limit, int key, const struct weir_request *request,
                 const struct weir_decision *decision)
{
    struct subject *subject = &story.subjects[limit];
    const bool leased = decision->source == WEIR_BY_LEASE;
    const int64_t charged_us = world.remotes[instance - story.instances].charged_us[limit][key];
    const int64_t cost = request->cost, spent_us = request->now_us != 0 ? request->now_us : world.now_us;
    fuzz_must(decision->remaining >= 0 && decision->remaining <= decision->limit && decision->delay_us >= 0 &&
                  decision->reset_after_us >= 0 && decision->age_us >= 0,
              "a decision is in its ranges");
    fuzz_must(decision->allowed ? decision->retry_after_us == 0
                                : decision->retry_after_us > 0 || decision->retry_after_us == WEIR_NEVER,
              "who is denied is told for how long");
    if (!decision->allowed)
        return;
    fuzz_must(!leased || decision->age_us < story.life_us, "a lease is used within its life");
    const struct weir_policy *policy = &subject->policy;
    const bool on_grid = policy->align == WEIR_ALIGN_EPOCH && !subject->redefined;
    fuzz_must(!leased || !on_grid || charged_us / policy->period_us >= spent_us / policy->period_us,
              "a lease ends with its window, or at the next refill");
    instance->admitted[limit][key] += cost;
    instance->by_lease += leased ? cost : 0;
    fuzz_must(instance->admitted[limit][key] <= world.remotes[instance - story.instances].charged[limit][key],
              "%" PRId64 " were admitted of what was charged", instance->admitted[limit][key]);
    subject->keys[key].late |= leased && spent_us != world.now_us;
    if (subject->keys[key].n < ADMITTED_MOST)
        subject->keys[key].list[subject->keys[key].n++] = (struct admitted){ leased ? world.now_us : world.executed_us,
                                                                             cost };
}

/* Check charged = leased + admitted by the store, and leased = used + held + lost. */
static void check_books(struct instance *instance)
{
    struct weir_stats stats = { .size = sizeof stats };
    int64_t charged = 0, admitted = 0;
    const struct hybrid *hybrid = (const struct hybrid *)instance->hybrid;
    int64_t held = 0;
    fuzz_must(weir_stats_read(instance->limiter, &stats) == WEIR_OK, "there are stats");
    for (size_t i = 0; i < HYBRID_SHARDS; i++)
        for (const struct account *account = hybrid->accounts.shards[i].accounts; account; account = account->hh.next) {
            held += account->lease.batches[0].left + account->lease.batches[1].left;
            stats.lease_lost += account->lease.lost;
        }
    for (int i = 0; i < LIMITS; i++)
        for (int k = 0; k < KEYS; k++) {
            charged += world.remotes[instance - story.instances].charged[i][k];
            admitted += instance->admitted[i][k];
        }
    if (!story.all_admitted)
        fuzz_must(charged == (int64_t)stats.leased + admitted - instance->by_lease,
                  "charged %" PRId64 " = leased %" PRIu64 " + admitted %" PRId64, charged, stats.leased,
                  admitted - instance->by_lease);
    if (!story.all_admitted)
        fuzz_must((int64_t)stats.leased == instance->by_lease + held + (int64_t)stats.lease_lost,
                  "leased %" PRIu64 " = used %" PRId64 " + held %" PRId64 " + lost %" PRIu64, stats.leased,
                  instance->by_lease, held, stats.lease_lost);
}

/* ---- Policies ---- */

static struct weir_policy policy_by_feed(void)
{
    struct weir_policy policy = feed_policy(&world.feed);
    if (feed_byte(&world.feed) & 1)
        return policy;
    policy.limit = feed_between(&world.feed, 1, 200);
    policy.period_us = 10000 * feed_between(&world.feed, 1, 400);
    policy.burst = policy.burst ? feed_between(&world.feed, 1, 400) : 0;
    policy.debt = policy.debt ? feed_between(&world.feed, 1, 20) : 0;
    policy.capacity = policy.capacity ? feed_between(&world.feed, 1, 200) : 0;
    policy.blocks = policy.blocks ? (int32_t)feed_between(&world.feed, 1, 12) : 0;
    return policy;
}

/* Return false if the policy is refused. */
static bool define(int limit)
{
    struct subject *subject = &story.subjects[limit];
    const struct weir_policy policy = policy_by_feed();
    struct weir_limit_info info = { .size = sizeof info };
    if (weir_policy_check(&policy, NULL, 0) != WEIR_OK)
        return false;
    for (int i = 0; i < story.n; i++) {
        struct instance *instance = &story.instances[i];
        const int error = weir_limit_define(instance->limiter, limit ? "other" : "limit", &policy,
                                            &instance->limits[limit]);
        if (error == WEIR_EINVAL) { /* it has no exact arithmetic at this instance's share */
            subject->redefined |= i > 0;
            return false;
        }
        fuzz_must(error == WEIR_OK && weir_limit_info(instance->limits[limit], &info) == WEIR_OK, "a limit is defined");
    }
    subject->policy = policy;
    subject->over_max = info.over_max;
    return true;
}

/* ---- Steps ---- */

static int64_t cost_by_feed(int limit)
{
    const uint8_t choice = feed_byte(&world.feed);
    if (choice < 192)
        return choice % 8 + 1;
    return choice < 250 ? max_of(1, story.subjects[limit].policy.limit * (choice - 191) / 64)
                        : feed_magnitude(&world.feed, WEIR_MAX_PERMITS);
}

static void check_status(int status)
{
    fuzz_must(status == WEIR_OK || status == WEIR_ETIME || status == WEIR_EIO || status == WEIR_EFULL, "%s",
              weir_strerror(status));
}

static void ended(struct op *op, int status)
{
    fuzz_must(op->is_used && op->status == NOT_ENDED, "a request ends once");
    op->status = status;
    op->is_used = false;
    if (status == WEIR_ECLOSED)
        return;
    check_status(status);
    if (status == WEIR_OK)
        note(op->instance, op->limit, op->key, &op->op.request, &op->op.decision);
}

static void op_done(struct weir_op *op, int status)
{
    ended(op->user, status);
}

static void submit(struct instance *instance, uint8_t choice)
{
    struct op *op = instance->ops;
    while (op < instance->ops + OPS && op->is_used)
        op++;
    if (op == instance->ops + OPS)
        return;
    *op = (struct op){ .instance = instance, .limit = choice & 1, .key = choice / 2 & 1, .status = NOT_ENDED };
    op->is_used = true;
    op->op = (struct weir_op){ .request = { .limit = instance->limits[op->limit],
                                            .key = weir_key_text(key_names[op->key]),
                                            .cost = cost_by_feed(op->limit),
                                            .now_us = choice & 4 ? world.now_us : 0 },
                               .done = op_done,
                               .user = op };
    const int status = weir_submit(instance->limiter, &op->op);
    if (status != 1)
        ended(op, status);
}

static void several(struct instance *instance, uint8_t choice)
{
    struct weir_request requests[BATCH];
    struct weir_decision decisions[BATCH];
    const size_t n = choice / 8 % BATCH + 1;
    memset(decisions, 0, sizeof decisions);
    for (size_t i = 0; i < n; i++) {
        const uint8_t which = feed_byte(&world.feed);
        requests[i] = (struct weir_request){ .limit = instance->limits[which & 1],
                                             .key = weir_key_text(key_names[which / 2 & 1]),
                                             .cost = cost_by_feed(which & 1),
                                             .now_us = choice & 4 ? world.now_us : 0 };
    }
    const bool all = choice & 1;
    const int64_t began_us = world.now_us; /* a batch without times is decided at this time */
    const int status = all ? weir_try_all(instance->limiter, requests, n, &decisions[0])
                           : weir_try_batch(instance->limiter, requests, n, decisions);
    check_status(status);
    if (all && (status != WEIR_OK || !decisions[0].allowed))
        return;
    story.all_admitted = story.all_admitted || all;
    for (size_t i = 0; i < n; i++) {
        if (all)
            decisions[i] = (struct weir_decision){ .allowed = true, .source = WEIR_BY_REDIS };
        const bool is_decided = all || decisions[i].limit > 0; /* in a failed batch some requests may be decided */
        const int limit = requests[i].limit == instance->limits[1], key = requests[i].key.data == key_names[1];
        requests[i].now_us = began_us;
        story.subjects[limit].keys[key].late |= world.now_us != began_us; /* when each request was made is unknown */
        if (is_decided)
            note(instance, limit, key, &requests[i], &decisions[i]);
    }
}

static void one_verb(struct instance *instance, uint8_t choice)
{
    const int limit = choice & 1, key = choice / 2 & 1;
    const struct weir_key name = weir_key_text(key_names[key]);
    const int64_t cost = cost_by_feed(limit);
    const struct weir_request request = { .limit = instance->limits[limit], .key = name, .cost = cost };
    struct weir_decision decision;
    int status;
    switch (choice / 4 % 8) {
    case 0:
        story.subjects[limit].keys[key].given_back = true;
        check_status(weir_refund(instance->limits[limit], name, cost));
        return;
    case 1:
        story.subjects[limit].keys[key].given_back = true;
        check_status(weir_reset(instance->limits[limit], name));
        return;
    case 2: check_status(weir_peek(instance->limits[limit], name, cost, &decision)); return;
    default:
        status = weir_try(instance->limits[limit], name, cost, &decision);
        check_status(status);
        if (status == WEIR_OK)
            note(instance, limit, key, &request, &decision);
    }
}

static void travel(struct remote *remote, uint8_t choice)
{
    struct pending *pending = &remote->pending[choice % PENDING_MOST];
    remote_execute(pending);
    if (choice & 64)
        return; /* its answer is under way */
    remote_answer(remote, pending, choice & 128 && world.fails ? WEIR_EIO : WEIR_OK);
}

static void step(void)
{
    const uint8_t what = feed_byte(&world.feed), choice = feed_byte(&world.feed);
    const int i = what / 16 % story.n;
    struct instance *instance = &story.instances[i];
    world.in_call = false;
    world.executed_us = world.now_us;
    switch (what % 16) {
    case 0:
    case 1: travel(&world.remotes[i], choice); break;
    case 2:
        if (choice == 255 && define(i & 1))
            story.subjects[i & 1].redefined = true;
        break;
    case 3: world_pass(choice * 1000); break;
    case 4: world_pass(choice & 1 ? story.life_us / (choice / 2 + 1) : feed_magnitude(&world.feed, WEIR_HOUR)); break;
    case 5:
    case 6:
        world.in_call = true;
        several(instance, choice);
        break;
    case 7:
    case 8:
    case 9:
        world.in_call = true;
        one_verb(instance, choice);
        break;
    default: submit(instance, choice);
    }
    check_books(instance);
}

/* ---- Life ---- */

static int64_t clock_us(void *user)
{
    (void)user;
    return world.now_us;
}

static void instance_open(struct instance *instance, int rank, uint8_t choice)
{
    struct weir_options options = WEIR_OPTIONS_INIT, read;
    memset(instance, 0, sizeof *instance);
    options.mode = WEIR_HYBRID;
    options.redis_url = "unix:///not-used";
    options.on_failure = WEIR_FAIL_ERROR;
    options.lease_life_us = story.life_us;
    options.lease_max = choice & 8 ? 5 : 0;
    options.strict = choice & 16;
    options.instances = story.n;
    options.rank = rank;
    options.now_us = clock_us;
    fuzz_must(options_read(&options, &read) == WEIR_OK, "options are right");
    const struct hybrid_settings settings = {
        .leases = options_leases(&read),
        .max_keys = choice & 32 ? 1 : 16,
        .max_bytes = 1 << 20,
        .timeout_us = read.timeout_us,
        .now_us = clock_us,
    };
    remote_make(&world.remotes[rank]);
    fuzz_must(hybrid_open(&settings, &world.remotes[rank].base, &instance->hybrid) == WEIR_OK &&
                  limiter_make(&read, instance->hybrid, NULL, NULL, &instance->limiter) == WEIR_OK,
              "a limiter opens");
}

/* Deliver all pending answers: then no request may wait. */
static void settle(void)
{
    world.fails = false;
    for (int round = 0; round < 4 * PENDING_MOST; round++)
        for (int i = 0; i < story.n; i++)
            for (int k = 0; k < PENDING_MOST; k++) {
                remote_execute(&world.remotes[i].pending[k]);
                remote_answer(&world.remotes[i], &world.remotes[i].pending[k], WEIR_OK);
            }
    for (int i = 0; i < story.n; i++) {
        for (int k = 0; k < OPS; k++)
            fuzz_must(!story.instances[i].ops[k].is_used, "nobody waits once nothing is on its way");
        check_books(&story.instances[i]);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    bool right = true;
    world.feed = feed_of(data, size);
    const uint8_t choice = feed_byte(&world.feed);
    world.now_us = INT64_C(1790000000123456);
    world.fails = choice & 64;
    world.in_call = world.answering = false;
    story.n = choice % INSTANCES + 1;
    story.life_us = choice & 4 ? feed_between(&world.feed, 1000, 10 * WEIR_SECOND) : 100000;
    story.all_admitted = false;
    for (int i = 0; i < story.n; i++)
        instance_open(&story.instances[i], i, choice);
    for (int i = 0; i < LIMITS; i++) {
        struct subject *subject = &story.subjects[i];
        subject->redefined = false;
        for (int k = 0; k < KEYS; k++) {
            subject->keys[k].n = 0;
            subject->keys[k].given_back = subject->keys[k].late = false;
            world.store[i][k].stored = world.store[i][k].has_former = false;
        }
        right = right && define(i);
    }
    while (right && !feed_is_over(&world.feed))
        step();
    if (right && choice < 128) /* otherwise it closes while answers are under way */
        settle();
    for (int i = 0; i < story.n; i++) {
        weir_close(story.instances[i].limiter);
        for (int k = 0; k < OPS; k++)
            fuzz_must(!story.instances[i].ops[k].is_used, "closing ends what waits");
    }
    for (int i = 0; right && i < LIMITS; i++) {
        struct subject *subject = &story.subjects[i];
        for (int k = 0; k < KEYS; k++)
            if (!subject->redefined && !subject->keys[k].given_back && !subject->keys[k].late)
                audit_admitted(&subject->policy, subject->over_max, subject->keys[k].list, subject->keys[k].n);
    }
    return 0;
}
