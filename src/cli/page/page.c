/* page.c - one HTML file that needs nothing else: see page.h. */
#include "cli/page/page.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/cli.h"

#define SAY_SIZE 2001

static const char STYLE[] =
    ":root{color-scheme:light dark;--ink:#1b1f24;--soft:#59636e;--paper:#fff;--line:#d5dae0;--card:#f4f6f8;"
    "--admitted:#1f78b4;--denied:#c2500a;--plain:#4b6a88;--third:#5b7f1d}\n"
    "@media (prefers-color-scheme:dark){:root{--ink:#e6e9ed;--soft:#a3adb8;--paper:#14171b;--line:#39414a;"
    "--card:#1e2329;--admitted:#5aaee6;--denied:#f58b3c;--plain:#8aa9c8;--third:#a6cf5c}}\n"
    "*{box-sizing:border-box}body{margin:0 auto;padding:1rem;max-width:64rem;background:var(--paper);color:var(--ink);"
    "font:16px/1.5 system-ui,sans-serif}\n"
    "h1{font-size:1.35rem;line-height:1.25;margin:.2rem 0 .6rem;overflow-wrap:anywhere}"
    "h2{font-size:1.15rem;margin:2rem 0 .3rem;line-height:1.3}h3{font-size:1rem;margin:1rem 0 .2rem}\n"
    ".verdict{background:var(--card);border-left:.35rem solid var(--denied);padding:.6rem .9rem;margin:0 0 1rem}"
    ".verdict.good{border-color:var(--admitted)}.verdict p{margin:.3rem 0}.verdict strong{font-size:1.1em}\n"
    "p{margin:.3rem 0 .6rem;overflow-wrap:anywhere}.note,caption,figcaption{color:var(--soft);font-size:.9rem}"
    "code,pre{font:.9em/1.45 ui-monospace,monospace;overflow-wrap:anywhere;white-space:pre-wrap}\n"
    ".scroll{overflow-x:auto}table{border-collapse:collapse;width:100%;margin:.4rem 0}"
    "caption{text-align:left;padding:.2rem 0;max-width:calc(100vw - 2rem)}th,td{text-align:left;padding:.25rem .6rem .25rem 0;"
    "border-bottom:1px solid var(--line);vertical-align:top}th{font-weight:600}th.row{font-weight:400;min-width:11rem}"
    "td.n,th.n{text-align:right;white-space:nowrap;font-variant-numeric:tabular-nums}"
    "td.key{overflow-wrap:anywhere;min-width:9rem}td.key code{display:inline-block;min-width:15rem}td.bar{width:25%;min-width:5rem;padding-top:.55rem}\n"
    "svg{display:block;width:100%}.meter{height:.45rem;width:5.5rem}td.bar .meter{height:.8rem;width:100%}figure{margin:.4rem 0 1rem}"
    "figure svg{height:9rem;border-left:1px solid var(--line);border-bottom:1px solid var(--line)}"
    "figure.small svg{height:3rem}.axis{display:flex;justify-content:space-between;gap:1rem;color:var(--soft);"
    "font-size:.85rem}\n"
    ".admitted{fill:var(--admitted)}.denied{fill:var(--denied)}.plain{fill:var(--third)}.floor{fill:var(--soft)}"
    ".c0,.c1,.c2{fill:none;stroke-width:2;vector-effect:non-scaling-stroke}.c0{stroke:var(--denied)}"
    ".c1{stroke:var(--admitted);stroke-dasharray:7 3}.c2{stroke:var(--third);stroke-dasharray:2 3}"
    ".mark{fill:none;stroke:var(--soft);stroke-width:1;vector-effect:non-scaling-stroke}"
    ".legend svg{display:inline-block;width:1.6rem;height:.7rem;border:0;margin:0 .3rem 0 0}"
    ".legend span{margin-right:1rem;white-space:nowrap}\n"
    "@media (max-width:30rem){body{padding:.6rem;font-size:15px}th,td{padding-right:.4rem}"
    "th.row{min-width:7rem}td:not(.bar) .meter{width:3rem}td.key{min-width:6rem}td.key code{min-width:8rem}td.bar{min-width:3rem;width:16%}"
    ".wide td.bar{display:none}.wide th.n{white-space:normal}}\n"
    "@media print{:root{--ink:#000;--soft:#333;--paper:#fff;--line:#999;--card:#fff;--admitted:#1f78b4;"
    "--denied:#c2500a;--plain:#4b6a88;--third:#5b7f1d}body{max-width:none;padding:0;font-size:10pt}"
    "figure,tr{break-inside:avoid}h2,h3,caption,thead{break-after:avoid}.scroll{overflow:visible}svg{print-color-adjust:exact}}\n";

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

FILE *page_open(const char *path, const char *title)
{
    FILE *page = fopen(path, "w");
    if (!page) {
        complain("%s: %s", path, strerror(errno));
        return NULL;
    }
    /* The policy forbids everything that the page could load, should any text ever escape its escaping. */
    fputs("<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
          "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\n"
          "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n",
          page);
    page_element(page, "title", NULL, "%s", title);
    fprintf(page, "\n<style>\n%s</style>\n</head>\n<body>\n<main>\n", STYLE);
    page_element(page, "h1", NULL, "%s", title);
    fputc('\n', page);
    return page;
}

