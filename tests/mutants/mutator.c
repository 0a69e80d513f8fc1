/* mutator.c - finds places in C source where a small mistake could be made, and makes one of them.
 *
 *     mutator list [--sample N --seed S] FILE...    the mutants, one per line, with fields separated by tabs: file,
 *                                                   number, line, function, kind, the lines' text, and its
 *                                                   replacement;
 *                                                   for a value outside functions `name =` replaces the function
 *     mutator apply FILE NUMBER                     the file with that mistake
 *
 * A mutant's number is its place in its file. A file and a seed give the same mutants everywhere, and a sample
 * contains each mutant with the same probability. Texts have no comments, and single blanks as white space.
 *
 * Preprocessor lines, assertions, types, enumerators, array sizes, strings and characters are left alone.
 */
#include "tokens.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NAME_SIZE 64
#define TEXT_SIZE 4096

/* Tokens first .. last become `text`. */
struct mutant {
    const char *path;
    size_t number, line, first, last;
    const char *sort;
    char function[NAME_SIZE];
    char text[TEXT_SIZE], before[TEXT_SIZE], after[TEXT_SIZE];
};

struct mutants {
    struct mutant *all;
    size_t count, room;
};

/* The state of a search. */
struct search {
    const char *path;
    const struct source *source;
    struct mutants *found;
    size_t already; /* mutants found in earlier files */
    char function[NAME_SIZE];
    bool is_bool; /* the function's return type */
};

static void fail(const char *sentence)
{
    fprintf(stderr, "mutator: %s\n", sentence);
    exit(2);
}

static const struct token *token(const struct search *search, size_t i)
{
    return &search->source->tokens[i];
}

static bool is(const struct search *search, size_t i, const char *text)
{
    return token_is(token(search, i), text);
}

/* ---- Texts ---- */

static void text_add(char *text, const char *bytes, size_t len)
{
    const size_t used = strlen(text);
    if (used + len + 1 > TEXT_SIZE)
        fail("a statement is too long");
    memcpy(text + used, bytes, len);
    text[used + len] = '\0';
}

/* Copy tokens first .. last, with one blank where there is space. */
static void text_of(const struct search *search, size_t first, size_t last, char *text)
{
    for (size_t i = first; i <= last; i++) {
        text_add(text, token(search, i)->at, token(search, i)->len);
        if (i < last && token(search, i)->at + token(search, i)->len < token(search, i + 1)->at)
            text_add(text, " ", 1);
    }
}

/* Print the lines of a mutant, before and after. */
static void mutant_tell(const struct search *search, struct mutant *mutant)
{
    size_t first = mutant->first, last = mutant->last;
    while (first > 0 && token(search, first - 1)->line == token(search, mutant->first)->line)
        first--;
    while (last + 1 < search->source->count && token(search, last + 1)->line == token(search, mutant->last)->line)
        last++;
    text_of(search, first, last, mutant->before);
    if (first < mutant->first) {
        text_of(search, first, mutant->first - 1, mutant->after);
        const struct token *before = token(search, mutant->first - 1);
        if (before->at + before->len < token(search, mutant->first)->at)
            text_add(mutant->after, " ", 1);
    }
    text_add(mutant->after, mutant->text, strlen(mutant->text));
    if (mutant->last < last) {
        const struct token *end = token(search, mutant->last);
        if (end->at + end->len < token(search, mutant->last + 1)->at)
            text_add(mutant->after, " ", 1);
        text_of(search, mutant->last + 1, last, mutant->after);
    }
}

/* ---- Candidates ---- */

static void found(struct search *search, const char *sort, size_t first, size_t last, const char *text)
{
    struct mutants *mutants = search->found;
    if (mutants->count == mutants->room) {
        mutants->room = mutants->room ? 2 * mutants->room : 64;
        mutants->all = realloc(mutants->all, mutants->room * sizeof *mutants->all);
        if (!mutants->all)
            fail("out of memory");
    }
    struct mutant *mutant = &mutants->all[mutants->count++];
    *mutant = (struct mutant){
        .path = search->path,
        .number = mutants->count - search->already,
        .line = token(search, first)->line,
        .first = first,
        .last = last,
        .sort = sort,
    };
    memcpy(mutant->function, search->function, sizeof mutant->function);
    text_add(mutant->text, text, strlen(text));
    mutant_tell(search, mutant);
}

