/* mirror.c - the state that Redis must hold for a key: see mirror.h. */
#include "mirror.h"

#include "core/algorithm/sliding_window.h"
#include "core/ground/arith.h"
#include "support.h"

/* ---- What is stored ---- */

static void under_plan_copy(struct under_plan *to, const struct under_plan *from)
{
    to->plan = from->plan;
    to->has_origin = from->has_origin;
    to->origin = from->origin;
    memcpy(to->state, from->state, state_words(&from->plan) * sizeof *from->state);
}

void mirror_copy(struct mirror *to, const struct mirror *from)
{
    to->stored = from->stored;
    to->has_former = from->has_former;
    to->until_us = from->until_us;
    if (from->stored)
        under_plan_copy(&to->own, &from->own);
    if (from->has_former)
        under_plan_copy(&to->former, &from->former);
}

static size_t put(unsigned char *out, size_t at, int bytes, int64_t value)
{
    for (int i = 0; i < bytes; i++)
        out[at++] = (unsigned char)(value >> (8 * i));
    return at;
}

/* The layout of redis/flight/state.h, written a second time. */
static size_t under_plan_bytes(const struct under_plan *under, unsigned char *out)
{
    const struct weir_plan *plan = &under->plan;
    const int64_t *state = under->state;
    size_t at = 0;
    if (under->has_origin && state_fresh_at_us(plan, state) > 0) {
        int64_t words[ORIGIN_WORDS];
        memcpy(words, &under->origin, sizeof words);
        at = put(out, 0, 1, 'O');
        for (size_t i = 0; i < ORIGIN_WORDS; i++)
            at = put(out, at, 7, words[i]);
    }
    at += redis_stamp_write(plan, out + at);
    if (state_fresh_at_us(plan, state) == 0)
        return at;
    if (plan->algorithm == WEIR_SLIDING_WINDOW) {
        int32_t n = plan->blocks + 1;
        while (sliding_count(plan, state, n - 1) == 0)
            n--;
        at = put(out, put(out, at, 7, state[0]), 2, n);
        for (int32_t i = 0; i < n; i++)
            at = put(out, at, plan->size > UINT32_MAX ? 7 : 4, sliding_count(plan, state, i));
        return at;
    }
    return put(out, put(out, at, 7, state[0]), 7, state[1]);
}

size_t mirror_bytes(const struct mirror *mirror, unsigned char out[MIRROR_BYTES_MAX])
{
    if (!mirror->stored)
        return 0;
    if (!mirror->has_former)
        return under_plan_bytes(&mirror->own, out);
    size_t own_len = under_plan_bytes(&mirror->own, out + 10);
    put(out, put(out, put(out, 0, 1, '+'), 7, mirror->until_us), 2, (int64_t)own_len);
    return 10 + own_len + under_plan_bytes(&mirror->former, out + 10 + own_len);
}

static int64_t get(const unsigned char *bytes, int width)
{
    int64_t value = 0;
    while (width-- > 0)
        value = value << 8 | bytes[width];
    return value;
}

bool mirror_leave_room(unsigned char *bytes, size_t len)
{
    if ((len != 26 && len != 40) || (bytes[0] != 'T' && bytes[0] != 'L'))
        return false;
    const int64_t p = get(bytes + 1, 7), q = get(bytes + 8, 7), used = len == 40 ? get(bytes + 26, 7) : 0;
    if (p % 2 != 0 || q % 2 != 0 || used % 2 != 0 || p > EXACT_MAX || q > EXACT_MAX || used > EXACT_MAX)
        return false;
    put(bytes, put(bytes, 1, 7, p / 2), 7, q / 2);
    if (len == 40)
        put(bytes, 26, 7, used / 2);
    return true;
}

int64_t mirror_room_ms(const struct weir_plan *plan)
{
    return (div_up(plan->size * plan->q, plan->p) / 4 * plan->tick_us + WEIR_SECOND + 3 * plan->tick_us) / 1000 + 1;
}

