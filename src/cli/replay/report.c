/* report.c - the report of a replay, for people: a printer over its document. */
#include "cli/replay/report.h"

#include <stdio.h>
#include <stdlib.h>

#include "cli/times.h"

#define KEY_WIDTH 100 /* columns of a key; a longer one is cut */

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

/* Return a member to show to people. */
static struct shown shown(const json_t *object, const char *name)
{
    return span_shown(document_span(object, name));
}

/* Show a key, by its bytes if they are not UTF-8. */
static void key_show(const json_t *object, char out[KEY_WIDTH])
{
    const struct span hex = document_span(object, "key_hex");
    char bytes[KEY_WIDTH];
    size_t len = 0;
    for (; len < sizeof bytes && 2 * len + 1 < hex.len; len++)
        bytes[len] = (char)strtol((char[]){ hex.data[2 * len], hex.data[2 * len + 1], '\0' }, NULL, 16);
    span_show(hex.len ? (struct span){ bytes, len } : document_span(object, "key"), out, KEY_WIDTH);
}

static uint64_t number_in(const json_t *document, const char *object, const char *name)
{
    return document_number(json_object_get(document, object), name);
}

void report_keys(const json_t *object)
{
    const json_t *keys = json_object_get(object, "top_keys");
    const uint64_t count = document_number(object, "keys_ever_denied");
    const size_t listed = json_array_size(keys);
    if (listed)
        printf("\n%12s%12s%10s   key\n", "denied", "requests", "share");
    for (size_t i = 0; i < listed; i++) {
        const json_t *key = json_array_get(keys, i);
        char text[KEY_WIDTH], share[TIME_TEXT_SIZE];
        const uint64_t denied = document_number(key, "denied"), requests = document_number(key, "requests");
        key_show(key, text);
        report_share(denied, requests, share);
        printf("%12llu%12llu%10s   %s\n", (unsigned long long)denied, (unsigned long long)requests, share, text);
    }
    if (listed && listed < count)
        printf("%12s   %llu more; --top %llu shows all\n", "...", (unsigned long long)(count - listed),
               (unsigned long long)count);
}

static void print_policy_name(const json_t *policy)
{
    const struct span name = document_span(policy, "name");
    printf("%.*s%s%s\n", (int)name.len, name.data, name.len ? " = " : "", document_span(policy, "policy").data);
}

static void print_mode(const json_t *document)
{
    const json_t *hybrid = json_object_get(document, "hybrid");
    const uint64_t instances = document_number(hybrid, "instances");
    if (span_is(document_span(document, "mode"), "distributed"))
        printf("%-18s%s\n", "mode", "distributed, in Redis by the times of the input");
    if (!hybrid)
        return;
    printf("%-18shybrid%s, %llu instance%s over Redis by the times of the input", "mode",
           json_is_true(json_object_get(hybrid, "strict")) ? " (strict)" : "", (unsigned long long)instances,
           instances == 1 ? "" : "s");
    if (instances > 1)
        printf(", dealt by %s", document_span(hybrid, "deal").data);
    putchar('\n');
}

static void print_input(const json_t *document)
{
    const json_t *policies = json_object_get(document, "policies"), *files = json_object_get(document, "files");
    const size_t count = json_array_size(policies), file_count = json_array_size(files);
    print_mode(document);
    for (size_t i = 0; i < count; i++) {
        const json_t *policy = json_array_get(policies, i), *overrides = json_object_get(policy, "overrides");
        printf("%-18s", i ? "" : count > 1 ? "policies" : "policy");
        if (count > 1)
            printf("%zu. ", i + 1);
        print_policy_name(policy);
        for (size_t j = 0; j < json_array_size(overrides); j++) {
            const json_t *override = json_array_get(overrides, j);
            printf("%-18s%s/%s = %s\n", "", document_span(policy, "name").data,
                   pattern_shown(document_span(override, "pattern").data).text, document_span(override, "policy").data);
        }
    }
    for (size_t i = 0; i < file_count; i++) {
        char name[256];
        span_show(span_of(json_string_value(json_array_get(files, i))), name, sizeof name);
        printf("%-18s%s\n", i ? "" : file_count > 1 ? "files" : "file", name);
    }
    const json_t *first = json_object_get(document, "first"), *last = json_object_get(document, "last");
    if (json_is_object(first)) {
        char span[TIME_TEXT_SIZE];
        duration_print((int64_t)(document_number(last, "time_us") - document_number(first, "time_us")), span);
        printf("%-18s%s to %s, %s\n", "time", document_span(first, "time").data, document_span(last, "time").data,
               span);
    }
    if (document_number(document, "unreadable"))
        printf("%-18s%llu rows that cannot be read\n", "left out",
               (unsigned long long)document_number(document, "unreadable"));
}

