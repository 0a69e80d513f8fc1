/* parted.h - two places with a network between them that can fall silent, for a test: three network namespaces.
 *
 *     here  10.200.1.2 ---- router ---- 10.200.2.2  there
 *
 * A blackhole route in the router swallows what goes one way, and nobody is told: no reset, no ICMP, no link that goes
 * down. That is what a proxy on one machine cannot do. The namespaces have no names: they are gone with the last process
 * in them, however a test ends.
 *
 * Namespaces belong to threads: who calls parted_open() is `here` from then on, with all threads and processes that it
 * starts afterwards. It takes root, or a kernel that gives users namespaces of their own, and the program `ip`.
 */
#ifndef WEIR_LAB_PARTED_H
#define WEIR_LAB_PARTED_H

#include <stdbool.h>

#define PARTED_THERE "10.200.2.2"

enum parted_way { PARTED_TO_THERE = 1, PARTED_TO_HERE = 2, PARTED_BOTH = 3 };

struct parted {
    int here, router, there; /* descriptors of namespaces */
    enum parted_way silent;  /* 0: all passes */
    char error[512];         /* after a -1, why */
};

/* 0, or -1 with a sentence in parted->error: it cannot be had on this machine. */
int parted_open(struct parted *parted);

/* The namespaces go when nobody is left in them; the caller stays in `here`. */
void parted_close(struct parted *parted);

/* Make the caller be there, or here again: what it starts meanwhile stays where it was started. */
int parted_go_there(struct parted *parted);
int parted_come_back(struct parted *parted);

/* Let nothing through any more in that direction, or directions; 0: let all through again. 0, or -1. */
int parted_silence(struct parted *parted, enum parted_way way);

#endif
