/* test_policy.c - policies as text and in files: parsing, refusals with their messages, printing. */
#include "support.h"

#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static bool same_policy(const struct weir_policy *a, const struct weir_policy *b)
{
    return a->algorithm == b->algorithm && a->refill == b->refill && a->align == b->align && a->blocks == b->blocks &&
           a->limit == b->limit && a->period_us == b->period_us && a->burst == b->burst && a->debt == b->debt &&
           a->capacity == b->capacity;
}

/* ---- Text ---- */

TEST(valid_policy_texts_are_read, 10)
{
    static const struct {
        const char *text;
        struct weir_policy policy;
    } table[] = {
        { "token_bucket limit=100 period=1s burst=200", { .limit = 100, .period_us = WEIR_SECOND, .burst = 200 } },
        { "token_bucket limit=10 period=1m refill=interval debt=5",
          { .limit = 10, .period_us = WEIR_MINUTE, .refill = WEIR_INTERVAL, .debt = 5 } },
        { "token_bucket limit=10 period=1m refill=interval align=epoch",
          { .limit = 10, .period_us = WEIR_MINUTE, .refill = WEIR_INTERVAL, .align = WEIR_ALIGN_EPOCH } },
        { "token_bucket align=first refill=interval period=7us limit=1",
          { .limit = 1, .period_us = 7, .refill = WEIR_INTERVAL } },
        { "token_bucket limit=1 period=1s refill=greedy debt=0", { .limit = 1, .period_us = WEIR_SECOND } },
        { "fixed_window limit=1000 period=1h align=epoch",
          { .algorithm = WEIR_FIXED_WINDOW, .limit = 1000, .period_us = WEIR_HOUR, .align = WEIR_ALIGN_EPOCH } },
        { "sliding_window limit=100 period=1m blocks=60",
          { .algorithm = WEIR_SLIDING_WINDOW, .limit = 100, .period_us = WEIR_MINUTE, .blocks = 60 } },
        { "leaky_bucket limit=50 period=1s capacity=100",
          { .algorithm = WEIR_LEAKY_BUCKET, .limit = 50, .period_us = WEIR_SECOND, .capacity = 100 } },
        { "concurrency limit=20 hold=30s",
          { .algorithm = WEIR_CONCURRENCY, .limit = 20, .period_us = 30 * WEIR_SECOND } },
        { "concurrency hold=1m limit=20 shadow",
          { .algorithm = WEIR_CONCURRENCY, .limit = 20, .period_us = WEIR_MINUTE, .shadow = 1 } },
        { "unlimited", { .algorithm = WEIR_UNLIMITED } },
        { " deny ", { .algorithm = WEIR_DENY } },
        { "deny shadow", { .algorithm = WEIR_DENY, .shadow = 1 } },
        { "deny percent=5", { .algorithm = WEIR_DENY, .percent = 5 } },
        { "  fixed_window\tlimit=1 \r\n period=366d \t",
          { .algorithm = WEIR_FIXED_WINDOW, .limit = 1, .period_us = 366 * WEIR_DAY } },
        { "fixed_window limit=000001000000000 period=12ms",
          { .algorithm = WEIR_FIXED_WINDOW, .limit = 1000000000, .period_us = 12000 } },
    };
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        struct weir_policy policy;
        char message[256] = "";
        memset(&policy, 0x5a, sizeof policy);
        ck_assert_msg(weir_policy_parse(table[i].text, &policy, message, sizeof message) == WEIR_OK, "%s: %s",
                      table[i].text, message);
        ck_assert_msg(same_policy(&policy, &table[i].policy), "%s", table[i].text);
    }
}

