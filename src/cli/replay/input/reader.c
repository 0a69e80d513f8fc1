/* reader.c - one input: its format, and the values of the requested fields. */
#include "cli/replay/input/reader.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <weir/weir.h>

#include "cli/cli.h"

#define GUESS_LINES 200 /* lines that decide on the format, unless GUESS_BYTES end before */
#define GUESS_BYTES ((size_t)1 << 20)

struct sample { /* the first lines, copied: the buffer of lines moves */
    char *bytes;
    size_t len, count, json, behind, docker, caddy, likely, csv; /* lines, by what they may be */
    bool begins_as_csv;
    size_t offsets[GUESS_LINES + 1];
    struct span lines[GUESS_LINES];
};

/* ---- Which format it is ---- */

static bool may_be_csv(const struct csv_choice *choice, struct span line)
{
    struct span name = span_trim(line);
    int64_t time_us;
    enum time_unit unit;
    const char *wrong;
    if (time_unit_of_name(name, &unit))
        name = span_slice(name, 0, span_find_last(name, '_'));
    return span_find(line, ',') < line.len || choice->time || time_read(line, TIME_MICROSECONDS, &time_us, &wrong) ||
           span_is_like(name, "time") || span_is_like(name, "timestamp");
}

static bool sample_add(struct reader *reader, struct sample *sample, struct span line)
{
    char *grown = realloc(sample->bytes, sample->len + line.len + 1);
    if (!grown)
        return false;
    sample->bytes = grown;
    memcpy(grown + sample->len, line.data, line.len);
    bool is_likely = format_is_likely(line), is_csv = may_be_csv(&reader->load->options->choice, line);
    /* A first line with a comma may be a header, and the rows after it may have requests as fields. */
    if (sample->count == 0)
        sample->begins_as_csv = is_csv && !is_likely;
    struct span time, object = unwrap_object(line, &time);
    sample->json += time.len == 0 && object.len;
    sample->behind += time.len > 0;
    sample->docker += unwrap_is_docker(line);
    sample->caddy += object.len && unwrap_is_caddy_request(line);
    sample->likely += is_likely;
    sample->csv += is_csv;
    sample->offsets[sample->count++] = sample->len;
    sample->len += line.len;
    sample->offsets[sample->count] = sample->len;
    return true;
}

/* Point to the lines, once their bytes no longer move. */
static void sample_point(struct sample *sample)
{
    for (size_t i = 0; i < sample->count; i++)
        sample->lines[i] = (struct span){ sample->bytes + sample->offsets[i],
                                          sample->offsets[i + 1] - sample->offsets[i] };
}

/* Copy the first lines, and make the first of them the next one again. False after a complaint. */
static bool sample_read(struct reader *reader, struct sample *sample, struct span line)
{
    struct lines *lines = &reader->lines;
    int result = 1;
    lines_mark(lines);
    for (; result == 1 && sample->count < GUESS_LINES && sample->len < GUESS_BYTES; result = lines_next(lines, &line))
        if (span_trim(line).len > 0 && !sample_add(reader, sample, line)) {
            complain("%s: out of memory", reader->name);
            result = -1;
            break;
        }
    lines_rewind(lines);
    sample_point(sample);
    return result >= 0;
}

/* Replace a sample of Docker's objects by the lines in them. False after a complaint. */
static bool sample_unwrap(struct reader *reader, struct sample *sample)
{
    struct sample inner = { 0 };
    struct span line, time;
    struct fault fault;
    bool has_room = true;
    for (size_t i = 0; i < sample->count && has_room; i++)
        if (unwrap_docker(&reader->wrapper, sample->lines[i], &line, &time, &fault) && span_trim(line).len > 0)
            has_room = sample_add(reader, &inner, line);
    free(sample->bytes);
    *sample = inner;
    sample_point(sample);
    if (!has_room)
        complain("%s: out of memory", reader->name);
    return has_room;
}

/* Choose the format of the sample. */
static int reader_guess(struct reader *reader, struct sample *sample)
{
    struct loader *load = reader->load;
    struct format_guess guess = { 0 };
    size_t count = sample->count;
    reader->is_guessed = true;
    if (sample->json * 2 > count || reader->is_caddy) {
        reader->kind = READER_JSON;
        return EXIT_OK;
    }
    bool is_log = format_detect(reader->format, sample->lines, count, &guess) && guess.fits * 2 >= count;
    if (!is_log && sample->likely * 2 >= count && !sample->begins_as_csv)
        is_log = format_named(reader->format, "common");
    if (is_log)
        reader->kind = READER_LOG;
    else if (sample->behind * 2 > count)
        reader->kind = READER_JSON;
    else if (!reader->is_docker && (sample->begins_as_csv || sample->csv * 2 >= count))
        reader->kind = READER_CSV;
    if (guess.next)
        snprintf(load->next_format, sizeof load->next_format, "%s", guess.next);
    if (reader->kind != READER_NONE)
        return EXIT_OK;
    complain(
        "%s: no format that weir knows fits its first lines; describe it with --log-format, or set --format to csv, "
        "json, %s",
        reader->name, FORMAT_NAMES);
    return EXIT_FAILED;
}

