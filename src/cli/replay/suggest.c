/* suggest.c - weir suggest: the tightest limits that would have denied few requests and clients of a log. */
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"
#include "cli/json.h"
#include "cli/page/page.h"
#include "cli/replay/input_options.h"
#include "cli/replay/page_suggest.h"
#include "cli/replay/report.h"

const char SUGGEST_HELP[] =
    "Usage: weir suggest [OPTIONS] [FILE]...\n"
    "\n"
    "Find, for each algorithm and period, the tightest limit that would have denied at most so many requests and\n"
    "clients of a log. The library decides each request, so 'weir replay' gives the same counts.\n"
    "\n"
    "What may be denied (both hold):\n"
    "      --deny-clients P   at most so many percent of the clients, each by one denial or more (default 1)\n"
    "      --deny-requests P  at most so many percent of the requests (default: no bound, since a single client\n"
    "                         with many requests would then raise the limit for all)\n"
    "\n"
    "Which limits:\n"
    "      --algorithm NAME   sliding_window, token_bucket, fixed_window or leaky_bucket; may be repeated (default: all)\n"
    "      --period TIME      such as 1s; may be repeated (default: 1s, 1m and 1h)\n"
    "\n" INPUT_HELP "\n"
    "Output:\n"
    "      --top N            how many of the denied clients to list (default 10)\n"
    "      --json             print one JSON object\n"
    "      --html FILE        write the limits with charts as an HTML page\n"
    "  -h, --help             print this text\n"
    "\n"
    "The curve and the clients are those of the first algorithm and the middle period.\n"
    "\n"
    "Exit status: 0 done; 1 the input, a file or the output failed, or fewer than 95 % of the rows fit; 2 wrong usage.\n"
    "\n"
    "Example: weir suggest --deny-clients 0.5 --period 1m access.log\n";

enum option_code { DENY_REQUESTS = 256, DENY_CLIENTS, ALGORITHM, PERIOD, TOP, JSON, HTML };

static int suggest_read_options(struct suggest *suggest, int argc, char **argv, bool *wants_help);
static int suggest_read_option(struct suggest *suggest, int code, const char *value);
static int suggest_check(struct suggest *suggest, int argc, char **argv);
static int suggest_run(struct suggest *suggest);
/* Find out which bound decided, and up to which limit the same number of clients is denied. */
static int suggest_explain(const struct suggest *suggest, struct findings *findings)
{
    const struct found *best = &findings->found[0][findings->period];
    static const struct outcome all = { UINT64_MAX, UINT64_MAX };
    struct outcome below = { 0 }, tried;
    char text[SUGGEST_TEXT_SIZE];
    int code = EXIT_OK;
    findings->same_until = best->limit;
    if (best->limit > 1) {
        suggest_policy(suggest, 0, findings->period, best->limit - 1, text);
        code = search_try(&findings->search, text, all, &below, findings->below_by_key);
    }
    findings->is_by_clients = below.keys > findings->most.keys;
    if (code == EXIT_OK && best->limit > 1)
        findings_name_deciders(findings);
    if (code != EXIT_OK || best->outcome.keys == 0)
        return code;
    const struct outcome fewer = { UINT64_MAX, best->outcome.keys - 1 };
    code = search_limit(&findings->search, suggest->algorithms[0], suggest->periods[findings->period], fewer,
                        &findings->same_until, &tried);
    findings->same_until -= findings->same_until > best->limit;
    return code;
}

static int suggest_find(const struct suggest *suggest, struct findings *findings, struct progress *progress);
static bool suggest_print(const struct suggest *suggest, const struct loader *load, const struct findings *findings);
static void suggest_json(const struct suggest *suggest, const struct findings *findings);

