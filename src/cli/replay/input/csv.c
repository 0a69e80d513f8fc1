/* csv.c - rows of CSV files: a time, a key and a cost. */
#include "cli/replay/input/csv.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <weir/weir.h>

#include "cli/cli.h"
#include "cli/replay/input/csv_fields.h"

#define NO_COLUMN ((size_t)CSV_MAX_FIELDS)

/* Unix seconds since 1985, or milliseconds, read as microseconds: the first months of 1970. */
#define EARLY_MIN_US INT64_C(500000000)
#define EARLY_MAX_US INT64_C(10000000000000)

static bool row_values(struct csv *csv, struct span time, struct span cost, struct csv_row *out, struct fault *fault);
static bool plain_read(struct csv *csv, struct span line, struct csv_row *out, struct fault *fault);
static bool key_check(struct span key, struct fault *fault);

void csv_start(struct csv *csv, const struct csv_choice *choice)
{
    csv->choice = choice;
    csv->is_plain = false;
    csv->has_header = false;
    csv->time = csv->key = csv->cost = NO_COLUMN;
    csv->unit = choice->has_unit ? choice->unit : TIME_MICROSECONDS;
    csv->key_name[0] = '\0';
    csv->header_fields = csv->skipped = csv->count = csv->unquoted_len = csv->unquoted_size = 0;
    csv->rows = csv->early = 0;
    csv->is_unit_assumed = false;
    csv->unquoted = NULL;
}

void csv_free(struct csv *csv)
{
    free(csv->unquoted);
}

/* ---- Which column is which ---- */

static const char *const TIME_NAMES[] = {
    "time", "timestamp", "@timestamp", "datetime", "date_time", "ts", "date", NULL
};
static const char *const KEY_NAMES[] = { "key",         "client",    "client_ip",   "clientip", "client_addr",
                                         "remote_addr", "remote_ip", "remote_host", "ip",       "ip_address",
                                         "source_ip",   "src_ip",    "address",     "host",     "user",
                                         "user_id",     "username",  "account",     "tenant",   "api_key",
                                         NULL };
static const char *const COST_NAMES[] = { "cost", "permits", NULL };

/* Find a column by its exact name, by its name in different case, or by its number. */
static size_t column_find(const struct csv *csv, const char *wanted)
{
    int64_t number;
    for (size_t i = 0; csv->has_header && i < csv->count; i++)
        if (span_is(span_trim(csv->fields[i]), wanted))
            return i;
    for (size_t i = 0; csv->has_header && i < csv->count; i++)
        if (span_is_like(span_trim(csv->fields[i]), wanted))
            return i;
    if (span_number(span_of(wanted), &number) && number >= 1 && (uint64_t)number <= csv->count)
        return (size_t)number - 1;
    return NO_COLUMN;
}

/* Find the first of the usual names in the header; for times also with a unit after it, as in time_ms. */
static size_t column_guess(const struct csv *csv, const char *const *names, bool with_unit)
{
    for (; *names; names++)
        for (size_t i = 0; i < csv->count; i++) {
            struct span field = span_trim(csv->fields[i]);
            enum time_unit unit;
            if (span_is_like(field, *names))
                return i;
            if (with_unit && time_unit_of_name(field, &unit) &&
                span_is_like(span_slice(field, 0, span_find_last(field, '_')), *names))
                return i;
        }
    return NO_COLUMN;
}

enum header_sign { NO_HEADER, ALL_TEXT, HAS_NAME };

/* Judge whether the current row is a header. */
static enum header_sign header_sign(struct csv *csv)
{
    const char *asked[] = { csv->choice->time, csv->choice->key, csv->choice->cost };
    bool has_text = false;
    csv->has_header = true;
    for (size_t i = 0; i < 3; i++) {
        int64_t number;
        if (asked[i] && !span_number(span_of(asked[i]), &number) && column_find(csv, asked[i]) != NO_COLUMN)
            return HAS_NAME;
    }
    csv->has_header = false;
    for (size_t i = 0; i < csv->count; i++) {
        int64_t time_us;
        const char *wrong;
        if (time_read(csv->fields[i], TIME_MICROSECONDS, &time_us, &wrong) || strcmp(wrong, "is negative") == 0)
            return NO_HEADER;
        has_text = has_text || csv->fields[i].len;
    }
    if (column_guess(csv, TIME_NAMES, true) != NO_COLUMN)
        return HAS_NAME;
    return has_text && csv->count > 1 ? ALL_TEXT : NO_HEADER;
}

