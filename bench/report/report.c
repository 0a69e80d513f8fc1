/* report.c - the results as one JSON document: see report.h.
 *
 * jansson keeps the members of an object in their order, so rows need no list of columns. No value is checked for lack
 * of memory: jansson then leaves it out, and a benchmark on such a machine means nothing.
 */
#include "report/report.h"

#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "measure/say.h"
#include "report/inside.h"

#define WIDTH 100
#define MAX_COLUMNS 16
#define MAX_TEXT 100
#define MAX_PATH 4096

struct report {
    json_t *document, *machine, *sections;
    json_t *section, *rows, *row, *notes, *options, *curves; /* the current ones; the document owns them */
    char heading[MAX_TEXT * 3];
    FILE *json, *table, *page; /* NULL: none */
    char page_path[MAX_PATH];
};

static struct report *current; /* the open one */

/* ---- The document ---- */

static FILE *open_file(const char *option, const char *path)
{
    FILE *file = fopen(path, "w");
    if (!file)
        bench_say("%s: cannot write %s: %s", option, path, strerror(errno));
    return file;
}

static FILE *open_in(const char *folder, const char *name, char path[MAX_PATH])
{
    snprintf(path, MAX_PATH, "%s/%s", folder, name);
    return open_file("--results", path);
}

static void report_free(struct report *report)
{
    FILE *const files[] = { report->json, report->table, report->page };
    for (size_t i = 0; i < sizeof files / sizeof *files; i++)
        if (files[i])
            fclose(files[i]);
    json_decref(report->document);
    current = NULL;
    free(report);
}

struct report *report_open(const char *json_path, const char *folder)
{
    char path[MAX_PATH];
    struct report *report = bench_allocate(1, sizeof *report);
    current = report;
    report->document = json_object();
    json_object_set_new(report->document, "machine", report->machine = json_object());
    json_object_set_new(report->document, "sections", report->sections = json_object());
    if (json_path)
        report->json = open_file("--json", json_path);
    else if (folder)
        report->json = open_in(folder, "results.json", path);
    if (folder) {
        report->table = open_in(folder, "table.txt", path);
        report->page = open_in(folder, "results.html", report->page_path);
    }
    if ((!json_path || report->json) && (!folder || (report->json && report->table && report->page)))
        return report;
    report_free(report);
    return NULL;
}

void report_machine(struct report *report, const char *name, const char *value)
{
    json_object_set_new(report->machine, name, json_string(value));
}

void report_section(struct report *report, const char *name, const char *sentence)
{
    json_object_set_new(report->sections, name, report->section = json_object());
    json_object_set_new(report->section, "about", json_string(sentence));
    json_object_set_new(report->section, "options", report->options = json_array());
    json_object_set_new(report->section, "rows", report->rows = json_array());
    json_object_set_new(report->section, "notes", report->notes = json_array());
    json_object_set_new(report->section, "curves", report->curves = json_array());
    report->heading[0] = '\0';
}

void report_heading(struct report *report, const char *words)
{
    snprintf(report->heading, sizeof report->heading, "%s", words);
}

void report_row(struct report *report)
{
    json_array_append_new(report->rows, report->row = json_object());
    if (report->heading[0] != '\0')
        json_object_set_new(report->row, "part", json_string(report->heading));
}

void report_detail(struct report *report)
{
    json_object_set_new(report->row, "detail", json_true());
}

void report_text(struct report *report, const char *column, const char *text)
{
    json_object_set_new(report->row, column, json_string(text));
}

void report_count(struct report *report, const char *column, uint64_t count)
{
    json_object_set_new(report->row, column, json_integer((json_int_t)count));
}

void report_number(struct report *report, const char *column, double number)
{
    json_object_set_new(report->row, column, json_real(number));
}

void report_sample(struct report *report, const char *column, const struct sample *sample)
{
    if (sample->n > 0)
        json_object_set_new(report->row, column,
                            json_pack("{s:f, s:f, s:f, s:i}", "median", sample_median(sample), "min",
                                      sample_min(sample), "max", sample_max(sample), "repeats", sample->n));
}

void report_note(struct report *report, const char *sentence)
{
    json_array_append_new(report->notes, json_string(sentence));
}

