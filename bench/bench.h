/* bench.h - what the sections of the benchmark share: the user's choices, and the report that takes the results. */
#ifndef BENCH_BENCH_H
#define BENCH_BENCH_H

#include <stdbool.h>
#include <stdint.h>

#include "measure/say.h"
#include "measure/subject.h"
#include "report/report.h"

#define LIST_MAX 16
#define BENCH_MAX_INSTANCES 16

enum extent { EXTENT_QUICK, EXTENT_DEFAULT, EXTENT_FULL };

struct bench {
    enum extent extent;
    int repeats;    /* of each measurement: 1 to MEASURE_MAX_REPEATS, 5 by default */
    double seconds; /* of one repetition of one cell */
    int threads_len, keys_len;
    int threads[LIST_MAX];
    uint64_t keys[LIST_MAX]; /* ascending */
    bool threads_given;      /* --threads was given */
    bool keys_given;         /* --keys was given: it replaces a section's own choice */
    bool kinds[KINDS];
    bool thorough;          /* --full, or a single section: show everything. Otherwise a section leaves out rows that
                             * take long and bear on no goal, so that the whole run takes less than 3 minutes */
    bool modes[3];          /* by --modes, indexed by enum weir_mode */
    int instances;          /* processes that share a limit: 2 to BENCH_MAX_INSTANCES */
    const char *redis_url;  /* the user's server, for section modes only; NULL: a private one */
    const char *log;        /* an access log or CSV to replay; NULL: none */
    double log_speed;       /* how many times faster than the log's own pace; 0: so that it takes 10 seconds */
    const char *log_policy; /* the policy that each key of the log gets, as text */
    const char *results;    /* the folder for plots and their numbers; NULL: none are made */
    struct report *report;
};

/* Each function measures and prints its section. Memory and growth work in forked children and come first. */
void bench_memory(struct bench *bench);
void bench_growth(struct bench *bench);
void bench_goals(struct bench *bench);
void bench_floors(struct bench *bench);
void bench_decisions(struct bench *bench);
void bench_denials(struct bench *bench);
void bench_full(struct bench *bench);
void bench_latency(struct bench *bench);
void bench_hostile(struct bench *bench);
void bench_handles(struct bench *bench);
void bench_batch(struct bench *bench);
void bench_processes(struct bench *bench);

/* The sections of distributed and hybrid mode start a private redis-server. Without one, each reports why. */
void bench_modes(struct bench *bench);
void bench_server(struct bench *bench);
void bench_callers(struct bench *bench);
void bench_round_trip(struct bench *bench);
void bench_leases(struct bench *bench);
void bench_one_caller(struct bench *bench);
void bench_users(struct bench *bench);
void bench_outage(struct bench *bench);
void bench_cluster(struct bench *bench);
void bench_replicas(struct bench *bench);
void bench_tls(struct bench *bench);

/* The cost of following Consul, on a private agent. Without one, the section reports why. */
void bench_peers(struct bench *bench);

/* Check that the server of --redis can be measured on; otherwise fail. */
void bench_reach_redis(struct bench *bench);

/* Read the log of --log for bench_modes(). If that fails, the message names the file and the line. */
void bench_read_log(struct bench *bench);

/* Report the machine, the compiler and the library. */
void bench_machine(struct report *report);

/* Run `work` on `shared`, `size` bytes that start zeroed, in a child process, and copy its changes back. Fails if the
 * child does. */
void bench_in_child(void (*work)(void *shared), void *shared, size_t size);

/* Report that section `name` could not be measured: on stderr, and as the section's only row. */
void bench_missing(struct bench *bench, const char *name, const char *why);

/* Return the largest number of keys to measure with: the largest of --keys, or else `normal`. */
uint64_t bench_largest_keys(const struct bench *bench, uint64_t normal);

#endif
