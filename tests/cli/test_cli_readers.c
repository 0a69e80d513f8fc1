/* test_cli_readers.c - what weir replay makes of bytes: lines, access logs, CSV, rows. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/cli.h"
#include "cli/replay/input/feed.h"
#include "cli/replay/input/formats.h"
#include "cli/replay/input/keys.h"
#include "cli/replay/input/roles.h"
#include "cli/replay/input/rows.h"
#include "cli/replay/input/sheet.h"
#include "failing_alloc.h"
#include "support.h"

/* The program's complaints end here, for tests to look at. */
static char last_complaint[600];

void complain(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(last_complaint, sizeof last_complaint, format, arguments);
    va_end(arguments);
}

static bool span_equals(struct span span, const void *data, size_t len)
{
    return span.len == len && memcmp(span.data, data, len) == 0;
}

/* ---- Lines ---- */

struct input {
    char path[64];
    struct bytes *bytes;
    struct lines lines;
};

static void input_open(struct input *input, const void *data, size_t len)
{
    strcpy(input->path, "test_cli_readers.XXXXXX");
    int file = mkstemp(input->path);
    ck_assert_int_ge(file, 0);
    ck_assert_int_eq(write(file, data, len), (ssize_t)len);
    close(file);
    input->bytes = bytes_open(input->path);
    ck_assert_ptr_nonnull(input->bytes);
    unlink(input->path);
    lines_start(&input->lines, input->bytes, "input");
}

static void input_close(struct input *input)
{
    lines_free(&input->lines);
    bytes_close(input->bytes);
}

TEST(lines_of_every_length_are_read_unchanged, 10)
{
    static const size_t around = (size_t)1 << 18; /* the first size of the buffer */
    const size_t lengths[] = { 0, 1, around - 2, around - 1, around, around + 1, 0, 3 * around, 5 };
    const size_t count = sizeof lengths / sizeof *lengths;
    char *data = malloc(8 * around);
    size_t len = 0;
    for (size_t i = 0; i < count; i++) {
        memset(data + len, 'a' + (int)i, lengths[i]);
        if (lengths[i] > 2)
            data[len + 1] = '\0';
        len += lengths[i];
        data[len++] = '\n';
    }
    struct input input;
    input_open(&input, data, len - 1); /* the last one lacks its line feed */
    size_t at = 0;
    for (size_t i = 0; i < count; i++) {
        struct span line;
        ck_assert_int_eq(lines_next(&input.lines, &line), 1);
        ck_assert_msg(span_equals(line, data + at, lengths[i]), "line %zu", i + 1);
        ck_assert_int_eq(input.lines.number, (int64_t)i + 1);
        at += lengths[i] + 1;
    }
    struct span none;
    ck_assert_int_eq(lines_next(&input.lines, &none), 0);
    ck_assert_int_eq(lines_next(&input.lines, &none), 0);
    input_close(&input);
    free(data);
}

TEST(a_line_can_be_extended_and_retracted_and_read_again, 10)
{
    static const char data[] = "\xef\xbb\xbf"
                               "a\r\nb\nc";
    CLOSED_BY(input_close) struct input input;
    struct span line;
    input_open(&input, data, sizeof data - 1);
    ck_assert_int_eq(lines_next(&input.lines, &line), 1);
    ck_assert(span_is(line, "a"));
    ck_assert_int_eq(lines_extend(&input.lines, &line), 1);
    ck_assert(span_is(line, "a\r\nb"));
    ck_assert_int_eq(lines_extend(&input.lines, &line), 1);
    ck_assert(span_is(line, "a\r\nb\nc"));
    ck_assert_int_eq(lines_extend(&input.lines, &line), 0);
    lines_retract(&input.lines);
    ck_assert_int_eq(lines_next(&input.lines, &line), 1);
    ck_assert(span_is(line, "b"));
    ck_assert_int_eq(input.lines.number, 2);
    lines_mark(&input.lines);
    ck_assert_int_eq(lines_next(&input.lines, &line), 1);
    ck_assert(span_is(line, "c"));
    lines_rewind(&input.lines);
    ck_assert_int_eq(lines_next(&input.lines, &line), 1);
    ck_assert(span_is(line, "b"));
    ck_assert_int_eq(input.lines.number, 2);
    ck_assert_int_eq(lines_extend(&input.lines, &line), 1);
    ck_assert_int_eq(lines_next(&input.lines, &line), 0);
}

TEST(a_line_is_extended_and_retracted_where_the_buffer_ends, 10)
{
    static const size_t around = (size_t)1 << 18; /* the first size of the buffer */
    char *data = malloc(2 * around);
    memset(data, 'x', 2 * around);
    data[99] = '\n';
    for (size_t second = around - 2; second <= around + 2; second++) { /* where the second line ends */
        struct input input;
        struct span line;
        data[second] = '\n';
        data[second + 10] = '\n';
        input_open(&input, data, second + 11);
        ck_assert_int_eq(lines_next(&input.lines, &line), 1);
        ck_assert_int_eq(lines_next(&input.lines, &line), 1);
        ck_assert(span_equals(line, data + 100, second - 100));
        ck_assert_int_eq(lines_extend(&input.lines, &line), 1);
        ck_assert(span_equals(line, data + 100, second + 10 - 100));
        lines_retract(&input.lines);
        ck_assert_int_eq(lines_next(&input.lines, &line), 1);
        ck_assert(span_is(line, "xxxxxxxxx"));
        ck_assert_int_eq(input.lines.number, 3);
        ck_assert_int_eq(lines_next(&input.lines, &line), 0);
        input_close(&input);
        data[second] = data[second + 10] = 'x';
    }
    free(data);
}

