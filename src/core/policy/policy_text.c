/* policy_text.c - policies as text: an algorithm, then name=value words and the word `shadow`, each at most once; and
 * perhaps a comma and a candidate.
 *
 * Every refusal gives the column of the word's first byte, the word, and what is allowed in its place.
 */
#include "core/policy/plan.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

__extension__ typedef unsigned __int128 wide;

struct word {
    const char *text; /* not terminated */
    int len;
    int column; /* from 1 */
};

struct reader {
    const char *text, *at;
    int first_column; /* of text */
    struct message message;
    struct weir_policy policy;       /* the half that is being read */
    bool inherits;                   /* this half begins as a copy of the first one */
    struct word candidate;           /* the word that begins the second half; its text is NULL in the first */
    struct word seen[POLICY_FIELDS]; /* text is NULL until the field is read */
};

static const struct {
    const char *name;
    int64_t count;
} count_units[] = {
    { "", 1 },
    { "k", INT64_C(1000) },
    { "kB", INT64_C(1000) },
    { "M", INT64_C(1000000) },
    { "MB", INT64_C(1000000) },
    { "G", INT64_C(1000000000) },
    { "GB", INT64_C(1000000000) },
    { "T", INT64_C(1000000000000) },
    { "TB", INT64_C(1000000000000) },
    { "KiB", INT64_C(1) << 10 },
    { "MiB", INT64_C(1) << 20 },
    { "GiB", INT64_C(1) << 30 },
    { "TiB", INT64_C(1) << 40 },
};
enum { COUNT_UNITS = sizeof count_units / sizeof count_units[0] };

static bool text_is_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\r' || c == '\n';
}

/* True at a comma between the halves of a policy. One inside a word, as in 1,5k, is an error of that word. */
static bool text_is_comma(const char *at)
{
    static const char candidate[] = "candidate";
    return *at == ',' && (!at[1] || text_is_blank(at[1]) || strncmp(at + 1, candidate, sizeof candidate - 1) == 0);
}

/* Return the next word; its len is 0 at the end. Such a comma is a word. */
static struct word next_word(struct reader *reader)
{
    while (text_is_blank(*reader->at))
        reader->at++;
    struct word word = { .text = reader->at, .column = (int)(reader->at - reader->text) + reader->first_column };
    if (text_is_comma(reader->at))
        reader->at++;
    else
        while (*reader->at && !text_is_comma(reader->at) && !text_is_blank(*reader->at))
            reader->at++;
    word.len = (int)(reader->at - word.text);
    return word;
}

static bool word_is(const char *text, int len, const char *other)
{
    return (size_t)len == strlen(other) && memcmp(text, other, (size_t)len) == 0;
}

/* Write the fields of an algorithm to `list`: "limit, period, burst, debt, refill or align". */
static const char *field_list(enum weir_algorithm algorithm, char *list, size_t size)
{
    const char *names[POLICY_FIELDS];
    int count = 0;
    for (int id = 0; id < POLICY_FIELDS; id++)
        if (policy_fields[id].algorithms & (1u << algorithm) && policy_fields[id].kind != POLICY_WORD)
            names[count++] = policy_fields[id].name;
    size_t len = 0;
    for (int i = 0; i < count; i++)
        len += (size_t)snprintf(list + len, size - len, "%s%s", i == 0 ? "" : i == count - 1 ? " or " : ", ", names[i]);
    return list;
}

/* Return the algorithm that the word names, or -1. */
static int word_algorithm(struct word word)
{
    int i = POLICY_ALGORITHMS - 1;
    while (i >= 0 && !word_is(word.text, word.len, policy_algorithms[i]))
        i--;
    return i;
}

static int read_algorithm(struct reader *reader)
{
    const struct word word = next_word(reader);
    const int algorithm = word_algorithm(word);
    if (algorithm >= 0) {
        reader->policy.algorithm = (enum weir_algorithm)algorithm;
        return WEIR_OK;
    }
    return message_refuse(reader->message,
                          "column %d: \"%.*s\" is not an algorithm: token_bucket, fixed_window, sliding_window, "
                          "leaky_bucket, concurrency, unlimited or deny is expected",
                          word.column, word.len, word.text);
}

/* Read digits; *end is the first other byte. A number too large for int64_t becomes INT64_MAX. */
static int64_t read_digits(const char *text, const char *limit, const char **end)
{
    int64_t number = 0;
    for (; text < limit && *text >= '0' && *text <= '9'; text++) {
        if (__builtin_mul_overflow(number, 10, &number) || __builtin_add_overflow(number, *text - '0', &number))
            number = INT64_MAX;
    }
    *end = text;
    return number;
}

/* Return the number that a unit stands for, or 0. */
static int64_t unit_count(const char *text, int len)
{
    for (int i = 0; i < COUNT_UNITS; i++)
        if (word_is(text, len, count_units[i].name))
            return count_units[i].count;
    return 0;
}