int command_suggest(int argc, char **argv)
{
    struct suggest suggest = { .top = 10, .requests_ppm = 1000000, .clients_ppm = 10000 };
    bool wants_help = false;
    int code = suggest_read_options(&suggest, argc, argv, &wants_help);
    if (code == EXIT_OK && wants_help)
        fputs(SUGGEST_HELP, stdout);
    else if (code == EXIT_OK && (code = suggest_check(&suggest, argc, argv)) == EXIT_OK)
        code = suggest_run(&suggest);
    return output_finish(code, code == EXIT_OK ? EXIT_FAILED : code);
}

int suggest_instead(const struct suggest *asked, int argc, char **argv)
{
    struct suggest suggest = *asked;
    suggest.requests_ppm = 1000000;
    suggest.clients_ppm = 10000;
    const int code = suggest_check(&suggest, argc, argv);
    return code == EXIT_OK ? suggest_run(&suggest) : code;
}

static int suggest_read_options(struct suggest *suggest, int argc, char **argv, bool *wants_help)
{
    static const struct option options[] = {
        { "deny-requests", required_argument, NULL, DENY_REQUESTS },
        { "deny-clients", required_argument, NULL, DENY_CLIENTS },
        { "algorithm", required_argument, NULL, ALGORITHM },
        { "period", required_argument, NULL, PERIOD },
        { "top", required_argument, NULL, TOP },
        { "json", no_argument, NULL, JSON },
        { "html", required_argument, NULL, HTML },
        { "help", no_argument, NULL, 'h' },
        INPUT_OPTIONS,
        { NULL, 0, NULL, 0 },
    };
    int code, result = EXIT_OK;
    opterr = 0;
    while (result == EXIT_OK && (code = getopt_long(argc, argv, ":h", options, NULL)) != -1) {
        if (code == '?' || code == ':')
            return option_error("suggest", code, argv);
        if (code == 'h')
            *wants_help = true;
        else
            result = suggest_read_option(suggest, code, optarg);
    }
    return result;
}

/* Read a percentage from 0 to 100 with up to four decimals, as parts per million. */
static bool percent_read(const char *text, int64_t *out_ppm)
{
    struct span whole = span_of(text), decimals = { "", 0 };
    size_t point = span_find(whole, '.');
    int64_t percent, fraction = 0;
    if (point < whole.len) {
        decimals = span_slice(whole, point + 1, whole.len);
        whole = span_slice(whole, 0, point);
        if (decimals.len > 4 || !span_number(decimals, &fraction))
            return false;
    }
    if (!span_number(whole, &percent) || percent > 100)
        return false;
    for (size_t i = decimals.len; i < 4; i++)
        fraction *= 10;
    *out_ppm = percent * 10000 + fraction;
    return *out_ppm <= 1000000;
}

/* Check an algorithm and a period as the library does; return the period in microseconds, or 0 after a complaint. */
static int64_t period_of(const char *algorithm, const char *period)
{
    char text[SUGGEST_TEXT_SIZE], message[320] = "";
    struct weir_policy policy;
    int len = snprintf(text, sizeof text, "%s limit=1 period=%s", algorithm, period);
    if (len < (int)sizeof text && strcspn(period, " \t") == strlen(period) &&
        strcspn(algorithm, " \t") == strlen(algorithm) &&
        weir_policy_parse(text, &policy, message, sizeof message) == WEIR_OK)
        return policy.period_us;
    usage_error("suggest", "'%s' over '%s': %s", algorithm, period, *message ? message : "is not one word each");
    return 0;
}

static int suggest_read_option(struct suggest *suggest, int code, const char *value)
{
    int64_t number;
    if (input_option_is(code))
        return input_option_read(&suggest->input, "suggest", code, value);
    switch (code) {
    case JSON: suggest->json = true; break;
    case HTML: suggest->html = value; break;
    case DENY_REQUESTS:
    case DENY_CLIENTS:
        if (!percent_read(value, code == DENY_REQUESTS ? &suggest->requests_ppm : &suggest->clients_ppm))
            return usage_error("suggest", "'%s' is not from 0 to 100 percent with up to four decimals", value);
        break;
    case ALGORITHM:
        if (suggest->algorithm_count == MAX_ALGORITHMS)
            return usage_error("suggest", "more than %d algorithms", MAX_ALGORITHMS);
        suggest->algorithms[suggest->algorithm_count++] = value;
        break;
    case PERIOD:
        if (suggest->period_count == MAX_PERIODS)
            return usage_error("suggest", "more than %d periods", MAX_PERIODS);
        suggest->periods[suggest->period_count++] = value;
        break;
    default: /* TOP */
        if (!span_number(span_of(value), &number) || number > ROWS_MAX)
            return usage_error("suggest", "--top '%s' is not a whole number", value);
        suggest->top = (size_t)number;
    }
    return EXIT_OK;
}

