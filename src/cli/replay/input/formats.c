/* formats.c - the log formats that have a name, and reading a line of one. */
#include "cli/replay/input/formats.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <weir/weir.h>

#include "cli/replay/input/format_table.h"

#define FIRST_YEAR 2000 /* of stamps without a year: a leap year, so that 29 February exists */

bool format_compile(struct format *format, const struct table_prefix *prefix, struct fault *fault)
{
    struct span before = span_of(prefix->text);
    format->layout_count = 0;
    format->last_time_len = 0;
    format->prefix = prefix->name;
    for (size_t i = 0; i < FORMATS_MAX_TEXTS && format->texts[i]; i++, format->layout_count++)
        if (!layout_compile(&format->layouts[i], before, span_of(format->texts[i]), fault))
            return false;
    return !format->has_others || layout_compile(&format->others, before, span_of("$anything"), fault);
}

bool format_named(struct format *format, const char *name)
{
    struct fault fault;
    for (const struct table_format *row = FORMAT_TABLE; row->name; row++)
        if (strcmp(row->name, name) == 0) {
            *format = (struct format){ .name = row->name, .texts = row->texts, .year = FIRST_YEAR };
            format->has_others = row->has_others;
            format->is_w3c = strcmp(name, "w3c") == 0;
            return format_compile(format, &FORMAT_PREFIXES[row->has_others], &fault);
        }
    return false;
}

bool format_text(struct format *format, const char *text, struct fault *fault)
{
    *format = (struct format){ .name = "--log-format", .own_texts = { text, NULL }, .year = FIRST_YEAR };
    format->texts = format->own_texts;
    return format_compile(format, &FORMAT_PREFIXES[0], fault);
}

void format_free(struct format *format)
{
    free(format->unquoted);
    format->unquoted = NULL;
}

bool format_lacks_year(const struct format *format)
{
    return format->layout_count && format->layouts[0].time < LAYOUT_MAX_FIELDS &&
           format->layouts[0].fields[format->layouts[0].time].kind == LAYOUT_STAMP;
}

/* Remove the quotation marks around a line. False if there are none, or memory is out. */
static bool line_unquote(struct format *format, struct span *line)
{
    if (line->len < 2 || line->data[0] != '"' || line->data[line->len - 1] != '"')
        return false;
    *line = span_slice(*line, 1, line->len - 1);
    if (format->quotes == QUOTES_BARE)
        return true;
    if (format->unquoted_size < line->len) {
        char *grown = realloc(format->unquoted, line->len);
        if (!grown)
            return false;
        format->unquoted = grown;
        format->unquoted_size = line->len;
    }
    size_t len = 0;
    char escape = format->quotes == QUOTES_DOUBLED ? '"' : '\\';
    for (size_t i = 0; i < line->len; i++) {
        if (line->data[i] == escape && i + 1 < line->len && (line->data[i + 1] == '"' || line->data[i + 1] == '\\'))
            i++;
        format->unquoted[len++] = line->data[i];
    }
    *line = (struct span){ format->unquoted, len };
    return true;
}

/* Write a stamp such as "Nov 10 06:00:00" as a date of an access log, with the current year. False: not a stamp. */
static bool stamp_date(struct format *format, struct span stamp, char *text, size_t size)
{
    static const char months[] = "JanFebMarAprMayJunJulAugSepOctNovDec";
    int month = 0;
    for (int i = 0; i < 12; i++)
        if (memcmp(stamp.data, months + 3 * (size_t)i, 3) == 0)
            month = i + 1;
    if (!month || stamp.data[3] != ' ' || stamp.data[6] != ' ')
        return false;
    if (format->last_month == 12 && month == 1)
        format->year++;
    if (format->last_month == 1 && month == 12) /* a line that is late */
        format->year--;
    format->last_month = month;
    char day = stamp.data[4] == ' ' ? '0' : stamp.data[4];
    snprintf(text, size, "%c%c/%.3s/%d:%.8s +0000", day, stamp.data[5], stamp.data, format->year, stamp.data + 7);
    return true;
}

static bool format_time(struct format *format, const struct layout_field *field, struct span text, int64_t *out_us,
                        struct fault *fault)
{
    const char *wrong = "is not a time";
    char date[40];
    if (text.len == format->last_time_len && text.len && memcmp(text.data, format->last_time, text.len) == 0) {
        *out_us = format->last_time_us;
        return true;
    }
    struct span read = text;
    bool is_stamp = field->kind == LAYOUT_STAMP;
    if (is_stamp && stamp_date(format, text, date, sizeof date))
        read = span_of(date);
    if (!time_read(read, field->unit, out_us, &wrong))
        return fault && fault_set(fault, "time", text, wrong);
    if (text.len <= sizeof format->last_time) {
        memcpy(format->last_time, text.data, text.len);
        format->last_time_len = text.len;
        format->last_time_us = *out_us;
    }
    return true;
}

