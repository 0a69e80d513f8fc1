/* formats.c - the log formats that have a name, and finding out which one an input has. */
#include "cli/replay/input/formats.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/replay/input/keys.h"

#define FIRST_YEAR 2000 /* of stamps without a year: a leap year, so that 29 February exists */

/* ---- The table: one row a format ----
 *
 * $client, $ident, $user, $time, $request, $status and the like are weir's names for fields; $word and $number are
 * fields that only have to fit. */

#define COMBINED "$client $ident $user [$time] \"$request\" $status $body_bytes_sent \"$referer\" \"$agent\""
#define COMMON "$client $ident $user [$time] \"$request\" $status $body_bytes_sent"
#define HAPROXY "$client_and_port [$time] $frontend $server $timers "

static const struct table_format {
    const char *name;
    const char *texts[FORMATS_MAX_TEXTS + 1];
    const char *other;     /* lines that are not requests; $anything counts only behind a prefix of syslog */
    bool is_behind_syslog; /* always */
} TABLE[] = {
    { "combined", { COMBINED }, NULL, false },
    { "common", { COMMON }, NULL, false },
    { "clf", { COMMON }, NULL, false }, /* another name of common */
    { "vhost_combined",
      { "$vhost " COMBINED,
        "$vhost - $client_port [$time] \"$request\" $status $body_bytes_sent \"$referer\" \"$agent\"" },
      NULL,
      false },
    { "vhost_common",
      { "$vhost " COMMON, "$vhost - $client_port [$time] \"$request\" $status $body_bytes_sent" },
      NULL,
      false },
    { "haproxy",
      { HAPROXY "$status $bytes $word $word $termination $connections $queues \"$request\"",
        HAPROXY "$status $bytes $word $word $termination $connections $queues $captured \"$request\"",
        HAPROXY "$bytes_read $termination $connections $queues" },
      "$anything",
      false },
    { "alb",
      { "$word $iso app/$word $client_and_port $target $word $word $word $status $target_status $number $number "
        "\"$request\" \"$agent\"" },
      NULL,
      false },
    { "nlb",
      { "tls $version $iso net/$word $listener $client_and_port $target $number $number $number $number" },
      NULL,
      false },
    { "elb",
      { "$iso $word $client_and_port $target $word $word $word $status $target_status $number $number \"$request\"",
        "$iso $word $client_and_port $target $word $word $word - - $number $number \"$request\"" },
      NULL,
      false },
    { "s3",
      { "$owner $bucket [$time] $client $requester $request_id $operation $key \"$request\" $status $error "
        "$body_bytes_sent" },
      NULL,
      false },
    { "istio", /* before envoy, which is lenient enough to fit its lines */
      { "[$time] \"$request\" $status $flags $details $termination \"$failure\" $number $number $number $upstream_time "
        "\"$forwarded\" \"$agent\" \"$id\" \"$authority\" \"$upstream\" $cluster $local $word $client_and_port $sni $route" },
      NULL,
      false },
    { "envoy",
      { "[$time] \"$request\" $status $flags $number $number $number $upstream_time \"$clients\" \"$agent\" \"$id\" "
        "\"$authority\" \"$upstream\"" },
      NULL,
      false },
    { "squid",
      { "$msec $number $client $code/$status $body_bytes_sent $request_method $request_uri $user $word $word",
        "$msec $number $client $number $code/$status $body_bytes_sent $word $word $word $word $word "
        "$request_method $request_uri" },
      NULL,
      false },
    { "nginx_error",
      { "$time [$level] $word *$number limiting $what, excess: $excess by zone \"$zone\", client: $client, server: ",
        "$time [$level] $word *$number limiting $what by zone \"$zone\", client: $client, server: ",
        "$time [$level] $word *$number delaying $what, excess: $excess, by zone \"$zone\", client: $client, "
        "server: " },
      "$time [$level] $anything",
      false },
    { "uvicorn", /* by default it writes no time, but what stands around the line may have one */
      { "$time $level: $client_and_port - \"$request\" $status",
        "$time - $logger - $level - $client_and_port - \"$request\" $status",
        "$level: $client_and_port - \"$request\" $status" },
      NULL,
      false },
    { "gin", { "[GIN] $time | $status | $word | $client | $request_method " }, NULL, false },
    { "chi", { "$time \"$request\" from $client_and_port - $status " }, NULL, false },
    { "rails", { "Started $request_method \"$request_uri\" for $client at $time" }, "$anything", false },
    { "sshd",
      { "Failed $method for invalid user $user from $client port $port",
        "Failed $method for $user from $client port $port", "Accepted $method for $user from $client port $port",
        "message repeated $repeat times: [ Failed $method for $user from $client port $port" },
      "$anything",
      true },
    { NULL, { NULL }, NULL, false },
};