int64_t mirror_fresh_at_us(const struct mirror *mirror)
{
    const int64_t fresh_at_us = mirror->stored ? state_fresh_at_us(&mirror->own.plan, mirror->own.state) : 0;
    return mirror->has_former ? max_of(fresh_at_us, mirror->until_us) : fresh_at_us;
}

/* ---- Another plan ---- */

static bool is_under(const struct under_plan *under, const struct weir_plan *plan)
{
    unsigned char stamps[2][REDIS_STAMP_MAX];
    size_t len = redis_stamp_write(&under->plan, stamps[0]);
    return redis_stamp_write(plan, stamps[1]) == len && memcmp(stamps[0], stamps[1], len) == 0;
}

/* Return the used permits, rounded up. Moves *at_us forward to the state's time if the clock stepped back. */
static int64_t used_in(const struct under_plan *under, int64_t now_us, int64_t *at_us)
{
    int64_t held_us = now_us;
    const int64_t used = state_used(&under->plan, under->state, &held_us);
    *at_us = max_of(*at_us, held_us);
    return used;
}

/* True if there is a former state that is still kept. */
static bool has_former(const struct mirror *mirror, int64_t now_us)
{
    return mirror->has_former && now_us < mirror->until_us;
}

/* True if the state was carried over, perhaps to a fresh one. */
static bool mirror_carry(struct mirror *mirror, const struct weir_plan *plan, int64_t now_us)
{
    struct under_plan old;
    int64_t at_us = now_us;
    if (!mirror->stored || is_under(&mirror->own, plan))
        return false;
    const bool returns = has_former(mirror, now_us) && is_under(&mirror->former, plan);
    const int64_t own_used = used_in(&mirror->own, now_us, &at_us);
    const int64_t former_used = has_former(mirror, now_us) ? used_in(&mirror->former, now_us, &at_us) : 0;
    mirror->stored = mirror->has_former = returns || own_used > 0 || former_used > 0;
    if (!mirror->stored)
        return true;
    under_plan_copy(&old, &mirror->own);
    mirror->own.plan = *plan;
    mirror->own.has_origin = false;
    if (returns) {
        mirror->own.has_origin = mirror->former.has_origin && former_used > 0;
        mirror->own.origin = mirror->former.origin;
        memcpy(mirror->own.state, mirror->former.state, state_words(plan) * sizeof(int64_t));
        if (former_used == 0)
            state_charge(plan, mirror->own.state, now_us, 0);
    } else {
        const struct under_plan *from = former_used > own_used ? &mirror->former : &old;
        int64_t words[ORIGIN_WORDS];
        memcpy(words, &from->origin, sizeof words);
        const struct written what = { &from->plan, from->state, from->has_origin ? words : NULL };
        mirror->own.has_origin = origin_is_needed(&what, plan, max_of(own_used, former_used));
        mirror->own.origin = origin_begin(&what, plan, now_us, at_us);
        if (!state_convert(&from->plan, from->state, plan, now_us, mirror->own.state))
            state_charge(plan, mirror->own.state, at_us, max_of(own_used, former_used));
        origin_complete(&mirror->own.origin, &from->plan, plan, mirror->own.state, max_of(own_used, former_used));
    }
    if (own_used > 0 || returns) {
        under_plan_copy(&mirror->former, &old);
        mirror->until_us = min_of(now_us + plan_fill_us(&old.plan, own_used), EXACT_MAX);
    }
    if (own_used == 0 && returns) {
        state_charge(&old.plan, mirror->former.state, now_us, 0);
        mirror->former.has_origin = false;
    }
    mirror->has_former = has_former(mirror, now_us);
    return true;
}

bool mirror_found(const struct mirror *mirror, const struct weir_plan *plan, int64_t now_us, int64_t *state,
                  struct origin *origin)
{
    *origin = (struct origin){ 0 };
    struct mirror carried;
    mirror_copy(&carried, mirror);
    mirror_carry(&carried, plan, now_us);
    if (!carried.stored || state_fresh_at_us(plan, carried.own.state) == 0)
        return false;
    memcpy(state, carried.own.state, state_words(plan) * sizeof *state);
    int64_t at_us = now_us;
    if (carried.own.has_origin && used_in(&carried.own, now_us, &at_us) > 0)
        *origin = carried.own.origin;
    return true;
}

