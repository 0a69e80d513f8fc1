/* bench.h - what the sections of the benchmark share: what was asked for, and where the results go. */
#ifndef BENCH_BENCH_H
#define BENCH_BENCH_H

#include <stdbool.h>
#include <stdint.h>

#include "measure/subject.h"
#include "report/report.h"

#define LIST_MAX 16
#define BENCH_MAX_INSTANCES 16

enum extent { EXTENT_QUICK, EXTENT_DEFAULT, EXTENT_FULL };

struct bench {
    enum extent extent;
    int repeats;    /* of each measurement: 5 to MEASURE_MAX_REPEATS; 1 and up if asked for */
    double seconds; /* of one repetition of one cell */
    int threads_len, keys_len;
    int threads[LIST_MAX];
    uint64_t keys[LIST_MAX]; /* ascending */
    bool threads_given;      /* by --threads: likewise */
    bool keys_given;         /* by --keys: a section's own choice of keys steps back */
    bool kinds[KINDS];
    bool thorough; /* with --full, or where one section alone was asked for: all that it can show. Otherwise it leaves
                    * out what costs much time and bears on no goal, so that the whole run takes under 3 minutes */
    bool modes[3]; /* by --modes, indexed by enum weir_mode */
    int instances; /* processes that share a limit: 2 to BENCH_MAX_INSTANCES */
    const char *redis_url;  /* the user's server, for the modes side by side alone; NULL: a private one */
    const char *log;        /* an access log or CSV to replay; NULL: none */
    double log_speed;       /* at so many times its own pace; 0: so that it takes 10 seconds */
    const char *log_policy; /* as text, of which its requests are held against each key */
    const char *results;    /* the folder for pictures and their numbers; NULL: none are made */
    struct report *report;
};

/* Each prints its section. Those that measure memory or growth work in forked children and come first. */
void bench_memory(struct bench *bench);
void bench_growth(struct bench *bench);
void bench_goals(struct bench *bench);
void bench_floors(struct bench *bench);
void bench_decisions(struct bench *bench);
void bench_denials(struct bench *bench);
void bench_latency(struct bench *bench);
void bench_handles(struct bench *bench);
void bench_batch(struct bench *bench);

/* Those of distributed and hybrid mode, on a private redis-server; without one, or built without it, each says so. */
void bench_modes(struct bench *bench);
void bench_server(struct bench *bench);
void bench_callers(struct bench *bench);
void bench_round_trip(struct bench *bench);
void bench_leases(struct bench *bench);
void bench_outage(struct bench *bench);
void bench_cluster(struct bench *bench);
void bench_replicas(struct bench *bench);
void bench_tls(struct bench *bench);

/* Makes sure that what --redis names can be measured on; otherwise ends the program with a sentence. */
void bench_reach_redis(struct bench *bench);

/* What follows Consul, on a private agent; likewise. */
void bench_peers(struct bench *bench);

/* Reads the log that --log names, for bench_modes(). If it cannot be read, the program ends with status 2 after a line
 * on stderr that names the file, and the line of it. */
void bench_read_log(struct bench *bench);

/* The facts of the machine, of the compiler and of the library. */
void bench_machine(struct report *report);

/* What is being done, on stderr. */
__attribute__((format(printf, 1, 2))) void bench_progress(const char *format, ...);

/* `n` zeroed things of that size, the caller's to free. Ends the program with a message if there is no memory. */
void *bench_allocate(size_t n, size_t size);

/* Runs `work` on `shared`, `size` bytes that start zeroed, in a child of its own, and copies what it left there back.
 * Ends the program with a message if the child fails. */
void bench_in_child(void (*work)(void *shared), void *shared, size_t size);

/* Section `name` cannot be measured: on stderr, and as all there is in the section. */
void bench_missing(struct bench *bench, const char *name, const char *why);

/* The largest number of keys to measure with, `normal` unless --keys was given. */
uint64_t bench_largest_keys(const struct bench *bench, uint64_t normal);

#endif
