/* runs.c - two runs of the benchmark side by side: see runs.h.
 *
 * A figure has the median, the least and the largest of its repetitions. The ratio of two figures is that of their
 * medians; its spread reaches from the least of B over the largest of A to the largest of B over the least of A. A
 * change is beyond noise if that spread leaves out 1, so that each repetition of B lies beyond each of A, and the
 * medians differ by more than NOISE. If repetitions are fewer than REPEATS_LEAST, their spread says too little, and the
 * figure is shown without a mark. If the floor of a row changed beyond noise too, in the same direction, the machine
 * may be the reason, and the row's mark is another one.
 *
 * A row's name is its part and the texts and whole numbers before its first measured value.
 */
#include "report/runs.h"

#ifndef WEIR_BENCH_JANSSON

#include "measure/say.h"

int runs_compare(const char *path_a, const char *path_b, struct report *report)
{
    (void)path_a, (void)path_b, (void)report;
    bench_say("--compare: weir-bench was built without jansson (Debian's libjansson-dev)");
    return 2;
}

#else

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "measure/say.h"
#include "report/format.h"

#define NOISE 0.05
#define REPEATS_LEAST 5 /* chance alone separates five values from five in one figure of 126 */
#define NAME_SIZE 600
static const char RULE[] =
    "!: beyond noise, because every repetition of B is beyond every one of A and the medians differ by more than 5 %; "
    "?: the same, but the floor of the row, or a floor itself, moved that way too: perhaps the machine; figures of fewer "
    "than 5 repetitions are never marked";

struct figure {
    double median, min, max;
    int repeats;
};

struct counts {
    int figures, changed, moved; /* moved: marked ?, see RULE */
    int missing;                 /* rows of one run alone */
};

enum mark { MARK_NONE, MARK_CHANGED, MARK_MOVED };

static bool figure_read(const json_t *value, struct figure *out)
{
    const double number = json_number_value(value);
    *out = (struct figure){ number, number, number, 1 };
    if (json_is_number(value))
        return true;
    const json_t *median = json_object_get(value, "median"), *min = json_object_get(value, "min");
    const json_t *max = json_object_get(value, "max");
    if (!json_is_number(median) || !json_is_number(min) || !json_is_number(max))
        return false;
    *out = (struct figure){ json_number_value(median), json_number_value(min), json_number_value(max),
                            (int)json_integer_value(json_object_get(value, "repeats")) };
    return true;
}

/* Return 1 if B is above A beyond noise, -1 if it is below, else 0. */
static int figure_direction(const struct figure *a, const struct figure *b)
{
    if (a->repeats < REPEATS_LEAST || b->repeats < REPEATS_LEAST ||
        fabs(b->median - a->median) <= NOISE * fabs(a->median))
        return 0;
    return b->min > a->max ? 1 : b->max < a->min ? -1 : 0;
}

/* True if that member can be part of the row's name, as long as all before it are. */
static bool is_of_name(const char *key, const json_t *value, const json_t *row)
{
    if (json_object_get(row, "figure")) /* a mode's column can be a text */
        return strcmp(key, "part") == 0 || strcmp(key, "figure") == 0;
    return json_is_string(value) || json_is_integer(value);
}

static void row_name(json_t *row, char *out, size_t size)
{
    const char *key;
    json_t *value;
    size_t len = 0;
    out[0] = '\0';
    json_object_foreach(row, key, value)
    {
        if (!is_of_name(key, value, row) || len >= size)
            return;
        if (json_is_string(value))
            len += (size_t)snprintf(out + len, size - len, "|%s", json_string_value(value));
        else
            len += (size_t)snprintf(out + len, size - len, "|%lld", (long long)json_integer_value(value));
    }
}

/* Return the row of that name among `rows`, the `nth` of them from 0; NULL: there is none. */
static json_t *row_find(json_t *rows, const char *name, int nth)
{
    size_t i;
    json_t *row;
    char other[NAME_SIZE];
    json_array_foreach(rows, i, row)
    {
        row_name(row, other, sizeof other);
        if (strcmp(other, name) == 0 && nth-- == 0)
            return row;
    }
    return NULL;
}

/* Return how many rows before number `before` have that name. */
static int row_number(json_t *rows, const char *name, size_t before)
{
    int n = 0;
    char other[NAME_SIZE];
    for (size_t i = 0; i < before; i++) {
        row_name(json_array_get(rows, i), other, sizeof other);
        n += strcmp(other, name) == 0;
    }
    return n;
}

static enum mark figure_mark(const char *key, json_t *row_a, json_t *row_b, int direction)
{
    struct figure a, b;
    if (direction == 0)
        return MARK_NONE;
    if (strcmp(key, "floor") == 0)
        return MARK_MOVED;
    if (figure_read(json_object_get(row_a, "floor"), &a) && figure_read(json_object_get(row_b, "floor"), &b) &&
        figure_direction(&a, &b) == direction)
        return MARK_MOVED;
    return MARK_CHANGED;
}

static void write_ratio(const struct figure *a, const struct figure *b, enum mark mark, char *out, size_t size)
{
    static const char *const marks[] = { "", " !", " ?" };
    char ratio[24], least[24], most[24], from[24], to[24];
    format_short(from, sizeof from, a->median);
    format_short(to, sizeof to, b->median);
    if (a->median == b->median)
        snprintf(out, size, "1.00%s", marks[mark]);
    else if (a->median <= 0 || b->median < 0)
        snprintf(out, size, "%s to %s%s", from, to, marks[mark]);
    else {
        format_number(ratio, sizeof ratio, b->median / a->median);
        format_number(least, sizeof least, b->min / a->max);
        format_number(most, sizeof most, b->max / a->min);
        if (a->repeats < 2 && b->repeats < 2)
            snprintf(out, size, "%s", ratio);
        else
            snprintf(out, size, "%s (%s..%s)%s", ratio, least, a->min > 0 ? most : "-", marks[mark]);
    }
}

/* What a walk does with each figure that both runs have: it counts, lists those that changed, or reports all. */
struct walk {
    struct report *report;
    struct counts *counts; /* NULL: do not count, but report: */
    bool lists_changed;    /* a row for each figure that changed; otherwise the rows as they are */
    const char *section;
};

static void list_changed(const struct walk *walk, json_t *row, const char *key, const char *ratio,
                         const struct figure *a, const struct figure *b)
{
    char name[NAME_SIZE], from[24], to[24];
    row_name(row, name, sizeof name);
    const char *last = strrchr(name, '|');
    report_row(walk->report);
    report_text(walk->report, "section", walk->section);
    report_text(walk->report, "figure", json_object_get(row, "figure") ? last + 1 : name + (name[0] == '|'));
    report_text(walk->report, "column", key);
    format_short(from, sizeof from, a->median);
    format_short(to, sizeof to, b->median);
    report_text(walk->report, "A", from);
    report_text(walk->report, "B", to);
    report_text(walk->report, "B / A", ratio);
}

static void walk_figure(const struct walk *walk, json_t *row_a, json_t *row_b, const char *key)
{
    struct figure a, b;
    char ratio[80];
    if (!figure_read(json_object_get(row_a, key), &a) || !figure_read(json_object_get(row_b, key), &b))
        return;
    const enum mark mark = figure_mark(key, row_a, row_b, figure_direction(&a, &b));
    write_ratio(&a, &b, mark, ratio, sizeof ratio);
    if (walk->counts) {
        walk->counts->figures++;
        walk->counts->changed += mark == MARK_CHANGED;
        walk->counts->moved += mark == MARK_MOVED;
    } else if (walk->lists_changed && mark == MARK_CHANGED)
        list_changed(walk, row_b, key, ratio, &a, &b);
    else if (!walk->lists_changed)
        report_text(walk->report, key, ratio);
}

/* Begin a row in the report with the members that make its name. */
static void start_row(struct report *report, json_t *row, const char **part)
{
    const char *key, *now = json_string_value(json_object_get(row, "part"));
    json_t *value;
    if (now && (!*part || strcmp(now, *part) != 0))
        report_heading(report, *part = now);
    report_row(report);
    json_object_foreach(row, key, value)
    {
        if (!is_of_name(key, value, row))
            return;
        if (strcmp(key, "part") == 0)
            continue;
        if (json_is_string(value))
            report_text(report, key, json_string_value(value));
        else
            report_count(report, key, (uint64_t)json_integer_value(value));
    }
}

static void walk_row(const struct walk *walk, json_t *row_a, json_t *row_b)
{
    const char *key;
    json_t *value;
    bool is_name = true;
    json_object_foreach(row_b, key, value)
    {
        is_name = is_name && is_of_name(key, value, row_b);
        if (!is_name)
            walk_figure(walk, row_a, row_b, key);
    }
}

static void walk_section(const struct walk *walk, json_t *section_a, json_t *section_b)
{
    json_t *rows_a = json_object_get(section_a, "rows"), *rows_b = json_object_get(section_b, "rows");
    json_t *row_b;
    size_t i, found = 0;
    const char *part = NULL;
    char name[NAME_SIZE];
    json_array_foreach(rows_b, i, row_b)
    {
        row_name(row_b, name, sizeof name);
        json_t *row_a = row_find(rows_a, name, row_number(rows_b, name, i));
        found += row_a != NULL;
        if (!row_a)
            continue;
        if (!walk->counts && !walk->lists_changed)
            start_row(walk->report, row_b, &part);
        walk_row(walk, row_a, row_b);
    }
    if (walk->counts)
        walk->counts->missing += (int)(json_array_size(rows_a) + json_array_size(rows_b) - 2 * found);
}

/* Call walk_section() for each section that both runs have. */
static void walk_sections(struct walk walk, json_t *a, json_t *b)
{
    const char *name;
    json_t *section_b, *sections_a = json_object_get(a, "sections");
    json_object_foreach(json_object_get(b, "sections"), name, section_b)
    {
        char title[80];
        json_t *section_a = json_object_get(sections_a, name);
        if (!section_a)
            continue;
        walk.section = name;
        if (!walk.counts && !walk.lists_changed) {
            snprintf(title, sizeof title, "%s of B to A", name);
            report_section(walk.report, title,
                           "figures of B divided by A's, and the spread over all pairs of repetitions");
        }
        walk_section(&walk, section_a, section_b);
        if (!walk.counts && !walk.lists_changed)
            report_end_section(walk.report);
    }
}

static void say_machines(struct report *report, json_t *a, json_t *b)
{
    const char *fact;
    json_t *value_b, *machine_a = json_object_get(a, "machine");
    json_object_foreach(json_object_get(b, "machine"), fact, value_b)
    {
        const char *text_a = json_string_value(json_object_get(machine_a, fact)), *text_b = json_string_value(value_b);
        char words[200];
        if (!text_b || (text_a && strcmp(text_a, text_b) == 0))
            continue;
        snprintf(words, sizeof words, "%s, then %s", text_a ? text_a : "unknown", text_b);
        report_machine(report, fact, words);
    }
}

static json_t *run_read(const char *path)
{
    json_error_t error;
    json_t *run = json_load_file(path, JSON_REJECT_DUPLICATES, &error);
    if (!run && error.line > 0)
        bench_say("--compare: %s:%d: %s", path, error.line, error.text);
    else if (!run)
        bench_say("--compare: %s", error.text);
    else if (!json_is_object(json_object_get(run, "sections"))) {
        bench_say("--compare: %s: no results of weir-bench: it has no sections", path);
        json_decref(run);
        return NULL;
    }
    return run;
}

static void say_changed(struct report *report, json_t *a, json_t *b, const struct counts *counts)
{
    char sentence[300];
    snprintf(
        sentence, sizeof sentence,
        "%d of %d figures changed beyond noise; %d more did and may be the machine's; %d rows are of one run alone",
        counts->changed, counts->figures, counts->moved, counts->missing);
    report_section(report, "changed", sentence);
    walk_sections((struct walk){ .report = report, .lists_changed = true }, a, b);
    report_note(report, RULE);
    report_end_section(report);
}

int runs_compare(const char *path_a, const char *path_b, struct report *report)
{
    struct counts counts = { 0 };
    json_t *a = run_read(path_a);
    json_t *b = a ? run_read(path_b) : NULL;
    if (b)
        walk_sections((struct walk){ .counts = &counts }, a, b);
    if (b && counts.figures == 0)
        bench_say("--compare: %s and %s have no figure in common", path_a, path_b);
    if (counts.figures > 0) {
        report_machine(report, "A", path_a);
        report_machine(report, "B", path_b);
        say_machines(report, a, b);
        say_changed(report, a, b, &counts);
        walk_sections((struct walk){ .report = report }, a, b);
    }
    json_decref(a);
    json_decref(b);
    return counts.figures == 0 ? 2 : counts.changed > 0;
}

#endif
