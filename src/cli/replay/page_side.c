/* page_side.c - several policies side by side as an HTML page. */
#include "cli/cli.h"
#include "cli/page/page.h"
#include "cli/replay/report.h"
#include "cli/replay/side.h"
#include "cli/times.h"

static void write_policy(FILE *page, const struct named_policy *policy)
{
    fputs("<code>", page);
    page_say(page, "%s%s%s", policy->name, policy->name[0] ? " = " : "", policy->text);
    fputs("</code>", page);
}

static void write_extreme(FILE *page, const char *which, const struct named_policy *policy, const struct side *side)
{
    char denied[PAGE_NUMBER_SIZE], hit[PAGE_NUMBER_SIZE], all[PAGE_NUMBER_SIZE];
    fprintf(page, "<p>%s: ", which);
    write_policy(page, policy);
    page_say(page, " would have denied %s requests and hit %s of %s clients.", page_number(side->denied, denied),
             page_number(side->keys_denied, hit), page_number(side->keys, all));
    fputs("</p>", page);
}

static void write_rows(FILE *page, const struct rows *rows, const struct policies *policies, const struct side *sides)
{
    uint64_t most = 1, most_keys = 1;
    for (size_t i = 0; i < policies->count; i++) {
        most = sides[i].denied > most ? sides[i].denied : most;
        most_keys = sides[i].keys_denied > most_keys ? sides[i].keys_denied : most_keys;
    }
    for (size_t i = 0; i < policies->count; i++) {
        char number[PAGE_NUMBER_SIZE], share[TIME_TEXT_SIZE];
        fputs("<tr><td class=\"key\">", page);
        write_policy(page, &policies->all[i]);
        report_share(sides[i].denied, rows->total, share);
        fprintf(page, "</td><td class=\"n\">%s</td>", page_number(sides[i].denied, number));
        page_element(page, "td", "n", "%s", share);
        if (sides[0].denied)
            page_element(page, "td", "n", "%.2f", (double)sides[i].denied / (double)sides[0].denied);
        else
            page_element(page, "td", "n", "-");
        page_bar(page, (double)sides[i].denied, (double)most, "denied");
        fprintf(page, "<td class=\"n\">%s</td>", page_number(sides[i].keys_denied, number));
        page_bar(page, (double)sides[i].keys_denied, (double)most_keys, "plain");
        fputs("</tr>\n", page);
    }
}

int page_side_write(const struct rows *rows, const struct policies *policies, const struct side *sides,
                    const char *path)
{
    FILE *page = page_open(path, "weir replay: policies side by side");
    char least[PAGE_NUMBER_SIZE], most[PAGE_NUMBER_SIZE], requests[PAGE_NUMBER_SIZE];
    size_t low = 0, high = 0;
    if (!page)
        return EXIT_FAILED;
    for (size_t i = 1; i < policies->count; i++) {
        low = sides[i].denied < sides[low].denied ? i : low;
        high = sides[i].denied > sides[high].denied ? i : high;
    }
    page_number(rows->total, requests);
    page_number(sides[low].denied, least);
    page_number(sides[high].denied, most);
    fprintf(page, "<div class=\"verdict%s\"><p>", sides[high].denied ? "" : " good");
    if (sides[high].denied == 0)
        page_element(page, "strong", NULL, "None of the policies would have denied any of %s requests.", requests);
    else if (sides[low].denied == sides[high].denied)
        page_element(page, "strong", NULL, "Each policy would have denied %s of %s requests.", most, requests);
    else
        page_element(page, "strong", NULL, "Of %s requests, between %s and %s would have been denied.", requests, least,
                     most);
    fputs("</p>", page);
    if (sides[low].denied < sides[high].denied) {
        write_extreme(page, "Fewest", &policies->all[low], &sides[low]);
        write_extreme(page, "Most", &policies->all[high], &sides[high]);
    }
    fputs("</div>\n", page);
    page_section(page, "Each policy applied alone");
    page_table(page, "A replay is exact: every difference is the policies'. Ratios are to the first policy.",
               "policy|#denied|#share|#to first||#clients denied|");
    write_rows(page, rows, policies, sides);
    page_table_end(page);
    page_section_end(page);
    return page_close(page, path);
}