int64_t policy_read_count(const char *text, const char *limit)
{
    const char *end, *first;
    int64_t part = 0, number;
    wide scale = 1;
    const int64_t whole = read_digits(text, limit, &end);
    if (end == text)
        return -1;
    if (end < limit && *end == '.') {
        first = end + 1;
        part = read_digits(first, limit, &end);
        if (end == first || end - first > 18)
            return -1;
        for (; first < end; first++)
            scale *= 10;
    }
    const int64_t unit = unit_count(end, (int)(limit - end));
    const wide parts = (wide)part * (wide)unit;
    if (unit == 0 || parts % scale != 0 || __builtin_mul_overflow(whole, unit, &number) ||
        __builtin_add_overflow(number, (int64_t)(parts / scale), &number))
        return -1;
    return number;
}

/* Return the microseconds of a unit, or 0. */
static int64_t unit_us(const char *text, int len)
{
    for (int i = 0; i < POLICY_TIME_UNITS; i++)
        if (word_is(text, len, policy_time_units[i].name))
            return policy_time_units[i].us;
    return 0;
}

int64_t policy_read_time(const char *text, const char *limit)
{
    const char *end;
    int64_t number;
    const int64_t digits = read_digits(text, limit, &end), unit = unit_us(end, (int)(limit - end));
    return end == text || unit == 0 || __builtin_mul_overflow(digits, unit, &number) ? -1 : number;
}

static int refuse_value(struct reader *reader, struct word word, const struct policy_field *field)
{
    char allowed[128];
    if (field->kind == POLICY_CHOICE)
        snprintf(allowed, sizeof allowed, "%s or %s", field->choices[0], field->choices[1]);
    else if (field->kind == POLICY_TIME)
        snprintf(allowed, sizeof allowed, "a whole number and us, ms, s, m, h or d, 1us to 366d,");
    else
        snprintf(allowed, sizeof allowed,
                 "a whole number, %" PRId64 " to %" PRId64 ", perhaps in k, M, G, T, KiB, MiB, GiB or TiB,", field->min,
                 field->max);
    return message_refuse(reader->message, "column %d: \"%.*s\": %s is expected after %s=", word.column, word.len,
                          word.text, allowed, field->name);
}

static int policy_read_value(struct reader *reader, struct word word, enum policy_field_id id)
{
    const struct policy_field *field = &policy_fields[id];
    if (field->kind == POLICY_WORD) {
        policy_set(&reader->policy, id, 1);
        return WEIR_OK;
    }
    const char *value = word.text + strlen(field->name) + 1;
    const char *limit = word.text + word.len;
    int64_t number = -1;

    if (field->kind == POLICY_CHOICE) {
        for (int i = 0; i < 2; i++)
            if (word_is(value, (int)(limit - value), field->choices[i]))
                number = i;
    } else if (field->kind == POLICY_COUNT) {
        number = policy_read_count(value, limit);
    } else {
        number = policy_read_time(value, limit);
    }
    if (number < field->min || number > field->max)
        return refuse_value(reader, word, field);
    policy_set(&reader->policy, id, number);
    return WEIR_OK;
}

static int read_field(struct reader *reader, struct word word)
{
    enum weir_algorithm algorithm = reader->policy.algorithm;
    const char *equals = memchr(word.text, '=', (size_t)word.len);
    int name_len = equals ? (int)(equals - word.text) : word.len;

    for (int id = 0; id < POLICY_FIELDS; id++) {
        const struct policy_field *field = &policy_fields[id];
        if (!equals != (field->kind == POLICY_WORD) || !word_is(word.text, name_len, field->name) ||
            !(field->algorithms & (1u << algorithm)))
            continue;
        if (reader->seen[id].text)
            return message_refuse(reader->message, "column %d: \"%.*s\": %s stands already at column %d", word.column,
                                  word.len, word.text, field->name, reader->seen[id].column);
        reader->seen[id] = word;
        return policy_read_value(reader, word, (enum policy_field_id)id);
    }
    char list[80];
    if (word_is(word.text, word.len, "candidate"))
        return message_refuse(reader->message, "column %d: \"candidate\": a comma is expected before it", word.column);
    if (algorithm == WEIR_UNLIMITED)
        return message_refuse(reader->message, "column %d: \"%.*s\": nothing is expected after unlimited", word.column,
                              word.len, word.text);
    return message_refuse(reader->message, "column %d: \"%.*s\" is not known to a %s: %s=..., or shadow, is expected",
                          word.column, word.len, word.text, policy_algorithms[algorithm],
                          field_list(algorithm, list, sizeof list));
}

