/* report_document.c - the report of a replay as a document. */
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"
#include "cli/replay/input/bytes.h"
#include "cli/replay/report.h"

#define WORST 6 /* keys drawn over time */

struct ranked {
    uint32_t key, denied, requests;
};

static int ranked_compare(const void *left, const void *right)
{
    const struct ranked *a = left, *b = right;
    if (a->denied != b->denied)
        return a->denied > b->denied ? -1 : 1;
    if (a->requests != b->requests)
        return a->requests > b->requests ? -1 : 1;
    return a->key < b->key ? -1 : a->key > b->key;
}

void report_add_keys(json_t *object, const struct rows *rows, struct key_counts counts, size_t top,
                     const struct timeline *timeline)
{
    struct ranked *ranked = malloc((rows->key_count + 1) * sizeof *ranked);
    json_t *keys = ranked ? json_array() : NULL;
    uint32_t worst[WORST];
    size_t count = 0;
    for (size_t i = 0; i < rows->key_count && ranked; i++)
        if (counts.denied[i])
            ranked[count++] = (struct ranked){ (uint32_t)i, counts.denied[i], counts.requests[i] };
    if (count)
        qsort(ranked, count, sizeof *ranked, ranked_compare);
    document_add(object, "keys_ever_denied", json_integer((json_int_t)count));
    for (size_t i = 0; i < count && i < top; i++) {
        json_t *key = json_object();
        document_key(key, rows_key(rows, ranked[i].key));
        document_add(key, "requests", json_integer(ranked[i].requests));
        document_add(key, "denied", json_integer(ranked[i].denied));
        document_push(keys, key);
    }
    document_add(object, "top_keys", keys);
    size_t drawn = 0;
    for (; drawn < count && drawn < top && drawn < WORST; drawn++)
        worst[drawn] = ranked[drawn].key;
    if (timeline)
        document_add(object, "over_time", timeline_document(timeline, worst, drawn));
    free(ranked);
}

void report_add_policy(json_t *object, const struct named_policy *policy)
{
    document_add(object, "name", policy->name[0] ? json_string(policy->name) : json_null());
    document_add(object, "policy", json_string(policy->text));
    if (policy->key[0])
        document_add(object, "key_field", document_text(span_of(policy->key)));
    if (policy->cost[0])
        document_add(object, "cost_field", document_text(span_of(policy->cost)));
}

static double share_of(uint64_t part, uint64_t whole)
{
    return whole ? (double)part / (double)whole : 0.0;
}

static void add_number(json_t *object, const char *name, uint64_t number)
{
    document_add(object, name, json_integer((json_int_t)number));
}

static json_t *hybrid_document(const struct report *report)
{
    const struct comparison *found = &report->tally->comparison;
    const struct store *store = report->store;
    json_t *hybrid = json_pack("{s:I,s:s,s:b}", "instances", (json_int_t)(store->options.instances ? store->options.instances : 1),
                               "deal", store_deal_name(store), "strict", store->options.strict);
    json_t *limits = json_array();
    add_number(hybrid, "exact_admitted", found->exact_admitted);
    add_number(hybrid, "only_here", found->here_alone);
    add_number(hybrid, "only_exact", found->exact_alone);
    add_number(hybrid, "permits_over", found->permits_beyond);
    add_number(hybrid, "by_lease", found->by_lease);
    add_number(hybrid, "by_denial", found->by_denial);
    add_number(hybrid, "by_redis", found->by_redis);
    add_number(hybrid, "store_calls", found->store_calls);
    document_add(hybrid, "calls_a_request", json_real(share_of(found->store_calls, report->rows->total)));
    add_number(hybrid, "leased", found->leased);
    add_number(hybrid, "lease_lost", found->lease_lost);
    for (size_t i = 0; i < report->policies->count; i++) {
        const struct compared_limit *limit = &found->limits[i];
        json_t *leases = json_pack("{s:I,s:I,s:I}", "lease_life_us", (json_int_t)limit->lease_life_us, "lease_max",
                                   (json_int_t)limit->lease_max, "over_max", (json_int_t)limit->over_max);
        document_add(leases, "most_over", limit->is_metered ? json_real(limit->most_over) : json_null());
        document_push(limits, leases);
    }
    document_add(hybrid, "limits", limits);
    return hybrid;
}

static bool denies_beside(const struct weir_policy *policy)
{
    return policy->shadow || policy->percent || policy->candidate.limit;
}

