/* modes.c - the modes side by side: see modes.h. */
#include "modes/modes.h"

#include <stdio.h>

const char *const modes_names[MODES] = { "local", "distributed", "hybrid", "machine" };

void modes_row(const struct modes *modes, const char *figure)
{
    report_row(modes->bench->report);
    report_text(modes->bench->report, "figure", figure);
}

void modes_figure(const struct modes *modes, enum weir_mode mode, const struct sample *sample)
{
    report_sample(modes->bench->report, modes_names[mode], sample);
}

void modes_text(const struct modes *modes, enum weir_mode mode, const char *text)
{
    report_text(modes->bench->report, modes_names[mode], text);
}

void modes_floor(const struct modes *modes, const struct sample *sample, const char *what)
{
    report_sample(modes->bench->report, "floor", sample);
    report_text(modes->bench->report, "which is", what);
}

void modes_curves(const struct modes *modes, struct report_curves curves, const char *last)
{
    int n = 0;
    for (int mode = 0; mode < MODES; mode++)
        if (modes->is_chosen[mode])
            curves.names[n++] = modes_names[mode];
    if (last)
        curves.names[n] = last;
    report_curves(modes->bench->report, &curves);
}

bool modes_open(struct modes *modes, enum weir_mode mode, const char *limit, const struct weir_policy *policy,
                struct remote *out)
{
    const struct weir_options options = remote_options(mode);
    char sentence[300];
    if (remote_open(out, modes->store, &options, limit, policy))
        return true;
    modes->is_chosen[mode] = false;
    snprintf(sentence, sizeof sentence, "%s: NOT MEASURED in the remaining rows: %s", modes_names[mode],
             remote_complaint());
    bench_say("%s", sentence);
    report_note(modes->bench->report, sentence);
    return false;
}

static void report_promises(const struct modes *modes)
{
    static const char *const promises[MODES] = { "its share", "exact", "a bound", "exact" };
    static const char *const scopes[MODES] = { "a process", "machines", "machines", "a machine" };
    modes_row(modes, "holds over");
    for (int mode = 0; mode < MODES; mode++)
        if (modes->is_chosen[mode])
            modes_text(modes, (enum weir_mode)mode, scopes[mode]);
    modes_row(modes, "promises");
    for (int mode = 0; mode < MODES; mode++)
        if (modes->is_chosen[mode])
            modes_text(modes, (enum weir_mode)mode, promises[mode]);
}

void bench_modes(struct bench *bench)
{
    static void (*const parts[])(struct modes * modes) = { modes_speed,    modes_pace, modes_memory,
                                                           modes_accuracy, modes_gap,  modes_log };
    struct modes modes = { .bench = bench, .store = store_of_modes(bench) };
    char sentence[300];
    for (int mode = 0; mode < MODES; mode++)
        modes.is_chosen[mode] = bench->modes[mode] && (modes.store || !modes_asks_redis((enum weir_mode)mode));
    snprintf(
        sentence, sizeof sentence,
        "Keys are addresses and UUIDs; medians, and their range over %d repetitions; %d processes share a limit%s%s",
        bench->repeats, bench->instances, modes.store ? "; " : "", modes.store ? modes.store->about : "");
    report_section(bench->report, "modes", sentence);
    report_promises(&modes);
    bench_steps(2 + bench->repeats + accuracy_runs(bench) + gap_count(&modes) + (bench->log != NULL));
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        parts[i](&modes);
}
