/* envelope.c - by how much admitted permits exceed a limit: see envelope.h.
 *
 * envelope_burst(): for a given end b the best start a is the start of some call that ended by b. Let value(a) be the
 * permits of calls that start at a or later and ended by b, plus a * rate. As b advances through the ends, a call
 * with start s adds its cost to value(a) for all a <= s. The result at b is the greatest value minus b * rate. A tree
 * of maxima over the sorted starts does both in log n: a node holds what was added to its whole subtree, and the
 * subtree's maximum including that. A leaf counts only after its call has ended; before, b could lie before a.
 */
#include "envelope.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>

struct node {
    double added, most;
};

struct tree {
    struct node *nodes; /* children of node i are 2i and 2i+1; the leaves begin at `leaves` */
    size_t leaves;
};

static int by_start(const void *left, const void *right)
{
    const struct admit *a = left, *b = right;
    return (a->start_us > b->start_us) - (a->start_us < b->start_us);
}

static int by_end(const void *left, const void *right)
{
    const struct admit *a = left, *b = right;
    return (a->end_us > b->end_us) - (a->end_us < b->end_us);
}

static void settle(struct tree *tree, size_t node)
{
    const struct node *left = &tree->nodes[2 * node], *right = &tree->nodes[2 * node + 1];
    tree->nodes[node].most = tree->nodes[node].added + (left->most > right->most ? left->most : right->most);
}

static void add(struct tree *tree, size_t node, double value)
{
    tree->nodes[node].added += value;
    tree->nodes[node].most += value;
}

/* Add `value` to the leaves 0..last; leaf `last` counts from now on. */
static void add_to_first(struct tree *tree, size_t last, double value)
{
    size_t node = tree->leaves + last;
    add(tree, node, value);
    tree->nodes[node].most = tree->nodes[node].added;
    for (; node > 1; node /= 2) {
        if (node % 2 == 1)
            add(tree, node - 1, value);
        settle(tree, node / 2);
    }
}

static size_t last_leaf_of(const int64_t *starts, size_t n, int64_t start)
{
    size_t low = 0, high = n; /* starts[low] <= start, starts[high] > start */
    while (high - low > 1) {
        size_t middle = low + (high - low) / 2;
        if (starts[middle] <= start)
            low = middle;
        else
            high = middle;
    }
    return low;
}

double envelope_burst(struct admit *admits, size_t n, int64_t limit, int64_t period_us)
{
    struct tree tree = { .leaves = 1 };
    double rate = (double)limit / (double)period_us, burst = 0;
    if (n == 0)
        return 0;
    while (tree.leaves < n)
        tree.leaves *= 2;
    tree.nodes = calloc(2 * tree.leaves, sizeof *tree.nodes);
    int64_t *starts = calloc(n, sizeof *starts);
    if (tree.nodes == NULL || starts == NULL) {
        free(tree.nodes);
        free(starts);
        return -1;
    }
    qsort(admits, n, sizeof *admits, by_start);
    int64_t first_us = admits[0].start_us; /* relative times keep a double precise */
    for (size_t i = 0; i < tree.leaves; i++) {
        if (i < n)
            starts[i] = admits[i].start_us;
        tree.nodes[tree.leaves + i] = (struct node){ i < n ? (double)(starts[i] - first_us) * rate : 0, -INFINITY };
    }
    for (size_t node = tree.leaves - 1; node > 0; node--)
        settle(&tree, node);
    qsort(admits, n, sizeof *admits, by_end);
    for (size_t i = 0; i < n; i++) {
        add_to_first(&tree, last_leaf_of(starts, n, admits[i].start_us), (double)admits[i].cost);
        double here = tree.nodes[1].most - (double)(admits[i].end_us - first_us) * rate;
        if (here > burst)
            burst = here;
    }
    free(tree.nodes);
    free(starts);
    return burst;
}

int64_t envelope_stretch(struct admit *admits, size_t n, int64_t period_us)
{
    /* Sorted by start, with each one's place in the order of ends; a call that started too early is dropped. */
    struct place {
        struct admit admit;
        size_t place;
    } *starts = malloc((n + 1) * sizeof *starts);
    bool *out = calloc(n + 1, sizeof *out);
    int64_t within = 0, most = 0;
    if (starts == NULL || out == NULL) {
        free(starts);
        free(out);
        return -1;
    }
    qsort(admits, n, sizeof *admits, by_end);
    for (size_t i = 0; i < n; i++)
        starts[i] = (struct place){ admits[i], i };
    qsort(starts, n, sizeof *starts, by_start); /* the admit is the first member */
    for (size_t i = 0, first = 0; i < n; i++) {
        within += out[i] ? 0 : admits[i].cost;
        for (; first < n && starts[first].admit.start_us <= admits[i].end_us - period_us; first++) {
            out[starts[first].place] = true;
            within -= starts[first].place <= i ? starts[first].admit.cost : 0;
        }
        most = within > most ? within : most;
    }
    free(starts);
    free(out);
    return most;
}

int64_t envelope_grid(struct admit *admits, size_t n, int64_t period_us)
{
    int64_t within = 0, most = 0, window = -1;
    qsort(admits, n, sizeof *admits, by_start);
    for (size_t i = 0; i < n; i++) {
        if (admits[i].end_us / period_us != admits[i].start_us / period_us)
            continue;
        within = admits[i].start_us / period_us == window ? within + admits[i].cost : admits[i].cost;
        window = admits[i].start_us / period_us;
        most = within > most ? within : most;
    }
    return most;
}