static void print_would_deny(const json_t *policy, uint64_t requests)
{
    const struct span by = document_span(policy, "would_deny_by");
    if (by.len)
        report_count("would be denied", document_number(policy, "would_deny"), requests,
                     span_is(by, "candidate") ? "by the candidate" : "admitted by a shadow limit");
}

static void print_counts(const json_t *document)
{
    const json_t *policies = json_object_get(document, "policies");
    const uint64_t requests = document_number(document, "requests");
    char note[sizeof(struct shown) + 20] = "";
    putchar('\n');
    report_count("requests", requests, 0, "");
    report_count("admitted", document_number(document, "admitted"), requests, "");
    report_count("denied", document_number(document, "denied"), requests, "");
    if (json_array_size(policies) == 1)
        print_would_deny(json_array_get(policies, 0), requests);
    const uint64_t asked = document_number(document, "permits_asked");
    if (asked != requests) {
        report_count("permits asked", asked, 0, "");
        report_count("permits admitted", document_number(document, "permits_admitted"), asked, "");
    }
    if (document_span(document, "key_field").len)
        snprintf(note, sizeof note, "(by %s)", shown(document, "key_field").text);
    else if (requests)
        snprintf(note, sizeof note, "(the input has no key: all requests share one)");
    report_count("distinct keys", document_number(document, "distinct_keys"), 0, note);
    report_count("keys ever denied", document_number(document, "keys_ever_denied"),
                 document_number(document, "distinct_keys"), "");
    if (requests) {
        snprintf(note, sizeof note, "requests at %s",
                 document_span(json_object_get(document, "busiest_second"), "time").data);
        report_count("busiest second", number_in(document, "busiest_second", "requests"), 0, note);
    }
}

/* Print how a limit is leased, and how far it was exceeded. */
static void print_leases(const json_t *limit, size_t number, bool is_one)
{
    char life[TIME_TEXT_SIZE];
    const json_t *most_over = json_object_get(limit, "most_over");
    if (!is_one)
        printf("by %zu.", number + 1);
    printf("%-*s", is_one ? 18 : 14, is_one ? "leases" : " leases");
    if (document_number(limit, "lease_life_us") == 0) {
        printf("none of this limit\n");
        return;
    }
    duration_print((int64_t)document_number(limit, "lease_life_us"), life);
    printf("up to %llu permits of a key for %s; over by at most %llu",
           (unsigned long long)document_number(limit, "lease_max"), life,
           (unsigned long long)document_number(limit, "over_max"));
    if (json_is_real(most_over))
        printf(", seen %.*f", json_real_value(most_over) > 0 ? 1 : 0, json_real_value(most_over));
    putchar('\n');
}

