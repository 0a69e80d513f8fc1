/* findings.c - a finding of weir suggest as a policy. */
#include <stdio.h>

#include "cli/replay/findings.h"

void suggest_policy(const struct suggest *suggest, size_t algorithm, size_t period, uint64_t limit,
                    char text[SUGGEST_TEXT_SIZE])
{
    snprintf(text, SUGGEST_TEXT_SIZE, "%s limit=%llu period=%s", suggest->algorithms[algorithm],
             (unsigned long long)limit, suggest->periods[period]);
}
