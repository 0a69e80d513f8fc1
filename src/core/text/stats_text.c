/* stats_text.c - stats as text: Prometheus's exposition format, version 0.0.4.
 *
 * The table below says what each field of struct weir_stats is called there; without a line in it none compiles. The
 * text is made twice, first for its length: so it is written as a whole or not at all.
 */
#include <weir/weir.h>

#include <inttypes.h>
#include <limits.h>
#include <stdio.h>

enum metric_type { COUNTER, GAUGE };

struct metric {
    size_t offset; /* in struct weir_stats; a counter's field is uint64_t, a gauge's fits int64_t */
    enum metric_type type;
    const char *name, *help; /* neither a backslash nor a line feed in them */
};

#define METRIC(field, type, name, help)                      \
    {                                                        \
        offsetof(struct weir_stats, field), type, name, help \
    }

static const struct metric metrics[] = {
    METRIC(allowed, COUNTER, "weir_allowed_total", "Requests admitted; those of a batch each, an all-or-nothing once."),
    METRIC(denied, COUNTER, "weir_denied_total", "Requests denied; those of a batch each, an all-or-nothing once."),
    METRIC(errors, COUNTER, "weir_errors_total", "Decisions that ended in an error."),
    METRIC(fallbacks, COUNTER, "weir_fallbacks_total",
           "Decisions in place of a backend that could not be had; each counts as allowed or denied as well."),
    METRIC(outages, COUNTER, "weir_outages_total", "Times that the backend could no longer be had."),
    METRIC(full, COUNTER, "weir_full_total", "Answers to new keys for which there was no room."),
    METRIC(evictions, COUNTER, "weir_evictions_total", "Keys as good as new that were dropped."),
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
    METRIC(store_breaks, COUNTER, "weir_store_breaks_total",
           "Times that calls were answered without waiting, for the store was thought gone."),
    METRIC(leased, COUNTER, "weir_leased_permits_total", "Permits taken ahead of use."),
    METRIC(lease_hits, COUNTER, "weir_lease_hits_total", "Decisions by a lease."),
    METRIC(lease_lost, COUNTER, "weir_lease_lost_permits_total", "Leased permits that were not used in time."),
    METRIC(denial_hits, COUNTER, "weir_denial_hits_total", "Decisions by a denial that still held."),
    METRIC(settled, COUNTER, "weir_settled_permits_total",
           "Permits that were admitted in outages and charged to the store afterwards."),
    METRIC(unsettled, COUNTER, "weir_unsettled_permits_total",
           "Permits that were admitted in outages and of which the store was not told."),
};
enum { METRICS = sizeof metrics / sizeof metrics[0] };

struct one_field { /* where the first stands */
    size_t size;
    uint64_t first;
};
_Static_assert(sizeof(struct weir_stats) == offsetof(struct one_field, first) + METRICS * sizeof(uint64_t),
               "every field of struct weir_stats but `size` has a line in the table");

/* Where text goes, as far as there is room; `len` counts on. */
struct sink {
    char *text;
    size_t size, len;
};

static void put_byte(struct sink *sink, char byte)
{
    if (sink->len < sink->size)
        sink->text[sink->len] = byte;
    sink->len++;
}

static void put(struct sink *sink, const char *text)
{
    while (*text)
        put_byte(sink, *text++);
}

static void put_label(struct sink *sink, const struct weir_label *label)
{
    put(sink, label->name);
    put(sink, "=\"");
    for (const char *at = label->value; *at; at++) {
        if (*at == '\\' || *at == '"' || *at == '\n')
            put_byte(sink, '\\');
        put_byte(sink, *at == '\n' ? 'n' : *at);
    }
    put_byte(sink, '"');
}

static void put_labels(struct sink *sink, const struct weir_label *labels, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        put_byte(sink, i == 0 ? '{' : ',');
        put_label(sink, &labels[i]);
    }
    if (n > 0)
        put_byte(sink, '}');
}

static void put_value(struct sink *sink, const struct metric *metric, const struct weir_stats *stats)
{
    char number[24];
    uint64_t value;
    memcpy(&value, (const char *)stats + metric->offset, sizeof value);
    if (metric->type == COUNTER)
        snprintf(number, sizeof number, "%" PRIu64, value);
    else
        snprintf(number, sizeof number, "%" PRId64, (int64_t)value);
    put(sink, number);
}

static size_t put_all(struct sink sink, const struct weir_stats *stats, const struct weir_label *labels, size_t n)
{
    for (int i = 0; i < METRICS; i++) {
        const struct metric *metric = &metrics[i];
        put(&sink, "# HELP "), put(&sink, metric->name), put_byte(&sink, ' '), put(&sink, metric->help);
        put(&sink, "\n# TYPE "), put(&sink, metric->name);
        put(&sink, metric->type == COUNTER ? " counter\n" : " gauge\n");
        put(&sink, metric->name), put_labels(&sink, labels, n);
        put_byte(&sink, ' '), put_value(&sink, metric, stats), put_byte(&sink, '\n');
    }
    return sink.len;
}

/* [a-zA-Z_][a-zA-Z0-9_]*, and not two underscores in front: those names are Prometheus's own. */
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
    const size_t len = put_all((struct sink){ 0 }, stats, labels, n);
    if (len > INT_MAX)
        return WEIR_EINVAL;
    if (len < size)
        put_all((struct sink){ text, size, 0 }, stats, labels, n);
    if (size > 0)
        text[len < size ? len : 0] = '\0';
    return (int)len;
}
