/* cluster_view.h - what a node of a cluster knows of it, for the two files that make and watch the cluster. */
#ifndef WEIR_LAB_CLUSTER_VIEW_H
#define WEIR_LAB_CLUSTER_VIEW_H

#include "cluster.h"

enum { CLUSTER_STEP_MS = 5 };

struct cluster_view {
    int owners[CLUSTER_SLOTS];            /* -1: nobody */
    int primaries[CLUSTER_NODES_MOST];    /* whose replica a node is; its own number: it is a primary; -1: unknown */
    bool well[CLUSTER_NODES_MOST];        /* it can be reached */
    bool strangers;                       /* some are not introduced yet */
    long long epochs[CLUSTER_NODES_MOST]; /* how new what a node says of its slots is */
};

/* By a node's own words, CLUSTER NODES. False: it does not say. */
bool cluster_view_of(struct cluster *cluster, int number, struct cluster_view *view);

/* Sleep for CLUSTER_STEP_MS. */
void cluster_step(void);

/* -1, with the sentence in cluster->error; what it tells may stand there. */
int cluster_fail(struct cluster *cluster, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif
