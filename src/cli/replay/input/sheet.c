/* sheet.c - tables of text: CSV, also with tabs, semicolons or bars between the fields, and W3C's extended format. */
#include "cli/replay/input/sheet.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"
#include "cli/replay/input/roles.h"

void sheet_free(struct sheet *sheet)
{
    free(sheet->names);
    free(sheet->name_bytes);
    sheet->names = NULL;
    sheet->name_bytes = NULL;
}

/* ---- The fields of one row ---- */

enum split { SPLIT_DONE, SPLIT_OPEN, SPLIT_BAD, SPLIT_FAILED };

/* Return the place of the last quote of the quoted field that begins at `at`; row.len if it has none. */
static size_t quote_end(struct span row, size_t at)
{
    for (;;) {
        at += span_find(span_slice(row, at, row.len), '"');
        if (at == row.len || at + 1 == row.len || row.data[at + 1] != '"')
            return at;
        at += 2;
    }
}

/* Return a quoted field with its doubled quotes as one. */
static struct span quotes_halve(struct record *record, struct span field)
{
    if (span_find(field, '"') == field.len)
        return field;
    const size_t begin = record->used;
    for (size_t i = 0; i < field.len; i++) {
        record->bytes[record->used++] = field.data[i];
        i += field.data[i] == '"'; /* a second quote follows: a single one would have ended the field */
    }
    return (struct span){ record->bytes + begin, record->used - begin };
}

static enum split row_split(const struct sheet *sheet, struct record *record, struct span row, struct fault *fault)
{
    record->count = record->used = 0;
    for (size_t at = 0;; at++) { /* at the start of a field */
        const bool is_quoted = at < row.len && row.data[at] == '"';
        const size_t begin = is_quoted ? at + 1 : at;
        const size_t end = is_quoted ? quote_end(row, begin)
                                     : at + span_find(span_slice(row, at, row.len), sheet->separator);
        if (is_quoted && end == row.len)
            return SPLIT_OPEN;
        const struct span field = span_slice(row, begin, end);
        const struct span name = record->count < sheet->name_count ? sheet->names[record->count] : span_of("");
        if (!record_add(record, name, is_quoted ? quotes_halve(record, field) : field, 0)) {
            fault_say(fault, "has more than %d fields", RECORD_MAX);
            return SPLIT_BAD;
        }
        at = is_quoted ? end + 1 : end;
        if (at == row.len)
            return SPLIT_DONE;
        if (row.data[at] != sheet->separator) {
            fault_say(fault, "field %zu has something between its closing quote and the %s", record->count,
                      sheet->separator == ',' ? "comma" : "separator");
            return SPLIT_BAD;
        }
    }
}

static bool quotes_are_even(struct span span)
{
    bool is_even = true;
    for (size_t at; (at = span_find(span, '"')) < span.len; span = span_slice(span, at + 1, span.len))
        is_even = !is_even;
    return is_even;
}

static bool room_make(struct record *record, const struct lines *lines, struct span line)
{
    if (record_start(record, line.len))
        return true;
    complain("%s: out of memory", lines->name);
    return false;
}

/* Split the row that begins with `line`: 1, 0 with a fault, -1 after a complaint. */
static int fields_read(struct sheet *sheet, struct record *record, struct lines *lines, struct span line,
                       struct fault *fault)
{
    enum split result = room_make(record, lines, line) ? row_split(sheet, record, line, fault) : SPLIT_FAILED;
    while (result == SPLIT_OPEN) {
        bool is_even = quotes_are_even(line);
        do { /* a quoted field ends on a line that makes the number of quotes even */
            size_t before = line.len;
            int extended = line.len < SHEET_MAX_RECORD ? lines_extend(lines, &line) : 0;
            if (extended < 0)
                return -1;
            if (extended == 0) {
                lines_retract(lines);
                return fault_say(fault, "a quoted field is not closed");
            }
            is_even = is_even == quotes_are_even(span_slice(line, before, line.len));
        } while (!is_even);
        result = room_make(record, lines, line) ? row_split(sheet, record, line, fault) : SPLIT_FAILED;
    }
    if (result == SPLIT_FAILED)
        return -1;
    if (result == SPLIT_BAD)
        lines_retract(lines);
    return result == SPLIT_DONE;
}