/* Check what only the whole text shows: a field that is missing, or one that another makes meaningless. */
static int check_fields(struct reader *reader, struct word end)
{
    for (int id = 0; id < POLICY_FIELDS; id++) {
        const struct policy_field *field = &policy_fields[id];
        const struct word *seen = &reader->seen[id];
        if (field->required && !seen->text && !reader->inherits &&
            policy_field_applies(&reader->policy, (enum policy_field_id)id))
            return message_refuse(reader->message, "column %d: %s=... is missing", end.column, field->name);
        if (seen->text && !policy_field_applies(&reader->policy, (enum policy_field_id)id))
            return message_refuse(
                reader->message, "column %d: \"%.*s\": %s %s", seen->column, seen->len, seen->text, field->name,
                id == POLICY_PERCENT ? "cannot stand beside shadow" : "needs refill=interval in a token_bucket");
    }
    return WEIR_OK;
}

/* Make the checks that a policy from code gets, and add the column of the word at fault. */
static int check_whole(struct reader *reader)
{
    char sentence[256];
    enum policy_field_id fault;
    if (plan_check(&reader->policy, (struct message){ sentence, sizeof sentence }, &fault) == WEIR_OK)
        return WEIR_OK;
    const struct word *word = reader->seen[fault].text ? &reader->seen[fault] : &reader->candidate;
    return message_refuse(reader->message, "column %d: \"%.*s\": %s", word->column, word->len, word->text, sentence);
}

static bool word_is_comma(struct word word)
{
    return word.len == 1 && *word.text == ',';
}

/* Read the fields of a half and check them. *word is its first field, and then what ends it: nothing, or a comma. */
static int read_half(struct reader *reader, struct word *word)
{
    int error = WEIR_OK;
    for (; !error && word->len > 0 && !word_is_comma(*word); *word = error ? *word : next_word(reader))
        error = read_field(reader, *word);
    if (!error)
        error = check_fields(reader, *word);
    return error ? error : check_whole(reader);
}

/* Add the second half to the first, which fits one. */
static int add_candidate(struct reader *reader, const struct weir_policy *first, struct weir_policy *out)
{
    const struct weir_policy *half = &reader->policy;
    const struct word *word = &reader->candidate, *shadow = &reader->seen[POLICY_SHADOW];
    char sentence[256];
    enum policy_field_id fault;
    if (half->shadow)
        return message_refuse(reader->message, "column %d: \"shadow\": a candidate is a shadow already",
                              shadow->column);
    *out = *first;
    out->candidate = policy_as_candidate(half);
    if (half->limit != 0 && plan_check(out, (struct message){ sentence, sizeof sentence }, &fault) == WEIR_OK)
        return WEIR_OK;
    return message_refuse(reader->message, "column %d: \"candidate\": %s", word->column,
                          half->limit != 0 ? sentence : "neither unlimited nor deny can be one");
}

/* Read what follows the comma behind the first half. */
static int read_candidate(struct reader *reader, struct weir_policy *out)
{
    const struct weir_policy first = reader->policy;
    const struct word candidate = next_word(reader);
    if (!word_is(candidate.text, candidate.len, "candidate"))
        return message_refuse(reader->message, "column %d: \"%.*s\": the word candidate is expected after a comma",
                              candidate.column, candidate.len, candidate.text);
    if (first.shadow || first.percent)
        return message_refuse(reader->message, "column %d: \"%s\" cannot stand before a candidate",
                              reader->seen[first.shadow ? POLICY_SHADOW : POLICY_PERCENT].column,
                              first.shadow ? "shadow" : "percent");
    memset(reader->seen, 0, sizeof reader->seen);
    reader->candidate = candidate;
    struct word word = next_word(reader);
    const int algorithm = word_algorithm(word);
    reader->inherits = algorithm < 0;
    if (word.len == 0)
        return message_refuse(reader->message,
                              "column %d: a candidate's policy, or the fields that it changes, are "
                              "expected",
                              word.column);
    if (algorithm >= 0) {
        reader->policy = (struct weir_policy){ .algorithm = (enum weir_algorithm)algorithm };
        word = next_word(reader);
    }
    const int error = read_half(reader, &word);
    if (!error && word.len > 0)
        return message_refuse(reader->message, "column %d: \",\": a policy has one candidate", word.column);
    return error ? error : add_candidate(reader, &first, out);
}

int policy_read(const char *text, int first_column, struct weir_policy *out, struct message message)
{
    struct reader reader = { .text = text, .at = text, .first_column = first_column, .message = message };
    int error = read_algorithm(&reader);
    struct word word = { 0 };
    struct weir_policy policy;
    if (!error)
        word = next_word(&reader);
    if (!error)
        error = read_half(&reader, &word);
    policy = reader.policy;
    if (!error && word.len > 0)
        error = read_candidate(&reader, &policy);
    if (!error)
        *out = policy;
    return error;
}

int weir_policy_parse(const char *text, struct weir_policy *out, char *message, size_t message_size)
{
    struct message sentence = { message, message_size };
    if (!text || !out)
        return message_refuse(sentence, "%s must not be NULL", text ? "out" : "text");
    return policy_read(text, 1, out, sentence);
}