/* Replace a token by another, or by two. A binary operator has space around it; `&` and `*` may be unary. */
static const struct {
    const char *token, *instead[2];
    const char *sort;
    bool is_spaced;
} others[] = {
    { "<", { "<=", ">=" }, "bound", true },
    { "<=", { "<", ">" }, "bound", true },
    { ">", { ">=", "<=" }, "bound", true },
    { ">=", { ">", "<" }, "bound", true },
    { "==", { "!=" }, "equality", true },
    { "!=", { "==" }, "equality", true },
    { "+", { "-" }, "arithmetic", true },
    { "-", { "+" }, "arithmetic", true },
    { "*", { "/" }, "arithmetic", true },
    { "/", { "*" }, "arithmetic", true },
    { "%", { "/" }, "arithmetic", true },
    { "&&", { "||" }, "logic", true },
    { "||", { "&&" }, "logic", true },
    { "!", { "" }, "negation", false },
    { "&", { "|" }, "bits", true },
    { "|", { "&" }, "bits", true },
    { "^", { "|" }, "bits", true },
    { "<<", { ">>" }, "bits", true },
    { ">>", { "<<" }, "bits", true },
    { "+=", { "-=" }, "assignment", true },
    { "-=", { "+=" }, "assignment", true },
    { "|=", { "&=" }, "assignment", true },
    { "&=", { "|=" }, "assignment", true },
    { "^=", { "|=" }, "assignment", true },
    { "++", { "--" }, "assignment", false },
    { "--", { "++" }, "assignment", false },
    { "true", { "false" }, "constant", false },
    { "false", { "true" }, "constant", false },
    { "min_of", { "max_of" }, "bound", false },
    { "max_of", { "min_of" }, "bound", false },
    { "div_up", { "div_down" }, "rounding", false },
    { "div_down", { "div_up" }, "rounding", false },
};

static void look_at_token(struct search *search, size_t i)
{
    for (size_t j = 0; j < sizeof others / sizeof others[0]; j++) {
        if (!is(search, i, others[j].token) || (others[j].is_spaced && !token(search, i)->is_spaced))
            continue;
        for (size_t k = 0; k < 2 && others[j].instead[k]; k++)
            found(search, others[j].sort, i, i, others[j].instead[k]);
    }
}

/* Replace a whole number by the next one, and by the one before unless it is negative. */
static void look_at_number(struct search *search, size_t i)
{
    char text[NAME_SIZE] = "", other[NAME_SIZE + 32], *suffix;
    if (token(search, i)->len >= sizeof text || memchr(token(search, i)->at, '.', token(search, i)->len))
        return;
    memcpy(text, token(search, i)->at, token(search, i)->len);
    const unsigned long long number = strtoull(text, &suffix, 0);
    snprintf(other, sizeof other, "%llu%s", number + 1, suffix);
    found(search, "constant", i, i, other);
    if (number == 0)
        return;
    snprintf(other, sizeof other, "%llu%s", number - 1, suffix);
    found(search, "constant", i, i, other);
}

/* ---- Conditions ---- */

static const char *const comparisons[] = { "<", "<=", ">", ">=", "==", "!=", NULL };
static const char *const joints[] = { "&&", "||", "?", ":", NULL };

/* Return the first of those tokens in lo .. hi-1 outside any brackets that open there, nor behind one that opened
 * before lo; otherwise hi. */
static size_t find_in(const struct search *search, size_t lo, size_t hi, const char *const *texts)
{
    for (size_t i = lo; i < hi; i++) {
        if (token_is_one_of(token(search, i), texts))
            return i;
        if (token(search, i)->match < lo)
            break;
        if (token(search, i)->match > i)
            i = token(search, i)->match;
    }
    return hi;
}

/* Negate each part of the condition lo .. hi-1 that no other kind covers: not a comparison, and not negated.
 * Conditions before a question mark are handled there. */