static bool plain_read(struct record *record, struct span line, struct fault *fault)
{
    static const struct span names[] = { { "time_us", 7 }, { "key", 3 }, { "cost", 4 } };
    const size_t first = span_find(line, ','), last = span_find_last(line, ',');
    if (first == last)
        return fault_say(fault, "has %d field%s, not time_us,key,cost", first == line.len ? 1 : 2,
                         first == line.len ? "" : "s");
    (void)record_start(record, 0);
    return record_add(record, names[0], span_slice(line, 0, first), 0) &&
           record_add(record, names[1], span_slice(line, first + 1, last), 0) &&
           record_add(record, names[2], span_slice(line, last + 1, line.len), 0);
}

/* Fields of W3C's format stand between tabs, or else between spaces. */
static bool w3c_fields(struct record *record, const struct sheet *sheet, struct span line, struct fault *fault)
{
    const char separator = span_find(line, '\t') < line.len ? '\t' : ' ';
    if (!record_start(record, 0))
        return false;
    for (line = span_trim(line); line.len;) {
        const size_t end = span_find(line, separator);
        const struct span name = record->count < sheet->name_count ? sheet->names[record->count] : span_of("");
        if (!record_add(record, name, span_slice(line, 0, end), 0))
            return fault_say(fault, "has more than %d fields", RECORD_MAX);
        line = span_slice(line, end < line.len ? end + 1 : end, line.len);
        while (separator == ' ' && line.len && line.data[0] == ' ')
            line = span_slice(line, 1, line.len);
    }
    return true;
}

/* ---- The header ---- */

/* Keep the current fields as the names of the columns. False: out of memory. */
static bool names_keep(struct sheet *sheet, const struct record *record)
{
    size_t len = 0;
    for (size_t i = 0; i < record->count; i++)
        len += record->all[i].value.len;
    sheet_free(sheet);
    sheet->names = calloc(record->count + 1, sizeof *sheet->names);
    sheet->name_bytes = malloc(len + 1);
    if (!sheet->names || !sheet->name_bytes)
        return false;
    len = 0;
    for (size_t i = 0; i < record->count; i++) {
        const struct span name = span_trim(record->all[i].value);
        memcpy(sheet->name_bytes + len, name.data, name.len);
        sheet->names[i] = (struct span){ sheet->name_bytes + len, name.len };
        len += name.len;
    }
    sheet->name_count = record->count;
    sheet->has_header = true;
    return true;
}

static size_t name_find(const struct member *fields, size_t count, const char *wanted)
{
    for (size_t i = 0; i < count; i++)
        if (span_is(span_trim(fields[i].value), wanted))
            return i;
    for (size_t i = 0; i < count; i++)
        if (span_is_like(span_trim(fields[i].value), wanted))
            return i;
    return RECORD_NONE;
}

size_t sheet_find(const struct sheet *sheet, const char *wanted)
{
    int64_t number;
    for (size_t i = 0; i < sheet->name_count; i++)
        if (span_is(sheet->names[i], wanted))
            return i;
    for (size_t i = 0; i < sheet->name_count; i++)
        if (span_is_like(sheet->names[i], wanted))
            return i;
    for (size_t i = 0; i < sheet->name_count; i++)
        if (role_names_match(sheet->names[i], wanted))
            return i;
    if (span_number(span_of(wanted), &number) && number >= 1 &&
        (uint64_t)number <= (sheet->has_header ? sheet->name_count : sheet->widest))
        return (size_t)number - 1;
    return RECORD_NONE;
}

