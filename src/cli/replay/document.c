/* document.c - what replay and suggest found, as one JSON document: see document.h. */
#include "cli/replay/document.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/cli.h"
#include "cli/times.h"

#define MARK "@DOCUMENT@"

extern const char report_page[]; /* page.html */

static bool is_short; /* some value is missing */

void document_add(json_t *object, const char *name, json_t *value)
{
    is_short |= json_object_set_new(object, name, value) != 0;
}

void document_push(json_t *array, json_t *value)
{
    is_short |= json_array_append_new(array, value) != 0;
}

json_t *document_end(json_t *document)
{
    if (!is_short)
        return document;
    json_decref(document);
    complain("out of memory");
    return NULL;
}

json_t *document_text(struct span text)
{
    char *clean = malloc(3 * text.len + 1);
    size_t len = 0;
    while (clean && text.len) {
        const size_t taken = span_character(text);
        memcpy(clean + len, taken ? text.data : "\xef\xbf\xbd", taken ? taken : 3);
        len += taken ? taken : 3;
        text = span_slice(text, taken ? taken : 1, text.len);
    }
    json_t *string = clean ? json_stringn(clean, len) : NULL;
    free(clean);
    return string;
}

void document_key(json_t *object, struct span key)
{
    document_add(object, "key", document_text(key));
    char *hex = span_is_utf8(key) ? NULL : malloc(2 * key.len + 1);
    for (size_t i = 0; i < key.len && hex; i++)
        snprintf(hex + 2 * i, 3, "%02x", (unsigned char)key.data[i]);
    if (!span_is_utf8(key))
        document_add(object, "key_hex", hex ? json_string(hex) : NULL);
    free(hex);
}

void document_time(json_t *object, const char *name, int64_t time_us)
{
    char text[TIME_TEXT_SIZE];
    time_print(time_us, text);
    document_add(object, name, json_pack("{s:I,s:s}", "time_us", (json_int_t)time_us, "time", text));
}

uint64_t document_number(const json_t *object, const char *name)
{
    return (uint64_t)json_integer_value(json_object_get(object, name));
}

struct span document_span(const json_t *object, const char *name)
{
    const json_t *string = json_object_get(object, name);
    return json_is_string(string) ? (struct span){ json_string_value(string), json_string_length(string) }
                                  : span_of("");
}

void document_print(const json_t *document)
{
    json_dumpf(document, stdout, JSON_COMPACT | JSON_REAL_PRECISION(6));
    putchar('\n');
}

bool page_check(const char *path)
{
    struct stat about;
    const bool exists = stat(path, &about) == 0;
    if (exists && !S_ISREG(about.st_mode))
        return true;
    const int file = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
    if (file < 0) {
        complain("%s: %s", path, strerror(errno));
        return false;
    }
    close(file);
    if (!exists)
        unlink(path);
    return true;
}

int page_write(const json_t *document, const char *path)
{
    char *text = json_dumps(document, JSON_COMPACT | JSON_REAL_PRECISION(6));
    FILE *page = text ? fopen(path, "w") : NULL;
    if (!page) {
        complain("%s: %s", path, text ? strerror(errno) : "out of memory");
        free(text);
        return EXIT_FAILED;
    }
    const char *place = strstr(report_page, MARK);
    fwrite(report_page, 1, (size_t)(place - report_page), page);
    for (const char *at = text; *at; at++) /* a "<" could end the script around the document */
        if (*at == '<')
            fputs("\\u003c", page);
        else
            putc(*at, page);
    fputs(place + strlen(MARK), page);
    free(text);
    const bool has_failed = ferror(page);
    if (fclose(page) == 0 && !has_failed)
        return EXIT_OK;
    complain("%s: cannot write the page: %s", path, strerror(errno));
    return EXIT_FAILED;
}
