/* faults.h - faults of the soak's Redis, Consul, files and processes, one at a time. */
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
    enum fproxy_fault wire; /* on every `wire_every`th request */
    int64_t wire_every;
};

void faults_init(struct faults *faults, struct place *place, uint64_t seed);

/* Begin the next fault, in an order in which each comes once before any repeats; and end it. The judge learns what
 * each allows. Return 0, or -1 with a sentence in place->error if the soak itself failed. */
int faults_begin(struct faults *faults);
int faults_end(struct faults *faults);

int faults_count(void);
const char *fault_name(int fault);
/* Make only this fault from now on; return false if there is none of that name. */
bool faults_only(struct faults *faults, const char *name);

#endif