static int suggest_check(struct suggest *suggest, int argc, char **argv)
{
    static const char *const algorithms[] = { "sliding_window", "token_bucket", "fixed_window", "leaky_bucket" };
    static const char *const periods[] = { "1s", "1m", "1h" };
    struct load_options *load = &suggest->input.load;
    struct fault fault;
    for (size_t i = 0; i < 4 && (suggest->algorithm_count == 0 || suggest->algorithms[0] == algorithms[0]); i++)
        suggest->algorithms[suggest->algorithm_count++] = algorithms[i];
    for (size_t i = 0; i < 3 && (suggest->period_count == 0 || suggest->periods[0] == periods[0]); i++)
        suggest->periods[suggest->period_count++] = periods[i];
    for (size_t i = 0; i < suggest->algorithm_count; i++)
        for (size_t j = 0; j < suggest->period_count; j++)
            if (!(suggest->periods_us[j] = period_of(suggest->algorithms[i], suggest->periods[j])))
                return EXIT_ERROR;
    load->key_count = load->cost_count = 1;
    load->costs[0] = suggest->input.cost;
    if (!key_spec_read(&load->keys[0], suggest->input.key, &fault))
        return usage_error("suggest", "the key '%s': %s", suggest->input.key, fault.text);
    return input_options_check(&suggest->input, "suggest", argc, argv);
}

static int suggest_run(struct suggest *suggest)
{
    struct rows rows;
    struct progress progress;
    struct loader load = { .rows = &rows, .options = &suggest->input.load, .progress = &progress };
    struct findings findings = { .rows = &rows };
    bool do_fit = false;
    rows_start(&rows);
    progress_start(&progress, true);
    if (suggest->html && !page_check(suggest->html))
        return EXIT_FAILED;
    int code = input_read(&suggest->input, &load, &do_fit);
    int64_t shortest_us = INT64_MAX;
    for (size_t i = 0; i < suggest->period_count; i++)
        shortest_us = suggest->periods_us[i] < shortest_us ? suggest->periods_us[i] : shortest_us;
    if (code == EXIT_OK)
        load_warn_of_seconds(&load, shortest_us);
    if (code == EXIT_OK && rows.count == 0) {
        complain("there are no requests to find a limit for");
        code = EXIT_FAILED;
    }
    if (code == EXIT_OK) {
        rows_sort(&rows);
        code = suggest_find(suggest, &findings, &progress);
    }
    progress_clear(&progress);
    if (code == EXIT_OK && suggest->json)
        suggest_json(suggest, &findings);
    else if (code == EXIT_OK && !suggest_print(suggest, &load, &findings))
        code = out_of_memory();
    if (code == EXIT_OK && suggest->html)
        code = page_suggest_write(suggest, &findings, load.key_name);
    search_end(&findings.search);
    free(findings.requests_by_key);
    free(findings.denied_by_key);
    free(findings.below_by_key);
    rows_free(&rows);
    return code == EXIT_OK && !do_fit ? EXIT_FAILED : code;
}

