/* all.c - decides for a group: all or nothing.
 *
 * It takes what leases can give and asks the remote for the other members in one step. If the remote denies one,
 * or fails, the leases get their permits back. A leaky bucket's permits are departure times, which cannot be
 * given back, so the remote is always asked for them. */
#include "backends/hybrid/each.h"
#include "backends/hybrid/request.h"

#include <stdlib.h>

/* The part of a group's decision that is made before the remote is asked. */
struct member {
    enum lease_answer answer;
    bool is_known; /* with LEASE_UNDECIDED: Redis's last answer for the key is in the decision */
    int64_t asked_us;
    struct lease_order order; /* with LEASE_UNDECIDED */
};

static struct member member_decide(struct hybrid *hybrid, const struct weir_backend_request *request,
                                   struct weir_decision *out)
{
    const int64_t now_us = hybrid_time(hybrid, request->now_us);
    struct account_shard *shard = account_shard(&hybrid->accounts, request->hash);
    struct member member = {
        .answer = LEASE_UNDECIDED,
        .asked_us = now_us,
        .order = { .cost = request->cost, .whole = true },
    };
    if (request->slot) /* Redis alone decides it */
        return member;
    struct account *account = request_enter(hybrid, shard, request, now_us);
    if (account) {
        lease_count(&account->lease, now_us, request->cost);
        const bool spends = account->lease.plan.algorithm != WEIR_LEAKY_BUCKET;
        if (spends || lease_decide(&account->lease, now_us, request->cost, WEIR_PEEK, out) == LEASE_DENIED)
            member.answer = request_decide(shard, account, now_us, request, out);
        member.order.era = account->lease.era;
        if (member.answer == LEASE_UNDECIDED)
            member.is_known = lease_recall(&account->lease, now_us, out);
    }
    lock_give(&shard->mutex);
    if (member.answer == LEASE_SPENT)
        member.asked_us = now_us - out->age_us;
    return member;
}

/* Give a member's permits back to its lease after a denial or failure; its decision becomes that of a peek. */
static void member_give_back(struct hybrid *hybrid, const struct weir_backend_request *request,
                             const struct member *member, struct weir_decision *out)
{
    struct account_shard *shard = account_shard(&hybrid->accounts, request->hash);
    lock_take(&shard->mutex);
    struct account *account = account_find(shard, request);
    if (account) {
        const struct lease_rules rules = hybrid_rules(hybrid);
        lease_give_back(&account->lease, &rules, member->order.era, member->asked_us, request->cost);
        account_count_lost(shard, account);
    } else { /* the account was dropped to make room */
        shard->lost += (uint64_t)request->cost;
    }
    lock_give(&shard->mutex);
    out->remaining = min_of(out->limit, out->remaining + request->cost);
}

/* Lease permits for a member whose key is busy and had none. A failure does not matter. */
static void member_lease(struct hybrid *hybrid, const struct weir_backend_request *request, int64_t deadline_us)
{
    const int64_t now_us = hybrid_time(hybrid, request->now_us);
    struct account_shard *shard = account_shard(&hybrid->accounts, request->hash);
    struct lease_call *call = NULL;
    struct lease_order order = { .ahead = 0 };
    lock_take(&shard->mutex);
    struct account *account = request_account(hybrid, shard, request, now_us);
    if (account && account->lease.plan.algorithm != WEIR_LEAKY_BUCKET) {
        if (account->by_caller)
            order = request_make_order(hybrid, account, now_us, 0, 0);
        else
            call = request_call_ahead(hybrid, shard, account, request, now_us);
    }
    lock_give(&shard->mutex);
    lease_call_send(call);
    if (order.ahead == 0)
        return;
    struct weir_backend_request asked = hybrid_remote_request(request, &order);
    struct weir_decision decision, unused;
    asked.reservation = NULL; /* it has been noted */
    if (hybrid->remote->ops->decide(hybrid->remote, &asked, 1, false, deadline_us, &decision) == WEIR_OK)
        request_answered_in_group(hybrid, request, &order, now_us, &decision, &unused);
    else
        request_failed(hybrid, request, &order);
}

/* A group. The arrays have room for n. */
struct group {
    const struct weir_backend_request *requests;
    size_t n;
    bool denied; /* a member is */
    struct weir_decision *out;
    struct member *members;
    struct weir_backend_request *asked; /* what the remote is asked in one call */
    struct weir_decision *decisions;    /* its answers */
};

/* True if the remote is asked about a member. A group that is denied asks only about members of which nothing is
 * known. */
static bool member_is_asked(const struct group *group, const struct member *member)
{
    return member->answer == LEASE_UNDECIDED && !(group->denied && member->is_known);
}

/* Ask the remote about the undecided members: for all or nothing, or by a peek if the group is denied already. */
static int members_ask(struct hybrid *hybrid, struct group *group, int64_t deadline_us)
{
    struct weir_backend *remote = hybrid->remote;
    size_t count = 0;
    for (size_t i = 0; i < group->n; i++) {
        if (!member_is_asked(group, &group->members[i]))
            continue;
        group->asked[count] = group->requests[i];
        group->asked[count].verb = group->denied ? WEIR_PEEK : WEIR_TAKE;
        group->decisions[count++].source = WEIR_BY_NOBODY;
    }
    if (count == 0)
        return WEIR_OK;
    const int error = remote->ops->decide(remote, group->asked, count, !group->denied, deadline_us, group->decisions);
    bool allowed = !error && !group->denied;
    for (size_t k = 0; allowed && k < count; k++)
        allowed = group->decisions[k].allowed;
    count = 0;
    for (size_t i = 0; !error && i < group->n; i++) {
        const struct member *member = &group->members[i];
        if (!member_is_asked(group, member))
            continue;
        request_answered_in_group(hybrid, &group->requests[i], &member->order, member->asked_us,
                                  &group->decisions[count++], &group->out[i]);
        if (allowed && !group->requests[i].slot)
            member_lease(hybrid, &group->requests[i], deadline_us);
    }
    return error;
}

static int group_decide(struct hybrid *hybrid, struct group *group, int64_t deadline_us)
{
    for (size_t i = 0; i < group->n; i++) {
        group->members[i] = member_decide(hybrid, &group->requests[i], &group->out[i]);
        group->denied = group->denied || group->members[i].answer == LEASE_DENIED;
    }
    const int error = members_ask(hybrid, group, deadline_us);
    bool denied = group->denied;
    for (size_t i = 0; !error && i < group->n; i++)
        denied = denied || !group->out[i].allowed;
    for (size_t i = 0; (error || denied) && i < group->n; i++)
        if (group->members[i].answer == LEASE_SPENT)
            member_give_back(hybrid, &group->requests[i], &group->members[i], &group->out[i]);
    return error;
}

int hybrid_decide_all(struct hybrid *hybrid, const struct weir_backend_request *requests, size_t n, int64_t deadline_us,
                      struct weir_decision *out)
{
    struct group group = { .requests = requests, .n = n, .out = out };
    /* Not on the caller's stack, which may be small. */
    group.members = malloc(n * (sizeof *group.members + sizeof *group.asked + sizeof *group.decisions));
    if (!group.members)
        return WEIR_ENOMEM;
    group.asked = (struct weir_backend_request *)(void *)(group.members + n);
    group.decisions = (struct weir_decision *)(void *)(group.asked + n);
    const int error = group_decide(hybrid, &group, deadline_us);
    free(group.members);
    return error;
}
