/* load.c - reads access logs, JSON lines and CSV files into rows. */
#include "cli/replay/input/load.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <weir/weir.h>

#include "cli/cli.h"
#include "cli/replay/input/reader.h"

struct load_row { /* what is built of one row */
    struct key_buffer buffers[ROWS_MAX_KEYS];
    struct span keys[ROWS_MAX_KEYS];
    int64_t costs[ROWS_MAX_COSTS];
};

static int load_read_rows(struct reader *reader, struct load_row *row);
static int load_add(struct reader *reader, struct load_row *row, struct span line);
static void load_say_format(const struct reader *reader);
static bool load_has_room(struct reader *reader, const struct load_row *row, const struct reader_row *read,
                          int64_t duration_us);
static void remember_key_name(struct loader *load, const struct reader *reader);
static void report_unreadable(struct reader *reader, int64_t line, const struct fault *fault);

bool load_format_exists(const char *name)
{
    struct format *format = calloc(1, sizeof *format);
    bool exists = strcmp(name, "csv") == 0 || strcmp(name, "json") == 0 || (format && format_named(format, name));
    free(format);
    return exists;
}

int load_file(struct loader *load, const char *path)
{
    int code = EXIT_FAILED;
    struct reader reader = { .load = load, .name = bytes_name(path) };
    struct load_row row = { 0 };
    struct bytes *bytes = bytes_open(path);
    if (!bytes)
        return EXIT_FAILED;
    lines_start(&reader.lines, bytes, reader.name);
    reader.csv = calloc(1, sizeof *reader.csv);
    reader.format = calloc(1, sizeof *reader.format);
    if (reader.csv && reader.format) {
        csv_start(reader.csv, &reader.choice);
        code = load_read_rows(&reader, &row);
        progress_clear(load->progress);
        if (code == EXIT_OK)
            load_say_format(&reader);
        if (code == EXIT_OK && (csv_unit_is_doubtful(reader.csv) || (reader.early && reader.early == reader.rows)) &&
            load_may_say(load))
            complain("%s: its whole-number times are read as microseconds, which lie early in 1970; "
                     "set --time-unit s or ms if they are seconds or milliseconds",
                     reader.name);
        csv_free(reader.csv);
        format_free(reader.format);
    } else {
        complain("%s: out of memory", reader.name);
    }
    progress_clear(load->progress);
    for (size_t i = 0; i < ROWS_MAX_KEYS; i++)
        free(row.buffers[i].bytes);
    json_lines_free(&reader.json);
    json_lines_free(&reader.wrapper);
    free(reader.csv);
    free(reader.format);
    lines_free(&reader.lines);
    bytes_close(bytes);
    return code;
}

/* Say which format was found, and how many rows fit it. */
static void load_say_format(const struct reader *reader)
{
    const struct format *format = reader->format;
    bool is_log = reader->kind == READER_LOG;
    const char *name = is_log ? format->name : reader->kind == READER_JSON ? "json" : "csv";
    if (!reader->is_guessed || !load_may_say(reader->load))
        return;
    complain("%s: detected the format %s%s%s%s%s; %zu of %zu rows fit", reader->name, name,
             is_log && *format->prefix ? " behind " : "", is_log ? format->prefix : "",
             is_log && format->quotes ? " in quotation marks" : "", reader->is_docker ? " in Docker's JSON" : "",
             reader->rows, reader->rows + reader->bad);
}