static void add_option(const char *words)
{
    const struct report *report = current;
    if (!report || !report->section)
        return;
    for (size_t i = 0; i < json_array_size(report->options); i++)
        if (strcmp(json_string_value(json_array_get(report->options, i)), words) == 0)
            return;
    json_array_append_new(report->options, json_string(words));
}

void report_options(const struct weir_options *options)
{
    static const char *const failures[] = { [WEIR_FAIL_OPEN] = "on_failure=WEIR_FAIL_OPEN",
                                            [WEIR_FAIL_CLOSED] = "on_failure=WEIR_FAIL_CLOSED",
                                            [WEIR_FAIL_ERROR] = "on_failure=WEIR_FAIL_ERROR" };
    const struct {
        const char *name;
        int64_t value; /* 0: its default */
    } numbers[] = { { "timeout_us", options->timeout_us },     { "open_for_us", options->open_for_us },
                    { "lease_excess", options->lease_excess }, { "lease_life_us", options->lease_life_us },
                    { "lease_max", options->lease_max },       { "strict", options->strict },
                    { "instances", options->instances },       { "redis_gather_us", options->redis_gather_us },
                    { "keep_idle", options->keep_idle },       { "top_keys", options->top_keys } };
    char words[MAX_TEXT];
    if (options->on_failure != WEIR_FAIL_LOCAL)
        add_option(failures[options->on_failure]);
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        snprintf(words, sizeof words, "%s=%lld", numbers[i].name, (long long)numbers[i].value);
        if (numbers[i].value != 0)
            add_option(words);
    }
}

void report_lease(weir_limit *limit)
{
    struct weir_limit_info info = { .size = sizeof info };
    char words[MAX_TEXT];
    if (weir_limit_info(limit, &info) != WEIR_OK || info.lease_life_us <= 0)
        return;
    if (info.lease_life_us < WEIR_SECOND)
        snprintf(words, sizeof words, "leases of %g ms", (double)info.lease_life_us / 1e3);
    else
        snprintf(words, sizeof words, "leases of %g s", (double)info.lease_life_us / 1e6);
    add_option(words);
}

void report_curves(struct report *report, const struct report_curves *curves)
{
    json_t *names = json_array();
    for (size_t i = 0; i < sizeof curves->names / sizeof *curves->names && curves->names[i]; i++)
        json_array_append_new(names, json_string(curves->names[i]));
    json_array_append_new(report->curves,
                          json_pack("{s:s, s:s, s:s, s:s, s:b, s:b, s:o, s:[]}", "part", report->heading, "title",
                                    curves->title, "x", curves->x, "y", curves->y, "log_x", curves->is_log_x, "log_y",
                                    curves->is_log_y, "names", names, "points"));
}

static json_t *last_curves(const struct report *report)
{
    return json_array_get(report->curves, json_array_size(report->curves) - 1);
}

void report_point(struct report *report, double x, const double *values)
{
    json_t *point = json_array(), *curves = last_curves(report);
    json_array_append_new(point, json_real(x));
    for (size_t i = 0; i < json_array_size(json_object_get(curves, "names")); i++)
        json_array_append_new(point, isfinite(values[i]) ? json_real(values[i]) : json_null());
    json_array_append_new(json_object_get(curves, "points"), point);
}

void report_range(struct report *report, double from, double to, const char *what)
{
    json_object_set_new(last_curves(report), "range",
                        json_pack("{s:f, s:f, s:s}", "from", from, "to", to, "what", what));
}

/* ---- The tables ---- */

void number_show(char *out, size_t size, double number)
{
    const double most = fabs(number), scaled = most < 10e3 ? number : most < 1e6 ? number / 1e3 : number / 1e6;
    const char *unit = most < 10e3 ? "" : most < 1e6 ? "k" : "M";
    snprintf(out, size, "%.*f%s", most == 0 || fabs(scaled) >= 100 ? 0 : fabs(scaled) < 10 ? 2 : 1, scaled, unit);
}

double value_number(const json_t *value)
{
    const json_t *median = json_object_get(value, "median");
    value = median ? median : value;
    return json_is_number(value) ? json_number_value(value) : NAN;
}

