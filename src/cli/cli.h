/* cli.h - what the commands of the weir program have in common.
 *
 * The program sees the public API alone: what it cannot do with weir/weir.h, the API lacks. Messages for people go to
 * stderr and begin with "weir:"; stdout has nothing but what was asked for.
 */
#ifndef WEIR_CLI_CLI_H
#define WEIR_CLI_CLI_H

#include "cli/span.h"

enum exit_code {
    EXIT_OK = 0,     /* done; try: allowed */
    EXIT_FAILED = 1, /* it could not be done: input, plot or output; check: a bad line; try: denied */
    EXIT_ERROR = 2   /* wrong use: the command line or a policy; try: any error; check: a file that cannot be read */
};

/* Each command gets its own name as argv[0] and returns the exit code. */
int command_replay(int argc, char **argv);
int command_check(int argc, char **argv);
int command_try(int argc, char **argv);

extern const char REPLAY_HELP[], CHECK_HELP[], TRY_HELP[];

/* A line on stderr: "weir: " and the message. */
__attribute__((format(printf, 1, 2))) void complain(const char *format, ...);

/* As complain(), with the command's name, and where to look for help. Returns EXIT_ERROR. */
__attribute__((format(printf, 2, 3))) int usage_error(const char *command, const char *format, ...);

/* Say which option getopt_long() stumbled over: `result` is what it returned, '?' or ':'. Returns EXIT_ERROR. */
int option_error(const char *command, int result, char **argv);

/* Write out what stdout still holds. `code` if that works; otherwise `failure`, with a message unless the reader of a
 * pipe has gone. Every command that succeeds ends with this. */
int output_finish(int code, int failure);

/* Whether output has failed already, so that going on is of no use. */
bool output_failed(void);

#endif
