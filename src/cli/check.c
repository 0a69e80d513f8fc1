/* check.c - weir check: validates policy files and prints their limits. */
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <weir/weir.h>

#include "cli/cli.h"

const char CHECK_HELP[] =
    "Usage: weir check FILE...\n"
    "\n"
    "Validate policy files. Each line is `name = policy`, or `name/pattern = policy` for some keys of a limit; # begins\n"
    "a comment. Each bad line is reported as FILE:LINE: and the reason. If a file has no bad line, its limits are\n"
    "printed in their shortest form. FILE may be - for the standard input.\n"
    "\n"
    "  -h, --help   print this text\n"
    "\n"
    "Exit status: 0 all lines are good, 1 a line is bad, 2 wrong usage or a file cannot be read.\n";

struct check {
    const char *path;
    FILE *limits; /* the limits, printed if no line is bad */
    size_t limit_count, bad_count;
};

static int check_file(const char *path);

int command_check(int argc, char **argv)
{
    static const struct option options[] = { { "help", no_argument, NULL, 'h' }, { NULL, 0, NULL, 0 } };
    int code, worst = EXIT_OK;
    opterr = 0;
    while ((code = getopt_long(argc, argv, ":h", options, NULL)) != -1) {
        if (code != 'h')
            return option_error("check", code, argv);
        fputs(CHECK_HELP, stdout);
        return output_finish(EXIT_OK, EXIT_ERROR);
    }
    if (optind == argc)
        return usage_error("check", "no FILE is given");
    for (int i = optind; i < argc; i++) {
        code = check_file(argv[i]);
        worst = code > worst ? code : worst;
    }
    return output_finish(worst, EXIT_ERROR);
}

static int check_visit(void *user, const struct weir_policy_line *line)
{
    struct check *check = user;
    char text[160];
    if (!line->policy) {
        check->bad_count++;
        fprintf(stderr, "%s:%d: %s\n", check->path, line->number, line->error);
        return WEIR_OK;
    }
    check->limit_count++;
    int error = weir_policy_print(line->policy, text, sizeof text);
    if (error == WEIR_OK)
        fprintf(check->limits, line->pattern ? "%s/%s = %s\n" : "%s%s = %s\n", line->name,
                line->pattern ? line->pattern : "", text);
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