double value_largest(const json_t *value)
{
    const json_t *max = json_object_get(value, "max");
    return max ? json_number_value(max) : value_number(value);
}

/* Write a value as a cell shows it; with its spread, by the end farther from the median, where there is room. */
static void value_show(const json_t *value, bool has_room, char *out, size_t size)
{
    char number[MAX_TEXT / 2];
    const double median = value_number(value);
    const double spread = fmax(value_largest(value) - median,
                               median - json_number_value(json_object_get(value, "min")));
    if (json_is_string(value))
        snprintf(out, size, "%s", json_string_value(value));
    else if (json_is_integer(value))
        snprintf(out, size, "%lld", (long long)json_integer_value(value));
    else if (!value)
        snprintf(out, size, "-");
    else {
        number_show(number, sizeof number, median);
        if (has_room && json_integer_value(json_object_get(value, "repeats")) > 1 && median > 0)
            snprintf(out, size, "%s +-%.0f%%", number, fmin(100 * spread / median, 999));
        else
            snprintf(out, size, "%s", number);
    }
}

__attribute__((format(printf, 2, 3))) static void print(struct report *report, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vprintf(format, arguments);
    va_end(arguments);
    va_start(arguments, format);
    if (report->table)
        vfprintf(report->table, format, arguments);
    va_end(arguments);
}

/* Print in lines of at most WIDTH. */
static void print_sentence(struct report *report, const char *sentence)
{
    size_t used = 0;
    for (const char *gap = ""; *sentence; gap = " ") {
        const size_t len = strcspn(sentence, " ");
        const bool fits = used + strlen(gap) + len <= WIDTH;
        print(report, "%s%.*s", fits ? gap : "\n", (int)len, sentence);
        used = (fits ? used + strlen(gap) : 0) + len;
        sentence += len;
        sentence += strspn(sentence, " ");
    }
    print(report, "\n");
}

struct table {
    bool has_room; /* a table of those who change weir may be wider than WIDTH */
    int columns_len;
    const char *columns[MAX_COLUMNS];
    int widths[MAX_COLUMNS];
};

static bool is_column(const struct table *table, const char *key)
{
    return strcmp(key, "part") != 0 && strcmp(key, "detail") != 0 && (table->has_room || strcmp(key, "which is") != 0);
}

static void add_column(struct table *table, const char *key, const json_t *value)
{
    char text[MAX_TEXT];
    int i = 0;
    value_show(value, table->has_room, text, sizeof text);
    while (i < table->columns_len && strcmp(table->columns[i], key) != 0)
        i++;
    if (i == MAX_COLUMNS)
        bench_fail("more than %d columns in a report", MAX_COLUMNS);
    if (i == table->columns_len) {
        table->columns[table->columns_len++] = key;
        table->widths[i] = (int)strlen(key);
    }
    table->widths[i] = (int)strlen(text) > table->widths[i] ? (int)strlen(text) : table->widths[i];
}

static void print_row(struct report *report, const struct table *table, const json_t *row)
{
    for (int i = 0; i < table->columns_len; i++) {
        char text[MAX_TEXT];
        value_show(json_object_get(row, table->columns[i]), table->has_room, text, sizeof text);
        print(report, "%-*s", i + 1 == table->columns_len ? 0 : table->widths[i] + 2, row ? text : table->columns[i]);
    }
    print(report, "\n");
}

static void print_table(struct report *report, const char *name, json_t *section)
{
    struct table table = { .has_room = strcmp(name, "modes") != 0 };
    const char *key, *part = "";
    json_t *row, *value, *rows = json_object_get(section, "rows");
    size_t i;
    json_array_foreach(rows, i, row)
        json_object_foreach(row, key, value) if (is_column(&table, key) && !json_object_get(row, "detail"))
            add_column(&table, key, value);
    print(report, "\n");
    if (table.has_room)
        print(report, "%s: ", name);
    print_sentence(report, json_string_value(json_object_get(section, "about")));
    print(report, "\n");
    print_row(report, &table, NULL);
    json_array_foreach(rows, i, row)
    {
        const char *now = json_string_value(json_object_get(row, "part"));
        if (json_object_get(row, "detail"))
            continue;
        if (now && strcmp(now, part) != 0) {
            print(report, "\n");
            print_sentence(report, part = now);
        }
        print_row(report, &table, row);
    }
    json_array_foreach(json_object_get(section, "notes"), i, value)
    {
        print(report, i == 0 ? "\n" : "");
        print_sentence(report, json_string_value(value));
    }
}

