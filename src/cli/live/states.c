/* states.c - weir stats, weir top and weir watch by the states that are in Redis or a shared file now. */
#include <stdio.h>
#include <time.h>
#include <unistd.h>

#include "cli/cli.h"
#include "cli/inspected.h"
#include "cli/live/live.h"
#include "cli/survey/survey.h"
#include "cli/times.h"

#define TOP_KEYS 10
#define WATCH_KEYS 5
#define WATCH_EVERY 2

/* Return how many keys to look at: by default `of_redis`, or a whole shared file, whose size bounds the work. */
static int64_t states_scan(const struct live_options *options, int64_t of_redis)
{
    return options->scan >= 0 ? options->scan : options->store.options.shared ? INT64_MAX : of_redis;
}

/* Connect and look at the keys once; then let `act` go on. Return the exit status. */
static int states_run(const struct live_options *options, size_t top_room, int64_t scan,
                      int (*act)(const struct live_options *options, struct survey *survey))
{
    int code = EXIT_OK;
    struct survey survey = { .inspector = inspected_connect(&options->store, &code),
                             .limit = options->limit,
                             .scan = states_scan(options, scan),
                             .top_room = top_room };
    if (!survey.inspector)
        return code;
    code = survey_open(&survey);
    if (code == EXIT_OK)
        code = survey_take(&survey);
    if (code == EXIT_OK && survey.keys == 0 && !options->json)
        complain("no such key has permits in use");
    if (code == EXIT_OK)
        code = act(options, &survey);
    survey_close(&survey);
    weir_inspect_close(survey.inspector);
    return code;
}

/* ---- weir stats, weir top ---- */

static int print_stats(const struct live_options *options, struct survey *survey)
{
    if (options->json) {
        putchar('{');
        survey_json_limits(survey);
        putchar(',');
        survey_json_rest(survey);
        puts("}");
    } else {
        survey_print_limits(survey);
        survey_print_rest(survey, "");
    }
    return EXIT_OK;
}

int states_stats(const struct live_options *options)
{
    return states_run(options, 0, LIVE_SCAN, print_stats);
}

static int print_top(const struct live_options *options, struct survey *survey)
{
    if (options->json) {
        putchar('{');
        survey_json_top(survey, "keys");
        putchar(',');
        survey_json_rest(survey);
        puts("}");
    } else {
        survey_print_top(survey, "");
        survey_print_rest(survey, "");
    }
    return EXIT_OK;
}

int states_top(const struct live_options *options)
{
    return states_run(options, (size_t)(options->keys < 0 ? TOP_KEYS : options->keys), LIVE_SCAN, print_top);
}

/* ---- weir watch ---- */

static void show_table(const struct survey *survey, const char *time)
{
    fputs("\033[H\033[2J", stdout); /* to the top left, and clear */
    printf("%s  %llu keys\n\n", time, (unsigned long long)survey->keys);
    survey_print_limits(survey);
    if (survey->top_count > 0)
        puts("\nlongest wait, then highest use");
    survey_print_top(survey, "");
    survey_print_rest(survey, "\n");
}

static void show_lines(const struct survey *survey, const char *time)
{
    char before[TIME_TEXT_SIZE + 2];
    snprintf(before, sizeof before, "%s ", time);
    for (size_t i = 0; i < survey->limit_count; i++) {
        const struct survey_limit *row = &survey->limits[i];
        printf("%s%s keys %llu denied %llu near %llu permits %llu\n", before, row->name, (unsigned long long)row->keys,
               (unsigned long long)row->denied, (unsigned long long)row->near, (unsigned long long)row->permits);
    }
    survey_print_top(survey, before);
    survey_print_rest(survey, before);
}

static void show_json(const struct survey *survey, const char *time)
{
    printf("{\"time\":\"%s\",", time);
    survey_json_limits(survey);
    putchar(',');
    survey_json_top(survey, "top_keys");
    putchar(',');
    survey_json_rest(survey);
    puts("}");
}

/* Show the survey repeatedly. If a round fails, for example while a replica takes over, print the error and go on. */
static int watch(const struct live_options *options, struct survey *survey)
{
    const int64_t every = options->every < 0 ? WATCH_EVERY : options->every;
    const bool is_terminal = isatty(STDOUT_FILENO) == 1;
    int code = EXIT_OK;
    for (int64_t turn = 0; turn != options->turns && !output_failed(); turn++) {
        char text[TIME_TEXT_SIZE];
        if (turn > 0) {
            sleep((unsigned)every);
            code = survey_take(survey);
        }
        if (code != EXIT_OK)
            continue;
        time_print((int64_t)time(NULL) * WEIR_SECOND, text);
        (options->json ? show_json : is_terminal ? show_table : show_lines)(survey, text);
        fflush(stdout);
    }
    return code;
}

int states_watch(const struct live_options *options)
{
    return states_run(options, (size_t)(options->keys < 0 ? WATCH_KEYS : options->keys), LIVE_WATCH_SCAN, watch);
}