static void print_hybrid(const json_t *document)
{
    const json_t *hybrid = json_object_get(document, "hybrid"), *limits = json_object_get(hybrid, "limits");
    const uint64_t requests = document_number(document, "requests");
    char note[80];
    printf("\nAgainst one exact limit\n");
    report_count("it admits", document_number(hybrid, "exact_admitted"), requests, "");
    report_count("only here", document_number(hybrid, "only_here"), requests, "admitted here, denied by it");
    report_count("only there", document_number(hybrid, "only_exact"), requests, "admitted by it, denied here");
    report_count("over", document_number(hybrid, "permits_over"), 0, "permits beyond the limit");
    for (size_t i = 0; i < json_array_size(limits); i++)
        print_leases(json_array_get(limits, i), i, json_array_size(limits) == 1);
    snprintf(note, sizeof note, "%.3f a request", json_real_value(json_object_get(hybrid, "calls_a_request")));
    printf("\nWho decided\n");
    report_count("a lease", document_number(hybrid, "by_lease"), requests, "");
    report_count("a denial held", document_number(hybrid, "by_denial"), requests, "");
    report_count("Redis", document_number(hybrid, "by_redis"), requests, "");
    report_count("store calls", document_number(hybrid, "store_calls"), 0, note);
    snprintf(note, sizeof note, "permits, %llu of them not used in time",
             (unsigned long long)document_number(hybrid, "lease_lost"));
    report_count("leased", document_number(hybrid, "leased"), 0, note);
}

static void print_policy(const json_t *document, const json_t *policy, size_t number)
{
    const uint64_t requests = document_number(document, "requests");
    const struct span key = document_span(policy, "key_field");
    char note[160];
    snprintf(note, sizeof note, "%llu by this limit alone",
             (unsigned long long)document_number(policy, "denied_alone"));
    printf("\nBy %zu. ", number + 1);
    print_policy_name(policy);
    report_count("denied", document_number(policy, "denied"), requests, note);
    print_would_deny(policy, requests);
    if (document_number(policy, "permits_asked") != requests)
        report_count("permits asked", document_number(policy, "permits_asked"), 0, "");
    snprintf(note, sizeof note, "%s%s%s", key.len ? "(by " : "", key.data, key.len ? ")" : "");
    report_count("keys ever denied", document_number(policy, "keys_ever_denied"),
                 document_number(policy, "distinct_keys"), note);
    report_keys(policy);
}

void report_print(const json_t *document)
{
    const json_t *policies = json_object_get(document, "policies"), *nearest = json_object_get(document, "nearest");
    print_input(document);
    print_counts(document);
    if (json_is_object(nearest) && document_number(document, "would_deny") == 0) {
        char key[KEY_WIDTH];
        key_show(nearest, key);
        printf("\nNo request would have been denied. The closest, with %lld of %lld permits left, was %s\n",
               (long long)document_number(nearest, "remaining"), (long long)document_number(nearest, "limit"), key);
    }
    if (json_object_get(document, "hybrid"))
        print_hybrid(document);
    report_keys(document);
    for (size_t i = 0; i < json_array_size(policies) && json_array_size(policies) > 1; i++)
        print_policy(document, json_array_get(policies, i), i);
}

void side_print(const json_t *document)
{
    const json_t *policies = json_object_get(document, "compared");
    const uint64_t requests = document_number(document, "requests");
    const uint64_t to_first = document_number(json_array_get(policies, 0), "denied");
    report_count("requests", requests, 0, "");
    printf("\n%12s%10s%10s%14s%10s   policy\n", "denied", "share", "to first", "keys denied", "share");
    for (size_t i = 0; i < json_array_size(policies); i++) {
        const json_t *policy = json_array_get(policies, i);
        const uint64_t denied = document_number(policy, "denied"), keys = document_number(policy, "keys_ever_denied");
        char share[TIME_TEXT_SIZE], key_share[TIME_TEXT_SIZE], ratio[32] = "-";
        report_share(denied, requests, share);
        report_share(keys, document_number(policy, "distinct_keys"), key_share);
        if (to_first)
            snprintf(ratio, sizeof ratio, "%.2f", (double)denied / (double)to_first);
        printf("%12llu%10s%10s%14llu%10s   ", (unsigned long long)denied, share, ratio, (unsigned long long)keys,
               key_share);
        print_policy_name(policy);
    }
}
