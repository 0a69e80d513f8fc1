/* share.c - the arithmetic of shares. */
#include "core/policy/share.h"

#include "core/ground/arith.h"

#include <inttypes.h>
#include <stdlib.h>

const struct share share_whole = { .weight = 1, .total = 1, .rank = 0, .count = 1, .weights = NULL };

static int out_of_range(struct message message, const char *name, int64_t max, int64_t value)
{
    return message_refuse(message, "%s must be 1 to %" PRId64 ", not %" PRId64, name, max, value);
}

static int weights_check(const struct weir_options *options, struct share *share, struct message message)
{
    share->total = 0;
    for (int64_t i = 0; i < share->count; i++) {
        int64_t weight = options->weights[i];
        if (weight < 1 || weight > SHARE_MAX_WEIGHT)
            return message_refuse(message, "weights[%" PRId64 "] must be 1 to %d, not %" PRId64, i, SHARE_MAX_WEIGHT,
                                  weight);
        share->total += weight;
    }
    share->weights = options->weights;
    share->weight = options->weights[share->rank];
    if (options->weight && options->weight != share->weight)
        return message_refuse(message, "weight is %" PRId64 " but weights[rank] is %" PRId64, options->weight,
                              share->weight);
    if (options->total_weight && options->total_weight != share->total)
        return message_refuse(message, "total_weight is %" PRId64 " but weights add up to %" PRId64,
                              options->total_weight, share->total);
    return WEIR_OK;
}

int share_from_options(const struct weir_options *options, struct share *out, struct message message)
{
    struct share share = share_whole;
    if (options->instances)
        share.count = options->instances;
    if (share.count < 1 || share.count > SHARE_MAX_INSTANCES)
        return out_of_range(message, "instances", SHARE_MAX_INSTANCES, share.count);
    share.rank = options->rank;
    if (share.rank < 0 || share.rank >= share.count)
        return message_refuse(message, "rank must be 0 to instances-1, which is %" PRId64 ", not %" PRId64,
                              share.count - 1, share.rank);

    if (options->weights) {
        int error = weights_check(options, &share, message);
        if (error)
            return error;
    } else {
        if (options->weight)
            share.weight = options->weight;
        if (share.weight < 1 || share.weight > SHARE_MAX_WEIGHT)
            return out_of_range(message, "weight", SHARE_MAX_WEIGHT, share.weight);
        share.total = options->total_weight ? options->total_weight : share.count * share.weight;
        int64_t most = share.weight + (share.count - 1) * SHARE_MAX_WEIGHT;
        int64_t least = share.weight + share.count - 1;
        if (share.total < least || share.total > most)
            return message_refuse(message,
                                  "total_weight must be %" PRId64 " to %" PRId64 " with weight %" PRId64 " and %" PRId64
                                  " instances, not %" PRId64,
                                  least, most, share.weight, share.count, share.total);
    }
    *out = share;
    return WEIR_OK;
}

const struct share *share_least(const struct share *share)
{
    const struct share *least = share;
    while ((share = share->next))
        if (share_is_less(share, least))
            least = share;
    return least;
}

int64_t share_instances(const struct share *share)
{
    int64_t most = 0;
    for (; share; share = share->next)
        most = max_of(most, share->count);
    return most;
}

static int by_weight(const void *a, const void *b)
{
    const struct share_class *one = a, *other = b;
    return (one->weight > other->weight) - (one->weight < other->weight);
}

int64_t share_classes(const struct share *share, struct share_class *out)
{
    int64_t classes = 0;
    for (int64_t i = 0; i < share->count; i++)
        out[i] = (struct share_class){ .weight = share->weights[i], .count = 1, .before = i < share->rank };
    qsort(out, (size_t)share->count, sizeof *out, by_weight);
    for (int64_t i = 1; i < share->count; i++) {
        if (out[i].weight == out[classes].weight) {
            out[classes].count++;
            out[classes].before += out[i].before;
        } else {
            out[++classes] = out[i];
        }
    }
    return classes + 1;
}

/* Return class i; without classes, instance i is a class. */
static struct share_class class_at(const struct share *share, int64_t i)
{
    if (share->classes)
        return share->classes[i];
    return (struct share_class){ .weight = share->weights[i], .count = 1, .before = i < share->rank };
}

static int64_t class_count(const struct share *share)
{
    return share->classes ? share->class_count : share->count;
}

/* Return the number of whole permits left to hand out: the sum of the remainders of all instances whose floor is at
 * least `floor_min`. */
static int64_t left_over(const struct share *share, int64_t permits, int64_t floor_min)
{
    if (share->floors_only)
        return 0;
    if (!share->weights && !share->classes) {
        if (share->total != share->count * share->weight)
            return 0; /* the others' weights are unknown: no instance takes what may be another's */
        return permits % share->count;
    }
    int64_t parts = 0;
    for (int64_t i = 0; i < class_count(share); i++) {
        const struct share_class class = class_at(share, i);
        const int64_t scaled = permits * class.weight;
        if (scaled / share->total >= floor_min)
            parts += class.count * (scaled % share->total);
    }
    return parts / share->total;
}

/* Return this instance's place among those whose floor is at least `floor_min`. */
static int64_t rank_among(const struct share *share, int64_t permits, int64_t floor_min)
{
    if (!share->weights && !share->classes)
        return share->rank;
    int64_t rank = 0;
    for (int64_t i = 0; i < class_count(share); i++) {
        const struct share_class class = class_at(share, i);
        if (permits * class.weight / share->total >= floor_min)
            rank += class.before;
    }
    return rank;
}

static int64_t share_part(const struct share *share, int64_t permits, int64_t floor_min)
{
    int64_t part = div_down(permits * share->weight, share->total);
    bool first = rank_among(share, permits, floor_min) < left_over(share, permits, floor_min);
    return part + first;
}

int share_copy(const struct share *share, struct share *out, void **memory)
{
    size_t size = 0;
    for (const struct share *link = share; link; link = link->next)
        size += sizeof *link + (link->weights ? (size_t)link->count * sizeof *link->classes : 0);
    struct share *links = NULL;
    *out = *share;
    *memory = NULL;
    if (size == sizeof *share)
        return WEIR_OK;
    links = malloc(size);
    if (!links)
        return WEIR_ENOMEM;
    size_t count = 0;
    for (const struct share *link = share; link; link = link->next)
        links[count++] = *link;
    struct share_class *classes = (struct share_class *)(links + count);
    for (size_t i = 0; i < count; i++) {
        links[i].next = i + 1 < count ? &links[i + 1] : NULL;
        assert(!links[i].classes); /* a copy is never copied again */
        if (!links[i].weights)
            continue;
        links[i].class_count = share_classes(&links[i], classes);
        links[i].classes = classes;
        links[i].weights = NULL; /* they belong to the caller */
        classes += links[i].class_count;
    }
    *out = links[0];
    *memory = links;
    return WEIR_OK;
}

int64_t share_permits(const struct share *share, int64_t permits)
{
    int64_t least = INT64_MAX;
    for (; share; share = share->next)
        least = min_of(least, share_part(share, permits, 0));
    return least;
}

int64_t share_refill(const struct share *share, int64_t permits)
{
    return share_part(share, permits, 1);
}
