/* main.c - the weir program: chooses the command, prints help, and holds what the commands share. */
#include "cli/cli.h"

#include <errno.h>
#include <getopt.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <weir/weir.h>

static const char MAIN_HELP[] =
    "Usage: weir COMMAND [ARGUMENTS]\n"
    "\n"
    "weir limits rates. This program tries limits out before you use them in service, serves them, and shows and\n"
    "clears what they hold in Redis, a running process or a shared file.\n"
    "\n"
    "Commands:\n"
    "  replay   replay a log against limits: which requests would have been denied?\n"
    "  suggest  find the tightest limits that would have denied few requests and clients of a log\n"
    "  check    validate policy files, and check that Redis can be used\n"
    "  try      make one decision and return it as the exit status\n"
    "  serve    serve limits to programs in any language that has a Redis client\n"
    "  peek     show the state of one key, in Redis, a running process or a shared file\n"
    "  keys     list keys in Redis or a shared file that have permits in use\n"
    "  reset    forget one key, in Redis, a running process or a shared file\n"
    "  stats    print figures of each limit, of a running process or of the keys in Redis or a shared file\n"
    "  top      print the keys that a running process denies most, or that wait longest in Redis or a file\n"
    "  watch    show at an interval what stats and top print\n"
    "  reload   have a running process read its policy file again\n"
    "  version  print the version\n"
    "  help     print this text, or a command's help: weir help replay\n"
    "\n"
    "Example:\n"
    "  weir replay -p 'sliding_window limit=20 period=1m' access.log\n"
    "\n"
    "Exit status: 0 done (try: allowed), 1 failed (try: denied), 2 wrong usage (try: any error).\n"
    "The manual pages have the details: weir(1), one for each command such as weir-replay(1), and weir-policy(5).\n";

static int command_version(int argc, char **argv);
static int command_help(int argc, char **argv);
static const char VERSION_HELP[] =
    "Usage: weir version\n\nPrint the version of the weir library that this program uses.\n";

static const struct command {
    const char *name;
    int (*run)(int argc, char **argv);
    const char *help;
} COMMANDS[] = {
    { "replay", command_replay, REPLAY_HELP },    { "suggest", command_suggest, SUGGEST_HELP },
    { "check", command_check, CHECK_HELP },       { "try", command_try, TRY_HELP },
    { "serve", command_serve, SERVE_HELP },       { "peek", command_peek, PEEK_HELP },
    { "keys", command_keys, KEYS_HELP },          { "reset", command_reset, RESET_HELP },
    { "stats", command_stats, STATS_HELP },       { "top", command_top, TOP_HELP },
    { "watch", command_watch, WATCH_HELP },       { "reload", command_reload, RELOAD_HELP },
    { "version", command_version, VERSION_HELP }, { "help", command_help, MAIN_HELP },
};

static const struct command *command_find(const char *name)
{
    for (size_t i = 0; i < sizeof COMMANDS / sizeof *COMMANDS; i++)
        if (strcmp(COMMANDS[i].name, name) == 0)
            return &COMMANDS[i];
    return NULL;
}

static int main_print(const char *text)
{
    fputs(text, stdout);
    return output_finish(EXIT_OK, EXIT_ERROR);
}

static bool is_help(const char *word)
{
    return strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0;
}

int main(int argc, char **argv)
{
    if (argc < 2) {
        fputs(MAIN_HELP, stderr);
        return EXIT_ERROR;
    }
    if (is_help(argv[1]))
        return main_print(MAIN_HELP);
    if (strcmp(argv[1], "--version") == 0 || strcmp(argv[1], "-V") == 0)
        return command_version(1, argv + 1);
    const struct command *command = command_find(argv[1]);
    if (!command) {
        const char *kind = argv[1][0] == '-' ? "option" : "command";
        complain("unknown %s '%s'; 'weir --help' lists the commands", kind, argv[1]);
        return EXIT_ERROR;
    }
    return command->run(argc - 1, argv + 1);
}

static int command_version(int argc, char **argv)
{
    if (argc > 1 && is_help(argv[1]))
        return main_print(VERSION_HELP);
    if (argc > 1)
        return usage_error("version", "unexpected argument '%s'", argv[1]);
    printf("weir %s\n", weir_version());
    return output_finish(EXIT_OK, EXIT_ERROR);
}

static int command_help(int argc, char **argv)
{
    const struct command *command = command_find(argc > 1 && !is_help(argv[1]) ? argv[1] : "help");
    if (argc > 2)
        return usage_error("help", "unexpected argument '%s'", argv[2]);
    if (!command)
        return usage_error("help", "there is no command '%s'", argv[1]);
    return main_print(command->help);
}

__attribute__((format(printf, 3, 0))) static void main_say(const char *before, const char *command, const char *format,
                                                           va_list arguments)
{
    fprintf(stderr, "%s%s: ", before, command);
    vfprintf(stderr, format, arguments);
    fputc('\n', stderr);
}

void complain(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    main_say("weir", "", format, arguments);
    va_end(arguments);
}

int usage_error(const char *command, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    main_say("weir ", command, format, arguments);
    va_end(arguments);
    fprintf(stderr, "Try 'weir %s --help'.\n", command);
    return EXIT_ERROR;
}

int option_error(const char *command, int result, char **argv)
{
    char letter[] = { '-', (char)optopt, '\0' };
    bool is_short = optopt > ' ' && optopt < 127;
    const char *word = argv[optind - 1];
    if (result == ':')
        return usage_error(command, "option '%s' needs a value", strncmp(word, "--", 2) == 0 ? word : letter);
    if (is_short && strncmp(word, "--", 2) != 0)
        return usage_error(command, "unknown option '%s'", letter);
    if (optopt)
        return usage_error(command, "option '%s' takes no value", word);
    return usage_error(command, "unknown or ambiguous option '%s'", word);
}

int output_finish(int code, int failure)
{
    errno = 0;
    bool failed = ferror(stdout) != 0;
    if (fflush(stdout) != 0)
        failed = true;
    int reason = errno;
    if (fclose(stdout) != 0 && !failed) {
        failed = true;
        reason = errno;
    }
    if (failed && reason != EPIPE)
        fprintf(stderr, "weir: cannot write to the standard output%s%s\n", reason ? ": " : "",
                reason ? strerror(reason) : "");
    return failed ? failure : code;
}

bool output_failed(void)
{
    return ferror(stdout) != 0;
}
