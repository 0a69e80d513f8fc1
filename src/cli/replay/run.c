/* run.c - one replay: reads the rows, has them decided, and shows the outcome. */
#include "cli/replay/run.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "cli/cli.h"
#include "cli/replay/decisions.h"
#include "cli/replay/hold.h"
#include "cli/replay/input/bytes.h"
#include "cli/replay/report.h"

/* Keys of all limits together that a limiter has room for if more rows may come. Its tables take some MB for it. */
#define ROOM_ALONG ((size_t)1 << 23)

struct run {
    const struct replay *replay;
    struct rows rows;
    struct loader load;
    struct feed feed;
    struct progress progress;
    struct hold *holds;     /* one; with --compare one a policy */
    size_t hold_count;      /* 0: not started */
    struct policies *alone; /* with --compare: each policy */
    /* What receives each decision, besides the holds: */
    struct decisions decisions;
    struct timeline timeline;
};

static int run_watch(void *user, const struct row *row, const struct weir_decision *decision)
{
    struct run *run = user;
    const struct replay *replay = run->replay;
    if (replay->decisions_only)
        decisions_add(&run->decisions, row->position, decision);
    if (replay->html_path && !timeline_add(&run->timeline, row, decision))
        return out_of_memory();
    return replay->decisions_only && output_failed() ? EXIT_FAILED : EXIT_OK;
}

/* Open the limiters. If rows may still come, there is room for many keys. */
static int run_start(struct run *run)
{
    const struct replay *replay = run->replay;
    const size_t wanted = replay->compare ? replay->policies.count : 1;
    int code = EXIT_OK;
    run->holds = calloc(wanted, sizeof *run->holds);
    run->alone = calloc(wanted, sizeof *run->alone);
    if (!run->holds || !run->alone ||
        (replay->decisions_only && !decisions_start(&run->decisions, run->feed.is_reordered, run->rows.total)))
        return out_of_memory();
    for (; run->hold_count < wanted && code == EXIT_OK; run->hold_count++) {
        struct hold *hold = &run->holds[run->hold_count];
        struct policies *alone = &run->alone[run->hold_count];
        *hold = (struct hold){ .rows = &run->rows,
                               .policies = replay->compare ? alone : &replay->policies,
                               .store = &replay->store,
                               .progress = &run->progress,
                               .total = run->feed.has_ended ? run->rows.total : 0 };
        if (!replay->compare)
            hold->watcher = (struct hold_watcher){ run_watch, run };
        else if (!side_policy(&replay->policies, run->hold_count, alone))
            return out_of_memory();
        code = hold_start(hold, run->feed.has_ended ? run->rows.key_count : ROOM_ALONG / hold->policies->count);
    }
    return code;
}

static int run_take(void *user, const struct row *rows, size_t count)
{
    struct run *run = user;
    int code = run->hold_count ? EXIT_OK : run_start(run);
    if (code == EXIT_OK && run->rows.key_count > run->holds[0].most_keys) {
        snprintf(run->feed.why, sizeof run->feed.why, "more than %zu keys are too many to decide rows as they come",
                 run->holds[0].most_keys);
        return FEED_AGAIN;
    }
    for (size_t i = 0; i < run->hold_count && code == EXIT_OK; i++)
        code = hold_take(&run->holds[i], rows, count);
    return code;
}

static void run_free(struct run *run)
{
    for (size_t i = 0; i < run->hold_count; i++)
        tally_free(&run->holds[i].tally);
    for (size_t i = 0; run->replay->compare && i < run->hold_count; i++)
        free(run->alone[i].overrides);
    free(run->holds);
    free(run->alone);
    timeline_free(&run->timeline);
    rows_free(&run->rows);
}

