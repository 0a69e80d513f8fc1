/* watch.c - weir watch, at the control socket of a running process. */
#include "cli/live/live.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <weir/weir.h>

#include "cli/cli.h"
#include "cli/json.h"
#include "cli/times.h"

const char WATCH_HELP[] =
    "Usage: weir watch {--control PATH | --redis URL | --shared FILE} [--keys N] [--every N] [--turns N] [--limit LIMIT]\n"
    "\n"
    "Show at an interval what each limit of a running process (--control) decides, and which keys it denies most; or what\n"
    "weir stats and weir top find in Redis or a shared file. On a terminal this is a table, otherwise a line for each limit.\n"
    "\n" LIVE_CONTROL_HELP
    "      --keys N      how many keys to show (default: 5); 0 needs no option top_keys in the process\n"
    "      --every N     how many seconds apart (default: 1; without --control 2)\n"
    "      --turns N     end after showing N times (default: go on)\n" LIVE_REDIS_HELP(
        "20000") "      --json        print one JSON object each time\n"
                 "  -h, --help        print this text\n"
                 "\n" LIVE_STATUS_HELP;

#define DEFAULT_KEYS 5

struct watch {
    const struct live_options *options;
    int64_t keys;
    bool is_terminal;
    struct live_answer before, now, top;
    int64_t before_us, now_us; /* on CLOCK_MONOTONIC */
};

static int64_t monotonic_us(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * WEIR_SECOND + now.tv_nsec / 1000;
}

/* Return the line of the same limit in the answer before; NULL: there is none. */
static const char *line_before(const struct watch *watch, const char *line)
{
    const struct span name = live_field(line, "name");
    const char *found = watch->before.text ? live_next(&watch->before, NULL, "limit") : NULL;
    while (found) {
        const struct span other = live_field(found, "name");
        if (other.len == name.len && memcmp(other.data, name.data, name.len) == 0)
            break;
        found = live_next(&watch->before, found, "limit");
    }
    return found;
}

/* Return how much a counter has grown in a second, rounded. */
static uint64_t rate_of(const struct watch *watch, const char *line, const char *before, const char *field)
{
    const uint64_t now = live_number(line, field), then = before ? live_number(before, field) : 0;
    const int64_t took_us = watch->now_us - watch->before_us;
    return now <= then ? 0 : ((now - then) * WEIR_SECOND + (uint64_t)took_us / 2) / (uint64_t)took_us;
}

struct rates {
    uint64_t allowed, denied, would_deny, near;
};

static struct rates rates_of(const struct watch *watch, const char *line)
{
    const char *before = line_before(watch, line);
    return (struct rates){ rate_of(watch, line, before, "allowed"), rate_of(watch, line, before, "denied"),
                           rate_of(watch, line, before, "would_deny"), rate_of(watch, line, before, "near") };
}

/* Write a key for people: its bytes, or # and its hash. */
static void key_show(const char *line, char shown[400])
{
    char text[256];
    struct span key = live_field(line, "key");
    const struct span hash = live_field(line, "hash");
    if (key.len == 0 || key.len >= sizeof text)
        snprintf(shown, 400, "#%.398s", span_shown(hash).text);
    else
        span_show(live_decode(text, key), shown, 400);
}

static void show_table(const struct watch *watch, const char *time)
{
    const char *all = live_next(&watch->now, NULL, "limiter");
    if (watch->is_terminal)
        fputs("\033[H\033[2J", stdout); /* to the top left, and clear */
    printf("%s  %" PRIu64 " keys, %" PRIu64 " outages\n\n%10s %10s %12s %8s  limit\n", time, live_number(all, "keys"),
           live_number(all, "outages"), "allowed/s", "denied/s", "would deny/s", "near/s");
    for (const char *line = NULL; (line = live_next(&watch->now, line, "limit"));) {
        const struct rates rates = rates_of(watch, line);
        const struct span name = live_field(line, "name");
        printf("%10" PRIu64 " %10" PRIu64 " %12" PRIu64 " %8" PRIu64 "  %s = %s\n", rates.allowed, rates.denied,
               rates.would_deny, rates.near, span_shown(name).text,
               span_shown(span_of(live_rest(line, "policy"))).text);
    }
    if (watch->keys > 0)
        printf("\n%10s  denied most\n", "denied");
    for (const char *line = NULL; watch->top.text && (line = live_next(&watch->top, line, "key"));) {
        char shown[400];
        const struct span limit = live_field(line, "limit");
        key_show(line, shown);
        printf("%10" PRIu64 "  %s/%s\n", live_number(line, "denied"), span_shown(limit).text, shown);
    }
}