static int column_missing(const struct csv *csv, const struct lines *lines, const char *option, const char *wanted)
{
    char names[400];
    size_t used = 0;
    names[0] = '\0';
    for (size_t i = 0; i < csv->count && used + 80 < sizeof names; i++) {
        char name[64];
        span_show(span_trim(csv->fields[i]), name, sizeof name);
        used += (size_t)snprintf(names + used, sizeof names - used, "%s%s", i ? ", " : "", name);
    }
    if (!csv->has_header)
        complain("%s: there is no header row, so %s takes a column's number from 1 to %zu, not '%s'", lines->name,
                 option, csv->count, wanted);
    else if (wanted)
        complain("%s: there is no field '%s' for %s; the fields are: %s", lines->name, wanted, option, names);
    else
        complain("%s: no field has the usual name of a time; choose one with %s: %s", lines->name, option, names);
    return EXIT_ERROR;
}

/* Replace the guess by the column that the user chose, if any. */
static bool column_choose(const struct csv *csv, const char *wanted, size_t *column)
{
    if (wanted)
        *column = column_find(csv, wanted);
    return !wanted || *column != NO_COLUMN;
}

/* True if the current row has a time and all columns that are chosen by number. */
static bool is_data(const struct csv *csv)
{
    const struct csv_choice *choice = csv->choice;
    size_t time = 0, other;
    int64_t time_us;
    const char *wrong;
    return column_choose(csv, choice->time, &time) && column_choose(csv, choice->key, &other) &&
           column_choose(csv, choice->cost, &other) && time_read(csv->fields[time], csv->unit, &time_us, &wrong);
}

struct header {     /* what a search finds */
    int64_t number; /* of the header's line; 0: none */
    size_t before;  /* rows before it */
    size_t widest;  /* fields of the longest row */
};

/* Search the first rows for a header. Return EXIT_OK, or EXIT_FAILED after a complaint. */
static int header_search(struct csv *csv, struct lines *lines, struct span line, struct header *out)
{
    size_t text_fields = 0, rows = 0;
    int result = 1;
    for (; result == 1 && rows < CSV_SEARCHED; result = lines_next(lines, &line)) {
        struct csv_row row;
        struct fault fault;
        if (span_trim(line).len == 0)
            continue;
        rows++;
        bool is_row = csv->is_plain && plain_read(csv, line, &row, &fault);
        int has_fields = csv_fields_read(csv, lines, line, &fault);
        if (has_fields < 0)
            return EXIT_FAILED;
        size_t count = has_fields ? csv->count : 0;
        out->widest = count > out->widest ? count : out->widest;
        enum header_sign sign = has_fields ? header_sign(csv) : NO_HEADER;
        if (sign == HAS_NAME || (sign == ALL_TEXT && out->number == 0)) {
            out->number = lines->number;
            out->before = rows - 1;
            text_fields = count;
        }
        csv->has_header = false;
        is_row = is_row || (!csv->is_plain && has_fields && is_data(csv));
        if (is_row && sign != HAS_NAME && count != text_fields)
            out->number = 0;
        if (is_row || sign == HAS_NAME)
            return EXIT_OK;
    }
    return result < 0 ? EXIT_FAILED : EXIT_OK;
}

/* Make the header the current row again; without one, return to the first row. */
static int header_read(struct csv *csv, struct lines *lines, const struct header *header)
{
    struct span line;
    struct fault fault;
    lines_rewind(lines);
    csv->has_header = header->number > 0;
    csv->count = header->widest;
    while (csv->has_header && lines_next(lines, &line) == 1)
        if (lines->number == header->number)
            return csv_fields_read(csv, lines, line, &fault) == 1 ? EXIT_OK : EXIT_FAILED;
    return EXIT_OK;
}

int csv_begin(struct csv *csv, struct lines *lines, struct span line)
{
    const struct csv_choice *choice = csv->choice;
    struct header header = { 0 };
    csv->is_plain = !choice->time && !choice->key && !choice->cost && !choice->more_count;
    lines_mark(lines);
    if (header_search(csv, lines, line, &header) != EXIT_OK || header_read(csv, lines, &header) != EXIT_OK)
        return EXIT_FAILED;
    csv->rows = csv->early = 0; /* the search has read some */
    if (header.widest == 0 && !csv->is_plain) {
        complain("%s: the first rows cannot be read, so the columns are unknown", lines->name);
        return EXIT_FAILED;
    }
    if (csv->has_header) {
        csv->is_plain = false;
        csv->skipped = header.before;
        csv->header_fields = csv->count;
        csv->time = column_guess(csv, TIME_NAMES, true);
        csv->key = column_guess(csv, KEY_NAMES, false);
        csv->cost = column_guess(csv, COST_NAMES, false);
    } else {
        csv->time = 0;
    }
    if (!column_choose(csv, choice->time, &csv->time))
        return column_missing(csv, lines, "--time", choice->time);
    if (!column_choose(csv, choice->key, &csv->key))
        return column_missing(csv, lines, "--key", choice->key);
    if (!column_choose(csv, choice->cost, &csv->cost))
        return column_missing(csv, lines, "--cost", choice->cost);
    for (size_t i = 0; i < choice->more_count; i++)
        if (!column_choose(csv, choice->more[i], &csv->more[i]))
            return column_missing(csv, lines, "key, cost or duration", choice->more[i]);
    if (csv->time == NO_COLUMN)
        return column_missing(csv, lines, "--time", NULL);

    csv->is_unit_assumed = csv->has_header && !choice->has_unit;
    if (csv->is_unit_assumed && time_unit_of_name(span_trim(csv->fields[csv->time]), &csv->unit))
        csv->is_unit_assumed = false;
    if (csv->has_header && csv->key != NO_COLUMN)
        span_show(span_trim(csv->fields[csv->key]), csv->key_name, sizeof csv->key_name);
    else if (csv->key != NO_COLUMN)
        snprintf(csv->key_name, sizeof csv->key_name, "column %zu", csv->key + 1);
    else if (csv->is_plain)
        snprintf(csv->key_name, sizeof csv->key_name, "key");
    return EXIT_OK;
}

