/* bench.h - what the sections of the benchmark share: the user's choices, and the report that takes the results. */
#ifndef BENCH_BENCH_H
#define BENCH_BENCH_H

#include <stdbool.h>
#include <stdint.h>

#include "measure/say.h"
#include "report/report.h"

#define LIST_MAX 16
#define BENCH_MAX_INSTANCES 16

struct bench {
    bool is_quick;   /* short repetitions and few keys: the figures mean little */
    bool is_alone;   /* a single section is measured: it shows everything */
    int repeats;     /* of each measurement: 1 to MEASURE_MAX_REPEATS, 5 by default */
    double seconds;  /* of one repetition of one cell */
    int threads_len; /* 0: a section's own choice */
    int threads[LIST_MAX];
    uint64_t keys;          /* the largest number of keys; 0: a section's own choice */
    bool modes[4];          /* by --modes, indexed by enum weir_mode */
    int instances;          /* processes that share a limit: 2 to BENCH_MAX_INSTANCES */
    const char *redis_url;  /* the user's server, for section modes only; NULL: a private one */
    const char *log;        /* an access log or CSV to replay; NULL: none */
    double log_speed;       /* how many times faster than the log's own pace; 0: so that it takes 10 seconds */
    const char *log_policy; /* the policy that each key of the log gets, as text */
    const char *results;    /* the folder for results; NULL: none are written */
    struct report *report;
};

/* Each function measures and prints its section. */
void bench_processes(struct bench *bench);

/* The sections of distributed and hybrid mode start a private redis-server. Without one, each reports why. */
void bench_modes(struct bench *bench);
void bench_server(struct bench *bench);
void bench_callers(struct bench *bench);
void bench_one_caller(struct bench *bench);

/* Check that the server of --redis can be measured on; otherwise fail. */
void bench_reach_redis(struct bench *bench);

/* Read the log of --log for bench_modes(). If that fails, the message names the file and the line. */
void bench_read_log(struct bench *bench);

/* Report the machine, the compiler and the library. */
void bench_machine(struct report *report);

#endif
