/* stats_text.c - stats as text, in Prometheus's exposition format, version 0.0.4.
 *
 * The table below names each field of struct weir_stats; a field without a line does not compile. The text is made
 * twice, first to find its length. So it is written as a whole or not at all.
 */
#include <weir/weir.h>

#include <inttypes.h>
#include <limits.h>
#include <stdio.h>

enum metric_type { COUNTER, GAUGE };

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
    METRIC(store_calls, COUNTER, "weir_store_calls_total", "Script calls that carried requests to the store."),
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
    METRIC(unsettled, COUNTER, "weir_unsettled_permits_total",
           "Permits that were admitted in outages and never charged to the store."),
};
enum { METRICS = sizeof metrics / sizeof metrics[0] };

struct one_field { /* to find the offset of the first field */
    size_t size;
    uint64_t first;
};
_Static_assert(sizeof(struct weir_stats) == offsetof(struct one_field, first) + METRICS * sizeof(uint64_t),
               "every field of struct weir_stats but `size` has a line in the table");

/* Receives text as far as there is room; `len` counts all of it. */
struct sink {
    char *text;
    size_t size, len;
};

static void sink_put_byte(struct sink *sink, char byte)
{
    if (sink->len < sink->size)
        sink->text[sink->len] = byte;
    sink->len++;
}

static void sink_put(struct sink *sink, const char *text)
{
    while (*text)
        sink_put_byte(sink, *text++);
}

static void sink_put_label(struct sink *sink, const struct weir_label *label)
{
    sink_put(sink, label->name);
    sink_put(sink, "=\"");
    for (const char *at = label->value; *at; at++) {
        if (*at == '\\' || *at == '"' || *at == '\n')
            sink_put_byte(sink, '\\');
        sink_put_byte(sink, *at == '\n' ? 'n' : *at);
    }
    sink_put_byte(sink, '"');
}

static void sink_put_labels(struct sink *sink, const struct weir_label *labels, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        sink_put_byte(sink, i == 0 ? '{' : ',');
        sink_put_label(sink, &labels[i]);
    }
    if (n > 0)
        sink_put_byte(sink, '}');
}

static void sink_put_value(struct sink *sink, const struct metric *metric, const struct weir_stats *stats)
{
    char number[24];
    uint64_t value;
    memcpy(&value, (const char *)stats + metric->offset, sizeof value);
    if (metric->type == COUNTER)
        snprintf(number, sizeof number, "%" PRIu64, value);
    else
        snprintf(number, sizeof number, "%" PRId64, (int64_t)value);
    sink_put(sink, number);
}

static size_t sink_put_all(struct sink sink, const struct weir_stats *stats, const struct weir_label *labels, size_t n)
{
    for (int i = 0; i < METRICS; i++) {
        const struct metric *metric = &metrics[i];
        sink_put(&sink, "# HELP "), sink_put(&sink, metric->name), sink_put_byte(&sink, ' '),
            sink_put(&sink, metric->help);
        sink_put(&sink, "\n# TYPE "), sink_put(&sink, metric->name);
        sink_put(&sink, metric->type == COUNTER ? " counter\n" : " gauge\n");
        sink_put(&sink, metric->name), sink_put_labels(&sink, labels, n);
        sink_put_byte(&sink, ' '), sink_put_value(&sink, metric, stats), sink_put_byte(&sink, '\n');
    }
    return sink.len;
}

/* True for [a-zA-Z_][a-zA-Z0-9_]* that does not begin with two underscores: those names belong to Prometheus. */
static bool is_label_name(const char *name)
{
    static const char allowed[] = "_abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";
    return *name && !(*name >= '0' && *name <= '9') && strncmp(name, "__", 2) != 0 && name[strspn(name, allowed)] == 0;
}

static bool labels_are_good(const struct weir_label *labels, size_t n)
{
    if (n > WEIR_MAX_LABELS || (n > 0 && !labels))
        return false;
    for (size_t i = 0; i < n; i++) {
        if (!labels[i].name || !labels[i].value || !is_label_name(labels[i].name))
            return false;
        for (size_t j = 0; j < i; j++)
            if (strcmp(labels[i].name, labels[j].name) == 0)
                return false;
    }
    return true;
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