static int load_read_rows(struct reader *reader, struct load_row *row)
{
    struct loader *load = reader->load;
    struct span line;
    struct fault fault;
    int result = 0, code;
    while ((result = lines_next(&reader->lines, &line)) == 1 && span_trim(line).len == 0)
        ;
    if (result != 1)
        return result == 0 ? EXIT_OK : EXIT_FAILED;
    int64_t number = reader->lines.number;
    code = reader_begin(reader, line);
    if (code != EXIT_OK)
        return code;
    remember_key_name(load, reader);
    load->rows->more_keys = reader->key_count - 1;
    load->rows->more_costs = reader->cost_count - 1;
    if (reader->kind == READER_CSV && reader->csv->skipped) {
        fault_say(&fault, "stands before the header row");
        report_unreadable(reader, number, &fault);
        load->unreadable += reader->csv->skipped - 1;
        reader->bad += reader->csv->skipped - 1;
    }
    while ((result = lines_next(&reader->lines, &line)) == 1) {
        if (span_trim(line).len == 0)
            continue;
        code = load_add(reader, row, line);
        if (code != EXIT_OK)
            return code;
        progress_show(load->progress, load->feed && load->feed->way == FEED_ALONG ? "replaying" : "reading",
                      load->rows->total, 0);
    }
    return result == 0 ? EXIT_OK : EXIT_FAILED;
}

static void remember_key_name(struct loader *load, const struct reader *reader)
{
    const struct key_spec *key = &reader->keys[0];
    const char *name = key->text ? key->text : "client";
    if (reader->kind == READER_CSV && key->count == 1 && !strchr(name, '/'))
        name = reader->csv->key_name;
    if (load->has_key_name && strcmp(load->key_name, name) != 0)
        name = "of different kinds";
    snprintf(load->key_name, sizeof load->key_name, "%s", name);
    load->has_key_name = true;
}

/* Make the keys and costs of a row: 1, 0 if one is bad, -1 after a complaint. */
static int load_make(struct reader *reader, const struct reader_row *read, struct load_row *row, struct fault *fault)
{
    for (size_t i = 0; i < reader->key_count; i++) {
        if (!key_make(&reader->keys[i], read->values, &row->buffers[i], &row->keys[i])) {
            complain("%s: out of memory", reader->name);
            return -1;
        }
        size_t len = row->keys[i].len;
        if (len == 0)
            return fault_say(fault, "the key is empty");
        if (len > WEIR_MAX_KEY_LEN)
            return fault_say(fault, "the key has %zu bytes, and at most %d are allowed", len, WEIR_MAX_KEY_LEN);
    }
    for (size_t i = 0; i < reader->cost_count; i++) {
        row->costs[i] = read->cost;
        if (reader->costs[i] == LOAD_MAX_FIELDS || (i == 0 && reader->kind == READER_CSV))
            continue;
        struct span value = read->values[reader->costs[i]];
        if (!span_number(span_trim(value), &row->costs[i]) || row->costs[i] < 1 || row->costs[i] > WEIR_MAX_PERMITS)
            return fault_set(fault, "cost", value, "is not a whole number from 1 to 1000000000");
    }
    return 1;
}

/* Read how long a row's request took, and move its time to its beginning if asked to. Returns as load_make(). */
static int load_duration(const struct reader *reader, struct reader_row *read, int64_t *out_us, struct fault *fault)
{
    const struct load_options *options = reader->load->options;
    const struct span value = span_trim(read->values[reader->duration]);
    enum time_unit unit = options->duration_unit;
    const char *wrong;
    if (!options->has_duration_unit && !time_unit_of_name(span_of(options->duration), &unit))
        unit = TIME_MICROSECONDS;
    if (!time_read(value, unit, out_us, &wrong) || *out_us > WEIR_MAX_PERIOD_US)
        return fault_set(fault, "duration", value, "is not a number of up to 366 days");
    if (options->times_are_ends)
        read->time_us = read->time_us > *out_us ? read->time_us - *out_us : 0;
    return 1;
}

