/* feed.c - hands rows on in order of time while they are read. */
#include "cli/replay/input/feed.h"

#include <stdio.h>

#include "cli/cli.h"

/* Hand on the first rows, which are in their order. */
static int feed_hand_on(struct feed *feed, size_t count)
{
    const struct row *rows = feed->rows->all;
    if (count == 0)
        return EXIT_OK;
    for (size_t i = 0; i < count && feed->way != FEED_AS_READ; i++)
        busiest_add(&feed->busiest, rows[i].time_us);
    feed->last_us = rows[count - 1].time_us;
    return feed->take(feed->user, rows, count);
}

int feed_added(struct feed *feed)
{
    struct rows *rows = feed->rows;
    if (feed->way != FEED_ALONG)
        return EXIT_OK;
    if (rows->all[rows->count - 1].time_us < feed->last_us) {
        snprintf(feed->why, sizeof feed->why, "the row comes at least %zu rows late", feed->late);
        return FEED_AGAIN;
    }
    if (rows->count < 2 * feed->late)
        return EXIT_OK;
    rows_sort(rows);
    const size_t count = rows->count - feed->late;
    const int code = feed_hand_on(feed, count);
    if (code != EXIT_OK || rows_remove(rows, count))
        return code;
    return out_of_memory();
}

int feed_end(struct feed *feed)
{
    feed->has_ended = true;
    feed->is_reordered = feed->way != FEED_AS_READ && !feed->rows->is_sorted;
    if (feed->way != FEED_AS_READ)
        rows_sort(feed->rows);
    else if (!rows_busiest_second(feed->rows, &feed->busiest))
        return out_of_memory();
    return feed_hand_on(feed, feed->rows->count);
}
