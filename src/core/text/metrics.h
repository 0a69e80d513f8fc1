/* metrics.h - text in Prometheus's exposition format, version 0.0.4. */
#ifndef CORE_TEXT_METRICS_H
#define CORE_TEXT_METRICS_H

#include <weir/weir.h>

enum metric_type { COUNTER, GAUGE };

/* Receives text as far as there is room; `len` counts all of it. */
struct sink {
    char *text;
    size_t size, len;
};

void sink_put(struct sink *sink, const char *text);

/* Put {name="value",...}; nothing without labels. */
void sink_put_labels(struct sink *sink, const struct weir_label *labels, size_t n);

/* Put # HELP and # TYPE. `help` contains no backslash and no line feed. */
void sink_put_head(struct sink *sink, enum metric_type type, const char *name, const char *help);

/* Put a blank, a value and the end of the line. A gauge's value is an int64_t. */
void sink_put_value(struct sink *sink, enum metric_type type, uint64_t value);

/* True if a caller may give these labels: names as the format wants them, each once. */
bool labels_are_good(const struct weir_label *labels, size_t n);

#endif
