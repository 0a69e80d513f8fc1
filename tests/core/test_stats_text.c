/* test_stats_text.c - stats as text: every field is in it, exactly, and Prometheus can read it. */
#include "support.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

struct one_field { /* the offset of the first field of struct weir_stats */
    size_t size;
    uint64_t first;
};
enum { FIRST = offsetof(struct one_field, first), FIELDS = (sizeof(struct weir_stats) - FIRST) / 8 };
enum { TEXT_SIZE = 65536, NAMES_MOST = 64 };

/* Return the text, in a static buffer. */
static const char *text_of(const struct weir_stats *stats, const struct weir_label *labels, size_t n)
{
    static char text[TEXT_SIZE];
    int len = weir_stats_print(stats, labels, n, text, sizeof text);
    if (len < 0)
        ck_abort_msg("cannot print: %s", weir_strerror(len));
    ck_assert_uint_eq((size_t)len, strlen(text));
    return text;
}

/* Field 0, 1, 2, ... of the struct, `size` not counted. */
static void set_field(struct weir_stats *stats, size_t field, uint64_t value)
{
    memcpy((char *)stats + FIRST + 8 * field, &value, sizeof value);
}

/* ---- A reader of the format ---- */

struct sample {
    char name[64], labels[256], value[32]; /* verbatim */
    bool is_counter;
};

struct page {
    struct sample samples[NAMES_MOST];
    size_t count;
};

/* Read up to one of `ends`, exclusive. */
static const char *read_word(const char *at, const char *ends, char *out, size_t size)
{
    size_t len = strcspn(at, ends);
    if (len == 0 || len >= size)
        ck_abort_msg("a word of %zu bytes: %.40s", len, at);
    memcpy(out, at, len);
    out[len] = '\0';
    return at + len;
}

static const char *expect(const char *at, const char *text)
{
    if (strncmp(at, text, strlen(text)) != 0)
        ck_abort_msg("\"%s\" is expected: %.60s", text, at);
    return at + strlen(text);
}

static void check_name(const char *name)
{
    for (const char *at = name; *at; at++)
        if (!isalpha((unsigned char)*at) && *at != '_' && *at != ':' && (at == name || !isdigit((unsigned char)*at)))
            ck_abort_msg("not a metric's name: %s", name);
}

/* Read labels up to the closing brace outside quotes. */
static const char *read_labels(const char *at, char *out, size_t size)
{
    const char *begin = ++at;
    for (bool quoted = false; quoted || *at != '}'; at++) {
        must(*at != '\0' && *at != '\n', "labels end in their line");
        if (quoted && *at == '\\')
            at++, must(*at == '\\' || *at == '"' || *at == 'n', "what is escaped may be");
        else if (*at == '"')
            quoted = !quoted;
    }
    must((size_t)(at - begin) < size, "labels fit");
    memcpy(out, begin, (size_t)(at - begin));
    out[at - begin] = '\0';
    return at + 1;
}

/* Read HELP, TYPE and one sample of a new name. */
static const char *read_metric(const char *at, struct page *page)
{
    char name[64], type[16], help[256];
    struct sample *sample = &page->samples[page->count++];
    must(page->count <= NAMES_MOST, "so many are expected at most");
    at = expect(read_word(expect(at, "# HELP "), " \n", name, sizeof name), " ");
    at = expect(read_word(at, "\n", help, sizeof help), "\n# TYPE ");
    must(strchr(help, '\\') == NULL, "nothing has to be escaped in a help");
    at = expect(expect(at, name), " ");
    at = expect(read_word(at, "\n", type, sizeof type), "\n");
    at = expect(read_word(at, "{ ", sample->name, sizeof sample->name), "");
    ck_assert_str_eq(sample->name, name);
    check_name(name);
    sample->labels[0] = '\0';
    if (*at == '{')
        at = read_labels(at, sample->labels, sizeof sample->labels);
    at = expect(read_word(expect(at, " "), "\n", sample->value, sizeof sample->value), "\n");
    char *end;
    strtod(sample->value, &end);
    must(*end == '\0', "a value is a number");
    const char *suffix = strlen(name) < 6 ? name : name + strlen(name) - 6;
    sample->is_counter = strcmp(type, "counter") == 0;
    must(sample->is_counter || strcmp(type, "gauge") == 0, "a type is one of those that there are");
    must(sample->is_counter == (strcmp(suffix, "_total") == 0), "counters, and they alone, end in _total");
    must(strncmp(name, "weir_", 5) == 0, "names are weir's");
    for (size_t i = 0; i + 1 < page->count; i++)
        ck_assert_str_ne(page->samples[i].name, name);
    return at;
}

