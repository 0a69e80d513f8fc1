/* inspect.c - weir peek, weir keys and weir reset show an operator the keys in Redis, and clear them. */
#include <getopt.h>
#include <stdio.h>
#include <string.h>

#include <weir/weir.h>

#include "cli/cli.h"
#include "cli/inspected.h"
#include "cli/live/live.h"
#include "cli/store.h"

#define SOCKET_HELP "      --control PATH\n                    the control socket of a running process, instead of Redis\n"

#define SHARED_HELP "      --shared FILE a shared file, instead of Redis; a name without / is in /dev/shm\n"

#define STATUS_HELP                                                                                         \
    "Exit status: 0 done, 1 Redis or the shared file cannot be used, or the value is not weir's, 2 wrong\n" \
    "usage, or another file cannot be read.\n"

const char PEEK_HELP[] =
    "Usage: weir peek {--redis URL | --control PATH | --shared FILE} LIMIT KEY\n"
    "\n"
    "Show the state of one key of a limit in Redis, and take nothing. No policy file is needed: each state holds the\n"
    "plan that it was written under. With --control, ask a running process; with --shared, look into the file in which\n"
    "processes of this machine count. A limit that the file does not know is an error.\n"
    "\n" STORE_REDIS_HELP SOCKET_HELP SHARED_HELP "      --json        print one JSON object\n"
    "  -h, --help        print this text\n"
    "\n" STATUS_HELP;

const char KEYS_HELP[] =
    "Usage: weir keys {--redis URL | --shared FILE} [--limit LIMIT] [--match PATTERN] [--denied]\n"
    "\n"
    "List the keys that have permits in use in Redis or in a shared file, a line each, in no order. Redis is asked in\n"
    "small steps (SCAN), between which it serves other clients. A shared file needs no running process.\n"
    "\n"
    "      --limit LIMIT only keys of this limit\n"
    "      --match PATTERN\n"
    "                    only keys that the pattern matches: a key, or the first bytes of keys and *; as in the\n"
    "                    overrides of a policy file, some bytes are written %XX\n"
    "      --denied      only keys of which a request for one permit would be denied now\n"
    "      --most N      stop after N keys\n" STORE_REDIS_HELP SHARED_HELP
    "      --json        print each key as a JSON object in a line\n"
    "  -h, --help        print this text\n"
    "\n" STATUS_HELP;

const char RESET_HELP[] =
    "Usage: weir reset {--redis URL | --control PATH | --shared FILE} LIMIT KEY\n"
    "\n"
    "Forget one key of a limit in Redis: all of its permits come back. Instances in hybrid mode keep permits\n"
    "that they have leased already, and notice the reset within 2 seconds. With --control, ask a running process; with\n"
    "--shared, forget the key in the file in which processes of this machine count.\n"
    "\n" STORE_REDIS_HELP SOCKET_HELP SHARED_HELP "      --json        print one JSON object\n"
    "  -h, --help        print this text\n"
    "\n" STATUS_HELP;

enum option_code { JSON = 256, LIMIT, MATCH, DENIED, MOST, SOCKET };

struct inspection {
    const char *command;
    struct store store;
    const char *limit, *match; /* of weir keys; NULL: any */
    const char *socket;        /* of a running process; NULL: Redis */
    int64_t most, shown;
    bool json, denied, wants_help;
};

/* ---- Options ---- */

static int read_option(struct inspection *inspection, int code, const char *value)
{
    switch (code) {
    case 'h': inspection->wants_help = true; break;
    case JSON: inspection->json = true; break;
    case LIMIT: inspection->limit = value; break;
    case MATCH: inspection->match = value; break;
    case SOCKET: inspection->socket = value; break;
    case DENIED: inspection->denied = true; break;
    case MOST:
        if (!span_number(span_of(value), &inspection->most) || inspection->most < 1)
            return usage_error(inspection->command, "--most '%s' is not a whole number of 1 or more", value);
        break;
    default: return store_read_option(&inspection->store, inspection->command, code, value);
    }
    return EXIT_OK;
}