TEST(a_number_of_permits_may_have_a_unit, 10)
{
    static const struct {
        const char *number;
        int64_t permits; /* 0: refused */
    } table[] = {
        { "1.5k", 1500 },
        { "50MB", 50000000 },
        { "50M", 50000000 },
        { "1kB", 1000 },
        { "1G", 1000000000 },
        { "0.5GB", 500000000 },
        { "0.0000001T", 100000 },
        { "0.001TB", 1000000000 },
        { "1KiB", 1024 },
        { "0.5KiB", 512 },
        { "1.25MiB", 1310720 },
        { "0.25GiB", 268435456 },
        { "0.000030517578125TiB", 33554432 },
        { "1.50k", 1500 },
        { "7.0", 7 },
        { "0.000000000000000001k", 0 },
        { "1.0000000000000000000k", 0 }, /* 19 digits */
        { "1.0005k", 0 },
        { "0.3KiB", 0 },
        { "1.k", 0 },
        { ".5k", 0 },
        { "1,5k", 0 },
        { "k", 0 },
        { "1K", 0 },
        { "1KB", 0 },
        { "1mb", 0 },
        { "1m", 0 },
        { "1B", 0 },
        { "1Ki", 0 },
        { "1kiB", 0 },
        { "1MBB", 0 },
        { "1MiBs", 0 },
        { "0k", 0 },
        { "-1k", 0 },
        { "9223372036854775807k", 0 },
        { "99999999999999999999.5k", 0 },
        { "9223372036854775807.5k", 0 },
    };
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        struct weir_policy policy;
        char text[96], message[256] = "", printed[320];
        snprintf(text, sizeof text, "token_bucket burst=%s limit=1 period=1s", table[i].number);
        const int error = weir_policy_parse(text, &policy, message, sizeof message);
        if (table[i].permits == 0) {
            ck_assert_msg(error == WEIR_EINVAL && strstr(message, table[i].number) && strstr(message, "column 14") &&
                              strstr(message, "a whole number, 1 to ") && strstr(message, "KiB"),
                          "%s: %s", text, message);
            continue;
        }
        ck_assert_msg(error == WEIR_OK && policy.burst == table[i].permits, "%s: %s", text, message);
        must_succeed(weir_policy_print(&policy, printed, sizeof printed));
        snprintf(text, sizeof text, "token_bucket limit=1 period=1s burst=%" PRId64, table[i].permits);
        ck_assert_str_eq(printed, text);
    }
    struct weir_policy policy;
    must_succeed(weir_policy_parse("leaky_bucket limit=1k period=1s capacity=2kB", &policy, NULL, 0));
    ck_assert(policy.limit == 1000 && policy.capacity == 2000);
    must_succeed(weir_policy_parse("token_bucket limit=1k period=1s debt=1KiB", &policy, NULL, 0));
    ck_assert(policy.limit == 1000 && policy.debt == 1024);
}