int page_close(FILE *page, const char *path)
{
    fputs("</main>\n</body>\n</html>\n", page);
    bool is_whole = !ferror(page);
    if (fclose(page) == 0 && is_whole)
        return EXIT_OK;
    complain("%s: cannot write the page", path);
    return EXIT_FAILED;
}

/* True for characters that change the direction of the text around them, or that a terminal obeys. */
static bool is_unseen(unsigned code)
{
    return (code >= 0x80 && code < 0xa0) || code == 0x61c || code == 0x200e || code == 0x200f ||
           (code >= 0x2028 && code <= 0x202e) || (code >= 0x2066 && code <= 0x2069);
}

static unsigned code_of(const char *text, size_t len)
{
    static const unsigned char masks[] = { 0, 0x7f, 0x1f, 0x0f, 0x07 };
    unsigned code = (unsigned char)text[0] & masks[len];
    for (size_t i = 1; i < len; i++)
        code = code << 6 | ((unsigned char)text[i] & 0x3f);
    return code;
}

void page_span(FILE *page, struct span text)
{
    while (text.len) {
        const size_t len = span_character(text);
        const unsigned code = len ? code_of(text.data, len) : (unsigned char)text.data[0];
        if (len == 0 || code < 0x20 || code == 0x7f)
            fprintf(page, "\\x%02x", code);
        else if (is_unseen(code))
            fprintf(page, "\\u%04x", code);
        else if (strchr("<>&\"'", (int)code) && len == 1)
            fprintf(page, "&#%u;", code);
        else
            fwrite(text.data, 1, len, page);
        text = span_slice(text, len ? len : 1, text.len);
    }
}

__attribute__((format(printf, 2, 0))) static void page_format(FILE *page, const char *format, va_list values)
{
    char text[SAY_SIZE];
    vsnprintf(text, sizeof text, format, values);
    page_span(page, span_of(text));
}

void page_say(FILE *page, const char *format, ...)
{
    va_list values;
    va_start(values, format);
    page_format(page, format, values);
    va_end(values);
}

void page_element(FILE *page, const char *tag, const char *class, const char *format, ...)
{
    va_list values;
    if (class)
        fprintf(page, "<%s class=\"%s\">", tag, class);
    else
        fprintf(page, "<%s>", tag);
    va_start(values, format);
    page_format(page, format, values);
    va_end(values);
    fprintf(page, "</%s>", tag);
}

void page_section(FILE *page, const char *heading)
{
    fputs("\n<section>\n", page);
    page_element(page, "h2", NULL, "%s", heading);
    fputc('\n', page);
}

void page_section_end(FILE *page)
{
    fputs("</section>\n", page);
}

void page_table(FILE *page, const char *caption, const char *headings)
{
    size_t columns = 1;
    for (const char *at = headings; *at; at++)
        columns += *at == '|';
    fprintf(page, "<div class=\"scroll\"><table%s>", columns > 5 ? " class=\"wide\"" : "");
    page_element(page, "caption", NULL, "%s", caption);
    fputs("\n<thead><tr>", page);
    for (size_t len = 0;; headings += len + 1) {
        len = strcspn(headings, "|");
        const bool is_number = *headings == '#';
        fputs(!len ? "<td class=\"bar\">" : is_number ? "<th scope=\"col\" class=\"n\">" : "<th scope=\"col\">", page);
        page_span(page, (struct span){ headings + is_number, len - is_number });
        fputs(len ? "</th>" : "</td>", page);
        if (headings[len] == '\0')
            break;
    }
    fputs("</tr></thead>\n<tbody>\n", page);
}

void page_table_end(FILE *page)
{
    fputs("</tbody></table></div>\n", page);
}

void page_meter(FILE *page, double value, double most, const char *class)
{
    double part = most > 0 ? 100 * value / most : 0;
    part = part > 100 ? 100 : part < 0 ? 0 : part;
    fprintf(page,
            "<svg class=\"meter\" viewBox=\"0 0 100 10\" preserveAspectRatio=\"none\" aria-hidden=\"true\">"
            "<rect class=\"%s\" width=\"%.2f\" height=\"10\"/></svg>",
            class, part);
}

void page_bar(FILE *page, double value, double most, const char *class)
{
    fputs("<td class=\"bar\">", page);
    page_meter(page, value, most, class);
    fputs("</td>", page);
}

const char *page_number(uint64_t number, char *text)
{
    char digits[PAGE_NUMBER_SIZE];
    size_t len = (size_t)snprintf(digits, sizeof digits, "%llu", (unsigned long long)number), at = 0;
    for (size_t i = 0; i < len; i++) {
        if (i > 0 && (len - i) % 3 == 0)
            text[at++] = ',';
        text[at++] = digits[i];
    }
    text[at] = '\0';
    return text;
}
