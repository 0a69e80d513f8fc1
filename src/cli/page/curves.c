/* curves.c - lines over one axis, as inline SVG whose labels are HTML. */
#include <math.h>

#include "cli/page/page.h"

static double place_x(const struct page_curves *curves, double x)
{
    double first = curves->x[0], last = curves->x[curves->count - 1];
    if (curves->is_logarithmic) {
        first = log(first);
        last = log(last);
        x = log(x);
    }
    return last > first ? 1000 * (x - first) / (last - first) : 500;
}

void page_draw_curves(FILE *page, const struct page_curves *curves)
{
    double most = 0;
    size_t shown = 0;
    for (; shown < PAGE_CURVES && curves->names[shown]; shown++)
        for (size_t i = 0; i < curves->count; i++)
            most = curves->y[shown][i] > most ? curves->y[shown][i] : most;
    fputs("<figure><figcaption class=\"legend\">", page);
    for (size_t c = 0; c < shown; c++) {
        fprintf(page, "<span><svg viewBox=\"0 0 20 8\" aria-hidden=\"true\"><path class=\"c%zu\" d=\"M0 4H20\"/></svg>",
                c);
        page_say(page, "%s", curves->names[c]);
        fputs("</span>", page);
    }
    if (curves->mark_name) {
        fputs("<span><svg viewBox=\"0 0 20 8\" aria-hidden=\"true\"><path class=\"mark\" d=\"M10 0V8\"/></svg>", page);
        page_say(page, "%s", curves->mark_name);
        fputs("</span>", page);
    }
    fputs("</figcaption><div class=\"axis\">", page);
    page_element(page, "span", NULL, "%s", curves->most);
    fputs("</div><svg viewBox=\"0 0 1000 100\" preserveAspectRatio=\"none\" role=\"img\" aria-label=\"", page);
    page_say(page, "%s", curves->label);
    fputs("\">", page);
    if (curves->mark_name)
        fprintf(page, "<path class=\"mark\" d=\"M%.1f 0V100\"/>", place_x(curves, curves->mark));
    for (size_t c = 0; c < shown; c++) {
        fprintf(page, "<polyline class=\"c%zu\" points=\"", c);
        for (size_t i = 0; i < curves->count; i++)
            fprintf(page, "%.1f,%.2f ", place_x(curves, curves->x[i]),
                    most > 0 ? 98 - 96 * curves->y[c][i] / most : 98);
        fputs("\"/>", page);
    }
    fputs("</svg><div class=\"axis\">", page);
    page_element(page, "span", NULL, "%s", curves->x_first);
    page_element(page, "span", NULL, "%s", curves->x_last);
    fputs("</div></figure>\n", page);
}