/* Take the names of the fields from a line such as "#Fields: date time c-ip". */
static void w3c_fields(struct format *format, struct span line)
{
    static const struct {
        const char *w3c, *text;
    } names[] = { { "c-ip", "$client" },
                  { "cs-username", "$user" },
                  { "cs-uri-stem", "$request_uri" },
                  { "cs-method", "$request_method" },
                  { "sc-status", "$status" },
                  { "date", "$date" },
                  { "time", "$clock" } };
    char text[LAYOUT_MAX_TEXT];
    size_t len = 0;
    struct fault fault;
    line = span_trim(span_slice(line, strlen("#Fields:"), line.len));
    while (line.len && len + 80 < sizeof text) {
        size_t end = 0;
        const char *known = NULL;
        char name[60];
        while (end < line.len && line.data[end] != ' ' && line.data[end] != '\t')
            end++;
        snprintf(name, sizeof name, "%.*s", (int)(end < 50 ? end : 50), line.data);
        for (size_t i = 0; i < sizeof names / sizeof *names; i++)
            if (strcmp(name, names[i].w3c) == 0)
                known = names[i].text;
        for (char *at = name; *at; at++) /* cs(User-Agent) has the name cs_user_agent_ */
            *at = (char)(*at >= 'A' && *at <= 'Z'                                   ? *at | 0x20
                         : (*at >= 'a' && *at <= 'z') || (*at >= '0' && *at <= '9') ? *at
                                                                                    : '_');
        len += (size_t)snprintf(text + len, sizeof text - len, known ? "%s%s" : "%s$%s", len ? " " : "",
                                known ? known : name);
        line = span_trim(span_slice(line, end, line.len));
    }
    format->layout_count = len && layout_compile(&format->layouts[0], span_of(""), span_of(text), &fault) ? 1 : 0;
}

/* Read a line of W3C's extended format. CloudFront separates fields by tabs, other servers by spaces. */
static enum format_line w3c_read(struct format *format, struct span line, struct format_row *out, struct fault *fault)
{
    enum layout_part part;
    size_t date, clock;
    char text[48];
    const char *wrong = "is not a time";
    if (line.len && line.data[0] == '#') {
        if (line.len > 8 && memcmp(line.data, "#Fields:", 8) == 0)
            w3c_fields(format, line);
        return FORMAT_OTHER;
    }
    if (format->layout_count == 0 || !layout_find(&format->layouts[0], "date", &date, &part) ||
        !layout_find(&format->layouts[0], "clock", &clock, &part)) {
        if (fault)
            fault_say(fault, "no line #Fields with date and time stands before it");
        return FORMAT_BAD;
    }
    if (format->unquoted_size < line.len) {
        char *grown = realloc(format->unquoted, line.len);
        if (!grown)
            return FORMAT_BAD;
        format->unquoted = grown;
        format->unquoted_size = line.len;
    }
    for (size_t i = 0; i < line.len; i++)
        format->unquoted[i] = (char)(line.data[i] == '\t' ? ' ' : line.data[i]);
    out->layout = &format->layouts[0];
    if (!layout_split(out->layout, (struct span){ format->unquoted, line.len }, out->values, fault))
        return FORMAT_BAD;
    int date_len = out->values[date].len < 16 ? (int)out->values[date].len : 16;
    int clock_len = out->values[clock].len < 16 ? (int)out->values[clock].len : 16;
    snprintf(text, sizeof text, "%.*sT%.*sZ", date_len, out->values[date].data, clock_len, out->values[clock].data);
    if (time_read(span_of(text), TIME_MICROSECONDS, &out->time_us, &wrong))
        return FORMAT_ROW;
    if (fault)
        fault_set(fault, "time", span_of(text), wrong);
    return FORMAT_BAD;
}

enum format_line format_read(struct format *format, struct span line, struct format_row *out, struct fault *fault)
{
    out->repeat = 1;
    if (format->is_w3c)
        return w3c_read(format, line, out, fault);
    if (format->quotes != QUOTES_NONE && !line_unquote(format, &line)) {
        if (fault)
            fault_say(fault, "does not stand in quotation marks, as other lines do");
        return FORMAT_BAD;
    }
    size_t i = 0;
    while (i < format->layout_count && !layout_split(&format->layouts[i], line, out->values, fault))
        i++;
    if (i == format->layout_count) {
        bool is_other = format->has_others && layout_split(&format->others, line, out->values, fault);
        return is_other ? FORMAT_OTHER : FORMAT_BAD;
    }
    const struct layout *layout = out->layout = &format->layouts[i];
    size_t field;
    enum layout_part part;
    if (format->has_others && layout_find(layout, "repeat", &field, &part) &&
        (!span_number(out->values[field], &out->repeat) || out->repeat < 1 || out->repeat > FORMATS_REPEAT_MAX))
        out->repeat = 1;
    if (layout->time == LAYOUT_MAX_FIELDS) {
        if (fault)
            fault_say(fault, "its format has no time");
        return FORMAT_BAD;
    }
    return format_time(format, &layout->fields[layout->time], out->values[layout->time], &out->time_us, fault)
               ? FORMAT_ROW
               : FORMAT_BAD;
}

bool format_is_likely(struct span line)
{
    for (size_t i = 0; i + 13 < line.len; i++) {
        const char *at = line.data + i;
        if (memcmp(at, " HTTP/1.", 8) == 0 || memcmp(at, " HTTP/2.", 8) == 0)
            return true;
        if (at[0] == '[' && at[3] == '/' && at[7] == '/' && at[12] == ':') /* [01/Jul/1995: */
            return true;
    }
    return false;
}
