/* stats_text.c - stats as text, in Prometheus's exposition format, version 0.0.4.
 *
 * The table below names each field of struct weir_stats; a field without a line does not compile. The text is made
 * twice, first to find its length. So it is written as a whole or not at all.
 */
#include "core/text/metrics.h"

#include <limits.h>

struct metric {
    size_t offset; /* in struct weir_stats; the field of a counter is uint64_t, that of a gauge fits int64_t */
    enum metric_type type;
    const char *name, *help; /* they contain no backslash and no line feed */
};

#define METRIC(field, type, name, help)                      \
    {                                                        \
        offsetof(struct weir_stats, field), type, name, help \
    }

static const struct metric metrics[] = {
    METRIC(allowed, COUNTER, "weir_allowed_total",
           "Requests admitted; each of a batch, and each all-or-nothing call once."),
    METRIC(denied, COUNTER, "weir_denied_total",
           "Requests denied; each of a batch, and each all-or-nothing call once."),
    METRIC(errors, COUNTER, "weir_errors_total", "Decisions that ended in an error."),
    METRIC(fallbacks, COUNTER, "weir_fallbacks_total",
           "Decisions by on_failure instead of the backend; each also counts as allowed or denied."),
    METRIC(outages, COUNTER, "weir_outages_total", "Outages of the backend."),
    METRIC(full, COUNTER, "weir_full_total", "Answers to new keys that had no room."),
    METRIC(evictions, COUNTER, "weir_evictions_total", "Idle keys that were dropped."),
    METRIC(share_lifts, GAUGE, "weir_share_lifts",
           "Limits whose part of a burst was 0 at this instance and was lifted to 1."),
    METRIC(share_zeros, GAUGE, "weir_share_zeros", "Limits whose part is 0 at this instance: everything is denied."),
    METRIC(keys, GAUGE, "weir_keys", "Keys held."),
    METRIC(bytes, GAUGE, "weir_memory_bytes", "Memory held for keys and tables, in bytes."),
    METRIC(share_weight, GAUGE, "weir_share_weight", "Weight of this instance in the share in force; 0: none yet."),
    METRIC(share_total, GAUGE, "weir_share_weight_of_all", "Weight of all instances in the share in force."),
    METRIC(store_requests, COUNTER, "weir_store_requests_total", "Requests sent to the store."),
    METRIC(store_calls, COUNTER, "weir_store_calls_total", "Calls that carried requests to the store."),
    METRIC(store_timeouts, COUNTER, "weir_store_timeouts_total",
           "Connections to the store given up because an answer was late."),
    METRIC(store_connections, COUNTER, "weir_store_connections_total", "Connections made to the store."),
    METRIC(store_breaks, COUNTER, "weir_store_breaks_total", "Times that the breaker stopped calls to the store."),
    METRIC(leased, COUNTER, "weir_leased_permits_total", "Permits leased."),
    METRIC(lease_hits, COUNTER, "weir_lease_hits_total", "Decisions by a lease."),
    METRIC(lease_lost, COUNTER, "weir_lease_lost_permits_total", "Leased permits that were not used in time."),
    METRIC(denial_hits, COUNTER, "weir_denial_hits_total", "Decisions by a denial that still held."),
    METRIC(settled, COUNTER, "weir_settled_permits_total",
           "Permits that were admitted in outages and charged to the store afterwards."),
    METRIC(releases_lost, COUNTER, "weir_releases_lost_total",
           "Releases of slots that were not repeated, because too many waited."),
    METRIC(unsettled, COUNTER, "weir_unsettled_permits_total",
           "Permits that were admitted in outages and never charged to the store."),
    METRIC(events_lost, COUNTER, "weir_events_lost_total", "Events for the hook that found the queue full."),
    METRIC(lock_waits, COUNTER, "weir_lock_waits_total",
           "Times that a call slept until a lock of the shared file was free."),
    METRIC(file_gone, GAUGE, "weir_file_gone", "1 if the shared file was removed or replaced while it is in use."),
    METRIC(outage, GAUGE, "weir_outage", "1 while an outage lasts: on_failure decides instead of the backend."),
};
enum { METRICS = sizeof metrics / sizeof metrics[0] };

struct one_field { /* to find the offset of the first field */
    size_t size;
    uint64_t first;
};
_Static_assert(sizeof(struct weir_stats) == offsetof(struct one_field, first) + METRICS * sizeof(uint64_t),
               "every field of struct weir_stats but `size` has a line in the table");

#define VERSION_LABEL "version"

/* Put weir_build_info, which is 1 and has the version beside the labels. */
static void sink_put_build(struct sink *sink, const struct weir_label *labels, size_t n)
{
    static const char name[] = "weir_build_info";
    struct weir_label with_version[WEIR_MAX_LABELS + 1] = { { VERSION_LABEL, weir_version() } };
    size_t count = 1;
    for (size_t i = 0; i < n; i++)
        if (strcmp(labels[i].name, VERSION_LABEL) != 0)
            with_version[count++] = labels[i];
    sink_put_head(sink, GAUGE, name, "The version of weir that runs; always 1.");
    sink_put(sink, name), sink_put_labels(sink, with_version, count);
    sink_put_value(sink, GAUGE, 1);
}

static size_t sink_put_all(struct sink sink, const struct weir_stats *stats, const struct weir_label *labels, size_t n)
{
    sink_put_build(&sink, labels, n);
    for (int i = 0; i < METRICS; i++) {
        uint64_t value;
        memcpy(&value, (const char *)stats + metrics[i].offset, sizeof value);
        sink_put_head(&sink, metrics[i].type, metrics[i].name, metrics[i].help);
        sink_put(&sink, metrics[i].name), sink_put_labels(&sink, labels, n);
        sink_put_value(&sink, metrics[i].type, value);
    }
    return sink.len;
}

int weir_stats_print(const struct weir_stats *stats, const struct weir_label *labels, size_t n, char *text, size_t size)
{
    if (!stats || stats->size != sizeof *stats || (size > 0 && !text) || !labels_are_good(labels, n))
        return WEIR_EINVAL;
    const size_t len = sink_put_all((struct sink){ 0 }, stats, labels, n);
    if (len > INT_MAX)
        return WEIR_EINVAL;
    if (len < size)
        sink_put_all((struct sink){ text, size, 0 }, stats, labels, n);
    if (size > 0)
        text[len < size ? len : 0] = '\0';
    return (int)len;
}
