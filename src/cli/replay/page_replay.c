/* page_replay.c - the report of a replay as an HTML page. */
#include "cli/replay/page_replay.h"

#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"
#include "cli/page/page.h"
#include "cli/times.h"

#define WORST 6 /* keys drawn over time */
#define KEY_WIDTH 120

struct page { /* what the parts of the page share */
    FILE *file;
    const struct report *report;
    const struct page_notes *notes;
    uint32_t *keys; /* with a denial, the worst first */
    size_t key_count;
    struct plot_bin *worst; /* the bins of the first WORST keys, one after another */
};

static void page_head(const struct page *page);
static void page_over_time(const struct page *page);
static void page_worst(const struct page *page);
static void page_waits(const struct page *page);
static void page_limits(const struct page *page);

static size_t worst_count(const struct page *page)
{
    return page->key_count < WORST ? page->key_count : WORST;
}

/* Sort the requests of the worst keys into the bins of the plot. False: out of memory. */
static bool page_sort_worst(struct page *page)
{
    const struct page_notes *notes = page->notes;
    const struct plot *plot = &notes->plot;
    uint8_t *places = calloc(page->report->rows->key_count + 1, 1); /* of a key among the worst, from 1 */
    page->worst = calloc(plot->count * WORST, sizeof *page->worst);
    for (size_t i = 0; i < worst_count(page) && places; i++)
        places[page->keys[i]] = (uint8_t)(i + 1);
    for (size_t i = 0; i < notes->cell_count && places && page->worst; i++) {
        const struct page_cell *cell = &notes->cells[i];
        if (!places[cell->key])
            continue;
        struct plot_bin *bin = &page->worst[plot->count * (places[cell->key] - 1U) +
                                            (size_t)((cell->begin_us - plot->begin_us) / plot->width_us)];
        bin->admitted += cell->requests.admitted;
        bin->denied += cell->requests.denied;
    }
    bool has_room = places && page->worst;
    free(places);
    return has_room;
}

int page_replay_write(const struct report *report, const struct page_notes *notes, const char *path)
{
    struct page page = { .report = report, .notes = notes };
    char title[300];
    int code = EXIT_FAILED;
    page.keys = report_denied_keys(report, report_counts(report), &page.key_count);
    if (!page.keys || !page_sort_worst(&page)) {
        complain("out of memory");
    } else {
        snprintf(title, sizeof title, "weir replay: %s%s", report->file_count ? report->files[0] : "",
                 report->file_count > 1 ? " and others" : "");
        page.file = page_open(path, title);
    }
    if (page.file) {
        page_head(&page);
        page_over_time(&page);
        page_worst(&page);
        page_limits(&page);
        page_waits(&page);
        code = page_close(page.file, path);
    }
    free(page.worst);
    free(page.keys);
    return code;
}

static void page_key(const struct page *page, size_t key)
{
    char text[KEY_WIDTH];
    struct span span = rows_key(page->report->rows, key);
    const bool is_cut = span.len > sizeof text;
    fputs("<bdi>", page->file);
    page_span(page->file, is_cut ? span_slice(span, 0, sizeof text) : span);
    fputs(is_cut ? "\u2026</bdi>" : "</bdi>", page->file);
}

/* Say when requests were denied, and in which of the bars most. */
static void page_when(const struct page *page)
{
    const struct plot *plot = &page->notes->plot;
    char first[TIME_TEXT_SIZE], last[TIME_TEXT_SIZE], at[TIME_TEXT_SIZE], width[TIME_TEXT_SIZE];
    char number[PAGE_NUMBER_SIZE];
    size_t worst = 0;
    for (size_t i = 1; i < plot->count; i++)
        worst = plot->bins[i].denied > plot->bins[worst].denied ? i : worst;
    time_print(page->notes->first_us, first);
    time_print(page->notes->last_us, last);
    time_print(plot->begin_us + plot->width_us * (int64_t)worst, at);
    duration_print(plot->width_us, width);
    page_element(page->file, "p", NULL, "When: from %s to %s; most of them, %s, in the %s from %s.", first, last,
                 page_number(plot->bins[worst].denied, number), width, at);
}

/* Name the limit that denied most. */
static void page_by_which(const struct page *page)
{
    const struct policies *policies = page->report->policies;
    const struct policy_tally *tallies = page->report->tally->policies;
    size_t most = 0;
    char denied[PAGE_NUMBER_SIZE], alone[PAGE_NUMBER_SIZE];
    for (size_t i = 1; i < policies->count; i++)
        most = tallies[i].denied > tallies[most].denied ? i : most;
    const struct named_policy *policy = &policies->all[most];
    fputs("<p>By which limit: <code>", page->file);
    page_say(page->file, "%s%s%s", policy->name, policy->name[0] ? " = " : "", policy->text);
    fputs("</code>", page->file);
    if (policies->count > 1)
        page_say(page->file, " denied %s of them, %s alone; %zu limits decided together",
                 page_number(tallies[most].denied, denied), page_number(tallies[most].denied_alone, alone),
                 policies->count);
    fputs(".</p>", page->file);
}