const char FORMAT_NAMES[] = "combined, common, vhost_combined, vhost_common, haproxy, alb, nlb, elb, s3, envoy, istio, "
                            "squid, nginx_error, uvicorn, gin, chi, rails, sshd, w3c, logfmt";

static const struct table_prefix {
    const char *name, *text;
    bool is_syslog;
} PREFIXES[] = {
    { "", "", false },
    { "syslog", "$stamp $word $tag: ", true },
    { "syslog with a priority", "<$priority>$stamp $word $tag: ", true },
    { "syslog of RFC 5424", "<$priority>1 $iso $word $word $word $word $data ", true },
    { "syslog with a full date", "$iso $word $tag: ", true },
    { "syslog without a host", "$iso $tag: ", true },
    { "Python's logging", "INFO:$word:", false },
    { "a pod's name", "[pod/$word] ", false },
    { "a tag of Ruby's logger", "$word, [$iso $word $level -- : ", true },
    { "container", "$word | ", false },
    { "container runtime", "$iso stdout $word ", false },
    { "container runtime", "$iso stderr $word ", false },
    { NULL, NULL, false },
};

static bool format_compile(struct format *format, const struct table_prefix *prefix, struct fault *fault)
{
    struct span before = span_of(prefix->text);
    format->layout_count = 0;
    format->last_time_len = 0;
    format->prefix = prefix->name;
    format->has_others = format->other && (prefix->is_syslog || strcmp(format->other, "$anything") != 0);
    for (size_t i = 0; i < FORMATS_MAX_TEXTS && format->texts[i]; i++, format->layout_count++) {
        if (!layout_compile(&format->layouts[i], before, span_of(format->texts[i]), fault))
            return false;
        format->layouts[i].time_format = format->time_format;
    }
    return !format->has_others || layout_compile(&format->others, before, span_of(format->other), fault);
}

bool format_named(struct format *format, const char *name)
{
    struct fault fault;
    for (const struct table_format *row = TABLE; row->name; row++)
        if (strcmp(row->name, name) == 0) {
            *format = (struct format){
                .name = row->name, .texts = row->texts, .year = FIRST_YEAR, .around = format->around
            };
            format->other = row->other;
            format->needs_syslog = row->is_behind_syslog;
            return format_compile(format, &PREFIXES[row->is_behind_syslog], &fault);
        }
    return false;
}

