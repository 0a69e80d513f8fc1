/* timeline.c - what a replay notes of each decision for its page: see timeline.h. */
#include "cli/replay/timeline.h"

#include <stdlib.h>
#include <string.h>

#include "cli/replay/document.h"

/* Return the width of bins: 1 ms to a day, and then twice as much each time. */
static int64_t width_us(size_t step)
{
    static const int64_t widths_ms[] = { 1,     10,     100,    1000,    5000,     15000,
                                         60000, 300000, 900000, 3600000, 21600000, 86400000 };
    const size_t count = sizeof widths_ms / sizeof *widths_ms;
    return step < count ? widths_ms[step] * 1000 : widths_ms[count - 1] * 1000 << (step - count + 1);
}

/* Count requests in the newest cell of their key, or in a new one. There is room for one. */
static void cell_add(struct timeline *timeline, struct timeline_cell cell)
{
    const uint32_t number = timeline->last[cell.key];
    struct timeline_cell *newest = number ? &timeline->cells[number - 1] : NULL;
    if (!newest || newest->begin_us != cell.begin_us) {
        newest = &timeline->cells[timeline->count];
        *newest = (struct timeline_cell){ cell.begin_us, cell.key, 0, 0 };
        timeline->last[cell.key] = (uint32_t)++timeline->count;
    }
    newest->admitted += cell.admitted;
    newest->denied += cell.denied;
}

/* Make the bins so wide that few of them cover all rows, and merge the cells. */
static void timeline_widen(struct timeline *timeline)
{
    const size_t before = timeline->step, count = timeline->count;
    while ((timeline->last_us - timeline->first_us) / width_us(timeline->step) >= TIMELINE_BINS - 1)
        timeline->step++;
    if (timeline->step == before)
        return;
    memset(timeline->last, 0, timeline->key_capacity * sizeof *timeline->last);
    timeline->count = 0;
    for (size_t i = 0; i < count; i++) {
        struct timeline_cell cell = timeline->cells[i];
        cell.begin_us -= cell.begin_us % width_us(timeline->step);
        cell_add(timeline, cell);
    }
}

static bool room_make(struct timeline *timeline, uint32_t key)
{
    if (key >= timeline->key_capacity) {
        const size_t capacity = ((size_t)key + 1) * 2;
        uint32_t *grown = realloc(timeline->last, capacity * sizeof *grown);
        if (!grown)
            return false;
        memset(grown + timeline->key_capacity, 0, (capacity - timeline->key_capacity) * sizeof *grown);
        timeline->last = grown;
        timeline->key_capacity = capacity;
    }
    if (timeline->count == timeline->capacity) {
        const size_t capacity = timeline->capacity * 2 + 1024;
        struct timeline_cell *grown = realloc(timeline->cells, capacity * sizeof *grown);
        if (!grown)
            return false;
        timeline->cells = grown;
        timeline->capacity = capacity;
    }
    return true;
}

/* Return the step of a wait: see NAMES. */
static size_t wait_step(int64_t wait_us)
{
    static const int64_t ends_us[] = { 0,           WEIR_SECOND / 1000, WEIR_SECOND / 100, WEIR_SECOND / 10,
                                       WEIR_SECOND, 10 * WEIR_SECOND,   60 * WEIR_SECOND,  600 * WEIR_SECOND };
    size_t step = 0;
    if (wait_us < 0 || wait_us == WEIR_NEVER)
        return TIMELINE_WAITS - 1;
    while (step < sizeof ends_us / sizeof *ends_us && wait_us > ends_us[step])
        step++;
    return step;
}

static const char *const NAMES[TIMELINE_WAITS] = { "none",      "up to 1 ms", "up to 10 ms", "up to 100 ms",
                                                   "up to 1 s", "up to 10 s", "up to 1 min", "up to 10 min",
                                                   "longer",    "never" };

bool timeline_add(struct timeline *timeline, const struct row *row, const struct weir_decision *decision)
{
    const int64_t time_us = row->time_us;
    const bool is_first = timeline->count == 0;
    if (!room_make(timeline, row->key))
        return false;
    timeline->first_us = is_first || time_us < timeline->first_us ? time_us : timeline->first_us;
    timeline->last_us = is_first || time_us > timeline->last_us ? time_us : timeline->last_us;
    timeline_widen(timeline);
    cell_add(timeline, (struct timeline_cell){ time_us - time_us % width_us(timeline->step), row->key,
                                               decision->allowed, !decision->allowed });
    if (decision->allowed)
        return timeline->delays[wait_step(decision->delay_us)]++, true;
    timeline->denials[wait_step(decision->retry_after_us)]++;
    if (!timeline->has_denial || time_us < timeline->first_denied_us)
        timeline->first_denied_us = time_us;
    if (!timeline->has_denial || time_us > timeline->last_denied_us)
        timeline->last_denied_us = time_us;
    timeline->has_denial = true;
    return true;
}

/* Return the bins of a key, or of all keys if it is NULL. */
static json_t *bins_document(const struct timeline *timeline, const uint32_t *key, int64_t begin_us, size_t count)
{
    uint64_t *sums = calloc(2 * count, sizeof *sums);
    json_t *bins = json_object(), *admitted = json_array(), *denied = json_array();
    for (size_t i = 0; i < timeline->count && sums; i++) {
        const struct timeline_cell *cell = &timeline->cells[i];
        const size_t at = (size_t)((cell->begin_us - begin_us) / width_us(timeline->step));
        if (key && cell->key != *key)
            continue;
        sums[2 * at] += cell->admitted;
        sums[2 * at + 1] += cell->denied;
    }
    for (size_t i = 0; i < count && sums; i++) {
        document_push(admitted, json_integer((json_int_t)sums[2 * i]));
        document_push(denied, json_integer((json_int_t)sums[2 * i + 1]));
    }
    free(sums);
    document_add(bins, "admitted", sums ? admitted : NULL);
    document_add(bins, "denied", denied);
    return bins;
}

json_t *timeline_document(const struct timeline *timeline, const uint32_t *keys, size_t count)
{
    const int64_t width = width_us(timeline->step), begin_us = timeline->first_us - timeline->first_us % width;
    const size_t bins = (size_t)((timeline->last_us - begin_us) / width) + 1;
    json_t *document = bins_document(timeline, NULL, begin_us, bins), *worst = json_array(), *waits = json_array();
    document_add(document, "begin_us", json_integer(begin_us));
    document_add(document, "width_us", json_integer(width));
    for (size_t i = 0; i < count; i++)
        document_push(worst, bins_document(timeline, &keys[i], begin_us, bins));
    document_add(document, "worst", worst);
    for (size_t i = 0; i < TIMELINE_WAITS; i++)
        document_push(waits, json_pack("{s:s,s:I,s:I}", "wait", NAMES[i], "denied", (json_int_t)timeline->denials[i],
                                       "admitted", (json_int_t)timeline->delays[i]));
    document_add(document, "waits", waits);
    if (timeline->has_denial) {
        document_time(document, "first_denied", timeline->first_denied_us);
        document_time(document, "last_denied", timeline->last_denied_us);
    }
    return document;
}

void timeline_free(struct timeline *timeline)
{
    free(timeline->cells);
    free(timeline->last);
    *timeline = (struct timeline){ 0 };
}
