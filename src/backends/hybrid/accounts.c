/* accounts.c - finding, adding and dropping accounts. */
#include "backends/hybrid/accounts.h"

#include <string.h>

#define SWEEP_STEPS 2 /* accounts that a new one sweeps */
#define ROOM_STEPS 64 /* accounts of a shard that are swept at a time when there is no room */

void accounts_init(struct accounts *accounts, int64_t max_keys, int64_t max_bytes, int64_t asking_us)
{
    *accounts = (struct accounts){ .max = max_keys, .asking_us = asking_us, .budget.max = max_bytes };
    slab_init(&accounts->slab, &accounts->budget);
    for (size_t i = 0; i < HYBRID_SHARDS; i++)
        lock_init(&accounts->shards[i].mutex);
}

static size_t account_bytes(size_t key_len)
{
    return sizeof(struct account) + key_len;
}

static void account_drop(struct accounts *accounts, struct account_shard *shard, struct account *account)
    REQUIRES(shard->mutex)
{
    account_forget_lease(shard, account);
    if (shard->hand == account)
        shard->hand = account->hh.next;
    HASH_DEL(shard->accounts, account);
    slab_give(&accounts->slab, account, account_bytes(account->hh.keylen));
    atomic_fetch_sub_explicit(&accounts->count, 1, memory_order_relaxed);
}

/* No other thread uses the accounts any more: no lock is taken. */
static void account_shard_free(struct accounts *accounts, struct account_shard *shard) UNCHECKED
{
    struct account *account, *next;
    HASH_ITER(hh, shard->accounts, account, next)
        account_drop(accounts, shard, account);
    lock_destroy(&shard->mutex);
}

void accounts_free(struct accounts *accounts)
{
    for (size_t i = 0; i < HYBRID_SHARDS; i++)
        account_shard_free(accounts, &accounts->shards[i]);
    slab_destroy(&accounts->slab);
}

struct account *account_find(struct account_shard *shard, const struct weir_backend_request *request)
{
    const unsigned hash = (unsigned)request->hash;
    if (!shard->accounts)
        return NULL;
    const UT_hash_table *table = shard->accounts->hh.tbl;
    UT_hash_handle *handle = table->buckets[hash & (table->num_buckets - 1)].hh_head;
    for (; handle; handle = handle->hh_next) {
        if (handle->hashv != hash || handle->keylen != request->key.len)
            continue;
        struct account *account = (struct account *)handle; /* its first member */
        if (account->limit_id == request->limit_id && memcmp(account->key, request->key.data, request->key.len) == 0)
            return account;
    }
    return NULL;
}

/* Look for an idle account among the next `steps` and drop it. If there is none and `any` is set, drop the last
 * one seen that has no call under way. True if one was dropped. */
static bool accounts_sweep(struct accounts *accounts, struct account_shard *shard, int64_t now_us, bool by_caller,
                           unsigned steps, bool any) REQUIRES(shard->mutex)
{
    struct account *victim = NULL;
    for (; steps > 0 && shard->accounts; steps--) {
        struct account *account = shard->hand ? shard->hand : shard->accounts;
        shard->hand = account->hh.next;
        if (account->call)
            continue;
        victim = account;
        if (account->by_caller == by_caller && lease_is_idle(&account->lease, now_us, accounts->asking_us)) {
            account_drop(accounts, shard, account);
            return true;
        }
    }
    if (any && victim)
        account_drop(accounts, shard, victim);
    return any && victim;
}

/* Put a copy of an account in the place of the original in the shard's table. */
static void account_relink(struct account_shard *shard, const struct account *account, struct account *copy)
    REQUIRES(shard->mutex)
{
    UT_hash_handle *hh = &copy->hh, *next = hh->next, *previous = hh->prev; /* accounts begin with their handles */
    hh->key = copy->key;
    if (hh->hh_prev)
        hh->hh_prev->hh_next = hh;
    else
        hh->tbl->buckets[hh->hashv & (hh->tbl->num_buckets - 1)].hh_head = hh;
    if (hh->hh_next)
        hh->hh_next->hh_prev = hh;
    if (previous)
        previous->next = copy;
    else
        shard->accounts = copy;
    if (next)
        next->prev = copy;
    else
        hh->tbl->tail = hh;
    if (shard->hand == account)
        shard->hand = copy;
}

static void account_move(void *user, unsigned owner, void *from)
{
    struct accounts *accounts = user;
    struct account_shard *shard = &accounts->shards[owner];
    struct account *account = from;
    void *to;
    lock_take(&shard->mutex);
    const bool is_owned = slab_is_owned(&accounts->slab, account, owner);
    const size_t bytes = is_owned ? account_bytes(account->hh.keylen) : 0;
    if (is_owned && slab_take(&accounts->slab, bytes, owner, &to) == SLAB_OK) {
        account_relink(shard, account, memcpy(to, account, bytes));
        slab_give(&accounts->slab, account, bytes);
    }
    lock_give(&shard->mutex);
}

