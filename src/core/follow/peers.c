/* peers.c - which share is in force while instances come and go. */
#include "core/follow/peers.h"

#include "core/ground/arith.h"

#include <inttypes.h>
#include <stdlib.h>

/* ---- What a list comes to ---- */

static int by_id(const void *a, const void *b)
{
    return strcmp(((const struct weir_peer *)a)->id, ((const struct weir_peer *)b)->id);
}

static int list_check(const struct weir_peer *list, size_t n, struct message message)
{
    if (n == 0)
        return message_refuse(message, "the list of peers is empty");
    if (n > SHARE_MAX_INSTANCES)
        return message_refuse(message, "%zu peers are more than %d", n, SHARE_MAX_INSTANCES);
    for (size_t i = 0; i < n; i++) {
        if (!list[i].id || strnlen(list[i].id, PEERS_ID_MAX + 1) - 1 >= PEERS_ID_MAX)
            return message_refuse(message, "an id of a peer must be 1 to %d bytes long", PEERS_ID_MAX);
        if (list[i].weight < 1 || list[i].weight > SHARE_MAX_WEIGHT)
            return message_refuse(message, "the weight of peer %s must be 1 to %d, not %" PRId64, list[i].id,
                                  SHARE_MAX_WEIGHT, list[i].weight);
    }
    return WEIR_OK;
}

/* Read a list sorted by ids. */
static int sorted_read(const struct weir_peer *list, size_t n, const char *self, struct share *out,
                       struct message message)
{
    struct share share = { .count = (int64_t)n, .floors_only = !self };
    int64_t rank = -1;
    bool alike = true;
    for (size_t i = 0; i < n; i++) {
        if (i > 0 && by_id(&list[i - 1], &list[i]) == 0)
            return message_refuse(message, "peer %s is there twice", list[i].id);
        if (self && strcmp(list[i].id, self) == 0)
            rank = (int64_t)i;
        alike = alike && list[i].weight == list[0].weight;
        share.total += list[i].weight;
    }
    if (self && rank < 0)
        return message_refuse(message, "this instance, %s, is not among the %zu peers", self, n);
    if (!self && !alike)
        return message_refuse(message, "peers of different weights need to know which of them is this one");
    share.rank = max_of(0, rank);
    share.weight = list[share.rank].weight;
    if (!alike) {
        int64_t *weights = malloc(n * sizeof *weights);
        if (!weights) {
            message_write(message, "out of memory for %zu peers", n);
            return WEIR_ENOMEM;
        }
        for (size_t i = 0; i < n; i++)
            weights[i] = list[i].weight;
        share.weights = weights;
    }
    *out = share;
    return WEIR_OK;
}

int peers_read(const struct weir_peer *list, size_t n, const char *self, struct share *out, struct message message)
{
    int error = list_check(list, n, message);
    if (error)
        return error;
    struct weir_peer *sorted = malloc(n * sizeof *sorted);
    if (!sorted) {
        message_write(message, "out of memory for %zu peers", n);
        return WEIR_ENOMEM;
    }
    memcpy(sorted, list, n * sizeof *sorted);
    qsort(sorted, n, sizeof *sorted, by_id);
    error = sorted_read(sorted, n, self, out, message);
    free(sorted);
    return error;
}

/* ---- Views ---- */

static bool shares_are_equal(const struct share *a, const struct share *b)
{
    return a->weight == b->weight && a->total == b->total && a->rank == b->rank && a->count == b->count &&
           a->floors_only == b->floors_only && !a->weights == !b->weights &&
           (!a->weights || memcmp(a->weights, b->weights, (size_t)a->count * sizeof *a->weights) == 0);
}

static void weights_free(const struct share *share)
{
    free((void *)(uintptr_t)share->weights);
}

/* Return the share without remainders: it is never larger, for any number, than a share of the same ratio or a greater
 * one. */
static struct share floors_of(const struct share *share, int64_t count)
{
    return (struct share){ .weight = share->weight, .total = share->total, .count = count, .floors_only = true };
}

static void view_drop(struct peers *peers, size_t i)
{
    weights_free(&peers->views[i].share);
    peers->count--;
    memmove(&peers->views[i], &peers->views[i + 1], (peers->count - i) * sizeof peers->views[0]);
}

/* Return the slot of a view's end. The ends of one hold-down lie in at most PEERS_VIEWS - 1 slots, wherever those
 * begin. */
static int64_t slot_of(const struct peers *peers, size_t i)
{
    return peers->views[i].until_us / div_up(peers->rules.hold_down_us, PEERS_VIEWS - 2);
}

/* Merge two views. The table is full, and every view has an end in the future. */
static void merge_two(struct peers *peers)
{
    size_t i = 0;
    while (slot_of(peers, i) != slot_of(peers, i + 1))
        i++;
    assert(i + 1 < peers->count);
    const struct share *a = &peers->views[i].share, *b = &peers->views[i + 1].share;
    const struct share merged = floors_of(share_is_less(b, a) ? b : a, max_of(a->count, b->count));
    const bool is_first = peers->views[i].is_first || peers->views[i + 1].is_first;
    view_drop(peers, i);
    weights_free(&peers->views[i].share);
    peers->views[i].share = merged; /* until the later end, which is in the same slot */
    peers->views[i].is_first = is_first;
}

