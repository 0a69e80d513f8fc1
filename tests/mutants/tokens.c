/* tokens.c - splits C source into tokens. */
#include "tokens.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_DEPTH 256

bool token_is(const struct token *token, const char *text)
{
    return token->len == strlen(text) && memcmp(token->at, text, token->len) == 0;
}

bool token_is_one_of(const struct token *token, const char *const *texts)
{
    for (; *texts; texts++)
        if (token_is(token, *texts))
            return true;
    return false;
}

static void *must_have(void *memory)
{
    if (!memory) {
        fprintf(stderr, "mutator: out of memory\n");
        exit(2);
    }
    return memory;
}

static char *file_read(const char *path, size_t *len)
{
    FILE *file = fopen(path, "rb");
    if (!file) {
        perror(path);
        exit(2);
    }
    size_t room = 1 << 16;
    char *text = must_have(malloc(room));
    *len = 0;
    for (size_t got; (got = fread(text + *len, 1, room - 1 - *len, file)) > 0;) {
        *len += got;
        if (*len == room - 1)
            text = must_have(realloc(text, room *= 2));
    }
    if (ferror(file)) {
        perror(path);
        exit(2);
    }
    fclose(file);
    text[*len] = '\0';
    return text;
}

/* A backslash continues a line. */
static const char *line_end(const char *at)
{
    while (*at && *at != '\n')
        at += *at == '\\' && at[1] ? 2 : 1;
    return at;
}

/* Skip white space, comments and preprocessor lines. */
static const char *blank_end(const char *at, bool line_begins)
{
    for (;;) {
        if (*at == '\n')
            line_begins = true, at++;
        else if (isspace((unsigned char)*at))
            at++;
        else if (at[0] == '/' && at[1] == '/')
            at = line_end(at);
        else if (at[0] == '/' && at[1] == '*' && strstr(at + 2, "*/"))
            at = strstr(at + 2, "*/") + 2;
        else if (*at == '#' && line_begins)
            at = line_end(at);
        else
            return at;
    }
}

static const char *quoted_end(const char *at)
{
    const char quote = *at++;
    while (*at && *at != quote)
        at += *at == '\\' && at[1] ? 2 : 1;
    return *at ? at + 1 : at;
}

static size_t mark_len(const char *at)
{
    static const char *const marks[] = { "<<=", ">>=", "...", "->", "++", "--", "<<", ">>", "<=", ">=", "==",
                                         "!=",  "&&",  "||",  "+=", "-=", "*=", "/=", "%=", "&=", "|=", "^=" };
    for (size_t i = 0; i < sizeof marks / sizeof marks[0]; i++)
        if (strncmp(at, marks[i], strlen(marks[i])) == 0)
            return strlen(marks[i]);
    return 1;
}

static struct token token_at(const char *at)
{
    struct token token = { .at = at, .kind = TOKEN_MARK };
    const char *end = at;
    if (isalpha((unsigned char)*at) || *at == '_') {
        token.kind = TOKEN_WORD;
        while (isalnum((unsigned char)*end) || *end == '_')
            end++;
    } else if (isdigit((unsigned char)*at)) {
        token.kind = TOKEN_NUMBER;
        while (isalnum((unsigned char)*end) || *end == '.')
            end++;
    } else if (*at == '"' || *at == '\'') {
        token.kind = TOKEN_TEXT;
        end = quoted_end(at);
    } else {
        end += mark_len(at);
    }
    token.len = (size_t)(end - at);
    return token;
}

static void pair(const char *path, struct source *source)
{
    static const char opening[] = "([{", closing[] = ")]}";
    size_t open[MAX_DEPTH], depth = 0;
    for (size_t i = 0; i < source->count; i++) {
        struct token *token = &source->tokens[i];
        const bool is_one = token->kind == TOKEN_MARK && token->len == 1;
        token->match = i;
        if (is_one && strchr(opening, *token->at) && depth < MAX_DEPTH)
            open[depth++] = i;
        if (!is_one || !strchr(closing, *token->at))
            continue;
        if (depth == 0 || *source->tokens[open[depth - 1]].at != opening[strchr(closing, *token->at) - closing]) {
            fprintf(stderr, "%s:%zu: a bracket has no other\n", path, token->line);
            exit(2);
        }
        token->match = open[--depth];
        source->tokens[token->match].match = i;
    }
    if (depth > 0) {
        fprintf(stderr, "%s:%zu: a bracket has no other\n", path, source->tokens[open[depth - 1]].line);
        exit(2);
    }
}

struct source source_read(const char *path)
{
    struct source source = { .text = NULL };
    source.text = file_read(path, &source.len);
    source.tokens = must_have(calloc(source.len + 1, sizeof *source.tokens));
    size_t line = 1;
    for (const char *at = source.text, *last = at;;) {
        at = blank_end(at, at == source.text);
        for (; last < at; last++)
            line += *last == '\n';
        if (!*at) {
            source.tokens[source.count].at = at;
            break;
        }
        struct token token = token_at(at);
        token.line = line;
        token.is_spaced = at > source.text && isspace((unsigned char)at[-1]) && isspace((unsigned char)at[token.len]);
        source.tokens[source.count++] = token;
        at += token.len;
    }
    pair(path, &source);
    return source;
}

void source_free(struct source *source)
{
    free(source->tokens);
    free(source->text);
}
