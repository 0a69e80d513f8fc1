/* report_hybrid.c - the additions of hybrid mode to the report, for people and as JSON. */
#include "cli/replay/report.h"

#include <stdio.h>

#include "cli/times.h"

static const struct comparison *comparison_of(const struct report *report)
{
    return &report->tally->comparison;
}

static int64_t instances_of(const struct report *report)
{
    return report->store->instances ? report->store->instances : 1;
}

static double calls_a_request(const struct report *report)
{
    const size_t requests = report->rows->total;
    return requests ? (double)comparison_of(report)->store_calls / (double)requests : 0.0;
}

void report_hybrid_mode(const struct report *report)
{
    const long long instances = (long long)instances_of(report);
    printf("%-18shybrid%s, %lld instance%s over Redis by the times of the input", "mode",
           report->store->strict ? " (strict)" : "", instances, instances == 1 ? "" : "s");
    if (instances > 1)
        printf(", dealt by %s", store_deal_name(report->store));
    putchar('\n');
}

/* Print how a limit is leased, and how far it was exceeded. */
static void print_limit(const struct report *report, size_t number)
{
    const struct compared_limit *limit = &comparison_of(report)->limits[number];
    char life[TIME_TEXT_SIZE];
    if (report->policies->count > 1)
        printf("by %zu.", number + 1);
    printf("%-*s", report->policies->count > 1 ? 14 : 18, report->policies->count > 1 ? " leases" : "leases");
    if (limit->lease_life_us == 0) {
        printf("none of this limit\n");
        return;
    }
    duration_print(limit->lease_life_us, life);
    printf("up to %lld permits of a key for %s; over by at most %lld", (long long)limit->lease_max, life,
           (long long)limit->over_max);
    if (limit->is_metered)
        printf(", seen %.*f", limit->most_over > 0 ? 1 : 0, limit->most_over);
    putchar('\n');
}

void report_hybrid_text(const struct report *report)
{
    const struct comparison *found = comparison_of(report);
    const uint64_t requests = report->rows->total;
    char note[80];
    printf("\nAgainst one exact limit\n");
    report_count("it admits", found->exact_admitted, requests, "");
    report_count("only here", found->here_alone, requests, "admitted here, denied by it");
    report_count("only there", found->exact_alone, requests, "admitted by it, denied here");
    report_count("over", found->permits_beyond, 0, "permits beyond the limit");
    for (size_t i = 0; i < report->policies->count; i++)
        print_limit(report, i);
    snprintf(note, sizeof note, "%.3f a request", calls_a_request(report));
    printf("\nWho decided\n");
    report_count("a lease", found->by_lease, requests, "");
    report_count("a denial held", found->by_denial, requests, "");
    report_count("Redis", found->by_redis, requests, "");
    report_count("store calls", found->store_calls, 0, note);
    snprintf(note, sizeof note, "permits, %llu of them not used in time", (unsigned long long)found->lease_lost);
    report_count("leased", found->leased, 0, note);
}

void report_hybrid_json(const struct report *report)
{
    const struct comparison *found = comparison_of(report);
    printf("\"hybrid\":{\"instances\":%lld,\"deal\":\"%s\",\"strict\":%s,", (long long)instances_of(report),
           store_deal_name(report->store), report->store->strict ? "true" : "false");
    printf("\"exact_admitted\":%llu,\"only_here\":%llu,\"only_exact\":%llu,\"permits_over\":%llu,",
           (unsigned long long)found->exact_admitted, (unsigned long long)found->here_alone,
           (unsigned long long)found->exact_alone, (unsigned long long)found->permits_beyond);
    printf("\"by_lease\":%llu,\"by_denial\":%llu,\"by_redis\":%llu,\"store_calls\":%llu,\"calls_a_request\":%.6f,",
           (unsigned long long)found->by_lease, (unsigned long long)found->by_denial,
           (unsigned long long)found->by_redis, (unsigned long long)found->store_calls, calls_a_request(report));
    printf("\"leased\":%llu,\"lease_lost\":%llu,\"limits\":[", (unsigned long long)found->leased,
           (unsigned long long)found->lease_lost);
    for (size_t i = 0; i < report->policies->count; i++) {
        const struct compared_limit *limit = &found->limits[i];
        printf("%s{\"lease_life_us\":%lld,\"lease_max\":%lld,\"over_max\":%lld,\"most_over\":", i ? "," : "",
               (long long)limit->lease_life_us, (long long)limit->lease_max, (long long)limit->over_max);
        printf(limit->is_metered ? "%.6f}" : "null}", limit->most_over);
    }
    fputs("]},", stdout);
}
