/* state.c - what a key's states decide, and how they come under another plan of their limit. */
#include "backends/machine/visit.h"

#include "core/ground/arith.h"

#include <string.h>

void visit_decide_absent(const struct weir_backend_request *request, const struct weir_plan *plan, int64_t *state,
                         struct weir_decision *out)
{
    const enum weir_verb verb = request->verb == WEIR_RESET ? WEIR_PEEK : request->verb;
    state_charge(plan, state, request->now_us, 0);
    state_decide_request(plan, state, NULL, request->now_us, verb, request, out);
}

/* ---- Another plan ---- */

/* A key's two states, as core/algorithm/former.h wants them; the arrays hold them. */
static int carry_read(const struct visit *visit, int64_t *state, int64_t *former, struct key_states *out)
{
    const struct page *page = visit->page;
    int error = visit_read(visit, state);
    if (!error && page->former)
        error = visit_read_former(visit, former);
    *out = behind_states(&page->text.plan, state, page->former, former);
    return error;
}

/* True if the key is under the request's plan, apart from a former state. */
static bool carry_is_own(const struct visit *visit)
{
    return visit->page->text.plan.fingerprint == visit->plan->text.plan.fingerprint;
}

/* Put the key under a plan with what it takes along. */
static int carry_put(struct visit *visit, struct carried *carried, enum room *room)
{
    int64_t state[STATE_MAX_WORDS], behind[BEHIND_MAX_WORDS];
    struct page with_former;
    struct weir_plan behind_is;
    const struct page *page = visit->plan;
    uint32_t number = visit->number;
    int error = WEIR_OK;
    const bool has_behind = behind_plan(carried, &behind_is);
    if (has_behind) {
        error = book_number_of(&visit->machine->book, visit->request, &page->text.plan, &behind_is, &number);
        if (error)
            return error;
        page_fill(&with_former, visit->request->limit, &page->text.plan, &behind_is);
        page = number ? book_page(&visit->machine->book, number) : &with_former;
    }
    if (!page)
        return WEIR_ESTATE;
    carry_write(&visit->plan->text.plan, carried, visit->now_us, state);
    if (carried->has_origin)
        memcpy(behind, &carried->origin, sizeof carried->origin);
    if (carried->former.plan)
        memcpy(behind + behind_former_at(&behind_is), carried->former.state,
               state_words(carried->former.plan) * sizeof *behind);
    bool has_room = number != 0;
    int64_t soonest_us;
    if (has_room)
        error = stripe_make_room(visit, cells_for(page->words, visit->len), true, &has_room, &soonest_us);
    *room = has_room ? ROOM_OK : ROOM_FULL;
    if (!error)
        error = visit_find(visit); /* the keys before it in its bucket may be gone */
    if (error || !has_room || visit->first == 0)
        return error;
    error = visit_replace(visit, number, page, state, has_behind ? behind : NULL);
    if (!error) {
        const int64_t fresh_at_us = visit_fresh_at_us(visit, &error);
        stripe_note(visit->stripe, fresh_at_us);
    }
    return error;
}

/* Not inline: its frame holds whole states. */
__attribute__((noinline)) int visit_carry(struct visit *visit, enum room *room)
{
    int64_t state[STATE_MAX_WORDS], former[BEHIND_MAX_WORDS];
    struct key_states states;
    int error = carry_read(visit, state, former, &states);
    *room = ROOM_OK;
    if (error)
        return error;
    if (carry_is_own(visit)) {
        struct carried alone = { .from = states.own };
        enum room ignored; /* without room it stays */
        return visit->page->former && behind_is_over(&states, visit->now_us) ? carry_put(visit, &alone, &ignored)
                                                                             : WEIR_OK;
    }
    struct carried carried = carry_over(&visit->plan->text.plan, &states, visit->now_us);
    if (!carried.from.plan)
        return visit_remove(visit);
    const struct carried with_origin = carried;
    error = carry_put(visit, &carried, room);
    if (error || *room == ROOM_OK || !with_origin.has_origin || visit->first == 0)
        return error;
    carried = with_origin;
    carried.has_origin = false; /* without room for it, permits reserved before stay in use until they come back */
    return carry_put(visit, &carried, room);
}

__attribute__((noinline)) int visit_peek(struct visit *visit, struct weir_decision *out)
{
    int64_t state[STATE_MAX_WORDS], former[BEHIND_MAX_WORDS], carried_state[STATE_MAX_WORDS];
    const struct weir_backend_request *request = visit->request;
    struct key_states states;
    int error = carry_read(visit, state, former, &states);
    if (error)
        return error;
    if (carry_is_own(visit)) {
        state_decide(&visit->page->text.plan, state, request->now_us, request->cost, WEIR_PEEK, out);
        return WEIR_OK;
    }
    const struct weir_plan *plan = &visit->plan->text.plan;
    struct carried carried = carry_over(plan, &states, request->now_us);
    if (carried.from.plan)
        carry_write(plan, &carried, request->now_us, carried_state);
    else
        state_charge(plan, carried_state, request->now_us, 0);
    state_decide(plan, carried_state, request->now_us, request->cost, WEIR_PEEK, out);
    return WEIR_OK;
}

/* ---- A decision ---- */

/* Decide for a key that has something behind its state. */
__attribute__((noinline)) static int decide_with_behind(struct visit *visit, struct weir_decision *out)
{
    int64_t state[STATE_MAX_WORDS], behind[BEHIND_MAX_WORDS];
    const struct weir_backend_request *request = visit->request;
    const struct weir_plan *plan = &visit->page->text.plan;
    struct key_states states;
    struct origin origin;
    int error = carry_read(visit, state, behind, &states);
    if (error)
        return error;
    if (!carry_decide(&states, state, request, &origin, out))
        return WEIR_OK;
    if (states.own.origin)
        memcpy(behind, &origin, sizeof origin);
    if (states.former.plan)
        former_change(&states, behind + behind_former_at(visit->page->former), NULL, request, out);
    const bool is_fresh = state_is_fresh(plan, state, request, out);
    if (is_fresh && !former_counts(&states, request->now_us))
        return visit_remove(visit);
    if (is_fresh) /* a refund: blocks that are too old go as well */
        state_charge(plan, state, request->now_us, 0);
    return visit_write(visit, state, behind);
}

int visit_decide(struct visit *visit, struct weir_decision *out)
{
    int64_t state[STATE_MAX_WORDS];
    const struct weir_backend_request *request = visit->request;
    if (visit->page->former)
        return decide_with_behind(visit, out);
    const int error = visit_read(visit, state);
    if (error ||
        !state_decide_request(&visit->page->text.plan, state, NULL, request->now_us, request->verb, request, out))
        return error;
    return state_is_fresh(&visit->page->text.plan, state, request, out) ? visit_remove(visit)
                                                                        : visit_write(visit, state, NULL);
}
