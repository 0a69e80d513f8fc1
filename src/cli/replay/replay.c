/* replay.c - weir replay: reads the command line. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/cli.h"
#include "cli/replay/findings.h"
#include "cli/replay/run.h"

const char REPLAY_HELP[] =
    "Usage: weir replay [OPTIONS] -p POLICY [FILE]...\n"
    "\n"
    "Replay logs against limits, at the log's times but without waiting, and report which requests would\n"
    "have been denied. FILE may be gzip or .zst; - is the standard input.\n"
    "\n"
    "Limits (several decide each request together, all or nothing):\n"
    "  -p, --policy POLICY    a limit, for example 'token_bucket limit=100 period=1s burst=200', or 100/m;\n"
    "                         none: as weir suggest. May be repeated. A name, a key and a cost for it alone may stand before it:\n"
    "                         'tokens key=user cost=size: fixed_window limit=9000 period=1m'\n"
    "  -f, --policies FILE    all limits of a policy file (name = policy); may be repeated\n"
    "\n"
    "Where the counts are kept:\n"
    "      --mode MODE        local (default): in this process\n"
    "                         distributed: in Redis, with the same decisions\n"
    "                         hybrid: in instances that lease permits from Redis, beside one exact limit\n"
    "      --percent-seed N   chooses the keys that percent= enforces (default: 1)\n"
    "      --redis URL        where Redis is, as for weir try\n"
    "      --redis-password-file FILE\n"
    "                         a file whose first line is the password (default: WEIR_REDIS_PASSWORD)\n"
    "      --instances N      hybrid: the number of instances (default 1)\n"
    "      --deal HOW         hybrid: how requests go to instances: round-robin (default), key (each key to one)\n"
    "                         or skewed (half of all to the first, and so on)\n"
    "      --lease-life TIME  hybrid: no lease lives longer (default: no bound)\n"
    "      --lease-excess N   hybrid: leases exceed a bucket by N percent at most (default: 5)\n"
    "      --lease-max N      hybrid: most permits of a key that an instance leases\n"
    "      --strict           hybrid: never exceed a limit\n"
    "\n" INPUT_HELP "      --duration FIELD   how long each request took, for limits on requests in flight\n"
    "      --duration-unit U  its unit if it is a whole number: us (default), ms, s or ns\n"
    "      --time-is-end      requests ended at the times of their rows, as in nginx's logs\n"
    "      --sort             keep all rows and sort them first, however late\n"
    "      --keep-order       do not sort the rows by time\n"
    "\n"
    "Output:\n"
    "      --compare          apply each limit alone, and print the outcomes side by side\n"
    "      --top N            how many keys to list, those denied most first (default 10)\n"
    "      --json             print the report as one JSON object\n"
    "      --decisions        print one line per row instead, in the order of the input:\n"
    "                         allowed,remaining,retry_after_us,reset_after_us,delay_us (never: -1)\n"
    "      --html FILE        write an HTML page\n"
    "  -h, --help             print this text\n"
    "\n"
    "Exit status: 0 done; 1 a file failed, or fewer than 95 % of the rows fit; 2 wrong usage or a bad policy.\n"
    "\n"
    "Example: weir replay -p 'sliding_window limit=20 period=1m' access.log\n";

enum option_code { KEEP_ORDER = 256, TOP, JSON, DECISIONS, COMPARE, DURATION, DURATION_UNIT, TIME_IS_END, HTML, SORT };

static int replay_read_options(struct replay *replay, int argc, char **argv, bool *wants_help);
static int replay_read_option(struct replay *replay, int code, const char *value);
static int check_options(struct replay *replay, int argc, char **argv);
static int replay_run(struct replay *replay);

int command_replay(int argc, char **argv)
{
    struct replay replay = { .top = 10, .store.options.percent_seed = 1 };
    bool wants_help = false;
    int code = replay_read_options(&replay, argc, argv, &wants_help);
    if (code == EXIT_OK && wants_help)
        fputs(REPLAY_HELP, stdout);
    else if (code == EXIT_OK && replay.policies.count == 0 && !replay.decisions_only && !replay.compare &&
             replay.store.options.mode == WEIR_LOCAL && !replay.input.load.duration)
        code = suggest_instead(
            &(struct suggest){
                .input = replay.input, .top = replay.top, .json = replay.json, .html = replay.html_path },
            argc, argv);
    else if (code == EXIT_OK && (code = check_options(&replay, argc, argv)) == EXIT_OK)
        code = replay_run(&replay);
    policies_free(&replay.policies);
    return output_finish(code, code == EXIT_OK ? EXIT_FAILED : code);
}

static int replay_read_options(struct replay *replay, int argc, char **argv, bool *wants_help)
{
    static const struct option options[] = {
        { "policy", required_argument, NULL, 'p' },
        { "policies", required_argument, NULL, 'f' },
        { "help", no_argument, NULL, 'h' },
        INPUT_OPTIONS,
        { "duration", required_argument, NULL, DURATION },
        { "duration-unit", required_argument, NULL, DURATION_UNIT },
        { "time-is-end", no_argument, NULL, TIME_IS_END },
        { "keep-order", no_argument, NULL, KEEP_ORDER },
        { "sort", no_argument, NULL, SORT },
        { "top", required_argument, NULL, TOP },
        { "json", no_argument, NULL, JSON },
        { "decisions", no_argument, NULL, DECISIONS },
        { "compare", no_argument, NULL, COMPARE },
        { "html", required_argument, NULL, HTML },
        { "mode", required_argument, NULL, STORE_MODE },
        { "redis", required_argument, NULL, STORE_REDIS },
        { "redis-password-file", required_argument, NULL, STORE_PASSWORD_FILE },
        { "instances", required_argument, NULL, STORE_INSTANCES },
        { "deal", required_argument, NULL, STORE_DEAL },
        { "lease-life", required_argument, NULL, STORE_LEASE_LIFE },
        { "lease-excess", required_argument, NULL, STORE_LEASE_EXCESS },
        { "lease-max", required_argument, NULL, STORE_LEASE_MAX },
        { "strict", no_argument, NULL, STORE_STRICT },
        STORE_PERCENT_SEED_OPTION,
        { NULL, 0, NULL, 0 },
    };
    int code;
    opterr = 0;
    while ((code = getopt_long(argc, argv, ":p:f:h", options, NULL)) != -1) {
        int result = EXIT_OK;
        if (code == '?' || code == ':')
            return option_error("replay", code, argv);
        if (code == 'h')
            *wants_help = true;
        else
            result = replay_read_option(replay, code, optarg);
        if (result != EXIT_OK)
            return result;
    }
    return EXIT_OK;
}

static int replay_read_option(struct replay *replay, int code, const char *value)
{
    int64_t number;
    if (input_option_is(code))
        return input_option_read(&replay->input, "replay", code, value);
    switch (code) {
    case 'p': return policies_add_keyed(&replay->policies, "replay", value);
    case 'f': return policies_add_file(&replay->policies, value);
    case KEEP_ORDER: replay->keep_order = true; break;
    case SORT: replay->sort = true; break;
    case JSON: replay->json = true; break;
    case COMPARE: replay->compare = true; break;
    case DURATION: replay->input.load.duration = value; break;
    case HTML: replay->html_path = value; break;
    case TIME_IS_END: replay->input.load.times_are_ends = true; break;
    case DURATION_UNIT:
        replay->input.load.has_duration_unit = true;
        if (!time_unit_read(span_of(value), &replay->input.load.duration_unit))
            return usage_error("replay", "--duration-unit '%s' is not one of us, ms, s, ns", value);
        break;
    case DECISIONS: replay->decisions_only = true; break;
    case TOP:
        if (!span_number(span_of(value), &number) || number > ROWS_MAX)
            return usage_error("replay", "--top '%s' is not a whole number", value);
        replay->top = (size_t)number;
        break;
    default: return store_read_option(&replay->store, "replay", code, value);
    }
    return EXIT_OK;
}

static bool is_same(const char *left, const char *right)
{
    return left == right || (left && right && strcmp(left, right) == 0);
}

/* Number the kind of a limit's key: equal keys have the same number. */
static int key_number(struct load_options *load, struct named_policy *policy, const char *key)
{
    struct fault fault;
    size_t kind = 0;
    while (kind < load->key_count && !is_same(load->keys[kind].text, key))
        kind++;
    if (kind == ROWS_MAX_KEYS)
        return usage_error("replay", "the limits have more than %d different keys", ROWS_MAX_KEYS);
    if (kind == load->key_count && !key_spec_read(&load->keys[load->key_count++], key, &fault))
        return usage_error("replay", "the key '%s': %s", key, fault.text);
    policy->key_kind = kind;
    return EXIT_OK;
}

