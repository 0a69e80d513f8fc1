/* page_notes.c - what a replay notes of each decision for its HTML page. */
#include <stdlib.h>

#include "cli/replay/page_replay.h"

bool page_notes_start(struct page_notes *notes, const struct rows *rows)
{
    *notes = (struct page_notes){ 0 };
    notes->denied = calloc(rows->count / 8 + 1, 1);
    return notes->denied && plot_start(&notes->plot, rows);
}

/* Return the step of a wait: 0 for none, then up to 1 ms, 10 ms, 100 ms, 1 s, 10 s, 1 min, 10 min, longer, never. */
static size_t wait_step(int64_t wait_us)
{
    static const int64_t ends_us[] = { 0,           WEIR_SECOND / 1000, WEIR_SECOND / 100, WEIR_SECOND / 10,
                                       WEIR_SECOND, 10 * WEIR_SECOND,   60 * WEIR_SECOND,  600 * WEIR_SECOND };
    size_t step = 0;
    if (wait_us < 0 || wait_us == WEIR_NEVER)
        return PAGE_WAITS - 1;
    while (step < sizeof ends_us / sizeof *ends_us && wait_us > ends_us[step])
        step++;
    return step;
}

void page_notes_add(struct page_notes *notes, const struct row *row, const struct weir_decision *decision)
{
    plot_add(&notes->plot, row->time_us, decision->allowed);
    if (decision->allowed) {
        notes->delays[wait_step(decision->delay_us)]++;
        notes->has_delay = notes->has_delay || decision->delay_us != 0;
        return;
    }
    notes->denied[row->position / 8] |= (uint8_t)(1 << row->position % 8);
    notes->denials[wait_step(decision->retry_after_us)]++;
    if (!notes->has_denial || row->time_us < notes->first_us)
        notes->first_us = row->time_us;
    if (!notes->has_denial || row->time_us > notes->last_us)
        notes->last_us = row->time_us;
    notes->has_denial = true;
}

void page_notes_free(struct page_notes *notes)
{
    free(notes->denied);
    notes->denied = NULL;
    plot_free(&notes->plot);
}
