/* csv_fields.h - the fields of one RFC 4180 record. */
#ifndef WEIR_CLI_CSV_FIELDS_H
#define WEIR_CLI_CSV_FIELDS_H

#include "cli/replay/input/csv.h"

/* Split the record that begins with `line` into csv->fields: 1; 0 if it is bad, the fault says why, and the next line
 * is the one after its first; -1 after a complaint. */
int csv_fields_read(struct csv *csv, struct lines *lines, struct span line, struct fault *fault);

/* Replace doubled quotes in a field by single ones, in csv->unquoted. False: out of memory. */
bool csv_unquote(struct csv *csv, struct span *field);

#endif