TEST(a_syntax_error_gives_the_word_its_column_and_what_is_allowed, 10)
{
    static const struct {
        const char *text;
        int column;
        const char *word, *allowed;
    } table[] = {
        { "", 1, "", "token_bucket, fixed_window, sliding_window" },
        { "   ", 4, "", "leaky_bucket" },
        { "tokenbucket limit=1 period=1s", 1, "\"tokenbucket\"", "token_bucket" },
        { "  Token_bucket limit=1", 3, "\"Token_bucket\"", "token_bucket" },
        { "token_bucket", 13, "", "limit" },
        { "token_bucket limit=1", 21, "", "period" },
        { "token_bucket period=1s", 23, "", "limit" },
        { "token_bucket limit=1 period=1s speed=3", 32, "\"speed=3\"",
          "limit, period, burst, debt, refill, align or percent=..., or shadow" },
        { "token_bucket limit=1 period=1s capacity=3", 32, "\"capacity=3\"", "burst" },
        { "fixed_window limit=1 period=1s burst=3", 32, "\"burst=3\"", "limit, period, align or percent" },
        { "sliding_window limit=1 period=1s align=epoch", 34, "\"align=epoch\"", "blocks" },
        { "concurrency limit=1", 20, "", "hold" },
        { "concurrency limit=1 period=1s", 21, "\"period=1s\"", "limit, hold or percent" },
        { "concurrency limit=1 hold=1s blocks=4", 29, "\"blocks=4\"", "limit, hold or percent" },
        { "fixed_window limit=1 hold=1s", 22, "\"hold=1s\"", "limit, period, align or percent" },
        { "concurrency limit=1 hold=367d", 21, "\"hold=367d\"", "366d" },
        { "unlimited limit=1", 11, "\"limit=1\"", "nothing is expected after unlimited" },
        { "unlimited shadow", 11, "\"shadow\"", "nothing is expected after unlimited" },
        { "unlimited percent=5", 11, "\"percent=5\"", "nothing is expected after unlimited" },
        { "deny limit=1", 6, "\"limit=1\"", "percent=..., or shadow, is expected" },
        { "deny shadow percent=5", 13, "\"percent=5\"", "cannot stand beside shadow" },
        { "Deny", 1, "\"Deny\"", "unlimited or deny" },
        { "leaky_bucket limit=1 period=1s debt=3", 32, "\"debt=3\"", "capacity" },
        { "token_bucket limit", 14, "\"limit\"", "limit" },
        { "token_bucket limit= period=1s", 14, "\"limit=\"", "1 to 8796093022208" },
        { "token_bucket limit=0 period=1s", 14, "\"limit=0\"", "1 to 8796093022208" },
        { "token_bucket limit=-1 period=1s", 14, "\"limit=-1\"", "1 to 8796093022208" },
        { "token_bucket limit=+1 period=1s", 14, "\"limit=+1\"", "whole number" },
        { "token_bucket limit=1e3 period=1s", 14, "\"limit=1e3\"", "whole number" },
        { "token_bucket limit=0x10 period=1s", 14, "\"limit=0x10\"", "whole number" },
        { "token_bucket limit=1.5 period=1s", 14, "\"limit=1.5\"", "whole number" },
        { "token_bucket limit=8796093022209 period=1s", 14, "\"limit=8796093022209\"", "1 to 8796093022208" },
        { "token_bucket limit=99999999999999999999 period=1s", 14, "\"limit=99999999999999999999\"",
          "1 to 8796093022208" },
        { "token_bucket limit=18446744073709551617 period=1s", 14, "\"limit=18446744073709551617\"", "1 to" },
        { "token_bucket limit=1 period=1", 22, "\"period=1\"", "us, ms, s, m, h or d" },
        { "token_bucket limit=1 period=s", 22, "\"period=s\"", "us, ms, s, m, h or d" },
        { "token_bucket limit=1 period=1S", 22, "\"period=1S\"", "us, ms, s, m, h or d" },
        { "token_bucket limit=1 period=0s", 22, "\"period=0s\"", "366d" },
        { "token_bucket limit=1 period=367d", 22, "\"period=367d\"", "366d" },
        { "token_bucket limit=1 period=1.5s", 22, "\"period=1.5s\"", "whole number" },
        { "token_bucket limit=1 period=9223372036854775807d", 22, "period=", "366d" },
        { "token_bucket limit=1 period=1s limit=2", 32, "\"limit=2\"", "column 14" },
        { "token_bucket limit=1 period=1s limit=1", 32, "\"limit=1\"", "column 14" },
        { "token_bucket limit=1 period=1s refill=slow", 32, "\"refill=slow\"", "greedy or interval" },
        { "token_bucket limit=1 period=1s align=epoch", 32, "\"align=epoch\"", "refill=interval" },
        { "token_bucket align=first limit=1 period=1s", 14, "\"align=first\"", "refill=interval" },
        { "token_bucket limit=1 period=1s shadow=1", 32, "\"shadow=1\"", "or shadow" },
        { "token_bucket shadow limit=1 period=1s shadow", 39, "\"shadow\"", "column 14" },
        { "fixed_window limit=1 period=1s percent", 32, "\"percent\"", "percent=..." },
        { "fixed_window limit=1 period=1s percent=0", 32, "\"percent=0\"", "1 to 100" },
        { "fixed_window limit=1 period=1s percent=101", 32, "\"percent=101\"", "1 to 100" },
        { "fixed_window percent=5 limit=1 period=1s shadow", 14, "\"percent=5\"", "beside shadow" },
        { "fixed_window limit=1 period=1s align=", 32, "\"align=\"", "first or epoch" },
        { "sliding_window limit=1 period=1s blocks=1025", 34, "\"blocks=1025\"", "1 to 1024" },
        { "sliding_window limit=1 period=1s blocks=0", 34, "\"blocks=0\"", "1 to 1024" },
        { "token_bucket limit=1 period=366d burst=1000", 34, "\"burst=1000\"", "142 years" },
        { "token_bucket limit=1 period=1s \xff", 32, "\"\xff\"", "expected" },
        { "token_bucket limit=1 period=1s =", 32, "\"=\"", "expected" },
        { "token_bucket limit=1\n\rperiod=1", 23, "\"period=1\"", "whole number" },
    };
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        struct weir_policy policy, untouched;
        char message[512] = "", column[32], tiny[5];
        memset(&untouched, 0x5a, sizeof untouched);
        policy = untouched;
        snprintf(column, sizeof column, "column %d:", table[i].column);
        ck_assert_msg(weir_policy_parse(table[i].text, &policy, message, sizeof message) == WEIR_EINVAL,
                      "\"%s\" is read", table[i].text);
        ck_assert_msg(strstr(message, column) && strstr(message, table[i].word) && strstr(message, table[i].allowed),
                      "\"%s\" gives not %s %s, %s, but \"%s\"", table[i].text, column, table[i].word, table[i].allowed,
                      message);
        ck_assert_int_eq(memcmp(&policy, &untouched, sizeof policy), 0);
        ck_assert_int_eq(weir_policy_parse(table[i].text, &policy, tiny, sizeof tiny), WEIR_EINVAL);
        ck_assert_uint_eq(strlen(tiny), sizeof tiny - 1);
        ck_assert_int_eq(weir_policy_parse(table[i].text, &policy, NULL, 0), WEIR_EINVAL);
    }
    struct weir_policy policy;
    ck_assert_int_eq(weir_policy_parse(NULL, &policy, NULL, 0), WEIR_EINVAL);
    ck_assert_int_eq(weir_policy_parse("fixed_window limit=1 period=1s", NULL, NULL, 0), WEIR_EINVAL);
}

TEST(a_policy_is_printed_in_its_shortest_text, 10)
{
    static const char *const texts[] = {
        "token_bucket limit=100 period=1s",
        "token_bucket limit=100 period=1s burst=200 debt=7",
        "token_bucket limit=10 period=1m refill=interval align=epoch",
        "fixed_window limit=1000 period=1h",
        "sliding_window limit=100 period=1d blocks=60",
        "leaky_bucket limit=50 period=1ms capacity=100",
        "concurrency limit=20 hold=30s",
        "fixed_window limit=1 period=1001us",
        "fixed_window limit=1 period=1001ms",
        "fixed_window limit=1 period=61s",
        "fixed_window limit=1 period=61m",
        "fixed_window limit=1 period=25h",
        "fixed_window limit=1 period=366d",
    };
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        struct weir_policy policy = policy_of(texts[i]);
        char text[320];
        must_succeed(weir_policy_print(&policy, text, sizeof text));
        ck_assert_str_eq(text, texts[i]);
    }
    static const char *const longer[][2] = {
        { "token_bucket limit=1 period=1000000us refill=greedy debt=0", "token_bucket limit=1 period=1s" },
        { "fixed_window align=first period=3600000ms limit=01", "fixed_window limit=1 period=1h" },
        { "token_bucket refill=interval align=first limit=1 period=48h",
          "token_bucket limit=1 period=2d refill=interval" },
    };
    for (size_t i = 0; i < sizeof longer / sizeof longer[0]; i++) {
        struct weir_policy policy = policy_of(longer[i][0]);
        char text[320];
        must_succeed(weir_policy_print(&policy, text, sizeof text));
        ck_assert_str_eq(text, longer[i][1]);
    }
}