/* Make this the current view; takes ownership of its weights. */
static void view_push(struct peers *peers, const struct share *share, int64_t now_us)
{
    peers->views[peers->count - 1].until_us = now_us + peers->rules.hold_down_us;
    for (size_t i = 0; i < peers->count; i++) { /* a share that comes back holds once, so flapping takes no more room */
        if (shares_are_equal(&peers->views[i].share, share)) {
            view_drop(peers, i);
            break;
        }
    }
    if (peers->count == PEERS_VIEWS)
        merge_two(peers);
    peers->views[peers->count++] = (struct peers_view){ .share = *share, .until_us = INT64_MAX };
}

void peers_begin(struct peers *peers, const struct peers_rules *rules)
{
    *peers = (struct peers){ .rules = *rules, .count = 1, .answered_us = -1 };
    const int64_t instances = rules->floor_instances;
    /* The number of instances is not known. It decides how much room leases leave for others, so assume the maximum. */
    peers->views[0] = (struct peers_view){
        .share = {
            .weight = instances > 0,
            .total = max_of(1, instances),
            .count = instances > 0 ? instances : SHARE_MAX_INSTANCES,
            .floors_only = true,
        },
        .until_us = INT64_MAX,
        .is_first = true,
    };
}

void peers_end(struct peers *peers)
{
    for (size_t i = 0; i < peers->count; i++)
        weights_free(&peers->views[i].share);
    peers->count = 0;
}

/* Mark what is known as current; the floor holds for one more hold-down. */
static void peers_answered(struct peers *peers, int64_t now_us)
{
    peers_turn(peers, now_us);
    if (peers->is_stale && peers->floor.until_us > 0)
        peers->floor.until_us = now_us + peers->rules.hold_down_us;
    peers->is_stale = false;
    peers->answered_us = now_us;
}

bool peers_hear(struct peers *peers, const struct share *share, int64_t now_us)
{
    const bool is_first = peers->answered_us < 0;
    peers_answered(peers, now_us);
    if (peers->least.total == 0 || share_is_less(share, &peers->least))
        peers->least = floors_of(share, share->count);
    if (!is_first && shares_are_equal(&peers->views[peers->count - 1].share, share)) {
        weights_free(share);
        return false;
    }
    view_push(peers, share, now_us);
    return true;
}

void peers_confirm(struct peers *peers, int64_t now_us)
{
    assert(peers->answered_us >= 0);
    peers_answered(peers, now_us);
}

bool peers_is_settled(const struct peers *peers)
{
    return !peers->views[0].is_first;
}

static int64_t stale_at_us(const struct peers *peers)
{
    return peers->answered_us < 0 || peers->is_stale ? INT64_MAX : peers->answered_us + peers->rules.max_stale_us;
}

static void peers_become_stale(struct peers *peers)
{
    const int64_t instances = peers->rules.floor_instances;
    struct share floor = peers->least;
    if (instances > 0)
        floor = (struct share){ .weight = 1, .total = instances, .count = instances, .floors_only = true };
    peers->is_stale = true;
    if (share_is_less(&floor, &peers->views[peers->count - 1].share))
        peers->floor = (struct peers_view){ .share = floor, .until_us = INT64_MAX };
}

bool peers_turn(struct peers *peers, int64_t now_us)
{
    bool changes = false;
    if (now_us >= stale_at_us(peers)) {
        peers_become_stale(peers);
        changes = true;
    }
    while (peers->views[0].until_us <= now_us) { /* the current view never ends */
        view_drop(peers, 0);
        changes = true;
    }
    if (peers->floor.until_us > 0 && peers->floor.until_us <= now_us) {
        peers->floor.until_us = 0;
        changes = true;
    }
    return changes;
}

int64_t peers_due_us(const struct peers *peers)
{
    const int64_t floor_us = peers->floor.until_us > 0 ? peers->floor.until_us : INT64_MAX;
    return min_of(min_of(peers->views[0].until_us, floor_us), stale_at_us(peers));
}

void peers_in_force(const struct peers *peers, struct share chain[PEERS_SHARES])
{
    size_t count = 0, least = 0;
    for (size_t i = 0; i < peers->count; i++)
        chain[count++] = peers->views[i].share;
    if (peers->floor.until_us > 0)
        chain[count++] = peers->floor.share;
    for (size_t i = 1; i < count; i++)
        if (share_is_less(&chain[i], &chain[least]))
            least = i;
    const struct share first = chain[least];
    chain[least] = chain[0];
    chain[0] = first;
    for (size_t i = 0; i < count; i++)
        chain[i].next = i + 1 < count ? &chain[i + 1] : NULL;
}
