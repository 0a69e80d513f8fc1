/* take.c - decides the commonest request: permits of a known key, by a token bucket with greedy refill.
 *
 * It takes the steps of short.c for this case alone: from arguments in registers instead of a request in memory, and
 * with nothing to choose. Whatever else it meets it leaves to machine_decide_one(), which begins again.
 */
#include "core/limiter/take.h"
#include "backends/machine/bound.h"
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

/* Take from the key's pair. False: see SHORT_TRIES, or the stripe's lock must decide; nothing changed then. *is_away:
 * the key changed, and is not at home. */
static inline bool take_swap(struct machine *machine, struct machine_stripe *stripe, uint32_t bucket,
                             struct weir_key key, uint64_t what, const struct page *page, uint64_t turn, int64_t cost,
                             int64_t now_us, struct level *level, bool *allowed, bool *is_away)
{
    for (int tries = 0; tries < SHORT_TRIES; tries++) {
        struct sight sight;
        int64_t state[PAIR_WORDS];
        if (__builtin_expect(!short_find(stripe, &machine->shape, key, bucket, what, &sight), 0))
            return false;
        pair_tell(sight.pair, 1, state);
        if (__builtin_expect(pair_is_held(sight.pair) || !state_is_small(page->top, page->last_anchor, state) ||
                                 book_file_turn(&machine->book) != turn,
                             0))
            return false;
        *level = level_read(&page->text.plan, state, now_us);
        *allowed = level_ask(&page->text.plan, level_given(&page->known), level, cost, WEIR_TAKE);
        if (__builtin_expect(level->changed && level->used == 0, 0))
            return false;
        const struct pair to = { (uint64_t)level->used, pair_time_of(sight.pair, level->tick) };
        if (__builtin_expect(level->changed ? pair_swap(stripe, sight.at, sight.pair, to)
                                            : pair_is(stripe, sight.at, sight.pair),
                             1)) {
            *is_away = sight.is_away && level->changed;
            return true;
        }
    }
    return false;
}

/* Decide as one of the book's readers. Return own_taken(), or -1: the stripe's lock must decide. */
static inline int take_inside(struct machine *machine, struct machine_stripe *stripe, uint32_t bucket,
                              struct weir_limit *limit, struct weir_key key, uint64_t hash, int64_t cost,
                              int64_t now_us, bool *is_away, struct weir_decision *out)
{
    uint64_t turn;
    uint32_t number;
    struct level level = { 0, 0, false }; /* for compilers that do not see that take_swap() fills it */
    bool allowed;
    const struct page *page = book_greedy(&machine->book, limit, &number, &turn);
    if (__builtin_expect(!page || cells_for(PAIR_WORDS, key.len) != 1 ||
                             !take_swap(machine, stripe, bucket, key, cell_of_key(hash, number, key.len), page, turn,
                                        cost, now_us, &level, &allowed, is_away),
                         0))
        return -1;
    level_tell_by(&page->text.plan, level_given(&page->known), &level, now_us, cost, allowed, out);
    return own_taken(out);
}

/* Decide by `limit`, which may be an override. Return own_taken() or an error. */
static inline int machine_take(struct machine *machine, struct machine_stripe *stripe, uint32_t bucket,
                               struct weir_limit *limit, struct weir_key key, uint64_t hash, int64_t cost,
                               int64_t now_us, struct weir_decision *out)
{
    _Atomic uint64_t *reader = readers_enter(&machine->book.readers);
    int taken = -1;
    bool is_away = false;
    if (__builtin_expect(reader != NULL, 1)) {
        if (__builtin_expect(machine->file.fd >= 0, 1))
            taken = take_inside(machine, stripe, bucket, limit, key, hash, cost, now_us, &is_away, out);
        const uint64_t reads = readers_leave(reader);
        if (__builtin_expect(is_away, 0))
            machine_rehome_some(machine, limit, key, hash, reads);
    }
    if (__builtin_expect(taken < 0, 0))
        return take_otherwise(limit, key, hash, cost, now_us, out);
    return __builtin_expect(guard_is_lost(machine->file.guard), 0) ? machine_lost(machine) : taken;
}

__attribute__((always_inline)) static inline int machine_take_counted(struct weir_limit *limit, struct weir_key key,
                                                                      uint64_t hash, int64_t cost, int64_t now_us,
                                                                      struct weir_decision *out)
{
    struct machine *machine = (struct machine *)limit->limiter->backend;
    struct machine_stripe *stripe = machine_stripe_of(machine, hash);
    const uint32_t bucket = bucket_of(&machine->shape, hash);
    machine_fetch(machine, stripe, bucket); /* it arrives while the clock is read */
    limit = limit_for_key(limit, key, hash);
    const int error = take_time(limit, &now_us);
    const int taken = error ? error : machine_take(machine, stripe, bucket, limit, key, hash, cost, now_us, out);
    return take_counted(limit, key, hash, cost, now_us, taken, out);
}

int machine_try(struct weir_limit *limit, struct weir_key key, int64_t cost, int64_t now_us, struct weir_decision *out)
{
    const int error = take_check_key(limit, key, cost, now_us, out);
    return error ? error : machine_take_counted(limit, key, key_hash(limit, key), cost, now_us, out);
}

int machine_try_handle(weir_handle *handle, int64_t cost, int64_t now_us, struct weir_decision *out)
{
    const int error = take_check(handle->limit->limiter, cost, now_us, out);
    return error ? error : machine_take_counted(handle->limit, handle->key, handle->hash, cost, now_us, out);
}