static bool is_number_or_date(struct span text)
{
    int64_t time_us;
    const char *wrong;
    return time_read(text, TIME_MICROSECONDS, &time_us, &wrong) || strcmp(wrong, "is negative") == 0;
}

enum header_sign { NO_HEADER, ALL_TEXT, HAS_NAME };

/* Judge whether the current row is a header. */
static enum header_sign header_sign(const struct sheet *sheet, const struct record *record)
{
    bool has_text = false, has_time = false;
    for (size_t i = 0; i < sheet->asked_count; i++) {
        int64_t number;
        if (!span_number(span_of(sheet->asked[i]), &number) &&
            name_find(record->all, record->count, sheet->asked[i]) != RECORD_NONE)
            return HAS_NAME;
    }
    for (size_t i = 0; i < record->count; i++) {
        const struct span field = record->all[i].value;
        if (is_number_or_date(field))
            return NO_HEADER;
        has_text = has_text || field.len;
        has_time = has_time || role_is_time(span_trim(field));
    }
    return has_time ? HAS_NAME : has_text && record->count > 1 ? ALL_TEXT : NO_HEADER;
}

/* True if the current row has a time and all columns that are chosen by number. */
static bool is_data(const struct sheet *sheet, const struct record *record)
{
    size_t time = 0;
    for (size_t i = 0; i < sheet->asked_count; i++) {
        int64_t number;
        if (!span_number(span_of(sheet->asked[i]), &number) || number < 1 || (uint64_t)number > record->count)
            return false;
        if (sheet->asked[i] == sheet->asked_time)
            time = (size_t)number - 1;
    }
    return is_number_or_date(record->all[time].value);
}

/* Search the first rows for a header. Return the number of its line; 0: there is none; -1: after a complaint. */
static int64_t header_search(struct sheet *sheet, struct record *record, struct lines *lines, struct span line)
{
    int64_t header = 0;
    size_t text_fields = 0, rows = 0;
    int result = 1;
    for (; result == 1 && rows < SHEET_SEARCHED; result = lines_next(lines, &line)) {
        struct fault fault;
        if (span_trim(line).len == 0)
            continue;
        rows++;
        bool is_row = sheet->is_plain && plain_read(record, line, &fault) && is_number_or_date(record->all[0].value) &&
                      record->all[1].value.len && is_number_or_date(record->all[2].value);
        const int has_fields = fields_read(sheet, record, lines, line, &fault);
        if (has_fields < 0)
            return -1;
        const size_t count = has_fields ? record->count : 0;
        sheet->widest = count > sheet->widest ? count : sheet->widest;
        const enum header_sign sign = has_fields ? header_sign(sheet, record) : NO_HEADER;
        if (sign == HAS_NAME || (sign == ALL_TEXT && header == 0)) {
            header = lines->number;
            sheet->skipped = rows - 1;
            text_fields = count;
        }
        is_row = is_row || (!sheet->is_plain && has_fields && is_data(sheet, record));
        if (is_row && sign != HAS_NAME && count != text_fields)
            header = 0;
        if (is_row || sign == HAS_NAME)
            break;
    }
    return result < 0 ? -1 : header;
}

int sheet_begin(struct sheet *sheet, struct record *record, struct lines *lines, struct span line)
{
    struct fault fault;
    if (sheet->is_w3c)
        return EXIT_OK; /* the fields are named later */
    sheet->is_plain = sheet->separator == ',' && sheet->asked_count == 0;
    lines_mark(lines);
    const int64_t header = header_search(sheet, record, lines, line);
    lines_rewind(lines);
    if (header < 0)
        return EXIT_FAILED;
    if (header == 0)
        sheet->skipped = 0;
    while (header > 0 && lines_next(lines, &line) == 1)
        if (lines->number == header) {
            if (fields_read(sheet, record, lines, line, &fault) == 1 && names_keep(sheet, record))
                break;
            complain("%s: out of memory", lines->name);
            return EXIT_FAILED;
        }
    if (sheet->widest == 0 && !sheet->is_plain) {
        complain("%s: the first rows cannot be read, so the columns are unknown", lines->name);
        return EXIT_FAILED;
    }
    sheet->is_plain = sheet->is_plain && !sheet->has_header;
    return EXIT_OK;
}

