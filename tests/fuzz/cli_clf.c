/* cli_clf.c - one line of a log.
 *
 * The input is a line, then choices that make a valid one; its first line is also a format for the rest. Properties:
 *
 *     - in each named format and in any format that compiles, values stand in the line in the order of the fields
 *     - a line is accepted or refused for any key column, and its time is the same for all and in range
 *     - its client, user, method and path occur in the line, or are "-"
 *     - the client is the text before the first blank, a word of bytes that host names and addresses have
 *     - a refusal's reason has no control bytes
 *     - a line made of a client, a user, a time, a request and more is read as these
 */
#include "fuzz.h"

#include "cli/cli.h"
#include "cli/replay/input/formats.h"
#include "cli/replay/input/record.h"
#include "cli/times.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define HOST_BYTES "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._*"

/* Ignore the program's complaints; a reader of single lines makes none. */
void complain(const char *format, ...)
{
    fuzz_fail("%s: no complaint is made of a line", format);
}

enum clf_key { CLF_CLIENT, CLF_PATH, CLF_USER, CLF_METHOD };

static bool clf_read(struct span line, enum clf_key which, int64_t *out_time_us, struct span *out, struct fault *fault)
{
    static const char *const names[] = { "client", "path", "user", "method" };
    static struct format format;
    struct format_row row;
    enum layout_part part;
    size_t at;
    if (format.layout_count == 0)
        fuzz_must(format_named(&format, "common"), "there is a common format");
    if (format_read(&format, line, &row, fault) != FORMAT_ROW)
        return false;
    fuzz_must(layout_find(row.layout, names[which], &at, &part), "it has a %s", names[which]);
    *out = layout_part(row.values[at], part);
    *out_time_us = row.time_us;
    return true;
}

static void check_fault(const struct fault *fault)
{
    fuzz_must(*fault->text, "a refusal says why");
    for (const char *at = fault->text; *at; at++)
        fuzz_must((unsigned char)*at >= ' ' && *at != 0x7f, "a terminal obeys nothing in \"%s\"", fault->text);
}

/* Check that the fields of a line that fits a layout stand in the line, one after the other. */
static void check_layout(const struct layout *layout, struct span line)
{
    struct span values[LAYOUT_MAX_FIELDS];
    struct fault fault = { "" };
    const char *at = line.data;
    if (!layout_split(layout, line, values, &fault)) {
        check_fault(&fault);
        fuzz_must(!layout_split(layout, line, values, NULL), "the reason is not asked for");
        return;
    }
    for (size_t i = 0; i < layout->count; i++) {
        fuzz_must(values[i].data >= at && values[i].data + values[i].len <= line.data + line.len,
                  "fields are in order");
        at = values[i].data + values[i].len;
        struct span part = layout_part(values[i], LAYOUT_PATH);
        fuzz_must(part.len > 0 && (span_is(part, "-") || part.data >= values[i].data), "a path is a part of a field");
    }
}

static void check_formats(struct span input)
{
    static const char *const names[] = { "combined", "vhost_combined", "haproxy", "alb",
                                         "envoy",    "istio",          "sshd",    "squid" };
    static struct format format;
    static struct layout layout;
    struct fault fault = { "" };
    const size_t end = span_find(input, '\n');
    const struct span text = span_slice(input, 0, end),
                      line = span_slice(input, end < input.len ? end + 1 : end, input.len);
    if (layout_compile(&layout, span_of(""), text, &fault))
        check_layout(&layout, line);
    else
        check_fault(&fault);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        struct format_row row;
        fault.text[0] = '\0';
        fuzz_must(format_named(&format, names[i]), "there is a format %s", names[i]);
        for (int quotes = QUOTES_NONE; quotes <= QUOTES_ESCAPED; quotes++) {
            format.quotes = (enum line_quotes)quotes;
            fault.text[0] = '\0';
            if (format_read(&format, line, &row, &fault) == FORMAT_BAD)
                check_fault(&fault);
        }
        for (size_t j = 0; j < format.layout_count; j++)
            check_layout(&format.layouts[j], line);
        format_free(&format);
    }
    struct format_guess guess;
    const struct span lines[] = { text, line };
    format = (struct format){ 0 };
    if (format_detect(&format, lines, 2, &guess))
        fuzz_must(guess.fits >= 1 && guess.fits <= 2 && guess.next_fits <= guess.fits, "of two lines at most two fit");
    format_free(&format);
}

/* Check the members of a line that is read as JSON or logfmt. */
static void check_record(struct span line, bool (*read)(struct record *, struct span, struct fault *))
{
    static struct record record;
    struct fault fault = { "" };
    char path[256];
    if (!read(&record, line, &fault)) {
        check_fault(&fault);
        return;
    }
    fuzz_must(record.count <= RECORD_MAX, "members have a bound");
    for (size_t i = 0; i < record.count; i++) {
        record_path(&record, i, path, sizeof path);
        fuzz_must(strlen(path) < sizeof path, "a path ends");
        fuzz_must(record.all[i].value.len <= line.len, "a value is not longer than the line");
    }
    (void)record_find(&record, "request.client_ip", 0);
}

static bool is_within(struct span part, struct span line)
{
    return span_is(part, "-") || (part.data >= line.data && part.data + part.len <= line.data + line.len);
}

