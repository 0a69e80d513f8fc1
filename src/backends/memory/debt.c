/* debt.c - what a fallback has admitted of a key in addition to its cold state, and which keys it has.
 *
 * A walk visits the shards in order, and the buckets of a shard in the order of their bit-reversed number. A
 * table that grows divides each bucket into two neighbours in that order. So a place in the walk stays valid:
 * nothing is skipped and nothing passed comes again. (P. Noordhuis, the SCAN command of Redis.) */
#include "backends/memory/parts.h"

#include "core/algorithm/level.h"
#include "core/ground/arith.h"

#define PLACE_BITS 32 /* bits of a place for the bit-reversed bucket; the shard's index is above them */

/* Return the permits used beyond the cold state, which is made from the permits that were left when the entry began.
 * Both levels are read at one time, even if the entry's clock is ahead. A fallback's plans are all buckets that count
 * in units. */
static int64_t entry_debt(const struct memory *memory, const struct entry *entry,
                          const struct weir_backend_request *request)
{
    int64_t cold[3];
    const int64_t *state = entry_state(entry, 0);
    struct weir_backend_request missing = *request;
    const struct weir_plan *plan = &entry_rule(&memory->table, entry)->plan;
    assert(state_words(plan) == 3);
    missing.cold_left = state[2];
    missing_state(&missing, plan, cold);
    const struct level level = level_read(plan, state, request->now_us);
    const struct level none = level_read(plan, cold, max_of(request->now_us, level.tick * plan->tick_us));
    return div_up(max_of(0, level.used - none.used), plan->q);
}

int64_t memory_debt(struct weir_backend *backend, const struct weir_backend_request *request)
{
    struct memory *memory = (struct memory *)backend;
    struct shard *shard = table_shard(&memory->table, request->hash);
    lock_take(&shard->mutex);
    struct entry *entry = shard_find(&memory->table, shard, request);
    int64_t debt = entry ? entry_debt(memory, entry, request) : 0;
    if (entry)
        entry_let_go(&memory->table, entry);
    lock_give(&shard->mutex);
    return debt;
}

int64_t memory_pay(struct weir_backend *backend, const struct weir_backend_request *request, int64_t permits)
{
    struct memory *memory = (struct memory *)backend;
    struct shard *shard = table_shard(&memory->table, request->hash);
    struct weir_backend_request paid = *request;
    struct weir_decision decision;
    paid.verb = WEIR_REFUND;
    paid.cost = permits;
    lock_take(&shard->mutex);
    struct entry *entry = shard_find(&memory->table, shard, request);
    const int64_t debt = entry ? entry_debt(memory, entry, request) : 0;
    if (entry && debt <= permits)
        shard_remove(&memory->table, shard, entry);
    else if (entry && (permits == 0 || decide_entry(memory, shard, &paid, entry, &decision)))
        entry_let_go(&memory->table, entry);
    lock_give(&shard->mutex);
    return max_of(0, debt - permits);
}

static uint32_t debt_reversed(uint32_t bits)
{
    bits = (bits >> 1 & 0x55555555) | (bits & 0x55555555) << 1;
    bits = (bits >> 2 & 0x33333333) | (bits & 0x33333333) << 2;
    bits = (bits >> 4 & 0x0f0f0f0f) | (bits & 0x0f0f0f0f) << 4;
    return __builtin_bswap32(bits);
}

#define WORK_OF_KEY 64 /* in buckets, because empty ones take time, too */

struct walk {
    const struct table *table;
    uint32_t tag;
    size_t left; /* work that may still be done */
    bool (*visit)(void *user, uint32_t limit_id, struct weir_key key);
    void *user;
};

/* Visit the keys of a bucket. False: the visitor stopped. */
static bool debt_walk_bucket(struct walk *walk, const UT_hash_bucket *bucket)
{
    for (const UT_hash_handle *handle = bucket->hh_head; handle; handle = handle->hh_next) {
        const struct entry *entry = (const struct entry *)(const void *)handle; /* its first member */
        if (handle->keylen == 0)                                                /* the shard's sentinel */
            continue;
        walk->left -= walk->left < WORK_OF_KEY ? walk->left : WORK_OF_KEY;
        const struct rule *rule = entry_rule(walk->table, entry);
        const uint32_t limit_id = (uint32_t)rule->key.limit_id;
        if (limit_id >> OUTAGE_TAG_BIT == walk->tag &&
            !walk->visit(
                walk->user, limit_id,
                weir_key((const void *)&entry->record->words[entry_key_at(entry, rule->words)], entry_key_len(entry))))
            return false;
    }
    return true;
}

/* Visit the keys of a shard from *from on. False: stopped at *from before the shard's end. */
static bool debt_walk_shard(struct walk *walk, struct shard *shard, uint32_t *from)
{
    bool at_end = false, goes_on = true;
    lock_take(&shard->mutex);
    while (!at_end && goes_on) {
        const struct buckets *buckets = &shard->buckets;
        const uint32_t number = linear_number(debt_reversed(*from), buckets->count);
        walk->left -= walk->left > 0;
        goes_on = debt_walk_bucket(walk, &buckets->heads[number]);
        if (goes_on) {
            *from = (uint32_t)(*from + (UINT64_C(1) << PLACE_BITS) / linear_parts(number, buckets->count));
            at_end = *from == 0;
            goes_on = walk->left > 0;
        }
    }
    lock_give(&shard->mutex);
    return at_end;
}

bool memory_debtors(struct weir_backend *backend, uint32_t tag, uint64_t *place, size_t most,
                    bool (*visit)(void *user, uint32_t limit_id, struct weir_key key), void *user)
{
    struct memory *memory = (struct memory *)backend;
    struct walk walk = {
        .table = &memory->table, .tag = tag, .left = most * WORK_OF_KEY, .visit = visit, .user = user
    };
    uint64_t index = *place >> PLACE_BITS;
    uint32_t from = (uint32_t)*place;
    for (; index < memory->table.shard_count; index++, from = 0) {
        const bool at_end = debt_walk_shard(&walk, &memory->table.shards[index], &from);
        *place = at_end ? (index + 1) << PLACE_BITS : index << PLACE_BITS | from;
        if (!at_end || walk.left == 0)
            return *place >> PLACE_BITS < memory->table.shard_count;
    }
    return false;
}