/* Show the outcome, unless there are decisions instead, and write the page. */
static int run_show(struct run *run)
{
    const struct replay *replay = run->replay;
    const bool is_shown = !replay->decisions_only;
    json_t *document = NULL;
    decisions_finish(&run->decisions);
    if (!is_shown && !replay->html_path)
        return EXIT_OK;
    if (replay->compare)
        document = side_document(&run->rows, &replay->policies, run->holds);
    else
        document = report_document(&(struct report){ .rows = &run->rows,
                                                     .policies = &replay->policies,
                                                     .tally = &run->holds[0].tally,
                                                     .store = &replay->store,
                                                     .key_name = run->load.key_name,
                                                     .unreadable = run->load.unreadable,
                                                     .top = replay->top,
                                                     .busiest = run->feed.busiest,
                                                     .files = replay->input.files,
                                                     .file_count = replay->input.file_count,
                                                     .timeline = replay->html_path ? &run->timeline : NULL });
    if (!document)
        return EXIT_FAILED;
    if (is_shown)
        (replay->json ? document_print : replay->compare ? side_print : report_print)(document);
    const int code = replay->html_path ? page_write(document, replay->html_path) : EXIT_OK;
    json_decref(document);
    return code;
}

/* Read the input and decide its rows. `do_fit` becomes true if enough rows fit. */
static int run_decide(struct run *run, bool *do_fit)
{
    const struct replay *replay = run->replay;
    int code = input_read(&replay->input, &run->load, do_fit);
    if (code == EXIT_OK && replay->html_path && run->rows.total == 0) {
        complain("there are no requests to show");
        code = EXIT_FAILED;
    }
    int64_t shortest_us = INT64_MAX;
    for (size_t i = 0; i < replay->policies.count; i++) {
        const struct weir_policy *policy = &replay->policies.all[i].policy;
        if (policy->algorithm != WEIR_CONCURRENCY && policy->period_us < shortest_us)
            shortest_us = policy->period_us;
    }
    if (code == EXIT_OK)
        load_warn_of_seconds(&run->load, shortest_us);
    if (code == EXIT_OK)
        code = feed_end(&run->feed);
    if (code == EXIT_OK && run->hold_count == 0)
        code = run_start(run); /* there was no row */
    for (size_t i = 0; i < run->hold_count; i++)
        code = hold_end(&run->holds[i], code);
    progress_clear(&run->progress);
    return code;
}

static enum feed_way way_of(const struct replay *replay)
{
    if (replay->keep_order)
        return FEED_AS_READ;
    return replay->sort || replay->decisions_only || replay->store.options.mode != WEIR_LOCAL ? FEED_SORTED : FEED_ALONG;
}

/* Replay once. FEED_AGAIN: the feed needs the input again, and `load` knows which messages were already printed. */
static int run_once(const struct replay *replay, enum feed_way way, struct loader *load)
{
    struct run run = { .replay = replay };
    bool do_fit = false;
    run.load = (struct loader){ .rows = &run.rows,
                                .options = &replay->input.load,
                                .progress = &run.progress,
                                .feed = &run.feed,
                                .heard = load->said };
    run.feed = (struct feed){ way, &run.rows, .late = FEED_LATE, .take = run_take, .user = &run };
    run.feed.last_us = INT64_MIN;
    rows_start(&run.rows);
    progress_start(&run.progress, !(replay->decisions_only && isatty(STDOUT_FILENO)));
    int code = run_decide(&run, &do_fit);
    if (code == EXIT_OK)
        code = run_show(&run);
    if (code == FEED_AGAIN && input_repeat(&replay->input))
        complain("%s:%lld: %s; reading the input again, to sort all rows in memory first", run.load.again_name,
                 (long long)run.load.again_line, run.feed.why);
    else if (code == FEED_AGAIN) {
        complain(
            "%s:%lld: %s, and the input cannot be read again; --sort keeps all rows in memory and sorts them first",
            run.load.again_name, (long long)run.load.again_line, run.feed.why);
        code = EXIT_FAILED;
    }
    run_free(&run);
    *load = run.load;
    return code == EXIT_OK && !do_fit ? EXIT_FAILED : code;
}

int run_replay(const struct replay *replay)
{
    struct loader load = { 0 };
    if (replay->html_path && !page_check(replay->html_path))
        return EXIT_FAILED;
    const int code = run_once(replay, way_of(replay), &load);
    return code == FEED_AGAIN ? run_once(replay, FEED_SORTED, &load) : code;
}