/* ---- Rows ---- */

/* Read a line of W3C's format, or take the names from a line such as "#Fields: date time c-ip". */
static int w3c_read(struct sheet *sheet, struct record *record, struct span line, struct fault *fault)
{
    const bool is_comment = line.len && line.data[0] == '#';
    if (is_comment && line.len > 8 && span_is_like(span_slice(line, 0, 7), "#fields")) {
        sheet->name_count = 0;
        if (!w3c_fields(record, sheet, span_slice(line, 8, line.len), fault))
            return 0;
        return names_keep(sheet, record) ? 2 : fault_say(fault, "out of memory");
    }
    if (is_comment)
        return 2;
    if (!sheet->has_header)
        return fault_say(fault, "no line #Fields with date and time stands before it");
    return w3c_fields(record, sheet, line, fault);
}

int sheet_read(struct sheet *sheet, struct record *record, struct lines *lines, struct span line, struct fault *fault)
{
    if (sheet->is_plain)
        return plain_read(record, line, fault);
    const int result = sheet->is_w3c ? w3c_read(sheet, record, line, fault)
                                     : fields_read(sheet, record, lines, line, fault);
    if (result == 1 && sheet->has_header && record->count != sheet->name_count)
        return fault_say(fault, "has %zu field%s, and the header has %zu", record->count, record->count == 1 ? "" : "s",
                         sheet->name_count);
    return result;
}

/* ---- The separator ---- */

/* Count the fields. A comma before the fraction of a second, as in 06:00:00,130, separates none. */
static size_t fields_count(struct span line, char separator)
{
    size_t count = 1;
    int64_t number;
    for (size_t i = 0; i < line.len; i++)
        count += line.data[i] == separator &&
                 !(separator == ',' && i >= 8 && i + 4 < line.len && time_is_clock(span_slice(line, i - 8, i)) &&
                   span_number(span_slice(line, i + 1, i + 4), &number) && line.data[i + 4] == ' ');
    return count;
}

/* True if one of the fields is a number, a date, or the usual name of a time. */
static bool has_time_field(struct span line, char separator)
{
    for (;;) {
        const size_t end = span_find(line, separator);
        struct span field = span_trim(span_slice(line, 0, end));
        if (field.len > 1 && field.data[0] == '"' && field.data[field.len - 1] == '"')
            field = span_slice(field, 1, field.len - 1);
        if (is_number_or_date(field) || role_is_time(field))
            return true;
        if (end == line.len)
            return false;
        line = span_slice(line, end + 1, line.len);
    }
}

char sheet_guess(const struct span *lines, size_t count, bool has_time)
{
    static const char separators[] = { ',', '\t', ';', '|' };
    size_t most = 0;
    char best = '\0';
    for (size_t s = 0; s < sizeof separators; s++) {
        size_t split = 0, times = 0;
        for (size_t i = 0; i < count; i++) {
            split += fields_count(lines[i], separators[s]) > 1;
            times += has_time || has_time_field(lines[i], separators[s]);
        }
        const bool is_header = count && fields_count(lines[0], separators[s]) > 1 &&
                               has_time_field(lines[0], separators[s]) && split * 4 >= count;
        if (split > most && (is_header || (split * 2 >= count && times * 2 >= count))) {
            most = split;
            best = separators[s];
        }
    }
    /* A file with one column has no separator. */
    if (!best && count && (has_time || role_is_time(span_trim(lines[0]))))
        best = ',';
    return best;
}
