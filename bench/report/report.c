/* report.c - rows of named values, printed as a table for people and as JSON for programs.
 *
 * A section's values are kept as text, once for each output, until the section ends: only then are the columns' widths
 * known. Every table has a named maximum; exceeding it is a mistake of the benchmark and ends the program.
 */
#include "report/report.h"

#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "measure/say.h"
#include "report/differs.h"
#include "report/format.h"
#include "report/inside.h"
#include "report/page.h"
#include "report/verdict.h"

#define WIDTH 120 /* of sentences; a table may be wider */

static void require_room(int used, int max, const char *what)
{
    if (used < max)
        return;
    bench_fail("more than %d %s in a report", max, what);
}

__attribute__((format(printf, 2, 3))) static void json_print(struct report *report, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    if (report->json)
        vfprintf(report->json, format, arguments);
    va_end(arguments);
}

__attribute__((format(printf, 2, 3))) static void report_print(struct report *report, const char *format, ...)
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

/* Quote `text` as a JSON string, cut to fit. */
static void json_quote(const char *text, char *out, size_t out_size)
{
    size_t len = 0;
    out[len++] = '"';
    for (; *text && len + 8 < out_size; text++) {
        if (*text == '"' || *text == '\\')
            out[len++] = '\\';
        out[len++] = (unsigned char)*text < ' ' ? ' ' : *text;
    }
    out[len++] = '"';
    out[len] = '\0';
}

/* Open for writing; NULL, with a line on stderr, on failure. */
static FILE *report_open_file(const char *option, const char *path)
{
    FILE *file = fopen(path, "w");
    if (!file)
        bench_say("%s: cannot write %s: %s", option, path, strerror(errno));
    return file;
}

static bool open_files(struct report *report, const char *json_path, const char *folder)
{
    char path[MAX_PATH];
    if (folder) {
        snprintf(path, sizeof path, "%s/table.txt", folder);
        if (!(report->table = report_open_file("--results", path)) || !report_page_open(report, folder))
            return false;
    }
    if (json_path)
        return (report->json = report_open_file("--json", json_path));
    snprintf(path, sizeof path, "%s/results.json", folder ? folder : "");
    return !folder || (report->json = report_open_file("--results", path));
}

static bool close_file(const char *what, FILE *file)
{
    bool failed = file && ferror(file) != 0;
    if (file && fclose(file) != 0)
        failed = true;
    if (failed)
        bench_say("the %s could not be written in full", what);
    return !failed;
}

struct report *report_open(const char *json_path, const char *folder)
{
    struct report *report = calloc(1, sizeof *report);
    if (!report) {
        bench_say("no memory for the report");
        return NULL;
    }
    if (!open_files(report, json_path, folder)) {
        if (report->table)
            fclose(report->table);
        if (report->page)
            fclose(report->page);
        free(report);
        return NULL;
    }
    json_print(report, "{\n  \"machine\": {");
    return report;
}

void report_machine(struct report *report, const char *name, const char *value)
{
    char quoted[4 * MAX_TEXT];
    json_quote(value, quoted, sizeof quoted);
    json_print(report, "%s\n    \"%s\": %s", report->facts_len > 0 ? "," : "", name, quoted);
    size_t len = strlen(name) + strlen(value) + 4;
    bool fits = report->facts_width + len <= WIDTH;
    report_print(report, "%s%s: %s", report->facts_len == 0 ? "" : fits ? "; " : ";\n", name, value);
    report->facts_width = fits ? report->facts_width + len : len;
    report->facts_len++;
    const size_t used = strlen(report->machine);
    snprintf(report->machine + used, sizeof report->machine - used, "%s%s: %s", used ? "; " : "", name, value);
}