TEST(a_marked_line_is_read_again_wherever_the_buffer_ended, 10)
{
    enum { LINES = 200, MARKED = 50 };
    char *data = malloc(LINES * 10000);
    for (size_t len = 1200; len <= 9200; len += 400) { /* from less than a buffer to many */
        struct input input;
        struct span line;
        for (size_t i = 0; i < LINES; i++) {
            memset(data + i * len, 'a' + (int)i % 26, len - 1);
            data[i * len + len - 1] = '\n';
        }
        input_open(&input, data, LINES * len);
        for (size_t i = 0; i < MARKED; i++)
            ck_assert_int_eq(lines_next(&input.lines, &line), 1);
        lines_mark(&input.lines);
        while (lines_next(&input.lines, &line) == 1)
            ;
        lines_rewind(&input.lines);
        for (size_t i = MARKED - 1; i < LINES; i++) {
            ck_assert_int_eq(lines_next(&input.lines, &line), 1);
            ck_assert_int_eq(input.lines.number, (int64_t)i + 1);
            ck_assert(span_equals(line, data + i * len, len - 1));
        }
        ck_assert_int_eq(lines_next(&input.lines, &line), 0);
        input_close(&input);
    }
    free(data);
}

/* ---- Access logs ---- */

/* Read the time and a field of a line in a named format. */
static bool log_read(const char *name, struct span line, const char *field, int64_t *out_time_us, struct span *out,
                     struct fault *fault)
{
    CLOSED_BY(format_free) struct format format;
    struct format_row row;
    enum layout_part part;
    size_t at;
    ck_assert(format_named(&format, name));
    if (format_read(&format, line, &row, fault) != FORMAT_ROW)
        return false;
    ck_assert_msg(layout_find(row.layout, field, &at, &part), "%s", field);
    *out = layout_part(row.values[at], part);
    *out_time_us = row.time_us;
    return true;
}

static const char *const parts[] = { "client", "path", "user", "method" };

TEST(parts_of_a_request_are_found_in_real_logs, 10)
{
    static const struct {
        const char *line, *client, *user, *method, *path;
    } table[] = {
        { "h - - [01/Jul/1995:00:00:01 -0400] \"GET /a?b HTTP/1.0\" 200 6245", "h", "-", "GET", "/a" },
        { "h - - [01/Jul/1995:00:00:01 -0400] \"GET /a b?c HTTP/1.0\" 200 -", "h", "-", "GET", "/a b" },
        { "h - - [01/Jul/1995:00:00:01 -0400] \"GET /a\" - -", "h", "-", "GET", "/a" },
        { "h - - [01/Jul/1995:00:00:01 -0400] \"-\" 408 0", "h", "-", "-", "-" },
        { "h - - [01/Jul/1995:00:00:01 -0400] \"\" 400 0", "h", "-", "-", "-" },
        { "h - - [01/Jul/1995:00:00:01 -0400] \"GET ?x HTTP/1.1\" 400 0", "h", "-", "GET", "-" },
        { "::1 i a [b] c [01/Jul/1995:00:00:01 -0400] \"GET / HTTP/1.0\" 200 1", NULL, NULL, NULL, NULL },
        { "::1 - a b [01/Jul/1995:00:00:01 -0400] \"G\\\"T \" / HTTP/1.0\" 200 1 \"r\" \"a\"", "::1", "a b", "G\\\"T",
          "\" /" },
        { "h - - [01/Jul/1995:00:00:01 -0400] \"GET /\" 200 1 HTTP/1.0\" 200 1", "h", "-", "GET", "/" },
        { "h - [01/Jul/1995:00:00:01 -0400] \"GET / HTTP/1.0\" 200 1", NULL, NULL, NULL, NULL },
        { "h - - 01/Jul/1995:00:00:01 \"GET / HTTP/1.0\" 200 1", NULL, NULL, NULL, NULL },
        { "h - - [01/Jul/1995:00:00:01 -0400 \"GET / HTTP/1.0\" 200 1", NULL, NULL, NULL, NULL },
        { "h - - [01/Jul/1995:00:00:01 -0400] GET / 200 1", NULL, NULL, NULL, NULL },
        { "h - - [01/Jul/1995:00:00:01 -0400] \"GET / HTTP/1.0\" 20 1", NULL, NULL, NULL, NULL },
        { "h - - [01/Jul/1995:00:00:01 -0400] \"GET / HTTP/1.0\" 200", NULL, NULL, NULL, NULL },
        { "h - - [01/Jul/1995:00:00:01 -0400] \"GET / HTTP/1.0\" 200 x", NULL, NULL, NULL, NULL },
        { "h - - [01/Jul/1995:00:00:01 -0400] \"GET / HTTP/1.0\" 2000 1", NULL, NULL, NULL, NULL },
        { "h - - [01/Jul/1995:00:00:01 -0400] \"GET / HTTP/1.0\"200 1", NULL, NULL, NULL, NULL },
        { "h - - [01/Jul/1995:00:00:01 -0400]x\"GET / HTTP/1.0\" 200 1", NULL, NULL, NULL, NULL },
        { "h - - [01/Jul/1995:00:00:01 -0400] GET / HTTP/1.0 200 1", NULL, NULL, NULL, NULL },
        { "h - - [01/Jul/1995:00:00:01 -0400] \"GET /a b FTTP/1.0\" 200 1", "h", "-", "GET", "/a b FTTP/1.0" },
        { "h - - [01/Jul/1995:00:00:01 -0400]", NULL, NULL, NULL, NULL },
        { "alyssa.p", NULL, NULL, NULL, NULL },
        { " [", NULL, NULL, NULL, NULL },
    };
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        const char *expected[] = { table[i].client, table[i].path, table[i].user, table[i].method };
        for (int key = 0; key < 4; key++) {
            struct span found = span_of("");
            struct fault fault = { "" };
            int64_t time_us = -1;
            bool is_read = log_read("common", span_of(table[i].line), parts[key], &time_us, &found, &fault);
            ck_assert_msg(is_read == (expected[key] != NULL), "%s: %s", table[i].line, fault.text);
            if (!is_read) {
                ck_assert_msg(fault.text[0] != '\0', "%s", table[i].line);
                continue;
            }
            ck_assert_msg(span_is(found, expected[key]), "%s: %.*s", table[i].line, (int)found.len, found.data);
            ck_assert_int_eq(time_us, INT64_C(804571201000000));
        }
    }
}

