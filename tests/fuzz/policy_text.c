/* policy_text.c - policies as text, parsed and printed.
 *
 * The input is a text, then choices that make a policy. Properties:
 *
 *     - a text is accepted exactly if a second, naive parser accepts it and the model accepts its policy; both agree
 *     - a refusal names the fault's column, which lies in the text, writes nothing, and fits any buffer
 *     - a policy that was parsed, or made of choices and accepted by weir_policy_check(), survives being printed and
 *       parsed; printing it again gives the same text
 *     - weir_policy_check() refuses exactly what the model refuses
 */
#include "fuzz.h"

#include "model.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- The naive parser ---- */

/* Parse digits only; above 2^62, return a number that is too large for any field. */
static bool naive_digits(const char *text, size_t len, int64_t *out)
{
    *out = 0;
    for (size_t i = 0; i < len; i++) {
        if (!strchr("0123456789", text[i]))
            return false;
        *out = *out >= INT64_C(1) << 58 ? INT64_C(1) << 62 : *out * 10 + (text[i] - '0');
    }
    return len > 0;
}

/* Parse digits, perhaps with a point and up to 18 further digits, and a unit: in parts of 10^-18. */
static bool naive_count(const char *text, int64_t *out)
{
    static const char prefixes[] = "kMGT";
    char padded[20] = "000000000000000000";
    const size_t digits = strspn(text, "0123456789");
    const char *unit = text + digits;
    int64_t whole, part;
    if (!naive_digits(text, digits, &whole))
        return false;
    if (*unit == '.') {
        const size_t more = strspn(unit + 1, "0123456789");
        if (more < 1 || more > 18)
            return false;
        memcpy(padded, unit + 1, more);
        unit += 1 + more;
    }
    if (!naive_digits(padded, 18, &part))
        return false;
    const wide one = 1000000000000000000;
    wide size = 1;
    if (*unit) {
        const bool is_binary = unit[1] == 'i';
        const char *prefix = strchr(prefixes, is_binary && *unit == 'K' ? 'k' : *unit);
        if (!prefix || (is_binary && *unit == 'k') || (is_binary && strcmp(unit + 2, "B") != 0) ||
            (!is_binary && unit[1] && strcmp(unit + 1, "B") != 0))
            return false;
        for (const char *at = prefixes; at <= prefix; at++)
            size *= is_binary ? 1024 : 1000;
    }
    const wide parts = part * size;
    const wide number = whole * size + parts / one;
    *out = number > INT64_C(1) << 62 ? INT64_C(1) << 62 : (int64_t)number;
    return parts % one == 0;
}

static bool naive_time(const char *text, int64_t *out)
{
    static const struct {
        const char *name;
        int64_t us;
    } units[] = { { "us", 1 },          { "ms", 1000 },     { "s", WEIR_SECOND },
                  { "m", WEIR_MINUTE }, { "h", WEIR_HOUR }, { "d", WEIR_DAY } };
    const size_t digits = strspn(text, "0123456789");
    int64_t number;
    if (!naive_digits(text, digits, &number))
        return false;
    for (size_t i = 0; i < sizeof units / sizeof units[0]; i++)
        if (strcmp(text + digits, units[i].name) == 0) {
            const wide product = (wide)number * units[i].us;
            *out = product > INT64_MAX ? INT64_MAX : (int64_t)product;
            return true;
        }
    return false;
}

static bool naive_choice(const char *text, const char *zero, const char *one, int64_t *out)
{
    *out = strcmp(text, one) == 0;
    return *out == 1 || strcmp(text, zero) == 0;
}

