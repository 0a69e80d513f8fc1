/* differs.c - which options of weir a section's limiters had other than the defaults: see differs.h. */
#include "report/differs.h"

#include <stdio.h>
#include <string.h>

#include "measure/say.h"
#include "report/inside.h"

#define MAX_WORDS 16

static char words[MAX_WORDS][MAX_TEXT];
static int words_len;

static void differs_add(const char *word)
{
    for (int i = 0; i < words_len; i++)
        if (strcmp(words[i], word) == 0)
            return;
    if (words_len == MAX_WORDS)
        bench_fail("more than %d options that are not the defaults", MAX_WORDS);
    snprintf(words[words_len++], MAX_TEXT, "%s", word);
}

static void differs_add_number(const char *name, int64_t value)
{
    char word[MAX_TEXT];
    snprintf(word, sizeof word, "%s=%lld", name, (long long)value);
    if (value != 0) /* a field that is zero means its default */
        differs_add(word);
}

void differs_note(const struct weir_options *options)
{
    static const char *const failures[] = { [WEIR_FAIL_OPEN] = "on_failure=WEIR_FAIL_OPEN",
                                            [WEIR_FAIL_CLOSED] = "on_failure=WEIR_FAIL_CLOSED",
                                            [WEIR_FAIL_ERROR] = "on_failure=WEIR_FAIL_ERROR" };
    if (options->on_failure != WEIR_FAIL_LOCAL)
        differs_add(failures[options->on_failure]);
    differs_add_number("timeout_us", options->timeout_us);
    differs_add_number("open_for_us", options->open_for_us);
    differs_add_number("outage_cold", options->outage_cold);
    differs_add_number("outage_adds", options->outage_adds);
    differs_add_number("outage_retry_us", options->outage_retry_us);
    differs_add_number("by_local_clock", options->by_local_clock);
    differs_add_number("lease_excess", options->lease_excess);
    differs_add_number("lease_life_us", options->lease_life_us);
    differs_add_number("lease_max", options->lease_max);
    differs_add_number("strict", options->strict);
    differs_add_number("denial_life_us", options->denial_life_us);
    differs_add_number("instances", options->instances);
    differs_add_number("redis_replicas", options->redis_replicas);
    differs_add_number("redis_gather_us", options->redis_gather_us);
    differs_add_number("keep_idle", options->keep_idle);
    differs_add_number("top_keys", options->top_keys);
}

void differs_note_leases(weir_limit *limit)
{
    struct weir_limit_info info = { .size = sizeof info };
    char word[MAX_TEXT];
    if (weir_limit_info(limit, &info) != WEIR_OK || info.lease_life_us <= 0)
        return;
    if (info.lease_life_us < WEIR_SECOND)
        snprintf(word, sizeof word, "leases of %g ms", (double)info.lease_life_us / 1e3);
    else
        snprintf(word, sizeof word, "leases of %g s", (double)info.lease_life_us / 1e6);
    differs_add(word);
}

void differs_report(struct report *report)
{
    char sentence[MAX_TEXT * 4] = "options other than the defaults: ";
    size_t len = strlen(sentence);
    report->options[0] = '\0';
    for (int i = 0; i < words_len && len < sizeof sentence; i++)
        len += (size_t)snprintf(sentence + len, sizeof sentence - len, "%s%s", i ? ", " : "", words[i]);
    if (words_len > 0) {
        report_note(report, sentence);
        snprintf(report->options, sizeof report->options, "%s", strchr(sentence, ':') + 2);
    }
    words_len = 0;
}