/* Set the format that the options name; its prefix and quotation marks are those of the sample. */
static int reader_choose(struct reader *reader, const struct sample *sample)
{
    const struct load_options *options = reader->load->options;
    struct format_guess guess;
    struct fault fault;
    if (options->log_format && !format_text(reader->format, options->log_format, &fault)) {
        complain("--log-format %s", fault.text);
        return EXIT_ERROR;
    }
    reader->kind = options->log_format                    ? READER_LOG
                   : strcmp(options->format, "csv") == 0  ? READER_CSV
                   : strcmp(options->format, "json") == 0 ? READER_JSON
                                                          : READER_LOG;
    if (reader->kind == READER_LOG && !options->log_format)
        format_named(reader->format, options->format);
    if (reader->kind == READER_LOG)
        format_detect(reader->format, sample->lines, sample->count, &guess);
    return EXIT_OK;
}

/* ---- The requested fields ---- */

static size_t field_number(struct reader *reader, const char *name)
{
    for (size_t i = 0; i < reader->count; i++)
        if (strcmp(reader->names[i], name) == 0)
            return i;
    reader->names[reader->count] = name;
    return reader->count++;
}

static void fields_collect(struct reader *reader)
{
    const struct load_options *options = reader->load->options;
    struct fault fault;
    reader->key_count = options->key_count ? options->key_count : 1;
    memcpy(reader->keys, options->keys, sizeof reader->keys);
    if (options->key_count == 0)
        key_spec_read(&reader->keys[0], NULL, &fault);
    /* Without a name, the key is the client; CSV looks for a field with a usual name. */
    for (size_t i = 0; i < reader->key_count; i++)
        for (size_t j = 0; j < reader->keys[i].count; j++) {
            const char *name = reader->keys[i].parts[j].name;
            reader->keys[i].parts[j].field = field_number(reader,
                                                          *name || reader->kind == READER_CSV ? name : "client");
        }
    reader->cost_count = options->cost_count ? options->cost_count : 1;
    for (size_t i = 0; i < reader->cost_count; i++)
        reader->costs[i] = options->cost_count && options->costs[i] ? field_number(reader, options->costs[i])
                                                                    : LOAD_MAX_FIELDS;
    reader->duration = options->duration ? field_number(reader, options->duration) : LOAD_MAX_FIELDS;
}

static int log_begin(struct reader *reader)
{
    struct format *format = reader->format;
    const struct csv_choice *choice = &reader->load->options->choice;
    const char *option = choice->time ? "--time" : choice->has_unit ? "--time-unit" : NULL;
    if (option) {
        complain("%s: is a log in the format %s, but %s is for CSV and JSON", reader->name, format->name, option);
        return EXIT_ERROR;
    }
    if (reader->load->options->year)
        format->year = reader->load->options->year;
    if (format_lacks_year(format) && !reader->load->options->year && load_may_say(reader->load))
        complain("%s: the times have no year; %d is assumed, and --year sets it", reader->name, format->year);
    if (format->is_w3c)
        return EXIT_OK; /* the fields are known later */
    for (size_t i = 0; i < format->layout_count; i++) {
        if (format->layouts[i].time == LAYOUT_MAX_FIELDS) {
            complain("%s: the format has no time: $time_local, $time_iso8601 or $msec of nginx, %%t of Apache",
                     reader->name);
            return EXIT_ERROR;
        }
        for (size_t j = 0; j < reader->count; j++)
            if (!layout_find(&format->layouts[i], reader->names[j], &reader->at[i][j], &reader->parts[i][j])) {
                char names[400] = "";
                size_t len = 0;
                const struct layout *layout = &format->layouts[i];
                for (size_t k = 0; k < layout->count && len + 60 < sizeof names; k++)
                    if (strcmp(layout->fields[k].name, "word") != 0 && strcmp(layout->fields[k].name, "number") != 0)
                        len += (size_t)snprintf(names + len, sizeof names - len, "%s%s", len ? ", " : "",
                                                layout->fields[k].name);
                complain("%s: the format %s has no field '%s'; its fields are: %s%s", reader->name, format->name,
                         reader->names[j], names, strstr(names, "request") ? ", method, path" : "");
                return EXIT_ERROR;
            }
    }
    return EXIT_OK;
}

static int csv_start_reading(struct reader *reader, struct span line)
{
    reader->choice = reader->load->options->choice;
    const struct key_spec *key = &reader->keys[0];
    reader->choice.key = *key->parts[0].name ? key->parts[0].name : NULL;
    reader->choice.cost = reader->costs[0] < LOAD_MAX_FIELDS ? reader->names[reader->costs[0]] : NULL;
    if (reader->count > 1 + (reader->costs[0] < LOAD_MAX_FIELDS) || reader->duration < LOAD_MAX_FIELDS) {
        reader->choice.more = reader->names + 1;
        reader->choice.more_count = reader->count - 1;
    }
    csv_start(reader->csv, &reader->choice);
    return csv_begin(reader->csv, &reader->lines, line);
}

