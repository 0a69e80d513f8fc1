/* load.c - reads access logs and CSV files into rows. */
#include "cli/replay/input/load.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <weir/weir.h>

#include "cli/cli.h"
#include "cli/replay/input/clf.h"

struct reader { /* one file */
    struct loader *load;
    const char *name;
    struct lines lines;
    enum load_format format;
    enum clf_key clf_key;
    struct csv *csv;
};

static int load_read_rows(struct reader *reader);
static int load_begin(struct reader *reader, struct span line);
static int read_row(struct reader *reader, struct span line);
static enum load_format guess(const struct csv_choice *choice, struct span line);
static int begin_clf(struct reader *reader);
static void remember_key_name(struct loader *load, const char *name);
static void report_unreadable(struct reader *reader, const struct fault *fault);

int load_file(struct loader *load, const char *path)
{
    int code = EXIT_FAILED;
    struct reader reader = { .load = load, .name = bytes_name(path) };
    struct bytes *bytes = bytes_open(path);
    if (!bytes)
        return EXIT_FAILED;
    lines_start(&reader.lines, bytes, reader.name);
    reader.csv = malloc(sizeof *reader.csv);
    if (reader.csv) {
        csv_start(reader.csv, &load->options->choice);
        code = load_read_rows(&reader);
        if (csv_unit_is_doubtful(reader.csv))
            complain("%s: its whole-number times are read as microseconds, which lie early in 1970; "
                     "set --time-unit s or ms if they are seconds or milliseconds",
                     reader.name);
        csv_free(reader.csv);
    } else {
        complain("%s: out of memory", reader.name);
    }
    progress_clear(load->progress);
    free(reader.csv);
    lines_free(&reader.lines);
    bytes_close(bytes);
    return code;
}

static int load_read_rows(struct reader *reader)
{
    bool is_begun = false;
    struct span line;
    int result;
    while ((result = lines_next(&reader->lines, &line)) == 1) {
        int code = EXIT_OK;
        if (span_trim(line).len == 0)
            continue;
        if (is_begun)
            code = read_row(reader, line);
        else
            code = load_begin(reader, line);
        if (code != EXIT_OK)
            return code;
        is_begun = true;
        progress_show(reader->load->progress, "reading", reader->load->rows->count, 0);
    }
    return result == 0 ? EXIT_OK : EXIT_FAILED;
}

/* Find the format by the first line that is not blank. */
static int load_begin(struct reader *reader, struct span line)
{
    const struct load_options *options = reader->load->options;
    reader->format = options->format == LOAD_AUTO ? guess(&options->choice, line) : options->format;
    if (reader->format == LOAD_AUTO) {
        complain("%s:%lld: the first line is neither an access log's nor CSV; set --format clf or --format csv",
                 reader->name, (long long)reader->lines.number);
        return EXIT_FAILED;
    }
    if (reader->format == LOAD_CSV) {
        int code = csv_begin(reader->csv, &reader->lines, line);
        if (code == EXIT_OK)
            remember_key_name(reader->load, reader->csv->key_name);
        return code;
    }
    int code = begin_clf(reader);
    return code == EXIT_OK ? read_row(reader, line) : code;
}

static enum load_format guess(const struct csv_choice *choice, struct span line)
{
    int64_t time_us;
    enum time_unit unit;
    const char *wrong;
    if (clf_likely(line))
        return LOAD_CLF;
    if (span_find(line, ',') < line.len || choice->time || time_read(line, TIME_MICROSECONDS, &time_us, &wrong))
        return LOAD_CSV;
    struct span name = span_trim(line);
    if (time_unit_of_name(name, &unit))
        name = span_slice(name, 0, span_find_last(name, '_'));
    return span_is_like(name, "time") || span_is_like(name, "timestamp") ? LOAD_CSV : LOAD_AUTO;
}

static int begin_clf(struct reader *reader)
{
    const struct csv_choice *choice = &reader->load->options->choice;
    const char *key = choice->key ? choice->key : "client";
    const char *option = choice->time ? "--time" : choice->cost ? "--cost" : choice->has_unit ? "--time-unit" : NULL;
    if (option) {
        complain("%s: is an access log, but %s is for CSV", reader->name, option);
        return EXIT_ERROR;
    }
    if (!clf_key_read(span_of(key), &reader->clf_key)) {
        complain("%s: is an access log, but --key '%s' is not one of client, path, user, method", reader->name, key);
        return EXIT_ERROR;
    }
    remember_key_name(reader->load, key);
    return EXIT_OK;
}

static void remember_key_name(struct loader *load, const char *name)
{
    if (load->has_key_name && strcmp(load->key_name, name) != 0)
        name = "of different kinds";
    snprintf(load->key_name, sizeof load->key_name, "%s", name);
    load->has_key_name = true;
}

static int read_row(struct reader *reader, struct span line)
{
    struct loader *load = reader->load;
    struct csv_row row = { .cost = 1 };
    struct fault fault;
    int result;
    if (reader->format == LOAD_CSV)
        result = csv_read(reader->csv, &reader->lines, line, &row, &fault);
    else
        result = clf_read(line, reader->clf_key, &row.time_us, &row.key, &fault);
    if (result < 0)
        return EXIT_FAILED;
    if (result == 1 && row.key.len > WEIR_MAX_KEY_LEN)
        result = fault_say(&fault, "the key has %zu bytes, and at most %d are allowed", row.key.len, WEIR_MAX_KEY_LEN);
    if (result == 0) {
        report_unreadable(reader, &fault);
        return EXIT_OK;
    }
    if (rows_add(load->rows, row.time_us, row.key, row.cost))
        return EXIT_OK;
    progress_clear(load->progress);
    complain("%s:%lld: %s", reader->name, (long long)reader->lines.number,
             load->rows->count == ROWS_MAX ? "too many rows" : "out of memory");
    return EXIT_FAILED;
}

static void report_unreadable(struct reader *reader, const struct fault *fault)
{
    if (++reader->load->unreadable > LOAD_MAX_SHOWN)
        return;
    progress_clear(reader->load->progress);
    fprintf(stderr, "%s:%lld: %s\n", reader->name, (long long)reader->lines.number, fault->text);
}

int load_finish(const struct loader *load)
{
    size_t all = load->rows->count + load->unreadable, unreadable = load->unreadable;
    if (unreadable > LOAD_MAX_SHOWN)
        fprintf(stderr, "... and %zu more\n", unreadable - LOAD_MAX_SHOWN);
    if (unreadable == 0)
        return EXIT_OK;
    bool is_too_many = unreadable * 100 > all && !load->options->is_lenient;
    complain("%zu of %zu rows cannot be read%s", unreadable, all,
             is_too_many ? ", more than 1 %: is the format right? --lenient continues without them"
                         : " and are left out");
    return is_too_many ? EXIT_FAILED : EXIT_OK;
}
