/* group.c - several requests in one call to the backend, together or each separately.
 *
 * Requests are passed on in groups of a bounded size, made on the stack. A larger batch for a backend on another
 * machine is passed on in larger groups, made on the heap, because the caller waits for each group's answers.
 */
#include "core/api/group.h"

#include "core/api/reserve.h"
#include "core/ground/arith.h"
#include "core/ground/cancel.h"
#include "core/limiter/candidate.h"
#include "core/limiter/fixed.h"

#include <stdlib.h>

/* The most requests that the backend gets in one call. */
#define GROUP_MAX WEIR_MAX_ALL

/* Requests ready for the backend, and their places among the caller's. No two have the same limit and key. Those whose
 * limit is enforced come first: `asked` for the backend, and then those that are fixed (fixed.h). The last `shadows` are
 * those of shadow limits, the first of them last. */
struct group {
    size_t count, asked, shadows;
    bool is_banned; /* a fixed one denies the group */
    bool is_double; /* two requests for slots of one key: a slot has one reservation */
    struct weir_backend_request requests[GROUP_MAX];
    uint8_t indices[GROUP_MAX];
};

int group_time(const struct weir *limiter, const struct weir_request *requests, size_t n, int64_t *out)
{
    for (size_t i = 0; i < n; i++)
        if (requests[i].now_us == 0)
            return request_time(limiter, out);
    *out = 0;
    return WEIR_OK;
}

static inline void fill_take(struct weir_backend_request *out, const struct weir_request *request, int64_t now_us)
{
    fill_request(out, request->limit, request->key, key_hash(request->limit, request->key), request->cost,
                 request->now_us ? request->now_us : now_us, WEIR_TAKE);
}

struct weir_backend_request take_request(const struct weir_request *request, int64_t now_us)
{
    struct weir_backend_request take;
    fill_take(&take, request, now_us);
    return take;
}

/* Merge a request into one for the same limit and key, if the group has one. That one keeps its override, even if
 * another has come into force since. */
static bool group_merge(struct group *group, const struct weir_request *request)
{
    for (size_t i = 0; i < GROUP_MAX; i++) {
        struct weir_backend_request *other = &group->requests[i];
        if (i >= group->count && i < GROUP_MAX - group->shadows)
            continue;
        if (other->limit->of == request->limit && other->key.len == request->key.len &&
            memcmp(other->key.data, request->key.data, request->key.len) == 0) {
            other->cost += request->cost;
            group->is_double = group->is_double || other->slot != 0;
            return true;
        }
    }
    return false;
}

/* True if a denial by `a` lasts longer than one by `b`; WEIR_NEVER lasts longest. */
static bool denies_longer(const struct weir_decision *a, const struct weir_decision *b)
{
    if (b->allowed || b->retry_after_us == WEIR_NEVER)
        return b->allowed;
    return a->retry_after_us == WEIR_NEVER || a->retry_after_us > b->retry_after_us;
}

/* Combine several decisions into one, as weir_try_all() defines it. `indices` are the caller's. */
static struct weir_decision fold(const struct weir_decision *decisions, const uint8_t *indices, size_t n)
{
    size_t bound_by = 0;
    struct weir_decision whole = decisions[0];
    for (size_t i = 1; i < n; i++) {
        const struct weir_decision *decision = &decisions[i];
        const struct weir_decision *bound = &decisions[bound_by];
        bool binds = decision->allowed ? bound->allowed && decision->remaining < bound->remaining
                                       : denies_longer(decision, bound);
        if (binds)
            bound_by = i;
        whole.allowed = whole.allowed && decision->allowed;
        whole.remaining = min_of(whole.remaining, decision->remaining);
        whole.reset_after_us = max_of(whole.reset_after_us, decision->reset_after_us);
        whole.delay_us = max_of(whole.delay_us, decision->delay_us);
    }
    whole.limit = decisions[bound_by].limit;
    whole.source = decisions[bound_by].source;
    whole.retry_after_us = decisions[bound_by].retry_after_us;
    whole.bound_by = indices[bound_by];
    if (!whole.allowed)
        whole.delay_us = 0;
    return whole;
}

/* Sort the caller's requests into a group, and decide those that are fixed. All get the first one's time.
 * `reservations` may be NULL. */