bool accounts_make_room(struct accounts *accounts, size_t key_len, int64_t now_us, bool by_caller)
{
    const bool has_room = slab_has_room(&accounts->slab, account_bytes(key_len));
    if (atomic_load_explicit(&accounts->count, memory_order_relaxed) < accounts->max &&
        (has_room || slab_pack(&accounts->slab, account_move, accounts)))
        return true;
    const unsigned first = atomic_fetch_add_explicit(&accounts->turn, 1, memory_order_relaxed);
    for (unsigned i = 0; i < HYBRID_SHARDS; i++) {
        struct account_shard *shard = &accounts->shards[(first + i) % HYBRID_SHARDS];
        lock_take(&shard->mutex);
        const bool dropped = accounts_sweep(accounts, shard, now_us, by_caller, ROOM_STEPS, true);
        lock_give(&shard->mutex);
        if (dropped)
            return true;
    }
    return false;
}

struct account *account_add(struct accounts *accounts, struct account_shard *shard, const struct lease_rules *rules,
                            const struct weir_backend_request *request, int64_t now_us)
{
    const bool by_caller = request->now_us != WEIR_OWN_CLOCK;
    const unsigned owner = (unsigned)(shard - accounts->shards);
    void *memory;
    if (!accounts->keep_idle)
        accounts_sweep(accounts, shard, now_us, by_caller, SWEEP_STEPS, false);
    if (atomic_load_explicit(&accounts->count, memory_order_relaxed) >= accounts->max ||
        slab_take(&accounts->slab, account_bytes(request->key.len), owner, &memory) != SLAB_OK)
        return NULL;
    struct account *account = memory;
    memset(account, 0, sizeof *account);
    account->limit = request->limit;
    account->hash = request->hash;
    account->limit_id = request->limit_id;
    account->by_caller = by_caller;
    memcpy(account->key, request->key.data, request->key.len);
    HASH_ADD_KEYPTR_BYHASHVALUE(hh, shard->accounts, account->key, request->key.len, (unsigned)request->hash, account);
    if (!account->hh.tbl) {
        slab_give(&accounts->slab, account, account_bytes(request->key.len));
        return NULL;
    }
    atomic_fetch_add_explicit(&accounts->count, 1, memory_order_relaxed);
    struct weir_plan plan;
    const uint64_t version = weir_request_plan(request, &plan);
    account->lease.era = shard->eras++ << 32;
    lease_renew(&account->lease, rules, &plan, version);
    return account;
}

void account_keep_up(struct account_shard *shard, struct account *account, const struct lease_rules *rules,
                     const struct weir_backend_request *request)
{
    struct weir_plan plan;
    const uint64_t version = weir_request_plan(request, &plan);
    const bool by_caller = request->now_us != WEIR_OWN_CLOCK;
    account->limit = request->limit;
    if (memcmp(&plan, &account->lease.plan, sizeof plan) == 0) {
        lease_keep(&account->lease, version);
    } else if (version != account->lease.version) {
        lease_renew(&account->lease, rules, &plan, version);
        account_count_lost(shard, account);
    }
    if (account->by_caller != by_caller) {
        account_forget_times(shard, account);
        account->by_caller = by_caller;
    }
}

void account_forget_times(struct account_shard *shard, struct account *account)
{
    account_forget_lease(shard, account);
    account->lease.turn_us = 0;
}

void account_answered(struct account_shard *shard, struct account *account, const struct lease_rules *rules,
                      const struct lease_order *order, int64_t asked_us, int64_t now_us,
                      const struct weir_decision *decision, bool uses)
{
    const int64_t granted = lease_granted(order, decision);
    shard->leased += (uint64_t)granted;
    if (account) {
        if (uses && order->whole && decision->allowed && order->era == account->lease.era) {
            lease_left(&account->lease, now_us); /* what has ended by now does not become young again */
            lease_used(&account->lease, asked_us, now_us, order->cost);
        }
        lease_answered(&account->lease, rules, order, asked_us, now_us, decision);
        account_count_lost(shard, account);
    } else {
        shard->lost += (uint64_t)granted;
    }
}

void account_count_lost(struct account_shard *shard, struct account *account)
{
    shard->lost += account->lease.lost;
    account->lease.lost = 0;
}

void account_forget_lease(struct account_shard *shard, struct account *account)
{
    lease_forget(&account->lease);
    account_count_lost(shard, account);
}
