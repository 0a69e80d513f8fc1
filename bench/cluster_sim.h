/* cluster_sim.h - hybrid mode with up to a thousand simulated instances. */
#ifndef BENCH_CLUSTER_SIM_H
#define BENCH_CLUSTER_SIM_H

#include <stdbool.h>

#include "report/report.h"

#define CLUSTER_SIM_MOST 1000

/* Simulate 1, 2, 5, 10, ... and at last `most` instances, in a child process, and report a table and charts. False,
 * with a line on stderr, if the simulator fails or a promise was broken. */
bool cluster_sim(int most, struct report *report);

#endif
