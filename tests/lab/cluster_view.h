/* cluster_view.h - one node's view of its cluster, for the two files that make and watch the cluster. */
#ifndef WEIR_LAB_CLUSTER_VIEW_H
#define WEIR_LAB_CLUSTER_VIEW_H

#include "cluster.h"

enum { CLUSTER_STEP_MS = 5 };

struct cluster_view {
    int owners[CLUSTER_SLOTS];            /* -1: none */
    int primaries[CLUSTER_NODES_MOST];    /* whose replica a node is; its own number: a primary; -1: unknown */
    bool well[CLUSTER_NODES_MOST];        /* it can be reached */
    bool strangers;                       /* some nodes are not introduced yet */
    long long epochs[CLUSTER_NODES_MOST]; /* the epoch of a node's claims */
};

/* Read CLUSTER NODES from a node. Return false if it does not answer. */
bool cluster_view_of(struct cluster *cluster, int number, struct cluster_view *view);

/* Sleep for CLUSTER_STEP_MS. */
void cluster_step(void);

/* Return -1 and store the sentence in cluster->error, which may be one of the arguments. */
int cluster_fail(struct cluster *cluster, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif
