/* verdict.c - the sentences that choose a mode, from the figures of section modes. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "report/inside.h"

/* Return the value in the first row whose part and figure begin with these words; NULL: there is none. */
static const json_t *find(const json_t *document, const char *part, const char *figure, const char *mode)
{
    const json_t *section = json_object_get(json_object_get(document, "sections"), "modes");
    const json_t *rows = json_object_get(section, "rows"), *row;
    size_t i;
    json_array_foreach(rows, i, row)
    {
        const char *in = json_string_value(json_object_get(row, "part"));
        const char *of = json_string_value(json_object_get(row, "figure"));
        if (in && of && strncmp(in, part, strlen(part)) == 0 && strncmp(of, figure, strlen(figure)) == 0)
            return json_object_get(row, mode);
    }
    return NULL;
}

struct words {
    char text[24];
};

static struct words words_of(const json_t *value, double (*read)(const json_t *))
{
    struct words words = { "(not measured)" };
    if (!isnan(read(value)))
        number_show(words.text, sizeof words.text, read(value));
    return words;
}

void verdict_write(const json_t *document, char sentences[VERDICT_SENTENCES][VERDICT_SIZE])
{
    static const char *const modes[] = { "hybrid", "distributed", "machine" };
    struct words speed[3], p50[3], p99[3], calls[3], over[3], away[3];
    for (int i = 0; i < 3; i++) {
        speed[i] = words_of(find(document, "Throughput", "1 caller", modes[i]), value_number);
        p50[i] = words_of(find(document, "Latency", "10,000 a second: p50", modes[i]), value_number);
        p99[i] = words_of(find(document, "Latency", "10,000 a second: p99", modes[i]), value_number);
        calls[i] = words_of(find(document, "Latency", "10,000 a second: Redis calls", modes[i]), value_number);
        over[i] = words_of(find(document, "Accuracy, token bucket", "largest excess", modes[i]), value_largest);
        away[i] = words_of(find(document, "Redis dies", "longest call", modes[i]), value_largest);
        sentences[i][0] = '\0';
    }
    if (find(document, "Throughput", "1 caller", "hybrid"))
        snprintf(
            sentences[0], VERDICT_SIZE,
            "Take hybrid if several machines share limits and most requests must not wait: p50 is %s us and p99 %s "
            "us at 10,000 requests a second, with %s Redis calls per million instead of %s; a key may exceed its "
            "limit, here by %s permits.",
            p50[0].text, p99[0].text, calls[0].text, calls[1].text, over[0].text);
    if (find(document, "Throughput", "1 caller", "distributed"))
        snprintf(
            sentences[1], VERDICT_SIZE,
            "Take distributed if a limit must hold exactly over several machines (excess: %s) and a round trip for "
            "each request is acceptable: p50 is %s us, p99 %s us; while Redis is away, the longest call took %s ms.",
            over[1].text, p50[1].text, p99[1].text, away[1].text);
    if (find(document, "Throughput", "1 caller", "machine"))
        snprintf(sentences[2], VERDICT_SIZE,
                 "Take machine if all processes that share limits run on one machine: %s decisions a second for one "
                 "caller, excess %s, p99 %s us, and no Redis; local, if there is one process.",
                 speed[2].text, over[2].text, p99[2].text);
}
