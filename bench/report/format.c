/* format.c - numbers and samples as text: see format.h. */
#include "report/format.h"

#include <math.h>
#include <stdio.h>

#define NUMBER_MAX 24
#define SPREAD_MOST 9.99 /* a larger spread shows as ">999%": the figure means little, and its column would be wide */

void format_number(char *out, size_t out_size, double number)
{
    double size = fabs(number);
    snprintf(out, out_size, "%.*f", size < 10 ? 2 : size < 100 ? 1 : 0, number);
}

void format_short(char *out, size_t out_size, double number)
{
    double size = fabs(number);
    char digits[NUMBER_MAX - 8];
    format_number(digits, sizeof digits, size < 10e3 ? number : size < 1e6 ? number / 1e3 : number / 1e6);
    snprintf(out, out_size, "%s%s", digits, size < 10e3 ? "" : size < 1e6 ? "k" : "M");
}

static void format_range(char *out, size_t out_size, const struct sample *sample)
{
    char min[NUMBER_MAX], max[NUMBER_MAX];
    format_number(min, sizeof min, sample_min(sample));
    format_number(max, sizeof max, sample_max(sample));
    snprintf(out, out_size, "%s..%s", min, max);
}

void format_sample(char *out, size_t out_size, const struct sample *sample)
{
    char median[NUMBER_MAX], range[2 * NUMBER_MAX + 2];
    format_number(median, sizeof median, sample_median(sample));
    format_range(range, sizeof range, sample);
    snprintf(out, out_size, "%s (%s)", median, range);
}

void format_sample_json(char *out, size_t out_size, const struct sample *sample)
{
    snprintf(out, out_size, "{\"median\": %.6g, \"min\": %.6g, \"max\": %.6g, \"repeats\": %d}", sample_median(sample),
             sample_min(sample), sample_max(sample), sample->n);
}

void format_figure(char *out, size_t out_size, const struct sample *sample)
{
    char number[NUMBER_MAX];
    double median = sample_median(sample);
    double spread = fmax(sample_max(sample) - median, median - sample_min(sample));
    format_short(number, sizeof number, median);
    if (sample->n <= 1 || (median == 0 && spread == 0))
        snprintf(out, out_size, "%s", number);
    else if (median == 0)
        format_range(out, out_size, sample); /* a percentage of zero means nothing */
    else if (spread > SPREAD_MOST * fabs(median))
        snprintf(out, out_size, "%s +->%.0f%%", number, SPREAD_MOST * 100);
    else
        snprintf(out, out_size, "%s +-%.0f%%", number, 100 * spread / fabs(median));
}