void report_section(struct report *report, const char *name, const char *sentence)
{
    if (report->sections_len == 0) {
        json_print(report, "\n  },\n  \"sections\": {");
        report_print(report, "\n");
    }
    snprintf(report->section, sizeof report->section, "%s", name);
    snprintf(report->sentence, sizeof report->sentence, "%s", sentence);
    report->columns_len = 0;
    report->rows_len = 0;
    report->notes_len = 0;
    report->headings[0][0] = '\0';
}

void report_row(struct report *report)
{
    require_room(report->rows_len, MAX_ROWS - 1, "rows");
    memset(report->rows[report->rows_len++], 0, sizeof report->rows[0]);
    report->headings[report->rows_len][0] = '\0';
}

void report_heading(struct report *report, const char *words)
{
    snprintf(report->headings[report->rows_len], sizeof report->headings[0], "%s", words);
}

void report_note(struct report *report, const char *sentence)
{
    require_room(report->notes_len, MAX_NOTES, "notes");
    snprintf(report->notes[report->notes_len++], sizeof report->notes[0], "%s", sentence);
}

/* Return the current row's place in that column, which is added if it is new. */
static struct value *value_at(struct report *report, const char *column)
{
    int i = 0;
    while (i < report->columns_len && strcmp(report->columns[i], column) != 0)
        i++;
    if (i == report->columns_len) {
        require_room(i, MAX_COLUMNS, "columns");
        snprintf(report->columns[i], MAX_TEXT, "%s", column);
        report->columns_len++;
    }
    return &report->rows[report->rows_len - 1][i];
}

void report_text(struct report *report, const char *column, const char *text)
{
    struct value *value = value_at(report, column);
    snprintf(value->table, MAX_TEXT, "%s", text);
    json_quote(text, value->json, MAX_TEXT);
}

void report_count(struct report *report, const char *column, uint64_t count)
{
    struct value *value = value_at(report, column);
    snprintf(value->table, MAX_TEXT, "%llu", (unsigned long long)count);
    snprintf(value->json, MAX_TEXT, "%llu", (unsigned long long)count);
}

void report_number(struct report *report, const char *column, double number)
{
    struct value *value = value_at(report, column);
    format_number(value->table, MAX_TEXT, number);
    snprintf(value->json, MAX_TEXT, "%.6g", number);
    if (isfinite(number) && !strpbrk(value->json, ".e")) /* whole numbers are counts, see runs.c */
        strncat(value->json, ".0", MAX_TEXT - strlen(value->json) - 1);
}

void report_sample(struct report *report, const char *column, const struct sample *sample)
{
    struct value *value = value_at(report, column);
    format_sample(value->table, MAX_TEXT, sample);
    format_sample_json(value->json, MAX_TEXT, sample);
}

void report_figure(struct report *report, const char *column, const struct sample *sample)
{
    struct value *value = value_at(report, column);
    format_figure(value->table, MAX_TEXT, sample);
    format_sample_json(value->json, MAX_TEXT, sample);
}

/* Print in lines of at most WIDTH. */
static void print_sentence(struct report *report, const char *before, const char *sentence)
{
    size_t used = strlen(before);
    report_print(report, "%s", before);
    for (const char *gap = ""; *sentence; gap = " ") {
        size_t len = strcspn(sentence, " ");
        bool fits = used + strlen(gap) + len <= WIDTH;
        report_print(report, "%s%.*s", fits ? gap : "\n", (int)len, sentence);
        used = (fits ? used + strlen(gap) : 0) + len;
        sentence += len;
        sentence += strspn(sentence, " ");
    }
    report_print(report, "\n");
}

static void print_row(struct report *report, int row, const int *widths)
{
    for (int i = 0; i < report->columns_len; i++) {
        const char *text = row < 0 ? report->columns[i] : report->rows[row][i].table;
        bool last = i + 1 == report->columns_len;
        report_print(report, "%-*s", last ? 0 : widths[i] + 2, *text ? text : "-");
    }
    report_print(report, "\n");
}

