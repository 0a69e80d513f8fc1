/* side.c - several policies applied to the same rows one by one, side by side.
 *
 * A replay is exact and always the same, so ratios have no spread: any difference is the policies'.
 */
#include "cli/replay/side.h"

#include <stdio.h>
#include <stdlib.h>

#include "cli/cli.h"
#include "cli/json.h"
#include "cli/replay/report.h"
#include "cli/times.h"

bool side_policy(const struct policies *policies, size_t number, struct policies *out)
{
    *out = (struct policies){ .all = &policies->all[number], .count = 1 };
    out->overrides = malloc((policies->override_count + 1) * sizeof *out->overrides);
    for (size_t i = 0; i < policies->override_count && out->overrides; i++)
        if (policies->overrides[i].limit == number) {
            out->overrides[out->override_count] = policies->overrides[i];
            out->overrides[out->override_count++].limit = 0;
        }
    return out->overrides;
}

static struct side side_of(const struct hold *hold)
{
    const struct policy_tally *tally = hold->tally.policies;
    struct side side = { .denied = hold->tally.denied };
    for (size_t i = 0; i < hold->rows->key_count; i++) {
        side.keys += tally->requests_by_key[i] > 0;
        side.keys_denied += tally->denied_by_key[i] > 0;
    }
    return side;
}

static void print_text(const struct rows *rows, const struct policies *policies, const struct side *sides)
{
    report_count("requests", rows->total, 0, "");
    printf("\n%12s%10s%10s%14s%10s   policy\n", "denied", "share", "to first", "keys denied", "share");
    for (size_t i = 0; i < policies->count; i++) {
        const struct named_policy *policy = &policies->all[i];
        char share[TIME_TEXT_SIZE], keys[TIME_TEXT_SIZE], ratio[32] = "-";
        report_share(sides[i].denied, rows->total, share);
        report_share(sides[i].keys_denied, sides[i].keys, keys);
        if (sides[0].denied)
            snprintf(ratio, sizeof ratio, "%.2f", (double)sides[i].denied / (double)sides[0].denied);
        printf("%12llu%10s%10s%14zu%10s   %s%s%s\n", (unsigned long long)sides[i].denied, share, ratio,
               sides[i].keys_denied, keys, policy->name, policy->name[0] ? " = " : "", policy->text);
    }
}

static void print_json(const struct rows *rows, const struct policies *policies, const struct side *sides)
{
    printf("{\"weir\":\"%s\",\"requests\":%zu,\"compared\":[", weir_version(), rows->total);
    for (size_t i = 0; i < policies->count; i++) {
        const struct named_policy *policy = &policies->all[i];
        fputs(i ? ",{\"name\":" : "{\"name\":", stdout);
        if (policy->name[0])
            json_put_string(span_of(policy->name));
        else
            fputs("null", stdout);
        fputs(",\"policy\":", stdout);
        json_put_string(span_of(policy->text));
        printf(",\"denied\":%llu,\"distinct_keys\":%zu,\"keys_ever_denied\":%zu}", (unsigned long long)sides[i].denied,
               sides[i].keys, sides[i].keys_denied);
    }
    fputs("]}\n", stdout);
}

int side_print(const struct rows *rows, const struct policies *policies, const struct hold *holds,
               struct side_output output)
{
    struct side *sides = calloc(policies->count, sizeof *sides);
    if (!sides)
        return out_of_memory();
    for (size_t i = 0; i < policies->count; i++)
        sides[i] = side_of(&holds[i]);
    (output.is_json ? print_json : print_text)(rows, policies, sides);
    const int code = output.html ? page_side_write(rows, policies, sides, output.html) : EXIT_OK;
    free(sides);
    return code;
}