TEST(the_client_of_a_log_line_is_its_leading_host_or_address, 10)
{
    static const struct {
        const char *begin; /* of a line, up to the date */
        bool is_read;
    } table[] = {
        { "192.0.2.1 - -", true },
        { "2001:db8::7 - ada", true },
        { "::ffff:192.0.2.1 ident ada", true },
        { "fe80::1%eth0 - -", true },
        { "host_1.example.org - -", true },
        { "***.example.org - -", true },
        { "Nov - -", true }, /* a host can have this name */
        { "unix: - -", true },
        { "- - -", true },
        { "192.0.2.1 - ada lovelace", true },
        { "example.org:80 192.0.2.1 - -", false },
        { "[2001:db8::7]:80 192.0.2.1 - -", false },
        { "192.0.2.1:50123 - -", true },
        { "[2001:db8::7]:50123 - -", true },
        { "192.0.2.1, 198.51.100.4 - -", true },
        { "example.org:80 - -", false },
        { "example.org - 192.0.2.1", false }, /* a virtual host and its client */
        { "192.0.2.1 - 192.0.2.1", true },
        { "::1%eth0 - -", true },
        { "192.0.2.1%eth0 - -", false },
        { "\"192.0.2.1 - -", false },
        { "example.org 192.0.2.1 - -", false },
        { "example.org client.example.net - ada", false },
        { "example.org 192.0.2.1 ada", false }, /* without an ident */
        { "Nov 10 06:00:00 web nginx: 192.0.2.1 - -", false },
        { "Nov  3 06:00:00 web nginx: 192.0.2.1 ident ada", false },
        { "<134>1 2026-11-10T06:00:00Z web nginx - - - 192.0.2.1 - -", false },
        { "2026-11-10T06:00:00+00:00 web nginx: 192.0.2.1 - -", false },
        { "web_1 | 192.0.2.1 - -", false },
        { "web - 192.0.2.1 - -", false },
    };
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        for (int key = 0; key < 4; key++) {
            char line[200];
            struct span found;
            struct fault fault = { "" };
            int64_t time_us;
            snprintf(line, sizeof line, "%s [10/Nov/2026:06:00:00 +0000] \"GET / HTTP/1.1\" 200 17", table[i].begin);
            bool is_read = log_read("common", span_of(line), parts[key], &time_us, &found, &fault);
            ck_assert_msg(is_read == table[i].is_read, "%s: %s", line, fault.text);
            ck_assert_msg(is_read || strncmp(fault.text, "client '", 8) == 0, "%s: %s", line, fault.text);
        }
}

TEST(each_named_format_is_read, 10)
{
    static const struct {
        const char *format, *line, *client, *method, *path;
    } table[] = {
        { "combined",
          "192.0.2.1 - ada [10/Nov/2026:06:00:00 +0000] \"GET /a?x HTTP/1.1\" 200 17 \"-\" \"A \\\"b\\\" c\"",
          "192.0.2.1", "GET", "/a" },
        { "vhost_combined",
          "www.example.org:80 2001:db8::7 - - [10/Nov/2026:06:00:00 +0000] \"GET / HTTP/1.1\" 200 17 \"-\" \"A\"",
          "2001:db8::7", "GET", "/" },
        { "haproxy",
          "[2001:db8::7]:33317 [10/Nov/2026:06:00:00.000] http-in static/srv1 10/0/30/69/109 200 2750 - - ---- "
          "1/1/1/1/0 0/0 {1wt.eu} {} \"GET /index.html HTTP/1.1\"",
          "[2001:db8::7]", "GET", "/index.html" },
        { "alb",
          "h2 2026-11-10T06:00:00.000000Z app/lb/50dc6c495c0c9188 192.0.2.1:2817 10.0.0.1:80 0.000 0.001 0.000 200 200 "
          "34 366 \"GET https://www.example.com:443/a/b?c HTTP/2.0\" \"curl/7.46.0\" - - arn:aws:x",
          "192.0.2.1", "GET", "/a/b" },
        { "alb",
          "http 2026-11-10T06:00:00.000000Z app/lb/50dc6c495c0c9188 192.0.2.1:2817 - -1 -1 -1 503 - 34 366 "
          "\"GET http://www.example.com:80/ HTTP/1.1\" \"curl\"",
          "192.0.2.1", "GET", "/" },
        { "envoy",
          "[2026-11-10T06:00:00.000Z] \"POST /api HTTP/2\" 200 - 0 13 5 4 \"198.51.100.9, 192.0.2.1\" \"-\" \"id\" "
          "\"locations\" \"tcp://10.0.2.1:80\"",
          "192.0.2.1", "POST", "/api" },
        { "istio",
          "[2026-11-10T06:00:00.000Z] \"GET /status/418 HTTP/1.1\" 418 - via_upstream - \"-\" 0 135 2 1 \"-\" \"curl\" "
          "\"id\" \"httpbin:8000\" \"127.0.0.1:80\" inbound|8000|| 127.0.0.6:53971 10.44.1.23:80 10.44.1.27:46520 sni "
          "default",
          "10.44.1.27", "GET", "/status/418" },
    };
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        const char *expected[] = { table[i].client, table[i].path, NULL, table[i].method };
        for (int key = 0; key < 4; key++) {
            struct span found;
            struct fault fault = { "" };
            int64_t time_us;
            if (!expected[key])
                continue;
            ck_assert_msg(log_read(table[i].format, span_of(table[i].line), parts[key], &time_us, &found, &fault),
                          "%s: %s", table[i].format, fault.text);
            ck_assert_msg(span_is(found, expected[key]), "%s: %.*s", table[i].format, (int)found.len, found.data);
            ck_assert_int_eq(time_us, INT64_C(1794290400000000));
        }
    }
}