static struct page page_of(const char *text)
{
    struct page page = { .count = 0 };
    while (*text)
        text = read_metric(text, &page);
    return page;
}

static const char *value_of(const struct page *page, const char *name)
{
    for (size_t i = 0; i < page->count; i++)
        if (strcmp(page->samples[i].name, name) == 0)
            return page->samples[i].value;
    ck_abort_msg("there is no %s", name);
}

/* ---- Fields ---- */

TEST(every_stats_field_has_one_sample_with_its_exact_number, 30)
{
    char seen[FIELDS][64];
    for (size_t field = 0; field < FIELDS; field++) {
        struct weir_stats stats = { .size = sizeof stats };
        char number[32];
        size_t found = 0;
        const uint64_t value = (UINT64_C(1) << 53) + 1 + field; /* no double */
        set_field(&stats, field, value);
        snprintf(number, sizeof number, "%" PRIu64, value);
        const struct page page = page_of(text_of(&stats, NULL, 0));
        ck_assert_uint_eq(page.count, FIELDS + 1);
        ck_assert_str_eq(page.samples[0].name, "weir_build_info");
        for (size_t i = 1; i < page.count; i++) {
            if (strcmp(page.samples[i].value, number) == 0)
                memcpy(seen[field], page.samples[i].name, sizeof seen[field]), found++;
            else
                ck_assert_str_eq(page.samples[i].value, "0");
        }
        if (found != 1)
            ck_abort_msg("field %zu of struct weir_stats stands in %zu samples", field, found);
        for (size_t i = 0; i < field; i++)
            ck_assert_str_ne(seen[i], seen[field]);
    }
}

TEST(metric_names_are_those_documented_for_dashboards, 30)
{
    const struct weir_stats stats = { .size = sizeof stats,
                                      .allowed = 1,
                                      .denied = 2,
                                      .errors = 3,
                                      .fallbacks = 4,
                                      .outages = 5,
                                      .full = 6,
                                      .evictions = 7,
                                      .share_lifts = 8,
                                      .share_zeros = 9,
                                      .keys = 10,
                                      .bytes = 11,
                                      .share_weight = 12,
                                      .share_total = 13,
                                      .store_requests = 14,
                                      .store_calls = 15,
                                      .store_timeouts = 16,
                                      .store_connections = 17,
                                      .store_breaks = 18,
                                      .leased = 19,
                                      .lease_hits = 20,
                                      .lease_lost = 21,
                                      .denial_hits = 22,
                                      .settled = 23,
                                      .unsettled = 24,
                                      .events_lost = 25,
                                      .lock_waits = 26,
                                      .file_gone = 27,
                                      .outage = 28 };
    static const char *const names[] = {
        "weir_allowed_total",
        "weir_denied_total",
        "weir_errors_total",
        "weir_fallbacks_total",
        "weir_outages_total",
        "weir_full_total",
        "weir_evictions_total",
        "weir_share_lifts",
        "weir_share_zeros",
        "weir_keys",
        "weir_memory_bytes",
        "weir_share_weight",
        "weir_share_weight_of_all",
        "weir_store_requests_total",
        "weir_store_calls_total",
        "weir_store_timeouts_total",
        "weir_store_connections_total",
        "weir_store_breaks_total",
        "weir_leased_permits_total",
        "weir_lease_hits_total",
        "weir_lease_lost_permits_total",
        "weir_denial_hits_total",
        "weir_settled_permits_total",
        "weir_unsettled_permits_total",
        "weir_events_lost_total",
        "weir_lock_waits_total",
        "weir_file_gone",
        "weir_outage",
    };
    const struct page page = page_of(text_of(&stats, NULL, 0));
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        ck_assert_int_eq(atoi(value_of(&page, names[i])), (int)i + 1);
}