static void group_fill(struct group *group, const struct weir_request *requests, size_t n, int64_t now_us,
                       struct weir_reservation *reservations, struct weir_decision *decisions)
{
    group->count = group->asked = group->shadows = 0;
    group->is_banned = group->is_double = false;
    for (size_t i = 0; i < n; i++) {
        if (reservations)
            reservations[i] = RESERVATION_NONE;
        if (group_merge(group, &requests[i]))
            continue;
        struct weir_backend_request request = take_request(&requests[i], now_us);
        request.now_us = requests[0].now_us ? requests[0].now_us : now_us;
        request.reservation = reservations ? &reservations[i] : NULL;
        const bool is_shadow = limit_is_shadow(request.limit, request.key);
        size_t at = is_shadow ? GROUP_MAX - ++group->shadows : group->count++;
        struct weir_decision fixed;
        if (!is_shadow && fixed_decide(request.limit, &fixed)) {
            decisions[at] = fixed;
            group->is_banned = group->is_banned || !fixed.allowed;
        } else if (!is_shadow) { /* the first fixed one makes room */
            if (at > group->asked)
                decisions[at] = decisions[group->asked];
            group->requests[at] = group->requests[group->asked];
            group->indices[at] = group->indices[group->asked];
            at = group->asked++;
        }
        group->requests[at] = request;
        group->indices[at] = (uint8_t)i;
    }
}

/* Complete the reservations of group members from `first` on, by their decisions. Requests that were merged into a
 * member were charged with it. */
static void reservations_finish(const struct group *group, size_t first, size_t count,
                                const struct weir_decision *decisions, const struct weir_request *requests, size_t n,
                                struct weir_reservation *reservations)
{
    for (size_t k = 0; reservations && k < count; k++) {
        const struct weir_backend_request *member = &group->requests[first + k];
        const struct weir_reservation noted = reservations[group->indices[first + k]];
        for (size_t i = group->indices[first + k]; i < n; i++) {
            if (requests[i].limit != member->limit->of || requests[i].key.len != member->key.len ||
                memcmp(requests[i].key.data, member->key.data, member->key.len) != 0)
                continue;
            reservation_finish(&reservations[i], noted, requests[i].cost, &decisions[k]);
        }
    }
}

/* Count a member that was admitted with its group, or denied the group. */
static void count_member(const struct weir_backend_request *member, const struct weir_decision *decision)
{
    figures_count_member(member->limit, member->cost, decision);
    top_keys_count(member, decision);
    events_note(member, decision);
}

/* Ask the other halves of decided requests, GROUP_MAX at most, and make the requests those of the first halves. */
__attribute__((noinline)) static void finish_halves(struct weir *limiter, struct weir_backend_request *requests,
                                                    size_t n, int64_t deadline, struct weir_decision *decisions)
{
    struct candidate_ask asks[GROUP_MAX];
    struct weir_backend_request others[GROUP_MAX];
    struct weir_decision answers[GROUP_MAX];
    size_t places[GROUP_MAX], count = 0;
    for (size_t i = 0; i < n; i++) {
        places[i] = GROUP_MAX;
        if (limit_has_halves(requests[i].limit) && candidate_begin(&requests[i], &decisions[i], &asks[i])) {
            places[i] = count;
            others[count++] = asks[i].request;
        }
    }
    for (size_t i = 0; i < count; i++)
        answers[i].source = WEIR_BY_NOBODY;
    if (count > 0)
        failure_decide(limiter, others, count, false, deadline, answers);
    for (size_t i = 0; i < n; i++)
        if (limit_has_halves(requests[i].limit)) {
            const bool is_there = places[i] < GROUP_MAX && answers[places[i]].source != WEIR_BY_NOBODY;
            candidate_end(&requests[i], &decisions[i], &asks[i], is_there ? &answers[places[i]] : NULL);
        }
}

/* Ask the other halves of an admitted group's members, or of a denied one's nothing. The first that would deny its
 * request marks the group. */
