/* decisions.c - a line per row on stdout: allowed,remaining,retry_after_us,reset_after_us,delay_us. */
#include "cli/replay/decisions.h"

#include <stdio.h>
#include <stdlib.h>

static void print_line(const struct decision_line *line);

bool decisions_start(struct decisions *decisions, bool must_wait, size_t count)
{
    *decisions = (struct decisions){ .count = count };
    if (must_wait)
        decisions->waiting = malloc((count + 1) * sizeof *decisions->waiting);
    return !must_wait || decisions->waiting;
}

void decisions_add(struct decisions *decisions, size_t position, const struct weir_decision *decision)
{
    struct decision_line line = { decision->remaining * 2 + decision->allowed, decision->retry_after_us,
                                  decision->reset_after_us, decision->delay_us };
    if (decisions->waiting)
        decisions->waiting[position] = line;
    else
        print_line(&line);
}

void decisions_finish(struct decisions *decisions)
{
    for (size_t i = 0; i < decisions->count && decisions->waiting; i++)
        print_line(&decisions->waiting[i]);
    free(decisions->waiting);
    decisions->waiting = NULL;
}

/* Write the digits of `value` to `out`; return their end. printf takes longer than most decisions. */
static char *number_print(int64_t value, char *out)
{
    char digits[20];
    size_t len = 0;
    uint64_t rest = value < 0 ? 0 - (uint64_t)value : (uint64_t)value;
    if (value < 0)
        *out++ = '-';
    do
        digits[len++] = (char)('0' + rest % 10);
    while (rest /= 10);
    while (len)
        *out++ = digits[--len];
    return out;
}

static void print_line(const struct decision_line *line)
{
    char text[5 * 22], *end = text;
    int64_t fields[] = { line->allowed_and_remaining & 1, line->allowed_and_remaining >> 1, line->retry_after_us,
                         line->reset_after_us, line->delay_us };
    for (size_t i = 0; i < 5; i++) {
        end = number_print(fields[i], end);
        *end++ = i < 4 ? ',' : '\n';
    }
    fwrite(text, 1, (size_t)(end - text), stdout);
}