TEST(a_text_that_does_not_fit_is_refused_without_an_overflow, 10)
{
    struct weir_policy policy = policy_of("leaky_bucket limit=50 period=1ms capacity=100");
    char text[320], small[320];
    must_succeed(weir_policy_print(&policy, text, sizeof text));
    size_t len = strlen(text);
    for (size_t size = 0; size <= len + 1; size++) {
        memset(small, '#', sizeof small);
        ck_assert_int_eq(weir_policy_print(&policy, small, size), size == len + 1 ? WEIR_OK : WEIR_EINVAL);
        ck_assert_int_eq(small[size], '#');
    }
    ck_assert_str_eq(small, text);
    ck_assert_int_eq(weir_policy_print(&policy, NULL, 160), WEIR_EINVAL);
    ck_assert_int_eq(weir_policy_print(NULL, text, sizeof text), WEIR_EINVAL);
    policy.limit = 0;
    ck_assert_int_eq(weir_policy_print(&policy, text, sizeof text), WEIR_EINVAL);
}

TEST(a_printed_policy_is_read_back_as_the_same_policy, 60)
{
    struct chance chance = chance_make(1);
    int64_t goal = steps_or(100000);
    for (int64_t done = 0; done < goal;) {
        struct weir_policy policy = policy_by_chance(&chance, (enum kind)chance_between(&chance, 0, KIND_COUNT - 1));
        char text[320], again[320];
        int error = weir_policy_print(&policy, text, sizeof text);
        must(error == weir_policy_check(&policy, NULL, 0), "what is enforced can be printed, and nothing else");
        if (error)
            continue;
        struct weir_policy read = policy_of(text);
        if (!same_policy(&read, &policy))
            ck_abort_msg("%s is read as another policy", text);
        must_succeed(weir_policy_print(&read, again, sizeof again));
        must(strcmp(text, again) == 0, "the same policy is printed as another text");
        done++;
    }
}

/* Pieces of the grammar, truncated and mixed with arbitrary bytes. */
static void garbage(struct chance *chance, char *text, size_t size)
{
    static const char *const pieces[] = { "token_bucket",
                                          "fixed_window",
                                          "sliding_window",
                                          "leaky_bucket",
                                          "concurrency",
                                          " hold=",
                                          " limit=",
                                          " period=",
                                          " burst=",
                                          " debt=",
                                          " refill=",
                                          " align=",
                                          " capacity=",
                                          " blocks=",
                                          "interval",
                                          "epoch",
                                          "1",
                                          "99999999999999999999",
                                          "s",
                                          "us",
                                          "d",
                                          "=",
                                          " ",
                                          "\t",
                                          "%s%n",
                                          "\n",
                                          "0",
                                          "-",
                                          "first" };
    size_t len = 0, most = (size_t)chance_between(chance, 0, (int64_t)size - 1);
    while (len < most) {
        const char *piece = pieces[chance_between(chance, 0, (int64_t)(sizeof pieces / sizeof pieces[0]) - 1)];
        if (chance_one_in(chance, 8))
            text[len++] = (char)chance_between(chance, 1, 255);
        else
            for (; *piece != '\0' && len < most; piece++)
                text[len++] = *piece;
    }
    text[len] = '\0';
}

TEST(random_text_is_refused_with_a_message_or_read_as_a_valid_policy, 60)
{
    struct chance chance = chance_make(2);
    int64_t goal = steps_or(100000);
    for (int64_t i = 0; i < goal; i++) {
        char text[400], message[200];
        struct weir_policy policy;
        garbage(&chance, text, chance_one_in(&chance, 2) ? 60 : sizeof text);
        memset(message, '#', sizeof message);
        size_t size = (size_t)chance_between(&chance, 1, sizeof message);
        int error = weir_policy_parse(text, &policy, message, size);
        if (error == WEIR_OK)
            must_succeed(weir_policy_check(&policy, NULL, 0));
        else
            must(error == WEIR_EINVAL && memchr(message, '\0', size) != NULL, "a sentence that fits");
        must(size == sizeof message || message[size] == '#', "not a byte beyond the message");
    }
}

