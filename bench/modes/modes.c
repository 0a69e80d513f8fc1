/* modes.c - local, distributed and hybrid mode side by side: see modes.h. */
#include "modes/modes.h"

#include <stdio.h>

#include "report/plots.h"

const char *const modes_names[MODES] = { "local", "distributed", "hybrid" };

static const char *const PROMISES[MODES] = { "its share", "exact", "stated bound" };

/* When to choose each mode. */
static const char *const ADVICE[MODES] = {
    "local: choose it for a single process, or if instances get even traffic and a decision must cost next to nothing "
    "and depend on no server; the permits that one instance does not use are lost to the others.",
    "distributed: choose it if the limit must hold exactly however the balancer deals, and a round trip to Redis for each "
    "request is acceptable.",
    "hybrid: choose it if few keys make most of the traffic, the limit must hold over all instances, and neither a "
    "round trip for each request nor the lost part of uneven shares is acceptable; check over_max of your limits.",
};

void modes_section(const struct modes *modes)
{
    char sentence[300];
    snprintf(sentence, sizeof sentence,
             "local, distributed and hybrid mode side by side; token bucket unless a row says otherwise; medians "
             "and their spread over the repetitions%s%s",
             modes->store ? "; " : "", modes->store ? modes->store->about : "");
    report_section(modes->bench->report, "modes", sentence);
}

void modes_row(const struct modes *modes, const char *figure)
{
    report_row(modes->bench->report);
    report_text(modes->bench->report, "figure", figure);
}

void modes_figure(const struct modes *modes, enum weir_mode mode, const struct sample *sample)
{
    report_figure(modes->bench->report, modes_names[mode], sample);
}

void modes_text(const struct modes *modes, enum weir_mode mode, const char *text)
{
    report_text(modes->bench->report, modes_names[mode], text);
}

void modes_floor(const struct modes *modes, const struct sample *sample, const char *what)
{
    report_figure(modes->bench->report, "floor", sample);
    report_text(modes->bench->report, "which is", what);
}

bool modes_open(const struct modes *modes, enum weir_mode mode, const char *limit, const struct weir_policy *policy,
                struct remote *out)
{
    const struct weir_options options = remote_options(mode);
    return remote_open(out, modes->store, &options, limit, policy);
}

static void report_promises(const struct modes *modes)
{
    modes_row(modes, "over all instances");
    for (int mode = 0; mode < MODES; mode++)
        if (modes->is_chosen[mode])
            modes_text(modes, (enum weir_mode)mode, PROMISES[mode]);
}

void bench_modes(struct bench *bench)
{
    struct modes modes = { .bench = bench, .store = store_of_modes(bench) };
    for (int mode = 0; mode < MODES; mode++)
        modes.is_chosen[mode] = bench->modes[mode] && (mode == WEIR_LOCAL || modes.store);
    modes.plots = bench->results ? plots_open(bench->results) : NULL;
    modes_section(&modes);
    report_promises(&modes);
    modes_speed(&modes);
    modes_pace(&modes);
    modes_costs(&modes);
    modes_accuracy(&modes);
    modes_changes(&modes);
    modes_gap(&modes);
    modes_log(&modes);
    for (int mode = 0; mode < MODES; mode++)
        if (modes.is_chosen[mode])
            report_note(bench->report, ADVICE[mode]);
    report_end_section(bench->report);
    plots_close(modes.plots);
}
