/* parted.h - two places with a network between them that can fall silent, for a test: three network namespaces.
 *
 *     here  10.200.1.2 ---- router ---- 10.200.2.2  there
 *
 * A blackhole route in the router drops what goes in one direction, and nothing reports it: no reset, no ICMP, no
 * link that goes down. A proxy on one machine cannot do that. The namespaces are unnamed, so they vanish with their
 * last process, however a test ends.
 *
 * A namespace belongs to a thread: the thread that calls parted_open() is `here` from then on, with all threads and
 * processes that it starts later. This needs root, or user namespaces, and the program `ip`.
 */
#ifndef WEIR_LAB_PARTED_H
#define WEIR_LAB_PARTED_H

#include <stdbool.h>

#define PARTED_THERE "10.200.2.2"

enum parted_way { PARTED_TO_THERE = 1, PARTED_TO_HERE = 2, PARTED_BOTH = 3 };

struct parted {
    int here, router, there; /* descriptors of namespaces */
    enum parted_way silent;  /* 0: all passes */
    char error[512];         /* the reason after a -1 */
};

/* Return 0, or -1 with a sentence in parted->error if this machine does not allow it. */
int parted_open(struct parted *parted);

/* The namespaces vanish with their last process; the caller stays in `here`. */
void parted_close(struct parted *parted);

/* Move the caller there, or back here. What it starts there stays there. */
int parted_go_there(struct parted *parted);
int parted_come_back(struct parted *parted);

/* Drop everything in these directions; 0: drop nothing. Return 0 or -1. */
int parted_silence(struct parted *parted, enum parted_way way);

#endif
