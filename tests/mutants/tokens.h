/* tokens.h - C source as tokens, as far as mutator.c needs it: without comments and preprocessor lines. */
#ifndef TESTS_MUTANTS_TOKENS_H
#define TESTS_MUTANTS_TOKENS_H

#include <stdbool.h>
#include <stddef.h>

enum token_kind { TOKEN_WORD, TOKEN_NUMBER, TOKEN_TEXT, TOKEN_MARK };

struct token {
    const char *at; /* in the source */
    size_t len;
    size_t line;  /* from 1 */
    size_t match; /* the matching bracket's index, otherwise its own */
    enum token_kind kind;
    bool is_spaced; /* white space on both sides: after clang-format that is a binary operator */
};

struct source {
    char *text;
    size_t len;
    struct token *tokens;
    size_t count; /* without the empty token at the end */
};

/* End the program with a sentence if the file cannot be read or its brackets do not match. */
struct source source_read(const char *path);
void source_free(struct source *source);

bool token_is(const struct token *token, const char *text);
bool token_is_one_of(const struct token *token, const char *const *texts); /* ends with a NULL */

#endif