/* Print the texts of an object, after their names, or of an array. */
static void print_list(struct report *report, const char *before, const json_t *list)
{
    char sentence[MAX_TEXT * 10];
    const char *name, *gap = "";
    size_t i, len = (size_t)snprintf(sentence, sizeof sentence, "%s", before);
    json_t *value;
    json_array_foreach(list, i, value)
    {
        len += (size_t)snprintf(sentence + len, sizeof sentence - len, "%s%.80s", gap, json_string_value(value));
        gap = ", ";
    }
    json_object_foreach((json_t *)list, name, value)
    {
        len += (size_t)snprintf(sentence + len, sizeof sentence - len, "%s%s: %.80s", gap, name,
                                json_string_value(value));
        gap = "; ";
    }
    if (*gap)
        print_sentence(report, sentence);
}

static void print_disturbances(struct report *report)
{
    char sentence[MAX_TEXT * 2];
    const struct measure_disturbances disturbed = measure_disturbed();
    json_object_set_new(report->document, "disturbed",
                        json_pack("{s:i, s:i}", "repeated", disturbed.repeated, "kept", disturbed.kept));
    if (disturbed.repeated + disturbed.kept == 0)
        return;
    snprintf(sentence, sizeof sentence,
             "DISTURBED: other programs used the processors in %d repetitions, which were measured again, and in %d "
             "that count.%s",
             disturbed.repeated, disturbed.kept, disturbed.kept > 0 ? " Do not trust these figures." : "");
    print_sentence(report, sentence);
}

static void print_verdict(struct report *report)
{
    char sentences[VERDICT_SENTENCES][VERDICT_SIZE];
    json_t *list = json_array();
    verdict_write(report->document, sentences);
    for (int i = 0; i < VERDICT_SENTENCES; i++) {
        if (sentences[i][0] == '\0')
            continue;
        print(report, json_array_size(list) == 0 ? "\n" : "");
        print_sentence(report, sentences[i]);
        json_array_append_new(list, json_string(sentences[i]));
    }
    json_object_set_new(report->document, "verdict", list);
}

/* ---- The files ---- */

/* Write the template with the document in it, in which no "<" may end the script around it. */
static void write_page(struct report *report, const char *json)
{
    static const char mark[] = "@DOCUMENT@";
    const char *place = strstr(page_template, mark);
    fwrite(page_template, 1, (size_t)(place - page_template), report->page);
    for (; *json; json++)
        if (*json == '<')
            fputs("\\u003c", report->page);
        else
            fputc(*json, report->page);
    fputs(place + strlen(mark), report->page);
}

static bool close_file(const char *what, FILE **file)
{
    bool failed = *file && ferror(*file) != 0;
    failed = (*file && fclose(*file) != 0) || failed;
    *file = NULL;
    if (failed)
        bench_say("the %s could not be written in full", what);
    return !failed;
}

bool report_close(struct report *report)
{
    const char *name;
    json_t *section;
    print_disturbances(report);
    print_list(report, "", report->machine);
    json_object_foreach(report->sections, name, section)
    {
        print_table(report, name, section);
        print(report, "\n");
        print_list(report, "Options other than the defaults: ", json_object_get(section, "options"));
    }
    print_verdict(report);
    char *json = json_dumps(report->document, JSON_INDENT(1) | JSON_REAL_PRECISION(6));
    if (report->json && json)
        fprintf(report->json, "%s\n", json);
    if (report->page && json)
        write_page(report, json);
    bool written = json && close_file("JSON", &report->json);
    free(json);
    written = close_file("table", &report->table) && written;
    const bool has_page = report->page != NULL;
    written = close_file("page", &report->page) && written;
    if (has_page && written)
        printf("\nThe page with all figures: %s\n", report->page_path);
    if (fflush(stdout) != 0 || ferror(stdout)) {
        bench_say("cannot write the table");
        written = false;
    }
    report_free(report);
    return written;
}
