/* state.c - what a key's states decide, and how they come under another plan of their limit. */
#include "backends/machine/visit.h"

#include "core/ground/arith.h"

void visit_decide_absent(const struct weir_backend_request *request, const struct weir_plan *plan, int64_t *state,
                         struct weir_decision *out)
{
    const enum weir_verb verb = request->verb == WEIR_RESET ? WEIR_PEEK : request->verb;
    state_charge(plan, state, request->now_us, 0);
    state_decide_request(plan, state, request->now_us, verb, request, out);
}

/* ---- Another plan ---- */

/* A key's two states, as core/algorithm/former.h wants them; the arrays hold them. */
static int carry_read(const struct visit *visit, int64_t *state, int64_t *former, struct key_states *out)
{
    const struct page *page = visit->page;
    int error = visit_read(visit, state);
    if (!error && page->former)
        error = visit_read_former(visit, former);
    *out = (struct key_states){
        .own = { &page->text.plan, state },
        .former = { page->former, page->former ? former : NULL },
        .until_us = INT64_MAX,
        .one_at_a_time = true,
    };
    return error;
}

/* True if the key is under the request's plan, apart from a former state. */
static bool carry_is_own(const struct visit *visit)
{
    return visit->page->text.plan.fingerprint == visit->plan->text.plan.fingerprint;
}

/* Put the key under a plan with what it takes along. */
static int carry_put(struct visit *visit, const struct carried *carried, enum room *room)
{
    int64_t state[STATE_MAX_WORDS];
    struct page with_former;
    const struct page *page = visit->plan;
    uint32_t number = visit->number;
    int error = WEIR_OK;
    if (carried->former.plan) {
        error = book_number_of(&visit->machine->book, visit->request, &page->text.plan, carried->former.plan, &number);
        if (error)
            return error;
        page_fill(&with_former, visit->request->limit, &page->text.plan, carried->former.plan);
        page = number ? book_page(&visit->machine->book, number) : &with_former;
    }
    if (!page)
        return WEIR_ESTATE;
    carry_write(&visit->plan->text.plan, carried, visit->now_us, state);
    bool has_room = number != 0;
    int64_t soonest_us;
    if (has_room)
        error = stripe_make_room(visit, cells_for(page->words, visit->len), true, &has_room, &soonest_us);
    *room = has_room ? ROOM_OK : ROOM_FULL;
    if (!error)
        error = visit_find(visit); /* the keys before it in its bucket may be gone */
    if (error || !has_room || visit->first == 0)
        return error;
    error = visit_replace(visit, number, page, state, carried->former.state);
    if (!error) {
        const int64_t fresh_at_us = visit_fresh_at_us(visit, &error);
        stripe_note(visit->stripe, fresh_at_us);
    }
    return error;
}

/* Not inline: its frame holds whole states. */
__attribute__((noinline)) int visit_carry(struct visit *visit, enum room *room)
{
    int64_t state[STATE_MAX_WORDS], former[STATE_MAX_WORDS];
    struct key_states states;
    int error = carry_read(visit, state, former, &states);
    *room = ROOM_OK;
    if (error)
        return error;
    if (carry_is_own(visit)) {
        const struct carried alone = { .from = states.own };
        enum room ignored; /* without room the former state stays */
        return states.former.plan && state_fresh_at_us(states.former.plan, former) == 0
                   ? carry_put(visit, &alone, &ignored)
                   : WEIR_OK;
    }
    const struct carried carried = carry_over(&visit->plan->text.plan, &states, visit->now_us);
    return carried.from.plan ? carry_put(visit, &carried, room) : visit_remove(visit);
}

__attribute__((noinline)) int visit_peek(struct visit *visit, struct weir_decision *out)
{
    int64_t state[STATE_MAX_WORDS], former[STATE_MAX_WORDS], carried_state[STATE_MAX_WORDS];
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
    const struct carried carried = carry_over(plan, &states, request->now_us);
    if (carried.from.plan)
        carry_write(plan, &carried, request->now_us, carried_state);
    else
        state_charge(plan, carried_state, request->now_us, 0);
    state_decide(plan, carried_state, request->now_us, request->cost, WEIR_PEEK, out);
    return WEIR_OK;
}

/* ---- A decision ---- */

/* Decide for a key with a former state. */
__attribute__((noinline)) static int decide_with_former(struct visit *visit, struct weir_decision *out)
{
    int64_t state[STATE_MAX_WORDS], former[STATE_MAX_WORDS];
    const struct weir_backend_request *request = visit->request;
    const struct weir_plan *plan = &visit->page->text.plan;
    struct key_states states;
    int error = carry_read(visit, state, former, &states);
    if (error)
        return error;
    if (!state_decide_request(plan, state, request->now_us, request->verb, request, out))
        return WEIR_OK;
    former_change(&states, former, request, out);
    const bool is_fresh = state_is_fresh(plan, state, request, out);
    if (is_fresh && !former_counts(&states, request->now_us))
        return visit_remove(visit);
    if (is_fresh) /* a refund: blocks that are too old go as well */
        state_charge(plan, state, request->now_us, 0);
    return visit_write(visit, state, former);
}

int visit_decide(struct visit *visit, struct weir_decision *out)
{
    int64_t state[STATE_MAX_WORDS];
    const struct weir_backend_request *request = visit->request;
    if (visit->page->former)
        return decide_with_former(visit, out);
    const int error = visit_read(visit, state);
    if (error || !state_decide_request(&visit->page->text.plan, state, request->now_us, request->verb, request, out))
        return error;
    return state_is_fresh(&visit->page->text.plan, state, request, out) ? visit_remove(visit)
                                                                        : visit_write(visit, state, NULL);
}
