/* limit_text.c - the figures of all limits as text, in Prometheus's format.
 *
 * The format wants all samples of a metric together, so the figures are read first and printed afterwards. The text is
 * made twice, first to find its length.
 */
#include "core/limiter/figures.h"
#include "core/limiter/limits.h"
#include "core/text/metrics.h"

#include <limits.h>
#include <stdlib.h>

#define LIMIT_LABEL "limit"

struct limit_figures {
    const char *name;
    struct weir_limit_stats stats;
};

static uint64_t stats_allowed(const struct weir_limit_stats *stats)
{
    return stats->allowed;
}

static uint64_t stats_denied(const struct weir_limit_stats *stats)
{
    return stats->denied;
}

static uint64_t stats_would_deny(const struct weir_limit_stats *stats)
{
    return stats->would_deny;
}

static uint64_t stats_permits(const struct weir_limit_stats *stats)
{
    return stats->permits;
}

static uint64_t stats_near(const struct weir_limit_stats *stats)
{
    return stats->near;
}

static uint64_t stats_fallbacks(const struct weir_limit_stats *stats)
{
    uint64_t sum = 0;
    for (int source = WEIR_BY_FALLBACK; source <= WEIR_BY_FAIL_CLOSED; source++)
        sum += stats->by_source[source];
    return sum;
}

static const struct {
    uint64_t (*of)(const struct weir_limit_stats *stats);
    const char *name, *help;
} limit_metrics[] = {
    { stats_allowed, "weir_limit_allowed_total", "Requests that the limit admitted." },
    { stats_denied, "weir_limit_denied_total", "Requests that the limit denied." },
    { stats_would_deny, "weir_limit_would_deny_total",
      "Requests admitted because the limit is a shadow; each also counts as allowed." },
    { stats_permits, "weir_limit_permits_total", "Permits taken." },
    { stats_near, "weir_limit_near_total", "Requests admitted that left less than a tenth of the limit." },
    { stats_fallbacks, "weir_limit_fallbacks_total",
      "Decisions by on_failure instead of the backend; each also counts as allowed or denied." },
};
enum { LIMIT_METRICS = sizeof limit_metrics / sizeof limit_metrics[0] };

static void add_stats(struct weir_limit_stats *sum, const struct weir_limit_stats *more)
{
    sum->allowed += more->allowed;
    sum->denied += more->denied;
    sum->would_deny += more->would_deny;
    sum->permits += more->permits;
    sum->near += more->near;
    for (int source = 0; source < WEIR_SOURCES_LEN; source++)
        sum->by_source[source] += more->by_source[source];
}

/* Read the figures of all limits, each with its overrides', also those that have ended: counters never fall. Return
 * how many limits there are, in *out, which the caller frees; or WEIR_ENOMEM. */
static int64_t read_all(weir *limiter, struct limit_figures **out)
{
    lock_take(&limiter->mutex);
    const size_t count = limiter->limit_count;
    struct limit_figures *all = calloc(count + 1, sizeof *all);
    for (const struct weir_limit *target = limiter->first_target; all && target; target = target->next_target) {
        struct weir_limit_stats stats = { .size = sizeof stats };
        figures_sum(target, &stats);
        add_stats(&all[target->of->id].stats, &stats);
        if (target->of->is_defined)
            all[target->of->id].name = target->of->name;
    }
    lock_give(&limiter->mutex);
    *out = all;
    return all ? (int64_t)count : WEIR_ENOMEM;
}

static size_t put_all(struct sink sink, const struct limit_figures *all, size_t count, struct weir_label *labels,
                      size_t n)
{
    for (int i = 0; i < LIMIT_METRICS; i++) {
        sink_put_head(&sink, COUNTER, limit_metrics[i].name, limit_metrics[i].help);
        for (size_t j = 0; j < count; j++) {
            if (!all[j].name) /* it only has overrides */
                continue;
            labels[0].value = all[j].name;
            sink_put(&sink, limit_metrics[i].name), sink_put_labels(&sink, labels, n);
            sink_put_value(&sink, COUNTER, limit_metrics[i].of(&all[j].stats));
        }
    }
    return sink.len;
}

int weir_limit_stats_print(weir *limiter, const struct weir_label *labels, size_t n, char *text, size_t size)
{
    struct weir_label with_limit[WEIR_MAX_LABELS + 1] = { { LIMIT_LABEL, "" } };
    if (!limiter || (size > 0 && !text) || !labels_are_good(labels, n))
        return WEIR_EINVAL;
    for (size_t i = 0; i < n; i++) {
        if (strcmp(labels[i].name, LIMIT_LABEL) == 0)
            return WEIR_EINVAL;
        with_limit[i + 1] = labels[i];
    }
    struct limit_figures *all;
    const int64_t count = read_all(limiter, &all);
    if (count < 0)
        return (int)count;
    const size_t len = put_all((struct sink){ 0 }, all, (size_t)count, with_limit, n + 1);
    if (len < size)
        put_all((struct sink){ text, size, 0 }, all, (size_t)count, with_limit, n + 1);
    free(all);
    if (len > INT_MAX)
        return WEIR_EINVAL;
    if (size > 0)
        text[len < size ? len : 0] = '\0';
    return (int)len;
}