static void page_head(const struct page *page)
{
    const struct report *report = page->report;
    const struct tally *tally = report->tally;
    FILE *file = page->file;
    char requests[PAGE_NUMBER_SIZE], denied[PAGE_NUMBER_SIZE], clients[PAGE_NUMBER_SIZE], all[PAGE_NUMBER_SIZE];
    char share[TIME_TEXT_SIZE], clients_share[TIME_TEXT_SIZE];
    report_share(tally->denied, report->rows->total, share);
    report_share(page->key_count, tally->keys, clients_share);
    fprintf(file, "<div class=\"verdict%s\"><p>", page->key_count ? "" : " good");
    page_element(file, "strong", NULL, "%s of %s requests would have been denied (%s), and %s of %s clients hit (%s).",
                 page_number(tally->denied, denied), page_number(report->rows->total, requests), share,
                 page_number(page->key_count, clients), page_number(tally->keys, all), clients_share);
    fputs("</p>\n", file);
    if (page->key_count) {
        const struct key_counts counts = report_counts(report);
        report_share(counts.denied[page->keys[0]], counts.requests[page->keys[0]], share);
        fputs("<p>The worst: ", file);
        page_key(page, page->keys[0]);
        page_say(file, ", with %s of %s requests denied (%s).", page_number(counts.denied[page->keys[0]], denied),
                 page_number(counts.requests[page->keys[0]], requests), share);
        fputs("</p>\n", file);
        page_by_which(page);
        page_when(page);
    } else {
        fputs("<p>The closest to a denial was ", file);
        page_key(page, tally->least_key);
        page_say(file, ", with %lld of %lld permits left.", (long long)tally->least_remaining,
                 (long long)tally->least_limit);
        fputs("</p>", file);
    }
    fputs("</div>\n", file);
    page_element(file, "p", "note",
                 "Decided by weir %s in %s mode at the times of the log. Clients are told apart by %s.%s",
                 weir_version(), store_mode_name(report->store),
                 report->key_name[0] ? report->key_name : "nothing: all requests share one key",
                 report->unreadable ? " Some rows could not be read and are left out." : "");
}

/* Draw bins as stacked bars: denied on top of admitted. */
static void draw_bins(const struct page *page, const struct plot_bin *bins, const char *class, const char *label)
{
    const struct plot *plot = &page->notes->plot;
    uint64_t most = 1, all = 0, denied = 0;
    char first[TIME_TEXT_SIZE], last[TIME_TEXT_SIZE], width[TIME_TEXT_SIZE], number[PAGE_NUMBER_SIZE];
    for (size_t i = 0; i < plot->count; i++) {
        const uint64_t sum = (uint64_t)bins[i].admitted + bins[i].denied;
        most = sum > most ? sum : most;
        all += sum;
        denied += bins[i].denied;
    }
    time_print(plot->begin_us, first);
    time_print(plot->begin_us + plot->width_us * (int64_t)plot->count, last);
    duration_print(plot->width_us, width);
    fprintf(page->file,
            "<figure%s><div class=\"axis\"><span>highest bar: %s in %s</span></div>"
            "<svg viewBox=\"0 0 %zu 100\" preserveAspectRatio=\"none\" role=\"img\" aria-label=\"",
            class, page_number(most, number), width, plot->count);
    page_say(page->file, "%s: %llu requests over time, %llu denied", label, (unsigned long long)all,
             (unsigned long long)denied);
    fputs("\">", page->file);
    for (size_t i = 0; i < plot->count; i++) {
        const double admitted = 100.0 * bins[i].admitted / (double)most, over = 100.0 * bins[i].denied / (double)most;
        if (bins[i].admitted)
            fprintf(page->file, "<rect class=\"admitted\" x=\"%zu\" y=\"%.2f\" width=\".92\" height=\"%.2f\"/>", i,
                    100 - admitted, admitted);
        if (bins[i].denied)
            fprintf(page->file, "<rect class=\"denied\" x=\"%zu\" y=\"%.2f\" width=\".92\" height=\"%.2f\"/>", i,
                    100 - admitted - over, over);
    }
    fprintf(page->file, "</svg><div class=\"axis\"><span>%s</span><span>%s</span></div></figure>\n", first, last);
}

static void draw_legend(FILE *file)
{
    fputs("<p class=\"legend note\"><span><svg viewBox=\"0 0 20 8\" aria-hidden=\"true\"><rect class=\"admitted\" "
          "width=\"20\" height=\"8\"/></svg>admitted</span><span><svg viewBox=\"0 0 20 8\" aria-hidden=\"true\">"
          "<rect class=\"denied\" width=\"20\" height=\"8\"/></svg>denied</span></p>\n",
          file);
}

static void page_over_time(const struct page *page)
{
    page_section(page->file, "Requests over time");
    draw_legend(page->file);
    draw_bins(page, page->notes->plot.bins, "", "all requests");
    page_section_end(page->file);
}

