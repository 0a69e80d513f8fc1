/* take.c - decides the commonest request: permits of a key that is there, by a token bucket with greedy refill.
 *
 * It takes the steps of decide.c for this case alone: from arguments in registers instead of a request in memory, and
 * with nothing to choose. The latch is given back before the decision's other fields are computed. Whatever else
 * it meets it leaves to machine_decide_one(), which begins again.
 */
#include "core/limiter/take.h"
#include "backends/machine/short.h"

/* Decide as machine_decide() does. */
__attribute__((noinline)) static int take_otherwise(struct weir_limit *limit, struct weir_key key, uint64_t hash,
                                                    int64_t cost, int64_t now_us, struct weir_decision *out)
{
    struct weir_backend_request request;
    struct weir_backend *backend = limit->limiter->backend;
    fill_request(&request, limit, key, hash, cost, now_us, WEIR_TAKE);
    const int error = backend->ops->decide(backend, &request, 1, false, INT64_MAX, out);
    return error ? error : own_taken(out);
}

/* Take from the state at a place. False: it is damaged, or the key would be idle; nothing changed then. */
static inline bool take_change(struct machine_stripe *stripe, struct machine_latch *latch, uint64_t at,
                               const struct page *page, int64_t now_us, int64_t cost, struct level *level,
                               bool *allowed)
{
    int64_t state[MACHINE_SMALL_WORDS] = { (int64_t)stripe_load(stripe, at), (int64_t)stripe_load(stripe, at + 1) };
    if (__builtin_expect(!state_is_small(page->top, page->last_anchor, state), 0))
        return false;
    *level = level_read(&page->text.plan, state, now_us);
    *allowed = level_ask(&page->text.plan, level, cost, WEIR_TAKE);
    if (!level->changed)
        return true;
    if (__builtin_expect(level->used == 0, 0))
        return false;
    state[0] = level->used;
    state[1] = level->tick;
    latch_write(stripe, latch, at, state, MACHINE_SMALL_WORDS);
    return true;
}

/* Decide by `limit`, which may be an override. Return own_taken() or an error. */
static inline int machine_take(struct weir_limit *limit, struct weir_key key, uint64_t hash, int64_t cost,
                               int64_t now_us, struct weir_decision *out)
{
    struct machine *machine = (struct machine *)limit->limiter->backend;
    struct machine_stripe *stripe = machine_stripe_of(machine, hash);
    const uint32_t bucket = bucket_of(&machine->shape, hash);
    struct machine_latch *latch = latch_of(stripe, bucket);
    uint64_t turn;
    uint32_t number;
    machine_fetch(machine, stripe, bucket);
    const struct page *page = book_greedy(&machine->book, limit, &number, &turn);
    if (__builtin_expect(!page || cells_for(MACHINE_SMALL_WORDS, key.len) != 1 || machine->file.fd < 0, 0))
        return take_otherwise(limit, key, hash, cost, now_us, out);
    if (__builtin_expect(!short_enter(&machine->file, latch), 0))
        return take_otherwise(limit, key, hash, cost, now_us, out);
    struct level level;
    bool allowed = false, is_done = false;
    if (__builtin_expect(book_file_turn(&machine->book) == turn, 1)) {
        const uint64_t at = short_find(stripe, &machine->shape, key, bucket, cell_of_key(hash, number, key.len));
        is_done = at != 0 && take_change(stripe, latch, at, page, now_us, cost, &level, &allowed);
    }
    short_leave(latch);
    if (__builtin_expect(!is_done, 0))
        return take_otherwise(limit, key, hash, cost, now_us, out);
    if (__builtin_expect(guard_is_lost(machine->file.guard), 0))
        return machine_lost(machine);
    level_tell_by(&page->text.plan, true, page->inverse, &level, now_us, cost, allowed, out);
    return own_taken(out);
}

static inline int machine_take_counted(struct weir_limit *limit, struct weir_key key, uint64_t hash, int64_t cost,
                                       int64_t now_us, struct weir_decision *out)
{
    limit = limit_for_key(limit, key, hash);
    const int error = take_time(limit, &now_us);
    const int taken = error ? error : machine_take(limit, key, hash, cost, now_us, out);
    return take_counted(limit, key, hash, cost, now_us, taken, out);
}

int machine_try(struct weir_limit *limit, struct weir_key key, int64_t cost, int64_t now_us, struct weir_decision *out)
{
    return machine_take_counted(limit, key, key_hash(limit, key), cost, now_us, out);
}

int machine_try_handle(weir_handle *handle, int64_t cost, int64_t now_us, struct weir_decision *out)
{
    return machine_take_counted(handle->limit, handle->key, handle->hash, cost, now_us, out);
}