/* Try limits below and above the one that was found, and count the denials of each key by that one. */
static int suggest_curve(const struct suggest *suggest, struct findings *findings)
{
    static const int percents[CURVE_POINTS] = { 10, 25, 50, 75, 90, 100, 125, 150, 200 };
    static const struct outcome all = { UINT64_MAX, UINT64_MAX };
    uint64_t limit = findings->found[0][findings->period].limit, last = 0;
    int code = EXIT_OK;
    for (size_t i = 0; i < CURVE_POINTS && code == EXIT_OK; i++) {
        struct found *point = &findings->curve[findings->curve_count];
        char text[SUGGEST_TEXT_SIZE];
        point->limit = (limit * (uint64_t)percents[i] + 99) / 100;
        if (point->limit == last || point->limit > WEIR_MAX_PERMITS)
            continue;
        last = point->limit;
        findings->curve_count++;
        suggest_policy(suggest, 0, findings->period, point->limit, text);
        code = search_try(&findings->search, text, all, &point->outcome,
                          last == limit ? findings->denied_by_key : NULL);
    }
    return code;
}

static int suggest_find(const struct suggest *suggest, struct findings *findings, struct progress *progress)
{
    const struct rows *rows = findings->rows;
    size_t done = 0, all = suggest->algorithm_count * suggest->period_count;
    findings->period = suggest->period_count / 2;
    findings->most.denied = (uint64_t)rows->count * (uint64_t)suggest->requests_ppm / 1000000;
    findings->most.keys = (uint64_t)rows->key_count * (uint64_t)suggest->clients_ppm / 1000000;
    findings->requests_by_key = calloc(rows->key_count, sizeof(uint32_t));
    findings->denied_by_key = calloc(rows->key_count, sizeof(uint32_t));
    findings->below_by_key = calloc(rows->key_count, sizeof(uint32_t));
    if (!findings->requests_by_key || !findings->denied_by_key || !findings->below_by_key)
        return out_of_memory();
    for (size_t i = 0; i < rows->count; i++)
        findings->requests_by_key[rows->all[i].key]++;
    int code = search_start(&findings->search, rows);
    for (size_t j = 0; j < suggest->period_count && code == EXIT_OK; j++) {
        search_period(&findings->search, suggest->periods_us[j]);
        for (size_t i = 0; i < suggest->algorithm_count && code == EXIT_OK; i++, done++) {
            struct found *found = &findings->found[i][j];
            progress_show(progress, "trying limits", done, all);
            code = search_limit(&findings->search, suggest->algorithms[i], suggest->periods[j], findings->most,
                                &found->limit, &found->outcome);
        }
        if (code == EXIT_OK && j == findings->period)
            code = suggest_curve(suggest, findings);
        if (code == EXIT_OK && j == findings->period)
            code = suggest_explain(suggest, findings);
    }
    return code;
}

static void print_found(const struct findings *findings, const struct found *found, const char *note)
{
    char requests[TIME_TEXT_SIZE], clients[TIME_TEXT_SIZE];
    report_share(found->outcome.denied, findings->rows->count, requests);
    report_share(found->outcome.keys, findings->rows->key_count, clients);
    printf("%12llu%12llu%10s%12llu%10s%s\n", (unsigned long long)found->limit,
           (unsigned long long)found->outcome.denied, requests, (unsigned long long)found->outcome.keys, clients, note);
}

static void print_deciders(const struct findings *findings, uint64_t below)
{
    printf("\nThe bound on %s decides: limit=%llu would deny more", findings->is_by_clients ? "clients" : "requests",
           (unsigned long long)below);
    for (size_t i = 0; i < findings->deciders_shown; i++)
        printf("%s%s",
               i == 0                             ? ", of "
               : i + 1 == findings->decider_count ? " and "
                                                  : ", ",
               span_shown(rows_key(findings->rows, findings->deciders[i])).text);
    if (findings->decider_count > findings->deciders_shown)
        printf(" and %zu others", findings->decider_count - findings->deciders_shown);
    puts(".");
}

