/* sliding_window.c - `limit` permits in any window of length `period`.
 *
 * Time is cut into blocks of b = ceil(period / blocks); a block's id is floor(now / b). The current block and the
 * `blocks` before it are counted. They cover every instant of the last period, so the promise holds exactly; the price
 * is that a permit returns up to one block late. (Counting only `blocks` of them, as common scripts do, lets up to
 * twice the limit pass in one period.)
 *
 *     s = sum of the counts of blocks cur-blocks .. cur;  allowed = s + cost <= limit
 *     retry_after = (cur + k)*b - now, k least with s - (the k oldest counts) + cost <= limit
 *
 * A refund takes from the oldest block that counts. Whichever permits it was for, those that remain stay in use at
 * least as long as they must, so the promise holds. A return knows when its permits were charged. It takes from that
 * block and, if refunds have left too few there, from older ones.
 *
 * State: id of the newest block that was charged, then blocks+1 counts: count i is that of block newest - i. If the limit
 * has 32 bits, so have the counts, and two share a word. Otherwise each has a word.
 */
#include "core/algorithm/sliding_window.h"

#include "core/algorithm/algorithm.h"
#include "core/algorithm/top.h"
#include "core/ground/arith.h"

#include <string.h>

struct sliding {
    int64_t current; /* the block of now, or the newest one while a clock that stepped back is held */
    int64_t age;     /* current - newest: counts[0 .. blocks-age] are valid */
    int64_t sum;
    bool rebased;
};

/* Return the sum of the counts from `first` to `last`. */
static int64_t counts_sum(const struct weir_plan *plan, const int64_t *state, int64_t first, int64_t last)
{
    const sliding_half *counts = (const sliding_half *)(state + 1);
    int64_t sum = 0;
    if (sliding_is_wide(plan))
        for (int64_t i = first; i <= last; i++)
            sum += state[1 + i];
    else
        for (int64_t i = first; i <= last; i++)
            sum += counts[i];
    return sum;
}

/* Make `n` counts those from `to` on that were those from `from` on. */
static void counts_move(const struct weir_plan *plan, int64_t *state, size_t to, size_t from, size_t n)
{
    const size_t width = sliding_is_wide(plan) ? sizeof *state : sizeof(sliding_half);
    char *counts = (char *)(state + 1);
    memmove(counts + to * width, counts + from * width, n * width);
}

static struct sliding sliding_read(const struct weir_plan *plan, const int64_t *state, int64_t now_us)
{
    struct sliding window = { .current = div_down(now_us, plan->period_us) };
    int64_t anchor_us = state[0] * plan->period_us;

    if (now_us >= anchor_us)
        window.age = window.current - state[0];
    window.sum = counts_sum(plan, state, 0, plan->blocks - window.age);
    if (now_us < anchor_us && window.sum > 0) {
        window.rebased = anchor_us - now_us > sliding_slack_us(plan);
        if (!window.rebased)
            window.current = state[0];
    }
    return window;
}

/* Rebase: the newest block becomes the current one, and each older one moves up behind it, by a block more than the
 * clock went back. (Otherwise a permit that was used late in the block before the newest, and then rebased late in the
 * current one, would come back within the period.) */
static void sliding_rebase(const struct weir_plan *plan, int64_t *state, struct sliding *window)
{
    sliding_count_set(plan, state, 1, sliding_count(plan, state, 0) + sliding_count(plan, state, 1));
    counts_move(plan, state, 0, 1, (size_t)plan->blocks);
    sliding_count_set(plan, state, plan->blocks, 0);
    state[0] = window->current;
    window->rebased = false;
}

/* The id of the block that count i is of, a rebase that is not written yet included. */
static int64_t sliding_id(const struct sliding *window, int64_t i)
{
    return window->current - window->age - i + (window->rebased && i > 0);
}