static bool naive_field(struct weir_policy *policy, const char *word, unsigned *seen)
{
    static const char *const names[] = { "limit=",  "period=", "burst=", "debt=",    "capacity=",
                                         "blocks=", "refill=", "align=", "percent=", "shadow" };
    enum { LIMIT, PERIOD, BURST, DEBT, CAPACITY, BLOCKS, REFILL, ALIGN, PERCENT, SHADOW, FIELDS };
    int field = 0;
    while (field < FIELDS && strncmp(word, names[field], strlen(names[field])) != 0)
        field++;
    if (field == FIELDS || *seen & 1u << field)
        return false;
    *seen |= 1u << field;
    const char *value = word + strlen(names[field]);
    if (field == SHADOW) {
        policy->shadow = 1;
        return *value == '\0';
    }
    const bool is_bucket = policy->algorithm == WEIR_TOKEN_BUCKET;
    const bool is_fixed = policy->algorithm == WEIR_FIXED_WINDOW;
    int64_t number = 0;
    const bool is_read = field == PERIOD   ? naive_time(value, &number)
                         : field == REFILL ? naive_choice(value, "greedy", "interval", &number)
                         : field == ALIGN  ? naive_choice(value, "first", "epoch", &number)
                                           : naive_count(value, &number);
    if (!is_read || (number == 0 && (field <= BLOCKS || field == PERCENT) && field != DEBT))
        return false;
    switch (field) {
    case LIMIT: policy->limit = number; return true;
    case PERIOD: policy->period_us = number; return true;
    case BURST: policy->burst = number; return is_bucket;
    case DEBT: policy->debt = number; return is_bucket;
    case CAPACITY: policy->capacity = number; return policy->algorithm == WEIR_LEAKY_BUCKET;
    case BLOCKS:
        policy->blocks = number > WEIR_MAX_BLOCKS ? WEIR_MAX_BLOCKS + 1 : (int32_t)number;
        return policy->algorithm == WEIR_SLIDING_WINDOW;
    case REFILL: policy->refill = (enum weir_refill)number; return is_bucket;
    case PERCENT: policy->percent = (int32_t)number; return number <= 100;
    default: policy->align = (enum weir_align)number; return is_bucket || is_fixed;
    }
}

static bool naive_is_fixed(const struct weir_policy *policy)
{
    return policy->algorithm == WEIR_UNLIMITED || policy->algorithm == WEIR_DENY;
}

/* Read the words of a half, which begins as *policy. It has an algorithm already, unless `is_first`. */
static bool naive_half(const char *text, bool is_first, struct weir_policy *policy)
{
    static const char *const algorithms[] = { [WEIR_TOKEN_BUCKET] = "token_bucket",
                                              [WEIR_FIXED_WINDOW] = "fixed_window",
                                              [WEIR_SLIDING_WINDOW] = "sliding_window",
                                              [WEIR_LEAKY_BUCKET] = "leaky_bucket",
                                              [WEIR_CONCURRENCY] = "",
                                              [WEIR_UNLIMITED] = "unlimited",
                                              [WEIR_DENY] = "deny" };
    struct model_rule rule;
    unsigned seen = 0;
    char *copy = strdup(text), *place = NULL;
    const char *word = strtok_r(copy, " \t\r\n", &place);
    int algorithm = 0;
    while (word && algorithm < 7 && strcmp(word, algorithms[algorithm]) != 0)
        algorithm++;
    bool good = word && (algorithm < 7 || !is_first);
    if (good && algorithm < 7) {
        *policy = (struct weir_policy){ .algorithm = (enum weir_algorithm)algorithm };
        word = strtok_r(NULL, " \t\r\n", &place);
    }
    for (; good && word; word = strtok_r(NULL, " \t\r\n", &place))
        good = policy->algorithm != WEIR_UNLIMITED && naive_field(policy, word, &seen);
    const bool is_greedy = policy->algorithm == WEIR_TOKEN_BUCKET && policy->refill == WEIR_GREEDY;
    good = good && !(policy->shadow && policy->percent);
    if (naive_is_fixed(policy))
        good = good && !(seen & ~(3u << 8)); /* bits of percent and shadow */
    else
        good = good && !(((seen & 1u << 7) || policy->align) && is_greedy) &&
               model_rule_make(policy, &model_alone, &rule);
    free(copy);
    return good;
}

/* Return the comma between two halves, or NULL. */
static char *naive_comma(char *text)
{
    for (; (text = strchr(text, ',')); text++)
        if (strchr(" \t\r\n", text[1]) || strncmp(text + 1, "candidate", 9) == 0) /* strchr() finds the end, too */
            return text;
    return NULL;
}