TEST(a_word_of_a_megabyte_is_refused_with_a_short_message, 10)
{
    enum { LENGTH = 1 << 20 };
    char *text = malloc(LENGTH + 1), message[80];
    struct weir_policy policy;
    ck_assert_ptr_nonnull(text);
    memset(text, '9', LENGTH);
    text[LENGTH] = '\0';
    ck_assert_int_eq(weir_policy_parse(text, &policy, message, sizeof message), WEIR_EINVAL);
    ck_assert(strstr(message, "column 1:") == message && strlen(message) == sizeof message - 1);
    memcpy(text, "fixed_window limit=", 19);
    ck_assert_int_eq(weir_policy_parse(text, &policy, message, sizeof message), WEIR_EINVAL);
    ck_assert(strstr(message, "column 14:") == message);
    free(text);
}

/* ---- Files ---- */

struct file {
    char path[64];
};

static struct file file_of(const char *text, size_t len)
{
    struct file file = { "/tmp/weir-test-policy-XXXXXX" };
    int descriptor = mkstemp(file.path);
    ck_assert_int_ge(descriptor, 0);
    FILE *stream = fdopen(descriptor, "w");
    ck_assert_ptr_nonnull(stream);
    ck_assert_uint_eq(fwrite(text, 1, len, stream), len);
    ck_assert_int_eq(fclose(stream), 0);
    return file;
}

struct visits {
    int good, bad;
    int stop_at; /* end the reading with 42 at this line */
    int numbers[16];
    char names[16][WEIR_MAX_NAME_LEN + WEIR_MAX_PATTERN_LEN + 3]; /* limit, '|' and pattern where there is one */
    char errors[16][256];
};

static int note_line(void *user, const struct weir_policy_line *line)
{
    struct visits *visits = user;
    int i = visits->good + visits->bad;
    must(i < 16, "no more lines than the test has");
    visits->numbers[i] = line->number;
    if (line->error != NULL) {
        must(!line->name && !line->pattern && !line->policy, "a bad line has neither names nor a policy");
        snprintf(visits->errors[i], sizeof visits->errors[i], "%s", line->error);
        visits->bad++;
    } else {
        must_succeed(weir_policy_check(line->policy, NULL, 0));
        snprintf(visits->names[i], sizeof visits->names[i], "%s%s%s", line->name, line->pattern ? "|" : "",
                 line->pattern ? line->pattern : "");
        visits->good++;
    }
    return line->number == visits->stop_at ? 42 : 0;
}

static int read_text(const char *text, struct visits *visits, char *message, size_t size)
{
    struct file file = file_of(text, strlen(text));
    int result = weir_policy_file_read(file.path, note_line, visits, message, size);
    unlink(file.path);
    return result;
}

TEST(common_comments_blank_lines_line_ends_and_spaces_are_read, 10)
{
    struct visits visits = { 0 };
    char message[200] = "";
    int result = read_text(
        "# limits\n\n   \t\n  login = token_bucket limit=5 period=1m   # five\r\n"
        "\r\napi.read=fixed_window limit=1 period=1h\n# end\nlast\t=\tleaky_bucket limit=1 period=1s",
        &visits, message, sizeof message);
    ck_assert_msg(result == WEIR_OK, "%s %s", message, visits.errors[0]);
    ck_assert_int_eq(visits.good, 3);
    ck_assert_int_eq(visits.numbers[0], 4);
    ck_assert_int_eq(visits.numbers[1], 6);
    ck_assert_int_eq(visits.numbers[2], 8);
    ck_assert_str_eq(visits.names[0], "login");
    ck_assert_str_eq(visits.names[1], "api.read");
    ck_assert_str_eq(visits.names[2], "last");
}

TEST(every_bad_line_is_reported_with_its_fault_and_good_lines_are_read, 10)
{
    static const char text[] = "good = fixed_window limit=1 period=1h\n" /* 1 */
                               "no equals sign\n"
                               "bad name = fixed_window limit=1 period=1h\n"
                               "= fixed_window limit=1 period=1h\n"
                               "good = fixed_window limit=2 period=1h\n" /* 5 */
                               "fields = fixed_window limit=0 period=1h\n"
                               "unit = fixed_window limit=1 period=1y\n"
                               "empty =\n"
                               "also.good = fixed_window limit=1 period=1h\n"; /* 9 */
    static const struct {
        int number;
        const char *error;
    } bad[] = { { 2, "column 1: " },
                { 3, "column 1: " },
                { 4, "column 1: " },
                { 5, "line 1" },
                { 6, "column 23: \"limit=0\"" },
                { 7, "column 29: \"period=1y\"" },
                { 8, "column 8: " } };
    struct visits visits = { 0 };
    char message[200] = "";
    ck_assert_int_eq(read_text(text, &visits, message, sizeof message), WEIR_EINVAL);
    ck_assert_int_eq(visits.good, 2);
    ck_assert_int_eq(visits.bad, 7);
    for (int i = 0; i < 7; i++) {
        ck_assert_int_eq(visits.numbers[i + 1], bad[i].number);
        ck_assert_msg(strstr(visits.errors[i + 1], bad[i].error) != NULL, "line %d: %s", bad[i].number,
                      visits.errors[i + 1]);
    }
    ck_assert_str_eq(visits.names[8], "also.good");
}

