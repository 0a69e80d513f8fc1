/* options.c - the command lines of weir stats, weir top, weir watch and weir reload. */
#include <getopt.h>
#include <string.h>

#include "cli/cli.h"
#include "cli/live/live.h"

enum option_code { SOCKET = 256, JSON, KEYS, TURNS, EVERY, LIMIT, SCAN };

#define EVERY_MAX 86400 /* seconds */

static const struct {
    struct option option;
    unsigned part; /* that has the option; 0: every command */
} KNOWN[] = {
    { { "control", required_argument, NULL, SOCKET }, 0 },
    { { "json", no_argument, NULL, JSON }, 0 },
    { { "help", no_argument, NULL, 'h' }, 0 },
    { { "keys", required_argument, NULL, KEYS }, LIVE_KEYS },
    { { "turns", required_argument, NULL, TURNS }, LIVE_TURNS },
    { { "every", required_argument, NULL, EVERY }, LIVE_TURNS },
    { { "limit", required_argument, NULL, LIMIT }, LIVE_REDIS },
    { { "shared", required_argument, NULL, STORE_SHARED }, LIVE_REDIS },
    { { "scan", required_argument, NULL, SCAN }, LIVE_REDIS },
};

#define KNOWN_COUNT (sizeof KNOWN / sizeof *KNOWN)
#define STORE_COUNT 6

static int read_count(const struct live_options *options, const char *name, const char *value, int64_t least,
                      int64_t most, int64_t *out)
{
    if (span_number(span_of(value), out) && *out >= least && *out <= most)
        return EXIT_OK;
    return usage_error(options->command, "%s '%s' is not a whole number from %lld to %lld", name, value,
                       (long long)least, (long long)most);
}

static int read_option(struct live_options *options, int code, const char *value)
{
    switch (code) {
    case 'h': options->wants_help = true; break;
    case SOCKET: options->socket = value; break;
    case JSON: options->json = true; break;
    case LIMIT: options->limit = value; break;
    case KEYS: return read_count(options, "--keys", value, 0, WEIR_MAX_TOP_KEYS, &options->keys);
    case TURNS: return read_count(options, "--turns", value, 0, INT64_MAX, &options->turns);
    case EVERY: return read_count(options, "--every", value, 1, EVERY_MAX, &options->every);
    case SCAN: return read_count(options, "--scan", value, 1, INT64_MAX, &options->scan);
    default: return store_read_option(&options->store, options->command, code, value);
    }
    return EXIT_OK;
}

static int check_options(struct live_options *options, unsigned parts)
{
    const int given = !!options->socket + !!options->store.options.redis_url + !!options->store.options.shared;
    if (given > 1)
        return usage_error(options->command, "--redis, --control and --shared exclude each other");
    if (given == 0)
        return usage_error(options->command, parts & LIVE_REDIS
                                                 ? "--redis URL, --control PATH or --shared FILE is needed"
                                                 : "--control PATH is needed");
    if (!options->store.options.redis_url && options->store.redis_option)
        return usage_error(options->command, "%s needs --redis URL", options->store.redis_option);
    if (options->socket && (options->limit || options->scan >= 0))
        return usage_error(options->command, "--limit and --scan are for --redis and --shared");
    options->store.options.mode = options->store.options.shared ? WEIR_MACHINE : WEIR_DISTRIBUTED;
    return EXIT_OK;
}

int live_options_read(struct live_options *options, int argc, char **argv, unsigned parts)
{
    static const struct option of_store[STORE_COUNT] = { STORE_REDIS_OPTIONS };
    struct option known[KNOWN_COUNT + STORE_COUNT + 1] = { { NULL, 0, NULL, 0 } };
    size_t n = 0;
    for (size_t i = 0; i < KNOWN_COUNT; i++)
        if (KNOWN[i].part == 0 || parts & KNOWN[i].part)
            known[n++] = KNOWN[i].option;
    if (parts & LIVE_REDIS)
        memcpy(known + n, of_store, sizeof of_store);
    int code;
    opterr = 0;
    options->keys = options->turns = options->every = options->scan = -1;
    while ((code = getopt_long(argc, argv, ":h", known, NULL)) != -1) {
        if (code == '?' || code == ':')
            return option_error(options->command, code, argv);
        if (read_option(options, code, optarg) != EXIT_OK)
            return EXIT_ERROR;
    }
    if (options->wants_help)
        return EXIT_OK;
    if (optind < argc)
        return usage_error(options->command, "unexpected argument '%s'", argv[optind]);
    return check_options(options, parts);
}
