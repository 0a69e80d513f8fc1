/* report.c - the report of a replay, for people. */
#include "cli/replay/report.h"

#include <stdio.h>
#include <stdlib.h>

#include "cli/times.h"

#define KEY_WIDTH 100 /* columns of a key; a longer one is cut */

struct ranked {
    uint32_t key, denied, requests;
};

static void print_input(const struct report *report);
static void print_counts(const struct report *report);
static void print_nearest(const struct report *report);
static bool print_policy(const struct report *report, size_t number);

bool report_text(const struct report *report)
{
    print_input(report);
    print_counts(report);
    if (report->tally->denied + report->tally->would_deny == 0 && report->rows->total)
        print_nearest(report);
    if (report->store->mode == WEIR_HYBRID)
        report_hybrid_text(report);
    if (!report_keys(report, report_counts(report)))
        return false;
    for (size_t i = 0; i < report->policies->count && report->policies->count > 1; i++)
        if (!print_policy(report, i))
            return false;
    return true;
}

static int ranked_compare(const void *left, const void *right)
{
    const struct ranked *a = left, *b = right;
    if (a->denied != b->denied)
        return a->denied > b->denied ? -1 : 1;
    if (a->requests != b->requests)
        return a->requests > b->requests ? -1 : 1;
    return a->key < b->key ? -1 : a->key > b->key;
}

struct key_counts report_counts_of(const struct report *report, size_t number)
{
    const struct policy_tally *tally = &report->tally->policies[number];
    return (struct key_counts){ tally->requests_by_key, tally->denied_by_key };
}

struct key_counts report_counts(const struct report *report)
{
    return (struct key_counts){ report->tally->requests_by_key, report->tally->denied_by_key };
}

uint32_t *report_denied_keys(const struct report *report, struct key_counts counts, size_t *out_count)
{
    size_t count = 0;
    for (size_t i = 0; i < report->rows->key_count; i++)
        count += counts.denied[i] > 0;
    struct ranked *ranked = malloc((count + 1) * sizeof *ranked);
    uint32_t *keys = malloc((count + 1) * sizeof *keys);
    if (!ranked || !keys) {
        free(ranked);
        free(keys);
        return NULL;
    }
    count = 0;
    for (size_t i = 0; i < report->rows->key_count; i++)
        if (counts.denied[i])
            ranked[count++] = (struct ranked){ (uint32_t)i, counts.denied[i], counts.requests[i] };
    qsort(ranked, count, sizeof *ranked, ranked_compare);
    for (size_t i = 0; i < count; i++)
        keys[i] = ranked[i].key;
    free(ranked);
    *out_count = count;
    return keys;
}

void report_share(uint64_t part, uint64_t whole, char *text)
{
    double percent = whole ? 100.0 * (double)part / (double)whole : 0.0;
    if (part > 0 && percent < 0.05)
        snprintf(text, TIME_TEXT_SIZE, "<0.1 %%");
    else if (part < whole && percent >= 99.95)
        snprintf(text, TIME_TEXT_SIZE, ">99.9 %%");
    else
        snprintf(text, TIME_TEXT_SIZE, "%.1f %%", percent);
}

static void print_input(const struct report *report)
{
    if (report->store->mode == WEIR_DISTRIBUTED)
        printf("%-18s%s\n", "mode", "distributed, in Redis by the times of the input");
    else if (report->store->mode == WEIR_HYBRID)
        report_hybrid_mode(report);
    for (size_t i = 0; i < report->policies->count; i++) {
        const struct named_policy *policy = &report->policies->all[i];
        printf("%-18s", i ? "" : report->policies->count > 1 ? "policies" : "policy");
        if (report->policies->count > 1)
            printf("%zu. ", i + 1);
        printf(policy->name[0] ? "%s = %s\n" : "%s%s\n", policy->name, policy->text);
        for (size_t j = 0; j < report->policies->override_count; j++) {
            const struct override *override = &report->policies->overrides[j];
            if (override->limit == i)
                printf("%-18s%s/%s = %s\n", "", policy->name, pattern_shown(override->pattern).text, override->text);
        }
    }
    for (size_t i = 0; i < report->file_count; i++) {
        char name[256];
        span_show(span_of(report->files[i]), name, sizeof name);
        printf("%-18s%s\n", i ? "" : report->file_count > 1 ? "files" : "file", name);
    }
    if (report->rows->total) {
        char first[TIME_TEXT_SIZE], last[TIME_TEXT_SIZE], span[TIME_TEXT_SIZE];
        time_print(report->tally->first_us, first);
        time_print(report->tally->last_us, last);
        duration_print(report->tally->last_us - report->tally->first_us, span);
        printf("%-18s%s to %s, %s\n", "time", first, last, span);
    }
    if (report->unreadable)
        printf("%-18s%zu rows that cannot be read\n", "left out", report->unreadable);
}

void report_count(const char *name, uint64_t count, uint64_t whole, const char *note)
{
    char share[TIME_TEXT_SIZE] = "";
    if (whole)
        report_share(count, whole, share);
    printf("%-18s%12llu", name, (unsigned long long)count);
    if (*share)
        printf("%10s", share);
    printf("%s%s\n", *note ? "   " : "", note);
}