TEST(a_line_of_a_megabyte_or_with_a_nul_is_only_a_bad_line, 10)
{
    enum { LENGTH = 1 << 20 };
    char *text = malloc(LENGTH + 200);
    ck_assert_ptr_nonnull(text);
    memset(text, 'x', LENGTH);
    size_t len = LENGTH;
    static const char rest[] = "\nnul\0 = fixed_window limit=1 period=1h\ngood = fixed_window limit=1 period=1h\n";
    memcpy(text + len, rest, sizeof rest - 1);
    struct file file = file_of(text, len + sizeof rest - 1);
    struct visits visits = { 0 };
    ck_assert_int_eq(weir_policy_file_read(file.path, note_line, &visits, NULL, 0), WEIR_EINVAL);
    ck_assert_int_eq(visits.bad, 2);
    ck_assert_int_eq(visits.good, 1);
    ck_assert_int_eq(visits.numbers[2], 3);
    ck_assert_str_eq(visits.errors[1], "column 4: a NUL byte");
    unlink(file.path);

    memset(text, ' ', LENGTH);
    memcpy(text + LENGTH, rest + sizeof "\nnul\0 = fixed_window limit=1 period=1h\n" - 1, 38);
    file = file_of(text, LENGTH + 37);
    visits = (struct visits){ 0 };
    ck_assert_int_eq(weir_policy_file_read(file.path, note_line, &visits, NULL, 0), WEIR_OK);
    ck_assert_int_eq(visits.good, 1);
    unlink(file.path);
    free(text);
}

TEST(a_file_is_read_under_any_descriptor_or_its_error_gives_the_reason, 10)
{
    static const char text[] = "good = fixed_window limit=1 period=1h\n";
    struct file file = file_of(text, sizeof text - 1);
    struct visits visits = { 0 };
    char message[200] = "";
    close(STDIN_FILENO); /* whose number the file gets */
    ck_assert_int_eq(weir_policy_file_read(file.path, note_line, &visits, message, sizeof message), WEIR_OK);
    ck_assert_int_eq(visits.good, 1);
    ck_assert_int_eq(fcntl(STDIN_FILENO, F_GETFD), -1);
    unlink(file.path);
    ck_assert_int_eq(weir_policy_file_read("/proc/self/mem", note_line, &visits, message, sizeof message), WEIR_EIO);
    ck_assert_str_eq(message, "/proc/self/mem: Input/output error"); /* no memory is mapped at address 0 */
}

TEST(a_name_with_a_slash_is_a_limit_and_a_pattern_of_its_keys, 10)
{
    static const char *const names[] = {
        "api|10.0.*", "api|10.0.0.1", "api|*", "api|a%20b/c%3D%23", "api", "b|10.0.*"
    };
    struct visits visits = { 0 };
    char message[200] = "";
    int result = read_text(
        "api/10.0.* = fixed_window limit=1 period=1h\n  api/10.0.0.1=fixed_window limit=1 period=1h\n"
        "api/*\t= fixed_window limit=1 period=1h\napi/a%20b/c%3D%23 = fixed_window limit=1 period=1h # x\n"
        "api = fixed_window limit=1 period=1h\nb/10.0.* = fixed_window limit=1 period=1h\n",
        &visits, message, sizeof message);
    ck_assert_msg(result == WEIR_OK, "%s %s", message, visits.errors[0]);
    ck_assert_int_eq(visits.good, 6);
    for (int i = 0; i < 6; i++)
        ck_assert_str_eq(visits.names[i], names[i]);
}

TEST(a_bad_pattern_or_a_duplicate_in_any_escaping_is_reported, 10)
{
    static const char *const lines[] = { "api/ = fixed_window limit=1 period=1h",
                                         "column 1: pattern must not be empty",
                                         " /a = fixed_window limit=1 period=1h",
                                         "column 2: name must not be empty",
                                         "api/a b = fixed_window limit=1 period=1h",
                                         "byte 2 must be written %20",
                                         "api/a*c = fixed_window limit=1 period=1h",
                                         "byte 2 is a '*'",
                                         "api/%4 = fixed_window limit=1 period=1h",
                                         "byte 1 is a '%'",
                                         "api/%61 = fixed_window limit=1 period=1h",
                                         "\"api/%61\" is defined already on line 1",
                                         "api/a* = nonsense",
                                         "column 10: \"nonsense\"" };
    enum { LINES = sizeof lines / sizeof lines[0] / 2 };
    char text[1024] = "api/a = fixed_window limit=1 period=1h\n";
    struct visits visits = { 0 };
    for (size_t i = 0; i < LINES; i++) {
        strcat(text, lines[2 * i]);
        strcat(text, "\n");
    }
    ck_assert_int_eq(read_text(text, &visits, NULL, 0), WEIR_EINVAL);
    ck_assert_int_eq(visits.good, 1);
    ck_assert_int_eq(visits.bad, LINES);
    for (int i = 0; i < LINES; i++)
        ck_assert_msg(strstr(visits.errors[i + 1], lines[2 * i + 1]) != NULL, "%s", visits.errors[i + 1]);
}