bool format_text(struct format *format, const char *text, const char *time_format, struct fault *fault)
{
    *format = (struct format){
        .name = "--log-format", .own_texts = { text, NULL }, .year = FIRST_YEAR, .around = format->around
    };
    format->texts = format->own_texts;
    format->time_format = time_format;
    return format_compile(format, &PREFIXES[0], fault);
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

/* ---- Reading a line ---- */

/* Remove the quotation marks around a line, if there are any. False: out of memory. */
static bool line_unquote(struct format *format, struct span *line)
{
    if (format->quotes == QUOTES_NONE || line->len < 2 || line->data[0] != '"' || line->data[line->len - 1] != '"')
        return true;
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

static bool format_time(struct format *format, const struct layout *layout, struct span text, int64_t *out_us,
                        struct fault *fault)
{
    const struct layout_field *field = &layout->fields[layout->time];
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
    if (!(is_stamp ? time_read(read, field->unit, out_us, &wrong)
                   : layout_time(layout, read, field->unit, out_us, &wrong)))
        return fault && fault_set(fault, "time", text, wrong);
    if (text.len <= sizeof format->last_time) {
        memcpy(format->last_time, text.data, text.len);
        format->last_time_len = text.len;
        format->last_time_us = *out_us;
    }
    return true;
}

enum format_line format_read(struct format *format, struct span line, struct format_row *out, struct fault *fault)
{
    out->repeat = 1;
    if (!line_unquote(format, &line)) {
        if (fault)
            fault_say(fault, "out of memory");
        return FORMAT_BAD;
    }
    size_t i = 0;
    struct fault first; /* the fault by the first text, which is the usual one */
    while (i < format->layout_count && !layout_split(&format->layouts[i], line, out->values,
                                                     fault && i == 0 ? fault
                                                     : fault         ? &first
                                                                     : NULL))
        i++;
    if (i == format->layout_count) {
        bool is_other = format->has_others && layout_split(&format->others, line, out->values, NULL);
        return is_other ? FORMAT_OTHER : FORMAT_BAD;
    }
    const struct layout *layout = out->layout = &format->layouts[i];
    size_t field;
    enum layout_part part;
    if (format->has_others && layout_find(layout, "repeat", &field, &part) &&
        (!span_number(out->values[field], &out->repeat) || out->repeat < 1 || out->repeat > FORMATS_REPEAT_MAX))
        out->repeat = 1;
    if (layout->time == LAYOUT_MAX_FIELDS) {
        const char *wrong;
        if (time_read(format->around, TIME_BY_SIZE, &out->time_us, &wrong))
            return FORMAT_ROW;
        if (fault)
            fault_say(fault, "its format has no time");
        return FORMAT_BAD;
    }
    return format_time(format, layout, out->values[layout->time], &out->time_us, fault) ? FORMAT_ROW : FORMAT_BAD;
}

/* ---- Detection ---- */

/* Return how well the format fits: the lines that fit or are not requests, if any is a request, and then requests. */
static uint64_t score_of(struct format *format, const struct span *lines, size_t count)
{
    struct format_row row;
    uint64_t rows = 0, others = 0;
    size_t addresses = 0;
    int year = format->year;
    for (size_t i = 0; i < count; i++) {
        enum format_line kind = format_read(format, lines[i], &row, NULL);
        rows += kind == FORMAT_ROW;
        others += kind == FORMAT_OTHER;
        /* An address without a port before the client is another client, such as X-Forwarded-For's. */
        addresses += kind == FORMAT_ROW && row.layout->fields[0].kind == LAYOUT_HOST && key_is_address(row.values[0]) &&
                     span_find(row.values[0], ':') == row.values[0].len;
    }
    if (addresses * 2 > rows)
        return 0;
    format->last_month = 0;
    format->year = year;
    return rows ? (rows + others) << 32 | rows : 0;
}

static bool is_quoted(struct span line)
{
    return line.len > 2 && line.data[0] == '"' && line.data[line.len - 1] == '"';
}

/* Try a format behind each prefix, in each style of quotation marks. Return its best score; if that is more than
 * `least`, `best` becomes it. */
static uint64_t try_prefixes(struct format *trial, const struct span *lines, size_t count, struct format *best,
                             uint64_t least)
{
    const uint64_t all = (uint64_t)count << 32 | count;
    uint64_t most = 0;
    size_t quoted = 0;
    for (size_t i = 0; i < count; i++)
        quoted += is_quoted(lines[i]);
    const int styles = quoted * 2 > count ? QUOTES_ESCAPED : QUOTES_NONE;
    for (int style = QUOTES_NONE; style <= styles; style++)
        for (const struct table_prefix *prefix = PREFIXES; prefix->name && most < all; prefix++) {
            struct fault fault;
            trial->quotes = (enum line_quotes)style;
            if ((trial->needs_syslog && !prefix->is_syslog) || !format_compile(trial, prefix, &fault))
                continue;
            const uint64_t score = score_of(trial, lines, count);
            most = score > most ? score : most;
            if (score <= least)
                continue;
            least = score;
            format_free(best);
            *best = *trial;
            if (trial->texts == trial->own_texts)
                best->texts = best->own_texts;
            trial->unquoted = NULL;
            trial->unquoted_size = 0;
        }
    return most;
}

bool format_detect(struct format *format, const struct span *lines, size_t count, struct format_guess *out)
{
    struct format *trial = calloc(1, sizeof *trial);
    uint64_t best = 0, next = 0;
    *out = (struct format_guess){ 0 };
    if (!trial)
        return false;
    trial->around = format->around;
    if (format->name) {
        *trial = *format;
        if (format->texts == format->own_texts)
            trial->texts = trial->own_texts;
        best = try_prefixes(trial, lines, count, format, 0);
    } else {
        for (const struct table_format *row = TABLE; row->name; row++) {
            const char *before = format->name;
            format_free(trial);
            if (strcmp(row->name, "clf") == 0 || !format_named(trial, row->name))
                continue;
            const uint64_t score = try_prefixes(trial, lines, count, format, best);
            if (score > best) {
                out->next = best ? before : NULL;
                next = best;
                best = score;
            } else if (score > next) {
                out->next = row->name;
                next = score;
            }
        }
    }
    out->fits = best >> 32;
    out->next_fits = next >> 32;
    format_free(trial);
    free(trial);
    return out->fits > 0;
}