TEST(the_largest_numbers_are_printed_whole_within_the_promised_size, 30)
{
    struct weir_stats stats = { .size = sizeof stats };
    char text[8192];
    for (size_t field = 0; field < FIELDS; field++)
        set_field(&stats, field, INT64_MAX);
    stats.allowed = UINT64_MAX;
    const int len = weir_stats_print(&stats, NULL, 0, text, sizeof text);
    ck_assert_int_gt(len, 0);
    ck_assert_int_lt(len, (int)sizeof text);
    const struct page page = page_of(text);
    ck_assert_str_eq(value_of(&page, "weir_allowed_total"), "18446744073709551615");
    ck_assert_str_eq(value_of(&page, "weir_denied_total"), "9223372036854775807");
    ck_assert_str_eq(value_of(&page, "weir_keys"), "9223372036854775807");
}

TEST(decisions_of_a_limiter_appear_in_the_printed_metrics, 30)
{
    struct weir_stats stats = { .size = sizeof stats };
    OPEN_SCENE(scene, NULL);
    weir_limit *limit = scene_define_text(&scene, "api", "fixed_window limit=2 period=1s");
    for (int i = 0; i < 3; i++)
        taken(limit, "key", 1);
    must_succeed(weir_stats_read(scene.limiter, &stats));
    const char *text = text_of(&stats, NULL, 0);
    ck_assert_ptr_nonnull(
        strstr(text, "# HELP weir_allowed_total Requests admitted; each of a batch, and each "
                     "all-or-nothing call once.\n# TYPE weir_allowed_total counter\nweir_allowed_total 2\n"));
    ck_assert_ptr_nonnull(strstr(text, "# TYPE weir_keys gauge\nweir_keys 1\n"));
    const struct page page = page_of(text);
    ck_assert_str_eq(value_of(&page, "weir_denied_total"), "1");
    ck_assert_str_eq(value_of(&page, "weir_share_weight"), "1");
    ck_assert_str_eq(value_of(&page, "weir_share_weight_of_all"), "1");
}

/* ---- Labels ---- */