static int cost_number(struct load_options *load, struct named_policy *policy, const char *cost)
{
    size_t kind = 0;
    while (kind < load->cost_count && !is_same(load->costs[kind], cost))
        kind++;
    if (kind == ROWS_MAX_COSTS)
        return usage_error("replay", "the limits have more than %d different costs", ROWS_MAX_COSTS);
    if (kind == load->cost_count)
        load->costs[load->cost_count++] = cost;
    policy->cost_kind = kind;
    return EXIT_OK;
}

/* Number all kinds of keys and costs. Kind 0 is that of the limits without their own, since only the first kind can be
 * the usual field of an input; if each limit has its own, it is the first limit's. */
static int kinds_number(struct replay *replay)
{
    struct input_options *input = &replay->input;
    int code = EXIT_OK;
    for (int has_own = 0; has_own <= 1; has_own++)
        for (size_t i = 0; i < replay->policies.count && code == EXIT_OK; i++) {
            struct named_policy *policy = &replay->policies.all[i];
            if ((policy->key[0] != '\0') == has_own)
                code = key_number(&input->load, policy, has_own ? policy->key : input->key);
            if (code == EXIT_OK && (policy->cost[0] != '\0') == has_own)
                code = cost_number(&input->load, policy, has_own ? policy->cost : input->cost);
        }
    return code;
}

