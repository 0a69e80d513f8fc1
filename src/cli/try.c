/* try.c - weir try: one decision on a fresh limiter, as the exit status. */
#include <getopt.h>
#include <stdio.h>
#include <string.h>

#include <weir/weir.h>

#include "cli/cli.h"
#include "cli/json.h"
#include "cli/policies.h"
#include "cli/store.h"
#include "cli/times.h"

const char TRY_HELP[] =
    "Usage: weir try -p POLICY [--key KEY] [--cost N]\n"
    "       weir try -f FILE [--limit NAME] [--key KEY] [--cost N]\n"
    "\n"
    "Make one decision on a fresh limit and print it. Nothing is kept: each run starts with all permits.\n"
    "In Redis (--mode distributed or hybrid) and in a shared file (--shared), permits stay taken.\n"
    "\n"
    "  -p, --policy POLICY    the limit, for example 'token_bucket limit=100 period=1s burst=200'\n"
    "  -f, --policies FILE    a policy file\n"
    "      --limit NAME       which limit of the file; not needed if it has only one\n"
    "      --key KEY          the request's key (default: key)\n"
    "      --cost N           how many permits the request takes (default: 1)\n"
    "      --json             print the decision as one JSON object\n"
    "      --stats            also print the limiter's counters in the Prometheus text format\n" STORE_ANY_MODE_HELP
    "      --redis URL        redis[s]://[user@]host[:port][/db], unix://[user@]/path[?db=N],\n"
    "                         redis[s]-sentinel://[user@]host[:port][,host[:port]...]/service[?db=N] or\n"
    "                         redis[s]-cluster://[user@]host[:port][,host[:port]...]\n"
    "      --redis-password-file FILE\n"
    "                         a file whose first line is the password; without it, the environment variable\n"
    "                         WEIR_REDIS_PASSWORD\n" STORE_TLS_HELP "      --redis-prefix PREFIX\n"
    "                         the beginning of all keys in Redis (default: weir:)\n"
    "      --redis-replicas N how many replicas must acknowledge the decision, 0 to 16 (default: 0)\n"
    "  -h, --help             print this text\n"
    "\n"
    "Exit status: 0 allowed, 1 denied, 2 any error.\n";

struct attempt {
    struct policies policies;
    struct store store;
    const char *limit, *key;
    int64_t cost;
    bool has_text, has_file, json, stats;
};

enum option_code { LIMIT = 256, KEY, COST, JSON, STATS };

enum { STATS_TEXT_SIZE = 8192 }; /* holds all counters of a limiter with one limit */

static int try_read_options(struct attempt *attempt, int argc, char **argv, bool *wants_help);
static int try_read_option(struct attempt *attempt, int code, const char *value);
static int try_decide(const struct attempt *attempt, const struct named_policy *policy);
static const struct named_policy *try_choose(const struct attempt *attempt);
static void print_answer(const struct named_policy *policy, const struct attempt *attempt,
                         const struct weir_decision *decision);
static void try_print_json(const struct named_policy *policy, const struct attempt *attempt,
                           const struct weir_decision *decision);
static void print_stats(const struct weir_stats *stats);

int command_try(int argc, char **argv)
{
    struct attempt attempt = { .key = "key", .cost = 1 };
    const struct named_policy *policy;
    bool wants_help = false;
    int code = try_read_options(&attempt, argc, argv, &wants_help);
    if (code == EXIT_OK && wants_help)
        fputs(TRY_HELP, stdout);
    else if (code == EXIT_OK)
        code = (policy = try_choose(&attempt)) ? try_decide(&attempt, policy) : EXIT_ERROR;
    policies_free(&attempt.policies);
    return code == EXIT_ERROR ? code : output_finish(code, EXIT_ERROR);
}

static int try_read_options(struct attempt *attempt, int argc, char **argv, bool *wants_help)
{
    static const struct option options[] = {
        { "policy", required_argument, NULL, 'p' },
        { "policies", required_argument, NULL, 'f' },
        { "limit", required_argument, NULL, LIMIT },
        { "key", required_argument, NULL, KEY },
        { "cost", required_argument, NULL, COST },
        { "json", no_argument, NULL, JSON },
        { "stats", no_argument, NULL, STATS },
        { "mode", required_argument, NULL, STORE_ANY_MODE },
        { "shared", required_argument, NULL, STORE_SHARED },
        STORE_REDIS_OPTIONS,
        { "redis-replicas", required_argument, NULL, STORE_REPLICAS },
        { "help", no_argument, NULL, 'h' },
        { NULL, 0, NULL, 0 },
    };
    int code;
    opterr = 0;
    while ((code = getopt_long(argc, argv, ":p:f:h", options, NULL)) != -1) {
        int result = EXIT_OK;
        if (code == '?' || code == ':')
            return option_error("try", code, argv);
        if (code == 'h')
            *wants_help = true;
        else
            result = try_read_option(attempt, code, optarg);
        if (result != EXIT_OK)
            return result;
    }
    if (optind < argc)
        return usage_error("try", "unexpected argument '%s'", argv[optind]);
    return *wants_help ? EXIT_OK : store_check(&attempt->store, "try");
}

static int try_read_option(struct attempt *attempt, int code, const char *value)
{
    switch (code) {
    case 'p': attempt->has_text = true; return policies_add_text(&attempt->policies, "try", value);
    case 'f': attempt->has_file = true; return policies_add_file(&attempt->policies, value);
    case LIMIT: attempt->limit = value; break;
    case JSON: attempt->json = true; break;
    case STATS: attempt->stats = true; break;
    case KEY:
        if (strlen(value) < 1 || strlen(value) > WEIR_MAX_KEY_LEN)
            return usage_error("try", "--key has %zu bytes, and 1 to %d are allowed", strlen(value), WEIR_MAX_KEY_LEN);
        attempt->key = value;
        break;
    case COST:
        if (!span_number(span_of(value), &attempt->cost) || attempt->cost < 1 || attempt->cost > WEIR_MAX_PERMITS)
            return usage_error("try", "--cost '%s' is not a whole number from 1 to 8796093022208", value);
        break;
    default: return store_read_option(&attempt->store, "try", code, value);
    }
    return EXIT_OK;
}

