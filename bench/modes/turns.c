/* turns.c - rows of the modes' table whose figures are all measured in turns: see turns.h. */
#include "modes/turns.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include "measure/subject.h"
#include "redis/user_store.h"

#define RATE 20000000 /* permits a second: more than one caller can take */
#define FILL_S 40     /* the seconds in which RATE returns a filling */

const struct weir_policy turns_policies[KINDS] = {
    [KIND_TOKEN] = { .limit = RATE, .period_us = WEIR_SECOND, .burst = SUBJECT_PLENTY },
    [KIND_INTERVAL] = { .refill = WEIR_INTERVAL, .limit = SUBJECT_PLENTY, .period_us = USER_STORE_LIFE_US },
    [KIND_FIXED] = { .algorithm = WEIR_FIXED_WINDOW, .limit = SUBJECT_PLENTY, .period_us = USER_STORE_LIFE_US },
    [KIND_SLIDING] = { .algorithm = WEIR_SLIDING_WINDOW,
                       .limit = SUBJECT_PLENTY,
                       .period_us = 9 * USER_STORE_LIFE_US / 10 },
    [KIND_LEAKY] = { .algorithm = WEIR_LEAKY_BUCKET,
                     .limit = RATE,
                     .period_us = WEIR_SECOND,
                     .capacity = SUBJECT_PLENTY },
};
const int64_t turns_fill[KINDS] = {
    [KIND_TOKEN] = (int64_t)FILL_S * RATE, [KIND_INTERVAL] = 1, [KIND_FIXED] = 1, [KIND_SLIDING] = 1,
    [KIND_LEAKY] = (int64_t)FILL_S * RATE,
};
const struct weir_policy turns_usual = { .limit = RATE, .period_us = WEIR_SECOND };
const struct weir_policy turns_denying = { .limit = 1, .period_us = USER_STORE_LIFE_US };

const struct turns_look turns_per_second = { offsetof(struct load, per_second), 1 };
const struct turns_look turns_ns = { offsetof(struct load, ns), 1 };
const struct turns_look turns_server_ns = { offsetof(struct load, server_us), 1e3 };
const struct turns_look turns_client_ns = { offsetof(struct load, client_us), 1e3 };
const struct turns_look turns_calls_per_million = { offsetof(struct load, store_calls), 1e6 };

void turns_give_up(struct modes *modes, enum weir_mode mode)
{
    char sentence[300];
    modes->is_chosen[mode] = false;
    snprintf(sentence, sizeof sentence, "%s: NOT MEASURED in the remaining rows: %s", modes_names[mode],
             remote_complaint());
    bench_say("%s", sentence);
    report_note(modes->bench->report, sentence);
}

int turns_add(struct turns *turns, const struct load *load)
{
    if (turns->n == TURNS_MAX)
        bench_fail("more than %d loads in turns", TURNS_MAX);
    turns->loads[turns->n] = *load;
    return turns->n++;
}

void turns_measure(const struct modes *modes, struct turns *turns, double seconds)
{
    load_measure(turns->loads, turns->n, modes->bench->repeats, seconds, modes->store);
}

/* Return the figures of the repetitions that no other program disturbed, or of all if each was. */
static struct sample turns_look_at(const struct load *load, const struct turns_look *look)
{
    const struct sample *all = (const struct sample *)((const char *)load + look->sample);
    const bool has_undisturbed = load->disturbed_len < load->ns.n;
    struct sample sample = { 0 };
    for (int i = 0; i < all->n; i++)
        if (!has_undisturbed || !load->is_disturbed[i])
            sample_add(&sample, all->values[i] * look->scale);
    return sample;
}

void turns_report(const struct modes *modes, const struct turns *turns, const char *figure, const int loads[MODES + 1],
                  const struct turns_look *look, const char *floor)
{
    modes_row(modes, figure);
    for (int i = 0; i <= MODES; i++) {
        if (loads[i] < 0)
            continue;
        const struct load *load = &turns->loads[loads[i]];
        struct sample sample = turns_look_at(load, look);
        char text[40];
        snprintf(text, sizeof text, "%llu failed", (unsigned long long)load->failed);
        if (i < MODES && load->failed > 0)
            modes_text(modes, (enum weir_mode)i, text);
        else if (i < MODES && sample.n == 0)
            modes_text(modes, (enum weir_mode)i, "unknown");
        else if (i < MODES)
            modes_figure(modes, (enum weir_mode)i, &sample);
        else
            modes_floor(modes, &sample, floor);
    }
}