int reader_begin(struct reader *reader, struct span line)
{
    struct sample *sample = calloc(1, sizeof *sample);
    if (!sample) {
        complain("%s: out of memory", reader->name);
        return EXIT_FAILED;
    }
    const struct load_options *options = reader->load->options;
    int code = EXIT_FAILED;
    bool has_sample = sample_read(reader, sample, line);
    reader->is_docker = has_sample && sample->docker * 2 > sample->count && json_lines_are_known();
    if (reader->is_docker)
        has_sample = sample_unwrap(reader, sample);
    reader->is_caddy = sample->caddy > 0;
    if (has_sample)
        code = options->format || options->log_format ? reader_choose(reader, sample) : reader_guess(reader, sample);
    free(sample->bytes);
    free(sample);
    if (code != EXIT_OK)
        return code;
    if (reader->kind == READER_JSON && !json_lines_are_known()) {
        complain("%s: the lines are JSON, and this weir was built without jansson", reader->name);
        return EXIT_FAILED;
    }
    fields_collect(reader);
    if (reader->kind == READER_LOG)
        return log_begin(reader);
    if (reader->kind == READER_JSON)
        return EXIT_OK;
    if (reader->is_docker) {
        complain("%s: Docker has written its lines, and CSV cannot be read from Docker", reader->name);
        return EXIT_FAILED;
    }
    return lines_next(&reader->lines, &line) == 1 ? csv_start_reading(reader, line) : EXIT_FAILED;
}

/* ---- Rows ---- */

static int log_read(struct reader *reader, struct span line, struct reader_row *out, struct fault *fault)
{
    struct format_row row;
    enum format_line kind = format_read(reader->format, line, &row, fault);
    if (kind != FORMAT_ROW)
        return (int)kind;
    size_t which = (size_t)(row.layout - reader->format->layouts);
    out->time_us = row.time_us;
    out->repeat = row.repeat;
    for (size_t i = 0; i < reader->count; i++) {
        if (reader->format->is_w3c &&
            !layout_find(row.layout, reader->names[i], &reader->at[which][i], &reader->parts[which][i])) {
            fault_say(fault, "the line #Fields has no field '%s'", reader->names[i]);
            return FORMAT_BAD;
        }
        out->values[i] = layout_part(row.values[reader->at[which][i]], reader->parts[which][i]);
    }
    return FORMAT_ROW;
}

static int json_read(struct reader *reader, struct span line, struct span around, struct reader_row *out,
                     struct fault *fault)
{
    const struct csv_choice *choice = &reader->load->options->choice;
    struct span before;
    const struct span object = unwrap_object(line, &before);
    if (reader->is_caddy && unwrap_is_caddy_other(line))
        return FORMAT_OTHER;
    if (!json_lines_parse(&reader->json, object.len ? object : line, fault) ||
        !json_lines_time(&reader->json, choice->time, choice->has_unit ? &choice->unit : NULL,
                         before.len ? before : around, &out->time_us, fault))
        return FORMAT_BAD;
    reader->early += !choice->has_unit && csv_time_is_early(out->time_us);
    for (size_t i = 0; i < reader->count; i++) {
        if (json_lines_value(&reader->json, reader->names[i], &out->values[i]) && out->values[i].len)
            continue;
        if (strcmp(reader->names[i], "user") != 0) {
            fault_say(fault, "has no field '%s' that is a string or a number", reader->names[i]);
            return FORMAT_BAD;
        }
        out->values[i] = span_of("-");
    }
    return FORMAT_ROW;
}

static int csv_row_read(struct reader *reader, struct span line, struct reader_row *out, struct fault *fault)
{
    struct csv_row row = { .cost = 1 };
    int result = csv_read(reader->csv, &reader->lines, line, &row, fault);
    if (result != 1)
        return result < 0 ? -1 : FORMAT_BAD;
    out->time_us = row.time_us;
    out->cost = row.cost;
    out->values[0] = row.key;
    for (size_t i = 0; i < reader->choice.more_count; i++)
        out->values[i + 1] = row.more[i];
    return FORMAT_ROW;
}

int reader_read(struct reader *reader, struct span line, struct reader_row *out, struct fault *fault)
{
    struct span around = span_of("");
    out->cost = out->repeat = 1;
    if (reader->is_docker && !unwrap_docker(&reader->wrapper, line, &line, &around, fault))
        return FORMAT_BAD;
    if (reader->is_docker && span_trim(line).len == 0)
        return FORMAT_OTHER;
    if (reader->kind == READER_LOG)
        return log_read(reader, line, out, fault);
    return reader->kind == READER_JSON ? json_read(reader, line, around, out, fault)
                                       : csv_row_read(reader, line, out, fault);
}
