/* figures.c - makes the blocks in which threads count, and adds them up. */
#include "core/limiter/figures.h"

#include <stdlib.h>

/* Return the block that the calling thread may add to; *is_own: no other thread adds to it. */
static struct figures *figures_find(struct weir_limit *limit, bool *is_own)
{
    const unsigned stripe = stats_stripe();
    struct figures *found = atomic_load_explicit(&limit->figures[stripe + 1], memory_order_acquire);
    *is_own = stripe != STATS_SHARED_STRIPE;
    if (!found && *is_own) {
        found = aligned_alloc(alignof(struct figures), sizeof *found);
        if (found) {
            memset(found, 0, sizeof *found);
            atomic_store_explicit(&limit->figures[stripe + 1], found, memory_order_release);
        }
    }
    *is_own = *is_own && found;
    return found ? found : &limit->shared_figures;
}

static void figures_add_to(_Atomic uint64_t *count, uint64_t amount, bool is_own)
{
    if (is_own)
        figures_add(count, amount);
    else
        atomic_fetch_add_explicit(count, amount, memory_order_relaxed);
}

static void figures_note(struct weir_limit *limit, int64_t cost, const struct weir_decision *decision, bool in_group)
{
    bool is_own;
    struct figures *figures = figures_find(limit, &is_own);
    _Atomic uint64_t(*answers)[2] = in_group ? figures->in_groups : figures->singles;
    figures_add_to(&answers[decision->source][decision->allowed], 1, is_own);
    /* A shadow that would deny has charged nothing; the first half of a policy with a candidate has. */
    const bool is_charged = !decision->would_deny ||
                            (atomic_load_explicit(&limit->shadow, memory_order_relaxed) & LIMIT_HAS_CANDIDATE);
    if (decision->would_deny)
        figures_add_to(&figures->would_deny, 1, is_own);
    if (decision->allowed && is_charged) {
        figures_add_to(&figures->permits, (uint64_t)cost, is_own);
        figures_add_to(&figures->near, decision->remaining * FIGURES_NEAR < decision->limit, is_own);
    }
}

__attribute__((noinline)) void figures_count_rarely(struct weir_limit *limit, int64_t cost,
                                                    const struct weir_decision *decision)
{
    figures_note(limit, cost, decision, false);
}

void figures_count_member(struct weir_limit *limit, int64_t cost, const struct weir_decision *decision)
{
    figures_note(limit, cost, decision, true);
}

void figures_count_charge(struct weir_limit *limit, int64_t permits)
{
    bool is_own;
    struct figures *figures = figures_find(limit, &is_own);
    figures_add_to(&figures->permits, (uint64_t)permits, is_own);
}

/* ---- Sums ---- */

/* Return the next block from *slot on, with the shared one last; NULL at the end. */
static const struct figures *figures_next(const struct weir_limit *limit, unsigned *slot)
{
    while (*slot < FIGURES_SLOTS) {
        const struct figures *own = atomic_load_explicit(&limit->figures[(*slot)++], memory_order_acquire);
        if (own)
            return own;
    }
    return (*slot)++ == FIGURES_SLOTS ? &limit->shared_figures : NULL;
}

void figures_sum(const struct weir_limit *limit, struct weir_limit_stats *out)
{
    unsigned slot = 0;
    *out = (struct weir_limit_stats){ .size = out->size };
    for (const struct figures *block; (block = figures_next(limit, &slot));) {
        out->would_deny += atomic_load_explicit(&block->would_deny, memory_order_relaxed);
        out->permits += atomic_load_explicit(&block->permits, memory_order_relaxed);
        out->near += atomic_load_explicit(&block->near, memory_order_relaxed);
        for (int source = 0; source < WEIR_SOURCES_LEN; source++) {
            uint64_t counts[2];
            for (int allowed = 0; allowed < 2; allowed++)
                counts[allowed] = atomic_load_explicit(&block->singles[source][allowed], memory_order_relaxed) +
                                  atomic_load_explicit(&block->in_groups[source][allowed], memory_order_relaxed);
            out->denied += counts[0];
            out->allowed += counts[1];
            out->by_source[source] += counts[0] + counts[1];
        }
    }
}

/* Add a target's single requests to the two counts: denied ones, admitted ones. */
static void figures_add_singles(const struct weir_limit *target, uint64_t counts[2])
{
    unsigned slot = 0;
    for (const struct figures *block; (block = figures_next(target, &slot));)
        for (int source = 0; source < WEIR_SOURCES_LEN; source++)
            for (int allowed = 0; allowed < 2; allowed++)
                counts[allowed] += atomic_load_explicit(&block->singles[source][allowed], memory_order_relaxed);
}

void figures_retire(struct weir *limiter, struct weir_limit *limit)
{
    figures_add_singles(limit, limiter->retired);
    figures_free(limit);
    for (unsigned slot = 0; slot < FIGURES_SLOTS; slot++)
        atomic_store_explicit(&limit->figures[slot], NULL, memory_order_relaxed);
    memset(&limit->shared_figures, 0, sizeof limit->shared_figures);
}

void figures_count_singles(const struct weir *limiter, uint64_t *allowed, uint64_t *denied)
{
    uint64_t counts[2] = { limiter->retired[0], limiter->retired[1] };
    for (const struct weir_limit *target = limiter->first_target; target; target = target->next_target)
        figures_add_singles(target, counts);
    *denied += counts[0];
    *allowed += counts[1];
}

void figures_free(struct weir_limit *limit)
{
    for (unsigned slot = 0; slot < FIGURES_SLOTS; slot++)
        free(atomic_load_explicit(&limit->figures[slot], memory_order_relaxed));
}
