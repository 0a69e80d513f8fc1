/* verdict.h - what the table of the modes says, in three sentences. */
#ifndef BENCH_VERDICT_H
#define BENCH_VERDICT_H

#include "report/inside.h"

#define VERDICT_SENTENCES 3
#define VERDICT_SIZE 480

/* Write the sentences about cost, accuracy and an outage; one whose figures were not measured is empty. */
void verdict_write(const struct report *report, char sentences[VERDICT_SENTENCES][VERDICT_SIZE]);

/* Return the number that a value shows: a median or a count; NAN if it is a text or missing. */
double verdict_number(const struct value *value);

#endif
