/* suggest.c - weir suggest: the tightest limits that would have denied few requests and clients of a log. */
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"
#include "cli/replay/findings.h"
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
/* ---- Finding ---- */

/* Write a policy as text that the library reads. */
static void suggest_policy(const struct suggest *suggest, size_t algorithm, size_t period, uint64_t limit,
                           char text[SUGGEST_TEXT_SIZE])
{
    snprintf(text, SUGGEST_TEXT_SIZE, "%s limit=%llu period=%s", suggest->algorithms[algorithm],
             (unsigned long long)limit, suggest->periods[period]);
}

/* Find the clients that the next smaller limit would deny more of. */
static void findings_name_deciders(struct findings *findings)
{
    for (size_t key = 0; key < findings->rows->key_count; key++) {
        if (findings->below_by_key[key] <= findings->denied_by_key[key] ||
            (findings->is_by_clients && findings->denied_by_key[key] > 0))
            continue;
        findings->decider_count++;
        size_t at = findings->deciders_shown;
        while (at > 0 && findings->requests_by_key[findings->deciders[at - 1]] < findings->requests_by_key[key])
            at--;
        if (at == DECIDERS_SHOWN)
            continue;
        findings->deciders_shown += findings->deciders_shown < DECIDERS_SHOWN;
        memmove(&findings->deciders[at + 1], &findings->deciders[at],
                (findings->deciders_shown - at - 1) * sizeof findings->deciders[0]);
        findings->deciders[at] = (uint32_t)key;
    }
}

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
static json_t *suggest_document(const struct suggest *suggest, const struct loader *load,
                                const struct findings *findings);
static void suggest_print(const json_t *document);

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
    json_t *document = code == EXIT_OK ? suggest_document(suggest, &load, &findings) : NULL;
    if (code == EXIT_OK && !document)
        code = EXIT_FAILED;
    if (document)
        (suggest->json ? document_print : suggest_print)(document);
    if (document && suggest->html)
        code = page_write(document, suggest->html);
    json_decref(document);
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

/* Add a limit and what it denies. Return the object. */
static json_t *found_document(json_t *object, const struct found *found)
{
    document_add(object, "limit", json_integer((json_int_t)found->limit));
    document_add(object, "denied", json_integer((json_int_t)found->outcome.denied));
    document_add(object, "keys_denied", json_integer((json_int_t)found->outcome.keys));
    return object;
}

static json_t *suggest_document(const struct suggest *suggest, const struct loader *load,
                                const struct findings *findings)
{
    const struct found *best = &findings->found[0][findings->period];
    json_t *limits = json_array(), *curve = json_array(), *deciders = json_array();
    char text[SUGGEST_TEXT_SIZE];
    suggest_policy(suggest, 0, findings->period, best->limit, text);
    json_t *document = json_pack(
        "{s:s,s:s,s:s,s:I,s:I,s:I,s:I,s:s,s:I}", "weir", weir_version(), "report", "suggest", "policy", text,
        "requests", (json_int_t)findings->rows->count, "distinct_keys", (json_int_t)findings->rows->key_count,
        "most_denied", (json_int_t)findings->most.denied, "most_keys_denied", (json_int_t)findings->most.keys, "bound",
        findings->is_by_clients ? "clients" : "requests", "same_clients_until", (json_int_t)findings->same_until);
    document_add(document, "key_field", load->key_name[0] ? document_text(span_of(load->key_name)) : json_null());
    document_add(document, "is_bound_by_requests", json_boolean(suggest->requests_ppm < 1000000));
    document_add(document, "has_too_few_clients", json_boolean(findings->most.keys == 0 && suggest->clients_ppm > 0));
    for (size_t i = 0; i < suggest->algorithm_count; i++)
        for (size_t j = 0; j < suggest->period_count; j++) {
            suggest_policy(suggest, i, j, findings->found[i][j].limit, text);
            json_t *limit = json_pack("{s:s,s:s,s:s}", "policy", text, "algorithm", suggest->algorithms[i], "period",
                                      suggest->periods[j]);
            document_push(limits, found_document(limit, &findings->found[i][j]));
        }
    document_add(document, "limits", limits);
    for (size_t i = 0; i < findings->curve_count; i++)
        document_push(curve, found_document(json_object(), &findings->curve[i]));
    document_add(document, "curve", curve);
    document_add(document, "curve_of",
                 found_document(json_pack("{s:s,s:s}", "algorithm", suggest->algorithms[0], "period",
                                          suggest->periods[findings->period]),
                                best));
    report_add_keys(document, findings->rows, (struct key_counts){ findings->requests_by_key, findings->denied_by_key },
                    suggest->top, NULL);
    for (size_t i = 0; i < findings->deciders_shown; i++)
        document_push(deciders, document_text(rows_key(findings->rows, findings->deciders[i])));
    document_add(document, "deciders", deciders);
    document_add(document, "decider_count", json_integer((json_int_t)findings->decider_count));
    return document_end(document);
}