static void finish_group_halves(struct weir *limiter, struct group *group, size_t first, int64_t deadline,
                                struct weir_decision *decisions, struct weir_decision *whole)
{
    bool has_halves = false;
    for (size_t i = first; i < group->count; i++)
        has_halves = has_halves || limit_has_halves(group->requests[i].limit);
    if (!has_halves)
        return;
    if (!whole->allowed) {
        for (size_t i = first; i < group->count; i++)
            candidate_aim_first(&group->requests[i]);
        return;
    }
    finish_halves(limiter, &group->requests[first], group->count - first, deadline, &decisions[first]);
    for (size_t i = first; i < group->count; i++)
        if (decisions[i].would_deny && !whole->would_deny) {
            whole->would_deny = true;
            whole->would_deny_by = group->indices[i];
        }
}

/* Ask the shadow limits of a group that is admitted, each by itself: their answers bind nothing. Those that fail are
 * left out. Return how many decisions are filled, which is all or none. */
static size_t try_shadows(struct weir *limiter, struct group *group, int64_t deadline, struct weir_decision *decisions,
                          struct weir_decision *whole)
{
    const size_t first = GROUP_MAX - group->shadows;
    if (group->shadows == 0 ||
        failure_decide(limiter, &group->requests[first], group->shadows, false, deadline, decisions) != WEIR_OK)
        return 0;
    for (size_t i = group->shadows; i-- > 0;) {
        shadow_admit(&decisions[i]);
        if (decisions[i].would_deny && !whole->would_deny) {
            whole->would_deny = true;
            whole->would_deny_by = group->indices[first + i];
        }
        count_member(&group->requests[first + i], &decisions[i]);
    }
    return group->shadows;
}

static int try_all(struct weir *limiter, const struct weir_request *requests, size_t n,
                   struct weir_reservation *reservations, struct weir_decision *out)
{
    int64_t now_us;
    int error = group_time(limiter, requests, 1, &now_us);
    if (error)
        return error;
    struct group group;
    struct weir_decision decisions[GROUP_MAX];
    const int64_t deadline = deadline_us(limiter);
    group_fill(&group, requests, n, now_us, reservations, decisions);
    if (group.is_double && reservations) {
        log_line(&limiter->log, WEIR_LOG_WARNING,
                 "a group names a limit on requests in flight twice with one key: add up the costs");
        return WEIR_EINVAL;
    }
    *out = (struct weir_decision){ .allowed = true };
    if (group.count > 0) {
        const size_t first = group.is_banned ? group.asked
                                             : 0; /* then nothing is charged, so the backend is not asked */
        if (group.asked > first)
            error = failure_decide(limiter, group.requests, group.asked, true, deadline, decisions);
        if (error)
            return error;
        *out = fold(&decisions[first], &group.indices[first], group.count - first);
        finish_group_halves(limiter, &group, first, deadline, decisions, out);
        for (size_t i = first; i < group.count; i++)
            if (out->allowed || !decisions[i].allowed)
                count_member(&group.requests[i], &decisions[i]);
    }
    if (!out->allowed)
        return WEIR_OK;
    reservations_finish(&group, 0, group.count, decisions, requests, n, reservations);
    const size_t answered = try_shadows(limiter, &group, deadline, decisions, out);
    reservations_finish(&group, GROUP_MAX - answered, answered, decisions, requests, n, reservations);
    if (group.count == 0 && answered > 0) { /* nothing else describes the group */
        const struct weir_decision enforced = *out;
        *out = fold(decisions, &group.indices[GROUP_MAX - answered], answered);
        out->would_deny = enforced.would_deny;
        out->would_deny_by = enforced.would_deny_by;
    }
    return WEIR_OK;
}

/* Check and decide a group. `reservations` may be NULL. */
static int decide_group(struct weir *limiter, const struct weir_request *requests, size_t n,
                        struct weir_reservation *reservations, struct weir_decision *out)
{
    if (!requests || !out)
        return refuse_null(limiter, requests ? "out" : "requests");
    if (n < 1 || n > WEIR_MAX_ALL)
        return refuse_range(limiter, "n", n > INT64_MAX ? INT64_MAX : (int64_t)n, 1, WEIR_MAX_ALL);
    for (size_t i = 0; i < n; i++) {
        int error = check_request(limiter, &requests[i]);
        if (error)
            return error;
    }

