/* report_json.c - the report of a replay as one JSON object.
 *
 * JSON is UTF-8, but keys are any bytes. In a key that is not UTF-8, U+FFFD replaces each wrong byte, and "key_hex"
 * next to it holds all bytes, so that nothing is lost.
 */
#include "cli/replay/report.h"

#include <stdio.h>
#include <stdlib.h>

#include "cli/json.h"
#include "cli/times.h"

static void json_print_nearest(const struct report *report);
static void print_key(struct span key);
static bool print_top(const struct report *report, struct key_counts counts);
static bool print_policies(const struct report *report);

static double share_of(uint64_t part, uint64_t whole)
{
    return whole ? (double)part / (double)whole : 0.0;
}

static void json_print_time(const char *name, int64_t time_us)
{
    char text[TIME_TEXT_SIZE];
    time_print(time_us, text);
    printf("\"%s_us\":%lld,\"%s\":\"%s\"", name, (long long)time_us, name, text);
}

bool report_json(const struct report *report)
{
    const struct tally *tally = report->tally;
    printf("{\"weir\":\"%s\",\"mode\":\"%s\",\"files\":[", weir_version(), store_mode_name(report->store));
    for (size_t i = 0; i < report->file_count; i++) {
        fputs(i ? "," : "", stdout);
        json_put_string(span_of(report->files[i]));
    }
    printf("],\"unreadable\":%zu,\"requests\":%zu,\"admitted\":%llu,\"denied\":%llu,\"share_denied\":%.6f,",
           report->unreadable, report->rows->total, (unsigned long long)tally->admitted,
           (unsigned long long)tally->denied, share_of(tally->denied, report->rows->total));
    printf("\"permits_asked\":%llu,\"permits_admitted\":%llu,\"distinct_keys\":%zu,\"key_field\":",
           (unsigned long long)tally->permits_asked, (unsigned long long)tally->permits_admitted, tally->keys);
    if (report->key_name[0])
        json_put_string(span_of(report->key_name));
    else
        fputs("null", stdout);
    fputs(",\"first\":", stdout);
    if (report->rows->total) {
        putchar('{');
        json_print_time("time", tally->first_us);
        fputs("},\"last\":{", stdout);
        json_print_time("time", tally->last_us);
        fputs("},\"busiest_second\":{", stdout);
        json_print_time("time", report->busiest.second * WEIR_SECOND);
        printf(",\"requests\":%zu},", report->busiest.count);
    } else {
        fputs("null,\"last\":null,\"busiest_second\":null,", stdout);
    }
    if (report->store->mode == WEIR_HYBRID)
        report_hybrid_json(report);
    json_print_nearest(report);
    if (!print_top(report, report_counts(report)))
        return false;
    fputs(",\"policies\":[", stdout);
    if (!print_policies(report))
        return false;
    fputs("]}\n", stdout);
    return true;
}

/* Print which key came closest to a denial, if there was none. */
static void json_print_nearest(const struct report *report)
{
    const struct tally *tally = report->tally;
    if (tally->denied || !report->rows->total) {
        fputs("\"nearest\":null,", stdout);
        return;
    }
    fputs("\"nearest\":{", stdout);
    print_key(rows_key(report->rows, tally->least_key));
    printf(",\"remaining\":%lld,\"limit\":%lld},", (long long)tally->least_remaining, (long long)tally->least_limit);
}

static void print_key(struct span key)
{
    fputs("\"key\":", stdout);
    json_put_string(key);
    if (span_is_utf8(key))
        return;
    fputs(",\"key_hex\":\"", stdout);
    for (size_t i = 0; i < key.len; i++)
        printf("%02x", (unsigned char)key.data[i]);
    putchar('"');
}

static bool print_top(const struct report *report, struct key_counts counts)
{
    size_t count;
    uint32_t *keys = report_denied_keys(report, counts, &count);
    if (!keys)
        return false;
    printf("\"keys_ever_denied\":%zu,\"top_keys\":[", count);
    for (size_t i = 0; i < count && i < report->top; i++) {
        fputs(i ? ",{" : "{", stdout);
        print_key(rows_key(report->rows, keys[i]));
        printf(",\"requests\":%u,\"denied\":%u}", counts.requests[keys[i]], counts.denied[keys[i]]);
    }
    putchar(']');
    free(keys);
    return true;
}

/* Print a limit's overrides, if it has any. */
static void print_overrides(const struct policies *policies, size_t limit)
{
    size_t count = 0;
    for (size_t i = 0; i < policies->override_count; i++) {
        const struct override *override = &policies->overrides[i];
        if (override->limit != limit)
            continue;
        fputs(count++ ? ",{\"pattern\":" : ",\"overrides\":[{\"pattern\":", stdout);
        json_put_string(span_of(override->pattern));
        fputs(",\"policy\":", stdout);
        json_put_string(span_of(override->text));
        putchar('}');
    }
    if (count)
        putchar(']');
}

static bool print_policies(const struct report *report)
{
    for (size_t i = 0; i < report->policies->count; i++) {
        const struct named_policy *policy = &report->policies->all[i];
        const struct policy_tally *tally = &report->tally->policies[i];
        fputs(i ? ",{\"name\":" : "{\"name\":", stdout);
        if (policy->name[0])
            json_put_string(span_of(policy->name));
        else
            fputs("null", stdout);
        fputs(",\"policy\":", stdout);
        json_put_string(span_of(policy->text));
        if (policy->key[0]) {
            fputs(",\"key_field\":", stdout);
            json_put_string(span_of(policy->key));
        }
        if (policy->cost[0]) {
            fputs(",\"cost_field\":", stdout);
            json_put_string(span_of(policy->cost));
        }
        print_overrides(report->policies, i);
        printf(",\"denied\":%llu,\"denied_alone\":%llu,\"would_deny\":%llu,\"permits\":%llu,\"share_denied\":%.6f,",
               (unsigned long long)tally->denied, (unsigned long long)tally->denied_alone,
               (unsigned long long)tally->would_deny, (unsigned long long)tally->permits,
               share_of(tally->denied, report->rows->total));
        if (!print_top(report, report_counts_of(report, i)))
            return false;
        putchar('}');
    }
    return true;
}
