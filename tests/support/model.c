/* model.c - a second, slow and exact implementation of the semantics: see model.h.
 *
 * One function defines every algorithm: used_at() returns the permits in use at a time. The rest follows. A cost is
 * admitted if it fits beside the used permits. Its retry_after is the first microsecond at which it is admitted. A key
 * is idle from the first microsecond at which no permit is used. A greedy bucket's level is a fraction of permits over
 * its period, so draining multiplies and never divides.
 */
#include "model.h"

#include <assert.h>
#include <string.h>

const struct model_share model_alone = { .instances = 1, .rank = 0, .weight = 1, .total = 1, .weights = NULL };

static const wide exact_bound = (wide)1 << 53;

/* ---- What a policy means ---- */

static wide greatest_common_divisor(wide a, wide b)
{
    while (b != 0) {
        wide rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

static int64_t weight_of(const struct model_share *share, int64_t instance)
{
    return share->weights != NULL ? share->weights[instance] : share->weight;
}

static bool weights_are_known(const struct model_share *share)
{
    return share->weights != NULL || share->total == share->instances * share->weight;
}

/* Return this share's part of `whole` permits. Permits left over go, one each, to the first instances whose own part is
 * `least` or more. */
static int64_t part_of(const struct model_share *share, int64_t whole, int64_t least)
{
    int64_t own = (int64_t)((wide)whole * share->weight / share->total);
    if (!weights_are_known(share) || own < least)
        return own;
    wide left = 0;
    int64_t place = 0;
    for (int64_t i = 0; i < share->instances; i++) {
        wide product = (wide)whole * weight_of(share, i);
        if (product / share->total < least)
            continue;
        left += product % share->total;
        place += i < share->rank;
    }
    return own + (place < left / share->total);
}

static bool within(int64_t value, int64_t least, int64_t most)
{
    return least <= value && value <= most;
}

static bool policy_is_in_range(const struct weir_policy *policy)
{
    bool bucket = policy->algorithm == WEIR_TOKEN_BUCKET;
    bool sliding = policy->algorithm == WEIR_SLIDING_WINDOW;
    bool leaky = policy->algorithm == WEIR_LEAKY_BUCKET;
    bool aligned = policy->algorithm == WEIR_FIXED_WINDOW || (bucket && policy->refill == WEIR_INTERVAL);
    return within((int64_t)policy->algorithm, WEIR_TOKEN_BUCKET, WEIR_LEAKY_BUCKET) &&
           within((int64_t)policy->refill, WEIR_GREEDY, bucket ? WEIR_INTERVAL : WEIR_GREEDY) &&
           within((int64_t)policy->align, WEIR_ALIGN_FIRST, aligned ? WEIR_ALIGN_EPOCH : WEIR_ALIGN_FIRST) &&
           within(policy->limit, 1, WEIR_MAX_PERMITS) && within(policy->period_us, 1, WEIR_MAX_PERIOD_US) &&
           within(policy->burst, 0, bucket ? WEIR_MAX_PERMITS : 0) &&
           within(policy->debt, 0, bucket ? WEIR_MAX_PERMITS : 0) &&
           within(policy->capacity, 0, leaky ? WEIR_MAX_PERMITS : 0) &&
           within(policy->blocks, 0,
                  !sliding              ? 0
                  : policy->limit >> 32 ? 512
                                        : 1024);
}

/* Return the finest tick that divides the period and keeps a full bucket and a tick's drain, in units that make the
 * latter whole, below 2^53; 0 if there is none. */
static int64_t finest_tick_us(const struct weir_policy *policy, const struct model_rule *rule)
{
    static const int64_t ticks_us[] = { 1,         10,      100,      1000,        10000,
                                        100000,    1000000, 10000000, WEIR_MINUTE, 10 * WEIR_MINUTE,
                                        WEIR_HOUR, WEIR_DAY };
    for (size_t i = 0; i < sizeof ticks_us / sizeof ticks_us[0] && policy->period_us % ticks_us[i] == 0; i++) {
        const int64_t tick_us = ticks_us[i];
        wide ticks = rule->period_us / tick_us;
        wide divisor = greatest_common_divisor(rule->permits, ticks);
        if (rule->size * (ticks / divisor) < exact_bound && rule->permits / divisor < exact_bound)
            return tick_us;
    }
    return 0;
}

static bool make_greedy(const struct weir_policy *policy, const struct model_share *share, int64_t size,
                        struct model_rule *rule)
{
    int64_t part = part_of(share, size, 0);
    rule->lifted = part == 0;
    rule->size = (part != 0 ? part : 1) + part_of(share, policy->debt, 0);
    rule->permits = (wide)policy->limit * share->weight;
    rule->period_us = (wide)policy->period_us * share->total;
    rule->tick_us = finest_tick_us(policy, rule);
    wide divisor = greatest_common_divisor(rule->permits, rule->period_us);
    rule->permits /= divisor;
    rule->period_us /= divisor;
    return rule->tick_us != 0 && rule->size * rule->period_us <= WEIR_MAX_FILL_US * rule->permits;
}

static bool make_interval(const struct weir_policy *policy, const struct model_share *share, struct model_rule *rule)
{
    int64_t part = part_of(share, policy->burst != 0 ? policy->burst : policy->limit, 0);
    rule->lifted = part == 0;
    rule->size = (part != 0 ? part : 1) + part_of(share, policy->debt, 0);
    rule->permits = part_of(share, policy->limit, 1);
    rule->period_us = policy->period_us;
    if (rule->permits == 0) { /* less than a permit a period: one permit each longer period */
        wide rate = (wide)policy->limit * share->weight;
        rule->permits = 1;
        rule->period_us = ((wide)policy->period_us * share->total + rate - 1) / rate;
    }
    wide periods = (rule->size + rule->permits - 1) / rule->permits;
    return periods * rule->period_us <= WEIR_MAX_FILL_US;
}

static void make_window(const struct weir_policy *policy, const struct model_share *share, struct model_rule *rule)
{
    rule->size = part_of(share, policy->limit, 0);
    rule->permits = rule->size;
    rule->zeroed = rule->size == 0;
    rule->period_us = policy->period_us;
    if (policy->algorithm == WEIR_SLIDING_WINDOW) {
        rule->blocks = policy->blocks != 0 ? policy->blocks : 10;
        rule->period_us = (policy->period_us + rule->blocks - 1) / rule->blocks;
    }
}

bool model_rule_make(const struct weir_policy *policy, const struct model_share *share, struct model_rule *rule)
{
    memset(rule, 0, sizeof *rule);
    if (!policy_is_in_range(policy))
        return false;
    rule->algorithm = policy->algorithm;
    rule->refill = policy->refill;
    rule->align = policy->align;
    rule->tick_us = 1;
    if (policy->algorithm == WEIR_LEAKY_BUCKET)
        return make_greedy(policy, share, policy->capacity != 0 ? policy->capacity : policy->limit, rule);
    if (policy->algorithm == WEIR_TOKEN_BUCKET && policy->refill == WEIR_INTERVAL)
        return make_interval(policy, share, rule);
    if (policy->algorithm == WEIR_TOKEN_BUCKET)
        return make_greedy(policy, share, policy->burst != 0 ? policy->burst : policy->limit, rule);
    make_window(policy, share, rule);
    return true;
}

bool model_rule_same(const struct model_rule *a, const struct model_rule *b)
{
    return a->algorithm == b->algorithm && a->refill == b->refill && a->align == b->align && a->size == b->size &&
           a->permits == b->permits && a->period_us == b->period_us && a->tick_us == b->tick_us &&
           a->blocks == b->blocks;
}

/* ---- Used permits over time ---- */

static bool is_greedy(const struct model_rule *rule)
{
    return rule->algorithm == WEIR_LEAKY_BUCKET ||
           (rule->algorithm == WEIR_TOKEN_BUCKET && rule->refill == WEIR_GREEDY);
}

/* Return the units of `used` in a permit. */
static wide units_of_a_permit(const struct model_rule *rule)
{
    return is_greedy(rule) ? rule->period_us : 1;
}

static wide used_in_blocks(const struct model_use *use, int64_t time_us)
{
    int64_t current = (int64_t)(time_us / use->rule.period_us);
    wide sum = 0;
    for (int i = 0; i < use->block_count; i++)
        if (within(use->blocks[i].id, current - use->rule.blocks, current))
            sum += use->blocks[i].used;
    return sum;
}

/* Return the end of the window or interval that begins at the anchor: a period later, with align=epoch rounded up to
 * the grid. */
static wide first_end(const struct model_use *use)
{
    wide end = use->anchor_us + use->rule.period_us;
    while (use->rule.align == WEIR_ALIGN_EPOCH && end % use->rule.period_us != 0)
        end += use->rule.period_us - end % use->rule.period_us;
    return end;
}

/* Return what is still used at `time_us` under the rule that wrote the state. Time before the anchor stands still. */
static wide used_at(const struct model_use *use, int64_t time_us)
{
    const struct model_rule *rule = &use->rule;
    if (use->fresh)
        return 0;
    if (time_us < use->anchor_us)
        time_us = use->anchor_us;
    wide left = use->used;
    if (rule->algorithm == WEIR_SLIDING_WINDOW)
        left = used_in_blocks(use, time_us);
    else if (rule->algorithm == WEIR_FIXED_WINDOW)
        left = time_us < first_end(use) ? use->used : 0;
    else if (is_greedy(rule))
        left -= rule->permits * (time_us - time_us % rule->tick_us - use->anchor_us);
    else if (time_us >= first_end(use))
        left -= rule->permits * (1 + (time_us - first_end(use)) / rule->period_us);
    return left > 0 ? left : 0;
}

static bool is_admitted_at(const struct model_use *use, int64_t cost, int64_t time_us)
{
    wide unit = units_of_a_permit(&use->rule);
    return used_at(use, time_us) + cost * unit <= use->rule.size * unit;
}

static bool is_new_at(const struct model_use *use, int64_t cost, int64_t time_us)
{
    (void)cost;
    return used_at(use, time_us) == 0;
}

/* Return the shortest wait from `now_us` after which `holds` is true; once true it stays true. */
static int64_t least_wait_us(bool (*holds)(const struct model_use *use, int64_t cost, int64_t time_us),
                             const struct model_use *use, int64_t cost, int64_t now_us)
{
    if (holds(use, cost, now_us))
        return 0;
    int64_t too_short = 0, enough = 1;
    while (!holds(use, cost, now_us + enough)) {
        too_short = enough;
        enough *= 2;
        assert(enough < INT64_C(1) << 61);
    }
    while (enough - too_short > 1) {
        int64_t middle = too_short + (enough - too_short) / 2;
        if (holds(use, cost, now_us + middle))
            enough = middle;
        else
            too_short = middle;
    }
    return enough;
}

/* ---- Changes of a state ---- */

static void use_init(struct model_use *use)
{
    use->fresh = true;
    use->block_count = 0;
    use->origin = (struct model_origin){ 0 };
}

/* Return the last time up to `time_us` at which the anchor of a fresh state may be set. */
static int64_t anchor_at(const struct model_rule *rule, int64_t time_us)
{
    wide grid_us = 1;
    if (is_greedy(rule))
        grid_us = rule->tick_us;
    else if (rule->algorithm == WEIR_SLIDING_WINDOW || rule->align == WEIR_ALIGN_EPOCH)
        grid_us = rule->period_us;
    return (int64_t)(time_us - time_us % grid_us);
}

/* Return how far the clock may step back without a rebase: a sliding window waits for twice as long as
 * its blocks count. */
static int64_t slack_us(const struct model_rule *rule)
{
    const wide kept_us = rule->algorithm == WEIR_SLIDING_WINDOW ? 2 * (wide)(rule->blocks + 1) * rule->period_us : 0;
    return kept_us > WEIR_CLOCK_SLACK_US ? (int64_t)kept_us : WEIR_CLOCK_SLACK_US;
}

/* The clock rule: rebase a state whose anchor is further ahead than the slack; used permits stay used. */
static void rebase(struct model_use *use, int64_t now_us)
{
    if (use->fresh || use->anchor_us - now_us <= slack_us(&use->rule))
        return;
    bool on_grid = is_greedy(&use->rule) || use->rule.algorithm == WEIR_SLIDING_WINDOW;
    int64_t anchor_us = on_grid ? anchor_at(&use->rule, now_us) : now_us;
    if (use->rule.algorithm == WEIR_SLIDING_WINDOW) {
        int64_t back = (int64_t)((use->anchor_us - anchor_us) / use->rule.period_us);
        for (int i = 0; i < use->block_count; i++) { /* older blocks by one less, because they must last for a period */
            const bool is_newest = use->blocks[i].id * use->rule.period_us == use->anchor_us;
            use->blocks[i].id -= is_newest ? back : back - 1;
        }
    }
    use->anchor_us = anchor_us;
}

/* Bring a state to `time_us` before its use is written: drained permits are gone for good. */
static void roll(struct model_use *use, int64_t time_us)
{
    const struct model_rule *rule = &use->rule;
    bool stays_put = rule->algorithm == WEIR_FIXED_WINDOW || rule->algorithm == WEIR_SLIDING_WINDOW;
    wide left = used_at(use, time_us);
    if (left == 0) {
        use_init(use);
        return;
    }
    if (stays_put)
        return;
    use->used = left;
    if (is_greedy(rule))
        use->anchor_us = anchor_at(rule, time_us);
    else if (time_us >= first_end(use))
        use->anchor_us = (int64_t)(time_us - (time_us - first_end(use)) % rule->period_us);
}

/* Drop the blocks that no longer count in block `id`. */
static void drop_ended_blocks(struct model_use *use, int64_t id)
{
    int kept = 0;
    for (int i = 0; i < use->block_count; i++)
        if (use->blocks[i].id >= id - use->rule.blocks)
            use->blocks[kept++] = use->blocks[i];
    use->block_count = kept;
}

static void charge_block(struct model_use *use, int64_t id, int64_t cost)
{
    drop_ended_blocks(use, id);
    if (use->block_count == 0 || use->blocks[use->block_count - 1].id != id)
        use->blocks[use->block_count++] = (struct model_block){ .id = id, .used = 0 };
    use->blocks[use->block_count - 1].used += cost;
    use->anchor_us = (int64_t)(id * use->rule.period_us);
}

static void charge(struct model_use *use, const struct model_rule *rule, int64_t cost, int64_t time_us)
{
    roll(use, time_us);
    if (use->fresh) {
        use->fresh = false;
        use->rule = *rule;
        use->used = 0;
        use->block_count = 0;
        use->origin = (struct model_origin){ 0 };
        use->anchor_us = anchor_at(rule, time_us);
    }
    if (rule->algorithm == WEIR_SLIDING_WINDOW)
        charge_block(use, (int64_t)(time_us / rule->period_us), cost);
    else
        use->used += cost * units_of_a_permit(rule);
}

/* Return how many units of the library's are a permit: a fraction of the model's, because it counts in whole ticks. */
static wide coarse_unit(const struct model_rule *rule)
{
    const wide permits_a_tick = rule->permits * rule->tick_us;
    return rule->period_us / greatest_common_divisor(permits_a_tick, rule->period_us);
}

/* Return the most that a use may be, in its own units: what the library and Redis can hold exactly. */
static wide most_used(const struct model_rule *rule)
{
    if (is_greedy(rule)) {
        const wide unit = coarse_unit(rule), scale = rule->period_us / unit;
        const wide most = WEIR_MAX_FILL_US / rule->tick_us * (rule->permits * rule->tick_us / scale);
        return (most < exact_bound ? most : exact_bound - 1) * scale;
    }
    if (rule->algorithm == WEIR_SLIDING_WINDOW && rule->size < (int64_t)1 << 32)
        return ((wide)1 << 32) - 1;
    const wide most = WEIR_MAX_FILL_US / rule->period_us * rule->permits;
    return rule->refill == WEIR_INTERVAL && most < exact_bound ? most : exact_bound - 1;
}

/* A sliding window refunds its oldest counted block first. */
static void refund_blocks(struct model_use *use, int64_t cost, int64_t time_us)
{
    int64_t current = (int64_t)(time_us / use->rule.period_us);
    int kept = 0;
    for (int i = 0; i < use->block_count; i++) {
        struct model_block block = use->blocks[i];
        if (block.id >= current - use->rule.blocks) {
            int64_t back = block.used < cost ? block.used : cost;
            block.used -= back;
            cost -= back;
        }
        if (block.used > 0)
            use->blocks[kept++] = block;
    }
    use->block_count = kept;
}

static void refund(struct model_use *use, int64_t cost, int64_t time_us)
{
    roll(use, time_us);
    if (use->fresh)
        return;
    if (use->rule.algorithm == WEIR_SLIDING_WINDOW)
        refund_blocks(use, cost, time_us);
    else
        use->used -= cost * units_of_a_permit(&use->rule);
    if (use->rule.algorithm == WEIR_SLIDING_WINDOW ? used_at(use, time_us) == 0 : use->used <= 0)
        use_init(use);
}

/* Return the last time up to `time_us` at which permits came back together. */
static wide last_edge(const struct model_use *use, int64_t time_us)
{
    const wide first = first_end(use);
    return time_us < first ? use->anchor_us : time_us - (time_us - first) % use->rule.period_us;
}

static wide less_of(wide a, wide b)
{
    return a < b ? a : b;
}

/* Return how many of `cost` permits are in a use that was made after they were charged. */
static int64_t return_by_origin(struct model_origin *origin, const struct model_rule *rule, int64_t cost,
                                int64_t *since_us)
{
    const wide most_us = (wide)1 << 46;
    wide counted = cost, earlier_us = 0;
    if (*since_us < origin->edge_us && origin->rate_us == 0)
        counted = 0;
    else if (*since_us < origin->edge_us) {
        const wide drained = (origin->edge_us - *since_us) * origin->rate, part = drained % origin->rate_us;
        const wide drains = is_greedy(rule) ? rule->permits : 1;
        const wide permit_us = (rule->period_us + drains - 1) / drains;
        counted -= drained / origin->rate_us;
        if (is_greedy(rule) && part * permit_us < exact_bound)
            earlier_us = (part * permit_us + origin->rate_us - 1) / origin->rate_us;
        else if (is_greedy(rule) && origin->rate_us <= most_us && permit_us <= most_us)
            earlier_us = ((part * 128 + origin->rate_us - 1) / origin->rate_us * permit_us + 127) / 128;
        else
            counted -= part > 0;
    }
    counted = counted > 0 ? counted : 0;
    const wide before = less_of(origin->rest, origin->held);
    origin->rest -= less_of(counted, origin->rest);
    if (*since_us < origin->from_us)
        *since_us = (int64_t)origin->from_us;
    *since_us = *since_us > earlier_us ? (int64_t)(*since_us - earlier_us) : 0;
    return (int64_t)(before - less_of(origin->rest, origin->held));
}

/* Give back those of `cost` permits, charged at `since_us`, that have not come back by themselves. */
static void give_back(struct model_use *use, int64_t cost, int64_t since_us, int64_t time_us)
{
    const struct model_rule *rule = &use->rule;
    if (use->fresh)
        return;
    if (used_at(use, time_us) == 0)
        use->origin = (struct model_origin){ 0 };
    if (use->origin.until_us > 0 && since_us < use->origin.made_us)
        cost = return_by_origin(&use->origin, rule, cost, &since_us);
    cost = cost < rule->size ? cost : rule->size;
    if (rule->algorithm == WEIR_SLIDING_WINDOW) {
        const int64_t current = (int64_t)(time_us / rule->period_us), of = (int64_t)(since_us / rule->period_us);
        const bool counts = of >= current - rule->blocks && of * rule->period_us <= use->anchor_us;
        for (int i = use->block_count - 1; counts && i >= 0; i--) {
            struct model_block *block = &use->blocks[i];
            const int64_t back = block->id > of || block->id < current - rule->blocks ? 0
                                 : block->used < cost                                 ? block->used
                                                                                      : cost;
            block->used -= back;
            cost -= back;
        }
        refund(use, 0, time_us); /* drops empty blocks */
    } else if (is_greedy(rule)) {
        wide passed_us = use->anchor_us - (since_us - since_us % rule->tick_us); /* until the state last changed */
        passed_us = passed_us > 0 ? passed_us : 0;
        const wide back = cost * (wide)rule->period_us - passed_us * rule->permits;
        use->used -= back > 0 ? back : 0;
        if (use->used <= 0) /* what has drained since stays: a clock that steps back finds it */
            use_init(use);
    } else {
        refund(use, since_us < last_edge(use, time_us) ? 0 : cost, time_us);
    }
}

/* ---- Another rule ---- */

static void copy_use(struct model_use *to, const struct model_use *from)
{
    memcpy(to, from, offsetof(struct model_use, blocks));
    memcpy(to->blocks, from->blocks, (size_t)from->block_count * sizeof from->blocks[0]);
}

static void copy_state(struct model_state *to, const struct model_state *from)
{
    copy_use(&to->own, &from->own);
    copy_use(&to->former, &from->former);
}

void model_state_init(struct model_state *state)
{
    use_init(&state->own);
    use_init(&state->former);
}

void model_state_cool(struct model_state *state, const struct model_rule *rule, int64_t since_us)
{
    model_state_init(state);
    if (rule->size > 0)
        charge(&state->own, rule, rule->size, since_us);
    else
        state->own.rule = *rule;
}

bool model_state_is_idle(const struct model_state *state, int64_t now_us)
{
    return used_at(&state->own, now_us) == 0 && used_at(&state->former, now_us) == 0;
}

bool model_state_has_former(const struct model_state *state)
{
    return !state->former.fresh;
}

/* Return the time at which to read a use: after a small step back time stands still. */
static int64_t held_at(const struct model_use *use, int64_t now_us)
{
    bool held = !use->fresh && use->anchor_us > now_us && use->anchor_us - now_us <= slack_us(&use->rule);
    return held ? use->anchor_us : now_us;
}

/* Rounded up. */
static int64_t permits_used(const struct model_use *use, int64_t now_us)
{
    wide unit = use->fresh ? 1 : units_of_a_permit(&use->rule);
    return (int64_t)((used_at(use, now_us) + unit - 1) / unit);
}

int64_t model_state_even_us(const struct model_state *state, int64_t now_us)
{
    int64_t too_short = 0, enough = 1;
    if (permits_used(&state->former, now_us) <= permits_used(&state->own, now_us))
        return 0;
    while (permits_used(&state->former, now_us + enough) > permits_used(&state->own, now_us + enough)) {
        too_short = enough;
        enough *= 2;
    }
    while (enough - too_short > 1) {
        const int64_t middle = too_short + (enough - too_short) / 2;
        if (permits_used(&state->former, now_us + middle) > permits_used(&state->own, now_us + middle))
            too_short = middle;
        else
            enough = middle;
    }
    return enough;
}

/* Write `use` as it is under another rule. False: that is not exact. */
static bool convert(struct model_use *use, const struct model_rule *rule, int64_t now_us)
{
    const struct model_rule *from = &use->rule;
    rebase(use, now_us);
    if (is_greedy(from) && is_greedy(rule)) {
        const wide from_unit = coarse_unit(from), to_unit = coarse_unit(rule);
        const wide least_multiple = from_unit / greatest_common_divisor(from_unit, to_unit) * to_unit;
        if (from->tick_us != rule->tick_us || least_multiple >= exact_bound)
            return false;
        roll(use, held_at(use, now_us));
        const wide used = use->used / (from->period_us / from_unit);
        use->used = (used * to_unit + from_unit - 1) / from_unit * (rule->period_us / to_unit);
    } else if (from->algorithm != rule->algorithm || from->refill != rule->refill || from->align != rule->align ||
               from->period_us != rule->period_us || from->blocks != rule->blocks) {
        return false;
    } else if (from->algorithm == WEIR_SLIDING_WINDOW) {
        if ((from->size >> 32 > 0) != (rule->size >> 32 > 0))
            return false;
        const int64_t time_us = held_at(use, now_us);
        const wide excess = used_at(use, time_us) - rule->size;
        drop_ended_blocks(use, (int64_t)(time_us / rule->period_us));
        refund_blocks(use, excess > 0 ? (int64_t)excess : 0, time_us);
    } else {
        roll(use, held_at(use, now_us));
    }
    use->rule = *rule;
    if (use->used > rule->size * units_of_a_permit(rule))
        use->used = rule->size * units_of_a_permit(rule);
    if (used_at(use, held_at(use, now_us)) == 0) /* a share of no permits holds no use */
        use_init(use);
    return true;
}

static wide units_a_tick(const struct model_rule *rule)
{
    return rule->permits * rule->tick_us / (rule->period_us / coarse_unit(rule));
}

static bool drains_alike(const struct model_rule *a, const struct model_rule *b)
{
    return is_greedy(a) && units_a_tick(a) == units_a_tick(b) && coarse_unit(a) == coarse_unit(b);
}

static wide drain_us(const struct model_rule *rule)
{
    if (is_greedy(rule))
        return (rule->size * coarse_unit(rule) + units_a_tick(rule) - 1) / units_a_tick(rule) * rule->tick_us;
    if (rule->algorithm == WEIR_TOKEN_BUCKET)
        return (rule->size + rule->permits - 1) / rule->permits * rule->period_us;
    return rule->period_us * (rule->blocks + 1);
}

/* Note what of earlier permits is in `use`, which was made of `from` at `made_us`. */
static void note_origin(struct model_use *use, const struct model_use *from, int64_t used, bool is_exact,
                        int64_t made_us, int64_t now_us)
{
    const struct model_rule *rule = &use->rule;
    const bool keeps_times = is_exact && !is_greedy(rule);
    struct model_use at_now;
    struct model_origin origin = { .made_us = made_us, .from_us = keeps_times ? 0 : made_us };
    const struct model_origin *before = &from->origin;
    use->origin = (struct model_origin){ 0 };
    if (use->fresh || (before->until_us == 0 && is_exact && used <= rule->size &&
                       (!is_greedy(rule) || drains_alike(&from->rule, rule))))
        return;
    copy_use(&at_now, from);
    rebase(&at_now, now_us);
    origin.edge_us = at_now.anchor_us;
    if (from->rule.algorithm == WEIR_SLIDING_WINDOW) {
        const wide oldest = held_at(&at_now, now_us) / from->rule.period_us - from->rule.blocks;
        origin.edge_us = oldest > 0 ? oldest * from->rule.period_us : 0;
    } else if (is_greedy(&from->rule)) {
        origin.edge_us += from->rule.tick_us - 1;
        origin.rate = units_a_tick(&from->rule);
        origin.rate_us = coarse_unit(&from->rule) * from->rule.tick_us;
        while (origin.rate * origin.rate_us >= exact_bound) {
            origin.rate = (origin.rate + 1) / 2;
            origin.rate_us /= 2;
        }
    } else if (from->rule.algorithm == WEIR_TOKEN_BUCKET) {
        origin.edge_us = last_edge(&at_now, held_at(&at_now, now_us));
    }
    if (before->until_us > 0 && made_us <= before->until_us) {
        const wide hidden = before->rest > before->held ? before->rest - before->held : 0;
        if (keeps_times)
            origin.from_us = before->from_us;
        if (is_greedy(&from->rule)) {
            origin.rest = hidden;
            origin.rate = origin.rate_us = 0;
        } else if (before->made_us >= origin.edge_us) {
            origin.rest = hidden;
            origin.edge_us = before->edge_us;
            origin.rate = before->rate;
            origin.rate_us = before->rate_us;
        }
    }
    origin.held = less_of(used, rule->size);
    if (is_exact && is_greedy(rule))
        origin.held = less_of(origin.held, use->used / rule->period_us);
    origin.rest += used > rule->size ? used : origin.held;
    origin.until_us = made_us + drain_us(rule);
    use->origin = origin;
}

/* Carry a state over to a redefined limit. The larger of the own and the former use is carried over exactly, or charged
 * to a fresh state of the new rule. If that cannot hold all of it, the larger use stays as the former one. A former use
 * that is larger and of the new rule itself continues unchanged. */
static void carry_over(struct model_state *state, const struct model_rule *rule, int64_t now_us)
{
    struct model_state old;
    if (model_rule_same(&state->own.rule, rule))
        return;
    copy_state(&old, state);
    const int64_t own = permits_used(&old.own, now_us), former = permits_used(&old.former, now_us);
    const int64_t own_us = held_at(&old.own, now_us), former_us = held_at(&old.former, now_us);
    const struct model_use *larger = former > 0 && former >= own ? &old.former : &old.own;
    int64_t used = own > former ? own : former;
    const bool returns = larger == &old.former && model_rule_same(&larger->rule, rule);
    copy_use(&state->own, larger);
    copy_use(&state->former, larger);
    if (returns || used <= rule->size)
        use_init(&state->former);
    struct model_use from;
    copy_use(&from, larger);
    const int64_t made_us = own_us > former_us ? own_us : former_us;
    state->former.origin = (struct model_origin){ 0 };
    if (returns) {
        state->own.origin = (struct model_origin){ 0 };
        return;
    }
    if (used > 0 && convert(&state->own, rule, now_us)) {
        note_origin(&state->own, &from, used, true, made_us, now_us);
        return;
    }
    const int64_t all_used = used;
    use_init(&state->own);
    state->own.rule = *rule;
    if (used > rule->size)
        used = rule->size;
    if (used > 0)
        charge(&state->own, rule, used, made_us);
    note_origin(&state->own, &from, all_used, false, made_us, now_us);
}

/* Charge admitted permits to the former use, up to its size: of a sliding window's the oldest go. Or give permits back,
 * if there are less than 0: those charged at `since_us`, or any if that is 0. `time_us`: the own use's. */
static void change_former_since(struct model_use *former, int64_t permits, int64_t since_us, int64_t now_us,
                                int64_t time_us)
{
    if (former->fresh || used_at(former, now_us) == 0) {
        use_init(former);
        return;
    }
    if (permits == 0)
        return;
    if (!(permits < 0 && since_us > 0 && is_greedy(&former->rule))) /* such a return leaves the anchor alone */
        rebase(former, time_us);
    time_us = held_at(former, time_us);
    const struct model_rule rule = former->rule;
    if (permits < 0 && since_us > 0) {
        give_back(former, -permits, since_us, time_us);
    } else if (permits < 0) {
        refund(former, -permits, time_us);
    } else if (rule.algorithm == WEIR_SLIDING_WINDOW) {
        const int64_t used = (int64_t)used_at(former, time_us), full = used > rule.size ? used : rule.size;
        const int64_t most = permits < full ? permits : full, excess = used + most - full;
        refund_blocks(former, excess > 0 ? excess : 0, time_us);
        charge_block(former, (int64_t)(time_us / rule.period_us), most);
    } else {
        const wide full = rule.size * units_of_a_permit(&rule), used = used_at(former, time_us);
        charge(former, &rule, permits, time_us);
        if (former->used > (used > full ? used : full))
            former->used = used > full ? used : full;
    }
}

static void change_former(struct model_use *former, int64_t permits, int64_t now_us, int64_t time_us)
{
    change_former_since(former, permits, 0, now_us, time_us);
}

/* ---- Decisions ---- */

/* Apply the clock rule and a redefinition to the state; return the time at which to read it. */
static int64_t settle(struct model_state *state, const struct model_rule *rule, int64_t now_us)
{
    if (state->own.fresh && state->former.fresh)
        state->own.rule = *rule;
    carry_over(state, rule, now_us);
    rebase(&state->own, now_us);
    return held_at(&state->own, now_us);
}

static void describe(const struct model_use *own, int64_t now_us, struct weir_decision *out)
{
    wide unit = units_of_a_permit(&own->rule);
    out->limit = own->rule.size;
    const wide left = own->rule.size * unit - used_at(own, now_us);
    out->remaining = left > 0 ? (int64_t)(left / unit) : 0;
    out->reset_after_us = least_wait_us(is_new_at, own, 0, now_us);
}

/* Decide a cost on a state to which these rules have been applied, with or without a charge. */
static void hold_against(struct model_use *own, int64_t cost, bool charged, int64_t time_us, int64_t now_us,
                         struct weir_decision *out)
{
    const struct model_rule rule = own->rule;
    out->allowed = cost <= rule.size && is_admitted_at(own, cost, time_us);
    if (out->allowed && rule.algorithm == WEIR_LEAKY_BUCKET)
        out->delay_us = least_wait_us(is_new_at, own, 0, now_us);
    if (!out->allowed)
        out->retry_after_us = cost > rule.size ? WEIR_NEVER : least_wait_us(is_admitted_at, own, cost, now_us);
    if (out->allowed && charged)
        charge(own, &rule, cost, time_us);
    describe(own, now_us, out);
}

/* Charge what does not ask. */
static void charge_anyhow(struct model_state *state, const struct model_rule *rule, int64_t cost, int64_t time_us,
                          int64_t now_us, struct weir_decision *out)
{
    const wide room = (most_used(rule) - used_at(&state->own, time_us)) / units_of_a_permit(rule);
    const int64_t fits = cost < room ? cost : (int64_t)room;
    if (fits > 0)
        charge(&state->own, rule, fits, time_us);
    else if (!state->own.fresh) /* a charge is written in any case */
        roll(&state->own, time_us);
    change_former(&state->former, fits, now_us, time_us);
    out->allowed = true;
    out->ahead = cost - fits;
    describe(&state->own, now_us, out);
}

void model_decide(struct model_state *state, const struct model_rule *rule, enum model_verb verb, int64_t cost,
                  int64_t now_us, struct weir_decision *out)
{
    struct model_state next;
    memset(out, 0, sizeof *out);
    copy_state(&next, state);
    if (verb == MODEL_RESET)
        model_state_init(&next);
    int64_t time_us = settle(&next, rule, now_us);
    if (verb == MODEL_TAKE || verb == MODEL_PEEK) {
        hold_against(&next.own, cost, verb == MODEL_TAKE, time_us, now_us, out);
        if (verb == MODEL_TAKE && out->allowed)
            change_former(&next.former, cost, now_us, time_us);
    } else if (verb == MODEL_CHARGE) {
        const struct model_rule own = next.own.rule;
        charge_anyhow(&next, &own, cost, time_us, now_us, out);
    } else {
        if (verb == MODEL_REFUND) {
            refund(&next.own, cost, time_us);
            change_former(&next.former, -cost, now_us, now_us);
        }
        if (next.own.fresh && used_at(&next.former, now_us) == 0)
            use_init(&next.former);
        next.own.rule = *rule;
        out->allowed = true;
        describe(&next.own, now_us, out);
    }
    if (verb != MODEL_PEEK)
        copy_state(state, &next);
}

/* Apply a redefinition and, unless a return leaves the anchor alone, the clock rule. */
static void settle_for_return(struct model_state *state, const struct model_rule *rule, int64_t now_us)
{
    if (state->own.fresh && state->former.fresh)
        state->own.rule = *rule;
    carry_over(state, rule, now_us);
    if (!is_greedy(&state->own.rule))
        rebase(&state->own, now_us);
}

/* Forget a former use of which nothing is left, and tell what is in use. */
static void end_return(struct model_state *next, const struct model_rule *rule, int64_t now_us,
                       struct weir_decision *out)
{
    if (next->own.fresh && used_at(&next->former, now_us) == 0)
        use_init(&next->former);
    if (next->own.fresh)
        next->own.rule = *rule;
    struct model_use own;
    copy_use(&own, &next->own);
    rebase(&own, now_us);
    describe(&own, now_us, out);
}

int64_t model_noted_us(const struct model_state *state, int64_t now_us)
{
    const int64_t noted_us = state->own.anchor_us > now_us ? state->own.anchor_us : now_us;
    return noted_us > 1 ? noted_us : 1;
}

void model_return(struct model_state *state, const struct model_rule *rule, int64_t cost, int64_t since_us,
                  int64_t now_us, struct weir_decision *out)
{
    memset(out, 0, sizeof *out);
    settle_for_return(state, rule, now_us);
    give_back(&state->own, cost, since_us, held_at(&state->own, now_us));
    change_former_since(&state->former, -cost, since_us, now_us, now_us);
    out->allowed = true;
    end_return(state, rule, now_us, out);
}

void model_renew(struct model_state *state, const struct model_rule *rule, int64_t cost, int64_t since_us,
                 int64_t now_us, struct weir_decision *out)
{
    memset(out, 0, sizeof *out);
    struct model_state next;
    copy_state(&next, state);
    settle_for_return(&next, rule, now_us);
    const struct model_rule own = next.own.rule;
    const wide unit = units_of_a_permit(&own), size = own.size * unit;
    const wide before = used_at(&next.own, held_at(&next.own, now_us));
    give_back(&next.own, cost, since_us, held_at(&next.own, now_us));
    if (next.own.fresh)
        next.own.rule = own;
    rebase(&next.own, now_us);
    const int64_t time_us = held_at(&next.own, now_us);
    const wide after = used_at(&next.own, time_us), most = before > size ? before : size;
    if (cost > own.size || after + cost * unit > most) { /* denied like a take, except for the time to wait */
        const int64_t wait_us = cost > own.size ? WEIR_NEVER : least_wait_us(is_admitted_at, &next.own, cost, now_us);
        model_decide(state, rule, MODEL_TAKE, cost, now_us, out);
        out->retry_after_us = wait_us;
        return;
    }
    out->allowed = true;
    charge(&next.own, &own, cost, time_us);
    change_former_since(&next.former, -cost, since_us, now_us, now_us);
    change_former(&next.former, cost, now_us, time_us);
    end_return(&next, &own, now_us, out);
    copy_state(state, &next);
}

/* Return the summed cost of all requests for the state of requests[i]; 0 if an earlier request has counted them. */
static int64_t joint_cost(const struct model_request *requests, size_t n, size_t i)
{
    int64_t cost = 0;
    for (size_t j = 0; j < n; j++) {
        if (requests[j].state != requests[i].state)
            continue;
        if (j < i)
            return 0;
        cost += requests[j].cost;
    }
    return cost;
}

static int64_t longer_us(int64_t a, int64_t b)
{
    if (a == WEIR_NEVER || b == WEIR_NEVER)
        return WEIR_NEVER;
    return a > b ? a : b;
}

/* True if `candidate` binds more than `best`: it alone denies, denies for longer, or leaves less. */
static bool binds_more(const struct weir_decision *candidate, const struct weir_decision *best)
{
    if (candidate->allowed != best->allowed)
        return !candidate->allowed;
    if (candidate->allowed)
        return candidate->remaining < best->remaining;
    return candidate->retry_after_us != best->retry_after_us &&
           longer_us(candidate->retry_after_us, best->retry_after_us) == candidate->retry_after_us;
}

void model_decide_all(const struct model_request *requests, size_t n, int64_t now_us, struct weir_decision *out)
{
    struct weir_decision each, unused, binding = { .allowed = true, .remaining = INT64_MAX };
    bool all = true;
    for (size_t i = 0; i < n; i++) {
        int64_t cost = joint_cost(requests, n, i);
        if (cost == 0)
            continue;
        model_decide(requests[i].state, requests[i].rule, MODEL_PEEK, cost, now_us, &each);
        all = all && each.allowed;
    }
    memset(out, 0, sizeof *out);
    out->allowed = all;
    out->remaining = INT64_MAX;
    for (size_t i = 0; i < n; i++) {
        int64_t cost = joint_cost(requests, n, i);
        if (cost == 0)
            continue;
        model_decide(requests[i].state, requests[i].rule, all ? MODEL_TAKE : MODEL_PEEK, cost, now_us, &each);
        if (!all) /* another rule, or a clock far back, changes the state as a take above the limit does */
            model_decide(requests[i].state, requests[i].rule, MODEL_TAKE, requests[i].rule->size + 1, now_us, &unused);
        if (binds_more(&each, &binding)) {
            binding = each;
            out->bound_by = (uint32_t)i;
        }
        if (each.remaining < out->remaining)
            out->remaining = each.remaining;
        out->reset_after_us = longer_us(out->reset_after_us, each.reset_after_us);
        out->delay_us = longer_us(out->delay_us, each.delay_us);
        out->retry_after_us = longer_us(out->retry_after_us, each.retry_after_us);
    }
    out->limit = binding.limit;
    if (!all)
        out->delay_us = 0;
}