static bool naive_read(const char *text, struct weir_policy *out)
{
    char *copy = strdup(text), *comma = naive_comma(copy);
    struct weir_policy first = { 0 }, second;
    if (comma)
        *comma++ = '\0';
    bool good = naive_half(copy, true, &first);
    *out = second = first;
    if (good && comma) {
        comma += strspn(comma, " \t\r\n");
        good = strncmp(comma, "candidate", 9) == 0 && comma[9] && strchr(" \t\r\n", comma[9]) && !naive_comma(comma) &&
               !first.shadow && !first.percent && naive_half(comma + 9, false, &second) && !second.shadow &&
               first.algorithm <= WEIR_SLIDING_WINDOW && second.algorithm <= WEIR_SLIDING_WINDOW;
        out->candidate = (struct weir_candidate){ second.algorithm, second.refill,    second.align, second.blocks,
                                                  second.limit,     second.period_us, second.burst, second.debt,
                                                  second.capacity,  second.percent };
    }
    free(copy);
    return good;
}

/* ---- Properties ---- */

static void check_print(const struct weir_policy *policy)
{
    char text[320], again[320];
    struct weir_policy read;
    fuzz_must(weir_policy_print(policy, text, sizeof text) == WEIR_OK, "a good policy is printed");
    fuzz_must(weir_policy_parse(text, &read, NULL, 0) == WEIR_OK, "\"%s\" is read", text);
    fuzz_must(fuzz_same_policy(policy, &read), "\"%s\" is read as the policy that it was printed of", text);
    fuzz_must(weir_policy_print(&read, again, sizeof again) == WEIR_OK && strcmp(text, again) == 0,
              "\"%s\" is printed again, not \"%s\"", text, again);
    fuzz_must(weir_policy_print(policy, again, strlen(text) + 1) == WEIR_OK, "room for it and its NUL is enough");
    fuzz_must(weir_policy_print(policy, again, strlen(text)) == WEIR_EINVAL, "a byte less is not");
}

static void check_refusal(const char *text)
{
    char sentence[256] = "", shorter[16];
    struct weir_policy untouched, read;
    memset(&untouched, 0xa5, sizeof untouched);
    read = untouched;
    const size_t len = strlen(text);
    memset(shorter, 0x5a, sizeof shorter);
    fuzz_must(weir_policy_parse(text, &read, sentence, sizeof sentence) == WEIR_EINVAL, "it is refused again");
    fuzz_clean(sentence);
    fuzz_must(memcmp(&read, &untouched, sizeof read) == 0, "a refusal writes nothing");
    int column = 0;
    fuzz_must(sscanf(sentence, "column %d: ", &column) == 1 && column >= 1 && (size_t)column <= len + 1,
              "\"%s\" names a column of the text", sentence);
    weir_policy_parse(text, &read, shorter, 8);
    fuzz_must(strlen(shorter) == 7 && strncmp(shorter, sentence, 7) == 0 && shorter[8] == 0x5a,
              "a sentence is cut to fit its buffer");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = fuzz_text(data, size);
    struct weir_policy read, naive;
    const bool is_read = weir_policy_parse(text, &read, NULL, 0) == WEIR_OK;
    const bool is_right = naive_read(text, &naive);
    fuzz_must(is_read == is_right, "\"%s\" is %s", text, is_right ? "read" : "refused");
    if (is_read) {
        fuzz_must(fuzz_same_policy(&read, &naive), "\"%s\" is read as by the naive reader", text);
        check_print(&read);
    } else {
        check_refusal(text);
    }
    free(text);

    struct feed feed = feed_of(data, size);
    struct weir_policy policy = feed_policy(&feed);
    struct model_rule rule;
    if (feed_byte(&feed) % 4 == 3) /* out of range, or another algorithm's */
        policy.debt = feed_between(&feed, INT64_MIN, INT64_MAX);
    if (feed_byte(&feed) % 4 == 3)
        policy.period_us = feed_between(&feed, INT64_MIN, INT64_MAX);
    if (feed_byte(&feed) % 4 == 3)
        policy.limit = feed_between(&feed, INT64_MIN, INT64_MAX);
    const bool is_good = weir_policy_check(&policy, NULL, 0) == WEIR_OK;
    fuzz_must(is_good == model_rule_make(&policy, &model_alone, &rule), "the check agrees with the model");
    if (is_good)
        check_print(&policy);
    return 0;
}