/* ---- Requests ---- */

/* Redis writes a state at the current time, except a sliding window, which keeps its counts until a charge. */
static void refresh(struct mirror *mirror, const struct weir_plan *plan, int64_t now_us)
{
    struct weir_decision decision;
    if (mirror->stored && plan->algorithm != WEIR_SLIDING_WINDOW)
        state_decide(plan, mirror->own.state, now_us, 0, WEIR_CHARGE, &decision);
}

/* Give permits back that were charged at `since_us` and never used, or any if that is 0. */
static bool refund(const struct weir_plan *plan, int64_t *state, struct origin *origin, int64_t now_us,
                   int64_t since_us, int64_t cost, struct weir_decision *out)
{
    return since_us > 0 ? state_return(plan, state, origin, now_us, since_us, cost, out)
                        : state_decide(plan, state, now_us, cost, WEIR_REFUND, out);
}

/* The state was charged with `permits`, or less than 0 were given back. */
static void former_charge(struct mirror *mirror, int64_t now_us, int64_t at_us, int64_t permits, int64_t since_us)
{
    struct under_plan *former = &mirror->former;
    struct weir_decision decision;
    mirror->has_former = has_former(mirror, now_us);
    if (mirror->has_former && permits > 0)
        state_fill(&former->plan, former->state, at_us, permits);
    if (mirror->has_former && permits < 0) {
        refund(&former->plan, former->state, former->has_origin ? &former->origin : NULL, now_us, since_us, -permits,
               &decision);
        if (decision.reset_after_us == 0) {
            state_charge(&former->plan, former->state, now_us, 0);
            former->has_origin = false;
        }
    }
    mirror->has_former = has_former(mirror, now_us);
}

static bool ask(const struct weir_plan *plan, int64_t *state, struct origin *origin, enum weir_verb verb, int64_t cost,
                int64_t since_us, int64_t now_us, struct weir_decision *out)
{
    if (verb == WEIR_RENEW)
        return state_renew(plan, state, origin, now_us, since_us, cost, out);
    return verb == WEIR_REFUND ? refund(plan, state, origin, now_us, since_us, cost, out)
                               : state_decide(plan, state, now_us, cost, verb, out);
}

static bool mirror_ask(struct mirror *mirror, const struct weir_plan *plan, enum weir_verb verb, int64_t cost,
                       int64_t since_us, int64_t now_us, struct weir_decision *out)
{
    int64_t state[STATE_MAX_WORDS];
    if (verb == WEIR_PEEK) {
        struct origin unused;
        if (!mirror_found(mirror, plan, now_us, state, &unused))
            state_charge(plan, state, now_us, 0);
        state_decide(plan, state, now_us, cost, WEIR_PEEK, out);
        return false;
    }
    bool written = mirror_carry(mirror, plan, now_us);
    if (verb == WEIR_RESET) {
        written = written || mirror->stored;
        mirror->stored = mirror->has_former = false;
        verb = WEIR_PEEK;
    }
    if (!mirror->stored) {
        state_charge(plan, state, now_us, 0);
        ask(plan, state, NULL, verb, cost, since_us, now_us, out);
        if (verb == WEIR_CHARGE || ((verb == WEIR_TAKE || verb == WEIR_RENEW) && out->allowed)) {
            mirror->stored = written = true;
            mirror->own.plan = *plan;
            mirror->own.has_origin = false;
            memcpy(mirror->own.state, state, state_words(plan) * sizeof *state);
        }
        return written;
    }
    int64_t at_us = now_us;
    const bool is_used = used_in(&mirror->own, now_us, &at_us) > 0;
    int64_t *own = mirror->own.state;
    struct origin *origin = mirror->own.has_origin && is_used ? &mirror->own.origin : NULL;
    const bool charges = verb != WEIR_REFUND;
    if (ask(plan, own, origin, verb, cost, since_us, now_us, out)) {
        written = true;
        mirror->own.has_origin = origin != NULL;
        if (origin && charges && out->allowed && cost - out->ahead > 0 && now_us > origin->until_us)
            mirror->own.has_origin = false;
        if (verb == WEIR_REFUND || (verb == WEIR_RENEW && out->allowed))
            former_charge(mirror, now_us, at_us, -cost, since_us);
        if (verb == WEIR_RENEW) { /* the permits are charged when the state counts them */
            at_us = now_us;
            used_in(&mirror->own, now_us, &at_us);
        }
        if (verb != WEIR_REFUND)
            former_charge(mirror, now_us, at_us, out->allowed ? cost - out->ahead : 0, 0);
        const bool returned = plan->p > 0 && since_us > 0 && verb != WEIR_RENEW;
        if (returned ? own[0] == 0 : out->reset_after_us == 0) { /* refunded: expired blocks go as well */
            state_charge(plan, mirror->own.state, now_us, 0);
            mirror->own.has_origin = false;
            mirror->stored = mirror->has_former;
        }
    } else if (written && plan->p == 0) { /* a level stays as it was met */
        refresh(mirror, plan, now_us);
    }
    return written;
}

