/* unwrap.c - what stands around the lines that a server has written. */
#include "cli/replay/input/unwrap.h"

#include <string.h>

static bool contains(struct span line, const char *text)
{
    return memmem(line.data, line.len, text, strlen(text)) != NULL;
}

bool unwrap_is_docker(struct span line)
{
    static const char begin[] = "{\"log\":\"";
    line = span_trim(line);
    return line.len > sizeof begin && memcmp(line.data, begin, sizeof begin - 1) == 0 &&
           contains(line, "\"stream\":\"") && contains(line, "\"time\":\"");
}

bool unwrap_docker(struct json_lines *json, struct span line, struct span *out_line, struct span *out_time,
                   struct fault *fault)
{
    if (!json_lines_parse(json, span_trim(line), fault))
        return false;
    if (!json_lines_value(json, "log", out_line))
        return fault_say(fault, "has no field 'log', as other lines of Docker do");
    if (!json_lines_value(json, "time", out_time))
        *out_time = span_of("");
    while (out_line->len && (out_line->data[out_line->len - 1] == '\n' || out_line->data[out_line->len - 1] == '\r'))
        out_line->len--;
    return true;
}

struct span unwrap_object(struct span line, struct span *out_time)
{
    line = span_trim(line);
    *out_time = span_of("");
    if (line.len == 0 || line.data[0] == '{')
        return line;
    if (line.data[line.len - 1] != '}')
        return span_of("");
    size_t at = 2;
    while (at < line.len && (line.data[at] != '{' || (line.data[at - 1] != ' ' && line.data[at - 1] != '\t') ||
                             line.data[at - 2] == ',')) /* a field of CSV */
        at++;
    const size_t tab = span_find(line, '\t'), space = span_find(line, ' ');
    *out_time = span_slice(line, 0, tab < at ? tab : space < at ? space : 0);
    return span_slice(line, at, line.len);
}

bool unwrap_is_caddy_request(struct span line)
{
    return contains(line, "\"msg\":\"handled request\"") || contains(line, "\thandled request\t");
}

bool unwrap_is_caddy_other(struct span line)
{
    int64_t time_us;
    const char *wrong;
    const struct span time = span_slice(line, 0, span_find(line, '\t'));
    return !unwrap_is_caddy_request(line) &&
           (contains(line, "\"level\":\"") ||
            (time.len < line.len && time_read(time, TIME_MICROSECONDS, &time_us, &wrong)));
}
