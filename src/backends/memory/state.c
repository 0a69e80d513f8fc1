/* state.c - what the state of one key decides, whether the key has an entry or not. */
#include "backends/memory/parts.h"

void missing_state(const struct weir_backend_request *request, const struct weir_plan *plan, int64_t *state)
{
    if (request->cold_since_us < 0)
        state_charge(plan, state, request->now_us, 0);
    else
        state_charge(plan, state, request->cold_since_us, plan->size - min_of(request->cold_left, plan->size));
}

void decide_absent(const struct weir_backend_request *request, const struct weir_plan *plan, int64_t *state,
                   struct weir_decision *out)
{
    enum weir_verb verb = request->verb == WEIR_RESET ? WEIR_PEEK : request->verb;
    missing_state(request, plan, state);
    state_decide_request(plan, state, NULL, request->now_us, verb, request, out);
}

void peek_entry(struct memory *memory, const struct weir_backend_request *request, const struct entry *entry,
                struct weir_decision *out)
{
    const struct weir_plan *plan = &entry_rule(&memory->table, entry)->plan;
    int64_t *state = (int64_t *)entry_state(entry, 0); /* a peek does not write to it */
    state_decide(plan, state, request->now_us, request->cost, WEIR_PEEK, out);
}
