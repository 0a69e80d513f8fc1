/* live.h - asks the control socket of a running process (options.control_socket, weir serve --control).
 *
 * The answers are lines of name=value words, see docs/operations.md. Numbers are decimal; a key has %XX for bytes that
 * would end a word; a policy is the rest of its line.
 */
#ifndef WEIR_CLI_LIVE_H
#define WEIR_CLI_LIVE_H

#include "cli/span.h"

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

/* What the command lines of stats, top, watch and reload have. */
struct live_options {
    const char *command, *socket;
    int64_t keys, turns; /* --keys, --turns; -1: not given */
    bool json, wants_help;
};

/* Read a command line. `has_keys`, `has_turns`: the command takes these options. */
int live_options_read(struct live_options *options, int argc, char **argv, bool has_keys, bool has_turns);

#endif
