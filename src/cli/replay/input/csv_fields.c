/* csv_fields.c - the fields of one RFC 4180 record.
 *
 * A quote that is never closed would turn the rest of the file into one field. So a record over several lines is read
 * only up to CSV_MAX_RECORD. If it is still incomplete, only its first line is bad, and the rest is read again.
 */
#include "cli/replay/input/csv_fields.h"

#include <stdlib.h>
#include <string.h>

enum split_result { SPLIT_DONE, SPLIT_OPEN, SPLIT_BAD };

static enum split_result split(struct csv *csv, struct span record, struct fault *fault);
static bool quotes_are_even(struct span span);

int csv_fields_read(struct csv *csv, struct lines *lines, struct span line, struct fault *fault)
{
    enum split_result result = split(csv, line, fault);
    while (result == SPLIT_OPEN) {
        bool is_even = quotes_are_even(line);
        do { /* a quoted field ends on a line that makes the number of quotes even */
            size_t before = line.len;
            int extended = line.len < CSV_MAX_RECORD ? lines_extend(lines, &line) : 0;
            if (extended < 0)
                return -1;
            if (extended == 0) {
                lines_retract(lines);
                return fault_say(fault, "a quoted field is not closed");
            }
            is_even = is_even == quotes_are_even(span_slice(line, before, line.len));
        } while (!is_even);
        result = split(csv, line, fault);
    }
    if (result == SPLIT_BAD)
        lines_retract(lines);
    return result == SPLIT_DONE;
}

static bool quotes_are_even(struct span span)
{
    bool is_even = true;
    for (size_t at; (at = span_find(span, '"')) < span.len; span = span_slice(span, at + 1, span.len))
        is_even = !is_even;
    return is_even;
}

/* Return the place of the last quote of the quoted field that begins at `at`; record.len if it has none. */
static size_t quote_end(struct span record, size_t at)
{
    for (;;) {
        at += span_find(span_slice(record, at, record.len), '"');
        if (at == record.len || at + 1 == record.len || record.data[at + 1] != '"')
            return at;
        at += 2;
    }
}

static enum split_result split(struct csv *csv, struct span record, struct fault *fault)
{
    csv->count = 0;
    for (size_t at = 0;; at++) { /* at the start of a field */
        bool is_quoted = at < record.len && record.data[at] == '"';
        size_t begin = is_quoted ? at + 1 : at;
        size_t end = is_quoted ? quote_end(record, begin) : at + span_find(span_slice(record, at, record.len), ',');
        if (is_quoted && end == record.len)
            return SPLIT_OPEN;
        if (csv->count == CSV_MAX_FIELDS) {
            fault_say(fault, "has more than %d fields", CSV_MAX_FIELDS);
            return SPLIT_BAD;
        }
        csv->is_quoted[csv->count] = is_quoted;
        csv->fields[csv->count++] = span_slice(record, begin, end);
        at = is_quoted ? end + 1 : end;
        if (at == record.len)
            return SPLIT_DONE;
        if (record.data[at] != ',') {
            fault_say(fault, "field %zu has something between its closing quote and the comma", csv->count);
            return SPLIT_BAD;
        }
    }
}

bool csv_unquote(struct csv *csv, struct span *field)
{
    if (span_find(*field, '"') == field->len)
        return true;
    size_t most = 0; /* of bytes; growing later would move what fields point to */
    for (size_t i = 0; i < csv->count; i++)
        most += csv->fields[i].len * (1 + csv->choice->more_count);
    if (csv->unquoted_len == 0 && csv->unquoted_size < most) {
        char *grown = realloc(csv->unquoted, most);
        if (!grown)
            return false;
        csv->unquoted = grown;
        csv->unquoted_size = most;
    }
    size_t begin = csv->unquoted_len;
    for (size_t i = 0; i < field->len; i++) {
        csv->unquoted[csv->unquoted_len++] = field->data[i];
        if (field->data[i] == '"') /* a second quote follows: a single one would have ended the field */
            i++;
    }
    *field = (struct span){ csv->unquoted + begin, csv->unquoted_len - begin };
    return true;
}
