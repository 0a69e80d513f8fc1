/* page_replay.h - the report of a replay as an HTML page.
 *
 * While the rows are decided, one bit a row notes its denial. Afterwards the page needs one pass over the rows to draw
 * the worst keys over time.
 */
#ifndef WEIR_CLI_PAGE_REPLAY_H
#define WEIR_CLI_PAGE_REPLAY_H

#include "cli/replay/plot.h"
#include "cli/replay/report.h"

#define PAGE_WAITS 10 /* steps of the distribution of waits */

struct page_notes {
    struct plot plot;             /* all rows over time */
    uint8_t *denied;              /* a bit for each position in the input */
    uint64_t denials[PAGE_WAITS]; /* by the time until the request would be admitted */
    uint64_t delays[PAGE_WAITS];  /* of admitted requests, by the time that they should wait */
    int64_t first_us, last_us;    /* of the denials; undefined if there are none */
    bool has_denial, has_delay;
};

/* There must be a row. False: out of memory. */
bool page_notes_start(struct page_notes *notes, const struct rows *rows);
void page_notes_add(struct page_notes *notes, const struct row *row, const struct weir_decision *decision);
void page_notes_free(struct page_notes *notes);

/* Write the page. Return EXIT_OK, or EXIT_FAILED after a complaint. */
int page_replay_write(const struct report *report, const struct page_notes *notes, const char *path);

#endif
