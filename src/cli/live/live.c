/* live.c - weir stats, weir top and weir reload, and what weir peek and weir reset do at a control socket. */
#include "cli/live/live.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <weir/weir.h>

#include "cli/cli.h"
#include "cli/inspected.h"
#include "cli/json.h"

#define END_HELP "  -h, --help        print this text\n\n" LIVE_STATUS_HELP

const char STATS_HELP[] =
    "Usage: weir stats {--control PATH | --redis URL | --shared FILE} [--limit LIMIT]\n"
    "\n"
    "Print a line for each limit. A running process (--control) tells what the limit has answered since it started.\n"
    "Redis and a shared file (--redis, --shared) have states, not counters: the line tells how many keys have permits\n"
    "in use now, how many of them are denied, how many have less than a tenth of the limit left, how many permits are in\n"
    "use, and how many keys are under two policies.\n"
    "\n" LIVE_CONTROL_HELP LIVE_REDIS_HELP("1000000") "      --json        print one JSON object\n" END_HELP;

const char TOP_HELP[] =
    "Usage: weir top {--control PATH | --redis URL | --shared FILE} [--keys N] [--limit LIMIT]\n"
    "\n"
    "Print the keys that a running process (--control) denies most; it must have the option top_keys. In Redis or\n"
    "a shared file: the keys that must wait longest for a permit, and after them those that have used most of their limit.\n"
    "\n" LIVE_CONTROL_HELP "      --keys N      how many (default: 10)\n" LIVE_REDIS_HELP(
        "1000000") "      --json        print one JSON object\n" END_HELP;

const char RELOAD_HELP[] = "Usage: weir reload --control PATH\n"
                           "\n"
                           "Have a running process read its policy file again, now. A file with a bad line changes\n"
                           "nothing, and the reason is printed.\n"
                           "\n" LIVE_CONTROL_HELP "      --json        print one JSON object\n"
                           "  -h, --help        print this text\n"
                           "\n"
                           "Exit status: 0 done, 1 nothing answers at the socket, or it answers with an error, 2 wrong "
                           "usage.\n";

/* ---- JSON ---- */

static bool is_among(struct span name, const char *const *texts)
{
    while (*texts && !span_is(name, *texts))
        texts++;
    return *texts;
}

/* True for a number, true or false. Anything else becomes a string, whatever the other side sends. */
static bool is_plain(struct span value)
{
    return span_is(value, "true") || span_is(value, "false") ||
           (value.len > 0 && value.len == strspn(value.data, "-0123456789"));
}

void live_json(const char *line, const char *const *texts)
{
    const char *at = strchr(line, ' ');
    const char *comma = "";
    putchar('{');
    while (at) {
        const struct span name = { at + 1, strcspn(at + 1, "=") };
        const char *value = name.data + name.len + 1;
        const bool is_rest = span_is(name, "policy"); /* has blanks */
        const size_t len = is_rest ? strlen(value) : strcspn(value, " ");
        fputs(comma, stdout);
        json_put_string(name);
        putchar(':');
        if (is_among(name, texts) || !is_plain((struct span){ value, len }))
            json_put_string((struct span){ value, len });
        else
            printf("%.*s", (int)len, value);
        comma = ",";
        at = value[len] ? value + len : NULL;
    }
    putchar('}');
}

static const char *const limit_texts[] = { "name", "policy", NULL };
static const char *const no_texts[] = { NULL };

/* ---- weir stats ---- */

static void print_stats_json(const struct live_answer *answer)
{
    const char *comma = "";
    fputs("{\"limiter\":", stdout);
    live_json(live_next(answer, NULL, "limiter"), no_texts);
    fputs(",\"limits\":[", stdout);
    for (const char *line = NULL; (line = live_next(answer, line, "limit"));) {
        fputs(comma, stdout);
        live_json(line, limit_texts);
        comma = ",";
    }
    puts("]}");
}

static void print_stats(const struct live_answer *answer)
{
    const char *all = live_next(answer, NULL, "limiter");
    printf("%12s %12s %12s %12s %12s  limit\n", "allowed", "denied", "would deny", "near", "fallback");
    for (const char *line = NULL; (line = live_next(answer, line, "limit"));) {
        const struct span name = live_field(line, "name");
        printf("%12" PRIu64 " %12" PRIu64 " %12" PRIu64 " %12" PRIu64 " %12" PRIu64 "  %s = %s\n",
               live_number(line, "allowed"), live_number(line, "denied"), live_number(line, "would_deny"),
               live_number(line, "near"), live_number(line, "fallback"), span_shown(name).text,
               span_shown(span_of(live_rest(line, "policy"))).text);
    }
    printf("%" PRIu64 " keys in %" PRIu64 " bytes, %" PRIu64 " outages, %" PRIu64 " errors, %" PRIu64
           " answers for want of room\n",
           live_number(all, "keys"), live_number(all, "bytes"), live_number(all, "outages"), live_number(all, "errors"),
           live_number(all, "full"));
}

/* Read a command line that may have `parts`, print help if it asks for that, and otherwise do the command's work. */
static int run(struct live_options *options, int argc, char **argv, unsigned parts, const char *help,
               int (*act)(const struct live_options *options))
{
    int code = live_options_read(options, argc, argv, parts);
    if (code != EXIT_OK)
        return code;
    if (options->wants_help) {
        fputs(help, stdout);
        return output_finish(EXIT_OK, EXIT_ERROR);
    }
    code = act(options);
    return code == EXIT_ERROR ? code : output_finish(code, EXIT_FAILED);
}

static int stats(const struct live_options *options)
{
    struct live_answer answer;
    if (!options->socket)
        return states_stats(options);
    int code = live_ask(options->socket, "stats", NULL, &answer);
    if (code == EXIT_OK && !live_next(&answer, NULL, "limiter")) {
        complain("the answer at %s is not a limiter's", options->socket);
        code = EXIT_FAILED;
    }
    if (code == EXIT_OK)
        (options->json ? print_stats_json : print_stats)(&answer);
    live_free(&answer);
    return code;
}

int command_stats(int argc, char **argv)
{
    struct live_options options = { .command = "stats" };
    return run(&options, argc, argv, LIVE_REDIS, STATS_HELP, stats);
}

/* ---- weir top ---- */

static void print_top_key(const char *line, bool json, bool is_first)
{
    char text[256], shown[400], bytes[660];
    const struct span limit = live_field(line, "limit"), hash = live_field(line, "hash");
    struct span key = live_field(line, "key");
    const uint64_t len = live_number(line, "len");
    if (key.len >= sizeof text)
        key.len = 0;
    key = live_decode(text, key);
    if (json) {
        printf("%s{\"limit\":", is_first ? "" : ",");
        json_put_string(limit);
        printf(",\"denied\":%" PRIu64 ",\"error\":%" PRIu64 ",\"hash\":", live_number(line, "denied"),
               live_number(line, "error"));
        json_put_string(hash);
        fputs(",\"key\":", stdout);
        if (len > 0)
            json_put_string(key);
        else
            fputs("null", stdout);
        printf(",\"is_cut\":%s}", len > key.len ? "true" : "false");
        return;
    }
    span_show(key, shown, sizeof shown);
    snprintf(bytes, sizeof bytes, "#%s", span_shown(hash).text);
    printf("%12" PRIu64 " %12" PRIu64 "  %s/%s%s\n", live_number(line, "denied"), live_number(line, "error"),
           span_shown(limit).text, len > 0 ? shown : bytes, len > key.len ? "..." : "");
}

static int top(const struct live_options *options)
{
    struct live_answer answer;
    char request[32];
    if (!options->socket)
        return states_top(options);
    snprintf(request, sizeof request, "top %lld", (long long)(options->keys < 0 ? 10 : options->keys));
    const int code = live_ask(options->socket, request, NULL, &answer);
    if (code == EXIT_OK) {
        bool is_first = true;
        if (options->json)
            fputs("{\"keys\":[", stdout);
        else
            printf("%12s %12s  limit/key, or # and the key's hash\n", "denied", "at most over");
        for (const char *line = NULL; (line = live_next(&answer, line, "key")); is_first = false)
            print_top_key(line, options->json, is_first);
        if (options->json)
            puts("]}");
    }
    live_free(&answer);
    return code;
}

int command_top(int argc, char **argv)
{
    struct live_options options = { .command = "top" };
    return run(&options, argc, argv, LIVE_REDIS | LIVE_KEYS, TOP_HELP, top);
}

/* ---- weir reload ---- */

static int reload(const struct live_options *options)
{
    struct live_answer answer;
    const int code = live_ask(options->socket, "reload", NULL, &answer);
    if (code == EXIT_OK)
        puts(options->json ? "{\"reloaded\":true}" : "the policies are in force");
    live_free(&answer);
    return code;
}

int command_reload(int argc, char **argv)
{
    struct live_options options = { .command = "reload" };
    return run(&options, argc, argv, 0, RELOAD_HELP, reload);
}

/* ---- weir peek and weir reset ---- */

/* Ask about a key; the limit's name must be one word. */
static int ask_key(const char *path, const char *verb, const char *limit, const char *key, struct live_answer *out)
{
    char request[WEIR_MAX_NAME_LEN + 16];
    *out = (struct live_answer){ .text = NULL };
    if (strlen(limit) < 1 || strlen(limit) > WEIR_MAX_NAME_LEN || strpbrk(limit, " \n")) {
        complain("'%s' is not the name of a limit", limit);
        return EXIT_ERROR;
    }
    snprintf(request, sizeof request, "%s %s", verb, limit);
    return live_ask(path, request, key, out);
}

/* Read a number that may be WEIR_NEVER. */
static int64_t signed_number(const char *line, const char *name)
{
    return strtoll(live_rest(line, name), NULL, 10);
}

static void read_state(const char *line, const char *limit, const char *key, struct weir_inspected *out)
{
    struct weir_inspected_state *state = &out->state;
    *out = (struct weir_inspected){ .size = sizeof *out, .found = WEIR_FOUND_STATE, .key = weir_key_text(key) };
    snprintf(out->limit, sizeof out->limit, "%s", limit);
    weir_policy_parse(live_rest(line, "policy"), &state->policy, NULL, 0);
    state->used = signed_number(line, "used");
    state->decision.limit = signed_number(line, "limit");
    state->decision.remaining = signed_number(line, "remaining");
    state->decision.allowed = span_is(live_field(line, "allowed"), "true");
    state->decision.would_deny = span_is(live_field(line, "would_deny"), "true");
    state->decision.retry_after_us = signed_number(line, "retry_after_us");
    state->decision.reset_after_us = signed_number(line, "reset_after_us");
}

int live_peek(const char *path, const char *limit, const char *key, bool json)
{
    struct live_answer answer;
    struct weir_inspected found;
    const int code = ask_key(path, "peek", limit, key, &answer);
    const char *line = code == EXIT_OK ? live_next(&answer, NULL, "state") : NULL;
    if (line) {
        read_state(line, limit, key, &found);
        inspected_peek(&found, json);
    }
    live_free(&answer);
    return code;
}

int live_reset(const char *path, const char *limit, const char *key, bool json)
{
    struct live_answer answer;
    const int code = ask_key(path, "reset", limit, key, &answer);
    if (code == EXIT_OK)
        puts(json ? "{\"reset\":true}" : "the key is forgotten");
    live_free(&answer);
    return code;
}