/* Print what the modes' table says, before it. */
static void print_verdict(struct report *report)
{
    char sentences[VERDICT_SENTENCES][VERDICT_SIZE];
    verdict_write(report, sentences);
    for (int i = 0; i < VERDICT_SENTENCES; i++)
        if (sentences[i][0] != '\0')
            print_sentence(report, "\n", sentences[i]);
}

static void print_table(struct report *report)
{
    int widths[MAX_COLUMNS];
    char name[MAX_TEXT + 2];
    for (int i = 0; i < report->columns_len; i++) {
        widths[i] = (int)strlen(report->columns[i]);
        for (int row = 0; row < report->rows_len; row++) {
            int width = (int)strlen(report->rows[row][i].table);
            widths[i] = width > widths[i] ? width : widths[i];
        }
    }
    if (strcmp(report->section, "modes") == 0)
        print_verdict(report);
    snprintf(name, sizeof name, "%s: ", report->section);
    report_print(report, "\n");
    print_sentence(report, name, report->sentence);
    print_row(report, -1, widths);
    for (int row = 0; row < report->rows_len; row++) {
        if (report->headings[row][0] != '\0')
            print_sentence(report, "\n", report->headings[row]);
        print_row(report, row, widths);
    }
    for (int i = 0; i < report->notes_len; i++)
        print_sentence(report, i == 0 ? "\n" : "", report->notes[i]);
    fflush(stdout);
    if (report->table)
        fflush(report->table);
}

static void report_print_json(struct report *report)
{
    char sentence[2 * sizeof report->sentence];
    json_quote(report->sentence, sentence, sizeof sentence);
    json_print(report, "%s\n    \"%s\": {\n      \"about\": %s,\n      \"rows\": [",
               report->sections_len > 0 ? "," : "", report->section, sentence);
    char part[2 * sizeof report->headings[0]] = "";
    for (int row = 0; row < report->rows_len; row++) {
        const char *before = "";
        if (report->headings[row][0] != '\0')
            json_quote(report->headings[row], part, sizeof part);
        json_print(report, "%s\n        {", row > 0 ? "," : "");
        if (part[0] != '\0') {
            json_print(report, "\"part\": %s", part);
            before = ", ";
        }
        for (int i = 0; i < report->columns_len; i++) {
            if (report->rows[row][i].json[0] == '\0')
                continue;
            json_print(report, "%s\"%s\": %s", before, report->columns[i], report->rows[row][i].json);
            before = ", ";
        }
        json_print(report, "}");
    }
    json_print(report, "\n      ]");
    for (int i = 0; i < report->notes_len; i++) {
        json_quote(report->notes[i], sentence, sizeof sentence);
        json_print(report, "%s\n        %s", i == 0 ? ",\n      \"notes\": [" : ",", sentence);
    }
    json_print(report, "%s,\n      \"options\": \"%s\"\n    }", report->notes_len > 0 ? "\n      ]" : "",
               report->options);
}

void report_end_section(struct report *report)
{
    differs_report(report);
    print_table(report);
    report_print_json(report);
    report_page_section(report);
    report->sections_len++;
}

static void print_disturbances(struct report *report)
{
    struct measure_disturbances disturbed = measure_disturbed();
    if (disturbed.repeated > 0)
        report_print(
            report,
            "\nother programs disturbed %d repetitions, which were measured again; %d more were kept although disturbed\n",
            disturbed.repeated, disturbed.kept);
    json_print(report, "\n  },\n  \"disturbed\": {\"repeated\": %d, \"kept\": %d}\n}\n", disturbed.repeated, disturbed.kept);
}

bool report_close(struct report *report)
{
    bool written = true;
    print_disturbances(report);
    if (fflush(stdout) != 0 || ferror(stdout)) {
        bench_say("cannot write the table");
        written = false;
    }
    bool json_written = close_file("JSON", report->json);
    written = close_file("table", report->table) && json_written && written;
    written = report_page_close(report) && written;
    free(report);
    return written;
}