    CANCEL_DISABLED_IF(limiter->is_foreign);
    int error = inside_enter(limiter, 1);
    if (error)
        return error;
    struct weir_decision whole = { 0 };
    error = try_all(limiter, requests, n, reservations, &whole);
    stats_add(&limiter->stats, error ? STATS_ERRORS : whole.allowed ? STATS_GROUPS_ALLOWED : STATS_GROUPS_DENIED, 1);
    if (!error)
        stats_add(&limiter->stats, STATS_FALLBACKS, failure_decided(&whole));
    if (!error)
        *out = whole;
    inside_leave(limiter, 1);
    return error;
}

int weir_try_all(weir *limiter, const struct weir_request *requests, size_t n, struct weir_decision *out)
{
    return limiter ? decide_group(limiter, requests, n, NULL, out) : WEIR_EINVAL;
}

int weir_reserve_all(weir *limiter, const struct weir_request *requests, size_t n, struct weir_decision *out,
                     struct weir_reservation *reservations)
{
    if (!limiter)
        return WEIR_EINVAL;
    return reservations ? decide_group(limiter, requests, n, reservations, out) : refuse_null(limiter, "reservations");
}

/* The most requests of a batch that a backend which may block gets in one call. */
#define BATCH_MAX FAILURE_BATCH_MAX

/* Return room for the groups of a batch of n, which the caller frees, or NULL: groups of GROUP_MAX will do. */
static struct weir_backend_request *batch_room(const struct weir *limiter, size_t n)
{
    if (n <= GROUP_MAX || !limiter->can_block)
        return NULL;
    return malloc((n < BATCH_MAX ? n : BATCH_MAX) * sizeof(struct weir_backend_request));
}

/* Decide n requests, which are made ready in `group`. */
static int try_group(struct weir *limiter, const struct weir_request *requests, size_t n, int64_t now_us,
                     int64_t deadline, struct weir_backend_request *group, struct weir_decision *outs)
{
    for (size_t i = 0; i < n; i++)
        fill_take(&group[i], &requests[i], now_us);
    int error = failure_decide(limiter, group, n, false, deadline, outs);
    if (error)
        return error;
    uint64_t fallbacks = 0;
    for (size_t i = 0; i < n; i++)
        if (limit_has_halves(group[i].limit)) {
            const size_t part = n - i < GROUP_MAX ? n - i : GROUP_MAX;
            finish_halves(limiter, &group[i], part, deadline, &outs[i]);
            i += part - 1;
        }
    for (size_t i = 0; i < n; i++) {
        shadow_apply(group[i].limit, group[i].key, &outs[i]);
        figures_count(group[i].limit, group[i].cost, &outs[i]);
        top_keys_count(&group[i], &outs[i]);
        events_note(&group[i], &outs[i]);
        fallbacks += failure_decided(&outs[i]);
    }
    stats_add(&limiter->stats, STATS_FALLBACKS, fallbacks);
    return WEIR_OK;
}

int weir_try_batch(weir *limiter, const struct weir_request *requests, size_t n, struct weir_decision *outs)
{
    if (!limiter)
        return WEIR_EINVAL;
    if (n > 0 && (!requests || !outs))
        return refuse_null(limiter, requests ? "outs" : "requests");
    if (limiter->takes && limiter->takes->try_batch) {
        const int error = limiter->takes->try_batch(limiter, requests, n, outs);
        if (error <= 0)
            return error;
    }
    for (size_t i = 0; i < n; i++) {
        int error = check_request(limiter, &requests[i]);
        if (error)
            return error;
    }
    CANCEL_DISABLED_IF(limiter->is_foreign);
    int error = inside_enter(limiter, 1);
    if (error)
        return error;
    int64_t now_us;
    error = group_time(limiter, requests, n, &now_us);
    const int64_t deadline = deadline_us(limiter);
    struct weir_backend_request few[GROUP_MAX], *many = batch_room(limiter, n);
    const size_t most = many ? BATCH_MAX : GROUP_MAX;
    size_t decided = 0;
    while (!error && decided < n) {
        const size_t part = n - decided < most ? n - decided : most;
        error = try_group(limiter, requests + decided, part, now_us, deadline, many ? many : few, outs + decided);
        if (!error)
            decided += part;
    }
    free(many);
    stats_add(&limiter->stats, STATS_ERRORS, n - decided);
    inside_leave(limiter, 1);
    return error;
}