/* Read the command line; `words` arguments follow the options. */
static int read_options(struct inspection *inspection, int argc, char **argv, int words)
{
    static const struct option options[] = {
        { "shared", required_argument, NULL, STORE_SHARED },
        STORE_REDIS_OPTIONS,
        { "control", required_argument, NULL, SOCKET },
        { "json", no_argument, NULL, JSON },
        { "help", no_argument, NULL, 'h' },
        { NULL, 0, NULL, 0 },
    };
    static const struct option options_of_keys[] = {
        { "shared", required_argument, NULL, STORE_SHARED },
        { "limit", required_argument, NULL, LIMIT },
        { "match", required_argument, NULL, MATCH },
        { "denied", no_argument, NULL, DENIED },
        { "most", required_argument, NULL, MOST },
        STORE_REDIS_OPTIONS,
        { "json", no_argument, NULL, JSON },
        { "help", no_argument, NULL, 'h' },
        { NULL, 0, NULL, 0 },
    };
    const char *command = inspection->command;
    int code;
    opterr = 0;
    while ((code = getopt_long(argc, argv, ":h", words ? options : options_of_keys, NULL)) != -1) {
        if (code == '?' || code == ':')
            return option_error(command, code, argv);
        if (read_option(inspection, code, optarg) != EXIT_OK)
            return EXIT_ERROR;
    }
    if (inspection->wants_help)
        return EXIT_OK;
    if (argc - optind > words)
        return usage_error(command, "unexpected argument '%s'", argv[optind + words]);
    if (argc - optind < words)
        return usage_error(command, "a LIMIT and a KEY are needed");
    if (!!inspection->socket + !!inspection->store.options.redis_url + !!inspection->store.options.shared > 1)
        return usage_error(command, "--redis, --control and --shared exclude each other");
    if (!inspection->store.options.shared && !inspection->store.options.redis_url && !inspection->socket)
        return usage_error(command, words ? "--redis URL, --control PATH or --shared FILE is needed"
                                          : "--redis URL or --shared FILE is needed");
    if (!inspection->store.options.redis_url && inspection->store.redis_option)
        return usage_error(command, "%s needs --redis URL", inspection->store.redis_option);
    if (inspection->store.options.shared)
        inspection->store.options.mode = WEIR_MACHINE;
    if (words && (strlen(argv[optind + 1]) < 1 || strlen(argv[optind + 1]) > WEIR_MAX_KEY_LEN))
        return usage_error(command, "KEY has %zu bytes, and 1 to %d are allowed", strlen(argv[optind + 1]),
                           WEIR_MAX_KEY_LEN);
    return EXIT_OK;
}

/* ---- The commands ---- */

static int print_key(void *user, const struct weir_inspected *key)
{
    struct inspection *inspection = user;
    const struct weir_inspected_state *state = &key->state;
    const bool is_ours = key->found == WEIR_FOUND_STATE;
    if (inspection->denied && (!is_ours || state->decision.allowed))
        return WEIR_OK;
    (inspection->json ? inspected_json : inspected_line)(key);
    putchar('\n');
    inspection->shown++;
    return output_failed() || inspection->shown == inspection->most ? 1 : WEIR_OK;
}

/* Read the command line, on which `words` arguments follow the options, connect, and do the command's work. With
 * --control there is no inspector. */
static int run(struct inspection *inspection, int argc, char **argv, int words, const char *help,
               int (*act)(struct inspection *inspection, weir_inspector *inspector, char **words))
{
    int code = read_options(inspection, argc, argv, words);
    if (code == EXIT_OK && inspection->wants_help) {
        fputs(help, stdout);
        return output_finish(EXIT_OK, EXIT_ERROR);
    }
    if (code == EXIT_OK && inspection->socket) {
        code = act(inspection, NULL, argv + optind);
        return code == EXIT_ERROR ? code : output_finish(code, EXIT_FAILED);
    }
    weir_inspector *inspector = code == EXIT_OK ? inspected_connect(&inspection->store, &code) : NULL;
    if (!inspector)
        return code;
    code = act(inspection, inspector, argv + optind);
    weir_inspect_close(inspector);
    return code == EXIT_ERROR ? code : output_finish(code, EXIT_FAILED);
}

static int peek(struct inspection *inspection, weir_inspector *inspector, char **words)
{
    struct weir_inspected key = { .size = sizeof key };
    if (inspection->socket)
        return live_peek(inspection->socket, words[0], words[1], inspection->json);
    const int code = inspected_conclude(weir_inspect_key(inspector, words[0], weir_key_text(words[1]), &key));
    if (code != EXIT_OK)
        return code;
    inspected_peek(&key, inspection->json);
    if (key.found != WEIR_FOUND_FOREIGN)
        return EXIT_OK;
    complain("the value of this key is not weir's");
    return EXIT_FAILED;
}

int command_peek(int argc, char **argv)
{
    struct inspection inspection = { .command = "peek", .store.options.mode = WEIR_DISTRIBUTED };
    return run(&inspection, argc, argv, 2, PEEK_HELP, peek);
}

static int list_keys(struct inspection *inspection, weir_inspector *inspector, char **words)
{
    const int error = weir_inspect_keys(inspector, inspection->limit, inspection->match, print_key, inspection);
    const int code = inspected_conclude(error > 0 ? WEIR_OK : error);
    (void)words;
    if (code == EXIT_OK && inspection->shown == 0)
        complain("no such key has permits in use");
    return code;
}

int command_keys(int argc, char **argv)
{
    struct inspection inspection = { .command = "keys", .store.options.mode = WEIR_DISTRIBUTED };
    return run(&inspection, argc, argv, 0, KEYS_HELP, list_keys);
}

static int reset(struct inspection *inspection, weir_inspector *inspector, char **words)
{
    bool existed = false;
    if (inspection->socket)
        return live_reset(inspection->socket, words[0], words[1], inspection->json);
    const int code = inspected_conclude(weir_inspect_reset(inspector, words[0], weir_key_text(words[1]), &existed));
    if (code == EXIT_OK && inspection->json)
        printf("{\"existed\":%s}\n", existed ? "true" : "false");
    else if (code == EXIT_OK)
        puts(existed ? "the key is forgotten" : "there was nothing to forget");
    return code;
}

int command_reset(int argc, char **argv)
{
    struct inspection inspection = { .command = "reset", .store.options.mode = WEIR_DISTRIBUTED };
    return run(&inspection, argc, argv, 2, RESET_HELP, reset);
}
