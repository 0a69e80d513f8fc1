/* faults.h - what is done to the soak's Redis, Consul, files and processes, one thing at a time. */
#ifndef SOAK_FAULTS_H
#define SOAK_FAULTS_H

#include "place.h"

enum { FAULTS_MOST = 40 };

struct faults {
    struct place *place;
    uint64_t chance;
    int order[FAULTS_MOST], at;
    int64_t counts[FAULTS_MOST];
    int running, last;      /* -1: none */
    int victim;             /* a process */
    int node;               /* of the cluster */
    enum fproxy_fault wire; /* on each `wire_every`th request */
    int64_t wire_every;
};

void faults_init(struct faults *faults, struct place *place, uint64_t seed);

/* Do the next, in an order in which all come once before any comes again; and end it. What each allows is told to the
 * judge. 0, or -1 with a sentence in place->error: the soak itself has failed. */
int faults_begin(struct faults *faults);
int faults_end(struct faults *faults);

int faults_count(void);
const char *fault_name(int fault);
/* Do this one alone from now on; false: there is none of that name. */
bool faults_only(struct faults *faults, const char *name);

#endif
