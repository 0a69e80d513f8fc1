/* format_table.c - the named formats, and finding out which one an input has.
 *
 * Each format is a row here. $client, $ident, $user, $time, $request, $status and the like are weir's names for fields;
 * $word and $number are fields that only have to fit.
 */
#include "cli/replay/input/format_table.h"

#include <stdlib.h>
#include <string.h>

#define COMBINED "$client $ident $user [$time] \"$request\" $status $body_bytes_sent \"$referer\" \"$agent\""
#define COMMON "$client $ident $user [$time] \"$request\" $status $body_bytes_sent"

const struct table_format FORMAT_TABLE[] = {
    { "combined", { COMBINED }, false },
    { "common", { COMMON }, false },
    { "clf", { COMMON }, false }, /* common or combined */
    { "vhost_combined", { "$host " COMBINED }, false },
    { "vhost_common", { "$host " COMMON }, false },
    { "haproxy",
      { "$client_port [$time] $frontend $server $timers $status $bytes $word $word $termination $connections $queues "
        "\"$request\"" },
      false },
    { "alb",
      { "$word $iso $word $client_port $target $word $word $word $status $target_status $number $number \"$request\" "
        "\"$agent\"" },
      false },
    { "istio", /* before envoy, which is lenient enough to fit its lines */
      { "[$time] \"$request\" $status $flags $details $termination \"$failure\" $number $number $number $upstream_time "
        "\"$forwarded\" \"$agent\" \"$id\" \"$authority\" \"$upstream\" $cluster $local $word $client_port $sni $route" },
      false },
    { "envoy",
      { "[$time] \"$request\" $status $flags $number $number $number $upstream_time \"$clients\" \"$agent\" \"$id\" "
        "\"$authority\" \"$upstream\"" },
      false },
    { "sshd",
      { "Failed $method for invalid user $user from $client port $port",
        "Failed $method for $user from $client port $port", "Accepted $method for $user from $client port $port",
        "message repeated $repeat times: [ Failed $method for $user from $client port $port" },
      true },
    { "w3c", { "$word" }, false },
    { NULL, { NULL }, false },
};

const char FORMAT_NAMES[] = "combined, common, vhost_combined, vhost_common, haproxy, alb, envoy, istio, sshd, w3c";

const struct table_prefix FORMAT_PREFIXES[] = {
    { "", "", false },
    { "syslog", "$stamp $word $tag: ", true },
    { "syslog with a priority", "<$priority>$stamp $word $tag: ", true },
    { "syslog of RFC 5424", "<$priority>1 $iso $word $word $word $word $word ", true },
    { "syslog with a full date", "$iso $word $tag: ", true },
    { "container", "$word | ", false },
    { "container runtime", "$iso stdout $word ", false },
    { "container runtime", "$iso stderr $word ", false },
    { NULL, NULL, false },
};

/* Count the lines that the format fits. */
static size_t count_fits(struct format *format, const struct span *lines, size_t count, size_t *out_others)
{
    struct format_row row;
    size_t fits = 0;
    int year = format->year;
    *out_others = 0;
    for (size_t i = 0; i < count; i++) {
        enum format_line kind = format_read(format, lines[i], &row, NULL);
        fits += kind == FORMAT_ROW;
        *out_others += kind == FORMAT_OTHER;
    }
    format->last_month = 0;
    format->year = year;
    return fits;
}

static enum line_quotes quotes_of(const struct span *lines, size_t count, size_t style)
{
    size_t quoted = 0;
    for (size_t i = 0; i < count; i++)
        quoted += lines[i].len > 2 && lines[i].data[0] == '"' && lines[i].data[lines[i].len - 1] == '"';
    return quoted * 2 > count ? (enum line_quotes)style : QUOTES_NONE;
}

/* Try a format behind each prefix, in each style of quotation marks. Return how many lines the best of them fits; if
 * that is more than `least`, `best` becomes it. */
static size_t try_prefixes(struct format *trial, const struct span *lines, size_t count, struct format *best,
                           size_t least)
{
    size_t most = 0;
    for (size_t style = QUOTES_NONE; style <= QUOTES_ESCAPED; style++) {
        trial->quotes = quotes_of(lines, count, style);
        for (size_t i = 0; FORMAT_PREFIXES[i].name && trial->quotes == (enum line_quotes)style && most < count; i++) {
            struct fault fault;
            size_t others;
            if ((trial->has_others && !FORMAT_PREFIXES[i].is_syslog) ||
                !format_compile(trial, &FORMAT_PREFIXES[i], &fault))
                continue;
            size_t fits = count_fits(trial, lines, count, &others);
            fits = fits ? fits + others : 0;
            most = fits > most ? fits : most;
            if (fits <= least)
                continue;
            least = fits;
            format_free(best);
            *best = *trial;
            if (trial->texts == trial->own_texts)
                best->texts = best->own_texts;
            trial->unquoted = NULL;
            trial->unquoted_size = 0;
        }
    }
    return most;
}

/* True if a line names the fields of W3C's format. */
static bool has_fields_line(const struct span *lines, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (lines[i].len > 8 && memcmp(lines[i].data, "#Fields:", 8) == 0)
            return true;
    return false;
}

/* Try all named formats. */
static void try_formats(struct format *trial, const struct span *lines, size_t count, struct format *best,
                        struct format_guess *out)
{
    for (const struct table_format *row = FORMAT_TABLE; row->name && out->fits < count; row++) {
        const char *before = best->name;
        if (strcmp(row->name, "w3c") == 0 || strcmp(row->name, "clf") == 0)
            continue;
        format_free(trial);
        format_named(trial, row->name);
        size_t fits = try_prefixes(trial, lines, count, best, out->fits);
        if (fits > out->fits) {
            out->next = out->fits ? before : NULL;
            out->next_fits = out->fits;
            out->fits = fits;
        } else if (fits > out->next_fits) {
            out->next = row->name;
            out->next_fits = fits;
        }
    }
}

bool format_detect(struct format *format, const struct span *lines, size_t count, struct format_guess *out)
{
    struct format *trial = calloc(1, sizeof *trial);
    *out = (struct format_guess){ 0 };
    if (!trial)
        return false;
    if (format->name && !format->is_w3c) {
        *trial = *format;
        if (format->texts == format->own_texts)
            trial->texts = trial->own_texts;
        out->fits = try_prefixes(trial, lines, count, format, 0);
    } else if (format->is_w3c || has_fields_line(lines, count)) {
        size_t others;
        format_named(format, "w3c");
        out->fits = count_fits(format, lines, count, &others);
        out->fits = out->fits ? out->fits + others : 0;
        format->layout_count = 0; /* reading begins at the first line again */
    } else {
        try_formats(trial, lines, count, format, out);
    }
    format_free(trial);
    free(trial);
    return out->fits > 0;
}
