/* log_read.c - the log that --log names, read as weir replay reads it, and when its requests are due: see log.h.
 *
 * Without --speed it is replayed as fast as makes it take USUAL_SECONDS, but not slower than it was; and no more of it
 * than MAX_PER_SECOND allows, for a caller that waits for its turn must have one.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/replay/input/load.h"
#include "modes/log.h"

#define USUAL_SECONDS 10
#define QUICK_SECONDS 1
#define MAX_PER_SECOND 20000 /* on average */

__attribute__((noreturn)) static void give_up(const char *what)
{
    fprintf(stderr, "weir-bench: --log: %s\n", what);
    exit(2);
}

static void read_rows(const struct bench *bench, struct rows *rows, struct log *out)
{
    static const struct load_options options = { .format = LOAD_AUTO };
    struct progress progress;
    struct load load = { .rows = rows, .options = &options, .progress = &progress };
    rows_start(rows);
    progress_start(&progress, true);
    bool is_read = load_file(&load, bench->log) == 0 && load_finish(&load) == 0;
    progress_clear(&progress);
    if (!is_read)
        give_up(
            "cannot be replayed; it takes Common or Combined Log Format, or CSV whose columns are time_us,key,cost or\n"
            "named by a header row. What is said above of more options holds for weir replay");
    if (rows->count == 0)
        give_up("there are no requests in it");
    rows_sort(rows);
    const char *slash = strrchr(bench->log, '/');
    span_show(span_of(slash ? slash + 1 : bench->log), out->name, sizeof out->name);
    span_show(span_of(load.key_name), out->key_name, sizeof out->key_name);
}

static bool has_whole_seconds(const struct rows *rows)
{
    for (size_t i = 0; i < rows->count; i++)
        if (rows->all[i].time_us % WEIR_SECOND != 0)
            return false;
    return true;
}

/* When row `i` came, in microseconds after the first; of whole seconds, `same` rows from `first` on have the same. */
static double came_at(const struct rows *rows, size_t i, size_t first, size_t same)
{
    double us = (double)(rows->all[i].time_us - rows->all[0].time_us);
    return same == 0 ? us : us + (double)(i - first) * WEIR_SECOND / (double)same;
}

/* At the log's own pace. */
static void fill_requests(const struct rows *rows, struct log *out)
{
    size_t first = 0, same = 0;
    out->is_spread = has_whole_seconds(rows);
    for (size_t i = 0; i < out->requests_len; i++) {
        if (out->is_spread && i == first + same)
            for (first = i, same = 1;
                 first + same < rows->count && rows->all[first + same].time_us == rows->all[first].time_us;)
                same++;
        out->requests[i] = (struct log_request){ .due_ns = (int64_t)(came_at(rows, i, first, same) * 1e3),
                                                 .key = rows->all[i].key,
                                                 .cost = rows->all[i].cost };
    }
}

static void count_keys(struct log *log)
{
    bool *seen = calloc(log->keys_most, sizeof *seen);
    if (!seen)
        give_up("no memory for its keys");
    for (size_t i = 0; i < log->requests_len; i++) {
        log->keys += !seen[log->requests[i].key];
        seen[log->requests[i].key] = true;
    }
    free(seen);
}

static void choose_pace(const struct bench *bench, struct log *log)
{
    double own_seconds = (double)log->requests[log->requests_len - 1].due_ns / 1e9;
    double usual = bench->extent == EXTENT_QUICK ? QUICK_SECONDS : USUAL_SECONDS;
    log->speed = bench->log_speed != 0 ? bench->log_speed : fmax(1, own_seconds / usual);
    log->seconds = own_seconds / log->speed;
    for (size_t i = 0; i < log->requests_len; i++)
        log->requests[i].due_ns = (int64_t)((double)log->requests[i].due_ns / log->speed);
}

static void shorten_policy(const struct bench *bench, struct log *log)
{
    char message[200] = "the period would be none";
    if (weir_policy_parse(bench->log_policy, &log->policy, NULL, 0) != WEIR_OK)
        give_up("its policy cannot be read");
    log->policy.period_us = llround((double)log->policy.period_us / log->speed);
    if (log->policy.period_us > 0 && weir_policy_check(&log->policy, message, sizeof message) == WEIR_OK)
        return;
    fprintf(stderr, "weir-bench: --policy: cannot be held against a log at %.6g times its own pace: %s\n", log->speed,
            message);
    exit(2);
}

void log_read(const struct bench *bench, struct log *out)
{
    struct rows rows;
    *out = (struct log){ .speed = 1 };
    read_rows(bench, &rows, out);
    size_t most = bench->extent == EXTENT_QUICK ? QUICK_SECONDS * MAX_PER_SECOND : USUAL_SECONDS * MAX_PER_SECOND;
    out->requests_len = bench->log_speed == 0 && rows.count > most ? most : rows.count;
    out->left_out = rows.count - out->requests_len;
    out->requests = malloc(out->requests_len * sizeof *out->requests);
    if (!out->requests)
        give_up("no memory for its requests");
    fill_requests(&rows, out);
    out->keys_most = rows.key_count;
    count_keys(out);
    rows_free(&rows);
    choose_pace(bench, out);
    shorten_policy(bench, out);
}
