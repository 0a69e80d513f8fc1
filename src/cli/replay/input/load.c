/* load.c - reads access logs and CSV files into rows. */
#include "cli/replay/input/load.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <weir/weir.h>

#include "cli/cli.h"
#include "cli/replay/input/clf.h"

#define GUESS_LINES 200 /* lines that decide on the format, unless GUESS_BYTES end before */
#define GUESS_BYTES ((size_t)1 << 20)

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
static bool guess(struct reader *reader, struct span *line);
static int begin_clf(struct reader *reader);
static void remember_key_name(struct loader *load, const char *name);
static void report_unreadable(struct reader *reader, int64_t line, const struct fault *fault);

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

/* Find the format by the first lines; `line` is the first that is not blank. */
static int load_begin(struct reader *reader, struct span line)
{
    const struct load_options *options = reader->load->options;
    int64_t number = reader->lines.number;
    reader->format = options->format;
    if (options->format == LOAD_AUTO && !guess(reader, &line))
        return EXIT_FAILED;
    if (reader->format == LOAD_CLF) {
        int code = begin_clf(reader);
        return code == EXIT_OK ? read_row(reader, line) : code;
    }
    int code = csv_begin(reader->csv, &reader->lines, line);
    if (code != EXIT_OK)
        return code;
    remember_key_name(reader->load, reader->csv->key_name);
    if (reader->csv->skipped) {
        struct fault fault;
        fault_say(&fault, "stands before the header row");
        report_unreadable(reader, number, &fault);
        reader->load->unreadable += reader->csv->skipped - 1;
    }
    return EXIT_OK;
}

/* The formats that a line may have, as bits. */
enum { IS_CLF = 1, MAY_BE_CLF = 2, MAY_BE_CSV = 4, MAY_BE_JSON = 8 };

static unsigned line_looks(const struct csv_choice *choice, struct span line)
{
    int64_t time_us;
    enum time_unit unit;
    const char *wrong;
    struct span key, name = span_trim(line);
    struct fault fault;
    unsigned looks = name.data[0] == '{' ? MAY_BE_JSON : 0;
    if (clf_read(line, CLF_CLIENT, &time_us, &key, &fault))
        looks |= IS_CLF;
    if (clf_likely(line))
        looks |= MAY_BE_CLF;
    if (time_unit_of_name(name, &unit))
        name = span_slice(name, 0, span_find_last(name, '_'));
    if (span_find(line, ',') < line.len || choice->time || time_read(line, TIME_MICROSECONDS, &time_us, &wrong) ||
        span_is_like(name, "time") || span_is_like(name, "timestamp"))
        looks |= MAY_BE_CSV;
    return looks;
}

/* Guess the format by the first lines, and return to the first of them. False after a complaint. */
static bool guess(struct reader *reader, struct span *line)
{
    struct lines *lines = &reader->lines;
    size_t count = 0, clf = 0, likely = 0, csv = 0, json = 0;
    unsigned first = 0;
    int result = 1;
    lines_mark(lines);
    for (; result == 1 && count < GUESS_LINES && lines->next - lines->mark < GUESS_BYTES;
         result = lines_next(lines, line)) {
        if (span_trim(*line).len == 0)
            continue;
        unsigned looks = line_looks(&reader->load->options->choice, *line);
        first = count++ ? first : looks;
        clf += (looks & IS_CLF) != 0;
        likely += (looks & MAY_BE_CLF) != 0;
        csv += (looks & MAY_BE_CSV) != 0;
        json += (looks & MAY_BE_JSON) != 0;
    }
    lines_rewind(lines);
    if (result < 0 || lines_next(lines, line) != 1)
        return false;
    /* A first line with a comma may be a header, and the rows after it may have requests as fields. */
    bool begins_as_csv = (first & MAY_BE_CSV) && !(first & MAY_BE_CLF);
    if (json * 2 > count)
        complain("%s:%lld: the lines are JSON, which weir does not read: write them as CSV, or set --format csv if "
                 "they are CSV",
                 reader->name, (long long)lines->number);
    else if (clf * 2 >= count || (likely * 2 >= count && !begins_as_csv))
        reader->format = LOAD_CLF;
    else if (begins_as_csv || csv * 2 >= count)
        reader->format = LOAD_CSV;
    else
        complain(
            "%s:%lld: the lines from here on are neither an access log's nor CSV; set --format clf or --format csv",
            reader->name, (long long)lines->number);
    return reader->format != LOAD_AUTO;
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
        report_unreadable(reader, reader->lines.number, &fault);
        return EXIT_OK;
    }
    if (rows_add(load->rows, row.time_us, row.key, row.cost))
        return EXIT_OK;
    progress_clear(load->progress);
    complain("%s:%lld: %s", reader->name, (long long)reader->lines.number,
             load->rows->count == ROWS_MAX ? "too many rows" : "out of memory");
    return EXIT_FAILED;
}

static void report_unreadable(struct reader *reader, int64_t line, const struct fault *fault)
{
    struct loader *load = reader->load;
    if (load->unreadable == 0) {
        load->first_unreadable = reader->name;
        load->first_unreadable_line = line;
        load->first_unreadable_format = reader->format;
    }
    if (++load->unreadable > LOAD_MAX_SHOWN)
        return;
    progress_clear(load->progress);
    fprintf(stderr, "%s:%lld: %s\n", reader->name, (long long)line, fault->text);
}

static void warn_of_one_key(const struct loader *load)
{
    char shown[72];
    span_show(rows_key(load->rows, 0), shown, sizeof shown);
    if (load->key_name[0] == '\0')
        complain("no field of the input is the key, so all %zu rows share one limit; to give each client a separate "
                 "one, choose the client's field with --key",
                 load->rows->count);
    else
        complain("all %zu rows have the same %s, '%s'; if that is not the client, choose another key with --key: "
                 "client, path, user or method in an access log, a field's name or number in CSV",
                 load->rows->count, load->key_name, shown);
}

bool load_finish(const struct loader *load)
{
    size_t fit = load->rows->count, unreadable = load->unreadable, all = fit + unreadable;
    bool do_fit = (uint64_t)fit * 100 >= (uint64_t)all * LOAD_MIN_PERCENT;
    if (unreadable > LOAD_MAX_SHOWN)
        fprintf(stderr, "... and %zu more\n", unreadable - LOAD_MAX_SHOWN);
    if (unreadable && do_fit)
        complain("%zu of %zu rows cannot be read and are left out", unreadable, all);
    else if (unreadable)
        complain(
            "%zu of %zu rows cannot be read: %zu fit, fewer than %d %%; the first bad one is %s:%lld; %s%s", unreadable,
            all, fit, LOAD_MIN_PERCENT, load->first_unreadable, (long long)load->first_unreadable_line,
            load->first_unreadable_format == LOAD_CLF
                ? "to read it as an access log, remove what stands before the client; for CSV set --format csv"
                : "to read it as CSV, choose the columns with --time and --key; for an access log set --format clf",
            load->options->is_lenient ? "" : "; --lenient prints a report of the rows that fit");
    if (fit >= LOAD_MANY_ROWS && load->rows->key_count == 1)
        warn_of_one_key(load);
    return do_fit;
}
