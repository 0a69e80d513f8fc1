/* cli_csv.c - whole inputs of weir replay: tables, JSON, logfmt and logs.
 *
 * The input is a byte that chooses the columns, and a file. Properties:
 *
 *     - reading ends, and each row has a key, a time and a cost in their ranges
 *     - a row that is left out is counted, and a complaint has no control bytes but line feeds
 *     - the same file has the same rows when it is read again
 */
#define feed fuzz_feed /* replay has another struct of that name */
#include "fuzz.h"
#undef feed

#include "cli/cli.h"
#include "cli/replay/input/load.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

void complain(const char *format, ...)
{
    char text[1200];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    fuzz_must(*text, "a complaint says something");
    for (const char *at = text; *at; at++)
        fuzz_must(((unsigned char)*at >= ' ' && *at != 0x7f) || *at == '\n', "a terminal obeys nothing in \"%s\"",
                  text);
}

/* Read the file into rows that the caller frees. */
static int read_file(const void *data, size_t len, const struct load_options *options, struct rows *rows,
                     size_t *unreadable)
{
    struct progress progress = { 0 };
    struct loader load = { .rows = rows, .options = options, .progress = &progress };
    rows_start(rows);
    const int code = load_file(&load, fuzz_file(data, len));
    *unreadable = load.unreadable;
    fuzz_must(code == EXIT_OK || code == EXIT_FAILED || code == EXIT_ERROR, "reading ends with a status");
    fuzz_must(load.free_rows <= rows->count, "rows that cost nothing are rows");
    for (size_t i = 0; i < rows->count; i++) {
        const struct row *row = &rows->all[i];
        fuzz_must(row->time_us >= 0 && row->time_us <= WEIR_MAX_TIME_US, "a time is in its range");
        fuzz_must(row->cost >= 0 && row->cost <= WEIR_MAX_PERMITS, "so is a cost");
        fuzz_must(row->key < rows->key_count && rows->keys[row->key].len >= 1 &&
                      rows->keys[row->key].len <= WEIR_MAX_KEY_LEN,
                  "so is a key");
    }
    return code;
}

static bool is_same_key(const struct rows *a, const struct rows *b, uint32_t key)
{
    return a->keys[key].len == b->keys[key].len &&
           memcmp(a->bytes + a->keys[key].offset, b->bytes + b->keys[key].offset, a->keys[key].len) == 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char *const times[] = { NULL, "1", "2", "ts" }, *const keys[] = { NULL, "2", "client/24/64", "1+key" };
    static const char *const costs[] = { NULL, "3", "n", "4096" }, *const formats[] = { NULL, "csv", "json", "logfmt" };
    if (size == 0)
        return 0;
    struct load_options options = { .time = times[data[0] % 4],
                                    .costs = { costs[data[0] / 16 % 4] },
                                    .cost_count = 1,
                                    .key_count = 1,
                                    .format = load_format_exists("logfmt") ? formats[size % 4] : formats[size % 3],
                                    .has_unit = data[0] & 64,
                                    .unit = data[0] & 64 ? TIME_SECONDS : TIME_BY_SIZE };
    struct fault fault = { "" };
    fuzz_must(key_spec_read(&options.keys[0], keys[data[0] / 4 % 4], &fault), "the key can be read");
    struct rows rows, again;
    size_t unreadable, unreadable_again;
    const int code = read_file(data + 1, size - 1, &options, &rows, &unreadable);
    fuzz_must(read_file(data + 1, size - 1, &options, &again, &unreadable_again) == code && again.count == rows.count &&
                  again.key_count == rows.key_count && unreadable == unreadable_again,
              "the same file is read in the same way");
    for (size_t i = 0; i < rows.count; i++)
        fuzz_must(rows.all[i].time_us == again.all[i].time_us && rows.all[i].cost == again.all[i].cost &&
                      rows.all[i].key == again.all[i].key && is_same_key(&rows, &again, rows.all[i].key),
                  "row %zu is the same", i + 1);
    rows_free(&rows);
    rows_free(&again);
    return 0;
}