/* Move the state on to the current block: drop counts that are too old, insert empty blocks. */
static void sliding_advance(const struct weir_plan *plan, int64_t *state, struct sliding *window)
{
    size_t kept = window->sum > 0 ? (size_t)(plan->blocks + 1 - window->age) : 0;
    size_t empty = (size_t)(plan->blocks + 1) - kept;
    if (empty > 0) {
        counts_move(plan, state, empty, 0, kept);
        memset(state + 1, 0, empty * (sliding_is_wide(plan) ? sizeof *state : sizeof(sliding_half)));
    }
    state[0] = window->current;
    window->age = 0;
}

static void sliding_take(const struct weir_plan *plan, int64_t *state, struct sliding *window, int64_t cost)
{
    sliding_count_set(plan, state, 0, sliding_count(plan, state, 0) + cost);
    window->sum += cost;
}

/* Take up to `cost` permits out of count i, and return how many are left to take. */
static int64_t sliding_drop(const struct weir_plan *plan, int64_t *state, struct sliding *window, int64_t i,
                            int64_t cost)
{
    const int64_t permits = sliding_count(plan, state, i), part = min_of(cost, permits);
    sliding_count_set(plan, state, i, permits - part);
    window->sum -= part;
    return cost - part;
}

static void sliding_refund(const struct weir_plan *plan, int64_t *state, struct sliding *window, int64_t cost)
{
    int64_t left = min_of(cost, window->sum);
    for (int64_t i = plan->blocks - window->age; left > 0; i--)
        left = sliding_drop(plan, state, window, i, left);
}

/* Without a block of `since_us` that counts, the permits have come back by themselves, by a reset, or the clock has
 * stepped back: nothing is given back. */
static void sliding_give_back(const struct weir_plan *plan, int64_t *state, struct sliding *window, int64_t since_us,
                              int64_t cost)
{
    const int64_t first = state[0] - div_down(since_us, plan->period_us);
    for (int64_t i = first, left = cost; first >= 0 && i <= plan->blocks - window->age && left > 0; i++)
        left = sliding_drop(plan, state, window, i, left);
}

/* Return when the `permits` oldest of those in use stop counting. A block stops once `blocks` newer ones precede the
 * current one. */
static int64_t freed_at_us(const struct weir_plan *plan, const int64_t *state, const struct sliding *window,
                           int64_t permits)
{
    int64_t i = plan->blocks - window->age;
    for (int64_t freed = sliding_count(plan, state, i); freed < permits; freed += sliding_count(plan, state, i))
        i--;
    return (sliding_id(window, i) + plan->blocks + 1) * plan->period_us;
}

/* Return when the last of the permits in use stops counting; there are some. That is when the newest block stops: on a
 * busy key it is the first block looked at, and freed_at_us() would find it last. */
static int64_t empty_at_us(const struct weir_plan *plan, const int64_t *state, const struct sliding *window)
{
    int64_t i = 0;
    while (sliding_count(plan, state, i) == 0)
        i++;
    return (sliding_id(window, i) + plan->blocks + 1) * plan->period_us;
}

void sliding_summary_close(const struct weir_plan *plan, const int64_t *state, int64_t words[SLIDING_SUMMARY_WORDS])
{
    assert(!sliding_is_wide(plan));
    const struct sliding_summary summary = { .id = state[0],
                                             .newest = (uint32_t)sliding_count(plan, state, 0),
                                             .older = (uint32_t)counts_sum(plan, state, 1, plan->blocks) };
    memcpy(words, &summary, sizeof summary);
}

bool sliding_summary_open(const int64_t words[SLIDING_SUMMARY_WORDS], int64_t *state)
{
    struct sliding_summary summary;
    memcpy(&summary, words, sizeof summary);
    sliding_half *counts = (sliding_half *)(state + 1);
    state[0] = summary.id;
    counts[0] = summary.newest;
    if (summary.older == 0)
        counts[1] = 0;
    return summary.older != 0;
}

void sliding_window_charge(const struct weir_plan *plan, int64_t *state, int64_t now_us, int64_t used)
{
    memset(state, 0, sliding_window_words(plan) * sizeof *state);
    state[0] = div_down(now_us, plan->period_us);
    sliding_count_set(plan, state, 0, min_of(used, plan->size));
}

