/* page_suggest.c - what weir suggest found, as an HTML page. */
#include <stdlib.h>

#include <weir/weir.h>

#include "cli/cli.h"
#include "cli/page/page.h"
#include "cli/replay/page_suggest.h"
#include "cli/replay/report.h"
#include "cli/times.h"

static void write_found(FILE *page, const struct findings *findings, const struct found *found, uint64_t most)
{
    char number[PAGE_NUMBER_SIZE], share[TIME_TEXT_SIZE];
    fprintf(page, "<td class=\"n\">%s</td>", page_number(found->limit, number));
    fprintf(page, "<td class=\"n\">%s</td>", page_number(found->outcome.denied, number));
    report_share(found->outcome.denied, findings->rows->count, share);
    page_element(page, "td", "n", "%s", share);
    page_bar(page, (double)found->outcome.denied, (double)most, "denied");
    fprintf(page, "<td class=\"n\">%s</td>", page_number(found->outcome.keys, number));
    report_share(found->outcome.keys, findings->rows->key_count, share);
    page_element(page, "td", "n", "%s", share);
    fputs("</tr>\n", page);
}

static void write_verdict(FILE *page, const struct suggest *suggest, const struct findings *findings)
{
    const struct found *best = &findings->found[0][findings->period];
    char text[SUGGEST_TEXT_SIZE], denied[PAGE_NUMBER_SIZE], requests[PAGE_NUMBER_SIZE], keys[PAGE_NUMBER_SIZE];
    char share[TIME_TEXT_SIZE], all[PAGE_NUMBER_SIZE];
    suggest_policy(suggest, 0, findings->period, best->limit, text);
    report_share(best->outcome.denied, findings->rows->count, share);
    fputs("<div class=\"verdict good\"><p><strong>Suggested: <code>", page);
    page_say(page, "%s", text);
    fputs("</code></strong></p><p>", page);
    page_say(page, "It would have denied %s of %s requests (%s) and hit %s of %s clients.",
             page_number(best->outcome.denied, denied), page_number(findings->rows->count, requests), share,
             page_number(best->outcome.keys, keys), page_number(findings->rows->key_count, all));
    fputs("</p><p>", page);
    page_say(page, "Asked for: at most %s requests and %s clients denied. The next smaller limit denies more.",
             page_number(findings->most.denied, denied), page_number(findings->most.keys, keys));
    fputs("</p></div>\n", page);
}

static void write_limits(FILE *page, const struct suggest *suggest, const struct findings *findings)
{
    page_section(page, "The tightest limits");
    page_table(page, "For each algorithm and period, the smallest limit within what may be denied",
               "algorithm|period|#limit|#requests denied|#share||#clients denied|#share");
    for (size_t i = 0; i < suggest->algorithm_count; i++)
        for (size_t j = 0; j < suggest->period_count; j++) {
            fputs("<tr>", page);
            page_element(page, "td", NULL, "%s", suggest->algorithms[i]);
            page_element(page, "td", NULL, "%s", suggest->periods[j]);
            write_found(page, findings, &findings->found[i][j], findings->most.denied);
        }
    page_table_end(page);
    page_section_end(page);
}

static void draw_curve(FILE *page, const struct findings *findings, uint64_t best)
{
    double limits[CURVE_POINTS], requests[CURVE_POINTS], clients[CURVE_POINTS], highest = 0;
    char first[64], last[64], most[64], mark[64];
    const size_t count = findings->curve_count;
    for (size_t i = 0; i < count; i++) {
        limits[i] = (double)findings->curve[i].limit;
        requests[i] = 100.0 * (double)findings->curve[i].outcome.denied / (double)findings->rows->count;
        clients[i] = 100.0 * (double)findings->curve[i].outcome.keys / (double)findings->rows->key_count;
        highest = requests[i] > highest ? requests[i] : highest;
        highest = clients[i] > highest ? clients[i] : highest;
    }
    snprintf(first, sizeof first, "limit %.0f", limits[0]);
    snprintf(last, sizeof last, "limit %.0f", limits[count - 1]);
    snprintf(mark, sizeof mark, "the suggested limit, %llu", (unsigned long long)best);
    snprintf(most, sizeof most, "top: %.3g %%", highest);
    page_draw_curves(page, &(struct page_curves){ .label = "share of requests and of clients denied, by limit",
                                                  .names = { "requests denied", "clients denied" },
                                                  .x = limits,
                                                  .y = { requests, clients },
                                                  .count = count,
                                                  .x_first = first,
                                                  .x_last = last,
                                                  .most = most,
                                                  .mark_name = mark,
                                                  .mark = (double)best });
}

static void write_curve(FILE *page, const struct suggest *suggest, const struct findings *findings)
{
    const uint64_t best = findings->found[0][findings->period].limit;
    char caption[160];
    snprintf(caption, sizeof caption, "%s over %s; the suggested limit is marked", suggest->algorithms[0],
             suggest->periods[findings->period]);
    page_section(page, "What smaller and larger limits would deny");
    if (findings->curve_count > 1)
        draw_curve(page, findings, best);
    page_table(page, caption, "choice|#limit|#requests denied|#share||#clients denied|#share");
    for (size_t i = 0; i < findings->curve_count; i++) {
        const uint64_t limit = findings->curve[i].limit;
        fprintf(page, "<tr><td>%s</td>",
                limit < best   ? "tighter"
                : limit > best ? "looser"
                               : "<strong>suggested</strong>");
        write_found(page, findings, &findings->curve[i], findings->curve[0].outcome.denied);
    }
    page_table_end(page);
    page_section_end(page);
}

/* False: out of memory. */
static bool write_clients(FILE *page, const struct suggest *suggest, const struct findings *findings)
{
    const struct report report = { .rows = findings->rows, .top = suggest->top };
    size_t count;
    uint32_t *keys = report_denied_keys(
        &report, (struct key_counts){ findings->requests_by_key, findings->denied_by_key }, &count);
    if (!keys)
        return false;
    page_section(page, "The clients that the suggested limit hits");
    page_table(page, count ? "The worst first; --top N lists more" : "None", "client|#denied|#requests|");
    for (size_t i = 0; i < count && i < suggest->top; i++) {
        char denied[PAGE_NUMBER_SIZE], requests[PAGE_NUMBER_SIZE];
        fputs("<tr><td class=\"key\"><bdi>", page);
        page_span(page, rows_key(findings->rows, keys[i]));
        fprintf(page, "</bdi></td><td class=\"n\">%s</td><td class=\"n\">%s</td>",
                page_number(findings->denied_by_key[keys[i]], denied),
                page_number(findings->requests_by_key[keys[i]], requests));
        page_bar(page, findings->denied_by_key[keys[i]], findings->denied_by_key[keys[0]], "denied");
        fputs("</tr>\n", page);
    }
    page_table_end(page);
    page_section_end(page);
    free(keys);
    return true;
}

int page_suggest_write(const struct suggest *suggest, const struct findings *findings, const char *key_name)
{
    FILE *page = page_open(suggest->html, "weir suggest: the tightest limits");
    if (!page)
        return EXIT_FAILED;
    write_verdict(page, suggest, findings);
    page_element(page, "p", "note",
                 "The library of weir %s decided each request by each limit. Clients are told apart by %s.",
                 weir_version(), *key_name ? key_name : "nothing: all requests share one key");
    write_curve(page, suggest, findings);
    write_limits(page, suggest, findings);
    const bool has_room = write_clients(page, suggest, findings);
    const int code = page_close(page, suggest->html);
    if (has_room)
        return code;
    return out_of_memory();
}
