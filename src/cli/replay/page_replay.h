/* page_replay.h - the report of a replay as an HTML page.
 *
 * The page shows the worst keys over time, and which ones they are is known at the end only. So each key's requests are
 * counted in the bins of the plot (plot.h), of which there are up to PLOT_BINS: up to 12 KB a key, and 24 bytes for
 * each request if a key has few.
 */
#ifndef WEIR_CLI_PAGE_REPLAY_H
#define WEIR_CLI_PAGE_REPLAY_H

#include "cli/replay/plot.h"
#include "cli/replay/report.h"

#define PAGE_WAITS 10 /* steps of the distribution of waits */

struct page_cell { /* the requests of a key in a bin */
    int64_t begin_us;
    uint32_t key;
    struct plot_bin requests;
};

struct page_notes {   /* starts as all zero */
    struct plot plot; /* all rows over time */
    struct page_cell *cells;
    size_t cell_count, cell_capacity;
    int64_t begin_us, width_us; /* the current bin; width_us is 0 before the first row */
    struct plot_bin *now;       /* the current bin's requests by key */
    size_t key_capacity;        /* of `now` and `touched` */
    uint32_t *touched;          /* the keys with requests in the current bin */
    size_t touched_count;
    uint64_t denials[PAGE_WAITS]; /* by the time until the request would be admitted */
    uint64_t delays[PAGE_WAITS];  /* of admitted requests, by the time that they should wait */
    int64_t first_us, last_us;    /* of the denials; undefined if there are none */
    bool has_denial, has_delay;
};

/* Note a decision. False: out of memory. */
bool page_notes_add(struct page_notes *notes, const struct row *row, const struct weir_decision *decision);

/* Complete the plot and the cells after the last row; there must be a row. False: out of memory. */
bool page_notes_finish(struct page_notes *notes);
void page_notes_free(struct page_notes *notes);

/* Write the page. Return EXIT_OK, or EXIT_FAILED after a complaint. */
int page_replay_write(const struct report *report, const struct page_notes *notes, const char *path);

#endif