static void page_key_rows(const struct page *page, const uint32_t *keys, size_t count, struct key_counts counts)
{
    for (size_t i = 0; i < count && i < page->report->top; i++) {
        char denied[PAGE_NUMBER_SIZE], requests[PAGE_NUMBER_SIZE], share[TIME_TEXT_SIZE];
        report_share(counts.denied[keys[i]], counts.requests[keys[i]], share);
        fputs("<tr><td class=\"key\">", page->file);
        page_key(page, keys[i]);
        fprintf(page->file, "</td><td class=\"n\">%s</td><td class=\"n\">%s</td><td class=\"n\">",
                page_number(counts.denied[keys[i]], denied), page_number(counts.requests[keys[i]], requests));
        page_say(page->file, "%s", share);
        fputs("</td>", page->file);
        page_bar(page->file, counts.denied[keys[i]], counts.denied[keys[0]], "denied");
        fputs("</tr>\n", page->file);
    }
}

static void page_worst(const struct page *page)
{
    if (!page->key_count)
        return;
    char caption[160];
    page_section(page->file, "The clients that were denied most");
    for (size_t i = 0; i < worst_count(page); i++) {
        fputs("<h3>", page->file);
        page_key(page, page->keys[i]);
        fputs("</h3>", page->file);
        draw_bins(page, page->worst + page->notes->plot.count * i, " class=\"small\"", "one client");
    }
    snprintf(caption, sizeof caption, "%zu of %zu clients with a denial; --top N lists more",
             page->key_count < page->report->top ? page->key_count : page->report->top, page->key_count);
    page_table(page->file, caption, "client|#denied|#requests|#share|");
    page_key_rows(page, page->keys, page->key_count, report_counts(page->report));
    page_table_end(page->file);
    page_section_end(page->file);
}

static void page_limits(const struct page *page)
{
    const struct report *report = page->report;
    uint64_t most = 1;
    for (size_t i = 0; i < report->policies->count; i++)
        most = report->tally->policies[i].denied > most ? report->tally->policies[i].denied : most;
    page_section(page->file, "The limits side by side");
    page_table(page->file,
               "A request that several limits deny counts for each; \u201calone\u201d counts those of no other.",
               "limit|#denied|#alone|#in shadow|#share|");
    for (size_t i = 0; i < report->policies->count; i++) {
        const struct named_policy *policy = &report->policies->all[i];
        const struct policy_tally *tally = &report->tally->policies[i];
        char numbers[3][PAGE_NUMBER_SIZE], share[TIME_TEXT_SIZE];
        report_share(tally->denied, report->rows->total, share);
        fputs("<tr><td class=\"key\"><code>", page->file);
        page_say(page->file, "%s%s%s", policy->name, policy->name[0] ? " = " : "", policy->text);
        fprintf(page->file, "</code></td><td class=\"n\">%s</td><td class=\"n\">%s</td><td class=\"n\">%s</td>",
                page_number(tally->denied, numbers[0]), page_number(tally->denied_alone, numbers[1]),
                page_number(tally->would_deny, numbers[2]));
        page_element(page->file, "td", "n", "%s", share);
        page_bar(page->file, (double)tally->denied, (double)most, "denied");
        fputs("</tr>\n", page->file);
    }
    page_table_end(page->file);
    page_section_end(page->file);
}

static void page_waits(const struct page *page)
{
    static const char *const names[PAGE_WAITS] = { "none",    "to 1 ms",  "to 10 ms",  "to 100 ms", "to 1 s",
                                                   "to 10 s", "to 1 min", "to 10 min", "longer",    "never" };
    const struct page_notes *notes = page->notes;
    if (!notes->has_denial && !notes->has_delay)
        return;
    uint64_t most = 1;
    page_section(page->file, "How long clients would have to wait");
    page_element(page->file, "p", NULL, "%s",
                 notes->has_delay
                     ? "Denied requests by the time until they would be admitted, and admitted requests by "
                       "the time that the limit spreads them over."
                     : "Denied requests by the time until the limits would admit them.");
    for (size_t i = 0; i < PAGE_WAITS; i++) {
        most = notes->denials[i] > most ? notes->denials[i] : most;
        most = notes->has_delay && notes->delays[i] > most ? notes->delays[i] : most;
    }
    page_table(page->file, "Requests by wait", notes->has_delay ? "wait|#denied||#admitted|" : "wait|#denied|");
    for (size_t i = 0; i < PAGE_WAITS; i++) {
        char number[PAGE_NUMBER_SIZE];
        if (!notes->denials[i] && !(notes->has_delay && notes->delays[i]))
            continue;
        fprintf(page->file, "<tr><td>%s</td><td class=\"n\">%s</td>", names[i], page_number(notes->denials[i], number));
        page_bar(page->file, (double)notes->denials[i], (double)most, "denied");
        if (notes->has_delay) {
            fprintf(page->file, "<td class=\"n\">%s</td>", page_number(notes->delays[i], number));
            page_bar(page->file, (double)notes->delays[i], (double)most, "admitted");
        }
        fputs("</tr>\n", page->file);
    }
    page_table_end(page->file);
    page_section_end(page->file);
}
