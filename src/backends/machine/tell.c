/* tell.c - what the inspector of a shared file says about a key, or about a wrong argument. */
#include "backends/machine/inspector.h"
#include "core/policy/plan.h"

int inspect_refuse(const struct file_inspector *inspector, const char *sentence)
{
    log_line(&inspector->log, WEIR_LOG_ERROR, "%s", sentence);
    return WEIR_EINVAL;
}

static void inspect_tell_state(const struct weir_plan *plan, int64_t *state, int64_t now_us,
                               struct weir_inspected_state *out)
{
    int64_t at_us = now_us;
    out->policy = plan_policy(plan);
    out->used = state_used(plan, state, &at_us);
    state_decide(plan, state, now_us, 1, WEIR_PEEK, &out->decision);
}

int inspect_tell(const struct visit *visit, struct weir_inspected *out)
{
    int64_t state[BEHIND_MAX_WORDS];
    int error = visit_read(visit, state);
    if (error)
        return error;
    out->found = WEIR_FOUND_STATE;
    inspect_tell_state(&visit->page->text.plan, state, visit->now_us, &out->state);
    out->has_former = visit->page->former && behind_has_former(visit->page->former);
    if (out->has_former) {
        error = visit_read_former(visit, state);
        if (error)
            return error;
        inspect_tell_state(visit->page->former, state + behind_former_at(visit->page->former), visit->now_us,
                           &out->former);
    }
    return WEIR_OK;
}
