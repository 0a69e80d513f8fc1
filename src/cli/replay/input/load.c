/* load.c - reads logs, JSON lines and tables into rows. */
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

bool load_format_exists(const char *name)
{
    static const char *const others[] = { "csv", "tsv", "json", "logfmt", "w3c" };
    struct format *format = calloc(1, sizeof *format);
    bool exists = format && format_named(format, name);
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        exists = exists || strcmp(name, others[i]) == 0;
    free(format);
    return exists;
}

/* Say which format was found, how many rows fit it, and which members were taken. */
static void say_format(const struct reader *reader)
{
    char taken[2 * sizeof(struct shown) + 80] = ""; /* a byte is shown as up to four */
    const bool is_log = reader->kind == READER_LOG;
    const struct reader_field *key = &reader->fields[reader->keys[0].parts[0].field];
    if (!reader->is_guessed || !load_may_say(reader->load))
        return;
    if (!is_log && !reader->sheet.is_plain) {
        size_t len = 0;
        if (*key->path)
            len = (size_t)snprintf(taken, sizeof taken, "; the key is %s", span_shown(span_of(key->path)).text);
        if (*reader->time.path)
            snprintf(taken + len, sizeof taken - len, "%s the time is %s%s%s", len ? "," : ";",
                     span_shown(span_of(reader->time.path)).text, reader->unit ? " in " : "",
                     reader->unit ? time_unit_name(reader->unit) : "");
    }
    complain("%s: detected the format %s%s%s%s%s; %zu of %zu rows fit%s", reader->name, reader_format(reader),
             is_log && *reader->format.prefix ? " behind " : "", is_log ? reader->format.prefix : "",
             is_log && reader->format.quotes ? " in quotation marks" : "", reader->is_docker ? " in Docker's JSON" : "",
             reader->rows, reader->rows + reader->bad, taken);
}

static void report_unreadable(struct reader *reader, int64_t line, const struct fault *fault)
{
    struct loader *load = reader->load;
    if (load->unreadable == 0) {
        load->first_unreadable = reader->name;
        load->first_unreadable_line = line;
        snprintf(load->first_format, sizeof load->first_format, "%s", reader_format(reader));
    }
    reader->bad++;
    if (++load->unreadable > LOAD_MAX_SHOWN || !load_may_say(load))
        return;
    progress_clear(load->progress);
    fprintf(stderr, "%s:%lld: %s\n", reader->name, (long long)line, fault->text);
}

/* Remember what the keys of the input are. */
static void remember_key_name(struct loader *load, const struct reader *reader)
{
    const struct key_spec *key = &reader->keys[0];
    const char *name = key->text ? key->text : "client";
    if (reader->kind != READER_LOG && key->count == 1 && !strpbrk(name, "/#"))
        name = reader->fields[key->parts[0].field].path;
    if (load->has_key_name && strcmp(load->key_name, name) != 0)
        name = "of different kinds";
    snprintf(load->key_name, sizeof load->key_name, "%s", name);
    load->has_key_name = true;
}

/* Read a cost: 0 for "-" or a zero. A fraction counts as a whole permit, and more than a limit can hold as that. */
static bool cost_read(struct span text, int64_t *out)
{
    const int64_t most = WEIR_MAX_PERMITS;
    text = span_trim(text);
    *out = 0;
    if (span_is(text, "-"))
        return true;
    const size_t point = span_find(text, '.');
    bool has_fraction = false;
    for (size_t i = 0; i < text.len; i++) {
        if (i != point && (text.data[i] < '0' || text.data[i] > '9'))
            return false;
        has_fraction |= i > point && text.data[i] != '0';
    }
    if (point == 0 || (point < text.len && point + 1 == text.len))
        return false;
    const bool fits = span_number(span_slice(text, 0, point), out);
    *out = !fits || *out > most ? most : *out + (has_fraction && *out < most);
    return true;
}