static int check_options(struct replay *replay, int argc, char **argv)
{
    if (replay->policies.count == 0)
        return usage_error("replay", "no limit is given: add one with -p, for example\n"
                                     "    -p 'sliding_window limit=20 period=1m'");
    if (replay->policies.count > WEIR_MAX_ALL)
        return usage_error("replay", "%zu limits are more than the %d that can decide one request",
                           replay->policies.count, WEIR_MAX_ALL);
    if (input_options_check(&replay->input, "replay", argc, argv) != EXIT_OK)
        return EXIT_ERROR;
    if (kinds_number(replay) != EXIT_OK)
        return EXIT_ERROR;
    if (replay->compare && (replay->policies.count < 2 || replay->decisions_only || replay->store.options.mode != WEIR_LOCAL))
        return usage_error("replay", "--compare needs several limits and local mode, and no --decisions");
    const struct load_options *load = &replay->input.load;
    if (!load->duration && (load->has_duration_unit || load->times_are_ends))
        return usage_error("replay", "%s needs --duration FIELD",
                           load->times_are_ends ? "--time-is-end" : "--duration-unit");
    if (load->duration && replay->store.options.mode == WEIR_HYBRID)
        return usage_error("replay", "--duration needs --mode local or distributed");
    if (replay->sort && replay->keep_order)
        return usage_error("replay", "--sort and --keep-order cannot be combined");
    if (replay->json && replay->decisions_only)
        return usage_error("replay", "--json and --decisions cannot be combined");
    return store_check(&replay->store, "replay");
}

/* Check that Redis answers before anything is read. */
static int prepare_store(struct store *store)
{
    int code = store_make_prefix(store);
    return code == EXIT_OK ? store_reach(store) : code;
}

static int replay_run(struct replay *replay)
{
    const int code = replay->store.options.mode != WEIR_LOCAL ? prepare_store(&replay->store) : EXIT_OK;
    return code == EXIT_OK ? run_replay(replay) : code;
}