static int load_add(struct reader *reader, struct load_row *row, struct span line)
{
    struct loader *load = reader->load;
    struct reader_row read;
    struct fault fault;
    int result = reader_read(reader, line, &read, &fault);
    if (result == FORMAT_OTHER) {
        load->others++;
        return EXIT_OK;
    }
    if (result == FORMAT_ROW)
        result = load_make(reader, &read, row, &fault);
    int64_t duration_us = 0;
    if (result == 1 && reader->duration < LOAD_MAX_FIELDS)
        result = load_duration(reader, &read, &duration_us, &fault);
    if (result < 0)
        return EXIT_FAILED;
    if (result == 0) {
        report_unreadable(reader, reader->lines.number, &fault);
        return EXIT_OK;
    }
    reader->rows++;
    int code = EXIT_OK;
    for (int64_t i = 0; i < read.repeat && code == EXIT_OK; i++) {
        if (load_has_room(reader, row, &read, duration_us)) {
            code = load->feed ? feed_added(load->feed) : EXIT_OK;
            continue;
        }
        progress_clear(load->progress);
        complain("%s:%lld: %s", reader->name, (long long)reader->lines.number,
                 load->rows->total == ROWS_MAX ? "too many rows" : "out of memory");
        return EXIT_FAILED;
    }
    if (code == FEED_AGAIN) {
        load->again_name = reader->name;
        load->again_line = reader->lines.number;
    }
    return code;
}

/* Add a row. False if there is no room. */
static bool load_has_room(struct reader *reader, const struct load_row *row, const struct reader_row *read,
                          int64_t duration_us)
{
    struct rows *rows = reader->load->rows;
    bool has_room = rows_add(rows, read->time_us, row->keys[0], row->costs[0]);
    if (has_room && rows->more_keys + rows->more_costs)
        has_room = rows_add_more(rows, row->keys + 1, row->costs + 1);
    if (has_room && reader->duration < LOAD_MAX_FIELDS)
        has_room = rows_add_duration(rows, duration_us);
    return has_room;
}

static void report_unreadable(struct reader *reader, int64_t line, const struct fault *fault)
{
    struct loader *load = reader->load;
    if (load->unreadable == 0) {
        const char *name = reader->kind == READER_CSV    ? "csv"
                           : reader->kind == READER_JSON ? "json"
                                                         : reader->format->name;
        load->first_unreadable = reader->name;
        load->first_unreadable_line = line;
        snprintf(load->first_format, sizeof load->first_format, "%s", name);
    }
    reader->bad++;
    if (++load->unreadable > LOAD_MAX_SHOWN || !load_may_say(load))
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
                 load->rows->total);
    else
        complain("all %zu rows have the same %s, '%s'; if that is not the client, choose another key with --key: "
                 "client, path, user or method in an access log, a field's name or number in CSV",
                 load->rows->total, load->key_name, shown);
}

/* Say what to try if too few rows fit. */
static void advise(const struct loader *load, char *text, size_t size)
{
    if (load->next_format[0])
        snprintf(text, size, "the next best guess is --format %s; --log-format describes any other log",
                 load->next_format);
    else if (strcmp(load->first_format, "csv") == 0)
        snprintf(text, size,
                 "to read it as CSV, choose the columns with --time and --key; for a log set --format or "
                 "--log-format");
    else
        snprintf(text, size, "for another format set --format, or describe it with --log-format");
}

bool load_finish(struct loader *load)
{
    size_t fit = load->rows->total, unreadable = load->unreadable, all = fit + unreadable;
    bool do_fit = (uint64_t)fit * 100 >= (uint64_t)all * LOAD_MIN_PERCENT;
    char advice[200];
    if (unreadable > LOAD_MAX_SHOWN && load_may_say(load))
        fprintf(stderr, "... and %zu more\n", unreadable - LOAD_MAX_SHOWN);
    if (load->others && load_may_say(load))
        complain("%zu lines are not requests and are left out", load->others);
    if (unreadable && do_fit && load_may_say(load))
        complain("%zu of %zu rows cannot be read and are left out", unreadable, all);
    else if (!do_fit && load_may_say(load)) {
        advise(load, advice, sizeof advice);
        complain("%zu of %zu rows cannot be read as %s: %zu fit, fewer than %d %%; the first bad one is %s:%lld; %s%s",
                 unreadable, all, load->first_format, fit, LOAD_MIN_PERCENT, load->first_unreadable,
                 (long long)load->first_unreadable_line, advice,
                 load->options->is_lenient ? "" : "; --lenient prints a report of the rows that fit");
    }
    if (fit >= LOAD_MANY_ROWS && load->rows->key_count == 1 && load_may_say(load))
        warn_of_one_key(load);
    return do_fit;
}