TEST(a_log_format_is_compiled_from_its_server_configuration, 10)
{
    static const char line[] = "192.0.2.1 - - [10/Nov/2026:06:00:00 +0000] \"GET / HTTP/1.1\" 200 17 \"key 7\" x";
    static const struct {
        const char *text, *field; /* NULL: the text is refused */
    } table[] = {
        { "log_format main '$remote_addr - $remote_user [$time_local] '\n    '\"$request\" $status $body_bytes_sent '"
          "'\"$http_x_api_key\"';",
          "http_x_api_key" },
        { "log_format main escape=json '$remote_addr - $remote_user [$time_local] \"$request\" $status ${bytes_sent} "
          "\"$http_x_api_key\"';",
          "http_x_api_key" },
        { "LogFormat \"%h %l %u %t \\\"%r\\\" %>s %b \\\"%{X-Api-Key}i\\\"\" keyed", "http_x_api_key" },
        { "%h %l %u %t \\\"%r\\\" %>s %O \\\"%{X-Api-Key}i\\\"", "http_x_api_key" },
        { "%a - %u %t \"%r\" %!200,304s %B \"%{X-Api-Key}i\"", "HTTP_X_API_KEY" },
        { "$remote_addr - $request_id [$time_local] \"$request\" $status $bytes_sent \"$args\"", "args" },
        { "%a %P %L %t \"%r\" %s %b \"%q\"", "args" },
        { "$remote_addr$status", NULL },
        { "no field", NULL },
        { "%h %", NULL },
        { "%h %Q", NULL },
        { "$ $remote_addr", NULL },
        { "${remote_addr", NULL },
        { "", NULL },
    };
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        CLOSED_BY(format_free) struct format format;
        struct fault fault = { "" };
        struct format_row row;
        enum layout_part part;
        size_t field;
        bool is_compiled = format_text(&format, table[i].text, NULL, &fault);
        ck_assert_msg(is_compiled == (table[i].field != NULL), "%s: %s", table[i].text, fault.text);
        ck_assert_msg(is_compiled || fault.text[0], "%s", table[i].text);
        if (!is_compiled)
            continue;
        ck_assert_msg(format_read(&format, span_of(line), &row, &fault) == FORMAT_ROW, "%s: %s", table[i].text,
                      fault.text);
        ck_assert_msg(layout_find(row.layout, table[i].field, &field, &part), "%s", table[i].text);
        ck_assert(span_is(row.values[field], "key 7"));
        ck_assert_int_eq(row.time_us, INT64_C(1794290400000000));
    }
}

/* ---- Keys ---- */

TEST(a_key_is_composed_of_fields_and_address_prefixes, 10)
{
    static const struct {
        const char *text, *first, *second, *key; /* NULL: refused */
    } table[] = {
        { "client", "192.0.2.77", "", "192.0.2.77" },
        { "client/24", "192.0.2.77", "", "192.0.2.0/24" },
        { "client/24", "2001:db8::7", "", "2001:db8::7" },
        { "client/64", "2001:db8:1:2:3:4:5:6", "", "2001:db8:1:2::/64" },
        { "client/64", "192.0.2.77", "", "192.0.2.77" },
        { "client/20/57", "192.0.255.77", "", "192.0.240.0/20" },
        { "client/20/57", "2001:db8:1:ff:3:4:5:6", "", "2001:db8:1:80::/57" },
        { "client/64", "fe80::1%eth0", "", "fe80::/64" },
        { "client/24", "host.example.org", "", "host.example.org" },
        { "user+path", "ada lovelace", "/a b", "ada%20lovelace /a%20b" },
        { "client/24+path", "192.0.2.77", "/a", "192.0.2.0/24 /a" },
        { "a/b", "x", "", "x" },
        { "client", "192.0.2.77:40001", "", "192.0.2.77" },
        { "client", "[2001:db8::7]:40001", "", "2001:db8::7" },
        { "client", "[2001:db8::7]", "", "2001:db8::7" },
        { "client", "2001:0DB8:0:0::7", "", "2001:db8::7" },
        { "client", "::ffff:192.0.2.77", "", "192.0.2.77" },
        { "client/24/64", "::ffff:192.0.2.77", "", "192.0.2.0/24" },
        { "client/24", "[::ffff:192.0.2.77]:80", "", "192.0.2.0/24" },
        { "client", "fe80::1%eth0", "", "fe80::1" },
        { "client", "192.0.2.7, 198.51.100.3", "", "192.0.2.7" },
        { "client#2", "192.0.2.7, 198.51.100.3:80", "", "198.51.100.3" },
        { "client#-1", "192.0.2.7, 198.51.100.3,203.0.113.5", "", "203.0.113.5" },
        { "client#-2/24", "192.0.2.7, 198.51.100.3,203.0.113.5", "", "198.51.100.0/24" },
        { "client#3", "192.0.2.7, 198.51.100.3", "", "" },
        { "client#-3", "192.0.2.7, 198.51.100.3", "", "" },
        { "client", "ada, bob", "", "ada, bob" },
        { "client", "host.example.org:80", "", "host.example.org:80" },
        { "client", "300.0.2.77:80", "", "300.0.2.77:80" },
        { "client#0", NULL, NULL, NULL },
        { "client#x", NULL, NULL, NULL },
        { "client/0", NULL, NULL, NULL },
        { "client/129", NULL, NULL, NULL },
        { "client/33/64", NULL, NULL, NULL },
        { "client/24/", NULL, NULL, NULL },
        { "a+", NULL, NULL, NULL },
        { "a+b+c+d+e", NULL, NULL, NULL },
    };
    struct key_buffer buffer = { 0 };
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        struct key_spec spec;
        struct fault fault = { "" };
        struct span key;
        ck_assert_msg(key_spec_read(&spec, table[i].text, &fault) == (table[i].key != NULL), "%s: %s", table[i].text,
                      fault.text);
        ck_assert_msg(table[i].key || fault.text[0], "%s", table[i].text);
        if (!table[i].key)
            continue;
        const struct span values[] = { span_of(table[i].first), span_of(table[i].second) };
        for (size_t j = 0; j < spec.count; j++)
            spec.parts[j].field = j;
        ck_assert(key_make(&spec, values, &buffer, &key));
        ck_assert_msg(span_is(key, table[i].key), "%s: %.*s", table[i].text, (int)key.len, key.data);
    }
    free(buffer.bytes);
}