static void look_at_condition(struct search *search, size_t lo, size_t hi)
{
    while (hi - lo > 2 && is(search, lo, "(") && token(search, lo)->match == hi - 1)
        lo++, hi--;
    const size_t joint = find_in(search, lo, hi, joints);
    if (joint < hi) {
        if (!is(search, joint, "?"))
            look_at_condition(search, lo, joint);
        look_at_condition(search, joint + 1, hi);
        return;
    }
    if (lo >= hi || is(search, lo, "!") || find_in(search, lo, hi, comparisons) < hi)
        return;
    if (hi - lo == 1 && (token(search, lo)->kind == TOKEN_NUMBER || is(search, lo, "true") || is(search, lo, "false")))
        return;
    char text[TEXT_SIZE] = "!(";
    text_of(search, lo, hi - 1, text);
    text_add(text, ")", 1);
    found(search, "negation", lo, hi - 1, text);
}

/* Handle the condition of a question mark, from the last token that it cannot extend over. */
static void look_before_question(struct search *search, size_t question)
{
    static const char *const ends[] = { "=", "+=", "-=", "|=", ",", ";", "?", ":", "return", "(", "[", "{", "}", NULL };
    size_t lo = question;
    while (lo > 0 && !token_is_one_of(token(search, lo - 1), ends)) {
        lo--;
        lo = token(search, lo)->match < lo ? token(search, lo)->match : lo;
    }
    look_at_condition(search, lo, question);
}

static size_t end_of_statement(const struct search *search, size_t i)
{
    static const char *const semicolon[] = { ";", NULL };
    return find_in(search, i, search->source->count, semicolon);
}

static void look_at_keyword(struct search *search, size_t i)
{
    static const char *const semicolon[] = { ";", NULL };
    const size_t open = i + 1;
    if (is(search, i, "if") || is(search, i, "while")) {
        look_at_condition(search, open + 1, token(search, open)->match);
    } else if (is(search, i, "for")) {
        const size_t close = token(search, open)->match;
        const size_t lo = find_in(search, open + 1, close, semicolon) + 1;
        look_at_condition(search, lo, find_in(search, lo, close, semicolon));
    } else if (is(search, i, "return") && search->is_bool) {
        look_at_condition(search, i + 1, end_of_statement(search, i));
    } else if (is(search, i, "?")) {
        look_before_question(search, i);
    }
}

/* ---- Statements ---- */

static const char *const never_deleted[] = { "if",     "for",     "while",  "do",     "else",   "switch",
                                             "case",   "return",  "const",  "enum",   "struct", "union",
                                             "static", "int",     "char",   "void",   "bool",   "unsigned",
                                             "long",   "default", "assert", "double", "extern", NULL };

/* `type name`, `type *name` */
static bool is_declaration(const struct search *search, size_t i)
{
    static const char *const types[] = { "const", "enum", "struct",   "union", "static", "int",    "char",
                                         "bool",  "void", "unsigned", "long",  "double", "extern", NULL };
    if (token_is_one_of(token(search, i), types))
        return true;
    if (token(search, i)->kind != TOKEN_WORD || token_is_one_of(token(search, i), never_deleted))
        return false;
    while (is(search, i + 1, "*") && !token(search, i + 1)->is_spaced)
        i++;
    return token(search, i + 1)->kind == TOKEN_WORD;
}

static void look_at_statement(struct search *search, size_t i)
{
    const bool begins_one = token(search, i)->kind == TOKEN_WORD || is(search, i, "*") || is(search, i, "++") ||
                            is(search, i, "--");
    const bool is_return = is(search, i, "return") && is(search, i + 1, ";");
    const size_t end = end_of_statement(search, i);
    if (!begins_one || (token_is_one_of(token(search, i), never_deleted) && !is_return))
        return;
    if (is(search, i + 1, ":") || end == search->source->count)
        return;
    if (token(search, i)->kind == TOKEN_WORD && is(search, i + 1, "(") &&
        is(search, token(search, i + 1)->match + 1, "{"))
        return; /* a macro's loop */
    found(search, "deletion", i, end, "(void)0;");
}

