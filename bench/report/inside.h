/* inside.h - the document of a report, for the functions that print it. */
#ifndef BENCH_INSIDE_H
#define BENCH_INSIDE_H

#include <jansson.h>

/* Write three significant digits, in thousands or millions: 26.1k. */
void number_show(char *out, size_t size, double number);

/* Return the number that a value shows, a median or a count, or its largest repetition; NAN if it is a text or missing. */
double value_number(const json_t *value);
double value_largest(const json_t *value);

/* Write the sentences that choose a mode, from section modes. One whose figures were not measured is empty. */
#define VERDICT_SENTENCES 3
#define VERDICT_SIZE 400
void verdict_write(const json_t *document, char sentences[VERDICT_SENTENCES][VERDICT_SIZE]);

extern const char page_template[]; /* of results.html, with "@DOCUMENT@" in it; ends with a NUL */

#endif