/* ---- Tables ---- */

/* A table of commas that is being read, and the record of its current row. */
struct csv {
    struct input input;
    struct sheet sheet;
    struct record record;
};

static struct csv *csv_open(const void *data, size_t len, const char *asked)
{
    struct csv *csv = calloc(1, sizeof *csv);
    csv->sheet.separator = ',';
    if (asked) {
        csv->sheet.asked[csv->sheet.asked_count++] = asked;
        csv->sheet.asked_time = strcmp(asked, "1") == 0 ? asked : NULL;
    }
    input_open(&csv->input, data, len);
    return csv;
}

static int csv_begin(struct csv *csv)
{
    struct span line;
    ck_assert_int_eq(lines_next(&csv->input.lines, &line), 1);
    return sheet_begin(&csv->sheet, &csv->record, &csv->input.lines, line);
}

/* Read the next row: as sheet_read(), or 3 at the end. */
static int csv_next(struct csv *csv, struct fault *fault)
{
    struct span line;
    fault->text[0] = '\0';
    return lines_next(&csv->input.lines, &line) == 1
               ? sheet_read(&csv->sheet, &csv->record, &csv->input.lines, line, fault)
               : 3;
}

static void csv_close(struct csv *csv)
{
    sheet_free(&csv->sheet);
    record_free(&csv->record);
    input_close(&csv->input);
    free(csv);
}

TEST(quoted_keys_of_any_bytes_survive_csv, 30)
{
    static const char alphabet[] = { 'a', '"', ',', '\n', '\r', '\0', ' ', '\\' };
    struct chance chance = chance_make(1);
    for (int round = 0; round < 300; round++) {
        char keys[20][16], data[4096] = "x,key,time_us\n";
        size_t lens[20], len = strlen(data);
        for (size_t i = 0; i < 20; i++) {
            lens[i] = (size_t)chance_between(&chance, 1, 15);
            memcpy(data + len, "y,\"", 3), len += 3;
            for (size_t j = 0; j < lens[i]; j++) {
                keys[i][j] = alphabet[chance_between(&chance, 0, sizeof alphabet - 1)];
                data[len++] = keys[i][j];
                if (keys[i][j] == '"')
                    data[len++] = '"';
            }
            len += (size_t)sprintf(data + len, "\",%zu%s\n", i, chance_one_in(&chance, 2) ? "\r" : "");
        }
        struct csv *csv = csv_open(data, len, NULL);
        struct fault fault;
        ck_assert_int_eq(csv_begin(csv), EXIT_OK);
        ck_assert_uint_eq(sheet_find(&csv->sheet, "KEY"), 1);
        for (size_t i = 0; i < 20; i++) {
            char number[8];
            snprintf(number, sizeof number, "%zu", i);
            ck_assert_msg(csv_next(csv, &fault) == 1, "%s", fault.text);
            ck_assert(span_equals(csv->record.all[1].value, keys[i], lens[i]));
            ck_assert(span_is(csv->record.all[2].value, number));
        }
        ck_assert_int_eq(csv_next(csv, &fault), 3);
        csv_close(csv);
    }
}

TEST(a_csv_header_is_distinguished_from_a_row, 10)
{
    static const struct {
        const char *data, *asked;
        bool has_header;
        size_t skipped;
    } table[] = {
        { "time_us,key,cost", NULL, true, 0 },
        { "COST,Client_IP,sent,ts_MS", NULL, true, 0 },
        { "date,time,ip", NULL, true, 0 },
        { "time", NULL, true, 0 },
        { "a,b,2020", "b", true, 0 },
        { "a,b", "B", true, 0 },
        { "5,k,1", NULL, false, 0 },
        { "x,k,1", NULL, false, 0 },
        { "5,k,1", "2", false, 0 },
        { "time,k", "who", true, 0 },
        { "when,who", NULL, true, 0 },
        { "when,who,n\n5,a,1", NULL, true, 0 },
        { "bad\ntime,key", NULL, true, 1 },
        { "too,bad\n\"\n\n7\nkey,time_ms", NULL, true, 3 },
        { "bad\n5,k,1", NULL, false, 0 },
        { "too,bad\n5,k,1", NULL, false, 0 },
        { "bad\n5,k", "2", false, 0 },
        { "7\n5,k", "2", false, 0 },
        { "all,too,bad\n5,k", "1", false, 0 },
        { "when,who\n5,k", "1", true, 0 },
        { "5,k,1\ntime,key,cost", NULL, false, 0 },
    };
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        struct csv *csv = csv_open(table[i].data, strlen(table[i].data), table[i].asked);
        struct span line;
        ck_assert_msg(csv_begin(csv) == EXIT_OK, "%s", table[i].data);
        ck_assert_msg(csv->sheet.has_header == table[i].has_header, "%s", table[i].data);
        ck_assert_msg(csv->sheet.skipped == table[i].skipped, "%s", table[i].data);
        /* Without a header the first row comes again. */
        ck_assert_msg(table[i].has_header ||
                          (lines_next(&csv->input.lines, &line) == 1 && csv->input.lines.number == 1),
                      "%s", table[i].data);
        csv_close(csv);
    }
}

