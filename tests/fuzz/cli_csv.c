/* cli_csv.c - rows of CSV files.
 *
 * The input is a byte that chooses the columns, and a file. Properties:
 *
 *     - each line is part of one row or refused, in order, and reading ends
 *     - values are in range; a refusal gives its reason, without control bytes
 *     - without a header and a choice of columns, a row is what a naive reader splits at the first and the last comma
 *     - accepted rows, written with all fields in quotes as RFC 4180 says, are read back unchanged
 */
#include "fuzz.h"

#include "cli/cli.h"
#include "cli/replay/input/csv.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROWS = 64 };

static int complaints;

void complain(const char *format, ...)
{
    char text[600];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    fuzz_must(*text, "a complaint says something");
    complaints++;
}

struct kept {
    int64_t time_us, cost;
    char *key;
    size_t len;
};

struct reading {
    struct kept rows[ROWS];
    size_t count, good;
    int code; /* returned by csv_begin() */
    bool is_plain;
};

static void keep(struct reading *reading, const struct csv_row *row)
{
    fuzz_must(row->time_us >= 0 && row->time_us <= WEIR_MAX_TIME_US && row->cost >= 1 &&
                  row->cost <= WEIR_MAX_PERMITS && row->key.len >= 1 && row->key.len <= WEIR_MAX_KEY_LEN,
              "a row is in its ranges");
    reading->good++;
    if (reading->count == ROWS)
        return;
    struct kept *kept = &reading->rows[reading->count++];
    *kept = (struct kept){ row->time_us, row->cost, malloc(row->key.len), row->key.len };
    fuzz_must(kept->key, "there is memory");
    memcpy(kept->key, row->key.data, row->key.len);
}

/* Check a row by the rules in csv.h's first comment. */
static void check_plain(struct span line, int result, const struct csv_row *row)
{
    const size_t first = span_find(line, ','), last = span_find_last(line, ',');
    if (result != 1)
        return;
    fuzz_must(first < last && row->key.data == line.data + first + 1 && row->key.len == last - first - 1,
              "a plain row's key stands between the first and the last comma");
    int64_t cost;
    fuzz_must(span_number(span_trim(span_slice(line, last + 1, line.len)), &cost) && cost == row->cost,
              "and its cost behind that");
}

static void read_rows(struct csv *csv, struct lines *lines, struct reading *reading)
{
    struct span line;
    int64_t number = 0;
    while (lines_next(lines, &line) == 1) {
        struct csv_row row;
        struct fault fault = { "" };
        const struct span first = line;
        fuzz_must(lines->number > number, "lines are read in order, each once");
        const int result = csv_read(csv, lines, line, &row, &fault);
        fuzz_must(result == 1 || (result == 0 && *fault.text), "a row is read, or refused with a reason");
        for (const char *at = fault.text; *at; at++)
            fuzz_must((unsigned char)*at >= ' ' && *at != 0x7f, "a terminal obeys nothing in \"%s\"", fault.text);
        number = result == 1 ? lines->last_number : lines->number;
        if (csv->is_plain)
            check_plain(first, result, &row);
        if (result == 1)
            keep(reading, &row);
    }
}

static void read_file(const void *data, size_t len, const struct csv_choice *choice, struct reading *reading)
{
    static struct csv csv;
    struct lines lines;
    struct span line;
    struct bytes *bytes = bytes_open(fuzz_file(data, len));
    reading->count = reading->good = 0;
    reading->code = EXIT_OK;
    fuzz_must(bytes, "a file in memory can be opened");
    lines_start(&lines, bytes, "input");
    csv_start(&csv, choice);
    if (lines_next(&lines, &line) == 1) {
        reading->code = csv_begin(&csv, &lines, line);
        reading->is_plain = csv.is_plain;
        if (reading->code == EXIT_OK)
            read_rows(&csv, &lines, reading);
    }
    csv_free(&csv);
    lines_free(&lines);
    bytes_close(bytes);
}

static void forget(struct reading *reading)
{
    for (size_t i = 0; i < reading->count; i++)
        free(reading->rows[i].key);
    reading->count = 0;
}

/* ---- There and back ---- */

static void check_round(const struct reading *reading)
{
    static struct reading again;
    static const struct csv_choice choice = { .has_unit = true, .unit = TIME_MICROSECONDS };
    size_t room = 64;
    for (size_t i = 0; i < reading->count; i++)
        room += 2 * reading->rows[i].len + 80;
    char *text = malloc(room);
    fuzz_must(text, "there is memory");
    size_t at = (size_t)snprintf(text, room, "\"time\",\"key\",\"cost\"\r\n");
    for (size_t i = 0; i < reading->count; i++) {
        const struct kept *row = &reading->rows[i];
        at += (size_t)snprintf(text + at, room - at, "\"%" PRId64 "\",\"", row->time_us);
        for (size_t j = 0; j < row->len; j++) {
            if (row->key[j] == '"')
                text[at++] = '"';
            text[at++] = row->key[j];
        }
        at += (size_t)snprintf(text + at, room - at, "\",\"%" PRId64 "\"\n", row->cost);
    }
    read_file(text, at, &choice, &again);
    fuzz_must(again.code == EXIT_OK && again.good == reading->count, "%zu of %zu rows come back", again.good,
              reading->count);
    for (size_t i = 0; i < again.count; i++) {
        const struct kept *row = &reading->rows[i], *back = &again.rows[i];
        fuzz_must(row->time_us == back->time_us && row->cost == back->cost && row->len == back->len &&
                      memcmp(row->key, back->key, row->len) == 0,
                  "row %zu comes back as it was", i + 1);
    }
    forget(&again);
    free(text);
}

/* A carriage return before a line feed is dropped, also in a quoted field: see lines.h. */
static bool has_lost_return(const struct reading *reading)
{
    for (size_t i = 0; i < reading->count; i++)
        if (memmem(reading->rows[i].key, reading->rows[i].len, "\r\n", 2))
            return true;
    return false;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char *const times[] = { NULL, "1", "2", "ts" }, *const keys[] = { NULL, "2", "key", "1" };
    static const char *const costs[] = { NULL, "3", "n", "4096" };
    static struct reading reading;
    if (size == 0)
        return 0;
    const struct csv_choice choice = { .time = times[data[0] % 4],
                                       .key = keys[data[0] / 4 % 4],
                                       .cost = costs[data[0] / 16 % 4],
                                       .has_unit = data[0] & 64,
                                       .unit = TIME_SECONDS };
    complaints = 0;
    read_file(data + 1, size - 1, &choice, &reading);
    fuzz_must(reading.code == EXIT_OK || complaints > 0, "who is not served is told why");
    if (reading.count > 0 && !has_lost_return(&reading))
        check_round(&reading);
    forget(&reading);
    return 0;
}
