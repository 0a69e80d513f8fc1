/* log.h - the requests of a log of the user's, as they are to be asked again. */
#ifndef BENCH_LOG_H
#define BENCH_LOG_H

#include "bench.h"

struct log_request {
    int64_t due_ns; /* after the start */
    uint32_t key;   /* by its number: nobody's address is sent to a server on which it would be found afterwards */
    uint32_t cost;
};

struct log {
    char name[48];     /* of the file, fit for a terminal */
    char key_name[64]; /* what its keys are: "client"; empty: all requests have the same */
    struct log_request *requests;
    size_t requests_len; /* at least 1 */
    size_t keys;         /* that are among them, */
    size_t keys_most;    /* and their numbers are below that */
    size_t left_out;     /* requests after those */
    bool is_spread;      /* its times are whole seconds, and what came in one of them is asked evenly over it */
    double speed;        /* times its own pace */
    double seconds;      /* that it takes */
    struct weir_policy
        policy; /* its period shortened as time is, so that as many are admitted as at the log's own pace */
};

/* Ends the program as bench_read_log() says. */
void log_read(const struct bench *bench, struct log *out);

#endif