TEST(random_input_is_read_or_refused_and_no_line_is_skipped, 30)
{
    static const char alphabet[] = "0123456789,,,\"\"\n\n\r[]/ :-+.aZ\\\0?HTTP{}";
    struct chance chance = chance_make(2);
    struct record *record = calloc(1, sizeof *record);
    for (int round = 0; round < 2000; round++) {
        char data[600];
        size_t len = (size_t)chance_between(&chance, 1, sizeof data), feeds = 0;
        for (size_t i = 0; i < len; i++) {
            data[i] = alphabet[chance_between(&chance, 0, sizeof alphabet - 2)];
            feeds += data[i] == '\n' && i + 1 < len;
        }
        struct csv *csv = csv_open(data, len, chance_one_in(&chance, 2) ? "1" : NULL);
        if (csv_begin(csv) == EXIT_OK) {
            struct fault fault;
            int result;
            while ((result = csv_next(csv, &fault)) != 3) {
                struct span key;
                int64_t time_us;
                ck_assert(result == 1 || fault.text[0]);
                fault.text[0] = '\0';
                ck_assert(record_json(record, span_of("{") /* never a whole object */, &fault) == false);
                ck_assert(log_read("common", csv->record.count ? csv->record.all[0].value : span_of(""), "path",
                                   &time_us, &key, &fault) ||
                          fault.text[0]);
            }
            ck_assert_int_eq(csv->input.lines.last_number, (int64_t)feeds + 1);
        }
        csv_close(csv);
    }
    record_free(record);
    free(record);
}

/* Say what is wrong with the first bad row after the header. */
static const char *fault_of(const char *data, size_t len, const char *asked)
{
    static struct fault fault;
    struct csv *csv = csv_open(data, len, asked);
    int result;
    ck_assert_int_eq(csv_begin(csv), EXIT_OK);
    while ((result = csv_next(csv, &fault)) == 1)
        ;
    ck_assert_int_ne(result, -1);
    csv_close(csv);
    return fault.text;
}

TEST(a_row_that_is_too_short_or_too_long_is_bad, 10)
{
    ck_assert_str_eq(fault_of("time,a\n2", 8, NULL), "has 1 field, and the header has 2");
    ck_assert_str_eq(fault_of("1,a,1\n2", 7, NULL), "has 1 field, not time_us,key,cost");
    for (size_t fields = RECORD_MAX; fields <= RECORD_MAX + 1; fields++) {
        char data[RECORD_MAX + 8] = "1,a\n2"; /* and empty fields behind the 2 */
        memset(data + 5, ',', fields - 1);
        ck_assert_str_eq(fault_of(data, 4 + fields, "2"), fields > RECORD_MAX ? "has more than 4096 fields" : "");
    }
}

TEST(an_unclosed_quote_spoils_only_one_row_of_a_large_file, 10)
{
    enum { ROWS = 200000 };
    static const char spoiled[] = "0,b\n1,\"a\n";
    char *data = malloc(sizeof spoiled + 8 * ROWS);
    size_t len = sizeof spoiled - 1, good = 0, bad = 0;
    memcpy(data, spoiled, len);
    for (size_t i = 0; i < ROWS; i++)
        len += (size_t)sprintf(data + len, "2,%zu\n", i % 1000);
    ck_assert_uint_gt(len, SHEET_MAX_RECORD);
    struct fault fault, last = { "" };
    struct csv *csv = csv_open(data, len, "2");
    ck_assert_int_eq(csv_begin(csv), EXIT_OK);
    for (int result; (result = csv_next(csv, &fault)) != 3;) {
        good += result == 1;
        bad += result == 0;
        last = result == 0 ? fault : last;
    }
    ck_assert_uint_eq(good, ROWS + 1);
    ck_assert_uint_eq(bad, 1);
    ck_assert_str_eq(last.text, "a quoted field is not closed");
    csv_close(csv);

    /* As the first row it says nothing of the columns, but the rows after it do. */
    csv = csv_open(data + 4, len - 4, "2");
    ck_assert_int_eq(csv_begin(csv), EXIT_OK);
    ck_assert_int_eq(csv_next(csv, &fault), 0);
    ck_assert_str_eq(fault.text, "a quoted field is not closed");
    ck_assert_int_eq(csv_next(csv, &fault), 1);
    csv_close(csv);

    /* As the only row it leaves the columns unknown. */
    last_complaint[0] = '\0';
    csv = csv_open("1,\"a\n", 5, "2");
    ck_assert_int_eq(csv_begin(csv), EXIT_FAILED);
    ck_assert_str_eq(last_complaint, "input: the first rows cannot be read, so the columns are unknown");
    csv_close(csv);
    free(data);
}

/* ---- Records ---- */

