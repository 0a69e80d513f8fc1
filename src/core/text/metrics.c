/* metrics.c - puts metrics into a text, and checks their labels. */
#include "core/text/metrics.h"

#include <inttypes.h>
#include <stdio.h>

static void sink_put_byte(struct sink *sink, char byte)
{
    if (sink->len < sink->size)
        sink->text[sink->len] = byte;
    sink->len++;
}

void sink_put(struct sink *sink, const char *text)
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

void sink_put_labels(struct sink *sink, const struct weir_label *labels, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        sink_put_byte(sink, i == 0 ? '{' : ',');
        sink_put_label(sink, &labels[i]);
    }
    if (n > 0)
        sink_put_byte(sink, '}');
}

void sink_put_head(struct sink *sink, enum metric_type type, const char *name, const char *help)
{
    sink_put(sink, "# HELP "), sink_put(sink, name), sink_put_byte(sink, ' '), sink_put(sink, help);
    sink_put(sink, "\n# TYPE "), sink_put(sink, name);
    sink_put(sink, type == COUNTER ? " counter\n" : " gauge\n");
}

void sink_put_value(struct sink *sink, enum metric_type type, uint64_t value)
{
    char text[24];
    if (type == COUNTER)
        snprintf(text, sizeof text, " %" PRIu64 "\n", value);
    else
        snprintf(text, sizeof text, " %" PRId64 "\n", (int64_t)value);
    sink_put(sink, text);
}

/* True for [a-zA-Z_][a-zA-Z0-9_]* that does not begin with two underscores: those names belong to Prometheus. */
static bool is_label_name(const char *name)
{
    static const char allowed[] = "_abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";
    return *name && !(*name >= '0' && *name <= '9') && strncmp(name, "__", 2) != 0 && name[strspn(name, allowed)] == 0;
}

bool labels_are_good(const struct weir_label *labels, size_t n)
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