static void print_found(const json_t *document, const json_t *found, const char *note)
{
    char requests[TIME_TEXT_SIZE], clients[TIME_TEXT_SIZE];
    const uint64_t denied = document_number(found, "denied"), keys = document_number(found, "keys_denied");
    report_share(denied, document_number(document, "requests"), requests);
    report_share(keys, document_number(document, "distinct_keys"), clients);
    printf("%12llu%12llu%10s%12llu%10s%s\n", (unsigned long long)document_number(found, "limit"),
           (unsigned long long)denied, requests, (unsigned long long)keys, clients, note);
}

static void print_deciders(const json_t *document, uint64_t below)
{
    const json_t *deciders = json_object_get(document, "deciders");
    const size_t shown = json_array_size(deciders), count = document_number(document, "decider_count");
    printf("\nThe bound on %s decides: limit=%llu would deny more", document_span(document, "bound").data,
           (unsigned long long)below);
    for (size_t i = 0; i < shown; i++)
        printf("%s%s",
               i == 0           ? ", of "
               : i + 1 == count ? " and "
                                : ", ",
               span_shown(span_of(json_string_value(json_array_get(deciders, i)))).text);
    if (count > shown)
        printf(" and %zu others", count - shown);
    puts(".");
}

static void suggest_print(const json_t *document)
{
    static const char header[] = "       limit    requests    denied     clients    denied\n";
    const json_t *best = json_object_get(document, "curve_of"), *limits = json_object_get(document, "limits");
    const json_t *curve = json_object_get(document, "curve");
    const uint64_t limit = document_number(best, "limit"), until = document_number(document, "same_clients_until");
    const struct span by = document_span(document, "key_field");
    char keys[sizeof(struct shown) + 20];
    printf("%s\n\n", document_span(document, "policy").data);
    report_count("requests", document_number(document, "requests"), 0, "");
    snprintf(keys, sizeof keys, "(by %s)", by.len ? span_shown(by).text : "nothing: all requests share one key");
    report_count("clients", document_number(document, "distinct_keys"), 0, keys);
    if (json_is_true(json_object_get(document, "is_bound_by_requests")))
        report_count("requests to deny", document_number(document, "most_denied"), 0, "at most");
    report_count("clients to deny", document_number(document, "most_keys_denied"), 0, "at most");
    if (limit > 1)
        print_deciders(document, limit - 1);
    if (document_number(best, "keys_denied") && until > limit)
        printf("Every limit from %llu to %llu denies as many clients, %llu; the list below names them.\n",
               (unsigned long long)limit, (unsigned long long)until,
               (unsigned long long)document_number(best, "keys_denied"));
    if (json_is_true(json_object_get(document, "has_too_few_clients")))
        printf("These are too few clients: their share that may be denied is less than one, so nobody may be.\n");
    printf("\nThe tightest limits:\n\n%-16s%-8s%s", "algorithm", "period", header);
    for (size_t i = 0; i < json_array_size(limits); i++) {
        const json_t *found = json_array_get(limits, i);
        printf("%-16s%-8s", document_span(found, "algorithm").data, document_span(found, "period").data);
        print_found(document, found, "");
    }
    printf("\nThe curve of %s over %s:\n\n%s", document_span(best, "algorithm").data,
           document_span(best, "period").data, header);
    for (size_t i = 0; i < json_array_size(curve); i++) {
        const json_t *found = json_array_get(curve, i);
        print_found(document, found, document_number(found, "limit") == limit ? "   suggested" : "");
    }
    report_keys(document);
}
