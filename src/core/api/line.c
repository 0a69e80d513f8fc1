/* line.c - the lines of callers that wait for permits. */
#include "core/api/line.h"

#include "core/ground/arith.h"

static bool line_is_for(const struct line_waiter *first, const struct line_waiter *waiter)
{
    return first->hash == waiter->hash && first->limit == waiter->limit && first->key.len == waiter->key.len &&
           memcmp(first->key.data, waiter->key.data, waiter->key.len) == 0;
}

/* Return the place in the bucket of the line's first waiter, or of the NULL at the bucket's end. */
static struct line_waiter **line_place(struct lines *lines, const struct line_waiter *waiter)
{
    struct line_waiter **place = &lines->buckets[waiter->hash & (LINE_BUCKETS - 1)];
    while (*place && !line_is_for(*place, waiter))
        place = &(*place)->next_line;
    return place;
}

struct line_waiter *line_first(struct lines *lines, const struct line_waiter *waiter)
{
    return *line_place(lines, waiter);
}

bool line_join(struct lines *lines, struct line_waiter *waiter)
{
    struct line_waiter **place = line_place(lines, waiter), *first = *place;
    atomic_fetch_add_explicit(&lines->count, 1, memory_order_relaxed);
    waiter->before = waiter->next = NULL;
    waiter->due_us = waiter->look_us = 0;
    waiter->is_first = !first;
    if (!first) {
        waiter->next_line = NULL;
        waiter->last = waiter;
        waiter->most = waiter->cost;
        waiter->is_held = waiter->is_closed = waiter->is_freed = false;
        *place = waiter;
        return true;
    }
    waiter->before = first->last;
    first->last->next = waiter;
    first->last = waiter;
    first->is_closed = first->is_closed || waiter->cost < first->most;
    first->most = max_of(first->most, waiter->cost);
    return !first->is_closed;
}

void line_denied(struct lines *lines, struct line_waiter *waiter, int64_t due_us, int64_t look_us)
{
    struct line_waiter *first = line_first(lines, waiter);
    const bool waits = waiter->is_first && !first->is_freed;
    first->is_held = first->is_closed = true;
    waiter->due_us = waits ? due_us : 0;
    waiter->look_us = waits ? look_us : 0;
}

void line_asks(struct lines *lines, const struct line_waiter *waiter)
{
    if (waiter->is_first)
        line_first(lines, waiter)->is_freed = false;
}

struct line_waiter *line_freed(struct lines *lines, const struct line_waiter *like)
{
    struct line_waiter *first = line_first(lines, like);
    if (first) {
        first->is_freed = true;
        first->due_us = first->look_us = 0;
    }
    return first;
}

struct line_waiter *line_leave(struct lines *lines, struct line_waiter *waiter)
{
    struct line_waiter **place = line_place(lines, waiter), *first = *place, *heir = waiter->next;
    atomic_fetch_sub_explicit(&lines->count, 1, memory_order_relaxed);
    if (waiter != first) {
        waiter->before->next = heir;
        if (heir)
            heir->before = waiter->before;
        else
            first->last = waiter->before;
        return NULL;
    }
    if (!heir) {
        *place = waiter->next_line;
        return NULL;
    }
    heir->before = NULL;
    heir->next_line = waiter->next_line;
    heir->last = waiter->last;
    heir->most = waiter->most;
    heir->is_held = waiter->is_held;
    heir->is_closed = waiter->is_closed;
    heir->is_freed = waiter->is_freed;
    heir->is_first = true;
    *place = heir;
    return heir;
}