TEST(json_is_read_by_its_grammar, 10)
{
    static const struct {
        const char *line, *path, *value; /* no value: the line is refused; no path: it is read */
    } table[] = {
        { "{\"a\":1}", "a", "1" },
        { " { \"a\" : -1.5e+3 , \"b\" : [ ] } ", "a", "-1.5e+3" },
        { "{\"a\":{\"b\":{\"c\":\"x\"}},\"b\":2}", "a.b.c", "x" },
        { "{\"a.b\":\"x\",\"a\":{\"b\":\"y\"}}", "a.b", "x" },
        { "{\"a\":{\"b.c\":\"x\"}}", "a.b.c", "x" },
        { "{\"a\":[\"x\",\"y\"]}", "a", "x" },
        { "{\"a\":[{\"b\":1},\"y\"],\"b\":2}", "b", "2" },
        { "{\"a\":true,\"b\":false}", "b", "false" },
        { "{\"a\":null,\"b\":\"\"}", "b", "" },
        { "{\"\\u0061\\n\":\"\\\"\\\\\\/\\b\\f\\n\\r\\t\"}", "a\n", "\"\\/\b\f\n\r\t" },
        { "{\"a\":\"\\u00e9\\u20ac\\ud83d\\ude00\"}", "a", "\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80" },
        { "{}", NULL, "" },
        { "{\"a\":1} x", NULL, NULL },
        { "{\"a\":1,}", NULL, NULL },
        { "{\"a\" 1}", NULL, NULL },
        { "{\"a\":}", NULL, NULL },
        { "{a:1}", NULL, NULL },
        { "{\"a\":\"x}", NULL, NULL },
        { "{\"a\":\"\t\"}", NULL, NULL },
        { "{\"a\":\"\\x\"}", NULL, NULL },
        { "{\"a\":\"\\u12\"}", NULL, NULL },
        { "{\"a\":\"\\ud83d\"}", NULL, NULL },
        { "{\"a\":\"\\ude00\"}", NULL, NULL },
        { "{\"a\":[1 2]}", NULL, NULL },
        { "{\"a\":[1,2}", NULL, NULL },
        { "{\"a\":nul}", NULL, NULL },
        { "{\"a\":1", NULL, NULL },
        { "[1]", NULL, NULL },
        { "", NULL, NULL },
    };
    struct record *record = calloc(1, sizeof *record);
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        struct fault fault = { "" };
        const bool is_read = record_json(record, span_of(table[i].line), &fault);
        ck_assert_msg(is_read == (table[i].value != NULL), "%s: %s", table[i].line, fault.text);
        ck_assert_msg(is_read || fault.text[0], "%s", table[i].line);
        if (!table[i].path)
            continue;
        const size_t at = record_find(record, table[i].path, 0);
        char path[64];
        ck_assert_msg(at != RECORD_NONE && span_is(record->all[at].value, table[i].value), "%s", table[i].line);
        record_path(record, at, path, sizeof path);
        ck_assert_str_eq(path, table[i].path);
        ck_assert_uint_eq(record_find(record, table[i].path, record->count), at); /* without a hint */
    }
    char deep[3 * RECORD_DEPTH + 8] = "{\"a\":";
    for (size_t depth = RECORD_DEPTH - 1; depth <= RECORD_DEPTH + 1; depth++) {
        struct fault fault;
        memset(deep + 5, '[', depth);
        memset(deep + 5 + depth, ']', depth);
        deep[5 + 2 * depth] = '}';
        ck_assert_msg(record_json(record, (struct span){ deep, 6 + 2 * depth }, &fault) == (depth <= RECORD_DEPTH),
                      "%zu", depth);
    }
    record_free(record);
    free(record);
}

TEST(logfmt_is_pairs_of_a_name_and_a_value, 10)
{
    struct record *record = calloc(1, sizeof *record);
    struct fault fault;
    ck_assert(record_logfmt(record, span_of("t=2026-11-10T06:00:00Z msg=\"a \\\"b\\\" c\" word empty= ip=192.0.2.7"),
                            &fault));
    static const char *const expected[][2] = {
        { "t", "2026-11-10T06:00:00Z" }, { "msg", "a \"b\" c" }, { "empty", "" }, { "ip", "192.0.2.7" }
    };
    ck_assert_uint_eq(record->count, 4);
    for (size_t i = 0; i < 4; i++) {
        ck_assert_uint_eq(record_find(record, expected[i][0], 0), i);
        ck_assert(span_is(record->all[i].value, expected[i][1]));
    }
    ck_assert(!record_logfmt(record, span_of("a=1 b=2"), &fault));
    ck_assert(!record_logfmt(record, span_of("a=1 b=2 c=\"x"), &fault));
    record_free(record);
    free(record);
}

/* ---- Rows ---- */

TEST(equal_keys_share_a_number_and_unequal_ones_do_not, 30)
{
    enum { KEYS = 50000 };
    struct chance chance = chance_make(3);
    struct rows rows;
    rows_start(&rows);
    for (int i = 0; i < 4 * KEYS; i++) {
        char text[40];
        int key = i < KEYS ? i : (int)chance_between(&chance, 0, KEYS - 1);
        size_t len = (size_t)sprintf(text, "%.*s%d", key % 20, "....................", key);
        text[0] = key % 3 ? text[0] : '\0';
        if (key % 3 == 0)
            len += (size_t)sprintf(text + len, "-%d", key); /* its first digit is gone */
        ck_assert(rows_add(&rows, i, (struct span){ text, len }, 1));
        ck_assert_uint_eq(rows.all[i].key, (unsigned)key);
        ck_assert(span_equals(rows_key(&rows, (size_t)key), text, len));
    }
    ck_assert_uint_eq(rows.key_count, KEYS);
    ck_assert(rows.is_sorted);
    rows_free(&rows);
}

TEST(rows_of_equal_times_keep_their_order, 10)
{
    struct chance chance = chance_make(4);
    struct rows rows;
    rows_start(&rows);
    for (int i = 0; i < 20000; i++)
        ck_assert(rows_add(&rows, chance_between(&chance, 0, 300), span_of("k"), 1));
    ck_assert(!rows.is_sorted);
    rows_sort(&rows);
    for (size_t i = 1; i < rows.count; i++) {
        const struct row *a = &rows.all[i - 1], *b = &rows.all[i];
        ck_assert(a->time_us < b->time_us || (a->time_us == b->time_us && a->position < b->position));
    }
    rows_free(&rows);
}

/* ---- The feed ---- */

struct fed { /* the rows that a feed has handed on */
    struct rows *rows;
    size_t count, most_kept;
    uint32_t positions[5000];
};

/* A row's time, its further key and cost, and its duration all follow from its position. */
static int64_t fed_time_us(uint32_t position, int64_t jitter)
{
    return 1000 + position - (int64_t)(position * UINT64_C(7919) % (uint64_t)(jitter + 1));
}

static int feed_check_rows(void *user, const struct row *rows, size_t count)
{
    struct fed *fed = user;
    fed->most_kept = fed->rows->count > fed->most_kept ? fed->rows->count : fed->most_kept;
    for (size_t i = 0; i < count; i++) {
        const struct row *row = &rows[i];
        const struct span key = rows_key(fed->rows, rows_key_of(fed->rows, row, 1));
        char text[16];
        snprintf(text, sizeof text, "k%u", row->position % 97);
        ck_assert(span_is(key, text));
        ck_assert_int_eq(rows_cost_of(fed->rows, row, 1), 1 + row->position % 13);
        ck_assert_int_eq(fed->rows->durations_us[row->place], row->position % 1013);
        fed->positions[fed->count++] = row->position;
    }
    return EXIT_OK;
}