bool mirror_decide(struct mirror *mirror, const struct weir_plan *plan, enum weir_verb verb, int64_t cost,
                   int64_t now_us, struct weir_decision *out)
{
    return mirror_ask(mirror, plan, verb, cost, 0, now_us, out);
}

bool mirror_return(struct mirror *mirror, const struct weir_plan *plan, int64_t cost, int64_t since_us, int64_t now_us,
                   struct weir_decision *out)
{
    return mirror_ask(mirror, plan, WEIR_REFUND, cost, since_us, now_us, out);
}

bool mirror_renew(struct mirror *mirror, const struct weir_plan *plan, int64_t cost, int64_t since_us, int64_t now_us,
                  struct weir_decision *out)
{
    return mirror_ask(mirror, plan, WEIR_RENEW, cost, since_us, now_us, out);
}

bool mirror_take_ahead(struct mirror *mirror, const struct weir_plan *plan, int64_t cost, int64_t ahead,
                       uint32_t spread, int64_t now_us, struct weir_decision *out)
{
    /* A cost that never fits writes only a due rebase. */
    bool written = mirror_decide(mirror, plan, WEIR_TAKE, cost > 0 ? cost : plan->size + 1, now_us, out);
    if (cost > 0 && !out->allowed)
        return written;
    const int64_t granted = min_of(ahead, out->remaining / spread), delay_us = out->delay_us;
    if (granted > 0 && mirror_decide(mirror, plan, WEIR_TAKE, granted, now_us, out))
        written = true;
    if (cost > 0)
        out->delay_us = delay_us;
    out->allowed = true;
    out->retry_after_us = 0;
    out->ahead = granted;
    out->age_us = now_us;
    return written;
}

bool mirror_try_all(struct mirror *const *mirrors, const struct weir_plan *plans, const int64_t *costs, size_t n,
                    int64_t now_us, bool *written)
{
    struct weir_decision decision;
    bool allowed = true;
    for (size_t i = 0; i < n; i++) {
        written[i] = mirror_carry(mirrors[i], &plans[i], now_us);
        mirror_decide(mirrors[i], &plans[i], WEIR_PEEK, costs[i], now_us, &decision);
        allowed = allowed && decision.allowed;
    }
    for (size_t i = 0; i < n; i++) /* a cost that never fits writes only a due rebase */
        if (mirror_decide(mirrors[i], &plans[i], WEIR_TAKE, allowed ? costs[i] : plans[i].size + 1, now_us, &decision))
            written[i] = true;
        else if (written[i])
            refresh(mirrors[i], &plans[i], now_us);
    return allowed;
}

void library_decide(const struct weir_plan *plan, int64_t *state, enum weir_verb verb, int64_t cost, int64_t now_us,
                    struct weir_decision *out)
{
    if (verb == WEIR_RESET)
        state_charge(plan, state, now_us, 0);
    state_decide(plan, state, now_us, cost, verb == WEIR_RESET ? WEIR_PEEK : verb, out);
}
