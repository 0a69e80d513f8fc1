/* check.c - weir check: validates policy files and prints their limits; says whether Redis can be used. */
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <weir/weir.h>

#include "cli/cli.h"
#include "cli/policies.h"
#include "cli/store.h"

const char CHECK_HELP[] =
    "Usage: weir check FILE...\n"
    "       weir check --redis URL [FILE...]\n"
    "\n"
    "Validate policy files. Each line is `name = policy`, or `name/pattern = policy` for some keys of a limit; # begins\n"
    "a comment. Each bad line is reported as FILE:LINE: and the reason. If a file has no bad line, its limits are\n"
    "printed in their shortest form. FILE may be - for the standard input. percent=N gets a warning, because it denies\n"
    "nothing to the other keys.\n"
    "\n"
    "With --redis, charge and reset two keys of a limit that no program can name, as weir_ping() does. If that fails,\n"
    "the reason is printed: no connection, no right, a read-only replica and so on.\n"
    "\n" STORE_REDIS_HELP "      --redis-replicas N\n"
    "                    how many replicas must acknowledge a charge, 0 to 16 (default: 0)\n"
    "  -h, --help        print this text\n"
    "\n"
    "Exit status: 0 all lines are good and Redis can be used, 1 a line is bad or Redis cannot be used, 2 wrong usage,\n"
    "or a file cannot be read.\n";

struct check {
    const char *path;
    FILE *limits; /* the limits, printed if no line is bad */
    size_t limit_count, bad_count;
};

enum { REDIS_MESSAGE_SIZE = 512 };

static int check_file(const char *path);
static int check_redis(const struct store *store);

int command_check(int argc, char **argv)
{
    static const struct option options[] = {
        STORE_REDIS_OPTIONS,
        { "redis-replicas", required_argument, NULL, STORE_REPLICAS },
        { "help", no_argument, NULL, 'h' },
        { NULL, 0, NULL, 0 },
    };
    struct store store = { .has_mode = false };
    int code, worst = EXIT_OK;
    opterr = 0;
    while ((code = getopt_long(argc, argv, ":h", options, NULL)) != -1) {
        if (code == '?' || code == ':')
            return option_error("check", code, argv);
        if (code == 'h') {
            fputs(CHECK_HELP, stdout);
            return output_finish(EXIT_OK, EXIT_ERROR);
        }
        if (store_read_option(&store, "check", code, optarg) != EXIT_OK)
            return EXIT_ERROR;
        store.options.mode = WEIR_DISTRIBUTED;
    }
    if (store.options.mode == WEIR_DISTRIBUTED && !store.options.redis_url)
        return usage_error("check", "%s needs --redis URL", store.redis_option);
    if (optind == argc && !store.options.redis_url)
        return usage_error("check", "no FILE is given");
    for (int i = optind; i < argc; i++) {
        code = check_file(argv[i]);
        worst = code > worst ? code : worst;
    }
    if (store.options.redis_url) {
        code = check_redis(&store);
        worst = code > worst ? code : worst;
    }
    return output_finish(worst, EXIT_ERROR);
}

/* ---- Redis ---- */

static int check_redis(const struct store *store)
{
    char message[REDIS_MESSAGE_SIZE] = "";
    struct weir_options options = WEIR_OPTIONS_INIT;
    weir *limiter;
    store_options(store, &options);
    options.log = NULL; /* the reason is printed once */
    options.quiet = true;
    if (weir_open(&options, &limiter) != WEIR_OK) {
        complain("%s", weir_last_message());
        return EXIT_ERROR;
    }
    const int error = weir_ping(limiter, 0, message, sizeof message);
    weir_close(limiter);
    if (error == WEIR_OK)
        puts("Redis can be used");
    else
        complain("Redis cannot be used: %s", *message ? message : weir_strerror(error));
    return error == WEIR_OK ? EXIT_OK : EXIT_FAILED;
}

/* ---- Files ---- */

static int check_visit(void *user, const struct weir_policy_line *line)
{
    struct check *check = user;
    char text[WEIR_POLICY_TEXT_SIZE];
    if (!line->policy) {
        check->bad_count++;
        fprintf(stderr, "%s:%d: %s\n", check->path, line->number, line->error);
        return WEIR_OK;
    }
    check->limit_count++;
    if (line->policy->percent > 0 && line->policy->percent < 100)
        fprintf(
            stderr,
            "%s:%d: warning: percent=%d denies nothing to the other %d %% of the keys: keep a limit for them, with this one as its candidate\n",
            check->path, line->number, (int)line->policy->percent, 100 - (int)line->policy->percent);
    int error = weir_policy_print(line->policy, text, sizeof text);
    if (error == WEIR_OK)
        fprintf(check->limits, "%s%s%s = %s\n", line->name, line->pattern ? "/" : "",
                line->pattern ? pattern_shown(line->pattern).text : "", text);
    return error;
}

static int check_file(const char *path)
{
    char message[320] = "", *limits = NULL;
    size_t limits_size = 0;
    bool is_stdin = strcmp(path, "-") == 0;
    struct check check = { .path = is_stdin ? "stdin" : path, .limits = open_memstream(&limits, &limits_size) };
    if (!check.limits) {
        complain("%s: out of memory", check.path);
        return EXIT_ERROR;
    }
    int error = weir_policy_file_read(is_stdin ? "/dev/stdin" : path, check_visit, &check, message, sizeof message);
    bool has_all = fclose(check.limits) == 0;
    int code = error == WEIR_OK && has_all ? EXIT_OK : check.bad_count ? EXIT_FAILED : EXIT_ERROR;
    if (code == EXIT_OK)
        fputs(limits, stdout);
    else if (code == EXIT_ERROR && *message)
        complain("%s", message);
    else if (code == EXIT_ERROR)
        complain("%s: %s", check.path, weir_strerror(has_all ? error : WEIR_ENOMEM));
    if (code == EXIT_OK && check.limit_count == 0)
        complain("%s: holds no limit", check.path);
    free(limits);
    return code;
}
