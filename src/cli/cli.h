/* cli.h - what the commands of the weir program have in common.
 *
 * The program uses only the public API: anything that it cannot do with weir/weir.h, the API lacks. Messages for people
 * go to stderr and begin with "weir:". stdout contains only the requested output.
 */
#ifndef WEIR_CLI_CLI_H
#define WEIR_CLI_CLI_H

#include "cli/span.h"

enum exit_code {
    EXIT_OK = 0,     /* done; try: allowed */
    EXIT_FAILED = 1, /* the input, the plot or the output failed; check: a bad line; try: denied */
    EXIT_ERROR = 2   /* wrong usage: the command line or a policy; try: any error; check: a file cannot be read */
};

/* Run a command with its own name as argv[0]; return the exit code. */
int command_replay(int argc, char **argv);
int command_suggest(int argc, char **argv);
int command_check(int argc, char **argv);
int command_try(int argc, char **argv);
int command_serve(int argc, char **argv);
int command_peek(int argc, char **argv);
int command_keys(int argc, char **argv);
int command_reset(int argc, char **argv);
int command_stats(int argc, char **argv);
int command_top(int argc, char **argv);
int command_watch(int argc, char **argv);
int command_reload(int argc, char **argv);

extern const char REPLAY_HELP[], SUGGEST_HELP[], CHECK_HELP[], TRY_HELP[], SERVE_HELP[], PEEK_HELP[], KEYS_HELP[],
    RESET_HELP[], STATS_HELP[], TOP_HELP[], WATCH_HELP[], RELOAD_HELP[];

/* Print a line to stderr: "weir: " and the message. */
__attribute__((format(printf, 1, 2))) void complain(const char *format, ...);

/* Complain that there is no memory left, and return EXIT_FAILED. */
static inline int out_of_memory(void)
{
    complain("out of memory");
    return EXIT_FAILED;
}

/* Complain with the command's name, and point to its help. Return EXIT_ERROR. */
__attribute__((format(printf, 2, 3))) int usage_error(const char *command, const char *format, ...);

/* Complain about the option that getopt_long() rejected; `result` is its return value, '?' or ':'. Return EXIT_ERROR.
 */
int option_error(const char *command, int result, char **argv);

/* Flush and close stdout. Return `code`, or `failure` if writing failed; a message says so unless the reader of a pipe
 * has gone. Every command that succeeds ends with this. */
int output_finish(int code, int failure);

/* True if writing to stdout has failed, so that continuing is useless. */
bool output_failed(void);

#endif