/* ---- Rows ---- */

/* Get a column's value without its quotes; "*" where there is no such column. False: out of memory. */
static bool csv_value(struct csv *csv, size_t column, struct span *out)
{
    *out = column == NO_COLUMN ? span_of("*") : csv->fields[column];
    return column == NO_COLUMN || !csv->is_quoted[column] || csv_unquote(csv, out);
}

int csv_read(struct csv *csv, struct lines *lines, struct span line, struct csv_row *out, struct fault *fault)
{
    if (csv->is_plain)
        return plain_read(csv, line, out, fault);
    int result = csv_fields_read(csv, lines, line, fault);
    if (result != 1)
        return result;
    if (csv->has_header && csv->count != csv->header_fields)
        return fault_say(fault, "has %zu field%s, and the header has %zu", csv->count, csv->count == 1 ? "" : "s",
                         csv->header_fields);
    size_t last = csv->time;
    for (size_t i = 0; i < csv->choice->more_count; i++)
        last = csv->more[i] > last ? csv->more[i] : last;
    last = csv->key != NO_COLUMN && csv->key > last ? csv->key : last;
    last = csv->cost != NO_COLUMN && csv->cost > last ? csv->cost : last;
    if (csv->count <= last)
        return fault_say(fault, "has %zu field%s, and column %zu is asked for", csv->count, csv->count == 1 ? "" : "s",
                         last + 1);
    csv->unquoted_len = 0;
    bool has_room = csv_value(csv, csv->key, &out->key);
    for (size_t i = 0; i < csv->choice->more_count && has_room; i++)
        has_room = csv_value(csv, csv->more[i], &out->more[i]);
    if (!has_room) {
        complain("%s: out of memory", lines->name);
        return -1;
    }
    return row_values(csv, csv->fields[csv->time], csv->cost == NO_COLUMN ? span_of("1") : csv->fields[csv->cost], out,
                      fault);
}

static bool plain_read(struct csv *csv, struct span line, struct csv_row *out, struct fault *fault)
{
    size_t first = span_find(line, ','), last = span_find_last(line, ',');
    if (first == last)
        return fault_say(fault, "has %d field%s, not time_us,key,cost", first == line.len ? 1 : 2,
                         first == line.len ? "" : "s");
    out->key = span_slice(line, first + 1, last);
    return row_values(csv, span_slice(line, 0, first), span_slice(line, last + 1, line.len), out, fault);
}

/* Read and check the time and the cost, and check the key. */
static bool row_values(struct csv *csv, struct span time, struct span cost, struct csv_row *out, struct fault *fault)
{
    const char *wrong;
    if (!time_read(time, csv->unit, &out->time_us, &wrong))
        return fault_set(fault, "time", time, wrong);
    csv->rows++;
    csv->early += csv_time_is_early(out->time_us);
    if (!span_number(span_trim(cost), &out->cost) || out->cost < 1 || out->cost > WEIR_MAX_PERMITS)
        return fault_set(fault, "cost", cost, "is not a whole number from 1 to 1000000000");
    return key_check(out->key, fault);
}

static bool key_check(struct span key, struct fault *fault)
{
    if (key.len == 0)
        return fault_say(fault, "the key is empty");
    if (key.len > WEIR_MAX_KEY_LEN)
        return fault_say(fault, "the key has %zu bytes, and at most %d are allowed", key.len, WEIR_MAX_KEY_LEN);
    return true;
}

bool csv_time_is_early(int64_t time_us)
{
    return time_us >= EARLY_MIN_US && time_us < EARLY_MAX_US;
}

bool csv_unit_is_doubtful(const struct csv *csv)
{
    return csv->is_unit_assumed && csv->rows > 0 && csv->early == csv->rows;
}