/* Make the keys and costs of a row: 1, 0 if one is bad, -1 after a complaint. */
static int load_make(struct reader *reader, const struct reader_row *read, struct load_row *row, struct fault *fault)
{
    bool is_free = true;
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
        row->costs[i] = 1;
        if (reader->costs[i] != LOAD_MAX_FIELDS && !cost_read(read->values[reader->costs[i]], &row->costs[i]))
            return fault_set(fault, "cost", read->values[reader->costs[i]], "is not a number from 0 on");
        is_free = is_free && row->costs[i] == 0;
    }
    reader->load->free_rows += is_free;
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
    load->fractions += read.time_us % WEIR_SECOND != 0;
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
    if (reader->sheet.skipped) {
        fault_say(&fault, "stands before the header row");
        report_unreadable(reader, number, &fault);
        load->unreadable += reader->sheet.skipped - 1;
        reader->bad += reader->sheet.skipped - 1;
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

int load_file(struct loader *load, const char *path)
{
    struct load_row row = { 0 };
    struct bytes *bytes = bytes_open(path);
    if (!bytes)
        return EXIT_FAILED;
    struct reader *reader = calloc(1, sizeof *reader);
    int code = EXIT_FAILED;
    if (reader) {
        reader->load = load;
        reader->name = bytes_name(path);
        lines_start(&reader->lines, bytes, reader->name);
        code = load_read_rows(reader, &row);
        progress_clear(load->progress);
        if (code == EXIT_OK)
            say_format(reader);
        reader_free(reader);
        free(reader);
    } else {
        complain("%s: out of memory", bytes_name(path));
    }
    progress_clear(load->progress);
    for (size_t i = 0; i < ROWS_MAX_KEYS; i++)
        free(row.buffers[i].bytes);
    bytes_close(bytes);
    return code;
}

/* ---- After the last file ---- */

/* Warn if there is one key, or if most keys are addresses that no client on the internet has. */
static void warn_of_keys(struct loader *load)
{
    const struct rows *rows = load->rows;
    char shown[72];
    size_t private = 0;
    for (size_t i = 0; i < rows->key_count; i++)
    private += key_is_private(rows_key(rows, i));
    if (rows->key_count > 1 && private * 2 > rows->key_count && load_may_say(load))
        complain("%zu of %zu keys are private addresses, as of a proxy; if a header has the clients' addresses, choose "
                 "it with --key, as in --key http_x_forwarded_for",
                 private, rows->key_count);
    if (rows->total < LOAD_MANY_ROWS || rows->key_count != 1 || !load_may_say(load))
        return;
    span_show(rows_key(rows, 0), shown, sizeof shown);
    if (load->key_name[0] == '\0')
        complain("no field of the input is the key, so all %zu rows share one limit; to give each client a separate "
                 "one, choose the client's field with --key",
                 rows->total);
    else
        complain("all %zu rows have the same %s, '%s'; if that is not the client, choose another key with --key: "
                 "client, path, user or method in an access log, a field's name or number in CSV",
                 rows->total, span_shown(span_of(load->key_name)).text, shown);
}

/* Say what to try if too few rows fit. */
static void advise(const struct loader *load, char *text, size_t size)
{
    if (load->next_format[0])
        snprintf(text, size, "the next best guess is --format %s, with %zu; --log-format describes any other log",
                 load->next_format, load->next_fits);
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
    if (load->free_rows && load_may_say(load))
        complain("%zu requests cost nothing; they are counted, and limits ignore them", load->free_rows);
    if (unreadable && do_fit && load_may_say(load))
        complain("%zu of %zu rows cannot be read and are left out", unreadable, all);
    else if (!do_fit && load_may_say(load)) {
        advise(load, advice, sizeof advice);
        complain("%zu of %zu rows cannot be read as %s: %zu fit, fewer than %d %%; the first bad one is %s:%lld; %s%s",
                 unreadable, all, load->first_format, fit, LOAD_MIN_PERCENT, load->first_unreadable,
                 (long long)load->first_unreadable_line, advice,
                 load->options->is_lenient ? "" : "; --lenient prints a report of the rows that fit");
    }
    warn_of_keys(load);
    return do_fit;
}

void load_warn_of_seconds(struct loader *load, int64_t period_us)
{
    char period[TIME_TEXT_SIZE];
    if (load->rows->total < 2 || load->fractions || period_us >= 10 * WEIR_SECOND || !load_may_say(load))
        return;
    duration_print(period_us, period);
    complain("all times are whole seconds, so requests of a second seem to come at once: a limit over %s denies more "
             "here than in truth",
             period);
}
