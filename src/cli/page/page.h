/* page.h - one HTML file that needs nothing else: no network, no script.
 *
 * The page follows the reader's choice of a light or dark theme and prints in black on white. Charts are inline SVG
 * without text; their labels and numbers are HTML beside them, so they stay readable at any width. Every text that
 * comes from outside is written by page_span() or page_say(), which escape it.
 */
#ifndef WEIR_CLI_PAGE_H
#define WEIR_CLI_PAGE_H

#include <stdio.h>

#include "cli/span.h"

#define PAGE_NUMBER_SIZE 32
#define PAGE_CURVES 3 /* in one chart */

/* True if the file can be written, before a long task; it is left as it is. False after a complaint. */
bool page_check(const char *path);

/* Create the file and write the head. NULL after a complaint. */
FILE *page_open(const char *path, const char *title);

/* End the page and the file. Return EXIT_OK, or EXIT_FAILED after a complaint. */
int page_close(FILE *page, const char *path);

/* Write text of any bytes so that a browser shows it and obeys nothing in it. */
void page_span(FILE *page, struct span text);

/* Format and then escape; at most 2,000 bytes. */
__attribute__((format(printf, 2, 3))) void page_say(FILE *page, const char *format, ...);

/* Write an element with escaped text: <tag class="class">text</tag>. `class` may be NULL. */
__attribute__((format(printf, 4, 5))) void page_element(FILE *page, const char *tag, const char *class,
                                                        const char *format, ...);

/* Start a section with its heading and a caption, and end it. */
void page_section(FILE *page, const char *heading);
void page_section_end(FILE *page);

/* Start a table; `headings` are separated by |, those that begin with # are of numbers,
 * and empty ones of bars. A narrow screen leaves out the bars of a table with more than five columns. End it. */
void page_table(FILE *page, const char *caption, const char *headings);
void page_table_end(FILE *page);

/* Write a cell with a bar of value/most; `class` is "admitted", "denied" or "plain". */
void page_bar(FILE *page, double value, double most, const char *class);

/* Write the same bar below the text of a cell; the class "floor" is one more. */
void page_meter(FILE *page, double value, double most, const char *class);

struct page_curves {
    const char *label;              /* what a reader who cannot see the chart hears */
    const char *names[PAGE_CURVES]; /* of the curves; NULL ends them */
    const double *x, *y[PAGE_CURVES];
    size_t count;
    bool is_logarithmic;                 /* x only */
    const char *x_first, *x_last, *most; /* labels of the axes */
    const char *mark_name;               /* of a vertical line at `mark`; NULL: none */
    double mark;
};

/* Draw lines over one axis, from 0 to the largest value. */
void page_draw_curves(FILE *page, const struct page_curves *curves);

/* Write a number with commas. Return `text`, which has PAGE_NUMBER_SIZE bytes. */
const char *page_number(uint64_t number, char *text);

#endif
