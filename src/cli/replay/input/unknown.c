/* unknown.c - the answer to an input that no format fits: see unknown.h. */
#include "cli/replay/input/unknown.h"

#include <stdio.h>
#include <string.h>

#include "cli/cli.h"
#include "cli/replay/input/formats.h"
#include "cli/replay/input/keys.h"

/* Find the first address in a line: the place and length of a word, without brackets and the like around it. */
static bool address_in(struct span line, size_t *out_at, size_t *out_len)
{
    for (size_t at = 0; at < line.len;) {
        static const char bytes[] = "0123456789abcdefABCDEF.:";
        size_t end = at;
        while (end < line.len && line.data[end] && strchr(bytes, line.data[end]))
            end++;
        size_t len = end - at;
        while (len && (line.data[at + len - 1] == ':' || line.data[at + len - 1] == '.'))
            len--;
        if (len >= 3 && key_is_address(span_slice(line, at, at + len)))
            return *out_at = at, *out_len = len, true;
        at = end > at ? end : at + 1;
    }
    return false;
}

/* Find the first time in a line: the longest text of up to five words that is one. */
static bool time_in(struct span line, size_t *out_at, size_t *out_len)
{
    for (size_t at = 0; at < line.len; at++) {
        if (at && !strchr(" [(\"'=|,;\t", line.data[at - 1]))
            continue;
        *out_len = 0;
        for (size_t end = at + 8; end <= line.len && end <= at + 40; end++) {
            int64_t time_us;
            const char *wrong;
            const struct span text = span_slice(line, at, end);
            if (!strchr(" [", line.data[at]) && line.data[end - 1] != ' ' &&
                time_read(text, TIME_BY_SIZE, &time_us, &wrong) && time_is_plausible(time_us))
                *out_len = text.len;
        }
        if (*out_len)
            return *out_at = at, true;
    }
    return false;
}

/* Write a --log-format for a line with an address and a time: words between them are fields that only have to fit. */
static void format_describe(struct span line, size_t time, size_t time_len, size_t client, size_t client_len, char *out,
                            size_t size)
{
    const size_t last = time > client ? time + time_len : client + client_len;
    size_t len = 0;
    for (size_t at = 0; at < last && len + 32 < size;) {
        const char *field = at == time ? "$time_local" : at == client ? "$remote_addr" : NULL;
        size_t end = field ? at + (at == time ? time_len : client_len) : at;
        if (!field && line.data[at] == '"' && at < last) { /* a quoted string without them is a field */
            const size_t close = at + 1 + span_find(span_slice(line, at + 1, line.len), '"');
            if (close < last && !(time > at && time < close) && !(client > at && client < close)) {
                len += (size_t)snprintf(out + len, size - len, "\"$text\"");
                at = close + 1;
                continue;
            }
        }
        if (!field && line.data[at] && strchr(" []()\"',;=<>|", line.data[at])) {
            len += (size_t)snprintf(out + len, size - len, "%c", line.data[at]);
            at++;
            continue;
        }
        if (!field) {
            field = "$word";
            while (end < line.len && end != time && end != client && !strchr(" []()\"',;=<>|", line.data[end]))
                end++;
        }
        len += (size_t)snprintf(out + len, size - len, "%s", field);
        at = end;
    }
    if (last < line.len && len + 2 < size && line.data[last] != ' ' && strchr(")]\"'|;,>", line.data[last]))
        snprintf(out + len, size - len, "%c", line.data[last]);
}

void unknown_complain(const char *name, const struct span *lines, size_t count, const char *format, size_t fits)
{
    char shown[160], nearest[160] = "", text[400] = "";
    if (fits)
        snprintf(nearest, sizeof nearest, "; the nearest is %s, which fits %zu of %zu", format, fits, count);
    complain("%s: no format that weir knows fits its first lines%s", name, nearest);
    size_t best = 0, time, time_len, client, client_len;
    bool has_time = false, has_client = false;
    for (size_t i = 0; i < count && !(has_time && has_client); i++) {
        has_time = time_in(lines[i], &time, &time_len);
        has_client = address_in(lines[i], &client, &client_len) &&
                     !(has_time && client >= time && client < time + time_len);
        best = has_time && has_client ? i : best;
    }
    const struct span line = lines[best];
    span_show(lines[0], shown, sizeof shown);
    fprintf(stderr, "  the first line: %s\n", shown);
    if (best) {
        span_show(line, shown, sizeof shown);
        fprintf(stderr, "  line %zu: %s\n", best + 1, shown);
    }
    has_time = time_in(line, &time, &time_len);
    has_client = address_in(line, &client, &client_len);
    if (has_client)
        fprintf(stderr, "  looks like a client: %s\n", span_shown(span_slice(line, client, client + client_len)).text);
    if (has_time)
        fprintf(stderr, "  looks like a time: %s\n", span_shown(span_slice(line, time, time + time_len)).text);
    if (!has_time || !has_client)
        fprintf(stderr, "  it has no %s that weir recognises\n",
                has_time     ? "client"
                : has_client ? "time"
                             : "time and no client");
    else
        format_describe(line, time, time_len, client, client_len, text, sizeof text);
    fprintf(stderr, "  describe it, for example: weir replay --log-format '%s' %s\n",
            *text ? text : "$time_local $remote_addr", name);
    fprintf(stderr, "  or set --format: csv, tsv, json, %s\n", FORMAT_NAMES);
}
