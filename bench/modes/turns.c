/* turns.c - rows of the modes' table whose figures are all measured in turns: see turns.h. */
#include "modes/turns.h"

#include <stdio.h>

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

struct sample turns_speed(const struct turns *turns, int number)
{
    const struct load *load = &turns->loads[number];
    const bool has_undisturbed = load->disturbed_len < load->per_second.n;
    struct sample sample = { 0 };
    for (int i = 0; i < load->per_second.n; i++)
        if (!has_undisturbed || !load->is_disturbed[i])
            sample_add(&sample, load->per_second.values[i]);
    return sample;
}

void turns_report(const struct modes *modes, const struct turns *turns, const char *figure, const int loads[MODES + 1],
                  const char *floor)
{
    modes_row(modes, figure);
    for (int i = 0; i <= MODES; i++) {
        if (loads[i] < 0)
            continue;
        const struct load *load = &turns->loads[loads[i]];
        const struct sample sample = turns_speed(turns, loads[i]);
        char text[40];
        snprintf(text, sizeof text, "%llu failed", (unsigned long long)load->failed);
        if (i < MODES && load->failed > 0)
            modes_text(modes, (enum weir_mode)i, text);
        else if (i < MODES)
            modes_figure(modes, (enum weir_mode)i, &sample);
        else
            modes_floor(modes, &sample, floor);
    }
}