static size_t count_denied(const struct report *report, const uint32_t *denied_by_key)
{
    size_t count = 0;
    for (size_t i = 0; i < report->rows->key_count; i++)
        count += denied_by_key[i] > 0;
    return count;
}

static size_t count_asking(const struct report *report, const struct policy_tally *tally)
{
    size_t count = 0;
    for (size_t i = 0; i < report->rows->key_count; i++)
        count += tally->requests_by_key[i] > 0;
    return count;
}

static bool denies_beside(const struct weir_policy *policy)
{
    return policy->shadow || policy->percent || policy->candidate.limit;
}

/* True if the limit, or an override of it, is a shadow for some keys or has a candidate. */
static bool has_shadow(const struct policies *policies, size_t number)
{
    const struct weir_policy *policy = &policies->all[number].policy;
    bool has = denies_beside(policy);
    for (size_t i = 0; i < policies->override_count; i++) {
        policy = &policies->overrides[i].policy;
        has = has || (policies->overrides[i].limit == number && denies_beside(policy));
    }
    return has;
}

static void print_would_deny(const struct report *report, size_t number)
{
    if (has_shadow(report->policies, number))
        report_count("would be denied", report->tally->policies[number].would_deny, report->rows->total,
                     report->policies->all[number].policy.candidate.limit ? "by the candidate"
                                                                          : "admitted by a shadow limit");
}

static void print_counts(const struct report *report)
{
    const struct tally *tally = report->tally;
    char note[660] = "";
    putchar('\n');
    report_count("requests", report->rows->total, 0, "");
    report_count("admitted", tally->admitted, report->rows->total, "");
    report_count("denied", tally->denied, report->rows->total, "");
    if (report->policies->count == 1)
        print_would_deny(report, 0);
    if (tally->permits_asked != report->rows->total) {
        report_count("permits asked", tally->permits_asked, 0, "");
        report_count("permits admitted", tally->permits_admitted, tally->permits_asked, "");
    }
    if (report->key_name[0])
        snprintf(note, sizeof note, "(by %s)", span_shown(span_of(report->key_name)).text);
    else if (report->rows->total)
        snprintf(note, sizeof note, "(the input has no key: all requests share one)");
    report_count("distinct keys", tally->keys, 0, note);
    report_count("keys ever denied", count_denied(report, tally->denied_by_key), tally->keys, "");
    if (report->busiest.count) {
        char when[TIME_TEXT_SIZE];
        time_print(report->busiest.second * WEIR_SECOND, when);
        snprintf(note, sizeof note, "requests at %s", when);
        report_count("busiest second", report->busiest.count, 0, note);
    }
}

/* If no request was denied, print how close the closest came. */
static void print_nearest(const struct report *report)
{
    const struct tally *tally = report->tally;
    char key[KEY_WIDTH];
    span_show(rows_key(report->rows, tally->least_key), key, sizeof key);
    printf("\nNo request would have been denied. The closest, with %lld of %lld permits left, was %s\n",
           (long long)tally->least_remaining, (long long)tally->least_limit, key);
}

static bool print_policy(const struct report *report, size_t number)
{
    const struct named_policy *policy = &report->policies->all[number];
    const struct policy_tally *tally = &report->tally->policies[number];
    char note[160];
    snprintf(note, sizeof note, "%llu by this limit alone", (unsigned long long)tally->denied_alone);
    printf("\nBy %zu. %s%s%s\n", number + 1, policy->name, policy->name[0] ? " = " : "", policy->text);
    report_count("denied", tally->denied, report->rows->total, note);
    print_would_deny(report, number);
    if (tally->permits_asked != report->rows->total)
        report_count("permits asked", tally->permits_asked, 0, "");
    snprintf(note, sizeof note, "%s%s%s", *policy->key ? "(by " : "", policy->key, *policy->key ? ")" : "");
    report_count("keys ever denied", count_denied(report, tally->denied_by_key), count_asking(report, tally), note);
    return report_keys(report, report_counts_of(report, number));
}

bool report_keys(const struct report *report, struct key_counts counts)
{
    size_t count, shown;
    uint32_t *keys = report_denied_keys(report, counts, &count);
    if (!keys)
        return false;
    shown = count < report->top ? count : report->top;
    if (shown)
        printf("\n%12s%12s%10s   key\n", "denied", "requests", "share");
    for (size_t i = 0; i < shown; i++) {
        char key[KEY_WIDTH], share[TIME_TEXT_SIZE];
        uint32_t denied = counts.denied[keys[i]], requests = counts.requests[keys[i]];
        span_show(rows_key(report->rows, keys[i]), key, sizeof key);
        report_share(denied, requests, share);
        printf("%12u%12u%10s   %s\n", denied, requests, share, key);
    }
    if (shown < count && shown)
        printf("%12s   %zu more; --top %zu shows all\n", "...", count - shown, count);
    free(keys);
    return true;
}