static json_t *policy_document(const struct report *report, size_t number)
{
    const struct policies *policies = report->policies;
    const struct weir_policy *policy = &policies->all[number].policy;
    const struct policy_tally *tally = &report->tally->policies[number];
    json_t *object = json_object(), *overrides = json_array();
    bool is_shadow = denies_beside(policy);
    size_t keys = 0;
    for (size_t i = 0; i < report->rows->key_count; i++)
        keys += tally->requests_by_key[i] > 0;
    report_add_policy(object, &policies->all[number]);
    for (size_t i = 0; i < policies->override_count; i++) {
        const struct override *override = &policies->overrides[i];
        if (override->limit != number)
            continue;
        is_shadow = is_shadow || denies_beside(&override->policy);
        document_push(overrides, json_pack("{s:o,s:s}", "pattern", document_text(span_of(override->pattern)), "policy",
                                           override->text));
    }
    if (json_array_size(overrides))
        document_add(object, "overrides", overrides);
    else
        json_decref(overrides);
    add_number(object, "denied", tally->denied);
    add_number(object, "denied_alone", tally->denied_alone);
    add_number(object, "would_deny", tally->would_deny);
    add_number(object, "permits", tally->permits);
    document_add(object, "share_denied", json_real(share_of(tally->denied, report->rows->total)));
    report_add_keys(object, report->rows, (struct key_counts){ tally->requests_by_key, tally->denied_by_key },
                    report->top, NULL);
    if (is_shadow)
        document_add(object, "would_deny_by", json_string(policy->candidate.limit ? "candidate" : "shadow"));
    add_number(object, "permits_asked", tally->permits_asked);
    add_number(object, "distinct_keys", keys);
    return object;
}

json_t *report_document(const struct report *report)
{
    const struct tally *tally = report->tally;
    const size_t requests = report->rows->total;
    json_t *document = json_pack("{s:s,s:s,s:s}", "weir", weir_version(), "report", "replay", "mode",
                                 store_mode_name(report->store));
    json_t *files = json_array(), *policies = json_array(), *nearest = json_null();
    for (size_t i = 0; i < report->file_count; i++)
        document_push(files, document_text(span_of(bytes_name(report->files[i]))));
    document_add(document, "files", files);
    add_number(document, "unreadable", report->unreadable);
    add_number(document, "requests", requests);
    add_number(document, "admitted", tally->admitted);
    add_number(document, "denied", tally->denied);
    document_add(document, "share_denied", json_real(share_of(tally->denied, requests)));
    add_number(document, "permits_asked", tally->permits_asked);
    add_number(document, "permits_admitted", tally->permits_admitted);
    add_number(document, "would_deny", tally->would_deny);
    add_number(document, "distinct_keys", tally->keys);
    document_add(document, "key_field", report->key_name[0] ? document_text(span_of(report->key_name)) : json_null());
    for (size_t i = 0; i < 3 && requests == 0; i++)
        document_add(document, ((const char *const[]){ "first", "last", "busiest_second" })[i], json_null());
    if (requests) {
        document_time(document, "first", tally->first_us);
        document_time(document, "last", tally->last_us);
        document_time(document, "busiest_second", report->busiest.second * WEIR_SECOND);
        add_number(json_object_get(document, "busiest_second"), "requests", report->busiest.count);
    }
    if (report->store->options.mode == WEIR_HYBRID)
        document_add(document, "hybrid", hybrid_document(report));
    if (requests && tally->denied == 0) {
        nearest = json_object();
        document_key(nearest, rows_key(report->rows, tally->least_key));
        document_add(nearest, "remaining", json_integer(tally->least_remaining));
        document_add(nearest, "limit", json_integer(tally->least_limit));
    }
    document_add(document, "nearest", nearest);
    report_add_keys(document, report->rows, (struct key_counts){ tally->requests_by_key, tally->denied_by_key },
                    report->top, report->timeline);
    for (size_t i = 0; i < report->policies->count; i++)
        document_push(policies, policy_document(report, i));
    document_add(document, "policies", policies);
    return document_end(document);
}

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

json_t *side_document(const struct rows *rows, const struct policies *policies, const struct hold *holds)
{
    json_t *document = json_pack("{s:s,s:s,s:I}", "weir", weir_version(), "report", "compare", "requests",
                                 (json_int_t)rows->total);
    json_t *compared = json_array();
    for (size_t i = 0; i < policies->count; i++) {
        const struct policy_tally *tally = holds[i].tally.policies;
        json_t *side = json_object();
        uint64_t keys = 0, denied = 0;
        for (size_t j = 0; j < rows->key_count; j++) {
            keys += tally->requests_by_key[j] > 0;
            denied += tally->denied_by_key[j] > 0;
        }
        report_add_policy(side, &policies->all[i]);
        add_number(side, "denied", holds[i].tally.denied);
        add_number(side, "distinct_keys", keys);
        add_number(side, "keys_ever_denied", denied);
        document_push(compared, side);
    }
    document_add(document, "compared", compared);
    return document_end(document);
}
