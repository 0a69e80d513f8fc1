/* tokens.h - C source cut into tokens, as far as mutators.c needs it: no comments, no preprocessor lines. */
#ifndef TESTS_MUTANTS_TOKENS_H
#define TESTS_MUTANTS_TOKENS_H

#include <stdbool.h>
#include <stddef.h>

enum token_kind { TOKEN_WORD, TOKEN_NUMBER, TOKEN_TEXT, TOKEN_MARK };

struct token {
    const char *at; /* in the source */
    size_t len;
    size_t line;  /* from 1 */
    size_t match; /* a bracket's other one, else its own index */
    enum token_kind kind;
    bool is_spaced; /* white space on both sides: with clang-format a binary operator, not a unary one */
};

struct source {
    char *text;
    size_t len;
    struct token *tokens;
    size_t count; /* behind the last there is an empty token more */
};

/* Ends the program with a sentence if the file cannot be read or its brackets do not pair. */
struct source source_read(const char *path);
void source_free(struct source *source);

bool token_is(const struct token *token, const char *text);
bool token_is_one_of(const struct token *token, const char *const *texts); /* that end with a NULL */

#endif
