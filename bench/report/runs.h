/* runs.h - two runs of the benchmark side by side. */
#ifndef BENCH_RUNS_H
#define BENCH_RUNS_H

#include "report/report.h"

/* Report each figure of run B relative to run A. Both are files of results.json; `report` is open and empty. Return 0,
 * 1 if a figure changed beyond noise, or 2 with a line on stderr if a file cannot be read or both have no figure in
 * common. */
int runs_compare(const char *path_a, const char *path_b, struct report *report);

#endif
