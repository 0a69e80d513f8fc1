/* live.h - asks the control socket of a running process (options.control_socket, weir serve --control).
 *
 * The answers are lines of name=value words, see docs/operations.md. Numbers are decimal; a key has %XX for bytes that
 * would end a word; a policy is the rest of its line. Commands that also read the states in Redis or in a shared file
 * use states.c for that.
 */
#ifndef WEIR_CLI_LIVE_H
#define WEIR_CLI_LIVE_H

#include "cli/span.h"
#include "cli/store.h"

#define LIVE_TEXT_MAX (64 << 20) /* bytes of an answer: more than 65,536 limits need */

/* An answer, as lines that end with NUL. */
struct live_answer {
    char *text;
    size_t len;
};

/* Ask a request of at most three words; `key` is encoded if it is not NULL. Return EXIT_OK; or EXIT_FAILED after a
 * complaint. The caller frees the answer with live_free(), also after a failure. */
int live_ask(const char *path, const char *request, const char *key, struct live_answer *out);
void live_free(struct live_answer *answer);

/* Return the first line of the answer after `previous` (NULL: of all) that begins with the word `kind`; NULL: none. */
const char *live_next(const struct live_answer *answer, const char *previous, const char *kind);

/* Find the value of a field of a line. live_number() is 0 if there is none; live_rest() goes to the end of the line. */
struct span live_field(const char *line, const char *name);
uint64_t live_number(const char *line, const char *name);
const char *live_rest(const char *line, const char *name);

/* Decode a key in place and return it. */
struct span live_decode(char *text, struct span field);

/* Do weir peek and weir reset at a socket; return the exit status. */
int live_peek(const char *path, const char *limit, const char *key, bool json);
int live_reset(const char *path, const char *limit, const char *key, bool json);

/* Print a JSON object of the fields of a line: numbers, and as strings those named in `texts`, up to a NULL. */
void live_json(const char *line, const char *const *texts);

/* ---- The commands ---- */

/* The help that stats, top and watch share. */
#define LIVE_CONTROL_HELP \
    "      --control PATH\n"  \
    "                    the control socket of the process: weir_options.control_socket, or --control of weir serve\n"
#define LIVE_REDIS_HELP(scan)                                                                                 \
    STORE_REDIS_HELP "      --shared FILE a shared file, instead of Redis; a name without / is in /dev/shm\n" \
                     "      --limit LIMIT only this limit, in Redis or the file\n"                            \
                     "      --scan N      look at no more than about N keys\n"                                \
                     "                    of the server (default: " scan "; of a file all)\n"
#define LIVE_STATUS_HELP                                                                                   \
    "Exit status: 0 done, 1 nothing answers at the socket, or it answers with an error, or Redis or the\n" \
    "shared file cannot be used, 2 wrong usage, or another file cannot be read.\n"

#define LIVE_SCAN 1000000
#define LIVE_WATCH_SCAN 20000

/* The command line of stats, top, watch or reload. */
struct live_options {
    const char *command, *socket; /* socket NULL: Redis, or a shared file */
    struct store store;
    const char *limit;          /* NULL: any */
    int64_t keys, turns, every; /* --keys, --turns, --every; -1: not given */
    int64_t scan;               /* --scan; -1: not given */
    bool json, wants_help;
};

/* Groups of options that a command may have besides --control, --json and --help. */
enum live_part { LIVE_KEYS = 1, LIVE_TURNS = 2, LIVE_REDIS = 4 };

/* Read a command line that may have these parts. Return EXIT_OK, or EXIT_ERROR after a complaint. */
int live_options_read(struct live_options *options, int argc, char **argv, unsigned parts);

/* Do the command by the states in Redis or a shared file; return the exit status. */
int states_stats(const struct live_options *options);
int states_top(const struct live_options *options);
int states_watch(const struct live_options *options);

#endif