TEST(a_name_that_is_too_long_is_reported_with_and_without_a_pattern, 10)
{
    enum { TOO_LONG = WEIR_MAX_NAME_LEN + 100 };
    for (int with_pattern = 0; with_pattern < 2; with_pattern++) {
        char text[TOO_LONG + 100];
        struct visits visits = { 0 };
        memset(text, 'x', TOO_LONG);
        snprintf(text + TOO_LONG, sizeof text - TOO_LONG, "%s = fixed_window limit=1 period=1h\n",
                 with_pattern ? "/a" : "");
        ck_assert_int_eq(read_text(text, &visits, NULL, 0), WEIR_EINVAL);
        ck_assert_int_eq(visits.bad, 1);
        ck_assert_msg(strstr(visits.errors[0], "is longer than 128 bytes") != NULL, "%s", visits.errors[0]);
    }
}

TEST(a_visitor_can_stop_the_reading_and_its_result_is_returned, 10)
{
    struct visits visits = { .stop_at = 2 };
    int result = read_text("a = fixed_window limit=1 period=1h\nb = fixed_window limit=1 period=1h\nnot a line\n",
                           &visits, NULL, 0);
    ck_assert_int_eq(result, 42);
    ck_assert_int_eq(visits.good, 2);
    ck_assert_int_eq(visits.bad, 0);
}

TEST(a_file_that_cannot_be_read_is_an_error_that_names_it, 10)
{
    static const char *const paths[] = { "/nonexistent/limits", "/tmp", "" };
    struct visits visits = { 0 };
    for (size_t i = 0; i < sizeof paths / sizeof paths[0]; i++) {
        char message[200] = "";
        ck_assert_int_eq(weir_policy_file_read(paths[i], note_line, &visits, message, sizeof message), WEIR_EIO);
        ck_assert_msg(strstr(message, paths[i]) != NULL && strlen(message) > strlen(paths[i]), "%s", message);
    }
    ck_assert_int_eq(weir_policy_file_read(NULL, note_line, &visits, NULL, 0), WEIR_EINVAL);
    ck_assert_int_eq(weir_policy_file_read("/tmp", NULL, &visits, NULL, 0), WEIR_EINVAL);
    ck_assert_int_eq(visits.good + visits.bad, 0);
}

