/* page_notes.c - what a replay notes of each decision for its HTML page. */
#include <stdlib.h>
#include <string.h>

#include "cli/replay/page_replay.h"

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

/* Turn the current bin into cells. */
static bool notes_end_bin(struct page_notes *notes)
{
    const size_t wanted = notes->cell_count + notes->touched_count;
    if (wanted > notes->cell_capacity) {
        const size_t capacity = wanted + wanted / 2;
        struct page_cell *grown = realloc(notes->cells, capacity * sizeof *grown);
        if (!grown)
            return false;
        notes->cells = grown;
        notes->cell_capacity = capacity;
    }
    for (size_t i = 0; i < notes->touched_count; i++) {
        const uint32_t key = notes->touched[i];
        notes->cells[notes->cell_count++] = (struct page_cell){ notes->begin_us, key, notes->now[key] };
        notes->now[key] = (struct plot_bin){ 0 };
    }
    notes->touched_count = 0;
    return true;
}

/* Count requests of a key in the current bin. */
static bool notes_count(struct page_notes *notes, uint32_t key, struct plot_bin requests)
{
    if (key >= notes->key_capacity) {
        const size_t capacity = ((size_t)key + 1) * 2;
        struct plot_bin *now = realloc(notes->now, capacity * sizeof *now);
        notes->now = now ? now : notes->now;
        uint32_t *touched = realloc(notes->touched, capacity * sizeof *touched);
        notes->touched = touched ? touched : notes->touched;
        if (!now || !touched)
            return false;
        memset(now + notes->key_capacity, 0, (capacity - notes->key_capacity) * sizeof *now);
        notes->key_capacity = capacity;
    }
    struct plot_bin *bin = &notes->now[key];
    if (bin->admitted + bin->denied == 0)
        notes->touched[notes->touched_count++] = key;
    bin->admitted += requests.admitted;
    bin->denied += requests.denied;
    return true;
}

static bool notes_count_at(struct page_notes *notes, int64_t time_us, uint32_t key, struct plot_bin requests)
{
    if (time_us < notes->begin_us || time_us >= notes->begin_us + notes->width_us) {
        if (!notes_end_bin(notes))
            return false;
        notes->begin_us = time_us - time_us % notes->width_us;
    }
    return notes_count(notes, key, requests);
}

/* Merge the cells as the plot has merged its bins. */
static bool notes_widen(struct page_notes *notes)
{
    if (!notes_end_bin(notes))
        return false;
    const struct page_cell *cells = notes->cells;
    const size_t count = notes->cell_count;
    struct page_notes merged = { .now = notes->now, .touched = notes->touched, .key_capacity = notes->key_capacity };
    bool has_room = true;
    merged.width_us = notes->plot.width_us;
    for (size_t i = 0; i < count && has_room; i++)
        has_room = notes_count_at(&merged, cells[i].begin_us, cells[i].key, cells[i].requests);
    has_room = has_room && notes_end_bin(&merged);
    free(notes->cells);
    notes->cells = merged.cells;
    notes->cell_count = merged.cell_count;
    notes->cell_capacity = merged.cell_capacity;
    notes->begin_us = merged.begin_us;
    notes->width_us = merged.width_us;
    return has_room;
}

bool page_notes_add(struct page_notes *notes, const struct row *row, const struct weir_decision *decision)
{
    const struct plot_bin request = { .admitted = decision->allowed, .denied = !decision->allowed };
    if (!plot_add(&notes->plot, row->time_us, request) ||
        (notes->width_us != notes->plot.width_us && !notes_widen(notes)) ||
        !notes_count_at(notes, row->time_us, row->key, request))
        return false;
    if (decision->allowed) {
        notes->delays[wait_step(decision->delay_us)]++;
        notes->has_delay = notes->has_delay || decision->delay_us != 0;
        return true;
    }
    notes->denials[wait_step(decision->retry_after_us)]++;
    if (!notes->has_denial || row->time_us < notes->first_us)
        notes->first_us = row->time_us;
    if (!notes->has_denial || row->time_us > notes->last_us)
        notes->last_us = row->time_us;
    notes->has_denial = true;
    return true;
}

bool page_notes_finish(struct page_notes *notes)
{
    plot_finish(&notes->plot);
    return notes_end_bin(notes);
}

void page_notes_free(struct page_notes *notes)
{
    free(notes->cells);
    free(notes->now);
    free(notes->touched);
    plot_free(&notes->plot);
    *notes = (struct page_notes){ 0 };
}