/* Return the limit to use; NULL after a complaint. */
static const struct named_policy *try_choose(const struct attempt *attempt)
{
    const struct policies *policies = &attempt->policies;
    if (!attempt->has_text && !attempt->has_file) {
        usage_error("try", "no limit is given: add one with -p");
        return NULL;
    }
    if (attempt->limit && attempt->has_file)
        for (size_t i = 0; i < policies->count; i++)
            if (strcmp(policies->all[i].name, attempt->limit) == 0)
                return &policies->all[i];
    if (attempt->limit && !attempt->has_file)
        usage_error("try", "--limit '%s' needs a policy file: -f FILE", attempt->limit);
    else if (attempt->limit)
        usage_error("try", "there is no limit '%s' in the policy file", attempt->limit);
    else if (policies->count != 1)
        usage_error("try", "there are %zu limits: choose one with --limit NAME", policies->count);
    else
        return &policies->all[0];
    return NULL;
}

static int try_decide(const struct attempt *attempt, const struct named_policy *policy)
{
    struct weir_decision decision;
    struct weir_stats stats = { .size = sizeof stats };
    char limit_text[STATS_TEXT_SIZE];
    weir *limiter;
    weir_limit *limit;
    struct weir_policy in_force;
    struct named_policy asked = *policy;
    const char *name = policy->name[0] ? policy->name : "try";
    struct weir_options options = WEIR_OPTIONS_INIT;
    store_options(&attempt->store, &options);
    int error = weir_open(&options, &limiter);
    if (error != WEIR_OK) {
        store_open_failed(error);
        return EXIT_ERROR;
    }
    error = weir_limit_define(limiter, name, &policy->policy, &limit);
    if (error == WEIR_OK)
        error = policies_override(&attempt->policies, (size_t)(policy - attempt->policies.all), limiter, name);
    if (error == WEIR_OK)
        error = weir_limit_policy_for(limit, weir_key_text(attempt->key), &in_force);
    if (error == WEIR_OK)
        error = weir_policy_print(&in_force, asked.text, sizeof asked.text);
    if (error == WEIR_OK)
        error = weir_try(limit, weir_key_text(attempt->key), attempt->cost, &decision);
    if (error == WEIR_OK)
        error = weir_stats_read(limiter, &stats);
    if (error == WEIR_OK)
        error = weir_limit_stats_print(limiter, NULL, 0, limit_text, sizeof limit_text) < 0 ? WEIR_ENOMEM : WEIR_OK;
    weir_close(limiter);
    if (error != WEIR_OK) {
        complain("cannot decide: %s", weir_strerror(error));
        return EXIT_ERROR;
    }
    if (attempt->json)
        try_print_json(&asked, attempt, &decision);
    else
        print_answer(&asked, attempt, &decision);
    if (attempt->stats) {
        print_stats(&stats);
        fputs(limit_text, stdout);
    }
    return decision.allowed ? EXIT_OK : EXIT_FAILED;
}

static void print_answer(const struct named_policy *policy, const struct attempt *attempt,
                         const struct weir_decision *decision)
{
    char time[TIME_TEXT_SIZE];
    printf("%s: %s, cost %lld, %lld of %lld permits left", decision->allowed ? "allowed" : "denied", policy->text,
           (long long)attempt->cost, (long long)decision->remaining, (long long)decision->limit);
    if (!decision->allowed && decision->retry_after_us == WEIR_NEVER)
        fputs(", can never be allowed", stdout);
    if (decision->retry_after_us > 0) {
        duration_print(decision->retry_after_us, time);
        printf(", retry after %s", time);
    }
    if (decision->delay_us > 0) {
        duration_print(decision->delay_us, time);
        printf(", go ahead after %s", time);
    }
    if (decision->reset_after_us > 0) {
        duration_print(decision->reset_after_us, time);
        printf(", all back after %s", time);
    }
    if (decision->would_deny)
        fputs(policy->policy.candidate.limit ? ", would be denied by the candidate"
                                             : ", would be denied if the limit were no shadow",
              stdout);
    if (decision->source != WEIR_BY_MEMORY)
        printf(", by %s", store_source_name(decision->source));
    putchar('\n');
}

static void try_print_json(const struct named_policy *policy, const struct attempt *attempt,
                           const struct weir_decision *decision)
{
    fputs("{\"policy\":", stdout);
    json_put_string(span_of(policy->text));
    fputs(",\"key\":", stdout);
    json_put_string(span_of(attempt->key));
    printf(",\"cost\":%lld,\"allowed\":%s,\"limit\":%lld,\"remaining\":%lld,\"retry_after_us\":%lld,"
           "\"reset_after_us\":%lld,\"delay_us\":%lld,\"would_deny\":%s,\"source\":\"%s\"}\n",
           (long long)attempt->cost, decision->allowed ? "true" : "false", (long long)decision->limit,
           (long long)decision->remaining, (long long)decision->retry_after_us, (long long)decision->reset_after_us,
           (long long)decision->delay_us, decision->would_deny ? "true" : "false", store_source_name(decision->source));
}

static void print_stats(const struct weir_stats *stats)
{
    char text[STATS_TEXT_SIZE];
    weir_stats_print(stats, NULL, 0, text, sizeof text);
    fputs(text, stdout);
}