/* True if the round bracket that ends at `i` belongs to a statement. */
static bool is_head(const struct search *search, size_t i)
{
    static const char *const heads[] = { "if", "for", "while", "switch", "HASH_ITER", "DL_FOREACH", NULL };
    const size_t open = token(search, i)->match;
    return open > 0 && is(search, i, ")") && token_is_one_of(token(search, open - 1), heads);
}

/* True if a statement begins at `i`, in the body that begins at `lo`. A brace after an operator or a type begins an
 * initialiser. */
static bool statement_begins(const struct search *search, size_t lo, size_t i)
{
    if (i == lo)
        return true;
    const size_t before = i - 1;
    if (is(search, before, ";") || is(search, before, "else") || is(search, before, "do"))
        return true;
    if (is(search, before, "{")) {
        static const char *const blocks[] = { "else", "do", ";", "}", ":", NULL };
        return before == lo || is_head(search, before - 1) || token_is_one_of(token(search, before - 1), blocks);
    }
    if (is(search, before, "}"))
        return !is(search, i, ",") && !is(search, i, ";") && !is(search, i, ")") && !is(search, i, "}");
    if (is(search, before, ")"))
        return is_head(search, before);
    if (is(search, before, ":")) { /* after a label, not in an expression */
        static const char *const ends[] = { ";", "{", "}", ":", NULL };
        size_t label = before;
        while (label > lo && !token_is_one_of(token(search, label - 1), ends) && !is(search, label - 1, "?"))
            label--;
        return is(search, label, "case") || is(search, label, "default") ||
               (label + 1 == before && token_is_one_of(token(search, label - 1), ends));
    }
    return false;
}

/* ---- Bodies ---- */

/* Search tokens lo .. hi-1: a function's body or an initial value. */
static void look_through(struct search *search, size_t lo, size_t hi, bool is_body)
{
    static const char *const asserting[] = { "assert", "_Static_assert", "static_assert", NULL };
    bool is_declaring = false; /* in a declaration, before its value */
    size_t head_end = 0;       /* a loop's head contains no statements */
    for (size_t i = lo; i < hi; i++) {
        if (token_is_one_of(token(search, i), asserting)) {
            i = token(search, i + 1)->match;
            continue;
        }
        if (is(search, i, "for"))
            head_end = token(search, i + 1)->match;
        if (is_body && i >= head_end && statement_begins(search, lo, i)) {
            is_declaring = is_declaration(search, i);
            if (!is_declaring)
                look_at_statement(search, i);
            else if (is(search, i, "bool") || (is(search, i, "const") && is(search, i + 1, "bool"))) {
                static const char *const equals[] = { "=", NULL };
                const size_t end = end_of_statement(search, i), equal = find_in(search, i, end, equals);
                look_at_condition(search, equal < end ? equal + 1 : end, end);
            }
        }
        if (is(search, i, "=") || is(search, i, ";"))
            is_declaring = false;
        look_at_keyword(search, i);
        look_at_token(search, i);
        if (token(search, i)->kind == TOKEN_NUMBER && !is_declaring)
            look_at_number(search, i);
    }
}

static void name_it(struct search *search, const struct token *name, const char *suffix)
{
    snprintf(search->function, sizeof search->function, "%.*s%s", (int)name->len, name->at, suffix);
}

/* Return a function's name: the word before the first bracket that is not a macro's or an attribute's. */
static bool is_function_name(const struct search *search, size_t i)
{
    const struct token *name = token(search, i);
    bool is_lower = false;
    for (size_t j = 0; j < name->len; j++)
        is_lower = is_lower || (name->at[j] >= 'a' && name->at[j] <= 'z');
    return name->kind == TOKEN_WORD && is(search, i + 1, "(") && is_lower && *name->at != '_';
}

