/* feed.h - hands rows on in order of time while they are read, so that only few of them are in memory.
 *
 * A server logs a request when it has ended, so logs are nearly in order. The feed keeps FEED_LATE to 2 * FEED_LATE
 * rows, and hands on the earliest of them. A row with up to FEED_LATE later ones before it is in time. One that comes
 * still later stops the feed: the input must be read again, and all rows be kept and sorted first. Both ways hand on
 * the same rows in the same order; rows of equal times keep theirs.
 */
#ifndef WEIR_CLI_FEED_H
#define WEIR_CLI_FEED_H

#include "cli/replay/input/rows.h"

#define FEED_LATE ((size_t)1 << 17)

enum feed_way {
    FEED_ALONG,  /* rows are handed on while the input is read */
    FEED_SORTED, /* all rows are kept and sorted first */
    FEED_AS_READ /* all rows are kept, and handed on in the order of the input */
};

/* What a feed's functions return beside EXIT_OK and EXIT_FAILED: the input must be read again, see `why`. */
enum { FEED_AGAIN = 100 };

struct feed {
    enum feed_way way;
    struct rows *rows;
    size_t late; /* FEED_LATE; smaller in tests */
    /* Takes the next rows. Returns EXIT_OK, EXIT_FAILED after a complaint, or FEED_AGAIN. */
    int (*take)(void *user, const struct row *rows, size_t count);
    void *user;
    bool has_ended;    /* no row will be added */
    bool is_reordered; /* after the end: rows are handed on in another order than the input's */
    int64_t last_us;   /* of the rows handed on; INT64_MIN without any */
    struct busiest busiest;
    char why[80]; /* after FEED_AGAIN: a clause for a complaint */
};

/* After a row was added: hand on what has become certain. */
int feed_added(struct feed *feed);

/* After the last row: hand on all that are left. */
int feed_end(struct feed *feed);

#endif
