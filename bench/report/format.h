/* format.h - numbers and samples as text. */
#ifndef BENCH_FORMAT_H
#define BENCH_FORMAT_H

#include "measure/measure.h"

void format_number(char *out, size_t out_size, double number); /* three significant digits, no exponent */
void format_short(char *out, size_t out_size, double number);  /* the same, in thousands or millions: 26.1k */

void format_sample(char *out, size_t out_size, const struct sample *sample); /* median (min..max) */
void format_figure(char *out, size_t out_size,
                   const struct sample *sample); /* 26.1k +-3%, by the end farther from the median; or 0.00..4.00 */
void format_sample_json(char *out, size_t out_size, const struct sample *sample); /* a JSON object */

#endif