static void look_at_file(struct search *search)
{
    const size_t count = search->source->count;
    size_t begin = 0, name = count;
    search->already = search->found->count;
    for (size_t i = 0; i < count; i++) {
        if (name == count && is_function_name(search, i)) {
            name = i;
            name_it(search, token(search, i), "");
        }
        if (is(search, i, "=")) {
            const size_t last = is(search, i - 1, "]") ? token(search, i - 1)->match - 1 : i - 1;
            const size_t end = end_of_statement(search, i);
            name_it(search, token(search, last), " =");
            search->is_bool = false;
            look_through(search, i + 1, end, false);
            i = end;
        } else if (is(search, i, "{") && name < count) {
            search->is_bool = false;
            for (size_t j = begin; j < name; j++)
                search->is_bool = search->is_bool || is(search, j, "bool");
            look_through(search, i + 1, token(search, i)->match, true);
        }
        if (token(search, i)->match > i)
            i = token(search, i)->match;
        if (is(search, i, ";") || is(search, i, "}")) {
            begin = i + 1;
            name = count;
        }
    }
}

static void look_at_path(const char *path, struct mutants *mutants)
{
    const struct source source = source_read(path);
    struct search search = { .path = path, .source = &source, .found = mutants };
    look_at_file(&search);
    struct source gone = source;
    source_free(&gone);
}

/* ---- Commands ---- */

static void list_one(const struct mutant *mutant)
{
    printf("%s\t%zu\t%zu\t%s\t%s\t%s\t%s\n", mutant->path, mutant->number, mutant->line, mutant->function, mutant->sort,
           mutant->before, mutant->after);
}

/* SplitMix64 (Steele, Lea, Flood, 2014). */
static uint64_t random_next(uint64_t *state)
{
    uint64_t mixed = *state += UINT64_C(0x9e3779b97f4a7c15);
    mixed = (mixed ^ (mixed >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    mixed = (mixed ^ (mixed >> 27)) * UINT64_C(0x94d049bb133111eb);
    return mixed ^ (mixed >> 31);
}

/* Choose `most` of them at random and in order: each with the number still wanted over the number still to come. */
static void list_sample(const struct mutants *mutants, size_t most, uint64_t seed)
{
    size_t wanted = most < mutants->count ? most : mutants->count;
    for (size_t i = 0; i < mutants->count; i++) {
        if (random_next(&seed) % (mutants->count - i) >= wanted)
            continue;
        list_one(&mutants->all[i]);
        wanted--;
    }
}

static void apply(const char *path, size_t number)
{
    struct mutants mutants = { .all = NULL };
    look_at_path(path, &mutants);
    if (number == 0 || number > mutants.count)
        fail("there is no mutant of that number");
    const struct mutant *mutant = &mutants.all[number - 1];
    struct source source = source_read(path);
    const struct token *first = &source.tokens[mutant->first], *last = &source.tokens[mutant->last];
    const char *rest = last->at + last->len;
    fwrite(source.text, 1, (size_t)(first->at - source.text), stdout);
    fputs(mutant->text, stdout);
    fwrite(rest, 1, (size_t)(source.text + source.len - rest), stdout);
    source_free(&source);
    free(mutants.all);
}

static uint64_t number_of(const char *text)
{
    char *end;
    const uint64_t number = strtoull(text, &end, 10);
    if (*text < '0' || *text > '9' || *end != '\0')
        fail("a number is expected");
    return number;
}

int main(int argc, char **argv)
{
    struct mutants mutants = { .all = NULL };
    uint64_t seed = 0;
    size_t sample = SIZE_MAX;
    int i = 2;
    if (argc == 4 && strcmp(argv[1], "apply") == 0) {
        apply(argv[2], number_of(argv[3]));
        return 0;
    }
    if (argc < 3 || strcmp(argv[1], "list") != 0)
        fail("usage: mutator list [--sample N --seed S] FILE... | mutator apply FILE NUMBER");
    if (argc > 6 && strcmp(argv[2], "--sample") == 0 && strcmp(argv[4], "--seed") == 0) {
        sample = number_of(argv[3]);
        seed = number_of(argv[5]);
        i = 6;
    }
    for (; i < argc; i++)
        look_at_path(argv[i], &mutants);
    list_sample(&mutants, sample, seed);
    free(mutants.all);
    return fflush(stdout) == 0 ? 0 : 2;
}