static int feed_all(enum feed_way way, size_t late, int64_t jitter, uint32_t odd, struct fed *fed)
{
    struct rows rows;
    struct feed feed = { way, &rows, .late = late, .take = feed_check_rows, .user = fed, .last_us = INT64_MIN };
    int code = EXIT_OK;
    rows_start(&rows);
    rows.more_keys = rows.more_costs = 1;
    *fed = (struct fed){ .rows = &rows };
    for (uint32_t i = 0; i < 5000 && code == EXIT_OK; i++) {
        char text[16];
        snprintf(text, sizeof text, "k%u", i % 97);
        const struct span key = span_of(text);
        const int64_t cost = 1 + i % 13;
        ck_assert(rows_add(&rows, i == odd ? 0 : fed_time_us(i, jitter), span_of("first"), 1));
        ck_assert(rows_add_more(&rows, &key, &cost) && rows_add_duration(&rows, i % 1013));
        code = feed_added(&feed);
    }
    if (code == EXIT_OK)
        code = feed_end(&feed);
    rows_free(&rows);
    return code;
}

TEST(a_feed_delivers_late_rows_in_sorted_order, 30)
{
    static struct fed along, sorted;
    const int64_t jitters[] = { 0, 1, 10, 63, 64, 200 };
    for (size_t i = 0; i < sizeof jitters / sizeof *jitters; i++) {
        ck_assert_int_eq(feed_all(FEED_SORTED, 64, jitters[i], UINT32_MAX, &sorted), EXIT_OK);
        const int code = feed_all(FEED_ALONG, 64, jitters[i], UINT32_MAX, &along);
        ck_assert_int_eq(code, jitters[i] <= 64 ? EXIT_OK : FEED_AGAIN);
        ck_assert_uint_eq(sorted.count, 5000);
        ck_assert_uint_eq(sorted.most_kept, 5000);
        ck_assert_uint_le(along.most_kept, 128);
        ck_assert(code != EXIT_OK || along.count == 5000);
        /* Rows delivered before a row that is too late need not be in order. */
        ck_assert(code != EXIT_OK || memcmp(along.positions, sorted.positions, sizeof along.positions) == 0);
    }
}

TEST(a_row_that_comes_too_late_stops_a_feed, 10)
{
    static struct fed fed;
    /* Rows are handed on when 128 are kept: row 127 is the last that may come first in time. */
    ck_assert_int_eq(feed_all(FEED_ALONG, 64, 0, 127, &fed), EXIT_OK);
    ck_assert_int_eq(feed_all(FEED_ALONG, 64, 0, 128, &fed), FEED_AGAIN);
    ck_assert_int_eq(feed_all(FEED_SORTED, 64, 0, 4999, &fed), EXIT_OK);
    ck_assert_uint_eq(fed.positions[0], 4999);
    ck_assert_int_eq(feed_all(FEED_AS_READ, 64, 0, 4999, &fed), EXIT_OK);
    ck_assert_uint_eq(fed.positions[4999], 4999);
}

/* ---- Memory ---- */

/* A file with quoted keys, larger than the first buffer, by columns; EXIT_OK, or after a complaint EXIT_FAILED. */
static int read_all(const char *path, struct rows *rows)
{
    static struct record record;
    struct sheet sheet = { .separator = ',', .asked = { "who" }, .asked_count = 1 };
    struct lines lines;
    struct span line;
    struct fault fault;
    struct bytes *bytes = bytes_open(path);
    if (!bytes)
        return EXIT_FAILED;
    record = (struct record){ 0 };
    lines_start(&lines, bytes, "input");
    rows_start(rows);
    int result = lines_next(&lines, &line),
        code = result == 1 ? sheet_begin(&sheet, &record, &lines, line) : EXIT_FAILED;
    const size_t who = code == EXIT_OK ? sheet_find(&sheet, "who") : 0;
    for (int64_t time_us = 0; code == EXIT_OK && (result = lines_next(&lines, &line)) == 1; time_us++) {
        result = sheet_read(&sheet, &record, &lines, line, &fault);
        if (result == 0) {
            complain("input: %s", fault.text);
            result = -1;
        } else if (result == 1 && !rows_add(rows, time_us, record.all[who].value, 1)) {
            complain("input: out of memory");
            result = -1;
        }
        code = result == 1 ? EXIT_OK : EXIT_FAILED;
    }
    if (code == EXIT_OK && result < 0)
        code = EXIT_FAILED;
    struct busiest busiest;
    if (code == EXIT_OK && !rows_busiest_second(rows, &busiest)) {
        complain("input: out of memory");
        code = EXIT_FAILED;
    }
    rows_free(rows);
    record_free(&record);
    sheet_free(&sheet);
    lines_free(&lines);
    bytes_close(bytes);
    return code;
}

TEST(a_failed_allocation_in_a_reader_is_reported_and_leaks_nothing, 30)
{
    char path[] = "test_cli_readers.XXXXXX";
    int file = mkstemp(path);
    FILE *out = fdopen(file, "w");
    ck_assert_ptr_nonnull(out);
    fprintf(out, "time_us,\"who\nis it\",who\n");
    for (int i = 0; i < 1500; i++)
        fprintf(out, "%d,\"a\nb\",\"%0*d \"\"%d\"\"\"\n", i, 100 + i / 10, 7, i);
    ck_assert_int_eq(fclose(out), 0);
    struct rows rows;
    int64_t number = 0;
    int code;
    do {
        alloc_watch(++number, false);
        last_complaint[0] = '\0';
        code = read_all(path, &rows);
        const bool failed = alloc_failed();
        alloc_pause();
        ck_assert_int_eq(alloc_live_blocks(), 0);
        ck_assert_int_eq(code, failed ? EXIT_FAILED : EXIT_OK);
        ck_assert_msg(failed == (strstr(last_complaint, "out of memory") != NULL), "%lld: %s", (long long)number,
                      last_complaint);
    } while (code != EXIT_OK);
    ck_assert_int_gt(number, 8);
    unlink(path);
}
