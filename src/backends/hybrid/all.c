/* all.c - decides for a group: all or nothing.
 *
 * It takes what leases can give and asks the remote for the other members in one step. If the remote denies one,
 * or fails, the leases get their permits back. A leaky bucket's permits are departure times, which cannot be
 * given back, so the remote is always asked for them. */
#include "backends/hybrid/each.h"
#include "backends/hybrid/request.h"

#include <assert.h>

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
    lock_take(&shard->mutex);
    struct account *account = request_account(hybrid, shard, request, true, now_us);
    if (account) {
        lease_count(&account->lease, &hybrid->rules, now_us, request->cost);
        const bool spends = account->lease.plan.algorithm != WEIR_LEAKY_BUCKET;
        if (spends || lease_decide(&account->lease, now_us, request->cost, WEIR_PEEK, out) == LEASE_DENIED)
            member.answer = request_decide(shard, account, now_us, request->cost, out);
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
    struct account *account = request_account(hybrid, shard, request, false, now_us);
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
    const struct weir_backend_request asked = hybrid_remote_request(request, &order);
    struct weir_decision decision, unused;
    if (hybrid->remote->ops->decide(hybrid->remote, &asked, 1, false, deadline_us, &decision) == WEIR_OK)
        request_answered_in_group(hybrid, request, &order, now_us, &decision, &unused);
    else
        request_failed(hybrid, request, &order);
}

/* Ask the remote about the undecided members: for all or nothing, or by a peek if the group is denied already. */
static int members_ask(struct hybrid *hybrid, const struct weir_backend_request *requests, size_t n,
                       const struct member *members, bool denied, int64_t deadline_us, struct weir_decision *out)
{
    struct weir_backend_request asked[HYBRID_GROUP_MAX];
    struct weir_decision decisions[HYBRID_GROUP_MAX];
    size_t indices[HYBRID_GROUP_MAX], count = 0;
    for (size_t i = 0; i < n; i++) {
        if (members[i].answer != LEASE_UNDECIDED || (denied && members[i].is_known))
            continue;
        indices[count] = i;
        asked[count] = requests[i];
        asked[count].verb = denied ? WEIR_PEEK : WEIR_TAKE;
        decisions[count++].source = WEIR_BY_NOBODY;
    }
    if (count == 0)
        return WEIR_OK;
    const int error = hybrid->remote->ops->decide(hybrid->remote, asked, count, !denied, deadline_us, decisions);
    bool allowed = !error && !denied;
    for (size_t k = 0; allowed && k < count; k++)
        allowed = decisions[k].allowed;
    for (size_t k = 0; !error && k < count; k++) {
        const size_t i = indices[k];
        request_answered_in_group(hybrid, &requests[i], &members[i].order, members[i].asked_us, &decisions[k], &out[i]);
        if (allowed)
            member_lease(hybrid, &requests[i], deadline_us);
    }
    return error;
}

int hybrid_decide_all(struct hybrid *hybrid, const struct weir_backend_request *requests, size_t n, int64_t deadline_us,
                      struct weir_decision *out)
{
    struct member members[HYBRID_GROUP_MAX];
    bool denied = false;
    assert(n <= HYBRID_GROUP_MAX);
    for (size_t i = 0; i < n; i++) {
        members[i] = member_decide(hybrid, &requests[i], &out[i]);
        denied = denied || members[i].answer == LEASE_DENIED;
    }
    const int error = members_ask(hybrid, requests, n, members, denied, deadline_us, out);
    for (size_t i = 0; !error && i < n; i++)
        denied = denied || !out[i].allowed;
    for (size_t i = 0; (error || denied) && i < n; i++)
        if (members[i].answer == LEASE_SPENT)
            member_give_back(hybrid, &requests[i], &members[i], &out[i]);
    return error;
}