static bool suggest_print(const struct suggest *suggest, const struct loader *load, const struct findings *findings)
{
    static const char header[] = "       limit    requests    denied     clients    denied\n";
    const struct found *best = &findings->found[0][findings->period];
    struct report report = { .rows = findings->rows, .top = suggest->top };
    char text[SUGGEST_TEXT_SIZE], keys[660];
    suggest_policy(suggest, 0, findings->period, best->limit, text);
    printf("%s\n\n", text);
    report_count("requests", findings->rows->count, 0, "");
    snprintf(keys, sizeof keys, "(by %s)",
             load->key_name[0] ? span_shown(span_of(load->key_name)).text : "nothing: all requests share one key");
    report_count("clients", findings->rows->key_count, 0, keys);
    if (suggest->requests_ppm < 1000000)
        report_count("requests to deny", findings->most.denied, 0, "at most");
    report_count("clients to deny", findings->most.keys, 0, "at most");
    if (best->limit > 1)
        print_deciders(findings, best->limit - 1);
    if (best->outcome.keys && findings->same_until > best->limit)
        printf("Every limit from %llu to %llu denies as many clients, %llu; the list below names them.\n",
               (unsigned long long)best->limit, (unsigned long long)findings->same_until,
               (unsigned long long)best->outcome.keys);
    if (findings->most.keys == 0 && suggest->clients_ppm > 0)
        printf("These are too few clients: their share that may be denied is less than one, so nobody may be.\n");
    printf("\nThe tightest limits:\n\n%-16s%-8s%s", "algorithm", "period", header);
    for (size_t i = 0; i < suggest->algorithm_count; i++)
        for (size_t j = 0; j < suggest->period_count; j++) {
            printf("%-16s%-8s", suggest->algorithms[i], suggest->periods[j]);
            print_found(findings, &findings->found[i][j], "");
        }
    printf("\nThe curve of %s over %s:\n\n%s", suggest->algorithms[0], suggest->periods[findings->period], header);
    for (size_t i = 0; i < findings->curve_count; i++)
        print_found(findings, &findings->curve[i], findings->curve[i].limit == best->limit ? "   suggested" : "");
    return report_keys(&report, (struct key_counts){ findings->requests_by_key, findings->denied_by_key });
}

static void json_found(const struct found *found)
{
    printf("\"limit\":%llu,\"denied\":%llu,\"keys_denied\":%llu}", (unsigned long long)found->limit,
           (unsigned long long)found->outcome.denied, (unsigned long long)found->outcome.keys);
}

static void suggest_json(const struct suggest *suggest, const struct findings *findings)
{
    char text[SUGGEST_TEXT_SIZE];
    suggest_policy(suggest, 0, findings->period, findings->found[0][findings->period].limit, text);
    printf("{\"weir\":\"%s\",\"policy\":\"%s\",\"requests\":%zu,\"distinct_keys\":%zu,\"most_denied\":%llu,"
           "\"most_keys_denied\":%llu,\"bound\":\"%s\",\"same_clients_until\":%llu,\"limits\":[",
           weir_version(), text, findings->rows->count, findings->rows->key_count,
           (unsigned long long)findings->most.denied, (unsigned long long)findings->most.keys,
           findings->is_by_clients ? "clients" : "requests", (unsigned long long)findings->same_until);
    for (size_t i = 0; i < suggest->algorithm_count; i++)
        for (size_t j = 0; j < suggest->period_count; j++) {
            suggest_policy(suggest, i, j, findings->found[i][j].limit, text);
            printf("%s{\"policy\":\"%s\",", i + j ? "," : "", text);
            json_found(&findings->found[i][j]);
        }
    fputs("],\"curve\":[", stdout);
    for (size_t i = 0; i < findings->curve_count; i++) {
        fputs(i ? ",{" : "{", stdout);
        json_found(&findings->curve[i]);
    }
    fputs("],\"deciders\":[", stdout);
    for (size_t i = 0; i < findings->deciders_shown; i++) {
        fputs(i ? "," : "", stdout);
        json_put_string(rows_key(findings->rows, findings->deciders[i]));
    }
    printf("],\"decider_count\":%zu}\n", findings->decider_count);
}