TEST(each_sample_has_all_labels_correctly_escaped, 30)
{
    const struct weir_stats stats = { .size = sizeof stats };
    static const struct {
        struct weir_label labels[3];
        size_t n;
        const char *expected;
    } cases[] = {
        { { { "a", "" } }, 1, "a=\"\"" },
        { { { "_zone2", "eu" }, { "Az", "x y" } }, 2, "_zone2=\"eu\",Az=\"x y\"" },
        { { { "path", "C:\\x" }, { "said", "\"}\"" }, { "lines", "1\n2\n" } },
          3,
          "path=\"C:\\\\x\",said=\"\\\"}\\\"\",lines=\"1\\n2\\n\"" },
        { { { "name", "gr\xc3\xbc\xc3\x9f" } }, 1, "name=\"gr\xc3\xbc\xc3\x9f\"" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const struct page page = page_of(text_of(&stats, cases[i].labels, cases[i].n));
        ck_assert_uint_eq(page.count, FIELDS + 1);
        for (size_t j = 1; j < page.count; j++)
            ck_assert_str_eq(page.samples[j].labels, cases[i].expected);
    }
}

TEST(the_build_info_is_one_and_has_the_librarys_version_once, 30)
{
    const struct weir_stats stats = { .size = sizeof stats };
    const struct weir_label labels[] = { { "zone", "eu" }, { "version", "the service's" } };
    char expected[64];
    snprintf(expected, sizeof expected, "version=\"%s\",zone=\"eu\"", weir_version());
    const struct page page = page_of(text_of(&stats, labels, 2));
    ck_assert_str_eq(value_of(&page, "weir_build_info"), "1");
    ck_assert_str_eq(page.samples[0].labels, expected);
    ck_assert_str_eq(page.samples[1].labels, "zone=\"eu\",version=\"the service's\"");
}

TEST(labels_that_prometheus_would_refuse_are_refused, 30)
{
    const struct weir_stats stats = { .size = sizeof stats };
    static const struct weir_label bad[] = { { "", "x" },    { "9a", "x" },  { "a-b", "x" },
                                             { "a b", "x" }, { "__a", "x" }, { "a:b", "x" },
                                             { NULL, "x" },  { "a", NULL },  { "\xc3\xa4", "x" } };
    char text[TEXT_SIZE] = "as it was";
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        ck_assert_int_eq(weir_stats_print(&stats, &bad[i], 1, text, sizeof text), WEIR_EINVAL);
    const struct weir_label twice[] = { { "a", "1" }, { "b", "2" }, { "a", "3" } };
    ck_assert_int_eq(weir_stats_print(&stats, twice, 3, text, sizeof text), WEIR_EINVAL);
    ck_assert_int_gt(weir_stats_print(&stats, twice, 2, NULL, 0), 0);
    ck_assert_int_eq(weir_stats_print(&stats, NULL, 1, text, sizeof text), WEIR_EINVAL);

    char names[WEIR_MAX_LABELS + 1][8];
    struct weir_label many[WEIR_MAX_LABELS + 1];
    for (int i = 0; i <= WEIR_MAX_LABELS; i++) {
        snprintf(names[i], sizeof names[i], "l%d", i);
        many[i] = (struct weir_label){ names[i], "x" };
    }
    ck_assert_int_gt(weir_stats_print(&stats, many, WEIR_MAX_LABELS, NULL, 0), 0);
    ck_assert_int_eq(weir_stats_print(&stats, many, WEIR_MAX_LABELS + 1, text, sizeof text), WEIR_EINVAL);
    ck_assert_str_eq(text, "as it was");
}

/* ---- Room ---- */

TEST(the_metrics_text_is_written_whole_or_not_at_all_and_its_length_returned, 30)
{
    const struct weir_stats stats = { .size = sizeof stats };
    const struct weir_label label = { "a", "\n" };
    char whole[TEXT_SIZE], text[TEXT_SIZE];
    const int len = weir_stats_print(&stats, &label, 1, NULL, 0);
    ck_assert_int_eq(weir_stats_print(&stats, &label, 1, whole, sizeof whole), len);
    for (int size = 0; size <= len + 2; size++) {
        memset(text, '~', sizeof text);
        must(weir_stats_print(&stats, &label, 1, text, (size_t)size) == len, "the length is the same");
        const size_t written = size > len ? (size_t)len + 1 : size > 0;
        must(memcmp(text, size > len ? whole : "", written) == 0, "all of it, or nothing");
        must(text[written] == '~', "and nothing behind it");
    }
}

TEST(a_stats_struct_of_another_size_is_refused, 30)
{
    struct weir_stats stats = { .size = sizeof stats - 8 };
    char text[TEXT_SIZE] = "as it was";
    ck_assert_int_eq(weir_stats_print(&stats, NULL, 0, text, sizeof text), WEIR_EINVAL);
    stats.size = 0;
    ck_assert_int_eq(weir_stats_print(&stats, NULL, 0, text, sizeof text), WEIR_EINVAL);
    ck_assert_int_eq(weir_stats_print(NULL, NULL, 0, text, sizeof text), WEIR_EINVAL);
    stats.size = sizeof stats;
    ck_assert_int_eq(weir_stats_print(&stats, NULL, 0, NULL, 1), WEIR_EINVAL);
    ck_assert_str_eq(text, "as it was");
}