TEST(a_policy_file_that_is_a_pipe_is_refused_without_waiting, 10)
{
    char folder[] = "/tmp/weir-test-policy-XXXXXX", path[64], message[200] = "";
    struct visits visits = { 0 };
    ck_assert_ptr_nonnull(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/pipe", folder);
    ck_assert_int_eq(mkfifo(path, 0600), 0); /* nobody will ever write to it */
    ck_assert_int_eq(weir_policy_file_read(path, note_line, &visits, message, sizeof message), WEIR_EIO);
    ck_assert_msg(strstr(message, "/pipe: neither a file nor standard input") != NULL, "%s", message);
    weir *limiter = NULL;
    ck_assert_int_eq(weir_open(OPTIONS(.policy_file = path), &limiter), WEIR_EIO);
    ck_assert_int_eq(unlink(path), 0);
    ck_assert_int_eq(rmdir(folder), 0);
    ck_assert_int_eq(weir_policy_file_read("/dev/zero", note_line, &visits, message, sizeof message), WEIR_EIO);
    ck_assert_str_eq(message, "/dev/zero: neither a file nor standard input");
    ck_assert_int_eq(weir_policy_file_read("", note_line, &visits, message, sizeof message), WEIR_EIO);
    ck_assert_str_eq(message, "the path of the policy file is empty");
    ck_assert_int_eq(weir_policy_file_read("/tmp", note_line, &visits, message, sizeof message), WEIR_EIO);
    ck_assert_str_eq(message, "/tmp: Is a directory");
    ck_assert_int_eq(visits.good + visits.bad, 0);
}

static void *write_late(void *user)
{
    static const char text[] = "a = fixed_window limit=1 period=1h\n";
    const int fd = *(const int *)user;
    nanosleep(&(struct timespec){ .tv_nsec = 20000000 }, NULL); /* a reader that did not wait would read nothing */
    ck_assert_int_eq(write(fd, text, sizeof text - 1), (ssize_t)sizeof text - 1);
    close(fd);
    return NULL;
}

TEST(a_pipe_that_is_open_already_is_read_to_its_end, 10)
{
    char path[32], message[200] = "";
    struct visits visits = { 0 };
    int ends[2];
    pthread_t thread;
    ck_assert_int_eq(pipe(ends), 0);
    snprintf(path, sizeof path, "/dev/fd/%d", ends[0]);
    ck_assert_int_eq(pthread_create(&thread, NULL, write_late, &ends[1]), 0);
    int error = weir_policy_file_read(path, note_line, &visits, message, sizeof message);
    pthread_join(thread, NULL);
    close(ends[0]);
    ck_assert_msg(error == WEIR_OK, "%s", message);
    ck_assert_int_eq(visits.good, 1);
}

TEST(an_empty_file_has_no_policies, 10)
{
    struct visits visits = { 0 };
    ck_assert_int_eq(read_text("", &visits, NULL, 0), WEIR_OK);
    ck_assert_int_eq(read_text("\n\n#\n", &visits, NULL, 0), WEIR_OK);
    ck_assert_int_eq(visits.good + visits.bad, 0);
}

static int load_text(weir *limiter, const char *text, char *message, size_t size)
{
    struct file file = file_of(text, strlen(text));
    int result = weir_limits_load(limiter, file.path, message, size);
    unlink(file.path);
    return result;
}

TEST(a_file_is_loaded_whole_or_not_at_all, 10)
{
    char message[300] = "";
    OPEN_SCENE(scene, NULL);
    weir_limit *old = scene_define_text(&scene, "old", "fixed_window limit=5 period=1h");
    ck_assert_int_eq(load_text(scene.limiter,
                               "old = fixed_window limit=9 period=1h\nnew = fixed_window limit=1 period=1h\n"
                               "# bad\nbad = fixed_window limit=0 period=1h\n",
                               message, sizeof message),
                     WEIR_EINVAL);
    ck_assert_msg(strstr(message, "/tmp/weir-test-policy-") && strstr(message, ":4:") && strstr(message, "\"limit=0\""),
                  "%s", message);
    ck_assert_ptr_null(weir_limit_find(scene.limiter, "new"));
    ck_assert_int_eq(peeked(old, "a", 1).limit, 5);

    must_succeed(load_text(scene.limiter, "old = fixed_window limit=9 period=1h\nnew = fixed_window limit=1 period=1h",
                           message, sizeof message));
    ck_assert_ptr_eq(weir_limit_find(scene.limiter, "old"), old);
    ck_assert_int_eq(peeked(old, "a", 1).limit, 9);
    ck_assert_int_eq(peeked(weir_limit_find(scene.limiter, "new"), "a", 1).limit, 1);
    ck_assert_int_eq(weir_limits_load(scene.limiter, "/nonexistent/limits", message, sizeof message), WEIR_EIO);
    ck_assert_int_eq(weir_limits_load(scene.limiter, NULL, message, sizeof message), WEIR_EINVAL);
    ck_assert_int_eq(weir_limits_load(NULL, "/tmp", message, sizeof message), WEIR_EINVAL);
}

TEST(a_file_with_one_limit_too_many_defines_none, 30)
{
    enum { ROOM = 3 };
    char message[300] = "", name[32];
    OPEN_SCENE(scene, NULL);
    for (int i = 0; i < WEIR_MAX_LIMITS - ROOM; i++) {
        snprintf(name, sizeof name, "limit-%d", i);
        scene_define_text(&scene, name, "fixed_window limit=1 period=1h");
    }
    static const char text[] = "limit-0 = fixed_window limit=2 period=1h\na = fixed_window limit=1 period=1h\n"
                               "b = fixed_window limit=1 period=1h\nc = fixed_window limit=1 period=1h\n"
                               "d = fixed_window limit=1 period=1h\n";
    ck_assert_int_eq(load_text(scene.limiter, text, message, sizeof message), WEIR_EFULL);
    ck_assert_msg(strstr(message, ":5:") != NULL, "%s", message);
    ck_assert_ptr_null(weir_limit_find(scene.limiter, "a"));
    ck_assert_int_eq(peeked(weir_limit_find(scene.limiter, "limit-0"), "a", 1).limit, 1);
    scene_define_text(&scene, "c", "fixed_window limit=1 period=1h"); /* the undone definitions use no room */
    ck_assert(taken(weir_limit_find(scene.limiter, "c"), "a", 1).allowed);
}

TEST(a_limiter_opens_with_the_limits_of_its_policy_file_or_not_at_all, 10)
{
    static const char good[] = "a = fixed_window limit=4 period=1h\n", bad[] = "a = fixed_window\n";
    struct file good_file = file_of(good, sizeof good - 1), bad_file = file_of(bad, sizeof bad - 1);
    struct weir_options options = WEIR_OPTIONS_INIT;
    struct scene scene;
    weir *limiter = NULL;
    scene_init(&scene, &options);
    options.policy_file = good_file.path;
    must_succeed(weir_open(&options, &limiter));
    ck_assert_int_eq(peeked(weir_limit_find(limiter, "a"), "k", 1).limit, 4);
    weir_close(limiter);

    limiter = NULL;
    scene.log_allowed = true;
    options.policy_file = bad_file.path;
    ck_assert_int_eq(weir_open(&options, &limiter), WEIR_EINVAL);
    ck_assert_msg(strstr(scene.last_line, bad_file.path) != NULL, "%s", scene.last_line);
    options.policy_file = "/nonexistent/limits";
    ck_assert_int_eq(weir_open(&options, &limiter), WEIR_EIO);
    ck_assert_ptr_null(limiter);
    unlink(good_file.path);
    unlink(bad_file.path);
}