static void show_lines(const struct watch *watch, const char *time)
{
    for (const char *line = NULL; (line = live_next(&watch->now, line, "limit"));) {
        const struct rates rates = rates_of(watch, line);
        const struct span name = live_field(line, "name");
        printf("%s %s allowed %" PRIu64 "/s denied %" PRIu64 "/s would deny %" PRIu64 "/s near %" PRIu64 "/s\n", time,
               span_shown(name).text, rates.allowed, rates.denied, rates.would_deny, rates.near);
    }
    if (!watch->top.text || !live_next(&watch->top, NULL, "key"))
        return;
    printf("%s denied most:", time);
    for (const char *line = NULL; (line = live_next(&watch->top, line, "key"));) {
        char shown[400];
        const struct span limit = live_field(line, "limit");
        key_show(line, shown);
        printf(" %s/%s %" PRIu64, span_shown(limit).text, shown, live_number(line, "denied"));
    }
    putchar('\n');
}

static void show_json(const struct watch *watch, const char *time)
{
    const char *comma = "";
    printf("{\"time\":\"%s\",\"limits\":[", time);
    for (const char *line = NULL; (line = live_next(&watch->now, line, "limit")); comma = ",") {
        const struct rates rates = rates_of(watch, line);
        printf("%s{\"name\":", comma);
        json_put_string(live_field(line, "name"));
        printf(",\"allowed_per_s\":%" PRIu64 ",\"denied_per_s\":%" PRIu64 ",\"would_deny_per_s\":%" PRIu64
               ",\"near_per_s\":%" PRIu64 "}",
               rates.allowed, rates.denied, rates.would_deny, rates.near);
    }
    fputs("],\"top_keys\":[", stdout);
    comma = "";
    for (const char *line = NULL; watch->top.text && (line = live_next(&watch->top, line, "key")); comma = ",") {
        char shown[400];
        key_show(line, shown);
        printf("%s{\"limit\":", comma);
        json_put_string(live_field(line, "limit"));
        fputs(",\"key\":", stdout);
        json_put_string(span_of(shown));
        printf(",\"denied\":%" PRIu64 "}", live_number(line, "denied"));
    }
    puts("]}");
}

/* Ask once; EXIT_OK or EXIT_FAILED after a complaint. */
static int ask(struct watch *watch)
{
    char request[32];
    live_free(&watch->before);
    live_free(&watch->top);
    watch->before = watch->now;
    watch->before_us = watch->now_us;
    int code = live_ask(watch->options->socket, "stats", NULL, &watch->now);
    watch->now_us = monotonic_us();
    snprintf(request, sizeof request, "top %lld", (long long)watch->keys);
    if (code == EXIT_OK && watch->keys > 0)
        code = live_ask(watch->options->socket, request, NULL, &watch->top);
    if (code == EXIT_OK && !live_next(&watch->now, NULL, "limiter")) {
        complain("the answer at %s is not a limiter's", watch->options->socket);
        code = EXIT_FAILED;
    }
    return code;
}

static int watch_run(const struct live_options *options)
{
    struct watch watch = { .options = options, .keys = options->keys < 0 ? DEFAULT_KEYS : options->keys };
    watch.is_terminal = isatty(STDOUT_FILENO) && !options->json;
    int code = ask(&watch);
    for (int64_t turn = 0; code == EXIT_OK && turn != options->turns && !output_failed(); turn++) {
        char text[TIME_TEXT_SIZE];
        sleep((unsigned)(options->every < 0 ? 1 : options->every));
        code = ask(&watch);
        if (code != EXIT_OK)
            break;
        time_print((int64_t)time(NULL) * WEIR_SECOND, text);
        (options->json ? show_json : watch.is_terminal ? show_table : show_lines)(&watch, text);
        fflush(stdout);
    }
    live_free(&watch.before);
    live_free(&watch.now);
    live_free(&watch.top);
    return code;
}

int command_watch(int argc, char **argv)
{
    struct live_options options = { .command = "watch" };
    int code = live_options_read(&options, argc, argv, LIVE_REDIS | LIVE_KEYS | LIVE_TURNS);
    if (code != EXIT_OK)
        return code;
    if (options.wants_help) {
        fputs(WATCH_HELP, stdout);
        return output_finish(EXIT_OK, EXIT_ERROR);
    }
    code = (options.socket ? watch_run : states_watch)(&options);
    return code == EXIT_ERROR ? code : output_finish(code, EXIT_FAILED);
}
