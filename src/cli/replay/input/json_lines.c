/* json_lines.c - lines that are JSON objects each. */
#include "cli/replay/input/json_lines.h"

#ifdef WEIR_CLI_JANSSON

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

/* Usual names, by the field that they mean: those of Caddy, Traefik, nginx, Envoy, Cloudflare and Google Cloud are
 * among them. */
static const char *const CLIENT[] = { "client",
                                      "client_ip",
                                      "clientip",
                                      "request.client_ip",
                                      "remote_addr",
                                      "remote_ip",
                                      "request.remote_ip",
                                      "ClientHost",
                                      "ClientIP",
                                      "httpRequest.remoteIp",
                                      "ip",
                                      "source_ip",
                                      "downstream_remote_address_without_port",
                                      "host",
                                      NULL };
static const char *const USER[] = { "user", "user_id", "remote_user", "username", "ClientUsername", "account", NULL };
static const char *const METHOD[] = {
    "method", "request.method", "request_method", "RequestMethod", "ClientRequestMethod", "httpRequest.requestMethod",
    NULL
};
static const char *const PATH[] = {
    "path", "request.uri", "uri", "request_uri", "RequestPath", "ClientRequestURI", "httpRequest.requestUrl", NULL
};
static const char *const TIME[] = { "time",       "timestamp",    "@timestamp",
                                    "ts",         "time_iso8601", "time_local",
                                    "start_time", "StartUTC",     "EdgeStartTimestamp",
                                    "datetime",   "date",         "msec",
                                    "time_us",    "time_ms",      "time_s",
                                    "ts_ms",      "ts_us",        "timestamp_ms",
                                    NULL };
static const struct usual {
    const char *name;
    const char *const *names;
} USUAL[] = { { "client", CLIENT }, { "user", USER }, { "method", METHOD }, { "path", PATH } };

bool json_lines_are_known(void)
{
    return true;
}

void json_lines_free(struct json_lines *json)
{
    json_decref(json->tree);
    json->tree = NULL;
}

bool json_lines_parse(struct json_lines *json, struct span line, struct fault *fault)
{
    json_error_t error;
    json_lines_free(json);
    json->number_len = 0;
    json->tree = json_loadb(line.data, line.len, JSON_ALLOW_NUL, &error);
    if (!json->tree)
        return fault_set(fault, "JSON", span_of(error.text), "is what the parser says");
    return json_is_object((json_t *)json->tree) || fault_say(fault, "is JSON, but not an object");
}

/* Find a member by its path. A member whose name is the whole rest of the path comes first. */
static const json_t *member_find(const json_t *object, const char *path)
{
    while (json_is_object(object)) {
        const json_t *whole = json_object_get(object, path);
        const char *point = strchr(path, '.');
        char name[128];
        if (whole || !point || (size_t)(point - path) >= sizeof name)
            return whole;
        memcpy(name, path, (size_t)(point - path));
        name[point - path] = '\0';
        object = json_object_get(object, name);
        path = point + 1;
    }
    return NULL;
}

static bool member_text(struct json_lines *json, const json_t *member, struct span *out)
{
    char *text = json->numbers + json->number_len;
    size_t room = sizeof json->numbers - json->number_len;
    if (json_is_string(member)) {
        *out = (struct span){ json_string_value(member), json_string_length(member) };
        return true;
    }
    if (json_is_boolean(member)) {
        *out = span_of(json_is_true(member) ? "true" : "false");
        return true;
    }
    int len = json_is_integer(member) ? snprintf(text, room, "%" JSON_INTEGER_FORMAT, json_integer_value(member))
              : json_is_real(member)  ? snprintf(text, room, "%.6f", json_real_value(member))
                                      : -1;
    if (len < 0 || (size_t)len >= room)
        return false;
    *out = (struct span){ text, (size_t)len };
    json->number_len += (size_t)len;
    return true;
}

static const char *const *usual_names(const char *name)
{
    for (size_t i = 0; i < sizeof USUAL / sizeof *USUAL; i++)
        if (strcmp(USUAL[i].name, name) == 0)
            return USUAL[i].names;
    return NULL;
}

bool json_lines_value(struct json_lines *json, const char *name, struct span *out)
{
    const json_t *member = member_find(json->tree, name);
    const char *const *names = usual_names(name);
    for (; !member && names && *names; names++)
        member = member_find(json->tree, *names);
    if (!member || !member_text(json, member, out))
        return false;
    if (strcmp(name, "path") == 0)
        *out = span_slice(*out, 0, span_find(*out, '?'));
    return true;
}

bool json_lines_time(struct json_lines *json, const char *name, const enum time_unit *unit, struct span around,
                     int64_t *out_us, struct fault *fault)
{
    const char *const asked[] = { name, NULL };
    const char *wrong;
    struct span text;
    enum time_unit of_name = TIME_MICROSECONDS;
    for (const char *const *names = name ? asked : TIME; *names; names++) {
        const json_t *member = member_find(json->tree, *names);
        if (!member)
            continue;
        if (unit)
            of_name = *unit;
        else if (!time_unit_of_name(span_of(*names), &of_name))
            of_name = TIME_MICROSECONDS;
        if (!member_text(json, member, &text))
            return fault_say(fault, "its time is neither a number nor a string");
        return time_read(text, of_name, out_us, &wrong) || fault_set(fault, "time", text, wrong);
    }
    if (!name && around.len)
        return time_read(around, TIME_MICROSECONDS, out_us, &wrong) || fault_set(fault, "time", around, wrong);
    return name ? fault_say(fault, "has no field %s for the time", name)
                : fault_say(fault, "no field has the usual name of a time; choose one with --time");
}

#else

bool json_lines_are_known(void)
{
    return false;
}

void json_lines_free(struct json_lines *json)
{
    (void)json;
}

bool json_lines_parse(struct json_lines *json, struct span line, struct fault *fault)
{
    (void)json, (void)line;
    return fault_say(fault, "is JSON, but this weir was built without jansson");
}

bool json_lines_value(struct json_lines *json, const char *name, struct span *out)
{
    (void)json, (void)name, (void)out;
    return false;
}

bool json_lines_time(struct json_lines *json, const char *name, const enum time_unit *unit, struct span around,
                     int64_t *out_us, struct fault *fault)
{
    (void)json, (void)name, (void)unit, (void)around, (void)out_us, (void)fault;
    return false;
}

#endif
