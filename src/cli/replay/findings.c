/* findings.c - a finding of weir suggest as a policy. */
#include <stdio.h>
#include <string.h>

#include "cli/replay/findings.h"

void suggest_policy(const struct suggest *suggest, size_t algorithm, size_t period, uint64_t limit,
                    char text[SUGGEST_TEXT_SIZE])
{
    snprintf(text, SUGGEST_TEXT_SIZE, "%s limit=%llu period=%s", suggest->algorithms[algorithm],
             (unsigned long long)limit, suggest->periods[period]);
}

void findings_name_deciders(struct findings *findings)
{
    for (size_t key = 0; key < findings->rows->key_count; key++) {
        if (findings->below_by_key[key] <= findings->denied_by_key[key] ||
            (findings->is_by_clients && findings->denied_by_key[key] > 0))
            continue;
        findings->decider_count++;
        size_t at = findings->deciders_shown;
        while (at > 0 && findings->requests_by_key[findings->deciders[at - 1]] < findings->requests_by_key[key])
            at--;
        if (at == DECIDERS_SHOWN)
            continue;
        findings->deciders_shown += findings->deciders_shown < DECIDERS_SHOWN;
        memmove(&findings->deciders[at + 1], &findings->deciders[at],
                (findings->deciders_shown - at - 1) * sizeof findings->deciders[0]);
        findings->deciders[at] = (uint32_t)key;
    }
}
