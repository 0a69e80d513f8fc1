/* answer.h - what a client of the control socket asks, and the text of the answer, made piece by piece. */
#ifndef CONTROL_ANSWER_H
#define CONTROL_ANSWER_H

#include "control/control.h"

#define ANSWER_SIZE 16384
#define ANSWER_LINE_MAX 4096 /* bytes of one line of an answer */

/* What all answers share; the thread's. */
struct answers_shared {
    struct weir *limiter;
    const char *policy_file; /* NULL: none */
    bool is_followed;        /* the file's policies are a separate layer */
    struct weir_top_key *top;
    size_t top_count;
    int64_t top_us; /* when `top` was read, on CLOCK_MONOTONIC; 0: never */
};

struct answer {
    struct answers_shared *shared;
    bool (*more)(struct answer *answer); /* append a line; false: there is no more */
    const weir_limit *limit;             /* where `stats` is */
    size_t at, end;                      /* where `top` is */
    size_t len, sent;                    /* of the text */
    char text[ANSWER_SIZE];
};

/* Begin the answer to a request, a line without its end; the line is changed. */
void answer_begin(struct answer *answer, struct answers_shared *shared, char *line);

/* Append as much as there is room for. False: all of the answer is in the text. */
bool answer_fill(struct answer *answer);

#endif