static void check_line(struct span line)
{
    int64_t time_us[4] = { 0 };
    struct span key[4];
    bool is_read[4];
    for (int which = 0; which < 4; which++) {
        struct fault fault = { "" };
        is_read[which] = clf_read(line, (enum clf_key)which, &time_us[which], &key[which], &fault);
        fuzz_must(is_read[which] == is_read[0], "whichever key is asked for");
        fuzz_must(is_read[which] || *fault.text, "a refusal says why");
        for (const char *at = fault.text; *at; at++)
            fuzz_must((unsigned char)*at >= ' ' && *at != 0x7f, "a terminal obeys nothing in \"%s\"", fault.text);
    }
    if (!is_read[0])
        return;
    for (int which = 0; which < 4; which++) {
        fuzz_must(time_us[which] == time_us[0], "there is one time");
        fuzz_must(key[which].len > 0 && is_within(key[which], line), "a key is a part of the line");
    }
    fuzz_must(time_us[0] >= 0 && time_us[0] <= WEIR_MAX_TIME_US, "a time is in its range");
    fuzz_must(key[CLF_CLIENT].data == line.data && key[CLF_CLIENT].len == span_find(line, ' '),
              "the client stands before the first blank");
    for (size_t i = 0; i < key[CLF_CLIENT].len; i++)
        fuzz_must(key[CLF_CLIENT].data[i] && strchr(HOST_BYTES ":%", key[CLF_CLIENT].data[i]), "and could be a host");
    fuzz_must(span_find(key[CLF_PATH], '?') == key[CLF_PATH].len, "a path has no query");
    fuzz_must(span_find(key[CLF_METHOD], ' ') == key[CLF_METHOD].len, "a method is one word");

    char text[TIME_TEXT_SIZE];
    int64_t again_us;
    const char *wrong;
    time_print(time_us[0], text);
    fuzz_must(time_read(span_of(text), TIME_MICROSECONDS, &again_us, &wrong) &&
                  again_us == time_us[0] - time_us[0] % WEIR_SECOND,
              "%s is the second that it was printed of", text);
}

/* ---- Made ---- */

/* Make the name of a host, that is not empty. */
static void feed_host(struct feed *feed, char host[64])
{
    size_t len;
    char *bytes = feed_bytes(feed, 60, &len);
    for (size_t i = 0; i < len; i++)
        host[i] = HOST_BYTES[(unsigned char)bytes[i] % (sizeof HOST_BYTES - 1)];
    if (len == 0)
        host[len++] = 'x';
    host[len] = '\0';
    free(bytes);
}

/* Make a word that is not empty and does not contain `without`. */
static void feed_word(struct feed *feed, const char *without, char word[64])
{
    size_t len, n = 0;
    char *bytes = feed_bytes(feed, 60, &len);
    for (size_t i = 0; i < len; i++)
        if (bytes[i] && bytes[i] != '\n' && bytes[i] != '\r' && !strchr(without, bytes[i]))
            word[n++] = bytes[i];
    if (n == 0)
        word[n++] = 'x';
    word[n] = '\0';
    free(bytes);
}

static void check_made(struct feed *feed)
{
    static const char *const months[] = { "Jan", "Feb", "Mar", "Apr", "May", "Jun",
                                          "Jul", "Aug", "Sep", "Oct", "Nov", "Dec" };
    char client[64], user[64], method[64], path[64], query[64], line[600], iso[64];
    const int year = (int)feed_between(feed, 1970, 2199), month = (int)feed_between(feed, 1, 12);
    const int day = (int)feed_between(feed, 1, 28), hour = (int)feed_between(feed, 0, 23);
    const int minute = (int)feed_between(feed, 0, 59), second = (int)feed_between(feed, 0, 59);
    feed_host(feed, client);
    feed_word(feed, " \t[.:", user); /* no address: with one there, what stands before it would be a virtual host */
    feed_word(feed, " \"", method);
    feed_word(feed, " \"?", path);
    feed_word(feed, " \"", query);
    snprintf(line, sizeof line, "%s - %s [%02d/%s/%d:%02d:%02d:%02d +0000] \"%s /%s?%s HTTP/1.1\" 200 %d \"r\" \"a\"",
             client, user, day, months[month - 1], year, hour, minute, second, method, path, query,
             (int)feed_byte(feed));
    snprintf(iso, sizeof iso, "%d-%02d-%02dT%02d:%02d:%02dZ", year, month, day, hour, minute, second);
    const struct span parts[] = {
        [CLF_CLIENT] = span_of(client), [CLF_USER] = span_of(user), [CLF_METHOD] = span_of(method)
    };
    static const enum clf_key keys[] = { CLF_CLIENT, CLF_USER, CLF_METHOD, CLF_PATH };
    int64_t expected_us, time_us;
    const char *wrong;
    fuzz_must(time_read(span_of(iso), TIME_MICROSECONDS, &expected_us, &wrong), "%s is a time", iso);
    for (int i = 0; i < 4; i++) {
        struct span key;
        struct fault fault;
        fuzz_must(clf_read(span_of(line), keys[i], &time_us, &key, &fault), "%s: %s", line, fault.text);
        fuzz_must(time_us == expected_us, "%s is at %s", line, iso);
        if (keys[i] == CLF_PATH)
            fuzz_must(key.len == strlen(path) + 1 && key.data[0] == '/' && memcmp(key.data + 1, path, key.len - 1) == 0,
                      "%s: the path", line);
        else
            fuzz_must(key.len == parts[keys[i]].len && memcmp(key.data, parts[keys[i]].data, key.len) == 0,
                      "%s: the key is \"%s\"", line, parts[keys[i]].data);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    check_line((struct span){ (const char *)data, size });
    check_formats((struct span){ (const char *)data, size });
    check_record((struct span){ (const char *)data, size }, record_json);
    check_record((struct span){ (const char *)data, size }, record_logfmt);
    struct feed feed = feed_of(data, size);
    check_made(&feed);
    return 0;
}
