/* inspected.h - a key that an inspector has looked at, for people and as JSON. */
#ifndef WEIR_CLI_INSPECTED_H
#define WEIR_CLI_INSPECTED_H

#include "cli/store.h"

/* Connect to what the store names; NULL after a complaint, and *code is the exit status. */
weir_inspector *inspected_connect(const struct store *store, int *code);

/* Complain about an error of an inspector, unless there is none. Return the exit status. */
int inspected_conclude(int error);

/* Print the answer of weir peek: lines for people, or a line of JSON. */
void inspected_peek(const struct weir_inspected *key, bool json);

/* Print the key in one line without its end: for people, or as a JSON object. */
void inspected_line(const struct weir_inspected *key);
void inspected_json(const struct weir_inspected *key);

#endif