void sliding_window_convert(const struct weir_plan *from, const int64_t *old, const struct weir_plan *to,
                            int64_t now_us, int64_t *state)
{
    struct sliding window = sliding_read(from, old, now_us);
    memmove(state, old, sliding_window_words(from) * sizeof *state);
    if (window.rebased)
        sliding_rebase(from, state, &window);
    for (int64_t i = max_of(0, from->blocks - window.age + 1); i <= from->blocks; i++)
        sliding_count_set(from, state, i, 0); /* a smaller plan may not be able to hold them */
    sliding_refund(from, state, &window, max_of(0, window.sum - to->size));
}

void sliding_window_fill(const struct weir_plan *plan, int64_t *state, int64_t now_us, int64_t permits)
{
    struct sliding window = sliding_read(plan, state, now_us);
    const int64_t full = max_of(plan->size, window.sum), most = min_of(permits, full);
    if (window.rebased)
        sliding_rebase(plan, state, &window);
    sliding_advance(plan, state, &window);
    sliding_refund(plan, state, &window, max_of(0, window.sum + most - full));
    sliding_take(plan, state, &window, most);
}

int64_t sliding_window_used(const struct weir_plan *plan, const int64_t *state, int64_t *now_us)
{
    struct sliding window = sliding_read(plan, state, *now_us);
    *now_us = max_of(*now_us, window.current * plan->period_us);
    return window.sum;
}

int64_t sliding_window_edge_us(const struct weir_plan *plan, const int64_t *state, int64_t now_us)
{
    const struct sliding window = sliding_read(plan, state, now_us);
    return max_of(0, window.current - plan->blocks) * plan->period_us;
}

int64_t sliding_window_fresh_at_us(const struct weir_plan *plan, const int64_t *state)
{
    struct sliding window = sliding_read(plan, state, state[0] * plan->period_us);
    return window.sum > 0 ? empty_at_us(plan, state, &window) : 0;
}

/* Fill *out, except the fields that only a denial has. */
static void sliding_tell(const struct weir_plan *plan, const int64_t *state, const struct sliding *window,
                         int64_t now_us, struct weir_decision *out)
{
    *out = (struct weir_decision){
        .allowed = true,
        .limit = plan->size,
        .remaining = max_of(0, plan->size - window->sum),
        .reset_after_us = window->sum > 0 ? empty_at_us(plan, state, window) - now_us : 0,
    };
}

void sliding_window_return(const struct weir_plan *plan, int64_t *state, int64_t now_us, int64_t since_us, int64_t cost,
                           struct weir_decision *out)
{
    struct sliding window = sliding_read(plan, state, now_us);
    if (window.rebased)
        sliding_rebase(plan, state, &window);
    sliding_give_back(plan, state, &window, since_us, cost);
    sliding_tell(plan, state, &window, now_us, out);
}

bool sliding_window_decide(const struct weir_plan *plan, int64_t *state, int64_t now_us, int64_t cost,
                           enum weir_verb verb, struct weir_decision *out)
{
    struct sliding window = sliding_read(plan, state, now_us);
    const int64_t fits = verb == WEIR_CHARGE ? min_of(cost, state_top(plan) - window.sum) : cost;
    const bool takes = verb == WEIR_TAKE || (verb == WEIR_CHARGE && fits > 0);
    bool allowed = verb == WEIR_REFUND || verb == WEIR_CHARGE || window.sum + cost <= plan->size;
    bool changed = verb != WEIR_PEEK && (allowed || window.rebased);
    int64_t retry_after_us = 0;

    if (changed && window.rebased)
        sliding_rebase(plan, state, &window);
    if (takes && allowed)
        sliding_advance(plan, state, &window);
    if (cost > plan->size && !allowed)
        retry_after_us = WEIR_NEVER;
    else if (!allowed)
        retry_after_us = freed_at_us(plan, state, &window, window.sum + cost - plan->size) - now_us;
    else if (takes)
        sliding_take(plan, state, &window, fits);
    else if (verb == WEIR_REFUND)
        sliding_refund(plan, state, &window, cost);

    sliding_tell(plan, state, &window, now_us, out);
    out->allowed = allowed;
    out->retry_after_us = retry_after_us;
    out->ahead = cost - fits;
    return changed;
}
